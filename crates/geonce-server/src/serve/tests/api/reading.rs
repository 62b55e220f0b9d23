//! What can be read: events, dead ones, books, explanations, keys.

use super::super::{TOKEN, post};
use super::{BROKEN, Gate, StoreAccess};
use crate::config::Likeness;
use geonce::delivery::near::{Action, Near, Scope};
use geonce::store::{self, Options};
use geonce_key::near::Measure;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

const FEATURE: &str =
    r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[13.40,52.5]},"properties":{"a":1}}"#;

#[tokio::test]
async fn every_event_is_on_just_one_page_also_while_more_come() {
    let gate = Gate::start().await;
    gate.points(250).await;
    let (mut seen, mut cursor, mut pages) = (BTreeSet::new(), String::new(), 0);
    loop {
        let page = gate.get(&format!("/events?limit=100{cursor}")).await;
        pages += 1;
        for event in page["events"].as_array().unwrap() {
            assert!(seen.insert(event["event"].as_str().unwrap().to_owned()), "{event} twice");
        }
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
        // What comes meanwhile is later than all that was seen.
        gate.send(&format!("{{\"type\":\"Point\",\"coordinates\":[{pages},80]}}\n")).await;
    }
    assert_eq!((seen.len(), pages), (250, 3));
    assert_eq!(gate.get("/events?limit=252").await["next"], json!(null), "a page that is just full is the last one");
}

#[tokio::test]
async fn events_are_found_by_what_is_said_of_them() {
    let gate = Gate::start().await;
    let sent = gate.send(&format!("{FEATURE}\n{BROKEN}\n")).await;
    let (good, dead) = (&sent["features"][0], &sent["features"][1]);
    for (query, expected) in [
        ("", 2),
        ("?source=drones", 2),
        ("?source=trucks", 0),
        ("?state=ready", 1),
        ("?state=dead&code=self_intersection", 1),
        ("?code=conflict", 0),
        ("?outcome=applied", 0),
        ("?since=1h", 2),
        ("?until=1h", 0),
        ("?since=2020-01-01T00:00:00%2B01:00&until=2999-01-01T00:00:00.5Z", 2),
        (&format!("?key={}", good["key"].as_str().unwrap()), 1),
    ] {
        let found = gate.get(&format!("/events{query}")).await;
        assert_eq!(found["events"].as_array().unwrap().len(), expected, "{query}: {found}");
    }
    let id = dead["event"].as_str().unwrap();
    let event = gate.get(&format!("/events/{id}")).await;
    assert_eq!((&event["state"], &event["cause"]["code"]), (&json!("dead"), &json!("self_intersection")));
    assert!(event["hint"].is_string());
    let id = good["event"].as_str().unwrap();
    assert_eq!(gate.get(&format!("/events/{id}")).await["hint"], json!(null));
    let payload = gate.ask("GET", &format!("/events/{id}/payload"), None).await;
    assert_eq!((payload.header("content-type"), payload.body.as_str()), (Some("application/json"), FEATURE));
    assert_eq!(payload.header("x-content-type-options"), Some("nosniff"));
}

#[tokio::test]
async fn payloads_come_back_as_what_they_are() {
    let gate = Gate::start().await;
    for (headers, body, kind) in [
        ("content-type: application/wkt\r\n", "POINT (1 2)", "application/wkt"),
        ("content-type: text/plain\r\n", "POINT (1 3)", "application/wkt"),
        ("content-type: application/json\r\n", "{\"type\":\"Point\",\"coordinates\":[1,4]}", "application/json"),
    ] {
        let receipt = gate.raw(post("/in/drones", headers, body)).await.json();
        let id = receipt["event"].as_str().unwrap();
        let reply = gate.ask("GET", &format!("/events/{id}/payload"), None).await;
        assert_eq!((reply.header("content-type"), reply.body.as_str()), (Some(kind), body));
    }
}

