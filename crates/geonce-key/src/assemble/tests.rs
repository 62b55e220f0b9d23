//! The assembly rule on small drawings, and its independence of order and starts on random ones.

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::assemble;
use crate::shape::{MemberRef, Position, Shape};
use crate::{Code, Limits};

type Ring = Vec<Position<i64>>;

/// A clockwise square.
fn shell(x: i64, y: i64, size: i64) -> Ring {
    vec![[x, y, 0], [x, y + size, 0], [x + size, y + size, 0], [x + size, y, 0], [x, y, 0]]
}

fn hole(x: i64, y: i64, size: i64) -> Ring {
    shell(x, y, size).into_iter().rev().collect()
}

fn nest(rings: &[Ring]) -> Shape<i64> {
    let rings: Vec<&[Position<i64>]> = rings.iter().map(Vec::as_slice).collect();
    assemble(&rings, false, &Limits::default()).unwrap()
}

/// The indices of the input rings, part by part.
fn parts(rings: &[Ring]) -> Vec<Vec<usize>> {
    let shape = nest(rings);
    let mut free: Vec<Option<&Ring>> = rings.iter().map(Some).collect();
    let mut index = |path: &[Position<i64>]| {
        let found = free.iter().position(|ring| ring.is_some_and(|ring| ring == path)).unwrap();
        free[found] = None;
        found
    };
    let parts = shape.members().next().unwrap().parts().map(|part| part.paths().map(&mut index).collect()).collect();
    assert!(free.iter().all(Option::is_none), "a ring was dropped");
    parts
}

#[test]
fn a_hole_goes_to_the_smallest_shell_around_it() {
    assert_eq!(parts(&[shell(0, 0, 9)]), [vec![0]]);
    assert_eq!(parts(&[shell(0, 0, 9), hole(1, 1, 2)]), [vec![0, 1]]);
    assert_eq!(parts(&[hole(1, 1, 2), shell(0, 0, 9)]), [vec![1, 0]]);
    // Lake on an island in a lake.
    let nested = [shell(0, 0, 100), hole(10, 10, 80), shell(20, 20, 60), hole(30, 30, 40)];
    assert_eq!(parts(&nested), [vec![0, 1], vec![2, 3]]);
    assert_eq!(nest(&nested).type_name(), "MultiPolygon");
    assert_eq!(parts(&[shell(0, 0, 9), shell(20, 0, 9), hole(21, 1, 2), hole(1, 1, 2)]), [vec![0, 3], vec![1, 2]]);
}

#[test]
fn a_hole_without_a_shell_becomes_one() {
    assert_eq!(parts(&[hole(0, 0, 9)]), [vec![0]]);
    assert_eq!(parts(&[shell(0, 0, 9), hole(20, 0, 3)]), [vec![0], vec![1]]);
    assert_eq!(parts(&[hole(0, 0, 9), hole(1, 1, 2)]), [vec![0], vec![1]]);
    // In the bounding box, not in the ring.
    let triangle = vec![[0, 0, 0], [0, 20, 0], [20, 0, 0], [0, 0, 0]];
    assert_eq!(parts(&[triangle, hole(15, 15, 2)]), [vec![0], vec![1]]);
}

#[test]
fn a_ring_without_area_is_a_shell_of_its_own() {
    let flat = vec![[1, 1, 0], [5, 5, 0], [1, 1, 0]];
    assert_eq!(parts(&[shell(0, 0, 9), flat.clone()]), [vec![0], vec![1]]);
    assert_eq!(parts(&[flat, hole(1, 1, 1), shell(0, 0, 9)]), [vec![0], vec![2, 1]]);
    assert_eq!(parts(&[vec![[1, 1, 0]]]), [vec![0]]);
}

#[test]
fn vertices_on_the_boundary_do_not_decide() {
    let u = vec![[0, 0, 0], [0, 10, 0], [10, 10, 0], [10, 0, 0], [8, 0, 0], [8, 8, 0], [2, 8, 0], [2, 0, 0], [0, 0, 0]];
    // All vertices on the shell, edges inside it.
    let inside = vec![[0, 4, 0], [2, 4, 0], [2, 6, 0], [0, 4, 0]];
    assert_eq!(parts(&[u.clone(), inside]), [vec![0, 1]]);
    // All vertices on the shell, one edge across the bay.
    let across = vec![[2, 2, 0], [8, 2, 0], [8, 6, 0], [2, 6, 0], [2, 2, 0]];
    assert_eq!(parts(&[u, across]), [vec![0], vec![1]]);
    // The same ring in both directions.
    assert_eq!(parts(&[shell(0, 0, 9), hole(0, 0, 9)]), [vec![0, 1]]);
}

