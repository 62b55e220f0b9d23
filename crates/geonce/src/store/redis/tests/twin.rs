//! Random operations on this store and on the embedded one: they give the same answers and hold the same records.

use super::{Time, fresh};
use crate::clock::Timestamp;
use crate::event::{Class, Outcome, State};
use crate::store::conformance::{Bench, at, cause, key, order, routes};
use crate::store::redis::Redis;
use crate::store::{
    Access, Admission, Counted, End, Filter, Lease, LeaseRequest, Leased, NewEvent, Options, Record, Repair,
    ResultText, Settlement, Store,
};
use bytes::Bytes;
use geonce_key::{Fingerprint, Form};
use geonce_services::Redis as Server;
use std::sync::Arc;
use std::time::Duration;

const SINKS: [&str; 2] = ["log", "map"];
const STEPS: usize = 150;
const SEEDS: u64 = 4;

/// Numbers that look random, the same for each seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// Two stores that should not differ.
struct Twins {
    embedded: Bench,
    redis: Bench,
    chance: Chance,
    /// Leases of the same work, from both.
    leases: Vec<(Lease, Lease)>,
}

impl Twins {
    fn event(&mut self, now: Timestamp) -> NewEvent {
        let name = |chance: &mut Chance| format!("key {}", chance.below(20));
        let mut event = self.embedded.event(&name(&mut self.chance), now);
        let chance = &mut self.chance;
        let sinks = routes(match chance.below(8) {
            0 => &[],
            1..=2 => &SINKS,
            3 => &["log<map", "map"],
            4 => &["log", "map<log"],
            _ => &SINKS[1..],
        });
        if chance.one_in(2) {
            event.order = Some(order(&format!("entity {}", chance.below(4)), chance.below(4)));
        }
        event.admission = match chance.below(10) {
            0 => Admission::Dead(cause(Class::Schema), sinks),
            _ => Admission::Deliver(sinks),
        };
        event.source = if chance.one_in(3) { "sensors".into() } else { "survey".into() };
        if chance.one_in(3) {
            event.aliases.push(key(&name(chance)));
        }
        if chance.one_in(4) {
            event.spatial = vec![key(&format!("place {}", chance.below(2)))];
        }
        if chance.one_in(6) {
            event.content = [7; 32];
        }
        if chance.one_in(12) {
            let mut digest = *event.key.digest();
            digest[31] ^= 1;
            event.key = Fingerprint::from_digest(digest, chance.one_in(2));
        }
        if chance.one_in(5) {
            (event.form, event.crs) = (Form::WkbHex, Some(3857));
        }
        event.payload = Bytes::from(vec![b'x'; usize::try_from(chance.below(2_000)).unwrap()]);
        event
    }

    async fn accept(&mut self, now: Timestamp) {
        let batch: Vec<NewEvent> = (0..=self.chance.below(4)).map(|_| self.event(now)).collect();
        let verdicts = self.embedded.accept(batch.clone(), now).await;
        assert_eq!(self.redis.accept(batch.clone(), now).await, verdicts, "{batch:?}");
        if self.chance.one_in(5) {
            let again = self.embedded.accept(batch.clone(), now).await;
            assert_eq!(self.redis.accept(batch, now).await, again, "the answer was lost");
        }
    }

    async fn lease(&mut self, now: Timestamp) {
        let request = LeaseRequest {
            sink: SINKS[usize::try_from(self.chance.below(2)).unwrap()].into(),
            events_max: usize::try_from(self.chance.below(8)).unwrap() + 1,
            bytes_max: usize::try_from(self.chance.below(5_000)).unwrap(),
            duration: Duration::from_secs(self.chance.below(40) + 1),
            event: None,
            holder: "test".into(),
        };
        let shown = |leased: &Leased| {
            let Leased { lease, source, key, content, origin, received, attempts, lapses, form, crs, payload } = leased;
            let text = (lease.event, &lease.sink, source, key, content, origin, received, attempts, lapses, form, crs);
            format!("{text:?} {payload:?}")
        };
        let first = self.embedded.store.lease(request.clone(), now).await.unwrap();
        let second = self.redis.store.lease(request, now).await.unwrap();
        let both = [&first, &second].map(|leased| leased.iter().map(shown).collect::<Vec<_>>());
        assert_eq!(both[0], both[1]);
        self.leases.extend(first.into_iter().zip(second).map(|(first, second)| (first.lease, second.lease)));
    }

    fn end(&mut self, now: Timestamp) -> End {
        let retry = |class, counts| End::Retry { at: now.plus(Duration::from_secs(5)), cause: cause(class), counts };
        match self.chance.below(11) {
            0 => End::Dead(cause(Class::Geometry)),
            1 | 2 => End::Dead(cause(Class::Unavailable)),
            3 => retry(Class::Resource, true),
            4 => retry(Class::Unavailable, false),
            5 => End::Done(Outcome::Stale, None),
            6 => End::Done(Outcome::Applied, Some(ResultText::row("map", "public.map"))),
            7 => End::Done(Outcome::Applied, ResultText::new("{\"rows\":2}").ok()),
            _ => End::Done(Outcome::Applied, None),
        }
    }

    async fn settle(&mut self, now: Timestamp) {
        let (mut ends, mut twins) = (Vec::new(), Vec::new());
        for _ in 0..self.chance.below(4) {
            let Some(last) = u64::try_from(self.leases.len()).ok().filter(|&leases| leases > 0) else { return };
            let place = usize::try_from(self.chance.below(last)).unwrap();
            let ((first, second), end) = (self.leases[place].clone(), self.end(now));
            ends.push(Settlement { lease: first, end: end.clone() });
            twins.push(Settlement { lease: second, end });
        }
        let settled = self.embedded.store.settle(ends, now).await.unwrap();
        assert_eq!(self.redis.store.settle(twins, now).await.unwrap(), settled);
    }

