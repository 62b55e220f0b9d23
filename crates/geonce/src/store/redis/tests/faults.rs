//! Answers that are lost, servers that are killed, primaries that change, slots that move, memory that runs out.

use super::{Redis, Time, bench, by_key, fresh, sound};
use crate::error::Kind;
use crate::event::EventId;
use crate::store::conformance::{APPLIED, Bench, START, at};
use crate::store::{Access, Filter, Options, Settled, Settlement, Store, Verdict};
use bytes::Bytes;
use geonce_services::{Cluster, Fault, Proxy, Redis as Server, Sentinels};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long a failover may take, with Sentinels that wait a second and a busy machine.
const FAILOVER_MAX: Duration = Duration::from_secs(40);
/// How many answers are lost.
const LOST: u64 = 100;

/// Tries until an event with this key is accepted.
async fn eventually(bench: &Bench, name: &str) {
    let event = bench.event(name, START);
    let accepted = async {
        loop {
            match bench.store.accept(vec![event.clone()], START).await {
                Ok(verdicts) => break verdicts[0],
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
        }
    };
    assert_eq!(timeout(FAILOVER_MAX, accepted).await.unwrap(), Verdict::Accepted, "{name}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_never_makes_an_event_a_duplicate_of_itself() {
    let server = Server::shared();
    let proxy = Proxy::start(server.port());
    let (url, _) = fresh(&format!("redis://127.0.0.1:{}", proxy.port()));
    let bench = bench(&url);
    proxy.set(Fault::Swallow { bytes: b"EVALSHA", in_n: 2 });
    let mut accepted: Vec<(String, EventId)> = Vec::new();
    let mut copies = 0;
    while proxy.swallowed() < LOST {
        let name = format!("k{}", accepted.len());
        let (event, copy) = (bench.event(&name, START), bench.event(&name, START));
        let of = event.id;
        let verdicts = bench.store.accept(vec![event], START).await.unwrap();
        assert_eq!(verdicts, [Verdict::Accepted], "{name}");
        if accepted.len().is_multiple_of(4) {
            let verdicts = bench.store.accept(vec![copy], START).await.unwrap();
            assert!(matches!(verdicts[0], Verdict::Duplicate { of: named, .. } if named == of), "{verdicts:?}");
            copies += 1;
        }
        accepted.push((name, of));
    }
    // Work is handed out and settled once, too, and nothing has lapsed.
    let mut settled = 0;
    loop {
        let leased = bench.store.lease(request("map", 10), at(1)).await.unwrap();
        if leased.is_empty() {
            break;
        }
        assert!(leased.iter().all(|leased| leased.lapses == 0));
        let ends = leased.iter().map(|leased| Settlement { lease: leased.lease.clone(), end: APPLIED }).collect();
        let answers = bench.store.settle(ends, at(1)).await.unwrap();
        assert!(answers.iter().all(|&answer| answer == Settled::Ok), "{answers:?}");
        settled += answers.len();
    }
    proxy.set(Fault::None);
    assert_eq!(settled, accepted.len());
    for (name, id) in &accepted {
        let found = bench.list(by_key(name)).await;
        assert_eq!(found.iter().map(|record| record.id).collect::<Vec<_>>(), [*id]);
    }
    let ledger = bench.ledger().await;
    let events = accepted.len() as u64;
    assert_eq!((ledger.received, ledger.applied, ledger.duplicate), (events + copies, events, copies));
    sound(&bench).await;
}

pub(super) fn request(sink: &str, events_max: usize) -> crate::store::LeaseRequest {
    crate::store::LeaseRequest {
        sink: sink.into(),
        events_max,
        bytes_max: usize::MAX,
        duration: Duration::from_mins(1),
        event: None,
        holder: "test".into(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_is_reported_and_used_again_when_it_answers() {
    let server = Server::shared();
    let proxy = Proxy::start(server.port());
    let (url, _) = fresh(&format!("redis://127.0.0.1:{}", proxy.port()));
    let bench = bench(&format!("{url}&timeout=200"));
    for (name, fault) in [("hole", Fault::Hole), ("half open", Fault::HalfOpen), ("reset", Fault::Reset)] {
        proxy.set(fault);
        let event = bench.event(name, START);
        let failed = bench.store.accept(vec![event.clone()], START).await.map_err(|error| error.kind());
        assert_eq!(failed, Err(Kind::Unavailable), "{name}");
        proxy.set(Fault::None);
        // Whether it was recorded is not known; delivered with its id once more, it is accepted.
        assert_eq!(bench.store.accept(vec![event], START).await.unwrap(), [Verdict::Accepted], "{name}");
    }
    assert_eq!(bench.ledger().await.received, 3);
    sound(&bench).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_killed_server() {
    let mut server = Server::start(&[]);
    let (url, _) = fresh(&server.url());
    let bench = bench(&url);
    let mut acknowledged: Vec<EventId> = Vec::new();
    for round in 0..3 {
        let (sender, mut answers) = tokio::sync::mpsc::channel(1_000);
        let gateway = &bench;
        let feed = async move {
            for number in 0.. {
                let event = gateway.event(&format!("{round}-{number}"), START);
                let id = event.id;
                match gateway.store.accept(vec![event], START).await {
                    Ok(verdicts) if verdicts == [Verdict::Accepted] => sender.send(id).await.unwrap(),
                    Ok(other) => panic!("{other:?}"),
                    Err(error) => {
                        assert!(error.is_transient(), "{error}");
                        break;
                    }
                }
            }
            drop(sender);
        };
        let kill = async {
            for _ in 0..50 {
                acknowledged.push(answers.recv().await.unwrap());
            }
            server.kill();
            while let Some(id) = answers.recv().await {
                acknowledged.push(id);
            }
        };
        tokio::join!(feed, kill);
        server.restart();
    }
    assert!(acknowledged.len() >= 150);
    for id in acknowledged {
        bench.record(id).await;
    }
    sound(&bench).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_sentinels_the_store_works_again_after_the_primary_died() {
    let mut sentinels = Sentinels::start();
    let (url, _) = fresh(&sentinels.url());
    let bench = bench(&url);
    bench.fill(&["a", "b"], START).await;
    // Replication is not waited for; what failover can lose is documented. Here nothing is on its way any more.
    sentinels.primary.await_replica();
    sentinels.primary.kill();
    eventually(&bench, "c").await;
    let ledger = bench.ledger().await;
    assert_eq!((ledger.received, ledger.waiting), (3, 3));
    sound(&bench).await;
}

/// The node that holds the slot of a prefix, and that slot.
pub(super) fn owner(cluster: &Cluster, prefix: &str) -> (usize, String) {
    let slot = cluster.nodes[0].say(&["CLUSTER", "KEYSLOT", &format!("{{{prefix}}}")]);
    let number: u16 = slot.parse().unwrap();
    let slots = cluster.nodes[0].say(&["CLUSTER", "NODES"]);
    let holds = |line: &&str| {
        line.split(' ').skip(8).filter_map(|range| range.split_once('-')).any(|(first, last)| {
            matches!((first.parse::<u16>(), last.parse::<u16>()), (Ok(first), Ok(last)) if (first..=last).contains(&number))
        })
    };
    let line = slots.lines().find(holds).unwrap();
    let place = cluster.nodes.iter().position(|node| line.contains(&format!(":{}@", node.port()))).unwrap();
    (place, slot)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_the_store_works_again_after_its_primary_died() {
    let mut cluster = Cluster::start();
    let (url, prefix) = fresh(&cluster.url());
    let bench = bench(&url);
    bench.fill(&["a", "b"], START).await;
    let (place, _) = owner(&cluster, &prefix);
    cluster.nodes[place].await_replica();
    cluster.nodes[place].kill();
    eventually(&bench, "c").await;
    assert_eq!(bench.ledger().await.waiting, 3);
    sound(&bench).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_its_slot_is_moved_the_store_writes_nothing_by_halves() {
    let cluster = Cluster::shared();
    let (url, prefix) = fresh(&cluster.url());
    let bench = bench(&url);
    bench.fill(&["a"], START).await;
    let lease = bench.lease("map", 1, START).await.remove(0).lease;
    let (place, slot) = owner(cluster, &prefix);
    let from = &cluster.nodes[place];
    let other = (0..3).find(|&other| other != place).unwrap();
    let target = cluster.nodes[other].say(&["CLUSTER", "MYID"]);
    assert_eq!(from.say(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]), "OK");
    let event = bench.event("b", START);
    let refused = bench.store.accept(vec![event.clone()], START).await.map_err(|error| error.kind());
    assert_eq!(refused, Err(Kind::Unavailable));
    // Everything that this reads is still here; what it writes last is not.
    let end = Settlement { lease: lease.clone(), end: APPLIED };
    let refused = bench.store.settle(vec![end], at(1)).await.map_err(|error| error.kind());
    assert_eq!(refused, Err(Kind::Unavailable));
    assert_eq!(from.say(&["CLUSTER", "SETSLOT", &slot, "STABLE"]), "OK");
    assert_eq!(bench.accept(vec![event], START).await, [Verdict::Accepted]);
    assert_eq!(bench.settle(&lease, APPLIED, at(2)).await, Settled::Ok);
    let ledger = bench.ledger().await;
    assert_eq!((ledger.received, ledger.applied, ledger.waiting), (2, 1, 1));
    sound(&bench).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_memory_takes_nothing_until_there_is_room() {
    let server = Server::start(&["--maxmemory", "8mb"]);
    let (url, _) = fresh(&server.url());
    let options = Options { keep_payload: false, ..Options::default() };
    let store = Redis::open(&url, &options, Access::Gateway, Time::Given).unwrap();
    let bench = Bench::new(Arc::new(store) as Arc<dyn Store>);
    let (mut accepted, mut number) = (0, 0);
    let large = |number: i32| {
        let mut event = bench.event(&format!("n{number}"), START);
        event.payload = Bytes::from(vec![b' '; 100_000]);
        event
    };
    let error = loop {
        match bench.store.accept(vec![large(number), large(number + 1)], START).await {
            Ok(verdicts) => accepted += verdicts.len(),
            Err(error) => break error,
        }
        number += 2;
        assert!(number < 1_000);
    };
    assert_eq!(error.kind(), Kind::Resource, "{error}");
    assert!(error.hint_text().is_some());
    assert_eq!(bench.list(Filter::default()).await.len(), accepted);
    sound(&bench).await;
    // What waits is still handed out and settled, and that makes room.
    bench.settle_all("map", APPLIED, at(1)).await;
    assert_eq!(bench.ledger().await.applied, accepted as u64);
    sound(&bench).await;
    assert_eq!(bench.accept_one(large(number), START).await, Verdict::Accepted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_has_forgotten_the_scripts_is_told_them_again() {
    let server = Server::start(&[]);
    let (url, _) = fresh(&server.url());
    let bench = bench(&url);
    bench.fill(&["a"], START).await;
    assert_eq!(server.say(&["SCRIPT", "FLUSH"]), "OK");
    bench.fill(&["b"], START).await;
    assert_eq!(bench.lease("map", 10, START).await.len(), 2);
}
