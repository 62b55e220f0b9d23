//! Redis stopped, frozen, flushed, too small, or with other things under our names: the answers stay the same.

use super::{Rig, Settings, duplicate, embedded, now, settings, until};
use crate::clock::Stopwatch;
use crate::event::EventId;
use crate::store::conformance::law;
use crate::store::{self, Access, Options, Verdict};
use geonce_services::Redis as Server;
use std::sync::Arc;
use std::time::Duration;

/// Every one of them is known, and the books say so.
async fn all_known(rig: &Rig, names: &[&str], ids: &[EventId]) {
    for (name, &id) in names.iter().zip(ids) {
        assert_eq!(rig.bench.accept_one(rig.bench.event(name, now()), now()).await, duplicate(id), "{name}");
    }
    assert_eq!(law(&rig.bench.store.status().await.unwrap()), Ok(()));
}

/// As in use: the budget is short.
fn hasty(url: &str) -> Settings {
    Settings { budget: Duration::from_millis(5), ..settings(url) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_the_store_answers_and_redis_is_found_when_it_is_back() {
    let mut server = Server::start(&[]);
    let settings = settings(&server.url());
    server.kill();
    let rig = Rig::new(embedded(&Options::default()), &settings, Arc::new(crate::clock::SystemClock));
    let ids = rig.done(&["a", "b"]).await;
    assert!(!rig.cached.condition().reachable);
    all_known(&rig, &["a", "b"], &ids).await;
    assert!(rig.counts().bypassed_by_failure() > 0, "{:?}", rig.counts());
    server.restart();
    rig.warm().await;
    let third = rig.done(&["c"]).await[0];
    rig.written(1).await;
    // Stopped again, and started without what it had.
    server.say(&["FLUSHALL"]);
    server.kill();
    all_known(&rig, &["a", "b", "c"], &[ids[0], ids[1], third]).await;
    server.restart();
    until("the cache answers", || rig.cached.condition().reachable).await;
    all_known(&rig, &["a", "b", "c"], &[ids[0], ids[1], third]).await;
    assert_eq!(rig.bench.accept_one(rig.bench.event("d", now()), now()).await, Verdict::Accepted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_redis_costs_next_to_nothing() {
    let server = Server::start(&[]);
    let settings = Settings { recent: 0, ..hasty(&server.url()) };
    let rig = Rig::ready(embedded(&Options::default()), &settings).await;
    let ids = rig.done(&["a"]).await;
    rig.written(1).await;
    let process = server.process();
    server.freeze(process);
    let (frozen, mut times, mut fresh) = (Stopwatch::start(), Vec::new(), 0_u64);
    while frozen.elapsed() < Duration::from_secs(5) {
        let watch = Stopwatch::start();
        let batch = vec![rig.bench.event("a", now()), rig.bench.event(&format!("fresh {fresh}"), now())];
        let verdicts = rig.bench.store.accept(batch, now()).await.unwrap();
        assert_eq!(verdicts, [duplicate(ids[0]), Verdict::Accepted]);
        times.push(watch.elapsed());
        fresh += 1;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    server.thaw(process);
    times.sort_unstable();
    let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!(
        "{} acknowledgements while frozen: p50 {p50:?}, p99 {p99:?}, max {:?}",
        times.len(),
        times[times.len() - 1]
    );
    println!("{:?}", rig.counts());
    assert!(p99 < Duration::from_millis(250), "{p99:?}");
    assert!(times[times.len() - 1] < Duration::from_secs(2), "nobody waits for a server that is given up");
    assert!(rig.counts().breaker_opened > 0 && rig.counts().bypassed_breaker > 0);
    until("the cache answers again", || rig.cached.condition().reachable).await;
    let ledger = rig.bench.ledger().await;
    assert_eq!((ledger.received, ledger.duplicate, ledger.waiting), (1 + 2 * fresh, fresh, fresh));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flushed_redis_is_filled_again() {
    let server = Server::start(&[]);
    let settings = settings(&server.url());
    let rig = Rig::ready(embedded(&Options::default()), &settings).await;
    let names = ["a", "b", "c"];
    let ids = rig.done(&names).await;
    rig.written(3).await;
    server.say(&["FLUSHALL"]);
    let second = Rig::ready(Arc::clone(&rig.behind.inner), &settings).await;
    all_known(&second, &names, &ids).await;
    assert_eq!(second.counts().redis_hits, 0);
    second.written(3).await;
    let third = Rig::ready(Arc::clone(&rig.behind.inner), &settings).await;
    until("the cache is shared again", || third.cached.shared.names() == second.cached.shared.names()).await;
    all_known(&third, &names, &ids).await;
    assert_eq!((third.counts().redis_hits, third.asked()), (3, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_too_small_forgets_and_the_store_does_not() {
    for policy in ["allkeys-lru", "noeviction"] {
        let server = Server::start(&["--maxmemory", "1500kb", "--maxmemory-policy", policy]);
        let settings = Settings { recent: 0, ..settings(&server.url()) };
        let rig = Rig::ready(embedded(&Options::default()), &settings).await;
        let names: Vec<String> = (0..3_000).map(|number| format!("{policy} {number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut ids = Vec::new();
        for some in names.chunks(500) {
            let batch: Vec<_> = some.iter().map(|name| rig.bench.event(name, now())).collect();
            ids.extend(batch.iter().map(|event| event.id));
            rig.bench.accept(batch, now()).await;
            let settlements = rig
                .bench
                .lease("map", 500, now())
                .await
                .into_iter()
                .map(|leased| store::Settlement { lease: leased.lease, end: crate::store::conformance::APPLIED });
            rig.bench.store.settle(settlements.collect(), now()).await.unwrap();
        }
        let counts = || (rig.counts().written + rig.counts().dropped, rig.counts());
        until("all was written or dropped", || counts().0 >= 3_000).await;
        for (some, ids) in names.chunks(500).zip(ids.chunks(500)) {
            let batch = some.iter().map(|name| rig.bench.event(name, now())).collect();
            let expected: Vec<Verdict> = ids.iter().map(|&id| duplicate(id)).collect();
            assert_eq!(rig.bench.accept(batch, now()).await, expected);
        }
        println!("{policy}: {:?}", rig.counts());
        let ledger = rig.bench.ledger().await;
        assert_eq!((ledger.received, ledger.duplicate, ledger.applied), (6_000, 3_000, 3_000));
        assert!(rig.counts().redis_hits < 3_000, "{policy}: {:?}", rig.counts());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_ours_under_our_names_is_ignored_and_counted() {
    let server = Server::start(&[]);
    let settings = settings(&server.url());
    let rig = Rig::ready(embedded(&Options::default()), &settings).await;
    let names = ["a", "b", "c", "d", "e", "f"];
    let ids = rig.done(&names).await;
    rig.written(6).await;
    let known = rig.cached.shared.names().unwrap();
    let name = |of: &str| known.name(crate::store::conformance::key(of).digest());
    server.say(&["SET", &name("a"), ""]);
    server.say(&["SET", &name("b"), "garbage"]);
    server.say(&["APPEND", &name("c"), "x"]);
    server.say(&["SETRANGE", &name("d"), "0", "2"]);
    server.say(&["COPY", &name("f"), &name("e"), "REPLACE"]);
    server.say(&["DEL", &name("f")]);
    server.say(&["RPUSH", &name("f"), "a list"]);
    let second = Rig::ready(Arc::clone(&rig.behind.inner), &settings).await;
    all_known(&second, &names, &ids).await;
    let counts = second.counts();
    assert_eq!((counts.redis_hits, counts.damaged, counts.misses), (0, 5, 6), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_of_another_store_do_not_answer_for_this_one() {
    let settings = settings(&Server::shared().url());
    let first = Rig::ready(embedded(&Options::default()), &settings).await;
    first.done(&["a"]).await;
    first.written(1).await;
    let other = Rig::ready(embedded(&Options::default()), &settings).await;
    assert_eq!(other.bench.accept_one(other.bench.event("a", now()), now()).await, Verdict::Accepted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_was_put_back_from_a_backup_is_not_answered_for() {
    let server = Server::shared();
    let settings = settings(&server.url());
    let folder = tempfile::tempdir().unwrap();
    let (file, backup) = (folder.path().join("geonce.db"), folder.path().join("backup.db"));
    let open = || store::open("sqlite:geonce.db", &Options::default(), Access::Gateway, folder.path()).unwrap();
    let store = open();
    let rig = Rig::ready(store, &settings).await;
    let before = rig.done(&["before"]).await[0];
    rig.bench.store.close().await.unwrap();
    drop(rig);
    std::fs::copy(&file, &backup).unwrap();
    let rig = Rig::ready(open(), &settings).await;
    let after = rig.done(&["after"]).await[0];
    rig.written(1).await;
    until("the last event is told", || rig.cached.shared.latest.lock().unwrap().is_none()).await;
    rig.bench.store.close().await.unwrap();
    drop(rig);
    let same = Rig::ready(open(), &settings).await;
    all_known(&same, &["after", "before"], &[after, before]).await;
    assert!(same.counts().redis_hits > 0, "an ordinary restart changes nothing: {:?}", same.counts());
    same.bench.store.close().await.unwrap();
    drop(same);
    std::fs::copy(&backup, &file).unwrap();
    let restored = Rig::ready(open(), &settings).await;
    let verdict = restored.bench.accept_one(restored.bench.event("after", now()), now()).await;
    assert_eq!(verdict, Verdict::Accepted, "the store has never heard of it");
    all_known(&restored, &["before"], &[before]).await;
    restored.bench.store.close().await.unwrap();
}
