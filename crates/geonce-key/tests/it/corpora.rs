//! Public test data, judged file by file. The data is not part of this repository: `GEONCE_CORPORA` names its
//! folder, `../shared/corpora` beside the workspace is the default. Without it the tests say that they were left
//! out; with `GEONCE_REQUIRE_CORPORA=1` they fail. `GEONCE_BLESS=1` rewrites the pinned verdicts in `tests/data`.

use crate::text::{Json, Rng, Style};
use crate::{identified_by, key_under, refusal};
use geonce_key::policy::Lines;
use geonce_key::{Form, Input, Keyer, Policy, crs, wkb, wkt};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The folder of one corpus, or `None` where there is none to be had.
fn corpus(name: &str) -> Option<PathBuf> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpora");
    let folder = std::env::var_os("GEONCE_CORPORA").map_or(default, PathBuf::from).join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    let required = std::env::var_os("GEONCE_REQUIRE_CORPORA").is_some_and(|value| value == "1");
    assert!(!required, "GEONCE_REQUIRE_CORPORA=1, but {} is no folder", folder.display());
    // Not eprintln, which the test harness keeps to itself; in one piece, because tests run side by side.
    let notice = format!("left out: the corpus {name} is not at {}\n", folder.display());
    let _ = std::io::stderr().write_all(notice.as_bytes());
    None
}

/// The data files of a folder by name.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<(String, Vec<u8>)> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json" || extension == "geojson"))
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap()))
        .collect();
    found.sort();
    assert!(!found.is_empty(), "{} holds no data", folder.display());
    found
}

/// Compares verdicts with the committed ones, or rewrites those.
fn check_pinned(name: &str, verdicts: &BTreeMap<String, String>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/pinned-{name}.tsv"));
    let mut text = "case\tverdict\n".to_owned();
    for (case, verdict) in verdicts {
        let _ = writeln!(text, "{case}\t{verdict}");
    }
    if std::env::var_os("GEONCE_BLESS").is_some_and(|value| value == "1") {
        fs::write(&path, &text).unwrap();
        return;
    }
    let pinned = fs::read_to_string(&path).unwrap();
    let changed: Vec<String> = text
        .lines()
        .filter(|line| !pinned.lines().any(|other| other == *line))
        .map(|line| format!("now {line}"))
        .chain(
            pinned.lines().filter(|line| !text.lines().any(|other| other == *line)).map(|line| format!("was {line}")),
        )
        .collect();
    assert!(changed.is_empty(), "{name}:\n{}", changed.join("\n"));
}

/// The code alone: pointers hold names from the data.
fn verdict(bytes: &[u8]) -> &'static str {
    refusal(&Policy::default(), Form::Json, bytes).0
}

#[test]
fn json_that_must_be_read_is_read_and_json_that_must_not_is_refused() {
    let Some(folder) = corpus("jsontestsuite") else { return };
    let mut verdicts = BTreeMap::new();
    for (name, bytes) in files(&folder.join("test_parsing")) {
        let found = verdict(&bytes);
        // Texts that are JSON are no GeoJSON; those that are not JSON do not get so far.
        let read = found.starts_with("geojson_");
        // RFC 7493 section 2.3 refuses what RFC 8259 only advises against.
        let repeats = name.starts_with("y_object_duplicated_key");
        match name.as_bytes()[0] {
            b'y' if repeats => assert_eq!(found, "json_duplicate_member", "{name}"),
            b'y' => assert!(read, "{name}: {found}"),
            b'n' => assert!(found.starts_with("json_") || found.starts_with("limit_"), "{name}: {found}"),
            _ => {}
        }
        verdicts.insert(name, found.to_owned());
    }
    assert_eq!(verdicts.len(), 318);
    check_pinned("jsontestsuite-parsing", &verdicts);
}

