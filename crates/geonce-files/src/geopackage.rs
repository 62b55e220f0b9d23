//! GeoPackages (OGC 12-128): a SQLite file with tables of features, read in the order of their row ids.
//!
//! Opened for reading only and never written beside; a journal that waits to be taken in (-wal) is read with it. Row ids are
//! no content, so they are no field. The file is not trusted: its views may not loop, and damage is an error.

mod blob;
mod layer;

use crate::value::{self, Fault, Read};
use crate::{Error, FieldKind, File, Format, Item, Options, Result, Row, Rows};
use geonce_key::{Limits, Property};
use layer::{Column, Plan};
use rusqlite::config::DbConfig;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, InterruptHandle, OpenFlags};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// The largest value and the largest row that are read at all.
const ROW_BYTES_MAX: i32 = 256 << 20;
/// Features that are handed over at once.
const BATCH_ROWS_MAX: usize = 512;
/// About how large they may be together.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Batches that wait to be taken.
const BATCHES_WAITING_MAX: usize = 4;
/// The place in a SQLite file that says whether it is written through a -wal.
const FORMAT_VERSIONS_AT: usize = 18;
const FORMAT_VERSION_WAL: u8 = 2;

/// Opens a GeoPackage.
pub(crate) fn open(path: &Path, options: &Options) -> Result<File> {
    let (connection, parts) = connect(path)?;
    let (layer, plan) = layer::find(&connection, options.layer.as_deref())?;
    let rows = Batches::start(connection, plan, options.limits.clone())?;
    Ok(File { format: Format::GeoPackage, layer, parts, rows: Box::new(rows) })
}

/// A failure of SQLite, while doing this.
fn failure(doing: &str, error: &rusqlite::Error) -> Error {
    let (code, what) = match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => ("gpkg_not_sqlite", "it is no SQLite file".to_owned()),
        Some(ErrorCode::DatabaseCorrupt) => ("gpkg_damaged", "the file is damaged".to_owned()),
        Some(ErrorCode::TooBig) => ("gpkg_row_too_large", format!("a row is larger than {ROW_BYTES_MAX} bytes")),
        Some(ErrorCode::ReadOnly) => {
            let error =
                Error::new("gpkg_unfinished", format!("{doing}: another program has not finished writing the file"));
            return error.hint("open it once in the program that wrote it, such as QGIS, and close it again");
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            ("gpkg_busy", "another program is writing the file".to_owned())
        }
        _ => ("gpkg_read", error.to_string()),
    };
    Error::new(code, format!("{doing}: {what}"))
}

fn connect(path: &Path) -> Result<(Connection, Vec<PathBuf>)> {
    let doing = "opening the GeoPackage";
    let unreadable = |error: std::io::Error| Error::new("file_unreadable", format!("{}: {error}", path.display()));
    let mut head = Vec::with_capacity(FORMAT_VERSIONS_AT + 2);
    std::fs::File::open(path)
        .map_err(unreadable)?
        .take(FORMAT_VERSIONS_AT as u64 + 2)
        .read_to_end(&mut head)
        .map_err(unreadable)?;

    let mut journal = OsString::from(path);
    journal.push("-wal");
    let journal = PathBuf::from(journal);
    let waiting = std::fs::metadata(&journal).is_ok_and(|found| found.len() > 0);
    // SQLite would make the files of a journal beside the source, or fail where the folder cannot be written to.
    let alone = head.get(FORMAT_VERSIONS_AT) == Some(&FORMAT_VERSION_WAL) && !waiting;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(uri(path, alone), flags).map_err(|e| failure(doing, &e))?;
    guard(&mut connection).map_err(|e| failure(doing, &e))?;
    // One transaction for everything, so that the layer and its rows belong together.
    connection.execute_batch("BEGIN").map_err(|e| failure(doing, &e))?;
    let parts = if waiting { vec![path.to_owned(), journal] } else { vec![path.to_owned()] };
    Ok((connection, parts))
}

/// The file as SQLite is told of it. Without `mode=ro` a flag alone would not keep it from being made.
fn uri(path: &Path, alone: bool) -> String {
    let mut uri = String::from("file:");
    for &byte in path.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'-' | b'_') {
            uri.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri.push_str(if alone { "?mode=ro&immutable=1" } else { "?mode=ro" });
    uri
}

/// Takes away what a hostile schema could use.
fn guard(connection: &mut Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, ROW_BYTES_MAX)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    // A view that calls itself may give rows for ever.
    connection.authorizer(Some(|context: AuthContext<'_>| match context.action {
        AuthAction::Recursive => Authorization::Deny,
        _ => Authorization::Allow,
    }))
}

