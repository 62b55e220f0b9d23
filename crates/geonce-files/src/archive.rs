//! Zip archives: the one shapefile set or file of a known format in them, unpacked into a private folder that goes with the
//! rows, or only read through.
//!
//! Names in an archive never become paths here; those that try to leave a folder are refused all the same, because whoever
//! wrote them meant harm. Entries, bytes and the ratio of packing have limits. No archive is looked for in an archive.

use crate::sniff::{self, unreadable};
use crate::{Error, File, Format, Item, Options, Result, Rows};
use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use tempfile::TempDir;
use zip::ZipArchive;
use zip::read::ZipFile;

/// Entries of an archive that are looked at.
const ENTRIES_MAX: usize = 10_000;
/// Bytes that a set may have unpacked.
const UNPACKED_BYTES_MAX: u64 = 16 << 30;
/// So many times as large as the archive may a set be unpacked, unless it is small.
const RATIO_MAX: u64 = 300;
const SMALL_BYTES: u64 = 64 << 20;

/// Parts of a shapefile that matter.
const SET: [&str; 5] = ["shp", "shx", "dbf", "prj", "cpg"];

/// A layer in an archive.
pub(crate) struct Packed {
    path: PathBuf,
    archive: ZipArchive<fs::File>,
    /// The name without folder and extension.
    stem: String,
    /// The entries that it consists of, by extension, the one that names it first.
    members: Vec<(String, usize)>,
    pub(crate) format: Format,
    /// Whether the options' layer was used up to choose among several.
    chosen: bool,
}

struct Entry {
    index: usize,
    /// Folder and stem.
    base: String,
    extension: String,
}

impl Packed {
    /// Finds what is to be read in an archive.
    pub(crate) fn open(path: &Path, options: &Options) -> Result<Packed> {
        let mut archive = ZipArchive::new(sniff::open(path)?).map_err(|error| damaged(path, &error.to_string()))?;
        let entries = entries(path, &mut archive)?;
        let mut sets: Vec<&Entry> = entries.iter().filter(|entry| entry.extension == "shp").collect();
        let mut chosen = false;
        if sets.is_empty() {
            let known = |entry: &&Entry| sniff::by_name(Path::new(&format!("a.{}", entry.extension))).is_some();
            sets = entries
                .iter()
                .filter(known)
                .filter(|entry| !matches!(entry.extension.as_str(), "shx" | "dbf"))
                .collect();
        }
        if sets.len() > 1 {
            let wanted = |entry: &&Entry| Some(stem(&entry.base)) == options.layer.as_deref();
            let named: Vec<&Entry> = sets.iter().copied().filter(wanted).collect();
            if named.len() != 1 {
                return Err(several(path, &sets));
            }
            (sets, chosen) = (named, true);
        }
        let Some(main) = sets.first() else { return Err(nothing(path, &entries)) };
        let format = options.format.or_else(|| sniff::by_name(Path::new(&format!("a.{}", main.extension))));
        let Some(format) = format else { return Err(nothing(path, &entries)) };
        let mut members = vec![(main.extension.clone(), main.index)];
        if main.extension == "shp" {
            let beside = |entry: &&Entry| entry.base == main.base && entry.extension != "shp";
            let others = entries.iter().filter(beside).filter(|entry| SET.contains(&entry.extension.as_str()));
            members.extend(others.map(|entry| (entry.extension.clone(), entry.index)));
            members.sort_by_key(|(extension, _)| SET.iter().position(|one| one == extension));
            members.dedup_by(|a, b| a.0 == b.0);
        }
        let stem = stem(&main.base).to_owned();
        let mut packed = Packed { path: path.to_owned(), archive, stem, members, format, chosen };
        packed.check()?;
        Ok(packed)
    }

    /// Refuses what is encrypted, or larger than its archive lets expect.
    fn check(&mut self) -> Result<()> {
        let archive_bytes = fs::metadata(&self.path).map_err(|error| unreadable(&self.path, &error))?.len();
        let allowed = UNPACKED_BYTES_MAX.min(SMALL_BYTES.max(archive_bytes.saturating_mul(RATIO_MAX)));
        let mut stated = 0_u64;
        for &(_, index) in &self.members {
            let entry = self.archive.by_index_raw(index).map_err(|error| damaged(&self.path, &error.to_string()))?;
            if entry.encrypted() {
                return Err(refuse(&self.path, "zip_encrypted", "is encrypted").hint("unpack it first"));
            }
            stated = stated.saturating_add(entry.size());
        }
        if stated > allowed {
            let what = format!("has {archive_bytes} bytes, but {stated} unpacked: it may be a bomb");
            return Err(refuse(&self.path, "zip_too_large", &what).hint("unpack it first if it is to be trusted"));
        }
        Ok(())
    }

