//! Events to compare policies with: of a file, of standard input, or those that a store has payloads of.
//!
//! Memory is bounded: at most [`BYTES_MAX`] of payloads, and so many events as the flag allows, at some 300 bytes each.

use crate::config::{Keying, Place};
use crate::failure::Failure;
use crate::input::Input;
use crate::show::escaped;
use crate::tool::Tool;
use bytes::Bytes;
use geonce::intake::preset::{self, Details};
use geonce::intake::{DeliveryId, Fault, Identify};
use geonce::store::{Filter, Record};
use geonce_key::split::{self, Format};
use geonce_key::{Error, Form};
use hyper::HeaderMap;
use std::collections::BTreeMap;
use std::path::Path;

/// Bytes of payloads that are compared.
const BYTES_MAX: usize = 256 << 20;
/// Events that one request of a preset may hold.
const FEATURES_MAX: usize = 100_000;

/// An event of the sample.
pub(super) struct Event {
    /// Where it is.
    pub(super) place: String,
    pub(super) payload: Bytes,
    pub(super) form: Form,
    pub(super) crs: Option<u32>,
    /// The sender's own id, where that names the event.
    pub(super) delivery: Option<DeliveryId>,
    /// Why it cannot be read under any policy.
    pub(super) broken: Option<String>,
}

/// Events by source.
#[derive(Default)]
pub(super) struct Sample {
    pub(super) events: BTreeMap<String, Vec<Event>>,
    /// Whether there was more than is compared.
    pub(super) cut: bool,
    /// Events of a store that cannot be compared: their payload is not kept, or no policy is theirs,
    pub(super) without: u64,
    /// or their sender's id names them, whatever the policy is.
    pub(super) delivered: u64,
    bytes: usize,
    count: u64,
    limit: u64,
}

impl Sample {
    pub(super) fn new(limit: u64) -> Sample {
        Sample { limit, ..Sample::default() }
    }

    /// Takes one more; false if there is no room left.
    fn push(&mut self, source: &str, event: Event) -> bool {
        if self.count >= self.limit || self.bytes + event.payload.len() > BYTES_MAX {
            self.cut = true;
            return false;
        }
        self.count += 1;
        self.bytes += event.payload.len();
        self.events.entry(source.to_owned()).or_default().push(event);
        true
    }

    /// Reads a file, or standard input for `-`, of events of one source.
    pub(super) fn read(&mut self, path: &Path, source: &str, keying: &Keying) -> Result<(), Failure> {
        let policy = &keying.policy;
        // A preset is given each request as it is.
        let whole = policy.feature.is_some() || keying.preset != preset::Preset::Geojson;
        let mut input = Input::open(path, Format::Auto, whole, &policy.limits)?;
        let name = if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() };
        self.events.entry(source.to_owned()).or_default();
        loop {
            while let Some(found) = input.next() {
                let taken = match found {
                    Ok(item) => {
                        let place = match item.pointer.as_str() {
                            "" => format!("{name}:{}", item.line),
                            pointer => format!("{name}#{pointer}"),
                        };
                        let payload = Bytes::copy_from_slice(input.bytes(&item));
                        let (form, crs) = (item.form, input.collection().crs);
                        self.document(source, keying, Event { place, payload, form, crs, delivery: None, broken: None })
                    }
                    Err(broken) => self.push(source, refused(format!("{name}:{}", broken.line), &broken.error)),
                };
                if !taken {
                    return Ok(());
                }
            }
            if !input.read_piece()? {
                return Ok(());
            }
        }
    }

    /// An event, or a request that a preset reads.
    fn document(&mut self, source: &str, keying: &Keying, event: Event) -> bool {
        let (limits, headers) = (&keying.policy.limits, HeaderMap::new());
        let request = preset::Request { headers: &headers, body: &event.payload, limits, features_max: FEATURES_MAX };
        let Some(read) = keying.preset.read(&request) else { return self.push(source, event) };
        let fault = |fault: Fault| Event { broken: Some(fault.code), ..copy(&event, event.payload.clone()) };
        let payloads = match read {
            Ok(payloads) => payloads.payloads,
            Err(unread) => return self.push(source, fault(unread)),
        };
        payloads.into_iter().all(|payload| match payload.read {
            Ok(details) => self.features(source, keying, copy(&event, payload.text), details),
            Err(unread) => self.push(source, fault(unread)),
        })
    }

    /// What a preset made: a feature, or a collection of them.
    fn features(&mut self, source: &str, keying: &Keying, event: Event, details: Details) -> bool {
        let delivery = details.delivery.filter(|_| keying.identify != Identify::Spatial);
        let event = Event { form: Form::Json, crs: details.crs, delivery, ..event };
        let Ok(Some(mut splitter)) = split::collection_in(&event.payload, &keying.policy.limits) else {
            return self.push(source, event);
        };
        while let Some(found) = splitter.next() {
            let Ok(item) = found else { continue };
            let payload = Bytes::copy_from_slice(splitter.bytes(&item));
            let crs = splitter.collection().crs;
            if !self.push(source, Event { crs, ..copy(&event, payload) }) {
                return false;
            }
        }
        true
    }

    /// Reads the latest events of a store, of the sources that both configurations have.
    pub(super) fn read_store(
        &mut self,
        place: Place,
        source: Option<&str>,
        keyings: &BTreeMap<String, Keying>,
    ) -> Result<(), Failure> {
        let tool = Tool::at(place)?;
        let filter = Filter { source: source.map(str::to_owned), ..Filter::default() };
        tool.each(&filter, true, |record| {
            let Record { id, source, spatial, payload, form, crs, .. } = record;
            let (Some(payload), true) = (payload, keyings.contains_key(&*source)) else {
                self.without += 1;
                return Ok(true);
            };
            if !spatial.is_empty() {
                self.delivered += 1;
                return Ok(true);
            }
            let place = id.to_string();
            Ok(self.push(&source, Event { place, payload, form, crs, delivery: None, broken: None }))
        })?;
        // As they came.
        self.events.values_mut().for_each(|events| events.reverse());
        tool.close()
    }
}

/// Another payload of the same place.
fn copy(event: &Event, payload: Bytes) -> Event {
    let Event { place, form, crs, delivery, .. } = event;
    Event { place: place.clone(), payload, form: *form, crs: *crs, delivery: delivery.clone(), broken: None }
}

fn refused(place: String, error: &Error) -> Event {
    let broken = Some(escaped(error.code().as_str()));
    Event { place, payload: Bytes::new(), form: Form::Json, crs: None, delivery: None, broken }
}
