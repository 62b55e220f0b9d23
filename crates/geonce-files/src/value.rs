//! Values of fields, however a format keeps them, and what becomes of a feature that has one that cannot be read.
//!
//! A value fits the kind of its field, or the feature is a [`Fault`]; nothing is guessed, rounded or cut.

use crate::{BAD_BYTES_MAX, Bad, Item, calendar};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use geonce_key::{Limits, Property, Shape, wkb};
use serde_json::Value;

/// Why a feature cannot be read.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Fault {
        Fault { code, message: message.into() }
    }

    /// The same, about a field.
    pub(crate) fn of(mut self, field: &str) -> Fault {
        self.message = format!("field {field}: {}", self.message);
        self
    }

    /// The feature that it is about.
    pub(crate) fn item(self, number: u64, mut bytes: Vec<u8>) -> Item {
        bytes.truncate(BAD_BYTES_MAX);
        Item::Bad(Bad { number, code: self.code, message: self.message, bytes })
    }
}

/// What a value or a geometry comes to.
pub(crate) type Read<T> = Result<T, Fault>;

/// A geometry from its WKB.
pub(crate) fn geometry(bytes: &[u8], limits: &Limits) -> Read<Shape<f64>> {
    match wkb::read(bytes, limits) {
        Ok(delivered) => Ok(delivered.shape),
        Err(error) => {
            let hint = error.hint_text().map(|hint| format!("; {hint}")).unwrap_or_default();
            Err(Fault::new(error.code().as_str(), format!("geometry: {}{hint}", error.message())))
        }
    }
}

/// A value that its field cannot hold.
pub(crate) fn unfit(what: &str, expected: &str) -> Fault {
    let what: String = what.chars().take(60).collect();
    Fault::new("value_kind", format!("{what:?} is no {expected}"))
}

pub(crate) fn text(bytes: &[u8]) -> Read<&str> {
    std::str::from_utf8(bytes).map_err(|_| Fault::new("text_encoding", "the text is not UTF-8"))
}

/// Bytes have no place in GeoJSON: they are given as Base64.
pub(crate) fn binary(bytes: &[u8]) -> Property {
    Property::Text(STANDARD.encode(bytes))
}

/// A number; one that is missing is written as not-a-number where a format has no other way.
pub(crate) fn real(number: f64) -> Read<Property> {
    match number {
        number if number.is_finite() => Ok(Property::Real(number)),
        number if number.is_nan() => Ok(Property::Null),
        number => Err(unfit(&number.to_string(), "finite number")),
    }
}

/// A whole number without sign.
pub(crate) fn unsigned(number: u64) -> Read<Property> {
    i64::try_from(number)
        .map(Property::Integer)
        .map_err(|_| unfit(&number.to_string(), "number of 64 bits with a sign"))
}

pub(crate) fn date(text: &str) -> Read<Property> {
    if text.is_empty() {
        return Ok(Property::Null);
    }
    calendar::date(text).map(Property::Text).ok_or_else(|| unfit(text, "date"))
}

pub(crate) fn date_time(text: &str) -> Read<Property> {
    if text.is_empty() {
        return Ok(Property::Null);
    }
    calendar::date_time(text).map(Property::Text).ok_or_else(|| unfit(text, "date and time"))
}

/// A value written as JSON.
pub(crate) fn json(text: &str) -> Read<Property> {
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(_) if text.trim().is_empty() => return Ok(Property::Null),
        Err(error) => return Err(Fault::new("value_json", format!("not JSON: {error}"))),
    };
    Ok(match value {
        Value::Null => Property::Null,
        Value::Bool(boolean) => Property::Boolean(boolean),
        Value::String(string) => Property::Text(string),
        Value::Number(number) if number.is_i64() => Property::Integer(number.as_i64().unwrap_or_default()),
        Value::Number(number) if text.contains(['.', 'e', 'E']) => real(number.as_f64().unwrap_or(f64::NAN))?,
        Value::Number(_) | Value::Array(_) | Value::Object(_) => Property::Json(text.trim().to_owned()),
    })
}

/// A feature that could not be read, as JSON: its values as far as they can be written, and its geometry in hexadecimal digits.
pub(crate) fn original<'a>(values: impl Iterator<Item = (&'a str, Property)>, geometry: Option<&[u8]>) -> Vec<u8> {
    let mut properties = serde_json::Map::new();
    for (name, value) in values {
        properties.insert(name.to_owned(), json_value(value));
    }
    let hex = geometry.map(|bytes| hex(&bytes[..bytes.len().min(BAD_BYTES_MAX / 2)]));
    serde_json::json!({ "properties": properties, "geometry_hex": hex }).to_string().into_bytes()
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect()
}

/// The same value, as a JSON document has it.
pub(crate) fn json_value(value: Property) -> Value {
    match value {
        Property::Null => Value::Null,
        Property::Boolean(boolean) => boolean.into(),
        Property::Integer(integer) => integer.into(),
        Property::Real(real) => real.into(),
        Property::Text(text) => text.into(),
        Property::Json(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
    }
}
