//! Bodies: how one is written, its bytes exactly as received, and what they inflate to. Nothing is buffered beyond
//! the source's limit, and all bodies together stay within a budget.

use super::answer::{Problem, code};
use super::connection::{Phase, Watch};
use super::route::percent_decode;
use bytes::{Bytes, BytesMut};
use flate2::bufread::MultiGzDecoder;
use geonce_key::split::Format;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::sync::Semaphore;

/// Bodies up to this size are inflated where they are; larger ones beside the threads that answer.
const INFLATED_HERE_BYTES_MAX: usize = 4 << 10;

/// Bodies that are inflated beside at a time.
const INFLATED_AT_ONCE_MAX: usize = 4;

/// By how much an inflated body grows at a time.
const INFLATE_STEP_BYTES: usize = 64 << 10;

/// The content types that are taken, as shown to a sender of another one.
pub(super) const CONTENT_TYPES: &str = "application/geo+json, application/json, application/x-ndjson, \
     application/geo+json-seq, text/plain or application/wkt for WKT, application/wkb or application/octet-stream \
     for WKB";

/// How a body is encoded on top of its content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Identity,
    Gzip,
}

/// What a body holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Payloads, divided like this.
    Payload(Format),
    /// A form, whose field `payload` is a JSON payload.
    Form,
}

/// What the content type says. A body without one is looked at.
pub(super) fn content(headers: &HeaderMap) -> Result<Content, Problem> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(Content::Payload(Format::Auto)) };
    if headers.get_all(header::CONTENT_TYPE).iter().nth(1).is_some() {
        return Err(Problem::content_type("there are several content types"));
    }
    match value.as_bytes() {
        b"application/json" | b"application/geo+json" => return Ok(Content::Payload(Format::Json)),
        b"" => return Ok(Content::Payload(Format::Auto)),
        _ => {}
    }
    let text = value.to_str().map_err(|_| Problem::content_type("the content type cannot be read"))?;
    let mut parts = text.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
    for parameter in parts {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let value = value.trim().trim_matches('"');
        let known = ["utf-8", "utf8", "us-ascii"].iter().any(|charset| value.eq_ignore_ascii_case(charset));
        if name.trim().eq_ignore_ascii_case("charset") && !known {
            return Err(Problem::content_type("texts are taken in UTF-8 only"));
        }
    }
    Ok(Content::Payload(match essence.as_str() {
        "application/json" | "text/json" => Format::Json,
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" | "application/x-ldjson" => Format::Lines,
        "application/geo+json-seq" | "application/json-seq" => Format::Sequence,
        "application/wkt" | "text/wkt" | "text/plain" => Format::Wkt,
        "application/wkb" | "application/ewkb" | "application/octet-stream" => Format::Wkb,
        "application/x-www-form-urlencoded" => return Ok(Content::Form),
        // `application/vnd.geo+json`, `application/cloudevents+json` and the like.
        other if other.starts_with("application/") && other.ends_with("+json") => Format::Json,
        _ => return Err(Problem::content_type("this content type is not taken")),
    }))
}

/// The payload of a body, and how it is divided. `is_part` where the bytes are a form's field already.
pub(super) fn payload(body: Bytes, content: Content, is_part: bool) -> Result<(Bytes, Format), Problem> {
    const RECORD_SEPARATOR: u8 = 0x1e;
    match content {
        // A text sequence without record separators is lines.
        Content::Payload(Format::Sequence) if body.first() != Some(&RECORD_SEPARATOR) => Ok((body, Format::Lines)),
        Content::Payload(format) => Ok((body, format)),
        Content::Form => {
            let field = if is_part { Some(body) } else { form_field(&body) };
            let decoded = field.and_then(|field| form_value(&field));
            let Some(payload) = decoded.filter(|payload| !payload.is_empty()) else {
                return Err(Problem::content_type(
                    "a form must have a field payload; curl sends forms unless told otherwise",
                ));
            };
            Ok((payload, Format::Json))
        }
    }
}

