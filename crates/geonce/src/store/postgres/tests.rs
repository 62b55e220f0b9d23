//! What only the `PostgreSQL` store promises: opening, several gateways, lost answers, crashes, other clocks.

mod faults;
mod races;
mod times;
mod twin;

pub(crate) use self::twin::answer_alike;

use super::{Postgres, Time};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::error::Kind;
use crate::event::State;
use crate::store::conformance::{self, Bench, at};
use crate::store::{Access, Options, Store};
use geonce_services::{Pgbouncer, Postgres as Server};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A store in which the given time counts.
fn given(url: &str, options: &Options) -> Arc<dyn Store> {
    Arc::new(Postgres::open(url, options, Access::Gateway, Time::Given).unwrap())
}

/// A store as gateways open it.
fn gateway(url: &str) -> Arc<dyn Store> {
    crate::store::open(url, &Options::default(), Access::Gateway, "".as_ref()).unwrap()
}

fn bench(store: &Arc<dyn Store>) -> Bench {
    Bench::new(Arc::clone(store))
}

/// The name of the database in an address.
fn name(url: &str) -> &str {
    url.rsplit('/').next().unwrap()
}

fn now() -> Timestamp {
    SystemClock.now()
}

async fn no_problems(store: &Arc<dyn Store>) {
    assert_eq!(store.audit().await.unwrap(), Vec::<String>::new());
    assert_eq!(conformance::law(&store.status().await.unwrap()), Ok(()));
}

