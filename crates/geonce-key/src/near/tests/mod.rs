//! Measures on shapes whose distances are known, and on what noise does to canonical order.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the numbers of these tests are small"
)]

mod bodies;
mod cells;

use super::{Answer, Body, Budget, Measure, Rule, THRESHOLD_M_MAX, compare, geodesic};
use crate::{Input, Policy, Reader};

/// Metres of a degree of latitude at the equator, roughly.
const DEGREE_M: f64 = 110_574.4;

pub(super) fn body(geometry: &str) -> Body {
    let mut reader = Reader::new(&Policy::default(), None).unwrap();
    Body::new(&reader.read(Input::json(geometry.as_bytes())).unwrap(), false).unwrap()
}

/// A geometry from its type and coordinates, as `GeoJSON` writes them.
pub(super) fn geometry(kind: &str, coordinates: &str) -> Body {
    body(&format!(r#"{{"type":"{kind}","coordinates":{coordinates}}}"#))
}

/// Numbers from 0 to 1 that look random.
pub(super) struct Random(pub(super) u64);

impl Random {
    #[expect(clippy::cast_precision_loss, reason = "53 bits are what a double holds")]
    pub(super) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn within(&mut self, most: f64) -> f64 {
        (2.0 * self.next() - 1.0) * most
    }
}

fn answer(a: &Body, b: &Body, measure: Measure, threshold: f64) -> Answer {
    let rule = Rule::new(measure, threshold);
    rule.check().unwrap();
    let there = compare(a, b, &rule, &mut Budget::default());
    assert_eq!(there, compare(b, a, &rule, &mut Budget::default()), "one way is like the other");
    there
}

fn near(a: &Body, b: &Body, measure: Measure, threshold: f64) -> f64 {
    match answer(a, b, measure, threshold) {
        Answer::Near(value) => value,
        other => panic!("{measure:?} within {threshold}: {other:?}"),
    }
}

fn is_about(value: f64, expected: f64, tolerance: f64) {
    assert!((value - expected).abs() <= tolerance, "{value} is not {expected}");
}

/// A ring of `count` vertices around a place, as text.
fn ring(random: &mut Random, (lon, lat): (f64, f64), radius: f64, count: u32) -> Vec<[f64; 2]> {
    let mut ring: Vec<[f64; 2]> = (0..count)
        .map(|i| {
            let angle = (f64::from(i) + 0.8 * random.next()) / f64::from(count) * std::f64::consts::TAU;
            let far = radius * (0.7 + 0.3 * random.next());
            [lon + far * angle.cos(), lat + far * angle.sin()]
        })
        .collect();
    ring.push(ring[0]);
    ring
}

fn noisy(random: &mut Random, ring: &[[f64; 2]], noise: f64) -> Vec<[f64; 2]> {
    let mut moved: Vec<[f64; 2]> =
        ring.iter().map(|[x, y]| [x + random.within(noise), y + random.within(noise)]).collect();
    let last = moved.len() - 1;
    moved[last] = moved[0];
    moved
}

#[test]
fn geodesics_are_those_of_the_ellipsoid_and_opposite_points_end() {
    let at = |lon: i64, lat: i64| [lon * 1_000_000_000, lat * 1_000_000_000, 0];
    let far = 1e9;
    is_about(geodesic::metres(&at(0, 0), &at(1, 0), far).unwrap(), 111_319.490_793, 1e-6);
    is_about(geodesic::metres(&at(0, 0), &at(0, 1), far).unwrap(), 110_574.388_558, 1e-6);
    is_about(geodesic::metres(&at(179, 10), &at(-179, 10), far).unwrap(), 219_278.4, 0.1);
    is_about(geodesic::metres(&at(0, 90), &at(77, 90), far).unwrap(), 0.0, 1e-6);
    assert_eq!(geodesic::metres(&at(0, 0), &at(180, 0), far), None);
    assert_eq!(geodesic::metres(&at(0, 30), &at(180, -30), far), None);
    assert_eq!(geodesic::metres(&at(0, 0), &at(1, 0), 1_000.0), None);
}

#[test]
fn points_are_near_by_metres_and_heights_count() {
    let here = geometry("Point", "[13.4,52.5]");
    let there = geometry("Point", "[13.4,52.50001]");
    is_about(near(&here, &there, Measure::Metres, 2.0), 1.1126, 1e-3);
    assert_eq!(answer(&here, &there, Measure::Metres, 1.0), Answer::Apart);
    let high = geometry("Point", "[13.4,52.5,10]");
    let higher = geometry("Point", "[13.4,52.5,13]");
    is_about(near(&high, &higher, Measure::Metres, 3.5), 3.0, 1e-9);
    is_about(near(&high, &higher, Measure::Vertex, 3.5), 3.0, 1e-9);
    assert_eq!(answer(&high, &higher, Measure::Vertex, 2.0), Answer::Apart);
    assert_eq!(answer(&high, &here, Measure::Metres, 10.0), Answer::Incomparable);
    let line = geometry("LineString", "[[13.4,52.5],[13.5,52.5]]");
    assert_eq!(answer(&line, &line, Measure::Metres, 10.0), Answer::Incomparable);
}

#[test]
fn one_meridian_has_two_names_and_a_pole_has_many() {
    for (a, b) in
        [("[180,10]", "[-179.9999999,10]"), ("[-180,10]", "[179.9999999,10]"), ("[5,89.9999999]", "[-175,89.9999999]")]
    {
        let (a, b) = (geometry("Point", a), geometry("Point", b));
        assert!(near(&a, &b, Measure::Metres, 0.05) < 0.05);
        assert!(near(&a, &b, Measure::Vertex, 0.05) < 0.05);
    }
    let west = geometry("LineString", "[[-179.99,1],[-180,2]]");
    let east = geometry("LineString", "[[-179.99,1],[180,2]]");
    assert!(near(&west, &east, Measure::Vertex, 0.001) < 1e-6);
}

#[test]
fn noise_that_turns_rings_and_swaps_parts_and_holes_is_recognised() {
    // Two vertices with equal x: noise decides where the ring starts.
    let a = geometry("Polygon", "[[[0,0],[1,0],[1,1],[0,1],[0,0]]]");
    for b in ["[[[1e-9,0],[1,0],[1,1],[0,1],[1e-9,0]]]", "[[[0,1e-9],[1e-9,1],[1,1],[1,0],[0,1e-9]]]"] {
        assert!(near(&a, &geometry("Polygon", b), Measure::Vertex, 0.01) < 0.001);
    }
    let holes = |first: &str, second: &str| {
        let holes = [first, second].map(|x| format!("[[{x},1],[{x},2],[2.5,2],[{x},1]]"));
        geometry("Polygon", &format!("[[[0,0],[9,0],[9,9],[0,9],[0,0]],{},{}]", holes[0], holes[1].replace("2]", "3]")))
    };
    assert!(near(&holes("2", "2.000000001"), &holes("2.000000001", "2"), Measure::Vertex, 0.01) < 0.001);
    let parts = |x: &str, x2: &str| {
        geometry("MultiPolygon", &format!("[[[[{x},0],[1,0],[1,1],[{x},0]]],[[[{x2},5],[1,5],[1,6],[{x2},5]]]]"))
    };
    assert!(near(&parts("0", "1e-9"), &parts("1e-9", "0"), Measure::Vertex, 0.01) < 0.001);
    let points = |x: &str, x2: &str| geometry("MultiPoint", &format!("[[{x},0],[{x2},5],[3,3]]"));
    assert!(near(&points("0", "1e-9"), &points("1e-9", "0"), Measure::Vertex, 0.01) < 0.001);
    // A flat ring has no direction that noise could not turn.
    let flat = |y: &str| geometry("Polygon", &format!("[[[0,0],[1,{y}],[3,0],[0,0]]]"));
    assert!(near(&flat("1e-9"), &flat("-1e-9"), Measure::Vertex, 0.01) < 0.001);
}

#[test]
fn other_vertices_parts_and_types_are_not_near() {
    let square = geometry("Polygon", "[[[0,0],[1,0],[1,1],[0,1],[0,0]]]");
    let more = geometry("Polygon", "[[[0,0],[0.5,0],[1,0],[1,1],[0,1],[0,0]]]");
    assert_eq!(answer(&square, &more, Measure::Vertex, 1_000.0), Answer::Apart);
    let moved = geometry("Polygon", "[[[0,0],[1,0],[1,1.000005],[0,1],[0,0]]]");
    is_about(near(&square, &moved, Measure::Vertex, 1.0), 5e-6 * DEGREE_M, 1e-4);
    assert_eq!(answer(&square, &moved, Measure::Vertex, 0.5), Answer::Apart);
    let two = geometry("MultiPoint", "[[0,0],[0,1]]");
    assert_eq!(answer(&two, &geometry("MultiPoint", "[[0,0],[0,1],[0,2]]"), Measure::Vertex, 9.0), Answer::Apart);
    assert_eq!(answer(&two, &square, Measure::Vertex, 9.0), Answer::Incomparable);
    assert_eq!(answer(&two, &square, Measure::Hausdorff, 9.0), Answer::Incomparable);
    assert_eq!(answer(&square, &square, Measure::Frechet, 9.0), Answer::Incomparable);
    assert_eq!(answer(&two, &two, Measure::Iou, 0.5), Answer::Incomparable);
}

#[test]
fn the_direction_of_a_line_counts_unless_told_otherwise() {
    let there = geometry("LineString", "[[0,0],[1,1],[2,0]]");
    let back = geometry("LineString", "[[2,0],[1,1],[0,1e-9]]");
    for measure in [Measure::Vertex, Measure::Frechet] {
        assert_eq!(answer(&there, &back, measure, 1.0), Answer::Apart);
        let rule = Rule { undirected: true, ..Rule::new(measure, 1.0) };
        assert!(matches!(compare(&there, &back, &rule, &mut Budget::default()), Answer::Near(d) if d < 0.001));
    }
}

#[test]
fn a_repeated_position_with_noise_is_still_repeated() {
    let once = geometry("Polygon", "[[[0,0],[1,0],[1,1],[0,0]]]");
    let twice = geometry("Polygon", "[[[0,0],[1,0],[1,1e-9],[1,1],[0,0]]]");
    assert!(near(&once, &twice, Measure::Vertex, 0.01) < 0.001);
    let closing = geometry("Polygon", "[[[0,0],[1,0],[1,1],[0,2e-9],[0,0]]]");
    assert!(near(&once, &closing, Measure::Vertex, 0.01) < 0.001);
}

#[test]
fn collections_pair_members_of_one_type() {
    let collection = |x: &str, x2: &str| {
        body(&format!(
            r#"{{"type":"GeometryCollection","geometries":[{{"type":"Point","coordinates":[{x},1]}},
            {{"type":"Point","coordinates":[{x2},2]}},{{"type":"LineString","coordinates":[[0,0],[1,1]]}}]}}"#
        ))
    };
    assert!(near(&collection("0", "1e-9"), &collection("1e-9", "0"), Measure::Vertex, 0.01) < 0.001);
    assert_eq!(answer(&collection("0", "0"), &collection("0", "1"), Measure::Vertex, 0.01), Answer::Apart);
    assert_eq!(answer(&collection("0", "0"), &collection("1", "0"), Measure::Hausdorff, 9.0), Answer::Incomparable);
}

