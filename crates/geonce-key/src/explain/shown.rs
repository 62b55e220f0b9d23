//! How values, places and distances are written for people. Nothing here lets a payload steer a terminal.

use super::SHOWN_CHARS_MAX;
use crate::decimal::POW10;
use crate::json::{Tag, Value};
use crate::policy::Unicode;
use std::fmt::Write as _;

/// Cuts a text to [`SHOWN_CHARS_MAX`] and writes characters that a terminal would obey as escapes.
pub(super) fn shorten(text: &str) -> String {
    let mut out = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == SHOWN_CHARS_MAX {
            out.push('…');
            break;
        }
        if is_steering(c) {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// Control characters, and those that change the direction of text.
fn is_steering(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A value as delivered; containers in canonical form, since their text may be long and spread over lines.
pub(super) fn value(value: Option<Value<'_>>) -> String {
    match value.map(|value| (value, value.tag())) {
        None => String::new(),
        Some((value, Tag::String)) => shorten(&String::from_utf8_lossy(value.quoted())),
        Some((value, Tag::Exact | Tag::Float)) => shorten(value.number_text()),
        Some((value, _)) => canonical(Some(value), Unicode::Exact),
    }
}

/// A value as it is hashed.
pub(super) fn canonical(value: Option<Value<'_>>, unicode: Unicode) -> String {
    shorten(&String::from_utf8_lossy(&canonical_bytes(value, unicode)))
}

/// The canonical bytes of a value; none where it is absent.
pub(super) fn canonical_bytes(value: Option<Value<'_>>, unicode: Unicode) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(value) = value
        && (crate::jcs::Writer { unicode, skip: &[], bytes_max: usize::MAX }).value(value, &mut out).is_err()
    {
        out.clear();
    }
    out
}

/// A grid value in plain decimals: `0.0000002`, where canonical JSON writes `2e-7`.
pub(super) fn grid(value: i64, places: u8) -> String {
    let unit = POW10[usize::from(places)];
    let magnitude = value.unsigned_abs();
    let sign = if value < 0 { "-" } else { "" };
    if places == 0 {
        return format!("{sign}{magnitude}");
    }
    let width = usize::from(places);
    format!("{sign}{}.{:0width$}", magnitude / unit, magnitude % unit)
}

/// A distance with two or three digits: `1.1 mm`, `1.11 cm`, `12 m`, `3.4 km`.
pub(super) fn distance(metres: f64, digits: usize) -> String {
    let (value, unit) = match metres {
        m if m < 0.0001 => return "less than 0.1 mm".to_owned(),
        m if m < 0.01 => (m * 1000.0, "mm"),
        m if m < 1.0 => (m * 100.0, "cm"),
        m if m < 1000.0 => (m, "m"),
        m => (m / 1000.0, "km"),
    };
    let decimals = digits.saturating_sub(if value < 10.0 { 1 } else { 2 });
    format!("{value:.decimals$} {unit}")
}

/// A distance that was measured: `about 1.1 mm`.
pub(super) fn about(metres: f64) -> String {
    let text = distance(metres, 2);
    if text.starts_with("less") { text } else { format!("about {text}") }
}

/// One degree of a great circle on the mean sphere, in metres.
pub(super) const DEGREE_M: f64 = 111_195.080_233_532_9;

/// About how far apart two places are, in metres, on a sphere.
pub(super) fn metres([lon_a, lat_a]: [f64; 2], [lon_b, lat_b]: [f64; 2]) -> f64 {
    const RADIAN: f64 = std::f64::consts::PI / 180.0;
    let half = |degrees: f64| libm::sin(degrees * RADIAN / 2.0);
    let (across, along) = (half(lat_b - lat_a), half(lon_b - lon_a));
    let cosines = libm::cos(lat_a * RADIAN) * libm::cos(lat_b * RADIAN);
    let chord = libm::sqrt(across * across + cosines * along * along);
    2.0 * libm::asin(chord.min(1.0)) / RADIAN * DEGREE_M
}

/// A pointer as people write it: `/properties/list/0` is `properties.list[0]`.
pub(super) fn place(pointer: &str) -> String {
    let mut out = String::new();
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        if !token.is_empty() && token.bytes().all(|b| b.is_ascii_digit()) {
            let _ = write!(out, "[{token}]");
        } else if !token.is_empty() && token.chars().all(plain) {
            let dot = if out.is_empty() { "" } else { "." };
            let _ = write!(out, "{dot}{token}");
        } else {
            let _ = write!(out, "[\"{token}\"]");
        }
    }
    shorten(&out)
}
