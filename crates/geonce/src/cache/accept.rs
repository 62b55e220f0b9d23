//! Events on their way to the store: which of them need not go there, and what the store's answers teach.

use super::Shared;
use super::counters::Counter;
use super::entry::{Entry, witness};
use super::local::Expected;
use super::lookup::Missed;
use crate::clock::Timestamp;
use crate::error::{Error, Kind, Result};
use crate::event::{EventId, Outcome, State};
use crate::store::{Admission, Counted, End, Lag, NewEvent, Settled, Settlement, Verdict};
use std::sync::atomic::Ordering;

/// What is needed of an event after its batch was given to the store.
struct Note {
    id: EventId,
    event: Expected,
    /// Whether it is known by its key alone: else it is not known by which of its keys the store recognised it.
    alone: bool,
    expected: bool,
    cached: bool,
}

impl Shared {
    pub(super) async fn accept(&self, batch: Vec<NewEvent>, now: Timestamp) -> Result<Vec<Verdict>> {
        let found = self.look_up(&batch, now).await;
        let mut duplicates = Vec::new();
        let (mut rest, mut notes) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
        for (event, found) in batch.into_iter().zip(&found) {
            if let Some(entry) = found {
                let lag = Lag::of(now.since(entry.id.time()));
                duplicates.push(Counted::Duplicate { source: event.source, of: entry.id, lag });
                continue;
            }
            let note = self.note(&event);
            if note.expected {
                self.pending.expect(note.id, note.event, now);
            }
            notes.push(note);
            rest.push(event);
        }
        // Only what is answered counts: with an error the sender comes again with all of it.
        let verdicts =
            if rest.is_empty() && !found.is_empty() { Vec::new() } else { self.store.accept(rest, now).await? };
        if verdicts.len() != notes.len() {
            return Err(Error::new(Kind::Internal, "recording events: not one verdict each"));
        }
        for (note, verdict) in notes.iter().zip(&verdicts) {
            self.learn(note, verdict);
        }
        self.count(duplicates);
        let mut verdicts = verdicts.into_iter();
        let answers = found.iter().map(|found| match found {
            Some(Entry { id, outcome, .. }) => Some(Verdict::Duplicate {
                of: *id,
                state: State::Done,
                outcome: Some(*outcome),
                drift: false,
                revived: false,
            }),
            None => verdicts.next(),
        });
        answers
            .collect::<Option<_>>()
            .ok_or_else(|| Error::new(Kind::Internal, "recording events: a verdict is missing"))
    }

    fn note(&self, event: &NewEvent) -> Note {
        let cached = !self.excluded.contains(&*event.source);
        let single = matches!(&event.admission, Admission::Deliver(sinks) if sinks.len() == 1);
        Note {
            id: event.id,
            event: Expected { digest: *event.key.digest(), content: event.content, witness: witness(&event.spatial) },
            alone: event.aliases.is_empty(),
            expected: cached && single,
            cached,
        }
    }

    /// Remembers what a verdict tells.
    fn learn(&self, note: &Note, verdict: &Verdict) {
        match verdict {
            Verdict::Accepted if note.expected => {
                if let Some((digest, entry)) = self.pending.accepted(note.id) {
                    self.remember(digest, entry);
                }
                return;
            }
            Verdict::Duplicate { of, state: State::Done, outcome: Some(outcome), drift: false, .. }
                if note.cached && note.alone =>
            {
                let Expected { digest, content, witness } = note.event;
                self.remember(digest, Entry { id: *of, outcome: *outcome, content, witness });
            }
            _ => {}
        }
        if note.expected {
            self.pending.declined(note.id);
        }
    }

    /// What is known of each event, without the store, beyond doubt.
    async fn look_up(&self, batch: &[NewEvent], now: Timestamp) -> Vec<Option<Entry>> {
        let mut found = vec![None; batch.len()];
        if self.closed.load(Ordering::Acquire) {
            return found;
        }
        let mut wanted: Vec<Vec<usize>> = vec![Vec::new(); self.lanes.len()];
        let names = self.names();
        for (place, event) in batch.iter().enumerate() {
            let digest = event.key.digest();
            if self.excluded.contains(&*event.source) {
                self.counters.bypassed_intended.add(1);
            } else if let Some(entry) = self.recent.get(digest) {
                found[place] = self.judge(entry, event, now, &self.counters.recent_hits);
            } else if !self.filter.may_hold(digest) {
                self.counters.skipped.add(1);
            } else if let Some(names) = &names {
                wanted[names.lane(digest)].push(place);
            } else {
                self.counters.bypassed_unavailable.add(1);
            }
        }
        if wanted.iter().any(|places| !places.is_empty()) {
            self.ask(batch, &wanted, &mut found, now).await;
        }
        found
    }

    /// Asks Redis, for as long as the budget lasts.
    async fn ask(&self, batch: &[NewEvent], wanted: &[Vec<usize>], found: &mut [Option<Entry>], now: Timestamp) {
        let mut asked = Vec::new();
        for (lane, places) in self.lanes.iter().zip(wanted).filter(|(_, places)| !places.is_empty()) {
            let digests = places.iter().map(|&place| *batch[place].key.digest()).collect();
            match lane.ask(digests) {
                Ok(answer) => asked.push((answer, places)),
                Err(missed) => self.missed(missed, places.len()),
            }
        }
        let mut patience = std::pin::pin!(tokio::time::sleep(self.budget));
        for (answer, places) in asked {
            let answer = tokio::select! {
                biased;
                answer = answer => answer.unwrap_or(Err(Missed::Unavailable)),
                () = &mut patience => Err(Missed::Timeout),
            };
            match answer {
                Ok(entries) => {
                    for (&place, entry) in places.iter().zip(entries) {
                        let Some(entry) = entry else {
                            self.counters.misses.add(1);
                            continue;
                        };
                        self.recent.insert(*batch[place].key.digest(), entry);
                        found[place] = self.judge(entry, &batch[place], now, &self.counters.redis_hits);
                    }
                }
                Err(missed) => self.missed(missed, places.len()),
            }
        }
    }

    fn judge(&self, entry: Entry, event: &NewEvent, now: Timestamp, hits: &Counter) -> Option<Entry> {
        let answers = entry.answers(event, self.window, now);
        if answers {
            hits.add(1);
        } else {
            self.counters.differed.add(1);
        }
        answers.then_some(entry)
    }

    fn missed(&self, missed: Missed, keys: usize) {
        let counter = match missed {
            Missed::Timeout => &self.counters.bypassed_timeout,
            Missed::Unavailable => &self.counters.bypassed_unavailable,
            Missed::Breaker => &self.counters.bypassed_breaker,
            Missed::Overload => &self.counters.bypassed_overload,
        };
        counter.add(keys);
    }

    pub(super) async fn settle(&self, settlements: Vec<Settlement>, now: Timestamp) -> Result<Vec<Settled>> {
        let done: Vec<_> = settlements
            .iter()
            .map(|settlement| match settlement.end {
                End::Done(outcome, _) => Some((settlement.lease.event, outcome)),
                _ => None,
            })
            .collect();
        let settled = self.store.settle(settlements, now).await?;
        for (done, settled) in done.into_iter().zip(&settled) {
            if let (Some((event, outcome)), Settled::Ok) = (done, settled) {
                self.done(event, outcome);
            }
        }
        Ok(settled)
    }

    /// An event is done at a sink; at its only one, if it is remembered.
    pub(super) fn done(&self, event: EventId, outcome: Outcome) {
        if let Some((digest, entry)) = self.pending.done(event, outcome) {
            self.remember(digest, entry);
        }
    }
}
