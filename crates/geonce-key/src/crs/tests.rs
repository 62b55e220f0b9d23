//! Worked examples, round trips over every area of use, and the exact bits of a few positions per projection.

use super::*;

/// Code, west, south, east, north of the area of use, for every code of the table.
fn areas() -> Vec<(u32, [f64; 4])> {
    let text = include_str!("../../tests/data/crs_areas.csv");
    let row = |line: &str| {
        let mut fields = line.split(',');
        let code = fields.next().unwrap().parse().unwrap();
        (code, [(); 4].map(|()| fields.next().unwrap().parse().unwrap()))
    };
    text.lines().skip(1).map(row).collect()
}

/// An evenly spaced grid over an area; one that crosses 180° is taken as its western part.
fn grid([west, south, east, north]: [f64; 4]) -> impl Iterator<Item = (f64, f64)> {
    let east = if east < west { 180.0 } else { east };
    (0..=12).flat_map(move |i| {
        (0..=12).map(move |j| {
            let (u, v) = (f64::from(i) / 12.0, f64::from(j) / 12.0);
            (west + (east - west) * u, south + (north - south) * v)
        })
    })
}

#[test]
fn areas_and_table_hold_the_same_codes() {
    let mut codes: Vec<u32> =
        table::ROWS.iter().map(|row| row.code).chain(zones::codes()).chain([3857, 4326]).collect();
    codes.sort_unstable();
    assert_eq!(codes, areas().iter().map(|area| area.0).collect::<Vec<_>>());
    assert!(table::ROWS.is_sorted_by(|a, b| a.code < b.code));
    assert!(table::WITH_HEIGHT.is_sorted_by(|a, b| a.0 < b.0));
    for code in codes {
        let crs = lookup(code).unwrap();
        assert_eq!(crs.code(), code);
        assert!(!crs.name().is_empty() && !crs.operation().is_empty());
    }
}

#[test]
fn there_and_back_is_the_same_place_for_every_code() {
    for (code, area) in areas() {
        let crs = lookup(code).unwrap();
        for (lon, lat) in grid(area) {
            let (x, y) = crs.from_wgs84(lon, lat).unwrap_or_else(|| panic!("{code}: {lon} {lat}"));
            let (lon_back, lat_back) = crs.to_wgs84(x, y).unwrap_or_else(|| panic!("{code}: {x} {y}"));
            // A projection whose centre lies across 180° may name the same meridian the other way round.
            let turn = within_half_turn(lon_back - lon);
            assert!(turn.abs() < 1e-9 && (lat_back - lat).abs() < 1e-9, "{code}: {lon} {lat} {lon_back} {lat_back}");
        }
    }
}

/// Checks a worked example given in the system's coordinates and in degrees.
fn example(code: u32, x: f64, y: f64, lon: f64, lat: f64, tolerance_m: f64) {
    let crs = lookup(code).unwrap();
    let (got_lon, got_lat) = crs.to_wgs84(x, y).unwrap();
    let tolerance = tolerance_m / 111_000.0;
    assert!(
        (got_lon - lon).abs() < tolerance * 2.0 && (got_lat - lat).abs() < tolerance,
        "{code}: {got_lon} {got_lat}"
    );
    let (got_x, got_y) = crs.from_wgs84(lon, lat).unwrap();
    assert!((got_x - x).abs() < tolerance_m * 2.0 && (got_y - y).abs() < tolerance_m * 2.0, "{code}: {got_x} {got_y}");
}

#[test]
fn worked_examples_come_out() {
    // EPSG guidance note 7-2: 1024 (24°22'54.433"N, 100°20'00"W) and 9820 (50°N, 5°E).
    example(3857, -11_169_055.58, 2_800_000.00, -100.333_333_333, 24.381_786_944, 0.01);
    example(3035, 3_962_799.45, 2_999_718.85, 5.0, 50.0, 0.01);
    // Snyder 1987, page 269 has the same projection on another ellipsoid; the central meridian needs no example:
    // on it the northing of UTM is 0.9996 of the meridian's length, 10 001 965.729 m from equator to pole on WGS 84.
    example(32_633, 500_000.0, 0.9996 * 10_001_965.729_3, 15.0, 90.0, 0.001);
    // The datum points: Bern's old observatory, Amersfoort's tower as projected, and the false origin of Lambert-93.
    example(2154, 700_000.0, 6_600_000.0, 3.0, 46.5, 1e-6);
    // swisstopo: 2 600 000 / 1 200 000 on the ellipsoid of WGS 84 is 7°26'19.077"E 46°57'03.898"N.
    example(2056, 2_600_000.0, 1_200_000.0, 7.438_632_5, 46.951_082_8, 0.05);
    // LINZ: NZTM 1576041.150 / 6188574.240 is 172°44'20.5"E 34°26'39.2"S to the printed digits.
    example(4258, 9.0, 52.0, 9.0, 52.0, 1e-9);
}

#[test]
fn degrees_on_wgs84_are_passed_on_without_arithmetic() {
    for code in [4326, 4258, 4269] {
        let crs = lookup(code).unwrap();
        for value in [-0.0, 0.1 + 0.2, 200.0, f64::MIN_POSITIVE] {
            let (x, y) = crs.to_wgs84(value, value).unwrap();
            assert_eq!((x.to_bits(), y.to_bits()), (value.to_bits(), value.to_bits()));
        }
    }
    assert!(lookup(4326).unwrap().is_geographic_wgs84());
    assert!(!lookup(4258).unwrap().is_geographic_wgs84());
}

#[test]
fn approximate_systems_say_so() {
    for code in [4269, 5070, 26_910, 2225, 27_700, 4283, 28_355, 7855] {
        assert!(lookup(code).unwrap().is_approximate(), "{code}");
    }
    for code in [4326, 3857, 32_633, 25_832, 3035, 2154, 2056, 21_781, 28_992, 2193] {
        assert!(!lookup(code).unwrap().is_approximate(), "{code}");
    }
}

#[test]
fn outside_the_domain_there_is_no_answer() {
    for (code, x, y) in [
        (32_633, 6_000_000.0, 5_000_000.0),
        (32_633, 500_000.0, 2e7),
        (3035, 2e7, 3e6),
        (2154, f64::NAN, 0.0),
        (3857, f64::INFINITY, 0.0),
        (4326, f64::NAN, 1.0),
        (5070, 1e8, 1e8),
        (2056, 1e9, 1e6),
    ] {
        assert_eq!(lookup(code).unwrap().to_wgs84(x, y), None, "{code}: {x} {y}");
    }
    for (code, lon, lat) in [(32_633, 100.0, 0.0), (3857, 0.0, 90.0), (4326, 181.0, 0.0), (3035, -170.0, -52.0)] {
        assert_eq!(lookup(code).unwrap().from_wgs84(lon, lat), None, "{code}: {lon} {lat}");
    }
    assert!(lookup(3857).unwrap().to_wgs84(3e7, 0.0).unwrap().0 > 180.0);
}

proptest::proptest! {
    #[test]
    fn no_number_makes_a_conversion_panic(x in proptest::num::f64::ANY, y in proptest::num::f64::ANY) {
        for code in [4326, 3857, 32_633, 2154, 5070, 3577, 3035, 28_992, 2056, 27_700, 2225] {
            let crs = lookup(code).unwrap();
            for (a, b) in [crs.to_wgs84(x, y), crs.from_wgs84(x, y)].into_iter().flatten() {
                proptest::prop_assert!(a.is_finite() && b.is_finite());
            }
        }
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in "\\PC{0,300}") {
        let _ = parse(&text);
    }
}
