//! Recording events, or telling what is known about them.

use super::claims::Key;
use super::failure::Attempt;
use super::group::Group;
use super::line::{self, Place};
use super::row::{self, DEAD, DONE, EventRow, HELD, NEVER, OPEN, Standing};
use super::work::revive;
use crate::clock::Timestamp;
use crate::event::{Cause, Outcome, State};
use crate::store::books::Tally;
use crate::store::verdict::{self, Clash};
use crate::store::{Admission, Lag, NewEvent, RUNS, Route, Verdict, held};
use geonce_key::Fingerprint;
use rusqlite::{OptionalExtension, params};
use std::time::Duration;

/// Records a batch in the transaction of `group`.
pub(super) fn accept(group: &mut Group<'_>, batch: &[NewEvent], now: Timestamp) -> Attempt<Vec<Verdict>> {
    batch.iter().map(|event| accept_one(group, event, now)).collect()
}

pub(super) fn accept_one(group: &mut Group<'_>, event: &NewEvent, now: Timestamp) -> Attempt<Verdict> {
    let source = group.source(&event.source)?;
    for fingerprint in std::iter::once(&event.key).chain(&event.aliases) {
        let Some(holder) = holder(group, event, fingerprint)? else {
            continue;
        };
        if holder.id == event.id {
            return Ok(Verdict::Accepted);
        }
        if let Some(clash) = verdict::clash(event, fingerprint, &holder.digests, &holder.spatial) {
            return contradict(group, event, source, &holder, clash, now);
        }
        return repeat(group, event, source, &holder, now);
    }
    record(group, event, source, None, now)
}

/// The event that holds a key. Runs have keys of their own, which other processes may have claimed.
fn holder(group: &Group<'_>, event: &NewEvent, fingerprint: &Fingerprint) -> Attempt<Option<EventRow>> {
    let key = Key(fingerprint.key());
    if is_run(event) { group.run(key) } else { group.holder(key) }
}

/// Whether an event is a caller's own run.
pub(super) fn is_run(event: &NewEvent) -> bool {
    let (Admission::Deliver(routes) | Admission::Dead(_, routes)) = &event.admission;
    matches!(&**routes, [route] if *route.sink == *RUNS)
}

/// A duplicate: counted, and where its event died of something that time may mend, revived.
fn repeat(group: &mut Group<'_>, event: &NewEvent, source: i64, holder: &EventRow, now: Timestamp) -> Attempt<Verdict> {
    let drift = holder.content != event.content;
    let mut standing = holder.standing.clone();
    count_repeat(group, source, &mut standing, now.since(holder.received));
    if drift {
        group.count(source, Tally::Drift, 1);
    }
    let transient = holder.cause.as_ref().is_some_and(|cause| cause.class.is_transient());
    let revived = standing.state == DEAD && transient && revive(group, holder, &mut standing, now)?;
    if revived {
        group.count(holder.source, Tally::Revived, 1);
    }
    group.stand(holder.id, &standing)?;
    let (state, outcome) = match standing.state {
        DONE => (State::Done, holder.outcome),
        DEAD => (State::Dead, None),
        _ => (open_state(group, holder)?, None),
    };
    Ok(Verdict::Duplicate { of: holder.id, state, outcome, drift, revived })
}

fn count_repeat(group: &mut Group<'_>, source: i64, standing: &mut Standing, lag: Duration) {
    group.count(source, Tally::Received, 1);
    group.count(source, Tally::Duplicate, 1);
    group.count_lag(source, Lag::of(lag));
    standing.duplicates = standing.duplicates.saturating_add(1);
}

fn open_state(group: &Group<'_>, holder: &EventRow) -> Attempt<State> {
    let mut statement =
        group.connection.prepare_cached("SELECT 1 FROM work WHERE event = ?1 AND token IS NOT NULL LIMIT 1")?;
    let leased = statement.query_row([holder.id.to_bytes()], |_| Ok(())).optional()?.is_some();
    Ok(if leased { State::Leased } else { State::Ready })
}

/// Same id or key, other content: recorded as dead under a key of its own, once for each content.
fn contradict(
    group: &mut Group<'_>,
    event: &NewEvent,
    source: i64,
    holder: &EventRow,
    clash: Clash,
    now: Timestamp,
) -> Attempt<Verdict> {
    let key = verdict::clash_key(event);
    if let Some(known) = self::holder(group, event, &key)? {
        if known.id != event.id {
            let mut standing = known.standing;
            count_repeat(group, source, &mut standing, now.since(known.received));
            group.stand(known.id, &standing)?;
        }
        return Ok(Verdict::Conflict { event: known.id, of: holder.id });
    }
    record(group, event, source, Some(&(key, clash.cause(holder.id))), now)?;
    group.count(source, clash.tally(), 1);
    Ok(Verdict::Conflict { event: event.id, of: holder.id })
}

