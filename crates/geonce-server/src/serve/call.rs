//! Requests of the API on their way in: who asks, which route, the body. What they mean is `api`'s business.
//!
//! A few at a time, each within a time limit, and handled on threads of the API's own: however much is asked, senders are
//! acknowledged as if nobody asked.

use super::answer::{Answer, Problem, code};
use super::body::{self, Coding};
use super::connection::{Phase, Watch};
use super::route::PATH_BYTES_MAX;
use super::{Door, Gateway};
use crate::api::{self, Action, Call, Found, problem};
use bytes::Bytes;
use geonce_key::split::Format;
use hyper::Request;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use std::sync::Arc;
use tokio::task::JoinHandle;

const SNIFF: HeaderName = HeaderName::from_static("x-content-type-options");

/// Answers one request.
pub(super) async fn answer(gateway: &Arc<Gateway>, watch: &Watch, request: Request<Incoming>) -> Answer {
    watch.enter_for(Phase::Handling, api::ANSWER_WITHIN);
    let (head, incoming) = request.into_parts();
    let mut unread = !incoming.is_end_stream();
    let answered = match admit(gateway, watch, &head) {
        Ok(found) if found.action.takes_body() => {
            unread = false;
            with_body(gateway, watch, &head, incoming, found).await
        }
        Ok(found) => handle(gateway, watch, &head, Bytes::new(), found).await,
        Err(problem) => Err(problem),
    };
    if unread {
        watch.leave_unread();
    }
    let mut answer = answered.unwrap_or_else(Problem::answer);
    // What is told here is of this moment, and for whoever has the token.
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer.headers_mut().insert(SNIFF, HeaderValue::from_static("nosniff"));
    answer
}

/// Whether the request is one of ours, and which.
fn admit(gateway: &Gateway, watch: &Watch, head: &Parts) -> Result<Found, Problem> {
    let access = &gateway.api.access;
    if access.has_own_door && watch.caller.door == Door::Senders {
        return Err(Problem::not_found());
    }
    let path = head.uri.path();
    let length = head.uri.path_and_query().map_or(path.len(), |all| all.as_str().len());
    if length > PATH_BYTES_MAX {
        return Err(Problem::path_too_long());
    }
    access.admit(watch.caller, &head.uri, &head.headers)?;
    let found = api::find(&head.method, path);
    if !matches!(&found, Ok(Found { action: Action::Openapi, .. })) {
        access.check_token(head, gateway.clock.now())?;
    }
    found
}

async fn with_body(
    gateway: &Arc<Gateway>,
    watch: &Watch,
    head: &Parts,
    incoming: Incoming,
    found: Found,
) -> Result<Answer, Problem> {
    let stated = body::coding(&head.headers).and_then(|coding| {
        let is_json = matches!(body::content(&head.headers), Ok(body::Content::Payload(Format::Json)));
        if is_json { Ok(coding) } else { Err(problem::content_type()) }
    });
    let coding = stated.inspect_err(|_| {
        if !incoming.is_end_stream() {
            watch.leave_unread();
        }
    })?;
    let _turn = turn(gateway).inspect_err(|_| watch.leave_unread())?;
    let budget = &gateway.api.budget;
    let of_ours =
        |problem: Problem| if problem.code() == code::BODY_TOO_LARGE { problem::too_large() } else { problem };
    let mut received = body::read(incoming, api::BODY_BYTES_MAX, budget, watch).await.map_err(of_ours)?;
    watch.enter_for(Phase::Handling, api::ANSWER_WITHIN);
    if coding == Coding::Gzip {
        received = body::inflate(received, api::BODY_BYTES_MAX, budget).await.map_err(of_ours)?;
    }
    if received.bytes.is_empty() {
        return Err(Problem::empty());
    }
    run(gateway, watch, head, received.bytes.clone(), found).await
}

async fn handle(
    gateway: &Arc<Gateway>,
    watch: &Watch,
    head: &Parts,
    body: Bytes,
    found: Found,
) -> Result<Answer, Problem> {
    match found.action {
        Action::Stream => return api::follow(gateway, head),
        Action::Openapi => return api::openapi(head.uri.query()),
        _ => {}
    }
    let _turn = turn(gateway)?;
    run(gateway, watch, head, body, found).await
}

fn turn(gateway: &Gateway) -> Result<tokio::sync::SemaphorePermit<'_>, Problem> {
    gateway.api.turns.try_acquire().map_err(|_| problem::busy())
}

/// Handles the request on the API's own threads, for as long as somebody waits.
async fn run(
    gateway: &Arc<Gateway>,
    watch: &Watch,
    head: &Parts,
    body: Bytes,
    found: Found,
) -> Result<Answer, Problem> {
    let call = Call { found, query: head.uri.query().map(str::to_owned), body, caller: watch.caller };
    let mut task = Ended(gateway.api.runtime.spawn(api::handle(Arc::clone(gateway), call)));
    match watch.within(&mut task.0).await {
        None => Err(problem::late()),
        Some(Ok(answered)) => answered,
        Some(Err(_)) => Err(Problem::internal()),
    }
}

/// A task that ends with whoever waits for it.
struct Ended<T>(JoinHandle<T>);

impl<T> Drop for Ended<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
