//! Which delivered vertex of one geometry stands for which of the other.
//!
//! [`Trace`] follows every canonical position back to where it was delivered; [`align`] pairs the vertices of two
//! geometries of the same structure, also where jitter has changed the canonical order. Everything is linear but
//! the sorting of parts.

use super::laid::{Form, Laid};
use crate::canonical::least_rotation;
use crate::policy::{Lines, Parts, Policy};
use crate::shape::{Kind, MemberRef, Position, Shape};

/// A path in canonical order.
pub(super) struct Path {
    /// Which path of the shape.
    pub(super) index: usize,
    /// Positions of the shape, repeated ones once, without the one that closes a ring.
    pub(super) order: Vec<u32>,
    /// Repeated positions that were left out.
    pub(super) repeats: usize,
    pub(super) is_ring: bool,
}

/// A part in canonical order.
pub(super) struct Part {
    /// Which part of its member.
    pub(super) index: usize,
    pub(super) paths: Vec<Path>,
}

/// A member in canonical order.
pub(super) struct Member {
    /// Which member of the shape.
    pub(super) index: usize,
    pub(super) kind: Kind,
    pub(super) parts: Vec<Part>,
}

/// Delivered positions in canonical order.
pub(super) struct Trace {
    pub(super) members: Vec<Member>,
}

impl Trace {
    /// Follows the canonical form of a delivered shape back, by the same rules as [`crate::canonical`].
    pub(super) fn new(form: &Form, laid: &Laid, policy: &Policy) -> Trace {
        let shape = &form.delivered;
        let tracer = Tracer { shape, laid, lines: policy.lines };
        let mut members: Vec<Member> =
            shape.members().enumerate().map(|(index, member)| tracer.member(index, member)).collect();
        for member in &mut members {
            for part in &mut member.parts {
                if part.paths.len() > 2 {
                    part.paths[1..].sort_by(|a, b| tracer.key(a).cmp(tracer.key(b)));
                }
            }
            if policy.parts == Parts::Sorted {
                member.parts.sort_by(|a, b| tracer.part_key(a).cmp(tracer.part_key(b)));
            }
        }
        if policy.parts == Parts::Sorted {
            members.sort_by_cached_key(|member| {
                let parts: Vec<Vec<Position<i64>>> =
                    member.parts.iter().map(|part| tracer.part_key(part).collect()).collect();
                (member.kind, parts)
            });
        }
        Trace { members }
    }

    /// Parts and members as they were delivered.
    pub(super) fn into_delivered_order(mut self) -> Trace {
        self.members.sort_by_key(|member| member.index);
        for member in &mut self.members {
            member.parts.sort_by_key(|part| part.index);
            for part in &mut member.parts {
                part.paths.sort_by_key(|path| path.index);
            }
        }
        self
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        self.members.iter().flat_map(|member| &member.parts).flat_map(|part| &part.paths)
    }
}

struct Tracer<'s> {
    shape: &'s Shape<i64>,
    laid: &'s Laid,
    lines: Lines,
}

impl Tracer<'_> {
    fn at(&self, index: u32) -> Position<i64> {
        self.shape.positions[index as usize]
    }

    fn key<'p>(&'p self, path: &'p Path) -> impl Iterator<Item = Position<i64>> + 'p {
        path.order.iter().map(|&index| self.at(index))
    }

    /// Between paths stands what no grid holds, so that a shorter path comes first.
    fn part_key<'p>(&'p self, part: &'p Part) -> impl Iterator<Item = Position<i64>> + 'p {
        part.paths.iter().flat_map(|path| self.key(path).chain([[i64::MIN; 3]]))
    }

    fn member(&self, index: usize, member: MemberRef<'_, i64>) -> Member {
        let kind = member.kind.part();
        let parts: Vec<Part> = member
            .parts()
            .enumerate()
            .map(|(index, part)| {
                let paths = part.path_indices().enumerate().map(|(nth, path)| self.path(path, kind, nth == 0));
                Part { index, paths: paths.collect() }
            })
            .collect();
        let kind = if parts.len() > 1 { member.kind } else { kind };
        Member { index, kind, parts }
    }

    fn path(&self, index: usize, kind: Kind, exterior: bool) -> Path {
        let start = if index == 0 { 0 } else { self.shape.paths[index - 1] };
        let is_ring = kind == Kind::Polygon;
        let closed = is_ring && !self.laid.closes(index);
        let end = self.shape.paths[index] - u32::from(closed);
        let mut order: Vec<u32> = (start..end).collect();
        order.dedup_by(|next, kept| self.at(*next) == self.at(*kept));
        while is_ring && order.len() > 1 && self.at(order[0]) == self.at(order[order.len() - 1]) {
            order.pop();
        }
        let repeats = (end - start) as usize - order.len();
        let positions = |order: &[u32]| -> Vec<Position<i64>> { order.iter().map(|&i| self.at(i)).collect() };
        if is_ring {
            let area = doubled_area(&positions(&order));
            let mut reversed: Vec<u32> = order.iter().rev().copied().collect();
            for direction in [&mut order, &mut reversed] {
                let first = least_rotation(&positions(direction));
                direction.rotate_left(first);
            }
            let reverse = if area == 0 { positions(&reversed) < positions(&order) } else { (area > 0) != exterior };
            if reverse {
                order = reversed;
            }
        } else if kind == Kind::LineString && self.lines == Lines::Undirected {
            let forward = positions(&order);
            if forward.iter().rev().lt(forward.iter()) {
                order.reverse();
            }
        }
        Path { index, order, repeats, is_ring }
    }
}

