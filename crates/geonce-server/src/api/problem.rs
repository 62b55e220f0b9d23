//! Problems of the API: their statuses and codes. `docs/errors.md` lists them.

use crate::serve::Problem;
use geonce::error::Kind;
use hyper::StatusCode;
use hyper::header;

/// Seconds after which one may ask again: when we are busy, and when something must be mended first.
const RETRY_SOON_SECONDS: u16 = 2;
const RETRY_LATER_SECONDS: u16 = 30;

/// Codes of problems that are only the API's.
pub(crate) mod code {
    pub(crate) const BODY_INVALID: &str = "body_invalid";
    pub(crate) const EVENT_UNKNOWN: &str = "event_unknown";
    pub(crate) const HOST: &str = "api_host";
    pub(crate) const JOB_ENDED: &str = "job_ended";
    pub(crate) const JOB_UNKNOWN: &str = "job_unknown";
    pub(crate) const NOT_DEAD: &str = "not_dead";
    pub(crate) const ORIGIN: &str = "api_origin";
    pub(crate) const PAYLOAD_GONE: &str = "payload_gone";
    pub(crate) const QUERY_INVALID: &str = "query_invalid";
    pub(crate) const QUERY_UNKNOWN: &str = "query_unknown";
    pub(crate) const REMOTE: &str = "api_remote";
    pub(crate) const TOKEN: &str = "api_token";
    pub(crate) const TOO_MANY: &str = "api_busy";
    #[cfg(test)]
    pub(crate) const ALL: &[&str] = &[
        BODY_INVALID,
        EVENT_UNKNOWN,
        HOST,
        JOB_ENDED,
        JOB_UNKNOWN,
        NOT_DEAD,
        ORIGIN,
        PAYLOAD_GONE,
        QUERY_INVALID,
        QUERY_UNKNOWN,
        REMOTE,
        TOKEN,
        TOO_MANY,
    ];
}

pub(crate) fn not_found() -> Problem {
    Problem::not_found().hint("GET /api/v1/openapi.json lists every route")
}

/// The methods that a path takes, for `Allow`. There are not many ways to put them together.
pub(crate) fn method(verbs: &[&str]) -> Problem {
    const LISTS: [&str; 5] = ["GET, HEAD", "POST", "GET, HEAD, POST", "GET, HEAD, DELETE", "GET, HEAD, POST, DELETE"];
    let all = verbs.join(", ");
    Problem::method(LISTS.into_iter().find(|list| *list == all).unwrap_or("GET, HEAD, POST, DELETE"))
}

pub(crate) fn remote() -> Problem {
    let detail = "the API is for this machine only";
    Problem::new(StatusCode::FORBIDDEN, code::REMOTE, detail).hint("remote = true in [api] opens it to others")
}

pub(crate) fn host() -> Problem {
    let detail = "the request is for another host than this machine";
    Problem::new(StatusCode::FORBIDDEN, code::HOST, detail)
        .hint("call it localhost, or 127.0.0.1; remote = true in [api] allows every name")
}

pub(crate) fn origin() -> Problem {
    Problem::new(StatusCode::FORBIDDEN, code::ORIGIN, "the request comes from a page of another host")
}

/// The same for every cause.
pub(crate) fn token() -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, code::TOKEN, "the token is missing or wrong")
        .hint("Authorization: Bearer TOKEN; it is [api] token, or in the file api.token in the data folder")
        .with(header::WWW_AUTHENTICATE, "Bearer realm=\"geonce\"")
}

pub(crate) fn content_type() -> Problem {
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_type", "the body must be application/json")
        .with(header::ACCEPT, "application/json")
}

pub(crate) fn too_large() -> Problem {
    let detail = format!("a body has at most {} bytes here, also once inflated", super::BODY_BYTES_MAX);
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
}

pub(crate) fn busy() -> Problem {
    let detail = "as many requests as may be are being handled";
    Problem::new(StatusCode::TOO_MANY_REQUESTS, code::TOO_MANY, detail).retry_after(RETRY_SOON_SECONDS)
}

/// Something is in short supply that only ends with time: streams, jobs.
pub(crate) fn too_many(detail: &'static str) -> Problem {
    Problem::new(StatusCode::TOO_MANY_REQUESTS, code::TOO_MANY, detail).retry_after(RETRY_LATER_SECONDS)
}

pub(crate) fn late() -> Problem {
    let detail = "there was no answer in time; a job that was to be started may have been";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "late", detail)
        .hint("ask for a smaller page, or for dead events only")
        .retry_after(RETRY_SOON_SECONDS)
}

/// The store does not tell its books.
pub(crate) fn no_books() -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", "the store does not answer")
        .retry_after(RETRY_SOON_SECONDS)
}

/// What a failure of the store looks like from outside. Its words are for the log: they may hold file names.
pub(crate) fn store(error: &geonce::Error) -> Problem {
    tracing::warn!(%error, kind = error.kind().as_str(), hint = error.hint_text(), "a request of the API failed");
    let unavailable = |detail| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", detail);
    match error.kind() {
        Kind::Unavailable => unavailable("the store does not answer").retry_after(RETRY_SOON_SECONDS),
        Kind::Resource => unavailable("the store has no room").retry_after(RETRY_LATER_SECONDS),
        Kind::Permission => unavailable("the store refuses us").retry_after(RETRY_LATER_SECONDS),
        _ => Problem::internal(),
    }
}

pub(crate) fn query_unknown(name: &str, known: &[&str]) -> Problem {
    let shown: String = name.chars().take(40).collect();
    let hint = if known.is_empty() { "there are none here".to_owned() } else { known.join(", ") };
    Problem::new(StatusCode::BAD_REQUEST, code::QUERY_UNKNOWN, format!("there is no parameter {shown:?}")).hint(hint)
}

pub(crate) fn query_invalid(name: &str, detail: &str) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, code::QUERY_INVALID, format!("{name}: {detail}"))
}

pub(crate) fn body_invalid(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, code::BODY_INVALID, detail.into())
}

pub(crate) fn event_unknown() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, code::EVENT_UNKNOWN, "the store knows no such event")
        .hint("it may have been forgotten: its window is over")
}

pub(crate) fn payload_gone() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, code::PAYLOAD_GONE, "the payload of this event is not kept any more")
        .hint("store.keep_payload keeps payloads for the window")
}

pub(crate) fn not_dead(state: geonce::event::State) -> Problem {
    Problem::new(StatusCode::CONFLICT, code::NOT_DEAD, format!("the event is {state}; only dead ones can be purged"))
}

pub(crate) fn job_unknown() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, code::JOB_UNKNOWN, "there is no such job here")
        .hint("jobs are kept by the gateway they were planned at, until it stops; GET /api/v1/audit has what was done")
}

pub(crate) fn job_ended(state: &str) -> Problem {
    Problem::new(StatusCode::CONFLICT, code::JOB_ENDED, format!("the job is {state}")).hint("plan it again")
}

#[cfg(test)]
mod tests {
    use super::code;

    #[test]
    fn every_code_is_documented() {
        let documentation = include_str!("../../../../docs/errors.md");
        for code in code::ALL {
            assert!(documentation.contains(&format!("| `{code}` |")), "{code} is not in docs/errors.md");
        }
    }
}
