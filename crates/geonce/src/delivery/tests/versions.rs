//! Versions from the request to the rows: order, conflicts, deletions and late events, in a GeoPackage and in PostGIS.

use super::{LOOKS_MAX, START, Serving, at_once};
use crate::clock::{Clock, ManualClock};
use crate::delivery::{Delivery, Destination, LEASE, Unobserved, run};
use crate::event::{Outcome, State};
use crate::intake::{Arrival, FeatureReceipt, Intake, Source};
use crate::sink::{self, Mode, Sink, geopackage};
use crate::store::{self, Access, Filter, Ledger, ListRequest, Options, Record, Store};
use geonce_key::policy::{Deletion, Field, Identity};
use geonce_key::split::Format;
use geonce_key::{Pointer, Policy, Property};
use geonce_services::Postgres;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::watch;

/// Where rows are.
enum Place {
    GeoPackage(TempDir),
    PostGis(String),
}

impl Place {
    fn geopackage() -> Place {
        Place::GeoPackage(tempfile::tempdir().unwrap())
    }

    fn postgis() -> Place {
        Place::PostGis(Postgres::shared().database())
    }

    fn open(&self, name: &str, mode: Mode) -> Arc<dyn Sink> {
        let options = sink::Options { mode, ..sink::Options::default() };
        match self {
            Place::GeoPackage(folder) => sink::open(name, "gpkg:features.gpkg", &options, folder.path()),
            Place::PostGis(url) => sink::open(name, url, &options, Path::new(".")),
        }
        .unwrap()
    }

    /// What a layer holds: version and place of each row, by version.
    fn rows(&self, layer: &str) -> Vec<String> {
        let mut rows: Vec<String> = match self {
            Place::GeoPackage(folder) => {
                let file = folder.path().join("features.gpkg");
                let connection = geopackage::file::connect(&file, Duration::from_secs(5)).unwrap();
                let sql = format!("SELECT CAST(at AS TEXT), ST_MinX(geom) FROM {layer}");
                let mut statement = connection.prepare(&sql).unwrap();
                let row = |row: &rusqlite::Row<'_>| {
                    Ok(format!("{} {}", row.get::<_, String>(0)?, row.get::<_, Option<f64>>(1)?.unwrap_or(-1.0)))
                };
                statement.query_map([], row).unwrap().map(Result::unwrap).collect()
            }
            Place::PostGis(url) => {
                let sql = format!("SELECT at || ' ' || coalesce(ST_X(geom), -1) FROM {layer}");
                let text = Postgres::shared().sql(url.rsplit('/').next().unwrap(), &sql);
                text.lines().map(str::to_owned).collect()
            }
        };
        rows.sort_unstable();
        rows
    }
}

/// A source of things that move, with a layer of its events, `track`, and one of where things are, `latest`.
struct Story {
    place: Place,
    store: Arc<dyn Store>,
    clock: Arc<ManualClock>,
    intake: Intake,
    source: Arc<Source>,
    serving: Vec<Serving>,
}

impl Story {
    async fn new(place: Place, layers: &[&str], lateness: Option<Duration>) -> Story {
        let pointer = |text: &str| Pointer::parse(text).unwrap();
        let policy = Policy {
            identity: Identity::Fields(vec![Field::required(pointer("/properties/name"))]),
            version: Some(pointer("/properties/at")),
            delete: Some(Deletion { at: pointer("/properties/status"), equals: Property::Text("deleted".to_owned()) }),
            ..Policy::default()
        };
        let store = store::open("sqlite::memory:", &Options::default(), Access::Gateway, Path::new(".")).unwrap();
        let clock = Arc::new(ManualClock::new(START));
        let sinks: Vec<String> = layers.iter().map(|&layer| layer.to_owned()).collect();
        let source = Arc::new(Source::new("fleet", policy.clone(), &sinks).unwrap());
        let intake = Intake::new(Arc::clone(&store), clock.clone());
        let delivery = Arc::new(Delivery {
            store: Arc::clone(&store),
            clock: clock.clone(),
            policies: [(Arc::from("fleet"), policy)].into(),
            lateness: lateness.map_or_else(HashMap::new, |lateness| [(Arc::from("fleet"), lateness)].into()),
            near: HashMap::new(),
            lease: LEASE,
            holder: "test".into(),
            observer: Arc::new(Unobserved),
            pressure: intake.pressure(),
        });
        let mut serving = Vec::new();
        for layer in layers {
            let mode = if *layer == "track" { Mode::Append } else { Mode::Upsert { arrival: false } };
            let sink = place.open(layer, mode);
            sink.check().await.unwrap();
            let destination = Arc::new(Destination { retry: at_once(), ..Destination::new(layer, sink) });
            let (stop, stopped) = watch::channel(false);
            let worker = tokio::spawn(run(Arc::clone(&delivery), Arc::clone(&destination), stopped));
            serving.push(Serving { destination, stop, worker });
        }
        Story { place, store, clock, intake, source, serving }
    }

