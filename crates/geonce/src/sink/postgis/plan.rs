//! What a batch is to come to, before it is written: what becomes of its events, and of the entities they are about.

use super::guard::{Decided, Entity};
use crate::sink::Written;
use crate::sink::version::Held;
use geonce_key::{Encoding, Fingerprint, Version};
use std::collections::{BTreeSet, HashMap};

/// The end of a key's text that is the key itself, after `g1_` or `g1k_`.
const KEY_CHARACTERS: usize = 22;

/// The room that was made for entities.
#[derive(Default)]
pub(super) struct Room {
    /// Entities that the layer holds nothing of.
    pub(super) unused: BTreeSet<[u8; 32]>,
    /// What there is in the room of some: what the entity becomes, if all goes as it should.
    pub(super) filled: HashMap<[u8; 32], Entity>,
}

impl Room {
    /// What is there of an entity whose room is not used yet.
    pub(super) fn filled(&self, entity: &[u8; 32]) -> Option<&Entity> {
        self.filled.get(entity).filter(|_| self.unused.contains(entity))
    }
}

/// What a part comes to.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) answers: Vec<(usize, Written)>,
    pub(super) decided: Vec<Decided>,
    /// At most one for each entity: its latest event, whose row replaces all before it.
    pub(super) changes: Vec<Change>,
}

pub(super) struct Change {
    pub(super) index: usize,
    pub(super) entity: [u8; 32],
    pub(super) version: Version,
    /// The row that is there, if the entity has one.
    pub(super) stored: Option<Stored>,
    /// Whether that row goes: the entity is deleted, or was in between.
    pub(super) removes: bool,
}

#[derive(Clone)]
pub(super) struct Stored {
    pub(super) fid: Option<i64>,
    pub(super) key_characters: String,
}

impl Stored {
    pub(super) fn new(held: &Held) -> Stored {
        let mut digest = [0; 32];
        digest[..16].copy_from_slice(&held.key);
        let text = Fingerprint::from_digest(digest, false).text(Encoding::Base64);
        Stored { fid: held.fid, key_characters: text[text.len() - KEY_CHARACTERS..].to_owned() }
    }
}

/// The number of the next arrival: one above what the entity has.
pub(super) fn next_arrival(held: Option<&Held>) -> i128 {
    match held.and_then(|held| held.version.as_ref()) {
        Some(Version::Integer(number)) => number.saturating_add(1),
        _ => 1,
    }
}
