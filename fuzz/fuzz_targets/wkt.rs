//! The WKT reader never panics, and what it reads survives writing and reading.
#![no_main]

use geonce_key::{Limits, wkb, wkt};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let limits = Limits { depth_max: 16, positions_max: 1_000, ..Limits::default() };
    let Ok(read) = wkt::read(text, &limits) else { return };
    let written = wkt::write(&read.shape);
    let again = wkt::read(written.as_bytes(), &Limits::default()).expect("our own WKT is refused");
    // Bytes tell 0 from -0, shapes do not.
    assert_eq!(wkb::write(&again.shape, read.srid), wkb::write(&read.shape, read.srid));
    assert_eq!(wkt::write(&again.shape), written);
});