#[test]
fn z_is_carried_and_direction_kept() {
    let ring: Ring = shell(0, 0, 9).into_iter().zip(5..).map(|(p, z)| [p[0], p[1], z]).collect();
    let mut ring = ring;
    ring[4][2] = 5;
    let shape = assemble(&[&ring], true, &Limits::default()).unwrap();
    assert!(shape.has_z && !shape.collection);
    assert_eq!((shape.type_name(), shape.positions), ("Polygon", ring));
}

#[test]
fn bad_rings_and_too_much_work_are_refused() {
    let code = |rings: &[&[Position<i64>]], limits: &Limits| assemble(rings, false, limits).unwrap_err().code();
    let limits = Limits::default();
    assert_eq!(code(&[], &limits), Code::GeojsonEmpty);
    assert_eq!(code(&[&shell(0, 0, 9), &[]], &limits), Code::GeojsonEmpty);
    assert_eq!(code(&[&shell(0, 0, 9)[..4]], &limits), Code::GeojsonRingUnclosed);
    assert_eq!(code(&[&[[i64::MIN, 0, 0]]], &limits), Code::GeojsonBounds);
    assert_eq!(code(&[&shell(0, 0, 9)], &Limits { rings_max: 0, ..Limits::default() }), Code::LimitRings);
    assert_eq!(code(&[&shell(0, 0, 9)], &Limits { positions_max: 4, ..Limits::default() }), Code::LimitPositions);
    let rings = [shell(0, 0, 9), hole(1, 1, 2)];
    assert_eq!(code(&[&rings[0], &rings[1]], &Limits { work_max: 9, ..Limits::default() }), Code::LimitWork);
    let concentric: Vec<Ring> =
        (0..5000).flat_map(|i| [shell(i, i, 30_000 - 2 * i), hole(i, i, 29_999 - 2 * i)]).collect();
    let rings: Vec<&[Position<i64>]> = concentric.iter().map(Vec::as_slice).collect();
    assert_eq!(code(&rings, &limits), Code::LimitWork);
}

#[test]
fn a_coast_with_many_lakes_stays_within_the_work_limit() {
    let coast = (0..50_000).map(|i| [i * 10, 1_000_000 + (i % 2) * 7, 0]);
    let mut mainland: Ring = coast.collect();
    mainland.extend([[500_000, 1_000_000, 0], [500_000, 0, 0], [0, 0, 0], [0, 1_000_000, 0]]);
    let mut rings = vec![mainland];
    rings.extend((0..5_000).map(|i| hole(100 + (i % 100) * 4_000, 100 + (i / 100) * 19_000, 1_000)));
    rings.extend((0..5_000).map(|i| shell(200 + (i % 100) * 4_000, 200 + (i / 100) * 19_000, 500)));
    let shape = nest(&rings);
    assert_eq!((shape.parts.len(), shape.parts[0]), (5_001, 5_001));
}

/// The polygons as a set, each ring started at its least rotation.
fn as_set(shape: &Shape<i64>) -> Vec<Vec<Ring>> {
    let mut parts: Vec<Vec<Ring>> = shape
        .members()
        .flat_map(MemberRef::parts)
        .map(|part| {
            let mut rings: Vec<Ring> = part.paths().map(super::least_ring).collect();
            rings[1..].sort();
            rings
        })
        .collect();
    parts.sort();
    parts
}

fn any_ring() -> impl Strategy<Value = Ring> {
    let rough = prop::collection::vec((0..8_i64, 0..8_i64), 1..7).prop_map(|points| {
        let mut ring: Ring = points.into_iter().map(|(x, y)| [x, y, 0]).collect();
        ring.push(ring[0]);
        ring
    });
    let square = (0..6_i64, 0..6_i64, 1..6_i64, any::<bool>())
        .prop_map(|(x, y, size, filled)| if filled { shell(x, y, size) } else { hole(x, y, size) });
    prop_oneof![rough, square]
}

