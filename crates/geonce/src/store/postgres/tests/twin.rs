//! Random sequences of operations on two stores, an embedded one and this one: they must answer alike.

use super::given;
use crate::event::{Class, Ids, Outcome, State};
use crate::store::conformance::{at, cause, key, order, routes};
use crate::store::{
    Access, Admission, Claim, Counted, End, Filter, Lease, LeaseRequest, Leased, ListRequest, NewEvent, Options,
    Record, Repair, ResultText, Settlement, Spot, Store,
};
use bytes::Bytes;
use geonce_key::{Fingerprint, Form};
use geonce_services::Postgres as Server;
use std::sync::Arc;
use std::time::Duration;

const STEPS: usize = 300;
/// Which sequence is tried; `GEONCE_SEED` tries another. Two stores once disagreed about this one.
const SEED: u64 = 4_247_978_862_507_827_457;
const WINDOW: Duration = Duration::from_mins(1);

/// A sequence of numbers that its seed decides.
struct Chance(u64);

impl Chance {
    /// A number below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) % limit
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()].clone()
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

const CLASSES: [Class; 3] = [Class::Geometry, Class::Unavailable, Class::Conflict];

struct Twins {
    stores: [Arc<dyn Store>; 2],
    chance: Chance,
    ids: Ids,
    leases: Vec<[Lease; 2]>,
    sent: Vec<NewEvent>,
    seconds: u64,
}

fn fingerprint(chance: &mut Chance) -> Fingerprint {
    let fingerprint = key(&format!("key {}", chance.below(16)));
    // Now and then one that collides with another in its first half.
    let mut digest = *fingerprint.digest();
    digest[31] ^= u8::from(chance.one_in(25));
    Fingerprint::from_digest(digest, false)
}

impl Twins {
    fn event(&mut self) -> NewEvent {
        let chance = &mut self.chance;
        if chance.one_in(12) && !self.sent.is_empty() {
            return chance.pick(&self.sent);
        }
        let sinks = chance.pick(&[
            vec!["map"],
            vec!["map"],
            vec!["map", "log"],
            vec!["map", "log<map"],
            vec!["map<log", "log"],
            vec!["log"],
            vec![],
        ]);
        let sinks = routes(&sinks);
        let aliases: Vec<Fingerprint> = (0..chance.below(3)).map(|_| fingerprint(chance)).collect();
        let spatial = if chance.one_in(4) { vec![key(&format!("place {}", chance.below(3)))] } else { vec![] };
        let event = NewEvent {
            id: self.ids.next(at(self.seconds)),
            source: chance.pick(&["survey", "sensors"]).into(),
            key: fingerprint(chance),
            aliases,
            spatial,
            content: [u8::try_from(chance.below(3)).unwrap(); 32],
            form: chance.pick(&[Form::Json, Form::Wkt]),
            crs: chance.pick(&[None, Some(25_832)]),
            payload: Bytes::from(vec![b'x'; usize::try_from(chance.below(50)).unwrap()]),
            admission: if chance.one_in(8) {
                Admission::Dead(cause(chance.pick(&CLASSES)), sinks)
            } else {
                Admission::Deliver(sinks)
            },
            order: if chance.one_in(2) {
                Some(order(&format!("entity {}", chance.below(4)), chance.below(4)))
            } else {
                None
            },
        };
        self.sent.push(event.clone());
        event
    }

    /// An event is sent again when its answer was lost, not after it was forgotten.
    async fn forget_gone(&mut self) {
        let request = ListRequest { filter: Filter::default(), before: None, limit: 5_000, payloads: false };
        let known: Vec<_> = self.stores[1].list(request).await.unwrap().iter().map(|record| record.id).collect();
        self.sent.retain(|event| known.contains(&event.id));
    }