#[test]
fn hausdorff_does_not_see_density_but_sees_a_bump() {
    let sparse = geometry("LineString", "[[0,0],[1,0.5]]");
    let dense = geometry("LineString", "[[0,0],[0.25,0.125],[0.5,0.25],[1,0.5]]");
    is_about(near(&sparse, &dense, Measure::Hausdorff, 1.0), 0.0, 1e-6);
    let split = geometry("MultiLineString", "[[[0.5,0.25],[0,0]],[[0.5,0.25],[1,0.5]]]");
    is_about(near(&sparse, &split, Measure::Hausdorff, 1.0), 0.0, 1e-6);
    let bump = geometry("LineString", "[[0,0],[0.5,0.2500001],[1,0.5]]");
    let distance = near(&sparse, &bump, Measure::Hausdorff, 1.0);
    is_about(distance, 1e-7 * DEGREE_M * (1.0 / 1.25f64).sqrt(), 1e-4);
    assert_eq!(answer(&sparse, &bump, Measure::Hausdorff, 0.005), Answer::Apart);
    let east = geometry("LineString", "[[179,0],[180,0]]");
    let west = geometry("LineString", "[[-181,0.0],[-180,0.0000001]]".replace("-181", "179").as_str());
    assert!(near(&east, &west, Measure::Hausdorff, 1.0) < 0.02);
    let box_a = geometry("Polygon", "[[[0,0],[2,0],[2,2],[0,2],[0,0]],[[0.5,0.5],[1,1],[1,0.5],[0.5,0.5]]]");
    let box_b = geometry("Polygon", "[[[0,0],[2,0],[2,2],[0,2],[0,0]],[[0.5,0.5],[1,1],[1,0.50001],[0.5,0.5]]]");
    is_about(near(&box_a, &box_b, Measure::Hausdorff, 5.0), 1e-5 * DEGREE_M, 0.01);
}

