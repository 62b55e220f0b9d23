//! What a layer holds of its entities, in short: which are there, and with which content. Read once for a transaction that is
//! about many of them, instead of asking for each: a tenth of the time where most of a file is unchanged.
//!
//! It may say of an entity that it is there with other content though it is not; then the database is asked. It never says
//! that one is unchanged or new that was not so when it was read.

use super::Piece;
use std::collections::{BTreeSet, HashMap, HashSet};

/// The most entities that are kept: about forty megabytes.
pub(super) const ENTITIES_MAX: u64 = (1 << 21) / 8 * 7;
/// How many features are asked for one by one before anything else is considered.
const ASKED_MIN: u64 = 2_000;
/// Asking for one takes as long as reading so many.
const READ_PER_ASKED: u64 = 20;

type Entity = [u8; 32];

/// How much is kept of an entity. Where two have these bytes in common, the database is asked about both.
const ENTITY_BYTES: usize = 6;
/// How much is kept of a digest of content: one change in 2^80 would not be seen.
const CONTENT_BYTES: usize = 10;

/// By the first bytes of entities, the first bytes of their contents.
pub(super) type Contents = HashMap<[u8; ENTITY_BYTES], [u8; CONTENT_BYTES]>;

/// What is known.
pub(super) enum Known {
    /// Nothing, but how many features were asked for, and of how many entities.
    Counted {
        asked: u64,
        entities: Option<u64>,
    },
    All(Contents),
    /// There are too many.
    TooMany,
}

/// The entities of a batch that are not unchanged, and those of them that are there.
pub(super) type Touched = (HashSet<Entity>, BTreeSet<Entity>);

impl Known {
    /// Whether a feature is what the layer holds of its entity, if that is known.
    pub(super) fn is_unchanged(&self, piece: &Piece) -> bool {
        let (Known::All(all), Some(entity)) = (self, &piece.entity) else { return false };
        all.get(&short(entity.digest())).is_some_and(|content| *content == piece.content[..CONTENT_BYTES])
    }

    /// The entities of a batch, if they are known.
    pub(super) fn touched(&self, pieces: &[&Piece]) -> Option<Touched> {
        let Known::All(all) = self else { return None };
        let (mut touched, mut there) = (HashSet::new(), BTreeSet::new());
        for piece in pieces {
            let Some(entity) = piece.entity.as_ref().map(|entity| *entity.digest()) else { continue };
            match all.get(&short(&entity)) {
                Some(content) if *content == piece.content[..CONTENT_BYTES] => {}
                found => {
                    touched.insert(entity);
                    if found.is_some() {
                        there.insert(entity);
                    }
                }
            }
        }
        Some((touched, there))
    }

    /// Notes what has been written.
    pub(super) fn note<'a>(&mut self, changes: impl Iterator<Item = (&'a Entity, &'a [u8; 32])>) {
        let Known::All(all) = self else { return };
        for (entity, content) in changes {
            put(all, entity, content);
        }
        if all.len() as u64 > ENTITIES_MAX {
            *self = Known::TooMany;
        }
    }

    /// Counts the features of a batch that is about to be asked for. Whether it is time to count the entities.
    pub(super) fn ask(&mut self, batch: usize) -> bool {
        match self {
            Known::All(_) | Known::TooMany => false,
            Known::Counted { asked, entities } => {
                *asked += batch as u64;
                *asked > ASKED_MIN && entities.is_none()
            }
        }
    }

    /// Takes note of how many entities there are.
    pub(super) fn count(&mut self, found: u64) {
        match self {
            _ if found > ENTITIES_MAX => *self = Known::TooMany,
            Known::Counted { entities, .. } => *entities = Some(found),
            _ => {}
        }
    }

    /// Whether all are to be read by now; with room for them, to be filled by [`put`].
    pub(super) fn room(&self) -> Option<Contents> {
        match self {
            Known::Counted { asked, entities: Some(entities) } if asked.saturating_mul(READ_PER_ASKED) >= *entities => {
                Some(Contents::with_capacity(usize::try_from(*entities).unwrap_or(0)))
            }
            _ => None,
        }
    }
}

impl Default for Known {
    fn default() -> Self {
        Known::Counted { asked: 0, entities: None }
    }
}

/// Adds an entity to those that are known. One that is gone has no content.
pub(super) fn put(all: &mut Contents, entity: &[u8], content: &[u8]) {
    let content = content.get(..CONTENT_BYTES).and_then(|content| content.try_into().ok()).unwrap_or_default();
    all.insert(short(entity), content);
}

fn short(entity: &[u8]) -> [u8; ENTITY_BYTES] {
    entity.get(..ENTITY_BYTES).and_then(|first| first.try_into().ok()).unwrap_or_default()
}
