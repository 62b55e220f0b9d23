//! Comma-separated values: a header line, then a feature per record, its geometry as WKT, EWKT or hexadecimal WKB in one
//! column, or as two numbers. Separators are commas, semicolons or tabs.
//!
//! Read twice: the first pass finds what kinds of values the columns hold. A column is a number only if every value is one
//! and would be written the same again: postal codes with a leading zero, `+1` and numbers beyond 64 bits stay text. The
//! columns of the geometry are not fields.

use crate::encoding::Encoding;
use crate::number::{self, Looks};
use crate::sniff::{self, unreadable};
use crate::{
    BAD_BYTES_MAX, Bad, Declared, Error, Field, FieldKind, File, Format, GeometryColumns, Item, Layer, Options, Result,
    Row, Rows,
};
use csv::ByteRecord;
use geonce_key::{Kind, Limits, Property, Shape, crs, wkb, wkt};
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of one record: an open quotation mark would make the rest of the file one.
const RECORD_BYTES_MAX: u64 = 64 << 20;
/// Columns of a file: no destination has more.
const COLUMNS_MAX: usize = 1_500;
/// How much is looked at to tell separators apart.
const SNIFFED_BYTES: u64 = 64 << 10;

const LONGITUDES: [&str; 4] = ["lon", "lng", "long", "longitude"];
const LATITUDES: [&str; 2] = ["lat", "latitude"];
const GEOMETRIES: [&str; 6] = ["wkt", "geom", "geometry", "the_geom", "wkb_geometry", "shape"];

/// Opens a file.
pub(crate) fn open(path: &Path, options: &Options) -> Result<File> {
    let separator = separator(path)?;
    let mut records = Records::open(path, separator)?;
    let declared = match &options.encoding {
        None => None,
        Some(label) => Some(
            Encoding::find(label)
                .ok_or_else(|| Error::new("encoding_unknown", format!("{label:?} is no encoding that is known")))?,
        ),
    };
    let Some(header) = records.next()?.cloned() else {
        return Err(Error::new("file_empty", format!("{} has no header line", path.display())));
    };
    if header.len() > COLUMNS_MAX {
        return Err(Error::new("fields_many", format!("{} has more than {COLUMNS_MAX} columns", path.display())));
    }
    let mut survey = Survey::new(&header, options, path)?;
    while let Some(record) = records.next()? {
        survey.take(record);
    }
    let mut notices = Vec::new();
    let encoding = survey.encoding(declared, &mut notices);
    let crs = survey.crs(path, &mut notices)?;
    let mut again = Records::open(path, separator)?;
    again.next()?;
    let places: Vec<usize> = (0..header.len()).filter(|&place| !survey.geometry.has(place)).collect();
    let fields = fields(&header, &places, &survey.kinds, encoding, &mut notices);
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let layer = Layer { name, crs, fields, features: Some(survey.records), notices };
    let kinds = survey.kinds.iter().map(|kind| kind.unwrap_or(FieldKind::Text)).collect();
    let rows = Lines {
        records: again,
        path: path.to_owned(),
        geometry: survey.geometry,
        columns: header.len(),
        places,
        kinds,
        encoding,
        limits: options.limits.clone(),
        number: 0,
    };
    Ok(File { format: Format::Csv, layer, parts: vec![path.to_owned()], rows: Box::new(rows) })
}

/// The separator that the header line has most of, outside quotation marks.
fn separator(path: &Path) -> Result<u8> {
    let mut first = Vec::new();
    sniff::open(path)?.take(SNIFFED_BYTES).read_to_end(&mut first).map_err(|error| unreadable(path, &error))?;
    if first.starts_with(&[0xff, 0xfe]) || first.starts_with(&[0xfe, 0xff]) {
        return Err(
            Error::new("encoding_unknown", format!("{} is encoded as UTF-16", path.display())).hint("save it as UTF-8")
        );
    }
    let mut counts = [(b',', 0), (b';', 0), (b'\t', 0)];
    let mut quoted = false;
    for byte in first {
        match byte {
            b'"' => quoted = !quoted,
            b'\n' if !quoted => break,
            _ if quoted => {}
            _ => counts.iter_mut().filter(|(separator, _)| *separator == byte).for_each(|(_, count)| *count += 1),
        }
    }
    // The last of equal ones would win, and a comma is the likeliest.
    Ok(counts.into_iter().rev().max_by_key(|(_, count)| *count).map_or(b',', |(separator, _)| separator))
}