#[test]
fn frechet_is_the_least_leash_of_all_walks() {
    let mut random = Random(5);
    for _ in 0..300 {
        let line = |random: &mut Random| -> Vec<[f64; 2]> {
            let count = 2 + (random.next() * 6.0) as usize;
            (0..count).map(|i| [i as f64 * 1e-4 + random.within(3e-4), random.within(2e-4)]).collect()
        };
        let (a, b) = (line(&mut random), line(&mut random));
        let expected = leash(&a, &b);
        let (a, b) = (geometry("LineString", &format!("{a:?}")), geometry("LineString", &format!("{b:?}")));
        is_about(near(&a, &b, Measure::Frechet, 1_000.0), expected, 1e-3 * expected + 1e-3);
        assert_eq!(answer(&a, &b, Measure::Frechet, expected * 0.99), Answer::Apart);
        assert!(near(&a, &b, Measure::Frechet, expected * 1.01) <= expected * 1.01);
    }
}

/// The discrete Fréchet distance by its definition, in metres around the equator.
fn leash(a: &[[f64; 2]], b: &[[f64; 2]]) -> f64 {
    let apart = ((a[0][0] - b[0][0]) * 111_319.49).hypot((a[0][1] - b[0][1]) * DEGREE_M);
    let rest = match (a.len(), b.len()) {
        (1, 1) => 0.0,
        (1, _) => leash(a, &b[1..]),
        (_, 1) => leash(&a[1..], b),
        _ => leash(a, &b[1..]).min(leash(&a[1..], b)).min(leash(&a[1..], &b[1..])),
    };
    apart.max(rest)
}

