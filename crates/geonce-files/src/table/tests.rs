//! What comma-separated files come to.

use crate::{Declared, Error, FieldKind, File, Item, Options};
use geonce_key::{Property, wkt};
use std::fs;

fn opened(text: &[u8], options: &Options) -> Result<File, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.csv");
    fs::write(&path, text).unwrap();
    let file = crate::open(&path, options);
    // Bad records are read again from the file.
    std::mem::forget(folder);
    file
}

fn read(text: &str) -> (File, Vec<Item>) {
    let mut file = opened(text.as_bytes(), &Options::default()).unwrap();
    let items = std::iter::from_fn(|| file.rows.next().unwrap()).collect();
    (file, items)
}

fn check(text: &str, crs: &Declared, geometries: &[&str]) {
    let (file, items) = read(text);
    assert_eq!(&file.layer.crs, crs, "{text}");
    let shown: Vec<String> = items
        .iter()
        .map(|item| match item {
            Item::Row(row) => row.geometry.as_ref().map_or("none".to_owned(), wkt::write),
            Item::Bad(bad) => bad.code.to_owned(),
        })
        .collect();
    assert_eq!(shown, geometries, "{text}");
}

#[test]
fn geometries_are_found_by_the_names_of_their_columns() {
    check("id,lon,lat\n1,13.4,52.5\n2,,\n3,x,1\n", &Declared::Code(4326), &["POINT (13.4 52.5)", "none", "ordinate"]);
    check("\u{feff}X;Y;name\n1;2;a\n", &Declared::Nothing, &["POINT (1 2)"]);
    check(
        "id\tWKT\n1\t\"POINT (1 2)\"\n2\tLINESTRING (0 0, 1 1)\n",
        &Declared::Nothing,
        &["POINT (1 2)", "LINESTRING (0 0,1 1)"],
    );
    check("geom\nSRID=25832;POINT (1 2)\n", &Declared::Code(25832), &["POINT (1 2)"]);
    check("wkb_geometry\n0101000000000000000000f03f0000000000000040\n", &Declared::Nothing, &["POINT (1 2)"]);
    check("a,b\n1,2\n", &Declared::Nothing, &["none"]);
}

#[test]
fn a_column_is_a_number_only_if_every_value_would_be_written_so_again() {
    let text = "whole,real,both,zip,plus,huge,yes,text,empty\n1,1.5,1,01234,+1,99999999999999999999,true,a,\n-2,2e3,1.5,1,1,1,FALSE,,\n";
    let (file, items) = read(text);
    let kinds: Vec<FieldKind> = file.layer.fields.iter().map(|field| field.kind).collect();
    let expected = [
        FieldKind::Integer,
        FieldKind::Real,
        FieldKind::Real,
        FieldKind::Text,
        FieldKind::Text,
        FieldKind::Text,
        FieldKind::Boolean,
        FieldKind::Text,
        FieldKind::Text,
    ];
    assert_eq!(kinds, expected);
    let Item::Row(row) = &items[0] else { panic!() };
    assert_eq!(row.values[3], Property::Text("01234".to_owned()));
    assert_eq!(
        (&row.values[0], &row.values[6], &row.values[8]),
        (&Property::Integer(1), &Property::Boolean(true), &Property::Null)
    );
}

#[test]
fn a_record_of_another_length_is_bad_with_what_was_written() {
    let (_, items) = read("\u{feff}id,lon,lat\n1,1,2\n2,3\n\"3\",4,5,6\n4,7,8\n");
    let Item::Bad(short) = &items[1] else { panic!("{items:?}") };
    assert_eq!((short.number, short.code, short.bytes.as_slice()), (2, "csv_columns", &b"2,3\n"[..]));
    assert!(short.message.starts_with("line 3: 2 values"), "{}", short.message);
    let Item::Bad(long) = &items[2] else { panic!("{items:?}") };
    assert_eq!(long.bytes, b"\"3\",4,5,6\n");
    assert!(matches!(&items[3], Item::Row(row) if row.number == 4));
}

#[test]
fn text_that_is_not_utf8_is_read_by_what_was_said_or_assumed() {
    let text = b"name,lon,lat\nM\xfcnchen,11,48\n";
    let mut file = opened(text, &Options::default()).unwrap();
    assert!(file.layer.notices.iter().any(|notice| notice.contains("windows-1252")), "{:?}", file.layer.notices);
    let Some(Item::Row(row)) = file.rows.next().unwrap() else { panic!() };
    assert_eq!(row.values[0], Property::Text("München".to_owned()));
    let options = Options { encoding: Some("ISO-8859-5".to_owned()), ..Options::default() };
    let Some(Item::Row(row)) = opened(text, &options).unwrap().rows.next().unwrap() else { panic!() };
    assert_eq!(row.values[0], Property::Text("Mќnchen".to_owned()));
    let options = Options { encoding: Some("klingon".to_owned()), ..Options::default() };
    assert_eq!(opened(text, &options).err().unwrap().code(), "encoding_unknown");
}

#[test]
fn what_cannot_be_a_layer_is_refused() {
    for (text, code) in [
        (&b""[..], "file_empty"),
        (b"\xff\xfea\0", "encoding_unknown"),
        (b"geom\nSRID=4326;POINT (1 2)\nSRID=3857;POINT (1 2)\n", "crs_conflict"),
    ] {
        assert_eq!(opened(text, &Options::default()).err().unwrap().code(), code);
    }
}
