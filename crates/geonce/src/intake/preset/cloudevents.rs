//! `CloudEvents` 1.0 over HTTP (HTTP protocol binding, section 3): binary, structured, and batched. The data is a Feature,
//! a geometry or a collection; attributes become its member `cloudevent`, except of collections, which stay as they are.
//!
//! Source and id together identify a delivery. Of binary ones they are headers, which a signature may not cover: those
//! are judged where all headers are.

use super::feature::{Feature, Properties, with_member};
use super::json::{Object, Value, quote};
use super::{Defaults, Details, Fault, Payload, Payloads, Place, Request, each, missing, unusable};
use crate::intake::DeliveryId;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use geonce_key::Pointer;
use geonce_key::policy::Identity;
use hyper::header::CONTENT_TYPE;

/// The member that attributes become.
const MEMBER: &str = "cloudevent";
const ATTRIBUTES_NEEDED: [&str; 4] = ["specversion", "id", "source", "type"];

pub(super) fn defaults() -> Defaults {
    // The same feature sent again as another event is the same feature still.
    let ignore = Pointer::parse("/cloudevent").into_iter().collect();
    let identity = Some(Identity::Whole { ignore });
    Defaults { identity, without_geometry: true, ..Defaults::default() }
}

pub(super) fn read(request: &Request<'_>) -> Result<Payloads, Fault> {
    let content_type = request.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let content_type = content_type.to_ascii_lowercase();
    let root = request.json()?;
    let structured = content_type.starts_with("application/cloudevents");
    if !structured && request.headers.contains_key("ce-id") {
        return binary(request, root).map(Payloads::from);
    }
    if let Some(events) = request.elements(root)? {
        return Ok(each(&events, "", |event, at| one(request, event, at)));
    }
    one(request, root, "").map(Payloads::from)
}

/// An event whose attributes are headers.
fn binary(request: &Request<'_>, data: Value<'_>) -> Result<Payload, Fault> {
    let mut attributes = Properties::new();
    for name in ATTRIBUTES_NEEDED {
        let header = format!("ce-{name}");
        if !request.headers.contains_key(&header) {
            return Err(missing("", &format!("header {header}")));
        }
    }
    for (name, value) in request.headers {
        let Some(name) = name.as_str().strip_prefix("ce-") else { continue };
        let Ok(value) = std::str::from_utf8(value.as_bytes()) else {
            return Err(unusable("", format!("the header ce-{name} is not UTF-8")));
        };
        if request.headers.get_all(format!("ce-{name}")).iter().nth(1).is_some() {
            return Err(unusable("", format!("the header ce-{name} occurs twice")));
        }
        attributes.put(name, &quote(value));
    }
    payload(data, &attributes, "", "", Details::default())
}

/// An event whose attributes are members.
fn one(request: &Request<'_>, value: Value<'_>, at: &str) -> Result<Payload, Fault> {
    let Some(event) = value.object() else { return Err(unusable(at, "an event is an object")) };
    for name in ATTRIBUTES_NEEDED {
        let pointer = format!("{at}/{name}");
        match event.some(name).map(Value::as_str) {
            None => return Err(missing(pointer, name).with_hint("this source takes CloudEvents")),
            Some(Some(text)) if !text.is_empty() => {}
            Some(_) => return Err(unusable(pointer, "this is a text that is not empty")),
        }
    }
    if !event.str("specversion").is_some_and(|version| version.starts_with("1.")) {
        return Err(unusable(format!("{at}/specversion"), "CloudEvents are taken in version 1.0"));
    }
    let details = Details { delivery: identified(&event, at)?, ..Details::default() };
    let attributes = Properties::of(&event, &["data", "data_base64"]);
    if let Some(data) = event.some("data") {
        return payload(data, &attributes, at, "/data", details);
    }
    let Some(encoded) = event.some("data_base64") else { return Err(missing(format!("{at}/data"), "data")) };
    let pointer = format!("{at}/data_base64");
    let text = encoded.as_str().ok_or_else(|| unusable(&*pointer, "this is not base 64"))?;
    let data = STANDARD.decode(text.as_bytes()).map_err(|_| unusable(&*pointer, "this is not base 64"))?;
    let within = |fault: Fault| Fault { pointer: pointer.clone(), ..fault };
    geonce_key::check_json(&data, request.limits).map_err(|error| within(Fault::from(&error)))?;
    let Some(data) = Value::of(&data) else { return Err(unusable(pointer, "this is not JSON")) };
    payload(data, &attributes, at, "/data_base64", details)
}

fn identified(event: &Object<'_>, at: &str) -> Result<Option<DeliveryId>, Fault> {
    let (Some(source), Some(id)) = (event.str("source"), event.str("id")) else { return Ok(None) };
    let id = format!("{source} {id}");
    if id.len() > geonce_key::DELIVERY_ID_BYTES_MAX {
        let message = format!("source and id have at most {} bytes together", geonce_key::DELIVERY_ID_BYTES_MAX);
        return Err(unusable(format!("{at}/id"), message));
    }
    // The same words as for the header, so that an event is the same in every mode.
    Ok(Some(DeliveryId { by: "ce-id".to_owned(), id }))
}

fn payload(
    data: Value<'_>,
    attributes: &Properties,
    at: &str,
    under: &str,
    details: Details,
) -> Result<Payload, Fault> {
    let pointer = format!("{at}{under}");
    let Some(object) = data.object() else {
        return Err(
            unusable(pointer, "the data of an event is GeoJSON").with_hint("as JSON, not as a text that holds JSON")
        );
    };
    match object.str("type").as_deref() {
        Some("Feature") => {
            let place = Place { event: pointer, geometry: None };
            Ok(Payload { text: with_member(&object, MEMBER, attributes), place, read: Ok(details) })
        }
        Some("FeatureCollection") => {
            let place = Place { event: pointer, geometry: None };
            Ok(Payload { text: Bytes::copy_from_slice(data.text().as_bytes()), place, read: Ok(details) })
        }
        Some(_) => {
            let place = Place { event: pointer.clone(), geometry: Some(pointer) };
            let mut feature = Feature::new(Some(data.text().to_owned()), Properties::new());
            feature.foreign = Some((MEMBER, attributes.clone()));
            Ok(feature.payload(place, details))
        }
        None => Err(missing(format!("{pointer}/type"), "GeoJSON type")),
    }
}
