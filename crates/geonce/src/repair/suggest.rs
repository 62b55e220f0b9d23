//! What would mend a dead event, by what it died of and what its positions look like. Tried before it is suggested.

use super::choice::{Choice, Choices};
use super::make::{Recorded, make};
use super::{Judged, judge};
use crate::event::Cause;
use crate::intake::Source;
use crate::store::Record;
use geonce_key::{Form, validity};

/// Positions so little outside the world are cut off rather than taken for something else.
const EDGE_DEGREES: f64 = 1e-3;

/// The choices that mend an event, the fewest first; `None` where none is known. The record must have its payload.
pub fn suggest(record: &Record, source: &Source) -> Option<Choices> {
    let cause = record.cause.as_ref()?;
    let recorded = Recorded { form: record.form, crs: record.crs, payload: record.payload.as_deref()? };
    let mends = |choices: &[Choice]| {
        let choices = Choices::new(choices.iter().copied()).ok()?;
        let made = make(recorded, &source.policy, &choices).ok()?;
        matches!(judge(record, source, &made), Judged { problem: None, .. }).then_some(choices)
    };
    candidates(cause, recorded, source).iter().find_map(|choices| mends(choices))
}

fn candidates(cause: &Cause, recorded: Recorded<'_>, source: &Source) -> Vec<Vec<Choice>> {
    let world = Choice::parse("clip").ok();
    match cause.code.as_str() {
        "unclosed_ring" | "geojson_ring_unclosed" | "geojson_ring_short" => {
            vec![vec![Choice::CloseRings], vec![Choice::CloseRings, Choice::Grid]]
        }
        "spike" => vec![vec![Choice::DropSpikes], vec![Choice::DropSpikes, Choice::Grid], vec![Choice::Grid]],
        "geojson_elevation" => vec![vec![Choice::DropZ], vec![Choice::DropZ, Choice::Grid]],
        "geojson_bounds" | "accept_bounds" => {
            let swapped = [vec![Choice::SwapAxes], vec![Choice::SwapAxes, Choice::Grid]];
            let clipped = world.filter(|_| is_at_the_edge(recorded, source)).map(|clip| vec![clip, Choice::Grid]);
            swapped.into_iter().chain(clipped).collect()
        }
        code if validity::ProblemCode::ALL.iter().any(|problem| problem.as_str() == code) => {
            vec![vec![Choice::Grid], vec![Choice::CloseRings, Choice::Grid]]
        }
        _ => Vec::new(),
    }
}

/// Whether all positions are within the world but for rounding.
fn is_at_the_edge(recorded: Recorded<'_>, source: &Source) -> bool {
    let beside = |[x, y, _]: &[f64; 3]| x.abs() <= 180.0 + EDGE_DEGREES && y.abs() <= 90.0 + EDGE_DEGREES;
    // Dropping nothing but what may be there anyway: this is for looking at the positions.
    let Ok(choices) = Choices::new([Choice::CloseRings]) else { return false };
    let looked = make(recorded, &source.policy, &choices);
    recorded.form == Form::Json && looked.is_ok_and(|made| made.shapes[0].positions.iter().all(beside))
}
