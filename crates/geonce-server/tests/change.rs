//! A change of policy, before and after it is made: `geonce check --against`, and two gateways, one after the other, on one store.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// No test waits longer than so many times twenty milliseconds.
const LOOKS_MAX: usize = 1_500;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        for (name, text) in files {
            folder.write(name, text);
        }
        folder
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_geonce"));
        command.args(arguments).current_dir(self.path()).env("NO_COLOR", "1");
        command
    }

    /// Runs a command with this input; its output.
    #[track_caller]
    fn run_with(&self, input: &str, arguments: &[&str], code: i32) -> String {
        let mut command = self.command(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{text}");
        text
    }

    #[track_caller]
    fn run(&self, arguments: &[&str], code: i32) -> String {
        self.run_with("", arguments, code)
    }

    #[track_caller]
    fn compare(&self, code: i32) -> String {
        self.run(&["check", "--against", "old.toml", "--sample", "events.ndjson"], code)
    }
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

fn config(settings: &str) -> String {
    format!("[source.drones]\nallow_unsigned = true\n{settings}\n[sink.zones]\nurl = \"gpkg:features.gpkg\"\n")
}

fn feature(lon: f64, name: &str, floor: u32) -> String {
    let geometry = format!(r#"{{"type":"Point","coordinates":[{lon},52.5]}}"#);
    format!(r#"{{"type":"Feature","geometry":{geometry},"properties":{{"name":"{name}","floor":{floor}}}}}"#)
}

const BOTH: &str = r#"identity = ["/properties/name", "/properties/floor"]"#;
const NAME: &str = r#"identity = ["/properties/name"]"#;

#[test]
fn events_that_would_merge_are_shown_with_the_rule_that_told_them_apart() {
    let lines = [feature(13.4, "a", 1), feature(13.4, "a", 2), feature(13.4, "a", 2), feature(13.5, "b", 1)].join("\n");
    let folder = Folder::new(&[("geonce.toml", &config(NAME)), ("old.toml", &config(BOTH)), ("events.ndjson", &lines)]);
    let text = folder.compare(1);
    has(
        &text,
        &[
            "source drones: 4 events, 4 keys change",
            "3 of the sample's events, in 1 groups, merge",
            "2 events become one: events.ndjson:1, events.ndjson:2",
            "/properties/floor  1 │ 2: the identity differs",
            "[identity_field]",
            "the same key under the other policy",
            "which does not look at: /properties/floor",
            "previous is not set",
            "previous = \"old.toml\"",
        ],
    );
    let arguments = ["check", "--against", "old.toml", "--sample", "events.ndjson", "--json"];
    let report: Value = serde_json::from_str(&folder.run(&arguments, 1)).unwrap();
    let source = &report["sources"][0];
    assert_eq!((&report["safe"], &source["keys_changed"]), (&false.into(), &4.into()));
    assert_eq!((&source["merges"]["groups"], &source["splits"]["groups"]), (&1.into(), &0.into()));
    // The same change the other way round splits what was one.
    folder.write("geonce.toml", &config(BOTH));
    folder.write("old.toml", &config(NAME));
    let text = folder.compare(1);
    has(&text, &["in 1 groups, split", "3 events were one and become 2: events.ndjson:1, events.ndjson:2"]);
    folder.write("geonce.toml", &config(&format!("{BOTH}\nprevious = \"old.toml\"")));
    has(&folder.compare(1), &["every old key is recognised", "it splits once previous is taken away"]);
}

#[test]
fn a_finer_grid_splits_and_a_coarser_one_merges() {
    let lines = [feature(13.4, "a", 1), feature(13.400_001, "a", 1)].join("\n");
    let folder = Folder::new(&[
        ("geonce.toml", &config("precision = 7")),
        ("old.toml", &config("precision = 5")),
        ("events.ndjson", &lines),
    ]);
    has(&folder.compare(1), &["split", "/geometry/coordinates", "which does not look at: precision"]);
    folder.write("geonce.toml", &config("precision = 4"));
    folder.write("old.toml", &config("precision = 7"));
    has(&folder.compare(1), &["merge", "/geometry/coordinates"]);
}

#[test]
fn a_change_that_neither_merges_nor_splits_is_safe() {
    let lines = [feature(13.4, "a", 1), feature(13.5, "b", 1), feature(13.5, "b", 1)].join("\n");
    let folder = Folder::new(&[
        ("geonce.toml", &config(NAME)),
        ("old.toml", &config("precision = 6")),
        ("events.ndjson", &lines),
    ]);
    has(&folder.compare(0), &["3 events, 3 keys change", "3 events would not be known again", "previous is not set"]);
    folder.write("geonce.toml", &config(&format!("{NAME}\nprevious = \"old.toml\"")));
    has(&folder.compare(0), &["every old key is recognised"]);
    folder.write("other.toml", &config("ignore = [\"/properties/floor\"]"));
    folder.write("geonce.toml", &config(&format!("{NAME}\nprevious = \"other.toml\"")));
    has(&folder.compare(0), &["previous names another policy"]);
    folder.write("geonce.toml", &config("precision = 6"));
    has(&folder.compare(0), &["0 keys change", "every key stays"]);
}

#[test]
fn what_only_one_policy_refuses_is_told_with_its_code() {
    let lines = [feature(13.4, "a", 1), feature(40.0, "b", 1), "not json".to_owned()].join("\n");
    let folder = Folder::new(&[
        ("geonce.toml", &config("accept = { bounds = [0, 40, 20, 60] }")),
        ("old.toml", &config("")),
        ("events.ndjson", &lines),
    ]);
    has(
        &folder.compare(1),
        &["1 events are refused now, and were taken [accept_bounds]", "1 events are refused by both"],
    );
    folder.write("old.toml", &config("accept = { bounds = [0, 40, 20, 60] }"));
    folder.write("geonce.toml", &config(""));
    has(&folder.compare(0), &["1 events are taken now, and were refused [accept_bounds]"]);
}

#[test]
fn a_sample_comes_from_a_collection_from_standard_input_and_from_presets() {
    let collection =
        format!(r#"{{"type":"FeatureCollection","features":[{},{}]}}"#, feature(1.0, "a", 1), feature(1.0, "a", 2));
    let folder = Folder::new(&[("geonce.toml", &config(NAME)), ("old.toml", &config(BOTH)), ("c.json", &collection)]);
    let arguments = ["check", "--against", "old.toml", "--sample"];
    let text = folder.run(&[&arguments[..], &["c.json"]].concat(), 1);
    has(&text, &["2 events become one: c.json#/features/0, c.json#/features/1"]);
    let text = folder.run_with(&collection, &[&arguments[..], &["-", "--limit", "1"]].concat(), 0);
    has(&text, &["1 events, 1 keys change", "more events than were compared"]);
    let position = r#"{"position":{"id":1,"deviceId":7,"deviceTime":"2026-01-14T15:34:17.000+00:00","latitude":49.5,"longitude":8.25}}"#;
    let later = position.replace("34:17", "34:18");
    folder.write(
        "geonce.toml",
        &config("preset = \"traccar\"\nidentity = [\"/properties/deviceId\"]\nversion = \"arrival\""),
    );
    folder.write("old.toml", &config("preset = \"traccar\""));
    let text = folder.run_with(&format!("{position}\n{later}\n"), &[&arguments[..], &["-"]].concat(), 1);
    has(&text, &["2 events become one: standard input:1, standard input:2", "two versions of one entity"]);
    folder.write("old.toml", &config(""));
    has(&folder.run(&[&arguments[..], &["-"]].concat(), 2), &["read its requests differently"]);
}

#[test]
fn what_cannot_be_compared_is_a_matter_of_usage() {
    let two = format!("{}\n[source.vans]\nallow_unsigned = true\n", config(""));
    let folder = Folder::new(&[("geonce.toml", &two), ("old.toml", &two), ("events.ndjson", &feature(13.4, "a", 1))]);
    has(&folder.compare(2), &["both files have 2 sources", "drones, vans"]);
    let arguments = ["check", "--against", "old.toml", "--sample", "events.ndjson", "--source"];
    folder.run(&[&arguments[..], &["vans"]].concat(), 0);
    has(&folder.run(&[&arguments[..], &["bikes"]].concat(), 2), &["has no source \"bikes\""]);
    has(&folder.run(&["check", "--sample", "events.ndjson"], 2), &["--against"]);
    has(&folder.run(&["check", "--against", "nowhere.toml", "--sample", "-"], 2), &["nowhere.toml"]);
    has(&folder.run(&["check", "--against", "old.toml", "--limit", "0"], 2), &["--limit"]);
    folder.write("old.toml", "[source.bikes]\nallow_unsigned = true\n");
    has(&folder.compare(2), &["no source in common"]);
}

/// A gateway in a process of its own.
struct Gateway {
    child: Child,
    address: SocketAddr,
}

impl Gateway {
    fn start(folder: &Folder, config: &str) -> Gateway {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let mut command = folder.command(&["serve", "--config", config, "--listen", &address.to_string()]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let gateway = Gateway { child, address };
        for _ in 0..LOOKS_MAX {
            if matches!(gateway.ask("GET /readyz HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n"), Some(200)) {
                return gateway;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the gateway does not get ready");
    }

    /// The status of the answer.
    fn ask(&self, request: &str) -> Option<u16> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.split(' ').nth(1)?.parse().ok()
    }

    #[track_caller]
    fn post(&self, body: &str, status: u16) {
        let head = format!(
            "POST /in/drones HTTP/1.1\r\nhost: test\r\ncontent-type: application/geo+json\r\nconnection: close\r\ncontent-length: {}",
            body.len()
        );
        assert_eq!(self.ask(&format!("{head}\r\n\r\n{body}")), Some(status), "{body}");
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_new_gateway_knows_the_events_of_the_old_one_and_the_store_is_a_sample() {
    let new = config(&format!("{NAME}\nprecision = 6\nprevious = \"old.toml\""));
    let folder = Folder::new(&[
        ("geonce.toml", &new),
        ("old.toml", &config("precision = 7")),
        ("forgetful.toml", &new.replace("previous = \"old.toml\"", "")),
    ]);
    let (accepted, duplicate) = (202, 200);
    let old = Gateway::start(&folder, "old.toml");
    old.post(&feature(13.4, "a", 1), accepted);
    old.post(&feature(13.4, "b", 1), accepted);
    old.post(&feature(13.4, "b", 2), accepted);
    drop(old);
    // What the store has is the best sample there is: the change merges two floors of b.
    let text = folder.run(&["check", "--against", "old.toml"], 1);
    has(&text, &["3 events, 3 keys change", "2 events become one: evt_", "every old key is recognised"]);
    let new = Gateway::start(&folder, "geonce.toml");
    new.post(&feature(13.4, "a", 1), duplicate);
    new.post(&feature(13.5, "c", 1), accepted);
    drop(new);
    let old = Gateway::start(&folder, "old.toml");
    old.post(&feature(13.5, "c", 1), duplicate);
    drop(old);
    let forgetful = Gateway::start(&folder, "forgetful.toml");
    forgetful.post(&feature(13.4, "a", 1), accepted);
    drop(forgetful);
    has(&folder.run(&["doctor"], 0), &["2 redeliveries came within", "[redelivery_lag]"]);
    let report: Value = serde_json::from_str(&folder.run(&["doctor", "--json"], 0)).unwrap();
    assert_eq!(report["advice"][0]["code"], "redelivery_lag");
    assert_eq!(report["advice"][0]["figures"]["redeliveries"], 2);
}
