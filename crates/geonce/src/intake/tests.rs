//! What a request comes to.

mod previous;

use super::{Arrival, DeliveryId, FeatureReceipt, Identify, Intake, Invalid, Receipt, Refused, Source};
use crate::clock::{ManualClock, Timestamp};
use crate::event::State;
use crate::signature::Verified;
use crate::store::{self, Access, Ledger, ListRequest, Options, Store};
use geonce_key::split::Format;
use geonce_key::{Pointer, Policy};
use hyper::HeaderMap;
use std::path::Path;
use std::sync::Arc;

/// 2026-11-15.
const START: Timestamp = Timestamp::from_millis(1_794_700_800_000);

const POINT: &str = r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[13.4,52.5]},"properties":{"n":1}}"#;
const BOW_TIE: &str = r#"{"type":"Feature","geometry":{"type":"Polygon","coordinates":[[[0,0],[1,1],[1,0],[0,1],[0,0]]]},"properties":{}}"#;

struct Rig {
    store: Arc<dyn Store>,
    intake: Intake,
    source: Arc<Source>,
}

impl Rig {
    fn new(change: impl FnOnce(&mut Source)) -> Rig {
        Rig::with_policy(Policy::default(), change)
    }

    fn with_policy(policy: Policy, change: impl FnOnce(&mut Source)) -> Rig {
        let store = store::open("sqlite::memory:", &Options::default(), Access::Gateway, Path::new(".")).unwrap();
        let mut source = Source::new("drones", policy, &["zones".to_owned()]).unwrap();
        change(&mut source);
        let intake = Intake::new(Arc::clone(&store), Arc::new(ManualClock::new(START)));
        Rig { store, intake, source: Arc::new(source) }
    }

    async fn send(&self, format: Format, body: &str) -> Result<Receipt, Refused> {
        self.send_as(None, format, body).await
    }

    async fn send_as(&self, delivery: Option<&str>, format: Format, body: &str) -> Result<Receipt, Refused> {
        let delivery = delivery.map(|id| DeliveryId { by: "webhook-id".to_owned(), id: id.to_owned() });
        let arrival = Arrival { body: body.as_bytes().to_vec().into(), format, delivery, ..Arrival::default() };
        self.intake.receive(&self.source, arrival).await
    }

    async fn ledger(&self) -> Ledger {
        // Refusals are counted with the next thing that is written.
        self.store.sweep(1, START).await.unwrap();
        let ledger = self.store.status().await.unwrap().ledgers.get("drones").copied().unwrap_or_default();
        assert_eq!(ledger.difference(), 0, "{ledger:?}");
        ledger
    }
}

/// The outcomes in one word each.
fn words(receipt: &Receipt) -> Vec<&'static str> {
    receipt
        .features
        .iter()
        .map(|feature| match feature {
            FeatureReceipt::Accepted { .. } => "accepted",
            FeatureReceipt::Duplicate { .. } => "duplicate",
            FeatureReceipt::Conflict { .. } => "conflict",
            FeatureReceipt::Refused { kept: Some(_), .. } => "kept",
            FeatureReceipt::Refused { kept: None, .. } => "refused",
        })
        .collect()
}

fn code(result: Result<Receipt, Refused>) -> String {
    match result {
        Err(Refused::Payload(fault)) => fault.code,
        other => panic!("not refused as a whole: {other:?}"),
    }
}

