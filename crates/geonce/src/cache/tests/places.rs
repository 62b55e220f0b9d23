//! Where Redis is: beside two gateways, under Sentinels, as a Cluster, behind encryption and a password.

use super::{Rig, duplicate, embedded, now, settings, until};
use crate::redis::encrypted::Encrypted;
use crate::store::conformance::law;
use crate::store::{self, Access, Options, Verdict};
use geonce_services::{Cluster, Postgres, Redis as Server, Sentinels};
use std::path::Path;
use std::sync::Arc;

/// What one gateway has done, another hears of, and answers for without its store.
async fn shared_by_two(url: &str) -> [Rig; 2] {
    let settings = settings(url);
    let first = Rig::ready(embedded(&Options::default()), &settings).await;
    let second = Rig::ready(Arc::clone(&first.behind.inner), &settings).await;
    let names: Vec<String> = (0..40).map(|number| format!("event {number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let ids = first.done(&names).await;
    first.written(40).await;
    let hears = |name: &&str| second.cached.shared.filter.may_hold(store::conformance::key(name).digest());
    until("the other gateway has heard of it", || names.iter().all(hears)).await;
    for (name, &id) in names.iter().zip(&ids) {
        assert_eq!(second.bench.accept_one(second.bench.event(name, now()), now()).await, duplicate(id));
    }
    assert_eq!((second.asked(), second.counts().redis_hits), (0, 40), "{:?}", second.counts());
    let fresh = second.bench.event("fresh", now());
    assert_eq!(second.bench.accept_one(fresh, now()).await, Verdict::Accepted);
    assert_eq!(law(&first.bench.store.status().await.unwrap()), Ok(()));
    [first, second]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_hear_what_others_have_done() {
    shared_by_two(&Server::shared().url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_share_a_database_and_a_cache() {
    let (url, settings) = (Postgres::shared().database(), settings(&Server::shared().url()));
    let open = || store::open(&url, &Options::default(), Access::Gateway, Path::new("")).unwrap();
    let rigs = [Rig::ready(open(), &settings).await, Rig::ready(open(), &settings).await];
    let mut tasks = tokio::task::JoinSet::new();
    for (turn, rig) in rigs.into_iter().enumerate() {
        tasks.spawn(async move {
            // Both are sent all events, again and again, in another order.
            for round in 0..6 {
                for number in 0..50 {
                    let name = format!("event {}", (number * 7 + turn * 13 + round) % 50);
                    let event = rig.bench.event(&name, now());
                    rig.bench.store.accept(vec![event], now()).await.unwrap();
                }
                for leased in rig.bench.lease("map", 30, now()).await {
                    rig.bench.settle(&leased.lease, crate::store::conformance::APPLIED, now()).await;
                }
            }
            rig
        });
    }
    let rigs = tasks.join_all().await;
    rigs[0].bench.settle_all("map", crate::store::conformance::APPLIED, now()).await;
    for rig in &rigs {
        rig.bench.ledger().await;
        println!("{:?}", rig.counts());
    }
    let ledger = rigs[0].bench.ledger().await;
    assert_eq!((ledger.received, ledger.applied, ledger.duplicate, ledger.waiting), (600, 50, 550, 0));
    assert_eq!(rigs[0].bench.store.audit().await.unwrap(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_entries_are_spread_and_a_dead_primary_is_replaced() {
    let mut cluster = Cluster::start();
    let [_, second] = shared_by_two(&cluster.url()).await;
    let sizes = || cluster.nodes.iter().map(|node| node.say(&["DBSIZE"])).filter(|size| size != "0").count();
    until("every primary has entries, and its replica too", || sizes() == 6).await;
    let primary = cluster.nodes.iter().position(|node| node.say(&["ROLE"]).starts_with("master")).unwrap();
    cluster.nodes[primary].kill();
    let mut names = Vec::new();
    // Whatever happens meanwhile: what is new is accepted, what is known is recognised.
    let mut number = 0;
    loop {
        let name = format!("later {number}");
        let id = second.done(&[&name]).await[0];
        names.push((name.clone(), id));
        let again = second.bench.accept_one(second.bench.event(&name, now()), now()).await;
        assert_eq!(again, duplicate(id));
        number += 1;
        if second.counts().breaker_opened > 0 && second.cached.condition().reachable {
            break;
        }
        assert!(number < 20_000, "{:?}", second.counts());
    }
    println!("{number} events until the Cluster was whole again: {:?}", second.counts());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_sentinels_the_new_primary_is_found() {
    let mut sentinels = Sentinels::start();
    let [first, second] = shared_by_two(&sentinels.url()).await;
    sentinels.primary.await_replica();
    sentinels.primary.kill();
    until("the gateway has noticed", || !second.cached.condition().reachable || second.counts().breaker_opened > 0)
        .await;
    until("the new primary is found", || second.cached.condition().reachable).await;
    let id = second.done(&["after the failover"]).await[0];
    let again = second.bench.accept_one(second.bench.event("after the failover", now()), now()).await;
    assert_eq!(again, duplicate(id));
    drop(first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_encrypted_and_authenticated_where_asked() {
    let encrypted = Encrypted::start();
    let (server, port, certificate) = (&encrypted.server, encrypted.port, &encrypted.certificate);
    // Exactly the rights that the documentation asks for.
    let rights = [
        "~{t*.cache.*",
        "&t*.cache:*",
        "+mget",
        "+set",
        "+get",
        "+del",
        "+scan",
        "+publish",
        "+subscribe",
        "+ping",
        "+role",
    ];
    let mut words = vec!["ACL", "SETUSER", "cache", "reset", "on", ">secret"];
    words.extend(rights);
    assert_eq!(server.say(&words), "OK");
    shared_by_two(&format!("rediss://cache:secret@localhost:{port}?ca={certificate}")).await;
}
