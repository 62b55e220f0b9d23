//! Work: ending it, and what that makes of its event.
//!
//! An event's state follows from its work: open while some is ready or leased, else dead if some is dead, else done.
//! Whoever settles holds the event's row first, so that two sinks of one event are settled one after the other.

use super::counts::Counts;
use super::row::{Uuid, damaged, get, read_cause, small};
use super::{Attempt, Shared, transaction};
use crate::clock::Timestamp;
use crate::event::{Cause, Class, EventId, Outcome};
use crate::postgres::{Parameter, Session};
use crate::store::books::Tally;
use crate::store::encoding::{DEAD, DONE, NEVER, OPEN, outcome_from, outcome_number, write_cause};
use crate::store::verdict::{cause_with, outcome_with};
use crate::store::{End, Lease, RUNS, ResultText, Settled, Settlement};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use tokio_postgres::types::Type;

/// Takes work out of the queue whose record or payload is not there, visibly: one such must not stop the queue.
pub(super) async fn bury(session: &Session, id: Uuid, sink: &str, slot: i64, now: Timestamp) -> Attempt<()> {
    let what = format!("the record or the payload of {} is not there", id.id());
    tracing::error!("{what}");
    let cause = Cause::new(Class::Internal, "damaged", what);
    let text = "UPDATE work SET due = $3, token = NULL, cause = $4 WHERE event = $1 AND sink = $2";
    let parameters: [Parameter<'_>; 4] =
        [(&id, Type::UUID), (&sink, Type::TEXT), (&NEVER, Type::INT8), (&write_cause(&cause), Type::TEXT)];
    session.execute(text, &parameters).await?;
    let events = lock(session, &[id]).await?;
    let ended = BTreeMap::from([(id, Served::default())]);
    resolve(session, &events, &ended, true, slot, now).await
}

/// What the store says of an event that is being settled.
struct Standing {
    source: Arc<str>,
    state: i64,
    outcome: Option<Outcome>,
}

/// Reads events and holds them until the transaction ends.
async fn lock(session: &Session, ids: &[Uuid]) -> Attempt<HashMap<Uuid, Standing>> {
    let text = "SELECT id, source, state, outcome FROM event WHERE id = ANY($1) ORDER BY id FOR UPDATE";
    let rows = session.query(text, &[(&ids, Type::UUID_ARRAY)]).await?;
    rows.iter()
        .map(|row| {
            let outcome: Option<i16> = get(row, 3)?;
            let standing = Standing {
                source: get::<String>(row, 1)?.into(),
                state: get::<i16>(row, 2)?.into(),
                outcome: outcome.map(|number| outcome_from(number.into())).transpose().map_err(damaged)?,
            };
            Ok((get(row, 0)?, standing))
        })
        .collect()
}

/// Ends leases.
pub(super) async fn settle(shared: &Shared, settlements: &[Settlement], now: Timestamp) -> Attempt<Vec<Settled>> {
    if settlements.is_empty() {
        return Ok(Vec::new());
    }
    let slot = shared.slots.take();
    let settled = transaction!(shared.pool, tries, session => async {
        settle_within(shared, &session, settlements, slot.number, now, tries.may_have_happened()).await
    })?;
    wake_after(shared, settlements);
    Ok(settled)
}

/// Wakes workers for what settlements made ready, and whoever waits for a run that has ended, once they are committed.
pub(super) fn wake_after(shared: &Shared, settlements: &[Settlement]) {
    let tells =
        |settlement: &Settlement| matches!(settlement.end, End::Retry { .. }) || *settlement.lease.sink == *RUNS;
    if settlements.iter().any(tells) {
        shared.wake();
    }
}

/// Ends leases in a transaction. `repeated` means that an earlier attempt may have been committed.
pub(super) async fn settle_within(
    shared: &Shared,
    session: &Session,
    settlements: &[Settlement],
    slot: i64,
    given: Timestamp,
    repeated: bool,
) -> Attempt<Vec<Settled>> {
    let mut settled = settle_in(shared, session, settlements, slot, given).await?;
    if repeated {
        believe(session, settlements, &mut settled).await?;
    }
    Ok(settled)
}

async fn settle_in(
    shared: &Shared,
    session: &Session,
    settlements: &[Settlement],
    slot: i64,
    given: Timestamp,
) -> Attempt<Vec<Settled>> {
    let now = shared.now(session, given);
    let mut ids: Vec<Uuid> = settlements.iter().map(|settlement| settlement.lease.event.into()).collect();
    ids.sort_unstable();
    ids.dedup();
    let ends = Ends::of(settlements, given, now);
    // Sent together, answered in order.
    let (events, done, retried, dead) =
        tokio::join!(lock(session, &ids), ends.done(session), ends.retry(session), ends.dead(session));
    let (events, done, retried, dead) = (events?, done?, retried?, dead?);
    let mut ended: BTreeMap<Uuid, Served> = dead.iter().map(|&(event, ..)| (event, Served::default())).collect();
    let mut held: HashSet<Held> = done.into_iter().chain(dead).chain(retried).collect();
    let mut settled = Vec::with_capacity(settlements.len());
    for Settlement { lease, end } in settlements {
        // Of two settlements of one lease the first counts.
        if !held.remove(&held_by(lease)) {
            settled.push(Settled::LeaseLost);
            continue;
        }
        if let End::Done(outcome, result) = end {
            let earlier = ended.entry(lease.event.into()).or_default();
            earlier.outcome = outcome_with(earlier.outcome, Some(*outcome));
            earlier.result = earlier.result.or(result.as_ref());
        }
        settled.push(Settled::Ok);
    }
    resolve(session, &events, &ended, shared.options.keep_payload, slot, now).await?;
    Ok(settled)
}

/// What sinks of an event that were served say of it.
#[derive(Clone, Copy, Default)]
struct Served<'s> {
    outcome: Option<Outcome>,
    result: Option<&'s ResultText>,
}

