//! A payload as delivered: its members, its numbers with their text, and where each of them stands.

use super::shown;
use crate::crs::Crs;
use crate::decimal::Decimal;
use crate::geojson::{self, Ordinates, Payload};
use crate::grid::position_pointer;
use crate::json::{Document, Value};
use crate::key::normal_code;
use crate::policy::AssumedCrs;
use crate::shape::{Kind, Position, Shape};
use crate::{Delivered, Error, Form, Input, Keyer, Policy, Result};

/// One payload, read under one policy.
pub(super) struct Reading<'a> {
    pub(super) policy: &'a Policy,
    pub(super) form: Form,
    /// The text of JSON payloads.
    pub(super) text: Option<&'a str>,
    pub(super) payload: Option<Payload<'a>>,
    /// Absent where it is null.
    pub(super) geometry: Option<Geometry<'a>>,
}

impl<'a> Reading<'a> {
    /// Reads what [`Keyer::key`] has accepted already.
    pub(super) fn new(input: Input<'a>, policy: &'a Policy, document: Option<&'a Document<'a>>) -> Result<Self> {
        let keyer = Keyer::new(&Policy { previous: None, accept: crate::policy::Accept::default(), ..policy.clone() })?;
        let limits = &policy.limits;
        let Some(document) = document else {
            let delivered = match input.form {
                Form::WkbHex => crate::wkb::read_hex(input.bytes, limits)?,
                Form::Wkb => crate::wkb::read(input.bytes, limits)?,
                _ => crate::wkt::read(input.bytes, limits)?,
            };
            let geometry = Some(Geometry::delivered(delivered, input, policy, &keyer)?);
            return Ok(Reading { policy, form: input.form, text: None, payload: None, geometry });
        };
        let payload = geojson::payload(document.root(), policy.feature.as_ref())?;
        let geometry = match payload.geometry {
            None => None,
            Some(value) => Some(Geometry::json(value, &payload, input, policy, &keyer)?),
        };
        Ok(Reading { policy, form: input.form, text: Some(document.text), payload: Some(payload), geometry })
    }

    /// The payload whose members the identity is taken from; a bare geometry has none.
    pub(super) fn base(&self) -> Option<&Payload<'a>> {
        self.payload.as_ref().filter(|payload| payload.feature.is_some() || self.policy.feature.is_some())
    }
}

/// Reads, in place of numbers, where they are on the tape.
struct Places;

impl Ordinates for Places {
    type Number = u32;

    fn drops_z(&self) -> bool {
        false
    }

    fn read(&mut self, value: Value<'_>, _position: usize, _axis: usize) -> Result<u32> {
        // A tape has fewer nodes than its text bytes, which fit 32 bits.
        u32::try_from(value.at).map_err(|_| Error::new(crate::Code::LimitValues, "", "too many values"))
    }
}

/// A geometry as delivered, in its own coordinate system and with every third number.
pub(super) struct Geometry<'a> {
    pub(super) shape: Shape<f64>,
    /// The tape's nodes of the numbers, where the payload is JSON.
    nodes: Option<(Value<'a>, Vec<Position<u32>>)>,
    /// The transformation; `None` for WGS 84 itself.
    pub(super) crs: Option<Crs>,
    /// The coordinate system's code.
    pub(super) code: u32,
    /// Whether the payload declares it.
    pub(super) declared: bool,
    prefix: String,
    members: Vec<String>,
}

