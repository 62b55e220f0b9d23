//! Taking the place of a layer: rows go into a table beside it, which is renamed in the transaction that ends the load.
//!
//! Between parts that table is in nobody's list of layers. Views of other programs go by the name, and show what is new.

use super::{Load, Plan};
use crate::load::target;
use crate::sink::columns::quoted;
use crate::sink::geopackage::{Settings, guard};
use rusqlite::{Connection, OptionalExtension, Result};

/// What the table is called that a load fills: not listed as a layer by GDAL, which knows the prefix.
const PREFIX: &str = "gpkg_geonce_staging_";

/// The table that a load fills.
pub(super) fn staging(plan: &Plan) -> String {
    target::staging(PREFIX, &plan.layer, &plan.load).0
}

fn is_there(connection: &Connection, table: &str) -> Result<bool> {
    connection.prepare("SELECT 1 FROM sqlite_master WHERE type = 'table' AND lower(name) = lower(?1)")?.exists([table])
}

/// Whether there is a table to go on with. One that is left over from a load that begins again is removed.
pub(super) fn resume(connection: &Connection, settings: &Settings, resumed: bool) -> Result<bool> {
    if !is_there(connection, &settings.layer)? {
        return Ok(false);
    }
    if !resumed {
        remove(connection, &settings.layer)?;
        return Ok(false);
    }
    register(connection, settings)?;
    Ok(true)
}

/// Makes the table known as a layer, for as long as the transaction lasts.
fn register(connection: &Connection, settings: &Settings) -> Result<()> {
    connection.execute(
        "INSERT OR IGNORE INTO gpkg_contents (table_name, data_type, identifier, srs_id) VALUES (?1, 'features', ?1, ?2)",
        (&settings.layer, settings.crs),
    )?;
    connection.execute(
        "INSERT OR IGNORE INTO gpkg_geometry_columns VALUES (?1, 'geom', 'GEOMETRY', ?2, 2, 0)",
        (&settings.layer, settings.crs),
    )?;
    Ok(())
}

/// Takes the table out of the list of layers.
pub(super) fn hide(connection: &Connection, table: &str) -> Result<()> {
    for (list, column) in [("gpkg_geometry_columns", "table_name"), ("gpkg_contents", "table_name")] {
        connection.execute(&format!("DELETE FROM {list} WHERE lower({column}) = lower(?1)"), [table])?;
    }
    Ok(())
}

/// Removes a table that never became a layer.
fn remove(connection: &Connection, table: &str) -> Result<()> {
    hide(connection, table)?;
    forget(connection, table)?;
    connection.execute_batch(&format!("DROP TABLE {}", quoted(table)))
}

/// Forgets what is known of a layer by this name.
fn forget(connection: &Connection, table: &str) -> Result<()> {
    for what in ["gpkg_geonce_column", "gpkg_geonce_entity"] {
        let sql = format!("DELETE FROM {what} WHERE layer IN (SELECT id FROM gpkg_geonce_layer WHERE name = ?1)");
        connection.execute(&sql, [table])?;
    }
    connection.execute("DELETE FROM gpkg_geonce_layer WHERE name = ?1", [table]).map(drop)
}

impl Load {
    /// Gives the filled table the name of the layer. What was called so is gone.
    pub(super) fn take_place(&mut self) -> Result<()> {
        let connection = &self.connection;
        let (layer, staged) = (self.plan.layer.clone(), self.settings.layer.clone());
        let name = remove_layer(connection, &layer)?.unwrap_or(layer);
        let id = guard::layer(connection, &name)?;
        connection.execute("DELETE FROM gpkg_geonce_column WHERE layer = ?1", [id])?;
        connection.execute("UPDATE gpkg_geonce_column SET layer = ?1 WHERE layer = ?2", [id, self.layer.id])?;
        move_entities(connection, self.layer.id, id)?;
        hide(connection, &staged)?;
        forget(connection, &staged)?;
        // Otherwise views that speak of the layer would keep the table from being renamed.
        connection.pragma_update(None, "legacy_alter_table", true)?;
        let renamed = connection.execute_batch(&format!("ALTER TABLE {} RENAME TO {}", quoted(&staged), quoted(&name)));
        connection.pragma_update(None, "legacy_alter_table", false)?;
        renamed?;
        self.settings.layer = name;
        self.layer.id = id;
        connection.execute(
            "INSERT INTO gpkg_contents (table_name, data_type, identifier, srs_id) VALUES (?1, 'features', ?1, ?2)
             ON CONFLICT (table_name) DO UPDATE SET data_type = 'features', srs_id = excluded.srs_id,
             min_x = NULL, min_y = NULL, max_x = NULL, max_y = NULL",
            (&self.settings.layer, self.settings.crs),
        )?;
        connection.execute(
            "INSERT INTO gpkg_geometry_columns VALUES (?1, 'geom', 'GEOMETRY', ?2, 2, 0)",
            (&self.settings.layer, self.settings.crs),
        )?;
        remove_leftovers(connection, &target::staging(PREFIX, &self.plan.layer, &self.plan.load).1)
    }
}

/// Brings the entities of the filled table to the layer. Those that it does not have are gone, and what was known of them is
/// kept: an event that comes late does not bring them back.
fn move_entities(connection: &Connection, from: i64, to: i64) -> Result<()> {
    connection.execute("UPDATE gpkg_geonce_entity SET deleted = 1, fid = NULL WHERE layer = ?1", [to])?;
    connection.execute(
        "INSERT OR REPLACE INTO gpkg_geonce_entity (layer, entity, version, key, content, fid)
         SELECT ?2, entity, version, key, content, fid FROM gpkg_geonce_entity WHERE layer = ?1",
        [from, to],
    )?;
    Ok(())
}

/// Removes the rows, the R-tree and the registration of a layer, but not its entry in the list: it keeps its title. The
/// name as the file has it.
fn remove_layer(connection: &Connection, layer: &str) -> Result<Option<String>> {
    let sql = "SELECT table_name, column_name FROM gpkg_geometry_columns WHERE lower(table_name) = lower(?1)";
    let found: Option<(String, String)> =
        connection.query_row(sql, [layer], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((name, geometry)) = found else { return Ok(None) };
    let rtree = format!("rtree_{name}_{geometry}");
    if is_there(connection, &rtree)? {
        connection.execute_batch(&format!("DROP TABLE {}", quoted(&rtree)))?;
    }
    connection.execute("DELETE FROM gpkg_geometry_columns WHERE table_name = ?1", [&name])?;
    connection.execute(
        "DELETE FROM gpkg_extensions WHERE lower(table_name) = lower(?1) AND extension_name = 'gpkg_rtree_index'",
        [&name],
    )?;
    if is_there(connection, "gpkg_ogr_contents")? {
        // GDAL counts again where it finds no number.
        connection.execute("DELETE FROM gpkg_ogr_contents WHERE lower(table_name) = lower(?1)", [&name])?;
    }
    if is_there(connection, &name)? {
        connection.execute_batch(&format!("DROP TABLE {}", quoted(&name)))?;
    }
    Ok(Some(name))
}

/// Removes tables that other loads began to fill for the same layer; whoever takes one of those up again begins from the start.
fn remove_leftovers(connection: &Connection, prefix: &str) -> Result<()> {
    let sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, length(?1)) = ?1";
    let mut statement = connection.prepare(sql)?;
    let names: Vec<String> = statement.query_map([prefix], |row| row.get(0))?.collect::<Result<_>>()?;
    names.iter().try_for_each(|name| remove(connection, name))
}
