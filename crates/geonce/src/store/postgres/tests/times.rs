//! Clocks that are wrong, and what grows old.

use super::super::schema::days;
use super::{bench, gateway, given, name, no_problems, now};
use crate::clock::Timestamp;
use crate::event::{Class, State};
use crate::postgres::{Address, Pool};
use crate::store::conformance::{APPLIED, cause};
use crate::store::{End, Options, Settled, Verdict};
use geonce_services::Postgres as Server;
use std::time::Duration;

const HOUR: Duration = Duration::from_hours(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_whose_clock_is_an_hour_off_steals_no_leases() {
    for off in [|time: Timestamp| time.plus(HOUR), |time: Timestamp| time.minus(HOUR)] {
        let url = Server::shared().database();
        let (right, wrong) = (gateway(&url), gateway(&url));
        let (right, wrong) = (bench(&right), bench(&wrong));
        // An id made by the wrong clock, and one by the right one.
        let ids = [wrong.fill(&["a"], off(now())).await[0], right.fill(&["b"], now()).await[0]];
        let held = right.lease("map", 1, now()).await.remove(0).lease;
        let leased = wrong.lease("map", 10, off(now())).await;
        assert_eq!(leased.len(), 1, "one is held, the other is due, whatever the clock says");
        let lease = &leased[0].lease;
        assert_ne!(lease.event, held.event);
        assert!(right.lease("map", 10, now()).await.is_empty());
        // Extended by a minute of the wrong clock is extended by a minute.
        let extended = wrong.store.extend(vec![lease.clone()], off(now()).plus(Duration::from_mins(1))).await;
        assert_eq!(extended.unwrap(), [Settled::Ok]);
        let due = wrong.record(lease.event).await.work[0].due;
        let (least, most) = (now().plus(Duration::from_secs(30)), now().plus(Duration::from_secs(90)));
        assert!(least < due && due < most, "{due}");
        // A retry in 300 ms of the wrong clock is one in 300 ms.
        let (at, before) = (off(now()).plus(Duration::from_millis(300)), now());
        let retry = End::Retry { at, cause: cause(Class::Unavailable), counts: true };
        assert_eq!(wrong.settle(lease, retry, off(now())).await, Settled::Ok);
        let next = wrong.store.next_due("map".into()).await.unwrap().unwrap();
        assert!(next.since(at) < HOUR / 2 && at.since(next) < HOUR / 2, "{next} by the clock of who asks, not {at}");
        let again = loop {
            let mut leased = wrong.lease("map", 1, off(now())).await;
            if let Some(leased) = leased.pop() {
                break leased;
            }
            assert!(now().since(before) < Duration::from_secs(20), "the retry does not come");
        };
        assert!(now().since(before) >= Duration::from_millis(200), "the retry came too soon");
        assert_eq!(wrong.settle(&again.lease, APPLIED, off(now())).await, Settled::Ok);
        assert_eq!(right.settle(&held, APPLIED, now()).await, Settled::Ok);
        for id in ids {
            let record = right.record(id).await;
            assert!(now().since(record.received) < HOUR / 2 && record.received.since(now()) < HOUR / 2);
            assert_eq!(record.state, State::Done);
        }
        assert_eq!(wrong.sweep(100, off(now())).await.forgotten, 0);
        no_problems(&right.store).await;
    }
}

fn day(time: Timestamp) -> i64 {
    time.millis().div_euclid(24 * 3_600_000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payloads_of_a_day_lie_together_until_the_last_is_gone() {
    let server = Server::shared();
    let url = server.database();
    let store = given(&url, &Options::default());
    let pool = Pool::new(&Address::parse(&url).unwrap(), 1).unwrap().within("geonce");
    let today = day(now());
    let bench = bench(&store);
    bench.fill(&["a"], now()).await;
    let count = |table: String| server.sql(name(&url), &format!("SELECT count(*) FROM geonce.{table}"));
    assert_eq!(count(format!("body_{}", day(now()))), "1");
    let later = now().plus(Duration::from_hours(24 * 60));
    bench.sweep(100, later).await;
    let kept = days(&pool, "geonce").await.unwrap();
    assert!(kept.contains(&today), "somebody waits for its payload: {kept:?}");
    assert!(!kept.contains(&(today + 2)), "nothing was in it: {kept:?}");
    assert!(kept.contains(&(day(later) + 1)), "payloads to come: {kept:?}");
    // A day without a part of its own.
    bench.fill(&["b"], later.plus(Duration::from_hours(24 * 90))).await;
    assert_eq!(count("body_default".to_owned()), "1");
    bench.settle_all("map", APPLIED, later.plus(Duration::from_hours(24 * 91))).await;
    let end = later.plus(Duration::from_hours(24 * 200));
    assert_eq!(bench.sweep(100, end).await.forgotten, 2);
    bench.sweep(100, end.plus(HOUR)).await;
    let kept = days(&pool, "geonce").await.unwrap();
    assert!(!kept.contains(&today), "{kept:?}");
    assert_eq!(count("claim".to_owned()), "0");
    no_problems(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_window_is_a_history_without_payloads() {
    let server = Server::shared();
    let url = server.database();
    let days_long = |days: u64| Duration::from_hours(24 * days);
    let store = given(&url, &Options { window: days_long(365), keep_payload: false, ..Options::default() });
    let pool = Pool::new(&Address::parse(&url).unwrap(), 1).unwrap().within("geonce");
    let (bench, began) = (bench(&store), now());
    let id = bench.fill(&["a"], began).await[0];
    bench.settle_all("map", APPLIED, began).await;
    let later = began.plus(days_long(200));
    assert_eq!(bench.sweep(100, later).await.forgotten, 0);
    assert_eq!(bench.record(id).await.state, State::Done);
    assert!(!days(&pool, "geonce").await.unwrap().contains(&day(began)), "its payload is gone, and the part with it");
    let again = bench.event("a", later);
    let verdict = bench.accept_one(again, later).await;
    assert!(matches!(verdict, Verdict::Duplicate { of, .. } if of == id), "{verdict:?}");
    assert_eq!(bench.sweep(100, began.plus(days_long(366))).await.forgotten, 1);
    no_problems(&store).await;
}
