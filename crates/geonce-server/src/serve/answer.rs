//! Answers: what a sender reads. The only place with HTTP status codes, but for those of the API (`api/problem.rs`).
//!
//! Problems are RFC 9457 documents with our `code`, `pointer` and `hint`. Nothing of a store's error text, which may
//! hold file names, leaves through here.

use super::body::CONTENT_TYPES;
use super::metrics::RequestOutcome;
use super::reply::Reply;
use bytes::Bytes;
use geonce::error::Kind;
use geonce::event::{Class, EventId};
use geonce::intake::{Fault, FeatureReceipt, Receipt, Refused};
use geonce_key::{Encoding, Fingerprint, Warning};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use std::borrow::Cow;
use std::fmt::Write;

/// What goes back to a client.
pub(crate) type Answer = Response<Reply>;

/// Codes of problems that are not a payload's. `docs/errors.md` lists them.
pub(super) mod code {
    pub(in crate::serve) const ALL_REFUSED: &str = "all_refused";
    pub(in crate::serve) const BODY_EMPTY: &str = "body_empty";
    pub(in crate::serve) const BODY_INCOMPLETE: &str = "body_incomplete";
    pub(in crate::serve) const BODY_SLOW: &str = "body_slow";
    pub(in crate::serve) const BODY_TOO_LARGE: &str = "body_too_large";
    pub(in crate::serve) const BUSY: &str = "busy";
    pub(in crate::serve) const CHALLENGE_INVALID: &str = "challenge_invalid";
    pub(in crate::serve) const CONTENT_ENCODING: &str = "content_encoding";
    pub(in crate::serve) const CONTENT_TYPE: &str = "content_type";
    pub(in crate::serve) const GZIP_INVALID: &str = "gzip_invalid";
    pub(in crate::serve) const INTERNAL: &str = "internal";
    pub(in crate::serve) const LATE: &str = "late";
    pub(in crate::serve) const METHOD: &str = "method";
    pub(in crate::serve) const NOT_FOUND: &str = "not_found";
    pub(in crate::serve) const PATH_TOO_LONG: &str = "path_too_long";
    pub(in crate::serve) const SOURCE_UNKNOWN: &str = "source_unknown";
    pub(in crate::serve) const STORE_UNAVAILABLE: &str = "store_unavailable";
    pub(in crate::serve) const TOO_MANY_FEATURES: &str = "limit_features";
    pub(in crate::serve) const UNVERIFIED: &str = "unverified";
    #[cfg(test)]
    pub(in crate::serve) const ALL: &[&str] = &[
        ALL_REFUSED,
        BODY_EMPTY,
        BODY_INCOMPLETE,
        BODY_SLOW,
        BODY_TOO_LARGE,
        BUSY,
        CHALLENGE_INVALID,
        CONTENT_ENCODING,
        CONTENT_TYPE,
        GZIP_INVALID,
        INTERNAL,
        LATE,
        METHOD,
        NOT_FOUND,
        PATH_TOO_LONG,
        SOURCE_UNKNOWN,
        STORE_UNAVAILABLE,
        TOO_MANY_FEATURES,
        UNVERIFIED,
    ];
}

/// Seconds after which a sender may try again: when we are busy, and when something must be mended first.
const RETRY_SOON_SECONDS: u16 = 5;
const RETRY_LATER_SECONDS: u16 = 30;

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Why a request has no 2xx answer.
#[derive(Debug)]
pub(crate) struct Problem(Box<Parts>);

