//! Runs something once per key, for callers who do the work themselves: a load, a command, a flow.
//!
//! A run is an event of the store whose only sink is [`RUNS`], which no worker serves. Whoever begins it holds a lease with
//! a fencing token; others are told that it is running, or what it came to. A runner that dies lets its lease lapse, and the
//! next one takes over. Nothing here keeps a runner that lost its lease from acting: it is only told so.

#[cfg(test)]
mod tests;

use crate::clock::{Clock, Stopwatch, Timestamp};
use crate::error::{Error, Kind, Result};
use crate::event::{Cause, Class, EventId, Ids, Outcome, State, random};
use crate::store::{
    Admission, End, Filter, Lease, LeaseRequest, Leased, ListRequest, NewEvent, RUNS, Record, ResultText, Route,
    Settled, Settlement, Store, Verdict, own_name,
};
use bytes::Bytes;
use geonce_key::{Fingerprint, Form};
use sha2::{Digest, Sha256};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What the digest of a run's key begins with: keys of runs and of events that are delivered are never the same.
const KEY_PREFIX: &[u8] = b"geonce run 1\0";
/// How long a run is held before it must be extended, unless the caller says otherwise.
const LEASE: Duration = Duration::from_mins(1);
/// How often a run may be gone again when it is looked at.
const LOOKS_MAX: usize = 8;
/// Whoever waits looks at least this often at first,
const POLL: Duration = Duration::from_millis(25);
/// later, and where nothing is heard, this often,
const POLL_MAX: Duration = Duration::from_secs(1);
/// and at most this often, whatever is heard.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Runs of one sort in a store. Two ledgers with one name are the same, in whichever process they are.
pub struct Ledger {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    source: Arc<str>,
    admission: Admission,
    lease: Duration,
    holder: Arc<str>,
    polls: [Duration; 2],
    ids: Ids,
}

/// Something to be run once.
#[derive(Clone, Debug)]
pub struct Task {
    /// What it is known by.
    pub key: Fingerprint,
    /// What it is, for whoever looks at the record: JSON by convention.
    pub payload: Bytes,
}

/// What a beginning came to.
#[derive(Debug)]
pub enum Begun {
    /// It is the caller's to run.
    Started(Run),
    /// Somebody else runs it.
    Running {
        /// The run.
        event: EventId,
        /// When its key was first begun.
        since: Timestamp,
    },
    /// It was run.
    Done {
        /// The run.
        event: EventId,
        /// What it came to, if its runner said so.
        result: Option<Arc<str>>,
    },
    /// It failed for a reason that time does not mend; see [`Ledger::replay`].
    Dead {
        /// The run.
        event: EventId,
        /// The reason.
        cause: Cause,
    },
}

