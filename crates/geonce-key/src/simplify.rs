//! Coarser fingerprints: what `shape = "simplified"` and `shape = "bbox"` of a policy make of a canonical geometry
//! (`g1` section 8, "Shape").
//!
//! Integers only, O(n log n). A canonical geometry has one form whatever its start and direction were, and every step here
//! is decided by numbers of that form, so the result has one form too.

use crate::canonical::{Canonicalizer, Rules};
use crate::shape::{Kind, Position, Shape};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

type Point = Position<i64>;

/// A vertex nearer than this to the line through its neighbours, in grid steps, adds nothing but density. A vertex that was
/// put on a straight segment is rounded by at most 0.71 steps, and so are its neighbours.
const DISTANCE: u128 = 2;

/// Takes vertices that add nothing but density out of a canonical shape, which stays canonical.
pub(crate) fn simplify(shape: &mut Shape<i64>, canonicalizer: &mut Canonicalizer, rules: Rules) {
    let mut thin = Shape::new();
    thin.collection = shape.collection;
    thin.has_z = shape.has_z;
    for member in shape.members() {
        for part in member.parts() {
            for path in part.paths() {
                match member.kind.part() {
                    Kind::Point => thin.positions.extend_from_slice(path),
                    Kind::LineString => thin.positions.extend(thinned(path, false)),
                    _ => {
                        let ring = thinned(&path[..path.len().saturating_sub(1)], true);
                        thin.positions.extend(ring.iter().chain(ring.first()));
                    }
                }
                thin.end_path();
            }
            thin.end_part();
        }
        thin.end_member(member.kind);
    }
    canonicalizer.run(&thin, &[], rules, shape);
}

/// West, south, east, north.
pub(crate) fn bounds(shape: &Shape<i64>) -> [i64; 4] {
    let mut bounds = [i64::MAX, i64::MAX, i64::MIN, i64::MIN];
    for [x, y, _] in &shape.positions {
        bounds = [bounds[0].min(*x), bounds[1].min(*y), bounds[2].max(*x), bounds[3].max(*y)];
    }
    bounds
}

/// Which vertex goes first: the one whose triangle is smallest, then the one at the smallest position, then the first.
type Rank = (u128, Point, usize);

/// A path without the vertices that add nothing but density. Lines keep their ends, rings three vertices.
fn thinned(path: &[Point], cyclic: bool) -> Vec<Point> {
    let count = path.len();
    let fewest = if cyclic { 3 } else { 2 };
    if count <= fewest {
        return path.to_vec();
    }
    let mut chain = Chain::new(path, cyclic);
    let mut queue: BinaryHeap<Reverse<(Rank, u32)>> = BinaryHeap::with_capacity(count);
    for index in 0..count {
        queue.extend(chain.rank(index).map(|rank| Reverse((rank, 0))));
    }
    let mut left = count;
    while left > fewest
        && let Some(Reverse(((_, _, index), round))) = queue.pop()
    {
        if chain.round[index] != round {
            continue;
        }
        let neighbours = chain.remove(index);
        left -= 1;
        for neighbour in neighbours {
            chain.round[neighbour] += 1;
            let round = chain.round[neighbour];
            queue.extend(chain.rank(neighbour).map(|rank| Reverse((rank, round))));
        }
    }
    (0..count).filter(|&index| chain.kept[index]).map(|index| path[index]).collect()
}

/// A path whose vertices can be taken out one by one.
struct Chain<'a> {
    path: &'a [Point],
    /// Ends of lines have none.
    before: Vec<Option<usize>>,
    after: Vec<Option<usize>>,
    kept: Vec<bool>,
    /// How often a vertex got another neighbour: what was queued before that is out of date.
    round: Vec<u32>,
}

