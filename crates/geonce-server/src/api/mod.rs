//! `/api/v1`: what a person or a dashboard asks about events, and has done about them.
//!
//! [`find`] is the table of routes, [`handle`] the only match on what they do. Each route has a file; who may ask is
//! [`access`]'s, HTTP itself is `serve`'s. `docs/openapi.json` describes every answer.

mod access;
mod audit;
mod body;
mod dead;
mod events;
mod explain;
mod filter;
mod happened;
mod job;
mod jobs;
mod policy;
pub(crate) mod problem;
mod purges;
mod query;
mod repairs;
mod replays;
mod route;
mod sources;
mod stream;
pub(crate) mod token;

pub(crate) use access::Access;
pub(crate) use filter::EVENTS_MAX as EVENTS_NAMED_MAX;
pub(crate) use job::Kind;
pub(crate) use route::{Action, Found, find};
#[cfg(test)]
pub(crate) use route::{PREFIX, ROUTES};
pub(crate) use stream::Stream;

use crate::config::Likeness;
use crate::serve::{Answer, Caller, Gateway, JSON, Problem, respond};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use query::Query;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// Requests that are handled at a time. One more is answered 429.
pub(crate) const REQUESTS_AT_ONCE_MAX: usize = 8;

/// The longest body of a request.
pub(crate) const BODY_BYTES_MAX: usize = 4 << 20;

/// Bytes of all bodies: as many as there may be, as sent and inflated.
const BODIES_BYTES_MAX: usize = 2 * REQUESTS_AT_ONCE_MAX * BODY_BYTES_MAX;

/// How long a request may take.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// The document that describes all of it.
pub(crate) const OPENAPI: &str = include_str!("../../../../docs/openapi.json");

/// What requests of the API are served from, besides the gateway.
pub(crate) struct Api {
    /// Who may ask.
    pub(crate) access: Access,
    /// A turn for each request that is handled.
    pub(crate) turns: Semaphore,
    /// What bodies may take up.
    pub(crate) budget: Arc<crate::serve::Budget>,
    /// Where requests are handled.
    pub(crate) runtime: Handle,
    /// What happens, for whoever follows it.
    pub(crate) stream: Arc<Stream>,
    jobs: jobs::Jobs,
    /// What the gateway is called.
    instance: String,
    /// What makes payloads near, of the sources that say so.
    pub(crate) likenesses: HashMap<String, Likeness>,
}

impl Api {
    /// An API whose requests are handled on `runtime`.
    pub(crate) fn new(access: Access, runtime: Handle, stream: Arc<Stream>, instance: &str) -> Api {
        Api {
            access,
            turns: Semaphore::new(REQUESTS_AT_ONCE_MAX),
            budget: Arc::new(crate::serve::Budget::new(BODIES_BYTES_MAX)),
            runtime,
            stream,
            jobs: jobs::Jobs::default(),
            instance: instance.to_owned(),
            likenesses: HashMap::new(),
        }
    }
}

impl Api {
    /// Ends what is under way: the gateway is about to stop. Followers are let go, jobs end where they are.
    pub(crate) async fn end(&self) {
        self.stream.end();
        self.jobs.end_all().await;
    }
}

/// A request whose sender may ask, and whose route is known.
pub(crate) struct Call {
    pub(crate) found: Found,
    pub(crate) query: Option<String>,
    pub(crate) body: Bytes,
    pub(crate) caller: Caller,
}

/// Does what is asked.
pub(crate) async fn handle(gateway: Arc<Gateway>, call: Call) -> Result<Answer, Problem> {
    let gateway = &gateway;
    match call.found.action {
        Action::Events => events::list(gateway, &call).await,
        Action::Event => events::show(gateway, &call).await,
        Action::Payload => events::payload(gateway, &call).await,
        Action::PurgeEvent => purges::one(gateway, &call).await,
        Action::Dead => dead::groups(gateway, &call).await,
        Action::Sources => sources::list(gateway, &call).await,
        Action::Status => sources::status(gateway, &call).await,
        Action::Explain => explain::explain(gateway, &call).await,
        Action::Key => explain::key(gateway, &call).await,
        Action::Audit => audit::list(gateway, &call).await,
        Action::PlanReplay => replays::plan(gateway, &call).await,
        Action::PlanRepair => repairs::plan(gateway, &call).await,
        Action::PlanPurge => purges::plan(gateway, &call).await,
        Action::Jobs(kind) => jobs::list(gateway, kind, &call),
        Action::Job(kind) => jobs::show(gateway, kind, &call),
        Action::Run(kind) => jobs::run(gateway, kind, &call),
        Action::Cancel(kind) => jobs::cancel(gateway, kind, &call),
        Action::Stream | Action::Openapi => Err(Problem::internal()),
    }
}

/// Follows what happens.
pub(crate) fn follow(gateway: &Gateway, head: &Parts) -> Result<Answer, Problem> {
    Query::read(head.uri.query(), &[])?;
    stream::answer(gateway, &head.headers)
}

/// The description of all this.
pub(crate) fn openapi(query: Option<&str>) -> Result<Answer, Problem> {
    Query::read(query, &[])?;
    Ok(respond(StatusCode::OK, HeaderValue::from_static("application/openapi+json"), OPENAPI))
}

/// An answer in JSON.
fn json(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    respond(status, JSON, text)
}
