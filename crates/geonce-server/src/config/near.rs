//! `near` of a source: which events are near-duplicates, and what becomes of them.

use super::human::{Distance, Span};
use super::{Reading, Settings};
use crate::failure::Failure;
use geonce::delivery::near::{Action, Near, Scope};
use geonce::sink::Mode;
use geonce_key::Pointer;
use geonce_key::near::{Measure, THRESHOLD_M_MAX};
use geonce_key::policy::Identity;
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;
use toml::{Table, Value};

/// How long an event is compared with those after it, unless it is said.
const PERIOD: Duration = Duration::from_mins(10);
/// How far apart the middles of areas may be that are compared by what they share, unless it is said.
const WITHIN_METRES: f64 = 50.0;

/// A distance, or everything.
#[derive(Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "a distance such as \"5 cm\", or a table such as { vertex = \"5 cm\", period = \"10m\" }"
)]
pub(super) enum NearValue {
    Distance(Distance),
    Table(NearTable),
}

/// Which events are near-duplicates. Near is what one of the measures says is near.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Near")]
pub(super) struct NearTable {
    /// The largest distance of two points on the ellipsoid.
    metres: Option<Distance>,
    /// The largest displacement of a vertex.
    vertex: Option<Distance>,
    /// The largest Hausdorff distance, vertices to segments.
    hausdorff: Option<Distance>,
    /// The largest discrete Fréchet distance of two lines.
    frechet: Option<Distance>,
    /// The least area that two areas share, as a part of what they cover together, 0 to 1.
    iou: Option<f64>,
    /// How far apart the middles of areas may be that `iou` compares [default: 50 m].
    within: Option<Distance>,
    /// How long an event is compared with those after it [default: 10m].
    period: Option<Span>,
    /// Which events are compared: those of one identity, of one entity, or all of the source [default: identity].
    scope: Option<ScopeWord>,
    /// What becomes of a near-duplicate [default: drop].
    action: Option<ActionWord>,
    /// What a merge makes of the geometry: the later one, or the mean of points [default: later].
    merge: Option<MergeWord>,
    /// JSON pointers of what may differ when a near-duplicate is dropped.
    ignore: Option<Vec<String>>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ScopeWord {
    Identity,
    Entity,
    Source,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ActionWord {
    /// Not written; only where everything outside the geometry is the same, others are flagged.
    Drop,
    /// Written, and marked.
    Flag,
    /// Written over the row of the event that it is near to.
    Merge,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum MergeWord {
    Later,
    Mean,
}

impl Reading<'_> {
    /// The near check of the source `name`.
    pub(super) fn near(&self, name: &str, value: NearValue) -> Result<Near, Failure> {
        let path = format!("source.{name}.near");
        let table = match value {
            NearValue::Distance(vertex) => NearTable { vertex: Some(vertex), ..NearTable::default() },
            NearValue::Table(table) => table,
        };
        let distances = [
            (Measure::Metres, table.metres),
            (Measure::Vertex, table.vertex),
            (Measure::Hausdorff, table.hausdorff),
            (Measure::Frechet, table.frechet),
        ];
        let mut measures = Vec::new();
        for (measure, distance) in distances {
            if let Some(Distance(metres)) = distance {
                self.radius(metres, &format!("{path}.{}", measure.name()))?;
                measures.push((measure, metres));
            }
        }
        if let Some(share) = table.iou {
            if !(share > 0.0 && share <= 1.0) {
                return Err(self.refuse(&format!("{path}.iou"), "areas share more than 0 and at most 1"));
            }
            measures.push((Measure::Iou, share));
        }
        if measures.is_empty() {
            return Err(self
                .refuse(&path, "no measure says what is near")
                .hint("near = \"5 cm\", or { vertex = \"5 cm\" }, metres, hausdorff, frechet, iou = 0.95"));
        }
        let within = table.within.map_or(WITHIN_METRES, |Distance(metres)| metres);
        self.radius(within, &format!("{path}.within"))?;
        let mean = table.merge == Some(MergeWord::Mean);
        let action = match table.action.unwrap_or(ActionWord::Drop) {
            ActionWord::Merge => Action::Merge { mean },
            _ if table.merge.is_some() => {
                return Err(self.refuse(&format!("{path}.merge"), "nothing is merged without action = \"merge\""));
            }
            ActionWord::Drop => Action::Drop,
            ActionWord::Flag => Action::Flag,
        };
        let ignore = table.ignore.unwrap_or_default().iter().map(|text| Pointer::parse(text)).collect();
        Ok(Near {
            measures,
            within_metres: within,
            period: self.longer_than_zero(table.period, PERIOD, &format!("{path}.period"))?,
            scope: match table.scope.unwrap_or(ScopeWord::Identity) {
                ScopeWord::Identity => Scope::Identity,
                ScopeWord::Entity => Scope::Entity,
                ScopeWord::Source => Scope::Source,
            },
            action,
            ignore: self.at(&format!("{path}.ignore"), ignore)?,
        })
    }

    /// What is near must be remembered for as long as it is compared, and merging needs rows that can be written over.
    pub(super) fn near_fits(&self, settings: &Settings) -> Result<(), Failure> {
        for (name, source) in &settings.sources {
            let Some(near) = &source.near else { continue };
            let path = format!("source.{name}.near");
            if near.period > settings.store.options.window {
                return Err(self
                    .refuse(&format!("{path}.period"), "events are forgotten before the period is over")
                    .hint("raise store.window, or lower period"));
            }
            let entity_fields = matches!(source.policy.identity, Identity::Fields(_));
            let names_entity = |sink: &String| settings.sinks.get(sink).is_some_and(|sink| sink.entity.is_some());
            if near.scope == Scope::Entity && !entity_fields && !source.sinks.iter().all(names_entity) {
                return Err(self
                    .refuse(&format!("{path}.scope"), "nothing names the entity of an event")
                    .hint("give the source an identity, or take scope = \"source\""));
            }
            let takes_merged = |sink: &String| {
                settings.sinks.get(sink).is_some_and(|sink| {
                    let layers = sink.url.starts_with("gpkg:") || sink.url.starts_with("postgres");
                    layers && sink.options.mode == Mode::Append
                })
            };
            if let (Action::Merge { .. }, Some(other)) =
                (near.action, source.sinks.iter().find(|sink| !takes_merged(sink)))
            {
                let message = format!("the sink {other:?} has no rows of events that could be written over");
                return Err(self
                    .refuse(&format!("{path}.action"), &message)
                    .hint("merge needs GeoPackage or PostGIS with mode = \"append\""));
            }
        }
        Ok(())
    }

    fn radius(&self, metres: f64, path: &str) -> Result<(), Failure> {
        if metres > 0.0 && metres <= THRESHOLD_M_MAX {
            return Ok(());
        }
        let message = format!("the distance is more than nothing and at most {}", Distance(THRESHOLD_M_MAX));
        Err(self.refuse(path, &message))
    }
}

/// As it is written.
pub(super) fn saved(near: &Near) -> Value {
    let text = |text: &str| Value::String(text.to_owned());
    let distance = |metres: f64| text(&Distance(metres).to_string());
    let mut table = Table::new();
    for (measure, threshold) in &near.measures {
        let value = if *measure == Measure::Iou { Value::Float(*threshold) } else { distance(*threshold) };
        table.insert(measure.name().to_owned(), value);
    }
    table.insert("within".to_owned(), distance(near.within_metres));
    table.insert("period".to_owned(), text(&Span(near.period).to_string()));
    table.insert("scope".to_owned(), text(near.scope.as_str()));
    table.insert("action".to_owned(), text(near.action.as_str()));
    if let Action::Merge { mean } = near.action {
        table.insert("merge".to_owned(), text(if mean { "mean" } else { "later" }));
    }
    let ignore = near.ignore.iter().map(|pointer| text(pointer.as_str())).collect();
    table.insert("ignore".to_owned(), Value::Array(ignore));
    Value::Table(table)
}
