//! Heights for repaired rings, and how far their new vertices lie from the linework that came in.
//!
//! A vertex that the input has keeps its z (the smallest, where the input gives several for one place). A new vertex
//! gets z along the nearest input segment, rounded half up; of equally near segments, the smallest z.

use super::extract::Polygon;
use crate::shape::{Kind, Shape};
use crate::validity::linework::Linework;
use crate::validity::predicate::Point;
use crate::validity::tree::{Bounds, Stop, Work};

/// The polygons as a shape with heights, and the largest distance of a new vertex from `lines`.
pub(super) fn lift(
    polygons: &[Polygon],
    kind: Kind,
    input: &Shape<i64>,
    lines: &Linework,
    work: &mut Work,
) -> Result<(Shape<i64>, f64), Stop> {
    let mut known: Vec<(Point, i64)> = input.positions.iter().map(|p| ([p[0], p[1]], p[2])).collect();
    known.sort_unstable();
    known.dedup_by_key(|(point, _)| *point);
    let mut shift_max: f64 = 0.0;
    let mut out = Shape { has_z: input.has_z, ..Shape::new() };
    for polygon in polygons {
        for ring in polygon {
            let first = out.positions.len();
            for &p in ring {
                work.spend(2)?;
                let place = known.partition_point(|(point, _)| *point < p);
                let z = match known.get(place) {
                    Some(&(point, z)) if point == p => z,
                    _ => {
                        let (distance, z) = nearest(p, &known, input.has_z, lines, work)?;
                        shift_max = shift_max.max(distance);
                        z
                    }
                };
                out.positions.push([p[0], p[1], z]);
            }
            if let Some(&start) = out.positions.get(first) {
                out.positions.push(start);
            }
            out.end_path();
        }
        out.end_part();
    }
    out.end_member(kind);
    Ok((out, shift_max))
}

/// How far rounding usually moves a vertex, in grid steps; the search widens where nothing is so near.
const NEAR: f64 = 4.0;

fn nearest(
    p: Point,
    known: &[(Point, i64)],
    has_z: bool,
    lines: &Linework,
    work: &mut Work,
) -> Result<(f64, i64), Stop> {
    let height = |q: Point| known.get(known.partition_point(|(point, _)| *point < q)).map_or(0, |&(_, z)| z);
    let rank = |leaf: usize, mut limit: f64| {
        let mut best: Option<(f64, i64)> = None;
        for segment in lines.block(leaf) {
            let (a, b) = lines.segment(segment);
            // The direction of the segment must not decide how a height is rounded.
            let (a, b) = (a.min(b), a.max(b));
            if clearly_beyond(limit, p, a, b) {
                continue;
            }
            let apart = distance(p, a, b);
            if apart > limit {
                continue;
            }
            limit = apart;
            let z = if has_z { between(p, (a, height(a)), (b, height(b))) } else { 0 };
            if best.is_none_or(|known| (apart, z) < known) {
                best = Some((apart, z));
            }
        }
        best
    };
    for limit in [NEAR, f64::INFINITY] {
        if let Some(found) = lines.tree().nearest(work, limit, |bounds| distance_to_box(p, bounds), rank)? {
            return Ok(found);
        }
    }
    Ok((0.0, 0))
}

/// A quick test that never errs towards "beyond": the distance from the segment's line, less a whole step for rounding.
#[expect(clippy::cast_precision_loss, reason = "a step of slack covers the rounding")]
fn clearly_beyond(limit: f64, p: Point, a: Point, b: Point) -> bool {
    let (dx, dy) = ((b[0] - a[0]) as f64, (b[1] - a[1]) as f64);
    let (px, py) = ((p[0] - a[0]) as f64, (p[1] - a[1]) as f64);
    let cross = dx * py - dy * px;
    cross * cross > (limit + 1.0) * (limit + 1.0) * (dx * dx + dy * dy)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a distance for people; comparisons are made on the same rounded values"
)]
fn distance(p: Point, a: Point, b: Point) -> f64 {
    let (dx, dy) = (i128::from(b[0] - a[0]), i128::from(b[1] - a[1]));
    let (px, py) = (i128::from(p[0] - a[0]), i128::from(p[1] - a[1]));
    let (length, along) = (dx * dx + dy * dy, px * dx + py * dy);
    if along <= 0 {
        ((px * px + py * py) as f64).sqrt()
    } else if along >= length {
        let (qx, qy) = (px - dx, py - dy);
        ((qx * qx + qy * qy) as f64).sqrt()
    } else {
        (dx * py - dy * px).unsigned_abs() as f64 / (length as f64).sqrt()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a lower bound that only orders the search")]
fn distance_to_box(p: Point, bounds: &Bounds) -> f64 {
    if bounds.min[0] > bounds.max[0] {
        return f64::INFINITY;
    }
    let beyond = |axis: usize| (bounds.min[axis] - p[axis]).max(p[axis] - bounds.max[axis]).max(0) as f64;
    let (dx, dy) = (beyond(0), beyond(1));
    // A hair less than the distance, so that rounding cannot hide the nearest segment.
    (dx * dx + dy * dy).sqrt() * (1.0 - 1e-12)
}

/// The height at the foot of `p` on the segment, to the nearest unit.
fn between(p: Point, (a, za): (Point, i64), (b, zb): (Point, i64)) -> i64 {
    let (dx, dy) = (i128::from(b[0] - a[0]), i128::from(b[1] - a[1]));
    let length = dx * dx + dy * dy;
    let along = (i128::from(p[0] - a[0]) * dx + i128::from(p[1] - a[1]) * dy).clamp(0, length);
    let rise = i128::from(zb) - i128::from(za);
    let scaled = rise.checked_mul(along).and_then(|product| product.checked_mul(2)?.checked_add(length));
    match scaled {
        Some(scaled) if length > 0 => i64::try_from(i128::from(za) + scaled.div_euclid(2 * length)).unwrap_or(za),
        // Heights and coordinates beyond every grid: the nearer end will do.
        _ if along * 2 <= length => za,
        _ => zb,
    }
}
