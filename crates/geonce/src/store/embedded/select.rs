//! Work on many events, in slices short enough not to be noticed: replay, purge, sweep.

use super::claims::{Key, find_on_disk};
use super::failure::Attempt;
use super::group::{Group, find_event};
use super::place;
use super::row::{Bytes16, DONE, EVENT_COLUMNS, EventRow, bytes16, number};
use super::work::{forget, revive};
use super::writer::Slice;
use crate::clock::Timestamp;
use crate::event::{EventId, State};
use crate::store::encoding::first_id_after;
use crate::store::{Filter, Swept};
use rusqlite::{OptionalExtension, params};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Records that one transaction looks at.
const SLICE_EVENTS: usize = 500;
/// Claims of an old segment that one transaction looks at.
const SLICE_CLAIMS: usize = 1_000;
/// Records that a sweep looks at, for each one that it may forget.
const EXAMINED_PER_EVENT: usize = 8;

static DEAD_AFTER: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {EVENT_COLUMNS} FROM event e INDEXED BY dead WHERE e.state = 2 AND e.id > ?1 AND e.id < ?2 \
         ORDER BY e.id LIMIT ?3"
    )
});

/// What is to become of dead events.
#[derive(Clone, Copy)]
pub(super) enum Fate {
    Replay,
    Purge,
}

/// How far a replay or purge has come.
#[derive(Clone, Copy, Default)]
pub(super) struct Progress {
    after: Bytes16,
    count: u64,
}

/// Whether a record meets every condition, but for the state, which depends on its work.
pub(super) fn matches(filter: &Filter, event: &EventRow, source: &str) -> bool {
    let Filter { id, key, source: wanted_source, state: _, outcome, code, since, until } = filter;
    id.is_none_or(|id| event.id == id)
        && key.is_none_or(|key| event.digests.iter().any(|fingerprint| fingerprint.key() == key))
        && wanted_source.as_ref().is_none_or(|wanted| wanted == source)
        && outcome.is_none_or(|outcome| event.standing.state == DONE && event.outcome == Some(outcome))
        && code.as_ref().is_none_or(|code| event.cause.as_ref().is_some_and(|cause| cause.code == *code))
        && since.is_none_or(|since| event.received >= since)
        && until.is_none_or(|until| event.received < until)
}

/// Replays or purges the next slice of the dead events that `filter` means.
pub(super) fn decide(
    group: &mut Group<'_>,
    filter: &Filter,
    fate: Fate,
    now: Timestamp,
    progress: Progress,
) -> Attempt<Slice<Progress, u64>> {
    if filter.state.is_some_and(|state| state != State::Dead) {
        return Ok(Slice::Answer(0));
    }
    let (events, last) = match (filter.id, filter.key) {
        (None, None) => {
            let events = dead_after(group, progress.after, [0xFF; 16], SLICE_EVENTS)?;
            let last = (events.len() == SLICE_EVENTS).then(|| events[SLICE_EVENTS - 1].id.to_bytes());
            (events, last)
        }
        (Some(id), _) => (group.event(id)?.into_iter().collect(), None),
        (None, Some(key)) => {
            let mut events = Vec::new();
            for id in find_on_disk(group.connection, Key(key))? {
                events.extend(find_event(group.connection, EventId::from_bytes(id))?);
            }
            (events, None)
        }
    };
    let mut count = progress.count;
    for event in events.iter().filter(|event| event.standing.state == super::row::DEAD) {
        let source = group.source_name(event.source)?;
        if !matches(filter, event, &source) {
            continue;
        }
        let changed = match fate {
            Fate::Replay => {
                let mut standing = event.standing.clone();
                let revived = revive(group, event, &mut standing, now)?;
                if revived {
                    group.stand(event.id, &standing)?;
                }
                revived
            }
            Fate::Purge => {
                forget(group, event)?;
                true
            }
        };
        count += u64::from(changed);
    }
    Ok(match last {
        Some(after) => Slice::More(Progress { after, count }),
        None => Slice::Answer(count),
    })
}

fn dead_after(group: &Group<'_>, after: Bytes16, before: Bytes16, limit: usize) -> Attempt<Vec<EventRow>> {
    let mut statement = group.connection.prepare_cached(&DEAD_AFTER)?;
    let mut rows = statement.query(params![after, before, number(limit)])?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        events.push(EventRow::read(row)?);
    }
    Ok(events)
}

/// Where the next sweep begins: records that must stay are not looked at again and again.
#[derive(Clone, Default)]
pub(super) struct Cursors(Arc<Mutex<(Bytes16, Bytes16)>>);

impl Cursors {
    fn get(&self) -> (Bytes16, Bytes16) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, cursors: (Bytes16, Bytes16)) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = cursors;
    }
}

/// How far a sweep has come.
#[derive(Clone, Copy, Default)]
pub(super) struct Sweep {
    stage: Stage,
    examined: usize,
    claims: usize,
    /// Places that ended at this time or before are over; none are, where there is none.
    over: Option<Timestamp>,
    places: usize,
    swept: Swept,
}