#[derive(Debug)]
struct Parts {
    status: StatusCode,
    code: Cow<'static, str>,
    detail: Cow<'static, str>,
    pointer: String,
    hint: Option<Cow<'static, str>>,
    retry_after_seconds: Option<u16>,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        code: impl Into<Cow<'static, str>>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Problem {
        let (code, detail, pointer) = (code.into(), detail.into(), String::new());
        Problem(Box::new(Parts { status, code, detail, pointer, hint: None, retry_after_seconds: None, header: None }))
    }

    pub(crate) fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Problem {
        self.0.hint = Some(hint.into());
        self
    }

    pub(crate) fn retry_after(mut self, seconds: u16) -> Problem {
        self.0.retry_after_seconds = Some(seconds);
        self
    }

    pub(crate) fn with(mut self, name: HeaderName, value: &'static str) -> Problem {
        self.0.header = Some((name, HeaderValue::from_static(value)));
        self
    }

    /// The same problem, at this place of the body.
    pub(crate) fn at(mut self, pointer: impl Into<String>) -> Problem {
        self.0.pointer = pointer.into();
        self
    }

    /// The same problem, where what it is about is at `prefix`.
    pub(crate) fn under(mut self, prefix: &str) -> Problem {
        self.0.pointer.insert_str(0, prefix);
        self
    }

    /// The stable code.
    pub(crate) fn code(&self) -> &str {
        &self.0.code
    }

    /// Where in the payload.
    pub(super) fn pointer(&self) -> &str {
        &self.0.pointer
    }

    /// A request that cannot be understood.
    pub(super) fn refused(code: &'static str, detail: &'static str) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, code, detail)
    }

    pub(super) fn empty() -> Problem {
        Problem::refused(code::BODY_EMPTY, "the body is empty")
    }

    pub(super) fn incomplete() -> Problem {
        Problem::refused(code::BODY_INCOMPLETE, "the body ended early or is wrongly chunked")
    }

    /// The same for every cause, so that nobody can feel their way to a valid signature.
    pub(super) fn unverified() -> Problem {
        let problem = Problem::new(StatusCode::UNAUTHORIZED, code::UNVERIFIED, "the request could not be verified");
        problem.with(header::WWW_AUTHENTICATE, "Signature")
    }

    pub(super) fn source_unknown() -> Problem {
        Problem::new(StatusCode::NOT_FOUND, code::SOURCE_UNKNOWN, "there is no source of this name")
            .hint("events are posted to /in/ and the name of a source that the gateway is configured with")
    }

    pub(crate) fn not_found() -> Problem {
        Problem::new(StatusCode::NOT_FOUND, code::NOT_FOUND, "there is nothing here")
            .hint("events are posted to /in/{source}")
    }

    pub(crate) fn path_too_long() -> Problem {
        Problem::new(StatusCode::URI_TOO_LONG, code::PATH_TOO_LONG, "the path is too long")
    }

    pub(crate) fn method(allow: &'static str) -> Problem {
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, code::METHOD, "this method is not taken here")
            .with(header::ALLOW, allow)
    }

    pub(super) fn slow() -> Problem {
        Problem::new(StatusCode::REQUEST_TIMEOUT, code::BODY_SLOW, "the body came too slowly")
    }

    pub(super) fn too_large(bytes_max: usize) -> Problem {
        let detail = format!("a body has at most {bytes_max} bytes here, also once inflated");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, code::BODY_TOO_LARGE, detail)
            .hint("send fewer features in a request, or raise body_max of the source")
    }

    pub(super) fn content_type(detail: &'static str) -> Problem {
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, code::CONTENT_TYPE, detail)
            .hint(CONTENT_TYPES)
            .with(header::ACCEPT, "application/geo+json, application/json, application/x-ndjson, application/geo+json-seq, application/wkt, text/plain, application/wkb, application/octet-stream")
    }

    pub(super) fn content_encoding() -> Problem {
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, code::CONTENT_ENCODING, "this content encoding is not taken")
            .hint("gzip, or none")
            .with(header::ACCEPT_ENCODING, "gzip")
    }

    pub(super) fn busy() -> Problem {
        Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            code::BUSY,
            "too many bodies are being read; nothing was recorded",
        )
        .retry_after(RETRY_SOON_SECONDS)
    }

    /// The time of `ack_within` is over and the store has not answered.
    pub(super) fn late() -> Problem {
        let detail =
            "the event could not be acknowledged in time. It may still be recorded: sent again, it is then a duplicate";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, code::LATE, detail).retry_after(RETRY_SOON_SECONDS)
    }

    pub(crate) fn internal() -> Problem {
        let detail = "something failed here that should not; the log has it. Nothing was acknowledged";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, code::INTERNAL, detail)
    }

    fn store(error: &geonce::Error) -> Problem {
        let unavailable = |detail| Problem::new(StatusCode::SERVICE_UNAVAILABLE, code::STORE_UNAVAILABLE, detail);
        match error.kind() {
            Kind::Unavailable => {
                unavailable("the store does not answer; nothing was acknowledged").retry_after(RETRY_SOON_SECONDS)
            }
            Kind::Resource => {
                unavailable("the store has no room; nothing was acknowledged").retry_after(RETRY_LATER_SECONDS)
            }
            Kind::Permission => {
                unavailable("the store refuses us; nothing was acknowledged").retry_after(RETRY_LATER_SECONDS)
            }
            _ => Problem::internal(),
        }
    }

    /// Which of the request outcomes it counts as.
    pub(super) fn outcome(&self) -> RequestOutcome {
        match (self.0.status, &*self.0.code) {
            (StatusCode::UNAUTHORIZED, _) => RequestOutcome::Unverified,
            (_, code::LATE) => RequestOutcome::Late,
            (status, _) if status.is_server_error() => RequestOutcome::Unavailable,
            _ => RequestOutcome::Refused,
        }
    }

    pub(crate) fn answer(self) -> Answer {
        let mut text = String::with_capacity(256);
        self.write(&mut text);
        text.push('}');
        self.finish(text)
    }

    fn finish(self, text: String) -> Answer {
        let mut answer = respond(self.0.status, PROBLEM, text);
        if let Some(seconds) = self.0.retry_after_seconds {
            answer.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        if let Some((name, value)) = self.0.header {
            answer.headers_mut().insert(name, value);
        }
        answer
    }

    /// The document, but for its closing brace.
    fn write(&self, out: &mut String) {
        let title = self.0.status.canonical_reason().unwrap_or_default();
        let _ = write!(
            out,
            r#"{{"type":"urn:geonce:{}","title":"{title}","status":{}"#,
            self.0.code,
            self.0.status.as_u16()
        );
        member(out, "detail", &self.0.detail);
        member(out, "code", &self.0.code);
        if self.0.status == StatusCode::BAD_REQUEST {
            member(out, "pointer", &self.0.pointer);
        }
        if let Some(hint) = &self.0.hint {
            member(out, "hint", hint);
        }
    }
}

