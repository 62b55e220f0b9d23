//! Geofence events of Tile38, as its webhooks post them. Source: "Geofencing", "Roaming Geofences" and SETHOOK of the
//! Tile38 documentation: `command`, `group`, `detect`, `hook`, `key`, `time`, `id` and the object in the form asked for.
//!
//! All of an event but its object becomes properties; the object is the geometry. Removed and expired objects have none.

use super::feature::{Feature, Properties, ordinate, point_of};
use super::json::{Object, Value};
use super::{Defaults, Details, Fault, Payloads, Place, Request, fields, missing, unusable};
use geonce_key::Pointer;

pub(super) fn defaults() -> Defaults {
    Defaults {
        identity: fields(&[
            "/properties/key",
            "/properties/id?",
            "/properties/hook?",
            "/properties/detect?",
            "/properties/command?",
            "/properties/nearby/id?",
            "/properties/faraway/id?",
        ]),
        version: Pointer::parse("/properties/time").ok(),
        without_geometry: true,
        ..Defaults::default()
    }
}

pub(super) fn read(request: &Request<'_>) -> Result<Payloads, Fault> {
    let root = request.json()?;
    let Some(event) = root.object() else { return Err(unusable("", "an event is an object")) };
    for name in ["key", "time"] {
        if event.str(name).is_none() {
            return Err(missing(format!("/{name}"), name).with_hint("this source takes geofence events of Tile38"));
        }
    }
    let (geometry, properties, from) = object_of(&event)?;
    let mut feature =
        Feature::new(geometry, properties.unwrap_or_else(|| Properties::of(&event, &["object", "point"])));
    feature.id = event.some("id").filter(|id| id.as_str().is_some() || id.is_number()).map(|id| id.text().to_owned());
    let place = Place { event: String::new(), geometry: Some(from) };
    Ok(feature.payload(place, Details::default()).into())
}

type Found = (Option<String>, Option<Properties>, String);

/// The geometry, the properties if they are not simply the event's, and where the geometry comes from.
fn object_of(event: &Object<'_>) -> Result<Found, Fault> {
    if let Some(value) = event.some("object") {
        let at = String::from("/object");
        // A string object has no place on earth.
        let Some(object) = value.object() else {
            return Ok((None, Some(Properties::of(event, &["point"])), at));
        };
        return match object.str("type").as_deref() {
            Some("Feature") => {
                let geometry = object.some("geometry").map(|geometry| geometry.text().to_owned());
                let mut properties = Properties::of(event, &["object", "point", "properties"]);
                properties.put_some("properties", object.some("properties"));
                Ok((geometry, Some(properties), format!("{at}/geometry")))
            }
            Some("FeatureCollection") => {
                Err(unusable("/object/type", "an object that is a collection has no geometry of its own"))
            }
            Some(_) => Ok((Some(value.text().to_owned()), None, at)),
            None => Err(missing("/object/type", "GeoJSON type")),
        };
    }
    let Some(value) = event.some("point") else { return Ok((None, None, String::new())) };
    let Some(point) = value.object() else { return Err(unusable("/point", "a point has lat and lon")) };
    let number = |name: &str| {
        let pointer = format!("/point/{name}");
        point.some(name).ok_or_else(|| missing(&*pointer, name)).and_then(|value: Value<'_>| ordinate(value, pointer))
    };
    Ok((Some(point_of(&number("lon")?, &number("lat")?)), None, "/point".to_owned()))
}
