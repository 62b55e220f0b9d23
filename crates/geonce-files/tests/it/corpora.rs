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

/// Where we differ: broken records, of which GDAL makes features without geometry, are bad here; a point is whole in the
/// .shp, but cut short in the .shx, which GDAL believes; and a ring outside the first one is a part of its own, as it is for
/// GDAL from 3.8 on.
const KNOWN: &str = "\
buggymultiline.shp: feature 1: shapefile_record: a polyline needs 136 bytes, but its record has 116 at byte 100 of buggymultiline.shp
buggymultipoint.shp: feature 1: shapefile_record: a multipoint needs 88 bytes, but its record has 72 at byte 100 of buggymultipoint.shp
buggymultipoly.shp: feature 1: shapefile_record: a polygon needs 304 bytes, but its record has 296 at byte 100 of buggymultipoly.shp
buggymultipoly2.shp: feature 1: shapefile_record: part 1 of a polygon reaches from position 5 to 5 of 15 at byte 100 of buggymultipoly2.shp
buggypoint.shp: feature 1: POINT (500000 4000000) / none
multipolygon_as_invalid_polygon.shp: feature 1: MULTIPOLYGON (((0 0,0 1,1 1,0 0)),((10 0,11 1,10 1,10 0))) / POLYGON ((0 0,0 1,1 1,0 0),(10 0,11 1,10 1,10 0))
multipolygon_as_invalid_polygon.shp: feature 2: MULTIPOLYGON (((0 0,0 1,1 1,0 0)),((0.5 -0.5,1.5 0.5,0.5 0.5,0.5 -0.5))) / POLYGON ((0 0,0 1,1 1,0 0),(0.5 -0.5,1.5 0.5,0.5 0.5,0.5 -0.5))";

#[test]
fn every_shapefile_reads_as_gdal_reads_it() {
    let mut found = Vec::new();
    for name in ["shp", "naturalearth"] {
        let Some(folder) = corpus(name) else { return };
        for path in files(&folder, &["shp", "dbf"]) {
            if path.extension().unwrap() == "dbf" && path.with_extension("shp").exists() {
                continue;
            }
            for difference in ogr::differences(&path) {
                found.push(format!("{}: {difference}", path.file_name().unwrap().display()));
            }
        }
    }
    let folder = format!(" of {}/", corpus("shp").unwrap().display());
    let found: Vec<String> = found.into_iter().map(|line| line.replace(&folder, " of ")).collect();
    let expected: Vec<&str> = KNOWN.lines().collect();
    assert_eq!(found, expected);
}

/// Where we differ: one file that GDAL cannot read, one whose geometry declares its system inside a collection, one that
/// is no JSON. The file of broken geometries has 28 features, of which all but two are bad here.
const KNOWN_GEOJSON: &str = "\
feature_with_type_Topology_property.json: GDAL cannot read it
srs_name.geojson: feature 1: crs_ambiguous: a member of a collection declares a coordinate system of its own at /geometries/0/crs
stac_item.json: json_syntax";

#[test]
fn every_geojson_file_reads_as_gdal_reads_it_or_is_refused() {
    let Some(folder) = corpus("geojson") else { return };
    let (mut found, mut broken) = (Vec::new(), 0);
    for path in files(&folder.join("gdal"), &["json", "geojson"]) {
        let name = path.file_name().unwrap().display().to_string();
        let differences = match geonce_files::open(&path, &geonce_files::Options::default()) {
            Err(error) => vec![error.code().to_owned()],
            Ok(_) => ogr::differences(&path),
        };
        // Fields of mixed kinds are text for GDAL, and each value what it is here: only geometries are compared.
        for difference in
            differences.into_iter().filter(|difference| !difference.contains(", ") || difference.contains(": "))
        {
            match name.as_str() {
                "ogr_geojson_14.geojson" => broken += 1,
                _ if difference.starts_with("feature ") && difference.split(": ").next().unwrap().contains(", ") => {}
                _ => found.push(format!("{name}: {difference}")),
            }
        }
    }
    assert_eq!(found, KNOWN_GEOJSON.lines().collect::<Vec<_>>());
    assert_eq!(broken, 26);
}
