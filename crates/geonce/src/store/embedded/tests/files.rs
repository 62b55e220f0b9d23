//! Restarts, crashes, locks, versions, tools beside a gateway, and the size of the log.

use super::{TINY, bench, copy_files, gateway, knows, open};
use crate::error::Kind;
use crate::event::{Class, State};
use crate::store::conformance::{APPLIED, START, at, cause};
use crate::store::embedded::schema::{BACK_TO_THE_FIRST, SCHEMA_VERSION};
use crate::store::embedded::{Embedded, Tuning, beside, is_held};
use crate::store::{Access, End, Filter, Options, Settled, Store, Verdict};
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

#[tokio::test]
async fn a_restart_keeps_everything() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("geonce.db");
    let store = gateway(&file);
    let first = bench(&store);
    let ids = first.fill(&["done", "dead", "leased", "ready"], START).await;
    let leased = first.lease("map", 3, START).await;
    assert_eq!(first.settle(&leased[0].lease, APPLIED, at(1)).await, Settled::Ok);
    assert_eq!(first.settle(&leased[1].lease, End::Dead(cause(Class::Schema)), at(1)).await, Settled::Ok);
    let before = format!("{:?}", first.list(Filter::default()).await);
    let status = store.status().await.unwrap();
    drop((first, store));
    // Dropped, not closed: the process may as well have been killed.
    let store = gateway(&file);
    let second = bench(&store);
    let after = second.list(Filter::default()).await;
    let lapsed = after.iter().find(|record| record.id == ids[2]).unwrap();
    assert_eq!(lapsed.work[0].due.millis(), 0, "its worker is gone");
    let still_due = format!("due: {:?}", leased[2].received.plus(std::time::Duration::from_mins(1)));
    let lapsed_due = format!("due: {:?}", lapsed.work[0].due);
    assert_eq!(format!("{after:?}"), before.replacen(&still_due, &lapsed_due, 1));
    assert_eq!(store.status().await.unwrap().ledgers, status.ledgers);
    knows(&second, &["done", "dead", "leased", "ready"].map(String::from)).await;
    let again = second.lease("map", 10, at(2)).await;
    assert_eq!((again.len(), again[0].lease.event, again[0].lapses), (1, ids[2], 1));
    assert!(again[0].lease.token > leased[2].lease.token);
    assert_eq!(second.settle(&leased[2].lease, APPLIED, at(3)).await, Settled::LeaseLost);
    store.close().await.unwrap();
    assert!(!beside(&file, "-wal").exists(), "closing leaves one file");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_before_a_crash_is_there_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("geonce.db");
    let store = open(&file, Access::Gateway, TINY);
    let (acked, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (bench, acked, stop) = (bench(&store), Arc::clone(&acked), Arc::clone(&stop));
            tokio::spawn(async move {
                for number in 0.. {
                    let name = format!("{writer}-{number}");
                    bench.store.accept(vec![bench.event(&name, START)], START).await.unwrap();
                    acked.lock().unwrap().push(name);
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            })
        })
        .collect();
    for crash in 0..8 {
        while acked.lock().unwrap().len() < (crash + 1) * 20 {
            tokio::task::yield_now().await;
        }
        let known = acked.lock().unwrap().clone();
        let copy = folder.path().join(format!("crash-{crash}.db"));
        copy_files(&file, &copy);
        let store = open(&copy, Access::Gateway, TINY);
        knows(&bench(&store), &known).await;
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
}

#[tokio::test]
async fn files_of_newer_releases_and_of_others_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let kind = |file: &std::path::Path| {
        let error = Embedded::open(Some(file), &Options::default(), Access::Gateway, Tuning::default()).err().unwrap();
        (error.kind(), error.to_string())
    };
    let newer = folder.path().join("newer.db");
    gateway(&newer).close().await.unwrap();
    let connection = rusqlite::Connection::open(&newer).unwrap();
    connection.pragma_update(None, "user_version", SCHEMA_VERSION + 1).unwrap();
    drop(connection);
    let (newer_kind, message) = kind(&newer);
    assert_eq!(newer_kind, Kind::Incompatible);
    assert!(message.contains(&format!("schema {}", SCHEMA_VERSION + 1)), "{message}");
    let foreign = folder.path().join("foreign.db");
    rusqlite::Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE parcel(id)").unwrap();
    assert_eq!(kind(&foreign).0, Kind::Incompatible);
    let garbage = folder.path().join("garbage.db");
    std::fs::write(&garbage, "this is no database, it only looks long enough to be one ".repeat(40)).unwrap();
    assert_eq!(kind(&garbage).0, Kind::Corrupt);
    assert_eq!(kind(&folder.path().join("missing/geonce.db")).0, Kind::Unavailable);
}

