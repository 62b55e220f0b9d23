//! What only a file can do wrong: layers of other programs, other databases, a file that is in use.

use super::{Place, finish, load, piece, pieces, plan, shaped};
use crate::error::Kind;
use crate::load::target::Mode;
use geonce_key::Property;
use std::time::Duration;

#[tokio::test]
async fn rows_that_are_refused_do_not_lose_their_neighbours() {
    let place = Place::file();
    load(&place, &plan("a", Mode::Append), pieces(1..3)).await;
    place.edit(
        "CREATE TABLE rule (name TEXT); CREATE TRIGGER small BEFORE INSERT ON zones WHEN NEW.size > 100
         BEGIN SELECT RAISE(ABORT, 'too large'); END",
    );
    for (name, mode) in [("b", Mode::Append), ("c", Mode::Upsert { arrival: true })] {
        let mut features = pieces(10..30);
        features[5].values[1] = Property::Integer(101);
        let (tally, refused) = load(&place, &plan(name, mode), features).await;
        assert_eq!(refused.iter().map(|one| one.number).collect::<Vec<_>>(), [15]);
        assert!(refused[0].cause.message.contains("too large"));
        assert_eq!(tally.inserted, 19);
    }
    assert_eq!(place.count("zones"), 40);
    assert_eq!(place.ask("SELECT count(*), rtreecheck('rtree_zones_geom') FROM rtree_zones_geom"), ["40|ok"]);
}

#[tokio::test]
async fn a_layer_of_gdal_is_filled_and_replaced() {
    let place = Place::file();
    let Place::File(folder) = &place else { panic!("not a file") };
    let source = folder.path().join("source.geojson");
    std::fs::write(
        &source,
        r#"{"type":"FeatureCollection","features":[{"type":"Feature","properties":{"Name":"first","seen":"2024-01-02T03:04:05Z"},
        "geometry":{"type":"MultiPolygon","coordinates":[[[[0,0],[1,0],[1,1],[0,0]]]]}}]}"#,
    )
    .unwrap();
    let path = folder.path().join("layers.gpkg");
    let made = std::process::Command::new("ogr2ogr").arg(&path).arg(&source).args(["-nln", "zones"]).status().unwrap();
    assert!(made.success());
    let features = vec![shaped(1, "POLYGON((0 0,4 0,4 4,0 0))"), piece(2)];
    let (tally, refused) = load(&place, &plan("a", Mode::Append), features).await;
    assert_eq!((tally.inserted, refused[0].cause.code.as_str()), (1, "geometry_type"));
    assert_eq!(place.ask("SELECT Name, size FROM zones"), ["first|", "zone 1|1"]);
    place.edit("CREATE VIEW shown AS SELECT size FROM zones");
    load(&place, &plan("b", Mode::Replace), pieces(1..101)).await;
    assert_eq!(place.count("shown"), 100);
    let told = std::process::Command::new("ogrinfo").args(["-so", "-al"]).arg(&path).output().unwrap();
    let told = String::from_utf8(told.stdout).unwrap() + &String::from_utf8(told.stderr).unwrap();
    assert!(told.contains("Feature Count: 100") && told.contains("Extent: (1"), "{told}");
    assert!(!told.contains("ERROR") && !told.contains("Warning"), "{told}");
    assert!(!told.contains("staging"), "{told}");
}

#[tokio::test]
async fn another_database_and_a_file_in_use_are_told() {
    let place = Place::file();
    let Place::File(folder) = &place else { panic!("not a file") };
    let path = folder.path().join("layers.gpkg");
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE mine (n)").unwrap();
    assert_eq!(place.open(&plan("a", Mode::Append)).await.err().unwrap().kind(), Kind::Incompatible);
    assert_eq!(place.ask("SELECT name FROM sqlite_master"), ["mine"]);
    std::fs::remove_file(&path).unwrap();
    let mut first = place.open(&plan("a", Mode::Append)).await.unwrap();
    let mut other = plan("b", Mode::Append);
    other.timeout = Duration::from_millis(100);
    let error = place.open(&other).await.err().unwrap();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    assert!(error.hint_text().is_some());
    first.write(pieces(1..11)).await.unwrap();
    finish(&mut first, 10).await;
    std::fs::write(&path, "not a database at all, but long enough to be looked at by anybody").unwrap();
    assert!(place.open(&plan("c", Mode::Append)).await.is_err());
}
