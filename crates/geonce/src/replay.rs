//! Many dead events at a time: chosen first, then replayed, repaired or purged at a rate, in small steps that can be watched
//! and cancelled. It works beside a running gateway.
//!
//! What is chosen is a list of events as they are at that moment: what dies later is in none. An event that is not dead any
//! more when its turn comes is left alone.

use crate::clock::Clock;
use crate::error::{Error, Kind, Result};
use crate::event::{Cause, Class, EventId, Ids, State};
use crate::intake::Source;
use crate::repair::{self, Choices, Plan};
use crate::store::{Answer, Filter, ListRequest, Record, Repaired, Store};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

/// Events of one job.
pub const EVENTS_MAX: usize = 1_000_000;
/// Events of one step.
const STEP_EVENTS_MAX: usize = 64;
/// Steps in a second, where there is a rate.
const STEPS_PER_SECOND: f64 = 10.0;
/// Records that are asked for at once.
const PAGE_EVENTS: usize = 1_000;

/// Dead events of one source and code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// How many.
    pub events: u64,
    /// The cause of one of them.
    pub cause: Cause,
}

/// The events of a job.
#[derive(Clone, Debug, Default)]
pub struct Selected {
    /// In the order in which they came.
    pub events: Vec<EventId>,
    /// How many there are of each source and code.
    pub groups: BTreeMap<(String, String), Group>,
    /// Whether there are more than [`EVENTS_MAX`]: the latest are chosen.
    pub more: bool,
}

/// Chooses the dead events that one of the filters means.
pub async fn select(store: &dyn Store, filters: &[Filter]) -> Result<Selected> {
    let (mut selected, mut seen) = (Selected::default(), HashSet::new());
    for filter in filters {
        let filter = Filter { state: Some(State::Dead), ..filter.clone() };
        let mut before = None;
        loop {
            let request = ListRequest { filter: filter.clone(), before, limit: PAGE_EVENTS, payloads: false };
            let page = store.list(request).await?;
            let last = page.len() < PAGE_EVENTS;
            before = page.last().map(|record| record.id);
            for record in page {
                if selected.events.len() >= EVENTS_MAX {
                    selected.more = true;
                    break;
                }
                let Some(cause) = record.cause.filter(|_| seen.insert(record.id)) else { continue };
                selected.events.push(record.id);
                let name = (record.source.to_string(), cause.code.clone());
                selected.groups.entry(name).or_insert(Group { events: 0, cause }).events += 1;
            }
            if last || selected.more {
                break;
            }
        }
    }
    selected.events.sort_unstable();
    Ok(selected)
}

/// How a job is run.
pub struct Pace {
    /// Events in a second, if that is limited.
    pub rate: Option<f64>,
    /// Ends the job after the step that is under way, once it holds true.
    pub stop: watch::Receiver<bool>,
    /// Where somebody takes what is told: no step begins while it holds true.
    pub hold: Option<watch::Receiver<bool>>,
}

impl Pace {
    /// Waits until a step may begin. Whoever held it and is gone holds it no longer.
    async fn released(&mut self) {
        let Some(hold) = &mut self.hold else { return };
        tokio::select! {
            _ = hold.wait_for(|hold| !*hold) => {}
            _ = self.stop.wait_for(|stop| *stop) => {}
        }
    }
}

/// How far a job has come, or what it came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Events that were chosen.
    pub planned: u64,
    /// Replayed, repaired or purged.
    pub done: u64,
    /// Left as they are: not dead any more, or not to be repaired.
    pub skipped: u64,
    /// Not come to.
    pub left: u64,
}

/// What a job came to.
#[derive(Debug)]
pub struct Summary {
    /// How far it came.
    pub progress: Progress,
    /// Whether it was ended before its time.
    pub cancelled: bool,
    /// What stood in the way of the rest.
    pub failure: Option<Error>,
}

impl Summary {
    /// For machines, under the word for what was done.
    pub fn json(&self, done: &str) -> serde_json::Value {
        let Progress { planned, done: number, skipped, left } = self.progress;
        let mut summary = serde_json::Map::new();
        for (name, value) in [("planned", planned), (done, number), ("skipped", skipped), ("left", left)] {
            summary.insert(name.to_owned(), value.into());
        }
        summary.insert("cancelled".to_owned(), self.cancelled.into());
        if let Some(failure) = &self.failure {
            summary.insert("failure".to_owned(), failure.to_string().into());
        }
        summary.into()
    }
}

