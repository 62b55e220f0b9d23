//! The proof of once: tables beside the layers, written in the transaction that writes the row.
//!
//! * `gpkg_geonce_applied (layer, key) → event, stale`: every event that was decided here, for ever.
//! * `gpkg_geonce_entity (layer, entity) → version, key, content, fid, deleted`: what an upsert layer holds.
//! * `gpkg_geonce_merged (layer, key) → into, event`: which event went into which row, from the first such event on.
//! * `gpkg_geonce_layer (id, name)` and `gpkg_geonce_column (layer, name)`: short numbers for layers, and the columns we made.
//!
//! GDAL lists every table of a file as a layer, registered or not, unless its name begins like the standard's own tables;
//! GDAL's bookkeeping (`gpkg_ogr_contents`) has its name for the same reason. The tables know layers by name: they
//! survive a layer that is deleted, replaced or edited.

use crate::event::{EventId, Outcome};
use crate::sink::Proof;
use crate::sink::version::Held;
use geonce_key::Version;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Result};

pub(crate) const TABLES: [&str; 4] =
    ["gpkg_geonce_applied", "gpkg_geonce_entity", "gpkg_geonce_layer", "gpkg_geonce_column"];

/// Without rowid: one B-tree, and the key is stored once. Keys are random, so rows are kept as short as can be.
const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS gpkg_geonce_layer (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE COLLATE NOCASE);
CREATE TABLE IF NOT EXISTS gpkg_geonce_column (layer INTEGER NOT NULL, name TEXT NOT NULL, PRIMARY KEY (layer, name))
  WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS gpkg_geonce_applied (layer INTEGER NOT NULL, key BLOB NOT NULL, event BLOB NOT NULL,
  stale INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (layer, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS gpkg_geonce_entity (layer INTEGER NOT NULL, entity BLOB NOT NULL, version TEXT NOT NULL,
  key BLOB NOT NULL, content BLOB NOT NULL, fid INTEGER, deleted INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (layer, entity)) WITHOUT ROWID;
";

const MERGED_SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS gpkg_geonce_merged (layer INTEGER NOT NULL, key BLOB NOT NULL, \"into\" BLOB NOT NULL,
  event BLOB NOT NULL, PRIMARY KEY (layer, key)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS gpkg_geonce_merged_into ON gpkg_geonce_merged (layer, \"into\");
";

/// Creates what is missing.
pub(crate) fn create(transaction: &Connection) -> Result<()> {
    transaction.execute_batch(SCHEMA)?;
    TABLES.iter().try_for_each(|table| register(transaction, table))
}

/// Creates what is missing where an event goes into the row of another.
pub(super) fn create_merged(transaction: &Connection) -> Result<()> {
    transaction.execute_batch(MERGED_SCHEMA)?;
    register(transaction, "gpkg_geonce_merged")
}

fn register(transaction: &Connection, table: &str) -> Result<()> {
    // A UNIQUE constraint does not hold for rows with NULL, so the row is looked for first.
    let sql = "INSERT INTO gpkg_extensions (table_name, column_name, extension_name, definition, scope)
               SELECT ?1, NULL, 'geonce_once', 'Which events have been written to which layer; other programs leave it alone.',
               'write-only' WHERE NOT EXISTS (SELECT 1 FROM gpkg_extensions WHERE table_name = ?1)";
    transaction.execute(sql, [table]).map(drop)
}

/// The key of the row that an event went into, if it has none of its own.
pub(super) fn merged_into(connection: &Connection, layer: i64, key: [u8; 16]) -> Result<Option<[u8; 16]>> {
    let sql = "SELECT \"into\" FROM gpkg_geonce_merged WHERE layer = ?1 AND key = ?2";
    connection.prepare_cached(sql)?.query_row((layer, key), |row| row.get(0)).optional()
}

/// How many events a row stands for: its own, and those that went into it.
pub(super) fn events_in(connection: &Connection, layer: i64, into: [u8; 16]) -> Result<u32> {
    let sql = "SELECT count(*) + 1 FROM gpkg_geonce_merged WHERE layer = ?1 AND \"into\" = ?2";
    connection.prepare_cached(sql)?.query_row((layer, into), |row| row.get(0))
}

/// Remembers that an event went into a row.
pub(super) fn add_merged(
    connection: &Connection,
    layer: i64,
    key: [u8; 16],
    into: [u8; 16],
    event: EventId,
) -> Result<()> {
    let sql = "INSERT OR IGNORE INTO gpkg_geonce_merged VALUES (?1, ?2, ?3, ?4)";
    connection.prepare_cached(sql)?.execute((layer, key, into, event.to_bytes())).map(drop)
}

/// The number of a layer, given on first use.
pub(crate) fn layer(transaction: &Connection, name: &str) -> Result<i64> {
    transaction.execute("INSERT INTO gpkg_geonce_layer (name) VALUES (?1) ON CONFLICT DO NOTHING", [name])?;
    transaction.query_row("SELECT id FROM gpkg_geonce_layer WHERE name = ?1", [name], |row| row.get(0))
}

/// The highest number given to an arrival.
pub(crate) fn last_arrival(connection: &Connection, layer: i64) -> Result<i64> {
    let sql = "SELECT coalesce(max(CAST(version AS INTEGER)), 0) FROM gpkg_geonce_entity WHERE layer = ?1";
    connection.query_row(sql, [layer], |row| row.get(0))
}

/// Events decided in a layer, by key.
pub(crate) fn page(connection: &Connection, layer: &str, after: Option<[u8; 16]>, limit: usize) -> Result<Vec<Proof>> {
    let sql = "SELECT key, event FROM gpkg_geonce_applied
               WHERE layer = (SELECT id FROM gpkg_geonce_layer WHERE name = ?1) AND key > ?2 ORDER BY key LIMIT ?3";
    let after = after.as_ref().map_or(&[][..], |key| &key[..]);
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map((layer, after, i64::try_from(limit).unwrap_or(i64::MAX)), |row| {
        Ok(Proof { key: row.get(0)?, event: EventId::from_bytes(row.get(1)?) })
    })?;
    rows.collect()
}

/// Which keys were decided in a layer.
pub(crate) fn decided(connection: &Connection, layer: &str, keys: impl Iterator<Item = [u8; 16]>) -> Result<Vec<bool>> {
    let sql = "SELECT 1 FROM gpkg_geonce_applied
               WHERE layer = (SELECT id FROM gpkg_geonce_layer WHERE name = ?1) AND key = ?2";
    let mut statement = connection.prepare_cached(sql)?;
    keys.map(|key| statement.exists((layer, key))).collect()
}

/// The statements of one transaction.
pub(crate) struct Guard<'c> {
    layer: i64,
    find: CachedStatement<'c>,
    add: CachedStatement<'c>,
    find_entity: CachedStatement<'c>,
    set_entity: CachedStatement<'c>,
}

impl<'c> Guard<'c> {
    pub(crate) fn new(connection: &'c Connection, layer: i64) -> Result<Guard<'c>> {
        Ok(Guard {
            layer,
            find: connection.prepare_cached("SELECT stale FROM gpkg_geonce_applied WHERE layer = ?1 AND key = ?2")?,
            add: connection.prepare_cached("INSERT OR IGNORE INTO gpkg_geonce_applied VALUES (?1, ?2, ?3, ?4)")?,
            find_entity: connection.prepare_cached(
                "SELECT version, key, content, fid FROM gpkg_geonce_entity WHERE layer = ?1 AND entity = ?2",
            )?,
            set_entity: connection.prepare_cached(
                "INSERT INTO gpkg_geonce_entity (layer, entity, version, key, content, fid, deleted)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6 IS NULL) ON CONFLICT (layer, entity) DO UPDATE SET
                 version = excluded.version, key = excluded.key, content = excluded.content, fid = excluded.fid,
                 deleted = excluded.deleted",
            )?,
        })
    }

    /// What became of this key here, if it was decided.
    pub(crate) fn outcome(&mut self, key: [u8; 16]) -> Result<Option<Outcome>> {
        let stale: Option<bool> = self.find.query_row((self.layer, key), |row| row.get(0)).optional()?;
        Ok(stale.map(|stale| if stale { Outcome::Stale } else { Outcome::Applied }))
    }

    /// Remembers that a key is decided; false where it was already.
    pub(crate) fn decide(&mut self, key: [u8; 16], event: EventId, outcome: Outcome) -> Result<bool> {
        let stale = outcome == Outcome::Stale;
        Ok(self.add.execute((self.layer, key, event.to_bytes(), stale))? > 0)
    }

    pub(crate) fn entity(&mut self, entity: &[u8; 32]) -> Result<Option<Held>> {
        let read = |row: &rusqlite::Row<'_>| {
            Ok(Held {
                version: Version::parse(row.get_ref(0)?.as_str()?),
                key: row.get(1)?,
                content: row.get(2)?,
                fid: row.get(3)?,
            })
        };
        self.find_entity.query_row((self.layer, entity), read).optional()
    }

    /// Sets what the layer holds of an entity. Without a row it is deleted.
    pub(crate) fn set_entity(
        &mut self,
        entity: &[u8; 32],
        version: &Version,
        key: [u8; 16],
        content: &[u8; 32],
        fid: impl Into<Option<i64>>,
    ) -> Result<()> {
        self.set_entity.execute((self.layer, entity, version.to_string(), key, content, fid.into()))?;
        Ok(())
    }
}