impl From<&Fault> for Problem {
    fn from(fault: &Fault) -> Problem {
        let status = match fault.code.as_str() {
            code::TOO_MANY_FEATURES => StatusCode::PAYLOAD_TOO_LARGE,
            _ if fault.class == Class::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        };
        let mut problem = Problem::new(status, fault.code.clone(), fault.message.clone());
        problem.0.pointer.clone_from(&fault.pointer);
        problem.0.hint = fault.hint.clone().map(Cow::Owned);
        problem
    }
}

impl From<&Refused> for Problem {
    fn from(refused: &Refused) -> Problem {
        match refused {
            Refused::Payload(fault) => fault.into(),
            Refused::Store(error) => Problem::store(error),
        }
    }
}

/// An answer of `status` with this text.
pub(crate) fn respond(status: StatusCode, content_type: HeaderValue, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Reply::whole(text));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, content_type);
    answer
}

/// How many features of a request came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) accepted: usize,
    pub(super) duplicate: usize,
    pub(super) conflict: usize,
    pub(super) refused: usize,
    /// Of the refused ones, those that were kept as dead.
    pub(super) kept: usize,
}

impl Counts {
    pub(super) fn of(features: &[FeatureReceipt]) -> Counts {
        let mut counts = Counts::default();
        for feature in features {
            match feature {
                FeatureReceipt::Accepted { .. } => counts.accepted += 1,
                FeatureReceipt::Duplicate { .. } => counts.duplicate += 1,
                FeatureReceipt::Conflict { .. } => counts.conflict += 1,
                FeatureReceipt::Refused { kept, .. } => {
                    counts.refused += 1;
                    counts.kept += usize::from(kept.is_some());
                }
            }
        }
        counts
    }

    /// What the request as a whole came to.
    pub(super) fn outcome(&self) -> RequestOutcome {
        if self.accepted > 0 {
            RequestOutcome::Accepted
        } else if self.conflict > 0 {
            RequestOutcome::Conflict
        } else if self.duplicate > 0 {
            RequestOutcome::Duplicate
        } else if self.refused > 0 {
            RequestOutcome::Refused
        } else {
            // Nothing was sent, and taken.
            RequestOutcome::Accepted
        }
    }

    /// The status: new or kept is fresh, only known is 200, nothing but refusals is 400. Conflicts are kept and
    /// shown, and no fault that a sender could mend by sending again.
    fn status(&self, fresh: StatusCode) -> StatusCode {
        if self.accepted + self.conflict + self.kept > 0 {
            fresh
        } else if self.duplicate > 0 {
            StatusCode::OK
        } else {
            StatusCode::BAD_REQUEST
        }
    }
}