impl<'a> Geometry<'a> {
    fn json(
        value: Value<'a>,
        payload: &Payload<'a>,
        input: Input<'a>,
        policy: &Policy,
        keyer: &Keyer,
    ) -> Result<Geometry<'a>> {
        let mut places = Shape::new();
        let mut members = Vec::new();
        geojson::read(value, &policy.limits, &mut Places, &mut places, &mut members)?;
        let axes = if places.has_z { 3 } else { 2 };
        let number = |at: u32| value.sibling(at as usize).as_f64().unwrap_or_default();
        let positions = places.positions.iter().map(|position| {
            let mut numbers = [0.0; 3];
            for axis in 0..axes {
                numbers[axis] = number(position[axis]);
            }
            numbers
        });
        let shape = Shape {
            collection: places.collection,
            has_z: places.has_z,
            positions: positions.collect(),
            members: places.members,
            parts: places.parts,
            paths: places.paths,
        };
        let declared = payload.crs.or(input.crs);
        Ok(Geometry {
            shape,
            nodes: Some((value, places.positions)),
            crs: keyer.resolve_crs(payload.crs, input.crs)?,
            code: code_in_force(declared, policy),
            declared: declared.is_some(),
            prefix: payload.geometry_pointer.to_string(),
            members,
        })
    }

    fn delivered(delivered: Delivered, input: Input<'a>, policy: &Policy, keyer: &Keyer) -> Result<Geometry<'a>> {
        let srid = delivered.srid.map(normal_code);
        let declared = srid.or(input.crs);
        Ok(Geometry {
            shape: delivered.shape,
            nodes: None,
            crs: keyer.resolve_crs(srid, input.crs)?,
            code: code_in_force(declared, policy),
            declared: declared.is_some(),
            prefix: String::new(),
            members: Vec::new(),
        })
    }

    /// Whether positions have a third number.
    pub(super) fn axes(&self) -> usize {
        if self.shape.has_z { 3 } else { 2 }
    }

    /// The text of a number; `None` for binary forms and for a third number that is not there.
    pub(super) fn text(&self, position: usize, axis: usize) -> Option<&'a str> {
        let (value, nodes) = self.nodes.as_ref()?;
        (axis < self.axes()).then(|| value.sibling(nodes[position][axis] as usize).number_text())
    }

    /// A number for people, as delivered where there is a text.
    pub(super) fn shown(&self, position: usize, axis: usize) -> String {
        if let Some(text) = self.text(position, axis) {
            return shown::shorten(text);
        }
        let mut out = Vec::new();
        Decimal::shortest(self.shape.positions[position][axis]).write(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    /// A position for people.
    pub(super) fn shown_position(&self, position: usize) -> String {
        let numbers: Vec<String> = (0..self.axes()).map(|axis| self.shown(position, axis)).collect();
        shown::shorten(&format!("[{}]", numbers.join(", ")))
    }

    /// Whether a position is a point of its own.
    pub(super) fn is_point(&self, position: usize) -> bool {
        let path = self.shape.paths.partition_point(|&end| end as usize <= position);
        let part = self.shape.parts.partition_point(|&end| end as usize <= path);
        let member = self.shape.members.partition_point(|member| member.end as usize <= part);
        self.shape.members.get(member).is_some_and(|member| member.kind.part() == Kind::Point)
    }

    /// Longitude and latitude of a position.
    pub(super) fn lon_lat(&self, position: usize) -> [f64; 2] {
        let [x, y, _] = self.shape.positions[position];
        let (lon, lat) = self.crs.as_ref().map_or(Some((x, y)), |crs| crs.to_wgs84(x, y)).unwrap_or((x, y));
        [lon, lat]
    }

    /// Where a position stands in the payload.
    pub(super) fn position_pointer(&self, position: usize) -> String {
        self.true_pointer(&position_pointer(&self.shape, position))
    }

    /// Where a path stands in the payload.
    pub(super) fn path_pointer(&self, path: usize) -> String {
        self.true_pointer(&crate::grid::path_pointer(&self.shape, path))
    }

    /// Where a member, or the coordinates of a geometry that is no collection, stand in the payload.
    pub(super) fn member_pointer(&self, member: usize) -> String {
        if self.shape.collection {
            self.true_pointer(&format!("/geometries/{member}/coordinates"))
        } else {
            format!("{}/coordinates", self.prefix)
        }
    }

    /// Where another member of the geometry object stands in the payload.
    pub(super) fn pointer(&self, name: &str) -> String {
        format!("{}/{name}", self.prefix)
    }

    /// Whether a collection holds a collection.
    pub(super) fn is_nested(&self) -> bool {
        self.members.iter().any(|pointer| pointer.matches("/geometries/").count() > 1)
    }

    /// Shapes number the members of a collection as flattened; payloads may nest them.
    fn true_pointer(&self, pointer: &str) -> String {
        let rest = pointer.strip_prefix("/geometries/").and_then(|rest| rest.split_once('/'));
        let member = rest.and_then(|(m, tail)| Some((self.members.get(m.parse::<usize>().ok()?)?, tail)));
        match member {
            Some((member, tail)) => format!("{}{member}/{tail}", self.prefix),
            None => format!("{}{pointer}", self.prefix),
        }
    }
}

fn code_in_force(declared: Option<u32>, policy: &Policy) -> u32 {
    declared.unwrap_or(match policy.crs {
        AssumedCrs::Code(code) => normal_code(code),
        AssumedCrs::Required => 4326,
    })
}