#[tokio::test]
async fn dead_events_are_grouped_and_books_balance() {
    let gate = Gate::start().await;
    // First: it is counted with what is written next.
    gate.raw(post("/in/drones", "", "{")).await.is_problem(400, "json_incomplete");
    gate.points(3).await;
    let shifted = BROKEN.replace("[0,1]", "[0,2]");
    gate.send(&format!("{BROKEN}\n{shifted}\n")).await;
    let dead = gate.get("/dead").await;
    assert_eq!((&dead["events"], &dead["groups"][0]["events"]), (&json!(2), &json!(2)));
    assert_eq!(dead["groups"][0]["code"], "self_intersection");
    assert!(dead["groups"][0]["hint"].as_str().unwrap().len() > 10);
    assert_eq!(gate.get("/dead?code=conflict").await["groups"], json!([]));
    let sources = gate.get("/sources").await;
    let drones = &sources["sources"][0];
    assert_eq!(
        (&drones["source"], &drones["signed"], &drones["sinks"]),
        (&json!("drones"), &json!(false), &json!(["zones"]))
    );
    assert_eq!((&drones["books"]["received"], &drones["books"]["balanced"]), (&json!(6), &json!(true)));
    assert_eq!(
        (&drones["refused"], &drones["dead"]),
        (&json!({ "json_incomplete": 1 }), &json!({ "self_intersection": 2 }))
    );
    assert_eq!(drones["policy"]["precision"], 7);
    let status = gate.get("/status").await;
    assert_eq!((&status["states"]["dead"], &status["books"]["balanced"]), (&json!(2), &json!(true)));
    assert_eq!(gate.get("/audit").await, json!({ "entries": [], "next": null }));
}

