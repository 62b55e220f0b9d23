//! Dead events by source and code: how many, the latest of them, and what would help. The counts are the books', so that a
//! million dead events are as quick as one.

use super::query::Query;
use super::{Call, json, problem};
use crate::hints;
use crate::serve::{Answer, Gateway, Problem};
use geonce::event::State;
use geonce::store::{Filter, ListRequest};
use hyper::StatusCode;
use serde_json::json;

/// Groups that are shown; the rest is counted.
const GROUPS_MAX: usize = 200;

/// The groups, the most frequent first.
pub(super) async fn groups(gateway: &Gateway, call: &Call) -> Result<Answer, Problem> {
    let query = Query::read(call.query.as_deref(), &["source", "code"])?;
    let (source, code) = (query.text("source")?, query.text("code")?);
    let books = gateway.books().await.ok_or_else(problem::no_books)?;
    let is_meant = |name: &str, wanted: &Option<String>| wanted.as_deref().is_none_or(|wanted| wanted == name);
    let mut found: Vec<(&(String, String), u64)> = books
        .dead
        .iter()
        .filter(|((of, died), events)| **events > 0 && is_meant(of, &source) && is_meant(died, &code))
        .map(|(group, events)| (group, *events))
        .collect();
    found.sort_by_key(|(_, events)| std::cmp::Reverse(*events));
    let more = found.len().saturating_sub(GROUPS_MAX);
    let total: u64 = found.iter().map(|(_, events)| events).sum();
    let mut groups = Vec::with_capacity(found.len().min(GROUPS_MAX));
    for ((source, code), events) in found.into_iter().take(GROUPS_MAX) {
        let filter = Filter {
            source: Some(source.clone()),
            code: Some(code.clone()),
            state: Some(State::Dead),
            ..Filter::default()
        };
        let request = ListRequest { filter, limit: 1, ..ListRequest::default() };
        let latest = gateway.store.list(request).await.map_err(|error| problem::store(&error))?.pop();
        let cause = latest.as_ref().and_then(|latest| latest.cause.as_ref());
        groups.push(json!({
            "source": source,
            "code": code,
            "events": events,
            "class": cause.map(|cause| cause.class.as_str()),
            "hint": cause.map(hints::for_cause),
            "latest": latest.as_ref().map(|latest| latest.id.to_string()),
            "last": latest.as_ref().map(|latest| latest.received.to_string()),
        }));
    }
    Ok(json(StatusCode::OK, json!({ "events": total, "groups": groups, "more_groups": more }).to_string()))
}
