//! What a configuration comes to, and what is said about one that is wrong.

use super::verify::Shown;
use super::*;
use geonce::intake::{Identify, Invalid};
use geonce::signature::Scheme;
use geonce::sink::{Columns, Isolation};
use geonce_key::Property;
use geonce_key::near::Measure;
use geonce_key::policy::Dimensions;
use std::fmt::Write;

const WEBHOOK_SECRET: &str = "whsec_Z2VvbmNlIGtlZXBzIHdoYXQgaXQgYWNjZXB0cy4h";

/// The file that the documentation shows, as far as this release goes.
const WHOLE: &str = r#"
[store]
url = "sqlite:geonce.db"
window = "7d"
dead_retention = "30d"
keep_payload = true
accept_loss = ""

[source.drones]
verify    = { scheme = "standard-webhooks", secret = "${DRONES_SECRET}" }
identity  = ["/properties/asset_id", { at = "/properties/floor", optional = true }]
version   = "/properties/observed_at"
lateness  = "6h"
delete    = { at = "/properties/status", equals = "deleted" }
identify  = "auto"
scope     = "drones"
precision = 7
precision_z = 3
dimensions = "delivered"
lines     = "directed"
parts     = "sorted"
shape     = "exact"
crs       = "EPSG:4326"
approximate_crs = false
close_rings = false
key_secret = ""
feature   = ""
preset    = "geojson"
accept    = { types = ["Point", "Polygon"], bounds = [-10, 35, 30, 60], schema = "event.schema.json" }
invalid   = "dead"
redelivery = "72h"
fresh_status = 200
ack_within = "5s"
body_max  = "10MB"
on_store_down = "refuse"
order     = "none"
previous  = "old.toml"
sink      = ["zones", "copy"]

[sink.zones]
url   = "gpkg:features.gpkg"
layer = "zones"
mode  = "upsert"
entity = ["/properties/asset_id"]
columns = { name = "/properties/name", max = "/properties/max" }
crs   = "EPSG:3857"
retry = { base = "2s", cap = "60s", attempts = 6, give_up_after = "7d" }

[sink.copy]
url = "https://example.org/hook"
secret = "literal"
allow = ["10.0.0.0/8"]
timeout = "3s"
columns = { max = 8 }

[limits]
depth_max = 32
features_max = 500
buffered_bytes_max = "64MiB"

[log]
level = "debug"
format = "json"

[admin]
token_file = "admin.token"

[[test]]
name = "retry with drift is the same event"
source = "drones"
same = ["a.json", "a-drift.json"]
differ = ["a.json", "b.json"]
"#;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(text: &str) -> Folder {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), text).unwrap();
        std::fs::write(folder.path().join("old.toml"), "[source.drones]\nprecision = 6\n").unwrap();
        std::fs::write(folder.path().join("event.schema.json"), "{}").unwrap();
        std::fs::write(folder.path().join("secret"), "whsec_abc\n").unwrap();
        Folder(folder)
    }

    fn load(&self, variables: &[(&str, &str)]) -> Result<Settings, Failure> {
        load_in(&Overrides::default(), &Environment::of(variables), self.0.path())
    }
}

fn load(text: &str, variables: &[(&str, &str)]) -> Result<Settings, Failure> {
    Folder::new(text).load(variables)
}

fn refused(text: &str, variables: &[(&str, &str)]) -> String {
    load(text, variables).map(|settings| settings.to_toml()).unwrap_err().to_string()
}

#[test]
fn the_whole_file_becomes_settings() {
    let settings = load(WHOLE, &[("DRONES_SECRET", WEBHOOK_SECRET)]).unwrap();
    let drones = &settings.sources["drones"];
    assert_eq!(settings.store.options.window, Duration::from_hours(168));
    assert_eq!(drones.policy.previous.as_ref().unwrap().precision, 6);
    assert_eq!(drones.policy.accept.schema.as_deref(), Some("{}"));
    assert_eq!(drones.policy.limits.depth_max, 32);
    assert_eq!((drones.identify, drones.invalid, drones.fresh_status), (Identify::Auto, Invalid::Dead, 200));
    assert_eq!((drones.redelivery, drones.lateness), (Some(Duration::from_hours(72)), Some(Duration::from_hours(6))));
    let deletion = drones.policy.delete.as_ref().unwrap();
    assert_eq!((deletion.at.as_str(), &deletion.equals), ("/properties/status", &Property::Text("deleted".to_owned())));
    assert_eq!(drones.body_bytes_max, 10_000_000);
    assert_eq!(drones.sinks, ["zones", "copy"]);
    let verify = drones.verify.as_ref().unwrap();
    assert!(matches!(verify.scheme, Scheme::StandardWebhooks));
    assert_eq!(verify.secrets[0].live.secret.bytes(), WEBHOOK_SECRET.as_bytes());
    let zones = &settings.sinks["zones"];
    assert_eq!(zones.options.mode, Mode::Upsert { arrival: false });
    assert_eq!(zones.options.crs, 3857);
    assert!(matches!(&zones.options.columns, Columns::Declared(columns) if columns.len() == 2));
    assert_eq!(settings.sinks["copy"].options.columns, Columns::Auto { max: 8 });
    assert_eq!(settings.sinks["copy"].options.timeout, Duration::from_secs(3));
    assert_eq!(settings.limits.features_max, 500);
    assert_eq!(settings.tests[0].same.len(), 2);
    assert_eq!(settings.notices, ["[admin] has no effect: the token of the API is in [api]"]);
}

