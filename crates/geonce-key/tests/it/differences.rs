//! Different events have different keys and share no alias: a false merge loses data.

use crate::model::{Geometry, Position};
use crate::strategies::{Digits, collection, for_all, geometry, of_kind, properties, string};
use crate::text::{Json, Rng};
use crate::{key, key_under, pointer};
use geonce_key::policy::{Field, Identity, Parts, Unicode};
use geonce_key::{Kind, Policy};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

type Outcome = Result<(), TestCaseError>;

const ALL_DIGITS: [Digits; 4] = [Digits::Grid, Digits::Eight, Digits::Halves, Digits::Full];

/// Five steps of the default grid: beyond every rounding, far below what a person would see.
const MOVED: f64 = 5e-7;

fn texts_differ(policy: &Policy, one: &str, other: &str) -> Outcome {
    prop_assert!(!key_under(policy, one).matches(&key_under(policy, other)), "merged:\n{}\n{}", one, other);
    Ok(())
}

fn differ(one: &Geometry, other: &Geometry) -> Outcome {
    texts_differ(&Policy::default(), &one.json().plain(), &other.json().plain())
}

/// A change that must be noticed on every geometry it applies to.
fn is_noticed(change: impl Fn(&mut Geometry, &mut Rng) -> bool) {
    for digits in ALL_DIGITS {
        for_all(&(geometry(digits), any::<u64>()), |(one, seed)| {
            let mut other = one.clone();
            if !change(&mut other, &mut Rng::new(seed)) {
                return Ok(());
            }
            differ(&one, &other)
        });
    }
}

/// Keeps rings closed after their first position was changed.
fn close(ring: &mut [Position]) {
    let first = ring[0].clone();
    *ring.last_mut().unwrap() = first;
}

#[test]
fn a_moved_vertex_is_another_event() {
    is_noticed(|geometry, rng| {
        let mut points: Vec<&mut Position> = Vec::new();
        let mut rings: Vec<&mut Vec<Position>> = Vec::new();
        collect(geometry, &mut points, &mut rings);
        let axis = rng.below(2);
        let step = rng.pick(&[MOVED, -MOVED]);
        let choice = rng.below(points.len() + rings.len());
        if choice < points.len() {
            points[choice][axis] += step;
        } else {
            let ring = &mut *rings[choice - points.len()];
            let vertex = rng.below(ring.len() - 1);
            ring[vertex][axis] += step;
            close(ring);
        }
        true
    });
}

/// Positions of points and lines, and rings.
fn collect<'a>(geometry: &'a mut Geometry, points: &mut Vec<&'a mut Position>, rings: &mut Vec<&'a mut Vec<Position>>) {
    match geometry {
        Geometry::Point(at) => points.push(at),
        Geometry::Line(line) => points.extend(line),
        Geometry::Polygon(all) => rings.extend(all),
        Geometry::Multi(_, parts) | Geometry::Collection(parts) => {
            for part in parts.iter_mut() {
                collect(part, points, rings);
            }
        }
    }
}

#[test]
fn a_moved_height_is_another_event() {
    is_noticed(|geometry, _| {
        let moved = geometry.has_z();
        if let (true, Geometry::Point(at)) = (moved, &mut *geometry) {
            at[2] += 0.005;
        }
        moved && matches!(geometry, Geometry::Point(_))
    });
}

#[test]
fn an_added_vertex_is_another_event() {
    is_noticed(|geometry, rng| {
        let mut paths = geometry.paths();
        if paths.is_empty() {
            return false;
        }
        let choice = rng.below(paths.len());
        let path = &mut *paths[choice];
        let at = 1 + rng.below(path.len() - 1);
        let mut vertex = path[at].clone();
        vertex[0] += MOVED;
        path.insert(at, vertex);
        true
    });
}

#[test]
fn a_dropped_vertex_is_another_event() {
    is_noticed(|geometry, rng| {
        let mut paths = geometry.paths();
        // Room to drop one, and a vertex that no neighbour repeats.
        let Some(path) = paths.iter_mut().find(|path| path.len() > 4) else { return false };
        let at = 1 + rng.below(path.len() - 2);
        let lonely = path.iter().enumerate().all(|(i, other)| i == at || *other != path[at]);
        path.remove(at);
        lonely
    });
}

#[test]
fn a_reversed_line_is_another_event() {
    is_noticed(|geometry, _| {
        let Geometry::Line(line) = geometry else { return false };
        let forward = line.clone();
        line.reverse();
        *line != forward
    });
}