/// Makes events ready again.
pub async fn replay(
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
    selected: &Selected,
    pace: &mut Pace,
    watch: impl FnMut(&Progress) + Send,
) -> Summary {
    run(selected, pace, watch, &mut Changing { store, clock, change: Change::Replay }).await
}

/// Removes events for good.
pub async fn purge(
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
    selected: &Selected,
    pace: &mut Pace,
    watch: impl FnMut(&Progress) + Send,
) -> Summary {
    run(selected, pace, watch, &mut Changing { store, clock, change: Change::Purge }).await
}

#[derive(Clone, Copy)]
enum Change {
    Replay,
    Purge,
}

/// Replays or purges events of one step.
struct Changing<'a> {
    store: &'a Arc<dyn Store>,
    clock: &'a Arc<dyn Clock>,
    change: Change,
}

impl Step for Changing<'_> {
    fn take(&mut self, events: Vec<EventId>) -> Answer<'_, u64> {
        Box::pin(each(self.store, self.clock, events, self.change))
    }
}

/// Changes events beside each other: stores put what comes together into few transactions.
async fn each(store: &Arc<dyn Store>, clock: &Arc<dyn Clock>, events: Vec<EventId>, change: Change) -> Result<u64> {
    let mut tasks = JoinSet::new();
    for event in events {
        let (store, now) = (Arc::clone(store), clock.now());
        tasks.spawn(async move {
            let filter = Filter { id: Some(event), state: Some(State::Dead), ..Filter::default() };
            match change {
                Change::Replay => store.replay(filter, now).await,
                Change::Purge => store.purge(filter, now).await,
            }
        });
    }
    let (mut changed, mut failure) = (0, None);
    while let Some(ended) = tasks.join_next().await {
        match ended.map_err(panicked).and_then(|answer| answer) {
            Ok(count) => changed += count,
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    match failure {
        Some(error) if changed == 0 => Err(error),
        _ => Ok(changed),
    }
}

fn panicked(error: tokio::task::JoinError) -> Error {
    Error::new(Kind::Internal, "changing an event").because(error)
}

/// What became of an event in a job that repairs.
pub enum Treated {
    /// It was repaired, or was not dead any more: what the store says, and the id that was meant for the new event.
    Repaired {
        /// What was planned.
        plan: Box<Plan>,
        /// The id of the new event, if it was accepted.
        own: EventId,
        /// What the store says.
        repaired: Repaired,
    },
    /// It cannot be repaired so.
    Cannot {
        /// The event.
        event: EventId,
        /// Why.
        cause: Cause,
        /// What was planned, where that was possible.
        plan: Option<Box<Plan>>,
    },
}

/// How events are repaired.
pub struct Repairs<'a> {
    /// The source with this name.
    pub source: &'a (dyn Fn(&str) -> Option<Arc<Source>> + Sync),
    /// What is done; where nothing is said, what would mend each event.
    pub choices: Option<&'a Choices>,
    /// Makes the ids of new events.
    pub ids: &'a Ids,
}

/// Repairs events; each is told to `tell`.
pub async fn repair(
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
    selected: &Selected,
    repairs: &Repairs<'_>,
    pace: &mut Pace,
    tell: impl FnMut(Treated) + Send,
    watch: impl FnMut(&Progress) + Send,
) -> Summary {
    run(selected, pace, watch, &mut Repairing { store, clock, repairs, tell }).await
}

/// Repairs events of one step.
struct Repairing<'a, T> {
    store: &'a Arc<dyn Store>,
    clock: &'a Arc<dyn Clock>,
    repairs: &'a Repairs<'a>,
    tell: T,
}

impl<T: FnMut(Treated) + Send> Step for Repairing<'_, T> {
    fn take(&mut self, events: Vec<EventId>) -> Answer<'_, u64> {
        Box::pin(self.repair(events))
    }
}

