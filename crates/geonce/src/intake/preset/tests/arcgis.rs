//! Built from "Webhooks - Payloads (Feature Service)" (`ArcGIS` REST API), "Feature layer webhook payloads" (`ArcGIS`
//! Online) and "Payloads" (`ArcGIS` Enterprise), and from the Survey123 documentation on webhooks.

use super::{FeatureReceipt, NO_HEADERS, Preset, Rig, feature, read, refusal};
use crate::intake::{GAP, Identify};

fn change(gens: &str, events: &str) -> String {
    format!(
        r#"{{"name":"hook","layerId":0,"orgId":"myorgId","serviceName":"Inspections","lastUpdatedTime":1629325549649,
        "changesUrl":"https://olserver/myorgId/ArcGIS/rest/services/Inspections/FeatureServer/extractChanges?serverGens={gens}&async=true",
        "events":{events}}}"#
    )
}

const ESCAPED: &str = r#"[{"name":"hook","layerId":0,"orgId":"myorgId","serviceName":"Inspections","lastUpdatedTime":1629325549649,
    "changesUrl":"https%3a%2f%2folserver%2fmyorgId%2fArcGIS%2frest%2fservices%2fInspections%2fFeatureServer%2fextractChanges%3fserverGens%3d%5b100%2c110%5d%26async%3dtrue",
    "events":["FeaturesCreated"]}]"#;

