//! What becomes of events at sinks that behave badly. `joint`: sinks in the store's own database. `near`: near-duplicates.
//! `versions`: events of entities, from the request to the rows.

mod joint;
mod near;
mod versions;

use super::{Delivery, Destination, LAPSES_MAX, LEASE, Unobserved, run};
use crate::clock::{Clock, ManualClock, Timestamp};
use crate::error::{Error, Kind};
use crate::event::{Cause, Class, Outcome, State};
use crate::intake::{Arrival, FeatureReceipt, Intake, Source};
use crate::retry::Retry;
use crate::sink::{Outgoing, Proof, Sink, Written};
use crate::store::{self, Access, Answer, Filter, LeaseRequest, Ledger, ListRequest, Options, Record, Store};
use geonce_key::split::Format;
use geonce_key::{Fingerprint, Policy};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

const START: Timestamp = Timestamp::from_millis(1_794_700_800_000);

/// Looks for something to become true so many times, a millisecond apart.
const LOOKS_MAX: usize = 20_000;

/// How a sink under test answers.
type Answers = Box<dyn Fn(&Outgoing) -> Result<Written, Kind> + Send + Sync>;

/// A sink that answers as the test says, and remembers what it was given, batch by batch.
struct Scripted {
    answers: Answers,
    batches: Mutex<Vec<usize>>,
    proven: bool,
    place: Option<&'static str>,
}

impl Sink for Scripted {
    fn check(&self) -> Answer<'_, Vec<String>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn write(&self, batch: Vec<Outgoing>) -> Answer<'_, Vec<Written>> {
        self.batches.lock().unwrap().push(batch.len());
        let answers = batch
            .iter()
            .map(|outgoing| (self.answers)(outgoing).map_err(|kind| Error::new(kind, "writing as the test says")))
            .collect();
        Box::pin(async { answers })
    }

