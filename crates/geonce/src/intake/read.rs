//! Divides a body into features and makes the key of each.

use super::preset::changes::Announcement;
use super::{
    Announced, Arrival, DeliveryId, Fault, Identify, Invalid, Source, Tools, VERSION_AHEAD_MAX, delivery_id, preset,
};
use crate::clock::Timestamp;
use crate::event::Class;
use crate::store::Order;
use bytes::Bytes;
use geonce_key::split::{self, Format, Splitter};
use geonce_key::{Delivery, Fingerprint, Form, Input, Keyer, Reader, Version, Warning, validity};
use sha2::{Digest, Sha256};

/// A request's features.
pub(super) struct Read {
    pub(super) several: bool,
    /// Whether we fetched them, so that nobody would be told what is refused.
    pub(super) fetched: bool,
    pub(super) features: Vec<Found>,
}

/// A feature, keyed or refused.
pub(super) struct Found {
    pub(super) line: u64,
    pub(super) form: Form,
    pub(super) crs: Option<u32>,
    pub(super) payload: Bytes,
    /// Whether it only says where changes can be read, and these are fetched.
    pub(super) announces: bool,
    pub(super) keyed: Result<Known, Fault>,
}

/// What a feature is known by.
pub(super) struct Known {
    pub(super) key: Fingerprint,
    pub(super) aliases: Vec<Fingerprint>,
    pub(super) spatial: Vec<Fingerprint>,
    pub(super) content: [u8; 32],
    pub(super) warnings: Vec<Warning>,
    /// Its place among the events of its entity, where these have an order.
    pub(super) order: Option<Order>,
    /// Set where the geometry is not valid and the source keeps such features as dead.
    pub(super) invalid: Option<Fault>,
}

/// Divides and keys. A fault means that the request as a whole cannot be read.
pub(super) fn read(source: &Source, arrival: &Arrival, now: Timestamp) -> Result<Read, Fault> {
    read_all(source, arrival, None, now)
}

/// Divides and keys what was fetched for an announcement.
pub(super) fn read_changes(
    source: &Source,
    arrival: &Arrival,
    announcement: &Announcement,
    now: Timestamp,
) -> Result<Read, Fault> {
    read_all(source, arrival, Some(announcement), now)
}

fn read_all(
    source: &Source,
    arrival: &Arrival,
    fetched_for: Option<&Announcement>,
    now: Timestamp,
) -> Result<Read, Fault> {
    source.with_keyer(|Tools { keyer, reader }| {
        let mut reading = Reading {
            source,
            arrival,
            fetched_for,
            now,
            keyer,
            reader: reader.as_mut(),
            features: Vec::new(),
            delivery: arrival.delivery.clone(),
            first: 0,
            crs: None,
        };
        let several = reading.run()?;
        Ok(Read { several, fetched: fetched_for.is_some(), features: reading.features })
    })?
}

/// The key under which a refused payload is kept: the same bytes are kept once.
pub(super) fn refused_key(scope: &str, payload: &[u8]) -> Fingerprint {
    let mut hash = Sha256::new();
    hash.update(b"geonce refused\0");
    hash.update(u64::try_from(scope.len()).unwrap_or(u64::MAX).to_be_bytes());
    hash.update(scope.as_bytes());
    hash.update(payload);
    Fingerprint::from_digest(hash.finalize().into(), false)
}

struct Reading<'a> {
    source: &'a Source,
    arrival: &'a Arrival,
    /// The announcement that an answer was fetched for.
    fetched_for: Option<&'a Announcement>,
    now: Timestamp,
    keyer: &'a mut Keyer,
    /// Where events of an entity have an order.
    reader: Option<&'a mut Reader>,
    features: Vec<Found>,
    /// The id that features are delivered under.
    delivery: Option<DeliveryId>,
    /// The first feature that is delivered under it.
    first: usize,
    /// The coordinate system that a preset found beside the feature.
    crs: Option<u32>,
}

