//! Random sequences of operations, compared with a model in a few maps.

use super::{TINY, bench};
use crate::clock::Timestamp;
use crate::event::{Class, EventId, Outcome, State};
use crate::store::conformance::{Bench, at, cause, key, routes};
use crate::store::embedded::Embedded;
use crate::store::{Access, Admission, End, Filter, Lease, Options, Settled, Store, Verdict};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const WINDOW_SECONDS: u64 = 50;

#[derive(Clone, Debug)]
enum Step {
    /// Events with one of a few keys, and perhaps another as alias.
    Accept(Vec<(u8, Option<u8>)>),
    Lease(usize),
    /// Ends the n-th lease ever given, in one of four ways.
    Settle(usize, u8),
    Replay(Option<u8>),
    Purge(Option<u8>),
    Sweep,
    Wait(u64),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let keys = || 0..12_u8;
    let step = prop_oneof![
        4 => prop::collection::vec((keys(), prop::option::of(keys())), 1..4).prop_map(Step::Accept),
        3 => (1..4_usize).prop_map(Step::Lease),
        4 => (0..30_usize, 0..4_u8).prop_map(|(lease, end)| Step::Settle(lease, end)),
        1 => prop::option::of(keys()).prop_map(Step::Replay),
        1 => prop::option::of(keys()).prop_map(Step::Purge),
        1 => Just(Step::Sweep),
        2 => (1..40_u64).prop_map(Step::Wait),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

/// What the model knows of an event, for its one sink.
#[derive(Clone, Debug)]
struct Modelled {
    keys: Vec<u8>,
    state: State,
    due: Timestamp,
    token: Option<u64>,
    attempts: u32,
    lapses: u32,
    settled: Option<Timestamp>,
    transient: bool,
    duplicates: u64,
}

#[derive(Default)]
struct Model {
    events: BTreeMap<EventId, Modelled>,
    leases: Vec<Lease>,
    received: u64,
    purged: u64,
    applied: u64,
    duplicate: u64,
}

impl Model {
    fn holder(&mut self, keys: &[u8]) -> Option<(EventId, &mut Modelled)> {
        let id = keys
            .iter()
            .find_map(|key| self.events.iter().find(|(_, event)| event.keys.contains(key)).map(|(&id, _)| id))?;
        self.events.get_mut(&id).map(|event| (id, event))
    }

    fn accept(&mut self, id: EventId, keys: Vec<u8>, now: Timestamp) -> Verdict {
        self.received += 1;
        if let Some((of, event)) = self.holder(&keys) {
            event.duplicates += 1;
            let revived = event.state == State::Dead && event.transient;
            if revived {
                (event.state, event.due, event.token) = (State::Ready, now, None);
                (event.attempts, event.lapses, event.settled) = (0, 0, None);
            }
            let outcome = (event.state == State::Done).then_some(Outcome::Applied);
            let verdict = Verdict::Duplicate { of, state: event.state, outcome, drift: false, revived };
            self.duplicate += 1;
            return verdict;
        }
        let fresh = Modelled {
            keys,
            state: State::Ready,
            due: now,
            token: None,
            attempts: 0,
            lapses: 0,
            settled: None,
            transient: false,
            duplicates: 0,
        };
        self.events.insert(id, fresh);
        Verdict::Accepted
    }

    /// The ids that a lease should give, in order.
    fn due(&self, limit: usize, now: Timestamp) -> Vec<EventId> {
        let mut due: Vec<(&EventId, &Modelled)> = self
            .events
            .iter()
            .filter(|(_, event)| matches!(event.state, State::Ready | State::Leased) && event.due <= now)
            .collect();
        due.sort_by_key(|(id, event)| (event.due, **id));
        let lapses = |event: &Modelled| event.lapses + u32::from(event.token.is_some());
        let Some(first) = due.first().map(|(_, event)| lapses(event)) else { return Vec::new() };
        let company = match first {
            0 => limit,
            1 => limit.min(32),
            _ => 1,
        };
        due.iter().take(company).take_while(|(_, event)| lapses(event) == first).map(|(id, _)| **id).collect()
    }

    fn settle(&mut self, lease: &Lease, end: &End, now: Timestamp) -> Settled {
        let Some(event) = self.events.get_mut(&lease.event).filter(|event| event.token == Some(lease.token)) else {
            return Settled::LeaseLost;
        };
        event.token = None;
        match end {
            End::Done(..) => {
                (event.state, event.settled) = (State::Done, Some(now));
                self.applied += 1;
            }
            End::Retry { at, counts, .. } => {
                (event.state, event.due) = (State::Ready, *at);
                event.attempts += u32::from(*counts);
            }
            End::Dead(cause) => {
                (event.state, event.settled, event.transient) = (State::Dead, Some(now), cause.class.is_transient());
            }
        }
        Settled::Ok
    }

    fn select_dead(&self, wanted: Option<u8>) -> Vec<EventId> {
        let meant = |event: &Modelled| event.state == State::Dead && wanted.is_none_or(|key| event.keys.contains(&key));
        self.events.iter().filter(|(_, event)| meant(event)).map(|(&id, _)| id).collect()
    }
}

fn name(key: u8) -> String {
    format!("key {key}")
}

fn filter(wanted: Option<u8>) -> Filter {
    Filter { key: wanted.map(|wanted| key(&name(wanted)).key()), ..Filter::default() }
}

fn open(file: &Path) -> Arc<Embedded> {
    let window = Duration::from_secs(WINDOW_SECONDS);
    let options = Options { window, dead_retention: 2 * window, ..Options::default() };
    Arc::new(Embedded::open(Some(file), &options, Access::Gateway, TINY).unwrap())
}

async fn accept(bench: &Bench, model: &mut Model, batch: &[(u8, Option<u8>)], now: Timestamp) {
    let mut events = Vec::new();
    for &(first, alias) in batch {
        let mut event = bench.event(&name(first), now);
        event.aliases = alias.filter(|&alias| alias != first).map(|alias| key(&name(alias))).into_iter().collect();
        (event.content, event.admission) = ([0; 32], Admission::Deliver(routes(&["map"])));
        events.push(event);
    }
    let expected: Vec<Verdict> = events
        .iter()
        .zip(batch)
        .map(|(event, &(first, alias))| {
            let keys = std::iter::once(first).chain(alias.filter(|&alias| alias != first)).collect();
            model.accept(event.id, keys, now)
        })
        .collect();
    assert_eq!(bench.accept(events, now).await, expected);
}

async fn lease(bench: &Bench, model: &mut Model, limit: usize, now: Timestamp) {
    let expected = model.due(limit, now);
    let leased = bench.lease("map", limit, now).await;
    assert_eq!(leased.iter().map(|leased| leased.lease.event).collect::<Vec<_>>(), expected);
    for leased in leased {
        let event = model.events.get_mut(&leased.lease.event).unwrap();
        event.lapses += u32::from(event.token.is_some());
        assert_eq!((leased.attempts, leased.lapses), (event.attempts, event.lapses));
        (event.state, event.token, event.due) =
            (State::Leased, Some(leased.lease.token), now.plus(Duration::from_mins(1)));
        model.leases.push(leased.lease);
    }
}

fn end(kind: u8, now: Timestamp) -> End {
    match kind {
        0 => End::Done(Outcome::Applied, None),
        1 => End::Retry { at: now.plus(Duration::from_secs(5)), cause: cause(Class::Unavailable), counts: true },
        2 => End::Dead(cause(Class::Geometry)),
        _ => End::Dead(cause(Class::Unavailable)),
    }
}

async fn sweep(bench: &Bench, model: &mut Model, now: Timestamp) {
    while bench.sweep(5, now).await.more {}
    let before = model.events.len();
    let over = |settled: Option<Timestamp>, seconds| {
        settled.is_some_and(|settled| settled.plus(Duration::from_secs(seconds)) <= now)
    };
    model.events.retain(|_, event| !(event.state == State::Done && over(event.settled, WINDOW_SECONDS)));
    let left = model.events.len();
    model.events.retain(|_, event| !(event.state == State::Dead && over(event.settled, 2 * WINDOW_SECONDS)));
    model.purged += (left - model.events.len()) as u64;
    assert!(left <= before);
}

async fn compare(bench: &Bench, model: &Model) {
    let records = bench.list(Filter::default()).await;
    let states: Vec<(EventId, State, u64)> =
        records.iter().rev().map(|record| (record.id, record.state, record.duplicates)).collect();
    let expected: Vec<(EventId, State, u64)> =
        model.events.iter().map(|(&id, event)| (id, event.state, event.duplicates)).collect();
    assert_eq!(states, expected);
    if let Some(ledger) = bench.store.status().await.unwrap().ledgers.get("survey") {
        let counted = (ledger.received, ledger.applied, ledger.purged, ledger.duplicate);
        assert_eq!(counted, (model.received, model.applied, model.purged, model.duplicate));
    }
}

async fn play(steps: Vec<Step>) {
    let folder = tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "." }).unwrap();
    let file = folder.path().join("geonce.db");
    let mut store = open(&file);
    let (mut bench_now, mut model, mut seconds) = (bench(&store), Model::default(), 0);
    for step in steps {
        let now = at(seconds);
        let bench_ref = &bench_now;
        match step {
            Step::Accept(batch) => accept(bench_ref, &mut model, &batch, now).await,
            Step::Lease(limit) => lease(bench_ref, &mut model, limit, now).await,
            Step::Settle(place, kind) => {
                if let Some(lease) = model.leases.get(place).cloned() {
                    let expected = model.settle(&lease, &end(kind, now), now);
                    assert_eq!(bench_ref.settle(&lease, end(kind, now), now).await, expected);
                }
            }
            Step::Replay(wanted) => {
                let ids = model.select_dead(wanted);
                assert_eq!(bench_ref.replay(filter(wanted), now).await, ids.len() as u64);
                for id in ids {
                    let event = model.events.get_mut(&id).unwrap();
                    (event.state, event.due, event.attempts) = (State::Ready, now, 0);
                    (event.lapses, event.settled) = (0, None);
                }
            }
            Step::Purge(wanted) => {
                let ids = model.select_dead(wanted);
                assert_eq!(bench_ref.purge(filter(wanted), now).await, ids.len() as u64);
                model.purged += ids.len() as u64;
                model.events.retain(|id, _| !ids.contains(id));
            }
            Step::Sweep => sweep(bench_ref, &mut model, now).await,
            Step::Wait(more) => seconds += more,
            Step::Restart => {
                drop((bench_now, store));
                store = open(&file);
                bench_now = bench(&store);
                for event in model.events.values_mut().filter(|event| event.token.is_some()) {
                    event.due = Timestamp::from_millis(0);
                }
            }
        }
        compare(&bench_now, &model).await;
    }
    assert_eq!(store.audit().await.unwrap(), Vec::<String>::new());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_does_what_the_model_does(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(play(steps));
    }
}