    fn proofs(&self, keys: Vec<Fingerprint>) -> Answer<'_, Option<Vec<bool>>> {
        Box::pin(async move { Ok(Some(vec![self.proven; keys.len()])) })
    }

    fn applied(&self, _after: Option<[u8; 16]>, _limit: usize) -> Answer<'_, Option<Vec<Proof>>> {
        Box::pin(async { Ok(None) })
    }

    fn place(&self) -> Option<String> {
        self.place.map(str::to_owned)
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

struct Rig {
    store: Arc<dyn Store>,
    clock: Arc<ManualClock>,
    intake: Intake,
    source: Arc<Source>,
    near: Option<super::near::Near>,
}

impl Rig {
    fn new(sinks: &[&str]) -> Rig {
        Rig::with("sqlite::memory:", sinks)
    }

    fn in_file(file: &Path) -> Rig {
        Rig::with(&format!("sqlite:{}", file.display()), &["zones"])
    }

    fn with(url: &str, sinks: &[&str]) -> Rig {
        let store = store::open(url, &Options::default(), Access::Gateway, Path::new(".")).unwrap();
        let clock = Arc::new(ManualClock::new(START));
        let sinks: Vec<String> = sinks.iter().map(|&sink| sink.to_owned()).collect();
        let source = Arc::new(Source::new("drones", Policy::default(), &sinks).unwrap());
        Rig { intake: Intake::new(Arc::clone(&store), clock.clone()), store, clock, source, near: None }
    }

    async fn send(&self, names: &[&str]) {
        let line = |name: &&str| {
            format!(
                r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[1,2]}},"properties":{{"name":"{name}"}}}}"#
            )
        };
        let body = names.iter().map(line).collect::<Vec<_>>().join("\n").into();
        let arrival = Arrival { body, format: Format::Lines, ..Arrival::default() };
        let receipt = self.intake.receive(&self.source, arrival).await.unwrap();
        assert!(receipt.features.iter().all(|feature| matches!(feature, FeatureReceipt::Accepted { .. })));
    }

    /// Starts one worker for a sink that answers so.
    fn serve(&self, name: &str, retry: Retry, scripted: &Arc<Scripted>) -> Serving {
        self.serve_with(name, retry, scripted.clone())
    }

    fn serve_with(&self, name: &str, retry: Retry, sink: Arc<dyn Sink>) -> Serving {
        let destination = Arc::new(Destination { retry, ..Destination::new(name, sink) });
        let delivery = Arc::new(Delivery {
            store: Arc::clone(&self.store),
            clock: self.clock.clone(),
            policies: [(Arc::from("drones"), Policy::default())].into(),
            near: self.near.iter().map(|near| (Arc::from("drones"), near.clone())).collect(),
            lateness: HashMap::new(),
            lease: LEASE,
            holder: "test".into(),
            observer: Arc::new(Unobserved),
            pressure: self.intake.pressure(),
        });
        let (stop, stopped) = watch::channel(false);
        Serving {
            destination: Arc::clone(&destination),
            stop,
            worker: tokio::spawn(run(delivery, destination, stopped)),
        }
    }

    async fn ledger(&self) -> Ledger {
        let status = self.store.status().await.unwrap();
        let ledger = status.ledgers.get("drones").copied().unwrap_or_default();
        assert_eq!(ledger.difference(), 0, "{ledger:?}");
        ledger
    }

    async fn until(&self, wanted: impl Fn(&Ledger) -> bool) -> Ledger {
        for _ in 0..LOOKS_MAX {
            let ledger = self.ledger().await;
            if wanted(&ledger) {
                return ledger;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("it did not come to that: {:?}", self.ledger().await);
    }

    async fn records(&self, filter: Filter) -> Vec<Record> {
        let request = ListRequest { filter, limit: 1_000, payloads: true, ..ListRequest::default() };
        self.store.list(request).await.unwrap()
    }

    async fn only_cause(&self) -> Cause {
        let mut dead = self.records(Filter { state: Some(State::Dead), ..Filter::default() }).await;
        assert_eq!(dead.len(), 1);
        dead.remove(0).cause.unwrap()
    }
}

struct Serving {
    destination: Arc<Destination>,
    stop: watch::Sender<bool>,
    worker: JoinHandle<()>,
}

impl Serving {
    async fn end(self) {
        self.stop.send_replace(true);
        self.worker.await.unwrap();
    }
}

fn scripted(answers: impl Fn(&Outgoing) -> Result<Written, Kind> + Send + Sync + 'static) -> Arc<Scripted> {
    Arc::new(Scripted { answers: Box::new(answers), batches: Mutex::new(Vec::new()), proven: false, place: None })
}

#[expect(clippy::unnecessary_wraps, reason = "as a sink answers")]
fn applied(_: &Outgoing) -> Result<Written, Kind> {
    Ok(Written::Done(Outcome::Applied))
}

#[expect(clippy::unnecessary_wraps, reason = "as a sink answers")]
fn later(counts: bool) -> Result<Written, Kind> {
    Ok(Written::Retry { cause: Cause::new(Class::Unavailable, "busy", "not now"), after: None, counts })
}

fn at_once() -> Retry {
    Retry { base: Duration::ZERO, cap: Duration::ZERO, ..Retry::default() }
}

fn is_named(outgoing: &Outgoing, name: &str) -> bool {
    String::from_utf8_lossy(&outgoing.payload).contains(&format!("\"{name}\""))
}

#[tokio::test]
async fn an_applied_event_says_in_which_row_it_is() {
    let rig = Rig::new(&["zones"]);
    rig.send(&["a", "b"]).await;
    let answers = |outgoing: &Outgoing| {
        Ok(Written::Done(if is_named(outgoing, "a") { Outcome::Applied } else { Outcome::Stale }))
    };
    let sink = Scripted {
        answers: Box::new(answers),
        batches: Mutex::new(Vec::new()),
        proven: false,
        place: Some("public.zones"),
    };
    let serving = rig.serve("zones", Retry::default(), &Arc::new(sink));
    rig.until(|ledger| ledger.waiting == 0).await;
    serving.end().await;
    for record in rig.records(Filter::default()).await {
        let key = record.key.text(geonce_key::Encoding::Base64);
        let row = format!("{{\"sink\":\"zones\",\"table\":\"public.zones\",\"rows\":1,\"key\":\"{key}\"}}");
        assert_eq!(record.result.as_deref(), (record.outcome == Some(Outcome::Applied)).then_some(&*row));
    }
}

#[tokio::test]
async fn events_reach_their_sink_in_batches() {
    let rig = Rig::new(&["zones"]);
    rig.send(&["a", "b", "c"]).await;
    let sink = scripted(applied);
    let serving = rig.serve("zones", at_once(), &sink);
    rig.until(|ledger| ledger.applied == 3).await;
    rig.send(&["d"]).await;
    rig.until(|ledger| ledger.applied == 4).await;
    serving.end().await;
    assert_eq!(*sink.batches.lock().unwrap(), [3, 1]);
}

#[tokio::test]
async fn six_answers_and_an_event_is_dead() {
    let rig = Rig::new(&["zones"]);
    rig.send(&["a"]).await;
    let sink = scripted(|_| later(true));
    let serving = rig.serve("zones", at_once(), &sink);
    rig.until(|ledger| ledger.dead == 1).await;
    serving.end().await;
    assert_eq!(sink.batches.lock().unwrap().len(), 6);
    assert_eq!(rig.only_cause().await.code, "busy");
}

#[tokio::test]
async fn silence_uses_up_no_attempt_and_the_sink_is_left_alone() {
    let rig = Rig::new(&["zones"]);
    rig.send(&["a", "b"]).await;
    let sink = scripted(|_| Err(Kind::Unavailable));
    let retry = Retry { base: Duration::from_secs(30), cap: Duration::from_mins(1), ..Retry::default() };
    let serving = rig.serve("zones", retry, &sink);
    for _ in 0..LOOKS_MAX {
        if serving.destination.is_held_back() {
            break;
        }
        rig.clock.advance(Duration::from_secs(1));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(serving.destination.is_held_back());
    // It is held back a moment before its events are given back.
    serving.end().await;
    for record in rig.records(Filter::default()).await {
        assert_eq!((record.state, record.work[0].attempts), (State::Ready, 0), "{record:?}");
    }
    assert_eq!(rig.ledger().await.waiting, 2);
}

#[tokio::test]
async fn an_event_is_given_up_when_its_time_is_over_and_revived_by_a_redelivery() {
    let rig = Rig::new(&["zones"]);
    rig.send(&["a"]).await;
    rig.clock.advance(Duration::from_hours(2));
    let sink = scripted(|_| later(false));
    let serving = rig.serve("zones", Retry { give_up_after: Duration::from_hours(1), ..at_once() }, &sink);
    rig.until(|ledger| ledger.dead == 1).await;
    serving.end().await;
    let body = r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[1,2]},"properties":{"name":"a"}}"#.into();
    let receipt =
        rig.intake.receive(&rig.source, Arrival { body, format: Format::Json, ..Arrival::default() }).await.unwrap();
    assert!(matches!(receipt.features[..], [FeatureReceipt::Duplicate { revived: true, .. }]), "{receipt:?}");
    let serving = rig.serve("zones", at_once(), &scripted(applied));
    let ledger = rig.until(|ledger| ledger.applied == 1).await;
    serving.end().await;
    assert_eq!((ledger.received, ledger.duplicate, ledger.revived, ledger.dead), (2, 1, 1, 0));
}