/// A reader that gives no more than a record may have.
struct Metered {
    file: fs::File,
    left: Arc<AtomicU64>,
}

impl Read for Metered {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return Err(io::Error::other(format!("a record has more than {RECORD_BYTES_MAX} bytes")));
        }
        let count = self.file.read(buffer)?;
        self.left.store(left.saturating_sub(count as u64), Ordering::Relaxed);
        Ok(count)
    }
}

struct Records {
    reader: csv::Reader<Metered>,
    left: Arc<AtomicU64>,
    record: ByteRecord,
    path: PathBuf,
}

impl Records {
    fn open(path: &Path, separator: u8) -> Result<Records> {
        let left = Arc::new(AtomicU64::new(RECORD_BYTES_MAX));
        let metered = Metered { file: sniff::open(path)?, left: Arc::clone(&left) };
        let mut builder = csv::ReaderBuilder::new();
        builder.delimiter(separator).has_headers(false).flexible(true).buffer_capacity(256 << 10);
        Ok(Records { reader: builder.from_reader(metered), left, record: ByteRecord::new(), path: path.to_owned() })
    }

    fn next(&mut self) -> Result<Option<&ByteRecord>> {
        self.left.store(RECORD_BYTES_MAX, Ordering::Relaxed);
        let line = self.reader.position().line();
        match self.reader.read_byte_record(&mut self.record) {
            Ok(true) => Ok(Some(&self.record)),
            Ok(false) => Ok(None),
            Err(error) => Err(Error::new(
                "csv",
                format!("{}: the record from line {line} on cannot be read: {error}", self.path.display()),
            )
            .hint("is a quotation mark left open?")),
        }
    }
}

/// Where the geometry is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Geometry {
    Nowhere,
    Text(usize),
    Ordinates { x: usize, y: usize, degrees: bool },
}

impl Geometry {
    fn has(self, place: usize) -> bool {
        match self {
            Geometry::Nowhere => false,
            Geometry::Text(text) => place == text,
            Geometry::Ordinates { x, y, .. } => place == x || place == y,
        }
    }

    fn find(header: &ByteRecord, options: &Options, path: &Path) -> Result<Geometry> {
        let place =
            |name: &str| header.iter().position(|column| column.trim_ascii().eq_ignore_ascii_case(name.as_bytes()));
        let named = |name: &String| {
            place(name)
                .ok_or_else(|| Error::new("column_missing", format!("{} has no column {name:?}", path.display())))
        };
        let any = |names: &[&str]| names.iter().find_map(|name| place(name));
        Ok(match &options.columns {
            Some(GeometryColumns::Wkt(name)) => Geometry::Text(named(name)?),
            Some(GeometryColumns::Ordinates(x, y)) => {
                let degrees = LONGITUDES.iter().any(|longitude| x.eq_ignore_ascii_case(longitude));
                Geometry::Ordinates { x: named(x)?, y: named(y)?, degrees }
            }
            None => match (any(&GEOMETRIES), any(&LONGITUDES).zip(any(&LATITUDES)), place("x").zip(place("y"))) {
                (Some(text), _, _) => Geometry::Text(text),
                (None, Some((x, y)), _) => Geometry::Ordinates { x, y, degrees: true },
                (None, None, Some((x, y))) => Geometry::Ordinates { x, y, degrees: false },
                _ => Geometry::Nowhere,
            },
        })
    }
}

/// What a first pass has found.
struct Survey {
    geometry: Geometry,
    /// Of every column; none where it is empty.
    kinds: Vec<Option<FieldKind>>,
    records: u64,
    utf8: bool,
    /// The code in front of geometries (EWKT), and whether some have none.
    srid: Option<u32>,
    plain: bool,
    srids_differ: bool,
}

impl Survey {
    fn new(header: &ByteRecord, options: &Options, path: &Path) -> Result<Survey> {
        let geometry = Geometry::find(header, options, path)?;
        let utf8 = std::str::from_utf8(header.as_slice()).is_ok();
        let kinds = vec![None; header.len()];
        Ok(Survey { geometry, kinds, records: 0, utf8, srid: None, plain: false, srids_differ: false })
    }

