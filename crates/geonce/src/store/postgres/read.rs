//! Reading: lists, counts and times.

use super::counts::counters;
use super::lease::payloads;
use super::row::{EVENT_COLUMNS, EventRow, Uuid, damaged, get, read_cause};
use super::select::Conditions;
use super::{Attempt, Shared, reading, schema};
use crate::clock::Timestamp;
use crate::event::State;
use crate::postgres::{Parameter, Session};
use crate::store::encoding::{DEAD, DONE, HELD, NEVER, OPEN};
use crate::store::{Held, ListRequest, Record, Status, Work, books};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;
use tokio_postgres::types::Type;

/// The most events of one page, whatever is asked for.
const PAGE_EVENTS_MAX: usize = 10_000;

/// A page of events, latest first.
pub(super) async fn list(shared: &Shared, request: &ListRequest) -> Attempt<Vec<Record>> {
    let Some(mut conditions) = Conditions::of(&request.filter) else { return Ok(Vec::new()) };
    conditions.and("e.id < $", request.before.map_or(Uuid::MAX, Uuid::from), Type::UUID);
    let limit = request.limit.min(PAGE_EVENTS_MAX);
    reading!(shared.pool, session => read_page(&session, &conditions, limit, request.payloads))
}

async fn read_page(
    session: &Session,
    conditions: &Conditions,
    limit: usize,
    with_payloads: bool,
) -> Attempt<Vec<Record>> {
    let text =
        format!("SELECT {EVENT_COLUMNS} FROM event e WHERE {} ORDER BY e.id DESC LIMIT {limit}", conditions.text());
    let rows = session.query(&text, &conditions.parameters()).await?;
    let events: Vec<EventRow> = rows.iter().map(EventRow::read).collect::<Attempt<_>>()?;
    let ids: Vec<Uuid> = events.iter().map(|event| event.id.into()).collect();
    let mut work = work(session, &ids).await?;
    let mut kept = if with_payloads { payloads(session, &ids).await? } else { HashMap::new() };
    let record = |event: EventRow| {
        let id = Uuid::from(event.id);
        record(event, work.remove(&id).unwrap_or_default(), kept.remove(&id))
    };
    Ok(events.into_iter().map(record).collect())
}

/// The work that is left for events.
pub(super) async fn work(session: &Session, ids: &[Uuid]) -> Attempt<HashMap<Uuid, Vec<Work>>> {
    let text = "SELECT event, sink, due, until, attempts, lapses, cause, after, holder FROM work WHERE event = ANY($1) \
                ORDER BY event, sink";
    let mut found: HashMap<Uuid, Vec<Work>> = HashMap::new();
    for row in session.query(text, &[(&ids, Type::UUID_ARRAY)]).await? {
        let due: i64 = get(&row, 2)?;
        let until: Option<i64> = get(&row, 3)?;
        let state = match (due, until) {
            (NEVER, _) => State::Dead,
            (_, Some(_)) => State::Leased,
            (_, None) => State::Ready,
        };
        let count = |number: i32| u32::try_from(number).map_err(|_| damaged("a number below zero"));
        found.entry(get(&row, 0)?).or_default().push(Work {
            sink: get::<String>(&row, 1)?.into(),
            state,
            due: if due >= HELD { Timestamp::MAX } else { Timestamp::from_millis(until.unwrap_or(due)) },
            held: match (due, get::<Option<String>>(&row, 7)?) {
                (HELD, Some(after)) => Some(Held::Sink(after.into())),
                (HELD, None) => Some(Held::Entity),
                _ => None,
            },
            attempts: count(get(&row, 4)?)?,
            lapses: count(get(&row, 5)?)?,
            cause: read_cause(get(&row, 6)?)?,
            holder: get::<Option<String>>(&row, 8)?.map(Arc::from),
        });
    }
    Ok(found)
}

fn record(event: EventRow, work: Vec<Work>, payload: Option<Bytes>) -> Record {
    let state = match event.state {
        OPEN if work.iter().any(|work| work.state == State::Leased) => State::Leased,
        OPEN => State::Ready,
        DONE => State::Done,
        _ => State::Dead,
    };
    let last_cause = || work.iter().find_map(|work| work.cause.clone());
    Record {
        id: event.id,
        source: event.source,
        key: event.digests[0],
        aliases: event.digests[1..].to_vec(),
        spatial: event.spatial,
        content: event.content,
        origin: event.origin,
        state,
        outcome: event.outcome.filter(|_| event.state == DONE),
        result: event.result.filter(|_| event.state == DONE),
        cause: if event.state == DEAD { event.cause } else { last_cause() },
        received: event.received,
        settled: event.settled,
        duplicates: u64::try_from(event.duplicates).unwrap_or(0),
        work,
        form: event.form,
        crs: event.crs,
        payload,
    }
}

