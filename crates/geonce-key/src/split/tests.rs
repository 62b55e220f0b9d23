//! What the splitter finds, whatever the size of the pieces it is fed.

use super::*;

fn found(format: Format, text: &str, piece: usize) -> Vec<String> {
    let mut splitter = Splitter::new(format, false, &Limits::default());
    let mut out = Vec::new();
    let mut pieces = text.as_bytes().chunks(piece);
    loop {
        while let Some(next) = splitter.next() {
            out.push(match next {
                Ok(item) => {
                    let text = String::from_utf8_lossy(splitter.bytes(&item)).into_owned();
                    format!("{}{} {}", item.line, item.pointer, text.trim_end())
                }
                Err(broken) => format!("{} {} {}", broken.line, broken.error.code(), broken.error.pointer()),
            });
        }
        match pieces.next() {
            Some(piece) => splitter.feed(piece),
            None if splitter.finished => return out,
            None => splitter.finish(),
        }
    }
}

fn check(format: Format, text: &str, expected: &[&str]) {
    for piece in [1, 2, 3, 7, 1 << 20] {
        assert_eq!(found(format, text, piece), expected, "{text:?} in pieces of {piece}");
    }
}

#[test]
fn a_document_is_one_payload_however_it_is_printed() {
    check(Format::Auto, r#"{"a":1}"#, &[r#"1 {"a":1}"#]);
    check(Format::Auto, "\n{\n \"a\": [1]\n}\n", &["2 {\n \"a\": [1]\n}"]);
    check(Format::Auto, "", &[]);
    check(Format::Auto, " \n ", &[]);
}

#[test]
fn lines_are_payloads_and_blank_ones_are_not() {
    check(Format::Auto, "{}\n\n{\"a\":\"}\"}\r\n[2]", &["1 {}", "3 {\"a\":\"}\"}", "4 [2]"]);
    check(Format::Lines, "{\n}\n", &["1 {", "2 }"]);
}

#[test]
fn a_broken_first_line_does_not_swallow_the_others() {
    check(Format::Auto, "{\"a\":[1\n{\"b\":2}\n", &["1 {\"a\":[1", "2 {\"b\":2}"]);
    check(Format::Auto, "{\"a\":\"x\n{\"b\":2}\n", &["1 {\"a\":\"x", "2 {\"b\":2}"]);
    check(Format::Auto, "garbage\n{\"b\":2}\n", &["1 garbage", "2 {\"b\":2}"]);
    check(Format::Auto, "{}}\n{\"b\":2}\n", &["1 {}}", "2 {\"b\":2}"]);
    check(Format::Auto, "{\n\"a\":\n", &["1 {\n\"a\":"]);
}

#[test]
fn features_are_found_one_by_one() {
    let text = r#"{"type":"FeatureCollection","features":[{"a":"]"}, {"b":[1,{}]} ],"x":1}"#;
    check(Format::Auto, text, &[r#"1/features/0 {"a":"]"}"#, r#"2/features/1 {"b":[1,{}]}"#]);
    check(Format::Auto, r#"{"features":[],"type":"FeatureCollection"}"#, &[]);
    let then_lines = "{\"type\":\"FeatureCollection\",\"features\":[{}]}\n\n{\"b\":1}\n";
    check(Format::Auto, then_lines, &["1/features/0 {}", "3 {\"b\":1}"]);
    let escaped = r#"{"type":"FeatureCollection","f\u0065atures":[{"a":"\\\""}]}"#;
    check(Format::Auto, escaped, &[r#"1/features/0 {"a":"\\\""}"#]);
}

#[test]
fn the_object_around_features_is_checked() {
    let refused = |text: &str, expected: &str| {
        assert_eq!(found(Format::Auto, text, 5).last().map(String::as_str), Some(expected), "{text}");
    };
    refused(r#"{"features":[{}],"type":"Feature"}"#, "1 geojson_type /type");
    refused(r#"{"features":[{}]}"#, "1 geojson_type /type");
    refused(r#"{"type":"FeatureCollection","features":[{}],"features":[]}"#, "1 json_duplicate_member /features");
    refused(r#"{"type":"FeatureCollection","features":[{}],}"#, "1 json_syntax ");
    refused(r#"{"type":"FeatureCollection","features":[{},]}"#, "2 json_syntax /features/1");
    refused(r#"{"type":"FeatureCollection","features":[{}"#, "1 json_incomplete /features/0");
    refused(r#"{"type":"FeatureCollection","features":[{}]} x"#, "1 json_trailing ");
    refused(
        r#"{"type":"FeatureCollection","features":[{}],"crs":{"type":"name","properties":{"name":"EPSG:3857"}}}"#,
        "1 crs_after_features /crs",
    );
    refused(r#"{"type":"Thing","features":[{}]}"#, r#"1 {"type":"Thing","features":[{}]}"#);
}

#[test]
fn the_coordinate_system_of_a_collection_is_known_before_its_features() {
    let text =
        br#"{"type":"FeatureCollection","crs":{"type":"name","properties":{"name":"EPSG:3857"}},"features":[{}]}"#;
    let mut splitter = Splitter::new(Format::Auto, false, &Limits::default());
    splitter.feed(text);
    assert!(splitter.next().is_some());
    assert!(splitter.is_collection());
    assert_eq!(splitter.collection().crs, Some(3857));
}

#[test]
fn records_of_a_sequence_are_payloads() {
    check(Format::Auto, "\u{1e}{\"a\":1}\n\u{1e}{\n\"b\":2}\n", &["1 {\"a\":1}", "2 {\n\"b\":2}"]);
}

#[test]
fn what_is_too_long_is_refused_and_the_rest_goes_on() {
    let limits = Limits { bytes_max: 20, ..Limits::default() };
    let long = "x".repeat(50);
    let run = |format, text: &str| {
        let mut splitter = Splitter::new(format, false, &limits);
        let mut out = Vec::new();
        for piece in text.as_bytes().chunks(4) {
            splitter.feed(piece);
            while let Some(next) = splitter.next() {
                out.push(next.map_or_else(|b| b.error.code().as_str(), |_| "ok"));
            }
        }
        splitter.finish();
        while let Some(next) = splitter.next() {
            out.push(next.map_or_else(|b| b.error.code().as_str(), |_| "ok"));
        }
        out
    };
    assert_eq!(run(Format::Lines, &format!("{{}}\n{{\"{long}\":1}}\n{{}}\n")), ["ok", "limit_bytes", "ok"]);
    let collection = format!("{{\"features\":[{{}},{{\"{long}\":1}},{{}}]}}");
    assert_eq!(run(Format::Auto, &collection)[..3], ["ok", "limit_bytes", "ok"]);
}

#[test]
fn forms_are_told_apart_by_their_first_bytes() {
    let form = |bytes: &[u8]| {
        let mut splitter = Splitter::new(Format::Auto, false, &Limits::default());
        splitter.feed(bytes);
        splitter.finish();
        splitter.next().unwrap().map(|item| item.form).unwrap()
    };
    assert_eq!(form(b"POINT (1 2)\npoint (3 4)"), Form::Wkt);
    assert_eq!(form(b"srid=4326;POINT (1 2)"), Form::Wkt);
    assert_eq!(form(b"0101000000000000000000F03F0000000000000040"), Form::WkbHex);
    assert_eq!(form(b"\x01\x01\0\0\0"), Form::Wkb);
    assert_eq!(form(b"{}"), Form::Json);
    assert_eq!(form(b"01"), Form::Json);
}

#[test]
fn many_arrays_with_escaped_or_repeated_names_are_read_once() {
    for name in ["\\u0061", "features"] {
        let members: Vec<String> = (0..60_000).map(|_| format!("\"{name}\":[]")).collect();
        let text = format!("{{\"type\":\"Thing\",{}}}", members.join(","));
        let mut splitter = Splitter::new(Format::Auto, false, &Limits::default());
        splitter.feed(text.as_bytes());
        splitter.finish();
        assert!(splitter.next().unwrap().is_ok());
    }
}

#[test]
fn a_stray_bracket_among_features_is_refused_once() {
    check(Format::Auto, r#"{"features":[}"#, &["1 json_incomplete /features/0"]);
    check(Format::Auto, r#"{"features":[},{}]}"#, &["1/features/0 }", "2/features/1 {}", "1 geojson_type /type"]);
    check(Format::Auto, r#"{"features":[{}}"#, &["1 json_incomplete /features/0"]);
}
