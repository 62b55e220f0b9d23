//! Points 1 to 8 and 15 of `g1`, one sentence each: geometries and the canonical form they must have.

use crate::{bytes_under, key, key_of, key_under, refusal};
use geonce_key::assemble::assemble;
use geonce_key::policy::{Accept, AssumedCrs, Dimensions, Lines, Parts};
use geonce_key::{Form, Limits, Policy};

fn geometry(kind: &str, coordinates: &str) -> String {
    format!(r#"{{"type":"{kind}","coordinates":{coordinates}}}"#)
}

/// The canonical geometry of a bare geometry under a policy.
fn canonical_under(policy: &Policy, text: &str) -> String {
    let bytes = bytes_under(policy, text);
    let tail = r#","identity":{},"scope":"default","spec":"g1"}"#;
    bytes.strip_prefix(r#"{"geometry":"#).and_then(|rest| rest.strip_suffix(tail)).expect(&bytes).to_owned()
}

fn check_under(policy: &Policy, kind: &str, coordinates: &str, canonical: &str) {
    let found = canonical_under(policy, &geometry(kind, coordinates));
    let (_, found) = found.split_once(':').unwrap();
    let (found, _) = found.rsplit_once(",\"type\"").unwrap();
    assert_eq!(found, canonical, "{kind} {coordinates}");
}

fn check(kind: &str, coordinates: &str, canonical: &str) {
    check_under(&Policy::default(), kind, coordinates, canonical);
}

#[test]
fn point_1_unclosed_rings_are_closed_only_by_policy_and_with_a_warning() {
    let policy = Policy { close_rings: true, ..Policy::default() };
    let closed = geometry("Polygon", "[[[0,0],[1,0],[1,1],[0,0]]]");
    let open = geometry("Polygon", "[[[0,0],[1,0],[1,1]]]");
    assert_eq!(key_under(&policy, &closed).fingerprint, key_under(&policy, &open).fingerprint);
    let warnings = key_under(&policy, &open).warnings;
    assert_eq!((warnings[0].code, warnings[0].pointer.as_str()), ("ring_closed", "/coordinates/0"));
    assert!(key_under(&policy, &closed).warnings.is_empty());
    let short = geometry("Polygon", "[[[0,0],[1,0]]]");
    assert_eq!(refusal(&policy, Form::Json, short.as_bytes()).0, "geojson_ring_short");
}

#[test]
fn point_1_a_null_geometry_is_accepted_where_it_is_listed_and_keys_as_null() {
    let accept = Accept { types: Some(vec!["null".to_owned()]), ..Accept::default() };
    let policy = Policy { accept, ..Policy::default() };
    let text = r#"{"type":"Feature","id":7,"geometry":null}"#;
    assert_eq!(bytes_under(&policy, text), r#"{"geometry":null,"identity":{"id":7},"scope":"default","spec":"g1"}"#);
    assert!(key_under(&policy, text).aliases.is_empty());
}

#[test]
fn point_2_coordinates_become_wgs84_by_the_declared_system() {
    let mercator = r#"{"type":"Point","coordinates":[1489000.5,6894000.25],
        "crs":{"type":"name","properties":{"name":"urn:ogc:def:crs:EPSG::3857"}}}"#;
    let expected = canonical_under(&Policy::default(), mercator);
    assert_eq!(expected, r#"{"coordinates":[13.3759191,52.516176],"type":"Point"}"#);
    let assumed = Policy { crs: AssumedCrs::Code(3857), ..Policy::default() };
    let required = Policy { crs: AssumedCrs::Required, ..Policy::default() };
    let bare = geometry("Point", "[1489000.5,6894000.25]");
    assert_eq!(canonical_under(&assumed, &bare), expected);
    assert_eq!(canonical_under(&required, mercator), expected);
    let within = format!(r#"{{"type":"Feature","geometry":{mercator}}}"#);
    let declared = r#""crs":{"type":"name","properties":{"name":"EPSG:3857"}}"#;
    let beside = format!(r#"{{"type":"Feature","geometry":{bare},{declared}}}"#);
    assert_eq!(canonical_under(&Policy::default(), &within), expected);
    assert_eq!(canonical_under(&Policy::default(), &beside), expected);
    for srid in [3857, 900_913, 102_100] {
        let wkt = format!("SRID={srid};POINT (1489000.5 6894000.25)");
        assert_eq!(key_of(Form::Wkt, wkt.as_bytes()), key(mercator));
    }
}

#[test]
fn point_2_wgs84_is_longitude_first_under_each_of_its_names() {
    let plain = key(&geometry("Point", "[13.4,52.5]"));
    for name in ["EPSG:4326", "urn:ogc:def:crs:OGC:1.3:CRS84", "urn:ogc:def:crs:EPSG::4326"] {
        let text = format!(
            r#"{{"type":"Point","coordinates":[13.4,52.5],"crs":{{"type":"name","properties":{{"name":"{name}"}}}}}}"#
        );
        assert_eq!(key(&text), plain, "{name}");
    }
    assert_eq!(key_of(Form::Wkt, b"SRID=4326;POINT (13.4 52.5)"), plain);
    assert_eq!(key_of(Form::Wkt, b"SRID=0;POINT (13.4 52.5)"), plain);
}

#[test]
fn point_2_approximate_operations_need_words() {
    let text = r#"{"type":"Point","coordinates":[1,2],"crs":{"type":"name","properties":{"name":"EPSG:4269"}}}"#;
    assert_eq!(refusal(&Policy::default(), Form::Json, text.as_bytes()).0, "crs_approximate");
    let policy = Policy { approximate_crs: true, ..Policy::default() };
    assert_eq!(refusal(&policy, Form::Json, text.as_bytes()).0, "accepted");
}

#[test]
fn point_2_the_edge_of_the_world_map_is_not_out_of_bounds() {
    let edge = key_of(Form::Wkt, b"SRID=3857;POINT (20037508.342789244 0)");
    assert!(edge.matches(&key(&geometry("Point", "[180,0]"))));
}

#[test]
fn point_3_the_third_number_counts_unless_it_is_dropped_in_words() {
    check("Point", "[1,2,3]", "[1,2,3]");
    check("Point", "[1,2,3.0004]", "[1,2,3]");
    check("Point", "[1,2,-0.0]", "[1,2,0]");
    check("Point", "[1,2,8848.8605]", "[1,2,8848.86]");
    let two = Policy { dimensions: Dimensions::Two, ..Policy::default() };
    check_under(&two, "Point", "[1,2,3]", "[1,2]");
    check_under(&two, "Polygon", "[[[0,0,1],[1,0,2],[1,1,3],[0,0,4]]]", "[[[0,0],[1,0],[1,1],[0,0]]]");
    assert_eq!(refusal(&two, Form::Json, geometry("Point", "[1,2,null]").as_bytes()).0, "geojson_position");
    let coarse = Policy { precision_z: 0, ..Policy::default() };
    check_under(&coarse, "Point", "[1,2,3.4]", "[1,2,3]");
    let three = Policy { dimensions: Dimensions::Three, ..Policy::default() };
    check_under(&three, "Point", "[1,2,3]", "[1,2,3]");
}

#[test]
fn point_3_a_coordinate_system_leaves_the_third_number_alone() {
    let policy = Policy { crs: AssumedCrs::Code(3857), ..Policy::default() };
    check_under(&policy, "Point", "[0,0,12.5]", "[0,0,12.5]");
}

#[test]
fn point_4_the_grid_rounds_half_to_even_exactly_in_decimal() {
    for (delivered, on_grid) in [
        ("0.00000005", "0"),
        ("0.00000015", "2e-7"),
        ("0.00000025", "2e-7"),
        ("0.00000035", "4e-7"),
        ("-0.00000025", "-2e-7"),
        ("-0.00000015", "-2e-7"),
        ("0.000000250000000001", "3e-7"),
        ("0.00000024999999999999", "2e-7"),
        ("12.34567895", "12.345679"),
        ("12.34567885", "12.3456788"),
        ("1.00000005", "1"),
        ("-0.0", "0"),
        ("-0.00000001", "0"),
        ("1e-300", "0"),
        ("2.675", "2.675"),
    ] {
        check("Point", &format!("[{delivered},0]"), &format!("[{on_grid},0]"));
        check("MultiPoint", &format!("[[0,0],[1,{delivered}0]]"), &format!("[[0,0],[1,{on_grid}]]"));
    }
    let whole = Policy { precision: 0, ..Policy::default() };
    check_under(&whole, "Point", "[0.5,1.5]", "[0,2]");
    check_under(&whole, "Point", "[-2.5,12.51]", "[-2,13]");
    let nine = Policy { precision: 9, ..Policy::default() };
    check_under(&nine, "Point", "[179.1234567894,-1e-9]", "[179.123456789,-1e-9]");
}

#[test]
fn point_4_the_tie_safe_grid_rounds_up_from_five_elevenths() {
    // Whether two values agree on the alias's grid alone: half-even puts them apart.
    let share = |a: &str, b: &str| {
        let [a, b] = [a, b].map(|x| key(&geometry("Point", &format!("[{x},0]"))));
        assert_ne!(a.fingerprint, b.fingerprint);
        a.matches(&b)
    };
    assert!(share("0.00000025", "0.00000026"));
    assert!(share("0.000000245455", "0.00000026"));
    assert!(!share("0.000000245454", "0.00000026"));
    assert!(share("-0.00000025", "-0.00000026"));
    assert!(!share("-0.00000025", "0.00000026"));
    assert!(!share("0.00000025", "0.00000036"));
    // One grid step apart: the alias of the one is where the key of the other is, on another grid.
    assert!(!share("0.000000246", "0.000000346"));
    assert!(!share("0.00000025", "0.0000003"));
}

#[test]
fn point_4_one_double_of_drift_on_either_side_of_a_half_is_recognised() {
    for half in [0.000_000_05_f64, 0.000_000_15, 0.000_000_25, 12.345_678_95, 12.345_678_85, -77.000_000_25] {
        let point = |x: f64| key(&geometry("Point", &format!("[{x},0]")));
        for drifted in [half.next_up(), half.next_down()] {
            assert!(point(half).matches(&point(drifted)), "{half} and {drifted}");
        }
    }
}

#[test]
fn point_4_numbers_on_the_grid_have_no_alias_and_those_between_have_one() {
    for (x, aliases) in [("1.2345678", 0), ("1.23456780000", 0), ("1", 0), ("1.23456781", 1), ("1.23456785", 1)] {
        assert_eq!(key(&geometry("Point", &format!("[{x},0]"))).aliases.len(), aliases, "{x}");
    }
}

#[test]
fn point_4_rounding_comes_before_bounds_and_longitudes_are_never_wrapped() {
    check("LineString", "[[180.00000004,0],[-180.00000004,90.00000004]]", "[[180,0],[-180,90]]");
    for x in ["180.00000006", "181", "-540"] {
        let text = geometry("Point", &format!("[{x},0]"));
        assert_eq!(refusal(&Policy::default(), Form::Json, text.as_bytes()).0, "geojson_bounds");
    }
}

#[test]
fn point_5_the_antimeridian_and_the_poles_have_one_name_in_points_only() {
    check("Point", "[-180,10]", "[180,10]");
    check("Point", "[-179.99999999,10]", "[180,10]");
    check("Point", "[77,90]", "[0,90]");
    check("Point", "[-180,-90]", "[0,-90]");
    check("Point", "[77,-89.99999999]", "[0,-90]");
    check("MultiPoint", "[[-180,10],[5,90]]", "[[0,90],[180,10]]");
    check("LineString", "[[-180,10],[5,90]]", "[[-180,10],[5,90]]");
    check("Polygon", "[[[-180,0],[-170,0],[-170,90],[-180,0]]]", "[[[-180,0],[-170,0],[-170,90],[-180,0]]]");
    let member = r#"{"type":"GeometryCollection","geometries":[{"type":"Point","coordinates":[-180,1]}]}"#;
    assert!(canonical_under(&Policy::default(), member).contains("[180,1]"));
}

#[test]
fn point_6_consecutive_equal_positions_merge_after_the_grid() {
    check("LineString", "[[0,0],[0,0],[1,1],[1.00000001,1]]", "[[0,0],[1,1]]");
    check("LineString", "[[0,0],[1,1],[0,0]]", "[[0,0],[1,1],[0,0]]");
    check("Polygon", "[[[5,5],[5,5],[6,5],[6,6],[6,6],[5,5],[5,5]]]", "[[[5,5],[6,5],[6,6],[5,5]]]");
    check("LineString", "[[0,0,1],[0,0,2]]", "[[0,0,1],[0,0,2]]");
    check("MultiPoint", "[[0,0],[0,0],[0,0]]", "[[0,0],[0,0],[0,0]]");
}

#[test]
fn point_6_a_ring_is_closed_on_the_grid() {
    check("Polygon", "[[[0,0],[1,0],[1,1],[0.00000001,0]]]", "[[[0,0],[1,0],[1,1],[0,0]]]");
    // Half-even tells these apart, the tie-safe grid does not.
    check("Polygon", "[[[0.00000025,0],[1,0],[1,1],[0.000000250000001,0]]]", "[[[2e-7,0],[1,0],[1,1],[2e-7,0]]]");
    let text = geometry("Polygon", "[[[0,0],[1,0],[1,1],[0.0000001,0]]]");
    assert_eq!(refusal(&Policy::default(), Form::Json, text.as_bytes()).0, "geojson_ring_unclosed");
}

#[test]
fn point_6_what_collapses_keeps_its_type_and_warns() {
    check("LineString", "[[0,0],[0.00000001,0]]", "[[0,0]]");
    check("Polygon", "[[[3,3],[3,3],[3,3],[3,3]]]", "[[[3,3],[3,3]]]");
    check("Polygon", "[[[3,3],[4,4],[3,3],[4,4],[3,3]]]", "[[[3,3],[4,4],[3,3],[4,4],[3,3]]]");
    check("Polygon", "[[[3,3],[4,4],[4,4],[3,3]]]", "[[[3,3],[4,4],[3,3]]]");
    let text =
        r#"{"type":"Feature","geometry":{"type":"MultiLineString","coordinates":[[[0,0],[1,1]],[[2,2],[2,2]]]}}"#;
    let warnings = key(text).warnings;
    assert_eq!((warnings[0].code, warnings[0].pointer.as_str()), ("collapsed", "/geometry/coordinates/1"));
    assert_eq!(warnings.len(), 1);
}

#[test]
fn point_7_exterior_rings_run_counter_clockwise_and_holes_clockwise() {
    let canonical = "[[[0,0],[9,0],[9,9],[0,9],[0,0]],[[1,1],[1,2],[2,2],[2,1],[1,1]]]";
    for outer in ["[[0,0],[9,0],[9,9],[0,9],[0,0]]", "[[9,9],[9,0],[0,0],[0,9],[9,9]]"] {
        for hole in ["[[1,1],[1,2],[2,2],[2,1],[1,1]]", "[[2,1],[2,2],[1,2],[1,1],[2,1]]"] {
            check("Polygon", &format!("[{outer},{hole}]"), canonical);
        }
    }
}

#[test]
fn point_7_the_least_rotation_is_not_merely_the_smallest_vertex() {
    // The smallest vertex occurs twice; what follows it decides.
    let canonical = "[[[0,0],[2,-1],[2,1],[0,0],[1,3],[-0.5,4],[0,0]]]";
    let least = "[[[-0.5,4],[0,0],[2,-1],[2,1],[0,0],[1,3],[-0.5,4]]]";
    check("Polygon", canonical, least);
    let twice = "[[[0,0],[2,-1],[2,1],[0,0],[1,3],[0.5,4],[0,0]]]";
    check("Polygon", twice, "[[[0,0],[1,3],[0.5,4],[0,0],[2,-1],[2,1],[0,0]]]");
    check(
        "Polygon",
        "[[[2,1],[0,0],[1,3],[0.5,4],[0,0],[2,-1],[2,1]]]",
        "[[[0,0],[1,3],[0.5,4],[0,0],[2,-1],[2,1],[0,0]]]",
    );
    check(
        "Polygon",
        "[[[2,1],[2,-1],[0,0],[0.5,4],[1,3],[0,0],[2,1]]]",
        "[[[0,0],[1,3],[0.5,4],[0,0],[2,-1],[2,1],[0,0]]]",
    );
}

#[test]
fn point_7_a_ring_without_area_takes_the_smaller_direction() {
    let canonical = "[[[0,0],[1,1],[3,3],[2,2],[0,0]]]";
    check("Polygon", "[[[0,0],[1,1],[3,3],[2,2],[0,0]]]", canonical);
    check("Polygon", "[[[3,3],[1,1],[0,0],[2,2],[3,3]]]", canonical);
    // A figure of eight whose halves cancel out.
    let eight = "[[[0,0],[1,1],[1,0],[0,1],[0,0]]]";
    check("Polygon", eight, "[[[0,0],[0,1],[1,0],[1,1],[0,0]]]");
    check("Polygon", "[[[1,0],[1,1],[0,0],[0,1],[1,0]]]", "[[[0,0],[0,1],[1,0],[1,1],[0,0]]]");
}

#[test]
fn point_7_direction_is_decided_by_exact_area() {
    // One grid step of height over the width of the world: lost in doubles.
    let text = "[[[-180,0.0000001],[180,0.0000001],[179.9999999,0.0000002],[-180,0.0000001]]]";
    check("Polygon", text, "[[[-180,1e-7],[180,1e-7],[179.9999999,2e-7],[-180,1e-7]]]");
}

#[test]
fn point_8_order_is_numeric_and_shorter_comes_first() {
    check("MultiPoint", "[[10,0],[9,0],[-1,0],[-10,0],[9,-3]]", "[[-10,0],[-1,0],[9,-3],[9,0],[10,0]]");
    check("MultiLineString", "[[[0,0],[1,1],[2,2]],[[0,0],[1,1]]]", "[[[0,0],[1,1]],[[0,0],[1,1],[2,2]]]");
    check("MultiPoint", "[[1,1,10],[1,1,9]]", "[[1,1,9],[1,1,10]]");
    let [big, low, high] =
        ["[[0,0],[9,0],[9,9],[0,9],[0,0]]", "[[1,1],[1,2],[2,2],[1,1]]", "[[10,1],[10,2],[20,2],[10,1]]"];
    check("Polygon", &format!("[{big},{high},{low}]"), &format!("[{big},{low},{high}]"));
}

#[test]
fn point_8_collections_stay_collections() {
    let collection = |members: &[String]| {
        canonical_under(
            &Policy::default(),
            &format!(r#"{{"type":"GeometryCollection","geometries":[{}]}}"#, members.join(",")),
        )
    };
    let point = geometry("Point", "[5,5]");
    let line = geometry("LineString", "[[7,7],[6,6]]");
    let points = geometry("MultiPoint", "[[2,2],[1,1]]");
    let polygon = geometry("Polygon", "[[[0,0],[1,0],[1,1],[0,0]]]");
    let nested = format!(r#"{{"type":"GeometryCollection","geometries":[{points},{line}]}}"#);
    let expected = concat!(
        r#"{"geometries":[{"coordinates":[[7,7],[6,6]],"type":"LineString"},"#,
        r#"{"coordinates":[[1,1],[2,2]],"type":"MultiPoint"},{"coordinates":[5,5],"type":"Point"},"#,
        r#"{"coordinates":[[[0,0],[1,0],[1,1],[0,0]]],"type":"Polygon"}],"type":"GeometryCollection"}"#
    );
    assert_eq!(collection(&[polygon, point.clone(), nested]), expected);
    let single = collection(&[geometry("MultiPoint", "[[5,5]]")]);
    assert_eq!(single, collection(std::slice::from_ref(&point)));
    assert_ne!(single, canonical_under(&Policy::default(), &point));
}

#[test]
fn point_8_policies_of_order_and_direction() {
    let ordered = Policy { parts: Parts::Ordered, ..Policy::default() };
    check_under(&ordered, "MultiPoint", "[[2,2],[1,1]]", "[[2,2],[1,1]]");
    let holes = "[[[0,0],[9,0],[9,9],[0,0]],[[3,3],[3,4],[4,4],[3,3]],[[1,1],[1,2],[2,2],[1,1]]]";
    let sorted = "[[[0,0],[9,0],[9,9],[0,0]],[[1,1],[1,2],[2,2],[1,1]],[[3,3],[3,4],[4,4],[3,3]]]";
    check_under(&ordered, "Polygon", holes, sorted);
    let undirected = Policy { lines: Lines::Undirected, ..Policy::default() };
    check_under(&undirected, "LineString", "[[2,2],[3,3],[1,1]]", "[[1,1],[3,3],[2,2]]");
    check("LineString", "[[2,2],[3,3],[1,1]]", "[[2,2],[3,3],[1,1]]");
}

#[test]
fn point_15_holes_go_to_the_smallest_shell_around_them() {
    let square = |low: i64, size: i64, clockwise: bool| {
        let high = low + size;
        let mut ring = vec![[low, low, 0], [high, low, 0], [high, high, 0], [low, high, 0], [low, low, 0]];
        if clockwise {
            ring.reverse();
        }
        ring
    };
    // Clockwise rings are shells here: an outer one, an island inside its hole, and the island's own hole.
    let rings = [square(0, 100, true), square(10, 50, false), square(20, 20, true), square(25, 5, false)];
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
        let rings: Vec<&[[i64; 3]]> = order.iter().map(|&i: &usize| rings[i].as_slice()).collect();
        let shape = assemble(&rings, false, &Limits::default()).unwrap();
        assert_eq!(shape.type_name(), "MultiPolygon");
        let mut widths: Vec<Vec<i64>> = shape
            .members()
            .flat_map(|member| member.parts().collect::<Vec<_>>())
            .map(|part| part.paths().map(|ring| ring.iter().map(|p| p[0]).max().unwrap()).collect())
            .collect();
        widths.sort();
        assert_eq!(widths, [[40, 30], [100, 60]]);
    }
}
