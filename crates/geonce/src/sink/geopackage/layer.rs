//! The layer: made new, or another program's that fits; its R-tree, its triggers, and the statements for its rows.
//!
//! A new layer takes every geometry type (`GEOMETRY`), with or without Z, and null. In a layer that was there before, only
//! what its declaration allows. The triggers of the R-tree extension are there for other programs; where they are the
//! only triggers of the table we switch triggers off on our connection and write the R-tree's rows ourselves.

use super::Settings;
use super::file::{add_srs, failure};
use super::{geometry, guard};
use crate::error::{Error, Kind, Result};
use crate::event::{Cause, Class};
use crate::sink::columns::{Change, Column, Columns, Dialect, OTHER, Type, Value, quoted};
use geonce_key::Shape;
use rusqlite::config::DbConfig;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension};
use std::fmt::Write as _;
use std::sync::Arc;

/// What the layer is called in our tables, and how its rows are written.
pub(crate) struct Layer {
    pub(crate) id: i64,
    pub(crate) columns: Columns,
    /// Whether we write the R-tree; else its triggers do.
    pub(crate) writes_rtree: bool,
    /// The highest number given to an arrival.
    pub(crate) arrival: i64,
    geometry_type: String,
    z: i64,
    pub(crate) fid: String,
    pub(crate) geometry: String,
    pub(crate) insert: String,
    pub(crate) update: String,
    /// Writes over a row what goes into it; key and event stay what they are.
    pub(crate) merge: String,
    /// Finds the row with the end of a key: the first, should somebody have made copies.
    pub(crate) find: String,
    pub(crate) delete: String,
    /// Whether a row has this geometry.
    pub(crate) has_geometry: String,
    pub(crate) insert_rtree: String,
    pub(crate) delete_rtree: String,
}

/// The type that takes all others.
const ANY: &str = "GEOMETRY";

/// Columns as SQLite has them; its own limit is 2,000 of them.
pub(crate) static DIALECT: Dialect = Dialect {
    reserved: &["fid", "geom", "rowid", "oid", "_rowid_"],
    takes_nul: true,
    has_json: false,
    times_are_text: true,
    columns_max: 1_000,
};

/// A column's declared type, by clause 1.1.1.1.3 of the standard.
fn type_of(declared: &str) -> Type {
    let upper = declared.trim().to_ascii_uppercase();
    let (name, size) = upper.split_once('(').unwrap_or((&upper, ""));
    match name.trim() {
        "BOOLEAN" => Type::Boolean,
        "TINYINT" => Type::Integer(8),
        "SMALLINT" => Type::Integer(16),
        "MEDIUMINT" => Type::Integer(32),
        "INT" | "INTEGER" => Type::Integer(64),
        "FLOAT" | "DOUBLE" | "REAL" => Type::Real,
        "DATE" => Type::Date,
        "DATETIME" => Type::Time,
        "TEXT" => Type::Text(size.trim_end_matches(')').trim().parse().unwrap_or(usize::MAX)),
        _ => Type::Foreign,
    }
}

