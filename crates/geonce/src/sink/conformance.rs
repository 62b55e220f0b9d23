//! The suite that every transactional sink passes: whatever is repeated, reordered, cut off or wrong, an event is applied
//! once and its neighbours are not harmed. A sink's tests hand in a [`Place`] and call [`append`], [`upsert`] or both; those of
//! a sink whose rows take others in hand in a [`Layer`] and call [`merging`].
//!
//! The functions panic where a sink breaks the contract: they are tests that live here because backends share them.

#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a suite of tests")]

mod deletion;
mod merging;

pub use merging::{Layer, RowPoint, merging};

use super::{Mode, Outgoing, Sink, Written};
use crate::clock::Timestamp;
use crate::event::{Class, EventId, Ids, Outcome};
use crate::store::Answer;
use bytes::Bytes;
use geonce_key::policy::{Deletion, Field, Identity};
use geonce_key::{Encoding, Form, Input, Keyer, Pointer, Policy, Property, Reader};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Somewhere that a sink can be opened, any number of times.
pub trait Place: Send + Sync {
    /// Opens the sink as it was left.
    fn open(&self, mode: Mode) -> Answer<'_, Arc<dyn Sink>>;

    /// The keys (text form) of the rows or lines that are there, in order, repeated where they are there repeatedly.
    fn rows(&self) -> Answer<'_, Vec<String>>;
}

/// When the events of the suite were received.
const RECEIVED: Timestamp = Timestamp::from_millis(1_794_700_800_000);

/// Makes events of one source. Entities are named by the property `name`; `version` is a version where it is there.
pub struct Maker {
    ids: Ids,
}

impl Maker {
    /// A new source.
    pub fn new() -> Maker {
        Maker { ids: Ids::new() }
    }

    /// The event of a JSON payload.
    pub fn event(&self, json: &str) -> Outgoing {
        let has_version = json.contains("\"version\"");
        let pointer = |text: &str| Pointer::parse(text).unwrap();
        let version = has_version.then(|| pointer("/properties/version"));
        let delete = Deletion { at: pointer("/properties/deleted"), equals: Property::Boolean(true) };
        let policy =
            Policy { identity: Identity::Whole { ignore: vec![] }, version, delete: Some(delete), ..Policy::default() };
        let entity = [Field { optional: true, ..Field::required(pointer("/properties/name")) }];
        let input = Input::json(json.as_bytes());
        let feature = Reader::new(&policy, Some(&entity)).unwrap().read(input).unwrap();
        Outgoing {
            event: self.ids.next(RECEIVED),
            key: Keyer::new(&policy).unwrap().key(input).unwrap().fingerprint,
            origin: None,
            source: "fleet".into(),
            received: RECEIVED,
            version: feature.version.clone(),
            entity: feature.entity,
            content: Sha256::digest(json).into(),
            rest: None,
            feature,
            form: Form::Json,
            payload: Bytes::copy_from_slice(json.as_bytes()),
            merge: None,
        }
    }

    /// The `n`-th of a series of points, all different.
    pub fn point(&self, n: usize) -> Outgoing {
        let (x, y) = (n % 360, n / 360 % 180);
        self.event(&format!(
            r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[{x}.25e-1,{y}.5e-1]}},"properties":{{"name":"p{n}","n":{n}}}}}"#
        ))
    }

    fn entity(&self, name: &str, version: &str, speed: u32) -> Outgoing {
        self.event(&format!(
            r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[{speed},1]}},"properties":{{"name":"{name}","version":{version},"speed":{speed}}}}}"#
        ))
    }
}

impl Default for Maker {
    fn default() -> Self {
        Maker::new()
    }
}

fn key(outgoing: &Outgoing) -> String {
    outgoing.key.text(Encoding::Base64)
}

const APPLIED: Written = Written::Done(Outcome::Applied);
const STALE: Written = Written::Done(Outcome::Stale);

async fn write(sink: &Arc<dyn Sink>, batch: &[Outgoing]) -> Vec<Written> {
    let written = sink.write(batch.to_vec()).await.unwrap();
    assert_eq!(written.len(), batch.len(), "one answer for each event");
    written
}

async fn assert_rows<P: Place>(place: &P, events: &[Outgoing]) {
    let mut expected: Vec<String> = events.iter().map(key).collect();
    let mut found = place.rows().await.unwrap();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected, "each event once");
}

