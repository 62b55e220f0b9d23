//! Strict reader and writer of WKB (OGC 06-103r4, clause 8; ISO codes 1000–3999) and EWKB (PostGIS flags).
//!
//! Every count is checked against the bytes that are left and against the limits before memory is taken for it.
//! Each geometry may have its own byte order. M, empty geometries, curves and trailing bytes are refused. The
//! writer's bytes are those of PostGIS `ST_AsEWKB`: little-endian, SRID on the outermost geometry only.

use crate::delivered::{Delivered, Filler};
use crate::shape::{Kind, MemberRef, PartRef, Position, Shape};
use crate::wkt::{foreign_name, refuse_foreign};
use crate::{Code, Error, Limits, Result};

const FLAG_Z: u32 = 0x8000_0000;
const FLAG_M: u32 = 0x4000_0000;
const FLAG_SRID: u32 = 0x2000_0000;
const COLLECTION: u32 = 7;
/// ISO adds this to the number of a type with Z.
const ISO_Z: u32 = 1_000;
/// The shortest geometry: byte order, type and a count.
const GEOMETRY_BYTES_MIN: usize = 9;

/// Reads one geometry.
pub fn read(bytes: &[u8], limits: &Limits) -> Result<Delivered> {
    let mut reader = Reader { bytes, at: 0, big_endian: false, srid: None, out: Filler::new(bytes, limits)? };
    let header = reader.header()?;
    reader.srid = header.srid;
    reader.geometry(&header)?;
    if reader.at < bytes.len() {
        return Err(reader.syntax("something follows the geometry"));
    }
    let srid = reader.srid;
    Ok(reader.out.finish(srid))
}

/// Reads hexadecimal WKB of either case, with surrounding white space and the `\x` that psql prints.
pub fn read_hex(text: &[u8], limits: &Limits) -> Result<Delivered> {
    if text.len() > limits.bytes_max {
        let message = format!("{} bytes, at most {} are accepted", text.len(), limits.bytes_max);
        return Err(Error::new(Code::LimitBytes, "", message));
    }
    let digits = text.trim_ascii();
    let digits = digits.strip_prefix(b"\\x").unwrap_or(digits);
    let (pairs, rest) = digits.as_chunks::<2>();
    let bytes: Option<Vec<u8>> = pairs.iter().map(|[high, low]| Some((nibble(*high)? << 4) | nibble(*low)?)).collect();
    match bytes {
        Some(bytes) if rest.is_empty() => read(&bytes, limits),
        Some(_) => Err(Error::new(Code::WkbSyntax, "", "an odd number of hexadecimal digits")),
        None => Err(Error::new(Code::WkbSyntax, "", "not hexadecimal")),
    }
}

/// How the header of a geometry tells more than its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// By flags, as PostGIS does, with the coordinate system if there is one.
    Extended(Option<u32>),
    /// By the type's number, as ISO and GeoPackage do.
    Iso,
}

/// Writes a shape as little-endian EWKB.
pub fn write(shape: &Shape<f64>, srid: Option<u32>) -> Vec<u8> {
    let size = shape.positions.len() * 24 + (shape.paths.len() + shape.parts.len() + shape.members.len()) * 9 + 16;
    let mut bytes = Vec::with_capacity(size);
    append(shape, Dialect::Extended(srid), false, &mut bytes);
    bytes
}

/// Appends a shape in little-endian bytes. With `as_multi`, a point, line or polygon becomes a Multi… of one.
pub fn append(shape: &Shape<f64>, dialect: Dialect, as_multi: bool, out: &mut Vec<u8>) {
    let (z, srid) = match dialect {
        Dialect::Extended(srid) => (FLAG_Z, srid),
        Dialect::Iso => (ISO_Z, None),
    };
    let mut writer = Writer { bytes: out, has_z: shape.has_z, z: if shape.has_z { z } else { 0 }, srid };
    if shape.collection {
        writer.header(COLLECTION);
        writer.count(shape.members.len());
    }
    shape.members().for_each(|member| writer.member(member, as_multi && !shape.collection));
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    big_endian: bool,
    /// The outermost geometry's SRID.
    srid: Option<u32>,
    out: Filler<'a>,
}

