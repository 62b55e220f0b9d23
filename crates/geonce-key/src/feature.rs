//! A payload as its sinks need it: the delivered geometry in a coordinate system of theirs, the id, the properties,
//! the version, and the digest of the entity it is about.
//!
//! Reads what [`crate::Keyer`] has accepted under the same policy, and is as strict.

use crate::fingerprint::Fingerprint;
use crate::geojson;
use crate::grid::Doubles;
use crate::identity::{self, Prepared};
use crate::json::{self, Tag, Tape, Value};
use crate::key::{Form, Input, Keyer};
use crate::policy::{Dimensions, Field, Identity, Pointer, Policy};
use crate::shape::{Kind, Shape};
use crate::version::Version;
use crate::{Code, Error, Result, crs};

/// A value of a property.
#[derive(Clone, Debug, PartialEq)]
pub enum Property {
    /// `null`.
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// A whole number, however it was spelt.
    Integer(i64),
    /// Any other number.
    Real(f64),
    /// Text.
    Text(String),
    /// An array or object, as written; also a whole number that no 64 bits can hold.
    Json(String),
}

/// What was delivered.
#[derive(Clone, Debug, PartialEq)]
pub struct Feature {
    /// The geometry, ordinates as delivered; none where it was null.
    pub geometry: Option<Shape<f64>>,
    /// The EPSG code of its coordinates.
    pub crs: u32,
    /// The Feature's `id`, where it has one.
    pub id: Option<Property>,
    /// The Feature's properties, in order.
    pub properties: Vec<(String, Property)>,
    /// The version its policy points at.
    pub version: Option<Version>,
    /// Digest of the fields that name the entity.
    pub entity: Option<Fingerprint>,
    /// Whether it says that its entity is gone.
    pub deleted: bool,
}

/// What a payload says of itself beside its geometry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// The EPSG code that Feature or geometry declare.
    pub crs: Option<u32>,
    /// A member of the Feature that nothing here reads.
    pub foreign: Option<String>,
}

/// Reads payloads of one source for its sinks, reusing its memory.
pub struct Reader {
    /// Knows the policy's coordinate systems; makes no keys here.
    keyer: Keyer,
    entity: Option<Prepared>,
    tape: Tape,
}

impl Reader {
    /// A reader for payloads under `policy`. `entity` are the fields that name an entity; without them it is the
    /// policy's identity, and there is none where that is the whole payload.
    pub fn new(policy: &Policy, entity: Option<&[Field]>) -> Result<Reader> {
        let fields = match (entity, &policy.identity) {
            (Some(fields), _) => Some(fields.to_vec()),
            (None, Identity::Fields(fields)) => Some(fields.clone()),
            (None, Identity::Whole { .. }) => None,
        };
        let named =
            fields.map(|fields| Policy { identity: Identity::Fields(fields), previous: None, ..policy.clone() });
        Ok(Reader {
            keyer: Keyer::new(&Policy { previous: None, ..policy.clone() })?,
            entity: named.as_ref().map(Prepared::new),
            tape: Tape::default(),
        })
    }

    /// What a payload holds.
    pub fn read(&mut self, input: Input<'_>) -> Result<Feature> {
        Ok(self.read_parts(input, None)?.0)
    }

    /// What a payload holds, and a digest of everything outside its geometry: the whole payload without geometry, `bbox`,
    /// `crs`, `links`, the published ignore list, the policy's, and what `ignore` points at. Two payloads with the same
    /// one differ at most in their geometry, and in what is ignored.
    pub fn read_with_rest(&mut self, input: Input<'_>, ignore: &[Pointer]) -> Result<(Feature, [u8; 16])> {
        let (feature, rest) = self.read_parts(input, Some(ignore))?;
        Ok((feature, rest.unwrap_or_default()))
    }

