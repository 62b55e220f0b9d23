//! GeoPackages made here, odd and broken ones included. Those of other programs are read by `tests/python/check_files.py`.

use super::*;
use crate::{Bad, Declared, Field};
use FieldKind::{Boolean, Date, DateTime, Integer, Json, Real, Text};
use rusqlite::params;

const TABLES: &str = "
    CREATE TABLE gpkg_spatial_ref_sys (srs_name TEXT, srs_id INTEGER PRIMARY KEY, organization TEXT,
        organization_coordsys_id INTEGER, definition TEXT, description TEXT);
    INSERT INTO gpkg_spatial_ref_sys VALUES ('', -1, 'NONE', -1, 'undefined', ''), ('', 0, 'NONE', 0, 'undefined', ''),
        ('', 100, 'epsg', 4326, 'GEOGCS', ''), ('', 101, 'NONE', 101, 'LOCAL_CS[\"here\"]', '');
    CREATE TABLE gpkg_contents (table_name TEXT PRIMARY KEY, data_type TEXT, identifier TEXT, srs_id INTEGER);
    CREATE TABLE gpkg_geometry_columns (table_name TEXT, column_name TEXT, geometry_type_name TEXT, srs_id INTEGER,
        z TINYINT, m TINYINT);
    CREATE TABLE gpkg_ogr_contents (table_name TEXT PRIMARY KEY, feature_count INTEGER);";

struct Package {
    folder: tempfile::TempDir,
    connection: Connection,
}

impl Package {
    fn new(more: &str) -> Package {
        let folder = tempfile::tempdir().unwrap();
        let connection = Connection::open(folder.path().join("a %3F?#ü.gpkg")).unwrap();
        connection.execute_batch(TABLES).unwrap();
        connection.execute_batch(more).unwrap();
        Package { folder, connection }
    }

    fn layer(&self, name: &str, srs: i64) {
        self.connection
            .execute("INSERT INTO gpkg_contents VALUES (?1, 'features', ?1, ?2)", params![name, srs])
            .unwrap();
        let insert = "INSERT INTO gpkg_geometry_columns VALUES (?1, 'geom', 'GEOMETRY', ?2, 0, 0)";
        self.connection.execute(insert, params![name, srs]).unwrap();
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("a %3F?#ü.gpkg")
    }

    fn open(&self, layer: Option<&str>) -> Result<File> {
        open(&self.path(), &Options { layer: layer.map(str::to_owned), ..Options::default() })
    }
}

fn all(file: &mut File) -> Vec<Item> {
    std::iter::from_fn(|| file.rows.next().unwrap()).collect()
}

fn rows(file: &mut File) -> Vec<Row> {
    let row = |item| match item {
        Item::Row(row) => row,
        Item::Bad(bad) => panic!("{bad:?}"),
    };
    all(file).into_iter().map(row).collect()
}

fn bad(file: &mut File) -> Vec<Bad> {
    all(file).into_iter().filter_map(|item| if let Item::Bad(bad) = item { Some(bad) } else { None }).collect()
}

/// A point behind a header of this kind of envelope.
fn point(flags: u8, envelope_bytes: usize, x: f64, y: f64) -> Vec<u8> {
    let mut blob = vec![b'G', b'P', 0, flags, 0, 0, 0, 0];
    blob.resize(8 + envelope_bytes, 0x55);
    // The byte order of the WKB is its own.
    blob.extend([0, 0, 0, 0, 1]);
    blob.extend(x.to_be_bytes());
    blob.extend(y.to_be_bytes());
    blob
}

