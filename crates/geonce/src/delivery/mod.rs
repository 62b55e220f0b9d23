//! Brings recorded events to their sinks: leases batches, writes them, settles what became of each.
//!
//! Policy lives here, once for all backends: batch sizes, attempts, waits, when an event is dead. A sink is written
//! first and the store settled second; a crash between the two repeats a write that the sink's own proof makes harmless.

mod decode;
mod late;
pub mod near;
mod worker;

pub use worker::run;

use crate::clock::Clock;
use crate::event::{Cause, EventId};
use crate::intake::Pressure;
use crate::retry::{Breaker, Retry};
use crate::sink::Sink;
use crate::store::Store;
use geonce_key::Policy;
use geonce_key::policy::Field;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Events in one batch, unless a sink says otherwise. A file's transaction touches pages all over its indexes: the more
/// events share one, the less each costs.
pub const BATCH_EVENTS_MAX: usize = 2_048;

/// Payload bytes in one batch.
pub const BATCH_BYTES_MAX: usize = 8 << 20;

/// Events that are leased or settled in one go: new events must not wait long behind them,
pub const SLICE_EVENTS_MAX: usize = 512;

/// least of all while many senders wait.
pub const PRESSED_SLICE_EVENTS_MAX: usize = 128;

/// How long a lease lasts before it must be extended, unless the configuration says otherwise.
pub const LEASE: Duration = Duration::from_mins(1);

/// Leases of one event that may lapse before it is dead: it keeps killing its worker.
pub const LAPSES_MAX: u32 = 5;

/// Workers of one sink: while one writes, the other leases, decodes or settles.
pub const WORKERS: usize = 2;

/// How long a worker lets events gather after a batch that was not full.
pub const GATHER: Duration = Duration::from_millis(200);

/// While many senders wait, a worker rests this many times as long as it worked, so that delivery keeps a share,
pub const REST: u32 = 3;

/// but never longer than this.
pub const REST_MAX: Duration = Duration::from_secs(2);

/// How long a worker waits before it looks again by itself: a tool may have replayed events.
pub const POLL: Duration = Duration::from_secs(1);

/// How long an event waits at least for one that it is near to, and that another worker is about to write.
pub const NEAR_WAIT: Duration = Duration::from_millis(50);

/// A sink and how it is served.
pub struct Destination {
    /// Its name.
    pub name: Arc<str>,
    /// The sink.
    pub sink: Arc<dyn Sink>,
    /// When to try again.
    pub retry: Retry,
    /// What names an entity here; by default the source's identity.
    pub entity: Option<Vec<Field>>,
    /// Events in one batch.
    pub batch_events_max: usize,
    breaker: Mutex<Breaker>,
}

impl Destination {
    /// A destination with the usual settings.
    pub fn new(name: &str, sink: Arc<dyn Sink>) -> Destination {
        Destination {
            name: name.into(),
            sink,
            retry: Retry::default(),
            entity: None,
            batch_events_max: BATCH_EVENTS_MAX,
            breaker: Mutex::new(Breaker::default()),
        }
    }

    /// Whether the sink is being left alone because it cannot be reached.
    pub fn is_held_back(&self) -> bool {
        self.breaker().is_open()
    }

    fn breaker(&self) -> std::sync::MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What all workers share.
pub struct Delivery {
    /// Where events are kept.
    pub store: Arc<dyn Store>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// The policies of all sources, by name.
    pub policies: HashMap<Arc<str>, Policy>,
    /// What is near in which source, where near-duplicates are looked for.
    pub near: HashMap<Arc<str>, near::Near>,
    /// How long before its arrival an event's version may be, of the sources where that matters.
    pub lateness: HashMap<Arc<str>, Duration>,
    /// How long a lease lasts. What a worker held that died is given to another after this.
    pub lease: Duration,
    /// The name under which leases are held.
    pub holder: Arc<str>,
    /// Who is told what happens.
    pub observer: Arc<dyn Observer>,
    /// Whether senders wait: delivering what is durable gives way to them.
    pub pressure: Arc<Pressure>,
}

/// Told what happens at sinks, for metrics and logs.
pub trait Observer: Send + Sync {
    /// One event's attempt ended: `applied`, `stale`, `near`, `repaired`, `retry`, `dead` or `lease_lost`; and why it is not done.
    fn attempt(&self, sink: &str, event: EventId, result: &'static str, cause: Option<&Cause>);

    /// A batch was written, or failed to be, in so long.
    fn wrote(&self, sink: &str, events: usize, took: Duration);

    /// Something went wrong that no single event is to blame for.
    fn trouble(&self, sink: &str, error: &crate::Error);
}

/// Tells nobody.
pub struct Unobserved;

impl Observer for Unobserved {
    fn attempt(&self, _sink: &str, _event: EventId, _result: &'static str, _cause: Option<&Cause>) {}
    fn wrote(&self, _sink: &str, _events: usize, _took: Duration) {}
    fn trouble(&self, _sink: &str, _error: &crate::Error) {}
}

#[cfg(test)]
mod tests;
