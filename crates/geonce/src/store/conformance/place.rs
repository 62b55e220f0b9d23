//! Checks of places among what may be near.

use super::{APPLIED, Bench, START, at, cause};
use crate::clock::Timestamp;
use crate::error::Kind;
use crate::event::{Class, EventId, Outcome};
use crate::store::{
    Claim, DECISION_BYTES_MAX, End, Filter, KNOWN_MAX, NEIGHBOURS_BYTES_MAX, NEIGHBOURS_MAX, Neighbour, Placed,
    SPOT_BODY_BYTES_MAX, SPOT_CELLS_MAX, Spot,
};
use bytes::Bytes;

/// Until when the places of these checks are compared with.
const UNTIL: u64 = 1_000;

/// A spot that looks at these cells, of which it is in the first, and has its name as its body.
pub(super) fn spot(event: EventId, cells: &[u64], claim: Claim) -> Spot {
    let mut sorted = cells.to_vec();
    sorted.sort_unstable();
    let body = Bytes::from(format!("body of {event}"));
    Spot { event, scope: [7; 16], cells: sorted, home: cells[0], body, until: at(UNTIL), claim }
}

pub(super) fn unless(known: &[EventId]) -> Claim {
    Claim::Unless(known.to_vec())
}

pub(super) fn near(event: EventId, applied: bool) -> Neighbour {
    Neighbour { event, applied, body: Bytes::from(format!("body of {event}")) }
}

pub(super) async fn place(bench: &Bench, spot: Spot, now: Timestamp) -> Placed {
    let mut placed = bench.store.place(vec![spot], now).await.unwrap();
    assert_eq!(placed.len(), 1);
    placed.remove(0)
}

/// Ends the work of one event.
async fn end(bench: &Bench, event: EventId, end: End, now: Timestamp) {
    let lease = bench.lease_event("map", event, now).await.unwrap().lease;
    bench.settle(&lease, end, now).await;
}

pub(super) async fn who_is_alone_has_its_place_and_keeps_it(bench: &Bench) {
    assert_eq!(bench.store.place(Vec::new(), START).await.unwrap(), []);
    let ids = bench.fill(&["a", "b"], START).await;
    assert_eq!(place(bench, spot(ids[0], &[5], unless(&[])), START).await, Placed::Here);
    // Whatever it claims later, and whoever came meanwhile.
    assert_eq!(place(bench, spot(ids[1], &[5], Claim::Anyway), START).await, Placed::Here);
    for claim in [unless(&[]), Claim::Anyway, Claim::Decided("near".into())] {
        assert_eq!(place(bench, spot(ids[0], &[5], claim), at(1)).await, Placed::Here);
    }
    // Nor does it matter what its worker would say today.
    assert_eq!(place(bench, spot(ids[0], &[8, 9], unless(&[])), at(2)).await, Placed::Here);
}

pub(super) async fn who_is_in_the_cells_is_told_unless_it_is_known(bench: &Bench) {
    let ids = bench.fill(&["a", "b", "c", "d"], START).await;
    assert_eq!(place(bench, spot(ids[0], &[5], unless(&[])), START).await, Placed::Here);
    let answer = place(bench, spot(ids[1], &[6, 5], unless(&[])), START).await;
    assert_eq!(answer, Placed::Neighbours(vec![near(ids[0], false)]), "it is not applied yet");
    end(bench, ids[0], APPLIED, START).await;
    let answer = place(bench, spot(ids[1], &[6, 5], unless(&[])), START).await;
    assert_eq!(answer, Placed::Neighbours(vec![near(ids[0], true)]));
    assert_eq!(place(bench, spot(ids[1], &[6, 5], unless(&[ids[0]])), START).await, Placed::Here);
    // Nobody is in cell 7 who is not in 5 or 6.
    let all = vec![near(ids[1], false), near(ids[0], true)];
    let answer = place(bench, spot(ids[2], &[7, 5, 6], unless(&[])), START).await;
    assert_eq!(answer, Placed::Neighbours(all), "the latest first");
    let answer = place(bench, spot(ids[2], &[7, 5, 6], unless(&[ids[1], ids[3]])), START).await;
    assert_eq!(answer, Placed::Neighbours(vec![near(ids[0], true)]));
    assert_eq!(place(bench, spot(ids[2], &[7, 5, 6], unless(&ids[..2])), START).await, Placed::Here);
    // One that others are compared with for longer is the later one.
    let mut longer = spot(ids[3], &[5], Claim::Anyway);
    longer.until = at(UNTIL - 1);
    assert_eq!(place(bench, longer, START).await, Placed::Here);
    let other = bench.fill(&["e"], START).await[0];
    let Placed::Neighbours(neighbours) = place(bench, spot(other, &[5, 7], unless(&[])), START).await else {
        panic!("it has no neighbours")
    };
    let order: Vec<EventId> = neighbours.iter().map(|neighbour| neighbour.event).collect();
    assert_eq!(order, [ids[2], ids[0], ids[3]]);
}

