//! Checks of work: leases, fencing, retries, several sinks.

use super::{APPLIED, Bench, START, at, cause};
use crate::event::{Class, EventId, Outcome, State};
use crate::store::{End, HOLDER_BYTES_MAX, LeaseRequest, Leased, Settled, Verdict};
use bytes::Bytes;
use std::time::Duration;

fn ids(leased: &[Leased]) -> Vec<EventId> {
    leased.iter().map(|leased| leased.lease.event).collect()
}

pub(super) async fn work_is_leased_oldest_first_within_limits(bench: &Bench) {
    let first = bench.fill(&["a", "b"], at(1)).await;
    let second = bench.fill(&["c", "d"], at(2)).await;
    let mut large = bench.event("e", at(3));
    large.payload = Bytes::from(vec![b' '; 10_000]);
    let large_id = large.id;
    assert_eq!(bench.accept_one(large, at(3)).await, Verdict::Accepted);
    assert!(bench.lease("other", 10, at(3)).await.is_empty());
    assert!(bench.lease("map", 10, START).await.is_empty(), "nothing was due yet");
    assert_eq!(bench.store.next_due("map".into()).await.unwrap(), Some(at(1)));
    assert_eq!(bench.store.next_due("other".into()).await.unwrap(), None);
    let leased = bench.lease("map", 3, at(3)).await;
    assert_eq!(ids(&leased), [first[0], first[1], second[0]]);
    assert_eq!((leased[0].attempts, leased[0].lapses, leased[0].received), (0, 0, at(1)));
    assert_eq!(leased[0].payload, "{\"name\":\"a\"}");
    let request = LeaseRequest {
        sink: "map".into(),
        events_max: 10,
        bytes_max: 20,
        duration: Duration::from_mins(1),
        event: None,
        holder: "test".into(),
    };
    let small = bench.store.lease(request.clone(), at(3)).await.unwrap();
    assert_eq!(ids(&small), [second[1]]);
    let over = bench.store.lease(request, at(3)).await.unwrap();
    assert_eq!(ids(&over), [large_id], "one event is handed out, however large");
    assert!(bench.lease("map", 10, at(3)).await.is_empty());
}

pub(super) async fn a_stale_token_settles_nothing(bench: &Bench) {
    bench.fill(&["a"], START).await;
    let stale = bench.lease("map", 1, START).await.remove(0).lease;
    let fresh = bench.lease("map", 1, at(61)).await.remove(0).lease;
    assert!(fresh.token > stale.token);
    assert_eq!(bench.settle(&stale, APPLIED, at(62)).await, Settled::LeaseLost);
    assert_eq!(bench.settle(&stale, End::Dead(cause(Class::Schema)), at(62)).await, Settled::LeaseLost);
    assert_eq!(bench.store.extend(vec![stale.clone()], at(600)).await.unwrap(), [Settled::LeaseLost]);
    assert_eq!(bench.record(fresh.event).await.state, State::Leased);
    assert_eq!(bench.settle(&fresh, APPLIED, at(63)).await, Settled::Ok);
    for lease in [stale, fresh] {
        assert_eq!(bench.settle(&lease, APPLIED, at(64)).await, Settled::LeaseLost);
    }
    assert_eq!(bench.ledger().await.applied, 1);
}

