//! FlatGeobuf files, version 3: a header, an index that is passed over, then one feature after the other.
//!
//! Read by hand rather than by the `flatgeobuf` crate, whose buffers grow as the file says: here every size is held against the
//! bytes that are left, and a feature that is too large or damaged is passed over, its neighbours read.

mod buffer;
mod shape;

use crate::value::{self, Fault, Read};
use crate::{Declared, Error, Field, FieldKind, File, Format, Item, Layer, Options, Result, Row, Rows};
use buffer::{Damaged, Table};
use geonce_key::{Limits, Property};
use std::io::{BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

const MAGIC: [u8; 8] = *b"fgb\x03fgb\x00";
/// The header, its columns and its description of the coordinate system.
const HEADER_BYTES_MAX: u32 = 16 << 20;
/// A feature beyond this is passed over.
const FEATURE_BYTES_MAX: u64 = 256 << 20;
const READ_BYTES: usize = 256 << 10;
const NODE_BYTES: u64 = 40;
/// How much of an unknown coordinate system's description is kept.
const CRS_CHARACTERS_MAX: usize = 200;

/// What a column holds, as the header numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Byte,
    UByte,
    Bool,
    Short,
    UShort,
    Int,
    UInt,
    Long,
    ULong,
    Float,
    Double,
    String,
    Json,
    DateTime,
    Binary,
}

impl Type {
    fn of(number: u8) -> Option<Type> {
        use Type::{
            Binary, Bool, Byte, DateTime, Double, Float, Int, Json, Long, Short, String, UByte, UInt, ULong, UShort,
        };
        let all =
            [Byte, UByte, Bool, Short, UShort, Int, UInt, Long, ULong, Float, Double, String, Json, DateTime, Binary];
        all.get(usize::from(number)).copied()
    }

    fn kind(self) -> FieldKind {
        match self {
            Type::Bool => FieldKind::Boolean,
            Type::Float | Type::Double => FieldKind::Real,
            Type::String | Type::Binary => FieldKind::Text,
            Type::Json => FieldKind::Json,
            Type::DateTime => FieldKind::DateTime,
            _ => FieldKind::Integer,
        }
    }
}

/// Opens a FlatGeobuf file.
pub(crate) fn open(path: &Path, options: &Options) -> Result<File> {
    let file = std::fs::File::open(path).map_err(|error| unreadable(&error))?;
    let length = file.metadata().map_err(|error| unreadable(&error))?.len();
    let mut input = Input { reader: BufReader::with_capacity(READ_BYTES, file), left: length };
    let mut magic = [0; 8];
    input.fill(&mut magic, "its first bytes")?;
    // The last byte is a patch level, which changes nothing for a reader.
    if magic[..3] != MAGIC[..3] || magic[4..7] != MAGIC[4..7] {
        return Err(Error::new("fgb_magic", "it does not start like a FlatGeobuf file"));
    }
    if magic[3] != MAGIC[3] {
        return Err(Error::new("fgb_version", format!("it is FlatGeobuf of version {}, only 3 can be read", magic[3])));
    }
    let size = input.size("its header")?.ok_or_else(|| cut("its header"))?;
    if size > HEADER_BYTES_MAX {
        return Err(Error::new(
            "fgb_damaged",
            format!("its header claims {size} bytes, at most {HEADER_BYTES_MAX} are accepted"),
        ));
    }
    let mut header = Vec::new();
    input.take(u64::from(size), &mut header, "its header")?;
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let header =
        Header::read(&header, name).map_err(|Damaged| Error::new("fgb_damaged", "its header is damaged"))??;
    if let Some(asked) = &options.layer
        && !asked.eq_ignore_ascii_case(&header.layer.name)
    {
        let message = format!("it has no layer {asked}; its only one is {}", header.layer.name);
        return Err(Error::new("layer_unknown", message));
    }
    input.skip(index_bytes(header.count, header.node_size)?, "its index")?;
    let rows = Features {
        input,
        types: header.types,
        layer: header.layer.fields.clone(),
        geometry_type: header.geometry_type,
        expected: header.count,
        number: 0,
        limits: options.limits.clone(),
        buffer: Vec::new(),
        ended: false,
    };
    Ok(File { format: Format::FlatGeobuf, layer: header.layer, parts: vec![path.to_owned()], rows: Box::new(rows) })
}

fn unreadable(error: &std::io::Error) -> Error {
    Error::new("file_unreadable", format!("reading the FlatGeobuf file: {error}"))
}

fn cut(place: &str) -> Error {
    Error::new("fgb_truncated", format!("the FlatGeobuf file ends inside {place}; it was cut off"))
}

