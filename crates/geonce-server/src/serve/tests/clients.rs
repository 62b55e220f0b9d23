//! Clients that are slow, many, gone or wrong; and how the receiver ends.

use super::{Client, Drained, Limits, PATIENCE, POINT, Server, Setup, post};
use geonce::clock::Stopwatch;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// The time that a test's slow client has; and the time in which it must be gone.
const SHORT: Duration = Duration::from_millis(200);
const GONE: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(100);

/// Limits of which none but the test's own matters.
fn patient() -> Limits {
    Limits {
        first_byte: LONG,
        header: LONG,
        idle: LONG,
        transfer_grace: LONG,
        transfer: LONG,
        transfer_bytes_per_second_min: 1,
        ..Limits::default()
    }
}

async fn serve(limits: Limits) -> Server {
    Server::start(Setup { limits, ack_within: LONG, ..Setup::default() }).await
}

/// Sends a byte now and then until the server has had enough; what it said.
async fn drip(client: &mut Client, bytes: &[u8]) -> String {
    let mut pace = tokio::time::interval(SHORT / 10);
    for byte in bytes {
        let enough = tokio::select! {
            biased;
            closed = client.more() => closed,
            _ = pace.tick() => client.stream.write_all(&[*byte]).await.is_err(),
        };
        if enough {
            return String::from_utf8_lossy(&client.read).into_owned();
        }
    }
    panic!("the server has taken {} slow bytes", bytes.len());
}

#[tokio::test]
async fn a_client_that_says_nothing_is_closed() {
    let server = serve(Limits { first_byte: SHORT, ..patient() }).await;
    let waited = Stopwatch::start();
    assert_eq!(server.connect().await.closed().await, "");
    assert!(waited.elapsed() >= SHORT && waited.elapsed() < GONE);
}

#[tokio::test]
async fn a_client_whose_headers_come_slowly_is_closed() {
    let server = serve(Limits { header: SHORT, ..patient() }).await;
    let waited = Stopwatch::start();
    let mut client = server.connect().await;
    let request = format!("POST /in/drones HTTP/1.1\r\nhost: x\r\n{}", "x-filler: x\r\n".repeat(40));
    assert_eq!(drip(&mut client, request.as_bytes()).await, "");
    assert!(waited.elapsed() < GONE);
}

#[tokio::test]
async fn a_client_whose_body_comes_slowly_is_told_and_closed() {
    let server = serve(Limits { transfer_grace: SHORT, transfer_bytes_per_second_min: 1_000, ..patient() }).await;
    let waited = Stopwatch::start();
    let mut client = server.connect().await;
    client.send("POST /in/drones HTTP/1.1\r\nhost: x\r\ncontent-length: 5000\r\n\r\n").await;
    let said = drip(&mut client, &[b' '; 1_000]).await;
    assert!(said.starts_with("HTTP/1.1 408 ") && said.contains("body_slow"), "{said}");
    assert!(waited.elapsed() < GONE);
    assert_eq!(server.gateway.budget.used(), 0);
}

#[tokio::test]
async fn a_body_that_keeps_the_rate_is_taken_however_long_it_takes() {
    let server = serve(Limits { transfer_grace: SHORT, transfer_bytes_per_second_min: 1_000, ..patient() }).await;
    let mut client = server.connect().await;
    let body = format!("{POINT}{}", " ".repeat(20_000));
    let request = post("/in/drones", "", body);
    let waited = Stopwatch::start();
    let mut pace = tokio::time::interval(SHORT / 4);
    for piece in request.chunks(request.len() / 10) {
        pace.tick().await;
        client.send(piece).await;
    }
    assert!(waited.elapsed() > SHORT * 2);
    assert_eq!(client.reply().await.status, 202);
}

#[tokio::test]
async fn no_body_takes_longer_than_the_longest_time() {
    let limits = Limits { transfer_grace: SHORT / 2, transfer: SHORT, transfer_bytes_per_second_min: 1, ..patient() };
    let server = serve(limits).await;
    let mut client = server.connect().await;
    client.send("POST /in/drones HTTP/1.1\r\nhost: x\r\ncontent-length: 5000\r\n\r\n").await;
    let said = drip(&mut client, &[b' '; 1_000]).await;
    assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
}

