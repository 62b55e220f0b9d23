//! Which events are answered without the store, and which never.

use super::{Rig, Settings, duplicate, embedded, now, settings, until};
use crate::event::{Class, State};
use crate::store::conformance::{APPLIED, cause, key};
use crate::store::{End, Options, Verdict};
use geonce_services::Redis as Server;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

async fn rig() -> Rig {
    Rig::ready(embedded(&Options::default()), &settings(&Server::shared().url())).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_of_a_done_event_are_answered_without_the_store_and_counted() {
    let settings = settings(&Server::shared().url());
    let first = Rig::ready(embedded(&Options::default()), &settings).await;
    let ids = first.done(&["a", "b"]).await;
    first.written(2).await;
    let asked = first.asked();
    assert_eq!(first.bench.accept_one(first.bench.event("a", now()), now()).await, duplicate(ids[0]));
    assert_eq!(first.counts().recent_hits, 1);
    // Another gateway at the same store has seen nothing yet.
    let second = Rig::ready(Arc::clone(&first.behind.inner), &settings).await;
    let batch = ["b", "a", "b"].map(|name| second.bench.event(name, now()));
    let verdicts = second.bench.accept(batch.into(), now()).await;
    assert_eq!(verdicts, [duplicate(ids[1]), duplicate(ids[0]), duplicate(ids[1])]);
    assert_eq!(second.counts().redis_hits, 3);
    assert_eq!((first.asked(), second.asked()), (asked, 0));
    let ledger = second.bench.ledger().await;
    assert_eq!((ledger.received, ledger.duplicate, ledger.applied, ledger.waiting), (6, 4, 2, 0));
    assert_eq!(first.bench.record(ids[0]).await.duplicates, 2);
    assert_eq!(first.bench.record(ids[1]).await.duplicates, 2);
    // Later, by the gateway's clock: how late it came is counted too.
    let later = now().plus(Duration::from_mins(45));
    assert_eq!(first.bench.accept_one(first.bench.event("a", now()), later).await, duplicate(ids[0]));
    let status = first.bench.store.status().await.unwrap();
    let lags = &status.traffic["survey"].lags;
    assert_eq!((lags[&Duration::from_hours(1)], lags.values().sum::<u64>()), (1, 5));
    assert_eq!((status.ledgers["survey"].duplicate, first.asked()), (5, asked));
    // A fresh key is certainly not in Redis, so it is not asked.
    let rounds = second.counts().rounds;
    assert_eq!(second.bench.accept_one(second.bench.event("c", now()), now()).await, Verdict::Accepted);
    assert_eq!((second.counts().rounds, second.counts().skipped), (rounds, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_is_not_done_is_never_answered_without_the_store() {
    let rig = rig().await;
    let ids = rig.bench.fill(&["ready", "dead"], now()).await;
    for leased in rig.bench.lease("map", 2, now()).await {
        let verdict = rig.bench.accept_one(rig.bench.event("ready", now()), now()).await;
        assert!(matches!(verdict, Verdict::Duplicate { state: State::Leased | State::Ready, .. }), "{verdict:?}");
        let end = if leased.lease.event == ids[1] {
            End::Dead(cause(Class::Unavailable))
        } else {
            End::Retry { at: now(), cause: cause(Class::Unavailable), counts: true }
        };
        rig.bench.settle(&leased.lease, end, now()).await;
    }
    // What died of a transient cause is revived by its next delivery: the store must hear of it.
    let verdict = rig.bench.accept_one(rig.bench.event("dead", now()), now()).await;
    assert!(matches!(verdict, Verdict::Duplicate { revived: true, .. }), "{verdict:?}");
    assert_eq!((rig.counts().recent_hits, rig.counts().redis_hits, rig.counts().written), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_with_several_sinks_counts_once_all_are_served() {
    let rig = rig().await;
    let event = rig.bench.event_for("a", &["map", "log"], now());
    let id = event.id;
    rig.bench.accept_one(event, now()).await;
    rig.bench.settle_all("map", APPLIED, now()).await;
    let verdict = rig.bench.accept_one(rig.bench.event("a", now()), now()).await;
    assert!(matches!(verdict, Verdict::Duplicate { state: State::Ready, .. }), "{verdict:?}");
    rig.bench.settle_all("log", APPLIED, now()).await;
    for _ in 0..2 {
        assert_eq!(rig.bench.accept_one(rig.bench.event("a", now()), now()).await, duplicate(id));
    }
    assert_eq!(rig.counts().recent_hits, 1, "the store's answer was remembered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anything_but_an_exact_copy_is_for_the_store() {
    let rig = rig().await;
    let first = rig.bench.event("a", now());
    rig.bench.accept_one(first.clone(), now()).await;
    rig.bench.settle_all("map", APPLIED, now()).await;
    // Its answer was lost.
    assert_eq!(rig.bench.accept_one(first.clone(), now()).await, Verdict::Accepted);
    let mut other = rig.bench.event("a", now());
    other.content = [9; 32];
    let verdict = rig.bench.accept_one(other, now()).await;
    assert!(matches!(verdict, Verdict::Duplicate { drift: true, .. }), "{verdict:?}");
    let mut contradicting = rig.bench.event("a", now());
    contradicting.spatial = vec![key("elsewhere")];
    let event = contradicting.id;
    assert_eq!(rig.bench.accept_one(contradicting, now()).await, Verdict::Conflict { event, of: first.id });
    // Half of the fingerprint is the same.
    let mut digest = *key("a").digest();
    digest[31] ^= 1;
    let mut colliding = rig.bench.event("a", now());
    colliding.key = geonce_key::Fingerprint::from_digest(digest, false);
    assert!(matches!(rig.bench.accept_one(colliding, now()).await, Verdict::Conflict { .. }));
    assert_eq!((rig.counts().recent_hits, rig.counts().redis_hits), (0, 0));
    assert_eq!(rig.bench.ledger().await.drift, 1);
    // Nor has any of it changed what an exact copy is told.
    assert_eq!(rig.bench.accept_one(rig.bench.event("a", now()), now()).await, duplicate(first.id));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_was_recognised_by_an_alias_is_still_free() {
    let rig = rig().await;
    let mut first = rig.bench.event("a", now());
    first.aliases = vec![key("a2")];
    let id = first.id;
    rig.bench.accept_one(first, now()).await;
    rig.bench.settle_all("map", APPLIED, now()).await;
    let by_alias = || {
        let mut copy = rig.bench.event("b", now());
        (copy.aliases, copy.content) = (vec![key("a2")], *key("a").digest());
        copy
    };
    assert_eq!(rig.bench.accept_one(by_alias(), now()).await, duplicate(id));
    let mut fresh = by_alias();
    fresh.aliases = Vec::new();
    assert_eq!(rig.bench.accept_one(fresh, now()).await, Verdict::Accepted, "nobody ever claimed this key");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deliveries_are_recognised_by_id_and_place() {
    let rig = rig().await;
    let delivery = |place: &str| {
        let mut event = rig.bench.event("delivery", now());
        (event.spatial, event.content) = (vec![key(place), key("second grid")], *key("same").digest());
        event
    };
    let first = delivery("here");
    let id = first.id;
    rig.bench.accept_one(first, now()).await;
    rig.bench.settle_all("map", APPLIED, now()).await;
    let asked = rig.asked();
    let mut reversed = delivery("here");
    reversed.spatial.reverse();
    assert_eq!(rig.bench.accept_one(reversed, now()).await, duplicate(id));
    assert_eq!(rig.asked(), asked);
    let mut elsewhere = delivery("there");
    elsewhere.spatial.truncate(1);
    assert!(matches!(rig.bench.accept_one(elsewhere, now()).await, Verdict::Conflict { .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_past_its_window_is_for_the_store() {
    let window = Duration::from_secs(2);
    let options = Options { window, ..Options::default() };
    let server = Server::shared();
    let settings = Settings { window, ..settings(&server.url()) };
    let rig = Rig::ready(embedded(&options), &settings).await;
    let id = rig.done(&["a"]).await[0];
    rig.written(1).await;
    let later = id.time().plus(window);
    let early = id.time().plus(window / 2);
    assert_eq!(rig.bench.accept_one(rig.bench.event("a", early), early).await, duplicate(id));
    let asked = rig.asked();
    assert_eq!(rig.bench.accept_one(rig.bench.event("a", later), later).await, duplicate(id), "nothing was swept yet");
    assert_eq!(rig.asked(), asked + 1);
    let pattern = format!("{{{}.cache.*}}:*:???????????????????????????????????????????", settings.prefix.unwrap());
    until("Redis has forgotten it too", || server.say(&["--scan", "--pattern", &pattern]).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_may_do_without() {
    let mut settings = settings(&Server::shared().url());
    settings.excluded.insert("survey".to_owned());
    let rig = Rig::ready(embedded(&Options::default()), &settings).await;
    let id = rig.done(&["a"]).await[0];
    for _ in 0..3 {
        assert_eq!(rig.bench.accept_one(rig.bench.event("a", now()), now()).await, duplicate(id));
    }
    let counts = rig.counts();
    assert_eq!((counts.bypassed_intended, counts.bypassed_by_failure(), counts.written), (4, 0, 0));
    assert_eq!((rig.asked(), counts.recent_hits + counts.redis_hits), (4, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_not_be_answered_is_not_counted() {
    let rig = rig().await;
    let id = rig.done(&["a"]).await[0];
    rig.behind.down.store(true, Ordering::Relaxed);
    let batch = vec![rig.bench.event("a", now()), rig.bench.event("b", now())];
    assert!(rig.bench.store.accept(batch.clone(), now()).await.is_err(), "half of an answer is none");
    // A copy of a done event needs no store.
    assert_eq!(rig.bench.accept_one(rig.bench.event("a", now()), now()).await, duplicate(id));
    rig.behind.down.store(false, Ordering::Relaxed);
    assert_eq!(rig.bench.accept(batch, now()).await, [duplicate(id), Verdict::Accepted]);
    let ledger = rig.bench.ledger().await;
    assert_eq!((ledger.received, ledger.duplicate), (4, 2));
}
