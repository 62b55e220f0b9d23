//! Checks of what comes in: fresh events, duplicates, conflicts, refusals.

use super::{APPLIED, Bench, START, at, cause, key, routes};
use crate::event::{Class, EventId, Outcome, State};
use crate::store::{Admission, Counted, Filter, Lag, NewEvent, Verdict};
use bytes::Bytes;
use geonce_key::{Fingerprint, Form};
use std::sync::Arc;
use std::time::Duration;

/// A duplicate of an event that waits.
fn duplicate(of: EventId) -> Verdict {
    Verdict::Duplicate { of, state: State::Ready, outcome: None, drift: false, revived: false }
}

pub(super) async fn a_fresh_event_is_accepted_and_its_copy_is_a_duplicate(bench: &Bench) {
    let mut event = bench.event("a", START);
    (event.form, event.crs, event.payload) = (Form::Wkb, Some(25_832), Bytes::from(vec![0, 1, 2, 255]));
    let (id, payload) = (event.id, event.payload.clone());
    assert_eq!(bench.accept_one(event, START).await, Verdict::Accepted);
    assert_eq!(bench.accept_one(bench.event("a", at(1)), at(1)).await, duplicate(id));
    let leased = bench.lease("map", 1, at(2)).await;
    let state_of = |verdict| match verdict {
        Verdict::Duplicate { of, state, outcome, .. } => (of, state, outcome),
        other => panic!("{other:?}"),
    };
    let verdict = bench.accept_one(bench.event("a", at(3)), at(3)).await;
    assert_eq!(state_of(verdict), (id, State::Leased, None));
    bench.settle(&leased[0].lease, APPLIED, at(4)).await;
    let verdict = bench.accept_one(bench.event("a", at(5)), at(5)).await;
    assert_eq!(state_of(verdict), (id, State::Done, Some(Outcome::Applied)));
    let record = bench.record(id).await;
    assert_eq!((record.duplicates, record.received, record.settled), (3, START, Some(at(4))));
    assert_eq!((record.form, record.crs, record.payload), (Form::Wkb, Some(25_832), Some(payload)));
    assert_eq!((record.key, &*record.source), (key("a"), "survey"));
    let ledger = bench.ledger().await;
    assert_eq!((ledger.received, ledger.duplicate, ledger.applied, ledger.waiting), (4, 3, 1, 0));
}

pub(super) async fn a_batch_finds_its_own_duplicates(bench: &Bench) {
    let batch: Vec<_> = ["a", "b", "a", "c", "b"].iter().map(|name| bench.event(name, START)).collect();
    let ids: Vec<EventId> = batch.iter().map(|event| event.id).collect();
    let verdicts = bench.accept(batch, START).await;
    let expected = [Verdict::Accepted, Verdict::Accepted, duplicate(ids[0]), Verdict::Accepted, duplicate(ids[1])];
    assert_eq!(verdicts, expected);
    assert_eq!(bench.accept(Vec::new(), START).await, []);
}

pub(super) async fn any_known_alias_makes_a_duplicate(bench: &Bench) {
    let mut first = bench.event("a", START);
    first.aliases = vec![key("a2"), Fingerprint::from_digest(*key("a3").digest(), true)];
    let (id, aliases) = (first.id, first.aliases.clone());
    assert_eq!(bench.accept_one(first, START).await, Verdict::Accepted);
    for name in ["a", "a2", "a3"] {
        let mut copy = bench.event(name, START);
        copy.content = *key("a").digest();
        assert_eq!(bench.accept_one(copy, START).await, duplicate(id), "{name}");
    }
    let mut by_alias = bench.event("b", START);
    (by_alias.aliases, by_alias.content) = (vec![key("b2"), key("a2")], *key("a").digest());
    assert_eq!(bench.accept_one(by_alias, START).await, duplicate(id));
    // A duplicate claims nothing: its unknown keys are still free.
    assert_eq!(bench.accept_one(bench.event("b", START), START).await, Verdict::Accepted);
    assert_eq!(bench.accept_one(bench.event("b2", START), START).await, Verdict::Accepted);
    // Nor does it in the batch that it comes with.
    let (mut by_alias, fresh) = (bench.event("c", START), bench.event("c", START));
    (by_alias.aliases, by_alias.content) = (vec![key("a2")], *key("a").digest());
    let fresh_id = fresh.id;
    assert_eq!(bench.accept(vec![by_alias, fresh], START).await, [duplicate(id), Verdict::Accepted]);
    assert_eq!(bench.accept_one(bench.event("c", START), START).await, duplicate(fresh_id));
    assert_eq!(bench.record(id).await.aliases, aliases);
    let by_key = bench.list(Filter { key: Some(key("a3").key()), ..Filter::default() }).await;
    assert_eq!(by_key.iter().map(|record| record.id).collect::<Vec<_>>(), [id]);
}

