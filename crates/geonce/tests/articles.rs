//! Mistakes that code for idempotent spatial pipelines is often published with, each as a test that the engine passes on
//! every store: checks that race, claims without leases, states that go back, keys that hide rows, caches that evict.
//!
//! Mistakes of keys and of receivers have their tests where keys and receivers are.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use bytes::Bytes;
use geonce::clock::{Clock, SystemClock, Timestamp};
use geonce::error::Kind;
use geonce::event::{Cause, Class, EventId, Ids, Outcome, State};
use geonce::ledger::{Begun, Ledger, Run, Task};
use geonce::sink::conformance::Maker;
use geonce::sink::{self, Outgoing, Written};
use geonce::store::{
    self, Access, Admission, End, Filter, LeaseRequest, Leased, ListRequest, NewEvent, Options, Record, ResultText,
    Route, Settled, Settlement, Store, Verdict,
};
use geonce_key::{Fingerprint, Form};
use geonce_services::{Postgres, Redis};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const LONG: Duration = Duration::from_mins(2);
/// A lease that lapses while a test waits for it.
const SHORT: Duration = Duration::from_millis(300);

/// A store, opened by two gateways where it is one that gateways share.
struct Gateways {
    stores: [Arc<dyn Store>; 2],
    ids: Ids,
    _folder: tempfile::TempDir,
}

impl Gateways {
    async fn open(url: String, shared: bool) -> Gateways {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let opened = tokio::task::spawn_blocking(move || {
            let open = || store::open(&url, &Options::default(), Access::Gateway, &path).unwrap();
            let first = open();
            let second = if shared { open() } else { Arc::clone(&first) };
            [first, second]
        });
        Gateways { stores: opened.await.unwrap(), ids: Ids::new(), _folder: folder }
    }

    async fn embedded() -> Gateways {
        Gateways::open("sqlite:geonce.db".to_owned(), false).await
    }

    async fn postgres() -> Gateways {
        Gateways::open(Postgres::shared().database(), true).await
    }

    async fn redis() -> Gateways {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let prefix = NUMBER.fetch_add(1, Ordering::Relaxed);
        Gateways::open(format!("{}?prefix=article{prefix}", Redis::shared().url()), true).await
    }

    fn event(&self, name: &str) -> NewEvent {
        NewEvent {
            id: self.ids.next(now()),
            source: "zones".into(),
            key: key(name),
            aliases: Vec::new(),
            spatial: Vec::new(),
            content: *key(name).digest(),
            form: Form::Json,
            crs: None,
            order: None,
            payload: Bytes::from(format!("{{\"name\":\"{name}\"}}")),
            admission: Admission::Deliver([Route::to("map")].into()),
        }
    }

    async fn accept(&self, gateway: usize, event: NewEvent) -> Verdict {
        self.stores[gateway].accept(vec![event], now()).await.unwrap().remove(0)
    }

