//! What servers answer, and what becomes of it.

use super::{EXTRACT, GUID, NOW, Rig, Site, again, counts, dead, edits, fetched, hydrant, ok, one_add, reply};
use crate::event::{Class, State};
use crate::store::Filter;
use flate2::Compression;
use flate2::write::GzEncoder;
use geonce_key::Pointer;
use geonce_key::policy::{Accept, Field, Identity};
use serde_json::{Value, json};
use std::io::Write as _;
use std::time::Duration;

#[tokio::test]
async fn an_answer_becomes_an_event_for_every_feature_that_changed() {
    let site = Site::saying(ok(&edits(&json!({
        "adds": [hydrant(1, 13.25)],
        "updates": [hydrant(2, 13.5)],
        "deleteIds": ["{7c5c0000-0000-0000-0000-000000000003}", 4]
    }))))
    .await;
    let rig = Rig::new(&site);
    assert_eq!(fetched(&rig.fetch(&site).await), counts(4, 0, 0, 0));
    let [seen] = &site.seen()[..] else { panic!("one question") };
    assert_eq!((&*seen.method, &*seen.target), ("POST", EXTRACT));
    assert_eq!(
        seen.body,
        "serverGens=%5B100%2C110%5D&async=true&returnAttachments=false&f=json&dataFormat=json&outSR=4326"
    );
    assert!(seen.head.contains("content-type: application/x-www-form-urlencoded"), "{}", seen.head);
    assert!(!seen.head.to_lowercase().contains("authorization"), "there is no token");
    let features = rig.features().await;
    assert!(features.iter().all(|(state, ..)| *state == State::Ready), "each goes to the sinks of its source");
    assert!(features.iter().all(|(.., record)| &*record.work[0].sink == "zones"));
    let said = |deleted: bool| json!({ "orgId": "o", "serviceName": "Hydrants", "layerId": 0, "serverGen": 110, "deleted": deleted });
    let [first, second, third, fourth] = &features[..] else { panic!("four") };
    assert_eq!(
        first.1,
        json!({ "type": "Feature", "id": GUID, "geometry": { "type": "Point", "coordinates": [13.25, 52.5] },
                "properties": { "OBJECTID": 1, "GlobalID": "{7c5c0000-0000-0000-0000-000000000001}", "state": "open" },
                "arcgis": said(false) })
    );
    assert_eq!((&second.1["geometry"]["coordinates"], &second.1["arcgis"]), (&json!([13.5, 52.5]), &said(false)));
    let tombstone = json!({ "type": "Feature", "id": "7C5C0000-0000-0000-0000-000000000003", "geometry": null,
                            "properties": {}, "arcgis": said(true) });
    assert_eq!(third.1, tombstone);
    assert_eq!(fourth.1["id"], 4);
}

#[tokio::test]
async fn what_is_fetched_twice_is_the_same_events() {
    let site =
        Site::saying(ok(&edits(&json!({ "adds": [hydrant(1, 1.0)], "updates": [hydrant(2, 2.0)], "deleteIds": [3] }))))
            .await;
    let rig = Rig::new(&site);
    assert_eq!(fetched(&rig.fetch(&site).await), counts(3, 0, 0, 0));
    // The crash came between recording them and settling the announcement.
    assert_eq!(fetched(&rig.fetch(&site).await), counts(0, 3, 0, 0));
    assert_eq!(rig.features().await.len(), 3);
    // Another announcement that ends at the same number has the same features at the same version.
    let overlapping = site.url(&format!("{EXTRACT}?serverGens=[90,110]"));
    assert_eq!(fetched(&rig.fetch_from(&overlapping).await), counts(0, 3, 0, 0));
    // What changed later is another event, even if it is as before: A, B, A.
    let later = site.url(&format!("{EXTRACT}?serverGens=[110,120]"));
    assert_eq!(fetched(&rig.fetch_from(&later).await), counts(3, 0, 0, 0));
}

