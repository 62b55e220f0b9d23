//! Which events are meant: by parameters of a query, or by a filter in a body. The same words as on the command line.

use super::body::said;
use super::problem;
use super::query::{PLAIN, Query, plain};
use crate::arguments::moment;
use crate::serve::Problem;
use geonce::clock::Timestamp;
use geonce::event::{EventId, Outcome, State};
use geonce::store::Filter;
use geonce_key::Fingerprint;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Events that a filter may name.
pub(crate) const EVENTS_MAX: usize = 10_000;

/// Parameters that say which events are meant.
pub(super) const LIST: &[&str] = &["source", "state", "outcome", "code", "key", "since", "until", "limit", "cursor"];

/// The filter of a query.
pub(super) fn of_query(query: &Query, now: Timestamp) -> Result<Filter, Problem> {
    let time = |name: &'static str| {
        let parsed = query.get(name).map(|text| moment(text, now).ok_or_else(|| problem::query_invalid(name, TIME)));
        parsed.transpose()
    };
    let key = query.get("key").map(|text| {
        Fingerprint::key_of_text(text).ok_or_else(|| problem::query_invalid("key", "a key is g1_ and 22 characters"))
    });
    Ok(Filter {
        id: None,
        key: key.transpose()?,
        source: query.text("source")?,
        state: query.word("state", State::ALL, State::as_str)?,
        outcome: query.word("outcome", Outcome::ALL, Outcome::as_str)?,
        code: query.text("code")?,
        since: time("since")?,
        until: time("until")?,
    })
}

const TIME: &str = "2h for two hours ago, or a time such as 2026-11-15T08:00:00Z";

/// Which dead events a job is about. Something must be said, if only `all`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Selection {
    /// These events. None of them is a mistake, not all of them.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "said")]
    pub(super) events: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "said")]
    pub(super) source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "said")]
    pub(super) code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "said")]
    pub(super) since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "said")]
    pub(super) until: Option<String>,
    /// All of them; needed where nothing else is said.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) all: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks like this")]
fn is_false(said: &bool) -> bool {
    !said
}

impl Selection {
    /// Filters, of which one must hold.
    pub(super) fn filters(&self, now: Timestamp) -> Result<Vec<Filter>, Problem> {
        let said = self.events.is_some()
            || [&self.source, &self.code, &self.since, &self.until].iter().any(|condition| condition.is_some());
        if !said && !self.all {
            return Err(problem::body_invalid("say which dead events are meant")
                .at("/filter")
                .hint("events, source, code, since, until, or \"all\": true"));
        }
        let named = self.events.as_deref().unwrap_or_default();
        if self.events.is_some() && !(1..=EVENTS_MAX).contains(&named.len()) {
            let detail = format!("there are 1 to {EVENTS_MAX} events in a filter");
            return Err(problem::body_invalid(detail).at("/filter/events"));
        }
        let text = |name: &str, text: &Option<String>| {
            let wrong = || problem::body_invalid(PLAIN).at(format!("/filter/{name}"));
            text.as_deref().map(|text| plain(text).ok_or_else(wrong)).transpose()
        };
        let time = |name: &str, text: &Option<String>| {
            let wrong = || problem::body_invalid(TIME).at(format!("/filter/{name}"));
            text.as_deref().map(|text| moment(text, now).ok_or_else(wrong)).transpose()
        };
        let base = Filter {
            source: text("source", &self.source)?,
            code: text("code", &self.code)?,
            since: time("since", &self.since)?,
            until: time("until", &self.until)?,
            state: Some(State::Dead),
            ..Filter::default()
        };
        if named.is_empty() {
            return Ok(vec![base]);
        }
        let named = named.iter().enumerate().map(|(i, name)| {
            let id = name
                .parse::<EventId>()
                .map_err(|wrong| problem::body_invalid(wrong.to_string()).at(format!("/filter/events/{i}")))?;
            Ok(id)
        });
        let named: BTreeSet<EventId> = named.collect::<Result<_, Problem>>()?;
        Ok(named.into_iter().map(|id| Filter { id: Some(id), ..base.clone() }).collect())
    }
}