struct Header {
    start: usize,
    code: u32,
    srid: Option<u32>,
}

impl Reader<'_> {
    fn syntax(&self, what: &str) -> Error {
        Error::new(Code::WkbSyntax, "", format!("{what} at byte {}", self.at))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let Some((head, _)) = self.bytes[self.at..].split_first_chunk::<N>() else {
            return Err(self.syntax("the bytes end inside a geometry"));
        };
        self.at += N;
        Ok(*head)
    }

    fn integer(&mut self) -> Result<u32> {
        let bytes = self.take()?;
        Ok(if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn double(&mut self) -> Result<f64> {
        let bytes = self.take()?;
        Ok(if self.big_endian { f64::from_be_bytes(bytes) } else { f64::from_le_bytes(bytes) })
    }

    /// A count of things that take at least `bytes_min` each.
    fn count(&mut self, bytes_min: usize) -> Result<usize> {
        let start = self.at;
        let count = self.integer()? as usize;
        if count == 0 {
            return Err(self.out.refuse(Code::GeojsonEmpty, "a count of zero", start));
        }
        if count.checked_mul(bytes_min).is_none_or(|size| size > self.bytes.len() - self.at) {
            return Err(self.syntax("a count larger than the bytes that are left ends"));
        }
        Ok(count)
    }

    fn header(&mut self) -> Result<Header> {
        let start = self.at;
        self.big_endian = match self.take()? {
            [0] => true,
            [1] => false,
            _ => {
                self.at = start;
                return Err(self.syntax("a byte order of 0 or 1 expected"));
            }
        };
        let word = self.integer()?;
        let flagless = word & !(FLAG_Z | FLAG_M | FLAG_SRID);
        let (code, iso) = (flagless % 1000, flagless / 1000);
        if iso > 3 || (foreign_name(code).is_none() && !(1..=COLLECTION).contains(&code)) {
            self.at = start;
            return Err(self.syntax(&format!("an unknown geometry type {word:#x}")));
        }
        if let Some(name) = foreign_name(code) {
            return Err(refuse_foreign(&self.out, name, start));
        }
        if word & FLAG_M != 0 || iso >= 2 {
            return Err(self.out.refuse(Code::GeojsonMeasure, "a geometry with M values", start));
        }
        self.out.dimensions(word & FLAG_Z != 0 || iso == 1, start)?;
        let srid = if word & FLAG_SRID == 0 { None } else { Some(self.integer()?) };
        Ok(Header { start, code, srid })
    }

    /// The header of a geometry inside another one.
    fn inner_header(&mut self) -> Result<Header> {
        let header = self.header()?;
        let declared = header.srid.filter(|&srid| srid != 0);
        if declared.is_some() && declared != self.srid {
            return Err(self.out.refuse(Code::CrsConflict, "an inner SRID unlike the outer one", header.start));
        }
        Ok(header)
    }

    fn geometry(&mut self, header: &Header) -> Result<()> {
        let Some(kind) = kind(header.code) else { return self.collection(header) };
        self.out.begin(kind);
        if kind.is_multi() {
            for _ in 0..self.count(GEOMETRY_BYTES_MIN)? {
                let inner = self.inner_header()?;
                if inner.code != code(kind.part()) {
                    self.at = inner.start;
                    return Err(self.syntax(&format!("a {} expected", kind.part().name())));
                }
                self.part(kind.part())?;
            }
        } else {
            self.part(kind)?;
        }
        self.out.end_member(header.start)
    }

    fn collection(&mut self, header: &Header) -> Result<()> {
        self.out.enter(header.start)?;
        let count = self.count(GEOMETRY_BYTES_MIN)?;
        for _ in 0..count {
            let inner = self.inner_header()?;
            self.geometry(&inner)?;
            self.out.next_member();
        }
        self.out.leave();
        Ok(())
    }

    fn part(&mut self, kind: Kind) -> Result<()> {
        match kind {
            Kind::Point => self.point()?,
            Kind::Polygon => {
                for _ in 0..self.count(4)? {
                    self.path()?;
                }
            }
            _ => self.path()?,
        }
        self.out.end_part(self.at)
    }

    fn point(&mut self) -> Result<()> {
        let start = self.at;
        let position = self.ordinates()?;
        // PostGIS and GEOS write POINT EMPTY this way, WKB having no count in a point.
        if position[0].is_nan() && position[1].is_nan() {
            return Err(self.out.refuse(Code::GeojsonEmpty, "an empty point", start));
        }
        self.position(position, start)?;
        self.out.end_path(start)
    }

    fn path(&mut self) -> Result<()> {
        let bytes_each = if self.out.has_z() { 24 } else { 16 };
        let count = self.count(bytes_each)?;
        self.out.expect_positions(count, self.at)?;
        self.out.reserve(count);
        for _ in 0..count {
            let start = self.at;
            let position = self.ordinates()?;
            self.position(position, start)?;
        }
        self.out.end_path(self.at)
    }

    fn ordinates(&mut self) -> Result<Position<f64>> {
        let third = self.out.has_z();
        Ok([self.double()?, self.double()?, if third { self.double()? } else { 0.0 }])
    }

    fn position(&mut self, position: Position<f64>, start: usize) -> Result<()> {
        if !position.iter().all(|number| number.is_finite()) {
            return Err(self.out.refuse(Code::JsonNumberRange, "a number that is not finite", start));
        }
        self.out.position(position, start)
    }
}

fn kind(code: u32) -> Option<Kind> {
    Some(match code {
        1 => Kind::Point,
        2 => Kind::LineString,
        3 => Kind::Polygon,
        4 => Kind::MultiPoint,
        5 => Kind::MultiLineString,
        6 => Kind::MultiPolygon,
        _ => return None,
    })
}

fn code(kind: Kind) -> u32 {
    match kind {
        Kind::Point => 1,
        Kind::LineString => 2,
        Kind::Polygon => 3,
        Kind::MultiPoint => 4,
        Kind::MultiLineString => 5,
        Kind::MultiPolygon => 6,
    }
}

struct Writer<'a> {
    bytes: &'a mut Vec<u8>,
    has_z: bool,
    /// What tells of Z in a header.
    z: u32,
    /// Still to be written, into the first header.
    srid: Option<u32>,
}