#[tokio::test]
async fn every_form_of_one_event_is_the_same_event() {
    let rig = Rig::new(|_| {});
    let first = rig.send(Format::Json, r#"{"type":"Point","coordinates":[13.4,52.5]}"#).await.unwrap();
    assert_eq!((words(&first), first.several), (vec!["accepted"], false));
    let collection = r#"{"type":"FeatureCollection","features":[{"type":"Feature","properties":null,"geometry":{"coordinates":[1340e-2,52.50],"type":"Point"}}]}"#;
    let wkb = "0101000000CDCCCCCCCCCC2A400000000000404A40";
    for (format, body, several) in [
        (Format::Auto, collection, true),
        (Format::Json, collection, true),
        (Format::Lines, r#"{"type":"Point","coordinates":[13.4,52.5]}"#, true),
        (Format::Sequence, "\u{1e}{\"type\":\"Point\",\"coordinates\":[13.4,52.5]}\n", true),
        (Format::Wkt, "POINT (13.4 52.5)", false),
        (Format::WkbHex, wkb, false),
    ] {
        let receipt = rig.send(format, body).await.unwrap();
        assert_eq!((words(&receipt), receipt.several), (vec!["duplicate"], several), "{format:?}: {body}");
    }
    assert_eq!(rig.ledger().await.duplicate, 6);
}

#[tokio::test]
async fn a_refused_feature_beside_good_ones_is_kept_and_alone_it_is_not() {
    let rig = Rig::new(|_| {});
    let bad = r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[200,0]},"properties":{}}"#;
    let alone = rig.send(Format::Json, bad).await.unwrap();
    assert_eq!(words(&alone), ["refused"]);
    let lines = format!("{POINT}\n{bad}\nnot json\n");
    let mixed = rig.send(Format::Lines, &lines).await.unwrap();
    assert_eq!(words(&mixed), ["accepted", "kept", "kept"]);
    let again = rig.send(Format::Lines, &lines).await.unwrap();
    assert_eq!(words(&again), ["duplicate", "kept", "kept"]);
    let ledger = rig.ledger().await;
    assert_eq!((ledger.received, ledger.refused, ledger.dead, ledger.waiting, ledger.duplicate), (7, 1, 2, 1, 3));
    let request = ListRequest { limit: 10, payloads: true, ..ListRequest::default() };
    let records = rig.store.list(request).await.unwrap();
    let dead: Vec<_> = records.iter().filter(|record| record.state == State::Dead).collect();
    assert!(dead.iter().any(|record| record.payload.as_deref() == Some(b"not json".as_slice())), "{dead:?}");
}

