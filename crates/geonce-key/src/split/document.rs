//! One JSON document in a stream, skimmed for its end and for the elements of a top-level `features` array.
//!
//! Skimming counts brackets outside strings and no more. Everything handed out is parsed strictly later, and the
//! document around the features is parsed strictly here, with the features left out.

use super::Collection;
use crate::json::{self, Tape};
use crate::{Code, Error, Limits, Result};

/// What a step over the bytes came to.
pub(super) enum Step {
    /// The bytes end inside the document.
    NeedMore,
    /// An element of `features`.
    Feature { start: usize, end: usize, index: u64 },
    /// A refusal of a feature, or of the document around them.
    Broken { error: Error, index: Option<u64> },
    /// A document without `features`.
    Whole { start: usize, end: usize },
    /// No document, but lines with one each, from `Document::start` on, which is so many lines further.
    Lines { skipped: u64 },
    /// The document has ended and everything was handed out.
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Anywhere but in the list of features.
    Around,
    /// Between features.
    List(Expect),
    /// In a feature.
    Feature,
    /// Behind the document.
    Behind,
    /// Nothing more is looked at.
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    FeatureOrEnd,
    Feature,
    CommaOrEnd,
}

/// The length of `features` with every character escaped.
const ESCAPED_FEATURES_BYTES: usize = 8 * 6;

#[expect(clippy::struct_excessive_bools, reason = "each is one fact about the text; none excludes another")]
pub(super) struct Document {
    /// First byte of the document.
    pub(super) start: usize,
    /// Next byte to look at.
    pub(super) at: usize,
    state: State,
    /// Open brackets: of the document, or of the feature.
    depth: usize,
    in_string: bool,
    after_backslash: bool,
    string_start: usize,
    /// The last string of the outermost object, a member name if a colon follows.
    last_string: (usize, usize),
    feature_start: usize,
    index: u64,
    too_long: bool,
    /// The object around the features, without them, and where its uncopied rest starts.
    outer: Vec<u8>,
    outer_from: usize,
    streamed: bool,
    /// Whether a member `features` has been looked at.
    features_seen: bool,
    has_line_break: bool,
    /// Line breaks seen behind the document.
    lines_behind: u64,
    envelope: bool,
    known: Option<Collection>,
    declared: Collection,
}

impl Document {
    pub(super) fn new(start: usize, envelope: bool, known: Option<Collection>) -> Document {
        Document {
            start,
            at: start,
            state: State::Around,
            depth: 0,
            in_string: false,
            after_backslash: false,
            string_start: start,
            last_string: (start, start),
            feature_start: start,
            index: 0,
            too_long: false,
            outer: Vec::new(),
            outer_from: start,
            streamed: false,
            features_seen: false,
            has_line_break: false,
            lines_behind: 0,
            envelope,
            known,
            declared: Collection::default(),
        }
    }

    pub(super) fn is_collection(&self) -> bool {
        self.streamed
    }

    pub(super) fn collection(&self) -> Collection {
        self.known.unwrap_or(self.declared)
    }

    /// The first byte that is still needed.
    pub(super) fn keep_from(&self) -> usize {
        match self.state {
            State::Feature if !self.too_long => self.feature_start,
            State::Around if self.streamed => self.outer_from,
            State::Around | State::Behind if !self.streamed => self.start,
            _ => self.at,
        }
    }

    /// The buffer has lost its first `by` bytes.
    pub(super) fn shift(&mut self, by: usize) {
        let last = self.last_string;
        for index in [&mut self.start, &mut self.at, &mut self.string_start, &mut self.feature_start] {
            *index = index.saturating_sub(by);
        }
        self.last_string = (last.0.saturating_sub(by), last.1.saturating_sub(by));
        self.outer_from = self.outer_from.saturating_sub(by);
    }

    /// Goes on until something is found or the bytes end. `auto` where the stream may turn out to be lines.
    pub(super) fn step(&mut self, bytes: &[u8], limits: &Limits, finished: bool, auto: bool) -> Step {
        while let Some(&byte) = bytes.get(self.at) {
            let found = match self.state {
                _ if self.in_string => self.string_byte(bytes, auto),
                State::Around => self.byte_around(byte, bytes, limits, auto),
                State::List(expect) => self.byte_between(byte, expect),
                State::Feature => self.byte_of_feature(byte),
                State::Behind if byte.is_ascii_whitespace() => {
                    self.lines_behind += u64::from(byte == b'\n');
                    self.at += 1;
                    None
                }
                State::Behind => Some(self.trailing(auto)),
                State::Over => return Step::Done,
            };
            if let Some(step) = found {
                return step;
            }
        }
        if self.at - self.keep_from().min(self.at) > limits.bytes_max {
            return self.overlong(bytes, limits, auto);
        }
        if finished { self.unfinished(bytes, auto) } else { Step::NeedMore }
    }

