//! Advice from what came in: what a source's events in the store say about its policy. `docs/doctor.md` has every finding.
//!
//! Each finding is a pure function of what was seen ([`View`]). Reading is bounded: the latest [`EVENTS_MAX`] events, and
//! at most [`BYTES_MAX`] of their payloads. Advice informs; it never makes the doctor's answer no.

mod change;
mod drift;
mod edges;
mod fields;
mod lag;
mod seen;

use crate::config::Settings;
use crate::failure::Failure;
use crate::show::{Page, Style, escaped};
use crate::tool::Tool;
use geonce::store::{Filter, Status, Traffic};
use geonce_key::Policy;
use seen::{Eye, Seen};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Events that advice is made from: the latest.
const EVENTS_MAX: u64 = 20_000;
/// Bytes of payloads that are read for it.
const BYTES_MAX: u64 = 256 << 20;
/// Events of a source from which anything is concluded about its payloads.
const EVENTS_MIN: usize = 20;

/// A piece of advice.
#[derive(Debug)]
pub(super) struct Advice {
    /// Stable, as in `docs/doctor.md`.
    code: &'static str,
    source: String,
    /// A sentence with figures.
    message: String,
    hint: String,
    /// The figures.
    figures: Value,
}

/// What is known of a source.
struct View<'a> {
    source: &'a str,
    policy: &'a Policy,
    /// How long keys are remembered.
    window: Duration,
    /// Duplicates that differ outside their identity.
    drift: u64,
    traffic: &'a Traffic,
    /// Its events, the earliest first.
    seen: &'a [Seen],
}

impl View<'_> {
    fn advice(&self, code: &'static str, message: String, hint: impl Into<String>, figures: Value) -> Advice {
        Advice { code, source: self.source.to_owned(), message, hint: hint.into(), figures }
    }
}

/// Everything that can be said about the sources of this configuration.
pub(super) fn gather(tool: &Tool, settings: &Settings, status: &Status) -> Result<Vec<Advice>, Failure> {
    let mut eyes = BTreeMap::new();
    for (name, source) in &settings.sources {
        eyes.insert(name.as_str(), Eye::new(&source.policy)?);
    }
    let (mut count, mut bytes) = (0, 0);
    tool.each(&Filter::default(), true, |record| {
        count += 1;
        bytes += record.payload.as_ref().map_or(0, |payload| payload.len() as u64);
        if let Some(eye) = eyes.get_mut(&*record.source) {
            eye.look(&record);
        }
        Ok(count < EVENTS_MAX && bytes < BYTES_MAX)
    })?;
    let nothing = Traffic::default();
    let mut advice = Vec::new();
    for (name, eye) in eyes {
        let seen = eye.into_seen();
        let view = View {
            source: name,
            policy: &settings.sources[name].policy,
            window: settings.store.options.window,
            drift: status.ledgers.get(name).map_or(0, |ledger| ledger.drift),
            traffic: status.traffic.get(name).unwrap_or(&nothing),
            seen: &seen,
        };
        for find in [lag::advise, drift::advise, edges::advise, fields::advise, change::advise] {
            advice.extend(find(&view));
        }
    }
    Ok(advice)
}

/// Prints advice for people.
pub(super) fn print(page: &mut Page, advice: &[Advice]) -> Result<(), Failure> {
    for one in advice {
        let mark = if one.code == lag::FINE { page.mark(true) } else { page.paint(Style::Yellow, "!") };
        page.print(&format!("{mark} {}: {} [{}]", escaped(&one.source), escaped(&one.message), one.code))?;
        page.print(&format!("    hint: {}", escaped(&one.hint)))?;
    }
    Ok(())
}

/// Advice for programs.
pub(super) fn to_json(advice: &[Advice]) -> Value {
    let one = |advice: &Advice| {
        let Advice { code, source, message, hint, figures } = advice;
        json!({ "code": code, "source": source, "message": message, "hint": hint, "figures": figures })
    };
    advice.iter().map(one).collect()
}

/// A share in whole percent, or below one.
fn percent(part: u64, whole: u64) -> String {
    match part.saturating_mul(100).checked_div(whole) {
        None => "0 %".to_owned(),
        Some(0) if part > 0 => "less than 1 %".to_owned(),
        Some(share) => format!("{share} %"),
    }
}

#[cfg(test)]
mod tests;
