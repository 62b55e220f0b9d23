//! Taking the place of a table: rows go into one beside it, which is renamed in the transaction that ends the load, so that
//! others see the old rows or the new ones. Owner, rights and comments are kept.
//!
//! A table that is more than rows to others (views, references, triggers, policies, constraints, indexes of its owner) stays:
//! then it is emptied and filled in that same transaction.

use super::{Load, Told};
use crate::clock::Stopwatch;
use crate::error::{Error, Kind};
use crate::load::target::{self, Plan};
use crate::postgres::{Parameter, Session, Trouble, literal, quoted};
use crate::sink::postgis::Settings;
use crate::sink::postgis::guard::{Guard, read};
use crate::sink::postgis::layer::{CHANGE_WAIT_MILLIS_MAX, find_table};
use std::fmt::Write as _;
use std::time::Duration;
use tokio_postgres::types::Type;

const PREFIX: &str = "geonce_staging_";

/// The table that a load fills.
pub(super) fn staging(plan: &Plan, settings: &Settings) -> Settings {
    let (layer, _) = target::staging(PREFIX, &settings.layer, &plan.load);
    Settings { layer, ..settings.clone() }
}

/// Whether nothing would be missed if another table took its place.
pub(super) async fn is_plain(session: &Session, oid: u32) -> Told<bool> {
    let sql = "
SELECT c.relkind = 'r' AND NOT c.relispartition AND NOT c.relrowsecurity AND pg_has_role(c.relowner, 'USAGE')
  AND NOT EXISTS (SELECT 1 FROM pg_inherits WHERE inhrelid = c.oid OR inhparent = c.oid)
  AND NOT EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = c.oid AND NOT tgisinternal)
  AND NOT EXISTS (SELECT 1 FROM pg_policy WHERE polrelid = c.oid)
  AND NOT EXISTS (SELECT 1 FROM pg_rewrite WHERE ev_class = c.oid)
  AND NOT EXISTS (SELECT 1 FROM pg_publication_rel WHERE prrelid = c.oid)
  AND NOT EXISTS (SELECT 1 FROM pg_constraint WHERE confrelid = c.oid
    OR (conrelid = c.oid AND contype <> 'p' AND conname <> 'enforce_srid_geom'))
  AND NOT EXISTS (SELECT 1 FROM pg_index i LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = c.oid AND NOT i.indisprimary AND (i.indnatts > 1 OR i.indpred IS NOT NULL OR a.attname IS NULL
      OR NOT (a.attname = 'geonce_key' OR a.atttypid IN (SELECT oid FROM pg_type WHERE typname = 'geometry'))))
  AND NOT EXISTS (SELECT 1 FROM pg_depend WHERE refclassid = 'pg_class'::regclass AND refobjid = c.oid
    AND classid = 'pg_rewrite'::regclass)
FROM pg_class c WHERE c.oid = $1";
    let rows = session.query(sql, &[(&oid, Type::OID)]).await?;
    rows.first().map_or(Ok(false), |row| read(row, 0))
}

/// Makes a table that takes what the layer takes.
pub(super) async fn create_like(session: &Session, settings: &Settings, into: &Settings, is_there: bool) -> Told<()> {
    let (layer, table) = (settings.table(), into.table());
    let drop = if is_there { format!("DROP TABLE {table}; ") } else { String::new() };
    let including = "INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING GENERATED INCLUDING IDENTITY";
    session.batch(&format!("{drop}CREATE TABLE {table} (LIKE {layer} {including})")).await?;
    // Rows are numbered by the layer's own means when they come there.
    let sql = "SELECT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
               WHERE i.indrelid = $1::text::regclass AND i.indisprimary AND i.indnatts = 1";
    let keys = session.query(sql, &[(&layer, Type::TEXT)]).await?;
    if let Some(row) = keys.first() {
        let key = quoted(read(row, 0)?);
        session.batch(&format!("ALTER TABLE {table} ADD PRIMARY KEY ({key})")).await?;
    }
    Ok(())
}

