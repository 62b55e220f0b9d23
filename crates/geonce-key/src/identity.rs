//! Identity, version and scope: `g1` points 9 to 11, written as the tail of the canonical bytes.

use crate::decimal::Decimal;
use crate::fingerprint::Fingerprint;
use crate::geojson::Payload;
use crate::jcs::{self, Writer};
use crate::json::{Tag, Value};
use crate::policy::{Detail, Field, Identity, Pointer, Policy};
use crate::version::Version;
use crate::{Code, Error, Result};

/// Members that tell about a delivery, not about the event. They are left out at the top of the payload, at the
/// top of the Feature and in its `properties`.
pub const IGNORED: [&str; 9] = [
    "_meta",
    "received_at",
    "sent_at",
    "request_id",
    "delivery_id",
    "delivery_attempt",
    "attempt",
    "retry_count",
    "webhook_id",
];

/// The specification's name, as it is written.
const SPEC: &[u8] = b",\"spec\":\"g1\"";

/// Writes `,"identity":…,"scope":…,"spec":"g1"`, the shape's detail where it is not exact, and the version, up to the closing brace. A bare geometry
/// (`None`) has no members to take an identity from. Returns the version.
pub(crate) fn write(
    payload: Option<&Payload<'_>>,
    policy: &Policy,
    prepared: &Prepared,
    skip: &mut Vec<usize>,
    out: &mut Vec<u8>,
) -> Result<Option<Version>> {
    out.extend_from_slice(b",\"identity\":");
    // A bare geometry in JSON has members, but none of them tell events apart.
    let base = payload.filter(|payload| payload.feature.is_some() || policy.feature.is_some());
    match &policy.identity {
        Identity::Whole { ignore } => match base {
            None => out.extend_from_slice(b"{}"),
            Some(payload) => {
                left_out(payload, ignore, skip);
                Writer { unicode: policy.unicode, skip, bytes_max: policy.limits.bytes_max }
                    .value(payload.root, out)?;
            }
        },
        Identity::Fields(_) => {
            // From the top of an envelope, /properties is not the Feature's.
            let base = base.map(|payload| {
                let properties = if policy.feature.is_none() { payload.properties } else { None };
                (payload_base(payload, policy), properties)
            });
            write_fields(base, &prepared.fields, policy, out)?;
        }
    }
    out.extend_from_slice(&prepared.scope);
    if policy.shape != Detail::Exact {
        out.extend_from_slice(b",\"shape\":\"");
        out.extend_from_slice(policy.shape.name().as_bytes());
        out.push(b'"');
    }
    out.extend_from_slice(SPEC);
    let mut version = None;
    if let Some(pointer) = &policy.version {
        out.extend_from_slice(b",\"version\":");
        version = Some(write_version(base.map(|payload| payload_base(payload, policy)), pointer, out)?);
    }
    out.push(b'}');
    Ok(version)
}

/// Pointers start at the payload where it is an envelope, at the Feature otherwise; without envelope these are one.
pub(crate) fn payload_base<'a>(payload: &Payload<'a>, policy: &Policy) -> Value<'a> {
    match (&policy.feature, payload.feature) {
        (None, Some(feature)) => feature,
        _ => payload.root,
    }
}

/// Whether a payload says that its entity is gone.
pub(crate) fn deletes(payload: &Payload<'_>, policy: &Policy) -> bool {
    let Some(deletion) = &policy.delete else { return false };
    // A bare geometry has no members to say it with.
    let base = (payload.feature.is_some() || policy.feature.is_some()).then(|| payload_base(payload, policy));
    let said = base.and_then(|base| base.at_tokens(deletion.at.tokens()));
    said.is_some_and(|value| crate::feature::property(value) == deletion.equals)
}

