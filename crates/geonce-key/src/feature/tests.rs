//! What sinks are given.

use super::{Property, Reader};
use crate::policy::{Deletion, Field, Identity};
use crate::{Code, Input, Keyer, Pointer, Policy};

fn at(pointer: &str) -> Pointer {
    Pointer::parse(pointer).unwrap()
}

fn read(policy: &Policy, text: &str) -> super::Feature {
    Reader::new(policy, None).unwrap().read(Input::json(text.as_bytes())).unwrap()
}

#[test]
fn properties_keep_their_types_and_nested_values_their_text() {
    let feature = read(
        &Policy::default(),
        r#"{"type":"Feature","id":"a\u0041","geometry":{"type":"Point","coordinates":[1,2]},"properties":
        {"n":null,"t":true,"i":1.0e2,"r":1.5,"s":"x","o":{"a":[1, {"b":"]}"}] ,"c":{}},"e":[ ],"big":123456789012345678901}}"#,
    );
    assert_eq!(feature.id, Some(Property::Text("aA".to_owned())));
    let expected = [
        ("n", Property::Null),
        ("t", Property::Boolean(true)),
        ("i", Property::Integer(100)),
        ("r", Property::Real(1.5)),
        ("s", Property::Text("x".to_owned())),
        ("o", Property::Json(r#"{"a":[1, {"b":"]}"}] ,"c":{}}"#.to_owned())),
        ("e", Property::Json("[ ]".to_owned())),
        ("big", Property::Json("123456789012345678901".to_owned())),
    ];
    assert_eq!(feature.properties, expected.map(|(name, value)| (name.to_owned(), value)));
}

#[test]
fn an_entity_is_its_fields_whatever_else_changes() {
    let policy = Policy {
        identity: Identity::Fields(vec![Field::required(at("/properties/asset"))]),
        version: Some(at("/properties/v")),
        ..Policy::default()
    };
    let text = |asset: &str, version: u32, x: u32| {
        format!(
            r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[{x},2]}},"properties":{{"asset":{asset},"v":{version}}}}}"#
        )
    };
    let first = read(&policy, &text("17", 1, 1));
    let moved = read(&policy, &text("17.0", 2, 5));
    let other = read(&policy, &text("18", 2, 5));
    assert!(first.entity.is_some());
    assert_eq!(first.entity, moved.entity);
    assert_ne!(first.entity, other.entity);
    assert!(first.version < moved.version);
}

#[test]
fn geometry_is_brought_to_the_layers_system_and_oriented() {
    let mut feature = read(
        &Policy::default(),
        r#"{"type":"Polygon","coordinates":[[[0,0],[0,1],[1,1],[1,0],[0,0]],[[0.2,0.2],[0.4,0.2],[0.4,0.4],[0.2,0.2]]]}"#,
    );
    feature.orient();
    feature.place(3857, false).unwrap();
    let shape = feature.geometry.unwrap();
    assert_eq!(feature.crs, 3857);
    let second = shape.path(0)[1];
    assert!((second[0] - 111_319.490_793).abs() < 1e-3 && second[1].abs() < 1e-6, "{second:?}");
    let hole = shape.path(1)[1];
    assert!((hole[0] - hole[1]).abs() < 100.0, "the hole starts along the diagonal now: {hole:?}");
}

