//! The tables, how they came to be, and whether the server keeps what it commits.
//!
//! Tables: `meta` (version, id of the store), `event` (slim record), `claim` (key to event, in parts by hash), `body`
//! (payloads, in parts by day), `work` (what is left to do, by event and sink), `place` (who may be near to others),
//! `counter` (the books, in slots); sequences `token` (leases) and `slot`.

use super::counts::{OWN_SLOTS, SLOTS};
use super::row::{damaged, get};
use super::{Attempt, transaction};
use crate::clock::Timestamp;
use crate::error::{Error, Kind};
use crate::event::random;
use crate::postgres::{Pool, Session, lock_number, quoted};
use crate::store::encoding::{HELD, first_id};
use crate::store::{Access, Options};
use std::fmt::Write;
use std::time::Duration;
use tokio_postgres::types::Type;

/// What makes each version of the schema from the one before.
pub(super) const MIGRATIONS: &[fn() -> String] = &[first_tables, results, held_work, leases, places, origins];

/// Parts of the table of keys.
const CLAIM_PARTS: usize = 4;
/// Days for which payloads have a part of their own before they begin.
const DAYS_AHEAD: i64 = 3;
const DAY_MILLIS: i64 = 24 * 3_600_000;
/// How long changing parts may wait for others, who wait behind it meanwhile.
const PARTS_LOCK_MILLIS: u64 = 500;
/// What the name of a day's part begins with; the number of the day since 1970 follows.
const DAY_PREFIX: &str = "body_";

// Every event is written twice, when it is accepted and when it is settled. Half of each page is left for the second time:
// a new version on the same page needs no new entry in the index.
fn first_tables() -> String {
    let mut text = "
        CREATE TABLE meta (name text PRIMARY KEY, value text NOT NULL);
        CREATE TABLE event (
          id uuid PRIMARY KEY, source text NOT NULL, state smallint NOT NULL, outcome smallint, received bigint NOT NULL,
          settled bigint, duplicates bigint NOT NULL DEFAULT 0, form smallint NOT NULL, crs bigint, digests bytea NOT NULL,
          spatial bytea, content bytea NOT NULL, cause text, code text) WITH (fillfactor = 50);
        CREATE INDEX event_dead ON event (id) WHERE code IS NOT NULL;
        CREATE TABLE claim (key uuid PRIMARY KEY, event uuid NOT NULL) PARTITION BY HASH (key);
        CREATE TABLE body (event uuid PRIMARY KEY, payload bytea NOT NULL) PARTITION BY RANGE (event);
        CREATE TABLE body_default PARTITION OF body DEFAULT;
        CREATE TABLE work (
          event uuid, sink text, due bigint NOT NULL, token bigint, attempts integer NOT NULL DEFAULT 0,
          lapses integer NOT NULL DEFAULT 0, bytes bigint NOT NULL, cause text, PRIMARY KEY (event, sink));
        CREATE INDEX work_queue ON work (sink, due, event);
        CREATE INDEX work_leased ON work (event) WHERE token IS NOT NULL;
        CREATE TABLE counter (
          source text, name text, slot bigint, value bigint NOT NULL, PRIMARY KEY (source, name, slot))
          WITH (fillfactor = 50);
        CREATE SEQUENCE token;
        CREATE SEQUENCE slot;
        "
    .to_owned();
    for part in 0..CLAIM_PARTS {
        let _ = writeln!(
            text,
            "CREATE TABLE claim_{part} PARTITION OF claim FOR VALUES WITH (MODULUS {CLAIM_PARTS}, REMAINDER {part});"
        );
    }
    let _ = writeln!(text, "INSERT INTO meta VALUES ('store', '{:032x}'), ('schema_version', '0');", random());
    text
}

/// What an event became. Gateways of the release before go on working beside it.
fn results() -> String {
    "ALTER TABLE event ADD COLUMN result text".to_owned()
}

