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

/// Checks an example on the system's own ellipsoid, both ways, to the printed digits.
fn example(row: &Row, [x, y]: [f64; 2], [lon, lat]: [f64; 2], tolerance: f64) {
    let crs = Crs::new(row);
    let (turn, north) = ((lon - crs.origin.lon) * RADIAN, lat * RADIAN);
    let (east, up) = crs.forward(turn, north).unwrap();
    let got = [(east + crs.origin.x) / crs.unit, (up + crs.origin.y) / crs.unit];
    assert!((got[0] - x).abs() < tolerance && (got[1] - y).abs() < tolerance, "{}: {got:?}", row.name);
    let (turn_back, north_back) = crs.inverse(x * crs.unit - crs.origin.x, y * crs.unit - crs.origin.y).unwrap();
    let limit = tolerance / 4e6;
    assert!((turn_back - turn).abs() < limit && (north_back - north).abs() < limit, "{}", row.name);
}

fn found(code: u32) -> Row {
    table::ROWS.iter().copied().find(|row| row.code == code).unwrap()
}

fn degrees(degree: f64, minute: f64, second: f64) -> f64 {
    degree + minute / 60.0 + second / 3600.0
}

#[test]
fn published_examples_come_out() {
    static CLARKE: datum::Ellipsoid = datum::Ellipsoid { a: 6_378_206.4, f: 1.0 / 294.978_698_2 };
    static NAD27: Datum = Datum { ellipsoid: &CLARKE, operation: "", accuracy_m: 0.0, shift: None };
    let on_clarke = |name, projection, unit| row(0, name, &NAD27, projection, unit);

    // EPSG guidance note 7-2: methods 1024, 9820, 9807, 9809 and 9802.
    let lat = degrees(24.0, 22.0, 54.433);
    example(&WEB_MERCATOR_ROW, [-11_169_055.58, 2_800_000.0], [-100.0 - 20.0 / 60.0, lat], 0.01);
    example(&found(3035), [3_962_799.45, 2_999_718.85], [5.0, 50.0], 0.01);
    example(&found(27_700), [577_274.99, 69_740.50], [0.5, 50.5], 0.01);
    example(&found(28_992), [196_105.283, 557_057.739], [6.0, 53.0], 0.001);
    let (north, south) = (degrees(28.0, 23.0, 0.0), degrees(30.0, 17.0, 0.0));
    let easting = 2_000_000.0 * row::FOOT_US;
    let texas = row::lcc(degrees(27.0, 50.0, 0.0), -99.0, north, south, easting, 0.0);
    example(&on_clarke("Texas South Central", texas, row::FOOT_US), [2_963_503.91, 254_759.80], [-96.0, 28.5], 0.01);
    // Snyder 1987, page 292.
    let albers = row::albers(23.0, -96.0, 29.5, 45.5, 0.0, 0.0);
    example(&on_clarke("Albers", albers, METRE), [1_885_472.7, 1_535_925.0], [-75.0, 35.0], 0.1);
    // swisstopo, formulas and constants for the Swiss projection: Rigi.
    let rigi = [degrees(8.0, 29.0, 11.111_271), degrees(47.0, 3.0, 28.956_592)];
    example(&found(21_781), [679_520.05, 212_273.44], rigi, 0.01);
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
