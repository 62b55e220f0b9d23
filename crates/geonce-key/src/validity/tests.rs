//! Validity of shapes drawn by hand, and the budget on hostile ones.

use super::*;
use crate::shape::Kind;

type Ring = Vec<[i64; 2]>;

/// A shape of polygons; several parts make a `MultiPolygon`. Rings are closed unless the test says otherwise.
pub(crate) fn polygons(parts: &[Vec<Ring>]) -> Shape<i64> {
    let mut shape = Shape::new();
    for part in parts {
        for ring in part {
            shape.positions.extend(ring.iter().map(|p| [p[0], p[1], 0]));
            shape.end_path();
        }
        shape.end_part();
    }
    shape.end_member(if parts.len() > 1 { Kind::MultiPolygon } else { Kind::Polygon });
    shape
}

pub(crate) fn closed(mut ring: Ring) -> Ring {
    ring.push(ring[0]);
    ring
}

pub(crate) fn square(x: i64, y: i64, size: i64) -> Ring {
    closed(vec![[x, y], [x + size, y], [x + size, y + size], [x, y + size]])
}

fn expect(parts: &[Vec<Ring>], expected: &[&str]) {
    let report = check(&polygons(parts), &Limits::default());
    assert!(report.complete && !report.more);
    let found: Vec<String> = report.problems.iter().map(|p| format!("{} {}", p.code, p.pointer)).collect();
    assert_eq!(found, expected, "{parts:?}");
}

#[test]
fn rings_may_touch_as_long_as_the_interior_is_connected() {
    let shell = square(0, 0, 40);
    expect(&[vec![shell.clone()]], &[]);
    expect(&[vec![closed(vec![[0, 0], [0, 0], [40, 0], [40, 40], [40, 40], [0, 40]])]], &[]);
    expect(&[vec![shell.clone(), square(10, 10, 10)]], &[]);
    let touching = closed(vec![[20, 0], [30, 10], [10, 10]]);
    expect(&[vec![shell.clone(), touching.clone()]], &[]);
    expect(&[vec![shell.clone(), square(5, 5, 10), square(15, 15, 10)]], &[]);
    let across = closed(vec![[20, 0], [30, 20], [20, 40], [10, 20]]);
    expect(&[vec![shell.clone(), across]], &["interior_disconnected /coordinates/1/2"]);
    let left = closed(vec![[0, 20], [20, 10], [20, 20]]);
    let right = closed(vec![[20, 20], [40, 20], [20, 30]]);
    expect(&[vec![shell, left, right]], &["interior_disconnected /coordinates/2/1"]);
}

#[test]
fn a_ring_must_not_meet_itself() {
    expect(&[vec![closed(vec![[0, 0], [4, 4], [4, 0], [0, 4]])]], &["self_intersection /coordinates/0/0"]);
    let eight = closed(vec![[0, 0], [2, 0], [2, 2], [4, 2], [4, 4], [2, 4], [2, 2], [0, 2]]);
    expect(&[vec![eight]], &["ring_self_touch /coordinates/0/6"]);
    let through = closed(vec![[0, 0], [2, 2], [4, 0], [4, 4], [2, 2], [0, 4]]);
    expect(&[vec![through]], &["ring_self_touch /coordinates/0/4"]);
    let crossing = closed(vec![[0, 0], [2, 2], [4, 4], [4, 0], [2, 2], [0, 4]]);
    expect(&[vec![crossing]], &["self_intersection /coordinates/0/4"]);
    let spike = closed(vec![[0, 0], [4, 0], [4, 2], [6, 2], [4, 2], [4, 4], [0, 4]]);
    expect(&[vec![spike]], &["spike /coordinates/0/3", "ring_self_touch /coordinates/0/4"]);
}

#[test]
fn rings_without_area_are_named() {
    expect(&[vec![closed(vec![[0, 0], [4, 0], [2, 0]])]], &["collapsed /coordinates/0"]);
    expect(&[vec![closed(vec![[1, 1], [1, 1], [1, 1]])]], &["collapsed /coordinates/0"]);
    expect(&[vec![square(0, 0, 9), closed(vec![[1, 1], [2, 2], [3, 3]])]], &["collapsed /coordinates/1"]);
    expect(&[vec![vec![[0, 0], [4, 0], [4, 4], [0, 4]]]], &["unclosed_ring /coordinates/0"]);
}