/// Work may wait for another sink of its event, or for others of its entity. What has its turn at a sink is alone there.
fn held_work() -> String {
    format!(
        "ALTER TABLE work ADD COLUMN after text, ADD COLUMN entity uuid, ADD COLUMN rank bytea;
         CREATE UNIQUE INDEX work_turn ON work (sink, entity) WHERE entity IS NOT NULL AND due < {HELD};
         CREATE INDEX work_line ON work (sink, entity, rank, event)
           WHERE entity IS NOT NULL AND due = {HELD} AND after IS NULL;"
    )
}

/// A lease changes no column that an index knows, so that `PostgreSQL` writes a new version of the row beside the old one and
/// no entry into any index: more than half of each page is left for that, because the new version is longer. So it is with
/// `event`, which settling makes longer.
///
/// A gateway of an earlier release would take what is leased for ready. It does not find the column it looks for.
fn leases() -> String {
    "DROP INDEX work_leased;
     ALTER TABLE work RENAME COLUMN token TO lease;
     ALTER TABLE work ADD COLUMN until bigint, ADD COLUMN holder text;
     ALTER TABLE work SET (fillfactor = 40);
     ALTER TABLE event SET (fillfactor = 40);
     UPDATE work SET until = due WHERE lease IS NOT NULL;"
        .to_owned()
}

/// Places of events among what may be near, and what was decided about those that have none. Gateways of the release before
/// go on working beside it, and give no places.
fn places() -> String {
    "CREATE TABLE place (
       event uuid PRIMARY KEY, scope uuid, cell bigint, until bigint NOT NULL, body bytea, decision text,
       CHECK ((decision IS NULL) = (cell IS NOT NULL)));
     CREATE INDEX place_near ON place (cell, scope, until) WHERE cell IS NOT NULL;
     CREATE INDEX place_over ON place (until);"
        .to_owned()
}

/// Which event a repaired one was made of. Gateways of the release before go on working beside it.
fn origins() -> String {
    "ALTER TABLE event ADD COLUMN origin bytea".to_owned()
}

/// Makes or checks the tables; the store's id, and slots for counters.
pub(super) async fn prepare(
    pool: &Pool,
    schema: &str,
    options: &Options,
    access: Access,
) -> Attempt<([u8; 16], Vec<i64>)> {
    match access {
        Access::Tool => transaction!(pool, tries, session => exists(&session, schema))?,
        Access::Gateway | Access::Runner => {
            transaction!(pool, tries, session => fit(&session, options))?;
            while !transaction!(pool, tries, session => migrate(&session, schema))? {}
            let began = transaction!(pool, tries, session => async { Ok(session.began) })?;
            look_after_parts(pool, schema, began, began).await?;
        }
    }
    let text = "SELECT value FROM meta WHERE name = 'store'";
    let rows = transaction!(pool, tries, session => session.query(text, &[]))?;
    let id: Option<String> = rows.first().map(|row| get(row, 0)).transpose()?;
    let id = id.and_then(|text| u128::from_str_radix(&text, 16).ok()).ok_or_else(|| damaged("the id of the store"))?;
    let text = "SELECT nextval('slot') FROM generate_series(1, $1)";
    let rows = transaction!(pool, tries, session => session.query(text, &[(&OWN_SLOTS, Type::INT8)]))?;
    let slots = rows.iter().map(|row| Ok(get::<i64>(row, 0)? % SLOTS)).collect::<Attempt<_>>()?;
    Ok((id.to_be_bytes(), slots))
}

/// How the server may lose what it has committed.
pub(super) async fn risks(session: &Session) -> Attempt<Vec<String>> {
    let names = ["fsync", "full_page_writes", "synchronous_commit"];
    let text = "SELECT name, setting FROM pg_catalog.pg_settings WHERE name = ANY($1)";
    let rows = session.query(text, &[(&names.as_slice(), Type::TEXT_ARRAY)]).await?;
    let mut wrong = Vec::new();
    for name in names {
        let row = rows.iter().find(|row| row.try_get::<_, &str>(0).is_ok_and(|found| found == name));
        match row.and_then(|row| row.try_get::<_, &str>(1).ok()) {
            Some("off") => wrong.push(format!("{name} is off")),
            Some(_) => {}
            None => wrong.push(format!("{name} cannot be read")),
        }
    }
    Ok(wrong)
}