    /// Leases one event, as soon as there is one.
    async fn lease(&self, gateway: usize, duration: Duration) -> Leased {
        loop {
            let request = LeaseRequest {
                sink: "map".into(),
                events_max: 1,
                bytes_max: usize::MAX,
                duration,
                event: None,
                holder: "test".into(),
            };
            match self.stores[gateway].lease(request, now()).await.unwrap().pop() {
                Some(leased) => return leased,
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    async fn settle(&self, gateway: usize, leased: &Leased, end: End) -> Settled {
        let settlement = Settlement { lease: leased.lease.clone(), end };
        self.stores[gateway].settle(vec![settlement], now()).await.unwrap().remove(0)
    }

    async fn record(&self, id: EventId) -> Record {
        let filter = Filter { id: Some(id), ..Filter::default() };
        let request = ListRequest { filter, before: None, limit: 1, payloads: true };
        self.stores[1].list(request).await.unwrap().remove(0)
    }

    fn ledger(&self, gateway: usize) -> Ledger {
        Ledger::new(Arc::clone(&self.stores[gateway]), Arc::new(SystemClock), "loads")
    }
}

fn now() -> Timestamp {
    SystemClock.now()
}

fn key(name: &str) -> Fingerprint {
    Fingerprint::from_digest(Sha256::digest(name).into(), false)
}

fn task(name: &str) -> Task {
    Task { key: key(name), payload: Bytes::from("{}") }
}

fn cause(class: Class) -> Cause {
    Cause::new(class, "failed", "It failed.")
}

fn started(begun: Begun) -> Run {
    match begun {
        Begun::Started(run) => run,
        other => panic!("{other:?}"),
    }
}

macro_rules! on_every_store {
    ($($test:ident),+ $(,)?) => {
        on_every_store!(in embedded $($test)+);
        on_every_store!(in postgres $($test)+);
        on_every_store!(in redis $($test)+);
    };
    (in $store:ident $($test:ident)+) => {
        mod $store {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(super::Gateways::$store().await).await;
                }
            )+
        }
    };
}

on_every_store![
    of_twenty_simultaneous_deliveries_one_is_processed,
    the_event_of_a_killed_worker_is_not_refused_for_a_day,
    a_failure_does_not_free_the_claim_of_another_worker,
    an_id_that_comes_again_with_another_payload_is_not_dropped,
    a_dead_letter_is_what_was_sent_byte_for_byte_and_stays,
    a_completed_load_is_not_set_back_and_run_again,
    of_two_loads_at_once_one_runs,
    a_failed_load_can_be_tried_again_at_once,
    a_load_of_a_thousand_rows_has_a_thousand_keys,
];

/// `exists`, then `set`: twenty deliveries at once were processed twenty times.
async fn of_twenty_simultaneous_deliveries_one_is_processed(gateways: Gateways) {
    let gateways = Arc::new(gateways);
    let mut deliveries = tokio::task::JoinSet::new();
    for number in 0..20 {
        let gateways = Arc::clone(&gateways);
        deliveries.spawn(async move { gateways.accept(number % 2, gateways.event("a")).await });
    }
    let verdicts = deliveries.join_all().await;
    assert_eq!(verdicts.iter().filter(|verdict| **verdict == Verdict::Accepted).count(), 1, "{verdicts:?}");
    let leased = gateways.lease(0, LONG).await;
    assert_eq!(gateways.settle(0, &leased, End::Done(Outcome::Applied, None)).await, Settled::Ok);
    let books = gateways.stores[1].status().await.unwrap().ledgers["zones"];
    assert_eq!((books.received, books.applied, books.duplicate), (20, 1, 19));
}

/// `SET NX EX 86400` is a claim without a lease: when its worker is killed, redeliveries are refused until tomorrow.
async fn the_event_of_a_killed_worker_is_not_refused_for_a_day(gateways: Gateways) {
    let event = gateways.event("a");
    let id = event.id;
    assert_eq!(gateways.accept(0, event).await, Verdict::Accepted);
    let killed = gateways.lease(0, SHORT).await;
    let again = gateways.accept(1, gateways.event("a")).await;
    assert!(matches!(again, Verdict::Duplicate { of, state: State::Leased, .. } if of == id), "{again:?}");
    let next = gateways.lease(1, LONG).await;
    assert_eq!((next.lease.event, next.lapses), (id, 1));
    assert!(next.lease.token > killed.lease.token);
    assert_eq!(gateways.settle(1, &next, End::Done(Outcome::Applied, None)).await, Settled::Ok);
}

/// `DEL key` in the error path of a worker that was too slow frees the claim that another has by now.
async fn a_failure_does_not_free_the_claim_of_another_worker(gateways: Gateways) {
    assert_eq!(gateways.accept(0, gateways.event("a")).await, Verdict::Accepted);
    let slow = gateways.lease(0, SHORT).await;
    let owner = gateways.lease(1, LONG).await;
    let ends = [
        End::Retry { at: now(), cause: cause(Class::Unavailable), counts: true },
        End::Dead(cause(Class::Schema)),
        End::Done(Outcome::Applied, None),
    ];
    for end in ends {
        assert_eq!(gateways.settle(0, &slow, end).await, Settled::LeaseLost);
    }
    let again = gateways.accept(0, gateways.event("a")).await;
    assert!(matches!(again, Verdict::Duplicate { state: State::Leased, .. }), "{again:?}");
    assert_eq!(gateways.settle(1, &owner, End::Done(Outcome::Applied, None)).await, Settled::Ok);
}

/// Only the id was looked at: another payload under it was dropped, and the sender was told that all is well.
async fn an_id_that_comes_again_with_another_payload_is_not_dropped(gateways: Gateways) {
    let delivery = |content: &str| NewEvent {
        content: *key(content).digest(),
        spatial: vec![key(content)],
        payload: Bytes::from(format!("{{\"name\":\"{content}\"}}")),
        ..gateways.event("delivery 42")
    };
    let (first, other) = (delivery("first"), delivery("other"));
    let (first_id, other_id, payload) = (first.id, other.id, other.payload.clone());
    assert_eq!(gateways.accept(0, first).await, Verdict::Accepted);
    assert_eq!(gateways.accept(1, other).await, Verdict::Conflict { event: other_id, of: first_id });
    let kept = gateways.record(other_id).await;
    assert_eq!((kept.state, kept.payload), (State::Dead, Some(payload)));
    assert_eq!(kept.cause.unwrap().code, "conflict");
}

/// Dead letters were reprs of Python objects that expired after a week, and the payload was kept nowhere.
async fn a_dead_letter_is_what_was_sent_byte_for_byte_and_stays(gateways: Gateways) {
    let payload = Bytes::from(&b"{ \"name\" : \"Z\xC3\xBCrich\",\r\n\t\"area\": 1.10e0 }\n"[..]);
    let event = NewEvent { payload: payload.clone(), ..gateways.event("a") };
    let id = event.id;
    assert_eq!(gateways.accept(0, event).await, Verdict::Accepted);
    let leased = gateways.lease(0, LONG).await;
    assert_eq!(gateways.settle(0, &leased, End::Dead(cause(Class::Geometry))).await, Settled::Ok);
    let week = now().plus(Duration::from_hours(8 * 24));
    gateways.stores[0].sweep(100, week).await.unwrap();
    let dead = gateways.record(id).await;
    assert_eq!((dead.state, dead.payload, dead.cause), (State::Dead, Some(payload), Some(cause(Class::Geometry))));
    assert_eq!(gateways.stores[1].replay(Filter::default(), now()).await.unwrap(), 1);
    assert_eq!(gateways.lease(1, LONG).await.lease.event, id);
}

/// `ON CONFLICT DO UPDATE SET status = 'PENDING'` set a completed key back, and the load ran again.
async fn a_completed_load_is_not_set_back_and_run_again(gateways: Gateways) {
    let run = started(gateways.ledger(0).begin(&task("a")).await.unwrap());
    let result = ResultText::new("{\"rows\":1000}").unwrap();
    assert_eq!(run.done(Some(result)).await.unwrap(), Settled::Ok);
    for gateway in [0, 1, 0, 1] {
        match gateways.ledger(gateway).begin(&task("a")).await.unwrap() {
            Begun::Done { event, result } => {
                assert_eq!((event, result.as_deref()), (run.event(), Some("{\"rows\":1000}")));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The upsert gave the key to whoever asked: two loads that began together both ran.
async fn of_two_loads_at_once_one_runs(gateways: Gateways) {
    for round in 0..10 {
        let (name, ledgers) = (round.to_string(), [gateways.ledger(0), gateways.ledger(1)]);
        let task = task(&name);
        let (first, second) = tokio::join!(ledgers[0].begin(&task), ledgers[1].begin(&task));
        let begun = [first.unwrap(), second.unwrap()];
        let runs = begun.iter().filter(|begun| matches!(begun, Begun::Started(_))).count();
        let running = begun.iter().filter(|begun| matches!(begun, Begun::Running { .. })).count();
        assert_eq!((runs, running), (1, 1), "{begun:?}");
    }
}

/// With that mended, a failed key was held until it expired: nobody could try again.
async fn a_failed_load_can_be_tried_again_at_once(gateways: Gateways) {
    let run = started(gateways.ledger(0).begin(&task("released")).await.unwrap());
    assert_eq!(run.release(cause(Class::Constraint)).await.unwrap(), Settled::Ok);
    let run = started(gateways.ledger(1).begin(&task("released")).await.unwrap());
    assert_eq!(run.attempts(), 1);
    assert_eq!(run.dead(cause(Class::Unavailable)).await.unwrap(), Settled::Ok);
    let run = started(gateways.ledger(0).begin(&task("released")).await.unwrap());
    assert_eq!(run.done(None).await.unwrap(), Settled::Ok);
}

/// The key of the load was the key of each row: of a thousand rows one was kept, and nobody was told.
async fn a_load_of_a_thousand_rows_has_a_thousand_keys(gateways: Gateways) {
    let run = started(gateways.ledger(0).begin(&task("file")).await.unwrap());
    let rows: Vec<NewEvent> = (0..1_000).map(|row| gateways.event(&format!("file row {row}"))).collect();
    let verdicts = gateways.stores[0].accept(rows, now()).await.unwrap();
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Accepted));
    // The load is cut off, and its second try brings all rows again.
    drop(run);
    let rows: Vec<NewEvent> = (0..1_000).map(|row| gateways.event(&format!("file row {row}"))).collect();
    let verdicts = gateways.stores[1].accept(rows, now()).await.unwrap();
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Duplicate { .. })));
    assert_eq!(gateways.stores[0].status().await.unwrap().ledgers["zones"].waiting, 1_000);
}

