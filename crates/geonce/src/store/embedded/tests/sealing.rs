//! Keys on their way from the log into segments, and out of them.

use super::{TINY, bench, copy_files, knows, open};
use crate::event::Class;
use crate::store::conformance::{APPLIED, START, at, cause, key};
use crate::store::embedded::{Embedded, Tuning};
use crate::store::{Access, End, Options, Store, Verdict};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn count(file: &Path, query: &str) -> i64 {
    let connection = rusqlite::Connection::open(file).unwrap();
    connection.query_row(query, [], |row| row.get(0)).unwrap()
}

const LOG: &str = "SELECT count(*) FROM claim";
const SEALED: &str = "SELECT count(*) FROM sealed";
const SEGMENTS: &str = "SELECT count(*) FROM segment";

/// Crashes at moments of which some are in the middle of sealing: more where the sealer is quick.
const CRASHES_MIN: usize = 60;
const CRASHES_MAX: usize = 600;

#[tokio::test]
async fn keys_are_known_at_every_step_of_sealing_and_after_a_crash_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("geonce.db");
    let store = open(&file, Access::Gateway, TINY);
    let first = bench(&store);
    let mut names = Vec::new();
    let mut part_sealed = 0;
    for number in 0..CRASHES_MAX {
        if number >= CRASHES_MIN && part_sealed > 3 {
            break;
        }
        let mut event = first.event(&format!("n{number}"), START);
        event.aliases = vec![key(&format!("alias{number}"))];
        event.content = [0; 32];
        assert_eq!(first.accept_one(event, START).await, Verdict::Accepted);
        names.extend([format!("n{number}"), format!("alias{number}")]);
        let copy = folder.path().join(format!("{number}.db"));
        copy_files(&file, &copy);
        part_sealed += count(&copy, "SELECT count(*) FROM segment WHERE ready = 0");
        let crashed = open(&copy, Access::Gateway, TINY);
        knows(&bench(&crashed), &names).await;
        knows(&first, &names).await;
    }
    assert!(part_sealed > 3, "crashed in the middle of sealing only {part_sealed} times");
    drop((first, store));
    let store = open(&file, Access::Gateway, TINY);
    knows(&bench(&store), &names).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_gateway_goes_on_sealing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("geonce.db");
    let store = open(&file, Access::Gateway, TINY);
    let bench = bench(&store);
    let names: Vec<String> = (0..50).map(|number| format!("n{number}")).collect();
    bench.fill(&names.iter().map(String::as_str).collect::<Vec<_>>(), START).await;
    let idle = async {
        while count(&file, LOG) > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), idle).await.unwrap();
    assert_eq!((count(&file, SEALED), count(&file, SEGMENTS)), (50, 1));
    knows(&bench, &names).await;
}

#[tokio::test]
async fn old_segments_go_and_keys_that_still_count_stay() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("geonce.db");
    let window = Duration::from_secs(100);
    let options = Options { window, dead_retention: 100 * window, ..Options::default() };
    let store = Arc::new(Embedded::open(Some(&file), &options, Access::Gateway, TINY).unwrap());
    let bench = bench(&store);
    let names: Vec<String> = (0..50).map(|number| format!("n{number}")).collect();
    bench.fill(&names.iter().map(String::as_str).collect::<Vec<_>>(), START).await;
    let dead = bench.lease("map", 5, START).await;
    for leased in &dead {
        bench.settle(&leased.lease, End::Dead(cause(Class::Schema)), START).await;
    }
    bench.settle_all("map", APPLIED, START).await;
    while count(&file, LOG) > 0 {
        bench.store.count(Vec::new());
        tokio::task::yield_now().await;
    }
    let mut forgotten = 0;
    loop {
        let swept = bench.sweep(10, at(200)).await;
        forgotten += swept.forgotten;
        if !swept.more {
            break;
        }
    }
    assert_eq!((forgotten, count(&file, SEALED), count(&file, SEGMENTS)), (45, 0, 0));
    assert_eq!(count(&file, LOG), 5, "the claims of the dead are in the log again");
    knows(&bench, &names[..5]).await;
    let again = bench.accept_one(bench.event("n7", at(200)), at(200)).await;
    assert_eq!(again, Verdict::Accepted);
    assert_eq!(store.audit().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_damaged_filter_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("geonce.db");
    let tuning = Tuning { slice_keys: 1_000, ..TINY };
    let store = open(&file, Access::Gateway, tuning);
    let names: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
    for name in &names {
        bench(&store).fill(&[name], START).await;
    }
    // Keys are sorted in the background, however long that takes.
    let sealed = async {
        while count(&file, "SELECT count(*) FROM segment WHERE ready = 1") == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), sealed).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let connection = rusqlite::Connection::open(&file).unwrap();
    let damaged =
        connection.execute("UPDATE segment SET filter = zeroblob(length(filter)) WHERE ready = 1", []).unwrap();
    assert!(damaged > 0);
    drop(connection);
    knows(&bench(&open(&file, Access::Gateway, tuning)), &names).await;
}
