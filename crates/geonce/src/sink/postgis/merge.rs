//! Events that go into the rows of others, and the table that says which: `geonce_merged (layer, key) → into, event`.
//!
//! It is made when it is first needed: whoever may only write need not be able to make it before. The rows are locked first
//! and the events in them counted then, so that gateways that merge into one row do it one after the other.

use super::guard::{Guard, Id, read};
use super::layer::{LOCK, Layer};
use super::row::{Arrays, Row, encoded};
use super::write::Writer;
use crate::event::EventId;
use crate::postgres::{Parameter, Session, Trouble, quoted};
use crate::sink::merge;
use geonce_key::{Encoding, Fingerprint, Limits, Shape, wkb};
use std::collections::{BTreeMap, HashMap};
use tokio_postgres::types::Type;

type Answer<T> = std::result::Result<T, Trouble>;
type Key = [u8; 16];

/// An event that went into a row.
struct Merged {
    key: Key,
    into: Key,
    event: EventId,
}

/// A row that takes events in.
struct Taking {
    fid: Option<i64>,
    /// Where it is, if that can be read.
    shape: Option<Shape<f64>>,
    /// How many events it stands for.
    events: u32,
    /// The last event that goes into it.
    last: Option<usize>,
}

impl Guard {
    /// Makes the table, if it is not there. In a transaction of its own.
    pub(super) async fn create_merged(&self, session: &Session) -> Answer<()> {
        let table = self.table("geonce_merged");
        session.execute("SELECT 1 FROM pg_advisory_xact_lock($1)", &[(&LOCK, Type::INT8)]).await?;
        let found = session.query("SELECT to_regclass($1) IS NOT NULL", &[(&table, Type::TEXT)]).await?;
        if read(&found[0], 0)? {
            return Ok(());
        }
        session
            .batch(&format!(
                "CREATE TABLE {table} (layer integer NOT NULL, key uuid NOT NULL, \"into\" uuid NOT NULL,
                   event uuid NOT NULL, PRIMARY KEY (layer, key));
                 CREATE INDEX ON {table} (layer, \"into\");
                 COMMENT ON TABLE {table} IS 'Which events went into which row; other programs leave it alone.'"
            ))
            .await
    }

    /// The rows that events went into, of those that went into one.
    async fn merged_into(&self, session: &Session, layer: i32, keys: &[Id]) -> Answer<HashMap<Key, Key>> {
        let table = self.table("geonce_merged");
        let sql = format!("SELECT key, \"into\" FROM {table} WHERE layer = $1 AND key = ANY($2)");
        let rows = session.query(&sql, &[(&layer, Type::INT4), (&keys, Type::UUID_ARRAY)]).await?;
        rows.iter().map(|row| Ok((read::<Id>(row, 0)?.0, read::<Id>(row, 1)?.0))).collect()
    }

    /// How many events went into rows, of those that any went into.
    async fn merged_counts(&self, session: &Session, layer: i32, into: &[Id]) -> Answer<HashMap<Key, u32>> {
        let table = self.table("geonce_merged");
        let sql = format!("SELECT \"into\", count(*) FROM {table} WHERE layer = $1 AND \"into\" = ANY($2) GROUP BY 1");
        let rows = session.query(&sql, &[(&layer, Type::INT4), (&into, Type::UUID_ARRAY)]).await?;
        let count = |count: i64| u32::try_from(count).unwrap_or(u32::MAX);
        rows.iter().map(|row| Ok((read::<Id>(row, 0)?.0, count(read(row, 1)?)))).collect()
    }

    async fn add_merged(&self, session: &Session, layer: i32, merged: &[Merged]) -> Answer<()> {
        let keys: Vec<Id> = merged.iter().map(|one| Id(one.key)).collect();
        let into: Vec<Id> = merged.iter().map(|one| Id(one.into)).collect();
        let events: Vec<Id> = merged.iter().map(|one| Id(one.event.to_bytes())).collect();
        let sql = format!(
            "INSERT INTO {} (layer, key, \"into\", event) SELECT $1, * FROM unnest($2, $3, $4) ON CONFLICT DO NOTHING",
            self.table("geonce_merged")
        );
        let parameters: [Parameter<'_>; 4] =
            [(&layer, Type::INT4), (&keys, Type::UUID_ARRAY), (&into, Type::UUID_ARRAY), (&events, Type::UUID_ARRAY)];
        session.execute(&sql, &parameters).await.map(drop)
    }
}

impl Writer<'_> {
    /// Writes events into the rows of others, in the order in which they came. Of a row that is gone, somebody did not want
    /// it: then only that they went there.
    pub(super) async fn merge(&self, part: &[usize]) -> Answer<()> {
        let merged = self.merged(part).await?;
        if merged.is_empty() {
            return Ok(());
        }
        let mut taking = self.taking(&merged).await?;
        for (&index, one) in part.iter().zip(&merged) {
            let (Some(row), Some(merge)) = (taking.get_mut(&one.into), self.event(index).merge) else { continue };
            let more = self.event(index).feature.geometry.as_ref();
            let averaged = match (&row.shape, more) {
                (Some(present), Some(more)) if merge.mean => merge::mean(present, row.events, more, self.settings.crs),
                _ => None,
            };
            row.shape = averaged.or_else(|| more.cloned());
            row.events = row.events.saturating_add(1);
            row.last = Some(index);
        }
        self.write_over(&taking).await?;
        self.guard.add_merged(self.session, self.layer.id, &merged).await
    }