/// The nodes a whole-payload identity leaves out.
pub(crate) fn left_out(payload: &Payload<'_>, ignore: &[Pointer], skip: &mut Vec<usize>) {
    skip.clear();
    let object = payload.feature.or(payload.geometry).unwrap_or(payload.root);
    skip_members(
        object,
        |name| matches!(name, b"type" | b"geometry" | b"bbox" | b"crs" | b"links") || is_ignored(name),
        skip,
    );
    if payload.feature.is_none() {
        skip_members(object, |name| matches!(name, b"coordinates" | b"geometries"), skip);
    }
    if payload.root.at != object.at {
        skip_members(payload.root, is_ignored, skip);
    }
    skip.extend(ignore.iter().filter_map(|pointer| payload.root.at_tokens(pointer.tokens())).map(|value| value.at));
    if let Some(properties) = payload.properties {
        skip_members(properties, is_ignored, skip);
        if properties.members().all(|(_, value)| skip.contains(&value.at)) {
            skip.push(properties.at);
        }
    }
}

fn is_ignored(name: &[u8]) -> bool {
    IGNORED.iter().any(|ignored| ignored.as_bytes() == name)
}

fn skip_members(object: Value<'_>, left_out: impl Fn(&[u8]) -> bool, skip: &mut Vec<usize>) {
    for (name, value) in object.members() {
        let leave = match name.raw_bytes() {
            (raw, false) => left_out(raw),
            (_, true) => name.as_str().is_some_and(|name| left_out(name.as_bytes())),
        };
        if leave {
            skip.push(value.at);
        }
    }
}

/// What does not depend on the payload, written once.
pub(crate) struct Prepared {
    /// The fields of the identity, in canonical order.
    fields: Vec<Named>,
    /// `,"scope":…`.
    scope: Vec<u8>,
}

/// A field of the identity with its name and colon as they are written.
struct Named {
    field: Field,
    name: Vec<u8>,
}

impl Prepared {
    pub(crate) fn new(policy: &Policy) -> Prepared {
        let mut fields = match &policy.identity {
            Identity::Fields(fields) => fields.clone(),
            Identity::Whole { .. } => Vec::new(),
        };
        fields.sort_by(|a, b| jcs::compare(a.at.as_str(), b.at.as_str()));
        let named = fields.into_iter().map(|field| {
            let mut name = Vec::new();
            jcs::write_string(field.at.as_str(), &mut name);
            name.push(b':');
            Named { field, name }
        });
        let mut scope = b",\"scope\":".to_vec();
        jcs::write_string(&policy.scope, &mut scope);
        Prepared { fields: named.collect(), scope }
    }
}

/// An object from pointer text to value.
fn write_fields(
    base: Option<(Value<'_>, Option<Value<'_>>)>,
    fields: &[Named],
    policy: &Policy,
    out: &mut Vec<u8>,
) -> Result<()> {
    let writer = Writer { unicode: policy.unicode, skip: &[], bytes_max: policy.limits.bytes_max };
    let mut separator = b'{';
    for Named { field, name } in fields {
        let Some(value) = base.and_then(|(base, properties)| find(base, properties, &field.at)) else {
            if field.optional {
                continue;
            }
            return Err(Error::new(Code::IdentityMissing, field.at.as_str(), "the identity needs this value")
                .hint("say optional if it may be absent"));
        };
        out.push(separator);
        separator = b',';
        out.extend_from_slice(name);
        match field.decimals {
            None => writer.value(value, out).map_err(|e| e.under(field.at.as_str()))?,
            Some(places) => write_rounded(value, places, field, out)?,
        }
    }
    if separator == b'{' {
        out.push(b'{');
    }
    out.push(b'}');
    Ok(())
}

/// What a pointer finds from `base` on. Most go through the Feature's properties, which have been found already.
fn find<'a>(base: Value<'a>, properties: Option<Value<'a>>, pointer: &Pointer) -> Option<Value<'a>> {
    match (pointer.tokens(), properties) {
        ([first, rest @ ..], Some(properties)) if first == "properties" => properties.at_tokens(rest),
        (tokens, _) => base.at_tokens(tokens),
    }
}

