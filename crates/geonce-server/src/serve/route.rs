//! Which path is answered by what.

use super::answer::{Answer, Problem};
use super::connection::{Phase, Watch};
use super::{Door, Gateway, Served, call, observe, receive};
use hyper::body::{Body, Incoming};
use hyper::{Method, Request};
use std::borrow::Cow;
use std::sync::Arc;

/// The longest path, with its query, that is looked at.
pub(super) const PATH_BYTES_MAX: usize = 2_048;

pub(super) async fn answer(gateway: &Arc<Gateway>, watch: &Watch, request: Request<Incoming>) -> Answer {
    if watch.caller.door == Door::Api || request.uri().path().starts_with("/api/") {
        // Rare, and not to make every request's future larger.
        return Box::pin(call::answer(gateway, watch, request)).await;
    }
    if let Some(name) = request.uri().path().strip_prefix("/in/")
        && request.uri().path().len() <= PATH_BYTES_MAX
    {
        let found = source(gateway, name);
        return match (found, request.method()) {
            (Some(served), &Method::POST) => receive::post(gateway, served, watch, request).await,
            (found, _) => unread(
                watch,
                &request,
                found.map_or_else(|| Problem::source_unknown().answer(), |served| other_method(served, &request)),
            ),
        };
    }
    watch.enter(Phase::Handling);
    let answer = Box::pin(elsewhere(gateway, &request)).await;
    unread(watch, &request, answer)
}

/// The source of this name, which may be percent-encoded. Nothing else is done to a path: `..` is a name like any
/// other, and no source's.
fn source<'a>(gateway: &'a Gateway, name: &str) -> Option<&'a Served> {
    gateway.sources.get(&*percent_decode_text(name)?)
}

/// The bytes that `%XX` stand for; `None` if some stand for nothing.
pub(crate) fn percent_decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, after @ ..] = rest else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push(u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?);
        rest = after;
    }
    Some(bytes)
}

/// The same for text.
pub(super) fn percent_decode_text(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    String::from_utf8(percent_decode(text.as_bytes())?).ok().map(Cow::Owned)
}

fn other_method(served: &Served, request: &Request<Incoming>) -> Answer {
    match *request.method() {
        Method::GET => receive::challenge(served, request),
        Method::OPTIONS => receive::handshake(request),
        _ => Problem::method(receive::ALLOW).answer(),
    }
}

async fn elsewhere(gateway: &Gateway, request: &Request<Incoming>) -> Answer {
    let path = request.uri().path();
    if path.len() > PATH_BYTES_MAX {
        return Problem::path_too_long().answer();
    }
    if !matches!(path, "/" | "/healthz" | "/readyz" | "/metrics") {
        return Problem::not_found().answer();
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Problem::method("GET, HEAD").answer();
    }
    match path {
        "/healthz" => observe::health(),
        "/readyz" => observe::ready(gateway).await,
        "/metrics" => observe::metrics(gateway).await,
        _ => observe::front(),
    }
}

/// Notes that a body, if there is one, was not read.
fn unread(watch: &Watch, request: &Request<Incoming>, answer: Answer) -> Answer {
    if !request.body().is_end_stream() {
        watch.leave_unread();
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::percent_decode_text;

    #[test]
    fn percent_signs_are_decoded_or_refused() {
        for (text, expected) in [
            ("drones", Some("drones")),
            ("dr%6Fnes", Some("drones")),
            ("z%C3%BCrich", Some("zürich")),
            ("a%2fb", Some("a/b")),
            ("%", None),
            ("%6", None),
            ("%zz", None),
            ("%ff", None),
        ] {
            assert_eq!(percent_decode_text(text).as_deref(), expected, "{text}");
        }
    }
}
