//! Which member, part and hole of one geometry belongs to which of another, for measures that compare path by path.
//!
//! Canonical order answers that mostly, but noise changes it: rings start elsewhere, parts and holes change places. So
//! what is not near to its namesake is tried against whatever is left over, nearest first. Where things lie closer to
//! each other than the threshold, a pairing may be missed: the answer is then "apart", never a pair too many.

use super::space::{Placed, Spot};
use super::{Measure, Rule, frechet, vertex};
use crate::shape::{Kind, MemberRef, PartRef, Shape};
use crate::validity::tree::{Stop, Work};

/// A distance, or none beyond the threshold.
pub(super) type Found = Result<Option<f64>, Stop>;

/// Steps to bring one position into space.
const STEPS_PER_POSITION: usize = 8;

/// The largest distance of paths that belong together.
pub(super) fn distance(a: &Shape<i64>, b: &Shape<i64>, rule: &Rule, work: &mut Work) -> Found {
    let counts = |shape: &Shape<i64>| (shape.members.len(), shape.parts.len(), shape.paths.len());
    let same_vertices = rule.measure == Measure::Frechet || a.positions.len() == b.positions.len();
    if counts(a) != counts(b) || !same_vertices {
        return Ok(None);
    }
    work.spend(STEPS_PER_POSITION * (a.positions.len() + b.positions.len()))?;
    let pairing = Pairing { a: &Placed::new(a), b: &Placed::new(b), rule };
    pairing.members(work)
}

struct Pairing<'a> {
    a: &'a Placed<'a>,
    b: &'a Placed<'a>,
    rule: &'a Rule,
}

impl Pairing<'_> {
    fn members(&self, work: &mut Work) -> Found {
        let ours: Vec<MemberRef<'_, i64>> = self.a.shape.members().collect();
        let theirs: Vec<MemberRef<'_, i64>> = self.b.shape.members().collect();
        let souths = |placed: &Placed<'_>, members: &[MemberRef<'_, i64>]| -> Vec<f64> {
            members
                .iter()
                .map(|member| {
                    let paths = member.parts().flat_map(PartRef::path_indices);
                    paths.map(|path| placed.south(path)).fold(f64::INFINITY, f64::min)
                })
                .collect()
        };
        let (south, south_b) = (souths(self.a, &ours), souths(self.b, &theirs));
        self.each(&south, &south_b, work, |work, i, j| {
            if ours[i].kind == theirs[j].kind { self.parts(ours[i], theirs[j], work) } else { Ok(None) }
        })
    }

    fn parts(&self, a: MemberRef<'_, i64>, b: MemberRef<'_, i64>, work: &mut Work) -> Found {
        let ours: Vec<PartRef<'_, i64>> = a.parts().collect();
        let theirs: Vec<PartRef<'_, i64>> = b.parts().collect();
        let first = |part: &PartRef<'_, i64>| part.path_indices().start;
        let south: Vec<f64> = ours.iter().map(|part| self.a.south(first(part))).collect();
        let south_b: Vec<f64> = theirs.iter().map(|part| self.b.south(first(part))).collect();
        self.each(&south, &south_b, work, |work, i, j| self.part(a.kind.part(), ours[i], theirs[j], work))
    }

    fn part(&self, kind: Kind, a: PartRef<'_, i64>, b: PartRef<'_, i64>, work: &mut Work) -> Found {
        let (ours, theirs) = (a.path_indices(), b.path_indices());
        if ours.len() != theirs.len() {
            return Ok(None);
        }
        let Some(outer) = self.path(kind, ours.start, theirs.start, work)? else { return Ok(None) };
        if ours.len() == 1 {
            return Ok(Some(outer));
        }
        let (first, first_b) = (ours.start + 1, theirs.start + 1);
        let south: Vec<f64> = (first..ours.end).map(|path| self.a.south(path)).collect();
        let south_b: Vec<f64> = (first_b..theirs.end).map(|path| self.b.south(path)).collect();
        let holes = self.each(&south, &south_b, work, |work, i, j| self.path(kind, first + i, first_b + j, work))?;
        Ok(holes.map(|holes| outer.max(holes)))
    }

    fn path(&self, kind: Kind, a: usize, b: usize, work: &mut Work) -> Found {
        work.spend(1)?;
        if !self.a.boxes_near(a, self.b, b, self.rule.threshold) {
            return Ok(None);
        }
        let (ours, theirs): (&[Spot], &[Spot]) = (self.a.path(a), self.b.path(b));
        let limit = self.rule.threshold;
        match (kind, self.rule.measure) {
            (Kind::LineString, Measure::Frechet) => frechet::lines(ours, theirs, limit, self.rule.undirected, work),
            (Kind::LineString, _) => vertex::lines(ours, theirs, limit, self.rule.undirected, work),
            (Kind::Polygon, _) => vertex::rings(ours, theirs, limit, work),
            _ => vertex::lines(ours, theirs, limit, false, work),
        }
    }

    /// Pairs things by their place in the order, then those left over with the nearest thing left over. `south` tells
    /// how far to the south each of them reaches; things that belong together do not differ by more than the threshold.
    fn each(
        &self,
        south: &[f64],
        south_b: &[f64],
        work: &mut Work,
        mut measure: impl FnMut(&mut Work, usize, usize) -> Found,
    ) -> Found {
        let count = south.len();
        if count != south_b.len() {
            return Ok(None);
        }
        let mut taken = vec![false; count];
        let mut left = Vec::new();
        let mut largest: f64 = 0.0;
        for (i, taken) in taken.iter_mut().enumerate() {
            work.spend(1)?;
            match measure(work, i, i)? {
                Some(value) => {
                    *taken = true;
                    largest = largest.max(value);
                }
                // With one of each there is nothing else to try.
                None if count == 1 => return Ok(None),
                None => left.push(i),
            }
        }
        let mut order: Vec<usize> = (0..count).filter(|&j| !taken[j]).collect();
        order.sort_by(|&i, &j| south_b[i].total_cmp(&south_b[j]));
        for i in left {
            let limit = self.rule.threshold;
            let from = order.partition_point(|&j| south_b[j] < south[i] - limit);
            let mut best: Option<(f64, usize)> = None;
            for &j in order[from..].iter().take_while(|&&j| south_b[j] <= south[i] + limit) {
                work.spend(1)?;
                if taken[j] {
                    continue;
                }
                if let Some(value) = measure(work, i, j)?
                    && best.is_none_or(|(known, _)| value < known)
                {
                    best = Some((value, j));
                }
            }
            let Some((value, j)) = best else { return Ok(None) };
            taken[j] = true;
            largest = largest.max(value);
        }
        Ok(Some(largest))
    }
}