/// The canonical text of a JSON value.
fn canonical(value: &str) -> String {
    let text = format!(
        r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[1,2]}},"properties":{{"x":{value}}}}}"#
    );
    let mut keyer = Keyer::new(&identified_by(&["/properties/x"])).unwrap();
    keyer.key(Input::json(text.as_bytes())).unwrap();
    let bytes = String::from_utf8(keyer.canonical_bytes().to_vec()).unwrap();
    let (_, rest) = bytes.split_once(r#""identity":{"/properties/x":"#).unwrap();
    rest.strip_suffix(r#"},"scope":"default","spec":"g1"}"#).unwrap().to_owned()
}

/// Numbers, names and strings that other parsers round, merge or cut: written as they came, or otherwise.
#[test]
fn json_that_parsers_disagree_about_has_one_pinned_reading() {
    let Some(folder) = corpus("jsontestsuite") else { return };
    let mut verdicts = BTreeMap::new();
    for (name, bytes) in files(&folder.join("test_transform")) {
        let code = verdict(&bytes);
        let found = if code.starts_with("geojson_") {
            let text = String::from_utf8(bytes).unwrap();
            if canonical(text.trim()) == text.trim() { "kept" } else { "rewritten" }
        } else {
            code
        };
        verdicts.insert(name, found.to_owned());
    }
    assert_eq!(verdicts.len(), 22);
    check_pinned("jsontestsuite-transform", &verdicts);
}

/// A file's verdict, and where it is a collection those of its features.
fn judge(name: &str, bytes: &[u8], verdicts: &mut BTreeMap<String, String>) {
    verdicts.insert(name.to_owned(), verdict(bytes).to_owned());
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return };
    let declared = value["crs"]["properties"]["name"].as_str().map(|name| crs::parse(name).unwrap().code());
    let mut keyer = Keyer::new(&Policy::default()).unwrap();
    for (i, feature) in value["features"].as_array().into_iter().flatten().enumerate() {
        let text = feature.to_string();
        let keyed = keyer.key(Input { form: Form::Json, bytes: text.as_bytes(), crs: declared });
        let found = keyed.map_or_else(|error| error.code().to_string(), |_| "accepted".to_owned());
        verdicts.insert(format!("{name}#{i:03}"), found);
    }
}

#[test]
fn good_geojson_is_accepted_and_bad_geojson_refused() {
    let Some(folder) = corpus("geojson/geojsonhint") else { return };
    for (side, count) in [("good", 18), ("bad", 44)] {
        let mut verdicts = BTreeMap::new();
        let all = files(&folder.join(side));
        assert_eq!(all.len(), count);
        for (name, bytes) in all {
            judge(&name, &bytes, &mut verdicts);
        }
        check_pinned(&format!("geojsonhint-{side}"), &verdicts);
    }
}

#[test]
fn odd_geojson_from_the_field_has_pinned_verdicts() {
    let Some(folder) = corpus("geojson/gdal") else { return };
    let mut verdicts = BTreeMap::new();
    for (name, bytes) in files(&folder) {
        judge(&name, &bytes, &mut verdicts);
    }
    check_pinned("gdal-geojson", &verdicts);
}

#[test]
fn webhooks_without_a_place_are_refused_as_no_geojson() {
    let Some(folder) = corpus("github-payloads") else { return };
    for (name, bytes) in files(&folder) {
        assert_eq!(verdict(&bytes), "geojson_type", "{name}");
    }
}

#[test]
fn identity_bytes_are_those_of_rfc_8785_but_for_large_integers() {
    let Some(folder) = corpus("jcs") else { return };
    let inputs = files(&folder.join("input"));
    assert_eq!(inputs.len(), 6);
    for (name, bytes) in inputs {
        let hex = fs::read_to_string(folder.join("outhex").join(name.replace(".json", ".txt"))).unwrap();
        let expected: Vec<u8> = hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        let expected = String::from_utf8(expected).unwrap();
        // The one deviation: an integer beyond 2^53 - 1 keeps its digits.
        let expected = expected.replace("1e+30", "1000000000000000000000000000000");
        assert_eq!(canonical(std::str::from_utf8(&bytes).unwrap()), expected, "{name}");
    }
}

/// An integer in ECMAScript's exponent form with all its digits.
fn expanded(text: &str) -> String {
    let (mantissa, exponent) = text.split_once("e+").unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let zeros = exponent.parse::<usize>().unwrap().saturating_sub(fraction.len());
    format!("{whole}{fraction}{}", "0".repeat(zeros))
}