impl Ledger {
    /// The ledger with this name. Its runs are counted under the source `@name`, which no configured source can be called.
    /// The store may be opened by a gateway or a runner.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, name: &str) -> Ledger {
        let admission = Admission::Deliver([Route::to(RUNS)].into());
        let source = format!("@{name}").into();
        let (holder, polls) = (own_name(), [POLL, POLL_MAX]);
        Ledger { store, clock, source, admission, lease: LEASE, holder, polls, ids: Ids::new() }
    }

    /// The same ledger under another name for who runs; by default it is the machine's, and the process's number.
    #[must_use]
    pub fn with_holder(mut self, holder: &str) -> Ledger {
        self.holder = holder.into();
        self
    }

    /// The same ledger with another time after which a runner that is not heard of counts as gone.
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Ledger {
        self.lease = lease;
        self
    }

    /// The key under which the store knows a run.
    pub fn run_key(&self, key: &Fingerprint) -> Fingerprint {
        let mut digest = Sha256::new();
        digest.update(KEY_PREFIX);
        digest.update(key.digest());
        digest.update(self.source.as_bytes());
        Fingerprint::from_digest(digest.finalize().into(), key.is_secret())
    }

    /// Begins a task, or tells how it stands.
    pub async fn begin(&self, task: &Task) -> Result<Begun> {
        for _ in 0..LOOKS_MAX {
            let (event, open) = self.accept(task).await?;
            if let Some(begun) = self.stand(event, open).await? {
                return Ok(begun);
            }
            // Its window was over, or it was purged, a moment ago.
        }
        Err(Error::new(Kind::Unavailable, "beginning a run: its record comes and goes"))
    }

    /// Begins a task; where somebody else runs it, waits for its end, or for its runner to be gone and then takes over.
    /// After `at_most` the answer is that it is still running.
    pub async fn wait(&self, task: &Task, at_most: Duration) -> Result<Begun> {
        let waited = Stopwatch::start();
        let [mut pause, pause_max] = self.polls;
        let mut begun = self.begin(task).await?;
        let mut polled = true;
        while let Begun::Running { event, .. } = begun {
            let looked = Stopwatch::start();
            // Asked for first: what ends after this wakes us, what ended before is seen now.
            let changed = self.store.changed();
            begun = match self.look(event, polled).await {
                Ok(Some(now)) => now,
                Ok(None) => self.begin(task).await?,
                // The store may be back before the time is over.
                Err(error) if error.is_transient() && waited.elapsed() < at_most => begun,
                Err(error) => return Err(error),
            };
            let left = at_most.saturating_sub(waited.elapsed());
            if left.is_zero() || !matches!(begun, Begun::Running { .. }) {
                break;
            }
            polled = tokio::select! {
                () = changed => false,
                () = tokio::time::sleep(jittered(pause).min(left)) => true,
            };
            if polled {
                pause = (pause * 2).min(pause_max);
            }
            tokio::time::sleep(LOOK_EVERY.saturating_sub(looked.elapsed())).await;
        }
        Ok(begun)
    }

    /// Lets a dead task be begun again; `false` if it is not dead.
    pub async fn replay(&self, key: &Fingerprint) -> Result<bool> {
        let filter = Filter { key: Some(self.run_key(key).key()), ..Filter::default() };
        Ok(self.store.replay(filter, self.clock.now()).await? > 0)
    }

    /// The record of a task, if there is one.
    pub async fn find(&self, key: &Fingerprint) -> Result<Option<Record>> {
        find(&*self.store, Filter { key: Some(self.run_key(key).key()), ..Filter::default() }).await
    }

    /// Records a task, or finds it: its event, and whether that is neither done nor dead.
    async fn accept(&self, task: &Task) -> Result<(EventId, bool)> {
        let now = self.clock.now();
        let id = self.ids.next(now);
        let event = NewEvent {
            id,
            source: Arc::clone(&self.source),
            key: self.run_key(&task.key),
            aliases: Vec::new(),
            spatial: Vec::new(),
            content: Sha256::digest(&task.payload).into(),
            form: Form::Json,
            crs: None,
            order: None,
            payload: task.payload.clone(),
            admission: self.admission.clone(),
        };
        match self.store.accept(vec![event], now).await?.as_slice() {
            [Verdict::Accepted] => Ok((id, true)),
            [Verdict::Duplicate { of, state, .. }] => Ok((*of, matches!(state, State::Ready | State::Leased))),
            _ => Err(Error::new(Kind::Internal, "beginning a run: the store knows another one by half of its key")),
        }
    }

    /// Takes a run that nobody holds, or tells how it stands; `None` if it is gone.
    async fn stand(&self, event: EventId, may_take: bool) -> Result<Option<Begun>> {
        if may_take && let Some(run) = self.take(event).await? {
            return Ok(Some(Begun::Started(run)));
        }
        let record = find(&*self.store, Filter { id: Some(event), ..Filter::default() }).await?;
        Ok(record.map(standing))
    }

    /// How a run stands that somebody else held. What was released is taken at once; whether a lease has lapsed is asked
    /// only now and then.
    async fn look(&self, event: EventId, polled: bool) -> Result<Option<Begun>> {
        let record = find(&*self.store, Filter { id: Some(event), ..Filter::default() }).await?;
        match record {
            Some(record) if record.state == State::Ready || (record.state == State::Leased && polled) => {
                self.stand(event, true).await
            }
            record => Ok(record.map(standing)),
        }
    }

    async fn take(&self, event: EventId) -> Result<Option<Run>> {
        let (sink, duration) = (RUNS.into(), self.lease);
        let request = LeaseRequest {
            sink,
            events_max: 1,
            bytes_max: usize::MAX,
            duration,
            event: Some(event),
            holder: Arc::clone(&self.holder),
        };
        let leased = self.store.lease(request, self.clock.now()).await?.pop();
        Ok(leased.map(|Leased { lease, attempts, lapses, .. }| Run {
            store: Arc::clone(&self.store),
            clock: Arc::clone(&self.clock),
            duration,
            lease,
            attempts,
            lapses,
            sent: Mutex::default(),
        }))
    }
}

fn standing(record: Record) -> Begun {
    let event = record.id;
    match record.state {
        State::Done => Begun::Done { event, result: record.result },
        State::Dead => Begun::Dead { event, cause: record.cause.unwrap_or_else(unknown_cause) },
        State::Ready | State::Leased => Begun::Running { event, since: record.received },
    }
}

fn unknown_cause() -> Cause {
    Cause::new(Class::Internal, "damaged", "the cause is not known")
}

async fn find(store: &dyn Store, filter: Filter) -> Result<Option<Record>> {
    let request = ListRequest { filter, before: None, limit: 1, payloads: false };
    Ok(store.list(request).await?.pop())
}

