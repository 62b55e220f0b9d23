//! The suite every store passes. Each check gets a store of its own; after every step the books must balance ([`law`]).
//!
//! It is no test by itself: a backend's tests call [`run`] with a function that makes an empty store.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a check fails by panicking")]

mod delivery;
mod held;
mod intake;
mod keeping;
mod place;
#[cfg(test)]
pub(crate) mod place_race;
#[cfg(test)]
pub(crate) mod race;
mod repair;
mod results;

use crate::clock::Timestamp;
use crate::event::{Cause, Class, EventId, Ids, Outcome, State};
use crate::store::{
    Admission, End, Filter, Lease, LeaseRequest, Leased, ListRequest, NewEvent, Options, Order, Record, Route, Settled,
    Settlement, Status, Store, Swept, Verdict,
};
use bytes::Bytes;
use geonce_key::{Fingerprint, Form, Version};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A check of an empty store.
type Check = for<'b> fn(&'b Bench) -> Pin<Box<dyn Future<Output = ()> + 'b>>;

/// Runs every check, each on a store that `make` makes.
///
/// # Panics
///
/// If the store does not keep the contract.
pub async fn run(make: impl AsyncFn(Options) -> Arc<dyn Store>) {
    macro_rules! checks {
        ($($check:path),+ $(,)?) => {
            [$((stringify!($check), (|bench| Box::pin($check(bench))) as Check)),+]
        };
    }
    let checks = checks![
        intake::a_fresh_event_is_accepted_and_its_copy_is_a_duplicate,
        intake::a_batch_finds_its_own_duplicates,
        intake::any_known_alias_makes_a_duplicate,
        intake::the_same_id_again_is_accepted_again,
        intake::the_same_id_again_is_accepted_even_where_its_key_is_free,
        intake::other_content_under_a_known_delivery_is_a_conflict,
        intake::one_key_with_two_fingerprints_is_a_collision,
        intake::content_that_differs_outside_the_identity_is_drift,
        intake::of_many_copies_at_once_one_is_accepted,
        intake::an_event_may_be_dead_from_the_start,
        intake::refused_events_are_counted,
        intake::duplicates_that_were_recognised_elsewhere_are_counted,
        intake::redeliveries_are_counted_by_how_late_they_come,
        intake::fields_in_which_duplicates_differ_are_counted,
        delivery::work_is_leased_oldest_first_within_limits,
        delivery::a_stale_token_settles_nothing,
        delivery::lapsed_work_comes_with_little_company_and_is_counted,
        delivery::a_retry_waits_until_its_time,
        delivery::an_event_is_done_when_all_its_sinks_are,
        delivery::an_event_is_dead_when_one_sink_is_and_the_others_are_served,
        delivery::leases_can_be_extended,
        delivery::who_holds_work_is_shown_while_it_is_leased,
        delivery::work_behind_much_that_is_leased_is_found,
        delivery::waiting_workers_hear_of_new_work,
        results::a_result_is_kept_until_its_event_is_forgotten,
        results::of_several_results_the_first_is_kept,
        results::one_event_can_be_leased_by_its_id,
        results::the_end_of_a_run_is_heard,
        held::work_after_a_sink_is_held_until_that_is_served,
        held::what_left_no_row_is_told_to_nobody,
        held::work_after_a_dead_sink_stays_held,
        held::events_of_an_entity_go_one_by_one_lowest_version_first,
        held::a_lower_version_goes_before_what_was_never_leased,
        held::who_tries_again_holds_the_line,
        held::the_dead_let_the_next_one_go_and_come_back_in_their_place,
        held::without_versions_events_of_an_entity_go_in_order_of_acceptance,
        held::what_waits_for_a_sink_comes_into_its_line_after_that,
        place::who_is_alone_has_its_place_and_keeps_it,
        place::who_is_in_the_cells_is_told_unless_it_is_known,
        place::other_cells_and_other_scopes_do_not_count,
        place::a_place_may_be_had_beside_others,
        place::what_was_decided_is_answered_from_then_on,
        place::who_was_not_applied_is_no_neighbour,
        place::who_is_brought_back_asks_again,
        place::places_end_with_their_time,
        place::who_has_waited_finds_what_was_there_when_it_came,
        place::later_ones_of_a_call_see_the_earlier,
        place::answers_have_limits,
        place::many_that_are_gone_are_no_hindrance,
        place::what_no_store_would_keep_is_refused,
        repair::a_dead_event_is_superseded_by_its_repair,
        repair::a_repair_may_turn_out_to_be_known,
        repair::only_the_dead_are_repaired,
        repair::repairs_of_a_batch_see_each_other,
        repair::of_many_repairs_at_once_one_is_carried_out,
        repair::a_repair_takes_its_place_in_the_line_of_its_entity,
        keeping::dead_events_are_replayed_and_purged,
        keeping::a_redelivery_revives_what_died_of_a_transient_cause,
        keeping::lists_are_filtered_and_paged,
        keeping::the_store_counts_what_it_holds,
    ];
    for (name, check) in checks {
        let bench = Bench::new(make(Options::default()).await);
        check(&bench).await;
        bench.finish(name).await;
    }
    keeping::what_is_past_its_time_is_forgotten(&make).await;
    keeping::payloads_go_when_they_are_not_kept(&make).await;
    let bench = Bench::new(make(Options::default()).await);
    keeping::a_closed_store_answers_that_it_is(&bench).await;
}