async fn layer(url: &str) -> Arc<dyn sink::Sink> {
    let url = url.to_owned();
    let opened =
        tokio::task::spawn_blocking(move || sink::open("zones", &url, &sink::Options::default(), "".as_ref()).unwrap());
    let layer = opened.await.unwrap();
    layer.check().await.unwrap();
    layer
}

fn count(url: &str, table: &str) -> String {
    let database = url.rsplit('/').next().unwrap();
    Postgres::shared().sql(database, &format!("SELECT count(*) FROM {table}"))
}

/// Four placeholders and three values: not one insert could succeed, and a thousand rows under one key were one row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_features_are_a_thousand_rows_of_a_layer() {
    let url = Postgres::shared().database();
    let (layer, maker) = (layer(&url).await, Maker::new());
    let batch: Vec<Outgoing> = (0..1_000).map(|row| maker.point(row)).collect();
    let written = layer.write(batch.clone()).await.unwrap();
    assert!(written.iter().all(|written| *written == Written::Done(Outcome::Applied)));
    assert_eq!(count(&url, "zones"), "1000");
}

/// Rows and key were committed in two transactions: a crash between them wrote every row again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_and_the_proof_of_them_are_committed_together() {
    let url = Postgres::shared().database();
    let (first, maker) = (layer(&url).await, Maker::new());
    let batch: Vec<Outgoing> = (0..100).map(|row| maker.point(row)).collect();
    first.write(batch.clone()).await.unwrap();
    assert_eq!((count(&url, "zones"), count(&url, "geonce_applied")), ("100".to_owned(), "100".to_owned()));
    // The worker dies before it can settle; another writes the same events.
    drop(first);
    let written = layer(&url).await.write(batch).await.unwrap();
    assert!(written.iter().all(|written| *written == Written::Done(Outcome::Applied)));
    assert_eq!(count(&url, "zones"), "100");
}

