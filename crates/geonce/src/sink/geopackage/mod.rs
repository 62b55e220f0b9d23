//! The GeoPackage sink: events or entities as rows of a layer that QGIS and GDAL read, each written once.
//!
//! One thread owns the one connection. A batch is one transaction: rows, R-tree, proofs, extent. Files: `file`; the layer:
//! `layer`, `geometry`; the proofs: `guard`; a batch: `write`.

pub(crate) mod file;
pub(crate) mod geometry;
pub(crate) mod guard;
pub(crate) mod layer;
mod write;

#[cfg(test)]
mod tests;

use super::columns;
use super::thread::{Blocking, Identity, spawn};
use super::{Columns, Mode, Options, Outgoing, Proof, Sink, Written};
use crate::error::{Error, Kind, Result};
use file::failure;
use geonce_key::Fingerprint;
use layer::Layer;
use rusqlite::{Connection, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The longest page of proofs.
const PROOFS_MAX: usize = 10_000;

/// What the sink was asked to do.
pub(crate) struct Settings {
    pub(crate) path: PathBuf,
    pub(crate) layer: String,
    pub(crate) mode: Mode,
    pub(crate) columns: Arc<Columns>,
    pub(crate) crs: u32,
    pub(crate) approximate_crs: bool,
    pub(crate) timeout: Duration,
}

/// A sink, whose file is opened when it is first needed and again after it failed.
struct GeoPackage {
    settings: Settings,
    open: Option<Open>,
    /// Whether the file was there once: then it is not made anew behind its owner's back.
    was_open: bool,
}

/// An open file.
struct Open {
    connection: Connection,
    identity: Option<Identity>,
    /// `None` until it is read, and after a transaction that may have changed it was rolled back.
    layer: Option<Layer>,
    /// The file's schema as we know it; another program that changes it changes this number.
    schema_version: i64,
}

/// Opens the sink. The file is opened here, so that a wrong one is told at once; one that is busy is waited for later.
pub(super) fn open(name: &str, path: &Path, options: &Options) -> Result<Arc<dyn Sink>> {
    let settings = settings(name, path, options)?;
    let mut sink = GeoPackage { settings, open: None, was_open: false };
    match sink.check() {
        Ok(_) => {}
        Err(error) if error.is_transient() => tracing::warn!(sink = name, %error, "the file is not ready yet"),
        Err(error) => return Err(error),
    }
    spawn(name, sink)
}

fn settings(name: &str, path: &Path, options: &Options) -> Result<Settings> {
    let layer = options.layer.clone().unwrap_or_else(|| name.to_owned());
    let lower = layer.to_ascii_lowercase();
    let reserved = ["gpkg_", "rtree_", "sqlite_", "geonce_"].iter().any(|prefix| lower.starts_with(prefix));
    if layer.trim().is_empty()
        || layer.len() > columns::NAME_BYTES_MAX
        || layer.chars().any(char::is_control)
        || reserved
    {
        return Err(
            Error::new(Kind::Invalid, format!("{layer:?} cannot be the name of a layer")).hint("layer = \"zones\"")
        );
    }
    if options.secret.is_some() || !options.allow.is_empty() {
        return Err(Error::new(Kind::Invalid, "a file has no use for secret or allow"));
    }
    let Some(crs) = geonce_key::crs::lookup(options.crs) else {
        return Err(Error::new(Kind::Invalid, format!("EPSG:{} is not a coordinate system of the table", options.crs)));
    };
    columns::check(&options.columns, &layer::DIALECT)?;
    Ok(Settings {
        path: path.to_owned(),
        layer,
        mode: options.mode,
        columns: Arc::new(options.columns.clone()),
        crs: crs.code(),
        approximate_crs: options.approximate_crs,
        timeout: options.timeout,
    })
}

impl GeoPackage {
    /// The open file, after seeing that it is still the one at its path.
    fn ready(&mut self) -> Result<(&Settings, &mut Open)> {
        let found = Identity::of(&self.settings.path);
        if self.open.as_ref().is_some_and(|open| open.identity != found) {
            // What is at the path now is another file, or none; ours is unlinked and nobody would see what we write.
            self.open = None;
        }
        if self.open.is_none() {
            if self.was_open && !self.settings.path.exists() {
                let what = format!("{} is gone", self.settings.path.display());
                return Err(Error::new(Kind::Unavailable, what).hint("put it back, or restart to begin a new file"));
            }
            self.open = Some(Open::new(&self.settings)?);
            self.was_open = true;
        }
        match &mut self.open {
            Some(open) => Ok((&self.settings, open)),
            None => Err(Error::new(Kind::Internal, "the file was opened and is not open")),
        }
    }

    /// Passes an answer on; after a failure of the file itself it is opened afresh next time.
    fn judged<T>(&mut self, answer: Result<T>) -> Result<T> {
        if answer.as_ref().is_err_and(|error| !matches!(error.kind(), Kind::Resource | Kind::Invalid)) {
            self.open = None;
        }
        answer
    }
}

impl Open {
    fn new(settings: &Settings) -> Result<Open> {
        let path = &settings.path;
        let connection = file::connect(path, settings.timeout).map_err(|error| failure(path, "opening", &error))?;
        let mut open = Open { connection, identity: None, layer: None, schema_version: -1 };
        open.with_layer(settings, |_, _| Ok(()))?;
        open.identity = Identity::of(path);
        Ok(open)
    }

    /// Does something in a transaction, with the layer as the file has it at that moment.
    fn with_layer<T>(
        &mut self,
        settings: &Settings,
        work: impl FnOnce(&rusqlite::Transaction<'_>, &mut Layer) -> Result<T>,
    ) -> Result<T> {
        let path = &settings.path;
        let known = self.layer.take().map(|layer| (self.schema_version, layer));
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|error| failure(path, "beginning to write to", &error))?;
        let version = |transaction: &rusqlite::Transaction<'_>| {
            let read = transaction.pragma_query_value(None, "schema_version", |row| row.get::<_, i64>(0));
            read.map_err(|error| failure(path, "reading", &error))
        };
        let current = version(&transaction)?;
        let mut layer = match known {
            Some((version, layer)) if version == current => layer,
            _ => {
                file::initialise(&transaction, path)?;
                layer::load(&transaction, settings)?
            }
        };
        let answer = work(&transaction, &mut layer)?;
        let current = version(&transaction)?;
        transaction.commit().map_err(|error| failure(path, "writing to", &error))?;
        self.layer = Some(layer);
        self.schema_version = current;
        Ok(answer)
    }
}

