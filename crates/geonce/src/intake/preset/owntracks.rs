//! Messages that the `OwnTracks` apps post. Source: "JSON" and "HTTP" of the `OwnTracks` booklet.
//!
//! All of a message becomes properties, beside `user` and `device` from the headers `X-Limit-U` and `X-Limit-D`. Whatever
//! has `lat` and `lon` is a point; other messages are events without geometry, because an app keeps sending what it is
//! refused. What a message is known by is its `id`: who sent it, its type and `tst`; without a time, all of its text.

use super::feature::{Feature, Properties, point};
use super::json::{Object, Value, quote};
use super::{
    Defaults, Details, Fault, Payload, Payloads, Place, Request, SHARED_BYTES_MAX, digest, each, fields, missing,
    unusable,
};

/// What tells messages of one device and time apart.
const PARTS: [&str; 6] = ["_type", "topic", "tid", "tst", "event", "wtst"];
/// What is added from headers.
const ADDED: [(&str, &str); 2] = [("user", "x-limit-u"), ("device", "x-limit-d")];

pub(super) fn defaults() -> Defaults {
    Defaults { identity: fields(&["/id"]), without_geometry: true, ..Defaults::default() }
}

pub(super) fn read(request: &Request<'_>) -> Result<Payloads, Fault> {
    // The apps send an empty body where they have nothing to say, and want to be heard all the same.
    if request.body.trim_ascii().is_empty() {
        return Ok(Payloads { several: true, payloads: Vec::new() });
    }
    let root = request.json()?;
    if let Some(messages) = request.elements(root)? {
        return Ok(each(&messages, "", |message, at| one(request, message, at)));
    }
    one(request, root, "").map(Payloads::from)
}

fn one(request: &Request<'_>, value: Value<'_>, at: &str) -> Result<Payload, Fault> {
    let Some(message) = value.object() else { return Err(unusable(at, "a message is an object")) };
    let Some(kind) = message.str("_type") else {
        return Err(missing(format!("{at}/_type"), "_type").with_hint("this source takes messages of OwnTracks"));
    };
    if kind == "encrypted" {
        return Err(unusable(format!("{at}/_type"), "the message is encrypted")
            .with_hint("take the secret out of the app's settings, and use https"));
    }
    let mut added: Vec<(&str, &str)> = Vec::new();
    for (name, header) in ADDED {
        let Some(value) = request.headers.get(header) else { continue };
        match value.to_str() {
            Ok(value) if value.len() <= SHARED_BYTES_MAX => added.push((name, value)),
            _ => return Err(unusable(at, format!("the header {header} is no short text"))),
        }
    }
    let mut properties = Properties::of(&message, &added.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    for (name, value) in &added {
        properties.put(name, &quote(value));
    }
    let located = kind == "location" || message.some("lat").is_some();
    let geometry = located.then(|| point(&message, ["lon", "lat"], at)).transpose()?;
    let mut feature = Feature::new(geometry, properties);
    feature.id = Some(quote(&id(&message, value, &added)));
    let place = Place { event: at.to_owned(), geometry: Some(at.to_owned()) };
    Ok(feature.payload(place, Details::default()))
}

/// What a message is known by, in a form that no other message has.
fn id(message: &Object<'_>, value: Value<'_>, added: &[(&str, &str)]) -> String {
    let mut parts: Vec<String> = added.iter().map(|(name, value)| format!("{name}={}", quote(value))).collect();
    parts.extend(PARTS.into_iter().filter_map(|name| Some(format!("{name}={}", message.some(name)?.text()))));
    if message.some("tst").is_none() {
        parts.push(digest(value.text()));
    }
    parts.join(" ")
}
