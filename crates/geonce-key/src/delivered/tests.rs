//! Random shapes, and what must hold for them in both forms.

use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::shape::{Kind, Position, Shape};
use crate::{Delivered, Limits, wkb, wkt};

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -180.0..180.0_f64,
        2 => (-1_800_000_000_i32..1_800_000_000).prop_map(|n| f64::from(n) / 1e7),
        1 => any::<f64>().prop_filter("finite", |n| n.is_finite()),
        1 => Just(-0.0),
    ]
}

fn path() -> impl Strategy<Value = Vec<Position<f64>>> {
    prop::collection::vec([number(), number(), number()], 1..6)
}

type Drawn = (Kind, Vec<Vec<Vec<Position<f64>>>>);

fn member() -> impl Strategy<Value = Drawn> {
    let kinds =
        vec![Kind::Point, Kind::LineString, Kind::Polygon, Kind::MultiPoint, Kind::MultiLineString, Kind::MultiPolygon];
    let parts = prop::collection::vec(prop::collection::vec(path(), 1..4), 1..4);
    (prop::sample::select(kinds), parts)
}

/// Any shape that the readers can deliver.
pub(crate) fn shapes() -> impl Strategy<Value = Shape<f64>> {
    let members = prop::collection::vec(member(), 1..4);
    (any::<bool>(), any::<bool>(), members).prop_map(|(collection, has_z, members)| build(collection, has_z, members))
}

fn build(collection: bool, has_z: bool, members: Vec<Drawn>) -> Shape<f64> {
    let mut shape = Shape { collection, has_z, ..Shape::new() };
    let count = if collection { members.len() } else { 1 };
    for (kind, parts) in members.into_iter().take(count) {
        let part_count = if kind.is_multi() { parts.len() } else { 1 };
        for paths in parts.into_iter().take(part_count) {
            let path_count = if kind.part() == Kind::Polygon { paths.len() } else { 1 };
            for path in paths.into_iter().take(path_count) {
                let length = if kind.part() == Kind::Point { 1 } else { path.len() };
                let flat = |p: &Position<f64>| [p[0], p[1], if has_z { p[2] } else { 0.0 }];
                shape.positions.extend(path.iter().take(length).map(flat));
                shape.end_path();
            }
            shape.end_part();
        }
        shape.end_member(kind);
    }
    shape
}

/// Equality that tells 0 from -0.
fn bits(shape: &Shape<f64>) -> Vec<[u64; 3]> {
    shape.positions.iter().map(|position| position.map(f64::to_bits)).collect()
}

fn assert_same(read: &Delivered, shape: &Shape<f64>, srid: Option<u32>) {
    assert_eq!(&read.shape, shape);
    assert_eq!(bits(&read.shape), bits(shape));
    assert_eq!(read.srid, srid);
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(512) })]

    #[test]
    fn what_is_written_as_wkb_reads_back_bit_for_bit(shape in shapes(), srid in prop::option::of(1_u32..)) {
        let bytes = wkb::write(&shape, srid);
        assert_same(&wkb::read(&bytes, &Limits::default()).unwrap(), &shape, srid);
        let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap();
        let hex: String = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
        assert_same(&wkb::read_hex(format!(" \\x{hex}\n").as_bytes(), &Limits::default()).unwrap(), &shape, srid);
    }

    #[test]
    fn what_is_written_as_wkt_reads_back_bit_for_bit(shape in shapes()) {
        let text = wkt::write(&shape);
        assert_same(&wkt::read(text.as_bytes(), &Limits::default()).unwrap(), &shape, None);
    }

    #[test]
    fn a_prefix_is_never_a_geometry(shape in shapes(), srid in prop::option::of(1_u32..)) {
        let bytes = wkb::write(&shape, srid);
        let text = wkt::write(&shape);
        for end in 0..bytes.len() {
            prop_assert!(wkb::read(&bytes[..end], &Limits::default()).is_err());
        }
        for end in 0..text.len() {
            prop_assert!(wkt::read(&text.as_bytes()[..end], &Limits::default()).is_err());
        }
    }

    #[test]
    fn mutated_bytes_never_panic(shape in shapes(), changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..8)) {
        let mut bytes = wkb::write(&shape, Some(4326));
        let mut text = wkt::write(&shape).into_bytes();
        for (at, byte) in changes {
            let (i, j) = (at % bytes.len(), at % text.len());
            bytes[i] = byte;
            text[j] = byte & 0x7f;
        }
        if let Ok(read) = wkb::read(&bytes, &Limits::default()) {
            prop_assert_eq!(wkb::read(&wkb::write(&read.shape, read.srid), &Limits::default()), Ok(read));
        }
        if let Ok(read) = wkt::read(&text, &Limits::default()) {
            prop_assert_eq!(wkt::read(wkt::write(&read.shape).as_bytes(), &Limits::default()).unwrap().shape, read.shape);
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = wkb::read(&bytes, &Limits::default());
        let _ = wkb::read_hex(&bytes, &Limits::default());
        let _ = wkt::read(&bytes, &Limits::default());
    }

    #[test]
    fn random_words_never_panic(text in "(SRID=[0-9]{0,11};|(POINT|POLYGON|MULTIPOINT|GEOMETRYCOLLECTION)( ?[ZM]{1,2})?|EMPTY|[()]|,| |[-+]?[0-9.e]{1,5} ){0,20}") {
        let _ = wkt::read(text.as_bytes(), &Limits::default());
    }
}
