//! The HTTP sink against real servers on loopback. Addresses and URLs are judged in `addresses`, TLS in `encrypted`.

mod addresses;
mod encrypted;

use super::answer::RETRY_AFTER_MAX;
use super::connection::{Resolve, system_resolver};
use super::{Shared, build};
use crate::clock::{ManualClock, Timestamp};
use crate::event::{Class, Ids, Outcome};
use crate::signature::{LiveSecret, Scheme, Verifier};
use crate::sink::{Mode, Options, Outgoing, Sink, Written};
use bytes::Bytes;
use geonce_key::policy::Secret;
use geonce_key::{Encoding, Form, Input, Keyer, Policy, Reader};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// 2026-11-15T00:00:00Z, a Sunday.
const NOW: Timestamp = Timestamp::from_millis(1_794_700_800_000);

type Reply = Response<Full<Bytes>>;

/// What a server saw.
#[derive(Default)]
struct Seen {
    requests: Mutex<Vec<(String, HeaderMap, Bytes)>>,
    connections: AtomicUsize,
}

impl Seen {
    fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

fn status(code: u16) -> hyper::http::response::Builder {
    Response::builder().status(code)
}

fn empty(builder: hyper::http::response::Builder) -> Reply {
    builder.body(Full::default()).unwrap()
}

/// Serves one connection, answering the n-th request of the server with `reply(n)`.
async fn serve<S>(stream: S, seen: Arc<Seen>, reply: Arc<dyn Fn(usize) -> Reply + Send + Sync>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    seen.connections.fetch_add(1, Ordering::SeqCst);
    let service = service_fn(move |request: Request<Incoming>| {
        let (seen, reply) = (Arc::clone(&seen), Arc::clone(&reply));
        async move {
            let (head, body) = request.into_parts();
            let line = format!("{} {}", head.method, head.uri);
            let body = body.collect().await.unwrap().to_bytes();
            let at = {
                let mut requests = seen.requests.lock().unwrap();
                requests.push((line, head.headers, body));
                requests.len() - 1
            };
            Ok::<_, Infallible>(reply(at))
        }
    });
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// A server on loopback.
async fn server(reply: impl Fn(usize) -> Reply + Send + Sync + 'static) -> (SocketAddr, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(Seen::default());
    let (shared, reply) = (Arc::clone(&seen), Arc::new(reply));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&shared), reply.clone()));
        }
    });
    (address, seen)
}

/// A server that reads a request's head and then writes these bytes; the connection stays open or is closed.
async fn raw_server(bytes: Vec<u8>, closes: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let bytes = Arc::new(bytes);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let bytes = Arc::clone(&bytes);
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                let _ = stream.read(&mut buffer).await;
                let _ = stream.write_all(&bytes).await;
                if !closes {
                    // Until the client leaves.
                    while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
                }
            });
        }
    });
    address
}

fn options() -> Options {
    Options { allow: vec!["127.0.0.0/8".to_owned()], timeout: Duration::from_secs(20), ..Options::default() }
}

fn sink_with(url: &str, options: &Options, resolve: Resolve) -> Shared {
    Shared(Arc::new(build("out", url, options, None, resolve, Arc::new(ManualClock::new(NOW))).unwrap()))
}

fn sink(address: SocketAddr, options: &Options) -> Shared {
    sink_with(&format!("http://{address}/events?a=b"), options, system_resolver())
}

fn outgoing(form: Form, payload: &str, crs: Option<u32>) -> Outgoing {
    let input = Input { form, bytes: payload.as_bytes(), crs };
    let policy = Policy::default();
    Outgoing {
        event: Ids::new().next(NOW),
        key: Keyer::new(&policy).unwrap().key(input).unwrap().fingerprint,
        origin: None,
        source: "drones".into(),
        received: NOW,
        version: None,
        entity: None,
        content: [0; 32],
        rest: None,
        feature: Reader::new(&policy, None).unwrap().read(input).unwrap(),
        form,
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        merge: None,
    }
}

fn point(n: usize) -> Outgoing {
    outgoing(Form::Json, &format!("{{ \"type\":\"Point\", \"coordinates\":[{n}.50,  1e0] }}"), None)
}

async fn one(sink: &Shared) -> Written {
    sink.write(vec![point(1)]).await.unwrap().remove(0)
}

/// Class, code and whether it counts; `None` for done.
fn judged(written: &Written) -> Option<(&'static str, Class, String, bool)> {
    match written {
        Written::Done(_) | Written::Became(_) => None,
        Written::Retry { cause, counts, .. } => Some(("retry", cause.class, cause.code.clone(), *counts)),
        Written::Dead(cause) => Some(("dead", cause.class, cause.code.clone(), true)),
    }
}

