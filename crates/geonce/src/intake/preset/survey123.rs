//! Webhooks of Survey123: what was submitted, as an Esri JSON feature. Source: "Webhooks" of the Survey123
//! documentation (payload with `feature`, `applyEdits`, `surveyInfo`, `portalInfo`, `userInfo`, `eventType`).
//!
//! Attributes become properties; kind of event and survey become the member `survey123`. `portalInfo` and `userInfo`
//! are left out: they hold a token with which a stranger could read, and who submitted is an attribute already.

use super::feature::Properties;
use super::json::{Value, quote};
use super::{Fault, Payload, Payloads, Request, esri, missing, short, unusable};

/// The attributes that name a record, in the order in which they are believed.
const IDS: [&str; 4] = ["globalid", "GlobalID", "globalId", "GLOBALID"];

pub(super) fn read(request: &Request<'_>) -> Result<Payloads, Fault> {
    let root = request.json()?;
    let Some(object) = root.object() else { return Err(unusable("", "a webhook sends an object")) };
    let mut about = Properties::new();
    about.put_some("eventType", short(object.some("eventType"), "/eventType")?);
    about.put_some("surveyInfo", short(object.some("surveyInfo"), "/surveyInfo")?);
    if let Some(feature) = object.some("feature") {
        return submitted(request, feature, "/feature", about).map(Payloads::from);
    }
    let Some(edits) = object.some("applyEdits") else {
        return Err(missing("/feature", "feature").with_hint("turn on \"Submitted record\" for the webhook"));
    };
    // Without the record there is still what was sent to the feature service.
    let layers = edits.elements().ok_or_else(|| unusable("/applyEdits", "applyEdits are a list"))?;
    let mut found = Vec::new();
    for (i, layer) in layers.into_iter().enumerate() {
        let layer =
            layer.object().ok_or_else(|| unusable(format!("/applyEdits/{i}"), "edits of a layer are an object"))?;
        for kind in ["adds", "updates"] {
            let features = layer.some(kind).and_then(Value::elements).unwrap_or_default();
            found.extend(
                features.into_iter().enumerate().map(|(k, feature)| (format!("/applyEdits/{i}/{kind}/{k}"), feature)),
            );
        }
    }
    if found.is_empty() {
        return Err(missing("/applyEdits", "edited feature"));
    }
    if found.len() > request.features_max {
        return Err(super::refuse(
            "limit_features",
            "/applyEdits",
            format!("more than {} features", request.features_max),
        ));
    }
    let one = |(at, feature): (String, Value<'_>)| {
        submitted(request, feature, &at, about.clone()).unwrap_or_else(|fault| Payload::refused(feature, at, fault))
    };
    Ok(Payloads { several: true, payloads: found.into_iter().map(one).collect() })
}

fn submitted(request: &Request<'_>, value: Value<'_>, at: &str, about: Properties) -> Result<Payload, Fault> {
    let Some(object) = value.object() else { return Err(unusable(at, "a record is an object")) };
    if !esri::is_feature(&object) {
        return Err(missing(format!("{at}/attributes"), "attributes"));
    }
    let (mut feature, place, details) = esri::feature(&object, esri::Common::default(), request.limits, at)?;
    let attributes = object.get("attributes").and_then(Value::object);
    let id = attributes.and_then(|attributes| IDS.into_iter().find_map(|name| attributes.str(name)));
    feature.id = id.map(|id| quote(&id));
    feature.foreign = Some(("survey123", about));
    Ok(feature.payload(place, details))
}
