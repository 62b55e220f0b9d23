//! Writes the features that presets make.

use super::json::{Object, Value, quote};
use super::{Details, Fault, Payload, Place, missing, unusable};
use bytes::Bytes;
use geonce_key::{Limits, Shape, Version};

/// A feature's properties.
#[derive(Clone)]
pub(super) struct Properties(String);

impl Properties {
    pub(super) fn new() -> Properties {
        Properties(String::new())
    }

    /// Those of an object, except some.
    pub(super) fn of(object: &Object<'_>, except: &[&str]) -> Properties {
        let mut properties = Properties::new();
        for (name, value) in object.members().filter(|(name, _)| !except.contains(name)) {
            properties.put(name, value.text());
        }
        properties
    }

    /// One more; its name must not be there yet. The value is JSON.
    pub(super) fn put(&mut self, name: &str, value: &str) {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(&quote(name));
        self.0.push(':');
        self.0.push_str(value);
    }

    /// One more, if it has a value.
    pub(super) fn put_some(&mut self, name: &str, value: Option<Value<'_>>) {
        if let Some(value) = value {
            self.put(name, value.text());
        }
    }
}

/// A feature to be written.
pub(super) struct Feature<'a> {
    /// Its id, as JSON.
    pub(super) id: Option<String>,
    /// Its geometry, as JSON; without one it is null.
    pub(super) geometry: Option<String>,
    pub(super) properties: Properties,
    /// Another member, with its name.
    pub(super) foreign: Option<(&'a str, Properties)>,
}

impl<'a> Feature<'a> {
    pub(super) fn new(geometry: Option<String>, properties: Properties) -> Feature<'a> {
        Feature { id: None, geometry, properties, foreign: None }
    }

    /// The payload that it is; `place` is where it comes from.
    pub(super) fn payload(self, place: Place, details: Details) -> Payload {
        let mut text = String::from(r#"{"type":"Feature""#);
        if let Some(id) = &self.id {
            text.push_str(r#","id":"#);
            text.push_str(id);
        }
        text.push_str(r#","geometry":"#);
        text.push_str(self.geometry.as_deref().unwrap_or("null"));
        text.push_str(r#","properties":{"#);
        text.push_str(&self.properties.0);
        text.push('}');
        if let Some((name, members)) = &self.foreign {
            text.push(',');
            text.push_str(&quote(name));
            text.push_str(":{");
            text.push_str(&members.0);
            text.push('}');
        }
        text.push('}');
        Payload { text: Bytes::from(text), place, read: Ok(details) }
    }
}

/// The object with one more member, which replaces one of its name.
pub(super) fn with_member(object: &Object<'_>, name: &str, members: &Properties) -> Bytes {
    let mut all = Properties::of(object, &[name]);
    all.put(name, &format!("{{{}}}", members.0));
    Bytes::from(format!("{{{}}}", all.0))
}

/// A point from two members of an object: numbers, or text that is a number.
pub(super) fn point(object: &Object<'_>, [lon, lat]: [&str; 2], at: &str) -> Result<String, Fault> {
    let number = |name: &str| {
        let pointer = format!("{at}/{name}");
        let value = object.some(name).ok_or_else(|| missing(&*pointer, name))?;
        ordinate(value, pointer)
    };
    Ok(point_of(&number(lon)?, &number(lat)?))
}

/// A point from two ordinates.
pub(super) fn point_of(lon: &str, lat: &str) -> String {
    format!(r#"{{"type":"Point","coordinates":[{lon},{lat}]}}"#)
}

/// The ordinate that a value is, as JSON.
pub(super) fn ordinate(value: Value<'_>, pointer: String) -> Result<String, Fault> {
    if value.is_number() {
        return Ok(value.text().to_owned());
    }
    let number = value.as_str().and_then(|text| text.trim().parse::<f64>().ok()).filter(|number| number.is_finite());
    // A double written as JSON is the shortest text that reads back to it.
    number
        .map(|number| serde_json::Value::from(number).to_string())
        .ok_or_else(|| unusable(pointer, "this is no number"))
}

/// A shape as `GeoJSON`.
pub(super) fn geojson(shape: &Shape<f64>) -> String {
    let mut out = Vec::new();
    geonce_key::geojson::write(shape, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// A WKT text in the order that its sender uses, as `GeoJSON`, with the coordinate system it names.
pub(super) fn from_wkt(
    text: &str,
    lat_first: bool,
    limits: &Limits,
    pointer: &str,
) -> Result<(String, Option<u32>), Fault> {
    let at = |error: geonce_key::Error| Fault { pointer: pointer.to_owned(), ..Fault::from(&error) };
    let mut delivered = geonce_key::wkt::read(text.as_bytes(), limits).map_err(at)?;
    if lat_first {
        delivered.shape.positions.iter_mut().for_each(|position| position.swap(0, 1));
    }
    Ok((geojson(&delivered.shape), delivered.srid))
}

/// Milliseconds of a second.
const MILLIS: i64 = 1_000;

/// An instant in one form: RFC 3339 in UTC. Offsets without a colon and milliseconds since 1970 are understood.
pub(super) fn instant(value: Value<'_>) -> Option<String> {
    if let Some(millis) = value.as_i64() {
        let fraction = format!("{:03}", millis.rem_euclid(MILLIS)).trim_end_matches('0').to_owned();
        return Some(Version::Time { seconds: millis.div_euclid(MILLIS), fraction }.to_string());
    }
    let text = value.as_str()?;
    let colon = match text.len().checked_sub(5).and_then(|at| text.split_at_checked(at)) {
        Some((time, offset)) if offset.starts_with(['+', '-']) && offset[1..].bytes().all(|b| b.is_ascii_digit()) => {
            format!("{time}{}:{}", &offset[..3], &offset[3..])
        }
        _ => text.into_owned(),
    };
    match Version::parse(&colon)? {
        time @ Version::Time { .. } => Some(time.to_string()),
        Version::Integer(_) => None,
    }
}
