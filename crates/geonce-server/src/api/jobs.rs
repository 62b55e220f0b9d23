//! Jobs: planned, then run on command, followed, cancelled. They live in this gateway's memory and are few; what they came to
//! is in the audit trail.

use super::query::Query;
use super::{Call, json, problem};
use crate::serve::{Answer, Gateway, Problem};
use geonce::clock::Timestamp;
use geonce::event::Ids;
use hyper::StatusCode;
use hyper::header::{self, HeaderValue};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Jobs that are remembered. The oldest that is not running makes room.
const JOBS_MAX: usize = 100;
/// Jobs that run at a time: they share a store with senders.
const RUNNING_MAX: usize = 2;
/// How long a plan can be run: what it saw is long past afterwards.
const PLAN_GOOD_FOR: Duration = Duration::from_hours(1);

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Makes dead events ready again.
    Replay,
    /// Puts repaired events in the place of dead ones.
    Repair,
    /// Removes dead events for good.
    Purge,
}

impl Kind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Kind::Replay => "replay",
            Kind::Repair => "repair",
            Kind::Purge => "purge",
        }
    }

    /// Where jobs of this kind are.
    const fn path(self) -> &'static str {
        match self {
            Kind::Replay => "replays",
            Kind::Repair => "repairs",
            Kind::Purge => "purges",
        }
    }
}

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Planned,
    Running,
    Done,
    Cancelled,
    Failed,
}

impl State {
    const ALL: [State; 5] = [State::Planned, State::Running, State::Done, State::Cancelled, State::Failed];

    const fn as_str(self) -> &'static str {
        match self {
            State::Planned => "planned",
            State::Running => "running",
            State::Done => "done",
            State::Cancelled => "cancelled",
            State::Failed => "failed",
        }
    }
}

/// How far a job is. Shared with whatever does it.
#[derive(Default)]
pub(super) struct Progress {
    /// Events that were dealt with,
    pub(super) done: AtomicU64,
    /// and whether it is to stop.
    pub(super) stop: AtomicBool,
}

/// What a job does, once it is run: a summary, or why it ended.
pub(super) type Work =
    Box<dyn FnOnce(Arc<Gateway>, Arc<Progress>) -> Pin<Box<dyn Future<Output = geonce::Result<Value>> + Send>> + Send>;

/// What is to be done, before it has an id.
pub(super) struct Plan {
    pub(super) kind: Kind,
    /// What was asked for, as it was understood.
    pub(super) asked: Value,
    /// What would be done: members of the job.
    pub(super) shown: Value,
    /// Events that would be dealt with.
    pub(super) events: u64,
    pub(super) work: Work,
}

struct Job {
    id: String,
    kind: Kind,
    asked: Value,
    shown: Value,
    events: u64,
    created: Timestamp,
    started: Option<Timestamp>,
    ended: Option<Timestamp>,
    state: State,
    work: Option<Work>,
    progress: Arc<Progress>,
    summary: Value,
    error: Option<String>,
}

/// The jobs of a gateway, by id: the earliest first.
#[derive(Default)]
pub(super) struct Jobs {
    ids: Ids,
    all: Mutex<BTreeMap<String, Job>>,
}

