//! Columns of lists, maps and structures, read row by row beside the plain ones and given as JSON.

use super::column::decimal_of_bytes;
use super::{failure, unreadable};
use crate::{Error, Result, calendar, value};
use geonce_key::Property;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};
use parquet::schema::types::{Type, TypePtr};
use serde_json::{Map, Value};
use std::path::Path;

/// The nested columns of a file.
pub(super) struct Nested {
    rows: RowIter<'static>,
}

impl Nested {
    /// Reads these columns of the root.
    pub(super) fn open(path: &Path, roots: Vec<TypePtr>) -> Result<Nested> {
        let file = std::fs::File::open(path).map_err(|error| unreadable(&error))?;
        let reader = SerializedFileReader::new(file).map_err(|e| failure("opening", &e))?;
        let name = reader.metadata().file_metadata().schema_descr().name().to_owned();
        let schema = Type::group_type_builder(&name).with_fields(roots).build().map_err(|e| failure("opening", &e))?;
        let rows = RowIter::from_file_into(Box::new(reader)).project(Some(schema));
        Ok(Nested { rows: rows.map_err(|e| failure("opening", &e))? })
    }

    /// The values of the next rows.
    pub(super) fn read(&mut self, count: usize) -> Result<Vec<Vec<Property>>> {
        let mut documents = Vec::with_capacity(count);
        for _ in 0..count {
            let Some(row) = self.rows.next() else {
                return Err(Error::new(
                    "parquet_damaged",
                    "a nested column of the Parquet file ends before the others",
                ));
            };
            let row = row.map_err(|e| failure("reading", &e))?;
            documents.push(row.into_columns().into_iter().map(|(_, field)| property(&field)).collect());
        }
        Ok(documents)
    }
}

fn property(field: &Field) -> Property {
    match field {
        Field::Null => Property::Null,
        field => Property::Json(document(field).to_string()),
    }
}

fn document(field: &Field) -> Value {
    match field {
        Field::Null => Value::Null,
        Field::Bool(value) => (*value).into(),
        Field::Byte(value) => (*value).into(),
        Field::Short(value) => (*value).into(),
        Field::Int(value) => (*value).into(),
        Field::Long(value) => (*value).into(),
        Field::UByte(value) => (*value).into(),
        Field::UShort(value) => (*value).into(),
        Field::UInt(value) => (*value).into(),
        Field::ULong(value) => (*value).into(),
        Field::Float16(value) => f64::from(*value).into(),
        Field::Float(value) => f64::from(*value).into(),
        Field::Double(value) => (*value).into(),
        Field::Decimal(value) => decimal_of_bytes(value.data(), value.scale()).map_or(Value::Null, Value::String),
        Field::Str(text) => text.as_str().into(),
        Field::Bytes(bytes) => value::json_value(value::binary(bytes.data())),
        Field::Date(days) => calendar::date_of_days((*days).into()).into(),
        Field::TimeMillis(time) => time_of((*time).into(), 1_000),
        Field::TimeMicros(time) => time_of(*time, 1_000_000),
        Field::TimestampMillis(moment) => moment_of(*moment, 1_000),
        Field::TimestampMicros(moment) => moment_of(*moment, 1_000_000),
        Field::Group(row) => structure(row),
        Field::ListInternal(list) => list.elements().iter().map(document).collect(),
        Field::MapInternal(map) => of_map(map.entries()),
    }
}

fn structure(row: &Row) -> Value {
    let members: Map<String, Value> =
        row.get_column_iter().map(|(name, field)| (name.clone(), document(field))).collect();
    Value::Object(members)
}

/// An object where all keys are text, otherwise an array of pairs.
fn of_map(entries: &[(Field, Field)]) -> Value {
    let named = |(key, value): &(Field, Field)| match key {
        Field::Str(name) => Some((name.clone(), document(value))),
        _ => None,
    };
    let members: Option<Map<String, Value>> = entries.iter().map(named).collect();
    match members {
        Some(members) if members.len() == entries.len() => Value::Object(members),
        _ => entries.iter().map(|(key, value)| Value::Array(vec![document(key), document(value)])).collect(),
    }
}

fn time_of(number: i64, parts: i64) -> Value {
    let (seconds, rest) = (number.div_euclid(parts), number.rem_euclid(parts));
    let nanoseconds = u32::try_from(rest * (1_000_000_000 / parts)).unwrap_or_default();
    calendar::time_of_seconds(seconds.rem_euclid(86_400), nanoseconds).into()
}

/// Whether it is one of UTC is not told here.
fn moment_of(number: i64, parts: i64) -> Value {
    let (seconds, rest) = (number.div_euclid(parts), number.rem_euclid(parts));
    let nanoseconds = u32::try_from(rest * (1_000_000_000 / parts)).unwrap_or_default();
    calendar::date_time_of_seconds(seconds, nanoseconds, false).into()
}
