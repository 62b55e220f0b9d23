//! Checks of held work: sinks after a sink, and events of one entity one after the other.

use super::{APPLIED, Bench, START, at, cause, key, order, routes};
use crate::clock::Timestamp;
use crate::event::{Class, EventId, Outcome, State};
use crate::store::{Admission, End, Filter, Held, Leased, NewEvent, Order, Settled, Verdict};
use std::time::Duration;

/// An event of an entity with a version, for these sinks.
fn ordered(bench: &Bench, entity: &str, version: u64, sinks: &[&str], now: Timestamp) -> NewEvent {
    let mut event = bench.event_for(&format!("{entity} {version}"), sinks, now);
    event.order = Some(order(entity, version));
    event
}

/// Accepts events of the entity `e` with these versions, for the sink `map`; their ids.
async fn accept(bench: &Bench, versions: &[u64], now: Timestamp) -> Vec<EventId> {
    let batch: Vec<NewEvent> = versions.iter().map(|&version| ordered(bench, "e", version, &["map"], now)).collect();
    let ids = batch.iter().map(|event| event.id).collect();
    let verdicts = bench.accept(batch, now).await;
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Accepted), "{verdicts:?}");
    ids
}

/// Leases what there is, which is one event.
async fn only(bench: &Bench, sink: &str, now: Timestamp) -> Leased {
    let mut leased = bench.lease(sink, 10, now).await;
    assert_eq!(leased.len(), 1, "{leased:?}");
    leased.remove(0)
}

/// Leases what there is, which is this event, and ends it.
async fn serve(bench: &Bench, sink: &str, id: EventId, end: End, now: Timestamp) {
    let leased = only(bench, sink, now).await;
    assert_eq!(leased.lease.event, id);
    assert_eq!(bench.settle(&leased.lease, end, now).await, Settled::Ok);
}

/// What the work of an event at a sink is held for.
async fn held(bench: &Bench, id: EventId, sink: &str) -> Option<Held> {
    let record = bench.record(id).await;
    let work = record.work.into_iter().find(|work| &*work.sink == sink).unwrap();
    assert_eq!((work.state, work.due == Timestamp::MAX), (State::Ready, work.held.is_some()));
    work.held
}

pub(super) async fn work_after_a_sink_is_held_until_that_is_served(bench: &Bench) {
    let event = bench.event_for("a", &["notify<map", "map", "log<elsewhere"], START);
    let id = event.id;
    assert_eq!(bench.accept_one(event, START).await, Verdict::Accepted);
    assert_eq!(held(bench, id, "notify").await, Some(Held::Sink("map".into())));
    assert_eq!(held(bench, id, "log").await, None, "it does not go elsewhere");
    assert!(bench.lease("notify", 10, at(1)).await.is_empty());
    assert_eq!(bench.store.next_due("notify".into()).await.unwrap(), None);
    let retry = End::Retry { at: at(2), cause: cause(Class::Unavailable), counts: true };
    serve(bench, "map", id, retry, at(1)).await;
    assert!(bench.lease("notify", 10, at(2)).await.is_empty());
    let leased = only(bench, "map", at(2)).await;
    let changed = bench.store.changed();
    assert_eq!(bench.settle(&leased.lease, APPLIED, at(3)).await, Settled::Ok);
    assert!(tokio::time::timeout(Duration::from_secs(20), changed).await.is_ok(), "workers hear of it");
    assert_eq!(held(bench, id, "notify").await, None);
    assert_eq!(bench.store.next_due("notify".into()).await.unwrap(), Some(at(3)));
    serve(bench, "notify", id, End::Done(Outcome::Stale, None), at(3)).await;
    serve(bench, "log", id, APPLIED, at(3)).await;
    let record = bench.record(id).await;
    assert_eq!((record.state, record.outcome), (State::Done, Some(Outcome::Applied)));
}

pub(super) async fn what_left_no_row_is_told_to_nobody(bench: &Bench) {
    for outcome in [Outcome::Stale, Outcome::Near, Outcome::Repaired] {
        let event = bench.event_for(outcome.as_str(), &["map", "notify<map", "log<notify"], START);
        let id = event.id;
        assert_eq!(bench.accept_one(event, START).await, Verdict::Accepted);
        serve(bench, "map", id, End::Done(outcome, None), at(1)).await;
        let record = bench.record(id).await;
        assert_eq!((record.state, record.outcome, record.work.len()), (State::Done, Some(outcome), 0));
    }
    assert!(bench.lease("notify", 10, at(2)).await.is_empty());
    assert!(bench.lease("log", 10, at(2)).await.is_empty());
}

