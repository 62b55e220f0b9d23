//! Built from "Geometry objects" and "Common data types" of the `ArcGIS` REST API.

use super::{NO_HEADERS, Preset, Rig, feature, read, refusal};
use serde_json::{Value, json};

fn geometry(geometry: &str) -> Value {
    feature(&Preset::Arcgis, &NO_HEADERS, &format!(r#"{{"attributes":{{}},"geometry":{geometry}}}"#))["geometry"]
        .clone()
}

#[test]
fn each_type_of_geometry_is_read() {
    for (esri, expected) in [
        (r#"{"x":-118.15,"y":33.80}"#, json!({"type":"Point","coordinates":[-118.15,33.8]})),
        (r#"{"x":1,"y":2,"z":3}"#, json!({"type":"Point","coordinates":[1.0,2.0,3.0]})),
        (r#"{"x":1,"y":2,"z":null,"m":null}"#, json!({"type":"Point","coordinates":[1.0,2.0]})),
        (r#"{"x":null,"y":null}"#, Value::Null),
        (r#"{"x":"NaN","y":"NaN"}"#, Value::Null),
        (r#"{"points":[[1,2],[3,4]]}"#, json!({"type":"MultiPoint","coordinates":[[1.0,2.0],[3.0,4.0]]})),
        (r#"{"hasZ":true,"points":[[1,2,5]]}"#, json!({"type":"MultiPoint","coordinates":[[1.0,2.0,5.0]]})),
        (r#"{"paths":[[[1,2],[3,4]]]}"#, json!({"type":"LineString","coordinates":[[1.0,2.0],[3.0,4.0]]})),
        (
            r#"{"paths":[[[1,2],[3,4]],[[5,6],[7,8]]]}"#,
            json!({"type":"MultiLineString","coordinates":[[[1.0,2.0],[3.0,4.0]],[[5.0,6.0],[7.0,8.0]]]}),
        ),
        (r#"{"paths":[]}"#, Value::Null),
        (r#"{"rings":[]}"#, Value::Null),
        (
            r#"{"rings":[[[0,0],[0,4],[4,4],[4,0],[0,0]]]}"#,
            json!({"type":"Polygon","coordinates":[[[0.0,0.0],[0.0,4.0],[4.0,4.0],[4.0,0.0],[0.0,0.0]]]}),
        ),
        (
            r#"{"xmin":0,"ymin":1,"xmax":2,"ymax":3}"#,
            json!({"type":"Polygon","coordinates":[[[0.0,1.0],[2.0,1.0],[2.0,3.0],[0.0,3.0],[0.0,1.0]]]}),
        ),
    ] {
        assert_eq!(geometry(esri), expected, "{esri}");
    }
}

#[test]
fn holes_find_their_shells_whatever_the_order_of_rings() {
    // Two shells (clockwise) with a hole each (counter-clockwise), the holes before and between them.
    let shell = |x: i32| format!("[[{x},0],[{x},9],[{0},9],[{0},0],[{x},0]]", x + 9);
    let hole = |x: i32| format!("[[{0},2],[{1},2],[{1},4],[{0},4],[{0},2]]", x + 2, x + 4);
    let rings = format!("{{\"rings\":[{},{},{},{}]}}", hole(100), shell(0), hole(0), shell(100));
    let found = geometry(&rings);
    assert_eq!(found["type"], "MultiPolygon");
    let parts = found["coordinates"].as_array().unwrap();
    assert_eq!(parts.iter().map(|part| part.as_array().unwrap().len()).collect::<Vec<_>>(), [2, 2]);
    for part in parts {
        let of = if part[0][0][0] == json!(0.0) { json!(2.0) } else { json!(102.0) };
        assert_eq!(part[1][0][0], of, "the hole is in its own shell: {found}");
    }
}

#[tokio::test]
async fn rings_in_another_order_are_the_same_event() {
    let body = |rings: &str| {
        format!(r#"{{"attributes":{{"id":1}},"geometry":{{"rings":[{rings}],"spatialReference":{{"wkid":4326}}}}}}"#)
    };
    let (shell, hole) = ("[[0,0],[0,9],[9,9],[9,0],[0,0]]", "[[2,2],[4,2],[4,4],[2,4],[2,2]]");
    let rotated = "[[9,9],[9,0],[0,0],[0,9],[9,9]]";
    let rig = Rig::new(Preset::Arcgis);
    rig.same(&[
        (&[], &body(&format!("{shell},{hole}"))),
        (&[], &body(&format!("{hole},{shell}"))),
        (&[], &body(&format!("{rotated},{hole}"))),
    ])
    .await;
    rig.distinct(&[(&[], &body(shell))]).await;
}

#[test]
fn coordinate_systems_are_taken_by_their_current_number() {
    let crs = |reference: &str| {
        let body = format!(r#"{{"geometry":{{"x":1,"y":2,"spatialReference":{reference}}}}}"#);
        read(&Preset::Arcgis, &NO_HEADERS, &body).map(|found| found.payloads[0].read.clone().unwrap().crs)
    };
    for (reference, expected) in [
        (r#"{"wkid":4326}"#, Some(4326)),
        (r#"{"wkid":102100,"latestWkid":3857}"#, Some(3857)),
        (r#"{"wkid":102100}"#, Some(3857)),
        (r#"{"wkid":102113}"#, Some(3857)),
        (r#"{"wkid":25832,"vcsWkid":5703}"#, Some(25832)),
        ("{}", None),
        ("null", None),
    ] {
        assert_eq!(crs(reference).unwrap(), expected, "{reference}");
    }
}

#[tokio::test]
async fn the_same_place_in_two_systems_is_the_same_event() {
    let rig = Rig::new(Preset::Arcgis);
    let body = |geometry: &str| format!(r#"{{"attributes":{{"id":1}},"geometry":{geometry}}}"#);
    rig.same(&[
        (&[], &body(r#"{"x":13.4,"y":52.5,"spatialReference":{"wkid":4326}}"#)),
        (&[], &body(r#"{"x":1491681.1766298658,"y":6891041.723891583,"spatialReference":{"wkid":102100}}"#)),
    ])
    .await;
    let unknown = body(r#"{"x":1,"y":2,"spatialReference":{"wkid":102999}}"#);
    assert_eq!(rig.refused(&[], &unknown).await.0, "crs_unknown");
}

#[test]
fn what_would_have_to_be_guessed_is_refused() {
    for (geometry, code, pointer) in [
        (r#"{"paths":[[[1,2,9],[3,4,9]]]}"#, "geojson_measure", "/geometry/paths/0/0"),
        (r#"{"hasM":true,"paths":[[[1,2,9],[3,4,9]]]}"#, "geojson_measure", "/geometry/paths"),
        (r#"{"hasZ":true,"paths":[[[1,2],[3,4]]]}"#, "geojson_position", "/geometry/paths/0/0"),
        (r#"{"hasZ":true,"hasM":true,"points":[[1,2,3,4]]}"#, "geojson_measure", "/geometry/points"),
        (r#"{"x":1,"y":2,"m":3}"#, "geojson_measure", "/geometry/m"),
        (r#"{"x":1}"#, "preset_value", "/geometry/y"),
        (r#"{"curveRings":[]}"#, "preset_value", "/geometry/curveRings"),
        (r#"{"curvePaths":[]}"#, "preset_value", "/geometry/curvePaths"),
        (r#"{"rings":[[[0,0],[0,"a"]]]}"#, "preset_value", "/geometry/rings"),
        (r#"{"rings":[[]]}"#, "geojson_empty", "/geometry/rings/0"),
        (r#"{"rings":[[[1e300,0],[0,1],[1,1],[1e300,0]]]}"#, "geojson_bounds", "/geometry/rings/0"),
        (r#"{"xmin":0,"ymin":1,"xmax":2}"#, "preset_value", "/geometry/ymax"),
        (r#"{"where":"here"}"#, "preset_value", "/geometry"),
        ("[1,2]", "preset_value", "/geometry"),
        (r#"{"x":1,"y":2,"spatialReference":{"wkt":"GEOGCS[]"}}"#, "crs_ambiguous", "/geometry/spatialReference/wkt"),
        (r#"{"x":1,"y":2,"spatialReference":{"wkid":-4}}"#, "crs_ambiguous", "/geometry/spatialReference/wkid"),
        (r#"{"x":1,"y":2,"spatialReference":4326}"#, "crs_ambiguous", "/geometry/spatialReference"),
    ] {
        let body = format!(r#"{{"attributes":{{}},"geometry":{geometry}}}"#);
        assert_eq!(refusal(&Preset::Arcgis, &NO_HEADERS, &body), (code.to_owned(), pointer.to_owned()), "{geometry}");
    }
}

#[tokio::test]
async fn a_place_off_the_earth_is_refused_where_the_sender_wrote_it() {
    let rig = Rig::new(Preset::Arcgis);
    let body = r#"[{"attributes":{},"geometry":{"x":200,"y":2}}]"#;
    assert_eq!(rig.refused(&[], body).await, ("geojson_bounds".to_owned(), "/0/geometry".to_owned()));
    let open = r#"{"attributes":{},"geometry":{"rings":[[[0,0],[0,4],[4,4],[4,0]]]}}"#;
    assert_eq!(rig.refused(&[], open).await, ("geojson_ring_unclosed".to_owned(), "/geometry".to_owned()));
}
