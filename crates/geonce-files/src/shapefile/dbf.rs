//! Attributes of a .dbf (dBASE III and its successors, as shapefiles use them).
//!
//! The whole file is looked over once when it is opened: a numeric field is as wide as its values, whatever its descriptor
//! says, so that 64-bit ids stay whole numbers and nothing is cut; and text is UTF-8 if nobody says otherwise and all of it is.

use crate::encoding::Encoding;
use crate::number::{self, Looks};
use crate::window::{Window, little_f64, little_u16, little_u32};
use crate::{Error, Field, FieldKind, Options, Result};
use geonce_key::Property;
use std::path::Path;

const HEADER_BYTES: u64 = 32;
const DESCRIPTOR_BYTES: usize = 32;
const END_OF_DESCRIPTORS: u8 = 0x0d;
const DELETED: u8 = b'*';

/// The attributes of a file.
pub(super) struct Attributes {
    window: Window,
    columns: Vec<Column>,
    header_bytes: u64,
    record_bytes: u64,
    /// Records, deleted ones among them.
    pub(super) records: u64,
    pub(super) deleted: u64,
    encoding: Encoding,
}

struct Column {
    /// Its descriptor's place in the header.
    place: usize,
    name: String,
    /// The letter of its descriptor.
    letter: u8,
    /// Where it is in a record.
    start: usize,
    end: usize,
    kind: FieldKind,
}

impl Attributes {
    /// Opens a .dbf with the .cpg beside it.
    pub(super) fn open(
        dbf: &Path,
        cpg: Option<&str>,
        options: &Options,
        notices: &mut Vec<String>,
    ) -> Result<Attributes> {
        let mut window = Window::open(dbf)?;
        let length = window.length();
        let Some(header) = window.read(0, HEADER_BYTES)? else {
            return Err(truncated(&window, "has no whole header"));
        };
        let records = u64::from(little_u32(header, 4));
        let header_bytes = u64::from(little_u16(header, 8));
        let record_bytes = u64::from(little_u16(header, 10));
        let driver = header[29];
        if header_bytes < HEADER_BYTES || record_bytes == 0 {
            return Err(window.refuse("format_wrong", "is no .dbf: its header contradicts itself"));
        }
        let stated = header_bytes + records * record_bytes;
        if stated > length {
            return Err(truncated(&window, &format!("has {length} bytes, but {records} records need {stated}")));
        }
        let Some(header) = window.read(0, header_bytes)? else {
            return Err(truncated(&window, "has no whole header"));
        };
        let header = header.to_vec();
        let mut attributes = Attributes {
            window,
            columns: Vec::new(),
            header_bytes,
            record_bytes,
            records,
            deleted: 0,
            encoding: Encoding::UTF8,
        };
        attributes.columns = attributes.columns(&header, notices)?;
        let declared = declared(cpg, driver, options)?;
        let seen = attributes.survey(&header)?;
        attributes.encoding = attributes.choose(declared, seen, notices)?;
        attributes.name_columns(&header, notices);
        Ok(attributes)
    }

    fn columns(&self, header: &[u8], notices: &mut Vec<String>) -> Result<Vec<Column>> {
        let mut columns = Vec::new();
        let mut start = 1;
        for (place, descriptor) in header.chunks_exact(DESCRIPTOR_BYTES).enumerate().skip(1) {
            if descriptor[0] == END_OF_DESCRIPTORS {
                break;
            }
            let (letter, width) = (descriptor[11].to_ascii_uppercase(), usize::from(descriptor[16]));
            let end = start + width;
            if end as u64 > self.record_bytes {
                let what = format!("describes fields of more than {} bytes, the length of a record", self.record_bytes);
                return Err(self.window.refuse("format_wrong", &what));
            }
            let kind = match letter {
                b'N' | b'F' if letter == b'N' && descriptor[17] == 0 => FieldKind::Integer,
                b'N' | b'F' => FieldKind::Real,
                b'I' | b'+' if width == 4 => FieldKind::Integer,
                b'O' if width == 8 => FieldKind::Real,
                b'D' => FieldKind::Date,
                b'L' => FieldKind::Boolean,
                _ => FieldKind::Text,
            };
            if matches!(letter, b'M' | b'G' | b'P' | b'B' | b'0') {
                notices.push(format!(
                    "field {place} is left out: what is in it is kept in another file, which is not read"
                ));
            } else {
                columns.push(Column { place, name: String::new(), letter, start, end, kind });
            }
            start = end;
        }
        Ok(columns)
    }