/// A new event: its record, payload, claims, work and counts.
fn record(
    group: &mut Group<'_>,
    event: &NewEvent,
    source: i64,
    clash: Option<&(Fingerprint, Cause)>,
    now: Timestamp,
) -> Attempt<Verdict> {
    let (admitted, routes) = match &event.admission {
        Admission::Deliver(routes) => (None, routes),
        Admission::Dead(cause, routes) => (Some(cause), routes),
    };
    let cause = clash.map(|(_, cause)| cause).or(admitted);
    let (keys, aliases) = match clash {
        Some((key, _)) => (key, [].as_slice()),
        None => (&event.key, event.aliases.as_slice()),
    };
    let state = match cause {
        Some(_) => DEAD,
        // Nothing is to be delivered anywhere.
        None if routes.is_empty() => DONE,
        None => OPEN,
    };
    if !insert(group, event, source, state, (keys, aliases), cause, now)? {
        return Ok(Verdict::Accepted);
    }
    for fingerprint in std::iter::once(keys).chain(aliases) {
        let key = Key(fingerprint.key());
        if is_run(event) {
            group.claim_run(key, event.id.to_bytes())?;
        } else {
            group.claim(key, event.id.to_bytes())?;
        }
    }
    for route in held::distinct(routes) {
        begin(group, event, route, routes, cause, now)?;
    }
    group.count(source, Tally::Received, 1);
    group.count(source, Tally::Keys, 1 + row::number(aliases.len()));
    match state {
        DEAD => group.count_dead(source, cause, 1)?,
        DONE => {
            group.count(source, Tally::Applied, 1);
            group.count(source, Tally::Done, 1);
        }
        _ => {
            group.count(source, Tally::Waiting, 1);
            group.effects.changed = true;
        }
    }
    Ok(Verdict::Accepted)
}

/// Writes what is to be done at one sink: ready, held or, with a cause, dead.
fn begin(
    group: &mut Group<'_>,
    event: &NewEvent,
    route: &Route,
    routes: &[Route],
    cause: Option<&Cause>,
    now: Timestamp,
) -> Attempt<()> {
    let sink = group.sink(&route.sink)?;
    let after = held::waits_for(route, routes).map(|after| group.sink(after)).transpose()?;
    let place = held::rank(event, now).zip(event.order.as_ref());
    let place = place.map(|(rank, order)| Place { entity: order.entity.key(), rank });
    let due = match (after, cause, &place) {
        (Some(_), _, _) => HELD,
        (None, Some(_), _) => NEVER,
        (None, None, Some(place)) => line::enter(group, event.id, sink, place, now)?,
        (None, None, None) => now.millis(),
    };
    // What waits for another sink was not attempted, whatever is wrong with its event.
    let cause = cause.filter(|_| after.is_none()).map(row::write_cause);
    let task = row::Task { cause, ..row::Task::default() };
    let (entity, rank) = place.map(|place| (place.entity, place.rank)).unzip();
    let (id, mark) = (event.id.to_bytes(), task.mark(event.id, sink));
    group.inserts()?.work.execute(params![id, sink, due, task.cause, mark, after, entity, rank])?;
    Ok(())
}

/// Writes record and payload; `false` if the id is there already, that is, its answer was lost.
fn insert(
    group: &mut Group<'_>,
    event: &NewEvent,
    source: i64,
    state: i64,
    (key, aliases): (&Fingerprint, &[Fingerprint]),
    cause: Option<&Cause>,
    now: Timestamp,
) -> Attempt<bool> {
    let (mut digests, mut spatial) = (Vec::with_capacity(66), Vec::new());
    row::write_fingerprints(std::iter::once(key).chain(aliases), &mut digests);
    row::write_fingerprints(&event.spatial, &mut spatial);
    let form = row::form_number(event.form);
    let crs = event.crs.map(i64::from);
    let sum = row::event_sum(event.id, source, now.millis(), form, crs, &digests, &spatial, &event.content);
    let mut standing = Standing {
        state,
        outcome: (state == DONE).then_some(row::outcome_number(Outcome::Applied)),
        settled: (state != OPEN).then_some(now.millis()),
        duplicates: 0,
        body: None,
        cause: cause.map(row::write_cause),
        result: None,
    };
    if state != DONE || group.options.keep_payload {
        let payload_sum = row::payload_sum(event.id, &event.payload);
        standing.body = Some(group.inserts()?.body.insert(params![&event.payload[..], payload_sum])?);
    }
    let inserted = group.inserts()?.event.execute(params![
        event.id.to_bytes(),
        source,
        state,
        standing.outcome,
        now.millis(),
        standing.settled,
        form,
        crs,
        standing.body,
        digests,
        (!spatial.is_empty()).then_some(spatial),
        event.content,
        standing.cause,
        sum,
        standing.mark(event.id)
    ])?;
    if inserted == 0 {
        group.connection.prepare_cached("DELETE FROM body WHERE number = ?1")?.execute([standing.body])?;
    }
    Ok(inserted == 1)
}
