//! What is to become of a group of events, given what is known about their keys. Pure: no statement is run here.
//!
//! The rules are those of `docs/event-states.md`, event by event in their order; later events of the group see what
//! earlier ones claimed.

use super::Attempt;
use super::counts::Counts;
use super::row::EventRow;
use crate::clock::Timestamp;
use crate::event::{Cause, EventId, Outcome, State};
use crate::store::books::Tally;
use crate::store::encoding::{Bytes16, DEAD, DONE, OPEN, number};
use crate::store::verdict::{self, Clash};
use crate::store::{Admission, Lag, NewEvent, Route, Verdict};
use geonce_key::Fingerprint;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// An event that the store has, locked for this transaction.
pub(super) struct Holder {
    pub(super) event: EventRow,
    /// Whether some of its work is leased.
    pub(super) leased: bool,
    /// Whether some of its work is dead, and could be revived.
    pub(super) revivable: bool,
}

/// What is known about keys.
#[derive(Default)]
pub(super) struct Known {
    pub(super) holders: BTreeMap<EventId, Holder>,
    /// The holder of each key that somebody had before this transaction.
    pub(super) held: HashMap<Bytes16, EventId>,
    /// Keys that this transaction claimed, and for whom it seemed.
    pub(super) taken: HashMap<Bytes16, EventId>,
    /// Events of the group that are recorded already, as far as was looked.
    pub(super) recorded: HashSet<EventId>,
}

/// A new event.
pub(super) struct Fresh<'a> {
    pub(super) event: &'a NewEvent,
    /// When it came, by the clock that counts.
    pub(super) received: Timestamp,
    /// Where it contradicts an earlier one: the key it is kept under.
    key: Option<Fingerprint>,
    pub(super) cause: Option<Cause>,
    pub(super) duplicates: i64,
    revived: bool,
}

impl Fresh<'_> {
    /// Key and aliases under which it is known.
    pub(super) fn digests(&self) -> Vec<Fingerprint> {
        match self.key {
            Some(key) => vec![key],
            None => std::iter::once(self.event.key).chain(self.event.aliases.iter().copied()).collect(),
        }
    }

    pub(super) fn routes(&self) -> &[Route] {
        match &self.event.admission {
            Admission::Deliver(routes) | Admission::Dead(_, routes) => routes,
        }
    }

    pub(super) fn state(&self) -> i64 {
        match &self.cause {
            Some(_) if !self.revived => DEAD,
            // Nothing is to be delivered anywhere.
            None if self.routes().is_empty() => DONE,
            _ => OPEN,
        }
    }
}

/// What is to be written, and what is to be answered.
#[derive(Default)]
pub(super) struct Plan<'a> {
    pub(super) verdicts: Vec<Verdict>,
    pub(super) fresh: Vec<Fresh<'a>>,
    /// The new event that each key belongs to.
    pub(super) owners: HashMap<Bytes16, usize>,
    /// How often known events were delivered again.
    pub(super) repeats: BTreeMap<EventId, i64>,
    pub(super) revived: BTreeSet<EventId>,
    /// What becomes ready unless others of its entity go first, in this order.
    pub(super) entering: Vec<Entering>,
    pub(super) counts: Counts,
    /// Keys that have to be looked up before there is a plan, each for an event.
    pub(super) missing: BTreeMap<Bytes16, EventId>,
}

/// An event that comes, or comes back, into lines of its entity.
#[derive(Clone, Copy)]
pub(super) enum Entering {
    Known(EventId),
    Fresh(usize),
}

/// Who has a key.
#[derive(Clone, Copy)]
enum Who<'k> {
    Known(&'k Holder),
    Fresh(usize),
}

/// What became of a done event; a new one is done only where there was nothing to deliver.
fn outcome(who: Who<'_>) -> Option<Outcome> {
    match who {
        Who::Known(holder) => holder.event.outcome,
        Who::Fresh(_) => Some(Outcome::Applied),
    }
}

/// Decides about a group.
pub(super) fn plan<'a>(group: &[(&'a NewEvent, Timestamp)], known: &Known) -> Attempt<Plan<'a>> {
    let mut plan = Plan::default();
    for &(event, now) in group {
        let verdict = plan.judge(event, known, now)?;
        plan.verdicts.push(verdict);
    }
    Ok(plan)
}