pub(super) async fn other_cells_and_other_scopes_do_not_count(bench: &Bench) {
    let ids = bench.fill(&["a", "b", "c", "d", "e"], START).await;
    // The largest numbers there are, which are negative elsewhere.
    let (cell, next) = (u64::MAX - 1, u64::MAX);
    assert_eq!(place(bench, spot(ids[0], &[cell, next], unless(&[])), START).await, Placed::Here);
    assert_eq!(place(bench, spot(ids[1], &[next], unless(&[])), START).await, Placed::Here, "it is in the other");
    let mut elsewhere = spot(ids[2], &[cell], unless(&[]));
    elsewhere.scope[15] = 8;
    assert_eq!(place(bench, elsewhere, START).await, Placed::Here);
    let answer = place(bench, spot(ids[3], &[cell], unless(&[])), START).await;
    assert_eq!(answer, Placed::Neighbours(vec![near(ids[0], false)]));
    assert_eq!(place(bench, spot(ids[4], &[0, 1], unless(&[])), START).await, Placed::Here);
}

pub(super) async fn a_place_may_be_had_beside_others(bench: &Bench) {
    let ids = bench.fill(&["a", "b", "c"], START).await;
    for &id in &ids[..2] {
        assert_eq!(place(bench, spot(id, &[5], Claim::Anyway), START).await, Placed::Here);
    }
    let answer = place(bench, spot(ids[2], &[5], unless(&[])), START).await;
    assert_eq!(answer, Placed::Neighbours(vec![near(ids[1], false), near(ids[0], false)]));
}

pub(super) async fn what_was_decided_is_answered_from_then_on(bench: &Bench) {
    let ids = bench.fill(&["a", "b"], START).await;
    let text: Box<str> = "{\"near\":\"é\"}".into();
    let decided = Claim::Decided(text.clone());
    assert_eq!(place(bench, spot(ids[0], &[5], decided), START).await, Placed::Decided(text.clone()));
    for claim in [unless(&[]), Claim::Anyway, Claim::Decided("other".into())] {
        assert_eq!(place(bench, spot(ids[0], &[5], claim), at(1)).await, Placed::Decided(text.clone()));
    }
    assert_eq!(place(bench, spot(ids[1], &[5], unless(&[])), START).await, Placed::Here, "nobody is compared with it");
    let longest: Box<str> = "x".repeat(DECISION_BYTES_MAX).into();
    let other = bench.fill(&["c"], START).await[0];
    let answer = place(bench, spot(other, &[5], Claim::Decided(longest.clone())), START).await;
    assert_eq!(answer, Placed::Decided(longest));
}

