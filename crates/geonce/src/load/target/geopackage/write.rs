//! Rows of a load: each a statement of its own, which SQLite refuses alone.

use super::Load;
use super::rtree::Kept;
use crate::clock::Timestamp;
use crate::event::{Cause, Class};
use crate::load::target::known::{Contents, ENTITIES_MAX, Known, Wish, short};
use crate::load::target::slots::Slots;
use crate::load::target::{Mode, Piece, Refused, Tally, key_characters};
use crate::sink::columns::{Change, Value};
use crate::sink::geopackage::file::is_about_the_row;
use crate::sink::geopackage::geometry::{self, Bounds};
use crate::sink::geopackage::guard::Guard;
use crate::sink::geopackage::layer::Layer;
use crate::sink::version::{self, Claim, Held, Order};
use geonce_key::{Encoding, Fingerprint};
use rusqlite::{CachedStatement, Connection, Result};
use std::hash::BuildHasherDefault;

/// Writes features; those that are refused.
pub(super) fn pieces(load: &mut Load, pieces: &[Piece]) -> Result<Vec<Refused>> {
    let mut refused = Vec::new();
    let mut rest = pieces;
    while !rest.is_empty() {
        let done = part(load, rest, &mut refused)?;
        rest = &rest[done..];
        if !rest.is_empty() {
            // The next one has something to say for which there is no column yet.
            let mut change = Change::default();
            load.layer.columns.declare_other(&mut change);
            load.layer.change(&load.connection, &load.settings, &change)?;
        }
    }
    Ok(refused)
}

/// Reads what the layer holds of all its entities, once that is worth it.
fn learn(known: &Known, connection: &Connection, layer: i64, batch: usize) -> Result<()> {
    let mut wish = known.wish(batch);
    if matches!(wish, Wish::Count) {
        let sql = "SELECT count(*) FROM (SELECT 1 FROM gpkg_geonce_entity WHERE layer = ?1 LIMIT ?2)";
        let limit = i64::try_from(ENTITIES_MAX + 1).unwrap_or(i64::MAX);
        let count: i64 = connection.query_row(sql, (layer, limit), |row| row.get(0))?;
        wish = known.counted(u64::try_from(count).unwrap_or(u64::MAX));
    }
    let Wish::Read(entities) = wish else { return Ok(()) };
    let entities = usize::try_from(entities).unwrap_or(0);
    let mut all = Contents::with_capacity_and_hasher(entities, BuildHasherDefault::default());
    let mut statement = connection
        .prepare("SELECT entity, content, fid IS NULL OR deleted FROM gpkg_geonce_entity WHERE layer = ?1")?;
    let mut rows = statement.query([layer])?;
    while let Some(row) = rows.next()? {
        let (entity, content) = (row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?);
        // An entity that is gone has no content that a feature could have.
        let content = if row.get(2)? { None } else { content.get(..16).and_then(|first| first.try_into().ok()) };
        all.insert(short(entity), content.unwrap_or_default());
    }
    known.read(all);
    Ok(())
}

/// What became of a feature.
enum Did {
    Written,
    Refused(Cause),
    /// Nothing yet: it has something to say for which there is no column.
    Nothing,
}

/// Writes features up to one that needs another column; how many.
fn part(load: &mut Load, pieces: &[Piece], refused: &mut Vec<Refused>) -> Result<usize> {
    let Load { connection, layer, slots, settings, record, plan, tally, extent, kept, known, .. } = load;
    if pieces.iter().any(|piece| piece.entity.is_some()) {
        learn(known, connection, layer.id, pieces.len())?;
    }
    let mut writer = Writer {
        crs: settings.crs,
        mode: plan.mode,
        begun: plan.begun,
        event: &record.event,
        made: record.made,
        slots,
        guard: Guard::new(connection, layer.id)?,
        insert: connection.prepare_cached(&layer.insert)?,
        update: connection.prepare_cached(&layer.update)?,
        arrival: layer.arrival,
        blob: Vec::new(),
        key: String::new(),
        other: String::new(),
        tally,
        extent,
        kept,
        known,
        layer,
        connection,
    };
    let mut done = 0;
    for piece in pieces {
        let cause = match writer.write(piece) {
            Ok(Did::Written) => None,
            Ok(Did::Nothing) => break,
            Ok(Did::Refused(cause)) => Some(cause),
            // The statement undid itself, unless a trigger of the layer's owner undid everything.
            Err(error) if is_about_the_row(&error) && !writer.connection.is_autocommit() => {
                Some(Cause::new(Class::Constraint, "constraint", error.to_string()))
            }
            Err(error) => return Err(error),
        };
        refused.extend(cause.map(|cause| Refused { number: piece.number, cause }));
        done += 1;
    }
    let arrival = writer.arrival;
    drop(writer);
    layer.arrival = arrival;
    Ok(done)
}

