//! Checks of what is kept: dead letters, revival, expiry, lists and counts.

use super::{APPLIED, Bench, START, at, cause, key};
use crate::error::Kind;
use crate::event::{Class, EventId, Outcome, State};
use crate::store::{End, Filter, ListRequest, Options, Record, Settled, Store, Verdict};
use std::sync::Arc;
use std::time::Duration;

pub(super) async fn dead_events_are_replayed_and_purged(bench: &Bench) {
    let ids = bench.fill(&["a", "b", "c"], START).await;
    for leased in bench.lease("map", 2, START).await {
        bench.settle(&leased.lease, End::Dead(cause(Class::Schema)), at(1)).await;
    }
    assert_eq!(bench.ledger().await.dead, 2);
    let by_code = |code: &str| Filter { code: Some(code.to_owned()), ..Filter::default() };
    assert_eq!(bench.replay(by_code("geometry"), at(2)).await, 0);
    let first = Filter { id: Some(ids[0]), ..by_code("schema") };
    assert_eq!(bench.replay(first, at(2)).await, 1);
    let record = bench.record(ids[0]).await;
    assert_eq!((record.state, record.settled, record.work[0].attempts), (State::Ready, None, 0));
    assert_eq!(bench.purge(Filter { state: Some(State::Ready), ..Filter::default() }, at(3)).await, 0);
    assert_eq!(bench.purge(Filter { key: Some(key("b").key()), ..Filter::default() }, at(3)).await, 1);
    assert_eq!(bench.purge(Filter::default(), at(3)).await, 0, "only the dead are purged");
    let ledger = bench.ledger().await;
    assert_eq!((ledger.dead, ledger.purged, ledger.waiting), (0, 1, 2));
    assert!(bench.list(Filter { id: Some(ids[1]), ..Filter::default() }).await.is_empty());
    assert_eq!(bench.accept_one(bench.event("b", at(4)), at(4)).await, Verdict::Accepted, "its key is free");
    let copy = bench.accept_one(bench.event("b", at(4)), at(4)).await;
    assert!(matches!(copy, Verdict::Duplicate { of, .. } if of != ids[1]), "{copy:?}");
}

pub(super) async fn a_redelivery_revives_what_died_of_a_transient_cause(bench: &Bench) {
    let id = bench.fill(&["a"], START).await[0];
    let end = End::Retry { at: at(1), cause: cause(Class::Unavailable), counts: true };
    let lease = bench.lease("map", 1, START).await.remove(0).lease;
    bench.settle(&lease, end, at(1)).await;
    bench.settle_all("map", End::Dead(cause(Class::Unavailable)), at(2)).await;
    assert_eq!(bench.record(id).await.state, State::Dead);
    let revived = Verdict::Duplicate { of: id, state: State::Ready, outcome: None, drift: false, revived: true };
    assert_eq!(bench.accept_one(bench.event("a", at(3)), at(3)).await, revived);
    let leased = bench.lease("map", 1, at(3)).await.remove(0);
    assert_eq!(leased.attempts, 0);
    bench.settle(&leased.lease, End::Dead(cause(Class::Geometry)), at(4)).await;
    let dead = Verdict::Duplicate { of: id, state: State::Dead, outcome: None, drift: false, revived: false };
    assert_eq!(bench.accept_one(bench.event("a", at(5)), at(5)).await, dead);
    let ledger = bench.ledger().await;
    assert_eq!((ledger.revived, ledger.duplicate, ledger.dead, ledger.received), (1, 2, 1, 3));
}

fn ids(records: &[Record]) -> Vec<EventId> {
    records.iter().map(|record| record.id).collect()
}

pub(super) async fn lists_are_filtered_and_paged(bench: &Bench) {
    let mut all = Vec::new();
    for (second, name) in [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")] {
        all.extend(bench.fill(&[name], at(second)).await);
    }
    let mut elsewhere = bench.event("f", at(6));
    elsewhere.source = "sensors".into();
    all.push(elsewhere.id);
    bench.accept_one(elsewhere, at(6)).await;
    let leased = bench.lease("map", 3, at(6)).await;
    bench.settle(&leased[0].lease, APPLIED, at(7)).await;
    bench.settle(&leased[1].lease, End::Dead(cause(Class::Crs)), at(7)).await;
    let checks: [(Filter, &[usize]); 12] = [
        (Filter::default(), &[5, 4, 3, 2, 1, 0]),
        (Filter { state: Some(State::Done), ..Filter::default() }, &[0]),
        (Filter { state: Some(State::Dead), ..Filter::default() }, &[1]),
        (Filter { state: Some(State::Leased), ..Filter::default() }, &[2]),
        (Filter { state: Some(State::Ready), ..Filter::default() }, &[5, 4, 3]),
        (Filter { source: Some("sensors".into()), ..Filter::default() }, &[5]),
        (Filter { source: Some("nobody".into()), ..Filter::default() }, &[]),
        (Filter { outcome: Some(Outcome::Applied), ..Filter::default() }, &[0]),
        (Filter { code: Some("crs".into()), ..Filter::default() }, &[1]),
        (Filter { since: Some(at(3)), until: Some(at(5)), ..Filter::default() }, &[3, 2]),
        (Filter { key: Some(key("d").key()), ..Filter::default() }, &[3]),
        (Filter { key: Some(key("d").key()), state: Some(State::Dead), ..Filter::default() }, &[]),
    ];
    for (filter, places) in checks {
        let expected: Vec<EventId> = places.iter().map(|&place| all[place]).collect();
        assert_eq!(ids(&bench.list(filter.clone()).await), expected, "{filter:?}");
    }
    let (mut before, mut paged) = (None, Vec::new());
    loop {
        let request = ListRequest { filter: Filter::default(), before, limit: 4, payloads: false };
        let page = bench.store.list(request).await.unwrap();
        let Some(last) = page.last() else {
            break;
        };
        assert!(page.len() <= 4 && page.iter().all(|record| record.payload.is_none()));
        before = Some(last.id);
        paged.extend(ids(&page));
    }
    all.reverse();
    assert_eq!(paged, all);
}