#[tokio::test]
async fn a_permanent_error_is_death_at_once_unless_the_sink_has_proof() {
    let refuse = |_: &Outgoing| Ok(Written::Dead(Cause::new(Class::Constraint, "too_long", "the name is too long")));
    let rig = Rig::new(&["zones"]);
    rig.send(&["a"]).await;
    let sink = scripted(refuse);
    let serving = rig.serve("zones", at_once(), &sink);
    rig.until(|ledger| ledger.dead == 1).await;
    serving.end().await;
    assert_eq!(rig.only_cause().await.class, Class::Constraint);

    let rig = Rig::new(&["zones"]);
    rig.send(&["a"]).await;
    let proven = Scripted { answers: Box::new(refuse), batches: Mutex::default(), proven: true, place: None };
    let serving = rig.serve("zones", at_once(), &Arc::new(proven));
    rig.until(|ledger| ledger.applied == 1).await;
    serving.end().await;
}

#[tokio::test]
async fn an_event_that_breaks_the_sink_takes_no_others_along() {
    let rig = Rig::new(&["zones"]);
    rig.send(&["a", "poison", "b"]).await;
    let sink = scripted(|outgoing| if is_named(outgoing, "poison") { Err(Kind::Internal) } else { applied(outgoing) });
    let serving = rig.serve("zones", at_once(), &sink);
    let ledger = rig.until(|ledger| ledger.waiting == 0).await;
    serving.end().await;
    assert_eq!((ledger.applied, ledger.dead), (2, 1));
    assert_eq!(rig.only_cause().await.class, Class::Internal);
}

