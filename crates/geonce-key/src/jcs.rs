//! Canonical JSON (RFC 8785) from the tape, with `g1`'s one addition: large integers keep their digits.

use crate::decimal::write_integer;
use crate::json::{Tag, Value, pointer_token};
use crate::policy::Unicode;
use crate::{Code, Error, Result};
use std::borrow::Cow;
use std::cmp::Ordering;
use unicode_normalization::{UnicodeNormalization, is_nfc};

/// How values are written, and which ones are left out.
pub(crate) struct Writer<'s> {
    pub(crate) unicode: Unicode,
    /// Node indices of values that are left out, with their names.
    pub(crate) skip: &'s [usize],
    /// Bytes that may be written.
    pub(crate) bytes_max: usize,
}

impl Writer<'_> {
    /// Writes one value.
    pub(crate) fn value(&self, value: Value<'_>, out: &mut Vec<u8>) -> Result<()> {
        match value.tag() {
            Tag::Null => out.extend_from_slice(b"null"),
            Tag::False => out.extend_from_slice(b"false"),
            Tag::True => out.extend_from_slice(b"true"),
            Tag::Exact | Tag::Float => {
                number(value, out);
                // `1e300` is written with 301 digits: a small payload must not become a large one.
                if out.len() > self.bytes_max {
                    let message = format!("the identity written out has more than {} bytes", self.bytes_max);
                    return Err(Error::new(Code::LimitBytes, "", message));
                }
            }
            Tag::String => self.string(value, out),
            Tag::Array => {
                let mut separator = b'[';
                for (i, element) in value.elements().enumerate() {
                    if self.skip.contains(&element.at) {
                        continue;
                    }
                    out.push(separator);
                    separator = b',';
                    self.value(element, out).map_err(|e| e.under(&format!("/{i}")))?;
                }
                if separator == b'[' {
                    out.push(b'[');
                }
                out.push(b']');
            }
            Tag::Object => self.object(value, out)?,
        }
        Ok(())
    }

    fn object(&self, value: Value<'_>, out: &mut Vec<u8>) -> Result<()> {
        if self.unicode == Unicode::Exact && value.node().count() <= SMALL {
            let mut small = [(0, 0); SMALL];
            let mut count = 0;
            let mut plain = true;
            for (name, member) in value.members() {
                if self.skip.contains(&member.at) {
                    continue;
                }
                let (raw, escaped) = name.raw_bytes();
                let prefix = name.prefix();
                let ascii = if raw.len() <= 8 { prefix & 0x8080_8080_8080_8080 == 0 } else { raw.is_ascii() };
                plain &= !escaped && ascii;
                small[count] = (prefix, name.at);
                count += 1;
            }
            if plain {
                return self.plain_object(value, &mut small[..count], out);
            }
        }
        self.any_object(value, out)
    }

    /// A small object whose names are ASCII: sorted on the stack, mostly by their first eight bytes.
    fn plain_object(&self, object: Value<'_>, names: &mut [(u64, usize)], out: &mut Vec<u8>) -> Result<()> {
        let raw = |at: usize| object.sibling(at).raw_bytes().0;
        names.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| raw(a.1).cmp(raw(b.1))));
        out.push(b'{');
        for (i, &(_, at)) in names.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            self.string(object.sibling(at), out);
            out.push(b':');
            self.value(object.sibling(at + 1), out)
                .map_err(|e| e.under(&pointer_token(&String::from_utf8_lossy(raw(at)))))?;
        }
        out.push(b'}');
        Ok(())
    }

    /// Any object: names are unescaped and normalised before they are compared.
    fn any_object(&self, object: Value<'_>, out: &mut Vec<u8>) -> Result<()> {
        let mut members: Vec<(Cow<'_, str>, Value<'_>)> = object
            .members()
            .filter(|(_, value)| !self.skip.contains(&value.at))
            .map(|(name, value)| (self.text(name), value))
            .collect();
        members.sort_unstable_by(|a, b| compare(&a.0, &b.0));
        if let Some(pair) = members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let message = format!("the member {:?} occurs twice after normalisation", pair[0].0);
            return Err(Error::new(Code::JsonDuplicateMember, pointer_token(&pair[0].0), message));
        }
        out.push(b'{');
        for (i, (name, value)) in members.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            write_string(name, out);
            out.push(b':');
            self.value(*value, out).map_err(|e| e.under(&pointer_token(name)))?;
        }
        out.push(b'}');
        Ok(())
    }

    fn text<'a>(&self, value: Value<'a>) -> Cow<'a, str> {
        let text = value.as_str().unwrap_or_default();
        if self.unicode == Unicode::Nfc && !is_nfc(&text) { Cow::Owned(text.nfc().collect()) } else { text }
    }

    fn string(&self, value: Value<'_>, out: &mut Vec<u8>) {
        let (_, escaped) = value.raw_bytes();
        if escaped || self.unicode != Unicode::Exact {
            return write_string(&self.text(value), out);
        }
        // Without escapes the text holds nothing that RFC 8785 would escape.
        out.extend_from_slice(value.quoted());
    }
}