#[test]
fn a_change_is_an_event_without_geometry_whose_numbers_are_properties() {
    for body in [
        ESCAPED.to_owned(),
        change("[100,110]", r#"["FeaturesCreated"]"#),
        change("%5B100,%20110%5D", "[]").replace("%20", ""),
    ] {
        let feature = feature(&Preset::Arcgis, &NO_HEADERS, &body);
        assert!(feature["geometry"].is_null());
        let properties = &feature["properties"];
        assert_eq!((properties["minServerGen"].as_i64(), properties["serverGen"].as_i64()), (Some(100), Some(110)));
        assert!(properties["changesUrl"].as_str().unwrap().starts_with("https://olserver/myorgId/"), "{properties}");
        assert_eq!(properties["serviceName"], "Inspections");
    }
}

#[tokio::test]
async fn organization_service_layer_kinds_and_numbers_name_a_change() {
    let one = change("[100,110]", r#"["FeaturesCreated","FeaturesUpdated"]"#);
    let rig = Rig::new(Preset::Arcgis);
    // As a list or alone, with its members and kinds in another order.
    let turned = one.replace(r#"["FeaturesCreated","FeaturesUpdated"]"#, r#"["FeaturesUpdated", "FeaturesCreated"]"#);
    rig.same(&[
        (&[], &one),
        (&[], &format!("[{one}]")),
        (&[], &one.replace("\"layerId\":0,", "").replace("{\"name", "{\"layerId\":0,\"name")),
    ])
    .await;
    assert_eq!(rig.words(&[], &turned).await, "duplicate");
    let other = one.replace("1629325549649", "1629325549650");
    assert_eq!(rig.words(&[], &other).await, "conflict", "the same changes at another time: kept and shown");
    rig.distinct(&[
        (&[], &one.replace("[100,110]", "[110,112]")),
        (&[], &one.replace("myorgId\",", "other\",")),
        (&[], &one.replace("\"layerId\":0", "\"layerId\":1")),
        (&[], &one.replace("serviceName\":\"Inspections", "serviceName\":\"Hydrants")),
        (&[], &change("[100,110]", r#"["FeaturesDeleted"]"#)),
    ])
    .await;
    let rig = Rig::new(Preset::Arcgis);
    let escaped_once = change("[100,110]", r#"["FeaturesCreated"]"#);
    rig.same(&[(&[], ESCAPED), (&[], &escaped_once)]).await;
}

#[tokio::test]
async fn a_definition_that_changes_has_no_numbers_and_is_known_by_its_time() {
    let body = |time: u64| {
        format!(
            r#"[{{"name":"hook","layerId":0,"orgId":"o","serviceName":"s","lastUpdatedTime":{time},"events":["LayerSchemaChanged"]}}]"#
        )
    };
    let rig = Rig::new(Preset::Arcgis);
    rig.same(&[(&[], &body(1)), (&[], &body(1))]).await;
    rig.distinct(&[(&[], &body(2))]).await;
}

#[tokio::test]
async fn numbers_that_are_skipped_are_told() {
    let rig = Rig::new(Preset::Arcgis);
    let kinds = r#"["FeaturesCreated"]"#;
    let mut gaps = Vec::new();
    for gens in ["[100,110]", "[110,120]", "[100,110]", "[130,131]", "[131,140]"] {
        let receipt = rig.send(&[], &change(gens, kinds)).await.unwrap();
        if let FeatureReceipt::Accepted { warnings, .. } = &receipt.features[0] {
            gaps.push(warnings.iter().filter(|warning| warning.code == GAP).count());
        }
    }
    assert_eq!(gaps, [0, 0, 1, 0]);
}

#[tokio::test]
async fn an_operation_in_an_organization_is_an_event_of_its_own() {
    let body = r#"{"info":{"webhookName":"w","webhookId":"72ed926f","portalURL":"https://host/portal/","when":1543196881120},
        "events":[{"username":"jo","userId":"be8c","when":1543196864898,"operation":"add","source":"item","id":"a4ee","properties":{}},
                  {"username":"jo","userId":"be8c","when":1543196864899,"operation":"share","source":"item","id":"a4ee","properties":{"sharedToGroups":["g"]}}],
        "properties":{}}"#;
    let rig = Rig::new(Preset::Arcgis);
    assert_eq!(rig.words(&[], body).await, "accepted accepted");
    // Sent again at another time.
    assert_eq!(rig.words(&[], &body.replace("1543196881120", "1543196991120")).await, "duplicate duplicate");
}

#[tokio::test]
async fn features_and_sets_of_them_are_read_with_their_coordinate_system() {
    let feature = r#"{"attributes":{"OBJECTID":1,"kind":"hydrant"},"geometry":{"x":1489547.9,"y":6894701.2,"spatialReference":{"wkid":102100,"latestWkid":3857}}}"#;
    let set = r#"{"spatialReference":{"wkid":102100},"geometryType":"esriGeometryPoint","features":[
        {"attributes":{"OBJECTID":1,"kind":"hydrant"},"geometry":{"x":1489547.9,"y":6894701.2}},
        {"attributes":{"OBJECTID":2,"kind":"valve"},"geometry":{"x":1489548.9,"y":6894701.2}}]}"#;
    let rig = Rig::new(Preset::Arcgis);
    assert_eq!(rig.words(&[], feature).await, "accepted");
    assert_eq!(rig.words(&[], set).await, "duplicate accepted");
    let updated = feature.replace("hydrant", "standpipe");
    assert_eq!(rig.words(&[], &updated).await, "accepted", "a feature that changed is another event");
}

#[tokio::test]
async fn one_event_that_cannot_be_read_does_not_keep_the_others_out() {
    let body = format!(r#"[{},{{"nothing":1}},7]"#, change("[1,2]", r#"["FeaturesCreated"]"#));
    let rig = Rig::new(Preset::Arcgis);
    assert_eq!(rig.words(&[], &body).await, "accepted kept kept");
    assert_eq!(rig.recorded().await, 3);
    assert_eq!(rig.words(&[], &body).await, "duplicate kept kept");
    assert_eq!(rig.recorded().await, 3, "the same bytes are kept once");
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let kinds = r#"["FeaturesCreated"]"#;
    for (body, code, pointer) in [
        ("[]".to_owned(), "preset_missing", ""),
        ("7".to_owned(), "preset_value", ""),
        (r#"{"hello":1}"#.to_owned(), "preset_missing", ""),
        (format!("[{}]", change("[1,2]", kinds).replace("serviceName", "service")), "preset_missing", "/0/serviceName"),
        (change("[1,2]", kinds).replace("serverGens", "gens"), "preset_value", "/changesUrl"),
        (change("[2,1]", kinds), "preset_value", "/changesUrl"),
        (change("[1,2,3]", kinds), "preset_value", "/changesUrl"),
        (change("[1,99999999999999999999]", kinds), "preset_value", "/changesUrl"),
        (change("[1,2]", "null"), "preset_missing", "/events"),
        (r#"{"info":{},"events":[{"operation":"add"}]}"#.to_owned(), "preset_missing", "/events/0/when"),
        (r#"{"features":[{"attributes":[]}]}"#.to_owned(), "preset_value", "/features/0/attributes"),
        (r#"{"a":1,"a":2}"#.to_owned(), "json_duplicate_member", "/a"),
    ] {
        assert_eq!(refusal(&Preset::Arcgis, &NO_HEADERS, &body), (code.to_owned(), pointer.to_owned()), "{body}");
    }
}

#[tokio::test]
async fn a_source_may_want_the_payload_to_count_instead_of_the_numbers() {
    let rig = Rig::with(Preset::Arcgis, |source| source.identify = Identify::Spatial);
    let one = change("[100,110]", r#"["FeaturesCreated"]"#);
    rig.same(&[(&[], &one), (&[], &one)]).await;
    rig.distinct(&[(&[], &one.replace("1629325549649", "1629325549650"))]).await;
    let rig = Rig::with(Preset::Arcgis, |source| source.identify = Identify::Delivery);
    rig.same(&[(&[], &one), (&[], &one)]).await;
    let feature = r#"{"attributes":{"a":1},"geometry":{"x":1,"y":2}}"#;
    assert_eq!(rig.refused(&[], feature).await.0, "identity_missing");
}

#[test]
fn a_long_id_is_known_by_its_digest() {
    let body =
        change("[1,2]", r#"["FeaturesCreated"]"#).replace("\"Inspections\"", &format!("\"{}\"", "x".repeat(1_000)));
    let payloads = read(&Preset::Arcgis, &NO_HEADERS, &body).unwrap();
    let id = payloads.payloads[0].read.clone().unwrap().delivery.unwrap().id;
    assert!(id.starts_with("sha256:") && id.len() == 71, "{id}");
}

const SURVEY: &str = r#"{"eventType":"addData",
    "feature":{"attributes":{"globalid":"{7C5C52FF}","species":"oak","height":12.5},
        "geometry":{"x":-118.15,"y":33.8,"z":10,"spatialReference":{"wkid":4326}},
        "layerInfo":{"id":0,"name":"trees"},"result":{"objectId":5,"globalId":"7C5C52FF","success":true}},
    "applyEdits":[{"id":0,"adds":[{"attributes":{"globalid":"{7C5C52FF}","species":"oak","height":12.5},
        "geometry":{"x":-118.15,"y":33.8,"spatialReference":{"wkid":4326}}}]}],
    "portalInfo":{"url":"https://www.arcgis.com","token":"s3cret"},
    "surveyInfo":{"formItemId":"f1","formTitle":"Trees","serviceItemId":"s1","serviceUrl":"https://x/FeatureServer"},
    "userInfo":{"username":"jo","email":"jo@example.org"}}"#;

#[tokio::test]
async fn a_submitted_survey_is_a_feature_without_its_token() {
    let feature = feature(&Preset::Survey123, &NO_HEADERS, SURVEY);
    assert_eq!(feature["geometry"], serde_json::json!({"type":"Point","coordinates":[-118.15, 33.8, 10.0]}));
    assert_eq!((feature["id"].as_str(), feature["properties"]["species"].as_str()), (Some("{7C5C52FF}"), Some("oak")));
    assert_eq!(feature["survey123"]["surveyInfo"]["formTitle"], "Trees");
    assert!(!feature.to_string().contains("s3cret") && !feature.to_string().contains("jo@example.org"));

    let rig = Rig::new(Preset::Survey123);
    // Another token, and another shape of the answer of the service: the same submission.
    rig.same(&[(&[], SURVEY), (&[], &SURVEY.replace("s3cret", "fresh").replace("\"objectId\":5", "\"objectId\":6"))])
        .await;
    rig.distinct(&[(&[], &SURVEY.replace("addData", "editData")), (&[], &SURVEY.replace("12.5", "12.6"))]).await;
    let edits_only = SURVEY.replace("\"feature\":{", "\"other\":{");
    assert_eq!(rig.words(&[], &edits_only).await, "accepted", "what was sent to the service, without a height");
}

#[test]
fn a_survey_without_a_record_is_refused_with_a_place() {
    for (body, code, pointer) in [
        (r#"{"eventType":"addData"}"#, "preset_missing", "/feature"),
        (r#"{"feature":{"result":1}}"#, "preset_missing", "/feature/attributes"),
        (r#"{"feature":[1]}"#, "preset_value", "/feature"),
        (r#"{"applyEdits":[]}"#, "preset_missing", "/applyEdits"),
        (r#"{"applyEdits":[3]}"#, "preset_value", "/applyEdits/0"),
        (r#"{"feature":{"attributes":{},"geometry":{"x":"east","y":1}}}"#, "preset_value", "/feature/geometry/x"),
    ] {
        assert_eq!(refusal(&Preset::Survey123, &NO_HEADERS, body), (code.to_owned(), pointer.to_owned()), "{body}");
    }
}
