//! How events are written into columns, and read back with everything checked.
//!
//! `SQLite` does not notice a flipped bit inside a value: a checksum over what never changes of an event, and one over
//! its payload, do.

use super::failure::{Attempt, damaged};
use crate::clock::Timestamp;
use crate::event::{Cause, EventId, Outcome};
pub(super) use crate::store::encoding::{
    Bytes16, DEAD, DONE, HELD, LATEST, NEVER, OPEN, form_number, number, outcome_from, outcome_number, write_cause,
    write_fingerprints,
};
use crate::store::encoding::{cause_from, form_from, read_fingerprints};
use crate::store::repair::{Origin, read_origin, write_origin};
use geonce_key::{Fingerprint, Form};
use rusqlite::Row;
use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use std::collections::HashMap;
use std::sync::Arc;

/// Columns of an event, in the order in which [`EventRow::read`] takes them.
pub(super) const EVENT_COLUMNS: &str = "e.id, e.source, e.state, e.outcome, e.received, e.settled, e.duplicates, e.form, e.crs, e.body, \
     e.digests, e.spatial, e.content, e.cause, e.sum, e.mark, e.result, e.origin";

/// What changes of an event.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    pub(super) state: i64,
    pub(super) outcome: Option<i64>,
    pub(super) settled: Option<i64>,
    pub(super) duplicates: i64,
    pub(super) body: Option<i64>,
    /// As [`write_cause`] writes it.
    pub(super) cause: Option<String>,
    pub(super) result: Option<Kept>,
}

/// A result as its column has it.
#[derive(Clone, Debug)]
pub(super) enum Kept {
    /// The number of one that many events share.
    Common(i64),
    Own(String),
}

impl ToSql for Kept {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Kept::Common(number) => number.to_sql(),
            Kept::Own(text) => text.to_sql(),
        }
    }
}

impl FromSql for Kept {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Kept> {
        match value {
            ValueRef::Integer(number) => Ok(Kept::Common(number)),
            value => String::column_result(value).map(Kept::Own),
        }
    }
}

impl Standing {
    /// The checksum over it.
    pub(super) fn mark(&self, id: EventId) -> i64 {
        let mut sum = Sum::new();
        sum.add(&id.to_bytes());
        let numbers = [self.outcome.unwrap_or(-1), self.settled.unwrap_or(i64::MIN), self.body.unwrap_or(-1)];
        for number in [self.state, self.duplicates].into_iter().chain(numbers) {
            sum.word(number.cast_unsigned());
        }
        sum.add(self.cause.as_deref().unwrap_or_default().as_bytes());
        // One without a result has the checksum that it had before there were any.
        match &self.result {
            Some(Kept::Common(number)) => sum.word(number.cast_unsigned()),
            Some(Kept::Own(text)) => sum.add(text.as_bytes()),
            None => {}
        }
        sum.finish()
    }

    /// Reads it from these columns, of which `mark` is its checksum.
    pub(super) fn read(row: &Row<'_>, id: EventId, columns: [usize; 8]) -> Attempt<Standing> {
        let [state, outcome, settled, duplicates, body, cause, mark, result] = columns;
        let standing = Standing {
            state: row.get(state)?,
            outcome: row.get(outcome)?,
            settled: row.get(settled)?,
            duplicates: row.get(duplicates)?,
            body: row.get(body)?,
            cause: row.get(cause)?,
            result: row.get(result)?,
        };
        if standing.mark(id) != row.get::<_, i64>(mark)? || !(OPEN..=DEAD).contains(&standing.state) {
            return Err(damaged(format!("the state of {id} does not match its checksum")));
        }
        Ok(standing)
    }
}

/// The row of an event.
pub(super) struct EventRow {
    pub(super) id: EventId,
    pub(super) source: i64,
    pub(super) standing: Standing,
    pub(super) outcome: Option<Outcome>,
    pub(super) received: Timestamp,
    pub(super) form: Form,
    pub(super) crs: Option<u32>,
    pub(super) digests: Vec<Fingerprint>,
    pub(super) spatial: Vec<Fingerprint>,
    pub(super) content: [u8; 32],
    pub(super) cause: Option<Cause>,
    pub(super) origin: Option<Origin>,
}

