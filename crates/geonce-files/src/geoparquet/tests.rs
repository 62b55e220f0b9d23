//! A file that pyarrow wrote, whole and damaged. More of them are read by `tests/python/check_files.py`.

use super::*;
use crate::Declared;
use std::path::PathBuf;

/// Three rows in two row groups, of EPSG:25832: a point, nothing and a polygon, a column of every kind, and a covering.
const KINDS: &[u8] = include_bytes!("../../tests/data/kinds.parquet");

struct Opened {
    file: File,
    _folder: tempfile::TempDir,
}

fn try_open(bytes: &[u8], options: &Options) -> Result<Opened> {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("kinds.parquet");
    std::fs::write(&path, bytes).unwrap();
    open(&path, options).map(|file| Opened { file, _folder: folder })
}

fn items(bytes: &[u8]) -> Result<Vec<Item>> {
    let mut opened = try_open(bytes, &Options::default())?;
    let mut items = Vec::new();
    while let Some(item) = opened.file.rows.next()? {
        items.push(item);
    }
    Ok(items)
}

#[test]
fn every_kind_of_column_is_read_as_it_was_written() {
    let opened = try_open(KINDS, &Options::default()).unwrap();
    let layer = &opened.file.layer;
    assert_eq!((layer.name.as_str(), &layer.crs, layer.features), ("kinds", &Declared::Code(25832), Some(3)));
    let fields: Vec<_> = layer.fields.iter().map(|field| format!("{} {:?}", field.name, field.kind)).collect();
    // The covering is no field.
    assert_eq!(
        fields.join(", "),
        "name Text, flag Boolean, byte Integer, whole Integer, unsigned Integer, large Integer, half Real, single Real, \
         double Real, word Text, day Date, millis DateTime, micros DateTime, nanos DateTime, clock Text, price Real, \
         exact Text, raw Text, list Json, struct Json, map Json"
    );
    let rows: Vec<Row> = items(KINDS)
        .unwrap()
        .into_iter()
        .map(|item| match item {
            Item::Row(row) => row,
            Item::Bad(bad) => panic!("{bad:?}"),
        })
        .collect();
    let text = |text: &str| Property::Text(text.to_owned());
    let json = |text: &str| Property::Json(text.to_owned());
    let expected = [
        text("ä"),
        Property::Boolean(true),
        Property::Integer(-1),
        Property::Integer(9_007_199_254_740_993),
        Property::Integer(4_294_967_295),
        Property::Integer(i64::MAX),
        Property::Real(0.5),
        Property::Real(0.5),
        Property::Real(0.1),
        text("x"),
        text("2024-02-29"),
        text("2024-02-29T10:20:30.5"),
        text("2024-02-29T10:20:30.000001Z"),
        text("2024-02-29T10:20:30.000000001Z"),
        text("23:59:59.000005"),
        Property::Real(12.34),
        text("1234567890123456789.0123456789"),
        text("AP8="),
        json("[1,2]"),
        json(r#"{"a":1,"b":"x"}"#),
        json(r#"{"k":1}"#),
    ];
    assert_eq!(rows[0].values, expected);
    let missing = rows[1].values.iter().filter(|value| **value == Property::Null).count();
    assert_eq!((missing, rows[1].values.len(), &rows[1].geometry), (19, 21, &None));
    assert_eq!(rows[2].values[7], Property::Null, "a number that is none is missing");
    assert_eq!(rows[0].geometry.as_ref().unwrap().positions, [[8.5, 50.25, 0.0]]);
    assert_eq!(rows[2].geometry.as_ref().unwrap().type_name(), "Polygon");
    assert_eq!(rows.iter().map(|row| row.number).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn a_geometry_that_cannot_be_read_keeps_its_neighbours() {
    let limits = Limits { positions_max: 1, ..Limits::default() };
    let mut opened = try_open(KINDS, &Options { limits, ..Options::default() }).unwrap();
    let items: Vec<_> = std::iter::from_fn(|| opened.file.rows.next().unwrap()).collect();
    assert!(matches!(items.as_slice(), [Item::Row(_), Item::Row(_), Item::Bad(_)]), "{items:?}");
    let Item::Bad(bad) = &items[2] else { panic!("{:?}", items[2]) };
    assert_eq!((bad.number, bad.code), (3, "limit_positions"));
    let original = String::from_utf8(bad.bytes.clone()).unwrap();
    assert!(original.contains("\"geometry_hex\":\"0103") && original.contains("\"byte\":3"), "{original}");
}

#[test]
fn a_file_that_was_cut_off_is_refused() {
    for length in (0..KINDS.len()).step_by(97) {
        assert!(items(&KINDS[..length]).is_err(), "{length}");
    }
    assert_eq!(items(b"PAR1").err().unwrap().code(), "parquet_truncated");
    assert_eq!(items(b"PAR1\xff\xff\xff\x7fPAR1").err().unwrap().code(), "parquet_damaged");
}

#[test]
fn damaged_bytes_are_an_error_or_a_bad_feature() {
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % below as u64).unwrap()
    };
    let mut refused = 0;
    for _ in 0..1_000 {
        let mut bytes = KINDS.to_vec();
        for _ in 0..=next(6) {
            let at = next(bytes.len());
            bytes[at] = if next(2) == 0 { 0xff } else { u8::try_from(next(256)).unwrap() };
        }
        refused += usize::from(items(&bytes).is_err());
    }
    assert!(refused > 100, "{refused}");
}
