//! Which format a file has: by its name, and by its first bytes where the name does not say.

use crate::{Error, Format, Options, Result};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// How a file is packed and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// As it is.
    Plain(Format),
    /// In a zip archive.
    Zip,
}

/// First bytes that are looked at.
const SNIFFED_BYTES: usize = 512;

const KNOWN: &str = "known are .shp (also in .zip), .gpkg, .geojson, .ndjson, .geojsonl, .fgb, .csv, .parquet";

/// What a file is; what the options say wins over its name, and its name over its first bytes, but a zip archive is one
/// whatever it is called.
pub(crate) fn kind(path: &Path, options: &Options) -> Result<Kind> {
    let first = first_bytes(path)?;
    if first.starts_with(b"PK\x03\x04") || first.starts_with(b"PK\x05\x06") {
        return Ok(Kind::Zip);
    }
    if let Some(format) = options.format {
        return Ok(Kind::Plain(format));
    }
    let found = by_name(path).or_else(|| by_bytes(&first));
    found.map(Kind::Plain).ok_or_else(|| {
        Error::new("format_unknown", format!("{}: the format cannot be told", path.display())).hint(KNOWN)
    })
}

fn first_bytes(path: &Path) -> Result<Vec<u8>> {
    let mut first = Vec::new();
    let mut file = open(path)?;
    (&mut file).take(SNIFFED_BYTES as u64).read_to_end(&mut first).map_err(|error| unreadable(path, &error))?;
    Ok(first)
}

/// Opens a file for reading; folders and devices are no files.
pub(crate) fn open(path: &Path) -> Result<File> {
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let metadata = file.metadata().map_err(|error| unreadable(path, &error))?;
    if !metadata.is_file() {
        return Err(Error::new("io", format!("{} is not a file", path.display())));
    }
    Ok(file)
}

/// A file that the system does not let us read.
pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Error {
    Error::new("io", format!("{} cannot be read: {error}", path.display()))
}

/// The extension in lower case, or nothing.
pub(crate) fn extension(path: &Path) -> String {
    path.extension().and_then(|extension| extension.to_str()).unwrap_or_default().to_ascii_lowercase()
}

/// The format that a name promises.
pub(crate) fn by_name(path: &Path) -> Option<Format> {
    Some(match extension(path).as_str() {
        "geojson" | "json" => Format::GeoJson,
        "ndjson" | "jsonl" | "geojsonl" | "geojsons" | "geojsonseq" | "ldjson" => Format::GeoJsonSequence,
        "shp" | "shx" | "dbf" => Format::Shapefile,
        "gpkg" => Format::GeoPackage,
        "fgb" => Format::FlatGeobuf,
        "csv" | "tsv" => Format::Csv,
        "parquet" | "geoparquet" => Format::GeoParquet,
        _ => return None,
    })
}

fn by_bytes(first: &[u8]) -> Option<Format> {
    let text = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(first);
    match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
        _ if first.starts_with(b"SQLite format 3\0") => Some(Format::GeoPackage),
        _ if first.starts_with(b"fgb\x03") => Some(Format::FlatGeobuf),
        _ if first.starts_with(b"PAR1") => Some(Format::GeoParquet),
        _ if first.starts_with(&[0, 0, 0x27, 0x0a]) => Some(Format::Shapefile),
        Some(b'{') => Some(Format::GeoJson),
        Some(0x1e) => Some(Format::GeoJsonSequence),
        _ => None,
    }
}
