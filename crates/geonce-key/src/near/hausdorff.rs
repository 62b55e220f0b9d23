//! The Hausdorff distance, from vertices to segments, both ways.
//!
//! Segments are straight in longitude and latitude, as RFC 7946 says. The distance of a vertex to one is measured in the
//! plane that touches the ellipsoid at the vertex. A tree over the segments answers which one is nearest; what is farther
//! than the threshold is never looked at.

use super::pair::Found;
use super::space::{height_m, scale_m};
use crate::shape::{Position, Shape};
use crate::validity::tree::{Bounds, Stop, Tree, Work};

/// Grid units of a whole turn.
const TURN: i64 = 360_000_000_000;
/// Steps to make a segment searchable, and to find the plane of a vertex.
const STEPS_PER_SEGMENT: usize = 4;
const STEPS_PER_VERTEX: usize = 8;
/// Lower bounds are made smaller by this share, so that rounding never hides a segment.
const CAREFUL: f64 = 1.0 - 1e-12;

/// The distance, or none beyond `limit`.
pub(super) fn distance(a: &Shape<i64>, b: &Shape<i64>, limit: f64, work: &mut Work) -> Found {
    let Some(forth) = one_way(a, b, limit, work)? else { return Ok(None) };
    let Some(back) = one_way(b, a, limit, work)? else { return Ok(None) };
    Ok(Some(forth.max(back)))
}

/// The farthest that a vertex of `from` is from `to`.
fn one_way(from: &Shape<i64>, to: &Shape<i64>, limit: f64, work: &mut Work) -> Found {
    let segments = segments(to);
    work.spend(STEPS_PER_SEGMENT * segments.len())?;
    let tree = Tree::new(segments.iter().map(|(a, b)| Bounds::of([a[0], a[1]], [b[0], b[1]])));
    let mut farthest: f64 = 0.0;
    let mut last = 0;
    for vertex in &from.positions {
        work.spend(STEPS_PER_VERTEX)?;
        let Some((distance, segment)) = nearest(vertex, &segments, &tree, limit, last, work)? else { return Ok(None) };
        farthest = farthest.max(distance);
        last = segment;
    }
    Ok(Some(farthest))
}

/// Every segment; a point is a segment of no length.
fn segments(shape: &Shape<i64>) -> Vec<(Position<i64>, Position<i64>)> {
    let mut segments = Vec::with_capacity(shape.positions.len());
    for path in shape.all_paths() {
        if let [only] = path {
            segments.push((*only, *only));
        }
        segments.extend(path.windows(2).map(|ends| (ends[0], ends[1])));
    }
    segments
}

/// The nearest segment within `limit` and its distance. `last` is one to begin with.
fn nearest(
    vertex: &Position<i64>,
    segments: &[(Position<i64>, Position<i64>)],
    tree: &Tree,
    limit: f64,
    last: usize,
    work: &mut Work,
) -> Result<Option<(f64, usize)>, Stop> {
    let scale = scale_m(vertex);
    let mut best: Option<(f64, usize)> = None;
    // Neighbours of a vertex are near to neighbours of the segment it was near to: with one of these in hand, the tree is
    // only asked whether there is a nearer one.
    for (segment, ends) in segments.iter().enumerate().skip(last.saturating_sub(1)).take(4) {
        let distance = segment_distance(vertex, ends, scale);
        if distance <= best.map_or(limit, |(known, _)| known) {
            best = Some((distance, segment));
        }
    }
    // A vertex just east of the antimeridian is near to what lies just west of it.
    for turn in [0, TURN, -TURN] {
        let seen_from = [vertex[0] + turn, vertex[1], vertex[2]];
        let bound = |bounds: &Bounds| box_distance(&seen_from, bounds, scale) * CAREFUL;
        let rank = |leaf: usize, limit: f64| {
            let distance = segment_distance(&seen_from, &segments[leaf], scale);
            (distance <= limit).then_some((distance, leaf))
        };
        if let Some(found) = tree.nearest(work, best.map_or(limit, |(known, _)| known), bound, rank)? {
            best = Some(found);
        }
    }
    Ok(best)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "grid numbers are far below 2^53; an empty box may be anywhere far away"
)]
fn box_distance(vertex: &Position<i64>, bounds: &Bounds, scale: [f64; 2]) -> f64 {
    let outside = |axis: usize| {
        let here = vertex[axis] as f64;
        (bounds.min[axis] as f64 - here).max(here - bounds.max[axis] as f64).max(0.0) * scale[axis]
    };
    let (x, y) = (outside(0), outside(1));
    libm::sqrt(x * x + y * y)
}

#[expect(clippy::cast_precision_loss, reason = "differences of grid numbers are far below 2^53")]
fn segment_distance(vertex: &Position<i64>, ends: &(Position<i64>, Position<i64>), scale: [f64; 2]) -> f64 {
    let place = |end: &Position<i64>| {
        [
            (end[0] - vertex[0]) as f64 * scale[0],
            (end[1] - vertex[1]) as f64 * scale[1],
            height_m(end) - height_m(vertex),
        ]
    };
    let (from, to) = (place(&ends.0), place(&ends.1));
    let along = [to[0] - from[0], to[1] - from[1], to[2] - from[2]];
    let product = |a: &[f64; 3], b: &[f64; 3]| a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
    let length_squared = product(&along, &along);
    let share = if length_squared > 0.0 { (-product(&from, &along) / length_squared).clamp(0.0, 1.0) } else { 0.0 };
    let foot = [from[0] + share * along[0], from[1] + share * along[1], from[2] + share * along[2]];
    libm::sqrt(product(&foot, &foot))
}
