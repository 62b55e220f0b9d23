//! Shapefiles: .shp with its .shx, .dbf, .prj and .cpg, in any case. A .dbf alone is a layer without geometries.
//!
//! Written for this crate rather than taken: other readers give ids as doubles and trust the counts in files.

mod dbf;
mod shp;

use crate::{Bad, Declared, File, Format, Item, Layer, Options, Result, Row, Rows, prj, sniff};
use dbf::Attributes;
use shp::{Found, Shapes};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The longest .prj or .cpg that is read.
pub(crate) const SIDECAR_BYTES_MAX: u64 = 64 << 10;

/// The files of a shapefile.
pub(crate) struct Set {
    pub(crate) shp: Option<PathBuf>,
    pub(crate) shx: Option<PathBuf>,
    pub(crate) dbf: Option<PathBuf>,
    pub(crate) prj: Option<PathBuf>,
    pub(crate) cpg: Option<PathBuf>,
}

impl Set {
    /// The files beside `path` that have its name, extensions in any case.
    pub(crate) fn beside(path: &Path) -> Result<Set> {
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let mut set = Set { shp: None, shx: None, dbf: None, prj: None, cpg: None };
        let entries = fs::read_dir(folder).map_err(|error| sniff::unreadable(folder, &error))?;
        for entry in entries {
            let found = path.with_file_name(entry.map_err(|error| sniff::unreadable(folder, &error))?.file_name());
            if found.file_stem() == path.file_stem() {
                set.take(found, path);
            }
        }
        // What was named is meant, even where its name has no extension that says so.
        if set.shp.is_none() && sniff::extension(path) != "dbf" {
            set.shp = Some(path.to_owned());
        }
        Ok(set)
    }

    fn take(&mut self, found: PathBuf, named: &Path) {
        let slot = match sniff::extension(&found).as_str() {
            "shp" => &mut self.shp,
            "shx" => &mut self.shx,
            "dbf" => &mut self.dbf,
            "prj" => &mut self.prj,
            "cpg" => &mut self.cpg,
            _ => return,
        };
        // Where there is a.shp and a.SHP, the one that was named counts, and otherwise the first in order.
        let better = |other: &PathBuf| found == named || (other.as_path() != named && found < *other);
        if slot.as_ref().is_none_or(better) {
            *slot = Some(found);
        }
    }

    /// The files that are there, the one that names the set first.
    pub(crate) fn parts(&self) -> Vec<PathBuf> {
        [&self.shp, &self.dbf, &self.shx, &self.prj, &self.cpg].into_iter().flatten().cloned().collect()
    }
}

/// Reads a small text file; what is behind the limit is not looked at.
fn sidecar(path: Option<&Path>) -> Result<Option<String>> {
    let Some(path) = path else { return Ok(None) };
    let mut bytes = Vec::new();
    let read = sniff::open(path)?.take(SIDECAR_BYTES_MAX).read_to_end(&mut bytes);
    read.map_err(|error| sniff::unreadable(path, &error))?;
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    Ok(Some(String::from_utf8_lossy(text).into_owned()))
}

/// Opens the set that `path` is one of.
pub(crate) fn open(path: &Path, options: &Options) -> Result<File> {
    let set = Set::beside(path)?;
    let mut notices = Vec::new();
    let shapes = if let Some(shp) = &set.shp {
        Some(Shapes::open(shp, set.shx.as_deref(), &options.limits, &mut notices)?)
    } else {
        notices.push("there is no .shp: the features have no geometries".to_owned());
        None
    };
    let cpg = sidecar(set.cpg.as_deref())?;
    let attributes = if let Some(dbf) = &set.dbf {
        Some(Attributes::open(dbf, cpg.as_deref(), options, &mut notices)?)
    } else {
        notices.push("there is no .dbf: the features have no fields".to_owned());
        None
    };
    let crs = match sidecar(set.prj.as_deref())? {
        Some(text) if !text.trim().is_empty() => prj::declared(&text),
        _ => Declared::Nothing,
    };
    let (rows, features) = (Records { shapes, attributes, next: 0, number: 0 }, None);
    let fields = rows.attributes.as_ref().map(Attributes::fields).unwrap_or_default();
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let mut layer = Layer { name, crs, fields, features, notices };
    rows.describe(&mut layer);
    Ok(File { format: Format::Shapefile, layer, parts: set.parts(), rows: Box::new(rows) })
}

/// Shapes and attributes side by side.
struct Records {
    shapes: Option<Shapes>,
    attributes: Option<Attributes>,
    /// The next record's place in the files, from 0.
    next: u64,
    /// Features given so far.
    number: u64,
}

impl Records {
    /// Tells how many there are, and what does not fit together.
    fn describe(&self, layer: &mut Layer) {
        let shapes = self.shapes.as_ref().map(|shapes| shapes.count);
        let Some(attributes) = &self.attributes else {
            layer.features = shapes.flatten();
            return;
        };
        attributes.tell_widened(&mut layer.notices);
        if attributes.deleted > 0 {
            layer.notices.push(format!("{} deleted records are left out", attributes.deleted));
        }
        layer.features = match shapes {
            None => Some(attributes.records - attributes.deleted),
            Some(Some(count)) if count == attributes.records => Some(count - attributes.deleted),
            Some(Some(count)) => {
                let records = attributes.records;
                layer.notices.push(format!("the .shp has {count} shapes, but the .dbf {records} records"));
                (attributes.deleted == 0).then_some(count)
            }
            Some(None) => None,
        };
    }

    fn bad(&mut self, code: &'static str, message: String, bytes: Vec<u8>) -> Item {
        self.number += 1;
        Item::Bad(Bad { number: self.number, code, message, bytes })
    }
}

impl Rows for Records {
    fn next(&mut self) -> Result<Option<Item>> {
        loop {
            let found = match &mut self.shapes {
                Some(shapes) => match shapes.next()? {
                    Some(found) => found,
                    None => return Ok(None),
                },
                None if self.attributes.as_ref().is_none_or(|a| self.next >= a.records) => return Ok(None),
                None => Found::Shape(None),
            };
            let place = self.next;
            self.next += 1;
            let values = match &mut self.attributes {
                Some(attributes) => attributes.read(place)?,
                None => Some(Vec::new()),
            };
            let Some(values) = values else { continue };
            return Ok(Some(match found {
                Found::Bad { code, message, bytes } => self.bad(code, message, bytes),
                Found::Shape(geometry) => {
                    self.number += 1;
                    Item::Row(Row { number: self.number, id: None, geometry, values, text: None })
                }
            }));
        }
    }
}
