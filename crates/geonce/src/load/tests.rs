//! Loads end to end: from files to a GeoPackage, with an embedded store. Other destinations: `target`; other stores: the ledger's
//! tests; kills: `tests/faults/load.py`.

use super::target::Mode;
use super::{Invalid, KeyBy, Loader, Outcome, Progress, Report, Request, TargetCrs, Trouble};
use crate::clock::SystemClock;
use crate::event::State;
use crate::store::{self, Access, Filter, ListRequest, Store};
use geonce_key::policy::{Field, Identity};
use geonce_key::{Pointer, Policy};
use rusqlite::Connection;
use std::fmt::Write as _;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::Notify;

/// An appending load of `file` into a GeoPackage.
pub(super) fn request(file: &Path, destination: &Path) -> Request {
    let destination = format!("gpkg:{}", destination.display());
    Request {
        file: file.to_owned(),
        source: file.display().to_string(),
        uri: file.display().to_string(),
        modified: None,
        files: geonce_files::Options::default(),
        query: None,
        destination_name: destination.clone(),
        destination,
        folder: PathBuf::new(),
        layer: "zones".to_owned(),
        mode: Mode::Append,
        source_crs: None,
        target_crs: TargetCrs::Default,
        policy: Policy::default(),
        invalid: Invalid::Reject,
        key_by: KeyBy::Content,
        period: None,
        trust_mtime: false,
        chunk: None,
        force: false,
        retry: false,
        wait: Duration::from_secs(30),
        retries: 0,
        timeout: Duration::from_secs(30),
    }
}

