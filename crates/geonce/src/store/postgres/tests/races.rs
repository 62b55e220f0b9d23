//! Several gateways on one database.

use super::{bench, gateway, name, no_problems, now};
use crate::event::EventId;
use crate::store::conformance::{APPLIED, key};
use crate::store::{NewEvent, Settled, Settlement, Store, Verdict};
use geonce_services::Postgres as Server;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

const KEYS: usize = 200;
const COPIES: usize = 10;

fn deadlocks(url: &str) -> u64 {
    let text = format!("SELECT deadlocks FROM pg_stat_database WHERE datname = '{}'", name(url));
    Server::shared().sql("postgres", &text).parse().unwrap()
}

/// Who holds each key: exactly one was accepted, and every duplicate names it.
fn holders(answers: &[(String, EventId, Verdict)]) -> HashMap<&str, EventId> {
    let mut holders = HashMap::new();
    for (name, id, verdict) in answers {
        if *verdict == Verdict::Accepted {
            assert_eq!(holders.insert(name.as_str(), *id), None, "{name} was accepted twice");
        }
    }
    for (name, _, verdict) in answers {
        match verdict {
            Verdict::Accepted => {}
            Verdict::Duplicate { of, .. } => assert_eq!(Some(of), holders.get(name.as_str()), "{name}"),
            Verdict::Conflict { .. } => panic!("{name}: {verdict:?}"),
        }
    }
    holders
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_copies_at_two_gateways_one_is_accepted() {
    let url = Server::shared().database();
    let stores = [gateway(&url), gateway(&url)];
    let bench = bench(&stores[0]);
    let mut tasks = tokio::task::JoinSet::new();
    for copy in 0..COPIES {
        for number in 0..KEYS {
            let name = format!("key {}", (number * 7 + copy * 31) % KEYS);
            let mut event = bench.event(&name, now());
            event.aliases = vec![key(&format!("alias of {name}"))];
            let store = Arc::clone(&stores[(copy + number) % 2]);
            tasks.spawn(async move {
                let id = event.id;
                (name, id, store.accept(vec![event], now()).await.unwrap().remove(0))
            });
        }
    }
    let answers = tasks.join_all().await;
    assert_eq!(answers.len(), KEYS * COPIES);
    assert_eq!(holders(&answers).len(), KEYS);
    let ledger = stores[1].status().await.unwrap().ledgers["survey"];
    let (all, fresh) = (KEYS as u64 * COPIES as u64, KEYS as u64);
    assert_eq!((ledger.received, ledger.waiting, ledger.duplicate), (all, fresh, all - fresh));
    no_problems(&stores[0]).await;
    assert_eq!(deadlocks(&url), 0);
}

/// Batches with the same keys in opposite orders, while their events are leased and settled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_batches_in_opposite_orders_do_not_meet_in_a_deadlock() {
    let url = Server::shared().database();
    let stores = [gateway(&url), gateway(&url)];
    let bench = bench(&stores[0]);
    for round in 0..6 {
        let batch = |backwards: bool| {
            let mut batch: Vec<NewEvent> = (0..300).map(|n| bench.event(&format!("{round} {n}"), now())).collect();
            if backwards {
                batch.reverse();
            }
            batch
        };
        let accept = |store: &Arc<dyn Store>, batch: Vec<NewEvent>| {
            let store = Arc::clone(store);
            tokio::spawn(async move { store.accept(batch, now()).await.unwrap() })
        };
        let tasks = [(0, false), (1, true), (0, true), (1, false)].map(|(store, backwards)| {
            let batch = batch(backwards);
            let named: Vec<(String, EventId)> =
                batch.iter().map(|event| (String::from_utf8(event.payload.to_vec()).unwrap(), event.id)).collect();
            (named, accept(&stores[store], batch))
        });
        let mut answers = Vec::new();
        for (named, task) in tasks {
            let verdicts = task.await.unwrap();
            answers.extend(named.into_iter().zip(verdicts).map(|((name, id), verdict)| (name, id, verdict)));
        }
        assert_eq!(holders(&answers).len(), 300);
        // Duplicates of events that are being leased and settled at the same time.
        let leased = bench.lease("map", 150, now()).await;
        let settlements =
            leased.iter().map(|leased| Settlement { lease: leased.lease.clone(), end: APPLIED }).collect();
        let again = accept(&stores[1], batch(true));
        stores[0].settle(settlements, now()).await.unwrap();
        assert!(again.await.unwrap().iter().all(|verdict| matches!(verdict, Verdict::Duplicate { .. })));
    }
    no_problems(&stores[1]).await;
    assert_eq!(deadlocks(&url), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_never_hold_the_same_work() {
    let url = Server::shared().database();
    let stores = [gateway(&url), gateway(&url)];
    let names: Vec<String> = (0..400).map(|number| format!("key {number}")).collect();
    bench(&stores[0]).fill(&names.iter().map(String::as_str).collect::<Vec<_>>(), now()).await;
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..8 {
        let bench = bench(&stores[worker % 2]);
        tasks.spawn(async move {
            let mut held = Vec::new();
            loop {
                let leased = bench.lease("map", 7, now()).await;
                if leased.is_empty() && bench.ledger().await.waiting == 0 {
                    return held;
                }
                for leased in leased {
                    held.push(leased.lease.event);
                    bench.settle(&leased.lease, APPLIED, now()).await;
                }
            }
        });
    }
    let mut held: Vec<EventId> = tasks.join_all().await.concat();
    held.sort_unstable();
    let all = held.len();
    held.dedup();
    assert_eq!((held.len(), all), (400, 400));
    assert_eq!(bench(&stores[1]).ledger().await.applied, 400);
    no_problems(&stores[0]).await;
}

/// Each settlement sees what the other did, or waits for it: else both would leave the event to the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_sinks_of_an_event_may_be_settled_at_the_same_moment() {
    let url = Server::shared().database();
    let stores = [gateway(&url), gateway(&url)];
    let bench = bench(&stores[0]);
    let events = (0..100).map(|number| bench.event_for(&format!("key {number}"), &["map", "log"], now())).collect();
    bench.accept(events, now()).await;
    for _ in 0..10 {
        let leased = [bench.lease("map", 10, now()).await, bench.lease("log", 10, now()).await];
        let mut tasks = tokio::task::JoinSet::new();
        for (leased, store) in leased.into_iter().zip(&stores) {
            let settlements: Vec<Settlement> =
                leased.into_iter().map(|leased| Settlement { lease: leased.lease, end: APPLIED }).collect();
            let store = Arc::clone(store);
            tasks.spawn(async move { store.settle(settlements, now()).await.unwrap() });
        }
        assert!(tasks.join_all().await.concat().iter().all(|settled| *settled == Settled::Ok));
    }
    assert_eq!(bench.ledger().await.applied, 100);
    no_problems(&stores[1]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_hears_of_another_gateways_events() {
    let url = Server::shared().database();
    let stores = [gateway(&url), gateway(&url)];
    let bench = bench(&stores[1]);
    for number in 0.. {
        assert!(number < 200, "nothing was heard");
        let changed = stores[0].changed();
        bench.fill(&[&format!("key {number}")], now()).await;
        // The connection that hears may still be on its way.
        if tokio::time::timeout(Duration::from_millis(100), changed).await.is_ok() {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_an_entity_keep_their_order_at_two_gateways() {
    let url = Server::shared().database();
    crate::store::conformance::race::run([gateway(&url), gateway(&url)]).await;
    assert_eq!(deadlocks(&url), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_near_events_at_two_gateways_one_has_its_place_first() {
    let url = Server::shared().database();
    crate::store::conformance::place_race::run([gateway(&url), gateway(&url)], now()).await;
    assert_eq!(deadlocks(&url), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_are_known_to_other_gateways() {
    let url = Server::shared().database();
    crate::store::conformance::place_race::are_known_to(gateway(&url), async || gateway(&url), now()).await;
}
