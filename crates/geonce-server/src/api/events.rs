//! Events: a page of them, one, and the payload of one.

use super::filter::{self, LIST};
use super::query::Query;
use super::{Call, json, problem};
use crate::serve::{Answer, Gateway, Problem, respond};
use crate::{hints, payload as payloads, record};
use geonce::event::{EventId, State};
use geonce::store::{Filter, ListRequest, Record};
use hyper::StatusCode;
use hyper::header::HeaderValue;
use std::fmt::Write;

/// A page, the latest first.
pub(super) async fn list(gateway: &Gateway, call: &Call) -> Result<Answer, Problem> {
    let query = Query::read(call.query.as_deref(), LIST)?;
    let filter = filter::of_query(&query, gateway.clock.now())?;
    let (records, next) = page(gateway, filter, query.cursor()?, query.limit()?, false).await?;
    Ok(json(StatusCode::OK, listed("events", records.iter().map(record::line), next)))
}

/// The text of a page.
pub(super) fn listed(name: &str, lines: impl Iterator<Item = String>, next: Option<EventId>) -> String {
    let mut text = format!("{{\"{name}\":[");
    for (i, line) in lines.enumerate() {
        text.push_str(if i == 0 { "" } else { "," });
        text.push_str(&line);
    }
    let _ = match next {
        Some(next) => write!(text, "],\"next\":\"{next}\"}}"),
        None => write!(text, "],\"next\":null}}"),
    };
    text
}

/// At most `limit` events before `before`, and where the next page begins, if there is one.
pub(super) async fn page(
    gateway: &Gateway,
    filter: Filter,
    before: Option<EventId>,
    limit: usize,
    payloads: bool,
) -> Result<(Vec<Record>, Option<EventId>), Problem> {
    // One more than is shown says whether there is more.
    let request = ListRequest { filter, before, limit: limit + 1, payloads };
    let mut records = gateway.store.list(request).await.map_err(|error| problem::store(&error))?;
    let more = records.len() > limit;
    records.truncate(limit);
    let next = records.last().map(|record| record.id).filter(|_| more);
    Ok((records, next))
}

/// The event of this id.
pub(super) async fn find(gateway: &Gateway, id: &str, with_payload: bool) -> Result<Record, Problem> {
    let id: EventId = id.parse().map_err(|_| problem::event_unknown())?;
    let filter = Filter { id: Some(id), ..Filter::default() };
    let (records, _) = page(gateway, filter, None, 1, with_payload).await?;
    records.into_iter().next().ok_or_else(problem::event_unknown)
}

/// Everything that is known about an event, but its payload.
pub(super) async fn show(gateway: &Gateway, call: &Call) -> Result<Answer, Problem> {
    Query::read(call.query.as_deref(), &[])?;
    let found = find(gateway, &call.found.id, false).await?;
    let mut text = record::line(&found);
    let hint = found.cause.as_ref().filter(|_| found.state == State::Dead).map(hints::for_cause);
    text.truncate(text.len() - 1);
    text.push_str(",\"hint\":");
    text.push_str(&serde_json::Value::from(hint).to_string());
    text.push('}');
    Ok(json(StatusCode::OK, text))
}

/// The payload of an event, byte for byte.
pub(super) async fn payload(gateway: &Gateway, call: &Call) -> Result<Answer, Problem> {
    Query::read(call.query.as_deref(), &[])?;
    let found = find(gateway, &call.found.id, true).await?;
    let bytes = found.payload.ok_or_else(problem::payload_gone)?;
    let content_type = HeaderValue::from_static(payloads::content_type(&bytes, found.form));
    Ok(respond(StatusCode::OK, content_type, bytes))
}
