//! How much of two areas is common to both, in the plane of longitude and latitude, with `i_overlay`'s 64-bit engine.
//!
//! Areas are filled non-zero, so parts that overlap count once and holes are left out. How often boundaries meet is
//! counted before the engine runs, because that is what its time depends on.

use i_overlay::core::fill_rule::FillRule;
use i_overlay::core::overlay::{IntOverlayOptions, Overlay, ShapeType};
use i_overlay::core::overlay_rule::OverlayRule;
use i_overlay::core::solver::{Precision, Solver, Strategy};
use i_overlay::i_float::int::point::IntPoint;
use i_overlay::i_shape::flat::buffer::FlatContoursBuffer;

use super::pair::Found;
use crate::shape::{Position, Shape};
use crate::validity::linework::Builder;
use crate::validity::predicate::{Point, area_doubled};
use crate::validity::tree::{Bounds, Work};

/// What the engine is taken to need per vertex, and per meeting of two segments, in elementary steps.
const STEPS_PER_VERTEX: usize = 40;
const STEPS_PER_MEETING: usize = 256;

/// The common area as a share of the area of both; none below `least`.
pub(super) fn share(a: &Shape<i64>, b: &Shape<i64>, least: f64, work: &mut Work) -> Found {
    let (box_a, box_b) = (bounds(a), bounds(b));
    if !box_a.meets(&box_b) {
        return Ok(None);
    }
    let room = Room::new(box_a.with(box_b));
    let (ours, theirs) = (room.rings(a), room.rings(b));
    let mut lines = Builder::default();
    for (number, ring) in ours.iter().chain(&theirs).enumerate() {
        lines.add(number, 0, ring.iter().copied());
    }
    work.spend(STEPS_PER_VERTEX * (a.positions.len() + b.positions.len()))?;
    lines.build().meetings(work, |work, _, _, _| work.spend(STEPS_PER_MEETING))?;
    let common = area(&ours, &theirs, OverlayRule::Intersect);
    let both = area(&ours, &theirs, OverlayRule::Union);
    if both <= 0 {
        return Ok(None);
    }
    #[expect(clippy::cast_precision_loss, reason = "the share is a double however it is written")]
    let share = common as f64 / both as f64;
    Ok((share >= least).then_some(share))
}

fn bounds(shape: &Shape<i64>) -> Bounds {
    let point = |position: &Position<i64>| Bounds::of([position[0], position[1]], [position[0], position[1]]);
    shape.positions.iter().fold(Bounds::EMPTY, |all, position| all.with(point(position)))
}

/// The widest that coordinates of the engine are, as a power of two: their products of three stay within 128 bits.
const ROOM_BITS: u32 = 40;

/// Where both shapes are, and a grid that is finer by a power of two. The engine rounds crossings to the grid; boundaries that
/// differ by a step or two would otherwise cross each other again because of that, and again.
struct Room {
    corner: Point,
    finer: u32,
}

impl Room {
    fn new(bounds: Bounds) -> Room {
        let extent = (0..2).map(|axis| bounds.max[axis].abs_diff(bounds.min[axis])).fold(1, u64::max);
        Room { corner: bounds.min, finer: (extent.leading_zeros() + ROOM_BITS).saturating_sub(u64::BITS) }
    }

    /// The rings of a shape without their last positions; those that have no area are left out.
    fn rings(&self, shape: &Shape<i64>) -> Vec<Vec<Point>> {
        shape.all_paths().map(|path| self.open(path)).filter(|ring| ring.len() > 2).collect()
    }

    fn open(&self, path: &[Position<i64>]) -> Vec<Point> {
        let place = |p: &Position<i64>| [(p[0] - self.corner[0]) << self.finer, (p[1] - self.corner[1]) << self.finer];
        path[..path.len().saturating_sub(1)].iter().map(place).collect()
    }
}

/// Twice the area of what `rule` makes of both.
fn area(ours: &[Vec<Point>], theirs: &[Vec<Point>], rule: OverlayRule) -> i128 {
    let count = ours.iter().chain(theirs).map(Vec::len).sum();
    let solver = Solver { strategy: Strategy::Auto, precision: Precision::HIGH, multithreading: None };
    let mut engine = Overlay::<i64>::new_custom(count, IntOverlayOptions::keep_all_points(), solver);
    for (contours, role) in [(ours, ShapeType::Subject), (theirs, ShapeType::Clip)] {
        for contour in contours {
            engine.add_path_iter(contour.iter().map(|p| IntPoint::new(p[0], p[1])), role);
        }
    }
    let mut flat = FlatContoursBuffer::default();
    engine.overlay_into(rule, FillRule::NonZero, &mut flat);
    let contour = |range: &std::ops::Range<usize>| -> Vec<Point> {
        flat.points[range.clone()].iter().map(|p| [p.x, p.y]).collect()
    };
    // Outer contours and holes turn in opposite directions, so the holes take themselves away.
    flat.ranges.iter().map(|range| area_doubled(&contour(range))).sum::<i128>().abs()
}