/// Refuses a server that may lose what it has committed.
async fn fit(session: &Session, options: &Options) -> Attempt<()> {
    let wrong = risks(session).await?;
    if wrong.is_empty() || options.accept_loss {
        return Ok(());
    }
    let why = format!("this server may lose what it has committed: {}", wrong.join(", "));
    Err(Error::new(Kind::Invalid, "opening the store")
        .because(why)
        .hint("switch it on in the server's settings, or accept the loss in words: store.accept_loss")
        .into())
}

/// The version of the tables in `schema`; `None` if it is empty or not there.
async fn version(session: &Session, schema: &str) -> Attempt<Option<usize>> {
    let text = "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v')";
    let rows = session.query(text, &[(&schema, Type::TEXT)]).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let tables: Vec<String> = rows.iter().map(|row| get(row, 0)).collect::<Attempt<_>>()?;
    if !["meta", "event", "claim"].iter().all(|ours| tables.iter().any(|table| table == ours)) {
        let other =
            Error::new(Kind::Incompatible, format!("the schema {schema:?} holds tables, but no store of geonce"));
        return Err(other.hint("name another one: postgresql://…?schema=NAME").into());
    }
    let rows = session.query("SELECT value FROM meta WHERE name = 'schema_version'", &[]).await?;
    let found: Option<String> = rows.first().map(|row| get(row, 0)).transpose()?;
    let version = found.and_then(|text| text.parse().ok()).ok_or_else(|| damaged("the version of the tables"))?;
    if version > MIGRATIONS.len() {
        let message = format!(
            "the schema {schema:?} has version {version}, this release knows version {}: a newer one wrote it",
            MIGRATIONS.len()
        );
        return Err(Error::new(Kind::Incompatible, message)
            .hint("use the release that wrote it, or a later one")
            .into());
    }
    Ok(Some(version))
}

/// For tools: there must be a store, and of this release.
async fn exists(session: &Session, schema: &str) -> Attempt<()> {
    let doing = format!("opening the store in the schema {schema:?}");
    match version(session, schema).await? {
        Some(version) if version == MIGRATIONS.len() => Ok(()),
        Some(_) => Err(Error::new(Kind::Incompatible, doing)
            .because("an older release wrote it")
            .hint("start the gateway once: it brings the tables up to date")
            .into()),
        None => Err(Error::new(Kind::Missing, doing).because("there is none").hint("start the gateway once").into()),
    }
}

/// Waits until nobody else changes the tables, until the transaction ends.
async fn lock(session: &Session, schema: &str) -> Attempt<()> {
    let number = lock_number(&format!("geonce schema {schema}"));
    session.query("SELECT pg_advisory_xact_lock($1)", &[(&number, Type::INT8)]).await.map(drop)
}

/// Brings the tables one version further; `true` if they are up to date.
async fn migrate(session: &Session, schema: &str) -> Attempt<bool> {
    lock(session, schema).await?;
    let version = version(session, schema).await?;
    if version == Some(MIGRATIONS.len()) {
        return Ok(true);
    }
    if version.is_none() {
        let text = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1";
        if session.query(text, &[(&schema, Type::TEXT)]).await?.is_empty() {
            session.batch(&format!("CREATE SCHEMA {}", quoted(schema))).await?;
        }
    }
    let next = version.unwrap_or(0);
    session.batch(&MIGRATIONS[next]()).await?;
    let text = "UPDATE meta SET value = $1 WHERE name = 'schema_version'";
    session.execute(text, &[(&(next + 1).to_string(), Type::TEXT)]).await?;
    Ok(false)
}