impl EventRow {
    /// Reads a row of [`EVENT_COLUMNS`].
    pub(super) fn read(row: &Row<'_>) -> Attempt<EventRow> {
        let id = EventId::from_bytes(bytes16(row, 0)?);
        let digests = row.get_ref(10)?.as_blob().map_err(|_| damaged(format!("{id} has no key")))?;
        let spatial = optional_blob(row.get_ref(11)?)?;
        let content: [u8; 32] = row.get(12)?;
        let (source, received, form, crs) = (row.get(1)?, row.get(4)?, row.get(7)?, row.get(8)?);
        if event_sum(id, source, received, form, crs, digests, spatial, &content) != row.get::<_, i64>(14)? {
            return Err(damaged(format!("the record of {id} does not match its checksum")));
        }
        let digests = read_fingerprints(digests).map_err(damaged)?;
        if digests.is_empty() {
            return Err(damaged(format!("the record of {id} has no key")));
        }
        let standing = Standing::read(row, id, [2, 3, 5, 6, 9, 13, 15, 16])?;
        Ok(EventRow {
            id,
            source,
            outcome: standing.outcome.map(outcome_from).transpose().map_err(damaged)?,
            cause: standing.cause.as_deref().map(cause_from).transpose().map_err(damaged)?,
            standing,
            received: Timestamp::from_millis(received),
            form: form_from(form).map_err(damaged)?,
            crs: crs.map(u32::try_from).transpose().map_err(|_| damaged("a coordinate system out of range"))?,
            digests,
            spatial: read_fingerprints(spatial).map_err(damaged)?,
            content,
            origin: read_summed_origin(id, optional_blob(row.get_ref(17)?)?)?,
        })
    }

    /// When it was done or died.
    pub(super) fn settled(&self) -> Option<Timestamp> {
        self.standing.settled.map(Timestamp::from_millis)
    }
}

/// What is known of an event's work at a sink, beside when it is due and who holds it: those are indexed, and an index
/// that does not fit its table is noticed.
#[derive(Default)]
pub(super) struct Task {
    pub(super) attempts: u32,
    pub(super) lapses: u32,
    pub(super) cause: Option<String>,
}

impl Task {
    /// The checksum over it.
    pub(super) fn mark(&self, event: EventId, sink: i64) -> i64 {
        let mut sum = Sum::new();
        sum.add(&event.to_bytes());
        for word in [sink.cast_unsigned(), self.attempts.into(), self.lapses.into()] {
            sum.word(word);
        }
        sum.add(self.cause.as_deref().unwrap_or_default().as_bytes());
        sum.finish()
    }

    /// Reads it from the columns `attempts`, `lapses`, `cause` and `mark`, of which `first` is the first.
    pub(super) fn read(row: &Row<'_>, event: EventId, sink: i64, first: usize) -> Attempt<Task> {
        let task = Task { attempts: row.get(first)?, lapses: row.get(first + 1)?, cause: row.get(first + 2)? };
        if task.mark(event, sink) != row.get::<_, i64>(first + 3)? {
            return Err(damaged(format!("the work of {event} does not match its checksum")));
        }
        Ok(task)
    }

    /// What went wrong last.
    pub(super) fn cause(&self) -> Attempt<Option<Cause>> {
        self.cause.as_deref().map(cause_from).transpose().map_err(damaged)
    }
}

/// Bytes, or none where there is nothing.
pub(super) fn optional_blob(value: ValueRef<'_>) -> Attempt<&[u8]> {
    match value {
        ValueRef::Null => Ok(&[]),
        ValueRef::Blob(bytes) => Ok(bytes),
        _ => Err(damaged("text or a number where bytes belong")),
    }
}

