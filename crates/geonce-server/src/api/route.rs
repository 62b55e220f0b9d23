//! The table of routes. `docs/openapi.json` has the same, which a test compares.

use super::job::Kind;
use super::problem;
use crate::serve::Problem;
use hyper::Method;

/// What all paths begin with.
pub(crate) const PREFIX: &str = "/api/v1";

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Events,
    Event,
    Payload,
    PurgeEvent,
    Dead,
    Sources,
    Status,
    Explain,
    Key,
    PlanReplay,
    PlanRepair,
    PlanPurge,
    Jobs(Kind),
    Job(Kind),
    Run(Kind),
    Cancel(Kind),
    Audit,
    Stream,
    Openapi,
}

impl Action {
    /// Whether the request says more in its body.
    pub(crate) fn takes_body(self) -> bool {
        use Action::{Explain, Key, PlanPurge, PlanRepair, PlanReplay};
        matches!(self, Explain | Key | PlanReplay | PlanRepair | PlanPurge)
    }
}

/// A method and a path below [`PREFIX`]. One part of a path may be an id.
type Route = (&'static str, &'static str, Action);

/// Every route there is.
pub(crate) const ROUTES: &[Route] = &[
    ("GET", "/events", Action::Events),
    ("GET", "/events/{id}", Action::Event),
    ("DELETE", "/events/{id}", Action::PurgeEvent),
    ("GET", "/events/{id}/payload", Action::Payload),
    ("GET", "/dead", Action::Dead),
    ("GET", "/sources", Action::Sources),
    ("GET", "/status", Action::Status),
    ("POST", "/explain", Action::Explain),
    ("POST", "/key", Action::Key),
    ("GET", "/replays", Action::Jobs(Kind::Replay)),
    ("POST", "/replays", Action::PlanReplay),
    ("GET", "/replays/{id}", Action::Job(Kind::Replay)),
    ("DELETE", "/replays/{id}", Action::Cancel(Kind::Replay)),
    ("POST", "/replays/{id}/run", Action::Run(Kind::Replay)),
    ("GET", "/repairs", Action::Jobs(Kind::Repair)),
    ("POST", "/repairs", Action::PlanRepair),
    ("GET", "/repairs/{id}", Action::Job(Kind::Repair)),
    ("DELETE", "/repairs/{id}", Action::Cancel(Kind::Repair)),
    ("POST", "/repairs/{id}/run", Action::Run(Kind::Repair)),
    ("GET", "/purges", Action::Jobs(Kind::Purge)),
    ("POST", "/purges", Action::PlanPurge),
    ("GET", "/purges/{id}", Action::Job(Kind::Purge)),
    ("DELETE", "/purges/{id}", Action::Cancel(Kind::Purge)),
    ("POST", "/purges/{id}/run", Action::Run(Kind::Purge)),
    ("GET", "/audit", Action::Audit),
    ("GET", "/stream", Action::Stream),
    ("GET", "/openapi.json", Action::Openapi),
];

/// A route, and the id in its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) action: Action,
    pub(crate) id: String,
}

/// The route of a request. Where there is a `GET` there is a `HEAD`.
pub(crate) fn find(method: &Method, path: &str) -> Result<Found, Problem> {
    let below = path.strip_prefix(PREFIX).ok_or_else(problem::not_found)?;
    let wanted = if method == Method::HEAD { "GET" } else { method.as_str() };
    let mut allow = Vec::new();
    for (verb, template, action) in ROUTES {
        let Some(id) = matched(template, below) else { continue };
        if *verb == wanted {
            return Ok(Found { action: *action, id: id.to_owned() });
        }
        allow.push(*verb);
        if *verb == "GET" {
            allow.push("HEAD");
        }
    }
    if allow.is_empty() { Err(problem::not_found()) } else { Err(problem::method(&allow)) }
}

/// The id in a path that fits the template; empty where it has none.
fn matched<'a>(template: &str, path: &'a str) -> Option<&'a str> {
    let Some((before, after)) = template.split_once("{id}") else {
        return (template == path).then_some("");
    };
    let id = path.strip_prefix(before)?.strip_suffix(after)?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::{Action, Kind, find};
    use hyper::Method;

    #[test]
    fn a_path_and_a_method_have_one_route() {
        let found = |method: &str, path: &str| find(&Method::from_bytes(method.as_bytes()).unwrap(), path);
        for (method, path, action, id) in [
            ("GET", "/api/v1/events", Action::Events, ""),
            ("HEAD", "/api/v1/events/evt_1", Action::Event, "evt_1"),
            ("DELETE", "/api/v1/events/evt_1", Action::PurgeEvent, "evt_1"),
            ("GET", "/api/v1/events/evt_1/payload", Action::Payload, "evt_1"),
            ("POST", "/api/v1/replays/job_1/run", Action::Run(Kind::Replay), "job_1"),
            ("DELETE", "/api/v1/purges/job_1", Action::Cancel(Kind::Purge), "job_1"),
        ] {
            let found = found(method, path).unwrap();
            assert_eq!((found.action, found.id.as_str()), (action, id), "{method} {path}");
        }
        for (method, path, code) in [
            ("GET", "/api/v2/events", "not_found"),
            ("GET", "/api/v1", "not_found"),
            ("GET", "/api/v1/", "not_found"),
            ("GET", "/api/v1/events/", "not_found"),
            ("GET", "/api/v1/events/a/b", "not_found"),
            ("GET", "/api/v1/events//payload", "not_found"),
            ("POST", "/api/v1/events", "method"),
            ("PUT", "/api/v1/replays/job_1/run", "method"),
        ] {
            assert_eq!(found(method, path).unwrap_err().code(), code, "{method} {path}");
        }
    }
}
