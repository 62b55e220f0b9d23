//! A GeoPackage as the destination of a load: one transaction, or one for each part, on one connection.
//!
//! The file is locked for other writers while a transaction lasts. A layer that the load makes gets its R-tree at the end,
//! all at once (`rtree`). Rows: `write`; the record: `record`; taking the place of a layer: `replace`.

mod record;
mod replace;
mod rtree;
mod write;

use super::known::Known;
use super::slots::Slots;
use super::{Mode, Piece, Plan, Refused, Standing, Tally, Target, decide_crs};
use crate::error::{Error, Kind, Result};
use crate::sink::Columns;
use crate::sink::columns::{Change, NAME_BYTES_MAX, quoted};
use crate::sink::geopackage::Settings;
use crate::sink::geopackage::file::{self, failure};
use crate::sink::geopackage::geometry::Bounds;
use crate::sink::geopackage::layer::{self, Layer};
use crate::store::Answer;
use record::Record;
use rtree::Kept;
use rusqlite::{Connection, OptionalExtension};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A load, whose work is done on threads that may block.
struct GeoPackage {
    /// `None` while it is at work, and after work that was given up or failed.
    load: Option<Load>,
    known: Known,
    standing: Standing,
    crs: u32,
    place: String,
}

/// A load under way.
struct Load {
    connection: Connection,
    path: PathBuf,
    plan: Plan,
    /// Of the table that rows go into: the layer, or what will take its place.
    settings: Settings,
    record: Record,
    layer: Layer,
    slots: Slots,
    /// Whether a transaction is open.
    begun: bool,
    /// What became of the features of this transaction.
    tally: Tally,
    extent: Option<Bounds>,
    kept: Kept,
    /// What the layer holds of its entities, as long as nobody else can write.
    known: Known,
}

/// Opens the file for a load.
pub(super) async fn open(path: &Path, plan: Plan) -> Result<Box<dyn Target>> {
    check_name(&plan.layer)?;
    let place = format!("{} in {}", plan.layer, path.display());
    let path = path.to_owned();
    let opened = tokio::task::spawn_blocking(move || open_now(&path, plan)).await.map_err(|_| lost())??;
    Ok(Box::new(match opened {
        Opened::Finished { standing, crs } => GeoPackage { load: None, known: Known::default(), standing, crs, place },
        Opened::UnderWay(load) => {
            let (standing, crs) = (load.record.standing.clone(), load.settings.crs);
            GeoPackage { known: load.known.clone(), load: Some(*load), standing, crs, place }
        }
    }))
}

enum Opened {
    Finished { standing: Standing, crs: u32 },
    UnderWay(Box<Load>),
}

fn lost() -> Error {
    Error::new(Kind::Internal, "the load was given up after an error")
}

fn check_name(layer: &str) -> Result<()> {
    let lower = layer.to_ascii_lowercase();
    let reserved = ["gpkg_", "rtree_", "sqlite_", "geonce_"].iter().any(|prefix| lower.starts_with(prefix));
    if layer.trim().is_empty() || layer.len() > NAME_BYTES_MAX || layer.chars().any(char::is_control) || reserved {
        let what = format!("{layer:?} cannot be the name of a layer");
        return Err(Error::new(Kind::Invalid, what).hint("a name such as \"parcels\""));
    }
    Ok(())
}

fn open_now(path: &Path, plan: Plan) -> Result<Opened> {
    let is_new = !path.exists();
    let opened = begin(path, plan);
    if is_new && opened.is_err() {
        remove_empty(path);
    }
    opened
}

/// Takes away a file that was made for nothing.
fn remove_empty(path: &Path) {
    if std::fs::metadata(path).is_ok_and(|found| found.len() == 0) {
        // Whoever comes next opens it as well if it stays.
        let _ = std::fs::remove_file(path);
    }
}