/// Work and the token it was held with.
type Held = (Uuid, String, i64);

fn held_by(lease: &Lease) -> Held {
    (lease.event.into(), lease.sink.to_string(), lease.token.cast_signed())
}

/// The answer to the first attempt was lost. Work that nobody holds any more was settled by that.
async fn believe(session: &Session, settlements: &[Settlement], settled: &mut [Settled]) -> Attempt<()> {
    let lost = settlements.iter().zip(settled.iter()).filter(|(_, settled)| **settled == Settled::LeaseLost);
    let ids: Vec<Uuid> = lost.map(|(settlement, _)| settlement.lease.event.into()).collect();
    let text = "SELECT event, sink FROM work WHERE event = ANY($1) AND token IS NOT NULL";
    let rows = session.query(text, &[(&ids, Type::UUID_ARRAY)]).await?;
    let held: HashSet<(Uuid, String)> =
        rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect::<Attempt<_>>()?;
    for (settlement, settled) in settlements.iter().zip(settled) {
        let lease = &settlement.lease;
        if *settled == Settled::LeaseLost && !held.contains(&(lease.event.into(), lease.sink.to_string())) {
            *settled = Settled::Ok;
        }
    }
    Ok(())
}

/// Leases by how they end, column by column.
#[derive(Default)]
struct Ends<'s> {
    done: Columns<'s>,
    retry: Columns<'s>,
    due: Vec<i64>,
    counts: Vec<i32>,
    retry_causes: Vec<String>,
    dead: Columns<'s>,
    dead_causes: Vec<String>,
}

/// The columns that name leases.
#[derive(Default)]
struct Columns<'s> {
    events: Vec<Uuid>,
    sinks: Vec<&'s str>,
    tokens: Vec<i64>,
}

impl<'s> Columns<'s> {
    fn add(&mut self, lease: &'s Lease) {
        self.events.push(lease.event.into());
        self.sinks.push(&lease.sink);
        self.tokens.push(lease.token.cast_signed());
    }

    fn parameters(&self) -> Vec<Parameter<'_>> {
        vec![(&self.events, Type::UUID_ARRAY), (&self.sinks, Type::TEXT_ARRAY), (&self.tokens, Type::INT8_ARRAY)]
    }

    /// Runs a statement for these leases, unless there are none; for which of them it did something.
    async fn run(&self, session: &Session, text: &str, more: Vec<Parameter<'_>>) -> Attempt<Vec<Held>> {
        if self.events.is_empty() {
            return Ok(Vec::new());
        }
        let mut parameters = self.parameters();
        parameters.extend(more);
        let rows = session.query(text, &parameters).await?;
        rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?, get(row, 2)?))).collect()
    }
}

