//! The layer: a table made new, or another program's that fits; what its columns are, and how they come to be more.
//!
//! A new layer takes every geometry type, with or without Z, and null: its column is a `geometry` whose coordinate system a
//! constraint holds, because a column declared as `geometry(Geometry, …)` takes no Z. In a table that was there before,
//! only what its declaration allows. Such a table is given `geonce_key`, `geonce_event` and property columns, no more.
//! Whatever is created or altered here is so under one lock, in a transaction of its own.

use super::guard::{Guard, read};
use super::{Settings, types};
use crate::error::{Error, Kind};
use crate::event::{Cause, Class};
use crate::postgres::{Session, Trouble, literal, quoted};
use crate::sink::Mode;
use crate::sink::columns::{Change, Column, Columns, EXACT_MAX, OTHER, Type};
use geonce_key::Shape;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio_postgres::types::Type as Sql;

type Answer<T> = std::result::Result<T, Trouble>;

/// The lock under which tables are made and changed: any number that other programs are unlikely to take.
pub(crate) const LOCK: i64 = 0x0067_656f_6e63_6501;
/// How long a change may wait for others who use the table. Everybody who comes later waits behind it.
pub(crate) const CHANGE_WAIT_MILLIS_MAX: u32 = 2_000;
/// A column of a table up to this size is turned from whole numbers into doubles; that rewrites the table while all wait.
const REWRITE_BYTES_MAX: i64 = 64 << 20;

/// Whether a geometry column takes a third coordinate.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Dimensions {
    Any,
    Two,
    Three,
}

/// A layer as the database has it.
pub(crate) struct Layer {
    pub(crate) id: i32,
    /// The quoted name, with its schema.
    pub(crate) table: String,
    /// The quoted schema of PostGIS.
    pub(crate) postgis: String,
    pub(crate) columns: Columns,
    /// The geometry column.
    pub(crate) geometry: String,
    /// The primary key, where it is one whole number.
    pub(crate) fid: Option<String>,
    /// The next number of a row, as SQL, where the server counts and we may ask it to before there is a row.
    pub(crate) numbers: Option<String>,
    /// What rows without a value get in columns of other programs, as SQL.
    pub(crate) defaults: HashMap<String, String>,
    /// What a person should know.
    pub(crate) notices: Vec<String>,
    /// The only geometry type it takes, in capitals.
    only: Option<String>,
    dimensions: Dimensions,
}

/// Finds or makes the layer, with columns for what `features` hold.
pub(crate) async fn load<'f>(
    session: &Session,
    settings: &Settings,
    features: impl Iterator<Item = &'f geonce_key::Feature> + Clone,
) -> Answer<Layer> {
    let wait = CHANGE_WAIT_MILLIS_MAX;
    session.execute("SELECT 1 FROM pg_advisory_xact_lock($1)", &[(&LOCK, Sql::INT8)]).await?;
    session.batch(&format!("SET LOCAL lock_timeout = {wait}")).await?;
    let mut fixed = HashSet::new();
    loop {
        let mut layer = find(session, settings).await?;
        layer.columns.keep(&fixed);
        let mut change = Change::default();
        for feature in features.clone() {
            if feature.geometry.as_ref().is_none_or(|shape| layer.admits(shape).is_ok()) {
                layer.columns.learn(feature, &mut change);
            }
        }
        let kept = layer.change(session, settings, &change).await?;
        if kept.is_empty() {
            return Ok(layer);
        }
        fixed.extend(kept);
    }
}

fn incompatible(what: String, hint: impl Into<String>) -> Trouble {
    Error::new(Kind::Incompatible, what).hint(hint).into()
}

/// What all layers of a schema rest on.
#[derive(Clone)]
pub(crate) struct Ground {
    /// The layer's number.
    pub(crate) id: i32,
    /// The quoted schema of PostGIS.
    pub(crate) postgis: String,
}

/// Finds or makes everything but the layer.
pub(crate) async fn prepare(session: &Session, settings: &Settings) -> Answer<Ground> {
    let postgis = find_postgis(session).await?;
    find_schema(session, settings).await?;
    let guard = Guard::new(&settings.schema);
    guard.create(session).await?;
    let id = guard.layer(session, &settings.layer).await?;
    Ok(Ground { id, postgis })
}