pub(super) async fn the_same_id_again_is_accepted_again(bench: &Bench) {
    let event = bench.event("a", START);
    let twice = vec![event.clone(), event.clone()];
    assert_eq!(bench.accept(twice, START).await, [Verdict::Accepted, Verdict::Accepted]);
    assert_eq!(bench.accept_one(event, at(1)).await, Verdict::Accepted);
    let ledger = bench.ledger().await;
    assert_eq!((ledger.received, ledger.waiting, ledger.duplicate), (1, 1, 0));
    assert_eq!(bench.lease("map", 10, at(1)).await.len(), 1);
}

pub(super) async fn the_same_id_again_is_accepted_even_where_its_key_is_free(bench: &Bench) {
    let delivery = |place: &str| {
        let mut event = bench.event("delivery", START);
        (event.spatial, event.content) = (vec![key(place)], *key(place).digest());
        event
    };
    let mut rival = delivery("here");
    rival.admission = Admission::Dead(cause(Class::Geometry), routes(&["map"]));
    let of = rival.id;
    assert_eq!(bench.accept_one(rival, START).await, Verdict::Accepted);
    let other = delivery("there");
    let event = other.id;
    assert_eq!(bench.accept_one(other.clone(), START).await, Verdict::Conflict { event, of });
    assert_eq!(bench.purge(Filter { id: Some(of), ..Filter::default() }, at(1)).await, 1);
    let beside = bench.event("beside", at(2));
    let verdicts = bench.accept(vec![other, beside], at(2)).await;
    assert_eq!(verdicts, [Verdict::Accepted, Verdict::Accepted], "what is recorded is not recorded again");
    assert_eq!(bench.record(event).await.state, State::Dead);
    let ledger = bench.ledger().await;
    assert_eq!((ledger.received, ledger.dead, ledger.purged, ledger.waiting), (3, 1, 1, 1));
}

pub(super) async fn other_content_under_a_known_delivery_is_a_conflict(bench: &Bench) {
    let delivery = |place: &str| {
        let mut event = bench.event("delivery", START);
        (event.spatial, event.content) = (vec![key(place), key("shared").min(key(place))], *key(place).digest());
        event
    };
    let first = delivery("here");
    let of = first.id;
    assert_eq!(bench.accept_one(first, START).await, Verdict::Accepted);
    assert_eq!(bench.accept_one(delivery("here"), START).await, duplicate(of));
    let mut other = delivery("there");
    other.spatial = vec![key("there")];
    let event = other.id;
    assert_eq!(bench.accept_one(other.clone(), START).await, Verdict::Conflict { event, of });
    assert_eq!(bench.accept_one(other.clone(), START).await, Verdict::Conflict { event, of }, "the answer was lost");
    let again = crate::store::NewEvent { id: bench.event("x", START).id, ..other.clone() };
    assert_eq!(bench.accept_one(again, START).await, Verdict::Conflict { event, of }, "delivered again");
    let record = bench.record(event).await;
    assert_eq!((record.state, record.cause.as_ref().unwrap().code.as_str()), (State::Dead, "conflict"));
    assert_eq!(record.payload, Some(other.payload));
    let ledger = bench.ledger().await;
    assert_eq!((ledger.received, ledger.dead, ledger.conflict, ledger.duplicate), (4, 1, 1, 2));
    // A person may decide that it counts after all.
    assert_eq!(bench.replay(Filter { id: Some(event), ..Filter::default() }, at(1)).await, 1);
    assert_eq!(bench.lease("map", 10, at(1)).await.len(), 2);
}

