//! A body as bytes, for where candidates are kept: counts, then differences of positions, all as variable-length integers.
//!
//! Reading checks everything: bytes that no body was written as give [`Damaged`], and no count is believed before the
//! bytes that it announces are there.

use super::Body;
use super::body::BOUNDS;
use crate::shape::{Kind, Position, Shape};
use std::fmt;

/// The first byte: how what follows is written.
const FORM: u8 = 1;
const COLLECTION: u8 = 1;
const HAS_Z: u8 = 2;

/// The bytes are not those of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("these bytes are not those of a geometry kept for comparison")
    }
}

impl std::error::Error for Damaged {}

impl Body {
    /// The body as bytes: about four per number of a small shape.
    pub fn to_bytes(&self) -> Vec<u8> {
        let shape = self.shape();
        let mut out = vec![FORM, u8::from(shape.collection) * COLLECTION + u8::from(shape.has_z) * HAS_Z];
        let mut before = [0; 3];
        write_count(shape.members.len(), &mut out);
        for member in shape.members() {
            out.push(kind_byte(member.kind));
            if member.kind.is_multi() {
                write_count(member.parts().len(), &mut out);
            }
            let kind = member.kind.part();
            for part in member.parts() {
                if kind == Kind::Polygon {
                    write_count(part.paths().len(), &mut out);
                }
                for path in part.paths() {
                    // A ring's last position is its first.
                    let open = if kind == Kind::Polygon { &path[..path.len().saturating_sub(1)] } else { path };
                    if kind != Kind::Point {
                        write_count(open.len(), &mut out);
                    }
                    for position in open {
                        write_position(position, &before, shape.has_z, &mut out);
                        before = *position;
                    }
                }
            }
        }
        out
    }

    /// The body that was written as these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Body, Damaged> {
        let [FORM, flags, rest @ ..] = bytes else { return Err(Damaged) };
        if flags & !(COLLECTION | HAS_Z) != 0 {
            return Err(Damaged);
        }
        let mut shape = Shape::new();
        shape.collection = flags & COLLECTION != 0;
        shape.has_z = flags & HAS_Z != 0;
        let mut reader = Reader { bytes: rest, before: [0; 3] };
        let members = reader.count()?;
        if !shape.collection && members != 1 {
            return Err(Damaged);
        }
        for _ in 0..members {
            reader.member(&mut shape)?;
        }
        if reader.bytes.is_empty() { Ok(Body::of(shape)) } else { Err(Damaged) }
    }
}

fn kind_byte(kind: Kind) -> u8 {
    match kind {
        Kind::LineString => 0,
        Kind::MultiLineString => 1,
        Kind::MultiPoint => 2,
        Kind::MultiPolygon => 3,
        Kind::Point => 4,
        Kind::Polygon => 5,
    }
}

fn write_count(count: usize, out: &mut Vec<u8>) {
    write_varint(count as u64, out);
}

fn write_varint(mut value: u64, out: &mut Vec<u8>) {
    loop {
        let [low, ..] = (value & 0x7f).to_le_bytes();
        value >>= 7;
        if value == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

fn write_position(position: &Position<i64>, before: &Position<i64>, has_z: bool, out: &mut Vec<u8>) {
    for axis in 0..if has_z { 3 } else { 2 } {
        let step = position[axis] - before[axis];
        // The sign goes to the last bit, so that small steps of either direction are short.
        write_varint(((step << 1) ^ (step >> 63)).cast_unsigned(), out);
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    before: Position<i64>,
}

impl Reader<'_> {
    fn varint(&mut self) -> Result<u64, Damaged> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let (&byte, rest) = self.bytes.split_first().ok_or(Damaged)?;
            self.bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Damaged)
    }

    /// A number of things that take at least a byte each, of which there is at least one.
    fn count(&mut self) -> Result<usize, Damaged> {
        let count = usize::try_from(self.varint()?).map_err(|_| Damaged)?;
        if (1..=self.bytes.len()).contains(&count) { Ok(count) } else { Err(Damaged) }
    }

    fn member(&mut self, shape: &mut Shape<i64>) -> Result<(), Damaged> {
        let (&byte, rest) = self.bytes.split_first().ok_or(Damaged)?;
        self.bytes = rest;
        let kind = Kind::ALL.into_iter().find(|&kind| kind_byte(kind) == byte).ok_or(Damaged)?;
        let parts = if kind.is_multi() { self.count()? } else { 1 };
        for _ in 0..parts {
            let paths = if kind.part() == Kind::Polygon { self.count()? } else { 1 };
            for _ in 0..paths {
                self.path(kind.part(), shape)?;
                shape.end_path();
            }
            shape.end_part();
        }
        shape.end_member(kind);
        Ok(())
    }

    fn path(&mut self, kind: Kind, shape: &mut Shape<i64>) -> Result<(), Damaged> {
        let count = if kind == Kind::Point { 1 } else { self.count()? };
        let start = shape.positions.len();
        for _ in 0..count {
            let position = self.position(shape.has_z)?;
            shape.positions.push(position);
        }
        if kind == Kind::Polygon {
            let first = shape.positions[start];
            shape.positions.push(first);
        }
        Ok(())
    }

    fn position(&mut self, has_z: bool) -> Result<Position<i64>, Damaged> {
        let mut position = [0; 3];
        for axis in 0..if has_z { 3 } else { 2 } {
            let folded = self.varint()?.cast_signed();
            let step = (folded >> 1) ^ -(folded & 1);
            position[axis] = self.before[axis].checked_add(step).filter(|n| n.abs() <= BOUNDS[axis]).ok_or(Damaged)?;
        }
        self.before = position;
        Ok(position)
    }
}
