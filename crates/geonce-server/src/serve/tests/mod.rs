//! The receiver over real sockets, with a store whose answers a test can choose.

mod answers;
mod api;
mod clients;
mod operations;
mod presets;
mod store;

use super::listen::Drained;
use super::metrics::Metrics;
use super::{Check, Gateway, Limits, Parts, Route, run};
use crate::api::{Access, Api, Stream};
use geonce::clock::SystemClock;
use geonce::intake::{Intake, Source};
use geonce::signature::{LiveSecret, Scheme, Verifier};
use geonce_key::Policy;
use geonce_key::policy::Secret;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use store::TestStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// No test waits longer than this for anything.
const PATIENCE: Duration = Duration::from_secs(20);

const POINT: &str = r#"{"type":"Point","coordinates":[13.4,52.5]}"#;

const TOKEN: &str = "0123456789abcdef";

/// The API for whoever has [`TOKEN`], on this machine.
fn api() -> Api {
    let access = Access::new(Secret::new(TOKEN), false, false).unwrap();
    Api::new(access, tokio::runtime::Handle::current(), Stream::new(1), "test")
}

/// What a test changes about the gateway.
struct Setup {
    limits: Limits,
    body_bytes_max: usize,
    features_max: usize,
    ack_within: Duration,
    fresh_status: u16,
    checks: Vec<Check>,
}

impl Default for Setup {
    fn default() -> Self {
        let ack_within = Duration::from_secs(5);
        let (limits, checks) = (Limits::default(), Vec::new());
        Setup { limits, body_bytes_max: 100_000, features_max: 1_000, ack_within, fresh_status: 202, checks }
    }
}

struct Server {
    address: SocketAddr,
    store: Arc<TestStore>,
    gateway: Arc<Gateway>,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Drained>,
}

impl Server {
    /// A gateway with an open source `drones`, a source `signed` that wants the bearer token `letmein`, and a source
    /// `arcgis` with the same secret.
    async fn start(setup: Setup) -> Server {
        let store = Arc::new(TestStore::default());
        let clock = Arc::new(SystemClock);
        let route = |name: &str, verify| {
            let policy = Policy { scope: name.to_owned(), ..Policy::default() };
            let mut source = Source::new(name, policy, &["zones".to_owned()]).unwrap();
            source.features_max = setup.features_max;
            source.verify = verify;
            Route {
                source: Arc::new(source),
                fresh_status: setup.fresh_status,
                ack_within: setup.ack_within,
                body_bytes_max: setup.body_bytes_max,
            }
        };
        let verifier = |scheme| {
            let secret = LiveSecret { secret: Secret::new("letmein".to_owned()), until: None };
            Some(Verifier::new(scheme, vec![secret]).unwrap())
        };
        let gateway = Arc::new(Gateway::new(Parts {
            store: store.clone(),
            intake: Intake::new(store.clone(), clock.clone()),
            clock,
            routes: vec![
                route("drones", None),
                route("signed", verifier(Scheme::Bearer)),
                route("arcgis", verifier(Scheme::Arcgis)),
            ],
            limits: setup.limits,
            checks: setup.checks,
            metrics: Metrics::new(["drones", "signed", "arcgis"], ["zones"]),
            api: api(),
        }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let serving = gateway.clone();
        let running = tokio::spawn(async move {
            run(serving, listener, async {
                let _ = stopped.await;
            })
            .await
        });
        Server { address, store, gateway, stop, running }
    }

    async fn connect(&self) -> Client {
        Client { stream: TcpStream::connect(self.address).await.unwrap(), read: Vec::new() }
    }

    /// One request on a connection of its own.
    async fn ask(&self, request: impl AsRef<[u8]>) -> Reply {
        let mut client = self.connect().await;
        client.send(request).await;
        client.reply().await
    }

    /// One event, with further header lines.
    async fn post(&self, path: &str, headers: &str, body: impl AsRef<[u8]>) -> Reply {
        self.ask(post(path, headers, body)).await
    }
}

fn post(path: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = body.len();
    let mut request =
        format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n{headers}\r\n").into_bytes();
    request.extend_from_slice(body);
    request
}

struct Client {
    stream: TcpStream,
    read: Vec<u8>,
}

#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks the form of a problem, and its code.
    fn is_problem(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let json = self.json();
        assert_eq!(json["code"], code, "{self:?}");
        assert_eq!(json["status"], status);
        assert_eq!(json["type"], format!("urn:geonce:{code}"));
        assert!(json["title"].is_string() && json["detail"].is_string());
    }
}

impl Client {
    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // A server may answer and close before it has read everything.
        let _ = tokio::time::timeout(PATIENCE, self.stream.write_all(bytes.as_ref())).await.unwrap();
    }

    /// Reads more; whether the server has closed the connection.
    async fn more(&mut self) -> bool {
        let read = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.read)).await;
        !matches!(read.expect("the server should have said something or closed"), Ok(1..))
    }

    /// The next reply; those of status 100 are left out.
    async fn reply(&mut self) -> Reply {
        loop {
            let reply = self.next_reply().await;
            if reply.status != 100 {
                return reply;
            }
        }
    }

    async fn next_reply(&mut self) -> Reply {
        loop {
            if let Some(end) = self.read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                let head = String::from_utf8(self.read[..end].to_vec()).unwrap();
                let status = head.split(' ').nth(1).unwrap().parse().unwrap();
                let mut reply = Reply { status, head, body: String::new() };
                let length: usize = reply.header("content-length").map_or(0, |length| length.parse().unwrap());
                while self.read.len() < end + 4 + length {
                    assert!(!self.more().await, "the reply is cut short: {reply:?}");
                }
                let rest = self.read.split_off(end + 4 + length);
                reply.body = String::from_utf8(self.read.split_off(end + 4)).unwrap();
                self.read = rest;
                return reply;
            }
            assert!(!self.more().await, "closed without a reply: {:?}", String::from_utf8_lossy(&self.read));
        }
    }

    /// Waits until the server has closed the connection; what it said before.
    async fn closed(&mut self) -> String {
        while !self.more().await {}
        String::from_utf8_lossy(&self.read).into_owned()
    }
}
