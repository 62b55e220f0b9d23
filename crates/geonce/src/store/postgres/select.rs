//! Which events are meant, and work on many of them in transactions short enough not to be noticed: replay, purge, sweep.

use super::counts::Counts;
use super::line;
use super::place;
use super::row::{EVENT_COLUMNS, EventRow, Uuid, get, small};
use super::schema::{PARTS_EVERY, PARTS_KEPT, look_after_parts};
use super::work::{Revived, revive};
use super::{Attempt, Shared, transaction};
use crate::clock::Timestamp;
use crate::event::State;
use crate::postgres::{Parameter, Session};
use crate::store::books::Tally;
use crate::store::encoding::{DEAD, DONE, OPEN, first_id_after, number, outcome_number};
use crate::store::{Filter, Options, Swept};
use std::sync::{Mutex, PoisonError};
use tokio_postgres::types::{ToSql, Type};

/// Records that one transaction looks at.
const SLICE_EVENTS: usize = 500;
/// Records that a sweep looks at, for each one that it may forget.
const EXAMINED_PER_EVENT: usize = 8;

/// The conditions of a statement on `event e`, and their values.
pub(super) struct Conditions {
    text: String,
    values: Vec<(Box<dyn ToSql + Sync + Send>, Type)>,
}

impl Conditions {
    /// No condition yet.
    pub(super) fn none() -> Conditions {
        Conditions { text: "TRUE".to_owned(), values: Vec::new() }
    }

    /// One more. `$` stands for the value.
    pub(super) fn and(&mut self, condition: &str, value: impl ToSql + Sync + Send + 'static, kind: Type) {
        self.values.push((Box::new(value), kind));
        self.text += " AND ";
        self.text += &condition.replace('$', &format!("${}", self.values.len()));
    }

    /// One more, without a value.
    pub(super) fn and_plain(&mut self, condition: &str) {
        self.text += " AND ";
        self.text += condition;
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn parameters(&self) -> Vec<Parameter<'_>> {
        self.values.iter().map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone())).collect()
    }

    /// Those of a filter; `None` if nothing can meet them.
    pub(super) fn of(filter: &Filter) -> Option<Conditions> {
        let Filter { id, key, source, state, outcome, code, since, until } = filter;
        let mut conditions = Conditions::none();
        if let Some(id) = id {
            conditions.and("e.id = $", Uuid::from(*id), Type::UUID);
        }
        if let Some(key) = key {
            conditions.and("e.id IN (SELECT c.event FROM claim c WHERE c.key = $)", Uuid(*key), Type::UUID);
        }
        for (column, text) in [("source", source), ("code", code)] {
            let Some(text) = text else { continue };
            // The server knows no text with this character in it.
            if text.contains('\0') {
                return None;
            }
            conditions.and(&format!("e.{column} = $"), text.clone(), Type::TEXT);
        }
        let leased = "EXISTS (SELECT 1 FROM work w WHERE w.event = e.id AND w.lease IS NOT NULL)";
        match state {
            Some(State::Ready) => conditions.and_plain(&format!("e.state = {OPEN} AND NOT {leased}")),
            Some(State::Leased) => conditions.and_plain(&format!("e.state = {OPEN} AND {leased}")),
            Some(State::Done) => conditions.and_plain(&format!("e.state = {DONE}")),
            // Only the dead have a code; the index knows.
            Some(State::Dead) => conditions.and_plain("e.code IS NOT NULL"),
            None => {}
        }
        if let Some(outcome) = outcome {
            let condition = format!("e.state = {DONE} AND e.outcome = $");
            conditions.and(&condition, small(outcome_number(*outcome)), Type::INT2);
        }
        if let Some(since) = since {
            conditions.and("e.received >= $", since.millis(), Type::INT8);
        }
        if let Some(until) = until {
            conditions.and("e.received < $", until.millis(), Type::INT8);
        }
        Some(conditions)
    }
}

/// What is to become of dead events.
#[derive(Clone, Copy)]
pub(super) enum Fate {
    Replay,
    Purge,
}