/// Forgets what is known of a table that is to be filled.
pub(super) async fn forget(session: &Session, into: &Settings) -> Told<()> {
    let schema = quoted(&into.schema);
    let name: [Parameter<'_>; 1] = [(&into.layer, Type::TEXT)];
    for table in ["geonce_entity", "geonce_column"] {
        let ids = format!("SELECT id FROM {schema}.geonce_layer WHERE name = $1");
        session.execute(&format!("DELETE FROM {schema}.{table} WHERE layer IN ({ids})"), &name).await?;
    }
    session.execute(&format!("DELETE FROM {schema}.geonce_layer WHERE name = $1"), &name).await.map(drop)
}

impl Load {
    /// Puts the filled table in the layer's place, or its rows into the layer.
    pub(super) async fn take_place(&self) -> Told<()> {
        let session = self.session()?;
        // It may take its numbers from the sequence of a table that is about to go.
        session.batch("DROP TABLE IF EXISTS pg_temp.geonce_rows").await?;
        let old = find_table(session, &self.settings).await?;
        match old {
            Some(_) if self.refills => self.refill(session).await?,
            Some(oid) => self.swap(session, oid).await?,
            None => self.rename(session).await?,
        }
        self.move_entities(session).await?;
        forget(session, &self.into).await?;
        self.remove_leftovers(session).await
    }

    /// Brings the entities of the filled table to the layer. Those that it does not have are gone, and what was known of them
    /// is kept: an event that comes late does not bring them back.
    async fn move_entities(&self, session: &Session) -> Told<()> {
        let table = format!("{}.geonce_entity", quoted(&self.settings.schema));
        let ids: [Parameter<'_>; 2] = [(&self.layer.id, Type::INT4), (&self.id, Type::INT4)];
        let mark = format!(
            "UPDATE {table} AS e SET deleted = true, fid = NULL WHERE e.layer = $2
             AND NOT EXISTS (SELECT 1 FROM {table} AS s WHERE s.layer = $1 AND s.entity = e.entity)"
        );
        session.execute(&mark, &ids).await?;
        let copy = format!(
            "INSERT INTO {table} (layer, entity, version, key, content, fid)
             SELECT $2, entity, version, key, content, fid FROM {table} WHERE layer = $1 ORDER BY entity
             ON CONFLICT (layer, entity) DO UPDATE SET version = excluded.version, key = excluded.key,
               content = excluded.content, fid = excluded.fid, deleted = false"
        );
        session.execute(&copy, &ids).await.map(drop)
    }

    async fn refill(&self, session: &Session) -> Told<()> {
        let (layer, from) = (self.settings.table(), self.into.table());
        let mut names = vec![quoted(&self.layer.geometry), "geonce_key".to_owned(), "geonce_event".to_owned()];
        names.extend(self.layer.columns.list().iter().map(|column| quoted(&column.name)));
        if self.layer.columns.has_other() {
            names.push(crate::sink::columns::OTHER.to_owned());
            let add = format!("ALTER TABLE {layer} ADD COLUMN IF NOT EXISTS {} json", crate::sink::columns::OTHER);
            session.batch(&add).await?;
        }
        let (names, order) =
            (names.join(", "), self.layer.fid.as_ref().map(|fid| format!(" ORDER BY {}", quoted(fid))));
        session
            .batch(&format!(
                "DELETE FROM {layer}; INSERT INTO {layer} ({names}) SELECT {names} FROM {from}{}",
                order.unwrap_or_default()
            ))
            .await?;
        if let Some(fid) = self.layer.fid.as_ref().map(|fid| quoted(fid)) {
            // Rows are numbered anew; entities are to find theirs.
            let sql = format!(
                "UPDATE {}.geonce_entity AS e SET fid = l.{fid} FROM {from} AS s JOIN {layer} AS l ON l.geonce_key = s.geonce_key
                 WHERE e.layer = $1 AND e.fid = s.{fid}",
                quoted(&self.settings.schema)
            );
            session.execute(&sql, &[(&self.layer.id, Type::INT4)]).await?;
        }
        session.batch(&format!("DROP TABLE {from}")).await
    }

    async fn swap(&self, session: &Session, oid: u32) -> Told<()> {
        self.lock_table(session).await?;
        let kept = self.kept(session, oid).await?;
        let dropped = session.batch(&format!("DROP TABLE {}", self.settings.table())).await;
        dropped.map_err(|trouble| match trouble.state().map(tokio_postgres::error::SqlState::code) {
            Some("2BP01") => {
                let what = format!("{} is used by something that was made during the load", self.settings.place());
                Trouble::Other(
                    Error::new(Kind::Unavailable, what).hint("the next attempt fills the table and keeps it"),
                )
            }
            _ => trouble,
        })?;
        self.rename(session).await?;
        session.batch(&kept).await
    }

    /// Waits until nobody reads the layer, a little at a time: whoever comes meanwhile waits behind us.
    async fn lock_table(&self, session: &Session) -> Told<()> {
        let (table, watch) = (self.settings.table(), Stopwatch::start());
        let lock = format!(
            "SAVEPOINT geonce_lock; SET LOCAL lock_timeout = {CHANGE_WAIT_MILLIS_MAX};
             LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE; RELEASE geonce_lock"
        );
        loop {
            match session.batch(&lock).await {
                Err(trouble)
                    if trouble.state().is_some_and(|state| state.code() == "55P03")
                        && watch.elapsed() < self.plan.timeout =>
                {
                    session.batch("ROLLBACK TO geonce_lock; RELEASE geonce_lock").await?;
                    tokio::time::sleep(Duration::from_millis(u64::from(CHANGE_WAIT_MILLIS_MAX) / 2)).await;
                }
                locked => return locked,
            }
        }
    }

    /// Statements that give a table the owner, rights and comments of another.
    async fn kept(&self, session: &Session, oid: u32) -> Told<String> {
        let table = self.settings.table();
        let columns: Vec<&str> = self.layer.columns.list().iter().map(|column| column.name.as_str()).collect();
        let mut sql = String::new();
        let owner = "SELECT CASE WHEN relowner <> (SELECT oid FROM pg_roles WHERE rolname = current_user)
                     THEN pg_get_userbyid(relowner)::text END FROM pg_class WHERE oid = $1";
        let rights = "SELECT NULL::text, x.privilege_type, CASE x.grantee WHEN 0 THEN NULL ELSE pg_get_userbyid(x.grantee)::text END,
                        x.is_grantable FROM pg_class c, aclexplode(c.relacl) x WHERE c.oid = $1 AND x.grantee <> c.relowner
                      UNION ALL
                      SELECT a.attname::text, x.privilege_type, CASE x.grantee WHEN 0 THEN NULL ELSE pg_get_userbyid(x.grantee)::text END,
                        x.is_grantable FROM pg_attribute a, aclexplode(a.attacl) x
                      WHERE a.attrelid = $1 AND a.attname = ANY($2) AND NOT a.attisdropped";
        let comments = "SELECT a.attname::text, d.description FROM pg_description d
                        LEFT JOIN pg_attribute a ON a.attrelid = d.objoid AND a.attnum = d.objsubid AND d.objsubid > 0
                        WHERE d.classoid = 'pg_class'::regclass AND d.objoid = $1
                          AND (d.objsubid = 0 OR a.attname = ANY($2))";
        let id = (&oid as &(dyn tokio_postgres::types::ToSql + Sync), Type::OID);
        for row in &session.query(rights, &[id.clone(), (&columns, Type::TEXT_ARRAY)]).await? {
            let column = read::<Option<&str>>(row, 0)?.map_or(String::new(), |name| format!(" ({})", quoted(name)));
            let right: &str = read(row, 1)?;
            let grantee = read::<Option<&str>>(row, 2)?.map_or("PUBLIC".to_owned(), quoted);
            let option = if read::<bool>(row, 3)? { " WITH GRANT OPTION" } else { "" };
            let _ = write!(sql, "GRANT {right}{column} ON {table} TO {grantee}{option}; ");
        }
        for row in &session.query(comments, &[id.clone(), (&columns, Type::TEXT_ARRAY)]).await? {
            let text = literal(read(row, 1)?);
            let _ = match read::<Option<&str>>(row, 0)? {
                None => write!(sql, "COMMENT ON TABLE {table} IS {text}; "),
                Some(name) => write!(sql, "COMMENT ON COLUMN {table}.{} IS {text}; ", quoted(name)),
            };
        }
        if let Some(owner) = read::<Option<String>>(&session.query(owner, &[id]).await?[0], 0)? {
            let _ = write!(sql, "ALTER TABLE {table} OWNER TO {}; ", quoted(&owner));
        }
        Ok(sql)
    }

    /// Gives the table the layer's name, and what belongs to it names that go with it.
    async fn rename(&self, session: &Session) -> Told<()> {
        let (schema, staged, name) = (&self.settings.schema, &self.into.layer, &self.settings.layer);
        session.batch(&format!("ALTER TABLE {} RENAME TO {}", self.into.table(), quoted(name))).await?;
        let sql =
            "SELECT c.relname::text, c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                   WHERE n.nspname = $1 AND starts_with(c.relname::text, $2) AND c.relkind IN ('i', 'S')";
        let parts = session.query(sql, &[(schema, Type::TEXT), (staged, Type::TEXT)]).await?;
        for row in &parts {
            let (old, kind): (&str, &str) = (read(row, 0)?, read(row, 1)?);
            let new = format!("{name}{}", &old[staged.len()..]);
            let found = "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                         WHERE n.nspname = $1 AND c.relname = $2";
            // Names are for people; one that is taken, or too long, is left as it is.
            if crate::postgres::check_name(&new).is_ok()
                && session.query(found, &[(schema, Type::TEXT), (&new, Type::TEXT)]).await?.is_empty()
            {
                let what = if kind == "i" { "INDEX" } else { "SEQUENCE" };
                let old = format!("{}.{}", quoted(schema), quoted(old));
                session.batch(&format!("ALTER {what} {old} RENAME TO {}", quoted(&new))).await?;
            }
        }
        let names: Vec<&str> =
            self.layer.columns.list().iter().filter(|column| column.ours).map(|column| column.name.as_str()).collect();
        Guard::new(schema).add_columns(session, self.id, &names).await
    }

    /// Removes tables that other loads began to fill for the same layer and nobody works on; whoever takes one up again begins from the start.
    async fn remove_leftovers(&self, session: &Session) -> Told<()> {
        let schema = &self.settings.schema;
        let (_, prefix) = target::staging(PREFIX, &self.settings.layer, &self.plan.load);
        let sql = "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                   WHERE n.nspname = $1 AND starts_with(c.relname::text, $2) AND c.relkind = 'r'";
        for row in &session.query(sql, &[(schema, Type::TEXT), (&prefix, Type::TEXT)]).await? {
            let name: String = read(row, 0)?;
            let table = format!("{}.{}", quoted(schema), quoted(&name));
            session.batch("SAVEPOINT geonce_leftover").await?;
            let dropped = async {
                session.batch(&format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE NOWAIT; DROP TABLE {table}")).await
            };
            match dropped.await {
                Ok(()) => {
                    session.batch("RELEASE geonce_leftover").await?;
                    forget(session, &Settings { layer: name, ..self.into.clone() }).await?;
                }
                Err(Trouble::Told(_)) => session.batch("ROLLBACK TO geonce_leftover; RELEASE geonce_leftover").await?,
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(())
    }
}
