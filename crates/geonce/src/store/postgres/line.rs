//! Held work: lines of entities, in which one event at a sink has its turn while the others wait.
//!
//! Whoever lets work into a line, or takes it out of one, holds the line's entity until its transaction ends: between seeing
//! that somebody has the turn and being committed as the next, that somebody must not leave unseen. Entities are held by
//! [`LOCKS`] numbers, sorted, after everything but counters. A unique index lets what has its turn be alone.

use super::row::{Uuid, get};
use super::{Attempt, Shared};
use crate::clock::Timestamp;
use crate::postgres::{Parameter, Session};
use crate::store::encoding::{HELD, LATEST};
use std::collections::{BTreeMap, HashSet};
use tokio_postgres::types::Type;

/// Locks there are for entities: the server has room for a few thousand in all. Two entities that share one wait for each
/// other needlessly, and briefly.
const LOCKS: u64 = 1_024;
/// The first half of the locks' numbers is the store's own, so that stores in one database do not meet.
const LOCKS_BITS: u32 = 16;

/// Events at a sink that are about one entity.
pub(super) type Line = (String, Uuid);

/// Work that comes into its line.
pub(super) struct Entering {
    pub(super) event: Uuid,
    pub(super) line: Line,
    pub(super) rank: Vec<u8>,
    /// Whether it was never leased.
    pub(super) untouched: bool,
}

/// Who has the turn in a line.
struct Turn {
    event: Uuid,
    rank: Vec<u8>,
    untouched: bool,
    /// Whether it had it before this transaction.
    known: bool,
}

/// Holds the entities of lines until the transaction ends.
pub(super) async fn hold(shared: &Shared, session: &Session, lines: impl Iterator<Item = &Line>) -> Attempt<()> {
    let store = crate::postgres::lock_number(&format!("geonce entities {}", shared.schema));
    let number = |entity: &Uuid| {
        let hash = entity.0.iter().take(8).fold(0u64, |hash, &byte| (hash << 8) | u64::from(byte));
        (store << LOCKS_BITS) | i64::try_from(hash % LOCKS).unwrap_or(0)
    };
    let mut numbers: Vec<i64> = lines.map(|(_, entity)| number(entity)).collect();
    if numbers.is_empty() {
        return Ok(());
    }
    numbers.sort_unstable();
    numbers.dedup();
    let text = "SELECT pg_advisory_xact_lock(k) FROM unnest($1::bigint[]) AS t(k)";
    session.query(text, &[(&numbers, Type::INT8_ARRAY)]).await.map(drop)
}

/// Lets work into its lines, in this order; which of it has its turn. What had it before and gives way is held from now on.
pub(super) async fn enter(session: &Session, entering: &[Entering]) -> Attempt<HashSet<(Uuid, String)>> {
    if entering.is_empty() {
        return Ok(HashSet::new());
    }
    let mut known = turns(session, entering).await?;
    let mut lines = decide(&known, entering);
    let gives_way: Vec<(Uuid, &str)> = known
        .iter()
        .filter(|(line, turn)| lines.get(*line).is_some_and(|now| now.event != turn.event))
        .map(|((sink, _), turn)| (turn.event, sink.as_str()))
        .collect();
    let gave_way = give_way(session, &gives_way).await?;
    if gave_way.len() < gives_way.len() {
        // A worker may have leased one a moment ago: then it stays.
        for ((sink, _), turn) in &mut known {
            turn.untouched &= gave_way.contains(&(turn.event, sink.clone()));
        }
        lines = decide(&known, entering);
    }
    Ok(lines.into_iter().filter(|(_, turn)| !turn.known).map(|((sink, _), turn)| (turn.event, sink)).collect())
}

