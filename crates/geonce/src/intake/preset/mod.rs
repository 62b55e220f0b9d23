//! What senders wrap their features in, undone: each preset is a pure function from a request to features.
//!
//! [`Preset::read`] is all that the rest of the engine knows of it; no sender's name occurs outside this folder. What a
//! preset makes is `GeoJSON` that holds everything of the payload that is not said to be left out (`docs/presets.md`).
//! Geometry that it makes is checked, keyed and placed like any other. It fetches nothing and remembers nothing; what
//! others fetch for it, [`changes`] reads.

mod arcgis;
pub(crate) mod changes;
mod cloudevents;
mod esri;
mod feature;
mod github;
mod json;
mod map;
mod owntracks;
mod survey123;
#[cfg(test)]
mod tests;
mod tile38;
mod traccar;
mod wis2;

pub use map::{Map, Place as MapPlace};

use super::{DeliveryId, Fault, Identify};
use crate::event::Class;
use bytes::Bytes;
use geonce_key::policy::{Field, Identity};
use geonce_key::{Limits, Pointer};
use hyper::HeaderMap;
use json::Value;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// What all events of a request have in common is copied into each, and so has at most so many bytes.
const SHARED_BYTES_MAX: usize = 1 << 10;

/// How a source's requests are laid out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// Features, geometries and collections as they are.
    #[default]
    Geojson,
    /// Webhooks of `ArcGIS` Online and Enterprise, and Esri JSON.
    Arcgis,
    /// Webhooks of Survey123.
    Survey123,
    /// `CloudEvents` whose data is `GeoJSON`.
    Cloudevents,
    /// Notifications of WIS2, the information system of the WMO.
    Wis2,
    /// Positions and events that Traccar forwards.
    Traccar,
    /// Messages of the `OwnTracks` apps.
    Owntracks,
    /// Geofence events of Tile38.
    Tile38,
    /// Webhooks of GitHub.
    Github,
    /// Features made from fields that the configuration names.
    Map(Box<Map>),
}

/// What a preset reads.
pub struct Request<'a> {
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The body, inflated.
    pub body: &'a Bytes,
    /// Bounds on it.
    pub limits: &'a Limits,
    /// At most so many payloads.
    pub features_max: usize,
}

/// What a request holds.
pub struct Payloads {
    /// Whether it could hold several.
    pub several: bool,
    /// Each of them, in order.
    pub payloads: Vec<Payload>,
}

/// One event of a request.
pub struct Payload {
    /// What is recorded: `GeoJSON`; of an event that cannot be read, its own text.
    pub text: Bytes,
    /// Where it is in the body.
    pub place: Place,
    /// What else is known of it, or why it cannot be read.
    pub read: Result<Details, Fault>,
}

/// Where a payload is in the body of its request, as JSON pointers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The event.
    pub event: String,
    /// What its geometry was made from; `None` where it is `GeoJSON` already.
    pub geometry: Option<String>,
}

impl Place {
    /// The place in the body of what is at `pointer` in the feature that was made.
    pub(super) fn of(&self, pointer: &str) -> String {
        match &self.geometry {
            Some(geometry) if pointer.starts_with("/geometry") => geometry.clone(),
            _ => format!("{}{pointer}", self.event),
        }
    }
}

/// What is known of an event beside its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// The coordinate system it declares, by its EPSG code.
    pub crs: Option<u32>,
    /// The sender's id for it, if the body has one.
    pub delivery: Option<DeliveryId>,
    /// Its place among the changes that the sender numbers.
    pub changes: Option<Changes>,
    /// Whether it only says where changes can be read.
    pub announces: bool,
}

/// Numbered changes: those after `after`, up to `to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// What is numbered.
    pub of: String,
    /// The last number before.
    pub after: i64,
    /// The last number.
    pub to: i64,
}

/// What holds for a source that does not say otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    /// What tells events apart.
    pub identity: Option<Identity>,
    /// Where their version is.
    pub version: Option<Pointer>,
    /// Whose id names them.
    pub identify: Option<Identify>,
    /// Whether they may come without geometry.
    pub without_geometry: bool,
}

impl Preset {
    /// Those with a name, in the order in which they are shown.
    pub const NAMED: [Preset; 9] = [
        Preset::Geojson,
        Preset::Arcgis,
        Preset::Survey123,
        Preset::Cloudevents,
        Preset::Wis2,
        Preset::Traccar,
        Preset::Owntracks,
        Preset::Tile38,
        Preset::Github,
    ];