    async fn send(&self, json: String) -> FeatureReceipt {
        let arrival = Arrival { body: json.into(), format: Format::Json, ..Arrival::default() };
        let mut receipt = self.intake.receive(&self.source, arrival).await.unwrap();
        for _ in 0..LOOKS_MAX {
            if self.ledger().await.waiting == 0 {
                return receipt.features.remove(0);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("it is not delivered: {:?}", self.ledger().await);
    }

    /// The thing `a` is at `x` at this time.
    async fn moves(&self, at: &str, x: u32) -> FeatureReceipt {
        let geometry = format!(r#"{{"type":"Point","coordinates":[{x},0]}}"#);
        self.send(format!(
            r#"{{"type":"Feature","geometry":{geometry},"properties":{{"name":"a","at":{at},"status":"moving"}}}}"#
        ))
        .await
    }

    async fn is_deleted(&self, at: &str) -> FeatureReceipt {
        self.send(format!(
            r#"{{"type":"Feature","geometry":null,"properties":{{"name":"a","at":{at},"status":"deleted"}}}}"#
        ))
        .await
    }

    async fn ledger(&self) -> Ledger {
        let status = self.store.status().await.unwrap();
        let ledger = status.ledgers.get("fleet").copied().unwrap_or_default();
        assert_eq!(ledger.difference(), 0, "{ledger:?}");
        ledger
    }

    /// Applied, stale, dead, duplicate.
    async fn books(&self) -> [u64; 4] {
        let ledger = self.ledger().await;
        [ledger.applied, ledger.stale, ledger.dead, ledger.duplicate]
    }

    async fn records(&self, filter: Filter) -> Vec<Record> {
        self.store.list(ListRequest { filter, limit: 100, payloads: true, ..ListRequest::default() }).await.unwrap()
    }

    fn track(&self) -> Vec<String> {
        self.place.rows("track")
    }

    fn latest(&self) -> Vec<String> {
        self.place.rows("latest")
    }

    async fn end(self) {
        assert_eq!(self.store.audit().await.unwrap(), Vec::<String>::new());
        for serving in self.serving {
            serving.end().await;
        }
    }
}

/// A time of the day on which the stories take place, as JSON.
fn at(time: &str) -> String {
    format!("\"2026-11-14T{time}Z\"")
}

fn row(time: &str, x: u32) -> String {
    format!("2026-11-14T{time}Z {x}")
}

#[tokio::test]
async fn in_a_geopackage() {
    told(Place::geopackage).await;
}

#[tokio::test]
async fn in_postgis() {
    told(Place::postgis).await;
}

async fn told(place: impl Fn() -> Place) {
    late_points_of_a_track_are_rows_and_not_the_latest(place()).await;
    an_older_version_is_stale_and_kept(place()).await;
    an_equal_version_with_other_content_is_a_conflict(place()).await;
    there_and_back_again_is_three_events(place()).await;
    parked_again_is_another_event(place()).await;
    a_deleted_thing_is_not_brought_back_by_what_comes_late(place()).await;
    what_comes_too_late_is_written_nowhere(place()).await;
    numbers_are_never_late(place()).await;
}

async fn late_points_of_a_track_are_rows_and_not_the_latest(place: Place) {
    let story = Story::new(place, &["track", "latest"], None).await;
    for (time, x) in [("08:00:00", 1), ("08:00:10.5", 3), ("08:00:05", 2)] {
        assert!(matches!(story.moves(&at(time), x).await, FeatureReceipt::Accepted { .. }));
    }
    assert_eq!(story.track(), [row("08:00:00", 1), row("08:00:05", 2), row("08:00:10.5", 3)]);
    assert_eq!(story.latest(), [row("08:00:10.5", 3)]);
    // Applied somewhere is applied.
    assert_eq!(story.books().await, [3, 0, 0, 0]);
    story.end().await;
}

async fn an_older_version_is_stale_and_kept(place: Place) {
    let story = Story::new(place, &["latest"], None).await;
    story.moves(&at("08:00:10"), 1).await;
    // The same instant elsewhere on earth, half a second before it, and one that is later though its hour is less.
    story.moves("\"2026-11-14T09:00:09.5+01:00\"", 2).await;
    assert_eq!(story.latest(), [row("08:00:10", 1)]);
    assert_eq!(story.books().await, [1, 1, 0, 0]);
    let stale = story.records(Filter { outcome: Some(Outcome::Stale), ..Filter::default() }).await;
    assert!(stale.len() == 1 && stale[0].payload.is_some(), "{stale:?}");
    story.moves("\"2026-11-14T05:00:11-03:30\"", 3).await;
    assert_eq!(story.latest(), ["2026-11-14T05:00:11-03:30 3"]);
    assert_eq!(story.books().await, [2, 1, 0, 0]);
    story.end().await;
}

async fn an_equal_version_with_other_content_is_a_conflict(place: Place) {
    let story = Story::new(place, &["latest"], None).await;
    story.moves(&at("08:00:10"), 1).await;
    story.moves(&at("08:00:10"), 2).await;
    assert_eq!(story.latest(), [row("08:00:10", 1)]);
    assert_eq!(story.books().await, [1, 0, 1, 0]);
    let dead = story.records(Filter { state: Some(State::Dead), ..Filter::default() }).await;
    assert_eq!(dead[0].cause.as_ref().map(|cause| cause.code.as_str()), Some("conflict"));
    story.end().await;
}

async fn there_and_back_again_is_three_events(place: Place) {
    let story = Story::new(place, &["track", "latest"], None).await;
    for (time, x) in [("08:00:00", 1), ("08:01:00", 2), ("08:02:00", 1)] {
        assert!(matches!(story.moves(&at(time), x).await, FeatureReceipt::Accepted { .. }));
    }
    // The first, delivered once more, is where the thing is, and yet older than where it was.
    assert!(matches!(story.moves(&at("08:00:00"), 1).await, FeatureReceipt::Duplicate { .. }));
    assert_eq!(story.latest(), [row("08:02:00", 1)]);
    assert_eq!(story.track().len(), 3);
    assert_eq!(story.books().await, [3, 0, 0, 1]);
    story.end().await;
}

async fn parked_again_is_another_event(place: Place) {
    let story = Story::new(place, &["track", "latest"], None).await;
    for time in ["08:00:00", "18:00:00"] {
        assert!(matches!(story.moves(&at(time), 7).await, FeatureReceipt::Accepted { .. }));
    }
    assert_eq!(story.track(), [row("08:00:00", 7), row("18:00:00", 7)]);
    assert_eq!(story.latest(), [row("18:00:00", 7)]);
    story.end().await;
}

async fn a_deleted_thing_is_not_brought_back_by_what_comes_late(place: Place) {
    let story = Story::new(place, &["latest"], None).await;
    story.moves(&at("08:00:00"), 1).await;
    assert!(matches!(story.is_deleted(&at("08:00:20")).await, FeatureReceipt::Accepted { .. }));
    assert_eq!(story.latest(), Vec::<String>::new());
    story.moves(&at("08:00:10"), 2).await;
    assert!(matches!(story.is_deleted(&at("08:00:20")).await, FeatureReceipt::Duplicate { .. }));
    assert_eq!(story.latest(), Vec::<String>::new());
    assert_eq!(story.books().await, [2, 1, 0, 1]);
    story.moves(&at("08:00:20"), 3).await;
    assert_eq!(story.latest(), Vec::<String>::new());
    story.moves(&at("08:00:30"), 4).await;
    assert_eq!(story.latest(), [row("08:00:30", 4)]);
    assert_eq!(story.books().await, [3, 1, 1, 1], "the one with its version and other content is a conflict");
    story.end().await;
}

async fn what_comes_too_late_is_written_nowhere(place: Place) {
    let story = Story::new(place, &["track", "latest"], Some(Duration::from_hours(1))).await;
    assert_eq!(story.clock.now().to_string(), "2026-11-15T00:00:00.000Z");
    story.moves(&at("23:30:00"), 1).await;
    story.moves(&at("20:48:00"), 2).await;
    story.moves(&at("23:00:00"), 3).await;
    assert_eq!(story.track(), [row("23:00:00", 3), row("23:30:00", 1)]);
    assert_eq!(story.latest(), [row("23:30:00", 1)]);
    assert_eq!(story.books().await, [2, 1, 0, 0]);
    let stale = story.records(Filter { outcome: Some(Outcome::Stale), ..Filter::default() }).await;
    assert_eq!(stale[0].result.as_deref(), Some(r#"{"late":{"by":"3h12m","lateness":"1h"}}"#));
    // It is what it was when it arrived, whenever it is asked about.
    story.clock.advance(Duration::from_hours(3));
    assert!(matches!(story.moves(&at("20:48:00"), 2).await, FeatureReceipt::Duplicate { .. }));
    assert!(matches!(story.moves(&at("23:30:00"), 1).await, FeatureReceipt::Duplicate { .. }));
    assert_eq!(story.books().await, [2, 1, 0, 2]);
    story.end().await;
}

async fn numbers_are_never_late(place: Place) {
    let story = Story::new(place, &["track", "latest"], Some(Duration::from_hours(1))).await;
    for (version, x) in [("7", 1), ("3", 2), ("-5", 3), ("12", 4)] {
        story.moves(version, x).await;
    }
    assert_eq!((story.track().len(), story.latest()), (4, vec!["12 4".to_owned()]));
    assert_eq!(story.books().await, [4, 0, 0, 0]);
    story.end().await;
}