impl<'s> Ends<'s> {
    /// Times are given by the gateway's clock; what counts is how long after its own now they are.
    fn of(settlements: &'s [Settlement], given: Timestamp, now: Timestamp) -> Ends<'s> {
        let mut ends = Ends::default();
        let mut seen = HashSet::new();
        for Settlement { lease, end } in settlements {
            if !seen.insert(lease) {
                continue;
            }
            match end {
                End::Done(..) => ends.done.add(lease),
                End::Retry { at, cause, counts } => {
                    ends.retry.add(lease);
                    ends.due.push(now.plus(at.since(given)).millis().min(NEVER - 1));
                    ends.counts.push(i32::from(*counts));
                    ends.retry_causes.push(write_cause(cause));
                }
                End::Dead(cause) => {
                    ends.dead.add(lease);
                    ends.dead_causes.push(write_cause(cause));
                }
            }
        }
        ends
    }

    async fn done(&self, session: &Session) -> Attempt<Vec<Held>> {
        let text = "DELETE FROM work w USING unnest($1::uuid[], $2::text[], $3::bigint[]) AS t(e, s, n) \
                    WHERE w.event = t.e AND w.sink = t.s AND w.token = t.n RETURNING w.event, w.sink, t.n";
        self.done.run(session, text, Vec::new()).await
    }

    async fn retry(&self, session: &Session) -> Attempt<Vec<Held>> {
        let text = "UPDATE work w SET due = t.d, token = NULL, attempts = w.attempts + t.c, cause = t.m \
                    FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::integer[], $6::text[]) \
                    AS t(e, s, n, d, c, m) \
                    WHERE w.event = t.e AND w.sink = t.s AND w.token = t.n RETURNING w.event, w.sink, t.n";
        let more: Vec<Parameter<'_>> = vec![
            (&self.due, Type::INT8_ARRAY),
            (&self.counts, Type::INT4_ARRAY),
            (&self.retry_causes, Type::TEXT_ARRAY),
        ];
        self.retry.run(session, text, more).await
    }

    async fn dead(&self, session: &Session) -> Attempt<Vec<Held>> {
        let text = "UPDATE work w SET due = $4, token = NULL, cause = t.m \
                    FROM unnest($1::uuid[], $2::text[], $3::bigint[], $5::text[]) AS t(e, s, n, m) \
                    WHERE w.event = t.e AND w.sink = t.s AND w.token = t.n RETURNING w.event, w.sink, t.n";
        let more: Vec<Parameter<'_>> = vec![(&NEVER, Type::INT8), (&self.dead_causes, Type::TEXT_ARRAY)];
        self.dead.run(session, text, more).await
    }
}

/// What has changed of events.
#[derive(Default)]
struct Changes {
    ids: Vec<Uuid>,
    states: Vec<i16>,
    outcomes: Vec<Option<i16>>,
    settled: Vec<Option<i64>>,
    causes: Vec<Option<String>>,
    codes: Vec<Option<String>>,
    results: Vec<Option<String>>,
}

impl Changes {
    fn add(
        &mut self,
        id: Uuid,
        state: i64,
        Served { outcome, result }: Served<'_>,
        settled: Option<Timestamp>,
        cause: Option<&Cause>,
    ) {
        self.ids.push(id);
        self.states.push(small(state));
        self.outcomes.push(outcome.map(|outcome| small(outcome_number(outcome))));
        self.settled.push(settled.map(Timestamp::millis));
        self.causes.push(cause.map(write_cause));
        self.codes.push(cause.map(|cause| cause.code.clone()));
        self.results.push(result.map(ResultText::stored));
    }

    async fn write(&self, session: &Session) -> Attempt<()> {
        if self.ids.is_empty() {
            return Ok(());
        }
        let text = "UPDATE event SET state = t.s, outcome = t.o, settled = t.z, cause = t.m, code = t.c, \
                    result = coalesce(event.result, t.r) \
                    FROM unnest($1::uuid[], $2::smallint[], $3::smallint[], $4::bigint[], $5::text[], $6::text[], \
                    $7::text[]) AS t(i, s, o, z, m, c, r) WHERE event.id = t.i";
        let parameters: [Parameter<'_>; 7] = [
            (&self.ids, Type::UUID_ARRAY),
            (&self.states, Type::INT2_ARRAY),
            (&self.outcomes, Type::INT2_ARRAY),
            (&self.settled, Type::INT8_ARRAY),
            (&self.causes, Type::TEXT_ARRAY),
            (&self.codes, Type::TEXT_ARRAY),
            (&self.results, Type::TEXT_ARRAY),
        ];
        session.execute(text, &parameters).await.map(drop)
    }
}