#[tokio::test]
async fn a_connection_without_requests_is_closed() {
    let server = serve(Limits { idle: SHORT, ..patient() }).await;
    let waited = Stopwatch::start();
    let mut client = server.connect().await;
    for expected in [202, 200] {
        client.send(post("/in/drones", "", POINT)).await;
        assert_eq!(client.reply().await.status, expected);
    }
    assert_eq!(client.closed().await, "");
    assert!(waited.elapsed() < GONE);
}

#[tokio::test]
async fn a_client_that_never_reads_is_closed() {
    let server = serve(Limits { transfer_grace: SHORT, transfer_bytes_per_second_min: 1 << 30, ..patient() }).await;
    let waited = Stopwatch::start();
    let mut client = server.connect().await;
    let requests = "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n".repeat(100);
    let sending = async { while client.stream.write_all(requests.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, sending).await.expect("the server should have closed");
    assert!(waited.elapsed() < PATIENCE / 2);
}

#[tokio::test]
async fn a_client_that_has_closed_its_side_is_answered_and_closed() {
    let server = serve(patient()).await;
    let mut client = server.connect().await;
    client.send(post("/in/drones", "", POINT)).await;
    client.stream.shutdown().await.unwrap();
    let said = client.closed().await;
    assert!(said.starts_with("HTTP/1.1 202 "), "{said}");
    // In the middle of a body, it is gone.
    let mut client = server.connect().await;
    client.send("POST /in/drones HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n{").await;
    client.stream.shutdown().await.unwrap();
    let said = client.closed().await;
    assert!(said.is_empty() || said.starts_with("HTTP/1.1 400 "), "{said}");
    assert_eq!(server.gateway.budget.used(), 0);
}

#[tokio::test]
async fn one_connection_too_many_is_503_until_another_ends() {
    let server = serve(Limits { connections_max: 2, ..patient() }).await;
    let mut first = server.connect().await;
    let mut second = server.connect().await;
    for client in [&mut first, &mut second] {
        client.send(post("/in/drones", "", POINT)).await;
        assert!(client.reply().await.status < 300);
    }
    let turned_away = server.connect().await.reply().await;
    assert_eq!((turned_away.status, turned_away.header("retry-after")), (503, Some("5")), "{turned_away:?}");
    drop(first);
    let served = async {
        loop {
            let mut client = server.connect().await;
            client.send(post("/in/drones", "", POINT)).await;
            if client.reply().await.status == 200 {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, served).await.expect("there is room again");
    second.send(post("/in/drones", "", POINT)).await;
    assert_eq!(second.reply().await.status, 200);
}

#[tokio::test]
async fn slow_clients_do_not_keep_others_out() {
    let server = serve(Limits { first_byte: SHORT, header: SHORT, connections_max: 60, ..patient() }).await;
    let mut slow = Vec::new();
    for i in 0..50 {
        let mut client = server.connect().await;
        if i % 2 == 0 {
            client.send("POST /in/dro").await;
        }
        slow.push(client);
    }
    for i in 0..20 {
        let reply = server.post("/in/drones", "", format!("{{\"type\":\"Point\",\"coordinates\":[{i},1]}}")).await;
        assert_eq!(reply.status, 202, "{reply:?}");
    }
    for client in &mut slow {
        assert_eq!(client.closed().await, "");
    }
}

#[tokio::test]
async fn malformed_http_is_refused_and_the_connection_closed() {
    let server = serve(patient()).await;
    let point = POINT.len();
    let large = "x".repeat(40_000);
    for (request, status) in [
        ("nonsense\r\n\r\n".to_owned(), 400),
        ("POST /in/drones HTTP/3.7\r\n\r\n".to_owned(), 400),
        (format!("POST /in/drones HTTP/1.1\r\ncontent-length: -1\r\n\r\n{POINT}"), 400),
        (format!("POST /in/drones HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{POINT}"), 400),
        (format!("POST /in/drones HTTP/1.1\r\ncontent-length : {point}\r\n\r\n{POINT}"), 400),
        (format!("POST /in/drones HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n{POINT}"), 400),
        ("POST /in/drones HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(), 400),
        ("POST /in/drones HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_owned(), 400),
        ("POST /in/drones HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n".to_owned(), 400),
        ("POST /in/drones HTTP/1.1\r\nx: \0\r\n\r\n".to_owned(), 400),
        (format!("POST /in/drones HTTP/1.1\r\nx: {large}\r\n\r\n"), 431),
        (format!("POST /in/drones HTTP/1.1\r\n{}\r\n", "x: x\r\n".repeat(200)), 431),
    ] {
        let mut client = server.connect().await;
        client.send(&request).await;
        let said = client.closed().await;
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{}: {said}", &request[..60.min(request.len())]);
    }
    assert_eq!(server.store.begun.load(SeqCst), 0);
}

#[tokio::test]
async fn nothing_is_smuggled_behind_two_lengths() {
    let server = serve(patient()).await;
    let hidden = "0\r\n\r\nPOST /in/drones HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
    for (one, other) in [
        (format!("content-length: {}", hidden.len()), "transfer-encoding: chunked".to_owned()),
        ("transfer-encoding: chunked".to_owned(), format!("content-length: {}", hidden.len())),
    ] {
        let mut client = server.connect().await;
        client.send(format!("POST /in/drones HTTP/1.1\r\nhost: x\r\n{one}\r\n{other}\r\n\r\n{hidden}")).await;
        let said = client.closed().await;
        assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "{said}");
        assert!(said.starts_with("HTTP/1.1 400 "), "{said}");
    }
}

#[tokio::test]
async fn requests_may_be_sent_ahead_of_their_answers() {
    let server = serve(patient()).await;
    let mut client = server.connect().await;
    let requests: Vec<u8> = (0..50)
        .flat_map(|i| post("/in/drones", "", format!("{{\"type\":\"Point\",\"coordinates\":[{i},1]}}")))
        .collect();
    client.send(requests).await;
    for _ in 0..50 {
        assert_eq!(client.reply().await.status, 202);
    }
}

#[tokio::test]
async fn a_request_in_progress_is_finished_before_the_receiver_ends() {
    let server = serve(patient()).await;
    let mut idle = server.connect().await;
    idle.send(post("/in/drones", "", r#"{"type":"Point","coordinates":[1,1]}"#)).await;
    assert_eq!(idle.reply().await.status, 202);
    let mut silent = server.connect().await;
    server.store.held.store(true, SeqCst);
    let mut busy = server.connect().await;
    busy.send(post("/in/drones", "", POINT)).await;
    server.store.begun(2).await;

    server.stop.send(()).unwrap();
    assert_eq!(idle.closed().await, "");
    assert_eq!(silent.closed().await, "");
    assert!(TcpStream::connect(server.address).await.is_err(), "no more connections are taken");
    assert!(!server.running.is_finished());
    server.store.released.notify_waiters();
    let reply = busy.reply().await;
    assert_eq!((reply.status, reply.header("connection")), (202, Some("close")), "{reply:?}");
    let drained = tokio::time::timeout(PATIENCE, server.running).await.unwrap().unwrap();
    assert_eq!(drained, Drained { cut_off: 0 });
}

#[tokio::test]
async fn a_request_that_never_ends_does_not_keep_the_receiver_from_ending() {
    let server = serve(Limits { shutdown: SHORT, ..patient() }).await;
    server.store.held.store(true, SeqCst);
    let mut busy = server.connect().await;
    busy.send(post("/in/drones", "", POINT)).await;
    server.store.begun(1).await;
    server.stop.send(()).unwrap();
    let drained = tokio::time::timeout(PATIENCE, server.running).await.unwrap().unwrap();
    assert_eq!(drained, Drained { cut_off: 1 });
    assert_eq!(busy.closed().await, "");
}
