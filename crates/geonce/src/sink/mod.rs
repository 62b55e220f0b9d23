//! Destinations. [`Sink`] is the contract, [`open`] the only match on kinds, [`conformance`] the suite that every
//! transactional sink passes.

pub(crate) mod columns;
pub mod conformance;
pub(crate) mod geopackage;
pub(crate) mod http;
mod merge;
mod ndjson;
pub(crate) mod postgis;
mod thread;
pub(crate) mod version;

pub use merge::Merge;

use crate::clock::Timestamp;
use crate::error::{Error, Kind, Result};
use crate::event::{Cause, EventId, Outcome};
use crate::store::{Answer, End, Joint, Lease, ResultText};
use bytes::Bytes;
use geonce_key::policy::Secret;
use geonce_key::{Feature, Fingerprint, Form, Pointer, Version};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How a sink is written to. Settings that a kind of sink has no use for are refused by [`open`].
#[derive(Clone, Debug)]
pub struct Options {
    /// The layer or table; by default the sink's name.
    pub layer: Option<String>,
    /// Whether every event is a row, or every entity.
    pub mode: Mode,
    /// Which properties become columns.
    pub columns: Columns,
    /// The EPSG code of the layer.
    pub crs: u32,
    /// Whether coordinate operations known to be approximate are accepted.
    pub approximate_crs: bool,
    /// For HTTP: what requests are signed with (Standard Webhooks, `whsec_…` or raw).
    pub secret: Option<Secret>,
    /// For HTTP: private or local networks that may be called, such as `10.0.0.0/8`.
    pub allow: Vec<String>,
    /// How long a write may take.
    pub timeout: Duration,
    /// For PostGIS: what a transaction sees of others beside it.
    pub isolation: Isolation,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            layer: None,
            mode: Mode::Append,
            columns: Columns::Auto { max: COLUMNS_MAX },
            crs: 4326,
            approximate_crs: false,
            secret: None,
            allow: Vec::new(),
            timeout: Duration::from_secs(30),
            isolation: Isolation::ReadCommitted,
        }
    }
}

/// The most columns that are made of properties without being asked.
pub const COLUMNS_MAX: usize = 64;

/// What a transaction sees of others beside it. Events are applied once at every level; the stricter ones are for the
/// triggers and constraints of a layer's owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// What was committed before each statement.
    #[default]
    ReadCommitted,
    /// What was committed before the transaction began.
    RepeatableRead,
    /// As if there were no others.
    Serializable,
}

impl Isolation {
    /// The words for it, the same in the configuration and in SQL.
    pub const fn as_str(self) -> &'static str {
        match self {
            Isolation::ReadCommitted => "read committed",
            Isolation::RepeatableRead => "repeatable read",
            Isolation::Serializable => "serializable",
        }
    }

    /// What a transaction begins with.
    const fn begin(self) -> &'static str {
        match self {
            Isolation::ReadCommitted => "BEGIN ISOLATION LEVEL READ COMMITTED",
            Isolation::RepeatableRead => "BEGIN ISOLATION LEVEL REPEATABLE READ",
            Isolation::Serializable => "BEGIN ISOLATION LEVEL SERIALIZABLE",
        }
    }
}

/// What a row stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// An event.
    Append,
    /// An entity, at its latest version.
    Upsert {
        /// Events have no version: the one that is written last wins. No order is claimed.
        arrival: bool,
    },
}

/// Which properties become columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Columns {
    /// Each property, as it is first seen, up to `max`; the others share a JSON column.
    Auto {
        /// At most so many.
        max: usize,
    },
    /// These: the column's name, and a JSON pointer into the Feature such as `/properties/name`.
    Declared(Vec<(String, Pointer)>),
}

/// An event on its way to a sink.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The event.
    pub event: EventId,
    /// The key it is known by: the proof of once.
    pub key: Fingerprint,
    /// The key of the event that it is a repair of. Where the sink has proof of that, or of another repair of it, there is
    /// nothing to add.
    pub origin: Option<Fingerprint>,
    /// The source it came in through.
    pub source: Arc<str>,
    /// When it was accepted.
    pub received: Timestamp,
    /// The version its source declares.
    pub version: Option<Version>,
    /// The entity it is about, for sinks that keep one row for each.
    pub entity: Option<Fingerprint>,
    /// Digest of its whole content: equal version and other content is a conflict.
    pub content: [u8; 32],
    /// Digest of everything outside its geometry, where near-duplicates are looked for.
    pub rest: Option<[u8; 16]>,
    /// What was delivered: geometry, id, properties.
    pub feature: Feature,
    /// How the payload is written.
    pub form: Form,
    /// The payload, byte for byte.
    pub payload: Bytes,
    /// The row of another event that it goes into, where it is to have none of its own.
    pub merge: Option<Merge>,
}

