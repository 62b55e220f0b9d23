//! What only a database can do wrong: tables of other programs, rows that it refuses, connections that end.

use super::{Place, field, finish, load, piece, pieces, plan, renamed, shaped};
use crate::error::Kind;
use crate::load::target::{Mode, Tally};
use geonce_files::FieldKind;
use geonce_key::Property;

/// A table as `ogr2ogr` makes it, with what its owner thinks of it.
const FOREIGN: &str = "CREATE TABLE zones (ogc_fid serial PRIMARY KEY, wkb_geometry geometry(MultiPolygon, 4326),
    name varchar(10) NOT NULL, size integer CHECK (size < 100), price numeric(12, 3), seen timestamptz, day date,
    state text NOT NULL DEFAULT 'new'); CREATE INDEX ON zones USING gist (wkb_geometry);";

fn square(number: u64) -> super::Piece {
    shaped(number, "POLYGON((0 0,1 0,1 1,0 1,0 0))")
}

fn foreign() -> Place {
    let place = Place::schema();
    let Place::Schema { name, .. } = &place else { panic!("not a schema") };
    place.edit(&format!("CREATE SCHEMA \"{name}\"; {FOREIGN}"));
    place
}

#[tokio::test]
async fn a_table_of_another_program_is_filled_as_it_is() {
    let place = foreign();
    let mut plan = plan("a", Mode::Append);
    let kinds = [FieldKind::Text, FieldKind::Integer, FieldKind::Real, FieldKind::DateTime, FieldKind::Date];
    let names = ["NAME", "size", "price", "seen", "day"];
    plan.fields = names.iter().zip(kinds).map(|(name, kind)| field(name, kind)).collect();
    plan.fields.extend([field("state", FieldKind::Text), field("more", FieldKind::Text)]);
    let text = |text: &str| Property::Text(text.to_owned());
    let values = |price: f64| {
        vec![
            text("zone"),
            Property::Integer(7),
            Property::Real(price),
            text("2024-05-01T10:20:30.1234567Z"),
            text("2000-01-01"),
            Property::Null,
            text("more"),
        ]
    };
    let prices = [0.0, -1.5, 12_345.678, 0.000_4, 99_999_999.0, 1e-7, -0.062_5];
    let features = (1..).zip(prices).map(|(number, price)| super::Piece { values: values(price), ..square(number) });
    let (tally, refused) = load(&place, &plan, features.collect()).await;
    assert_eq!((tally.inserted, refused.len()), (7, 0), "{refused:?}");
    let rows = place.ask(
        "SELECT name, size, price, seen AT TIME ZONE 'UTC', day, state, more, ST_AsText(wkb_geometry) FROM zones ORDER BY ogc_fid",
    );
    let shape = "MULTIPOLYGON(((0 0,1 0,1 1,0 1,0 0)))";
    let prices: Vec<&str> = rows.iter().map(|row| row.split('|').nth(2).unwrap()).collect();
    assert_eq!(prices, ["0.000", "-1.500", "12345.678", "0.000", "99999999.000", "0.000", "-0.063"]);
    assert_eq!(rows[2], format!("zone|7|12345.678|2024-05-01 10:20:30.123457|2000-01-01|new|more|{shape}"));
}

#[tokio::test]
async fn rows_that_are_refused_do_not_lose_their_neighbours() {
    for mode in [Mode::Append, Mode::Upsert { arrival: true }, Mode::Replace] {
        let place = foreign();
        place.edit("INSERT INTO zones (name) VALUES ('old'); CREATE VIEW seen AS SELECT * FROM zones");
        let mut features: Vec<_> = (1..=60).map(square).collect();
        features[9].values[0] = Property::Null;
        features[19].values[1] = Property::Integer(100);
        features[29] = piece(30);
        features[39].values[0] = Property::Text("much too long for it".to_owned());
        let (tally, refused) = load(&place, &plan("a", mode), features).await;
        let told: Vec<(u64, &str)> = refused.iter().map(|one| (one.number, one.cause.code.as_str())).collect();
        // Too long a text fits no column, so that there is no name; and one there must be.
        let wanted = [(10, "constraint"), (20, "constraint"), (30, "geometry_type"), (40, "constraint")];
        assert_eq!(told, wanted, "{mode:?}");
        assert_eq!(tally.inserted, 56, "{mode:?}");
        let before = u64::from(mode != Mode::Replace);
        assert_eq!(place.count("seen"), 56 + before, "{mode:?}");
    }
}

