//! A column of plain values: what its values are, and how the bits of Parquet become them.

use super::failure;
use crate::value::{self, Fault, Read};
use crate::{Error, Field, FieldKind, Result, calendar};
use geonce_key::Property;
use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{DataType, Int96};
use parquet::file::reader::RowGroupReader;
use parquet::schema::types::ColumnDescriptor;

/// Decimals up to here become numbers: a double keeps that many digits.
const DECIMAL_REAL_DIGITS: i32 = 15;
/// Decimals without fraction up to here fit 64 bits.
const DECIMAL_INTEGER_DIGITS: i32 = 18;
/// The most that a power of ten may be in a decimal that is read here.
const DECIMAL_SCALE_MAX: i32 = 1_000;
/// Julian day of 1970-01-01, from which INT96 counts.
const JULIAN_EPOCH_DAYS: i64 = 2_440_588;

/// What a value means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Boolean,
    Integer,
    Unsigned,
    Real,
    HalfReal,
    Text,
    Json,
    Binary,
    Uuid,
    Date,
    /// Parts of a second since 1970, how many there are, and whether in UTC.
    Moment(i64, bool),
    /// Parts of a second since midnight.
    Time(i64),
    Decimal {
        digits: i32,
        scale: i32,
    },
}

/// A column that is read alongside the others.
pub(super) struct Flat {
    name: String,
    /// Its place among the primitive columns of the file.
    leaf: usize,
    meaning: Meaning,
    /// Zero where a value is never missing.
    definition_max: i16,
    reader: Option<ColumnReader>,
}

impl Flat {
    pub(super) fn new(column: &ColumnDescriptor, leaf: usize) -> Flat {
        Flat {
            name: column.name().to_owned(),
            leaf,
            meaning: meaning(column),
            definition_max: column.max_def_level(),
            reader: None,
        }
    }

    pub(super) fn field(&self) -> Field {
        let kind = match self.meaning {
            Meaning::Boolean => FieldKind::Boolean,
            Meaning::Integer | Meaning::Unsigned => FieldKind::Integer,
            Meaning::Real | Meaning::HalfReal => FieldKind::Real,
            Meaning::Text | Meaning::Binary | Meaning::Uuid | Meaning::Time(_) => FieldKind::Text,
            Meaning::Json => FieldKind::Json,
            Meaning::Date => FieldKind::Date,
            Meaning::Moment(..) => FieldKind::DateTime,
            Meaning::Decimal { digits, scale } => decimal_kind(digits, scale),
        };
        Field { name: self.name.clone(), kind }
    }

    /// What a person should know of it.
    pub(super) fn notice(&self) -> Option<String> {
        match self.meaning {
            Meaning::Binary => Some(format!("field {}: its bytes are given as Base64", self.name)),
            Meaning::Decimal { digits, scale } if decimal_kind(digits, scale) == FieldKind::Text => {
                Some(format!("field {}: its decimals of {digits} digits are given as text", self.name))
            }
            _ => None,
        }
    }

    /// Goes on to a row group.
    pub(super) fn start(&mut self, group: &dyn RowGroupReader) -> Result<()> {
        self.reader = Some(group.get_column_reader(self.leaf).map_err(|e| failure("reading", &e))?);
        Ok(())
    }

    /// Reads the bytes of the next rows.
    pub(super) fn bytes(&mut self, count: usize, mut give: impl FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let max = self.definition_max;
        match &mut self.reader {
            Some(ColumnReader::ByteArrayColumnReader(reader)) => {
                each(reader, count, max, |index, bytes| give(index, bytes.map(parquet::data_type::ByteArray::data)))
            }
            _ => Err(damaged()),
        }
    }