fn declared_type(kind: Type) -> &'static str {
    match kind {
        Type::Boolean => "BOOLEAN",
        Type::Integer(_) => "INTEGER",
        Type::Real => "REAL",
        Type::Date => "DATE",
        Type::Time => "DATETIME",
        _ => "TEXT",
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Boolean(boolean) => ValueRef::Integer(i64::from(*boolean)),
            Value::Integer(integer) => ValueRef::Integer(*integer),
            Value::Real(real) => ValueRef::Real(*real),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

/// Finds or makes the layer.
pub(crate) fn load(transaction: &Connection, settings: &Settings) -> Result<Layer> {
    let mut layer = open(transaction, settings)?;
    let doing = |error| failure(&settings.path, &format!("opening the layer {} of", settings.layer), &error);
    layer.add_indexes(transaction, settings, |each| transaction.execute_batch(&each.insert())).map_err(doing)?;
    Ok(layer)
}

/// Finds or makes the layer, which need not have indexes then.
pub(crate) fn open(transaction: &Connection, settings: &Settings) -> Result<Layer> {
    let doing = |error| failure(&settings.path, &format!("opening the layer {} of", settings.layer), &error);
    guard::create(transaction).map_err(doing)?;
    let id = guard::layer(transaction, &settings.layer).map_err(doing)?;
    let declared = transaction
        .query_row(
            "SELECT column_name, geometry_type_name, srs_id, z FROM gpkg_geometry_columns
             WHERE lower(table_name) = lower(?1)",
            [&settings.layer],
            |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?, row.get(3)?)),
        )
        .optional()
        .map_err(doing)?;
    let (geometry, geometry_type, srs, z) = if let Some(declared) = declared {
        declared
    } else {
        refuse_taken(transaction, settings)?;
        create(transaction, settings).map_err(doing)?;
        ("geom".to_owned(), ANY.to_owned(), i64::from(settings.crs), 2)
    };
    if srs != i64::from(settings.crs) {
        let what = format!("the layer {} is in EPSG:{srs}, the sink in EPSG:{}", settings.layer, settings.crs);
        return Err(Error::new(Kind::Incompatible, what).hint(format!("crs = {srs}, or another layer")));
    }
    let mut layer = Layer {
        id,
        columns: Columns::new(Arc::clone(&settings.columns), &DIALECT, Vec::new(), &[]),
        writes_rtree: false,
        arrival: guard::last_arrival(transaction, id).map_err(doing)?,
        geometry_type: geometry_type.to_ascii_uppercase(),
        z,
        fid: String::new(),
        geometry,
        insert: String::new(),
        update: String::new(),
        merge: String::new(),
        find: String::new(),
        delete: String::new(),
        has_geometry: String::new(),
        insert_rtree: String::new(),
        delete_rtree: String::new(),
    };
    layer.read_columns(transaction, settings)?;
    layer.write_statements(settings);
    Ok(layer)
}

fn refuse_taken(transaction: &Connection, settings: &Settings) -> Result<()> {
    let sql = "SELECT type FROM sqlite_master WHERE lower(name) = lower(?1)";
    let taken: Option<String> = transaction
        .query_row(sql, [&settings.layer], |row| row.get(0))
        .optional()
        .map_err(|error| failure(&settings.path, "looking into", &error))?;
    match taken {
        None => Ok(()),
        Some(kind) => {
            let what =
                format!("{} has a {kind} {}, which is no layer of features", settings.path.display(), settings.layer);
            Err(Error::new(Kind::Incompatible, what).hint("layer = \"another name\""))
        }
    }
}

fn create(transaction: &Connection, settings: &Settings) -> rusqlite::Result<()> {
    add_srs(transaction, settings.crs)?;
    let table = quoted(&settings.layer);
    transaction.execute_batch(&format!(
        "CREATE TABLE {table} (fid INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, geom {ANY}, geonce_key TEXT, geonce_event TEXT)"
    ))?;
    // A table by this name may have been dropped without its registration.
    transaction.execute(
        "INSERT OR REPLACE INTO gpkg_contents (table_name, data_type, identifier, srs_id) VALUES (?1, 'features', ?1, ?2)",
        (&settings.layer, settings.crs),
    )?;
    transaction.execute(
        "INSERT INTO gpkg_geometry_columns VALUES (?1, 'geom', ?2, ?3, 2, 0)",
        (&settings.layer, ANY, settings.crs),
    )?;
    Ok(())
}

