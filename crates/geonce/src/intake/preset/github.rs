//! Webhooks of GitHub: events without geometry. Source: "Webhook events and payloads" of the GitHub documentation.
//!
//! All of the payload becomes properties, beside `github_event` from the header `X-GitHub-Event`. The delivery's id is a
//! header and judged where all headers are: GitHub signs the body only.

use super::feature::{Feature, Properties};
use super::json::quote;
use super::{Details, Fault, Payloads, Place, Request, missing, unusable};

const EVENT: &str = "github_event";

pub(super) fn read(request: &Request<'_>) -> Result<Payloads, Fault> {
    let root = request.json()?;
    let Some(payload) = root.object() else { return Err(unusable("", "a webhook sends an object")) };
    let event = request.headers.get("x-github-event").and_then(|value| value.to_str().ok());
    let Some(event) = event.filter(|event| !event.is_empty()) else {
        return Err(missing("", "header X-GitHub-Event").with_hint("this source takes webhooks of GitHub"));
    };
    let mut properties = Properties::of(&payload, &[EVENT]);
    properties.put(EVENT, &quote(event));
    Ok(Feature::new(None, properties).payload(Place::default(), Details::default()).into())
}
