//! Repair of shapes drawn by hand, and laws that hold for every shape.

use proptest::prelude::*;

use super::*;
use crate::validity::check;
use crate::validity::tests::{closed, polygons, square, sunburst};

type Ring = Vec<[i64; 2]>;

fn repaired(shape: &Shape<i64>) -> Result<Repaired> {
    repair(shape, &Options::default(), &Limits::default())
}

fn expect(parts: &[Vec<Ring>], expected: &[Vec<Ring>]) {
    let shape = polygons(parts);
    let out = repaired(&shape).unwrap();
    assert_eq!(out.shape.positions, polygons(expected).positions, "{parts:?}");
    assert_eq!(out.shape.parts, polygons(expected).parts);
    assert_eq!(out.changed, out.shape != shape);
    assert!(check(&out.shape, &Limits::default()).is_valid());
}

#[test]
fn a_valid_shape_comes_back_vertex_for_vertex() {
    let touching = closed(vec![[20, 0], [30, 10], [10, 10]]);
    let repeated = closed(vec![[0, 0], [0, 0], [40, 0], [40, 40], [40, 40], [0, 40]]);
    for parts in [vec![vec![square(0, 0, 40), touching]], vec![vec![repeated], vec![square(40, 40, 9)]]] {
        let shape = polygons(&parts);
        let out = repaired(&shape).unwrap();
        assert!(!out.changed && out.shape == shape && out.actions.is_empty());
        assert_eq!(out.area_before, out.area_after);
    }
}

#[test]
fn rings_are_filled_non_zero() {
    let bow_tie = closed(vec![[0, 0], [4, 4], [4, 0], [0, 4]]);
    let lobes = [vec![closed(vec![[0, 0], [2, 2], [0, 4]])], vec![closed(vec![[2, 2], [4, 0], [4, 4]])]];
    expect(&[vec![bow_tie]], &lobes);
    let mut twice = square(0, 0, 4);
    twice.extend(&square(0, 0, 4)[1..]);
    expect(&[vec![twice]], &[vec![square(0, 0, 4)]]);
    let spike = closed(vec![[0, 0], [4, 0], [4, 2], [6, 2], [4, 2], [4, 4], [0, 4]]);
    expect(&[vec![spike]], &[vec![closed(vec![[0, 0], [4, 0], [4, 2], [4, 4], [0, 4]])]]);
    let inverted = closed(vec![[0, 0], [6, 0], [6, 6], [0, 6], [0, 0], [2, 1], [1, 2]]);
    expect(&[vec![inverted]], &[vec![square(0, 0, 6)]]);
}

#[test]
fn holes_are_cut_or_become_parts() {
    let shell = square(0, 0, 9);
    let union = closed(vec![[1, 1], [1, 4], [3, 4], [3, 6], [6, 6], [6, 3], [4, 3], [4, 1]]);
    expect(&[vec![shell.clone(), square(1, 1, 3), square(3, 3, 3)]], &[vec![shell.clone(), union]]);
    expect(&[vec![shell.clone(), square(20, 20, 2)]], &[vec![shell.clone()], vec![square(20, 20, 2)]]);
    expect(&[vec![shell.clone(), closed(vec![[1, 1], [2, 2], [3, 3]])]], &[vec![shell]]);
}

#[test]
fn parts_are_united_and_islands_stay_in_their_holes() {
    expect(
        &[vec![square(0, 0, 4)], vec![closed(vec![[0, 4], [8, 4], [8, 8], [0, 8]])]],
        &[vec![closed(vec![[0, 0], [4, 0], [4, 4], [8, 4], [8, 8], [0, 8], [0, 4]])]],
    );
    let turned = |ring: Ring| closed(vec![ring[0], ring[3], ring[2], ring[1]]);
    let ring = vec![square(0, 0, 30), turned(square(5, 5, 20))];
    let island = vec![square(10, 10, 10), turned(square(12, 12, 2))];
    let again = [ring.clone(), island, vec![square(10, 10, 10)]];
    expect(&again, &[ring, vec![square(10, 10, 10)]]);
}

#[test]
fn a_multi_polygon_of_one_part_stays_one() {
    let mut shape = polygons(&[vec![closed(vec![[0, 0], [4, 0], [4, 2], [6, 2], [4, 2], [4, 4], [0, 4]])]]);
    shape.members[0].kind = Kind::MultiPolygon;
    assert_eq!(repaired(&shape).unwrap().shape.members[0].kind, Kind::MultiPolygon);
}

