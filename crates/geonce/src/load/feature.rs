//! A row of a file as a feature: its GeoJSON text, its key, its geometry where it is going.
//!
//! A feature has the key that it would have had as a webhook's payload. Its content digest is of its exact text, so that no
//! change of a file is taken for none. What the destination has with the same content is neither keyed nor checked again.

use super::target::{Finding, Known, Piece};
use super::{Flaw, Invalid};
use crate::event::{Cause, Class};
use bytes::Bytes;
use geonce_files::{Bad, Field, Item, Row};
use geonce_key::policy::Dimensions;
use geonce_key::repair::{self, repair};
use geonce_key::{Feature, Form, Input, Keyed, Keyer, Policy, Property, Reader, Shape, geojson, validity};
use sha2::{Digest, Sha256};

/// The code of the coordinate system that grids are in.
const WGS84: u32 = 4326;

/// What a row has become.
pub(super) struct Shaped {
    /// Its place in the file.
    pub(super) number: u64,
    /// The feature, or what is wrong with it.
    pub(super) piece: Result<Piece, Cause>,
    /// What was mended of it, for which cause.
    pub(super) repaired: Option<Cause>,
    /// Its text, where it may be needed later.
    pub(super) payload: Option<Bytes>,
}

/// What was made of a row.
pub(super) enum Made {
    Shaped(Shaped),
    /// Nothing: the destination had it with the same content. Should that not be so any more, the row is there.
    Unchanged(Finding, Row),
}

/// What all features of a load have in common.
#[derive(Clone)]
pub(super) struct Recipe {
    pub(super) policy: Policy,
    pub(super) fields: Vec<Field>,
    pub(super) from_crs: u32,
    pub(super) to_crs: u32,
    pub(super) invalid: Invalid,
    pub(super) has_entities: bool,
}

/// Makes features of rows, reusing its memory. One for each thread.
pub(super) struct Shaper {
    recipe: Recipe,
    keyer: Keyer,
    reader: Option<Reader>,
    /// Each field's name as JSON text, with what comes before and after it.
    names: Vec<Vec<u8>>,
    text: Vec<u8>,
}

impl Shaper {
    pub(super) fn new(recipe: Recipe) -> Result<Shaper, geonce_key::Error> {
        let names = recipe.fields.iter().enumerate().map(|(i, field)| {
            let mut name = if i == 0 { Vec::new() } else { b",".to_vec() };
            append_json(&mut name, &field.name);
            name.push(b':');
            name
        });
        Ok(Shaper {
            keyer: Keyer::new(&recipe.policy)?,
            reader: recipe.has_entities.then(|| Reader::new(&recipe.policy, None)).transpose()?,
            names: names.collect(),
            text: Vec::new(),
            recipe,
        })
    }

    /// Makes a feature of what was read, unless it is known to be unchanged.
    pub(super) fn make(&mut self, item: Item, known: &Known) -> Made {
        match item {
            Item::Row(row) => match self.find_unchanged(&row, known) {
                Some(finding) => Made::Unchanged(finding, row),
                None => Made::Shaped(self.shape(row)),
            },
            Item::Bad(Bad { number, code, message, bytes }) => {
                let cause = Cause::new(Class::Schema, code, message);
                Made::Shaped(Shaped { number, piece: Err(cause), repaired: None, payload: Some(bytes.into()) })
            }
        }
    }

    /// Finds a row that the destination has with this very content.
    fn find_unchanged(&mut self, row: &Row, known: &Known) -> Option<Finding> {
        if !known.is_complete() {
            return None;
        }
        if row.text.is_none() {
            let mut text = std::mem::take(&mut self.text);
            self.write(row, row.geometry.as_ref(), &mut text);
            self.text = text;
        }
        let text = row.text.as_ref().unwrap_or(&self.text);
        let input = Input { form: Form::Json, bytes: text, crs: Some(self.recipe.from_crs) };
        // What is wrong with it is told when it is made.
        let entity = self.reader.as_mut()?.entity(input).ok()??;
        known.find_unchanged(entity.digest(), &Sha256::digest(text).into())
    }

    /// Makes a feature of a row.
    pub(super) fn shape(&mut self, mut row: Row) -> Shaped {
        let number = row.number;
        let mut text = std::mem::take(&mut self.text);
        match row.text.take() {
            Some(written) => text = written,
            None => self.write(&row, row.geometry.as_ref(), &mut text),
        }
        let mut repaired = None;
        let piece = self.piece(row, &mut text, &mut repaired);
        let kept = piece.is_err() || self.recipe.invalid == Invalid::Dead;
        let payload = kept.then(|| Bytes::copy_from_slice(&text));
        self.text = text;
        Shaped { number, piece, repaired, payload }
    }