/// The answer to a request that was taken apart; `fresh` is the status of new events. A sender that reads answers its
/// own way is told `wanted` instead of what became of its events.
pub(super) fn receipt(receipt: &Receipt, counts: &Counts, fresh: StatusCode, wanted: Option<&'static str>) -> Answer {
    let status = if receipt.features.is_empty() && wanted.is_some() { StatusCode::OK } else { counts.status(fresh) };
    if let Some(wanted) = wanted.filter(|_| status.is_success()) {
        return respond(status, JSON, wanted);
    }
    let mut out = String::new();
    match receipt.features.as_slice() {
        [] => return Problem::empty().answer(),
        [FeatureReceipt::Refused { fault, kept: None, .. }] if !receipt.several => {
            return Problem::from(fault).answer();
        }
        [feature] if !receipt.several => {
            out.reserve(192);
            write_feature(&mut out, feature, false);
        }
        features => {
            out.reserve(128 + 96 * features.len());
            let problem = (status == StatusCode::BAD_REQUEST)
                .then(|| Problem::refused(code::ALL_REFUSED, "every feature of the request was refused"));
            match &problem {
                Some(problem) => problem.write(&mut out),
                None => out.push_str(r#"{"outcome":"several""#),
            }
            let Counts { accepted, duplicate, conflict, refused, .. } = counts;
            let _ = write!(
                out,
                r#","received":{},"accepted":{accepted},"duplicate":{duplicate},"conflict":{conflict},"refused":{refused},"features":["#,
                features.len(),
            );
            for (i, feature) in features.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { "," });
                write_feature(&mut out, feature, true);
            }
            out.push_str("]}");
            if let Some(problem) = problem {
                return problem.finish(out);
            }
        }
    }
    let mut answer = respond(status, JSON, out);
    if counts.duplicate == receipt.features.len() {
        answer.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    }
    answer
}

fn write_feature(out: &mut String, feature: &FeatureReceipt, with_line: bool) {
    match feature {
        FeatureReceipt::Accepted { event, key, warnings } => {
            out.push_str(r#"{"outcome":"accepted""#);
            write_event(out, "event", *event);
            write_key(out, key);
            write_warnings(out, warnings);
        }
        FeatureReceipt::Duplicate { of, key, state, outcome, drift, revived } => {
            out.push_str(r#"{"outcome":"duplicate""#);
            write_event(out, "of", *of);
            write_key(out, key);
            member(out, "state", state.as_str());
            if let Some(outcome) = outcome {
                member(out, "became", outcome.as_str());
            }
            out.push_str(if *drift { r#","drift":true"# } else { "" });
            out.push_str(if *revived { r#","revived":true"# } else { "" });
        }
        FeatureReceipt::Conflict { event, of, key } => {
            out.push_str(r#"{"outcome":"conflict""#);
            write_event(out, "event", *event);
            write_event(out, "of", *of);
            write_key(out, key);
        }
        FeatureReceipt::Refused { fault, line, kept } => {
            out.push_str(r#"{"outcome":"refused""#);
            if with_line {
                let _ = write!(out, r#","line":{line}"#);
            }
            if let Some(event) = kept {
                write_event(out, "event", *event);
            }
            member(out, "code", &fault.code);
            member(out, "pointer", &fault.pointer);
            member(out, "detail", &fault.message);
            if let Some(hint) = &fault.hint {
                member(out, "hint", hint);
            }
        }
    }
    out.push('}');
}

fn write_event(out: &mut String, name: &str, event: EventId) {
    let _ = write!(out, r#","{name}":"{event}""#);
}

fn write_key(out: &mut String, key: &Fingerprint) {
    out.push_str(r#","key":""#);
    key.write(Encoding::Base64, out);
    out.push('"');
}

fn write_warnings(out: &mut String, warnings: &[Warning]) {
    if warnings.is_empty() {
        return;
    }
    out.push_str(r#","warnings":["#);
    for (i, warning) in warnings.iter().enumerate() {
        out.push_str(if i == 0 { "{" } else { ",{" });
        let _ = write!(out, r#""code":"{}""#, warning.code);
        member(out, "pointer", &warning.pointer);
        member(out, "detail", &warning.message);
        out.push('}');
    }
    out.push(']');
}

/// Appends `,"name":"text"`; the name needs no escaping.
pub(crate) fn member(out: &mut String, name: &str, text: &str) {
    let _ = write!(out, r#","{name}":"#);
    string(out, text);
}

/// Appends a JSON string.
pub(crate) fn string(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            // Also those above ASCII: what is shown in a terminal must not move its cursor.
            control if control.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::{code, string};

    #[test]
    fn every_code_is_documented() {
        let documentation = include_str!("../../../../docs/errors.md");
        for code in code::ALL {
            assert!(documentation.contains(&format!("| `{code}` |")), "{code} is not in docs/errors.md");
        }
    }

    #[test]
    fn strings_are_json_whatever_they_hold() {
        let text = "a\"b\\c\n\u{1b}[31m\u{7f}\u{9b}é𐍈";
        let mut out = String::new();
        string(&mut out, text);
        assert!(!out.chars().any(char::is_control));
        assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
    }
}