#[tokio::test]
async fn explain_answers_as_the_command_does() {
    let gate = Gate::start().await;
    let (a, b) =
        (r#"{"type":"Point","coordinates":[0.00000015,0]}"#, r#"{"coordinates":[0.00000014,0.0],"type":"Point"}"#);
    let body = format!(r#"{{"a":{{"payload":{a}}},"b":{{"text":{}}}}}"#, Value::from(b));
    let reply = gate.raw(format!(
        "POST /api/v1/explain HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    let answered = reply.await.json();
    assert_eq!((&answered["same"], &answered["reasons"][0]["code"]), (&json!(false), &json!("grid_edge")));
    let (a, b): (Value, Value) = (serde_json::from_str(a).unwrap(), serde_json::from_str(b).unwrap());
    let coarser =
        json!({ "a": { "payload": a }, "b": { "payload": b }, "source": "drones", "policy": { "precision": 6 } });
    let answered = gate.post("/explain", coarser).await.json();
    assert_eq!(answered["same"], json!(true), "{answered}");

    let sent = gate.send(&format!("{FEATURE}\n")).await;
    let id = &sent["features"][0]["event"];
    let other = json!({ "a": { "event": id }, "b": { "payload": { "type": "Point", "coordinates": [13.4, 52.5] } } });
    let answered = gate.post("/explain", other).await.json();
    assert_eq!((&answered["same"], &answered["reasons"][0]["code"]), (&json!(false), &json!("identity_field")));
    assert_eq!(answered["key_a"], sent["features"][0]["key"]);
}

#[tokio::test]
async fn explain_says_whether_two_payloads_would_be_near() {
    let mut api = super::super::api();
    let near = Near {
        measures: vec![(Measure::Vertex, 0.01)],
        within_metres: 50.0,
        period: Duration::from_mins(10),
        scope: Scope::Identity,
        action: Action::Drop,
        ignore: Vec::new(),
    };
    api.likenesses.insert("drones".to_owned(), Likeness { near: Some(near), ..Likeness::default() });
    let store = store::open("sqlite::memory:", &Options::default(), StoreAccess::Gateway, Path::new("")).unwrap();
    let gate = Gate::at(store, api, None).await;
    let point = |latitude: f64| json!({ "payload": { "type": "Point", "coordinates": [13.4, latitude] } });
    for (latitude, is_near, metres) in [(52.500_000_063, true, 0.007), (52.500_018, false, 2.0)] {
        let answered = gate.post("/explain", json!({ "a": point(52.5), "b": point(latitude) })).await.json();
        let near = &answered["near"];
        assert_eq!((&answered["same"], &near["near"]), (&json!(false), &json!(is_near)), "{answered}");
        assert_eq!(near["action"], if is_near { json!("drop") } else { json!(null) });
        let value = near["measures"][0]["value"].as_f64().unwrap();
        assert!((value / metres - 1.0).abs() < 0.01, "{near}");
    }
    let answered = gate.post("/explain", json!({ "a": point(52.5), "b": point(52.5) })).await.json();
    assert_eq!((&answered["same"], &answered["near"]), (&json!(true), &json!(null)));
}

#[tokio::test]
async fn a_refused_payload_is_named_with_its_place_in_the_request() {
    let gate = Gate::start().await;
    let good = json!({ "type": "Point", "coordinates": [1, 2] });
    let bad = json!({ "type": "Point", "coordinates": [1, 200] });
    let reply = gate.post("/explain", json!({ "a": { "payload": good }, "b": { "payload": bad } })).await;
    reply.is_problem(400, "geojson_bounds");
    assert_eq!(reply.json()["pointer"], "/b/payload/coordinates/1");
    let reply = gate.post("/key", json!({ "payload": bad })).await;
    reply.is_problem(400, "geojson_bounds");
    assert_eq!(reply.json()["pointer"], "/payload/coordinates/1");
    for (body, pointer) in [
        (json!({}), ""),
        (json!({ "payload": good, "text": "POINT(1 2)" }), ""),
        (json!({ "payload": good, "source": "trucks" }), "/source"),
        (json!({ "payload": good, "policy": { "precision": 12 } }), "/policy"),
        (json!({ "payload": good, "policy": { "version": "x" } }), "/policy/version"),
        (json!({ "payload": good, "policy": { "dimensions": 7 } }), "/policy/dimensions"),
        (json!({ "payload": good, "policy": { "crs": "EPSG:1" } }), "/policy/crs"),
        (json!({ "event": "evt_x" }), "/event"),
        (json!({ "payload": good, "text": null }), ""),
        (json!({ "payload": good, "policy": { "precision": null } }), ""),
    ] {
        let reply = gate.post("/key", body.clone()).await;
        reply.is_problem(400, "body_invalid");
        assert_eq!(reply.json()["pointer"], pointer, "{body}");
    }
    let unknown = json!({ "event": "evt_01JD8Q0000000000000000000Z" });
    gate.post("/key", unknown).await.is_problem(404, "event_unknown");
}

#[tokio::test]
async fn keys_are_those_that_senders_get() {
    let gate = Gate::start().await;
    let sent = gate.send(&format!("{FEATURE}\n")).await;
    let feature: Value = serde_json::from_str(FEATURE).unwrap();
    let keyed = gate.post("/key", json!({ "payload": feature })).await.json();
    assert_eq!(keyed["keys"][0]["key"], sent["features"][0]["key"]);
    assert_eq!(keyed["keys"][0]["validity"]["valid"], true);
    let by_event = gate.post("/key", json!({ "event": sent["features"][0]["event"] })).await.json();
    assert_eq!(by_event, keyed);
    let broken: Value = serde_json::from_str(BROKEN).unwrap();
    let collection = json!({ "type": "FeatureCollection", "features": [
        feature, { "type": "Feature", "geometry": broken, "properties": {} },
        { "type": "Feature", "geometry": { "type": "Point", "coordinates": [] }, "properties": {} },
    ]});
    let keyed = gate.post("/key", json!({ "payload": collection })).await.json();
    assert_eq!(keyed["keys"].as_array().unwrap().len(), 3);
    assert_eq!(keyed["keys"][1]["validity"]["problems"][0]["code"], "self_intersection");
    assert!(keyed["keys"][2]["error"]["code"].is_string());
    let wkt = gate.post("/key", json!({ "text": "POINT (1 2)", "policy": { "scope": "other" } })).await.json();
    let hex = gate
        .post("/key", json!({ "text": "0101000000000000000000F03F0000000000000040", "policy": { "scope": "other" } }))
        .await
        .json();
    assert_eq!(wkt["keys"][0]["key"], hex["keys"][0]["key"]);
}
