//! What the reader takes, what it refuses, and where it says so.

use super::{read, write};
use crate::{Code, Limits};

fn check(text: &str, expect: &str) {
    let delivered = read(text.as_bytes(), &Limits::default()).unwrap_or_else(|error| panic!("{text}: {error}"));
    let srid = delivered.srid.map_or(String::new(), |srid| format!("SRID={srid};"));
    assert_eq!(format!("{srid}{}", write(&delivered.shape)), expect, "{text}");
}

fn refused(text: &str, code: Code, pointer: &str) {
    refused_with(text.as_bytes(), &Limits::default(), code, pointer);
}

fn refused_with(text: &[u8], limits: &Limits, code: Code, pointer: &str) {
    let shown = String::from_utf8_lossy(text);
    let error = read(text, limits).expect_err(&shown);
    assert_eq!((error.code(), error.pointer()), (code, pointer), "{shown}: {error}");
}

#[test]
fn every_type_is_read() {
    check("POINT (1 2)", "POINT (1 2)");
    check("LINESTRING(1 2,3 4)", "LINESTRING (1 2,3 4)");
    check(
        "POLYGON((0 0,1 0,1 1,0 0),(.1 .1, 0.2 0.1, 0.2 0.2, .1 .1))",
        "POLYGON ((0 0,1 0,1 1,0 0),(0.1 0.1,0.2 0.1,0.2 0.2,0.1 0.1))",
    );
    check("MULTIPOINT ((1 2),(3 4))", "MULTIPOINT ((1 2),(3 4))");
    check("MULTIPOINT (1 2, 3 4)", "MULTIPOINT ((1 2),(3 4))");
    check("MULTILINESTRING ((1 2, 3 4), (5 6, 7 8))", "MULTILINESTRING ((1 2,3 4),(5 6,7 8))");
    check(
        "MULTIPOLYGON (((0 0,1 0,1 1,0 0)),((5 5,6 5,6 6,5 5)))",
        "MULTIPOLYGON (((0 0,1 0,1 1,0 0)),((5 5,6 5,6 6,5 5)))",
    );
    check("GEOMETRYCOLLECTION (POINT (1 2))", "GEOMETRYCOLLECTION (POINT (1 2))");
}

#[test]
fn case_space_and_tags_are_free() {
    check("\t point\n(\r 1\x0c 2 ) ", "POINT (1 2)");
    check("srid = 25832 ; Point(1 2)", "SRID=25832;POINT (1 2)");
    check("SRID=0;POINT(1 2)", "POINT (1 2)");
    check("POINTZ(1 2 3)", "POINT Z (1 2 3)");
    check("pointz (1 2 3)", "POINT Z (1 2 3)");
    check("POINT Z(1 2 3)", "POINT Z (1 2 3)");
    check("POINT(1 2 3)", "POINT Z (1 2 3)");
    check("MULTIPOINT Z (1 2 3,(4 5 6))", "MULTIPOINT Z ((1 2 3),(4 5 6))");
    check(
        "GEOMETRYCOLLECTION Z (POINT (1 2 3), POINT Z (4 5 6))",
        "GEOMETRYCOLLECTION Z (POINT Z (1 2 3),POINT Z (4 5 6))",
    );
}

#[test]
fn collections_are_flattened_in_order() {
    check(
        "GEOMETRYCOLLECTION (POINT (1 1), GEOMETRYCOLLECTION (POINT (2 2), GEOMETRYCOLLECTION (POINT (3 3))), POINT (4 4))",
        "GEOMETRYCOLLECTION (POINT (1 1),POINT (2 2),POINT (3 3),POINT (4 4))",
    );
}

#[test]
fn numbers_are_read_as_writers_print_them() {
    check("POINT (+1 -0)", "POINT (1 -0)");
    check("POINT (.5 5.)", "POINT (0.5 5)");
    check("POINT (1e2 1.5E-3)", "POINT (100 0.0015)");
    check("POINT (0.1000000000000000055511151231257827 1e-999)", "POINT (0.1 0)");
}

#[test]
fn rings_stay_as_delivered() {
    check("POLYGON ((0 0, 1 0, 1 1))", "POLYGON ((0 0,1 0,1 1))");
    check("LINESTRING (0 0)", "LINESTRING (0 0)");
}

#[test]
fn what_is_not_wkt_is_refused() {
    for text in [
        "",
        " ",
        "POINT",
        "POINT (",
        "POINT ()",
        "POINT (1 2",
        "POINT (1 2))",
        "POINT (1 2) junk",
        "POINT (1 2);",
        "POINT 1 2",
        "POINT (1 2,)",
        "POINT (1 2,3 4)",
        "LINESTRING ((1 2,3 4))",
        "POLYGON (1 2,3 4)",
        "POINTY (1 2)",
        "POINT ZZ (1 2 3)",
        "POINTZ Z (1 2 3)",
        "POINT MZ (1 2 3)",
        "POINT (nan nan)",
        "POINT (1 inf)",
        "POINT (1 2e)",
        "POINT (1 --2)",
        "POINT (1 .)",
        "POINT (0x10 2)",
        "POINT (1_0 2)",
        "SRID=;POINT (1 2)",
        "SRID=4294967296;POINT (1 2)",
        "SRID=-1;POINT (1 2)",
        "SRID=4326 POINT (1 2)",
        "SRID=1;SRID=1;POINT (1 2)",
        "GEOMETRYCOLLECTION (SRID=1;POINT (1 2))",
        "GEOMETRYCOLLECTION (POINT (1 2),)",
        "POINT (１ 2)",
        "\u{feff}POINT (1 2)",
        "POINT\u{a0}(1 2)",
        "POINT (1 2)\0",
    ] {
        refused(text, Code::WktSyntax, "");
    }
    refused_with(b"POINT (1 \xff)", &Limits::default(), Code::WktSyntax, "");
    refused_with(b"POINT (1 2\xff)", &Limits::default(), Code::WktSyntax, "");
}

