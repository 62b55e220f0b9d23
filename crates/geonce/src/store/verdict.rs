//! The rules that every store follows when it judges an event, as pure functions: what contradicts what, under which key
//! a contradiction is kept, and what several sinks make of one event.

use super::NewEvent;
use super::books::Tally;
use crate::event::{Cause, Class, EventId, Outcome};
use geonce_key::Fingerprint;
use sha2::{Digest, Sha256};

/// What the digest of a conflicting content begins with, so that it is no key of anything else.
const CONFLICT_PREFIX: &[u8] = b"geonce conflict 1\0";

/// Same id or key, other content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Clash {
    /// A delivery id that comes with other content.
    Conflict,
    /// One key with two fingerprints.
    Collision,
}

impl Clash {
    /// Where it is counted.
    pub(super) const fn tally(self) -> Tally {
        match self {
            Clash::Conflict => Tally::Conflict,
            Clash::Collision => Tally::Collision,
        }
    }

    /// Why the event is dead, given who came first.
    pub(super) fn cause(self, holder: EventId) -> Cause {
        let (code, message) = match self {
            Clash::Collision => {
                ("collision", format!("{holder} is known by the same key, but not by the same fingerprint"))
            }
            Clash::Conflict => ("conflict", format!("{holder} came under the same id with other content")),
        };
        Cause::new(Class::Conflict, code, message)
    }
}

/// Whether an event that shares `shared` with a holder clashes with it: the holder has `digests` and `spatial`.
pub(super) fn clash(
    event: &NewEvent,
    shared: &Fingerprint,
    digests: &[Fingerprint],
    spatial: &[Fingerprint],
) -> Option<Clash> {
    if !digests.iter().any(|known| known.digest() == shared.digest()) {
        return Some(Clash::Collision);
    }
    // A known delivery id with content that shares no spatial fingerprint with what came first.
    let shares = |mine: &Fingerprint| spatial.contains(mine) || digests.contains(mine);
    (!event.spatial.is_empty() && !event.spatial.iter().any(shares)).then_some(Clash::Conflict)
}

/// The key under which a clashing event is kept: one for each content.
pub(super) fn clash_key(event: &NewEvent) -> Fingerprint {
    let mut digest = Sha256::new();
    digest.update(CONFLICT_PREFIX);
    digest.update(event.key.digest());
    digest.update(event.content);
    Fingerprint::from_digest(digest.finalize().into(), event.key.is_secret())
}

/// The outcome of an event after one more sink: applied anywhere is applied.
pub(super) const fn outcome_with(earlier: Option<Outcome>, new: Option<Outcome>) -> Option<Outcome> {
    match (earlier, new) {
        (Some(Outcome::Applied), _) | (_, None) => earlier,
        (None, _) | (_, Some(Outcome::Applied)) => new,
        (Some(_), Some(_)) => earlier,
    }
}

/// Of two causes of dead work the one that stands for the event: one that time does not mend comes first.
pub(super) fn cause_with(known: Option<Cause>, cause: Cause) -> Cause {
    match known {
        Some(known) if !known.class.is_transient() || cause.class.is_transient() => known,
        _ => cause,
    }
}
