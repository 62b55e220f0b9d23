//! Strict JSON (RFC 8259, RFC 7493) into a flat tape of nodes, in one pass over the bytes.
//!
//! What is on the tape is valid: UTF-8, no duplicate member after unescaping, no lone surrogate, finite
//! numbers, depth and sizes within [`Limits`]. Numbers keep their exact decimal value. Nothing is copied: nodes
//! point into the text.

mod scan;

pub(crate) use scan::parse;

use crate::decimal::Decimal;
use crate::{Limits, Result};
use std::borrow::Cow;

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    Null,
    False,
    True,
    /// Few enough digits that the text is the shortest decimal: `value` × 10^`exponent`.
    Exact,
    /// Any other number: `value` holds the double's bits.
    Float,
    String,
    Array,
    Object,
}

/// One value of the tape, followed by its children. An object's children alternate names and values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    /// Digits, double bits, string length, or `count << 32 | index after the last child`.
    value: u64,
    /// Where the text of the value starts; for strings, after the quote.
    start: u32,
    exponent: i16,
    pub(crate) tag: Tag,
    /// Negative number, or string with escapes.
    flag: bool,
}

impl Node {
    /// The number's exact decimal value where it is short, or the shortest decimal of its double.
    #[inline]
    pub(crate) fn decimal(&self) -> Option<Decimal> {
        match self.tag {
            Tag::Exact => Some(Decimal { negative: self.flag, digits: self.value, exponent: i32::from(self.exponent) }),
            Tag::Float => Some(Decimal::shortest(f64::from_bits(self.value))),
            _ => None,
        }
    }

    /// The grid value at `places` decimals of a number that has exactly so many: no rounding, no tie.
    #[inline]
    pub(crate) fn on_grid(&self, places: u8) -> Option<i64> {
        if self.tag != Tag::Exact || self.exponent != -i16::from(places) {
            return None;
        }
        let digits = self.value.cast_signed();
        Some(if self.flag { -digits } else { digits })
    }

    /// Members or elements of a container.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        (self.value >> 32) as usize
    }

    #[inline]
    fn end(&self, at: usize) -> usize {
        match self.tag {
            Tag::Array | Tag::Object => (self.value & 0xffff_ffff) as usize,
            _ => at + 1,
        }
    }
}

/// Memory of a scan, kept from one text to the next.
#[derive(Default)]
pub(crate) struct Tape {
    nodes: Vec<Node>,
    names: Vec<Name>,
}

/// A member name of an open object.
#[derive(Clone, Copy)]
struct Name {
    /// First bytes and length; names that differ here are different.
    sketch: u64,
    node: u32,
}

/// A parsed text.
pub(crate) struct Document<'a> {
    pub(crate) text: &'a str,
    pub(crate) nodes: &'a [Node],
}

impl Document<'_> {
    pub(crate) fn root(&self) -> Value<'_> {
        Value { document: self, at: 0 }
    }
}

/// Refuses a text that is not strict JSON within the limits, for callers who then read it by other means.
pub fn check(bytes: &[u8], limits: &Limits) -> Result<()> {
    parse(bytes, limits, &mut Tape::default()).map(|_| ())
}

/// One value of a document.
#[derive(Clone, Copy)]
pub(crate) struct Value<'a> {
    document: &'a Document<'a>,
    /// Index of the value's node; equal values of one document are told apart by it.
    pub(crate) at: usize,
}