pub(super) async fn work_after_a_dead_sink_stays_held(bench: &Bench) {
    let event = bench.event_for("a", &["map", "notify<map", "log"], START);
    let id = event.id;
    assert_eq!(bench.accept_one(event, START).await, Verdict::Accepted);
    serve(bench, "map", id, End::Dead(cause(Class::Schema)), at(1)).await;
    assert_eq!(bench.record(id).await.state, State::Ready, "another sink is still to be served");
    serve(bench, "log", id, APPLIED, at(1)).await;
    let record = bench.record(id).await;
    assert_eq!((record.state, record.cause), (State::Dead, Some(cause(Class::Schema))));
    assert_eq!(held(bench, id, "notify").await, Some(Held::Sink("map".into())));
    assert!(bench.lease("notify", 10, at(2)).await.is_empty());
    assert_eq!(bench.store.status().await.unwrap().oldest_waiting, None, "a dead event does not wait");
    // An event that is dead from the start goes the same way, once it is replayed or comes again.
    let mut other = bench.event_for("b", &["map", "notify<map"], at(2));
    other.admission = Admission::Dead(cause(Class::Unavailable), routes(&["map", "notify<map"]));
    let other_id = other.id;
    assert_eq!(bench.accept_one(other.clone(), at(2)).await, Verdict::Accepted);
    other.id = bench.event("b", at(2)).id;
    let verdict = bench.accept_one(other, at(2)).await;
    assert!(matches!(verdict, Verdict::Duplicate { revived: true, .. }), "{verdict:?}");
    assert_eq!(bench.replay(Filter::default(), at(2)).await, 1);
    assert!(bench.lease("notify", 10, at(2)).await.is_empty());
    bench.settle_all("map", APPLIED, at(3)).await;
    for sink_id in [id, other_id] {
        assert_eq!(held(bench, sink_id, "notify").await, None);
    }
    bench.settle_all("notify", APPLIED, at(3)).await;
    assert_eq!(bench.ledger().await.applied, 2);
}

pub(super) async fn events_of_an_entity_go_one_by_one_lowest_version_first(bench: &Bench) {
    let ids = accept(bench, &[30, 10, 20], START).await;
    let other = ordered(bench, "other", 5, &["map", "log"], START);
    let other_id = other.id;
    assert_eq!(bench.accept_one(other, START).await, Verdict::Accepted);
    assert_eq!(held(bench, ids[0], "map").await, Some(Held::Entity));
    let leased = bench.lease("map", 10, at(1)).await;
    let mut events: Vec<EventId> = leased.iter().map(|leased| leased.lease.event).collect();
    events.sort_unstable();
    assert_eq!(events, [ids[1], other_id]);
    assert!(bench.lease("map", 10, at(1)).await.is_empty());
    // Another sink has lines of its own.
    let later = ordered(bench, "other", 6, &["log"], at(1));
    let later_id = later.id;
    assert_eq!(bench.accept_one(later, at(1)).await, Verdict::Accepted);
    serve(bench, "log", other_id, APPLIED, at(1)).await;
    serve(bench, "log", later_id, APPLIED, at(1)).await;
    for leased in leased {
        assert_eq!(bench.settle(&leased.lease, APPLIED, at(2)).await, Settled::Ok);
    }
    assert_eq!(bench.store.next_due("map".into()).await.unwrap(), Some(at(2)));
    serve(bench, "map", ids[2], End::Done(Outcome::Stale, None), at(2)).await;
    serve(bench, "map", ids[0], APPLIED, at(3)).await;
    assert!(bench.lease("map", 10, at(4)).await.is_empty());
    assert_eq!(bench.ledger().await.waiting, 0);
}

pub(super) async fn a_lower_version_goes_before_what_was_never_leased(bench: &Bench) {
    let five = accept(bench, &[5], START).await[0];
    let three = accept(bench, &[3], at(1)).await[0];
    assert_eq!(held(bench, five, "map").await, Some(Held::Entity));
    let leased = only(bench, "map", at(1)).await;
    assert_eq!(leased.lease.event, three);
    let one = accept(bench, &[1], at(2)).await[0];
    assert_eq!(held(bench, one, "map").await, Some(Held::Entity), "what was leased is not overtaken");
    assert!(bench.lease("map", 10, at(2)).await.is_empty());
    assert_eq!(bench.settle(&leased.lease, APPLIED, at(2)).await, Settled::Ok);
    serve(bench, "map", one, APPLIED, at(3)).await;
    serve(bench, "map", five, APPLIED, at(3)).await;
}

