//! Held work: lines of entities, in which one event at a sink has its turn while the others wait, and work that waits for
//! another sink of its event.
//!
//! Work in a line has an entity and a rank. What has its turn is ready or leased, and a unique index lets it be alone;
//! what is held has `due` [`HELD`] and, where it waits for a sink, that sink in `after`. Dead work is in no line.

use super::failure::{Attempt, damaged};
use super::group::Group;
use super::row::{Bytes16, HELD, LATEST, bytes16};
use crate::clock::Timestamp;
use crate::event::{EventId, Outcome};
use crate::store::held::{Release, release};
use rusqlite::{OptionalExtension, Row, params};
use std::sync::LazyLock;

/// The place of an event's work in a line.
pub(super) struct Place {
    pub(super) entity: Bytes16,
    pub(super) rank: Vec<u8>,
}

impl Place {
    /// Reads it from two columns; `None` where the event is not ordered.
    pub(super) fn read(row: &Row<'_>, first: usize) -> Attempt<Option<Place>> {
        match row.get::<_, Option<Vec<u8>>>(first + 1)? {
            Some(rank) => Ok(Some(Place { entity: bytes16(row, first)?, rank })),
            None => Ok(None),
        }
    }
}

static TURN: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT event, rank, token IS NULL AND cause IS NULL FROM work INDEXED BY turn \
         WHERE sink = ?1 AND entity = ?2 AND entity IS NOT NULL AND due < {HELD}"
    )
});
static NEXT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "UPDATE work SET due = ?3 WHERE sink = ?1 AND event = (SELECT event FROM work INDEXED BY line \
         WHERE sink = ?1 AND entity = ?2 AND entity IS NOT NULL AND due = {HELD} AND after IS NULL \
         ORDER BY rank, event LIMIT 1)"
    )
});

/// Lets work into its line; when it is due. What has its turn gives way to a lower rank, unless it was ever leased.
pub(super) fn enter(group: &Group<'_>, event: EventId, sink: i64, place: &Place, now: Timestamp) -> Attempt<i64> {
    let due = now.millis().min(LATEST);
    let mut statement = group.connection.prepare_cached(&TURN)?;
    let mut rows = statement.query(params![sink, place.entity])?;
    let Some(row) = rows.next()? else { return Ok(due) };
    let (other, rank, untouched) = (bytes16(row, 0)?, row.get::<_, Vec<u8>>(1)?, row.get::<_, bool>(2)?);
    drop(rows);
    if !untouched || (&rank, other) < (&place.rank, event.to_bytes()) {
        return Ok(HELD);
    }
    let mut statement = group.connection.prepare_cached("UPDATE work SET due = ?3 WHERE event = ?1 AND sink = ?2")?;
    statement.execute(params![other, sink, HELD])?;
    Ok(due)
}

/// Gives the turn to the next of a line, after the one who had it left.
pub(super) fn advance(group: &mut Group<'_>, sink: i64, entity: Bytes16, now: Timestamp) -> Attempt<()> {
    let mut statement = group.connection.prepare_cached(&NEXT)?;
    if statement.execute(params![sink, entity, now.millis().min(LATEST)])? > 0 {
        group.effects.changed = true;
    }
    Ok(())
}

/// Releases what waits for a sink of its event that is served now.
pub(super) fn follow(group: &mut Group<'_>, id: EventId, served: i64, outcome: Outcome, now: Timestamp) -> Attempt<()> {
    let mut statement =
        group.connection.prepare_cached("SELECT sink, entity, rank FROM work WHERE event = ?1 AND after = ?2")?;
    let mut rows = statement.query(params![id.to_bytes(), served])?;
    let mut waiting = Vec::new();
    while let Some(row) = rows.next()? {
        waiting.push((row.get::<_, i64>(0)?, Place::read(row, 1)?));
    }
    drop(rows);
    drop(statement);
    for (sink, place) in waiting {
        match release(outcome) {
            Release::Go => {
                let due = match place {
                    Some(place) => enter(group, id, sink, &place, now)?,
                    None => now.millis().min(LATEST),
                };
                let text = "UPDATE work SET due = ?3, after = NULL WHERE event = ?1 AND sink = ?2";
                group.connection.prepare_cached(text)?.execute(params![id.to_bytes(), sink, due])?;
                group.effects.changed = true;
            }
            Release::Skip => {
                let text = "DELETE FROM work WHERE event = ?1 AND sink = ?2";
                group.connection.prepare_cached(text)?.execute(params![id.to_bytes(), sink])?;
                follow(group, id, sink, outcome, now)?;
            }
        }
    }
    Ok(())
}

/// The line that leased work is in, if it is in one.
pub(super) fn entity_of(group: &Group<'_>, event: EventId, sink: i64) -> Attempt<Option<Bytes16>> {
    let mut statement = group.connection.prepare_cached("SELECT entity FROM work WHERE event = ?1 AND sink = ?2")?;
    let found = statement.query_row(params![event.to_bytes(), sink], |row| row.get(0)).optional()?;
    let entity: Option<Vec<u8>> = found.flatten();
    entity.map(|bytes| bytes.try_into().map_err(|_| damaged("an entity that has not 16 bytes"))).transpose()
}