/// Everything a sink of events promises.
pub async fn append<P: Place>(make: impl Fn() -> P) {
    writing_twice_is_writing_once(&make()).await;
    a_crash_before_settling_repeats_nothing(&make()).await;
    a_bad_event_does_not_harm_its_neighbours(&make(), Mode::Append).await;
    proofs_are_told_and_listed(&make(), Mode::Append).await;
    writers_beside_each_other_write_once(&make(), Mode::Append).await;
    nothing_and_much_are_batches_too(&make(), Mode::Append).await;
    of_several_repairs_of_an_event_one_is_written(&make()).await;
}

/// Everything a sink of entities promises.
pub async fn upsert<P: Place>(make: impl Fn() -> P) {
    let declared = Mode::Upsert { arrival: false };
    the_latest_version_is_kept(&make()).await;
    versions_that_cannot_be_ordered_are_conflicts(&make()).await;
    events_without_a_version_or_an_entity_are_refused(&make()).await;
    the_last_arrival_is_kept(&make()).await;
    proofs_are_told_and_listed(&make(), Mode::Upsert { arrival: true }).await;
    a_bad_event_does_not_harm_its_neighbours(&make(), Mode::Upsert { arrival: true }).await;
    racing_versions_end_at_the_highest(&make(), declared).await;
    nothing_and_much_are_batches_too(&make(), Mode::Upsert { arrival: true }).await;
    deletion::cases(make).await;
}

async fn writing_twice_is_writing_once<P: Place>(place: &P) {
    let maker = Maker::new();
    let events: Vec<Outgoing> = (0..20).map(|n| maker.point(n)).collect();
    let sink = place.open(Mode::Append).await.unwrap();
    sink.check().await.unwrap();
    // The same key under another event id, as after a lost ledger, is the same event.
    let again: Vec<Outgoing> = (0..20).map(|n| maker.point(n)).collect();
    let doubled = [&events[..], &again[..], &events[..5]].concat();
    assert!(write(&sink, &doubled).await.iter().all(|written| *written == APPLIED));
    assert!(write(&sink, &again).await.iter().all(|written| *written == APPLIED));
    assert_rows(place, &events).await;
    sink.close().await.unwrap();
    drop(sink);
    let sink = place.open(Mode::Append).await.unwrap();
    let more = [&events[..], &[maker.point(20)]].concat();
    assert!(write(&sink, &more).await.iter().all(|written| *written == APPLIED));
    drop(sink);
    assert_rows(place, &more).await;
}

async fn a_crash_before_settling_repeats_nothing<P: Place>(place: &P) {
    let maker = Maker::new();
    let events: Vec<Outgoing> = (0..50).map(|n| maker.point(n)).collect();
    for (round, batch) in events.chunks(10).enumerate() {
        // Nobody hears the answer: everything is written again, by the next process.
        let sink = place.open(Mode::Append).await.unwrap();
        write(&sink, batch).await;
        drop(sink);
        let sink = place.open(Mode::Append).await.unwrap();
        let (keys, written) = (events.iter().map(|event| event.key).collect(), (round + 1) * 10);
        let proofs = sink.proofs(keys).await.unwrap().unwrap();
        assert_eq!(proofs.iter().filter(|proof| **proof).count(), written);
        assert!(write(&sink, batch).await.iter().all(|written| *written == APPLIED));
    }
    assert_rows(place, &events).await;
}

async fn a_bad_event_does_not_harm_its_neighbours<P: Place>(place: &P, mode: Mode) {
    let maker = Maker::new();
    let mut batch: Vec<Outgoing> = (0..9).map(|n| maker.point(n)).collect();
    // A system nobody knows: neither a layer nor a line in WGS 84 can be made of it.
    batch[4].feature.crs = 9_999_999;
    batch[4].form = Form::Wkt;
    let sink = place.open(mode).await.unwrap();
    for _ in 0..2 {
        for (n, written) in write(&sink, &batch).await.into_iter().enumerate() {
            match written {
                Written::Dead(cause) => assert!(n == 4 && cause.class == Class::Crs, "{n} {cause:?}"),
                other => assert!(n != 4 && other == APPLIED, "{n} {other:?}"),
            }
        }
    }
    let good = [&batch[..4], &batch[5..]].concat();
    assert_rows(place, &good).await;
    assert_eq!(sink.proofs(vec![batch[4].key]).await.unwrap(), Some(vec![false]), "dead is not decided");
}

