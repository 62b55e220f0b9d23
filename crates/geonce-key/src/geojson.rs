//! `GeoJSON` (RFC 7946) from the tape: which part of a payload is the geometry, and its coordinates.
//!
//! Structure only: nesting, member types, counts of numbers. What numbers become is the [`Ordinates`]' affair;
//! closed rings and bounds are checked on the grid, where all input forms meet.

mod edit;
mod write;

pub use edit::{replace_geometry, without_crs};
pub use write::write;

use crate::grid::not_a_number;
use crate::json::{Tag, Value, pointer_token};
use crate::policy::Pointer;
use crate::shape::{Kind, Shape};
use crate::{Code, Error, Limits, Result};
use std::borrow::Cow;

/// The parts of a payload that a key is made of.
pub(crate) struct Payload<'a> {
    /// The whole payload, envelope included.
    pub(crate) root: Value<'a>,
    /// The Feature; absent where the payload is a bare geometry.
    pub(crate) feature: Option<Value<'a>>,
    /// The Feature's properties.
    pub(crate) properties: Option<Value<'a>>,
    /// The geometry; absent where it is null.
    pub(crate) geometry: Option<Value<'a>>,
    /// Where the geometry is.
    pub(crate) geometry_pointer: Cow<'static, str>,
    /// The code of the coordinate system that Feature or geometry declare.
    pub(crate) crs: Option<u32>,
}

/// Finds Feature and geometry in a payload and checks the members around the coordinates.
pub(crate) fn payload<'a>(root: Value<'a>, envelope: Option<&Pointer>) -> Result<Payload<'a>> {
    let Some(pointer) = envelope else { return feature_or_geometry(root, root) };
    let object = root
        .at_tokens(pointer.tokens())
        .ok_or_else(|| Error::new(Code::GeojsonMissing, pointer.as_str(), "the envelope holds no feature here"))?;
    let found = feature_or_geometry(root, object).map_err(|e| e.under(pointer.as_str()))?;
    let geometry_pointer = Cow::Owned(format!("{pointer}{}", found.geometry_pointer));
    Ok(Payload { geometry_pointer, ..found })
}

/// The members of a `GeoJSON` object that mean something to it, found in one pass.
#[derive(Default)]
struct Known<'a> {
    kind: Option<Value<'a>>,
    geometry: Option<Value<'a>>,
    coordinates: Option<Value<'a>>,
    geometries: Option<Value<'a>>,
    features: Option<Value<'a>>,
    properties: Option<Value<'a>>,
    id: Option<Value<'a>>,
    bbox: Option<Value<'a>>,
    crs: Option<Value<'a>>,
}

