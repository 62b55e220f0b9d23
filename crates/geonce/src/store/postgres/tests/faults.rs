//! Answers that are lost, and a server that crashes.

use super::{bench, gateway, name, no_problems, now};
use crate::event::EventId;
use crate::store::conformance::{APPLIED, Bench};
use crate::store::{Filter, ListRequest, NewEvent, Settled, Settlement, Store, Verdict};
use geonce_services::{Fault, Postgres as Server, Proxy};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn through(proxy: &Proxy, url: &str) -> String {
    format!("postgresql://postgres@127.0.0.1:{}/{}", proxy.port(), name(url))
}

/// Has an event accepted, as a sender would: again and again until there is an answer.
async fn insist(store: &Arc<dyn Store>, event: NewEvent) -> Verdict {
    loop {
        match store.accept(vec![event.clone()], now()).await {
            Ok(mut verdicts) => return verdicts.remove(0),
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    }
}

/// Everything the store holds.
async fn everything(store: &Arc<dyn Store>) -> Vec<EventId> {
    let request = ListRequest { filter: Filter::default(), before: None, limit: 10_000, payloads: false };
    store.list(request).await.unwrap().iter().map(|record| record.id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_whose_answer_is_lost_take_effect_once() {
    let server = Server::shared();
    let url = server.database();
    let proxy = Proxy::start(server.port());
    let store = gateway(&through(&proxy, &url));
    let bench = Arc::new(bench(&store));
    proxy.set(Fault::Swallow { bytes: b"COMMIT", in_n: 3 });
    let (proxy, next) = (Arc::new(proxy), Arc::new(AtomicU64::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (store, bench, proxy, next) =
            (Arc::clone(&store), Arc::clone(&bench), Arc::clone(&proxy), Arc::clone(&next));
        tasks.spawn(async move {
            let mut answers = Vec::new();
            while proxy.swallowed() < 50 {
                // Every key comes twice, under two ids.
                let name = format!("key {}", next.fetch_add(1, Ordering::Relaxed) / 2);
                let event = bench.event(&name, now());
                let id = event.id;
                answers.push((name, id, insist(&store, event).await));
            }
            answers
        });
    }
    let answers = tasks.join_all().await.concat();
    let mut holders = HashMap::new();
    for (name, id, verdict) in &answers {
        let holder = match verdict {
            Verdict::Accepted => id,
            Verdict::Duplicate { of, .. } => of,
            Verdict::Conflict { .. } => panic!("{name}: {verdict:?}"),
        };
        assert_eq!(holders.entry(name).or_insert(holder), &holder, "{name} has two events");
    }
    let known: HashSet<EventId> = holders.values().map(|id| **id).collect();
    assert_eq!(everything(&store).await.into_iter().collect::<HashSet<_>>(), known);
    // Leases and settlements lose answers too; still nothing lapses, and nothing is said to be lost that is not.
    // Every other commit: one in three might always meet the leases.
    proxy.set(Fault::Swallow { bytes: b"COMMIT", in_n: 2 });
    let before = proxy.swallowed();
    loop {
        let Ok(leased) = store.lease(request(), now()).await else { continue };
        assert!(leased.iter().all(|leased| leased.lapses == 0));
        if leased.is_empty() {
            break;
        }
        let settlements: Vec<Settlement> =
            leased.iter().map(|leased| Settlement { lease: leased.lease.clone(), end: APPLIED }).collect();
        let settled = loop {
            if let Ok(settled) = store.settle(settlements.clone(), now()).await {
                break settled;
            }
        };
        assert!(settled.iter().all(|settled| *settled == Settled::Ok), "{settled:?}");
    }
    assert!(proxy.swallowed() > before);
    proxy.set(Fault::None);
    assert_eq!(bench.ledger().await.applied, holders.len() as u64);
    no_problems(&store).await;
}

fn request() -> crate::store::LeaseRequest {
    let duration = std::time::Duration::from_mins(10);
    crate::store::LeaseRequest {
        sink: "map".into(),
        events_max: 4,
        bytes_max: usize::MAX,
        duration,
        event: None,
        holder: "test".into(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_whose_answer_is_lost_is_counted_once() {
    let server = Server::shared();
    let url = server.database();
    let proxy = Proxy::start(server.port());
    let store = gateway(&through(&proxy, &url));
    let bench: Bench = bench(&store);
    bench.fill(&["a"], now()).await;
    for round in 1..=5 {
        let (copy, before) = (bench.event("a", now()), proxy.swallowed());
        // Only the first: were it every one until this test has noticed, the store might give up before.
        proxy.set(Fault::Swallow { bytes: b"COMMIT", in_n: u64::MAX });
        let task = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.accept(vec![copy], now()).await.unwrap() }
        });
        while proxy.swallowed() == before {
            tokio::task::yield_now().await;
        }
        proxy.set(Fault::None);
        assert!(matches!(task.await.unwrap()[0], Verdict::Duplicate { .. }));
        let ledger = bench.ledger().await;
        assert_eq!((ledger.received, ledger.duplicate), (1 + round, round));
    }
    no_problems(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_before_a_crash_is_there_after_it() {
    let mut server = Server::start(&[]);
    let store = gateway(&server.database());
    let bench = Arc::new(bench(&store));
    let (over, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8 {
        let (store, bench, over) = (Arc::clone(&store), Arc::clone(&bench), Arc::clone(&over));
        let acknowledged = Arc::clone(&acknowledged);
        tasks.spawn(async move {
            let mut ids = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let event = bench.event(&format!("{task} {}", ids.len()), now());
                ids.push(event.id);
                assert_eq!(insist(&store, event).await, Verdict::Accepted);
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            ids
        });
    }
    for goal in [200, 400] {
        let goal = acknowledged.load(Ordering::Relaxed) + goal;
        while acknowledged.load(Ordering::Relaxed) < goal {
            tokio::task::yield_now().await;
        }
        server = tokio::task::spawn_blocking(move || {
            server.crash_and_restart();
            server
        })
        .await
        .unwrap();
    }
    over.store(true, Ordering::Relaxed);
    let sent: HashSet<EventId> = tasks.join_all().await.concat().into_iter().collect();
    let held = everything(&store).await;
    assert!(held.len() < 10_000, "a page holds no more");
    assert_eq!(held.into_iter().collect::<HashSet<_>>(), sent);
    no_problems(&store).await;
    drop(server);
}
