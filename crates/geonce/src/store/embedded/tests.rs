//! What only the embedded store promises: files, restarts, tools beside it, sealing, limits of the disk.

use super::{Embedded, Tuning};
use crate::store::{Access, Options, Store, conformance};
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_passes_the_conformance_suite() {
    conformance::run(async |options: Options| {
        crate::store::open("sqlite::memory:", &options, Access::Gateway, "".as_ref()).unwrap()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_passes_the_conformance_suite_with_tiny_segments() {
    conformance::run(async |options: Options| {
        let store = Embedded::open(None, &options, Access::Gateway, Tuning { segment_keys: 3 }).unwrap();
        Arc::new(store) as Arc<dyn Store>
    })
    .await;
}
