//! What only the Redis store promises: lost answers, restarts, failovers, refused settings, damage.

use super::{Redis, Time};
use crate::store::conformance;
use crate::store::{Access, Options, Store};
use geonce_services::{Cluster, Redis as Server};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// An address with a prefix that no other test uses.
fn fresh(url: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("{url}?prefix=t{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// A store that takes its time from its caller.
fn given(url: &str, options: &Options) -> Arc<Redis> {
    Arc::new(Redis::open(url, options, Access::Gateway, Time::Given).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_passes_the_conformance_suite() {
    let url = Server::shared().url();
    conformance::run(async |options: Options| given(&fresh(&url), &options) as Arc<dyn Store>).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_passes_the_conformance_suite_on_a_cluster() {
    let url = Cluster::shared().url();
    conformance::run(async |options: Options| given(&fresh(&url), &options) as Arc<dyn Store>).await;
}
