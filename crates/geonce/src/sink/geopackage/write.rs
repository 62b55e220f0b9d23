//! A batch: one transaction, one answer for each event.
//!
//! Batches are first written as a whole. If SQLite refuses a row the transaction is undone and repeated with a savepoint
//! around each event; if a trigger undoes even that, with a transaction for each event.

use super::file::{failure, is_about_the_row};
use super::geometry::{self, Bounds};
use super::guard::Guard;
use super::layer::Layer;
use super::{Open, Settings};
use crate::error::{Error, Result};
use crate::event::{Cause, Class, Outcome};
use crate::sink::columns::Change;
use crate::sink::version::{self, Held, Order};
use crate::sink::{Mode, Outgoing, Written};
use geonce_key::Encoding;
use rusqlite::{CachedStatement, Transaction};
use std::fmt::Write as _;

/// The end of a key's text that is the key itself, after `g1_` or `g1k_`.
const KEY_CHARACTERS: usize = 22;

/// Why a batch was not written.
enum Failure {
    /// A row was refused: once more, with more care.
    Row(rusqlite::Error),
    /// Nothing can be written.
    File(Error),
}

#[derive(Clone, Copy, PartialEq)]
enum Care {
    None,
    Savepoints,
}

/// Writes a batch.
pub(super) fn batch(settings: &Settings, open: &mut Open, mut batch: Vec<Outgoing>) -> Result<Vec<Written>> {
    let causes: Vec<Option<Cause>> = batch.iter_mut().map(|outgoing| prepare(settings, outgoing).err()).collect();
    for care in [Care::None, Care::Savepoints] {
        match attempt(settings, open, &batch, &causes, care) {
            Ok(written) => return Ok(written),
            Err(Failure::File(error)) => return Err(error),
            Err(Failure::Row(_)) => {}
        }
    }
    let one_by_one = batch.iter().zip(&causes).map(|(outgoing, cause)| {
        let (outgoing, cause) = (std::slice::from_ref(outgoing), std::slice::from_ref(cause));
        match attempt(settings, open, outgoing, cause, Care::None) {
            Ok(written) => Ok(written.into_iter().next().unwrap_or_else(|| Written::Dead(no_answer()))),
            Err(Failure::File(error)) => Err(error),
            Err(Failure::Row(error)) => Ok(Written::Dead(refused(&error))),
        }
    });
    one_by_one.collect()
}

fn no_answer() -> Cause {
    Cause::new(Class::Internal, "no_answer", "the sink wrote a batch of one without an answer")
}

fn refused(error: &rusqlite::Error) -> Cause {
    Cause::new(Class::Constraint, "constraint", error.to_string())
}

/// Brings the geometry into the layer's coordinate system.
fn prepare(settings: &Settings, outgoing: &mut Outgoing) -> std::result::Result<(), Cause> {
    outgoing.feature.place(settings.crs, settings.approximate_crs).map_err(|error| Cause::from(&error))?;
    outgoing.feature.orient();
    Ok(())
}

/// Writes a batch in one transaction.
fn attempt(
    settings: &Settings,
    open: &mut Open,
    batch: &[Outgoing],
    causes: &[Option<Cause>],
    care: Care,
) -> std::result::Result<Vec<Written>, Failure> {
    let mut row = None;
    let written = open.with_layer(settings, |transaction, layer| {
        let written = write_all(settings, transaction, layer, batch, causes, care);
        written.map_err(|error| {
            let failed = failure(&settings.path, "writing to", &error);
            row = is_about_the_row(&error).then_some(error);
            failed
        })
    });
    written.map_err(|error| row.map_or(Failure::File(error), Failure::Row))
}

fn write_all(
    settings: &Settings,
    transaction: &Transaction<'_>,
    layer: &mut Layer,
    batch: &[Outgoing],
    causes: &[Option<Cause>],
    care: Care,
) -> rusqlite::Result<Vec<Written>> {
    let mut change = Change::default();
    for (outgoing, _) in batch.iter().zip(causes).filter(|(_, cause)| cause.is_none()) {
        layer.columns.learn(&outgoing.feature, &mut change);
    }
    layer.change(transaction, settings, &change)?;
    let mut writer = Writer::new(settings, transaction, layer)?;
    let mut answers = Vec::with_capacity(batch.len());
    for (outgoing, cause) in batch.iter().zip(causes) {
        answers.push(match care {
            Care::None => writer.write(outgoing, cause.as_ref())?,
            Care::Savepoints => writer.write_apart(transaction, outgoing, cause.as_ref())?,
        });
    }
    let (arrival, touched, extent) = (writer.arrival, writer.touched, writer.extent);
    drop(writer);
    layer.arrival = arrival;
    if touched {
        Layer::touch(transaction, settings, extent)?;
    }
    Ok(answers)
}