/// LRU policies were recommended for the server that holds the keys: they evict live ones. Without a log, or with one that
/// is synced now and then, a power cut loses what was acknowledged.
#[test]
fn a_redis_that_would_forget_live_keys_is_refused() {
    let server = Redis::start(&[]);
    let settings = [
        ("maxmemory-policy", "allkeys-lru", "noeviction"),
        ("maxmemory-policy", "volatile-lru", "noeviction"),
        ("appendfsync", "everysec", "always"),
        ("appendonly", "no", "yes"),
    ];
    for (name, unfit, fit) in settings {
        assert_eq!(server.say(&["CONFIG", "SET", name, unfit]), "OK");
        let opened = store::open(&server.url(), &Options::default(), Access::Gateway, "".as_ref());
        let error = opened.err().unwrap();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        assert!(error.to_string().contains(name), "{error}");
        assert_eq!(server.say(&["CONFIG", "SET", name, fit]), "OK");
    }
}

/// Every error of Redis counted as "not seen before": while it was down, all duplicates were processed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_down_accepts_nothing_and_then_knows_everything() {
    let mut server = Redis::start(&[]);
    let gateways = Gateways::open(server.url(), true).await;
    assert_eq!(gateways.accept(0, gateways.event("a")).await, Verdict::Accepted);
    server.kill();
    for name in ["a", "b"] {
        let answer = tokio::time::timeout(LONG, gateways.stores[0].accept(vec![gateways.event(name)], now())).await;
        assert!(answer.unwrap().is_err_and(|error| error.kind() == Kind::Unavailable));
    }
    server.restart();
    let again = loop {
        match gateways.stores[1].accept(vec![gateways.event("a")], now()).await {
            Ok(mut verdicts) => break verdicts.remove(0),
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    };
    assert!(matches!(again, Verdict::Duplicate { .. }), "{again:?}");
}