pub(super) async fn who_was_not_applied_is_no_neighbour(bench: &Bench) {
    let ids = bench.fill(&["dead", "stale", "near", "repaired", "purged", "applied"], START).await;
    for &id in &ids {
        assert_eq!(place(bench, spot(id, &[5], Claim::Anyway), START).await, Placed::Here);
    }
    end(bench, ids[0], End::Dead(cause(Class::Schema)), START).await;
    for (id, outcome) in ids[1..4].iter().zip([Outcome::Stale, Outcome::Near, Outcome::Repaired]) {
        end(bench, *id, End::Done(outcome, None), START).await;
    }
    end(bench, ids[4], End::Dead(cause(Class::Crs)), START).await;
    assert_eq!(bench.purge(Filter { id: Some(ids[4]), ..Filter::default() }, START).await, 1);
    end(bench, ids[5], APPLIED, START).await;
    let last = bench.fill(&["last"], START).await[0];
    let answer = place(bench, spot(last, &[5], unless(&[])), START).await;
    assert_eq!(answer, Placed::Neighbours(vec![near(ids[5], true)]));
    assert_eq!(place(bench, spot(last, &[5], unless(&[ids[5]])), START).await, Placed::Here);
    // What was applied and is forgotten is no neighbour either, though its place is not over.
    let month = at(31 * 24 * 3_600);
    let mut long = spot(bench.fill(&["long"], START).await[0], &[5], Claim::Anyway);
    long.until = month.plus(std::time::Duration::from_secs(9));
    let event = long.event;
    assert_eq!(place(bench, long, START).await, Placed::Here);
    end(bench, event, APPLIED, START).await;
    let late = bench.fill(&["late"], month).await[0];
    let asks = Spot { until: month, ..spot(late, &[5], unless(&[last])) };
    let answer = place(bench, asks.clone(), month).await;
    assert_eq!(answer, Placed::Neighbours(vec![near(event, true)]));
    while bench.sweep(100, month).await.more {}
    assert!(bench.list(Filter { id: Some(event), ..Filter::default() }).await.is_empty());
    assert_eq!(place(bench, asks, month).await, Placed::Here);
}

pub(super) async fn who_is_brought_back_asks_again(bench: &Bench) {
    let ids = bench.fill(&["a", "b", "c", "d"], START).await;
    for (dead, other) in [(ids[0], ids[1]), (ids[2], ids[3])] {
        let cell = if dead == ids[0] { 5 } else { 50 };
        assert_eq!(place(bench, spot(dead, &[cell], unless(&[])), START).await, Placed::Here);
        end(bench, dead, End::Dead(cause(Class::Schema)), START).await;
        if dead == ids[0] {
            assert_eq!(place(bench, spot(other, &[cell], unless(&[])), START).await, Placed::Here);
        }
        assert_eq!(bench.replay(Filter::default(), START).await, 1);
    }
    let answer = place(bench, spot(ids[0], &[5], unless(&[])), START).await;
    assert_eq!(answer, Placed::Neighbours(vec![near(ids[1], false)]), "another has come while it was dead");
    assert_eq!(place(bench, spot(ids[2], &[50], unless(&[])), START).await, Placed::Here, "nobody has");
    let answer = place(bench, spot(ids[3], &[50], unless(&[])), START).await;
    assert_eq!(answer, Placed::Neighbours(vec![near(ids[2], false)]));
}

pub(super) async fn places_end_with_their_time(bench: &Bench) {
    let ids = bench.fill(&["a", "b"], START).await;
    assert_eq!(place(bench, spot(ids[0], &[5], unless(&[])), START).await, Placed::Here);
    let decided = Claim::Decided("near".into());
    assert_eq!(place(bench, spot(ids[1], &[5], decided), START).await, Placed::Decided("near".into()));
    for &id in &ids {
        end(bench, id, APPLIED, START).await;
    }
    let before = bench.fill(&["before"], at(UNTIL - 1)).await[0];
    let answer = place(bench, spot(before, &[5], unless(&[])), at(UNTIL - 1)).await;
    assert_eq!(answer, Placed::Neighbours(vec![near(ids[0], true)]));
    end(bench, before, APPLIED, at(UNTIL - 1)).await;
    let after = bench.fill(&["after"], at(UNTIL)).await[0];
    let mut later = spot(after, &[5], unless(&[]));
    later.until = at(2 * UNTIL);
    assert_eq!(place(bench, later.clone(), at(UNTIL)).await, Placed::Here);
    // Swept, it is as if they had never been; others stay.
    end(bench, after, APPLIED, at(UNTIL)).await;
    while bench.sweep(1, at(UNTIL)).await.more {}
    assert_eq!(place(bench, later, at(UNTIL)).await, Placed::Here);
    let answer = place(bench, spot(ids[0], &[5], unless(&[])), at(UNTIL)).await;
    assert_eq!(answer, Placed::Neighbours(vec![near(after, true)]));
    assert_eq!(place(bench, spot(ids[1], &[6], unless(&[])), at(UNTIL)).await, Placed::Here);
}

