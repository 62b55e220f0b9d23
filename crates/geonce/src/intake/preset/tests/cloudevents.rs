//! Built from the `CloudEvents` specification 1.0.2 and its HTTP protocol binding and JSON event format.

use super::{Preset, Rig, feature, read, refusal};
use crate::intake::Identify;

const BINARY: [(&str, &str); 6] = [
    ("content-type", "application/geo+json"),
    ("ce-specversion", "1.0"),
    ("ce-id", "A234-1234"),
    ("ce-source", "/sensors/7"),
    ("ce-type", "org.example.moved"),
    ("ce-time", "2026-11-15T08:00:00Z"),
];
const STRUCTURED: [(&str, &str); 1] = [("content-type", "application/cloudevents+json; charset=utf-8")];
const BATCH: [(&str, &str); 1] = [("content-type", "application/cloudevents-batch+json")];
const FEATURE: &str =
    r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[13.4,52.5]},"properties":{"asset":7}}"#;

fn structured(id: &str, data: &str) -> String {
    format!(
        r#"{{"specversion":"1.0","id":"{id}","source":"/sensors/7","type":"org.example.moved","time":"2026-11-15T08:00:00Z","data":{data}}}"#
    )
}

#[tokio::test]
async fn an_event_is_the_same_in_every_mode() {
    let one = structured("A234-1234", FEATURE);
    let batch = format!("[{one}]");
    let encoded = structured("A234-1234", FEATURE).replace(
        &format!("\"data\":{FEATURE}"),
        &format!("\"data_base64\":\"{}\"", base64::Engine::encode(&base64::engine::general_purpose::STANDARD, FEATURE)),
    );
    let rig = Rig::new(Preset::Cloudevents);
    rig.same(&[(&BINARY, FEATURE), (&STRUCTURED, &one), (&BATCH, &batch), (&[], &one), (&STRUCTURED, &encoded)]).await;
    // Another source may use the same id.
    let other = one.replace("/sensors/7", "/sensors/8");
    rig.distinct(&[(&STRUCTURED, &other), (&STRUCTURED, &structured("B", FEATURE))]).await;
    let changed = one.replace("52.5", "52.6");
    assert_eq!(rig.words(&STRUCTURED, &changed).await, "conflict", "one id for two events");
}

#[tokio::test]
async fn by_its_data_an_event_is_the_same_under_another_id() {
    let rig = Rig::with(Preset::Cloudevents, |source| source.identify = Identify::Spatial);
    rig.same(&[(&STRUCTURED, &structured("A", FEATURE)), (&STRUCTURED, &structured("B", FEATURE)), (&BINARY, FEATURE)])
        .await;
}

#[test]
fn attributes_become_a_member_and_geometries_features() {
    for (pairs, body) in [(&BINARY[..], FEATURE.to_owned()), (&STRUCTURED[..], structured("A234-1234", FEATURE))] {
        let feature = feature(&Preset::Cloudevents, pairs, &body);
        assert_eq!((feature["type"].as_str(), feature["properties"]["asset"].as_i64()), (Some("Feature"), Some(7)));
        let attributes = &feature["cloudevent"];
        assert_eq!(
            (attributes["id"].as_str(), attributes["type"].as_str()),
            (Some("A234-1234"), Some("org.example.moved"))
        );
    }
    let point = feature(&Preset::Cloudevents, &STRUCTURED, &structured("A", r#"{"type":"Point","coordinates":[1,2]}"#));
    assert_eq!(point["geometry"]["coordinates"], serde_json::json!([1, 2]));
    assert_eq!(point["cloudevent"]["source"], "/sensors/7");
}

#[tokio::test]
async fn features_of_a_collection_are_told_apart_by_their_number() {
    let other = FEATURE.replace('7', "8");
    let data = format!(r#"{{"type":"FeatureCollection","features":[{FEATURE},{other}]}}"#);
    let rig = Rig::new(Preset::Cloudevents);
    assert_eq!(rig.words(&STRUCTURED, &structured("A", &data)).await, "accepted accepted");
    let batch = format!("[{},{}]", structured("B", FEATURE), structured("A", &data));
    assert_eq!(rig.words(&BATCH, &batch).await, "accepted duplicate duplicate", "ids count within their own event");
    assert_eq!(rig.words(&STRUCTURED, &structured("B", FEATURE)).await, "duplicate");
}

#[tokio::test]
async fn what_is_wrong_is_said_with_its_place() {
    let one = structured("A", FEATURE);
    for (body, code, pointer) in [
        (one.replace("\"id\":\"A\",", ""), "preset_missing", "/id"),
        (one.replace("\"id\":\"A\"", "\"id\":\"\""), "preset_value", "/id"),
        (one.replace("\"id\":\"A\"", "\"id\":7"), "preset_value", "/id"),
        (one.replace("\"1.0\"", "\"0.1\""), "preset_value", "/specversion"),
        (one.replace(&format!(",\"data\":{FEATURE}"), ""), "preset_missing", "/data"),
        (structured("A", "\"text\""), "preset_value", "/data"),
        (structured("A", "{}"), "preset_missing", "/data/type"),
        (one.replace(&format!("\"data\":{FEATURE}"), "\"data_base64\":\"???\""), "preset_value", "/data_base64"),
        (one.replace(&format!("\"data\":{FEATURE}"), "\"data_base64\":\"e30x\""), "json_trailing", "/data_base64"),
        (one.replace("\"A\"", &format!("\"{}\"", "x".repeat(300))), "preset_value", "/id"),
        ("7".to_owned(), "preset_value", ""),
    ] {
        assert_eq!(refusal(&Preset::Cloudevents, &STRUCTURED, &body), (code.to_owned(), pointer.to_owned()), "{body}");
    }
    let without_source: Vec<_> = BINARY.into_iter().filter(|(name, _)| *name != "ce-source").collect();
    assert_eq!(refusal(&Preset::Cloudevents, &without_source, FEATURE).0, "preset_missing");
    let twice: Vec<_> = BINARY.into_iter().chain([("ce-type", "other")]).collect();
    assert_eq!(refusal(&Preset::Cloudevents, &twice, FEATURE).0, "preset_value");
    let rig = Rig::new(Preset::Cloudevents);
    let off = structured("A", &FEATURE.replace("13.4", "213.4"));
    let place = rig.refused(&STRUCTURED, &off).await;
    assert_eq!(place, ("geojson_bounds".to_owned(), "/data/geometry/coordinates/0".to_owned()));
    let batch = read(&Preset::Cloudevents, &BATCH, &format!("[{one},{{}}]")).unwrap();
    assert_eq!(batch.payloads[1].read.clone().unwrap_err().pointer, "/1/specversion");
}
