//! Strict reader and writer of WKT (OGC 06-103r4, clause 7) and EWKT (`SRID=n;` in front).
//!
//! The reader takes what writers produce in practice (tags glued or apart, three untagged numbers as Z, bare
//! `MULTIPOINT` positions) and nothing else: no M, no EMPTY, no curves, nothing after the geometry. It does not
//! close rings or count positions: that is the validator's work, the same for every form.

use crate::delivered::{Delivered, Filler};
use crate::shape::{Kind, MemberRef, PartRef, Position, Shape};
use crate::{Code, Error, Limits, Result};

/// Types that exist in WKT and WKB but not in `GeoJSON`.
const FOREIGN: [&str; 10] = [
    "CIRCULARSTRING",
    "COMPOUNDCURVE",
    "CURVEPOLYGON",
    "MULTICURVE",
    "MULTISURFACE",
    "CURVE",
    "SURFACE",
    "POLYHEDRALSURFACE",
    "TIN",
    "TRIANGLE",
];

const COLLECTION: &str = "GEOMETRYCOLLECTION";

/// Reads one geometry; surrounding white space is allowed.
pub fn read(text: &[u8], limits: &Limits) -> Result<Delivered> {
    let mut reader = Reader { text, at: 0, out: Filler::new(text, limits)? };
    let srid = reader.srid()?;
    reader.geometry()?;
    reader.skip_space();
    if reader.at < text.len() {
        return Err(reader.syntax("something follows the geometry"));
    }
    Ok(reader.out.finish(srid))
}

/// Writes a shape with the shortest numbers that read back to the same doubles.
pub fn write(shape: &Shape<f64>) -> String {
    let mut writer = Writer { text: String::new(), has_z: shape.has_z, buffer: zmij::Buffer::new() };
    if shape.collection {
        writer.tag(COLLECTION);
        writer.list(shape.members(), Writer::member);
    } else {
        shape.members().for_each(|member| writer.member(member));
    }
    writer.text
}

/// The name of a type without a `GeoJSON` equal, by its WKB code.
pub(crate) fn foreign_name(code: u32) -> Option<&'static str> {
    FOREIGN.get((code as usize).checked_sub(8)?).copied()
}

/// The refusal of a type that `GeoJSON` does not have.
pub(crate) fn refuse_foreign(out: &Filler<'_>, name: &str, at: usize) -> Error {
    out.refuse(Code::GeojsonType, "a type that GeoJSON does not have", at)
        .hint(format!("{name} cannot be carried; convert it to lines or polygons first"))
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    out: Filler<'a>,
}

enum Type {
    Simple(Kind),
    Collection,
}

impl<'a> Reader<'a> {
    fn syntax(&self, what: &str) -> Error {
        Error::new(Code::WktSyntax, "", format!("{what} at byte {}", self.at))
    }

    fn skip_space(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.text.get(self.at).copied()
    }

    /// Takes the longest run of bytes that `belongs`; may be empty.
    fn run(&mut self, belongs: impl Fn(&u8) -> bool) -> &'a [u8] {
        let rest = &self.text[self.at..];
        let length = rest.iter().position(|byte| !belongs(byte)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn word(&mut self) -> &'a [u8] {
        self.skip_space();
        self.run(u8::is_ascii_alphabetic)
    }

    fn srid(&mut self) -> Result<Option<u32>> {
        let start = self.at;
        if !self.word().eq_ignore_ascii_case(b"SRID") {
            self.at = start;
            return Ok(None);
        }
        self.take(b'=', "'=' expected after SRID")?;
        self.skip_space();
        let digits = self.run(u8::is_ascii_digit);
        let srid = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        let srid = srid.ok_or_else(|| self.syntax("SRID is not a number"))?;
        self.take(b';', "';' expected after SRID")?;
        Ok(Some(srid))
    }

    fn take(&mut self, byte: u8, expected: &str) -> Result<()> {
        if self.peek() != Some(byte) {
            return Err(self.syntax(expected));
        }
        self.at += 1;
        Ok(())
    }

