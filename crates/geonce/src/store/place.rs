//! What a store keeps of events that may be near to others: where they look, where they are, and what others compare
//! themselves with. Cells are numbers and bodies are bytes here: what near means is decided elsewhere.

use super::encoding::{DONE, OPEN, outcome_number};
use crate::clock::Timestamp;
use crate::error::{Error, Kind, Result};
use crate::event::{EventId, Outcome};
use bytes::Bytes;

/// Cells that a spot looks at.
pub const SPOT_CELLS_MAX: usize = 16;
/// Bytes of a spot's body.
pub const SPOT_BODY_BYTES_MAX: usize = 128 << 10;
/// Known neighbours that a claim names.
pub const KNOWN_MAX: usize = 1_024;
/// Bytes of a decision.
pub const DECISION_BYTES_MAX: usize = 4 << 10;
/// Neighbours in an answer,
pub const NEIGHBOURS_MAX: usize = 64;
/// and bytes of their bodies; one comes however long it is.
pub const NEIGHBOURS_BYTES_MAX: usize = 256 << 10;

/// An event that asks for its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The event.
    pub event: EventId,
    /// Whom it can be near to: only what has the same.
    pub scope: [u8; 16],
    /// The cells it looks at, sorted, each once; at most [`SPOT_CELLS_MAX`].
    pub cells: Vec<u64>,
    /// The one of them it is in.
    pub home: u64,
    /// What others compare themselves with; at most [`SPOT_BODY_BYTES_MAX`].
    pub body: Bytes,
    /// Until when others are compared with it.
    pub until: Timestamp,
    /// Under which condition it has its place.
    pub claim: Claim,
}

/// Under which condition an event has its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Unless somebody is in its cells who is not among these: they are known already, and not near. At most [`KNOWN_MAX`].
    Unless(Vec<EventId>),
    /// Whoever else is there.
    Anyway,
    /// It has none: this was decided about it, in at most [`DECISION_BYTES_MAX`], and is answered from now on. Nobody is
    /// compared with it.
    Decided(Box<str>),
}

/// What became of a spot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placed {
    /// The event has its place, from now on or from before: the same question again, of any gateway, has this answer.
    Here,
    /// What was decided about it, now or before.
    Decided(Box<str>),
    /// It has no place. These are in its cells and were not among the known ones; latest first, at most
    /// [`NEIGHBOURS_MAX`] of them with [`NEIGHBOURS_BYTES_MAX`] of bodies, and at least one.
    Neighbours(Vec<Neighbour>),
}

/// Another event in the cells of a spot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The event.
    pub event: EventId,
    /// Whether it is done and was applied; if not, it is ready or leased, and may still be.
    pub applied: bool,
    /// The body that it was placed with.
    pub body: Bytes,
}

impl Spot {
    /// Since when others count for it: they are those of the time when it came, however long it has waited since.
    pub(super) fn since(&self, now: Timestamp) -> Timestamp {
        self.event.time().min(now)
    }

    /// Whom it knows already.
    pub(super) fn known(&self) -> &[EventId] {
        match &self.claim {
            Claim::Unless(known) => known,
            Claim::Anyway | Claim::Decided(_) => &[],
        }
    }

    /// Bytes that it brings.
    pub(super) fn bytes(&self) -> usize {
        let claim = match &self.claim {
            Claim::Unless(known) => known.len() * size_of::<EventId>(),
            Claim::Anyway => 0,
            Claim::Decided(text) => text.len(),
        };
        self.body.len() + claim
    }

    fn check(&self) -> Result<()> {
        let wrong = if self.cells.len() > SPOT_CELLS_MAX {
            format!("it looks at {} cells, {SPOT_CELLS_MAX} are allowed", self.cells.len())
        } else if !self.cells.is_sorted_by(|one, next| one < next) || self.cells.binary_search(&self.home).is_err() {
            "its cells are not sorted, or it is in none of them".to_owned()
        } else if self.body.len() > SPOT_BODY_BYTES_MAX {
            format!("its body has {} bytes, {SPOT_BODY_BYTES_MAX} are allowed", self.body.len())
        } else {
            match &self.claim {
                Claim::Unless(known) if known.len() > KNOWN_MAX => {
                    format!("it names {} neighbours, {KNOWN_MAX} are allowed", known.len())
                }
                Claim::Decided(text) if text.len() > DECISION_BYTES_MAX || text.contains('\0') => {
                    format!("a decision has at most {DECISION_BYTES_MAX} bytes, and no NUL")
                }
                _ => return Ok(()),
            }
        };
        Err(Error::new(Kind::Invalid, format!("placing {}", self.event)).because(wrong))
    }
}

/// Refuses a call with a spot that no store would keep.
pub(super) fn check(spots: &[Spot]) -> Result<()> {
    spots.iter().try_for_each(Spot::check)
}

/// How many of these spots go together, given limits of a step.
pub(super) fn together(spots: &[Spot], spots_max: usize, bytes_max: usize) -> usize {
    let mut bytes = 0;
    let fits = |spot: &&Spot| {
        bytes += spot.bytes();
        bytes <= bytes_max
    };
    spots.iter().take(spots_max).take_while(fits).count().max(1)
}

/// What an event that has a place is to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is done and was applied,
    Applied,
    /// or may still be.
    Open,
    /// It was not and will not be, unless somebody brings it back: nobody is compared with it.
    Gone,
}

impl Standing {
    /// That of an event with this record.
    pub(super) fn of(record: Option<(i64, Option<i64>)>) -> Standing {
        match record {
            Some((OPEN, _)) => Standing::Open,
            Some((DONE, Some(outcome))) if outcome == outcome_number(Outcome::Applied) => Standing::Applied,
            _ => Standing::Gone,
        }
    }
}

/// Puts those that were found in the cells of a spot in the order in which they are looked at, latest first, and leaves those
/// that are not; whether there may be more.
pub(super) fn latest<T>(found: &mut Vec<T>, key: impl Fn(&T) -> (i64, EventId)) -> bool {
    found.sort_unstable_by_key(|one| std::cmp::Reverse(key(one)));
    let more = found.len() >= NEIGHBOURS_MAX;
    found.truncate(NEIGHBOURS_MAX);
    more
}

/// Room in an answer.
#[derive(Default)]
pub(super) struct Room {
    neighbours: usize,
    bytes: usize,
}

impl Room {
    /// Takes another neighbour with a body of so many bytes, if there is room.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let fits = self.neighbours < NEIGHBOURS_MAX && self.bytes.saturating_add(bytes) <= NEIGHBOURS_BYTES_MAX;
        if !fits && self.neighbours > 0 {
            return false;
        }
        self.neighbours += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        true
    }
}
