//! The structure rule on one polygonal member, with `i_overlay`'s 64-bit integer engine for filling and cutting.
//!
//! The engine is only asked which directed edges bound a region; rings and their nesting are made of these edges
//! by `extract`, because the engine attaches some holes to the wrong shell.

use i_overlay::core::fill_rule::FillRule;
use i_overlay::core::overlay::{IntOverlayOptions, Overlay, ShapeType};
use i_overlay::core::overlay_rule::OverlayRule;
use i_overlay::core::solver::{Precision, Solver, Strategy};
use i_overlay::i_float::int::point::IntPoint;
use i_overlay::i_shape::flat::buffer::FlatContoursBuffer;

use super::{ActionCode, State, empty, extract, height, part_pointer, too_complex};
use crate::shape::{Kind, MemberRef, Shape};
use crate::validity::check;
use crate::validity::linework::{Builder, Linework, Side};
use crate::validity::predicate::{Meet, Point};
use crate::validity::tree::{Stop, Work};
use crate::{Limits, Result};

/// An open ring with the region it bounds on its left.
pub(super) type Contour = Vec<Point>;

/// What the engine is taken to need per vertex of one run, and per meeting of two segments in all runs together, in
/// elementary steps. Measured generously: they turn a count made beforehand into a promise about time.
const STEPS_PER_VERTEX: usize = 20;
const STEPS_PER_MEETING: usize = 256;
/// Where segments meet at a small angle, rounding moves a crossing past other segments, which makes further crossings.
const STEPS_PER_SHALLOW_MEETING: usize = 8 * STEPS_PER_MEETING;

/// Rounding the crossings of one pass can make new ones, which another pass resolves.
const PASSES_MAX: usize = 8;

impl State {
    /// Repairs a polygonal member that is known not to be valid.
    pub(super) fn polygons(
        &mut self,
        member: MemberRef<'_, i64>,
        single: &Shape<i64>,
        pointer: &str,
        limits: &Limits,
    ) -> Result<Shape<i64>> {
        let parts = self.collect(member, pointer);
        if parts.is_empty() {
            return Err(empty(pointer));
        }
        let complex = |_: Stop| too_complex(pointer);
        let lines = linework(parts.iter().flat_map(|part| &part.rings));
        let tangles = self.measure(&lines).map_err(complex)?;
        let mut regions = Vec::new();
        let mut next = 0;
        for part in &parts {
            let filled = self.fill(part, next, &lines, &tangles, member.kind, pointer).map_err(complex)?;
            next += part.rings.len();
            self.part(part, filled, member.kind, pointer, &mut regions).map_err(complex)?;
        }
        let mut contours = if regions.len() == 1 {
            regions.swap_remove(0)
        } else {
            self.act(ActionCode::PartsUnited, pointer.to_owned());
            self.overlay(&regions.concat(), &[], OverlayRule::Subject).map_err(complex)?
        };
        for _ in 0..PASSES_MAX {
            let polygons = extract::polygons(&contours, &mut self.work).map_err(complex)?;
            if polygons.is_empty() {
                return Err(empty(pointer));
            }
            let kind = if polygons.len() > 1 { Kind::MultiPolygon } else { member.kind };
            let (shape, shift) = height::lift(&polygons, kind, single, &lines, &mut self.work).map_err(complex)?;
            let report = check(&shape, &self.remaining(limits));
            self.spend(usize::try_from(report.work).unwrap_or(usize::MAX)).map_err(complex)?;
            if report.is_valid() {
                self.shift_max = self.shift_max.max(shift);
                return Ok(shape);
            }
            contours = self.overlay(&polygons.concat(), &[], OverlayRule::Subject).map_err(complex)?;
        }
        Err(too_complex(pointer))
    }

    /// The rings that have an area, by part; the others are dropped.
    fn collect(&mut self, member: MemberRef<'_, i64>, pointer: &str) -> Vec<Part> {
        let mut parts = Vec::new();
        for (number, part) in member.parts().enumerate() {
            let mut rings = Vec::new();
            let mut index = Vec::new();
            for (r, path) in part.paths().enumerate() {
                let mut builder = Builder::default();
                if builder.add(0, 0, path.iter().map(|p| [p[0], p[1]])) {
                    rings.push(builder.into_points());
                    index.push(r);
                } else if r == 0 {
                    break;
                } else {
                    self.act(ActionCode::HoleDropped, part_pointer(pointer, member.kind, number, Some(r)));
                }
            }
            if rings.is_empty() {
                self.act(ActionCode::PartDropped, part_pointer(pointer, member.kind, number, None));
            } else {
                parts.push(Part { number, index, rings });
            }
        }
        parts
    }

