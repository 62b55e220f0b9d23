//! What providers send, over HTTP, through a configured gateway and its workers, into a `GeoPackage`.

use super::{Client, PATIENCE, Reply, post};
use crate::config::{self, Overrides, Settings};
use crate::gateway;
use crate::serve::metrics::Metrics;
use crate::serve::{Gateway, Parts, run};
use geonce::clock::{Clock, SystemClock};
use geonce::delivery::{self, Delivery, Destination, Unobserved};
use geonce::intake::Intake;
use geonce::sink;
use geonce::store::{self, Access, Ledger, ListRequest, Store};
use geonce_key::{Encoding, Input, Keyer, Limits, wkb, wkt};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

/// A gateway from a configuration, with the sink `features` as it is without any.
struct Flow {
    folder: tempfile::TempDir,
    settings: Settings,
    address: SocketAddr,
    store: Arc<dyn Store>,
    destination: Arc<Destination>,
    stop: (oneshot::Sender<()>, watch::Sender<bool>),
    tasks: tokio::task::JoinSet<()>,
}

/// A row of the layer.
#[derive(Debug, PartialEq)]
struct Row {
    key: String,
    /// The geometry as WKT.
    geometry: Option<String>,
}

impl Flow {
    async fn start(source: &str) -> Flow {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("geonce.toml");
        std::fs::write(&file, format!("[source.a]\nallow_unsigned = true\n{source}\n")).unwrap();
        let data = folder.path().to_owned();
        let overrides = Overrides { config: Some(file), data: Some(data.clone()), ..Overrides::default() };
        let settings = config::load(&overrides).unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let store = store::open("sqlite:geonce.db", &settings.store.options, Access::Gateway, &data).unwrap();
        let intake = Intake::new(Arc::clone(&store), Arc::clone(&clock));
        let delivery = Delivery {
            store: Arc::clone(&store),
            clock: Arc::clone(&clock),
            policies: settings.sources.iter().map(|(name, s)| (Arc::from(name.as_str()), s.policy.clone())).collect(),
            near: std::collections::HashMap::new(),
            lateness: gateway::lateness(&settings),
            lease: settings.store.lease,
            holder: "test".into(),
            observer: Arc::new(Unobserved),
            pressure: intake.pressure(),
        };
        let routes: Vec<_> =
            settings.sources.iter().map(|(name, s)| gateway::route(name, s, &settings).unwrap()).collect();
        let fetchers = gateway::fetchers(&settings, &routes, &store, &clock).unwrap();
        let announcements = Arc::new(gateway::of_announcements(&settings, &delivery));
        let features = &settings.sinks["features"];
        let sink = sink::open("features", &features.url, &features.options, &data).unwrap();
        let destination = Arc::new(Destination::new("features", sink));
        let gateway = Gateway::new(Parts {
            store: Arc::clone(&store),
            intake,
            clock,
            routes,
            limits: settings.limits.receiver.clone(),
            checks: Vec::new(),
            metrics: Metrics::new(["a"], ["features"]),
            api: super::api(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop_serving, stopped_serving) = oneshot::channel();
        let (stop_workers, stopped_workers) = watch::channel(false);
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move {
            let stopped = async {
                let _ = stopped_serving.await;
            };
            run(Arc::new(gateway), listener, stopped).await;
        });
        for fetcher in fetchers {
            tasks.spawn(delivery::run(Arc::clone(&announcements), fetcher, stopped_workers.clone()));
        }
        tasks.spawn(delivery::run(Arc::new(delivery), Arc::clone(&destination), stopped_workers));
        Flow { folder, settings, address, store, destination, stop: (stop_serving, stop_workers), tasks }
    }

    async fn post(&self, headers: &str, body: &str) -> Reply {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let mut client = Client { stream, read: Vec::new() };
        client.send(post("/in/a", headers, body)).await;
        client.reply().await
    }

    /// The books, once nothing waits.
    async fn drained(&self) -> Ledger {
        // Refusals are counted along with the next write.
        self.store.sweep(1, SystemClock.now()).await.unwrap();
        let drained = async {
            loop {
                let ledger = self.store.status().await.unwrap().ledgers.get("a").copied().unwrap_or_default();
                if ledger.waiting == 0 {
                    return ledger;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, drained).await.expect("everything is delivered")
    }

    /// Ends it once nothing waits; the books, and the rows in the order of their keys.
    async fn end(mut self) -> (Ledger, Vec<Row>) {
        let ledger = self.drained().await;
        let _ = self.stop.0.send(());
        self.stop.1.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
        self.destination.sink.close().await.unwrap();
        let file = rusqlite::Connection::open(self.folder.path().join("features.gpkg")).unwrap();
        let mut rows = file.prepare("SELECT geonce_key, geom FROM features ORDER BY geonce_key").unwrap();
        let row = |row: &rusqlite::Row<'_>| {
            let geometry = row.get::<_, Option<Vec<u8>>>(1)?.map(|blob| geometry(&blob));
            Ok(Row { key: row.get(0)?, geometry })
        };
        (ledger, rows.query_map([], row).unwrap().map(Result::unwrap).collect())
    }

    /// The key of a feature under the source's policy.
    fn key(&self, feature: &str) -> String {
        let mut keyer = Keyer::new(&self.settings.sources["a"].policy).unwrap();
        keyer.key(Input::json(feature.as_bytes())).unwrap().fingerprint.text(Encoding::Base64)
    }

    /// The key of a delivery.
    fn delivered(by: &str, id: &str) -> String {
        geonce_key::Delivery { by, id, index: 0 }.fingerprint("a", None).unwrap().text(Encoding::Base64)
    }
}

/// The geometry in a blob: after magic, version, flags, SRID and an envelope of as many numbers as the flags say.
fn geometry(blob: &[u8]) -> String {
    let envelope = [0, 32, 48, 48, 64][usize::from(blob[3] >> 1 & 7)];
    wkt::write(&wkb::read(&blob[8 + envelope..], &Limits::default()).unwrap().shape)
}

fn row(key: &str, geometry: Option<&str>) -> Row {
    Row { key: key.to_owned(), geometry: geometry.map(str::to_owned) }
}

#[tokio::test]
async fn arcgis_changes_and_features_flow_to_their_rows() {
    let flow = Flow::start("preset = \"arcgis\"").await;
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let change = "payload=%5B%7B%22name%22%3A%22h%22%2C%22layerId%22%3A0%2C%22orgId%22%3A%22o%22%2C%22serviceName%22%3A%22s%22%2C\
        %22lastUpdatedTime%22%3A1%2C%22changesUrl%22%3A%22https%253a%252f%252fx%252fextractChanges%253fserverGens%253d%255b10%252c20%255d%22%2C\
        %22events%22%3A%5B%22FeaturesCreated%22%5D%7D%5D";
    let first = flow.post(form, change).await;
    assert_eq!(first.status, 202, "{first:?}");
    let again = flow.post(form, change).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")), "{again:?}");
    // Enterprise sends an object; its numbers leave out 21 to 30.
    let later = r#"{"name":"h","layerId":0,"orgId":"o","serviceName":"s","lastUpdatedTime":2,"changesUrl":"https://x/extractChanges?serverGens=[30,40]","events":["FeaturesCreated"]}"#;
    let gap = flow.post("content-type: application/json\r\n", later).await;
    assert_eq!(gap.json()["warnings"][0]["code"], "changes_gap", "{gap:?}");
    let polygon = r#"{"attributes":{"OBJECTID":1},"geometry":{"rings":[[[3,3],[6,3],[6,6],[3,6],[3,3]],[[0,0],[0,9],[9,9],[9,0],[0,0]]],"spatialReference":{"wkid":4326}}}"#;
    assert_eq!(flow.post("content-type: application/json\r\n", polygon).await.status, 202);
    let feature = flow.key(
        r#"{"type":"Feature","geometry":{"type":"Polygon","coordinates":[[[0,0],[9,0],[9,9],[0,9],[0,0]],[[3,3],[3,6],[6,6],[6,3],[3,3]]]},"properties":{"OBJECTID":1}}"#,
    );
    let mut expected = vec![
        row(&Flow::delivered("arcgis-changes", r#"["o","s",0,["FeaturesCreated"],[10,20]]"#), None),
        row(&Flow::delivered("arcgis-changes", r#"["o","s",0,["FeaturesCreated"],[30,40]]"#), None),
        row(&feature, Some("POLYGON ((0 0,9 0,9 9,0 9,0 0),(3 3,3 6,6 6,6 3,3 3))")),
    ];
    expected.sort_by(|a, b| a.key.cmp(&b.key));
    let (ledger, rows) = flow.end().await;
    assert_eq!((ledger.received, ledger.applied, ledger.duplicate), (4, 3, 1), "{ledger:?}");
    assert_eq!(rows, expected);
}

/// A feature service on loopback: the n-th request, from 0, is answered as `answer` says, by status and body.
async fn feature_service(answer: impl Fn(usize, &str) -> (u16, String) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for number in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut head, mut piece) = (Vec::new(), [0; 4096]);
            // The form behind the head of a request ends with what we add to it.
            while !head.ends_with(b"\r\n\r\n") && !head.ends_with(b"outSR=4326") {
                let read = stream.read(&mut piece).await.unwrap();
                head.extend_from_slice(&piece[..read]);
            }
            let (status, body) = answer(number, std::str::from_utf8(&head).unwrap());
            let text = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(text.as_bytes()).await.unwrap();
        }
    });
    address
}

#[tokio::test]
async fn announced_changes_are_fetched_and_flow_to_the_rows_of_their_features() {
    let hydrant = |id: &str, x: f64| {
        format!(
            r#"{{"attributes":{{"GlobalID":"{{{id}}}"}},"geometry":{{"x":{x},"y":52.5,"spatialReference":{{"wkid":4326}}}}}}"#
        )
    };
    let edits = |features: &str| format!(r#"{{"edits":[{{"id":0,"features":{{{features}}}}}]}}"#);
    let first = edits(&format!(
        r#""adds":[{},{},{{"attributes":{{}},"geometry":{{"x":"?"}}}}]"#,
        hydrant("a", 1.5),
        hydrant("b", 2.5)
    ));
    let second = edits(&format!(r#""updates":[{}],"deleteIds":["{{b}}"]"#, hydrant("a", 3.5)));
    let address = feature_service(move |number, head| match number {
        0 => (500, String::new()),
        1 => {
            assert!(head.starts_with("POST /FeatureServer/extractChanges ") && head.contains("Bearer t0k3n"), "{head}");
            (200, r#"{"statusUrl":"/jobs/1"}"#.to_owned())
        }
        2 => (200, r#"{"status":"Completed","resultUrl":"/result.json"}"#.to_owned()),
        3 => (200, first.clone()),
        _ => (200, second.clone()),
    })
    .await;
    let source = format!(
        "preset = \"arcgis\"\nidentity = [\"/id\"]\nversion = \"/arcgis/serverGen\"\ndelete = {{ at = \"/arcgis/deleted\" }}\n\
        fetch = {{ hosts = [\"http://{address}\"], allow = [\"127.0.0.1\"], token = \"t0k3n\", retry = {{ base = \"1ms\", cap = \"1ms\" }} }}\n\
        [sink.features]\nurl = \"gpkg:features.gpkg\"\nmode = \"upsert\""
    );
    let flow = Flow::start(&source).await;
    let announce = async |gens: &str| {
        let body = format!(
            r#"{{"layerId":0,"orgId":"o","serviceName":"s","lastUpdatedTime":1,"changesUrl":"http://{address}/FeatureServer/extractChanges?serverGens={gens}","events":["FeaturesEdited"]}}"#
        );
        flow.post("content-type: application/json\r\n", &body).await.status
    };
    assert_eq!(announce("[100,110]").await, 202);
    let books = flow.drained().await;
    assert_eq!((books.received, books.applied, books.dead), (4, 3, 1), "{books:?}");
    assert_eq!(announce("[110,120]").await, 202);
    assert_eq!(announce("[100,110]").await, 200, "known, and not fetched again");
    flow.drained().await;
    let results = flow.store.list(ListRequest { limit: 10, ..ListRequest::default() }).await.unwrap();
    let results: Vec<_> =
        results.iter().filter_map(|record| record.result.as_deref()).filter(|r| r.contains("fetched")).collect();
    assert_eq!(
        results,
        [
            r#"{"fetched":{"accepted":2,"duplicate":0,"conflict":0,"refused":0}}"#,
            r#"{"fetched":{"accepted":2,"duplicate":0,"conflict":0,"refused":1}}"#
        ]
    );
    let (ledger, rows) = flow.end().await;
    assert_eq!((ledger.received, ledger.applied, ledger.dead, ledger.duplicate), (8, 6, 1, 1), "{ledger:?}");
    assert_eq!(rows, [row(&Flow::delivered("arcgis-feature", r#"["o","s",0,"A",120]"#), Some("POINT (3.5 52.5)"))]);
}

#[tokio::test]
async fn a_cloud_event_flows_to_one_row_in_all_its_modes() {
    let flow = Flow::start("preset = \"cloudevents\"").await;
    let feature =
        r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[13.4,52.5]},"properties":{"asset":7}}"#;
    let headers =
        "ce-specversion: 1.0\r\nce-id: A1\r\nce-source: /s\r\nce-type: moved\r\ncontent-type: application/geo+json\r\n";
    let structured = format!(r#"{{"specversion":"1.0","id":"A1","source":"/s","type":"moved","data":{feature}}}"#);
    let batch = format!("[{structured}]");
    assert_eq!(flow.post(headers, feature).await.status, 202);
    let cloudevents = "content-type: application/cloudevents+json\r\n";
    assert_eq!(flow.post(cloudevents, &structured).await.status, 200);
    assert_eq!(flow.post("content-type: application/cloudevents-batch+json\r\n", &batch).await.status, 200);
    flow.post(cloudevents, &structured.replace("\"data\"", "\"dada\"")).await.is_problem(400, "preset_missing");
    let (ledger, rows) = flow.end().await;
    assert_eq!((ledger.received, ledger.applied, ledger.duplicate, ledger.refused), (4, 1, 2, 1), "{ledger:?}");
    assert_eq!(rows, [row(&Flow::delivered("ce-id", "/s A1"), Some("POINT (13.4 52.5)"))]);
}

#[tokio::test]
async fn a_notification_of_weather_data_flows_to_one_row_from_origin_and_cache() {
    let flow = Flow::start("preset = \"wis2\"").await;
    let notification = r#"{"id":"31e9d66a","type":"Feature","geometry":{"type":"Point","coordinates":[6.146,46.223]},
        "properties":{"pubtime":"2022-03-20T04:50:18Z","data_id":"dataset/1","datetime":"2022-03-20T04:45:00Z"},
        "links":[{"href":"https://example.org/1","rel":"canonical"}]}"#;
    let json = "content-type: application/json\r\n";
    assert_eq!(flow.post(json, notification).await.status, 202);
    let cached = notification.replace("31e9d66a", "bbbb").replace("example.org", "cache.example.net");
    assert_eq!(flow.post(json, &cached).await.status, 200);
    let key = flow.key(notification);
    let (ledger, rows) = flow.end().await;
    assert_eq!((ledger.applied, ledger.duplicate), (1, 1), "{ledger:?}");
    assert_eq!(rows, [row(&key, Some("POINT (6.146 46.223)"))]);
}

#[tokio::test]
async fn a_forwarded_position_flows_to_one_row() {
    let flow = Flow::start("preset = \"traccar\"").await;
    let position = r#"{"position":{"id":1,"deviceId":7,"deviceTime":"2026-01-14T15:34:17.000+0000","fixTime":"2026-01-14T15:34:17.000+0000","latitude":49.5,"longitude":8.25,"attributes":{"distance":4.5}},"device":{"id":7,"uniqueId":"q54"}}"#;
    let json = "content-type: application/json; charset=utf-8\r\n";
    assert_eq!(flow.post(json, position).await.status, 202);
    let again = position.replace("\"id\":1", "\"id\":2").replace("4.5", "0").replace("+0000", "+00:00");
    assert_eq!(flow.post(json, &again).await.status, 200);
    let key = flow.key(
        r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[8.25,49.5]},"properties":{"deviceId":7,"time":"2026-01-14T15:34:17Z"}}"#,
    );
    let (ledger, rows) = flow.end().await;
    assert_eq!((ledger.applied, ledger.duplicate), (1, 1), "{ledger:?}");
    assert_eq!(rows, [row(&key, Some("POINT (8.25 49.5)"))]);
}

#[tokio::test]
async fn a_phone_is_answered_in_its_own_way() {
    let flow = Flow::start("preset = \"owntracks\"").await;
    let location = r#"{"_type":"location","lat":52.5,"lon":13.25,"tid":"jo","tst":1794000000,"batt":80}"#;
    let headers = "content-type: application/json\r\nx-limit-u: jo\r\nx-limit-d: phone\r\n";
    for (body, status) in [(location, 202), (&*location.replace("80", "79"), 200), ("", 200)] {
        let reply = flow.post(headers, body).await;
        assert_eq!(
            (reply.status, &*reply.body, reply.header("content-type")),
            (status, "[]", Some("application/json")),
            "{body}"
        );
    }
    flow.post(headers, r#"{"_type":"location","lat":952.5,"lon":13.25,"tst":1}"#)
        .await
        .is_problem(400, "geojson_bounds");
    let key = flow.key(
        r#"{"type":"Feature","id":"user=\"jo\" device=\"phone\" _type=\"location\" tid=\"jo\" tst=1794000000","geometry":{"type":"Point","coordinates":[13.25,52.5]},"properties":{}}"#,
    );
    let (ledger, rows) = flow.end().await;
    assert_eq!((ledger.received, ledger.applied, ledger.duplicate, ledger.refused), (3, 1, 1, 1), "{ledger:?}");
    assert_eq!(rows, [row(&key, Some("POINT (13.25 52.5)"))]);
}

#[tokio::test]
async fn features_made_from_fields_flow_to_their_rows() {
    let map = r#"map = { items = "/events", lon = "/at/lng", lat = "/at/lat", id = "/id" }
        identity = ["/id"]
        version = "/properties/n""#;
    let flow = Flow::start(map).await;
    let body = r#"{"events":[{"id":"a","n":1,"at":{"lng":1.5,"lat":2.5}},{"id":"b","n":1,"at":{"lng":3.5,"lat":"4.5"}},{"id":"c"}]}"#;
    let reply = flow.post("content-type: application/json\r\n", body).await;
    assert_eq!((reply.status, reply.json()["refused"].as_u64()), (202, Some(1)), "{reply:?}");
    assert_eq!(reply.json()["features"][2]["pointer"], "/events/2/at/lng", "{reply:?}");
    let (ledger, mut rows) = flow.end().await;
    assert_eq!((ledger.applied, ledger.dead), (2, 1), "{ledger:?}");
    rows.sort_by(|a, b| a.geometry.cmp(&b.geometry));
    let places: Vec<_> = rows.iter().map(|row| row.geometry.as_deref().unwrap()).collect();
    assert_eq!(places, ["POINT (1.5 2.5)", "POINT (3.5 4.5)"]);
}
