//! What a bad network does to a feature without making it another event.

use serde_json::{Map, Value, json};

pub(super) fn reversed_members(value: &Value) -> Value {
    match value {
        Value::Object(object) => Value::Object(
            object.iter().rev().map(|(name, value)| (name.clone(), reversed_members(value))).collect::<Map<_, _>>(),
        ),
        other => other.clone(),
    }
}

pub(super) fn rings(feature: &mut Value, change: impl Fn(&mut Vec<Value>)) {
    for ring in feature["geometry"]["coordinates"].as_array_mut().into_iter().flatten() {
        if let Some(ring) = ring.as_array_mut() {
            change(ring);
        }
    }
}

pub(super) fn rotate(ring: &mut Vec<Value>, by: usize) {
    ring.pop();
    ring.rotate_left(by);
    ring.extend_from_within(..1);
}

pub(super) fn ordinates(feature: &mut Value, change: impl Fn(f64) -> f64) {
    rings(feature, |ring| {
        for position in ring.iter_mut().filter_map(Value::as_array_mut) {
            for ordinate in position {
                if let Some(number) = ordinate.as_f64() {
                    *ordinate = json!(change(number));
                }
            }
        }
    });
}