#[test]
fn what_has_no_area_or_length_is_refused_by_name() {
    let flat = polygons(&[vec![closed(vec![[0, 0], [4, 0], [2, 0]])]]);
    let error = repaired(&flat).unwrap_err();
    assert_eq!((error.code(), error.pointer()), (Code::GeojsonEmpty, "/coordinates"));
    let gone = polygons(&[vec![square(0, 0, 4), square(0, 0, 4)]]);
    assert_eq!(repaired(&gone).unwrap_err().code(), Code::GeojsonEmpty);
    let far = polygons(&[vec![square(i64::MAX - 9, 0, 4)]]);
    assert_eq!(repaired(&far).unwrap_err().code(), Code::GeojsonBounds);
}

#[test]
fn options_close_rings_and_swap_axes() {
    let open = polygons(&[vec![vec![[0, 1], [4, 1], [4, 5], [0, 5]]]]);
    let out = repaired(&open).unwrap();
    assert_eq!(out.shape, polygons(&[vec![square(0, 1, 4)]]));
    assert_eq!(out.actions[0].code, ActionCode::RingClosed);
    let strict = Options { swap_axes: false, close_rings: false };
    let error = repair(&open, &strict, &Limits::default()).unwrap_err();
    assert_eq!((error.code(), error.pointer()), (Code::GeojsonRingUnclosed, "/coordinates/0"));
    let swap = Options { swap_axes: true, close_rings: true };
    let out = repair(&polygons(&[vec![square(0, 1, 4)]]), &swap, &Limits::default()).unwrap();
    assert_eq!(out.shape.positions[1], [1, 4, 0]);
    assert!(out.changed);
}

#[test]
fn lines_lose_repeated_positions_only() {
    let mut shape = Shape::new();
    for line in [vec![[0, 0, 0], [0, 0, 0], [4, 4, 0], [4, 0, 0], [0, 4, 0]], vec![[7, 7, 0], [7, 7, 0]]] {
        shape.positions.extend(line);
        shape.end_path();
        shape.end_part();
    }
    shape.end_member(Kind::MultiLineString);
    let out = repaired(&shape).unwrap();
    assert_eq!(out.shape.positions, [[0, 0, 0], [4, 4, 0], [4, 0, 0], [0, 4, 0]]);
    let codes: Vec<_> = out.actions.iter().map(|a| (a.code, a.pointer.as_str())).collect();
    assert_eq!(codes, [(ActionCode::RepeatsDropped, "/coordinates/0"), (ActionCode::LineDropped, "/coordinates/1")]);
}

#[test]
fn heights_are_kept_and_new_vertices_take_theirs_from_the_segment() {
    let mut shape = polygons(&[vec![closed(vec![[0, 0], [4, 4], [4, 0], [0, 4]])]]);
    shape.has_z = true;
    for (position, z) in shape.positions.iter_mut().zip([10, 20, 7, 9, 10]) {
        position[2] = z;
    }
    let out = repaired(&shape).unwrap().shape;
    assert!(out.has_z);
    // Both segments pass through (2, 2), one at height 15 and one at 8: the smaller is taken.
    assert_eq!(out.positions[..4], [[0, 0, 10], [2, 2, 8], [0, 4, 9], [0, 0, 10]]);
}

#[test]
fn members_of_a_collection_are_repaired_each_by_itself() {
    let mut shape = polygons(&[vec![square(0, 0, 4)]]);
    shape.collection = true;
    let bow_tie = polygons(&[vec![closed(vec![[0, 0], [4, 4], [4, 0], [0, 4]])]]);
    append(&mut shape, &bow_tie);
    append(&mut shape, &polygons(&[vec![square(0, 0, 4)]]));
    let out = repaired(&shape).unwrap();
    let kinds: Vec<_> = out.shape.members.iter().map(|member| member.kind).collect();
    assert_eq!(kinds, [Kind::Polygon, Kind::MultiPolygon, Kind::Polygon]);
    assert_eq!(out.actions[0].pointer, "/geometries/1/coordinates/0");
    append(&mut shape, &polygons(&[vec![closed(vec![[0, 0], [4, 0], [2, 0]])]]));
    assert_eq!(repaired(&shape).unwrap_err().pointer(), "/geometries/3/coordinates");
}

#[test]
fn too_complex_a_shape_is_refused_at_the_same_step_every_time() {
    for shape in [sunburst(20_000, 0.0), sunburst(20_000, 1.8e9), star(1_001), star(40_001), slivers(200)] {
        assert_eq!(repaired(&polygons(&[vec![shape]])).unwrap_err().code(), Code::LimitWork);
    }
    assert!(repaired(&polygons(&[vec![star(101)]])).is_ok());
}

