//! What the articles' key generator was measured to get wrong; each line is a test that `g1` passes.

use crate::{identified_by, key, key_under, refusal};
use geonce_key::{Form, Policy};

fn bare(kind: &str, coordinates: &str) -> String {
    format!(r#"{{"type":"{kind}","coordinates":{coordinates}}}"#)
}

fn same(one: &str, other: &str) {
    assert_eq!(key(one), key(other), "{one} {other}");
}

fn differ(one: &str, other: &str) {
    assert!(!key(one).matches(&key(other)), "{one} {other}");
}

#[test]
fn ring_start_direction_part_order_and_repeated_vertices_are_canonical() {
    let polygon = bare("Polygon", "[[[0,0],[4,0],[4,4],[0,4],[0,0]]]");
    same(&polygon, &bare("Polygon", "[[[4,4],[0,4],[0,0],[4,0],[4,4]]]"));
    same(&polygon, &bare("Polygon", "[[[0,0],[0,4],[4,4],[4,0],[0,0]]]"));
    same(&polygon, &bare("Polygon", "[[[0,0],[4,0],[4,0],[4,4],[0,4],[0,0]]]"));
    same(&bare("MultiPoint", "[[1,1],[2,2]]"), &bare("MultiPoint", "[[2,2],[1,1]]"));
}

#[test]
fn minus_zero_is_zero() {
    for other in ["[-0.0,-0]", "[0,-0.00000001]", "[-0e9,0.0]"] {
        assert!(key(&bare("Point", "[0,0]")).matches(&key(&bare("Point", other))), "{other}");
        assert_eq!(key(&bare("Point", "[0,0]")).fingerprint, key(&bare("Point", other)).fingerprint);
    }
}

#[test]
fn whitelisted_properties_are_found_where_they_are_and_missed_loudly() {
    let policy = identified_by(&["/properties/asset_id"]);
    let asset = |id: &str| {
        format!(
            r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[1,2]}},"properties":{{"asset_id":"{id}"}}}}"#
        )
    };
    assert!(!key_under(&policy, &asset("A")).matches(&key_under(&policy, &asset("B"))));
    let nowhere = identified_by(&["/asset_id"]);
    let refused = refusal(&nowhere, Form::Json, asset("A").as_bytes());
    assert_eq!(refused, ("identity_missing", "/asset_id".to_owned()));
}

#[test]
fn a_geometry_collection_has_a_key() {
    let member = bare("Point", "[1,2]");
    key(&format!(r#"{{"type":"GeometryCollection","geometries":[{member}]}}"#));
}

#[test]
fn a_spike_has_a_key() {
    key(&bare("Polygon", "[[[0,0],[4,0],[4,4],[9,9],[4,4],[0,4],[0,0]]]"));
}

#[test]
fn a_bow_tie_is_not_the_multipolygon_it_would_be_repaired_to() {
    let bow_tie = bare("Polygon", "[[[0,0],[2,2],[2,0],[0,2],[0,0]]]");
    differ(&bow_tie, &bare("MultiPolygon", "[[[[0,0],[1,1],[0,2],[0,0]]],[[[1,1],[2,0],[2,2],[1,1]]]]"));
}

#[test]
fn overlapping_parts_keep_their_area() {
    let [one, other] = ["[[[0,0],[4,0],[4,4],[0,0]]]", "[[[1,0],[5,0],[5,4],[1,0]]]"];
    differ(&bare("MultiPolygon", &format!("[{one},{other}]")), &bare("MultiPolygon", &format!("[{one},{one}]")));
    differ(&bare("MultiPolygon", &format!("[{one},{other}]")), &bare("Polygon", one));
}

#[test]
fn the_crs_member_counts_and_projected_coordinates_have_a_key() {
    let with = |name: &str| {
        format!(
            r#"{{"type":"Point","coordinates":[13.4,52.5],"crs":{{"type":"name","properties":{{"name":"{name}"}}}}}}"#
        )
    };
    differ(&bare("Point", "[13.4,52.5]"), &with("EPSG:3857"));
    same(&bare("Point", "[13.4,52.5]"), &with("OGC:CRS84"));
    let metres = bare("Point", "[1491000.25,6895000.5]");
    assert_eq!(refusal(&Policy::default(), Form::Json, metres.as_bytes()).0, "geojson_bounds");
    key(&metres.replace('}', r#","crs":{"type":"name","properties":{"name":"EPSG:3857"}}}"#));
}

#[test]
fn a_hostile_polygon_costs_no_more_than_its_size() {
    // Every edge crosses every other: repair would take seconds for a few kilobytes, the key only reads them.
    let spokes: Vec<String> =
        (0..400).map(|i| if i % 2 == 0 { format!("[{i}e-3,0]") } else { format!("[{}e-3,1]", 400 - i) }).collect();
    let text = bare("Polygon", &format!("[[{},[0,0]]]", spokes.join(",")));
    key(&text);
}

#[test]
fn nan_out_of_range_and_two_point_rings_are_refused() {
    for (text, code) in [
        (bare("Point", "[NaN,0]"), "json_syntax"),
        (bare("Point", "[200,0]"), "geojson_bounds"),
        (bare("Polygon", "[[[0,0],[0,0]]]"), "geojson_ring_short"),
        ("[1,2]".to_owned(), "geojson_not_object"),
    ] {
        assert_eq!(refusal(&Policy::default(), Form::Json, text.as_bytes()).0, code, "{text}");
    }
}
