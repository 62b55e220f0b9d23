//! Notifications of WIS2, which are Features already. Source: "WIS2 Notification Message" (WMO), core requirements:
//! `id` is the message's, `properties.data_id` the data's, `properties.pubtime` when the message was published.
//!
//! A Global Cache sends the same notification again under an id and links of its own, so the data's id and the time of
//! publication name an event; the message's id does only where a source says `identify = "delivery"` or `"auto"`.

use super::{Defaults, Details, Fault, Payload, Payloads, Place, Request, fields, missing, unusable};
use crate::intake::{DeliveryId, Identify};
use geonce_key::Pointer;

pub(super) fn defaults() -> Defaults {
    Defaults {
        identity: fields(&["/properties/data_id"]),
        version: Pointer::parse("/properties/pubtime").ok(),
        identify: Some(Identify::Spatial),
        without_geometry: true,
    }
}

pub(super) fn read(request: &Request<'_>) -> Result<Payloads, Fault> {
    let root = request.json()?;
    let Some(object) = root.object() else { return Err(unusable("", "a notification is an object")) };
    let Some(id) = object.str("id").filter(|id| !id.is_empty()) else { return Err(missing("/id", "id")) };
    let Some(properties) = object.some("properties").and_then(super::json::Value::object) else {
        return Err(missing("/properties", "properties"));
    };
    for name in ["data_id", "pubtime"] {
        if properties.str(name).is_none_or(|text| text.is_empty()) {
            return Err(missing(format!("/properties/{name}"), name));
        }
    }
    let delivery = Some(DeliveryId { by: "wis2-id".to_owned(), id: id.into_owned() });
    let details = Details { delivery, ..Details::default() };
    let payload = Payload { text: request.body.clone(), place: Place::default(), read: Ok(details) };
    Ok(payload.into())
}
