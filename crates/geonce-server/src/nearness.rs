//! Whether two payloads that are not the same event would be near, and what a recorded one was near to: beside what `explain`
//! says, for people and for machines.

use crate::config::{Distance, Likeness};
use crate::record::Found;
use crate::show::escaped;
use geonce::clock::Timestamp;
use geonce::delivery::near::Action;
use geonce::delivery::near::between::{self, Apart, Between, Measured};
use geonce_key::Input;
use geonce_key::near::Measure;
use serde_json::json;
use std::fmt::Write as _;

/// What is to be said of nearness.
pub(crate) struct Nearness {
    /// What the check would say, where the source has one and the payloads are two events.
    pub(crate) between: Option<Between>,
    /// What each was near to when it was delivered, where it was.
    pub(crate) found: [Option<Found>; 2],
}

/// A payload that may be near to another.
pub(crate) struct Side<'a> {
    pub(crate) likeness: &'a Likeness,
    pub(crate) input: Input<'a>,
    /// When it was recorded, if it was.
    pub(crate) received: Option<Timestamp>,
}

impl Side<'_> {
    fn near(&self) -> Option<between::Side<'_>> {
        let Likeness { policy, near, entity } = self.likeness;
        let (near, entity) = (near.as_ref()?, entity.as_deref());
        Some(between::Side { near, policy, entity, input: self.input, received: self.received })
    }
}

impl Nearness {
    /// What is to be said of two payloads, given whether they are the same event.
    pub(crate) fn of(same: bool, [a, b]: [Side<'_>; 2], found: [Option<Found>; 2]) -> geonce_key::Result<Nearness> {
        let between = match (a.near(), b.near()) {
            (Some(a), Some(b)) if !same => between::between(&a, &b)?,
            _ => None,
        };
        Ok(Nearness { between, found })
    }

    /// An explanation in JSON, with what is to be said here as further members.
    pub(crate) fn beside(&self, mut explanation: String) -> String {
        let between = self.between.as_ref().map(Between::json);
        let [a, b] = self.found.each_ref().map(|found| found.as_ref().map(Found::json));
        explanation.pop();
        let _ = write!(explanation, ",\"near\":{},\"was_near\":{}}}", json!(between), json!({ "a": a, "b": b }));
        explanation
    }

    /// For people, a line each.
    pub(crate) fn text(&self, names: [&str; 2]) -> String {
        let mut text = String::new();
        if let Some(between) = &self.between {
            let _ = writeln!(text, "  near: {}", answer(between, names[1]));
        }
        for (name, found) in names.iter().zip(&self.found) {
            if let Some(found) = found {
                let _ = writeln!(text, "  {} was near {}", escaped(name), found.text());
            }
        }
        text
    }
}

fn answer(between: &Between, later: &str) -> String {
    let values: Vec<String> = between.measured.iter().map(value).collect();
    let values = values.join(", ");
    if let Some(action) = between.action {
        let fate = match action {
            Action::Drop => "would be dropped",
            Action::Flag => "would be written and flagged",
            Action::Merge { .. } => "would be merged into the row of the other",
        };
        return format!("yes, {values}; {} {fate}", escaped(later));
    }
    let why = match between.apart {
        None => return format!("no, {values}"),
        Some(Apart::Scope) => format!("they are not compared, their scopes differ ({})", between.scope.as_str()),
        Some(Apart::Period) => "they are not compared, more than the period is between them".to_owned(),
        Some(Apart::Place) => "they are not compared, they are farther apart than is looked".to_owned(),
        Some(Apart::Geometry) => return "no, one of them has no geometry that is compared".to_owned(),
    };
    format!("no, {why}; {values}")
}

/// What a measure says, beside what it allows.
fn value(measured: &Measured) -> String {
    let name = measured.measure.name();
    let value = measured.value.map_or_else(|| "cannot be measured".to_owned(), |value| amount(measured.measure, value));
    if measured.measure == Measure::Iou {
        return format!("{name} {value} (at least {})", measured.threshold);
    }
    format!("{name} {value} (at most {})", Distance(measured.threshold))
}

/// What was measured, to what a person needs of it.
pub(crate) fn amount(measure: Measure, value: f64) -> String {
    match (measure, value) {
        (Measure::Iou, _) => format!("{value:.3}"),
        (_, value) if value < 0.1 => format!("{:.1} mm", value * 1_000.0),
        (_, value) if value < 1_000.0 => format!("{value:.3} m"),
        (_, value) => format!("{:.3} km", value / 1_000.0),
    }
}
