//! From delivered numbers to the integer grid: `g1` points 2 to 4, and the checks that need the grid.
//!
//! All input forms meet here. Rounding comes before bounds, and before rings are asked whether they are closed.

use crate::crs::Crs;
use crate::decimal::{Decimal, POW10};
use crate::geojson::Ordinates;
use crate::json::{Node, Tag, Value};
use crate::policy::{Dimensions, Policy};
use crate::shape::{Kind, Position, Shape};
use crate::{Code, Error, Result};

/// An ordinate whose two roundings differ.
#[derive(Clone, Copy, Debug)]
struct Tie {
    position: u32,
    axis: u8,
    safe: i64,
}

/// Grid values are written with at most 15 digits, which doubles and other languages' numbers hold exactly.
const ELEVATION_BOUND: i64 = POW10[15].cast_signed() - 1;

/// Puts numbers on the grid and remembers where the tie-safe grid differs.
pub(crate) struct Gridder {
    places: [u8; 3],
    bounds: [i64; 3],
    drops_z: bool,
    ties: Vec<Tie>,
    /// Whether any number was not on the grid already.
    inexact: bool,
}

impl Gridder {
    pub(crate) fn new(policy: &Policy) -> Gridder {
        let unit = POW10[usize::from(policy.precision)].cast_signed();
        Gridder {
            places: [policy.precision, policy.precision, policy.precision_z],
            bounds: [180 * unit, 90 * unit, ELEVATION_BOUND],
            drops_z: policy.dimensions == Dimensions::Two,
            ties: Vec::new(),
            inexact: false,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.ties.clear();
        self.inexact = false;
    }

    fn ordinate(&mut self, decimal: Decimal, position: usize, axis: usize) -> Result<i64> {
        let rounded = decimal.round(self.places[axis]);
        if rounded.even.abs() > self.bounds[axis] {
            return Err(out_of_bounds(decimal, axis));
        }
        self.inexact |= !rounded.exact;
        if rounded.even != rounded.safe {
            #[expect(clippy::cast_possible_truncation, reason = "axes are 0 to 2; positions are bounded by Limits")]
            self.ties.push(Tie { position: position as u32, axis: axis as u8, safe: rounded.safe });
        }
        Ok(rounded.even)
    }

    /// Any number of a position that is not on the grid already.
    #[inline(never)]
    fn round(&mut self, node: &Node, position: usize, axis: usize) -> Result<i64> {
        let Some(decimal) = node.decimal() else { return Err(not_a_number(node.tag, axis)) };
        self.ordinate(decimal, position, axis).map_err(|e| e.under(&format!("/{axis}")))
    }

    /// Puts a delivered shape on the grid, through `crs` where it needs a transformation.
    pub(crate) fn shape(&mut self, delivered: &Shape<f64>, crs: Option<&Crs>, out: &mut Shape<i64>) -> Result<()> {
        out.clear();
        out.collection = delivered.collection;
        out.has_z = delivered.has_z && !self.drops_z;
        out.members.extend_from_slice(&delivered.members);
        out.parts.extend_from_slice(&delivered.parts);
        out.paths.extend_from_slice(&delivered.paths);
        for (i, position) in delivered.positions.iter().enumerate() {
            let on_grid = self.position(position, i, crs, out.has_z);
            out.positions.push(on_grid.map_err(|e| e.under(&position_pointer(delivered, i)))?);
        }
        Ok(())
    }

    fn position(&mut self, at: &Position<f64>, i: usize, crs: Option<&Crs>, has_z: bool) -> Result<Position<i64>> {
        let [x, y, z] = *at;
        let (x, y) = match crs {
            None => (x, y),
            Some(crs) => crs.to_wgs84(x, y).ok_or_else(|| {
                let message = format!("({x}, {y}) is outside the domain of {}", crs.name());
                Error::new(Code::CrsDomain, "", message).hint("is the declared coordinate system the right one?")
            })?,
        };
        let under = |axis: usize| move |error: Error| error.under(&format!("/{axis}"));
        Ok([
            self.ordinate(Decimal::shortest(x), i, 0).map_err(under(0))?,
            self.ordinate(Decimal::shortest(y), i, 1).map_err(under(1))?,
            if has_z { self.ordinate(Decimal::shortest(z), i, 2).map_err(under(2))? } else { 0 },
        ])
    }

    /// Whether the shape has an alias: digits were discarded, so that drift may put it into another cell. A shape
    /// whose two grids agree needs one too, to be found by one whose grids do not.
    pub(crate) fn has_alias(&self) -> bool {
        self.inexact
    }

    /// Moves `shape` from the half-even grid to the tie-safe one.
    pub(crate) fn make_safe(&self, shape: &mut Shape<i64>) {
        for tie in &self.ties {
            shape.positions[tie.position as usize][usize::from(tie.axis)] = tie.safe;
        }
    }

    /// Whether two positions are the same on the tie-safe grid.
    fn equal_when_safe(&self, shape: &Shape<i64>, a: usize, b: usize) -> bool {
        let safe = |index: usize| {
            let mut position = shape.positions[index];
            let first = self.ties.partition_point(|tie| (tie.position as usize) < index);
            for tie in self.ties[first..].iter().take_while(|tie| tie.position as usize == index) {
                position[usize::from(tie.axis)] = tie.safe;
            }
            position
        };
        safe(a) == safe(b)
    }

    /// Checks counts and closure of paths. Returns the rings that policy lets us close, by path index.
    pub(crate) fn check_paths(&self, shape: &Shape<i64>, close_rings: bool) -> Result<Vec<u32>> {
        let mut unclosed = Vec::new();
        let mut start = 0;
        for member in shape.members() {
            let kind = member.kind.part();
            for index in member.parts().flat_map(crate::shape::PartRef::path_indices) {
                let end = shape.paths[index] as usize;
                let count = end - start;
                let refuse = |code, message: String| Err(Error::new(code, path_pointer(shape, index), message));
                match kind {
                    Kind::LineString if count < 2 => {
                        return refuse(Code::GeojsonLineShort, "a line has at least two positions".to_owned());
                    }
                    Kind::Point | Kind::LineString => {}
                    _ => {
                        let closed = count > 1
                            && (shape.positions[start] == shape.positions[end - 1]
                                || self.equal_when_safe(shape, start, end - 1));
                        if count + usize::from(close_rings && !closed) < 4 {
                            let message = format!("a ring has at least four positions, this one {count}");
                            return refuse(Code::GeojsonRingShort, message);
                        }
                        if !closed && !close_rings {
                            return Err(unclosed_ring(path_pointer(shape, index)));
                        }
                        if !closed {
                            #[expect(clippy::cast_possible_truncation, reason = "paths are bounded by Limits")]
                            unclosed.push(index as u32);
                        }
                    }
                }
                start = end;
            }
        }
        Ok(unclosed)
    }
}

impl Shape<f64> {
    /// The shape on the grid of so many decimals. What is no longitude or latitude is refused.
    pub fn to_grid(&self, precision: u8, precision_z: u8) -> Result<Shape<i64>> {
        let policy = Policy { precision, precision_z, ..Policy::default() };
        policy.check()?;
        let mut out = Shape::new();
        Gridder::new(&policy).shape(self, None, &mut out)?;
        Ok(out)
    }
}

impl Ordinates for Gridder {
    type Number = i64;

