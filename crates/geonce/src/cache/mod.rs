//! A cache before a shared store: a duplicate of an event that is done is answered without asking the store.
//!
//! First this process is asked, then a filter whether Redis can know the key, then Redis, then the store. Only done
//! events are kept, and only an exact copy is answered: whatever is in doubt, late or unreachable goes to the store, which
//! alone decides what is new. So a cache may be flushed, evicted, frozen or gone at any moment.
//! `docs/decisions/009-cache.md` says why it cannot be wrong.

mod accept;
mod counters;
mod entry;
mod fill;
mod filter;
mod local;
mod lookup;
#[cfg(test)]
mod tests;
mod watch;

pub use self::counters::Counts;

use self::counters::Counters;
use self::entry::{Digest, Entry, Names, tag};
use self::filter::Filter as KeyFilter;
use self::local::{Pending, Recent};
use self::lookup::Lane;
use crate::clock::{Clock, Timestamp};
use crate::error::{Error, Kind, Result};
use crate::event::{EventId, Outcome};
use crate::redis::{Address, Connections, Finder, Listen, is_prefix};
use crate::store::{
    Answer, Counted, Filter, Joint, Lease, LeaseRequest, Leased, ListRequest, NewEvent, Record, Repair, Repaired,
    Settled, Settlement, Status, Store, Swept, Verdict,
};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

/// Lanes in a Cluster: slots over which entries are spread.
const CLUSTER_LANES: usize = 16;
/// Counts that are brought to the store at once, should there be many.
const COUNTS_MAX: usize = 4_096;

/// How a cache is used. It is not shown as a whole: the address may hold a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// `redis://…`, `rediss://…`, `redis+sentinel://…` or `redis+cluster://…`.
    pub url: String,
    /// What the names of entries begin with; else what the address says.
    pub prefix: Option<String>,
    /// How long Redis may take to answer before the store is asked instead.
    pub budget: Duration,
    /// The store's window: how long a done event is remembered.
    pub window: Duration,
    /// Keys to be expected within a window; the filter is made for so many.
    pub keys: usize,
    /// Entries that are kept in this process.
    pub recent: usize,
    /// Sources that do not use the cache.
    pub excluded: BTreeSet<String>,
}

impl Settings {
    /// The usual settings.
    pub fn new(url: impl Into<String>, window: Duration) -> Settings {
        Settings {
            url: url.into(),
            prefix: None,
            budget: Duration::from_millis(5),
            window,
            keys: 1_000_000,
            recent: 65_536,
            excluded: BTreeSet::new(),
        }
    }

    /// Whether a cache can be opened with them, as far as that is known without trying.
    pub fn check(&self) -> Result<()> {
        Address::parse(&self.url)?;
        match &self.prefix {
            Some(prefix) if !is_prefix(prefix) => {
                Err(Error::new(Kind::Invalid, "a prefix is made of up to 64 letters, digits, and - _ . :"))
            }
            _ => Ok(()),
        }
    }
}

/// How a cache is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Whether Redis answers, all of it.
    pub reachable: bool,
    /// Whether the filter knows what Redis holds.
    pub warm: bool,
}

/// A store with a cache before it.
pub struct Cached {
    shared: Arc<Shared>,
    /// Its own, so that a busy gateway and its cache do not hold each other up.
    runtime: Option<Runtime>,
}

/// What all parts of a cache share.
struct Shared {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    address: Address,
    prefix: String,
    budget: Duration,
    window: Duration,
    excluded: BTreeSet<String>,
    lanes: Vec<Lane>,
    /// Known once Redis was reached, and what they are made from.
    names: RwLock<Option<(Arc<Names>, Vec<u8>)>>,
    entries: mpsc::Sender<(Digest, Entry)>,
    recent: Recent,
    filter: KeyFilter,
    pending: Pending,
    counters: Counters,
    counted: Mutex<Vec<Counted>>,
    /// The latest event that was remembered, until others are told.
    latest: Mutex<Option<EventId>>,
    closed: AtomicBool,
}

/// Puts a cache before `store`. Redis need not be reachable: it is looked for in the background.
pub fn open(store: Arc<dyn Store>, settings: &Settings, clock: Arc<dyn Clock>) -> Result<Arc<Cached>> {
    settings.check()?;
    let address = Address::parse(&settings.url)?;
    let doing = format!("opening the cache {}", address.shown());
    let prefix = settings.prefix.clone().unwrap_or_else(|| address.prefix.clone());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("cache")
        .enable_all()
        .build()
        .map_err(|error| Error::new(Kind::Resource, doing).because(error))?;
    let count = if address.finder == Finder::Cluster { CLUSTER_LANES } else { 1 };
    let (mut lanes, mut questions) = (Vec::new(), Vec::new());
    for number in 0..count {
        let (lane, asked) = Lane::new(connections(&address, &prefix, number, None)?);
        lanes.push(lane);
        questions.push(asked);
    }
    let (entries, filled) = mpsc::channel(fill::WAITING_MAX);
    let shared = Arc::new(Shared {
        recent: Recent::new(settings.recent),
        filter: KeyFilter::new(settings.keys, settings.window, clock.now()),
        store,
        clock,
        address,
        prefix,
        budget: settings.budget,
        window: settings.window,
        excluded: settings.excluded.clone(),
        lanes,
        names: RwLock::default(),
        entries,
        pending: Pending::default(),
        counters: Counters::default(),
        counted: Mutex::default(),
        latest: Mutex::default(),
        closed: AtomicBool::new(false),
    });
    for (number, asked) in questions.into_iter().enumerate() {
        runtime.spawn(lookup::serve(Arc::clone(&shared), number, asked));
        runtime.spawn(lookup::keep(Arc::clone(&shared), number));
    }
    runtime.spawn(fill::write(Arc::clone(&shared), filled));
    runtime.spawn(watch::watch(Arc::clone(&shared)));
    runtime.spawn(watch::count(Arc::clone(&shared)));
    runtime.spawn(watch::tell(Arc::clone(&shared)));
    Ok(Arc::new(Cached { shared, runtime: Some(runtime) }))
}