#[test]
fn areas_are_near_by_what_they_have_in_common() {
    let square =
        |x: f64, y: f64| format!("[[{x},{y}],[{},{y}],[{},{}],[{x},{}],[{x},{y}]]", x + 1.0, x + 1.0, y + 1.0, y + 1.0);
    let polygon = |ring: &str| geometry("Polygon", &format!("[{ring}]"));
    let here = polygon(&square(0.0, 0.0));
    is_about(near(&here, &polygon(&square(0.5, 0.0)), Measure::Iou, 0.1), 1.0 / 3.0, 1e-12);
    assert_eq!(answer(&here, &polygon(&square(0.5, 0.0)), Measure::Iou, 0.5), Answer::Apart);
    assert_eq!(answer(&here, &polygon(&square(5.0, 0.0)), Measure::Iou, 0.5), Answer::Apart);
    let holed = geometry(
        "Polygon",
        &format!("[{},[[0.25,0.25],[0.25,0.75],[0.75,0.75],[0.75,0.25],[0.25,0.25]]]", square(0.0, 0.0)),
    );
    is_about(near(&here, &holed, Measure::Iou, 0.5), 0.75, 1e-12);
    let parts = geometry("MultiPolygon", &format!("[[{}],[{}]]", square(0.0, 0.0), square(3.0, 0.0)));
    is_about(near(&here, &parts, Measure::Iou, 0.5), 0.5, 1e-12);
    // A ring that collapsed has no area, and what has none is near to nothing.
    let flat = geometry("Polygon", "[[[0,0],[1e-12,0],[0,1e-12],[0,0]]]");
    assert_eq!(answer(&here, &flat, Measure::Iou, 0.1), Answer::Apart);
    let (east, west) = (polygon(&square(179.0, 0.0)), polygon(&square(-180.0, 0.0)));
    assert_eq!(answer(&east, &west, Measure::Iou, 0.5), Answer::Apart);
}