    fn drops_z(&self) -> bool {
        self.drops_z
    }

    #[expect(clippy::inline_always, reason = "called for every ordinate; a call costs more than the usual case")]
    #[inline(always)]
    fn read(&mut self, value: Value<'_>, position: usize, axis: usize) -> Result<i64> {
        let node = value.node();
        if let Some(on_grid) = node.on_grid(self.places[axis])
            && on_grid.abs() <= self.bounds[axis]
        {
            return Ok(on_grid);
        }
        self.round(node, position, axis)
    }
}

/// Reads numbers as doubles, for shapes that are transformed before they reach the grid.
pub(crate) struct Doubles {
    pub(crate) drops_z: bool,
}

impl Ordinates for Doubles {
    type Number = f64;

    fn drops_z(&self) -> bool {
        self.drops_z
    }

    fn read(&mut self, value: Value<'_>, _position: usize, axis: usize) -> Result<f64> {
        value.as_f64().ok_or_else(|| not_a_number(value.tag(), axis))
    }
}

#[cold]
pub(crate) fn not_a_number(found: Tag, axis: usize) -> Error {
    // An array here means coordinates nested as another type nests them.
    let code = if found == Tag::Array { Code::GeojsonCoordinates } else { Code::GeojsonPosition };
    Error::new(code, format!("/{axis}"), "a position is made of numbers")
}

#[cold]
fn out_of_bounds(decimal: Decimal, axis: usize) -> Error {
    let mut text = Vec::new();
    decimal.write(&mut text);
    let value = String::from_utf8_lossy(&text);
    match axis {
        0 => Error::new(Code::GeojsonBounds, "", format!("longitude {value} is outside -180 to 180"))
            .hint("is this another coordinate system? declare it: crs = \"EPSG:…\""),
        1 => Error::new(Code::GeojsonBounds, "", format!("latitude {value} is outside -90 to 90"))
            .hint("GeoJSON positions are longitude first; if the axes are swapped, the sender must mend it"),
        _ => Error::new(Code::GeojsonElevation, "", format!("the third number {value} is too large for the grid")),
    }
}

fn unclosed_ring(pointer: String) -> Error {
    Error::new(Code::GeojsonRingUnclosed, pointer, "the ring's last position is not its first")
        .hint("close_rings = true closes such rings")
}

/// The pointer of a path inside its geometry. Members of collections are numbered as flattened.
pub(crate) fn path_pointer(shape: &Shape<impl Copy>, index: usize) -> String {
    for (m, member) in shape.members().enumerate() {
        for (p, part) in member.parts().enumerate() {
            let paths = part.path_indices();
            if !paths.contains(&index) {
                continue;
            }
            let within = if shape.collection { format!("/geometries/{m}") } else { String::new() };
            let part = if member.kind.is_multi() { format!("/{p}") } else { String::new() };
            let is_ring = member.kind.part() == Kind::Polygon;
            let ring = if is_ring { format!("/{}", index - paths.start) } else { String::new() };
            return format!("{within}/coordinates{part}{ring}");
        }
    }
    String::new()
}

pub(crate) fn position_pointer(shape: &Shape<f64>, position: usize) -> String {
    let path = shape.paths.partition_point(|&end| end as usize <= position);
    let start = if path == 0 { 0 } else { shape.paths[path - 1] as usize };
    let pointer = path_pointer(shape, path);
    let is_point = shape.members().any(|member| {
        member.kind.part() == Kind::Point && member.parts().any(|part| part.path_indices().contains(&path))
    });
    if is_point { pointer } else { format!("{pointer}/{}", position - start) }
}