#[tokio::test]
async fn changes_that_must_be_gathered_first_are_waited_for() {
    let site = Site::new(|at, seen| {
        let base = "/arcgis/rest/services/Hydrants/FeatureServer/jobs/j1";
        match (at, seen.path()) {
            (0, EXTRACT) => ok(&json!({ "statusUrl": base })),
            (1, _) => ok(&json!({ "status": "Pending", "lastUpdatedTime": 1 })),
            (2, _) => ok(&json!({ "status": "InProgress", "resultUrl": "" })),
            (3, _) => ok(&json!({ "status": "ExportingData" })),
            (4, _) => ok(&json!({ "status": "Completed", "resultUrl": "/files/changes.json?sig=1" })),
            (5, "/files/changes.json") => ok(&one_add()),
            other => panic!("{other:?}"),
        }
    })
    .await;
    let rig = Rig::new(&site);
    assert_eq!(fetched(&rig.fetch(&site).await), counts(1, 0, 0, 0));
    let seen = site.seen();
    assert_eq!(seen.iter().map(|seen| &*seen.method).collect::<Vec<_>>(), ["POST", "GET", "GET", "GET", "GET", "GET"]);
    assert_eq!(seen[1].target, "/arcgis/rest/services/Hydrants/FeatureServer/jobs/j1?f=json");
    assert_eq!(seen[5].target, "/files/changes.json?sig=1", "addresses of files may be signed, and stay as they are");
    assert_eq!(*rig.waits.lock().unwrap(), [1, 2, 4].map(Duration::from_secs));
}

#[tokio::test]
async fn a_server_that_never_comes_to_an_end_is_left() {
    let site =
        Site::new(|at, _| ok(&if at == 0 { json!({ "statusUrl": "/j" }) } else { json!({ "status": "InProgress" }) }))
            .await;
    let rig = Rig::new(&site);
    assert_eq!(again(&rig.fetch(&site).await), ("fetch_slow", true, None));
    let waited: Duration = rig.waits.lock().unwrap().iter().sum();
    assert!((Duration::from_mins(5)..Duration::from_mins(7)).contains(&waited), "{waited:?}");
    let site = Site::new(|_, _| ok(&json!({ "resultUrl": "/again" }))).await;
    assert_eq!(dead(&Rig::new(&site).fetch(&site).await), ("fetch_answer", Class::Schema));
    assert_eq!(site.seen().len(), 5);
}

#[tokio::test]
async fn what_may_pass_is_tried_again_and_what_does_not_is_dead() {
    let error = |code: u64| ok(&json!({ "error": { "code": code, "message": "no", "details": [] } }));
    let second = Some(Duration::from_secs(7));
    for (answer, code, counts, after) in [
        (reply("429 Too Many Requests", "retry-after: 7\r\n", ""), "http_429", true, second),
        (
            reply("503 Service Unavailable", "retry-after: 99999999\r\n", ""),
            "http_503",
            true,
            Some(Duration::from_hours(1)),
        ),
        (reply("500 Internal Server Error", "", ""), "http_500", true, None),
        (error(500), "fetch_error", true, None),
        (error(503), "fetch_error", true, None),
        (ok(&json!({ "status": "Failed" })), "fetch_failed", true, None),
        (ok(&json!({ "status": "CompletedWithErrors", "resultUrl": "/x" })), "fetch_failed", true, None),
        // Nothing at all; and a body that ends too soon.
        (Vec::new(), "fetch_silent", false, None),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{\"edits\":[".to_vec(), "fetch_broken", true, None),
    ] {
        let site = Site::saying(answer).await;
        let rig = Rig::new(&site);
        assert_eq!(again(&rig.fetch(&site).await), (code, counts, after));
        assert_eq!(rig.features().await.len(), 0, "{code}");
    }
    for (answer, code, class) in [
        (reply("404 Not Found", "", ""), "http_404", Class::Schema),
        (reply("400 Bad Request", "", ""), "http_400", Class::Schema),
        (reply("401 Unauthorized", "", ""), "fetch_token", Class::Permission),
        (reply("403 Forbidden", "", ""), "fetch_token", Class::Permission),
        (error(498), "fetch_token", Class::Permission),
        (error(499), "fetch_token", Class::Permission),
        (error(400), "fetch_error", Class::Schema),
        (reply("200 OK", "", "<html>sign in</html>"), "fetch_answer", Class::Schema),
        (reply("200 OK", "", "{\"edits\":["), "fetch_answer", Class::Schema),
        (reply("200 OK", "content-encoding: br\r\n", "{}"), "fetch_answer", Class::Schema),
        (ok(&json!({})), "fetch_answer", Class::Schema),
        (ok(&json!([])), "fetch_answer", Class::Schema),
        (ok(&json!({ "edits": 7 })), "preset_value", Class::Schema),
        (ok(&json!({ "edits": [7] })), "preset_value", Class::Schema),
        (ok(&json!({ "edits": [{ "id": 0, "objectIds": { "adds": [1] } }] })), "preset_value", Class::Schema),
        (ok(&json!({ "edits": [{ "features": { "adds": [] } }] })), "preset_missing", Class::Schema),
        (ok(&edits(&json!({ "adds": 1 }))), "preset_value", Class::Schema),
        (reply("200 OK", "", "{\"edits\":[],\"edits\":[]}"), "json_duplicate_member", Class::Schema),
        (
            reply("200 OK", "", &format!("{{\"edits\":{}{}}}", "[".repeat(99), "]".repeat(99))),
            "limit_depth",
            Class::Schema,
        ),
        (ok(&edits(&json!({ "deleteIds": (0..101).collect::<Vec<_>>() }))), "limit_features", Class::Schema),
    ] {
        let site = Site::saying(answer).await;
        let rig = Rig::new(&site);
        assert_eq!(dead(&rig.fetch(&site).await), (code, class));
        assert_eq!(rig.features().await.len(), 0, "{code}");
    }
}

