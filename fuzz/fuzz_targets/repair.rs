//! Validity and repair never panic; what repair returns is valid, and repairing it again changes nothing.
#![no_main]

use geonce_key::repair::{Options, repair};
use geonce_key::validity::check;
use geonce_key::{Kind, Limits, Shape};
use libfuzzer_sys::fuzz_target;

/// Rings of positions on a small grid, so that everything crosses, touches and repeats.
fn shape(bytes: &[u8]) -> Shape<i64> {
    let mut shape = Shape::new();
    for part in bytes.split(|&b| b == 0xff) {
        let rings: Vec<&[u8]> = part.split(|&b| b == 0xfe).filter(|ring| ring.len() >= 3).collect();
        for ring in &rings {
            let position = |b: u8| [i64::from(b % 15), i64::from(b / 15), 0];
            shape.positions.extend(ring.iter().map(|&b| position(b)));
            shape.positions.push(position(ring[0]));
            shape.end_path();
        }
        if !rings.is_empty() {
            shape.end_part();
        }
    }
    shape.end_member(if shape.parts.len() == 1 { Kind::Polygon } else { Kind::MultiPolygon });
    shape
}

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { work_max: 400_000, ..Limits::default() };
    let shape = shape(bytes);
    if shape.parts.is_empty() {
        return;
    }
    let report = check(&shape, &limits);
    let Ok(repaired) = repair(&shape, &Options::default(), &limits) else { return };
    let after = check(&repaired.shape, &limits);
    assert!(!after.complete || after.problems.is_empty(), "{:?}", after.problems);
    if report.complete && report.problems.is_empty() {
        assert!(!repaired.changed);
    }
    if let Ok(again) = repair(&repaired.shape, &Options::default(), &limits) {
        assert!(!again.changed);
    }
});
