//! Checks and repairs geometries on the integer grid, one per line, for comparison with other implementations.
//!
//! Reads `{"op": "check" | "repair", "type": …, "coordinates": …}` from standard input; coordinates are integers.
//! Writes `{"valid": …, "complete": …, "codes": […]}` or `{"type": …, "coordinates": …}` or `{"error": code}`.

use std::io::{BufRead, Write};

use geonce_key::repair::{Options, repair};
use geonce_key::shape::MemberRef;
use geonce_key::validity::check;
use geonce_key::{Kind, Limits, Shape};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let shape = read(&request).ok_or("a geometry of integer coordinates is needed")?;
        let answer = if request["op"] == "repair" { repaired(&shape) } else { checked(&shape) };
        writeln!(out, "{answer}")?;
    }
    Ok(out.flush()?)
}

fn checked(shape: &Shape<i64>) -> Value {
    let report = check(shape, &Limits::default());
    let codes: Vec<_> = report.problems.iter().map(|problem| problem.code.as_str()).collect();
    json!({"valid": report.is_valid(), "complete": report.complete, "codes": codes})
}

fn repaired(shape: &Shape<i64>) -> Value {
    match repair(shape, &Options::default(), &Limits::default()) {
        Ok(repaired) => {
            let mut answer = write(&repaired.shape);
            answer["changed"] = json!(repaired.changed);
            answer["shift_max"] = json!(repaired.shift_max);
            answer
        }
        Err(error) => json!({"error": error.code().as_str()}),
    }
}

fn read(request: &Value) -> Option<Shape<i64>> {
    let kind = Kind::from_name(request["type"].as_str()?)?;
    let one = [request["coordinates"].clone()];
    let parts = if kind.is_multi() { request["coordinates"].as_array()?.as_slice() } else { &one };
    let mut shape = Shape::new();
    for part in parts {
        let one = [part.clone()];
        let paths = if kind.part() == Kind::Polygon { part.as_array()?.as_slice() } else { &one };
        for path in paths {
            let one = [path.clone()];
            let positions = if kind.part() == Kind::Point { &one } else { path.as_array()?.as_slice() };
            for position in positions {
                let z = position.get(2).map_or(Some(0), Value::as_i64)?;
                shape.has_z |= position.get(2).is_some();
                shape.positions.push([position[0].as_i64()?, position[1].as_i64()?, z]);
            }
            shape.end_path();
        }
        shape.end_part();
    }
    shape.end_member(kind);
    Some(shape)
}

fn write(shape: &Shape<i64>) -> Value {
    let mut parts = Vec::new();
    for part in shape.members().flat_map(MemberRef::parts) {
        let mut paths = Vec::new();
        for path in part.paths() {
            let positions: Vec<Value> =
                path.iter().map(|p| if shape.has_z { json!(p) } else { json!([p[0], p[1]]) }).collect();
            paths.push(json!(positions));
        }
        parts.push(paths);
    }
    let kind = shape.members[0].kind;
    let mut nested: Vec<Value> = parts
        .into_iter()
        .map(|mut paths| match kind.part() {
            Kind::Polygon => json!(paths),
            Kind::Point => paths.swap_remove(0)[0].clone(),
            _ => paths.swap_remove(0),
        })
        .collect();
    let coordinates = if kind.is_multi() { json!(nested) } else { nested.swap_remove(0) };
    json!({"type": kind.name(), "coordinates": coordinates})
}
