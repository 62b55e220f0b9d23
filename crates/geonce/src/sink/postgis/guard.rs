//! The proof of once: tables in the layer's schema, written in the transaction that writes the rows.
//!
//! * `geonce_applied (layer, key) → event, stale`: every event that was decided here, for ever.
//! * `geonce_entity (layer, entity) → version, key, content, fid, deleted`: what an upsert layer holds.
//! * `geonce_merged`, from the first such event on, is the business of `merge`.
//! * `geonce_layer (id, name)` and `geonce_column (layer, name)`: short numbers for layers, and the columns we made.
//!
//! Keys and events are uuids: sixteen bytes without a header, in the order of their bytes. Whoever takes several rows takes
//! them in that order, so that two gateways wait for each other and never in a circle. The tables know layers by name: they
//! survive a layer that is dropped, replaced or edited.

use crate::error::{Error, Kind};
use crate::event::{EventId, Outcome};
use crate::postgres::{Parameter, Session, Trouble, quoted};
use crate::sink::Proof;
use crate::sink::version::Held;
use bytes::BytesMut;
use geonce_key::Version;
use std::collections::{BTreeSet, HashMap, HashSet};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

type Answer<T> = std::result::Result<T, Trouble>;

const TABLES: [&str; 4] = ["geonce_layer", "geonce_column", "geonce_applied", "geonce_entity"];

/// Sixteen bytes as a uuid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Id(pub(crate) [u8; 16]);

impl ToSql for Id {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> std::result::Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

impl FromSql<'_> for Id {
    fn from_sql(_: &Type, raw: &[u8]) -> std::result::Result<Id, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Id(raw.try_into()?))
    }

    accepts!(UUID);
}

/// A key that is decided.
#[derive(Clone, Copy)]
pub(super) struct Decided {
    pub(super) key: [u8; 16],
    pub(super) event: EventId,
    pub(super) outcome: Outcome,
}

/// Decided keys as a statement takes them.
struct Parameters {
    layer: i32,
    keys: Vec<Id>,
    events: Vec<Id>,
    stale: Vec<bool>,
}

impl Parameters {
    fn new(layer: i32, decided: &[Decided]) -> Parameters {
        Parameters {
            layer,
            keys: decided.iter().map(|one| Id(one.key)).collect(),
            events: decided.iter().map(|one| Id(one.event.to_bytes())).collect(),
            stale: decided.iter().map(|one| one.outcome == Outcome::Stale).collect(),
        }
    }

    fn list(&self) -> [Parameter<'_>; 4] {
        [
            (&self.layer, Type::INT4),
            (&self.keys, Type::UUID_ARRAY),
            (&self.events, Type::UUID_ARRAY),
            (&self.stale, Type::BOOL_ARRAY),
        ]
    }
}

/// Whether a statement failed because a key was decided already.
pub(super) fn is_known_key(trouble: &Trouble) -> bool {
    matches!(trouble, Trouble::Told(error)
        if *error.code() == SqlState::UNIQUE_VIOLATION && error.table() == Some("geonce_applied"))
}

/// What an entity becomes.
#[derive(Clone)]
pub(super) struct Entity {
    pub(super) digest: [u8; 32],
    pub(super) version: Version,
    pub(super) key: [u8; 16],
    pub(super) content: [u8; 32],
    pub(super) fid: Option<i64>,
    pub(super) deleted: bool,
}

/// Entities as a statement takes them: all of them, and of some what they become.
struct Entities<'e> {
    layer: i32,
    digests: Vec<&'e [u8]>,
    versions: Vec<Option<String>>,
    keys: Vec<Option<Id>>,
    contents: Vec<Option<&'e [u8]>>,
    fids: Vec<Option<i64>>,
    deleted: Vec<bool>,
}

