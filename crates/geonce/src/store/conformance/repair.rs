//! Checks of repairs: the dead event is done, the new one is there, both or neither, and once.

use super::{APPLIED, Bench, START, at, cause, key};
use crate::clock::Timestamp;
use crate::event::{Class, EventId, Outcome, State};
use crate::store::{Admission, End, Filter, NewEvent, Origin, Repair, Repaired, Settled, Verdict, successor};
use std::sync::Arc;

impl Bench {
    /// An event that is dead from the start.
    async fn dead(&self, name: &str, sinks: &[&str], class: Class) -> EventId {
        let mut event = self.event_for(name, sinks, START);
        event.admission = Admission::Dead(cause(class), super::routes(sinks));
        let id = event.id;
        assert_eq!(self.accept_one(event, START).await, Verdict::Accepted);
        id
    }

    async fn repair(&self, repairs: Vec<(EventId, NewEvent)>, now: Timestamp) -> Vec<Repaired> {
        let repairs: Vec<Repair> = repairs.into_iter().map(|(original, event)| Repair { original, event }).collect();
        let wanted = repairs.len();
        let answers = self.store.repair(repairs, now).await.unwrap();
        assert_eq!(answers.len(), wanted);
        self.lawful().await;
        answers
    }

    async fn repair_one(&self, original: EventId, event: NewEvent, now: Timestamp) -> Repaired {
        self.repair(vec![(original, event)], now).await.remove(0)
    }
}

pub(super) async fn a_dead_event_is_superseded_by_its_repair(bench: &Bench) {
    let original = bench.dead("broken", &["map", "log<map"], Class::Geometry).await;
    let new = bench.event_for("mended", &["map", "log<map"], at(1));
    let id = new.id;
    assert_eq!(bench.repair_one(original, new.clone(), at(1)).await, Repaired::Done(Verdict::Accepted));
    let (old, made) = (bench.record(original).await, bench.record(id).await);
    assert_eq!((old.state, old.outcome, old.settled), (State::Done, Some(Outcome::Repaired), Some(at(1))));
    assert_eq!((successor(old.result.as_deref().unwrap()), old.origin), (Some(id), None));
    assert!(old.work.is_empty() && old.cause.is_none() && old.payload.is_some(), "{old:?}");
    assert_eq!((made.state, made.origin), (State::Ready, Some(Origin { event: original, key: key("broken") })));
    let books = bench.ledger().await;
    assert_eq!((books.received, books.repaired, books.dead, books.waiting), (2, 1, 0, 1));
    // The same call again, and another repair of the same event, change nothing.
    assert_eq!(bench.repair_one(original, new, at(2)).await, Repaired::Done(Verdict::Accepted));
    let other = bench.event("otherwise", at(2));
    let other_id = other.id;
    assert_eq!(bench.repair_one(original, other, at(2)).await, Repaired::Before { event: id });
    assert!(bench.list(Filter { id: Some(other_id), ..Filter::default() }).await.is_empty());
    assert_eq!(bench.replay(Filter::default(), at(2)).await, 0);
    assert_eq!(bench.ledger().await, books);
    // The new one is delivered as any other, and says where it comes from.
    let leased = bench.lease("map", 9, at(3)).await.remove(0);
    assert_eq!((leased.lease.event, leased.origin), (id, made.origin));
    assert_eq!(bench.settle(&leased.lease, APPLIED, at(3)).await, Settled::Ok);
    bench.settle_all("log", APPLIED, at(4)).await;
    let books = bench.ledger().await;
    assert_eq!((books.received, books.repaired, books.applied, books.waiting), (2, 1, 1, 0));
    // What is sent once more is a duplicate of what it was the first time.
    let again = bench.accept(vec![bench.event("broken", at(5)), bench.event("mended", at(5))], at(5)).await;
    let of = |verdict: &Verdict| match verdict {
        Verdict::Duplicate { of, state: State::Done, outcome, .. } => (*of, *outcome),
        other => panic!("{other:?}"),
    };
    assert_eq!(of(&again[0]), (original, Some(Outcome::Repaired)));
    assert_eq!(of(&again[1]), (id, Some(Outcome::Applied)));
}