    fn geometry(&mut self) -> Result<()> {
        let start = self.at;
        match self.header()? {
            Type::Collection => {
                self.out.enter(start)?;
                self.list(|reader| {
                    reader.geometry()?;
                    reader.out.next_member();
                    Ok(())
                })?;
                self.out.leave();
                Ok(())
            }
            Type::Simple(kind) => {
                self.out.begin(kind);
                self.coordinates(kind)?;
                self.out.end_member(start)
            }
        }
    }

    /// Reads the type's name and its dimension tag.
    fn header(&mut self) -> Result<Type> {
        self.skip_space();
        let start = self.at;
        let word = self.word();
        let Some((name, mut tag)) = split_tag(word) else {
            self.at = start;
            return Err(self.syntax("a geometry type expected"));
        };
        if tag.is_empty() && self.peek().is_some_and(|byte| matches!(byte, b'Z' | b'z' | b'M' | b'm')) {
            tag = self.word();
        }
        let Some(known) = simple_or_collection(name) else {
            return Err(refuse_foreign(&self.out, name, start));
        };
        if tag.eq_ignore_ascii_case(b"M") || tag.eq_ignore_ascii_case(b"ZM") {
            return Err(self.out.refuse(Code::GeojsonMeasure, "a geometry with M values", start));
        }
        if tag.eq_ignore_ascii_case(b"Z") {
            self.out.dimensions(true, start)?;
        } else if !tag.is_empty() {
            return Err(self.syntax("an unknown dimension tag ends"));
        }
        Ok(known)
    }

    fn coordinates(&mut self, kind: Kind) -> Result<()> {
        match kind {
            Kind::Point => self.point(),
            Kind::LineString => self.line(),
            Kind::Polygon => self.polygon(),
            Kind::MultiPoint => self.list(Self::point_of_many),
            Kind::MultiLineString => self.list(Self::line),
            Kind::MultiPolygon => self.list(Self::polygon),
        }
    }

    /// `( item , item … )`, at least one.
    fn list(&mut self, mut item: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.open()?;
        loop {
            item(self)?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b')') => break,
                _ => return Err(self.syntax("',' or ')' expected")),
            }
        }
        self.at += 1;
        Ok(())
    }

    fn open(&mut self) -> Result<()> {
        self.skip_space();
        let start = self.at;
        if self.word().eq_ignore_ascii_case(b"EMPTY") {
            return Err(self.out.refuse(Code::GeojsonEmpty, "EMPTY", start));
        }
        self.at = start;
        self.take(b'(', "'(' expected")
    }

    fn point(&mut self) -> Result<()> {
        self.open()?;
        self.position()?;
        self.take(b')', "')' expected")?;
        self.end_path()?;
        self.end_part()
    }

    /// A point of a `MULTIPOINT`, whose parentheses may be missing.
    fn point_of_many(&mut self) -> Result<()> {
        if self.peek().is_some_and(|byte| byte == b'(' || byte.is_ascii_alphabetic()) {
            return self.point();
        }
        self.position()?;
        self.end_path()?;
        self.end_part()
    }

    fn line(&mut self) -> Result<()> {
        self.path()?;
        self.end_part()
    }

    fn polygon(&mut self) -> Result<()> {
        self.list(Self::path)?;
        self.end_part()
    }

    fn path(&mut self) -> Result<()> {
        self.list(Self::position)?;
        self.end_path()
    }

    fn end_path(&mut self) -> Result<()> {
        self.out.end_path(self.at)
    }

    fn end_part(&mut self) -> Result<()> {
        self.out.end_part(self.at)
    }

    fn position(&mut self) -> Result<()> {
        self.skip_space();
        let start = self.at;
        let mut position = [0.0; 4];
        let mut count = 0;
        while self.peek().is_some_and(in_number) {
            let number = self.number()?;
            let Some(place) = position.get_mut(count) else {
                return Err(self.out.refuse(Code::GeojsonPosition, "a position of more than four numbers", start));
            };
            *place = number;
            count += 1;
        }
        // What is not a number is named before the position is counted: `(1 nan)` is bad text, not a short position.
        if count == 0 || !matches!(self.peek(), Some(b',' | b')')) {
            return Err(self.syntax(if count < 2 { "a number expected" } else { "',' or ')' expected" }));
        }
        match count {
            1 => Err(self.out.refuse(Code::GeojsonPosition, "a position of one number", start)),
            4 => Err(self.out.refuse(Code::GeojsonMeasure, "a position of four numbers", start)),
            _ => {
                self.out.dimensions(count == 3, start)?;
                self.out.position([position[0], position[1], position[2]], start)
            }
        }
    }

    fn number(&mut self) -> Result<f64> {
        let start = self.at;
        let text = self.run(|&byte| in_number(byte));
        if text.len() > self.out.number_bytes_max() {
            return Err(self.out.refuse(Code::LimitNumber, "a number with too many characters", start));
        }
        // The run has no letters but `e`, so none of the words that `parse` knows can get through.
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
        match number {
            Some(number) if number.is_finite() => Ok(number),
            Some(_) => Err(self.out.refuse(Code::JsonNumberRange, "a number beyond the range of a double", start)),
            None => {
                self.at = start;
                Err(self.syntax("a malformed number"))
            }
        }
    }
}

