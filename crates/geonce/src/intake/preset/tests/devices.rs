//! Traccar: built from the models `Position`, `Event` and `Geofence` of its API and from "Position and event forwarding from
//! Traccar" (jpmens.net). `OwnTracks`: from "JSON" and "HTTP" of its booklet. Tile38: from "Geofencing" and "Roaming Geofences".

use super::{NO_HEADERS, Preset, Rig, feature, refusal};
use serde_json::json;

fn position(time: &str, attributes: &str) -> String {
    format!(
        r#"{{"position":{{"id":18336,"attributes":{attributes},"deviceId":7,"protocol":"osmand","serverTime":"2018-09-14T15:34:17.906+00:00",
        "deviceTime":"{time}","fixTime":"{time}","outdated":false,"valid":true,"latitude":49.0156556,"longitude":8.3975169,
        "altitude":115.0,"speed":0.0,"course":0.0,"address":null,"accuracy":0.0,"network":null}},
        "device":{{"id":7,"name":"van","uniqueId":"q54","status":"online"}}}}"#
    )
}

const AREA: &str = "CIRCLE (49.133867934876974 8.166520803303387, 33112.6)";

fn event(kind: &str, geofence: u32, with_position: bool) -> String {
    let position = if with_position {
        r#"{"id":18336,"deviceId":7,"fixTime":"2018-09-14T15:34:17.000+0000","deviceTime":"2018-09-14T15:34:17.000+0000","latitude":49.0156556,"longitude":8.3975169}"#
    } else {
        "null"
    };
    format!(
        r#"{{"event":{{"id":1216,"deviceId":7,"type":"{kind}","eventTime":"2018-09-14T15:34:17.906+0000","positionId":18336,"geofenceId":{geofence}}},
        "position":{position},"device":{{"id":7,"uniqueId":"q54"}},"geofence":{{"id":{geofence},"name":"blub9","area":"{AREA}"}}}}"#
    )
}

#[test]
fn a_forwarded_position_is_a_point_with_its_device_and_time() {
    let feature = feature(&Preset::Traccar, &NO_HEADERS, &position("2018-09-14T15:34:17.000+0000", "{}"));
    assert_eq!(feature["geometry"], json!({"type":"Point","coordinates":[8.397_516_9, 49.015_655_6]}));
    let properties = &feature["properties"];
    assert_eq!((properties["deviceId"].as_i64(), properties["time"].as_str()), (Some(7), Some("2018-09-14T15:34:17Z")));
    assert_eq!(
        (properties["device"]["uniqueId"].as_str(), properties["altitude"].as_f64()),
        (Some("q54"), Some(115.0))
    );
}

