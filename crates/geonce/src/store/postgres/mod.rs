//! The `PostgreSQL` store: one schema that any number of gateways share, each with its own few connections.
//!
//! An answer means that the transaction is committed on the server. The server's clock counts, not the gateway's, so that
//! one with a wrong clock steals no leases. Locks are taken in one order everywhere: claims, events, work, entities,
//! counters, each sorted; what meets in a deadlock all the same is tried again. `docs/decisions/007-postgresql-store.md` says why.

mod accept;
mod audit;
mod counts;
mod joint;
mod lanes;
mod lease;
mod line;
mod place;
mod plan;
mod read;
mod repair;
mod row;
mod schema;
mod select;
#[cfg(test)]
pub(crate) mod tests;
mod wake;
mod work;

pub use self::joint::Joint;

use self::counts::Slots;
use self::lanes::{Lanes, Waiting};
use self::lease::Heads;
use self::select::{Cursors, Fate};
use super::{
    Access, Answer, Counted, Filter, Lease, LeaseRequest, Leased, ListRequest, NewEvent, Options, Placed, Record,
    Repair, Repaired, Settled, Settlement, Spot, Status, Store, Swept, Verdict,
};
use crate::clock::Timestamp;
use crate::error::{Error, Kind, Result};
use crate::postgres::{Address, Pool, Session, Trouble};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// A clock that seems to have gone back by this much was moved.
const CLOCK_MOVED_MILLIS: i64 = 30_000;
/// Where tables are, unless the address says otherwise.
const SCHEMA: &str = "geonce";
/// Connections of one gateway, beside the one that listens.
const CONNECTIONS_MAX: usize = 8;
/// Threads that talk to the server. They are the store's own: callers may come from any runtime, or go.
const THREADS: usize = 2;

/// Ways to run a statement that the server must not choose. Every statement here asks for a few rows by an index. What the
/// server believes about tables that grew from nothing a minute ago makes it read them whole, and a queue then becomes
/// slower the longer it is.
/// Compiling a statement takes longer than any of them.
const UNWANTED_PLANS: [&str; 5] = ["enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "jit"];

/// Runs a transaction until it is committed or trying again is of no use.
macro_rules! transaction {
    ($pool:expr, $tries:ident, $session:ident => $work:expr) => {
        $crate::store::postgres::transaction!($pool.begin(), $tries, $session, $work)
    };
    ($begin:expr, $tries:ident, $session:ident, $work:expr) => {
        $crate::store::postgres::transaction!(@ $tries, async {
            let $session = $begin.await?;
            let result = $work.await;
            $session.end(result).await
        })
    };
    // What is done with the session ends it too.
    (ending: $pool:expr, $tries:ident, $session:ident => $work:expr) => {
        $crate::store::postgres::transaction!(@ $tries, async {
            let $session = $pool.begin().await?;
            $work.await
        })
    };
    (@ $tries:ident, $attempt:expr) => {{
        let mut $tries = $crate::postgres::Tries::new();
        loop {
            let attempt = $attempt;
            match attempt.await {
                Ok(value) => break Ok(value),
                Err(trouble) => {
                    if let Err(trouble) = $tries.again(trouble).await {
                        break Err(trouble);
                    }
                }
            }
        }
    }};
}
/// Runs a transaction that sees one moment and changes nothing.
macro_rules! reading {
    ($pool:expr, $session:ident => $work:expr) => {
        $crate::store::postgres::transaction!($pool.begin_reading(), tries, $session, $work)
    };
}
use {reading, transaction};

/// What a fallible function inside the store returns.
type Attempt<T> = std::result::Result<T, Trouble>;

/// Opens the store at `url`.
pub(super) fn open(url: &str, options: &Options, access: Access) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(Postgres::open(url, options, access, Time::Server)?))
}

/// A store in which the given time counts.
#[cfg(test)]
pub(crate) fn open_given(url: &str, options: &Options) -> Arc<dyn Store> {
    Arc::new(Postgres::open(url, options, Access::Gateway, Time::Given).unwrap())
}

/// Whose clock counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Time {
    /// The server's.
    Server,
    /// The caller's: for tests that move it.
    #[cfg(test)]
    Given,
}

/// What all parts of an open store share.
struct Shared {
    pool: Pool,
    schema: String,
    options: Options,
    time: Time,
    /// By how many milliseconds the gateway's clock is ahead of the server's, when last seen.
    ahead: AtomicI64,
    slots: Slots,
    waiting: Waiting,
    /// What tells it from every other.
    id: [u8; 16],
    /// Wakes workers of this gateway,
    changed: Notify,
    /// and those of others.
    others: Notify,
    /// Whether a settlement released held work that nobody was woken for yet.
    released: AtomicBool,
    /// Groups since one had a key that was known.
    unknown: AtomicU32,
    cursors: Cursors,
    heads: Heads,
}