impl<'a> Value<'a> {
    #[inline]
    pub(crate) fn node(self) -> &'a Node {
        &self.document.nodes[self.at]
    }

    #[inline]
    pub(crate) fn tag(self) -> Tag {
        self.node().tag
    }

    /// The `i`-th child of an array whose earlier children are not containers.
    #[inline]
    pub(crate) fn child(self, i: usize) -> Value<'a> {
        Value { document: self.document, at: self.at + 1 + i }
    }

    /// The value of the same document whose node is `at`.
    #[inline]
    pub(crate) fn sibling(self, at: usize) -> Value<'a> {
        Value { document: self.document, at }
    }

    pub(crate) fn is_number(self) -> bool {
        matches!(self.tag(), Tag::Exact | Tag::Float)
    }

    /// The value of a number as a double.
    pub(crate) fn as_f64(self) -> Option<f64> {
        match self.tag() {
            Tag::Float => Some(f64::from_bits(self.node().value)),
            Tag::Exact => {
                let node = self.node();
                let power = usize::from(node.exponent.unsigned_abs());
                // Digits below 2^53 and a power of ten below 10^23 are doubles, so one division is exact.
                let magnitude = if power <= 22 && node.exponent <= 0 {
                    #[expect(clippy::cast_precision_loss, reason = "exact digits are below 10^15")]
                    let digits = node.value as f64;
                    digits / DOUBLE_POW10[power]
                } else {
                    return self.number_text().parse().ok();
                };
                Some(if node.flag { -magnitude } else { magnitude })
            }
            _ => None,
        }
    }

    /// The text of a value, as written.
    pub(crate) fn text(self) -> &'a str {
        &self.document.text[self.span()]
    }

    /// Where its text is.
    pub(crate) fn span(self) -> std::ops::Range<usize> {
        let node = self.node();
        let start = node.start as usize - usize::from(node.tag == Tag::String);
        start..self.text_end()
    }

    fn text_end(self) -> usize {
        let start = self.node().start as usize;
        let after = match self.tag() {
            Tag::Null | Tag::True => return start + 4,
            Tag::False => return start + 5,
            Tag::Exact | Tag::Float => return start + self.number_text().len(),
            Tag::String => return start + self.raw_bytes().0.len() + 1,
            Tag::Array => self.elements().last(),
            Tag::Object => self.members().last().map(|(_, value)| value),
        };
        // Between the last child and the bracket there is nothing but white space.
        let from = after.map_or(start + 1, Value::text_end);
        let rest = &self.document.text.as_bytes()[from..];
        from + rest.iter().position(|b| matches!(b, b']' | b'}')).map_or(rest.len(), |at| at + 1)
    }

    /// The text of a number, as written.
    pub(crate) fn number_text(self) -> &'a str {
        let rest = &self.document.text[self.node().start as usize..];
        let end = rest.find(|c: char| !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E')).unwrap_or(rest.len());
        &rest[..end]
    }

    /// A string as written between its quotes, and whether it has escapes.
    #[inline]
    pub(crate) fn raw_string(self) -> Option<(&'a str, bool)> {
        let node = self.node();
        if node.tag != Tag::String {
            return None;
        }
        let start = node.start as usize;
        #[expect(clippy::cast_possible_truncation, reason = "string lengths are below the text's, which fits 32 bits")]
        let end = start + node.value as usize;
        Some((&self.document.text[start..end], node.flag))
    }

    /// The bytes of a string as written between its quotes, and whether it has escapes. Nothing for other values.
    #[inline]
    pub(crate) fn raw_bytes(self) -> (&'a [u8], bool) {
        let node = self.node();
        if node.tag != Tag::String {
            return (b"", false);
        }
        let start = node.start as usize;
        #[expect(clippy::cast_possible_truncation, reason = "string lengths are below the text's, which fits 32 bits")]
        let end = start + node.value as usize;
        (&self.document.text.as_bytes()[start..end], node.flag)
    }

    /// A string as written, quotes included.
    #[inline]
    pub(crate) fn quoted(self) -> &'a [u8] {
        let node = self.node();
        let start = node.start as usize;
        #[expect(clippy::cast_possible_truncation, reason = "string lengths are below the text's, which fits 32 bits")]
        let end = start + node.value as usize;
        &self.document.text.as_bytes()[start - 1..=end]
    }

    /// The first eight bytes of a string as a number that sorts as they do, padded with zeros.
    #[inline]
    pub(crate) fn prefix(self) -> u64 {
        let node = self.node();
        first_bytes(self.document.text.as_bytes(), node.start as usize, node.value).swap_bytes()
    }

    /// A string's characters.
    pub(crate) fn as_str(self) -> Option<Cow<'a, str>> {
        let (raw, escaped) = self.raw_string()?;
        Some(if escaped { Cow::Owned(unescape(raw)) } else { Cow::Borrowed(raw) })
    }

    /// Whether this is the string `text`.
    #[inline]
    pub(crate) fn is_str(self, text: &str) -> bool {
        match self.raw_bytes() {
            (raw, false) => raw == text.as_bytes() && self.tag() == Tag::String,
            (_, true) => self.as_str().is_some_and(|unescaped| unescaped == text),
        }
    }

    /// The elements of an array; nothing for other values.
    pub(crate) fn elements(self) -> impl Iterator<Item = Value<'a>> {
        let count = if self.tag() == Tag::Array { self.node().count() } else { 0 };
        let mut next = self.at + 1;
        (0..count).map(move |_| {
            let element = Value { document: self.document, at: next };
            next = element.node().end(next);
            element
        })
    }

    /// The members of an object, as name and value; nothing for other values.
    #[inline]
    pub(crate) fn members(self) -> impl Iterator<Item = (Value<'a>, Value<'a>)> {
        let count = if self.tag() == Tag::Object { self.node().count() } else { 0 };
        let mut next = self.at + 1;
        (0..count).map(move |_| {
            let name = Value { document: self.document, at: next };
            let value = Value { document: self.document, at: next + 1 };
            next = value.node().end(next + 1);
            (name, value)
        })
    }

    /// The member of this name.
    pub(crate) fn get(self, name: &str) -> Option<Value<'a>> {
        let count = if self.tag() == Tag::Object { self.node().count() } else { 0 };
        let mut at = self.at + 1;
        for _ in 0..count {
            let [key, value, ..] = &self.document.nodes[at..] else { return None };
            // Lengths differ mostly, and are cheaper to compare than texts.
            if (key.value == name.len() as u64 || key.flag) && self.sibling(at).is_str(name) {
                return Some(self.sibling(at + 1));
            }
            at = value.end(at + 1);
        }
        None
    }

    /// The value at an already split JSON pointer.
    pub(crate) fn at_tokens(self, tokens: &[String]) -> Option<Value<'a>> {
        tokens.iter().try_fold(self, |value, token| match value.tag() {
            Tag::Object => value.get(token),
            Tag::Array => value.elements().nth(array_index(token)?),
            _ => None,
        })
    }
}