#[tokio::test]
async fn a_position_that_is_forwarded_or_sent_by_its_device_again_is_a_duplicate() {
    let rig = Rig::new(Preset::Traccar);
    let first = position("2018-09-14T15:34:17.000+00:00", r#"{"distance":12.5}"#);
    rig.same(&[
        (&[], &first),
        // As older releases write times, and in another time zone.
        (&[], &first.replace("17.000+00:00", "17.000+0000")),
        (&[], &first.replace("T15:34:17.000+00:00", "T17:34:17+02:00")),
        // Sent again by the device: the server gives it a new number, and the distance from itself.
        (&[], &first.replace("18336", "18337").replace("12.5", "0.0").replace("17.906", "19.001")),
    ])
    .await;
    rig.distinct(&[
        (&[], &position("2018-09-14T15:34:18.000+00:00", "{}")),
        (&[], &first.replace("\"deviceId\":7", "\"deviceId\":8")),
        (&[], &first.replace("49.0156556", "49.0156656")),
    ])
    .await;
}

#[tokio::test]
async fn events_are_told_apart_by_what_happened() {
    let rig = Rig::new(Preset::Traccar);
    let enter = event("geofenceEnter", 7, true);
    rig.same(&[(&[], &enter), (&[], &enter)]).await;
    rig.distinct(&[
        (&[], &event("geofenceExit", 7, true)),
        (&[], &event("geofenceEnter", 8, true)),
        (&[], &event("geofenceEnter", 7, false)),
    ])
    .await;
    let online =
        r#"{"event":{"id":5,"deviceId":7,"type":"deviceOnline","eventTime":"2026-11-15T08:00:00Z"},"device":{"id":7}}"#;
    assert_eq!(rig.words(&[], online).await, "accepted", "an event without a place");
}

#[test]
fn areas_of_geofences_have_the_latitude_first() {
    let area =
        |area: &str| feature(&Preset::Traccar, &NO_HEADERS, &event("geofenceEnter", 7, false).replace(AREA, area));
    let circle = area(AREA);
    assert_eq!(
        circle["geometry"],
        json!({"type":"Point","coordinates":[8.166_520_803_303_387, 49.133_867_934_876_974]})
    );
    assert_eq!(circle["properties"]["radius"], 33112.6);
    let polygon = area("POLYGON ((49.0 8.0, 49.0 8.5, 49.5 8.5, 49.0 8.0))");
    assert_eq!(polygon["geometry"]["coordinates"][0][1], json!([8.5, 49.0]), "{polygon}");
    let line = area("LINESTRING (49 8, 50 9)");
    assert_eq!(line["geometry"], json!({"type":"LineString","coordinates":[[8.0,49.0],[9.0,50.0]]}));
}

#[tokio::test]
async fn what_is_wrong_with_a_position_is_said_with_its_place() {
    let good = position("2018-09-14T15:34:17.000+00:00", "{}");
    let at_geofence = |area: &str| event("geofenceEnter", 7, false).replace(AREA, area);
    for (body, code, pointer) in [
        (good.replace("\"latitude\":49.0156556,", ""), "preset_missing", "/position/latitude"),
        (good.replace("49.0156556", "\"north\""), "preset_value", "/position/latitude"),
        (
            good.replace("\"deviceTime\":\"2018-09-14T15:34:17.000+00:00\"", "\"deviceTime\":\"yesterday\""),
            "preset_value",
            "/position/deviceTime",
        ),
        (r#"{"position":null}"#.to_owned(), "preset_missing", "/position"),
        (
            r#"{"position":{"latitude":1,"longitude":2,"fixTime":"2026-01-01T00:00:00Z"}}"#.to_owned(),
            "preset_missing",
            "/position/deviceId",
        ),
        (r#"{"position":{"latitude":1,"longitude":2,"deviceId":7}}"#.to_owned(), "preset_missing", "/position"),
        (at_geofence("CIRCLE (49 8)"), "preset_value", "/geofence/area"),
        (at_geofence("CIRCLE (49 8, -5)"), "preset_value", "/geofence/area"),
        (at_geofence("CIRCLE (nan inf, 5)"), "preset_value", "/geofence/area"),
        (at_geofence("POLYGON ((1 2, 3"), "wkt_syntax", "/geofence/area"),
        (at_geofence("CIRCLé"), "wkt_syntax", "/geofence/area"),
        ("\"position\"".to_owned(), "preset_value", ""),
    ] {
        assert_eq!(refusal(&Preset::Traccar, &NO_HEADERS, &body), (code.to_owned(), pointer.to_owned()), "{body}");
    }
    let rig = Rig::new(Preset::Traccar);
    let off = rig.refused(&[], &good.replace("49.0156556", "149.0156556")).await;
    assert_eq!(off, ("geojson_bounds".to_owned(), "/position".to_owned()));
}

const LOCATION: &str = r#"{"_type":"location","BSSID":"e8:37","acc":75,"alt":13,"batt":87,"conn":"w","created_at":1794700000,"lat":52.52,"lon":13.405,"t":"u","tid":"jo","tst":1794699990,"vac":10,"vel":0}"#;
const PHONE: [(&str, &str); 2] = [("x-limit-u", "jo"), ("x-limit-d", "phone")];
const TABLET: [(&str, &str); 2] = [("x-limit-u", "jo"), ("x-limit-d", "tablet")];

#[tokio::test]
async fn a_location_of_a_phone_is_a_point_and_known_by_sender_and_time() {
    let feature = feature(&Preset::Owntracks, &PHONE, LOCATION);
    assert_eq!(feature["geometry"], json!({"type":"Point","coordinates":[13.405, 52.52]}));
    let properties = &feature["properties"];
    assert_eq!(
        (properties["tid"].as_str(), properties["user"].as_str(), properties["device"].as_str()),
        (Some("jo"), Some("jo"), Some("phone"))
    );
    let rig = Rig::new(Preset::Owntracks);
    rig.same(&[
        (&PHONE, LOCATION),
        // Sent again from a queue: charge and connection are of now.
        (&PHONE, &LOCATION.replace("87", "80").replace("\"w\"", "\"m\"").replace("13.405", "13.4050")),
    ])
    .await;
    rig.distinct(&[(&TABLET, LOCATION), (&PHONE, &LOCATION.replace("1794699990", "1794699991"))]).await;
}

#[tokio::test]
async fn transitions_and_messages_without_a_place_are_events() {
    let transition = r#"{"_type":"transition","acc":20,"desc":"home","event":"enter","lat":52.52,"lon":13.405,"t":"c","tid":"jo","tst":1794699990,"wtst":1794600000}"#;
    let rig = Rig::new(Preset::Owntracks);
    rig.same(&[(&PHONE, transition), (&PHONE, transition)]).await;
    rig.distinct(&[
        (&PHONE, &transition.replace("enter", "leave")),
        (&PHONE, LOCATION),
        (&PHONE, r#"{"_type":"lwt","tst":1794699990}"#),
        (&PHONE, r#"{"_type":"status","iOS":{"version":"1"}}"#),
        (&PHONE, r#"{"_type":"status","iOS":{"version":"2"}}"#),
        (&PHONE, r#"{"_type":"waypoint","desc":"work","lat":1,"lon":2,"rad":100,"tst":1794600000}"#),
    ])
    .await;
    assert_eq!(rig.words(&PHONE, r#"{"_type":"status","iOS":{"version":"2"}}"#).await, "duplicate");
}

#[tokio::test]
async fn an_empty_body_is_taken_and_leaves_nothing() {
    let rig = Rig::new(Preset::Owntracks);
    for body in ["", " \n"] {
        assert_eq!(rig.words(&PHONE, body).await, "");
    }
    assert_eq!(rig.recorded().await, 0);
    assert_eq!((Preset::Owntracks.takes_nothing(), Preset::Owntracks.answer()), (true, Some("[]")));
    assert!(Preset::NAMED.iter().filter(|preset| preset.takes_nothing()).count() == 1);
}

#[test]
fn what_is_wrong_with_a_message_is_said_with_its_place() {
    for (body, code, pointer) in [
        (r#"{"lat":1,"lon":2}"#, "preset_missing", "/_type"),
        (r#"{"_type":"location","lat":1,"tst":1}"#, "preset_missing", "/lon"),
        (r#"{"_type":"location","lat":{},"lon":1}"#, "preset_value", "/lat"),
        (r#"{"_type":"encrypted","data":"x"}"#, "preset_value", "/_type"),
        ("[1]", "preset_value", "/0"),
        ("{", "json_incomplete", ""),
    ] {
        let (found, at) = refusal(&Preset::Owntracks, &PHONE, body);
        let place_known = code != "json_incomplete";
        assert_eq!((&*found, if place_known { &*at } else { "" }), (code, pointer), "{body}");
    }
}

const FENCE: &str = r#"{"command":"set","group":"5c5203ccf5ec4e4f349fd038","detect":"inside","hook":"warehouse","key":"fleet","time":"2026-11-14T13:17:13.063184Z","id":"truck1","object":{"type":"Point","coordinates":[-112.268,33.512]},"fields":{"speed":10}}"#;

#[tokio::test]
async fn an_event_of_a_geofence_is_known_by_fence_object_and_time() {
    let found = feature(&Preset::Tile38, &NO_HEADERS, FENCE);
    assert_eq!((found["id"].as_str(), found["geometry"]["coordinates"][0].as_f64()), (Some("truck1"), Some(-112.268)));
    assert_eq!(found["properties"]["fields"]["speed"], 10);
    let as_point = FENCE.replace(
        r#""object":{"type":"Point","coordinates":[-112.268,33.512]}"#,
        r#""point":{"lat":33.512,"lon":-112.268}"#,
    );
    assert_eq!(feature(&Preset::Tile38, &NO_HEADERS, &as_point)["geometry"], found["geometry"]);
    let as_feature = FENCE.replace(r#"{"type":"Point","coordinates":[-112.268,33.512]}"#, r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[-112.268,33.512]},"properties":{"driver":"jo"}}"#);
    assert_eq!(feature(&Preset::Tile38, &NO_HEADERS, &as_feature)["properties"]["properties"]["driver"], "jo");

    let rig = Rig::new(Preset::Tile38);
    rig.same(&[(&[], FENCE), (&[], FENCE), (&[], &as_point)]).await;
    rig.distinct(&[
        (&[], &FENCE.replace("inside", "enter")),
        (&[], &FENCE.replace("warehouse", "depot")),
        (&[], &FENCE.replace("truck1", "truck2")),
        (&[], &FENCE.replace("13.063184Z", "14.063184Z")),
        (
            &[],
            r#"{"command":"del","hook":"warehouse","key":"fleet","time":"2026-11-14T13:17:13.063184Z","id":"truck1"}"#,
        ),
        (&[], r#"{"command":"drop","hook":"warehouse","key":"fleet","time":"2026-11-14T13:17:13.063184Z"}"#),
    ])
    .await;
}

#[test]
fn what_is_wrong_with_a_fence_is_said_with_its_place() {
    for (body, code, pointer) in [
        (FENCE.replace("\"key\":\"fleet\",", ""), "preset_missing", "/key"),
        (FENCE.replace("\"time\"", "\"tame\""), "preset_missing", "/time"),
        (FENCE.replace("\"type\":\"Point\",", ""), "preset_missing", "/object/type"),
        (FENCE.replace("\"object\":{", "\"point\":{"), "preset_missing", "/point/lon"),
        ("[]".to_owned(), "preset_value", ""),
    ] {
        assert_eq!(refusal(&Preset::Tile38, &NO_HEADERS, &body), (code.to_owned(), pointer.to_owned()), "{body}");
    }
}
