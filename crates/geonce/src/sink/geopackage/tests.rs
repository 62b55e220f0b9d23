#![expect(clippy::unwrap_used, reason = "tests")]

use crate::error::Kind;
use crate::event::{Class, Outcome};
use crate::sink::conformance::{self, Maker, Place};
use crate::sink::{Columns, Mode, Options, Outgoing, Sink, Written};
use crate::store::Answer;
use geonce_key::Pointer;
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

struct Folder {
    folder: TempDir,
}

impl Folder {
    fn new() -> Folder {
        Folder { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("features.gpkg")
    }

    fn sink(&self, options: &Options) -> crate::Result<Arc<dyn Sink>> {
        crate::sink::open("zones", "gpkg:features.gpkg", options, self.folder.path())
    }

    fn read(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    fn all(&self, sql: &str) -> Vec<String> {
        let connection = self.read();
        let mut statement = connection.prepare(sql).unwrap();
        let columns = statement.column_count();
        let text = |value: rusqlite::types::Value| match value {
            rusqlite::types::Value::Null => "null".to_owned(),
            rusqlite::types::Value::Integer(integer) => integer.to_string(),
            rusqlite::types::Value::Real(real) => format!("{real:?}"),
            rusqlite::types::Value::Text(text) => text,
            rusqlite::types::Value::Blob(blob) => format!("{} bytes", blob.len()),
        };
        let rows = statement.query_map([], |row| {
            let cells: Vec<String> = (0..columns).map(|i| text(row.get_unwrap(i))).collect();
            Ok(cells.join("|"))
        });
        rows.unwrap().map(Result::unwrap).collect()
    }
}

impl Place for Folder {
    fn open(&self, mode: Mode) -> Answer<'_, Arc<dyn Sink>> {
        Box::pin(async move { self.sink(&Options { mode, ..Options::default() }) })
    }

    fn rows(&self) -> Answer<'_, Vec<String>> {
        Box::pin(async move {
            let rows = self.all("SELECT geonce_key FROM zones ORDER BY fid");
            // In every state the R-tree has exactly the rows with a geometry.
            assert_eq!(self.all("SELECT count(*) FROM rtree_zones_geom"), [rows.len().to_string()]);
            Ok(rows)
        })
    }
}

fn feature(maker: &Maker, geometry: &str, members: &str) -> Outgoing {
    maker.event(&format!(r#"{{"type":"Feature","geometry":{geometry},{members}}}"#))
}

const POINT: &str = r#"{"type":"Point","coordinates":[13.5,52.25]}"#;
const APPLIED: Written = Written::Done(Outcome::Applied);

fn is_dead(written: &Written, class: Class, code: &str) -> bool {
    matches!(written, Written::Dead(cause) if cause.class == class && cause.code == code)
}

#[tokio::test]
async fn it_keeps_the_contract_of_a_sink_of_events() {
    conformance::append(Folder::new).await;
}

#[tokio::test]
async fn it_keeps_the_contract_of_a_sink_of_entities() {
    conformance::upsert(Folder::new).await;
}
