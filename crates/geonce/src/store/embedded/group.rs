//! What one transaction does, and what is taken over into memory once it is committed.
//!
//! Requests of a group see each other's claims, names and counts through the [`Group`]; if the transaction fails, the
//! group is dropped and memory is as it was.

use super::claims::{Claims, Key, KeyMap, Step};
use super::failure::{Attempt, damaged};
use super::row::{Bytes16, EVENT_COLUMNS, EventRow, Kept, Names, Standing};
use crate::event::{Cause, EventId};
use crate::store::books::{DEAD_PREFIX, REFUSED_PREFIX, TALLIES, Tally, Uncounted};
use crate::store::{Lag, Options, ResultText};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// Names that are known to be in the store.
#[derive(Clone, Default)]
pub(super) struct Known {
    pub(super) sources: Arc<Names>,
    pub(super) sinks: Arc<Names>,
    /// Results that many events share.
    pub(super) results: Arc<Names>,
}

/// A transaction in progress.
pub(super) struct Group<'a> {
    pub(super) connection: &'a Connection,
    pub(super) options: &'a Options,
    /// The claims as committed; a tool has none.
    pub(super) claims: Option<&'a Claims>,
    pub(super) effects: Effects,
    inserts: Option<Inserts<'a>>,
}

/// The statements that record an event, prepared once for a group: looking them up takes as long as a fifth of it all.
pub(super) struct Inserts<'a> {
    pub(super) event: CachedStatement<'a>,
    pub(super) body: CachedStatement<'a>,
    pub(super) claim: CachedStatement<'a>,
    pub(super) work: CachedStatement<'a>,
}

