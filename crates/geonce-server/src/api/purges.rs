//! Dead events that are removed for good: one at once, or as a job by a filter.

use super::filter::Selection;
use super::job::{Kind, Task};
use super::jobs::{Plan, planned, trail, who};
use super::query::Query;
use super::replays::{Asked, checked, wanted};
use super::{Call, body, events, problem};
use crate::hints;
use crate::serve::{Answer, Gateway, Problem};
use geonce::event::State;
use geonce::replay::{self, Selected};
use geonce::store::Filter;
use hyper::StatusCode;
use serde_json::{Value, json};

/// Removes one dead event.
pub(super) async fn one(gateway: &Gateway, call: &Call) -> Result<Answer, Problem> {
    Query::read(call.query.as_deref(), &[])?;
    let found = events::find(gateway, &call.found.id, false).await?;
    if found.state != State::Dead {
        return Err(problem::not_dead(found.state));
    }
    let failed = |error: geonce::Error| problem::store(&error);
    let asked = json!({ "events": 1, "first": [found.id.to_string()] });
    let entry = trail(gateway).begin(&who(call), Kind::Purge.as_str(), asked).await.map_err(failed)?;
    let filter = Filter { id: Some(found.id), state: Some(State::Dead), ..Filter::default() };
    let purged = gateway.store.purge(filter, gateway.clock.now()).await;
    let count = purged.as_ref().copied().unwrap_or(0);
    let noted = entry.end(&json!({ "planned": 1, "purged": count, "failed": purged.is_err() })).await;
    if purged.map_err(failed)? == 0 {
        // Replayed, or purged by somebody else, in between.
        return Err(problem::event_unknown());
    }
    noted.map_err(failed)?;
    let mut answer = Answer::default();
    *answer.status_mut() = StatusCode::NO_CONTENT;
    Ok(answer)
}

/// Plans to remove dead events.
pub(super) async fn plan(gateway: &Gateway, call: &Call) -> Result<Answer, Problem> {
    let Asked { filter, rate, who, follow } = body::read(call)?;
    let (rate, wanted) = (checked(rate)?, wanted(who, follow)?);
    let (selected, shown) = select(gateway, &filter).await?;
    let task = Task { selected, rate, choices: None };
    planned(gateway, Plan { kind: Kind::Purge, asked: json!({ "filter": filter, "rate": rate }), shown, task, wanted })
}

/// The dead events that are meant, and how a plan shows them.
pub(super) async fn select(gateway: &Gateway, filter: &Selection) -> Result<(Selected, Value), Problem> {
    let filters = filter.filters(gateway.clock.now())?;
    let selected = replay::select(&*gateway.store, &filters).await.map_err(|error| problem::store(&error))?;
    let groups: Vec<Value> = selected
        .groups
        .iter()
        .map(|((source, code), group)| {
            let hint = hints::for_cause(&group.cause);
            json!({ "source": source, "code": code, "events": group.events, "hint": hint })
        })
        .collect();
    let shown = json!({ "groups": groups, "more": selected.more });
    Ok((selected, shown))
}
