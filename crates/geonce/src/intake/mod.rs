//! From a request's body to recorded events: split, key, check, accept. The answer names what became of each feature.
//!
//! A request is recorded whole or not at all: features that are refused beside good ones are kept as dead, and a
//! request whose features are all refused leaves nothing but a count.

mod announced;
mod delivery_id;
mod drift;
mod gaps;
mod mend;
pub mod preset;
mod read;

pub use announced::Announced;
pub use delivery_id::DeliveryId;
pub use gaps::GAP;
pub use preset::Preset;

use crate::clock::{Clock, Stopwatch, Timestamp};
use crate::error::{Error, Kind};
use crate::event::{Cause, Class, EventId, Ids, Outcome, State};
use crate::signature::Verifier;
use crate::store::{Admission, Counted, NewEvent, Route, Store, Verdict};
use bytes::Bytes;
use drift::{Drift, SAMPLED_MAX, Sample};
use gaps::Gaps;
use geonce_key::split::Format;
use geonce_key::{Fingerprint, Keyer, Policy, Reader, Warning};
use hyper::HeaderMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Bodies up to this size are keyed where they are received; larger ones would hold up other requests.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// How far ahead of our clock a version may be: one wrong clock would otherwise freeze an entity.
pub(crate) const VERSION_AHEAD_MAX: Duration = Duration::from_hours(24);

/// Which events a sender's own id identifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identify {
    /// Those that come with an id that can be trusted; others by their spatial key.
    Auto,
    /// None: always the spatial key.
    Spatial,
    /// All: a delivery without an id is refused.
    Delivery,
}

/// What becomes of geometries that are not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// They are refused.
    Reject,
    /// They are kept as dead, to be repaired.
    Dead,
    /// They are kept as dead and repaired on the grid at once, as events of their own.
    Repair,
}

/// Where events come in.
pub struct Source {
    /// Its name.
    pub name: Arc<str>,
    /// How its keys are made.
    pub policy: Policy,
    /// Whether senders' ids count.
    pub identify: Identify,
    /// What proves that a request comes from its sender; `None` where unsigned requests are allowed in words.
    pub verify: Option<Verifier>,
    /// What becomes of geometries that are not valid.
    pub invalid: Invalid,
    /// Where its events go.
    pub routes: Arc<[Route]>,
    /// Whether events of one entity are delivered one after the other, lowest version first. What names the entity is the
    /// policy's identity.
    pub ordered: bool,
    /// At most so many features in one request.
    pub features_max: usize,
    /// How requests are laid out.
    pub preset: Preset,
    /// What becomes of announcements, where the changes that they announce are fetched.
    pub announced: Option<Announced>,
    /// Which changes its sender has announced.
    gaps: Gaps,
    /// In which fields its duplicates differ.
    drift: Drift,
    /// Keyers that are not in use, with their memory.
    keyers: Keyers,
}

#[derive(Default)]
struct Keyers(Mutex<Vec<Tools>>);

/// What reads one payload at a time.
struct Tools {
    keyer: Keyer,
    /// Finds entities, once that was asked for.
    reader: Option<Reader>,
}

impl Source {
    /// A source with this policy, delivering to `sinks`; unsigned, until `verify` is set.
    pub fn new(name: &str, policy: Policy, sinks: &[String]) -> geonce_key::Result<Source> {
        let first = Keyer::new(&policy)?;
        Ok(Source {
            name: name.into(),
            policy,
            identify: Identify::Auto,
            verify: None,
            invalid: Invalid::Reject,
            routes: sinks.iter().map(|sink| Route::to(sink)).collect(),
            ordered: false,
            features_max: FEATURES_MAX,
            preset: Preset::Geojson,
            announced: None,
            gaps: Gaps::default(),
            drift: Drift::default(),
            keyers: Keyers(Mutex::new(vec![Tools { keyer: first, reader: None }])),
        })
    }