impl Writer<'_> {
    fn header(&mut self, code: u32) {
        let srid = self.srid.take();
        let flag = if srid.is_some() { FLAG_SRID } else { 0 };
        self.bytes.push(1);
        self.bytes.extend_from_slice(&((code + self.z) | flag).to_le_bytes());
        if let Some(srid) = srid {
            self.bytes.extend_from_slice(&srid.to_le_bytes());
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a shape's offsets are 32 bits wide")]
    fn count(&mut self, count: usize) {
        self.bytes.extend_from_slice(&(count as u32).to_le_bytes());
    }

    fn member(&mut self, member: MemberRef<'_, f64>, as_multi: bool) {
        let kind = member.kind.part();
        if as_multi || member.kind.is_multi() {
            self.header(code(member.kind.multi()));
            self.count(member.parts().len());
        }
        for part in member.parts() {
            self.header(code(kind));
            self.part(part, kind);
        }
    }

    fn part(&mut self, part: PartRef<'_, f64>, kind: Kind) {
        if kind == Kind::Polygon {
            self.count(part.paths().len());
        }
        for path in part.paths() {
            if kind != Kind::Point {
                self.count(path.len());
            }
            for position in path {
                self.position(position);
            }
        }
    }

    fn position(&mut self, position: &Position<f64>) {
        for number in &position[..if self.has_z { 3 } else { 2 }] {
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
