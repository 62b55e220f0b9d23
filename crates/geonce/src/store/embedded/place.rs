//! Places of events among what may be near. The one writer serves spots one after the other, so nobody asks at the same time.
//!
//! What cannot be what was written is told in the log and removed: a damaged place must not keep its neighbours waiting.

use super::failure::{Attempt, Failure, damaged};
use super::group::Group;
use super::row::{Bytes16, NEVER, bytes16, number, place_sum};
use super::writer::Slice;
use crate::clock::Timestamp;
use crate::event::EventId;
use crate::store::place::{Claim, NEIGHBOURS_MAX, Neighbour, Placed, Room, Spot, Standing, latest};
use bytes::Bytes;
use rusqlite::types::{ToSql, ValueRef};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};
use std::collections::HashSet;

/// The statements, prepared once for a call.
struct Statements<'a> {
    find: CachedStatement<'a>,
    near: CachedStatement<'a>,
    insert: CachedStatement<'a>,
    remove: CachedStatement<'a>,
}

impl<'a> Statements<'a> {
    fn new(connection: &'a Connection) -> Attempt<Statements<'a>> {
        Ok(Statements {
            find: connection.prepare_cached("SELECT scope, cell, until, body, sum FROM place WHERE event = ?1")?,
            near: connection.prepare_cached(
                "SELECT until, event FROM place INDEXED BY near WHERE cell = ?1 AND scope = ?2 AND until > ?3 \
                 ORDER BY until DESC, event DESC",
            )?,
            insert: connection.prepare_cached(
                "INSERT INTO place(event, scope, cell, until, body, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?,
            remove: connection.prepare_cached("DELETE FROM place WHERE event = ?1")?,
        })
    }

    /// What is kept of an event.
    fn find(&mut self, event: EventId) -> Attempt<Option<Kept>> {
        let mut rows = self.find.query([event.to_bytes()])?;
        let found = match rows.next()? {
            Some(row) => Kept::read(row, event, 0),
            None => return Ok(None),
        };
        drop(rows);
        match found {
            Err(Failure::Damaged(what)) => {
                tracing::error!("{what}; the place is given up");
                self.remove(event)?;
                Ok(None)
            }
            found => found.map(Some),
        }
    }

    fn remove(&mut self, event: EventId) -> Attempt<()> {
        self.remove.execute([event.to_bytes()])?;
        Ok(())
    }

    fn keep(&mut self, spot: &Spot, at: Option<(&Bytes16, i64)>, body: &dyn ToSql, sum: i64) -> Attempt<()> {
        let (scope, cell, until) = (at.map(|at| at.0), at.map(|at| at.1), spot.until.millis());
        self.insert.execute(params![spot.event.to_bytes(), scope, cell, until, body, sum])?;
        Ok(())
    }
}

/// What is kept of an event.
pub(super) enum Kept {
    Here(Bytes),
    Decided(Box<str>),
}

impl Kept {
    /// Reads the columns `scope`, `cell`, `until`, `body` and `sum`, of which `first` is the first.
    pub(super) fn read(row: &rusqlite::Row<'_>, event: EventId, first: usize) -> Attempt<Kept> {
        let wrong = || damaged(format!("the place of {event} does not match its checksum"));
        let until: i64 = row.get(first + 2)?;
        let (at, body) = match (row.get_ref(first)?, row.get_ref(first + 1)?, row.get_ref(first + 3)?) {
            (ValueRef::Blob(scope), ValueRef::Integer(cell), ValueRef::Blob(body)) => {
                let scope: &Bytes16 = scope.try_into().map_err(|_| wrong())?;
                (Some((scope, cell)), body)
            }
            (ValueRef::Null, ValueRef::Null, ValueRef::Text(text)) => (None, text),
            _ => return Err(wrong()),
        };
        if place_sum(event, at, until, body) != row.get::<_, i64>(first + 4)? {
            return Err(wrong());
        }
        match at {
            Some(_) => Ok(Kept::Here(Bytes::copy_from_slice(body))),
            None => Ok(Kept::Decided(str::from_utf8(body).map_err(|_| wrong())?.into())),
        }
    }
}

/// Who is in the cells of a spot.
enum Found {
    Nobody,
    /// Only those that nobody is compared with; they are gone now, and there are more.
    Again,
    Near(Vec<Neighbour>),
}

/// Serves spots that were not served yet; `answers` are those of the first ones.
pub(super) fn place(
    group: &Group<'_>,
    spots: &[Spot],
    now: Timestamp,
    mut answers: Vec<Placed>,
) -> Attempt<Slice<Vec<Placed>, Vec<Placed>>> {
    let mut statements = Statements::new(group.connection)?;
    for spot in &spots[answers.len()..] {
        match serve(group, &mut statements, spot, now)? {
            Some(placed) => answers.push(placed),
            None => return Ok(Slice::More(answers)),
        }
    }
    Ok(Slice::Answer(answers))
}

fn serve(group: &Group<'_>, statements: &mut Statements<'_>, spot: &Spot, now: Timestamp) -> Attempt<Option<Placed>> {
    match statements.find(spot.event)? {
        Some(Kept::Here(_)) => return Ok(Some(Placed::Here)),
        Some(Kept::Decided(text)) => return Ok(Some(Placed::Decided(text))),
        None => {}
    }
    let until = spot.until.millis();
    match &spot.claim {
        Claim::Decided(text) => {
            let sum = place_sum(spot.event, None, until, text.as_bytes());
            statements.keep(spot, None, &&**text, sum)?;
            return Ok(Some(Placed::Decided(text.clone())));
        }
        Claim::Unless(_) => match neighbours(group, statements, spot, now)? {
            Found::Nobody => {}
            Found::Again => return Ok(None),
            Found::Near(neighbours) => return Ok(Some(Placed::Neighbours(neighbours))),
        },
        Claim::Anyway => {}
    }
    let at = Some((&spot.scope, spot.home.cast_signed()));
    statements.keep(spot, at, &&spot.body[..], place_sum(spot.event, at, until, &spot.body))?;
    Ok(Some(Placed::Here))
}

fn neighbours(group: &Group<'_>, statements: &mut Statements<'_>, spot: &Spot, now: Timestamp) -> Attempt<Found> {
    let mut found = in_cells(statements, spot, now)?;
    let more = latest(&mut found, |&one| one);
    let (mut room, mut neighbours) = (Room::default(), Vec::new());
    for (_, event) in found {
        let Some(Kept::Here(body)) = statements.find(event)? else { continue };
        let applied = match standing(group, event)? {
            Standing::Applied => true,
            Standing::Open => false,
            Standing::Gone => {
                statements.remove(event)?;
                continue;
            }
        };
        if !room.take(body.len()) {
            break;
        }
        neighbours.push(Neighbour { event, applied, body });
    }
    Ok(match (neighbours.is_empty(), more) {
        (false, _) => Found::Near(neighbours),
        (true, true) => Found::Again,
        (true, false) => Found::Nobody,
    })
}

/// Those in the cells of a spot that it does not know; of each cell the latest.
fn in_cells(statements: &mut Statements<'_>, spot: &Spot, now: Timestamp) -> Attempt<Vec<(i64, EventId)>> {
    let known: HashSet<EventId> = spot.known().iter().copied().collect();
    let (since, mut found) = (spot.since(now).millis(), Vec::new());
    for cell in &spot.cells {
        let mut of_cell = 0;
        let mut rows = statements.near.query(params![cell.cast_signed(), spot.scope, since])?;
        while let Some(row) = rows.next()? {
            let event = EventId::from_bytes(bytes16(row, 1)?);
            if event != spot.event && (known.is_empty() || !known.contains(&event)) {
                found.push((row.get(0)?, event));
                of_cell += 1;
            }
            if of_cell == NEIGHBOURS_MAX {
                break;
            }
        }
    }
    Ok(found)
}

fn standing(group: &Group<'_>, event: EventId) -> Attempt<Standing> {
    match group.standing(event) {
        Ok(record) => Ok(Standing::of(record.map(|(_, standing)| (standing.state, standing.outcome)))),
        Err(Failure::Damaged(what)) => {
            tracing::error!("{what}; nobody is compared with it");
            Ok(Standing::Gone)
        }
        Err(failure) => Err(failure),
    }
}

/// Until when places are over with which nobody is compared any more; `None` where no place is over. An event that came
/// before the end of a place, and still waits, is compared with it.
pub(super) fn over(connection: &Connection, now: Timestamp) -> Attempt<Option<Timestamp>> {
    let mut any = connection.prepare_cached("SELECT 1 FROM place WHERE until <= ?1 LIMIT 1")?;
    if !any.exists([now.millis()])? {
        return Ok(None);
    }
    let mut oldest =
        connection.prepare_cached("SELECT event FROM work WHERE due < ?1 AND after IS NULL ORDER BY event LIMIT 1")?;
    let oldest: Option<Bytes16> = oldest.query_row([NEVER], |row| row.get(0)).optional()?;
    Ok(Some(oldest.map_or(now, |id| EventId::from_bytes(id).time().min(now))))
}

/// Removes places that are over, at most `limit`; how many.
pub(super) fn sweep(group: &Group<'_>, over: Timestamp, limit: usize) -> Attempt<usize> {
    let mut statement = group.connection.prepare_cached(
        "DELETE FROM place WHERE event IN (SELECT event FROM place INDEXED BY over WHERE until <= ?1 LIMIT ?2)",
    )?;
    Ok(statement.execute(params![over.millis(), number(limit)])?)
}
