//! Finds the layer of a GeoPackage that is to be read, and how to ask for its rows.
//!
//! Reads `gpkg_contents`, `gpkg_geometry_columns`, `gpkg_spatial_ref_sys`, `gpkg_data_columns` and GDAL's `gpkg_ogr_contents`.

use super::failure;
use crate::{Declared, Error, Field, FieldKind, Layer, Result};
use rusqlite::{Connection, OptionalExtension as _, params};

/// Layers whose names a message lists.
const NAMES_MAX: usize = 30;
/// How much of an unknown coordinate system's description is kept.
const CRS_CHARACTERS_MAX: usize = 200;
const DOING: &str = "reading the GeoPackage's tables";

/// How to ask for the rows of a layer.
pub(super) struct Plan {
    /// Gives the row id if there is one, the geometry and the columns.
    pub(super) select: String,
    pub(super) has_row_id: bool,
    pub(super) row_id_name: String,
    pub(super) columns: Vec<Column>,
}

/// A column that is a field.
pub(super) struct Column {
    pub(super) field: Field,
    /// Whether it holds bytes, which are given as Base64.
    pub(super) is_binary: bool,
}

/// A table that is registered as one of features.
struct Registered {
    table: String,
    geometry: String,
    geometry_type: String,
    srs: i64,
}

/// What SQLite says of a column.
struct Described {
    name: String,
    declared: String,
    is_key: bool,
}

/// Finds the layer of this name, or the only one.
pub(super) fn find(connection: &Connection, name: Option<&str>) -> Result<(Layer, Plan)> {
    let registered = choose(list(connection)?, name)?;
    find_columns(connection, &registered).map_err(|e| failure(DOING, &e))?
}

fn list(connection: &Connection) -> Result<Vec<Registered>> {
    let tables = "SELECT count(*) FROM sqlite_master WHERE lower(name) IN ('gpkg_contents', 'gpkg_geometry_columns')";
    let found: i64 = connection.query_row(tables, [], |row| row.get(0)).map_err(|e| failure(DOING, &e))?;
    if found < 2 {
        return Err(Error::new(
            "gpkg_not_geopackage",
            "it is a SQLite file without the tables of a GeoPackage's features",
        ));
    }
    let select = "SELECT c.table_name, g.column_name, coalesce(g.geometry_type_name, ''), coalesce(g.srs_id, 0)
        FROM gpkg_contents c JOIN gpkg_geometry_columns g ON lower(g.table_name) = lower(c.table_name)
        WHERE lower(c.data_type) = 'features' ORDER BY c.rowid";
    let read = || {
        let mut statement = connection.prepare(select)?;
        let rows = statement.query_map([], |row| {
            Ok(Registered { table: row.get(0)?, geometry: row.get(1)?, geometry_type: row.get(2)?, srs: row.get(3)? })
        })?;
        rows.collect::<rusqlite::Result<Vec<_>>>()
    };
    read().map_err(|e| failure(DOING, &e))
}

fn choose(mut layers: Vec<Registered>, name: Option<&str>) -> Result<Registered> {
    let Some(name) = name else {
        return match layers.len() {
            0 => Err(Error::new("gpkg_no_layer", "the GeoPackage has no layer of features")),
            1 => Ok(layers.remove(0)),
            count => {
                let error =
                    Error::new("layer_ambiguous", format!("the GeoPackage has {count} layers: {}", names(&layers)));
                Err(error.hint("name the layer that is meant"))
            }
        };
    };
    let place = layers.iter().position(|layer| layer.table == name);
    match place.or_else(|| layers.iter().position(|layer| layer.table.eq_ignore_ascii_case(name))) {
        Some(place) => Ok(layers.swap_remove(place)),
        None if layers.is_empty() => Err(Error::new("gpkg_no_layer", "the GeoPackage has no layer of features")),
        None => {
            let message = format!("the GeoPackage has no layer {name} of features; it has {}", names(&layers));
            Err(Error::new("layer_unknown", message))
        }
    }
}

