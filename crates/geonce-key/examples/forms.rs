//! Reads lines `wkt …` or `hex …` and answers each with `ok <EWKB in hexadecimal>` or `err <code>`.

use std::fmt::Write as _;
use std::io::{self, BufRead as _, Write as _};

use geonce_key::{Limits, wkb, wkt};

fn main() -> io::Result<()> {
    let limits = Limits::default();
    let mut out = io::BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().split(b'\n') {
        let line = line?;
        let answer = match line.split_at_checked(4) {
            Some((b"wkt ", text)) => wkt::read(text, &limits),
            Some((b"hex ", text)) => wkb::read_hex(text, &limits),
            _ => return Err(io::Error::other("a line starts with 'wkt ' or 'hex '")),
        };
        match answer {
            Ok(delivered) => {
                let hex = wkb::write(&delivered.shape, delivered.srid).iter().fold(String::new(), |mut hex, byte| {
                    // Writing to a String cannot fail.
                    let _ = write!(hex, "{byte:02x}");
                    hex
                });
                writeln!(out, "ok {hex}")?;
            }
            Err(error) => writeln!(out, "err {}", error.code())?,
        }
    }
    out.flush()
}