#[tokio::test]
async fn whatever_hangs_on_a_table_is_there_after_it_was_replaced() {
    let place = Place::schema();
    load(&place, &plan("a", Mode::Append), pieces(1..11)).await;
    place.edit(
        "CREATE ROLE load_reader; GRANT SELECT ON zones TO load_reader; GRANT UPDATE (name) ON zones TO PUBLIC;
         COMMENT ON TABLE zones IS 'it''s ours'; COMMENT ON COLUMN zones.name IS 'what \\ it is called'",
    );
    load(&place, &plan("b", Mode::Replace), pieces(1..21)).await;
    let rights = "SELECT has_table_privilege('load_reader', 'zones', 'SELECT'), has_column_privilege('load_reader', 'zones', 'name', 'UPDATE'),
                  obj_description('zones'::regclass), col_description('zones'::regclass, 5)";
    assert_eq!(place.ask(rights), ["t|t|it's ours|what \\ it is called"]);
    // A view keeps its table: that is filled anew.
    place.edit("CREATE VIEW shown AS SELECT name FROM zones; ALTER TABLE zones ADD remark text DEFAULT 'none'");
    let oid = place.ask("SELECT 'zones'::regclass::oid");
    load(&place, &plan("c", Mode::Replace), pieces(1..31)).await;
    assert_eq!(place.ask("SELECT 'zones'::regclass::oid"), oid);
    assert_eq!(place.count("shown"), 30);
    assert_eq!(place.ask("SELECT DISTINCT remark FROM zones"), ["none"]);
    // And its entities are found in their rows.
    let (tally, _) = load(&place, &plan("d", Mode::Upsert { arrival: true }), vec![renamed(3, 1, "changed")]).await;
    assert_eq!((tally.updated, place.count("zones")), (1, 30));
    assert_eq!(place.ask("SELECT name FROM zones WHERE size = 3"), ["changed"]);
    assert!(!place.has("%staging%"));
}

#[tokio::test]
async fn a_connection_that_ends_takes_its_rows_along() {
    for pooled in [false, true] {
        let place = if pooled { Place::pooled() } else { Place::schema() };
        let this = plan("a", Mode::Append);
        let mut target = place.open(&this).await.unwrap();
        target.write(pieces(1..101)).await.unwrap();
        target.commit(100, "one".to_owned()).await.unwrap();
        target.write(pieces(101..201)).await.unwrap();
        let Place::Schema { name, .. } = &place else { panic!("not a schema") };
        place.ask(&format!(
            "SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
             JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE c.relname = 'zones' AND n.nspname = '{name}' AND l.mode = 'RowExclusiveLock'"
        ));
        let error = target.write(pieces(201..301)).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
        assert!(target.write(pieces(201..301)).await.is_err());
        let mut target = place.open(&this).await.unwrap();
        assert_eq!((target.standing().features, target.standing().notes.as_str()), (100, "one"));
        target.write(pieces(101..301)).await.unwrap();
        assert_eq!(finish(&mut target, 300).await, Tally { inserted: 300, ..Tally::default() });
        assert_eq!(place.ask("SELECT count(*), count(DISTINCT size) FROM zones"), ["300|300"]);
    }
}

#[tokio::test]
async fn a_gateway_and_a_load_that_wait_for_each_other_both_go_on() {
    let place = Place::schema();
    let mode = Mode::Upsert { arrival: false };
    load(&place, &plan("a", mode), vec![renamed(1, 1, "one"), renamed(2, 1, "one")]).await;
    let mut target = place.open(&plan("b", mode)).await.unwrap();
    target.write(vec![renamed(1, 2, "load")]).await.unwrap();
    let Place::Schema { database, name, .. } = &place else { panic!("not a schema") };
    let (database, name) = (database.clone(), name.clone());
    // Somebody has the second entity, and wants the first for a while; it is not for them to notice the circle.
    let other = tokio::task::spawn_blocking(move || {
        let entity = |number| format!("(SELECT entity FROM geonce_entity WHERE fid = {number})");
        let lock = |number| format!("SELECT 1 FROM geonce_entity WHERE entity = {} FOR UPDATE;", entity(number));
        let sql = format!(
            "SET search_path = \"{name}\"; BEGIN; {} SET LOCAL lock_timeout = 4000; SET LOCAL deadlock_timeout = 60000;
             DO $$ BEGIN PERFORM 1 FROM geonce_entity WHERE entity = {} FOR UPDATE; EXCEPTION WHEN lock_not_available THEN END $$; COMMIT",
            lock(2),
            entity(1)
        );
        geonce_services::Postgres::shared().sql(&database, &sql)
    });
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'";
    while place.ask(waits) == ["0"] {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    target.write(vec![renamed(2, 2, "load")]).await.unwrap();
    assert_eq!(finish(&mut target, 2).await, Tally { updated: 2, ..Tally::default() });
    other.await.unwrap();
    assert_eq!(place.ask("SELECT name FROM zones ORDER BY fid"), ["load", "load"]);
}
