//! Payloads for people and for export. Numbers and text stay as they were sent; only white space changes.

use crate::show::{escaped, hex};
use geonce_key::Form;
use geonce_key::policy::DEPTH_MAX;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::fmt::Write;

/// An array of values without parts is kept on one line up to this length.
const LINE_CHARS_MAX: usize = 100;

/// One line of a payload, and whether it is the one to blame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) text: String,
    pub(crate) marked: bool,
}

/// A payload laid out in lines. The value at `pointer` is marked.
pub(crate) fn lines(bytes: &[u8], form: Form, pointer: Option<&str>) -> Vec<Line> {
    let plain = |text: String| vec![Line { text, marked: false }];
    match (form, std::str::from_utf8(bytes)) {
        (Form::Wkb, _) | (_, Err(_)) => plain(hex(bytes)),
        (Form::Json, Ok(text)) if is_json(text) => {
            let mut layout = Layout { rest: text, lines: Vec::new(), current: String::new(), marked: false, pointer };
            layout.value(0, &mut String::new());
            layout.end_line(0);
            layout.lines
        }
        (_, Ok(text)) => text.lines().map(|line| Line { text: escaped(line), marked: false }).collect(),
    }
}

/// Whether the text is one JSON value, nested no deeper than can be laid out by recursion.
fn is_json(text: &str) -> bool {
    let (mut depth, mut in_string, mut escape) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escape => escape = false,
            b'\\' if in_string => escape = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => depth += 1,
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return false;
        }
    }
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Appends a payload to an object of JSON that is not closed yet: `payload` as it was sent where it is JSON,
/// `payload_text` or `payload_hex` otherwise.
pub(crate) fn append(object: &mut String, bytes: &[u8], form: Form) {
    let text = std::str::from_utf8(bytes).ok().filter(|_| form != Form::Wkb);
    let (name, value) = match text {
        // In JSON a line break can only be white space between values.
        Some(text) if form == Form::Json && is_json(text) => ("payload", text.replace(['\n', '\r'], " ")),
        Some(text) => ("payload_text", Value::from(text).to_string()),
        None => ("payload_hex", Value::from(hex(bytes)).to_string()),
    };
    // Text takes whatever is written to it.
    let _ = write!(object, ",\"{name}\":{value}");
}

/// The content type of a payload as it was sent.
pub(crate) fn content_type(bytes: &[u8], form: Form) -> &'static str {
    let text = std::str::from_utf8(bytes).ok();
    match (form, text) {
        (Form::Json, Some(text)) if is_json(text) => "application/json",
        (Form::Wkt, Some(_)) => "application/wkt",
        (Form::WkbHex, Some(_)) => "text/plain; charset=utf-8",
        (Form::Wkb, _) => "application/wkb",
        // What was refused may be anything.
        _ => "application/octet-stream",
    }
}

/// The word for a form.
pub(crate) fn form_word(form: Form) -> &'static str {
    match form {
        Form::Json => "json",
        Form::Wkt => "wkt",
        Form::Wkb => "wkb",
        Form::WkbHex => "wkb-hex",
    }
}

/// JSON that is being laid out. The text is known to be valid.
struct Layout<'a> {
    rest: &'a str,
    lines: Vec<Line>,
    current: String,
    marked: bool,
    pointer: Option<&'a str>,
}

impl<'a> Layout<'a> {
    fn value(&mut self, depth: usize, path: &mut String) {
        self.rest = self.rest.trim_start();
        if self.pointer.is_some_and(|pointer| !pointer.is_empty() && pointer == path) {
            self.marked = true;
        }
        match self.rest.as_bytes().first() {
            Some(b'{') => self.container(depth, path, '}'),
            Some(b'[') => match self.short_array() {
                Some(text) => {
                    let inside = self.pointer.and_then(|pointer| pointer.strip_prefix(path.as_str()));
                    let index = inside.and_then(|inside| inside.strip_prefix('/'));
                    self.marked |= index.is_some_and(|index| index.parse::<usize>().is_ok());
                    self.current.push_str(&escaped(&text));
                }
                None => self.container(depth, path, ']'),
            },
            _ => {
                let literal = self.literal();
                self.current.push_str(&escaped(literal));
            }
        }
    }