fn write_rounded(value: Value<'_>, places: u8, field: &Field, out: &mut Vec<u8>) -> Result<()> {
    let Some(decimal) = value.node().decimal() else {
        return Err(Error::new(Code::IdentityType, field.at.as_str(), "decimals are declared, but this is no number"));
    };
    let rounded = decimal.round(places).even;
    if rounded.unsigned_abs() >= crate::decimal::EXACT_DIGITS_BOUND {
        let message = format!("the number is too large to be rounded to {places} decimals");
        return Err(Error::new(Code::IdentityType, field.at.as_str(), message));
    }
    Decimal { negative: rounded < 0, digits: rounded.unsigned_abs(), exponent: -i32::from(places) }.write(out);
    Ok(())
}

fn write_version(base: Option<Value<'_>>, pointer: &Pointer, out: &mut Vec<u8>) -> Result<Version> {
    let found = version(base, pointer)?;
    if let Some(value) = base.and_then(|base| base.at_tokens(pointer.tokens())) {
        Writer { unicode: crate::policy::Unicode::Exact, skip: &[], bytes_max: usize::MAX }.value(value, out)?;
    }
    Ok(found)
}

/// The version that `pointer` finds from `base` on.
pub(crate) fn version(base: Option<Value<'_>>, pointer: &Pointer) -> Result<Version> {
    let Some(value) = base.and_then(|base| base.at_tokens(pointer.tokens())) else {
        return Err(Error::new(Code::VersionMissing, pointer.as_str(), "the payload has no version here"));
    };
    let found = match value.tag() {
        Tag::Exact | Tag::Float => {
            let mut digits = Vec::new();
            write_number(value, &mut digits);
            std::str::from_utf8(&digits).ok().and_then(|text| text.parse().ok()).map(Version::Integer)
        }
        Tag::String => {
            value.as_str().and_then(|text| Version::parse(&text)).filter(|v| matches!(v, Version::Time { .. }))
        }
        _ => None,
    };
    found.ok_or_else(|| {
        Error::new(Code::VersionType, pointer.as_str(), "a version is an integer or an RFC 3339 time")
            .hint("such as 17 or \"2026-11-15T08:00:00Z\"")
    })
}

/// A number in canonical form: an integer has neither point nor exponent.
pub(crate) fn write_number(value: Value<'_>, out: &mut Vec<u8>) {
    // Only text can fail to be written.
    let _ = Writer { unicode: crate::policy::Unicode::Exact, skip: &[], bytes_max: usize::MAX }.value(value, out);
}

/// The digest of everything that a whole payload's identity would hold, less what `ignore` points at: the bytes
/// `{"rest":…,"spec":"g1"}`. It is the same for two deliveries that differ in nothing but their geometry.
pub(crate) fn rest(payload: Option<&Payload<'_>>, policy: &Policy, ignore: &[Pointer]) -> Result<[u8; 16]> {
    let mut bytes = b"{\"rest\":".to_vec();
    match payload {
        None => bytes.extend_from_slice(b"{}"),
        Some(payload) => {
            let mut all = ignore.to_vec();
            if let Identity::Whole { ignore } = &policy.identity {
                all.extend_from_slice(ignore);
            }
            let mut skip = Vec::new();
            left_out(payload, &all, &mut skip);
            Writer { unicode: policy.unicode, skip: &skip, bytes_max: policy.limits.bytes_max }
                .value(payload.root, &mut bytes)?;
        }
    }
    bytes.extend_from_slice(SPEC);
    bytes.push(b'}');
    Ok(Fingerprint::of(&bytes, None).key())
}

/// The digest of the fields that name an entity: the bytes `{"entity":…,"scope":…,"spec":"g1"}`.
pub(crate) fn entity(payload: Option<&Payload<'_>>, policy: &Policy, prepared: &Prepared) -> Result<Fingerprint> {
    let base = payload.map(|payload| {
        let properties = if policy.feature.is_none() { payload.properties } else { None };
        (payload_base(payload, policy), properties)
    });
    let mut bytes = b"{\"entity\":".to_vec();
    write_fields(base, &prepared.fields, policy, &mut bytes)?;
    bytes.extend_from_slice(&prepared.scope);
    bytes.extend_from_slice(SPEC);
    bytes.push(b'}');
    Ok(Fingerprint::of(&bytes, policy.key_secret.as_ref()))
}