    /// Reads the values of the next rows.
    pub(super) fn read(&mut self, count: usize, mut give: impl FnMut(usize, Read<Property>)) -> Result<()> {
        let (max, meaning) = (self.definition_max, self.meaning);
        let mut put = |index: usize, value: Option<Read<Property>>| give(index, value.unwrap_or(Ok(Property::Null)));
        match &mut self.reader {
            Some(ColumnReader::BoolColumnReader(reader)) => {
                each(reader, count, max, |index, found| put(index, found.map(|&value| Ok(Property::Boolean(value)))))
            }
            Some(ColumnReader::Int32ColumnReader(reader)) => each(reader, count, max, |index, found| {
                put(index, found.map(|&value| of_integer(value.into(), meaning, true)));
            }),
            Some(ColumnReader::Int64ColumnReader(reader)) => each(reader, count, max, |index, found| {
                put(index, found.map(|&value| of_integer(value, meaning, false)));
            }),
            Some(ColumnReader::Int96ColumnReader(reader)) => {
                each(reader, count, max, |index, found| put(index, found.map(of_int96)))
            }
            Some(ColumnReader::FloatColumnReader(reader)) => {
                each(reader, count, max, |index, found| put(index, found.map(|&value| value::real(value.into()))))
            }
            Some(ColumnReader::DoubleColumnReader(reader)) => {
                each(reader, count, max, |index, found| put(index, found.map(|&value| value::real(value))))
            }
            Some(ColumnReader::ByteArrayColumnReader(reader)) => {
                each(reader, count, max, |index, found| put(index, found.map(|value| of_bytes(value.data(), meaning))))
            }
            Some(ColumnReader::FixedLenByteArrayColumnReader(reader)) => {
                each(reader, count, max, |index, found| put(index, found.map(|value| of_bytes(value.data(), meaning))))
            }
            None => Err(damaged()),
        }
    }
}

fn damaged() -> Error {
    Error::new("parquet_damaged", "a column of the Parquet file ends before the others; it is damaged")
}

/// Gives the next values in their places; none where one is missing.
fn each<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    count: usize,
    definition_max: i16,
    mut give: impl FnMut(usize, Option<&T::T>),
) -> Result<()> {
    let mut values = Vec::with_capacity(count);
    let mut definitions = Vec::new();
    let wanted = (definition_max > 0).then_some(&mut definitions);
    let (rows, ..) = reader.read_records(count, wanted, None, &mut values).map_err(|e| failure("reading", &e))?;
    let present = definitions.iter().filter(|&&definition| definition == definition_max).count();
    let whole =
        if definition_max > 0 { definitions.len() == count && present == values.len() } else { values.len() == count };
    if rows != count || !whole {
        return Err(damaged());
    }
    if definition_max == 0 {
        values.iter().enumerate().for_each(|(index, value)| give(index, Some(value)));
        return Ok(());
    }
    let mut values = values.iter();
    for (index, definition) in definitions.iter().enumerate() {
        give(index, if *definition == definition_max { values.next() } else { None });
    }
    Ok(())
}

fn parts(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::MILLIS => 1_000,
        TimeUnit::MICROS => 1_000_000,
        TimeUnit::NANOS => 1_000_000_000,
    }
}

fn meaning(column: &ColumnDescriptor) -> Meaning {
    let physical = column.physical_type();
    let plain = match physical {
        Physical::BOOLEAN => Meaning::Boolean,
        Physical::INT32 | Physical::INT64 => Meaning::Integer,
        Physical::INT96 => Meaning::Moment(1, false),
        Physical::FLOAT | Physical::DOUBLE => Meaning::Real,
        Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY => Meaning::Binary,
    };
    let is_integer = plain == Meaning::Integer;
    let is_bytes = plain == Meaning::Binary;
    let found = match column.logical_type_ref() {
        Some(LogicalType::String | LogicalType::Enum) => Meaning::Text,
        Some(LogicalType::Json) => Meaning::Json,
        Some(LogicalType::Date) => Meaning::Date,
        Some(LogicalType::Uuid) => Meaning::Uuid,
        Some(LogicalType::Float16) => Meaning::HalfReal,
        Some(LogicalType::Integer(integer)) if !integer.is_signed => Meaning::Unsigned,
        Some(LogicalType::Timestamp(moment)) => Meaning::Moment(parts(moment.unit), moment.is_adjusted_to_u_t_c),
        Some(LogicalType::Time(time)) => Meaning::Time(parts(time.unit)),
        Some(LogicalType::Decimal(decimal)) => Meaning::Decimal { digits: decimal.precision, scale: decimal.scale },
        Some(_) => plain,
        None => converted(column, plain),
    };
    // A type that does not go with the bits is none.
    let fits = match found {
        Meaning::Text | Meaning::Json => is_bytes,
        Meaning::Uuid | Meaning::HalfReal => physical == Physical::FIXED_LEN_BYTE_ARRAY,
        Meaning::Date => physical == Physical::INT32,
        Meaning::Unsigned | Meaning::Moment(2.., _) | Meaning::Time(_) => is_integer,
        Meaning::Decimal { scale, .. } => (is_integer || is_bytes) && (0..=DECIMAL_SCALE_MAX).contains(&scale),
        _ => true,
    };
    if fits { found } else { plain }
}