    /// How rings meet themselves, after making sure that the engine will not have too much to do.
    fn measure(&mut self, lines: &Linework) -> std::result::Result<Tangles, Stop> {
        let mut tangled = vec![false; lines.rings.len()];
        let mut cuts = Vec::new();
        lines.meetings(&mut self.work, |work: &mut Work, s, t, meet| {
            let ((a, b), (c, d)) = (lines.segment(s), lines.segment(t));
            work.spend(if meet == Meet::Cross && shallow(a, b, c, d) {
                STEPS_PER_SHALLOW_MEETING
            } else {
                STEPS_PER_MEETING
            })?;
            let ring = lines.ring_of(s);
            if ring != lines.ring_of(t) {
                return Ok(());
            }
            tangled[ring] = true;
            match meet {
                Meet::Touch(at) => cuts.extend([(s, at), (t, at)]),
                Meet::Overlap(_) => {
                    let within = |from: Point, to: Point, p: Point| from.min(to) < p && p < from.max(to);
                    cuts.extend([c, d].into_iter().filter(|&p| within(a, b, p)).map(|p| (s, p)));
                    cuts.extend([a, b].into_iter().filter(|&p| within(c, d, p)).map(|p| (t, p)));
                }
                Meet::Apart | Meet::Cross => {}
            }
            Ok(())
        })?;
        cuts.sort_unstable();
        cuts.dedup();
        Ok(Tangles { tangled, cuts })
    }

    /// The regions that a part's rings bound, each filled non-zero by itself. `first` is its first ring in `lines`.
    fn fill(
        &mut self,
        part: &Part,
        first: usize,
        lines: &Linework,
        tangles: &Tangles,
        kind: Kind,
        pointer: &str,
    ) -> std::result::Result<Vec<Vec<Contour>>, Stop> {
        let mut filled = Vec::with_capacity(part.rings.len());
        for (i, (ring, &r)) in part.rings.iter().zip(&part.index).enumerate() {
            if tangles.tangled[first + i] {
                self.act(ActionCode::RingRebuilt, part_pointer(pointer, kind, part.number, Some(r)));
                let walks = extract::without_retraced(tangles.cut_edges(lines, first + i).into_iter());
                filled.push(self.overlay(&walks, &[], OverlayRule::Subject)?);
            } else {
                filled.push(vec![extract::counterclockwise(ring.clone())]);
            }
        }
        Ok(filled)
    }

    /// The regions of one part: its exterior ring less the holes that meet it, then each hole that does not.
    fn part(
        &mut self,
        part: &Part,
        mut filled: Vec<Vec<Contour>>,
        kind: Kind,
        pointer: &str,
        regions: &mut Vec<Vec<Contour>>,
    ) -> std::result::Result<(), Stop> {
        let holes = filled.split_off(1);
        let Some(shell) = filled.pop().filter(|shell| !shell.is_empty()) else {
            self.act(ActionCode::PartDropped, part_pointer(pointer, kind, part.number, None));
            return Ok(());
        };
        let meets = holes_that_meet(&shell, &holes, &mut self.work)?;
        let mut cut = Vec::new();
        for ((hole, meets), &r) in holes.into_iter().zip(meets).zip(&part.index[1..]) {
            if meets {
                cut.extend(hole);
            } else {
                self.act(ActionCode::HolePromoted, part_pointer(pointer, kind, part.number, Some(r)));
                regions.push(hole);
            }
        }
        if cut.is_empty() {
            regions.push(shell);
        } else {
            self.act(ActionCode::HolesCut, part_pointer(pointer, kind, part.number, None));
            regions.push(self.overlay(&shell, &cut, OverlayRule::Difference)?);
        }
        Ok(())
    }

    /// The contours of the region that `rule` makes of subject and clip, each filled non-zero.
    fn overlay(
        &mut self,
        subject: &[Contour],
        clip: &[Contour],
        rule: OverlayRule,
    ) -> std::result::Result<Vec<Contour>, Stop> {
        let count = subject.iter().chain(clip).map(Vec::len).sum();
        self.spend(STEPS_PER_VERTEX * count)?;
        let solver = Solver { strategy: Strategy::Auto, precision: Precision::HIGH, multithreading: None };
        let mut engine = Overlay::<i64>::new_custom(count, IntOverlayOptions::keep_all_points(), solver);
        for (contours, role) in [(subject, ShapeType::Subject), (clip, ShapeType::Clip)] {
            for contour in contours {
                engine.add_path_iter(contour.iter().map(|p| IntPoint::new(p[0], p[1])), role);
            }
        }
        let mut flat = FlatContoursBuffer::default();
        engine.overlay_into(rule, FillRule::NonZero, &mut flat);
        let contour = |range: &std::ops::Range<usize>| flat.points[range.clone()].iter().map(|p| [p.x, p.y]).collect();
        Ok(flat.ranges.iter().map(contour).collect())
    }
}

