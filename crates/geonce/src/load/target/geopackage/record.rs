//! `gpkg_geonce_load`: which loads are in the file, and how far each has come. Written in the transaction that writes the rows.

use crate::event::EventId;
use crate::load::target::{Plan, Standing, Tally};
use geonce_key::Encoding;
use rusqlite::{Connection, OptionalExtension, Result};

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS gpkg_geonce_load (load TEXT NOT NULL PRIMARY KEY, event TEXT NOT NULL, layer TEXT NOT NULL,
  mode TEXT NOT NULL, made INTEGER NOT NULL, features INTEGER NOT NULL, inserted INTEGER NOT NULL, updated INTEGER NOT NULL,
  unchanged INTEGER NOT NULL, stale INTEGER NOT NULL, notes TEXT NOT NULL, begun TEXT NOT NULL, finished TEXT, result TEXT)
  WITHOUT ROWID;
INSERT INTO gpkg_extensions (table_name, column_name, extension_name, definition, scope)
  SELECT 'gpkg_geonce_load', NULL, 'geonce_once', 'Which loads are in which layer; other programs leave it alone.',
  'write-only' WHERE NOT EXISTS (SELECT 1 FROM gpkg_extensions WHERE table_name = 'gpkg_geonce_load');
";

/// A load as the file has it on record.
pub(super) struct Record {
    /// The event that its rows carry.
    pub(super) event: String,
    /// Whether the layer, or what is to become it, was made by this load, and lacks its indexes.
    pub(super) made: bool,
    pub(super) standing: Standing,
}

impl Record {
    /// The record of a load that has not begun.
    pub(super) fn new(event: EventId) -> Record {
        Record { event: event.to_string(), made: false, standing: Standing::default() }
    }
}

pub(super) fn create(connection: &Connection) -> Result<()> {
    connection.execute_batch(SCHEMA)
}

pub(super) fn find(connection: &Connection, plan: &Plan) -> Result<Option<Record>> {
    let sql = "SELECT event, made, features, inserted, updated, unchanged, stale, notes, result FROM gpkg_geonce_load
               WHERE load = ?1";
    let read = |row: &rusqlite::Row<'_>| {
        let number = |index| row.get::<_, i64>(index).map(|number| u64::try_from(number).unwrap_or(0));
        let tally = Tally { inserted: number(3)?, updated: number(4)?, unchanged: number(5)?, stale: number(6)? };
        let standing = Standing { result: row.get(8)?, features: number(2)?, tally, notes: row.get(7)? };
        Ok(Record { event: row.get(0)?, made: row.get(1)?, standing })
    };
    connection.query_row(sql, [plan.load.text(Encoding::Base64)], read).optional()
}

/// Writes the record over the one there was; finished, if it has a result.
pub(super) fn set(connection: &Connection, plan: &Plan, record: &Record) -> Result<()> {
    let Standing { result, features, tally, notes } = &record.standing;
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    connection.execute(
        "INSERT OR REPLACE INTO gpkg_geonce_load VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12,
         CASE WHEN ?13 IS NOT NULL THEN strftime('%Y-%m-%dT%H:%M:%fZ','now') END, ?13)",
        rusqlite::params![
            plan.load.text(Encoding::Base64),
            record.event,
            plan.layer,
            plan.mode.as_str(),
            record.made,
            number(*features),
            number(tally.inserted),
            number(tally.updated),
            number(tally.unchanged),
            number(tally.stale),
            notes,
            plan.begun.to_string(),
            result,
        ],
    )?;
    Ok(())
}
