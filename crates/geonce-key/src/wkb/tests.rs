//! Bytes as PostGIS and GEOS write them, and every way to be wrong.

use super::{Dialect, append, read_hex, write};
use crate::{Code, Error, Limits, wkt};

fn read(hex: &str) -> Result<String, Error> {
    let delivered = read_hex(hex.replace(' ', "").as_bytes(), &Limits::default())?;
    let srid = delivered.srid.map_or(String::new(), |srid| format!("SRID={srid};"));
    Ok(format!("{srid}{}", wkt::write(&delivered.shape)))
}

fn check(hex: &str, expect: &str) {
    assert_eq!(read(hex).as_deref(), Ok(expect), "{hex}");
}

fn refused(hex: &str, code: Code) {
    assert_eq!(read(hex).map_err(|error| error.code()), Err(code), "{hex}");
}

const ONE_TWO: &str = "000000000000f03f 0000000000000040";
const THREE: &str = "0000000000000840";
const NAN: &str = "000000000000f87f";

#[test]
fn every_flavour_of_a_point_is_read() {
    check(&format!("01 01000000 {ONE_TWO}"), "POINT (1 2)");
    check("00 00000001 3ff0000000000000 4000000000000000", "POINT (1 2)");
    check(&format!("01 01000080 {ONE_TWO} {THREE}"), "POINT Z (1 2 3)");
    check(&format!("01 E9030000 {ONE_TWO} {THREE}"), "POINT Z (1 2 3)");
    check(&format!("01 01000020 E6100000 {ONE_TWO}"), "SRID=4326;POINT (1 2)");
    check(&format!("01 010000A0 E6100000 {ONE_TWO} {THREE}"), "SRID=4326;POINT Z (1 2 3)");
    check(&format!("01 01000020 00000000 {ONE_TWO}"), "POINT (1 2)");
}

#[test]
fn each_member_has_its_own_byte_order() {
    check(
        &format!(
            "00 00000004 00000003 01 01000000 {ONE_TWO} 00 00000001 3ff0000000000000 4000000000000000 01 01000000 {ONE_TWO}"
        ),
        "MULTIPOINT ((1 2),(1 2),(1 2))",
    );
    check(
        &format!(
            "00 00000007 00000002 01 07000000 01000000 01 01000000 {ONE_TWO} 00 00000001 3ff0000000000000 4000000000000000"
        ),
        "GEOMETRYCOLLECTION (POINT (1 2),POINT (1 2))",
    );
}

#[test]
fn an_inner_srid_must_equal_the_outer_one() {
    let inner = |srid: &str| format!("01 01000020 {srid} {ONE_TWO}");
    check(&format!("01 04000020 E6100000 01000000 {}", inner("E6100000")), "SRID=4326;MULTIPOINT ((1 2))");
    check(&format!("01 04000020 E6100000 01000000 {}", inner("00000000")), "SRID=4326;MULTIPOINT ((1 2))");
    refused(&format!("01 04000020 E6100000 01000000 {}", inner("E7100000")), Code::CrsConflict);
    refused(&format!("01 04000000 01000000 {}", inner("E6100000")), Code::CrsConflict);
}

#[test]
fn what_geojson_cannot_say_is_refused() {
    refused(&format!("01 01000040 {ONE_TWO} {THREE}"), Code::GeojsonMeasure);
    refused(&format!("01 D1070000 {ONE_TWO} {THREE}"), Code::GeojsonMeasure);
    refused(&format!("01 B90B0000 {ONE_TWO} {ONE_TWO}"), Code::GeojsonMeasure);
    refused(&format!("01 01000000 {NAN} {NAN}"), Code::GeojsonEmpty);
    refused(&format!("01 01000080 {NAN} {NAN} {NAN}"), Code::GeojsonEmpty);
    refused("01 02000000 00000000", Code::GeojsonEmpty);
    refused("01 03000000 00000000", Code::GeojsonEmpty);
    refused("01 03000000 01000000 00000000", Code::GeojsonEmpty);
    refused("01 07000000 00000000", Code::GeojsonEmpty);
    refused(&format!("01 01000000 {NAN} {THREE}"), Code::JsonNumberRange);
    refused(&format!("01 02000000 01000000 {NAN} {NAN}"), Code::JsonNumberRange);
    refused(&format!("01 01000000 000000000000f07f {THREE}"), Code::JsonNumberRange);
    refused(&format!("01 04000000 01000000 01 01000080 {ONE_TWO} {THREE}"), Code::GeojsonDimensions);
    refused(&format!("01 07000080 01000000 01 01000000 {ONE_TWO} {THREE}"), Code::GeojsonDimensions);
    for code in 8..=17 {
        refused(&format!("01 {code:02x}000000 00000000"), Code::GeojsonType);
    }
}