#[test]
fn without_a_file_there_is_one_unsigned_source_and_a_geopackage_on_this_machine() {
    let nowhere = tempfile::tempdir().unwrap();
    let settings = load_in(&Overrides::default(), &Environment::default(), nowhere.path()).unwrap();
    assert!(settings.listen.ip().is_loopback());
    assert_eq!(settings.data, Path::new("geonce-data"));
    assert_eq!(&*settings.store.url, "sqlite:geonce.db");
    assert_eq!(settings.sinks["features"].url.to_string(), "gpkg:features.gpkg");
    assert_eq!(settings.sources["default"].sinks, ["features"]);
    assert_eq!(settings.sources["default"].policy.scope, "default");
    assert_eq!(settings.notices, ["source default is unsigned: whoever reaches the gateway may send to it"]);
    let open = Overrides { listen: Some("0.0.0.0:8787".parse().unwrap()), ..Overrides::default() };
    let failure = load_in(&open, &Environment::default(), nowhere.path()).unwrap_err();
    assert_eq!(failure.code(), "config_listen");
}

#[test]
fn the_environment_overrides_the_file_and_flags_override_both() {
    let text = "[store]\nurl = \"sqlite:file.db\"\n[source.Field-App]\nallow_unsigned = true\nprecision = 5\n";
    let variables = [
        ("GEONCE_STORE__URL", "sqlite:environment.db"),
        ("GEONCE_SOURCE__FIELD_APP__PRECISION", "6"),
        ("GEONCE_SOURCE__FIELD_APP__IDENTITY", "[\"/properties/a\", { at = \"/properties/b\", optional = true }]"),
        ("GEONCE_SOURCE__OTHER__VERIFY__SCHEME", "github"),
        ("GEONCE_SOURCE__OTHER__VERIFY__SECRET", "12345"),
        ("GEONCE_BLESS", "not a setting"),
    ];
    let folder = Folder::new(text);
    let settings = folder.load(&variables).unwrap();
    assert_eq!(&*settings.store.url, "sqlite:environment.db");
    assert_eq!(settings.sources["Field-App"].policy.precision, 6);
    assert!(matches!(&settings.sources["Field-App"].policy.identity, Identity::Fields(fields) if fields.len() == 2));
    let other = settings.sources["other"].verify.as_ref().unwrap();
    assert_eq!(other.secrets[0].live.secret.bytes(), b"12345");
    assert_eq!(other.secrets[0].shown, Shown::Variable("GEONCE_SOURCE__OTHER__VERIFY__SECRET".to_owned()));
    let flags = Overrides { store: Some("sqlite:flag.db".to_owned()), ..Overrides::default() };
    let settings = load_in(&flags, &Environment::of(&variables), folder.0.path()).unwrap();
    assert_eq!(&*settings.store.url, "sqlite:flag.db");
}

/// A source that nothing is wrong with, and what follows it.
fn source(more: &str) -> String {
    format!("[source.a]\nallow_unsigned = true\n{more}")
}