fn has_only_standard_triggers(transaction: &Connection, settings: &Settings, geometry: &str) -> rusqlite::Result<bool> {
    let sql = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND lower(tbl_name) = lower(?1)";
    let prefix = format!("rtree_{}_{geometry}_", settings.layer).to_ascii_lowercase();
    let mut statement = transaction.prepare(sql)?;
    let names = statement.query_map([&settings.layer], |row| row.get::<_, String>(0))?;
    names
        .map(|name| Ok(name?.to_ascii_lowercase().starts_with(&prefix)))
        .try_fold(true, |all, one: rusqlite::Result<_>| Ok(all && one?))
}

/// The boxes of all rows of a layer.
pub(crate) struct Boxes {
    /// The name of the R-tree that they belong into.
    pub(crate) rtree: String,
    /// A statement that gives each: row, least x, greatest x, least y, greatest y.
    pub(crate) select: String,
}

impl Boxes {
    fn insert(&self) -> String {
        format!("INSERT INTO {} {}", quoted(&self.rtree), self.select)
    }
}

impl Layer {
    /// Adds what indexes the layer lacks; `fill` fills a new R-tree.
    pub(crate) fn add_indexes(
        &mut self,
        transaction: &Connection,
        settings: &Settings,
        fill: impl FnOnce(&Boxes) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        add_key_index(transaction, &settings.layer)?;
        self.add_rtree(transaction, settings, fill)?;
        self.writes_rtree = has_only_standard_triggers(transaction, settings, &self.geometry)?;
        transaction.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, !self.writes_rtree).map(drop)
    }

    fn read_columns(&mut self, transaction: &Connection, settings: &Settings) -> Result<()> {
        let doing = |error| failure(&settings.path, "reading the columns of", &error);
        let found = table_columns(transaction, &settings.layer).map_err(doing)?;
        let ours = our_columns(transaction, self.id).map_err(doing)?;
        let sql = table_sql(transaction, &settings.layer).map_err(doing)?;
        let has = |name: &str| found.iter().any(|column| column.name.eq_ignore_ascii_case(name));
        let Some(fid) = found.iter().find(|column| column.key && column.declared.eq_ignore_ascii_case("INTEGER"))
        else {
            let what = format!("the layer {} has no integer primary key", settings.layer);
            return Err(Error::new(Kind::Incompatible, what).hint("a GeoPackage layer needs one; use another layer"));
        };
        fid.name.clone_into(&mut self.fid);
        for name in ["geonce_key", "geonce_event"].into_iter().filter(|name| !has(name)) {
            let sql = format!("ALTER TABLE {} ADD COLUMN {name} TEXT", quoted(&settings.layer));
            transaction.execute_batch(&sql).map_err(doing)?;
        }
        let mut taken = vec!["geonce_key".to_owned(), "geonce_event".to_owned()];
        let mut list = Vec::new();
        for column in found {
            let reserved = column.key
                || column.hidden
                || column.name.eq_ignore_ascii_case(&self.geometry)
                || column.name.to_ascii_lowercase().starts_with("geonce_");
            if reserved {
                taken.push(column.name);
            } else {
                let ours = ours.contains(&column.name);
                let widens = ours && sql.matches(&declaration(&column.name, "INTEGER")).count() == 1;
                list.push(Column { kind: type_of(&column.declared), name: column.name, ours, widens });
            }
        }
        self.columns = Columns::new(Arc::clone(&settings.columns), &DIALECT, list, &taken);
        Ok(())
    }

    /// Adds the R-tree extension where the layer has none: clause F.3 of the standard, with its trigger names.
    fn add_rtree(
        &self,
        transaction: &Connection,
        settings: &Settings,
        fill: impl FnOnce(&Boxes) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let (layer, geometry) = (&settings.layer, &self.geometry);
        let known = transaction
            .prepare("SELECT 1 FROM gpkg_extensions WHERE extension_name = 'gpkg_rtree_index' AND lower(table_name) = lower(?1)")?
            .exists([layer])?;
        if known {
            return Ok(());
        }
        let rtree_name = format!("rtree_{layer}_{geometry}");
        let (table, rtree, g, i) = (quoted(layer), quoted(&rtree_name), quoted(geometry), quoted(&self.fid));
        let trigger = |suffix: &str| quoted(&format!("{rtree_name}_{suffix}"));
        let values =
            |row: &str| format!("{row}{i}, ST_MinX({row}{g}), ST_MaxX({row}{g}), ST_MinY({row}{g}), ST_MaxY({row}{g})");
        let has = |row: &str| format!("({row}{g} NOTNULL AND NOT ST_IsEmpty({row}{g}))");
        let put = format!("INSERT OR REPLACE INTO {rtree} VALUES ({})", values("NEW."));
        let lacks = format!("(NEW.{g} ISNULL OR ST_IsEmpty(NEW.{g}))");
        let remove = format!("DELETE FROM {rtree} WHERE id = OLD.{i}");
        let new = has("NEW.");
        transaction.execute_batch(&format!("CREATE VIRTUAL TABLE {rtree} USING rtree(id, minx, maxx, miny, maxy)"))?;
        let select = format!("SELECT {} FROM {table} WHERE {}", values(""), has(""));
        fill(&Boxes { rtree: rtree_name.clone(), select })?;
        transaction.execute_batch(&format!(
            "CREATE TRIGGER {insert} AFTER INSERT ON {table} WHEN {new} BEGIN {put}; END;
             CREATE TRIGGER {update1} AFTER UPDATE OF {g} ON {table} WHEN OLD.{i} = NEW.{i} AND {new} BEGIN {put}; END;
             CREATE TRIGGER {update2} AFTER UPDATE OF {g} ON {table} WHEN OLD.{i} = NEW.{i} AND {lacks} BEGIN {remove}; END;
             CREATE TRIGGER {update3} AFTER UPDATE ON {table} WHEN OLD.{i} != NEW.{i} AND {new} BEGIN {remove}; {put}; END;
             CREATE TRIGGER {update4} AFTER UPDATE ON {table} WHEN OLD.{i} != NEW.{i} AND {lacks}
               BEGIN DELETE FROM {rtree} WHERE id IN (OLD.{i}, NEW.{i}); END;
             CREATE TRIGGER {delete} AFTER DELETE ON {table} WHEN OLD.{g} NOT NULL BEGIN {remove}; END;",
            insert = trigger("insert"),
            update1 = trigger("update1"),
            update2 = trigger("update2"),
            update3 = trigger("update3"),
            update4 = trigger("update4"),
            delete = trigger("delete"),
        ))?;
        transaction.execute(
            "INSERT INTO gpkg_extensions VALUES (?1, ?2, 'gpkg_rtree_index',
             'http://www.geopackage.org/spec120/#extension_rtree', 'write-only')",
            (layer, geometry),
        )?;
        Ok(())
    }

    /// Brings the table to the columns that rows need.
    pub(crate) fn change(
        &mut self,
        transaction: &Connection,
        settings: &Settings,
        change: &Change,
    ) -> rusqlite::Result<()> {
        if *change == Change::default() {
            return Ok(());
        }
        let table = quoted(&settings.layer);
        for &index in &change.added {
            let Column { name, kind, .. } = &self.columns.list()[index];
            let sql = format!("ALTER TABLE {table} ADD COLUMN {} {}", quoted(name), declared_type(*kind));
            transaction.execute_batch(&sql)?;
            transaction.execute("INSERT OR IGNORE INTO gpkg_geonce_column VALUES (?1, ?2)", (self.id, name))?;
        }
        for &index in &change.widened {
            widen(transaction, &settings.layer, &self.columns.list()[index].name)?;
        }
        if change.other {
            transaction.execute_batch(&format!("ALTER TABLE {table} ADD COLUMN {OTHER} TEXT"))?;
        }
        self.write_statements(settings);
        Ok(())
    }

    /// Parameters: geometry, key and event, the property columns, `geonce_other` where there is one; for updates then
    /// the row and the end of the key it must have.
    fn write_statements(&mut self, settings: &Settings) {
        let (table, fid) = (quoted(&settings.layer), quoted(&self.fid));
        let mut values = "?1, ?2, ?3".to_owned();
        let geometry = quoted(&self.geometry);
        let mut sets = format!("{geometry} = ?1");
        let mut names = format!("{geometry}, geonce_key, geonce_event");
        let mut parameter = 3;
        for column in self.columns.list() {
            parameter += 1;
            let name = quoted(&column.name);
            let _ = write!(names, ", {name}");
            let _ = write!(values, ", ?{parameter}");
            let _ = if column.ours {
                write!(sets, ", {name} = ?{parameter}")
            } else {
                write!(sets, ", {name} = coalesce(?{parameter}, {name})")
            };
        }
        if self.columns.has_other() {
            parameter += 1;
            let _ = write!(names, ", {OTHER}");
            let _ = write!(values, ", ?{parameter}");
            let _ = write!(sets, ", {OTHER} = ?{parameter}");
        }
        let rtree = quoted(&format!("rtree_{}_{}", settings.layer, self.geometry));
        self.insert = format!("INSERT INTO {table} ({names}) VALUES ({values})");
        let ours = |row, key| format!("WHERE {fid} = ?{row} AND substr(geonce_key, -22) = ?{key}");
        let same = ours(parameter + 1, parameter + 2);
        self.update = format!("UPDATE {table} SET geonce_key = ?2, geonce_event = ?3, {sets} {same}");
        self.merge = format!("UPDATE {table} SET {sets} {same}");
        self.find = format!(
            "SELECT {fid}, {geometry} FROM {table} WHERE geonce_key IN ('g1_' || ?1, 'g1k_' || ?1) ORDER BY {fid} LIMIT 1"
        );
        self.delete = format!("DELETE FROM {table} {}", ours(1, 2));
        self.has_geometry = format!("SELECT 1 FROM {table} WHERE {fid} = ?1 AND {geometry} IS ?2");
        self.insert_rtree = format!("INSERT OR REPLACE INTO {rtree} VALUES (?1, ?2, ?3, ?4, ?5)");
        self.delete_rtree = format!("DELETE FROM {rtree} WHERE id = ?1");
    }

    /// The number of the parameter that follows the columns.
    pub(crate) fn parameters(&self) -> usize {
        3 + self.columns.list().len() + usize::from(self.columns.has_other())
    }

    /// Whether a geometry may be in this layer, and if so, whether only as a Multi… of one.
    pub(crate) fn admits(&self, shape: &Shape<f64>) -> std::result::Result<bool, Cause> {
        let name = shape.type_name().to_ascii_uppercase();
        let as_multi = self.geometry_type.strip_prefix("MULTI") == Some(&name);
        let fits = match self.geometry_type.as_str() {
            ANY => true,
            "GEOMETRYCOLLECTION" => shape.collection || name.starts_with("MULTI"),
            only => as_multi || only == name,
        };
        let refuse = |code, message| Err(Cause::new(Class::Geometry, code, message));
        if !fits {
            return refuse("geometry_type", format!("the layer takes {}, not {name}", self.geometry_type));
        }
        match (self.z, shape.has_z) {
            (0, true) => refuse("geometry_z", "the layer takes no third coordinate".to_owned()),
            (1, false) => refuse("geometry_z", "the layer wants a third coordinate".to_owned()),
            _ => Ok(as_multi),
        }
    }

    /// Notes that rows were written within `extent`. The extent in the file only grows.
    pub(crate) fn touch(
        connection: &Connection,
        settings: &Settings,
        extent: Option<geometry::Bounds>,
    ) -> rusqlite::Result<()> {
        let now = "last_change = strftime('%Y-%m-%dT%H:%M:%fZ','now')";
        match extent {
            None => {
                let sql = format!("UPDATE gpkg_contents SET {now} WHERE lower(table_name) = lower(?1)");
                connection.prepare_cached(&sql)?.execute([&settings.layer])?;
            }
            Some([min_x, max_x, min_y, max_y]) => {
                let sql = format!(
                    "UPDATE gpkg_contents SET {now}, min_x = min(coalesce(min_x, ?2), ?2), max_x = max(coalesce(max_x, ?3), ?3),
                     min_y = min(coalesce(min_y, ?4), ?4), max_y = max(coalesce(max_y, ?5), ?5) WHERE lower(table_name) = lower(?1)"
                );
                connection.prepare_cached(&sql)?.execute((&settings.layer, min_x, max_x, min_y, max_y))?;
            }
        }
        Ok(())
    }
}

