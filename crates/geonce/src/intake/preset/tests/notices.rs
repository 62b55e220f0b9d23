//! WIS2: built from the "WIS2 Notification Message" standard of the WMO. GitHub: from "Webhook events and payloads".

use super::{NO_HEADERS, Preset, Rig, feature, refusal};
use crate::intake::Identify;

const NOTIFICATION: &str = r#"{"id":"31e9d66a-cd83-4174-9429-b932f1abe1be","type":"Feature",
    "conformsTo":["http://wis.wmo.int/spec/wnm/1/conf/core"],
    "geometry":{"type":"Point","coordinates":[6.146255,46.223296]},
    "properties":{"pubtime":"2022-03-20T04:50:18.314854Z","datetime":"2022-03-20T04:45:00Z","data_id":"dataset/123/data-granule/UANT01_CWAO_200445",
        "metadata_id":"urn:wmo:md:ca-eccc-msc:observations.swob","integrity":{"method":"sha512","value":"A2KNxvks"}},
    "links":[{"href":"https://example.org/data/1.bufr4","rel":"canonical","type":"application/bufr","length":453}]}"#;

#[tokio::test]
async fn the_same_data_from_a_cache_is_the_same_event() {
    let cached = NOTIFICATION.replace("31e9d66a", "aaaaaaaa").replace("example.org/data", "cache.example.net/data");
    let rig = Rig::new(Preset::Wis2);
    rig.same(&[(&[], NOTIFICATION), (&[], &cached)]).await;
    let updated = NOTIFICATION.replace("04:50:18", "05:50:18").replace("canonical", "update");
    rig.distinct(&[(&[], &updated), (&[], &NOTIFICATION.replace("200445", "200446"))]).await;
    let global = NOTIFICATION.replace(r#"{"type":"Point","coordinates":[6.146255,46.223296]}"#, "null");
    assert_eq!(rig.words(&[], &global.replace("200445", "200447")).await, "accepted", "data of the whole earth");
}

#[tokio::test]
async fn a_source_may_want_the_id_of_the_message_to_count() {
    let rig = Rig::with(Preset::Wis2, |source| source.identify = Identify::Delivery);
    let cached = NOTIFICATION.replace("31e9d66a", "aaaaaaaa");
    rig.distinct(&[(&[], NOTIFICATION), (&[], &cached)]).await;
    assert_eq!(rig.words(&[], NOTIFICATION).await, "duplicate");
}

#[tokio::test]
async fn what_is_wrong_with_a_notification_is_said_with_its_place() {
    for (body, pointer) in [
        (NOTIFICATION.replace("\"id\":\"31e9d66a-cd83-4174-9429-b932f1abe1be\",", ""), "/id"),
        (NOTIFICATION.replace("\"data_id\"", "\"dataid\""), "/properties/data_id"),
        (NOTIFICATION.replace("\"pubtime\"", "\"time\""), "/properties/pubtime"),
        (NOTIFICATION.replace("\"properties\"", "\"props\""), "/properties"),
    ] {
        assert_eq!(refusal(&Preset::Wis2, &NO_HEADERS, &body), ("preset_missing".to_owned(), pointer.to_owned()));
    }
    let rig = Rig::new(Preset::Wis2);
    let at = |code: &str, pointer: &str| (code.to_owned(), pointer.to_owned());
    let odd = NOTIFICATION.replace("2022-03-20T04:50:18.314854Z", "20220320T045018Z");
    assert_eq!(rig.refused(&[], &odd).await, at("version_type", "/properties/pubtime"));
    let ahead = NOTIFICATION.replace("\"pubtime\":\"2022", "\"pubtime\":\"2922");
    assert_eq!(rig.refused(&[], &ahead).await, at("version_future", "/properties/pubtime"));
    let off = NOTIFICATION.replace("46.223296", "146.223296");
    assert_eq!(rig.refused(&[], &off).await, at("geojson_bounds", "/geometry/coordinates/1"));
}

const PUSH: &str = r#"{"ref":"refs/heads/main","before":"6113728f","after":"0000abcd","repository":{"id":186853002,"full_name":"jo/map"},"pusher":{"name":"jo"},"commits":[]}"#;

#[tokio::test]
async fn a_webhook_without_geometry_is_known_by_its_delivery() {
    let push = [("x-github-event", "push"), ("x-github-delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")];
    let again = [("x-github-event", "push"), ("x-github-delivery", "83d3162e-cc78-11e3-81ab-4c9367dc0958")];
    let found = feature(&Preset::Github, &push, PUSH);
    assert_eq!(
        (found["properties"]["github_event"].as_str(), found["properties"]["ref"].as_str()),
        (Some("push"), Some("refs/heads/main"))
    );
    let rig = Rig::new(Preset::Github);
    rig.same(&[(&push, PUSH), (&push, PUSH)]).await;
    rig.distinct(&[(&again, PUSH)]).await;
    assert_eq!(rig.words(&push, &PUSH.replace("abcd", "abce")).await, "conflict");
    // Where ids are not trusted, the payload is what counts.
    let rig = Rig::with(Preset::Github, |source| source.identify = Identify::Spatial);
    rig.same(&[(&push, PUSH), (&again, PUSH)]).await;
    assert_eq!(refusal(&Preset::Github, &NO_HEADERS, PUSH).0, "preset_missing");
    assert_eq!(refusal(&Preset::Github, &push, "[1]").0, "preset_value");
}