pub(super) async fn who_has_waited_finds_what_was_there_when_it_came(bench: &Bench) {
    let ids = bench.fill(&["a"], START).await;
    assert_eq!(place(bench, spot(ids[0], &[5], unless(&[])), START).await, Placed::Here);
    end(bench, ids[0], APPLIED, START).await;
    let waits = bench.fill(&["b"], at(UNTIL - 1)).await[0];
    while bench.sweep(10, at(2 * UNTIL)).await.more {}
    let answer = place(bench, spot(waits, &[5], unless(&[])), at(2 * UNTIL)).await;
    assert_eq!(answer, Placed::Neighbours(vec![near(ids[0], true)]));
    // Nor is its own place over while it waits.
    let mut own = spot(waits, &[6], unless(&[]));
    own.until = at(UNTIL);
    assert_eq!(place(bench, own.clone(), at(2 * UNTIL)).await, Placed::Here);
    let other = bench.fill(&["c"], at(3 * UNTIL)).await[0];
    let mut beside = spot(other, &[6], unless(&[]));
    beside.until = at(4 * UNTIL);
    while bench.sweep(10, at(3 * UNTIL)).await.more {}
    assert_eq!(place(bench, beside, at(3 * UNTIL)).await, Placed::Here);
    assert_eq!(place(bench, own, at(3 * UNTIL)).await, Placed::Here);
}

pub(super) async fn later_ones_of_a_call_see_the_earlier(bench: &Bench) {
    let ids = bench.fill(&["a", "b", "c", "d", "e", "f"], START).await;
    let dead = ids[5];
    end(bench, dead, End::Dead(cause(Class::Schema)), START).await;
    let spots = vec![
        spot(dead, &[4], unless(&[])),
        spot(ids[0], &[5, 4], unless(&[])),
        spot(ids[1], &[6, 5], unless(&[])),
        spot(ids[1], &[6, 5], Claim::Decided("near".into())),
        spot(ids[2], &[6, 5], unless(&[ids[0]])),
        spot(ids[0], &[5], unless(&[])),
        spot(ids[3], &[5, 6], unless(&[])),
        spot(ids[4], &[50], unless(&[])),
        spot(dead, &[4, 5], unless(&[])),
    ];
    let expected = [
        Placed::Here,
        Placed::Here,
        Placed::Neighbours(vec![near(ids[0], false)]),
        Placed::Decided("near".into()),
        Placed::Here,
        Placed::Here,
        Placed::Neighbours(vec![near(ids[2], false), near(ids[0], false)]),
        Placed::Here,
        Placed::Neighbours(vec![near(ids[0], false)]),
    ];
    assert_eq!(bench.store.place(spots, START).await.unwrap(), expected);
    let late = bench.fill(&["late"], START).await[0];
    let answer = place(bench, spot(late, &[4, 5, 6, 50], unless(&[])), START).await;
    let all = [ids[4], ids[2], ids[0]].map(|event| near(event, false));
    assert_eq!(answer, Placed::Neighbours(all.to_vec()));
}

