//! Two gateways on one store: events of few entities, with shuffled versions, accepted while workers deliver them.

use super::{APPLIED, Bench, cause, law, order};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::event::{Class, random};
use crate::store::{End, LeaseRequest, Leased, NewEvent, Settled, Settlement, Store, Verdict};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ENTITIES: u64 = 50;
const VERSIONS: u64 = 20;
const WORKERS: usize = 4;
const BATCH: usize = 25;

/// What is known of an entity, in versions.
#[derive(Default)]
struct Seen {
    acknowledged: BTreeSet<u64>,
    leased: BTreeSet<u64>,
    done: BTreeSet<u64>,
    in_hand: Option<u64>,
}

type Entities = Arc<Mutex<BTreeMap<u64, Seen>>>;

fn now() -> Timestamp {
    SystemClock.now()
}

fn named(payload: &[u8]) -> (u64, u64) {
    let text = String::from_utf8_lossy(payload);
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// Events in an order that chance decides.
fn shuffled(bench: &Bench) -> Vec<NewEvent> {
    let mut events: Vec<(u128, NewEvent)> = Vec::new();
    for entity in 0..ENTITIES {
        for version in 0..VERSIONS {
            let mut event = bench.event(&format!("{entity} {version}"), now());
            event.order = Some(order(&format!("entity {entity}"), version));
            events.push((random(), event));
        }
    }
    events.sort_by_key(|(chance, _)| *chance);
    events.into_iter().map(|(_, event)| event).collect()
}

/// Notes what a worker was handed: nobody else may hold one of the same entity, and what was acknowledged before it asked
/// and has a lower version must be done.
fn take(entities: &Entities, leased: &Leased, waiting: &HashMap<u64, BTreeSet<u64>>) {
    let (entity, version) = named(&leased.payload);
    let mut entities = entities.lock().unwrap();
    let seen = entities.entry(entity).or_default();
    assert_eq!(seen.in_hand.replace(version), None, "two of entity {entity} at once");
    if seen.leased.insert(version) {
        let before = waiting.get(&entity).into_iter().flatten().filter(|&&waiting| waiting < version);
        let passed: Vec<&u64> = before.filter(|waiting| !seen.done.contains(waiting)).collect();
        assert!(passed.is_empty(), "entity {entity}: {version} went before {passed:?}");
    }
}

async fn work(store: Arc<dyn Store>, entities: Entities) {
    let total = ENTITIES * VERSIONS;
    loop {
        let waiting: HashMap<u64, BTreeSet<u64>> =
            entities.lock().unwrap().iter().map(|(&entity, seen)| (entity, seen.acknowledged.clone())).collect();
        if entities.lock().unwrap().values().map(|seen| seen.done.len() as u64).sum::<u64>() == total {
            return;
        }
        let changed = store.changed();
        let request = LeaseRequest {
            sink: "map".into(),
            events_max: 8,
            bytes_max: usize::MAX,
            duration: Duration::from_mins(1),
            event: None,
            holder: "test".into(),
        };
        let leased = store.lease(request, now()).await.unwrap();
        if leased.is_empty() {
            // Another gateway tells of its work now and then; a worker looks by itself too.
            let _ = tokio::time::timeout(Duration::from_millis(20), changed).await;
            continue;
        }
        for leased in &leased {
            take(&entities, leased, &waiting);
        }
        let mut settlements = Vec::new();
        for leased in leased {
            let (entity, version) = named(&leased.payload);
            let end = if random().is_multiple_of(10) {
                End::Retry { at: now(), cause: cause(Class::Unavailable), counts: true }
            } else {
                APPLIED
            };
            let mut entities = entities.lock().unwrap();
            let seen = entities.entry(entity).or_default();
            seen.in_hand = None;
            if end == APPLIED {
                seen.done.insert(version);
            }
            drop(entities);
            settlements.push(Settlement { lease: leased.lease, end });
        }
        let settled = store.settle(settlements, now()).await.unwrap();
        assert!(settled.iter().all(|settled| *settled == Settled::Ok), "{settled:?}");
    }
}

/// Runs it on two stores that share what they keep.
pub(crate) async fn run(stores: [Arc<dyn Store>; 2]) {
    let bench = Bench::new(Arc::clone(&stores[0]));
    let entities = Entities::default();
    let mut tasks = tokio::task::JoinSet::new();
    let events = shuffled(&bench);
    for (place, half) in events.chunks(events.len() / 2).enumerate() {
        let (store, entities, events) = (Arc::clone(&stores[place % 2]), Arc::clone(&entities), half.to_vec());
        tasks.spawn(async move {
            for batch in events.chunks(BATCH) {
                let verdicts = store.accept(batch.to_vec(), now()).await.unwrap();
                assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Accepted), "{verdicts:?}");
                let mut entities = entities.lock().unwrap();
                for event in batch {
                    let (entity, version) = named(&event.payload);
                    entities.entry(entity).or_default().acknowledged.insert(version);
                }
            }
        });
    }
    for worker in 0..WORKERS {
        tasks.spawn(work(Arc::clone(&stores[worker % 2]), Arc::clone(&entities)));
    }
    tasks.join_all().await;
    let status = stores[1].status().await.unwrap();
    assert_eq!(law(&status), Ok(()));
    assert_eq!((status.ledgers["survey"].applied, status.ledgers["survey"].waiting), (ENTITIES * VERSIONS, 0));
    assert_eq!(stores[0].audit().await.unwrap(), Vec::<String>::new());
}