pub(super) async fn lapsed_work_comes_with_little_company_and_is_counted(bench: &Bench) {
    let names: Vec<String> = (0..40).map(|number| format!("a{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let lapsed = bench.fill(&names, START).await;
    assert_eq!(bench.lease("map", 100, START).await.len(), 40);
    let fresh = bench.fill(&["c", "d"], at(10)).await;
    assert_eq!(ids(&bench.lease("map", 1, at(20)).await), [fresh[0]]);
    // "d" has been due for longer than the lapsed ones; it does not take one of them along.
    assert_eq!(ids(&bench.lease("map", 100, at(70)).await), [fresh[1]]);
    let few = bench.lease("map", 100, at(70)).await;
    assert_eq!(ids(&few), lapsed[..32]);
    assert!(few.iter().all(|leased| (leased.lapses, leased.attempts) == (1, 0)));
    let rest = bench.lease("map", 100, at(70)).await;
    assert_eq!(ids(&rest), lapsed[32..]);
    // All but two are done. Those two lapse once more, and each comes alone from then on, whatever becomes of it.
    for leased in few.iter().chain(&rest).filter(|leased| ![lapsed[0], lapsed[1]].contains(&leased.lease.event)) {
        assert_eq!(bench.settle(&leased.lease, APPLIED, at(70)).await, Settled::Ok);
    }
    let alone = |leased: &[Leased], id, lapses| assert_eq!((ids(leased), leased[0].lapses), (vec![id], lapses));
    alone(&bench.lease("map", 100, at(200)).await, fresh[0], 1);
    let first = bench.lease("map", 100, at(200)).await;
    alone(&first, lapsed[0], 2);
    let retry = End::Retry { at: at(201), cause: cause(Class::Unavailable), counts: true };
    assert_eq!(bench.settle(&first[0].lease, retry, at(200)).await, Settled::Ok);
    alone(&bench.lease("map", 100, at(202)).await, lapsed[1], 2);
    alone(&bench.lease("map", 100, at(202)).await, fresh[1], 1);
    let again = bench.lease("map", 100, at(202)).await;
    alone(&again, lapsed[0], 2);
    assert_eq!(again[0].attempts, 1);
}

pub(super) async fn a_retry_waits_until_its_time(bench: &Bench) {
    let id = bench.fill(&["a"], START).await[0];
    let leased = bench.lease("map", 1, at(1)).await.remove(0);
    let retry = |at, counts| End::Retry { at, cause: cause(Class::Resource), counts };
    assert_eq!(bench.settle(&leased.lease, retry(at(30), true), at(2)).await, Settled::Ok);
    assert_eq!(bench.store.next_due("map".into()).await.unwrap(), Some(at(30)));
    assert!(bench.lease("map", 1, at(29)).await.is_empty());
    let record = bench.record(id).await;
    assert_eq!((record.state, record.cause), (State::Ready, Some(cause(Class::Resource))));
    assert_eq!((record.work[0].attempts, record.work[0].due), (1, at(30)));
    let leased = bench.lease("map", 1, at(30)).await.remove(0);
    assert_eq!((leased.attempts, leased.lapses), (1, 0));
    assert_eq!(bench.settle(&leased.lease, retry(at(40), false), at(31)).await, Settled::Ok);
    let leased = bench.lease("map", 1, at(40)).await.remove(0);
    assert_eq!(leased.attempts, 1, "silence of the sink is no attempt");
    assert_eq!(bench.settle(&leased.lease, APPLIED, at(41)).await, Settled::Ok);
    assert_eq!(bench.record(id).await.cause, None);
}

pub(super) async fn an_event_is_done_when_all_its_sinks_are(bench: &Bench) {
    let event = bench.event_for("a", &["map", "log"], START);
    let id = event.id;
    assert_eq!(bench.accept_one(event, START).await, Verdict::Accepted);
    let map = bench.lease("map", 1, START).await.remove(0).lease;
    assert_eq!(bench.settle(&map, APPLIED, at(1)).await, Settled::Ok);
    let record = bench.record(id).await;
    assert_eq!((record.state, record.outcome, record.work.len()), (State::Ready, None, 1));
    assert_eq!(bench.ledger().await.waiting, 1);
    let log = bench.lease("log", 1, at(1)).await.remove(0).lease;
    assert_eq!(bench.settle(&log, End::Done(Outcome::Stale, None), at(2)).await, Settled::Ok);
    let record = bench.record(id).await;
    assert_eq!((record.state, record.outcome), (State::Done, Some(Outcome::Applied)), "applied anywhere is applied");
    assert_eq!((record.settled, record.work.len()), (Some(at(2)), 0));
    for (name, outcome) in [("b", Outcome::Stale), ("c", Outcome::Near), ("d", Outcome::Repaired)] {
        bench.fill(&[name], at(3)).await;
        bench.settle_all("map", End::Done(outcome, None), at(3)).await;
    }
    let ledger = bench.ledger().await;
    assert_eq!((ledger.applied, ledger.stale, ledger.near, ledger.repaired), (1, 1, 1, 1));
}

pub(super) async fn an_event_is_dead_when_one_sink_is_and_the_others_are_served(bench: &Bench) {
    let event = bench.event_for("a", &["map", "log"], START);
    let id = event.id;
    assert_eq!(bench.accept_one(event, START).await, Verdict::Accepted);
    let map = bench.lease("map", 1, START).await.remove(0).lease;
    assert_eq!(bench.settle(&map, End::Dead(cause(Class::Constraint)), at(1)).await, Settled::Ok);
    assert_eq!(bench.record(id).await.state, State::Ready, "the other sink is still to be served");
    assert_eq!(bench.replay(super::Filter::default(), at(1)).await, 0, "it is not dead yet");
    let log = bench.lease("log", 1, at(1)).await.remove(0).lease;
    assert_eq!(bench.settle(&log, APPLIED, at(2)).await, Settled::Ok);
    let record = bench.record(id).await;
    assert_eq!((record.state, record.outcome, record.settled), (State::Dead, None, Some(at(2))));
    assert_eq!(record.cause, Some(cause(Class::Constraint)));
    assert_eq!(bench.replay(super::Filter::default(), at(3)).await, 1);
    assert!(bench.lease("log", 1, at(3)).await.is_empty(), "a served sink is not served again");
    let map = bench.lease("map", 1, at(3)).await.remove(0).lease;
    assert_eq!(bench.settle(&map, End::Done(Outcome::Stale, None), at(4)).await, Settled::Ok);
    assert_eq!(bench.record(id).await.outcome, Some(Outcome::Applied));
}

pub(super) async fn leases_can_be_extended(bench: &Bench) {
    bench.fill(&["a"], START).await;
    let lease = bench.lease("map", 1, START).await.remove(0).lease;
    assert_eq!(bench.store.extend(vec![lease.clone()], at(120)).await.unwrap(), [Settled::Ok]);
    assert!(bench.lease("map", 1, at(90)).await.is_empty());
    assert_eq!(bench.settle(&lease, APPLIED, at(91)).await, Settled::Ok);
    assert_eq!(bench.store.extend(vec![lease], at(200)).await.unwrap(), [Settled::LeaseLost]);
}

pub(super) async fn waiting_workers_hear_of_new_work(bench: &Bench) {
    let changed = bench.store.changed();
    bench.fill(&["a"], START).await;
    let heard = tokio::time::timeout(Duration::from_secs(20), changed).await;
    assert!(heard.is_ok());
}

pub(super) async fn who_holds_work_is_shown_while_it_is_leased(bench: &Bench) {
    let id = bench.fill(&["a"], START).await[0];
    let lease = async |holder: &str, now| {
        let request = LeaseRequest {
            sink: "map".into(),
            events_max: 1,
            bytes_max: 1,
            duration: Duration::from_mins(1),
            event: None,
            holder: holder.into(),
        };
        bench.store.lease(request, now).await.unwrap().remove(0).lease
    };
    let holder = async || bench.record(id).await.work[0].holder.clone();
    assert_eq!(holder().await, None);
    let lapsing = lease("east-1", at(1)).await;
    assert_eq!(holder().await.as_deref(), Some("east-1"));
    let held = lease("west 2 é\0\n", at(62)).await;
    assert_eq!(holder().await.as_deref(), Some("west 2 é"), "who took over what another held");
    bench.settle(&lapsing, APPLIED, at(62)).await;
    bench.store.extend(vec![held.clone()], at(200)).await.unwrap();
    assert_eq!(holder().await.as_deref(), Some("west 2 é"));
    let again = End::Retry { at: at(63), cause: cause(Class::Resource), counts: true };
    assert_eq!(bench.settle(&held, again, at(63)).await, Settled::Ok);
    assert_eq!(holder().await, None, "nobody holds it");
    let held = lease(&"x".repeat(9_000), at(63)).await;
    assert_eq!(holder().await.unwrap().len(), HOLDER_BYTES_MAX);
    assert_eq!(bench.settle(&held, End::Dead(cause(Class::Schema)), at(64)).await, Settled::Ok);
    assert_eq!(holder().await, None, "nobody holds what is dead");
}

pub(super) async fn work_behind_much_that_is_leased_is_found(bench: &Bench) {
    let names: Vec<String> = (0..300).map(|number| format!("a{number}")).collect();
    let old = bench.fill(&names.iter().map(String::as_str).collect::<Vec<_>>(), at(1)).await;
    let first = bench.lease("map", 299, at(10)).await;
    assert_eq!(ids(&first), old[..299]);
    assert_eq!(bench.store.next_due("map".into()).await.unwrap(), Some(at(1)), "one is left");
    assert_eq!(ids(&bench.lease("map", 9, at(10)).await), old[299..]);
    assert!(bench.lease("map", 9, at(11)).await.is_empty());
    assert_eq!(bench.store.next_due("map".into()).await.unwrap(), Some(at(70)), "when the first lease lapses");
    // What comes back goes before what is new, wherever it was found last.
    let again = End::Retry { at: at(11), cause: cause(Class::Resource), counts: true };
    assert_eq!(bench.settle(&first[7].lease, again, at(11)).await, Settled::Ok);
    let new = bench.fill(&["b"], at(12)).await;
    assert_eq!(ids(&bench.lease("map", 9, at(12)).await), [old[7], new[0]]);
    assert_eq!(bench.store.extend(vec![first[3].lease.clone()], at(500)).await.unwrap(), [Settled::Ok]);
    let mut lapsed = Vec::new();
    while let leased @ [_, ..] = &bench.lease("map", 300, at(71)).await[..] {
        assert!(leased.iter().all(|leased| leased.lapses == 1));
        lapsed.extend(ids(leased));
    }
    lapsed.sort_unstable();
    let all: Vec<EventId> =
        old.iter().enumerate().filter(|(place, _)| ![3, 7].contains(place)).map(|(_, &id)| id).collect();
    assert_eq!(lapsed, all, "all leases that lapsed, and no other");
}
