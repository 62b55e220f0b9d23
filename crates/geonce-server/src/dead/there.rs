//! Dead events changed by the gateway that runs on the store: planned, run and followed through its API.

use super::job;
use super::way::{Asked, Ended, Group, Planned, Tell, Watch, Way};
use crate::api::{EVENTS_NAMED_MAX, Kind};
use crate::arguments::{DeadChoiceArguments, PlaceArguments};
use crate::client::{Client, Trouble};
use crate::failure::Failure;
use crate::show;
use crate::tool::Tool;
use geonce::event::State;
use geonce::replay::Progress;
use geonce::store::Filter;
use hyper::{Method, StatusCode};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How often a job is asked how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often the gateway hears of us while what we print is not read: without, it would take us for gone.
const HEARD_EVERY: Duration = Duration::from_secs(5);
/// The fastest rate that a gateway takes; what is faster is not limited.
const RATE_MAX: f64 = 1e6;

/// A gateway.
pub(super) struct There {
    client: Arc<Client>,
    /// The same store, to look into.
    tool: Tool,
    kind: Kind,
    /// The path of the plan, as long as it is one.
    planned: Option<String>,
}

impl There {
    /// Finds the gateway of a store, and makes sure that it answers us and has that store.
    pub(super) fn open(place: &PlaceArguments) -> Result<There, Failure> {
        let tool = Tool::open(place)?;
        let client = Client::find(&place.overrides(), &tool.place.data)?;
        let doing = "asking the gateway how it is";
        let status = tool.block_on(client.ask(&Method::GET, "/status", None)).map_err(|trouble| match trouble {
            Trouble::Refused { status: StatusCode::UNAUTHORIZED, .. } => {
                let message = format!("the gateway at {} does not take our token", client.address());
                Failure::new("api_token", message).hint("it is api.token in the data folder, or token in [api]")
            }
            trouble => trouble.explained(doing),
        })?;
        let own = tool.store.id().map(|id| show::hex(&id));
        if status["store"]["id"].as_str() != own.as_deref() {
            let message = format!("the gateway at {} has another store", client.address());
            return Err(Failure::new("gateway_address", message).hint("--data names the folder of the gateway"));
        }
        Ok(There { client: Arc::new(client), tool, kind: Kind::Replay, planned: None })
    }

    fn ask(&self, method: &Method, path: &str, body: Option<&Value>, doing: &str) -> Result<Value, Failure> {
        let answer = self.tool.block_on(self.client.ask(method, path, body));
        answer.map_err(|trouble| trouble.explained(doing))
    }

    /// What flags mean, as the API has it; nothing where no event can be meant.
    fn filter(&self, which: &DeadChoiceArguments, kind: Kind) -> Result<Option<Value>, Failure> {
        let filters = which.filters(kind.as_str(), show::now())?;
        let mut said = Map::new();
        if let Some(Filter { source, code, since, until, .. }) = filters.first() {
            said.extend(source.clone().map(|source| ("source".to_owned(), source.into())));
            said.extend(code.clone().map(|code| ("code".to_owned(), code.into())));
            said.extend(since.map(|since| ("since".to_owned(), since.to_string().into())));
            said.extend(until.map(|until| ("until".to_owned(), until.to_string().into())));
        }
        if which.events.is_empty() {
            said.insert("all".to_owned(), true.into());
            return Ok(Some(said.into()));
        }
        let mut events = BTreeSet::new();
        for filter in &filters {
            match filter.id {
                Some(id) => events.extend([id.to_string()]),
                // Events are named by their keys too, which the gateway does not look for.
                None => self.tool.each(filter, false, |record| {
                    events.extend((record.state == State::Dead).then(|| record.id.to_string()));
                    Ok(true)
                })?,
            }
        }
        if events.len() > EVENTS_NAMED_MAX {
            let message = format!("these are more than {} events", show::count(EVENTS_NAMED_MAX as u64));
            return Err(Failure::new("usage", message).hint("name them in several commands, or by --code and --source"));
        }
        if events.is_empty() {
            return Ok(None);
        }
        said.insert("events".to_owned(), events.into_iter().collect());
        Ok(Some(said.into()))
    }

    /// Asks for a job now and then, on another thread, as long as the answer is kept.
    fn stay(&self, path: &str) -> JoinSet<()> {
        let (client, path) = (Arc::clone(&self.client), path.to_owned());
        let mut staying = JoinSet::new();
        staying.spawn(async move {
            loop {
                tokio::time::sleep(HEARD_EVERY).await;
                let _ = client.ask(&Method::GET, &path, None).await;
            }
        });
        staying
    }

