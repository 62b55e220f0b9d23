//! Near-duplicates on their way to sinks: which is written, which is not, and what is known of it afterwards.

use super::{LOOKS_MAX, Rig, Serving, applied, at_once, is_named, later, scripted};
use crate::clock::SystemClock;
use crate::delivery::near::{Action, Near, Scope};
use crate::delivery::{Delivery, Destination, LEASE, Unobserved, run};
use crate::event::Outcome;
use crate::intake::{Arrival, Intake, Source};
use crate::sink::{self, Outgoing, Written};
use crate::store::conformance::law;
use crate::store::{self, Access, Filter, Options, Record, Store};
use geonce_key::near::Measure;
use geonce_key::split::Format;
use geonce_key::{Pointer, Policy};
use geonce_services::{Pgbouncer, Postgres};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// A ten-millionth of a degree of latitude, about a centimetre.
const STEP: f64 = 1e-7;

fn near(action: Action) -> Near {
    Near {
        measures: vec![(Measure::Vertex, 0.05)],
        within_metres: 50.0,
        period: Duration::from_mins(10),
        scope: Scope::Identity,
        action,
        ignore: Vec::new(),
    }
}

/// A point so many steps from the first.
fn point(steps: f64, name: &str) -> String {
    let latitude = 2.0 + steps * STEP;
    format!(
        r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[1,{latitude}]}},"properties":{{"name":"{name}"}}}}"#
    )
}

impl Rig {
    async fn send_lines(&self, lines: &[String]) {
        let arrival = Arrival { body: lines.join("\n").into(), format: Format::Lines, ..Arrival::default() };
        self.intake.receive(&self.source, arrival).await.unwrap();
    }

    async fn results(&self, outcome: Outcome) -> Vec<serde_json::Value> {
        let filter = Filter { outcome: Some(outcome), ..Filter::default() };
        let result = |record: Record| serde_json::from_str(record.result.as_deref().unwrap_or("{}")).unwrap();
        self.records(filter).await.into_iter().map(result).collect()
    }
}

#[tokio::test]
async fn of_near_events_in_one_batch_the_first_is_applied_and_says_nothing_the_others_say_why_not() {
    let mut rig = Rig::new(&["zones"]);
    rig.near = Some(near(Action::Drop));
    rig.send_lines(&[point(0.0, "a"), point(2.0, "a"), point(4.0, "a"), point(40.0, "a")]).await;
    let sink = scripted(applied);
    let serving = rig.serve("zones", at_once(), &sink);
    let ledger = rig.until(|ledger| ledger.waiting == 0).await;
    serving.end().await;
    assert_eq!((ledger.applied, ledger.near), (2, 2), "{ledger:?}");
    let first = rig.records(Filter { outcome: Some(Outcome::Applied), ..Filter::default() }).await.pop().unwrap();
    for result in rig.results(Outcome::Near).await {
        assert_eq!(result["near"]["of"], first.id.to_string().as_str());
        assert_eq!(result["near"]["measure"], "vertex");
        let metres = result["near"]["value"].as_f64().unwrap();
        assert!((0.02..0.05).contains(&metres), "{result}");
    }
}

#[tokio::test]
async fn what_differs_outside_the_geometry_is_not_dropped_but_flagged() {
    let mut rig = Rig::new(&["zones"]);
    rig.near = Some(Near { scope: Scope::Source, ..near(Action::Drop) });
    rig.send_lines(&[point(0.0, "a"), point(2.0, "b")]).await;
    let serving = rig.serve("zones", at_once(), &scripted(applied));
    let ledger = rig.until(|ledger| ledger.waiting == 0).await;
    serving.end().await;
    assert_eq!((ledger.applied, ledger.near), (2, 0), "{ledger:?}");
    let flagged: Vec<_> = rig.results(Outcome::Applied).await.into_iter().filter(|r| r.get("near").is_some()).collect();
    assert_eq!(flagged.len(), 1);
    assert_eq!(flagged[0]["near"]["action"], "flag");
}

