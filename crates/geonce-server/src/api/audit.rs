//! The audit trail: what was done to events by people.

use super::events::{listed, page};
use super::query::Query;
use super::{Call, json};
use crate::serve::{Answer, Gateway, Problem};
use geonce::audit::SOURCE;
use geonce::store::{Filter, Record};
use hyper::StatusCode;
use serde_json::{Value, json};

/// A page of the trail, the latest first.
pub(super) async fn list(gateway: &Gateway, call: &Call) -> Result<Answer, Problem> {
    let query = Query::read(call.query.as_deref(), &["limit", "cursor"])?;
    let filter = Filter { source: Some(SOURCE.to_owned()), ..Filter::default() };
    let (records, next) = page(gateway, filter, query.cursor()?, query.limit()?, true).await?;
    Ok(json(StatusCode::OK, listed("entries", records.iter().map(entry), next)))
}

fn entry(record: &Record) -> String {
    let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
    json!({
        "event": record.id.to_string(),
        "at": record.received.to_string(),
        "asked": record.payload.as_deref().and_then(read),
        "result": record.result.as_deref().map(|result| read(result.as_bytes()).unwrap_or_else(|| result.into())),
    })
    .to_string()
}