/// Between half of a pause and all of it, so that those who wait together do not look together.
fn jittered(pause: Duration) -> Duration {
    let parts = u32::try_from(random() & 0xFFFF).unwrap_or(0);
    pause / 2 + pause / 2 * parts / 0xFFFF
}

/// A task in its runner's hands. One that is dropped without having ended is taken over by others after its time.
pub struct Run {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    lease: Lease,
    duration: Duration,
    attempts: u32,
    lapses: u32,
    sent: Mutex<Option<Sent>>,
}

/// The last end that was sent to the store.
#[derive(Clone)]
struct Sent {
    end: End,
    /// Whether the store answered.
    answered: bool,
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl Run {
    /// The event that it is in the store.
    pub fn event(&self) -> EventId {
        self.lease.event
    }

    /// The fencing token: later runs of the same task have greater ones.
    pub fn token(&self) -> u64 {
        self.lease.token
    }

    /// How often it was released before.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// How many runners were gone before.
    pub fn lapses(&self) -> u32 {
        self.lapses
    }

    /// It is done, once and for all, with a result for those who ask later.
    pub async fn done(&self, result: Option<ResultText>) -> Result<Settled> {
        self.end(End::Done(Outcome::Applied, result)).await
    }

    /// It failed. Of a class that time may mend, the next beginning revives it; of another, only [`Ledger::replay`] does.
    pub async fn dead(&self, cause: Cause) -> Result<Settled> {
        self.end(End::Dead(cause)).await
    }

    /// This attempt failed; whoever begins next may try again, at once.
    pub async fn release(&self, cause: Cause) -> Result<Settled> {
        // Any time that has passed will do, and the same one is recognised when it is sent again.
        self.release_until(Timestamp::default(), cause).await
    }

    /// This attempt failed; whoever begins next may try again, but not before `at`. Until then it counts as running.
    pub async fn release_until(&self, at: Timestamp, cause: Cause) -> Result<Settled> {
        self.end(End::Retry { at, cause, counts: true }).await
    }

    /// It was neither done nor did it fail: whoever begins next may run it, at once, and no attempt is counted.
    pub async fn give_back(&self, cause: Cause) -> Result<Settled> {
        self.end(End::Retry { at: Timestamp::default(), cause, counts: false }).await
    }

    /// Holds it for another while, counted from now.
    pub async fn extend(&self) -> Result<Settled> {
        let until = self.clock.now().plus(self.duration);
        let settled = self.store.extend(vec![self.lease.clone()], until).await?;
        settled.first().copied().ok_or_else(no_answer)
    }

    /// Holds it for as long as this is polled, beside the work; resolves when somebody else has taken it.
    pub async fn keep(&self) {
        loop {
            tokio::time::sleep(self.duration / 3).await;
            match self.extend().await {
                Ok(Settled::Ok) => {}
                Ok(Settled::LeaseLost) => return,
                Err(error) => tracing::warn!(%error, run = %self.lease.event, "the run could not be extended"),
            }
        }
    }

    /// Ends it. Sent again after an answer was lost, the same end is found to have happened.
    async fn end(&self, end: End) -> Result<Settled> {
        let earlier = self.sent().clone().filter(|sent| sent.end == end);
        if earlier.as_ref().is_some_and(|sent| sent.answered) {
            return Ok(Settled::Ok);
        }
        *self.sent() = Some(Sent { end: end.clone(), answered: false });
        let settlement = Settlement { lease: self.lease.clone(), end: end.clone() };
        let settled = self.store.settle(vec![settlement], self.clock.now()).await?;
        let mut settled = settled.first().copied().ok_or_else(no_answer)?;
        if settled == Settled::LeaseLost && earlier.is_some() && self.has_ended(&end).await? {
            settled = Settled::Ok;
        }
        *self.sent() = (settled == Settled::Ok).then_some(Sent { end, answered: true });
        Ok(settled)
    }

    fn sent(&self) -> std::sync::MutexGuard<'_, Option<Sent>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an end that was sent before, unanswered, is what the record shows.
    async fn has_ended(&self, end: &End) -> Result<bool> {
        let filter = Filter { id: Some(self.lease.event), ..Filter::default() };
        let Some(record) = find(&*self.store, filter).await? else { return Ok(false) };
        Ok(match end {
            End::Done(_, result) => {
                record.state == State::Done && record.result.as_deref() == result.as_ref().map(ResultText::as_str)
            }
            End::Dead(cause) => record.state == State::Dead && record.cause.as_ref() == Some(cause),
            End::Retry { cause, .. } => record.state == State::Ready && record.cause.as_ref() == Some(cause),
        })
    }
}

fn no_answer() -> Error {
    Error::new(Kind::Internal, "ending a run: the store gave no answer")
}
