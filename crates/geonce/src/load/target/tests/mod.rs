//! What every destination promises, tried on a file, on a database, and through a pooler: `suite`. What only one of them can
//! do wrong: `files`, `tables`.

mod files;
mod suite;
mod tables;

use super::{Mode, Piece, Plan, Refused, Standing, Tally, Target};
use crate::clock::{Clock, SystemClock};
use crate::error::Result;
use crate::event::Ids;
use geonce_files::{Field, FieldKind};
use geonce_key::{Fingerprint, Limits, Property, Version, wkt};
use geonce_services::{Pgbouncer, Postgres};
use sha2::{Digest, Sha256};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Where loads go.
enum Place {
    File(tempfile::TempDir),
    Schema { url: String, database: String, name: String },
}

impl Place {
    fn file() -> Place {
        Place::File(tempfile::tempdir().unwrap())
    }

    fn schema() -> Place {
        static DATABASE: OnceLock<String> = OnceLock::new();
        static SCHEMAS: AtomicU32 = AtomicU32::new(0);
        let url = DATABASE.get_or_init(|| Postgres::shared().database()).clone();
        let database = url.rsplit('/').next().unwrap().to_owned();
        Place::Schema { url, database, name: format!("Load {}", SCHEMAS.fetch_add(1, Ordering::Relaxed)) }
    }

    fn pooled() -> Place {
        static BOUNCER: OnceLock<Pgbouncer> = OnceLock::new();
        let bouncer = BOUNCER.get_or_init(|| Pgbouncer::start(Postgres::shared()));
        match Place::schema() {
            Place::Schema { url, database, name } => Place::Schema { url: bouncer.url(&url), database, name },
            file @ Place::File(_) => file,
        }
    }

    fn is_file(&self) -> bool {
        matches!(self, Place::File(_))
    }

    async fn open(&self, plan: &Plan) -> Result<Box<dyn Target>> {
        match self {
            Place::File(folder) => super::open("gpkg:layers.gpkg", plan.clone(), folder.path()).await,
            Place::Schema { url, name, .. } => {
                let url = format!("{url}?schema={name}");
                super::open(&url, plan.clone(), std::path::Path::new(".")).await
            }
        }
    }

    /// What others see: rows, with their columns between bars.
    fn ask(&self, sql: &str) -> Vec<String> {
        match self {
            Place::File(folder) => ask_file(&folder.path().join("layers.gpkg"), sql),
            Place::Schema { database, name, .. } => {
                let path = format!("SET search_path = \"{name}\", public; ");
                let told = Postgres::shared().sql(database, &(path + sql));
                told.lines().map(ToOwned::to_owned).collect()
            }
        }
    }

    /// What another program does.
    fn edit(&self, sql: &str) {
        match self {
            Place::File(folder) => {
                let path = folder.path().join("layers.gpkg");
                let connection = crate::sink::geopackage::file::connect(&path, Duration::from_secs(5)).unwrap();
                connection.execute_batch(sql).unwrap();
            }
            Place::Schema { .. } => drop(self.ask(sql)),
        }
    }

    fn count(&self, table: &str) -> u64 {
        self.ask(&format!("SELECT count(*) FROM {table}"))[0].parse().unwrap()
    }

    /// Whether there is a table by this name.
    fn has(&self, table: &str) -> bool {
        let sql = match self {
            Place::File(_) => format!("SELECT 1 FROM sqlite_master WHERE name LIKE '{table}'"),
            Place::Schema { name, .. } => {
                format!("SELECT 1 FROM pg_tables WHERE schemaname = '{name}' AND tablename LIKE '{table}'")
            }
        };
        !self.ask(&sql).is_empty()
    }
}

fn ask_file(path: &std::path::Path, sql: &str) -> Vec<String> {
    let connection = rusqlite::Connection::open(path).unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    let columns = statement.column_count();
    let text = |value: rusqlite::types::Value| match value {
        rusqlite::types::Value::Null => String::new(),
        rusqlite::types::Value::Integer(integer) => integer.to_string(),
        rusqlite::types::Value::Real(real) => format!("{real}"),
        rusqlite::types::Value::Text(text) => text,
        rusqlite::types::Value::Blob(blob) => format!("{} bytes", blob.len()),
    };
    let rows = statement
        .query_map([], |row| Ok((0..columns).map(|index| text(row.get_unwrap(index))).collect::<Vec<_>>().join("|")));
    rows.unwrap().map(std::result::Result::unwrap).collect()
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

fn field(name: &str, kind: FieldKind) -> Field {
    Field { name: name.to_owned(), kind }
}

/// A load of features with a name and a number into the layer `zones`.
fn plan(load: &str, mode: Mode) -> Plan {
    static IDS: OnceLock<Ids> = OnceLock::new();
    Plan {
        layer: "zones".to_owned(),
        mode,
        crs: None,
        fields: vec![field("name", FieldKind::Text), field("size", FieldKind::Integer)],
        expected: 0,
        load: Fingerprint::from_digest(digest(load), false),
        event: IDS.get_or_init(Ids::new).next(SystemClock.now()),
        begun: SystemClock.now(),
        again: false,
        timeout: Duration::from_secs(20),
    }
}

/// A feature at a point, named by its number.
fn piece(number: u64) -> Piece {
    shaped(number, &format!("POINT({} {})", number % 180, number % 90))
}

fn shaped(number: u64, text: &str) -> Piece {
    let shape = wkt::read(text.as_bytes(), &Limits::default()).unwrap().shape;
    let content = format!("{number} {text}");
    Piece {
        number,
        key: Fingerprint::from_digest(digest(&content), false),
        entity: Some(Fingerprint::from_digest(digest(&format!("entity {number}")), false)),
        version: None,
        content: digest(&content),
        geometry: Some(shape),
        values: vec![Property::Text(format!("zone {number}")), Property::Integer(i64::try_from(number).unwrap())],
    }
}

/// The same entity at another version, with another name.
fn renamed(number: u64, version: i128, name: &str) -> Piece {
    let mut piece = piece(number);
    let content = format!("{number} {version} {name}");
    piece.version = Some(Version::Integer(version));
    piece.key = Fingerprint::from_digest(digest(&content), false);
    piece.content = digest(&content);
    piece.values[0] = Property::Text(name.to_owned());
    piece
}

fn pieces(numbers: std::ops::Range<u64>) -> Vec<Piece> {
    numbers.map(piece).collect()
}

/// Ends a load.
async fn finish(target: &mut Box<dyn Target>, features: u64) -> Tally {
    let finished = target.finish(features, Box::new(|tally| format!("{} rows", tally.inserted)));
    finished.await.unwrap()
}

/// A whole load.
async fn load(place: &Place, plan: &Plan, pieces: Vec<Piece>) -> (Tally, Vec<Refused>) {
    let mut target = place.open(plan).await.unwrap();
    assert_eq!(target.standing(), &Standing::default());
    let count = pieces.len() as u64;
    let refused = target.write(pieces).await.unwrap();
    (finish(&mut target, count).await, refused)
}
