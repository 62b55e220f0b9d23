//! A main store that comes and goes.

use super::{Journal, Opener, open};
use crate::clock::{ManualClock, Timestamp};
use crate::error::{Error, Kind};
use crate::event::State;
use crate::store::conformance::{self, APPLIED, Bench, START, at};
use crate::store::{
    self, Access, Answer, Counted, Filter, Lease, LeaseRequest, Leased, ListRequest, NewEvent, Options, Record, Repair,
    Repaired, Settled, Settlement, Status, Store, Swept, Verdict,
};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A store that can be switched off.
struct Switched {
    inner: Arc<dyn Store>,
    off: Arc<AtomicBool>,
}

macro_rules! passes {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)+) => {
        $(fn $name(&self, $($argument: $kind),*) -> Answer<'_, $answer> {
            if self.off.load(Ordering::Relaxed) {
                return Box::pin(async { Err(Error::new(Kind::Unavailable, "it is switched off")) });
            }
            self.inner.$name($($argument),*)
        })+
    };
}

impl Store for Switched {
    passes! {
        accept(batch: Vec<NewEvent>, now: Timestamp) -> Vec<Verdict>;
        lease(request: LeaseRequest, now: Timestamp) -> Vec<Leased>;
        settle(settlements: Vec<Settlement>, now: Timestamp) -> Vec<Settled>;
        extend(leases: Vec<Lease>, until: Timestamp) -> Vec<Settled>;
        replay(filter: Filter, now: Timestamp) -> u64;
        purge(filter: Filter, now: Timestamp) -> u64;
        repair(repairs: Vec<Repair>, now: Timestamp) -> Vec<Repaired>;
        list(request: ListRequest) -> Vec<Record>;
        status() -> Status;
        sweep(limit: usize, now: Timestamp) -> Swept;
        next_due(sink: Arc<str>) -> Option<Timestamp>;
        audit() -> Vec<String>;
    }

    fn count(&self, counted: Vec<Counted>) {
        self.inner.count(counted);
    }

    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.inner.changed()
    }

    fn close(&self) -> Answer<'_, ()> {
        self.inner.close()
    }
}

struct Rig {
    off: Arc<AtomicBool>,
    main: Arc<dyn Store>,
    bench: Bench,
}

impl Rig {
    fn new(folder: &Path, off: bool, bytes_max: u64) -> Rig {
        let main = store::open("sqlite:main.db", &Options::default(), Access::Gateway, folder).unwrap();
        Rig::before(main, folder, off, bytes_max)
    }

    fn before(main: Arc<dyn Store>, folder: &Path, off: bool, bytes_max: u64) -> Rig {
        let off = Arc::new(AtomicBool::new(off));
        let (switch, inner) = (Arc::clone(&off), Arc::clone(&main));
        let opener: Opener = Arc::new(move || {
            if switch.load(Ordering::Relaxed) {
                return Err(Error::new(Kind::Unavailable, "it is switched off"));
            }
            Ok(Arc::new(Switched { inner: Arc::clone(&inner), off: Arc::clone(&switch) }))
        });
        // Later than everything the tests send.
        let clock = Arc::new(ManualClock::new(at(100)));
        let spill = open(opener, journal(&folder.join("spill.db"), bytes_max), clock).unwrap();
        Rig { off, main, bench: Bench::new(spill) }
    }

    fn switch(&self, off: bool) {
        self.off.store(off, Ordering::Relaxed);
    }

