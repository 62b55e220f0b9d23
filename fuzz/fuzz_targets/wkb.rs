//! The WKB reader never panics, and what it reads survives writing and reading.
#![no_main]

use geonce_key::{Limits, wkb};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { depth_max: 16, positions_max: 1_000, ..Limits::default() };
    let _ = wkb::read_hex(bytes, &limits);
    let Ok(read) = wkb::read(bytes, &limits) else { return };
    let written = wkb::write(&read.shape, read.srid);
    let again = wkb::read(&written, &Limits::default()).expect("our own WKB is refused");
    assert_eq!(again, read);
    assert_eq!(wkb::write(&again.shape, again.srid), written);
});