impl<'a> Chain<'a> {
    fn new(path: &'a [Point], cyclic: bool) -> Chain<'a> {
        let count = path.len();
        let wrap = |at: usize| if at < count || cyclic { Some(at % count) } else { None };
        Chain {
            path,
            before: (0..count).map(|at| if at > 0 || cyclic { Some((at + count - 1) % count) } else { None }).collect(),
            after: (0..count).map(|at| wrap(at + 1)).collect(),
            kept: vec![true; count],
            round: vec![0; count],
        }
    }

    /// Takes a vertex out and answers its neighbours.
    fn remove(&mut self, index: usize) -> impl Iterator<Item = usize> + use<> {
        let (before, after) = (self.before[index], self.after[index]);
        self.kept[index] = false;
        self.round[index] = u32::MAX;
        if let (Some(before), Some(after)) = (before, after) {
            self.after[before] = Some(after);
            self.before[after] = Some(before);
        }
        before.into_iter().chain(after)
    }

    /// The rank of a vertex that may go.
    fn rank(&self, index: usize) -> Option<Rank> {
        let (before, here, after) = (self.path[self.before[index]?], self.path[index], self.path[self.after[index]?]);
        let difference = |a: &Point, b: &Point, axis: usize| i128::from(a[axis]) - i128::from(b[axis]);
        let (ux, uy) = (difference(&before, &here, 0), difference(&before, &here, 1));
        let (vx, vy) = (difference(&after, &here, 0), difference(&after, &here, 1));
        let doubled_area = (ux * vy - uy * vx).unsigned_abs();
        let (bx, by) = (difference(&after, &before, 0), difference(&after, &before, 1));
        let base_squared = (bx * bx + by * by).unsigned_abs();
        // Area and base give the distance. An area of 64 bits or more is far beyond that of any base on the grid.
        let near = u64::try_from(doubled_area)
            .is_ok_and(|area| u128::from(area) * u128::from(area) < DISTANCE * DISTANCE * base_squared);
        // Between its neighbours, not a spike beyond them.
        let between = ux * vx + uy * vy < 0;
        (near && between).then_some((doubled_area, here, index))
    }
}

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "the numbers of these tests are small"
)]
mod tests {
    use super::*;

    fn points(numbers: &[(i64, i64)]) -> Vec<Point> {
        numbers.iter().map(|&(x, y)| [x, y, 0]).collect()
    }

    #[test]
    fn vertices_on_a_straight_segment_go_and_corners_stay() {
        let dense = points(&[(0, 0), (333, 1), (500, 0), (1000, 0), (1000, 501), (999, 700), (1000, 1000)]);
        assert_eq!(thinned(&dense, false), points(&[(0, 0), (1000, 0), (1000, 1000)]));
        let corner = points(&[(0, 0), (500, 2), (1000, 0)]);
        assert_eq!(thinned(&corner, false), corner);
        let spike = points(&[(0, 0), (10, 0), (5, 0), (20, 0)]);
        assert_eq!(thinned(&spike, false).len(), 4);
    }

    #[test]
    fn rings_keep_three_vertices_and_lines_their_ends() {
        let flat = points(&[(0, 0), (10, 1), (20, 0), (10, -1)]);
        assert_eq!(thinned(&flat, true).len(), 3);
        assert_eq!(thinned(&points(&[(0, 0), (1, 0), (2, 0)]), false), points(&[(0, 0), (2, 0)]));
        assert_eq!(thinned(&points(&[(5, 5)]), true), points(&[(5, 5)]));
        assert_eq!(thinned(&[], false), points(&[]));
    }

    #[test]
    fn a_ring_of_the_largest_grid_does_not_overflow() {
        let far = 180_000_000_000;
        let ring = points(&[(-far, -far / 2), (0, -far / 2), (far, -far / 2), (far, far / 2), (-far, far / 2)]);
        assert_eq!(thinned(&ring, true).len(), 4);
    }

    #[test]
    fn inserted_vertices_do_not_change_the_form() {
        let mut state = 9u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut same = 0;
        for _ in 0..500 {
            let count = 4 + random(12) as usize;
            let corners: Vec<(f64, f64)> = (0..count)
                .map(|i| {
                    let angle = i as f64 / count as f64 * std::f64::consts::TAU;
                    let far = 40_000.0 + random(40_000) as f64;
                    ((angle.cos() * far).round(), (angle.sin() * far).round())
                })
                .collect();
            let mut dense = Vec::new();
            for i in 0..count {
                let (a, b) = (corners[i], corners[(i + 1) % count]);
                let pieces = 1 + random(8);
                for piece in 0..pieces {
                    let share = piece as f64 / pieces as f64;
                    let at = |a: f64, b: f64| (a + share * (b - a)).round() as i64;
                    dense.push([at(a.0, b.0), at(a.1, b.1), 0]);
                }
            }
            let sparse: Vec<Point> = corners.iter().map(|&(x, y)| [x as i64, y as i64, 0]).collect();
            same += usize::from(thinned(&dense, true) == thinned(&sparse, true));
        }
        assert!(same >= 499, "{same} of 500");
    }
}
