//! Conservation: whatever is repaired and replayed, however often and beside whom, each event is applied once and the books
//! balance at every step. On a clock that only the test moves.

use super::{Pace, Progress, Repairs, Selected, Summary, Treated, repair, replay, select};
use crate::clock::{Clock, ManualClock, Timestamp};
use crate::delivery::{self, Delivery, Destination, LEASE, Unobserved};
use crate::event::{Cause, Class, Ids, State};
use crate::intake::{Arrival, Intake, Invalid, Source};
use crate::repair::Choices;
use crate::sink::{self, Outgoing, Proof, Sink, Written};
use crate::store::{self, Access, Answer, Filter, Ledger, ListRequest, Options, Repaired, Store};
use geonce_key::split::Format;
use geonce_key::{Fingerprint, Policy};
use geonce_services::Postgres;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// 2026-11-15.
const START: Timestamp = Timestamp::from_millis(1_794_700_800_000);
/// The bar: so many dead letters.
const DEAD: usize = 1_000;
const LOOKS_MAX: usize = 60_000;

/// A sink whose owner refuses some rows, until that is mended.
struct Strict {
    inner: Arc<dyn Sink>,
    mended: AtomicBool,
}

impl Sink for Strict {
    fn check(&self) -> Answer<'_, Vec<String>> {
        self.inner.check()
    }

    fn write(&self, batch: Vec<Outgoing>) -> Answer<'_, Vec<Written>> {
        Box::pin(async move {
            let refuses = |event: &Outgoing| {
                let strict = event.payload.windows(12).any(|bytes| bytes == b"\"constraint\"");
                strict && !self.mended.load(Ordering::SeqCst)
            };
            let (refused, taken): (Vec<_>, Vec<_>) =
                batch.into_iter().enumerate().partition(|(_, event)| refuses(event));
            let (places, taken): (Vec<usize>, Vec<Outgoing>) = taken.into_iter().unzip();
            let mut written: Vec<(usize, Written)> = places.into_iter().zip(self.inner.write(taken).await?).collect();
            let dead = || Written::Dead(Cause::new(Class::Constraint, "constraint", "the owner of the table says no"));
            written.extend(refused.into_iter().map(|(place, _)| (place, dead())));
            written.sort_by_key(|(place, _)| *place);
            Ok(written.into_iter().map(|(_, written)| written).collect())
        })
    }

    fn proofs(&self, keys: Vec<Fingerprint>) -> Answer<'_, Option<Vec<bool>>> {
        self.inner.proofs(keys)
    }

    fn applied(&self, after: Option<[u8; 16]>, limit: usize) -> Answer<'_, Option<Vec<Proof>>> {
        self.inner.applied(after, limit)
    }

    fn close(&self) -> Answer<'_, ()> {
        self.inner.close()
    }
}

/// The `n`-th dead letter to be: broken in one of four ways.
fn letter(n: usize) -> String {
    let number = f64::from(u16::try_from(n).unwrap());
    let (x, y) = (number / 10.0 - 50.0, 10.0 + number / 100.0);
    let (kind, ring) = match n % 4 {
        0 => ("crossing", format!("[[{x},{y}],[{0},{1}],[{0},{y}],[{x},{1}],[{x},{y}]]", x + 0.05, y + 0.05)),
        1 => ("unclosed", format!("[[{x},{y}],[{0},{y}],[{0},{1}],[{x},{1}]]", x + 0.05, y + 0.05)),
        2 => {
            // Latitude first, far enough east to be no latitude.
            let east = 100.0 + number / 20.0;
            let (west, south) = (east + 0.02, y + 0.02);
            ("swapped", format!("[[{y},{east}],[{y},{west}],[{south},{west}],[{y},{east}]]"))
        }
        _ => ("constraint", format!("[[{x},{y}],[{0},{y}],[{0},{1}],[{x},{y}]]", x + 0.05, y + 0.05)),
    };
    format!(
        r#"{{"type":"Feature","geometry":{{"type":"Polygon","coordinates":[{ring}]}},"properties":{{"n":{n},"kind":"{kind}"}}}}"#
    )
}

struct Rig {
    store: Arc<dyn Store>,
    clock: Arc<ManualClock>,
    intake: Intake,
    source: Arc<Source>,
    ids: Ids,
}