    /// Lends a keyer. One that a panic has interrupted is not taken back.
    fn with_keyer<T>(&self, run: impl FnOnce(&mut Tools) -> T) -> Result<T, Fault> {
        let fault = |error: geonce_key::Error| Fault::from(&error);
        let free = self.keyers.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut tools = match free {
            Some(tools) => tools,
            None => Tools { keyer: Keyer::new(&self.policy).map_err(fault)?, reader: None },
        };
        if self.ordered && tools.reader.is_none() {
            tools.reader = Some(Reader::new(&self.policy, None).map_err(fault)?);
        }
        let result = run(&mut tools);
        self.keyers.0.lock().unwrap_or_else(PoisonError::into_inner).push(tools);
        Ok(result)
    }
}

/// Features in one request, unless a source says otherwise.
pub const FEATURES_MAX: usize = 100_000;

/// What arrived.
#[derive(Clone, Debug, Default)]
pub struct Arrival {
    /// The body, inflated.
    pub body: Bytes,
    /// How it is divided into features.
    pub format: Format,
    /// The sender's id for it, where that counts.
    pub delivery: Option<DeliveryId>,
    /// The request's headers, for presets that read them.
    pub headers: HeaderMap,
}

/// Why a feature, or a whole request, is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which sort of reason.
    pub class: Class,
    /// A stable code.
    pub code: String,
    /// Where, as a JSON pointer.
    pub pointer: String,
    /// One sentence for people.
    pub message: String,
    /// What would mend it.
    pub hint: Option<String>,
}

impl Fault {
    fn new(class: Class, code: &str, message: impl Into<String>) -> Fault {
        Fault { class, code: code.to_owned(), pointer: String::new(), message: message.into(), hint: None }
    }

    fn with_hint(self, hint: &str) -> Fault {
        Fault { hint: Some(hint.to_owned()), ..self }
    }

    fn into_cause(self) -> Cause {
        Cause { class: self.class, code: self.code, pointer: self.pointer, message: self.message }
    }
}

impl From<&geonce_key::Error> for Fault {
    fn from(error: &geonce_key::Error) -> Fault {
        let Cause { class, code, pointer, message } = error.into();
        Fault { class, code, pointer, message, hint: error.hint_text().map(str::to_owned) }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.message, self.code)
    }
}

/// What became of a request.
#[derive(Clone, Debug)]
pub struct Receipt {
    /// Whether it could hold several features: a collection, lines, a sequence.
    pub several: bool,
    /// What became of each feature, in order.
    pub features: Vec<FeatureReceipt>,
    /// Time spent on keys.
    pub keying: Duration,
    /// Time spent in the store.
    pub storing: Duration,
}

/// What became of one feature.
#[derive(Clone, Debug)]
pub enum FeatureReceipt {
    /// Recorded.
    Accepted {
        /// Its id.
        event: EventId,
        /// Its key.
        key: Fingerprint,
        /// What is odd about it.
        warnings: Vec<Warning>,
    },
    /// Known already.
    Duplicate {
        /// The event it is a duplicate of.
        of: EventId,
        /// Its key.
        key: Fingerprint,
        /// Where that event is.
        state: State,
        /// What became of it, once done.
        outcome: Option<Outcome>,
        /// Whether the content differs outside the identity.
        drift: bool,
        /// Whether this delivery revived it.
        revived: bool,
    },
    /// Known id, other content: kept as dead.
    Conflict {
        /// The dead record.
        event: EventId,
        /// The event that holds the id.
        of: EventId,
        /// The key both have.
        key: Fingerprint,
    },
    /// Refused. Where others of the request were taken, it is kept as dead.
    Refused {
        /// Why.
        fault: Fault,
        /// Its line, or its number in the collection, from 1.
        line: u64,
        /// The dead record.
        kept: Option<EventId>,
    },
}

/// Why a request came to nothing. Nothing was recorded, or (a store that fails) nothing is known to be.
#[derive(Debug)]
pub enum Refused {
    /// It cannot be read, or holds too much.
    Payload(Fault),
    /// The store failed.
    Store(Error),
}