/// Members of an object that is put in order without taking memory.
const SMALL: usize = 16;

/// Compares two texts by UTF-16 code units, as RFC 8785 section 3.2.3 asks. This differs from byte order only
/// where a character beyond U+FFFF meets one from U+E000 on.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    let rank = |byte: u8| if byte == 0xee || byte == 0xef { byte + 0x10 } else { byte };
    a.bytes().map(rank).cmp(b.bytes().map(rank))
}

/// Writes a string with the escapes of RFC 8785 section 3.2.2.2 and no others.
pub(crate) fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in text.as_bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x09 => out.extend_from_slice(b"\\t"),
            0x0a => out.extend_from_slice(b"\\n"),
            0x0c => out.extend_from_slice(b"\\f"),
            0x0d => out.extend_from_slice(b"\\r"),
            0x00..0x20 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// Writes a number: as ECMAScript would, except that integers beyond ±(2^53 − 1) keep their digits however
/// they are spelled.
fn number(value: Value<'_>, out: &mut Vec<u8>) {
    if value.tag() == Tag::Float
        && let Some((negative, digits, zeros)) = large_integer(value.number_text())
    {
        if negative {
            out.push(b'-');
        }
        return write_integer(&digits, zeros, out);
    }
    if let Some(decimal) = value.node().decimal() {
        decimal.write(out);
    }
}

/// The sign, digits and number of zeros of a decimal text that stands for an integer beyond ±(2^53 − 1).
fn large_integer(text: &str) -> Option<(bool, Vec<u8>, i32)> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let (negative, whole) = whole.strip_prefix('-').map_or((false, whole), |rest| (true, rest));
    let digits = [whole, fraction].concat();
    let digits = digits.trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    let dropped = i32::try_from(digits.len() - significant.len()).ok()?;
    let zeros = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?.checked_add(dropped)?;
    if significant.is_empty() || zeros < 0 {
        return None;
    }
    let length = significant.len() + zeros.unsigned_abs() as usize;
    let large = length > 16 || (length == 16 && format!("{significant:0<16}").as_str() > "9007199254740991");
    large.then(|| (negative, significant.as_bytes().to_vec(), zeros))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::json::{Tape, parse};

    fn canonical(text: &str) -> String {
        let mut tape = Tape::default();
        let document = parse(text.as_bytes(), &Limits::default(), &mut tape).unwrap();
        let mut out = Vec::new();
        Writer { unicode: Unicode::Exact, skip: &[], bytes_max: usize::MAX }.value(document.root(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_are_written_as_rfc_8785_says() {
        for (text, expected) in [
            (r#"{ "b" : 1.0 , "a" : [ ] }"#, r#"{"a":[],"b":1}"#),
            (r#"["\u20ac$\u000f\nA'\u0042\u0022\u005c\\\"\/"]"#, r#"["€$\u000f\nA'B\"\\\\\"/"]"#),
            (
                r"[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001]",
                "[333333333.3333333,1000000000000000000000000000000,4.5,0.002,1e-27]",
            ),
            (r#"{"\ud83d\ude00":1,"\ufb33":2,"\u00f6":3,"1":4}"#, "{\"1\":4,\"ö\":3,\"😀\":1,\"\u{fb33}\":2}"),
            ("[1e0,10e-1,1.000,-0,-0.0,0e5]", "[1,1,1,0,0,0]"),
        ] {
            assert_eq!(canonical(text), expected);
        }
    }

    #[test]
    fn large_integers_keep_their_digits_whatever_their_spelling() {
        for (text, expected) in [
            ("9007199254740991", "9007199254740991"),
            ("9007199254740993", "9007199254740993"),
            ("9007199254740993.0", "9007199254740993"),
            ("900719925474099300e-2", "9007199254740993"),
            ("-9007199254740992", "-9007199254740992"),
            ("1e23", "100000000000000000000000"),
            ("100000000000000000000000", "100000000000000000000000"),
            ("12345678901234567890123", "12345678901234567890123"),
            ("9007199254740993.5", "9007199254740994"),
            ("0.1234567890123456789", "0.12345678901234568"),
            ("18014398509481985.25", "18014398509481984"),
        ] {
            assert_eq!(canonical(text), expected, "{text}");
        }
    }
}
