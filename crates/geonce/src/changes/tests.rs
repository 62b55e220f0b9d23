//! Announced changes, fetched from servers on loopback that do what servers and senders do. What they answer is built from
//! "Extract Changes (Feature Service)" of the `ArcGIS` REST API.

mod answers;
mod places;

use super::{Changes, Fetcher, Options};
use crate::clock::{ManualClock, Timestamp};
use crate::event::{Class, State};
use crate::intake::{Announced, Arrival, FeatureReceipt, Intake, Preset, Source};
use crate::sink::{Outgoing, Sink as _, Written};
use crate::store::{self, Access, Filter, ListRequest, Options as StoreOptions, Record, Store};
use geonce_key::policy::Deletion;
use geonce_key::split::Format;
use geonce_key::{Input, Pointer, Policy, Property, Reader};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// 2026-11-15T00:00:00Z.
const NOW: Timestamp = Timestamp::from_millis(1_794_700_800_000);
const EXTRACT: &str = "/arcgis/rest/services/Hydrants/FeatureServer/extractChanges";
const GUID: &str = "7C5C0000-0000-0000-0000-000000000001";

/// A request as a server saw it.
#[derive(Clone, Debug)]
struct Seen {
    method: String,
    target: String,
    head: String,
    body: String,
}

impl Seen {
    fn path(&self) -> &str {
        self.target.split('?').next().unwrap()
    }
}

/// A server that writes bytes, one answer for each connection.
struct Site {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Site {
    /// Answers the n-th request, from 0, with what `answer` says.
    async fn new(answer: impl Fn(usize, &Seen) -> Vec<u8> + Send + Sync + 'static) -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let shared = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let Some(request) = request(&mut stream).await else { continue };
                let at = {
                    let mut seen = shared.lock().unwrap();
                    seen.push(request.clone());
                    seen.len() - 1
                };
                let _ = stream.write_all(&answer(at, &request)).await;
                let _ = stream.shutdown().await;
            }
        });
        Site { address, seen }
    }

    /// Always answers this.
    async fn saying(answer: Vec<u8>) -> Site {
        Site::new(move |_, _| answer.clone()).await
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    fn url(&self, target: &str) -> String {
        format!("http://gis.example:{}{target}", self.address.port())
    }
}

async fn request(stream: &mut TcpStream) -> Option<Seen> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let mut words = head.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    Some(Seen { method, target, head, body: String::from_utf8(body).unwrap() })
}

fn reply(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len()).into_bytes()
}

fn ok(body: &Value) -> Vec<u8> {
    reply("200 OK", "content-type: application/json\r\n", &body.to_string())
}

fn hydrant(number: u64, x: f64) -> Value {
    let id = format!("{{7c5c0000-0000-0000-0000-{number:012}}}");
    json!({ "attributes": { "OBJECTID": number, "GlobalID": id, "state": "open" },
            "geometry": { "x": x, "y": 52.5, "spatialReference": { "wkid": 4326 } } })
}

/// An answer with these changes of layer 0.
fn edits(features: &Value) -> Value {
    json!({ "layerServerGens": [{ "id": 0, "minServerGen": 100, "serverGen": 110 }],
            "edits": [{ "id": 0, "features": features }] })
}

fn one_add() -> Value {
    edits(&json!({ "adds": [hydrant(1, 13.25)], "updates": [], "deleteIds": [] }))
}

struct Rig {
    store: Arc<dyn Store>,
    intake: Intake,
    source: Arc<Source>,
    sink: Changes,
    waits: Arc<Mutex<Vec<Duration>>>,
}

impl Rig {
    /// A source whose announcements are fetched from `site`.
    fn new(site: &Site) -> Rig {
        Rig::with(site, |_| {}, |_| {})
    }