async fn of_several_repairs_of_an_event_one_is_written<P: Place>(place: &P) {
    let maker = Maker::new();
    let originals: Vec<Outgoing> = (0..4).map(|n| maker.point(n)).collect();
    let repair = |n: usize, of: usize| Outgoing { origin: Some(originals[of].key), ..maker.point(100 + n) };
    let sink = place.open(Mode::Append).await.unwrap();
    // Two repairs of one original, beside each other and beside others, as after a lost ledger; then a third, later.
    let batch = [repair(0, 0), maker.point(50), repair(1, 0), repair(2, 1), maker.point(51)];
    assert!(write(&sink, &batch).await.iter().all(|written| *written == APPLIED));
    assert!(write(&sink, &batch).await.iter().all(|written| *written == APPLIED));
    drop(sink);
    let sink = place.open(Mode::Append).await.unwrap();
    assert_eq!(write(&sink, &[repair(3, 1)]).await, [APPLIED]);
    // The original itself comes too late; and one that was written before it was repaired needs no second row.
    assert_eq!(write(&sink, &originals[..3]).await, [APPLIED, APPLIED, APPLIED]);
    assert_eq!(write(&sink, &[repair(4, 2), repair(5, 3)]).await, [APPLIED, APPLIED]);
    let rows = [&batch[..2], &batch[3..], &originals[2..3], &[repair(5, 3)]].concat();
    assert_rows(place, &rows).await;
    let keys = originals.iter().chain(&batch).map(|event| event.key).collect();
    assert_eq!(sink.proofs(keys).await.unwrap(), Some(vec![true; originals.len() + batch.len()]));
}

async fn proofs_are_told_and_listed<P: Place>(place: &P, mode: Mode) {
    let maker = Maker::new();
    let events: Vec<Outgoing> = (0..25).map(|n| maker.point(n)).collect();
    let sink = place.open(mode).await.unwrap();
    assert_eq!(sink.applied(None, 10).await.unwrap(), Some(vec![]));
    write(&sink, &events[..20]).await;
    let keys = events.iter().map(|event| event.key).collect();
    let expected: Vec<bool> = (0..25).map(|n| n < 20).collect();
    assert_eq!(sink.proofs(keys).await.unwrap(), Some(expected));
    assert_eq!(sink.proofs(vec![]).await.unwrap(), Some(vec![]));
    let (mut found, mut after): (Vec<([u8; 16], EventId)>, _) = (Vec::new(), None);
    loop {
        let page = sink.applied(after, 7).await.unwrap().unwrap();
        assert!(page.len() <= 7);
        let Some(last) = page.last() else { break };
        after = Some(last.key);
        found.extend(page.iter().map(|proof| (proof.key, proof.event)));
    }
    assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0), "pages are in order");
    let expected: BTreeSet<_> = events[..20].iter().map(|event| (event.key.key(), event.event)).collect();
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
}

async fn writers_beside_each_other_write_once<P: Place>(place: &P, mode: Mode) {
    let maker = Maker::new();
    let events: Vec<Outgoing> = (0..200).map(|n| maker.point(n)).collect();
    let sink = place.open(mode).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let (sink, mut events) = (Arc::clone(&sink), events.clone());
        events.rotate_left(writer * 25);
        tasks.spawn(async move {
            for batch in events.chunks(16) {
                assert!(write(&sink, batch).await.iter().all(|written| *written == APPLIED));
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_rows(place, &events).await;
}

async fn nothing_and_much_are_batches_too<P: Place>(place: &P, mode: Mode) {
    let maker = Maker::new();
    let sink = place.open(mode).await.unwrap();
    assert_eq!(sink.write(vec![]).await.unwrap(), vec![]);
    let nulls = r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[1,2]},"properties":null}"#;
    let long = "ä\\n\\\"".repeat(20_000);
    let text = format!(
        r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[1,2]}},"properties":{{"name":"long","text":"{long}"}}}}"#
    );
    let members: Vec<String> = (0..300).map(|n| format!(r#""property {n}":{n}"#)).collect();
    let wide = format!(
        r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[1,2]}},"properties":{{"name":"wide",{}}}}}"#,
        members.join(",")
    );
    let positions: Vec<String> = (0..5_000).map(|n| format!("[{}.5,{}]", n % 170, n % 89)).collect();
    let line = format!(
        r#"{{"type":"Feature","geometry":{{"type":"LineString","coordinates":[{}]}},"properties":{{"name":"line"}}}}"#,
        positions.join(",")
    );
    let mut batch: Vec<Outgoing> = [nulls, &text, &wide, &line].iter().map(|json| maker.event(json)).collect();
    batch.extend((0..2_000).map(|n| maker.point(n)));
    assert!(write(&sink, &batch).await.iter().all(|written| *written == APPLIED));
    assert!(write(&sink, &batch).await.iter().all(|written| *written == APPLIED));
    assert_rows(place, &batch).await;
}