    fn piece(&mut self, mut row: Row, text: &mut Vec<u8>, repaired: &mut Option<Cause>) -> Result<Piece, Cause> {
        let mut crs = self.recipe.from_crs;
        let mut keyed = self.key(text, crs)?;
        if let Some(flaw) = self.flaw() {
            if self.recipe.invalid != Invalid::Repair {
                return Err(flaw);
            }
            let mended = self.mended()?;
            // Its own key: what was delivered and what was made of it are two things.
            let mut other = Vec::with_capacity(text.len());
            self.write(&row, Some(&mended), &mut other);
            keyed = self.key(&other, WGS84)?;
            (crs, row.geometry, *text) = (WGS84, Some(mended), other);
            *repaired = Some(flaw);
        }
        let input = Input { form: Form::Json, bytes: text, crs: Some(crs) };
        let entity = match &mut self.reader {
            Some(reader) => reader.entity(input).map_err(|error| Cause::from(&error))?,
            None => None,
        };
        let mut feature = Feature {
            geometry: row.geometry,
            crs,
            id: None,
            properties: Vec::new(),
            version: self.keyer.version().cloned(),
            entity,
            deleted: false,
        };
        if self.recipe.policy.dimensions == Dimensions::Two {
            feature.flatten();
        }
        feature.place(self.recipe.to_crs, self.recipe.policy.approximate_crs).map_err(|error| Cause::from(&error))?;
        feature.orient();
        Ok(Piece {
            number: row.number,
            key: keyed.fingerprint,
            entity: feature.entity,
            version: feature.version,
            content: Sha256::digest(&*text).into(),
            geometry: feature.geometry,
            values: row.values,
        })
    }

    fn key(&mut self, text: &[u8], crs: u32) -> Result<Keyed, Cause> {
        let input = Input { form: Form::Json, bytes: text, crs: Some(crs) };
        self.keyer.key(input).map_err(|error| Cause::from(&error))
    }

    /// What is wrong with the geometry that was keyed last.
    fn flaw(&self) -> Option<Cause> {
        let report = validity::check(self.keyer.delivered_shape()?, &self.recipe.policy.limits);
        let problem = report.problems.first()?;
        let message = format!("the geometry is not valid: {}", problem.code.as_str().replace('_', " "));
        Some(Cause {
            pointer: format!("{}{}", self.keyer.geometry_pointer(), problem.pointer),
            ..Cause::new(Class::Geometry, problem.code.as_str(), message)
        })
    }

    /// The geometry that was keyed last, repaired on the grid.
    fn mended(&self) -> Result<Shape<f64>, Cause> {
        let missing = || Cause::new(Class::Internal, "geometry", "there is no geometry to repair");
        let shape = self.keyer.delivered_shape().ok_or_else(missing)?;
        let policy = &self.recipe.policy;
        let repaired = repair(shape, &repair::Options::default(), &policy.limits);
        let shape = repaired.map_err(|error| Cause::from(&error))?.shape;
        Ok(shape.to_degrees(policy.precision, policy.precision_z))
    }

    /// The feature as GeoJSON. Numbers that JSON cannot say are written as null.
    fn write(&self, row: &Row, geometry: Option<&Shape<f64>>, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(br#"{"type":"Feature","#);
        if let Some(id) = &row.id {
            out.extend_from_slice(br#""id":"#);
            append_property(out, id);
            out.push(b',');
        }
        out.extend_from_slice(br#""properties":{"#);
        for (name, value) in self.names.iter().zip(&row.values) {
            out.extend_from_slice(name);
            append_property(out, value);
        }
        out.extend_from_slice(br#"},"geometry":"#);
        match geometry {
            Some(shape) => geojson::write(shape, out),
            None => out.extend_from_slice(b"null"),
        }
        out.push(b'}');
    }
}

fn append_property(out: &mut Vec<u8>, value: &Property) {
    match value {
        Property::Null => out.extend_from_slice(b"null"),
        Property::Boolean(boolean) => append_json(out, boolean),
        Property::Integer(integer) => append_json(out, integer),
        Property::Real(real) => append_json(out, real),
        Property::Text(text) => append_json(out, text),
        Property::Json(text) => out.extend_from_slice(text.as_bytes()),
    }
}

/// Writing to memory fails for nothing that is written here.
fn append_json(out: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    let _ = serde_json::to_writer(out, value);
}

impl Flaw {
    pub(super) fn of(number: u64, cause: &Cause) -> Flaw {
        Flaw { number, code: cause.code.clone(), pointer: cause.pointer.clone(), message: cause.message.clone() }
    }
}
