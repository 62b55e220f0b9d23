//! Why two payloads have the same key, or not: every verdict of `g1` can be asked for its reason.
//!
//! [`explain`] never guesses: each reason is found by comparing what was delivered, and each fix that names a
//! setting has been tried before it is offered. The work is bounded like that of a key, times a small constant.
//! What a reason means and how to mend it is in `docs/explain.md`.

mod align;
mod code;
mod fields;
mod found;
mod geometry;
mod laid;
mod output;
mod reading;
mod removed;
mod settings;
mod shown;
mod svg;
mod written;

#[cfg(test)]
mod tests;

pub use code::ReasonCode;
pub use svg::VERTICES_DRAWN_MAX;

use crate::json::{self, Document, Tape};
use crate::{Delivery, Error, Fingerprint, Form, Input, Keyed, Keyer, Policy};
use found::Found;
use reading::Reading;

/// Reasons listed of each kind; the rest is counted.
pub const REASONS_MAX: usize = 20;

/// Characters of a value that are shown.
pub const SHOWN_CHARS_MAX: usize = 80;

/// One of two payloads.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The payload.
    pub input: Input<'a>,
    /// The policy under which it is keyed.
    pub policy: &'a Policy,
    /// The sender's id, where the source is keyed by it: it then stands in place of the spatial key.
    pub delivery: Option<Delivery<'a>>,
}

/// Which of two payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The first.
    A,
    /// The second.
    B,
}

/// What two payloads share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// The key.
    Key,
    /// The alias on the second grid.
    TieAlias,
    /// A key under a previous policy.
    Previous,
    /// The sender's id.
    Delivery,
    /// Nothing: they are two events.
    None,
}

impl Match {
    /// The stable text.
    pub fn as_str(self) -> &'static str {
        match self {
            Match::Key => "key",
            Match::TieAlias => "tie_alias",
            Match::Previous => "previous",
            Match::Delivery => "delivery",
            Match::None => "none",
        }
    }
}

/// One difference between two payloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// What kind of difference.
    pub code: ReasonCode,
    /// Where in the first payload (RFC 6901); empty for the whole of it.
    pub pointer: String,
    /// Where in the second payload, if elsewhere.
    pub pointer_b: Option<String>,
    /// The first value as delivered, shortened to [`SHOWN_CHARS_MAX`]; empty where it is absent.
    pub a: String,
    /// The second value as delivered.
    pub b: String,
    /// The first value as it is hashed; empty where it is not.
    pub canonical_a: String,
    /// The second value as it is hashed.
    pub canonical_b: String,
    /// One sentence for people.
    pub message: String,
    /// What would remove the difference.
    pub fix: Option<String>,
    /// In how many places it was found; the first one is shown.
    pub places: usize,
}

/// Why two payloads are the same event, or two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Whether the second would be dropped as a duplicate of the first.
    pub same: bool,
    /// What they share.
    pub by: Match,
    /// Same delivery id, other content: the second is kept as a conflict.
    pub conflict: bool,
    /// The first key.
    pub key_a: Fingerprint,
    /// The second key.
    pub key_b: Fingerprint,
    /// Why they differ, the most useful reason first; empty where they do not.
    pub reasons: Vec<Reason>,
    /// Reasons beyond [`REASONS_MAX`].
    pub more_reasons: usize,
    /// Differences that are removed before hashing.
    pub removed: Vec<Reason>,
    /// Removed differences beyond [`REASONS_MAX`].
    pub more_removed: usize,
    /// Fields that differ although the payloads are one event: if they matter, an event is lost.
    pub outside: Vec<Reason>,
    /// Such fields beyond [`REASONS_MAX`].
    pub more_outside: usize,
    /// What would change the verdict, the best first.
    pub fixes: Vec<String>,
}

/// A payload with everything a key is made of.
struct Keys {
    keyed: Keyed,
    /// Without the previous policy.
    alone: Keyed,
    /// The delivery's key where there is one.
    delivery: Option<Fingerprint>,
}

impl Keys {
    fn of(side: &Side<'_>) -> Result<Keys, Error> {
        let keyed = Keyer::new(side.policy)?.key(side.input)?;
        let alone = match side.policy.previous {
            None => keyed.clone(),
            Some(_) => key_under(side.input, &without_previous(side.policy))?,
        };
        let secret = side.policy.key_secret.as_ref();
        let delivery = side.delivery.map(|delivery| delivery.fingerprint(&side.policy.scope, secret)).transpose()?;
        Ok(Keys { keyed, alone, delivery })
    }

    fn key(&self) -> Fingerprint {
        self.delivery.unwrap_or(self.keyed.fingerprint)
    }
}

fn key_under(input: Input<'_>, policy: &Policy) -> Result<Keyed, Error> {
    Keyer::new(policy)?.key(input)
}

fn without_previous(policy: &Policy) -> Policy {
    Policy { previous: None, ..policy.clone() }
}