/// Features read ahead by a thread of their own: a query of SQLite cannot be kept beside its connection.
struct Batches {
    ready: std::vec::IntoIter<Item>,
    /// None once the end or an error was given.
    coming: Option<Receiver<Result<Vec<Item>>>>,
    interrupt: InterruptHandle,
    thread: Option<JoinHandle<()>>,
}

impl Batches {
    fn start(connection: Connection, plan: Plan, limits: Limits) -> Result<Batches> {
        let (sender, coming) = sync_channel(BATCHES_WAITING_MAX);
        let interrupt = connection.get_interrupt_handle();
        let thread = std::thread::Builder::new()
            .name("geopackage".to_owned())
            .spawn(move || {
                if let Err(error) = read(&connection, &plan, &limits, &sender) {
                    // Nobody waits for it where sending fails.
                    let _ = sender.send(Err(error));
                }
            })
            .map_err(|error| Error::new("thread", format!("starting a thread that reads the GeoPackage: {error}")))?;
        Ok(Batches { ready: Vec::new().into_iter(), coming: Some(coming), interrupt, thread: Some(thread) })
    }
}

impl Rows for Batches {
    fn next(&mut self) -> Result<Option<Item>> {
        loop {
            if let Some(item) = self.ready.next() {
                return Ok(Some(item));
            }
            let Some(coming) = &self.coming else { return Ok(None) };
            match coming.recv() {
                // The end is told by an empty batch: a thread that just went away has not reached it.
                Ok(Ok(batch)) if batch.is_empty() => self.coming = None,
                Ok(Ok(batch)) => self.ready = batch.into_iter(),
                Ok(Err(error)) => {
                    self.coming = None;
                    return Err(error);
                }
                Err(_) => {
                    self.coming = None;
                    return Err(Error::new("gpkg_read", "the thread that reads the GeoPackage ended early"));
                }
            }
        }
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.coming = None;
        self.interrupt.interrupt();
        if let Some(thread) = self.thread.take() {
            // Its result went through the channel.
            let _ = thread.join();
        }
    }
}

/// Reads all rows and sends them on, until the other side has gone away.
fn read(connection: &Connection, plan: &Plan, limits: &Limits, sender: &SyncSender<Result<Vec<Item>>>) -> Result<()> {
    let doing = "reading the GeoPackage";
    let mut statement = connection.prepare(&plan.select).map_err(|e| failure(doing, &e))?;
    let mut rows = statement.query([]).map_err(|e| failure(doing, &e))?;
    let mut batch = Vec::with_capacity(BATCH_ROWS_MAX);
    let (mut bytes, mut number, mut last) = (0, 0, None);
    while let Some(row) = rows.next().map_err(|e| failure(doing, &e))? {
        number += 1;
        if plan.has_row_id {
            let id = row.get::<_, i64>(0).map_err(|e| failure(doing, &e))?;
            // Damage can make a tree of pages a ring, which would be read for ever.
            if last.is_some_and(|last| last >= id) {
                return Err(Error::new(
                    "gpkg_damaged",
                    format!("{doing}: row {id} is out of order, the file is damaged"),
                ));
            }
            last = Some(id);
        }
        bytes += item(row, plan, limits, number, &mut batch).map_err(|e| failure(doing, &e))?;
        if batch.len() >= BATCH_ROWS_MAX || bytes >= BATCH_BYTES_MAX {
            let full = std::mem::replace(&mut batch, Vec::with_capacity(BATCH_ROWS_MAX));
            if sender.send(Ok(full)).is_err() {
                return Ok(());
            }
            bytes = 0;
        }
    }
    if !batch.is_empty() {
        let _ = sender.send(Ok(batch));
    }
    let _ = sender.send(Ok(Vec::new()));
    Ok(())
}

/// Reads one row and says about how large it is. After the row id come the geometry and the fields.
fn item(
    row: &rusqlite::Row<'_>,
    plan: &Plan,
    limits: &Limits,
    number: u64,
    batch: &mut Vec<Item>,
) -> rusqlite::Result<usize> {
    let first = usize::from(plan.has_row_id);
    let found = row.get_ref(first)?;
    let mut bytes = size(found);
    let mut values = Vec::with_capacity(plan.columns.len());
    let mut fault = None;
    let geometry = match found {
        ValueRef::Null => None,
        ValueRef::Blob(blob) => blob::geometry(blob, limits).map_err(|e| fault = Some(e)).ok(),
        _ => {
            fault = Some(Fault::new("gpkg_blob", "geometry: it is not kept as a GeoPackage geometry"));
            None
        }
    };
    for (index, column) in plan.columns.iter().enumerate() {
        let found = row.get_ref(first + 1 + index)?;
        bytes += size(found);
        if fault.is_none() {
            match property(found, column) {
                Ok(value) => values.push(value),
                Err(error) => fault = Some(error.of(&column.field.name)),
            }
        }
    }
    batch.push(match fault {
        None => Item::Row(Row { number, id: None, geometry, values, text: None }),
        Some(fault) => fault.item(number, original(row, plan)?),
    });
    Ok(bytes)
}

