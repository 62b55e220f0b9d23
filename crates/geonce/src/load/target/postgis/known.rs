//! Reads what a layer holds of its entities.

use super::Told;
use crate::load::target::known::{ENTITIES_MAX, Known, put};
use crate::postgres::Session;
use crate::sink::postgis::guard::read;
use tokio_postgres::types::Type;

/// How many are read at a time.
const PAGE: u32 = 20_000;

/// Learns what there is, once that is worth it. `table` is that of the entities.
pub(super) async fn learn(known: &mut Known, session: &Session, table: &str, layer: i32, batch: usize) -> Told<()> {
    if known.ask(batch) {
        let limit = ENTITIES_MAX + 1;
        let sql = format!("SELECT count(*) FROM (SELECT 1 FROM {table} WHERE layer = $1 LIMIT {limit}) AS counted");
        let rows = session.query(&sql, &[(&layer, Type::INT4)]).await?;
        known.count(u64::try_from(read::<i64>(&rows[0], 0)?).unwrap_or(u64::MAX));
    }
    let Some(mut all) = known.room() else { return Ok(()) };
    session
        .batch(&format!(
            "DECLARE geonce_known NO SCROLL CURSOR FOR SELECT substr(entity, 1, 8),
             CASE WHEN deleted OR content IS NULL THEN '' ELSE substr(content, 1, 16) END FROM {table} WHERE layer = {layer}"
        ))
        .await?;
    loop {
        let rows = session.query(&format!("FETCH {PAGE} FROM geonce_known"), &[]).await?;
        for row in &rows {
            put(&mut all, read(row, 0)?, read(row, 1)?);
        }
        if rows.is_empty() {
            break;
        }
    }
    session.batch("CLOSE geonce_known").await?;
    *known = Known::All(all);
    Ok(())
}
