//! What documents and sequences come to.

use super::FIELDS_MAX;
use crate::{Declared, Error, Field, FieldKind, File, Format, Item, Options, Row};
use geonce_key::{Limits, Property, wkt};
use std::fmt::Write as _;
use std::fs;

fn opened(name: &str, text: &[u8]) -> Result<File, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    crate::open(&path, &Options::default())
}

fn items(file: &mut File) -> Vec<Item> {
    std::iter::from_fn(|| file.rows.next().unwrap()).collect()
}

fn rows(file: &mut File) -> Vec<Row> {
    let row = |item| match item {
        Item::Row(row) => row,
        Item::Bad(bad) => panic!("{bad:?}"),
    };
    items(file).into_iter().map(row).collect()
}

fn field(name: &str, kind: FieldKind) -> Field {
    Field { name: name.to_owned(), kind }
}

const POINT: &str = r#"{"type":"Point","coordinates":[13.4,52.5]}"#;

fn feature(properties: &str) -> String {
    format!(r#"{{"type":"Feature","geometry":{POINT},"properties":{properties}}}"#)
}

fn collection(features: &[String]) -> String {
    format!(r#"{{"type":"FeatureCollection","features":[{}]}}"#, features.join(","))
}

#[test]
fn fields_and_their_kinds_come_from_all_features() {
    let text = collection(&[
        feature(r#"{"a":1,"b":true,"c":null,"d":"x","e":1}"#),
        feature(r#"{"a":1.5,"b":false,"d":null,"e":"x","f":[1],"g":99999999999999999999}"#),
    ]);
    let mut file = opened("a.geojson", text.as_bytes()).unwrap();
    assert_eq!((file.format, &file.layer.crs, file.layer.features), (Format::GeoJson, &Declared::Code(4326), Some(2)));
    let kinds = [
        ("a", FieldKind::Real),
        ("b", FieldKind::Boolean),
        ("c", FieldKind::Text),
        ("d", FieldKind::Text),
        ("e", FieldKind::Json),
        ("f", FieldKind::Json),
        ("g", FieldKind::Json),
    ];
    assert_eq!(file.layer.fields, kinds.map(|(name, kind)| field(name, kind)));
    let rows = rows(&mut file);
    assert_eq!(rows[0].values[0], Property::Integer(1));
    assert_eq!(rows[0].values[5], Property::Null);
    assert_eq!(rows[1].values[0], Property::Real(1.5));
    assert_eq!(rows[1].values[6], Property::Json("99999999999999999999".to_owned()));
    assert_eq!(wkt::write(rows[1].geometry.as_ref().unwrap()), "POINT (13.4 52.5)");
}

#[test]
fn a_bad_feature_is_told_with_its_bytes_and_its_neighbours_are_read() {
    let broken = r#"{"type":"Feature","geometry":{"type":"Point","coordinates":["x",1]},"properties":{}}"#;
    let text = collection(&[feature(r#"{"a":1}"#), broken.to_owned(), feature(r#"{"a":3}"#)]);
    let mut file = opened("a.geojson", text.as_bytes()).unwrap();
    let items = items(&mut file);
    let Item::Bad(bad) = &items[1] else { panic!("{items:?}") };
    assert_eq!((bad.number, bad.code, bad.bytes.as_slice()), (2, "geojson_position", broken.as_bytes()));
    let Item::Row(row) = &items[2] else { panic!("{items:?}") };
    assert_eq!((row.number, &row.values[0], items.len()), (3, &Property::Integer(3), 3));
}

#[test]
fn a_document_that_was_cut_short_is_refused_before_its_first_row() {
    let text = collection(&[feature(r#"{"a":1}"#), feature(r#"{"a":2}"#), feature(r#"{"a":3}"#)]);
    for length in [text.len() - 1, text.len() - 2, text.len() - 3, text.len() / 2, 60] {
        let Err(error) = opened("a.geojson", &text.as_bytes()[..length]) else { panic!("{length}") };
        assert_eq!(error.code(), "json_incomplete", "{length}: {error}");
        assert!(error.message().contains("a.geojson"), "{error}");
    }
    let lines = format!("{}\n{}", feature(r#"{"a":1}"#), feature(r#"{"a":2}"#));
    let Err(error) = opened("a.ndjson", &lines.as_bytes()[..lines.len() - 5]) else { panic!() };
    assert_eq!(error.code(), "json_incomplete");
}

#[test]
fn a_coordinate_system_counts_wherever_it_is_declared() {
    let crs = r#""crs":{"type":"name","properties":{"name":"urn:ogc:def:crs:EPSG::25832"}}"#;
    let list = feature(r#"{"a":1}"#);
    for text in [
        format!(r#"{{"type":"FeatureCollection",{crs},"features":[{list}]}}"#),
        format!(r#"{{"type":"FeatureCollection","features":[{list}],{crs}}}"#),
        list.replacen('{', &format!("{{{crs},"), 1),
    ] {
        let mut file = opened("a.json", text.as_bytes()).unwrap();
        assert_eq!(file.layer.crs, Declared::Code(25832), "{text}");
        assert_eq!(rows(&mut file).len(), 1);
    }
    let unknown = format!(r#"{{"type":"FeatureCollection",{},"features":[{list}]}}"#, crs.replace("25832", "31370"));
    let mut file = opened("a.json", unknown.as_bytes()).unwrap();
    assert!(matches!(&file.layer.crs, Declared::Unknown(text) if text.contains("31370")), "{:?}", file.layer.crs);
    assert_eq!(rows(&mut file).len(), 1);
}

#[test]
fn features_of_two_coordinate_systems_are_no_layer() {
    let crs = r#"{"crs":{"type":"name","properties":{"name":"EPSG:3857"}},"#;
    let (plain, other) = (feature("{}"), feature("{}").replacen('{', crs, 1));
    for lines in [[&plain, &other], [&other, &plain]] {
        let Err(error) = opened("a.ndjson", format!("{}\n{}\n", lines[0], lines[1]).as_bytes()) else { panic!() };
        assert_eq!(error.code(), "crs_conflict");
    }
}

#[test]
fn sequences_are_read_line_by_line_and_record_by_record() {
    let (a, b) = (feature(r#"{"a":1}"#), feature(r#"{"a":2}"#));
    for (name, text) in [
        ("a.ndjson", format!("{a}\n\n{b}\n")),
        ("a.json", format!("{a}\n{b}\n")),
        ("a.geojsonl", format!("\u{feff}{a}\r\n{}", collection(std::slice::from_ref(&b)))),
        ("a.geojsons", format!("\u{1e}{a}\n\u{1e}{b}\n")),
    ] {
        let mut file = opened(name, text.as_bytes()).unwrap();
        assert_eq!((file.format, file.layer.features), (Format::GeoJsonSequence, Some(2)), "{name}");
        let values: Vec<Property> = rows(&mut file).into_iter().flat_map(|row| row.values).collect();
        assert_eq!(values, [Property::Integer(1), Property::Integer(2)], "{name}");
    }
}

#[test]
fn bare_geometries_are_rows_without_fields_and_ids_are_kept() {
    let mut file = opened("a.geojson", POINT.as_bytes()).unwrap();
    assert_eq!((rows(&mut file)[0].values.len(), file.layer.fields.len()), (0, 0));
    let named = feature("null").replacen('{', r#"{"id":"n1","when":1,"#, 1);
    let mut file = opened("a.geojson", named.as_bytes()).unwrap();
    assert_eq!(rows(&mut file)[0].id, Some(Property::Text("n1".to_owned())));
    assert!(file.layer.notices[0].contains("\"when\""));
}

#[test]
fn what_is_no_geojson_is_refused_as_a_whole() {
    for (text, code) in [
        (r#"{"a":1}"#, "geojson_type"),
        ("", "file_empty"),
        ("POINT (1 2)", "format_wrong"),
        (r#"{"type":"FeatureCollection","features":[]} x"#, "json_trailing"),
        (r#"{"type":"FeatureCollection","features":[],"properties":{}}"#, "geojson_foreign_member"),
    ] {
        let Err(error) = opened("a.geojson", text.as_bytes()) else { panic!("{text}") };
        assert_eq!(error.code(), code, "{text}: {error}");
    }
}

#[test]
fn one_feature_cannot_bring_more_fields_than_a_table_has_columns() {
    let mut properties = String::new();
    for i in 0..FIELDS_MAX + 10 {
        let _ = write!(properties, r#","p{i}":1"#);
    }
    let text = feature(&format!("{{{}}}", &properties[1..]));
    let Err(error) = opened("a.geojson", text.as_bytes()) else { panic!() };
    assert_eq!(error.code(), "fields_many");
}

#[test]
fn a_feature_over_the_limits_is_bad_and_the_rest_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.geojson");
    let long = feature(&format!(r#"{{"a":"{}"}}"#, "x".repeat(600_000)));
    fs::write(&path, collection(&[long, feature(r#"{"a":"y"}"#)])).unwrap();
    let limits = Limits { bytes_max: 300_000, ..Limits::default() };
    let mut file = crate::open(&path, &Options { limits, ..Options::default() }).unwrap();
    let items = items(&mut file);
    assert!(matches!(&items[0], Item::Bad(bad) if bad.code == "limit_bytes"), "{items:?}");
    assert!(matches!(&items[1], Item::Row(row) if row.number == 2));
}
