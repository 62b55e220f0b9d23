//! What changes a digest, and what does not.

use crate::{Content, Options, content};
use std::fs;
use std::io::Write as _;
use std::path::Path;

const DBF: &[u8] = b"\x03\x74\x05\x01 the rest of it";

fn set(extra: &[(&str, &[u8])]) -> Content {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a", extra);
    content(&folder.path().join("a.shp"), &Options::default()).unwrap()
}

fn write(folder: &Path, stem: &str, extra: &[(&str, &[u8])]) {
    let parts: [(&str, &[u8]); 3] = [("shp", b"\0\0\x27\x0ashapes"), ("dbf", DBF), ("prj", b"PROJCS[]")];
    for (extension, bytes) in parts.iter().chain(extra) {
        fs::write(folder.join(format!("{stem}.{extension}")), bytes).unwrap();
    }
}

#[test]
fn sidecars_and_dates_that_change_nothing_leave_the_digest_alone() {
    let plain = set(&[]);
    let mut dated = DBF.to_vec();
    dated[1..4].copy_from_slice(&[1, 2, 3]);
    for extra in [
        ("shx", &b"index"[..]),
        ("sbn", b"x"),
        ("qix", b"x"),
        ("shp.xml", b"x"),
        ("qmd", b"x"),
        ("dbf", &dated),
        ("prj", b"\xef\xbb\xbfPROJCS[]\r\n\0"),
        ("cpg", b" \n"),
    ] {
        assert_eq!(set(&[extra]).sha256, plain.sha256, "{extra:?}");
    }
    assert_eq!(set(&[("cpg", b"UTF-8")]).sha256, set(&[("cpg", b"utf-8\n")]).sha256);
}

#[test]
fn everything_that_is_read_counts() {
    let plain = set(&[]);
    let mut late = DBF.to_vec();
    late[4] ^= 1;
    for extra in
        [("shp", &b"\0\0\x27\x0ashapez"[..]), ("dbf", &late), ("prj", b"GEOGCS[]"), ("prj", b""), ("cpg", b"UTF-8")]
    {
        assert_ne!(set(&[extra]).sha256, plain.sha256, "{extra:?}");
    }
}

#[test]
fn packed_and_renamed_is_the_same_content() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "Other", &[("cpg", b"UTF-8"), ("shx", b"index")]);
    let path = folder.path().join("any.zip");
    let mut writer = zip::ZipWriter::new(fs::File::create(&path).unwrap());
    for extension in ["shx", "prj", "dbf", "cpg", "shp"] {
        writer
            .start_file(format!("deep/Other.{}", extension.to_uppercase()), zip::write::SimpleFileOptions::default())
            .unwrap();
        writer.write_all(&fs::read(folder.path().join(format!("Other.{extension}"))).unwrap()).unwrap();
    }
    writer.finish().unwrap();
    let unpacked = set(&[("cpg", b"UTF-8")]);
    assert_eq!(content(&path, &Options::default()).unwrap(), unpacked);
    assert_eq!(content(&folder.path().join("Other.shp"), &Options::default()).unwrap(), unpacked);
}

#[test]
fn any_other_file_is_its_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.geojson");
    fs::write(&path, b"abc").unwrap();
    let found = content(&path, &Options::default()).unwrap();
    assert_eq!((found.bytes, &found.sha256[..4]), (3, &[0xba, 0x78, 0x16, 0xbf][..]));
}