#[tokio::test]
async fn an_event_is_posted_as_it_was_delivered_and_its_signature_verifies() {
    let secret = Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let (address, seen) = server(|_| empty(status(204))).await;
    let sink = sink(address, &Options { secret: Some(secret.clone()), ..options() });
    let event = point(1);
    let answer = sink.write(vec![event.clone()]).await.unwrap();
    assert_eq!(answer, [Written::Done(Outcome::Applied)]);

    let (line, headers, body) = seen.requests.lock().unwrap().remove(0);
    let key = event.key.text(Encoding::Base64);
    assert_eq!(line, "POST /events?a=b");
    assert_eq!(body, event.payload, "byte for byte");
    assert_eq!(headers["webhook-id"], key.as_str());
    assert_eq!(headers["idempotency-key"], format!("\"{key}\"").as_str());
    assert_eq!(headers["webhook-timestamp"], "1794700800");
    assert_eq!(headers["content-type"], "application/geo+json");
    assert_eq!(headers["user-agent"], concat!("geonce/", env!("CARGO_PKG_VERSION")));
    assert_eq!(headers["host"], address.to_string().as_str());

    let verifier = Verifier::new(Scheme::StandardWebhooks, vec![LiveSecret { secret, until: None }]).unwrap();
    let request = crate::signature::Request { method: "POST", path: "/events?a=b", headers: &headers, body: &body };
    assert!(verifier.verify(&request, NOW).unwrap().covers("webhook-id"));
    let changed = crate::signature::Request { body: b"{}", ..request };
    assert!(verifier.verify(&changed, NOW).is_err());
}

#[tokio::test]
async fn without_a_secret_nothing_is_signed() {
    let (address, seen) = server(|_| empty(status(200))).await;
    one(&sink(address, &options())).await;
    assert!(!seen.requests.lock().unwrap()[0].1.contains_key("webhook-signature"));
}