#[test]
fn what_is_wrong_is_said_with_its_place_its_code_and_a_hint() {
    let unsigned = "[source.a]\nallow_unsigned = true\n";
    for (text, expected) in [
        (
            "[source.a]\nprecison = 6".to_owned(),
            ["geonce.toml:2: source.a.precison", "config_unknown", "did you mean precision?"],
        ),
        ("[sorce.a]".to_owned(), ["geonce.toml:1: sorce:", "config_unknown", "did you mean source?"]),
        ("x = ".to_owned(), ["geonce.toml:1", "config_invalid", "not TOML"]),
        ("[source.a]\n".to_owned(), ["geonce.toml:1: source.a:", "config_value", "allow_unsigned = true"]),
        (source("precision = \"six\""), ["geonce.toml:3: source.a.precision", "config_value", "expected u8"]),
        (source("precision = 12"), ["source.a", "config_value", "0 to 9"]),
        (
            source("lines = \"undirecte\""),
            ["geonce.toml:3: source.a.lines", "config_value", "did you mean \"undirected\"?"],
        ),
        (source("dimensions = 4"), ["geonce.toml:3: source.a.dimensions", "config_value", "2 or 3"]),
        (source("identity = [\"\"]"), ["geonce.toml:3: source.a.identity", "config_value", "empty pointer"]),
        (
            source("identity = [{ att = \"/x\" }]"),
            ["geonce.toml:3: source.a.identity", "config_value", "{ at, optional, decimals }"],
        ),
        (source("identity = [\"/id\"]\nignore = [\"/x\"]"), ["source.a.identity", "config_value", "ignore goes with"]),
        (source("crs = \"EPSG:1\""), ["geonce.toml:3: source.a.crs", "config_value", "EPSG"]),
        (source("fresh_status = 204"), ["geonce.toml:3: source.a.fresh_status", "config_value", "202 or 200"]),
        (source("lateness = \"1h\""), ["geonce.toml:3: source.a.lateness", "config_value", "observed_at"]),
        (source("version = \"arrival\"\nlateness = \"1h\""), ["source.a.lateness", "config_value", "observed_at"]),
        (source("version = \"/v\"\nlateness = \"0s\""), ["source.a.lateness", "config_value", "longer than nothing"]),
        (source("delete = { at = \"status\" }"), ["geonce.toml:3: source.a.delete", "config_value", "starts with '/'"]),
        (source("delete = { equals = 1 }"), ["geonce.toml:3: source.a.delete", "config_value", "at"]),
        (source("delete = { at = \"/x\", equals = [1] }"), ["source.a.delete", "config_value", "true or false"]),
        (source("ack_within = \"5\""), ["geonce.toml:3: source.a.ack_within", "config_value", "72h"]),
        (source("ack_within = \"0s\""), ["geonce.toml:3: source.a.ack_within", "config_value", "longer than nothing"]),
        (source("body_max = \"ten\""), ["geonce.toml:3: source.a.body_max", "config_value", "64KiB"]),
        (source("body_max = \"500MB\""), ["geonce.toml:3: source.a.body_max", "config_value", "buffered_bytes_max"]),
        (
            source("sink = \"zone\"\n[sink.zones]\nurl = \"gpkg:x\""),
            ["geonce.toml:3: source.a.sink", "no sink", "did you mean \"zones\"?"],
        ),
        (
            source("[sink.a]\nurl = \"gpkg:x\"\n[sink.b]\nurl = \"gpkg:y\""),
            ["source.a.sink", "config_value", "say which"],
        ),
        (source("[sink.a]\nlayer = \"x\""), ["geonce.toml:3: sink.a.url", "config_value", "gpkg:features.gpkg"]),
        (source("[sink.a]\nurl = \"ftp://x\""), ["geonce.toml:4: sink.a.url", "config_value", "gpkg:features.gpkg"]),
        (
            source("[sink.a]\nurl = \"https://u:p@x/\""),
            ["geonce.toml:4: sink.a.url", "config_value", "neither user nor password"],
        ),
        (source("[sink.a]\nurl = \"gpkg:x\"\nmode = \"upsert\""), ["source.a.version", "config_value", "arrival"]),
        (
            source("version = \"/v\"\n[sink.a]\nurl = \"gpkg:x\"\nmode = \"upsert\""),
            ["sink.a.entity", "config_value", "asset_id"],
        ),
        (
            source("[sink.a]\nurl = \"gpkg:x\"\nretry = { base = \"9m\", cap = \"1s\" }"),
            ["geonce.toml:5: sink.a.retry.cap", "config_value", "less than base"],
        ),
        (
            source("[sink.a]\nurl = \"gpkg:x\"\ncolumns = \"all\""),
            ["geonce.toml:5: sink.a.columns", "config_value", "\"auto\""],
        ),
        (source("[limits]\ndepth_max = 0"), ["geonce.toml:4: limits.depth_max", "config_value", "at least 1"]),
        (source("[limits]\ndepth_max = 999"), ["source.a", "config_value", "at most 256"]),
        (source("[[test]]\nname = \"x\"\nsame = [\"a\"]"), ["geonce.toml:3: test[0]", "config_value", "at least two"]),
        (
            source("[[test]]\nname = \"x\"\nsource = \"b\"\nsame = [\"a\", \"b\"]"),
            ["geonce.toml:5: test[0].source", "config_value", "no source"],
        ),
        (source("[source.\"b c\"]\nallow_unsigned = true"), ["geonce.toml:3: source.b c", "config_value", "letters"]),
        ("[store]\nwindow = \"7d\"".to_owned(), ["source", "config_value", "no source"]),
        (
            "[store]\nurl = \"mysql:x\"\n".to_owned() + unsigned,
            ["geonce.toml:2: store.url", "config_value", "sqlite:geonce.db"],
        ),
    ] {
        let failure = refused(&text, &[]);
        assert!(expected.iter().all(|part| failure.contains(part)), "{text}\n{failure}\n{expected:?}");
    }
}

#[test]
fn what_is_near_is_said_in_a_distance_or_in_full_and_saved_as_it_is() {
    let all = r#"near = { vertex = "1 cm", iou = 0.9, within = "80 m", period = "1h", scope = "source", action = "merge", merge = "mean", ignore = ["/properties/at"] }"#;
    for (text, expected) in
        [("near = \"1 cm\"", vec![(Measure::Vertex, 0.01)]), (all, vec![(Measure::Vertex, 0.01), (Measure::Iou, 0.9)])]
    {
        let settings = load(&source(text), &[]).unwrap();
        let near = settings.sources["a"].near.clone().unwrap();
        assert_eq!(near.measures, expected);
        let saved = settings.to_toml();
        assert_eq!(load(&saved, &[]).unwrap().sources["a"].near, Some(near), "{saved}");
    }
    for (text, path) in [
        ("near = {}", "source.a.near"),
        ("near = \"1 parsec\"", "source.a.near"),
        ("near = \"51 km\"", "source.a.near.vertex"),
        ("near = { iou = 1.5 }", "source.a.near.iou"),
        ("near = { vertex = \"1 m\", period = \"8d\" }", "source.a.near.period"),
        ("near = { vertex = \"1 m\", scope = \"entity\" }", "source.a.near.scope"),
        ("near = { vertex = \"1 m\", merge = \"mean\" }", "source.a.near.merge"),
        ("near = { vertex = \"1 m\", action = \"merge\" }\n[sink.s]\nurl = \"ndjson:x\"", "source.a.near.action"),
    ] {
        let failure = refused(&source(text), &[]);
        assert!(failure.contains(&format!(" {path}: ")), "{text}\n{failure}");
    }
}

