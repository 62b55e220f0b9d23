//! Repairs as stores see them: a dead event is superseded by a new one, both in one step. What a repair makes of a payload
//! is decided elsewhere (`crate::repair`).

use super::verdict::clash_key;
use super::{NewEvent, ResultText, Verdict};
use crate::event::{EventId, Outcome, State};
use geonce_key::Fingerprint;
use sha2::{Digest, Sha256};

/// What the digest of a repair's own key begins with, so that it is no key of anything else.
const REPAIR_PREFIX: &[u8] = b"geonce repair 1\0";
/// Bytes of a stored origin: the id, whether a key secret was used, and the digest.
const ORIGIN_BYTES: usize = 16 + 1 + 32;

/// The event that a repair began with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its id.
    pub event: EventId,
    /// The key it is known by.
    pub key: Fingerprint,
}

/// A dead event, and the one that is to take its place.
#[derive(Clone, Debug)]
pub struct Repair {
    /// The dead event.
    pub original: EventId,
    /// The new one, as it would be given to [`super::Store::accept`]. Its keys must not be the original's: see [`own_key`].
    pub event: NewEvent,
}

/// What became of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repaired {
    /// The original is done, outcome `repaired`; this is what the new event is. A repetition of the same call is told so
    /// again.
    Done(Verdict),
    /// An earlier repair has done it.
    Before {
        /// What the original became then.
        event: EventId,
    },
    /// The original is not dead. Nothing was changed.
    NotDead {
        /// Where it is.
        state: State,
        /// What became of it, once done.
        outcome: Option<Outcome>,
    },
    /// There is no such event.
    Unknown,
    /// The new event has a key of the original, so it would be its own duplicate. Nothing was changed.
    SameKey,
}

impl Verdict {
    /// The event that the content is kept in, given the id that it was brought under.
    pub const fn kept_in(&self, own: EventId) -> EventId {
        match self {
            Verdict::Accepted => own,
            Verdict::Duplicate { of, .. } => *of,
            Verdict::Conflict { event, .. } => *event,
        }
    }

    /// The word for it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Verdict::Accepted => "accepted",
            Verdict::Duplicate { .. } => "duplicate",
            Verdict::Conflict { .. } => "conflict",
        }
    }
}

/// The key of a repaired event whose own would be one of its original's: of both, and of its content.
pub fn own_key(original: &Fingerprint, content: &[u8; 32]) -> Fingerprint {
    let mut digest = Sha256::new();
    digest.update(REPAIR_PREFIX);
    digest.update(original.digest());
    digest.update(content);
    Fingerprint::from_digest(digest.finalize().into(), original.is_secret())
}

/// What an event became that was repaired, given its result.
pub fn successor(result: &str) -> Option<EventId> {
    let result: serde_json::Value = serde_json::from_str(result).ok()?;
    result.get("repaired")?.as_str()?.parse().ok()
}

/// The result of an original: what it became, and what it had died of.
pub(super) fn result(verdict: &Verdict, own: EventId, code: &str) -> ResultText {
    let (event, verdict, code) = (verdict.kept_in(own), verdict.as_str(), serde_json::Value::from(code));
    ResultText::short(&format!("{{\"code\":{code},\"repaired\":\"{event}\",\"verdict\":\"{verdict}\"}}"))
}

/// What a repair is told whose original is done: the same again where it is what this repair made.
pub(super) fn repeated(repair: &Repair, outcome: Option<Outcome>, result: Option<&str>) -> Repaired {
    match result.and_then(successor).filter(|_| outcome == Some(Outcome::Repaired)) {
        Some(event) if event == repair.event.id => Repaired::Done(Verdict::Accepted),
        Some(event) => Repaired::Before { event },
        None => Repaired::NotDead { state: State::Done, outcome },
    }
}

/// Whether a new event would be taken for its original.
pub(super) fn shares_key(event: &NewEvent, original: &[Fingerprint]) -> bool {
    let is_known = |key: &Fingerprint| original.iter().any(|known| known.key() == key.key());
    std::iter::once(&event.key).chain(&event.aliases).chain([&clash_key(event)]).any(is_known)
}

/// An origin as stores keep it.
pub(super) fn write_origin(origin: &Origin) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ORIGIN_BYTES);
    bytes.extend_from_slice(&origin.event.to_bytes());
    bytes.push(u8::from(origin.key.is_secret()));
    bytes.extend_from_slice(origin.key.digest());
    bytes
}

/// Reads an origin back.
pub(super) fn read_origin(bytes: &[u8]) -> Result<Origin, String> {
    let bytes: [u8; ORIGIN_BYTES] = bytes.try_into().map_err(|_| "an origin that cannot be read".to_owned())?;
    let (mut id, mut digest) = ([0; 16], [0; 32]);
    id.copy_from_slice(&bytes[..16]);
    digest.copy_from_slice(&bytes[17..]);
    Ok(Origin { event: EventId::from_bytes(id), key: Fingerprint::from_digest(digest, bytes[16] != 0) })
}

#[cfg(test)]
mod tests {
    use super::{Origin, own_key, read_origin, result, successor, write_origin};
    use crate::event::EventId;
    use crate::store::Verdict;
    use crate::store::conformance::key;

    #[test]
    fn an_origin_survives_its_stored_form() {
        let origin = Origin { event: EventId::from_bytes([7; 16]), key: key("a") };
        let bytes = write_origin(&origin);
        assert_eq!(read_origin(&bytes), Ok(origin));
        assert!(read_origin(&bytes[1..]).is_err());
    }

    #[test]
    fn a_result_names_what_the_event_became() {
        let (own, other) = (EventId::from_bytes([1; 16]), EventId::from_bytes([2; 16]));
        let conflict = Verdict::Conflict { event: own, of: other };
        assert_eq!(successor(result(&Verdict::Accepted, own, "spike").as_str()), Some(own));
        assert_eq!(successor(result(&conflict, own, "a\"b").as_str()), Some(own));
        assert!(
            ["", "{}", "[]", "{\"repaired\":3}", "{\"repaired\":\"evt_\"}"].iter().all(|no| successor(no).is_none())
        );
    }

    #[test]
    fn the_own_key_of_a_repair_depends_on_original_and_content() {
        let keys = [own_key(&key("a"), &[0; 32]), own_key(&key("a"), &[1; 32]), own_key(&key("b"), &[0; 32]), key("a")];
        assert!((0..4).all(|one| (0..one).all(|other| keys[one] != keys[other])));
        assert_eq!(keys[0], own_key(&key("a"), &[0; 32]));
    }
}
