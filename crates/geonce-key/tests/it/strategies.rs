//! Random features for `proptest`: geometries of all seven types, properties of every JSON type.

use crate::model::{Geometry, Position};
use crate::text::Json;
use geonce_key::Kind;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// Runs a property on seeded random values: the same ones each time.
pub(crate) fn for_all<S: Strategy>(strategy: &S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = Config { cases: crate::cases(400), failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    if let Err(error) = runner.run(strategy, test) {
        panic!("{error}");
    }
}

/// How finely ordinates are written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Digits {
    /// On the grid of seven decimals; half of them on a coarse lattice, so that positions meet.
    Grid,
    /// Eight decimals, one in ten of them half-way between two grid values.
    Eight,
    /// Eight decimals of which the last is always five: half-way everywhere.
    Halves,
    /// All the digits a double has.
    Full,
    /// Nine places in all, so that rings meet themselves, collapse and have no area.
    Few,
}

/// An ordinate whose magnitude is at most `bound` degrees.
fn ordinate(bound: i64, digits: Digits) -> BoxedStrategy<f64> {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let scaled = |steps: i64, unit: f64| steps as f64 / unit;
    match digits {
        Digits::Grid => prop_oneof![
            (-bound * 10_000_000..=bound * 10_000_000).prop_map(move |n| scaled(n, 1e7)),
            (-4i64..=4).prop_map(move |n| scaled(n, 4.0)),
        ]
        .boxed(),
        Digits::Eight => (-bound * 100_000_000..=bound * 100_000_000).prop_map(move |n| scaled(n, 1e8)).boxed(),
        Digits::Halves => (-bound * 10_000_000..bound * 10_000_000).prop_map(move |n| scaled(n * 10 + 5, 1e8)).boxed(),
        Digits::Few => (-1i64..=1).prop_map(move |n| scaled(n, 1.0)).boxed(),
        #[expect(clippy::cast_precision_loss, reason = "small")]
        Digits::Full => (-bound as f64..bound as f64).boxed(),
    }
}

fn position(has_z: bool, digits: Digits) -> BoxedStrategy<Position> {
    // Neither poles nor the antimeridian: there two positions are one point, which `rules` looks at.
    let plane = (ordinate(179, digits), ordinate(89, digits));
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let z = (-9_000_000i64..9_000_000).prop_map(|n| n as f64 / 1e3);
    if has_z {
        (plane, z).prop_map(|((x, y), z)| vec![x, y, z]).boxed()
    } else {
        plane.prop_map(|(x, y)| vec![x, y]).boxed()
    }
}

fn ring(has_z: bool, digits: Digits) -> impl Strategy<Value = Vec<Position>> {
    vec(position(has_z, digits), 3..8).prop_map(|mut ring| {
        ring.push(ring[0].clone());
        ring
    })
}

fn simple(kind: Kind, has_z: bool, digits: Digits) -> BoxedStrategy<Geometry> {
    let at = position(has_z, digits);
    match kind {
        Kind::Point => at.prop_map(Geometry::Point).boxed(),
        Kind::LineString => vec(at, 2..7).prop_map(Geometry::Line).boxed(),
        Kind::Polygon => vec(ring(has_z, digits), 1..4).prop_map(Geometry::Polygon).boxed(),
        multi => {
            vec(simple(multi.part(), has_z, digits), 1..5).prop_map(move |parts| Geometry::Multi(multi, parts)).boxed()
        }
    }
}

const KINDS: [Kind; 6] =
    [Kind::Point, Kind::LineString, Kind::Polygon, Kind::MultiPoint, Kind::MultiLineString, Kind::MultiPolygon];

pub(crate) fn of_kind(kind: Kind, digits: Digits) -> impl Strategy<Value = Geometry> {
    any::<bool>().prop_flat_map(move |has_z| simple(kind, has_z, digits))
}

fn any_simple(has_z: bool, digits: Digits) -> impl Strategy<Value = Geometry> {
    proptest::sample::select(&KINDS[..]).prop_flat_map(move |kind| simple(kind, has_z, digits))
}

pub(crate) fn collection(digits: Digits) -> impl Strategy<Value = Geometry> {
    any::<bool>().prop_flat_map(move |has_z| {
        let member =
            any_simple(has_z, digits).prop_recursive(2, 8, 3, |inner| vec(inner, 1..4).prop_map(Geometry::Collection));
        vec(member, 1..4).prop_map(Geometry::Collection)
    })
}

/// A geometry of any of the seven types.
pub(crate) fn geometry(digits: Digits) -> impl Strategy<Value = Geometry> {
    prop_oneof![
        6 => any::<bool>().prop_flat_map(move |has_z| any_simple(has_z, digits)),
        1 => collection(digits),
    ]
}

/// Names and strings: ASCII, escapes, both planes of Unicode, and what sorts differently by UTF-16.
pub(crate) fn string() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z_/~ ]{0,10}",
        "[\\x00-\\x1f\"\\\\é]{0,4}",
        vec(proptest::sample::select(vec!['a', 'é', 'ß', '日', '\u{e000}', '\u{fb33}', '😀', '𝄞', '\u{301}']), 0..5)
            .prop_map(|chars| chars.into_iter().collect()),
        vec(any::<char>(), 0..4).prop_map(|chars| chars.into_iter().collect()),
    ]
}

/// Numbers in every spelling, large integers among them.
pub(crate) fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i32>().prop_map(|n| n.to_string()),
        any::<i128>().prop_map(|n| n.to_string()),
        any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(|n| format!("{n:e}")),
        (-1_000_000i64..1_000_000, 0u32..9).prop_map(|(n, places)| format!("{n}e-{places}")),
        Just("-0".to_owned()),
    ]
}

/// Objects with distinct names that the published ignore list does not hold.
fn object(value: impl Strategy<Value = Json>) -> impl Strategy<Value = Json> {
    vec((string(), value), 0..6).prop_map(|members| {
        let mut kept: Vec<(String, Json)> = Vec::new();
        for (name, value) in members {
            if kept.iter().all(|(other, _)| *other != name) && !geonce_key::IGNORED.contains(&name.as_str()) {
                kept.push((name, value));
            }
        }
        Json::Object(kept)
    })
}

fn json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        number().prop_map(Json::Number),
        string().prop_map(Json::Text),
    ];
    leaf.prop_recursive(3, 24, 5, |inner| prop_oneof![vec(inner.clone(), 0..5).prop_map(Json::Array), object(inner)])
}

pub(crate) fn properties() -> impl Strategy<Value = Json> {
    object(json())
}
