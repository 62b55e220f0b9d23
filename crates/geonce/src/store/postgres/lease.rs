//! Handing out work: what is due, oldest first, skipping what another worker is just taking.

use super::row::{EVENT_COLUMNS, EventRow, Uuid, damaged, get};
use super::work::bury;
use super::{Attempt, Shared, transaction};
use crate::clock::Timestamp;
use crate::postgres::{Parameter, Session};
use crate::store::encoding::{LATEST, number};
use crate::store::holder::kept;
use crate::store::{Lease, LeaseRequest, Leased, company_max};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

/// The most events of one lease, whatever is asked for.
const LEASE_EVENTS_MAX: usize = 4_096;
/// How long after work was looked for from the beginning of a queue it is looked for from where it was found last.
const LOOK_BACK_MILLIS: i64 = 100;
/// What became due so lately is looked at every time: who made it so may be committed after who did later.
const LATE_MILLIS: i64 = 1_000;

/// Leases that have lapsed which one look moves.
const LAPSED_MAX: i64 = 1_000;

/// A place in a queue: when work is due, and its event.
pub(super) type Place = (i64, Uuid);

/// The beginning of every queue,
const BEGINNING: Place = (i64::MIN, Uuid::MIN);
/// and its end.
const END: Place = (LATEST, Uuid::MAX);

/// Where work was found last, sink by sink.
///
/// Leased work keeps its place in the queue, so that leasing it changes no index. Whoever looks for more would step over all
/// of it, each time. So most looks begin where the last one ended. What comes up before that is found by the next look from
/// the beginning, which also moves leases that have lapsed to where they are due again.
#[derive(Default)]
pub(super) struct Heads(Mutex<HashMap<Arc<str>, Head>>);

#[derive(Clone, Copy)]
struct Head {
    /// Before this nearly all is leased.
    from: Place,
    /// After this nothing is that may have lapsed.
    to: Place,
    /// When work was last looked for from the beginning.
    looked: i64,
}

/// Where to look for work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// After this.
    On(Place),
    /// From the beginning; for leases that have lapsed up to this.
    Back(Place),
}

impl Heads {
    fn get(&self) -> MutexGuard<'_, HashMap<Arc<str>, Head>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, sink: &str, now: Timestamp) -> Look {
        match self.get().get(sink) {
            None => Look::Back(END),
            Some(head) if (0..LOOK_BACK_MILLIS).contains(&now.millis().saturating_sub(head.looked)) => {
                Look::On(head.from)
            }
            Some(head) => Look::Back(head.to),
        }
    }

    /// Where work was found last, unless that is too long ago.
    pub(super) fn from(&self, sink: &str, now: Timestamp) -> Place {
        match self.look(sink, now) {
            Look::On(from) => from,
            Look::Back(_) => BEGINNING,
        }
    }

    /// Notes that nearly all is leased up to `last` or, where nothing was found, all that is due.
    fn note(&self, sink: &Arc<str>, now: Timestamp, last: Option<Place>, looked_back: bool) {
        let late = (now.millis().saturating_sub(LATE_MILLIS), Uuid::MIN);
        let reached = last.unwrap_or((now.millis(), Uuid::MAX));
        let mut heads = self.get();
        let head = heads.entry(Arc::clone(sink)).or_insert(Head { from: BEGINNING, to: BEGINNING, looked: 0 });
        head.from = reached.min(late);
        head.to = head.to.max(reached);
        if looked_back {
            head.looked = now.millis();
        }
    }
}

/// Work in the queue.
struct Due {
    event: Uuid,
    /// When it became due.
    since: i64,
    attempts: u32,
    /// How often its lease has lapsed, this time included.
    lapses: u32,
    /// Where its row is, until the transaction ends; empty where that does not matter any more.
    row: String,
}

/// A lease that was given in a transaction whose commit may not have been answered.
#[derive(Clone)]
struct Given {
    token: i64,
    events: Vec<Uuid>,
}

/// Hands out work.
pub(super) async fn lease(shared: &Shared, request: &LeaseRequest, now: Timestamp) -> Attempt<Vec<Leased>> {
    let given = Mutex::new(None);
    let slot = shared.slots.take();
    transaction!(shared.pool, tries, session => async {
        let earlier: Option<Given> = given.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(earlier) = earlier {
            let found = recover(&session, request, &earlier).await?;
            if !found.is_empty() {
                let loaded = Loaded::of(&session, &earlier.events).await?;
                return Ok(loaded.hand_out(request, found, earlier.token).0);
            }
        }
        let now = shared.now(&session, now);
        let due = next(shared, &session, request, now).await?;
        if due.is_empty() {
            return Ok(Vec::new());
        }
        let events: Vec<Uuid> = due.iter().map(|work| work.event).collect();
        // Sent together, answered in order.
        let (token, loaded) = tokio::join!(take(&session, request, &due, now), Loaded::of(&session, &events));
        let (token, loaded) = (token?, loaded?);
        *given.lock().unwrap_or_else(PoisonError::into_inner) = Some(Given { token, events });
        let (leased, missing) = loaded.hand_out(request, due, token);
        for id in missing {
            bury(shared, &session, id, &request.sink, slot.number, now).await?;
        }
        Ok(leased)
    })
}

