//! Which event holds which key: a log of new claims, and sorted segments of old ones.
//!
//! Random keys in one large B-tree cost a page each. Here a new claim is appended to the log and kept in a map; when the
//! log is long enough it is sealed: its keys are sorted in the background and copied, in slices, behind the last
//! segment. Both tables are only ever appended to. A Bloom filter per segment tells which ones a lookup must read.
//!
//! Nothing here changes before the transaction that it belongs to is committed. A claim whose event is gone is free.

use super::Tuning;
use super::failure::{Attempt, damaged};
use super::row::{Bytes16, bytes_sum, bytes16, number, optional_blob};
use fastbloom::BloomFilter;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

/// Keys in the log when it is sealed: as many as a map of 2^19 places holds.
pub(super) const SEGMENT_KEYS: usize = 7 << 16;
/// Keys that one commit seals when nothing else happens.
pub(super) const SLICE_KEYS: usize = 2_000;
/// Bits of the filter for each key: one wrong "maybe" in about 800.
const FILTER_BITS_PER_KEY: usize = 14;
const FILTER_HASHES: u32 = 8;

/// A key, hashed cheaply: it is a piece of a cryptographic digest already, and the seed keeps places unforeseeable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key(pub(super) Bytes16);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(u128::from_le_bytes(self.0));
    }
}

/// Makes [`SeededHasher`]s.
#[derive(Clone, Copy)]
pub(super) struct Seed(u64, u64);

impl Default for Seed {
    fn default() -> Seed {
        let random = crate::event::random();
        Seed(low(random), low(random >> 64))
    }
}

impl BuildHasher for Seed {
    type Hasher = SeededHasher;

    fn build_hasher(&self) -> SeededHasher {
        SeededHasher { seed: *self, state: 0 }
    }
}

/// Folds the product of the key's halves, each mixed with the seed.
pub(super) struct SeededHasher {
    seed: Seed,
    state: u64,
}