struct Found {
    name: String,
    declared: String,
    key: bool,
    hidden: bool,
}

fn table_columns(transaction: &Connection, table: &str) -> rusqlite::Result<Vec<Found>> {
    let mut statement = transaction.prepare("SELECT name, type, pk, hidden FROM pragma_table_xinfo(?1)")?;
    let rows = statement.query_map([table], |row| {
        Ok(Found { name: row.get(0)?, declared: row.get(1)?, key: row.get(2)?, hidden: row.get(3)? })
    })?;
    rows.collect()
}

fn our_columns(transaction: &Connection, layer: i64) -> rusqlite::Result<Vec<String>> {
    let mut statement = transaction.prepare("SELECT name FROM gpkg_geonce_column WHERE layer = ?1")?;
    statement.query_map([layer], |row| row.get(0))?.collect()
}

/// Indexes the keys of a layer. A renamed layer takes its index along, so the first name that is free is used.
fn add_key_index(transaction: &Connection, layer: &str) -> rusqlite::Result<()> {
    let sql = "SELECT 1 FROM pragma_index_list(?1) AS list, pragma_index_info(list.name) AS info
               WHERE info.name = 'geonce_key' AND info.seqno = 0";
    if transaction.prepare(sql)?.exists([layer])? {
        return Ok(());
    }
    let mut name = format!("geonce_key_{layer}");
    let mut taken = transaction.prepare("SELECT 1 FROM sqlite_master WHERE lower(name) = lower(?1)")?;
    while taken.exists([&name])? {
        name.push('_');
    }
    transaction.execute_batch(&format!("CREATE INDEX {} ON {} (geonce_key)", quoted(&name), quoted(layer)))
}

