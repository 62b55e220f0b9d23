//! Files that `ogr2ogr` writes here, read by us and by it.

use crate::ogr::{self, differences, items, ogr2ogr, open};
use geonce_files::{Declared, FieldKind, File, Item, Options, content};
use geonce_key::Property;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Features with everything that a table may hold: null geometries, dates, 64-bit ids, text beyond ASCII.
fn source(folder: &Path, geometries: &[&str]) -> PathBuf {
    let feature = |(i, geometry): (usize, &&str)| {
        let id = 9_007_199_254_740_993_i64 + i64::try_from(i).unwrap();
        let name = ["Zürich", "Łódź", "", "München"][i % 4];
        let real = [1.5, -0.25, 1e10, 0.0][i % 4];
        format!(
            r#"{{"type":"Feature","properties":{{"id":{id},"name":"{name}","real":{real},"day":"2024-02-2{i}","small":{i},"none":null}},"geometry":{geometry}}}"#
        )
    };
    let features: Vec<String> = geometries.iter().enumerate().map(feature).collect();
    let path = folder.join("source.geojson");
    fs::write(&path, format!(r#"{{"type":"FeatureCollection","features":[{}]}}"#, features.join(","))).unwrap();
    path
}

fn shapefile(folder: &TempDir, geometries: &[&str], options: &[&str]) -> PathBuf {
    let source = source(folder.path(), geometries);
    let out = folder.path().join("out.shp");
    let mut arguments = vec!["-f", "ESRI Shapefile", out.to_str().unwrap(), source.to_str().unwrap()];
    arguments.extend(options);
    ogr2ogr(&arguments);
    out
}

fn values(file: &mut File, name: &str) -> Vec<Property> {
    let place = file.layer.fields.iter().position(|field| field.name == name).unwrap();
    let value = |item: Item| match item {
        Item::Row(row) => row.values[place].clone(),
        Item::Bad(bad) => panic!("{bad:?}"),
    };
    items(file).into_iter().map(value).collect()
}

const POINTS: [&str; 3] = [
    r#"{"type":"Point","coordinates":[13.4,52.5]}"#,
    "null",
    r#"{"type":"Point","coordinates":[-0.1,51.123456789012345]}"#,
];

#[test]
fn shapefiles_of_every_type_read_as_gdal_reads_them() {
    let polygon =
        r#"{"type":"Polygon","coordinates":[[[0,0],[10,0],[10,10],[0,10],[0,0]],[[1,1],[1,2],[2,2],[2,1],[1,1]]]}"#;
    let islands = r#"{"type":"MultiPolygon","coordinates":[[[[0,0],[10,0],[10,10],[0,10],[0,0]],[[1,1],[1,8],[8,8],[8,1],[1,1]]],[[[2,2],[3,2],[3,3],[2,2]]]]}"#;
    let lines = r#"{"type":"MultiLineString","coordinates":[[[0,0],[1,1]],[[2,2],[3,3],[4,4]]]}"#;
    let points = r#"{"type":"MultiPoint","coordinates":[[0,0],[1,1]]}"#;
    let line = r#"{"type":"LineString","coordinates":[[0.1,0.2],[1,1]]}"#;
    for (geometries, kind) in [
        (&POINTS[..], "POINT"),
        (&[polygon, islands, "null"], "POLYGON"),
        (&[line, lines], "LINESTRING"),
        (&[points], "MULTIPOINT"),
    ] {
        for dimension in ["", "Z", "M", "ZM"] {
            let folder = tempfile::tempdir().unwrap();
            let option = format!("SHPT={}{dimension}", if kind == "LINESTRING" { "ARC" } else { kind });
            let path = shapefile(&folder, geometries, &["-lco", &option, "-nlt", &format!("{kind}{dimension}")]);
            // GDAL gives M values, which are left out here.
            let found = ogr::differences_in(&path, Some(if dimension.contains('Z') { "XYZ" } else { "XY" }));
            assert!(found.is_empty(), "{option}: {found:#?}");
            assert_eq!(
                open(&path).layer.notices.iter().any(|notice| notice.contains("M values")),
                dimension.contains('M'),
                "{option}"
            );
        }
    }
}

#[test]
fn ids_of_64_bits_stay_whole_and_dates_are_dates() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = open(&shapefile(&folder, &POINTS, &[]));
    assert_eq!((&file.layer.crs, file.layer.features), (&Declared::Code(4326), Some(3)));
    let kinds: Vec<(&str, FieldKind)> =
        file.layer.fields.iter().map(|field| (field.name.as_str(), field.kind)).collect();
    let expected = [
        ("id", FieldKind::Integer),
        ("name", FieldKind::Text),
        ("real", FieldKind::Real),
        ("day", FieldKind::Date),
        ("small", FieldKind::Integer),
        ("none", FieldKind::Text),
    ];
    assert_eq!(kinds, expected);
    let ids = [9_007_199_254_740_993, 9_007_199_254_740_994, 9_007_199_254_740_995].map(Property::Integer);
    assert_eq!(values(&mut file, "id"), ids);
    let days = ["2024-02-20", "2024-02-21", "2024-02-22"].map(|day| Property::Text(day.to_owned()));
    assert_eq!(values(&mut open(&folder.path().join("out.shp")), "day"), days);
}

#[test]
fn text_is_read_by_the_cpg_the_language_driver_or_what_the_caller_says() {
    for encoding in ["UTF-8", "ISO-8859-1", "CP1250", "CP852"] {
        let folder = tempfile::tempdir().unwrap();
        let path = shapefile(&folder, &POINTS[..1], &["-lco", &format!("ENCODING={encoding}")]);
        assert_eq!(values(&mut open(&path), "name"), [Property::Text("Zürich".to_owned())], "{encoding}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = shapefile(&folder, &POINTS[..1], &["-lco", "ENCODING=ISO-8859-1"]);
    let _ = fs::remove_file(path.with_extension("cpg"));
    let dbf = path.with_extension("dbf");
    let mut bytes = fs::read(&dbf).unwrap();
    bytes[29] = 0;
    fs::write(&dbf, &bytes).unwrap();
    let mut file = open(&path);
    assert!(
        file.layer.notices.iter().any(|notice| notice.contains("windows-1252 was assumed")),
        "{:?}",
        file.layer.notices
    );
    assert_eq!(values(&mut file, "name"), [Property::Text("Zürich".to_owned())]);
    let options = Options { encoding: Some("ISO-8859-5".to_owned()), ..Options::default() };
    assert_eq!(
        values(&mut geonce_files::open(&path, &options).unwrap(), "name"),
        [Property::Text("Zќrich".to_owned())]
    );
}

#[test]
fn a_set_without_its_sidecars_is_read_and_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let path = shapefile(&folder, &POINTS, &[]);
    for extension in ["shx", "prj", "dbf"] {
        fs::remove_file(path.with_extension(extension)).unwrap();
        let upper = folder.path().join("out.SHP");
        fs::rename(&path, &upper).unwrap();
        let mut file = open(&upper);
        assert_eq!(items(&mut file).len(), 3, "{extension}");
        fs::rename(&upper, &path).unwrap();
    }
    let file = open(&path);
    assert_eq!((&file.layer.crs, file.layer.fields.len(), file.parts.len()), (&Declared::Nothing, 0, 1));
    assert!(file.layer.notices.iter().any(|notice| notice.contains("no .shx")), "{:?}", file.layer.notices);
    assert!(file.layer.notices.iter().any(|notice| notice.contains("no .dbf")), "{:?}", file.layer.notices);
}

#[test]
fn deleted_records_are_no_features() {
    let folder = tempfile::tempdir().unwrap();
    let path = shapefile(&folder, &POINTS, &[]);
    let dbf = path.with_extension("dbf");
    let mut bytes = fs::read(&dbf).unwrap();
    let (header, record) =
        (usize::from(bytes[8]) + 256 * usize::from(bytes[9]), usize::from(bytes[10]) + 256 * usize::from(bytes[11]));
    bytes[header + record] = b'*';
    fs::write(&dbf, &bytes).unwrap();
    assert_eq!(open(&path).layer.features, Some(2));
    assert!(differences(&path).is_empty(), "{:#?}", differences(&path));
}

#[test]
fn a_set_that_was_cut_short_is_refused_with_its_name_and_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = shapefile(&folder, &POINTS, &[]);
    for extension in ["shp", "dbf"] {
        let part = path.with_extension(extension);
        let whole = fs::read(&part).unwrap();
        for length in [0, 50, whole.len() / 2, whole.len() - 10] {
            fs::write(&part, &whole[..length]).unwrap();
            let Err(error) = geonce_files::open(&path, &Options::default()) else { panic!("{extension} {length}") };
            assert_eq!(error.code(), "file_truncated", "{error}");
            assert!(error.message().contains(&part.display().to_string()), "{error}");
        }
        fs::write(&part, &whole).unwrap();
    }
}

#[test]
fn zipped_is_the_same_as_unzipped() {
    let folder = tempfile::tempdir().unwrap();
    let path = shapefile(&folder, &POINTS, &[]);
    let zip = folder.path().join("set.zip");
    let script = "import sys,zipfile\nz=zipfile.ZipFile(sys.argv[1],'w',zipfile.ZIP_DEFLATED)\n[z.write(p,'x/'+p.rsplit('/',1)[1]) for p in sys.argv[2:]]";
    let parts = ["shp", "shx", "dbf", "prj", "cpg"].map(|extension| path.with_extension(extension));
    assert!(
        Command::new("python3")
            .args(["-c", script])
            .arg(&zip)
            .args(parts.iter().filter(|part| part.exists()))
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(items(&mut open(&zip)), items(&mut open(&path)));
    assert_eq!(content(&zip, &Options::default()).unwrap(), content(&path, &Options::default()).unwrap());
}

#[test]
fn other_formats_read_as_gdal_reads_them() {
    for (format, name) in [("GeoJSON", "out.geojson"), ("GeoJSONSeq", "out.geojsonl")] {
        let folder = tempfile::tempdir().unwrap();
        let source = source(folder.path(), &POINTS);
        let out = folder.path().join(name);
        ogr2ogr(&["-f", format, out.to_str().unwrap(), source.to_str().unwrap()]);
        let found = differences(&out);
        assert!(found.is_empty(), "{format}: {found:#?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path(), &POINTS);
    let out = folder.path().join("out.csv");
    ogr2ogr(&["-f", "CSV", "-lco", "GEOMETRY=AS_WKT", out.to_str().unwrap(), source.to_str().unwrap()]);
    let (ours, theirs) = (items(&mut open(&out)), items(&mut open(&source)));
    for (a, b) in ours.iter().zip(&theirs) {
        let (Item::Row(a), Item::Row(b)) = (a, b) else { panic!("{a:?} {b:?}") };
        assert!(ogr::same(a.geometry.as_ref(), b.geometry.as_ref()), "{a:?} {b:?}");
        assert_eq!(a.values[0], b.values[0]);
    }
    assert_eq!(ours.len(), 3);
}

#[test]
fn the_texts_that_esri_writes_are_known() {
    for code in [
        2056, 2154, 2180, 2193, 2263, 3006, 3035, 3057, 3059, 3067, 3301, 3346, 3577, 3765, 3794, 3857, 4258, 4269,
        4326, 5070, 7844, 7855, 21781, 25832, 26910, 27700, 28355, 28992, 32633, 32733,
    ] {
        let output = Command::new("gdalsrsinfo")
            .args(["-o", "wkt_esri", "--single-line", &format!("EPSG:{code}")])
            .output()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = shapefile(&folder, &POINTS, &[]);
        fs::write(path.with_extension("prj"), output.stdout.trim_ascii()).unwrap();
        assert_eq!(open(&path).layer.crs, Declared::Code(code), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