    async fn step(&mut self) {
        let now = at(self.seconds);
        let [one, two] = self.stores.clone();
        match self.chance.below(21) {
            0..=4 => {
                let batch: Vec<NewEvent> = (0..=self.chance.below(6)).map(|_| self.event()).collect();
                let answers = (one.accept(batch.clone(), now).await.unwrap(), two.accept(batch, now).await.unwrap());
                assert_eq!(answers.0, answers.1);
            }
            5..=7 => self.lease().await,
            8..=10 => self.settle().await,
            11 => {
                let lease = self.chance.pick(&self.leases_or_none());
                let until = now.plus(Duration::from_secs(90));
                if let Some([a, b]) = lease {
                    let answers =
                        (one.extend(vec![a], until).await.unwrap(), two.extend(vec![b], until).await.unwrap());
                    assert_eq!(answers.0, answers.1);
                }
            }
            12 => {
                let code = self.chance.pick(&[None, Some("unavailable".to_owned())]);
                let wanted = self.chance.pick(&[None, Some(key("key 3").key())]);
                let filter = Filter { code, key: wanted, ..Filter::default() };
                let answers = if self.chance.one_in(2) {
                    (one.replay(filter.clone(), now).await.unwrap(), two.replay(filter, now).await.unwrap())
                } else {
                    (one.purge(filter.clone(), now).await.unwrap(), two.purge(filter, now).await.unwrap())
                };
                assert_eq!(answers.0, answers.1);
                self.forget_gone().await;
            }
            13 => {
                let answers = (one.sweep(1_000, now).await.unwrap(), two.sweep(1_000, now).await.unwrap());
                assert_eq!(answers.0, answers.1);
                self.forget_gone().await;
            }
            14 => {
                for store in [one, two] {
                    store.count(vec![Counted::Refused { source: "survey".into(), code: "json_syntax".into() }]);
                    store.accept(Vec::new(), now).await.unwrap();
                }
            }
            15..=17 => self.place().await,
            18 | 19 => self.repair().await,
            _ => self.seconds += self.chance.below(40),
        }
    }

    async fn place(&mut self) {
        let chance = &mut self.chance;
        let mut spots = Vec::new();
        for _ in 0..chance.below(6).min(self.sent.len() as u64) {
            let event = chance.pick(&self.sent).id;
            let home = chance.below(6);
            let cells = (home.saturating_sub(chance.below(2))..=home + chance.below(3)).collect();
            let claim = match chance.below(8) {
                0 => Claim::Anyway,
                1 => Claim::Decided(format!("near {home}").into()),
                _ => Claim::Unless((0..chance.below(4)).map(|_| chance.pick(&self.sent).id).collect()),
            };
            let body = Bytes::from(format!("{event}"));
            let (scope, until) = ([u8::from(chance.one_in(4)); 16], at(self.seconds + chance.below(120)));
            spots.push(Spot { event, scope, cells, home, body, until, claim });
        }
        let [one, two] = &self.stores;
        let now = at(self.seconds);
        assert_eq!(one.place(spots.clone(), now).await.unwrap(), two.place(spots, now).await.unwrap());
    }

    async fn repair(&mut self) {
        let now = at(self.seconds);
        // Mostly of the dead.
        let state = (!self.chance.one_in(6)).then_some(State::Dead);
        let request =
            ListRequest { filter: Filter { state, ..Filter::default() }, before: None, limit: 20, payloads: false };
        let found: Vec<_> = self.stores[0].list(request).await.unwrap().iter().map(|record| record.id).collect();
        if found.is_empty() {
            return;
        }
        let mut repairs = Vec::new();
        for _ in 0..=self.chance.below(3) {
            let event = NewEvent { id: self.ids.next(now), ..self.event() };
            repairs.push(Repair { original: self.chance.pick(&found), event });
        }
        // Once more, as after an answer that was lost.
        for _ in 0..2 {
            let [one, two] = &self.stores;
            let answers = (one.repair(repairs.clone(), now).await, two.repair(repairs.clone(), now).await);
            assert_eq!(answers.0.unwrap(), answers.1.unwrap(), "{repairs:?}");
        }
    }

    fn leases_or_none(&self) -> Vec<Option<[Lease; 2]>> {
        std::iter::once(None).chain(self.leases.iter().cloned().map(Some)).collect()
    }

    async fn lease(&mut self) {
        let request = LeaseRequest {
            sink: self.chance.pick(&["map", "log"]).into(),
            events_max: usize::try_from(1 + self.chance.below(6)).unwrap(),
            bytes_max: usize::try_from(10 + self.chance.below(100)).unwrap(),
            duration: Duration::from_secs(30),
            event: None,
            holder: "test".into(),
        };
        let [one, two] = &self.stores;
        let ones = one.lease(request.clone(), at(self.seconds)).await.unwrap();
        let twos = two.lease(request, at(self.seconds)).await.unwrap();
        let shown = |leased: &[Leased]| -> Vec<String> {
            let plain =
                |leased: &Leased| Leased { lease: Lease { token: 0, ..leased.lease.clone() }, ..leased.clone() };
            leased.iter().map(|leased| format!("{:?}", plain(leased))).collect()
        };
        assert_eq!(shown(&ones), shown(&twos));
        self.leases.extend(ones.into_iter().zip(twos).map(|(one, two)| [one.lease, two.lease]));
    }

