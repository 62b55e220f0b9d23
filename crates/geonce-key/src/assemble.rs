//! Polygons from rings that arrive without nesting (Shapefile, Esri JSON): `g1`, point 15, `docs/assembly.md`.
//!
//! The result depends neither on the order of the rings nor on where a ring starts, as far as a set of polygons
//! is concerned; all tests are exact on integers. Nothing is dropped, repaired or re-oriented.

mod contain;

use crate::canonical;
use crate::shape::{Kind, Position, Shape};
use crate::{Code, Error, Limits, Result};
use contain::{Edges, Probe};

/// Ordinates are at most this far from zero, so that doubled coordinates multiply exactly in 128 bits.
const ORDINATE_MAX: u64 = 1 << 52;

/// Nests closed grid rings into a `Polygon` (one shell) or a `MultiPolygon`.
///
/// A pointer in a refusal is the ring's index in `rings`.
pub fn assemble(rings: &[&[Position<i64>]], has_z: bool, limits: &Limits) -> Result<Shape<i64>> {
    Ok(shape(rings, &nest(rings, limits)?, has_z))
}

/// For each closed ring the index of the shell that holds it; shells, and holes without a shell, hold themselves.
pub fn nest(rings: &[&[Position<i64>]], limits: &Limits) -> Result<Vec<usize>> {
    check(rings, limits)?;
    let facts: Vec<Facts> = rings.iter().map(|ring| Facts::of(ring)).collect();
    Nesting::new(rings, &facts, limits).owners()
}

fn check(rings: &[&[Position<i64>]], limits: &Limits) -> Result<()> {
    if rings.is_empty() {
        return Err(Error::new(Code::GeojsonEmpty, "", "no rings"));
    }
    if rings.len() > limits.rings_max {
        return Err(Error::new(Code::LimitRings, "", format!("more than {} rings", limits.rings_max)));
    }
    if rings.iter().map(|ring| ring.len()).sum::<usize>() > limits.positions_max {
        return Err(Error::new(Code::LimitPositions, "", format!("more than {} positions", limits.positions_max)));
    }
    for (i, ring) in rings.iter().enumerate() {
        let (Some(first), Some(last)) = (ring.first(), ring.last()) else {
            return Err(Error::new(Code::GeojsonEmpty, format!("/{i}"), "a ring without positions"));
        };
        if first[..2] != last[..2] {
            return Err(Error::new(Code::GeojsonRingUnclosed, format!("/{i}"), "a ring that is not closed"));
        }
        if ring.iter().any(|p| p[0].unsigned_abs() > ORDINATE_MAX || p[1].unsigned_abs() > ORDINATE_MAX) {
            return Err(Error::new(Code::GeojsonBounds, format!("/{i}"), "an ordinate beyond 2^52 grid steps"));
        }
    }
    Ok(())
}

/// What a ring is, before it is nested.
struct Facts {
    /// Twice the signed area: negative for shells.
    area: i128,
    low: [i64; 2],
    high: [i64; 2],
}

impl Facts {
    fn of(ring: &[Position<i64>]) -> Facts {
        let mut facts = Facts { area: area(ring), low: [i64::MAX; 2], high: [i64::MIN; 2] };
        for position in ring {
            for (axis, &ordinate) in position.iter().take(2).enumerate() {
                facts.low[axis] = facts.low[axis].min(ordinate);
                facts.high[axis] = facts.high[axis].max(ordinate);
            }
        }
        facts
    }

    fn is_hole(&self) -> bool {
        self.area > 0
    }

    fn covers(&self, other: &Facts) -> bool {
        (0..2).all(|axis| self.low[axis] <= other.low[axis] && other.high[axis] <= self.high[axis])
    }
}

/// Twice the signed area in the x/y plane, counter-clockwise positive.
fn area(ring: &[Position<i64>]) -> i128 {
    let Some(origin) = ring.first() else { return 0 };
    let from_origin = |p: &Position<i64>| (i128::from(p[0] - origin[0]), i128::from(p[1] - origin[1]));
    ring.windows(2).fold(0_i128, |sum, pair| {
        let ((ax, ay), (bx, by)) = (from_origin(&pair[0]), from_origin(&pair[1]));
        sum.saturating_add(ax * by - bx * ay)
    })
}

/// The search for each hole's shell.
struct Nesting<'a> {
    rings: &'a [&'a [Position<i64>]],
    facts: &'a [Facts],
    /// For each ring that can hold holes, its place in the order "smallest first".
    ranks: Vec<usize>,
    /// Edges of the shells that were asked about.
    edges: Vec<Option<Edges>>,
    work: u64,
}

