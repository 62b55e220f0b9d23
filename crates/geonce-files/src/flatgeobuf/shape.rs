//! Geometries of FlatGeobuf: flat lists of ordinates, the ends of their paths, and parts.
//!
//! Every limit is checked before memory is taken. M values, empty geometries and curves are refused, as in WKB.

use super::buffer::{Damaged, Table};
use crate::value::{Fault, Read};
use geonce_key::{Code, Kind, Limits, Shape};

/// The number of the collections' type; those above are curves and surfaces.
pub(super) const COLLECTION: u8 = 7;
const MULTI_POLYGON: u8 = 6;

/// Reads one geometry. The layer's type holds unless it is zero; then each geometry has its own.
pub(super) fn read(table: &Table<'_>, layer_type: u8, limits: &Limits) -> Read<Shape<f64>> {
    let mut filler = Filler { shape: Shape::new(), has_z: None, limits };
    let number = if layer_type == 0 { table.byte(6)? } else { layer_type };
    filler.geometry(table, number, 0)?;
    let mut shape = filler.shape;
    shape.has_z = filler.has_z == Some(true);
    Ok(shape)
}

struct Filler<'a> {
    shape: Shape<f64>,
    has_z: Option<bool>,
    limits: &'a Limits,
}

fn refuse(code: Code, what: &str) -> Fault {
    Fault::new(code.as_str(), format!("geometry: {what}"))
}

impl Filler<'_> {
    fn geometry(&mut self, table: &Table<'_>, number: u8, depth: usize) -> Read<()> {
        let kind = match number {
            1 => Kind::Point,
            2 => Kind::LineString,
            3 => Kind::Polygon,
            4 => Kind::MultiPoint,
            5 => Kind::MultiLineString,
            MULTI_POLYGON => Kind::MultiPolygon,
            COLLECTION => return self.collection(table, depth),
            0 => return Err(refuse(Code::GeojsonType, "it has no type")),
            _ => {
                let what = "a type that GeoJSON does not have; convert curves to lines or polygons first";
                return Err(refuse(Code::GeojsonType, what));
            }
        };
        if kind == Kind::MultiPolygon {
            let before = self.shape.parts.len();
            for part in table.tables(7)?.iter() {
                self.paths(&part?, Kind::Polygon)?;
            }
            if self.shape.parts.len() == before {
                return Err(refuse(Code::GeojsonEmpty, "it is empty"));
            }
        } else {
            self.paths(table, kind)?;
        }
        let full = self.shape.members.len() >= self.limits.members_max;
        limit(full, Code::LimitMembers, self.limits.members_max, "members")?;
        self.shape.end_member(kind);
        Ok(())
    }

    /// Nested collections become one. Members may share their bytes, so a small file can ask for much: every member adds a
    /// position at least, which the limits end.
    fn collection(&mut self, table: &Table<'_>, depth: usize) -> Read<()> {
        if depth >= self.limits.depth_max {
            return Err(refuse(Code::LimitDepth, "collections nested too deeply"));
        }
        self.shape.collection = true;
        let before = self.shape.members.len();
        for member in table.tables(7)?.iter() {
            let member = member?;
            self.geometry(&member, member.byte(6)?, depth + 1)?;
        }
        if self.shape.members.len() == before {
            return Err(refuse(Code::GeojsonEmpty, "it is empty"));
        }
        Ok(())
    }

    /// The positions of a table, split into paths and parts.
    fn paths(&mut self, table: &Table<'_>, kind: Kind) -> Read<()> {
        let first = self.shape.positions.len();
        let count = self.positions(table)?;
        if kind == Kind::Point && count != 1 {
            return Err(refuse(Code::GeojsonPosition, "a point with more than one position"));
        }
        if kind == Kind::MultiPoint {
            self.room(count, count)?;
            for index in 1..=count {
                self.end_path(first + index);
                self.shape.end_part();
            }
            return Ok(());
        }
        let ends = table.vector(0, 4)?;
        let several = matches!(kind, Kind::Polygon | Kind::MultiLineString) && !ends.is_empty();
        let paths = if several { ends.len() / 4 } else { 1 };
        self.room(paths, if kind == Kind::MultiLineString { paths } else { 1 })?;
        if !several {
            self.end_path(first + count);
            self.shape.end_part();
            return Ok(());
        }
        let mut last = 0;
        for end in ends.as_chunks().0 {
            let end = u32::from_le_bytes(*end) as usize;
            if end > count || end < last {
                return Err(Damaged.into());
            }
            if end == last {
                return Err(refuse(Code::GeojsonEmpty, "a ring or line of it is empty"));
            }
            last = end;
            self.end_path(first + end);
            if kind == Kind::MultiLineString {
                self.shape.end_part();
            }
        }
        if last != count {
            return Err(Damaged.into());
        }
        if kind == Kind::Polygon {
            self.shape.end_part();
        }
        Ok(())
    }

    #[expect(clippy::cast_possible_truncation, reason = "positions are limited far below 32 bits")]
    fn end_path(&mut self, end: usize) {
        self.shape.paths.push(end as u32);
    }

    fn room(&self, paths: usize, parts: usize) -> Read<()> {
        let limits = self.limits;
        limit(self.shape.paths.len() + paths > limits.rings_max, Code::LimitRings, limits.rings_max, "rings or lines")?;
        limit(self.shape.parts.len() + parts > limits.parts_max, Code::LimitParts, limits.parts_max, "parts")
    }

    /// Adds all positions of a table and says how many they are.
    fn positions(&mut self, table: &Table<'_>) -> Read<usize> {
        let (pairs, odd) = table.vector(1, 8)?.as_chunks::<16>();
        let heights = table.vector(2, 8)?.as_chunks::<8>().0;
        for measure in 3..=5 {
            if !table.vector(measure, 8)?.is_empty() {
                return Err(refuse(Code::GeojsonMeasure, "a geometry with M values or times"));
            }
        }
        if !odd.is_empty() || !(heights.is_empty() || heights.len() == pairs.len()) {
            return Err(Damaged.into());
        }
        if pairs.is_empty() {
            return Err(refuse(Code::GeojsonEmpty, "it is empty"));
        }
        let third = !heights.is_empty();
        if *self.has_z.get_or_insert(third) != third {
            return Err(refuse(Code::GeojsonDimensions, "positions with and without a third number"));
        }
        let max = self.limits.positions_max;
        limit(self.shape.positions.len() + pairs.len() > max, Code::LimitPositions, max, "positions")?;
        self.shape.positions.reserve_exact(pairs.len());
        let mut finite = true;
        for (index, pair) in pairs.iter().enumerate() {
            let (x, y) = (number(&pair[..8]), number(&pair[8..]));
            let z = heights.get(index).map_or(0.0, |bytes| f64::from_le_bytes(*bytes));
            finite &= x.is_finite() & y.is_finite() & z.is_finite();
            self.shape.positions.push([x, y, z]);
        }
        if finite {
            return Ok(pairs.len());
        }
        Err(match self.shape.positions.as_slice() {
            [[x, y, _]] if x.is_nan() && y.is_nan() => refuse(Code::GeojsonEmpty, "an empty point"),
            _ => refuse(Code::JsonNumberRange, "a number that is not finite"),
        })
    }
}

fn limit(exceeded: bool, code: Code, max: usize, what: &str) -> Read<()> {
    if exceeded { Err(refuse(code, &format!("more than {max} {what}"))) } else { Ok(()) }
}

fn number(bytes: &[u8]) -> f64 {
    bytes.first_chunk().map_or(f64::NAN, |bytes| f64::from_le_bytes(*bytes))
}
