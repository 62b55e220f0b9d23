//! Work: handing it out, ending it, and what that makes of its event.
//!
//! An event's state follows from its work: open while some is ready or leased, else dead if some is dead, else done.

use super::failure::{Attempt, Failure, damaged};
use super::group::Group;
use super::row::{self, Bytes16, DEAD, DONE, EventRow, NEVER, OPEN, Standing, bytes16, read_cause};
use crate::clock::Timestamp;
use crate::event::{Cause, Class, EventId, Outcome};
use crate::store::books::Tally;
use crate::store::verdict::{cause_with, outcome_with};
use crate::store::{End, Lease, LeaseRequest, Leased, Settled, Settlement, company_max};
use bytes::Bytes;
use rusqlite::{OptionalExtension, params};

/// The most events of one lease, whatever is asked for.
const LEASE_EVENTS_MAX: usize = 4_096;

/// Work in the queue.
struct Due {
    event: Bytes16,
    token: Option<i64>,
    attempts: u32,
    lapses: u32,
}

impl Due {
    /// How often its lease has lapsed, this time included.
    fn lapses(&self) -> u32 {
        self.lapses.saturating_add(u32::from(self.token.is_some()))
    }
}

/// Hands out work.
pub(super) fn lease(group: &mut Group<'_>, request: &LeaseRequest, now: Timestamp) -> Attempt<Vec<Leased>> {
    let sink = group.sink(&request.sink)?;
    let candidates = due(group, sink, request.events_max.min(LEASE_EVENTS_MAX), now)?;
    let mut leased: Vec<Leased> = Vec::new();
    let mut bytes = 0;
    let mut token = None;
    for work in candidates {
        let lapses = work.lapses();
        if leased.first().is_some_and(|first| first.lapses != lapses) || leased.len() >= company_max(lapses) {
            break;
        }
        let id = EventId::from_bytes(work.event);
        let (event, payload) = match load(group, id) {
            Ok(loaded) => loaded,
            // One damaged record must not stop the queue.
            Err(Failure::Damaged(what)) => {
                bury(group, id, sink, &what, now)?;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        bytes += payload.len();
        if bytes > request.bytes_max && !leased.is_empty() {
            break;
        }
        let token = match token {
            Some(token) => token,
            None => *token.insert(next_token(group)?),
        };
        let mut statement = group
            .connection
            .prepare_cached("UPDATE work SET due = ?3, token = ?4, lapses = ?5 WHERE event = ?1 AND sink = ?2")?;
        statement.execute(params![
            work.event,
            sink,
            now.plus(request.duration).millis().min(NEVER - 1),
            token,
            lapses
        ])?;
        leased.push(Leased {
            lease: Lease { event: id, sink: request.sink.clone(), token: token.cast_unsigned() },
            source: group.source_name(event.source)?,
            key: event.digests[0],
            content: event.content,
            received: event.received,
            attempts: work.attempts,
            lapses,
            form: event.form,
            crs: event.crs,
            payload,
        });
    }
    Ok(leased)
}

fn due(group: &Group<'_>, sink: i64, limit: usize, now: Timestamp) -> Attempt<Vec<Due>> {
    let mut statement = group.connection.prepare_cached(
        "SELECT event, token, attempts, lapses FROM work INDEXED BY queue WHERE sink = ?1 AND due <= ?2 \
         ORDER BY due LIMIT ?3",
    )?;
    let mut rows = statement.query(params![sink, now.millis().min(NEVER - 1), row::number(limit)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let work = Due { event: bytes16(row, 0)?, token: row.get(1)?, attempts: row.get(2)?, lapses: row.get(3)? };
        found.push(work);
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
    mark_dead(group, id.to_bytes(), sink, &cause)?;
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
    let event = lease.event.to_bytes();
    let outcome = match &settlement.end {
        End::Done(outcome) => {
            // The usual end, so finding out whether the lease is held and ending it are one.
            let mut statement =
                group.connection.prepare_cached("DELETE FROM work WHERE event = ?1 AND sink = ?2 AND token = ?3")?;
            if statement.execute(params![event, sink, lease.token.cast_signed()])? == 0 {
                return Ok(Settled::LeaseLost);
            }
            Some(*outcome)
        }
        _ if !holds(group, lease, sink)? => return Ok(Settled::LeaseLost),
        End::Retry { at, cause, counts } => {
            let mut statement = group.connection.prepare_cached(
                "UPDATE work SET due = ?3, token = NULL, attempts = attempts + ?4, cause = ?5 \
                 WHERE event = ?1 AND sink = ?2",
            )?;
            let at = at.millis().min(NEVER - 1);
            statement.execute(params![event, sink, at, i64::from(*counts), row::write_cause(cause)])?;
            group.effects.changed = true;
            return Ok(Settled::Ok);
        }
        End::Dead(cause) => {
            mark_dead(group, event, sink, cause)?;
            None
        }
    };
    let (source, standing) = group
        .standing(lease.event)?
        .ok_or_else(|| damaged(format!("there is work for {}, but no record", lease.event)))?;
    if standing.state != OPEN {
        return Err(damaged(format!("there is leased work for {}, which is settled", lease.event)));
    }
    resolve(group, lease.event, source, standing, outcome, now)?;
    Ok(Settled::Ok)
}

/// Whether the lease is still the one that was given.
fn holds(group: &Group<'_>, lease: &Lease, sink: i64) -> Attempt<bool> {
    let mut statement = group.connection.prepare_cached("SELECT token FROM work WHERE event = ?1 AND sink = ?2")?;
    let token: Option<Option<i64>> =
        statement.query_row(params![lease.event.to_bytes(), sink], |row| row.get(0)).optional()?;
    Ok(token.flatten() == Some(lease.token.cast_signed()))
}

fn mark_dead(group: &Group<'_>, event: Bytes16, sink: i64, cause: &Cause) -> Attempt<()> {
    let mut statement = group
        .connection
        .prepare_cached("UPDATE work SET due = ?3, token = NULL, cause = ?4 WHERE event = ?1 AND sink = ?2")?;
    statement.execute(params![event, sink, NEVER, row::write_cause(cause)])?;
    Ok(())
}

/// Makes of an open event what its work makes it, after one sink was served (with `outcome`) or is dead.
fn resolve(
    group: &mut Group<'_>,
    id: EventId,
    source: i64,
    mut standing: Standing,
    outcome: Option<Outcome>,
    now: Timestamp,
) -> Attempt<()> {
    let earlier = standing.outcome.map(row::outcome_from).transpose().map_err(damaged)?;
    let outcome = outcome_with(earlier, outcome);
    standing.outcome = outcome.map(row::outcome_number);
    let (open, dead_cause) = remaining(group, id.to_bytes())?;
    if open {
        return group.stand(id, &standing);
    }
    group.count(source, Tally::Waiting, -1);
    standing.settled = Some(now.millis());
    if let Some(cause) = dead_cause {
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

/// Whether some work of an event is ready or leased; and, of the dead work, the cause that stands for the event.
fn remaining(group: &Group<'_>, event: Bytes16) -> Attempt<(bool, Option<Cause>)> {
    let mut statement = group.connection.prepare_cached("SELECT due, cause FROM work WHERE event = ?1")?;
    let mut rows = statement.query([event])?;
    let (mut open, mut dead): (bool, Option<Cause>) = (false, None);
    while let Some(row) = rows.next()? {
        if row.get::<_, i64>(0)? != NEVER {
            open = true;
            continue;
        }
        let cause = read_cause(row.get_ref(1)?)?.ok_or_else(|| damaged("dead work without a cause"))?;
        dead = Some(cause_with(dead, cause));
    }
    Ok((open, dead))
}

/// Prolongs leases.
pub(super) fn extend(group: &mut Group<'_>, leases: &[Lease], until: Timestamp) -> Attempt<Vec<Settled>> {
    let until = until.millis().min(NEVER - 1);
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
        "UPDATE work SET due = ?2, token = NULL, attempts = 0, lapses = 0 WHERE event = ?1 AND due = ?3",
    )?;
    if statement.execute(params![event.id.to_bytes(), now.millis(), NEVER])? == 0 {
        return Ok(false);
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
    group.count(event.source, Tally::Keys, -row::number(event.digests.len()));
    if event.standing.state == DONE {
        group.count(event.source, Tally::Done, -1);
    } else {
        group.count_dead(event.source, event.cause.as_ref(), -1)?;
        group.count(event.source, Tally::Purged, 1);
    }
    Ok(())
}
