//! The API over real sockets, on an embedded store in memory. Every answer is compared with `docs/openapi.json`.

mod access;
mod jobs;
mod reading;
mod stream;

use super::{Client, PATIENCE, Reply, TOKEN};
use crate::api::{Api, OPENAPI, PREFIX, ROUTES};
use crate::serve::listen::Drained;
use crate::serve::metrics::Metrics;
use crate::serve::{Gateway, Limits, Listeners, Parts, Route, run};
use geonce::clock::SystemClock;
use geonce::intake::{Intake, Invalid, Source};
use geonce::store::{self, Access as StoreAccess, Options, Store};
use geonce_key::Policy;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A bow tie: kept as dead.
const BROKEN: &str = r#"{"type":"Polygon","coordinates":[[[0,0],[1,1],[1,0],[0,1],[0,0]]]}"#;

/// A gateway without sinks: what is accepted waits, what is broken is dead.
struct Gate {
    address: SocketAddr,
    store: Arc<dyn Store>,
    gateway: Arc<Gateway>,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Drained>,
}

impl Gate {
    async fn start() -> Gate {
        let store = store::open("sqlite::memory:", &Options::default(), StoreAccess::Gateway, Path::new("")).unwrap();
        Gate::with(store).await
    }

    async fn with(store: Arc<dyn Store>) -> Gate {
        Gate::at(store, super::api(), None).await
    }

    async fn at(store: Arc<dyn Store>, api: Api, door: Option<TcpListener>) -> Gate {
        let clock = Arc::new(SystemClock);
        let policy = Policy { scope: "drones".to_owned(), ..Policy::default() };
        let mut source = Source::new("drones", policy, &["zones".to_owned()]).unwrap();
        source.invalid = Invalid::Dead;
        let route = Route {
            source: Arc::new(source),
            fresh_status: 202,
            ack_within: Duration::from_secs(5),
            body_bytes_max: 1 << 20,
        };
        let gateway = Arc::new(Gateway::new(Parts {
            store: store.clone(),
            intake: Intake::new(store.clone(), clock.clone()),
            clock,
            routes: vec![route],
            limits: Limits::default(),
            checks: Vec::new(),
            metrics: Metrics::new(["drones"], ["zones"]),
            api,
        }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let serving = gateway.clone();
        let running = tokio::spawn(async move {
            run(serving, Listeners { senders: listener, api: door }, async {
                let _ = stopped.await;
            })
            .await
        });
        Gate { address, store, gateway, stop, running }
    }

    async fn raw(&self, request: impl AsRef<[u8]>) -> Reply {
        let mut client = Client { stream: TcpStream::connect(self.address).await.unwrap(), read: Vec::new() };
        client.send(request).await;
        client.reply().await
    }

    /// A request with the token; `path` is below `/api/v1`.
    async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Reply {
        let reply = self.raw(request(method, path, body)).await;
        conforms(method, path, &reply);
        reply
    }

    async fn get(&self, path: &str) -> Value {
        let reply = self.ask("GET", path, None).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }

    async fn post(&self, path: &str, body: Value) -> Reply {
        self.ask("POST", path, Some(&body)).await
    }

    /// Sends payloads to the source; their receipts.
    async fn send(&self, lines: &str) -> Value {
        let reply = self.raw(super::post("/in/drones", "content-type: application/x-ndjson\r\n", lines)).await;
        assert_eq!(reply.status, 202, "{reply:?}");
        reply.json()
    }

    /// So many points, a row each.
    async fn points(&self, count: usize) {
        for start in (0..count).step_by(500) {
            let point = |i: usize| format!("{{\"type\":\"Point\",\"coordinates\":[{}.5,{}]}}\n", i % 170, i / 170);
            self.send(&(start..count.min(start + 500)).map(point).collect::<String>()).await;
        }
    }

    /// Waits until a job has ended.
    async fn ended(&self, path: &str) -> Value {
        let look = async {
            loop {
                let job = self.get(path).await;
                if !matches!(job["state"].as_str(), Some("planned" | "running")) {
                    return job;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, look).await.expect("the job should end")
    }
}

fn request(method: &str, path: &str, body: Option<&Value>) -> String {
    let head = format!("{method} {PREFIX}{path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n");
    match body {
        None => format!("{head}\r\n"),
        Some(body) => {
            let text = body.to_string();
            let length = text.len();
            format!("{head}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{text}")
        }
    }
}

/// The document, in which an object has no members but those that are described.
static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let mut document: Value = serde_json::from_str(OPENAPI).unwrap();
    close(&mut document["components"]["schemas"]);
    document
});

fn close(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(close);
            let described = members.get("properties").is_some_and(Value::is_object);
            if described && members.get("type").is_some_and(|of| of == "object") {
                members.entry("additionalProperties").or_insert(Value::Bool(false));
            }
        }
        Value::Array(values) => values.iter_mut().for_each(close),
        _ => {}
    }
}