/// How a column that we made is declared in the table's SQL.
fn declaration(column: &str, kind: &str) -> String {
    format!("{} {kind}", quoted(column))
}

fn table_sql(transaction: &Connection, layer: &str) -> rusqlite::Result<String> {
    let sql = "SELECT sql FROM sqlite_master WHERE type = 'table' AND lower(name) = lower(?1)";
    transaction.query_row(sql, [layer], |row| row.get(0))
}

/// Turns a column that we made from INTEGER into REAL, in place: whole numbers are stored the same way in both, so only
/// the declaration changes. Copying the column would rewrite every row and move it to the end of the table.
fn widen(transaction: &Connection, layer: &str, column: &str) -> rusqlite::Result<()> {
    let (from, to) = (declaration(column, "INTEGER"), declaration(column, "REAL"));
    let sql = table_sql(transaction, layer)?;
    let version: i64 = transaction.pragma_query_value(None, "schema_version", |row| row.get(0))?;
    transaction.pragma_update(None, "writable_schema", true)?;
    let edited = transaction.execute(
        "UPDATE sqlite_master SET sql = ?2 WHERE type = 'table' AND lower(name) = lower(?1)",
        (layer, sql.replacen(&from, &to, 1)),
    );
    let told = edited.and_then(|_| transaction.pragma_update(None, "schema_version", version + 1));
    // Reads the schema again, and forbids such edits from here on.
    transaction.pragma_update(None, "writable_schema", "RESET")?;
    told
}
