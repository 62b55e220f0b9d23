//! Repairs of one payload each: what is made, what is said of it, and what is not done.

use super::{Choices, Plan, carry_out, draft, plan, suggest};
use crate::clock::Timestamp;
use crate::event::{Cause, Class, EventId, Ids, State};
use crate::intake::{Invalid, Source};
use crate::store::conformance::{Bench, START, at, routes};
use crate::store::{self, Access, Admission, Filter, NewEvent, Options, Origin, Record, Repaired, Verdict};
use bytes::Bytes;
use geonce_key::policy::AssumedCrs;
use geonce_key::{Fingerprint, Form, Input, Keyer, Policy, wkt};
use std::path::Path;

const BOW_TIE: &str = "[[[0,0],[2,2],[2,0],[0,2],[0,0]]]";

fn source(policy: Policy) -> Source {
    let mut source = Source::new("survey", policy, &["map".to_owned()]).unwrap();
    source.invalid = Invalid::Dead;
    source
}

fn feature(geometry: &str) -> String {
    format!(r#"{{"type":"Feature", "properties":{{"id":7,  "n":1.50}},"geometry":{geometry} , "id":"a"}}"#)
}

fn polygon(rings: &str) -> String {
    feature(&format!(r#"{{"type":"Polygon","coordinates":{rings}}}"#))
}

/// A dead event as a store would show it.
fn dead(form: Form, payload: &[u8], code: &str) -> Record {
    Record {
        id: EventId::from_bytes([3; 16]),
        source: "survey".into(),
        key: Fingerprint::from_digest([1; 32], false),
        aliases: Vec::new(),
        spatial: Vec::new(),
        content: [1; 32],
        origin: None,
        state: State::Dead,
        outcome: None,
        result: None,
        cause: Some(Cause::new(Class::Geometry, code, "")),
        received: START,
        settled: Some(START),
        duplicates: 0,
        work: Vec::new(),
        form,
        crs: None,
        payload: Some(Bytes::copy_from_slice(payload)),
    }
}

fn planned(payload: &str, choices: &str, policy: Policy) -> Result<Plan, Cause> {
    draft(&dead(Form::Json, payload.as_bytes(), "x"), &source(policy), &Choices::parse(choices).unwrap())
}

fn mended(payload: &str, choices: &str) -> Plan {
    let plan = planned(payload, choices, Policy::default()).unwrap();
    assert!(plan.is_ready(), "{choices}: {:?}", plan.problem);
    assert_eq!(plan, planned(payload, choices, Policy::default()).unwrap(), "twice the same");
    plan
}

fn done(plan: &Plan) -> Vec<&str> {
    plan.done.iter().map(|done| done.code).collect()
}

#[test]
fn a_bow_tie_becomes_two_triangles_and_the_rest_stays_byte_for_byte() {
    let plan = mended(&polygon(BOW_TIE), "grid");
    let after = String::from_utf8(plan.after.to_vec()).unwrap();
    assert!(
        after.starts_with(r#"{"type":"Feature", "properties":{"id":7,  "n":1.50},"geometry":{"type":"MultiPolygon""#),
        "{after}"
    );
    assert!(after.ends_with(r#"} , "id":"a"}"#), "{after}");
    assert_eq!(done(&plan), ["ring_rebuilt"]);
    assert_eq!((plan.measures.positions_before, plan.measures.positions_after), (5, 8));
    // The ring's own area is none; each triangle has a quarter of four square degrees.
    let degree = 111_195.0_f64.powi(2);
    assert!(plan.measures.area_before_m2 < 1.0, "{:?}", plan.measures);
    assert!((plan.measures.area_after_m2 / (2.0 * degree) - 1.0).abs() < 0.01, "{:?}", plan.measures);
    assert!(plan.measures.shift_max_m.unwrap() < 0.1, "{:?}", plan.measures);
    let json = plan.json();
    assert_eq!(
        (&json["valid"], &json["positions"]["after"], &json["area_m2"]["ratio"]),
        (&true.into(), &8.into(), &serde_json::Value::Null)
    );
    assert!(plan.wkt()[1].starts_with("MULTIPOLYGON"), "{:?}", plan.wkt());
    // The key is the one that the mended payload has at intake.
    let keyed = Keyer::new(&Policy::default()).unwrap().key(Input::json(&plan.after)).unwrap();
    assert_eq!(plan.key, Some(keyed.fingerprint));
}

#[test]
fn each_choice_does_what_it_is_called() {
    let open = "[[[0,0],[2,0],[2,2],[0,2]]]";
    let plan = mended(&polygon(open), "close-rings");
    assert_eq!((done(&plan), plan.measures.positions_after), (vec!["ring_closed"], 5));
    assert!(plan.after.windows(8).any(|bytes| bytes == b"[0.0,0.0"), "numbers are as they were");

    let plan = mended(&feature(r#"{"type":"Point","coordinates":[52.5,113.4]}"#), "swap-axes");
    assert_eq!(plan.shapes[1].positions, [[113.4, 52.5, 0.0]]);

    let spike = "[[[0,0],[2,0],[2,2],[1,2],[1,5],[1,2],[0,2],[0,0]]]";
    let plan = mended(&polygon(spike), "drop-spikes");
    assert_eq!((done(&plan), plan.measures.positions_after), (vec!["spikes_dropped"], 6));
    assert!((plan.measures.shift_max_m.unwrap() / 333_585.0 - 1.0).abs() < 0.01, "{:?}", plan.measures);

    let plan = mended(&feature(r#"{"type":"LineString","coordinates":[[1,2,1e13],[4,5,6]]}"#), "drop-z");
    assert!(!plan.shapes[1].has_z);

    let plan = mended(&polygon("[[[170,0],[190,0],[190,10],[170,10],[170,0]]]"), "clip");
    assert_eq!(done(&plan), ["clipped"]);
    assert!(plan.shapes[1].positions.iter().all(|position| position[0] <= 180.0));
    let plan = mended(&polygon("[[[0,0],[9,0],[9,9],[0,9],[0,0]]]"), "clip=-1/-1/5/5,grid");
    assert!((plan.measures.area_after_m2 / plan.measures.area_before_m2 - 25.0 / 81.0).abs() < 0.01);

    // Eastings and northings of zone 32, near Munich.
    let plan = mended(&feature(r#"{"type":"Point","coordinates":[691607.86,5334760.38]}"#), "reproject-from=25832");
    let [x, y, _] = plan.shapes[1].positions[0];
    assert!((x - 11.576).abs() < 0.01 && (y - 48.137).abs() < 0.01, "{x} {y}");
}

#[test]
fn declarations_that_are_not_true_any_more_go() {
    let crs = r#","crs":{"type":"name","properties":{"name":"EPSG:3857"}}"#;
    let payload = format!(
        r#"{{"type":"Feature","properties":null{crs},"geometry":{{"type":"Polygon","coordinates":[[[0,0],[200000,200000],[200000,0],[0,200000],[0,0]]]}}}}"#
    );
    let plan = mended(&payload, "grid");
    assert!(!plan.after.windows(4).any(|bytes| bytes == b"3857"));
    assert!(plan.shapes[1].positions.iter().all(|position| position[0] < 1.8));
    // Swapping leaves the numbers in their system, and says so.
    let plan = mended(&payload.replace("[0,200000]", "[0,100000]").replace("[200000,200000],", ""), "swap-axes");
    assert!(plan.after.windows(4).any(|bytes| bytes == b"3857"));
    // What is said cannot be read; what is known counts.
    let unread =
        r#"{"type":"Feature","properties":null,"crs":"local","geometry":{"type":"Point","coordinates":[1,2]}}"#;
    assert_eq!(planned(unread, "swap-axes", Policy::default()).unwrap_err().code, "crs_ambiguous");
    mended(unread, "reproject-from=3857");
    // A source that assumes another system is told which one the mended payload has.
    let policy = Policy { crs: AssumedCrs::Code(25832), ..Policy::default() };
    let plan = planned(
        &polygon("[[[500000,5300000],[500100,5300100],[500100,5300000],[500000,5300100],[500000,5300000]]]"),
        "grid",
        policy,
    )
    .unwrap();
    assert!(plan.is_ready(), "{:?}", plan.problem);
    assert_eq!(plan.new.unwrap().crs, Some(4326));
}

#[test]
fn other_forms_become_geojson() {
    let text = "SRID=4326;POLYGON ((0 0,2 2,2 0,0 2,0 0))";
    let shape = wkt::read(text.as_bytes(), &geonce_key::Limits::default()).unwrap().shape;
    let binary = geonce_key::wkb::write(&shape, Some(4326));
    let plans = [(Form::Wkt, text.as_bytes().to_vec()), (Form::Wkb, binary)].map(|(form, payload)| {
        draft(&dead(form, &payload, "x"), &source(Policy::default()), &Choices::parse("grid").unwrap()).unwrap()
    });
    assert!(
        plans[0].after.starts_with(br#"{"type":"MultiPolygon""#) && plans[0].before.starts_with(r#"{"type":"Polygon""#)
    );
    assert_eq!(plans[0].after, plans[1].after);
    assert_eq!(plans[0].key, plans[1].key);
}

#[test]
fn what_cannot_be_repaired_says_why() {
    for (payload, choices, code) in [
        ("{\"type\":\"Feature\"", "grid", "json_incomplete"),
        ("{\"type\":\"Feature\",\"geometry\":null,\"properties\":null}", "grid", "geojson_null_geometry"),
        (&polygon("[[[0,0],[1,1],[0,0],[0,0]]]"), "grid", "geojson_empty"),
        (&polygon("[[[0,0],[1,1],[0,0],[0,0]]]"), "drop-spikes", "geojson_empty"),
        (&polygon("[[[0,0],[0,100],[1,1],[0,0]]]"), "grid", "geojson_bounds"),
        (&polygon("[[[0,0],[1,0],[1,1]]]"), "grid", "geojson_ring_unclosed"),
        (&feature(r#"{"type":"Point","coordinates":[500,1]}"#), "clip", "geojson_empty"),
        (&feature(r#"{"type":"Point","coordinates":[1e9,1e9]}"#), "reproject-from=25832", "crs_domain"),
    ] {
        let refused = planned(payload, choices, Policy::default()).unwrap_err();
        assert_eq!(refused.code, code, "{payload} {choices}: {refused:?}");
    }
    // It can be made, but would not be taken.
    let plan = planned(&polygon("[[[0,0],[2,2],[2,0],[0,2]]]"), "close-rings", Policy::default()).unwrap();
    assert_eq!(plan.problem.as_ref().unwrap().code, "self_intersection");
    assert!(!plan.is_ready() && plan.repair(plan.original).is_err());
    let mut record = dead(Form::Json, polygon(BOW_TIE).as_bytes(), "x");
    record.payload = None;
    let grid = Choices::parse("grid").unwrap();
    assert_eq!(draft(&record, &source(Policy::default()), &grid).unwrap_err().code, "payload_gone");
    record.state = State::Done;
    assert_eq!(draft(&record, &source(Policy::default()), &grid).unwrap_err().code, "not_dead");
    // What is valid is not made into another event by rounding it.
    let payload = polygon("[[[0,0],[2,0],[2,2],[0,0]]]");
    let mut record = dead(Form::Json, payload.as_bytes(), "constraint");
    let keyed = Keyer::new(&Policy::default()).unwrap().key(Input::json(payload.as_bytes())).unwrap();
    record.content = *keyed.fingerprint.digest();
    let plan = draft(&record, &source(Policy::default()), &grid).unwrap();
    assert_eq!(plan.problem.unwrap().code, "unchanged");
}

#[test]
fn suggestions_are_tried_before_they_are_made() {
    for (payload, code, suggested) in [
        (polygon(BOW_TIE), "self_intersection", Some("grid")),
        (polygon("[[[0,0],[2,0],[2,2],[0,2]]]"), "geojson_ring_unclosed", Some("close-rings")),
        (polygon("[[[0,0],[2,2],[2,0],[0,2]]]"), "geojson_ring_unclosed", Some("close-rings,grid")),
        (feature(r#"{"type":"Point","coordinates":[52.5,113.4]}"#), "geojson_bounds", Some("swap-axes")),
        (polygon("[[[5,100],[6,101],[6,100],[5,101],[5,100]]]"), "geojson_bounds", Some("swap-axes,grid")),
        (polygon("[[[170,0],[180.0001,0],[180,10],[170,10],[170,0]]]"), "geojson_bounds", Some("clip,grid")),
        (feature(r#"{"type":"Point","coordinates":[691607.86,5334760.38]}"#), "geojson_bounds", None),
        (polygon("[[[0,0],[2,0],[2,2],[1,2],[1,5],[1,2],[0,2],[0,0]]]"), "spike", Some("drop-spikes")),
        (feature(r#"{"type":"LineString","coordinates":[[1,2,1e13],[4,5,6]]}"#), "geojson_elevation", Some("drop-z")),
        // Which positions have a height and which do not is not known to a reader that drops them.
        (feature(r#"{"type":"LineString","coordinates":[[1,2,3],[4,5]]}"#), "geojson_dimensions", None),
        (polygon(BOW_TIE), "sink_timeout", None),
        ("{".to_owned(), "self_intersection", None),
    ] {
        let record = dead(Form::Json, payload.as_bytes(), code);
        let found = suggest(&record, &source(Policy::default()));
        assert_eq!(found.map(|choices| choices.to_string()).as_deref(), suggested, "{code} {payload}");
    }
}

/// A store with one dead event of a payload.
async fn kept(payload: &str, change: impl FnOnce(NewEvent) -> NewEvent) -> (Bench, Record) {
    let store = store::open("sqlite::memory:", &Options::default(), Access::Gateway, Path::new("")).unwrap();
    let bench = Bench::new(store);
    let cause = Cause::new(Class::Geometry, "self_intersection", "");
    let event = change(NewEvent {
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        admission: Admission::Dead(cause, routes(&["map", "log<map"])),
        ..bench.event("broken", START)
    });
    let id = event.id;
    assert_eq!(bench.accept_one(event, START).await, Verdict::Accepted);
    let record = bench.record(id).await;
    (bench, record)
}

#[tokio::test]
async fn a_plan_is_carried_out_once_and_tells_what_is_known() {
    let (bench, record) = kept(&polygon(BOW_TIE), |event| event).await;
    let (source, grid, ids) = (source(Policy::default()), Choices::parse("grid").unwrap(), Ids::new());
    let first = plan(&*bench.store, &source, &record, &grid).await.unwrap().unwrap();
    assert_eq!(first.already, None);
    let (id, repaired) = carry_out(&*bench.store, &ids, &first, at(1)).await.unwrap();
    assert_eq!(repaired, Repaired::Done(Verdict::Accepted));
    let made = bench.record(id).await;
    assert_eq!((made.key, made.origin), (first.key.unwrap(), Some(Origin { event: record.id, key: record.key })));
    assert_eq!(made.payload.as_ref(), Some(&first.after));
    let sinks: Vec<_> = made.work.iter().map(|work| (&*work.sink, work.held.is_some())).collect();
    assert_eq!(sinks, [("map", false), ("log", true)], "it goes where the original was to go");
    // The same plan, and one that was made from the same record, change nothing.
    let (_, repaired) = carry_out(&*bench.store, &ids, &first, at(2)).await.unwrap();
    assert_eq!(repaired, Repaired::Before { event: id });
    // The same thing broken in the same way, delivered apart, is known by then.
    let other = NewEvent {
        payload: Bytes::from(polygon(BOW_TIE)),
        admission: Admission::Dead(Cause::new(Class::Geometry, "self_intersection", ""), routes(&["map"])),
        ..bench.event("broken again", at(3))
    };
    let other_id = other.id;
    bench.accept_one(other, at(3)).await;
    let second = plan(&*bench.store, &source, &bench.record(other_id).await, &grid).await.unwrap().unwrap();
    assert_eq!(second.already.map(|already| (already.event, already.state)), Some((id, State::Ready)));
    let (_, repaired) = carry_out(&*bench.store, &ids, &second, at(3)).await.unwrap();
    assert!(matches!(repaired, Repaired::Done(Verdict::Duplicate { of, .. }) if of == id), "{repaired:?}");
    assert_eq!(bench.list(Filter { state: Some(State::Dead), ..Filter::default() }).await.len(), 0);
}

#[tokio::test]
async fn events_that_are_known_by_their_delivery_stay_apart() {
    let delivered = |name: &'static str| {
        move |event: NewEvent| NewEvent {
            key: store::conformance::key(name),
            spatial: vec![store::conformance::key("place")],
            ..event
        }
    };
    let (source, grid) = (source(Policy::default()), Choices::parse("grid").unwrap());
    let (_, one) = kept(&polygon(BOW_TIE), delivered("delivery 1")).await;
    let (_, two) = kept(&polygon(BOW_TIE), delivered("delivery 2")).await;
    let plans = [one, two].map(|record| draft(&record, &source, &grid).unwrap());
    assert_eq!(plans[0].after, plans[1].after);
    assert_ne!(plans[0].key, plans[1].key, "two deliveries are two events");
}

#[test]
fn a_version_that_was_far_ahead_is_no_matter_of_geometry() {
    let payload = r#"{"type":"Feature","properties":{"at":"2027-01-01T00:00:00Z"},"geometry":{"type":"Polygon","coordinates":[[[0,0],[2,2],[2,0],[0,2],[0,0]]]}}"#;
    let policy = Policy { version: Some(geonce_key::Pointer::parse("/properties/at").unwrap()), ..Policy::default() };
    let plan = planned(payload, "grid", policy).unwrap();
    assert_eq!(plan.problem.unwrap().code, "version_future");
    assert!(Timestamp::default() < START);
}
