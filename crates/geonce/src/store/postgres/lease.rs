//! Handing out work: what is due, oldest first, skipping what another worker is just taking.

use super::row::{EVENT_COLUMNS, EventRow, Uuid, damaged, get};
use super::work::bury;
use super::{Attempt, Shared, transaction};
use crate::clock::Timestamp;
use crate::postgres::{Parameter, Session};
use crate::store::encoding::{LATEST, number};
use crate::store::{Lease, LeaseRequest, Leased, company_max};
use bytes::Bytes;
use std::collections::HashMap;
use tokio_postgres::types::Type;

/// The most events of one lease, whatever is asked for.
const LEASE_EVENTS_MAX: usize = 4_096;

/// Work in the queue.
struct Due {
    event: Uuid,
    attempts: u32,
    /// How often its lease has lapsed, this time included.
    lapses: u32,
    /// Where its row is, until the transaction ends; empty where that does not matter any more.
    place: String,
}

/// A lease that was given in a transaction whose commit may not have been answered.
#[derive(Clone, Copy)]
struct Given {
    token: i64,
    until: i64,
}

/// Hands out work.
pub(super) async fn lease(shared: &Shared, request: &LeaseRequest, now: Timestamp) -> Attempt<Vec<Leased>> {
    let given = std::sync::Mutex::new(None);
    let slot = shared.slots.take();
    transaction!(shared.pool, tries, session => async {
        let earlier = *given.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(earlier) = earlier {
            let found = recover(&session, request, &earlier).await?;
            if !found.is_empty() {
                return hand_out(&session, request, found, &earlier).await.map(|(leased, _)| leased);
            }
        }
        let now = shared.now(&session, now);
        let due = due(&session, request, now).await?;
        if due.is_empty() {
            return Ok(Vec::new());
        }
        let new = take(&session, request, &due, now).await?;
        let (leased, missing) = hand_out(&session, request, due, &new).await?;
        *given.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(new);
        for id in missing {
            bury(shared, &session, id, &request.sink, slot.number, now).await?;
        }
        Ok(leased)
    })
}

/// What may be leased together: oldest first, within the limits, in the company that [`company_max`] allows.
async fn due(session: &Session, request: &LeaseRequest, now: Timestamp) -> Attempt<Vec<Due>> {
    let text = match request.event {
        None => {
            "SELECT event, token, attempts, lapses, bytes, ctid::text FROM work WHERE sink = $1 AND due <= $2 \
             ORDER BY due, event LIMIT $3 FOR UPDATE SKIP LOCKED"
        }
        // Whoever asks for this one wants to know what becomes of it, so is not told that there is nothing meanwhile.
        Some(_) => {
            "SELECT event, token, attempts, lapses, bytes, ctid::text FROM work WHERE sink = $1 AND due <= $2 AND event = $4 \
             LIMIT $3 FOR UPDATE"
        }
    };
    let (sink, limit) = (&*request.sink, number(request.events_max.min(LEASE_EVENTS_MAX)));
    let (due, event) = (now.millis().min(LATEST), request.event.map(Uuid::from));
    let mut parameters: Vec<Parameter<'_>> = vec![(&sink, Type::TEXT), (&due, Type::INT8), (&limit, Type::INT8)];
    if let Some(event) = &event {
        parameters.push((event, Type::UUID));
    }
    let (mut found, mut bytes): (Vec<Due>, usize) = (Vec::new(), 0);
    for row in session.query(text, &parameters).await? {
        let lapsed = get::<Option<i64>>(&row, 1)?.is_some();
        let lapses = unsigned(get(&row, 3)?).saturating_add(u32::from(lapsed));
        if found.first().is_some_and(|first| first.lapses != lapses) || found.len() >= company_max(lapses) {
            break;
        }
        bytes = bytes.saturating_add(usize::try_from(get::<i64>(&row, 4)?).unwrap_or(usize::MAX));
        if bytes > request.bytes_max && !found.is_empty() {
            break;
        }
        let (event, attempts, place) = (get(&row, 0)?, unsigned(get(&row, 2)?), get(&row, 5)?);
        found.push(Due { event, attempts, lapses, place });
    }
    Ok(found)
}