impl<'a> Known<'a> {
    fn of(object: Value<'a>) -> Known<'a> {
        let mut known = Known::default();
        for (name, value) in object.members() {
            let unescaped;
            let (mut raw, escaped) = name.raw_bytes();
            if escaped {
                unescaped = name.as_str().unwrap_or_default();
                raw = unescaped.as_bytes();
            }
            let slot = match raw {
                b"type" => &mut known.kind,
                b"geometry" => &mut known.geometry,
                b"coordinates" => &mut known.coordinates,
                b"geometries" => &mut known.geometries,
                b"features" => &mut known.features,
                b"properties" => &mut known.properties,
                b"id" => &mut known.id,
                b"bbox" => &mut known.bbox,
                b"crs" => &mut known.crs,
                _ => continue,
            };
            *slot = Some(value);
        }
        known
    }

    /// Members that RFC 7946 section 7.1 keeps for other types.
    fn forbid(what: &str, names: &[(&str, bool)]) -> Result<()> {
        match names.iter().find(|(_, present)| *present) {
            None => Ok(()),
            Some((name, _)) => {
                let message = format!("{what} has no {name} member (RFC 7946 section 7.1)");
                Err(Error::new(Code::GeojsonForeignMember, pointer_token(name), message))
            }
        }
    }

    fn check_bbox(&self) -> Result<()> {
        let Some(bbox) = self.bbox else { return Ok(()) };
        let numbers = bbox.elements().filter(|n| n.is_number()).count();
        if bbox.tag() == Tag::Array && bbox.node().count() == numbers && (numbers == 4 || numbers == 6) {
            return Ok(());
        }
        Err(Error::new(Code::GeojsonBbox, "/bbox", "bbox is an array of four or six numbers"))
    }

    /// Members of a Feature beside its geometry (RFC 7946 section 3.2).
    fn check_feature(&self) -> Result<()> {
        if self.properties.is_some_and(|value| !matches!(value.tag(), Tag::Object | Tag::Null)) {
            return Err(Error::new(Code::GeojsonMemberType, "/properties", "properties is an object or null"));
        }
        if self.id.is_some_and(|value| value.tag() != Tag::String && !value.is_number()) {
            return Err(Error::new(Code::GeojsonId, "/id", "a feature's id is a string or a number"));
        }
        Known::forbid(
            "a Feature",
            &[
                ("coordinates", self.coordinates.is_some()),
                ("geometries", self.geometries.is_some()),
                ("features", self.features.is_some()),
            ],
        )?;
        self.check_bbox()
    }
}

fn feature_or_geometry<'a>(root: Value<'a>, object: Value<'a>) -> Result<Payload<'a>> {
    if object.tag() != Tag::Object {
        return Err(Error::new(Code::GeojsonNotObject, "", "a GeoJSON object is needed"));
    }
    let known = Known::of(object);
    let name = type_name(known.kind)?;
    let crs = known.crs.map(declared_crs).transpose()?;
    if name != "Feature" {
        if name == "FeatureCollection" {
            return Err(Error::new(Code::GeojsonType, "/type", "a FeatureCollection has one key per feature")
                .hint("split it first; geonce key does so for files and streams"));
        }
        let geometry_pointer = Cow::Borrowed("");
        return Ok(Payload { root, feature: None, properties: None, geometry: Some(object), geometry_pointer, crs });
    }
    known.check_feature()?;
    let geometry = known.geometry.ok_or_else(|| {
        Error::new(Code::GeojsonMissing, "/geometry", "a Feature has a geometry member, null if there is none")
    })?;
    let geometry = match geometry.tag() {
        Tag::Null => None,
        Tag::Object => Some(geometry),
        _ => {
            return Err(Error::new(Code::GeojsonMemberType, "/geometry", "geometry is an object or null"));
        }
    };
    let inner = geometry.and_then(|geometry| geometry.get("crs")).map(declared_crs).transpose();
    let inner = inner.map_err(|e| e.under("/geometry"))?;
    if crs.zip(inner).is_some_and(|(outer, inner)| outer != inner) {
        let message = "feature and geometry declare different coordinate systems";
        return Err(Error::new(Code::CrsConflict, "/geometry/crs", message));
    }
    Ok(Payload {
        root,
        feature: Some(object),
        properties: known.properties,
        geometry,
        geometry_pointer: Cow::Borrowed("/geometry"),
        crs: crs.or(inner),
    })
}

fn type_name(kind: Option<Value<'_>>) -> Result<Cow<'_, str>> {
    let Some(value) = kind else {
        return Err(Error::new(Code::GeojsonType, "/type", "a GeoJSON object has a type member"));
    };
    let name = value.as_str().ok_or_else(|| Error::new(Code::GeojsonType, "/type", "type is a string"))?;
    let known =
        matches!(&*name, "Feature" | "FeatureCollection" | "GeometryCollection") || Kind::from_name(&name).is_some();
    if known {
        return Ok(name);
    }
    let error = Error::new(Code::GeojsonType, "/type", format!("{name:?} is no GeoJSON type"));
    let names = ["Feature", "FeatureCollection", "GeometryCollection", "Point", "MultiPoint", "LineString"];
    let all = names.into_iter().chain(["MultiLineString", "Polygon", "MultiPolygon"]);
    match all.into_iter().find(|n| n.eq_ignore_ascii_case(&name)) {
        Some(near) => Err(error.hint(format!("GeoJSON types are case-sensitive: {near}"))),
        None => Err(error),
    }
}

/// Checks the object around features, which are not in it any more, and returns the code it declares.
pub(crate) fn check_collection(object: Value<'_>) -> Result<Option<u32>> {
    let known = Known::of(object);
    let name = type_name(known.kind)?;
    if name != "FeatureCollection" {
        return Err(Error::new(Code::GeojsonType, "/type", format!("a {name} has no features"))
            .hint("an envelope needs the policy's feature pointer"));
    }
    Known::forbid(
        "a FeatureCollection",
        &[
            ("coordinates", known.coordinates.is_some()),
            ("geometries", known.geometries.is_some()),
            ("geometry", known.geometry.is_some()),
            ("properties", known.properties.is_some()),
        ],
    )?;
    known.check_bbox()?;
    known.crs.map(declared_crs).transpose()
}

/// The `crs` member of the 2008 `GeoJSON` specification, which real senders still write.
pub(crate) fn declared_crs(crs: Value<'_>) -> Result<u32> {
    let ambiguous = |message: &str| {
        Err(Error::new(Code::CrsAmbiguous, "/crs", message)
            .hint(r#"write {"type":"name","properties":{"name":"EPSG:3857"}}, or leave crs out for WGS 84"#))
    };
    if crs.tag() == Tag::Null {
        return ambiguous("crs is null, so the coordinate system is unknown");
    }
    let name = crs.get("properties").and_then(|properties| properties.get("name")).and_then(Value::as_str);
    match (crs.get("type").and_then(Value::as_str).as_deref(), name) {
        (Some("name"), Some(name)) => declared_code(&name).map_err(|e| e.under("/crs/properties/name")),
        (Some("EPSG"), _) => match crs.get("properties").and_then(|p| p.get("code")).map(Value::number_or_text) {
            Some(Some(code)) => declared_code(&code).map_err(|e| e.under("/crs/properties/code")),
            _ => ambiguous("crs names no code"),
        },
        _ => ambiguous("crs is not a named coordinate system"),
    }
}

fn declared_code(declaration: &str) -> Result<u32> {
    crate::crs::parse(declaration).map(|crs| crs.code())
}

impl<'a> Value<'a> {
    fn number_or_text(self) -> Option<Cow<'a, str>> {
        if self.is_number() { Some(self.number_text().into()) } else { self.as_str() }
    }
}

/// What the numbers of a position become.
pub(crate) trait Ordinates {
    type Number: Copy + Default;
    /// Whether the third number is dropped unread.
    fn drops_z(&self) -> bool;
    /// The number `value`, on `axis` of the `position`-th position.
    fn read(&mut self, value: Value<'_>, position: usize, axis: usize) -> Result<Self::Number>;
}

/// Reads a geometry into `shape`, and the pointer of each member into `member_pointers` where it is a collection.
pub(crate) fn read<O: Ordinates>(
    geometry: Value<'_>,
    limits: &Limits,
    ordinates: &mut O,
    shape: &mut Shape<O::Number>,
    member_pointers: &mut Vec<String>,
) -> Result<()> {
    shape.clear();
    member_pointers.clear();
    let mut reader = Reader { limits, ordinates, shape, member_pointers, dimension: 0 };
    reader.geometry(geometry, "")?;
    let has_z = reader.dimension == 3 && !reader.ordinates.drops_z();
    shape.has_z = has_z;
    Ok(())
}

struct Reader<'r, O: Ordinates> {
    limits: &'r Limits,
    ordinates: &'r mut O,
    shape: &'r mut Shape<O::Number>,
    member_pointers: &'r mut Vec<String>,
    /// Numbers per position; zero before the first one.
    dimension: usize,
}

impl<O: Ordinates> Reader<'_, O> {
    fn geometry(&mut self, geometry: Value<'_>, pointer: &str) -> Result<()> {
        if geometry.tag() != Tag::Object {
            return Err(Error::new(Code::GeojsonMemberType, "", "a geometry is an object"));
        }
        let known = Known::of(geometry);
        let name = type_name(known.kind)?;
        known.check_bbox()?;
        if known.crs.is_some() && self.shape.collection {
            let message = "a member of a collection declares a coordinate system of its own";
            return Err(
                Error::new(Code::CrsAmbiguous, "/crs", message).hint("declare it once, on the outermost object")
            );
        }
        Known::forbid(
            "a geometry",
            &[
                ("geometry", known.geometry.is_some()),
                ("properties", known.properties.is_some()),
                ("features", known.features.is_some()),
            ],
        )?;
        if name == "GeometryCollection" {
            return self.collection(known.geometries, pointer);
        }
        let Some(kind) = Kind::from_name(&name) else {
            return Err(Error::new(Code::GeojsonType, "/type", format!("a geometry cannot be a {name}")));
        };
        let Some(coordinates) = known.coordinates else {
            return Err(Error::new(Code::GeojsonMissing, "/coordinates", format!("a {name} has coordinates")));
        };
        self.coordinates(kind, coordinates).map_err(|e| e.under("/coordinates"))?;
        self.shape.end_member(kind);
        if self.shape.collection {
            self.member_pointers.push(pointer.to_owned());
        }
        Ok(())
    }

    /// Nested collections are flattened (`g1` point 8); the scanner has bounded their depth.
    fn collection(&mut self, geometries: Option<Value<'_>>, pointer: &str) -> Result<()> {
        self.shape.collection = true;
        let Some(geometries) = geometries else {
            let message = "a GeometryCollection has geometries";
            return Err(Error::new(Code::GeojsonMissing, "/geometries", message));
        };
        if geometries.tag() != Tag::Array {
            return Err(Error::new(Code::GeojsonMemberType, "/geometries", "geometries is an array"));
        }
        if geometries.node().count() == 0 {
            return Err(empty("the GeometryCollection").under("/geometries"));
        }
        for (i, member) in geometries.elements().enumerate() {
            let here = format!("/geometries/{i}");
            self.geometry(member, &format!("{pointer}{here}")).map_err(|e| e.under(&here))?;
            if self.shape.members.len() > self.limits.members_max {
                let message = format!("the collection has more than {} members", self.limits.members_max);
                return Err(Error::new(Code::LimitMembers, "/geometries", message));
            }
        }
        Ok(())
    }

    fn coordinates(&mut self, kind: Kind, value: Value<'_>) -> Result<()> {
        if !kind.is_multi() {
            return self.part(kind, value);
        }
        let parts = array(value, "parts")?;
        for (i, part) in parts.elements().enumerate() {
            self.part(kind.part(), part).map_err(|e| e.under(&format!("/{i}")))?;
        }
        Ok(())
    }

    fn part(&mut self, kind: Kind, value: Value<'_>) -> Result<()> {
        match kind {
            Kind::Point => {
                self.position(value)?;
                self.shape.end_path();
            }
            Kind::LineString => self.path(value)?,
            _ => {
                for (i, ring) in array(value, "rings")?.elements().enumerate() {
                    self.path(ring).map_err(|e| e.under(&format!("/{i}")))?;
                }
            }
        }
        self.shape.end_part();
        if self.shape.parts.len() > self.limits.parts_max {
            let message = format!("the geometry has more than {} parts", self.limits.parts_max);
            return Err(Error::new(Code::LimitParts, "", message));
        }
        Ok(())
    }

    fn path(&mut self, value: Value<'_>) -> Result<()> {
        for (i, position) in array(value, "positions")?.elements().enumerate() {
            if let Err(error) = self.position(position) {
                return Err(error.under(&format!("/{i}")));
            }
        }
        self.shape.end_path();
        if self.shape.paths.len() > self.limits.rings_max {
            let message = format!("the geometry has more than {} rings or lines", self.limits.rings_max);
            return Err(Error::new(Code::LimitRings, "", message));
        }
        Ok(())
    }

    #[inline]
    fn position(&mut self, value: Value<'_>) -> Result<()> {
        let count = value.node().count();
        if value.tag() != Tag::Array || count != self.dimension || count < 2 {
            self.check_position(value)?;
        }
        let index = self.shape.positions.len();
        if index >= self.limits.positions_max {
            let message = format!("the geometry has more than {} positions", self.limits.positions_max);
            return Err(Error::new(Code::LimitPositions, "", message));
        }
        let x = self.ordinates.read(value.child(0), index, 0)?;
        let y = self.ordinates.read(value.child(1), index, 1)?;
        let mut position = [x, y, O::Number::default()];
        if count == 3 {
            if self.ordinates.drops_z() {
                if !value.child(2).is_number() {
                    return Err(not_a_number(value.child(2).tag(), 2));
                }
            } else {
                position[2] = self.ordinates.read(value.child(2), index, 2)?;
            }
        }
        self.shape.positions.push(position);
        Ok(())
    }

    /// The first position sets the dimension; others must agree.
    #[cold]
    fn check_position(&mut self, value: Value<'_>) -> Result<()> {
        if value.tag() != Tag::Array {
            return Err(Error::new(Code::GeojsonCoordinates, "", "a position (an array of numbers) is needed here"));
        }
        let count = value.node().count();
        match count {
            0 => return Err(empty("the position")),
            1 => return Err(Error::new(Code::GeojsonPosition, "", "a position has at least two numbers")),
            2 | 3 => {}
            _ => {
                return Err(Error::new(Code::GeojsonPosition, "", format!("a position has {count} numbers"))
                    .hint("M values and further numbers are refused: put them into properties"));
            }
        }
        if let Some(wrong) = value.elements().position(|number| !number.is_number()) {
            return Err(not_a_number(value.child(wrong).tag(), wrong));
        }
        if self.dimension != 0 && count != self.dimension {
            let message = "some positions have two numbers and some three";
            return Err(Error::new(Code::GeojsonDimensions, "", message));
        }
        self.dimension = count;
        Ok(())
    }
}

fn array<'a>(value: Value<'a>, of: &str) -> Result<Value<'a>> {
    if value.tag() != Tag::Array {
        return Err(Error::new(Code::GeojsonCoordinates, "", format!("an array of {of} is needed here")));
    }
    if value.node().count() == 0 {
        return Err(empty(&format!("the array of {of}")));
    }
    Ok(value)
}

fn empty(what: &str) -> Error {
    Error::new(Code::GeojsonEmpty, "", format!("{what} is empty"))
        .hint("a feature without a place has geometry null, which a source may accept")
}