impl<'a> Nesting<'a> {
    fn new(rings: &'a [&'a [Position<i64>]], facts: &'a [Facts], limits: &Limits) -> Self {
        let edges = rings.iter().map(|_| None).collect();
        Nesting { rings, facts, ranks: ranks(rings, facts), edges, work: limits.work_max }
    }

    /// For each ring the shell that holds it; shells and orphans hold themselves.
    fn owners(&mut self) -> Result<Vec<usize>> {
        let mut owners: Vec<usize> = (0..self.rings.len()).collect();
        let by_low_x = |keep: &dyn Fn(&Facts) -> bool| {
            let mut chosen: Vec<usize> = owners.iter().copied().filter(|&i| keep(&self.facts[i])).collect();
            chosen.sort_by_key(|&i| self.facts[i].low[0]);
            chosen
        };
        let holes = by_low_x(&Facts::is_hole);
        let mut shells = by_low_x(&|facts| facts.area < 0).into_iter().peekable();
        // A sweep along x keeps the shells at hand few: an archipelago has thousands, but not above each other.
        let mut open: Vec<usize> = Vec::new();
        for hole in holes {
            let x = self.facts[hole].low[0];
            while let Some(shell) = shells.next_if(|&shell| self.facts[shell].low[0] <= x) {
                open.push(shell);
            }
            open.retain(|&shell| self.facts[shell].high[0] >= x);
            self.spend(open.len())?;
            let around = open.iter().copied().filter(|&shell| self.facts[shell].covers(&self.facts[hole]));
            if let Some(owner) = self.smallest_around(hole, around.collect())? {
                owners[hole] = owner;
            }
        }
        Ok(owners)
    }

    fn smallest_around(&mut self, hole: usize, mut shells: Vec<usize>) -> Result<Option<usize>> {
        if shells.is_empty() {
            return Ok(None);
        }
        shells.sort_by_key(|&shell| self.ranks[shell]);
        self.spend(self.rings[hole].len())?;
        let probe = Probe::of(self.rings[hole]);
        for shell in shells {
            if self.edges[shell].is_none() {
                self.spend(self.rings[shell].len())?;
            }
            let edges = self.edges[shell].get_or_insert_with(|| Edges::of(self.rings[shell]));
            if probe.is_inside(edges, &mut self.work)? {
                return Ok(Some(shell));
            }
        }
        Ok(None)
    }

    fn spend(&mut self, steps: usize) -> Result<()> {
        contain::spend(&mut self.work, steps)
    }
}

/// Ranks rings by area, equal ones by their open least rotation, so that neither the order of the rings nor
/// their starts decide.
fn ranks(rings: &[&[Position<i64>]], facts: &[Facts]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rings.len()).collect();
    order.sort_by_key(|&i| facts[i].area.unsigned_abs());
    for tied in order.chunk_by_mut(|&a, &b| facts[a].area.unsigned_abs() == facts[b].area.unsigned_abs()) {
        if tied.len() > 1 {
            tied.sort_by_cached_key(|&i| least_ring(rings[i]));
        }
    }
    let mut ranks = vec![0; rings.len()];
    for (rank, ring) in order.into_iter().enumerate() {
        ranks[ring] = rank;
    }
    ranks
}

/// The open ring without repeated positions, started where it compares smallest.
fn least_ring(ring: &[Position<i64>]) -> Vec<Position<i64>> {
    let mut open = ring.to_vec();
    open.dedup();
    while open.len() > 1 && open.first() == open.last() {
        open.pop();
    }
    let first = canonical::least_rotation(&open);
    open.rotate_left(first);
    open
}

/// Parts in the order of their shells, holes of a part in the order of the input.
fn shape(rings: &[&[Position<i64>]], owners: &[usize], has_z: bool) -> Shape<i64> {
    let mut holes: Vec<(usize, usize)> =
        owners.iter().enumerate().filter(|(ring, owner)| ring != *owner).map(|(ring, &owner)| (owner, ring)).collect();
    holes.sort_unstable();
    let mut holes = holes.into_iter().peekable();
    let mut shape = Shape { has_z, ..Shape::new() };
    for (shell, _) in owners.iter().enumerate().filter(|(ring, owner)| ring == *owner) {
        shape.positions.extend_from_slice(rings[shell]);
        shape.end_path();
        while let Some((_, hole)) = holes.next_if(|&(owner, _)| owner == shell) {
            shape.positions.extend_from_slice(rings[hole]);
            shape.end_path();
        }
        shape.end_part();
    }
    shape.end_member(if shape.parts.len() == 1 { Kind::Polygon } else { Kind::MultiPolygon });
    shape
}

#[cfg(test)]
mod tests;
