//! The canonical form of a geometry on the grid: `g1` points 5 to 8.
//!
//! Integers only. Every step is linear but the sorting of parts and holes. Two shapes have the same canonical
//! form exactly when the specification calls them the same geometry.

use crate::policy::{Lines, Parts, Policy};
use crate::shape::{Kind, MemberRef, Position, Shape};
use std::cmp::Ordering;

type Point = Position<i64>;

/// What the canonical form depends on.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    lines: Lines,
    parts: Parts,
    /// Grid values of 180 and 90 degrees.
    half_turn: i64,
    quarter_turn: i64,
}

impl Rules {
    pub(crate) fn new(policy: &Policy) -> Rules {
        let unit = crate::decimal::POW10[usize::from(policy.precision)].cast_signed();
        Rules { lines: policy.lines, parts: policy.parts, half_turn: 180 * unit, quarter_turn: 90 * unit }
    }
}

/// Makes canonical forms; holds the memory it needs from one shape to the next.
#[derive(Default)]
pub(crate) struct Canonicalizer {
    unsorted: Shape<i64>,
    path: Vec<Point>,
}

impl Canonicalizer {
    /// Writes the canonical form of `shape` into `out` and returns the indices of paths that collapsed.
    /// Rings come with their closing position, except those listed in `unclosed`, in ascending order.
    pub(crate) fn run(
        &mut self,
        shape: &Shape<i64>,
        unclosed: &[u32],
        rules: Rules,
        out: &mut Shape<i64>,
    ) -> Vec<usize> {
        let mut collapsed = Vec::new();
        let sorting = shape.parts.len() > 1 || shape.paths.len() > 2;
        let target = if sorting { &mut self.unsorted } else { &mut *out };
        target.clear();
        target.collection = shape.collection;
        target.has_z = shape.has_z;
        for member in shape.members() {
            let part_kind = member.kind.part();
            for part in member.parts() {
                for (nth, (index, path)) in part.path_indices().zip(part.paths()).enumerate() {
                    let whole = match part_kind {
                        Kind::Point => point(path, rules, target),
                        Kind::LineString => line(path, rules, &mut self.path, target),
                        _ => {
                            let closed = unclosed.binary_search_by_key(&index, |&unclosed| unclosed as usize).is_err();
                            let open = &path[..path.len() - usize::from(closed)];
                            ring(open, nth == 0, &mut self.path, target)
                        }
                    };
                    target.end_path();
                    if !whole {
                        collapsed.push(index);
                    }
                }
                target.end_part();
            }
            let several = part_count(&member) > 1;
            target.end_member(if several { member.kind } else { part_kind });
        }
        if sorting {
            sort(&self.unsorted, rules, out);
        }
        collapsed
    }
}

fn part_count(member: &MemberRef<'_, i64>) -> usize {
    member.parts().len()
}

/// One meridian has two names, and a pole has every longitude: points get one of them.
fn point(path: &[Point], rules: Rules, out: &mut Shape<i64>) -> bool {
    let mut position = path[0];
    if position[0] == -rules.half_turn {
        position[0] = rules.half_turn;
    }
    if position[1].abs() == rules.quarter_turn {
        position[0] = 0;
    }
    out.positions.push(position);
    true
}

fn line(path: &[Point], rules: Rules, distinct: &mut Vec<Point>, out: &mut Shape<i64>) -> bool {
    distinct.clear();
    distinct.extend_from_slice(path);
    distinct.dedup();
    if rules.lines == Lines::Undirected && distinct.iter().rev().lt(distinct.iter()) {
        distinct.reverse();
    }
    out.positions.extend_from_slice(distinct);
    distinct.len() > 1
}

/// What one pass over an open ring tells.
struct Survey {
    doubled_area: i128,
    least: usize,
    /// Whether the least position occurs once, so that the least rotation starts there.
    least_is_unique: bool,
    /// Whether consecutive positions (cyclically) are equal.
    repeats: bool,
}

fn survey(open: &[Point]) -> Survey {
    let count = open.len();
    let mut seen = Survey { doubled_area: 0, least: 0, least_is_unique: true, repeats: false };
    let mut before = open[count - 1];
    let mut least = open[0];
    for (i, here) in open.iter().enumerate() {
        let after = if i + 1 < count { open[i + 1] } else { open[0] };
        seen.doubled_area += i128::from(here[0]) * i128::from(after[1] - before[1]);
        seen.repeats |= *here == before;
        if here[0] <= least[0] && i > 0 {
            match here.cmp(&least) {
                Ordering::Less => {
                    least = *here;
                    seen.least = i;
                    seen.least_is_unique = true;
                }
                Ordering::Equal => seen.least_is_unique = false,
                Ordering::Greater => {}
            }
        }
        before = *here;
    }
    seen
}

