//! The books as stores keep them: what is counted for each source, under which names, and how counters become a
//! [`Status`]. Where the counters are kept is each store's own business.

use super::{Counted, Ledger, Status, Traffic, traffic};
use crate::event::{EventId, Outcome, State};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What is counted for each source: the fields of a ledger, and how many records and keys there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tally {
    Received,
    Refused,
    Duplicate,
    Applied,
    Stale,
    Near,
    Repaired,
    Dead,
    Purged,
    Waiting,
    Conflict,
    Drift,
    Collision,
    Revived,
    /// Records of events that are done.
    Done,
    /// Keys that are remembered.
    Keys,
}

/// The names of the tallies in the store, in their order.
pub(super) const TALLIES: [&str; 16] = [
    "received",
    "refused",
    "duplicate",
    "applied",
    "stale",
    "near",
    "repaired",
    "dead",
    "purged",
    "waiting",
    "conflict",
    "drift",
    "collision",
    "revived",
    "done",
    "keys",
];

/// What the name of a counter of refused events begins with; the code follows.
pub(super) const REFUSED_PREFIX: &str = "refused:";

/// What the name of a counter of dead events begins with; the code follows.
pub(super) const DEAD_PREFIX: &str = "dead:";

impl Tally {
    /// Where an outcome is counted.
    pub(super) const fn of(outcome: Outcome) -> Tally {
        match outcome {
            Outcome::Applied => Tally::Applied,
            Outcome::Stale => Tally::Stale,
            Outcome::Near => Tally::Near,
            Outcome::Repaired => Tally::Repaired,
        }
    }
}

/// Events whose repeated deliveries are remembered until they are written. Beyond that only the books count them.
const REPEATED_EVENTS_MAX: usize = 65_536;
/// Events whose repeated deliveries are written at once: others wait for that.
const REPEATED_AT_ONCE_MAX: usize = 512;

/// What was counted and is not written yet.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Uncounted {
    /// Refused events, by source and code.
    pub(super) refused: HashMap<(Arc<str>, String), u64>,
    /// Duplicates, by source,
    pub(super) duplicates: HashMap<Arc<str>, u64>,
    /// and by the event that was delivered again.
    pub(super) repeated: BTreeMap<EventId, u64>,
    /// What is remembered of redeliveries, by source and name.
    pub(super) traffic: HashMap<(Arc<str>, Cow<'static, str>), u64>,
}

impl Uncounted {
    pub(super) fn is_empty(&self) -> bool {
        self.refused.is_empty() && self.duplicates.is_empty() && self.repeated.is_empty() && self.traffic.is_empty()
    }

    pub(super) fn add(&mut self, counted: Vec<Counted>) {
        for one in counted {
            match one {
                Counted::Refused { source, code } => *self.refused.entry((source, code)).or_default() += 1,
                Counted::Duplicate { source, of, lag } => {
                    *self.traffic.entry((Arc::clone(&source), Cow::Borrowed(lag.name()))).or_default() += 1;
                    *self.duplicates.entry(source).or_default() += 1;
                    self.repeat(of, 1);
                }
                Counted::Compared { source, fields } => {
                    for name in traffic::compared(fields) {
                        *self.traffic.entry((Arc::clone(&source), Cow::Owned(name))).or_default() += 1;
                    }
                }
            }
        }
    }

    /// What is to be written next.
    pub(super) fn take(&mut self) -> Uncounted {
        let mut taken = std::mem::take(self);
        if let Some(&first) = taken.repeated.keys().nth(REPEATED_AT_ONCE_MAX) {
            self.repeated = taken.repeated.split_off(&first);
        }
        taken
    }

    /// Takes back what could not be written.
    pub(super) fn put_back(&mut self, other: Uncounted) {
        for (refusal, count) in other.refused {
            *self.refused.entry(refusal).or_default() += count;
        }
        for (source, count) in other.duplicates {
            *self.duplicates.entry(source).or_default() += count;
        }
        for (event, count) in other.repeated {
            self.repeat(event, count);
        }
        for (name, count) in other.traffic {
            *self.traffic.entry(name).or_default() += count;
        }
    }

    fn repeat(&mut self, event: EventId, count: u64) {
        if self.repeated.len() < REPEATED_EVENTS_MAX || self.repeated.contains_key(&event) {
            *self.repeated.entry(event).or_default() += count;
        }
    }
}

