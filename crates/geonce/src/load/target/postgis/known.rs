//! What a layer holds of its entities, in short: which are there, and with which content. Read once for a transaction that is
//! about many of them, instead of asking for each: a tenth of the time where most of a file is unchanged.
//!
//! It may say of an entity that it is there with other content though it is not; then the database is asked. It never says
//! that one is unchanged or new that was not so when it was read.

use super::Told;
use crate::load::target::Piece;
use crate::postgres::Session;
use crate::sink::postgis::guard::read;
use std::collections::{BTreeSet, HashMap, HashSet};
use tokio_postgres::types::Type;

/// The most entities that are kept: about fifty megabytes.
const ENTITIES_MAX: u64 = (1 << 21) / 8 * 7;
/// How many features are asked for one by one before anything else is considered.
const ASKED_MIN: u64 = 2_000;
/// Asking for one takes as long as reading so many.
const READ_PER_ASKED: u64 = 20;
/// How many are read at a time.
const PAGE: u32 = 20_000;

type Entity = [u8; 32];

/// What is known.
#[derive(Default)]
pub(super) enum Known {
    #[default]
    Nothing,
    /// Nothing, but how many features were asked for, and of how many entities.
    Counted { asked: u64, entities: Option<u64> },
    /// By the first bytes of the entity, the first bytes of its content.
    All(HashMap<u64, [u8; 16]>),
    /// There are too many.
    TooMany,
}

/// The entities of a batch that are not unchanged, and those of them that are there.
pub(super) type Touched = (HashSet<Entity>, BTreeSet<Entity>);

impl Known {
    /// The entities of a batch, if they are known.
    pub(super) fn touched(&self, pieces: &[&Piece]) -> Option<Touched> {
        let Known::All(all) = self else { return None };
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

    /// Notes what has been written.
    pub(super) fn note<'a>(&mut self, changes: impl Iterator<Item = (&'a Entity, &'a [u8; 32])>) {
        let Known::All(all) = self else { return };
        for (entity, content) in changes {
            all.insert(short(entity), first(content));
        }
        if all.len() as u64 > ENTITIES_MAX {
            *self = Known::TooMany;
        }
    }

    /// Reads all that there is, once it is worth it. `table` is that of the entities.
    pub(super) async fn learn(&mut self, session: &Session, table: &str, layer: i32, batch: usize) -> Told<()> {
        let (asked, entities) = match self {
            Known::All(_) | Known::TooMany => return Ok(()),
            Known::Nothing => (batch as u64, None),
            Known::Counted { asked, entities } => (*asked + batch as u64, *entities),
        };
        *self = Known::Counted { asked, entities };
        if asked <= ASKED_MIN {
            return Ok(());
        }
        let entities = match entities {
            Some(entities) => entities,
            None => count(session, table, layer).await?,
        };
        *self = match entities {
            _ if entities > ENTITIES_MAX => Known::TooMany,
            _ if asked.saturating_mul(READ_PER_ASKED) < entities => Known::Counted { asked, entities: Some(entities) },
            _ => Known::All(all(session, table, layer, entities).await?),
        };
        Ok(())
    }
}

fn short(entity: &Entity) -> u64 {
    entity.iter().take(8).fold(0, |number, &byte| (number << 8) | u64::from(byte))
}

fn first(digest: &[u8; 32]) -> [u8; 16] {
    let mut first = [0; 16];
    first.copy_from_slice(&digest[..16]);
    first
}

async fn count(session: &Session, table: &str, layer: i32) -> Told<u64> {
    let sql =
        format!("SELECT count(*) FROM (SELECT 1 FROM {table} WHERE layer = $1 LIMIT {}) AS some", ENTITIES_MAX + 1);
    let rows = session.query(&sql, &[(&layer, Type::INT4)]).await?;
    Ok(u64::try_from(read::<i64>(&rows[0], 0)?).unwrap_or(u64::MAX))
}

async fn all(session: &Session, table: &str, layer: i32, entities: u64) -> Told<HashMap<u64, [u8; 16]>> {
    let mut all = HashMap::with_capacity(usize::try_from(entities).unwrap_or(0));
    // An entity that is gone has no content that a feature could have.
    session
        .batch(&format!(
            "DECLARE geonce_known NO SCROLL CURSOR FOR SELECT substr(entity, 1, 8),
             CASE WHEN deleted OR content IS NULL THEN '' ELSE substr(content, 1, 16) END FROM {table} WHERE layer = {layer}"
        ))
        .await?;
    loop {
        let rows = session.query(&format!("FETCH {PAGE} FROM geonce_known"), &[]).await?;
        for row in &rows {
            let (entity, content): (&[u8], &[u8]) = (read(row, 0)?, read(row, 1)?);
            let entity = entity.iter().fold(0, |number, &byte| (number << 8) | u64::from(byte));
            all.insert(entity, content.try_into().unwrap_or_default());
        }
        if rows.is_empty() {
            break;
        }
    }
    session.batch("CLOSE geonce_known").await?;
    Ok(all)
}
