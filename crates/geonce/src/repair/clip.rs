//! Cuts a shape off at the edges of a box, in degrees: points outside are dropped, lines are divided, rings are cut.
//!
//! Each ring is cut by itself, one edge after the other, so a ring that leaves the box and comes back may run along the
//! edge twice; the grid repair takes such stretches apart. New vertices get their height along the segment.

use geonce_key::shape::{Kind, Position, Shape};

/// What is left of a shape; `None` where that is nothing. Also how many positions were outside.
pub(super) fn clip(shape: &Shape<f64>, bounds: [f64; 4]) -> (Option<Shape<f64>>, usize) {
    let outside = shape.positions.iter().filter(|position| !within(position, bounds)).count();
    if outside == 0 {
        return (Some(shape.clone()), 0);
    }
    let mut out = Shape { collection: shape.collection, has_z: shape.has_z, ..Shape::new() };
    for member in shape.members() {
        let before = out.parts.len();
        for part in member.parts() {
            match member.kind.part() {
                Kind::Polygon => polygon(&mut out, part.paths(), bounds),
                Kind::LineString => part.paths().for_each(|path| lines(&mut out, path, bounds)),
                _ => points(&mut out, part.paths(), bounds),
            }
        }
        match out.parts.len() - before {
            0 => {}
            1 => out.end_member(member.kind),
            _ => out.end_member(member.kind.multi()),
        }
    }
    (if out.members.is_empty() { None } else { Some(out) }, outside)
}

fn within(position: &Position<f64>, [west, south, east, north]: [f64; 4]) -> bool {
    (west..=east).contains(&position[0]) && (south..=north).contains(&position[1])
}

fn points<'a>(out: &mut Shape<f64>, paths: impl Iterator<Item = &'a [Position<f64>]>, bounds: [f64; 4]) {
    for position in paths.flatten().filter(|position| within(position, bounds)) {
        out.positions.push(*position);
        out.end_path();
        out.end_part();
    }
}

/// An edge of the box: its axis, where it is, and whether what is beyond is greater.
type Edge = (usize, f64, bool);

fn edges([west, south, east, north]: [f64; 4]) -> [Edge; 4] {
    [(0, west, false), (0, east, true), (1, south, false), (1, north, true)]
}

fn is_inside(position: &Position<f64>, (axis, at, greater): Edge) -> bool {
    if greater { position[axis] <= at } else { position[axis] >= at }
}

/// Where a segment meets an edge; that number is the edge's exactly.
fn meet(a: &Position<f64>, b: &Position<f64>, (axis, at, _): Edge) -> Position<f64> {
    let share = (at - a[axis]) / (b[axis] - a[axis]);
    let mut met = [0, 1, 2].map(|i| a[i] + (b[i] - a[i]) * share);
    met[axis] = at;
    met
}

fn polygon<'a>(out: &mut Shape<f64>, rings: impl Iterator<Item = &'a [Position<f64>]>, bounds: [f64; 4]) {
    let before = out.paths.len();
    for (number, ring) in rings.enumerate() {
        let cut = cut_ring(ring, bounds);
        if cut.len() < 4 {
            if number == 0 {
                // Holes go with their exterior ring.
                return;
            }
            continue;
        }
        out.positions.extend(cut);
        out.end_path();
    }
    if out.paths.len() > before {
        out.end_part();
    }
}

/// A ring without what is beyond each edge, closed; empty where nothing is left.
fn cut_ring(ring: &[Position<f64>], bounds: [f64; 4]) -> Vec<Position<f64>> {
    let mut open: Vec<Position<f64>> = ring.to_vec();
    if open.len() > 1 && open.first() == open.last() {
        open.pop();
    }
    for edge in edges(bounds) {
        let mut kept = Vec::with_capacity(open.len() + 4);
        for (place, position) in open.iter().enumerate() {
            let previous = &open[(place + open.len() - 1) % open.len()];
            match (is_inside(previous, edge), is_inside(position, edge)) {
                (true, true) => kept.push(*position),
                (true, false) => kept.push(meet(previous, position, edge)),
                (false, true) => kept.extend([meet(previous, position, edge), *position]),
                (false, false) => {}
            }
        }
        open = kept;
    }
    open.dedup();
    if let Some(&first) = open.first() {
        open.push(first);
    }
    open
}

/// The stretches of a line that are inside, each a part.
fn lines(out: &mut Shape<f64>, path: &[Position<f64>], bounds: [f64; 4]) {
    let mut stretch: Vec<Position<f64>> = Vec::new();
    let mut end = |stretch: &mut Vec<Position<f64>>| {
        if stretch.len() > 1 {
            out.positions.append(stretch);
            out.end_path();
            out.end_part();
        }
        stretch.clear();
    };
    for segment in path.windows(2) {
        match cut_segment(segment[0], segment[1], bounds) {
            None => end(&mut stretch),
            Some((from, to)) => {
                if stretch.last() != Some(&from) {
                    end(&mut stretch);
                    stretch.push(from);
                }
                stretch.push(to);
            }
        }
    }
    end(&mut stretch);
}

fn cut_segment(mut a: Position<f64>, mut b: Position<f64>, bounds: [f64; 4]) -> Option<(Position<f64>, Position<f64>)> {
    for edge in edges(bounds) {
        match (is_inside(&a, edge), is_inside(&b, edge)) {
            (true, true) => {}
            (true, false) => b = meet(&a, &b, edge),
            (false, true) => a = meet(&a, &b, edge),
            (false, false) => return None,
        }
    }
    (a[..2] != b[..2]).then_some((a, b))
}

#[cfg(test)]
mod tests {
    use super::clip;
    use geonce_key::{Limits, wkt};

    #[test]
    fn what_is_outside_is_cut_off() {
        for (before, after) in [
            ("POINT (1 1)", Some("POINT (1 1)")),
            ("POINT (11 1)", None),
            ("MULTIPOINT ((1 1),(11 1),(2 2))", Some("MULTIPOINT ((1 1),(2 2))")),
            ("LINESTRING (-5 5,5 5,5 15)", Some("LINESTRING (0 5,5 5,5 10)")),
            ("LINESTRING (1 1,1 20,3 20,3 1)", Some("MULTILINESTRING ((1 1,1 10),(3 10,3 1))")),
            ("POLYGON ((5 5,15 5,15 8,5 8,5 5))", Some("POLYGON ((5 5,10 5,10 8,5 8,5 5))")),
            (
                "POLYGON ((-1 -1,11 -1,11 11,-1 11,-1 -1),(20 20,21 20,21 21,20 20))",
                Some("POLYGON ((0 0,10 0,10 10,0 10,0 0))"),
            ),
            ("POLYGON ((20 20,21 20,21 21,20 20))", None),
            ("GEOMETRYCOLLECTION (POINT (20 20),POINT (1 2))", Some("GEOMETRYCOLLECTION (POINT (1 2))")),
        ] {
            let read = |text: &str| wkt::read(text.as_bytes(), &Limits::default()).unwrap().shape;
            let (found, _) = clip(&read(before), [0.0, 0.0, 10.0, 10.0]);
            let area = |shape: &geonce_key::Shape<f64>| {
                let mut positions = shape.positions.clone();
                positions.sort_by(|a, b| a.partial_cmp(b).unwrap());
                positions.dedup();
                (shape.type_name(), shape.parts.len(), positions)
            };
            assert_eq!(found.as_ref().map(area), after.map(|after| area(&read(after))), "{before}");
        }
    }
}
