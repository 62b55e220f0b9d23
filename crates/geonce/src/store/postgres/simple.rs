//! Ending leases the way nearly all of them end: the sink is served, the event goes nowhere else and is in no line. One
//! statement takes the work away and makes the event done; whatever is not so simple is left as it was, for `work`.
//!
//! Two sinks of one event are never both simple: each sees the other's work, which only its settlement takes away.

use super::counts::Counts;
use super::row::{Uuid, get, small};
use super::{Attempt, Shared};
use crate::clock::Timestamp;
use crate::event::{EventId, Outcome};
use crate::postgres::{Parameter, Session};
use crate::store::books::Tally;
use crate::store::encoding::{DONE, OPEN, outcome_number};
use crate::store::{End, ResultText, Settlement};
use std::collections::HashMap;
use std::sync::Arc;
use tokio_postgres::types::Type;

/// How leases end together.
#[derive(Clone, Copy, PartialEq)]
struct Alike<'s> {
    sink: &'s str,
    outcome: Outcome,
    result: Option<&'s ResultText>,
}

fn alike(settlement: &Settlement) -> Option<Alike<'_>> {
    let End::Done(outcome, result) = &settlement.end else { return None };
    Some(Alike { sink: &settlement.lease.sink, outcome: *outcome, result: result.as_ref() })
}

/// What was simple: the token with which each event was held, and whether it is done by now. One that is not was settled
/// before; its work is gone, and the rest is to be done.
pub(super) type Simple = HashMap<EventId, (u64, bool)>;

/// Ends the leases that end alike.
pub(super) async fn settle(
    shared: &Shared,
    session: &Session,
    settlements: &[Settlement],
    slot: i64,
    now: Timestamp,
) -> Attempt<Simple> {
    let Some(end) = settlements.iter().find_map(alike) else { return Ok(Simple::new()) };
    let mut leases: Vec<(Uuid, u64)> = settlements
        .iter()
        .filter(|settlement| alike(settlement) == Some(end))
        .map(|settlement| (settlement.lease.event.into(), settlement.lease.token))
        .collect();
    // Rows are locked in the order of their events, so that nobody waits in a circle.
    leases.sort_unstable();
    leases.dedup_by_key(|lease| lease.0);
    let tokens: HashMap<Uuid, u64> = leases.iter().copied().collect();
    let (mut simple, mut counts, mut ids) = (Simple::new(), Counts::default(), Vec::new());
    for row in take_away(session, &leases, end, now).await? {
        let event: Uuid = get(&row, 0)?;
        let source: Option<String> = get(&row, 1)?;
        let token = tokens.get(&event).copied().unwrap_or_default();
        // Of what is done there are two rows, in no order.
        simple.entry(event.id()).or_insert((token, false)).1 |= source.is_some();
        if let Some(source) = source.map(Arc::from) {
            counts.add(&source, Tally::Waiting, -1);
            counts.add(&source, Tally::of(end.outcome), 1);
            counts.add(&source, Tally::Done, 1);
            ids.push(event);
        }
    }
    let unkept = async {
        if shared.options.keep_payload || ids.is_empty() {
            return Ok(());
        }
        let text = "DELETE FROM body b USING unnest($1::uuid[]) AS t(e) WHERE b.event = t.e";
        session.execute(text, &[(&ids, Type::UUID_ARRAY)]).await.map(drop)
    };
    let (unkept, counted) = tokio::join!(unkept, counts.write(session, slot, None));
    unkept.and(counted)?;
    Ok(simple)
}

/// Takes the work away that these leases hold, where it is simple, and makes events done: a row for each whose work is
/// gone, and one with its source for each that is done. (Joined, they would be compared each with each.)
async fn take_away(
    session: &Session,
    leases: &[(Uuid, u64)],
    end: Alike<'_>,
    now: Timestamp,
) -> Attempt<Vec<tokio_postgres::Row>> {
    let text = format!(
        "WITH held AS (DELETE FROM work w USING unnest($1::uuid[], $2::bigint[]) AS t(e, n) \
           WHERE w.event = t.e AND w.sink = $3 AND w.lease = t.n AND w.entity IS NULL \
           AND NOT EXISTS (SELECT FROM work o WHERE o.event = t.e AND o.sink <> $3) RETURNING w.event), \
         done AS (UPDATE event e SET state = {DONE}, outcome = $4, settled = $5, cause = NULL, code = NULL, \
           result = coalesce(e.result, $6) FROM held WHERE e.id = held.event AND e.state = {OPEN} AND e.outcome IS NULL \
           RETURNING e.id, e.source) \
         SELECT event, NULL AS source FROM held UNION ALL SELECT id, source FROM done"
    );
    let events: Vec<Uuid> = leases.iter().map(|lease| lease.0).collect();
    let tokens: Vec<i64> = leases.iter().map(|lease| lease.1.cast_signed()).collect();
    let (outcome, result) = (small(outcome_number(end.outcome)), end.result.map(ResultText::stored));
    let parameters: [Parameter<'_>; 6] = [
        (&events, Type::UUID_ARRAY),
        (&tokens, Type::INT8_ARRAY),
        (&end.sink, Type::TEXT),
        (&outcome, Type::INT2),
        (&now.millis(), Type::INT8),
        (&result, Type::TEXT),
    ];
    session.query(&text, &parameters).await
}
