//! GeoParquet files, all versions that keep geometries as WKB: a batch of rows at a time, page by page.
//!
//! Nested columns become JSON, bytes Base64; the column of bounding boxes that only repeats the geometries is left out. The
//! `parquet` crate decodes; should it panic on damaged bytes, that is an error like any other.

mod column;
mod metadata;
mod nested;

use crate::value::{self, Fault};
use crate::{Error, File, Format, Item, Layer, Options, Result, Row, Rows};
use column::Flat;
use geonce_key::{Limits, Property, Shape};
use nested::Nested;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::schema::types::SchemaDescriptor;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Rows that are decoded at once.
const BATCH_ROWS: usize = 1_024;
/// The description at the end of the file, of all row groups and columns.
const FOOTER_BYTES_MAX: u32 = 64 << 20;
const COLUMNS_MAX: usize = 10_000;
/// The length of the description and the four letters at the very end.
const TAIL_BYTES: usize = 8;

/// Opens a GeoParquet file.
pub(crate) fn open(path: &Path, options: &Options) -> Result<File> {
    let file = std::fs::File::open(path).map_err(|error| unreadable(&error))?;
    check_tail(&file)?;
    let reader =
        guarded("opening the Parquet file", || SerializedFileReader::new(file).map_err(|e| failure("opening", &e)))?;
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    if let Some(asked) = &options.layer
        && *asked != name
    {
        return Err(Error::new("layer_unknown", format!("it has no layer {asked}; its only one is {name}")));
    }
    let (layer, rows) = guarded("opening the Parquet file", || plan(path, reader, name, options))?;
    Ok(File { format: Format::GeoParquet, layer, parts: vec![path.to_owned()], rows: Box::new(rows) })
}

fn unreadable(error: &std::io::Error) -> Error {
    Error::new("file_unreadable", format!("reading the Parquet file: {error}"))
}

fn failure(doing: &str, error: &ParquetError) -> Error {
    Error::new("parquet_damaged", format!("{doing} the Parquet file: {error}"))
}

/// Runs what reads untrusted bytes with code that is not ours.
fn guarded<T>(doing: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Error::new("parquet_damaged", format!("{doing}: its bytes are damaged"))))
}

/// The description's length is looked at before memory is taken for it.
fn check_tail(mut file: &std::fs::File) -> Result<()> {
    let length = file.metadata().map_err(|error| unreadable(&error))?.len();
    let mut tail = [0; TAIL_BYTES];
    if length >= TAIL_BYTES as u64 {
        file.seek(SeekFrom::Start(length - TAIL_BYTES as u64)).map_err(|error| unreadable(&error))?;
        file.read_exact(&mut tail).map_err(|error| unreadable(&error))?;
    }
    let [a, b, c, d, magic @ ..] = tail;
    match &magic {
        b"PAR1" => {}
        b"PARE" => return Err(Error::new("parquet_encrypted", "it is an encrypted Parquet file")),
        _ => {
            return Err(Error::new(
                "parquet_truncated",
                "it does not end like a Parquet file; it may have been cut off",
            ));
        }
    }
    let size = u32::from_le_bytes([a, b, c, d]);
    if size > FOOTER_BYTES_MAX || u64::from(size) > length {
        return Err(Error::new("parquet_damaged", format!("its description claims {size} bytes, which cannot be")));
    }
    Ok(())
}

/// Decides what each column becomes.
fn plan(
    path: &Path,
    reader: SerializedFileReader<std::fs::File>,
    name: String,
    options: &Options,
) -> Result<(Layer, Table)> {
    let described = reader.metadata().file_metadata();
    let schema = described.schema_descr();
    if schema.num_columns() > COLUMNS_MAX {
        return Err(Error::new("parquet_columns", format!("it has more than {COLUMNS_MAX} columns")));
    }
    let geometry = metadata::find(described)?;
    let features = u64::try_from(described.num_rows()).ok();
    let mut notices = Vec::new();
    let (mut fields, mut slots) = (Vec::new(), Vec::new());
    let mut nested_roots = Vec::new();
    let mut geometry_leaf = None;
    for (index, root) in schema.root_schema().get_fields().iter().enumerate() {
        if geometry.coverings.iter().any(|covering| covering == root.name()) {
            continue;
        }
        let leaf = leaf_of(schema, index);
        if root.name() == geometry.column {
            geometry_leaf = leaf;
            continue;
        }
        let is_flat = root.is_primitive() && leaf.is_some_and(|leaf| schema.column(leaf).max_rep_level() == 0);
        if let Some(leaf) = leaf.filter(|_| is_flat) {
            let flat = Flat::new(&schema.column(leaf), leaf);
            notices.extend(flat.notice());
            fields.push(flat.field());
            slots.push(Slot::Flat(Box::new(flat)));
        } else {
            fields.push(crate::Field { name: root.name().to_owned(), kind: crate::FieldKind::Json });
            nested_roots.push(root.clone());
            slots.push(Slot::Nested);
        }
    }
    let leaf = geometry_leaf.ok_or_else(|| {
        Error::new("parquet_geometry", format!("it has no column {} for its geometries", geometry.column))
    })?;
    metadata::check_geometry(&schema.column(leaf))?;
    let layer = Layer { name, crs: geometry.crs, fields, features, notices };
    let geometry = Flat::new(&schema.column(leaf), leaf);
    let nested = if nested_roots.is_empty() { None } else { Some(Nested::open(path, nested_roots)?) };
    let names = layer.fields.iter().map(|field| field.name.clone()).collect();
    let table = Table {
        reader,
        limits: options.limits.clone(),
        names,
        geometry,
        slots,
        nested,
        group: 0,
        left: 0,
        number: 0,
        ready: Vec::new().into_iter(),
        ended: false,
    };
    Ok((layer, table))
}

