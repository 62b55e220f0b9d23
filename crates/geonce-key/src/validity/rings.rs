//! The checks of one `Polygon` or `MultiPolygon`: linework first, then touch points, then nesting.

use std::collections::BTreeMap;

use super::linework::{Builder, Linework};
use super::predicate::{Meet, Point, crossing, in_sector, same_direction};
use super::tree::{Stop, Work};
use super::{Found, Place, ProblemCode};
use crate::shape::MemberRef;

/// Checks a polygonal member.
pub(super) fn check(m: usize, member: MemberRef<'_, i64>, work: &mut Work, found: &mut Found) -> Result<(), Stop> {
    let mut builder = Builder::default();
    for (p, part) in member.parts().enumerate() {
        let place = |ring, code, at| Place { member: m, part: p, ring, vertex: None, code, at };
        if part.paths().len() == 0 {
            found.push(place(None, ProblemCode::Collapsed, [0, 0]))?;
        }
        for (r, path) in part.paths().enumerate() {
            // Sorting the path into the tree costs more than reading it.
            work.spend(4 * path.len())?;
            let first = path.first().map_or([0, 0], |p| [p[0], p[1]]);
            if path.last().is_some_and(|p| [p[0], p[1]] != first) {
                found.push(place(Some(r), ProblemCode::UnclosedRing, first))?;
            }
            if !builder.add(p, r, path.iter().map(|p| [p[0], p[1]])) {
                found.push(place(Some(r), ProblemCode::Collapsed, first))?;
            }
        }
    }
    let lines = builder.build();
    let known = found.list.len();
    let mut rings = Rings { member: m, lines: &lines, found, touches: Vec::new(), same: BTreeMap::new() };
    rings.linework(work)?;
    let groups = rings.touch_groups(work)?;
    // Questions of nesting have answers only for rings that neither cross nor overlap.
    if rings.found.list.len() == known {
        rings.connected(work, &groups)?;
        rings.nesting(work)?;
    }
    Ok(())
}

/// A ring passes through a point: at the start of a segment, or (`inner`) inside the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Passage {
    at: Point,
    segment: usize,
    inner: bool,
}

struct Rings<'a> {
    member: usize,
    lines: &'a Linework,
    found: &'a mut Found,
    touches: Vec<Passage>,
    /// For pairs of rings that share a stretch: whether they are the same ring.
    same: BTreeMap<(usize, usize), bool>,
}