fn connections(address: &Address, prefix: &str, lane: usize, listen: Option<Listen>) -> Result<Connections> {
    Connections::new(address.clone(), &tag(prefix, lane), listen, Box::new(|_, _| Box::pin(async { Ok(()) })))
}

impl Cached {
    /// What was counted since it was opened.
    pub fn counts(&self) -> Counts {
        self.shared.counters.read()
    }

    /// How it is doing.
    pub fn condition(&self) -> Condition {
        let reachable = self.shared.names().is_some() && !self.shared.lanes.iter().any(Lane::is_open);
        Condition { reachable, warm: self.shared.filter.is_warm() }
    }

    /// Its address, without secrets.
    pub fn address(&self) -> &str {
        self.shared.address.shown()
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        self.shared.flush();
        if let Some(runtime) = self.runtime.take() {
            // Dropping a runtime waits for it, which is not allowed everywhere.
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    fn connections(&self, lane: usize, listen: Option<Listen>) -> Result<Connections> {
        connections(&self.address, &self.prefix, lane, listen)
    }

    fn names(&self) -> Option<Arc<Names>> {
        self.names.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(names, _)| Arc::clone(names))
    }

    fn epoch(&self) -> Option<Vec<u8>> {
        self.names.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(_, epoch)| epoch.clone())
    }

    fn set_names(&self, names: Names, epoch: Vec<u8>) {
        let mut known = self.names.write().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_none_or(|(known, _)| **known != names) {
            *known = Some((Arc::new(names), epoch));
        }
    }

    /// What was remembered counts no more.
    fn forget(&self) {
        *self.names.write().unwrap_or_else(PoisonError::into_inner) = None;
        self.recent.clear();
        self.pending.clear();
        self.take_latest();
    }

    fn take_latest(&self) -> Option<EventId> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Brings counts to the store.
    fn flush(&self) {
        let counted = std::mem::take(&mut *self.counted.lock().unwrap_or_else(PoisonError::into_inner));
        if !counted.is_empty() {
            self.store.count(counted);
        }
    }

    fn count(&self, duplicates: Vec<Counted>) {
        if duplicates.is_empty() {
            return;
        }
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.extend(duplicates);
        let many = counted.len() >= COUNTS_MAX;
        drop(counted);
        if many {
            self.flush();
        }
    }

    /// Remembers a done event: here at once, in Redis soon.
    fn remember(&self, digest: Digest, entry: Entry) {
        self.recent.insert(digest, entry);
        if self.entries.try_send((digest, entry)).is_err() {
            self.counters.dropped.add(1);
            return;
        }
        self.filter.insert(&digest, self.clock.now());
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = (*latest).max(Some(entry.id));
    }
}

impl Store for Cached {
    fn accept(&self, batch: Vec<NewEvent>, now: Timestamp) -> Answer<'_, Vec<Verdict>> {
        Box::pin(self.shared.accept(batch, now))
    }

    fn count(&self, counted: Vec<Counted>) {
        self.shared.store.count(counted);
    }

    fn id(&self) -> Option<[u8; 16]> {
        self.shared.store.id()
    }

    fn lease(&self, request: LeaseRequest, now: Timestamp) -> Answer<'_, Vec<Leased>> {
        self.shared.store.lease(request, now)
    }

    fn settle(&self, settlements: Vec<Settlement>, now: Timestamp) -> Answer<'_, Vec<Settled>> {
        Box::pin(self.shared.settle(settlements, now))
    }

    fn joint(&self) -> Option<Joint> {
        self.shared.store.joint()
    }

    fn heard(&self, event: EventId, outcome: Outcome) {
        self.shared.done(event, outcome);
    }

    fn extend(&self, leases: Vec<Lease>, until: Timestamp) -> Answer<'_, Vec<Settled>> {
        self.shared.store.extend(leases, until)
    }

    fn replay(&self, filter: Filter, now: Timestamp) -> Answer<'_, u64> {
        self.shared.store.replay(filter, now)
    }

    fn purge(&self, filter: Filter, now: Timestamp) -> Answer<'_, u64> {
        self.shared.store.purge(filter, now)
    }

    fn repair(&self, repairs: Vec<Repair>, now: Timestamp) -> Answer<'_, Vec<Repaired>> {
        self.shared.store.repair(repairs, now)
    }

    fn list(&self, request: ListRequest) -> Answer<'_, Vec<Record>> {
        self.shared.store.list(request)
    }

    fn status(&self) -> Answer<'_, Status> {
        self.shared.flush();
        self.shared.store.status()
    }

    fn sweep(&self, limit: usize, now: Timestamp) -> Answer<'_, Swept> {
        self.shared.store.sweep(limit, now)
    }

    fn next_due(&self, sink: Arc<str>) -> Answer<'_, Option<Timestamp>> {
        self.shared.store.next_due(sink)
    }

    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.shared.store.changed()
    }

    fn audit(&self) -> Answer<'_, Vec<String>> {
        self.shared.store.audit()
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            // Nobody would count what is answered from here on.
            self.shared.closed.store(true, Ordering::Release);
            self.shared.flush();
            self.shared.store.close().await
        })
    }
}
