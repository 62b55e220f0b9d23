//! `geonce_load`: which loads are in the layers of a schema, and how far each has come. Written in the transaction that
//! writes the rows, and locked from its beginning: a second runner of the same load waits here.

use crate::error::{Error, Kind};
use crate::load::target::{Plan, Standing, Tally};
use crate::postgres::{Parameter, Session, Trouble, quoted};
use crate::sink::postgis::guard::read;
use geonce_key::Encoding;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

type Answer<T> = std::result::Result<T, Trouble>;

const COLUMNS: &str = "event, made, features, inserted, updated, unchanged, stale, notes, result";

/// A load as the database has it on record.
#[derive(Clone)]
pub(super) struct Record {
    /// The event that its rows carry.
    pub(super) event: String,
    /// Whether the table was made by this load, and lacks its indexes.
    pub(super) made: bool,
    pub(super) standing: Standing,
}

impl Record {
    /// The record of a load that begins.
    pub(super) fn new(plan: &Plan) -> Record {
        Record { event: plan.event.to_string(), made: false, standing: Standing::default() }
    }
}

/// The table in one schema.
pub(super) struct Records {
    schema: String,
    table: String,
    load: String,
}

impl Records {
    pub(super) fn new(schema: &str, plan: &Plan) -> Records {
        let table = format!("{}.geonce_load", quoted(schema));
        Records { schema: schema.to_owned(), table, load: plan.load.text(Encoding::Base64) }
    }

    /// Creates the table if it is not there. Asks first: even `IF NOT EXISTS` wants the right to create.
    pub(super) async fn create(&self, session: &Session) -> Answer<()> {
        let found = session
            .query(
                "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                 WHERE n.nspname = $1 AND c.relname = 'geonce_load'",
                &[(&self.schema, Type::TEXT)],
            )
            .await?;
        if !found.is_empty() {
            return Ok(());
        }
        let table = &self.table;
        session
            .batch(&format!(
                "CREATE TABLE {table} (load text COLLATE \"C\" PRIMARY KEY, event text NOT NULL, layer text NOT NULL,
                   mode text NOT NULL, made boolean NOT NULL, features bigint NOT NULL, inserted bigint NOT NULL,
                   updated bigint NOT NULL, unchanged bigint NOT NULL, stale bigint NOT NULL, notes text NOT NULL,
                   begun timestamptz NOT NULL, finished timestamptz, result text);
                 COMMENT ON TABLE {table} IS 'Which loads are in which layer; other programs leave it alone.'"
            ))
            .await
    }

    /// The record as others have committed it.
    pub(super) async fn find(&self, session: &Session) -> Answer<Option<Record>> {
        let sql = format!("SELECT {COLUMNS} FROM {} WHERE load = $1", self.table);
        session.query(&sql, &[(&self.load, Type::TEXT)]).await?.first().map(record).transpose()
    }

    /// Locks the record, making one if there is none; waits for whoever has it.
    pub(super) async fn claim(&self, session: &Session, plan: &Plan) -> Answer<Record> {
        let sql = format!(
            "INSERT INTO {} AS held (load, event, layer, mode, made, features, inserted, updated, unchanged, stale, notes, begun)
             VALUES ($1, $2, $3, $4, false, 0, 0, 0, 0, 0, '', $5::text::timestamptz)
             ON CONFLICT (load) DO UPDATE SET load = held.load RETURNING {COLUMNS}",
            self.table
        );
        let (event, mode, begun) = (plan.event.to_string(), plan.mode.as_str(), plan.begun.to_string());
        let parameters: [Parameter<'_>; 5] = [
            (&self.load, Type::TEXT),
            (&event, Type::TEXT),
            (&plan.layer, Type::TEXT),
            (&mode, Type::TEXT),
            (&begun, Type::TEXT),
        ];
        match session.query(&sql, &parameters).await?.first() {
            Some(row) => record(row),
            None => Err(Error::new(Kind::Internal, "a load was given no record").into()),
        }
    }

    /// Writes the record that is locked; finished, if it has a result.
    pub(super) async fn set(&self, session: &Session, record: &Record) -> Answer<()> {
        let sql = format!(
            "UPDATE {} SET event = $2, made = $3, features = $4, inserted = $5, updated = $6, unchanged = $7, stale = $8,
             notes = $9, result = $10, finished = CASE WHEN $10 IS NOT NULL THEN clock_timestamp() END WHERE load = $1",
            self.table
        );
        let Standing { result, features, tally, notes } = &record.standing;
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let numbers = [*features, tally.inserted, tally.updated, tally.unchanged, tally.stale].map(number);
        let parameters: [Parameter<'_>; 10] = [
            (&self.load, Type::TEXT),
            (&record.event, Type::TEXT),
            (&record.made, Type::BOOL),
            (&numbers[0], Type::INT8),
            (&numbers[1], Type::INT8),
            (&numbers[2], Type::INT8),
            (&numbers[3], Type::INT8),
            (&numbers[4], Type::INT8),
            (notes, Type::TEXT),
            (result, Type::TEXT),
        ];
        match session.execute(&sql, &parameters).await? {
            1 => Ok(()),
            _ => Err(Error::new(Kind::Corrupt, format!("{} has lost the record of this load", self.table)).into()),
        }
    }
}

fn record(row: &Row) -> Answer<Record> {
    let number = |index| read::<i64>(row, index).map(|number| u64::try_from(number).unwrap_or(0));
    let tally = Tally { inserted: number(3)?, updated: number(4)?, unchanged: number(5)?, stale: number(6)? };
    let standing = Standing { result: read(row, 8)?, features: number(2)?, tally, notes: read(row, 7)? };
    Ok(Record { event: read(row, 0)?, made: read(row, 1)?, standing })
}
