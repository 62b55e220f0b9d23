//! Damaged files: whatever is in them, they are read or refused, never a panic, a hang or memory for what is not there.

use crate::ogr::ogr2ogr;
use geonce_files::{Options, content};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::fs;
use std::path::Path;

/// Reads all there is, if that can be done.
fn read(path: &Path) -> usize {
    let _ = content(path, &Options::default());
    let Ok(mut file) = geonce_files::open(path, &Options::default()) else { return 0 };
    let mut count = 0;
    while let Ok(Some(_)) = file.rows.next() {
        count += 1;
        assert!(count < 100_000, "a few bytes cannot hold so many features");
    }
    count
}

#[derive(Clone, Debug)]
enum Damage {
    Set(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Insert(prop::sample::Index, Vec<u8>),
    Word(prop::sample::Index, u32),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        4 => (at(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        1 => at().prop_map(Damage::Cut),
        1 => (at(), proptest::collection::vec(any::<u8>(), 1..20)).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        3 => (at(), prop_oneof![Just(u32::MAX), Just(0), Just(0x7fff_ffff), any::<u32>()]).prop_map(|(at, word)| Damage::Word(at, word)),
    ]
}

fn damaged(whole: &[u8], damages: &[Damage]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for damage in damages.iter().filter(|_| !whole.is_empty()) {
        match damage {
            _ if bytes.is_empty() => {}
            Damage::Set(at, byte) => {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            Damage::Cut(at) => bytes.truncate(at.index(bytes.len())),
            Damage::Insert(at, more) => {
                let at = at.index(bytes.len());
                bytes.splice(at..at, more.iter().copied());
            }
            Damage::Word(at, word) => {
                let at = at.index(bytes.len()) & !3;
                let end = bytes.len().min(at + 4);
                bytes[at..end].copy_from_slice(&word.to_be_bytes()[..end - at]);
            }
        }
    }
    bytes
}

/// Damages one part of a file at a time and reads the whole.
fn check(path: &Path, parts: &[&str]) {
    assert!(read(path) > 0, "{} cannot be read undamaged", path.display());
    for extension in parts {
        let part = path.with_extension(extension);
        let whole = fs::read(&part).unwrap();
        let mut runner =
            TestRunner::new(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() });
        let result = runner.run(&proptest::collection::vec(damage(), 1..4), |damages| {
            fs::write(&part, damaged(&whole, &damages)).unwrap();
            read(path);
            Ok(())
        });
        result.unwrap();
        fs::write(&part, &whole).unwrap();
    }
}

const SOURCE: &str = r#"{"type":"FeatureCollection","features":[
{"type":"Feature","properties":{"id":1,"name":"a","day":"2024-01-01"},"geometry":{"type":"Polygon","coordinates":[[[0,0,1],[10,0,1],[10,10,1],[0,0,1]],[[1,0.5,1],[2,1,1],[3,1,1],[1,0.5,1]]]}},
{"type":"Feature","properties":{"id":2,"name":"b","day":null},"geometry":null},
{"type":"Feature","properties":{"id":3,"name":"ü","day":"2024-01-03"},"geometry":{"type":"MultiPolygon","coordinates":[[[[0,0,1],[1,0,1],[1,1,1],[0,0,1]]],[[[5,5,1],[6,5,1],[6,6,1],[5,5,1]]]]}}]}"#;

#[test]
fn damaged_files_are_read_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("a.geojson");
    fs::write(&source, SOURCE).unwrap();
    let shp = folder.path().join("set.shp");
    ogr2ogr(&["-f", "ESRI Shapefile", "-lco", "ENCODING=UTF-8", shp.to_str().unwrap(), source.to_str().unwrap()]);
    check(&shp, &["shp", "shx", "dbf", "prj", "cpg"]);
    check(&source, &["geojson"]);
    let csv = folder.path().join("b.csv");
    ogr2ogr(&["-f", "CSV", "-lco", "GEOMETRY=AS_WKT", csv.to_str().unwrap(), source.to_str().unwrap()]);
    check(&csv, &["csv"]);
    let lines = folder.path().join("c.geojsons");
    ogr2ogr(&["-f", "GeoJSONSeq", "-lco", "RS=YES", lines.to_str().unwrap(), source.to_str().unwrap()]);
    check(&lines, &["geojsons"]);
    let zip = folder.path().join("d.zip");
    let mut writer = zip::ZipWriter::new(fs::File::create(&zip).unwrap());
    for extension in ["shp", "dbf"] {
        writer.start_file(format!("x.{extension}"), zip::write::SimpleFileOptions::default()).unwrap();
        std::io::Write::write_all(&mut writer, &fs::read(shp.with_extension(extension)).unwrap()).unwrap();
    }
    writer.finish().unwrap();
    check(&zip, &["zip"]);
}
