//! Jobs: planned, then run on command, followed, cancelled. They live in this gateway's memory and are few; what they came to
//! is in the audit trail.

use super::job::{Job, Kind, State, Task, Wanted};
use super::query::Query;
use super::{Call, json, problem};
use crate::serve::{Answer, Gateway, Problem};
use crate::treated;
use geonce::audit::{Entry, Trail};
use geonce::clock::Timestamp;
use geonce::event::{EventId, Ids};
use geonce::replay::{self, Pace, Progress, Repairs, Summary, Treated};
use geonce::store::Repaired;
use hyper::StatusCode;
use hyper::header::{self, HeaderValue};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// Jobs that are remembered. The oldest that is not running makes room.
const JOBS_MAX: usize = 50;
/// Plans that can be run: each is a list of events. The oldest makes room.
const PLANS_MAX: usize = 8;
/// Jobs that run at a time: they share a store with senders.
const RUNNING_MAX: usize = 2;
/// How long a plan can be run: what it saw is long past afterwards.
const PLAN_GOOD_FOR: Duration = Duration::from_hours(1);
/// Events that an entry of the audit trail names.
const NAMED_MAX: usize = 32;
/// How often it is looked whether a job's follower is still there.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long jobs may take to end where the gateway does.
const END_WITHIN: Duration = Duration::from_secs(5);

/// The jobs of a gateway, by id: the earliest first.
#[derive(Default)]
pub(super) struct Jobs {
    pub(super) ids: Ids,
    all: Mutex<BTreeMap<String, Job>>,
    ended: Notify,
}

impl Jobs {
    /// How many there are in each state.
    pub(super) fn counts(&self) -> Value {
        let all = self.all();
        let count =
            |state: State| (state.as_str().to_owned(), all.values().filter(|job| job.state == state).count().into());
        State::ALL.into_iter().map(count).collect::<serde_json::Map<_, _>>().into()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Job>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a plan; its id and its text.
    fn add(&self, plan: Plan, now: Timestamp) -> Result<(String, String), Problem> {
        let mut all = self.all();
        let oldest = |all: &BTreeMap<String, Job>, is_meant: &dyn Fn(&Job) -> bool| {
            all.values().find(|job| is_meant(job)).map(|job| job.id.clone())
        };
        if all.values().filter(|job| job.state == State::Planned).count() >= PLANS_MAX
            && let Some(oldest) = oldest(&all, &|job| job.state == State::Planned)
        {
            all.remove(&oldest);
        }
        if all.len() >= JOBS_MAX {
            let oldest = oldest(&all, &|job| job.state != State::Running);
            all.remove(&oldest.ok_or_else(|| problem::too_many("there are as many jobs as may be"))?);
        }
        let id = self.ids.next(now).to_string().replacen("evt_", "job_", 1);
        let job = Job::new(id.clone(), plan, now);
        let text = job.text(true);
        all.insert(id.clone(), job);
        Ok((id, text))
    }

    /// Does something with a job of this kind.
    fn with<T>(&self, kind: Kind, id: &str, work: impl FnOnce(&mut Job) -> T) -> Result<T, Problem> {
        self.all().get_mut(id).filter(|job| job.kind == kind).map(work).ok_or_else(problem::job_unknown)
    }

    /// Lets a planned job begin, if others leave room; nothing where it has begun already.
    fn begin(&self, kind: Kind, id: &str, now: Timestamp) -> Result<Option<Begun>, Problem> {
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
        job.heard(0, now);
        let (asked, who, stop, hold) = (job.asked.clone(), job.who.clone(), job.stop.subscribe(), job.hold());
        Ok(job.task.take().map(|task| Begun { task, asked, who, stop, hold }))
    }

    /// Asks all that run to end, and waits until they have, but not for ever.
    pub(super) async fn end_all(&self) {
        for job in self.all().values_mut() {
            job.stop.send_replace(true);
        }
        let ended = async {
            loop {
                let mut ended = pin!(self.ended.notified());
                ended.as_mut().enable();
                if self.all().values().all(|job| job.state != State::Running) {
                    return;
                }
                ended.await;
            }
        };
        let _ = tokio::time::timeout(END_WITHIN, ended).await;
    }
}

/// What is to be done, before it has an id.
pub(super) struct Plan {
    pub(super) kind: Kind,
    /// What was asked for, as it was understood.
    pub(super) asked: Value,
    /// What would be done: further members of the job.
    pub(super) shown: Value,
    pub(super) task: Task,
    pub(super) wanted: Wanted,
}

/// A job that has begun.
struct Begun {
    task: Task,
    asked: Value,
    who: Option<String>,
    stop: watch::Receiver<bool>,
    hold: Option<watch::Receiver<bool>>,
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

/// One job. Who follows it says how many results they have.
pub(super) fn show(gateway: &Gateway, kind: Kind, call: &Call) -> Result<Answer, Problem> {
    let known: &[&str] = if kind == Kind::Repair { &["results_from"] } else { &[] };
    let query = Query::read(call.query.as_deref(), known)?;
    let from = query.get("results_from").map_or(Ok(0), |text| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|number| digits && *number <= replay::EVENTS_MAX);
        number.ok_or_else(|| problem::query_invalid("results_from", "how many results you have"))
    })?;
    gateway.api.jobs.with(kind, &call.found.id, |job| {
        job.heard(from, gateway.clock.now());
        json(StatusCode::OK, job.text(true))
    })
}