/// Leases of one queue whose ends are looked at: the first ones are the likeliest to have lapsed, and workers look again soon.
const ENDS_MAX: i64 = 1_000;

/// When work for a sink is next due, by the gateway's clock.
pub(super) async fn next_due(shared: &Shared, sink: &str) -> Attempt<Option<Timestamp>> {
    let text = "SELECT least((SELECT due FROM work WHERE sink = $1 AND due < $2 AND (due, event) > ($3, $4) \
                  AND lease IS NULL ORDER BY due, event LIMIT 1), \
                (SELECT min(until) FROM (SELECT until FROM work WHERE sink = $1 AND due < $2 \
                  ORDER BY due, event LIMIT $5) AS ends))";
    let due: Option<i64> = reading!(shared.pool, session => async {
        let (due, event) = shared.heads.from(sink, session.began);
        let parameters: [Parameter<'_>; 5] = [
            (&sink, Type::TEXT), (&HELD, Type::INT8), (&due, Type::INT8), (&event, Type::UUID), (&ENDS_MAX, Type::INT8),
        ];
        session.query(text, &parameters).await?.first().map_or(Ok(None), |row| get(row, 0))
    })?;
    Ok(due.map(|due| shared.by_gateway(Timestamp::from_millis(due))))
}

/// Work of one sink among which leased work is counted: it is at the beginning of the queue.
const COUNTED_MAX: i64 = 20_000;

/// How many events are leased. No index knows that, or every lease would have to change it.
const LEASED: &str = "WITH RECURSIVE sinks AS ((SELECT sink FROM work ORDER BY sink LIMIT 1) UNION ALL \
      SELECT (SELECT w.sink FROM work w WHERE w.sink > s.sink ORDER BY w.sink LIMIT 1) FROM sinks s WHERE s.sink IS NOT NULL) \
    SELECT count(DISTINCT q.event) FROM sinks s CROSS JOIN LATERAL (SELECT w.event, w.lease FROM work w \
      WHERE w.sink = s.sink AND w.due < $1 ORDER BY w.due, w.event LIMIT $2) q WHERE q.lease IS NOT NULL";

/// The books and the state of the store.
pub(super) async fn status(shared: &Shared) -> Attempt<Status> {
    let mut status = reading!(shared.pool, session => read_status(&session))?;
    status.bytes = bytes(shared).await;
    Ok(status)
}

async fn read_status(session: &Session) -> Attempt<Status> {
    let rows = session.query(LEASED, &[(&HELD, Type::INT8), (&COUNTED_MAX, Type::INT8)]).await?;
    let leased: i64 = rows.first().map(|row| get(row, 0)).transpose()?.unwrap_or(0);
    let counters = counters(session).await?;
    let mut status = books::status(counters, u64::try_from(leased).unwrap_or(0)).map_err(damaged)?;
    let text = "SELECT e.received FROM work w JOIN event e ON e.id = w.event WHERE w.due < $1 AND w.after IS NULL \
                ORDER BY w.event LIMIT 1";
    let rows = session.query(text, &[(&NEVER, Type::INT8)]).await?;
    let oldest: Option<i64> = rows.first().map(|row| get(row, 0)).transpose()?;
    status.oldest_waiting = oldest.map(Timestamp::from_millis);
    status.risks = schema::risks(session).await?;
    Ok(status)
}

/// The size of the tables; nothing where the server does not tell.
async fn bytes(shared: &Shared) -> u64 {
    let text = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_catalog.pg_class c \
                JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'";
    let asked = async {
        let session = shared.pool.session().await?;
        let rows = session.query(text, &[(&shared.schema, Type::TEXT)]).await?;
        rows.first().map_or(Ok(0), |row| get::<i64>(row, 0))
    };
    asked.await.map_or(0, |bytes| u64::try_from(bytes).unwrap_or(0))
}
