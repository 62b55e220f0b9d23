//! The file: opening it, making a new one a GeoPackage 1.3, refusing what is none, and the meaning of SQLite's errors.
//!
//! A rollback journal, synced: QGIS and GDAL read between our transactions, and a stop leaves one file behind.

use super::geometry;
use crate::error::{Error, Kind, Result};
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::path::Path;
use std::time::Duration;

/// `GPKG`, at byte 68 of the file.
const APPLICATION_ID: i64 = 0x4750_4B47;
/// Version 1.3.0: GDAL before 3.7, which is in stable distributions, warns about 1.4.
const USER_VERSION: i64 = 10_300;
/// Page cache in KiB. Keys are random: what does not fit is read again from the file for every batch.
const CACHE_KIB: i64 = 48 * 1024;
/// What the journal may keep of the disk between transactions.
const JOURNAL_BYTES_MAX: i64 = 32 * 1024 * 1024;
const STATEMENTS_MAX: usize = 32;

/// Clause 1.1.2, 1.1.3, 2.1.5 and 2.3 of the standard (OGC 12-128r17), with the constraints it asks for.
const SCHEMA: &str = "
CREATE TABLE gpkg_spatial_ref_sys (srs_name TEXT NOT NULL, srs_id INTEGER PRIMARY KEY, organization TEXT NOT NULL,
  organization_coordsys_id INTEGER NOT NULL, definition TEXT NOT NULL, description TEXT);
CREATE TABLE gpkg_contents (table_name TEXT NOT NULL PRIMARY KEY, data_type TEXT NOT NULL, identifier TEXT UNIQUE,
  description TEXT DEFAULT '', last_change DATETIME NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ','now')),
  min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE, srs_id INTEGER,
  CONSTRAINT fk_gc_r_srs_id FOREIGN KEY (srs_id) REFERENCES gpkg_spatial_ref_sys(srs_id));
CREATE TABLE gpkg_geometry_columns (table_name TEXT NOT NULL, column_name TEXT NOT NULL,
  geometry_type_name TEXT NOT NULL, srs_id INTEGER NOT NULL, z TINYINT NOT NULL, m TINYINT NOT NULL,
  CONSTRAINT pk_geom_cols PRIMARY KEY (table_name, column_name), CONSTRAINT uk_gc_table_name UNIQUE (table_name),
  CONSTRAINT fk_gc_tn FOREIGN KEY (table_name) REFERENCES gpkg_contents(table_name),
  CONSTRAINT fk_gc_srs FOREIGN KEY (srs_id) REFERENCES gpkg_spatial_ref_sys (srs_id));
INSERT INTO gpkg_spatial_ref_sys VALUES
  ('Undefined Cartesian SRS', -1, 'NONE', -1, 'undefined', 'undefined Cartesian coordinate reference system'),
  ('Undefined geographic SRS', 0, 'NONE', 0, 'undefined', 'undefined geographic coordinate reference system');
";
const EXTENSIONS: &str = "
CREATE TABLE IF NOT EXISTS gpkg_extensions (table_name TEXT, column_name TEXT, extension_name TEXT NOT NULL,
  definition TEXT NOT NULL, scope TEXT NOT NULL, CONSTRAINT ge_tce UNIQUE (table_name, column_name, extension_name));
";

/// Opens or creates the file, without looking at what is in it.
pub(crate) fn connect(path: &Path, timeout: Duration) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(timeout)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // A journal that stays spares the file system its blocks for every transaction (a tenth of the processor time, and
    // cheaper syncs); between transactions its header is zero, so nobody takes it for a crash. `tidy` takes it away.
    connection.pragma_update_and_check(None, "journal_mode", "PERSIST", |_| Ok(()))?;
    connection.pragma_update_and_check(None, "journal_size_limit", JOURNAL_BYTES_MAX, |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // Does nothing except on systems where a sync would stop at the drive's cache.
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    add_functions(&connection)?;
    Ok(connection)
}

/// Takes away the journal, so that the file is all there is. Another program that has the file open may prevent it.
pub(crate) fn tidy(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(()))
}