/// The fields of a ledger in the order of [`TALLIES`].
fn ledger_fields(ledger: &mut Ledger) -> [&mut u64; 14] {
    [
        &mut ledger.received,
        &mut ledger.refused,
        &mut ledger.duplicate,
        &mut ledger.applied,
        &mut ledger.stale,
        &mut ledger.near,
        &mut ledger.repaired,
        &mut ledger.dead,
        &mut ledger.purged,
        &mut ledger.waiting,
        &mut ledger.conflict,
        &mut ledger.drift,
        &mut ledger.collision,
        &mut ledger.revived,
    ]
}

/// A counter: source, name, value.
pub(super) type Counter = (Arc<str>, String, i64);

impl Status {
    /// Takes a counter of redeliveries; false if it is none.
    pub(super) fn note(&mut self, source: &str, name: &str, value: u64) -> bool {
        let mut found = Traffic::default();
        let taken = found.take(name, value);
        if taken {
            self.traffic.entry(source.to_owned()).or_default().add(&found);
        }
        taken
    }
}

/// The status that the counters tell, given how many events are leased. What is wrong with them in words.
pub(super) fn status(counters: Vec<Counter>, leased: u64) -> Result<Status, String> {
    let mut status = Status::default();
    let mut done = 0;
    for (source, name, value) in counters {
        let value = u64::try_from(value).map_err(|_| format!("{source}: {name} is below zero"))?;
        if let Some(code) = name.strip_prefix(REFUSED_PREFIX) {
            status.invalid.insert((source.to_string(), code.to_owned()), value);
            continue;
        }
        if let Some(code) = name.strip_prefix(DEAD_PREFIX) {
            if value > 0 {
                status.dead.insert((source.to_string(), code.to_owned()), value);
            }
            continue;
        }
        if status.note(&source, &name, value) {
            continue;
        }
        let ledger = status.ledgers.entry(source.to_string()).or_default();
        match TALLIES.iter().position(|known| *known == name) {
            Some(place) if place == Tally::Done as usize => done += value,
            Some(place) if place == Tally::Keys as usize => status.keys += value,
            Some(place) => *ledger_fields(ledger)[place] = value,
            None => return Err(format!("{source}: the counter {name:?} is unknown")),
        }
    }
    let (waiting, dead) =
        status.ledgers.values().fold((0, 0), |(waiting, dead), ledger| (waiting + ledger.waiting, dead + ledger.dead));
    status.states = BTreeMap::from([
        (State::Ready, waiting.saturating_sub(leased)),
        (State::Leased, leased),
        (State::Done, done),
        (State::Dead, dead),
    ]);
    Ok(status)
}

/// How many records of a source are open, done and dead, and how many keys they have.
pub(super) type Records = [i64; 4];

/// The law for each source, and the counters that can be compared with records. Problems in words.
pub(super) fn compare(counters: Vec<Counter>, records: &HashMap<Arc<str>, Records>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut by_source: BTreeMap<Arc<str>, HashMap<String, i64>> = BTreeMap::new();
    for (source, name, value) in counters {
        if value < 0 {
            problems.push(format!("{source}: {name} is below zero"));
        }
        by_source.entry(source).or_default().insert(name, value);
    }
    for (source, counts) in by_source {
        let count = |name: &str| counts.get(name).copied().unwrap_or(0);
        let mut ledger = Ledger::default();
        for (name, field) in TALLIES.iter().zip(ledger_fields(&mut ledger)) {
            *field = u64::try_from(count(name)).unwrap_or(0);
        }
        if ledger.difference() != 0 {
            problems.push(format!("{source}: the books are off by {}", ledger.difference()));
        }
        for (name, prefix) in [("refused", REFUSED_PREFIX), ("dead", DEAD_PREFIX)] {
            let of_code = counts.iter().filter(|(name, _)| name.starts_with(prefix));
            let by_code: i64 = of_code.map(|(_, value)| value).sum();
            if by_code != count(name) {
                problems.push(format!("{source}: {name} is {}, but {by_code} by code", count(name)));
            }
        }
        let found = records.get(&source).copied().unwrap_or_default();
        for (name, found) in ["waiting", "done", "dead", "keys"].into_iter().zip(found) {
            if count(name) != found {
                problems.push(format!("{source}: {name} is {}, but there are {found}", count(name)));
            }
        }
    }
    problems
}