/// What memory takes over after the commit.
pub(super) struct Effects {
    pub(super) known: Known,
    /// Claims of this group.
    pub(super) claimed: KeyMap,
    pub(super) next_seq: i64,
    /// A segment that is gone.
    pub(super) dropped: Option<i64>,
    pub(super) step: Option<Step>,
    /// Whether work became ready.
    pub(super) changed: bool,
    /// The latest time that a request gave.
    pub(super) now: i64,
    counts: Vec<(i64, [i64; TALLIES.len()])>,
    /// Dead events by source and code.
    dead: HashMap<(i64, String), i64>,
    /// Redeliveries by source and lag.
    lags: HashMap<(i64, &'static str), i64>,
}

impl<'a> Group<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        options: &'a Options,
        claims: Option<&'a Claims>,
        known: Known,
        now: i64,
    ) -> Group<'a> {
        let effects = Effects {
            known,
            claimed: KeyMap::default(),
            next_seq: claims.map_or(0, Claims::next_seq),
            dropped: None,
            step: None,
            changed: false,
            now,
            counts: Vec::new(),
            dead: HashMap::new(),
            lags: HashMap::new(),
        };
        Group { connection, options, claims, effects, inserts: None }
    }

    /// Lets go of the transaction, once everything is written into it.
    pub(super) fn into_effects(self) -> Effects {
        self.effects
    }

    /// The statements that record an event.
    pub(super) fn inserts(&mut self) -> Attempt<&mut Inserts<'a>> {
        if self.inserts.is_none() {
            let prepare = |text| self.connection.prepare_cached(text);
            self.inserts = Some(Inserts {
                event: prepare(
                    "INSERT OR IGNORE INTO event(id, source, state, outcome, received, settled, duplicates, form, crs, \
                     body, digests, spatial, content, cause, sum, mark) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
                )?,
                body: prepare("INSERT INTO body(payload, sum) VALUES (?1, ?2)")?,
                claim: prepare("INSERT INTO claim(seq, key, event) VALUES (?1, ?2, ?3)")?,
                work: prepare(
                    "INSERT OR IGNORE INTO work(event, sink, due, cause, mark, after, entity, rank) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                )?,
            });
        }
        self.inserts.as_mut().ok_or_else(|| damaged("the statements are not there"))
    }

    /// Counts `by` more of `tally` for a source.
    pub(super) fn count(&mut self, source: i64, tally: Tally, by: i64) {
        let counts = &mut self.effects.counts;
        let place = counts.iter().position(|&(known, _)| known == source).unwrap_or_else(|| {
            counts.push((source, [0; TALLIES.len()]));
            counts.len() - 1
        });
        counts[place].1[tally as usize] += by;
    }

    /// Counts a redelivery by how late it came.
    pub(super) fn count_lag(&mut self, source: i64, lag: Lag) {
        *self.effects.lags.entry((source, lag.name())).or_default() += 1;
    }

    /// Counts a dead event more or less.
    pub(super) fn count_dead(&mut self, source: i64, cause: Option<&Cause>, by: i64) -> Attempt<()> {
        let cause = cause.ok_or_else(|| damaged("a dead event without a cause"))?;
        self.count(source, Tally::Dead, by);
        *self.effects.dead.entry((source, cause.code.clone())).or_default() += by;
        Ok(())
    }

    /// Writes the counts into the transaction.
    pub(super) fn write_counts(&mut self, uncounted: &Uncounted) -> Attempt<()> {
        self.count_duplicates(uncounted)?;
        let dead = &self.effects.dead;
        let mut by_name: Vec<(i64, String, i64)> =
            dead.iter().map(|((source, code), &by)| (*source, format!("{DEAD_PREFIX}{code}"), by)).collect();
        for ((source, code), &count) in &uncounted.refused {
            let source = self.source(source)?;
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.count(source, Tally::Received, count);
            self.count(source, Tally::Refused, count);
            by_name.push((source, format!("{REFUSED_PREFIX}{code}"), count));
        }
        by_name.extend(self.effects.lags.iter().map(|(&(source, name), &by)| (source, name.to_owned(), by)));
        for ((source, name), &count) in &uncounted.traffic {
            by_name.push((self.source(source)?, name.to_string(), i64::try_from(count).unwrap_or(i64::MAX)));
        }
        let mut statement = self.connection.prepare_cached(
            "INSERT INTO counter(source, name, value) VALUES (?1, ?2, ?3) \
             ON CONFLICT DO UPDATE SET value = value + excluded.value",
        )?;
        for (source, counts) in &self.effects.counts {
            for (name, &by) in TALLIES.iter().zip(counts).filter(|&(_, &by)| by != 0) {
                statement.execute(params![source, name, by])?;
            }
        }
        for (source, name, by) in by_name {
            statement.execute(params![source, name, by])?;
        }
        Ok(())
    }

    /// Counts duplicates that were recognised without asking. Their events may be forgotten by now.
    fn count_duplicates(&mut self, uncounted: &Uncounted) -> Attempt<()> {
        for (source, &count) in &uncounted.duplicates {
            let source = self.source(source)?;
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.count(source, Tally::Received, count);
            self.count(source, Tally::Duplicate, count);
        }
        for (&event, &count) in &uncounted.repeated {
            // A record that is damaged must not keep everything else from being written: whoever needs it will say so.
            if let Ok(Some((_, mut standing))) = self.standing(event) {
                standing.duplicates = standing.duplicates.saturating_add_unsigned(count);
                self.stand(event, &standing)?;
            }
        }
        Ok(())
    }

    /// The number of a source; a new one gets one.
    pub(super) fn source(&mut self, name: &Arc<str>) -> Attempt<i64> {
        if let Some(number) = self.effects.known.sources.number(name) {
            return Ok(number);
        }
        let number = number_of(self.connection, "source", name)?;
        Arc::make_mut(&mut self.effects.known.sources).add(number, Arc::clone(name));
        Ok(number)
    }

    /// The number of a sink; a new one gets one.
    pub(super) fn sink(&mut self, name: &Arc<str>) -> Attempt<i64> {
        if let Some(number) = self.effects.known.sinks.number(name) {
            return Ok(number);
        }
        let number = number_of(self.connection, "sink", name)?;
        Arc::make_mut(&mut self.effects.known.sinks).add(number, Arc::clone(name));
        Ok(number)
    }

    /// A result as its column has it.
    pub(super) fn keep(&mut self, result: &ResultText) -> Attempt<Kept> {
        if !result.is_common() {
            return Ok(Kept::Own(result.as_str().to_owned()));
        }
        if let Some(number) = self.effects.known.results.number(result.as_str()) {
            return Ok(Kept::Common(number));
        }
        let number = number_of(self.connection, "result", result.as_str())?;
        Arc::make_mut(&mut self.effects.known.results).add(number, result.as_str().into());
        Ok(Kept::Common(number))
    }

    /// The name of a source.
    pub(super) fn source_name(&mut self, number: i64) -> Attempt<Arc<str>> {
        if let Some(name) = self.effects.known.sources.name(number) {
            return Ok(name);
        }
        let name: Option<Arc<str>> = self
            .connection
            .query_row("SELECT name FROM source WHERE number = ?1", [number], |row| row.get(0))
            .optional()?;
        let name = name.ok_or_else(|| damaged(format!("source {number} has no name")))?;
        Arc::make_mut(&mut self.effects.known.sources).add(number, Arc::clone(&name));
        Ok(name)
    }

    /// The record of an event.
    pub(super) fn event(&self, id: EventId) -> Attempt<Option<EventRow>> {
        find_event(self.connection, id)
    }

    /// Writes what has changed of an event.
    pub(super) fn stand(&self, id: EventId, standing: &Standing) -> Attempt<()> {
        let mut statement = self.connection.prepare_cached(
            "UPDATE event SET state = ?2, outcome = ?3, settled = ?4, duplicates = ?5, body = ?6, cause = ?7, mark = ?8, \
             result = ?9 WHERE id = ?1",
        )?;
        let Standing { state, outcome, settled, duplicates, body, cause, result } = standing;
        let mark = standing.mark(id);
        statement.execute(params![id.to_bytes(), state, outcome, settled, duplicates, body, cause, mark, result])?;
        Ok(())
    }

    /// Source and standing of an event.
    pub(super) fn standing(&self, id: EventId) -> Attempt<Option<(i64, Standing)>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT state, outcome, settled, duplicates, body, cause, mark, result, source FROM event WHERE id = ?1",
        )?;
        let mut rows = statement.query([id.to_bytes()])?;
        match rows.next()? {
            Some(row) => Ok(Some((row.get(8)?, Standing::read(row, id, [0, 1, 2, 3, 4, 5, 6, 7])?))),
            None => Ok(None),
        }
    }

    /// Claims a key of a run. Other processes do so too, and nothing of it is held in memory.
    pub(super) fn claim_run(&self, key: Key, event: Bytes16) -> Attempt<()> {
        let mut statement = self.connection.prepare_cached("INSERT OR REPLACE INTO run(key, event) VALUES (?1, ?2)")?;
        statement.execute(params![key.0, event])?;
        Ok(())
    }

    /// The run that holds a key.
    pub(super) fn run(&self, key: Key) -> Attempt<Option<EventRow>> {
        let mut statement = self.connection.prepare_cached("SELECT event FROM run WHERE key = ?1")?;
        let event: Option<Bytes16> = statement.query_row([key.0], |row| row.get(0)).optional()?;
        event.map_or(Ok(None), |event| self.event(EventId::from_bytes(event)))
    }

    /// Appends a claim to the log.
    pub(super) fn claim(&mut self, key: Key, event: Bytes16) -> Attempt<()> {
        let seq = self.effects.next_seq;
        self.inserts()?.claim.execute(params![seq, key.0, event])?;
        self.effects.next_seq += 1;
        self.effects.claimed.insert(key, event);
        Ok(())
    }

    /// The event that holds a key: a claim whose event is gone does not count.
    pub(super) fn holder(&self, key: Key) -> Attempt<Option<EventRow>> {
        let found = |event| self.event(EventId::from_bytes(event));
        if let Some(&event) = self.effects.claimed.get(&key)
            && let Some(row) = found(event)?
        {
            return Ok(Some(row));
        }
        match self.claims {
            Some(claims) => claims.find(self.connection, key, found),
            None => Ok(None),
        }
    }
}

fn number_of(connection: &Connection, table: &str, name: &str) -> Attempt<i64> {
    connection.execute(&format!("INSERT OR IGNORE INTO {table}(name) VALUES (?1)"), [name])?;
    Ok(connection.query_row(&format!("SELECT number FROM {table} WHERE name = ?1"), [name], |row| row.get(0))?)
}

static FIND_EVENT: LazyLock<String> = LazyLock::new(|| format!("SELECT {EVENT_COLUMNS} FROM event e WHERE e.id = ?1"));

/// The record of an event.
pub(super) fn find_event(connection: &Connection, id: EventId) -> Attempt<Option<EventRow>> {
    let mut statement = connection.prepare_cached(&FIND_EVENT)?;
    let mut rows = statement.query([id.to_bytes()])?;
    rows.next()?.map(EventRow::read).transpose()
}
