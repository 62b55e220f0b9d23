//! What a layer holds of its entities, in short: which are there, and with which content. Read once for a transaction that is
//! about many of them, instead of asking for each: a tenth of the time where most of a file is unchanged.
//!
//! It may say of an entity that it is there with other content though it is not; then the database is asked. It never says
//! that one is unchanged or new that was not so when it was read. Reading is the destinations' own.

use super::Piece;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The most entities that are kept: about fifty megabytes.
pub(super) const ENTITIES_MAX: u64 = (1 << 21) / 8 * 7;
/// How many features are asked for one by one before anything else is considered.
const ASKED_MIN: u64 = 2_000;
/// Asking for one takes as long as reading so many.
const READ_PER_ASKED: u64 = 20;

pub(super) type Entity = [u8; 32];

/// What is known: the destination's to change, and for those who make its pieces to look at. What they see may be of a moment
/// ago; it is so when they ask between two writes.
#[derive(Clone, Default)]
pub struct Known(Arc<RwLock<Kept>>);

#[derive(Default)]
struct Kept {
    knowledge: Knowledge,
    /// How many features a transaction is expected to be about, at least.
    expected: u64,
    /// How often everything was forgotten.
    epoch: u64,
    /// The first bytes of the entities that were touched since.
    touched: HashSet<u64>,
}

#[derive(Default)]
enum Knowledge {
    #[default]
    Nothing,
    /// Nothing, but how many features were asked for, and of how many entities.
    Counted { asked: u64, entities: Option<u64> },
    /// By the first bytes of the entity, the first bytes of its content.
    All(Contents),
    /// There are too many.
    TooMany,
}

/// Entities by their first bytes, each with the first bytes of its content.
pub(super) type Contents = HashMap<u64, [u8; 16], BuildHasherDefault<Spread>>;

/// The first bytes of a digest are as good as any hash of them; turned so that entities which are read in their order are put
/// beside each other.
#[derive(Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number.rotate_left(ENTITIES_MAX.next_power_of_two().trailing_zeros());
    }

    fn write(&mut self, bytes: &[u8]) {
        self.write_u64(short(bytes));
    }
}

/// An entity that was there with the same content.
pub(in crate::load) struct Finding {
    entity: u64,
    epoch: u64,
}

/// What a destination is to find out.
pub(super) enum Wish {
    Nothing,
    /// How many entities there are, up to one more than [`ENTITIES_MAX`]; then [`Known::counted`].
    Count,
    /// All of them, which are about so many; then [`Known::read`].
    Read(u64),
}

/// The entities of a batch that are not unchanged, and those of them that are there.
pub(super) type Touched = (HashSet<Entity>, BTreeSet<Entity>);

impl Known {
    /// Nothing is known, and so many features are expected in each transaction.
    pub(super) fn expecting(expected: u64) -> Known {
        Known(Arc::new(RwLock::new(Kept { expected, ..Kept::default() })))
    }

