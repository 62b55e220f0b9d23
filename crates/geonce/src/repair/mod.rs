//! Mending dead events: what a repair would make of one, whether that is known already, and doing it.
//!
//! A repair is planned first ([`plan`]) and carried out then ([`carry_out`]); the same plan made twice is the same. The
//! original stays as it was, done with the outcome `repaired`, and what was made of it is a new event that names it.

mod choice;
mod clip;
mod make;
mod measure;
mod suggest;
#[cfg(test)]
mod tests;

pub use self::choice::{Choice, Choices};
pub use self::make::{Done, Measures};
pub use self::suggest::suggest;

use self::make::{Made, Recorded, make};
use crate::clock::Timestamp;
use crate::error::{Error, Kind, Result};
use crate::event::{Cause, Class, EventId, Ids, Outcome, State};
use crate::intake::{Source, VERSION_AHEAD_MAX};
use crate::store::{
    Admission, Filter, Held, ListRequest, NewEvent, Order, Record, Repair, Repaired, Route, Store, own_key,
};
use bytes::Bytes;
use geonce_key::shape::Shape;
use geonce_key::{Encoding, Fingerprint, Form, Input, Keyer, Reader, Version, validity, wkt};
use serde_json::{Value, json};
use std::sync::Arc;

/// What a repair would make of a dead event.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The dead event,
    pub original: EventId,
    /// its source,
    pub source: Arc<str>,
    /// and what it died of.
    pub cause: Cause,
    /// What is to be done.
    pub choices: Choices,
    /// The payload as it is, as `GeoJSON`.
    pub before: String,
    /// The payload that is to take its place.
    pub after: Bytes,
    /// What the repair did, at most the first few dozen things.
    pub done: Vec<Done>,
    /// How many things it did.
    pub done_total: u64,
    /// How the geometry changed.
    pub measures: Measures,
    /// The geometry in degrees, as it was meant (after swapping axes and reprojecting) and as it would be.
    pub shapes: [Shape<f64>; 2],
    /// What is still wrong: then it cannot be carried out.
    pub problem: Option<Cause>,
    /// The key that the new event would have, where it can have one.
    pub key: Option<Fingerprint>,
    /// The event that has this key already: the repaired one is counted as its duplicate.
    pub already: Option<Already>,
    new: Option<New>,
}

/// An event that is known already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Already {
    /// Its id.
    pub event: EventId,
    /// Where it is.
    pub state: State,
    /// What became of it, once done.
    pub outcome: Option<Outcome>,
}

/// What is needed for the new event beside its payload.
#[derive(Clone, Debug, PartialEq)]
struct New {
    key: Fingerprint,
    aliases: Vec<Fingerprint>,
    spatial: Vec<Fingerprint>,
    content: [u8; 32],
    crs: Option<u32>,
    order: Option<Order>,
    routes: Arc<[Route]>,
}

/// What is to be said of a payload that was made.
struct Judged {
    problem: Option<Cause>,
    new: Option<New>,
}

/// Plans the repair of a dead event, whose record has its payload; or says why it cannot be repaired. This may take a tenth
/// of a second of computing for the largest shapes.
pub fn draft(record: &Record, source: &Source, choices: &Choices) -> std::result::Result<Plan, Cause> {
    if record.state != State::Dead {
        return Err(Cause::new(Class::Schema, "not_dead", format!("the event is {}", record.state)));
    }
    let payload = record.payload.as_deref();
    let payload = payload.ok_or_else(|| Cause::new(Class::Schema, "payload_gone", "the payload is not kept"))?;
    let recorded = Recorded { form: record.form, crs: record.crs, payload };
    let made = make(recorded, &source.policy, choices)?;
    let Judged { problem, new } = judge(record, source, &made);
    let Made { before, payload, done, done_total, measures, shapes, .. } = made;
    Ok(Plan {
        original: record.id,
        source: Arc::clone(&record.source),
        cause: record.cause.clone().unwrap_or_else(|| Cause::new(Class::Internal, "damaged", "")),
        choices: choices.clone(),
        before,
        after: payload,
        done,
        done_total,
        measures,
        shapes,
        problem,
        key: new.as_ref().map(|new| new.key),
        already: None,
        new,
    })
}

