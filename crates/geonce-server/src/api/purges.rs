//! Dead events that are removed for good: one, or as a job by a filter.

use super::filter::Selection;
use super::jobs::{Kind, Plan, planned};
use super::query::Query;
use super::{Call, events, explain, problem};
use crate::serve::{Answer, Gateway, Problem};
use geonce::event::State;
use geonce::store::{Filter, ListRequest};
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Events that are counted at once.
const PAGE_EVENTS: usize = 1_000;

/// Removes one dead event.
pub(super) async fn one(gateway: &Gateway, call: &Call) -> Result<Answer, Problem> {
    Query::read(call.query.as_deref(), &[])?;
    let found = events::find(gateway, &call.found.id, false).await?;
    if found.state != State::Dead {
        return Err(problem::not_dead(found.state));
    }
    let filter = Filter { id: Some(found.id), state: Some(State::Dead), ..Filter::default() };
    let now = gateway.clock.now();
    let purged = gateway.store.purge(filter, now).await.map_err(|error| problem::store(&error))?;
    if purged == 0 {
        // Replayed, or purged by somebody else, in between.
        return Err(problem::event_unknown());
    }
    let mut answer = Answer::default();
    *answer.status_mut() = StatusCode::NO_CONTENT;
    Ok(answer)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    filter: Selection,
}

/// Plans to remove dead events.
pub(super) async fn plan(gateway: &Gateway, call: &Call) -> Result<Answer, Problem> {
    let Asked { filter } = explain::read(call)?;
    let filters = filter.filters(gateway.clock.now())?;
    let groups = count(gateway, &filters).await?;
    let events = groups.values().sum();
    let work = move |gateway: Arc<Gateway>, progress: Arc<super::jobs::Progress>| {
        Box::pin(async move {
            for filter in filters {
                if progress.stop.load(Relaxed) {
                    break;
                }
                let purged = gateway.store.purge(filter, gateway.clock.now()).await?;
                progress.done.fetch_add(purged, Relaxed);
            }
            let purged = progress.done.load(Relaxed);
            let cancelled = progress.stop.load(Relaxed);
            Ok(json!({ "purged": purged, "cancelled": cancelled }))
        }) as std::pin::Pin<Box<dyn Future<Output = geonce::Result<Value>> + Send>>
    };
    planned(
        gateway,
        Plan {
            kind: Kind::Purge,
            asked: json!({ "filter": filter }),
            shown: json!({ "groups": shown(&groups) }),
            events,
            work: Box::new(work),
        },
    )
}

/// Dead events by source and code.
pub(super) type Groups = BTreeMap<(String, String), u64>;

/// How many dead events are meant.
pub(super) async fn count(gateway: &Gateway, filters: &[Filter]) -> Result<Groups, Problem> {
    let mut groups = Groups::new();
    for filter in filters {
        let mut before = None;
        loop {
            let request = ListRequest { filter: filter.clone(), before, limit: PAGE_EVENTS, payloads: false };
            let page = gateway.store.list(request).await.map_err(|error| problem::store(&error))?;
            before = page.last().map(|record| record.id);
            let full = page.len() == PAGE_EVENTS;
            for record in page {
                let code = record.cause.map_or_else(String::new, |cause| cause.code);
                *groups.entry((record.source.to_string(), code)).or_default() += 1;
            }
            if !full {
                break;
            }
        }
    }
    Ok(groups)
}

pub(super) fn shown(groups: &Groups) -> Vec<Value> {
    let group = |((source, code), events): (&(String, String), &u64)| json!({ "source": source, "code": code, "events": events });
    groups.iter().map(group).collect()
}
