//! Every status of `/in/{source}`, and what goes with it.

use super::{POINT, Server, Setup, post};
use flate2::Compression;
use flate2::write::GzEncoder;
use geonce::clock::Timestamp;
use geonce::error::Kind;
use geonce::event::Ids;
use geonce::store::Verdict;
use std::io::Write;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn a_new_event_is_202_and_its_redelivery_200() {
    let server = Server::start(Setup::default()).await;
    let first = server.post("/in/drones", "content-type: application/geo+json\r\n", POINT).await;
    assert_eq!((first.status, first.header("content-type")), (202, Some("application/json")), "{first:?}");
    assert_eq!(first.header("idempotent-replayed"), None);
    let accepted = first.json();
    assert_eq!(accepted["outcome"], "accepted");
    assert!(accepted["event"].as_str().unwrap().starts_with("evt_"));
    assert!(accepted["key"].as_str().unwrap().starts_with("g1_"));

    let again = server.post("/in/drones", "", r#"{"coordinates":[13.40,52.5],"type":"Point"}"#).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")), "{again:?}");
    let duplicate = again.json();
    assert_eq!(duplicate["outcome"], "duplicate");
    assert_eq!(duplicate["of"], accepted["event"]);
    assert_eq!(duplicate["key"], accepted["key"]);
    assert_eq!(duplicate["state"], "ready");
}

#[tokio::test]
async fn a_source_may_want_200_for_new_events() {
    let server = Server::start(Setup { fresh_status: 200, ..Setup::default() }).await;
    let reply = server.post("/in/drones", "", POINT).await;
    assert_eq!((reply.status, reply.header("idempotent-replayed")), (200, None), "{reply:?}");
    assert_eq!(reply.json()["outcome"], "accepted");
}

#[tokio::test]
async fn a_conflict_is_kept_and_never_an_error_for_the_sender() {
    let server = Server::start(Setup::default()).await;
    let (ids, now) = (Ids::new(), Timestamp::from_millis(1));
    let (event, of) = (ids.next(now), ids.next(now));
    *server.store.verdict.lock().unwrap() = Some(Verdict::Conflict { event, of });
    let reply = server.post("/in/drones", "", POINT).await;
    assert_eq!(reply.status, 202, "{reply:?}");
    let json = reply.json();
    assert_eq!(json["outcome"], "conflict");
    assert_eq!((json["event"].as_str(), json["of"].as_str()), (Some(&*event.to_string()), Some(&*of.to_string())));
}

#[tokio::test]
async fn a_payload_that_is_refused_is_told_why_and_where() {
    let server = Server::start(Setup::default()).await;
    let reply = server.post("/in/drones", "", r#"{"type":"Point","coordinates":[200,52.5]}"#).await;
    reply.is_problem(400, "geojson_bounds");
    assert_eq!(reply.json()["pointer"], "/coordinates/0", "{reply:?}");
    server.post("/in/drones", "", "{\"type\":\"Po\u{1}int\"").await.is_problem(400, "json_control_character");
    server.post("/in/drones", "", b"{\"type\":\"\xff\"}").await.is_problem(400, "json_utf8");
    server.post("/in/drones", "", "").await.is_problem(400, "body_empty");
    server.post("/in/drones", "", " \n ").await.is_problem(400, "json_incomplete");
}

#[tokio::test]
async fn several_features_have_an_outcome_each() {
    let server = Server::start(Setup::default()).await;
    let lines = |numbers: &[f64]| -> String {
        let lines = numbers.iter().map(|x| format!("{{\"type\":\"Point\",\"coordinates\":[{x:?},1]}}\n"));
        lines.collect::<Vec<_>>().concat()
    };
    let ndjson = "content-type: application/x-ndjson\r\n";
    let reply = server.post("/in/drones", ndjson, lines(&[1.0, 2.0, 1.0, 999.0])).await;
    assert_eq!(reply.status, 202, "{reply:?}");
    let json = reply.json();
    assert_eq!(json["outcome"], "several");
    let counts = ["received", "accepted", "duplicate", "conflict", "refused"].map(|name| json[name].as_u64().unwrap());
    assert_eq!(counts, [4, 2, 1, 0, 1]);
    assert_eq!(json["features"][2]["of"], json["features"][0]["event"]);
    let refused = &json["features"][3];
    assert_eq!((refused["outcome"].as_str(), refused["line"].as_u64()), (Some("refused"), Some(4)));
    assert_eq!(refused["code"], "geojson_bounds");

    let known = server.post("/in/drones", ndjson, lines(&[1.0, 2.0])).await;
    assert_eq!((known.status, known.header("idempotent-replayed")), (200, Some("true")), "{known:?}");
    let mixed = server.post("/in/drones", ndjson, lines(&[1.0, 999.0])).await;
    assert_eq!((mixed.status, mixed.header("idempotent-replayed")), (202, None), "{mixed:?}");
    assert!(mixed.json()["features"][1]["event"].is_string(), "kept as dead beside a good one: {mixed:?}");
    let none = server.post("/in/drones", ndjson, lines(&[998.0, 999.0])).await;
    none.is_problem(400, "all_refused");
    assert_eq!(none.json()["features"].as_array().unwrap().len(), 2);
    let collection = format!(
        r#"{{"type":"FeatureCollection","features":[{{"type":"Feature","properties":null,"geometry":{POINT}}}]}}"#
    );
    let reply = server.post("/in/drones", "content-type: application/geo+json\r\n", collection).await;
    assert_eq!((reply.status, reply.json()["accepted"].as_u64()), (202, Some(1)), "{reply:?}");
}

#[tokio::test]
async fn a_request_with_too_many_features_is_413() {
    let server = Server::start(Setup { features_max: 2, ..Setup::default() }).await;
    let lines = format!("{POINT}\n{POINT}\n{POINT}\n");
    server.post("/in/drones", "content-type: application/x-ndjson\r\n", lines).await.is_problem(413, "limit_features");
}

#[tokio::test]
async fn each_content_type_is_read_as_what_it_says() {
    let server = Server::start(Setup::default()).await;
    let mut wkb = vec![1, 1, 0, 0, 0];
    wkb.extend_from_slice(&13.4f64.to_le_bytes());
    wkb.extend_from_slice(&52.5f64.to_le_bytes());
    let sequence = format!("\u{1e}{POINT}\n");
    let bodies: [(&str, &[u8], &str); 11] = [
        ("application/json", POINT.as_bytes(), "single"),
        ("application/geo+json; charset=utf-8", POINT.as_bytes(), "single"),
        ("application/vnd.geo+json", POINT.as_bytes(), "single"),
        ("application/x-ndjson", POINT.as_bytes(), "several"),
        ("application/geo+json-seq", sequence.as_bytes(), "several"),
        ("application/geo+json-seq", POINT.as_bytes(), "several"),
        ("text/plain", b"POINT(13.4 52.5)", "single"),
        ("application/wkt", b"SRID=4326;POINT (13.4 52.5)", "single"),
        ("application/wkb", &wkb, "single"),
        ("application/octet-stream", &wkb, "single"),
        ("", b"POINT (13.4 52.5)", "single"),
    ];
    let key = server.post("/in/drones", "", POINT).await.json()["key"].clone();
    for (content_type, body, form) in bodies {
        let reply = server.post("/in/drones", &format!("content-type: {content_type}\r\n"), body).await;
        assert_eq!(reply.status, 200, "{content_type}: {reply:?}");
        let json = reply.json();
        let found = if form == "several" { &json["features"][0]["key"] } else { &json["key"] };
        assert_eq!(*found, key, "{content_type}");
    }
    for content_type in ["application/xml", "application/json; charset=utf-16", "multipart/form-data; boundary=x"] {
        let reply = server.post("/in/drones", &format!("content-type: {content_type}\r\n"), POINT).await;
        reply.is_problem(415, "content_type");
        assert!(reply.json()["hint"].as_str().unwrap().contains("application/geo+json"));
    }
}

#[tokio::test]
async fn gzip_is_inflated_within_the_limit() {
    let server = Server::start(Setup { body_bytes_max: 50_000, ..Setup::default() }).await;
    let gzipped = "content-encoding: gzip\r\n";
    assert_eq!(server.post("/in/drones", gzipped, gzip(POINT.as_bytes())).await.status, 202);
    // Two members, as log shippers concatenate them.
    let (left, right) = POINT.split_at(9);
    let two = [gzip(left.as_bytes()), gzip(right.as_bytes())].concat();
    assert_eq!(server.post("/in/drones", gzipped, two).await.status, 200);
    // Inflated beside the answering threads.
    let lines = (0..1_000)
        .map(|i| format!("{{\"type\":\"Point\",\"coordinates\":[{},1]}}\n", f64::from(i * 7919 % 1000).sqrt()))
        .collect::<Vec<_>>()
        .concat();
    let many = gzip(&lines.as_bytes()[..49_000]);
    assert!(many.len() > 4 << 10, "{}", many.len());
    assert_eq!(
        server
            .post("/in/drones", "content-encoding: x-gzip\r\ncontent-type: application/x-ndjson\r\n", many)
            .await
            .status,
        202
    );

    let bomb = gzip(&vec![b' '; 40 << 20]);
    assert!(bomb.len() < 50_000);
    server.post("/in/drones", gzipped, bomb).await.is_problem(413, "body_too_large");
    server.post("/in/drones", gzipped, gzip(&vec![b' '; 50_001])).await.is_problem(413, "body_too_large");
    server.post("/in/drones", gzipped, gzip(&vec![b' '; 50_000])).await.is_problem(400, "json_incomplete");
    let whole = gzip(POINT.as_bytes());
    server.post("/in/drones", gzipped, &whole[..whole.len() - 3]).await.is_problem(400, "gzip_invalid");
    server.post("/in/drones", gzipped, [&whole[..], b"junk"].concat()).await.is_problem(400, "gzip_invalid");
    server.post("/in/drones", gzipped, POINT).await.is_problem(400, "gzip_invalid");
    for other in ["br", "deflate", "gzip, gzip", "gzip\r\ncontent-encoding: gzip"] {
        let reply = server.post("/in/drones", &format!("content-encoding: {other}\r\n"), POINT).await;
        reply.is_problem(415, "content_encoding");
        assert_eq!(reply.header("accept-encoding"), Some("gzip"));
    }
    assert_eq!(server.gateway.budget.used(), 0);
}

#[tokio::test]
async fn too_large_a_body_is_413_before_it_is_read() {
    let server = Server::start(Setup::default()).await;
    // Nothing of the body is ever sent, and nothing asks for it.
    let head = "POST /in/drones HTTP/1.1\r\nhost: x\r\ncontent-length: 100001\r\n";
    let expecting = server.ask(format!("{head}expect: 100-continue\r\n\r\n")).await;
    expecting.is_problem(413, "body_too_large");
    server.ask(format!("{head}\r\n")).await.is_problem(413, "body_too_large");
    server
        .ask("POST /in/drones HTTP/1.1\r\nhost: x\r\ncontent-length: 9223372036854775807\r\n\r\n")
        .await
        .is_problem(413, "body_too_large");
    // A client that sends it all the same, and reads only then, still gets to read the answer.
    let mut client = server.connect().await;
    client.send(post("/in/drones", "", vec![b' '; 8 << 20])).await;
    client.reply().await.is_problem(413, "body_too_large");
    // Where no length is declared, it is refused when it has become too long.
    let mut client = server.connect().await;
    client.send("POST /in/drones HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n").await;
    for _ in 0..11 {
        client.send(format!("2710\r\n{}\r\n", " ".repeat(10_000))).await;
    }
    client.reply().await.is_problem(413, "body_too_large");
    assert_eq!(server.gateway.budget.used(), 0);
}

#[tokio::test]
async fn a_client_that_waits_for_100_continue_gets_it() {
    let server = Server::start(Setup::default()).await;
    let mut client = server.connect().await;
    client
        .send(format!(
            "POST /in/drones HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
            POINT.len()
        ))
        .await;
    assert_eq!(client.next_reply().await.status, 100);
    client.send(POINT).await;
    assert_eq!(client.reply().await.status, 202);
}

#[tokio::test]
async fn a_chunked_body_is_put_together() {
    let server = Server::start(Setup::default()).await;
    let mut client = server.connect().await;
    client.send("POST /in/drones HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n").await;
    for byte in POINT.as_bytes().chunks(7) {
        client.send(format!("{:x}\r\n", byte.len())).await;
        client.send(byte).await;
        client.send("\r\n").await;
    }
    client.send("0\r\ntrailer: ignored\r\n\r\n").await;
    assert_eq!(client.reply().await.status, 202);
    // The connection goes on.
    client.send(post("/in/drones", "", POINT)).await;
    assert_eq!(client.reply().await.status, 200);
}

#[tokio::test]
async fn what_is_not_verified_is_401_with_one_answer_for_every_cause() {
    let server = Server::start(Setup::default()).await;
    let good = server.post("/in/signed", "authorization: Bearer letmein\r\n", POINT).await;
    assert_eq!(good.status, 202, "{good:?}");
    let mut bodies = Vec::new();
    for headers in ["", "authorization: Bearer wrong\r\n", "authorization: Bearer letmei\r\n", "authorization: \r\n"] {
        let reply = server.post("/in/signed", headers, POINT).await;
        reply.is_problem(401, "unverified");
        assert!(reply.header("www-authenticate").is_some());
        bodies.push(reply.body);
    }
    // Also where there would be something to say about the payload.
    for body in ["", "{", r#"{"type":"Point","coordinates":[200,1]}"#] {
        bodies.push(server.post("/in/signed", "", body).await.body);
    }
    assert!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:?}");
    assert_eq!(server.store.begun.load(SeqCst), 1);
}

#[tokio::test]
async fn paths_and_methods_that_are_not_there() {
    let server = Server::start(Setup::default()).await;
    for path in
        ["/in/other", "/in/", "/in/drones/", "/in/../drones", "/in/drones%2f", "/in/%2e%2e/x", "/in/%zz", "/in//drones"]
    {
        server.post(path, "", POINT).await.is_problem(404, "source_unknown");
    }
    for path in ["/in", "/nothing", "/../etc/passwd", "/in%2fdrones"] {
        server.post(path, "", POINT).await.is_problem(404, "not_found");
    }
    assert_eq!(server.post("/in/dr%6fnes", "", POINT).await.status, 202);
    let long = format!("/in/{}", "x".repeat(5_000));
    server.post(&long, "", POINT).await.is_problem(414, "path_too_long");
    for method in ["GET", "PUT", "DELETE", "PATCH"] {
        let reply = server.ask(format!("{method} /in/drones HTTP/1.1\r\nhost: x\r\n\r\n")).await;
        reply.is_problem(405, "method");
        assert!(reply.header("allow").unwrap().contains("POST"));
    }
    let mut client = server.connect().await;
    client.send("HEAD /in/drones HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    let said = client.closed().await;
    assert!(said.starts_with("HTTP/1.1 405 ") && said.ends_with("\r\n\r\n"), "{said}");
    let reply = server.ask("POST /metrics HTTP/1.1\r\nhost: x\r\n\r\n").await;
    reply.is_problem(405, "method");
    assert_eq!(reply.header("allow"), Some("GET, HEAD"));
}

#[tokio::test]
async fn a_store_that_fails_is_503_and_tells_no_secrets() {
    let server = Server::start(Setup::default()).await;
    for (kind, status, code) in [
        (Kind::Unavailable, 503, "store_unavailable"),
        (Kind::Resource, 503, "store_unavailable"),
        (Kind::Permission, 503, "store_unavailable"),
        (Kind::Corrupt, 500, "internal"),
    ] {
        *server.store.failure.lock().unwrap() = Some(kind);
        let reply = server.post("/in/drones", "", POINT).await;
        reply.is_problem(status, code);
        assert_eq!(reply.header("retry-after").is_some(), status == 503);
        assert!(!reply.body.contains("secret"), "{reply:?}");
    }
    *server.store.failure.lock().unwrap() = None;
    assert_eq!(server.post("/in/drones", "", POINT).await.status, 202);
}

#[tokio::test]
async fn an_answer_that_takes_too_long_is_503_and_the_connection_goes_on() {
    let server = Server::start(Setup { ack_within: Duration::from_millis(200), ..Setup::default() }).await;
    server.store.held.store(true, SeqCst);
    let mut client = server.connect().await;
    client.send(post("/in/drones", "", POINT)).await;
    let reply = client.reply().await;
    reply.is_problem(503, "late");
    assert!(reply.header("retry-after").is_some());
    assert!(reply.json()["detail"].as_str().unwrap().contains("may still be recorded"));
    server.store.held.store(false, SeqCst);
    client.send(post("/in/drones", "", POINT)).await;
    assert_eq!(client.reply().await.status, 202);
    assert_eq!(server.gateway.budget.used(), 0);
}

#[tokio::test]
async fn bodies_that_do_not_fit_into_memory_together_are_503() {
    let limits = super::Limits { buffered_bytes_max: 3_000, ..super::Limits::default() };
    let server = Server::start(Setup { limits, ..Setup::default() }).await;
    server.store.held.store(true, SeqCst);
    let large = |x: u32| format!("{{\"type\":\"Point\",\"coordinates\":[{x},1]}}{}", " ".repeat(2_000));
    let mut waiting = server.connect().await;
    waiting.send(post("/in/drones", "", large(1))).await;
    server.store.begun(1).await;
    let reply = server.post("/in/drones", "", large(2)).await;
    reply.is_problem(503, "busy");
    assert!(reply.header("retry-after").is_some());
    server.store.held.store(false, SeqCst);
    server.store.released.notify_waiters();
    assert_eq!(waiting.reply().await.status, 202);
    assert_eq!(server.post("/in/drones", "", large(2)).await.status, 202);
    assert_eq!(server.gateway.budget.used(), 0);
}

#[tokio::test]
async fn arcgis_gets_its_challenge_answered() {
    let server = Server::start(Setup::default()).await;
    let ask = |path: &str| server.ask(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n"));
    let reply = ask("/in/arcgis?a=b&crc_token=c1%2D2").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(reply.json()["response_token"].as_str().unwrap().starts_with("sha256="));
    assert_eq!(reply.body, ask("/in/arcgis?crc_token=c1-2").await.body);
    ask("/in/arcgis?crc_token=").await.is_problem(400, "challenge_invalid");
    ask("/in/arcgis?crc_token=%7B%7D").await.is_problem(400, "challenge_invalid");
    ask(&format!("/in/arcgis?crc_token=c{}", "x".repeat(1_500))).await.is_problem(400, "challenge_invalid");
    ask("/in/arcgis").await.is_problem(405, "method");
    // A source that has no secret has no answer.
    ask("/in/drones?crc_token=c1").await.is_problem(405, "method");
    ask("/in/other?crc_token=c1").await.is_problem(404, "source_unknown");
}

#[tokio::test]
async fn a_cloudevents_sender_may_ask_before_it_sends() {
    let server = Server::start(Setup::default()).await;
    let reply = server.ask("OPTIONS /in/drones HTTP/1.1\r\nhost: x\r\nwebhook-request-origin: events.example.com\r\nwebhook-request-rate: 120\r\n\r\n").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.header("webhook-allowed-origin"), Some("events.example.com"));
    assert_eq!(reply.header("webhook-allowed-rate"), Some("*"));
    let plain = server.ask("OPTIONS /in/drones HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(plain.status, 204, "{plain:?}");
    assert!(plain.header("allow").unwrap().contains("POST") && plain.header("webhook-allowed-origin").is_none());
}

#[tokio::test]
async fn a_form_is_taken_if_it_has_a_payload() {
    let server = Server::start(Setup::default()).await;
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let escaped = POINT.replace('"', "%22").replace('{', "%7B");
    let reply = server.post("/in/drones", form, format!("payload={escaped}&other=1")).await;
    assert_eq!(reply.status, 202, "{reply:?}");
    assert_eq!(server.post("/in/drones", "content-type: application/json\r\n", POINT).await.status, 200);
    // What `curl -d @event.json` sends.
    let reply = server.post("/in/drones", form, POINT).await;
    reply.is_problem(415, "content_type");
    assert!(reply.json()["detail"].as_str().unwrap().contains("curl"));
}

#[tokio::test]
async fn nothing_is_read_of_a_form_but_what_is_signed() {
    let server = Server::start(Setup::default()).await;
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let escaped = POINT.replace('"', "%22").replace('{', "%7B");
    // HMAC-SHA-256 of the escaped payload with the secret of the source.
    let signature = "x-esriHook-Signature=sha256=jigTHuof8SDdAQ/Eiqe06cqyfZD7NV9xiyoRnq7ZWzo=";
    let reply = server.post("/in/arcgis", form, format!("payload={escaped}&{signature}")).await;
    assert_eq!((reply.status, reply.json()["outcome"].as_str()), (202, Some("accepted")), "{reply:?}");
    for forged in [
        format!("payload=%7B%7D&payload={escaped}&{signature}"),
        format!("payload={escaped}&payload=%7B%7D&{signature}"),
        format!("payload={escaped}+&{signature}"),
    ] {
        server.post("/in/arcgis", form, forged).await.is_problem(401, "unverified");
    }
}
