//! One example per code at least, and proof that none is missing.

use super::*;
use crate::Delivery;
use crate::explain::{Match, REASONS_MAX, ReasonCode, Which};
use crate::policy::{AssumedCrs, Detail, Dimensions, Lines, Parts, Secret, Unicode};
use std::collections::BTreeSet;

struct Case {
    a: String,
    b: String,
    policy: Policy,
    same: bool,
    /// Of the reasons, or of the removed differences where the payloads are the same; in order.
    codes: &'static str,
}

fn case(a: impl Into<String>, b: impl Into<String>, policy: &Policy, same: bool, codes: &'static str) -> Case {
    Case { a: a.into(), b: b.into(), policy: policy.clone(), same, codes }
}

const SQUARE: &str = "[[[0,0],[4,0],[4,3],[0,3],[0,0]]]";

fn same_cases() -> Vec<Case> {
    let policy = &Policy::default();
    let polygon = |rings: &str| shape("Polygon", rings);
    let flat = &Policy { dimensions: Dimensions::Two, ..Policy::default() };
    let simplified = &Policy { shape: Detail::Simplified, ..flat.clone() };
    let boxed = &Policy { shape: Detail::Bbox, ..flat.clone() };
    let undirected = &Policy { lines: Lines::Undirected, ..Policy::default() };
    let closing = &Policy { close_rings: true, ..Policy::default() };
    let nfc = &Policy { unicode: Unicode::Nfc, ..Policy::default() };
    let collection = |members: &str| format!(r#"{{"type":"GeometryCollection","geometries":[{members}]}}"#);
    let (one, two) = (point("[1,2]"), point("[3,4]"));
    let holes = |first: &str, second: &str| polygon(&format!("[[[0,0],[9,0],[9,9],[0,9],[0,0]],{first},{second}]"));
    let (hole_a, hole_b) = ("[[1,1],[1,2],[2,2],[1,1]]", "[[3,3],[3,4],[4,4],[3,3]]");
    let mut rounded = identified(&["/properties/speed"]);
    if let Identity::Fields(fields) = &mut rounded.identity {
        fields[0].decimals = Some(1);
    }
    vec![
        case(point("[1,2]"), point("[1,2]"), policy, true, ""),
        case(
            r#"{"type":"Point","coordinates":[1,2]}"#,
            r#"{"coordinates":[1,2],"type":"Point"}"#,
            policy,
            true,
            "key_order",
        ),
        case(point("[1,2]"), point("[1, 2]"), policy, true, "whitespace"),
        case(point("[1.0,2]"), point("[10e-1,2]"), policy, true, "number_form"),
        case(point("[-0.0,2]"), point("[0.0,2]"), policy, true, "minus_zero"),
        case(feature(&one, r#"{"n":1.0}"#), feature(&one, r#"{"n":1}"#), policy, true, "number_form"),
        case(feature(&one, r#"{"n":-0}"#), feature(&one, r#"{"n":0}"#), policy, true, "minus_zero"),
        case(feature(&one, r#"{"n":"\u0041"}"#), feature(&one, r#"{"n":"A"}"#), policy, true, "text_form"),
        case(feature(&one, "{\"n\":\"e\u{301}\"}"), feature(&one, "{\"n\":\"é\"}"), nfc, true, "text_form"),
        case(feature(&one, "null"), feature(&one, "{}"), policy, true, "null_or_absent"),
        case(
            feature(&one, r#"{"received_at":1,"x":1}"#),
            feature(&one, r#"{"received_at":2,"x":1}"#),
            policy,
            true,
            "ignored_field",
        ),
        case(feature(&one, r#"{"attempt":1}"#), feature(&one, "null"), policy, true, "ignored_field"),
        case(feature(&one, "{}"), one.clone(), policy, true, "form null_or_absent"),
        case("POINT(1 2)", one.clone(), policy, true, "form"),
        case("0101000000000000000000f03f0000000000000040", "POINT(1 2)", policy, true, "form"),
        case(point("[1.00000001,2]"), one.clone(), policy, true, "precision"),
        case(feature(&one, r#"{"speed":1.21}"#), feature(&one, r#"{"speed":1.19}"#), &rounded, true, "precision"),
        case(polygon(SQUARE), polygon("[[[0,0],[4,0],[4,3],[0,3],[0,0.0]]]"), policy, true, "number_form"),
        case(polygon(SQUARE), polygon("[[[0,0],[2,0],[4,0],[4,3],[0,3],[0,0]]]"), simplified, true, "shape"),
        case(polygon(SQUARE), polygon("[[[0,0],[4,1],[4,3],[0,0]]]"), boxed, true, "shape"),
        case(polygon(SQUARE), polygon("[[[4,0],[4,3],[0,3],[0,0],[4,0]]]"), policy, true, "ring_start"),
        case(polygon(SQUARE), polygon("[[[0,0],[0,3],[4,3],[4,0],[0,0]]]"), policy, true, "ring_direction"),
        case(polygon(SQUARE), polygon("[[[0,0],[4,0],[4,0],[4,3],[0,3],[0,0]]]"), policy, true, "duplicate_vertex"),
        case(polygon(SQUARE), polygon("[[[0,0],[4,0],[4,3],[0,3]]]"), closing, true, "ring_closed"),
        case(holes(hole_a, hole_b), holes(hole_b, hole_a), policy, true, "hole_order"),
        case(shape("MultiPoint", "[[1,2],[3,4]]"), shape("MultiPoint", "[[3,4],[1,2]]"), policy, true, "part_order"),
        case(shape("MultiPoint", "[[1,2]]"), one.clone(), policy, true, "multi_of_one"),
        case(
            collection(&format!("{one},{two}")),
            collection(&format!("{two},{one}")),
            policy,
            true,
            "collection_order",
        ),
        case(
            collection(&format!("{one},{}", collection(&two))),
            collection(&format!("{one},{two}")),
            policy,
            true,
            "nested_collection",
        ),
        case(point("[1,2,7]"), point("[1,2,8]"), flat, true, "z_dropped"),
        case(point("[1,2,7]"), one.clone(), flat, true, "z_dropped"),
        case(
            shape("LineString", "[[1,2],[3,4]]"),
            shape("LineString", "[[3,4],[1,2]]"),
            undirected,
            true,
            "line_direction",
        ),
        case(point("[-180,5]"), point("[180,5]"), policy, true, "longitude_name"),
        case(point("[7,90]"), point("[8,90]"), policy, true, "longitude_name"),
        case("SRID=3857;POINT(0 0)", "POINT(0 0)", policy, true, "crs"),
        case(
            r#"{"type":"Point","coordinates":[1,2],"crs":{"type":"name","properties":{"name":"EPSG:4326"}}}"#,
            one.clone(),
            policy,
            true,
            "crs",
        ),
        // Both latitudes lie between 5/11 and a half; one longitude sits on the half.
        case(
            point("[0.00000025,0.000000146]"),
            point("[0.0000002500001,0.000000146]"),
            policy,
            true,
            "precision tie_alias",
        ),
    ]
}

fn different_cases() -> Vec<Case> {
    let policy = &Policy::default();
    let one = point("[1,2]");
    let line = |coordinates: &str| shape("LineString", coordinates);
    let polygon = |rings: &str| shape("Polygon", rings);
    let ordered = &Policy { parts: Parts::Ordered, ..Policy::default() };
    let versioned = &Policy { version: Some(pointer("/properties/v")), ..Policy::default() };
    let nullable = &Policy {
        accept: crate::policy::Accept { types: Some(vec!["Point".into(), "null".into()]), ..Default::default() },
        ..Policy::default()
    };
    let collection = |members: &str| format!(r#"{{"type":"GeometryCollection","geometries":[{members}]}}"#);
    let different = |a: String, b: String, policy: &Policy, codes| case(a, b, policy, false, codes);
    vec![
        different(feature(&one, r#"{"id":1}"#), feature(&one, r#"{"id":2}"#), policy, "identity_field"),
        different(feature(&one, r#"{"id":1}"#), feature(&one, "{}"), policy, "identity_field"),
        different(feature(&one, r#"{"id":[1,[2]]}"#), feature(&one, r#"{"id":[1,[3]]}"#), policy, "identity_field"),
        different(feature(&one, r#"{"id":1}"#), one.clone(), policy, "identity_field"),
        different(feature(&one, r#"{"v":1}"#), feature(&one, r#"{"v":2}"#), versioned, "version_field"),
        different(
            feature(&one, r#"{"v":1,"id":1}"#),
            feature(&point("[1,2.5]"), r#"{"v":2,"id":2}"#),
            versioned,
            "identity_field version_field position",
        ),
        different(point("[0.00000015,0]"), point("[0.00000014,0]"), policy, "grid_edge"),
        different(point("[1.0000002,2]"), point("[1.0000004,2]"), policy, "precision"),
        different(point("[1,2]"), point("[1,2.5]"), policy, "position"),
        different(point("[1,2]"), point("[2,1]"), policy, "axis_order"),
        different(point("[1,2,7]"), point("[1,2,8]"), policy, "elevation"),
        different(point("[1,2,7]"), one.clone(), policy, "elevation"),
        different(line("[[1,2],[3,4]]"), line("[[3,4],[1,2]]"), policy, "line_direction"),
        different(shape("MultiPoint", "[[1,2],[3,4]]"), shape("MultiPoint", "[[3,4],[1,2]]"), ordered, "part_order"),
        different(
            collection(&format!("{one},{}", point("[3,4]"))),
            collection(&format!("{},{one}", point("[3,4]"))),
            ordered,
            "collection_order",
        ),
        different(line("[[1,2,7],[3,4,7]]"), line("[[3,4],[1,2]]"), policy, "line_direction elevation"),
        different(one.clone(), line("[[1,2],[3,4]]"), policy, "geometry_type"),
        different(one.clone(), collection(&one), policy, "geometry_type"),
        different(feature(&one, "{}"), feature("null", "{}"), nullable, "geometry_type"),
        different(shape("MultiPoint", "[[1,2],[3,4]]"), one.clone(), policy, "part_count"),
        different(collection(&one), collection(&format!("{one},{one}")), policy, "part_count"),
        different(
            polygon(SQUARE),
            polygon("[[[0,0],[4,0],[4,3],[0,3],[0,0]],[[1,1],[1,2],[2,2],[1,1]]]"),
            policy,
            "ring_count",
        ),
        different(line("[[1,2],[3,4]]"), line("[[1,2],[3,4],[5,6]]"), policy, "vertex_count"),
        different(line("[[1,2],[3,4]]"), line("[[1,2],[2,3],[3,4]]"), policy, "vertex_count"),
    ]
}

fn codes(reasons: &[crate::explain::Reason]) -> Vec<&'static str> {
    reasons.iter().map(|reason| reason.code.as_str()).collect()
}

fn check(case: &Case) -> Explanation {
    let explanation = explained(&case.a, &case.b, &case.policy);
    assert_eq!(explanation.same, case.same, "{}\n{}\n{explanation:#?}", case.a, case.b);
    let list = if case.same { &explanation.removed } else { &explanation.reasons };
    let expected: Vec<&str> = case.codes.split_whitespace().collect();
    assert_eq!(codes(list), expected, "{}\n{}\n{explanation:#?}", case.a, case.b);
    assert!(list.iter().all(|reason| !reason.message.is_empty()), "{explanation:#?}");
    assert_eq!(explanation.same, explanation.reasons.is_empty());
    explanation
}

#[test]
fn same_events_tell_what_was_removed() {
    for case in same_cases() {
        check(&case);
    }
}

#[test]
fn different_events_tell_why() {
    for case in different_cases() {
        check(&case);
    }
}

/// Cases that need two policies or delivery ids, and the codes they give.
fn two_sided() -> BTreeSet<&'static str> {
    let mut seen = BTreeSet::new();
    let default = Policy::default();
    let text = point("[1.00000004,2]");
    let others: Vec<(Policy, &str)> = vec![
        (Policy { scope: "b".into(), ..Policy::default() }, "scope"),
        (Policy { precision: 8, ..Policy::default() }, "policy"),
        (Policy { key_secret: Some(Secret::new(*b"s")), ..Policy::default() }, "policy"),
        (Policy { crs: AssumedCrs::Code(3857), ..Policy::default() }, "policy crs"),
    ];
    for (policy, expected) in &others {
        let explanation = explain(&side(&text, &default), &side(&text, policy)).unwrap();
        assert!(!explanation.same);
        assert_eq!(codes(&explanation.reasons), expected.split(' ').collect::<Vec<_>>(), "{explanation:#?}");
        seen.extend(codes(&explanation.reasons));
    }
    seen.extend(codes(&by_delivery(&text, "1", &text, "2").reasons));
    let outside = explained(
        &feature(&text, r#"{"id":1,"kind":"hydrant"}"#),
        &feature(&text, r#"{"id":1,"kind":"valve"}"#),
        &identified(&["/properties/id"]),
    );
    assert!(outside.same);
    seen.extend(codes(&outside.outside));
    seen
}

fn by_delivery(a: &str, id_a: &str, b: &str, id_b: &str) -> Explanation {
    let policy = Policy::default();
    let delivered = |text, id| {
        let delivery = Some(Delivery { by: "webhook-id", id, index: 0 });
        Side { delivery, ..side(text, &policy) }
    };
    let sides = [(a, id_a), (b, id_b)].map(|(text, id)| (text.to_owned(), id.to_owned()));
    explain(&delivered(&sides[0].0, &sides[0].1), &delivered(&sides[1].0, &sides[1].1)).unwrap()
}

#[test]
fn every_code_is_produced_and_documented() {
    let mut seen = two_sided();
    for case in same_cases() {
        seen.extend(codes(&explained(&case.a, &case.b, &case.policy).removed));
    }
    for case in different_cases() {
        seen.extend(codes(&explained(&case.a, &case.b, &case.policy).reasons));
    }
    let all: BTreeSet<&str> = ReasonCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(seen, all);
    let documentation = include_str!("../../../../../docs/explain.md");
    for code in all {
        assert!(documentation.contains(&format!("`{code}`")), "{code} is not in docs/explain.md");
    }
}

#[test]
fn fixes_are_those_that_help() {
    let policy = &Policy::default();
    for (a, b, fix) in [
        ("[0.00000015,0]", "[0.00000014,0]", "precision = 6, or near = \"5 cm\""),
        // On two sides of a line at precision 6 as well.
        ("[0.00000044,0]", "[0.00000052,0]", "precision = 5, or near = \"5 cm\""),
        ("[1.0000002,2]", "[1.0000004,2]", "precision = 6, or near = \"5 cm\""),
        ("[1,2]", "[1.0001,2]", "near = \"50 m\""),
        ("[1,2,7.0001]", "[1,2,7.0009]", "precision_z = 2, or dimensions = 2"),
        ("[10,20]", "[30,40]", "none: these are two places, so two events"),
    ] {
        let explanation = explained(&point(a), &point(b), policy);
        assert_eq!(explanation.fixes, [fix], "{explanation:#?}");
    }
    let lines = ["[[0,0],[1,0]]", "[[0,0],[0.5,0],[1,0]]"].map(|positions| shape("LineString", positions));
    let explanation = explained(&lines[0], &lines[1], policy);
    assert_eq!(explanation.fixes, ["shape = \"simplified\" with dimensions = 2"], "{explanation:#?}");
    // One vertex straddles lines at precision 7 and 6, the second the half at 5, the third 5/11 at 5.
    let a = "[[0.00000044,0],[1,0.00000496],[2,0.00000451]]";
    let b = "[[0.00000052,0],[1,0.00000502],[2,0.00000458]]";
    let explanation = explained(&shape("LineString", a), &shape("LineString", b), policy);
    assert_eq!(explanation.fixes, ["near = \"5 cm\""], "{explanation:#?}");
    let one = point("[1,2]");
    let listed = identified(&["/properties/a", "/properties/b"]);
    for (a, b, policy, fix) in [
        (r#"{"x":[1,{"y":2}]}"#, r#"{"x":[1,{"y":3}]}"#, policy, r#"ignore = ["/properties/x"]"#),
        (r#"{"a":1,"b":1}"#, r#"{"a":1,"b":2}"#, &listed, r#"identity = ["/properties/a"]"#),
    ] {
        let explanation = explained(&feature(&one, a), &feature(&one, b), policy);
        assert_eq!(explanation.fixes, [fix], "{explanation:#?}");
    }
}

#[test]
fn a_delivery_id_stands_for_the_content() {
    let (one, two) = (point("[1,2]"), point("[3,4]"));
    let again = by_delivery(&one, "7", &one, "7");
    assert_eq!((again.same, again.by, again.conflict), (true, Match::Delivery, false));
    let conflict = by_delivery(&one, "7", &two, "7");
    assert_eq!((conflict.same, conflict.conflict), (true, true));
    assert_eq!(codes(&conflict.outside), ["position"]);
    assert!(conflict.to_text(["a", "b"], false).starts_with("same delivery id, other content   b would be kept"));
    let fresh = by_delivery(&one, "7", &one, "8");
    assert_eq!((fresh.same, codes(&fresh.reasons)), (false, vec!["delivery_id"]));
    assert_eq!(fresh.fixes, ["identify = \"spatial\""]);
}

#[test]
fn a_previous_policy_is_named() {
    let old = Policy { precision: 6, ..Policy::default() };
    let new = Policy { previous: Some(Box::new(old.clone())), ..Policy::default() };
    let (a, b) = (point("[1.0000001,2]"), point("[1.0000002,2]"));
    let explanation = explain(&side(&a, &new), &side(&b, &old)).unwrap();
    assert_eq!((explanation.same, explanation.by), (true, Match::Previous));
    assert_eq!(codes(&explanation.removed), ["precision", "policy"]);
}

#[test]
fn a_refused_payload_names_its_side() {
    let policy = Policy::default();
    let good = point("[1,2]");
    let refused = explain(&side(&good, &policy), &side("{}", &policy)).unwrap_err();
    assert_eq!((refused.0, refused.1.code().as_str()), (Which::B, "geojson_type"));
    assert_eq!(explain(&side("{", &policy), &side(&good, &policy)).unwrap_err().0, Which::A);
}

#[test]
fn long_lists_are_counted() {
    let one = point("[1,2]");
    let members = |value: usize| {
        let list: Vec<String> = (0..50).map(|i| format!("\"f{i}\":{value}")).collect();
        feature(&one, &format!("{{{}}}", list.join(",")))
    };
    let explanation = explained(&members(1), &members(2), &Policy::default());
    assert_eq!((explanation.reasons.len(), explanation.more_reasons), (REASONS_MAX, 50 - REASONS_MAX));
    assert!(explanation.to_text(["a", "b"], false).contains("and 30 more"));
}

#[test]
fn jitter_does_not_hide_that_a_ring_was_rotated() {
    let a = shape("Polygon", "[[[0,0],[4,0],[4,3],[0,3],[0,0]]]");
    let b = shape("Polygon", "[[[4,3],[0,3],[-0.0000004,0.00000011],[4,0],[4,3]]]");
    let explanation = explained(&a, &b, &Policy::default());
    assert_eq!(codes(&explanation.reasons), ["precision"]);
    assert_eq!(explanation.reasons[0].pointer, "/coordinates/0/0");
    assert_eq!(explanation.reasons[0].pointer_b.as_deref(), Some("/coordinates/0/2"));
    assert!(codes(&explanation.removed).contains(&"ring_start"));
}