/// Replays or purges the dead events that `filter` means; how many. A slice whose commit was not answered is not counted.
pub(super) async fn decide(shared: &Shared, filter: &Filter, fate: Fate, now: Timestamp) -> Attempt<u64> {
    if filter.state.is_some_and(|state| state != State::Dead) {
        return Ok(0);
    }
    let (mut after, mut count) = (Uuid::MIN, 0);
    loop {
        let filter = Filter { state: Some(State::Dead), ..filter.clone() };
        let Some(mut conditions) = Conditions::of(&filter) else { return Ok(count) };
        conditions.and("e.id > $", after, Type::UUID);
        let slot = shared.slots.take();
        let slice = transaction!(shared.pool, tries, session => async {
            let now = shared.now(&session, now);
            let events = read(&session, &conditions, SLICE_EVENTS, "FOR UPDATE").await?;
            let mut counts = Counts::default();
            let changed = match fate {
                Fate::Replay => replay(shared, &session, &events, &mut counts, now).await?,
                Fate::Purge => forget(&session, &events, &mut counts).await?,
            };
            counts.write(&session, slot.number, None).await?;
            Ok((events.len(), events.last().map(|event| event.id), changed))
        })?;
        let (seen, last, changed) = slice;
        count += changed;
        if changed > 0 && matches!(fate, Fate::Replay) {
            shared.wake();
        }
        match last {
            Some(last) if seen == SLICE_EVENTS => after = last.into(),
            _ => return Ok(count),
        }
    }
}

async fn read(session: &Session, conditions: &Conditions, limit: usize, lock: &str) -> Attempt<Vec<EventRow>> {
    let text =
        format!("SELECT {EVENT_COLUMNS} FROM event e WHERE {} ORDER BY e.id LIMIT {limit} {lock}", conditions.text());
    session.query(&text, &conditions.parameters()).await?.iter().map(EventRow::read).collect()
}

async fn replay(
    shared: &Shared,
    session: &Session,
    events: &[EventRow],
    counts: &mut Counts,
    now: Timestamp,
) -> Attempt<u64> {
    let ids: Vec<Uuid> = events.iter().map(|event| event.id.into()).collect();
    let Revived { events: revived, entering } = revive(session, &ids, now).await?;
    line::hold(shared, session, entering.iter().map(|work| &work.line)).await?;
    line::enter_held(session, &entering, now).await?;
    for event in events.iter().filter(|event| revived.contains(&event.id)) {
        counts.add_dead(&event.source, event.cause.as_ref(), -1)?;
        counts.add(&event.source, Tally::Waiting, 1);
    }
    Ok(u64::try_from(revived.len()).unwrap_or(u64::MAX))
}

/// Removes the records of events that are done or dead, with everything that belongs to them.
async fn forget(session: &Session, events: &[EventRow], counts: &mut Counts) -> Attempt<u64> {
    if events.is_empty() {
        return Ok(0);
    }
    let ids: Vec<Uuid> = events.iter().map(|event| event.id.into()).collect();
    let keyed: Vec<(Uuid, Uuid)> = events
        .iter()
        .flat_map(|event| event.digests.iter().map(|fingerprint| (Uuid(fingerprint.key()), event.id.into())))
        .collect();
    let (keys, owners): (Vec<Uuid>, Vec<Uuid>) = keyed.into_iter().unzip();
    let (by_id, by_key): ([Parameter<'_>; 1], [Parameter<'_>; 2]) =
        ([(&ids, Type::UUID_ARRAY)], [(&keys, Type::UUID_ARRAY), (&owners, Type::UUID_ARRAY)]);
    let claims =
        "DELETE FROM claim c USING unnest($1::uuid[], $2::uuid[]) AS t(k, e) WHERE c.key = t.k AND c.event = t.e";
    let (event, body, work, claim) = tokio::join!(
        session.execute("DELETE FROM event WHERE id = ANY($1)", &by_id),
        session.execute("DELETE FROM body b USING unnest($1::uuid[]) AS t(e) WHERE b.event = t.e", &by_id),
        session.execute("DELETE FROM work WHERE event = ANY($1)", &by_id),
        session.execute(claims, &by_key),
    );
    event.and(body).and(work).and(claim)?;
    for event in events {
        counts.add(&event.source, Tally::Keys, -number(event.digests.len()));
        if event.state == DONE {
            counts.add(&event.source, Tally::Done, -1);
        } else {
            counts.add_dead(&event.source, event.cause.as_ref(), -1)?;
            counts.add(&event.source, Tally::Purged, 1);
        }
    }
    Ok(u64::try_from(events.len()).unwrap_or(u64::MAX))
}

/// Where the next sweep begins: records that must stay are not looked at again and again.
pub(super) struct Cursors(Mutex<Places>);

#[derive(Clone, Copy)]
struct Places {
    done: Uuid,
    dead: Uuid,
    /// When parts were last looked after.
    parts: Timestamp,
}

