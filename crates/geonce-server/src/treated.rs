//! What became of an event in a job that repairs, as one object: the gateway's API gives it to followers, the command line
//! prints it, whoever did the work.

use geonce::repair::{Plan, cause_json, repaired_json};
use geonce::replay::Treated;
use serde_json::{Value, json};

/// Characters of a geometry that are shown.
const SHAPE_CHARACTERS_MAX: usize = 100;

/// What became of an event; the whole of it has the plan too.
pub(crate) fn line(treated: &Treated, whole: bool) -> Value {
    let (mut line, plan) = match treated {
        Treated::Repaired { plan, own, repaired } => {
            let mut line = repaired_json(plan.original, repaired, *own);
            line["cause"] = Value::Null;
            (line, Some(plan))
        }
        Treated::Cannot { event, cause, plan } => {
            let line = json!({
                "original": event.to_string(), "result": "cannot", "event": null, "cause": cause_json(cause),
            });
            (line, plan.as_ref())
        }
    };
    if whole {
        line["plan"] = plan.map_or(Value::Null, |plan| shown(plan));
    }
    line
}

/// A plan with the beginnings of its geometries as people read them.
pub(crate) fn shown(plan: &Plan) -> Value {
    let [before, after] = plan.wkt();
    let mut shown = plan.json();
    shown["wkt"] = json!({ "before": shortened(&before), "after": shortened(&after) });
    shown
}

/// The beginning of a long text.
fn shortened(text: &str) -> String {
    if text.chars().count() <= SHAPE_CHARACTERS_MAX {
        return text.to_owned();
    }
    text.chars().take(SHAPE_CHARACTERS_MAX).chain(['…']).collect()
}