fn unsigned(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// Marks work as leased, all with one token.
async fn take(session: &Session, request: &LeaseRequest, due: &[Due], now: Timestamp) -> Attempt<Given> {
    let places: Vec<&str> = due.iter().map(|work| work.place.as_str()).collect();
    let until = now.plus(request.duration).millis().min(LATEST);
    let rows = session.query("SELECT nextval('token')", &[]).await?;
    let token: i64 = get(rows.first().ok_or_else(|| damaged("there is no token"))?, 0)?;
    // The rows are locked, so they are where they were found, and need not be looked for.
    let text = "UPDATE work SET due = $2, token = $3, lapses = lapses + CASE WHEN token IS NULL THEN 0 ELSE 1 END \
                WHERE ctid = ANY($1::text[]::tid[])";
    let parameters: [Parameter<'_>; 3] = [(&places, Type::TEXT_ARRAY), (&until, Type::INT8), (&token, Type::INT8)];
    if session.execute(text, &parameters).await? != places.len() as u64 {
        return Err(damaged("work that is locked is not where it was"));
    }
    Ok(Given { token, until })
}

/// The work of a lease whose commit was not answered, if it took effect.
async fn recover(session: &Session, request: &LeaseRequest, earlier: &Given) -> Attempt<Vec<Due>> {
    let text = "SELECT event, attempts, lapses FROM work WHERE sink = $1 AND due = $2 AND token = $3 ORDER BY event";
    let sink = &*request.sink;
    let parameters: [Parameter<'_>; 3] =
        [(&sink, Type::TEXT), (&earlier.until, Type::INT8), (&earlier.token, Type::INT8)];
    let rows = session.query(text, &parameters).await?;
    rows.iter()
        .map(|row| {
            let (attempts, lapses) = (unsigned(get(row, 1)?), unsigned(get(row, 2)?));
            Ok(Due { event: get(row, 0)?, attempts, lapses, place: String::new() })
        })
        .collect()
}

/// Loads what a worker needs. Also: events of which record or payload is not there.
async fn hand_out(
    session: &Session,
    request: &LeaseRequest,
    due: Vec<Due>,
    given: &Given,
) -> Attempt<(Vec<Leased>, Vec<Uuid>)> {
    let ids: Vec<Uuid> = due.iter().map(|work| work.event).collect();
    let text = format!("SELECT {EVENT_COLUMNS} FROM event e WHERE e.id = ANY($1)");
    let parameters: [Parameter<'_>; 1] = [(&ids, Type::UUID_ARRAY)];
    let (rows, payloads) = tokio::join!(session.query(&text, &parameters), payloads(session, &ids));
    let (rows, mut payloads, mut events) = (rows?, payloads?, HashMap::new());
    for row in rows {
        let event = EventRow::read(&row)?;
        events.insert(Uuid::from(event.id), event);
    }
    let (mut leased, mut missing) = (Vec::with_capacity(due.len()), Vec::new());
    for work in due {
        let (Some(event), Some(payload)) = (events.remove(&work.event), payloads.remove(&work.event)) else {
            missing.push(work.event);
            continue;
        };
        leased.push(Leased {
            lease: Lease { event: event.id, sink: request.sink.clone(), token: given.token.cast_unsigned() },
            source: event.source,
            key: event.digests[0],
            content: event.content,
            received: event.received,
            attempts: work.attempts,
            lapses: work.lapses,
            form: event.form,
            crs: event.crs,
            payload,
        });
    }
    Ok((leased, missing))
}

/// The payloads that are kept of these events.
pub(super) async fn payloads(session: &Session, ids: &[Uuid]) -> Attempt<HashMap<Uuid, Bytes>> {
    let text = "SELECT b.event, b.payload FROM unnest($1::uuid[]) AS t(e) JOIN body b ON b.event = t.e";
    let rows = session.query(text, &[(&ids, Type::UUID_ARRAY)]).await?;
    rows.iter().map(|row| Ok((get(row, 0)?, get::<Vec<u8>>(row, 1)?.into()))).collect()
}
