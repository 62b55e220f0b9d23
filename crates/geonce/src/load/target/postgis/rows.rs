//! Rows as `COPY … (FORMAT binary)` takes them.

use crate::event::{Cause, Class};
use crate::load::target::Piece;
use crate::load::target::slots::Slots;
use crate::postgres::quoted;
use crate::sink::columns::{OTHER, Type, Value};
use crate::sink::postgis::layer::Layer;
use geonce_key::wkb::{self, Dialect};
use geonce_key::{Encoding, Version};

/// What every COPY begins with: a signature, no flags, no extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// What it ends with.
const TRAILER: [u8; 2] = (-1_i16).to_be_bytes();
/// From 1970 to 2000, where the server's times begin.
const EPOCH_SECONDS: i64 = 946_684_800;
const DAY_SECONDS: i64 = 86_400;
/// The largest exponent of a decimal number.
const EXPONENT_MAX: i64 = 1_000;

/// What stands beside a row while it is compared with what the layer holds.
pub(super) struct Beside<'a> {
    pub(super) entity: &'a [u8; 32],
    pub(super) version: String,
    pub(super) key: [u8; 16],
    pub(super) content: &'a [u8; 32],
    /// The row that is there, and the end of the key it must have.
    pub(super) old: Option<(Option<i64>, String)>,
}

/// The columns of [`Beside`], and their types.
pub(super) const BESIDE: [(&str, &str); 7] = [
    ("geonce_entity", "bytea"),
    ("geonce_version", "text"),
    ("geonce_id", "uuid"),
    ("geonce_content", "bytea"),
    ("geonce_old", "boolean"),
    ("geonce_old_fid", "bigint"),
    ("geonce_old_key", "text"),
];

/// What became of a feature.
pub(super) enum Encoded {
    Row,
    /// The layer takes no such row.
    Refused(Cause),
    /// It has something to say for which there is no column.
    NeedsOther,
}

/// Rows on their way.
pub(super) struct Encoder<'l> {
    layer: &'l Layer,
    slots: &'l Slots,
    crs: u32,
    event: &'l str,
    columns: i16,
    geometry: Vec<u8>,
    text: String,
    other: String,
    /// The columns of a row after the first three.
    cells: Vec<u8>,
    bytes: Vec<u8>,
}

