//! Geometries as GeoPackage binary (OGC 12-128r17, clause 2.1.3): a header, then ISO WKB, little-endian.
//!
//! Everything but a lone point carries its envelope, so that readers need not walk the coordinates. Reading is for the
//! `ST_…` functions that the triggers of the R-tree call: bounds only, of whatever any program may have written.

use geonce_key::wkb::{self, Dialect};
use geonce_key::{Kind, Limits, Shape};

/// Least x, greatest x, least y, greatest y: the order of the envelope and of the R-tree's columns.
pub(crate) type Bounds = [f64; 4];

const LITTLE_ENDIAN: u8 = 1;
const ENVELOPE_XY: u8 = 1 << 1;
const EMPTY: u8 = 1 << 4;
const HEADER_BYTES: usize = 8;
/// ISO adds this to the number of a type with Z, and again for M.
const ISO_Z: u32 = 1_000;
/// How deep collections may be nested in what others wrote.
const DEPTH_MAX: usize = 32;

/// The smallest box around all positions.
pub(crate) fn bounds(shape: &Shape<f64>) -> Option<Bounds> {
    let &[x, y, _] = shape.positions.first()?;
    let grow = |b: Bounds, p: &[f64; 3]| [b[0].min(p[0]), b[1].max(p[0]), b[2].min(p[1]), b[3].max(p[1])];
    Some(shape.positions.iter().fold([x, x, y, y], grow))
}

/// The box around two boxes.
pub(crate) fn join(a: Option<Bounds>, b: Option<Bounds>) -> Option<Bounds> {
    match (a, b) {
        (Some(a), Some(b)) => Some([a[0].min(b[0]), a[1].max(b[1]), a[2].min(b[2]), a[3].max(b[3])]),
        (one, other) => one.or(other),
    }
}

