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
            let turn = within_half_turn(lon_back - lon, 180.0);
            assert!(turn.abs() < 1e-9 && (lat_back - lat).abs() < 1e-9, "{code}: {lon} {lat} {lon_back} {lat_back}");
        }
    }
}

/// Checks an example on the system's own ellipsoid, both ways, to the printed digits.
fn example(row: &Row, [x, y]: [f64; 2], [lon, lat]: [f64; 2], tolerance: f64) {
    let without_shift = Crs { shift: None, ..Crs::new(row) };
    let (got_x, got_y) = without_shift.from_wgs84(lon, lat).unwrap();
    assert!((got_x - x).abs() < tolerance && (got_y - y).abs() < tolerance, "{}: {got_x} {got_y}", row.name);
    let (got_lon, got_lat) = without_shift.to_wgs84(x, y).unwrap();
    let limit = tolerance / 60_000.0;
    assert!((got_lon - lon).abs() < limit && (got_lat - lat).abs() < limit, "{}: {got_lon} {got_lat}", row.name);
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
    let on_clarke = |name, coordinates, unit| row(0, name, &NAD27, coordinates, unit);

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

/// Code, coordinates, and the bits of longitude, latitude and of the coordinates that these lead back to.
type Golden = (u32, [f64; 2], [u64; 2], [u64; 2]);

#[rustfmt::skip]
const GOLDEN: &[Golden] = &[
    (3857, [1_234_567.89, 6_789_012.34], [0x4026_2e3d_617f_37fa, 0x4049_f820_a186_3a32], [0x4132_d687_e3d7_0a3d, 0x4159_e5e5_15c2_8f5c]),
    (3857, [-20_037_508.342_789_244, -20_037_508.342_789_244], [0xc066_8000_0000_0000, 0xc055_4345_b1a5_49d7], [0xc173_1bf8_457c_1093, 0xc173_1bf8_457c_1094]),
    (32_633, [412_345.678, 5_567_890.123], [0x402b_8a6b_0a4a_2d23, 0x4049_20d9_e668_dfdf], [0x4119_2ae6_b645_a1cc, 0x4155_3d64_87df_3b63]),
    (32_633, [166_021.443_179_330_6, 0.0], [0x4028_0000_0007_9d9f, 0x0000_0000_0000_0000], [0x4104_442b_8ba1_9ada, 0x0000_0000_0000_0000]),
    (32_633, [1_500_000.25, 9_000_000.5], [0x404e_2547_d1f1_8bec, 0x4053_5951_7034_d725], [0x4136_e360_4000_0002, 0x4161_2a88_1000_0000]),
    (32_756, [334_567.25, 6_250_000.75], [0x4062_e6c2_b56d_2423, 0xc040_f04d_c60d_3e8a], [0x4114_6b9d_0000_0010, 0x4157_d784_3000_0000]),
    (25_832, [691_234.56, 5_334_567.89], [0x4027_2412_f044_57ae, 0x4048_115b_79ef_f93f], [0x4125_1845_1eb8_51ec, 0x4154_5989_f8f5_c28f]),
    (2193, [1_748_735.55, 5_427_916.48], [0x4065_d8d6_a14e_2319, 0xc044_a4ac_081c_d8d0], [0x413a_aeff_8ccc_cccc, 0x4154_b4b3_1eb8_51eb]),
    (27_700, [530_000.12, 180_000.34], [0xbfc0_6dd7_58b2_ccce, 0x4049_c082_dee3_6c46], [0x4120_2ca0_3d70_a3d7, 0x4105_f902_b851_eb4a]),
    (2154, [652_709.401, 6_859_290.946], [0x4002_d8a3_c49f_fb91, 0x4048_6a7c_f237_ef64], [0x4123_eb4a_cd4f_df3b, 0x415a_2a86_bc8b_4397]),
    (3577, [1_550_000.5, -3_950_000.5], [0x4062_a39d_30dc_9f45, 0xc041_9b85_6c63_8a6a], [0x4137_a6b0_8000_0002, 0xc14e_22d8_4000_0000]),
    (2225, [6_250_000.125, 2_100_000.25], [0xc05e_c7d3_a930_bb4d, 0x4044_4b72_4ebe_807f], [0x4157_d784_0800_0001, 0x4140_0590_2000_0002]),
    (3035, [4_321_000.0, 3_210_000.0], [0x4024_0000_0000_0000, 0x404a_0000_0000_0000], [0x4150_7bba_0000_0000, 0x4148_7d88_0000_0000]),
    (3035, [3_962_799.45, 2_999_718.85], [0x4013_ffff_ff4e_86c4, 0x4048_ffff_ffc1_e62d], [0x414e_3bd7_b999_999a, 0x4146_e2d3_6ccc_ccce]),
    (3035, [5_912_345.6, 4_567_890.1], [0x4044_3bff_0b9a_0adf, 0x404e_8669_3c7e_7190], [0x4156_8dc6_6666_6665, 0x4151_6cd4_8666_6667]),
    (5070, [-1_234_567.8, 2_345_678.9], [0xc05b_d591_b2cc_d228, 0x4045_9a84_63a6_c351], [0xc132_d687_cccc_cccc, 0x4141_e567_7333_333c]),
    (28_992, [155_000.0, 463_000.0], [0x4015_8c7f_1396_2265, 0x404a_13dc_af9b_6eca], [0x4102_ebc0_0000_0000, 0x411c_4260_0000_0006]),
    (28_992, [121_687.5, 487_484.25], [0x4013_9791_d2dd_1c6f, 0x404a_2fe6_7496_3f9c], [0x40fd_b577_ffff_fffd, 0x411d_c0f1_0000_0010]),
    (2056, [2_683_141.25, 1_247_845.5], [0x4021_143d_8154_8431, 0x4047_b027_51c5_4882], [0x4144_7882_a000_0000, 0x4133_0a65_8000_0000]),
    (21_781, [600_000.0, 200_000.0], [0x401d_c128_db7a_7061, 0x4047_79bd_148c_7cd2], [0x4122_4f7f_ffff_ffff, 0x4108_69ff_ffff_ffdc]),
];

#[test]
fn the_bits_are_the_same_on_every_platform() {
    for &(code, [x, y], degrees, back) in GOLDEN {
        let crs = lookup(code).unwrap();
        let (lon, lat) = crs.to_wgs84(x, y).unwrap();
        assert_eq!([lon.to_bits(), lat.to_bits()], degrees, "{code}: {x} {y} gives {lon} {lat}");
        let (x, y) = crs.from_wgs84(lon, lat).unwrap();
        assert_eq!([x.to_bits(), y.to_bits()], back, "{code}: {lon} {lat} gives {x} {y}");
    }
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
fn the_edge_of_web_mercator_is_exactly_half_a_turn() {
    let crs = lookup(3857).unwrap();
    assert_eq!(crs.to_wgs84(20_037_508.342_789_244, 0.0), Some((180.0, 0.0)));
    assert_eq!(crs.from_wgs84(-180.0, 0.0), Some((-20_037_508.342_789_244, 0.0)));
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
    for (code, lon, lat) in
        [(32_633, 100.0, 0.0), (3857, 0.0, 90.0), (4326, 361.0, 0.0), (4326, 0.0, 91.0), (3035, -170.0, -52.0)]
    {
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

#[test]
fn every_system_has_a_definition_with_its_code_and_name() {
    for (code, _) in areas() {
        let crs = lookup(code).unwrap();
        let text = crs.wkt().unwrap();
        assert!(text.ends_with(&format!(r#",AUTHORITY["EPSG","{code}"]]"#)), "{text}");
        assert!(text.contains(&format!(r#"CS["{}","#, crs.name())), "{text}");
        assert_eq!(text.matches('[').count(), text.matches(']').count(), "{text}");
    }
    let text = lookup(25832).unwrap().wkt().unwrap();
    assert!(
        text.contains(
            r#"PARAMETER["latitude_of_origin",0],PARAMETER["central_meridian",9],PARAMETER["scale_factor",0.9996]"#
        ),
        "{text}"
    );
    let text = lookup(2236).unwrap().wkt().unwrap();
    assert!(text.contains(r#"PARAMETER["false_easting",656166.667]"#), "{text}");
}
