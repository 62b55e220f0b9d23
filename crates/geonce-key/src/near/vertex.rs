//! The largest displacement of a vertex: lines vertex by vertex, rings from every start that is near enough.

use super::pair::Found;
use super::space::{Spot, squared};
use crate::validity::tree::{Stop, Work};

/// The largest displacement between two lines with the same number of vertices.
pub(super) fn lines(a: &[Spot], b: &[Spot], limit: f64, undirected: bool, work: &mut Work) -> Found {
    if a.len() != b.len() {
        return Ok(None);
    }
    let bound = limit * limit;
    let forth = displacement(a, b.iter(), bound, work)?;
    let back = if undirected { displacement(a, b.iter().rev(), bound, work)? } else { None };
    Ok(match (forth, back) {
        (Some(forth), Some(back)) => Some(forth.min(back)),
        (forth, back) => forth.or(back),
    }
    .map(libm::sqrt))
}

/// The largest displacement between two closed rings with the same number of vertices, from the best pair of starts.
/// The direction counts for nothing, and is only canonical where the area is not about zero: both are tried.
pub(super) fn rings(a: &[Spot], b: &[Spot], limit: f64, work: &mut Work) -> Found {
    if a.len() != b.len() || a.is_empty() {
        return Ok(None);
    }
    let (a, b) = (&a[..a.len() - 1], &b[..b.len() - 1]);
    let forth = turned(a, b, limit * limit, false, work)?;
    let back = turned(a, b, forth.unwrap_or(limit * limit), true, work)?;
    Ok(back.or(forth).map(libm::sqrt))
}

/// The least of the largest squared displacements over all starts in `b`.
fn turned(a: &[Spot], b: &[Spot], limit: f64, backward: bool, work: &mut Work) -> Result<Option<f64>, Stop> {
    let Some(first) = a.first() else { return Ok(None) };
    let mut best = None;
    for start in 0..b.len() {
        work.spend(1)?;
        let bound = best.unwrap_or(limit);
        if squared(first, &b[start]) > bound {
            continue;
        }
        let found = if backward {
            displacement(a, b[..=start].iter().rev().chain(b[start + 1..].iter().rev()), bound, work)?
        } else {
            displacement(a, b[start..].iter().chain(&b[..start]), bound, work)?
        };
        best = found.or(best);
    }
    Ok(best)
}

/// The largest squared displacement; none as soon as it is more than `bound`.
fn displacement<'a>(a: &[Spot], b: impl Iterator<Item = &'a Spot>, bound: f64, work: &mut Work) -> Found {
    let mut largest: f64 = 0.0;
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        let here = squared(a, b);
        if here > bound {
            work.spend(i)?;
            return Ok(None);
        }
        largest = largest.max(here);
    }
    work.spend(a.len())?;
    Ok(Some(largest))
}
