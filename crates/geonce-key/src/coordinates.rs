//! A canonical shape written out as `GeoJSON`, the largest part of the canonical bytes.

use crate::decimal::write_grid;
use crate::shape::{Kind, MemberRef, Shape};
use crate::simplify::bounds;

/// A canonical shape as `GeoJSON`, members in the order of RFC 8785. `places` are those of x and y, and of z.
pub(crate) fn write_geometry(shape: &Shape<i64>, places: [u8; 2], out: &mut Vec<u8>) {
    let writer = CoordinateWriter { places, has_z: shape.has_z };
    if !shape.collection {
        if let Some(member) = shape.members().next() {
            writer.member(member, out);
        }
        return;
    }
    out.extend_from_slice(b"{\"geometries\":");
    writer.list(shape.members(), out, CoordinateWriter::member);
    out.extend_from_slice(b",\"type\":\"GeometryCollection\"}");
}

/// A canonical shape as its type and the box around it: west, south, east, north.
pub(crate) fn write_bounds(shape: &Shape<i64>, places: u8, out: &mut Vec<u8>) {
    let writer = CoordinateWriter { places: [places; 2], has_z: false };
    out.extend_from_slice(b"{\"bbox\":");
    writer.list(bounds(shape).iter(), out, |writer, &edge, out| write_grid(edge, writer.places[0], out));
    out.extend_from_slice(b",\"type\":\"");
    out.extend_from_slice(shape.type_name().as_bytes());
    out.extend_from_slice(b"\"}");
}

struct CoordinateWriter {
    places: [u8; 2],
    has_z: bool,
}

impl CoordinateWriter {
    fn list<T>(&self, items: impl Iterator<Item = T>, out: &mut Vec<u8>, write: impl Fn(&Self, T, &mut Vec<u8>)) {
        let mut separator = b'[';
        for item in items {
            out.push(separator);
            separator = b',';
            write(self, item, out);
        }
        out.push(b']');
    }

    fn member(&self, member: MemberRef<'_, i64>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"coordinates\":");
        match member.kind {
            Kind::MultiPoint | Kind::MultiLineString | Kind::MultiPolygon => {
                self.list(member.parts(), out, |writer, part, out| writer.part(member.kind.part(), part.paths(), out));
            }
            kind => {
                if let Some(part) = member.parts().next() {
                    self.part(kind, part.paths(), out);
                }
            }
        }
        out.extend_from_slice(b",\"type\":\"");
        out.extend_from_slice(member.kind.name().as_bytes());
        out.extend_from_slice(b"\"}");
    }

    fn part<'a>(&self, kind: Kind, mut paths: impl Iterator<Item = &'a [[i64; 3]]>, out: &mut Vec<u8>) {
        let path = |writer: &Self, path: &[[i64; 3]], out: &mut Vec<u8>| {
            writer.list(path.iter(), out, CoordinateWriter::position);
        };
        match kind {
            Kind::Polygon => self.list(paths, out, path),
            Kind::Point => {
                if let Some([position]) = paths.next() {
                    self.position(position, out);
                }
            }
            _ => {
                if let Some(line) = paths.next() {
                    path(self, line, out);
                }
            }
        }
    }

    #[inline]
    fn position(&self, position: &[i64; 3], out: &mut Vec<u8>) {
        out.push(b'[');
        write_grid(position[0], self.places[0], out);
        out.push(b',');
        write_grid(position[1], self.places[0], out);
        if self.has_z {
            out.push(b',');
            write_grid(position[2], self.places[1], out);
        }
        out.push(b']');
    }
}
