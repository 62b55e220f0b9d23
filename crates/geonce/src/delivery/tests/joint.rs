//! Store and sink in one database: rows and settlements are committed together, whatever breaks; elsewhere, one after the
//! other, as ever.

use super::{LOOKS_MAX, Serving, at_once, watch};
use crate::clock::{Clock, SystemClock};
use crate::delivery::{Delivery, Destination, LEASE, Unobserved, decode::Decoder, run};
use crate::event::Outcome;
use crate::intake::{Arrival, Intake, Source};
use crate::sink::{self, Mode, Settling, Sink, Written};
use crate::store::conformance::law;
use crate::store::spill::Journal;
use crate::store::{self, Access, End, LeaseRequest, Ledger, Options, Store};
use geonce_key::policy::Field;
use geonce_key::split::Format;
use geonce_key::{Pointer, Policy};
use geonce_services::{Fault, Pgbouncer, Postgres, Proxy};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Notes which transaction wrote a row, and which one settled its event. The first finds its table where its owner left it:
/// in the search path of the sink.
const NOTES: &str = "
    CREATE TABLE note (what text, event uuid, xact xid8);
    CREATE FUNCTION note_row() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN INSERT INTO note VALUES ('row', NEW.event, pg_current_xact_id()); RETURN NULL; END $$;
    CREATE FUNCTION note_done() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN INSERT INTO public.note VALUES ('done', NEW.id, pg_current_xact_id()); RETURN NULL; END $$;
    CREATE TRIGGER note AFTER INSERT ON geonce_applied FOR EACH ROW EXECUTE FUNCTION note_row();
    CREATE TRIGGER note AFTER UPDATE ON geonce.event FOR EACH ROW WHEN (NEW.state = 1) EXECUTE FUNCTION note_done()";

/// Events whose row and settlement do not agree, at one moment.
const DISAGREEING: &str = "
    SELECT count(*) FROM geonce.event e FULL JOIN geonce_applied a ON a.event = e.id
    WHERE (e.state = 1) IS DISTINCT FROM (a.event IS NOT NULL)";

/// A gateway with its store and its sink.
struct Gateway {
    store: Arc<dyn Store>,
    sink: Arc<dyn Sink>,
    intake: Intake,
    source: Arc<Source>,
    policy: Policy,
    sent: AtomicUsize,
}

impl Gateway {
    async fn new(store: &str, sink: &str, mode: Mode) -> Gateway {
        let url = store.to_owned();
        let open = move || store::open(&url, &Options::default(), Access::Gateway, Path::new(".")).unwrap();
        Gateway::with(tokio::task::spawn_blocking(open).await.unwrap(), sink, mode).await
    }

    async fn with(store: Arc<dyn Store>, sink: &str, mode: Mode) -> Gateway {
        let options = sink::Options { mode, ..sink::Options::default() };
        let sink = sink::open("zones", sink, &options, Path::new(".")).unwrap();
        sink.check().await.unwrap();
        let policy = Policy { version: Some(Pointer::parse("/properties/version").unwrap()), ..Policy::default() };
        let source = Arc::new(Source::new("drones", policy.clone(), &["zones".to_owned()]).unwrap());
        let intake = Intake::new(Arc::clone(&store), Arc::new(SystemClock));
        Gateway { store, sink, intake, source, policy, sent: AtomicUsize::new(0) }
    }

