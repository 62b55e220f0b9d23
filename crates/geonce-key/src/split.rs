//! Finds the payloads in a stream of bytes: a document, the features of a `FeatureCollection`, lines of NDJSON or
//! WKT, records of a GeoJSON text sequence.
//!
//! Does no input itself: bytes are fed, payloads are taken. It holds at most one payload and what was fed after
//! it. A broken payload is refused on its own; the rest of the stream goes on.

mod document;

use crate::{Code, Error, Form, Limits, Result};
use document::{Document, Step};

/// How a stream is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Whatever the first bytes look like: a JSON document or lines, a sequence, WKT or WKB.
    #[default]
    Auto,
    /// One JSON text.
    Json,
    /// A JSON text per line (NDJSON, newline-delimited `GeoJSON`).
    Lines,
    /// JSON texts after record separators (RFC 8142).
    Sequence,
    /// A WKT or EWKT geometry per line.
    Wkt,
    /// One WKB or EWKB geometry.
    Wkb,
    /// A WKB or EWKB geometry per line, in hexadecimal.
    WkbHex,
}

/// A payload found in the stream. Its bytes are in [`Splitter::bytes`] until the splitter is used again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The line it starts on, from 1; in a `FeatureCollection` the number of the feature, from 1.
    pub line: u64,
    /// Where it is in its document: `/features/3`, or empty.
    pub pointer: String,
    /// How it is written.
    pub form: Form,
    start: usize,
    end: usize,
}

/// A place in the stream that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// As in [`Item::line`].
    pub line: u64,
    /// Why.
    pub error: Error,
}

/// What a `FeatureCollection` says about all its features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collection {
    /// The EPSG code it declares.
    pub crs: Option<u32>,
}

/// Divides a stream into payloads.
pub struct Splitter {
    format: Format,
    limits: Limits,
    /// Whether payloads are envelopes, in which a member `features` has no meaning.
    envelope: bool,
    /// What a first pass over the same bytes found.
    known: Option<Collection>,
    buffer: Vec<u8>,
    /// Bytes before this are done with.
    start: usize,
    finished: bool,
    line: u64,
    mode: Mode,
}

enum Mode {
    /// Nothing has been seen yet.
    Start,
    Document(Box<Document>),
    Lines,
    /// A line or record that is too long: skipped up to its end.
    Skip,
    Done,
}

impl Splitter {
    /// A splitter for payloads within `limits`; `envelope` where a policy's `feature` pointer is used.
    pub fn new(format: Format, envelope: bool, limits: &Limits) -> Splitter {
        Splitter {
            format,
            limits: limits.clone(),
            envelope,
            known: None,
            buffer: Vec::new(),
            start: 0,
            finished: false,
            line: 1,
            mode: Mode::Start,
        }
    }

    /// Uses what [`Splitter::collection`] told at the end of a first pass over the same bytes. Without it a `crs`
    /// member that follows `features` can only be refused.
    #[must_use]
    pub fn knowing(mut self, collection: Collection) -> Splitter {
        self.known = Some(collection);
        self
    }

    /// Adds bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.start > 0 && self.start >= self.buffer.len() / 2 {
            self.buffer.drain(..self.start);
            if let Mode::Document(document) = &mut self.mode {
                document.shift(self.start);
            }
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Says that the stream has ended.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// The bytes of an item just taken.
    pub fn bytes(&self, item: &Item) -> &[u8] {
        &self.buffer[item.start..item.end]
    }

    /// What the collection being read has declared so far.
    pub fn collection(&self) -> Collection {
        match (&self.mode, self.known) {
            (_, Some(known)) => known,
            (Mode::Document(document), None) => document.collection(),
            _ => Collection::default(),
        }
    }

    /// Whether the stream is a `FeatureCollection`, as far as is known.
    pub fn is_collection(&self) -> bool {
        matches!(&self.mode, Mode::Document(document) if document.is_collection())
    }

    /// The next payload or refusal; `None` when more bytes are needed, or when the stream is done.
    #[expect(clippy::should_implement_trait, reason = "an iterator would be done when more bytes are needed")]
    pub fn next(&mut self) -> Option<std::result::Result<Item, Broken>> {
        loop {
            match &mut self.mode {
                Mode::Start => self.begin()?,
                Mode::Document(_) => match self.document() {
                    Some(found) => return Some(found),
                    None if matches!(self.mode, Mode::Document(_)) => return None,
                    None => {}
                },
                Mode::Lines => {
                    let found = self.next_line()?;
                    if let Some(found) = found {
                        return Some(found);
                    }
                }
                Mode::Skip => self.skip()?,
                Mode::Done => return None,
            }
        }
    }

    /// Chooses a mode from the format and the first byte that is not white space.
    fn begin(&mut self) -> Option<()> {
        match self.format {
            Format::Lines | Format::Sequence | Format::Wkt | Format::WkbHex => self.mode = Mode::Lines,
            Format::Wkb => {
                if !self.finished {
                    return None;
                }
                self.mode = Mode::Lines;
            }
            Format::Auto | Format::Json => {
                let first = self.buffer[self.start..].iter().position(|b| !b.is_ascii_whitespace());
                let Some(first) = first else {
                    if self.finished {
                        self.mode = Mode::Done;
                    }
                    return self.finished.then_some(());
                };
                self.line += count_lines(&self.buffer[self.start..self.start + first]);
                self.start += first;
                if self.format == Format::Auto {
                    let rest = &self.buffer[self.start..];
                    if rest.len() < SNIFFED_BYTES && !self.finished && !matches!(rest[0], b'{' | b'[') {
                        return None;
                    }
                    self.format = sniff(rest);
                    if self.format != Format::Auto {
                        return Some(());
                    }
                }
                self.mode = Mode::Document(Box::new(Document::new(self.start, self.envelope, self.known)));
            }
        }
        Some(())
    }