/// The bytes of the index: all levels of a packed tree.
fn index_bytes(count: u64, node_size: u16) -> Result<u64> {
    if count == 0 || node_size == 0 {
        return Ok(0);
    }
    if node_size == 1 {
        return Err(Error::new("fgb_damaged", "its index has nodes of one item"));
    }
    let (mut level, mut nodes) = (count, count);
    while level > 1 {
        level = level.div_ceil(u64::from(node_size));
        nodes = nodes.saturating_add(level);
    }
    // A single feature has a root above it all the same.
    if count == 1 {
        nodes += 1;
    }
    Ok(nodes.saturating_mul(NODE_BYTES))
}

/// The file, and how much of it is left.
struct Input {
    reader: BufReader<std::fs::File>,
    left: u64,
}

impl Input {
    fn fill(&mut self, bytes: &mut [u8], place: &str) -> Result<()> {
        if (bytes.len() as u64) > self.left {
            return Err(cut(place));
        }
        self.reader.read_exact(bytes).map_err(|error| unreadable(&error))?;
        self.left -= bytes.len() as u64;
        Ok(())
    }

    /// The size of what follows; none at the end of the file.
    fn size(&mut self, place: &str) -> Result<Option<u32>> {
        if self.left == 0 {
            return Ok(None);
        }
        let mut size = [0; 4];
        self.fill(&mut size, place)?;
        Ok(Some(u32::from_le_bytes(size)))
    }

    fn take(&mut self, size: u64, into: &mut Vec<u8>, place: &str) -> Result<()> {
        let length = usize::try_from(size).ok().filter(|_| size <= self.left).ok_or_else(|| cut(place))?;
        into.resize(length, 0);
        self.fill(into, place)
    }

    fn skip(&mut self, size: u64, place: &str) -> Result<()> {
        let offset = i64::try_from(size).ok().filter(|_| size <= self.left).ok_or_else(|| cut(place))?;
        if size > READ_BYTES as u64 {
            self.reader.seek_relative(offset).or_else(|_| self.reader.seek(SeekFrom::Current(offset)).map(drop))
        } else {
            self.reader.seek_relative(offset)
        }
        .map_err(|error| unreadable(&error))?;
        self.left -= size;
        Ok(())
    }
}

/// What the header says.
struct Header {
    layer: Layer,
    types: Vec<Type>,
    geometry_type: u8,
    /// Zero where it is not known.
    count: u64,
    node_size: u16,
}

impl Header {
    fn read(bytes: &[u8], file_name: String) -> Result<Result<Header>, Damaged> {
        let header = Table::root(bytes)?;
        let (mut types, mut fields, mut notices) = (Vec::new(), Vec::new(), Vec::new());
        for column in header.tables(7)?.iter() {
            let column = column?;
            let name = column.text(0)?.unwrap_or_default().to_owned();
            let number = column.byte(1)?;
            let Some(found) = Type::of(number) else {
                let message = format!("field {name}: its type {number} is unknown");
                return Ok(Err(Error::new("fgb_column_type", message)));
            };
            if found == Type::Binary {
                notices.push(format!("field {name}: its bytes are given as Base64"));
            }
            types.push(found);
            fields.push(Field { name, kind: found.kind() });
        }
        let geometry_type = header.byte(2)?;
        if geometry_type > shape::COLLECTION {
            notices.push(
                "the layer is declared as one of curves: a curve cannot be read and is refused feature by feature"
                    .to_owned(),
            );
        }
        let count = header.ulong(8)?;
        let layer = Layer {
            name: header.text(0)?.filter(|name| !name.is_empty()).map_or(file_name, str::to_owned),
            crs: declared(&header)?,
            fields,
            features: Some(count).filter(|&count| count > 0),
            notices,
        };
        Ok(Ok(Header { layer, types, geometry_type, count, node_size: header.ushort(9, 16)? }))
    }
}

fn declared(header: &Table<'_>) -> Result<Declared, Damaged> {
    let Some(crs) = header.table(10)? else { return Ok(Declared::Nothing) };
    let organization = crs.text(0)?.unwrap_or("EPSG");
    let code = crs.int(1)?;
    let code_text = crs.text(5)?.unwrap_or_default();
    if let Ok(code) = u32::try_from(code)
        && code > 0
        && organization.eq_ignore_ascii_case("EPSG")
    {
        return Ok(Declared::Code(code));
    }
    if organization.eq_ignore_ascii_case("OGC") && code_text.eq_ignore_ascii_case("CRS84") {
        return Ok(Declared::Code(4326));
    }
    let described = [crs.text(4)?, crs.text(2)?, crs.text(3)?].into_iter().flatten().find(|text| !text.is_empty());
    Ok(match described {
        Some(text) => Declared::Unknown(text.chars().take(CRS_CHARACTERS_MAX).collect()),
        None if code != 0 || !code_text.is_empty() => Declared::Unknown(format!("{organization}:{code}{code_text}")),
        None => Declared::Nothing,
    })
}