    /// Decodes the names, which needs the encoding, and makes them different from each other.
    fn name_columns(&mut self, header: &[u8], notices: &mut Vec<String>) {
        for i in 0..self.columns.len() {
            let place = self.columns[i].place;
            let decoded = self.encoding.decode(raw_name(header, place)).into_owned();
            let base = if decoded.is_empty() { format!("field_{place}") } else { decoded };
            let mut name = base.clone();
            let mut copy = 2;
            while self.columns[..i].iter().any(|other| other.name.eq_ignore_ascii_case(&name)) {
                name = format!("{base}_{copy}");
                copy += 1;
            }
            if name != base {
                notices.push(format!("a second field {base:?} is called {name:?}"));
            }
            self.columns[i].name = name;
        }
    }

    /// Looks at every value once: how wide the fields are, and whether the text is ASCII or UTF-8.
    fn survey(&mut self, header: &[u8]) -> Result<Seen> {
        let mut seen = Seen { ascii: true, utf8: true };
        for column in &self.columns {
            let name = raw_name(header, column.place);
            seen.ascii &= name.is_ascii();
            seen.utf8 &= std::str::from_utf8(whole_characters(name)).is_ok();
        }
        for record in 0..self.records {
            let at = self.header_bytes + record * self.record_bytes;
            let Some(bytes) = self.window.read(at, self.record_bytes)? else { break };
            if bytes[0] == DELETED {
                self.deleted += 1;
                continue;
            }
            for column in &mut self.columns {
                let value = &bytes[column.start..column.end];
                if column.is_binary() {
                    continue;
                }
                if column.kind == FieldKind::Text {
                    seen.ascii &= value.is_ascii();
                    seen.utf8 &= seen.ascii || std::str::from_utf8(whole_characters(unpadded(value))).is_ok();
                } else {
                    column.widen(value);
                    seen.ascii &= value.is_ascii();
                }
            }
        }
        Ok(seen)
    }

    /// The encoding to read by: the declared one, or UTF-8 if all is, or Latin 1.
    fn choose(
        &self,
        declared: Result<Option<Encoding>, String>,
        seen: Seen,
        notices: &mut Vec<String>,
    ) -> Result<Encoding> {
        match declared {
            _ if seen.ascii => Ok(Encoding::UTF8),
            Ok(Some(declared)) if declared == Encoding::UTF8 && !seen.utf8 => {
                notices.push(
                    "some text is not UTF-8, as it should be: bytes that cannot be read are shown as \u{fffd}".into(),
                );
                Ok(Encoding::UTF8)
            }
            Ok(Some(encoding)) => Ok(encoding),
            Ok(None) => {
                let encoding = if seen.utf8 { Encoding::UTF8 } else { Encoding::LATIN1 };
                notices.push(format!("the .dbf does not say how text is encoded; {} was assumed", encoding.name()));
                Ok(encoding)
            }
            Err(name) => {
                let what = format!("has text in an encoding that is not known: {name}");
                Err(self
                    .window
                    .refuse("encoding_unknown", &what)
                    .hint("name the encoding, such as --encoding ISO-8859-1"))
            }
        }
    }

    pub(super) fn fields(&self) -> Vec<Field> {
        self.columns.iter().map(|column| Field { name: column.name.clone(), kind: column.kind }).collect()
    }

    /// Tells of fields whose values are wider than their descriptors.
    pub(super) fn tell_widened(&self, notices: &mut Vec<String>) {
        for column in &self.columns {
            if column.kind == FieldKind::Text && matches!(column.letter, b'N' | b'F' | b'D') {
                notices.push(format!(
                    "field {:?} has values that are not what its type says; it is read as text",
                    column.name
                ));
            }
        }
    }

    /// The values of the record at `place`, from 0; none where it is deleted.
    pub(super) fn read(&mut self, place: u64) -> Result<Option<Vec<Property>>> {
        if place >= self.records {
            return Ok(Some(vec![Property::Null; self.columns.len()]));
        }
        let Some(bytes) = self.window.read(self.header_bytes + place * self.record_bytes, self.record_bytes)? else {
            return Err(truncated(&self.window, &format!("ends before record {}", place + 1)));
        };
        if bytes[0] == DELETED {
            return Ok(None);
        }
        Ok(Some(
            self.columns.iter().map(|column| column.value(&bytes[column.start..column.end], self.encoding)).collect(),
        ))
    }
}