/// The first primitive column below a column of the root.
fn leaf_of(schema: &SchemaDescriptor, root: usize) -> Option<usize> {
    (0..schema.num_columns()).find(|&leaf| schema.get_column_root_idx(leaf) == root)
}

/// How a field is read.
enum Slot {
    Flat(Box<Flat>),
    Nested,
}

/// Reads the rows.
struct Table {
    reader: SerializedFileReader<std::fs::File>,
    limits: Limits,
    names: Vec<String>,
    geometry: Flat,
    slots: Vec<Slot>,
    nested: Option<Nested>,
    /// The row group after the one being read.
    group: usize,
    /// Rows of the row group that are still to be read.
    left: usize,
    number: u64,
    ready: std::vec::IntoIter<Item>,
    ended: bool,
}

impl Rows for Table {
    fn next(&mut self) -> Result<Option<Item>> {
        loop {
            if let Some(item) = self.ready.next() {
                return Ok(Some(item));
            }
            if self.ended {
                return Ok(None);
            }
            match guarded("reading the Parquet file", || self.batch()) {
                Ok(true) => {}
                Ok(false) => self.ended = true,
                Err(error) => {
                    self.ended = true;
                    return Err(error);
                }
            }
        }
    }
}

/// A row that is being put together, column by column.
struct Part {
    geometry: Option<Shape<f64>>,
    values: Vec<Property>,
    fault: Option<Fault>,
}

impl Table {
    /// Decodes the next rows; false at the end.
    fn batch(&mut self) -> Result<bool> {
        while self.left == 0 {
            if self.group >= self.reader.num_row_groups() {
                return Ok(false);
            }
            self.next_group()?;
        }
        let count = self.left.min(BATCH_ROWS);
        let part = || Part { geometry: None, values: Vec::with_capacity(self.slots.len()), fault: None };
        let mut parts: Vec<Part> = std::iter::repeat_with(part).take(count).collect();
        let mut originals: Vec<(usize, Vec<u8>)> = Vec::new();
        let limits = &self.limits;
        self.geometry.bytes(count, |index, found| match found.map(|bytes| value::geometry(bytes, limits)) {
            None => {}
            Some(Ok(shape)) => parts[index].geometry = Some(shape),
            Some(Err(fault)) => {
                let shown = found.unwrap_or_default();
                originals.push((index, shown[..shown.len().min(crate::BAD_BYTES_MAX / 2)].to_vec()));
                parts[index].fault = Some(fault);
            }
        })?;
        self.values(&mut parts)?;
        self.left -= count;

        let mut items = Vec::with_capacity(count);
        for (index, part) in parts.into_iter().enumerate() {
            self.number += 1;
            items.push(match part.fault {
                None => Item::Row(Row {
                    number: self.number,
                    id: None,
                    geometry: part.geometry,
                    values: part.values,
                    text: None,
                }),
                Some(fault) => {
                    let geometry =
                        originals.iter().find(|(place, _)| *place == index).map(|(_, bytes)| bytes.as_slice());
                    let names = self.names.iter().map(String::as_str);
                    fault.item(self.number, value::original(names.zip(part.values), geometry))
                }
            });
        }
        self.ready = items.into_iter();
        Ok(true)
    }

    fn values(&mut self, parts: &mut [Part]) -> Result<()> {
        let documents = match &mut self.nested {
            Some(nested) => nested.read(parts.len())?,
            None => Vec::new(),
        };
        let mut documents: Vec<_> = documents.into_iter().map(Vec::into_iter).collect();
        for (slot, name) in self.slots.iter_mut().zip(&self.names) {
            let mut give = |index: usize, found: value::Read<Property>| {
                let part = &mut parts[index];
                part.values.push(found.unwrap_or_else(|fault| {
                    part.fault.get_or_insert(fault.of(name));
                    Property::Null
                }));
            };
            match slot {
                Slot::Flat(flat) => flat.read(self.left.min(BATCH_ROWS), give)?,
                Slot::Nested => {
                    for (index, row) in documents.iter_mut().enumerate() {
                        give(index, Ok(row.next().unwrap_or(Property::Null)));
                    }
                }
            }
        }
        Ok(())
    }

    fn next_group(&mut self) -> Result<()> {
        let group = self.reader.get_row_group(self.group).map_err(|e| failure("reading", &e))?;
        let rows = usize::try_from(group.metadata().num_rows());
        self.left = rows.map_err(|_| Error::new("parquet_damaged", "a group of its rows has a length below zero"))?;
        self.geometry.start(group.as_ref())?;
        for slot in &mut self.slots {
            if let Slot::Flat(flat) = slot {
                flat.start(group.as_ref())?;
            }
        }
        self.group += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
