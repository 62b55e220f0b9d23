//! Ids that senders give their deliveries (`g1` point 13): which headers carry one, and when it counts.

use super::{Fault, Identify, Source};
use crate::event::Class;
use crate::signature::Verified;
use geonce_key::DELIVERY_ID_BYTES_MAX;
use hyper::HeaderMap;

/// A sender's id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryId {
    /// The header that carried it, in lower case.
    pub by: String,
    /// The id.
    pub id: String,
}

/// Headers that carry an id, in the order in which they are believed.
const HEADERS: [&str; 6] = ["webhook-id", "svix-id", "idempotency-key", "x-event-id", "ce-id", "x-github-delivery"];

impl Source {
    /// The id under which a request is delivered, if there is one that counts. Where a source is signed, `auto`
    /// trusts only headers that the signature covers: a captured body could be sent again under a fresh id.
    pub fn delivery_id(&self, headers: &HeaderMap, verified: Option<&Verified>) -> Result<Option<DeliveryId>, Fault> {
        if self.identify == Identify::Spatial {
            return Ok(None);
        }
        let trusted = |name: &str| match (self.identify, verified) {
            (Identify::Auto, Some(verified)) => verified.covers(name),
            _ => true,
        };
        for name in HEADERS.into_iter().filter(|name| trusted(name)) {
            if let Some(id) = find(headers, name)? {
                return Ok(Some(DeliveryId { by: name.to_owned(), id }));
            }
        }
        // A preset may find one in the body; whether it does is seen when that is read.
        if self.identify == Identify::Delivery && !self.preset.has_ids() {
            return Err(missing());
        }
        Ok(None)
    }
}

/// A request without an id, where each needs one.
pub(super) fn missing() -> Fault {
    let message = "this source identifies events by their delivery id, and the request has none";
    let hint = format!("headers that carry one: {}", HEADERS.join(", "));
    Fault { hint: Some(hint), ..Fault::new(Class::Schema, "identity_missing", message) }
}

fn find(headers: &HeaderMap, name: &str) -> Result<Option<String>, Fault> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let refuse = |message: String| Err(Fault::new(Class::Schema, "identity_type", message));
    if values.next().is_some() {
        return refuse(format!("the header {name} occurs twice"));
    }
    let Ok(text) = std::str::from_utf8(value.as_bytes()) else {
        return refuse(format!("the header {name} is not UTF-8"));
    };
    let mut id = text.trim().to_owned();
    if name == "idempotency-key" {
        // A structured string (RFC 8941): quotes around it, and backslashes before quotes and backslashes within.
        if let Some(quoted) = id.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            id = quoted.replace("\\\"", "\"").replace("\\\\", "\\");
        }
    }
    if name == "ce-id" {
        // CloudEvents: an id is unique within its source only. A space cannot occur in a URI reference.
        let source = headers.get("ce-source").and_then(|source| source.to_str().ok()).unwrap_or_default();
        id = format!("{source} {id}");
    }
    if id.is_empty() || id.len() > DELIVERY_ID_BYTES_MAX {
        return refuse(format!("the header {name} holds 1 to {DELIVERY_ID_BYTES_MAX} bytes"));
    }
    Ok(Some(id))
}
