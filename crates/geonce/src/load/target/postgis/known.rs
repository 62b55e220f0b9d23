//! Reads what a layer of PostGIS holds of its entities, in short ([`Known`]).

use super::Told;
use crate::load::target::known::{Contents, ENTITIES_MAX, Known, Wish, short};
use crate::postgres::Session;
use crate::sink::postgis::guard::read;
use std::hash::BuildHasherDefault;
use tokio_postgres::types::Type;

/// How many are read at a time.
const PAGE: u32 = 20_000;

/// Reads all that there is, once it is worth it. `table` is that of the entities.
pub(super) async fn learn(known: &Known, session: &Session, table: &str, layer: i32, batch: usize) -> Told<()> {
    let mut wish = known.wish(batch);
    if matches!(wish, Wish::Count) {
        wish = known.counted(count(session, table, layer).await?);
    }
    if let Wish::Read(entities) = wish {
        known.read(all(session, table, layer, entities).await?);
    }
    Ok(())
}

async fn count(session: &Session, table: &str, layer: i32) -> Told<u64> {
    let sql =
        format!("SELECT count(*) FROM (SELECT 1 FROM {table} WHERE layer = $1 LIMIT {}) AS counted", ENTITIES_MAX + 1);
    let rows = session.query(&sql, &[(&layer, Type::INT4)]).await?;
    Ok(u64::try_from(read::<i64>(&rows[0], 0)?).unwrap_or(u64::MAX))
}

async fn all(session: &Session, table: &str, layer: i32, entities: u64) -> Told<Contents> {
    let entities = usize::try_from(entities).unwrap_or(0);
    let mut all = Contents::with_capacity_and_hasher(entities, BuildHasherDefault::default());
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
            all.insert(short(entity), content.try_into().unwrap_or_default());
        }
        if rows.is_empty() {
            break;
        }
    }
    session.batch("CLOSE geonce_known").await?;
    Ok(all)
}
