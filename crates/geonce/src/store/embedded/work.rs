//! Work: handing it out, ending it, and what that makes of its event.
//!
//! An event's state follows from its work: open while some is ready, leased or held in the line of its entity, else dead if
//! some is dead, else done. Work that waits for another sink goes where that goes.

use super::failure::{Attempt, Failure, damaged};
use super::group::Group;
use super::line::{self, Place};
use super::row::{self, DEAD, DONE, EventRow, LATEST, NEVER, OPEN, Standing, Task, bytes16};
use crate::clock::Timestamp;
use crate::event::{Cause, Class, EventId, Outcome};
use crate::store::books::Tally;
use crate::store::holder::kept;
use crate::store::verdict::{cause_with, outcome_with};
use crate::store::{End, Lease, LeaseRequest, Leased, RUNS, Settled, Settlement, company_max};
use bytes::Bytes;
use rusqlite::{OptionalExtension, params};

/// The most events of one lease, whatever is asked for.
const LEASE_EVENTS_MAX: usize = 4_096;

/// Work in the queue.
struct Due {
    event: EventId,
    token: Option<i64>,
    /// What is known of it, where that can be read.
    task: Attempt<Task>,
}

/// Hands out work.
pub(super) fn lease(group: &mut Group<'_>, request: &LeaseRequest, now: Timestamp) -> Attempt<Vec<Leased>> {
    let sink = group.sink(&request.sink)?;
    let candidates = due(group, sink, request, now)?;
    let mut leased: Vec<Leased> = Vec::new();
    let mut bytes = 0;
    let mut token = None;
    let holder = kept(&request.holder);
    for Due { event: id, token: held, task } in candidates {
        let loaded = task.and_then(|task| load(group, id).map(|(event, payload)| (task, event, payload)));
        let (mut task, event, payload) = match loaded {
            Ok(loaded) => loaded,
            // One damaged record must not stop the queue.
            Err(Failure::Damaged(what)) => {
                bury(group, id, sink, &what, now)?;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        let lapses = task.lapses.saturating_add(u32::from(held.is_some()));
        if leased.first().is_some_and(|first| first.lapses != lapses) || leased.len() >= company_max(lapses) {
            break;
        }
        bytes += payload.len();
        if bytes > request.bytes_max && !leased.is_empty() {
            break;
        }
        let token = match token {
            Some(token) => token,
            None => *token.insert(next_token(group)?),
        };
        let until = now.plus(request.duration).millis().min(LATEST);
        if task.lapses == lapses {
            let mut statement = group
                .connection
                .prepare_cached("UPDATE work SET due = ?3, token = ?4, holder = ?5 WHERE event = ?1 AND sink = ?2")?;
            statement.execute(params![id.to_bytes(), sink, until, token, holder])?;
        } else {
            task.lapses = lapses;
            set_task(group, id, sink, until, Some((token, &holder)), &task)?;
        }
        leased.push(Leased {
            lease: Lease { event: id, sink: request.sink.clone(), token: token.cast_unsigned() },
            source: group.source_name(event.source)?,
            key: event.digests[0],
            content: event.content,
            origin: event.origin,
            received: event.received,
            attempts: task.attempts,
            lapses,
            form: event.form,
            crs: event.crs,
            payload,
        });
    }
    Ok(leased)
}

fn due(group: &Group<'_>, sink: i64, request: &LeaseRequest, now: Timestamp) -> Attempt<Vec<Due>> {
    let (now, limit) = (now.millis().min(LATEST), row::number(request.events_max.min(LEASE_EVENTS_MAX)));
    let mut statement = group.connection.prepare_cached(match request.event {
        None => {
            "SELECT event, token, attempts, lapses, cause, mark FROM work INDEXED BY queue \
             WHERE sink = ?1 AND due <= ?2 ORDER BY due LIMIT ?3"
        }
        Some(_) => {
            "SELECT event, token, attempts, lapses, cause, mark FROM work \
             WHERE sink = ?1 AND due <= ?2 AND event = ?4 LIMIT ?3"
        }
    })?;
    let mut rows = match request.event {
        None => statement.query(params![sink, now, limit])?,
        Some(event) => statement.query(params![sink, now, limit, event.to_bytes()])?,
    };
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let event = EventId::from_bytes(bytes16(row, 0)?);
        found.push(Due { event, token: row.get(1)?, task: Task::read(row, event, sink, 2) });
    }
    Ok(found)
}

fn load(group: &Group<'_>, id: EventId) -> Attempt<(EventRow, Bytes)> {
    let event = group.event(id)?.ok_or_else(|| damaged(format!("there is work for {id}, but no record")))?;
    let payload = payload(group.connection, &event)?.ok_or_else(|| damaged(format!("the payload of {id} is gone")))?;
    Ok((event, payload))
}

/// The payload of an event, if it is kept.
pub(super) fn payload(connection: &rusqlite::Connection, event: &EventRow) -> Attempt<Option<Bytes>> {
    let Some(number) = event.standing.body else {
        return Ok(None);
    };
    let mut statement = connection.prepare_cached("SELECT payload, sum FROM body WHERE number = ?1")?;
    let found: Option<(Vec<u8>, i64)> =
        statement.query_row([number], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let (payload, sum) = found.ok_or_else(|| damaged(format!("the payload of {} is not there", event.id)))?;
    if row::payload_sum(event.id, &payload) != sum {
        return Err(damaged(format!("the payload of {} does not match its checksum", event.id)));
    }
    Ok(Some(payload.into()))
}

/// Takes damaged work out of the queue, visibly.
fn bury(group: &mut Group<'_>, id: EventId, sink: i64, what: &str, now: Timestamp) -> Attempt<()> {
    let cause = Cause::new(Class::Internal, "damaged", what);
    tracing::error!(event = %id, "{what}");
    // What it was cannot be trusted: it begins anew.
    let task = Task { cause: Some(row::write_cause(&cause)), ..Task::default() };
    set_task(group, id, sink, NEVER, None, &task)?;
    if let Ok(Some(entity)) = line::entity_of(group, id, sink) {
        line::advance(group, sink, entity, now)?;
    }
    // Where the record cannot be read at all, an audit tells.
    match group.standing(id) {
        Ok(Some((source, standing))) if standing.state == OPEN => resolve(group, id, source, standing, None, now),
        Ok(_) | Err(Failure::Damaged(_)) => Ok(()),
        Err(failure) => Err(failure),
    }
}

fn next_token(group: &Group<'_>) -> Attempt<i64> {
    let mut statement =
        group.connection.prepare_cached("UPDATE meta SET value = value + 1 WHERE name = 'token' RETURNING value")?;
    Ok(statement.query_row([], |row| row.get(0))?)
}

/// Ends leases.
pub(super) fn settle(group: &mut Group<'_>, settlements: &[Settlement], now: Timestamp) -> Attempt<Vec<Settled>> {
    settlements.iter().map(|settlement| settle_one(group, settlement, now)).collect()
}

fn settle_one(group: &mut Group<'_>, settlement: &Settlement, now: Timestamp) -> Attempt<Settled> {
    let lease = &settlement.lease;
    let sink = group.sink(&lease.sink)?;
    // Whoever waits for a run hears of its end.
    let ends_run = *lease.sink == *RUNS;
    let (outcome, result, entity) = match &settlement.end {
        End::Done(outcome, result) => {
            // The usual end, so finding out whether the lease is held and ending it are one.
            let mut statement = group.connection.prepare_cached(
                "DELETE FROM work WHERE event = ?1 AND sink = ?2 AND token = ?3 RETURNING entity IS NOT NULL, entity",
            )?;
            let mut rows = statement.query(params![lease.event.to_bytes(), sink, lease.token.cast_signed()])?;
            let Some(row) = rows.next()? else { return Ok(Settled::LeaseLost) };
            let entity = if row.get(0)? { Some(bytes16(row, 1)?) } else { None };
            (Some(*outcome), result.as_ref(), entity)
        }
        End::Retry { cause, .. } | End::Dead(cause) => {
            let Some(mut task) = held_task(group, lease, sink)? else {
                return Ok(Settled::LeaseLost);
            };
            task.cause = Some(row::write_cause(cause));
            if let End::Retry { at, counts, .. } = &settlement.end {
                task.attempts = task.attempts.saturating_add(u32::from(*counts));
                set_task(group, lease.event, sink, at.millis().min(LATEST), None, &task)?;
                group.effects.changed = true;
                return Ok(Settled::Ok);
            }
            set_task(group, lease.event, sink, NEVER, None, &task)?;
            (None, None, line::entity_of(group, lease.event, sink)?)
        }
    };
    if let Some(entity) = entity {
        line::advance(group, sink, entity, now)?;
    }
    let (source, mut standing) = group
        .standing(lease.event)?
        .ok_or_else(|| damaged(format!("there is work for {}, but no record", lease.event)))?;
    if standing.state != OPEN {
        return Err(damaged(format!("there is leased work for {}, which is settled", lease.event)));
    }
    if let (None, Some(result)) = (&standing.result, result) {
        standing.result = Some(group.keep(result)?);
    }
    resolve(group, lease.event, source, standing, outcome.map(|outcome| (sink, outcome)), now)?;
    group.effects.changed |= ends_run;
    Ok(Settled::Ok)
}

/// The work that a lease is for, if the lease is still the one that was given.
fn held_task(group: &Group<'_>, lease: &Lease, sink: i64) -> Attempt<Option<Task>> {
    let mut statement = group.connection.prepare_cached(
        "SELECT attempts, lapses, cause, mark FROM work WHERE event = ?1 AND sink = ?2 AND token = ?3",
    )?;
    let mut rows = statement.query(params![lease.event.to_bytes(), sink, lease.token.cast_signed()])?;
    rows.next()?.map(|row| Task::read(row, lease.event, sink, 0)).transpose()
}

/// Writes work anew.
fn set_task(
    group: &Group<'_>,
    event: EventId,
    sink: i64,
    due: i64,
    lease: Option<(i64, &str)>,
    task: &Task,
) -> Attempt<()> {
    let mut statement = group.connection.prepare_cached(
        "UPDATE work SET due = ?3, token = ?4, attempts = ?5, lapses = ?6, cause = ?7, mark = ?8, holder = ?9 \
         WHERE event = ?1 AND sink = ?2",
    )?;
    let Task { attempts, lapses, cause } = task;
    let (mark, (token, holder)) = (task.mark(event, sink), lease.unzip());
    statement.execute(params![event.to_bytes(), sink, due, token, attempts, lapses, cause, mark, holder])?;
    Ok(())
}

/// Makes of an open event what its work makes it, after one sink was served (which, and with what outcome) or is dead.
fn resolve(
    group: &mut Group<'_>,
    id: EventId,
    source: i64,
    mut standing: Standing,
    served: Option<(i64, Outcome)>,
    now: Timestamp,
) -> Attempt<()> {
    let earlier = standing.outcome.map(row::outcome_from).transpose().map_err(damaged)?;
    let outcome = outcome_with(earlier, served.map(|(_, outcome)| outcome));
    standing.outcome = outcome.map(row::outcome_number);
    let mut left = remaining(group, id)?;
    if let Some((sink, outcome)) = served.filter(|(sink, _)| left.waits_for.contains(sink)) {
        line::follow(group, id, sink, outcome, now)?;
        left = remaining(group, id)?;
    }
    if left.open {
        return group.stand(id, &standing);
    }
    group.count(source, Tally::Waiting, -1);
    standing.settled = Some(now.millis());
    if let Some(cause) = left.dead {
        (standing.state, standing.cause) = (DEAD, Some(row::write_cause(&cause)));
        group.count_dead(source, Some(&cause), 1)?;
        return group.stand(id, &standing);
    }
    let outcome = outcome.ok_or_else(|| damaged("an event without work and without outcome"))?;
    (standing.state, standing.cause) = (DONE, None);
    if !group.options.keep_payload
        && let Some(body) = standing.body.take()
    {
        group.connection.prepare_cached("DELETE FROM body WHERE number = ?1")?.execute([body])?;
    }
    group.count(source, Tally::of(outcome), 1);
    group.count(source, Tally::Done, 1);
    group.stand(id, &standing)
}

/// What is left to do for an event.
#[derive(Default)]
struct Remaining {
    /// Whether some work is ready or leased, or waits for others of its entity.
    open: bool,
    /// Of the dead work, the cause that stands for the event.
    dead: Option<Cause>,
    /// Sinks that other work waits for.
    waits_for: Vec<i64>,
}

fn remaining(group: &Group<'_>, event: EventId) -> Attempt<Remaining> {
    let mut statement = group
        .connection
        .prepare_cached("SELECT due, sink, attempts, lapses, cause, mark, after FROM work WHERE event = ?1")?;
    let mut rows = statement.query([event.to_bytes()])?;
    let mut left = Remaining::default();
    while let Some(row) = rows.next()? {
        if let Some(after) = row.get(6)? {
            // It goes where the other goes.
            left.waits_for.push(after);
            continue;
        }
        if row.get::<_, i64>(0)? != NEVER {
            left.open = true;
            continue;
        }
        let task = Task::read(row, event, row.get(1)?, 2)?;
        let cause = task.cause()?.ok_or_else(|| damaged("dead work without a cause"))?;
        left.dead = Some(cause_with(left.dead, cause));
    }
    Ok(left)
}

/// Prolongs leases.
pub(super) fn extend(group: &mut Group<'_>, leases: &[Lease], until: Timestamp) -> Attempt<Vec<Settled>> {
    let until = until.millis().min(LATEST);
    let mut answers = Vec::with_capacity(leases.len());
    for lease in leases {
        let sink = group.sink(&lease.sink)?;
        let mut statement = group
            .connection
            .prepare_cached("UPDATE work SET due = ?4 WHERE event = ?1 AND sink = ?2 AND token = ?3")?;
        let changed = statement.execute(params![lease.event.to_bytes(), sink, lease.token.cast_signed(), until])?;
        answers.push(if changed == 1 { Settled::Ok } else { Settled::LeaseLost });
    }
    Ok(answers)
}

/// Makes the dead work of a dead event ready, and changes `standing` to match; `false` if it has none.
pub(super) fn revive(
    group: &mut Group<'_>,
    event: &EventRow,
    standing: &mut Standing,
    now: Timestamp,
) -> Attempt<bool> {
    let mut statement = group.connection.prepare_cached(
        "SELECT sink, attempts, lapses, cause, mark, entity, rank FROM work WHERE event = ?1 AND due = ?2",
    )?;
    let mut rows = statement.query(params![event.id.to_bytes(), NEVER])?;
    let mut dead = Vec::new();
    while let Some(row) = rows.next()? {
        let sink = row.get(0)?;
        let Task { cause, .. } = Task::read(row, event.id, sink, 1)?;
        dead.push((sink, Task { cause, ..Task::default() }, Place::read(row, 5)?));
    }
    drop(rows);
    if dead.is_empty() {
        return Ok(false);
    }
    for (sink, task, place) in dead {
        let due = match place {
            Some(place) => line::enter(group, event.id, sink, &place, now)?,
            None => now.millis(),
        };
        set_task(group, event.id, sink, due, None, &task)?;
    }
    (standing.state, standing.settled, standing.cause) = (OPEN, None, None);
    group.count_dead(event.source, event.cause.as_ref(), -1)?;
    group.count(event.source, Tally::Waiting, 1);
    group.effects.changed = true;
    Ok(true)
}

/// Removes the record of an event that is done or dead. Its claims are free with that.
pub(super) fn forget(group: &mut Group<'_>, event: &EventRow) -> Attempt<()> {
    let id = event.id.to_bytes();
    if let Some(body) = event.standing.body {
        group.connection.prepare_cached("DELETE FROM body WHERE number = ?1")?.execute([body])?;
    }
    group.connection.prepare_cached("DELETE FROM work WHERE event = ?1")?.execute([id])?;
    group.connection.prepare_cached("DELETE FROM event WHERE id = ?1")?.execute([id])?;
    // Claims of other events are left to themselves: one whose event is gone is free.
    group
        .connection
        .prepare_cached("DELETE FROM run WHERE key = ?1 AND event = ?2")?
        .execute(params![event.digests[0].key(), id])?;
    group.count(event.source, Tally::Keys, -row::number(event.digests.len()));
    if event.standing.state == DONE {
        group.count(event.source, Tally::Done, -1);
    } else {
        group.count_dead(event.source, event.cause.as_ref(), -1)?;
        group.count(event.source, Tally::Purged, 1);
    }
    Ok(())
}