#[test]
fn five_thousand_vertices_stay_within_the_budget_of_every_measure() {
    let mut random = Random(11);
    let outline = ring(&mut random, (13.0, 52.0), 0.2, 5_000);
    let moved = noisy(&mut random, &outline, 1e-9);
    let polygon = |ring: &[[f64; 2]]| geometry("Polygon", &format!("[{ring:?}]"));
    let line = |ring: &[[f64; 2]]| geometry("LineString", &format!("{:?}", &ring[..ring.len() - 1]));
    assert!(near(&polygon(&outline), &polygon(&moved), Measure::Vertex, 0.01) < 0.001);
    assert!(near(&polygon(&outline), &polygon(&moved), Measure::Hausdorff, 0.01) < 0.001);
    assert!(near(&line(&outline), &line(&moved), Measure::Frechet, 0.01) < 0.001);
    // A large threshold does not make the search a long one.
    assert!(near(&polygon(&outline), &polygon(&moved), Measure::Hausdorff, 5_000.0) < 0.001);
    let outline = ring(&mut random, (13.0, 52.0), 0.2, 500);
    let moved = noisy(&mut random, &outline, 1e-9);
    assert!(near(&polygon(&outline), &polygon(&moved), Measure::Iou, 0.99) > 0.999);
}

#[test]
fn a_budget_that_runs_out_is_an_answer_of_its_own() {
    let mut random = Random(3);
    let outline = ring(&mut random, (13.0, 52.0), 0.001, 50);
    let moved = noisy(&mut random, &outline, 1e-9);
    let polygons = [&outline, &moved].map(|ring| geometry("Polygon", &format!("[{ring:?}]")));
    let lines = [&outline, &moved].map(|ring| geometry("LineString", &format!("{ring:?}")));
    let points = [geometry("Point", "[1,1]"), geometry("Point", "[1,1.00000001]")];
    for (pair, measure, threshold) in [
        (&polygons, Measure::Vertex, 1.0),
        (&polygons, Measure::Hausdorff, 1.0),
        (&polygons, Measure::Iou, 0.5),
        (&lines, Measure::Frechet, 1.0),
        (&points, Measure::Metres, 1.0),
    ] {
        let rule = Rule::new(measure, threshold);
        let mut whole = Budget::default();
        assert!(matches!(compare(&pair[0], &pair[1], &rule, &mut whole), Answer::Near(_)));
        let mut short = Budget::new(whole.used() - 1);
        assert_eq!(compare(&pair[0], &pair[1], &rule, &mut short), Answer::OverBudget, "{measure:?}");
        assert!(matches!(compare(&pair[0], &pair[1], &rule, &mut Budget::new(whole.used())), Answer::Near(_)));
    }
}

#[test]
fn thresholds_that_mean_nothing_are_refused() {
    for (measure, threshold) in [
        (Measure::Iou, 0.0),
        (Measure::Iou, 1.1),
        (Measure::Vertex, -1.0),
        (Measure::Metres, f64::NAN),
        (Measure::Frechet, 2.0 * THRESHOLD_M_MAX),
    ] {
        assert!(Rule::new(measure, threshold).check().is_err(), "{measure:?} {threshold}");
    }
    assert!(Measure::ALL.iter().all(|&measure| Measure::from_name(measure.name()) == Some(measure)));
}
