//! Durable memory of events: ledger, queue and dead letters in one record each.
//!
//! [`Store`] is the contract, [`open`] the only match on backends, [`conformance`] the suite every backend passes.

mod books;
pub mod conformance;
mod embedded;
mod encoding;
mod findings;
mod held;
mod holder;
mod place;
mod postgres;
mod redis;
mod repair;
mod result;
pub mod spill;
mod traffic;
mod verdict;

#[cfg(test)]
pub(crate) use self::embedded::BACK_TO_THE_FIRST;
pub use self::holder::{HOLDER_BYTES_MAX, own_name};
pub use self::place::{
    Claim, DECISION_BYTES_MAX, KNOWN_MAX, NEIGHBOURS_BYTES_MAX, NEIGHBOURS_MAX, Neighbour, Placed, SPOT_BODY_BYTES_MAX,
    SPOT_CELLS_MAX, Spot,
};
pub use self::postgres::Joint;
#[cfg(test)]
pub(crate) use self::postgres::{open_given, tests::answer_alike};
pub use self::repair::{Origin, Repair, Repaired, own_key, successor};
pub use self::result::{RESULT_BYTES_MAX, ResultText};
pub use self::traffic::{FIELD_BYTES_MAX, FIELDS_MAX, Lag, OTHER_FIELDS, Traffic};

use crate::clock::Timestamp;
use crate::error::{Error, Kind, Result};
use crate::event::{Cause, EventId, Outcome, State};
use bytes::Bytes;
use geonce_key::{Fingerprint, Form, Version};
use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// An answer that takes time.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// What a store keeps, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long a done event's key is remembered.
    pub window: Duration,
    /// How long a dead event is kept.
    pub dead_retention: Duration,
    /// Whether payloads are kept once their event is done.
    pub keep_payload: bool,
    /// Whether a server that may lose what it has acknowledged is used all the same.
    pub accept_loss: bool,
}

impl Default for Options {
    fn default() -> Self {
        let day = Duration::from_hours(24);
        Options { window: 7 * day, dead_retention: 30 * day, keep_payload: true, accept_loss: false }
    }
}

/// Who opens a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A gateway: the only one that accepts. The embedded store refuses a second one while the first runs; a server
    /// serves many.
    Gateway,
    /// A tool beside a gateway that may be running: lists, replays, purges. It does not accept.
    Tool,
    /// A runner, beside others and beside a gateway that may be running: all a tool does, and accepts for [`RUNS`].
    Runner,
}

/// An event to be recorded.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// Its id. A stored event with this id is this event (its answer was lost on the way).
    pub id: EventId,
    /// The source it came in through.
    pub source: Arc<str>,
    /// The key it is known by: of the delivery where the sender's id counts, else the spatial one.
    pub key: Fingerprint,
    /// Further keys under which it is known; claimed with the first or not at all.
    pub aliases: Vec<Fingerprint>,
    /// Where `key` is a delivery's: the spatial fingerprints (key and aliases) of the content. A known delivery
    /// that shares none of them is a conflict. Empty otherwise.
    pub spatial: Vec<Fingerprint>,
    /// Digest of the whole content, for noticing that a duplicate differs outside its identity.
    pub content: [u8; 32],
    /// How the payload is written.
    pub form: Form,
    /// The EPSG code that the collection around the payload declared.
    pub crs: Option<u32>,
    /// The payload, byte for byte.
    pub payload: Bytes,
    /// What is to become of it.
    pub admission: Admission,
    /// Where events of one entity are delivered one after the other: its place among them.
    pub order: Option<Order>,
}

/// What is to become of a new event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is delivered on each of these routes.
    Deliver(Arc<[Route]>),
    /// It is kept as dead from the start. Replayed, it is delivered on these routes.
    Dead(Cause, Arc<[Route]>),
}

/// Where an event goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The sink.
    pub sink: Arc<str>,
    /// The sink that is served first. The work is held until then; it does not count where the event does not go there.
    /// Routes that wait for each other in a circle would be held for ever: a configuration refuses them.
    pub after: Option<Arc<str>>,
}

impl Route {
    /// Straight to `sink`.
    pub fn to(sink: &str) -> Route {
        Route { sink: sink.into(), after: None }
    }
}