#[tokio::test]
async fn a_request_that_cannot_be_divided_leaves_nothing_behind() {
    let rig = Rig::new(|source| source.features_max = 2);
    let broken = format!(r#"{{"type":"FeatureCollection","features":[{POINT},{{"type":"#);
    assert_eq!(code(rig.send(Format::Json, &broken).await), "json_incomplete");
    assert_eq!(code(rig.send(Format::Lines, "").await), "json_incomplete");
    assert_eq!(code(rig.send(Format::Lines, "\n \n").await), "json_incomplete");
    let three = [1, 2, 3].map(|x| format!(r#"{{"type":"Point","coordinates":[{x},0]}}"#)).join("\n");
    assert_eq!(code(rig.send(Format::Lines, &three).await), "limit_features");
    let ledger = rig.ledger().await;
    assert_eq!((ledger.received, ledger.refused, ledger.waiting), (4, 4, 0));
}

#[tokio::test]
async fn a_collection_declares_its_coordinate_system_even_at_its_end() {
    let rig = Rig::new(|_| {});
    let collection = r#"{"type":"FeatureCollection","features":[{"type":"Feature","properties":{},"geometry":{"type":"Point","coordinates":[1491681.18,6894701.26]}}],"crs":{"type":"name","properties":{"name":"EPSG:3857"}}}"#;
    for format in [Format::Json, Format::Auto] {
        let receipt = rig.send(format, collection).await.unwrap();
        assert_eq!(receipt.features.len(), 1);
        assert!(!matches!(receipt.features[0], FeatureReceipt::Refused { .. }), "{receipt:?}");
    }
    assert_eq!(rig.ledger().await.duplicate, 1);
}

#[tokio::test]
async fn geometries_that_are_not_valid_are_refused_or_kept_as_the_source_says() {
    let rig = Rig::new(|_| {});
    let receipt = rig.send(Format::Json, BOW_TIE).await.unwrap();
    let [FeatureReceipt::Refused { fault, kept: None, .. }] = &receipt.features[..] else { panic!("{receipt:?}") };
    assert_eq!((fault.code.as_str(), fault.pointer.as_str()), ("self_intersection", "/geometry/coordinates/0/0"));
    let bare = r#"{"type":"Polygon","coordinates":[[[0,0],[1,1],[1,0],[0,1],[0,0]]]}"#;
    let receipt = rig.send(Format::Json, bare).await.unwrap();
    let [FeatureReceipt::Refused { fault, .. }] = &receipt.features[..] else { panic!("{receipt:?}") };
    assert_eq!(fault.pointer, "/coordinates/0/0");
    let rig = Rig::new(|source| source.invalid = Invalid::Dead);
    assert_eq!(words(&rig.send(Format::Json, BOW_TIE).await.unwrap()), ["kept"]);
    assert_eq!(words(&rig.send(Format::Json, BOW_TIE).await.unwrap()), ["kept"]);
    let ledger = rig.ledger().await;
    assert_eq!((ledger.dead, ledger.duplicate), (1, 1));
}

#[tokio::test]
async fn a_delivery_id_identifies_and_other_content_under_it_is_a_conflict() {
    let rig = Rig::new(|_| {});
    let moved = POINT.replace("13.4", "14.4");
    let reprinted = POINT.replace("13.4", "1340e-2");
    assert_eq!(words(&rig.send_as(Some("42"), Format::Json, POINT).await.unwrap()), ["accepted"]);
    assert_eq!(words(&rig.send_as(Some("42"), Format::Json, &reprinted).await.unwrap()), ["duplicate"]);
    assert_eq!(words(&rig.send_as(Some("42"), Format::Json, &moved).await.unwrap()), ["conflict"]);
    assert_eq!(words(&rig.send_as(Some("42"), Format::Json, &moved).await.unwrap()), ["conflict"]);
    assert_eq!(words(&rig.send_as(Some("43"), Format::Json, POINT).await.unwrap()), ["accepted"]);
    let two = format!("{POINT}\n{moved}");
    assert_eq!(words(&rig.send_as(Some("44"), Format::Lines, &two).await.unwrap()), ["accepted", "accepted"]);
    let ledger = rig.ledger().await;
    assert_eq!((ledger.dead, ledger.conflict, ledger.duplicate, ledger.waiting), (1, 1, 2, 4));
}

#[tokio::test]
async fn a_version_from_the_future_is_refused() {
    let policy = Policy { version: Some(Pointer::parse("/properties/at").unwrap()), ..Policy::default() };
    let rig = Rig::with_policy(policy, |_| {});
    let at = |time: &str| POINT.replace("\"n\":1", &format!("\"at\":\"{time}\""));
    assert_eq!(words(&rig.send(Format::Json, &at("2026-11-16T00:00:00Z")).await.unwrap()), ["accepted"]);
    let late = rig.send(Format::Json, &at("2026-11-16T00:00:01Z")).await.unwrap();
    let [FeatureReceipt::Refused { fault, .. }] = &late.features[..] else { panic!("{late:?}") };
    assert_eq!((fault.code.as_str(), fault.pointer.as_str()), ("version_future", "/properties/at"));
}

#[test]
fn only_ids_that_can_be_trusted_identify() {
    let headers = |pairs: &[(&'static str, &str)]| -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    };
    let mut source = Source::new("drones", Policy::default(), &[]).unwrap();
    let both = headers(&[("x-event-id", "7"), ("webhook-id", "msg_1")]);
    let found = |source: &Source, headers: &HeaderMap, covered: Option<&[&str]>| {
        let covered = covered.map(|names| names.iter().map(|&name| name.to_owned()).collect());
        let verified = covered.map(|covered| Verified { covered, whole: false, body: 0..0 });
        source.delivery_id(headers, verified.as_ref()).map(|id| id.map(|id| format!("{}={}", id.by, id.id)))
    };
    assert_eq!(found(&source, &both, None).unwrap().as_deref(), Some("webhook-id=msg_1"));
    assert_eq!(found(&source, &both, Some(&["webhook-id"])).unwrap().as_deref(), Some("webhook-id=msg_1"));
    let unsigned = headers(&[("x-event-id", "7")]);
    assert_eq!(found(&source, &unsigned, Some(&["webhook-id"])).unwrap(), None);
    let quoted = headers(&[("idempotency-key", "\"a\\\"b\"")]);
    assert_eq!(found(&source, &quoted, None).unwrap().as_deref(), Some("idempotency-key=a\"b"));
    let cloud = headers(&[("ce-id", "5"), ("ce-source", "/gis")]);
    assert_eq!(found(&source, &cloud, None).unwrap().as_deref(), Some("ce-id=/gis 5"));
    assert_eq!(found(&source, &headers(&[("x-event-id", &"x".repeat(256))]), None).unwrap_err().code, "identity_type");
    source.identify = Identify::Spatial;
    assert_eq!(found(&source, &both, None).unwrap(), None);
    source.identify = Identify::Delivery;
    assert_eq!(found(&source, &unsigned, Some(&["webhook-id"])).unwrap().as_deref(), Some("x-event-id=7"));
    assert_eq!(found(&source, &HeaderMap::new(), None).unwrap_err().code, "identity_missing");
}

#[test]
fn pressure_is_remembered_for_a_moment() {
    let pressure = super::Pressure::default();
    assert!(!pressure.is_high());
    let waiting: Vec<_> = (0..super::WAITING_MANY).map(|_| pressure.one_more()).collect();
    assert!(!pressure.is_high());
    drop(pressure.one_more());
    drop(waiting);
    assert!(pressure.is_high(), "many waited just now");
    std::thread::sleep(std::time::Duration::from_millis(super::PRESSURE_MILLIS + 1));
    assert!(!pressure.is_high());
}

#[tokio::test]
async fn events_of_an_ordered_source_wait_for_others_of_their_entity() {
    let text = |id: u32, version: u32, x: u32| {
        format!(
            r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[{x},2]}},"properties":{{"id":{id},"v":{version}}}}}"#
        )
    };
    let pointer = |text: &str| geonce_key::Pointer::parse(text).unwrap();
    let fields = vec![geonce_key::policy::Field::required(pointer("/properties/id"))];
    let identity = geonce_key::policy::Identity::Fields(fields);
    let policy = Policy { identity, version: Some(pointer("/properties/v")), ..Policy::default() };
    let rig = Rig::with_policy(policy, |source| source.ordered = true);
    // Of entity 1 the lowest version goes first, wherever it is; entity 2 does not wait for it.
    let body = [text(1, 7, 3), text(1, 5, 4), text(2, 9, 5), text(1, 6, 6)].join("\n");
    assert_eq!(words(&rig.send(Format::Lines, &body).await.unwrap()), ["accepted"; 4]);
    let request = store::ListRequest { limit: 10, payloads: true, ..store::ListRequest::default() };
    let held: Vec<bool> =
        rig.store.list(request).await.unwrap().iter().rev().map(|record| record.work[0].held.is_some()).collect();
    assert_eq!(held, [true, false, false, true]);
}

#[tokio::test]
async fn a_source_may_repair_what_is_not_valid_on_arrival() {
    let rig = Rig::new(|source| source.invalid = Invalid::Repair);
    // Twice in one request: the second is the first's.
    let both = rig.send(Format::Lines, &format!("{BOW_TIE}\n{BOW_TIE}\n{POINT}\n")).await.unwrap();
    assert_eq!(words(&both), ["accepted", "duplicate", "accepted"]);
    let FeatureReceipt::Accepted { event, warnings, .. } = &both.features[0] else { panic!("{both:?}") };
    assert_eq!((warnings.len(), warnings[0].code), (1, "repaired"));
    let again = rig.send(Format::Json, BOW_TIE).await.unwrap();
    assert_eq!(words(&again), ["duplicate"]);
    let ledger = rig.ledger().await;
    assert_eq!((ledger.received, ledger.repaired, ledger.waiting, ledger.duplicate, ledger.dead), (5, 1, 2, 2, 0));
    let filter = crate::store::Filter { id: Some(*event), ..crate::store::Filter::default() };
    let request = ListRequest { filter, limit: 1, payloads: true, ..ListRequest::default() };
    let made = rig.store.list(request).await.unwrap().remove(0);
    assert!(made.payload.unwrap().windows(12).any(|bytes| bytes == b"MultiPolygon"));
    assert!(made.origin.is_some());
    // What the grid cannot mend stays dead; a redelivery finds it so.
    let flat = BOW_TIE.replace("[1,0],[0,1]", "[2,2],[3,3]");
    for _ in 0..2 {
        assert_eq!(words(&rig.send(Format::Json, &flat).await.unwrap()), ["kept"]);
    }
    assert_eq!(rig.ledger().await.dead, 1);
}
