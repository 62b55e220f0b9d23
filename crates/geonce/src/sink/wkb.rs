//! Geometries as well-known binary, little-endian: ISO (OGC 06-103r4, 8.2) for GeoPackage, extended for PostGIS.

use geonce_key::{Kind, Shape};

const LITTLE_ENDIAN: u8 = 1;
const COLLECTION: u32 = 7;
/// ISO adds this to the code of a type with Z.
pub(super) const ISO_Z: u32 = 1000;
/// PostGIS marks a type with Z, and one that its coordinate system follows, by bits.
const EXTENDED_Z: u32 = 0x8000_0000;
const EXTENDED_SRID: u32 = 0x2000_0000;

/// Appends a geometry as ISO WKB.
pub(super) fn write_iso(shape: &Shape<f64>, out: &mut Vec<u8>) {
    Writer { out, z: shape.has_z, z_code: ISO_Z, srid: None }.shape(shape, false);
}

/// Appends a geometry as extended WKB. With `as_multi`, a point, line or polygon is written as a Multi… of one.
pub(super) fn write_extended(shape: &Shape<f64>, srid: u32, as_multi: bool, out: &mut Vec<u8>) {
    Writer { out, z: shape.has_z, z_code: EXTENDED_Z, srid: Some(srid) }.shape(shape, as_multi);
}

/// The code of a type without Z.
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
    out: &'a mut Vec<u8>,
    z: bool,
    z_code: u32,
    /// Written into the first header only.
    srid: Option<u32>,
}

impl Writer<'_> {
    fn shape(&mut self, shape: &Shape<f64>, as_multi: bool) {
        if shape.collection {
            self.header(COLLECTION);
            self.count(shape.members.len());
        }
        for member in shape.members() {
            let part_kind = member.kind.part();
            if member.kind.is_multi() || (as_multi && !shape.collection) {
                self.header(code(member.kind.multi()));
                self.count(member.parts().len());
            }
            for part in member.parts() {
                self.header(code(part_kind));
                if part_kind == Kind::Polygon {
                    self.count(part.paths().len());
                }
                for path in part.paths() {
                    if part_kind != Kind::Point {
                        self.count(path.len());
                    }
                    for position in path {
                        self.position(position);
                    }
                }
            }
        }
    }

    fn header(&mut self, code: u32) {
        let srid = self.srid.take();
        let code = if self.z { code + self.z_code } else { code };
        self.out.push(LITTLE_ENDIAN);
        self.out.extend_from_slice(&(if srid.is_some() { code | EXTENDED_SRID } else { code }).to_le_bytes());
        if let Some(srid) = srid {
            self.out.extend_from_slice(&srid.to_le_bytes());
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a shape's offsets are 32 bits wide")]
    fn count(&mut self, count: usize) {
        self.out.extend_from_slice(&(count as u32).to_le_bytes());
    }

    fn position(&mut self, position: &[f64; 3]) {
        let ordinates = if self.z { &position[..] } else { &position[..2] };
        for number in ordinates {
            self.out.extend_from_slice(&number.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::write_extended;
    use geonce_key::{Limits, wkb, wkt};

    fn shape(text: &str) -> geonce_key::Shape<f64> {
        wkt::read(text.as_bytes(), &Limits::default()).unwrap().shape
    }

    #[test]
    fn extended_wkb_carries_its_system_and_is_read_back_as_it_was() {
        for text in [
            "POINT Z(1 2 3)",
            "LINESTRING(1 2,-3 4)",
            "MULTIPOLYGON(((0 0,4 0,4 4,0 0)),((9 9,10 9,10 10,9 9)))",
            "GEOMETRYCOLLECTION(POINT(1 2),MULTIPOINT(3 4),LINESTRING(5 6,7 8))",
        ] {
            let mut bytes = Vec::new();
            write_extended(&shape(text), 32633, false, &mut bytes);
            let read = wkb::read(&bytes, &Limits::default()).unwrap();
            assert_eq!((read.shape, read.srid), (shape(text), Some(32633)), "{text}");
        }
    }

    #[test]
    fn a_single_part_is_written_as_a_multi_of_one_where_that_is_asked() {
        for (single, multi) in [
            ("POINT(1 2)", "MULTIPOINT(1 2)"),
            ("LINESTRING Z(1 2 3,4 5 6)", "MULTILINESTRING Z((1 2 3,4 5 6))"),
            ("POLYGON((0 0,1 0,1 1,0 0))", "MULTIPOLYGON(((0 0,1 0,1 1,0 0)))"),
            ("MULTIPOINT(1 2,3 4)", "MULTIPOINT(1 2,3 4)"),
        ] {
            let mut bytes = Vec::new();
            write_extended(&shape(single), 4326, true, &mut bytes);
            assert_eq!(wkb::read(&bytes, &Limits::default()).unwrap().shape, shape(multi), "{single}");
        }
    }
}