/// The place of an event among those of its entity: at each sink at most one of them is ready or leased, and of those
/// that are held the one with the lowest version is next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The entity.
    pub entity: Fingerprint,
    /// Sorts as versions do; see [`Order::new`].
    pub version: Vec<u8>,
}

/// Digits of the fraction of a second that count in an order. What agrees in all of them goes in order of acceptance.
const FRACTION_DIGITS_MAX: usize = 64;

impl Order {
    /// The place of an event with this version; without one, events go in order of acceptance. No version goes before any,
    /// and numbers before times: that is of no meaning, but always the same.
    pub fn new(entity: Fingerprint, version: Option<&Version>) -> Order {
        let mut bytes = Vec::new();
        match version {
            None => bytes.push(0),
            Some(Version::Integer(number)) => {
                bytes.push(1);
                bytes.extend_from_slice(&(number ^ i128::MIN).to_be_bytes());
            }
            Some(Version::Time { seconds, fraction }) => {
                bytes.push(2);
                bytes.extend_from_slice(&(seconds ^ i64::MIN).to_be_bytes());
                bytes.extend(fraction.bytes().take(FRACTION_DIGITS_MAX));
                // Before every digit, so that a shorter fraction goes first.
                bytes.push(0);
            }
        }
        Order { entity, version: bytes }
    }
}

/// What became of an event at [`Store::accept`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Recorded, under its own id.
    Accepted,
    /// Known already.
    Duplicate {
        /// The event it is a duplicate of.
        of: EventId,
        /// Where that event is.
        state: State,
        /// What became of it, once done.
        outcome: Option<Outcome>,
        /// Whether the content differs outside the identity.
        drift: bool,
        /// Whether this delivery revived it: it had died of a transient cause.
        revived: bool,
    },
    /// A known delivery id or key with other content. Recorded as dead, code `conflict` (or, for one key with two
    /// fingerprints, `collision`), under its own id or, delivered again, under `event`.
    Conflict {
        /// The dead record of this content.
        event: EventId,
        /// The event that holds the id.
        of: EventId,
    },
}

/// The sink of what a caller does itself, with a `ledger::Ledger`. No worker serves it, and no configured sink has such a
/// name. The end of its work is a change that [`Store::changed`] tells.
pub const RUNS: &str = "@runs";

/// Which work a worker asks for.
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    /// For this sink.
    pub sink: Arc<str>,
    /// At most this many events.
    pub events_max: usize,
    /// At most this many bytes of payload, but at least one event.
    pub bytes_max: usize,
    /// For so long.
    pub duration: Duration,
    /// Only of this event.
    pub event: Option<EventId>,
    /// Who asks, for people who look into the store. At most [`HOLDER_BYTES_MAX`] bytes of it are kept.
    pub holder: Arc<str>,
}

/// Proof that a worker holds an event for a sink. A later lease of the same work has another token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The event.
    pub event: EventId,
    /// The sink.
    pub sink: Arc<str>,
    /// The fencing token.
    pub token: u64,
}

/// An event in a worker's hands.
#[derive(Clone, Debug)]
pub struct Leased {
    /// The proof.
    pub lease: Lease,
    /// The source it came in through.
    pub source: Arc<str>,
    /// The key it is known by.
    pub key: Fingerprint,
    /// Digest of the whole content.
    pub content: [u8; 32],
    /// The event that it is a repair of.
    pub origin: Option<Origin>,
    /// When it was accepted.
    pub received: Timestamp,
    /// Answers of the sink so far that count as attempts.
    pub attempts: u32,
    /// Leases of this work that lapsed: it may be what killed its worker. See [`company_max`].
    pub lapses: u32,
    /// How the payload is written.
    pub form: Form,
    /// The EPSG code that the collection around the payload declared.
    pub crs: Option<u32>,
    /// The payload.
    pub payload: Bytes,
}

/// Events of one lease that have lapsed once.
const LAPSED_EVENTS_MAX: usize = 32;

/// How many events may be leased together, by how often each has lapsed.
///
/// When a worker dies, hardly ever is one of its events to blame, and a batch is large. So after the first lapse a few
/// are tried together, and after the second each alone: what kills its worker dies of it no later, and takes few along.
pub const fn company_max(lapses: u32) -> usize {
    match lapses {
        0 => usize::MAX,
        1 => LAPSED_EVENTS_MAX,
        _ => 1,
    }
}

