//! One worker of one sink: lease, decode, write, settle, until it is told to stop.

use super::decode::Decoder;
use super::near::{Finding, Sieve, Sifted};
use super::{
    BATCH_BYTES_MAX, Delivery, Destination, GATHER, LAPSES_MAX, NEAR_WAIT, POLL, PRESSED_SLICE_EVENTS_MAX, REST,
    REST_MAX, SLICE_EVENTS_MAX, late,
};
use crate::clock::Stopwatch;
use crate::error::{Error, Kind};
use crate::event::{Cause, Class, Outcome};
use crate::retry::Passage;
use crate::sink::{Delivered, Outgoing, Settling, Written};
use crate::store::{End, Lease, LeaseRequest, Leased, ResultText, Settled, Settlement};
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Serves `destination` until `stop` holds true. What is in hand is finished first.
pub async fn run(delivery: Arc<Delivery>, destination: Arc<Destination>, stop: watch::Receiver<bool>) {
    let decoder = Decoder::new(&delivery.policies, &delivery.near, destination.entity.as_deref());
    let row = destination.sink.place().map(|place| ResultText::row(&destination.name, &place));
    let sieve = Sieve::new(&delivery.near, &delivery.policies);
    let mut worker =
        Worker { delivery: &delivery, destination: &destination, decoder, sieve, row, stop, last_lease: None };
    worker.run().await;
}

struct Worker<'a> {
    delivery: &'a Delivery,
    destination: &'a Destination,
    decoder: Decoder<'a>,
    sieve: Sieve<'a>,
    /// What every row of the sink has as its result.
    row: Option<ResultText>,
    stop: watch::Receiver<bool>,
    /// Since the last lease that was not full.
    last_lease: Option<Stopwatch>,
}

/// An event that is about to be written.
struct InHand {
    leased: Leased,
    /// What it is near to, where that is to be told.
    near: Option<Finding>,
}

/// What a write of several events came to.
enum Batch {
    Answered(Vec<Delivered>),
    /// Nothing is known about any of them.
    Failed(Error),
}