impl Sweep {
    pub(super) fn begin(over: Option<Timestamp>) -> Sweep {
        Sweep { over, ..Sweep::default() }
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Done,
    Dead,
    Places,
    Claims,
}

/// Sweeps the next slice.
pub(super) fn sweep(
    group: &mut Group<'_>,
    cursors: &Cursors,
    limit: usize,
    now: Timestamp,
    mut sweep: Sweep,
) -> Attempt<Slice<Sweep, Swept>> {
    group.effects.now = group.effects.now.max(now.millis());
    let gone = usize::try_from(sweep.swept.forgotten + sweep.swept.purged).unwrap_or(usize::MAX);
    let left = limit.saturating_sub(gone);
    let may_examine = limit.saturating_mul(EXAMINED_PER_EVENT).saturating_sub(sweep.examined);
    let slice = SLICE_EVENTS.min(left).min(may_examine);
    if slice == 0 && sweep.stage != Stage::Claims {
        // Claims are not looked at before their events: those would only be moved to be dropped later.
        sweep.swept.more = true;
        return Ok(Slice::Answer(sweep.swept));
    }
    let (done_after, dead_after) = cursors.get();
    match sweep.stage {
        Stage::Done => {
            let (seen, forgotten, last) = forget_done(group, done_after, slice, now)?;
            sweep.examined += seen;
            sweep.swept.forgotten += forgotten;
            cursors.set((if seen < slice { [0; 16] } else { last }, dead_after));
            if seen < slice {
                sweep.stage = Stage::Dead;
            }
        }
        Stage::Dead => {
            let (seen, purged, last) = purge_dead(group, dead_after, slice, now)?;
            sweep.examined += seen;
            sweep.swept.purged += purged;
            cursors.set((done_after, if seen < slice { [0; 16] } else { last }));
            if seen < slice {
                sweep.stage = Stage::Places;
            }
        }
        Stage::Places => {
            let slice = SLICE_EVENTS.min(limit.saturating_sub(sweep.places));
            let gone = sweep.over.map_or(Ok(0), |over| place::sweep(group, over, slice))?;
            sweep.places += gone;
            if gone < slice {
                sweep.stage = Stage::Claims;
            } else if sweep.places >= limit {
                sweep.swept.more = true;
                return Ok(Slice::Answer(sweep.swept));
            }
        }
        Stage::Claims => {
            let horizon = now.minus(group.options.window).millis();
            let Some(segment) = group.claims.and_then(|claims| claims.expired(horizon)) else {
                return Ok(Slice::Answer(sweep.swept));
            };
            if sweep.claims >= limit.max(SLICE_CLAIMS) {
                sweep.swept.more = true;
                return Ok(Slice::Answer(sweep.swept));
            }
            sweep.claims += release(group, segment)?;
        }
    }
    Ok(Slice::More(sweep))
}

/// Forgets done events whose window is over: how many were seen and forgotten, and the last one seen.
fn forget_done(group: &mut Group<'_>, after: Bytes16, limit: usize, now: Timestamp) -> Attempt<(usize, u64, Bytes16)> {
    let horizon = now.minus(group.options.window);
    let mut candidates = Vec::with_capacity(limit);
    let mut statement = group.connection.prepare_cached(
        "SELECT id, state = 1 AND settled <= ?2 FROM event WHERE id > ?1 AND id < ?3 ORDER BY id LIMIT ?4",
    )?;
    let mut rows = statement.query(params![after, horizon.millis(), first_id_after(horizon), number(limit)])?;
    while let Some(row) = rows.next()? {
        candidates.push((bytes16(row, 0)?, row.get::<_, Option<bool>>(1)? == Some(true)));
    }
    let mut forgotten = 0;
    for &(id, _) in candidates.iter().filter(|&&(_, over)| over) {
        if let Some(event) = group.event(EventId::from_bytes(id))? {
            forget(group, &event)?;
            forgotten += 1;
        }
    }
    Ok((candidates.len(), forgotten, candidates.last().map_or(after, |&(id, _)| id)))
}

/// Purges dead events whose retention is over: how many were seen and purged, and the last one seen.
fn purge_dead(group: &mut Group<'_>, after: Bytes16, limit: usize, now: Timestamp) -> Attempt<(usize, u64, Bytes16)> {
    let horizon = now.minus(group.options.dead_retention);
    let events = dead_after(group, after, first_id_after(horizon), limit)?;
    let mut purged = 0;
    for event in events.iter().filter(|event| event.settled().is_some_and(|settled| settled <= horizon)) {
        forget(group, event)?;
        purged += 1;
    }
    Ok((events.len(), purged, events.last().map_or(after, |event| event.id.to_bytes())))
}

/// Takes a slice out of an old segment: claims of events that are still there go to the end of the log.
fn release(group: &mut Group<'_>, segment: i64) -> Attempt<usize> {
    let mut claims = Vec::with_capacity(SLICE_CLAIMS);
    let mut statement =
        group.connection.prepare_cached("SELECT key, event FROM sealed WHERE segment = ?1 ORDER BY key LIMIT ?2")?;
    let mut rows = statement.query(params![segment, number(SLICE_CLAIMS)])?;
    while let Some(row) = rows.next()? {
        claims.push((Key(bytes16(row, 0)?), bytes16(row, 1)?));
    }
    drop(rows);
    for &(key, event) in &claims {
        let mut statement = group.connection.prepare_cached("SELECT 1 FROM event WHERE id = ?1")?;
        if statement.query_row([event], |_| Ok(())).optional()?.is_some() {
            group.claim(key, event)?;
        }
    }
    if let Some((last, _)) = claims.last() {
        let mut statement = group.connection.prepare_cached("DELETE FROM sealed WHERE segment = ?1 AND key <= ?2")?;
        statement.execute(params![segment, last.0])?;
    }
    if claims.len() < SLICE_CLAIMS {
        group.connection.prepare_cached("DELETE FROM segment WHERE number = ?1")?.execute([segment])?;
        group.effects.dropped = Some(segment);
    }
    Ok(claims.len().max(1))
}
