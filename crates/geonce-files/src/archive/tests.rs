//! Archives, well meant and otherwise.

use super::{Packed, SMALL_BYTES};
use crate::{Error, File, Format, Options};
use std::fs;
use std::io::Write as _;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

const POINT: &[u8] = br#"{"type":"Point","coordinates":[1,2]}"#;

fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in entries {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn opened(bytes: &[u8], options: &Options) -> Result<File, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.zip");
    fs::write(&path, bytes).unwrap();
    crate::open(&path, options)
}

fn code(bytes: &[u8]) -> &'static str {
    opened(bytes, &Options::default()).err().unwrap().code()
}

#[test]
fn the_one_file_of_a_known_format_is_read() {
    let bytes =
        archive(&[("readme.txt", b"hello"), ("data/zones.geojson", POINT), ("__MACOSX/data/zones.geojson", b"x")]);
    let mut file = opened(&bytes, &Options::default()).unwrap();
    assert_eq!((file.format, file.layer.name.as_str(), file.parts.len()), (Format::GeoJson, "zones", 1));
    assert!(file.rows.next().unwrap().is_some());
    assert!(file.rows.next().unwrap().is_none());
}

#[test]
fn several_files_are_refused_unless_one_is_named() {
    let bytes = archive(&[("a.geojson", POINT), ("b.geojson", POINT)]);
    let error = opened(&bytes, &Options::default()).err().unwrap();
    assert_eq!(error.code(), "layer_ambiguous");
    assert!(error.message().contains("a, b"), "{error}");
    let options = Options { layer: Some("b".to_owned()), ..Options::default() };
    assert_eq!(opened(&bytes, &options).unwrap().layer.name, "b");
}

#[test]
fn archives_that_mean_harm_or_hold_nothing_are_refused() {
    for name in ["../a.geojson", "/etc/a.geojson", "x/../../a.geojson", "..\\a.geojson", "C:\\a.geojson"] {
        assert_eq!(code(&archive(&[(name, POINT)])), "zip_unsafe", "{name}");
    }
    assert_eq!(code(&archive(&[("inner.zip", &archive(&[("a.geojson", POINT)]))])), "zip_nested");
    assert_eq!(code(&archive(&[("readme.txt", b"hello")])), "format_unknown");
    assert_eq!(code(&archive(&[])), "format_unknown");
    let whole = archive(&[("a.geojson", POINT)]);
    assert_eq!(code(&whole[..whole.len() - 10]), "zip_damaged");
    let mut encrypted = whole.clone();
    let central = whole.windows(4).position(|bytes| bytes == b"PK\x01\x02").unwrap();
    encrypted[6] |= 1;
    encrypted[central + 8] |= 1;
    assert_eq!(code(&encrypted), "zip_encrypted");
    let mut flipped = whole;
    flipped[45] ^= 0x40;
    assert_eq!(code(&flipped), "zip_damaged");
}

#[test]
fn a_bomb_is_refused_before_it_goes_off() {
    let blank = vec![b' '; usize::try_from(SMALL_BYTES).unwrap() + 1];
    assert_eq!(code(&archive(&[("a.geojson", &blank)])), "zip_too_large");
}

#[test]
fn an_entry_that_is_longer_than_it_says_is_refused() {
    let mut bytes = archive(&[("a.geojson", POINT)]);
    let central = bytes.windows(4).position(|four| four == b"PK\x01\x02").unwrap();
    bytes[central + 24] -= 10;
    bytes[22] -= 10;
    assert_eq!(code(&bytes), "zip_damaged");
}

#[test]
fn a_set_takes_the_parts_beside_it_and_no_others() {
    let entries: [(&str, &[u8]); 5] =
        [("d/A.SHP", b"s"), ("d/A.DBF", b"d"), ("d/b.dbf", b"x"), ("A.prj", b"x"), ("d/A.shp.xml", b"x")];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.zip");
    fs::write(&path, archive(&entries)).unwrap();
    let packed = Packed::open(&path, &Options::default()).unwrap();
    let extensions: Vec<&str> = packed.members.iter().map(|(extension, _)| extension.as_str()).collect();
    assert_eq!(extensions, ["shp", "dbf"]);
}