#[test]
fn what_this_release_cannot_do_is_refused_by_name() {
    let text = source("[sink.s]\nurl = \"gpkg:x\"\napplied_retention = \"7d\"");
    let failure = refused(&text, &[]);
    assert!(failure.contains("[config_not_yet]") && failure.contains(" sink.s.applied_retention: "), "{failure}");
}

/// A saved configuration without the lines that say where it comes from.
fn without_comments(saved: &str) -> String {
    saved.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_preset_brings_its_identity_version_and_types_where_the_source_says_none() {
    let settings = load(&source("preset = \"traccar\""), &[]).unwrap();
    let traccar = &settings.sources["a"];
    assert_eq!((traccar.preset.name(), traccar.identify), ("traccar", Identify::Auto));
    assert_eq!(traccar.policy.version.as_ref().map(Pointer::as_str), Some("/properties/time"));
    let Identity::Fields(fields) = &traccar.policy.identity else { panic!("{:?}", traccar.policy.identity) };
    assert_eq!((fields[0].at.as_str(), fields[0].optional, fields[1].optional), ("/properties/deviceId", false, true));
    assert!(traccar.policy.accept.types.as_ref().unwrap().contains(&"null".to_owned()));
    let saved = settings.to_toml();
    assert!(saved.contains("preset = \"traccar\""), "{saved}");
    assert_eq!(without_comments(&load(&saved, &[]).unwrap().to_toml()), without_comments(&saved));

    let said = "preset = \"wis2\"\nidentity = [\"/id\"]\nversion = \"/properties/datetime\"\nidentify = \"auto\"\naccept = { types = [\"Point\"] }";
    let settings = load(&source(said), &[]).unwrap();
    let wis2 = &settings.sources["a"];
    assert_eq!(wis2.policy.version.as_ref().map(Pointer::as_str), Some("/properties/datetime"));
    assert!(matches!(&wis2.policy.identity, Identity::Fields(fields) if fields[0].at.as_str() == "/id"));
    assert_eq!((wis2.identify, wis2.policy.accept.types.as_ref().unwrap().len()), (Identify::Auto, 1));
    let arrival = load(&source("preset = \"wis2\"\nversion = \"arrival\""), &[]).unwrap();
    assert!(arrival.sources["a"].arrival && arrival.sources["a"].policy.version.is_none());
    assert_eq!(load(&source("preset = \"wis2\""), &[]).unwrap().sources["a"].identify, Identify::Spatial);
    assert_eq!(
        (wis2.fresh_status, load(&source("preset = \"tile38\""), &[]).unwrap().sources["a"].fresh_status),
        (202, 200)
    );
    for preset in geonce::intake::Preset::NAMED {
        let settings = load(&source(&format!("preset = {:?}", preset.name())), &[]).unwrap();
        assert_eq!(settings.sources["a"].preset, preset);
    }
}

#[test]
fn what_says_that_an_entity_is_gone_is_read_and_saved() {
    for (equals, expected) in [
        ("", Property::Boolean(true)),
        (", equals = false", Property::Boolean(false)),
        (", equals = -3", Property::Integer(-3)),
        (", equals = 3.0", Property::Integer(3)),
        (", equals = 0.5", Property::Real(0.5)),
        (", equals = \"gone\"", Property::Text("gone".to_owned())),
    ] {
        let settings = load(&source(&format!("delete = {{ at = \"/properties/x\"{equals} }}")), &[]).unwrap();
        assert_eq!(settings.sources["a"].policy.delete.as_ref().unwrap().equals, expected);
        let saved = settings.to_toml();
        assert_eq!(without_comments(&load(&saved, &[]).unwrap().to_toml()), without_comments(&saved));
    }
}

#[test]
fn fetching_needs_hosts_and_a_sender_that_announces_and_is_saved_without_its_token() {
    let with = |fetch: &str| source(&format!("preset = \"arcgis\"\nfetch = {{ {fetch} }}"));
    let text = with(
        "hosts = [\"services.arcgis.com\", \"http://gis.example:6080\"], token = \"${T}\", allow = [\"10.0.0.0/8\"], body_max = \"1MB\", timeout = \"5s\", retry = { attempts = 3 }",
    );
    let settings = load(&text, &[("T", "t0k3n-t0k3n")]).unwrap();
    let fetch = settings.sources["a"].fetch.as_ref().unwrap();
    assert_eq!((fetch.options.hosts.len(), fetch.options.bytes_max, fetch.retry.attempts), (2, 1_000_000, 3));
    assert_eq!(fetch.retry.give_up_after, settings.store.options.window);
    let saved = settings.to_toml();
    assert!(saved.contains("token = \"${T}\"") && !saved.contains("t0k3n"), "{saved}");
    let again = load(&saved, &[("T", "t0k3n-t0k3n")]).unwrap().to_toml();
    assert_eq!(without_comments(&again), without_comments(&saved));
    assert!(!load(&with("hosts = [\"a\"], token = \"t0k3n-t0k3n\""), &[]).unwrap().to_toml().contains("t0k3n"));
    assert!(load(&source("preset = \"arcgis\""), &[]).unwrap().sources["a"].fetch.is_none());
    for (wrong, expected) in [
        ("", ["source.a.fetch.hosts", "services.arcgis.com"]),
        ("hosts = []", ["source.a.fetch.hosts", "services.arcgis.com"]),
        ("hosts = [\"https://a/b\"]", ["source.a.fetch", "is no host"]),
        ("hosts = [\"a\"], allow = [\"10.0.0.1/8\"]", ["source.a.fetch", "has bits set"]),
        ("hosts = [\"a\"], body_max = \"1GB\"", ["source.a.fetch.body_max", "limits.bytes_max"]),
        ("hosts = [\"a\"], timeout = \"0s\"", ["source.a.fetch.timeout", "longer than nothing"]),
        ("hosts = [\"a\"], token = \"(hidden)\"", ["source.a.fetch.token", "hidden"]),
        ("hosts = [\"a\"], token = { file = \"nowhere\" }", ["source.a.fetch", "nowhere"]),
        ("hosts = [\"a\"], host = \"a\"", ["host", "hosts"]),
    ] {
        let failure = refused(&with(wrong), &[]);
        assert!(expected.iter().all(|part| failure.contains(part)), "{wrong}: {failure}");
    }
    let failure = refused(&source("fetch = { hosts = [\"a\"] }"), &[]);
    assert!(failure.contains("geojson announce no changes"), "{failure}");
    let shared = "[source.a]\nallow_unsigned = true\nscope = \"s\"\n[source.b]\nallow_unsigned = true\nscope = \"s\"\npreset = \"arcgis\"\nfetch = { hosts = [\"x\"] }";
    assert!(refused(shared, &[]).contains("only one of them fetches"));
}

#[test]
fn a_map_is_read_checked_and_saved() {
    let settings = load(&source("map = { items = \"/e\", lon = \"/x\", lat = \"/y\", id = \"/id\" }"), &[]).unwrap();
    let saved = settings.to_toml();
    assert!(saved.contains("map = { id = \"/id\", items = \"/e\", lat = \"/y\", lon = \"/x\" }"), "{saved}");
    assert_eq!(without_comments(&load(&saved, &[]).unwrap().to_toml()), without_comments(&saved));
    for (text, parts) in [
        ("preset = \"arcgs\"", ["source.a.preset", "arcgis"]),
        ("preset = \"arcgis\"\nfeature = \"/data\"", ["source.a.feature", "arcgis"]),
        ("preset = \"arcgis\"\nmap = { wkt = \"/g\" }", ["source.a.map", "both"]),
        ("map = { lon = \"/x\" }", ["source.a.map", "lon and lat"]),
        ("map = { wkt = \"/g\", wkb = \"/h\" }", ["source.a.map", "one way"]),
        ("map = { wkt = \"g\" }", ["source.a.map.wkt", "starts with"]),
        ("map = { wtk = \"/g\" }", ["wtk", "wkt"]),
    ] {
        let failure = refused(&source(text), &[]);
        assert!(parts.iter().all(|part| failure.contains(part)), "{text}\n{failure}");
    }
}

#[test]
fn a_cache_is_read_checked_and_saved_without_its_password() {
    let text = |cache: &str| format!("[cache]\n{cache}\n{}", source("cache = false"));
    let settings = load(&text("url = \"redis://me:s3cret@host:1/2\"\nbudget = \"20ms\"\nkeys = 5000"), &[]).unwrap();
    let cache = settings.cache.as_ref().unwrap().settings(settings.store.options.window, &settings.sources);
    assert_eq!(
        (&*cache.url, cache.budget, cache.keys),
        ("redis://me:s3cret@host:1/2", Duration::from_millis(20), 5_000)
    );
    assert_eq!((cache.window, cache.recent), (Duration::from_hours(168), 65_536));
    assert!(cache.excluded.contains("a"));
    let saved = settings.to_toml();
    assert!(saved.contains("[cache]\nurl = \"redis://me:(hidden)@host:1/2\"\nbudget = \"20ms\""), "{saved}");
    assert!(!format!("{saved}{settings:?}").contains("s3cret"));
    for (cache, path) in [
        ("", "cache.url"),
        ("url = \"http://x\"", "cache.url"),
        ("url = \"redis://me:(hidden)@x\"", "cache.url"),
        ("url = \"redis://x\"\nprefix = \"a b\"", "cache.prefix"),
        ("url = \"redis://x\"\nbudget = \"0s\"", "cache.budget"),
        ("url = \"redis://x\"\nbudget = \"1m\"", "cache.budget"),
        ("url = \"redis://x\"\nrecent = 99999999", "cache.recent"),
    ] {
        let failure = refused(&text(cache), &[]);
        assert!(failure.contains("[config_value]") && failure.contains(&format!(" {path}: ")), "{cache}\n{failure}");
    }
    let notices = load(&source("cache = false"), &[]).unwrap().notices;
    assert!(notices.iter().any(|notice| notice.contains("cache = false has no effect")), "{notices:?}");
}

#[test]
fn a_shared_store_may_have_a_journal_and_a_sentence_that_accepts_loss() {
    let text = |store: &str| format!("[store]\n{store}\n{}", source("on_store_down = \"spill\""));
    let url = "url = \"postgresql://me:word@host/gis?schema=events\"";
    let settings = load(&text(&format!("{url}\nspill_max = \"2MB\"")), &[]).unwrap();
    assert_eq!(settings.sources["a"].on_store_down, OnStoreDown::Spill);
    assert_eq!((settings.store.spill_bytes_max, settings.store.options.accept_loss), (2_000_000, false));
    let saved = settings.to_toml();
    assert!(saved.contains("me:(hidden)@host") && saved.contains("on_store_down = \"spill\""), "{saved}");
    assert!(refused(&saved, &[]).contains("store.url: the password was hidden"));
    let said = "url = \"redis://host\"\naccept_loss = \"acknowledged events may be lost\"";
    assert!(load(&text(said), &[]).unwrap().store.options.accept_loss);
    for (store, path) in [
        ("accept_loss = \"acknowledged events may be lost\"".to_owned(), "store.accept_loss"),
        (format!("{url}\naccept_loss = \"yes\""), "store.accept_loss"),
        (format!("{url}\nspill_max = \"1KB\""), "store.spill_max"),
        (format!("{url}\nlease = \"10ms\""), "store.lease"),
        ("url = \"postgresql:gis\"".to_owned(), "store.url"),
        ("url = \"sqlite:geonce.db\"".to_owned(), "source.a.on_store_down"),
    ] {
        let failure = refused(&text(&store), &[]);
        assert!(failure.contains(&format!(" {path}: ")), "{store}\n{failure}");
    }
}

#[test]
fn what_would_wait_for_ever_or_has_no_entity_is_refused() {
    let sinks = |notify: &str, zones: &str, of_source: &str| {
        let mut text = source(&format!("sink = {of_source}\nidentity = [\"/properties/id\"]\norder = \"entity\""));
        text.push('\n');
        for (name, after) in [("notify", notify), ("zones", zones)] {
            _ = writeln!(text, "[sink.{name}]\nurl = \"gpkg:x\"\nafter = \"{after}\"");
        }
        text
    };
    let both = r#"["zones", "notify"]"#;
    let settings = load(&sinks("zones", "", both), &[]).unwrap();
    assert_eq!(settings.sinks["notify"].after.as_deref(), Some("zones"));
    assert!(settings.sources["a"].ordered && settings.sinks["zones"].after.is_none());
    for (text, path) in [
        (sinks("zone", "", both), "sink.notify.after"),
        (sinks("notify", "", both), "sink.notify.after"),
        (sinks("zones", "notify", both), "sink.notify.after"),
        (sinks("zones", "", r#"["notify"]"#), "source.a.sink"),
        (source("order = \"entity\""), "source.a.order"),
        (sinks("zones", "", both) + "entity = [\"/properties/name\"]\n", "source.a.order"),
    ] {
        let failure = refused(&text, &[]);
        assert!(failure.contains(&format!(" {path}: ")), "{text}\n{failure}");
    }
}

#[test]
fn sources_that_share_a_scope_share_their_sinks() {
    let text = |sink: &str| {
        let mut text = String::new();
        for (name, sink) in [("a", "one"), ("b", sink)] {
            _ = writeln!(text, "[source.{name}]\nallow_unsigned = true\nscope = \"s\"\nsink = \"{sink}\"");
            _ = writeln!(text, "[sink.{}]\nurl = \"gpkg:x\"", if name == "a" { "one" } else { "two" });
        }
        text
    };
    assert!(load(&text("one"), &[]).is_ok());
    assert!(refused(&text("two"), &[]).contains("source.b.scope"));
}

#[test]
fn versions_by_arrival_are_said_in_words_by_every_source_of_a_sink() {
    let text = |version: &str| {
        let sink = "[sink.s]\nurl = \"gpkg:x\"\nmode = \"upsert\"\n";
        let source = |name: &str, version: &str| {
            format!("[source.{name}]\nallow_unsigned = true\nidentity = [\"/id\"]\nversion = \"{version}\"\n")
        };
        sink.to_owned() + &source("a", "arrival") + &source("b", version)
    };
    let settings = load(&text("arrival"), &[]).unwrap();
    assert_eq!(settings.sinks["s"].options.mode, Mode::Upsert { arrival: true });
    assert!(settings.sources["a"].policy.version.is_none());
    assert!(refused(&text("/v"), &[]).contains("by arrival"));
}

#[test]
fn secrets_come_as_text_from_files_and_in_several_and_are_never_shown() {
    let text = r#"
        [source.a]
        verify = { scheme = "hmac", header = "X-Sig", signed = "{timestamp}.{body}", timestamp_header = "X-Time", secret = [
            { secret = { file = "secret" } },
            { secret = "old-s3cret", until = 2026-12-31T00:00:00Z },
            { secret = "${OLDER}", until = "2026-11-30T00:00:00+01:00" },
        ] }
        key_secret = "${KEY:-k3y-s3cret}"
    "#;
    let settings = load(text, &[("OLDER", "older-s3cret")]).unwrap();
    let secrets = &settings.sources["a"].verify.as_ref().unwrap().secrets;
    assert_eq!(secrets[0].live.secret.bytes(), b"whsec_abc");
    assert_eq!(secrets[1].live.until.unwrap().to_string(), "2026-12-31T00:00:00.000Z");
    assert_eq!(secrets[2].live.until.unwrap().to_string(), "2026-11-29T23:00:00.000Z");
    let saved = settings.to_toml();
    assert!(saved.contains("${OLDER}") && saved.contains(HIDDEN), "{saved}");
    let shown = format!("{saved}{settings:?}");
    for secret in ["s3cret", "whsec_abc"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn a_sink_in_a_database_has_an_isolation_and_shows_no_password() {
    let sink = |url: &str, more: &str| source(&format!("[sink.s]\nurl = \"{url}\"\n{more}"));
    let url = "postgresql://me:s3cret@db.example/gis?schema=zones";
    let settings = load(&sink(url, "isolation = \"serializable\""), &[]).unwrap();
    assert_eq!(settings.sinks["s"].options.isolation, Isolation::Serializable);
    assert_eq!(&*settings.sinks["s"].url, url);
    let saved = settings.to_toml();
    assert!(!format!("{saved}{settings:?}").contains("s3cret"), "{saved}");
    assert!(saved.contains("isolation = \"serializable\"") && saved.contains("layer = \"s\""), "{saved}");
    assert!(refused(&saved, &[]).contains("hidden when"));
    let loaded = load(&sink("postgresql://me@db/gis", "isolation = \"repeatable-read\""), &[]).unwrap();
    assert_eq!(load(&loaded.to_toml(), &[]).unwrap().sinks["s"].options.isolation, Isolation::RepeatableRead);
    for (text, expected) in [
        (sink("gpkg:x", "isolation = \"serializable\""), "sink.s.isolation"),
        (sink("postgresql://x", "isolation = \"loose\""), "unknown variant"),
        (sink("postgresql:x", ""), "sink.s.url"),
    ] {
        assert!(refused(&text, &[]).contains(expected), "{text}");
    }
}

#[test]
fn the_api_has_a_token_that_is_never_shown_and_is_for_this_machine_unless_said() {
    let with = |api: &str| format!("[api]\n{api}\n{}", source(""));
    let settings = load(&with(""), &[]).unwrap();
    assert!(settings.api.token.is_none() && settings.api.listen.is_none() && !settings.api.remote);
    let token = "a-long-enough-token";
    let text = with("token = \"${API_TOKEN}\"\nlisten = \"127.0.0.1:8788\"\nremote = true");
    let settings = load(&text, &[("API_TOKEN", token)]).unwrap();
    assert_eq!(settings.api.token.as_ref().unwrap().0.bytes(), token.as_bytes());
    let saved = settings.to_toml();
    assert!(
        saved.contains("token = \"${API_TOKEN}\"")
            && saved.contains("listen = \"127.0.0.1:8788\"")
            && !saved.contains(token)
    );
    assert!(!load(&with(&format!("token = {token:?}")), &[]).unwrap().to_toml().contains(token));
    for (api, words) in [
        ("token = \"short\"", "16 to 1024 characters"),
        ("token = \"with white space in it\"", "no white space"),
        ("token = { file = \"secret\" }", "16 to 1024 characters"),
        ("listen = \"localhost\"", "no address and port"),
        ("listen = \"127.0.0.1:8787\"", "senders are served at this address"),
        ("listen = \"0.0.0.0:8788\"", "remote = true"),
        ("port = 1", "config_unknown"),
    ] {
        let said = refused(&with(api), &[]);
        assert!(said.contains(words) && !said.contains("white space in it"), "{api}: {said}");
    }
}

#[test]
fn what_is_wrong_with_verify_is_said_without_the_secret() {
    for (verify, variables, expected) in [
        ("{ scheme = \"github\", secret = \"${NOT_THERE}\" }", &[][..], "no variable NOT_THERE"),
        ("{ scheme = \"github\", secret = 123456 }", &[], "a secret is text"),
        ("{ scheme = \"github\", secret = \"\" }", &[], "the secret is empty"),
        ("{ scheme = \"github\", secret = \"(hidden)\" }", &[], "hidden when"),
        ("{ scheme = \"github\", secret = [] }", &[], "1 to 8"),
        ("{ scheme = \"gitlab\", secret = \"x\" }", &[], "unknown variant"),
        ("{ scheme = \"github\", secret = \"x\", header = \"x-sig\" }", &[], "no such option"),
        ("{ scheme = \"basic\", secret = \"x\" }", &[], "needs a user"),
        ("{ scheme = \"hmac\", secret = \"x\" }", &[], "needs the header"),
        ("{ scheme = \"hmac\", secret = \"x\", header = \"s\", signed = \"{path}\" }", &[], "must hold {body} once"),
        ("{ scheme = \"hmac\", secret = \"x\", header = \"s\", signed = \"{time}{body}\" }", &[], "{time}"),
        (
            "{ scheme = \"hmac\", secret = \"x\", header = \"s\", signed = \"{timestamp}.{body}\" }",
            &[],
            "timestamp_header",
        ),
        (
            "{ scheme = \"hmac\", secret = [{ secret = \"x\", until = \"soon\" }], header = \"s\" }",
            &[],
            "this is no time",
        ),
        ("{ scheme = \"hmac\", secret = { fil = \"123456\" }, header = \"s\" }", &[], "a secret is text"),
        (
            "{ scheme = \"github\", secret = \"x\" }",
            &[("GEONCE_SOURCE__A__VERIFY__SECRET__X", "123456")],
            "is no table",
        ),
    ] {
        let failure = refused(&format!("[source.a]\nverify = {verify}"), variables);
        assert!(failure.contains(expected), "{verify}\n{failure}");
        assert!(!failure.contains("123456"), "{failure}");
    }
}

#[test]
fn variables_of_the_environment_that_are_wrong_are_named() {
    for (variable, value, expected) in [
        ("GEONCE_SOURCE__A__PRECISON", "6", "GEONCE_SOURCE__A__PRECISON: source.a.precison: there is no such setting"),
        ("GEONCE_SOURCE__A__PRECISION", "six", "GEONCE_SOURCE__A__PRECISION: source.a.precision"),
        ("GEONCE_SOURCE__A__SCOPE", "2024", "quote it twice"),
        ("GEONCE_SORCE__A__SCOPE", "x", "did you mean source?"),
        ("GEONCE_STORE__", "x", "a part of the path is empty"),
        ("GEONCE_LISTEN", "nowhere", "127.0.0.1:8787"),
    ] {
        let failure = refused(&source(""), &[(variable, value)]);
        assert!(failure.contains(expected), "{variable}\n{failure}");
    }
}

#[test]
fn what_is_saved_says_the_same_when_it_is_read_again() {
    let nothing = tempfile::tempdir().unwrap();
    let without = load_in(&Overrides::default(), &Environment::default(), nothing.path()).unwrap();
    let whole = WHOLE.replace("\"literal\"", "\"${COPY}\"");
    let folder = Folder::new(&whole);
    let variables = [("DRONES_SECRET", WEBHOOK_SECRET), ("COPY", WEBHOOK_SECRET)];
    let with = folder.load(&variables).unwrap();
    for settings in [without, with] {
        let saved = settings.to_toml();
        let again = load(&saved, &variables).map_err(|failure| format!("{failure}\n{saved}")).unwrap();
        let body = |text: &str| text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
        assert_eq!(body(&again.to_toml()), body(&saved));
    }
}

#[test]
fn a_policy_needs_neither_signatures_nor_their_variables() {
    let text = r#"
        [source.drones]
        verify = { scheme = "github", secret = "${NOT_THERE}" }
        ack_within = "5s"
        dimensions = 2
        previous = "old.toml"
        key_secret = "${KEY:-s3cret}"
        [sink.zones]
        url = "gpkg:x"
        timeout = "${NOT_THERE}"
        [limits]
        depth_max = 32
    "#;
    let folder = Folder::new(text);
    let file = folder.0.path().join(FILE);
    let policy = policy_in(&file, None, &Environment::default(), true).unwrap();
    assert_eq!((policy.scope.as_str(), policy.dimensions, policy.limits.depth_max), ("drones", Dimensions::Two, 32));
    assert!(policy.key_secret.is_some());
    assert_eq!(policy.previous.map(|previous| previous.precision), Some(6));
    let failure = policy_in(&file, Some("drone"), &Environment::default(), true).unwrap_err().to_string();
    assert!(failure.contains("did you mean \"drones\"?"), "{failure}");
    std::fs::write(&file, "[source.a]\n[source.b]").unwrap();
    let failure = policy_in(&file, None, &Environment::default(), true).unwrap_err().to_string();
    assert!(failure.contains("choose one with --source: a, b"), "{failure}");
    std::fs::write(&file, "[source.a]\nscope = \"${NOT_THERE}\"").unwrap();
    let failure = policy_in(&file, None, &Environment::default(), true).unwrap_err().to_string();
    assert!(failure.contains("geonce.toml:2: source.a.scope: the environment has no variable NOT_THERE"), "{failure}");
}

#[test]
fn the_schema_is_fresh_and_every_setting_is_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let made = serde_json::to_string_pretty(&schemars::schema_for!(File)).unwrap() + "\n";
    let file = root.join("docs/geonce.schema.json");
    if std::env::var_os("GEONCE_BLESS").is_some() {
        std::fs::write(&file, &made).unwrap();
    }
    assert!(
        std::fs::read_to_string(&file).unwrap_or_default() == made,
        "docs/geonce.schema.json is not fresh; run: make bless"
    );
    let documented =
        ["configuration.md", "policy.md"].map(|name| std::fs::read_to_string(root.join("docs").join(name)));
    let documented = documented.map(Result::unwrap).join("\n");
    let code = documented.split('`').skip(1).step_by(2);
    let words: Vec<&str> = code.flat_map(|code| code.split(|c: char| !c.is_ascii_lowercase() && c != '_')).collect();
    let schema: serde_json::Value = serde_json::from_str(&made).unwrap();
    let tables = schema["$defs"].as_object().unwrap().values().chain([&schema]);
    for name in tables.filter_map(|table| table["properties"].as_object()).flat_map(|table| table.keys()) {
        assert!(words.contains(&name.as_str()), "{name} is in neither document");
    }
}