impl Reading<'_> {
    /// Whether the request could hold several features.
    fn run(&mut self) -> Result<bool, Fault> {
        let arrival = self.arrival;
        if let Some(several) = self.preset() {
            return several;
        }
        if arrival.body.is_empty() {
            return Err(Fault::new(Class::Schema, "json_incomplete", "the body is empty"));
        }
        let envelope = self.source.policy.feature.is_some();
        // One document is the usual request, and needs no copy.
        if arrival.format == Format::Json {
            return self.document(1, Form::Json, arrival.body.clone(), envelope);
        }
        let mut splitter = Splitter::new(arrival.format, envelope, &self.source.policy.limits);
        splitter.feed(&arrival.body);
        splitter.finish();
        let mut several = matches!(arrival.format, Format::Lines | Format::Sequence);
        while let Some(found) = splitter.next() {
            let item = found.map_err(|broken| at_line(Fault::from(&broken.error), broken.line))?;
            if item.pointer.is_empty() {
                let payload = Bytes::copy_from_slice(splitter.bytes(&item));
                several |= self.document(item.line, item.form, payload, envelope)?;
            } else {
                // The splitter met a collection whose coordinate system may follow: all of it is here, so read it so.
                return self.document(1, Form::Json, arrival.body.clone(), envelope);
            }
        }
        if self.features.is_empty() {
            return Err(Fault::new(Class::Schema, "json_incomplete", "the body holds no feature"));
        }
        Ok(several || self.features.len() > 1)
    }

    /// What the source's preset finds in the request, if it has one; whether it could hold several.
    fn preset(&mut self) -> Option<Result<bool, Fault>> {
        let Source { preset, policy, features_max, .. } = self.source;
        let Arrival { headers, body, .. } = self.arrival;
        let request = preset::Request { headers, body, limits: &policy.limits, features_max: *features_max };
        let read = match self.fetched_for {
            Some(announcement) => preset::changes::read(&request, announcement),
            None => preset.read(&request)?,
        };
        let payloads = match read {
            Ok(payloads) => payloads,
            Err(fault) => return Some(Err(fault)),
        };
        let mut several = payloads.several;
        for (index, payload) in payloads.payloads.into_iter().enumerate() {
            match self.payload(index, payload) {
                Ok(collection) => several |= collection,
                Err(fault) => return Some(Err(fault)),
            }
        }
        Some(Ok(several))
    }

    /// One event that a preset found; whether it is a collection.
    fn payload(&mut self, index: usize, payload: preset::Payload) -> Result<bool, Fault> {
        let preset::Payload { text, place, read } = payload;
        let line = index as u64 + 1;
        let details = match read {
            Ok(details) => details,
            Err(fault) => {
                let (form, announces) = (Form::Json, false);
                self.features.push(Found { line, form, crs: None, payload: text, announces, keyed: Err(fault) });
                return Ok(false);
            }
        };
        let announced = self.source.announced.as_ref().filter(|_| details.announces);
        // An id in the body is what the signature vouches for, and this event's own.
        let own = details.delivery.filter(|_| self.source.identify != Identify::Spatial);
        let before = self.features.len();
        if let Some(own) = own {
            (self.delivery, self.first) = (Some(own), before);
        } else if self.delivery != self.arrival.delivery {
            (self.delivery, self.first) = (self.arrival.delivery.clone(), 0);
        }
        self.crs = details.crs;
        let collection = match announced {
            Some(announced) => {
                self.announcement(announced, line, text);
                false
            }
            None => self.document(line, Form::Json, text, false)?,
        };
        let gap = details.changes.and_then(|changes| self.source.gaps.note(&changes));
        for found in &mut self.features[before..] {
            match &mut found.keyed {
                Ok(known) => known.warnings.extend(gap.clone()),
                Err(fault) => fault.pointer = place.of(&fault.pointer),
            }
        }
        Ok(collection)
    }

    /// What only says where changes can be read.
    fn announcement(&mut self, announced: &Announced, line: u64, payload: Bytes) {
        let index = (self.features.len() - self.first) as u64;
        let delivery = self.delivery.as_ref().map(|DeliveryId { by, id }| Delivery { by, id, index });
        let (form, crs) = (Form::Json, None);
        let keyed = announced.key(Input { form, bytes: &payload, crs }, delivery, self.source.identify);
        self.features.push(Found { line, form, crs, payload, announces: true, keyed });
    }

    /// A feature, or a collection of them.
    fn document(&mut self, line: u64, form: Form, payload: Bytes, envelope: bool) -> Result<bool, Fault> {
        let limits = &self.source.policy.limits;
        let collection = match form {
            Form::Json if !envelope => split::collection_in(&payload, limits).map_err(|error| Fault::from(&error))?,
            _ => None,
        };
        let Some(mut splitter) = collection else {
            self.feature(line, form, self.crs, payload)?;
            return Ok(false);
        };
        while let Some(found) = splitter.next() {
            let item = found.map_err(|broken| at_line(Fault::from(&broken.error), broken.line))?;
            // A slice would keep the whole body in memory as long as one of its features waits.
            let feature = Bytes::copy_from_slice(splitter.bytes(&item));
            let crs = splitter.collection().crs;
            let before = self.features.len();
            self.feature(item.line, item.form, crs, feature)?;
            for found in &mut self.features[before..] {
                if let Err(fault) = &mut found.keyed {
                    fault.pointer.insert_str(0, &item.pointer);
                }
            }
        }
        Ok(true)
    }

    fn feature(&mut self, line: u64, form: Form, crs: Option<u32>, payload: Bytes) -> Result<(), Fault> {
        let index = self.features.len();
        if index >= self.source.features_max {
            let message = format!("more than {} features in one request", self.source.features_max);
            let fault = Fault::new(Class::Schema, "limit_features", message);
            return Err(Fault { hint: Some("send them in several requests".to_owned()), ..fault });
        }
        let keyed = self.key(Input { form, bytes: &payload, crs }, index);
        self.features.push(Found { line, form, crs, payload, announces: false, keyed });
        Ok(())
    }

    fn key(&mut self, input: Input<'_>, index: usize) -> Result<Known, Fault> {
        let fault = |error: geonce_key::Error| Fault::from(&error);
        let keyed = self.keyer.key(input).map_err(fault)?;
        self.check_version()?;
        let invalid = match (self.find_invalid(), self.source.invalid) {
            (Some(fault), Invalid::Reject) => return Err(fault),
            (found, _) => found,
        };
        let content = *self.keyer.content(input, &keyed).map_err(fault)?.digest();
        let order = match &mut self.reader {
            Some(reader) => reader.entity(input).map_err(fault)?,
            None => None,
        };
        let order = order.map(|entity| Order::new(entity, self.keyer.version()));
        let warnings = keyed.warnings;
        if self.source.identify == Identify::Delivery && self.delivery.is_none() {
            return Err(delivery_id::missing());
        }
        let Some(DeliveryId { by, id }) = &self.delivery else {
            let (key, aliases) = (keyed.fingerprint, keyed.aliases);
            return Ok(Known { key, aliases, spatial: Vec::new(), content, warnings, order, invalid });
        };
        let policy = &self.source.policy;
        let delivery = Delivery { by, id, index: (index - self.first) as u64 };
        let key = delivery.fingerprint(&policy.scope, policy.key_secret.as_ref()).map_err(fault)?;
        let mut spatial = vec![keyed.fingerprint];
        spatial.extend(keyed.aliases);
        Ok(Known { key, aliases: Vec::new(), spatial, content, warnings, order, invalid })
    }

    fn check_version(&self) -> Result<(), Fault> {
        let Some(Version::Time { seconds, .. }) = self.keyer.version() else { return Ok(()) };
        let limit = self.now.plus(VERSION_AHEAD_MAX);
        if seconds.saturating_mul(1_000) <= limit.millis() {
            return Ok(());
        }
        let message = "the version is more than a day ahead of this gateway's clock";
        let pointer = self.source.policy.version.as_ref().map_or("", |pointer| pointer.as_str());
        Err(Fault {
            pointer: pointer.to_owned(),
            hint: Some("one wrong clock would keep every later version out".to_owned()),
            ..Fault::new(Class::Schema, "version_future", message)
        })
    }

    /// What is wrong with the geometry, where it can be read and yet encloses nothing sensible.
    fn find_invalid(&self) -> Option<Fault> {
        let shape = self.keyer.delivered_shape()?;
        let report = validity::check(shape, &self.source.policy.limits);
        let problem = report.problems.first()?;
        let message = format!("the geometry is not valid: {}", problem.code.as_str().replace('_', " "));
        let hint = match self.source.invalid {
            Invalid::Reject => "invalid = \"dead\" keeps such features for repair",
            Invalid::Dead | Invalid::Repair => "it is kept as dead; geonce dead repair mends it",
        };
        Some(Fault {
            pointer: format!("{}{}", self.keyer.geometry_pointer(), problem.pointer),
            hint: Some(hint.to_owned()),
            ..Fault::new(Class::Geometry, problem.code.as_str(), message)
        })
    }
}

fn at_line(fault: Fault, line: u64) -> Fault {
    let message = format!("line {line}: {}", fault.message);
    Fault { message, ..fault }
}