    /// Follows a job to its end; whether Ctrl-C ended it.
    async fn follow(&self, path: &str, tell: &mut Tell<'_>, watch: &mut Watch<'_>) -> Result<(Value, bool), Failure> {
        let (mut stop, mut stopped) = (job::until_ctrl_c(), false);
        let (mut from, mut shown) = (0, Progress::default());
        let _staying = self.stay(path);
        loop {
            let query = if self.kind == Kind::Repair { format!("?results_from={from}") } else { String::new() };
            let asked = self.client.ask(&Method::GET, &format!("{path}{query}"), None).await;
            let job = asked.map_err(|trouble| trouble.explained("following the job"))?;
            let results = job["results"].as_array().map_or(&[][..], Vec::as_slice);
            let before = job["results_from"].as_u64().unwrap_or(from);
            for result in results.iter().skip(usize::try_from(from.saturating_sub(before)).unwrap_or(0)) {
                tell(result);
            }
            from = from.max(before + results.len() as u64);
            let progress = progress(&job);
            if progress != shown {
                shown = progress;
                watch(&progress);
            }
            let running = matches!(job["state"].as_str(), Some("planned" | "running"));
            if results.is_empty() && !running {
                return Ok((job, stopped));
            }
            // There may be more at once, and the gateway waits until these are taken.
            if results.is_empty() && wait(&mut stop, stopped).await {
                stopped = true;
                let cancelled = self.client.ask(&Method::DELETE, path, None).await;
                cancelled.map_err(|trouble| trouble.explained("cancelling the job"))?;
            }
        }
    }
}

/// Waits a little; whether it was told to stop just now.
async fn wait(stop: &mut watch::Receiver<bool>, stopped: bool) -> bool {
    if *stop.borrow() && !stopped {
        return true;
    }
    tokio::select! {
        () = tokio::time::sleep(LOOK_EVERY) => false,
        told = stop.wait_for(|stop| *stop), if !stopped => told.is_ok(),
    }
}

fn progress(job: &Value) -> Progress {
    let number = |name: &str| job[name].as_u64().unwrap_or(0);
    Progress { planned: number("planned"), done: number("done"), skipped: number("skipped"), left: number("left") }
}

impl Way for There {
    fn plan(&mut self, asked: &Asked<'_>) -> Result<Planned, Failure> {
        self.kind = asked.kind;
        let Some(filter) = self.filter(asked.which, asked.kind)? else { return Ok(Planned::default()) };
        let mut body = json!({ "filter": filter, "who": job::who(), "follow": true });
        if let Some(rate) = asked.which.rate.filter(|rate| *rate <= RATE_MAX) {
            body["rate"] = rate.into();
        }
        if let Some(choices) = &asked.choices {
            body["choices"] = choices.iter().map(|choice| Value::from(choice.to_string())).collect();
        }
        let doing = format!("planning to {}", asked.kind.as_str());
        let job = self.ask(&Method::POST, &format!("/{}", asked.kind.path()), Some(&body), &doing)?;
        let id = job["id"].as_str().unwrap_or_default();
        self.planned = Some(format!("/{}/{id}", asked.kind.path()));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let group = |group: &Value| Group {
            source: text(&group["source"]),
            code: text(&group["code"]),
            events: group["events"].as_u64().unwrap_or(0),
            hint: text(&group["hint"]),
        };
        Ok(Planned {
            events: progress(&job).planned,
            groups: job["groups"].as_array().into_iter().flatten().map(group).collect(),
            more: job["more"] == true,
        })
    }

    fn run(&mut self, tell: &mut Tell<'_>, watch: &mut Watch<'_>) -> Result<Ended, Failure> {
        let Some(path) = self.planned.take() else {
            return Err(Failure::new("internal", "nothing was planned"));
        };
        self.ask(&Method::POST, &format!("{path}/run"), None, "running the job")?;
        let (job, stopped) = self.tool.block_on(self.follow(&path, tell, watch))?;
        let failure = match job["state"].as_str() {
            Some("failed") => {
                let why = job["error"].as_str().unwrap_or("internal");
                let message = format!("the gateway could not go on: {}", show::escaped(why));
                Some(Failure::new("gateway_failed", message).hint("its log says why"))
            }
            Some("cancelled") if !stopped => Some(Failure::new("cancelled", "somebody else has ended the job")),
            _ => None,
        };
        Ok(Ended { progress: progress(&job), cancelled: job["state"] == "cancelled", failure })
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        if let Some(path) = &self.planned {
            // A plan that stays is forgotten after a while.
            let _ = self.tool.block_on(self.client.ask(&Method::DELETE, path, None));
        }
        self.tool.close()
    }
}