impl Blocking for GeoPackage {
    fn check(&mut self) -> Result<Vec<String>> {
        let checked = self.ready().and_then(|(settings, open)| {
            open.with_layer(settings, |_, _| Ok(()))?;
            let mode: String = open
                .connection
                .pragma_query_value(None, "journal_mode", |row| row.get(0))
                .map_err(|error| failure(&settings.path, "reading", &error))?;
            let mut notices = Vec::new();
            if mode.eq_ignore_ascii_case("wal") {
                let file = settings.path.display();
                notices.push(format!(
                    "{file} is open elsewhere in WAL mode: keep {file}-wal beside it until that program ends"
                ));
            }
            Ok(notices)
        });
        self.judged(checked)
    }

    fn write(&mut self, batch: Vec<Outgoing>) -> Result<Vec<Written>> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let written = self.ready().and_then(|(settings, open)| write::batch(settings, open, batch));
        self.judged(written)
    }

    fn proofs(&mut self, keys: &[Fingerprint]) -> Result<Vec<bool>> {
        let found = self.ready().and_then(|(settings, open)| {
            guard::decided(&open.connection, &settings.layer, keys.iter().map(Fingerprint::key))
                .map_err(|error| failure(&settings.path, "looking for keys in", &error))
        });
        self.judged(found)
    }

    fn applied(&mut self, after: Option<[u8; 16]>, limit: usize) -> Result<Vec<Proof>> {
        let found = self.ready().and_then(|(settings, open)| {
            guard::page(&open.connection, &settings.layer, after, limit.min(PROOFS_MAX))
                .map_err(|error| failure(&settings.path, "listing the keys in", &error))
        });
        self.judged(found)
    }

    fn close(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let path = &self.settings.path;
        file::tidy(&open.connection).map_err(|error| failure(path, "closing", &error))?;
        open.connection.close().map_err(|(_, error)| failure(path, "closing", &error))
    }

    fn abandon(&mut self) {
        self.open = None;
    }
}
