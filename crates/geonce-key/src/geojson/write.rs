//! A geometry as `GeoJSON` text: every double in the fewest digits that read back as the same double.

use crate::shape::{Kind, MemberRef, PartRef, Position, Shape};

/// Appends the geometry to `out`. Ordinates that are not finite, which no reader of this crate gives, become `null`.
pub fn write(shape: &Shape<f64>, out: &mut Vec<u8>) {
    let mut writer = Writer { out, has_z: shape.has_z, buffer: zmij::Buffer::new() };
    if shape.collection || shape.members.len() != 1 {
        writer.raw(br#"{"type":"GeometryCollection","geometries":"#);
        writer.list(shape.members(), Writer::member);
        writer.raw(b"}");
    } else {
        shape.members().for_each(|member| writer.member(member));
    }
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    has_z: bool,
    buffer: zmij::Buffer,
}

impl Writer<'_> {
    fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    fn list<T>(&mut self, items: impl Iterator<Item = T>, mut item: impl FnMut(&mut Self, T)) {
        self.raw(b"[");
        for (i, value) in items.enumerate() {
            if i > 0 {
                self.raw(b",");
            }
            item(self, value);
        }
        self.raw(b"]");
    }

    fn member(&mut self, member: MemberRef<'_, f64>) {
        self.raw(br#"{"type":""#);
        self.raw(member.kind.name().as_bytes());
        self.raw(br#"","coordinates":"#);
        let kind = member.kind.part();
        if member.kind.is_multi() {
            self.list(member.parts(), |writer, part| writer.part(part, kind));
        } else {
            member.parts().for_each(|part| self.part(part, kind));
        }
        self.raw(b"}");
    }

    fn part(&mut self, part: PartRef<'_, f64>, kind: Kind) {
        match kind {
            Kind::Polygon => self.list(part.paths(), |writer, path| writer.list(path.iter(), Self::position)),
            Kind::LineString => part.paths().for_each(|path| self.list(path.iter(), Self::position)),
            _ => part.paths().flatten().for_each(|position| self.position(position)),
        }
    }

    fn position(&mut self, position: &Position<f64>) {
        let numbers = if self.has_z { &position[..] } else { &position[..2] };
        self.list(numbers.iter(), |writer, number| {
            if number.is_finite() {
                writer.out.extend_from_slice(writer.buffer.format_finite(*number).as_bytes());
            } else {
                writer.raw(b"null");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::write;
    use crate::{Input, Policy, Reader, wkt};

    #[test]
    fn what_is_written_reads_back_as_the_same_geometry() {
        let mut reader = Reader::new(&Policy::default(), None).unwrap();
        for text in [
            "POINT (13.4 52.5)",
            "POINT Z (13.4 52.5 100.25)",
            "LINESTRING (0 0,1 1,2 0.1)",
            "POLYGON ((0 0,4 0,4 4,0 4,0 0),(1 1,1 2,2 2,2 1,1 1))",
            "MULTIPOINT ((1 2),(3 4))",
            "MULTILINESTRING ((0 0,1 1),(2 2,3 3))",
            "MULTIPOLYGON (((0 0,1 0,1 1,0 0)),((5 5,6 5,6 6,5 5)))",
            "GEOMETRYCOLLECTION (POINT (1 2),LINESTRING (0 0,1e-7 0.30000000000000004))",
        ] {
            let shape = wkt::read(text.as_bytes(), &crate::Limits::default()).unwrap().shape;
            let mut out = br#"{"type":"Feature","properties":null,"geometry":"#.to_vec();
            write(&shape, &mut out);
            out.push(b'}');
            let feature = reader.read(Input::json(&out)).unwrap();
            assert_eq!(feature.geometry.as_ref(), Some(&shape), "{}", String::from_utf8_lossy(&out));
        }
    }
}