#[test]
fn rows_come_in_the_order_of_their_ids_with_every_kind_of_envelope() {
    let package = Package::new("CREATE TABLE places (fid INTEGER PRIMARY KEY, geom POINT, name TEXT)");
    package.layer("places", 100);
    package.connection.execute("INSERT INTO gpkg_ogr_contents VALUES ('places', 5)", []).unwrap();
    for (id, (flags, bytes)) in [(1, 0), (3, 32), (5, 48), (7, 48), (0b1_1001, 64)].into_iter().enumerate().rev() {
        let id = i64::try_from(id).unwrap() * 10;
        package
            .connection
            .execute(
                "INSERT INTO places VALUES (?1, ?2, ?3)",
                params![id, point(flags, bytes, 0.5, 7.25), id.to_string()],
            )
            .unwrap();
    }
    let mut file = package.open(None).unwrap();
    assert_eq!(file.layer.name, "places");
    assert_eq!(file.layer.crs, Declared::Code(4326));
    assert_eq!(file.layer.features, Some(5));
    assert_eq!(file.layer.fields, [Field { name: "name".to_owned(), kind: FieldKind::Text }]);
    assert_eq!(file.parts, [package.path()]);
    let rows = rows(&mut file);
    assert_eq!(rows.iter().map(|row| row.number).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    let names: Vec<_> = rows.iter().map(|row| row.values[0].clone()).collect();
    assert_eq!(names, ["0", "10", "20", "30", "40"].map(|name| Property::Text(name.to_owned())));
    assert!(rows.iter().all(|row| row.geometry.as_ref().unwrap().positions == [[0.5, 7.25, 0.0]]));
    assert!(file.rows.next().unwrap().is_none());
}

#[test]
fn values_are_given_in_the_kind_of_their_column() {
    let package = Package::new(
        "CREATE TABLE t (fid INTEGER PRIMARY KEY, geom POINT, b BOOLEAN, i MEDIUMINT, r DOUBLE, s TEXT(10), d DATE,
            m DATETIME, x BLOB(5), j JSON, u, v VARCHAR(9));
         INSERT INTO t VALUES (1, NULL, 1, 9007199254740993, 0.5, 'ä', '2024-02-29', '2024-02-29T01:02:03.450Z', x'00ff',
            '{\"a\": [1]}', 7, 'w'),
         (2, NULL, 0, 3.0, 4, 5, '2024/01/02', '2024-01-02 03:04:05', 'ab', '\"text\"', x'00ff', 1.5),
         (3, NULL, NULL, '', ' 2.5 ', x'01', '', '2024-01-02', NULL, 12, NULL, NULL)",
    );
    package.layer("t", 0);
    let mut file = package.open(None).unwrap();
    let kinds: Vec<_> = file.layer.fields.iter().map(|field| field.kind).collect();
    assert_eq!(kinds, [Boolean, Integer, Real, Text, Date, DateTime, Text, Json, Text, Text]);
    assert_eq!(file.layer.crs, Declared::Nothing);
    assert_eq!(file.layer.notices.len(), 2, "{:?}", file.layer.notices);
    let text = |text: &str| Property::Text(text.to_owned());
    let values: Vec<_> = rows(&mut file).into_iter().map(|row| row.values).collect();
    assert_eq!(
        values,
        [
            vec![
                Property::Boolean(true),
                Property::Integer(9_007_199_254_740_993),
                Property::Real(0.5),
                text("ä"),
                text("2024-02-29"),
                text("2024-02-29T01:02:03.450Z"),
                text("AP8="),
                Property::Json("{\"a\": [1]}".to_owned()),
                text("7"),
                text("w"),
            ],
            vec![
                Property::Boolean(false),
                Property::Integer(3),
                Property::Real(4.0),
                text("5"),
                text("2024-01-02"),
                text("2024-01-02T03:04:05"),
                text("YWI="),
                text("text"),
                text("AP8="),
                text("1.5"),
            ],
            vec![
                Property::Null,
                Property::Null,
                Property::Real(2.5),
                text("AQ=="),
                Property::Null,
                text("2024-01-02T00:00:00"),
                Property::Null,
                Property::Integer(12),
                Property::Null,
                Property::Null,
            ],
        ]
    );
}