/// Writes a geometry over what `out` held, as a Multi… of one if asked, and tells its bounds.
pub(crate) fn write(shape: &Shape<f64>, srs: u32, as_multi: bool, out: &mut Vec<u8>) -> Option<Bounds> {
    out.clear();
    let bounds = bounds(shape)?;
    let is_point =
        !as_multi && !shape.collection && shape.members().next().is_some_and(|member| member.kind == Kind::Point);
    out.extend_from_slice(b"GP\0");
    out.push(if is_point { LITTLE_ENDIAN } else { LITTLE_ENDIAN | ENVELOPE_XY });
    out.extend_from_slice(&srs.to_le_bytes());
    if !is_point {
        for number in bounds {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
    wkb::append(shape, Dialect::Iso, as_multi, out);
    Some(bounds)
}

/// The bounds of a geometry in GeoPackage binary; `None` where it is empty, or nothing that can be read.
pub(crate) fn read_bounds(blob: &[u8]) -> Option<Bounds> {
    let [b'G', b'P', _, flags, ..] = *blob else { return None };
    if flags & EMPTY != 0 {
        return None;
    }
    let big_endian = flags & LITTLE_ENDIAN == 0;
    let envelope_bytes = match (flags >> 1) & 7 {
        0 => {
            let mut reader = Reader { rest: blob.get(HEADER_BYTES..)?, big_endian, bounds: None };
            reader.geometry(0)?;
            return reader.bounds;
        }
        1 => 32,
        2 | 3 => 48,
        4 => 64,
        _ => return None,
    };
    let mut reader = Reader { rest: blob.get(HEADER_BYTES..HEADER_BYTES + envelope_bytes)?, big_endian, bounds: None };
    let envelope = [reader.double()?, reader.double()?, reader.double()?, reader.double()?];
    envelope.iter().all(|number| number.is_finite()).then_some(envelope)
}

/// The geometry in GeoPackage binary; `None` where it is empty, or nothing that we would write.
pub(crate) fn read(blob: &[u8]) -> Option<Shape<f64>> {
    let [b'G', b'P', _, flags, ..] = *blob else { return None };
    let envelope_bytes = match (flags >> 1) & 7 {
        0 => 0,
        1 => 32,
        2 | 3 => 48,
        4 => 64,
        _ => return None,
    };
    let body = blob.get(HEADER_BYTES + envelope_bytes..).filter(|_| flags & EMPTY == 0)?;
    wkb::read(body, &Limits::default()).ok().map(|read| read.shape)
}

struct Reader<'a> {
    rest: &'a [u8],
    big_endian: bool,
    bounds: Option<Bounds>,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    fn integer(&mut self) -> Option<u32> {
        let bytes = self.take()?;
        Some(if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn double(&mut self) -> Option<f64> {
        let bytes = self.take()?;
        Some(if self.big_endian { f64::from_be_bytes(bytes) } else { f64::from_le_bytes(bytes) })
    }

    fn geometry(&mut self, depth: usize) -> Option<()> {
        let [order] = self.take()?;
        self.big_endian = order == 0;
        let word = self.integer()?;
        let ordinates = match word / ISO_Z {
            0 => 2,
            1 | 2 => 3,
            3 => 4,
            _ => return None,
        };
        match word % ISO_Z {
            1 => self.positions(1, ordinates),
            // A circular string is written like a line; its control points are taken for its bounds.
            2 | 8 => {
                let count = self.integer()?;
                self.positions(count, ordinates)
            }
            3 | 17 => {
                for _ in 0..self.integer()? {
                    let count = self.integer()?;
                    self.positions(count, ordinates)?;
                }
                Some(())
            }
            4..=7 | 9..=12 | 15 | 16 if depth < DEPTH_MAX => {
                for _ in 0..self.integer()? {
                    self.geometry(depth + 1)?;
                }
                Some(())
            }
            _ => None,
        }
    }

    fn positions(&mut self, count: u32, ordinates: usize) -> Option<()> {
        for _ in 0..count {
            let (x, y) = (self.double()?, self.double()?);
            for _ in 2..ordinates {
                self.double()?;
            }
            // An empty point is written as not-a-number.
            if x.is_finite() && y.is_finite() {
                self.bounds = join(self.bounds, Some([x, x, y, y]));
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::{read, read_bounds, write};
    use geonce_key::{Limits, wkb, wkt};

    #[test]
    fn what_is_written_is_iso_wkb_with_the_bounds_of_its_positions() {
        for text in [
            "POINT(1 2)",
            "POINT Z(1 2 3)",
            "LINESTRING(1 2,-3 4)",
            "POLYGON Z((0 0 1,4 0 1,4 4 1,0 0 1),(1 1 1,2 1 1,2 2 1,1 1 1))",
            "MULTIPOINT(1 2,3 4)",
            "MULTILINESTRING((1 2,3 4),(5 6,7 8))",
            "MULTIPOLYGON(((0 0,4 0,4 4,0 0)),((9 9,10 9,10 10,9 9)))",
            "GEOMETRYCOLLECTION(POINT(1 2),MULTIPOINT(3 4),LINESTRING(5 6,7 8))",
        ] {
            let shape = wkt::read(text.as_bytes(), &Limits::default()).unwrap().shape;
            let mut blob = Vec::new();
            let bounds = write(&shape, 4326, false, &mut blob).unwrap();
            assert_eq!(read_bounds(&blob), Some(bounds), "{text}");
            assert_eq!(read(&blob).as_ref(), Some(&shape), "{text}");
            let header = if text.starts_with("POINT") { 8 } else { 40 };
            assert_eq!(wkb::read(&blob[header..], &Limits::default()).unwrap().shape, shape, "{text}");
            let kind = u32::from_le_bytes(blob[header + 1..header + 5].try_into().unwrap());
            assert_eq!(kind / 1000, u32::from(shape.has_z), "{text}");
            // The bounds are found in the coordinates, too, where a writer left the envelope out.
            let bare = [&blob[..3], &[1], &blob[4..8], &blob[header..]].concat();
            assert_eq!(read_bounds(&bare), Some(bounds), "{text}");
            for length in 0..blob.len() {
                let _ = read_bounds(&bare[..length.min(bare.len())]);
                assert_eq!(read(&blob[..length]), None, "{text}");
            }
        }
    }

    #[test]
    fn an_empty_geometry_and_foreign_bytes_have_no_bounds() {
        let not_a_number = [f64::NAN.to_le_bytes(), f64::NAN.to_le_bytes()].concat();
        let empty_point = [b"GP\0\x01\xe6\x10\0\0\x01\x01\0\0\0".as_slice(), &not_a_number].concat();
        for blob in [b"".as_slice(), b"GP", b"GP\0\x11\0\0\0\0", b"nonsense", &empty_point] {
            assert_eq!(read_bounds(blob), None, "{blob:?}");
            assert_eq!(read(blob), None, "{blob:?}");
        }
    }
}
