//! What a Parquet file says of its geometries: the `geo` entry of GeoParquet, or the column type of newer Parquet.

use crate::{Declared, Error, Result};
use parquet::basic::{LogicalType, Type as Physical};
use parquet::file::metadata::FileMetaData;
use parquet::schema::types::ColumnDescriptor;
use serde_json::Value;

const GEO_BYTES_MAX: usize = 16 << 20;
/// How much of an unknown coordinate system's description is kept.
const CRS_CHARACTERS_MAX: usize = 200;
const WGS84: u32 = 4326;

/// Where the geometries are.
#[derive(Debug)]
pub(super) struct Geometry {
    pub(super) column: String,
    pub(super) crs: Declared,
    /// Columns that only repeat the bounds of the geometries.
    pub(super) coverings: Vec<String>,
}

/// Finds the geometries of a file.
pub(super) fn find(described: &FileMetaData) -> Result<Geometry> {
    let entries = described.key_value_metadata().map(Vec::as_slice).unwrap_or_default();
    match entries.iter().find(|entry| entry.key == "geo").and_then(|entry| entry.value.as_deref()) {
        Some(text) => of_geo(text),
        None => of_schema(described),
    }
}

/// The geometries' column holds bytes, one geometry per row.
pub(super) fn check_geometry(column: &ColumnDescriptor) -> Result<()> {
    if column.physical_type() == Physical::BYTE_ARRAY && column.max_rep_level() == 0 && column.path().parts().len() == 1
    {
        return Ok(());
    }
    Err(Error::new("parquet_geometry", format!("its column {} does not hold WKB", column.path().string())))
}

fn of_geo(text: &str) -> Result<Geometry> {
    let damaged = |what: &str| Error::new("parquet_geo", format!("its description of the geometries {what}"));
    if text.len() > GEO_BYTES_MAX {
        return Err(damaged("is too long"));
    }
    let geo: Value = serde_json::from_str(text).map_err(|_| damaged("is not JSON"))?;
    let column = geo["primary_column"].as_str().ok_or_else(|| damaged("names no column"))?;
    let said = geo["columns"].get(column).ok_or_else(|| damaged("does not describe its column"))?;
    let encoding = said["encoding"].as_str().unwrap_or_default();
    if !encoding.eq_ignore_ascii_case("WKB") {
        let shown: String = encoding.chars().take(CRS_CHARACTERS_MAX).collect();
        let error =
            Error::new("parquet_encoding", format!("its geometries are encoded as {shown:?}; only WKB can be read"));
        return Err(error.hint("write it again with geometries as WKB, such as to_parquet(geometry_encoding=\"WKB\")"));
    }
    let crs = match said.get("crs") {
        None => Declared::Code(WGS84),
        Some(Value::Null) => Declared::Nothing,
        Some(crs) => of_projjson(crs),
    };
    // Each bound is given as a path to a column of numbers, the first part of which is the column of the file.
    let bounds = said["covering"]["bbox"].as_object();
    let paths = bounds.into_iter().flat_map(|bounds| bounds.values());
    let mut coverings: Vec<String> = paths.filter_map(|path| path[0].as_str()).map(str::to_owned).collect();
    coverings.dedup();
    coverings.retain(|covering| covering != column);
    Ok(Geometry { column: column.to_owned(), crs, coverings })
}

/// A coordinate system as PROJJSON, or as text, which older files have.
fn of_projjson(crs: &Value) -> Declared {
    let authority = crs["id"]["authority"].as_str().unwrap_or_default();
    let code = &crs["id"]["code"];
    let number = code.as_u64().or_else(|| code.as_str().and_then(|text| text.parse().ok()));
    if let Some(number) = number.and_then(|number| u32::try_from(number).ok())
        && authority.eq_ignore_ascii_case("EPSG")
    {
        return Declared::Code(number);
    }
    if authority.eq_ignore_ascii_case("OGC") && code == "CRS84" {
        return Declared::Code(WGS84);
    }
    let text = crs.as_str().or_else(|| crs["name"].as_str()).map_or_else(|| crs.to_string(), str::to_owned);
    of_text(&text)
}

fn of_text(text: &str) -> Declared {
    let code = |prefix: &str| {
        let head = text.get(..prefix.len()).filter(|head| head.eq_ignore_ascii_case(prefix))?;
        text[head.len()..].parse().ok()
    };
    match code("EPSG:") {
        Some(code) => Declared::Code(code),
        None if text.eq_ignore_ascii_case("OGC:CRS84") => Declared::Code(WGS84),
        None => Declared::Unknown(text.chars().take(CRS_CHARACTERS_MAX).collect()),
    }
}

fn of_schema(described: &FileMetaData) -> Result<Geometry> {
    let columns = described.schema_descr().columns();
    let found = columns.iter().find_map(|column| match column.logical_type_ref() {
        Some(LogicalType::Geometry(geometry)) => Some((column, geometry.crs.clone())),
        _ => None,
    });
    let Some((column, crs)) = found else {
        let error = Error::new("parquet_not_geo", "it is a Parquet file without geometries: it has no entry \"geo\"");
        return Err(error.hint("write it with geopandas' to_parquet, or with ogr2ogr -f Parquet"));
    };
    let crs = match crs.as_deref() {
        None | Some("") => Declared::Code(WGS84),
        Some(text) => serde_json::from_str(text).map_or_else(|_| of_text(text), |json: Value| of_projjson(&json)),
    };
    Ok(Geometry { column: column.name().to_owned(), crs, coverings: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(columns: &str) -> Result<Geometry> {
        of_geo(&format!(r#"{{"primary_column":"g","columns":{columns}}}"#))
    }

    #[test]
    fn the_coordinate_system_is_found_or_known_to_be_missing() {
        for (crs, expected) in [
            ("", Declared::Code(4326)),
            (r#","crs":null"#, Declared::Nothing),
            (r#","crs":{"id":{"authority":"EPSG","code":25832}}"#, Declared::Code(25832)),
            (r#","crs":{"id":{"authority":"EPSG","code":"3857"}}"#, Declared::Code(3857)),
            (r#","crs":{"id":{"authority":"OGC","code":"CRS84"}}"#, Declared::Code(4326)),
            (r#","crs":{"name":"here"}"#, Declared::Unknown("here".to_owned())),
            (r#","crs":"EPSG:4258""#, Declared::Code(4258)),
            (r#","crs":"é""#, Declared::Unknown("é".to_owned())),
        ] {
            let geometry = of(&format!(r#"{{"g":{{"encoding":"WKB"{crs}}}}}"#)).unwrap();
            assert_eq!(geometry.crs, expected, "{crs}");
        }
    }

    #[test]
    fn other_encodings_are_refused_by_name() {
        let error = of(r#"{"g":{"encoding":"multipolygon"}}"#).unwrap_err();
        assert_eq!(error.code(), "parquet_encoding");
        assert!(error.message().contains("multipolygon"));
        assert_eq!(of("{}").unwrap_err().code(), "parquet_geo");
        assert_eq!(of_geo("[]").unwrap_err().code(), "parquet_geo");
        assert_eq!(of_geo("{").unwrap_err().code(), "parquet_geo");
    }
}
