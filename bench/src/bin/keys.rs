//! Keys every line of a file on one thread and prints each key: the work that `floor` bounds from below.

use geonce_key::policy::{Field, Identity};
use geonce_key::{Encoding, Input, Keyer, Pointer, Policy};
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("usage: keys FILE [IDENTITY_POINTER…]")?;
    let fields = arguments.map(|text| Pointer::parse(&text).map(Field::required)).collect::<Result<Vec<_>, _>>()?;
    let mut policy = Policy::default();
    if !fields.is_empty() {
        policy.identity = Identity::Fields(fields);
    }
    let mut keyer = Keyer::new(&policy)?;
    let bytes = std::fs::read(file)?;
    let mut out = String::new();
    for line in geonce_bench::lines(&bytes) {
        match keyer.key(Input::json(line)) {
            Ok(keyed) => keyed.fingerprint.write(Encoding::Base64, &mut out),
            Err(error) => out.push_str(error.code().as_str()),
        }
        out.push('\n');
    }
    std::io::stdout().write_all(out.as_bytes())?;
    Ok(())
}