#[tokio::test]
async fn what_may_differ_is_dropped_all_the_same() {
    let mut rig = Rig::new(&["zones"]);
    let ignore = vec![Pointer::parse("/properties/name").unwrap()];
    rig.near = Some(Near { scope: Scope::Source, ignore, ..near(Action::Drop) });
    rig.send_lines(&[point(0.0, "a"), point(2.0, "b")]).await;
    let serving = rig.serve("zones", at_once(), &scripted(applied));
    let ledger = rig.until(|ledger| ledger.waiting == 0).await;
    serving.end().await;
    assert_eq!((ledger.applied, ledger.near), (1, 1), "{ledger:?}");
}

#[tokio::test]
async fn others_are_not_near_by_identity_nor_after_the_period() {
    let mut rig = Rig::new(&["zones"]);
    rig.near = Some(near(Action::Drop));
    rig.send_lines(&[point(0.0, "a"), point(2.0, "b")]).await;
    let serving = rig.serve("zones", at_once(), &scripted(applied));
    rig.until(|ledger| ledger.waiting == 0).await;
    rig.clock.advance(Duration::from_mins(10));
    rig.send_lines(&[point(3.0, "a")]).await;
    let ledger = rig.until(|ledger| ledger.received == 3 && ledger.waiting == 0).await;
    serving.end().await;
    assert_eq!((ledger.applied, ledger.near), (3, 0), "{ledger:?}");
}