/// The functions that the triggers of the R-tree extension call.
fn add_functions(connection: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_INNOCUOUS;
    for (index, name) in ["ST_MinX", "ST_MaxX", "ST_MinY", "ST_MaxY"].into_iter().enumerate() {
        connection.create_scalar_function(name, 1, flags, move |context| {
            Ok(geometry::read_bounds(context.get_raw(0).as_blob().unwrap_or(&[])).map(|bounds| bounds[index]))
        })?;
    }
    connection.create_scalar_function("ST_IsEmpty", 1, flags, |context| {
        Ok(geometry::read_bounds(context.get_raw(0).as_blob().unwrap_or(&[])).is_none())
    })
}

/// Makes a new file a GeoPackage, and refuses another program's database.
pub(crate) fn initialise(transaction: &Connection, path: &Path) -> Result<()> {
    let doing = |error| failure(path, "looking into", &error);
    let count = |sql: &str| transaction.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(doing);
    let tables = count("SELECT count(*) FROM sqlite_master")?;
    let required = count(
        "SELECT count(*) FROM sqlite_master WHERE type IN ('table', 'view')
         AND name IN ('gpkg_contents', 'gpkg_spatial_ref_sys', 'gpkg_geometry_columns')",
    )?;
    if tables == 0 {
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(doing)?;
        transaction.pragma_update(None, "user_version", USER_VERSION).map_err(doing)?;
        transaction.execute_batch(SCHEMA).map_err(doing)?;
        add_srs(transaction, 4326).map_err(doing)?;
    } else if required < 3 {
        let what = format!("{} is a database, but no GeoPackage with features", path.display());
        return Err(Error::new(Kind::Incompatible, what).hint("give the sink a file of its own; nothing was changed"));
    }
    transaction.execute_batch(EXTENSIONS).map_err(doing)
}

/// Describes a coordinate system to the file, unless it knows it.
pub(crate) fn add_srs(transaction: &Connection, code: u32) -> rusqlite::Result<()> {
    let crs = geonce_key::crs::lookup(code);
    let name = crs.as_ref().map_or_else(|| format!("EPSG:{code}"), |crs| crs.name().to_owned());
    let definition = crs.as_ref().and_then(geonce_key::crs::Crs::wkt).unwrap_or_else(|| "undefined".to_owned());
    transaction.execute(
        "INSERT OR IGNORE INTO gpkg_spatial_ref_sys VALUES (?1, ?2, 'EPSG', ?2, ?3, 'x and y, in this order')",
        (name, code, definition),
    )?;
    Ok(())
}

/// What an error of SQLite means for whoever waits.
pub(crate) fn kind(error: &rusqlite::Error) -> Kind {
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::CannotOpen
            | ErrorCode::SystemIoFailure
            | ErrorCode::FileLockingProtocolFailed,
        ) => Kind::Unavailable,
        Some(ErrorCode::DiskFull | ErrorCode::OutOfMemory) => Kind::Resource,
        Some(ErrorCode::PermissionDenied | ErrorCode::ReadOnly | ErrorCode::AuthorizationForStatementDenied) => {
            Kind::Permission
        }
        Some(ErrorCode::DatabaseCorrupt) => Kind::Corrupt,
        Some(ErrorCode::NotADatabase | ErrorCode::SchemaChanged | ErrorCode::Unknown) => Kind::Incompatible,
        _ => Kind::Internal,
    }
}

/// Whether it is the row that SQLite refuses, rather than everything.
pub(crate) fn is_about_the_row(error: &rusqlite::Error) -> bool {
    use ErrorCode::{ConstraintViolation, TooBig, TypeMismatch};
    matches!(error.sqlite_error_code(), Some(ConstraintViolation | TooBig | TypeMismatch))
}

/// A failure while `doing` something to the file.
pub(crate) fn failure(path: &Path, doing: &str, error: &rusqlite::Error) -> Error {
    let kind = kind(error);
    let failed = Error::new(kind, format!("{doing} {}", path.display())).because(error.to_string());
    match kind {
        Kind::Unavailable => failed.hint("another program may be holding the file; it is tried again"),
        Kind::Resource => failed.hint("make room on the disk; it is tried again"),
        Kind::Permission => failed.hint("the file and its folder must be writable"),
        Kind::Corrupt => failed.hint("PRAGMA integrity_check tells more; restore the file from a copy"),
        Kind::Incompatible => failed.hint("is it a GeoPackage?"),
        _ => failed,
    }
}
