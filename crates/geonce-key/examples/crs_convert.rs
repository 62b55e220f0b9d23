//! Converts positions for `tests/python/check_crs.py`: lines "code to|from x y" in, lines "x y" (or "none") out;
//! for "code wkt 0 0" the definition of the system.

use std::io::{self, BufRead, BufWriter, Write};

use geonce_key::crs::{Crs, lookup};

fn main() -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut crs: Option<Crs> = None;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [code, direction, x, y] = fields[..] else { return Err(io::Error::other("a line needs four fields")) };
        let code: u32 = code.parse().map_err(io::Error::other)?;
        let (x, y): (f64, f64) = (x.parse().map_err(io::Error::other)?, y.parse().map_err(io::Error::other)?);
        if crs.is_none_or(|crs| crs.code() != code) {
            crs = lookup(code);
        }
        if direction == "wkt" {
            writeln!(out, "{}", crs.and_then(|crs| crs.wkt()).unwrap_or_else(|| "none".to_owned()))?;
            continue;
        }
        let converted = match direction {
            "to" => crs.and_then(|crs| crs.to_wgs84(x, y)),
            _ => crs.and_then(|crs| crs.from_wgs84(x, y)),
        };
        match converted {
            Some((x, y)) => writeln!(out, "{x:?} {y:?}")?,
            None => writeln!(out, "none")?,
        }
    }
    out.flush()
}