fn begin(path: &Path, plan: Plan) -> Result<Opened> {
    let connection = file::connect(path, plan.timeout).map_err(|error| failure(path, "opening", &error))?;
    let doing = |error| failure(path, "beginning to write to", &error);
    // Dropping a table that others refer to by a foreign key would empty theirs, or be refused.
    connection.pragma_update(None, "foreign_keys", plan.mode != Mode::Replace).map_err(doing)?;
    connection.execute_batch("BEGIN IMMEDIATE").map_err(doing)?;
    file::initialise(&connection, path)?;
    record::create(&connection).map_err(doing)?;
    let found = find_crs(&connection, &plan.layer).map_err(doing)?;
    let place = format!("the layer {} of {}", plan.layer, path.display());
    let record = record::find(&connection, &plan).map_err(doing)?;
    if let Some(Record { standing, .. }) = &record
        && standing.result.is_some()
        && !plan.again
    {
        let crs = decide_crs(&place, found, None)?;
        return Ok(Opened::Finished { standing: standing.clone(), crs });
    }
    let replaces = plan.mode == Mode::Replace;
    let crs = match (replaces, plan.crs) {
        (true, Some(crs)) => decide_crs(&place, None, Some(crs))?,
        _ => decide_crs(&place, found, plan.crs)?,
    };
    let record = record.unwrap_or_else(|| Record::new(plan.event));
    let name = if replaces { replace::staging(&plan) } else { plan.layer.clone() };
    let settings = Settings {
        path: path.to_owned(),
        layer: name,
        mode: crate::sink::Mode::Append,
        columns: Arc::new(Columns::Auto { max: layer::DIALECT.columns_max }),
        crs,
        approximate_crs: false,
        timeout: plan.timeout,
    };
    let load = Load::new(connection, path, plan, settings, record, found.is_some())?;
    Ok(Opened::UnderWay(Box::new(load)))
}

/// The coordinate system of a layer that is there.
fn find_crs(connection: &Connection, layer: &str) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT s.organization_coordsys_id FROM gpkg_geometry_columns g JOIN gpkg_spatial_ref_sys s ON s.srs_id = g.srs_id
               WHERE lower(g.table_name) = lower(?1)";
    connection.query_row(sql, [layer], |row| row.get(0)).optional()
}

impl Load {
    /// Finds or makes the layer, within the transaction that has begun.
    fn new(
        connection: Connection,
        path: &Path,
        plan: Plan,
        settings: Settings,
        mut record: Record,
        was_there: bool,
    ) -> Result<Load> {
        let doing = |error| failure(path, "beginning to write to", &error);
        let replaces = plan.mode == Mode::Replace;
        let resumed = record.standing.features > 0 && record.standing.result.is_none();
        let is_there =
            if replaces { replace::resume(&connection, &settings, resumed).map_err(doing)? } else { was_there };
        if !(resumed && is_there) {
            let earlier = std::mem::replace(&mut record, Record::new(plan.event));
            if is_there && !replaces && plan.mode == Mode::Append && plan.again {
                remove_rows(&connection, &settings, &earlier.event)?;
            }
            record.made = !is_there;
        }
        let mut layer =
            if record.made { layer::open(&connection, &settings)? } else { layer::load(&connection, &settings)? };
        let mut change = Change::default();
        let slots = Slots::new(&mut layer.columns, &plan.fields, layer::DIALECT.has_json, &mut change);
        layer.change(&connection, &settings, &change).map_err(doing)?;
        let kept = if is_there { Kept::partial() } else { Kept::default() };
        record::set(&connection, &plan, &record).map_err(doing)?;
        let known = Known::expecting(plan.expected);
        Ok(Load {
            connection,
            path: path.to_owned(),
            plan,
            settings,
            record,
            layer,
            slots,
            begun: true,
            tally: Tally::default(),
            extent: None,
            kept,
            known,
        })
    }

    fn doing(&self, doing: &str) -> impl Fn(rusqlite::Error) -> Error + use<> {
        let (path, doing) = (self.path.clone(), doing.to_owned());
        move |error| failure(&path, &doing, &error)
    }

    /// Begins a part, if none has begun.
    fn begin(&mut self) -> Result<()> {
        if self.begun {
            return Ok(());
        }
        let doing = self.doing("going on writing to");
        self.connection.execute_batch("BEGIN IMMEDIATE").map_err(&doing)?;
        self.begun = true;
        let found = record::find(&self.connection, &self.plan).map_err(&doing)?;
        if found.is_none_or(|found| found.standing != self.record.standing) {
            let what = format!("another runner has gone on with the load into {}", self.path.display());
            return Err(Error::new(Kind::Unavailable, what).hint("one runner is enough; this one begins again"));
        }
        if self.plan.mode == Mode::Replace
            && !replace::resume(&self.connection, &self.settings, true).map_err(&doing)?
        {
            let what = format!("another load has taken the place of {} meanwhile", self.plan.layer);
            return Err(Error::new(Kind::Unavailable, what).hint("this one begins again"));
        }
        Ok(())
    }

    fn write(&mut self, pieces: &[Piece]) -> Result<Vec<Refused>> {
        self.begin()?;
        let doing = self.doing("writing to");
        write::pieces(self, pieces).map_err(doing)
    }

