//! What GDAL reads from a file, as rows to compare with ours.

use geonce_files::{File, Item, Options};
use geonce_key::{Limits, Property, Shape, wkt};
use std::path::Path;
use std::process::Command;

/// A feature as GDAL writes it: its geometry, and its values as text by name.
pub(crate) struct Feature {
    pub(crate) geometry: Option<Shape<f64>>,
    pub(crate) values: Vec<(String, String)>,
}

/// Runs `ogr2ogr`, which must succeed.
pub(crate) fn ogr2ogr(arguments: &[&str]) {
    let output = Command::new("ogr2ogr").args(arguments).output().unwrap();
    assert!(output.status.success(), "ogr2ogr {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The features of a file by GDAL, or what it complains about; `dimensions` such as `XY` where M values are not wanted.
pub(crate) fn features(path: &Path, dimensions: Option<&str>) -> Result<Vec<Feature>, String> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.csv");
    let output = Command::new("ogr2ogr")
        .args(["-f", "CSV", "-lco", "GEOMETRY=AS_WKT", "-lco", "STRING_QUOTING=ALWAYS"])
        .args(dimensions.iter().flat_map(|dimensions| ["-dim", dimensions]))
        .args([out.as_path(), path])
        .output()
        .unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_path(&out).unwrap();
    let names: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    let limits = Limits::default();
    let feature = |record: csv::StringRecord| {
        let mut feature = Feature { geometry: None, values: Vec::new() };
        for (name, value) in names.iter().zip(record.iter()) {
            match name.as_str() {
                "WKT" if value.is_empty() || value.contains("EMPTY") => {}
                "WKT" => feature.geometry = Some(wkt::read(value.as_bytes(), &limits).unwrap().shape),
                _ => feature.values.push((name.clone(), value.to_owned())),
            }
        }
        feature
    };
    Ok(reader.records().map(|record| feature(record.unwrap())).collect())
}

/// Opens a file with nothing said about it.
pub(crate) fn open(path: &Path) -> File {
    geonce_files::open(path, &Options::default()).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All items of a file.
pub(crate) fn items(file: &mut File) -> Vec<Item> {
    std::iter::from_fn(|| file.rows.next().unwrap_or_else(|error| panic!("{error}"))).collect()
}

/// Whether two shapes have the same structure, and ordinates that agree to the fifteen digits that GDAL writes.
pub(crate) fn same(ours: Option<&Shape<f64>>, theirs: Option<&Shape<f64>>) -> bool {
    let (Some(ours), Some(theirs)) = (ours, theirs) else { return ours.is_none() && theirs.is_none() };
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-14 * a.abs().max(b.abs()).max(1.0);
    (ours.has_z, &ours.members, &ours.parts, &ours.paths)
        == (theirs.has_z, &theirs.members, &theirs.parts, &theirs.paths)
        && ours.positions.len() == theirs.positions.len()
        && ours.positions.iter().zip(&theirs.positions).all(|(a, b)| (0..3).all(|axis| near(a[axis], b[axis])))
}

/// Whether a value is what GDAL wrote for it.
pub(crate) fn same_value(ours: &Property, theirs: &str) -> bool {
    match ours {
        Property::Null => theirs.is_empty(),
        Property::Integer(number) => {
            let (whole, fraction) = theirs.split_once('.').unwrap_or((theirs, ""));
            whole.parse() == Ok(*number) && fraction.bytes().all(|digit| digit == b'0')
        }
        Property::Real(number) => {
            theirs.parse::<f64>().is_ok_and(|other| (other - number).abs() <= 1e-12 * number.abs())
        }
        Property::Boolean(value) => matches!((value, theirs), (true, "1" | "T") | (false, "0" | "F")),
        Property::Text(text) => text == theirs || text.replace('-', "/") == theirs,
        Property::Json(text) => text == theirs,
    }
}

/// Compares all that both read, and answers what differs.
pub(crate) fn differences(path: &Path) -> Vec<String> {
    differences_in(path, None)
}

/// The same, in these dimensions.
pub(crate) fn differences_in(path: &Path, dimensions: Option<&str>) -> Vec<String> {
    let mut file = open(path);
    let ours = items(&mut file);
    let Ok(theirs) = features(path, dimensions) else { return vec!["GDAL cannot read it".to_owned()] };
    let mut found = Vec::new();
    if ours.len() != theirs.len() {
        found.push(format!("{} features, GDAL has {}", ours.len(), theirs.len()));
    }
    for (item, feature) in ours.iter().zip(&theirs) {
        match item {
            Item::Bad(bad) => found.push(format!("feature {}: {}: {}", bad.number, bad.code, bad.message)),
            Item::Row(row) => {
                if !same(row.geometry.as_ref(), feature.geometry.as_ref()) {
                    let text = |shape: &Option<Shape<f64>>| shape.as_ref().map_or("none".to_owned(), wkt::write);
                    found.push(format!(
                        "feature {}: {} / {}",
                        row.number,
                        text(&row.geometry),
                        text(&feature.geometry)
                    ));
                }
                for (field, value) in file.layer.fields.iter().zip(&row.values) {
                    let other =
                        feature.values.iter().find(|(name, _)| *name == field.name).map(|(_, value)| value.as_str());
                    if !other.is_some_and(|other| same_value(value, other)) {
                        found.push(format!("feature {}, {}: {value:?} / {other:?}", row.number, field.name));
                    }
                }
            }
        }
    }
    found
}