impl<'e> Entities<'e> {
    fn new(layer: i32, list: impl Iterator<Item = (&'e [u8; 32], Option<&'e Entity>)> + Clone) -> Entities<'e> {
        let becomes = list.clone().map(|(_, becomes)| becomes);
        Entities {
            layer,
            digests: list.map(|(digest, _)| &digest[..]).collect(),
            versions: becomes.clone().map(|one| one.map(|one| one.version.to_string())).collect(),
            keys: becomes.clone().map(|one| one.map(|one| Id(one.key))).collect(),
            contents: becomes.clone().map(|one| one.map(|one| &one.content[..])).collect(),
            fids: becomes.clone().map(|one| one.and_then(|one| one.fid)).collect(),
            deleted: becomes.map(|one| one.is_some_and(|one| one.deleted)).collect(),
        }
    }

    fn list(&self) -> [Parameter<'_>; 7] {
        [
            (&self.layer, Type::INT4),
            (&self.digests, Type::BYTEA_ARRAY),
            (&self.versions, Type::TEXT_ARRAY),
            (&self.keys, Type::UUID_ARRAY),
            (&self.contents, Type::BYTEA_ARRAY),
            (&self.fids, Type::INT8_ARRAY),
            (&self.deleted, Type::BOOL_ARRAY),
        ]
    }
}

/// The tables of one schema.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    schema: String,
}

impl Guard {
    pub(crate) fn new(schema: &str) -> Guard {
        Guard { schema: schema.to_owned() }
    }

    pub(super) fn table(&self, name: &str) -> String {
        format!("{}.{name}", quoted(&self.schema))
    }

    /// Creates what is missing. Asks first: even `IF NOT EXISTS` wants the right to create.
    pub(crate) async fn create(&self, session: &Session) -> Answer<()> {
        let names: Vec<&str> = TABLES.to_vec();
        let found = session
            .query(
                "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                 WHERE n.nspname = $1 AND c.relname = ANY($2)",
                &[(&self.schema, Type::TEXT), (&names, Type::TEXT_ARRAY)],
            )
            .await?;
        if read::<i64>(&found[0], 0)? == 4 {
            return Ok(());
        }
        let [layer, column, applied, entity] = TABLES.map(|name| self.table(name));
        // What an entity becomes finds room on the same page: then the index needs no new entry.
        session
            .batch(&format!(
                "CREATE TABLE IF NOT EXISTS {layer} (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE);
                 CREATE TABLE IF NOT EXISTS {column} (layer integer NOT NULL, name text NOT NULL, PRIMARY KEY (layer, name));
                 CREATE TABLE IF NOT EXISTS {applied} (layer integer NOT NULL, key uuid NOT NULL, event uuid NOT NULL,
                   stale boolean NOT NULL, PRIMARY KEY (layer, key));
                 CREATE TABLE IF NOT EXISTS {entity} (layer integer NOT NULL, entity bytea NOT NULL, version text, key uuid,
                   content bytea, fid bigint, deleted boolean NOT NULL DEFAULT false, PRIMARY KEY (layer, entity))
                   WITH (fillfactor = 80);
                 COMMENT ON TABLE {applied} IS 'Which events have been written to which layer; other programs leave it alone.';
                 COMMENT ON TABLE {entity} IS 'What layers hold of which entity; other programs leave it alone.'"
            ))
            .await
    }

    /// The number of a layer, given on first use.
    pub(crate) async fn layer(&self, session: &Session, name: &str) -> Answer<i32> {
        let table = self.table("geonce_layer");
        let name = [(&name as &(dyn ToSql + Sync), Type::TEXT)];
        let find = format!("SELECT id FROM {table} WHERE name = $1");
        if let Some(row) = session.query(&find, &name).await?.first() {
            return read(row, 0);
        }
        let insert = format!("INSERT INTO {table} (name) VALUES ($1) RETURNING id");
        match session.query(&insert, &name).await?.first() {
            Some(row) => read(row, 0),
            None => Err(Error::new(Kind::Internal, "a layer was given no number").into()),
        }
    }

    /// The columns of a layer that we made.
    pub(super) async fn columns(&self, session: &Session, layer: i32) -> Answer<Vec<String>> {
        let sql = format!("SELECT name FROM {} WHERE layer = $1", self.table("geonce_column"));
        session.query(&sql, &[(&layer, Type::INT4)]).await?.iter().map(|row| read(row, 0)).collect()
    }

    pub(crate) async fn add_columns(&self, session: &Session, layer: i32, names: &[&str]) -> Answer<()> {
        let sql = format!(
            "INSERT INTO {} SELECT $1, name FROM unnest($2) AS name ON CONFLICT DO NOTHING",
            self.table("geonce_column")
        );
        session.execute(&sql, &[(&layer, Type::INT4), (&names, Type::TEXT_ARRAY)]).await.map(drop)
    }

