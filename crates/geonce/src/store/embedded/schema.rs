//! The store's file: its tables, how connections to it are set up, and which files are refused.
//!
//! Tables: `event` (slim record), `body` (payloads), `work` (what is left to do, by event and sink), `claim` (log of
//! keys), `sealed` and `segment` (sorted keys and their filters), `run` (keys of runs, which several processes claim),
//! `result` (results that many events share), `place` (who may be near to others), `counter` (the books), `source`,
//! `sink`, `meta`.

use super::failure::Attempt;
use crate::error::{Error, Kind};
use crate::event::random;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::time::Duration;

/// The schema that this release writes.
pub(super) const SCHEMA_VERSION: i64 = 6;
/// `geo1` in ASCII: marks the file as a store.
const APPLICATION_ID: i64 = 0x6765_6F31;
/// How long one process waits for another's transaction.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Statements that are kept prepared.
const STATEMENTS_MAX: usize = 96;
/// Page cache of the connection that writes, in KiB.
const WRITER_CACHE_KIB: i64 = 32 * 1024;
/// Page cache of the others, in KiB.
const READER_CACHE_KIB: i64 = 4 * 1024;

/// Schema 1; what came since, [`UPGRADES`] adds.
const TABLES: &str = "
CREATE TABLE meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE source(number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE sink(number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE counter(source INTEGER, name TEXT, value INTEGER NOT NULL, PRIMARY KEY(source, name)) WITHOUT ROWID;
CREATE TABLE event(
  id BLOB PRIMARY KEY, source INTEGER NOT NULL, state INTEGER NOT NULL, outcome INTEGER, received INTEGER NOT NULL,
  settled INTEGER, duplicates INTEGER NOT NULL DEFAULT 0, form INTEGER NOT NULL, crs INTEGER, body INTEGER,
  digests BLOB NOT NULL, spatial BLOB, content BLOB NOT NULL, cause TEXT, sum INTEGER NOT NULL,
  mark INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX dead ON event(id) WHERE state = 2;
CREATE TABLE body(number INTEGER PRIMARY KEY, payload BLOB NOT NULL, sum INTEGER NOT NULL);
CREATE TABLE work(
  event BLOB, sink INTEGER, due INTEGER NOT NULL, token INTEGER, attempts INTEGER NOT NULL DEFAULT 0,
  lapses INTEGER NOT NULL DEFAULT 0, cause TEXT, mark INTEGER NOT NULL, PRIMARY KEY(event, sink)) WITHOUT ROWID;
CREATE INDEX queue ON work(sink, due);
CREATE INDEX leased ON work(event) WHERE token IS NOT NULL;
CREATE TABLE claim(seq INTEGER PRIMARY KEY, key BLOB NOT NULL, event BLOB NOT NULL);
CREATE TABLE segment(
  number INTEGER PRIMARY KEY, ready INTEGER NOT NULL, last_seq INTEGER NOT NULL, keys INTEGER NOT NULL,
  sealed INTEGER NOT NULL, filter BLOB);
CREATE TABLE sealed(segment INTEGER, key BLOB, event BLOB NOT NULL, PRIMARY KEY(segment, key)) WITHOUT ROWID;
INSERT INTO meta VALUES ('token', 0);
";

/// What makes each later schema of the one before, in any store. Rows that are there stay as they are.
const UPGRADES: [&str; 5] = [RESULTS, HELD_WORK, HOLDERS, PLACES, ORIGINS];

/// Makes the first schema of this one again.
#[cfg(test)]
pub(crate) const BACK_TO_THE_FIRST: &str = "
DROP TABLE place;
ALTER TABLE event DROP COLUMN origin;
DROP INDEX follower; DROP INDEX turn; DROP INDEX line;
ALTER TABLE work DROP COLUMN after; ALTER TABLE work DROP COLUMN entity; ALTER TABLE work DROP COLUMN rank;
ALTER TABLE work DROP COLUMN holder;
DROP TABLE run; DROP TABLE result; ALTER TABLE event DROP COLUMN result;
PRAGMA user_version = 1;
";

/// What an event became, and the keys of runs.
const RESULTS: &str = "
ALTER TABLE event ADD COLUMN result;
CREATE TABLE result(number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE run(key BLOB PRIMARY KEY, event BLOB NOT NULL) WITHOUT ROWID;
";

/// Work may wait for another sink of its event, or for others of its entity. What has its turn at a sink is alone there.
const HELD_WORK: &str = "
ALTER TABLE work ADD COLUMN after INTEGER;
ALTER TABLE work ADD COLUMN entity BLOB;
ALTER TABLE work ADD COLUMN rank BLOB;
CREATE INDEX follower ON work(event, after) WHERE after IS NOT NULL;
CREATE UNIQUE INDEX turn ON work(sink, entity) WHERE entity IS NOT NULL AND due < 9223372036854775806;
CREATE INDEX line ON work(sink, entity, rank, event)
  WHERE entity IS NOT NULL AND due = 9223372036854775806 AND after IS NULL;
";

/// Who holds a lease.
const HOLDERS: &str = "
ALTER TABLE work ADD COLUMN holder TEXT;
";

/// Places of events among what may be near, and what was decided about those that have none: they have no cell, and the
/// decision is their body. The index has all that is needed to find the latest ones of a cell.
const PLACES: &str = "
CREATE TABLE place(
  event BLOB PRIMARY KEY, scope BLOB, cell INTEGER, until INTEGER NOT NULL, body NOT NULL, sum INTEGER NOT NULL)
  WITHOUT ROWID;
CREATE INDEX near ON place(cell, scope, until, event) WHERE cell IS NOT NULL;
CREATE INDEX over ON place(until);
";

/// Which event a repaired one was made of.
const ORIGINS: &str = "
ALTER TABLE event ADD COLUMN origin BLOB;
";

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The one that writes.
    Write,
    /// Lists, counts, audits.
    Read,
    /// Copies the log into the file.
    Checkpoint,
}

/// Where a store is and how it is kept.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) file: std::path::PathBuf,
    /// Whether the file lasts; a test's does not, and is not synced.
    pub(super) lasting: bool,
}

impl Place {
    /// The file of the write-ahead log.
    pub(super) fn log(&self) -> std::path::PathBuf {
        beside(&self.file, "-wal")
    }

    /// Opens a connection to a store that exists.
    pub(super) fn connect(&self, purpose: Purpose) -> Attempt<Connection> {
        let access = match purpose {
            Purpose::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
            Purpose::Write | Purpose::Checkpoint => OpenFlags::SQLITE_OPEN_READ_WRITE,
        };
        let connection = Connection::open_with_flags(&self.file, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        self.set_up(&connection, purpose)?;
        Ok(connection)
    }

    fn set_up(&self, connection: &Connection, purpose: Purpose) -> Attempt<()> {
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        let cache = if purpose == Purpose::Write { WRITER_CACHE_KIB } else { READER_CACHE_KIB };
        connection.pragma_update(None, "synchronous", if self.lasting { "FULL" } else { "OFF" })?;
        connection.pragma_update(None, "fullfsync", true)?;
        connection.pragma_update(None, "checkpoint_fullfsync", true)?;
        connection.pragma_update(None, "foreign_keys", false)?;
        connection.pragma_update(None, "cache_size", -cache)?;
        connection.pragma_update(None, "mmap_size", 0)?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        connection.pragma_update(None, "trusted_schema", false)?;
        // What a flipped bit may do to a page is found when the page is read, not when it has spread.
        connection.pragma_update(None, "cell_size_check", true)?;
        if purpose != Purpose::Read {
            connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        }
        Ok(())
    }

    /// Opens the connection that writes; makes the store where there is none. One of an earlier release is upgraded if
    /// the caller holds the lock, which proves that no gateway of that release uses it.
    pub(super) fn create(&self, may_upgrade: bool) -> Attempt<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let mut connection = Connection::open_with_flags(&self.file, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        self.check_moment(&connection, may_upgrade)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        self.set_up(&connection, Purpose::Write)?;
        let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let version = self.check_version(&transaction, may_upgrade)?;
        if version == 0 {
            transaction.execute_batch(TABLES)?;
            transaction.execute("INSERT INTO meta VALUES ('store', ?1)", [random().to_be_bytes()])?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        }
        for upgrade in UPGRADES.iter().skip(usize::try_from(version - 1).unwrap_or(0)) {
            transaction.execute_batch(upgrade)?;
        }
        if version != SCHEMA_VERSION {
            transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
        }
        transaction.commit()?;
        Ok(connection)
    }

    /// Whether the file is a store that this release uses as it is.
    pub(super) fn is_current(&self) -> Attempt<bool> {
        if !self.file.exists() {
            return Ok(false);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.file, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        Ok(self.check_moment(&connection, true)? == SCHEMA_VERSION)
    }

    /// What [`Place::check_version`] says, at one moment: another process may be making the store.
    fn check_moment(&self, connection: &Connection, may_upgrade: bool) -> Attempt<i64> {
        let moment = connection.unchecked_transaction()?;
        self.check_version(&moment, may_upgrade)
    }

    /// The schema of the file; 0 if it is empty, an error if it is no store or one that cannot be used.
    fn check_version(&self, connection: &Connection, may_upgrade: bool) -> Attempt<i64> {
        let name = self.file.display();
        let application: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
        let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if (application, version, tables) == (0, 0, 0) {
            return Ok(0);
        }
        if application != APPLICATION_ID {
            return Err(Error::new(Kind::Incompatible, format!("{name} is a database, but no store of geonce"))
                .hint("name another file")
                .into());
        }
        if !(1..=SCHEMA_VERSION).contains(&version) {
            let message = format!(
                "{name} has schema {version}, this release reads schema {SCHEMA_VERSION}: a newer one wrote it"
            );
            return Err(Error::new(Kind::Incompatible, message)
                .hint("use the release that wrote it, or a later one")
                .into());
        }
        if version < SCHEMA_VERSION && !may_upgrade {
            let message = format!("{name} has schema {version}, this release uses schema {SCHEMA_VERSION}");
            return Err(Error::new(Kind::Incompatible, message)
                .hint("start the gateway of this release once: it brings the store up to date")
                .into());
        }
        Ok(version)
    }
}

/// The file `suffix` beside `file`.
pub(super) fn beside(file: &Path, suffix: &str) -> std::path::PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