/// What a worker says about an event it holds.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// The proof that it holds it.
    pub lease: Lease,
    /// What is to become of the event at this sink.
    pub end: End,
}

/// The end of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The sink is served. An event is done when all its sinks are. Of several results the first is kept.
    Done(Outcome, Option<ResultText>),
    /// Try again at `at`.
    Retry {
        /// Not before this.
        at: Timestamp,
        /// What went wrong.
        cause: Cause,
        /// Whether the sink gave a real answer: only those use up attempts.
        counts: bool,
    },
    /// It cannot go on. An event is dead when one of its sinks is and the others are served.
    Dead(Cause),
}

/// Whether a settlement took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It did, durably.
    Ok,
    /// Somebody else holds the event, or nobody does: nothing was changed.
    LeaseLost,
}

/// Which events are meant. Every condition must hold; the default means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// This event.
    pub id: Option<EventId>,
    /// Known by a key that begins with these 16 bytes, or by such an alias.
    pub key: Option<[u8; 16]>,
    /// Of this source.
    pub source: Option<String>,
    /// In this state.
    pub state: Option<State>,
    /// Done with this outcome.
    pub outcome: Option<Outcome>,
    /// Dead of this code.
    pub code: Option<String>,
    /// Received at this time or later.
    pub since: Option<Timestamp>,
    /// Received before this time.
    pub until: Option<Timestamp>,
}

/// A page of events, latest first.
#[derive(Clone, Debug, Default)]
pub struct ListRequest {
    /// Which events.
    pub filter: Filter,
    /// Only events before this one (the last of the page before).
    pub before: Option<EventId>,
    /// At most this many.
    pub limit: usize,
    /// Whether payloads are wanted too.
    pub payloads: bool,
}

/// Everything a store knows about an event.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its id.
    pub id: EventId,
    /// The source it came in through.
    pub source: Arc<str>,
    /// The key it is known by.
    pub key: Fingerprint,
    /// Further fingerprints under which it is known.
    pub aliases: Vec<Fingerprint>,
    /// The spatial fingerprints of its content, where `key` is a delivery's.
    pub spatial: Vec<Fingerprint>,
    /// Digest of the whole content.
    pub content: [u8; 32],
    /// The event that it is a repair of.
    pub origin: Option<Origin>,
    /// Where it is.
    pub state: State,
    /// What became of it, once done.
    pub outcome: Option<Outcome>,
    /// What it became, once done, if whoever did it said so.
    pub result: Option<Arc<str>>,
    /// Why it is dead, or why its last attempt failed.
    pub cause: Option<Cause>,
    /// When it was accepted.
    pub received: Timestamp,
    /// When it was done, or died.
    pub settled: Option<Timestamp>,
    /// How often it was delivered again.
    pub duplicates: u64,
    /// What is left to do, sink by sink.
    pub work: Vec<Work>,
    /// How the payload is written.
    pub form: Form,
    /// The EPSG code that the collection around the payload declared.
    pub crs: Option<u32>,
    /// The payload, if it was asked for and is still kept.
    pub payload: Option<Bytes>,
}

/// What is left to do for an event at one sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// The sink.
    pub sink: Arc<str>,
    /// Ready, leased or dead.
    pub state: State,
    /// When it may be leased, or its lease lapses; [`Timestamp::MAX`] where it is held or dead.
    pub due: Timestamp,
    /// What it waits for, where it is ready but held: it is not leased before that has been served.
    pub held: Option<Held>,
    /// Answers of the sink so far that count as attempts.
    pub attempts: u32,
    /// Leases that lapsed.
    pub lapses: u32,
    /// What went wrong last.
    pub cause: Option<Cause>,
    /// Who holds it, where it is leased; of a lease that lapsed, who held it.
    pub holder: Option<Arc<str>>,
}

/// What held work waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// This sink of the same event. Where it is dead, so is the event, and the work stays held.
    Sink(Arc<str>),
    /// Another event of the same entity, at the same sink.
    Entity,
}