    async fn settle(&mut self) {
        let now = at(self.seconds);
        let (mut ones, mut twos) = (Vec::new(), Vec::new());
        for _ in 0..=self.chance.below(4) {
            let recent = &self.leases[self.leases.len().saturating_sub(12)..];
            if recent.is_empty() {
                return;
            }
            let [one, two] = self.chance.pick(recent);
            let (class, counts) = (self.chance.pick(&CLASSES), self.chance.one_in(2));
            let wait = Duration::from_secs(self.chance.below(20));
            let end = match self.chance.below(7) {
                0..=1 => End::Done(self.chance.pick(Outcome::ALL), None),
                2 => End::Done(Outcome::Applied, Some(ResultText::row("map", "public.map"))),
                3 => End::Done(Outcome::Applied, ResultText::new("{\"rows\":2}").ok()),
                4 => End::Retry { at: now.plus(wait), cause: cause(class), counts },
                _ => End::Dead(cause(class)),
            };
            ones.push(Settlement { lease: one, end: end.clone() });
            twos.push(Settlement { lease: two, end });
        }
        let [one, two] = &self.stores;
        assert_eq!(one.settle(ones, now).await.unwrap(), two.settle(twos, now).await.unwrap());
    }

    async fn compare(&self) {
        let mut seen = Vec::new();
        for store in &self.stores {
            let mut status = store.status().await.unwrap();
            (status.bytes, status.bytes_free) = (0, 0);
            let mut filters = vec![Filter::default()];
            filters.extend(State::ALL.iter().map(|&state| Filter { state: Some(state), ..Filter::default() }));
            let mut lists = Vec::new();
            for filter in filters {
                let request = ListRequest { filter, before: None, limit: 500, payloads: true };
                let mut records: Vec<Record> = store.list(request).await.unwrap();
                for record in &mut records {
                    record.work.sort_by(|a, b| a.sink.cmp(&b.sink));
                    // Of several sinks, which failure is shown for an open event is each store's own choice.
                    if record.state != State::Dead {
                        record.cause = None;
                    }
                }
                lists.push(records.iter().map(|record| format!("{record:?}")).collect::<Vec<_>>());
            }
            seen.push((status, lists));
        }
        let (one, two) = (&seen[0], &seen[1]);
        assert_eq!(one.0, two.0);
        assert_eq!(one.1, two.1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_answers_as_the_embedded_store_does() {
    answer_alike(async |options| given(&Server::shared().database(), &options), STEPS).await;
}

/// Does the same things to an embedded store and to one that `make` makes; they must answer alike.
pub(crate) async fn answer_alike(make: impl AsyncFn(Options) -> Arc<dyn Store>, steps: usize) {
    let seed = std::env::var("GEONCE_SEED").map_or(SEED, |text| text.parse().unwrap());
    println!("seed {seed}");
    let options = Options { window: WINDOW, dead_retention: 2 * WINDOW, ..Options::default() };
    let embedded = crate::store::open("sqlite::memory:", &options, Access::Gateway, "".as_ref()).unwrap();
    let stores = [embedded, make(options).await];
    let chance = Chance(seed);
    let mut twins = Twins { stores, chance, ids: Ids::new(), leases: Vec::new(), sent: Vec::new(), seconds: 0 };
    // Of several causes of death the first sink's counts. The embedded store orders sinks by when it first saw them.
    let first = NewEvent { key: key("first"), admission: Admission::Deliver(routes(&["log", "map"])), ..twins.event() };
    // What was sent under this id has another key: it is not to be sent again.
    twins.sent.clear();
    for store in &twins.stores {
        store.accept(vec![first.clone()], at(0)).await.unwrap();
    }
    for step in 0..steps {
        twins.step().await;
        if step % 8 == 0 {
            twins.compare().await;
        }
    }
    twins.compare().await;
    println!("{:?}", twins.stores[1].status().await.unwrap().ledgers);
    for store in &twins.stores {
        assert_eq!(store.audit().await.unwrap(), Vec::<String>::new());
    }
}