    /// The entities of a batch, if they are known.
    pub(super) fn touched(&self, pieces: &[&Piece]) -> Option<Touched> {
        let kept = self.get();
        let Knowledge::All(all) = &kept.knowledge else { return None };
        let (mut touched, mut there) = (HashSet::new(), BTreeSet::new());
        for piece in pieces {
            let Some(entity) = piece.entity.as_ref().map(|entity| *entity.digest()) else { continue };
            match all.get(&short(&entity)) {
                Some(content) if *content == piece.content[..16] => {}
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

    /// Whether everything is known.
    pub(in crate::load) fn is_complete(&self) -> bool {
        matches!(&self.get().knowledge, Knowledge::All(_))
    }

    /// Whether an entity is there with this content, for one who tells others later: they ask [`Known::stands`].
    pub(in crate::load) fn find_unchanged(&self, entity: &Entity, content: &[u8; 32]) -> Option<Finding> {
        let Kept { knowledge, epoch, .. } = &*self.get();
        let Knowledge::All(all) = knowledge else { return None };
        let entity = short(entity);
        all.get(&entity).is_some_and(|known| *known == content[..16]).then_some(Finding { entity, epoch: *epoch })
    }

    /// Whether what was found is still so. It costs less than to look again: little is written where most is unchanged.
    pub(in crate::load) fn stands(&self, finding: &Finding) -> bool {
        let Kept { knowledge, epoch, touched, .. } = &*self.get();
        matches!(knowledge, Knowledge::All(_)) && *epoch == finding.epoch && !touched.contains(&finding.entity)
    }

    /// A feature of this entity is about to be written: what was found of it does not stand any more.
    pub(in crate::load) fn touch(&self, entity: &Entity) {
        let mut kept = self.change();
        if matches!(kept.knowledge, Knowledge::All(_)) {
            kept.touched.insert(short(entity));
        }
    }

    /// Whether an entity is there with this content, as far as that is known.
    pub(super) fn is_unchanged(&self, entity: &Entity, content: &[u8; 32]) -> bool {
        matches!(&self.get().knowledge, Knowledge::All(all) if all.get(&short(entity)).is_some_and(|known| *known == content[..16]))
    }

    /// Whether an entity is certainly not there.
    pub(super) fn is_new(&self, entity: &Entity) -> bool {
        matches!(&self.get().knowledge, Knowledge::All(all) if !all.contains_key(&short(entity)))
    }

    /// Notes what has been written.
    pub(super) fn note<'a>(&self, changes: impl Iterator<Item = (&'a Entity, &'a [u8; 32])>) {
        let knowledge = &mut self.change().knowledge;
        let Knowledge::All(all) = knowledge else { return };
        for (entity, content) in changes {
            all.insert(short(entity), first(content));
        }
        if all.len() as u64 > ENTITIES_MAX {
            *knowledge = Knowledge::TooMany;
        }
    }

    /// What is worth finding out, now that a batch of so many features is to be asked for.
    pub(super) fn wish(&self, batch: usize) -> Wish {
        let Kept { knowledge, expected, .. } = &mut *self.change();
        let (asked, entities) = match knowledge {
            Knowledge::All(_) | Knowledge::TooMany => return Wish::Nothing,
            Knowledge::Nothing => (batch as u64, None),
            Knowledge::Counted { asked, entities } => (*asked + batch as u64, *entities),
        };
        *knowledge = Knowledge::Counted { asked, entities };
        let asked = asked.max(*expected);
        match entities {
            _ if asked <= ASKED_MIN => Wish::Nothing,
            None => Wish::Count,
            Some(entities) if asked.saturating_mul(READ_PER_ASKED) < entities => Wish::Nothing,
            Some(entities) => Wish::Read(entities),
        }
    }

    /// How many entities there are, and what is worth finding out then.
    pub(super) fn counted(&self, entities: u64) -> Wish {
        match &mut self.change().knowledge {
            known if entities > ENTITIES_MAX => {
                *known = Knowledge::TooMany;
                return Wish::Nothing;
            }
            Knowledge::Counted { entities: known, .. } => *known = Some(entities),
            _ => return Wish::Nothing,
        }
        self.wish(0)
    }

    /// All entities, each with its first eight bytes, and the first sixteen of its content; nothing where it is gone.
    pub(super) fn read(&self, all: Contents) {
        self.change().knowledge = Knowledge::All(all);
    }

    /// Others may write from now on, or have written.
    pub(super) fn forget(&self) {
        let mut kept = self.change();
        *kept = Kept { epoch: kept.epoch + 1, expected: kept.expected, ..Kept::default() };
    }

    fn get(&self) -> RwLockReadGuard<'_, Kept> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, Kept> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first bytes of an entity, as a number.
pub(super) fn short(entity: &[u8]) -> u64 {
    entity.iter().take(8).fold(0, |number, &byte| (number << 8) | u64::from(byte))
}

fn first(digest: &[u8; 32]) -> [u8; 16] {
    let mut first = [0; 16];
    first.copy_from_slice(&digest[..16]);
    first
}