/// The books of one source. At every moment
/// `received = refused + duplicate + applied + stale + near + repaired + dead + purged + waiting`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Events that came in.
    pub received: u64,
    /// Answered with an error; nothing was recorded.
    pub refused: u64,
    /// Known already.
    pub duplicate: u64,
    /// Written to their sinks.
    pub applied: u64,
    /// Older than what the sink had.
    pub stale: u64,
    /// Near-duplicates that were dropped.
    pub near: u64,
    /// Superseded by their repair.
    pub repaired: u64,
    /// Dead now.
    pub dead: u64,
    /// Dead once, and purged by a person or by age.
    pub purged: u64,
    /// Ready or leased now.
    pub waiting: u64,
    /// Of the dead ones, since the beginning: same id, other content.
    pub conflict: u64,
    /// Of the duplicates: those that differ outside the identity.
    pub drift: u64,
    /// Same key, other fingerprint.
    pub collision: u64,
    /// Dead events that a redelivery revived.
    pub revived: u64,
}

impl Ledger {
    /// Received minus everything that was accounted for: zero, or events have vanished.
    pub fn difference(&self) -> i128 {
        let known = [
            self.refused,
            self.duplicate,
            self.applied,
            self.stale,
            self.near,
            self.repaired,
            self.dead,
            self.purged,
            self.waiting,
        ];
        i128::from(self.received) - known.into_iter().map(i128::from).sum::<i128>()
    }
}

/// How a store is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The books, by source.
    pub ledgers: BTreeMap<String, Ledger>,
    /// Refused events by source and code.
    pub invalid: BTreeMap<(String, String), u64>,
    /// Dead events by source and code.
    pub dead: BTreeMap<(String, String), u64>,
    /// What is known of redeliveries, by source.
    pub traffic: BTreeMap<String, Traffic>,
    /// When the event that has waited longest was received.
    pub oldest_waiting: Option<Timestamp>,
    /// Events by state: ready, leased, done, dead.
    pub states: BTreeMap<State, u64>,
    /// Keys that are remembered.
    pub keys: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Of them, bytes that are free to be used again.
    pub bytes_free: u64,
    /// How the server may lose what it has acknowledged, which was accepted in words ([`Options::accept_loss`]).
    pub risks: Vec<String>,
    /// What waits in a local journal, where there is one.
    pub spilled: Option<Spilled>,
}

/// How a journal before a store is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spilled {
    /// Whether the store is down. The books are then those of before, and what was kept since.
    pub down: bool,
    /// Events that wait in the journal.
    pub waiting: u64,
    /// Bytes that the journal uses,
    pub bytes: u64,
    /// and may use.
    pub bytes_max: u64,
}

/// Something that changes nothing but counters: mostly an event that came in and is not recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counted {
    /// It was refused, with this code.
    Refused {
        /// The source.
        source: Arc<str>,
        /// Why.
        code: String,
    },
    /// It was known to be done without asking the store.
    Duplicate {
        /// The source.
        source: Arc<str>,
        /// The event it is a duplicate of.
        of: EventId,
        /// How long after that event it came.
        lag: Lag,
    },
    /// No event: a duplicate that differs outside its identity was compared with its event.
    Compared {
        /// The source.
        source: Arc<str>,
        /// The fields in which they differ.
        fields: Vec<String>,
    },
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Done events whose window is over.
    pub forgotten: u64,
    /// Dead events whose retention is over.
    pub purged: u64,
    /// Whether there is more to do.
    pub more: bool,
}

/// Durable memory of events. Every method is atomic and, unless it says otherwise, durable when it answers.
///
/// Time is given here; stores that several gateways share use their server's clock instead.
pub trait Store: Send + Sync {
    /// Records events, or tells what is known about them. One verdict for each, in order. Duplicates within the
    /// batch are found too; all keys of an event are claimed or none; counters change with the events.
    fn accept(&self, batch: Vec<NewEvent>, now: Timestamp) -> Answer<'_, Vec<Verdict>>;

    /// Counts what is not recorded. The counts are durable soon, not on return.
    fn count(&self, counted: Vec<Counted>);

    /// What tells this store from every other, since it was made. `None` as long as it was never reached, or if it
    /// has no such thing.
    fn id(&self) -> Option<[u8; 16]> {
        None
    }

    /// Hands out work that is due, oldest first; none that is held. Work whose lease has lapsed comes with little company, and only with
    /// work that has lapsed as often: see [`company_max`].
    fn lease(&self, request: LeaseRequest, now: Timestamp) -> Answer<'_, Vec<Leased>>;

