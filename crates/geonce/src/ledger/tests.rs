//! Runs on every backend: one of many starts, others wait for it, the dead are taken over, zombies are refused.

mod processes;

use super::{Begun, Ledger, Run, Sent, Task};
use crate::clock::{Stopwatch, SystemClock};
use crate::event::{Cause, Class, Outcome, State};
use crate::store::conformance::{key, law};
use crate::store::{Access, End, Filter, ListRequest, Options, ResultText, Settled, Settlement, Store};
use geonce_services::{Postgres, Redis};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Long enough for anything on a busy machine.
const LONG: Duration = Duration::from_mins(2);
/// A lease that lapses while a test waits for it.
const SHORT: Duration = Duration::from_millis(300);

/// Where a test's runs are kept.
struct Backend {
    url: String,
    folder: tempfile::TempDir,
    /// Whether a runner hears from others that are not in its process.
    hears: bool,
}

impl Backend {
    fn new(url: String, hears: bool) -> Backend {
        Backend { url, folder: tempfile::tempdir().unwrap(), hears }
    }

    fn embedded() -> Backend {
        Backend::new("sqlite:runs.db".to_owned(), false)
    }

    fn postgres() -> Backend {
        Backend::new(Postgres::shared().database(), true)
    }

    fn redis() -> Backend {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let prefix = NUMBER.fetch_add(1, Ordering::Relaxed);
        Backend::new(format!("{}?prefix=ledger{prefix}", Redis::shared().url()), true)
    }

    /// Opens the store as another process would.
    async fn open(&self, access: Access) -> Arc<dyn Store> {
        let (url, folder) = (self.url.clone(), self.folder.path().to_owned());
        tokio::task::spawn_blocking(move || open(&url, access, &folder)).await.unwrap()
    }

    async fn runner(&self) -> Arc<dyn Store> {
        self.open(Access::Runner).await
    }
}

fn open(url: &str, access: Access, folder: &Path) -> Arc<dyn Store> {
    crate::store::open(url, &Options::default(), access, folder).unwrap()
}

fn ledger(store: &Arc<dyn Store>) -> Ledger {
    Ledger::new(Arc::clone(store), Arc::new(SystemClock), "nightly")
}

/// A ledger that hears, or waits for ever.
fn deaf_to_time(store: &Arc<dyn Store>) -> Ledger {
    Ledger { polls: [LONG, LONG], ..ledger(store) }
}

fn task(name: &str) -> Task {
    Task { key: key(name), payload: format!("{{\"file\":\"{name}\"}}").into() }
}

#[expect(clippy::unnecessary_wraps, reason = "as it is given")]
fn text(result: &str) -> Option<ResultText> {
    Some(ResultText::new(result).unwrap())
}

fn cause(class: Class) -> Cause {
    Cause::new(class, "exit", "It ended with code 1.")
}

fn started(begun: Begun) -> Run {
    match begun {
        Begun::Started(run) => run,
        other => panic!("{other:?}"),
    }
}

fn result(begun: Begun) -> Option<Arc<str>> {
    match begun {
        Begun::Done { result, .. } => result,
        other => panic!("{other:?}"),
    }
}

/// Lets a run lapse soon. It is held for long until then, so that a slow commit does not let it lapse before.
async fn forsake(run: &mut Run) {
    run.duration = SHORT;
    assert_eq!(run.extend().await.unwrap(), Settled::Ok);
}

async fn sound(store: &Arc<dyn Store>) {
    assert_eq!(store.audit().await.unwrap(), Vec::<String>::new());
    assert_eq!(law(&store.status().await.unwrap()), Ok(()));
}

macro_rules! on_every_backend {
    ($($test:ident),+ $(,)?) => {
        on_every_backend!(in embedded $($test)+);
        on_every_backend!(in postgres $($test)+);
        on_every_backend!(in redis $($test)+);
    };
    (in $backend:ident $($test:ident)+) => {
        mod $backend {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(super::Backend::$backend()).await;
                }
            )+
        }
    };
}