    /// What it is called.
    pub fn name(&self) -> &'static str {
        match self {
            Preset::Geojson => "geojson",
            Preset::Arcgis => "arcgis",
            Preset::Survey123 => "survey123",
            Preset::Cloudevents => "cloudevents",
            Preset::Wis2 => "wis2",
            Preset::Traccar => "traccar",
            Preset::Owntracks => "owntracks",
            Preset::Tile38 => "tile38",
            Preset::Github => "github",
            Preset::Map(_) => "map",
        }
    }

    /// Divides a request into events. `None` where bodies are payloads as they are.
    pub fn read(&self, request: &Request<'_>) -> Option<Result<Payloads, Fault>> {
        Some(match self {
            Preset::Geojson => return None,
            Preset::Arcgis => arcgis::read(request),
            Preset::Survey123 => survey123::read(request),
            Preset::Cloudevents => cloudevents::read(request),
            Preset::Wis2 => wis2::read(request),
            Preset::Traccar => traccar::read(request),
            Preset::Owntracks => owntracks::read(request),
            Preset::Tile38 => tile38::read(request),
            Preset::Github => github::read(request),
            Preset::Map(map) => map.read(request),
        })
    }

    /// What holds for its sources unless they say otherwise.
    pub fn defaults(&self) -> Defaults {
        match self {
            Preset::Geojson | Preset::Map(_) => Defaults::default(),
            Preset::Arcgis | Preset::Survey123 | Preset::Github => {
                Defaults { without_geometry: true, ..Defaults::default() }
            }
            Preset::Cloudevents => cloudevents::defaults(),
            Preset::Wis2 => wis2::defaults(),
            Preset::Traccar => traccar::defaults(),
            Preset::Owntracks => owntracks::defaults(),
            Preset::Tile38 => tile38::defaults(),
        }
    }

    /// Whether bodies may hold ids that identify deliveries.
    pub(super) fn has_ids(&self) -> bool {
        matches!(self, Preset::Arcgis | Preset::Cloudevents | Preset::Wis2)
    }

    /// Whether its senders may only say where changes can be read.
    pub fn announces(&self) -> bool {
        *self == Preset::Arcgis
    }

    /// Whether an empty body is a request like any other, with nothing to record.
    pub fn takes_nothing(&self) -> bool {
        *self == Preset::Owntracks
    }

    /// Whether its senders take nothing but a plain success for an answer, and send again after any other.
    pub fn wants_plain_success(&self) -> bool {
        *self == Preset::Tile38
    }

    /// What its senders want to read once a request was taken, if it must be something.
    pub fn answer(&self) -> Option<&'static str> {
        (*self == Preset::Owntracks).then_some("[]")
    }
}

impl<'a> Request<'a> {
    /// The body as JSON that is strict and within the limits.
    fn json(&self) -> Result<Value<'a>, Fault> {
        geonce_key::check_json(self.body, self.limits).map_err(|error| Fault::from(&error))?;
        Value::of(self.body).ok_or_else(|| Fault::new(Class::Schema, "json_syntax", "the body is not JSON"))
    }

    /// The elements of an array, if there are not too many.
    fn elements(&self, array: Value<'a>) -> Result<Option<Vec<Value<'a>>>, Fault> {
        let Some(elements) = array.elements() else { return Ok(None) };
        if elements.len() > self.features_max {
            let message = format!("more than {} events in one request", self.features_max);
            let fault = Fault::new(Class::Schema, "limit_features", message);
            return Err(Fault { hint: Some("send them in several requests".to_owned()), ..fault });
        }
        if elements.is_empty() {
            return Err(missing("", "an event: the list is empty"));
        }
        Ok(Some(elements))
    }
}

/// Each element of the list at `pointer`, read on its own: one that cannot be read does not keep the others out.
fn each<'a>(
    elements: &[Value<'a>],
    pointer: &str,
    read: impl Fn(Value<'a>, &str) -> Result<Payload, Fault>,
) -> Payloads {
    let one = |(index, element): (usize, &Value<'a>)| {
        let at = format!("{pointer}/{index}");
        read(*element, &at).unwrap_or_else(|fault| Payload::refused(*element, at, fault))
    };
    Payloads { several: true, payloads: elements.iter().enumerate().map(one).collect() }
}

/// The digest of a text, as text.
fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().fold(String::from("sha256:"), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Payload {
    fn refused(value: Value<'_>, at: String, fault: Fault) -> Payload {
        let place = Place { event: at, geometry: None };
        Payload { text: Bytes::copy_from_slice(value.text().as_bytes()), place, read: Err(fault) }
    }
}

impl From<Payload> for Payloads {
    fn from(payload: Payload) -> Payloads {
        Payloads { several: false, payloads: vec![payload] }
    }
}

fn refuse(code: &str, pointer: impl Into<String>, message: impl Into<String>) -> Fault {
    Fault { pointer: pointer.into(), ..Fault::new(Class::Schema, code, message) }
}

/// Refuses what is copied into every event if it is too long.
fn short<'a>(value: Option<Value<'a>>, pointer: &str) -> Result<Option<Value<'a>>, Fault> {
    match value {
        Some(value) if value.text().len() > SHARED_BYTES_MAX => {
            let message = format!("what all events share has at most {SHARED_BYTES_MAX} bytes");
            Err(refuse("limit_string", pointer, message))
        }
        value => Ok(value),
    }
}

/// What the preset needs is not there.
fn missing(pointer: impl Into<String>, what: &str) -> Fault {
    refuse("preset_missing", pointer, format!("the payload has no {what}"))
}

/// It is there and cannot be used.
fn unusable(pointer: impl Into<String>, message: impl Into<String>) -> Fault {
    refuse("preset_value", pointer, message)
}

/// Fields of an identity; those with a question mark at their end may be absent.
fn fields(pointers: &[&str]) -> Option<Identity> {
    let field = |text: &&str| {
        let at = Pointer::parse(text.trim_end_matches('?')).ok()?;
        Some(Field { optional: text.ends_with('?'), ..Field::required(at) })
    };
    pointers.iter().map(field).collect::<Option<_>>().map(Identity::Fields)
}
