//! Two handles of one store that give places: one after the other, and at the same time.

use super::Bench;
use super::place::{near, place, spot, unless};
use crate::clock::Timestamp;
use crate::event::EventId;
use crate::store::{Claim, Placed, Spot, Store};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// What one handle was told, the next one tells too: `second` is the same store, opened again or opened elsewhere.
pub(crate) async fn are_known_to(first: Arc<dyn Store>, second: impl AsyncFnOnce() -> Arc<dyn Store>, now: Timestamp) {
    let bench = Bench::new(first);
    let ids = bench.fill(&["a", "b", "c"], now).await;
    let lasting = |id, claim| Spot { until: now.plus(Duration::from_hours(1)), ..spot(id, &[5], claim) };
    assert_eq!(place(&bench, lasting(ids[0], unless(&[])), now).await, Placed::Here);
    assert_eq!(
        place(&bench, lasting(ids[1], Claim::Decided("near".into())), now).await,
        Placed::Decided("near".into())
    );
    drop(bench);
    let bench = Bench::new(second().await);
    let spots = ids.iter().map(|&id| lasting(id, unless(&[]))).collect();
    let placed = bench.store.place(spots, now).await.unwrap();
    let near = Placed::Neighbours(vec![near(ids[0], false)]);
    assert_eq!(placed, [Placed::Here, Placed::Decided("near".into()), near]);
    assert_eq!(bench.store.audit().await.unwrap(), Vec::<String>::new());
}

/// Pairs that are near to each other, asked for at once at two handles: of each pair one has its place first, and the other is
/// told of it.
pub(crate) async fn run(stores: [Arc<dyn Store>; 2], now: Timestamp) {
    const PAIRS: usize = 200;
    const BATCH: usize = 20;
    let bench = Bench::new(Arc::clone(&stores[0]));
    let mut sides: [Vec<Spot>; 2] = Default::default();
    for pair in 0..PAIRS as u64 {
        let ids = bench.fill(&[&format!("{pair} one"), &format!("{pair} other")], now).await;
        // Each is in a cell of its own and looks at the other's.
        for (side, (&id, cells)) in
            sides.iter_mut().zip(ids.iter().zip([[2 * pair, 2 * pair + 1], [2 * pair + 1, 2 * pair]]))
        {
            side.push(Spot { until: now.plus(Duration::from_hours(1)), ..spot(id, &cells, unless(&[])) });
        }
    }
    let pairs: Vec<[EventId; 2]> =
        sides[0].iter().zip(&sides[1]).map(|(one, other)| [one.event, other.event]).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for (side, store) in sides.into_iter().zip(&stores) {
        // Many calls at a time at each handle, so that those of one pair meet.
        for batch in side.chunks(BATCH) {
            let (batch, store) = (batch.to_vec(), Arc::clone(store));
            tasks.spawn(async move {
                let events: Vec<EventId> = batch.iter().map(|spot| spot.event).collect();
                let placed = store.place(batch, now).await.unwrap();
                events.into_iter().zip(placed).collect::<Vec<_>>()
            });
        }
    }
    let answers: HashMap<EventId, Placed> = tasks.join_all().await.into_iter().flatten().collect();
    let mut won = [0, 0];
    for pair in pairs {
        let (first, second) = if answers[&pair[0]] == Placed::Here { (0, 1) } else { (1, 0) };
        won[first] += 1;
        assert_eq!(answers[&pair[first]], Placed::Here);
        assert_eq!(answers[&pair[second]], Placed::Neighbours(vec![near(pair[first], false)]));
    }
    println!("{won:?} had their place first");
}