    fn document(&mut self) -> Option<std::result::Result<Item, Broken>> {
        let Mode::Document(document) = &mut self.mode else { return None };
        let step = document.step(&self.buffer, &self.limits, self.finished, self.format == Format::Auto);
        self.start = document.keep_from();
        match step {
            Step::NeedMore => None,
            Step::Feature { start, end, index } => {
                let pointer = format!("/features/{index}");
                Some(Ok(Item { line: index + 1, pointer, form: Form::Json, start, end }))
            }
            Step::Broken { error, index } => {
                let line = index.map_or(self.line, |index| index + 1);
                Some(Err(Broken { line, error }))
            }
            Step::Whole { start, end } => {
                Some(Ok(Item { line: self.line, pointer: String::new(), form: Form::Json, start, end }))
            }
            Step::Lines { skipped } => {
                self.start = document.start;
                self.line += skipped;
                self.mode = Mode::Lines;
                None
            }
            Step::Done => {
                self.known = Some(document.collection());
                self.mode = Mode::Done;
                None
            }
        }
    }

    /// Takes a line or record; the inner `None` is a blank one.
    #[expect(clippy::option_option, reason = "needing more and having nothing to tell are different answers")]
    fn next_line(&mut self) -> Option<Option<std::result::Result<Item, Broken>>> {
        let separator = if self.format == Format::Sequence { RECORD_SEPARATOR } else { b'\n' };
        let rest = &self.buffer[self.start..];
        if rest.is_empty() {
            if self.finished {
                self.mode = Mode::Done;
                return Some(None);
            }
            return None;
        }
        let found = if self.format == Format::Wkb { None } else { memchr::memchr(separator, rest) };
        let line = self.line;
        let too_long = |line| {
            let message = format!("a payload has more than {} bytes", self.limits.bytes_max);
            Some(Err(Broken { line, error: Error::new(Code::LimitBytes, "", message) }))
        };
        let Some(length) = found.or(self.finished.then_some(rest.len())) else {
            if rest.len() <= self.limits.bytes_max {
                return None;
            }
            let refused = too_long(line);
            self.mode = Mode::Skip;
            return Some(refused);
        };
        let (start, mut end) = (self.start, self.start + length);
        self.start = end + usize::from(found.is_some());
        self.line += if separator == b'\n' { 1 } else { count_lines(&self.buffer[start..self.start]) };
        if length > self.limits.bytes_max {
            return Some(too_long(line));
        }
        let form = match self.format {
            Format::Wkt => Form::Wkt,
            Format::Wkb => Form::Wkb,
            Format::WkbHex => Form::WkbHex,
            _ => Form::Json,
        };
        if form != Form::Wkb {
            while end > start && self.buffer[end - 1].is_ascii_whitespace() {
                end -= 1;
            }
        }
        if self.buffer[start..end].iter().all(u8::is_ascii_whitespace) && form != Form::Wkb {
            return Some(None);
        }
        Some(Some(Ok(Item { line, pointer: String::new(), form, start, end })))
    }

    fn skip(&mut self) -> Option<()> {
        let separator = if self.format == Format::Sequence { RECORD_SEPARATOR } else { b'\n' };
        let rest = &self.buffer[self.start..];
        if let Some(length) = memchr::memchr(separator, rest) {
            self.start += length + 1;
            self.line += 1;
            self.mode = Mode::Lines;
            return Some(());
        }
        self.start = self.buffer.len();
        if self.finished {
            self.mode = Mode::Done;
        }
        self.finished.then_some(())
    }
}

const RECORD_SEPARATOR: u8 = 0x1e;

/// Bytes that tell the forms apart.
const SNIFFED_BYTES: usize = 10;

/// The format of a stream that starts with `bytes`; `Auto` stands for JSON documents or lines.
fn sniff(bytes: &[u8]) -> Format {
    const WORDS: [&str; 6] = ["POINT", "LINESTRING", "POLYGON", "MULTI", "GEOMETRYCO", "SRID="];
    let starts_with = |word: &str| bytes.get(..word.len()).is_some_and(|b| b.eq_ignore_ascii_case(word.as_bytes()));
    let is_hex = bytes.len() >= SNIFFED_BYTES && bytes[..SNIFFED_BYTES].iter().all(u8::is_ascii_hexdigit);
    match bytes {
        [RECORD_SEPARATOR, ..] => Format::Sequence,
        [0 | 1, ..] => Format::Wkb,
        [b'0', b'0' | b'1', ..] if is_hex => Format::WkbHex,
        [b'\\', b'x', ..] => Format::WkbHex,
        _ if WORDS.iter().any(|word| starts_with(word)) => Format::Wkt,
        _ => Format::Auto,
    }
}

fn count_lines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// Divides a text that is complete, such as one line of NDJSON, if it is a `FeatureCollection`.
pub fn collection_in(bytes: &[u8], limits: &Limits) -> Result<Option<Splitter>> {
    if memchr::memmem::find(bytes, b"\"FeatureCollection\"").is_none() {
        return Ok(None);
    }
    let mut first_pass = Splitter::new(Format::Json, false, limits);
    first_pass.feed(bytes);
    first_pass.finish();
    let mut features = 0;
    while let Some(found) = first_pass.next() {
        match found {
            Ok(item) if item.pointer.is_empty() => return Ok(None),
            Ok(_) => features += 1,
            Err(broken) if features == 0 => return Err(broken.error),
            Err(_) => {}
        }
    }
    let collection = first_pass.collection();
    let mut splitter = Splitter::new(Format::Json, false, limits).knowing(collection);
    splitter.feed(bytes);
    splitter.finish();
    Ok(Some(splitter))
}

#[cfg(test)]
mod tests;
