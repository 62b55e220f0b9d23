//! Whatever the payloads are: the verdict is that of the keys, there is a reason exactly where there must be one,
//! and nothing panics.

use super::*;
use crate::Keyer;
use crate::explain::ReasonCode;
use crate::explain::align::Trace;
use crate::explain::laid::{Grid, Laid};
use crate::policy::{Dimensions, Lines, Parts};
use proptest::prelude::*;

fn ordinate() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("0".to_owned()),
        Just("-0.0".to_owned()),
        (-3i32..4).prop_map(|n| n.to_string()),
        (0u32..30).prop_map(|n| format!("0.0000000{n:02}")),
        Just("1e-7".to_owned()),
        Just("180".to_owned()),
    ]
}

fn position() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => (ordinate(), ordinate()).prop_map(|(x, y)| format!("[{x},{y}]")),
        1 => (ordinate(), ordinate(), ordinate()).prop_map(|(x, y, z)| format!("[{x},{y},{z}]")),
    ]
}

fn list(items: impl Strategy<Value = String>, count: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    prop::collection::vec(items, count).prop_map(|items| format!("[{}]", items.join(",")))
}

fn ring() -> impl Strategy<Value = String> {
    prop::collection::vec(position(), 3..6).prop_map(|mut items| {
        items.push(items[0].clone());
        format!("[{}]", items.join(","))
    })
}

fn geometry() -> impl Strategy<Value = String> {
    let simple = prop_oneof![
        position().prop_map(|c| shape("Point", &c)),
        list(position(), 1..4).prop_map(|c| shape("MultiPoint", &c)),
        list(position(), 2..5).prop_map(|c| shape("LineString", &c)),
        list(list(position(), 2..4), 1..3).prop_map(|c| shape("MultiLineString", &c)),
        list(ring(), 1..4).prop_map(|c| shape("Polygon", &c)),
        list(list(ring(), 1..3), 1..3).prop_map(|c| shape("MultiPolygon", &c)),
    ];
    simple.prop_recursive(2, 6, 3, |inner| {
        list(inner, 1..4).prop_map(|members| format!(r#"{{"geometries":{members},"type":"GeometryCollection"}}"#))
    })
}

fn payload() -> impl Strategy<Value = String> {
    let value = prop_oneof![Just("1"), Just("1.0"), Just("-0"), Just("null"), Just("\"a\""), Just("[1,{\"x\":2}]")];
    let properties = prop::collection::btree_map("id|kind|attempt|speed", value, 0..3).prop_map(|map| {
        let members: Vec<String> = map.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}", members.join(","))
    });
    let properties = prop_oneof![5 => properties, 1 => Just("null".to_owned())];
    prop_oneof![
        4 => (geometry(), properties).prop_map(|(geometry, properties)| feature(&geometry, &properties)),
        1 => geometry(),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    (0u8..10, 0usize..3, any::<[bool; 4]>(), any::<bool>()).prop_map(|(precision, identity, flags, previous)| {
        let mut policy = match identity {
            0 => Policy::default(),
            1 => {
                let mut policy = identified(&["/properties/id", "/properties/speed"]);
                if let Identity::Fields(fields) = &mut policy.identity {
                    for field in fields {
                        field.optional = true;
                    }
                }
                policy
            }
            _ => {
                Policy { identity: Identity::Whole { ignore: vec![pointer("/properties/kind")] }, ..Policy::default() }
            }
        };
        policy.precision = precision;
        policy.lines = if flags[0] { Lines::Undirected } else { Lines::Directed };
        policy.parts = if flags[1] { Parts::Ordered } else { Parts::Sorted };
        policy.dimensions = if flags[2] { Dimensions::Two } else { Dimensions::Delivered };
        policy.close_rings = flags[3];
        if previous {
            policy.previous = Some(Box::new(Policy { precision: 5, ..Policy::default() }));
        }
        policy
    })
}

fn check(a: &Side<'_>, b: &Side<'_>) {
    let keys = [a, b].map(|side| Keyer::new(side.policy).and_then(|mut keyer| keyer.key(side.input)));
    match (explain(a, b), keys) {
        (Ok(explanation), [Ok(key_a), Ok(key_b)]) => {
            assert_eq!(explanation.same, key_a.matches(&key_b), "{explanation:#?}");
            assert_eq!(explanation.same, explanation.reasons.is_empty(), "{explanation:#?}");
            assert!(explanation.same || explanation.outside.is_empty());
            let by_policy = explanation.reasons.iter().any(|reason| reason.code == ReasonCode::Policy);
            assert!(!by_policy || !std::ptr::eq(a.policy, b.policy), "{explanation:#?}");
            let one_policy = std::ptr::eq(a.policy, b.policy);
            let nothing_found = explanation.removed.is_empty() && explanation.outside.is_empty();
            let must_find = explanation.same && one_policy && a.input.bytes != b.input.bytes;
            assert!(
                !(must_find && nothing_found),
                "{:?}",
                [a, b].map(|side| String::from_utf8_lossy(side.input.bytes))
            );
            serde_json::from_str::<serde_json::Value>(&explanation.to_json()).unwrap();
            explanation.to_text(["a", "b"], true);
            explanation.to_svg(a, b);
        }
        (Err(_), [Err(_), _] | [_, Err(_)]) => {}
        (explained, keys) => panic!("{explained:?} but {keys:?}"),
    }
}

/// A small change to a payload, as text.
fn mutated(text: &str, at: usize, byte: u8, deletes: bool) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    let at = at % bytes.len();
    if deletes {
        bytes.remove(at);
    } else {
        bytes[at] = byte;
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn the_verdict_is_that_of_the_keys(a in payload(), b in payload(), policy_a in policy(), policy_b in policy()) {
        check(&side(&a, &policy_a), &side(&b, &policy_a));
        check(&side(&a, &policy_a), &side(&a, &policy_b));
        check(&side(&a, &policy_a), &side(&b, &policy_b));
    }

    #[test]
    fn mutated_payloads_are_explained_or_refused(
        a in payload(), policy in policy(), at in any::<usize>(),
        byte in prop::sample::select(b"0123456789.,-e[]{}\" :nxy\\".to_vec()), deletes in any::<bool>(),
    ) {
        let bytes = mutated(&a, at, byte, deletes);
        let other = Side { input: Input::json(&bytes), ..side("{", &policy) };
        check(&side(&a, &policy), &other);
        check(&other, &side(&a, &policy));
    }

    #[test]
    fn a_trace_leads_to_the_canonical_form(text in geometry(), policy in policy()) {
        let mut tape = crate::json::Tape::default();
        let document = crate::json::parse(text.as_bytes(), &policy.limits, &mut tape).unwrap();
        let Ok(reading) = crate::explain::reading::Reading::new(Input::json(text.as_bytes()), &policy, Some(&document))
        else { return Ok(()) };
        let Some(geometry) = reading.geometry else { return Ok(()) };
        let Some(laid) = Laid::new(&geometry.shape, None, &policy) else { return Ok(()) };
        let form = laid.on(Grid::Even);
        let trace = Trace::new(form, &laid, &policy);
        let mut positions = Vec::new();
        for path in trace.members.iter().flat_map(|m| &m.parts).flat_map(|p| &p.paths) {
            let start = positions.len();
            positions.extend(path.order.iter().map(|&i| form.delivered.positions[i as usize]));
            if path.is_ring {
                positions.push(positions[start]);
            }
        }
        // Points on the antimeridian change their longitude, which the trace leaves alone.
        if !text.contains("180") {
            prop_assert_eq!(positions, form.canonical.positions.clone());
        }
    }
}