/// Where a repaired event comes from, as its column has it: with a checksum of its own.
pub(super) fn summed_origin(id: EventId, origin: &Origin) -> Vec<u8> {
    let mut bytes = write_origin(origin);
    let sum = payload_sum(id, &bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

fn read_summed_origin(id: EventId, bytes: &[u8]) -> Attempt<Option<Origin>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    match bytes.split_last_chunk() {
        Some((origin, sum)) if payload_sum(id, origin) == i64::from_le_bytes(*sum) => {
            read_origin(origin).map(Some).map_err(damaged)
        }
        _ => Err(damaged(format!("the origin of {id} does not match its checksum"))),
    }
}

/// The checksum over what never changes of an event.
#[expect(clippy::too_many_arguments, reason = "the columns, in their order")]
pub(super) fn event_sum(
    id: EventId,
    source: i64,
    received: i64,
    form: i64,
    crs: Option<i64>,
    digests: &[u8],
    spatial: &[u8],
    content: &[u8; 32],
) -> i64 {
    let mut sum = Sum::new();
    sum.add(&id.to_bytes());
    for number in [source, received, form, crs.unwrap_or(-1)] {
        sum.add(&number.to_le_bytes());
    }
    sum.add(digests);
    sum.add(spatial);
    sum.add(content);
    sum.finish()
}

/// The checksum over the payload of `id`.
pub(super) fn payload_sum(id: EventId, payload: &[u8]) -> i64 {
    let mut sum = Sum::new();
    sum.add(&id.to_bytes());
    sum.add(payload);
    sum.finish()
}

/// The checksum over bytes.
pub(super) fn bytes_sum(bytes: &[u8]) -> i64 {
    let mut sum = Sum::new();
    sum.add(bytes);
    sum.finish()
}

/// A checksum in which every step is a bijection of the state, so that one changed word always shows.
struct Sum(u64);

impl Sum {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

    fn new() -> Sum {
        Sum(0x6765_6F6E_6365_0001)
    }

    fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(Sum::FACTOR).rotate_left(29);
    }

    fn add(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
        let mut last = [0; 8];
        last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
        self.word(u64::from_le_bytes(last));
    }

    fn finish(self) -> i64 {
        (self.0 ^ (self.0 >> 31)).cast_signed()
    }
}

/// Reads an id or a key.
pub(super) fn bytes16(row: &Row<'_>, column: usize) -> Attempt<Bytes16> {
    let bytes = row.get_ref(column)?.as_blob().map_err(|_| damaged("an id or key that is no bytes"))?;
    bytes.try_into().map_err(|_| damaged("an id or key that has not 16 bytes"))
}

/// Names by number and numbers by name, of sources or of sinks. Names are only ever added.
#[derive(Clone, Default)]
pub(super) struct Names {
    numbers: HashMap<Arc<str>, i64>,
    names: HashMap<i64, Arc<str>>,
}

impl Names {
    pub(super) fn number(&self, name: &str) -> Option<i64> {
        self.numbers.get(name).copied()
    }

    pub(super) fn name(&self, number: i64) -> Option<Arc<str>> {
        self.names.get(&number).map(Arc::clone)
    }

    pub(super) fn add(&mut self, number: i64, name: Arc<str>) {
        self.numbers.insert(Arc::clone(&name), number);
        self.names.insert(number, name);
    }
}

#[cfg(test)]
mod tests {
    use super::{EventId, payload_sum};

    #[test]
    fn a_flipped_bit_changes_the_checksum() {
        let id = EventId::from_bytes([7; 16]);
        for length in [0, 1, 7, 8, 9, 300] {
            let payload = vec![0x5A_u8; length];
            let sum = payload_sum(id, &payload);
            for bit in 0..length * 8 {
                let mut changed = payload.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(payload_sum(id, &changed), sum);
            }
            let mut longer = payload.clone();
            longer.push(0);
            assert_ne!(payload_sum(id, &longer), sum);
        }
    }
}
