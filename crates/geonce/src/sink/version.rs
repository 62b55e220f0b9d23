//! Which of two events of an entity is the newer one: the rules of upsert, the same at every sink that keeps entities.

use super::Outgoing;
use crate::clock::Timestamp;
use crate::event::{Cause, Class};
use geonce_key::Version;
use std::cmp::Ordering;
use std::time::Duration;

/// How far ahead of its arrival an event's version may be: one wrong clock would freeze its entity.
const FUTURE_MAX: Duration = Duration::from_hours(24);

/// What a sink holds of an entity.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// `None` where it cannot be read.
    pub(crate) version: Option<Version>,
    pub(crate) key: [u8; 16],
    pub(crate) content: [u8; 32],
    /// The row, where there is one.
    pub(crate) fid: Option<i64>,
}

/// What an event is to the entity it is about.
#[derive(Debug, PartialEq)]
pub(crate) enum Order {
    /// It takes the place of what is held.
    Newer(Version),
    /// It is what is held.
    Same,
    /// It comes too late.
    Older,
}

/// What decides the order of events.
pub(crate) struct Claim<'a> {
    pub(crate) version: Option<&'a Version>,
    pub(crate) key: [u8; 16],
    pub(crate) content: &'a [u8; 32],
    /// When it arrived.
    pub(crate) received: Timestamp,
}

/// Compares an event with what is held. `arrival` is the version it gets where events have none.
pub(crate) fn order(
    outgoing: &Outgoing,
    arrival: Option<i128>,
    held: Option<&Held>,
) -> std::result::Result<Order, Cause> {
    let Outgoing { version, key, content, received, .. } = outgoing;
    let claim = Claim { version: version.as_ref(), key: key.key(), content, received: *received };
    order_claim(&claim, arrival, held)
}

/// The same for what is no event of its own.
pub(crate) fn order_claim(
    claim: &Claim<'_>,
    arrival: Option<i128>,
    held: Option<&Held>,
) -> std::result::Result<Order, Cause> {
    let refuse = |class, code, message: &str| Err(Cause::new(class, code, message));
    let version = match (claim.version, arrival) {
        (_, Some(number)) => return Ok(Order::Newer(Version::Integer(number))),
        (Some(version), None) => version.clone(),
        (None, None) => return refuse(Class::Schema, "version", "the event has no version"),
    };
    if is_in_the_future(&version, claim.received) {
        let message = "the version is more than a day ahead of the event's arrival";
        return refuse(Class::Schema, "version_future", message);
    }
    let Some(held) = held else { return Ok(Order::Newer(version)) };
    match held.version.as_ref().and_then(|known| version.partial_cmp(known)) {
        Some(Ordering::Greater) => Ok(Order::Newer(version)),
        Some(Ordering::Less) => Ok(Order::Older),
        Some(Ordering::Equal) if held.content == *claim.content || held.key == claim.key => Ok(Order::Same),
        Some(Ordering::Equal) => {
            refuse(Class::Conflict, "conflict", "the entity has this version already, with other content")
        }
        None => refuse(
            Class::Conflict,
            "version_type",
            "the entity has versions of another sort: numbers and times have no order",
        ),
    }
}

/// Why an event that names no entity has no place in a sink of entities.
pub(crate) fn no_entity() -> Cause {
    Cause::new(Class::Schema, "entity", "nothing names the entity this event is about")
}

fn is_in_the_future(version: &Version, received: Timestamp) -> bool {
    match version {
        Version::Integer(_) => false,
        Version::Time { seconds, .. } => *seconds > received.plus(FUTURE_MAX).millis().div_euclid(1_000),
    }
}