    /// Which row each event goes into: that of its near one, or the one that this went into itself.
    async fn merged(&self, part: &[usize]) -> Answer<Vec<Merged>> {
        let wanted: Vec<Id> =
            part.iter().filter_map(|&index| self.event(index).merge).map(|merge| Id(merge.into)).collect();
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let mut known = self.guard.merged_into(self.session, self.layer.id, &wanted).await?;
        let merged = part.iter().zip(wanted).map(|(&index, Id(wanted))| {
            let (key, event) = (self.event(index).key.key(), self.event(index).event);
            let into = known.get(&wanted).copied().unwrap_or(wanted);
            known.insert(key, into);
            Merged { key, into, event }
        });
        Ok(merged.collect())
    }

    /// The rows that take events in, locked: of each key the first, should somebody have made copies.
    async fn taking(&self, merged: &[Merged]) -> Answer<BTreeMap<Key, Taking>> {
        let Layer { table, fid, geometry, postgis, .. } = self.layer;
        let fid = fid.as_ref().map_or("NULL::bigint".to_owned(), |fid| format!("{}::bigint", quoted(fid)));
        let both = |one: &Merged| [false, true].map(|secret| text(one.into, secret));
        let keys: Vec<String> = merged.iter().flat_map(both).collect();
        let sql = format!(
            "SELECT geonce_key::text, {fid}, {postgis}.ST_AsEWKB({}) FROM {table} WHERE geonce_key = ANY($1)
             ORDER BY 1, 2 FOR UPDATE",
            quoted(geometry)
        );
        let mut taking = BTreeMap::new();
        for row in &self.session.query(&sql, &[(&keys, Type::TEXT_ARRAY)]).await? {
            let Some(key) = Fingerprint::key_of_text(read(row, 0)?) else { continue };
            let bytes: Option<&[u8]> = read(row, 2)?;
            let shape = bytes.and_then(|bytes| wkb::read(bytes, &Limits::default()).ok()).map(|read| read.shape);
            let fid = read(row, 1)?;
            taking.entry(key).or_insert(Taking { fid, shape, events: 1, last: None });
        }
        let into: Vec<Id> = taking.keys().copied().map(Id).collect();
        for (key, count) in self.guard.merged_counts(self.session, self.layer.id, &into).await? {
            taking.entry(key).and_modify(|row| row.events = row.events.saturating_add(count));
        }
        Ok(taking)
    }

    async fn write_over(&self, taking: &BTreeMap<Key, Taking>) -> Answer<()> {
        let (mut rows, mut fids, mut keys): (Vec<Row>, _, Vec<String>) = (Vec::new(), Vec::new(), Vec::new());
        for (key, one) in taking {
            let Some(row) = one.last.and_then(|index| self.row(index)) else { continue };
            let as_multi = |shape| self.layer.admits(shape).unwrap_or(false);
            let geometry = one.shape.as_ref().map(|shape| encoded(shape, self.settings.crs, as_multi(shape)));
            rows.push(row.at(geometry));
            fids.push(one.fid);
            keys.push(characters(*key));
        }
        if rows.is_empty() {
            return Ok(());
        }
        let rows: Vec<&Row> = rows.iter().collect();
        let mut arrays = Arrays::new(self.layer, &rows);
        let text = arrays.update(fids, keys.iter().map(|key| Some(key.as_str())).collect(), true);
        self.session.execute(&text, &arrays.parameters()).await.map(drop)
    }
}

/// A key as rows have it.
fn text(key: Key, secret: bool) -> String {
    let mut digest = [0; 32];
    digest[..16].copy_from_slice(&key);
    Fingerprint::from_digest(digest, secret).text(Encoding::Base64)
}

/// The end of a key's text that is the key itself.
fn characters(key: Key) -> String {
    text(key, false)["g1_".len()..].to_owned()
}
