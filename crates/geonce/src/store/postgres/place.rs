//! Places of events among what may be near. Whoever asks for one holds all its cells until its transaction ends, so that of
//! two near events at two gateways the second sees the first.
//!
//! Cells are held by [`LOCKS`] numbers, sorted; nothing else is locked before or after them. What is read and decided for
//! many spots is one statement each, and [`Plan`] decides between: later spots see what earlier ones wrote.

use super::row::{Uuid, get};
use super::{Attempt, Shared, transaction};
use crate::clock::Timestamp;
use crate::event::EventId;
use crate::postgres::{Parameter, Session};
use crate::store::encoding::{Bytes16, NEVER, number};
use crate::store::place::{Claim, NEIGHBOURS_MAX, Neighbour, Placed, Room, Spot, Standing, latest, together};
use bytes::Bytes;
use std::collections::{BTreeSet, HashMap, HashSet};
use tokio_postgres::types::Type;

/// Locks there are for cells, beside those of entities: the server has room for a few thousand in all.
const LOCKS: u64 = 512;
/// The first half of the locks' numbers is the store's own, so that stores in one database do not meet.
const LOCKS_BITS: u32 = 16;
/// Spots of one transaction,
const SLICE_SPOTS: usize = 256;
/// and bytes that they bring.
const SLICE_BYTES: usize = 4 << 20;
/// Bodies up to this length are read with their places; longer ones only where they are in the answer.
const SHORT_BYTES: i64 = 1_024;

/// Gives events their places.
pub(super) async fn place(shared: &Shared, spots: &[Spot], given: Timestamp) -> Attempt<Vec<Placed>> {
    let mut answers = Vec::with_capacity(spots.len());
    // A step that answers nothing has removed places that were in its way.
    while let Some(rest) = spots.get(answers.len()..).filter(|rest| !rest.is_empty()) {
        let slice = &rest[..together(rest, SLICE_SPOTS, SLICE_BYTES)];
        answers.extend(transaction!(ending: shared.pool, tries, session => step(shared, session, slice, given))?);
    }
    Ok(answers)
}

/// Serves as many spots of a slice as can be in one transaction. One that may have happened before finds its own places.
async fn step(shared: &Shared, session: Session, spots: &[Spot], given: Timestamp) -> Attempt<Vec<Placed>> {
    let now = shared.now(&session, given);
    let ahead = given.millis().saturating_sub(now.millis());
    let by_server = |time: Timestamp| time.millis().saturating_sub(ahead);
    let spots: Vec<Timed<'_>> = spots
        .iter()
        .map(|spot| Timed { spot, until: by_server(spot.until), since: by_server(spot.since(given)) })
        .collect();
    // Sent together, answered in order: each statement sees what was committed before it began.
    let (held, own, near) =
        tokio::join!(biased; hold(shared, &session, &spots), own(&session, &spots), near(&session, &spots));
    held?;
    let mut plan = Plan { own: own?, near: near?, ..Plan::default() };
    plan.decide(&spots);
    plan.read_long(&session).await?;
    let expected = plan.fresh.len();
    let written = if expected == 0 && plan.gone.is_empty() {
        session.end(Ok(0)).await?
    } else {
        session.end_with(plan.write(&session, &spots)).await?
    };
    // Somebody placed one of them a moment ago, with other cells: what it is now is asked again.
    Ok(if written == number(expected) { plan.answers } else { Vec::new() })
}

/// A spot, with its times by the clock that counts.
struct Timed<'s> {
    spot: &'s Spot,
    until: i64,
    since: i64,
}

