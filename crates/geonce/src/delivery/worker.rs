//! One worker of one sink: lease, decode, write, settle, until it is told to stop.

use super::decode::Decoder;
use super::{
    BATCH_BYTES_MAX, Delivery, Destination, GATHER, LAPSES_MAX, POLL, PRESSED_SLICE_EVENTS_MAX, REST, REST_MAX,
    SLICE_EVENTS_MAX,
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
    let decoder = Decoder::new(&delivery.policies, destination.entity.as_deref());
    let row = destination.sink.place().map(|place| ResultText::row(&destination.name, &place));
    let mut worker = Worker { delivery: &delivery, destination: &destination, decoder, row, stop, last_lease: None };
    worker.run().await;
}

struct Worker<'a> {
    delivery: &'a Delivery,
    destination: &'a Destination,
    decoder: Decoder<'a>,
    /// What every row of the sink has as its result.
    row: Option<ResultText>,
    stop: watch::Receiver<bool>,
    /// Since the last lease that was not full.
    last_lease: Option<Stopwatch>,
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

    async fn deliver(&mut self, leased: Vec<Leased>) {
        let mut settlements = Vec::with_capacity(leased.len());
        let mut writing = Vec::with_capacity(leased.len());
        let mut batch = Vec::with_capacity(leased.len());
        for leased in leased {
            match self.prepare(&leased) {
                Ok(outgoing) => {
                    batch.push(outgoing);
                    writing.push(leased);
                }
                Err(cause) => settlements.push(Settlement { lease: leased.lease, end: End::Dead(cause) }),
            }
        }
        if !batch.is_empty() {
            let written = self.write(&writing, batch).await;
            for (leased, Delivered { written, settled }) in writing.into_iter().zip(written) {
                if let Some(end) = self.settle_at_once(&written).filter(|_| settled) {
                    self.delivery.observer.attempt(&self.destination.name, leased.lease.event, word(&end), None);
                    if let End::Done(outcome, _) = end {
                        self.delivery.store.heard(leased.lease.event, outcome);
                    }
                    continue;
                }
                let end = self.judge(&leased, written).await;
                settlements.push(Settlement { lease: leased.lease, end });
            }
        }
        self.settle(settlements).await;
    }

    fn prepare(&mut self, leased: &Leased) -> Result<Outgoing, Cause> {
        if leased.lapses > LAPSES_MAX {
            let message = format!("{} workers died or froze while they held this event", leased.lapses);
            return Err(Cause::new(Class::Internal, "lapsed", message));
        }
        self.decoder.decode(leased)
    }

    /// Writes a batch; one answer for each event.
    async fn write(&mut self, leased: &[Leased], batch: Vec<Outgoing>) -> Vec<Delivered> {
        let alone = batch.len() == 1;
        match self.write_once(leased, batch).await {
            Batch::Answered(written) => written,
            Batch::Failed(error) if error.kind() == Kind::Internal && !alone => {
                // One of them broke the sink's code. Each by itself: only the guilty one pays.
                let mut written = Vec::with_capacity(leased.len());
                for leased in leased {
                    written.push(match self.decoder.decode(leased) {
                        Ok(outgoing) => self.write_alone(leased, outgoing).await,
                        Err(cause) => Delivered { written: Written::Dead(cause), settled: false },
                    });
                }
                written
            }
            Batch::Failed(error) => Delivered::only(leased.iter().map(|_| failed(&error)).collect()),
        }
    }

    async fn write_alone(&self, leased: &Leased, outgoing: Outgoing) -> Delivered {
        let unsettled = |error: &Error| Delivered { written: failed(error), settled: false };
        match self.write_once(std::slice::from_ref(leased), vec![outgoing]).await {
            Batch::Answered(mut written) if written.len() == 1 => written.remove(0),
            Batch::Answered(_) => unsettled(&Error::new(Kind::Internal, "writing an event: not one answer")),
            Batch::Failed(error) => unsettled(&error),
        }
    }

    /// Writes a batch, keeping its leases alive meanwhile. Where the store is in the sink's database, what is done is
    /// settled in the same transaction.
    async fn write_once(&self, leased: &[Leased], batch: Vec<Outgoing>) -> Batch {
        let (sink, count) = (&self.destination.sink, batch.len());
        let watch = Stopwatch::start();
        let end = &|written: &Written| self.settle_at_once(written);
        let write = match self.delivery.store.joint() {
            Some(joint) => {
                let leases = leased.iter().map(|leased| leased.lease.clone()).collect();
                let now = self.delivery.clock.now();
                sink.write_and_settle(batch, Settling { joint, leases, end, now })
            }
            None => Box::pin(async { sink.write(batch).await.map(Delivered::only) }),
        };
        let written = tokio::select! {
            written = write => written,
            // Beside it, not in between: an extension may have to wait for what is being written.
            never = self.keep(leased) => match never {},
        };
        self.delivery.observer.wrote(&self.destination.name, count, watch.elapsed());
        let now = self.delivery.clock.now();
        match written {
            Ok(written) if written.len() == count => {
                let mut breaker = self.destination.breaker();
                let silent = |one: &Delivered| matches!(one.written, Written::Retry { counts: false, .. });
                if written.iter().all(silent) {
                    breaker.failed(&self.destination.retry, seed(&leased[0].lease, 0), now);
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
                    self.destination.breaker().failed(&self.destination.retry, seed(&leased[0].lease, 0), now);
                }
                Batch::Failed(error)
            }
        }
    }

    /// Keeps leases alive until it is dropped.
    async fn keep(&self, leased: &[Leased]) -> Infallible {
        loop {
            tokio::time::sleep(self.delivery.lease / 3).await;
            self.extend(leased).await;
        }
    }

    async fn extend(&self, leased: &[Leased]) {
        let until = self.delivery.clock.now().plus(self.delivery.lease);
        let leases: Vec<Lease> = leased.iter().map(|leased| leased.lease.clone()).collect();
        if let Err(error) = self.delivery.store.extend(leases, until).await {
            self.delivery.observer.trouble(&self.destination.name, &error);
        }
    }

    /// What an answer means for the event: the rules of attempts and of giving up.
    async fn judge(&self, leased: &Leased, written: Written) -> End {
        let now = self.delivery.clock.now();
        let retry = &self.destination.retry;
        let (cause, after, counts) = match written {
            Written::Done(outcome) => return self.done(outcome),
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
    fn done(&self, outcome: Outcome) -> End {
        End::Done(outcome, self.row.clone().filter(|_| outcome == Outcome::Applied))
    }

    /// How the lease of an event ends that can be settled where it was written. Everything else is judged first.
    fn settle_at_once(&self, written: &Written) -> Option<End> {
        match written {
            Written::Done(outcome) => Some(self.done(*outcome)),
            Written::Retry { .. } | Written::Dead(_) => None,
        }
    }

    /// Before an event is dead the sink is asked once more: an earlier write may have succeeded unheard.
    async fn dead(&self, leased: &Leased, cause: Cause) -> End {
        match self.destination.sink.proofs(vec![leased.key]).await {
            Ok(Some(proofs)) if proofs == [true] => self.done(Outcome::Applied),
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