#[test]
fn a_feature_that_cannot_be_read_keeps_its_neighbours() {
    let package = Package::new("CREATE TABLE t (fid INTEGER PRIMARY KEY, geom POINT, i INTEGER, d DATE, s TEXT)");
    package.layer("t", 0);
    let good = point(1, 0, 1.0, 2.0);
    let mut circular = good.clone();
    circular[8..13].copy_from_slice(&[1, 8, 0, 0, 0]);
    let mut measured = good.clone();
    measured[9..13].copy_from_slice(&2001_u32.to_be_bytes());
    let empty = point(0b1_0001, 0, f64::NAN, f64::NAN);
    for (geometry, integer) in [
        (good.clone(), "1"),
        (circular, "2"),
        (measured, "3"),
        (empty, "4"),
        (point(0b10_0001, 0, 1.0, 2.0), "5"),
        (point(0b1111, 64, 1.0, 2.0), "6"),
        (good[..6].to_vec(), "7"),
        (good[..20].to_vec(), "8"),
        (Vec::new(), "9"),
        (good.clone(), "many"),
        (good, "11"),
    ] {
        package.connection.execute("INSERT INTO t (geom, i) VALUES (?1, ?2)", params![geometry, integer]).unwrap();
    }
    package.connection.execute_batch("INSERT INTO t (i, d) VALUES (12, '2024-13-01')").unwrap();
    package.connection.execute_batch("INSERT INTO t (i, s) VALUES (13, CAST(x'ff' AS TEXT))").unwrap();
    package.connection.execute_batch("INSERT INTO t (geom) VALUES ('POINT (1 2)')").unwrap();
    let mut file = package.open(None).unwrap();
    let bad = bad(&mut file);
    let codes: Vec<_> = bad.iter().map(|bad| (bad.number, bad.code)).collect();
    let expected = [
        (2, "geojson_type"),
        (3, "geojson_measure"),
        (4, "geojson_empty"),
        (5, "gpkg_extended"),
        (6, "gpkg_blob"),
        (7, "gpkg_blob"),
        (8, "wkb_syntax"),
        (9, "gpkg_blob"),
        (10, "value_kind"),
        (12, "value_kind"),
        (13, "text_encoding"),
        (14, "gpkg_blob"),
    ];
    assert_eq!(codes, expected, "{bad:#?}");
    assert_eq!(bad[8].message, "field i: \"many\" is no whole number");
    let original = String::from_utf8(bad[8].bytes.clone()).unwrap();
    assert!(
        original.contains("\"i\":\"many\"") && original.contains("\"fid\":10") && original.contains("4750"),
        "{original}"
    );
}

#[test]
fn several_layers_need_a_name() {
    let package = Package::new(
        "CREATE TABLE \"odd \"\" name\" (fid INTEGER PRIMARY KEY, geom POINT); CREATE TABLE Roads (rowid TEXT, geom LINE);
         CREATE VIEW seen AS SELECT fid AS OGC_FID, geom, 5 AS five FROM \"odd \"\" name\";
         INSERT INTO \"odd \"\" name\" VALUES (1, NULL), (2, NULL); INSERT INTO Roads VALUES ('a', NULL);
         INSERT INTO gpkg_contents VALUES ('notes', 'attributes', 'notes', 0)",
    );
    for name in ["odd \" name", "Roads", "seen", "gone"] {
        package.layer(name, 101);
    }
    let error = package.open(None).err().unwrap();
    assert_eq!(error.code(), "layer_ambiguous");
    assert_eq!(error.message(), "the GeoPackage has 4 layers: odd \" name, Roads, seen, gone");
    for (name, count, fields) in [("odd \" name", 2, ""), ("roads", 1, "rowid"), ("seen", 2, "five")] {
        let mut file = package.open(Some(name)).unwrap();
        let names: Vec<_> = file.layer.fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names.join(","), fields);
        assert_eq!(file.layer.crs, Declared::Unknown("LOCAL_CS[\"here\"]".to_owned()));
        assert_eq!(rows(&mut file).len(), count, "{name}");
    }
    assert_eq!(package.open(Some("notes")).err().unwrap().code(), "layer_unknown");
    assert_eq!(package.open(Some("gone")).err().unwrap().code(), "gpkg_layer");
}

