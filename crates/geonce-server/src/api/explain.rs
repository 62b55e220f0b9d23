//! Why two payloads are the same event or not, and the key of one. The answers are those of the commands.

use super::body::{read, said};
use super::policy::{self, Settings};
use super::{Call, events, json, problem};
use crate::config::Likeness;
use crate::nearness::{self, Nearness};
use crate::record::{self, Found};
use crate::serve::{Answer, Gateway, Problem};
use bytes::Bytes;
use geonce::clock::Timestamp;
use geonce::intake::Fault;
use geonce_key::explain::{Side, Which, explain as explain_sides};
use geonce_key::{Delivery, Form, Input};
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The longest name of a header, and the longest id in it.
const DELIVERY_BYTES_MAX: usize = 1_024;

/// What is to be explained.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    a: Given,
    b: Given,
    /// Whose policy both have, unless they say otherwise.
    #[serde(default, deserialize_with = "said")]
    source: Option<String>,
    #[serde(default)]
    policy: Settings,
}

/// What is to be keyed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct One {
    #[serde(default, deserialize_with = "said")]
    event: Option<String>,
    #[serde(default, deserialize_with = "said")]
    payload: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "said")]
    text: Option<String>,
    #[serde(default, deserialize_with = "said")]
    source: Option<String>,
    #[serde(default)]
    policy: Settings,
}

/// A payload: a recorded event's, or JSON as it is written, or text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    #[serde(default, deserialize_with = "said")]
    event: Option<String>,
    #[serde(default, deserialize_with = "said")]
    payload: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "said")]
    text: Option<String>,
    #[serde(default, deserialize_with = "said")]
    source: Option<String>,
    #[serde(default, deserialize_with = "said")]
    delivery: Option<DeliveryBody>,
}

/// The sender's id, where the source is keyed by it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeliveryBody {
    by: String,
    id: String,
}

/// A payload with everything that its key is made of.
struct Read {
    likeness: Likeness,
    bytes: Bytes,
    form: Form,
    crs: Option<u32>,
    delivery: Option<DeliveryBody>,
    /// When it was recorded, and what it was near to then, if it was.
    received: Option<Timestamp>,
    found: Option<Found>,
    /// Where in the request it is.
    place: String,
}

/// Compares two payloads.
pub(super) async fn explain(gateway: &Gateway, call: &Call) -> Result<Answer, Problem> {
    let Pair { a, b, source, policy } = read(call)?;
    let a = a.read(gateway, "/a", source.as_deref(), &policy).await?;
    let b = b.read(gateway, "/b", source.as_deref(), &policy).await?;
    let text = blocking(move || {
        let explanation = explain_sides(&a.side(), &b.side()).map_err(|(which, error)| {
            let side = if matches!(which, Which::A) { &a } else { &b };
            refused(&error, &side.place)
        })?;
        let found = [a.found.clone(), b.found.clone()];
        let nearness = Nearness::of(explanation.same, [a.near(), b.near()], found);
        Ok(nearness.map_err(|error| refused(&error, &b.place))?.beside(explanation.to_json()))
    });
    Ok(json(StatusCode::OK, text.await?))
}

/// Keys a payload, or every feature of a collection.
pub(super) async fn key(gateway: &Gateway, call: &Call) -> Result<Answer, Problem> {
    let One { event, payload, text, source, policy } = read(call)?;
    let given = Given { event, payload, text, source, delivery: None };
    let read = given.read(gateway, "", None, &policy).await?;
    let text = blocking(move || {
        let described = crate::key::described(&read.likeness.policy, read.input());
        let lines = described.map_err(|error| refused(&error, &read.place))?;
        Ok(format!("{{\"keys\":[{}]}}", lines.join(",")))
    });
    Ok(json(StatusCode::OK, text.await?))
}

/// Does what takes the processor for a while where nobody waits for it.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(Problem::internal()))
}

/// A payload that has no key.
fn refused(error: &geonce_key::Error, place: &str) -> Problem {
    Problem::from(&Fault::from(error)).under(place)
}

impl Given {
    async fn read(
        self,
        gateway: &Gateway,
        place: &str,
        source: Option<&str>,
        settings: &Settings,
    ) -> Result<Read, Problem> {
        let source = self.source.as_deref().or(source);
        if let Some(delivery) = &self.delivery
            && delivery.by.len().max(delivery.id.len()) > DELIVERY_BYTES_MAX
        {
            let detail = format!("a delivery's header and id have at most {DELIVERY_BYTES_MAX} bytes each");
            return Err(problem::body_invalid(detail).at(format!("{place}/delivery")));
        }
        let likeness = |recorded: Option<&str>| {
            let likeness = policy::of_source(gateway, source, recorded)?;
            Ok::<_, Problem>(Likeness { policy: settings.over(likeness.policy)?, ..likeness })
        };
        let whole = |likeness, bytes, form, crs, name: &str| {
            let place = format!("{place}/{name}");
            Ok(Read { likeness, bytes, form, crs, delivery: self.delivery, received: None, found: None, place })
        };
        match (self.event, self.payload, self.text) {
            (Some(event), None, None) => {
                let event = event
                    .parse::<geonce::event::EventId>()
                    .map_err(|wrong| problem::body_invalid(wrong.to_string()).at(format!("{place}/event")))?;
                let found = events::find(gateway, &event.to_string(), true).await?;
                let near = record::near(&found);
                let bytes = found.payload.ok_or_else(problem::payload_gone)?;
                let read = whole(likeness(Some(&found.source))?, bytes, found.form, found.crs, "event")?;
                Ok(Read { received: Some(found.received), found: near, ..read })
            }
            (None, Some(payload), None) => {
                whole(likeness(None)?, Bytes::from(payload.get().to_owned()), Form::Json, None, "payload")
            }
            (None, None, Some(text)) => {
                let form = form_of(&text);
                whole(likeness(None)?, Bytes::from(text), form, None, "text")
            }
            _ => Err(problem::body_invalid("one of event, payload and text is needed, and only one").at(place)),
        }
    }
}

/// What a text is: JSON, hexadecimal WKB, or else WKT.
fn form_of(text: &str) -> Form {
    let text = text.trim();
    if text.starts_with(['{', '[']) {
        Form::Json
    } else if text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Form::WkbHex
    } else {
        Form::Wkt
    }
}

impl Read {
    fn input(&self) -> Input<'_> {
        Input { form: self.form, bytes: &self.bytes, crs: self.crs }
    }

    fn near(&self) -> nearness::Side<'_> {
        nearness::Side { likeness: &self.likeness, input: self.input(), received: self.received }
    }

    fn side(&self) -> Side<'_> {
        let delivery = self.delivery.as_ref().map(|delivery| Delivery { by: &delivery.by, id: &delivery.id, index: 0 });
        Side { input: self.input(), policy: &self.likeness.policy, delivery }
    }
}