/// An array index of RFC 6901 section 4: digits without a leading zero.
fn array_index(token: &str) -> Option<usize> {
    let canonical = token == "0" || (!token.starts_with('0') && token.bytes().all(|b| b.is_ascii_digit()));
    if canonical { token.parse().ok() } else { None }
}

/// A member name as a pointer token with its slash (RFC 6901 section 3).
pub(crate) fn pointer_token(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// The characters of a string the scanner has accepted.
pub(crate) fn unescape(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(slash) = rest.find('\\') {
        out.push_str(&rest[..slash]);
        let escape = rest.as_bytes()[slash + 1];
        rest = &rest[slash + 2..];
        match escape {
            b'b' => out.push('\u{8}'),
            b'f' => out.push('\u{c}'),
            b'n' => out.push('\n'),
            b'r' => out.push('\r'),
            b't' => out.push('\t'),
            b'u' => {
                let mut code = u32::from_str_radix(&rest[..4], 16).unwrap_or(0);
                rest = &rest[4..];
                if (0xd800..0xdc00).contains(&code) {
                    let low = u32::from_str_radix(&rest[2..6], 16).unwrap_or(0);
                    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                    rest = &rest[6..];
                }
                out.push(char::from_u32(code).unwrap_or('\u{fffd}'));
            }
            other => out.push(char::from(other)),
        }
    }
    out.push_str(rest);
    out
}

const DOUBLE_POW10: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// Eight bytes from `at` on, the first in the lowest byte.
#[inline]
fn eight(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|chunk| u64::from_le_bytes(*chunk))
}

/// The first eight of `length` bytes from `at` on, the first in the lowest byte, padded with zeros.
#[inline]
fn first_bytes(bytes: &[u8], at: usize, length: u64) -> u64 {
    match eight(bytes, at) {
        Some(chunk) if length >= 8 => chunk,
        Some(chunk) => chunk & ((1 << (length * 8)) - 1),
        None => {
            let mut padded = [0; 8];
            for (slot, &byte) in padded.iter_mut().zip(bytes.iter().skip(at)).take(length.min(8) as usize) {
                *slot = byte;
            }
            u64::from_le_bytes(padded)
        }
    }
}