#[tokio::test]
async fn geometries_in_other_forms_are_sent_as_features() {
    let (address, seen) = server(|_| empty(status(200))).await;
    let sink = sink(address, &options());
    let texts = [
        ("POINT (7.5 47.25)", r#"{"type":"Point","coordinates":[7.5,47.25]}"#),
        ("POINT Z (7.5 47.25 400)", r#"{"type":"Point","coordinates":[7.5,47.25,400.0]}"#),
        ("LINESTRING (0 0, 1 2)", r#"{"type":"LineString","coordinates":[[0.0,0.0],[1.0,2.0]]}"#),
        (
            "POLYGON ((0 0, 4 0, 4 4, 0 0), (2 1, 3 1, 3 2, 2 1))",
            r#"{"type":"Polygon","coordinates":[[[0.0,0.0],[4.0,0.0],[4.0,4.0],[0.0,0.0]],[[2.0,1.0],[3.0,1.0],[3.0,2.0],[2.0,1.0]]]}"#,
        ),
        ("MULTIPOINT ((1 2), (3 4))", r#"{"type":"MultiPoint","coordinates":[[1.0,2.0],[3.0,4.0]]}"#),
        (
            "GEOMETRYCOLLECTION (POINT (1 2))",
            r#"{"type":"GeometryCollection","geometries":[{"type":"Point","coordinates":[1.0,2.0]}]}"#,
        ),
    ];
    for (text, geometry) in texts {
        assert_eq!(judged(&sink.write(vec![outgoing(Form::Wkt, text, None)]).await.unwrap()[0]), None);
        let body = seen.requests.lock().unwrap().pop().unwrap().2;
        assert_eq!(body, format!(r#"{{"type":"Feature","geometry":{geometry},"properties":{{}}}}"#));
    }
    // GeoJSON knows one coordinate system: metres become degrees.
    sink.write(vec![outgoing(Form::Wkt, "POINT (500000 0)", Some(32631))]).await.unwrap();
    let body = seen.requests.lock().unwrap().pop().unwrap().2;
    let feature: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let lon = feature["geometry"]["coordinates"][0].as_f64().unwrap();
    assert!((lon - 3.0).abs() < 1e-9, "{feature}");
}

#[tokio::test]
async fn every_answer_means_what_the_table_says() {
    for (code, expected) in [
        (200, None),
        (202, None),
        (204, None),
        (300, Some(("dead", Class::Constraint, "http_redirect"))),
        (304, Some(("dead", Class::Constraint, "http_redirect"))),
        (308, Some(("dead", Class::Constraint, "http_redirect"))),
        (400, Some(("dead", Class::Schema, "http_400"))),
        (401, Some(("dead", Class::Permission, "http_401"))),
        (403, Some(("dead", Class::Permission, "http_403"))),
        (404, Some(("dead", Class::Schema, "http_404"))),
        (408, Some(("retry", Class::Unavailable, "http_408"))),
        (409, Some(("dead", Class::Schema, "http_409"))),
        (413, Some(("dead", Class::Schema, "http_413"))),
        (422, Some(("dead", Class::Schema, "http_422"))),
        (425, Some(("retry", Class::Unavailable, "http_425"))),
        (429, Some(("retry", Class::Unavailable, "http_429"))),
        (500, Some(("retry", Class::Unavailable, "http_500"))),
        (503, Some(("retry", Class::Unavailable, "http_503"))),
        (599, Some(("retry", Class::Unavailable, "http_599"))),
    ] {
        let (address, _) = server(move |_| empty(status(code))).await;
        let expected = expected.map(|(what, class, text)| (what, class, text.to_owned(), true));
        assert_eq!(judged(&one(&sink(address, &options())).await), expected, "{code}");
    }
}

#[tokio::test]
async fn what_goes_into_a_row_is_not_sent() {
    let (address, seen) = server(|_| empty(status(200))).await;
    let mut merged = point(1);
    merged.merge = Some(crate::sink::Merge { into: [0; 16], mean: false });
    let written = sink(address, &options()).write(vec![merged]).await.unwrap();
    assert_eq!(judged(&written[0]), Some(("dead", Class::Schema, "merge".to_owned(), true)));
    assert_eq!(seen.count(), 0);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (elsewhere, untouched) = server(|_| empty(status(200))).await;
    for code in [301, 302, 303, 307, 308] {
        let (address, seen) =
            server(move |_| empty(status(code).header("location", format!("http://{elsewhere}/")))).await;
        assert!(matches!(one(&sink(address, &options())).await, Written::Dead(_)));
        assert_eq!(seen.count(), 1);
    }
    assert_eq!((untouched.count(), untouched.connections.load(Ordering::SeqCst)), (0, 0));
}

#[tokio::test]
async fn retry_after_is_seconds_or_a_date_and_bounded() {
    for (text, expected) in [
        ("7", Some(Duration::from_secs(7))),
        ("0", Some(Duration::ZERO)),
        ("86400", Some(RETRY_AFTER_MAX)),
        ("99999999999999999999999", Some(RETRY_AFTER_MAX)),
        ("Sun, 15 Nov 2026 00:02:00 GMT", Some(Duration::from_mins(2))),
        ("Sunday, 15-Nov-26 00:02:00 GMT", Some(Duration::from_mins(2))),
        ("Sun Nov 15 00:02:00 2026", Some(Duration::from_mins(2))),
        ("Sat, 14 Nov 2026 23:00:00 GMT", Some(Duration::ZERO)),
        ("Thu, 31 Dec 2099 00:00:00 GMT", Some(RETRY_AFTER_MAX)),
        ("-5", None),
        ("soon", None),
        ("1.5", None),
    ] {
        let (address, _) = server(move |_| empty(status(503).header("retry-after", text))).await;
        let Written::Retry { after, counts: true, .. } = one(&sink(address, &options())).await else {
            panic!("{text}")
        };
        assert_eq!(after, expected, "{text}");
    }
}

#[tokio::test]
async fn an_endpoint_that_is_gone_is_asked_no_more() {
    let (address, seen) = server(|_| empty(status(410))).await;
    let sink = sink(address, &options());
    assert_eq!(judged(&one(&sink).await), Some(("dead", Class::Permission, "http_410".to_owned(), true)));
    assert_eq!(judged(&one(&sink).await), Some(("retry", Class::Permission, "http_gone".to_owned(), false)));
    assert_eq!(seen.count(), 1);
    assert_eq!(sink.check().await.unwrap_err().kind(), crate::error::Kind::Permission);
}

#[tokio::test]
async fn silence_is_no_answer() {
    let (short, long) = (Options { timeout: Duration::from_millis(300), ..options() }, options());
    let refused = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let mute = raw_server(Vec::new(), false).await;
    let closing = raw_server(Vec::new(), true).await;
    let torn = raw_server(b"HTTP/1.1 200 OK\r\ncontent-le".to_vec(), true).await;
    for (address, options, code) in [
        (refused, &long, "http_connect"),
        (mute, &short, "http_timeout"),
        (closing, &long, "http_lost"),
        (torn, &long, "http_lost"),
    ] {
        let written = one(&sink(address, options)).await;
        assert_eq!(judged(&written), Some(("retry", Class::Unavailable, code.to_owned(), false)));
    }
    let garbled = raw_server(b"SSH-2.0-OpenSSH_9.9\r\n\r\n".to_vec(), true).await;
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x-a: b\r\n".repeat(20_000));
    let headers = raw_server(many.into_bytes(), true).await;
    for address in [garbled, headers] {
        let written = one(&sink(address, &long)).await;
        assert_eq!(judged(&written), Some(("retry", Class::Unavailable, "http_protocol".to_owned(), true)));
    }
}

#[tokio::test]
async fn the_status_is_the_answer_however_long_its_body_is() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // Writes for as long as somebody reads, and says how much that was.
    let endless = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 4096];
        let _ = stream.read(&mut buffer).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n").await;
        let chunk = vec![b'x'; 1 << 16];
        let mut written = 0;
        while stream.write_all(&chunk).await.is_ok() {
            written += chunk.len();
        }
        written
    });
    assert_eq!(one(&sink(address, &options())).await, Written::Done(Outcome::Applied));
    // What the sink read, and what the system's buffers hold.
    let written = endless.await.unwrap();
    assert!(written < 32 << 20, "{written} bytes");

    let stalled = raw_server(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc".to_vec(), false).await;
    assert_eq!(one(&sink(stalled, &options())).await, Written::Done(Outcome::Applied));
}

#[tokio::test]
async fn a_batch_is_answered_in_order_over_few_connections() {
    let (address, seen) = server(|_| empty(status(200))).await;
    let sink = sink(address, &options());
    let batch: Vec<Outgoing> = (0..150).map(point).collect();
    let answers = sink.write(batch.clone()).await.unwrap();
    assert_eq!(answers, vec![Written::Done(Outcome::Applied); 150]);
    assert!(seen.connections.load(Ordering::SeqCst) <= super::IN_FLIGHT_MAX);
    let mut ids: Vec<String> = seen
        .requests
        .lock()
        .unwrap()
        .iter()
        .map(|(_, headers, _)| headers["webhook-id"].to_str().unwrap().to_owned())
        .collect();
    let mut keys: Vec<String> = batch.iter().map(|event| event.key.text(Encoding::Base64)).collect();
    ids.sort();
    keys.sort();
    assert_eq!(ids, keys);
    sink.close().await.unwrap();
}

#[tokio::test]
async fn one_refused_event_does_not_fail_its_batch() {
    let bad = point(3).key.text(Encoding::Base64);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let bad = bad.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let code = if request.headers()["webhook-id"] == bad.as_str() { 422 } else { 200 };
                async move { Ok::<_, Infallible>(empty(status(code))) }
            });
            tokio::spawn(async move {
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    let answers = sink(address, &options()).write((0..6).map(point).collect()).await.unwrap();
    let dead: Vec<usize> = (0..6).filter(|&at| matches!(answers[at], Written::Dead(_))).collect();
    assert_eq!((dead, answers.len()), (vec![3], 6));
}

#[tokio::test]
async fn an_endpoint_that_is_down_costs_a_batch_one_wait() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let resolve: Resolve = Arc::new(move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Err(std::io::Error::other("no such name")) })
    });
    let sink = sink_with("http://example.com/", &options(), resolve);
    let answers = sink.write((0..100).map(point).collect()).await.unwrap();
    assert!(answers.iter().all(|answer| matches!(answer, Written::Retry { counts: false, .. })));
    assert!(calls.load(Ordering::SeqCst) <= super::IN_FLIGHT_MAX);
}