    /// Remembers that keys are decided that seem not to be. Keys must be sorted and different. If one is known all the
    /// same the statement fails, and [`is_known_key`] knows why: half the work of looking first, for what is nearly always so.
    pub(super) async fn add(&self, session: &Session, layer: i32, decided: &[Decided]) -> Answer<()> {
        let parameters = Parameters::new(layer, decided);
        session.execute(&self.insert(""), &parameters.list()).await.map(drop)
    }

    /// Remembers that keys are decided; which of them were not yet. Keys must be sorted and different.
    pub(super) async fn decide(&self, session: &Session, layer: i32, decided: &[Decided]) -> Answer<Vec<[u8; 16]>> {
        let parameters = Parameters::new(layer, decided);
        let rows = session.query(&self.insert("ON CONFLICT DO NOTHING RETURNING key"), &parameters.list()).await?;
        rows.iter().map(|row| Ok(read::<Id>(row, 0)?.0)).collect()
    }

    fn insert(&self, more: &str) -> String {
        let table = self.table("geonce_applied");
        format!("INSERT INTO {table} (layer, key, event, stale) SELECT $1, * FROM unnest($2, $3, $4) {more}")
    }

    /// What became of keys here, of those that were decided.
    pub(super) async fn outcomes(
        &self,
        session: &Session,
        layer: i32,
        keys: impl Iterator<Item = [u8; 16]>,
    ) -> Answer<HashMap<[u8; 16], Outcome>> {
        let keys: Vec<Id> = keys.map(Id).collect();
        if keys.is_empty() {
            return Ok(HashMap::new());
        }
        let sql = one_by_one("key, stale", &self.table("geonce_applied"), "key = u.one");
        let rows = session.query(&sql, &[(&layer, Type::INT4), (&keys, Type::UUID_ARRAY)]).await?;
        let outcome = |stale| if stale { Outcome::Stale } else { Outcome::Applied };
        rows.iter().map(|row| Ok((read::<Id>(row, 0)?.0, outcome(read(row, 1)?)))).collect()
    }