    fn take(&mut self, record: &ByteRecord) {
        self.records += 1;
        if record.len() != self.kinds.len() {
            return;
        }
        self.utf8 &= std::str::from_utf8(record.as_slice()).is_ok();
        for (place, value) in record.iter().enumerate() {
            if !value.is_empty() && !self.geometry.has(place) {
                self.kinds[place] = Some(wider(self.kinds[place], value));
            }
        }
        if let Geometry::Text(place) = self.geometry {
            self.take_srid(record.get(place).unwrap_or_default());
        }
    }

    fn take_srid(&mut self, value: &[u8]) {
        let value = value.trim_ascii();
        if value.is_empty() {
            return;
        }
        match srid(value) {
            None => self.plain = true,
            found => {
                self.srids_differ |= self.srid.is_some() && self.srid != found;
                self.srid = self.srid.or(found);
            }
        }
        self.srids_differ |= self.plain && self.srid.is_some();
    }

    fn encoding(&self, declared: Option<Encoding>, notices: &mut Vec<String>) -> Encoding {
        match declared {
            Some(encoding) => encoding,
            None if self.utf8 => Encoding::UTF8,
            None => {
                notices.push("the file is not UTF-8; windows-1252 was assumed".to_owned());
                Encoding::LATIN1
            }
        }
    }

    fn crs(&self, path: &Path, notices: &mut Vec<String>) -> Result<Declared> {
        if self.srids_differ {
            let message = format!("{}: geometries declare different coordinate systems", path.display());
            return Err(Error::new("crs_conflict", message).hint("a layer has one: divide the file first"));
        }
        Ok(match (self.geometry, self.srid) {
            (Geometry::Nowhere, _) => {
                notices.push("no column holds a geometry".to_owned());
                Declared::Nothing
            }
            (Geometry::Ordinates { degrees: true, .. }, _) => {
                notices.push("longitude and latitude are taken to be WGS 84".to_owned());
                Declared::Code(4326)
            }
            (_, Some(code)) => match crs::lookup(code) {
                Some(crs) => Declared::Code(crs.code()),
                None => Declared::Unknown(format!("SRID={code}")),
            },
            _ => Declared::Nothing,
        })
    }
}

/// The code in front of an EWKT geometry, or inside a hexadecimal EWKB one.
fn srid(value: &[u8]) -> Option<u32> {
    let code = if value.first()?.eq_ignore_ascii_case(&b'S') {
        let digits = value.get(5..)?.split(|&byte| byte == b';').next()?;
        std::str::from_utf8(digits).ok()?.trim().parse().ok()
    } else if value.first() == Some(&b'0') {
        wkb::read_hex(value, &Limits::default()).ok()?.srid
    } else {
        None
    };
    code.filter(|&code| code != 0)
}

/// The kind that holds a value beside those seen before.
fn wider(kind: Option<FieldKind>, value: &[u8]) -> FieldKind {
    if kind == Some(FieldKind::Text) {
        return FieldKind::Text;
    }
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    let padded = digits.len() > 1 && digits[0] == b'0' && digits[1].is_ascii_digit();
    let found = match number::looks(value) {
        _ if matches!(value, b"true" | b"false" | b"TRUE" | b"FALSE" | b"True" | b"False") => FieldKind::Boolean,
        _ if padded || value[0] == b'+' => FieldKind::Text,
        Looks::Integer => FieldKind::Integer,
        Looks::Real => FieldKind::Real,
        Looks::Huge | Looks::Other => FieldKind::Text,
    };
    match (kind, found) {
        (None, found) => found,
        (Some(kind), found) if kind == found => kind,
        (Some(FieldKind::Integer | FieldKind::Real), FieldKind::Integer | FieldKind::Real) => FieldKind::Real,
        _ => FieldKind::Text,
    }
}

fn fields(
    header: &ByteRecord,
    places: &[usize],
    kinds: &[Option<FieldKind>],
    encoding: Encoding,
    notices: &mut Vec<String>,
) -> Vec<Field> {
    let mut fields: Vec<Field> = Vec::new();
    for &place in places {
        let raw = encoding.decode(header.get(place).unwrap_or_default());
        let base = if raw.trim().is_empty() { format!("field_{}", place + 1) } else { raw.trim().to_owned() };
        let mut name = base.clone();
        let mut copy = 2;
        while fields.iter().any(|field| field.name.eq_ignore_ascii_case(&name)) {
            name = format!("{base}_{copy}");
            copy += 1;
        }
        if name != base {
            notices.push(format!("a second column {base:?} is called {name:?}"));
        }
        fields.push(Field { name, kind: kinds[place].unwrap_or(FieldKind::Text) });
    }
    fields
}

