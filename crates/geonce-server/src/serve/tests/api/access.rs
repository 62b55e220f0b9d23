//! Who may ask, what is refused, and that senders do not notice.

use super::super::store::TestStore;
use super::super::{Client, PATIENCE, POINT, TOKEN, post};
use super::{Gate, request};
use crate::api::{Access, Api, BODY_BYTES_MAX, REQUESTS_AT_ONCE_MAX, Stream};
use geonce::error::Kind;
use geonce::store::{self, Access as StoreAccess, Options};
use geonce_key::policy::Secret;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};

fn asked(host: &str, headers: &str) -> String {
    format!("GET /api/v1/status HTTP/1.1\r\nhost: {host}\r\n{headers}\r\n")
}

#[tokio::test]
async fn only_who_has_the_token_is_answered() {
    let gate = Gate::start().await;
    let wrong = format!("authorization: Bearer {TOKEN}x\r\n");
    let basic = "authorization: Basic MDEyMzQ1Njc4OWFiY2RlZg==\r\n";
    for headers in ["", &wrong, "authorization: Bearer \r\n", basic, "authorization: Bearer\r\n"] {
        let reply = gate.raw(asked("localhost", headers)).await;
        reply.is_problem(401, "api_token");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer realm=\"geonce\""));
    }
    let right = format!("authorization: Bearer {TOKEN}\r\n");
    assert_eq!(gate.raw(asked("localhost", &right)).await.status, 200);
    gate.raw("GET /api/v1/nothing HTTP/1.1\r\nhost: localhost\r\n\r\n").await.is_problem(401, "api_token");
    let open = gate.raw("GET /api/v1/openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert_eq!((open.status, open.json()["openapi"].as_str()), (200, Some("3.1.0")));
}

#[tokio::test]
async fn other_hosts_and_their_pages_are_refused_before_the_token_counts() {
    let gate = Gate::start().await;
    let right = format!("authorization: Bearer {TOKEN}\r\n");
    gate.raw(asked("evil.example", &right)).await.is_problem(403, "api_host");
    gate.raw(asked("localhost", &format!("{right}origin: https://evil.example\r\n")))
        .await
        .is_problem(403, "api_origin");
    gate.raw(asked("localhost", &format!("{right}host: evil.example\r\n"))).await.is_problem(403, "api_host");
    gate.raw(asked("localhost", &format!("{right}origin: null\r\n"))).await.is_problem(403, "api_origin");
    let own = gate.raw(asked("localhost:8787", &format!("{right}origin: http://localhost:8787\r\n"))).await;
    assert_eq!(own.status, 200);
    assert_eq!(own.header("access-control-allow-origin"), None);
    let preflight = "OPTIONS /api/v1/status HTTP/1.1\r\nhost: localhost\r\norigin: http://localhost\r\n\r\n";
    gate.raw(preflight).await.is_problem(401, "api_token");
}

#[tokio::test]
async fn an_api_with_an_address_of_its_own_is_nowhere_else_and_alone_there() {
    let store = store::open("sqlite::memory:", &Options::default(), StoreAccess::Gateway, Path::new("")).unwrap();
    let door = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = door.local_addr().unwrap();
    let access = Access::new(Secret::new(TOKEN), false, true).unwrap();
    let api = Api::new(access, tokio::runtime::Handle::current(), Stream::new(1), "test");
    let mut gate = Gate::at(store, api, Some(door)).await;
    gate.raw(request("GET", "/status", None)).await.is_problem(404, "not_found");
    assert_eq!(gate.raw(post("/in/drones", "", POINT)).await.status, 202);
    gate.address = address;
    assert_eq!(gate.raw(request("GET", "/status", None)).await.status, 200);
    gate.raw(request("POST", "/status", None).replace("/api/v1/status", "/in/drones"))
        .await
        .is_problem(404, "not_found");
    gate.raw("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await.is_problem(401, "api_token");
}

#[tokio::test]
async fn what_cannot_be_answered_is_a_problem_that_says_why() {
    let gate = Gate::start().await;
    gate.ask("GET", "/nothing", None).await.is_problem(404, "not_found");
    gate.ask("GET", "/../in/drones", None).await.is_problem(404, "not_found");
    let reply = gate.ask("PUT", "/replays", None).await;
    reply.is_problem(405, "method");
    assert_eq!(reply.header("allow"), Some("GET, HEAD, POST"));
    gate.ask("GET", "/events?colour=red", None).await.is_problem(400, "query_unknown");
    gate.ask("GET", "/events?limit=0", None).await.is_problem(400, "query_invalid");
    gate.ask("GET", "/events?state=well", None).await.is_problem(400, "query_invalid");
    gate.ask("GET", "/events?since=soon", None).await.is_problem(400, "query_invalid");
    gate.ask("GET", "/events?source=%00", None).await.is_problem(400, "query_invalid");
    gate.ask("GET", "/events/evt_nonsense", None).await.is_problem(404, "event_unknown");
    gate.ask("GET", &format!("/events?source={}", "x".repeat(2_100)), None).await.is_problem(414, "path_too_long");
    gate.post("/explain", json!({ "a": 1 })).await.is_problem(400, "body_invalid");
    gate.post("/key", json!({ "payload": { "type": "Point" }, "more": 1 })).await.is_problem(400, "body_invalid");
    gate.post("/replays", json!({ "filter": {} })).await.is_problem(400, "body_invalid");
    let text = "key=1";
    let form = format!(
        "POST /api/v1/key HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{text}",
        text.len()
    );
    gate.raw(form).await.is_problem(415, "content_type");
    let large = request("POST", "/key", Some(&json!({ "text": "x".repeat(BODY_BYTES_MAX) })));
    gate.raw(large).await.is_problem(413, "body_too_large");
    let mut client = Client { stream: TcpStream::connect(gate.address).await.unwrap(), read: Vec::new() };
    client.send(request("HEAD", "/status", None).replacen("\r\n", "\r\nconnection: close\r\n", 1)).await;
    let head = client.closed().await;
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
}

#[tokio::test]
async fn so_many_are_answered_at_once_and_senders_do_not_wait_for_them() {
    let gate = Gate::start().await;
    let turns = gate.gateway.api.turns.try_acquire_many(u32::try_from(REQUESTS_AT_ONCE_MAX).unwrap()).unwrap();
    let reply = gate.ask("GET", "/status", None).await;
    reply.is_problem(429, "api_busy");
    assert_eq!(gate.raw(post("/in/drones", "", POINT)).await.status, 202);
    drop(turns);
    assert_eq!(gate.ask("GET", "/status", None).await.status, 200);
}

#[tokio::test]
async fn while_the_store_is_down_that_is_said() {
    let store = Arc::new(TestStore::default());
    *store.failure.lock().unwrap() = Some(Kind::Unavailable);
    let gate = Gate::with(store).await;
    for path in ["/events", "/dead", "/sources", "/audit"] {
        let reply = gate.ask("GET", path, None).await;
        reply.is_problem(503, "store_unavailable");
        assert!(!reply.body.contains("secret"), "{reply:?}");
    }
    let status = gate.get("/status").await;
    assert_eq!((&status["store"]["ok"], &status["books"]), (&json!(false), &json!(null)));
}

#[tokio::test]
async fn a_gateway_that_stops_answers_what_it_has_begun() {
    let gate = Gate::start().await;
    assert_eq!(gate.ask("GET", "/status", None).await.status, 200);
    gate.stop.send(()).unwrap();
    let drained = tokio::time::timeout(PATIENCE, gate.running).await.unwrap().unwrap();
    assert_eq!(drained.cut_off, 0);
}
