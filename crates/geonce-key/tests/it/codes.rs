//! Every refusal has a stable code and names the exact place; every code is provoked, or listed with a reason.

use crate::{identified_by, pointer, refusal};
use geonce_key::policy::{Accept, AssumedCrs, Dimensions, Field, Identity, Secret, Unicode};
use geonce_key::{Code, Delivery, Form, Input, Keyer, Pointer, Policy};

/// Codes that no payload can provoke through `Keyer`, with the reason.
const ELSEWHERE: [(Code, &str); 2] = [
    (Code::CrsAfterFeatures, "a FeatureCollection is split before Keyer sees its features"),
    (Code::LimitWork, "assembly and validity spend work; the key itself is linear but for sorting"),
];

/// Codes whose provocations are in `limits`.
const LIMITS: [Code; 9] = [
    Code::LimitBytes,
    Code::LimitDepth,
    Code::LimitValues,
    Code::LimitMembers,
    Code::LimitString,
    Code::LimitNumber,
    Code::LimitPositions,
    Code::LimitRings,
    Code::LimitParts,
];

const POINT: &str = r#"{"type":"Point","coordinates":[1,2]}"#;

/// Texts refused under the default policy: code, pointer, text.
#[rustfmt::skip]
const JSON: &[(Code, &str, &str)] = &[
    (Code::JsonSyntax, "/1", "[1,]"),
    (Code::JsonSyntax, "/a/1", r#"{"a":[1,01]}"#),
    (Code::JsonSyntax, "/a", r#"{"a":+1}"#),
    (Code::JsonSyntax, "/a", r#"{"a":NaN}"#),
    (Code::JsonSyntax, "/a", r#"{"a":"\x"}"#),
    (Code::JsonIncomplete, "", ""),
    (Code::JsonIncomplete, "/a", r#"{"a":"#),
    (Code::JsonTrailing, "", "{} {}"),
    (Code::JsonBom, "", "\u{feff}{}"),
    (Code::JsonDuplicateMember, "/a", r#"{"a":1,"a":1}"#),
    (Code::JsonDuplicateMember, "/b/~1~0", r#"{"b":{"/~":1,"\/\u007e":2}}"#),
    (Code::JsonDuplicateMember, "/coordinates", r#"{"type":"Point","coordinates":[1,2],"coordinates":[1,3]}"#),
    (Code::JsonLoneSurrogate, "/a", r#"{"a":"\ud800"}"#),
    (Code::JsonLoneSurrogate, "/a/0", r#"{"a":["\udc00\ud800"]}"#),
    (Code::JsonLoneSurrogate, "/a", r#"{"a":"\ud83dx"}"#),
    (Code::JsonLoneSurrogate, "/a", r#"{"a":"\ud83d\u0041"}"#),
    (Code::JsonLoneSurrogate, "", r#"{"\ud800":1}"#),
    (Code::JsonControlCharacter, "/a", "{\"a\":\"\n\"}"),
    (Code::JsonNumberRange, "/coordinates/1", r#"{"type":"Point","coordinates":[1,1e309]}"#),
    (Code::JsonNumberRange, "/a", r#"{"a":-1e999}"#),
    (Code::GeojsonNotObject, "", "[]"),
    (Code::GeojsonNotObject, "", "7"),
    (Code::GeojsonNotObject, "", "null"),
    (Code::GeojsonType, "/type", "{}"),
    (Code::GeojsonType, "/type", r#"{"type":7}"#),
    (Code::GeojsonType, "/type", r#"{"type":"point","coordinates":[1,2]}"#),
    (Code::GeojsonType, "/type", r#"{"type":"FeatureCollection","features":[]}"#),
    (Code::GeojsonType, "/geometry/type", r#"{"type":"Feature","geometry":{"type":"Feature"}}"#),
    (Code::GeojsonType, "/geometries/1/type",
        r#"{"type":"GeometryCollection","geometries":[{"type":"Point","coordinates":[1,2]},{"type":"Pt"}]}"#),
    (Code::GeojsonMissing, "/geometry", r#"{"type":"Feature","properties":{}}"#),
    (Code::GeojsonMissing, "/coordinates", r#"{"type":"Point"}"#),
    (Code::GeojsonMissing, "/geometry/geometries", r#"{"type":"Feature","geometry":{"type":"GeometryCollection"}}"#),
    (Code::GeojsonMemberType, "/geometry", r#"{"type":"Feature","geometry":[]}"#),
    (Code::GeojsonMemberType, "/properties", r#"{"type":"Feature","geometry":null,"properties":[]}"#),
    (Code::GeojsonMemberType, "/geometries", r#"{"type":"GeometryCollection","geometries":{}}"#),
    (Code::GeojsonMemberType, "/geometries/0", r#"{"type":"GeometryCollection","geometries":[false]}"#),
    (Code::GeojsonForeignMember, "/coordinates", r#"{"type":"Feature","geometry":null,"coordinates":[]}"#),
    (Code::GeojsonForeignMember, "/features", r#"{"type":"Feature","geometry":null,"features":[]}"#),
    (Code::GeojsonForeignMember, "/properties", r#"{"type":"Point","coordinates":[1,2],"properties":{}}"#),
    (Code::GeojsonForeignMember, "/geometry/geometry",
        r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[1,2],"geometry":null}}"#),
    (Code::GeojsonCoordinates, "/coordinates", r#"{"type":"Point","coordinates":7}"#),
    (Code::GeojsonCoordinates, "/coordinates/0", r#"{"type":"Point","coordinates":[[1,2],[3,4]]}"#),
    (Code::GeojsonCoordinates, "/coordinates/0", r#"{"type":"LineString","coordinates":[1,2]}"#),
    (Code::GeojsonCoordinates, "/coordinates/0/0", r#"{"type":"Polygon","coordinates":[[1,2]]}"#),
    (Code::GeojsonPosition, "/coordinates", r#"{"type":"Point","coordinates":[1]}"#),
    (Code::GeojsonPosition, "/coordinates", r#"{"type":"Point","coordinates":[1,2,3,4]}"#),
    (Code::GeojsonPosition, "/coordinates/1", r#"{"type":"Point","coordinates":[1,"2"]}"#),
    (Code::GeojsonPosition, "/coordinates/1/0", r#"{"type":"LineString","coordinates":[[1,2],[null,2]]}"#),
    (Code::GeojsonDimensions, "/coordinates/1", r#"{"type":"LineString","coordinates":[[1,2],[1,2,3]]}"#),
    (Code::GeojsonDimensions, "/geometries/1/coordinates", r#"{"type":"GeometryCollection","geometries":
        [{"type":"Point","coordinates":[1,2]},{"type":"Point","coordinates":[1,2,3]}]}"#),
    (Code::GeojsonEmpty, "/coordinates", r#"{"type":"Point","coordinates":[]}"#),
    (Code::GeojsonEmpty, "/coordinates", r#"{"type":"MultiPoint","coordinates":[]}"#),
    (Code::GeojsonEmpty, "/coordinates/0", r#"{"type":"Polygon","coordinates":[[]]}"#),
    (Code::GeojsonEmpty, "/coordinates/0", r#"{"type":"MultiPolygon","coordinates":[[]]}"#),
    (Code::GeojsonEmpty, "/geometry/geometries",
        r#"{"type":"Feature","geometry":{"type":"GeometryCollection","geometries":[]}}"#),
    (Code::GeojsonEmpty, "/geometries/0/geometries",
        r#"{"type":"GeometryCollection","geometries":[{"type":"GeometryCollection","geometries":[]}]}"#),
    (Code::GeojsonLineShort, "/coordinates", r#"{"type":"LineString","coordinates":[[1,2]]}"#),
    (Code::GeojsonLineShort, "/coordinates/1", r#"{"type":"MultiLineString","coordinates":[[[1,2],[3,4]],[[1,2]]]}"#),
    (Code::GeojsonRingShort, "/coordinates/0", r#"{"type":"Polygon","coordinates":[[[0,0],[1,1],[0,0]]]}"#),
    (Code::GeojsonRingShort, "/coordinates/0/1",
        r#"{"type":"MultiPolygon","coordinates":[[[[0,0],[9,0],[9,9],[0,0]],[[1,1],[2,2],[1,1]]]]}"#),
    (Code::GeojsonRingUnclosed, "/geometry/coordinates/0",
        r#"{"type":"Feature","geometry":{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,1]]]}}"#),
    (Code::GeojsonRingUnclosed, "/geometries/0/geometries/1/coordinates/0", r#"{"type":"GeometryCollection","geometries":
        [{"type":"GeometryCollection","geometries":[{"type":"Point","coordinates":[1,2]},
        {"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,1]]]}]}]}"#),
    (Code::GeojsonBounds, "/coordinates/0", r#"{"type":"Point","coordinates":[180.0000001,0]}"#),
    (Code::GeojsonBounds, "/coordinates/0", r#"{"type":"Point","coordinates":[1489000.5,6894000.25]}"#),
    (Code::GeojsonBounds, "/coordinates/1/1", r#"{"type":"LineString","coordinates":[[0,0],[0,-90.1]]}"#),
    (Code::GeojsonElevation, "/coordinates/2", r#"{"type":"Point","coordinates":[1,2,1e12]}"#),
    (Code::GeojsonNullGeometry, "/geometry", r#"{"type":"Feature","geometry":null}"#),
    (Code::GeojsonId, "/id", r#"{"type":"Feature","id":null,"geometry":null}"#),
    (Code::GeojsonId, "/id", r#"{"type":"Feature","id":{},"geometry":{"type":"Point","coordinates":[1,2]}}"#),
    (Code::GeojsonBbox, "/bbox", r#"{"type":"Point","coordinates":[1,2],"bbox":[1,2,3]}"#),
    (Code::GeojsonBbox, "/bbox", r#"{"type":"Feature","geometry":null,"bbox":[1,2,3,"4"]}"#),
    (Code::CrsUnknown, "/crs/properties/name", r#"{"type":"Point","coordinates":[1,2],"crs":{"type":"name","properties":{"name":"EPSG:1"}}}"#),
    (Code::CrsAmbiguous, "/crs", r#"{"type":"Point","coordinates":[1,2],"crs":null}"#),
    (Code::CrsAmbiguous, "/crs", r#"{"type":"Point","coordinates":[1,2],"crs":{"type":"link","properties":{"href":"x"}}}"#),
    (Code::CrsAmbiguous, "/geometry/crs/properties/name", r#"{"type":"Feature","geometry":
        {"type":"Point","coordinates":[1,2],"crs":{"type":"name","properties":{"name":"WGS 84"}}}}"#),
    (Code::CrsApproximate, "/crs", r#"{"type":"Point","coordinates":[1,2],"crs":{"type":"name","properties":{"name":"EPSG:4269"}}}"#),
    (Code::CrsConflict, "/geometry/crs", r#"{"type":"Feature","crs":{"type":"name","properties":{"name":"EPSG:3857"}},
        "geometry":{"type":"Point","coordinates":[1,2],"crs":{"type":"name","properties":{"name":"EPSG:4326"}}}}"#),
    (Code::CrsAmbiguous, "/geometries/0/crs", r#"{"type":"GeometryCollection","geometries":
        [{"type":"Point","coordinates":[1,2],"crs":{"type":"name","properties":{"name":"EPSG:3857"}}}]}"#),
    (Code::CrsDomain, "/geometries/0/geometries/0/coordinates", r#"{"type":"GeometryCollection","geometries":
        [{"type":"GeometryCollection","geometries":[{"type":"Point","coordinates":[1e300,1e300]}]}],
        "crs":{"type":"name","properties":{"name":"EPSG:25832"}}}"#),
    (Code::CrsDomain, "/coordinates", r#"{"type":"Point","coordinates":[1e300,1e300],"crs":{"type":"name","properties":{"name":"EPSG:25832"}}}"#),
];

fn check(form: Form, table: &[(Code, &str, &str)]) {
    let mut wrong = Vec::new();
    for (code, pointer, text) in table {
        let (found, place) = refusal(&Policy::default(), form, text.as_bytes());
        if (found, place.as_str()) != (code.as_str(), *pointer) {
            wrong.push(format!("{found} at {place:?} instead of {code} at {pointer:?}: {text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_refused_text_names_its_code_and_place() {
    check(Form::Json, JSON);
    let utf8 = [&b"{\"a\":\"\xff\"}"[..], b"\"\xed\xa0\x80\"", b"\"\xc0\x80\""];
    for bytes in utf8 {
        assert_eq!(refusal(&Policy::default(), Form::Json, bytes), ("json_utf8", String::new()));
    }
}

/// What a policy refuses: code, pointer, policy, payload.
fn refused_by_policy() -> Vec<(Code, &'static str, Policy, &'static str)> {
    let default = Policy::default;
    let accept = |accept: Accept| Policy { accept, ..default() };
    let types = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
    let rounded = |decimals| {
        let field = Field { at: pointer("/properties/x"), optional: false, decimals: Some(decimals) };
        Policy { identity: Identity::Fields(vec![field]), ..default() }
    };
    let feature = r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[1,2]},"properties":{"x":"a"}}"#;
    let large = r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[1,2]},"properties":{"x":1e14}}"#;
    let fraction = r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[1,2]},"properties":{"x":1.5}}"#;
    let versioned = |at| Policy { version: Some(pointer(at)), ..default() };
    let enveloped = Policy { feature: Some(pointer("/data/0")), ..default() };
    vec![
        (Code::AcceptType, "/type", accept(Accept { types: types(&["Polygon", "null"]), ..Accept::default() }), POINT),
        (
            Code::AcceptType,
            "/geometry/type",
            accept(Accept { types: types(&["MultiPoint"]), ..Accept::default() }),
            feature,
        ),
        (
            Code::AcceptBounds,
            "/coordinates",
            accept(Accept { bounds: Some([5.0, 45.0, 16.0, 56.0]), ..Accept::default() }),
            POINT,
        ),
        (
            Code::AcceptSchema,
            "/coordinates/1",
            accept(Accept {
                schema: Some(r#"{"properties":{"coordinates":{"items":{"maximum":1}}}}"#.to_owned()),
                ..Accept::default()
            }),
            POINT,
        ),
        (Code::CrsMissing, "", Policy { crs: AssumedCrs::Required, ..default() }, POINT),
        (Code::GeojsonDimensions, "/coordinates", Policy { dimensions: Dimensions::Three, ..default() }, POINT),
        (Code::IdentityMissing, "/id", identified_by(&["/id"]), feature),
        (Code::IdentityMissing, "/properties/x", identified_by(&["/properties/x"]), POINT),
        (Code::IdentityMissing, "/properties/x/0", identified_by(&["/properties/x/0"]), feature),
        (Code::IdentityType, "/properties/x", rounded(2), feature),
        (Code::IdentityType, "/properties/x", rounded(2), large),
        (Code::VersionMissing, "/properties/v", versioned("/properties/v"), feature),
        (Code::VersionMissing, "/properties/v", versioned("/properties/v"), POINT),
        (Code::VersionType, "/properties/x", versioned("/properties/x"), feature),
        (Code::VersionType, "/properties/x", versioned("/properties/x"), fraction),
        (Code::GeojsonMissing, "/data/0", enveloped.clone(), r#"{"data":[]}"#),
        (Code::GeojsonNotObject, "/data/0", enveloped.clone(), r#"{"data":[7]}"#),
        (
            Code::GeojsonBounds,
            "/data/0/geometry/coordinates/0",
            enveloped,
            r#"{"data":[{"type":"Feature","geometry":{"type":"Point","coordinates":[200,2]}}]}"#,
        ),
        (
            Code::CrsApproximate,
            "/geometry/crs",
            Policy { feature: Some(pointer("/geometry")), ..default() },
            r#"{"geometry":{"type":"Feature","geometry":{"type":"Point","coordinates":[1,2]},
                "crs":{"type":"name","properties":{"name":"EPSG:4269"}}}}"#,
        ),
        (
            Code::JsonDuplicateMember,
            "/properties/\u{e9}",
            Policy { unicode: Unicode::Nfc, ..default() },
            "{\"type\":\"Feature\",\"geometry\":{\"type\":\"Point\",\"coordinates\":[1,2]},\
             \"properties\":{\"\u{e9}\":1,\"e\u{301}\":2}}",
        ),
    ]
}

#[test]
fn every_refusal_by_policy_names_its_code_and_place() {
    for (code, pointer, policy, text) in refused_by_policy() {
        let (found, place) = refusal(&policy, Form::Json, text.as_bytes());
        assert_eq!((found, place.as_str()), (code.as_str(), pointer), "{text}");
    }
}

/// Texts that are not WKT, or say what a key cannot hold.
const WKT: &[(Code, &str, &str)] = &[
    (Code::WktSyntax, "", "PINT (1 2)"),
    (Code::WktSyntax, "", "POINT (1 2) x"),
    (Code::GeojsonMeasure, "", "POINT M (1 2 3)"),
    (Code::GeojsonMeasure, "/coordinates/0", "LINESTRING (1 2 3 4, 1 2 3 4)"),
    (Code::GeojsonEmpty, "/coordinates", "POINT EMPTY"),
    (Code::GeojsonType, "", "CIRCULARSTRING (0 0, 1 1, 2 0)"),
    (Code::GeojsonRingUnclosed, "/coordinates/0", "POLYGON ((0 0, 1 0, 1 1, 0 1))"),
    (Code::GeojsonBounds, "/coordinates/0", "POINT (181 0)"),
    (Code::CrsUnknown, "", "SRID=1;POINT (1 2)"),
    (Code::CrsApproximate, "", "SRID=4269;POINT (1 2)"),
];

#[test]
fn every_refused_wkt_and_wkb_names_its_code_and_place() {
    check(Form::Wkt, WKT);
    for (code, hex) in [
        (Code::WkbSyntax, "07"),
        (Code::WkbSyntax, "0"),
        (Code::WkbSyntax, "zz"),
        (Code::GeojsonMeasure, "01b90b0000"),
        (Code::GeojsonEmpty, "01020000000000000000"),
    ] {
        let found = refusal(&Policy::default(), Form::WkbHex, hex.as_bytes()).0;
        assert_eq!(found, code.as_str(), "{hex}");
    }
}

#[test]
fn a_policy_that_contradicts_itself_is_refused() {
    let default = Policy::default;
    let fields = |fields: &[(&str, Option<u8>)]| {
        let field = |&(at, decimals): &(&str, Option<u8>)| Field { at: pointer(at), optional: false, decimals };
        Policy { identity: Identity::Fields(fields.iter().map(field).collect()), ..default() }
    };
    let accept = |accept: Accept| Policy { accept, ..default() };
    let refused = [
        Policy { precision: 10, ..default() },
        Policy { precision_z: 10, ..default() },
        fields(&[]),
        fields(&[("/id", None), ("/id", None)]),
        fields(&[("/id", Some(10))]),
        accept(Accept { bounds: Some([1.0, 0.0, 0.0, 1.0]), ..Accept::default() }),
        accept(Accept { bounds: Some([0.0, f64::NAN, 0.0, 1.0]), ..Accept::default() }),
        accept(Accept { bounds: Some([f64::NEG_INFINITY, -90.0, f64::INFINITY, 90.0]), ..Accept::default() }),
        accept(Accept { types: Some(vec!["point".to_owned()]), ..Accept::default() }),
        accept(Accept { schema: Some("{".to_owned()), ..Accept::default() }),
        Policy { key_secret: Some(Secret::new("")), ..default() },
        Policy { previous: Some(Box::new(Policy { previous: Some(Box::new(default())), ..default() })), ..default() },
    ];
    for policy in refused {
        assert_eq!(refusal(&policy, Form::Json, POINT.as_bytes()).0, "policy_invalid", "{policy:?}");
    }
    for (crs, code) in [(1, "crs_unknown"), (4269, "crs_approximate")] {
        let policy = Policy { crs: AssumedCrs::Code(crs), ..default() };
        assert_eq!(refusal(&policy, Form::Json, POINT.as_bytes()).0, code);
    }
    for text in ["", "id", "/a~2", "/~"] {
        assert_eq!(Pointer::parse(text).map_err(|error| error.code()), Err(Code::PolicyInvalid), "{text}");
    }
}

#[test]
fn a_collection_and_its_feature_must_agree_on_the_coordinate_system() {
    let text = r#"{"type":"Point","coordinates":[1,2],"crs":{"type":"name","properties":{"name":"EPSG:3857"}}}"#;
    let mut keyer = Keyer::new(&Policy::default()).unwrap();
    let mut code = |crs| {
        let keyed = keyer.key(Input { form: Form::Json, bytes: text.as_bytes(), crs });
        keyed.map_or_else(|error| error.code().as_str(), |_| "")
    };
    assert_eq!([None, Some(3857), Some(4326)].map(&mut code), ["", "", "crs_conflict"]);
}

#[test]
fn a_delivery_id_has_a_length() {
    for id in ["", &"x".repeat(256)] {
        let error = Delivery { by: "webhook-id", id, index: 0 }.fingerprint("s", None).unwrap_err();
        assert_eq!(error.code(), Code::IdentityType);
    }
}

#[test]
fn every_code_is_provoked_or_listed_with_a_reason() {
    let mut provoked: Vec<Code> = JSON.iter().chain(WKT).map(|row| row.0).collect();
    provoked.extend(refused_by_policy().iter().map(|row| row.0));
    provoked.extend(LIMITS);
    provoked.extend([Code::JsonUtf8, Code::WkbSyntax, Code::PolicyInvalid]);
    for code in Code::ALL {
        let elsewhere = ELSEWHERE.iter().any(|(other, reason)| other == code && !reason.is_empty());
        assert!(provoked.contains(code) != elsewhere, "{code}");
    }
}