/// The second pass.
struct Lines {
    records: Records,
    path: PathBuf,
    geometry: Geometry,
    columns: usize,
    /// The columns that are fields.
    places: Vec<usize>,
    kinds: Vec<FieldKind>,
    encoding: Encoding,
    limits: Limits,
    number: u64,
}

impl Rows for Lines {
    fn next(&mut self) -> Result<Option<Item>> {
        let start = self.records.reader.position().clone();
        if self.records.next()?.is_none() {
            return Ok(None);
        }
        self.number += 1;
        let record = &self.records.record;
        let read = if record.len() == self.columns {
            geometry(record, self.geometry, &self.limits)
        } else {
            let message = format!("{} values, but the header names {} columns", record.len(), self.columns);
            Err(("csv_columns", message))
        };
        Ok(Some(match read {
            Ok(geometry) => {
                let value = |&place: &usize| self.value(record.get(place).unwrap_or_default(), self.kinds[place]);
                let values = self.places.iter().map(value).collect();
                Item::Row(Row { number: self.number, id: None, geometry, values, text: None })
            }
            Err((code, message)) => {
                let message =
                    format!("line {}: {message}", record.position().map_or(start.line(), csv::Position::line));
                Item::Bad(Bad { number: self.number, code, message, bytes: self.written(start.byte())? })
            }
        }))
    }
}

impl Lines {
    fn value(&self, value: &[u8], kind: FieldKind) -> Property {
        match kind {
            _ if value.is_empty() => Property::Null,
            FieldKind::Boolean => Property::Boolean(value[0].eq_ignore_ascii_case(&b't')),
            FieldKind::Integer => number::integer(value).map_or(Property::Null, Property::Integer),
            FieldKind::Real => number::real(value).map_or(Property::Null, Property::Real),
            _ => Property::Text(self.encoding.decode(value).into_owned()),
        }
    }

    /// What is written from byte `start` to where the reader is.
    fn written(&self, start: u64) -> Result<Vec<u8>> {
        let failed = |error: io::Error| unreadable(&self.path, &error);
        let mut file = sniff::open(&self.path)?;
        file.seek(SeekFrom::Start(start)).map_err(failed)?;
        let count = self.records.reader.position().byte().saturating_sub(start).min(BAD_BYTES_MAX as u64);
        let mut bytes = Vec::new();
        file.take(count).read_to_end(&mut bytes).map_err(failed)?;
        Ok(bytes)
    }
}

type Wrong = (&'static str, String);

fn geometry(
    record: &ByteRecord,
    geometry: Geometry,
    limits: &Limits,
) -> std::result::Result<Option<Shape<f64>>, Wrong> {
    let value = |place: usize| record.get(place).unwrap_or_default().trim_ascii();
    match geometry {
        Geometry::Nowhere => Ok(None),
        Geometry::Text(place) if value(place).is_empty() => Ok(None),
        Geometry::Text(place) => {
            let text = value(place);
            let hexadecimal = text[0] == b'0' || text.starts_with(b"\\x");
            let read = if hexadecimal { wkb::read_hex(text, limits) } else { wkt::read(text, limits) };
            read.map(|delivered| Some(delivered.shape))
                .map_err(|error| (error.code().as_str(), error.message().to_owned()))
        }
        Geometry::Ordinates { x, y, .. } => match (value(x), value(y)) {
            (b"", b"") => Ok(None),
            (x, y) => Ok(Some(point(ordinate(x)?, ordinate(y)?))),
        },
    }
}

fn ordinate(value: &[u8]) -> std::result::Result<f64, Wrong> {
    let shown = || String::from_utf8_lossy(value).chars().take(40).collect::<String>();
    match number::looks(value) {
        Looks::Other => Err(("ordinate", format!("{:?} is no ordinate", shown()))),
        _ => number::real(value).ok_or_else(|| ("ordinate", format!("{:?} is no ordinate", shown()))),
    }
}

fn point(x: f64, y: f64) -> Shape<f64> {
    let mut shape = Shape::new();
    shape.positions.push([x, y, 0.0]);
    shape.end_path();
    shape.end_part();
    shape.end_member(Kind::Point);
    shape
}

#[cfg(test)]
mod tests;
