//! What the loader asks of a source: its coordinate system, its digest, and whether it is as it was.

use super::{Request, Result, TARGET_CRS};
use crate::error::{Error, Kind};
use geonce_files::{Declared, Format, Item};
use geonce_key::crs;
use std::path::Path;

/// Features that are looked at to say where a file without a coordinate system is.
const BOUNDS_FEATURES_MAX: usize = 1_000;

/// The coordinate system of a file, by the request or by what it says itself. It is never guessed: keys made in the wrong one
/// would never match later ones.
pub(super) fn from_crs(request: &Request, file: &geonce_files::File) -> Result<u32> {
    let refuse = |code, message: String| Err(geonce_files::Error::new(code, message));
    let says = "--src-crs says which one it is, such as EPSG:25832";
    let source = &request.source;
    let code = match (request.source_crs, &file.layer.crs) {
        (Some(code), _) | (None, &Declared::Code(code)) => code,
        (None, Declared::Nothing) if matches!(file.format, Format::GeoJson | Format::GeoJsonSequence) => TARGET_CRS,
        (None, Declared::Nothing) => {
            let whence = if file.format == Format::Shapefile { "has no .prj" } else { "names no coordinate system" };
            let message = format!("{source} {whence}, so its coordinate system is unknown{}", bounds(request));
            return Err(geonce_files::Error::new("crs_missing", message).hint(says).into());
        }
        (None, Declared::Unknown(text)) => {
            let message = format!("{source} is in a coordinate system that is not known: {text}");
            return Err(geonce_files::Error::new("crs_unknown", message).hint(says).into());
        }
    };
    match crs::lookup(code) {
        Some(known) if known.is_approximate() && !request.policy.approximate_crs => {
            let message = format!(
                "{source} is in EPSG:{code}, whose operation to WGS 84 is known only to {} m",
                known.accuracy_m()
            );
            Err(geonce_files::Error::new("crs_approximate", message)
                .hint("--approximate-crs accepts that in words")
                .into())
        }
        Some(known) => Ok(known.code()),
        None => Ok(refuse("crs_unknown", format!("{source}: EPSG:{code} is not a coordinate system of the table"))?),
    }
}

/// Where the first features of a file are, in words.
fn bounds(request: &Request) -> String {
    let Ok(mut file) = geonce_files::open(&request.file, &request.files) else { return String::new() };
    let mut bounds = [f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY, f64::NEG_INFINITY];
    for _ in 0..BOUNDS_FEATURES_MAX {
        let Ok(Some(item)) = file.rows.next() else { break };
        let Item::Row(row) = item else { continue };
        for [x, y, _] in row.geometry.into_iter().flat_map(|shape| shape.positions) {
            bounds = [bounds[0].min(x), bounds[1].max(x), bounds[2].min(y), bounds[3].max(y)];
        }
    }
    let [west, east, south, north] = bounds;
    if west > east {
        return String::new();
    }
    let degrees = west >= -180.0 && east <= 180.0 && south >= -90.0 && north <= 90.0;
    let sort = if degrees { "which may be degrees" } else { "which are not degrees" };
    format!(": x {west} … {east}, y {south} … {north}, {sort}")
}

/// The digest of a file, made on a thread of its own.
pub(super) async fn content(request: &Request) -> Result<[u8; 32]> {
    let (file, options) = (request.file.clone(), request.files.clone());
    let made = tokio::task::spawn_blocking(move || geonce_files::content(&file, &options)).await;
    let made = made.map_err(|error| Error::new(Kind::Internal, "making the digest of a file").because(error))?;
    Ok(made?.sha256)
}

/// When a file was last changed, in milliseconds.
pub(super) fn modified(file: &Path) -> Option<i64> {
    let time = file.metadata().ok()?.modified().ok()?;
    i64::try_from(time.duration_since(std::time::UNIX_EPOCH).ok()?.as_millis()).ok()
}

/// What tells that a file is as it was, without reading it: where it is, its size, its time, its inode, and those of the files
/// beside it that belong to it.
pub(super) fn stamp(file: &Path) -> Option<Vec<u8>> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let stem = file.file_stem()?;
    let mut lines: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(folder).ok()? {
        let path = entry.ok()?.path();
        if path.file_stem() == Some(stem) {
            let about = path.metadata().ok()?;
            let path = path.canonicalize().ok()?;
            lines.push(format!("{} {} {:?} {}", path.display(), about.len(), about.modified().ok()?, inode(&about)));
        }
    }
    lines.sort();
    Some(lines.join("\n").into_bytes())
}

#[cfg(unix)]
fn inode(about: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(about)
}

#[cfg(not(unix))]
fn inode(_: &std::fs::Metadata) -> u64 {
    0
}

pub(super) fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (byte, at) in digest.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
    }
    Some(digest)
}