/// Twice the area of an open ring, positive where it runs counter-clockwise.
pub(super) fn doubled_area(open: &[Position<i64>]) -> i128 {
    let next = open.iter().cycle().skip(1);
    let cross = |(p, q): (&Position<i64>, &Position<i64>)| {
        i128::from(p[0]) * i128::from(q[1]) - i128::from(q[0]) * i128::from(p[1])
    };
    open.iter().zip(next).map(cross).sum()
}

/// Two paths with their vertices in pairs.
pub(super) struct PathPair {
    pub(super) a: usize,
    pub(super) b: usize,
    pub(super) is_ring: bool,
    /// Repeated positions that were left out of each.
    pub(super) repeats: [usize; 2],
    pub(super) vertices: Vec<(u32, u32)>,
}

/// Two geometries with their vertices in pairs.
pub(super) struct Alignment {
    pub(super) paths: Vec<PathPair>,
    /// The largest displacement on the grid, squared, in steps.
    worst: f64,
}

impl Alignment {
    pub(super) fn vertices(&self) -> impl Iterator<Item = (usize, usize)> {
        self.paths.iter().flat_map(|path| &path.vertices).map(|&(a, b)| (a as usize, b as usize))
    }
}

/// Pairs the vertices of two geometries on the grid; `None` where their structures differ.
pub(super) fn align(a: (&Form, &Laid), b: (&Form, &Laid), policy: &Policy) -> Option<Alignment> {
    let traces = || [a, b].map(|(form, laid)| Trace::new(form, laid, policy));
    let shapes = [&a.0.delivered, &b.0.delivered];
    let canonical = along(&traces(), shapes);
    if canonical.as_ref().is_some_and(|alignment| alignment.worst == 0.0) {
        return canonical;
    }
    let delivered = along(&traces().map(Trace::into_delivered_order), shapes);
    match (canonical, delivered) {
        (Some(first), Some(second)) => Some(if second.worst < first.worst { second } else { first }),
        (first, second) => first.or(second),
    }
}

fn along([a, b]: &[Trace; 2], shapes: [&Shape<i64>; 2]) -> Option<Alignment> {
    let structure = |trace: &Trace| -> Vec<(Kind, Vec<usize>)> {
        let counts = |member: &Member| member.parts.iter().map(|part| part.paths.len()).collect();
        trace.members.iter().map(|member| (member.kind, counts(member))).collect()
    };
    if structure(a) != structure(b) {
        return None;
    }
    let mut alignment = Alignment { paths: Vec::new(), worst: 0.0 };
    for (a, b) in a.paths().zip(b.paths()) {
        let (vertices, worst) = vertex_pairs(a, b, shapes)?;
        alignment.worst = alignment.worst.max(worst);
        let repeats = [a.repeats, b.repeats];
        alignment.paths.push(PathPair { a: a.index, b: b.index, is_ring: a.is_ring, repeats, vertices });
    }
    Some(alignment)
}

/// Vertices in canonical order, or, where that brings a ring's closer, from the vertex nearest to the first one.
fn vertex_pairs(a: &Path, b: &Path, [shape_a, shape_b]: [&Shape<i64>; 2]) -> Option<(Vec<(u32, u32)>, f64)> {
    if a.order.len() != b.order.len() || a.order.is_empty() {
        return None;
    }
    let apart = |i: u32, j: u32| squared(shape_a.positions[i as usize], shape_b.positions[j as usize]);
    let pairs = |shift: usize| -> (Vec<(u32, u32)>, f64) {
        let rotated = b.order[shift..].iter().chain(&b.order[..shift]);
        let pairs: Vec<(u32, u32)> = a.order.iter().copied().zip(rotated.copied()).collect();
        let worst = pairs.iter().map(|&(i, j)| apart(i, j)).fold(0.0, f64::max);
        (pairs, worst)
    };
    let canonical = pairs(0);
    if !a.is_ring || canonical.1 == 0.0 {
        return Some(canonical);
    }
    let first = a.order[0];
    let nearest = (0..b.order.len()).min_by(|&i, &j| apart(first, b.order[i]).total_cmp(&apart(first, b.order[j])))?;
    let shifted = pairs(nearest);
    Some(if shifted.1 < canonical.1 { shifted } else { canonical })
}

fn squared(a: Position<i64>, b: Position<i64>) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a measure of closeness, not a coordinate")]
    let differences = [0, 1, 2].map(|axis| a[axis].abs_diff(b[axis]) as f64);
    differences.iter().map(|d| d * d).sum()
}