impl Rig {
    fn new(store: Arc<dyn Store>) -> Rig {
        let clock = Arc::new(ManualClock::new(START));
        let mut source = Source::new("survey", Policy::default(), &["map".to_owned()]).unwrap();
        source.invalid = Invalid::Dead;
        Rig {
            intake: Intake::new(Arc::clone(&store), clock.clone()),
            store,
            clock,
            source: Arc::new(source),
            ids: Ids::new(),
        }
    }

    fn in_memory() -> Rig {
        Rig::new(store::open("sqlite::memory:", &Options::default(), Access::Gateway, Path::new("")).unwrap())
    }

    async fn send(&self, letters: usize) {
        let body: Vec<String> = (0..letters).map(letter).collect();
        let arrival = Arrival { body: body.join("\n").into(), format: Format::Lines, ..Arrival::default() };
        self.intake.receive(&self.source, arrival).await.unwrap();
    }

    async fn ledger(&self) -> Ledger {
        let status = self.store.status().await.unwrap();
        assert_eq!(store::conformance::law(&status), Ok(()));
        status.ledgers.get("survey").copied().unwrap_or_default()
    }

    /// Delivers what is ready; the books afterwards.
    async fn deliver(&self, sink: &Arc<Strict>) -> Ledger {
        let (stop, stopped) = watch::channel(false);
        let delivery = Arc::new(Delivery {
            store: Arc::clone(&self.store),
            clock: self.clock.clone(),
            policies: [(Arc::from("survey"), Policy::default())].into(),
            near: std::collections::HashMap::new(),
            lateness: std::collections::HashMap::new(),
            lease: LEASE,
            holder: "test".into(),
            observer: Arc::new(Unobserved),
            pressure: self.intake.pressure(),
        });
        let destination = Arc::new(Destination::new("map", Arc::clone(sink) as Arc<dyn Sink>));
        let worker = tokio::spawn(delivery::run(delivery, destination, stopped));
        for _ in 0..LOOKS_MAX {
            let books = self.ledger().await;
            if books.waiting == 0 {
                let _ = stop.send(true);
                worker.await.unwrap();
                return books;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("not everything was delivered: {:?}", self.ledger().await);
    }

    async fn dead(&self) -> Selected {
        select(&*self.store, &[Filter::default()]).await.unwrap()
    }

    async fn repair(&self, selected: &Selected, choices: Option<&Choices>) -> (Summary, Vec<Treated>) {
        let clock: Arc<dyn Clock> = self.clock.clone();
        let find = |name: &str| (name == "survey").then(|| Arc::clone(&self.source));
        let repairs = Repairs { source: &find, choices, ids: &self.ids };
        let mut treated = Vec::new();
        let summary =
            repair(&self.store, &clock, selected, &repairs, &mut at_once(), |one| treated.push(one), |_| {}).await;
        (summary, treated)
    }

    async fn replay(&self, selected: &Selected) -> Summary {
        let clock: Arc<dyn Clock> = self.clock.clone();
        replay(&self.store, &clock, selected, &mut at_once(), |_| {}).await
    }
}

fn at_once() -> Pace {
    let (sender, stop) = watch::channel(false);
    // Nobody ends it.
    std::mem::forget(sender);
    Pace { rate: None, stop, hold: None }
}

/// A thousand dead letters of four sorts: repaired and replayed twice, beside each other, and once more after the ledger was
/// lost. `rows` counts what is at the sink.
async fn through_repair_and_replay(open: impl Fn() -> Arc<dyn Store>, sink: Arc<dyn Sink>, rows: impl Fn() -> usize) {
    let strict = Arc::new(Strict { inner: sink, mended: AtomicBool::new(false) });
    let quarter = DEAD as u64 / 4;
    for lost_before in [false, true] {
        let rig = Rig::new(open());
        strict.mended.store(false, Ordering::SeqCst);
        rig.send(DEAD).await;
        let books = rig.ledger().await;
        assert_eq!((books.received, books.dead, books.waiting), (DEAD as u64, 3 * quarter, quarter));
        rig.clock.advance(Duration::from_hours(1));
        let books = rig.deliver(&strict).await;
        // A sink that has proof of an event has it, whatever it says now: the ledger was lost, the proofs were not.
        let (refused, proven) = if lost_before { (0, quarter) } else { (quarter, 0) };
        assert_eq!((books.dead, books.applied), (3 * quarter + refused, proven));
        // Sent again, nothing of it is new.
        rig.send(DEAD).await;
        assert_eq!(rig.ledger().await.duplicate, DEAD as u64);

        rig.clock.advance(Duration::from_hours(5));
        let selected = rig.dead().await;
        let chosen = 3 * quarter + refused;
        let codes = if lost_before { 3 } else { 4 };
        assert_eq!((selected.events.len() as u64, selected.groups.len(), selected.more), (chosen, codes, false));
        let both = tokio::join!(rig.repair(&selected, None), rig.repair(&selected, None));
        let done = [&both.0, &both.1].map(|(summary, _)| summary.progress.done).iter().sum::<u64>();
        assert_eq!(done, 3 * quarter, "each once");
        for (summary, treated) in [both.0, both.1] {
            assert!(summary.failure.is_none() && !summary.cancelled, "{summary:?}");
            assert_eq!((summary.progress.planned, summary.progress.left), (chosen, 0));
            let cannot = treated.iter().filter(|one| matches!(one, Treated::Cannot { cause, .. } if cause.code == "no_suggestion" || cause.code == "not_dead"));
            assert!(cannot.count() as u64 >= refused);
        }
        let books = rig.ledger().await;
        assert_eq!((books.repaired, books.dead, books.waiting), (3 * quarter, refused, 3 * quarter));
        let (again, treated) = rig.repair(&selected, None).await;
        assert_eq!((again.progress.done, again.progress.skipped), (0, chosen));
        assert!(treated.iter().all(|one| matches!(
            one,
            Treated::Cannot { .. } | Treated::Repaired { repaired: Repaired::Before { .. }, .. }
        )));

        rig.clock.advance(Duration::from_hours(20));
        strict.mended.store(true, Ordering::SeqCst);
        let left = rig.dead().await;
        assert_eq!(left.events.len() as u64, refused);
        let both = tokio::join!(rig.replay(&left), rig.replay(&left));
        assert_eq!(both.0.progress.done + both.1.progress.done, refused, "each once");
        assert_eq!(rig.replay(&selected).await.progress.done, 0);
        rig.clock.advance(Duration::from_hours(50));
        let books = rig.deliver(&strict).await;
        assert_eq!((books.applied, books.repaired, books.dead, books.purged), (DEAD as u64, 3 * quarter, 0, 0));
        assert_eq!(books.received, books.duplicate + books.applied + books.repaired);
        assert_eq!(rows(), DEAD, "each is applied once; the ledger was lost before: {lost_before}");
        assert_eq!(rig.store.audit().await.unwrap(), Vec::<String>::new());
        rig.store.close().await.unwrap();
    }
    strict.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_dead_letters_are_repaired_and_replayed_twice_into_a_geopackage() {
    let folder = tempfile::tempdir().unwrap();
    let map = sink::open("map", "gpkg:map.gpkg", &sink::Options::default(), folder.path()).unwrap();
    let file = folder.path().join("map.gpkg");
    let rows = || {
        let connection = rusqlite::Connection::open(&file).unwrap();
        let count: i64 = connection.query_row("SELECT count(*) FROM map", [], |row| row.get(0)).unwrap();
        usize::try_from(count).unwrap()
    };
    let open = || store::open("sqlite::memory:", &Options::default(), Access::Gateway, Path::new("")).unwrap();
    through_repair_and_replay(open, map, rows).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_dead_letters_are_repaired_and_replayed_twice_into_postgis() {
    let url = Postgres::shared().database();
    let database = url.rsplit('/').next().unwrap().to_owned();
    let map = sink::open("map", &url, &sink::Options::default(), Path::new("")).unwrap();
    let rows = || Postgres::shared().sql(&database, "SELECT count(*) FROM map").parse().unwrap();
    let stores = std::sync::atomic::AtomicU32::new(0);
    // The store that gateways share, in the same database, by the test's clock.
    let open = || {
        let number = stores.fetch_add(1, Ordering::SeqCst);
        store::open_given(&format!("{url}?schema=store_{number}"), &Options::default())
    };
    through_repair_and_replay(open, map, rows).await;
}

#[tokio::test]
async fn a_job_keeps_its_pace_and_can_be_cancelled() {
    let rig = Rig::in_memory();
    rig.send(40).await;
    let selected =
        select(&*rig.store, &[Filter { code: Some("self_intersection".to_owned()), ..Filter::default() }]).await;
    let selected = selected.unwrap();
    assert_eq!(selected.events.len(), 10);
    assert!(selected.events.is_sorted());
    let clock: Arc<dyn Clock> = rig.clock.clone();
    // Forty in a second are four in a tenth of it: the third step begins after two of those.
    let (sender, stop) = watch::channel(false);
    let watch = crate::clock::Stopwatch::start();
    let mut seen = Vec::new();
    let mut pace = Pace { rate: Some(40.0), stop, hold: None };
    let summary = replay(&rig.store, &clock, &selected, &mut pace, |progress| seen.push(*progress)).await;
    assert!(watch.elapsed() >= Duration::from_millis(190), "{:?}", watch.elapsed());
    assert_eq!(seen.iter().map(|progress| progress.done).collect::<Vec<_>>(), [4, 8, 10]);
    assert_eq!(summary.progress, Progress { planned: 10, done: 10, skipped: 0, left: 0 });
    assert_eq!(summary.json("replayed")["replayed"], 10);
    // What died after it was chosen is not of the job; what is not dead any more is left alone.
    assert_eq!(rig.replay(&selected).await.progress, Progress { planned: 10, done: 0, skipped: 10, left: 0 });
    let selected = rig.dead().await;
    let mut pace = Pace { rate: Some(100.0), stop: pace.stop, hold: None };
    let summary = replay(&rig.store, &clock, &selected, &mut pace, |_| sender.send(true).unwrap()).await;
    assert!(summary.cancelled && summary.failure.is_none());
    assert_eq!(summary.progress, Progress { planned: 20, done: 10, skipped: 0, left: 10 });
    let request = ListRequest {
        filter: Filter { state: Some(State::Dead), ..Filter::default() },
        limit: 100,
        ..ListRequest::default()
    };
    assert_eq!(rig.store.list(request).await.unwrap().len(), 10);
    rig.ledger().await;
}

#[tokio::test]
async fn a_job_that_is_held_begins_no_step_and_can_still_be_ended() {
    let rig = Rig::in_memory();
    rig.send(8).await;
    let selected = rig.dead().await;
    let clock: Arc<dyn Clock> = rig.clock.clone();
    let (holder, hold) = watch::channel(true);
    let mut pace = Pace { hold: Some(hold.clone()), ..at_once() };
    let mut job = std::pin::pin!(replay(&rig.store, &clock, &selected, &mut pace, |_| {}));
    assert!(tokio::time::timeout(Duration::from_millis(20), &mut job).await.is_err(), "it waits");
    holder.send(false).unwrap();
    assert_eq!(job.await.progress.done, selected.events.len() as u64);
    holder.send(true).unwrap();
    let (stopper, stop) = watch::channel(true);
    let mut pace = Pace { rate: None, stop, hold: Some(hold) };
    assert!(replay(&rig.store, &clock, &selected, &mut pace, |_| {}).await.cancelled);
    drop(stopper);
}

#[tokio::test]
async fn a_job_that_the_store_ends_says_how_far_it_came() {
    let rig = Rig::in_memory();
    rig.send(8).await;
    let selected = rig.dead().await;
    rig.store.close().await.unwrap();
    let summary = rig.replay(&selected).await;
    assert!(summary.failure.is_some());
    assert_eq!((summary.progress.done, summary.progress.left), (0, selected.events.len() as u64));
}

/// Whoever serves requests runs jobs on any thread.
#[test]
fn jobs_can_be_spawned() {
    fn sent<T: Send>(_: &T) {}
    let rig = Rig::in_memory();
    let (clock, selected): (Arc<dyn Clock>, _) = (rig.clock.clone(), Selected::default());
    let (find, ids) = (|_: &str| None, Ids::new());
    let repairs = Repairs { source: &find, choices: None, ids: &ids };
    let (mut one, mut other) = (at_once(), at_once());
    sent(&repair(&rig.store, &clock, &selected, &repairs, &mut one, |_| {}, |_| {}));
    sent(&replay(&rig.store, &clock, &selected, &mut other, |_| {}));
}