/// Says why two payloads are the same event, or why they are two. A refused payload is an error of its side.
pub fn explain(a: &Side<'_>, b: &Side<'_>) -> Result<Explanation, (Which, Error)> {
    let keys = [Keys::of(a).map_err(|e| (Which::A, e))?, Keys::of(b).map_err(|e| (Which::B, e))?];
    let spatial = spatial_match(&keys);
    let policies = matched_policies(a, b, spatial);
    let mut tapes = [Tape::default(), Tape::default()];
    let [tape_a, tape_b] = &mut tapes;
    let document_a = document(a, tape_a).map_err(|e| (Which::A, e))?;
    let document_b = document(b, tape_b).map_err(|e| (Which::B, e))?;
    let reading_a = Reading::new(a.input, policies[0], document_a.as_ref()).map_err(|e| (Which::A, e))?;
    let reading_b = Reading::new(b.input, policies[1], document_b.as_ref()).map_err(|e| (Which::B, e))?;

    let mut found = Found::default();
    fields::compare(&reading_a, &reading_b, &mut found);
    settings::compare(a, b, &mut found);
    delivery_ids(a, b, spatial != Match::None, &mut found);
    geometry::compare(&reading_a, &reading_b, &mut found);
    if spatial == Match::Previous {
        found.removed(ReasonCode::Policy, || Reason {
            message: "they share a key under the previous policy, not under the present one".to_owned(),
            ..Reason::new(ReasonCode::Policy, "")
        });
    }
    Ok(verdict(&keys, spatial, found))
}

fn document<'a>(side: &Side<'a>, tape: &'a mut Tape) -> Result<Option<Document<'a>>, Error> {
    match side.input.form {
        Form::Json => json::parse(side.input.bytes, &side.policy.limits, tape).map(Some),
        _ => Ok(None),
    }
}

fn spatial_match([a, b]: &[Keys; 2]) -> Match {
    if a.keyed.fingerprint == b.keyed.fingerprint {
        Match::Key
    } else if a.alone.matches(&b.alone) {
        Match::TieAlias
    } else if a.keyed.matches(&b.keyed) {
        Match::Previous
    } else {
        Match::None
    }
}

/// The policies under which two payloads match; their own where they do not.
fn matched_policies<'a>(a: &Side<'a>, b: &Side<'a>, spatial: Match) -> [&'a Policy; 2] {
    let own = [a.policy, b.policy];
    if spatial != Match::Previous {
        return own;
    }
    let old = |side: &Side<'a>| side.policy.previous.as_deref().unwrap_or(side.policy);
    let pairs = [[old(a), old(b)], [old(a), b.policy], [a.policy, old(b)]];
    let matches = |pair: &[&Policy; 2]| {
        let keys = [(a, pair[0]), (b, pair[1])].map(|(side, policy)| key_under(side.input, &without_previous(policy)));
        matches!(keys, [Ok(a), Ok(b)] if a.matches(&b))
    };
    pairs.into_iter().find(matches).unwrap_or(own)
}

/// Sender's ids that differ, or that only one payload has.
fn delivery_ids(a: &Side<'_>, b: &Side<'_>, same_content: bool, found: &mut Found) {
    if a.delivery == b.delivery {
        return;
    }
    let show = |side: &Side<'_>| {
        side.delivery.map_or_else(String::new, |d| shown::shorten(&format!("{}: {} #{}", d.by, d.id, d.index)))
    };
    let message = match (a.delivery, b.delivery) {
        (Some(a), Some(b)) if a.id == b.id && a.by == b.by => "two features of one delivery",
        (Some(_), Some(_)) => "the sender gave them two ids",
        _ => "only one of them carries a sender's id",
    };
    let fix = same_content.then(|| "identify = \"spatial\"".to_owned());
    found.reason(Reason {
        a: show(a),
        b: show(b),
        message: message.to_owned(),
        fix,
        ..Reason::new(ReasonCode::DeliveryId, "")
    });
}

fn verdict(keys: &[Keys; 2], spatial: Match, mut found: Found) -> Explanation {
    let [a, b] = keys;
    let by = match (a.delivery, b.delivery) {
        (None, None) => spatial,
        (Some(a), Some(b)) if a == b => Match::Delivery,
        _ => Match::None,
    };
    let same = by != Match::None;
    let conflict = by == Match::Delivery && spatial == Match::None;
    if same {
        // What would tell them apart does not: under a shared delivery id it is a conflict, else nothing is left.
        let reasons = std::mem::take(&mut found.reasons);
        if conflict {
            found.outside.prepend(reasons);
        }
    } else {
        found.outside = found::List::default();
        // Fields first, then settings and ids, then what is wrong with the geometry in the order of its finding.
        found.reasons.items.sort_by_key(|reason| reason.code.min(ReasonCode::GeometryType));
        if found.reasons.items.is_empty() {
            found.reason(Reason {
                message: "their policies differ in more than one setting".to_owned(),
                ..Reason::new(ReasonCode::Policy, "")
            });
        }
    }
    let fixes = if same { found::outside_fixes(&found.outside.items) } else { found::fixes(&found.reasons.items) };
    Explanation {
        same,
        by,
        conflict,
        key_a: a.key(),
        key_b: b.key(),
        reasons: found.reasons.items,
        more_reasons: found.reasons.more,
        removed: found.removed.items,
        more_removed: found.removed.more,
        outside: found.outside.items,
        more_outside: found.outside.more,
        fixes,
    }
}