pub(super) async fn the_store_counts_what_it_holds(bench: &Bench) {
    assert_eq!(bench.store.status().await.unwrap().ledgers.len(), 0);
    bench.fill(&["a", "b", "c", "d"], at(1)).await;
    let leased = bench.lease("map", 3, at(1)).await;
    bench.settle(&leased[0].lease, APPLIED, at(2)).await;
    bench.settle(&leased[1].lease, End::Dead(cause(Class::Schema)), at(2)).await;
    let status = bench.store.status().await.unwrap();
    let states: Vec<u64> = State::ALL.iter().map(|state| status.states[state]).collect();
    assert_eq!(states, [1, 1, 1, 1]);
    assert_eq!(status.dead[&("survey".to_owned(), "schema".to_owned())], 1);
    assert_eq!((status.keys, status.oldest_waiting), (4, Some(at(1))));
    assert!(status.bytes > 0);
}

pub(super) async fn what_is_past_its_time_is_forgotten(make: &impl AsyncFn(Options) -> Arc<dyn Store>) {
    let (window, dead_retention) = (Duration::from_secs(100), Duration::from_secs(1_000));
    let bench = &Bench::new(make(Options { window, dead_retention, ..Options::default() }).await);
    let ids = bench.fill(&["done", "dead", "late", "waits"], START).await;
    let leased = bench.lease("map", 3, START).await;
    bench.settle(&leased[0].lease, APPLIED, at(10)).await;
    bench.settle(&leased[1].lease, End::Dead(cause(Class::Schema)), at(10)).await;
    assert_eq!(bench.store.extend(vec![leased[2].lease.clone()], at(100)).await.unwrap(), [Settled::Ok]);
    bench.settle(&leased[2].lease, APPLIED, at(90)).await;
    assert_eq!(bench.sweep(100, at(105)).await.forgotten, 0, "counted from when it was done");
    let swept = bench.sweep(100, at(111)).await;
    assert_eq!((swept.forgotten, swept.purged, swept.more), (1, 0, false));
    assert!(bench.list(Filter { id: Some(ids[0]), ..Filter::default() }).await.is_empty());
    assert_eq!(bench.accept_one(bench.event("done", at(111)), at(111)).await, Verdict::Accepted, "its key is free");
    for name in ["dead", "late", "waits"] {
        let verdict = bench.accept_one(bench.event(name, at(111)), at(111)).await;
        assert!(matches!(verdict, Verdict::Duplicate { .. }), "{name}: {verdict:?}");
    }
    let swept = bench.sweep(100, at(2_000)).await;
    assert_eq!((swept.forgotten, swept.purged), (1, 1));
    let ledger = bench.ledger().await;
    assert_eq!((ledger.applied, ledger.purged, ledger.waiting, ledger.duplicate), (2, 1, 2, 3));
    let names: Vec<String> = (0..40).map(|number| format!("n{number}")).collect();
    bench.fill(&names.iter().map(String::as_str).collect::<Vec<_>>(), at(2_000)).await;
    bench.settle_all("map", APPLIED, at(2_000)).await;
    let (mut forgotten, mut rounds) = (0, 0);
    loop {
        let swept = bench.sweep(15, at(9_000)).await;
        assert!(swept.forgotten <= 15);
        forgotten += swept.forgotten;
        rounds += 1;
        assert!(rounds < 100, "a sweep comes to an end");
        if !swept.more {
            break;
        }
    }
    assert_eq!(forgotten, 42);
    bench.fill(&["at once"], at(9_000)).await;
    bench.settle_all("map", APPLIED, at(9_000)).await;
    assert_eq!(
        bench.sweep(100, at(9_100)).await.forgotten,
        1,
        "to the millisecond, though it came and was done in one"
    );
    bench.finish("what_is_past_its_time_is_forgotten").await;
}

pub(super) async fn payloads_go_when_they_are_not_kept(make: &impl AsyncFn(Options) -> Arc<dyn Store>) {
    let bench = &Bench::new(make(Options { keep_payload: false, ..Options::default() }).await);
    let ids = bench.fill(&["a", "b"], START).await;
    let lease = bench.lease("map", 1, START).await.remove(0).lease;
    bench.settle(&lease, APPLIED, START).await;
    assert_eq!(bench.record(ids[0]).await.payload, None);
    assert!(bench.record(ids[1]).await.payload.is_some());
    bench.finish("payloads_go_when_they_are_not_kept").await;
}

pub(super) async fn a_closed_store_answers_that_it_is(bench: &Bench) {
    bench.store.close().await.unwrap();
    let accept = bench.store.accept(vec![bench.event("a", START)], START).await;
    assert_eq!(accept.map_err(|error| error.kind()), Err(Kind::Unavailable));
    let list = bench.store.list(ListRequest::default()).await;
    assert_eq!(list.map_err(|error| error.kind()).err(), Some(Kind::Unavailable));
}
