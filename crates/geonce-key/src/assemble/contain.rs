//! Whether a ring lies inside another one, exactly: coordinates are doubled so that edge midpoints are integers.

use crate::shape::Position;
use crate::{Code, Error, Result};

type Point = [i64; 2];

#[derive(Clone, Copy)]
struct Edge {
    a: Point,
    b: Point,
}

impl Edge {
    fn low_y(&self) -> i64 {
        self.a[1].min(self.b[1])
    }

    fn high_y(&self) -> i64 {
        self.a[1].max(self.b[1])
    }
}

/// Takes `steps` from what is left of the work budget.
pub(super) fn spend(work: &mut u64, steps: usize) -> Result<()> {
    let left = work.checked_sub(steps as u64);
    *work = left.ok_or_else(|| Error::new(Code::LimitWork, "", "too much work to nest the rings"))?;
    Ok(())
}

fn doubled(position: &Position<i64>) -> Point {
    [position[0] * 2, position[1] * 2]
}

#[derive(PartialEq)]
enum Place {
    Inside,
    Boundary,
    Outside,
}

/// A ring's edges as an interval tree over y: the middle of a range is its root, the halves its subtrees.
pub(super) struct Edges {
    edges: Vec<Edge>,
    /// For each edge, the highest y in the subtree of which it is the root.
    highest: Vec<i64>,
}

impl Edges {
    pub(super) fn of(ring: &[Position<i64>]) -> Edges {
        let edge = |pair: &[Position<i64>]| Edge { a: doubled(&pair[0]), b: doubled(&pair[1]) };
        let mut edges: Vec<Edge> = ring.windows(2).map(edge).collect();
        edges.sort_by_key(Edge::low_y);
        let mut highest = vec![i64::MIN; edges.len()];
        raise(&edges, &mut highest);
        Edges { edges, highest }
    }

    /// Where a point is, by the even-odd rule.
    fn locate(&self, point: Point, work: &mut u64) -> Result<Place> {
        let mut inside = false;
        let mut ranges = vec![(0, self.edges.len())];
        while let Some((start, end)) = ranges.pop() {
            if start >= end {
                continue;
            }
            spend(work, 1)?;
            let middle = usize::midpoint(start, end);
            if self.highest[middle] < point[1] {
                continue;
            }
            ranges.push((start, middle));
            let edge = &self.edges[middle];
            if edge.low_y() > point[1] {
                continue;
            }
            ranges.push((middle + 1, end));
            if edge.high_y() < point[1] {
                continue;
            }
            match side(edge, point) {
                Side::On => return Ok(Place::Boundary),
                Side::Crossed => inside = !inside,
                Side::Passed => {}
            }
        }
        Ok(if inside { Place::Inside } else { Place::Outside })
    }
}

/// Fills `highest` for the tree of `edges` and answers the root's.
fn raise(edges: &[Edge], highest: &mut [i64]) -> i64 {
    let middle = edges.len() / 2;
    let Some(edge) = edges.get(middle) else { return i64::MIN };
    let (left, right) = highest.split_at_mut(middle);
    let below = raise(&edges[..middle], left);
    let above = raise(&edges[middle + 1..], &mut right[1..]);
    right[0] = edge.high_y().max(below).max(above);
    right[0]
}

enum Side {
    On,
    /// A ray from the point towards greater x meets the edge.
    Crossed,
    Passed,
}

fn side(edge: &Edge, point: Point) -> Side {
    let Edge { a, b } = *edge;
    let cross =
        i128::from(b[0] - a[0]) * i128::from(point[1] - a[1]) - i128::from(b[1] - a[1]) * i128::from(point[0] - a[0]);
    let within_x = a[0].min(b[0]) <= point[0] && point[0] <= a[0].max(b[0]);
    if cross == 0 && within_x {
        return Side::On;
    }
    let straddles = (a[1] > point[1]) != (b[1] > point[1]);
    if straddles && (cross > 0) == (b[1] > a[1]) { Side::Crossed } else { Side::Passed }
}

/// The points of a hole that are asked about, in an order that does not depend on where its ring starts.
pub(super) struct Probe {
    vertices: Vec<Point>,
    midpoints: Vec<Point>,
}

impl Probe {
    pub(super) fn of(ring: &[Position<i64>]) -> Probe {
        let mut vertices: Vec<Point> = ring.iter().map(doubled).collect();
        let mut midpoints: Vec<Point> =
            ring.windows(2).map(|pair| [pair[0][0] + pair[1][0], pair[0][1] + pair[1][1]]).collect();
        vertices.sort_unstable();
        vertices.dedup();
        midpoints.sort_unstable();
        Probe { vertices, midpoints }
    }

    /// The first point that is not on the shell's boundary decides. Where there is none the hole follows the
    /// shell's boundary all round, and counts as inside.
    pub(super) fn is_inside(&self, shell: &Edges, work: &mut u64) -> Result<bool> {
        for point in self.vertices.iter().chain(&self.midpoints) {
            match shell.locate(*point, work)? {
                Place::Boundary => {}
                place => return Ok(place == Place::Inside),
            }
        }
        Ok(true)
    }
}
