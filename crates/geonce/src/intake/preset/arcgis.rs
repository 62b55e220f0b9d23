//! Webhooks of `ArcGIS`: of feature services (Online sends a list, Enterprise one object), of organizations, and
//! features as Esri JSON. Sources: "Webhooks - Payloads (Feature Service)" of the `ArcGIS` REST API, "Feature layer
//! webhook payloads" of `ArcGIS` Online, "Payloads" of `ArcGIS` Enterprise.
//!
//! A feature service says only that there are changes, and where they can be read (`changesUrl`): the event has no
//! geometry, and its id is made of organization, service, layer, kinds of change and `serverGens`. Nothing is fetched
//! here; what is read there, `changes` understands.

use super::feature::{Feature, Properties};
use super::json::{Object, Value};
use super::{Changes, Details, Fault, Payload, Payloads, Place, Request, digest, each, esri, missing, short, unusable};
use crate::intake::DeliveryId;
use geonce_key::DELIVERY_ID_BYTES_MAX;

/// What ids are known by.
const CHANGES: &str = "arcgis-changes";
const OPERATION: &str = "arcgis-operation";

pub(super) fn read(request: &Request<'_>) -> Result<Payloads, Fault> {
    let root = request.json()?;
    if let Some(events) = request.elements(root)? {
        return Ok(each(&events, "", |event, at| one(request, event, at)));
    }
    let Some(object) = root.object() else { return Err(unusable("", "a webhook sends an object or a list")) };
    if let Some(events) = object.get("info").and(object.get("events")) {
        let info = object.get("info").and_then(Value::object);
        let portal = short(info.and_then(|info| info.some("portalURL")), "/info/portalURL")?;
        let events = request.elements(events)?.ok_or_else(|| unusable("/events", "events are a list"))?;
        return Ok(each(&events, "/events", |event, at| operation(event, portal, at)));
    }
    if let Some(features) = object.get("features") {
        let common = esri::Common::of(&object, "")?;
        let features = request.elements(features)?.ok_or_else(|| unusable("/features", "features are a list"))?;
        return Ok(each(&features, "/features", |feature, at| match feature.object() {
            Some(object) => esri::payload(&object, common, request.limits, at),
            None => Err(unusable(at, "a feature is an object")),
        }));
    }
    one(request, root, "").map(Payloads::from)
}

fn one(request: &Request<'_>, value: Value<'_>, at: &str) -> Result<Payload, Fault> {
    let Some(object) = value.object() else { return Err(unusable(at, "an event is an object")) };
    if object.get("changesUrl").is_some() || object.get("serviceName").is_some() {
        return change(&object, at);
    }
    if esri::is_feature(&object) {
        return esri::payload(&object, esri::Common::of(&object, at)?, request.limits, at);
    }
    Err(missing(at, "changesUrl, serviceName, attributes or geometry").with_hint(
        "this preset reads webhooks of feature \
        services and of organizations, and features as Esri JSON",
    ))
}

/// A feature service has changed.
fn change(object: &Object<'_>, at: &str) -> Result<Payload, Fault> {
    let service = object.some("serviceName").ok_or_else(|| missing(format!("{at}/serviceName"), "serviceName"))?;
    let mut events = match object.some("events").map(|events| (events.elements(), events)) {
        Some((Some(events), _)) => events.iter().map(|event| event.text()).collect(),
        Some((None, one)) => vec![one.text()],
        None => return Err(missing(format!("{at}/events"), "events")),
    };
    events.sort_unstable();
    let mut properties = Properties::of(object, &["events", "changesUrl", "minServerGen", "serverGen"]);
    let mut details = Details::default();
    let url = match object.some("changesUrl") {
        None => None,
        Some(value) => {
            let pointer = format!("{at}/changesUrl");
            let text = value.as_str().ok_or_else(|| unusable(&*pointer, "changesUrl is a text"))?;
            Some((
                unescape(&text).ok_or_else(|| unusable(&*pointer, "changesUrl is not escaped as URLs are"))?,
                pointer,
            ))
        }
    };
    let text = |name: &str| object.get(name).map_or("null", Value::text);
    let (org, layer) = (text("orgId"), text("layerId"));
    let kinds = events.join(",");
    properties.put("events", &format!("[{kinds}]"));
    let number = if let Some((url, pointer)) = &url {
        let [after, to] = server_gens(url).ok_or_else(|| {
            unusable(&**pointer, "changesUrl names no serverGens").with_hint("such as serverGens=[1404636,1404640]")
        })?;
        properties.put("changesUrl", &super::json::quote(url));
        properties.put("minServerGen", &after.to_string());
        properties.put("serverGen", &to.to_string());
        details.announces = true;
        details.changes = Some(Changes { of: format!("[{org},{},{layer}]", service.text()), after, to });
        format!("[{after},{to}]")
    } else {
        // Changes of a definition have no numbers; their time stands in.
        text("lastUpdatedTime").to_owned()
    };
    details.delivery = Some(identified(CHANGES, format!("[{org},{},{layer},[{kinds}],{number}]", service.text())));
    let place = Place { event: at.to_owned(), geometry: None };
    Ok(Feature::new(None, properties).payload(place, details))
}

/// Something was done in an organization.
fn operation(value: Value<'_>, portal: Option<Value<'_>>, at: &str) -> Result<Payload, Fault> {
    let Some(object) = value.object() else { return Err(unusable(at, "an event is an object")) };
    let part = |name: &str| object.some(name).ok_or_else(|| missing(format!("{at}/{name}"), name));
    let (done, when, source, id) = (part("operation")?, part("when")?, part("source")?, part("id")?);
    let user = object.get("userId").map_or("null", Value::text);
    let parts = [portal.map_or("null", Value::text), source.text(), id.text(), done.text(), when.text(), user];
    let delivery = Some(identified(OPERATION, format!("[{}]", parts.join(","))));
    let mut properties = Properties::of(&object, &["portalURL"]);
    properties.put_some("portalURL", portal);
    let place = Place { event: at.to_owned(), geometry: None };
    Ok(Feature::new(None, properties).payload(place, Details { delivery, ..Details::default() }))
}

/// An id of any length: a long one by its digest.
pub(super) fn identified(by: &str, id: String) -> DeliveryId {
    let id = if id.len() <= DELIVERY_ID_BYTES_MAX { id } else { digest(&id) };
    DeliveryId { by: by.to_owned(), id }
}

/// An address that Online escapes as a whole and Enterprise does not.
fn unescape(url: &str) -> Option<String> {
    let escaped = url.get(..8).is_some_and(|start| start.to_ascii_lowercase().contains("%3a"));
    if !escaped {
        return Some(url.to_owned());
    }
    let mut bytes = Vec::with_capacity(url.len());
    let mut rest = url.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let pair = if *first == b'%' { after.first_chunk::<2>() } else { None };
        let byte = pair.and_then(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
        // What is no escape stands for itself: the documentation's own example has one cut short.
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).ok()
}

/// The numbers before and after the changes.
fn server_gens(url: &str) -> Option<[i64; 2]> {
    let (_, rest) = url.split_once("serverGens=")?;
    let list = rest.split('&').next()?;
    let list = list.replace("%5B", "[").replace("%5b", "[").replace("%5D", "]").replace("%5d", "]");
    let list = list.replace("%2C", ",").replace("%2c", ",");
    let mut numbers = list.trim_start_matches('[').trim_end_matches(']').split(',').map(|n| n.trim().parse().ok());
    let after = numbers.next()??;
    // One number asks for all changes since.
    let to = numbers.next().unwrap_or(Some(after))?;
    (numbers.next().is_none() && after <= to).then_some([after, to])
}