/// What older files say instead.
fn converted(column: &ColumnDescriptor, plain: Meaning) -> Meaning {
    match column.converted_type() {
        ConvertedType::UTF8 | ConvertedType::ENUM => Meaning::Text,
        ConvertedType::JSON => Meaning::Json,
        ConvertedType::DATE => Meaning::Date,
        ConvertedType::TIME_MILLIS => Meaning::Time(1_000),
        ConvertedType::TIME_MICROS => Meaning::Time(1_000_000),
        ConvertedType::TIMESTAMP_MILLIS => Meaning::Moment(1_000, true),
        ConvertedType::TIMESTAMP_MICROS => Meaning::Moment(1_000_000, true),
        ConvertedType::UINT_8 | ConvertedType::UINT_16 | ConvertedType::UINT_32 | ConvertedType::UINT_64 => {
            Meaning::Unsigned
        }
        ConvertedType::DECIMAL => Meaning::Decimal { digits: column.type_precision(), scale: column.type_scale() },
        _ => plain,
    }
}

fn decimal_kind(digits: i32, scale: i32) -> FieldKind {
    match scale {
        0 if digits <= DECIMAL_INTEGER_DIGITS => FieldKind::Integer,
        _ if digits <= DECIMAL_REAL_DIGITS => FieldKind::Real,
        _ => FieldKind::Text,
    }
}

fn of_integer(number: i64, meaning: Meaning, is_narrow: bool) -> Read<Property> {
    match meaning {
        #[expect(
            clippy::cast_sign_loss,
            clippy::cast_possible_truncation,
            reason = "the bits mean a number without sign"
        )]
        Meaning::Unsigned if is_narrow => Ok(Property::Integer((number as u32).into())),
        #[expect(clippy::cast_sign_loss, reason = "the bits mean a number without sign")]
        Meaning::Unsigned => value::unsigned(number as u64),
        Meaning::Date => calendar::date_of_days(number)
            .map(Property::Text)
            .ok_or_else(|| value::unfit(&format!("day {number}"), "date")),
        Meaning::Moment(parts, is_utc) => moment(number.div_euclid(parts), number.rem_euclid(parts), parts, is_utc),
        Meaning::Time(parts) => time(number, parts),
        Meaning::Decimal { digits, scale } => decimal(number.into(), digits, scale),
        _ => Ok(Property::Integer(number)),
    }
}

fn moment(seconds: i64, rest: i64, parts: i64, is_utc: bool) -> Read<Property> {
    let text = calendar::date_time_of_seconds(seconds, nanoseconds(rest, parts), is_utc);
    text.map(Property::Text).ok_or_else(|| value::unfit(&format!("second {seconds}"), "date and time"))
}

fn nanoseconds(rest: i64, parts: i64) -> u32 {
    u32::try_from(rest * (1_000_000_000 / parts)).unwrap_or_default()
}

fn time(number: i64, parts: i64) -> Read<Property> {
    let (seconds, rest) = (number.div_euclid(parts), number.rem_euclid(parts));
    if !(0..86_400).contains(&seconds) {
        return Err(value::unfit(&format!("second {seconds}"), "time of the day"));
    }
    Ok(Property::Text(calendar::time_of_seconds(seconds, nanoseconds(rest, parts))))
}

/// Nanoseconds of the day and a Julian day, as older programs write moments.
fn of_int96(found: &Int96) -> Read<Property> {
    let [low, high, day] = found.data() else { return Err(Fault::new("value_kind", "it has no 96 bits")) };
    let of_day = (u64::from(*high) << 32) | u64::from(*low);
    let seconds = i64::try_from(of_day / 1_000_000_000).unwrap_or(i64::MAX);
    let rest = i64::try_from(of_day % 1_000_000_000).unwrap_or_default();
    let days = i64::from(*day) - JULIAN_EPOCH_DAYS;
    moment((days * 86_400).saturating_add(seconds), rest, 1_000_000_000, false)
}

