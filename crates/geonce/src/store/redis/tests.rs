//! What only the Redis store promises: lost answers, restarts, failovers, refused settings, damage, its own clock.

mod damage;
mod faults;
mod opening;
mod sharing;
mod twin;

use super::{Redis, Time};
use crate::store::conformance::{self, Bench};
use crate::store::{Access, Filter, Options, Store};
use geonce_services::{Cluster, Redis as Server};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// An address with a prefix that no other test uses, and that prefix.
fn fresh(url: &str) -> (String, String) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let prefix = format!("t{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    (format!("{url}?prefix={prefix}"), prefix)
}

fn open(url: &str, time: Time) -> Arc<dyn Store> {
    Arc::new(Redis::open(url, &Options::default(), Access::Gateway, time).unwrap())
}

/// A store that takes its time from its caller.
fn bench(url: &str) -> Bench {
    Bench::new(open(url, Time::Given))
}

/// The ids of all events that a key is known by; the store has nothing wrong with it.
async fn sound(bench: &Bench) {
    assert_eq!(bench.store.audit().await.unwrap(), Vec::<String>::new());
    let status = bench.store.status().await.unwrap();
    assert_eq!(conformance::law(&status), Ok(()));
}

fn by_key(name: &str) -> Filter {
    Filter { key: Some(conformance::key(name).key()), ..Filter::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_passes_the_conformance_suite() {
    let url = Server::shared().url();
    conformance::run(async |options: Options| {
        Arc::new(Redis::open(&fresh(&url).0, &options, Access::Gateway, Time::Given).unwrap()) as Arc<dyn Store>
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_passes_the_conformance_suite_on_a_cluster() {
    let url = Cluster::shared().url();
    conformance::run(async |options: Options| {
        Arc::new(Redis::open(&fresh(&url).0, &options, Access::Gateway, Time::Given).unwrap()) as Arc<dyn Store>
    })
    .await;
}