#[test]
fn an_added_third_number_is_another_event() {
    is_noticed(|geometry, _| {
        let flat = !geometry.has_z();
        if flat {
            for position in geometry.positions() {
                position.push(0.0);
            }
        }
        flat
    });
}

#[test]
fn a_dropped_part_hole_or_member_is_another_event() {
    is_noticed(|geometry, rng| match geometry {
        Geometry::Multi(_, parts) | Geometry::Collection(parts) if parts.len() > 1 => {
            parts.remove(rng.below(parts.len()));
            true
        }
        Geometry::Polygon(rings) if rings.len() > 1 => {
            rings.remove(1 + rng.below(rings.len() - 1));
            true
        }
        _ => false,
    });
}

#[test]
fn the_same_positions_as_another_type_are_another_event() {
    for_all(&of_kind(Kind::LineString, Digits::Eight), |line| {
        let positions: Vec<Position> = line.clone().positions().into_iter().map(|p| p.clone()).collect();
        let points: Vec<Geometry> = positions.iter().cloned().map(Geometry::Point).collect();
        let ring = [positions.as_slice(), &positions[..1]].concat();
        let mut forms = vec![
            line.clone(),
            Geometry::Multi(Kind::MultiPoint, points.clone()),
            Geometry::Collection(points),
            Geometry::Collection(vec![line.clone()]),
            Geometry::Line(ring.clone()),
        ];
        if ring.len() > 3 {
            forms.push(Geometry::Polygon(vec![ring]));
        }
        for (i, one) in forms.iter().enumerate() {
            for other in &forms[..i] {
                differ(one, other)?;
            }
        }
        Ok(())
    });
}

#[test]
fn a_collection_of_one_is_not_its_member() {
    for_all(&geometry(Digits::Eight), |one| {
        if matches!(one, Geometry::Collection(_)) {
            return Ok(());
        }
        differ(&one, &Geometry::Collection(vec![one.clone()]))
    });
}

#[test]
fn a_multi_geometry_inside_a_collection_is_not_its_parts() {
    for kind in [Kind::MultiPoint, Kind::MultiLineString, Kind::MultiPolygon] {
        for_all(&of_kind(kind, Digits::Grid), |one| {
            let Geometry::Multi(_, parts) = &one else { return Ok(()) };
            if parts.len() < 2 {
                return Ok(());
            }
            differ(&Geometry::Collection(vec![one.clone()]), &Geometry::Collection(parts.clone()))
        });
    }
}

#[test]
fn how_often_a_part_is_repeated_tells_events_apart() {
    for kind in [Kind::Point, Kind::LineString, Kind::Polygon] {
        for_all(&(of_kind(kind, Digits::Grid), of_kind(kind, Digits::Grid)), |(a, b)| {
            if a.has_z() != b.has_z() || key(&a.json().plain()).matches(&key(&b.json().plain())) {
                return Ok(());
            }
            let multi = |parts: [&Geometry; 3]| Geometry::Multi(kind.multi(), parts.map(Clone::clone).to_vec());
            differ(&multi([&a, &a, &b]), &multi([&a, &b, &b]))?;
            differ(&multi([&a, &a, &b]), &Geometry::Multi(kind.multi(), vec![a.clone(), b.clone()]))?;
            let members = |parts: [&Geometry; 3]| Geometry::Collection(parts.map(Clone::clone).to_vec());
            differ(&members([&a, &a, &b]), &members([&a, &b, &b]))
        });
    }
}

#[test]
fn with_ordered_parts_their_order_tells_events_apart() {
    let policy = Policy { parts: Parts::Ordered, ..Policy::default() };
    let reversed = |one: Geometry| -> Outcome {
        let mut other = one.clone();
        if let Geometry::Multi(_, parts) | Geometry::Collection(parts) = &mut other {
            parts.reverse();
        }
        let (one, other) = (one.json().plain(), other.json().plain());
        let palindrome = key_under(&policy, &one) == key_under(&policy, &other) && one == other;
        if palindrome { Ok(()) } else { texts_differ(&policy, &one, &other) }
    };
    for_all(&of_kind(Kind::MultiPoint, Digits::Grid), reversed);
    for_all(&of_kind(Kind::MultiLineString, Digits::Halves), reversed);
    for_all(&collection(Digits::Halves), reversed);
}

/// A Feature of which `name` is the only property.
fn feature(name: &str, value: Json) -> String {
    Geometry::Point(vec![1.0, 2.0]).feature(Json::Object(vec![(name.to_owned(), value)])).plain()
}