#[test]
fn a_refusal_says_where() {
    let error = read(&format!("01 03000000 01000000 02000000 {ONE_TWO} {NAN} {NAN}")).unwrap_err();
    assert_eq!(error.pointer(), "/coordinates/0/1");
    assert_eq!(error.message(), "a number that is not finite at byte 29");
}

#[test]
fn what_is_not_wkb_is_refused() {
    for hex in [
        "",
        "0",
        "01",
        "zz",
        "0101000000",
        "02 01000000 000000000000f03f 0000000000000040",
        "01 00000000 00000000",
        "01 12000000 00000000",
        "01 A10F0000 000000000000f03f 0000000000000040",
        "01 01000010 000000000000f03f 0000000000000040",
        "01 01000000 000000000000f03f 0000000000000040 00",
        "01 04000000 01000000 01 02000000 01000000 000000000000f03f 0000000000000040",
        "01 02000000 ffffffff",
        "01 03000000 ffffffff",
        "01 07000000 ffffffff",
        "01 02000000 02000000 000000000000f03f 0000000000000040",
    ] {
        refused(hex, Code::WkbSyntax);
    }
}

#[test]
fn hex_may_be_spelt_as_psql_prints_it() {
    for text in ["\\x0101000000000000000000F03F0000000000000040", "\n 0101000000000000000000f03f0000000000000040\r\n"] {
        assert_eq!(read(text).as_deref(), Ok("POINT (1 2)"));
    }
    refused("\\y0101000000000000000000F03F0000000000000040", Code::WkbSyntax);
}

#[test]
fn each_limit_has_its_code() {
    let narrow = Limits {
        depth_max: 2,
        positions_max: 3,
        rings_max: 2,
        parts_max: 2,
        members_max: 1,
        bytes_max: 200,
        ..Limits::default()
    };
    let check = |text: &str, code| {
        let shape = wkt::read(text.as_bytes(), &Limits::default()).unwrap().shape;
        let error = super::read(&write(&shape, None), &narrow).unwrap_err();
        assert_eq!(error.code(), code, "{text}");
    };
    check("LINESTRING (1 1,2 2,3 3,4 4)", Code::LimitPositions);
    check("POLYGON ((1 1),(2 2),(3 3))", Code::LimitRings);
    check("GEOMETRYCOLLECTION (POINT (1 1),POINT (2 2))", Code::LimitMembers);
    check("LINESTRING (1 1,2 2,3 3,4 4,5 5,6 6,7 7,8 8,9 9,1 1,2 2,3 3,4 4)", Code::LimitBytes);
    let mut nested = format!("01 01000000 {ONE_TWO}");
    for _ in 0..65 {
        nested = format!("01 07000000 01000000 {nested}");
    }
    refused(&nested, Code::LimitDepth);
}

fn shape(text: &str) -> crate::Shape<f64> {
    wkt::read(text.as_bytes(), &Limits::default()).unwrap().shape
}

#[test]
fn extended_wkb_carries_its_system_and_is_read_back_as_it_was() {
    for text in [
        "POINT Z(1 2 3)",
        "LINESTRING(1 2,-3 4)",
        "MULTIPOLYGON(((0 0,4 0,4 4,0 0)),((9 9,10 9,10 10,9 9)))",
        "GEOMETRYCOLLECTION(POINT(1 2),MULTIPOINT(3 4),LINESTRING(5 6,7 8))",
    ] {
        let mut bytes = Vec::new();
        append(&shape(text), Dialect::Extended(Some(32633)), false, &mut bytes);
        let read = super::read(&bytes, &Limits::default()).unwrap();
        assert_eq!((read.shape, read.srid), (shape(text), Some(32633)), "{text}");
    }
}

#[test]
fn a_single_part_is_written_as_a_multi_of_one_where_that_is_asked() {
    for (single, multi) in [
        ("POINT(1 2)", "MULTIPOINT(1 2)"),
        ("LINESTRING Z(1 2 3,4 5 6)", "MULTILINESTRING Z((1 2 3,4 5 6))"),
        ("POLYGON((0 0,1 0,1 1,0 0))", "MULTIPOLYGON(((0 0,1 0,1 1,0 0)))"),
        ("MULTIPOINT(1 2,3 4)", "MULTIPOINT(1 2,3 4)"),
    ] {
        let mut bytes = Vec::new();
        append(&shape(single), Dialect::Extended(Some(4326)), true, &mut bytes);
        assert_eq!(super::read(&bytes, &Limits::default()).unwrap().shape, shape(multi), "{single}");
    }
}
