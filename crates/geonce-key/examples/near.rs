//! Compares pairs of geometries, one per line, for comparison with other implementations.
//!
//! Reads `{"a": geometry, "b": geometry, "measure": …, "threshold": …}` from standard input, with `"undirected": true` and
//! `"within": metres` where wanted. Writes `{"answer": "near" | "apart" | "incomparable" | "over budget", "value": …,
//! "steps": …, "bytes": …, "resolution": …, "home": […], "around": […]}`; homes of both, the cells around the first.

use std::io::{BufRead, Write};

use geonce_key::near::{Answer, Body, Budget, Cells, Measure, Rule, compare};
use geonce_key::{Input, Policy, Reader};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut reader = Reader::new(&Policy::default(), None)?;
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        writeln!(out, "{}", answer(&request, &mut reader)?)?;
    }
    Ok(out.flush()?)
}

fn answer(request: &Value, reader: &mut Reader) -> Result<Value, Box<dyn std::error::Error>> {
    let mut body = |name: &str| -> Result<Body, Box<dyn std::error::Error>> {
        let text = request[name].to_string();
        Ok(Body::new(&reader.read(Input::json(text.as_bytes()))?, false)?)
    };
    let (a, b) = (body("a")?, body("b")?);
    let measure = request["measure"].as_str().and_then(Measure::from_name).ok_or("which measure?")?;
    let threshold = request["threshold"].as_f64().ok_or("which threshold?")?;
    let rule = Rule { undirected: request["undirected"] == true, ..Rule::new(measure, threshold) };
    rule.check()?;
    let mut budget = Budget::default();
    let (word, value) = match compare(&a, &b, &rule, &mut budget) {
        Answer::Near(value) => ("near", Some(value)),
        Answer::Apart => ("apart", None),
        Answer::Incomparable => ("incomparable", None),
        Answer::OverBudget => ("over budget", None),
    };
    let cells = Cells::new(measure, request["within"].as_f64().unwrap_or(threshold))?;
    let hex = |cell: u64| format!("{cell:x}");
    Ok(json!({
        "answer": word,
        "value": value,
        "steps": budget.used(),
        "bytes": a.to_bytes().len(),
        "resolution": cells.resolution(),
        "home": [hex(cells.home(&a)), hex(cells.home(&b))],
        "around": cells.around(&a).into_iter().map(hex).collect::<Vec<_>>(),
    }))
}