/// Whether the books balance: what came in is accounted for, in every source, and the counts fit together.
pub fn law(status: &Status) -> Result<(), String> {
    for (source, ledger) in &status.ledgers {
        if ledger.difference() != 0 {
            return Err(format!("{source} is off by {}: {ledger:?}", ledger.difference()));
        }
    }
    let of_state = |state| status.states.get(&state).copied().unwrap_or(0);
    let total = |field: fn(&super::Ledger) -> u64| status.ledgers.values().map(field).sum::<u64>();
    let pairs = [
        ("waiting", total(|ledger| ledger.waiting), of_state(State::Ready) + of_state(State::Leased)),
        ("dead", total(|ledger| ledger.dead), of_state(State::Dead)),
        ("dead by code", total(|ledger| ledger.dead), status.dead.values().sum()),
        ("refused by code", total(|ledger| ledger.refused), status.invalid.values().sum()),
    ];
    match pairs.into_iter().find(|(_, books, records)| books != records) {
        Some((name, books, records)) => Err(format!("{name}: {books} in the books, {records} recorded")),
        None => Ok(()),
    }
}

/// A store under test, with a clock and a supply of events.
pub(crate) struct Bench {
    pub(crate) store: Arc<dyn Store>,
    ids: Ids,
}

/// When the checks begin.
pub(crate) const START: Timestamp = Timestamp::from_millis(1_794_700_800_000);

/// So many seconds after the start.
pub(crate) fn at(seconds: u64) -> Timestamp {
    START.plus(Duration::from_secs(seconds))
}

/// A fingerprint for each name.
pub(crate) fn key(name: &str) -> Fingerprint {
    use sha2::Digest;
    Fingerprint::from_digest(sha2::Sha256::digest(name).into(), false)
}

/// A cause of a class.
pub(crate) fn cause(class: Class) -> Cause {
    Cause {
        class,
        code: class.as_str().to_owned(),
        pointer: "/geometry".to_owned(),
        message: "It \"went\" wrong.".to_owned(),
    }
}

/// Routes to these sinks; `notify<map` goes to notify once map is served.
pub(crate) fn routes(sinks: &[&str]) -> Arc<[Route]> {
    let route = |sink: &&str| match sink.split_once('<') {
        Some((sink, after)) => Route { sink: sink.into(), after: Some(after.into()) },
        None => Route::to(sink),
    };
    sinks.iter().map(route).collect()
}

/// The place of an event with this version in the line of an entity.
pub(crate) fn order(entity: &str, version: u64) -> Order {
    Order::new(key(entity), Some(&Version::Integer(version.into())))
}

impl Bench {
    pub(crate) fn new(store: Arc<dyn Store>) -> Bench {
        Bench { store, ids: Ids::new() }
    }

    /// Nothing is wrong with the store at the end of a check, and it can be closed.
    async fn finish(&self, check: &str) {
        let problems = self.store.audit().await.unwrap();
        assert!(problems.is_empty(), "{check}: {problems:?}");
        self.store.close().await.unwrap();
    }

    /// A new event with this key, for the sink `map`.
    pub(crate) fn event(&self, name: &str, now: Timestamp) -> NewEvent {
        self.event_for(name, &["map"], now)
    }