    async fn until(&self, condition: impl Fn(&Status) -> bool) -> Status {
        loop {
            let status = self.bench.store.status().await.unwrap();
            assert_eq!(conformance::law(&status), Ok(()));
            if condition(&status) {
                return status;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

/// A journal for the events that the suite sends.
fn journal(file: &Path, bytes_max: u64) -> Journal<'_> {
    let sources = ["survey", "other"].map(Arc::from);
    Journal { file, bytes_max, sources: sources.into() }
}

fn drained(status: &Status) -> bool {
    status.spilled.is_some_and(|spilled| !spilled.down && spilled.waiting == 0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_passes_the_conformance_suite() {
    let folder = tempfile::tempdir().unwrap();
    let number = std::sync::atomic::AtomicU32::new(0);
    conformance::run(async |options| {
        let place = folder.path().join(number.fetch_add(1, Ordering::Relaxed).to_string());
        std::fs::create_dir(&place).unwrap();
        let opener: Opener = {
            let place = place.clone();
            Arc::new(move || store::open("sqlite:main.db", &options, Access::Gateway, &place))
        };
        let clock = Arc::new(ManualClock::new(START));
        open(opener, journal(&place.join("spill.db"), 1 << 30), clock).unwrap()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_while_the_store_is_down_reaches_it_later_once() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::new(folder.path(), false, 1 << 30);
    let before = rig.bench.fill(&["a", "b"], START).await;
    rig.switch(true);
    // "a" is known to the store, but the store cannot say so.
    let verdicts = rig.bench.accept(vec![rig.bench.event("a", at(1)), rig.bench.event("c", at(1))], at(1)).await;
    assert_eq!(verdicts, [Verdict::Accepted, Verdict::Accepted]);
    let copy = rig.bench.accept_one(rig.bench.event("c", at(2)), at(2)).await;
    assert!(matches!(copy, Verdict::Duplicate { state: State::Ready, drift: false, .. }), "{copy:?}");
    assert!(rig.bench.store.lease(lease(), at(2)).await.is_err());
    let status = rig.until(|status| status.spilled.is_some_and(|spilled| spilled.down)).await;
    assert_eq!(status.spilled.unwrap().waiting, 2);
    rig.switch(false);
    let status = rig.until(drained).await;
    let books = status.ledgers["survey"];
    assert_eq!((books.received, books.duplicate, books.waiting), (5, 2, 3));
    // The journal is done with "c". The store is not, and cannot say so.
    rig.switch(true);
    let copy = rig.bench.accept_one(rig.bench.event("c", at(3)), at(3)).await;
    assert!(matches!(copy, Verdict::Duplicate { state: State::Ready, outcome: None, .. }), "{copy:?}");
    rig.switch(false);
    rig.until(drained).await;
    let leased = rig.bench.lease("map", 10, at(200)).await;
    assert_eq!(leased.len(), 3);
    assert!(leased.iter().any(|leased| leased.lease.event == before[0]));
    assert!(leased.iter().all(|leased| leased.payload.starts_with(b"{\"name\":")), "payloads are what they were");
    for leased in leased {
        assert_eq!(rig.bench.settle(&leased.lease, APPLIED, at(200)).await, Settled::Ok);
    }
    assert_eq!(rig.bench.ledger().await.applied, 3);
    rig.bench.store.close().await.unwrap();
}

fn lease() -> LeaseRequest {
    let duration = std::time::Duration::from_mins(1);
    LeaseRequest {
        sink: "map".into(),
        events_max: 10,
        bytes_max: usize::MAX,
        duration,
        event: None,
        holder: "test".into(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_starts_while_its_store_is_down_and_a_crash_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::new(folder.path(), true, 1 << 30);
    assert_eq!(rig.bench.accept_one(rig.bench.event("a", START), START).await, Verdict::Accepted);
    let main = Arc::clone(&rig.main);
    // A crash: what is durable is what the files hold now.
    let copy = tempfile::tempdir().unwrap();
    for file in ["spill.db", "spill.db-wal"] {
        std::fs::copy(folder.path().join(file), copy.path().join(file)).unwrap();
    }
    let again = Rig::before(main, copy.path(), false, 1 << 30);
    let status = again.until(|status| drained(status) && status.ledgers.contains_key("survey")).await;
    assert_eq!((status.ledgers["survey"].received, status.ledgers["survey"].waiting), (1, 1));
    assert_eq!(again.bench.lease("map", 10, at(200)).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_journal_refuses_and_goes_on_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::new(folder.path(), true, 1 << 20);
    let mut accepted = 0;
    let refused = loop {
        let mut event = rig.bench.event(&format!("n{accepted}"), START);
        event.payload = vec![b'x'; 64 << 10].into();
        match rig.bench.store.accept(vec![event], START).await {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
        assert!(accepted < 10_000, "the journal has no end");
    };
    assert_eq!(refused.kind(), Kind::Resource);
    rig.switch(false);
    let status = rig.until(drained).await;
    assert_eq!(status.ledgers["survey"].waiting, accepted);
    rig.switch(true);
    let verdict = loop {
        // How full the journal is, is looked at now and then.
        match rig.bench.store.accept(vec![rig.bench.event("later", at(1))], at(1)).await {
            Ok(verdicts) => break verdicts,
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
        }
    };
    assert_eq!(verdict, [Verdict::Accepted]);
}

#[test]
fn the_journal_keeps_routes_and_order() {
    let bench =
        Bench::new(store::open("sqlite::memory:", &Options::default(), Access::Gateway, Path::new(".")).unwrap());
    let mut event = bench.event_for("a", &["map", "notify<map"], START);
    event.order = Some(conformance::order("e", 7));
    let leased = Leased {
        lease: Lease { event: event.id, sink: "main".into(), token: 1 },
        source: Arc::clone(&event.source),
        key: event.key,
        content: event.content,
        origin: None,
        received: START,
        attempts: 0,
        lapses: 0,
        form: event.form,
        crs: event.crs,
        payload: super::write_event(&event).into(),
    };
    let read = super::read_event(&leased).unwrap();
    assert_eq!((read.admission, read.order, read.payload), (event.admission, event.order, event.payload));
}