#[tokio::test]
async fn a_second_gateway_is_refused_while_the_first_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("geonce.db");
    assert!(!is_held(&file), "there is nothing to hold");
    let store = gateway(&file);
    assert!(is_held(&file));
    let second = Embedded::open(Some(&file), &Options::default(), Access::Gateway, Tuning::default()).err().unwrap();
    assert_eq!(second.kind(), Kind::Unavailable);
    assert!(second.to_string().contains("another gateway"), "{second}");
    assert!(second.hint_text().is_some());
    store.close().await.unwrap();
    assert!(!is_held(&file));
    drop(gateway(&file));
}

#[tokio::test]
async fn a_tool_works_beside_a_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("geonce.db");
    assert!(Embedded::open(Some(&file), &Options::default(), Access::Tool, Tuning::default()).is_err());
    let store = open(&file, Access::Gateway, TINY);
    let gateway = bench(&store);
    let names: Vec<String> = (0..40).map(|number| format!("n{number}")).collect();
    let ids = gateway.fill(&names.iter().map(String::as_str).collect::<Vec<_>>(), START).await;
    let leased = gateway.lease("map", 3, START).await;
    for leased in &leased[..2] {
        gateway.settle(&leased.lease, End::Dead(cause(Class::Schema)), at(1)).await;
    }
    let tool_store = open(&file, Access::Tool, TINY);
    let tool = bench(&tool_store);
    assert_eq!(tool.record(ids[2]).await.work[0].due, at(60), "the gateway's leases stand");
    let refused = tool_store.accept(vec![tool.event("new", at(2))], at(2)).await.err().unwrap();
    assert_eq!(refused.kind(), Kind::Invalid);
    assert_eq!(tool_store.audit().await.unwrap(), Vec::<String>::new());
    assert_eq!(tool.replay(Filter { id: Some(ids[0]), ..Filter::default() }, at(2)).await, 1);
    assert_eq!(tool.purge(Filter { state: Some(State::Dead), ..Filter::default() }, at(2)).await, 1);
    // The gateway holds nothing in memory that the tool has changed.
    assert_eq!(gateway.accept_one(gateway.event("n1", at(3)), at(3)).await, Verdict::Accepted);
    assert!(matches!(gateway.accept_one(gateway.event("n0", at(3)), at(3)).await, Verdict::Duplicate { .. }));
    assert_eq!(tool.settle(&leased[2].lease, APPLIED, at(3)).await, Settled::Ok);
    assert_eq!(gateway.settle(&leased[2].lease, APPLIED, at(3)).await, Settled::LeaseLost);
    assert_eq!(gateway.sweep(100, at(3)).await.forgotten, 0);
    tool_store.close().await.unwrap();
    knows(&gateway, &names).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_starts_again_and_again_under_constant_load() {
    const EVENT_BYTES: usize = 32 << 10;
    const RESTARTS: u32 = 3;
    const BYTES_MAX: usize = 4 << 30;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("geonce.db");
    let store = open(&file, Access::Gateway, Tuning { restart_frames: 256, ..Tuning::default() });
    let (written, enough) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (bench, written, enough) = (bench(&store), Arc::clone(&written), Arc::clone(&enough));
            tokio::spawn(async move {
                while !enough.load(Ordering::Relaxed) {
                    let mut event = bench.event("", START);
                    event.key = crate::store::conformance::key(&format!("{writer}{}", event.id));
                    event.payload = Bytes::from(vec![7; EVENT_BYTES]);
                    bench.store.accept(vec![event], START).await.unwrap();
                    written.fetch_add(EVENT_BYTES, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let log = beside(&file, "-wal");
    while log_restarts(&log) < RESTARTS {
        let written = written.load(Ordering::Relaxed);
        assert!(written < BYTES_MAX, "the log has not started again {RESTARTS} times after {written} bytes");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    enough.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
}

/// How often a write-ahead log has started from its beginning: a number in its head.
fn log_restarts(log: &std::path::Path) -> u32 {
    let mut head = [0; 16];
    let read = std::fs::File::open(log).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut head));
    read.map_or(0, |()| u32::from_be_bytes([head[12], head[13], head[14], head[15]]))
}

#[tokio::test]
async fn an_older_store_is_brought_up_to_date_by_a_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("geonce.db");
    let store = gateway(&file);
    let ids = bench(&store).fill(&["a", "b"], START).await;
    store.close().await.unwrap();
    drop(store);
    // As the first schema was.
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection.execute_batch(BACK_TO_THE_FIRST).unwrap();
    drop(connection);
    let tool = Embedded::open(Some(&file), &Options::default(), Access::Tool, Tuning::default()).err().unwrap();
    assert_eq!(tool.kind(), Kind::Incompatible);
    assert!(tool.hint_text().is_some(), "{tool}");
    let store = gateway(&file);
    let bench = bench(&store);
    let leased = bench.lease("map", 10, at(1)).await;
    assert_eq!(leased.iter().map(|leased| leased.lease.event).collect::<Vec<_>>(), ids);
    let mut event = bench.event("c", at(1));
    event.order = Some(crate::store::conformance::order("e", 1));
    bench.accept(vec![event], at(1)).await;
    assert_eq!(store.audit().await.unwrap(), Vec::<String>::new());
}