    fn container(&mut self, depth: usize, path: &mut String, close: char) {
        let open = self.rest.chars().next().unwrap_or(close);
        self.current.push(open);
        self.rest = self.rest[1..].trim_start();
        let mut index = 0;
        while !self.rest.starts_with(close) && !self.rest.is_empty() {
            if index > 0 {
                self.rest = self.rest[1..].trim_start();
                self.current.push(',');
            }
            self.end_line(depth + 1);
            let length = path.len();
            path.push('/');
            if close == '}' {
                let raw = self.literal();
                self.current.push_str(&escaped(raw));
                self.current.push_str(": ");
                let name: String = serde_json::from_str(raw).unwrap_or_default();
                path.push_str(&name.replace('~', "~0").replace('/', "~1"));
                self.rest = self.rest.trim_start().strip_prefix(':').unwrap_or(self.rest);
            } else {
                path.push_str(&index.to_string());
            }
            self.value(depth + 1, path);
            path.truncate(length);
            self.rest = self.rest.trim_start();
            index += 1;
        }
        self.rest = self.rest.get(1..).unwrap_or_default();
        if index > 0 {
            self.end_line(depth);
        }
        self.current.push(close);
    }

    /// A string, number or word, as it is written.
    fn literal(&mut self) -> &'a str {
        let bytes = self.rest.as_bytes();
        let mut end = 0;
        if bytes.first() == Some(&b'"') {
            end = 1;
            while end < bytes.len() && bytes[end] != b'"' {
                end += if bytes[end] == b'\\' { 2 } else { 1 };
            }
            end += 1;
        } else {
            while end < bytes.len() && !matches!(bytes[end], b',' | b']' | b'}' | b':' | b' ' | b'\n' | b'\r' | b'\t') {
                end += 1;
            }
        }
        let (literal, rest) = self.rest.split_at(end.min(self.rest.len()));
        self.rest = rest;
        literal
    }

    /// An array whose elements have no parts, if it is short: a position reads better on one line.
    fn short_array(&mut self) -> Option<String> {
        let before = self.rest;
        let mut text = String::from("[");
        self.rest = self.rest[1..].trim_start();
        while !self.rest.starts_with(']') {
            if text.len() > 1 {
                self.rest = self.rest.get(1..)?.trim_start();
                text.push_str(", ");
            }
            if self.rest.starts_with(['[', '{']) || text.len() > LINE_CHARS_MAX {
                self.rest = before;
                return None;
            }
            text.push_str(self.literal());
            self.rest = self.rest.trim_start();
        }
        self.rest = &self.rest[1..];
        text.push(']');
        Some(text)
    }

    fn end_line(&mut self, depth: usize) {
        let text = std::mem::replace(&mut self.current, "  ".repeat(depth));
        self.lines.push(Line { text, marked: std::mem::take(&mut self.marked) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, pointer: &str) -> String {
        let mark = |line: Line| format!("{}{}\n", if line.marked { "> " } else { "  " }, line.text);
        lines(text.as_bytes(), Form::Json, Some(pointer)).into_iter().map(mark).collect()
    }

    #[test]
    fn a_payload_is_laid_out_without_changing_a_number() {
        let text = r#"{"type":"Point" , "coordinates":[1340e-2, 52.50],"properties":{"a":[],"b":{},"n":null},"deep":[[1],[2]]}"#;
        let expected = "  {\n    \"type\": \"Point\",\n>   \"coordinates\": [1340e-2, 52.50],\n    \"properties\": {\n      \"a\": [],\n      \"b\": {},\n      \"n\": null\n    },\n    \"deep\": [\n      [1],\n      [2]\n    ]\n  }\n";
        assert_eq!(shown(text, "/coordinates/1"), expected);
        assert!(!shown(text, "").contains('>'));
        assert!(shown(text, "/properties/n").contains(">     \"n\": null"));
        assert!(shown(text, "/deep/1").contains(">     [2]"));
        let again: Value = serde_json::from_str(&shown(text, "")).unwrap();
        assert_eq!(again, serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn what_is_not_json_is_shown_escaped_and_never_obeyed() {
        assert_eq!(lines(b"{\"a\":\x1b[2J", Form::Json, None)[0].text, "{\"a\":\\u001b[2J");
        assert_eq!(lines("{\"a\":\"\u{9b}2J\"}".as_bytes(), Form::Json, None)[1].text, "  \"a\": \"\\u009b2J\"");
        assert_eq!(lines(&[0xff, 0], Form::Wkb, None)[0].text, "ff00");
        assert_eq!(lines(&[0xff, 0], Form::Json, None)[0].text, "ff00");
        let deep = "[".repeat(5_000) + &"]".repeat(5_000);
        assert_eq!(lines(deep.as_bytes(), Form::Json, None).len(), 1);
    }

    #[test]
    fn random_json_keeps_its_meaning() {
        for text in [
            "1",
            "\"\\\"\\\\\"",
            "[]",
            "{}",
            "[[[]]]",
            r#"{"":{"/":[{"~":1}]}}"#,
            " [ 1 , [ 2 , { \"a\" : [ ] } ] ] ",
            &format!("[{}0]", "1234567890,".repeat(20)),
        ] {
            let again: Value = serde_json::from_str(&shown(text, "/x")).unwrap();
            assert_eq!(again, serde_json::from_str::<Value>(text).unwrap(), "{text}");
        }
    }
}
