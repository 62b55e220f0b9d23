//! What an `hmac` signature is computed over: a template of literals and placeholders.
//!
//! Two different requests never fill a template to the same bytes. Placeholders are apart, and a value that holds
//! the text that ends it is refused: otherwise `a.b` and `c` would sign like `a` and `b.c`.

use super::{Request, Unverified, single};
use hyper::header::HeaderName;

/// The most placeholders in a template.
pub const FIELDS_MAX: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Field {
    Method,
    Path,
    Header(HeaderName),
    Timestamp,
    Body,
}

/// A template that has been understood.
#[derive(Clone, Debug)]
pub(super) struct Template {
    opening: String,
    /// Each placeholder and the literal after it.
    fields: Vec<(Field, String)>,
    body: usize,
}

impl Template {
    /// Reads a template; the error says what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Template, String> {
        let mut opening = String::new();
        let mut fields: Vec<(Field, String)> = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (literal, from) = rest.split_at(at);
            fields.last_mut().map_or(&mut opening, |(_, after)| after).push_str(literal);
            let Some((name, after)) = from.strip_prefix('{').and_then(|inner| inner.split_once('}')) else {
                return Err("a brace stands alone".to_owned());
            };
            fields.push((field(name)?, String::new()));
            rest = after;
        }
        fields.last_mut().map_or(&mut opening, |(_, after)| after).push_str(rest);
        if fields.len() > FIELDS_MAX {
            return Err(format!("it has more than {FIELDS_MAX} placeholders"));
        }
        let bodies: Vec<usize> = (0..fields.len()).filter(|&at| fields[at].0 == Field::Body).collect();
        let [body] = bodies[..] else {
            return Err("it must hold {body} once: a signature that leaves out the body protects nothing".to_owned());
        };
        if fields.iter().rev().skip(1).any(|(_, after)| after.is_empty()) {
            return Err("two placeholders touch: bytes could move from one to the other unnoticed".to_owned());
        }
        Ok(Template { opening, fields, body })
    }

    /// Whether the time is signed.
    pub(super) fn has_timestamp(&self) -> bool {
        self.fields.iter().any(|(field, _)| *field == Field::Timestamp)
    }

    /// The headers that are signed, in lower case.
    pub(super) fn headers(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().filter_map(|(field, _)| match field {
            Field::Header(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// The bytes that are signed, in parts.
    pub(super) fn fill<'a>(&'a self, request: &Request<'a>, timestamp: &'a [u8]) -> Result<Vec<&'a [u8]>, Unverified> {
        let mut parts = vec![self.opening.as_bytes()];
        for (at, (field, after)) in self.fields.iter().enumerate() {
            let value = match field {
                Field::Method => request.method.as_bytes(),
                Field::Path => request.path.as_bytes(),
                Field::Header(name) => single(request.headers, name.as_str())?,
                Field::Timestamp => timestamp,
                Field::Body => request.body,
            };
            // Before the body the bytes are read from the left, behind it from the right: the body may hold anything.
            let clear = match at.cmp(&self.body) {
                std::cmp::Ordering::Less => ends_at_first(value, after.as_bytes()),
                std::cmp::Ordering::Equal => true,
                std::cmp::Ordering::Greater => begins_at_last(self.fields[at - 1].1.as_bytes(), value),
            };
            if !clear {
                return Err(Unverified::Malformed);
            }
            parts.extend([value, after.as_bytes()]);
        }
        Ok(parts)
    }
}

fn field(name: &str) -> Result<Field, String> {
    match name.split_once(':') {
        None if name == "method" => Ok(Field::Method),
        None if name == "path" => Ok(Field::Path),
        None if name == "timestamp" => Ok(Field::Timestamp),
        None if name == "body" => Ok(Field::Body),
        Some(("header", header)) => HeaderName::from_bytes(header.as_bytes())
            .map(Field::Header)
            .map_err(|_| format!("{header:?} is no header name")),
        _ => Err(format!(
            "{{{name}}} is unknown; there are {{method}}, {{path}}, {{header:name}}, {{timestamp}}, {{body}}"
        )),
    }
}

/// Whether `separator` first occurs in `value` + `separator` where `value` ends.
fn ends_at_first(value: &[u8], separator: &[u8]) -> bool {
    let joined = [value, separator].concat();
    joined.windows(separator.len()).position(|window| window == separator) == Some(value.len())
}

/// Whether `separator` last occurs in `separator` + `value` where that begins.
fn begins_at_last(separator: &[u8], value: &[u8]) -> bool {
    let joined = [separator, value].concat();
    joined.windows(separator.len()).rposition(|window| window == separator) == Some(0)
}