/// Reads the features.
struct Features {
    input: Input,
    types: Vec<Type>,
    layer: Vec<Field>,
    geometry_type: u8,
    /// Zero where it is not known.
    expected: u64,
    number: u64,
    limits: Limits,
    /// The feature being read; its memory is used again.
    buffer: Vec<u8>,
    ended: bool,
}

impl Rows for Features {
    fn next(&mut self) -> Result<Option<Item>> {
        if self.ended {
            return Ok(None);
        }
        let read = self.read();
        self.ended = !matches!(read, Ok(Some(_)));
        read
    }
}

impl Features {
    fn read(&mut self) -> Result<Option<Item>> {
        let place = format_args!("feature {}", self.number + 1).to_string();
        let Some(size) = self.input.size(&place)? else {
            if self.expected > self.number {
                let message = format!(
                    "the FlatGeobuf file ends after {} of {} features; it was cut off",
                    self.number, self.expected
                );
                return Err(Error::new("fgb_truncated", message));
            }
            return Ok(None);
        };
        if self.expected > 0 && self.number == self.expected {
            let message = format!("its header counts {} features, but more follow; it is damaged", self.expected);
            return Err(Error::new("fgb_damaged", message));
        }
        self.number += 1;
        let size = u64::from(size);
        if size > FEATURE_BYTES_MAX {
            self.input.skip(size, &place)?;
            let message = format!("it has {size} bytes, at most {FEATURE_BYTES_MAX} are accepted");
            return Ok(Some(Fault::new("limit_bytes", message).item(self.number, Vec::new())));
        }
        self.input.take(size, &mut self.buffer, &place)?;
        Ok(Some(match self.row() {
            Ok(row) => Item::Row(row),
            Err(fault) => {
                let shown = self.buffer.len().min(crate::BAD_BYTES_MAX);
                fault.item(self.number, self.buffer[..shown].to_vec())
            }
        }))
    }

    fn row(&self) -> Read<Row> {
        let feature = Table::root(&self.buffer)?;
        if feature.tables(2)?.iter().next().is_some() {
            return Err(Fault::new("fgb_columns", "it has columns of its own, unlike the header's"));
        }
        let geometry = match feature.table(0)? {
            Some(table) => Some(shape::read(&table, self.geometry_type, &self.limits)?),
            None => None,
        };
        let mut values = vec![Property::Null; self.types.len()];
        let mut rest = feature.vector(1, 1)?;
        while !rest.is_empty() {
            let column = usize::from(u16::from_le_bytes(take(&mut rest)?));
            let found = self.types.get(column).ok_or(Damaged)?;
            values[column] = property(*found, &mut rest).map_err(|fault| fault.of(&self.layer[column].name))?;
        }
        Ok(Row { number: self.number, id: None, geometry, values, text: None })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Damaged> {
    let (head, tail) = rest.split_first_chunk().ok_or(Damaged)?;
    *rest = tail;
    Ok(*head)
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Damaged> {
    let length = u32::from_le_bytes(take(rest)?) as usize;
    let (head, tail) = rest.split_at_checked(length).ok_or(Damaged)?;
    *rest = tail;
    Ok(head)
}

fn property(found: Type, rest: &mut &[u8]) -> Read<Property> {
    Ok(match found {
        Type::Byte => Property::Integer(i8::from_le_bytes(take(rest)?).into()),
        Type::UByte => Property::Integer(u8::from_le_bytes(take(rest)?).into()),
        Type::Bool => Property::Boolean(take::<1>(rest)? != [0]),
        Type::Short => Property::Integer(i16::from_le_bytes(take(rest)?).into()),
        Type::UShort => Property::Integer(u16::from_le_bytes(take(rest)?).into()),
        Type::Int => Property::Integer(i32::from_le_bytes(take(rest)?).into()),
        Type::UInt => Property::Integer(u32::from_le_bytes(take(rest)?).into()),
        Type::Long => Property::Integer(i64::from_le_bytes(take(rest)?)),
        Type::ULong => value::unsigned(u64::from_le_bytes(take(rest)?))?,
        Type::Float => value::real(f32::from_le_bytes(take(rest)?).into())?,
        Type::Double => value::real(f64::from_le_bytes(take(rest)?))?,
        Type::String => Property::Text(value::text(take_bytes(rest)?)?.to_owned()),
        Type::Json => value::json(value::text(take_bytes(rest)?)?)?,
        Type::DateTime => value::date_time(value::text(take_bytes(rest)?)?)?,
        Type::Binary => value::binary(take_bytes(rest)?),
    })
}

#[cfg(test)]
mod tests;