#[test]
fn ten_thousand_doubles_are_written_as_ecmascript_does() {
    let Some(folder) = corpus("jcs") else { return };
    let text = fs::read_to_string(folder.join("es6numbers-10000.txt")).unwrap();
    let mut large = 0;
    let mut rows = Vec::new();
    for line in text.lines() {
        let (hex, number) = line.split_once(',').unwrap();
        let bits = u64::from_str_radix(hex, 16).unwrap();
        let value = f64::from_bits(bits);
        assert!(number.parse::<f64>().unwrap().to_bits() == bits || value == 0.0, "{line}");
        let beyond = value.abs() > 9_007_199_254_740_991.0;
        large += usize::from(beyond);
        let expected = if beyond { expanded(number) } else { number.to_owned() };
        rows.push((number.to_owned(), format!("{value:e}"), expected));
    }
    assert_eq!(rows.len(), 10_000);
    for chunk in rows.chunks(500) {
        let list = |pick: fn(&(String, String, String)) -> &str| chunk.iter().map(pick).collect::<Vec<_>>().join(",");
        let expected = format!("[{}]", list(|row| &row.2));
        assert_eq!(canonical(&format!("[{}]", list(|row| &row.0))), expected);
        assert_eq!(canonical(&format!("[{}]", list(|row| &row.1))), expected);
    }
    assert!(large > 1_000, "the deviation is not tested by {large} numbers");
}

#[test]
fn naughty_strings_come_back_as_they_were() {
    let Some(folder) = corpus("blns") else { return };
    let strings: Vec<String> = serde_json::from_slice(&fs::read(folder.join("blns.json")).unwrap()).unwrap();
    assert_eq!(strings.len(), 515);
    let distinct: BTreeSet<&String> = strings.iter().collect();
    let mut keys = BTreeSet::new();
    let mut rng = Rng::new(7);
    for string in &strings {
        let properties = Json::Object(vec![(string.clone(), Json::text(string.as_str()))]);
        let point = crate::model::Geometry::Point(vec![1.0, 2.0]);
        let feature = point.feature(properties).with("id", Json::text(string.as_str()));
        let policy = Policy { scope: string.clone(), ..Policy::default() };
        let mut keyer = Keyer::new(&policy).unwrap();
        let keyed = keyer.key(Input::json(feature.plain().as_bytes())).unwrap();
        let bytes: Value = serde_json::from_slice(keyer.canonical_bytes()).unwrap();
        assert_eq!(bytes["identity"]["properties"][string], *string.as_str());
        assert_eq!(bytes["identity"]["id"], *string.as_str());
        assert_eq!(bytes["scope"], *string.as_str());
        assert_eq!(keyed, key_under(&policy, &feature.styled(Style::ALL, &mut rng)), "{string:?}");
        let serialised = serde_json::json!({"properties": {string: string}, "id": string, "type": "Feature",
            "geometry": {"coordinates": [1.0, 2.0], "type": "Point"}});
        assert_eq!(keyed, key_under(&policy, &serialised.to_string()), "{string:?}");
        keys.insert(keyed.fingerprint);
    }
    assert_eq!(keys.len(), distinct.len());
}

#[test]
fn normalised_geometries_keep_their_key_unless_a_line_was_reversed() {
    let Some(folder) = corpus("jts") else { return };
    let pairs = fs::read_to_string(folder.join("normalize-pairs.tsv")).unwrap();
    let directed = Policy::default();
    let undirected = Policy { lines: Lines::Undirected, ..Policy::default() };
    let mut verdicts = BTreeMap::new();
    for line in pairs.lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        // The plane of these tests is larger than the Earth.
        let shrunk = |text: &str| {
            let mut delivered = wkt::read(text.as_bytes(), &directed.limits)?;
            delivered.shape.positions.iter_mut().flatten().for_each(|ordinate| *ordinate /= 8.0);
            Ok(wkb::write(&delivered.shape, None))
        };
        let found = match (shrunk(columns[1]), shrunk(columns[2])) {
            (Ok(one), Ok(other)) => [&directed, &undirected]
                .map(|policy| {
                    let [one, other] = [&one, &other].map(|bytes| {
                        let mut keyer = Keyer::new(policy).unwrap();
                        keyer.key(Input { form: Form::Wkb, bytes, crs: None }).unwrap()
                    });
                    if one == other { "same" } else { "differs" }
                })
                .join(" "),
            (one, other) => {
                let code = |result: Result<Vec<u8>, geonce_key::Error>| result.unwrap_err().code().as_str();
                format!("{} {}", code(one), code(other))
            }
        };
        verdicts.insert(columns[0].to_owned(), found);
    }
    assert_eq!(verdicts.len(), 12);
    check_pinned("jts-normalize", &verdicts);
}
