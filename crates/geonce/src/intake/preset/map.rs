//! Features made from fields that the configuration names, for senders that no preset knows.

use super::feature::{Feature, Properties, from_wkt, geojson, ordinate, point_of};
use super::json::Value;
use super::{Details, Fault, Payload, Payloads, Place as Origin, Request, each, missing, unusable};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use geonce_key::{Pointer, wkb};

/// Where the parts of a feature are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// A list of events; all other pointers are then within each of them.
    pub items: Option<Pointer>,
    /// The geometry.
    pub place: Place,
    /// The feature's id.
    pub id: Option<Pointer>,
    /// An object; without it, all of the event that is not its geometry.
    pub properties: Option<Pointer>,
}

/// Where the geometry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Two numbers.
    Point {
        /// East.
        lon: Pointer,
        /// North.
        lat: Pointer,
    },
    /// A text.
    Wkt(Pointer),
    /// A text, hexadecimal or base 64.
    Wkb(Pointer),
}

impl Map {
    pub(super) fn read(&self, request: &Request<'_>) -> Result<Payloads, Fault> {
        let root = request.json()?;
        let Some(items) = &self.items else { return self.one(request, root, "").map(Payloads::from) };
        let list = root.at(items).ok_or_else(|| missing(items.as_str(), "list of events"))?;
        let events = request.elements(list)?.ok_or_else(|| unusable(items.as_str(), "events are a list"))?;
        Ok(each(&events, items.as_str(), |event, at| self.one(request, event, at)))
    }

    fn one(&self, request: &Request<'_>, event: Value<'_>, at: &str) -> Result<Payload, Fault> {
        let Some(object) = event.object() else { return Err(unusable(at, "an event is an object")) };
        let (geometry, crs, from) = self.geometry(request, event, at)?;
        let properties = match &self.properties {
            // What is the geometry already would be there twice, and once without a grid.
            None => Properties::of(&object, &self.used()),
            Some(pointer) => match event.at(pointer).filter(|value| !value.is_null()).map(Value::object) {
                None => Properties::new(),
                Some(Some(object)) => Properties::of(&object, &[]),
                Some(None) => return Err(unusable(format!("{at}{pointer}"), "properties are an object")),
            },
        };
        let mut feature = Feature::new(Some(geometry), properties);
        if let Some(pointer) = &self.id {
            let id = event.at(pointer).ok_or_else(|| missing(format!("{at}{pointer}"), "id"))?;
            if id.as_str().is_none() && !id.is_number() {
                return Err(unusable(format!("{at}{pointer}"), "an id is a text or a number"));
            }
            feature.id = Some(id.text().to_owned());
        }
        let place = Origin { event: at.to_owned(), geometry: Some(from) };
        Ok(feature.payload(place, Details { crs, ..Details::default() }))
    }

    /// Members of the event that are the geometry.
    fn used(&self) -> Vec<&str> {
        let pointers = match &self.place {
            Place::Point { lon, lat } => vec![lon, lat],
            Place::Wkt(pointer) | Place::Wkb(pointer) => vec![pointer],
        };
        pointers
            .into_iter()
            .filter_map(|pointer| if let [name] = pointer.tokens() { Some(name.as_str()) } else { None })
            .collect()
    }

    /// The geometry, its coordinate system, and where it comes from.
    fn geometry(
        &self,
        request: &Request<'_>,
        event: Value<'_>,
        at: &str,
    ) -> Result<(String, Option<u32>, String), Fault> {
        let find = |pointer: &Pointer, what: &str| {
            let found = event.at(pointer).filter(|value| !value.is_null());
            found.ok_or_else(|| missing(format!("{at}{pointer}"), what))
        };
        let text = |pointer: &Pointer, what: &str| {
            let found = find(pointer, what)?.as_str();
            found.ok_or_else(|| unusable(format!("{at}{pointer}"), format!("{what} is a text")))
        };
        match &self.place {
            Place::Point { lon, lat } => {
                let number = |pointer: &Pointer, what| ordinate(find(pointer, what)?, format!("{at}{pointer}"));
                Ok((point_of(&number(lon, "longitude")?, &number(lat, "latitude")?), None, at.to_owned()))
            }
            Place::Wkt(pointer) => {
                let from = format!("{at}{pointer}");
                let (geometry, crs) = from_wkt(&text(pointer, "WKT")?, false, request.limits, &from)?;
                Ok((geometry, crs, from))
            }
            Place::Wkb(pointer) => {
                let (from, text) = (format!("{at}{pointer}"), text(pointer, "WKB")?);
                let hex = text.starts_with("\\x") || text.bytes().all(|byte| byte.is_ascii_hexdigit());
                let read = if hex {
                    wkb::read_hex(text.as_bytes(), request.limits)
                } else {
                    let bytes = STANDARD.decode(text.trim().as_bytes());
                    let bytes = bytes.map_err(|_| unusable(&*from, "WKB is hexadecimal or base 64"))?;
                    wkb::read(&bytes, request.limits)
                };
                let delivered = read.map_err(|error| Fault { pointer: from.clone(), ..Fault::from(&error) })?;
                Ok((geojson(&delivered.shape), delivered.srid, from))
            }
        }
    }
}
