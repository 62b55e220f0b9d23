//! What a cache promises: the answers of the store, only sooner, whatever becomes of Redis.

mod answers;
mod faults;
mod places;

use super::{Cached, Counts, Settings};
use crate::clock::{Clock, ManualClock, SystemClock, Timestamp};
use crate::error::{Error, Kind};
use crate::store::conformance::{self, Bench, START};
use crate::store::{
    self, Access, Answer, Counted, Filter, Lease, LeaseRequest, Leased, ListRequest, NewEvent, Options, Record, Repair,
    Repaired, Settled, Settlement, Status, Store, Swept, Verdict,
};
use geonce_services::{Cluster, Postgres, Redis as Server};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

/// Longer than any answer takes on a busy machine: tests about answers are not about time.
const PATIENT: Duration = Duration::from_secs(5);

/// How often a condition is looked at before a test fails.
const LOOKS_MAX: usize = 6_000;

/// Waits until something has become true.
async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..LOOKS_MAX {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{what}: not in time");
}

fn now() -> Timestamp {
    SystemClock.now()
}

/// A prefix that no other test uses.
fn prefix() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("t{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// The store behind a cache: counts what it is asked, and fails when it is told to.
struct Behind {
    inner: Arc<dyn Store>,
    asked: AtomicUsize,
    down: AtomicBool,
}

/// A cache whose counts are in the books before these are read.
struct Prompt {
    cached: Arc<Cached>,
    behind: Arc<Behind>,
}

impl Prompt {
    async fn written(&self) {
        self.cached.shared.flush();
        // Written at the latest with what is committed next; a closed store has nothing left to write.
        let _ = self.behind.inner.accept(Vec::new(), START).await;
    }
}

macro_rules! passes {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)+) => {
        $(fn $name(&self, $($argument: $kind),*) -> Answer<'_, $answer> {
            self.inner().$name($($argument),*)
        })+
    };
}

macro_rules! decorated {
    ($name:ty { $($special:item)* }) => {
        impl Store for $name {
            $($special)*
            passes! {
                lease(request: LeaseRequest, now: Timestamp) -> Vec<Leased>;
                settle(settlements: Vec<Settlement>, now: Timestamp) -> Vec<Settled>;
                extend(leases: Vec<Lease>, until: Timestamp) -> Vec<Settled>;
                replay(filter: Filter, now: Timestamp) -> u64;
                purge(filter: Filter, now: Timestamp) -> u64;
                repair(repairs: Vec<Repair>, now: Timestamp) -> Vec<Repaired>;
                sweep(limit: usize, now: Timestamp) -> Swept;
                next_due(sink: Arc<str>) -> Option<Timestamp>;
                close() -> ();
            }

            fn count(&self, counted: Vec<Counted>) {
                self.inner().count(counted);
            }

            fn id(&self) -> Option<[u8; 16]> {
                self.inner().id()
            }

            fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
                self.inner().changed()
            }
        }
    };
}

impl Behind {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }
}

impl Prompt {
    fn inner(&self) -> &dyn Store {
        &*self.cached
    }
}

decorated! { Behind {
    fn accept(&self, batch: Vec<NewEvent>, now: Timestamp) -> Answer<'_, Vec<Verdict>> {
        self.asked.fetch_add(batch.len(), Ordering::Relaxed);
        if self.down.load(Ordering::Relaxed) {
            return Box::pin(async { Err(Error::new(Kind::Unavailable, "it is switched off")) });
        }
        self.inner.accept(batch, now)
    }

    passes! {
        list(request: ListRequest) -> Vec<Record>;
        status() -> Status;
        audit() -> Vec<String>;
    }
} }

decorated! { Prompt {
    fn accept(&self, batch: Vec<NewEvent>, now: Timestamp) -> Answer<'_, Vec<Verdict>> {
        self.cached.accept(batch, now)
    }

    fn list(&self, request: ListRequest) -> Answer<'_, Vec<Record>> {
        Box::pin(async move {
            self.written().await;
            self.cached.list(request).await
        })
    }

    fn status(&self) -> Answer<'_, Status> {
        Box::pin(async move {
            self.written().await;
            self.cached.status().await
        })
    }

    fn audit(&self) -> Answer<'_, Vec<String>> {
        Box::pin(async move {
            self.written().await;
            self.cached.audit().await
        })
    }
} }

