//! Files that GDAL 3.6 wrote, whole and damaged. More of them are read by `tests/python/check_files.py`.

use super::*;
use FieldKind::{Boolean, DateTime, Integer, Real, Text};
use std::path::PathBuf;

/// Two polygons with a hole, of EPSG:25832, with an index; fields of every type that GDAL writes.
const POLYGONS: &[u8] = include_bytes!("../../tests/data/polygons.fgb");
/// One of each geometry type, with heights, without an index.
const MIXED: &[u8] = include_bytes!("../../tests/data/mixed.fgb");

struct Opened {
    file: File,
    _folder: tempfile::TempDir,
}

fn try_open(bytes: &[u8], options: &Options) -> Result<Opened> {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("places.fgb");
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

fn rows(bytes: &[u8]) -> Vec<Row> {
    let row = |item| match item {
        Item::Row(row) => row,
        Item::Bad(bad) => panic!("{bad:?}"),
    };
    items(bytes).unwrap().into_iter().map(row).collect()
}

#[test]
fn a_file_of_gdal_is_read_as_it_was_written() {
    let opened = try_open(POLYGONS, &Options::default()).unwrap();
    let layer = &opened.file.layer;
    assert_eq!((layer.name.as_str(), &layer.crs, layer.features), ("polygons", &Declared::Code(25832), Some(2)));
    let kinds: Vec<_> = layer.fields.iter().map(|field| (field.name.as_str(), field.kind)).collect();
    let expected = [
        ("name", Text),
        ("small", Integer),
        ("large", Integer),
        ("share", Real),
        ("open", Boolean),
        ("seen", DateTime),
    ];
    assert_eq!(kinds, expected);
    // The index has sorted the features.
    let mut rows = rows(POLYGONS);
    rows.reverse();
    let text = |text: &str| Property::Text(text.to_owned());
    assert_eq!(
        rows[0].values,
        [
            text("ä"),
            Property::Integer(-7),
            Property::Integer(9_007_199_254_740_993),
            Property::Real(0.1),
            Property::Boolean(true),
            text("2024-02-29T10:20:30.500Z"),
        ]
        .to_vec()
    );
    assert!(rows[1].values[1..].iter().all(|value| *value == Property::Null), "{:?}", rows[1].values);
    let shape = rows[0].geometry.as_ref().unwrap();
    assert_eq!(
        (shape.type_name(), shape.paths.as_slice(), shape.parts.as_slice()),
        ("Polygon", &[5, 10][..], &[2][..])
    );
    assert_eq!(shape.positions[..1], [[500_000.0, 5_400_000.0, 0.0]]);
}

#[test]
fn every_type_of_geometry_has_its_own_structure() {
    let names: Vec<_> = rows(MIXED).iter().map(|row| row.geometry.as_ref().unwrap().type_name()).collect();
    let expected =
        ["Point", "LineString", "Polygon", "MultiPoint", "MultiLineString", "MultiPolygon", "GeometryCollection"];
    assert_eq!(names, expected);
    for row in rows(MIXED) {
        let shape = row.geometry.unwrap();
        assert!(shape.has_z && shape.positions.iter().all(|position| position[2] >= 5.0), "{shape:?}");
        assert_eq!(shape.paths.last().copied(), u32::try_from(shape.positions.len()).ok());
        assert_eq!(shape.parts.last().copied(), u32::try_from(shape.paths.len()).ok());
        assert_eq!(shape.members.last().map(|member| member.end), u32::try_from(shape.parts.len()).ok());
    }
}

#[test]
fn a_file_that_was_cut_off_is_never_taken_for_a_whole_one() {
    for whole in [POLYGONS, MIXED] {
        let count = items(whole).unwrap().len();
        for length in 0..whole.len() {
            // Without a count in the header, an end between two features looks like the end.
            let read = items(&whole[..length]);
            assert!(read.is_err(), "{length} of {} bytes, {count}", whole.len());
        }
    }
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
    let mut outcomes = [0; 3];
    for round in 0..2_000 {
        let mut bytes = if round % 2 == 0 { POLYGONS.to_vec() } else { MIXED.to_vec() };
        for _ in 0..=next(6) {
            let at = next(bytes.len());
            bytes[at] = if next(2) == 0 { 0xff } else { u8::try_from(next(256)).unwrap() };
        }
        match items(&bytes) {
            Err(_) => outcomes[0] += 1,
            Ok(items) if items.iter().any(|item| matches!(item, Item::Bad(_))) => outcomes[1] += 1,
            Ok(_) => outcomes[2] += 1,
        }
    }
    assert!(outcomes.iter().all(|&count| count > 30), "{outcomes:?}");
}

#[test]
fn a_feature_too_large_for_the_limits_keeps_its_neighbours() {
    let options = Options { limits: Limits { positions_max: 3, ..Limits::default() }, ..Options::default() };
    let mut opened = try_open(MIXED, &options).unwrap();
    let mut codes = Vec::new();
    while let Some(item) = opened.file.rows.next().unwrap() {
        codes.push(if let Item::Bad(bad) = item { bad.code } else { "" });
    }
    assert_eq!(codes, ["", "", "limit_positions", "", "limit_positions", "limit_positions", ""]);
}

#[test]
fn other_versions_and_layers_are_refused_by_name() {
    let mut older = POLYGONS.to_vec();
    older[3] = 2;
    assert_eq!(items(&older).err().map(|error| error.code()), Some("fgb_version"));
    let options = Options { layer: Some("roads".to_owned()), ..Options::default() };
    assert_eq!(try_open(POLYGONS, &options).err().map(|error| error.code()), Some("layer_unknown"));
    let options = Options { layer: Some("POLYGONS".to_owned()), ..Options::default() };
    assert!(try_open(POLYGONS, &options).is_ok());
}