    /// Notes what was done, and commits.
    fn commit(&mut self, features: u64, notes: String) -> Result<()> {
        self.begin()?;
        let doing = self.doing("writing to");
        self.note(features, notes);
        if self.plan.mode == Mode::Replace {
            replace::hide(&self.connection, &self.settings.layer).map_err(&doing)?;
        } else {
            Layer::touch(&self.connection, &self.settings, self.extent).map_err(&doing)?;
        }
        record::set(&self.connection, &self.plan, &self.record).map_err(&doing)?;
        self.known.forget();
        self.connection.execute_batch("COMMIT").map_err(&doing)?;
        self.begun = false;
        Ok(())
    }

    fn note(&mut self, features: u64, notes: String) {
        let standing = &mut self.record.standing;
        standing.tally = standing.tally.plus(std::mem::take(&mut self.tally));
        (standing.features, standing.notes) = (features, notes);
    }

    fn finish(&mut self, features: u64, result: impl FnOnce(Tally) -> String) -> Result<Tally> {
        self.begin()?;
        let doing = self.doing("writing to");
        let notes = std::mem::take(&mut self.record.standing.notes);
        self.note(features, notes);
        if self.plan.mode == Mode::Replace {
            self.take_place().map_err(&doing)?;
        }
        if self.record.made {
            let (kept, extent) = (std::mem::take(&mut self.kept), self.extent);
            let connection = &self.connection;
            self.layer
                .add_indexes(connection, &self.settings, |boxes| kept.fill(connection, boxes, extent))
                .map_err(&doing)?;
            self.record.made = false;
        }
        Layer::touch(&self.connection, &self.settings, self.extent).map_err(&doing)?;
        let tally = self.record.standing.tally;
        self.record.standing.result = Some(result(tally));
        record::set(&self.connection, &self.plan, &self.record).map_err(&doing)?;
        self.connection.execute_batch("COMMIT").map_err(&doing)?;
        self.begun = false;
        // What is committed stays so; a journal that stays is empty.
        let _ = file::tidy(&self.connection);
        Ok(tally)
    }
}

/// Removes the rows of an earlier load.
fn remove_rows(connection: &Connection, settings: &Settings, event: &str) -> Result<()> {
    let layer = layer::load(connection, settings)?;
    let (table, fid) = (quoted(&settings.layer), quoted(&layer.fid));
    let rtree = quoted(&format!("rtree_{}_{}", settings.layer, layer.geometry));
    let remove = || {
        if layer.writes_rtree {
            let rows = format!("SELECT {fid} FROM {table} WHERE geonce_event = ?1");
            connection.execute(&format!("DELETE FROM {rtree} WHERE id IN ({rows})"), [event])?;
        }
        connection.execute(&format!("DELETE FROM {table} WHERE geonce_event = ?1"), [event])
    };
    remove().map(drop).map_err(|error| failure(&settings.path, "removing the rows of the earlier load from", &error))
}

impl GeoPackage {
    /// Does something on a thread that may block. A load that fails, or is not waited for, is undone as far as it is not
    /// committed.
    fn work<T: Send + 'static>(&mut self, work: impl FnOnce(&mut Load) -> Result<T> + Send + 'static) -> Answer<'_, T> {
        let load = self.load.take();
        Box::pin(async move {
            let mut load = load.ok_or_else(lost)?;
            let worked = tokio::task::spawn_blocking(move || work(&mut load).map(|answer| (load, answer)));
            let (load, answer) = worked.await.map_err(|_| lost())??;
            self.standing = load.record.standing.clone();
            self.load = Some(load);
            Ok(answer)
        })
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if self.begun {
            // A lost connection does the same.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        let _ = file::tidy(&self.connection);
        remove_empty(&self.path);
    }
}

impl Target for GeoPackage {
    fn crs(&self) -> u32 {
        self.crs
    }

    fn place(&self) -> String {
        self.place.clone()
    }

    fn standing(&self) -> &Standing {
        &self.standing
    }

    fn known(&self) -> Known {
        self.known.clone()
    }

    fn count_unchanged(&mut self, features: u64) {
        if let Some(load) = &mut self.load {
            load.tally.unchanged += features;
        }
    }

    fn write(&mut self, pieces: Vec<Piece>) -> Answer<'_, Vec<Refused>> {
        self.work(move |load| load.write(&pieces))
    }

    fn commit(&mut self, features: u64, notes: String) -> Answer<'_, ()> {
        self.work(move |load| load.commit(features, notes))
    }

    fn finish(&mut self, features: u64, result: Box<dyn FnOnce(Tally) -> String + Send>) -> Answer<'_, Tally> {
        self.work(move |load| load.finish(features, result))
    }
}