pub(super) async fn answers_have_limits(bench: &Bench) {
    const EVENTS: usize = NEIGHBOURS_MAX + 9;
    let names: Vec<String> = (0..=EVENTS).map(|number| format!("e{number}")).collect();
    let ids = bench.fill(&names.iter().map(String::as_str).collect::<Vec<_>>(), START).await;
    let spots = ids[..EVENTS].iter().zip(0..).map(|(&id, number)| spot(id, &[number % 3], Claim::Anyway)).collect();
    let placed = bench.store.place(spots, START).await.unwrap();
    assert!(placed.iter().all(|placed| *placed == Placed::Here) && placed.len() == EVENTS);
    let (asks, mut known, mut rounds) = (ids[EVENTS], Vec::new(), Vec::new());
    while let Placed::Neighbours(more) = place(bench, spot(asks, &[0, 1, 2], unless(&known)), START).await {
        rounds.push(more.len());
        known.extend(more.iter().map(|neighbour| neighbour.event));
    }
    assert_eq!(rounds, [NEIGHBOURS_MAX, 9]);
    known.reverse();
    assert_eq!(known, ids[..EVENTS], "the latest first");
    // The longest bodies: one at least, however long.
    let large = bench.fill(&["l1", "l2", "l3", "l4"], START).await;
    let with = |id, cell, bytes: usize| {
        let mut spot = spot(id, &[cell], Claim::Anyway);
        spot.body = vec![bytes.to_be_bytes()[7]; bytes].into();
        spot
    };
    for (&id, bytes) in large.iter().zip([9, SPOT_BODY_BYTES_MAX, SPOT_BODY_BYTES_MAX, 2_000]) {
        assert_eq!(place(bench, with(id, 9, bytes), START).await, Placed::Here);
    }
    let asks = bench.fill(&["asks"], START).await[0];
    let Placed::Neighbours(near) = place(bench, spot(asks, &[9], unless(&[])), START).await else {
        panic!("it has no neighbours")
    };
    let sizes: Vec<usize> = near.iter().map(|near| near.body.len()).collect();
    assert_eq!(sizes, [2_000, SPOT_BODY_BYTES_MAX], "{NEIGHBOURS_BYTES_MAX} bytes are the most");
    assert!(near[0].body.iter().all(|&byte| byte == 2_000_usize.to_be_bytes()[7]));
}

pub(super) async fn many_that_are_gone_are_no_hindrance(bench: &Bench) {
    const EVENTS: usize = 2 * NEIGHBOURS_MAX + 9;
    let names: Vec<String> = (0..EVENTS).map(|number| format!("e{number}")).collect();
    let ids = bench.fill(&names.iter().map(String::as_str).collect::<Vec<_>>(), START).await;
    let spots = ids.iter().map(|&id| spot(id, &[5], Claim::Anyway)).collect();
    assert_eq!(bench.store.place(spots, START).await.unwrap().len(), EVENTS);
    bench.settle_all("map", End::Dead(cause(Class::Schema)), START).await;
    let asks = bench.fill(&["a", "b", "c"], START).await;
    let spots = asks.iter().map(|&id| spot(id, &[5], unless(&[]))).collect();
    let placed = bench.store.place(spots, START).await.unwrap();
    let after = Placed::Neighbours(vec![near(asks[0], false)]);
    assert_eq!(placed, [Placed::Here, after.clone(), after]);
}

pub(super) async fn what_no_store_would_keep_is_refused(bench: &Bench) {
    let id = bench.fill(&["a"], START).await[0];
    let good = spot(id, &[5], unless(&[]));
    let cells: Vec<u64> = (0..=SPOT_CELLS_MAX as u64).collect();
    let wrong = [
        spot(id, &cells, unless(&[])),
        Spot { cells: vec![6], ..good.clone() },
        Spot { cells: vec![], ..good.clone() },
        Spot { cells: vec![5, 5], ..good.clone() },
        Spot { cells: vec![6, 5], ..good.clone() },
        Spot { body: vec![0; SPOT_BODY_BYTES_MAX + 1].into(), ..good.clone() },
        spot(id, &[5], Claim::Unless(vec![id; KNOWN_MAX + 1])),
        spot(id, &[5], Claim::Decided("x".repeat(DECISION_BYTES_MAX + 1).into())),
        spot(id, &[5], Claim::Decided("a\0b".into())),
    ];
    for wrong in wrong {
        let refused = bench.store.place(vec![good.clone(), wrong], START).await;
        assert_eq!(refused.map_err(|error| error.kind()), Err(Kind::Invalid));
    }
    let other = bench.fill(&["b"], START).await[0];
    assert_eq!(
        place(bench, spot(other, &[5], unless(&[])), START).await,
        Placed::Here,
        "nothing of a refused call is kept"
    );
    let mut most = spot(id, &cells[..SPOT_CELLS_MAX], Claim::Anyway);
    most.body = vec![0; SPOT_BODY_BYTES_MAX].into();
    assert_eq!(place(bench, most, START).await, Placed::Here);
}
