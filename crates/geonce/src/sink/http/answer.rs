//! What an answer, or silence, means for the event. `docs/sink-http.md` holds the same table.

use crate::clock::Timestamp;
use crate::event::{Cause, Class, Outcome};
use crate::sink::Written;
use hyper::header::{HeaderMap, RETRY_AFTER};
use hyper::{StatusCode, header};
use std::time::{Duration, UNIX_EPOCH};

/// The longest wait that an endpoint can ask for.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);
/// How long an endpoint that is gone is left alone at a time.
const GONE_WAIT: Duration = Duration::from_mins(5);

/// What a status means.
pub(super) fn written(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Written {
    let code = format!("http_{}", status.as_u16());
    let said = |what: &str| format!("the endpoint answered {status}: {what}");
    match status.as_u16() {
        200..=299 => Written::Done(Outcome::Applied),
        408 | 425 | 429 | 500..=599 => Written::Retry {
            cause: Cause::new(Class::Unavailable, code, said("not now")),
            after: retry_after(headers, now).map(|wait| wait.min(RETRY_AFTER_MAX)),
            counts: true,
        },
        300..=399 => Written::Dead(Cause::new(
            Class::Constraint,
            "http_redirect",
            said("redirects are not followed; set the sink's url to where it leads"),
        )),
        401 | 403 | 407 => Written::Dead(Cause::new(Class::Permission, code, said("it refuses us"))),
        410 => Written::Dead(Cause::new(Class::Permission, code, said("it is gone and gets no more events"))),
        _ => Written::Dead(Cause::new(Class::Schema, code, said("it does not take this event"))),
    }
}

/// What events are told once the endpoint said that it is gone: they wait, and nothing is sent.
pub(super) fn gone() -> Written {
    let message = "the endpoint said that it is gone (410); the sink is disabled until geonce starts again";
    Written::Retry { cause: Cause::new(Class::Permission, "http_gone", message), after: Some(GONE_WAIT), counts: false }
}

/// Something answered, but not in HTTP. It counts: an event whose every answer is garbled must end somewhere.
pub(super) fn garbled(error: &hyper::Error) -> Written {
    let cause = Cause::new(Class::Unavailable, "http_protocol", format!("the answer is no HTTP: {error}"));
    Written::Retry { cause, after: None, counts: true }
}

/// When the endpoint wants to be asked again: seconds or a date, RFC 9110 section 10.2.3.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are a very long time.
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        let date = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
        Timestamp::from_millis(i64::try_from(date.as_millis()).ok()?).since(now)
    };
    Some(wait)
}

/// Why there was no answer.
#[derive(Clone, Debug)]
pub(super) struct Silence {
    /// A stable code.
    pub(super) code: &'static str,
    /// One sentence.
    pub(super) message: String,
    /// The class of the cause.
    pub(super) class: Class,
    /// Whether the endpoint cannot be reached at all, so that no other event need try.
    pub(super) down: bool,
}

impl Silence {
    /// The endpoint cannot be reached.
    pub(super) fn down(code: &'static str, message: impl Into<String>) -> Silence {
        Silence { code, message: message.into(), class: Class::Unavailable, down: true }
    }

    /// The connection failed under this request.
    pub(super) fn lost(code: &'static str, message: impl Into<String>) -> Silence {
        Silence { code, message: message.into(), class: Class::Unavailable, down: false }
    }

    /// The event waits; this was no answer to it.
    pub(super) fn written(&self) -> Written {
        let cause = Cause::new(self.class, self.code, self.message.clone());
        Written::Retry { cause, after: None, counts: false }
    }
}

/// Whether the connection can be used again after this answer.
pub(super) fn keeps_alive(headers: &HeaderMap) -> bool {
    !headers.get_all(header::CONNECTION).iter().any(|value| value.as_bytes().eq_ignore_ascii_case(b"close"))
}