fn size(value: ValueRef<'_>) -> usize {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
        _ => 8,
    }
}

/// A row that could not be read, as far as it can be shown.
fn original(row: &rusqlite::Row<'_>, plan: &Plan) -> rusqlite::Result<Vec<u8>> {
    let first = usize::from(plan.has_row_id);
    let mut values = Vec::with_capacity(plan.columns.len() + 1);
    if plan.has_row_id {
        values.push((plan.row_id_name.as_str(), shown(row.get_ref(0)?)));
    }
    for (index, column) in plan.columns.iter().enumerate() {
        values.push((column.field.name.as_str(), shown(row.get_ref(first + 1 + index)?)));
    }
    let geometry = match row.get_ref(first)? {
        ValueRef::Blob(bytes) | ValueRef::Text(bytes) => Some(bytes),
        _ => None,
    };
    Ok(value::original(values.into_iter(), geometry))
}

fn shown(found: ValueRef<'_>) -> Property {
    match found {
        ValueRef::Null => Property::Null,
        ValueRef::Integer(integer) => Property::Integer(integer),
        ValueRef::Real(real) => Property::Real(real),
        ValueRef::Text(text) => Property::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => value::binary(bytes),
    }
}

/// A value of a column. SQLite keeps any value in any column; one that means the same in the column's kind is taken for it, and
/// an empty text is nothing where the column has no text.
fn property(found: ValueRef<'_>, column: &Column) -> Read<Property> {
    if column.is_binary {
        return Ok(match found {
            ValueRef::Blob(bytes) | ValueRef::Text(bytes) => value::binary(bytes),
            other => shown(other),
        });
    }
    let kind = column.field.kind;
    match found {
        ValueRef::Null => Ok(Property::Null),
        ValueRef::Integer(integer) => of_integer(integer, kind),
        ValueRef::Real(real) => of_real(real, kind),
        ValueRef::Text(bytes) => of_text(value::text(bytes)?, kind),
        ValueRef::Blob(bytes) if kind == FieldKind::Text => Ok(value::binary(bytes)),
        ValueRef::Blob(bytes) => Err(value::unfit(&format!("a blob of {} bytes", bytes.len()), name(kind))),
    }
}

fn of_integer(integer: i64, kind: FieldKind) -> Read<Property> {
    match (kind, integer) {
        (FieldKind::Integer | FieldKind::Real | FieldKind::Json, _) => Ok(Property::Integer(integer)),
        (FieldKind::Boolean, 0 | 1) => Ok(Property::Boolean(integer == 1)),
        (FieldKind::Text, _) => Ok(Property::Text(integer.to_string())),
        _ => Err(value::unfit(&integer.to_string(), name(kind))),
    }
}

fn of_real(real: f64, kind: FieldKind) -> Read<Property> {
    /// Up to here every whole number has a double of its own.
    const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
    match kind {
        FieldKind::Real | FieldKind::Json => value::real(real),
        FieldKind::Text => Ok(Property::Text(real.to_string())),
        #[expect(clippy::cast_possible_truncation, reason = "whole numbers of 53 bits only")]
        FieldKind::Integer if real.fract() == 0.0 && real.abs() <= WHOLE_MAX => Ok(Property::Integer(real as i64)),
        _ => Err(value::unfit(&real.to_string(), name(kind))),
    }
}

fn of_text(text: &str, kind: FieldKind) -> Read<Property> {
    let number = text.trim();
    match kind {
        FieldKind::Text => Ok(Property::Text(text.to_owned())),
        FieldKind::Date => value::date(text),
        FieldKind::DateTime => value::date_time(text),
        FieldKind::Json => value::json(text),
        _ if number.is_empty() => Ok(Property::Null),
        FieldKind::Integer => number.parse().map(Property::Integer).map_err(|_| value::unfit(text, name(kind))),
        FieldKind::Real => match number.parse::<f64>() {
            Ok(real) if real.is_finite() => Ok(Property::Real(real)),
            _ => Err(value::unfit(text, name(kind))),
        },
        FieldKind::Boolean => Err(value::unfit(text, name(kind))),
    }
}

fn name(kind: FieldKind) -> &'static str {
    match kind {
        FieldKind::Boolean => "truth value",
        FieldKind::Integer => "whole number",
        FieldKind::Real => "number",
        FieldKind::Text => "text",
        FieldKind::Date => "date",
        FieldKind::DateTime => "date and time",
        FieldKind::Json => "JSON",
    }
}

#[cfg(test)]
mod tests;