    fn with(site: &Site, change: impl FnOnce(&mut Options), policy_change: impl FnOnce(&mut Policy)) -> Rig {
        let mut policy = Policy { version: Pointer::parse("/arcgis/serverGen").ok(), ..Policy::default() };
        policy.delete =
            Some(Deletion { at: Pointer::parse("/arcgis/deleted").unwrap(), equals: Property::Boolean(true) });
        policy_change(&mut policy);
        let mut source = Source::new("hydrants", policy, &["zones".to_owned()]).unwrap();
        source.preset = Preset::Arcgis;
        source.features_max = 100;
        source.announced = Some(Announced::new(&source.policy, &super::sink_name("hydrants")));
        let source = Arc::new(source);
        let store = store::open("sqlite::memory:", &StoreOptions::default(), Access::Gateway, Path::new(".")).unwrap();
        let intake = || Intake::new(Arc::clone(&store), Arc::new(ManualClock::new(NOW)));
        let mut options = Options {
            hosts: vec![site.url("")],
            allow: vec!["127.0.0.0/8".to_owned()],
            timeout: Duration::from_secs(20),
            ..Options::default()
        };
        change(&mut options);
        let mut fetcher = Fetcher::new("hydrants", &options).unwrap();
        // Every name is that of this machine.
        fetcher.caller.resolve =
            Arc::new(|_, port| Box::pin(async move { Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]) }));
        let waits: Arc<Mutex<Vec<Duration>>> = Arc::default();
        let waited = Arc::clone(&waits);
        fetcher.wait = Arc::new(move |wait| {
            waited.lock().unwrap().push(wait);
            Box::pin(std::future::ready(()))
        });
        let sink = Changes { fetcher, intake: intake(), source: Arc::clone(&source) };
        Rig { intake: intake(), store, source, sink, waits }
    }

    /// What is recorded of an announcement.
    async fn announce(&self, changes_url: &str) -> Outgoing {
        let body = json!({ "name": "hook", "layerId": 0, "orgId": "o", "serviceName": "Hydrants", "lastUpdatedTime": 1,
                           "changesUrl": changes_url, "events": ["FeaturesCreated"] });
        let arrival = Arrival { body: body.to_string().into(), format: Format::Json, ..Arrival::default() };
        let receipt = self.intake.receive(&self.source, arrival).await.unwrap();
        let (FeatureReceipt::Accepted { event, .. } | FeatureReceipt::Duplicate { of: event, .. }) =
            receipt.features[0]
        else {
            panic!("{receipt:?}");
        };
        let filter = Filter { id: Some(event), ..Filter::default() };
        let record = self.records(filter).await.remove(0);
        let announced = self.source.announced.as_ref().unwrap();
        let payload = record.payload.unwrap();
        let feature = Reader::new(&announced.policy, None).unwrap().read(Input::json(&payload)).unwrap();
        assert_eq!(record.work.iter().map(|work| &*work.sink).collect::<Vec<_>>(), ["@fetch.hydrants"]);
        Outgoing {
            event,
            key: record.key,
            origin: None,
            source: record.source,
            received: record.received,
            version: feature.version.clone(),
            entity: feature.entity,
            content: record.content,
            rest: None,
            feature,
            form: record.form,
            payload,
            merge: None,
        }
    }

    async fn fetch_from(&self, url: &str) -> Written {
        let announcement = self.announce(url).await;
        self.sink.write(vec![announcement]).await.unwrap().remove(0)
    }

    /// Fetches what is announced at the usual place.
    async fn fetch(&self, site: &Site) -> Written {
        self.fetch_from(&site.url(&format!("{EXTRACT}?serverGens=[100,110]&async=true&returnAttachments=false"))).await
    }

    async fn records(&self, filter: Filter) -> Vec<Record> {
        self.store.list(ListRequest { filter, limit: 1_000, payloads: true, before: None }).await.unwrap()
    }

    /// The features that were recorded, with their states, in order of acceptance.
    async fn features(&self) -> Vec<(State, Value, Record)> {
        let mut records = self.records(Filter::default()).await;
        records.retain(|record| record.work.iter().all(|work| *work.sink != *"@fetch.hydrants"));
        records.reverse();
        let feature = |record: Record| {
            let payload = serde_json::from_slice(record.payload.as_ref().unwrap()).unwrap();
            (record.state, payload, record)
        };
        records.into_iter().map(feature).collect()
    }
}

/// What an announcement became.
#[track_caller]
fn fetched(written: &Written) -> Value {
    let Written::Became(result) = written else { panic!("{written:?}") };
    serde_json::from_str::<Value>(result.as_str()).unwrap()["fetched"].take()
}

fn counts(accepted: u64, duplicate: u64, conflict: u64, refused: u64) -> Value {
    json!({ "accepted": accepted, "duplicate": duplicate, "conflict": conflict, "refused": refused })
}

/// The code of what is dead.
#[track_caller]
fn dead(written: &Written) -> (&str, Class) {
    let Written::Dead(cause) = written else { panic!("{written:?}") };
    (&cause.code, cause.class)
}

/// The code of what is tried again, whether it counts, and when.
#[track_caller]
fn again(written: &Written) -> (&str, bool, Option<Duration>) {
    let Written::Retry { cause, counts, after } = written else { panic!("{written:?}") };
    assert_eq!(cause.class, Class::Unavailable, "a redelivery revives it");
    (&cause.code, *counts, *after)
}
