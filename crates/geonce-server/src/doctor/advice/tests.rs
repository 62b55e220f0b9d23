//! Each finding with its fault planted, and without it, in stores that were filled through the intake.

use super::{Advice, gather};
use crate::config::{self, Overrides, Place, Settings};
use crate::tool::{self, Tool};
use geonce::clock::{ManualClock, Timestamp};
use geonce::intake::{Arrival, FeatureReceipt, Intake, Source};
use geonce::store::{self, Access, Store, Traffic};
use geonce_key::split::Format;
use std::sync::Arc;
use std::time::Duration;

/// 2026-11-15.
const START: Timestamp = Timestamp::from_millis(1_794_700_800_000);
/// No test waits longer than so many times five milliseconds.
const LOOKS_MAX: usize = 4_000;

struct Rig {
    folder: tempfile::TempDir,
    settings: Settings,
    runtime: tokio::runtime::Runtime,
    store: Arc<dyn Store>,
    intake: Intake,
    source: Arc<Source>,
    clock: Arc<ManualClock>,
}

impl Rig {
    /// A gateway with the source `drones`, which has these settings.
    fn new(lines: &str) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("geonce.toml");
        std::fs::write(&file, format!("[source.drones]\nallow_unsigned = true\n{lines}\n")).unwrap();
        let data = Some(folder.path().to_owned());
        let settings = config::load(&Overrides { config: Some(file), data, ..Overrides::default() }).unwrap();
        let runtime = tool::runtime().unwrap();
        let opened = {
            let _inside = runtime.enter();
            store::open("sqlite:geonce.db", &settings.store.options, Access::Gateway, folder.path()).unwrap()
        };
        let clock = Arc::new(ManualClock::new(START));
        let intake = Intake::new(Arc::clone(&opened), clock.clone());
        let source =
            Source::new("drones", settings.sources["drones"].policy.clone(), &["features".to_owned()]).unwrap();
        Rig { folder, settings, runtime, store: opened, intake, source: Arc::new(source), clock }
    }

    /// Sends a feature a second after the one before; whether it was new.
    fn send(&self, geometry: &str, properties: &str) -> bool {
        let body = format!(r#"{{"type":"Feature","geometry":{geometry},"properties":{properties}}}"#);
        self.send_body(&body)
    }

    fn send_body(&self, body: &str) -> bool {
        self.clock.advance(Duration::from_secs(1));
        let arrival = Arrival { body: body.as_bytes().to_vec().into(), format: Format::Json, ..Arrival::default() };
        let mut receipt = self.runtime.block_on(self.intake.receive(&self.source, arrival)).unwrap();
        match receipt.features.remove(0) {
            FeatureReceipt::Accepted { .. } => true,
            FeatureReceipt::Duplicate { .. } => false,
            other => panic!("{other:?}"),
        }
    }

    fn send_point(&self, lon: f64, properties: &str) -> bool {
        self.send(&format!(r#"{{"type":"Point","coordinates":[{lon},52.5]}}"#), properties)
    }

    fn traffic(&self) -> Traffic {
        self.runtime.block_on(self.store.status()).unwrap().traffic.remove("drones").unwrap_or_default()
    }

    /// Waits until so many duplicates were compared.
    fn until_compared(&self, count: u64) {
        for _ in 0..LOOKS_MAX {
            if self.traffic().compared >= count {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("nothing was compared: {:?}", self.traffic());
    }

    fn advice(self) -> Vec<Advice> {
        self.runtime.block_on(self.store.close()).unwrap();
        let Settings { file, data, store, .. } = self.settings.clone();
        let tool = Tool::at(Place { file, data, store }).unwrap();
        let status = tool.wait(tool.store.status()).unwrap();
        let advice = gather(&tool, &self.settings, &status).unwrap();
        tool.close().unwrap();
        drop(self.folder);
        advice
    }
}

fn codes(advice: &[Advice]) -> Vec<&'static str> {
    advice.iter().map(|one| one.code).collect()
}

/// The only piece of advice.
#[track_caller]
fn only(advice: Vec<Advice>, code: &str) -> Advice {
    assert_eq!(codes(&advice), [code], "{advice:?}");
    advice.into_iter().next().unwrap()
}

const IDENTITY: &str = r#"identity = ["/properties/name"]"#;

fn named(name: usize) -> String {
    format!(r#"{{"name":{name}}}"#)
}

#[test]
fn nothing_is_advised_where_nothing_happened() {
    assert_eq!(codes(&Rig::new("").advice()), [""; 0]);
    let rig = Rig::new(IDENTITY);
    for n in 0..60_u32 {
        assert!(rig.send_point(13.000_000_1 + f64::from(n) / 100.0, &named(n as usize)));
    }
    assert_eq!(codes(&rig.advice()), [""; 0]);
}

#[test]
fn redeliveries_are_compared_with_the_window() {
    let rig = Rig::new("");
    assert!(rig.send_point(13.4, "{}"));
    for _ in 0..99 {
        assert!(!rig.send_point(13.4, "{}"));
    }
    let advice = only(rig.advice(), "redelivery_lag");
    assert_eq!(
        advice.message,
        "99 % of 99 redeliveries came within 2m, the longest within 2m; keys are remembered for 7d"
    );
    let rig = Rig::new("");
    assert!(rig.send_point(13.4, "{}"));
    assert!(!rig.send_point(13.4, "{}"));
    rig.clock.advance(Duration::from_hours(24 * 6));
    assert!(!rig.send_point(13.4, "{}"));
    let advice = only(rig.advice(), "window_short");
    assert!(advice.message.contains("the longest within 7d; keys are remembered for 7d"), "{advice:?}");
    assert!(advice.hint.contains("store.window = \"10d\""), "{advice:?}");
    assert_eq!(advice.figures["redeliveries"], 2);
}

#[test]
fn events_on_two_sides_of_a_rounding_line_are_noticed() {
    let near = |offset: f64| {
        let rig = Rig::new(IDENTITY);
        for n in 0..30_u32 {
            let lon = 13.0 + f64::from(n) / 100.0;
            assert!(rig.send_point(lon + 0.000_000_04, &named(n as usize)));
            if n % 3 == 0 {
                assert!(rig.send_point(lon + offset, &named(n as usize)), "{n}");
            }
        }
        rig.advice()
    };
    let advice = only(near(0.000_000_06), "grid_edge");
    assert!(advice.message.starts_with("20 of 40 events (50 %) differ from another one"), "{advice:?}");
    assert!(advice.hint.contains("precision = 6 makes 10 of 10"), "{advice:?}");
    assert_eq!(codes(&near(0.000_001)), [""; 0], "a metre is no rounding line");
}

#[test]
fn polygons_on_two_sides_of_a_rounding_line_are_noticed_whatever_side_they_start_at() {
    let rig = Rig::new(IDENTITY);
    let ring = |n: u32, offset: f64, start: usize| {
        let west = 13.0 + f64::from(n) / 100.0 + offset;
        let corners = [[west, 52.0], [west + 0.001, 52.0], [west + 0.001, 52.001], [west, 52.001]];
        let corners: Vec<String> =
            (0..5).map(|i| corners[(start + i) % 4]).map(|[x, y]| format!("[{x},{y}]")).collect();
        format!(r#"{{"type":"Polygon","coordinates":[[{}]]}}"#, corners.join(","))
    };
    for n in 0..20 {
        assert!(rig.send(&ring(n, 0.000_000_04, 0), &named(n as usize)));
        assert!(rig.send(&ring(n, 0.000_000_06, 2), &named(n as usize)));
    }
    let advice = only(rig.advice(), "grid_edge");
    assert!(advice.message.starts_with("40 of 40 events"), "{advice:?}");
}

#[test]
fn fields_in_which_duplicates_differ_are_named() {
    let rig = Rig::new(IDENTITY);
    assert!(rig.send_point(13.4, r#"{"name":1,"status":"new","tags":["a","b"]}"#));
    assert!(!rig.send_point(13.4, r#"{"name":1,"status":"old","tags":["a","c"]}"#));
    rig.until_compared(1);
    assert!(!rig.send_point(13.4, r#"{"name":1,"status":"gone","tags":["a","b"]}"#));
    rig.until_compared(2);
    let advice = rig.advice();
    assert_eq!(codes(&advice), ["redelivery_lag", "drift"]);
    let expected = "2 duplicates differ from their events outside the identity; of 2 that were compared, \
                    in /properties/status (100 %), /properties/tags (50 %)";
    assert_eq!(advice[1].message, expected);
    assert!(advice[1].hint.contains("version = \"/properties/status\""), "{advice:?}");
}

#[test]
fn duplicates_that_do_not_differ_are_not_mentioned() {
    let rig = Rig::new(IDENTITY);
    for _ in 0..3 {
        rig.send_point(13.4, r#"{"name":1,"status":"new","sent_at":"12:00"}"#);
    }
    assert_eq!(rig.traffic().compared, 0);
    assert_eq!(codes(&rig.advice()), ["redelivery_lag"]);
}

#[test]
fn identifiers_outside_the_identity_are_noticed() {
    let fill = |rig: &Rig| {
        for n in 0..40_u32 {
            let properties = format!(r#"{{"name":{},"reportId":"r-{n}","width":{n}}}"#, n % 4);
            assert!(rig.send_point(13.0 + f64::from(n) / 10.0, &properties));
        }
    };
    let rig = Rig::new(IDENTITY);
    fill(&rig);
    let advice = only(rig.advice(), "identifier_outside");
    assert!(advice.message.starts_with("/properties/reportId has 40 different values in 40 events"), "{advice:?}");
    let rig = Rig::new(r#"identity = ["/properties/name", "/properties/reportId"]"#);
    fill(&rig);
    assert_eq!(codes(&rig.advice()), [""; 0]);
    let whole = Rig::new("");
    fill(&whole);
    assert_eq!(codes(&whole.advice()), [""; 0], "the whole payload is the identity");
}

#[test]
fn fields_of_the_identity_that_never_differ_are_noticed() {
    let rig = Rig::new(r#"identity = ["/properties/name", "/properties/kind"]"#);
    for n in 0..40_u32 {
        assert!(rig.send_point(13.0 + f64::from(n) / 10.0, &format!(r#"{{"name":{n},"kind":"drone"}}"#)));
    }
    let advice = only(rig.advice(), "identity_constant");
    assert_eq!(advice.figures["field"], "/properties/kind");
}

#[test]
fn a_change_of_the_coordinate_system_is_noticed_with_its_time() {
    let rig = Rig::new("");
    for n in 0..80_u32 {
        let crs = if n < 50 { "EPSG:25832" } else { "EPSG:25833" };
        let body = format!(
            r#"{{"type":"Feature","crs":{{"type":"name","properties":{{"name":"{crs}"}}}},"geometry":{{"type":"Point","coordinates":[{},5800000]}},"properties":{{}}}}"#,
            500_000 + n * 100
        );
        assert!(rig.send_body(&body));
    }
    let advice = only(rig.advice(), "crs_changed");
    let since = START.plus(Duration::from_secs(51));
    let expected =
        format!("coordinates came in EPSG:25832 until {since}, and EPSG:25833 since then (50 and 30 events)");
    assert_eq!(advice.message, expected);
}

#[test]
fn a_change_of_decimals_is_noticed() {
    let rig = Rig::new("");
    for n in 0..60_u32 {
        let lon = 13.0 + f64::from(n) / 10.0;
        let lon = if n < 40 { format!("{lon:.1}000001") } else { format!("{lon:.1}01") };
        assert!(rig.send(&format!(r#"{{"type":"Point","coordinates":[{lon},52.5]}}"#), "{}"));
    }
    let advice = only(rig.advice(), "decimals_changed");
    assert!(advice.message.contains("came with 7 decimals until"), "{advice:?}");
    assert!(advice.message.contains("and 3 decimals since then (40 and 20 events)"), "{advice:?}");
}

#[test]
fn a_change_of_types_is_noticed_and_a_mixture_is_not() {
    let geometry = |n: u32, line: bool| {
        let lon = 13.0 + f64::from(n) / 10.0;
        if line {
            format!(r#"{{"type":"LineString","coordinates":[[{lon},52.5],[{lon},53.5]]}}"#)
        } else {
            format!(r#"{{"type":"Point","coordinates":[{lon},52.5]}}"#)
        }
    };
    let rig = Rig::new("");
    let mixed = Rig::new("");
    for n in 0..60 {
        assert!(rig.send(&geometry(n, n < 10), "{}"));
        assert!(mixed.send(&geometry(n, n % 5 == 0), "{}"));
    }
    let advice = only(rig.advice(), "type_changed");
    assert!(advice.message.contains("of type LineString until"), "{advice:?}");
    assert!(advice.message.contains("and Point since then (10 and 50 events)"), "{advice:?}");
    assert_eq!(codes(&mixed.advice()), [""; 0]);
}