/// The field `payload` of a form, as sent.
fn form_field(body: &Bytes) -> Option<Bytes> {
    let field = body.split(|byte| *byte == b'&').find_map(|field| field.strip_prefix(b"payload="))?;
    Some(body.slice_ref(field))
}

/// What a form's field says. Some senders escape nothing: what starts like JSON is JSON.
fn form_value(field: &Bytes) -> Option<Bytes> {
    if matches!(field.first(), Some(b'{' | b'[')) {
        return Some(field.clone());
    }
    let spaced: Vec<u8> = field.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    percent_decode(&spaced).map(Bytes::from)
}

pub(super) fn coding(headers: &HeaderMap) -> Result<Coding, Problem> {
    let mut values = headers.get_all(header::CONTENT_ENCODING).iter();
    let coding = match values.next().map(HeaderValue::as_bytes) {
        None => Some(Coding::Identity),
        Some(value) if value.eq_ignore_ascii_case(b"identity") => Some(Coding::Identity),
        Some(value) if value.eq_ignore_ascii_case(b"gzip") || value.eq_ignore_ascii_case(b"x-gzip") => {
            Some(Coding::Gzip)
        }
        Some(_) => None,
    };
    coding.filter(|_| values.next().is_none()).ok_or_else(Problem::content_encoding)
}

/// How many bytes of bodies may be in memory, in all.
pub(crate) struct Budget {
    used: AtomicUsize,
    max: usize,
    inflating: Semaphore,
}

impl Budget {
    pub(crate) fn new(max: usize) -> Budget {
        Budget { used: AtomicUsize::new(0), max, inflating: Semaphore::new(INFLATED_AT_ONCE_MAX) }
    }

    /// Bytes that are held now.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }
}

/// A share of the budget: given back when it is dropped.
struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Share {
    fn take(&mut self, bytes: usize) -> Result<(), Problem> {
        let before = self.budget.used.fetch_add(bytes, Relaxed);
        self.bytes += bytes;
        if before.saturating_add(bytes) > self.budget.max { Err(Problem::busy()) } else { Ok(()) }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Relaxed);
    }
}

/// A body in memory.
pub(super) struct Received {
    /// Its bytes.
    pub(super) bytes: Bytes,
    share: Share,
}

/// Reads a body of at most `bytes_max` bytes. Too long a body is refused before it is read where its length is
/// declared, else as soon as it is too long.
pub(super) async fn read(
    mut body: Incoming,
    bytes_max: usize,
    budget: &Arc<Budget>,
    watch: &Watch,
) -> Result<Received, Problem> {
    let declared = body.size_hint();
    if declared.lower() > bytes_max as u64 {
        watch.leave_unread();
        return Err(Problem::too_large(bytes_max));
    }
    let mut share = Share { budget: budget.clone(), bytes: 0 };
    if body.is_end_stream() {
        return Ok(Received { bytes: Bytes::new(), share });
    }
    watch.enter(Phase::Body);
    let read = async {
        let mut first = Bytes::new();
        let mut rest = BytesMut::new();
        while let Some(frame) = body.frame().await {
            // Trailers are of no use to us.
            let Ok(data) = frame.map_err(|_| Problem::incomplete())?.into_data() else { continue };
            if first.len() + rest.len() + data.len() > bytes_max {
                return Err(Problem::too_large(bytes_max));
            }
            share.take(data.len())?;
            watch.progress(data.len());
            if first.is_empty() && rest.is_empty() {
                // Most bodies come in one piece, which is kept as it is.
                first = data;
                continue;
            }
            if rest.is_empty() {
                let expected = usize::try_from(declared.lower()).unwrap_or(0);
                rest.reserve(
                    expected.clamp(first.len() + data.len(), INFLATE_STEP_BYTES.max(first.len() + data.len())),
                );
                rest.extend_from_slice(&std::mem::take(&mut first));
            }
            rest.extend_from_slice(&data);
        }
        Ok(if rest.is_empty() { first } else { rest.freeze() })
    };
    match watch.within(read).await.unwrap_or_else(|| Err(Problem::slow())) {
        Ok(bytes) => Ok(Received { bytes, share }),
        Err(problem) => {
            watch.leave_unread();
            Err(problem)
        }
    }
}