impl Shared {
    /// The time that counts, in a transaction that was asked for at `given`.
    fn now(&self, session: &Session, given: Timestamp) -> Timestamp {
        match self.time {
            Time::Server => {
                self.compare(given, session.began);
                session.began
            }
            #[cfg(test)]
            Time::Given => given,
        }
    }

    /// Notes how the clocks differ. A request that had to wait makes the gateway's clock seem late, so what shows it
    /// later counts little, unless the clock was moved.
    fn compare(&self, given: Timestamp, server: Timestamp) {
        let (seen, known) = (given.millis().saturating_sub(server.millis()), self.ahead.load(Ordering::Relaxed));
        let less = known.saturating_sub(seen);
        let ahead = if (0..CLOCK_MOVED_MILLIS).contains(&less) { known - less / 16 } else { seen };
        self.ahead.store(ahead, Ordering::Relaxed);
    }

    /// A time of the gateway's clock by the clock that counts.
    fn by_server(&self, time: Timestamp) -> Timestamp {
        Timestamp::from_millis(time.millis().saturating_sub(self.ahead.load(Ordering::Relaxed)))
    }

    /// A time of the clock that counts by the gateway's.
    fn by_gateway(&self, time: Timestamp) -> Timestamp {
        Timestamp::from_millis(time.millis().saturating_add(self.ahead.load(Ordering::Relaxed)))
    }

    /// Work may have become ready.
    fn wake(&self) {
        self.changed.notify_waiters();
        self.others.notify_one();
    }
}

/// The store's threads. What runs on them is dropped with them, without waiting: that is not allowed everywhere.
struct Threads(Option<Runtime>);

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// An open store.
struct Postgres {
    access: Access,
    shared: Arc<Shared>,
    /// Gone once the store is closed.
    lanes: Mutex<Option<Lanes>>,
    wakers: Vec<JoinHandle<()>>,
    handle: Handle,
    _threads: Threads,
}

impl Postgres {
    fn open(url: &str, options: &Options, access: Access, time: Time) -> Result<Postgres> {
        let address = Arc::new(Address::parse(url)?);
        let schema = address.schema.clone().unwrap_or_else(|| SCHEMA.to_owned());
        let doing = format!("opening the store {}", address.shown());
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).thread_name("store").enable_all().build();
        let runtime = runtime.map_err(|error| Error::new(Kind::Resource, doing.clone()).because(error))?;
        let handle = runtime.handle().clone();
        let threads = Threads(Some(runtime));
        let pool = Pool::new(&address, CONNECTIONS_MAX)?.within(&schema);
        let pool = UNWANTED_PLANS.iter().fold(pool, |pool, plan| pool.with(plan, "off"));
        let (reply, answer) = std::sync::mpsc::channel();
        let preparing = (pool.clone(), schema.clone(), options.clone());
        handle.spawn(async move {
            let (pool, schema, options) = preparing;
            let _ = reply.send(schema::prepare(&pool, &schema, &options, access).await);
        });
        // Waiting like this is allowed on any thread; it happens once, at the start.
        let prepared = answer.recv().map_err(|_| Error::new(Kind::Internal, doing.clone()))?;
        let (id, slots) = prepared.map_err(|trouble| with_hint(trouble.explain(&doing)))?;
        let shared = Arc::new(Shared {
            pool,
            schema,
            options: options.clone(),
            time,
            ahead: AtomicI64::new(0),
            slots: Slots::new(slots),
            waiting: Waiting::default(),
            id,
            changed: Notify::new(),
            others: Notify::new(),
            released: AtomicBool::new(false),
            unknown: AtomicU32::new(0),
            cursors: Cursors::default(),
            heads: Heads::default(),
        });
        let (mut wakers, lanes) = (vec![handle.spawn(wake::tell_others(Arc::clone(&shared)))], Lanes::new());
        if access != Access::Tool {
            wakers.push(handle.spawn(wake::listen(Arc::clone(&shared), address)));
            lanes.start(&handle, &shared);
        }
        let lanes = Mutex::new(Some(lanes));
        Ok(Postgres { access, shared, lanes, wakers, handle, _threads: threads })
    }

    /// Does something on the store's own threads: it is finished even if nobody waits for it any more.
    fn run<T, F>(&self, doing: &'static str, work: impl FnOnce(Arc<Shared>) -> F) -> Answer<'_, T>
    where
        T: Send + 'static,
        F: Future<Output = Attempt<T>> + Send + 'static,
    {
        let work = work(Arc::clone(&self.shared));
        Box::pin(async move {
            if self.lanes.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
                return Err(closed(doing));
            }
            match self.handle.spawn(work).await {
                Ok(answer) => answer.map_err(|trouble| trouble.explain(doing)),
                Err(failed) if failed.is_panic() => Err(Error::new(Kind::Internal, format!("{doing}: a panic"))),
                Err(_) => Err(closed(doing)),
            }
        })
    }
}