impl<'a> Plan<'a> {
    fn holder<'k>(&self, key: Bytes16, known: &'k Known) -> Option<Who<'k>> {
        let fresh = self.owners.get(&key).map(|&place| Who::Fresh(place));
        fresh.or_else(|| Some(Who::Known(known.holders.get(known.held.get(&key)?)?)))
    }

    fn id(&self, who: Who<'_>) -> EventId {
        match who {
            Who::Known(holder) => holder.event.id,
            Who::Fresh(place) => self.fresh[place].event.id,
        }
    }

    fn judge(&mut self, event: &'a NewEvent, known: &Known, now: Timestamp) -> Attempt<Verdict> {
        for fingerprint in std::iter::once(&event.key).chain(&event.aliases) {
            let Some(who) = self.holder(fingerprint.key(), known) else { continue };
            if self.id(who) == event.id {
                return Ok(Verdict::Accepted);
            }
            let clash = match who {
                Who::Known(Holder { event: row, .. }) => verdict::clash(event, fingerprint, &row.digests, &row.spatial),
                Who::Fresh(place) => {
                    let fresh = &self.fresh[place];
                    verdict::clash(event, fingerprint, &fresh.digests(), &fresh.event.spatial)
                }
            };
            return match clash {
                Some(clash) => self.contradict(event, known, who, clash, now),
                None => self.repeat(event, who, now),
            };
        }
        if !known.recorded.contains(&event.id) {
            self.record(event, None, now)?;
        }
        Ok(Verdict::Accepted)
    }

    fn count_repeat(&mut self, source: &Arc<str>, who: Who<'_>, now: Timestamp) {
        self.counts.add(source, Tally::Received, 1);
        self.counts.add(source, Tally::Duplicate, 1);
        let received = match who {
            Who::Known(holder) => holder.event.received,
            Who::Fresh(place) => self.fresh[place].received,
        };
        self.counts.add_lag(source, Lag::of(now.since(received)));
        match who {
            Who::Known(holder) => *self.repeats.entry(holder.event.id).or_default() += 1,
            Who::Fresh(place) => self.fresh[place].duplicates += 1,
        }
    }

    /// A duplicate: counted, and where its event died of something that time may mend, revived.
    fn repeat(&mut self, event: &NewEvent, who: Who<'_>, now: Timestamp) -> Attempt<Verdict> {
        self.count_repeat(&event.source, who, now);
        let (content, state, cause, source, revivable) = match who {
            Who::Known(holder) => {
                let row = &holder.event;
                let state = if self.revived.contains(&row.id) { OPEN } else { row.state };
                (row.content, state, row.cause.as_ref(), &row.source, holder.revivable)
            }
            Who::Fresh(place) => {
                let Fresh { event, cause, .. } = &self.fresh[place];
                let fresh = &self.fresh[place];
                (event.content, fresh.state(), cause.as_ref(), &event.source, !fresh.routes().is_empty())
            }
        };
        let drift = content != event.content;
        if drift {
            self.counts.add(&event.source, Tally::Drift, 1);
        }
        let revived = state == DEAD && revivable && cause.is_some_and(|cause| cause.class.is_transient());
        if revived {
            self.counts.add_dead(source, cause, -1)?;
            self.counts.add(source, Tally::Waiting, 1);
            self.counts.add(source, Tally::Revived, 1);
            match who {
                Who::Known(holder) => {
                    self.revived.insert(holder.event.id);
                    self.entering.push(Entering::Known(holder.event.id));
                }
                Who::Fresh(place) => {
                    self.fresh[place].revived = true;
                    self.entering.push(Entering::Fresh(place));
                }
            }
        }
        let leased = matches!(who, Who::Known(Holder { leased: true, .. }));
        let (state, outcome) = match state {
            DONE => (State::Done, outcome(who)),
            DEAD if !revived => (State::Dead, None),
            _ if leased => (State::Leased, None),
            _ => (State::Ready, None),
        };
        Ok(Verdict::Duplicate { of: self.id(who), state, outcome, drift, revived })
    }

    /// Same id or key, other content: recorded as dead under a key of its own, once for each content.
    fn contradict(
        &mut self,
        event: &'a NewEvent,
        known: &Known,
        who: Who<'_>,
        clash: Clash,
        now: Timestamp,
    ) -> Attempt<Verdict> {
        let (key, of) = (verdict::clash_key(event), self.id(who));
        if let Some(other) = self.holder(key.key(), known) {
            let id = self.id(other);
            if id != event.id {
                self.count_repeat(&event.source, other, now);
            }
            return Ok(Verdict::Conflict { event: id, of });
        }
        if known.recorded.contains(&event.id) {
            return Ok(Verdict::Conflict { event: event.id, of });
        }
        if !known.taken.contains_key(&key.key()) {
            self.missing.insert(key.key(), event.id);
        }
        self.record(event, Some((key, clash.cause(of))), now)?;
        self.counts.add(&event.source, clash.tally(), 1);
        Ok(Verdict::Conflict { event: event.id, of })
    }

    /// A new event, with its claims and counts.
    fn record(&mut self, event: &'a NewEvent, clash: Option<(Fingerprint, Cause)>, now: Timestamp) -> Attempt<()> {
        let admitted = match &event.admission {
            Admission::Dead(cause, _) => Some(cause.clone()),
            Admission::Deliver(_) => None,
        };
        let (key, cause) = match clash {
            Some((key, cause)) => (Some(key), Some(cause)),
            None => (None, admitted),
        };
        let fresh = Fresh { event, received: now, key, cause, duplicates: 0, revived: false };
        let (source, digests) = (&event.source, fresh.digests());
        self.counts.add(source, Tally::Received, 1);
        self.counts.add(source, Tally::Keys, number(digests.len()));
        match fresh.state() {
            DEAD => self.counts.add_dead(source, fresh.cause.as_ref(), 1)?,
            DONE => {
                self.counts.add(source, Tally::Applied, 1);
                self.counts.add(source, Tally::Done, 1);
            }
            _ => {
                self.counts.add(source, Tally::Waiting, 1);
                self.entering.push(Entering::Fresh(self.fresh.len()));
            }
        }
        for fingerprint in &digests {
            self.owners.insert(fingerprint.key(), self.fresh.len());
        }
        self.fresh.push(fresh);
        Ok(())
    }

    /// Whether work becomes ready.
    pub(super) fn makes_work(&self) -> bool {
        !self.revived.is_empty() || self.fresh.iter().any(|fresh| fresh.state() == OPEN)
    }
}