#[test]
fn unclosed_rings_are_closed_where_the_policy_says_so() {
    let policy = Policy { close_rings: true, ..Policy::default() };
    let feature = read(&policy, r#"{"type":"Polygon","coordinates":[[[0,0],[0,1],[1,1],[1,0]]]}"#);
    assert_eq!(feature.geometry.unwrap().positions.len(), 5);
}

#[test]
fn the_rest_is_everything_but_the_geometry_and_what_is_ignored() {
    let mut reader = Reader::new(&Policy::default(), None).unwrap();
    let mut rest = |text: &str, ignore: &[Pointer]| {
        let (feature, rest) = reader.read_with_rest(Input::json(text.as_bytes()), ignore).unwrap();
        assert!(feature.geometry.is_some());
        rest
    };
    let text = |geometry: &str, more: &str| {
        format!(
            r#"{{"type":"Feature",{more}"geometry":{{"type":"Point","coordinates":{geometry}}},"properties":{{"a":1.0,"t":7}}}}"#
        )
    };
    let one = rest(&text("[1,2]", r#""id":4,"#), &[]);
    assert_eq!(one, rest(&text("[3,4,5]", r#""bbox":[1,2,3,4],"id":4,"received_at":"now","#), &[]));
    assert_ne!(one, rest(&text("[1,2]", r#""id":5,"#), &[]));
    let other = text("[1,2]", r#""id":4,"#).replace(r#""t":7"#, r#""t":8"#);
    assert_ne!(one, rest(&other, &[]));
    let ignore = [at("/properties/t")];
    assert_eq!(rest(&text("[1,2]", r#""id":4,"#), &ignore), rest(&other, &ignore));
    assert_ne!(one, rest(&other, &ignore));
    // Geometries alone have nothing else, however they are written.
    assert_eq!(
        rest(r#"{"type":"Point","coordinates":[1,2]}"#, &[]),
        rest(r#"{"type":"Point","coordinates":[3,4]}"#, &[])
    );
    let wkt = Input { form: crate::Form::Wkt, bytes: b"POINT (9 9)", crs: None };
    let bare = rest(r#"{"type":"Point","coordinates":[1,2]}"#, &[]);
    assert_eq!(reader.read_with_rest(wkt, &[]).unwrap().1, bare);
}

#[test]
fn a_payload_says_that_its_entity_is_gone_and_then_needs_no_geometry() {
    let deleting = |at_pointer: &str, equals: Property| Policy {
        delete: Some(Deletion { at: at(at_pointer), equals }),
        ..Policy::default()
    };
    let gone = |value: &str| format!(r#"{{"type":"Feature","geometry":null,"properties":{{"gone":{value}}}}}"#);
    for (equals, yes, no) in [
        (Property::Boolean(true), "true", "false"),
        (Property::Text("Ä".to_owned()), r#""\u00c4""#, r#""A""#),
        (Property::Integer(1), "1.0e0", "1.5"),
        (Property::Real(0.5), "5e-1", "\"0.5\""),
    ] {
        let policy = deleting("/properties/gone", equals);
        assert!(read(&policy, &gone(yes)).deleted, "{yes}");
        assert!(Keyer::new(&policy).unwrap().key(Input::json(gone(yes).as_bytes())).is_ok(), "{yes}");
        for other in [no, "null", "[true]"] {
            assert!(!read(&policy, &gone(other)).deleted, "{other}");
            let refused = Keyer::new(&policy).unwrap().key(Input::json(gone(other).as_bytes())).unwrap_err();
            assert_eq!(refused.code(), Code::GeojsonNullGeometry, "{other}");
        }
    }
    let envelope = Policy { feature: Some(at("/data")), ..deleting("/action", Property::Text("delete".to_owned())) };
    let event = |action: &str| format!(r#"{{"action":"{action}","data":{{"type":"Feature","geometry":null}}}}"#);
    assert!(read(&envelope, &event("delete")).deleted);
    assert!(!read(&envelope, &event("add")).deleted);
    // A bare geometry has nothing to say it with, and a value that cannot be compared is no way to say it.
    assert!(
        !read(&deleting("/type", Property::Text("Point".to_owned())), r#"{"type":"Point","coordinates":[1,2]}"#)
            .deleted
    );
    for equals in [Property::Null, Property::Json("[]".to_owned())] {
        assert_eq!(Keyer::new(&deleting("/x", equals)).err().unwrap().code(), Code::PolicyInvalid);
    }
}

#[test]
fn how_an_entity_is_deleted_is_no_part_of_the_key() {
    let text = r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[1,2]},"properties":{"gone":true}}"#;
    let key = |delete| {
        let policy = Policy { delete, ..Policy::default() };
        Keyer::new(&policy).unwrap().key(Input::json(text.as_bytes())).unwrap().fingerprint
    };
    assert_eq!(key(None), key(Some(Deletion { at: at("/properties/gone"), equals: Property::Boolean(true) })));
}
