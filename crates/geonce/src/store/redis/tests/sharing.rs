//! Several gateways on one store: races, wake-ups, clocks that are wrong.

use super::{Time, bench, by_key, fresh, open, sound};
use crate::clock::{Clock, SystemClock};
use crate::event::{Class, EventId, State};
use crate::store::conformance::{Bench, START, cause};
use crate::store::{End, Filter, Verdict};
use geonce_services::Redis as Server;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_copies_at_two_gateways_one_is_accepted() {
    let (url, _) = fresh(&Server::shared().url());
    let gateways = [bench(&url), bench(&url)];
    let mut tasks = tokio::task::JoinSet::new();
    for copy in 0..10 {
        for key in 0..200 {
            let name = format!("k{key}");
            let gateway = &gateways[copy % 2];
            let (event, store) = (gateway.event(&name, START), Arc::clone(&gateway.store));
            tasks.spawn(async move { (name, event.id, store.accept(vec![event], START).await.unwrap().remove(0)) });
        }
    }
    let mut winners: BTreeMap<String, EventId> = BTreeMap::new();
    let answers = tasks.join_all().await;
    for (name, id, verdict) in &answers {
        if *verdict == Verdict::Accepted {
            assert_eq!(winners.insert(name.clone(), *id), None, "{name} was accepted twice");
        }
    }
    assert_eq!(winners.len(), 200);
    for (name, _, verdict) in &answers {
        if let Verdict::Duplicate { of, .. } = verdict {
            assert_eq!(*of, winners[name]);
        }
    }
    let ledger = gateways[0].ledger().await;
    assert_eq!((ledger.received, ledger.waiting, ledger.duplicate), (2_000, 200, 1_800));
    sound(&gateways[1]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_hear_of_work_that_came_in_elsewhere() {
    let (url, _) = fresh(&Server::shared().url());
    let (here, there) = (bench(&url), bench(&url));
    let changed = here.store.changed();
    there.fill(&["a"], START).await;
    assert!(tokio::time::timeout(Duration::from_secs(20), changed).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_with_a_wrong_clock_steals_no_lease_and_loses_no_time() {
    let (url, _) = fresh(&Server::shared().url());
    let (right, wrong) = (Bench::new(open(&url, Time::Server)), Bench::new(open(&url, Time::Server)));
    let hour = Duration::from_hours(1);
    let now = SystemClock.now();
    let behind = now.minus(hour);
    // A gateway that is behind accepts; the event is due at once, by the server's clock.
    let id = wrong.fill(&["a"], behind).await[0];
    let record = right.record(id).await;
    assert!(
        record.received.since(now) < Duration::from_mins(5) && record.received >= now.minus(Duration::from_mins(5))
    );
    let lease = right.lease("map", 10, now).await.remove(0).lease;
    // One that is ahead would find the lease lapsed, if its clock counted.
    assert!(wrong.lease("map", 10, now.plus(hour)).await.is_empty());
    // Its waits are waits: two minutes from its own now.
    let ahead = now.plus(hour);
    let end = End::Retry { at: ahead.plus(Duration::from_mins(2)), cause: cause(Class::Unavailable), counts: true };
    wrong.settle(&lease, end, ahead).await;
    let due = right.record(id).await.work[0].due;
    assert!(due > now.plus(Duration::from_mins(1)) && due < now.plus(Duration::from_mins(10)), "{due}");
    let next = right.store.next_due("map".into()).await.unwrap().unwrap();
    assert!(next > now.plus(Duration::from_mins(1)) && next < now.plus(Duration::from_mins(10)), "{next}");
    // Nothing is forgotten before its time because a clock is a month ahead.
    let other = right.fill(&["b"], now).await[0];
    let lease = right.lease("map", 10, now).await.remove(0).lease;
    right.settle(&lease, End::Done(crate::event::Outcome::Applied, None), now).await;
    assert_eq!(wrong.sweep(100, now.plus(Duration::from_hours(24 * 60))).await.forgotten, 0);
    assert_eq!(right.record(other).await.state, State::Done);
    sound(&right).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_prolonged_by_how_far_away_their_end_is() {
    let (url, _) = fresh(&Server::shared().url());
    let bench = Bench::new(open(&url, Time::Server));
    let now = SystemClock.now();
    let id = bench.fill(&["a"], now).await[0];
    let lease = bench.lease("map", 1, now).await.remove(0).lease;
    bench.store.extend(vec![lease], SystemClock.now().plus(Duration::from_mins(30))).await.unwrap();
    let due = bench.record(id).await.work[0].due;
    assert!(due > now.plus(Duration::from_mins(25)) && due < now.plus(Duration::from_mins(35)), "{due}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_lists_and_replays_beside_the_gateway() {
    let (url, _) = fresh(&Server::shared().url());
    let gateway = bench(&url);
    gateway.fill(&["a"], START).await;
    gateway.settle_all("map", End::Dead(cause(Class::Schema)), START).await;
    let options = crate::store::Options::default();
    let tool = crate::store::open(&url, &options, crate::store::Access::Tool, "".as_ref()).unwrap();
    let tool = Bench::new(tool);
    assert_eq!(tool.list(by_key("a")).await.len(), 1);
    assert!(tool.store.accept(vec![tool.event("b", START)], START).await.is_err());
    let changed = gateway.store.changed();
    assert_eq!(tool.replay(Filter::default(), START).await, 1);
    assert!(tokio::time::timeout(Duration::from_secs(20), changed).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_an_entity_keep_their_order_at_two_gateways() {
    let (url, _) = fresh(&Server::shared().url());
    crate::store::conformance::race::run([open(&url, Time::Server), open(&url, Time::Server)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_near_events_at_two_gateways_one_has_its_place_first() {
    let (url, _) = fresh(&Server::shared().url());
    let stores = [open(&url, Time::Server), open(&url, Time::Server)];
    crate::store::conformance::place_race::run(stores, SystemClock.now()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_are_known_to_other_gateways() {
    let (url, _) = fresh(&Server::shared().url());
    let other = async || open(&url, Time::Server);
    crate::store::conformance::place_race::are_known_to(open(&url, Time::Server), other, SystemClock.now()).await;
}