#[test]
fn a_syntax_error_names_its_byte() {
    let error = read(b"POINT (1 2) junk", &Limits::default()).unwrap_err();
    assert_eq!(error.message(), "something follows the geometry at byte 12");
}

#[test]
fn what_geojson_cannot_say_is_refused_where_it_stands() {
    refused("POINT M (1 2 3)", Code::GeojsonMeasure, "");
    refused("POINTZM (1 2 3 4)", Code::GeojsonMeasure, "");
    refused("LINESTRING (1 2 3 4, 5 6 7 8)", Code::GeojsonMeasure, "/coordinates/0");
    refused("LINESTRING (1 2, 1 2 3 4 5)", Code::GeojsonPosition, "/coordinates/1");
    refused("POINT EMPTY", Code::GeojsonEmpty, "/coordinates");
    refused("POINT Z EMPTY", Code::GeojsonEmpty, "/coordinates");
    refused("GEOMETRYCOLLECTION EMPTY", Code::GeojsonEmpty, "/geometries/0");
    refused("GEOMETRYCOLLECTION (POINT (1 2), POLYGON EMPTY)", Code::GeojsonEmpty, "/geometries/1/coordinates/0/0");
    refused("MULTIPOLYGON (EMPTY, ((0 0,1 0,1 1,0 0)))", Code::GeojsonEmpty, "/coordinates/0/0/0");
    refused("MULTIPOINT (1 2, EMPTY)", Code::GeojsonEmpty, "/coordinates/1");
    refused("POINT Z (1 2)", Code::GeojsonDimensions, "/coordinates");
    refused("POLYGON ((0 0, 1 0, 1 1 5, 0 0))", Code::GeojsonDimensions, "/coordinates/0/2");
    refused("GEOMETRYCOLLECTION (POINT (1 2), POINT Z (1 2 3))", Code::GeojsonDimensions, "/geometries/1");
    refused("POINT (1 1e309)", Code::JsonNumberRange, "/coordinates");
    refused("POINT (1, 2)", Code::GeojsonPosition, "/coordinates");
    refused("POINT (1)", Code::GeojsonPosition, "/coordinates");
}

#[test]
fn a_curve_is_refused_by_name() {
    for name in super::FOREIGN {
        let error = read(format!("{name} Z (0 0, 1 1)").as_bytes(), &Limits::default()).unwrap_err();
        assert_eq!(error.code(), Code::GeojsonType);
        assert!(error.hint_text().is_some_and(|hint| hint.contains(name)), "{name}");
    }
}

#[test]
fn each_limit_has_its_code() {
    let limits = Limits {
        bytes_max: 100,
        depth_max: 2,
        members_max: 2,
        number_bytes_max: 5,
        positions_max: 3,
        rings_max: 2,
        parts_max: 2,
        ..Limits::default()
    };
    let check = |text: &str, code| match code {
        None => assert!(read(text.as_bytes(), &limits).is_ok(), "{text}"),
        Some(code) => assert_eq!(read(text.as_bytes(), &limits).unwrap_err().code(), code, "{text}"),
    };
    check(&format!("POINT (1 2){:89}", ""), None);
    check(&format!("POINT (1 2){:90}", ""), Some(Code::LimitBytes));
    check("GEOMETRYCOLLECTION(GEOMETRYCOLLECTION(POINT(1 2)))", None);
    check("GEOMETRYCOLLECTION(GEOMETRYCOLLECTION(GEOMETRYCOLLECTION(POINT(1 2))))", Some(Code::LimitDepth));
    check("POINT (12345 1)", None);
    check("POINT (123456 1)", Some(Code::LimitNumber));
    check("LINESTRING (1 1,2 2,3 3)", None);
    check("LINESTRING (1 1,2 2,3 3,4 4)", Some(Code::LimitPositions));
    check("POLYGON ((1 1),(2 2))", None);
    check("POLYGON ((1 1),(2 2),(3 3))", Some(Code::LimitRings));
    let wide = Limits { rings_max: 9, ..limits.clone() };
    assert_eq!(read(b"MULTIPOINT (1 1,2 2,3 3)", &wide).unwrap_err().code(), Code::LimitParts);
    let wider = Limits { parts_max: 9, ..wide };
    let members = b"GEOMETRYCOLLECTION(POINT(1 1),POINT(2 2),POINT(3 3))";
    assert_eq!(read(members, &wider).unwrap_err().code(), Code::LimitMembers);
}