fn of_bytes(bytes: &[u8], meaning: Meaning) -> Read<Property> {
    match meaning {
        Meaning::Text => Ok(Property::Text(value::text(bytes)?.to_owned())),
        Meaning::Json => value::json(value::text(bytes)?),
        Meaning::Uuid => Ok(Property::Text(uuid(bytes))),
        Meaning::HalfReal => match bytes.first_chunk() {
            Some(bits) => value::real(half(u16::from_le_bytes(*bits))),
            None => Err(Fault::new("value_kind", "it has no 16 bits")),
        },
        Meaning::Decimal { digits, scale } => {
            let unscaled = whole(bytes).ok_or_else(|| Fault::new("value_kind", "a decimal of more than 128 bits"))?;
            decimal(unscaled, digits, scale)
        }
        _ => Ok(value::binary(bytes)),
    }
}

fn uuid(bytes: &[u8]) -> String {
    let mut text = value::hex(bytes);
    if text.len() == 32 {
        for place in [20, 16, 12, 8] {
            text.insert(place, '-');
        }
    }
    text
}

/// A double from the 16 bits of IEEE 754 binary16.
fn half(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from((bits >> 10) & 31), f64::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2_f64.powi(-24),
        31 if fraction > 0.0 => f64::NAN,
        31 => f64::INFINITY,
        _ => (1.0 + fraction / 1_024.0) * 2_f64.powi(exponent - 15),
    }
}

/// A whole number from its big-endian bytes, with sign.
fn whole(bytes: &[u8]) -> Option<i128> {
    let negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
    let mut wide = [if negative { 0xff } else { 0 }; 16];
    let start = 16_usize.checked_sub(bytes.len())?;
    wide[start..].copy_from_slice(bytes);
    Some(i128::from_be_bytes(wide))
}

fn decimal(unscaled: i128, digits: i32, scale: i32) -> Read<Property> {
    let kind = decimal_kind(digits, scale);
    if kind == FieldKind::Integer {
        return i64::try_from(unscaled)
            .map(Property::Integer)
            .map_err(|_| value::unfit(&unscaled.to_string(), "number of 64 bits"));
    }
    let text = decimal_text(unscaled, usize::try_from(scale).unwrap_or_default());
    match (kind, text.parse()) {
        (FieldKind::Real, Ok(number)) => Ok(Property::Real(number)),
        _ => Ok(Property::Text(text)),
    }
}

/// A decimal with this many digits after the point.
pub(super) fn decimal_text(unscaled: i128, scale: usize) -> String {
    let mut text = format!("{:0width$}", unscaled.unsigned_abs(), width = scale + 1);
    if scale > 0 {
        text.insert(text.len() - scale, '.');
    }
    if unscaled < 0 {
        text.insert(0, '-');
    }
    text
}

/// The same of bytes, whatever their number is.
pub(super) fn decimal_of_bytes(bytes: &[u8], scale: i32) -> Option<String> {
    let scale = usize::try_from(scale).ok().filter(|_| scale <= DECIMAL_SCALE_MAX)?;
    Some(decimal_text(whole(bytes)?, scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_keep_their_digits() {
        assert_eq!(decimal_text(-5, 3), "-0.005");
        assert_eq!(decimal_text(12_345, 2), "123.45");
        assert_eq!(decimal_text(7, 0), "7");
        assert_eq!(decimal_of_bytes(&[0xff, 0x85], 1).as_deref(), Some("-12.3"));
        assert_eq!(whole(&[0x80; 17]), None);
        assert_eq!(decimal(1_234, 9, 2).unwrap(), Property::Real(12.34));
        assert_eq!(decimal(1_234, 30, 2).unwrap(), Property::Text("12.34".to_owned()));
        assert_eq!(decimal(1_234, 18, 0).unwrap(), Property::Integer(1_234));
    }

    #[test]
    fn halves_and_moments_are_exact() {
        assert_eq!([0x3c00, 0xc000, 0x0001, 0x7bff].map(half).to_vec(), vec![1.0, -2.0, 2_f64.powi(-24), 65_504.0]);
        let text = |read: Read<Property>| match read.unwrap() {
            Property::Text(text) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(text(of_integer(-1, Meaning::Moment(1_000, true), false)), "1969-12-31T23:59:59.999Z");
        assert_eq!(text(of_integer(86_399_000_001, Meaning::Time(1_000_000), false)), "23:59:59.000001");
        assert!(of_integer(86_400, Meaning::Time(1), false).is_err());
        assert!(of_integer(i64::MAX, Meaning::Moment(1_000, true), false).is_err());
        let mut int96 = Int96::new();
        int96.set_data(1_000_000_000, 0, 2_440_589);
        assert_eq!(text(of_int96(&int96)), "1970-01-02T00:00:01");
    }
}