pub(super) async fn a_repair_may_turn_out_to_be_known(bench: &Bench) {
    let known = bench.fill(&["known"], START).await[0];
    let original = bench.dead("broken", &["map"], Class::Geometry).await;
    let answer = bench.repair_one(original, bench.event("known", at(1)), at(1)).await;
    assert!(
        matches!(answer, Repaired::Done(Verdict::Duplicate { of, state: State::Ready, .. }) if of == known),
        "{answer:?}"
    );
    assert_eq!(successor(bench.record(original).await.result.as_deref().unwrap()), Some(known));
    assert_eq!((bench.record(known).await.origin, bench.record(known).await.duplicates), (None, 1));
    let books = bench.ledger().await;
    assert_eq!((books.received, books.duplicate, books.repaired, books.waiting), (3, 1, 1, 1));
    assert_eq!(bench.repair_one(original, bench.event("x", at(2)), at(2)).await, Repaired::Before { event: known });
    // One that died of what time mends is revived by it, as by any delivery.
    let silent = bench.dead("silent", &["map"], Class::Unavailable).await;
    let original = bench.dead("broken too", &["map"], Class::Geometry).await;
    let answer = bench.repair_one(original, bench.event("silent", at(2)), at(2)).await;
    assert!(
        matches!(answer, Repaired::Done(Verdict::Duplicate { of, revived: true, .. }) if of == silent),
        "{answer:?}"
    );
    // A contradiction is kept as dead, and linked all the same.
    let delivery = |name: &str, spatial: &str| NewEvent { spatial: vec![key(spatial)], ..bench.event(name, at(3)) };
    let holder = delivery("delivery", "one place");
    let holder_id = holder.id;
    assert_eq!(bench.accept_one(holder, at(3)).await, Verdict::Accepted);
    let original = bench.dead("broken again", &["map"], Class::Geometry).await;
    let new = NewEvent { content: [9; 32], ..delivery("delivery", "another place") };
    let id = new.id;
    let answer = bench.repair_one(original, new, at(3)).await;
    assert_eq!(answer, Repaired::Done(Verdict::Conflict { event: id, of: holder_id }));
    let made = bench.record(id).await;
    assert_eq!((made.state, made.origin.map(|origin| origin.event)), (State::Dead, Some(original)));
}

pub(super) async fn only_the_dead_are_repaired(bench: &Bench) {
    let ready = bench.fill(&["ready"], START).await[0];
    let new = |name: &str| bench.event(name, at(1));
    let not_dead = |state, outcome| Repaired::NotDead { state, outcome };
    assert_eq!(bench.repair_one(ready, new("a"), at(1)).await, not_dead(State::Ready, None));
    let lease = bench.lease("map", 1, at(1)).await.remove(0).lease;
    assert_eq!(bench.repair_one(ready, new("a"), at(1)).await, not_dead(State::Leased, None));
    assert_eq!(bench.settle(&lease, APPLIED, at(1)).await, Settled::Ok);
    assert_eq!(bench.repair_one(ready, new("a"), at(1)).await, not_dead(State::Done, Some(Outcome::Applied)));
    assert_eq!(bench.repair_one(bench.event("no", START).id, new("a"), at(1)).await, Repaired::Unknown);
    let original = bench.dead("broken", &["map"], Class::Geometry).await;
    assert_eq!(bench.repair_one(original, new("broken"), at(1)).await, Repaired::SameKey);
    let alias = NewEvent { aliases: vec![key("broken")], ..new("a") };
    assert_eq!(bench.repair_one(original, alias, at(1)).await, Repaired::SameKey);
    // None of it left a trace.
    assert!(bench.list(Filter { key: Some(key("a").key()), ..Filter::default() }).await.is_empty());
    let books = bench.ledger().await;
    assert_eq!((books.received, books.applied, books.dead, books.repaired), (2, 1, 1, 0));
}