/// Runs a plan. One that runs already goes on. Nothing is run that the audit trail does not know of.
pub(super) fn run(gateway: &Arc<Gateway>, kind: Kind, call: &Call) -> Result<Answer, Problem> {
    Query::read(call.query.as_deref(), &[])?;
    let (id, now) = (&call.found.id, gateway.clock.now());
    if let Some(begun) = gateway.api.jobs.begin(kind, id, now)? {
        // In a task of its own: whoever asked may be gone before it ends.
        let who = begun.who.as_ref().map_or_else(|| who(call), |said| format!("{said} ({})", who(call)));
        let (gateway, id) = (Arc::clone(gateway), id.clone());
        gateway.clone().api.runtime.spawn(async move { carry_out(gateway, kind, id, who, begun).await });
    }
    gateway.api.jobs.with(kind, id, |job| json(StatusCode::ACCEPTED, job.text(true)))
}

/// Who asks, for the audit trail.
pub(super) fn who(call: &Call) -> String {
    format!("api from {}", call.caller.address)
}

/// The trail of the gateway's store.
pub(super) fn trail(gateway: &Gateway) -> Trail {
    Trail::new(Arc::clone(&gateway.store), Arc::clone(&gateway.clock))
}

async fn carry_out(gateway: Arc<Gateway>, kind: Kind, id: String, who: String, begun: Begun) {
    let Begun { task, asked, stop, hold, .. } = begun;
    tell(&gateway, kind, &id, State::Running);
    let named: Vec<String> = task.selected.events.iter().take(NAMED_MAX).map(EventId::to_string).collect();
    let events = task.selected.events.len();
    let asked = json!({ "job": id, "with": asked, "events": events, "first": named });
    let entry = trail(&gateway).begin(&who, kind.as_str(), asked).await;
    let summary = match entry {
        Ok(entry) => {
            let (of_task, of_id) = (Arc::clone(&gateway), id.clone());
            // Should it fail in a way that is our fault, the job has ended all the same.
            let pace = Pace { rate: task.rate, stop, hold };
            let mut treating = tokio::spawn(async move { treat(&of_task, kind, &of_id, task, pace).await });
            let treated = tokio::select! {
                treated = &mut treating => treated,
                () = abandoned(&gateway, kind, &id) => treating.await,
            };
            let fault =
                |_| Err(geonce::Error::new(geonce::error::Kind::Internal, "a job failed in a way that is our fault"));
            let summary = treated.map_or_else(fault, Ok);
            note(entry, kind, summary.as_ref().ok()).await;
            summary
        }
        Err(error) => Err(error),
    };
    let ended = gateway.api.jobs.with(kind, &id, |job| {
        job.end(&summary, gateway.clock.now());
        job.state
    });
    gateway.api.jobs.ended.notify_waiters();
    if let Ok(state) = ended {
        tell(&gateway, kind, &id, state);
    }
}