/// The operation that a request is described by, if it is.
fn operation(method: &str, path: &str) -> Option<&'static Value> {
    let path = path.split('?').next().unwrap_or_default();
    let parts: Vec<&str> = path.split('/').collect();
    let fits = |template: &str| {
        let wanted: Vec<&str> = template.split('/').collect();
        wanted.len() == parts.len() && wanted.iter().zip(&parts).all(|(a, b)| a == b || *a == "{id}")
    };
    let (_, template, _) = ROUTES.iter().find(|(verb, template, _)| *verb == method && fits(template))?;
    Some(&DOCUMENT["paths"][format!("{PREFIX}{template}")][method.to_lowercase()])
}

/// Whether an answer is as the document says.
fn conforms(method: &str, path: &str, reply: &Reply) {
    assert_eq!(reply.header("cache-control"), Some("no-store"), "{reply:?}");
    let Some(operation) = operation(method, path) else { return };
    let status = reply.status.to_string();
    let mut answer = &operation["responses"][&status];
    if let Some(shared) = answer["$ref"].as_str() {
        answer = DOCUMENT.pointer(&shared[1..]).unwrap();
    }
    assert!(answer.is_object(), "{method} {path}: {status} is not described: {reply:?}");
    for (name, _) in answer["headers"].as_object().into_iter().flatten() {
        assert!(reply.header(name).is_some(), "{method} {path}: {status} has no {name}");
    }
    let Some(contents) = answer["content"].as_object() else {
        assert!(reply.body.is_empty());
        return;
    };
    let kind = reply.header("content-type").unwrap().split(';').next().unwrap();
    let content = contents.get(kind).unwrap_or_else(|| panic!("{method} {path}: {kind} is not described"));
    if kind.ends_with("json") && content["schema"].is_object() {
        let mut schema = content["schema"].clone();
        schema["components"] = DOCUMENT["components"].clone();
        let schema = jsonschema::validator_for(&schema).unwrap();
        let answer = reply.json();
        let wrong: Vec<String> =
            schema.iter_errors(&answer).map(|error| format!("{} {error}", error.instance_path())).collect();
        assert!(wrong.is_empty(), "{method} {path}: {wrong:?} in {answer}");
    }
}

#[test]
fn the_document_has_every_route_and_no_other() {
    let mut described: Vec<(String, String)> = Vec::new();
    for (path, operations) in DOCUMENT["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let below = path.strip_prefix(PREFIX).unwrap();
            described.push((method.to_uppercase(), below.to_owned()));
            let open = operation["security"] == json!([]);
            assert_eq!(open, below == "/openapi.json", "{path} {method}");
            let ids =
                operation["parameters"].as_array().into_iter().flatten().filter(|one| one["in"] == "path").count();
            assert_eq!(ids, below.matches("{id}").count(), "{path} {method}");
        }
    }
    let mut routes: Vec<_> =
        ROUTES.iter().map(|(method, path, _)| ((*method).to_owned(), (*path).to_owned())).collect();
    described.sort();
    routes.sort();
    assert_eq!(described, routes);
}

#[test]
fn every_schema_of_the_document_is_one() {
    for (name, schema) in DOCUMENT["components"]["schemas"].as_object().unwrap() {
        let mut whole = schema.clone();
        whole["components"] = DOCUMENT["components"].clone();
        jsonschema::validator_for(&whole).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