/// Who has the turn in these lines.
async fn turns(session: &Session, entering: &[Entering]) -> Attempt<BTreeMap<Line, Turn>> {
    let lines: HashSet<&Line> = entering.iter().map(|one| &one.line).collect();
    let (sinks, entities): (Vec<&str>, Vec<Uuid>) = lines.iter().map(|(sink, entity)| (sink.as_str(), *entity)).unzip();
    let text = format!(
        "SELECT w.sink, w.entity, w.event, w.rank, w.lease IS NULL AND w.cause IS NULL \
         FROM unnest($1::text[], $2::uuid[]) AS t(s, e) JOIN work w ON w.sink = t.s AND w.entity = t.e \
         WHERE w.entity IS NOT NULL AND w.due < {HELD}"
    );
    let both: [Parameter<'_>; 2] = [(&sinks, Type::TEXT_ARRAY), (&entities, Type::UUID_ARRAY)];
    let rows = session.query(&text, &both).await?;
    rows.iter()
        .map(|row| {
            let turn = Turn { event: get(row, 2)?, rank: get(row, 3)?, untouched: get(row, 4)?, known: true };
            Ok(((get(row, 0)?, get(row, 1)?), turn))
        })
        .collect()
}

/// Who has the turn after all have come: one that was never leased gives way to a lower rank.
fn decide(known: &BTreeMap<Line, Turn>, entering: &[Entering]) -> BTreeMap<Line, Turn> {
    let mut lines: BTreeMap<Line, Turn> = BTreeMap::new();
    for one in entering {
        let turn = lines.get(&one.line).or_else(|| known.get(&one.line));
        if turn.is_none_or(|turn| turn.untouched && (&one.rank, one.event) < (&turn.rank, turn.event)) {
            let turn = Turn { event: one.event, rank: one.rank.clone(), untouched: one.untouched, known: false };
            lines.insert(one.line.clone(), turn);
        }
    }
    lines
}

/// Holds what has its turn, unless somebody has leased it or is just doing so; what that was done to.
///
/// This must not wait: who settles that work meanwhile waits for its entity, which we hold.
async fn give_way(session: &Session, work: &[(Uuid, &str)]) -> Attempt<HashSet<(Uuid, String)>> {
    if work.is_empty() {
        return Ok(HashSet::new());
    }
    let (events, sinks): (Vec<Uuid>, Vec<&str>) = work.iter().copied().unzip();
    let text = format!(
        "SELECT w.event, w.sink FROM unnest($1::uuid[], $2::text[]) AS t(e, s) \
         JOIN work w ON w.event = t.e AND w.sink = t.s \
         WHERE w.lease IS NULL AND w.cause IS NULL AND w.due < {HELD} FOR UPDATE OF w SKIP LOCKED"
    );
    let rows = session.query(&text, &[(&events, Type::UUID_ARRAY), (&sinks, Type::TEXT_ARRAY)]).await?;
    let free = rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect::<Attempt<HashSet<_>>>()?;
    set_due(session, &free, HELD).await?;
    Ok(free)
}

/// Lets work into its lines that is held already, and gives the turn to whom it is due. The caller holds their entities.
pub(super) async fn enter_held(session: &Session, entering: &[Entering], now: Timestamp) -> Attempt<()> {
    let turns = enter(session, entering).await?;
    give_turn(session, &turns, now).await
}

/// Makes held work ready that has its turn.
pub(super) async fn give_turn(session: &Session, work: &HashSet<(Uuid, String)>, now: Timestamp) -> Attempt<()> {
    set_due(session, work, now.millis().min(LATEST)).await
}

async fn set_due(session: &Session, work: &HashSet<(Uuid, String)>, due: i64) -> Attempt<()> {
    if work.is_empty() {
        return Ok(());
    }
    let (events, sinks): (Vec<Uuid>, Vec<&str>) = work.iter().map(|(event, sink)| (*event, sink.as_str())).unzip();
    let text = "UPDATE work w SET due = $3 FROM unnest($1::uuid[], $2::text[]) AS t(e, s) \
                WHERE w.event = t.e AND w.sink = t.s";
    let parameters: [Parameter<'_>; 3] = [(&events, Type::UUID_ARRAY), (&sinks, Type::TEXT_ARRAY), (&due, Type::INT8)];
    session.execute(text, &parameters).await.map(drop)
}

/// Gives the turn to the next of each line, after the one who had it left; whether there was any. The caller holds their
/// entities.
pub(super) async fn advance(session: &Session, lines: &HashSet<Line>, now: Timestamp) -> Attempt<bool> {
    if lines.is_empty() {
        return Ok(false);
    }
    let (sinks, entities): (Vec<&str>, Vec<Uuid>) = lines.iter().map(|(sink, entity)| (sink.as_str(), *entity)).unzip();
    let text = format!(
        "UPDATE work w SET due = $3 FROM unnest($1::text[], $2::uuid[]) AS t(s, e) \
         CROSS JOIN LATERAL (SELECT l.event FROM work l WHERE l.sink = t.s AND l.entity = t.e \
           AND l.entity IS NOT NULL AND l.due = {HELD} AND l.after IS NULL ORDER BY l.rank, l.event LIMIT 1) n \
         WHERE w.event = n.event AND w.sink = t.s"
    );
    let due = now.millis().min(LATEST);
    let parameters: [Parameter<'_>; 3] =
        [(&sinks, Type::TEXT_ARRAY), (&entities, Type::UUID_ARRAY), (&due, Type::INT8)];
    Ok(session.execute(&text, &parameters).await? > 0)
}