fn in_number(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')
}

const SIMPLE: [Kind; 6] =
    [Kind::Point, Kind::LineString, Kind::Polygon, Kind::MultiPoint, Kind::MultiLineString, Kind::MultiPolygon];

fn simple_or_collection(name: &str) -> Option<Type> {
    if name == COLLECTION {
        return Some(Type::Collection);
    }
    SIMPLE.into_iter().find(|kind| upper_name(*kind) == name).map(Type::Simple)
}

/// Splits `POINTZ` into the name as this file spells it and the tag; no type's name ends in Z or M.
fn split_tag(word: &[u8]) -> Option<(&'static str, &[u8])> {
    let length = word.iter().rposition(|byte| !matches!(byte, b'Z' | b'z' | b'M' | b'm'))? + 1;
    let (name, tag) = word.split_at(length);
    let names = SIMPLE.into_iter().map(upper_name).chain(FOREIGN).chain([COLLECTION]);
    names.into_iter().find(|known| known.as_bytes().eq_ignore_ascii_case(name)).map(|known| (known, tag))
}

fn upper_name(kind: Kind) -> &'static str {
    match kind {
        Kind::LineString => "LINESTRING",
        Kind::MultiLineString => "MULTILINESTRING",
        Kind::MultiPoint => "MULTIPOINT",
        Kind::MultiPolygon => "MULTIPOLYGON",
        Kind::Point => "POINT",
        Kind::Polygon => "POLYGON",
    }
}

struct Writer {
    text: String,
    has_z: bool,
    buffer: zmij::Buffer,
}

impl Writer {
    fn tag(&mut self, name: &str) {
        self.text.push_str(name);
        self.text.push_str(if self.has_z { " Z " } else { " " });
    }

    fn list<T>(&mut self, items: impl Iterator<Item = T>, mut item: impl FnMut(&mut Self, T)) {
        self.text.push('(');
        for (i, value) in items.enumerate() {
            if i > 0 {
                self.text.push(',');
            }
            item(self, value);
        }
        self.text.push(')');
    }

    fn member(&mut self, member: MemberRef<'_, f64>) {
        self.tag(upper_name(member.kind));
        let part = |writer: &mut Self, part: PartRef<'_, f64>| writer.part(part, member.kind.part());
        if member.kind.is_multi() {
            self.list(member.parts(), part);
        } else {
            member.parts().for_each(|one| part(self, one));
        }
    }

    fn part(&mut self, part: PartRef<'_, f64>, kind: Kind) {
        if kind == Kind::Polygon {
            self.list(part.paths(), Self::path);
        } else {
            part.paths().for_each(|path| self.path(path));
        }
    }

    fn path(&mut self, path: &[Position<f64>]) {
        self.list(path.iter(), |writer, position| {
            let numbers = if writer.has_z { &position[..] } else { &position[..2] };
            for (i, number) in numbers.iter().enumerate() {
                if i > 0 {
                    writer.text.push(' ');
                }
                let digits = writer.buffer.format(*number);
                writer.text.push_str(digits.strip_suffix(".0").unwrap_or(digits));
            }
        });
    }
}

#[cfg(test)]
mod tests;
