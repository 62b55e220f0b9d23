//! Several processes on one embedded store, some of which are killed; a gateway beside runners; a store of before.

use super::{Backend, Begun, LONG, key, ledger, open, result, sound, started, task, text};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Kind};
use crate::event::State;
use crate::store::BACK_TO_THE_FIRST;
use crate::store::conformance::{APPLIED, Bench};
use crate::store::{Access, Options, Settled, Verdict};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Where a child of a test finds the store; without it, it has nothing to do.
const FOLDER: &str = "GEONCE_TEST_RUNS";
/// Children of one test.
const CHILDREN: usize = 4;
/// Runs that each child tries.
const RUNS_TRIED: usize = 40;

fn child(test: &str, folder: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("ledger::tests::processes::{test}"), "--nocapture"]);
    command.env(FOLDER, folder).stdout(Stdio::null()).spawn().unwrap()
}

#[tokio::test]
async fn as_a_child_begins_a_run_and_hangs() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let store = open("sqlite:runs.db", Access::Runner, folder.as_ref());
    let ledger = ledger(&store).with_lease(Duration::from_secs(2));
    let _run = started(ledger.begin(&task("a")).await.unwrap());
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn as_a_child_runs_what_others_have_not() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let store = open("sqlite:runs.db", Access::Runner, folder.as_ref());
    for number in 0..RUNS_TRIED {
        let ledger = ledger(&store);
        match ledger.wait(&task(&number.to_string()), LONG).await.unwrap() {
            Begun::Started(run) => {
                // Each run leaves a file, which must not be there.
                let file = Path::new(&folder).join(format!("run-{number}"));
                std::fs::File::create_new(file).unwrap();
                assert_eq!(run.done(text(&number.to_string())).await.unwrap(), Settled::Ok);
            }
            begun => assert_eq!(result(begun).as_deref(), Some(&*number.to_string())),
        }
    }
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_is_taken_over() {
    let backend = Backend::embedded();
    let mut doomed = child("as_a_child_begins_a_run_and_hangs", backend.folder.path());
    let store = backend.runner().await;
    let ledger = ledger(&store);
    while ledger.find(&key("a")).await.unwrap().is_none_or(|record| record.state != State::Leased) {
        assert!(doomed.try_wait().unwrap().is_none(), "it ended by itself");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    doomed.kill().unwrap();
    doomed.wait().unwrap();
    let run = started(ledger.wait(&task("a"), LONG).await.unwrap());
    assert_eq!(run.lapses(), 1);
    assert_eq!(run.done(None).await.unwrap(), Settled::Ok);
    sound(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_processes_make_a_store_and_run_everything_once() {
    let backend = Backend::embedded();
    let children: Vec<Child> =
        (0..CHILDREN).map(|_| child("as_a_child_runs_what_others_have_not", backend.folder.path())).collect();
    for mut child in children {
        let code = tokio::task::spawn_blocking(move || child.wait()).await.unwrap().unwrap();
        assert!(code.success(), "{code}");
    }
    let store = backend.runner().await;
    let books = store.status().await.unwrap().ledgers["@nightly"];
    assert_eq!((books.applied, books.waiting, books.dead), (RUNS_TRIED as u64, 0, 0));
    sound(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runners_work_beside_a_gateway_and_leave_events_to_it() {
    let backend = Backend::embedded();
    let gateway = backend.open(Access::Gateway).await;
    let runner = backend.runner().await;
    let now = SystemClock.now();
    let refused = runner.accept(vec![Bench::new(Arc::clone(&gateway)).event("a", now)], now).await.err().unwrap();
    assert_eq!(refused.kind(), Kind::Invalid);
    let bench = Bench::new(Arc::clone(&gateway));
    let accepting = tokio::spawn(async move {
        for number in 0..200 {
            let verdicts = bench.store.accept(vec![bench.event(&number.to_string(), now)], now).await.unwrap();
            assert_eq!(verdicts, [Verdict::Accepted]);
        }
    });
    for number in 0..50 {
        let (mine, other) = if number % 2 == 0 { (&runner, &gateway) } else { (&gateway, &runner) };
        let run = started(ledger(mine).begin(&task(&number.to_string())).await.unwrap());
        assert!(matches!(ledger(other).begin(&task(&number.to_string())).await.unwrap(), Begun::Running { .. }));
        assert_eq!(run.done(text("done")).await.unwrap(), Settled::Ok);
        assert_eq!(result(ledger(other).begin(&task(&number.to_string())).await.unwrap()).as_deref(), Some("done"));
    }
    accepting.await.unwrap();
    let bench = Bench::new(Arc::clone(&gateway));
    assert_eq!(bench.lease("map", 300, now).await.len(), 200);
    sound(&gateway).await;
    // A gateway that starts while a runner is at work leaves its lease alone, but not those of its own workers.
    let run = started(ledger(&runner).begin(&task("held")).await.unwrap());
    gateway.close().await.unwrap();
    drop((bench, gateway));
    let gateway = backend.open(Access::Gateway).await;
    assert!(matches!(ledger(&gateway).begin(&task("held")).await.unwrap(), Begun::Running { .. }));
    assert_eq!(Bench::new(Arc::clone(&gateway)).lease("map", 300, now).await.len(), 32, "those had lapsed");
    assert_eq!(run.done(None).await.unwrap(), Settled::Ok);
    runner.close().await.unwrap();
    sound(&gateway).await;
}

/// What the first schema had: neither results nor runs.
fn downgrade(file: &Path) {
    rusqlite::Connection::open(file).unwrap().execute_batch(BACK_TO_THE_FIRST).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_the_release_before_is_upgraded_when_no_gateway_uses_it() {
    let backend = Backend::embedded();
    let folder = backend.folder.path();
    let (now, waiting) = (SystemClock.now(), 500);
    let gateway = backend.open(Access::Gateway).await;
    let bench = Bench::new(Arc::clone(&gateway));
    let names: Vec<String> = (0..waiting).map(|number| number.to_string()).collect();
    bench.fill(&names.iter().map(String::as_str).collect::<Vec<_>>(), now).await;
    bench.settle(&bench.lease("map", 1, now).await[0].lease, APPLIED, now).await;
    gateway.close().await.unwrap();
    drop((bench, gateway));
    downgrade(&folder.join("runs.db"));
    let refused = |access| -> Error {
        let opened = crate::store::open("sqlite:runs.db", &Options::default(), access, folder);
        opened.err().unwrap()
    };
    let tool = refused(Access::Tool);
    assert_eq!(tool.kind(), Kind::Incompatible);
    assert!(tool.to_string().contains("schema 1") && tool.hint_text().unwrap().contains("gateway"), "{tool}");
    // A gateway of that release is running: it has the lock.
    let lock = std::fs::File::options().create(true).append(true).open(folder.join("runs.db.lock")).unwrap();
    lock.lock().unwrap();
    assert_eq!(refused(Access::Gateway).kind(), Kind::Unavailable);
    assert_eq!(tokio::task::block_in_place(|| refused(Access::Runner)).kind(), Kind::Unavailable);
    drop(lock);
    let store = backend.runner().await;
    sound(&store).await;
    assert_eq!(started(ledger(&store).begin(&task("a")).await.unwrap()).done(text("{}")).await.unwrap(), Settled::Ok);
    store.close().await.unwrap();
    let gateway = backend.open(Access::Gateway).await;
    let bench = Bench::new(Arc::clone(&gateway));
    let again = bench.accept(names.iter().map(|name| bench.event(name, now)).collect(), now).await;
    assert!(again.iter().all(|verdict| matches!(verdict, Verdict::Duplicate { .. })));
    bench.settle_all("map", APPLIED, now).await;
    assert_eq!(bench.ledger().await.applied, waiting);
    sound(&gateway).await;
}