#[tokio::test]
async fn after_errors_a_later_attempt_succeeds() {
    let site = Site::new(|at, _| match at {
        0 => reply("500 Internal Server Error", "", ""),
        1 => b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{\"edits\":[{\"id\":0".to_vec(),
        _ => ok(&one_add()),
    })
    .await;
    let rig = Rig::new(&site);
    assert_eq!(again(&rig.fetch(&site).await).0, "http_500");
    assert_eq!(again(&rig.fetch(&site).await).0, "fetch_broken");
    assert_eq!(fetched(&rig.fetch(&site).await), counts(1, 0, 0, 0));
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_not_read_to_its_end() {
    let large = "x".repeat(2_000);
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(" ".repeat(100_000).as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    assert!(packed.len() < 1_000);
    let bomb = format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", packed.len());
    let chunk = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n7d0\r\n{large}\r\n");
    for answer in [
        reply("200 OK", "", &large),
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n".to_vec(),
        chunk.into_bytes(),
        [bomb.into_bytes(), packed].concat(),
    ] {
        let site = Site::saying(answer).await;
        let rig = Rig::with(&site, |options| options.bytes_max = 1_000, |_| {});
        assert_eq!(dead(&rig.fetch(&site).await), ("fetch_too_large", Class::Schema));
    }
}

#[tokio::test]
async fn a_packed_answer_is_unpacked() {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(one_add().to_string().as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", packed.len());
    let site = Site::saying([head.into_bytes(), packed].concat()).await;
    assert_eq!(fetched(&Rig::new(&site).fetch(&site).await), counts(1, 0, 0, 0));
}

#[tokio::test]
async fn features_that_cannot_be_used_are_kept_as_dead_beside_the_others() {
    let curve = json!({ "attributes": { "GlobalID": "A" }, "geometry": { "curvePaths": [] } });
    let far = json!({ "attributes": { "GlobalID": "B" }, "geometry": { "x": 9_999.0, "y": 1.0 } });
    let bad = [curve, far, json!(7)];
    let mixed = [&bad[..], &[hydrant(1, 1.0)]].concat();
    let site = Site::new(move |at, _| {
        let adds = if at == 0 { &mixed[..] } else { &bad[..] };
        ok(&edits(&json!({ "adds": adds, "deleteIds": if at == 0 { json!([true]) } else { json!([]) } })))
    })
    .await;
    let rig = Rig::new(&site);
    assert_eq!(fetched(&rig.fetch(&site).await), counts(1, 0, 0, 4));
    let dead = Filter { state: Some(State::Dead), ..Filter::default() };
    let causes = |records: Vec<crate::store::Record>| {
        let mut causes: Vec<_> = records.into_iter().filter_map(|r| r.cause).map(|c| (c.code, c.pointer)).collect();
        causes.sort();
        causes
    };
    let place = |code: &str, pointer: &str| (code.to_owned(), format!("/edits/0/features/{pointer}"));
    let expected = [
        place("geojson_bounds", "adds/1/geometry"),
        place("preset_value", "adds/0/geometry/curvePaths"),
        place("preset_value", "adds/2"),
        place("preset_value", "deleteIds/0"),
    ];
    assert_eq!(causes(rig.records(dead.clone()).await), expected);
    // Nobody is told, so even where all of them are bad they are kept.
    let rig = Rig::new(&site);
    assert_eq!(fetched(&rig.fetch(&site).await), counts(0, 0, 0, 3));
    assert_eq!(causes(rig.records(dead).await), expected[..3]);
    let books = rig.store.status().await.unwrap().ledgers["hydrants"];
    assert_eq!((books.received, books.dead, books.waiting, books.refused), (4, 3, 1, 0), "{books:?}");
}

#[tokio::test]
async fn a_layer_in_another_coordinate_system_is_read_as_it_says() {
    let in_metres = |reference: Value| {
        edits(&json!({ "updates": [{ "attributes": { "FID": 1 },
            "geometry": { "x": 1_489_547.9, "y": 6_894_701.2, "spatialReference": reference } }] }))
    };
    let declared = in_metres(json!({ "wkid": 102_100, "latestWkid": 3857 }));
    let site = Site::saying(ok(&declared)).await;
    let rig = Rig::new(&site);
    assert_eq!(fetched(&rig.fetch(&site).await), counts(1, 0, 0, 0));
    assert_eq!(rig.features().await[0].2.crs, Some(3857));
    assert_eq!(rig.features().await[0].1["id"], 1, "an object id where there is no other");
    // Undeclared, it is what was asked for: by the announcement, or by us.
    let site = Site::saying(ok(&in_metres(Value::Null))).await;
    let rig = Rig::new(&site);
    let url = site.url(&format!("{EXTRACT}?serverGens=[100,110]&outSR=102100"));
    assert_eq!(fetched(&rig.fetch_from(&url).await), counts(1, 0, 0, 0));
    assert!(site.seen()[0].body.contains("outSR=3857"), "{:?}", site.seen());
    let later = site.url(&format!("{EXTRACT}?serverGens=[110,120]"));
    assert_eq!(fetched(&rig.fetch_from(&later).await), counts(0, 0, 0, 1), "these are no degrees");
}

#[tokio::test]
async fn where_all_changes_since_a_number_are_asked_for_the_answer_says_up_to_which() {
    let site = Site::saying(ok(&one_add())).await;
    let rig = Rig::new(&site);
    let url = site.url(&format!("{EXTRACT}?serverGens=100"));
    assert_eq!(fetched(&rig.fetch_from(&url).await), counts(1, 0, 0, 0));
    assert_eq!(rig.features().await[0].1["arcgis"]["serverGen"], 110);
    let site = Site::saying(ok(&json!({ "edits": [{ "id": 0, "features": { "adds": [hydrant(1, 1.0)] } }] }))).await;
    let url = site.url(&format!("{EXTRACT}?serverGens=100"));
    assert_eq!(dead(&Rig::new(&site).fetch_from(&url).await).0, "preset_missing");
}

#[tokio::test]
async fn deleted_features_that_are_given_whole_are_not_given_twice() {
    let site = Site::saying(ok(&edits(&json!({
        "deletes": [hydrant(1, 1.0)], "deleteIds": ["{7C5C0000-0000-0000-0000-000000000001}", "7c5c0000-0000-0000-0000-000000000002"]
    }))))
    .await;
    let rig = Rig::new(&site);
    assert_eq!(fetched(&rig.fetch(&site).await), counts(2, 0, 0, 0));
    let features = rig.features().await;
    assert!(features.iter().all(|(_, feature, _)| feature["arcgis"]["deleted"] == true));
    assert_eq!(features[0].1["properties"]["state"], "open");
}

#[tokio::test]
async fn several_layers_have_events_of_their_own() {
    let layer = |id: u64| json!({ "id": id, "features": { "adds": [hydrant(1, 1.0)] } });
    let site = Site::saying(ok(&json!({ "edits": [layer(0), layer(1), { "id": 2, "attachments": {} }] }))).await;
    let rig = Rig::new(&site);
    assert_eq!(fetched(&rig.fetch(&site).await), counts(2, 0, 0, 0));
    assert_eq!(rig.features().await[1].1["arcgis"]["layerId"], 1);
}

#[tokio::test]
async fn what_a_source_asks_of_features_is_not_asked_of_announcements() {
    let site = Site::saying(ok(&edits(&json!({ "adds": [hydrant(1, 1.0)], "deleteIds": [7] })))).await;
    let rig = Rig::with(
        &site,
        |_| {},
        |policy| {
            policy.identity = Identity::Fields(vec![Field::required(Pointer::parse("/id").unwrap())]);
            policy.accept = Accept { types: Some(vec!["Point".to_owned()]), ..Accept::default() };
        },
    );
    assert_eq!(fetched(&rig.fetch(&site).await), counts(2, 0, 0, 0));
    // Without changesUrl it is an event of the source, and its policy counts.
    let body = json!({ "orgId": "o", "serviceName": "s", "lastUpdatedTime": 1, "events": ["LayerSchemaChanged"] });
    let arrival = crate::intake::Arrival { body: body.to_string().into(), ..crate::intake::Arrival::default() };
    let receipt = rig.intake.receive(&rig.source, arrival).await.unwrap();
    assert!(matches!(receipt.features[0], crate::intake::FeatureReceipt::Refused { .. }), "{receipt:?}");
    assert_eq!(rig.intake.now(), NOW);
}