/// A gateway's view: a bench over a cached store, and what can be seen of both.
struct Rig {
    bench: Bench,
    cached: Arc<Cached>,
    behind: Arc<Behind>,
}

impl Rig {
    fn new(inner: Arc<dyn Store>, settings: &Settings, clock: Arc<dyn Clock>) -> Rig {
        let behind = Arc::new(Behind { inner, asked: AtomicUsize::new(0), down: AtomicBool::new(false) });
        let cached = super::open(Arc::clone(&behind) as Arc<dyn Store>, settings, clock).unwrap();
        let prompt = Prompt { cached: Arc::clone(&cached), behind: Arc::clone(&behind) };
        Rig { bench: Bench::new(Arc::new(prompt)), cached, behind }
    }

    /// With the machine's clock, once Redis was found.
    async fn ready(inner: Arc<dyn Store>, settings: &Settings) -> Rig {
        let rig = Rig::new(inner, settings, Arc::new(SystemClock));
        rig.warm().await;
        rig
    }

    async fn warm(&self) {
        until("the cache is warm", || self.cached.condition().warm && self.cached.condition().reachable).await;
    }

    fn counts(&self) -> Counts {
        self.cached.counts()
    }

    fn asked(&self) -> usize {
        self.behind.asked.load(Ordering::Relaxed)
    }

    /// Waits until so many entries are in Redis.
    async fn written(&self, entries: u64) {
        until("entries are written", || self.counts().written >= entries).await;
    }

    /// Accepts events and has them delivered.
    async fn done(&self, names: &[&str]) -> Vec<crate::event::EventId> {
        let ids = self.bench.fill(names, now()).await;
        self.bench.settle_all("map", conformance::APPLIED, now()).await;
        ids
    }
}

fn settings(url: &str) -> Settings {
    let mut settings = Settings::new(url, Options::default().window);
    (settings.prefix, settings.budget) = (Some(prefix()), PATIENT);
    settings
}

fn embedded(options: &Options) -> Arc<dyn Store> {
    store::open("sqlite::memory:", options, Access::Gateway, Path::new("")).unwrap()
}

/// The verdict about a copy of a done event.
fn duplicate(of: crate::event::EventId) -> Verdict {
    use crate::event::{Outcome, State};
    Verdict::Duplicate { of, state: State::Done, outcome: Some(Outcome::Applied), drift: false, revived: false }
}

/// A cached store at the time of the suite.
async fn suite(inner: Arc<dyn Store>, url: &str, options: &Options) -> Arc<dyn Store> {
    let settings = Settings { window: options.window, ..settings(url) };
    let rig = Rig::new(inner, &settings, Arc::new(ManualClock::new(START)));
    rig.warm().await;
    rig.bench.store
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_passes_the_conformance_suite_over_an_embedded_store() {
    let url = Server::shared().url();
    conformance::run(async |options: Options| suite(embedded(&options), &url, &options).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_passes_the_conformance_suite_over_postgresql() {
    let url = Server::shared().url();
    let database = Postgres::shared().database();
    let schemas = AtomicU32::new(0);
    conformance::run(async |options: Options| {
        let schema = schemas.fetch_add(1, Ordering::Relaxed);
        suite(store::open_given(&format!("{database}?schema=cached_{schema}"), &options), &url, &options).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_passes_the_conformance_suite_with_a_cluster() {
    let url = Cluster::shared().url();
    conformance::run(async |options: Options| suite(embedded(&options), &url, &options).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_answers_as_a_store_without_a_cache_does() {
    let url = Server::shared().url();
    for _ in 0..3 {
        store::answer_alike(async |options: Options| suite(embedded(&options), &url, &options).await, 400).await;
    }
    // With next to nothing in the process, so that Redis is asked.
    store::answer_alike(
        async |options: Options| {
            let settings = Settings { window: options.window, recent: 0, ..settings(&url) };
            let rig = Rig::new(embedded(&options), &settings, Arc::new(ManualClock::new(START)));
            rig.warm().await;
            rig.bench.store
        },
        400,
    )
    .await;
}
