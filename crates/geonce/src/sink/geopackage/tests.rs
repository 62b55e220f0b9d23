//! What the file looks like to others, and what others do to it. `rows`: those that go, and those that take others in.

mod rows;

use crate::error::Kind;
use crate::event::{Class, Outcome};
use crate::sink::conformance::{self, Maker, Place, RowPoint};
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

    /// Does what another program does that knows the functions of the triggers.
    fn edit(&self, sql: &str) {
        super::file::connect(&self.path(), Duration::from_secs(5)).unwrap().execute_batch(sql).unwrap();
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
            let astray = "SELECT count(*) FROM gpkg_geonce_entity WHERE deleted <> (fid IS NULL)";
            assert_eq!(self.all(astray), ["0"], "what has no row is deleted, and nothing else");
            Ok(rows)
        })
    }
}

impl conformance::Layer for Folder {
    fn points(&self) -> Answer<'_, Vec<RowPoint>> {
        Box::pin(async move {
            let connection = super::file::connect(&self.path(), Duration::from_secs(5)).unwrap();
            let sql = "SELECT geonce_key, geonce_event, ST_MinX(geom), ST_MinY(geom), n, minx, maxy FROM zones
                       JOIN rtree_zones_geom ON id = fid ORDER BY fid";
            let mut statement = connection.prepare(sql).unwrap();
            let rows = statement.query_map([], |row| {
                let at: [f64; 2] = [row.get(2)?, row.get(3)?];
                // The index is where the row is, to the precision of its numbers.
                assert!((row.get::<_, f64>(5)? - at[0]).abs() < 1e-4 && (row.get::<_, f64>(6)? - at[1]).abs() < 1e-4);
                Ok(RowPoint { key: row.get(0)?, event: row.get(1)?, at, n: row.get(4)? })
            });
            Ok(rows.unwrap().map(Result::unwrap).collect())
        })
    }

    fn lineage(&self) -> Answer<'_, Vec<([u8; 16], [u8; 16])>> {
        Box::pin(async move {
            let connection = self.read();
            let mut statement = connection.prepare("SELECT key, \"into\" FROM gpkg_geonce_merged").unwrap();
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
            Ok(rows.unwrap().map(Result::unwrap).collect())
        })
    }

    fn edit(&self, sql: &str) {
        Folder::edit(self, sql);
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

#[tokio::test]
async fn its_rows_take_others_in() {
    conformance::merging(Folder::new).await;
}

#[tokio::test]
async fn properties_become_columns_and_the_rest_is_kept_beside_them() {
    let place = Folder::new();
    let maker = Maker::new();
    let sink = place.sink(&Options { columns: Columns::Auto { max: 7 }, ..Options::default() }).unwrap();
    let first = r#""id":"z-1","properties":{"name":"Süd \"a\"","n":1,"share":0.5,"open":true,"tags":[1, {"a":null}],"none":null,"Name":"x","fid":7,"":1,"geonce_key":2}"#;
    let second = r#""id":8,"properties":{"name":5,"n":2.5,"share":3,"open":"yes","tags":"plain","late":1,"later":18446744073709551616}"#;
    let third = r#""id":9,"properties":{"ID":"own","big":12345678901234567890123,"n":9007199254740993}"#;
    let batch = [first, second, third].map(|members| feature(&maker, POINT, members));
    assert_eq!(sink.write(batch[..1].to_vec()).await.unwrap(), [APPLIED]);
    assert_eq!(
        place.all("SELECT name || ' ' || type FROM pragma_table_info('zones')")[4..],
        ["id TEXT", "name TEXT", "n INTEGER", "share REAL", "open BOOLEAN", "tags TEXT", "geonce_other TEXT"]
    );
    assert_eq!(sink.write(batch[1..].to_vec()).await.unwrap(), [APPLIED, APPLIED]);
    assert_eq!(
        place.all("SELECT id, name, n, share, open, tags, late, geonce_other FROM zones ORDER BY fid"),
        [
            r#"z-1|Süd "a"|1.0|0.5|1|[1, {"a":null}]|null|{"Name":"x","fid":7,"":1,"geonce_key":2}"#,
            r#"null|null|2.5|3.0|null|plain|1|{"id":8,"name":5,"open":"yes","later":18446744073709551616}"#,
            r#"null|null|null|null|null|null|null|{"geonce_id":9,"ID":"own","big":12345678901234567890123,"n":9007199254740993}"#,
        ],
        "a column of whole numbers became one of numbers"
    );
    assert_eq!(place.all("SELECT type FROM pragma_table_info('zones') WHERE name = 'n'"), ["REAL"]);
    assert_eq!(place.all("PRAGMA integrity_check"), ["ok"]);
    // The columns are known again after opening, and widen again.
    drop(sink);
    let sink = place.sink(&Options { columns: Columns::Auto { max: 7 }, ..Options::default() }).unwrap();
    sink.write(vec![feature(&maker, POINT, r#""properties":{"late":1.5}"#)]).await.unwrap();
    assert_eq!(place.all("SELECT late FROM zones WHERE late IS NOT NULL ORDER BY fid"), ["1.0", "1.5"]);
}

#[tokio::test]
async fn declared_columns_are_the_only_ones() {
    let place = Folder::new();
    let maker = Maker::new();
    let declared = |list: &[(&str, &str)]| Options {
        columns: Columns::Declared(
            list.iter().map(|(name, at)| ((*name).to_owned(), Pointer::parse(at).unwrap())).collect(),
        ),
        ..Options::default()
    };
    for bad in [
        &[("fid", "/id")][..],
        &[("a", "/geometry/type")],
        &[("a", "/id"), ("A", "/properties/a")],
        &[("geonce_key", "/id")],
        &[("", "/id")],
    ] {
        assert_eq!(place.sink(&declared(bad)).err().unwrap().kind(), Kind::Invalid, "{bad:?}");
    }
    let sink = place
        .sink(&declared(&[
            ("number", "/id"),
            ("street", "/properties/address/street"),
            ("second", "/properties/list/1"),
        ]))
        .unwrap();
    let batch = [
        r#""id":5,"properties":{"address":{"street":"Rue","no":1},"list":[1,2.5],"other":1}"#,
        r#""id":"x","properties":{"address":"none"}"#,
    ]
    .map(|members| feature(&maker, POINT, members));
    assert_eq!(sink.write(batch.to_vec()).await.unwrap(), [APPLIED, APPLIED]);
    assert_eq!(
        place.all("SELECT number, street, second, geonce_other FROM zones ORDER BY fid"),
        ["5|Rue|2.5|null", r#"null|null|null|{"number":"x"}"#]
    );
    assert_eq!(place.all("SELECT count(*) FROM pragma_table_info('zones')"), ["8"]);
}

#[tokio::test]
async fn every_geometry_type_has_its_place_in_the_index_and_the_extent() {
    let place = Folder::new();
    let maker = Maker::new();
    let sink = place.sink(&Options::default()).unwrap();
    let line = r#"{"type":"LineString","coordinates":[[-10,-20,1],[30,40,2]]}"#;
    let clockwise = r#"{"type":"Polygon","coordinates":[[[0,0],[0,1],[1,1],[0,0]]]}"#;
    let collection = r#"{"type":"GeometryCollection","geometries":[{"type":"Point","coordinates":[1,2]}]}"#;
    let batch = [POINT, line, clockwise, collection].map(|geometry| feature(&maker, geometry, r#""properties":{}"#));
    assert!(sink.write(batch.to_vec()).await.unwrap().iter().all(|written| *written == APPLIED));
    let mut nothing = maker.point(1);
    nothing.feature.geometry = None;
    assert_eq!(sink.write(vec![nothing]).await.unwrap(), [APPLIED]);
    assert_eq!(place.all("SELECT id, minx, maxx, miny, maxy FROM rtree_zones_geom ORDER BY id").len(), 4);
    assert_eq!(place.all("SELECT count(*) FROM zones WHERE geom IS NULL"), ["1"]);
    let contents = "SELECT min_x, min_y, max_x, max_y, srs_id, data_type FROM gpkg_contents";
    assert_eq!(place.all(contents), ["-10.0|-20.0|30.0|52.25|4326|features"]);
    // 40 bytes of header and envelope, then byte order, type, rings, positions: the second position is (1, 1).
    let polygon = place.all("SELECT hex(substr(geom, 70, 16)) FROM zones WHERE fid = 3");
    assert_eq!(polygon, ["000000000000F03F000000000000F03F"], "exterior rings are counter-clockwise");
}

#[tokio::test]
async fn coordinates_are_brought_into_the_system_of_the_layer() {
    let place = Folder::new();
    let maker = Maker::new();
    let sink = place.sink(&Options { crs: 32633, ..Options::default() }).unwrap();
    let (mut nowhere, mut ballpark) = (maker.point(1), maker.point(2));
    nowhere.feature.geometry.as_mut().unwrap().positions[0] = [200.0, 91.0, 0.0];
    ballpark.feature.crs = 4269;
    let written = sink.write(vec![feature(&maker, POINT, r#""properties":{}"#), nowhere, ballpark]).await.unwrap();
    assert_eq!(written[0], APPLIED);
    assert!(is_dead(&written[1], Class::Crs, "crs_domain"), "{written:?}");
    assert!(matches!(&written[2], Written::Dead(cause) if cause.class == Class::Crs), "{written:?}");
    let [bounds] = &place.all("SELECT round(min_x), round(max_y), srs_id FROM gpkg_contents")[..] else { panic!() };
    assert_eq!(bounds, "397602.0|5789904.0|32633");
    assert_eq!(place.sink(&Options { crs: 1, ..Options::default() }).err().unwrap().kind(), Kind::Invalid);
    assert_eq!(place.sink(&Options::default()).err().unwrap().kind(), Kind::Incompatible, "another system");
}

#[tokio::test]
async fn what_is_no_geopackage_is_refused_and_left_alone() {
    let place = Folder::new();
    let text = "a letter to somebody, longer than the header of a database would be".repeat(10);
    std::fs::write(place.path(), &text).unwrap();
    assert_eq!(place.sink(&Options::default()).err().unwrap().kind(), Kind::Incompatible);
    assert_eq!(std::fs::read_to_string(place.path()).unwrap(), text);
    std::fs::remove_file(place.path()).unwrap();
    place.read().execute_batch("CREATE TABLE accounts (id INTEGER)").unwrap();
    assert_eq!(place.sink(&Options::default()).err().unwrap().kind(), Kind::Incompatible);
    assert_eq!(place.all("SELECT name FROM sqlite_master"), ["accounts"]);
    for layer in ["", "gpkg_x", "sqlite_x", "a\nb"] {
        let options = Options { layer: Some(layer.to_owned()), ..Options::default() };
        assert_eq!(place.sink(&options).err().unwrap().kind(), Kind::Invalid, "{layer:?}");
    }
}

#[tokio::test]
async fn a_stop_leaves_one_file_and_a_start_from_nothing_is_a_geopackage() {
    let place = Folder::new();
    std::fs::write(place.path(), "").unwrap();
    let sink = place.sink(&Options::default()).unwrap();
    sink.write(vec![Maker::new().point(1)]).await.unwrap();
    sink.close().await.unwrap();
    let files = || std::fs::read_dir(place.folder.path()).unwrap().count();
    assert_eq!(files(), 1);
    // Closed is not the end of it.
    sink.write(vec![Maker::new().point(2)]).await.unwrap();
    drop(sink);
    assert_eq!(files(), 1);
    assert_eq!(place.all("PRAGMA application_id"), [0x4750_4B47.to_string()]);
    assert_eq!(place.all("PRAGMA user_version"), ["10300"]);
    assert_eq!(place.all("PRAGMA journal_mode"), ["delete"]);
    assert_eq!(place.all("SELECT srs_id FROM gpkg_spatial_ref_sys ORDER BY srs_id"), ["-1", "0", "4326"]);
}

/// A layer as another program may have made it.
const FOREIGN: &str = "
    CREATE TABLE zones (ogc_id INTEGER PRIMARY KEY NOT NULL, shape POLYGON, name TEXT(3) NOT NULL, code SMALLINT, note TEXT);
    INSERT INTO gpkg_contents (table_name, data_type, identifier, srs_id) VALUES ('zones', 'features', 'zones', 4326);
    INSERT INTO gpkg_geometry_columns VALUES ('zones', 'shape', 'POLYGON', 4326, 0, 0);
    CREATE TABLE log (fid INTEGER);
    CREATE TRIGGER watch AFTER INSERT ON zones BEGIN INSERT INTO log VALUES (NEW.ogc_id); END;
    CREATE TRIGGER picky BEFORE INSERT ON zones WHEN NEW.name = 'bad' BEGIN SELECT RAISE(ROLLBACK, 'not this one'); END;
";
const SQUARE: &str = r#"{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,0]]]}"#;

async fn foreign_layer() -> Folder {
    let place = Folder::new();
    let other = Options { layer: Some("other".into()), ..Options::default() };
    place.sink(&other).unwrap().close().await.unwrap();
    place.read().execute_batch(FOREIGN).unwrap();
    place
}

#[tokio::test]
async fn a_layer_of_another_program_is_written_by_its_own_rules() {
    let place = foreign_layer().await;
    let maker = Maker::new();
    let sink = place.sink(&Options::default()).unwrap();
    let batch = [
        feature(&maker, SQUARE, r#""properties":{"name":"ok","code":7,"new":1}"#),
        feature(&maker, POINT, r#""properties":{"name":"ok"}"#),
        feature(
            &maker,
            r#"{"type":"Polygon","coordinates":[[[0,0,1],[1,0,1],[1,1,1],[0,0,1]]]}"#,
            r#""properties":{"name":"z"}"#,
        ),
        feature(&maker, SQUARE, r#""properties":{"code":1}"#),
        feature(&maker, SQUARE, r#""properties":{"name":"long name","code":70000}"#),
        feature(&maker, SQUARE, r#""properties":{"name":"yes","code":70000}"#),
    ];
    for _ in 0..2 {
        let written = sink.write(batch.to_vec()).await.unwrap();
        assert_eq!(written[0], APPLIED);
        assert!(is_dead(&written[1], Class::Geometry, "geometry_type"), "{written:?}");
        assert!(is_dead(&written[2], Class::Geometry, "geometry_z"), "{written:?}");
        assert!(is_dead(&written[3], Class::Constraint, "constraint"), "{written:?}");
        assert!(is_dead(&written[4], Class::Constraint, "constraint"), "{written:?}");
        assert_eq!(written[5], APPLIED);
    }
    assert_eq!(
        place.all("SELECT ogc_id, name, code, new, geonce_other FROM zones"),
        ["1|ok|7|1|null", r#"2|yes|null|null|{"code":70000}"#]
    );
    assert_eq!(place.all("SELECT fid FROM log"), ["1", "2"], "its triggers run, ours beside them");
    assert_eq!(place.all("SELECT id FROM rtree_zones_shape"), ["1", "2"]);
}

#[tokio::test]
async fn an_event_whose_trigger_undoes_everything_is_dead_alone() {
    let place = foreign_layer().await;
    let maker = Maker::new();
    let sink = place.sink(&Options::default()).unwrap();
    let batch = ["a", "bad", "c"].map(|name| feature(&maker, SQUARE, &format!(r#""properties":{{"name":"{name}"}}"#)));
    let written = sink.write(batch.to_vec()).await.unwrap();
    assert_eq!((&written[0], &written[2]), (&APPLIED, &APPLIED));
    assert!(is_dead(&written[1], Class::Constraint, "constraint"), "{written:?}");
    assert_eq!(place.all("SELECT name FROM zones"), ["a", "c"]);
    let proofs = sink.proofs(batch.iter().map(|event| event.key).collect()).await.unwrap();
    assert_eq!(proofs, Some(vec![true, false, true]));
}

#[tokio::test]
async fn an_update_keeps_the_row_and_what_others_added_to_it() {
    let place = Folder::new();
    let maker = Maker::new();
    let sink = place.sink(&Options { mode: Mode::Upsert { arrival: false }, ..Options::default() }).unwrap();
    let at = |version: u32, geometry: &str, more: &str| {
        feature(&maker, geometry, &format!(r#""properties":{{"name":"a","version":{version}{more}}}"#))
    };
    sink.write(vec![at(1, POINT, r#","speed":5"#)]).await.unwrap();
    place.edit("ALTER TABLE zones ADD COLUMN remark TEXT; UPDATE zones SET remark = 'mine'");
    sink.write(vec![at(2, SQUARE, "")]).await.unwrap();
    assert_eq!(place.all("SELECT fid, version, speed, remark FROM zones"), ["1|2|null|mine"]);
    assert_eq!(place.all("SELECT id, minx, maxx, miny, maxy FROM rtree_zones_geom"), ["1|0.0|1.0|0.0|1.0"]);
    let mut nowhere = at(3, SQUARE, "");
    nowhere.feature.geometry = None;
    sink.write(vec![nowhere]).await.unwrap();
    assert_eq!(place.all("SELECT count(*) FROM rtree_zones_geom"), ["0"]);
    // Somebody deletes the row: an older version does not bring it back, a newer one does.
    place.edit("DELETE FROM zones");
    let written = sink.write(vec![at(2, POINT, r#","late":1"#)]).await.unwrap();
    assert_eq!(written, [Written::Done(Outcome::Stale)]);
    assert_eq!(place.all("SELECT count(*) FROM zones"), ["0"]);
    sink.write(vec![at(4, POINT, "")]).await.unwrap();
    assert_eq!(place.all("SELECT fid, version FROM zones"), ["2|4"]);
}

#[tokio::test]
async fn a_layer_that_was_taken_away_is_made_again_and_its_proofs_hold() {
    let place = Folder::new();
    let maker = Maker::new();
    let events: Vec<Outgoing> = (0..4).map(|n| maker.point(n)).collect();
    let sink = place.sink(&Options::default()).unwrap();
    sink.write(events[..2].to_vec()).await.unwrap();
    // Renamed as GDAL does it.
    place
        .read()
        .execute_batch(
            "PRAGMA foreign_keys = OFF; DROP TABLE rtree_zones_geom; DROP TRIGGER rtree_zones_geom_insert;
             DROP TRIGGER rtree_zones_geom_update1; DROP TRIGGER rtree_zones_geom_update2;
             DROP TRIGGER rtree_zones_geom_update3; DROP TRIGGER rtree_zones_geom_update4;
             DROP TRIGGER rtree_zones_geom_delete;
             DELETE FROM gpkg_extensions WHERE table_name = 'zones';
             ALTER TABLE zones RENAME TO old; UPDATE gpkg_contents SET table_name = 'old', identifier = 'old';
             UPDATE gpkg_geometry_columns SET table_name = 'old';",
        )
        .unwrap();
    assert!(sink.write(events.clone()).await.unwrap().iter().all(|written| *written == APPLIED));
    assert_eq!(place.all("SELECT count(*) FROM old UNION ALL SELECT count(*) FROM zones"), ["2", "2"]);
    assert_eq!(place.all("SELECT count(*) FROM rtree_zones_geom"), ["2"]);
}

#[tokio::test]
async fn a_file_that_was_taken_away_is_waited_for() {
    let place = Folder::new();
    let maker = Maker::new();
    let sink = place.sink(&Options::default()).unwrap();
    sink.write(vec![maker.point(1)]).await.unwrap();
    let away = place.folder.path().join("away.gpkg");
    std::fs::rename(place.path(), &away).unwrap();
    let error = sink.write(vec![maker.point(2)]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(!place.path().exists(), "a new file behind its owner's back would hide the loss");
    std::fs::rename(&away, place.path()).unwrap();
    assert_eq!(sink.write(vec![maker.point(2)]).await.unwrap(), [APPLIED]);
    assert_eq!(place.rows().await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_reader_that_holds_the_file_is_waited_for_and_costs_nothing() {
    let place = Folder::new();
    let maker = Maker::new();
    let sink = place.sink(&Options { timeout: Duration::from_millis(50), ..Options::default() }).unwrap();
    sink.write(vec![maker.point(1)]).await.unwrap();
    let reader = place.read();
    reader.execute_batch("BEGIN; SELECT count(*) FROM zones").unwrap();
    let wide = feature(&maker, POINT, r#""properties":{"made":"in vain"}"#);
    let error = sink.write(vec![wide.clone(), maker.point(2)]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    reader.execute_batch("COMMIT").unwrap();
    assert_eq!(place.all("SELECT count(*) FROM zones"), ["1"], "nothing half-written");
    assert_eq!(sink.write(vec![wide, maker.point(2)]).await.unwrap(), [APPLIED, APPLIED]);
    assert_eq!(place.all("SELECT count(*) FROM zones WHERE made IS NOT NULL"), ["1"]);
    assert_eq!(place.rows().await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_full_file_fails_the_batch_and_takes_the_next() {
    let place = Folder::new();
    let maker = Maker::new();
    let sink = place.sink(&Options::default()).unwrap();
    let long = "x".repeat(900_000);
    let big = feature(&maker, POINT, &format!(r#""properties":{{"text":"{long}"}}"#));
    let settings = super::settings("zones", &place.path(), &Options::default()).unwrap();
    drop(sink);
    let mut open = super::Open::new(&settings).unwrap();
    open.connection.pragma_update(None, "max_page_count", 100).unwrap();
    let error = super::write::batch(&settings, &mut open, vec![maker.point(1), big]).unwrap_err();
    assert_eq!(error.kind(), Kind::Resource);
    assert_eq!(place.rows().await.unwrap().len(), 0);
    assert_eq!(super::write::batch(&settings, &mut open, vec![maker.point(1)]).unwrap(), [APPLIED]);
    assert_eq!(place.rows().await.unwrap().len(), 1);
}

#[tokio::test]
async fn two_sinks_share_a_file_and_keep_their_proofs_apart() {
    let place = Folder::new();
    let maker = Maker::new();
    let other = Options { layer: Some("other zones".into()), ..Options::default() };
    let (one, two) = (place.sink(&Options::default()).unwrap(), place.sink(&other).unwrap());
    let batch: Vec<Outgoing> = (0..5).map(|n| maker.point(n)).collect();
    for sink in [&one, &two, &one] {
        assert!(sink.write(batch.clone()).await.unwrap().iter().all(|written| *written == APPLIED));
    }
    assert_eq!(place.all("SELECT count(*) FROM zones UNION ALL SELECT count(*) FROM \"other zones\""), ["5", "5"]);
    assert_eq!(two.applied(None, 10).await.unwrap().unwrap().len(), 5);
}