#[test]
fn another_property_id_or_foreign_member_is_another_event() {
    for_all(&(geometry(Digits::Eight), properties(), string()), |(geometry, properties, text)| {
        let differ = |one: &Json, other: &Json| texts_differ(&Policy::default(), &one.plain(), &other.plain());
        let one = geometry.feature(properties.clone()).with("id", Json::text(text.clone()));
        differ(
            &one,
            &geometry
                .feature(properties.clone().with("status", Json::text("ALARM")))
                .with("id", Json::text(text.clone())),
        )?;
        differ(&one, &one.clone().with("id", Json::text(format!("{text}X"))))?;
        differ(&one, &geometry.feature(properties))?;
        differ(&one, &one.clone().with("event", Json::text("exit")))?;
        differ(&one, &one.clone().with("timestamp", Json::text("2026-11-15T08:00:00Z")))
    });
}

#[test]
fn another_scope_or_version_is_another_event() {
    for_all(&(geometry(Digits::Eight), any::<i64>(), string()), |(geometry, number, scope)| {
        let text =
            |version: String| geometry.feature(Json::Object(vec![("v".to_owned(), Json::Number(version))])).plain();
        let identity = Identity::Fields(vec![Field { at: pointer("/id"), optional: true, decimals: None }]);
        let policy =
            Policy { identity, version: Some(pointer("/properties/v")), scope: scope.clone(), ..Policy::default() };
        texts_differ(&policy, &text(number.to_string()), &text(number.wrapping_add(1).to_string()))?;
        let payload = text(number.to_string());
        let unversioned = Policy { version: None, ..policy.clone() };
        prop_assert!(!key_under(&policy, &payload).matches(&key_under(&unversioned, &payload)));
        let elsewhere = Policy { scope: format!("{scope} "), ..policy.clone() };
        prop_assert!(!key_under(&policy, &payload).matches(&key_under(&elsewhere, &payload)));
        Ok(())
    });
}

#[test]
fn large_integers_that_differ_in_the_last_digit_differ() {
    for_all(&(any::<u128>(), 0u32..6, any::<u64>()), |(number, zeros, seed)| {
        let mut rng = Rng::new(seed);
        let number = (number >> (number % 70)) | (1 << 53);
        let spelled = |n: u128, rng: &mut Rng| feature("id", Json::Number(crate::text::respell(&n.to_string(), rng)));
        texts_differ(&Policy::default(), &spelled(number, &mut rng), &spelled(number ^ 1, &mut rng))?;
        let short = format!("{}e{zeros}", number % 1_000_000);
        let long = format!("{}{}", number % 1_000_000, "0".repeat(zeros as usize));
        prop_assert_eq!(key(&feature("id", Json::Number(short))), key(&feature("id", Json::Number(long))));
        Ok(())
    });
}

#[test]
fn composed_and_decomposed_text_differ_unless_the_policy_says_nfc() {
    let nfc = Policy { unicode: Unicode::Nfc, ..Policy::default() };
    for_all(&string(), |around| {
        let around = around.replace('\u{301}', "");
        let [composed, decomposed] = ["é", "e\u{301}"].map(|e| format!("{around}x{e}"));
        for (one, other) in [
            (feature("name", Json::text(composed.clone())), feature("name", Json::text(decomposed.clone()))),
            (feature(&composed, Json::Null), feature(&decomposed, Json::Null)),
        ] {
            texts_differ(&Policy::default(), &one, &other)?;
            prop_assert_eq!(key_under(&nfc, &one), key_under(&nfc, &other));
        }
        Ok(())
    });
}

#[test]
fn a_null_value_is_not_an_absent_one() {
    let optional = |at: &str| Field { at: pointer(at), optional: true, decimals: None };
    let identity = Identity::Fields(vec![optional("/properties/x"), optional("/properties/y")]);
    let policy = Policy { identity, ..Policy::default() };
    let point = Geometry::Point(vec![1.0, 2.0]);
    let texts: Vec<String> = ["{}", r#"{"x":null}"#, r#"{"y":null}"#, r#"{"x":1}"#, r#"{"y":1}"#, r#"{"x":{}}"#]
        .iter()
        .map(|properties| {
            format!(r#"{{"type":"Feature","geometry":{},"properties":{properties}}}"#, point.json().plain())
        })
        .collect();
    for (i, one) in texts.iter().enumerate() {
        for other in &texts[..i] {
            assert!(!key_under(&policy, one).matches(&key_under(&policy, other)), "{one} {other}");
        }
    }
}