async fn conforms(url: &str) {
    let schemas = AtomicU32::new(0);
    conformance::run(async |options: Options| {
        let schema = schemas.fetch_add(1, Ordering::Relaxed);
        given(&format!("{url}?schema=conformance_{schema}"), &options)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_passes_the_conformance_suite() {
    conforms(&Server::shared().database()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_passes_the_conformance_suite_through_pgbouncer() {
    let server = Server::shared();
    let pooler = Pgbouncer::start(server);
    conforms(&pooler.url(&server.database())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_gateways_may_make_the_tables_at_once() {
    let server = Server::shared();
    let url = server.database();
    let mut opening = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let url = url.clone();
        opening.spawn_blocking(move || gateway(&url));
    }
    let stores = opening.join_all().await;
    assert_eq!(server.sql(name(&url), "SELECT value FROM geonce.meta WHERE name = 'schema_version'"), "6");
    let ids = bench(&stores[0]).fill(&["a"], now()).await;
    for store in &stores {
        assert_eq!(bench(store).record(ids[0]).await.id, ids[0]);
        no_problems(store).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_the_release_before_are_brought_up_to_date() {
    let server = Server::shared();
    let url = server.database();
    let store = gateway(&url);
    let ids = bench(&store).fill(&["a", "b"], now()).await;
    bench(&store).settle(&bench(&store).lease("map", 1, now()).await[0].lease, conformance::APPLIED, now()).await;
    let back = "ALTER TABLE geonce.event DROP COLUMN result; \
                ALTER TABLE geonce.work DROP COLUMN after, DROP COLUMN entity, DROP COLUMN rank; \
                UPDATE geonce.meta SET value = '1' WHERE name = 'schema_version'";
    server.sql(name(&url), BACK_TO_THE_THIRD);
    server.sql(name(&url), back);
    let tool = crate::store::open(&url, &Options::default(), Access::Tool, "".as_ref()).err().unwrap();
    assert_eq!(tool.kind(), Kind::Incompatible);
    assert!(tool.hint_text().unwrap().contains("gateway"), "{tool}");
    let mut opening = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let url = url.clone();
        opening.spawn_blocking(move || gateway(&url));
    }
    for store in opening.join_all().await {
        assert_eq!(bench(&store).record(ids[0]).await.result, None);
        no_problems(&store).await;
    }
    // The gateway that was there all the time goes on.
    bench(&store).settle_all("map", conformance::APPLIED, now()).await;
    no_problems(&store).await;
}

/// Makes tables in which a lease moves `due` to its end.
const BACK_TO_THE_THIRD: &str = "UPDATE geonce.work SET due = until WHERE lease IS NOT NULL; \
    ALTER TABLE geonce.event DROP COLUMN origin; \
    ALTER TABLE geonce.work DROP COLUMN until, DROP COLUMN holder; \
    ALTER TABLE geonce.work RENAME COLUMN lease TO token; \
    CREATE INDEX work_leased ON geonce.work (event) WHERE token IS NOT NULL; \
    UPDATE geonce.meta SET value = '3' WHERE name = 'schema_version'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_of_the_release_before_are_kept_and_its_gateways_take_none() {
    let server = Server::shared();
    let url = server.database();
    let options = Options::default();
    let store = given(&url, &options);
    let ids = bench(&store).fill(&["a", "b"], at(1)).await;
    let held = bench(&store).lease("map", 1, at(2)).await.remove(0);
    store.close().await.unwrap();
    server.sql(name(&url), BACK_TO_THE_THIRD);
    let store = given(&url, &options);
    let work = bench(&store).record(ids[0]).await.work.remove(0);
    assert_eq!((work.state, work.due, work.holder), (State::Leased, at(62), None));
    assert_eq!(store.status().await.unwrap().states[&State::Leased], 1);
    let others = bench(&store).lease("map", 9, at(3)).await;
    assert_eq!(others.iter().map(|leased| leased.lease.event).collect::<Vec<_>>(), ids[1..], "the other is leased");
    let known = "SELECT count(*) FROM information_schema.columns \
                 WHERE table_schema = 'geonce' AND table_name = 'work' AND column_name = 'token'";
    assert_eq!(server.sql(name(&url), known), "0", "an earlier gateway would lease what is leased");
    assert_eq!(bench(&store).settle(&held.lease, conformance::APPLIED, at(4)).await, crate::store::Settled::Ok);
    no_problems(&store).await;
}

#[test]
fn what_is_no_store_of_this_release_is_refused() {
    let server = Server::shared();
    let url = server.database();
    let refused = |url: &str, access| {
        let error = crate::store::open(url, &Options::default(), access, "".as_ref()).err().unwrap();
        assert!(error.hint_text().is_some(), "{error}");
        (error.kind(), error.to_string())
    };
    let (kind, text) = refused(&url, Access::Tool);
    assert_eq!(kind, Kind::Missing, "a tool makes no tables: {text}");
    assert!(text.contains("there is none"), "{text}");
    let (kind, text) = refused(&format!("{url}?schema=public"), Access::Gateway);
    assert_eq!(kind, Kind::Incompatible, "others have tables there: {text}");
    drop(gateway(&url));
    drop(crate::store::open(&url, &Options::default(), Access::Tool, "".as_ref()).unwrap());
    server.sql(name(&url), "UPDATE geonce.meta SET value = '99' WHERE name = 'schema_version'");
    for access in [Access::Gateway, Access::Tool] {
        let (kind, text) = refused(&url, access);
        assert_eq!(kind, Kind::Incompatible);
        assert!(text.contains("99"), "{text}");
    }
    assert_eq!(refused("postgresql://nobody@127.0.0.1:1/nothing", Access::Gateway).0, Kind::Unavailable);
}

#[test]
fn a_server_that_may_lose_what_it_committed_is_refused() {
    let server = Server::start(&["fsync=off", "full_page_writes=off"]);
    let url = server.database();
    let open = |options: &Options| crate::store::open(&url, options, Access::Gateway, "".as_ref());
    let error = open(&Options::default()).err().unwrap();
    assert_eq!(error.kind(), Kind::Invalid);
    for setting in ["fsync", "full_page_writes"] {
        assert!(error.to_string().contains(setting), "{error}");
    }
    assert!(error.hint_text().unwrap().contains("accept_loss"));
    assert!(open(&Options { accept_loss: true, ..Options::default() }).is_ok());
    let shared = Server::shared();
    let url = shared.database();
    shared.sql("postgres", &format!("ALTER DATABASE {} SET synchronous_commit = off", name(&url)));
    let error = crate::store::open(&url, &Options::default(), Access::Gateway, "".as_ref()).err().unwrap();
    assert!(error.to_string().contains("synchronous_commit"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_may_be_opened_used_and_dropped_anywhere() {
    let url = Server::shared().database();
    let store = tokio::task::spawn_blocking({
        let url = url.clone();
        move || gateway(&url)
    });
    let store = store.await.unwrap();
    let other = std::thread::spawn({
        let store = Arc::clone(&store);
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async { bench(&store).fill(&["a"], now()).await })
        }
    });
    let ids = other.join().unwrap();
    assert_eq!(bench(&store).record(ids[0]).await.id, ids[0]);
    drop(store);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_changes_no_index() {
    let server = Server::shared();
    let url = server.database();
    let store = gateway(&url);
    let entries = "SELECT string_agg(indexdef, ';') FROM pg_indexes WHERE schemaname = 'geonce' AND tablename = 'work'";
    let indexes = server.sql(name(&url), entries);
    assert!(indexes.contains("work_queue"), "{indexes}");
    for column in ["lease", "until", "holder", "lapses"] {
        assert!(!indexes.contains(column), "{column} in {indexes}");
    }
    bench(&store).fill(&["a"], now()).await;
    let due = "SELECT due FROM geonce.work";
    let before = server.sql(name(&url), due);
    assert_eq!(bench(&store).lease("map", 1, now()).await.len(), 1);
    assert_eq!(server.sql(name(&url), due), before, "it keeps its place in the queue");
}
