//! What is taken down of a recorded event: its kind of geometry, its numbers, digests of its fields, its place on a fine grid.
//! Payloads themselves are not kept.

use crate::failure::Failure;
use geonce::clock::Timestamp;
use geonce::store::Record;
use geonce_key::policy::{Identity, PRECISION_MAX};
use geonce_key::{Form, Input, Keyed, Keyer, Policy, Reader};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Fields of a source that are looked at.
const FIELDS_MAX: usize = 256;
/// Positions of a geometry whose decimals are counted.
const POSITIONS_COUNTED_MAX: usize = 64;
/// Decimals beyond this are taken for this many: no grid is finer.
pub(super) const DECIMALS_MAX: u8 = PRECISION_MAX + 1;
/// Vertices of a geometry whose place is kept, and of all of a source.
const VERTICES_MAX: usize = 1_000;
const VERTICES_KEPT_MAX: usize = 2_000_000;
/// Decimals of the fine grid beyond those of the policy.
const FINER_DECIMALS: u8 = 2;

/// An event, as far as advice goes.
pub(super) struct Seen {
    pub(super) received: Timestamp,
    /// The type of its geometry, or `null`.
    pub(super) geometry: &'static str,
    /// The EPSG code of its coordinates.
    pub(super) crs: u32,
    /// The most decimals of its coordinates, at most [`DECIMALS_MAX`].
    pub(super) decimals: Option<u8>,
    /// Where it is, unless its sender's id names it.
    pub(super) place: Option<Place>,
    /// Pointers of fields and digests of their values.
    pub(super) fields: Vec<(Arc<str>, u64)>,
}

/// Where an event is, on a finer grid than its key's.
pub(super) struct Place {
    /// Digest of everything of its key but the geometry, and of how the geometry is built.
    pub(super) kind: u64,
    /// The vertices in canonical order.
    pub(super) vertices: Vec<[i64; 3]>,
    pub(super) keyed: Keyed,
}

/// Looks at the records of one source.
pub(super) struct Eye {
    policy: Policy,
    keyer: Keyer,
    fine: Keyer,
    reader: Reader,
    /// Names of fields, each once.
    names: BTreeSet<Arc<str>>,
    vertices: usize,
    seen: Vec<Seen>,
}

/// Decimals of the fine grid of a policy.
pub(super) fn fine_precision(policy: &Policy) -> u8 {
    (policy.precision + FINER_DECIMALS).min(PRECISION_MAX)
}

impl Eye {
    pub(super) fn new(policy: &Policy) -> Result<Eye, Failure> {
        let alone = Policy { previous: None, ..policy.clone() };
        let fine = Policy { precision: fine_precision(policy), ..alone.clone() };
        Ok(Eye {
            keyer: Keyer::new(&alone)?,
            fine: Keyer::new(&fine)?,
            reader: Reader::new(&alone, None)?,
            policy: alone,
            names: BTreeSet::new(),
            vertices: 0,
            seen: Vec::new(),
        })
    }

    /// Takes a record down. One without a payload, or with one that today's policy refuses, tells nothing.
    pub(super) fn look(&mut self, record: &Record) {
        let Some(payload) = &record.payload else { return };
        let input = Input { form: record.form, bytes: payload, crs: record.crs };
        let (Ok(feature), Ok(keyed)) = (self.reader.read(input), self.keyer.key(input)) else { return };
        let shape = feature.geometry.as_ref();
        let positions = shape.into_iter().flat_map(|shape| &shape.positions).take(POSITIONS_COUNTED_MAX);
        let decimals = positions.flat_map(|position| [decimals(position[0]), decimals(position[1])]).max();
        let place = if record.spatial.is_empty() { self.place(input, keyed) } else { None };
        let fields = if record.form == Form::Json { self.fields(payload) } else { Vec::new() };
        self.seen.push(Seen {
            received: record.received,
            geometry: shape.map_or("null", |shape| shape.type_name()),
            crs: feature.crs,
            decimals,
            place,
            fields,
        });
    }

    /// What was seen, the earliest first.
    pub(super) fn into_seen(mut self) -> Vec<Seen> {
        // Records come the latest first.
        self.seen.reverse();
        self.seen
    }

    fn place(&mut self, input: Input<'_>, keyed: Keyed) -> Option<Place> {
        self.fine.key(input).ok()?;
        let shape = self.fine.canonical_shape()?;
        let count = shape.positions.len();
        if count > VERTICES_MAX || self.vertices + count > VERTICES_KEPT_MAX {
            return None;
        }
        self.vertices += count;
        let mut kind = DefaultHasher::new();
        self.fine.bytes_beside_geometry().hash(&mut kind);
        (shape.type_name(), &shape.parts, &shape.paths).hash(&mut kind);
        Some(Place { kind: kind.finish(), vertices: shape.positions.clone(), keyed })
    }

    /// Digests of the fields of the Feature and of the identity.
    fn fields(&mut self, payload: &[u8]) -> Vec<(Arc<str>, u64)> {
        let Ok(root) = serde_json::from_slice::<Value>(payload) else { return Vec::new() };
        let prefix = self.policy.feature.as_ref().map_or("", |pointer| pointer.as_str()).to_owned();
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        let mut add = |pointer: String, value: &Value| {
            let mut digest = DefaultHasher::new();
            value.to_string().hash(&mut digest);
            found.insert(pointer, digest.finish());
        };
        if let Some(feature) = root.pointer(&prefix) {
            let members = feature.get("properties").and_then(Value::as_object).into_iter().flatten();
            for (name, value) in members.filter(|(_, value)| !value.is_object() && !value.is_array()) {
                add(format!("{prefix}/properties/{}", name.replace('~', "~0").replace('/', "~1")), value);
            }
            if let Some(id) = feature.get("id") {
                add(format!("{prefix}/id"), id);
            }
        }
        if let Identity::Fields(fields) = &self.policy.identity {
            for field in fields {
                if let Some(value) = root.pointer(field.at.as_str()) {
                    add(field.at.as_str().to_owned(), value);
                }
            }
        }
        found.into_iter().filter_map(|(name, digest)| Some((self.name(&name)?, digest))).collect()
    }

    /// The name of a field, shared by all events.
    fn name(&mut self, name: &str) -> Option<Arc<str>> {
        if let Some(known) = self.names.get(name) {
            return Some(Arc::clone(known));
        }
        if self.names.len() >= FIELDS_MAX {
            return None;
        }
        let new: Arc<str> = name.into();
        self.names.insert(Arc::clone(&new));
        Some(new)
    }
}

/// Decimals of a number in its shortest form.
fn decimals(number: f64) -> u8 {
    let text = number.to_string();
    let count = text.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    u8::try_from(count).unwrap_or(DECIMALS_MAX).min(DECIMALS_MAX)
}

#[cfg(test)]
mod tests {
    use super::decimals;

    #[test]
    fn decimals_are_those_of_the_shortest_text() {
        let numbers = [13.0, 13.4, 13.400_001, 0.1 + 0.2, -1e-7, 1e300];
        assert_eq!(numbers.map(decimals), [0, 1, 6, 10, 7, 0]);
    }
}
