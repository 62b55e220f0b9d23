//! Work: ending it, and what that makes of its event.
//!
//! An event's state follows from its work: open while some is ready, leased or held in the line of its entity, else dead if
//! some is dead, else done. Work that waits for another sink goes where that goes.
//! Whoever settles holds the event's row first, so that two sinks of one event are settled one after the other.

use super::counts::Counts;
use super::line::{self, Entering, Line};
use super::row::{Uuid, damaged, get, read_cause, small};
use super::{Attempt, Shared, transaction};
use crate::clock::Timestamp;
use crate::event::{Cause, Class, EventId, Outcome};
use crate::postgres::{Parameter, Session};
use crate::store::books::Tally;
use crate::store::encoding::{DEAD, DONE, HELD, LATEST, NEVER, OPEN, outcome_from, outcome_number, write_cause};
use crate::store::held::{Release, release};
use crate::store::verdict::{cause_with, outcome_with};
use crate::store::{End, Lease, RUNS, ResultText, Settled, Settlement};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio_postgres::types::Type;

/// What is set where nobody holds work any more.
const FREE: &str = "lease = NULL, until = NULL, holder = NULL";

/// Takes work out of the queue whose record or payload is not there, visibly: one such must not stop the queue.
pub(super) async fn bury(
    shared: &Shared,
    session: &Session,
    id: Uuid,
    sink: &str,
    slot: i64,
    now: Timestamp,
) -> Attempt<()> {
    let what = format!("the record or the payload of {} is not there", id.id());
    tracing::error!("{what}");
    let cause = Cause::new(Class::Internal, "damaged", what);
    let text = format!("UPDATE work SET due = $3, {FREE}, cause = $4 WHERE event = $1 AND sink = $2 RETURNING entity");
    let parameters: [Parameter<'_>; 4] =
        [(&id, Type::UUID), (&sink, Type::TEXT), (&NEVER, Type::INT8), (&write_cause(&cause), Type::TEXT)];
    let rows = session.query(&text, &parameters).await?;
    let events = lock(session, &[id]).await?;
    let mut ended = Ended { sinks: BTreeMap::from([(id, Served::default())]), ..Ended::default() };
    for row in rows {
        ended.left.extend(get::<Option<Uuid>>(&row, 0)?.map(|entity| (sink.to_owned(), entity)));
    }
    resolve(shared, session, &events, ended, slot, now).await
}

/// What leases that were ended mean to their events.
#[derive(Default)]
struct Ended<'s> {
    /// What was served; nothing where one is dead.
    sinks: BTreeMap<Uuid, Served<'s>>,
    /// Lines that the one who had the turn has left.
    left: HashSet<Line>,
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

/// Wakes workers for what settlements made ready or released, and whoever waits for a run that has ended, once they are committed.
pub(super) fn wake_after(shared: &Shared, settlements: &[Settlement]) {
    let tells =
        |settlement: &Settlement| matches!(settlement.end, End::Retry { .. }) || *settlement.lease.sink == *RUNS;
    if settlements.iter().any(tells) || shared.released.swap(false, Ordering::Relaxed) {
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
    let left = done.1.into_iter().chain(dead.1).collect();
    let (done, retried, dead) = (done.0, retried.0, dead.0);
    let mut ended = Ended { sinks: dead.iter().map(|&(event, ..)| (event, Served::default())).collect(), left };
    let mut held: HashSet<Held> = done.into_iter().chain(dead).chain(retried).collect();
    let mut settled = Vec::with_capacity(settlements.len());
    for Settlement { lease, end } in settlements {
        // Of two settlements of one lease the first counts.
        if !held.remove(&held_by(lease)) {
            settled.push(Settled::LeaseLost);
            continue;
        }
        if let End::Done(outcome, result) = end {
            let served = ended.sinks.entry(lease.event.into()).or_default();
            served.sinks.push((&lease.sink, *outcome));
            served.result = served.result.or(result.as_ref());
        }
        settled.push(Settled::Ok);
    }
    resolve(shared, session, &events, ended, slot, now).await?;
    Ok(settled)
}

/// What sinks of an event that were served say of it.
#[derive(Default)]
struct Served<'s> {
    sinks: Vec<(&'s str, Outcome)>,
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
    let text = "SELECT event, sink FROM work WHERE event = ANY($1) AND lease IS NOT NULL";
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

    /// Runs a statement for these leases, unless there are none; for which of them it did something, and the lines these
    /// are in.
    async fn run(&self, session: &Session, text: &str, more: Vec<Parameter<'_>>) -> Attempt<(Vec<Held>, Vec<Line>)> {
        if self.events.is_empty() {
            return Ok(Default::default());
        }
        let mut parameters = self.parameters();
        parameters.extend(more);
        let rows = session.query(text, &parameters).await?;
        let (mut held, mut lines) = (Vec::with_capacity(rows.len()), Vec::new());
        for row in &rows {
            let sink: String = get(row, 1)?;
            lines.extend(get::<Option<Uuid>>(row, 3)?.map(|entity| (sink.clone(), entity)));
            held.push((get(row, 0)?, sink, get(row, 2)?));
        }
        Ok((held, lines))
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
                    ends.due.push(now.plus(at.since(given)).millis().min(LATEST));
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

    async fn done(&self, session: &Session) -> Attempt<(Vec<Held>, Vec<Line>)> {
        let text = "DELETE FROM work w USING unnest($1::uuid[], $2::text[], $3::bigint[]) AS t(e, s, n) \
                    WHERE w.event = t.e AND w.sink = t.s AND w.lease = t.n RETURNING w.event, w.sink, t.n, w.entity";
        self.done.run(session, text, Vec::new()).await
    }

    async fn retry(&self, session: &Session) -> Attempt<(Vec<Held>, Vec<Line>)> {
        let text = format!(
            "UPDATE work w SET due = t.d, {FREE}, attempts = w.attempts + t.c, cause = t.m \
             FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::integer[], $6::text[]) \
             AS t(e, s, n, d, c, m) \
             WHERE w.event = t.e AND w.sink = t.s AND w.lease = t.n RETURNING w.event, w.sink, t.n, w.entity"
        );
        let more: Vec<Parameter<'_>> = vec![
            (&self.due, Type::INT8_ARRAY),
            (&self.counts, Type::INT4_ARRAY),
            (&self.retry_causes, Type::TEXT_ARRAY),
        ];
        self.retry.run(session, &text, more).await
    }

    async fn dead(&self, session: &Session) -> Attempt<(Vec<Held>, Vec<Line>)> {
        let text = format!(
            "UPDATE work w SET due = $4, {FREE}, cause = t.m \
             FROM unnest($1::uuid[], $2::text[], $3::bigint[], $5::text[]) AS t(e, s, n, m) \
             WHERE w.event = t.e AND w.sink = t.s AND w.lease = t.n RETURNING w.event, w.sink, t.n, w.entity"
        );
        let more: Vec<Parameter<'_>> = vec![(&NEVER, Type::INT8), (&self.dead_causes, Type::TEXT_ARRAY)];
        self.dead.run(session, &text, more).await
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
        (state, outcome): (i64, Option<Outcome>),
        result: Option<&ResultText>,
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

/// Makes of open events what their work makes them, after sinks were served or are dead, and releases what was held for
/// them.
async fn resolve(
    shared: &Shared,
    session: &Session,
    events: &HashMap<Uuid, Standing>,
    ended: Ended<'_>,
    slot: i64,
    now: Timestamp,
) -> Attempt<()> {
    if ended.sinks.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = ended.sinks.keys().copied().collect();
    let mut left = remaining(session, &ids).await?;
    let mut released = Released { lines: ended.left, ..Released::default() };
    for (&id, served) in &ended.sinks {
        if let Some(work) = left.get_mut(&id) {
            for (sink, outcome) in &served.sinks {
                released.follow(id, work, sink, *outcome);
            }
        }
    }
    released.write(shared, session, now).await?;
    let (mut counts, mut changes, mut unkept) = (Counts::default(), Changes::default(), Vec::new());
    for (&id, served) in &ended.sinks {
        let Some(standing) = events.get(&id).filter(|standing| standing.state == OPEN) else {
            tracing::error!(event = %id.id(), "there was work for an event that is settled or gone");
            continue;
        };
        let outcome = served.sinks.iter().fold(standing.outcome, |known, (_, new)| outcome_with(known, Some(*new)));
        let work = left.remove(&id).unwrap_or_default();
        if work.iter().any(Left::is_open) {
            changes.add(id, (OPEN, outcome), served.result, None, None);
            continue;
        }
        counts.add(&standing.source, Tally::Waiting, -1);
        let mut dead_cause = None;
        for work in work.into_iter().filter(|work| work.due == NEVER) {
            let cause = read_cause(work.cause)?.ok_or_else(|| damaged("dead work without a cause"))?;
            dead_cause = Some(cause_with(dead_cause, cause));
        }
        if let Some(cause) = dead_cause {
            counts.add_dead(&standing.source, Some(&cause), 1)?;
            changes.add(id, (DEAD, outcome), served.result, Some(now), Some(&cause));
            continue;
        }
        let ended = outcome.ok_or_else(|| damaged(format!("{} has no work and no outcome", id.id())))?;
        counts.add(&standing.source, Tally::of(ended), 1);
        counts.add(&standing.source, Tally::Done, 1);
        changes.add(id, (DONE, outcome), served.result, Some(now), None);
        unkept.push(id);
    }
    if !shared.options.keep_payload && !unkept.is_empty() {
        let text = "DELETE FROM body b USING unnest($1::uuid[]) AS t(e) WHERE b.event = t.e";
        session.execute(text, &[(&unkept, Type::UUID_ARRAY)]).await?;
    }
    let (changed, counted) = tokio::join!(changes.write(session), counts.write(session, slot, None));
    changed.and(counted)
}

/// What is left to do for an event at a sink.
struct Left {
    sink: String,
    due: i64,
    cause: Option<String>,
    after: Option<String>,
    /// Its entity and its rank in the line.
    place: Option<(Uuid, Vec<u8>)>,
}

impl Left {
    /// Whether it is ready or leased, or waits for others of its entity.
    fn is_open(&self) -> bool {
        self.due != NEVER && self.after.is_none()
    }
}

/// What is left to do for these events, by sinks.
async fn remaining(session: &Session, ids: &[Uuid]) -> Attempt<HashMap<Uuid, Vec<Left>>> {
    let text =
        "SELECT event, sink, due, cause, after, entity, rank FROM work WHERE event = ANY($1) ORDER BY event, sink";
    let mut found: HashMap<Uuid, Vec<Left>> = HashMap::new();
    for row in session.query(text, &[(&ids, Type::UUID_ARRAY)]).await? {
        let place = get::<Option<Uuid>>(&row, 5)?.zip(get(&row, 6)?);
        let left = Left { sink: get(&row, 1)?, due: get(&row, 2)?, cause: get(&row, 3)?, after: get(&row, 4)?, place };
        found.entry(get(&row, 0)?).or_default().push(left);
    }
    Ok(found)
}

/// What settlements release.
#[derive(Default)]
struct Released {
    /// Lines that have a next one.
    lines: HashSet<Line>,
    /// Work that goes into its line,
    entering: Vec<Entering>,
    /// and all that waited for a sink that is served.
    go: (Vec<Uuid>, Vec<String>, Vec<i64>),
    /// Work that is served with what it waited for.
    skip: (Vec<Uuid>, Vec<String>),
}

impl Released {
    /// Follows what a served sink means to the rest of its event.
    fn follow(&mut self, id: Uuid, left: &mut Vec<Left>, served: &str, outcome: Outcome) {
        let waits = |work: &Left| work.after.as_deref() == Some(served);
        match release(outcome) {
            Release::Go => {
                for work in left.iter_mut().filter(|work| waits(work)) {
                    work.after = None;
                    self.go.0.push(id);
                    self.go.1.push(work.sink.clone());
                    self.go.2.push(if work.place.is_some() { HELD } else { 0 });
                    if let Some((entity, rank)) = work.place.take() {
                        let line = (work.sink.clone(), entity);
                        self.entering.push(Entering { event: id, line, rank, untouched: work.cause.is_none() });
                    }
                }
            }
            Release::Skip => {
                for work in left.extract_if(.., |work| waits(work)).collect::<Vec<_>>() {
                    self.skip.0.push(id);
                    self.skip.1.push(work.sink.clone());
                    self.follow(id, left, &work.sink, outcome);
                }
            }
        }
    }

    async fn write(&self, shared: &Shared, session: &Session, now: Timestamp) -> Attempt<()> {
        if !self.skip.0.is_empty() {
            let text = "DELETE FROM work w USING unnest($1::uuid[], $2::text[]) AS t(e, s) \
                        WHERE w.event = t.e AND w.sink = t.s";
            let both: [Parameter<'_>; 2] = [(&self.skip.0, Type::UUID_ARRAY), (&self.skip.1, Type::TEXT_ARRAY)];
            session.execute(text, &both).await?;
        }
        if !self.go.0.is_empty() {
            let text = "UPDATE work w SET after = NULL, due = CASE WHEN t.d = 0 THEN $4 ELSE t.d END \
                        FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS t(e, s, d) \
                        WHERE w.event = t.e AND w.sink = t.s";
            let parameters: [Parameter<'_>; 4] = [
                (&self.go.0, Type::UUID_ARRAY),
                (&self.go.1, Type::TEXT_ARRAY),
                (&self.go.2, Type::INT8_ARRAY),
                (&now.millis().min(LATEST), Type::INT8),
            ];
            session.execute(text, &parameters).await?;
        }
        let entered = self.entering.iter().map(|work| &work.line);
        line::hold(shared, session, self.lines.iter().chain(entered)).await?;
        let advanced = line::advance(session, &self.lines, now).await?;
        line::enter_held(session, &self.entering, now).await?;
        if advanced || !self.go.0.is_empty() {
            shared.released.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Prolongs leases.
pub(super) async fn extend(shared: &Shared, leases: &[Lease], until: Timestamp) -> Attempt<Vec<Settled>> {
    let mut columns = Columns::default();
    for lease in leases {
        columns.add(lease);
    }
    let until = shared.by_server(until).millis().min(LATEST);
    let text = "UPDATE work w SET until = $4 FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS t(e, s, n) \
                WHERE w.event = t.e AND w.sink = t.s AND w.lease = t.n RETURNING w.event, w.sink, t.n, w.entity";
    let extended = transaction!(shared.pool, tries, session => async {
        // Leases are extended in the order of their events, so that nobody waits in a circle.
        lock(&session, &columns.events).await?;
        columns.run(&session, text, vec![(&until, Type::INT8)]).await
    })?;
    let extended: HashSet<Held> = extended.0.into_iter().collect();
    let is_held = |lease: &Lease| extended.contains(&held_by(lease));
    Ok(leases.iter().map(|lease| if is_held(lease) { Settled::Ok } else { Settled::LeaseLost }).collect())
}

/// Events that were dead.
pub(super) struct Revived {
    /// Those that had work to be done.
    pub(super) events: HashSet<EventId>,
    /// Of their work, what is held until it has come into its line.
    pub(super) entering: Vec<Entering>,
}

/// Makes the dead work of dead events ready, and the events open. The caller holds their rows and counts, and lets into
/// lines what belongs there.
pub(super) async fn revive(session: &Session, ids: &[Uuid], now: Timestamp) -> Attempt<Revived> {
    let text = format!(
        "UPDATE work SET due = CASE WHEN entity IS NULL THEN $2 ELSE {HELD} END, {FREE}, attempts = 0, lapses = 0 \
         WHERE event = ANY($1) AND due = $3 RETURNING event, sink, entity, rank, cause IS NULL"
    );
    let parameters: [Parameter<'_>; 3] = [(&ids, Type::UUID_ARRAY), (&now.millis(), Type::INT8), (&NEVER, Type::INT8)];
    let rows = session.query(&text, &parameters).await?;
    let (mut revived, mut entering) = (HashSet::new(), Vec::new());
    for row in &rows {
        let event: Uuid = get(row, 0)?;
        revived.insert(event);
        if let Some(entity) = get::<Option<Uuid>>(row, 2)? {
            let line = (get(row, 1)?, entity);
            entering.push(Entering { event, line, rank: get(row, 3)?, untouched: get(row, 4)? });
        }
    }
    // In the order of ids, as they are replayed one by one elsewhere.
    entering.sort_by(|a, b| (a.event, &a.line).cmp(&(b.event, &b.line)));
    let ids: Vec<Uuid> = revived.iter().copied().collect();
    let text = "UPDATE event SET state = 0, settled = NULL, cause = NULL, code = NULL WHERE id = ANY($1)";
    session.execute(text, &[(&ids, Type::UUID_ARRAY)]).await?;
    Ok(Revived { events: revived.into_iter().map(Uuid::id).collect(), entering })
}