    async fn extend(&mut self, now: Timestamp) {
        let (first, second): (Vec<Lease>, Vec<Lease>) = self.leases.iter().rev().take(3).cloned().unzip();
        let until = now.plus(Duration::from_secs(30));
        let extended = self.embedded.store.extend(first, until).await.unwrap();
        assert_eq!(self.redis.store.extend(second, until).await.unwrap(), extended);
    }

    fn filter(&mut self) -> Filter {
        let chance = &mut self.chance;
        Filter {
            key: chance.one_in(4).then(|| key(&format!("key {}", chance.below(20))).key()),
            source: chance.one_in(4).then(|| "sensors".to_owned()),
            state: chance.one_in(6).then_some(State::Dead),
            outcome: None,
            code: chance.one_in(3).then(|| "unavailable".to_owned()),
            since: chance.one_in(8).then(|| at(100)),
            ..Filter::default()
        }
    }

    async fn repair(&mut self, now: Timestamp) {
        // Mostly of the dead.
        let state = (!self.chance.one_in(6)).then_some(State::Dead);
        let found = self.embedded.list(Filter { state, ..Filter::default() }).await;
        let mut repairs = Vec::new();
        for _ in 0..=self.chance.below(3) {
            let Some(last) = u64::try_from(found.len()).ok().filter(|&found| found > 0) else { return };
            let original = found[usize::try_from(self.chance.below(last)).unwrap()].id;
            repairs.push(Repair { original, event: self.event(now) });
        }
        let answers = self.embedded.store.repair(repairs.clone(), now).await.unwrap();
        assert_eq!(self.redis.store.repair(repairs.clone(), now).await.unwrap(), answers, "{repairs:?}");
        let again = self.embedded.store.repair(repairs.clone(), now).await.unwrap();
        assert_eq!(self.redis.store.repair(repairs, now).await.unwrap(), again, "the answer was lost");
    }

    async fn step(&mut self, now: Timestamp) {
        match self.chance.below(18) {
            0..=4 => self.accept(now).await,
            5..=8 => self.lease(now).await,
            9..=11 => self.settle(now).await,
            12 => self.extend(now).await,
            13 => {
                let filter = self.filter();
                let count = self.embedded.replay(filter.clone(), now).await;
                assert_eq!(self.redis.replay(filter.clone(), now).await, count, "{filter:?}");
            }
            14 => {
                let filter = self.filter();
                let count = self.embedded.purge(filter.clone(), now).await;
                assert_eq!(self.redis.purge(filter.clone(), now).await, count, "{filter:?}");
            }
            15 | 16 => self.repair(now).await,
            _ => {
                // Half a second later, so that nothing is past its time to the millisecond.
                let later = now.plus(Duration::from_millis(500));
                while self.embedded.sweep(3, later).await.more {}
                while self.redis.sweep(3, later).await.more {}
                let refusal = Counted::Refused { source: "survey".into(), code: "json_syntax".into() };
                self.embedded.store.count(vec![refusal.clone()]);
                self.redis.store.count(vec![refusal]);
            }
        }
    }

    async fn compare(&self) {
        let shown = |records: Vec<Record>| records.iter().map(|record| format!("{record:?}")).collect::<Vec<_>>();
        for filter in [Filter::default(), Filter { state: Some(State::Ready), ..Filter::default() }] {
            let records = shown(self.embedded.list(filter.clone()).await);
            assert_eq!(shown(self.redis.list(filter).await), records);
        }
        let (mut first, mut second) =
            (self.embedded.store.status().await.unwrap(), self.redis.store.status().await.unwrap());
        for status in [&mut first, &mut second] {
            (status.bytes, status.bytes_free) = (0, 0);
        }
        // Refusals are counted soon, not at once.
        for status in [&mut first, &mut second] {
            status.invalid.clear();
            for ledger in status.ledgers.values_mut() {
                ledger.received -= std::mem::take(&mut ledger.refused);
            }
        }
        assert_eq!(second, first);
        for sink in SINKS {
            let due = self.embedded.store.next_due(sink.into()).await.unwrap();
            assert_eq!(self.redis.store.next_due(sink.into()).await.unwrap(), due);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_does_what_the_embedded_store_does() {
    for seed in 0..SEEDS {
        let window = Duration::from_mins(1);
        let options = Options { window, dead_retention: 2 * window, keep_payload: seed % 2 == 0, ..Options::default() };
        let (url, _) = fresh(&Server::shared().url());
        let embedded = crate::store::open("sqlite::memory:", &options, Access::Gateway, "".as_ref()).unwrap();
        let redis = Redis::open(&url, &options, Access::Gateway, Time::Given).unwrap();
        let mut twins = Twins {
            embedded: Bench::new(embedded),
            redis: Bench::new(Arc::new(redis) as Arc<dyn Store>),
            chance: Chance(seed),
            leases: Vec::new(),
        };
        // Both know the sinks in the same order.
        let first = twins.embedded.event_for("first", &SINKS, at(0));
        twins.embedded.accept(vec![first.clone()], at(0)).await;
        twins.redis.accept(vec![first], at(0)).await;
        let mut seconds = 0;
        for step in 0..STEPS {
            seconds += twins.chance.below(6);
            twins.step(at(seconds)).await;
            if step % 5 == 0 {
                twins.compare().await;
            }
        }
        twins.compare().await;
        assert_eq!(twins.redis.store.audit().await.unwrap(), Vec::<String>::new(), "seed {seed}");
        assert_eq!(twins.embedded.store.audit().await.unwrap(), Vec::<String>::new(), "seed {seed}");
    }
}
