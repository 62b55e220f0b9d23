//! Whatever an unreliable channel does to an event, its key stays, or an alias is shared.

use crate::model::Geometry;
use crate::strategies::{Digits, collection, for_all, geometry, of_kind, properties};
use crate::text::{Json, Rng, Style};
use crate::{key, key_of, key_under};
use geonce_key::policy::{Dimensions, Lines, Parts};
use geonce_key::{Form, IGNORED, Input, Keyed, Keyer, Kind, Policy};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

type Outcome = Result<(), TestCaseError>;

fn bare(geometry: &Geometry) -> Keyed {
    key(&geometry.json().plain())
}

/// The key itself must stay: the variation changes no number. (Where a warning points to may move.)
fn same_key(one: &Geometry, other: &Geometry) -> Outcome {
    let (a, b) = (bare(one), bare(other));
    prop_assert_eq!(a.fingerprint, b.fingerprint, "{:?}", other);
    prop_assert_eq!(a.aliases, b.aliases, "{:?}", other);
    Ok(())
}

/// A variation of geometry alone keeps the key on all seven types, on the grid and between its lines.
fn keeps_the_key(vary: impl Fn(&mut Geometry, &mut Rng)) {
    for digits in [Digits::Grid, Digits::Eight, Digits::Few] {
        for_all(&(geometry(digits), any::<u64>()), |(one, seed)| {
            let mut other = one.clone();
            vary(&mut other, &mut Rng::new(seed));
            same_key(&one, &other)
        });
    }
}

#[test]
fn a_rotated_ring_has_the_same_key() {
    keeps_the_key(Geometry::rotate_rings);
}

#[test]
fn a_reversed_ring_has_the_same_key() {
    keeps_the_key(Geometry::reverse_rings);
}

#[test]
fn repeated_vertices_do_not_change_the_key() {
    keeps_the_key(Geometry::repeat_vertices);
}

#[test]
fn the_order_of_holes_does_not_matter() {
    keeps_the_key(Geometry::shuffle_holes);
}

#[test]
fn the_order_of_parts_and_members_does_not_matter() {
    keeps_the_key(Geometry::shuffle_parts);
}

#[test]
fn a_multi_geometry_of_one_is_its_member() {
    keeps_the_key(Geometry::toggle_multi);
}

#[test]
fn nesting_of_collections_does_not_matter() {
    for_all(&(collection(Digits::Grid), any::<u64>()), |(one, seed)| {
        let mut other = one.clone();
        let mut rng = Rng::new(seed);
        other.nest_members(&mut rng);
        other.nest_members(&mut rng);
        same_key(&one, &other)
    });
}

#[test]
fn all_variations_of_a_geometry_at_once_keep_the_key() {
    keeps_the_key(|geometry, rng| {
        geometry.toggle_multi(rng);
        geometry.shuffle_parts(rng);
        geometry.shuffle_holes(rng);
        geometry.reverse_rings(rng);
        geometry.rotate_rings(rng);
        geometry.repeat_vertices(rng);
    });
}

#[test]
fn an_undirected_line_equals_its_reverse() {
    let policy = Policy { lines: Lines::Undirected, ..Policy::default() };
    for kind in [Kind::LineString, Kind::MultiLineString] {
        for_all(&of_kind(kind, Digits::Eight), |one| {
            let mut other = one.clone();
            for line in other.paths() {
                line.reverse();
            }
            let [a, b] = [one, other].map(|geometry| key_under(&policy, &geometry.json().plain()));
            prop_assert_eq!(a, b);
            Ok(())
        });
    }
}

fn writing_keeps_the_key(style: Style) {
    for_all(&(geometry(Digits::Grid), properties(), any::<u64>()), |(geometry, properties, seed)| {
        let feature = geometry.feature(properties).with("id", Json::text("e/7"));
        let text = feature.styled(style, &mut Rng::new(seed));
        prop_assert_eq!(key(&feature.plain()), key(&text), "{}", text);
        Ok(())
    });
}

#[test]
fn the_order_of_members_does_not_matter_however_deep() {
    writing_keeps_the_key(Style { order: true, ..Style::default() });
}

#[test]
fn white_space_does_not_matter() {
    writing_keeps_the_key(Style { space: true, ..Style::default() });
}

#[test]
fn the_spelling_of_numbers_does_not_matter() {
    writing_keeps_the_key(Style { spelling: true, ..Style::default() });
}

#[test]
fn escapes_of_strings_do_not_matter() {
    writing_keeps_the_key(Style { escapes: true, ..Style::default() });
}

#[test]
fn everything_a_writer_is_free_to_do_keeps_the_key() {
    writing_keeps_the_key(Style::ALL);
}

#[test]
fn delivery_metadata_bbox_and_links_do_not_matter() {
    for_all(&(geometry(Digits::Grid), properties(), any::<u64>()), |(geometry, properties, seed)| {
        let mut rng = Rng::new(seed);
        let bbox = Json::Array(["-180", "-90", "180", "90"].map(|n| Json::Number(n.to_owned())).to_vec());
        let mut inner = properties.clone();
        for name in IGNORED {
            if rng.below(2) == 0 {
                inner = inner.with(name, Json::double(rng.unit()));
            }
        }
        let mut outer = geometry.feature(inner).with("bbox", bbox).with("links", Json::Array(vec![Json::Null]));
        for name in IGNORED {
            if rng.below(2) == 0 {
                outer = outer.with(name, Json::Array(vec![Json::double(rng.unit()), Json::Null]));
            }
        }
        let plain = geometry.feature(properties).plain();
        prop_assert_eq!(key(&plain), key(&outer.styled(Style::ALL, &mut rng)));
        Ok(())
    });
}