/// The body that `received` is the gzip form of, at most `bytes_max` bytes.
pub(super) async fn inflate(received: Received, bytes_max: usize, budget: &Arc<Budget>) -> Result<Received, Problem> {
    if received.bytes.len() <= INFLATED_HERE_BYTES_MAX {
        return inflate_here(received, bytes_max);
    }
    let Ok(_turn) = budget.inflating.acquire().await else { return Err(Problem::busy()) };
    match tokio::task::spawn_blocking(move || inflate_here(received, bytes_max)).await {
        Ok(inflated) => inflated,
        Err(_) => Err(Problem::internal()),
    }
}

fn inflate_here(received: Received, bytes_max: usize) -> Result<Received, Problem> {
    let Received { bytes, mut share } = received;
    let mut out = Vec::new();
    let mut decoder = MultiGzDecoder::new(&bytes[..]);
    loop {
        let step = INFLATE_STEP_BYTES.min(bytes_max + 1 - out.len());
        let before = out.len();
        (&mut decoder).take(step as u64).read_to_end(&mut out).map_err(|error| broken_gzip(&error))?;
        share.take(out.len() - before)?;
        if out.len() > bytes_max {
            return Err(Problem::too_large(bytes_max));
        }
        if out.len() - before < step {
            return Ok(Received { bytes: out.into(), share });
        }
    }
}

fn broken_gzip(error: &io::Error) -> Problem {
    let detail = if error.kind() == io::ErrorKind::UnexpectedEof {
        "the gzip stream ends too early"
    } else {
        "the body is not what gzip writes"
    };
    Problem::refused(code::GZIP_INVALID, detail)
}

#[cfg(test)]
mod tests {
    use super::{Bytes, Content, Format, HeaderMap, HeaderValue, content, payload};

    #[test]
    fn content_types_say_how_a_body_is_written() {
        for (text, expected) in [
            ("application/json", Some(Format::Json)),
            ("Application/Geo+JSON; charset=UTF-8", Some(Format::Json)),
            ("application/vnd.geo+json;charset=\"utf-8\"", Some(Format::Json)),
            ("application/cloudevents+json", Some(Format::Json)),
            ("application/x-ndjson", Some(Format::Lines)),
            ("application/geo+json-seq", Some(Format::Sequence)),
            ("text/plain; charset=us-ascii", Some(Format::Wkt)),
            ("application/wkb", Some(Format::Wkb)),
            ("application/octet-stream", Some(Format::Wkb)),
            ("", Some(Format::Auto)),
            ("application/json; charset=utf-16", None),
            ("text/plain; charset=latin1", None),
            ("application/xml", None),
            ("+json", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("content-type", HeaderValue::from_static(text));
            assert_eq!(content(&headers).ok(), expected.map(Content::Payload), "{text}");
        }
        assert_eq!(content(&HeaderMap::new()).ok(), Some(Content::Payload(Format::Auto)));
    }

    #[test]
    fn the_payload_of_a_form_is_found_and_unescaped() {
        for (form, is_part, expected) in [
            ("payload=%7B%22a%22%3A1%7D&x=y", false, Some(r#"{"a":1}"#)),
            ("x=y&payload=%7b+%7d", false, Some("{ }")),
            (r#"payload={"a":"1+1"}"#, false, Some(r#"{"a":"1+1"}"#)),
            ("%7B%7D", true, Some("{}")),
            ("payload=", false, None),
            ("payload=%7", false, None),
            ("other=%7B%7D", false, None),
            (r#"{"type":"Point"}"#, false, None),
        ] {
            let found = payload(Bytes::from_static(form.as_bytes()), Content::Form, is_part);
            assert_eq!(found.ok(), expected.map(|text| (Bytes::from(text), Format::Json)), "{form}");
        }
    }
}