impl Jobs {
    /// How many there are in each state.
    pub(super) fn counts(&self) -> Value {
        let all = self.all();
        let count = |state: State| (state.as_str().to_owned(), all.values().filter(|job| job.state == state).count().into());
        State::ALL.into_iter().map(count).collect::<serde_json::Map<_, _>>().into()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Job>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a plan; its text.
    fn add(&self, plan: Plan, now: Timestamp) -> Result<(String, String), Problem> {
        let mut all = self.all();
        if all.len() >= JOBS_MAX {
            let oldest = all.values().find(|job| job.state != State::Running).map(|job| job.id.clone());
            let oldest = oldest.ok_or_else(|| problem::too_many("there are as many jobs as may be"))?;
            all.remove(&oldest);
        }
        let id = self.ids.next(now).to_string().replacen("evt_", "job_", 1);
        let Plan { kind, asked, shown, events, work } = plan;
        let job = Job {
            id: id.clone(),
            kind,
            asked,
            shown,
            events,
            created: now,
            started: None,
            ended: None,
            state: State::Planned,
            work: Some(work),
            progress: Arc::default(),
            summary: Value::Null,
            error: None,
        };
        let text = job.text(true);
        all.insert(id.clone(), job);
        Ok((id, text))
    }

    /// Does something with a job of this kind.
    fn with<T>(&self, kind: Kind, id: &str, work: impl FnOnce(&mut Job) -> T) -> Result<T, Problem> {
        self.all().get_mut(id).filter(|job| job.kind == kind).map(work).ok_or_else(problem::job_unknown)
    }

    /// Lets a planned job begin, if others leave room; nothing where it has begun already.
    fn begin(&self, kind: Kind, id: &str, now: Timestamp) -> Result<Option<(Work, Arc<Progress>)>, Problem> {
        let mut all = self.all();
        let running = all.values().filter(|job| job.state == State::Running).count();
        let job = all.get_mut(id).filter(|job| job.kind == kind).ok_or_else(problem::job_unknown)?;
        match job.state {
            State::Running => return Ok(None),
            State::Planned if now.since(job.created) > PLAN_GOOD_FOR => return Err(problem::job_ended("too old")),
            State::Planned if running >= RUNNING_MAX => {
                return Err(problem::too_many("as many jobs as may be are running"));
            }
            State::Planned => {}
            ended => return Err(problem::job_ended(ended.as_str())),
        }
        (job.state, job.started) = (State::Running, Some(now));
        Ok(job.work.take().map(|work| (work, Arc::clone(&job.progress))))
    }

    /// Notes how a job has ended.
    fn end(&self, id: &str, ended: geonce::Result<Value>, now: Timestamp) {
        let mut all = self.all();
        let Some(job) = all.get_mut(id) else { return };
        job.ended = Some(now);
        match ended {
            Ok(summary) => {
                // What was over before it noticed that it should stop is done.
                let cut_short = summary["cancelled"] == Value::Bool(true);
                job.state = if cut_short { State::Cancelled } else { State::Done };
                job.summary = summary;
            }
            Err(error) => {
                tracing::warn!(job = id, %error, hint = error.hint_text(), "a job failed");
                job.state = State::Failed;
                // Its words are for the log: they may hold file names.
                job.error = Some(error.kind().as_str().to_owned());
            }
        }
    }
}

impl Job {
    /// The job, with what it would do where that is asked for.
    fn text(&self, whole: bool) -> String {
        let mut text = json!({
            "id": self.id,
            "kind": self.kind.as_str(),
            "state": self.state.as_str(),
            "created": self.created.to_string(),
            "started": self.started.map(|at| at.to_string()),
            "ended": self.ended.map(|at| at.to_string()),
            "asked": self.asked,
            "planned": self.events,
            "done": self.progress.done.load(Relaxed),
            "stopping": self.state == State::Running && self.progress.stop.load(Relaxed),
            "summary": self.summary,
            "error": self.error,
        });
        if let (Some(text), Some(shown)) = (text.as_object_mut(), self.shown.as_object().filter(|_| whole)) {
            text.extend(shown.clone());
        }
        text.to_string()
    }
}

/// Remembers a plan and answers it.
pub(super) fn planned(gateway: &Gateway, plan: Plan) -> Result<Answer, Problem> {
    let kind = plan.kind;
    let (id, text) = gateway.api.jobs.add(plan, gateway.clock.now())?;
    tell(gateway, kind, &id, State::Planned);
    let mut answer = json(StatusCode::CREATED, text);
    if let Ok(place) = HeaderValue::from_str(&format!("{}/{}/{id}", super::route::PREFIX, kind.path())) {
        answer.headers_mut().insert(header::LOCATION, place);
    }
    Ok(answer)
}

fn tell(gateway: &Gateway, kind: Kind, id: &str, state: State) {
    let told = json!({ "job": id, "kind": kind.as_str(), "state": state.as_str() });
    gateway.api.stream.tell("job", |out| out.push_str(&told.to_string()));
}

/// All jobs of a kind, the latest first, without what they would do.
pub(super) fn list(gateway: &Gateway, kind: Kind, call: &Call) -> Result<Answer, Problem> {
    Query::read(call.query.as_deref(), &[])?;
    let all = gateway.api.jobs.all();
    let texts: Vec<String> = all.values().rev().filter(|job| job.kind == kind).map(|job| job.text(false)).collect();
    Ok(json(StatusCode::OK, format!("{{\"jobs\":[{}]}}", texts.join(","))))
}

/// One job.
pub(super) fn show(gateway: &Gateway, kind: Kind, call: &Call) -> Result<Answer, Problem> {
    Query::read(call.query.as_deref(), &[])?;
    gateway.api.jobs.with(kind, &call.found.id, |job| json(StatusCode::OK, job.text(true)))
}

/// Runs a plan. One that runs already goes on.
pub(super) fn run(gateway: &Arc<Gateway>, kind: Kind, call: &Call) -> Result<Answer, Problem> {
    Query::read(call.query.as_deref(), &[])?;
    let (id, now) = (&call.found.id, gateway.clock.now());
    if let Some((work, progress)) = gateway.api.jobs.begin(kind, id, now)? {
        tell(gateway, kind, id, State::Running);
        gateway.api.runtime.spawn(carry_out(Arc::clone(gateway), kind, id.clone(), work, progress));
    }
    gateway.api.jobs.with(kind, id, |job| json(StatusCode::ACCEPTED, job.text(true)))
}

async fn carry_out(gateway: Arc<Gateway>, kind: Kind, id: String, work: Work, progress: Arc<Progress>) {
    // In a task of its own: should it fail in a way that is our fault, the job has ended all the same.
    let ended = tokio::spawn(work(Arc::clone(&gateway), progress)).await;
    let failed = |_| Err(geonce::Error::new(geonce::error::Kind::Internal, "a job failed in a way that is our fault"));
    gateway.api.jobs.end(&id, ended.unwrap_or_else(failed), gateway.clock.now());
    if let Ok(state) = gateway.api.jobs.with(kind, &id, |job| job.state) {
        tell(&gateway, kind, &id, state);
    }
}

/// Takes a plan back, or stops what runs; what has ended stays as it is.
pub(super) fn cancel(gateway: &Gateway, kind: Kind, call: &Call) -> Result<Answer, Problem> {
    Query::read(call.query.as_deref(), &[])?;
    gateway.api.jobs.with(kind, &call.found.id, |job| {
        job.progress.stop.store(true, Relaxed);
        if job.state == State::Planned {
            (job.state, job.ended, job.work) = (State::Cancelled, Some(gateway.clock.now()), None);
        }
        json(StatusCode::OK, job.text(true))
    })
}
