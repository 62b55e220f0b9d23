//! Tables of other programs: what is refused, what is said, what is left alone.

use super::{APPLIED, POINT, SQUARE, Schema, all_applied, feature, is_dead};
use crate::error::Kind;
use crate::event::{Class, Outcome};
use crate::sink::conformance::{Maker, Place as _};
use crate::sink::{Columns, Isolation, Mode, Options, Outgoing, Written};
use geonce_key::Pointer;

#[tokio::test]
async fn a_new_layer_has_its_indexes_and_its_coordinate_system() {
    let schema = Schema::new();
    let sink = schema.sink(&Options { crs: 32633, ..Options::default() });
    assert_eq!(sink.check().await.unwrap(), Vec::<String>::new());
    assert_eq!(sink.place(), Some(format!("{}.zones", schema.name)));
    assert_eq!(
        schema.sql(&format!(
            "SELECT type, srid, f_geometry_column FROM geometry_columns WHERE f_table_schema = '{}'",
            schema.name
        )),
        "GEOMETRY|32633|geom"
    );
    let indexes = schema.sql(&format!(
        "SELECT string_agg(indexdef, ' ') FROM pg_indexes WHERE schemaname = '{}' AND tablename = 'zones'",
        schema.name
    ));
    assert!(indexes.contains("gist (geom)") && indexes.contains("(geonce_key)"), "{indexes}");
}

#[tokio::test]
async fn what_does_not_fit_is_said_in_words_and_left_alone() {
    for (table, code, words) in [
        ("CREATE TABLE zones (id serial PRIMARY KEY, geom geometry(Point, 3857))", 4326, "EPSG:3857"),
        ("CREATE TABLE zones (id serial PRIMARY KEY, geom geometry)", 4326, "EPSG:0"),
        ("CREATE TABLE zones (id serial PRIMARY KEY, geom geometry(PointM, 4326))", 4326, "measures"),
        ("CREATE TABLE zones (id serial PRIMARY KEY, name text)", 4326, "no geometry column"),
        ("CREATE TABLE zones (a geometry(Point, 4326), b geometry(Point, 4326))", 4326, "2 geometry columns"),
        ("CREATE VIEW zones AS SELECT 1 AS one", 4326, "no table"),
    ] {
        let schema = Schema::prepared(table);
        let error = schema.sink(&Options { crs: code, ..Options::default() }).check().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Incompatible, "{table}: {error}");
        assert!(error.to_string().contains(words) && error.hint_text().is_some(), "{table}: {error}");
        assert!(!schema.columns().contains("geonce"), "{table}");
    }
    let schema = Schema::new();
    for layer in ["", "geonce_applied", "a\nb", &"x".repeat(64)] {
        let options = Options { layer: Some(layer.to_owned()), ..Options::default() };
        assert_eq!(schema.try_sink(&options).err().unwrap().kind(), Kind::Invalid, "{layer:?}");
    }
    let options = Options { allow: vec!["10.0.0.0/8".into()], ..Options::default() };
    assert_eq!(schema.try_sink(&options).err().unwrap().kind(), Kind::Invalid);
    assert_eq!(schema.try_sink(&Options { crs: 1, ..Options::default() }).err().unwrap().kind(), Kind::Invalid);
    let options = Options { columns: Columns::Auto { max: 201 }, ..Options::default() };
    assert_eq!(schema.try_sink(&options).err().unwrap().kind(), Kind::Invalid);
    let options = Options { isolation: Isolation::Serializable, ..Options::default() };
    let file = crate::sink::open("zones", "gpkg:x.gpkg", &options, std::path::Path::new("/nowhere"));
    assert_eq!(file.err().unwrap().kind(), Kind::Invalid, "files have no isolation");
}

#[tokio::test]
async fn a_database_without_postgis_or_rights_is_refused_with_a_hint() {
    let schema = Schema::new();
    let postgres = geonce_services::Postgres::shared();
    let bare = Schema { url: postgres.url("postgres"), database: "postgres".into(), name: "public".into() };
    let error = bare.sink(&Options::default()).check().await.unwrap_err();
    assert_eq!((error.kind(), error.hint_text()), (Kind::Incompatible, Some("CREATE EXTENSION postgis, as its owner")));
    let name = &schema.name;
    schema.sink(&Options::default()).check().await.unwrap();
    schema.sql(&format!(
        "CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA \"{name}\" TO reader; GRANT SELECT ON ALL TABLES IN SCHEMA \"{name}\" TO reader"
    ));
    let reader = Schema { url: schema.url.replace("postgres@", "reader@"), ..schema };
    let error = reader.sink(&Options::default()).check().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Permission, "{error}");
    assert!(error.hint_text().is_some_and(|hint| hint.starts_with("GRANT INSERT")), "{error}");
}

