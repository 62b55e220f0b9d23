//! The built binary: configuration errors, `check`, saved configurations, and the tools beside a store that was filled
//! through the engine.

#![expect(clippy::unwrap_used, reason = "a helper that fails should fail the test")]

use bytes::Bytes;
use geonce::clock::{Clock, SystemClock};
use geonce::event::{Cause, Class, EventId, Ids, Outcome};
use geonce::sink::{self, Outgoing};
use geonce::store::{
    self, Access, Admission, Counted, End, LeaseRequest, NewEvent, ResultText, Route, Settlement, Store, Verdict,
};
use geonce_key::{Encoding, Form, Input, Keyer, Policy, Reader};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Folder {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Folder(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn geonce(&self, arguments: &[&str]) -> Ran {
        self.geonce_with(arguments, &[])
    }

    fn geonce_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_geonce"));
        command.args(arguments).current_dir(self.path()).envs(variables.iter().copied());
        Ran::new(command.output().unwrap())
    }
}

struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Ran {
    fn new(output: Output) -> Ran {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }

    #[track_caller]
    fn expect(self, code: i32, parts: &[&str]) -> Ran {
        assert_eq!(self.code, code, "\n{}\n{}", self.out, self.err);
        for part in parts {
            assert!(
                self.out.contains(part) || self.err.contains(part),
                "{part:?} is not in\n{}\n{}",
                self.out,
                self.err
            );
        }
        assert!(!self.out.contains('\u{1b}'), "colours without a terminal");
        self
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap()
    }
}

const CONFIG: &str = r#"
[source.drones]
allow_unsigned = true
identity = ["/properties/id"]
version = "/properties/at"
sink = "zones"

[sink.zones]
url = "gpkg:features.gpkg"
"#;