on_every_backend![
    of_twenty_that_begin_one_starts_and_all_get_its_result,
    a_runner_that_is_gone_is_taken_over_and_refused_when_it_comes_back,
    an_end_whose_answer_was_lost_may_be_sent_again,
    those_who_wait_are_woken,
    those_who_wait_take_over_what_was_released_or_lapsed,
    what_died_of_a_transient_cause_is_begun_again_and_the_rest_is_replayed,
    a_result_survives_a_restart,
    other_keys_and_other_ledgers_are_not_held_up,
    a_run_that_is_extended_does_not_lapse,
    what_is_released_for_a_while_rests_and_what_is_given_back_costs_no_attempt,
];

async fn of_twenty_that_begin_one_starts_and_all_get_its_result(backend: Backend) {
    let stores = [backend.runner().await, backend.runner().await];
    let mut beginning = tokio::task::JoinSet::new();
    for number in 0..20 {
        let ledger = ledger(&stores[number % 2]);
        beginning.spawn(async move { (ledger.begin(&task("a")).await.unwrap(), ledger) });
    }
    let (mut runs, mut running) = (Vec::new(), Vec::new());
    for (begun, ledger) in beginning.join_all().await {
        match begun {
            Begun::Started(run) => runs.push(run),
            Begun::Running { event, .. } => running.push((event, ledger)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((runs.len(), running.len()), (1, 19));
    let mut waiting = tokio::task::JoinSet::new();
    for (event, ledger) in running {
        assert_eq!(event, runs[0].event());
        waiting.spawn(async move { ledger.wait(&task("a"), LONG).await.unwrap() });
    }
    assert_eq!(runs[0].done(text("{\"rows\":7}")).await.unwrap(), Settled::Ok);
    for begun in waiting.join_all().await {
        assert_eq!(result(begun).as_deref(), Some("{\"rows\":7}"));
    }
    assert_eq!(result(ledger(&stores[1]).begin(&task("a")).await.unwrap()).as_deref(), Some("{\"rows\":7}"));
    let books = stores[0].status().await.unwrap().ledgers["@nightly"];
    assert_eq!((books.applied, books.received - books.duplicate), (1, 1));
    sound(&stores[0]).await;
}

async fn a_runner_that_is_gone_is_taken_over_and_refused_when_it_comes_back(backend: Backend) {
    let (first, second) = (backend.runner().await, backend.runner().await);
    let mut zombie = started(ledger(&first).begin(&task("a")).await.unwrap());
    assert!(matches!(ledger(&second).begin(&task("a")).await.unwrap(), Begun::Running { .. }));
    forsake(&mut zombie).await;
    let run = started(ledger(&second).wait(&task("a"), LONG).await.unwrap());
    assert!(run.token() > zombie.token());
    assert_eq!((run.event(), run.lapses(), run.attempts()), (zombie.event(), 1, 0));
    assert_eq!(zombie.extend().await.unwrap(), Settled::LeaseLost);
    assert_eq!(zombie.done(text("zombie")).await.unwrap(), Settled::LeaseLost);
    assert_eq!(zombie.release(cause(Class::Schema)).await.unwrap(), Settled::LeaseLost);
    assert_eq!(run.done(text("second")).await.unwrap(), Settled::Ok);
    // Even with the same words: it was somebody else who did it.
    assert_eq!(zombie.done(text("second")).await.unwrap(), Settled::LeaseLost);
    assert_eq!(result(ledger(&first).begin(&task("a")).await.unwrap()).as_deref(), Some("second"));
    sound(&first).await;
}

async fn an_end_whose_answer_was_lost_may_be_sent_again(backend: Backend) {
    let store = backend.runner().await;
    let ledger = ledger(&store);
    let ends = [
        End::Done(Outcome::Applied, text("{}")),
        End::Done(Outcome::Applied, None),
        End::Dead(cause(Class::Schema)),
        End::Retry { at: crate::clock::Timestamp::default(), cause: cause(Class::Schema), counts: true },
    ];
    for (number, end) in ends.into_iter().enumerate() {
        let run = started(ledger.begin(&task(&number.to_string())).await.unwrap());
        let settlement = Settlement { lease: run.lease.clone(), end: end.clone() };
        assert_eq!(store.settle(vec![settlement], run.clock.now()).await.unwrap(), [Settled::Ok]);
        *run.sent() = Some(Sent { end: end.clone(), answered: false });
        assert_eq!(run.end(end.clone()).await.unwrap(), Settled::Ok, "{end:?}");
        assert_eq!(run.end(end).await.unwrap(), Settled::Ok, "and again");
        assert_eq!(run.end(End::Dead(cause(Class::Crs))).await.unwrap(), Settled::LeaseLost, "but nothing else");
    }
    for number in 0..20 {
        let name = format!("given up {number}");
        let run = started(ledger.begin(&task(&name)).await.unwrap());
        let _ = tokio::time::timeout(Duration::from_micros(50 * number), run.done(text("{}"))).await;
        assert_eq!(run.done(text("{}")).await.unwrap(), Settled::Ok);
        assert_eq!(result(ledger.begin(&task(&name)).await.unwrap()).as_deref(), Some("{}"));
    }
    sound(&store).await;
}

async fn those_who_wait_are_woken(backend: Backend) {
    let (first, other) = (backend.runner().await, backend.runner().await);
    let waiting_store = if backend.hears { &other } else { &first };
    for number in 0..3 {
        let name = number.to_string();
        let run = started(ledger(&first).begin(&task(&name)).await.unwrap());
        let ledger = deaf_to_time(waiting_store);
        let waiting = tokio::spawn(async move { ledger.wait(&task(&name), LONG).await.unwrap() });
        // It has begun to wait when its beginning is counted; what ends between that and its wait is seen all the same.
        while first.status().await.unwrap().ledgers["@nightly"].duplicate <= number {
            tokio::task::yield_now().await;
        }
        // Others may still be told of the beginning, which must not be what wakes it.
        while tokio::time::timeout(SHORT, waiting_store.changed()).await.is_ok() {}
        let woken = Stopwatch::start();
        assert_eq!(run.done(text("woken")).await.unwrap(), Settled::Ok);
        assert_eq!(result(waiting.await.unwrap()).as_deref(), Some("woken"));
        assert!(woken.elapsed() < LONG / 8, "{:?}", woken.elapsed());
    }
}

async fn those_who_wait_take_over_what_was_released_or_lapsed(backend: Backend) {
    let (first, second) = (backend.runner().await, backend.runner().await);
    let run = started(ledger(&first).begin(&task("a")).await.unwrap());
    let waiter = ledger(&second);
    let waiting = tokio::spawn(async move { waiter.wait(&task("a"), LONG).await.unwrap() });
    assert_eq!(run.release(cause(Class::Schema)).await.unwrap(), Settled::Ok);
    let mut released = started(waiting.await.unwrap());
    assert_eq!((released.attempts(), released.lapses()), (1, 0));
    let still = ledger(&first).wait(&task("a"), Duration::from_millis(1)).await.unwrap();
    assert!(matches!(still, Begun::Running { .. }), "{still:?}");
    forsake(&mut released).await;
    let lapsed = started(ledger(&first).wait(&task("a"), LONG).await.unwrap());
    assert_eq!((lapsed.attempts(), lapsed.lapses()), (1, 1));
    assert_eq!(released.done(None).await.unwrap(), Settled::LeaseLost);
    assert_eq!(lapsed.done(None).await.unwrap(), Settled::Ok);
    assert_eq!(result(ledger(&second).begin(&task("a")).await.unwrap()), None);
    sound(&first).await;
}

async fn what_died_of_a_transient_cause_is_begun_again_and_the_rest_is_replayed(backend: Backend) {
    let store = backend.runner().await;
    let ledger = ledger(&store);
    let run = started(ledger.begin(&task("a")).await.unwrap());
    assert!(!ledger.replay(&key("a")).await.unwrap(), "it is not dead");
    assert_eq!(run.dead(cause(Class::Unavailable)).await.unwrap(), Settled::Ok);
    assert_eq!(ledger.find(&key("a")).await.unwrap().unwrap().state, State::Dead);
    let run = started(ledger.begin(&task("a")).await.unwrap());
    assert_eq!(run.dead(cause(Class::Schema)).await.unwrap(), Settled::Ok);
    for begun in [ledger.begin(&task("a")).await.unwrap(), ledger.wait(&task("a"), LONG).await.unwrap()] {
        assert!(
            matches!(begun, Begun::Dead { event, cause: died } if event == run.event() && died == cause(Class::Schema))
        );
    }
    assert!(ledger.replay(&key("a")).await.unwrap());
    let run = started(ledger.begin(&task("a")).await.unwrap());
    assert_eq!((run.attempts(), run.done(None).await.unwrap()), (0, Settled::Ok));
    assert!(!ledger.replay(&key("a")).await.unwrap(), "what is done stays done");
    sound(&store).await;
}

async fn a_result_survives_a_restart(backend: Backend) {
    let store = backend.runner().await;
    let run = started(ledger(&store).begin(&task("a")).await.unwrap());
    assert_eq!(run.done(text("{\"rows\":7}")).await.unwrap(), Settled::Ok);
    let open = started(ledger(&store).begin(&task("b")).await.unwrap());
    store.close().await.unwrap();
    drop(store);
    for access in [Access::Runner, Access::Gateway] {
        let store = backend.open(access).await;
        assert_eq!(result(ledger(&store).begin(&task("a")).await.unwrap()).as_deref(), Some("{\"rows\":7}"));
        let begun = ledger(&store).begin(&task("b")).await.unwrap();
        assert!(
            matches!(begun, Begun::Running { event, .. } if event == open.event()),
            "its runner may live: {begun:?}"
        );
        let tool = backend.open(Access::Tool).await;
        let request = ListRequest { filter: Filter::default(), before: None, limit: 9, payloads: true };
        let records = tool.list(request).await.unwrap();
        assert_eq!(records.len(), 2);
        assert_eq!(records[1].result.as_deref(), Some("{\"rows\":7}"));
        sound(&store).await;
        tool.close().await.unwrap();
        store.close().await.unwrap();
    }
}

async fn other_keys_and_other_ledgers_are_not_held_up(backend: Backend) {
    let store = backend.runner().await;
    let held = started(ledger(&store).begin(&task("held")).await.unwrap());
    let mut others = tokio::task::JoinSet::new();
    for number in 0..20 {
        let ledger = deaf_to_time(&store);
        others.spawn(async move {
            let run = started(ledger.wait(&task(&number.to_string()), LONG).await.unwrap());
            run.done(None).await.unwrap()
        });
    }
    assert!(others.join_all().await.into_iter().all(|settled| settled == Settled::Ok));
    let other = Ledger::new(Arc::clone(&store), Arc::new(SystemClock), "weekly");
    assert_eq!(started(other.begin(&task("held")).await.unwrap()).done(None).await.unwrap(), Settled::Ok);
    assert_eq!(held.done(None).await.unwrap(), Settled::Ok);
    sound(&store).await;
}

async fn a_run_that_is_extended_does_not_lapse(backend: Backend) {
    let store = backend.runner().await;
    let lease = Duration::from_secs(3);
    let run = started(ledger(&store).with_lease(lease).begin(&task("a")).await.unwrap());
    let (waiter, task) = (ledger(&store), task("a"));
    let still = tokio::select! {
        begun = waiter.wait(&task, lease * 2) => begun.unwrap(),
        () = run.keep() => panic!("it was taken over"),
    };
    assert!(matches!(still, Begun::Running { .. }), "{still:?}");
    assert_eq!(run.done(None).await.unwrap(), Settled::Ok);
}

async fn what_is_released_for_a_while_rests_and_what_is_given_back_costs_no_attempt(backend: Backend) {
    let store = backend.runner().await;
    let ledger = ledger(&store);
    let run = started(ledger.begin(&task("a")).await.unwrap());
    let rested = Stopwatch::start();
    let at = run.clock.now().plus(SHORT * 10);
    assert_eq!(run.release_until(at, cause(Class::Schema)).await.unwrap(), Settled::Ok);
    assert!(matches!(ledger.begin(&task("a")).await.unwrap(), Begun::Running { .. }), "it rests");
    let run = started(ledger.wait(&task("a"), LONG).await.unwrap());
    assert!(rested.elapsed() >= SHORT * 9, "{:?}", rested.elapsed());
    assert_eq!((run.attempts(), run.lapses()), (1, 0));
    assert_eq!(run.give_back(cause(Class::Schema)).await.unwrap(), Settled::Ok);
    let run = started(ledger.begin(&task("a")).await.unwrap());
    assert_eq!((run.attempts(), run.lapses()), (1, 0));
    assert_eq!(run.done(None).await.unwrap(), Settled::Ok);
    sound(&store).await;
}