    fn string_byte(&mut self, bytes: &[u8], auto: bool) -> Option<Step> {
        if std::mem::take(&mut self.after_backslash) {
            self.at += 1;
            return None;
        }
        let Some(found) = memchr::memchr3(b'"', b'\\', b'\n', &bytes[self.at..]) else {
            self.at = bytes.len();
            return None;
        };
        self.at += found + 1;
        match bytes[self.at - 1] {
            b'"' => {
                self.in_string = false;
                self.last_string = (self.string_start, self.at - 1);
            }
            b'\\' => self.after_backslash = true,
            // JSON has no line breaks in strings: a first line that ends in one is a broken line of many.
            _ if auto && !self.streamed && !self.has_line_break => return Some(Step::Lines { skipped: 0 }),
            _ => self.has_line_break = true,
        }
        None
    }

    fn open_string(&mut self) {
        self.in_string = true;
        self.string_start = self.at + 1;
    }

    fn byte_around(&mut self, byte: u8, bytes: &[u8], limits: &Limits, auto: bool) -> Option<Step> {
        match byte {
            b'"' => self.open_string(),
            b'{' | b'[' => {
                self.depth += 1;
                if byte == b'[' && self.depth == 2 && self.opens_features(bytes, limits) {
                    self.enter_features(bytes);
                }
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    self.at += 1;
                    return self.end(bytes, limits, auto);
                }
            }
            b'\n' => self.has_line_break = true,
            // A document that is neither object nor array ends with its line.
            _ if self.depth == 0 && auto => return Some(Step::Lines { skipped: 0 }),
            _ => {}
        }
        self.at += 1;
        None
    }

    /// Whether the array that opens here is the list of a `FeatureCollection`, as far as can be known by now. The
    /// question is asked of the first member of that name only: a second one makes the document invalid.
    fn opens_features(&mut self, bytes: &[u8], limits: &Limits) -> bool {
        if self.envelope || self.features_seen || !self.is_named_features(bytes) {
            return false;
        }
        self.features_seen = true;
        let so_far = [&bytes[self.start..=self.at], b"]}"].concat();
        let mut tape = Tape::default();
        let Ok(document) = json::parse(&so_far, limits, &mut tape) else { return false };
        let root = document.root();
        if root.get("type").is_some_and(|kind| !kind.is_str("FeatureCollection")) {
            return false;
        }
        self.declared.crs = root.get("crs").and_then(|crs| crate::geojson::declared_crs(crs).ok());
        true
    }

    /// Whether the value that opens here belongs to a member `features`, however that name is written.
    fn is_named_features(&self, bytes: &[u8]) -> bool {
        let (from, to) = self.last_string;
        let between = &bytes[(to + 1).min(self.at)..self.at];
        if from == self.start || !between.iter().filter(|b| !b.is_ascii_whitespace()).eq([&b':']) {
            return false;
        }
        let name = &bytes[from..to];
        let mut tape = Tape::default();
        let escaped = name.len() <= ESCAPED_FEATURES_BYTES && name.contains(&b'\\');
        let unescaped = |tape| json::parse(&bytes[from - 1..=to], &Limits::default(), tape).ok();
        name == b"features" || (escaped && unescaped(&mut tape).is_some_and(|name| name.root().is_str("features")))
    }

    fn enter_features(&mut self, bytes: &[u8]) {
        self.outer.extend_from_slice(&bytes[self.outer_from..=self.at]);
        self.streamed = true;
        self.state = State::List(Expect::FeatureOrEnd);
    }

    fn byte_between(&mut self, byte: u8, expect: Expect) -> Option<Step> {
        let missing = |index: u64, what: &str| {
            let error = Error::new(Code::JsonSyntax, format!("/features/{index}"), format!("{what} is missing here"));
            Some(Step::Broken { error, index: Some(index) })
        };
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => {
                self.has_line_break |= byte == b'\n';
                self.at += 1;
            }
            b',' => {
                self.at += 1;
                self.state = State::List(Expect::Feature);
                if expect != Expect::CommaOrEnd {
                    return missing(self.index, "a feature");
                }
            }
            b']' => {
                self.outer_from = self.at;
                self.at += 1;
                self.depth = 1;
                self.state = State::Around;
                if expect == Expect::Feature {
                    return missing(self.index, "a feature");
                }
            }
            _ => {
                self.state = State::Feature;
                self.feature_start = self.at;
                self.depth = 0;
                if expect == Expect::CommaOrEnd {
                    return missing(self.index, "a comma");
                }
            }
        }
        None
    }

    fn byte_of_feature(&mut self, byte: u8) -> Option<Step> {
        match byte {
            b'"' => self.open_string(),
            // Nothing else ends a feature: each takes at least one byte, so that every step gets further.
            b',' | b']' if self.depth == 0 => return Some(self.end_feature()),
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b'\n' => self.has_line_break = true,
            _ => {}
        }
        self.at += 1;
        None
    }

    fn end_feature(&mut self) -> Step {
        let index = self.index;
        self.index += 1;
        self.state = State::List(Expect::CommaOrEnd);
        if std::mem::take(&mut self.too_long) {
            let error = Error::new(Code::LimitBytes, format!("/features/{index}"), "the feature has too many bytes");
            return Step::Broken { error, index: Some(index) };
        }
        Step::Feature { start: self.feature_start, end: self.at, index }
    }

    fn end(&mut self, bytes: &[u8], limits: &Limits, auto: bool) -> Option<Step> {
        if !self.streamed {
            if auto && !self.has_line_break {
                return Some(Step::Lines { skipped: 0 });
            }
            self.state = State::Behind;
            return None;
        }
        self.outer.extend_from_slice(&bytes[self.outer_from..self.at]);
        self.state = State::Behind;
        let error = self.check_outer(limits).err()?;
        Some(Step::Broken { error, index: None })
    }

    /// Parses the object around the features strictly.
    fn check_outer(&mut self, limits: &Limits) -> Result<()> {
        let mut tape = Tape::default();
        let document = json::parse(&self.outer, limits, &mut tape)?;
        let declared = crate::geojson::check_collection(document.root())?;
        let used = self.collection().crs;
        if used == declared {
            return Ok(());
        }
        if self.known.is_none() {
            self.declared.crs = declared;
        }
        Err(Error::new(Code::CrsAfterFeatures, "/crs", "the coordinate system is declared after the features")
            .hint("on a stream it comes too late: put crs before features, or give the file by name"))
    }

    fn trailing(&mut self, auto: bool) -> Step {
        if auto && !self.has_line_break && self.lines_behind > 0 {
            self.start = self.at;
            return Step::Lines { skipped: self.lines_behind };
        }
        self.state = State::Over;
        let error = Error::new(Code::JsonTrailing, "", "something follows the JSON document");
        Step::Broken { error: error.hint("for one document per line say so: ndjson"), index: None }
    }

    fn overlong(&mut self, bytes: &[u8], limits: &Limits, auto: bool) -> Step {
        if self.state == State::Feature {
            self.too_long = true;
            return Step::NeedMore;
        }
        if auto && !self.streamed && self.second_line_stands_alone(bytes) {
            return Step::Lines { skipped: 0 };
        }
        self.state = State::Over;
        let message = format!("the document has more than {} bytes outside features", limits.bytes_max);
        Step::Broken { error: Error::new(Code::LimitBytes, "", message), index: None }
    }

    /// The stream has ended.
    fn unfinished(&mut self, bytes: &[u8], auto: bool) -> Step {
        let state = std::mem::replace(&mut self.state, State::Over);
        match state {
            State::Over => Step::Done,
            State::Behind if self.streamed => Step::Done,
            State::Behind => Step::Whole { start: self.start, end: self.at },
            _ if self.streamed => {
                let index = (state != State::Around).then_some(self.index);
                let pointer = index.map_or(String::new(), |index| format!("/features/{index}"));
                let error = Error::new(Code::JsonIncomplete, pointer, "the text ends inside the FeatureCollection");
                Step::Broken { error, index }
            }
            _ if auto && self.second_line_stands_alone(bytes) => Step::Lines { skipped: 0 },
            _ => Step::Whole { start: self.start, end: self.at },
        }
    }

    /// Whether the line after the first is a JSON text of its own, which tells lines with a broken first one from
    /// a broken document.
    fn second_line_stands_alone(&self, bytes: &[u8]) -> bool {
        let mut lines = bytes[self.start..].split(|&b| b == b'\n');
        let second = lines.nth(1).unwrap_or_default();
        json::parse(second, &Limits::default(), &mut Tape::default()).is_ok()
    }
}