pub(super) async fn one_key_with_two_fingerprints_is_a_collision(bench: &Bench) {
    let of = bench.fill(&["a"], START).await[0];
    let mut digest = *key("a").digest();
    digest[31] ^= 1;
    let mut other = bench.event("other", START);
    other.key = Fingerprint::from_digest(digest, false);
    let event = other.id;
    assert_eq!(bench.accept_one(other, START).await, Verdict::Conflict { event, of });
    assert_eq!(bench.record(event).await.cause.unwrap().code, "collision");
    let ledger = bench.ledger().await;
    assert_eq!((ledger.collision, ledger.conflict, ledger.dead), (1, 0, 1));
}

pub(super) async fn content_that_differs_outside_the_identity_is_drift(bench: &Bench) {
    let of = bench.fill(&["a"], START).await[0];
    let mut copy = bench.event("a", START);
    copy.content = [9; 32];
    let expected = Verdict::Duplicate { of, state: State::Ready, outcome: None, drift: true, revived: false };
    assert_eq!(bench.accept_one(copy, START).await, expected);
    assert_eq!(bench.ledger().await.drift, 1);
}

pub(super) async fn of_many_copies_at_once_one_is_accepted(bench: &Bench) {
    let mut tasks = tokio::task::JoinSet::new();
    let mut ids = Vec::new();
    for _ in 0..64 {
        let mut event = bench.event("a", START);
        event.aliases = vec![key("a2")];
        ids.push(event.id);
        let store = Arc::clone(&bench.store);
        tasks.spawn(async move { (event.id, store.accept(vec![event], START).await.unwrap().remove(0)) });
    }
    let answers = tasks.join_all().await;
    let accepted: Vec<EventId> =
        answers.iter().filter(|(_, verdict)| *verdict == Verdict::Accepted).map(|&(id, _)| id).collect();
    assert_eq!(accepted.len(), 1);
    let copies = answers.iter().filter(|(_, verdict)| *verdict == duplicate(accepted[0])).count();
    assert_eq!(copies, 63);
    assert_eq!(bench.ledger().await.received, 64);
}

pub(super) async fn an_event_may_be_dead_from_the_start(bench: &Bench) {
    let mut event = bench.event("a", START);
    event.admission = Admission::Dead(cause(Class::Geometry), routes(&["map", "log"]));
    let id = event.id;
    assert_eq!(bench.accept_one(event, START).await, Verdict::Accepted);
    let record = bench.record(id).await;
    assert_eq!((record.state, record.settled, record.cause), (State::Dead, Some(START), Some(cause(Class::Geometry))));
    assert!(bench.lease("map", 10, at(1)).await.is_empty());
    let dead = Verdict::Duplicate { of: id, state: State::Dead, outcome: None, drift: false, revived: false };
    assert_eq!(bench.accept_one(bench.event("a", at(1)), at(1)).await, dead);
    assert_eq!(bench.replay(Filter::default(), at(2)).await, 1);
    assert_eq!(bench.lease("map", 10, at(2)).await.len(), 1);
    assert_eq!(bench.lease("log", 10, at(2)).await.len(), 1);
}

pub(super) async fn refused_events_are_counted(bench: &Bench) {
    let refusal = |code: &str| Counted::Refused { source: "survey".into(), code: code.into() };
    bench.store.count(vec![refusal("geojson_bounds"), refusal("json_syntax"), refusal("geojson_bounds")]);
    // Counted at the latest with what is committed next.
    bench.fill(&["a"], START).await;
    let status = bench.store.status().await.unwrap();
    assert_eq!(status.invalid[&("survey".to_owned(), "geojson_bounds".to_owned())], 2);
    assert_eq!(status.invalid[&("survey".to_owned(), "json_syntax".to_owned())], 1);
    let ledger = bench.ledger().await;
    assert_eq!((ledger.received, ledger.refused, ledger.waiting), (4, 3, 1));
}

