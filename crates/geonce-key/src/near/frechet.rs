//! The discrete Fréchet distance of two lines: the shortest leash for two walkers who go from vertex to vertex.
//!
//! Dynamic programming row by row. Only places that the threshold lets both walkers reach are looked at, so two long
//! lines that are near each other cost about as many steps as they have vertices.

use super::pair::Found;
use super::space::{Spot, squared};
use crate::validity::tree::Work;

/// The distance of two lines, in either direction of the second where `undirected`.
pub(super) fn lines(a: &[Spot], b: &[Spot], limit: f64, undirected: bool, work: &mut Work) -> Found {
    let forth = walk(a, b, limit, work)?;
    if !undirected {
        return Ok(forth);
    }
    let reversed: Vec<Spot> = b.iter().rev().copied().collect();
    let back = walk(a, &reversed, forth.unwrap_or(limit), work)?;
    Ok(back.or(forth))
}

fn walk(a: &[Spot], b: &[Spot], limit: f64, work: &mut Work) -> Found {
    let bound = limit * limit;
    let [Some(from), Some(from_b), Some(to), Some(to_b)] = [a.first(), b.first(), a.last(), b.last()] else {
        return Ok(None);
    };
    if squared(from, from_b) > bound || squared(to, to_b) > bound {
        return Ok(None);
    }
    // The shortest leash with which the walkers can stand at vertex i of `a` and each vertex of `b`.
    let mut before = vec![f64::INFINITY; b.len()];
    let mut here = vec![f64::INFINITY; b.len()];
    // Which part of `before` is finite.
    let (mut low, mut high) = (0, 0);
    for (i, at) in a.iter().enumerate() {
        let mut reached: Option<(usize, usize)> = None;
        let mut j = low;
        let mut last = f64::INFINITY;
        let mut diagonal = f64::INFINITY;
        while j < b.len() {
            let start = i == 0 && j == 0;
            let below = if i > 0 && j <= high { before[j] } else { f64::INFINITY };
            let came = if start { 0.0 } else { below.min(diagonal).min(last) };
            diagonal = below;
            let leash = came.max(squared(at, &b[j]));
            here[j] = if leash <= bound { leash } else { f64::INFINITY };
            last = here[j];
            if last.is_finite() {
                reached = Some((reached.map_or(j, |(first, _)| first), j));
            }
            j += 1;
            // Beyond what the row before reached, the way only leads on from the vertex before.
            if last.is_infinite() && (i == 0 || j > high + 1) {
                break;
            }
        }
        work.spend(1 + j - low)?;
        let Some((first, end)) = reached else { return Ok(None) };
        // Nothing of older rows may be taken for this one.
        for stale in before.iter_mut().take(j.max(high + 1).min(b.len())).skip(low) {
            *stale = f64::INFINITY;
        }
        std::mem::swap(&mut before, &mut here);
        (low, high) = (first, end);
    }
    let leash = before[b.len() - 1];
    Ok(leash.is_finite().then(|| libm::sqrt(leash)))
}