#[tokio::test]
async fn an_idle_connection_that_fails_is_replaced() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answered = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&answered);
    // Each connection answers one request, takes another one, and closes without a word.
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                let _ = stream.read(&mut buffer).await;
                counted.fetch_add(1, Ordering::SeqCst);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
                let _ = stream.read(&mut buffer).await;
            });
        }
    });
    let sink = sink(address, &options());
    for _ in 0..5 {
        assert_eq!(one(&sink).await, Written::Done(Outcome::Applied));
    }
    assert_eq!(answered.load(Ordering::SeqCst), 5);
}

#[tokio::test]
async fn check_connects_and_sends_nothing() {
    let (address, seen) = server(|_| empty(status(200))).await;
    let sink = sink(address, &options());
    let notes = sink.check().await.unwrap();
    assert_eq!(notes.len(), 3, "{notes:?}");
    assert_eq!((seen.count(), sink.proofs(vec![point(1).key]).await.unwrap()), (0, None));
    assert_eq!(sink.applied(None, 10).await.unwrap(), None);
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = self::sink(closed, &options()).check().await.unwrap_err();
    assert!(error.is_transient(), "{error}");
}

#[test]
fn settings_of_other_sinks_are_refused() {
    let refused = |options: Options| {
        let built =
            build("out", "http://example.com/", &options, None, system_resolver(), Arc::new(ManualClock::new(NOW)));
        built.err().unwrap().to_string()
    };
    assert!(refused(Options { layer: Some("a".to_owned()), ..options() }).contains("layer"));
    assert!(refused(Options { mode: Mode::Upsert { arrival: true }, ..options() }).contains("mode"));
    assert!(refused(Options { crs: 3857, ..options() }).contains("crs"));
    assert!(refused(Options { secret: Some(Secret::new("")), ..options() }).contains("secret"));
    assert!(refused(Options { secret: Some(Secret::new("whsec_%")), ..options() }).contains("whsec_"));
}