    /// Events decided in a layer, by key.
    pub(super) async fn page(
        &self,
        session: &Session,
        layer: i32,
        after: Option<[u8; 16]>,
        limit: i64,
    ) -> Answer<Vec<Proof>> {
        let sql = format!(
            "SELECT key, event FROM {} WHERE layer = $1 AND ($2::uuid IS NULL OR key > $2) ORDER BY key LIMIT $3",
            self.table("geonce_applied")
        );
        let after = after.map(Id);
        let parameters: [Parameter<'_>; 3] = [(&layer, Type::INT4), (&after, Type::UUID), (&limit, Type::INT8)];
        let rows = session.query(&sql, &parameters).await?;
        let proof =
            |row: &Row| Ok(Proof { key: read::<Id>(row, 0)?.0, event: EventId::from_bytes(read::<Id>(row, 1)?.0) });
        rows.iter().map(proof).collect()
    }

    /// Which of these entities the layer seems to hold something of. Nothing is locked: others may come and go.
    pub(super) async fn existing(
        &self,
        session: &Session,
        layer: i32,
        entities: &BTreeSet<[u8; 32]>,
    ) -> Answer<HashSet<[u8; 32]>> {
        let sql = one_by_one("entity", &self.table("geonce_entity"), "entity = u.one");
        let entities: Vec<&[u8]> = entities.iter().map(|entity| &entity[..]).collect();
        let rows = session.query(&sql, &[(&layer, Type::INT4), (&entities, Type::BYTEA_ARRAY)]).await?;
        rows.iter().map(|row| bytes(row, 0)).collect()
    }

    /// Locks entities until the end of the transaction, making room for those that are not there; those for which room was
    /// made. Room is made as what it is to become, where `filled` says so: then it need not be set. The update never
    /// happens, but the row it would change is locked.
    pub(super) async fn lock(
        &self,
        session: &Session,
        layer: i32,
        entities: &BTreeSet<[u8; 32]>,
        filled: &HashMap<[u8; 32], Entity>,
    ) -> Answer<BTreeSet<[u8; 32]>> {
        let arrays = Entities::new(layer, entities.iter().map(|digest| (digest, filled.get(digest))));
        let sql = self.upsert("DO UPDATE SET deleted = held.deleted WHERE false RETURNING entity");
        let rows = session.query(&sql, &arrays.list()).await?;
        rows.iter().map(|row| bytes(row, 0)).collect()
    }

    /// Takes away the room that was made for these entities, and not used.
    pub(super) async fn unlock(
        &self,
        session: &Session,
        layer: i32,
        entities: impl Iterator<Item = &[u8; 32]>,
    ) -> Answer<()> {
        let entities: Vec<&[u8]> = entities.map(|entity| &entity[..]).collect();
        if entities.is_empty() {
            return Ok(());
        }
        let sql = format!("DELETE FROM {} WHERE layer = $1 AND entity = ANY($2)", self.table("geonce_entity"));
        session.execute(&sql, &[(&layer, Type::INT4), (&entities, Type::BYTEA_ARRAY)]).await.map(drop)
    }

    /// What the layer holds of entities.
    pub(super) async fn held(
        &self,
        session: &Session,
        layer: i32,
        entities: &[[u8; 32]],
    ) -> Answer<HashMap<[u8; 32], Held>> {
        if entities.is_empty() {
            return Ok(HashMap::new());
        }
        let (columns, table) = ("entity, version, key, content, fid", self.table("geonce_entity"));
        let sql = one_by_one(columns, &table, "entity = u.one AND version IS NOT NULL");
        let entities: Vec<&[u8]> = entities.iter().map(|entity| &entity[..]).collect();
        let rows = session.query(&sql, &[(&layer, Type::INT4), (&entities, Type::BYTEA_ARRAY)]).await?;
        let held = |row: &Row| {
            let bytes = |index| bytes(row, index);
            let held = Held {
                version: Version::parse(read::<&str>(row, 1)?),
                key: read::<Id>(row, 2)?.0,
                content: bytes(3)?,
                fid: read(row, 4)?,
            };
            Ok((bytes(0)?, held))
        };
        rows.iter().map(held).collect()
    }

    /// Sets what the layer holds of entities that are locked. Their rows are there; that they are found as if they were not
    /// leaves the server no other way than the index, where a join with a large table may be a scan of all of it.
    pub(super) async fn set(&self, session: &Session, layer: i32, changed: &[Entity]) -> Answer<()> {
        if changed.is_empty() {
            return Ok(());
        }
        let arrays = Entities::new(layer, changed.iter().map(|one| (&one.digest, Some(one))));
        let sql = self.upsert(
            "DO UPDATE SET version = excluded.version, key = excluded.key, content = excluded.content,
             fid = excluded.fid, deleted = excluded.deleted",
        );
        session.execute(&sql, &arrays.list()).await.map(drop)
    }

    fn upsert(&self, conflict: &str) -> String {
        format!(
            "INSERT INTO {} AS held (layer, entity, version, key, content, fid, deleted)
             SELECT $1, * FROM unnest($2, $3, $4, $5, $6, $7) ON CONFLICT (layer, entity) {conflict}",
            self.table("geonce_entity")
        )
    }
}

/// A value of a row. One of another type than expected is not ours.
pub(crate) fn read<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> Answer<T> {
    row.try_get(index)
        .map_err(|error| Error::new(Kind::Corrupt, "reading what the database holds").because(error.to_string()).into())
}

/// Asks for each of `$2` in layer `$1` by itself. With `= ANY`, a server that does not know yet how much a new table holds reads all
/// of the layer for each batch.
fn one_by_one(columns: &str, table: &str, is_it: &str) -> String {
    format!(
        "SELECT found.* FROM unnest($2) AS u (one) \
         CROSS JOIN LATERAL (SELECT {columns} FROM {table} WHERE layer = $1 AND {is_it} OFFSET 0) AS found"
    )
}

fn bytes(row: &Row, index: usize) -> Answer<[u8; 32]> {
    let found: &[u8] = read(row, index)?;
    found.try_into().map_err(|_| Error::new(Kind::Corrupt, "geonce_entity holds a digest that is none").into())
}
