//! What no provider sends, to every preset: nothing panics, nothing grows without bound, nothing is recorded.

use super::super::changes::{self, Announcement};
use super::{Preset, Request, Rig, headers};
use crate::intake::Refused;
use geonce_key::Limits;
use proptest::prelude::*;

const HEADERS: [(&str, &str); 5] =
    [("x-github-event", "push"), ("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "s"), ("ce-type", "t")];

fn all() -> impl Iterator<Item = Preset> {
    Preset::NAMED.into_iter().filter(|preset| *preset != Preset::Geojson)
}

#[test]
fn texts_that_are_not_strict_json_are_refused_by_every_preset() {
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    for body in ["{\"a\":1,\"a\":2}", "{\"a\":1}x", "\u{feff}{}", "{\"a\":\"\\ud800\"}", "nul", "{\"a\":1e999}", &deep]
    {
        for preset in all() {
            let (headers, body, limits) = (headers(&HEADERS), body.to_owned().into(), Limits::default());
            let request = Request { headers: &headers, body: &body, limits: &limits, features_max: 100 };
            let fault = preset.read(&request).unwrap().err();
            let code = fault.map(|fault| fault.code).unwrap_or_default();
            assert!(code.starts_with("json_") || code.starts_with("limit_"), "{}: {code}", preset.name());
        }
    }
}

#[tokio::test]
async fn a_list_that_is_too_long_is_refused_before_its_elements_are_read() {
    let body = format!("[{}]", vec!["0"; 1_001].join(","));
    for preset in [Preset::Arcgis, Preset::Cloudevents, Preset::Traccar, Preset::Owntracks] {
        let rig = Rig::with(preset, |source| source.features_max = 1_000);
        match rig.send(&[], &body).await {
            Err(Refused::Payload(fault)) => assert_eq!(fault.code, "limit_features"),
            other => panic!("{other:?}"),
        }
        assert_eq!(rig.recorded().await, 0);
    }
}

#[test]
fn what_is_copied_into_every_event_is_short() {
    let long = "x".repeat(5_000);
    let operations = format!(r#"{{"info":{{"portalURL":"{long}"}},"events":[{{}}]}}"#);
    let survey = format!(r#"{{"surveyInfo":{{"formTitle":"{long}"}},"applyEdits":[]}}"#);
    assert_eq!(
        super::refusal(&Preset::Arcgis, &[], &operations),
        ("limit_string".to_owned(), "/info/portalURL".to_owned())
    );
    assert_eq!(super::refusal(&Preset::Survey123, &[], &survey), ("limit_string".to_owned(), "/surveyInfo".to_owned()));
    let message = r#"{"_type":"status"}"#;
    assert_eq!(super::refusal(&Preset::Owntracks, &[("x-limit-u", &long)], message).0, "preset_value");
}

/// Names that presets look for, so that what is generated gets past the first look.
const NAMES: [&str; 34] = [
    "attributes",
    "geometry",
    "rings",
    "paths",
    "points",
    "x",
    "y",
    "spatialReference",
    "wkid",
    "changesUrl",
    "serviceName",
    "events",
    "info",
    "features",
    "feature",
    "applyEdits",
    "data",
    "_type",
    "position",
    "event",
    "geofence",
    "area",
    "object",
    "id",
    "edits",
    "adds",
    "updates",
    "deletes",
    "deleteIds",
    "GlobalID",
    "status",
    "statusUrl",
    "resultUrl",
    "error",
];

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        "[a-zé%\\[\\]0-9:, ()]{0,12}".prop_map(Into::into),
        Just("CIRCLE (1 2, 3)".into()),
        Just("https://x?serverGens=[1,2]".into()),
        Just("2026-11-15T08:00:00+0000".into()),
        Just("Feature".into()),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::vec((prop::sample::select(NAMES.to_vec()), inner), 0..6)
                .prop_map(|members| members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever a preset makes of a request is strict JSON again, and what it refuses has a code.
    #[test]
    fn what_a_preset_makes_can_be_read(value in json()) {
        let (headers, limits) = (headers(&HEADERS), Limits::default());
        let body = value.to_string().into();
        let request = Request { headers: &headers, body: &body, limits: &limits, features_max: 100 };
        for preset in all() {
            let Some(Ok(found)) = preset.read(&request) else { continue };
            for payload in found.payloads {
                match payload.read {
                    Ok(_) => geonce_key::check_json(&payload.text, &limits).unwrap(),
                    Err(fault) => prop_assert!(!fault.code.is_empty()),
                }
            }
        }
    }

    /// Whatever servers answer who are asked for changes.
    #[test]
    fn what_is_made_of_an_answer_can_be_read(features in json(), other in json(), gens in prop_oneof![Just("[1,2]"), Just("1")]) {
        let announced = super::feature(&Preset::Arcgis, &[], &change(gens, "o"));
        let announcement = Announcement::of(announced.to_string().as_bytes()).unwrap();
        let edits = serde_json::json!({ "edits": [{ "id": 0, "features": { "adds": features, "deleteIds": other } },
            { "id": 1, "features": other }, { "id": 2, "features": { "adds": [features, other], "deleteIds": [features] } }],
            "layerServerGens": [{ "id": 0, "serverGen": 7 }, { "id": 1, "serverGen": 7 }, { "id": 2, "serverGen": 7 }] });
        let (headers, limits) = (headers(&[]), Limits::default());
        for answer in [edits, features, other] {
            let body: bytes::Bytes = answer.to_string().into();
            let _ = changes::step(&body);
            let request = Request { headers: &headers, body: &body, limits: &limits, features_max: 100 };
            let Ok(found) = changes::read(&request, &announcement) else { continue };
            for payload in found.payloads {
                match payload.read {
                    Ok(_) => geonce_key::check_json(&payload.text, &limits).unwrap(),
                    Err(fault) => prop_assert!(!fault.code.is_empty()),
                }
            }
        }
    }
}

fn change(gens: &str, organization: &str) -> String {
    format!(
        r#"{{"orgId":"{organization}","serviceName":"s","events":[],"changesUrl":"https://x/FeatureServer/extractChanges?serverGens={gens}"}}"#
    )
}

#[test]
fn what_an_announcement_has_in_every_feature_is_short() {
    let code = |body: &str| {
        let announced = super::feature(&Preset::Arcgis, &[], body);
        Announcement::of(announced.to_string().as_bytes()).map(drop).map_err(|fault| fault.code)
    };
    assert_eq!(code(&change("[1,2]", "o")), Ok(()));
    assert_eq!(code(&change("[1,2]", &"o".repeat(5_000))), Err("limit_string".to_owned()));
    assert_eq!(code(&change(&format!("[1,2]&x={}", "x".repeat(9_000)), "o")), Err("limit_string".to_owned()));
}

#[test]
fn an_answer_with_too_much_in_it_is_refused_before_it_is_taken_apart() {
    let announced = super::feature(&Preset::Arcgis, &[], &change("[1,2]", "o"));
    let announcement = Announcement::of(announced.to_string().as_bytes()).unwrap();
    let (headers, limits) = (headers(&[]), Limits::default());
    let layers = vec![r#"{"id":0}"#; 10_001].join(",");
    let ids = vec!["1"; 101].join(",");
    let both = vec!["1"; 60].join(",");
    let long = "x".repeat(5_000);
    for (body, code) in [
        (format!(r#"{{"edits":[{layers}]}}"#), "limit_features"),
        (format!(r#"{{"edits":[{{"id":0,"features":{{"deleteIds":[{ids}]}}}}]}}"#), "limit_features"),
        (format!(r#"{{"edits":[{{"id":0,"features":{{"adds":[{both}],"updates":[{both}]}}}}]}}"#), "limit_features"),
        (format!(r#"{{"edits":[{{"id":"{long}","features":{{"adds":[]}}}}]}}"#), "limit_string"),
    ] {
        let body = body.into();
        let request = Request { headers: &headers, body: &body, limits: &limits, features_max: 100 };
        assert_eq!(
            changes::read(&request, &announcement).map(|_| ()).map_err(|fault| fault.code),
            Err(code.to_owned())
        );
    }
}