/// Ends a job whose follower is gone; without a follower, it goes on by itself.
async fn abandoned(gateway: &Gateway, kind: Kind, id: &str) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let ended = gateway.api.jobs.with(kind, id, |job| {
            let abandoned = job.is_abandoned(gateway.clock.now());
            if abandoned {
                job.stop.send_replace(true);
            }
            abandoned
        });
        if ended.unwrap_or(true) {
            tracing::info!(job = id, "whoever followed the job is gone; it ends");
            return;
        }
    }
}

/// Writes what a job came to into the trail.
async fn note(entry: Entry, kind: Kind, summary: Option<&Summary>) {
    let result = summary.map_or_else(|| json!({ "failure": "internal" }), |summary| told(summary, kind));
    if let Err(error) = entry.end(&result).await {
        tracing::warn!(%error, ?result, "what a job came to is not in the audit trail");
    }
}

/// A summary for others: what a store says of its failures may hold file names.
pub(super) fn told(summary: &Summary, kind: Kind) -> Value {
    let mut told = summary.json(kind.done_word());
    if let Some(failure) = &summary.failure {
        told["failure"] = failure.kind().as_str().into();
    }
    told
}

/// Does what was planned.
async fn treat(gateway: &Arc<Gateway>, kind: Kind, id: &str, task: Task, mut pace: Pace) -> Summary {
    let Task { selected, choices, .. } = task;
    let watch = |progress: &Progress| {
        let _ = gateway.api.jobs.with(kind, id, |job| job.progress = *progress);
    };
    let (store, clock) = (&gateway.store, &gateway.clock);
    match kind {
        Kind::Replay => replay::replay(store, clock, &selected, &mut pace, watch).await,
        Kind::Purge => replay::purge(store, clock, &selected, &mut pace, watch).await,
        Kind::Repair => {
            let source = |name: &str| gateway.sources.get(name).map(|served| Arc::clone(&served.route.source));
            let repairs = Repairs { source: &source, choices: choices.as_ref(), ids: &gateway.api.jobs.ids };
            let tell = |treated: Treated| {
                became(gateway, &treated);
                let _ = gateway.api.jobs.with(kind, id, |job| job.treated(|whole| treated::line(&treated, whole)));
            };
            replay::repair(store, clock, &selected, &repairs, &mut pace, tell, watch).await
        }
    }
}

/// Tells followers of the stream what a repaired event became.
fn became(gateway: &Gateway, treated: &Treated) {
    let Treated::Repaired { plan, own, repaired: Repaired::Done(verdict) } = treated else { return };
    gateway.api.stream.tell("repaired", |out| {
        let told = json!({ "event": plan.original.to_string(), "became": verdict.kept_in(*own).to_string() });
        out.push_str(&told.to_string());
    });
}

/// Takes a plan back, or stops what runs; what has ended stays as it is.
pub(super) fn cancel(gateway: &Gateway, kind: Kind, call: &Call) -> Result<Answer, Problem> {
    Query::read(call.query.as_deref(), &[])?;
    gateway.api.jobs.with(kind, &call.found.id, |job| {
        job.stop.send_replace(true);
        if job.state == State::Planned {
            (job.state, job.ended, job.task) = (State::Cancelled, Some(gateway.clock.now()), None);
        }
        json(StatusCode::OK, job.text(true))
    })
}
