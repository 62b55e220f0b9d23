//! What the database looks like to others, and what others do to it. `table`: layers of other programs; `values`: what is in
//! rows; `entities`: what is remembered of them; `races`: gateways beside each other, and connections that end at the wrong moment.

mod entities;
mod races;
mod table;
mod values;

use crate::event::{Class, Outcome};
use crate::sink::conformance::{self, Maker, Place, RowPoint};
use crate::sink::{Mode, Options, Outgoing, Sink, Written};
use crate::store::Answer;
use geonce_services::{Pgbouncer, Postgres};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// A schema of its own, with the sink's layer `zones` in it.
struct Schema {
    database: String,
    name: String,
    /// The address of the database, perhaps through something.
    url: String,
}

impl Schema {
    fn new() -> Schema {
        static DATABASE: OnceLock<String> = OnceLock::new();
        static SCHEMAS: AtomicU32 = AtomicU32::new(0);
        let url = DATABASE.get_or_init(|| Postgres::shared().database()).clone();
        let database = url.rsplit('/').next().unwrap().to_owned();
        Schema { database, name: format!("Schema {}", SCHEMAS.fetch_add(1, Ordering::Relaxed)), url }
    }

    /// A schema in a database where nobody else is.
    fn alone() -> Schema {
        let url = Postgres::shared().database();
        let database = url.rsplit('/').next().unwrap().to_owned();
        Schema { database, name: "alone".to_owned(), url }
    }

    /// How many transactions waited in a circle in this database, once all connections to it have ended.
    async fn deadlocks(&self) -> String {
        let about = |what: &str| format!("SELECT {what} WHERE datname = '{}'", self.database);
        let others = about("count(*) FROM pg_stat_activity") + " AND pid <> pg_backend_pid()";
        while Postgres::shared().sql("postgres", &others) != "0" {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        Postgres::shared().sql("postgres", &about("deadlocks FROM pg_stat_database"))
    }

    fn through_pgbouncer() -> Schema {
        static BOUNCER: OnceLock<Pgbouncer> = OnceLock::new();
        let schema = Schema::new();
        let bouncer = BOUNCER.get_or_init(|| Pgbouncer::start(Postgres::shared()));
        Schema { url: bouncer.url(&schema.url), ..schema }
    }

    fn through_port(port: u16) -> Schema {
        let schema = Schema::new();
        let url = format!("postgresql://postgres@127.0.0.1:{port}/{}", schema.database);
        Schema { url, ..schema }
    }

    fn sink(&self, options: &Options) -> Arc<dyn Sink> {
        self.try_sink(options).unwrap()
    }

    fn try_sink(&self, options: &Options) -> crate::Result<Arc<dyn Sink>> {
        let url = format!("{}?schema={}", self.url, self.name);
        crate::sink::open("zones", &url, options, std::path::Path::new("."))
    }

    /// What psql says, in this schema.
    fn sql(&self, statement: &str) -> String {
        let path = format!("SET search_path = \"{}\", public; ", self.name);
        Postgres::shared().sql(&self.database, &(path + statement))
    }

    /// Does what another program does before there is a sink.
    fn prepared(statement: &str) -> Schema {
        let schema = Schema::new();
        Postgres::shared().sql(&schema.database, &format!("CREATE SCHEMA \"{}\"", schema.name));
        schema.sql(statement);
        schema
    }

    fn lines(&self, statement: &str) -> Vec<String> {
        self.sql(statement).lines().map(str::to_owned).collect()
    }

    /// The types of the layer's columns beyond the first four.
    fn columns(&self) -> String {
        let sql = format!(
            "SELECT string_agg(column_name || ' ' || data_type, ', ' ORDER BY ordinal_position) FROM information_schema.columns
             WHERE table_schema = '{}' AND table_name = 'zones' AND column_name NOT IN ('fid', 'geom', 'geonce_key', 'geonce_event')",
            self.name
        );
        self.sql(&sql)
    }
}

impl Place for Schema {
    fn open(&self, mode: Mode) -> Answer<'_, Arc<dyn Sink>> {
        Box::pin(async move { self.try_sink(&Options { mode, ..Options::default() }) })
    }