impl<T: FnMut(Treated) + Send> Repairing<'_, T> {
    async fn repair(&mut self, events: Vec<EventId>) -> Result<u64> {
        let mut plans = Vec::with_capacity(events.len());
        for event in events {
            match draft(self.store, event, self.repairs).await? {
                Ok(plan) if plan.is_ready() => plans.push(plan),
                Ok(plan) => {
                    let cause = plan.problem.clone().unwrap_or_else(|| cannot("no_key", "it has no key"));
                    (self.tell)(Treated::Cannot { event, cause, plan: Some(Box::new(plan)) });
                }
                Err(cause) => (self.tell)(Treated::Cannot { event, cause, plan: None }),
            }
        }
        let now = self.clock.now();
        let ids: Vec<EventId> = plans.iter().map(|_| self.repairs.ids.next(now)).collect();
        let wanted = plans.iter().zip(&ids).map(|(plan, id)| plan.repair(*id)).collect::<Result<Vec<_>>>()?;
        let mut done = 0;
        let answers = if wanted.is_empty() { Vec::new() } else { self.store.repair(wanted, now).await? };
        for ((plan, own), repaired) in plans.into_iter().zip(ids).zip(answers) {
            done += u64::from(matches!(repaired, Repaired::Done(_)));
            (self.tell)(Treated::Repaired { plan: Box::new(plan), own, repaired });
        }
        Ok(done)
    }
}

/// Plans the repair of an event, or tells why not; nothing is changed.
pub async fn draft(
    store: &Arc<dyn Store>,
    event: EventId,
    repairs: &Repairs<'_>,
) -> Result<std::result::Result<Plan, Cause>> {
    let filter = Filter { id: Some(event), ..Filter::default() };
    let found = store.list(ListRequest { filter, before: None, limit: 1, payloads: true }).await?.pop();
    let Some(record) = found else { return Ok(Err(cannot("event_unknown", "there is no such event any more"))) };
    let Some(source) = (repairs.source)(&record.source) else {
        let message = format!("the configuration has no source {}", record.source);
        return Ok(Err(cannot("source_unknown", &message)));
    };
    let choices = repairs.choices.cloned();
    // It may take a while of computing.
    let planning = tokio::task::spawn_blocking(move || planned(&record, &source, choices));
    planning.await.map_err(panicked)
}

fn planned(record: &Record, source: &Source, choices: Option<Choices>) -> std::result::Result<Plan, Cause> {
    let unknown = || cannot("no_suggestion", "nothing is known that would mend it: say what the repair is to do");
    let choices = match choices {
        Some(choices) => choices,
        None => repair::suggest(record, source).ok_or_else(unknown)?,
    };
    repair::draft(record, source, &choices)
}

fn cannot(code: &str, message: &str) -> Cause {
    Cause::new(Class::Schema, code, message)
}

/// What a job does with some events at a time.
trait Step: Send {
    /// Changes them; how many were.
    fn take(&mut self, events: Vec<EventId>) -> Answer<'_, u64>;
}

/// Takes events step by step.
async fn run(
    selected: &Selected,
    pace: &mut Pace,
    mut watch: impl FnMut(&Progress) + Send,
    step: &mut impl Step,
) -> Summary {
    let planned = selected.events.len() as u64;
    let mut progress = Progress { planned, left: planned, ..Progress::default() };
    let rate = pace.rate.filter(|rate| rate.is_finite() && *rate > 0.0);
    let size = rate.map_or(STEP_EVENTS_MAX, step_events);
    let mut ticks = rate.map(|rate| {
        #[expect(clippy::cast_precision_loss, reason = "a step has few events")]
        let mut ticks = tokio::time::interval(Duration::from_secs_f64(size as f64 / rate));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    });
    for events in selected.events.chunks(size) {
        if let Some(ticks) = &mut ticks {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = pace.stop.wait_for(|stop| *stop) => {}
            }
        }
        pace.released().await;
        if *pace.stop.borrow() {
            return Summary { progress, cancelled: true, failure: None };
        }
        match step.take(events.to_vec()).await {
            Ok(done) => {
                let count = events.len() as u64;
                progress.done += done;
                progress.skipped += count.saturating_sub(done);
                progress.left = progress.left.saturating_sub(count);
            }
            Err(error) => return Summary { progress, cancelled: false, failure: Some(error) },
        }
        watch(&progress);
    }
    Summary { progress, cancelled: false, failure: None }
}

/// How many events a step has at a rate.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "clamped to a step, which has few events"
)]
fn step_events(rate: f64) -> usize {
    (rate / STEPS_PER_SECOND).clamp(1.0, STEP_EVENTS_MAX as f64) as usize
}

#[cfg(test)]
mod tests;