/// A layer as another program may have made it.
const FOREIGN: &str = "
    CREATE TABLE zones (gid integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, shape geometry(MultiPolygon, 4326),
      name varchar(3) NOT NULL, code smallint, seen timestamptz, day date, price numeric(6, 2), tag uuid, extra jsonb,
      share real, made timestamptz NOT NULL DEFAULT now(), twice integer GENERATED ALWAYS AS (code * 2) STORED,
      mood text CHECK (mood <> 'bad'));
    CREATE FUNCTION picky() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF NEW.name = 'no' THEN RAISE EXCEPTION 'not this one'; END IF;
      IF NEW.name = 'odd' THEN PERFORM no_such_function(); END IF;
      RETURN NEW; END $$;
    CREATE TRIGGER picky BEFORE INSERT ON zones FOR EACH ROW EXECUTE FUNCTION picky();
";

fn zone(maker: &Maker, geometry: &str, properties: &str) -> Outgoing {
    feature(maker, geometry, &format!(r#""properties":{{{properties}}}"#))
}

#[tokio::test]
async fn a_table_of_another_program_is_written_by_its_own_rules() {
    let schema = Schema::prepared(FOREIGN);
    let maker = Maker::new();
    let sink = schema.sink(&Options::default());
    let notices = sink.check().await.unwrap();
    assert_eq!(notices.len(), 2, "{notices:?}");
    assert!(notices[0].contains("USING gist") && notices[1].contains("(geonce_key)"), "{notices:?}");
    let batch = [
        zone(&maker, SQUARE, r#""name":"a","code":7,"new":1,"seen":"2026-11-14T08:00:00+02:00","day":"2026-11-14""#),
        zone(&maker, POINT, r#""name":"b""#),
        zone(&maker, r#"{"type":"Polygon","coordinates":[[[0,0,1],[1,0,1],[1,1,1],[0,0,1]]]}"#, r#""name":"c""#),
        zone(&maker, SQUARE, r#""code":1"#),
        zone(&maker, SQUARE, r#""name":"long name""#),
        zone(&maker, SQUARE, r#""name":"d","code":70000,"seen":"soon","day":"2026-02-30","twice":5"#),
        zone(&maker, SQUARE, r#""name":"no""#),
        zone(
            &maker,
            SQUARE,
            r#""name":"e","price":12.5,"tag":"9f5f6d3a-3b1e-4d2a-9a55-1f2d3c4b5a69","extra":{"a":[1]},"share":0.5"#,
        ),
        zone(&maker, SQUARE, r#""name":"f","price":123456.5"#),
        zone(&maker, SQUARE, r#""name":"g","mood":"bad""#),
        zone(&maker, SQUARE, r#""name":"h","extra":"\u0000","share":1e20,"made":"2020-01-01T00:00:00Z""#),
    ];
    for _ in 0..2 {
        let written = sink.write(batch.to_vec()).await.unwrap();
        for applied in [0, 5, 7, 10] {
            assert_eq!(written[applied], APPLIED, "{applied}");
        }
        assert!(is_dead(&written[1], Class::Geometry, "geometry_type"), "{written:?}");
        assert!(is_dead(&written[2], Class::Geometry, "geometry_z"), "{written:?}");
        for refused in [3, 4, 6, 9] {
            assert!(is_dead(&written[refused], Class::Constraint, "constraint"), "{refused}: {written:?}");
        }
        assert!(is_dead(&written[8], Class::Schema, "value"), "{written:?}");
        let proofs = sink.proofs(batch.iter().map(|event| event.key).collect()).await.unwrap().unwrap();
        let done: Vec<bool> = written.iter().map(|written| *written == APPLIED).collect();
        assert_eq!(proofs, done, "dead is not decided");
    }
    assert_eq!(
        schema.lines(
            "SELECT name, code, new, seen AT TIME ZONE 'UTC', day, price, tag IS NULL, extra, share, made > '2026-01-01', geonce_other,
             ST_AsText(shape) FROM zones ORDER BY name"
        ),
        [
            "a|7|1|2026-11-14 06:00:00|2026-11-14||t|||t||MULTIPOLYGON(((0 0,1 0,1 1,0 0)))",
            r#"d||||||t|||t|{"code":70000,"seen":"soon","day":"2026-02-30","twice":5}|MULTIPOLYGON(((0 0,1 0,1 1,0 0)))"#,
            r#"e|||||12.50|f|{"a": [1]}|0.5|t||MULTIPOLYGON(((0 0,1 0,1 1,0 0)))"#,
            r#"h||||||t|||f|{"extra":"\u0000","share":100000000000000000000}|MULTIPOLYGON(((0 0,1 0,1 1,0 0)))"#,
        ]
    );
}

#[tokio::test]
async fn a_broken_trigger_costs_attempts_only_where_others_pass() {
    let schema = Schema::prepared(FOREIGN);
    let maker = Maker::new();
    let sink = schema.sink(&Options::default());
    let batch = ["x", "odd", "y"].map(|name| zone(&maker, SQUARE, &format!(r#""name":"{name}""#)));
    let written = sink.write(batch.to_vec()).await.unwrap();
    assert_eq!((&written[0], &written[2]), (&APPLIED, &APPLIED));
    assert!(matches!(&written[1], Written::Retry { counts: true, .. }), "{written:?}");
    // Where none passes the layer is to blame, and the events wait.
    schema.sql("CREATE OR REPLACE FUNCTION picky() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN gone.gone; END'");
    let more = ["p", "q"].map(|name| zone(&maker, SQUARE, &format!(r#""name":"{name}""#)));
    assert_eq!(sink.write(more.to_vec()).await.unwrap_err().kind(), Kind::Incompatible);
    assert_eq!(schema.lines("SELECT name FROM zones ORDER BY name"), ["x", "y"]);
}

#[tokio::test]
async fn deferred_constraints_and_policies_refuse_single_rows() {
    let schema = Schema::prepared(
        "CREATE TABLE owners (name text PRIMARY KEY); INSERT INTO owners VALUES ('me');
         CREATE TABLE zones (fid bigserial PRIMARY KEY, geom geometry, kind text, owner text
           REFERENCES owners DEFERRABLE INITIALLY DEFERRED, CHECK (ST_SRID(geom) = 4326));
         CREATE ROLE writer LOGIN; ALTER TABLE zones ENABLE ROW LEVEL SECURITY;
         CREATE POLICY open ON zones USING (true) WITH CHECK (kind = 'open')",
    );
    let (maker, name) = (Maker::new(), &schema.name);
    let sink = schema.sink(&Options::default());
    let at = |owner: &str, kind: &str| zone(&maker, POINT, &format!(r#""owner":"{owner}","kind":"{kind}""#));
    let written = sink.write(vec![at("me", "open"), at("nobody", "open")]).await.unwrap();
    assert_eq!(written[0], APPLIED);
    assert!(is_dead(&written[1], Class::Constraint, "constraint"), "{written:?}");
    schema.sql(&format!(
        "GRANT ALL ON SCHEMA \"{name}\" TO writer; GRANT ALL ON ALL TABLES IN SCHEMA \"{name}\" TO writer;
         GRANT ALL ON ALL SEQUENCES IN SCHEMA \"{name}\" TO writer"
    ));
    let writer = Schema {
        url: schema.url.replace("postgres@", "writer@"),
        name: name.clone(),
        database: schema.database.clone(),
    };
    let written = writer.sink(&Options::default()).write(vec![at("me", "hidden"), at("me", "open")]).await.unwrap();
    assert!(is_dead(&written[0], Class::Permission, "permission"), "{written:?}");
    assert_eq!(written[1], APPLIED);
    assert_eq!(schema.sql("SELECT count(*) FROM zones"), "1", "one key, one row");
}

#[tokio::test]
async fn an_update_keeps_the_row_and_what_others_added_to_it() {
    let schema = Schema::new();
    let maker = Maker::new();
    let sink = schema.sink(&Options { mode: Mode::Upsert { arrival: false }, ..Options::default() });
    let at = |version: u32, geometry: &str, more: &str| {
        zone(&maker, geometry, &format!(r#""name":"a","version":{version}{more}"#))
    };
    sink.write(vec![at(1, POINT, r#","speed":5,"Name":"other""#)]).await.unwrap();
    schema.sql("ALTER TABLE zones ADD COLUMN remark text; UPDATE zones SET remark = 'mine'");
    sink.check().await.unwrap();
    assert_eq!(sink.write(vec![at(2, SQUARE, r#","remark":null"#), at(3, SQUARE, "")]).await.unwrap(), [APPLIED; 2]);
    assert_eq!(schema.sql("SELECT fid, version, speed, remark, geonce_other FROM zones"), "1|3||mine|");
    let mut nowhere = at(4, SQUARE, "");
    nowhere.feature.geometry = None;
    sink.write(vec![nowhere]).await.unwrap();
    assert_eq!(schema.sql("SELECT geom IS NULL FROM zones"), "t");
    // Somebody copies the row: the copy is theirs. Then the row is deleted: an older version does not bring it back.
    schema.sql(
        "INSERT INTO zones (geonce_key, name) SELECT geonce_key, 'copy' FROM zones; DELETE FROM zones WHERE fid = 1",
    );
    assert_eq!(sink.write(vec![at(2, POINT, r#","late":1"#)]).await.unwrap(), [Written::Done(Outcome::Stale)]);
    assert_eq!(sink.write(vec![at(5, POINT, "")]).await.unwrap(), [APPLIED]);
    assert_eq!(schema.lines("SELECT fid, name, version FROM zones ORDER BY fid"), ["2|copy|", "3|a|5"]);
}

#[tokio::test]
async fn a_table_without_a_number_for_its_rows_is_updated_by_key() {
    let schema = Schema::prepared("CREATE TABLE zones (name text PRIMARY KEY, geom geometry(Point, 4326))");
    let maker = Maker::new();
    let sink = schema.sink(&Options { mode: Mode::Upsert { arrival: true }, ..Options::default() });
    assert!(sink.check().await.unwrap()[0].contains("primary key"));
    for x in 1..4 {
        let at = format!(r#"{{"type":"Point","coordinates":[{x},0]}}"#);
        let batch = ["a", "b"].map(|name| zone(&maker, &at, &format!(r#""name":"{name}""#)));
        assert!(all_applied(&sink.write(batch.to_vec()).await.unwrap()));
    }
    assert_eq!(schema.lines("SELECT name, ST_X(geom) FROM zones ORDER BY name"), ["a|3", "b|3"]);
}

#[tokio::test]
async fn a_layer_that_was_changed_or_taken_away_is_found_again_and_its_proofs_hold() {
    let schema = Schema::new();
    let maker = Maker::new();
    let events: Vec<Outgoing> = (0..6).map(|n| maker.point(n)).collect();
    let sink = schema.sink(&Options::default());
    sink.write(events[..2].to_vec()).await.unwrap();
    schema.sql("ALTER TABLE zones DROP COLUMN n");
    assert!(all_applied(&sink.write(events[2..4].to_vec()).await.unwrap()));
    assert_eq!(schema.sql("SELECT count(n) FROM zones"), "2");
    schema.sql("ALTER TABLE zones ALTER COLUMN name TYPE integer USING 0");
    assert!(all_applied(&sink.write(events[4..5].to_vec()).await.unwrap()));
    assert_eq!(schema.sql("SELECT geonce_other FROM zones WHERE geonce_other IS NOT NULL"), r#"{"name":"p4"}"#);
    schema.sql("ALTER TABLE zones RENAME TO old");
    assert!(all_applied(&sink.write(events.clone()).await.unwrap()));
    assert_eq!(schema.lines("SELECT count(*) FROM old UNION ALL SELECT count(*) FROM zones"), ["5", "1"]);
    assert_eq!(schema.rows().await.unwrap().len(), 1);
}

#[tokio::test]
async fn declared_columns_are_the_only_ones() {
    let schema = Schema::new();
    let maker = Maker::new();
    let declared = |list: &[(&str, &str)]| Options {
        columns: Columns::Declared(
            list.iter().map(|(name, at)| ((*name).to_owned(), Pointer::parse(at).unwrap())).collect(),
        ),
        ..Options::default()
    };
    for bad in [&[("fid", "/id")][..], &[("xmin", "/id")], &[("a", "/id"), ("A", "/properties/a")]] {
        assert_eq!(schema.try_sink(&declared(bad)).err().unwrap().kind(), Kind::Invalid, "{bad:?}");
    }
    let sink = schema.sink(&declared(&[
        ("number", "/id"),
        ("street", "/properties/address/street"),
        ("b", "/properties/list/1"),
    ]));
    let batch = [
        r#""id":5,"properties":{"address":{"street":"Rue","no":1},"list":[1,2.5],"other":1}"#,
        r#""id":"x","properties":{"address":"none"}"#,
    ]
    .map(|members| feature(&maker, POINT, members));
    assert!(all_applied(&sink.write(batch.to_vec()).await.unwrap()));
    assert_eq!(
        schema.lines("SELECT number, street, b, geonce_other FROM zones ORDER BY fid"),
        ["5|Rue|2.5|", r#"|||{"number":"x"}"#]
    );
    assert_eq!(schema.columns(), "number bigint, street text, b double precision, geonce_other json");
}
