//! Keys: the bytes of `g1` point 12 and their digests, from any input form, under one policy.

use crate::canonical::{Canonicalizer, Rules};
use crate::coordinates::{write_bounds, write_geometry};
use crate::crs::{self, Crs};
use crate::decimal::Decimal;
use crate::delivered::Delivered;
use crate::fingerprint::Fingerprint;
use crate::geojson::{self, Payload};
use crate::grid::{Doubles, Gridder, path_pointer};
use crate::identity;
use crate::json::{self, Tape};
use crate::policy::{AssumedCrs, Detail, Dimensions, Identity, Policy};
use crate::schema::Schema;
use crate::shape::Shape;
use crate::simplify::simplify;
use crate::version::Version;
use crate::{Code, Error, Result};
use std::borrow::Cow;

/// How a payload is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// JSON: a Feature, a bare geometry, or an envelope around a Feature.
    Json,
    /// WKT or EWKT.
    Wkt,
    /// WKB or EWKB.
    Wkb,
    /// WKB or EWKB in hexadecimal.
    WkbHex,
}

/// One payload.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// How it is written.
    pub form: Form,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// The EPSG code declared by the collection around it.
    pub crs: Option<u32>,
}

impl<'a> Input<'a> {
    /// A JSON payload on its own.
    pub fn json(bytes: &'a [u8]) -> Input<'a> {
        Input { form: Form::Json, bytes, crs: None }
    }
}

/// The most warnings that are kept of one payload.
pub const WARNINGS_MAX: usize = 16;

/// Something a sender should know that is no reason to refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Stable code: `collapsed`, `ring_closed` or `previous_refused`.
    pub code: &'static str,
    /// Where in the payload.
    pub pointer: String,
    /// One sentence for people.
    pub message: String,
}

/// The key of one payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyed {
    /// The digest; its first 16 bytes are the key.
    pub fingerprint: Fingerprint,
    /// Further digests under which the same event may be known: the second grid, the previous policy.
    pub aliases: Vec<Fingerprint>,
    /// What is odd about the payload.
    pub warnings: Vec<Warning>,
}

impl Keyed {
    /// Whether two payloads are the same event: they share a key or an alias.
    pub fn matches(&self, other: &Keyed) -> bool {
        let all = |keyed: &Keyed| [&[keyed.fingerprint], keyed.aliases.as_slice()].concat();
        let theirs = all(other);
        all(self).iter().any(|mine| theirs.contains(mine))
    }
}

/// Makes keys under one policy, reusing its memory from one payload to the next.
pub struct Keyer {
    policy: Policy,
    schema: Option<Schema>,
    /// Where a payload declares nothing; absent where it must.
    assumed_crs: Option<Crs>,
    rules: Rules,
    prepared: identity::Prepared,
    tape: Tape,
    /// Nodes that a whole-payload identity leaves out.
    skip: Vec<usize>,
    gridder: Gridder,
    canonicalizer: Canonicalizer,
    shape: Shape<i64>,
    canonical: Shape<i64>,
    safe: Shape<i64>,
    /// Pointers of the members of a delivered collection, which may be nested.
    member_pointers: Vec<String>,
    /// Everything of the bytes that follows the geometry.
    suffix: Vec<u8>,
    version: Option<Version>,
    /// Where the last payload's geometry is.
    geometry_pointer: Cow<'static, str>,
    bytes: Vec<u8>,
    previous: Option<Box<Keyer>>,
    /// Makes content digests; built when the first is asked for.
    content: Option<Box<Keyer>>,
}

/// What was read before the canonical form.
struct Read {
    has_geometry: bool,
    geometry_pointer: Cow<'static, str>,
}