impl<'l> Encoder<'l> {
    pub(super) fn new(layer: &'l Layer, slots: &'l Slots, crs: u32, event: &'l str, beside: bool) -> Encoder<'l> {
        let columns = 3 + slots.columns().count() + usize::from(layer.columns.has_other());
        let columns = columns + if beside { BESIDE.len() } else { 0 };
        Encoder {
            layer,
            slots,
            crs,
            event,
            columns: i16::try_from(columns).unwrap_or(i16::MAX),
            geometry: Vec::new(),
            text: String::new(),
            other: String::new(),
            cells: Vec::new(),
            bytes: HEADER.to_vec(),
        }
    }

    /// How much there is to be sent.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a row.
    pub(super) fn add(&mut self, piece: &Piece, beside: Option<&Beside<'_>>) -> Encoded {
        self.geometry.clear();
        if let Some(shape) = &piece.geometry {
            match self.layer.admits(shape) {
                Ok(as_multi) => {
                    wkb::append(shape, Dialect::Extended(Some(self.crs)), as_multi, &mut self.geometry);
                }
                Err(cause) => return Encoded::Refused(cause),
            }
        }
        let (columns, cells) = (&self.layer.columns, &mut self.cells);
        cells.clear();
        let filled = self.slots.each(columns, &piece.values, &mut self.other, |column, value| {
            let written = cell(columns.list()[column].kind, &value, cells);
            written.then_some(()).ok_or_else(|| {
                let message = format!("{:?} cannot be sent to the column {:?}", value, columns.list()[column].name);
                Cause::new(Class::Schema, "value", message)
            })
        });
        if let Err(cause) = filled {
            return Encoded::Refused(cause);
        }
        match (self.other.is_empty(), columns.has_other()) {
            (false, false) => return Encoded::NeedsOther,
            (false, true) => bytes(self.other.as_bytes(), cells),
            (true, true) => null(cells),
            (true, false) => {}
        }
        if let Some(beside) = beside {
            append_beside(beside, cells);
        }
        self.text.clear();
        piece.key.write(Encoding::Base64, &mut self.text);
        self.bytes.extend_from_slice(&self.columns.to_be_bytes());
        if piece.geometry.is_some() {
            bytes(&self.geometry, &mut self.bytes);
        } else {
            null(&mut self.bytes);
        }
        bytes(self.text.as_bytes(), &mut self.bytes);
        bytes(self.event.as_bytes(), &mut self.bytes);
        self.bytes.extend_from_slice(&self.cells);
        Encoded::Row
    }

    /// All rows, to be sent.
    pub(super) fn finish(mut self) -> bytes::Bytes {
        self.bytes.extend_from_slice(&TRAILER);
        self.bytes.into()
    }
}

/// The columns of a layer that rows have, quoted, in the order of [`Encoder`].
pub(super) fn names(layer: &Layer, slots: &Slots) -> Vec<String> {
    let mut names = vec![quoted(&layer.geometry), "geonce_key".to_owned(), "geonce_event".to_owned()];
    names.extend(slots.columns().map(|column| quoted(&layer.columns.list()[column].name)));
    if layer.columns.has_other() {
        names.push(OTHER.to_owned());
    }
    names
}

fn append_beside(beside: &Beside<'_>, cells: &mut Vec<u8>) {
    bytes(beside.entity, cells);
    bytes(beside.version.as_bytes(), cells);
    bytes(&beside.key, cells);
    bytes(beside.content, cells);
    bytes(&[u8::from(beside.old.is_some())], cells);
    match &beside.old {
        None => {
            null(cells);
            null(cells);
        }
        Some((fid, key)) => {
            match fid {
                Some(fid) => bytes(&fid.to_be_bytes(), cells),
                None => null(cells),
            }
            bytes(key.as_bytes(), cells);
        }
    }
}

fn null(out: &mut Vec<u8>) {
    out.extend_from_slice(&(-1_i32).to_be_bytes());
}

fn bytes(value: &[u8], out: &mut Vec<u8>) {
    // Nothing is larger: a value has been in memory that counts in 32 bits, and the server takes a gigabyte.
    out.extend_from_slice(&i32::try_from(value.len()).unwrap_or(i32::MAX).to_be_bytes());
    out.extend_from_slice(value);
}

/// Writes a value as its column receives it; false where it cannot be.
fn cell(kind: Type, value: &Value<'_>, out: &mut Vec<u8>) -> bool {
    match (kind, value) {
        (_, Value::Null) => null(out),
        (_, Value::Boolean(boolean)) => bytes(&[u8::from(*boolean)], out),
        (Type::Integer(16), Value::Integer(integer)) => match i16::try_from(*integer) {
            Ok(integer) => bytes(&integer.to_be_bytes(), out),
            Err(_) => return false,
        },
        (Type::Integer(32), Value::Integer(integer)) => match i32::try_from(*integer) {
            Ok(integer) => bytes(&integer.to_be_bytes(), out),
            Err(_) => return false,
        },
        (_, Value::Integer(integer)) => bytes(&integer.to_be_bytes(), out),
        #[expect(clippy::cast_possible_truncation, reason = "what its owner wants rounded is rounded")]
        (Type::Single, Value::Real(real)) => bytes(&(*real as f32).to_be_bytes(), out),
        (_, Value::Real(real)) => bytes(&real.to_be_bytes(), out),
        (Type::Time, Value::Text(text)) => match micros(text) {
            Some(micros) => bytes(&micros.to_be_bytes(), out),
            None => return false,
        },
        (Type::Date, Value::Text(text)) => match days(text) {
            Some(days) => bytes(&days.to_be_bytes(), out),
            None => return false,
        },
        (Type::Uuid, Value::Text(text)) => match u128::from_str_radix(&text.replace('-', ""), 16) {
            Ok(uuid) => bytes(&uuid.to_be_bytes(), out),
            Err(_) => return false,
        },
        (Type::Decimal, Value::Text(text)) => match decimal(text) {
            Some(decimal) => bytes(&decimal, out),
            None => return false,
        },
        (Type::ParsedJson, Value::Text(text)) => {
            let length = i32::try_from(text.len() + 1).unwrap_or(i32::MAX);
            out.extend_from_slice(&length.to_be_bytes());
            // The version of the form.
            out.push(1);
            out.extend_from_slice(text.as_bytes());
        }
        (_, Value::Text(text)) => bytes(text.as_bytes(), out),
    }
    true
}

/// Microseconds since 2000, rounded as the server rounds them.
fn micros(text: &str) -> Option<i64> {
    let Some(Version::Time { seconds, fraction }) = Version::parse(text) else { return None };
    let digits = format!("{fraction:0<7}");
    let micros: i64 = digits[..6].parse().ok()?;
    let up = i64::from(digits.as_bytes()[6] >= b'5');
    (seconds - EPOCH_SECONDS).checked_mul(1_000_000)?.checked_add(micros + up)
}

/// Days since 2000.
fn days(text: &str) -> Option<i32> {
    let Some(Version::Time { seconds, .. }) = Version::parse(&format!("{text}T00:00:00Z")) else { return None };
    i32::try_from((seconds - EPOCH_SECONDS).div_euclid(DAY_SECONDS)).ok()
}

/// A decimal number: groups of four digits, where the first stands, the sign, and how many digits are shown after the point.
fn decimal(text: &str) -> Option<Vec<u8>> {
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i64 = exponent.parse().ok().filter(|exponent: &i64| exponent.abs() <= EXPONENT_MAX)?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    // Digits, and how many of them stand before the point.
    let mut digits = format!("{whole}{fraction}");
    let mut point = i64::try_from(whole.len()).ok()? + exponent;
    let shown = (i64::try_from(digits.len()).ok()? - point).max(0);
    let before = usize::try_from(point.rem_euclid(4)).ok()?;
    if before > 0 {
        digits.insert_str(0, &"0".repeat(4 - before));
        point += 4 - point.rem_euclid(4);
    }
    while digits.len() % 4 > 0 {
        digits.push('0');
    }
    let mut groups: Vec<i16> =
        digits.as_bytes().chunks(4).map(|four| four.iter().fold(0, |sum, d| sum * 10 + i16::from(d - b'0'))).collect();
    let leading = groups.iter().take_while(|&&group| group == 0).count();
    groups.drain(..leading);
    let weight = point / 4 - 1 - i64::try_from(leading).ok()?;
    while groups.last() == Some(&0) {
        groups.pop();
    }
    let weight = if groups.is_empty() { 0 } else { i16::try_from(weight).ok()? };
    let sign: u16 = if negative && !groups.is_empty() { 0x4000 } else { 0 };
    let mut out = Vec::with_capacity(8 + 2 * groups.len());
    out.extend_from_slice(&i16::try_from(groups.len()).ok()?.to_be_bytes());
    out.extend_from_slice(&weight.to_be_bytes());
    out.extend_from_slice(&sign.to_be_bytes());
    out.extend_from_slice(&i16::try_from(shown).ok()?.to_be_bytes());
    for group in groups {
        out.extend_from_slice(&group.to_be_bytes());
    }
    Some(out)
}