    fn rows(&self) -> Answer<'_, Vec<String>> {
        Box::pin(async move {
            let exists = self.sql(&format!("SELECT to_regclass('\"{}\".zones') IS NOT NULL", self.name)) == "t";
            assert!(exists, "the layer is there");
            let left = "SELECT count(*) FROM geonce_entity e WHERE version IS NULL
                        OR deleted = EXISTS (SELECT 1 FROM zones WHERE zones.fid = e.fid) OR deleted <> (fid IS NULL)";
            assert_eq!(self.sql(left), "0", "no room is left over, and what has no row is deleted");
            Ok(self.lines("SELECT geonce_key FROM zones ORDER BY fid"))
        })
    }
}

impl conformance::Layer for Schema {
    fn points(&self) -> Answer<'_, Vec<RowPoint>> {
        Box::pin(async move {
            let sql = "SELECT geonce_key, geonce_event, ST_X(geom), ST_Y(geom), n FROM zones ORDER BY fid";
            let lines = self.lines(sql);
            let rows = lines.iter().map(|line| {
                let [key, event, x, y, n] = line.split('|').collect::<Vec<_>>()[..] else { panic!("{line}") };
                let at = [x, y].map(|number| number.parse().unwrap());
                RowPoint { key: key.to_owned(), event: event.to_owned(), at, n: n.parse().unwrap() }
            });
            Ok(rows.collect())
        })
    }

    fn lineage(&self) -> Answer<'_, Vec<([u8; 16], [u8; 16])>> {
        Box::pin(async move {
            let lines = self.lines("SELECT key, \"into\" FROM geonce_merged");
            let bytes = |uuid: &str| u128::from_str_radix(&uuid.replace('-', ""), 16).unwrap().to_be_bytes();
            Ok(lines.iter().map(|line| line.split_once('|').unwrap()).map(|(a, b)| (bytes(a), bytes(b))).collect())
        })
    }

    fn edit(&self, sql: &str) {
        self.sql(sql);
    }
}

fn feature(maker: &Maker, geometry: &str, members: &str) -> Outgoing {
    maker.event(&format!(r#"{{"type":"Feature","geometry":{geometry},{members}}}"#))
}

const POINT: &str = r#"{"type":"Point","coordinates":[13.5,52.25]}"#;
const SQUARE: &str = r#"{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,0]]]}"#;
const APPLIED: Written = Written::Done(Outcome::Applied);

fn is_dead(written: &Written, class: Class, code: &str) -> bool {
    matches!(written, Written::Dead(cause) if cause.class == class && cause.code == code)
}

fn all_applied(written: &[Written]) -> bool {
    written.iter().all(|written| *written == APPLIED)
}

#[tokio::test]
async fn it_keeps_the_contract_of_a_sink_of_events() {
    conformance::append(Schema::new).await;
}

#[tokio::test]
async fn it_keeps_the_contract_of_a_sink_of_entities() {
    conformance::upsert(Schema::new).await;
}

#[tokio::test]
async fn its_rows_take_others_in() {
    conformance::merging(Schema::new).await;
}

#[tokio::test]
async fn its_rows_take_others_in_through_pgbouncer() {
    conformance::merging(Schema::through_pgbouncer).await;
}

#[tokio::test]
async fn it_keeps_the_contract_of_a_sink_of_events_through_pgbouncer() {
    conformance::append(Schema::through_pgbouncer).await;
}

#[tokio::test]
async fn it_keeps_the_contract_of_a_sink_of_entities_through_pgbouncer() {
    conformance::upsert(Schema::through_pgbouncer).await;
}