impl Default for Cursors {
    fn default() -> Cursors {
        Cursors(Mutex::new(Places { done: Uuid::MIN, dead: Uuid::MIN, parts: Timestamp::default() }))
    }
}

impl Cursors {
    fn get(&self) -> Places {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Places)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Forgets what is past its time, at most `limit` events.
pub(super) async fn sweep(shared: &Shared, limit: usize, now: Timestamp) -> Attempt<Swept> {
    let mut swept = Swept::default();
    let mut examined = 0;
    for state in [DONE, DEAD] {
        loop {
            let gone = usize::try_from(swept.forgotten + swept.purged).unwrap_or(usize::MAX);
            let may_examine = limit.saturating_mul(EXAMINED_PER_EVENT).saturating_sub(examined);
            let slice = SLICE_EVENTS.min(limit.saturating_sub(gone)).min(may_examine);
            if slice == 0 {
                swept.more = true;
                return Ok(swept);
            }
            let (seen, forgotten) = sweep_slice(shared, state, slice, now).await?;
            examined += seen;
            *(if state == DONE { &mut swept.forgotten } else { &mut swept.purged }) += forgotten;
            if seen < slice {
                break;
            }
        }
    }
    swept.more = sweep_places(shared, limit, now).await?;
    let server = transaction!(shared.pool, tries, session => async { Ok(shared.now(&session, now)) })?;
    if server.since(shared.cursors.get().parts) >= PARTS_EVERY {
        shared.cursors.change(|places| places.parts = server);
        // Where payloads go with the end of their event, a part may be empty long before.
        let Options { window, dead_retention, keep_payload, .. } = shared.options;
        let oldest = if keep_payload { window.max(dead_retention) } else { PARTS_KEPT };
        let oldest = server.minus(oldest);
        look_after_parts(&shared.pool, &shared.schema, server, oldest).await?;
    }
    Ok(swept)
}

/// Removes places that are over, at most `limit`; whether there may be more.
async fn sweep_places(shared: &Shared, limit: usize, now: Timestamp) -> Attempt<bool> {
    let mut gone = 0;
    while gone < limit {
        let slice = SLICE_EVENTS.min(limit - gone);
        let removed = place::sweep(shared, slice, now).await?;
        if removed < slice {
            return Ok(false);
        }
        gone += removed;
    }
    Ok(true)
}

/// Sweeps a slice: how many records were seen, and how many forgotten.
async fn sweep_slice(shared: &Shared, state: i64, limit: usize, now: Timestamp) -> Attempt<(usize, u64)> {
    let places = shared.cursors.get();
    let (after, retention, kind) = match state {
        DONE => (places.done, shared.options.window, ""),
        _ => (places.dead, shared.options.dead_retention, "AND e.code IS NOT NULL"),
    };
    let slot = shared.slots.take();
    let (seen, last, forgotten) = transaction!(shared.pool, tries, session => async {
        let horizon = shared.now(&session, now).minus(retention);
        let text = format!(
            "SELECT e.id, e.state = {state} AND e.settled <= $3 FROM event e WHERE e.id > $1 AND e.id < $2 {kind} \
             ORDER BY e.id LIMIT {limit}"
        );
        let parameters: [Parameter<'_>; 3] =
            [(&after, Type::UUID), (&Uuid(first_id_after(horizon)), Type::UUID), (&horizon.millis(), Type::INT8)];
        let rows = session.query(&text, &parameters).await?;
        let last: Option<Uuid> = rows.last().map(|row| get(row, 0)).transpose()?;
        let mut over: Vec<Uuid> = Vec::new();
        for row in &rows {
            if get::<Option<bool>>(row, 1)? == Some(true) {
                over.push(get(row, 0)?);
            }
        }
        let mut counts = Counts::default();
        let forgotten = if over.is_empty() { 0 } else {
            // What somebody else holds at this moment stays until the next round.
            let mut conditions = Conditions::none();
            conditions.and("e.id = ANY($)", over, Type::UUID_ARRAY);
            conditions.and(&format!("e.state = {state} AND e.settled <= $"), horizon.millis(), Type::INT8);
            let events = read(&session, &conditions, limit, "FOR UPDATE SKIP LOCKED").await?;
            forget(&session, &events, &mut counts).await?
        };
        counts.write(&session, slot.number, None).await?;
        Ok((rows.len(), last, forgotten))
    })?;
    let next = last.filter(|_| seen == limit).unwrap_or(Uuid::MIN);
    shared.cursors.change(|places| *(if state == DONE { &mut places.done } else { &mut places.dead }) = next);
    Ok((seen, forgotten))
}
