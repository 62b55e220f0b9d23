//! Positions and events that Traccar forwards as JSON (`forward.type = json`, `event.forward`). Sources: "Forwarding" of
//! the Traccar documentation, and the models `Position`, `Event` and `Geofence` of its API.
//!
//! The position's fields become properties, beside `device`, `event` and the like. `time` is added: when the device
//! says it happened, in one form. An event without a position has the area of its geofence: Traccar writes areas as
//! WKT with the latitude first, and circles as `CIRCLE (lat lon, radius)`, of which the centre is kept.

use super::feature::{Feature, Properties, from_wkt, instant, point, point_of};
use super::json::{Object, Value, quote};
use super::{Defaults, Details, Fault, Payload, Payloads, Place, Request, each, fields, missing, unusable};
use geonce_key::Pointer;

/// What may stand beside a position.
const BESIDE: [&str; 6] = ["device", "event", "geofence", "maintenance", "driver", "users"];
/// What is added to a position's fields.
const ADDED: [&str; 9] =
    ["time", "deviceId", "radius", "device", "event", "geofence", "maintenance", "driver", "users"];
/// When a position was: the device's word counts before ours.
const TIMES: [&str; 3] = ["deviceTime", "fixTime", "serverTime"];
const EVENT_TIMES: [&str; 2] = ["eventTime", "serverTime"];

pub(super) fn defaults() -> Defaults {
    Defaults {
        identity: fields(&[
            "/properties/deviceId",
            "/properties/event/type?",
            "/properties/event/geofenceId?",
            "/properties/event/maintenanceId?",
            "/properties/event/attributes/alarm?",
        ]),
        version: Pointer::parse("/properties/time").ok(),
        without_geometry: true,
        ..Defaults::default()
    }
}

pub(super) fn read(request: &Request<'_>) -> Result<Payloads, Fault> {
    let root = request.json()?;
    if let Some(positions) = request.elements(root)? {
        return Ok(each(&positions, "", |position, at| one(request, position, at)));
    }
    one(request, root, "").map(Payloads::from)
}

fn one(request: &Request<'_>, value: Value<'_>, at: &str) -> Result<Payload, Fault> {
    let Some(object) = value.object() else { return Err(unusable(at, "Traccar forwards objects")) };
    let member = |name: &str| object.some(name).and_then(Value::object);
    let (event, geofence) = (member("event"), member("geofence"));
    // A position may be all there is, as the API has it.
    let (position, pointer) = match member("position") {
        Some(position) => (Some(position), format!("{at}/position")),
        None if object.get("latitude").is_some() => (value.object(), at.to_owned()),
        None => (None, at.to_owned()),
    };
    if position.is_none() && event.is_none() {
        return Err(missing(format!("{at}/position"), "position and no event"));
    }
    let mut properties = position.as_ref().map_or_else(Properties::new, |position| Properties::of(position, &ADDED));
    let device = event.as_ref().and_then(|event| event.some("deviceId"));
    let device = device.or_else(|| position.as_ref().and_then(|position| position.some("deviceId")));
    let device = device.or_else(|| member("device").and_then(|device| device.some("id")));
    let device = device.ok_or_else(|| missing(format!("{pointer}/deviceId"), "deviceId"))?;
    properties.put("deviceId", device.text());
    for name in BESIDE {
        properties.put_some(name, object.some(name));
    }
    let time = match (&event, &position) {
        (Some(event), _) => time_of(event, &EVENT_TIMES, &format!("{at}/event"))?,
        (None, Some(position)) => time_of(position, &TIMES, &pointer)?,
        (None, None) => None,
    };
    let time = time.ok_or_else(|| missing(&*pointer, "time of the position or event"))?;
    properties.put("time", &quote(&time));
    let (geometry, from) = if let Some(position) = &position {
        (Some(point(position, ["longitude", "latitude"], &pointer)?), pointer)
    } else {
        let pointer = format!("{at}/geofence/area");
        let area = geofence.as_ref().and_then(|geofence| geofence.str("area"));
        let geometry = area.map(|area| area_of(&area, &mut properties, request, &pointer)).transpose()?;
        (geometry, pointer)
    };
    let place = Place { event: at.to_owned(), geometry: Some(from) };
    Ok(Feature::new(geometry, properties).payload(place, Details::default()))
}

fn time_of(object: &Object<'_>, names: &[&str], at: &str) -> Result<Option<String>, Fault> {
    let Some((name, value)) = names.iter().find_map(|name| Some((name, object.some(name)?))) else { return Ok(None) };
    match instant(value) {
        Some(time) => Ok(Some(time)),
        None => {
            Err(unusable(format!("{at}/{name}"), "this is no time").with_hint("such as 2026-11-15T08:00:00.000+00:00"))
        }
    }
}

/// The geometry of a geofence's area. Of a circle, the centre; its radius becomes a property.
fn area_of(area: &str, properties: &mut Properties, request: &Request<'_>, pointer: &str) -> Result<String, Fault> {
    let trimmed = area.trim();
    let circle = trimmed.get(..6).is_some_and(|word| word.eq_ignore_ascii_case("circle"));
    if !circle {
        return Ok(from_wkt(trimmed, true, request.limits, pointer)?.0);
    }
    let numbers = || {
        let inner = trimmed.get(6..)?.trim().strip_prefix('(')?.strip_suffix(')')?;
        let (centre, radius) = inner.split_once(',')?;
        let (lat, lon) = centre.trim().split_once(char::is_whitespace)?;
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
        Some((number(lat)?, number(lon)?, number(radius).filter(|radius| *radius >= 0.0)?))
    };
    let (lat, lon, radius) = numbers().ok_or_else(|| {
        unusable(pointer, "this circle cannot be read").with_hint("CIRCLE (latitude longitude, radius)")
    })?;
    let text = |number: f64| serde_json::Value::from(number).to_string();
    properties.put("radius", &text(radius));
    Ok(point_of(&text(lon), &text(lat)))
}