/// Holds the cells of spots until the transaction ends.
async fn hold(shared: &Shared, session: &Session, spots: &[Timed<'_>]) -> Attempt<()> {
    let store = crate::postgres::lock_number(&format!("geonce places {}", shared.schema));
    let mut numbers = BTreeSet::new();
    for Timed { spot, .. } in spots {
        let (high, low) = spot.scope.split_at(8);
        let word = |bytes: &[u8]| bytes.iter().fold(0u64, |word, &byte| (word << 8) | u64::from(byte));
        let scope = word(high) ^ word(low).rotate_left(32);
        for cell in &spot.cells {
            let hash = (scope ^ cell).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            numbers.insert((store << LOCKS_BITS) | i64::try_from(hash % LOCKS).unwrap_or(0));
        }
    }
    let numbers: Vec<i64> = numbers.into_iter().collect();
    let text = "SELECT pg_advisory_xact_lock(k) FROM unnest($1::bigint[]) AS t(k)";
    session.query(text, &[(&numbers, Type::INT8_ARRAY)]).await.map(drop)
}

/// What is kept of an event.
enum Kept {
    Here,
    Decided(Box<str>),
}

/// What is known of the events that ask.
#[derive(Default)]
struct Own {
    kept: HashMap<EventId, Kept>,
    standings: HashMap<EventId, Standing>,
}

async fn own(session: &Session, spots: &[Timed<'_>]) -> Attempt<Own> {
    let events: Vec<Uuid> = spots.iter().map(|timed| timed.spot.event.into()).collect();
    let text = "SELECT t.e, p.event IS NOT NULL, p.decision, e.state, e.outcome FROM unnest($1::uuid[]) AS t(e) \
                LEFT JOIN place p ON p.event = t.e LEFT JOIN event e ON e.id = t.e";
    let mut own = Own::default();
    for row in session.query(text, &[(&events, Type::UUID_ARRAY)]).await? {
        let event = get::<Uuid>(&row, 0)?.id();
        if get(&row, 1)? {
            let decision: Option<String> = get(&row, 2)?;
            own.kept.insert(event, decision.map_or(Kept::Here, |text| Kept::Decided(text.into())));
        }
        own.standings.insert(event, standing(get(&row, 3)?, get(&row, 4)?));
    }
    Ok(own)
}

fn standing(state: Option<i16>, outcome: Option<i16>) -> Standing {
    Standing::of(state.map(|state| (state.into(), outcome.map(i64::from))))
}

/// Another event in the cells of a spot.
#[derive(Clone)]
struct Found {
    event: EventId,
    until: i64,
    standing: Standing,
    bytes: usize,
    /// Where it is short, or in memory anyway.
    body: Option<Bytes>,
}

/// Those in the cells of one spot, and whether there may be more.
#[derive(Default)]
struct Near {
    found: Vec<Found>,
    more: bool,
}

async fn near(session: &Session, spots: &[Timed<'_>]) -> Attempt<Vec<Near>> {
    let mut near: Vec<Near> = spots.iter().map(|_| Near::default()).collect();
    let (mut places, mut scopes, mut cells) = (Vec::new(), Vec::new(), Vec::new());
    let (mut since, mut limits) = (Vec::new(), Vec::new());
    for (place, timed) in spots.iter().enumerate() {
        let Claim::Unless(known) = &timed.spot.claim else { continue };
        for &cell in &timed.spot.cells {
            places.push(number(place));
            scopes.push(Uuid(timed.spot.scope));
            cells.push(cell.cast_signed());
            since.push(timed.since);
            // Those that are known are left out here, not there.
            limits.push(number(NEIGHBOURS_MAX + known.len()));
        }
    }
    if places.is_empty() {
        return Ok(near);
    }
    let text = format!(
        "SELECT t.n, p.event, p.until, p.bytes, p.body, e.state, e.outcome, t.l \
         FROM unnest($1::bigint[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[]) AS t(n, s, c, b, l) \
         CROSS JOIN LATERAL (SELECT q.event, q.until, octet_length(q.body)::bigint AS bytes, \
             CASE WHEN octet_length(q.body) <= {SHORT_BYTES} THEN q.body END AS body FROM place q \
           WHERE q.cell = t.c AND q.scope = t.s AND q.until > t.b ORDER BY q.until DESC, q.event DESC LIMIT t.l) p \
         LEFT JOIN event e ON e.id = p.event"
    );
    let parameters: [Parameter<'_>; 5] = [
        (&places, Type::INT8_ARRAY),
        (&scopes, Type::UUID_ARRAY),
        (&cells, Type::INT8_ARRAY),
        (&since, Type::INT8_ARRAY),
        (&limits, Type::INT8_ARRAY),
    ];
    let mut last: Vec<i64> = vec![0; spots.len()];
    for row in session.query(&text, &parameters).await? {
        let Ok(place) = usize::try_from(get::<i64>(&row, 0)?) else { continue };
        let found = Found {
            event: get::<Uuid>(&row, 1)?.id(),
            until: get(&row, 2)?,
            standing: standing(get(&row, 5)?, get(&row, 6)?),
            bytes: usize::try_from(get::<i64>(&row, 3)?).unwrap_or(0),
            body: get::<Option<Vec<u8>>>(&row, 4)?.map(Bytes::from),
        };
        near[place].found.push(found);
        last[place] += 1;
        // Of several cells one may be cut off though this is not: it does not matter, as it is only asked again.
        near[place].more |= last[place] >= get::<i64>(&row, 7)?;
    }
    Ok(near)
}

/// What a slice of spots comes to. Pure, but for reading and writing at the end.
#[derive(Default)]
struct Plan {
    own: Own,
    near: Vec<Near>,
    answers: Vec<Placed>,
    /// Spots, by their number, to be written.
    fresh: BTreeSet<usize>,
    /// Of them, those that have a place, by where it is.
    placed: HashMap<(Bytes16, u64), Vec<usize>>,
    /// Places to be removed.
    gone: HashSet<EventId>,
    /// Bodies that are still to be read: of which answer, and which of its neighbours.
    long: Vec<(usize, usize)>,
}

impl Plan {
    /// Serves spots until one has to be asked again.
    fn decide(&mut self, spots: &[Timed<'_>]) {
        for (place, timed) in spots.iter().enumerate() {
            let Some(answer) = self.serve(spots, place, timed.spot) else { return };
            self.answers.push(answer);
        }
    }

    fn serve(&mut self, spots: &[Timed<'_>], place: usize, spot: &Spot) -> Option<Placed> {
        match self.own.kept.get(&spot.event) {
            Some(Kept::Here) => return Some(Placed::Here),
            Some(Kept::Decided(text)) => return Some(Placed::Decided(text.clone())),
            None => {}
        }
        match &spot.claim {
            Claim::Decided(text) => {
                self.own.kept.insert(spot.event, Kept::Decided(text.clone()));
                self.fresh.insert(place);
                return Some(Placed::Decided(text.clone()));
            }
            Claim::Unless(_) => {
                let (mut found, more) = self.in_cells(spots, place);
                let more = latest(&mut found, |one| (one.until, one.event)) || more;
                let neighbours = self.neighbours(spots, found);
                if !neighbours.is_empty() {
                    return Some(Placed::Neighbours(neighbours));
                }
                if more {
                    return None;
                }
            }
            Claim::Anyway => {}
        }
        self.own.kept.insert(spot.event, Kept::Here);
        self.fresh.insert(place);
        self.placed.entry((spot.scope, spot.home)).or_default().push(place);
        Some(Placed::Here)
    }

    /// Those in the cells of a spot that it does not know, of before and of this slice.
    fn in_cells(&mut self, spots: &[Timed<'_>], place: usize) -> (Vec<Found>, bool) {
        let (spot, since) = (spots[place].spot, spots[place].since);
        let known: HashSet<EventId> = spot.known().iter().copied().collect();
        let Near { mut found, more } = std::mem::take(&mut self.near[place]);
        found.retain(|one| !self.gone.contains(&one.event));
        for &cell in &spot.cells {
            for &earlier in self.placed.get(&(spot.scope, cell)).into_iter().flatten() {
                let Timed { spot: other, until, .. } = &spots[earlier];
                if *until > since {
                    let standing = self.own.standings.get(&other.event).copied().unwrap_or(Standing::Gone);
                    let body = Some(other.body.clone());
                    found.push(Found { event: other.event, until: *until, standing, bytes: other.body.len(), body });
                }
            }
        }
        found.retain(|one| one.event != spot.event && !known.contains(&one.event));
        (found, more)
    }

    /// The neighbours for an answer; those with whom nobody is compared lose their places.
    fn neighbours(&mut self, spots: &[Timed<'_>], found: Vec<Found>) -> Vec<Neighbour> {
        let (mut room, mut neighbours) = (Room::default(), Vec::new());
        for Found { event, standing, bytes, body, .. } in found {
            if standing == Standing::Gone {
                self.remove(spots, event);
                continue;
            }
            if !room.take(bytes) {
                break;
            }
            if body.is_none() {
                self.long.push((self.answers.len(), neighbours.len()));
            }
            let applied = standing == Standing::Applied;
            neighbours.push(Neighbour { event, applied, body: body.unwrap_or_default() });
        }
        neighbours
    }

    /// Removes a place, perhaps one of this slice.
    fn remove(&mut self, spots: &[Timed<'_>], event: EventId) {
        self.own.kept.remove(&event);
        match self.fresh.iter().copied().find(|&place| spots[place].spot.event == event) {
            Some(place) => {
                self.fresh.remove(&place);
                self.placed.values_mut().for_each(|places| places.retain(|&other| other != place));
            }
            None => drop(self.gone.insert(event)),
        }
    }

    /// Reads the bodies that are still missing.
    async fn read_long(&mut self, session: &Session) -> Attempt<()> {
        if self.long.is_empty() {
            return Ok(());
        }
        let mut events = Vec::new();
        for &(answer, place) in &self.long {
            if let Some(Placed::Neighbours(neighbours)) = self.answers.get(answer) {
                events.push(Uuid::from(neighbours[place].event));
            }
        }
        let text = "SELECT p.event, p.body FROM unnest($1::uuid[]) AS t(e) JOIN place p ON p.event = t.e";
        let mut bodies: HashMap<EventId, Bytes> = HashMap::new();
        for row in session.query(text, &[(&events, Type::UUID_ARRAY)]).await? {
            bodies.insert(get::<Uuid>(&row, 0)?.id(), get::<Option<Vec<u8>>>(&row, 1)?.unwrap_or_default().into());
        }
        for &(answer, place) in &self.long {
            if let Some(Placed::Neighbours(neighbours)) = self.answers.get_mut(answer) {
                let neighbour = &mut neighbours[place];
                neighbour.body = bodies.get(&neighbour.event).cloned().unwrap_or_default();
            }
        }
        Ok(())
    }

    /// Writes what was decided; how many rows.
    async fn write(&self, session: &Session, spots: &[Timed<'_>]) -> Attempt<i64> {
        let gone: Vec<Uuid> = self.gone.iter().map(|&event| event.into()).collect();
        let (mut events, mut scopes, mut cells) = (Vec::new(), Vec::new(), Vec::new());
        let (mut ends, mut bodies, mut decisions) = (Vec::new(), Vec::new(), Vec::new());
        for Timed { spot, until, .. } in self.fresh.iter().map(|&place| &spots[place]) {
            let decision = match &spot.claim {
                Claim::Decided(text) => Some(&**text),
                _ => None,
            };
            events.push(Uuid::from(spot.event));
            scopes.push(decision.is_none().then_some(Uuid(spot.scope)));
            cells.push(decision.is_none().then_some(spot.home.cast_signed()));
            ends.push(*until);
            bodies.push(decision.is_none().then_some(&spot.body[..]));
            decisions.push(decision);
        }
        let parameters: [Parameter<'_>; 6] = [
            (&events, Type::UUID_ARRAY),
            (&scopes, Type::UUID_ARRAY),
            (&cells, Type::INT8_ARRAY),
            (&ends, Type::INT8_ARRAY),
            (&bodies, Type::BYTEA_ARRAY),
            (&decisions, Type::TEXT_ARRAY),
        ];
        let remove = async {
            if gone.is_empty() {
                return Ok(0);
            }
            session.execute("DELETE FROM place WHERE event = ANY($1)", &[(&gone, Type::UUID_ARRAY)]).await
        };
        let insert = "INSERT INTO place (event, scope, cell, until, body, decision) \
                      SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bytea[], $6::text[]) \
                      ON CONFLICT (event) DO NOTHING";
        let (removed, written) = tokio::join!(biased; remove, session.execute(insert, &parameters));
        removed?;
        Ok(i64::try_from(written?).unwrap_or(i64::MAX))
    }
}

/// Removes places that are over, at most `limit`; how many. An event that came before the end of a place, and still waits, is
/// compared with it.
pub(super) async fn sweep(shared: &Shared, limit: usize, now: Timestamp) -> Attempt<usize> {
    let gone = transaction!(shared.pool, tries, session => async {
        let now = shared.now(&session, now).millis();
        if session.query("SELECT 1 FROM place WHERE until <= $1 LIMIT 1", &[(&now, Type::INT8)]).await?.is_empty() {
            return Ok(0);
        }
        let oldest = "SELECT e.received FROM work w JOIN event e ON e.id = w.event WHERE w.due < $1 AND w.after IS NULL \
                      ORDER BY w.event LIMIT 1";
        let rows = session.query(oldest, &[(&NEVER, Type::INT8)]).await?;
        let over: i64 = rows.first().map(|row| get::<i64>(row, 0)).transpose()?.map_or(now, |oldest| oldest.min(now));
        // What somebody else holds at this moment stays until the next round.
        let text = format!(
            "DELETE FROM place WHERE event = ANY(ARRAY(SELECT event FROM place WHERE until <= $1 ORDER BY until \
             LIMIT {limit} FOR UPDATE SKIP LOCKED))"
        );
        session.execute(&text, &[(&over, Type::INT8)]).await
    })?;
    Ok(usize::try_from(gone).unwrap_or(usize::MAX))
}
