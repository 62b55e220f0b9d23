//! Lines: `{"key":…,"event":…,"source":…,"received":…,"feature":{…}}`, written and recognised.
//!
//! JSON is kept as it was delivered, without the white space between its tokens. WKT and WKB become a Feature in WGS 84.
//! A line's key and event stand at its beginning, so that reading lines again takes no memory for the rest.

use super::failure;
use crate::error::{Error, Result};
use crate::event::{Cause, Class, EventId};
use crate::sink::Outgoing;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use geonce_key::{Encoding, Form, geojson};
use std::io::{BufRead, Write as _};
use std::path::Path;

/// Key and event take less than this at the beginning of a line.
const HEAD_BYTES_MAX: usize = 128;
const WGS84: u32 = 4326;

/// Appends an event's line. What is appended before a refusal is for the caller to take back.
pub(super) fn write(outgoing: &Outgoing, approximate_crs: bool, out: &mut Vec<u8>) -> std::result::Result<(), Cause> {
    let key = outgoing.key.text(Encoding::Base64);
    // Writing to memory does not fail.
    let _ = write!(out, r#"{{"key":"{key}","event":"{}","source":"#, outgoing.event);
    write_string(&outgoing.source, out);
    let _ = write!(out, r#","received":"{}","feature":"#, outgoing.received);
    match outgoing.form {
        Form::Json => compact(&outgoing.payload, out)?,
        Form::Wkt | Form::Wkb | Form::WkbHex => {
            let mut feature = outgoing.feature.clone();
            feature.place(WGS84, approximate_crs).map_err(|error| Cause::from(&error))?;
            feature.orient();
            out.extend_from_slice(br#"{"type":"Feature","geometry":"#);
            match &feature.geometry {
                Some(shape) => geojson::write(shape, out),
                None => out.extend_from_slice(b"null"),
            }
            out.extend_from_slice(br#","properties":{}}"#);
        }
    }
    out.extend_from_slice(b"}\n");
    Ok(())
}

/// Appends JSON without the white space between its tokens.
fn compact(json: &[u8], out: &mut Vec<u8>) -> std::result::Result<(), Cause> {
    let refuse = || Cause::new(Class::Schema, "json_syntax", "the payload is not JSON on one line");
    let mut rest = json;
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'"' | b' ' | b'\t' | b'\n' | b'\r')) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        if rest[0] == b'"' {
            let length = string_length(rest).ok_or_else(refuse)?;
            out.extend_from_slice(&rest[..length]);
            rest = &rest[length..];
        } else {
            rest = &rest[1..];
        }
    }
    out.extend_from_slice(rest);
    Ok(())
}

/// The length of the string that `text` begins with, quotes included; `None` where it has no end or breaks the line.
fn string_length(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            0..=31 => return None,
            _ => at += 1,
        }
    }
}

fn write_string(text: &str, out: &mut Vec<u8>) {
    let _ = write!(out, "{}", serde_json::Value::from(text));
}

/// Why lines could not be read again.
pub(super) enum Unread {
    File(std::io::Error),
    Keys(Error),
}

impl Unread {
    pub(super) fn of(self, path: &Path) -> Error {
        match self {
            Unread::File(error) => failure(path, "reading", error),
            Unread::Keys(error) => error,
        }
    }
}

/// Tells the key and the event of every line; `None` for a line that is none of ours.
pub(super) fn read_keys(
    reader: &mut impl BufRead,
    mut tell: impl FnMut(Option<([u8; 16], EventId)>) -> Result<()>,
) -> std::result::Result<(), Unread> {
    let mut head = Vec::with_capacity(HEAD_BYTES_MAX);
    let mut in_line = false;
    loop {
        let chunk = reader.fill_buf().map_err(Unread::File)?;
        if chunk.is_empty() {
            return Ok(());
        }
        let newline = chunk.iter().position(|&byte| byte == b'\n');
        let length = newline.unwrap_or(chunk.len());
        let room = (HEAD_BYTES_MAX - head.len()).min(length);
        head.extend_from_slice(&chunk[..room]);
        in_line = in_line || length > 0;
        reader.consume(newline.map_or(length, |at| at + 1));
        if newline.is_some() {
            if in_line {
                tell(read_head(&head)).map_err(Unread::Keys)?;
            }
            head.clear();
            in_line = false;
        }
    }
}

fn read_head(head: &[u8]) -> Option<([u8; 16], EventId)> {
    let text = String::from_utf8_lossy(head);
    let (key, rest) = text.strip_prefix(r#"{"key":"g1"#)?.split_once(r#"","event":""#)?;
    let key = key.strip_prefix("k_").or_else(|| key.strip_prefix('_'))?;
    let (event, _) = rest.split_once('"')?;
    let key = URL_SAFE_NO_PAD.decode(key).ok()?.try_into().ok()?;
    Some((key, event.parse().ok()?))
}