fn feature(id: &str, lon: f64) -> String {
    let geometry = format!(r#"{{"type":"Point","coordinates":[{lon},52.50]}}"#);
    format!(r#"{{"type":"Feature","geometry":{geometry},"properties":{{"id":"{id}","at":1,"note":"a\u009bb"}}}}"#)
}

fn policy() -> Policy {
    let pointer = |text| geonce_key::Pointer::parse(text).unwrap();
    Policy {
        identity: geonce_key::policy::Identity::Fields(vec![geonce_key::policy::Field::required(pointer(
            "/properties/id",
        ))]),
        version: Some(pointer("/properties/at")),
        scope: "drones".to_owned(),
        ..Policy::default()
    }
}

/// Fills a store as a gateway would.
struct Filled {
    runtime: tokio::runtime::Runtime,
    store: Arc<dyn Store>,
    ids: Ids,
    sink: Arc<str>,
}

impl Filled {
    fn new(folder: &Folder) -> Filled {
        let data = folder.path().join("geonce-data");
        std::fs::create_dir_all(&data).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let store = {
            let _inside = runtime.enter();
            store::open("sqlite:geonce.db", &store::Options::default(), Access::Gateway, &data).unwrap()
        };
        Filled { runtime, store, ids: Ids::new(), sink: "zones".into() }
    }

    fn accept(&self, text: &str, dead: Option<Cause>) -> (EventId, Verdict) {
        let mut keyer = Keyer::new(&policy()).unwrap();
        let input = Input::json(text.as_bytes());
        let keyed = keyer.key(input).unwrap();
        let content = *keyer.content(input, &keyed).unwrap().digest();
        let sinks: Arc<[Route]> = Arc::new([Route::to(&self.sink)]);
        let now = SystemClock.now();
        let id = self.ids.next(now);
        let event = NewEvent {
            id,
            source: "drones".into(),
            key: keyed.fingerprint,
            aliases: keyed.aliases,
            spatial: Vec::new(),
            content,
            form: Form::Json,
            crs: None,
            payload: Bytes::copy_from_slice(text.as_bytes()),
            admission: match dead {
                Some(cause) => Admission::Dead(cause, sinks),
                None => Admission::Deliver(sinks),
            },
            order: None,
        };
        let verdict = self.runtime.block_on(self.store.accept(vec![event], now)).unwrap().remove(0);
        (id, verdict)
    }

    fn lease(&self, holder: &str) -> Vec<store::Leased> {
        let request = LeaseRequest {
            sink: Arc::clone(&self.sink),
            events_max: 100,
            bytes_max: 1 << 20,
            duration: Duration::from_mins(1),
            event: None,
            holder: holder.into(),
        };
        self.runtime.block_on(self.store.lease(request, SystemClock.now())).unwrap()
    }

    /// Applies everything that is ready, writing it to the sink only where asked.
    fn deliver(&self, folder: &Folder, write: bool) {
        let leased = self.lease("test");
        if write {
            let mut reader = Reader::new(&policy(), None).unwrap();
            let outgoing = leased.iter().map(|leased| {
                let feature = reader.read(Input::json(&leased.payload)).unwrap();
                Outgoing {
                    origin: None,
                    event: leased.lease.event,
                    key: leased.key,
                    source: Arc::clone(&leased.source),
                    received: leased.received,
                    version: feature.version.clone(),
                    entity: feature.entity,
                    content: [0; 32],
                    rest: None,
                    feature,
                    form: leased.form,
                    payload: leased.payload.clone(),
                    merge: None,
                }
            });
            let outgoing = outgoing.collect();
            let data = folder.path().join("geonce-data");
            self.runtime.block_on(async {
                let sink = sink::open("zones", "gpkg:features.gpkg", &sink::Options::default(), &data).unwrap();
                sink.check().await.unwrap();
                sink.write(outgoing).await.unwrap();
                sink.close().await.unwrap();
            });
        }
        let end = End::Done(Outcome::Applied, Some(ResultText::row("zones", "features.gpkg zones")));
        let done = |leased: store::Leased| Settlement { lease: leased.lease, end: end.clone() };
        let settlements = leased.into_iter().map(done).collect();
        self.runtime.block_on(self.store.settle(settlements, SystemClock.now())).unwrap();
    }

    fn close(self) {
        self.runtime.block_on(self.store.close()).unwrap();
    }
}

fn bounds() -> Cause {
    let cause = Cause::new(Class::Geometry, "geojson_bounds", "a longitude is out of range\u{1b}[2J");
    Cause { pointer: "/geometry/coordinates/0".to_owned(), ..cause }
}

#[test]
fn what_is_wrong_with_a_configuration_is_said_and_ends_with_one() {
    let folder = Folder::new(&[("geonce.toml", "[source.a]\nallow_unsigned = true\nprecison = 6\n")]);
    folder
        .geonce(&["check"])
        .expect(1, &["geonce.toml:3: source.a.precison", "config_unknown", "did you mean precision?"]);
    let report = folder.geonce(&["check", "--json"]).expect(1, &[]).json();
    assert_eq!((&report["well"], &report["findings"][0]["code"]), (&false.into(), &"config_unknown".into()));
    folder.geonce(&["serve"]).expect(2, &["config_unknown"]);
    folder.geonce(&["check", "--config", "not-there.toml"]).expect(2, &["not-there.toml", "[io]"]);
    folder.geonce(&["serve", "--listen", "nowhere"]).expect(2, &["--listen"]);
}

#[test]
fn check_shows_presets_and_compares_payloads_as_they_are_sent() {
    let config = r#"
        [source.vans]
        allow_unsigned = true
        preset = "traccar"
        [[test]]
        name = "a position is sent again"
        same = ["a.json", "a-again.json"]
        differ = ["a.json", "b.json"]
    "#;
    let position = r#"{"position":{"id":1,"deviceId":7,"deviceTime":"2026-01-14T15:34:17.000+00:00","latitude":49.5,"longitude":8.25}}"#;
    let folder = Folder::new(&[
        ("geonce.toml", config),
        ("a.json", position),
        ("a-again.json", &position.replace("\"id\":1", "\"id\":2").replace("+00:00", "+0000")),
        ("b.json", &position.replace("34:17", "34:18")),
    ]);
    folder.geonce(&["check"]).expect(0, &["✓ source vans: preset traccar", "✓ test: a position is sent again"]);
    std::fs::write(folder.path().join("b.json"), position.replace("latitude", "north")).unwrap();
    folder.geonce(&["check"]).expect(1, &["b.json", "/position/latitude"]);
}

#[test]
fn check_runs_the_tests_of_a_configuration_and_explains_what_fails() {
    let tests = r#"
        [[test]]
        name = "the same point"
        same = ["a.json", "a-again.json"]
        differ = ["a.json", "b.json"]
    "#;
    let folder = Folder::new(&[
        ("geonce.toml", &format!("{CONFIG}{tests}")),
        ("a.json", &feature("1", 13.4)),
        ("a-again.json", &feature("1", 13.4).replace("13.4", "1340e-2")),
        ("b.json", &feature("2", 13.4)),
    ]);
    folder
        .geonce(&["check"])
        .expect(0, &["✓ test: the same point", "✓ store: geonce-data/geonce.db will be made", "unsigned"]);
    assert!(!folder.path().join("geonce-data").exists(), "looking makes nothing");
    std::fs::write(folder.path().join("b.json"), feature("1", 13.4)).unwrap();
    folder.geonce(&["check"]).expect(1, &["a.json and b.json should be two events", "same key"]);
    std::fs::write(folder.path().join("a-again.json"), feature("1", 13.5)).unwrap();
    folder.geonce(&["check"]).expect(1, &["should be one event", "different keys"]);
    std::fs::remove_file(folder.path().join("b.json")).unwrap();
    folder.geonce(&["check"]).expect(1, &["b.json", "[io]"]);
}

#[test]
fn check_warns_of_what_is_rarely_meant() {
    let text =
        "[store]\nwindow = \"72h\"\n[source.a]\nallow_unsigned = true\nidentity = [\"/id\"]\nredelivery = \"75h\"\n";
    let folder = Folder::new(&[("geonce.toml", text)]);
    folder.geonce(&["check"]).expect(0, &["window_short", "no_version", "source a is unsigned"]);
    let wide = text.replace("72h", "7d").replace("identity", "version = \"/v\"\nidentity");
    std::fs::write(folder.path().join("geonce.toml"), wide).unwrap();
    let ran = folder.geonce(&["check"]).expect(0, &[]);
    assert!(!ran.out.contains("window_short") && !ran.out.contains("no_version"), "{}", ran.out);
    let fetching = "[source.a]\nallow_unsigned = true\npreset = \"arcgis\"\nidentity = [\"/id\"]\nversion = \"/arcgis/serverGen\"\n\
        fetch = { hosts = [\"http://gis.example:6080\"] }\n[sink.s]\nurl = \"gpkg:s.gpkg\"\nmode = \"upsert\"\n";
    std::fs::write(folder.path().join("geonce.toml"), fetching).unwrap();
    let fetched =
        ["fetched from http://gis.example:6080", "without encryption", "no token", "fetch_unsigned", "fetch_deletes"];
    folder.geonce(&["check"]).expect(0, &fetched);
    // What is asked of features is not asked of announcements, here neither.
    let change = |gens: &str| {
        let url = format!("http://gis.example:6080/FeatureServer/extractChanges?serverGens={gens}");
        format!(r#"{{"orgId":"o","serviceName":"s","layerId":0,"changesUrl":"{url}","events":["FeaturesCreated"]}}"#)
    };
    std::fs::write(folder.path().join("one.json"), change("[1,2]")).unwrap();
    std::fs::write(folder.path().join("two.json"), change("[2,3]")).unwrap();
    let pair = "[[test]]\nname = \"two\"\ndiffer = [\"one.json\", \"two.json\"]\n";
    std::fs::write(folder.path().join("geonce.toml"), format!("{fetching}{pair}")).unwrap();
    folder.geonce(&["check"]).expect(0, &["test: two"]);
    let late = text
        .replace("identity", "version = \"/properties/v\"\nlateness = \"1h\"\ndelete = { at = \"/gone\" }\nidentity")
        + "[[test]]\nname = \"two\"\ndiffer = [\"one.json\", \"two.json\"]\n";
    std::fs::write(folder.path().join("geonce.toml"), late).unwrap();
    let payload = |id: u32, version: &str| {
        let geometry = r#"{"type":"Point","coordinates":[1,2]}"#;
        format!(r#"{{"type":"Feature","id":{id},"geometry":{geometry},"properties":{{"v":{version}}}}}"#)
    };
    std::fs::write(folder.path().join("one.json"), payload(1, "\"2026-11-15T08:00:00Z\"")).unwrap();
    std::fs::write(folder.path().join("two.json"), payload(2, "17")).unwrap();
    folder.geonce(&["check"]).expect(0, &["delete_unused", "two.json is a number", "lateness_number"]);
    std::fs::write(folder.path().join("two.json"), payload(2, "\"2026-11-15T08:00:00Z\"")).unwrap();
    let ran = folder.geonce(&["check"]).expect(0, &["delete_unused"]);
    assert!(!ran.out.contains("lateness_number"), "{}", ran.out);
}

#[test]
fn a_saved_configuration_says_the_same_and_keeps_secrets() {
    let signed = "verify = { scheme = \"github\", secret = \"${HOOK}\" }";
    let text = CONFIG.replace("allow_unsigned = true", signed);
    let folder = Folder::new(&[("geonce.toml", &text)]);
    folder.geonce(&["serve", "--save-config", "-"]).expect(2, &["no variable HOOK", "config_variable"]);
    let secret = [("HOOK", "s3cret"), ("GEONCE_STORE__WINDOW", "9d")];
    let first =
        folder.geonce_with(&["serve", "--save-config", "-"], &secret).expect(0, &["${HOOK}", "window = \"9d\""]);
    assert!(!first.out.contains("s3cret"));
    folder.geonce_with(&["serve", "--save-config", "saved.toml"], &secret).expect(0, &[]);
    let again =
        folder.geonce_with(&["serve", "--config", "saved.toml", "--save-config", "-"], &secret[..1]).expect(0, &[]);
    let settings =
        |text: &str| text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(settings(&first.out), settings(&again.out));
    let empty = Folder::new(&[]);
    empty
        .geonce(&["serve", "--save-config", "-"])
        .expect(0, &["[source.default]", "gpkg:features.gpkg", "127.0.0.1:8787"]);
}

#[test]
fn every_shell_is_completed_and_every_command_has_help() {
    let folder = Folder::new(&[]);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        folder.geonce(&["completions", shell]).expect(0, &["geonce", "doctor"]);
    }
    for command in [
        "serve",
        "check",
        "doctor",
        "events list",
        "events show",
        "dead list",
        "dead show",
        "dead repair",
        "dead replay",
        "dead purge",
        "dead export",
    ] {
        let arguments: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        folder.geonce(&arguments).expect(0, &["--config", "Usage"]);
    }
}

#[test]
fn events_are_listed_filtered_and_shown() {
    let folder = Folder::new(&[("geonce.toml", CONFIG)]);
    folder.geonce(&["events", "list"]).expect(2, &["store_missing", "--data"]);
    let filled = Filled::new(&folder);
    let (first, _) = filled.accept(&feature("1", 13.4), None);
    let (_, again) = filled.accept(&feature("1", 13.4), None);
    assert!(matches!(again, Verdict::Duplicate { of, .. } if of == first));
    filled.deliver(&folder, true);
    let (second, _) = filled.accept(&feature("2", 13.5), None);
    // The gateway is still running: tools work beside it.
    let ran =
        folder.geonce(&["events", "list"]).expect(0, &[&first.to_string(), &second.to_string(), "applied", "ready"]);
    assert!(ran.out.find(&second.to_string()) < ran.out.find(&first.to_string()), "the latest comes first");
    let ran = folder.geonce(&["events", "list", "--state", "done", "--json", "--since", "2h"]).expect(0, &[]);
    let event = ran.json();
    assert_eq!((&event["event"], &event["duplicates"]), (&first.to_string().into(), &1.into()));
    folder.geonce(&["events", "list", "--until", "2h"]).expect(0, &["no events"]);
    folder.geonce(&["events", "list", "--since", "yesterday"]).expect(2, &["is no time", "2h for two hours ago"]);
    folder.geonce(&["events", "list", "--state", "gone"]).expect(2, &["ready, leased, done, dead"]);
    let key = event["key"].as_str().unwrap().to_owned();
    assert_eq!((&event["result"]["rows"], &event["result"]["key"]), (&1.into(), &event["key"]));
    let shown = folder.geonce(&["events", "show", &key]).expect(
        0,
        &[&first.to_string(), "applied", "\"table\":\"features.gpkg zones\"", "\"coordinates\": [13.4, 52.50]"],
    );
    assert!(shown.out.contains("a\\u009bb") && !shown.out.contains('\u{9b}'), "{}", shown.out);
    folder.geonce(&["events", "show", &second.to_string(), "--json"]).expect(0, &["\"coordinates\":[13.5,52.50]"]);
    assert_eq!(filled.lease("east-1").len(), 1);
    folder.geonce(&["events", "show", &second.to_string()]).expect(0, &["leased by east-1, 0 attempts"]);
    folder.geonce(&["events", "show", &second.to_string(), "--json"]).expect(0, &["\"holder\":\"east-1\""]);
    let nobody = Ids::new().next(SystemClock.now()).to_string();
    folder.geonce(&["events", "show", &nobody]).expect(1, &["event_unknown"]);
    folder.geonce(&["events", "show", "evt_x"]).expect(2, &["neither an event nor a key"]);
    filled.close();
}

#[test]
fn recorded_events_are_explained_under_the_policy_of_their_source() {
    let folder = Folder::new(&[("geonce.toml", CONFIG), ("c.json", &feature("1", 13.4))]);
    let filled = Filled::new(&folder);
    let (first, _) = filled.accept(&feature("1", 13.4), None);
    let (second, _) = filled.accept(&feature("1", 13.5), None);
    filled.close();
    let (first, second) = (first.to_string(), second.to_string());
    folder.geonce(&["explain", &first, &second]).expect(1, &["different keys"]);
    folder.geonce(&["explain", &first, "c.json", "--config", "geonce.toml"]).expect(0, &["same key"]);
    let nobody = Ids::new().next(SystemClock.now()).to_string();
    folder.geonce(&["explain", &first, &nobody]).expect(2, &["event_unknown"]);
}

#[test]
fn dead_events_are_listed_shown_exported_replayed_and_purged() {
    let folder = Folder::new(&[("geonce.toml", CONFIG)]);
    let filled = Filled::new(&folder);
    let (bad, _) = filled.accept(&feature("1", 13.4), Some(bounds()));
    filled.accept(&feature("2", 13.4), Some(bounds()));
    filled.accept(&feature("3", 13.4), Some(Cause::new(Class::Unavailable, "sink_timeout", "no answer")));
    let bad = bad.to_string();
    let list = folder
        .geonce(&["dead", "list"])
        .expect(0, &["geojson_bounds", "A longitude or latitude is out of range", "dead replay --code sink_timeout"]);
    assert!(list.out.lines().nth(1).unwrap().contains(" geojson_bounds  drones  "), "{}", list.out);
    let groups = folder.geonce(&["dead", "list", "--json", "--code", "geojson_bounds"]).expect(0, &[]).json();
    assert_eq!((&groups["events"], &groups["source"]), (&2.into(), &"drones".into()));
    let shown =
        folder.geonce(&["dead", "show", &bad]).expect(0, &["[geometry geojson_bounds] at /geometry/coordinates/0"]);
    let marked: Vec<&str> = shown.out.lines().filter(|line| line.contains("← here")).collect();
    assert!(matches!(marked[..], [line] if line.contains("\"coordinates\": [13.4, 52.50]")), "{}", shown.out);
    let exported = folder.geonce(&["dead", "export"]).expect(0, &["52.50"]);
    assert_eq!(exported.out.lines().count(), 3);
    for line in exported.out.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert!(event["payload"]["properties"]["id"].is_string() && event["cause"]["code"].is_string());
    }
    folder.geonce(&["dead", "replay"]).expect(2, &["say which", "--all"]);
    folder.geonce(&["dead", "replay", "--all"]).expect(2, &["consent", "--yes"]);
    folder
        .geonce(&["dead", "purge", "--code", "geojson_bounds", "--dry-run"])
        .expect(0, &["would purge 2 dead events"]);
    folder.geonce(&["dead", "replay", "--code", "sink_timeout", "--yes"]).expect(0, &["replayed 1"]);
    folder.geonce(&["dead", "purge", &bad, "--yes"]).expect(0, &["purged 1"]);
    folder.geonce(&["dead", "purge", &bad, "--yes"]).expect(1, &["no dead events"]);
    folder.geonce(&["events", "list", "--state", "ready"]).expect(0, &["ready"]);
    let report = folder.geonce(&["doctor", "--json"]).expect(0, &[]).json();
    let ledger = &report["ledgers"]["drones"];
    let numbers = ["received", "dead", "purged", "waiting", "difference"].map(|name| ledger[name].as_i64().unwrap());
    assert_eq!(numbers, [3, 1, 1, 1, 0]);
    filled.close();
}

#[test]
fn explain_says_whether_two_events_would_be_near_and_what_one_was_near_to() {
    let config = CONFIG
        .replace("sink = \"zones\"\n", "sink = \"zones\"\nnear = \"1 cm\"\n")
        .replace("version = \"/properties/at\"\n", "");
    let at = |latitude: &str| feature("a", 13.4).replace("52.50", latitude);
    let (here, seven_millimetres, two_metres) = (at("52.5"), at("52.500000063"), at("52.500018"));
    let folder = Folder::new(&[
        ("geonce.toml", &config),
        ("plain.toml", CONFIG),
        ("here.json", &here),
        ("near.json", &seven_millimetres),
        ("far.json", &two_metres),
        ("other.json", &seven_millimetres.replace("\"id\":\"a\"", "\"id\":\"b\"")),
    ]);
    let explain = |b: &str, more: &[&str]| {
        let words = [&["explain", "here.json", b, "--config", "geonce.toml"], more].concat();
        folder.geonce(&words)
    };
    explain("near.json", &[]).expect(1, &["near: yes, vertex 7.0 mm (at most 1 cm); near.json would be dropped"]);
    explain("far.json", &[]).expect(1, &["near: no, vertex 2.003 m (at most 1 cm)"]);
    explain("other.json", &[])
        .expect(1, &["near: no, they are not compared, their scopes differ (identity); vertex 7.0"]);
    let near = explain("near.json", &["--json"]).expect(1, &[]).json();
    let (near, measure) = (&near["near"], &near["near"]["measures"][0]);
    assert_eq!((&near["near"], &near["action"], &near["not_compared"]), (&true.into(), &"drop".into(), &Value::Null));
    assert_eq!((&measure["measure"], &measure["threshold"]), (&"vertex".into(), &0.01.into()));
    assert!((0.0069..0.0071).contains(&measure["value"].as_f64().unwrap()), "{measure}");
    let far = explain("far.json", &["--json"]).expect(1, &[]).json();
    assert_eq!((&far["near"]["near"], &far["near"]["action"]), (&false.into(), &Value::Null));
    let plain =
        folder.geonce(&["explain", "here.json", "near.json", "--config", "plain.toml", "--json"]).expect(1, &[]);
    assert_eq!(plain.json()["near"], Value::Null, "a source that does not look for near-duplicates has none");
    let same = explain("here.json", &["--json"]).expect(0, &[]).json();
    assert_eq!(same["near"], Value::Null, "the same event is not near to itself");

    // What was dropped says so, and to whom it was near.
    let filled = Filled::new(&folder);
    let (first, _) = filled.accept(&here, None);
    filled.deliver(&folder, false);
    let (second, _) = filled.accept(&seven_millimetres, None);
    let result = format!(r#"{{"near":{{"of":"{first}","measure":"vertex","value":0.007,"action":"drop"}}}}"#);
    let end = End::Done(Outcome::Near, Some(ResultText::new(result).unwrap()));
    let settlements =
        filled.lease("test").into_iter().map(|leased| Settlement { lease: leased.lease, end: end.clone() });
    filled.runtime.block_on(filled.store.settle(settlements.collect(), SystemClock.now())).unwrap();
    let (first, second) = (first.to_string(), second.to_string());
    let told = format!("{second} was near {first}, vertex 7.0 mm: dropped");
    folder.geonce(&["explain", &first, &second]).expect(1, &["near: yes, vertex 7.0 mm", &told]);
    let told = folder.geonce(&["explain", &first, &second, "--json"]).expect(1, &[]).json();
    assert_eq!((&told["was_near"]["a"], &told["was_near"]["b"]["of"]), (&Value::Null, &first.as_str().into()));
    let shown = folder.geonce(&["events", "show", &second]).expect(0, &["near", "vertex 7.0 mm: dropped", &first]);
    assert!(shown.out.contains(&format!("near       {first}, vertex")), "{}", shown.out);
    let shown = folder.geonce(&["events", "show", &second, "--json"]).expect(0, &[]).json();
    assert_eq!((&shown["near"]["of"], &shown["near"]["action"]), (&first.as_str().into(), &"drop".into()));
    filled.close();
}

/// A feature whose ring crosses itself.
fn crossing(id: &str) -> String {
    let geometry = r#"{"type":"Polygon","coordinates":[[[0,0],[2,2],[2,0],[0,2],[0,0]]]}"#;
    format!(r#"{{"type":"Feature","geometry":{geometry},"properties":{{"id":"{id}","at":1}}}}"#)
}

#[test]
fn dead_events_are_repaired_once_and_linked_both_ways() {
    let folder = Folder::new(&[("geonce.toml", CONFIG)]);
    let filled = Filled::new(&folder);
    let broken = || Some(Cause::new(Class::Geometry, "self_intersection", "It crosses itself."));
    let (one, _) = filled.accept(&crossing("a"), broken());
    filled.accept(&crossing("b"), broken());
    let (timeout, _) = filled.accept(&feature("c", 1.0), Some(Cause::new(Class::Unavailable, "sink_timeout", "")));
    let one = one.to_string();
    // Beside a gateway only looking is possible.
    folder.geonce(&["dead", "repair", &one, "--yes"]).expect(2, &["gateway_running", "/api/v1/repairs"]);
    let looked = folder
        .geonce(&["dead", "repair", &one, "--dry-run"])
        .expect(0, &["POLYGON", "MULTIPOLYGON", "would repair 1 of 1"]);
    assert!(looked.out.contains("→ grid") && looked.out.contains("at most 0.000 m"), "{}", looked.out);
    filled.close();
    folder
        .geonce(&["dead"])
        .expect(0, &["self_intersection", "geonce dead repair --code self_intersection --dry-run", "sink_timeout"]);
    folder.geonce(&["dead", "repair"]).expect(2, &["say which"]);
    folder.geonce(&["dead", "repair", "--all", "--with", "glue"]).expect(2, &["glue", "close-rings"]);
    folder.geonce(&["dead", "repair", "--all"]).expect(2, &["consent", "--yes"]);
    let planned = folder.geonce(&["dead", "repair", &one, "--dry-run", "--json"]).expect(0, &[]).json();
    assert_eq!((&planned["valid"], &planned["positions"]["after"]), (&true.into(), &8.into()));
    folder
        .geonce(&["dead", "repair", "--all", "--with", "close-rings", "--yes"])
        .expect(1, &["self_intersection", "repaired 0 of 3"]);
    let done = folder
        .geonce(&["dead", "repair", "--code", "self_intersection", "--yes", "--rate", "50/s"])
        .expect(0, &["repaired as evt_", "repaired 2 of 2"]);
    assert!(done.out.contains("accepted"), "{}", done.out);
    folder.geonce(&["dead", "repair", &one, "--yes"]).expect(1, &["no dead events to repair"]);
    let old = folder.geonce(&["events", "show", &one, "--json"]).expect(0, &[]).json();
    let became = old["repaired"].as_str().unwrap().to_owned();
    assert_eq!((&old["outcome"], &old["result"]["verdict"]), (&"repaired".into(), &"accepted".into()));
    let new = folder.geonce(&["events", "show", &became, "--json"]).expect(0, &[]).json();
    assert_eq!((&new["origin"]["event"], &new["key"]), (&one.as_str().into(), &planned["key"]));
    folder.geonce(&["events", "show", &became]).expect(0, &["a repair of", &one]);
    folder.geonce(&["events", "show", &one]).expect(0, &["became", &became]);
    folder.geonce(&["dead", "replay", &timeout.to_string(), "--yes", "--rate", "fast"]).expect(2, &["50/s"]);
    folder.geonce(&["dead", "replay", &timeout.to_string(), "--yes", "--rate", "50/s"]).expect(0, &["replayed 1 of 1"]);
    // Who did what is in the store.
    let trail =
        folder.geonce_with(&["events", "list", "--source", "@audit", "--json"], &[("USER", "ada")]).expect(0, &[]);
    assert_eq!(trail.out.lines().count(), 3, "{}", trail.out);
    let last: Value = serde_json::from_str(trail.out.lines().next().unwrap()).unwrap();
    assert_eq!((&last["state"], &last["result"]["replayed"]), (&"done".into(), &1.into()));
    let shown = folder.geonce(&["events", "show", last["event"].as_str().unwrap()]).expect(0, &["replay", "asked"]);
    assert!(shown.out.contains("who"), "{}", shown.out);
    let doctor = folder.geonce(&["doctor", "--json"]).json();
    let ledger = &doctor["ledgers"]["drones"];
    assert_eq!((&ledger["repaired"], &ledger["waiting"]), (&2.into(), &3.into()), "{doctor}");
}

#[test]
fn the_doctor_shows_books_that_sum_and_a_sink_that_agrees() {
    let folder = Folder::new(&[("geonce.toml", CONFIG)]);
    let filled = Filled::new(&folder);
    filled.accept(&feature("1", 13.4), None);
    filled.accept(&feature("1", 13.4), None);
    filled.deliver(&folder, true);
    filled.store.count(vec![Counted::Refused { source: "drones".into(), code: "json_syntax".to_owned() }]);
    filled.close();
    folder.geonce(&["doctor", "--audit", "--reconcile"]).expect(
        0,
        &[
            "1 refused + 1 duplicate + 1 applied = 3 received",
            "✓ store",
            "1 keys made again",
            "1 of 1 applied events proven",
        ],
    );
}

#[test]
fn the_doctor_finds_what_the_sink_lacks() {
    let folder = Folder::new(&[("geonce.toml", CONFIG)]);
    let filled = Filled::new(&folder);
    filled.accept(&feature("1", 13.4), None);
    filled.deliver(&folder, true);
    let (lost, _) = filled.accept(&feature("2", 13.4), None);
    filled.deliver(&folder, false);
    filled.close();
    let expected =
        [&lost.to_string(), "1 missing at the sink", "1 of 2 applied events proven", "✗ store and sink zones"];
    folder.geonce(&["doctor", "--reconcile"]).expect(1, &expected);
}

#[test]
fn the_doctor_finds_what_the_store_has_never_seen() {
    let folder = Folder::new(&[("geonce.toml", CONFIG)]);
    let filled = Filled::new(&folder);
    let (known, _) = filled.accept(&feature("1", 13.4), None);
    filled.deliver(&folder, true);
    filled.close();
    let data = folder.path().join("geonce-data");
    for entry in std::fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.file_name().unwrap().to_string_lossy().starts_with("geonce.db") {
            if entry.is_dir() { std::fs::remove_dir_all(entry).unwrap() } else { std::fs::remove_file(entry).unwrap() }
        }
    }
    Filled::new(&folder).close();
    let expected = [&known.to_string(), "1 at the sink and never seen by this store"];
    folder.geonce(&["doctor", "--reconcile"]).expect(1, &expected);
}

#[test]
fn the_doctor_notices_that_the_policy_has_changed() {
    let folder = Folder::new(&[("geonce.toml", CONFIG)]);
    let filled = Filled::new(&folder);
    let (event, _) = filled.accept(&feature("1", 13.4), None);
    filled.close();
    folder.geonce(&["doctor", "--audit"]).expect(0, &["1 keys made again"]);
    let other = CONFIG.replace("identity", "precision = 5\nidentity").replace("/properties/id", "/properties/note");
    std::fs::write(folder.path().join("geonce.toml"), other).unwrap();
    folder.geonce(&["doctor", "--audit"]).expect(1, &["1 keys differ", &event.to_string(), "previous"]);
}

#[test]
fn keys_are_the_same_with_and_without_a_gateway() {
    let folder = Folder::new(&[("geonce.toml", CONFIG), ("a.json", &feature("1", 13.4))]);
    let made = Keyer::new(&policy()).unwrap().key(Input::json(feature("1", 13.4).as_bytes())).unwrap();
    folder.geonce(&["key", "a.json", "--config", "geonce.toml"]).expect(0, &[&made.fingerprint.text(Encoding::Base64)]);
}

#[test]
fn the_configurations_that_the_documentation_shows_can_be_loaded() {
    let secrets = [
        "DRONES_SECRET",
        "PARTNER_SECRET",
        "PARCELS_SECRET",
        "PORTAL_PASSWORD",
        "ARCGIS_SECRET",
        "ARCGIS_TOKEN",
        "NEW",
        "OLD",
    ];
    let variables: Vec<(&str, &str)> = secrets.iter().map(|&name| (name, "d2hpc3BlciBpdCBzb2Z0bHk=")).collect();
    let mut loaded = 0;
    for page in ["README.md", "docs/configuration.md", "docs/signatures.md", "docs/presets.md"] {
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page)).unwrap();
        for block in text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
            let example = match block {
                // Needs files of its own.
                fragment if fragment.starts_with("[[test]]") => continue,
                fragment if fragment.starts_with("verify") => format!("[source.a]\n{fragment}"),
                fragment if fragment.starts_with("map") => format!("[source.a]\nallow_unsigned = true\n{fragment}"),
                whole => whole.to_owned(),
            };
            let folder = Folder::new(&[("geonce.toml", &example)]);
            let ran = folder.geonce_with(&["serve", "--save-config", "-"], &variables);
            assert_eq!(ran.code, 0, "{page}: {example}\n{}", ran.err);
            loaded += 1;
        }
    }
    assert_eq!(loaded, 8);
}