#[test]
fn holes_stay_apart_and_inside() {
    let shell = square(0, 0, 40);
    expect(&[vec![shell.clone(), square(50, 50, 10)]], &["hole_outside /coordinates/1"]);
    expect(&[vec![shell.clone(), square(5, 5, 30), square(10, 10, 10)]], &["hole_nested /coordinates/2"]);
    let twice = [vec![shell.clone(), square(10, 10, 10), square(10, 10, 10)]];
    expect(&twice, &["duplicate_ring /coordinates/2"]);
    expect(&[vec![shell.clone(), shell.clone()]], &["duplicate_ring /coordinates/1"]);
    let out = ["rings_cross /coordinates/0/1", "rings_cross /coordinates/0/1"];
    expect(&[vec![shell.clone(), square(30, 10, 20)]], &out);
    expect(&[vec![shell, square(0, 10, 10)]], &["edge_overlap /coordinates/1/3"]);
}

#[test]
fn parts_touch_at_points_only() {
    let shell = square(0, 0, 40);
    expect(&[vec![shell.clone()], vec![square(40, 40, 10)]], &[]);
    expect(&[vec![shell.clone(), square(10, 10, 20)], vec![square(15, 15, 10)]], &[]);
    let inscribed = closed(vec![[20, 10], [30, 20], [20, 30], [10, 20]]);
    expect(&[vec![shell.clone(), square(10, 10, 20)], vec![inscribed.clone()]], &[]);
    expect(&[vec![shell.clone()], vec![inscribed]], &["part_nested /coordinates/1/0"]);
    let corner = closed(vec![[0, 0], [20, 10], [10, 20]]);
    expect(&[vec![shell.clone()], vec![corner]], &["part_nested /coordinates/1/0"]);
    expect(&[vec![shell.clone()], vec![square(40, 0, 40)]], &["edge_overlap /coordinates/1/0/3"]);
    expect(&[vec![shell.clone()], vec![shell]], &["duplicate_ring /coordinates/1/0"]);
}

#[test]
fn members_of_a_collection_are_checked_each_by_itself() {
    let mut shape = polygons(&[vec![square(0, 0, 4)]]);
    shape.collection = true;
    for end in [[0, 0, 0], [1, 1, 0]] {
        shape.positions.extend([[0, 0, 0], end]);
        shape.end_path();
        shape.end_part();
        shape.end_member(Kind::LineString);
    }
    let report = check(&shape, &Limits::default());
    let found: Vec<_> = report.problems.iter().map(|p| (p.code, p.pointer.as_str())).collect();
    assert_eq!(found, [(ProblemCode::Collapsed, "/geometries/1/coordinates")]);
}

#[test]
fn a_coordinate_beyond_exact_arithmetic_is_named() {
    let mut shape = polygons(&[vec![square(0, 0, 4)]]);
    shape.positions[1][0] = i64::MIN;
    let report = check(&shape, &Limits::default());
    assert_eq!(report.problems[0].code, ProblemCode::OutOfRange);
    assert!(!report.is_valid());
}

/// `n` spikes round a small middle.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a drawing")]
pub(crate) fn sunburst(n: usize, inner: f64) -> Ring {
    let place = |i: usize| {
        let angle = i as f64 / n as f64 * std::f64::consts::TAU;
        let radius = if i.is_multiple_of(2) { inner } else { 1.8e11 };
        [(radius * angle.cos()) as i64, (radius * angle.sin()) as i64]
    };
    closed((0..n).map(place).collect())
}

#[test]
fn a_hostile_shape_ends_with_the_budget_and_always_at_the_same_step() {
    let shape = polygons(&[vec![sunburst(20_000, 1.8e9)]]);
    let limits = Limits::default();
    let report = check(&shape, &limits);
    assert!(!report.complete && report.problems.is_empty() && !report.is_valid());
    assert_eq!(report, check(&shape, &limits));
    assert!(report.work < limits.work_max + 100);
}

#[test]
fn a_list_of_problems_is_bounded() {
    let shape = polygons(&[vec![sunburst(1_000, 0.0)]]);
    let report = check(&shape, &Limits::default());
    assert_eq!((report.problems.len(), report.more, report.complete), (PROBLEMS_MAX, true, true));
}

#[test]
fn large_valid_shapes_fit_the_budget() {
    let circle = polygons(&[vec![sunburst(60_000, 1.8e11)]]);
    assert!(check(&circle, &Limits::default()).is_valid());
    let mut holes = vec![square(-10, -10, 100_000)];
    // 7,919 is prime to 5,000: the holes come in a scattered order.
    holes.extend((0..5_000).map(|i| i * 7_919 % 5_000).map(|i| square(i % 71 * 100, i / 71 * 100, 80)));
    let report = check(&polygons(&[holes]), &Limits::default());
    assert!(report.is_valid(), "{report:?}");
}