/// Makes parts of `body` for the days from `now`, and drops those from before `horizon` that are empty.
///
/// What cannot be done now, because somebody holds a lock or a gateway with a clock far ahead was here first, waits:
/// payloads without a part of their own go to the default one.
pub(super) async fn look_after_parts(pool: &Pool, schema: &str, now: Timestamp, horizon: Timestamp) -> Attempt<()> {
    let days = days(pool, schema).await?;
    let today = now.millis().div_euclid(DAY_MILLIS);
    for day in (today..=today + DAYS_AHEAD).filter(|day| !days.contains(day)) {
        try_parts(pool, |session| Box::pin(make_day(session, schema, day))).await?;
    }
    let over = horizon.millis().div_euclid(DAY_MILLIS);
    for &day in days.iter().filter(|&&day| day < over.min(today)) {
        try_parts(pool, |session| Box::pin(drop_day(session, schema, day))).await?;
    }
    Ok(())
}

/// The days that have a part of `body`.
pub(super) async fn days(pool: &Pool, schema: &str) -> Attempt<Vec<i64>> {
    let text = "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                WHERE n.nspname = $1 AND c.relkind = 'r' AND c.relname LIKE 'body\\_%'";
    let rows = transaction!(pool, tries, session => session.query(text, &[(&schema, Type::TEXT)]))?;
    let number = |row| get::<String>(row, 0).ok()?.strip_prefix(DAY_PREFIX)?.parse().ok();
    Ok(rows.iter().filter_map(number).collect())
}

type Step<'a> = std::pin::Pin<Box<dyn Future<Output = Attempt<()>> + Send + 'a>>;

/// Runs one change of parts. That it could not be done now is no trouble.
async fn try_parts(pool: &Pool, step: impl for<'a> Fn(&'a Session) -> Step<'a>) -> Attempt<()> {
    let changed = transaction!(pool, tries, session => async {
        session.batch(&format!("SET LOCAL lock_timeout = {PARTS_LOCK_MILLIS}")).await?;
        step(&session).await
    });
    match changed {
        Err(trouble)
            if trouble.state().is_some_and(|state| ["55P03", "23514", "42P07", "42P01"].contains(&state.code())) =>
        {
            Ok(())
        }
        other => other,
    }
}

/// Makes the part of a day apart and adds it then: that keeps nobody waiting.
fn make_day<'a>(session: &'a Session, schema: &str, day: i64) -> impl Future<Output = Attempt<()>> + Send + 'a {
    let bound = |day: i64| format!("{:032x}", u128::from_be_bytes(first_id(Timestamp::from_millis(day * DAY_MILLIS))));
    let (from, to) = (bound(day), bound(day + 1));
    let part = format!("{DAY_PREFIX}{day}");
    let text = format!(
        "CREATE TABLE {part} (LIKE body INCLUDING ALL); \
         ALTER TABLE body ATTACH PARTITION {part} FOR VALUES FROM ('{from}') TO ('{to}')"
    );
    let schema = schema.to_owned();
    async move {
        lock(session, &schema).await?;
        session.batch(&text).await
    }
}

fn drop_day<'a>(session: &'a Session, schema: &str, day: i64) -> impl Future<Output = Attempt<()>> + Send + 'a {
    let part = format!("{DAY_PREFIX}{day}");
    let schema = schema.to_owned();
    async move {
        let anything = format!("SELECT 1 FROM {part} LIMIT 1");
        if !session.query(&anything, &[]).await?.is_empty() {
            return Ok(());
        }
        lock(session, &schema).await?;
        session.batch(&format!("LOCK TABLE {part} IN ACCESS EXCLUSIVE MODE")).await?;
        // A late event may have come meanwhile.
        if session.query(&anything, &[]).await?.is_empty() {
            session.batch(&format!("DROP TABLE {part}")).await?;
        }
        Ok(())
    }
}

/// Parts of later days than this are kept, empty or not.
pub(super) const PARTS_KEPT: Duration = Duration::from_hours(24);
/// How long between looking after parts.
pub(super) const PARTS_EVERY: Duration = Duration::from_mins(10);
