//! Every named limit is met exactly and then exceeded by one.

use crate::refusal;
use geonce_key::{Form, Limits, Policy};

fn under(change: impl Fn(&mut Limits)) -> Policy {
    let mut policy = Policy::default();
    change(&mut policy.limits);
    policy
}

/// `fits` is accepted and `exceeds` refused with `code` at `pointer`.
fn check(policy: &Policy, fits: &str, exceeds: &str, code: &str, pointer: &str) {
    let form = |text: &str| if text.starts_with(['{', '[']) { Form::Json } else { Form::Wkt };
    assert_eq!(refusal(policy, form(fits), fits.as_bytes()).0, "accepted", "{fits}");
    let found = refusal(policy, form(exceeds), exceeds.as_bytes());
    assert_eq!((found.0, found.1.as_str()), (code, pointer), "{exceeds}");
}

/// A point that carries `more` in a foreign member.
fn point_with(more: &str) -> String {
    format!(r#"{{"type":"Point","coordinates":[1,2],"a":{more}}}"#)
}

#[test]
fn the_size_of_a_payload_is_limited() {
    let text = point_with("0");
    let longer = point_with("10");
    check(&under(|limits| limits.bytes_max = text.len()), &text, &longer, "limit_bytes", "");
    check(&under(|limits| limits.bytes_max = 11), "POINT (1 2)", "POINT (1  2)", "limit_bytes", "");
}

#[test]
fn the_depth_of_nesting_is_limited() {
    let nested = |depth: usize| point_with(&format!("{}{}", "[".repeat(depth), "]".repeat(depth)));
    let place = "/0".repeat(63);
    check(&Policy::default(), &nested(63), &nested(64), "limit_depth", &format!("/a{place}"));
    let nested = |depth: usize| format!("{}POINT (1 2){}", "GEOMETRYCOLLECTION (".repeat(depth), ")".repeat(depth));
    check(&Policy::default(), &nested(64), &nested(65), "limit_depth", &"/geometries/0".repeat(64));
    // Far beyond the limit nothing overflows.
    assert_eq!(refusal(&Policy::default(), Form::Json, "[".repeat(1_000_000).as_bytes()).0, "limit_depth");
    assert_eq!(refusal(&Policy::default(), Form::Json, r#"{"a":"#.repeat(1_000_000).as_bytes()).0, "limit_depth");
}

#[test]
fn the_number_of_values_is_limited() {
    // Names count as values: root, six for type and coordinates with its numbers, `a`, the array and its elements.
    let flat = |count: usize| point_with(&format!("[{}0]", "0,".repeat(count - 1)));
    let policy = under(|limits| limits.values_max = 20);
    check(&policy, &flat(11), &flat(12), "limit_values", "/a");
    let nested = |count: usize| point_with(&format!("[{}[]]", "[],".repeat(count - 1)));
    check(&policy, &nested(11), &nested(12), "limit_values", "/a");
}

#[test]
fn the_number_of_members_is_limited() {
    let object = |count: usize| {
        let members: Vec<String> = (0..count).map(|i| format!(r#""m{i}":0"#)).collect();
        point_with(&format!("{{{}}}", members.join(",")))
    };
    let policy = under(|limits| limits.members_max = 20);
    check(&policy, &object(20), &object(21), "limit_members", "/a");
    let collection = |count: usize| {
        let member = r#"{"type":"Point","coordinates":[1,2]}"#;
        format!(r#"{{"type":"GeometryCollection","geometries":[{}]}}"#, vec![member; count].join(","))
    };
    check(&policy, &collection(20), &collection(21), "limit_members", "/geometries");
    let collection = |count: usize| format!("GEOMETRYCOLLECTION ({})", vec!["POINT (1 2)"; count].join(","));
    check(&policy, &collection(20), &collection(21), "limit_members", "/geometries/20/coordinates");
}

#[test]
fn the_length_of_strings_and_numbers_is_limited() {
    let policy = under(|limits| limits.string_bytes_max = 12);
    let text = |count: usize| point_with(&format!("\"{}\"", "x".repeat(count)));
    check(&policy, &text(12), &text(13), "limit_string", "/a");
    // The bytes are counted as written.
    check(&policy, &text(12), &point_with(r#""\u0041\u0041x""#), "limit_string", "/a");
    let policy = under(|limits| limits.number_bytes_max = 12);
    let number = |count: usize| point_with(&"1".repeat(count));
    check(&policy, &number(12), &number(13), "limit_number", "/a");
    let point = |zeros: usize| format!("POINT (1.{} 2)", "0".repeat(zeros));
    check(&policy, &point(10), &point(11), "limit_number", "/coordinates");
}

#[test]
fn the_number_of_positions_rings_and_parts_is_limited() {
    let points =
        |count: usize| format!(r#"{{"type":"MultiPoint","coordinates":[{}]}}"#, vec!["[1,2]"; count].join(","));
    let points_wkt = |count: usize| format!("MULTIPOINT ({})", vec!["1 2"; count].join(","));
    let policy = under(|limits| limits.positions_max = 5);
    check(&policy, &points(5), &points(6), "limit_positions", "/coordinates/5");
    check(&policy, &points_wkt(5), &points_wkt(6), "limit_positions", "/coordinates/5");
    let policy = under(|limits| limits.parts_max = 5);
    check(&policy, &points(5), &points(6), "limit_parts", "/coordinates/5");
    check(&policy, &points_wkt(5), &points_wkt(6), "limit_parts", "/coordinates/5");
    let rings = |count: usize| {
        let ring = "[[0,0],[1,0],[1,1],[0,0]]";
        format!(r#"{{"type":"Polygon","coordinates":[{}]}}"#, vec![ring; count].join(","))
    };
    let policy = under(|limits| limits.rings_max = 3);
    check(&policy, &rings(3), &rings(4), "limit_rings", "/coordinates/3");
    let rings = |count: usize| format!("POLYGON ({})", vec!["(0 0, 1 0, 1 1, 0 0)"; count].join(","));
    check(&policy, &rings(3), &rings(4), "limit_rings", "/coordinates/3/4");
}

#[test]
fn defaults_take_large_cadastral_features_and_not_more() {
    let ring = |count: usize| {
        let positions: Vec<String> = (0..count).map(|i| format!("[{}.{:07},1]", i % 90, i)).collect();
        format!(r#"{{"type":"LineString","coordinates":[{}]}}"#, positions.join(","))
    };
    let place = "/coordinates/1000000";
    check(&Policy::default(), &ring(1_000_000), &ring(1_000_001), "limit_positions", place);
}