#[tokio::test]
async fn an_event_waits_for_the_one_it_is_near_to_and_takes_its_place_if_that_dies() {
    for dies in [false, true] {
        let mut rig = Rig::new(&["zones"]);
        rig.near = Some(Near {
            scope: Scope::Source,
            ignore: vec![Pointer::parse("/properties/name").unwrap()],
            ..near(Action::Drop)
        });
        rig.send_lines(&[point(0.0, "first"), point(2.0, "second")]).await;
        let ready = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ready);
        let sink =
            scripted(move |outgoing: &Outgoing| match (is_named(outgoing, "first"), told.load(Ordering::SeqCst)) {
                (true, false) => later(false),
                (true, true) if dies => {
                    Ok(Written::Dead(crate::event::Cause::new(crate::event::Class::Constraint, "constraint", "never")))
                }
                _ => applied(outgoing),
            });
        let serving = rig.serve("zones", at_once(), &sink);
        let causes = async || {
            let records = rig.records(Filter::default()).await;
            let codes = records.iter().flat_map(|record| &record.work).filter_map(|work| work.cause.as_ref());
            codes.map(|cause| cause.code.clone()).collect::<Vec<_>>()
        };
        for _ in 0..LOOKS_MAX {
            if causes().await.iter().any(|code| code == "near_waits") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        ready.store(true, Ordering::SeqCst);
        for _ in 0..LOOKS_MAX {
            if rig.ledger().await.waiting == 0 {
                break;
            }
            rig.clock.advance(Duration::from_secs(1));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        serving.end().await;
        let ledger = rig.ledger().await;
        let expected = if dies { (1, 0, 1) } else { (1, 1, 0) };
        assert_eq!((ledger.applied, ledger.near, ledger.dead), expected, "{ledger:?}");
    }
}

#[tokio::test]
async fn every_sink_of_an_event_hears_the_same() {
    let mut rig = Rig::new(&["zones", "archive"]);
    rig.near = Some(near(Action::Drop));
    rig.send_lines(&[point(0.0, "a"), point(2.0, "a")]).await;
    let (zones, archive) = (scripted(applied), scripted(applied));
    let serving = [rig.serve("zones", at_once(), &zones), rig.serve("archive", at_once(), &archive)];
    for _ in 0..LOOKS_MAX {
        if rig.ledger().await.waiting == 0 {
            break;
        }
        rig.clock.advance(Duration::from_secs(1));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for serving in serving {
        serving.end().await;
    }
    let ledger = rig.ledger().await;
    assert_eq!((ledger.applied, ledger.near), (1, 1), "{ledger:?}");
    let written = |sink: &super::Scripted| sink.batches.lock().unwrap().iter().sum::<usize>();
    assert_eq!((written(&zones), written(&archive)), (1, 1));
}

/// One of several gateways on one database.
struct Gateway {
    store: Arc<dyn Store>,
    intake: Intake,
    source: Arc<Source>,
    servings: Vec<Serving>,
}

impl Gateway {
    async fn start(store_url: &str, sink_url: &str) -> Gateway {
        let url = store_url.to_owned();
        let open = move || store::open(&url, &Options::default(), Access::Gateway, Path::new(".")).unwrap();
        let store = tokio::task::spawn_blocking(open).await.unwrap();
        let sink = sink::open("zones", sink_url, &sink::Options::default(), Path::new(".")).unwrap();
        sink.check().await.unwrap();
        let source = Arc::new(Source::new("drones", Policy::default(), &["zones".to_owned()]).unwrap());
        let intake = Intake::new(Arc::clone(&store), Arc::new(SystemClock));
        let destination = Arc::new(Destination { retry: at_once(), ..Destination::new("zones", sink) });
        let delivery = Arc::new(Delivery {
            store: Arc::clone(&store),
            clock: Arc::new(SystemClock),
            policies: [(Arc::from("drones"), Policy::default())].into(),
            near: [(Arc::from("drones"), near(Action::Drop))].into(),
            lateness: std::collections::HashMap::new(),
            lease: LEASE,
            holder: "test".into(),
            observer: Arc::new(Unobserved),
            pressure: intake.pressure(),
        });
        let serve = |_| {
            let (stop, stopped) = watch::channel(false);
            let worker = tokio::spawn(run(Arc::clone(&delivery), Arc::clone(&destination), stopped));
            Serving { destination: Arc::clone(&destination), stop, worker }
        };
        Gateway { store, intake, source, servings: (0..2).map(serve).collect() }
    }

    async fn send(&self, line: String) {
        let arrival = Arrival { body: line.into(), format: Format::Lines, ..Arrival::default() };
        self.intake.receive(&self.source, arrival).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_near_pairs_that_come_to_two_gateways_at_once_one_each_is_a_row() {
    const PAIRS: usize = 500;
    let server = Postgres::shared();
    let database = server.database();
    let bouncer = Pgbouncer::start(server);
    let through = bouncer.url(&database);
    let gateways = [Gateway::start(&database, &database).await, Gateway::start(&through, &database).await];
    let pair = |n: usize| [0.0, 2.0].map(|steps| point(steps, &format!("e{n}")));
    let sends = (0..PAIRS).flat_map(|n| {
        let [one, other] = pair(n);
        let (first, second) = (&gateways[n % 2], &gateways[1 - n % 2]);
        [(first, one), (second, other)]
    });
    futures_util::future::join_all(sends.map(|(gateway, line)| gateway.send(line))).await;
    let mut ledger = None;
    for _ in 0..LOOKS_MAX {
        let status = gateways[0].store.status().await.unwrap();
        law(&status).unwrap();
        ledger = status.ledgers.get("drones").copied();
        if ledger.is_some_and(|ledger| ledger.received == 2 * PAIRS as u64 && ledger.waiting == 0) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let ledger = ledger.unwrap();
    assert_eq!((ledger.applied, ledger.near), (PAIRS as u64, PAIRS as u64), "{ledger:?}");
    let rows = server.sql(database.rsplit('/').next().unwrap(), "SELECT count(*), count(DISTINCT name) FROM zones");
    assert_eq!(rows, format!("{PAIRS}|{PAIRS}"));
    for gateway in gateways {
        for serving in gateway.servings {
            serving.end().await;
        }
        assert_eq!(gateway.store.audit().await.unwrap(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn what_was_applied_before_a_restart_is_still_near() {
    let folder = tempfile::tempdir().unwrap();
    let mut applied_before = 0;
    for (steps, expected) in [(0.0, (1, 0)), (3.0, (1, 1))] {
        let mut rig = Rig::in_file(&folder.path().join("geonce.db"));
        rig.near = Some(near(Action::Drop));
        rig.send_lines(&[point(steps, "a")]).await;
        let serving = rig.serve("zones", at_once(), &scripted(applied));
        let ledger = rig.until(|ledger| ledger.received > applied_before && ledger.waiting == 0).await;
        serving.end().await;
        assert_eq!((ledger.applied, ledger.near), expected, "{ledger:?}");
        applied_before = ledger.received;
        rig.store.close().await.unwrap();
    }
}
