//! How payloads are written: their form, white space between values, and numbers.

use super::found::Found;
use super::reading::Reading;
use super::{Reason, ReasonCode};
use crate::Form;

/// Feature or bare geometry, JSON, WKT or WKB; and white space.
pub(super) fn forms(a: &Reading<'_>, b: &Reading<'_>, found: &mut Found) {
    let name = |side: &Reading<'_>| match (side.form, &side.payload) {
        (Form::Json, Some(payload)) if payload.feature.is_some() => "a Feature",
        (Form::Json, _) => "a bare geometry in JSON",
        (Form::Wkt, _) => "WKT",
        (Form::Wkb, _) => "WKB",
        (Form::WkbHex, _) => "WKB in hexadecimal",
    };
    if name(a) != name(b) {
        found.removed(ReasonCode::Form, || Reason {
            a: name(a).to_owned(),
            b: name(b).to_owned(),
            message: format!("a is {}, b is {}", name(a), name(b)),
            ..Reason::new(ReasonCode::Form, "")
        });
    }
    let (Some(text_a), Some(text_b)) = (a.text, b.text) else { return };
    if text_a != text_b && has_other_space(text_a, text_b) {
        found.removed(ReasonCode::Whitespace, || Reason {
            message: "white space between values".to_owned(),
            ..Reason::new(ReasonCode::Whitespace, "")
        });
    }
}

/// Whether the white space between values differs, whatever else does: by its amount, or, where everything else
/// is equal, by its place.
fn has_other_space(a: &str, b: &str) -> bool {
    let [bare_a, bare_b] = [a, b].map(without_space);
    a.len() - bare_a.len() != b.len() - bare_b.len() || bare_a == bare_b
}

fn without_space(text: &str) -> Vec<u8> {
    let mut in_string = false;
    let mut escaped = false;
    let mut out = text.as_bytes().to_vec();
    out.retain(|&byte| {
        if escaped {
            escaped = false;
        } else if in_string && byte == b'\\' {
            escaped = true;
        } else if byte == b'"' {
            in_string = !in_string;
        }
        in_string || !matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
    });
    out
}

/// How the texts of one number differ.
pub(super) fn number_note(a: &str, b: &str) -> Option<ReasonCode> {
    let is_minus_zero = |text: &str| text.starts_with('-') && text.parse::<f64>() == Ok(0.0);
    if a == b {
        None
    } else if is_minus_zero(a) != is_minus_zero(b) {
        Some(ReasonCode::MinusZero)
    } else {
        Some(ReasonCode::NumberForm)
    }
}