#[test]
fn a_count_that_cannot_be_is_not_believed() {
    let package = Package::new(
        "CREATE TABLE t (fid INTEGER PRIMARY KEY, geom POINT); INSERT INTO t VALUES (1, NULL), (9, NULL);
         INSERT INTO gpkg_ogr_contents VALUES ('t', 9223372036854775807)",
    );
    package.layer("t", 4711);
    let file = package.open(None).unwrap();
    assert_eq!(file.layer.features, None);
    assert_eq!(file.layer.crs, Declared::Unknown("number 4711, which the GeoPackage does not define".to_owned()));
}

#[test]
fn a_view_that_calls_itself_is_refused() {
    let package = Package::new(
        "CREATE VIEW t AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i, NULL AS geom FROM n",
    );
    package.layer("t", 0);
    let error = package.open(None).map(|mut file| file.rows.next().err()).err();
    let error = error.or_else(|| package.open(None).unwrap().rows.next().err());
    assert!(error.is_some());
}

#[test]
fn a_reader_that_is_dropped_early_ends_its_thread() {
    let package = Package::new(
        "CREATE TABLE t (fid INTEGER PRIMARY KEY, geom POINT, s TEXT);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
         INSERT INTO t SELECT i, NULL, hex(randomblob(50)) FROM n",
    );
    package.layer("t", 0);
    let mut file = package.open(None).unwrap();
    assert!(file.rows.next().unwrap().is_some());
    drop(file);
    assert_eq!(rows(&mut package.open(None).unwrap()).len(), 20_000);
}

#[test]
fn what_waits_in_a_journal_is_read_and_nothing_is_left_beside_the_file() {
    let package = Package::new("PRAGMA journal_mode = WAL; CREATE TABLE t (fid INTEGER PRIMARY KEY, geom POINT)");
    package.layer("t", 0);
    package.connection.execute_batch("INSERT INTO t VALUES (1, NULL), (2, NULL)").unwrap();
    let mut file = package.open(None).unwrap();
    assert_eq!(file.parts.len(), 2);
    assert_eq!(rows(&mut file).len(), 2);
    drop(file);

    let Package { folder, connection } = package;
    connection.close().unwrap();
    let mut file = open(&folder.path().join("a %3F?#ü.gpkg"), &Options::default()).unwrap();
    assert_eq!(rows(&mut file).len(), 2);
    assert_eq!(file.parts.len(), 1);
    drop(file);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn files_that_are_no_geopackages_are_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.gpkg");
    let code = || open(&path, &Options::default()).err().unwrap().code();
    assert_eq!(code(), "file_unreadable");
    std::fs::write(&path, "SQLite format 3, or so it says, and then some more text that is no such thing at all")
        .unwrap();
    assert_eq!(code(), "gpkg_not_sqlite");
    std::fs::remove_file(&path).unwrap();
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    assert_eq!(code(), "gpkg_not_geopackage");
    assert_eq!(Package::new("").open(None).err().unwrap().code(), "gpkg_no_layer");
}

#[test]
fn damaged_files_end_with_an_error_or_the_end_and_never_for_ever() {
    let mut script = String::from("CREATE TABLE t (fid INTEGER PRIMARY KEY, geom POINT, s TEXT);");
    for id in 0..300 {
        write!(script, "INSERT INTO t VALUES ({id}, NULL, '{}');", "x".repeat(40)).unwrap();
    }
    let package = Package::new(&script);
    package.layer("t", 0);
    let whole = std::fs::read(package.path()).unwrap();
    let path = package.folder.path().join("damaged.gpkg");
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % below as u64).unwrap()
    };
    let mut refused = 0;
    for round in 0..400 {
        let mut bytes = whole.clone();
        if round % 4 == 0 {
            bytes.truncate(next(whole.len()));
        }
        for _ in 0..=next(8) {
            if !bytes.is_empty() {
                let at = next(bytes.len());
                bytes[at] = u8::try_from(next(256)).unwrap();
            }
        }
        std::fs::write(&path, bytes).unwrap();
        let Ok(mut file) = open(&path, &Options::default()) else {
            refused += 1;
            continue;
        };
        let mut count = 0;
        while let Ok(Some(_)) = file.rows.next() {
            count += 1;
            assert!(count < 100_000);
        }
    }
    assert!(refused > 0);
}