/// Where a point (doubled) is in a ring, the slow way: 1 inside, 0 on the boundary, -1 outside.
fn place(ring: &Ring, [x, y]: [i64; 2]) -> i64 {
    let mut sign = -1;
    for pair in ring.windows(2) {
        let [(ax, ay), (bx, by)] = [&pair[0], &pair[1]].map(|p| (2 * p[0] - x, 2 * p[1] - y));
        if ax * by == bx * ay && ax * bx <= 0 && ay * by <= 0 {
            return 0;
        }
        // The edge meets the ray at x = (ax·by − bx·ay) / (by − ay).
        if (ay > 0) != (by > 0) && (ax * by - bx * ay) * (by - ay) > 0 {
            sign = -sign;
        }
    }
    sign
}

/// The rule of `docs/assembly.md` read aloud, with nothing to make it fast.
fn slow_parts(rings: &[Ring]) -> Vec<Vec<usize>> {
    let area = |i: usize| rings[i].windows(2).map(|p| p[0][0] * p[1][1] - p[1][0] * p[0][1]).sum::<i64>();
    let extent = |ring: &Ring, axis: usize| {
        let values = || ring.iter().map(|p| p[axis]);
        (values().min().unwrap(), values().max().unwrap())
    };
    let contains = |shell: &Ring, hole: &Ring| {
        let within = (0..2).all(|axis| {
            let ((a, b), (c, d)) = (extent(shell, axis), extent(hole, axis));
            a <= c && d <= b
        });
        let mut vertices: Vec<[i64; 2]> = hole.iter().map(|p| [2 * p[0], 2 * p[1]]).collect();
        let mut midpoints: Vec<[i64; 2]> = hole.windows(2).map(|p| [p[0][0] + p[1][0], p[0][1] + p[1][1]]).collect();
        vertices.sort_unstable();
        midpoints.sort_unstable();
        let decided = vertices.into_iter().chain(midpoints).map(|point| place(shell, point)).find(|&place| place != 0);
        within && decided != Some(-1)
    };
    let owner = |hole: usize| {
        let around = (0..rings.len()).filter(|&i| area(i) < 0 && contains(&rings[i], &rings[hole]));
        around.min_by_key(|&i| (-area(i), super::least_ring(&rings[i]), i)).unwrap_or(hole)
    };
    let owners: Vec<usize> = (0..rings.len()).map(|i| if area(i) > 0 { owner(i) } else { i }).collect();
    let shells = (0..rings.len()).filter(|&i| owners[i] == i);
    shells.map(|i| std::iter::once(i).chain((0..rings.len()).filter(|&j| j != i && owners[j] == i)).collect()).collect()
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(1024) })]

    #[test]
    fn the_fast_way_is_the_slow_way(rings in prop::collection::vec(any_ring(), 1..12)) {
        let slow: Vec<Vec<&Ring>> = slow_parts(&rings).iter().map(|part| part.iter().map(|&i| &rings[i]).collect()).collect();
        let shape = nest(&rings);
        let fast: Vec<Vec<Ring>> = shape.members().flat_map(MemberRef::parts).map(|part| part.paths().map(<[_]>::to_vec).collect()).collect();
        prop_assert_eq!(format!("{fast:?}"), format!("{slow:?}"));
    }

    #[test]
    fn neither_order_nor_starts_decide(
        drawn in prop::collection::vec((any_ring(), any::<usize>()), 1..9),
        order in any::<u64>(),
    ) {
        let plain: Vec<Ring> = drawn.iter().map(|(ring, _)| ring.clone()).collect();
        let mut turned: Vec<Ring> = drawn
            .into_iter()
            .map(|(mut ring, by)| {
                ring.pop();
                let by = by % ring.len();
                ring.rotate_left(by);
                ring.push(ring[0]);
                ring
            })
            .collect();
        let by = usize::try_from(order % turned.len() as u64).unwrap();
        turned.rotate_left(by);
        if order % 2 == 0 {
            turned.reverse();
        }
        parts(&plain);
        prop_assert_eq!(as_set(&nest(&plain)), as_set(&nest(&turned)));
    }
}