/// The star polygon that visits every second-farthest vertex: each edge crosses nearly all others.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a drawing")]
fn star(n: usize) -> Ring {
    let place = |i: usize| {
        let angle = (i * (n / 2) % n) as f64 / n as f64 * std::f64::consts::TAU;
        [(1.8e11 * angle.cos()) as i64, (1.8e11 * angle.sin()) as i64]
    };
    closed((0..n).map(place).collect())
}

#[test]
fn a_large_ring_with_one_twist_fits_the_budget() {
    let mut ring = sunburst(50_000, 1.8e11);
    ring.swap(10_000, 10_001);
    let out = repaired(&polygons(&[vec![ring]])).unwrap();
    assert!(out.changed && out.shift_max < 1.0 && out.shape.positions.len() > 50_000);
}

/// Long segments that cross at angles so small that every rounded crossing makes more.
fn slivers(n: i64) -> Ring {
    closed(
        (0..n)
            .map(|i| if i % 2 == 0 { [0, i * i * 31 % 1_000] } else { [180_000_000_000, i * i * 17 % 1_000] })
            .collect(),
    )
}

#[test]
fn shallow_crossings_are_resolved_within_a_step_or_two() {
    let out = repaired(&polygons(&[vec![slivers(60)]])).unwrap();
    assert!(out.changed && out.shift_max > 0.0 && out.shift_max < 2.0);
    assert!(check(&out.shape, &Limits::default()).is_valid());
}

fn ring(size: i64, count: usize) -> impl Strategy<Value = Ring> {
    prop::collection::vec([-size..=size, -size..=size], 1..count).prop_map(closed)
}

fn parts() -> impl Strategy<Value = Vec<Vec<Ring>>> {
    let sizes = prop_oneof![Just(3), Just(8), Just(100), Just(180_000_000_000), Just(1 << 50)];
    sizes.prop_flat_map(|size| prop::collection::vec(prop::collection::vec(ring(size, 14), 1..4), 1..4))
}

/// The same polygons with rings started elsewhere and run the other way, holes and parts in another order.
fn shuffled(parts: &[Vec<Ring>], turn: usize) -> Vec<Vec<Ring>> {
    let mut out: Vec<Vec<Ring>> = parts.to_vec();
    for part in &mut out {
        part[1..].reverse();
        for (r, ring) in part.iter_mut().enumerate() {
            ring.pop();
            let turn = turn % ring.len();
            ring.rotate_left(turn);
            if (r + turn).is_multiple_of(2) {
                ring.reverse();
            }
            ring.push(ring[0]);
        }
    }
    out.reverse();
    out
}

/// Gives every place a height.
fn hilly(mut shape: Shape<i64>) -> Shape<i64> {
    shape.has_z = true;
    for position in &mut shape.positions {
        position[2] = (position[0] % 1_000 * 31 + position[1] * 17) % 1_000;
    }
    shape
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_repair_is_valid_and_a_second_one_changes_nothing(parts in parts()) {
        let shape = polygons(&parts);
        let report = check(&shape, &Limits::default());
        match repaired(&shape) {
            Ok(out) => {
                prop_assert!(check(&out.shape, &Limits::default()).is_valid());
                prop_assert_eq!(out.changed, !report.is_valid());
                prop_assert!(out.shift_max < 4.0, "shift {}", out.shift_max);
                let again = repaired(&out.shape).unwrap();
                prop_assert!(!again.changed);
                prop_assert_eq!(again.shape, out.shape);
            }
            Err(error) => prop_assert_eq!(error.code(), Code::GeojsonEmpty),
        }
    }

    #[test]
    fn start_direction_and_order_do_not_matter(parts in parts(), turn in 0_usize..20) {
        let (one, other) = (hilly(polygons(&parts)), hilly(polygons(&shuffled(&parts, turn))));
        let (first, second) = (check(&one, &Limits::default()), check(&other, &Limits::default()));
        prop_assert_eq!(first.is_valid(), second.is_valid());
        if !first.is_valid() {
            match (repaired(&one), repaired(&other)) {
                (Ok(one), Ok(other)) => prop_assert_eq!(one.shape, other.shape),
                (one, other) => prop_assert_eq!(one.unwrap_err().code(), other.unwrap_err().code()),
            }
        }
    }

    #[test]
    fn no_coordinate_makes_it_panic(ring in prop::collection::vec(any::<[i64; 2]>(), 0..8)) {
        let shape = polygons(&[vec![ring]]);
        let _ = check(&shape, &Limits::default());
        let _ = repaired(&shape);
    }
}
