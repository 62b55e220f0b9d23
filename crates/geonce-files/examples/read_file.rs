//! Reads a file and prints what it holds, a JSON document per line: the layer, then its features. For comparing with other readers.
//!
//! ```text
//! read_file [--count] [--layer NAME] FORMAT FILE
//! ```

use geonce_files::{Declared, Format, Item, Options, open};
use geonce_key::{Property, wkb};
use serde_json::{Value, json};
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut options = Options::default();
    let count_only =
        arguments.iter().position(|argument| argument == "--count").map(|at| arguments.remove(at)).is_some();
    if let Some(at) = arguments.iter().position(|argument| argument == "--layer") {
        arguments.remove(at);
        options.layer = Some(arguments.remove(at));
    }
    let [format, path] = arguments.as_slice() else {
        eprintln!("usage: read_file [--count] [--layer NAME] FORMAT FILE");
        return ExitCode::from(2);
    };
    options.format = match format.as_str() {
        "gpkg" => Some(Format::GeoPackage),
        "fgb" => Some(Format::FlatGeobuf),
        "parquet" => Some(Format::GeoParquet),
        _ => None,
    };
    match run(Path::new(path), &options, count_only) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", error.code());
            ExitCode::FAILURE
        }
    }
}

fn run(path: &Path, options: &Options, count_only: bool) -> geonce_files::Result<()> {
    let mut file = open(path, options)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    // A pipe that was closed early is the reader's decision.
    let mut print = |value: Value| drop(writeln!(out, "{value}"));
    let crs = match &file.layer.crs {
        Declared::Nothing => Value::Null,
        Declared::Code(code) => json!(code),
        Declared::Unknown(text) => json!(text),
    };
    let fields: Vec<_> =
        file.layer.fields.iter().map(|field| json!([field.name, format!("{:?}", field.kind)])).collect();
    print(json!({ "layer": file.layer.name, "crs": crs, "fields": fields, "features": file.layer.features,
        "notices": file.layer.notices }));
    let (mut rows, mut bad) = (0_u64, 0_u64);
    while let Some(item) = file.rows.next()? {
        match item {
            Item::Row(_) if count_only => rows += 1,
            Item::Row(row) => {
                let hex = row.geometry.as_ref().map(|shape| hex(&wkb::write(shape, None)));
                let values: Vec<_> = row.values.into_iter().map(value).collect();
                print(json!({ "number": row.number, "geometry": hex, "values": values }));
            }
            Item::Bad(found) => {
                bad += 1;
                if !count_only || bad <= 3 {
                    print(json!({ "number": found.number, "bad": found.code, "message": found.message }));
                }
            }
        }
    }
    if count_only {
        print(json!({ "rows": rows, "bad": bad }));
    }
    Ok(())
}

fn value(property: Property) -> Value {
    match property {
        Property::Null => Value::Null,
        Property::Boolean(boolean) => json!(boolean),
        Property::Integer(integer) => json!(integer),
        Property::Real(real) => json!(real),
        Property::Text(text) => json!(text),
        Property::Json(text) => serde_json::from_str(&text).unwrap_or_else(|error| json!(error.to_string())),
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect()
}