    /// Ends leases. One answer for each, in order. What was held for them is released with them.
    fn settle(&self, settlements: Vec<Settlement>, now: Timestamp) -> Answer<'_, Vec<Settled>>;

    /// Prolongs leases to `until`. One answer for each, in order.
    fn extend(&self, leases: Vec<Lease>, until: Timestamp) -> Answer<'_, Vec<Settled>>;

    /// Gives events their places among what may be near. One answer for each, in order; each is atomic, and serialised with
    /// every other that has a cell in common with it.
    ///
    /// Neighbours are those in the same scope that others are still compared with (`until`) at the time when the event came,
    /// which its id tells: however long it has waited since, it finds what was there. What is dead, done without being
    /// applied, or gone is no neighbour and loses its place; brought back, it asks again. A wrong spot refuses the call.
    fn place(&self, spots: Vec<Spot>, now: Timestamp) -> Answer<'_, Vec<Placed>>;

    /// Makes dead events ready again, with no attempts used; how many.
    fn replay(&self, filter: Filter, now: Timestamp) -> Answer<'_, u64>;

    /// Removes dead events for good; how many. Their keys are free again.
    fn purge(&self, filter: Filter, now: Timestamp) -> Answer<'_, u64>;

    /// Puts new events in the place of dead ones. One answer for each, in order: the original is done, outcome `repaired`,
    /// with a result that names the new event, and the new one is accepted as by [`Store::accept`]; both or neither. Of
    /// several repairs of one original the first counts.
    fn repair(&self, repairs: Vec<Repair>, now: Timestamp) -> Answer<'_, Vec<Repaired>>;

    /// A page of events, latest first.
    fn list(&self, request: ListRequest) -> Answer<'_, Vec<Record>>;

    /// The books and the state of the store.
    fn status(&self) -> Answer<'_, Status>;

    /// Forgets what is past its time, at most `limit` events, in steps too short to be noticed.
    fn sweep(&self, limit: usize, now: Timestamp) -> Answer<'_, Swept>;

    /// When work for `sink` may next be due: a time in the past if there is some now, `None` if there is none.
    fn next_due(&self, sink: Arc<str>) -> Answer<'_, Option<Timestamp>>;

    /// Resolves after work may have become ready, or a run has ended. Poll beside it: a tool may have replayed events.
    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Lets a sink in the store's own database settle in the transaction that writes its rows. `None` where no sink can be
    /// there.
    fn joint(&self) -> Option<Joint> {
        None
    }

    /// Told of an event that such a sink has settled.
    fn heard(&self, event: EventId, outcome: Outcome) {
        let _ = (event, outcome);
    }

    /// Compares the store with itself: structure, books against records, claims against events. Problems in words.
    fn audit(&self) -> Answer<'_, Vec<String>>;

    /// Finishes what was begun and leaves the files tidy. Later calls fail as unavailable.
    fn close(&self) -> Answer<'_, ()>;
}

/// Whether a gateway has the store at `url` to itself at this moment; others are open to many.
pub fn is_held(url: &str, folder: &Path) -> bool {
    match url.split_once(':') {
        Some(("sqlite", file)) if file != ":memory:" => embedded::is_held(&folder.join(file)),
        _ => false,
    }
}

/// Opens the store at `url`: `sqlite:file`, relative to `folder`, or `sqlite::memory:` for tests;
/// `postgresql://user@host/database?schema=name`; `redis://…`, `rediss://…`, `redis+sentinel://…` or `redis+cluster://…`.
pub fn open(url: &str, options: &Options, access: Access, folder: &Path) -> Result<Arc<dyn Store>> {
    match url.split_once(':') {
        Some(("sqlite", ":memory:")) => embedded::open(None, options, access),
        Some(("sqlite", file)) => embedded::open(Some(&folder.join(file)), options, access),
        Some(("postgresql" | "postgres", _)) => postgres::open(url, options, access),
        Some(("redis" | "rediss" | "redis+sentinel" | "redis+cluster", _)) => redis::open(url, options, access),
        _ => Err(Error::new(Kind::Invalid, format!("{url:?} is no store"))
            .hint("sqlite:geonce.db, postgresql://user@host/database or redis://host")),
    }
}