impl Rings<'_> {
    fn report(&mut self, code: ProblemCode, segment: usize, at: Point) -> Result<(), Stop> {
        let ring = &self.lines.rings[self.lines.ring_of(segment)];
        self.found.push(Place {
            member: self.member,
            part: ring.part,
            ring: Some(ring.index),
            vertex: Some(self.lines.source[segment]),
            code,
            at,
        })
    }

    fn report_ring(&mut self, code: ProblemCode, ring: usize) -> Result<(), Stop> {
        let at = self.lines.points[self.lines.rings[ring].first];
        let ring = &self.lines.rings[ring];
        self.found.push(Place { member: self.member, part: ring.part, ring: Some(ring.index), vertex: None, code, at })
    }

    /// Crossings and overlaps are reported, touch points kept.
    fn linework(&mut self, work: &mut Work) -> Result<(), Stop> {
        let lines = self.lines;
        lines.meetings(work, |work, s, t, meet| {
            let one_ring = lines.ring_of(s) == lines.ring_of(t);
            match meet {
                Meet::Apart => Ok(()),
                Meet::Cross => {
                    let ((a, b), (c, d)) = (lines.segment(s), lines.segment(t));
                    let code = if one_ring { ProblemCode::SelfIntersection } else { ProblemCode::RingsCross };
                    self.report(code, s.min(t), crossing(a, b, c, d))
                }
                Meet::Overlap(_) if lines.adjacent(s, t) => {
                    let tip = if lines.next(s) == t { t } else { s };
                    self.report(ProblemCode::Spike, tip, lines.points[tip])
                }
                Meet::Overlap(at) if one_ring => self.report(ProblemCode::EdgeOverlap, s.min(t), at),
                Meet::Overlap(at) => self.shared_stretch(work, s, t, at),
                Meet::Touch(at) => {
                    work.spend(2)?;
                    self.touches.extend([passage(lines, s, at), passage(lines, t, at)]);
                    Ok(())
                }
            }
        })
    }

    fn shared_stretch(&mut self, work: &mut Work, s: usize, t: usize, at: Point) -> Result<(), Stop> {
        let (r, q) = (self.lines.ring_of(s), self.lines.ring_of(t));
        let pair = (r.min(q), r.max(q));
        let same = if let Some(&same) = self.same.get(&pair) {
            same
        } else {
            let (one, other) = (self.lines.ring_points(pair.0), self.lines.ring_points(pair.1));
            work.spend(one.len())?;
            let same = same_ring(one, other);
            self.same.insert(pair, same);
            if same {
                self.report_ring(ProblemCode::DuplicateRing, pair.1)?;
            }
            same
        };
        if same { Ok(()) } else { self.report(ProblemCode::EdgeOverlap, s.max(t), at) }
    }

    /// The passages of two or more, by point, after reporting those that cross or touch themselves.
    fn touch_groups(&mut self, work: &mut Work) -> Result<Vec<Passage>, Stop> {
        let mut touches = std::mem::take(&mut self.touches);
        work.spend(touches.len())?;
        touches.sort_unstable();
        touches.dedup();
        for group in touches.chunk_by(|a, b| a.at == b.at) {
            for (i, one) in group.iter().enumerate() {
                work.spend(group.len() - i)?;
                for other in &group[i + 1..] {
                    self.passages(one, other)?;
                }
            }
        }
        Ok(touches)
    }

    fn passages(&mut self, one: &Passage, other: &Passage) -> Result<(), Stop> {
        let p = one.at;
        let (a, b) = self.lines.arms(one.segment, p);
        let (c, d) = self.lines.arms(other.segment, p);
        let one_ring = self.lines.ring_of(one.segment) == self.lines.ring_of(other.segment);
        // Arms in one direction overlap, which is reported already.
        let overlap = [(a, c), (a, d), (b, c), (b, d)].iter().any(|&(x, y)| same_direction(p, x, y));
        let cross = !overlap && in_sector(p, a, b, c) != in_sector(p, a, b, d);
        let segment = one.segment.max(other.segment);
        match (one_ring, cross) {
            (true, true) => self.report(ProblemCode::SelfIntersection, segment, p),
            (true, false) => self.report(ProblemCode::RingSelfTouch, segment, p),
            (false, true) => self.report(ProblemCode::RingsCross, segment, p),
            (false, false) => Ok(()),
        }
    }

    /// Rings and touch points of one polygon form a forest exactly when its interior is connected.
    fn connected(&mut self, work: &mut Work, touches: &[Passage]) -> Result<(), Stop> {
        let mut parents: Vec<usize> = (0..self.lines.rings.len()).collect();
        for group in touches.chunk_by(|a, b| a.at == b.at) {
            let mut rings: Vec<(usize, usize, usize)> = group
                .iter()
                .map(|passage| {
                    let ring = self.lines.ring_of(passage.segment);
                    (self.lines.rings[ring].part, ring, passage.segment)
                })
                .collect();
            rings.sort_unstable();
            rings.dedup_by_key(|(_, ring, _)| *ring);
            for part in rings.chunk_by(|a, b| a.0 == b.0) {
                // Joining every ring to the first stands for joining all of them to the point.
                for &(_, ring, segment) in &part[1..] {
                    work.spend(2)?;
                    let (root, other) = (find(&mut parents, part[0].1), find(&mut parents, ring));
                    if root == other {
                        self.report(ProblemCode::InteriorDisconnected, segment, group[0].at)?;
                    }
                    parents[other] = root;
                }
            }
        }
        Ok(())
    }

    fn nesting(&mut self, work: &mut Work) -> Result<(), Stop> {
        let lines = self.lines;
        for (r, ring) in lines.rings.iter().enumerate() {
            let mut within_shell = false;
            let mut within_hole = false;
            // For an exterior ring: how often each other part's exterior ring or hole holds it.
            let mut parts: Vec<(usize, usize)> = Vec::new();
            lines.around(work, r, |work, o| {
                let other = &lines.rings[o];
                let related = (ring.index == 0) != (ring.part == other.part);
                if related && lines.ring_holds(work, o, r)? {
                    match (ring.index, other.index) {
                        (0, _) => parts.push((other.part, other.index)),
                        (_, 0) => within_shell = true,
                        _ => within_hole = true,
                    }
                }
                Ok(())
            })?;
            if ring.index > 0 {
                if !within_shell {
                    self.report_ring(ProblemCode::HoleOutside, r)?;
                } else if within_hole {
                    self.report_ring(ProblemCode::HoleNested, r)?;
                }
                continue;
            }
            parts.sort_unstable();
            let solid = |list: &[(usize, usize)]| list.len() == 1 && list[0].1 == 0;
            if parts.chunk_by(|a, b| a.0 == b.0).any(solid) {
                self.report_ring(ProblemCode::PartNested, r)?;
            }
        }
        Ok(())
    }
}

fn passage(lines: &Linework, segment: usize, at: Point) -> Passage {
    let (a, b) = lines.segment(segment);
    let start = if at == b { lines.next(segment) } else { segment };
    Passage { at, segment: start, inner: at != a && at != b }
}

fn find(parents: &mut [usize], mut i: usize) -> usize {
    while parents[i] != i {
        parents[i] = parents[parents[i]];
        i = parents[i];
    }
    i
}

/// Whether two open rings have the same vertices in the same order, from any start and in either direction.
fn same_ring(one: &[Point], other: &[Point]) -> bool {
    let n = one.len();
    if n != other.len() {
        return false;
    }
    other
        .iter()
        .enumerate()
        .filter(|&(_, p)| *p == one[0])
        .take(2)
        .any(|(k, _)| (0..n).all(|i| one[i] == other[(k + i) % n]) || (0..n).all(|i| one[i] == other[(k + n - i) % n]))
}
