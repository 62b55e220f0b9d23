//! Settings in which two policies differ and that matter to these payloads.

use super::found::Found;
use super::{Reason, ReasonCode, Side, key_under, without_previous};
use crate::policy::{AssumedCrs, Identity, Policy};
use crate::{Fingerprint, jcs};

/// One setting: its name, how it is shown, and how it is taken from one policy into another.
struct Setting {
    name: &'static str,
    show: fn(&Policy) -> String,
    copy: fn(&Policy, &mut Policy),
}

const SETTINGS: &[Setting] = &[
    Setting { name: "scope", show: |p| text(&p.scope), copy: |from, to| to.scope.clone_from(&from.scope) },
    Setting { name: "identity", show: identity, copy: |from, to| to.identity = from.identity.clone() },
    Setting {
        name: "version",
        show: |p| p.version.as_ref().map_or_else(String::new, |at| text(at.as_str())),
        copy: |from, to| to.version.clone_from(&from.version),
    },
    Setting { name: "precision", show: |p| p.precision.to_string(), copy: |from, to| to.precision = from.precision },
    Setting {
        name: "precision_z",
        show: |p| p.precision_z.to_string(),
        copy: |from, to| to.precision_z = from.precision_z,
    },
    Setting {
        name: "dimensions",
        show: |p| word(&format!("{:?}", p.dimensions)),
        copy: |from, to| to.dimensions = from.dimensions,
    },
    Setting { name: "lines", show: |p| word(&format!("{:?}", p.lines)), copy: |from, to| to.lines = from.lines },
    Setting { name: "parts", show: |p| word(&format!("{:?}", p.parts)), copy: |from, to| to.parts = from.parts },
    Setting { name: "shape", show: |p| text(p.shape.name()), copy: |from, to| to.shape = from.shape },
    Setting { name: "crs", show: assumed_crs, copy: |from, to| to.crs = from.crs },
    Setting {
        name: "close_rings",
        show: |p| p.close_rings.to_string(),
        copy: |from, to| to.close_rings = from.close_rings,
    },
    Setting {
        name: "feature",
        show: |p| p.feature.as_ref().map_or_else(String::new, |at| text(at.as_str())),
        copy: |from, to| to.feature.clone_from(&from.feature),
    },
    Setting {
        name: "unicode",
        show: |p| word(&format!("{:?}", p.unicode)),
        copy: |from, to| to.unicode = from.unicode,
    },
    Setting {
        name: "key_secret",
        // The secret itself is never shown.
        show: |p| if p.key_secret.is_some() { "set" } else { "not set" }.to_owned(),
        copy: |from, to| to.key_secret.clone_from(&from.key_secret),
    },
];

/// Adds a reason for every setting without which a key would be another one.
pub(super) fn compare(a: &Side<'_>, b: &Side<'_>, found: &mut Found) {
    let key = |side: &Side<'_>, policy: &Policy| -> Option<Fingerprint> {
        let spatial = key_under(side.input, &without_previous(policy)).ok()?.fingerprint;
        match side.delivery {
            None => Some(spatial),
            Some(delivery) => delivery.fingerprint(&policy.scope, policy.key_secret.as_ref()).ok(),
        }
    };
    let matters = |setting: &Setting, side: &Side<'_>, other: &Side<'_>| {
        let mut changed = side.policy.clone();
        (setting.copy)(other.policy, &mut changed);
        key(side, &changed) != key(side, side.policy)
    };
    for setting in SETTINGS.iter().filter(|setting| differs(setting, a.policy, b.policy)) {
        if !matters(setting, a, b) && !matters(setting, b, a) {
            continue;
        }
        let shown = [a, b].map(|side| super::shown::shorten(&(setting.show)(side.policy)));
        let code = if setting.name == "scope" { ReasonCode::Scope } else { ReasonCode::Policy };
        let message = match code {
            ReasonCode::Scope => "keys are unique within a scope: the same event in two scopes is two".to_owned(),
            _ => format!("the policies differ in {}", setting.name),
        };
        let fix = match setting.name {
            "key_secret" => "give both sources the same key_secret".to_owned(),
            name if shown[0].is_empty() => format!("leave {name} out of both policies, or set it in both"),
            name => format!("{name} = {} in both policies", shown[0]),
        };
        let [a, b] = shown;
        found.reason(Reason { a, b, message, fix: Some(fix), ..Reason::new(code, "") });
    }
}

fn differs(setting: &Setting, a: &Policy, b: &Policy) -> bool {
    match setting.name {
        "key_secret" => a.key_secret != b.key_secret,
        "identity" => a.identity != b.identity,
        _ => (setting.show)(a) != (setting.show)(b),
    }
}

fn text(value: &str) -> String {
    let mut out = Vec::new();
    jcs::write_string(value, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// A variant's name as configuration writes it.
fn word(name: &str) -> String {
    match name {
        "Two" => "2".to_owned(),
        "Three" => "3".to_owned(),
        name => text(&name.to_ascii_lowercase()),
    }
}

fn assumed_crs(policy: &Policy) -> String {
    match policy.crs {
        AssumedCrs::Code(code) => format!("\"EPSG:{code}\""),
        AssumedCrs::Required => "\"required\"".to_owned(),
    }
}

fn identity(policy: &Policy) -> String {
    let list = |items: Vec<String>| format!("[{}]", items.join(", "));
    match &policy.identity {
        Identity::Whole { ignore } if ignore.is_empty() => "the whole payload".to_owned(),
        Identity::Whole { ignore } => {
            format!("all but {}", list(ignore.iter().map(|at| text(at.as_str())).collect()))
        }
        Identity::Fields(fields) => list(
            fields
                .iter()
                .map(|field| {
                    let at = text(field.at.as_str());
                    let optional = if field.optional { ", optional = true" } else { "" };
                    match field.decimals {
                        None if optional.is_empty() => at,
                        None => format!("{{ at = {at}{optional} }}"),
                        Some(places) => format!("{{ at = {at}{optional}, decimals = {places} }}"),
                    }
                })
                .collect(),
        ),
    }
}