    pub(crate) fn event_for(&self, name: &str, sinks: &[&str], now: Timestamp) -> NewEvent {
        NewEvent {
            id: self.ids.next(now),
            source: "survey".into(),
            key: key(name),
            aliases: Vec::new(),
            spatial: Vec::new(),
            content: *key(name).digest(),
            form: Form::Json,
            crs: None,
            payload: Bytes::from(format!("{{\"name\":\"{name}\"}}")),
            admission: Admission::Deliver(routes(sinks)),
            order: None,
        }
    }

    async fn lawful(&self) {
        let status = self.store.status().await.unwrap();
        assert_eq!(law(&status), Ok(()));
    }

    pub(crate) async fn accept(&self, batch: Vec<NewEvent>, now: Timestamp) -> Vec<Verdict> {
        let verdicts = self.store.accept(batch, now).await.unwrap();
        self.lawful().await;
        verdicts
    }

    pub(crate) async fn accept_one(&self, event: NewEvent, now: Timestamp) -> Verdict {
        let mut verdicts = self.accept(vec![event], now).await;
        assert_eq!(verdicts.len(), 1);
        verdicts.remove(0)
    }

    /// Accepts events with these keys; their ids.
    pub(crate) async fn fill(&self, keys: &[&str], now: Timestamp) -> Vec<EventId> {
        let batch: Vec<NewEvent> = keys.iter().map(|name| self.event(name, now)).collect();
        let ids = batch.iter().map(|event| event.id).collect();
        let verdicts = self.accept(batch, now).await;
        assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Accepted), "{verdicts:?}");
        ids
    }

    /// Leases one event for a minute.
    pub(crate) async fn lease_event(&self, sink: &str, event: EventId, now: Timestamp) -> Option<Leased> {
        let (sink, duration) = (sink.into(), Duration::from_mins(1));
        let request =
            LeaseRequest { sink, events_max: 9, bytes_max: 9, duration, event: Some(event), holder: "test".into() };
        let mut leased = self.store.lease(request, now).await.unwrap();
        self.lawful().await;
        assert!(leased.len() <= 1, "{leased:?}");
        leased.pop()
    }

    /// Leases for a minute.
    pub(crate) async fn lease(&self, sink: &str, events_max: usize, now: Timestamp) -> Vec<Leased> {
        let request = LeaseRequest {
            sink: sink.into(),
            events_max,
            bytes_max: usize::MAX,
            duration: Duration::from_mins(1),
            event: None,
            holder: "test".into(),
        };
        let leased = self.store.lease(request, now).await.unwrap();
        self.lawful().await;
        leased
    }

    pub(crate) async fn settle(&self, lease: &Lease, end: End, now: Timestamp) -> Settled {
        let settlement = Settlement { lease: lease.clone(), end };
        let settled = self.store.settle(vec![settlement], now).await.unwrap();
        self.lawful().await;
        assert_eq!(settled.len(), 1);
        settled[0]
    }

    /// Leases everything that is due and ends it alike.
    pub(crate) async fn settle_all(&self, sink: &str, end: End, now: Timestamp) {
        loop {
            let leased = self.lease(sink, 100, now).await;
            if leased.is_empty() {
                break;
            }
            for leased in leased {
                assert_eq!(self.settle(&leased.lease, end.clone(), now).await, Settled::Ok);
            }
        }
    }

    pub(crate) async fn list(&self, filter: Filter) -> Vec<Record> {
        let request = ListRequest { filter, before: None, limit: 1_000, payloads: true };
        self.store.list(request).await.unwrap()
    }

    pub(crate) async fn record(&self, id: EventId) -> Record {
        let mut found = self.list(Filter { id: Some(id), ..Filter::default() }).await;
        assert_eq!(found.len(), 1, "{id}");
        found.remove(0)
    }

    pub(crate) async fn replay(&self, filter: Filter, now: Timestamp) -> u64 {
        let count = self.store.replay(filter, now).await.unwrap();
        self.lawful().await;
        count
    }

    pub(crate) async fn purge(&self, filter: Filter, now: Timestamp) -> u64 {
        let count = self.store.purge(filter, now).await.unwrap();
        self.lawful().await;
        count
    }

    pub(crate) async fn sweep(&self, limit: usize, now: Timestamp) -> Swept {
        let swept = self.store.sweep(limit, now).await.unwrap();
        self.lawful().await;
        swept
    }

    /// The books of the source.
    pub(crate) async fn ledger(&self) -> super::Ledger {
        self.store.status().await.unwrap().ledgers["survey"]
    }
}

/// The outcome of an ordinary write.
pub(crate) const APPLIED: End = End::Done(Outcome::Applied, None);