struct Place {
    folder: TempDir,
    store: Arc<dyn Store>,
    loader: Loader,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let options = store::Options::default();
        let store = store::open("sqlite:geonce.db", &options, Access::Runner, folder.path()).unwrap();
        let loader = Loader::new(Arc::clone(&store), Arc::new(SystemClock));
        Place { folder, store, loader }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file with these features: a number, a name, and where it is.
    fn write(&self, name: &str, features: &[(u32, &str, f64)]) -> Request {
        let mut text = String::new();
        for (n, name, x) in features {
            let geometry = format!(r#"{{"type":"Point","coordinates":[{x},1]}}"#);
            let _ = writeln!(
                text,
                r#"{{"type":"Feature","properties":{{"n":{n},"name":"{name}"}},"geometry":{geometry}}}"#
            );
        }
        std::fs::write(self.path(name), text).unwrap();
        request(&self.path(name), &self.path("out.gpkg"))
    }

    async fn load(&self, request: &Request) -> Result<Outcome, Trouble> {
        let looked = self.loader.look(request).await?;
        self.loader.load(request, &looked, &Progress::default(), &Notify::new()).await
    }

    async fn loaded(&self, request: &Request) -> Report {
        match self.load(request).await {
            Ok(Outcome::Loaded(report)) => *report,
            other => panic!("{other:?}"),
        }
    }

    async fn already(&self, request: &Request) -> Report {
        match self.load(request).await {
            Ok(Outcome::Already(report)) => *report,
            other => panic!("{other:?}"),
        }
    }

    fn names(&self) -> Vec<String> {
        let file = Connection::open(self.path("out.gpkg")).unwrap();
        let mut rows = file.prepare("SELECT n || ' ' || name FROM zones ORDER BY n, fid").unwrap();
        rows.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    }
}

fn upsert(request: Request, version: Option<&str>) -> Request {
    let identity = Identity::Fields(vec![Field::required(Pointer::parse("/properties/n").unwrap())]);
    let version = version.map(|at| Pointer::parse(at).unwrap());
    let mode = Mode::Upsert { arrival: version.is_none() };
    Request { mode, policy: Policy { identity, version, ..Policy::default() }, ..request }
}

#[tokio::test]
async fn a_file_is_loaded_once_whatever_it_is_called() {
    let place = Place::new();
    let first = place.write("a.ndjson", &[(1, "one", 1.0), (2, "two", 2.0), (2, "two", 2.0)]);
    let report = place.loaded(&first).await;
    assert_eq!((report.features, report.inserted), (3, 3), "equal rows of a file are rows");
    let again = place.already(&place.write("b.ndjson", &[(1, "one", 1.0), (2, "two", 2.0), (2, "two", 2.0)])).await;
    assert_eq!(Report { flaws: Vec::new(), ..report }, again);
    assert_eq!(place.names(), ["1 one", "2 two", "2 two"]);
    let other = place.loaded(&place.write("c.ndjson", &[(3, "three", 3.0)])).await;
    assert_ne!(other.load, again.load);
    assert_eq!(place.names().len(), 4);
}

#[tokio::test]
async fn a_store_that_was_lost_doubles_nothing() {
    let place = Place::new();
    let request = place.write("a.ndjson", &[(1, "one", 1.0)]);
    let report = place.loaded(&request).await;
    let elsewhere =
        store::open("sqlite:new.db", &store::Options::default(), Access::Runner, place.folder.path()).unwrap();
    let loader = Loader::new(elsewhere, Arc::new(SystemClock));
    let looked = loader.look(&request).await.unwrap();
    let outcome = loader.load(&request, &looked, &Progress::default(), &Notify::new()).await.unwrap();
    assert!(matches!(outcome, Outcome::Already(found) if found.load == report.load && found.inserted == 1));
    assert_eq!(place.names(), ["1 one"]);
}

#[tokio::test]
async fn an_upsert_writes_what_changed() {
    let place = Place::new();
    let first = upsert(place.write("a.ndjson", &[(1, "one", 1.0), (2, "two", 2.0)]), None);
    assert_eq!(place.loaded(&first).await.inserted, 2);
    let second = upsert(place.write("b.ndjson", &[(1, "one", 1.0), (2, "zwei", 2.0), (3, "three", 3.0)]), None);
    let report = place.loaded(&second).await;
    assert_eq!((report.inserted, report.updated, report.unchanged), (1, 1, 1));
    assert_eq!(place.names(), ["1 one", "2 zwei", "3 three"]);
}

#[tokio::test]
async fn the_tree_follows_what_moved() {
    let place = Place::new();
    let all = [(1, "stays", 1.0), (2, "moves", 2.0), (3, "is renamed", 3.0)];
    place.loaded(&upsert(place.write("a.ndjson", &all), None)).await;
    let all = [(1, "stays", 1.0), (2, "moves", 20.0), (3, "was renamed", 3.0)];
    assert_eq!(place.loaded(&upsert(place.write("b.ndjson", &all), None)).await.updated, 2);
    let file = Connection::open(place.path("out.gpkg")).unwrap();
    let mut rows = file.prepare("SELECT n, minx FROM zones JOIN rtree_zones_geom ON id = fid ORDER BY n").unwrap();
    let found = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(found.collect::<Result<Vec<(u32, f64)>, _>>().unwrap(), [(1, 1.0), (2, 20.0), (3, 3.0)]);
}

#[tokio::test]
async fn what_a_file_says_last_of_an_entity_stands_though_it_said_so_before() {
    const FEATURES: u32 = 9_000;
    for chunk in [None, NonZero::new(2_500)] {
        let place = Place::new();
        let mut features: Vec<_> = (0..FEATURES).map(|n| (n, "as it was", f64::from(n) / 100.0)).collect();
        place.loaded(&upsert(place.write("a.ndjson", &features), None)).await;
        // There and back within a batch, and over several; and once for good.
        features[8_000].1 = "other";
        features.insert(8_001, (8_000, "as it was", 80.0));
        features[6_000].1 = "other";
        features.extend([(6_000, "as it was", 60.0), (7_000, "at last", 70.0), (42, "as it was", 0.42)]);
        let second = Request { chunk, ..upsert(place.write("b.ndjson", &features), None) };
        let report = place.loaded(&second).await;
        assert_eq!(report.features, u64::from(FEATURES) + 4);
        assert_eq!((report.inserted, report.updated), (0, 5));
        assert_eq!(report.unchanged, u64::from(FEATURES) - 1, "{chunk:?}");
        let names = place.names();
        assert_eq!(names.len(), FEATURES as usize);
        let changed: Vec<_> = names.iter().filter(|name| !name.ends_with("as it was")).collect();
        assert_eq!(changed, ["7000 at last"]);
    }
}

#[tokio::test]
async fn an_older_version_takes_no_place() {
    let place = Place::new();
    let version = Some("/properties/name");
    place.loaded(&upsert(place.write("a.ndjson", &[(1, "2026-01-02T00:00:00Z", 1.0)]), version)).await;
    let report = place.loaded(&upsert(place.write("b.ndjson", &[(1, "2026-01-01T00:00:00Z", 5.0)]), version)).await;
    assert_eq!((report.stale, report.updated), (1, 0));
    let conflict = upsert(place.write("c.ndjson", &[(1, "2026-01-02T00:00:00Z", 7.0)]), version);
    let report = place.loaded(&conflict).await;
    assert_eq!((report.rejected, report.codes.get("conflict")), (1, Some(&1)));
    assert_eq!(place.names(), ["1 2026-01-02T00:00:00Z"]);
}

#[tokio::test]
async fn a_replacement_leaves_nothing_of_what_was() {
    let place = Place::new();
    place.loaded(&place.write("a.ndjson", &[(1, "one", 1.0), (2, "two", 2.0)])).await;
    let second = Request { mode: Mode::Replace, ..place.write("b.ndjson", &[(3, "three", 3.0)]) };
    place.loaded(&second).await;
    assert_eq!(place.names(), ["3 three"]);
}

#[tokio::test]
async fn force_puts_the_same_rows_in_the_place_of_the_earlier_ones() {
    let place = Place::new();
    let request = place.write("a.ndjson", &[(1, "one", 1.0)]);
    place.loaded(&request).await;
    place.loaded(&Request { force: true, ..request }).await;
    assert_eq!(place.names(), ["1 one"]);
}

/// A bow tie between good neighbours, a line that is no JSON, and a feature without geometry.
const MIXED: &str = r#"{"type":"Feature","properties":{"n":1,"name":"good"},"geometry":{"type":"Point","coordinates":[1,1]}}
{"type":"Feature","properties":{"n":2,"name":"bow"},"geometry":{"type":"Polygon","coordinates":[[[0,0],[1,1],[1,0],[0,1],[0,0]]]}}
{"type":"Feature","properties":{"n":3,
{"type":"Feature","properties":{"n":4,"name":"nowhere"},"geometry":null}
"#;

#[tokio::test]
async fn a_bad_feature_never_keeps_its_neighbours_out() {
    for (invalid, rows, counts) in [
        (Invalid::Reject, vec!["1 good", "4 nowhere"], (2, 0, 0)),
        (Invalid::Dead, vec!["1 good", "4 nowhere"], (0, 2, 0)),
        (Invalid::Repair, vec!["1 good", "2 bow", "4 nowhere"], (1, 0, 1)),
    ] {
        let place = Place::new();
        std::fs::write(place.path("a.ndjson"), MIXED).unwrap();
        let request = Request { invalid, ..request(&place.path("a.ndjson"), &place.path("out.gpkg")) };
        let report = place.loaded(&request).await;
        assert_eq!((report.rejected, report.dead, report.repaired), counts);
        assert_eq!(report.features, 4);
        assert_eq!(report.flaws.iter().map(|flaw| flaw.number).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(place.names(), rows);
        let filter = Filter { state: Some(State::Dead), ..Filter::default() };
        let list = ListRequest { filter, before: None, limit: 10, payloads: true };
        let dead = place.store.list(list).await.unwrap();
        assert_eq!(u64::try_from(dead.len()).unwrap(), report.dead);
        if invalid == Invalid::Dead {
            let payloads: Vec<_> = dead.iter().filter_map(|record| record.payload.clone()).collect();
            assert!(payloads.iter().any(|payload| payload.as_ref() == MIXED.lines().nth(1).unwrap().as_bytes()));
            // Loaded once more, under another key, they are kept once.
            place.loaded(&Request { chunk: NonZero::new(1), mode: Mode::Replace, ..request }).await;
            let filter = Filter { state: Some(State::Dead), ..Filter::default() };
            let list = ListRequest { filter, before: None, limit: 10, payloads: false };
            assert_eq!(place.store.list(list).await.unwrap().len(), 2);
        }
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_dead_until_somebody_says_otherwise() {
    let place = Place::new();
    std::fs::write(place.path("a.geojson"), r#"{"type":"FeatureCollection","features":[{"type":"Fea"#).unwrap();
    let request = request(&place.path("a.geojson"), &place.path("out.gpkg"));
    assert!(matches!(place.load(&request).await, Err(Trouble::Input(_))));
    assert!(matches!(place.load(&request).await, Ok(Outcome::Dead(_))));
    assert!(matches!(place.load(&Request { retry: true, ..request }).await, Err(Trouble::Input(_))));
    assert!(!place.path("out.gpkg").exists(), "nothing was written");
}

#[tokio::test]
async fn a_coordinate_system_is_never_guessed() {
    let place = Place::new();
    std::fs::write(place.path("a.csv"), "n,name,x,y\n1,one,8238310,4969803\n").unwrap();
    let unknown = request(&place.path("a.csv"), &place.path("out.gpkg"));
    let Err(Trouble::Input(error)) = place.load(&unknown).await else { panic!("it was guessed") };
    assert_eq!(error.code(), "crs_missing");
    assert!(error.message().contains("8238310") && error.message().contains("not degrees"), "{}", error.message());
    let report = place.loaded(&Request { source_crs: Some(3857), ..unknown }).await;
    assert_eq!(report.crs, [3857, 4326]);
}

#[tokio::test]
async fn a_digest_of_an_unchanged_file_is_believed_only_when_asked() {
    let place = Place::new();
    let request = place.write("a.ndjson", &[(1, "one", 1.0)]);
    assert!(!place.loader.look(&request).await.unwrap().trusted);
    let trusting = Request { trust_mtime: true, ..request };
    let first = place.loader.look(&trusting).await.unwrap();
    let second = place.loader.look(&trusting).await.unwrap();
    assert!(!first.trusted && second.trusted && first.key == second.key);
    place.write("a.ndjson", &[(1, "other", 1.0), (2, "more", 2.0)]);
    let third = place.loader.look(&trusting).await.unwrap();
    assert!(!third.trusted && third.key != first.key);
}

#[tokio::test]
async fn two_at_once_are_one_load_and_one_answer() {
    let place = Place::new();
    let features: Vec<_> = (0..3_000).map(|n| (n, "name", f64::from(n) / 100.0)).collect();
    let request = place.write("a.ndjson", &features);
    let outcomes = tokio::join!(place.load(&request), place.load(&request));
    let reports = match outcomes {
        (Ok(Outcome::Loaded(a)), Ok(Outcome::Already(b))) | (Ok(Outcome::Already(a)), Ok(Outcome::Loaded(b))) => (a, b),
        other => panic!("{other:?}"),
    };
    assert_eq!(reports.0, reports.1);
    assert_eq!(place.names().len(), 3_000);
}

#[tokio::test]
async fn what_is_stopped_leaves_nothing_and_holds_nobody_up() {
    let place = Place::new();
    let request = place.write("a.ndjson", &[(1, "one", 1.0)]);
    let looked = place.loader.look(&request).await.unwrap();
    let stop = Notify::new();
    stop.notify_one();
    let outcome = place.loader.load(&request, &looked, &Progress::default(), &stop).await.unwrap();
    assert!(matches!(outcome, Outcome::Interrupted | Outcome::Loaded(_)));
    if matches!(outcome, Outcome::Interrupted) {
        place.loaded(&request).await;
    }
    assert_eq!(place.names(), ["1 one"]);
}

#[tokio::test]
async fn a_rehearsal_says_what_would_be_and_writes_nothing() {
    let place = Place::new();
    std::fs::write(place.path("a.ndjson"), MIXED).unwrap();
    let request = request(&place.path("a.ndjson"), &place.path("out.gpkg"));
    let looked = place.loader.look(&request).await.unwrap();
    let report = place.loader.rehearse(&request, &looked, &Progress::default()).await.unwrap();
    assert_eq!((report.features, report.rejected), (4, 2));
    assert!(!place.path("out.gpkg").exists());
}
