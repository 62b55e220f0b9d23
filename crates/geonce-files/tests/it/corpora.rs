//! Public test data, compared with GDAL file by file.

use crate::ogr;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The folder of one corpus, or `None` where there is none to be had.
fn corpus(name: &str) -> Option<PathBuf> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpora");
    let folder = std::env::var_os("GEONCE_CORPORA").map_or(default, PathBuf::from).join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    let required = std::env::var_os("GEONCE_REQUIRE_CORPORA").is_some_and(|value| value == "1");
    assert!(!required, "GEONCE_REQUIRE_CORPORA=1, but {} is no folder", folder.display());
    // Not eprintln, which the test harness keeps to itself; in one piece, because tests run side by side.
    let notice = format!("left out: the corpus {name} is not at {}\n", folder.display());
    let _ = std::io::stderr().write_all(notice.as_bytes());
    None
}

fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let is_one = |path: &PathBuf| path.extension().is_some_and(|found| extensions.iter().any(|one| found == *one));
    let mut found: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(is_one).collect();
    found.sort();
    assert!(!found.is_empty(), "{} holds no data", folder.display());
    found
}

#[test]
fn every_shapefile_reads_as_gdal_reads_it() {
    let mut found = Vec::new();
    for name in ["shp", "naturalearth"] {
        let Some(folder) = corpus(name) else { return };
        for path in files(&folder, &["shp", "dbf"]) {
            for difference in ogr::differences(&path) {
                found.push(format!("{}: {difference}", path.file_name().unwrap().display()));
            }
        }
    }
    panic!("{}", found.join("\n"));
}