async fn find(session: &Session, settings: &Settings) -> Answer<Layer> {
    let ground = prepare(session, settings).await?;
    let mut oid = find_table(session, settings).await?;
    if oid.is_none() {
        create(session, settings, &ground.postgis).await?;
        create_indexes(session, settings, "geom").await?;
        oid = find_table(session, settings).await?;
    }
    let missing = || Error::new(Kind::Internal, format!("{} was made and is not there", settings.place()));
    describe(session, settings, &ground, oid.ok_or_else(missing)?).await
}

/// The layer that this table is.
pub(crate) async fn describe(session: &Session, settings: &Settings, ground: &Ground, oid: u32) -> Answer<Layer> {
    let mut layer = Layer {
        id: ground.id,
        columns: Columns::new(Arc::clone(&settings.columns), &types::DIALECT, Vec::new(), &[]),
        geometry: String::new(),
        fid: None,
        numbers: None,
        defaults: HashMap::new(),
        notices: Vec::new(),
        only: None,
        dimensions: Dimensions::Any,
        table: settings.table(),
        postgis: ground.postgis.clone(),
    };
    layer.find_geometry(session, settings, oid).await?;
    layer.find_columns(session, settings, &Guard::new(&settings.schema), oid).await?;
    layer.find_numbers(session, oid).await?;
    layer.find_indexes(session, oid).await?;
    layer.find_rights(session, settings, oid).await?;
    Ok(layer)
}

async fn find_postgis(session: &Session) -> Answer<String> {
    let sql = "SELECT n.nspname::text FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
               WHERE e.extname = 'postgis'";
    match session.query(sql, &[]).await?.first() {
        Some(row) => Ok(quoted(read(row, 0)?)),
        None => Err(incompatible("the database has no PostGIS".into(), "CREATE EXTENSION postgis, as its owner")),
    }
}

async fn find_schema(session: &Session, settings: &Settings) -> Answer<()> {
    let sql = "SELECT 1 FROM pg_namespace WHERE nspname = $1";
    if session.query(sql, &[(&settings.schema, Sql::TEXT)]).await?.is_empty() {
        session.batch(&format!("CREATE SCHEMA {}", quoted(&settings.schema))).await?;
    }
    Ok(())
}