/// The statements and buffers of a batch.
struct Writer<'l> {
    connection: &'l Connection,
    layer: &'l Layer,
    slots: &'l Slots,
    crs: u32,
    mode: Mode,
    begun: Timestamp,
    event: &'l str,
    made: bool,
    guard: Guard<'l>,
    insert: CachedStatement<'l>,
    update: CachedStatement<'l>,
    arrival: i64,
    blob: Vec<u8>,
    key: String,
    other: String,
    tally: &'l mut Tally,
    extent: &'l mut Option<Bounds>,
    kept: &'l mut Kept,
    known: &'l Known,
}

impl Writer<'_> {
    fn write(&mut self, piece: &Piece) -> Result<Did> {
        let as_multi = match piece.geometry.as_ref().map(|shape| self.layer.admits(shape)) {
            None => false,
            Some(Ok(as_multi)) => as_multi,
            Some(Err(cause)) => return Ok(Did::Refused(cause)),
        };
        match self.mode {
            Mode::Replace if piece.entity.is_some() => self.upsert(piece, as_multi, piece.version.is_none()),
            Mode::Append | Mode::Replace => {
                let Some((bounds, _)) = self.encode(piece, as_multi, false)? else { return Ok(Did::Nothing) };
                self.insert_row(bounds)?;
                self.tally.inserted += 1;
                Ok(Did::Written)
            }
            Mode::Upsert { arrival } => self.upsert(piece, as_multi, arrival),
        }
    }

    fn upsert(&mut self, piece: &Piece, as_multi: bool, arrival: bool) -> Result<Did> {
        let Some(entity) = piece.entity.as_ref().map(Fingerprint::digest) else {
            return Ok(Did::Refused(version::no_entity()));
        };
        if self.known.is_unchanged(entity, &piece.content) {
            self.tally.unchanged += 1;
            return Ok(Did::Written);
        }
        let held = if self.known.is_new(entity) { None } else { self.guard.entity(entity)? };
        // Without versions the later load wins, also over one that took the entity away.
        let is_gone = |held: &Held| arrival && held.fid.is_none();
        if held.as_ref().is_some_and(|held| held.content == piece.content && !is_gone(held)) {
            self.tally.unchanged += 1;
            return Ok(Did::Written);
        }
        let number = arrival.then(|| i128::from(self.arrival) + 1);
        let key = piece.key.key();
        let claim = Claim { version: piece.version.as_ref(), key, content: &piece.content, received: self.begun };
        let version = match version::order_claim(&claim, number, held.as_ref()) {
            Err(cause) => return Ok(Did::Refused(cause)),
            Ok(Order::Older) => {
                self.tally.stale += 1;
                return Ok(Did::Written);
            }
            Ok(Order::Same) => {
                self.tally.unchanged += 1;
                return Ok(Did::Written);
            }
            Ok(Order::Newer(version)) => version,
        };
        let updated = match held {
            Some(Held { fid: Some(fid), key, .. }) => match self.update_row(piece, as_multi, fid, key)? {
                None => return Ok(Did::Nothing),
                Some(true) => Some(fid),
                Some(false) => None,
            },
            _ => None,
        };
        let fid = if let Some(fid) = updated {
            self.tally.updated += 1;
            fid
        } else {
            let Some((bounds, _)) = self.encode(piece, as_multi, false)? else { return Ok(Did::Nothing) };
            let fid = self.insert_row(bounds)?;
            self.tally.inserted += 1;
            fid
        };
        self.guard.set_entity(entity, &version, key, &piece.content, fid)?;
        self.known.note(std::iter::once((entity, &piece.content)));
        self.arrival += i64::from(arrival);
        Ok(Did::Written)
    }

    fn insert_row(&mut self, bounds: Option<Bounds>) -> Result<i64> {
        self.insert.raw_execute()?;
        let fid = self.connection.last_insert_rowid();
        self.note(fid, bounds)?;
        Ok(fid)
    }

    /// Writes over the row of an entity; false where it is gone, or is another row by now.
    fn update_row(&mut self, piece: &Piece, as_multi: bool, fid: i64, old_key: [u8; 16]) -> Result<Option<bool>> {
        let Some((bounds, parameters)) = self.encode(piece, as_multi, true)? else { return Ok(None) };
        self.update.raw_bind_parameter(parameters + 1, fid)?;
        self.update.raw_bind_parameter(parameters + 2, key_characters(old_key))?;
        // Moving a box within the R-tree takes longer than all the rest.
        let stays = !self.made && self.has_geometry(fid)?;
        if self.update.raw_execute()? == 0 {
            return Ok(Some(false));
        }
        if stays {
            return Ok(Some(true));
        }
        if self.made {
            // Its box from before is among those that are kept; the rows are asked in the end.
            *self.kept = Kept::partial();
        }
        self.note(fid, bounds)?;
        if bounds.is_none() && self.layer.writes_rtree {
            self.connection.prepare_cached(&self.layer.delete_rtree)?.execute([fid])?;
        }
        Ok(Some(true))
    }

    /// Whether a row has the geometry that was encoded last.
    fn has_geometry(&self, fid: i64) -> Result<bool> {
        let blob = Some(self.blob.as_slice()).filter(|blob| !blob.is_empty());
        self.connection.prepare_cached(&self.layer.has_geometry)?.exists((fid, blob))
    }

    /// Where a row is, for the R-tree and the extent.
    fn note(&mut self, fid: i64, bounds: Option<Bounds>) -> Result<()> {
        let Some(bounds) = bounds else { return Ok(()) };
        *self.extent = geometry::join(*self.extent, Some(bounds));
        if self.made {
            self.kept.add(fid, bounds);
        } else if self.layer.writes_rtree {
            let [min_x, max_x, min_y, max_y] = bounds;
            let mut statement = self.connection.prepare_cached(&self.layer.insert_rtree)?;
            statement.execute((fid, min_x, max_x, min_y, max_y))?;
        }
        Ok(())
    }

    /// Binds a row to the statement that inserts it, or to that which updates it. Its bounds, and how many parameters it has;
    /// none where something of it has no place.
    fn encode(&mut self, piece: &Piece, as_multi: bool, update: bool) -> Result<Option<(Option<Bounds>, usize)>> {
        self.blob.clear();
        let shape = piece.geometry.as_ref();
        let bounds = shape.and_then(|shape| geometry::write(shape, self.crs, as_multi, &mut self.blob));
        self.key.clear();
        piece.key.write(Encoding::Base64, &mut self.key);
        let statement = if update { &mut self.update } else { &mut self.insert };
        statement.clear_bindings();
        if !self.blob.is_empty() {
            statement.raw_bind_parameter(1, self.blob.as_slice())?;
        }
        statement.raw_bind_parameter(2, self.key.as_str())?;
        statement.raw_bind_parameter(3, self.event)?;
        let columns = &self.layer.columns;
        self.slots.each(columns, &piece.values, &mut self.other, |column, value: Value<'_>| {
            statement.raw_bind_parameter(4 + column, value)
        })?;
        if !self.other.is_empty() {
            if !columns.has_other() {
                return Ok(None);
            }
            statement.raw_bind_parameter(4 + columns.list().len(), self.other.as_str())?;
        }
        Ok(Some((bounds, self.layer.parameters())))
    }
}