/// Whether many requests wait for the store. Delivery gives way while they do.
#[derive(Debug)]
pub struct Pressure {
    waiting: AtomicUsize,
    began: Stopwatch,
    /// When many waited last, in milliseconds since the beginning.
    many_at: AtomicU64,
}

/// So many requests wait in earnest: fewer share one commit anyway.
const WAITING_MANY: usize = 16;

/// How long pressure is remembered: right after each commit nobody waits for a moment.
const PRESSURE_MILLIS: u64 = 50;

impl Pressure {
    /// Whether many wait, or did a moment ago.
    pub fn is_high(&self) -> bool {
        self.millis().saturating_sub(self.many_at.load(Ordering::Relaxed)) < PRESSURE_MILLIS
    }

    /// One more waits, until the guard is dropped.
    fn one_more(&self) -> Waiting<'_> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MANY {
            self.many_at.store(self.millis(), Ordering::Relaxed);
        }
        Waiting(self)
    }

    fn millis(&self) -> u64 {
        // Begins late enough for the zero of `many_at` to be long ago.
        let since = self.began.elapsed().as_millis();
        u64::try_from(since).unwrap_or(u64::MAX).saturating_add(PRESSURE_MILLIS)
    }
}

impl Default for Pressure {
    fn default() -> Pressure {
        Pressure { waiting: AtomicUsize::new(0), began: Stopwatch::start(), many_at: AtomicU64::new(0) }
    }
}

struct Waiting<'a>(&'a Pressure);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes requests in.
pub struct Intake {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ids: Ids,
    pressure: Arc<Pressure>,
}

