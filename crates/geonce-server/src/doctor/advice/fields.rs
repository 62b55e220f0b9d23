//! Fields that look like identifiers and are not part of the identity, and fields of the identity that never differ.

use super::{Advice, EVENTS_MIN, View};
use crate::show::count;
use geonce_key::policy::Identity;
use geonce_key::{IGNORED, Pointer};
use serde_json::json;
use std::collections::{BTreeMap, HashSet};

/// A field with fewer different values for so many events is no identifier.
const UNIQUE_PERCENT: usize = 90;
/// Names, and ends of names, that identifiers have.
const NAMES: [&str; 8] = ["id", "uuid", "guid", "uid", "ulid", "key", "serial", "fid"];

/// The values of a field.
#[derive(Default)]
struct Values {
    present: usize,
    different: HashSet<u64>,
}

pub(super) fn advise(view: &View<'_>) -> Vec<Advice> {
    let Identity::Fields(identity) = &view.policy.identity else { return Vec::new() };
    if view.seen.len() < EVENTS_MIN {
        return Vec::new();
    }
    let mut fields: BTreeMap<&str, Values> = BTreeMap::new();
    for (name, digest) in view.seen.iter().flat_map(|seen| &seen.fields) {
        let values = fields.entry(name).or_default();
        values.present += 1;
        values.different.insert(*digest);
    }
    let version = view.policy.version.as_ref().map(Pointer::as_str);
    let mut advice = Vec::new();
    for (&name, values) in &fields {
        let known = identity.iter().any(|field| field.at.as_str() == name) || version == Some(name);
        if !known && looks_unique(name, values) {
            advice.push(outside(view, name, values));
        }
    }
    for field in identity {
        let constant = fields.get(field.at.as_str()).filter(|values| values.different.len() == 1);
        // Of a few sources one field may be all there is; with others beside it, it says nothing.
        if let Some(values) = constant.filter(|values| values.present >= EVENTS_MIN) {
            advice.push(constant_field(view, field.at.as_str(), values.present));
        }
    }
    advice
}

fn looks_unique(pointer: &str, values: &Values) -> bool {
    values.present >= EVENTS_MIN
        && values.different.len() * 100 >= values.present * UNIQUE_PERCENT
        && is_named_like_an_id(pointer)
}

/// Whether a field is named like an identifier: `id`, `report_id`, `reportId`, `GlobalID`.
fn is_named_like_an_id(pointer: &str) -> bool {
    let name = pointer.rsplit('/').next().unwrap_or_default();
    if IGNORED.contains(&name) {
        return false;
    }
    let lower = name.to_ascii_lowercase();
    NAMES.iter().any(|word| {
        let Some(before) = lower.strip_suffix(word) else { return false };
        // A word of its own: after nothing, after a separator, or with a capital letter.
        let start = name[before.len()..].starts_with(|first: char| first.is_ascii_uppercase());
        before.is_empty() || before.ends_with(['_', '-', '.', ':']) || start
    })
}

fn outside(view: &View<'_>, name: &str, values: &Values) -> Advice {
    let message = format!(
        "{name} has {} different values in {} events and is not part of the identity: events that differ in it alone are one",
        count(values.different.len() as u64),
        count(values.present as u64)
    );
    let hint = format!("if it names events, add \"{name}\" to identity; if each delivery gets a new one, leave it so");
    let figures = json!({ "field": name, "events": values.present, "different": values.different.len() });
    view.advice("identifier_outside", message, hint, figures)
}

fn constant_field(view: &View<'_>, name: &str, present: usize) -> Advice {
    let message = format!("{name} is part of the identity and is the same in all of {} events", count(present as u64));
    let hint = "it tells no events apart: is it the field that was meant?";
    view.advice("identity_constant", message, hint, json!({ "field": name, "events": present }))
}

#[cfg(test)]
mod tests {
    use super::is_named_like_an_id;

    #[test]
    fn identifiers_are_known_by_their_names() {
        for name in ["id", "/properties/report_id", "/properties/reportId", "/properties/GlobalID", "/properties/uuid"]
        {
            assert!(is_named_like_an_id(name), "{name}");
        }
        for name in ["/properties/width", "/properties/paid", "/properties/delivery_id", "/properties/monkey", ""] {
            assert!(!is_named_like_an_id(name), "{name}");
        }
    }
}
