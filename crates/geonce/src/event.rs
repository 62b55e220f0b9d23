//! The vocabulary of events: ids, states, outcomes, causes of death. `docs/event-states.md` draws the diagram with these words.

use crate::clock::Timestamp;
use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;

/// Names an event: 48 bits of time in milliseconds, then 80 random bits. Written `evt_` and 26 characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(u128);

/// Crockford's base 32: no I, L, O, U.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const PREFIX: &str = "evt_";
const CHARACTERS: usize = 26;

impl EventId {
    /// The id with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> EventId {
        EventId(u128::from_be_bytes(bytes))
    }

    /// Its bytes; they sort as the ids do.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// When it was made.
    pub fn time(self) -> Timestamp {
        Timestamp::from_millis(i64::try_from(self.0 >> 80).unwrap_or(0))
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; CHARACTERS];
        for (place, letter) in text.iter_mut().rev().enumerate() {
            *letter = ALPHABET[usize::try_from((self.0 >> (5 * place)) & 31).unwrap_or(0)];
        }
        // Written in one piece: every acknowledgement holds one.
        f.write_str(PREFIX)?;
        f.write_str(str::from_utf8(&text).unwrap_or_default())
    }
}

/// Text that is no event id.
#[derive(Debug, PartialEq, Eq)]
pub struct NotAnEventId;

impl fmt::Display for NotAnEventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event id is evt_ and 26 letters and digits")
    }
}

impl std::error::Error for NotAnEventId {}

impl FromStr for EventId {
    type Err = NotAnEventId;

    fn from_str(text: &str) -> Result<EventId, NotAnEventId> {
        let digits = text.strip_prefix(PREFIX).filter(|digits| digits.len() == CHARACTERS).ok_or(NotAnEventId)?;
        digits
            .bytes()
            .try_fold(0u128, |id, byte| {
                let digit = ALPHABET.iter().position(|&letter| letter == byte.to_ascii_uppercase())?;
                id.checked_mul(32)?.checked_add(digit as u128)
            })
            .map(EventId)
            .ok_or(NotAnEventId)
    }
}

/// Random numbers that are fetched at a time: asking the system for each costs more than the rest of an id.
const CHANCES: usize = 32;

/// Makes ids that never repeat and, within one process, only grow.
pub struct Ids(Mutex<Series>);

struct Series {
    last: u128,
    chances: [u128; CHANCES],
    used: usize,
}

impl Ids {
    /// A new series.
    pub fn new() -> Ids {
        Ids(Mutex::new(Series { last: 0, chances: [0; CHANCES], used: CHANCES }))
    }

    /// The next id.
    pub fn next(&self, now: Timestamp) -> EventId {
        let mut series = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let time = u128::try_from(now.millis().clamp(0, (1 << 48) - 1)).unwrap_or(0) << 80;
        let chance = series.chance();
        // A clock that stands still or goes back continues the series; a step of up to 2^32 keeps ids unguessable.
        series.last = if time > series.last { time | (chance >> 49) } else { series.last + 1 + (chance >> 96) };
        EventId(series.last)
    }
}

impl Series {
    fn chance(&mut self) -> u128 {
        if self.used == CHANCES {
            (self.chances, self.used) = (randoms(), 0);
        }
        self.used += 1;
        self.chances[self.used - 1]
    }
}

impl Default for Ids {
    fn default() -> Self {
        Ids::new()
    }
}

/// 128 random bits.
pub(crate) fn random() -> u128 {
    randoms::<1>()[0]
}

/// Random numbers. The operating system's source does not fail once it has been seeded.
fn randoms<const N: usize>() -> [u128; N] {
    let mut bytes = [[0; 16]; N];
    match getrandom::fill(bytes.as_flattened_mut()) {
        Ok(()) => bytes.map(u128::from_ne_bytes),
        Err(error) => unreachable!("the system's random numbers: {error}"),
    }
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$word_doc])* $variant),+ }

        impl $name {
            /// Every one there is.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The word for it, the same everywhere.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }

            /// What the word stands for.
            pub fn from_word(word: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|one| one.as_str() == word)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// Where an event is. A forgotten event has no record any more.
    State {
        /// Waits to be leased, now or at a later time.
        Ready = "ready",
        /// A worker holds it.
        Leased = "leased",
        /// Nothing more will happen to it.
        Done = "done",
        /// It cannot go on without help; kept with its cause.
        Dead = "dead",
    }
}

words! {
    /// What became of an event that is done.
    Outcome {
        /// Written to its sinks.
        Applied = "applied",
        /// Older than what its sink already has.
        Stale = "stale",
        /// A near-duplicate of another event, dropped.
        Near = "near",
        /// Superseded by the event its repair made.
        Repaired = "repaired",
    }
}

words! {
    /// Why an event could not be applied.
    Class {
        /// The payload does not fit what its source or sink takes.
        Schema = "schema",
        /// The geometry cannot be used.
        Geometry = "geometry",
        /// The coordinate system cannot be used.
        Crs = "crs",
        /// A constraint of the sink refuses the row.
        Constraint = "constraint",
        /// The sink refuses us.
        Permission = "permission",
        /// No room: disk, quota, memory.
        Resource = "resource",
        /// Same id or version, other content.
        Conflict = "conflict",
        /// The sink could not be reached.
        Unavailable = "unavailable",
        /// A fault of ours.
        Internal = "internal",
    }
}

impl Class {
    /// Whether time alone may mend it: such an event is revived when it is delivered again.
    pub const fn is_transient(self) -> bool {
        matches!(self, Class::Resource | Class::Unavailable)
    }
}

/// Why an event is dead, or why its last attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Which sort of reason.
    pub class: Class,
    /// A stable code, such as `conflict` or `geojson_bounds`.
    pub code: String,
    /// Where in the payload, as a JSON pointer; may be empty.
    pub pointer: String,
    /// One sentence for people.
    pub message: String,
}

impl Cause {
    /// A cause that concerns the whole event.
    pub fn new(class: Class, code: impl Into<String>, message: impl Into<String>) -> Cause {
        Cause { class, code: code.into(), pointer: String::new(), message: message.into() }
    }
}

impl From<&geonce_key::Error> for Cause {
    fn from(error: &geonce_key::Error) -> Cause {
        let code = error.code().as_str();
        let class = match code.split('_').next() {
            Some("crs") => Class::Crs,
            Some("geojson" | "wkt" | "wkb") => Class::Geometry,
            _ => Class::Schema,
        };
        Cause { class, code: code.to_owned(), pointer: error.pointer().to_owned(), message: error.message().to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::{EventId, Ids, Timestamp};

    #[test]
    fn ids_grow_even_when_the_clock_goes_back() {
        let ids = Ids::new();
        let times = [5_000, 5_000, 4_000, 6_000, 6_000].map(Timestamp::from_millis);
        let made: Vec<EventId> = times.into_iter().map(|now| ids.next(now)).collect();
        assert!(made.windows(2).all(|pair| pair[0] < pair[1]), "{made:?}");
        assert_eq!(made[3].time(), Timestamp::from_millis(6_000));
    }

    #[test]
    fn an_id_survives_its_text() {
        let id = Ids::new().next(Timestamp::from_millis(1_794_700_800_000));
        let text = id.to_string();
        assert_eq!(text.parse(), Ok(id));
        assert_eq!(text.to_lowercase().parse(), Ok(id));
        for bad in
            ["", "evt_", "evt_01", "evt_8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "evt_0UUUUUUUUUUUUUUUUUUUUUUUUU", &text[4..]]
        {
            assert!(bad.parse::<EventId>().is_err(), "{bad}");
        }
    }
}