    fn read_parts(&mut self, input: Input<'_>, ignore: Option<&[Pointer]>) -> Result<(Feature, Option<[u8; 16]>)> {
        let limits = &self.keyer.policy().limits;
        let mut rest = None;
        let mut feature = match input.form {
            Form::Json => {
                let mut tape = std::mem::take(&mut self.tape);
                let read = self.read_json(input, ignore, &mut tape);
                self.tape = tape;
                let (feature, digest) = read?;
                rest = digest;
                feature
            }
            Form::Wkt => self.bare(crate::wkt::read(input.bytes, limits)?, input.crs)?,
            Form::Wkb => self.bare(crate::wkb::read(input.bytes, limits)?, input.crs)?,
            Form::WkbHex => self.bare(crate::wkb::read_hex(input.bytes, limits)?, input.crs)?,
        };
        if let Some(shape) = &mut feature.geometry
            && self.keyer.policy().close_rings
        {
            *shape = closed(shape);
        }
        let policy = self.keyer.policy();
        if policy.dimensions == Dimensions::Two {
            feature.flatten();
        }
        if let (None, Some(ignore)) = (rest, ignore) {
            rest = Some(identity::rest(None, policy, ignore)?);
        }
        Ok((feature, rest))
    }

    /// The digest of the fields that name the entity, as [`Feature::entity`] has it.
    pub fn entity(&mut self, input: Input<'_>) -> Result<Option<Fingerprint>> {
        let (Form::Json, Some(prepared)) = (input.form, &self.entity) else { return Ok(None) };
        let policy = self.keyer.policy();
        let document = json::parse(input.bytes, &policy.limits, &mut self.tape)?;
        let payload = geojson::payload(document.root(), policy.feature.as_ref())?;
        let base = payload.feature.is_some() || policy.feature.is_some();
        identity::entity(base.then_some(&payload), policy, prepared).map(Some)
    }

    /// Goes over the properties of a `GeoJSON` payload without reading its geometry, for a first pass over a file.
    pub fn outline(&mut self, bytes: &[u8], mut each: impl FnMut(&str, Property)) -> Result<Outline> {
        let policy = self.keyer.policy();
        let document = json::parse(bytes, &policy.limits, &mut self.tape)?;
        let payload = geojson::payload(document.root(), policy.feature.as_ref())?;
        for (name, value) in payload.properties.into_iter().flat_map(Value::members) {
            each(&name.as_str().unwrap_or_default(), property(value));
        }
        let read = |name: &str| matches!(name, "type" | "geometry" | "properties" | "id" | "bbox" | "crs");
        let names = payload.feature.into_iter().flat_map(Value::members).filter_map(|(name, _)| name.as_str());
        let foreign = names.into_iter().find(|name| !read(name)).map(std::borrow::Cow::into_owned);
        Ok(Outline { crs: payload.crs, foreign })
    }

    fn bare(&self, delivered: crate::Delivered, outer: Option<u32>) -> Result<Feature> {
        let crs = self.keyer.resolve_crs(delivered.srid.map(crate::key::normal_code), outer)?;
        Ok(Feature {
            geometry: Some(delivered.shape),
            crs: crs.map_or(WGS84, |crs| crs.code()),
            id: None,
            properties: Vec::new(),
            version: None,
            entity: None,
            deleted: false,
        })
    }

    fn read_json(
        &self,
        input: Input<'_>,
        ignore: Option<&[Pointer]>,
        tape: &mut Tape,
    ) -> Result<(Feature, Option<[u8; 16]>)> {
        let policy = self.keyer.policy();
        let document = json::parse(input.bytes, &policy.limits, tape)?;
        let payload = geojson::payload(document.root(), policy.feature.as_ref())?;
        let crs = self.keyer.resolve_crs(payload.crs, input.crs)?;
        let mut geometry = None;
        if let Some(value) = payload.geometry {
            let mut shape = Shape::new();
            let mut doubles = Doubles { drops_z: policy.dimensions == Dimensions::Two };
            geojson::read(value, &policy.limits, &mut doubles, &mut shape, &mut Vec::new())
                .map_err(|e| e.under(&payload.geometry_pointer))?;
            geometry = Some(shape);
        }
        let base = payload.feature.is_some() || policy.feature.is_some();
        let at = base.then(|| identity::payload_base(&payload, policy));
        let version = policy.version.as_ref().map(|pointer| identity::version(at, pointer)).transpose()?;
        let entity = match &self.entity {
            Some(prepared) => Some(identity::entity(base.then_some(&payload), policy, prepared)?),
            None => None,
        };
        let rest = match ignore {
            Some(ignore) => Some(identity::rest(base.then_some(&payload), policy, ignore)?),
            None => None,
        };
        let feature = Feature {
            geometry,
            crs: crs.map_or(WGS84, |crs| crs.code()),
            id: payload.feature.and_then(|feature| feature.get("id")).map(property),
            properties: payload
                .properties
                .into_iter()
                .flat_map(Value::members)
                .filter_map(|(name, value)| Some((name.as_str()?.into_owned(), property(value))))
                .collect(),
            version,
            entity,
            deleted: identity::deletes(&payload, policy),
        };
        Ok((feature, rest))
    }
}

