//! `<file>.keys`: which keys have their line, and up to where of which file that is known. A SQLite file of two tables:
//! `line (key) → event` and `covered (device, inode, end)`.
//!
//! Its transactions are not synced one by one: one that a power cut takes away is read again from the lines, because the
//! covered end goes with it. Opened exclusively, so that two processes cannot write one file.

use crate::error::{Error, Kind, Result};
use crate::event::EventId;
use crate::sink::Proof;
use crate::sink::thread::Identity;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `GNCK`: a file of keys.
const APPLICATION_ID: i64 = 0x474E_434B;
const CACHE_KIB: i64 = 16 * 1024;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS line (key BLOB PRIMARY KEY, event BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS covered (id INTEGER PRIMARY KEY CHECK (id = 1), device BLOB, inode BLOB, end INTEGER NOT NULL);
";

pub(super) struct Index {
    path: PathBuf,
    connection: Connection,
}

/// Where the keys of a file are kept.
pub(super) fn path(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".keys");
    PathBuf::from(name)
}

impl Index {
    pub(super) fn open(path: &Path, timeout: Duration) -> Result<Index> {
        let opened = || -> rusqlite::Result<Option<Connection>> {
            let connection = Connection::open(path)?;
            connection.busy_timeout(timeout)?;
            connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
            let found: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
            let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
            if tables > 0 && found != APPLICATION_ID {
                return Ok(None);
            }
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
            connection.pragma_update(None, "synchronous", "NORMAL")?;
            connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
            connection.pragma_update(None, "application_id", APPLICATION_ID)?;
            connection.execute_batch(SCHEMA)?;
            Ok(Some(connection))
        };
        match opened() {
            Ok(Some(connection)) => Ok(Index { path: path.to_owned(), connection }),
            Ok(None) => {
                let what = format!("{} is a database of another program", path.display());
                Err(Error::new(Kind::Incompatible, what).hint("give the sink another file; nothing was changed"))
            }
            Err(error) => Err(failure(path, "opening", &error)),
        }
    }

    /// Up to where the keys of this file are known.
    pub(super) fn covered(&self, identity: Option<Identity>) -> Result<Option<u64>> {
        let (device, inode) = columns(identity);
        self.connection
            .query_row("SELECT end FROM covered WHERE device IS ?1 AND inode IS ?2", (device, inode), |row| {
                row.get::<_, i64>(0)
            })
            .optional()
            .map(|end| end.and_then(|end| u64::try_from(end).ok()))
            .map_err(|error| failure(&self.path, "reading", &error))
    }

    pub(super) fn contains(&self, key: [u8; 16]) -> Result<bool> {
        contains(&self.connection, key).map_err(|error| failure(&self.path, "reading", &error))
    }

    pub(super) fn page(&self, after: Option<[u8; 16]>, limit: usize) -> Result<Vec<Proof>> {
        let read = || -> rusqlite::Result<Vec<Proof>> {
            let after = after.as_ref().map_or(&[][..], |key| &key[..]);
            let sql = "SELECT key, event FROM line WHERE key > ?1 ORDER BY key LIMIT ?2";
            let mut statement = self.connection.prepare_cached(sql)?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let rows = statement.query_map((after, limit), |row| {
                Ok(Proof { key: row.get(0)?, event: EventId::from_bytes(row.get(1)?) })
            })?;
            rows.collect()
        };
        read().map_err(|error| failure(&self.path, "reading", &error))
    }

    /// Begins to add keys; they count once they are committed.
    pub(super) fn begin(&mut self) -> Result<Keys<'_>> {
        let path = self.path.clone();
        match self.connection.transaction() {
            Ok(transaction) => Ok(Keys { path, transaction }),
            Err(error) => Err(failure(&path, "writing to", &error)),
        }
    }

    /// Closes it: one file is left.
    pub(super) fn close(self) -> Result<()> {
        self.connection.close().map_err(|(_, error)| failure(&self.path, "closing", &error))
    }
}

/// Keys that are being added.
pub(super) struct Keys<'i> {
    path: PathBuf,
    transaction: Transaction<'i>,
}

impl Keys<'_> {
    pub(super) fn contains(&self, key: [u8; 16]) -> Result<bool> {
        contains(&self.transaction, key).map_err(|error| failure(&self.path, "reading", &error))
    }

    pub(super) fn add(&mut self, key: [u8; 16], event: EventId) -> Result<()> {
        self.transaction
            .prepare_cached("INSERT OR IGNORE INTO line VALUES (?1, ?2)")
            .and_then(|mut statement| statement.execute((key, event.to_bytes())))
            .map(|_| ())
            .map_err(|error| failure(&self.path, "writing to", &error))
    }

    /// Keeps the keys: the lines up to `end` of this file are known.
    pub(super) fn commit(self, end: u64, identity: Option<Identity>) -> Result<()> {
        let (device, inode) = columns(identity);
        let end = i64::try_from(end).unwrap_or(i64::MAX);
        self.transaction
            .prepare_cached("INSERT OR REPLACE INTO covered VALUES (1, ?1, ?2, ?3)")
            .and_then(|mut statement| statement.execute((device, inode, end)))
            .and_then(|_| self.transaction.commit())
            .map_err(|error| failure(&self.path, "writing to", &error))
    }
}

fn contains(connection: &Connection, key: [u8; 16]) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM line WHERE key = ?1")?.exists([key])
}

fn columns(identity: Option<Identity>) -> (Option<[u8; 8]>, Option<[u8; 8]>) {
    let bytes = identity.map(Identity::to_bytes);
    (bytes.map(|(device, _)| device), bytes.map(|(_, inode)| inode))
}

fn failure(path: &Path, doing: &str, error: &rusqlite::Error) -> Error {
    let kind = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull | ErrorCode::OutOfMemory) => Kind::Resource,
        Some(ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => Kind::Permission,
        Some(ErrorCode::DatabaseCorrupt) => Kind::Corrupt,
        Some(ErrorCode::NotADatabase) => Kind::Incompatible,
        _ => Kind::Unavailable,
    };
    let failed = Error::new(kind, format!("{doing} {}", path.display())).because(error.to_string());
    match kind {
        Kind::Corrupt => failed.hint("delete it while nothing runs: it is made again from the lines"),
        Kind::Unavailable => failed.hint("another process may be writing to the same sink"),
        _ => failed,
    }
}