/// Plans the repair of a dead event as [`draft`] does, and looks whether what it makes is known.
pub async fn plan(
    store: &dyn Store,
    source: &Source,
    record: &Record,
    choices: &Choices,
) -> Result<std::result::Result<Plan, Cause>> {
    match draft(record, source, choices) {
        Ok(plan) => look_up(store, plan).await.map(Ok),
        Err(cause) => Ok(Err(cause)),
    }
}

/// Adds to a plan who has its key already.
pub async fn look_up(store: &dyn Store, mut plan: Plan) -> Result<Plan> {
    let Some(new) = &plan.new else { return Ok(plan) };
    plan.already = None;
    for key in std::iter::once(&new.key).chain(&new.aliases) {
        let filter = Filter { key: Some(key.key()), ..Filter::default() };
        let found = store.list(ListRequest { filter, before: None, limit: 1, payloads: false }).await?;
        if let Some(Record { id: event, state, outcome, .. }) = found.first() {
            plan.already = Some(Already { event: *event, state: *state, outcome: *outcome });
            break;
        }
    }
    Ok(plan)
}

/// Whether a payload that was made would be taken, and as what.
fn judge(record: &Record, source: &Source, made: &Made) -> Judged {
    match known_by(record, source, made) {
        Ok((new, problem)) => Judged { problem, new: Some(new) },
        Err(cause) => Judged { problem: Some(cause), new: None },
    }
}

fn known_by(record: &Record, source: &Source, made: &Made) -> std::result::Result<(New, Option<Cause>), Cause> {
    let refused = |error: geonce_key::Error| Cause::from(&error);
    let input = Input { form: Form::Json, bytes: &made.payload, crs: made.crs };
    let mut keyer = Keyer::new(&source.policy).map_err(refused)?;
    let keyed = keyer.key(input).map_err(refused)?;
    let version = keyer.version().cloned();
    let invalid = keyer.delivered_shape().and_then(|shape| problem_of(shape, &keyer));
    let content = *keyer.content(input, &keyed).map_err(refused)?.digest();
    let order = if source.ordered {
        let entity = Reader::new(&source.policy, None).and_then(|mut reader| reader.entity(input)).map_err(refused)?;
        entity.map(|entity| Order::new(entity, version.as_ref()))
    } else {
        None
    };
    let mut spatial = vec![keyed.fingerprint];
    spatial.extend(keyed.aliases.iter().copied());
    let own: Vec<Fingerprint> = std::iter::once(record.key).chain(record.aliases.iter().copied()).collect();
    let shared = spatial.iter().any(|key| own.iter().any(|known| known.key() == key.key()));
    // What is known by its delivery stays one event for each delivery, and nothing is its own duplicate.
    let (key, aliases, spatial) = if shared || !record.spatial.is_empty() {
        (own_key(&record.key, &content), Vec::new(), spatial)
    } else {
        (keyed.fingerprint, keyed.aliases, Vec::new())
    };
    let problem = if content == record.content {
        Some(Cause::new(Class::Schema, "unchanged", "the repair changes nothing: mend what refused it, then replay it"))
    } else {
        version.and_then(|version| future(&version, record.received)).or(invalid)
    };
    let routes = routes(record, source);
    Ok((New { key, aliases, spatial, content, crs: made.crs, order, routes }, problem))
}

fn problem_of(shape: &Shape<i64>, keyer: &Keyer) -> Option<Cause> {
    let report = validity::check(shape, &keyer.policy().limits);
    let Some(problem) = report.problems.first() else {
        let message = "the geometry is too complex to be checked";
        return (!report.complete).then(|| Cause::new(Class::Geometry, "limit_work", message));
    };
    let message = format!("the geometry is still not valid: {}", problem.code.as_str().replace('_', " "));
    let pointer = format!("{}{}", keyer.geometry_pointer(), problem.pointer);
    Some(Cause { pointer, ..Cause::new(Class::Geometry, problem.code.as_str(), message) })
}

/// A version that was too far ahead when it came is so still.
fn future(version: &Version, received: Timestamp) -> Option<Cause> {
    let Version::Time { seconds, .. } = version else { return None };
    let ahead = seconds.saturating_mul(1_000) > received.plus(VERSION_AHEAD_MAX).millis();
    ahead.then(|| Cause::new(Class::Schema, "version_future", "the version was more than a day ahead when it came"))
}