pub(super) async fn repairs_of_a_batch_see_each_other(bench: &Bench) {
    let originals = [
        bench.dead("one", &["map"], Class::Geometry).await,
        bench.dead("two", &["map"], Class::Geometry).await,
        bench.dead("three", &["map"], Class::Unavailable).await,
    ];
    let new = |name: &str| bench.event(name, at(1));
    let (first, second) = (new("mended"), new("mended"));
    let id = first.id;
    // The same content made of two originals is one event; one original is repaired once; and one that a repair before it
    // has revived is not dead.
    let repairs = vec![
        (originals[0], first),
        (originals[1], second),
        (originals[0], new("mended otherwise")),
        (bench.dead("four", &["map"], Class::Schema).await, new("three")),
        (originals[2], new("mended three")),
    ];
    let answers = bench.repair(repairs, at(1)).await;
    assert_eq!(answers[0], Repaired::Done(Verdict::Accepted));
    assert!(matches!(answers[1], Repaired::Done(Verdict::Duplicate { of, .. }) if of == id), "{answers:?}");
    assert_eq!(answers[2], Repaired::Before { event: id });
    assert!(
        matches!(answers[3], Repaired::Done(Verdict::Duplicate { of, revived: true, .. }) if of == originals[2]),
        "{answers:?}"
    );
    assert_eq!(answers[4], Repaired::NotDead { state: State::Ready, outcome: None });
    assert_eq!(bench.store.repair(Vec::new(), at(2)).await.unwrap(), vec![]);
}

pub(super) async fn of_many_repairs_at_once_one_is_carried_out(bench: &Bench) {
    const REPAIRS: usize = 12;
    let original = bench.dead("broken", &["map"], Class::Geometry).await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..REPAIRS {
        // Some alike, some not.
        let event = bench.event(&format!("mended {}", number % 4), at(1));
        let store = Arc::clone(&bench.store);
        tasks.spawn(async move { store.repair(vec![Repair { original, event }], at(1)).await.unwrap().remove(0) });
    }
    let mut done = 0;
    while let Some(answer) = tasks.join_next().await {
        match answer.unwrap() {
            Repaired::Done(Verdict::Accepted) => done += 1,
            Repaired::Before { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(done, 1);
    bench.lawful().await;
    let books = bench.ledger().await;
    assert_eq!((books.received, books.repaired, books.waiting), (2, 1, 1));
    bench.settle_all("map", APPLIED, at(2)).await;
    assert_eq!(bench.ledger().await.applied, 1);
}

pub(super) async fn a_repair_takes_its_place_in_the_line_of_its_entity(bench: &Bench) {
    let ordered =
        |name: &str, version, now| NewEvent { order: Some(super::order("truck", version)), ..bench.event(name, now) };
    let first = ordered("v1", 1, START);
    let original = first.id;
    bench.accept(vec![first, ordered("v3", 3, START)], START).await;
    let lease = bench.lease("map", 9, START).await.remove(0).lease;
    assert_eq!(lease.event, original);
    assert_eq!(bench.settle(&lease, End::Dead(cause(Class::Geometry)), START).await, Settled::Ok);
    // The third had its turn, but was never leased: the repaired first goes before it.
    let new = ordered("v1 mended", 1, at(1));
    let id = new.id;
    assert_eq!(bench.repair_one(original, new, at(1)).await, Repaired::Done(Verdict::Accepted));
    let next = bench.lease("map", 9, at(1)).await;
    assert_eq!(next.iter().map(|leased| leased.lease.event).collect::<Vec<_>>(), [id]);
    bench.settle(&next[0].lease, APPLIED, at(1)).await;
    bench.settle_all("map", APPLIED, at(2)).await;
    assert_eq!(bench.ledger().await.applied, 2);
}