/// Whether the angle between two segments is below one part in 64.
#[expect(clippy::cast_precision_loss, reason = "an estimate of cost; IEEE products are the same on every machine")]
fn shallow(a: Point, b: Point, c: Point, d: Point) -> bool {
    let (ux, uy) = ((b[0] - a[0]) as f64, (b[1] - a[1]) as f64);
    let (vx, vy) = ((d[0] - c[0]) as f64, (d[1] - c[1]) as f64);
    let cross = 64.0 * (ux * vy - uy * vx);
    cross * cross < (ux * ux + uy * uy) * (vx * vx + vy * vy)
}

/// Which rings meet themselves, and the points at which a ring's vertices lie on its own segments.
struct Tangles {
    tangled: Vec<bool>,
    cuts: Vec<(usize, Point)>,
}

impl Tangles {
    /// The edges of a ring, cut at those points.
    fn cut_edges(&self, lines: &Linework, ring: usize) -> Vec<(Point, Point)> {
        let mut edges = Vec::new();
        for segment in lines.rings[ring].first..lines.rings[ring].end {
            let (a, b) = lines.segment(segment);
            let from = self.cuts.partition_point(|cut| cut.0 < segment);
            let to = self.cuts.partition_point(|cut| cut.0 <= segment);
            let mut points: Vec<Point> = self.cuts[from..to].iter().map(|cut| cut.1).collect();
            if a > b {
                points.reverse();
            }
            points.push(b);
            let mut last = a;
            for p in points {
                edges.push((last, p));
                last = p;
            }
        }
        edges
    }
}

/// A part's rings that have an area, and their places in it.
struct Part {
    number: usize,
    index: Vec<usize>,
    rings: Vec<Contour>,
}

fn linework<'a>(rings: impl Iterator<Item = &'a Contour>) -> Linework {
    let mut builder = Builder::default();
    for (r, ring) in rings.enumerate() {
        builder.add(r, 0, ring.iter().copied());
    }
    builder.build()
}

/// For each hole, whether it has a point in common with the shell. All are regions given by their contours.
fn holes_that_meet(shell: &[Contour], holes: &[Vec<Contour>], work: &mut Work) -> std::result::Result<Vec<bool>, Stop> {
    let mut meets = vec![false; holes.len()];
    if holes.is_empty() {
        return Ok(meets);
    }
    let mut builder = Builder::default();
    for contour in shell {
        builder.add(0, 0, contour.iter().copied());
    }
    for (h, hole) in holes.iter().enumerate() {
        for contour in hole {
            builder.add(h + 1, 0, contour.iter().copied());
        }
    }
    let lines = builder.build();
    lines.meetings(work, |_, s, t, _| {
        let (a, b) = (lines.rings[lines.ring_of(s)].part, lines.rings[lines.ring_of(t)].part);
        if a.min(b) == 0 && a != b {
            meets[a.max(b) - 1] = true;
        }
        Ok(())
    })?;
    // Rings come in the order they were added: the shell's, then each hole's.
    let first_hole = lines.rings.partition_point(|ring| ring.part == 0);
    for (h, meets) in meets.iter_mut().enumerate().filter(|(_, meets)| !**meets) {
        let from = lines.rings.partition_point(|ring| ring.part <= h);
        let to = lines.rings.partition_point(|ring| ring.part <= h + 1);
        if from == to || first_hole == 0 {
            continue;
        }
        *meets = inside(&lines, 0..first_hole, lines.points[lines.rings[from].first], work)?
            || inside(&lines, from..to, lines.points[0], work)?;
    }
    Ok(meets)
}

/// Whether a point lies in the region bounded by the rings, none of which it is on.
fn inside(
    lines: &Linework,
    rings: std::ops::Range<usize>,
    p: Point,
    work: &mut Work,
) -> std::result::Result<bool, Stop> {
    let mut odd = false;
    for ring in rings {
        odd ^= lines.side(work, ring, p)? != Side::Outside;
    }
    Ok(odd)
}