pub(super) async fn who_tries_again_holds_the_line(bench: &Bench) {
    let two = accept(bench, &[2], START).await[0];
    let retry = End::Retry { at: at(100), cause: cause(Class::Unavailable), counts: false };
    serve(bench, "map", two, retry, at(1)).await;
    let (one, three) = (accept(bench, &[1], at(2)).await[0], accept(bench, &[3], at(2)).await[0]);
    assert!(bench.lease("map", 10, at(99)).await.is_empty());
    assert_eq!(bench.store.next_due("map".into()).await.unwrap(), Some(at(100)));
    // Whoever holds it may die, and does not lose its place by that.
    assert_eq!(only(bench, "map", at(100)).await.lease.event, two);
    let lapsed = only(bench, "map", at(161)).await;
    assert_eq!((lapsed.lease.event, lapsed.lapses), (two, 1));
    assert!(bench.lease("map", 10, at(162)).await.is_empty());
    assert_eq!(bench.settle(&lapsed.lease, APPLIED, at(163)).await, Settled::Ok);
    serve(bench, "map", one, APPLIED, at(163)).await;
    serve(bench, "map", three, APPLIED, at(163)).await;
}

pub(super) async fn the_dead_let_the_next_one_go_and_come_back_in_their_place(bench: &Bench) {
    let ids = accept(bench, &[1, 2, 3, 4], START).await;
    serve(bench, "map", ids[0], End::Dead(cause(Class::Schema)), at(1)).await;
    let leased = only(bench, "map", at(1)).await;
    assert_eq!(leased.lease.event, ids[1]);
    assert_eq!(bench.replay(Filter::default(), at(2)).await, 1);
    assert_eq!(held(bench, ids[0], "map").await, Some(Held::Entity));
    assert_eq!(bench.settle(&leased.lease, End::Dead(cause(Class::Unavailable)), at(2)).await, Settled::Ok);
    let first = only(bench, "map", at(2)).await;
    assert_eq!(first.lease.event, ids[0]);
    // A redelivery brings the second one back, to its place before the third.
    let mut again = ordered(bench, "e", 2, &["map"], at(3));
    again.content = *key("e 2").digest();
    let verdict = bench.accept_one(again, at(3)).await;
    assert!(matches!(verdict, Verdict::Duplicate { revived: true, .. }), "{verdict:?}");
    assert_eq!(bench.settle(&first.lease, APPLIED, at(3)).await, Settled::Ok);
    for &id in &ids[1..] {
        serve(bench, "map", id, APPLIED, at(4)).await;
    }
    // With nobody before it, a replayed event has its turn at once.
    let last = accept(bench, &[9], at(5)).await[0];
    serve(bench, "map", last, End::Dead(cause(Class::Schema)), at(5)).await;
    assert_eq!(bench.replay(Filter::default(), at(6)).await, 1);
    serve(bench, "map", last, APPLIED, at(6)).await;
    assert_eq!(bench.ledger().await.applied, 5);
}

pub(super) async fn without_versions_events_of_an_entity_go_in_order_of_acceptance(bench: &Bench) {
    let mut ids = Vec::new();
    for number in 0..4 {
        let mut event = bench.event(&format!("a{number}"), at(number));
        event.order = Some(Order::new(key("e"), None));
        ids.push(event.id);
        assert_eq!(bench.accept_one(event, at(number)).await, Verdict::Accepted);
    }
    for id in ids {
        serve(bench, "map", id, APPLIED, at(10)).await;
    }
}

pub(super) async fn what_waits_for_a_sink_comes_into_its_line_after_that(bench: &Bench) {
    let sinks = ["map", "notify<map"];
    let batch: Vec<NewEvent> = [2, 1].iter().map(|&version| ordered(bench, "e", version, &sinks, START)).collect();
    let (two, one) = (batch[0].id, batch[1].id);
    assert_eq!(bench.accept(batch, START).await, [Verdict::Accepted; 2]);
    serve(bench, "map", one, APPLIED, at(1)).await;
    let notify = only(bench, "notify", at(1)).await;
    assert_eq!(notify.lease.event, one);
    serve(bench, "map", two, APPLIED, at(2)).await;
    assert_eq!(held(bench, two, "notify").await, Some(Held::Entity));
    assert!(bench.lease("notify", 10, at(2)).await.is_empty());
    assert_eq!(bench.settle(&notify.lease, APPLIED, at(3)).await, Settled::Ok);
    serve(bench, "notify", two, APPLIED, at(3)).await;
    // Who is dead at the first sink keeps nobody waiting at the second.
    let batch: Vec<NewEvent> = [3, 4].iter().map(|&version| ordered(bench, "e", version, &sinks, at(4))).collect();
    let (three, four) = (batch[0].id, batch[1].id);
    assert_eq!(bench.accept(batch, at(4)).await, [Verdict::Accepted; 2]);
    serve(bench, "map", three, End::Dead(cause(Class::Schema)), at(4)).await;
    serve(bench, "map", four, APPLIED, at(4)).await;
    serve(bench, "notify", four, APPLIED, at(4)).await;
    assert_eq!(bench.record(three).await.state, State::Dead);
    assert_eq!(bench.purge(Filter::default(), at(5)).await, 1);
}