/// The name in the descriptor at `place`, as it is written there.
fn raw_name(header: &[u8], place: usize) -> &[u8] {
    let raw = header.get(place * DESCRIPTOR_BYTES..place * DESCRIPTOR_BYTES + 11).unwrap_or_default();
    raw.split(|&byte| byte == 0).next().unwrap_or_default().trim_ascii()
}

fn truncated(window: &Window, what: &str) -> Error {
    window.refuse("file_truncated", what).hint("the file was cut short or is damaged: fetch it again")
}

#[derive(Clone, Copy)]
struct Seen {
    ascii: bool,
    utf8: bool,
}

/// What is said about the encoding: by the caller, the .cpg, or the language driver. A name that means nothing is an error
/// only if there is text to be read by it.
fn declared(cpg: Option<&str>, driver: u8, options: &Options) -> Result<Result<Option<Encoding>, String>> {
    if let Some(label) = &options.encoding {
        let unknown = || Error::new("encoding_unknown", format!("{label:?} is no encoding that is known"));
        return Encoding::find(label).map(|encoding| Ok(Some(encoding))).ok_or_else(unknown);
    }
    Ok(match cpg.map(str::trim).filter(|label| !label.is_empty()) {
        Some(label) => Encoding::find(label).map(Some).ok_or_else(|| label.chars().take(40).collect()),
        None if driver == 0 => Ok(None),
        None => Encoding::of_driver(driver).map(Some),
    })
}

/// Text without its padding.
fn unpadded(value: &[u8]) -> &[u8] {
    let end = value.iter().rposition(|byte| !matches!(byte, b' ' | 0)).map_or(0, |last| last + 1);
    &value[..end]
}

/// Text without a character that was cut at its end: writers fill fields to the last byte.
fn whole_characters(value: &[u8]) -> &[u8] {
    match std::str::from_utf8(value) {
        Err(error) if error.error_len().is_none() => &value[..error.valid_up_to()],
        _ => value,
    }
}

fn trimmed(value: &[u8]) -> &[u8] {
    let value = unpadded(value);
    let start = value.iter().position(|byte| !matches!(byte, b' ' | 0)).unwrap_or(value.len());
    &value[start..]
}

/// Numbers and dates that stand for nothing: blank, stars (too wide for the field), zeros for a date.
fn is_null(value: &[u8], kind: FieldKind) -> bool {
    value.is_empty() || value[0] == b'*' || (kind == FieldKind::Date && value.iter().all(|&byte| byte == b'0'))
}

impl Column {
    fn is_binary(&self) -> bool {
        matches!(self.letter, b'I' | b'+' | b'O') && self.kind != FieldKind::Text
    }

    /// Makes the kind wide enough for a value.
    fn widen(&mut self, value: &[u8]) {
        let value = trimmed(value);
        if is_null(value, self.kind) {
            return;
        }
        self.kind = match self.kind {
            FieldKind::Integer | FieldKind::Real => match (number::looks(value), self.kind) {
                (Looks::Integer, kind) => kind,
                (Looks::Real, _) | (Looks::Huge, FieldKind::Real) => FieldKind::Real,
                _ => FieldKind::Text,
            },
            FieldKind::Date if number::date(value).is_none() => FieldKind::Text,
            kind => kind,
        };
    }

    fn value(&self, value: &[u8], encoding: Encoding) -> Property {
        if self.is_binary() {
            return match self.letter {
                b'O' => Some(little_f64(value, 0)).filter(|n| n.is_finite()).map_or(Property::Null, Property::Real),
                _ => Property::Integer(i64::from(little_u32(value, 0).cast_signed())),
            };
        }
        match self.kind {
            FieldKind::Text if self.letter == b'C' => text(value, encoding),
            _ if is_null(trimmed(value), self.kind) => Property::Null,
            FieldKind::Integer => number::integer(trimmed(value)).map_or(Property::Null, Property::Integer),
            FieldKind::Real => number::real(trimmed(value)).map_or(Property::Null, Property::Real),
            FieldKind::Date => number::date(trimmed(value)).map_or(Property::Null, Property::Text),
            FieldKind::Boolean => match value[0] {
                b'T' | b't' | b'Y' | b'y' | b'1' => Property::Boolean(true),
                b'F' | b'f' | b'N' | b'n' | b'0' => Property::Boolean(false),
                _ => Property::Null,
            },
            _ => text(trimmed(value), encoding),
        }
    }
}

fn text(value: &[u8], encoding: Encoding) -> Property {
    let value = unpadded(value);
    let value = if encoding == Encoding::UTF8 { whole_characters(value) } else { value };
    if value.is_empty() { Property::Null } else { Property::Text(encoding.decode(value).into_owned()) }
}