/// Makes of open events what their work makes them, after a sink was served (with an outcome) or is dead.
async fn resolve(
    session: &Session,
    events: &HashMap<Uuid, Standing>,
    ended: &BTreeMap<Uuid, Served<'_>>,
    keep_payload: bool,
    slot: i64,
    now: Timestamp,
) -> Attempt<()> {
    if ended.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = ended.keys().copied().collect();
    let mut left = remaining(session, &ids).await?;
    let (mut counts, mut changes, mut unkept) = (Counts::default(), Changes::default(), Vec::new());
    for (&id, served) in ended {
        let Some(standing) = events.get(&id).filter(|standing| standing.state == OPEN) else {
            tracing::error!(event = %id.id(), "there was work for an event that is settled or gone");
            continue;
        };
        let served = Served { outcome: outcome_with(standing.outcome, served.outcome), ..*served };
        let (open, dead_cause) = left.remove(&id).unwrap_or_default();
        if open {
            changes.add(id, OPEN, served, None, None);
            continue;
        }
        counts.add(&standing.source, Tally::Waiting, -1);
        if let Some(cause) = dead_cause {
            counts.add_dead(&standing.source, Some(&cause), 1)?;
            changes.add(id, DEAD, served, Some(now), Some(&cause));
            continue;
        }
        let outcome = served.outcome.ok_or_else(|| damaged(format!("{} has no work and no outcome", id.id())))?;
        counts.add(&standing.source, Tally::of(outcome), 1);
        counts.add(&standing.source, Tally::Done, 1);
        changes.add(id, DONE, served, Some(now), None);
        unkept.push(id);
    }
    if !keep_payload && !unkept.is_empty() {
        let text = "DELETE FROM body b USING unnest($1::uuid[]) AS t(e) WHERE b.event = t.e";
        session.execute(text, &[(&unkept, Type::UUID_ARRAY)]).await?;
    }
    let (changed, counted) = tokio::join!(changes.write(session), counts.write(session, slot, None));
    changed.and(counted)
}

/// Whether some work of each event is ready or leased; and, of the dead work, the cause that stands for the event.
async fn remaining(session: &Session, ids: &[Uuid]) -> Attempt<HashMap<Uuid, (bool, Option<Cause>)>> {
    let text = "SELECT event, due, cause FROM work WHERE event = ANY($1) ORDER BY event, sink";
    let mut found: HashMap<Uuid, (bool, Option<Cause>)> = HashMap::new();
    for row in session.query(text, &[(&ids, Type::UUID_ARRAY)]).await? {
        let (open, dead) = found.entry(get(&row, 0)?).or_default();
        if get::<i64>(&row, 1)? == NEVER {
            let cause = read_cause(get(&row, 2)?)?.ok_or_else(|| damaged("dead work without a cause"))?;
            *dead = Some(cause_with(dead.take(), cause));
        } else {
            *open = true;
        }
    }
    Ok(found)
}

/// Prolongs leases.
pub(super) async fn extend(shared: &Shared, leases: &[Lease], until: Timestamp) -> Attempt<Vec<Settled>> {
    let mut columns = Columns::default();
    for lease in leases {
        columns.add(lease);
    }
    let until = shared.by_server(until).millis().min(NEVER - 1);
    let text = "UPDATE work w SET due = $4 FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS t(e, s, n) \
                WHERE w.event = t.e AND w.sink = t.s AND w.token = t.n RETURNING w.event, w.sink, t.n";
    let extended = transaction!(shared.pool, tries, session => async {
        // Leases are extended in the order of their events, so that nobody waits in a circle.
        lock(&session, &columns.events).await?;
        columns.run(&session, text, vec![(&until, Type::INT8)]).await
    })?;
    let extended: HashSet<Held> = extended.into_iter().collect();
    let is_held = |lease: &Lease| extended.contains(&held_by(lease));
    Ok(leases.iter().map(|lease| if is_held(lease) { Settled::Ok } else { Settled::LeaseLost }).collect())
}

/// Makes the dead work of dead events ready, and the events open; which of them had any. The caller holds their rows
/// and counts.
pub(super) async fn revive(session: &Session, ids: &[Uuid], now: Timestamp) -> Attempt<HashSet<EventId>> {
    let text = "UPDATE work SET due = $2, token = NULL, attempts = 0, lapses = 0 WHERE event = ANY($1) AND due = $3 \
                RETURNING event";
    let parameters: [Parameter<'_>; 3] = [(&ids, Type::UUID_ARRAY), (&now.millis(), Type::INT8), (&NEVER, Type::INT8)];
    let rows = session.query(text, &parameters).await?;
    let revived: HashSet<Uuid> = rows.iter().map(|row| get(row, 0)).collect::<Attempt<_>>()?;
    let ids: Vec<Uuid> = revived.iter().copied().collect();
    let text = "UPDATE event SET state = 0, settled = NULL, cause = NULL, code = NULL WHERE id = ANY($1)";
    session.execute(text, &[(&ids, Type::UUID_ARRAY)]).await?;
    Ok(revived.into_iter().map(Uuid::id).collect())
}
