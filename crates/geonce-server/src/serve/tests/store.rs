//! A store in memory for the receiver's tests: it knows keys, can fail, and can take its time.

use geonce::clock::Timestamp;
use geonce::error::{Error, Kind, Result};
use geonce::event::{EventId, State};
use geonce::store::{
    Answer, Counted, Filter, Lease, LeaseRequest, Leased, ListRequest, NewEvent, Placed, Record, Repair, Repaired,
    Settled, Settlement, Spot, Status, Store, Swept, Verdict,
};
use std::collections::HashMap;
use std::future::ready;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

#[derive(Default)]
pub(super) struct TestStore {
    keys: Mutex<HashMap<[u8; 16], EventId>>,
    status: Mutex<Status>,
    /// What every accept fails with.
    pub(super) failure: Mutex<Option<Kind>>,
    /// The next verdict, whatever is known.
    pub(super) verdict: Mutex<Option<Verdict>>,
    /// Whether accepts wait until they are released.
    pub(super) held: AtomicBool,
    pub(super) released: Notify,
    /// Accepts that have begun.
    pub(super) begun: AtomicUsize,
    pub(super) beginning: Notify,
}

impl TestStore {
    /// Resolves when `count` accepts have begun.
    pub(super) async fn begun(&self, count: usize) {
        loop {
            let mut beginning = std::pin::pin!(self.beginning.notified());
            beginning.as_mut().enable();
            if self.begun.load(SeqCst) >= count {
                return;
            }
            beginning.await;
        }
    }

    fn decide(&self, event: &NewEvent) -> Verdict {
        let mut status = self.status.lock().unwrap();
        let books = status.ledgers.entry(event.source.to_string()).or_default();
        books.received += 1;
        if let Some(verdict) = self.verdict.lock().unwrap().take() {
            return verdict;
        }
        match self.keys.lock().unwrap().entry(event.key.key()) {
            std::collections::hash_map::Entry::Occupied(known) => {
                books.duplicate += 1;
                let of = *known.get();
                Verdict::Duplicate { of, state: State::Ready, outcome: None, drift: false, revived: false }
            }
            std::collections::hash_map::Entry::Vacant(vacant) => {
                books.waiting += 1;
                vacant.insert(event.id);
                *status.states.entry(State::Ready).or_default() += 1;
                Verdict::Accepted
            }
        }
    }

    fn unused<T: Send + 'static>() -> Answer<'static, T> {
        Box::pin(ready(Err(Error::new(Kind::Internal, "the receiver has no use for this"))))
    }
}

impl Store for TestStore {
    fn accept(&self, batch: Vec<NewEvent>, _now: Timestamp) -> Answer<'_, Vec<Verdict>> {
        Box::pin(async move {
            let released = self.released.notified();
            self.begun.fetch_add(1, SeqCst);
            self.beginning.notify_waiters();
            if self.held.load(SeqCst) {
                released.await;
            }
            if let Some(kind) = *self.failure.lock().unwrap() {
                return Err(Error::new(kind, "writing /secret/place/geonce.db"));
            }
            Ok(batch.iter().map(|event| self.decide(event)).collect())
        })
    }

    fn count(&self, counted: Vec<Counted>) {
        let mut status = self.status.lock().unwrap();
        for one in counted {
            let (Counted::Refused { source, .. } | Counted::Duplicate { source, .. }) = &one else { continue };
            let books = status.ledgers.entry(source.to_string()).or_default();
            books.received += 1;
            match one {
                Counted::Refused { source, code } => {
                    books.refused += 1;
                    *status.invalid.entry((source.to_string(), code)).or_default() += 1;
                }
                Counted::Duplicate { .. } => books.duplicate += 1,
                Counted::Compared { .. } => {}
            }
        }
    }

    fn status(&self) -> Answer<'_, Status> {
        let failure = self.failure.lock().unwrap().map(|kind| Error::new(kind, "reading /secret/place/geonce.db"));
        let status: Result<Status> = failure.map_or_else(|| Ok(self.status.lock().unwrap().clone()), Err);
        Box::pin(ready(status))
    }

    fn lease(&self, _: LeaseRequest, _: Timestamp) -> Answer<'_, Vec<Leased>> {
        Self::unused()
    }

    fn settle(&self, _: Vec<Settlement>, _: Timestamp) -> Answer<'_, Vec<Settled>> {
        Self::unused()
    }

    fn extend(&self, _: Vec<Lease>, _: Timestamp) -> Answer<'_, Vec<Settled>> {
        Self::unused()
    }

    fn place(&self, _: Vec<Spot>, _: Timestamp) -> Answer<'_, Vec<Placed>> {
        Self::unused()
    }

    fn replay(&self, _: Filter, _: Timestamp) -> Answer<'_, u64> {
        Self::unused()
    }

    fn purge(&self, _: Filter, _: Timestamp) -> Answer<'_, u64> {
        Self::unused()
    }

    fn repair(&self, _: Vec<Repair>, _: Timestamp) -> Answer<'_, Vec<Repaired>> {
        Self::unused()
    }

    fn list(&self, _: ListRequest) -> Answer<'_, Vec<Record>> {
        match *self.failure.lock().unwrap() {
            Some(kind) => Box::pin(ready(Err(Error::new(kind, "reading /secret/place/geonce.db")))),
            None => Self::unused(),
        }
    }

    fn sweep(&self, _: usize, _: Timestamp) -> Answer<'_, Swept> {
        Self::unused()
    }

    fn next_due(&self, _: Arc<str>) -> Answer<'_, Option<Timestamp>> {
        Self::unused()
    }

    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }

    fn audit(&self) -> Answer<'_, Vec<String>> {
        Self::unused()
    }

    fn close(&self) -> Answer<'_, ()> {
        Self::unused()
    }
}
