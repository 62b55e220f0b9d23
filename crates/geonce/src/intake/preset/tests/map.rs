//! Features made from fields.

use super::{Map, MapPlace, NO_HEADERS, Preset, Rig, feature, refusal};
use geonce_key::Pointer;
use serde_json::json;

fn pointer(text: &str) -> Pointer {
    Pointer::parse(text).unwrap()
}

fn by_numbers(items: Option<&str>) -> Preset {
    Preset::Map(Box::new(Map {
        items: items.map(pointer),
        place: MapPlace::Point { lon: pointer("/a/lng"), lat: pointer("/a/lat") },
        id: Some(pointer("/id")),
        properties: Some(pointer("/data")),
    }))
}

fn by(place: MapPlace) -> Preset {
    Preset::Map(Box::new(Map { items: None, place, id: None, properties: None }))
}

const EVENT: &str = r#"{"id":12345678901234567890,"a":{"lng":13.40,"lat":"52.5"},"data":{"kind":"van","n":1e2}}"#;

#[test]
fn two_numbers_an_id_and_an_object_are_a_feature() {
    let found = feature(&by_numbers(None), &NO_HEADERS, EVENT);
    assert_eq!(found["geometry"], json!({"type":"Point","coordinates":[13.4, 52.5]}));
    assert_eq!(found["properties"]["kind"], "van");
    assert_eq!(found["id"].to_string(), "12345678901234567890", "digits are kept as they are");
}

#[tokio::test]
async fn a_list_of_events_is_taken_one_by_one() {
    let other = EVENT.replace("13.40", "13.41");
    let rig = Rig::new(by_numbers(Some("/events")));
    let body = format!(r#"{{"events":[{EVENT},{other},{{"id":1}}]}}"#);
    assert_eq!(rig.words(&[], &body).await, "accepted accepted kept");
    assert_eq!(rig.words(&[], &format!(r#"{{"sent":1,"events":[{other}]}}"#)).await, "duplicate");
    let (code, at) = rig.refused(&[], &format!(r#"{{"events":[{}]}}"#, EVENT.replace("13.40", "1340"))).await;
    assert_eq!((&*code, &*at), ("geojson_bounds", "/events/0"));
}

#[tokio::test]
async fn texts_that_are_geometries_are_read_with_their_coordinate_system() {
    let wkt = by(MapPlace::Wkt(pointer("/geom")));
    let hex = by(MapPlace::Wkb(pointer("/geom")));
    let point = geonce_key::wkt::read(b"POINT (13.4 52.5)", &geonce_key::Limits::default()).unwrap();
    let bytes = geonce_key::wkb::write(&point.shape, Some(4326));
    let digits = bytes.iter().fold(String::new(), |digits, byte| format!("{digits}{byte:02X}"));
    let base64 = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &bytes);
    for (preset, text) in [(&wkt, "SRID=4326;POINT (13.4 52.5)"), (&hex, &*digits), (&hex, &*base64)] {
        let found = feature(preset, &NO_HEADERS, &format!(r#"{{"geom":"{text}","kind":"van"}}"#));
        assert_eq!(found["geometry"], json!({"type":"Point","coordinates":[13.4, 52.5]}), "{text}");
        assert_eq!(found["properties"], json!({"kind":"van"}), "the geometry is not there twice");
    }
    let rig = Rig::new(wkt);
    rig.same(&[
        (&[], r#"{"geom":"POINT (13.4 52.5)","kind":"van"}"#),
        (&[], r#"{"kind":"van","geom":"SRID=4326;POINT(13.40 52.50)"}"#),
        (&[], r#"{"geom":"SRID=3857;POINT (1491681.1766298658 6891041.723891583)","kind":"van"}"#),
    ])
    .await;
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let wkt = by(MapPlace::Wkt(pointer("/geom")));
    let wkb = by(MapPlace::Wkb(pointer("/geom")));
    let (one, list) = (by_numbers(None), by_numbers(Some("/events")));
    for (preset, body, code, at) in [
        (&one, EVENT.replace("\"lng\"", "\"lang\""), "preset_missing", "/a/lng"),
        (&one, EVENT.replace("13.40", "null"), "preset_missing", "/a/lng"),
        (&one, EVENT.replace("\"52.5\"", "\"north\""), "preset_value", "/a/lat"),
        (&one, EVENT.replace("\"52.5\"", "\"NaN\""), "preset_value", "/a/lat"),
        (&one, EVENT.replace("{\"kind\":\"van\",\"n\":1e2}", "7"), "preset_value", "/data"),
        (&one, EVENT.replace("12345678901234567890", "[1]"), "preset_value", "/id"),
        (&one, "[1]".to_owned(), "preset_value", ""),
        (&list, "{}".to_owned(), "preset_missing", "/events"),
        (&list, r#"{"events":7}"#.to_owned(), "preset_value", "/events"),
        (&list, r#"{"events":[]}"#.to_owned(), "preset_missing", ""),
        (&list, r#"{"events":[7]}"#.to_owned(), "preset_value", "/events/0"),
        (&wkt, r#"{"geom":"POINT (1"}"#.to_owned(), "wkt_syntax", "/geom"),
        (&wkt, r#"{"geom":7}"#.to_owned(), "preset_value", "/geom"),
        (&wkb, r#"{"geom":"0101"}"#.to_owned(), "wkb_syntax", "/geom"),
        (&wkb, r#"{"geom":"!!"}"#.to_owned(), "preset_value", "/geom"),
    ] {
        assert_eq!(refusal(preset, &NO_HEADERS, &body), (code.to_owned(), at.to_owned()), "{body}");
    }
}