/// Exterior rings counter-clockwise and holes clockwise by exact area; then the least rotation; then closed.
fn ring(open: &[Point], exterior: bool, scratch: &mut Vec<Point>, out: &mut Shape<i64>) -> bool {
    let mut open = open;
    let mut seen = survey(open);
    if seen.repeats {
        scratch.clear();
        scratch.extend_from_slice(open);
        scratch.dedup();
        while scratch.len() > 1 && scratch.first() == scratch.last() {
            scratch.pop();
        }
        open = scratch;
        seen = survey(open);
    }
    let start = out.positions.len();
    if seen.doubled_area == 0 {
        write_flat_ring(open, out);
    } else if (seen.doubled_area > 0) == exterior {
        let first = if seen.least_is_unique { seen.least } else { least_rotation(open) };
        out.positions.extend_from_slice(&open[first..]);
        out.positions.extend_from_slice(&open[..first]);
    } else if seen.least_is_unique {
        out.positions.extend(open[..=seen.least].iter().rev());
        out.positions.extend(open[seen.least + 1..].iter().rev());
    } else {
        let reversed: Vec<Point> = open.iter().rev().copied().collect();
        let first = least_rotation(&reversed);
        out.positions.extend_from_slice(&reversed[first..]);
        out.positions.extend_from_slice(&reversed[..first]);
    }
    let first = out.positions[start];
    out.positions.push(first);
    seen.doubled_area != 0
}

/// A ring without area has no direction: of both directions' least rotations the smaller one stands.
fn write_flat_ring(open: &[Point], out: &mut Shape<i64>) {
    let mut forward = open.to_vec();
    forward.rotate_left(least_rotation(open));
    let mut backward: Vec<Point> = open.iter().rev().copied().collect();
    let first = least_rotation(&backward);
    backward.rotate_left(first);
    out.positions.extend_from_slice(if backward < forward { &backward } else { &forward });
}

/// Where the lexicographically least rotation starts, in linear time: two candidate starts are compared, and
/// the loser skips everything it has just matched.
pub(crate) fn least_rotation(ring: &[Point]) -> usize {
    let count = ring.len();
    let (mut first, mut second, mut matched) = (0, 1, 0);
    while first < count && second < count && matched < count {
        let a = ring[(first + matched) % count];
        let b = ring[(second + matched) % count];
        match a.cmp(&b) {
            Ordering::Equal => matched += 1,
            Ordering::Greater => {
                first = (first + matched + 1).max(second);
                std::mem::swap(&mut first, &mut second);
                matched = 0;
            }
            Ordering::Less => {
                second += matched + 1;
                matched = 0;
            }
        }
        if first == second {
            second += 1;
        }
    }
    first.min(second)
}

/// Copies `from` into `out` with holes, parts and members in the order of the specification.
fn sort(from: &Shape<i64>, rules: Rules, out: &mut Shape<i64>) {
    let members: Vec<Vec<Vec<&[Point]>>> = from
        .members()
        .map(|member| {
            let mut parts: Vec<Vec<&[Point]>> = member
                .parts()
                .map(|part| {
                    let mut paths: Vec<&[Point]> = part.paths().collect();
                    if paths.len() > 2 {
                        paths[1..].sort_unstable();
                    }
                    paths
                })
                .collect();
            if rules.parts == Parts::Sorted {
                parts.sort_unstable();
            }
            parts
        })
        .collect();
    let mut order: Vec<usize> = (0..members.len()).collect();
    if rules.parts == Parts::Sorted {
        order.sort_by(|&a, &b| {
            from.members[a].kind.cmp(&from.members[b].kind).then_with(|| members[a].cmp(&members[b]))
        });
    }
    out.clear();
    out.collection = from.collection;
    out.has_z = from.has_z;
    for index in order {
        for part in &members[index] {
            for path in part {
                out.positions.extend_from_slice(path);
                out.end_path();
            }
            out.end_part();
        }
        out.end_member(from.members[index].kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(numbers: &[(i64, i64)]) -> Vec<Point> {
        numbers.iter().map(|&(x, y)| [x, y, 0]).collect()
    }

    #[test]
    fn the_least_rotation_is_the_least_of_all_rotations() {
        let mut state = 7u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let count = 1 + (state >> 33) as usize % 9;
            let ring: Vec<Point> = (0..count).map(|i| [((state >> (35 + i)) & 1).cast_signed(), 0, 0]).collect();
            let least = least_rotation(&ring);
            let rotated = |k: usize| -> Vec<Point> { [&ring[k..], &ring[..k]].concat() };
            let best = (0..count).map(rotated).min().unwrap();
            assert_eq!(rotated(least), best, "{ring:?}");
        }
    }

    #[test]
    fn a_ring_has_one_form_whatever_its_start_direction_and_repeats() {
        let ring = points(&[(0, 0), (4, 0), (4, 3), (2, 1), (0, 0), (-1, 5)]);
        let form = |open: &[Point]| {
            let mut out = Shape::new();
            super::ring(open, true, &mut Vec::new(), &mut out);
            out.positions
        };
        let expected = form(&ring);
        for start in 0..ring.len() {
            let mut variant = [&ring[start..], &ring[..start]].concat();
            assert_eq!(form(&variant), expected);
            variant.insert(2, variant[2]);
            variant.push(variant[0]);
            assert_eq!(form(&variant), expected);
            variant.reverse();
            assert_eq!(form(&variant), expected);
        }
    }

    #[test]
    fn a_collapsed_ring_keeps_what_is_left() {
        let mut out = Shape::new();
        assert!(!ring(&points(&[(1, 1), (1, 1), (1, 1)]), true, &mut Vec::new(), &mut out));
        assert_eq!(out.positions, points(&[(1, 1), (1, 1)]));
    }
}
