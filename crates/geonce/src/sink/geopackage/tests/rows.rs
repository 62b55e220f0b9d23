//! Rows of entities that are deleted, and rows that take other events in.

use super::{APPLIED, Folder, POINT, SQUARE, feature, foreign_layer};
use crate::sink::conformance::Maker;
use crate::sink::{Merge, Mode, Options};

#[tokio::test]
async fn only_the_row_of_a_deleted_entity_goes_whoever_keeps_the_index() {
    let place = foreign_layer().await;
    place.read().execute_batch("CREATE TABLE gone (fid INTEGER); CREATE TRIGGER note AFTER DELETE ON zones BEGIN INSERT INTO gone VALUES (OLD.ogc_id); END").unwrap();
    let maker = Maker::new();
    let sink = place.sink(&Options { mode: Mode::Upsert { arrival: false }, ..Options::default() }).unwrap();
    let at = |name: &str, version: u32, geometry: &str, more: &str| {
        feature(&maker, geometry, &format!(r#""properties":{{"name":"{name}","version":{version}{more}}}"#))
    };
    sink.write(["a", "b", "c"].map(|name| at(name, 1, SQUARE, "")).to_vec()).await.unwrap();
    place.edit(
        "INSERT INTO zones (shape, name, geonce_key) SELECT shape, 'cpy', geonce_key FROM zones WHERE name = 'a';
         UPDATE zones SET geonce_key = 'mine' WHERE name = 'b'",
    );
    // A geometry of a type that the layer does not take, and properties that it has no columns for: nothing of it is written.
    let deletions = ["a", "b", "c"].map(|name| at(name, 2, POINT, r#","deleted":true,"why":"sold""#));
    assert_eq!(sink.write(deletions.to_vec()).await.unwrap(), [APPLIED, APPLIED, APPLIED]);
    assert_eq!(place.all("SELECT name FROM zones ORDER BY name"), ["b", "cpy"], "what is somebody's is left alone");
    assert_eq!(place.all("SELECT id FROM rtree_zones_shape ORDER BY id"), ["2", "4"]);
    assert_eq!(place.all("SELECT fid FROM gone ORDER BY fid"), ["1", "3"], "its triggers run");
    assert_eq!(place.all("SELECT count(*) FROM pragma_table_info('zones') WHERE name = 'why'"), ["0"]);
    sink.write(vec![at("a", 3, SQUARE, "")]).await.unwrap();
    assert_eq!(place.all("SELECT ogc_id FROM zones WHERE name = 'a'"), ["5"], "a new row");
}

#[tokio::test]
async fn where_events_went_is_kept_in_a_table_that_is_no_layer() {
    let place = Folder::new();
    let maker = Maker::new();
    let sink = place.sink(&Options::default()).unwrap();
    let tables = "SELECT count(*) FROM sqlite_master WHERE name = 'gpkg_geonce_merged'";
    let first = maker.point(1);
    sink.write(vec![first.clone()]).await.unwrap();
    assert_eq!(place.all(tables), ["0"], "not before it is needed");
    let mut line = feature(&maker, r#"{"type":"LineString","coordinates":[[5,5],[6,7]]}"#, r#""properties":{"n":2}"#);
    line.merge = Some(Merge { into: first.key.key(), mean: true });
    assert_eq!(sink.write(vec![line]).await.unwrap(), [APPLIED]);
    assert_eq!(place.all(tables), ["1"]);
    let registered = "SELECT extension_name, scope FROM gpkg_extensions WHERE table_name = 'gpkg_geonce_merged'";
    assert_eq!(place.all(registered), ["geonce_once|write-only"]);
    // A line has no mean: it takes the place of the point, and the extent of the layer knows.
    assert_eq!(place.all("SELECT minx, maxx, miny, maxy FROM rtree_zones_geom"), ["5.0|6.0|5.0|7.0"]);
    assert_eq!(place.all("SELECT max_x, max_y FROM gpkg_contents"), ["6.0|7.0"]);
    assert_eq!(place.all("SELECT n, name FROM zones"), ["2|null"]);
    assert_eq!(place.all("PRAGMA integrity_check"), ["ok"]);
}