/// The statements and buffers of one transaction.
struct Writer<'a> {
    settings: &'a Settings,
    layer: &'a Layer,
    guard: Guard<'a>,
    insert: CachedStatement<'a>,
    update: CachedStatement<'a>,
    insert_rtree: CachedStatement<'a>,
    delete_rtree: CachedStatement<'a>,
    transaction: &'a Transaction<'a>,
    blob: Vec<u8>,
    key: String,
    event: String,
    other: String,
    arrival: i64,
    touched: bool,
    extent: Option<Bounds>,
}

impl<'a> Writer<'a> {
    fn new(settings: &'a Settings, transaction: &'a Transaction<'a>, layer: &'a Layer) -> rusqlite::Result<Writer<'a>> {
        Ok(Writer {
            settings,
            layer,
            guard: Guard::new(transaction, layer.id)?,
            insert: transaction.prepare_cached(&layer.insert)?,
            update: transaction.prepare_cached(&layer.update)?,
            insert_rtree: transaction.prepare_cached(&layer.insert_rtree)?,
            delete_rtree: transaction.prepare_cached(&layer.delete_rtree)?,
            transaction,
            blob: Vec::new(),
            key: String::new(),
            event: String::new(),
            other: String::new(),
            arrival: layer.arrival,
            touched: false,
            extent: None,
        })
    }

    /// Writes an event so that its failure undoes nothing else.
    fn write_apart(
        &mut self,
        transaction: &Transaction<'_>,
        outgoing: &Outgoing,
        cause: Option<&Cause>,
    ) -> rusqlite::Result<Written> {
        transaction.execute_batch("SAVEPOINT event")?;
        match self.write(outgoing, cause) {
            Ok(written) => transaction.execute_batch("RELEASE event").map(|()| written),
            Err(error) if is_about_the_row(&error) && !transaction.is_autocommit() => {
                transaction.execute_batch("ROLLBACK TO event; RELEASE event")?;
                Ok(Written::Dead(refused(&error)))
            }
            Err(error) => Err(error),
        }
    }

    fn write(&mut self, outgoing: &Outgoing, cause: Option<&Cause>) -> rusqlite::Result<Written> {
        let cause = cause.cloned().or_else(|| {
            let shape = outgoing.feature.geometry.as_ref()?;
            self.layer.admits(shape).err()
        });
        if let Some(cause) = cause {
            // It may have been written under other settings; the proof says so.
            let known = self.guard.outcome(outgoing.key.key())?;
            let known = if known.is_none() { self.known_origin(outgoing)? } else { known };
            return Ok(known.map_or(Written::Dead(cause), Written::Done));
        }
        match self.settings.mode {
            Mode::Append => self.append(outgoing),
            Mode::Upsert { arrival } => self.upsert(outgoing, arrival),
        }
    }

    fn append(&mut self, outgoing: &Outgoing) -> rusqlite::Result<Written> {
        // What it is a repair of, or another repair of that, may be here.
        let known = self.known_origin(outgoing)?.is_some();
        if self.guard.decide(outgoing.key.key(), outgoing.event, Outcome::Applied)? && !known {
            self.insert_row(outgoing)?;
        }
        if let (Some(origin), false) = (&outgoing.origin, known) {
            self.guard.decide(origin.key(), outgoing.event, Outcome::Applied)?;
        }
        Ok(Written::Done(Outcome::Applied))
    }

    fn known_origin(&mut self, outgoing: &Outgoing) -> rusqlite::Result<Option<Outcome>> {
        outgoing.origin.as_ref().map_or(Ok(None), |origin| self.guard.outcome(origin.key()))
    }

    fn upsert(&mut self, outgoing: &Outgoing, arrival: bool) -> rusqlite::Result<Written> {
        let key = outgoing.key.key();
        if let Some(outcome) = self.guard.outcome(key)? {
            return Ok(Written::Done(outcome));
        }
        let Some(entity) = outgoing.entity.as_ref().map(geonce_key::Fingerprint::digest) else {
            return Ok(Written::Dead(version::no_entity()));
        };
        let held = self.guard.entity(entity)?;
        let number = arrival.then(|| i128::from(self.arrival) + 1);
        match version::order(outgoing, number, held.as_ref()) {
            Err(cause) => Ok(Written::Dead(cause)),
            Ok(Order::Older) => self.decided(outgoing, Outcome::Stale),
            Ok(Order::Same) => self.decided(outgoing, Outcome::Applied),
            Ok(Order::Newer(version)) => {
                let fid = match held {
                    Some(Held { fid: Some(fid), key, .. }) if self.update_row(outgoing, fid, key)? => fid,
                    _ => self.insert_row(outgoing)?,
                };
                self.guard.set_entity(entity, &version, key, &outgoing.content, fid)?;
                if arrival {
                    self.arrival += 1;
                }
                self.decided(outgoing, Outcome::Applied)
            }
        }
    }

    fn decided(&mut self, outgoing: &Outgoing, outcome: Outcome) -> rusqlite::Result<Written> {
        self.guard.decide(outgoing.key.key(), outgoing.event, outcome)?;
        Ok(Written::Done(outcome))
    }

    fn insert_row(&mut self, outgoing: &Outgoing) -> rusqlite::Result<i64> {
        let bounds = self.encode(outgoing);
        let row = Row { layer: self.layer, blob: &self.blob, key: &self.key, event: &self.event };
        row.bind(&mut self.insert, outgoing, &mut self.other)?;
        self.insert.raw_execute()?;
        let fid = self.transaction.last_insert_rowid();
        if let (true, Some([min_x, max_x, min_y, max_y])) = (self.layer.writes_rtree, bounds) {
            self.insert_rtree.execute((fid, min_x, max_x, min_y, max_y))?;
        }
        Ok(fid)
    }

    /// Writes over the row of an entity; false where it is gone, or is another row by now.
    fn update_row(&mut self, outgoing: &Outgoing, fid: i64, old_key: [u8; 16]) -> rusqlite::Result<bool> {
        let bounds = self.encode(outgoing);
        let row = Row { layer: self.layer, blob: &self.blob, key: &self.key, event: &self.event };
        row.bind(&mut self.update, outgoing, &mut self.other)?;
        let parameters = self.layer.parameters();
        self.update.raw_bind_parameter(parameters + 1, fid)?;
        self.update.raw_bind_parameter(parameters + 2, key_characters(old_key))?;
        if self.update.raw_execute()? == 0 {
            return Ok(false);
        }
        match bounds {
            _ if !self.layer.writes_rtree => {}
            Some([min_x, max_x, min_y, max_y]) => {
                self.insert_rtree.execute((fid, min_x, max_x, min_y, max_y))?;
            }
            None => {
                self.delete_rtree.execute([fid])?;
            }
        }
        Ok(true)
    }

    /// Fills the buffers with what every row has.
    fn encode(&mut self, outgoing: &Outgoing) -> Option<Bounds> {
        self.blob.clear();
        let shape = outgoing.feature.geometry.as_ref();
        let bounds = shape.and_then(|shape| {
            let as_multi = self.layer.admits(shape).unwrap_or(false);
            geometry::write(shape, self.settings.crs, as_multi, &mut self.blob)
        });
        self.key.clear();
        outgoing.key.write(Encoding::Base64, &mut self.key);
        self.event.clear();
        let _ = write!(self.event, "{}", outgoing.event);
        self.touched = true;
        self.extent = geometry::join(self.extent, bounds);
        bounds
    }
}

/// What a row is made of, beside its properties.
struct Row<'a> {
    layer: &'a Layer,
    blob: &'a [u8],
    key: &'a str,
    event: &'a str,
}

impl Row<'_> {
    fn bind(
        &self,
        statement: &mut CachedStatement<'_>,
        outgoing: &Outgoing,
        other: &mut String,
    ) -> rusqlite::Result<()> {
        statement.clear_bindings();
        if !self.blob.is_empty() {
            statement.raw_bind_parameter(1, self.blob)?;
        }
        statement.raw_bind_parameter(2, self.key)?;
        statement.raw_bind_parameter(3, self.event)?;
        let columns = &self.layer.columns;
        columns.values(&outgoing.feature, other, |index, value| statement.raw_bind_parameter(4 + index, value))?;
        if !other.is_empty() {
            statement.raw_bind_parameter(4 + columns.list().len(), other.as_str())?;
        }
        Ok(())
    }
}

fn key_characters(key: [u8; 16]) -> String {
    let mut digest = [0; 32];
    digest[..16].copy_from_slice(&key);
    let text = geonce_key::Fingerprint::from_digest(digest, false).text(Encoding::Base64);
    text[text.len() - KEY_CHARACTERS..].to_owned()
}
