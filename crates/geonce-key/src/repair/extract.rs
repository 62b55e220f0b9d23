//! Valid polygons from the directed edges that bound a region, whatever rings the edges came in.
//!
//! The result depends on the region only: rings start at their smallest vertex, exterior rings run against the clock
//! and holes with it, holes and polygons are sorted.

use super::region::Contour;
use crate::validity::linework::Builder;
use crate::validity::predicate::{Point, area_doubled, in_sector};
use crate::validity::tree::{Stop, Work};

/// A polygon: exterior ring, then holes.
pub(super) type Polygon = Vec<Contour>;

/// The polygons bounded by the contours' edges, each edge with the region on its left.
pub(super) fn polygons(contours: &[Contour], work: &mut Work) -> Result<Vec<Polygon>, Stop> {
    let edges = edges(contours);
    work.spend(4 * edges.len())?;
    let mut shells = Vec::new();
    let mut holes = Vec::new();
    for ring in trace(&edges) {
        match area_doubled(&ring).signum() {
            1 => shells.push(from_smallest(ring)),
            -1 => holes.push(from_smallest(ring)),
            _ => {}
        }
    }
    nest(shells, &holes, work)
}

/// The ring, turned round where it runs with the clock.
pub(super) fn counterclockwise(mut ring: Contour) -> Contour {
    if area_doubled(&ring) < 0 {
        ring.reverse();
    }
    ring
}

fn from_smallest(mut ring: Contour) -> Contour {
    let smallest = ring.iter().enumerate().min_by_key(|&(_, p)| *p).map_or(0, |(i, _)| i);
    ring.rotate_left(smallest);
    ring
}

/// The directed edges, sorted, without those that another runs back along; at most one of a kind.
fn edges(contours: &[Contour]) -> Vec<(Point, Point)> {
    let pairs =
        contours.iter().flat_map(|contour| (0..contour.len()).map(|i| (contour[i], contour[(i + 1) % contour.len()])));
    let mut edges = net(pairs);
    edges.dedup();
    edges
}

/// What is left, sorted, when edges that run back along each other are taken away in pairs.
fn net(edges: impl Iterator<Item = (Point, Point)>) -> Vec<(Point, Point)> {
    let mut all: Vec<(Point, Point, i32)> =
        edges.filter(|(a, b)| a != b).map(|(a, b)| if a < b { (a, b, 1) } else { (b, a, -1) }).collect();
    all.sort_unstable();
    let mut left = Vec::with_capacity(all.len());
    for same in all.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        let (a, b, _) = same[0];
        let count: i32 = same.iter().map(|edge| edge.2).sum();
        let edge = if count > 0 { (a, b) } else { (b, a) };
        left.extend(std::iter::repeat_n(edge, count.unsigned_abs() as usize));
    }
    left.sort_unstable();
    left
}

/// Closed walks over the same edges as a ring's, less those that it retraces. The edges must be cut wherever a vertex
/// of the ring lies on them, so that stretches which overlap are equal edges. No walk turns straight back.
///
/// The engine drops vertices at which a path turns back, and which ones depends on where the path starts.
pub(super) fn without_retraced(ring: impl Iterator<Item = (Point, Point)>) -> Vec<Contour> {
    let edges = net(ring);
    let mut used = vec![false; edges.len()];
    let mut walks = Vec::new();
    for start in 0..edges.len() {
        let mut walk = Vec::new();
        let mut at = start;
        while !used[at] {
            used[at] = true;
            walk.push(edges[at].0);
            let (_, p) = edges[at];
            let first = edges.partition_point(|edge| edge.0 < p);
            let mut outgoing = (first..edges.len()).take_while(|&i| edges[i].0 == p);
            at = outgoing.find(|&i| !used[i]).unwrap_or(start);
            if p == edges[start].0 {
                break;
            }
        }
        if walk.len() >= 3 {
            walks.push(walk);
        }
    }
    walks
}

/// Follows the edges round the region, and takes walks apart where they come to a vertex twice.
fn trace(edges: &[(Point, Point)]) -> Vec<Contour> {
    let mut used = vec![false; edges.len()];
    let mut rings = Vec::new();
    for start in 0..edges.len() {
        let mut walk: Vec<Point> = Vec::new();
        let mut at = start;
        while !used[at] {
            used[at] = true;
            walk.push(edges[at].0);
            let Some(next) = turn(edges, edges[at]) else { break };
            at = next;
        }
        split(&walk, &mut rings);
    }
    rings
}

/// The edge to follow after `from`: the first one clockwise from the way back, which keeps to the same interior.
fn turn(edges: &[(Point, Point)], from: (Point, Point)) -> Option<usize> {
    let (back, p) = from;
    let first = edges.partition_point(|edge| edge.0 < p);
    let mut best: Option<usize> = None;
    for (i, edge) in edges.iter().enumerate().skip(first).take_while(|(_, edge)| edge.0 == p) {
        if best.is_none_or(|best| in_sector(p, edges[best].1, back, edge.1)) {
            best = Some(i);
        }
    }
    best
}

/// Cuts a closed walk into rings that visit no vertex twice.
fn split(walk: &[Point], rings: &mut Vec<Contour>) {
    let mut repeated: Vec<Point> = walk.to_vec();
    repeated.sort_unstable();
    let repeated: Vec<Point> = repeated.chunk_by(|a, b| a == b).filter(|c| c.len() > 1).map(|c| c[0]).collect();
    if repeated.is_empty() {
        if walk.len() >= 3 {
            rings.push(walk.to_vec());
        }
        return;
    }
    let mut path: Vec<Point> = Vec::new();
    let mut place: Vec<Option<usize>> = vec![None; repeated.len()];
    for &p in walk {
        if let Ok(k) = repeated.binary_search(&p) {
            if let Some(from) = place[k] {
                let ring = path.split_off(from);
                for q in &ring {
                    if let Ok(k) = repeated.binary_search(q) {
                        place[k] = None;
                    }
                }
                if ring.len() >= 3 {
                    rings.push(ring);
                }
            }
            place[k] = Some(path.len());
        }
        path.push(p);
    }
    if path.len() >= 3 {
        rings.push(path);
    }
}

/// Gives every hole to the smallest exterior ring that holds it.
fn nest(shells: Vec<Contour>, holes: &[Contour], work: &mut Work) -> Result<Vec<Polygon>, Stop> {
    let mut builder = Builder::default();
    for (index, rings) in [shells.as_slice(), holes].into_iter().enumerate() {
        for (r, ring) in rings.iter().enumerate() {
            builder.add(r, index, ring.iter().copied());
        }
    }
    let lines = builder.build();
    let mut polygons: Vec<Polygon> = shells.into_iter().map(|shell| vec![shell]).collect();
    for (h, hole) in lines.rings.iter().enumerate().filter(|(_, ring)| ring.index == 1) {
        let mut smallest: Option<(i128, usize)> = None;
        lines.around(work, h, |work, s| {
            let shell = &lines.rings[s];
            if shell.index == 0
                && smallest.is_none_or(|(area, _)| shell.area_doubled < area)
                && lines.ring_holds(work, s, h)?
            {
                smallest = Some((shell.area_doubled, shell.part));
            }
            Ok(())
        })?;
        // A hole that no exterior ring holds cannot come from a region; leaving it out would go unnoticed.
        let (_, shell) = smallest.ok_or(Stop::Enough)?;
        polygons[shell].push(holes[hole.part].clone());
    }
    for polygon in &mut polygons {
        polygon[1..].sort_unstable();
    }
    polygons.sort_unstable();
    Ok(polygons)
}
