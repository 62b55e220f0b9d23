//! The words and drawings people see.

use super::*;

#[test]
fn a_grid_edge_reads_as_promised() {
    let a = r#"{"type":"Feature","properties":{"received_at":"10:00","kind":"hydrant"},
        "geometry":{"type":"Point","coordinates":[0.00000015,0]}}"#;
    let b = r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[0.00000014,0]},
        "properties":{"kind":"hydrant","received_at":"10:05"}}"#;
    let expected = "\
different keys
  1 reason
   geometry.coordinates[0]   a 0.00000015   → 0.0000002
                             b 0.00000014   → 0.0000001
     about 1.1 mm apart, on two sides of a grid line (precision 7 = 1.11 cm).   fix: precision = 6, or near = \"5 cm\"
  not reasons (removed before hashing): received_at · key order
";
    let text = explained(a, b, &Policy::default()).to_text(["a", "b"], false);
    assert_eq!(text, expected);
}

#[test]
fn a_false_merge_is_warned_about() {
    let geometry = point("[13.4,52.5]");
    let a = feature(&geometry, r#"{"site":"north","asset_id":17,"kind":"hydrant"}"#);
    let b = feature(&geometry, r#"{"site":"north","asset_id":18,"kind":"valve"}"#);
    let expected = "\
same key   b would be dropped as a duplicate of a
  ⚠ fields that differ and are NOT part of the identity:  properties.asset_id  17 │ 18   properties.kind  hydrant │ valve
  fix:  identity = [\"/properties/site\", \"/properties/asset_id\"]
";
    let explanation = explained(&a, &b, &identified(&["/properties/site"]));
    assert_eq!(explanation.to_text(["a", "b"], false), expected);
    assert!(explanation.to_text(["a", "b"], true).contains("\u{1b}[33m⚠"));
}

#[test]
fn json_has_stable_members() {
    let explanation = explained(&point("[1,2]"), &point("[1, 2.5]"), &Policy::default());
    let value: serde_json::Value = serde_json::from_str(&explanation.to_json()).unwrap();
    let names: Vec<&String> = value.as_object().unwrap().keys().collect();
    let lists = ["reasons", "more_reasons", "removed", "more_removed", "outside", "more_outside"];
    assert_eq!(names, [["same", "by", "conflict", "key_a", "key_b"].as_slice(), &lists, &["fixes"]].concat());
    assert_eq!(value["by"], "none");
    let reason = &value["reasons"][0];
    assert_eq!((&reason["code"], &reason["pointer"]), (&"position".into(), &"/coordinates/1".into()));
    assert_eq!((&reason["a"], &reason["canonical_b"]), (&"2".into(), &"2.5000000".into()));
    for name in ["b", "canonical_a", "message", "fix", "places"] {
        assert!(!reason[name].is_null(), "{name}");
    }
    assert!(value["key_a"].as_str().unwrap().starts_with("g1_"));
}

#[test]
fn a_payload_cannot_steer_the_terminal_or_the_drawing() {
    let one = point("[1,2]");
    let a = feature(&one, r#"{"<script>":"\u001b[31m red"}"#);
    let b = feature(&one, "{\"<script>\":\"\u{9b}31m \u{202e}\"}");
    let policy = Policy::default();
    let explanation = explained(&a, &b, &policy);
    let text = explanation.to_text(["a\u{1b}", "b"], false);
    assert!(!text.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{text}");
    let svg = explanation.to_svg(&side(&a, &policy), &side(&b, &policy));
    assert!(!svg.contains("script"), "{svg}");
}

#[test]
fn the_drawing_marks_what_differs() {
    let policy = Policy::default();
    let a = shape("Polygon", "[[[0,0],[0.0000004,0],[0.0000004,0.0000003],[0,0]]]");
    let b = shape("Polygon", "[[[0,0],[0.0000004,0],[0.0000004,0.0000004],[0,0]]]");
    let explanation = explained(&a, &b, &policy);
    let svg = explanation.to_svg(&side(&a, &policy), &side(&b, &policy));
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>"));
    assert!(svg.contains("#dddddd"), "the grid is drawn at this scale");
    assert!(svg.contains("coordinates[0][2] 1.1 cm"), "{svg}");
    assert_eq!(svg.matches("<g").count(), svg.matches("</g>").count());
    let far = point("[100,40]");
    let svg = explanation.to_svg(&side(&a, &policy), &side(&far, &policy));
    assert!(!svg.contains("#dddddd"));
}