/// Where the new event goes: where the original has not been served, or else where its source goes.
fn routes(record: &Record, source: &Source) -> Arc<[Route]> {
    if record.work.is_empty() {
        return Arc::clone(&source.routes);
    }
    let route = |work: &crate::store::Work| Route {
        sink: Arc::clone(&work.sink),
        after: if let Some(Held::Sink(after)) = &work.held { Some(Arc::clone(after)) } else { None },
    };
    record.work.iter().map(route).collect()
}

impl Plan {
    /// Whether it can be carried out.
    pub fn is_ready(&self) -> bool {
        self.problem.is_none() && self.new.is_some()
    }

    /// What is to be given to the store. Fails where something is still wrong.
    pub fn repair(&self, id: EventId) -> Result<Repair> {
        let (Some(new), None) = (&self.new, &self.problem) else {
            let why = self.problem.as_ref().map_or("it has no key", |cause| &cause.message);
            return Err(Error::new(Kind::Invalid, format!("repairing {}", self.original)).because(why.to_owned()));
        };
        let event = NewEvent {
            id,
            source: Arc::clone(&self.source),
            key: new.key,
            aliases: new.aliases.clone(),
            spatial: new.spatial.clone(),
            content: new.content,
            form: Form::Json,
            crs: new.crs,
            payload: self.after.clone(),
            admission: Admission::Deliver(Arc::clone(&new.routes)),
            order: new.order.clone(),
        };
        Ok(Repair { original: self.original, event })
    }

    /// The plan for machines.
    pub fn json(&self) -> Value {
        let Measures { positions_before, positions_after, area_before_m2, area_after_m2, shift_max_m } = self.measures;
        let ratio = if area_before_m2 > 0.0 { Some(area_after_m2 / area_before_m2) } else { None };
        let document = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap_or(Value::Null);
        json!({
            "event": self.original.to_string(),
            "source": &*self.source,
            "code": self.cause.code,
            "choices": self.choices.iter().map(|choice| choice.to_string()).collect::<Vec<_>>(),
            "before": document(self.before.as_bytes()),
            "after": document(&self.after),
            "done": self.done.iter().map(|done| json!({"code": done.code, "pointer": done.pointer})).collect::<Vec<_>>(),
            "done_total": self.done_total,
            "positions": {"before": positions_before, "after": positions_after},
            "area_m2": {"before": area_before_m2, "after": area_after_m2, "change": area_after_m2 - area_before_m2, "ratio": ratio},
            "shift_max_m": shift_max_m,
            "valid": self.problem.is_none(),
            "problem": self.problem.as_ref().map(cause_json),
            "key": self.key.map(|key| key.text(Encoding::Base64)),
            "already": self.already.map(|already| json!({
                "event": already.event.to_string(),
                "state": already.state.as_str(),
                "outcome": already.outcome.map(Outcome::as_str),
            })),
        })
    }

    /// The geometry before and after, as well-known text.
    pub fn wkt(&self) -> [String; 2] {
        [wkt::write(&self.shapes[0]), wkt::write(&self.shapes[1])]
    }
}

/// A cause for machines.
pub fn cause_json(cause: &Cause) -> Value {
    json!({"class": cause.class.as_str(), "code": cause.code, "pointer": cause.pointer, "message": cause.message})
}

/// What became of a repair, for machines.
pub fn repaired_json(original: EventId, repaired: &Repaired, own: EventId) -> Value {
    let (result, event) = match repaired {
        Repaired::Done(verdict) => (verdict.as_str(), Some(verdict.kept_in(own))),
        Repaired::Before { event } => ("repaired_before", Some(*event)),
        Repaired::NotDead { state, .. } => (state.as_str(), None),
        Repaired::Unknown => ("unknown", None),
        Repaired::SameKey => ("same_key", None),
    };
    json!({"original": original.to_string(), "result": result, "event": event.map(|event| event.to_string())})
}

/// Carries out a plan.
pub async fn carry_out(store: &dyn Store, ids: &Ids, plan: &Plan, now: Timestamp) -> Result<(EventId, Repaired)> {
    let id = ids.next(now);
    let repaired = store.repair(vec![plan.repair(id)?], now).await?;
    let missing = || Error::new(Kind::Internal, "repairing events: the store gave no answer");
    Ok((id, repaired.first().copied().ok_or_else(missing)?))
}