impl Hasher for SeededHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u128(u128::from(byte));
        }
    }

    fn write_u128(&mut self, key: u128) {
        let product = u128::from(low(key) ^ self.seed.0 ^ self.state) * u128::from(low(key >> 64) ^ self.seed.1);
        self.state = low(product) ^ low(product >> 64);
    }

    fn finish(&self) -> u64 {
        self.state
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
const fn low(value: u128) -> u64 {
    value as u64
}

/// Keys and the events that hold them.
pub(super) type KeyMap = HashMap<Key, Bytes16, Seed>;

/// The claims of a store.
pub(super) struct Claims {
    /// The log's claims that are not being sealed.
    current: KeyMap,
    sealing: Option<Sealing>,
    /// Oldest first.
    segments: Vec<Segment>,
    next_seq: i64,
    /// The log up to this entry is in a segment and is to be removed.
    trim: Option<i64>,
    tuning: Tuning,
}

struct Segment {
    number: i64,
    /// When it was begun.
    begun: i64,
    filter: Arc<BloomFilter>,
}

struct Sealing {
    number: i64,
    begun: i64,
    last_seq: i64,
    keys: Keys,
    /// How many keys are copied.
    copied: usize,
}

/// Keys on their way into a segment: a map until the sorter has set them in order.
struct Keys {
    map: Option<Arc<KeyMap>>,
    sorted: Arc<OnceLock<Sorted>>,
}

struct Sorted {
    entries: Vec<(Key, Bytes16)>,
    filter: Arc<BloomFilter>,
}

/// A piece of upkeep that was done in a transaction, to be taken over once that is committed.
#[derive(Clone, Copy)]
pub(super) enum Step {
    /// A segment was begun with all of the log.
    Begun { number: i64, begun: i64, last_seq: i64 },
    /// So many keys are copied.
    Copied(usize),
    /// The segment is complete.
    Finished,
    /// The log is trimmed; whether all of it.
    Trimmed { all: bool },
}

impl Claims {
    /// Reads the filters and the log. Costs as much as the log is long.
    pub(super) fn load(connection: &Connection, tuning: Tuning, wake: &Wake) -> Attempt<Claims> {
        let mut claims =
            Claims { current: KeyMap::default(), sealing: None, segments: Vec::new(), next_seq: 1, trim: None, tuning };
        let mut unfinished = None;
        let mut statement =
            connection.prepare("SELECT number, ready, last_seq, sealed, filter FROM segment ORDER BY number")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (number, last_seq, begun) = (row.get(0)?, row.get::<_, i64>(2)?, row.get(3)?);
            claims.next_seq = claims.next_seq.max(last_seq + 1);
            if row.get(1)? {
                let filter = match read_filter(connection, number, optional_blob(row.get_ref(4)?)?)? {
                    Some(filter) => filter,
                    None => rebuild_filter(connection, number)?,
                };
                claims.segments.push(Segment { number, begun, filter: Arc::new(filter) });
                claims.trim = Some(last_seq);
            } else {
                unfinished = Some((number, begun, last_seq));
            }
        }
        let from = claims.trim.map_or(i64::MIN, |last| last + 1);
        if let Some((number, begun, last_seq)) = unfinished {
            let map = load_log(connection, from, last_seq)?;
            claims.sealing = Some(resume(connection, number, begun, last_seq, map, wake)?);
        }
        let from = claims.sealing.as_ref().map_or(from, |sealing| sealing.last_seq + 1);
        claims.current = load_log(connection, from, i64::MAX)?;
        let last: Option<i64> = connection.query_row("SELECT max(seq) FROM claim", [], |row| row.get(0))?;
        claims.next_seq = claims.next_seq.max(last.unwrap_or(0) + 1);
        Ok(claims)
    }

    /// The number of the next entry of the log.
    pub(super) fn next_seq(&self) -> i64 {
        self.next_seq
    }

    /// Calls `found` with every event that may hold `key`, latest claim first, until it answers.
    pub(super) fn find<T>(
        &self,
        connection: &Connection,
        key: Key,
        mut found: impl FnMut(Bytes16) -> Attempt<Option<T>>,
    ) -> Attempt<Option<T>> {
        if let Some(&event) = self.current.get(&key)
            && let Some(answer) = found(event)?
        {
            return Ok(Some(answer));
        }
        if let Some(event) = self.sealing.as_ref().and_then(|sealing| sealing.keys.find(key))
            && let Some(answer) = found(event)?
        {
            return Ok(Some(answer));
        }
        let hash = filter_hash(key);
        for segment in self.segments.iter().rev().filter(|segment| segment.filter.contains_hash(hash)) {
            if let Some(event) = find_sealed(connection, segment.number, key)?
                && let Some(answer) = found(event)?
            {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    /// Takes over claims that are committed.
    pub(super) fn add(&mut self, claimed: KeyMap, next_seq: i64) {
        self.next_seq = next_seq;
        if self.current.is_empty() {
            self.current = claimed;
        } else {
            self.current.extend(claimed);
        }
    }

    /// Whether upkeep can go on now.
    pub(super) fn has_upkeep(&self) -> bool {
        let can_seal = match &self.sealing {
            Some(sealing) => sealing.keys.sorted.get().is_some(),
            None => self.current.len() >= self.tuning.segment_keys,
        };
        can_seal || self.trim.is_some()
    }

    /// Does a slice of upkeep in the transaction that is open, in which `fresh` keys were claimed. Sealing keeps ahead
    /// of what comes in, so the log stays bounded.
    pub(super) fn upkeep(
        &mut self,
        connection: &Connection,
        fresh: usize,
        idle: bool,
        next_seq: i64,
        now: i64,
        wake: &Wake,
    ) -> Attempt<Option<Step>> {
        let slice_min = if idle { self.tuning.slice_keys } else { self.tuning.slice_keys / 8 };
        let slice = slice_min.max(2 * fresh);
        if let Some(last) = self.trim {
            return trim_log(connection, last, 2 * slice).map(Some);
        }
        let Some(sealing) = &mut self.sealing else {
            if self.current.len() + fresh < self.tuning.segment_keys {
                return Ok(None);
            }
            return begin(connection, next_seq - 1, now).map(Some);
        };
        sealing.keys.look_after(wake);
        sealing.copy(connection, slice)
    }

    /// Takes over a step of upkeep that is committed.
    pub(super) fn apply(&mut self, step: Step, wake: &Wake) {
        match step {
            Step::Begun { number, begun, last_seq } => {
                let map = std::mem::take(&mut self.current);
                self.sealing = Some(Sealing { number, begun, last_seq, keys: Keys::of(map, wake), copied: 0 });
            }
            Step::Copied(copied) => {
                if let Some(sealing) = &mut self.sealing {
                    sealing.copied = copied;
                }
            }
            Step::Finished => {
                if let Some(sealing) = self.sealing.take() {
                    self.trim = Some(sealing.last_seq);
                    // The sorter may hold what it has sorted a moment longer than we wait for it: it is shared, not taken.
                    if let Some(Sorted { filter, .. }) = sealing.keys.sorted.get() {
                        let filter = Arc::clone(filter);
                        self.segments.push(Segment { number: sealing.number, begun: sealing.begun, filter });
                    }
                }
            }
            Step::Trimmed { all } => self.trim = self.trim.filter(|_| !all),
        }
    }

    /// The oldest segment, if it was begun before `horizon`.
    pub(super) fn expired(&self, horizon: i64) -> Option<i64> {
        self.segments.first().filter(|segment| segment.begun < horizon).map(|segment| segment.number)
    }

    /// Takes over that a segment is gone.
    pub(super) fn dropped(&mut self, number: i64) {
        self.segments.retain(|segment| segment.number != number);
    }
}

impl Keys {
    /// Has a map's keys sorted.
    fn of(map: KeyMap, wake: &Wake) -> Keys {
        let map = Arc::new(map);
        Keys { sorted: spawn_sorter(&map, wake), map: Some(map) }
    }

    /// Lets go of the map once the keys are sorted. A sorter that died is followed by another.
    fn look_after(&mut self, wake: &Wake) {
        if self.sorted.get().is_some() {
            self.map = None;
        } else if Arc::strong_count(&self.sorted) == 1
            && let Some(map) = &self.map
        {
            self.sorted = spawn_sorter(map, wake);
        }
    }

    fn find(&self, key: Key) -> Option<Bytes16> {
        if let Some(map) = &self.map {
            return map.get(&key).copied();
        }
        let sorted = self.sorted.get().filter(|sorted| sorted.filter.contains_hash(filter_hash(key)))?;
        let place = sorted.entries.binary_search_by_key(&key, |&(key, _)| key).ok()?;
        Some(sorted.entries[place].1)
    }
}

impl Sealing {
    fn copy(&self, connection: &Connection, slice: usize) -> Attempt<Option<Step>> {
        let Some(sorted) = self.keys.sorted.get() else {
            return Ok(None);
        };
        if self.copied == sorted.entries.len() {
            let filter = write_filter(&sorted.filter);
            let mut finish =
                connection.prepare_cached("UPDATE segment SET ready = 1, keys = ?2, filter = ?3 WHERE number = ?1")?;
            finish.execute(params![self.number, number(sorted.entries.len()), filter])?;
            return Ok(Some(Step::Finished));
        }
        let until = sorted.entries.len().min(self.copied + slice);
        let mut insert = connection.prepare_cached("INSERT INTO sealed(segment, key, event) VALUES (?1, ?2, ?3)")?;
        for (key, event) in &sorted.entries[self.copied..until] {
            insert.execute(params![self.number, key.0, event])?;
        }
        Ok(Some(Step::Copied(until)))
    }
}

/// Called when sorting is over, so that the writer goes on.
pub(super) type Wake = Arc<dyn Fn() + Send + Sync>;

fn spawn_sorter(map: &Arc<KeyMap>, wake: &Wake) -> Arc<OnceLock<Sorted>> {
    let place = Arc::new(OnceLock::new());
    let (map, wake, sorted) = (Arc::clone(map), Arc::clone(wake), Arc::clone(&place));
    // Without a thread nothing is sorted now; the writer looks after that.
    let _ = std::thread::Builder::new().name("store sorter".to_owned()).spawn(move || {
        let mut entries: Vec<(Key, Bytes16)> = map.iter().map(|(&key, &event)| (key, event)).collect();
        drop(map);
        entries.sort_unstable_by_key(|&(key, _)| key);
        let mut filter = new_filter(entries.len());
        for &(key, _) in &entries {
            filter.insert_hash(filter_hash(key));
        }
        // Nobody else sets it, so it cannot be set already.
        let _ = sorted.set(Sorted { entries, filter: Arc::new(filter) });
        drop(sorted);
        wake();
    });
    place
}

/// Goes on with a segment that was begun before a restart.
fn resume(
    connection: &Connection,
    number: i64,
    begun: i64,
    last_seq: i64,
    map: KeyMap,
    wake: &Wake,
) -> Attempt<Sealing> {
    // The log is what it was, and so is the order of its keys: the first ones are those that are copied.
    let copied = copied_keys(connection, number, &map)?;
    if copied.is_none() {
        tracing::warn!(segment = number, "a copy of keys is damaged; it is made again from the log");
        connection.execute("DELETE FROM sealed WHERE segment = ?1", [number])?;
    }
    let copied = copied.unwrap_or(0);
    Ok(Sealing { number, begun, last_seq, keys: Keys::of(map, wake), copied })
}

/// How many keys of `map` are in a segment; `None` if what is there are not the first of them.
fn copied_keys(connection: &Connection, segment: i64, map: &KeyMap) -> Attempt<Option<usize>> {
    let mut statement = connection.prepare("SELECT key, event FROM sealed WHERE segment = ?1 ORDER BY key")?;
    let mut rows = statement.query([segment])?;
    let (mut copied, mut last) = (0, None);
    while let Some(row) = rows.next()? {
        let (key, event) = (Key(bytes16(row, 0)?), bytes16(row, 1)?);
        if map.get(&key) != Some(&event) {
            return Ok(None);
        }
        (copied, last) = (copied + 1, Some(key));
    }
    let first = map.keys().filter(|&&key| last.is_some_and(|last| key <= last)).count();
    Ok((first == copied).then_some(copied))
}

fn begin(connection: &Connection, last_seq: i64, now: i64) -> Attempt<Step> {
    let number: Option<i64> = connection.query_row("SELECT max(number) FROM segment", [], |row| row.get(0))?;
    let number = number.unwrap_or(0) + 1;
    connection.execute("INSERT INTO segment VALUES (?1, 0, ?2, 0, ?3, NULL)", params![number, last_seq, now])?;
    Ok(Step::Begun { number, begun: now, last_seq })
}

fn trim_log(connection: &Connection, last: i64, slice: usize) -> Attempt<Step> {
    let first: Option<i64> = connection.query_row("SELECT min(seq) FROM claim", [], |row| row.get(0))?;
    let Some(first) = first.filter(|&first| first <= last) else {
        return Ok(Step::Trimmed { all: true });
    };
    let until = last.min(first.saturating_add(number(slice)));
    connection.prepare_cached("DELETE FROM claim WHERE seq <= ?1")?.execute([until])?;
    Ok(Step::Trimmed { all: until == last })
}

fn load_log(connection: &Connection, from: i64, to: i64) -> Attempt<KeyMap> {
    let mut map = KeyMap::default();
    let mut statement = connection.prepare("SELECT key, event FROM claim WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq")?;
    let mut rows = statement.query([from, to])?;
    while let Some(row) = rows.next()? {
        map.insert(Key(bytes16(row, 0)?), bytes16(row, 1)?);
    }
    Ok(map)
}

/// The event that holds `key` in a segment.
pub(super) fn find_sealed(connection: &Connection, segment: i64, key: Key) -> Attempt<Option<Bytes16>> {
    let mut statement = connection.prepare_cached("SELECT event FROM sealed WHERE segment = ?1 AND key = ?2")?;
    Ok(statement.query_row(params![segment, key.0], |row| row.get(0)).optional()?)
}

/// Every event that a key may belong to, found without the memory of the gateway.
pub(super) fn find_on_disk(connection: &Connection, key: Key) -> Attempt<Vec<Bytes16>> {
    let mut statement = connection.prepare_cached(
        "SELECT event FROM claim WHERE key = ?1 UNION SELECT event FROM run WHERE key = ?1 UNION \
         SELECT sealed.event FROM segment CROSS JOIN sealed ON sealed.segment = segment.number AND sealed.key = ?1",
    )?;
    let mut rows = statement.query([key.0])?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        events.push(bytes16(row, 0)?);
    }
    Ok(events)
}

fn new_filter(keys: usize) -> BloomFilter {
    BloomFilter::with_num_bits((keys * FILTER_BITS_PER_KEY).max(64)).hashes(FILTER_HASHES)
}

fn write_filter(filter: &BloomFilter) -> Vec<u8> {
    let mut bytes: Vec<u8> = filter.as_slice().iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend_from_slice(&bytes_sum(&bytes).to_le_bytes());
    bytes
}

/// Reads a filter back; `None` if it cannot be trusted. A filter that wrongly says "no" would admit duplicates, so it
/// must match its checksum and know the first keys of its segment (another release might hash otherwise).
fn read_filter(connection: &Connection, segment: i64, bytes: &[u8]) -> Attempt<Option<BloomFilter>> {
    let Some((bits, sum)) = bytes.split_last_chunk::<8>() else {
        return Ok(None);
    };
    if bits.is_empty() || !bits.len().is_multiple_of(8) || bytes_sum(bits) != i64::from_le_bytes(*sum) {
        return Ok(None);
    }
    let words = bits.chunks_exact(8).map(|chunk| {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    let filter = BloomFilter::from_vec(words.collect()).hashes(FILTER_HASHES);
    let mut statement = connection.prepare_cached("SELECT key FROM sealed WHERE segment = ?1 LIMIT 16")?;
    let mut rows = statement.query([segment])?;
    while let Some(row) = rows.next()? {
        if !filter.contains_hash(filter_hash(Key(bytes16(row, 0)?))) {
            return Ok(None);
        }
    }
    Ok(Some(filter))
}

fn rebuild_filter(connection: &Connection, segment: i64) -> Attempt<BloomFilter> {
    let keys: i64 =
        connection.query_row("SELECT count(*) FROM sealed WHERE segment = ?1", [segment], |row| row.get(0))?;
    let mut filter = new_filter(usize::try_from(keys).map_err(|_| damaged("a segment with a negative count"))?);
    let mut statement = connection.prepare("SELECT key FROM sealed WHERE segment = ?1")?;
    let mut rows = statement.query([segment])?;
    while let Some(row) = rows.next()? {
        filter.insert_hash(filter_hash(Key(bytes16(row, 0)?)));
    }
    Ok(filter)
}

fn filter_hash(key: Key) -> u64 {
    let key = u128::from_le_bytes(key.0);
    low(key) ^ low(key >> 64).rotate_left(32)
}

#[cfg(test)]
mod tests {
    use super::{Claims, Key, KeyMap, Step, Wake};
    use crate::store::embedded::Tuning;
    use rusqlite::{Connection, params};
    use std::sync::Arc;

    #[test]
    fn a_sorter_that_is_slow_to_let_go_costs_no_key() {
        let connection = Connection::open_in_memory().unwrap();
        let tables = "CREATE TABLE sealed (segment, key, event, PRIMARY KEY (segment, key));
                      CREATE TABLE segment (number, ready, last_seq, keys, sealed, filter); CREATE TABLE claim (seq, key, event)";
        connection.execute_batch(tables).unwrap();
        let wake: Wake = Arc::new(|| ());
        let tuning = Tuning { segment_keys: 1, ..Tuning::default() };
        let mut claims = Claims::load(&connection, tuning, &wake).unwrap();
        let (key, event) = (Key([7; 16]), [1; 16]);
        connection.execute("INSERT INTO claim VALUES (1, ?1, ?2)", params![key.0, event]).unwrap();
        claims.add(KeyMap::from_iter([(key, event)]), 2);
        let mut held = None;
        loop {
            match claims.upkeep(&connection, 0, true, 2, 0, &wake).unwrap() {
                // Sorting is not over yet.
                None => std::thread::yield_now(),
                Some(step) => {
                    // As the sorter does, between having sorted and being done.
                    held = held.or_else(|| claims.sealing.as_ref().map(|sealing| Arc::clone(&sealing.keys.sorted)));
                    claims.apply(step, &wake);
                    if matches!(step, Step::Trimmed { all: true }) {
                        break;
                    }
                }
            }
        }
        assert!(held.is_some_and(|sorted| sorted.get().is_some()));
        assert_eq!(claims.find(&connection, key, |event| Ok(Some(event))).unwrap(), Some(event));
    }
}