const WGS84: u32 = 4326;

pub(crate) fn property(value: Value<'_>) -> Property {
    match value.tag() {
        Tag::Null => Property::Null,
        Tag::False => Property::Boolean(false),
        Tag::True => Property::Boolean(true),
        Tag::String => Property::Text(value.as_str().unwrap_or_default().into_owned()),
        Tag::Array | Tag::Object => Property::Json(value.text().to_owned()),
        Tag::Exact | Tag::Float => {
            let mut digits = Vec::new();
            // The canonical spelling of an integer has neither point nor exponent, whatever was written.
            identity::write_number(value, &mut digits);
            let text = String::from_utf8(digits).unwrap_or_default();
            match text.parse() {
                Ok(integer) => Property::Integer(integer),
                Err(_) if text.bytes().any(|b| matches!(b, b'.' | b'e')) => {
                    Property::Real(value.as_f64().unwrap_or(f64::NAN))
                }
                Err(_) => Property::Json(text),
            }
        }
    }
}

fn closed(shape: &Shape<f64>) -> Shape<f64> {
    let mut out = Shape::new();
    out.collection = shape.collection;
    out.has_z = shape.has_z;
    for member in shape.members() {
        for part in member.parts() {
            for path in part.paths() {
                out.positions.extend_from_slice(path);
                let open = path.first() != path.last();
                if let (Kind::Polygon, true, Some(&first)) = (member.kind.part(), open, path.first()) {
                    out.positions.push(first);
                }
                out.end_path();
            }
            out.end_part();
        }
        out.end_member(member.kind);
    }
    out
}

impl Feature {
    /// Drops the third numbers.
    pub fn flatten(&mut self) {
        if let Some(shape) = &mut self.geometry {
            shape.has_z = false;
            shape.positions.iter_mut().for_each(|position| position[2] = 0.0);
        }
    }

    /// Brings the geometry into another coordinate system, through WGS 84. Operations known to be approximate are
    /// taken where `approximate` accepts them.
    pub fn place(&mut self, code: u32, approximate: bool) -> Result<()> {
        if code == self.crs {
            return Ok(());
        }
        let (from, to) = (crs::find(self.crs)?, crs::find(code)?);
        if !(from.is_geographic_wgs84() && to.is_geographic_wgs84()) {
            for system in [&from, &to] {
                crate::key::refuse_approximate(system, approximate)?;
            }
            let positions = self.geometry.iter_mut().flat_map(|shape| &mut shape.positions);
            for position in positions {
                let moved = from.to_wgs84(position[0], position[1]).and_then(|(x, y)| to.from_wgs84(x, y));
                let Some((x, y)) = moved else {
                    let message = format!("the position is outside the domain of EPSG:{} or EPSG:{code}", self.crs);
                    return Err(Error::new(Code::CrsDomain, "/geometry", message));
                };
                [position[0], position[1]] = [x, y];
            }
        }
        self.crs = code;
        Ok(())
    }

    /// Turns rings as RFC 7946 section 3.1.6 asks: exteriors counter-clockwise, holes clockwise.
    pub fn orient(&mut self) {
        let Some(shape) = &mut self.geometry else { return };
        let mut turned = Vec::new();
        for member in shape.members().filter(|member| member.kind.part() == Kind::Polygon) {
            for part in member.parts() {
                for (ring, path) in part.path_indices().enumerate() {
                    if (doubled_area(shape.path(path)) > 0.0) != (ring == 0) {
                        turned.push(path);
                    }
                }
            }
        }
        for path in turned {
            let start = if path == 0 { 0 } else { shape.paths[path - 1] as usize };
            let end = shape.paths[path] as usize;
            shape.positions[start..end].reverse();
        }
    }
}

/// Twice the signed area, relative to the first position so that large coordinates do not drown small rings.
fn doubled_area(ring: &[[f64; 3]]) -> f64 {
    let Some(&[x0, y0, _]) = ring.first() else { return 0.0 };
    ring.windows(2).map(|edge| (edge[0][0] - x0) * (edge[1][1] - y0) - (edge[1][0] - x0) * (edge[0][1] - y0)).sum()
}

#[cfg(test)]
mod tests;
