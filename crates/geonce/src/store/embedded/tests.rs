//! What only the embedded store promises: files, restarts, tools beside it, sealing, limits of the disk.

mod damage;
mod files;
mod model;
mod sealing;

use super::{Embedded, Tuning};
use crate::store::conformance::{self, Bench};
use crate::store::{Access, Options, Store, Verdict};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// A store of which the log is sealed after every few keys.
const TINY: Tuning = Tuning { segment_keys: 8, slice_keys: 3, restart_frames: super::RESTART_FRAMES };

/// How often files are copied that change meanwhile.
const COPIES_MAX: usize = 100;
const LOG_HEADER_BYTES: u64 = 32;

fn open(file: &Path, access: Access, tuning: Tuning) -> Arc<Embedded> {
    Arc::new(Embedded::open(Some(file), &Options::default(), access, tuning).unwrap())
}

fn gateway(file: &Path) -> Arc<Embedded> {
    open(file, Access::Gateway, Tuning::default())
}

fn bench(store: &Arc<Embedded>) -> Bench {
    Bench::new(Arc::clone(store) as Arc<dyn Store>)
}

/// Copies what a crash at this moment would leave behind.
fn copy_files(from: &Path, to: &Path) {
    for _ in 0..COPIES_MAX {
        let log = log_header(from);
        // The file first: what is copied into it later is in the log still.
        for suffix in ["", "-wal"] {
            if let Err(error) = std::fs::copy(super::beside(from, suffix), super::beside(to, suffix)) {
                assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
            }
        }
        // Unless the log was begun anew meanwhile: no crash leaves such a file beside such a log.
        if log_header(from) == log {
            return;
        }
    }
    panic!("the log is begun anew faster than it is copied");
}

/// The header of the log, which is another whenever the log is begun anew.
fn log_header(file: &Path) -> Vec<u8> {
    let mut header = Vec::new();
    match std::fs::File::open(super::beside(file, "-wal")) {
        Ok(log) => {
            log.take(LOG_HEADER_BYTES).read_to_end(&mut header).unwrap();
        }
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
    }
    header
}

/// Whether every one of these keys is known, and nothing is wrong with the store.
async fn knows(bench: &Bench, names: &[String]) {
    assert_eq!(bench.store.audit().await.unwrap(), Vec::<String>::new());
    let batch = names.iter().map(|name| bench.event(name, conformance::START)).collect();
    for (name, verdict) in names.iter().zip(bench.accept(batch, conformance::START).await) {
        assert!(matches!(verdict, Verdict::Duplicate { .. }), "{name}: {verdict:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_an_entity_keep_their_order_while_workers_race() {
    let store = crate::store::open("sqlite::memory:", &Options::default(), Access::Gateway, "".as_ref()).unwrap();
    conformance::race::run([Arc::clone(&store), store]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_near_events_one_has_its_place_first() {
    let store = crate::store::open("sqlite::memory:", &Options::default(), Access::Gateway, "".as_ref()).unwrap();
    conformance::place_race::run([Arc::clone(&store), store], conformance::START).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_are_known_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("geonce.db");
    // Dropped, not closed: the process may as well have been killed.
    let reopen = async || gateway(&file) as Arc<dyn Store>;
    conformance::place_race::are_known_to(gateway(&file), reopen, conformance::START).await;
}

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
        let tuning = Tuning { segment_keys: 2, slice_keys: 1, ..TINY };
        let store = Embedded::open(None, &options, Access::Gateway, tuning).unwrap();
        Arc::new(store) as Arc<dyn Store>
    })
    .await;
}