/// The table of the layer's name.
pub(crate) async fn find_table(session: &Session, settings: &Settings) -> Answer<Option<u32>> {
    let sql = "SELECT c.oid, c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = $1 AND c.relname = $2";
    let rows = session.query(sql, &[(&settings.schema, Sql::TEXT), (&settings.layer, Sql::TEXT)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    // Ordinary tables and partitioned ones.
    if ["r", "p"].contains(&read::<&str>(row, 1)?) {
        return Ok(Some(read(row, 0)?));
    }
    Err(incompatible(format!("{} is no table", settings.place()), "layer = \"another name\""))
}

/// Makes the table, without its indexes.
pub(crate) async fn create(session: &Session, settings: &Settings, postgis: &str) -> Answer<()> {
    // Keys are compared byte by byte, whatever the language of the database.
    session
        .batch(&format!(
            "CREATE TABLE {table} (fid bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
               geom {postgis}.geometry CONSTRAINT enforce_srid_geom CHECK ({postgis}.ST_SRID(geom) = {crs}),
               geonce_key text COLLATE \"C\", geonce_event text COLLATE \"C\")",
            table = settings.table(),
            crs = settings.crs
        ))
        .await
}

/// Makes the indexes of a table that has none yet but for its primary key.
pub(crate) async fn create_indexes(session: &Session, settings: &Settings, geometry: &str) -> Answer<()> {
    let (table, geometry) = (settings.table(), quoted(geometry));
    session
        .batch(&format!("CREATE INDEX ON {table} USING gist ({geometry}); CREATE INDEX ON {table} (geonce_key)"))
        .await
}

impl Layer {
    async fn find_geometry(&mut self, session: &Session, settings: &Settings, oid: u32) -> Answer<()> {
        let sql = format!(
            "SELECT g.f_geometry_column::text, g.type::text, g.srid, g.coord_dimension, a.atttypmod
             FROM {}.geometry_columns g JOIN pg_attribute a ON a.attrelid = $1 AND a.attname = g.f_geometry_column
             WHERE g.f_table_schema = $2 AND g.f_table_name = $3 ORDER BY a.attname <> 'geom', a.attnum",
            self.postgis
        );
        let parameters: [crate::postgres::Parameter<'_>; 3] =
            [(&oid, Sql::OID), (&settings.schema, Sql::TEXT), (&settings.layer, Sql::TEXT)];
        let rows = session.query(&sql, &parameters).await?;
        let place = settings.place();
        let Some(row) = rows.first() else {
            return Err(incompatible(
                format!("{place} has no geometry column that we may read"),
                "layer = \"another name\", or add a geometry column to it",
            ));
        };
        self.geometry = read(row, 0)?;
        if rows.len() > 1 && self.geometry != "geom" {
            return Err(incompatible(
                format!("{place} has {} geometry columns, and none is called geom", rows.len()),
                "layer = \"another name\", or rename the column that is meant",
            ));
        }
        let (kind, srid, dimension, modifier): (String, i32, i32, i32) =
            (read(row, 1)?, read(row, 2)?, read(row, 3)?, read(row, 4)?);
        let (column, crs) = (quoted(&self.geometry), settings.crs);
        if i64::from(srid) != i64::from(crs) {
            let hint = match srid {
                0 => format!(
                    "ALTER TABLE {} ALTER COLUMN {column} TYPE geometry({kind}, {crs}) USING ST_SetSRID({column}, {crs}), if that is what it holds",
                    self.table
                ),
                _ => format!("crs = \"EPSG:{srid}\", or another layer"),
            };
            return Err(incompatible(format!("{place} is in EPSG:{srid}, the sink in EPSG:{crs}"), hint));
        }
        if kind.ends_with('M') || dimension == 4 {
            return Err(incompatible(
                format!("{place} takes measures (M), which events do not have"),
                "layer = \"another name\"",
            ));
        }
        self.dimensions = match dimension {
            _ if modifier == -1 => Dimensions::Any,
            3 => Dimensions::Three,
            _ => Dimensions::Two,
        };
        self.only = (kind != "GEOMETRY").then_some(kind);
        Ok(())
    }

    async fn find_columns(&mut self, session: &Session, settings: &Settings, guard: &Guard, oid: u32) -> Answer<()> {
        let keys = session
            .query(
                "SELECT a.attname::text, t.typname::text FROM pg_index i
                 JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
                 JOIN pg_type t ON t.oid = a.atttypid WHERE i.indrelid = $1 AND i.indisprimary",
                &[(&oid, Sql::OID)],
            )
            .await?;
        let keys: Vec<(String, String)> =
            keys.iter().map(|row| Ok((read(row, 0)?, read(row, 1)?))).collect::<Answer<_>>()?;
        self.fid = match &keys[..] {
            [(name, kind)] if ["int2", "int4", "int8"].contains(&kind.as_str()) => Some(name.clone()),
            _ => None,
        };
        if self.fid.is_none() {
            self.notices.push(format!(
                "{} has no primary key that is one whole number; QGIS wants one, and rows are found by geonce_key",
                settings.place()
            ));
        }
        let ours = guard.columns(session, self.id).await?;
        let rows = session
            .query(
                "SELECT a.attname::text, CASE WHEN n.nspname = 'pg_catalog' THEN t.typname::text ELSE '' END, a.atttypmod,
                   a.attgenerated::text <> '' OR a.attidentity::text <> '', pg_get_expr(d.adbin, d.adrelid)
                 FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid JOIN pg_namespace n ON n.oid = t.typnamespace
                 LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
                 WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
                &[(&oid, Sql::OID)],
            )
            .await?;
        let (mut list, mut taken) = (Vec::new(), Vec::new());
        for row in &rows {
            let (name, kind): (String, &str) = (read(row, 0)?, read(row, 1)?);
            let reserved = read::<bool>(row, 3)?
                || keys.iter().any(|(key, _)| *key == name && self.fid.is_some())
                || name == self.geometry
                || name.starts_with("geonce_");
            if reserved {
                taken.push(name);
                continue;
            }
            let ours = ours.contains(&name);
            if let (false, Some(default)) = (ours, read::<Option<String>>(row, 4)?) {
                self.defaults.insert(name.clone(), default);
            }
            list.push(Column { kind: types::from_catalogue(kind, read(row, 2)?), name, ours, widens: ours });
        }
        for name in ["geonce_key", "geonce_event"] {
            if !taken.iter().any(|taken| taken == name) {
                session.batch(&format!("ALTER TABLE {} ADD COLUMN {name} text COLLATE \"C\"", self.table)).await?;
                taken.push(name.to_owned());
            }
        }
        self.columns = Columns::new(Arc::clone(&settings.columns), &types::DIALECT, list, &taken);
        Ok(())
    }

    async fn find_numbers(&mut self, session: &Session, oid: u32) -> Answer<()> {
        let Some(fid) = &self.fid else { return Ok(()) };
        // An identity that is always the server's own refuses numbers, even those that it gave.
        let sql = "SELECT a.attidentity::text, pg_get_expr(d.adbin, d.adrelid), pg_get_serial_sequence($2, $3)
                   FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
                   WHERE a.attrelid = $1 AND a.attname = $3
                   AND has_sequence_privilege(pg_get_serial_sequence($2, $3), 'USAGE')";
        let parameters: [crate::postgres::Parameter<'_>; 3] =
            [(&oid, Sql::OID), (&self.table, Sql::TEXT), (fid, Sql::TEXT)];
        let rows = session.query(sql, &parameters).await?;
        let Some(row) = rows.first() else { return Ok(()) };
        self.numbers = match (read::<&str>(row, 0)?, read::<Option<String>>(row, 1)?, read::<Option<&str>>(row, 2)?) {
            ("d", _, Some(sequence)) => Some(format!("nextval({}::regclass)", literal(sequence))),
            ("", Some(default), _) if default.starts_with("nextval(") => Some(default),
            _ => None,
        };
        Ok(())
    }

    async fn find_indexes(&mut self, session: &Session, oid: u32) -> Answer<()> {
        let sql = "SELECT EXISTS (SELECT 1 FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
                   JOIN pg_am m ON m.oid = c.relam JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
                   WHERE i.indrelid = $1 AND a.attname = $2 AND m.amname = ANY($3))";
        let (table, geometry) = (&self.table, quoted(&self.geometry));
        let wanted: [(&str, &[&str], String); 2] = [
            (&self.geometry, &["gist", "spgist", "brin"], format!("CREATE INDEX ON {table} USING gist ({geometry})")),
            ("geonce_key", &["btree", "hash"], format!("CREATE INDEX ON {table} (geonce_key)")),
        ];
        let mut missing = Vec::new();
        for (column, methods, statement) in wanted {
            let parameters: [crate::postgres::Parameter<'_>; 3] =
                [(&oid, Sql::OID), (&column, Sql::TEXT), (&methods, Sql::TEXT_ARRAY)];
            let rows = session.query(sql, &parameters).await?;
            if !read::<bool>(&rows[0], 0)? {
                missing.push(format!("{table} has no index on {column}: {statement}"));
            }
        }
        self.notices.extend(missing);
        Ok(())
    }

    async fn find_rights(&mut self, session: &Session, settings: &Settings, oid: u32) -> Answer<()> {
        let wanted: &[&str] = match settings.mode {
            Mode::Append => &["INSERT"],
            Mode::Upsert { .. } => &["INSERT", "UPDATE", "SELECT"],
        };
        let sql = "SELECT has_table_privilege($1, $2)";
        if settings.mode != Mode::Append {
            let rows = session.query(sql, &[(&oid, Sql::OID), (&"DELETE", Sql::TEXT)]).await?;
            if !read::<bool>(&rows[0], 0)? {
                let notice = format!("sources with delete need one more right: GRANT DELETE ON {}", self.table);
                self.notices.push(notice);
            }
        }
        for right in wanted {
            let rows = session.query(sql, &[(&oid, Sql::OID), (right, Sql::TEXT)]).await?;
            if !read::<bool>(&rows[0], 0)? {
                let what = format!("we may not {} in {}", right.to_lowercase(), settings.place());
                return Err(Error::new(Kind::Permission, what).hint(format!("GRANT {right} ON {}", self.table)).into());
            }
        }
        Ok(())
    }

    /// Brings the table to the columns that rows need. The names of columns that could not be turned into doubles: then
    /// no column was added, and what rows need is to be found out again.
    pub(crate) async fn change(
        &mut self,
        session: &Session,
        settings: &Settings,
        change: &Change,
    ) -> Answer<Vec<String>> {
        let mut kept = Vec::new();
        for &index in &change.widened {
            let name = self.columns.list()[index].name.clone();
            if !self.widen(session, &name).await? {
                kept.push(name);
            }
        }
        if !kept.is_empty() || (change.added.is_empty() && !change.other) {
            return Ok(kept);
        }
        let added: Vec<&Column> = change.added.iter().map(|&index| &self.columns.list()[index]).collect();
        let mut clauses: Vec<String> = added
            .iter()
            .map(|column| format!("ADD COLUMN {} {}", quoted(&column.name), types::declared(column.kind)))
            .collect();
        if change.other {
            clauses.push(format!("ADD COLUMN {OTHER} json"));
        }
        session.batch(&format!("ALTER TABLE {} {}", self.table, clauses.join(", "))).await?;
        let names: Vec<&str> = added.iter().map(|column| column.name.as_str()).collect();
        Guard::new(&settings.schema).add_columns(session, self.id, &names).await?;
        Ok(kept)
    }

    /// Turns a column that we made from whole numbers into doubles. False where the table is too large to be rewritten
    /// while all wait, where a number would not survive it, or where something hangs on the column.
    async fn widen(&self, session: &Session, name: &str) -> Answer<bool> {
        let column = quoted(name);
        let sql =
            "SELECT relkind = 'r' AND pg_total_relation_size(oid) <= $2 FROM pg_class WHERE oid = $1::text::regclass";
        let small = session.query(sql, &[(&self.table, Sql::TEXT), (&REWRITE_BYTES_MAX, Sql::INT8)]).await?;
        if !read::<bool>(&small[0], 0)? {
            return Ok(false);
        }
        session.batch("SAVEPOINT geonce_widen").await?;
        let widened = async {
            session.batch(&format!("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", self.table)).await?;
            let large = format!("SELECT 1 FROM {} WHERE abs({column}::numeric) > {EXACT_MAX} LIMIT 1", self.table);
            if !session.query(&large, &[]).await?.is_empty() {
                return Ok(false);
            }
            session
                .batch(&format!("ALTER TABLE {} ALTER COLUMN {column} TYPE double precision", self.table))
                .await
                .map(|()| true)
        };
        match widened.await {
            Ok(true) => session.batch("RELEASE geonce_widen").await.map(|()| true),
            // A view on the column, or a column that is not what it was.
            Err(trouble) if !trouble.state().is_some_and(|state| ["0A", "2B", "42"].contains(&&state.code()[..2])) => {
                Err(trouble)
            }
            _ => session.batch("ROLLBACK TO geonce_widen; RELEASE geonce_widen").await.map(|()| false),
        }
    }

    /// Whether the columns have room for what features hold.
    pub(crate) fn suffices<'f>(&self, features: impl Iterator<Item = &'f geonce_key::Feature>) -> bool {
        let (mut columns, mut change) = (self.columns.clone(), Change::default());
        for feature in features {
            if feature.geometry.as_ref().is_none_or(|shape| self.admits(shape).is_ok()) {
                columns.learn(feature, &mut change);
            }
        }
        change == Change::default()
    }

    /// Whether a geometry may be in this layer, and if so, whether only as a Multi… of one.
    pub(crate) fn admits(&self, shape: &Shape<f64>) -> std::result::Result<bool, Cause> {
        let name = shape.type_name().to_ascii_uppercase();
        let refuse = |code, message| Err(Cause::new(Class::Geometry, code, message));
        let as_multi = match self.only.as_deref() {
            None => false,
            Some(only) if only == name => false,
            Some("GEOMETRYCOLLECTION") if name.starts_with("MULTI") => false,
            Some(only) if only.strip_prefix("MULTI") == Some(&name) => true,
            Some(only) => {
                let message = format!("the layer takes {only}, not {name}; a column of type geometry would take both");
                return refuse("geometry_type", message);
            }
        };
        match (self.dimensions, shape.has_z) {
            (Dimensions::Two, true) => refuse(
                "geometry_z",
                "the layer takes no third coordinate; dimensions = 2 in the source leaves it out".to_owned(),
            ),
            (Dimensions::Three, false) => refuse("geometry_z", "the layer wants a third coordinate".to_owned()),
            _ => Ok(as_multi),
        }
    }

    /// What a column of this name takes.
    pub(crate) fn kind(&self, index: usize) -> Type {
        self.columns.list()[index].kind
    }
}
