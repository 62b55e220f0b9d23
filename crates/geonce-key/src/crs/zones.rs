//! Systems that come in numbered zones of six degrees: rows made from a formula instead of a table.

use super::datum::{Datum, WGS84_DATUM};
use super::row::{METRE, Row, row, tm};
use super::table::{ETRS89, GDA94, GDA2020, NAD83};

/// Zones of one datum and hemisphere whose codes follow each other.
struct Family {
    first_code: u32,
    first_zone: u32,
    names: &'static [&'static str],
    datum: &'static Datum,
    false_northing: f64,
}

macro_rules! zones {
    ($prefix:literal, $suffix:literal, $($zone:literal)+) => { &[$(concat!($prefix, $zone, $suffix)),+] };
}

const NORTH: f64 = 0.0;
const SOUTH: f64 = 10_000_000.0;

#[rustfmt::skip]
static FAMILIES: [Family; 6] = [
    Family {
        first_code: 7_846, first_zone: 46, datum: &GDA2020, false_northing: SOUTH,
        names: zones!("GDA2020 / MGA zone ", "", 46 47 48 49 50 51 52 53 54 55 56 57 58 59),
    },
    Family {
        first_code: 25_828, first_zone: 28, datum: &ETRS89, false_northing: NORTH,
        names: zones!("ETRS89 / UTM zone ", "N", 28 29 30 31 32 33 34 35 36 37 38),
    },
    Family {
        first_code: 26_901, first_zone: 1, datum: &NAD83, false_northing: NORTH,
        names: zones!("NAD83 / UTM zone ", "N", 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23),
    },
    Family {
        first_code: 28_348, first_zone: 48, datum: &GDA94, false_northing: SOUTH,
        names: zones!("GDA94 / MGA zone ", "", 48 49 50 51 52 53 54 55 56 57 58),
    },
    Family {
        first_code: 32_601, first_zone: 1, datum: &WGS84_DATUM, false_northing: NORTH,
        names: zones!("WGS 84 / UTM zone ", "N", 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60),
    },
    Family {
        first_code: 32_701, first_zone: 1, datum: &WGS84_DATUM, false_northing: SOUTH,
        names: zones!("WGS 84 / UTM zone ", "S", 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60),
    },
];

/// The row of a zone's code.
pub(super) fn find(code: u32) -> Option<Row> {
    FAMILIES.iter().find_map(|family| {
        let index = code.checked_sub(family.first_code)?;
        let name = family.names.get(usize::try_from(index).ok()?)?;
        let meridian = f64::from(family.first_zone + index) * 6.0 - 183.0;
        Some(row(code, name, family.datum, tm(0.0, meridian, 0.9996, 500_000.0, family.false_northing), METRE))
    })
}

/// Every code of every zone.
#[cfg(test)]
pub(super) fn codes() -> impl Iterator<Item = u32> {
    FAMILIES.iter().flat_map(|family| (family.first_code..).take(family.names.len()))
}