impl Intake {
    /// Records into `store`.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Intake {
        Intake { store, clock, ids: Ids::new(), pressure: Arc::default() }
    }

    /// How many requests wait.
    pub fn pressure(&self) -> Arc<Pressure> {
        Arc::clone(&self.pressure)
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Splits, keys and records what arrived. What this returns is durable.
    pub async fn receive(&self, source: &Arc<Source>, arrival: Arrival) -> Result<Receipt, Refused> {
        let watch = Stopwatch::start();
        let now = self.clock.now();
        let read = if arrival.body.len() <= INLINE_BYTES_MAX {
            read::read(source, &arrival, now)
        } else {
            let (source, arrival) = (Arc::clone(source), arrival);
            let task = tokio::task::spawn_blocking(move || read::read(&source, &arrival, now));
            task.await.unwrap_or_else(|_| Err(Fault::new(Class::Internal, "internal", "reading the request failed")))
        };
        let read = read.map_err(|fault| self.refuse_whole(source, fault))?;
        let keying = watch.elapsed();
        let mut receipt = self.record(source, read, now).await?;
        receipt.keying = keying;
        receipt.storing = watch.elapsed().saturating_sub(keying);
        Ok(receipt)
    }

    fn refuse_whole(&self, source: &Source, fault: Fault) -> Refused {
        self.store.count(vec![Counted::Refused { source: Arc::clone(&source.name), code: fault.code.clone() }]);
        Refused::Payload(fault)
    }

    async fn record(&self, source: &Arc<Source>, read: read::Read, now: Timestamp) -> Result<Receipt, Refused> {
        let several = read.several;
        if read.features.is_empty() {
            return Ok(Receipt { several, features: Vec::new(), keying: Duration::ZERO, storing: Duration::ZERO });
        }
        if !read.fetched && read.features.iter().all(|feature| feature.keyed.is_err()) {
            return Ok(self.refuse_all(source, read));
        }
        let mut events = Vec::with_capacity(read.features.len());
        let mut rest = Vec::with_capacity(read.features.len());
        for feature in read.features {
            let id = self.ids.next(now);
            let announced = source.announced.as_ref().filter(|_| feature.announces);
            let routes = Arc::clone(announced.map_or(&source.routes, |announced| &announced.routes));
            let (key, after) = match feature.keyed {
                Ok(keyed) => {
                    let refused = keyed.invalid.clone().map(|fault| (fault, feature.line));
                    let admission = match keyed.invalid {
                        Some(fault) => Admission::Dead(fault.into_cause(), routes),
                        None => Admission::Deliver(routes),
                    };
                    let key = (keyed.key, keyed.aliases, keyed.spatial, keyed.content, admission, keyed.order);
                    let invalid = refused.is_some();
                    (key, After { id, key: keyed.key, warnings: keyed.warnings, refused, invalid })
                }
                Err(fault) => {
                    let key = read::refused_key(&source.policy.scope, &feature.payload);
                    let admission = Admission::Dead(fault.clone().into_cause(), routes);
                    let after =
                        After { id, key, warnings: Vec::new(), refused: Some((fault, feature.line)), invalid: false };
                    ((key, Vec::new(), Vec::new(), *key.digest(), admission, None), after)
                }
            };
            let (key, aliases, spatial, content, admission, order) = key;
            rest.push(after);
            events.push(NewEvent {
                id,
                source: Arc::clone(&source.name),
                key,
                aliases,
                spatial,
                content,
                form: feature.form,
                crs: feature.crs,
                payload: feature.payload,
                admission,
                order,
            });
        }
        let sampled = if source.drift.is_due(now) { SAMPLED_MAX } else { 0 };
        let samples = events.iter().take(sampled).map(Sample::of).collect();
        let waiting = self.pressure.one_more();
        let verdicts = self.store.accept(events, now).await.map_err(Refused::Store)?;
        drop(waiting);
        if verdicts.len() != rest.len() {
            let message = format!("recording {} events: the store gave {} verdicts", rest.len(), verdicts.len());
            return Err(Refused::Store(Error::new(Kind::Internal, message)));
        }
        drift::notice(&self.store, source, samples, &verdicts, now);
        let kept: Vec<_> = rest.iter().map(|after| (after.id, after.key, after.invalid)).collect();
        let receipts = rest.into_iter().zip(&verdicts).map(|(after, verdict)| after.receipt(*verdict));
        let mut features: Vec<FeatureReceipt> = receipts.collect();
        if source.invalid == Invalid::Repair && kept.iter().any(|(.., invalid)| *invalid) {
            self.mend(source, &kept, &verdicts, &mut features, now).await;
        }
        Ok(Receipt { several, features, keying: Duration::ZERO, storing: Duration::ZERO })
    }

    fn refuse_all(&self, source: &Source, read: read::Read) -> Receipt {
        let mut refusals = Vec::with_capacity(read.features.len());
        let mut features = Vec::with_capacity(read.features.len());
        for feature in read.features {
            if let Err(fault) = feature.keyed {
                refusals.push(Counted::Refused { source: Arc::clone(&source.name), code: fault.code.clone() });
                features.push(FeatureReceipt::Refused { fault, line: feature.line, kept: None });
            }
        }
        self.store.count(refusals);
        Receipt { several: read.several, features, keying: Duration::ZERO, storing: Duration::ZERO }
    }
}

/// What is needed of a feature once its verdict is known.
struct After {
    id: EventId,
    key: Fingerprint,
    warnings: Vec<Warning>,
    refused: Option<(Fault, u64)>,
    /// Whether that is because its geometry, which can be read, is not valid.
    invalid: bool,
}

impl After {
    fn receipt(self, verdict: Verdict) -> FeatureReceipt {
        let After { id, key, warnings, refused, invalid: _ } = self;
        if let Some((fault, line)) = refused {
            let kept = Some(match verdict {
                Verdict::Accepted => id,
                Verdict::Duplicate { of, .. } => of,
                Verdict::Conflict { event, .. } => event,
            });
            return FeatureReceipt::Refused { fault, line, kept };
        }
        match verdict {
            Verdict::Accepted => FeatureReceipt::Accepted { event: id, key, warnings },
            Verdict::Duplicate { of, state, outcome, drift, revived } => {
                FeatureReceipt::Duplicate { of, key, state, outcome, drift, revived }
            }
            Verdict::Conflict { event, of } => FeatureReceipt::Conflict { event, of, key },
        }
    }
}

#[cfg(test)]
mod tests;