impl Keyer {
    /// Checks a policy and prepares it.
    pub fn new(policy: &Policy) -> Result<Keyer> {
        policy.check()?;
        let assumed_crs = match policy.crs {
            AssumedCrs::Required => None,
            AssumedCrs::Code(code) => {
                let crs = crs::find(code)?;
                refuse_approximate(&crs, policy.approximate_crs)?;
                Some(crs)
            }
        };
        let previous = policy.previous.as_deref().map(Keyer::new).transpose()?.map(Box::new);
        Ok(Keyer {
            schema: policy.accept.schema.as_deref().map(Schema::new).transpose()?,
            assumed_crs,
            rules: Rules::new(policy),
            prepared: identity::Prepared::new(policy),
            tape: Tape::default(),
            skip: Vec::new(),
            gridder: Gridder::new(policy),
            canonicalizer: Canonicalizer::default(),
            shape: Shape::new(),
            canonical: Shape::new(),
            safe: Shape::new(),
            member_pointers: Vec::new(),
            suffix: Vec::new(),
            version: None,
            geometry_pointer: Cow::Borrowed(""),
            bytes: Vec::new(),
            previous,
            content: None,
            policy: policy.clone(),
        })
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The key of one payload.
    pub fn key(&mut self, input: Input<'_>) -> Result<Keyed> {
        let mut keyed = self.key_alone(input)?;
        if let Some(previous) = &mut self.previous {
            match previous.key_alone(input) {
                Ok(old) => {
                    for alias in std::iter::once(old.fingerprint).chain(old.aliases) {
                        if alias != keyed.fingerprint && !keyed.aliases.contains(&alias) {
                            keyed.aliases.push(alias);
                        }
                    }
                }
                Err(error) => keyed.warnings.push(Warning {
                    code: "previous_refused",
                    pointer: error.pointer().to_owned(),
                    message: format!("the previous policy refuses this payload: {}", error.message()),
                }),
            }
        }
        Ok(keyed)
    }

    /// The content digest of `g1` point 12: the same payload keyed as a whole, whatever the identity is. It tells
    /// whether a duplicate differs outside its identity. `input` is the payload that was keyed last, as `keyed`.
    pub fn content(&mut self, input: Input<'_>, keyed: &Keyed) -> Result<Fingerprint> {
        let policy = &self.policy;
        let whole = matches!(policy.identity, Identity::Whole { .. });
        let exact = policy.shape == Detail::Exact;
        if whole && exact && policy.version.is_none() && policy.key_secret.is_none() {
            return Ok(keyed.fingerprint);
        }
        let content = match &mut self.content {
            Some(content) => content,
            None => self.content.insert(Box::new(Keyer::new(&self.policy.content())?)),
        };
        Ok(content.key_alone(input)?.fingerprint)
    }

    /// Where in the last payload its geometry is: `/geometry` of a Feature, nothing before a bare geometry.
    pub fn geometry_pointer(&self) -> &str {
        &self.geometry_pointer
    }

    /// The last payload's version, where the policy has one.
    pub fn version(&self) -> Option<&Version> {
        self.version.as_ref()
    }

    /// The canonical bytes of the last key.
    pub fn canonical_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What follows the geometry in the canonical bytes of the last key: identity, scope and version.
    pub fn bytes_beside_geometry(&self) -> &[u8] {
        &self.suffix
    }

    /// The last payload's geometry on the grid, as delivered; `None` where it was null.
    pub fn delivered_shape(&self) -> Option<&Shape<i64>> {
        (!self.shape.members.is_empty()).then_some(&self.shape)
    }

    /// The last payload's geometry in canonical form; `None` where it was null.
    pub fn canonical_shape(&self) -> Option<&Shape<i64>> {
        (!self.canonical.members.is_empty()).then_some(&self.canonical)
    }

    fn key_alone(&mut self, input: Input<'_>) -> Result<Keyed> {
        self.gridder.clear();
        self.member_pointers.clear();
        self.suffix.clear();
        self.shape.clear();
        self.canonical.clear();
        let read = match input.form {
            Form::Json => {
                let mut tape = std::mem::take(&mut self.tape);
                let read = self.read_json(input, &mut tape);
                self.tape = tape;
                read?
            }
            Form::Wkt => self.read_delivered(&crate::wkt::read(input.bytes, &self.policy.limits)?, input.crs)?,
            Form::Wkb => self.read_delivered(&crate::wkb::read(input.bytes, &self.policy.limits)?, input.crs)?,
            Form::WkbHex => self.read_delivered(&crate::wkb::read_hex(input.bytes, &self.policy.limits)?, input.crs)?,
        };
        if !read.has_geometry {
            self.write_bytes(None, false);
            let fingerprint = Fingerprint::of(&self.bytes, self.policy.key_secret.as_ref());
            return Ok(Keyed { fingerprint, aliases: Vec::new(), warnings: Vec::new() });
        }
        self.geometry_pointer.clone_from(&read.geometry_pointer);
        self.finish(&read.geometry_pointer)
    }

    fn read_json(&mut self, input: Input<'_>, tape: &mut Tape) -> Result<Read> {
        let document = json::parse(input.bytes, &self.policy.limits, tape)?;
        if let Some(schema) = &self.schema {
            schema.check(input.bytes)?;
        }
        let payload = geojson::payload(document.root(), self.policy.feature.as_ref())?;
        self.accept_type(&payload)?;
        let policy = &self.policy;
        if let Some(geometry) = payload.geometry {
            let crs = self.resolve_crs(payload.crs, input.crs).map_err(|e| e.under(&crs_pointer(&payload)))?;
            let read = match crs {
                None => geojson::read(
                    geometry,
                    &policy.limits,
                    &mut self.gridder,
                    &mut self.shape,
                    &mut self.member_pointers,
                ),
                Some(crs) => {
                    let mut doubles = Doubles { drops_z: policy.dimensions == Dimensions::Two };
                    let mut delivered = Shape::new();
                    let pointers = &mut self.member_pointers;
                    geojson::read(geometry, &policy.limits, &mut doubles, &mut delivered, pointers).and_then(|()| {
                        let placed = self.gridder.shape(&delivered, Some(&crs), &mut self.shape);
                        placed.map_err(|e| true_member(&self.member_pointers, e))
                    })
                }
            };
            read.map_err(|e| e.under(&payload.geometry_pointer))?;
        }
        self.version = identity::write(Some(&payload), policy, &self.prepared, &mut self.skip, &mut self.suffix)?;
        Ok(Read { has_geometry: payload.geometry.is_some(), geometry_pointer: payload.geometry_pointer })
    }

    fn read_delivered(&mut self, delivered: &Delivered, outer: Option<u32>) -> Result<Read> {
        let crs = self.resolve_crs(delivered.srid.map(normal_code), outer)?;
        self.gridder.shape(&delivered.shape, crs.as_ref(), &mut self.shape)?;
        self.accept_type_name(self.shape.type_name(), "/type")?;
        self.version = identity::write(None, &self.policy, &self.prepared, &mut self.skip, &mut self.suffix)?;
        Ok(Read { has_geometry: true, geometry_pointer: Cow::Borrowed("") })
    }

    /// From the shape on the grid to digests.
    fn finish(&mut self, geometry_pointer: &str) -> Result<Keyed> {
        let unclosed = self.check_shape().map_err(|e| e.under(geometry_pointer))?;
        let collapsed = self.canonicalizer.run(&self.shape, &unclosed, self.rules, &mut self.canonical);
        let simplified = self.policy.shape == Detail::Simplified;
        if simplified {
            simplify(&mut self.canonical, &mut self.canonicalizer, self.rules);
        }
        let mut keyed = Keyed {
            fingerprint: Fingerprint::default(),
            aliases: Vec::new(),
            warnings: self.warnings(&unclosed, &collapsed, geometry_pointer),
        };
        if self.gridder.has_alias() {
            self.safe.clone_from(&self.shape);
            self.gridder.make_safe(&mut self.safe);
            let mut other = Shape::new();
            self.canonicalizer.run(&self.safe, &unclosed, self.rules, &mut other);
            if simplified {
                simplify(&mut other, &mut self.canonicalizer, self.rules);
            }
            self.write_bytes(Some(&other), true);
            keyed.aliases.push(Fingerprint::of(&self.bytes, self.policy.key_secret.as_ref()));
        }
        let canonical = std::mem::take(&mut self.canonical);
        self.write_bytes(Some(&canonical), false);
        self.canonical = canonical;
        keyed.fingerprint = Fingerprint::of(&self.bytes, self.policy.key_secret.as_ref());
        Ok(keyed)
    }

    /// The checks that all forms share; returns the rings to be closed.
    fn check_shape(&self) -> Result<Vec<u32>> {
        match self.policy.dimensions {
            Dimensions::Three if !self.shape.has_z => {
                let message = "positions have two numbers, the policy asks for three";
                let error = Error::new(Code::GeojsonDimensions, path_pointer(&self.shape, 0), message);
                return Err(self.true_member(error));
            }
            _ => {}
        }
        let unclosed =
            self.gridder.check_paths(&self.shape, self.policy.close_rings).map_err(|e| self.true_member(e))?;
        if let Some(bounds) = self.policy.accept.bounds {
            let [west, south, east, north] =
                bounds.map(|degrees| Decimal::shortest(degrees).round(self.policy.precision).even);
            let inside = |p: &[i64; 3]| (west..=east).contains(&p[0]) && (south..=north).contains(&p[1]);
            if let Some(outside) = self.shape.positions.iter().position(|p| !inside(p)) {
                let path = self.shape.paths.partition_point(|&end| end as usize <= outside);
                let message = "the position is outside the bounds this source accepts";
                return Err(self.true_member(Error::new(Code::AcceptBounds, path_pointer(&self.shape, path), message)));
            }
        }
        Ok(unclosed)
    }

    fn true_member(&self, error: Error) -> Error {
        true_member(&self.member_pointers, error)
    }

    fn warnings(&self, unclosed: &[u32], collapsed: &[usize], prefix: &str) -> Vec<Warning> {
        let warning = |code, index: usize, message: &str| {
            let pointer = self.true_member(Error::new(Code::LimitWork, path_pointer(&self.shape, index), ""));
            Warning { code, pointer: format!("{prefix}{}", pointer.pointer()), message: message.to_owned() }
        };
        let closed = unclosed.iter().map(|&i| warning("ring_closed", i as usize, "the ring was closed"));
        let flat =
            collapsed.iter().map(|&i| warning("collapsed", i, "on the grid this line or ring has no extent left"));
        closed.chain(flat).take(WARNINGS_MAX).collect()
    }

    fn accept_type(&self, payload: &Payload<'_>) -> Result<()> {
        let Some(geometry) = payload.geometry else {
            let listed = self.policy.accept.types.iter().flatten().any(|name| name == "null");
            if listed || identity::deletes(payload, &self.policy) {
                return Ok(());
            }
            return Err(Error::new(
                Code::GeojsonNullGeometry,
                payload.geometry_pointer.clone(),
                "the geometry is null",
            )
            .hint("a source accepts such features when accept.types lists \"null\""));
        };
        if self.policy.accept.types.is_none() {
            return Ok(());
        }
        let name = geometry.get("type").and_then(json::Value::as_str).unwrap_or_default();
        if name != "GeometryCollection" && crate::Kind::from_name(&name).is_none() {
            // No type at all: the reader says so.
            return Ok(());
        }
        self.accept_type_name(&name, &format!("{}/type", payload.geometry_pointer))
    }

    fn accept_type_name(&self, name: &str, pointer: &str) -> Result<()> {
        match &self.policy.accept.types {
            Some(types) if !types.iter().any(|accepted| accepted == name) => {
                let message = format!("this source does not accept geometries of type {name}");
                Err(Error::new(Code::AcceptType, pointer, message).hint(format!("it accepts {}", types.join(", "))))
            }
            _ => Ok(()),
        }
    }

    /// The transformation a payload needs; `None` where its numbers are WGS 84 longitude and latitude already.
    pub(crate) fn resolve_crs(&self, declared: Option<u32>, outer: Option<u32>) -> Result<Option<Crs>> {
        let outer = outer.map(normal_code);
        if declared.zip(outer).is_some_and(|(inner, outer)| inner != outer) {
            let message = "feature and collection declare different coordinate systems";
            return Err(Error::new(Code::CrsConflict, "", message));
        }
        let crs = match (declared.or(outer), &self.assumed_crs) {
            (None, None) => {
                return Err(Error::new(Code::CrsMissing, "", "the payload declares no coordinate system")
                    .hint("this source has crs = \"required\""));
            }
            (Some(code), Some(assumed)) if code != assumed.code() => crs::find(code)?,
            (Some(code), None) => crs::find(code)?,
            (_, Some(assumed)) if assumed.is_geographic_wgs84() => return Ok(None),
            (_, Some(assumed)) => *assumed,
        };
        refuse_approximate(&crs, self.policy.approximate_crs)?;
        Ok((!crs.is_geographic_wgs84()).then_some(crs))
    }

    fn write_bytes(&mut self, geometry: Option<&Shape<i64>>, safe: bool) {
        let out = &mut self.bytes;
        out.clear();
        out.extend_from_slice(b"{\"geometry\":");
        match geometry {
            None => out.extend_from_slice(b"null"),
            Some(shape) if self.policy.shape == Detail::Bbox => write_bounds(shape, self.policy.precision, out),
            Some(shape) => write_geometry(shape, [self.policy.precision, self.policy.precision_z], out),
        }
        if safe {
            out.extend_from_slice(b",\"grid\":\"5/11\"");
        }
        out.extend_from_slice(&self.suffix);
    }
}

/// Pointers made from a flattened collection name its members by number; this restores where they really are.
fn true_member(member_pointers: &[String], error: Error) -> Error {
    let rest = error.pointer().strip_prefix("/geometries/").and_then(|rest| rest.split_once('/'));
    let found = rest.and_then(|(m, tail)| Some((member_pointers.get(m.parse::<usize>().ok()?)?, tail)));
    match found {
        Some((member, tail)) => {
            let pointer = format!("{member}/{tail}");
            error.at(pointer)
        }
        None => error,
    }
}

/// Several codes may name one system; an unknown one stays and is refused where it is used.
pub(crate) fn normal_code(srid: u32) -> u32 {
    crs::lookup(srid).map_or(srid, |crs| crs.code())
}

pub(crate) fn refuse_approximate(crs: &Crs, accepted: bool) -> Result<()> {
    if !crs.is_approximate() || accepted {
        return Ok(());
    }
    let message = format!("EPSG:{} ({}) reaches WGS 84 only approximately", crs.code(), crs.name());
    Err(Error::new(Code::CrsApproximate, "", message)
        .hint("approximate_crs = true accepts that: such keys match those of the same source, not of others"))
}

fn crs_pointer(payload: &Payload<'_>) -> String {
    match payload.feature {
        Some(feature) if feature.get("crs").is_some() => {
            let pointer = &payload.geometry_pointer;
            format!("{}/crs", pointer.strip_suffix("/geometry").unwrap_or(pointer))
        }
        _ => match payload.crs {
            Some(_) => format!("{}/crs", payload.geometry_pointer),
            None => String::new(),
        },
    }
}