async fn the_latest_version_is_kept<P: Place>(place: &P) {
    let maker = Maker::new();
    let mode = Mode::Upsert { arrival: false };
    let sink = place.open(mode).await.unwrap();
    let versions: Vec<Outgoing> = (1..=5).map(|n| maker.entity("a", &n.to_string(), n)).collect();
    let other = maker.entity("b", "\"2026-11-14T08:00:00Z\"", 7);
    let written = write(&sink, &[versions[1].clone(), versions[3].clone(), versions[0].clone(), other.clone()]).await;
    assert_eq!(written, [APPLIED, APPLIED, STALE, APPLIED]);
    assert_rows(place, &[versions[3].clone(), other.clone()]).await;
    drop(sink);
    let sink = place.open(mode).await.unwrap();
    // What was decided stays decided: applied although it is not the latest any more, stale although it is repeated.
    let written = write(&sink, &[versions[1].clone(), versions[0].clone(), versions[2].clone()]).await;
    assert_eq!(written, [APPLIED, STALE, STALE]);
    let written = write(&sink, &[versions[4].clone(), versions[3].clone()]).await;
    assert_eq!(written, [APPLIED, APPLIED]);
    assert_rows(place, &[versions[4].clone(), other]).await;
}

async fn versions_that_cannot_be_ordered_are_conflicts<P: Place>(place: &P) {
    let maker = Maker::new();
    let sink = place.open(Mode::Upsert { arrival: false }).await.unwrap();
    let first = maker.entity("a", "3", 1);
    let mut same_content = maker.entity("a", "3", 2);
    same_content.content = first.content;
    let conflict = maker.entity("a", "3", 4);
    let other_sort = maker.entity("a", "\"2026-11-14T08:00:00Z\"", 5);
    let far_ahead = maker.entity("c", "\"2027-11-14T08:00:00Z\"", 5);
    let written = write(&sink, &[first.clone(), same_content, conflict, other_sort, far_ahead]).await;
    let codes: Vec<&str> = written
        .iter()
        .map(|written| match written {
            Written::Dead(cause) => cause.code.as_str(),
            Written::Done(outcome) => outcome.as_str(),
            Written::Became(_) => "applied",
            Written::Retry { .. } => "retry",
        })
        .collect();
    assert_eq!(codes, ["applied", "applied", "conflict", "version_type", "version_future"]);
    assert_rows(place, &[first]).await;
}

async fn events_without_a_version_or_an_entity_are_refused<P: Place>(place: &P) {
    let maker = Maker::new();
    let sink = place.open(Mode::Upsert { arrival: false }).await.unwrap();
    let no_version = maker.point(1);
    let mut no_entity = maker.entity("a", "1", 1);
    no_entity.entity = None;
    for written in write(&sink, &[no_version, no_entity]).await {
        assert!(matches!(&written, Written::Dead(cause) if cause.class == Class::Schema), "{written:?}");
    }
    assert_rows(place, &[]).await;
}

async fn the_last_arrival_is_kept<P: Place>(place: &P) {
    let maker = Maker::new();
    let mode = Mode::Upsert { arrival: true };
    let at = |x: u32| {
        maker.event(&format!(
            r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[{x},0]}},"properties":{{"name":"a"}}}}"#
        ))
    };
    let (first, second, third) = (at(1), at(2), at(3));
    let sink = place.open(mode).await.unwrap();
    assert_eq!(write(&sink, &[first.clone(), second.clone(), first.clone()]).await, [APPLIED, APPLIED, APPLIED]);
    assert_rows(place, std::slice::from_ref(&second)).await;
    drop(sink);
    let sink = place.open(mode).await.unwrap();
    assert_eq!(write(&sink, &[first, third.clone(), second]).await, [APPLIED, APPLIED, APPLIED]);
    assert_rows(place, &[third]).await;
}

async fn racing_versions_end_at_the_highest<P: Place>(place: &P, mode: Mode) {
    let maker = Maker::new();
    let versions: Vec<Outgoing> = (1..=40).map(|n| maker.entity("a", &n.to_string(), n)).collect();
    let sink = place.open(mode).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..4 {
        let (sink, mut versions) = (Arc::clone(&sink), versions.clone());
        versions.rotate_left(writer * 11);
        tasks.spawn(async move {
            for batch in versions.chunks(3) {
                let written = write(&sink, batch).await;
                assert!(written.iter().all(|one| *one == APPLIED || *one == STALE), "{written:?}");
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_rows(place, &versions[39..]).await;
}