fn names(layers: &[Registered]) -> String {
    let shown: Vec<&str> = layers.iter().take(NAMES_MAX).map(|layer| layer.table.as_str()).collect();
    let more = if layers.len() > NAMES_MAX { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

fn find_columns(connection: &Connection, registered: &Registered) -> rusqlite::Result<Result<(Layer, Plan)>> {
    let kind = connection
        .query_row(
            "SELECT type, wr FROM pragma_table_list WHERE schema = 'main' AND lower(name) = lower(?1)",
            [&registered.table],
            |row| Ok((row.get::<_, String>(0)?, row.get::<_, bool>(1)?)),
        )
        .optional()?;
    let (is_table, without_row_id) = match &kind {
        Some((kind, without)) if kind == "table" => (true, *without),
        Some((kind, _)) if kind == "view" => (false, true),
        _ => {
            let message = format!("layer {}: the GeoPackage lists it, but has no such table or view", registered.table);
            return Ok(Err(Error::new("gpkg_layer", message)));
        }
    };
    let described = describe(connection, &registered.table)?;
    let Some(geometry) = described.iter().find(|column| column.name.eq_ignore_ascii_case(&registered.geometry)) else {
        let message =
            format!("layer {}: it has no column {} for its geometries", registered.table, registered.geometry);
        return Ok(Err(Error::new("gpkg_layer", message)));
    };
    let row_id = if is_table { row_id_of_table(&described, without_row_id) } else { None };
    let view_id = |column: &Described| !is_table && column.name.eq_ignore_ascii_case("OGC_FID");

    let mut notices = Vec::new();
    let mut columns = Vec::new();
    for column in &described {
        let is_row_id = row_id.as_deref() == Some(column.name.as_str()) || view_id(column);
        if !is_row_id && column.name != geometry.name {
            columns.push(field(connection, &registered.table, column, &mut notices)?);
        }
    }
    let curved = ["CIRCULARSTRING", "COMPOUNDCURVE", "CURVEPOLYGON", "MULTICURVE", "MULTISURFACE", "CURVE", "SURFACE"];
    if curved.iter().any(|name| registered.geometry_type.eq_ignore_ascii_case(name)) {
        notices.push(format!(
            "the layer is declared as {}: a curve cannot be read and is refused feature by feature",
            registered.geometry_type
        ));
    }
    let layer = Layer {
        name: registered.table.clone(),
        crs: declared(connection, registered.srs)?,
        fields: columns.iter().map(|column| column.field.clone()).collect(),
        features: if row_id.is_some() { count(connection, registered, row_id.as_deref())? } else { None },
        notices,
    };
    let select = select(&registered.table, row_id.as_deref(), &geometry.name, &columns);
    Ok(Ok((layer, Plan { select, has_row_id: row_id.is_some(), row_id_name: row_id.unwrap_or_default(), columns })))
}

fn describe(connection: &Connection, table: &str) -> rusqlite::Result<Vec<Described>> {
    // Hidden columns are those of virtual tables; generated ones (2 and 3) are ordinary to a reader.
    let select = "SELECT name, coalesce(type, ''), pk FROM pragma_table_xinfo(?1) WHERE hidden <> 1 ORDER BY cid";
    let mut statement = connection.prepare(select)?;
    let rows = statement.query_map([table], |row| {
        Ok(Described { name: row.get(0)?, declared: row.get(1)?, is_key: row.get::<_, i64>(2)? > 0 })
    })?;
    rows.collect()
}

/// The name under which a table's row ids can be asked for.
fn row_id_of_table(described: &[Described], without_row_id: bool) -> Option<String> {
    if without_row_id {
        return None;
    }
    let mut keys = described.iter().filter(|column| column.is_key);
    if let (Some(key), None) = (keys.next(), keys.next())
        && key.declared.eq_ignore_ascii_case("INTEGER")
    {
        return Some(key.name.clone());
    }
    let taken = |name: &str| described.iter().any(|column| column.name.eq_ignore_ascii_case(name));
    ["rowid", "_rowid_", "oid"].into_iter().find(|name| !taken(name)).map(str::to_owned)
}

fn select(table: &str, row_id: Option<&str>, geometry: &str, columns: &[Column]) -> String {
    let names = row_id.into_iter().chain([geometry]).chain(columns.iter().map(|column| column.field.name.as_str()));
    let names: Vec<String> = names.map(quoted).collect();
    let order = row_id.map(|name| format!(" ORDER BY {}", quoted(name))).unwrap_or_default();
    format!("SELECT {} FROM {}{order}", names.join(", "), quoted(table))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The kind of a column from its declared type: the GeoPackage's own names (OGC 12-128, table 1) first, then SQLite's rules.
fn field(
    connection: &Connection,
    table: &str,
    column: &Described,
    notices: &mut Vec<String>,
) -> rusqlite::Result<Column> {
    let full = column.declared.to_ascii_uppercase();
    let name = full.split('(').next().unwrap_or_default().trim();
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    let kind = match name {
        "BOOLEAN" | "BOOL" => FieldKind::Boolean,
        "DATE" => FieldKind::Date,
        "DATETIME" | "TIMESTAMP" => FieldKind::DateTime,
        "NUMERIC" | "DECIMAL" => FieldKind::Real,
        "JSON" => FieldKind::Json,
        "TEXT" if holds_json(connection, table, &column.name)? => FieldKind::Json,
        // POINT would otherwise be an integer.
        "BLOB" | "GEOMETRY" | "POINT" | "LINESTRING" | "POLYGON" | "MULTIPOINT" => FieldKind::Text,
        _ if has(&["INT"]) => FieldKind::Integer,
        _ if has(&["CHAR", "CLOB", "TEXT"]) => FieldKind::Text,
        _ if has(&["REAL", "FLOA", "DOUB"]) => FieldKind::Real,
        _ => {
            notices.push(format!(
                "field {}: its type {:?} is unknown and is taken for text",
                column.name, column.declared
            ));
            FieldKind::Text
        }
    };
    let is_binary = name == "BLOB";
    if is_binary {
        notices.push(format!("field {}: its bytes are given as Base64", column.name));
    }
    Ok(Column { field: Field { name: column.name.clone(), kind }, is_binary })
}

fn has_table(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    connection.query_row("SELECT count(*) > 0 FROM sqlite_master WHERE lower(name) = ?1", [name], |row| row.get(0))
}

/// Whether the schema extension says that a column of text holds JSON.
fn holds_json(connection: &Connection, table: &str, column: &str) -> rusqlite::Result<bool> {
    if !has_table(connection, "gpkg_data_columns")? {
        return Ok(false);
    }
    let select = "SELECT count(*) > 0 FROM gpkg_data_columns
        WHERE lower(table_name) = lower(?1) AND lower(column_name) = lower(?2) AND mime_type = 'application/json'";
    connection.query_row(select, params![table, column], |row| row.get(0))
}

/// The number of features that GDAL has noted, unless there cannot be so many.
fn count(connection: &Connection, registered: &Registered, row_id: Option<&str>) -> rusqlite::Result<Option<u64>> {
    if !has_table(connection, "gpkg_ogr_contents")? {
        return Ok(None);
    }
    let select = "SELECT feature_count FROM gpkg_ogr_contents WHERE lower(table_name) = lower(?1)";
    let noted =
        connection.query_row(select, [&registered.table], |row| row.get::<_, Option<i64>>(0)).optional()?.flatten();
    let (Some(noted), Some(row_id)) = (noted, row_id) else { return Ok(None) };
    let (id, table) = (quoted(row_id), quoted(&registered.table));
    let ids = |which: &str| {
        let select = format!("SELECT {which}({id}) FROM {table}");
        connection.query_row(&select, [], |row| row.get::<_, Option<i64>>(0))
    };
    let possible = match (ids("min")?, ids("max")?) {
        (Some(first), Some(last)) => last.saturating_sub(first).saturating_add(1),
        _ => 0,
    };
    Ok(u64::try_from(noted).ok().filter(|_| noted <= possible))
}

fn declared(connection: &Connection, srs: i64) -> rusqlite::Result<Declared> {
    // The two undefined ones, Cartesian and geographic.
    if srs == 0 || srs == -1 {
        return Ok(Declared::Nothing);
    }
    let select = "SELECT coalesce(organization, ''), organization_coordsys_id, coalesce(definition, '')
        FROM gpkg_spatial_ref_sys WHERE srs_id = ?1";
    let found = connection
        .query_row(select, [srs], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, Option<i64>>(1)?, row.get::<_, String>(2)?))
        })
        .optional()?;
    Ok(match found {
        None => Declared::Unknown(format!("number {srs}, which the GeoPackage does not define")),
        Some((organization, Some(code), definition)) if organization.eq_ignore_ascii_case("EPSG") => {
            u32::try_from(code).map_or_else(|_| unknown(&definition), Declared::Code)
        }
        Some((.., definition)) => unknown(&definition),
    })
}

fn unknown(definition: &str) -> Declared {
    Declared::Unknown(definition.chars().take(CRS_CHARACTERS_MAX).collect())
}