#[tokio::test]
async fn an_event_whose_workers_keep_dying_is_dead_in_the_end() {
    let rig = Rig::new(&["zones"]);
    rig.send(&["a", "b"]).await;
    for round in 0..=LAPSES_MAX {
        let request = LeaseRequest {
            sink: "zones".into(),
            events_max: 10,
            bytes_max: 1 << 20,
            duration: LEASE,
            event: None,
            holder: "test".into(),
        };
        let leased = rig.store.lease(request, rig.clock.now()).await.unwrap();
        assert_eq!(leased.len(), if round < 2 { 2 } else { 1 }, "round {round}");
        if round > 1 {
            // The other one is served, so that the same one lapses again.
            let request = LeaseRequest {
                sink: "zones".into(),
                events_max: 1,
                bytes_max: 1 << 20,
                duration: LEASE,
                event: None,
                holder: "test".into(),
            };
            rig.store.lease(request, rig.clock.now()).await.unwrap();
        }
        rig.clock.advance(LEASE + Duration::from_secs(1));
    }
    let sink = scripted(applied);
    let serving = rig.serve("zones", at_once(), &sink);
    let ledger = rig.until(|ledger| ledger.waiting == 0).await;
    serving.end().await;
    assert_eq!(ledger.dead, 2);
    let dead = rig.records(Filter { code: Some("lapsed".to_owned()), ..Filter::default() }).await;
    assert_eq!(dead.len(), 2);
    assert!(sink.batches.lock().unwrap().is_empty(), "nothing is written of an event that kills");
}

#[tokio::test]
async fn one_sink_that_is_down_does_not_keep_another_waiting() {
    let rig = Rig::new(&["good", "bad"]);
    rig.send(&["a", "b"]).await;
    let good = scripted(applied);
    let serving_good = rig.serve("good", at_once(), &good);
    let serving_bad = rig.serve("bad", at_once(), &scripted(|_| later(true)));
    let ledger = rig.until(|ledger| ledger.dead == 2).await;
    assert_eq!((ledger.applied, ledger.waiting), (0, 0));
    assert_eq!(good.batches.lock().unwrap().iter().sum::<usize>(), 2);
    serving_bad.end().await;
    let replayed = rig.store.replay(Filter { state: Some(State::Dead), ..Filter::default() }, rig.clock.now()).await;
    assert_eq!(replayed.unwrap(), 2);
    let mended = rig.serve("bad", at_once(), &scripted(applied));
    rig.until(|ledger| ledger.applied == 2).await;
    mended.end().await;
    serving_good.end().await;
    assert_eq!(good.batches.lock().unwrap().iter().sum::<usize>(), 2, "served once, replay or not");
}

/// Whether a GeoPackage has the row of an event.
fn has_row(file: &Path, outgoing: &Outgoing) -> bool {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let connection = rusqlite::Connection::open_with_flags(file, flags).unwrap();
    connection.busy_timeout(Duration::from_secs(5)).unwrap();
    let text = "SELECT count(*) FROM zones WHERE geonce_event = ?1";
    connection.query_row(text, [outgoing.event.to_string()], |row| row.get(0)).unwrap_or(0) == 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_never_hears_of_an_event_before_its_row_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zones.gpkg");
    let mut rig = Rig::new(&["zones", "notify"]);
    let routes = [store::Route::to("zones"), store::Route { sink: "notify".into(), after: Some("zones".into()) }];
    Arc::get_mut(&mut rig.source).unwrap().routes = routes.into();
    let told = Arc::new(Mutex::new(Vec::new()));
    let (seen, rows) = (Arc::clone(&told), file.clone());
    let follower = scripted(move |outgoing| {
        seen.lock().unwrap().push((outgoing.event, has_row(&rows, outgoing)));
        Ok(Written::Done(Outcome::Applied))
    });
    // The follower is there first, and waits.
    let following = rig.serve("notify", at_once(), &follower);
    let mut writing = None;
    for round in 0..10 {
        let names: Vec<String> = (0..20).map(|number| format!("{round} {number}")).collect();
        rig.send(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
        if round == 4 {
            assert!(told.lock().unwrap().is_empty(), "there is no row yet");
            let sink = crate::sink::open("zones", "gpkg:zones.gpkg", &crate::sink::Options::default(), folder.path());
            let sink = sink.unwrap();
            sink.check().await.unwrap();
            writing = Some(rig.serve_with("zones", at_once(), sink));
        }
    }
    rig.until(|ledger| ledger.applied == 200).await;
    following.end().await;
    writing.unwrap().end().await;
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 200);
    assert!(told.iter().all(|(_, has_row)| *has_row), "{told:?}");
}