/// What to do when a store cannot be opened, where nothing better is known.
fn with_hint(error: Error) -> Error {
    match (error.hint_text(), error.kind()) {
        (None, Kind::Unavailable) => error.hint("is the server running, and does the address lead to it?"),
        (None, Kind::Permission) => error.hint("the user of the address must be allowed to make and use tables there"),
        _ => error,
    }
}

fn closed(doing: &str) -> Error {
    Error::new(Kind::Unavailable, format!("{doing}: the store is closed"))
}

impl Store for Postgres {
    fn accept(&self, batch: Vec<NewEvent>, now: Timestamp) -> Answer<'_, Vec<Verdict>> {
        if self.access == Access::Tool {
            return Box::pin(async { Err(Error::new(Kind::Invalid, "only a gateway accepts events")) });
        }
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(Lanes::entrance);
        Box::pin(async move {
            let doing = "recording events";
            lanes.ok_or_else(|| closed(doing))?.accept(batch, now).await.unwrap_or_else(|| Err(closed(doing)))
        })
    }

    fn id(&self) -> Option<[u8; 16]> {
        Some(self.shared.id)
    }

    fn count(&self, counted: Vec<Counted>) {
        self.shared.waiting.add(counted);
        if let Some(lanes) = &*self.lanes.lock().unwrap_or_else(PoisonError::into_inner) {
            lanes.entrance().wake();
        }
    }

    fn lease(&self, request: LeaseRequest, now: Timestamp) -> Answer<'_, Vec<Leased>> {
        self.run("leasing events", |shared| async move { lease::lease(&shared, &request, now).await })
    }

    fn settle(&self, settlements: Vec<Settlement>, now: Timestamp) -> Answer<'_, Vec<Settled>> {
        self.run("settling events", |shared| async move { work::settle(&shared, &settlements, now).await })
    }

    fn extend(&self, leases: Vec<Lease>, until: Timestamp) -> Answer<'_, Vec<Settled>> {
        self.run("extending leases", |shared| async move { work::extend(&shared, &leases, until).await })
    }

    fn place(&self, spots: Vec<Spot>, now: Timestamp) -> Answer<'_, Vec<Placed>> {
        if let Err(error) = super::place::check(&spots) {
            return Box::pin(async { Err(error) });
        }
        self.run("placing events", |shared| async move { place::place(&shared, &spots, now).await })
    }

    fn replay(&self, filter: Filter, now: Timestamp) -> Answer<'_, u64> {
        self.run("replaying events", |shared| async move { select::decide(&shared, &filter, Fate::Replay, now).await })
    }

    fn purge(&self, filter: Filter, now: Timestamp) -> Answer<'_, u64> {
        self.run("purging events", |shared| async move { select::decide(&shared, &filter, Fate::Purge, now).await })
    }

    fn repair(&self, repairs: Vec<Repair>, now: Timestamp) -> Answer<'_, Vec<Repaired>> {
        self.run("repairing events", |shared| async move { repair::repair(&shared, &repairs, now).await })
    }

    fn list(&self, request: ListRequest) -> Answer<'_, Vec<Record>> {
        self.run("listing events", |shared| async move { read::list(&shared, &request).await })
    }

    fn status(&self) -> Answer<'_, Status> {
        self.run("counting events", |shared| async move { read::status(&shared).await })
    }

    fn sweep(&self, limit: usize, now: Timestamp) -> Answer<'_, Swept> {
        self.run("sweeping events", move |shared| async move { select::sweep(&shared, limit, now).await })
    }

    fn next_due(&self, sink: Arc<str>) -> Answer<'_, Option<Timestamp>> {
        self.run("looking for work", |shared| async move { read::next_due(&shared, &sink).await })
    }

    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        // The notification counts from here, not from the first poll: ask for this before looking for work.
        Box::pin(self.shared.changed.notified())
    }

    fn joint(&self) -> Option<Joint> {
        Some(Joint::new(&self.shared, &self.handle))
    }

    fn audit(&self) -> Answer<'_, Vec<String>> {
        self.run("auditing the store", |shared| async move { audit::audit(&shared).await })
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner).take();
            lanes.ok_or_else(|| closed("closing"))?.finish().await;
            self.wakers.iter().for_each(JoinHandle::abort);
            self.shared.pool.close();
            Ok(())
        })
    }
}
