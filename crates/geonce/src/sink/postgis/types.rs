//! What columns are called in `PostgreSQL`, and how values of each are sent.

use crate::sink::columns::{Dialect, Type};
use tokio_postgres::types;

/// Columns as `PostgreSQL` has them. A row must fit a page of 8 KiB, where a long value takes 18 bytes and a short one up to
/// 30; so the number of columns is kept far below the server's own limit of 1,600.
pub(crate) static DIALECT: Dialect = Dialect {
    reserved: &["fid", "geom", "tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"],
    takes_nul: false,
    has_json: true,
    times_are_text: false,
    columns_max: 200,
};

/// What the length of a type with a limit is counted from.
const LENGTH_OFFSET: i32 = 4;

/// What a column takes whose type has this name in `pg_catalog`.
pub(crate) fn from_catalogue(name: &str, modifier: i32) -> Type {
    match name {
        "bool" => Type::Boolean,
        "int2" => Type::Integer(16),
        "int4" => Type::Integer(32),
        "int8" => Type::Integer(64),
        "float4" => Type::Single,
        "float8" => Type::Real,
        "numeric" => Type::Decimal,
        "text" => Type::Text(usize::MAX),
        "varchar" | "bpchar" => Type::Text(usize::try_from(modifier - LENGTH_OFFSET).unwrap_or(usize::MAX)),
        "json" => Type::Json,
        "jsonb" => Type::ParsedJson,
        "timestamptz" => Type::Time,
        "date" => Type::Date,
        "uuid" => Type::Uuid,
        _ => Type::Foreign,
    }
}

/// The type of a column that we make.
pub(crate) fn declared(kind: Type) -> &'static str {
    match kind {
        Type::Boolean => "boolean",
        Type::Integer(_) => "bigint",
        Type::Real => "double precision",
        Type::Json => "json",
        Type::Time => "timestamptz",
        Type::Date => "date",
        _ => "text",
    }
}

/// How values are sent: the array's type, and what the server makes of one.
pub(crate) fn sent(kind: Type) -> (types::Type, &'static str) {
    match kind {
        Type::Boolean => (types::Type::BOOL_ARRAY, ""),
        Type::Integer(_) => (types::Type::INT8_ARRAY, ""),
        Type::Real | Type::Single => (types::Type::FLOAT8_ARRAY, ""),
        Type::Text(_) | Type::Foreign => (types::Type::TEXT_ARRAY, ""),
        Type::Decimal => (types::Type::TEXT_ARRAY, "::numeric"),
        Type::Json => (types::Type::TEXT_ARRAY, "::json"),
        Type::ParsedJson => (types::Type::TEXT_ARRAY, "::jsonb"),
        Type::Time => (types::Type::TEXT_ARRAY, "::timestamptz"),
        Type::Date => (types::Type::TEXT_ARRAY, "::date"),
        Type::Uuid => (types::Type::TEXT_ARRAY, "::uuid"),
    }
}