/// What may be leased now.
async fn next(shared: &Shared, session: &Session, request: &LeaseRequest, now: Timestamp) -> Attempt<Vec<Due>> {
    if let Some(event) = request.event {
        return one(session, request, event.into(), now).await;
    }
    let (due, looked_back) = match shared.heads.look(&request.sink, now) {
        Look::On(from) => (due(session, request, from, now).await?, false),
        Look::Back(to) => {
            // Sent together, answered in order.
            let (moved, due) =
                tokio::join!(move_lapsed(session, &request.sink, to, now), due(session, request, BEGINNING, now));
            // If there may be more, the next look is from the beginning too.
            (due?, moved? < LAPSED_MAX.unsigned_abs())
        }
    };
    shared.heads.note(&request.sink, now, due.last().map(|work| (work.since, work.event)), looked_back);
    Ok(due)
}

/// Moves leases that have lapsed to where they are due again: behind what has waited longer. How many.
async fn move_lapsed(session: &Session, sink: &str, to: Place, now: Timestamp) -> Attempt<u64> {
    let text = "UPDATE work SET due = until WHERE ctid = ANY(ARRAY(SELECT ctid FROM work \
                WHERE sink = $1 AND due <= $2 AND (due, event) <= ($3, $4) AND lease IS NOT NULL AND until <= $2 \
                AND until <> due ORDER BY due, event LIMIT $5 FOR UPDATE SKIP LOCKED))";
    let now = now.millis().min(LATEST);
    let parameters: [Parameter<'_>; 5] =
        [(&sink, Type::TEXT), (&now, Type::INT8), (&to.0, Type::INT8), (&to.1, Type::UUID), (&LAPSED_MAX, Type::INT8)];
    session.execute(text, &parameters).await
}

/// What is read of work in the queue.
const DUE_COLUMNS: &str = "event, due, lease, attempts, lapses, bytes, ctid::text";

/// What may be leased together: oldest first, within the limits, in the company that [`company_max`] allows.
async fn due(session: &Session, request: &LeaseRequest, from: Place, now: Timestamp) -> Attempt<Vec<Due>> {
    let text = format!(
        "SELECT {DUE_COLUMNS} FROM work WHERE sink = $1 AND due <= $2 AND (due, event) > ($4, $5) \
         AND (lease IS NULL OR (until <= $2 AND until = due)) ORDER BY due, event LIMIT $3 FOR UPDATE SKIP LOCKED"
    );
    let (sink, limit) = (&*request.sink, number(request.events_max.min(LEASE_EVENTS_MAX)));
    let now = now.millis().min(LATEST);
    let parameters: [Parameter<'_>; 5] =
        [(&sink, Type::TEXT), (&now, Type::INT8), (&limit, Type::INT8), (&from.0, Type::INT8), (&from.1, Type::UUID)];
    together(request, &session.query(&text, &parameters).await?)
}

/// The work of one event, if it may be leased. Whoever asks for it wants to know what becomes of it, so is not told that there
/// is nothing while somebody else has it in hand.
async fn one(session: &Session, request: &LeaseRequest, event: Uuid, now: Timestamp) -> Attempt<Vec<Due>> {
    let text = format!(
        "SELECT {DUE_COLUMNS} FROM work WHERE event = $1 AND sink = $2 AND due <= $3 \
         AND (lease IS NULL OR until <= $3) FOR UPDATE"
    );
    let (sink, now) = (&*request.sink, now.millis().min(LATEST));
    let parameters: [Parameter<'_>; 3] = [(&event, Type::UUID), (&sink, Type::TEXT), (&now, Type::INT8)];
    together(request, &session.query(&text, &parameters).await?)
}

/// The first of these that may be leased together.
fn together(request: &LeaseRequest, rows: &[Row]) -> Attempt<Vec<Due>> {
    let (mut found, mut bytes): (Vec<Due>, usize) = (Vec::new(), 0);
    for row in rows.iter().take(request.events_max) {
        let lapsed = get::<Option<i64>>(row, 2)?.is_some();
        let lapses = unsigned(get(row, 4)?).saturating_add(u32::from(lapsed));
        if found.first().is_some_and(|first| first.lapses != lapses) || found.len() >= company_max(lapses) {
            break;
        }
        bytes = bytes.saturating_add(usize::try_from(get::<i64>(row, 5)?).unwrap_or(usize::MAX));
        if bytes > request.bytes_max && !found.is_empty() {
            break;
        }
        let (event, since, attempts) = (get(row, 0)?, get(row, 1)?, unsigned(get(row, 3)?));
        found.push(Due { event, since, attempts, lapses, row: get(row, 6)? });
    }
    Ok(found)
}

fn unsigned(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// Marks work as leased; the token that all of it has.
async fn take(session: &Session, request: &LeaseRequest, due: &[Due], now: Timestamp) -> Attempt<i64> {
    let places: Vec<&str> = due.iter().map(|work| work.row.as_str()).collect();
    let until = now.plus(request.duration).millis().min(LATEST);
    let holder = kept(&request.holder);
    // The rows are locked, so they are where they were found, and need not be looked for.
    let text = "WITH next AS MATERIALIZED (SELECT nextval('token') AS token) \
                UPDATE work SET until = $2, lease = next.token, holder = $3, \
                lapses = lapses + CASE WHEN lease IS NULL THEN 0 ELSE 1 END \
                FROM next WHERE work.ctid = ANY($1::text[]::tid[]) RETURNING next.token";
    let parameters: [Parameter<'_>; 3] = [(&places, Type::TEXT_ARRAY), (&until, Type::INT8), (&holder, Type::TEXT)];
    let rows = session.query(text, &parameters).await?;
    match rows.first() {
        Some(row) if rows.len() == places.len() => get(row, 0),
        _ => Err(damaged("work that is locked is not where it was")),
    }
}

/// The work of a lease whose commit was not answered, if it took effect.
async fn recover(session: &Session, request: &LeaseRequest, earlier: &Given) -> Attempt<Vec<Due>> {
    let text = "SELECT event, due, attempts, lapses FROM work WHERE event = ANY($1) AND sink = $2 AND lease = $3 \
                ORDER BY due, event";
    let sink = &*request.sink;
    let parameters: [Parameter<'_>; 3] =
        [(&earlier.events, Type::UUID_ARRAY), (&sink, Type::TEXT), (&earlier.token, Type::INT8)];
    let rows = session.query(text, &parameters).await?;
    rows.iter()
        .map(|row| {
            let (attempts, lapses) = (unsigned(get(row, 2)?), unsigned(get(row, 3)?));
            Ok(Due { event: get(row, 0)?, since: get(row, 1)?, attempts, lapses, row: String::new() })
        })
        .collect()
}

/// Records and payloads of events.
struct Loaded {
    events: HashMap<Uuid, EventRow>,
    payloads: HashMap<Uuid, Bytes>,
}

impl Loaded {
    async fn of(session: &Session, ids: &[Uuid]) -> Attempt<Loaded> {
        let text = format!("SELECT {EVENT_COLUMNS} FROM event e WHERE e.id = ANY($1)");
        let parameters: [Parameter<'_>; 1] = [(&ids, Type::UUID_ARRAY)];
        let (rows, payloads) = tokio::join!(session.query(&text, &parameters), payloads(session, ids));
        let (rows, payloads, mut events) = (rows?, payloads?, HashMap::new());
        for row in rows {
            let event = EventRow::read(&row)?;
            events.insert(Uuid::from(event.id), event);
        }
        Ok(Loaded { events, payloads })
    }

    /// What a worker needs. Also: events of which record or payload is not there.
    fn hand_out(mut self, request: &LeaseRequest, due: Vec<Due>, token: i64) -> (Vec<Leased>, Vec<Uuid>) {
        let (mut leased, mut missing) = (Vec::with_capacity(due.len()), Vec::new());
        for work in due {
            let (Some(event), Some(payload)) = (self.events.remove(&work.event), self.payloads.remove(&work.event))
            else {
                missing.push(work.event);
                continue;
            };
            leased.push(Leased {
                lease: Lease { event: event.id, sink: request.sink.clone(), token: token.cast_unsigned() },
                source: event.source,
                key: event.digests[0],
                content: event.content,
                origin: event.origin,
                received: event.received,
                attempts: work.attempts,
                lapses: work.lapses,
                form: event.form,
                crs: event.crs,
                payload,
            });
        }
        (leased, missing)
    }
}

/// The payloads that are kept of these events.
pub(super) async fn payloads(session: &Session, ids: &[Uuid]) -> Attempt<HashMap<Uuid, Bytes>> {
    let (Some(first), Some(last)) = (ids.iter().min(), ids.iter().max()) else { return Ok(HashMap::new()) };
    // By the first and the last the server knows which days they are of, and looks into no other part.
    let text = "SELECT b.event, b.payload FROM unnest($1::uuid[]) AS t(e) JOIN body b ON b.event = t.e \
                WHERE b.event BETWEEN $2 AND $3";
    let parameters: [Parameter<'_>; 3] = [(&ids, Type::UUID_ARRAY), (first, Type::UUID), (last, Type::UUID)];
    let rows = session.query(text, &parameters).await?;
    rows.iter().map(|row| Ok((get(row, 0)?, get::<Vec<u8>>(row, 1)?.into()))).collect()
}
