//! From bytes to recorded events. A stand-in with the interface that the receiver uses.

use crate::clock::Clock;
use crate::error::Error;
use crate::event::{EventId, Ids, Outcome, State};
use crate::signature::{Verified, Verifier};
use crate::store::{Admission, NewEvent, Refusal, Store, Verdict};
use bytes::Bytes;
use geonce_key::split::{Broken, Format, Splitter};
use geonce_key::{Fingerprint, Form, Input, Keyer, Policy, Warning};
use hyper::HeaderMap;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Where events come in.
#[derive(Debug)]
pub struct Source {
    /// Its name.
    pub name: Arc<str>,
    /// How its keys are made.
    pub policy: Policy,
    /// How requests are verified; `None` where they need not be.
    pub verify: Option<Verifier>,
    /// Where its events go.
    pub sinks: Arc<[Arc<str>]>,
    /// The most features in one request.
    pub features_max: usize,
}

/// The id under which a sender delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryId {
    /// What carries it.
    pub by: String,
    /// The id.
    pub id: String,
}

/// A request's body.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Its bytes, inflated.
    pub body: Bytes,
    /// How it is divided.
    pub format: Format,
    /// The sender's id, where it counts.
    pub delivery: Option<DeliveryId>,
}

/// What became of a request.
#[derive(Debug)]
pub struct Receipt {
    /// Whether it held several features.
    pub several: bool,
    /// What became of each.
    pub features: Vec<FeatureReceipt>,
}

/// What became of one feature.
#[derive(Debug)]
pub enum FeatureReceipt {
    /// Recorded.
    Accepted {
        /// As this event.
        event: EventId,
        /// Under this key.
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
        /// What became of it.
        outcome: Option<Outcome>,
        /// Whether the content differs outside the identity.
        drift: bool,
        /// Whether this delivery revived it.
        revived: bool,
    },
    /// A known id with other content: kept as dead.
    Conflict {
        /// The dead record.
        event: EventId,
        /// The event that holds the id.
        of: EventId,
        /// Its key.
        key: Fingerprint,
    },
    /// No event.
    Refused {
        /// Why.
        error: geonce_key::Error,
        /// Which line or feature, from 1.
        line: u64,
        /// The dead record, where it was kept.
        kept: Option<EventId>,
    },
}

/// Why nothing of a request was recorded.
#[derive(Debug)]
pub enum Refused {
    /// The payload is at fault.
    Payload(geonce_key::Error),
    /// The store did not answer.
    Store(Error),
    /// More features than the source takes.
    TooMany(usize),
}

/// Splits, keys, records.
pub struct Intake {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ids: Ids,
    keyers: Mutex<HashMap<Arc<str>, Vec<Keyer>>>,
}

impl Intake {
    /// An intake into `store`.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Intake {
        Intake { store, clock, ids: Ids::new(), keyers: Mutex::default() }
    }

    /// The delivery id that counts.
    pub fn delivery_id(
        _source: &Source,
        headers: &HeaderMap,
        _verified: Option<&Verified>,
    ) -> Result<Option<DeliveryId>, Refused> {
        let found = headers.get("webhook-id").and_then(|id| id.to_str().ok());
        Ok(found.map(|id| DeliveryId { by: "webhook-id".to_owned(), id: id.to_owned() }))
    }

    /// Splits, keys, records.
    pub async fn receive(&self, source: &Arc<Source>, arrival: Arrival) -> Result<Receipt, Refused> {
        let mut splitter = Splitter::new(arrival.format, false, &source.policy.limits);
        splitter.feed(&arrival.body);
        splitter.finish();
        let pooled = self.keyers().get_mut(&source.name).and_then(Vec::pop);
        let mut keyer = match pooled {
            Some(keyer) => keyer,
            None => Keyer::new(&source.policy).map_err(Refused::Payload)?,
        };
        let now = self.clock.now();
        let (mut events, mut found) = (Vec::new(), Vec::new());
        let mut several = false;
        while let Some(next) = splitter.next() {
            let outcome = next.map_err(|Broken { line, error }| (line, error)).and_then(|item| {
                several |= !item.pointer.is_empty();
                let input = Input { form: item.form, bytes: splitter.bytes(&item), crs: None };
                let keyed = keyer.key(input).map_err(|error| (item.line, error.under(&item.pointer)))?;
                let content = *keyer.content(input, &keyed).map_err(|error| (item.line, error))?.digest();
                let payload = if splitter.bytes(&item).len() == arrival.body.len() {
                    arrival.body.clone()
                } else {
                    Bytes::copy_from_slice(splitter.bytes(&item))
                };
                Ok((item.form, keyed, content, payload))
            });
            found.push(outcome.map(|(form, keyed, content, payload)| {
                let id = self.ids.next(now);
                events.push(event(source, id, form, &keyed, content, payload));
                (id, keyed)
            }));
            if found.len() > source.features_max {
                return Err(Refused::TooMany(source.features_max));
            }
        }
        self.keyers().entry(source.name.clone()).or_default().push(keyer);
        several |= found.len() > 1 || matches!(arrival.format, Format::Lines | Format::Sequence);
        let verdicts = if events.is_empty() {
            Vec::new()
        } else {
            self.store.accept(events, now).await.map_err(Refused::Store)?
        };
        let mut verdicts = verdicts.into_iter();
        let features = found.into_iter().map(|one| match one {
            Err((line, error)) => {
                let refusal = Refusal { source: source.name.clone(), code: error.code().as_str().to_owned() };
                self.store.refuse(vec![refusal]);
                FeatureReceipt::Refused { error, line, kept: None }
            }
            Ok((id, keyed)) => match verdicts.next() {
                Some(Verdict::Duplicate { of, state, outcome, drift, revived }) => {
                    FeatureReceipt::Duplicate { of, key: keyed.fingerprint, state, outcome, drift, revived }
                }
                Some(Verdict::Conflict { event, of }) => FeatureReceipt::Conflict { event, of, key: keyed.fingerprint },
                _ => FeatureReceipt::Accepted { event: id, key: keyed.fingerprint, warnings: keyed.warnings },
            },
        });
        Ok(Receipt { several, features: features.collect() })
    }

    fn keyers(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<str>, Vec<Keyer>>> {
        self.keyers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn event(
    source: &Source,
    id: EventId,
    form: Form,
    keyed: &geonce_key::Keyed,
    content: [u8; 32],
    payload: Bytes,
) -> NewEvent {
    NewEvent {
        id,
        source: source.name.clone(),
        key: keyed.fingerprint,
        aliases: keyed.aliases.clone(),
        spatial: Vec::new(),
        content,
        form,
        crs: None,
        payload,
        admission: Admission::Deliver(source.sinks.clone()),
    }
}