    /// Reads the members one after another: extension, and the bytes, no more than the archive says there are.
    pub(crate) fn each(&mut self, mut each: impl FnMut(&str, &mut (dyn Read + Send)) -> io::Result<()>) -> Result<()> {
        for (extension, index) in &self.members {
            let failed = |error: &dyn std::fmt::Display| damaged(&self.path, &error.to_string());
            let entry: ZipFile<'_, fs::File> = self.archive.by_index(*index).map_err(|error| failed(&error))?;
            let stated = entry.size();
            // One byte more than stated, so that a lie is found and not cut off.
            let mut counted = Counted { inner: entry.take(stated.saturating_add(1)), count: 0 };
            each(extension, &mut counted).map_err(|error| failed(&error))?;
            if counted.count != stated {
                return Err(failed(&"an entry has another length than is stated"));
            }
        }
        Ok(())
    }

    fn unpack(&mut self) -> Result<(TempDir, PathBuf)> {
        let failed = |error: io::Error| Error::new("io", format!("no folder to unpack into: {error}"));
        let folder = tempfile::Builder::new().prefix("geonce-").tempdir().map_err(failed)?;
        let (stem, place) = (self.stem.clone(), folder.path().to_owned());
        let file = |extension: &str| place.join(format!("{stem}.{extension}"));
        self.each(|extension, bytes| {
            let mut out = fs::File::create_new(file(extension))?;
            io::copy(bytes, &mut out).map(|_| ())
        })?;
        let main = file(self.members.first().map_or("", |(extension, _)| extension));
        Ok((folder, main))
    }
}

/// Opens the layer in an archive by unpacking it.
pub(crate) fn open(path: &Path, options: &Options) -> Result<File> {
    let mut packed = Packed::open(path, options)?;
    let (folder, main) = packed.unpack()?;
    let layer = if packed.chosen { None } else { options.layer.clone() };
    let inner = Options { format: Some(packed.format), layer, ..options.clone() };
    let file = crate::open_plain(&main, packed.format, &inner).map_err(|error| renamed(&error, folder.path(), path))?;
    let (from, to) = (folder.path().to_owned(), path.to_owned());
    let rows = Unpacked { rows: file.rows, from, to, _folder: folder };
    Ok(File { parts: vec![path.to_owned()], rows: Box::new(rows), ..file })
}

/// Rows of an unpacked file, with the folder that it is in.
struct Unpacked {
    rows: Box<dyn Rows>,
    from: PathBuf,
    to: PathBuf,
    _folder: TempDir,
}

impl Rows for Unpacked {
    fn next(&mut self) -> Result<Option<Item>> {
        self.rows.next().map_err(|error| renamed(&error, &self.from, &self.to))
    }
}

/// An error about an unpacked file, told of the archive that a person knows.
fn renamed(error: &Error, from: &Path, to: &Path) -> Error {
    let message = error.message().replace(&from.display().to_string(), &to.display().to_string());
    let renamed = Error::new(error.code(), message);
    match error.hint_text() {
        Some(hint) => renamed.hint(hint),
        None => renamed,
    }
}

struct Counted<R> {
    inner: R,
    count: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.count += count as u64;
        Ok(count)
    }
}

fn entries(path: &Path, archive: &mut ZipArchive<fs::File>) -> Result<Vec<Entry>> {
    if archive.len() > ENTRIES_MAX {
        return Err(refuse(path, "zip_too_large", &format!("has more than {ENTRIES_MAX} entries")));
    }
    let mut found = Vec::new();
    for index in 0..archive.len() {
        let entry = archive.by_index_raw(index).map_err(|error| damaged(path, &error.to_string()))?;
        let name = entry.name().map_err(|error| damaged(path, &error.to_string()))?.replace('\\', "/");
        let leaves =
            Path::new(&name).components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir));
        if leaves || name.contains('\0') || name.contains(':') {
            let what = format!("holds an entry that leaves its folder: {name:?}");
            return Err(refuse(path, "zip_unsafe", &what).hint("do not unpack it: it was made to do harm"));
        }
        let file = name.rsplit('/').next().unwrap_or_default();
        if entry.is_dir() || name.starts_with("__MACOSX/") || file.starts_with('.') {
            continue;
        }
        let (base, extension) = name.rsplit_once('.').unwrap_or((&name, ""));
        found.push(Entry { index, base: base.to_owned(), extension: extension.to_ascii_lowercase() });
    }
    Ok(found)
}

fn stem(base: &str) -> &str {
    base.rsplit('/').next().unwrap_or_default()
}

fn refuse(path: &Path, code: &'static str, what: &str) -> Error {
    Error::new(code, format!("{} {what}", path.display()))
}

fn damaged(path: &Path, what: &str) -> Error {
    refuse(path, "zip_damaged", &format!("cannot be unpacked: {what}")).hint("only plain and deflated entries are read")
}

fn several(path: &Path, sets: &[&Entry]) -> Error {
    let names: Vec<&str> = sets.iter().take(8).map(|entry| stem(&entry.base)).collect();
    refuse(path, "layer_ambiguous", &format!("holds {} layers: {}", sets.len(), names.join(", ")))
        .hint("name the one that is meant, or unpack it")
}

fn nothing(path: &Path, entries: &[Entry]) -> Error {
    if entries.iter().any(|entry| entry.extension == "zip") {
        return refuse(path, "zip_nested", "holds archives only").hint("unpack it first");
    }
    refuse(path, "format_unknown", "holds no file of a known format").hint("a shapefile, or one GeoJSON, CSV … file")
}

#[cfg(test)]
mod tests;
