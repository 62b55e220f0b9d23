//! What operators ask: alive, ready, metrics.

use super::{Check, POINT, Server, Setup};
use crate::serve::Health;
use geonce::error::{Error, Kind};
use std::future::ready;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

fn check(name: &str, required: bool, health: Option<bool>) -> Check {
    let ask = move || -> geonce::store::Answer<'static, Health> {
        Box::pin(ready(match health {
            Some(ok) => Ok(Health { ok, detail: format!("\"{ok}\"") }),
            None => Err(Error::new(Kind::Unavailable, "opening /secret/place")),
        }))
    };
    Check { name: name.to_owned(), required, ask: Box::new(ask) }
}

async fn get(server: &Server, path: &str) -> super::Reply {
    server.ask(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")).await
}

#[tokio::test]
async fn alive_is_not_the_same_as_ready() {
    let server = Server::start(Setup::default()).await;
    *server.store.failure.lock().unwrap() = Some(Kind::Unavailable);
    assert_eq!(get(&server, "/healthz").await.status, 200);
    let reply = get(&server, "/readyz").await;
    assert_eq!(reply.status, 503, "{reply:?}");
    assert_eq!(reply.json()["store"]["ok"], false);
    assert_eq!(get(&server, "/metrics").await.status, 200);
    assert!(get(&server, "/").await.body.contains("/in/{source}"));
}

#[tokio::test]
async fn ready_tells_what_is_waiting_and_how_each_part_is() {
    let checks = vec![check("sink zones", false, None), check("disk", true, Some(true))];
    let server = Server::start(Setup { checks, ..Setup::default() }).await;
    server.post("/in/drones", "", POINT).await;
    let reply = get(&server, "/readyz").await;
    assert_eq!(reply.status, 200, "a sink that is down does not keep events from being accepted: {reply:?}");
    let json = reply.json();
    assert_eq!(json["ready"], true);
    assert_eq!(json["waiting"], 1);
    assert_eq!(
        (json["sink zones"]["ok"].as_bool(), json["sink zones"]["detail"].as_str()),
        (Some(false), Some("unavailable"))
    );
    assert_eq!((json["disk"]["ok"].as_bool(), json["disk"]["detail"].as_str()), (Some(true), Some("\"true\"")));

    let server = Server::start(Setup { checks: vec![check("disk", true, Some(false))], ..Setup::default() }).await;
    assert_eq!(get(&server, "/readyz").await.status, 503);
}

#[tokio::test]
async fn metrics_have_the_documented_names() {
    let server = Server::start(Setup { ack_within: Duration::from_millis(100), ..Setup::default() }).await;
    server.post("/in/drones", "", POINT).await;
    server.post("/in/drones", "", POINT).await;
    server.post("/in/drones", "", "{").await;
    server.post("/in/signed", "", POINT).await;
    server.store.held.store(true, SeqCst);
    server.post("/in/drones", "", r#"{"type":"Point","coordinates":[1,1]}"#).await.is_problem(503, "late");
    server.gateway.metrics.attempts("zones", "applied", 3);
    server.gateway.metrics.attempts("zones", "a word of no meaning", 1);
    server.gateway.metrics.attempts("no such sink", "applied", 1);
    server.gateway.metrics.wrote("zones", Duration::from_millis(3));
    let reply = get(&server, "/metrics").await;
    assert!(reply.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    for line in [
        r#"geonce_requests_total{source="drones",outcome="accepted"} 1"#,
        r#"geonce_requests_total{source="drones",outcome="duplicate"} 1"#,
        r#"geonce_requests_total{source="drones",outcome="refused"} 1"#,
        r#"geonce_requests_total{source="drones",outcome="late"} 1"#,
        r#"geonce_requests_total{source="signed",outcome="unverified"} 1"#,
        r#"geonce_request_duration_seconds_count{source="drones"} 4"#,
        r#"geonce_request_duration_seconds_bucket{le="+Inf",source="drones"} 4"#,
        r#"geonce_key_duration_seconds_count{source="drones"} 3"#,
        r#"geonce_invalid_total{source="drones",code="json_incomplete"} 1"#,
        r#"geonce_conflicts_total{source="drones"} 0"#,
        "geonce_collisions_total 0",
        r#"geonce_lookups_total{tier="store",result="new"} 1"#,
        r#"geonce_lookups_total{tier="store",result="known"} 1"#,
        r#"geonce_lookup_duration_seconds_count{tier="store"} 2"#,
        "# TYPE geonce_fallbacks counter",
        r#"geonce_events{state="ready"} 1"#,
        r#"geonce_attempts_total{sink="zones",result="applied"} 3"#,
        r#"geonce_attempts_total{sink="zones",result="other"} 1"#,
        r#"geonce_sink_write_duration_seconds_bucket{le="0.005",sink="zones"} 1"#,
        "# TYPE geonce_dead_events gauge",
        r#"geonce_replays_total{result="revived"} 0"#,
        r#"geonce_ledger_events{source="drones",entry="received"} 3"#,
        "geonce_build_info{version=",
        "# EOF",
    ] {
        assert!(reply.body.contains(line), "{line} is missing in\n{}", reply.body);
    }
    assert!(!reply.body.contains("no such sink"));
}