pub(super) async fn duplicates_that_were_recognised_elsewhere_are_counted(bench: &Bench) {
    let ids = bench.fill(&["a", "b"], START).await;
    bench.settle_all("map", APPLIED, at(1)).await;
    let unknown = bench.event("gone", START).id;
    let lag = Lag::of(Duration::from_secs(90));
    let counted = |source: &str, of| Counted::Duplicate { source: source.into(), of, lag };
    bench.store.count(vec![counted("survey", ids[0]), counted("other", ids[0]), counted("survey", unknown)]);
    // Counted at the latest with what is committed next.
    bench.fill(&["c"], at(2)).await;
    let records = (bench.record(ids[0]).await, bench.record(ids[1]).await);
    assert_eq!((records.0.duplicates, records.1.duplicates), (2, 0));
    assert_eq!((records.0.state, records.0.outcome), (State::Done, Some(Outcome::Applied)));
    let ledger = bench.ledger().await;
    assert_eq!((ledger.received, ledger.duplicate, ledger.applied, ledger.waiting), (5, 2, 2, 1));
    let other = bench.store.status().await.unwrap().ledgers["other"];
    assert_eq!((other.received, other.duplicate), (1, 1));
    let lags = bench.store.status().await.unwrap().traffic.remove("survey").unwrap().lags;
    assert_eq!(lags, [(Duration::from_mins(2), 2)].into());
    assert!(bench.list(Filter { id: Some(unknown), ..Filter::default() }).await.is_empty());
}

pub(super) async fn redeliveries_are_counted_by_how_late_they_come(bench: &Bench) {
    bench.fill(&["a"], START).await;
    for seconds in [0, 50, 55, 3_000] {
        bench.accept_one(bench.event("a", at(seconds)), at(seconds)).await;
    }
    // A batch finds its own duplicates, and a content that contradicts an earlier one is repeated like any other.
    let contradicting = |seconds| NewEvent {
        spatial: vec![key("elsewhere")],
        content: *key("elsewhere").digest(),
        ..bench.event("a", at(seconds))
    };
    bench.accept(vec![bench.event("b", at(3_100)), bench.event("b", at(3_100))], at(3_100)).await;
    bench.accept_one(contradicting(4_000), at(4_000)).await;
    bench.accept_one(contradicting(4_009), at(4_009)).await;
    let mut status = bench.store.status().await.unwrap();
    let lags = status.traffic.remove("survey").unwrap().lags;
    let seconds = |bound: u64, count: u64| (Duration::from_secs(bound), count);
    assert_eq!(lags, [seconds(1, 2), seconds(10, 1), seconds(60, 2), seconds(3_600, 1)].into());
    assert_eq!(lags.values().sum::<u64>(), status.ledgers["survey"].duplicate);
}

pub(super) async fn fields_in_which_duplicates_differ_are_counted(bench: &Bench) {
    let differs = |fields: &[&str]| Counted::Compared {
        source: "survey".into(),
        fields: fields.iter().map(|&field| field.to_owned()).collect(),
    };
    bench.store.count(vec![differs(&["/properties/a", "/properties/ü:b"]), differs(&["/properties/a"]), differs(&[])]);
    // Counted at the latest with what is committed next.
    bench.fill(&["a"], START).await;
    let mut status = bench.store.status().await.unwrap();
    let traffic = status.traffic.remove("survey").unwrap();
    let fields = [("/properties/a".to_owned(), 2), ("/properties/ü:b".to_owned(), 1)];
    assert_eq!((traffic.compared, traffic.differs), (3, fields.into()));
    assert_eq!(status.ledgers["survey"].received, 1);
}