impl Outgoing {
    /// Brings it into the coordinate system of a layer, and refuses or leaves out what has no place in one of this mode.
    fn place(&mut self, mode: Mode, crs: u32, approximate_crs: bool) -> std::result::Result<(), Cause> {
        if mode != Mode::Append && self.merge.is_some() {
            return Err(merge::no_place());
        }
        if self.deletes(mode) {
            // No row is made of it, so nothing of it can fail to fit one.
            self.feature.geometry = None;
            self.feature.id = None;
            self.feature.properties.clear();
            return Ok(());
        }
        self.feature.place(crs, approximate_crs).map_err(|error| Cause::from(&error))?;
        self.feature.orient();
        Ok(())
    }

    /// Whether it takes away the row of its entity.
    fn deletes(&self, mode: Mode) -> bool {
        mode != Mode::Append && self.feature.deleted
    }
}

/// What became of one event at a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is there, durably: now or from an earlier write.
    Done(Outcome),
    /// It was applied, and this is what it became, where that is no row.
    Became(ResultText),
    /// Not now.
    Retry {
        /// What went wrong.
        cause: Cause,
        /// Not before this long, if the sink said so.
        after: Option<Duration>,
        /// Whether this was a real answer to this event; silence is none.
        counts: bool,
    },
    /// Never as it is.
    Dead(Cause),
}

/// What it takes to settle events where they are written.
pub struct Settling<'a> {
    /// The store's part of it.
    pub joint: Joint,
    /// The leases of the events, in order.
    pub leases: Vec<Lease>,
    /// How the lease of this event of the batch ends after such an answer; `None` where that is to be decided later.
    pub end: &'a (dyn Fn(usize, &Written) -> Option<End> + Sync),
    /// The time.
    pub now: Timestamp,
}

/// What became of one event at a sink, and whether its lease was ended there too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// What the sink says.
    pub written: Written,
    /// Whether the store has been told, in the same transaction.
    pub settled: bool,
}

impl Delivered {
    /// Written, and not settled.
    pub fn only(written: Vec<Written>) -> Vec<Delivered> {
        written.into_iter().map(|written| Delivered { written, settled: false }).collect()
    }
}

/// A sink's own proof that it has applied an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The event's key.
    pub key: [u8; 16],
    /// The event.
    pub event: EventId,
}

/// A destination. Writing the same event twice leaves the same result as once.
pub trait Sink: Send + Sync {
    /// Makes sure that it can be written to, creating what may be created. What a person should know, in words.
    fn check(&self) -> Answer<'_, Vec<String>>;

    /// Writes events: one answer for each, in order. One bad event never fails its batch. An error means that
    /// nothing is known about any of them: they are written again.
    fn write(&self, batch: Vec<Outgoing>) -> Answer<'_, Vec<Written>>;

    /// Writes events as [`Sink::write`] does and, where sink and store are in one database, ends their leases in the same
    /// transaction. What is not said to be settled is still to be settled.
    fn write_and_settle<'a>(&'a self, batch: Vec<Outgoing>, settling: Settling<'a>) -> Answer<'a, Vec<Delivered>> {
        drop(settling);
        Box::pin(async move { self.write(batch).await.map(Delivered::only) })
    }

    /// Which of these keys it has proof of. `None` where it keeps none.
    fn proofs(&self, keys: Vec<Fingerprint>) -> Answer<'_, Option<Vec<bool>>>;

    /// A page of the proofs it keeps, by key, after `after`. `None` where it keeps none.
    fn applied(&self, after: Option<[u8; 16]>, limit: usize) -> Answer<'_, Option<Vec<Proof>>>;

    /// Where its rows are, such as `public.zones`: what a done event became is there, under its key. `None` where nobody
    /// could look.
    fn place(&self) -> Option<String> {
        None
    }

    /// Finishes what was begun and leaves files tidy.
    fn close(&self) -> Answer<'_, ()>;
}

/// Opens the sink at `url`: `gpkg:file`, `ndjson:file`, `postgresql://…`, `http://…` or `https://…`. Files are relative to
/// `folder`.
pub fn open(name: &str, url: &str, options: &Options, folder: &Path) -> Result<Arc<dyn Sink>> {
    let of_databases = options.isolation != Isolation::default();
    if of_databases && !url.starts_with("postgres") {
        return Err(Error::new(Kind::Invalid, format!("sink {name}: isolation means nothing but for PostGIS")));
    }
    match url.split_once(':') {
        Some(("gpkg", file)) => geopackage::open(name, &folder.join(file), options),
        Some(("ndjson", file)) => ndjson::open(name, &folder.join(file), options),
        Some(("http" | "https", _)) => http::open(name, url, options),
        Some(("postgresql" | "postgres", _)) => postgis::open(name, url, options),
        _ => Err(Error::new(Kind::Invalid, format!("sink {name}: {url:?} is no sink"))
            .hint("gpkg:features.gpkg, ndjson:events.ndjson, postgresql://…, https://…")),
    }
}