impl Worker<'_> {
    async fn run(&mut self) {
        while !*self.stop.borrow() {
            let passage = self.destination.breaker().passage(self.delivery.clock.now());
            let events_max = match passage {
                Passage::Free => self.destination.batch_events_max,
                Passage::Probe => 1,
                Passage::Closed(until) => {
                    let wait = until.since(self.delivery.clock.now());
                    self.pause(tokio::time::sleep(wait.min(POLL))).await;
                    continue;
                }
            };
            self.gather().await;
            let worked = Stopwatch::start();
            let (leased, failure) = self.lease(events_max).await;
            if let Some(error) = failure {
                self.delivery.observer.trouble(&self.destination.name, &error);
                self.pause(tokio::time::sleep(POLL)).await;
            } else if leased.is_empty() {
                self.wait_for_work().await;
            }
            // What may have killed its worker comes last, and is written apart.
            let suspect = leased.iter().position(|leased| leased.lapses > 0).unwrap_or(leased.len());
            let mut leased = leased;
            let suspects = leased.split_off(suspect);
            for batch in [leased, suspects].into_iter().filter(|batch| !batch.is_empty()) {
                self.deliver(batch).await;
                self.give_way(worked.elapsed()).await;
            }
        }
    }

    /// Lets events gather while more keep coming: a transaction of the sink costs the same for one as for many. One that
    /// comes after a quiet moment is not kept waiting.
    async fn gather(&mut self) {
        if let Some(last) = self.last_lease.take() {
            let rest = GATHER.saturating_sub(last.elapsed());
            if !rest.is_zero() {
                self.pause(tokio::time::sleep(rest)).await;
            }
        }
    }

    /// Rests while many senders wait to be acknowledged: what is in the store is durable, and can wait.
    async fn give_way(&mut self, worked: Duration) {
        let rest = (worked * REST).min(REST_MAX);
        let resting = Stopwatch::start();
        while self.delivery.pressure.is_high() && resting.elapsed() < rest && !*self.stop.borrow() {
            self.pause(tokio::time::sleep(GATHER / 8)).await;
        }
    }

    /// Waits for something, or to be stopped.
    async fn pause(&mut self, something: impl Future<Output = ()>) {
        tokio::select! {
            () = something => {}
            // An error means that nobody is left to stop us; the loop's condition then decides.
            _ = self.stop.wait_for(|stop| *stop) => {}
        }
    }

    /// Leases a batch, a slice at a time: the store acknowledges new events between slices. What was leased before a
    /// failure is returned with it.
    async fn lease(&mut self, events_max: usize) -> (Vec<Leased>, Option<Error>) {
        let began = Stopwatch::start();
        let (mut leased, mut bytes) = (Vec::new(), 0);
        while leased.len() < events_max && bytes < BATCH_BYTES_MAX {
            let request = LeaseRequest {
                sink: Arc::clone(&self.destination.name),
                events_max: self.slice_events_max().min(events_max - leased.len()),
                bytes_max: BATCH_BYTES_MAX - bytes,
                duration: self.delivery.lease,
                event: None,
                holder: Arc::clone(&self.delivery.holder),
            };
            let asked = request.events_max;
            let slice = match self.delivery.store.lease(request, self.delivery.clock.now()).await {
                Ok(slice) => slice,
                Err(error) => return (leased, Some(error)),
            };
            let last = slice.len() < asked || slice.iter().any(|leased| leased.lapses > 0);
            bytes += slice.iter().map(|leased| leased.payload.len()).sum::<usize>();
            leased.extend(slice);
            if last {
                if !leased.is_empty() {
                    self.last_lease = Some(began);
                }
                break;
            }
        }
        (leased, None)
    }

    /// Small slices while senders wait; where nobody does, they would only cost commits.
    fn slice_events_max(&self) -> usize {
        if self.delivery.pressure.is_high() { PRESSED_SLICE_EVENTS_MAX } else { SLICE_EVENTS_MAX }
    }

    async fn wait_for_work(&mut self) {
        let store = Arc::clone(&self.delivery.store);
        // Asked for first: work that becomes ready after this wakes us, work from before is due now.
        let changed = store.changed();
        let due = store.next_due(Arc::clone(&self.destination.name)).await.ok().flatten();
        let now = self.delivery.clock.now();
        let wait = due.map_or(POLL, |due| due.since(now)).min(POLL);
        if wait.is_zero() && due.is_some() {
            // Another worker may be about to take it; do not spin.
            self.pause(tokio::time::sleep(Duration::from_millis(1))).await;
            return;
        }
        self.pause(async {
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(wait) => {}
            }
        })
        .await;
    }

    /// Delivers a batch. Events that wait for others of it, which they are near to, come after those.
    async fn deliver(&mut self, leased: Vec<Leased>) {
        let waiting = self.deliver_once(leased).await;
        if waiting.is_empty() {
            return;
        }
        let waiting = self.deliver_once(waiting.into_iter().map(|(leased, _)| leased).collect()).await;
        let mut settlements = Vec::with_capacity(waiting.len());
        for (leased, cause) in waiting {
            let end = self.put_off(&leased, cause).await;
            settlements.push(Settlement { lease: leased.lease, end });
        }
        self.settle(settlements).await;
    }

    /// Later, for no fault of the sink: the longer an event has waited, the longer it waits again.
    async fn put_off(&self, leased: &Leased, cause: Cause) -> End {
        let now = self.delivery.clock.now();
        if now >= leased.received.plus(self.destination.retry.give_up_after) {
            return self.dead(leased, cause).await;
        }
        let wait = (now.since(leased.received) / 4).clamp(NEAR_WAIT, self.destination.retry.cap.max(NEAR_WAIT));
        End::Retry { at: now.plus(wait), cause, counts: false }
    }

    /// Delivers what can be; what cannot yet, and why.
    async fn deliver_once(&mut self, leased: Vec<Leased>) -> Vec<(Leased, Cause)> {
        let mut settlements = Vec::with_capacity(leased.len());
        let mut decoded = Vec::with_capacity(leased.len());
        let mut batch = Vec::with_capacity(leased.len());
        for leased in leased {
            match self.prepare(&leased) {
                Ok(outgoing) => {
                    batch.push(outgoing);
                    decoded.push(leased);
                }
                Err(end) => settlements.push(Settlement { lease: leased.lease, end }),
            }
        }
        let (writing, batch, waiting) = self.sift(decoded, batch, &mut settlements).await;
        if !batch.is_empty() {
            let written = self.write(&writing, batch).await;
            for (InHand { leased, near }, Delivered { written, settled }) in writing.into_iter().zip(written) {
                if let Some(end) = self.settle_at_once(&written, &leased, near.as_ref()).filter(|_| settled) {
                    self.delivery.observer.attempt(&self.destination.name, leased.lease.event, word(&end), None);
                    if let End::Done(outcome, _) = end {
                        self.delivery.store.heard(leased.lease.event, outcome);
                    }
                    continue;
                }
                let end = self.judge(&leased, written, near.as_ref()).await;
                settlements.push(Settlement { lease: leased.lease, end });
            }
        }
        self.settle(settlements).await;
        waiting
    }

    /// Divides events by what they are near to: those to be written, and those that wait. What is not written is settled.
    async fn sift(
        &mut self,
        leased: Vec<Leased>,
        batch: Vec<Outgoing>,
        settlements: &mut Vec<Settlement>,
    ) -> (Vec<InHand>, Vec<Outgoing>, Vec<(Leased, Cause)>) {
        let now = self.delivery.clock.now();
        let sifted = match self.sieve.sift(&*self.delivery.store, &batch, now).await {
            Ok(sifted) => sifted,
            Err(error) => {
                self.delivery.observer.trouble(&self.destination.name, &error);
                let cause = Cause::new(Class::Unavailable, "near_unavailable", error.to_string());
                return (Vec::new(), Vec::new(), leased.into_iter().map(|leased| (leased, cause.clone())).collect());
            }
        };
        let (mut writing, mut going, mut waiting) = (Vec::with_capacity(leased.len()), Vec::new(), Vec::new());
        for ((leased, mut outgoing), sifted) in leased.into_iter().zip(batch).zip(sifted) {
            let near = match sifted {
                Sifted::Go => None,
                Sifted::Marked(finding) => Some(finding),
                Sifted::Merged(finding, merge) => {
                    outgoing.merge = Some(merge);
                    Some(finding)
                }
                Sifted::Dropped(finding) => {
                    let end = End::Done(Outcome::Near, finding.result());
                    settlements.push(Settlement { lease: leased.lease, end });
                    continue;
                }
                Sifted::Waits(event) => {
                    waiting.push((
                        leased,
                        held_up(format!("it waits to hear what becomes of {event}, which it is near to")),
                    ));
                    continue;
                }
                Sifted::Crowded => {
                    waiting.push((leased, held_up("others keep coming that may be near".to_owned())));
                    continue;
                }
            };
            writing.push(InHand { leased, near });
            going.push(outgoing);
        }
        (writing, going, waiting)
    }

    /// What the sink is given, or how the event ends without it.
    fn prepare(&mut self, leased: &Leased) -> Result<Outgoing, End> {
        if leased.lapses > LAPSES_MAX {
            let message = format!("{} workers died or froze while they held this event", leased.lapses);
            return Err(End::Dead(Cause::new(Class::Internal, "lapsed", message)));
        }
        let outgoing = self.decoder.decode(leased).map_err(End::Dead)?;
        // A repair comes late by nature: what it was made of came in time, or died of something else.
        if let Some(lateness) = self.delivery.lateness.get(&leased.source).filter(|_| leased.origin.is_none())
            && let Some(by) = late::late(outgoing.version.as_ref(), leased.received, *lateness)
        {
            return Err(End::Done(Outcome::Stale, late::result(by, *lateness)));
        }
        Ok(outgoing)
    }

    /// Writes a batch; one answer for each event.
    async fn write(&mut self, writing: &[InHand], batch: Vec<Outgoing>) -> Vec<Delivered> {
        let alone = batch.len() == 1;
        // Only the geometry and the properties of an event may break a sink's code, not what it is merged into.
        let merges: Vec<_> = batch.iter().map(|outgoing| outgoing.merge).collect();
        match self.write_once(writing, batch).await {
            Batch::Answered(written) => written,
            Batch::Failed(error) if error.kind() == Kind::Internal && !alone => {
                // One of them broke the sink's code. Each by itself: only the guilty one pays.
                let mut written = Vec::with_capacity(writing.len());
                for (in_hand, merge) in writing.iter().zip(merges) {
                    written.push(match self.decoder.decode(&in_hand.leased) {
                        Ok(outgoing) => self.write_alone(in_hand, Outgoing { merge, ..outgoing }).await,
                        Err(cause) => Delivered { written: Written::Dead(cause), settled: false },
                    });
                }
                written
            }
            Batch::Failed(error) => Delivered::only(writing.iter().map(|_| failed(&error)).collect()),
        }
    }

    async fn write_alone(&self, in_hand: &InHand, outgoing: Outgoing) -> Delivered {
        let unsettled = |error: &Error| Delivered { written: failed(error), settled: false };
        match self.write_once(std::slice::from_ref(in_hand), vec![outgoing]).await {
            Batch::Answered(mut written) if written.len() == 1 => written.remove(0),
            Batch::Answered(_) => unsettled(&Error::new(Kind::Internal, "writing an event: not one answer")),
            Batch::Failed(error) => unsettled(&error),
        }
    }

    /// Writes a batch, keeping its leases alive meanwhile. Where the store is in the sink's database, what is done is
    /// settled in the same transaction.
    async fn write_once(&self, writing: &[InHand], batch: Vec<Outgoing>) -> Batch {
        let (sink, count) = (&self.destination.sink, batch.len());
        let watch = Stopwatch::start();
        let end = &|index: usize, written: &Written| {
            let InHand { leased, near } = writing.get(index)?;
            self.settle_at_once(written, leased, near.as_ref())
        };
        let write = match self.delivery.store.joint() {
            Some(joint) => {
                let leases = writing.iter().map(|in_hand| in_hand.leased.lease.clone()).collect();
                let now = self.delivery.clock.now();
                sink.write_and_settle(batch, Settling { joint, leases, end, now })
            }
            None => Box::pin(async { sink.write(batch).await.map(Delivered::only) }),
        };
        let written = tokio::select! {
            written = write => written,
            // Beside it, not in between: an extension may have to wait for what is being written.
            never = self.keep(writing) => match never {},
        };
        self.delivery.observer.wrote(&self.destination.name, count, watch.elapsed());
        let now = self.delivery.clock.now();
        match written {
            Ok(written) if written.len() == count => {
                let mut breaker = self.destination.breaker();
                let silent = |one: &Delivered| matches!(one.written, Written::Retry { counts: false, .. });
                if written.iter().all(silent) {
                    breaker.failed(&self.destination.retry, seed(&writing[0].leased.lease, 0), now);
                } else {
                    breaker.answered();
                }
                Batch::Answered(written)
            }
            Ok(written) => {
                let doing = format!("writing {count} events to {}: {} answers", self.destination.name, written.len());
                Batch::Failed(Error::new(Kind::Internal, doing))
            }
            Err(error) => {
                self.delivery.observer.trouble(&self.destination.name, &error);
                if error.kind() != Kind::Internal {
                    self.destination.breaker().failed(&self.destination.retry, seed(&writing[0].leased.lease, 0), now);
                }
                Batch::Failed(error)
            }
        }
    }

    /// Keeps leases alive until it is dropped.
    async fn keep(&self, writing: &[InHand]) -> Infallible {
        loop {
            tokio::time::sleep(self.delivery.lease / 3).await;
            self.extend(writing).await;
        }
    }

    async fn extend(&self, writing: &[InHand]) {
        let until = self.delivery.clock.now().plus(self.delivery.lease);
        let leases: Vec<Lease> = writing.iter().map(|in_hand| in_hand.leased.lease.clone()).collect();
        if let Err(error) = self.delivery.store.extend(leases, until).await {
            self.delivery.observer.trouble(&self.destination.name, &error);
        }
    }

    /// What an answer means for the event: the rules of attempts and of giving up.
    async fn judge(&self, leased: &Leased, written: Written, near: Option<&Finding>) -> End {
        let now = self.delivery.clock.now();
        let retry = &self.destination.retry;
        let (cause, after, counts) = match written {
            Written::Done(outcome) => return self.done(outcome, leased, near),
            Written::Became(result) => return End::Done(Outcome::Applied, Some(result)),
            Written::Dead(cause) => return self.dead(leased, cause).await,
            Written::Retry { cause, after, counts } => (cause, after, counts),
        };
        let attempts = leased.attempts + u32::from(counts);
        let given_up = now >= leased.received.plus(retry.give_up_after);
        if attempts >= retry.attempts || given_up {
            return self.dead(leased, cause).await;
        }
        let wait = retry.delay(attempts.max(1), seed(&leased.lease, attempts)).max(after.unwrap_or_default());
        End::Retry { at: now.plus(wait), cause, counts }
    }

    /// What is applied is a row, where that is a place that somebody can look at.
    fn done(&self, outcome: Outcome, leased: &Leased, near: Option<&Finding>) -> End {
        let row = self.row.as_ref().filter(|_| outcome == Outcome::Applied);
        let result = match near {
            Some(finding) => finding.beside(row, &leased.key),
            None => row.cloned(),
        };
        End::Done(outcome, result)
    }

    /// How the lease of an event ends that can be settled where it was written. Everything else is judged first.
    fn settle_at_once(&self, written: &Written, leased: &Leased, near: Option<&Finding>) -> Option<End> {
        match written {
            Written::Done(outcome) => Some(self.done(*outcome, leased, near)),
            Written::Became(result) => Some(End::Done(Outcome::Applied, Some(result.clone()))),
            Written::Retry { .. } | Written::Dead(_) => None,
        }
    }

    /// Before an event is dead the sink is asked once more: an earlier write may have succeeded unheard.
    async fn dead(&self, leased: &Leased, cause: Cause) -> End {
        match self.destination.sink.proofs(vec![leased.key]).await {
            Ok(Some(proofs)) if proofs == [true] => self.done(Outcome::Applied, leased, None),
            _ => End::Dead(cause),
        }
    }

    /// Settles, a slice at a time, for as long as it takes: what the sink has done must become known.
    async fn settle(&mut self, mut settlements: Vec<Settlement>) {
        while !settlements.is_empty() {
            let slice = &settlements[..self.slice_events_max().min(settlements.len())];
            match self.delivery.store.settle(slice.to_vec(), self.delivery.clock.now()).await {
                Ok(settled) => {
                    let slice = settlements.drain(..slice.len());
                    for (settlement, settled) in slice.zip(settled) {
                        let Settlement { lease, end } = settlement;
                        let result = if settled == Settled::Ok { word(&end) } else { "lease_lost" };
                        self.delivery.observer.attempt(&self.destination.name, lease.event, result, why(&end));
                    }
                }
                Err(error) => {
                    self.delivery.observer.trouble(&self.destination.name, &error);
                    // Stopped meanwhile: the leases lapse, and the sink's proof makes the repeat harmless.
                    if !error.is_transient() || *self.stop.borrow() {
                        return;
                    }
                    self.pause(tokio::time::sleep(POLL)).await;
                }
            }
        }
    }
}

