//! Dead events changed by this process, beside a gateway where that is possible.

use super::job;
use super::way::{Asked, Ended, Group, Planned, Tell, Watch, Way};
use crate::api::Kind;
use crate::config::{self, Settings};
use crate::failure::Failure;
use crate::tool::Tool;
use crate::{gateway, hints, show, treated};
use geonce::audit::Trail;
use geonce::clock::{Clock, SystemClock};
use geonce::event::{EventId, Ids};
use geonce::intake::Source;
use geonce::repair::Choices;
use geonce::replay::{self, Pace, Progress, Repairs, Selected, Treated};
use geonce::store::Access;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;

/// Events that an entry of the audit trail names.
const NAMED_MAX: usize = 32;

/// This process.
pub(super) struct Here {
    pub(super) tool: Tool,
    pub(super) selected: Selected,
    kind: Kind,
    choices: Option<Choices>,
    rate: Option<f64>,
    /// Every configured source, by name, where events are repaired.
    sources: HashMap<String, Arc<Source>>,
    ids: Ids,
}

impl Here {
    /// Opens the store: to change events, or only to look.
    pub(super) fn open(asked: &Asked<'_>, looking: bool) -> Result<Here, Failure> {
        let sources = match asked.kind {
            Kind::Repair => sources(&config::load(&asked.place.overrides())?)?,
            Kind::Replay | Kind::Purge => HashMap::new(),
        };
        // The keys of an embedded store are in the memory of the gateway that runs.
        let access = |place: &config::Place| match (looking, asked.kind) {
            (true, _) => Access::Tool,
            (false, Kind::Repair) if place.store.is_embedded() => Access::Gateway,
            (false, _) => Access::Runner,
        };
        let tool = Tool::open_as(asked.place, access).map_err(held)?;
        let (choices, rate) = (asked.choices.clone(), asked.which.rate);
        Ok(Here { tool, selected: Selected::default(), kind: asked.kind, choices, rate, sources, ids: Ids::new() })
    }

    /// What a repair would make of an event; nothing is changed.
    pub(super) fn draft(
        &self,
        event: EventId,
    ) -> Result<std::result::Result<geonce::repair::Plan, geonce::event::Cause>, Failure> {
        let find = |name: &str| self.sources.get(name).cloned();
        let repairs = Repairs { source: &find, choices: self.choices.as_ref(), ids: &self.ids };
        match self.tool.wait(replay::draft(&self.tool.store, event, &repairs))? {
            Ok(plan) => Ok(Ok(self.tool.wait(geonce::repair::look_up(&*self.tool.store, plan))?)),
            Err(cause) => Ok(Err(cause)),
        }
    }
}

/// A gateway has the store to itself, and nobody knows where it is.
fn held(failure: Failure) -> Failure {
    if failure.code() == "unavailable" && failure.message().contains("another gateway has it open") {
        let message =
            "a gateway is running on this store, only it knows which keys are taken, and it is not known where it is";
        return Failure::new("gateway_running", message).hint(
            "--data names its folder; or stop it, or use its API: POST /api/v1/repairs; --dry-run works beside it",
        );
    }
    failure
}

fn sources(settings: &Settings) -> Result<HashMap<String, Arc<Source>>, Failure> {
    let source = |(name, source): (&String, _)| Ok((name.clone(), gateway::route(name, source, settings)?.source));
    settings.sources.iter().map(source).collect()
}

impl Way for Here {
    fn plan(&mut self, asked: &Asked<'_>) -> Result<Planned, Failure> {
        let filters = asked.which.filters(asked.kind.as_str(), show::now())?;
        self.selected = self.tool.wait(replay::select(&*self.tool.store, &filters))?;
        let group = |((source, code), group): (&(String, String), &replay::Group)| Group {
            source: source.clone(),
            code: code.clone(),
            events: group.events,
            hint: hints::for_cause(&group.cause),
        };
        let groups = self.selected.groups.iter().map(group).collect();
        Ok(Planned { events: self.selected.events.len() as u64, groups, more: self.selected.more })
    }

    fn run(&mut self, tell: &mut Tell<'_>, watch: &mut Watch<'_>) -> Result<Ended, Failure> {
        let Here { tool, selected, kind, choices, rate, sources, ids } = self;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let trail = Trail::new(Arc::clone(&tool.store), Arc::clone(&clock));
        let named: Vec<String> = selected.events.iter().take(NAMED_MAX).map(ToString::to_string).collect();
        let with = choices.as_ref().map(ToString::to_string);
        let asked = json!({"with": with, "events": selected.events.len(), "first": named, "rate_per_second": rate});
        let entry = tool.wait(trail.begin(&job::who(), kind.as_str(), asked))?;
        let store = &tool.store;
        let summary = tool.block_on(async {
            let mut pace = Pace { rate: *rate, stop: job::until_ctrl_c(), hold: None };
            let watch = |progress: &Progress| watch(progress);
            match kind {
                Kind::Replay => replay::replay(store, &clock, selected, &mut pace, watch).await,
                Kind::Purge => replay::purge(store, &clock, selected, &mut pace, watch).await,
                Kind::Repair => {
                    let find = |name: &str| sources.get(name).cloned();
                    let repairs = Repairs { source: &find, choices: choices.as_ref(), ids };
                    let tell = |one: Treated| tell(&treated::line(&one, true));
                    replay::repair(store, &clock, selected, &repairs, &mut pace, tell, watch).await
                }
            }
        });
        tool.wait(entry.end(&summary.json(kind.done_word())))?;
        let failure = summary.failure.map(Failure::from);
        Ok(Ended { progress: summary.progress, cancelled: summary.cancelled, failure })
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        self.tool.close()
    }
}