#[test]
fn null_empty_and_absent_properties_are_one() {
    for_all(&geometry(Digits::Grid), |geometry| {
        let with = |properties| key(&geometry.feature(properties).plain());
        let delivered = Json::Object(vec![("attempt".to_owned(), Json::double(2.0))]);
        let absent =
            Json::Object(vec![("geometry".to_owned(), geometry.json()), ("type".to_owned(), Json::text("Feature"))]);
        let expected = key(&absent.plain());
        prop_assert_eq!(&with(Json::Null), &expected);
        prop_assert_eq!(&with(Json::Object(Vec::new())), &expected);
        prop_assert_eq!(&with(delivered), &expected);
        prop_assert_eq!(&bare(&geometry), &expected);
        Ok(())
    });
}

fn drift_is_recognised(digits: Digits) {
    for_all(&(geometry(digits), properties(), any::<u64>()), |(one, properties, seed)| {
        let mut rng = Rng::new(seed);
        let mut other = one.clone();
        other.drift(&mut rng);
        let a = key(&one.feature(properties.clone()).plain());
        let b = key(&other.feature(properties.clone()).plain());
        prop_assert!(a.matches(&b), "{:?}", other);
        other.rotate_rings(&mut rng);
        let c = key(&other.feature(properties).plain());
        prop_assert!(a.matches(&c), "{:?}", other);
        let mut third = one.clone();
        third.drift(&mut rng);
        let d = key(&third.json().plain());
        prop_assert!(d.matches(&bare(&one)), "{:?}", third);
        Ok(())
    });
}

#[test]
fn one_ulp_of_drift_on_the_grid_is_recognised() {
    drift_is_recognised(Digits::Grid);
}

#[test]
fn one_ulp_of_drift_on_eight_decimals_is_recognised() {
    drift_is_recognised(Digits::Eight);
}

#[test]
fn one_ulp_of_drift_half_way_between_grid_values_is_recognised() {
    drift_is_recognised(Digits::Halves);
}

#[test]
fn full_precision_reprinted_with_fixed_decimals_is_recognised() {
    for_all(&(geometry(Digits::Full), any::<u64>()), |(one, seed)| {
        let mut other = one.clone();
        other.reprint();
        other.rotate_rings(&mut Rng::new(seed));
        prop_assert!(bare(&one).matches(&bare(&other)), "{:?}", other);
        Ok(())
    });
}

#[test]
fn all_forms_of_a_geometry_have_the_same_key() {
    for digits in [Digits::Grid, Digits::Full] {
        for_all(&(geometry(digits), any::<u64>()), |(geometry, seed)| {
            let expected = bare(&geometry);
            let wkb = geometry.wkb(&mut Rng::new(seed));
            let hex = wkb.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().concat();
            prop_assert_eq!(&key_of(Form::Wkt, geometry.wkt().as_bytes()), &expected);
            prop_assert_eq!(&key_of(Form::Wkb, &wkb), &expected);
            prop_assert_eq!(&key_of(Form::WkbHex, hex.as_bytes()), &expected);
            prop_assert_eq!(&key_of(Form::WkbHex, format!("\\x{}", hex.to_lowercase()).as_bytes()), &expected);
            Ok(())
        });
    }
}

#[test]
fn the_canonical_geometry_is_its_own_canonical_form() {
    let policies = [
        Policy::default(),
        Policy { parts: Parts::Ordered, lines: Lines::Undirected, ..Policy::default() },
        Policy { precision: 3, dimensions: Dimensions::Two, ..Policy::default() },
    ];
    for policy in policies {
        for_all(&geometry(Digits::Eight), |geometry| {
            let mut keyer = Keyer::new(&policy).unwrap();
            let first = keyer.key(Input::json(geometry.json().plain().as_bytes())).unwrap();
            if !first.warnings.is_empty() {
                // What has collapsed has too few positions left to be a payload.
                return Ok(());
            }
            let bytes: serde_json::Value = serde_json::from_slice(keyer.canonical_bytes()).unwrap();
            let canonical = bytes["geometry"].to_string();
            let second = keyer.key(Input::json(canonical.as_bytes())).unwrap();
            prop_assert_eq!(first.fingerprint, second.fingerprint, "{}", canonical);
            prop_assert_eq!(second.aliases.len(), 0);
            Ok(())
        });
    }
}

#[test]
fn a_keyer_that_has_seen_other_payloads_makes_the_same_keys() {
    for_all(&proptest::collection::vec(geometry(Digits::Eight), 1..8), |geometries| {
        let mut keyer = Keyer::new(&Policy::default()).unwrap();
        for geometry in &geometries {
            let text = geometry.json().plain();
            prop_assert_eq!(keyer.key(Input::json(text.as_bytes())).unwrap(), key(&text));
            let half = &text.as_bytes()[..text.len() / 2];
            prop_assert!(keyer.key(Input::json(half)).is_err());
        }
        Ok(())
    });
}