/// What a failure of the whole sink means for an event that was to be written.
fn failed(error: &Error) -> Written {
    let (class, code) = match error.kind() {
        Kind::Internal => return Written::Dead(Cause::new(Class::Internal, "panic", error.to_string())),
        Kind::Resource => (Class::Resource, "sink_full"),
        Kind::Permission => (Class::Permission, "sink_refuses"),
        _ => (Class::Unavailable, "sink_unavailable"),
    };
    Written::Retry { cause: Cause::new(class, code, error.to_string()), after: None, counts: false }
}

/// Why an event is not written yet.
fn held_up(why: String) -> Cause {
    Cause::new(Class::Unavailable, "near_waits", why)
}

fn word(end: &End) -> &'static str {
    match end {
        End::Done(outcome, _) => outcome.as_str(),
        End::Retry { .. } => "retry",
        End::Dead(_) => "dead",
    }
}

fn why(end: &End) -> Option<&Cause> {
    match end {
        End::Done(..) => None,
        End::Retry { cause, .. } | End::Dead(cause) => Some(cause),
    }
}

/// Differs between events and attempts, and needs no source of chance.
fn seed(lease: &Lease, attempts: u32) -> u64 {
    let bytes = lease.event.to_bytes();
    let mut low = [0; 8];
    low.copy_from_slice(&bytes[8..]);
    u64::from_be_bytes(low) ^ lease.token.rotate_left(32) ^ u64::from(attempts)
}