    /// Sends so many events, of a third as many entities.
    async fn send(&self, count: usize) {
        let first = self.sent.fetch_add(count, Ordering::Relaxed);
        let line = |n: usize| {
            format!(
                r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[1,2]}},"properties":{{"name":"e{}","version":{}}}}}"#,
                n / 3,
                n % 3
            )
        };
        let body = (first..first + count).map(line).collect::<Vec<_>>().join("\n").into();
        self.intake.receive(&self.source, Arrival { body, format: Format::Lines, ..Arrival::default() }).await.unwrap();
    }

    fn serve(&self, batch_events_max: usize) -> Serving {
        let entity = Some(vec![Field::required(Pointer::parse("/properties/name").unwrap())]);
        let destination = Destination {
            retry: at_once(),
            entity,
            batch_events_max,
            ..Destination::new("zones", Arc::clone(&self.sink))
        };
        let destination = Arc::new(destination);
        let delivery = Arc::new(Delivery {
            store: Arc::clone(&self.store),
            clock: Arc::new(SystemClock),
            policies: [(Arc::from("drones"), self.policy.clone())].into(),
            near: std::collections::HashMap::new(),
            lateness: HashMap::new(),
            lease: LEASE,
            holder: "test".into(),
            observer: Arc::new(Unobserved),
            pressure: self.intake.pressure(),
        });
        let (stop, stopped) = watch::channel(false);
        let worker = tokio::spawn(run(delivery, Arc::clone(&destination), stopped));
        Serving { destination, stop, worker }
    }

    async fn ledger(&self) -> Ledger {
        let status = self.store.status().await.unwrap();
        law(&status).unwrap();
        status.ledgers["drones"]
    }

    /// Waits until everything that was sent is served.
    async fn served(&self) -> Ledger {
        for _ in 0..LOOKS_MAX {
            let ledger = self.ledger().await;
            if ledger.waiting == 0 {
                return ledger;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("not all are served: {:?}", self.ledger().await);
    }

    async fn whole(&self) {
        assert_eq!(self.store.audit().await.unwrap(), Vec::<String>::new());
    }
}

/// How an address is changed to reach the same database another way.
type Reach<'a> = &'a dyn Fn(&str) -> String;

fn name(url: &str) -> &str {
    url.rsplit('/').next().unwrap()
}

fn through(proxy: &Proxy, url: &str) -> String {
    format!("postgresql://postgres@127.0.0.1:{}/{}", proxy.port(), name(url))
}

/// How many transactions wrote rows, and how many of the events they wrote they also settled, and did not.
fn together(server: &Postgres, database: &str) -> String {
    server.sql(
        database,
        "SELECT count(*) FILTER (WHERE r.xact = d.xact), count(*) FILTER (WHERE r.xact IS DISTINCT FROM d.xact)
         FROM (SELECT * FROM note WHERE what = 'row') r FULL JOIN (SELECT * FROM note WHERE what = 'done') d USING (event)",
    )
}

/// Looks all the time whether rows and settlements agree; how often it looked, when it is told to stop.
async fn look_on(url: String, over: Arc<AtomicBool>) -> usize {
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let mut looks = 0;
    while !over.load(Ordering::Relaxed) {
        let found: i64 = client.query_one(DISAGREEING, &[]).await.unwrap().get(0);
        assert_eq!(found, 0, "a row without its settlement, or the reverse");
        looks += 1;
    }
    looks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_and_its_settlement_are_committed_together_however_the_two_are_reached() {
    let server = Postgres::shared();
    let pooler = Pgbouncer::start(server);
    let proxy = Proxy::start(server.port());
    let (direct, pooled, proxied): (Reach<'_>, Reach<'_>, Reach<'_>) =
        (&str::to_owned, &|url| pooler.url(url), &|url| through(&proxy, url));
    for (number, (store, sink)) in
        [(direct, direct), (pooled, pooled), (direct, pooled), (proxied, direct)].into_iter().enumerate()
    {
        for mode in [Mode::Append, Mode::Upsert { arrival: false }] {
            let url = server.database();
            let gateway = Gateway::new(&store(&url), &sink(&url), mode).await;
            server.sql(name(&url), NOTES);
            gateway.send(60).await;
            let serving = gateway.serve(25);
            let ledger = gateway.served().await;
            serving.end().await;
            assert_eq!((ledger.applied, ledger.dead), (60, 0), "case {number}");
            assert_eq!(together(server, name(&url)), "60|0", "case {number}, {mode:?}");
            gateway.whole().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_before_the_store_changes_nothing_about_it() {
    let server = Postgres::shared();
    let url = server.database();
    let (folder, main) = (tempfile::tempdir().unwrap(), url.clone());
    let open = move || store::open(&main, &Options::default(), Access::Gateway, Path::new("."));
    // Its tables are made before: a journal does not wait for long until the store is open.
    let first = open.clone();
    let made = tokio::task::spawn_blocking(move || first().unwrap()).await.unwrap();
    made.close().await.unwrap();
    let file = folder.path().join("journal.db");
    let journal = Journal { file: &file, bytes_max: 1 << 30, sources: [Arc::from("drones")].into() };
    let store = store::spill::open(Arc::new(open), journal, Arc::new(SystemClock)).unwrap();
    let gateway = Gateway::with(store, &url, Mode::Append).await;
    server.sql(name(&url), NOTES);
    gateway.send(10).await;
    let serving = gateway.serve(100);
    gateway.served().await;
    serving.end().await;
    assert_eq!(together(server, name(&url)), "10|0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_ends_at_any_statement_leaves_no_half() {
    let server = Postgres::shared();
    for mode in [Mode::Append, Mode::Upsert { arrival: false }] {
        let url = server.database();
        let proxy = Proxy::start(server.port());
        let gateway = Gateway::new(&url, &through(&proxy, &url), mode).await;
        let over = Arc::new(AtomicBool::new(false));
        let looking = tokio::spawn(look_on(url.clone(), Arc::clone(&over)));
        let serving = gateway.serve(10);
        let statements: [&'static [u8]; 10] = [
            b"BEGIN",
            b"SAVEPOINT",
            b"INSERT INTO \"public\".geonce_applied",
            b"INSERT INTO \"public\".\"zones\"",
            b"set_config",
            b"FOR UPDATE",
            b"DELETE FROM work",
            b"UPDATE event",
            b"INSERT INTO counter",
            b"COMMIT",
        ];
        for bytes in statements {
            let before = proxy.swallowed();
            // Some are sent twice in a transaction: every other one might always be the same.
            proxy.set(Fault::Swallow { bytes, in_n: 3 });
            while proxy.swallowed() < before + 2 {
                gateway.send(12).await;
                gateway.served().await;
            }
            proxy.set(Fault::None);
            gateway.served().await;
        }
        // The server may end connections too.
        for _ in 0..10 {
            gateway.send(30).await;
            let others = "pid <> pg_backend_pid() AND backend_type = 'client backend'";
            let end = format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}' AND {others} \
                 AND (query LIKE '%geonce_part%' OR query LIKE 'INSERT INTO \"public\"%' OR query LIKE '%FROM work%')",
                name(&url)
            );
            server.sql(name(&url), &end);
            gateway.served().await;
        }
        over.store(true, Ordering::Relaxed);
        assert!(looking.await.unwrap() > 10);
        serving.end().await;
        let (ledger, sent) = (gateway.ledger().await, gateway.sent.load(Ordering::Relaxed) as u64);
        assert_eq!((ledger.applied, ledger.dead, ledger.duplicate), (sent, 0, 0), "{mode:?}");
        let rows = if mode == Mode::Append { sent } else { sent / 3 };
        let counts = "SELECT (SELECT count(*) FROM zones), (SELECT count(*) FROM geonce_applied)";
        assert_eq!(server.sql(name(&url), counts), format!("{rows}|{sent}"));
        gateway.whole().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_of_both_whose_answer_is_lost_take_effect_once() {
    let server = Postgres::shared();
    for mode in [Mode::Append, Mode::Upsert { arrival: false }] {
        let url = server.database();
        let proxy = Proxy::start(server.port());
        let gateway = Gateway::new(&url, &through(&proxy, &url), mode).await;
        server.sql(name(&url), NOTES);
        let serving = gateway.serve(3);
        proxy.set(Fault::Swallow { bytes: b"COMMIT\0", in_n: 2 });
        while proxy.swallowed() < 60 {
            gateway.send(30).await;
            gateway.served().await;
        }
        proxy.set(Fault::None);
        let ledger = gateway.served().await;
        serving.end().await;
        let sent = gateway.sent.load(Ordering::Relaxed) as u64;
        assert_eq!((ledger.applied, ledger.dead), (sent, 0), "{mode:?}");
        let rows = if mode == Mode::Append { sent } else { sent / 3 };
        assert_eq!(
            server.sql(name(&url), "SELECT count(*), count(DISTINCT geonce_key) FROM zones"),
            format!("{rows}|{rows}")
        );
        assert_eq!(together(server, name(&url)), format!("{sent}|0"));
        gateway.whole().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_row_is_dead_and_its_neighbours_are_committed_with_their_settlements() {
    let server = Postgres::shared();
    let url = server.database();
    let gateway = Gateway::new(&url, &url, Mode::Append).await;
    gateway.send(1).await;
    let serving = gateway.serve(100);
    gateway.served().await;
    server.sql(name(&url), "ALTER TABLE zones ADD CHECK (name <> 'e2' OR version <> 1)");
    server.sql(name(&url), NOTES);
    gateway.send(20).await;
    let ledger = gateway.served().await;
    serving.end().await;
    assert_eq!((ledger.applied, ledger.dead), (20, 1));
    assert_eq!(together(server, name(&url)), "19|0");
    gateway.whole().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_lease_among_others_costs_them_nothing() {
    let server = Postgres::shared();
    let url = server.database();
    let gateway = Gateway::new(&url, &url, Mode::Append).await;
    gateway.send(3).await;
    let request = LeaseRequest {
        sink: "zones".into(),
        events_max: 3,
        bytes_max: 1 << 20,
        duration: LEASE,
        event: None,
        holder: "test".into(),
    };
    let leased = gateway.store.lease(request, SystemClock.now()).await.unwrap();
    let lost = leased[1].lease.event.to_bytes().map(|byte| format!("{byte:02x}")).concat();
    server.sql(name(&url), &format!("UPDATE geonce.work SET lease = lease + 1 WHERE event = '{lost}'"));
    let policies = [(Arc::from("drones"), gateway.policy.clone())].into();
    let near = std::collections::HashMap::new();
    let mut decoder = Decoder::new(&policies, &near, None);
    let batch = leased.iter().map(|leased| decoder.decode(leased).unwrap()).collect();
    let end = |_: usize, written: &Written| match written {
        Written::Done(outcome) => Some(End::Done(*outcome, None)),
        _ => None,
    };
    let settling = Settling {
        joint: gateway.store.joint().unwrap(),
        leases: leased.iter().map(|leased| leased.lease.clone()).collect(),
        end: &end,
        now: SystemClock.now(),
    };
    let delivered = gateway.sink.write_and_settle(batch, settling).await.unwrap();
    assert!(delivered.iter().all(|one| one.written == Written::Done(Outcome::Applied)));
    assert_eq!(delivered.iter().map(|one| one.settled).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(server.sql(name(&url), "SELECT count(*) FROM zones"), "3");
    let ledger = gateway.ledger().await;
    assert_eq!((ledger.applied, ledger.waiting), (2, 1));
    // Whoever holds it now finds the proof.
    server.sql(name(&url), "UPDATE geonce.work SET until = 0");
    let serving = gateway.serve(10);
    assert_eq!(gateway.served().await.applied, 3);
    serving.end().await;
    assert_eq!(server.sql(name(&url), "SELECT count(*) FROM zones"), "3");
    gateway.whole().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_elsewhere_is_settled_afterwards() {
    let (server, other) = (Postgres::shared(), Postgres::start(&[]));
    let url = server.database();
    server.sql("postgres", "CREATE ROLE surveyor LOGIN SUPERUSER");
    let as_another = url.replace("postgres@", "surveyor@");
    // Another database, another server with a database of the same name, and another user.
    let same_name = other.url(name(&url));
    other.sql("postgres", &format!("CREATE DATABASE {} TEMPLATE geonce_template", name(&url)));
    for (number, sink) in [server.database(), same_name, as_another].into_iter().enumerate() {
        let gateway = Gateway::new(&format!("{url}?schema=store_{number}"), &sink, Mode::Append).await;
        gateway.send(50).await;
        let serving = gateway.serve(20);
        let ledger = gateway.served().await;
        serving.end().await;
        assert_eq!((ledger.applied, ledger.dead), (50, 0), "case {number}");
        let at = if number == 1 { &other } else { server };
        assert_eq!(at.sql(name(&sink), "SELECT count(*) FROM zones"), "50", "case {number}");
        gateway.whole().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_cannot_be_settled_there_any_more_is_settled_afterwards() {
    let server = Postgres::shared();
    let url = server.database();
    let gateway = Gateway::new(&url, &url, Mode::Append).await;
    gateway.send(5).await;
    let serving = gateway.serve(20);
    gateway.served().await;
    // The sink's connections come to lead to a copy of the database, which has no such leases.
    serving.end().await;
    server.sql(
        name(&url),
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           IF EXISTS (SELECT FROM pg_settings WHERE name = 'application_name' AND setting = 'sink') THEN RAISE 'no'; END IF;
           RETURN NULL; END $$;
         CREATE TRIGGER refuse AFTER UPDATE ON geonce.event FOR EACH STATEMENT EXECUTE FUNCTION refuse()",
    );
    let gateway = Gateway::new(&url, &format!("{url}?application_name=sink"), Mode::Append).await;
    gateway.sent.store(5, Ordering::Relaxed);
    gateway.send(5).await;
    let serving = gateway.serve(20);
    let ledger = gateway.served().await;
    serving.end().await;
    assert_eq!((ledger.applied, ledger.dead), (10, 0));
    assert_eq!(server.sql(name(&url), "SELECT count(*) FROM zones"), "10");
    gateway.whole().await;
}
