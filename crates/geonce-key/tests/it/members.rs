//! Points 9 to 14 of `g1`: identity, version, scope, bytes, delivery ids, migration.

use crate::{bytes_under, identified_by, key, key_under, pointer};
use geonce_key::policy::{Field, Identity, Secret, Unicode};
use geonce_key::{Delivery, Encoding, Input, Keyer, Policy};

/// A Feature at one place with these members beside its geometry.
fn feature(members: &str) -> String {
    let comma = if members.is_empty() { "" } else { "," };
    format!(r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[1,2]}}{comma}{members}}}"#)
}

/// What follows the geometry in the canonical bytes of `feature(members)`.
fn identity_under(policy: &Policy, members: &str) -> String {
    let bytes = bytes_under(policy, &feature(members));
    let head = r#"{"geometry":{"coordinates":[1,2],"type":"Point"},"#;
    bytes.strip_prefix(head).expect(&bytes).to_owned()
}

fn point(x: &str) -> String {
    format!(r#"{{"type":"Point","coordinates":[{x},2]}}"#)
}

#[test]
fn point_9_without_a_policy_the_whole_payload_is_the_identity() {
    let plain = |members: &str, identity: &str| {
        let tail = format!(r#""identity":{identity},"scope":"default","spec":"g1"}}"#);
        assert_eq!(identity_under(&Policy::default(), members), tail, "{members}");
    };
    plain("", "{}");
    plain(r#""properties":null"#, "{}");
    plain(r#""properties":{}"#, "{}");
    plain(r#""properties":{"attempt":1},"_meta":{"a":1},"links":[],"bbox":[0,0,1,1]"#, "{}");
    plain(r#""id":1,"properties":{"b":[],"a":{}}"#, r#"{"id":1,"properties":{"a":{},"b":[]}}"#);
    plain(r#""timestamp":"t","properties":{"timestamp":1}"#, r#"{"properties":{"timestamp":1},"timestamp":"t"}"#);
    // The list holds at the top and in properties, not below: `attempt` may be business data.
    plain(r#""properties":{"x":{"attempt":1}}"#, r#"{"properties":{"x":{"attempt":1}}}"#);
    plain(r#""properties":{"geometry":1,"type":2,"links":3}"#, r#"{"properties":{"geometry":1,"links":3,"type":2}}"#);
    plain(r#""\u0061ttempt":3,"properties":{"\u0061ttempt":4}"#, "{}");
    for name in geonce_key::IGNORED {
        plain(&format!(r#""{name}":"x","properties":{{"{name}":{{}}}}"#), "{}");
    }
}

#[test]
fn point_9_more_places_may_be_ignored() {
    let ignore = vec![pointer("/properties/seen"), pointer("/properties/tags/1"), pointer("/none")];
    let policy = Policy { identity: Identity::Whole { ignore }, ..Policy::default() };
    let tail = identity_under(&policy, r#""properties":{"seen":1,"x":{"seen":2}}"#);
    assert!(tail.starts_with(r#""identity":{"properties":{"x":{"seen":2}}}"#), "{tail}");
    assert!(identity_under(&policy, r#""properties":{"seen":1}"#).starts_with(r#""identity":{},"#));
}

#[test]
fn point_9_an_envelope_belongs_to_the_identity() {
    let policy = Policy { feature: Some(pointer("/data/feature")), ..Policy::default() };
    let envelope = |event: &str, attempt: u8| {
        format!(r#"{{"type":"{event}","attempt":{attempt},"data":{{"feature":{}}}}}"#, feature(r#""sent_at":1"#))
    };
    let bytes = bytes_under(&policy, &envelope("enter", 1));
    assert!(bytes.contains(r#""identity":{"data":{"feature":{}},"type":"enter"}"#), "{bytes}");
    assert_eq!(key_under(&policy, &envelope("enter", 1)), key_under(&policy, &envelope("enter", 2)));
    assert!(!key_under(&policy, &envelope("enter", 1)).matches(&key_under(&policy, &envelope("exit", 1))));
    let fields = Policy { feature: policy.feature.clone(), ..identified_by(&["/type", "/data/feature/type"]) };
    let bytes = bytes_under(&fields, &envelope("enter", 1));
    assert!(bytes.contains(r#""identity":{"/data/feature/type":"Feature","/type":"enter"}"#), "{bytes}");
}

#[test]
fn point_9_pointers_name_values_of_any_type() {
    let policy = identified_by(&["/properties/b", "/id", "/properties/a~1b/0"]);
    let tail = identity_under(&policy, r#""id":"7","properties":{"b":{"z":1,"y":[null,true]},"a/b":[1.50]},"x":1"#);
    let identity = r#"{"/id":"7","/properties/a~1b/0":1.5,"/properties/b":{"y":[null,true],"z":1}}"#;
    assert_eq!(tail, format!(r#""identity":{identity},"scope":"default","spec":"g1"}}"#));
    for (members, same) in [(r#""id":"7""#, true), (r#""id":7"#, false), (r#""id":"7 ""#, false)] {
        let policy = identified_by(&["/id"]);
        let keys = [r#""id":"7""#, members].map(|members| key_under(&policy, &feature(members)));
        assert_eq!(keys[0].matches(&keys[1]), same, "{members}");
    }
}

#[test]
fn point_9_an_identity_number_may_be_given_decimals() {
    let field = Field { at: pointer("/properties/v"), optional: false, decimals: Some(2) };
    let policy = Policy { identity: Identity::Fields(vec![field]), ..Policy::default() };
    for (written, rounded) in [("1.005", "1"), ("1.015", "1.02"), ("-0.001", "0"), ("12", "12"), ("1e3", "1000")] {
        let tail = identity_under(&policy, &format!(r#""properties":{{"v":{written}}}"#));
        assert!(tail.starts_with(&format!(r#""identity":{{"/properties/v":{rounded}}}"#)), "{tail}");
    }
}

#[test]
fn point_10_a_declared_version_is_part_of_the_key() {
    let policy = Policy { version: Some(pointer("/properties/v")), ..identified_by(&["/id"]) };
    let text = |version: &str| feature(&format!(r#""id":1,"properties":{{"v":{version}}}"#));
    let bytes = bytes_under(&policy, &text("17"));
    assert!(bytes.ends_with(r#""scope":"default","spec":"g1","version":17}"#), "{bytes}");
    assert_eq!(key_under(&policy, &text("17")), key_under(&policy, &text("1.7e1")));
    let versions = ["1", "2", r#""2026-11-15T08:00:00Z""#, r#""2026-11-15T08:00:01Z""#, "9007199254740993"];
    for (i, one) in versions.iter().enumerate() {
        for other in &versions[..i] {
            assert!(!key_under(&policy, &text(one)).matches(&key_under(&policy, &text(other))));
        }
    }
}

#[test]
fn point_11_a_scope_keeps_sources_apart() {
    let policy = |scope: &str| Policy { scope: scope.to_owned(), ..Policy::default() };
    let text = feature(r#""id":42"#);
    assert!(!key_under(&policy("a"), &text).matches(&key_under(&policy("b"), &text)));
    assert!(bytes_under(&policy("a\"b"), &text).contains(r#""scope":"a\"b""#));
}

#[test]
fn point_12_bytes_are_sorted_by_utf16_and_large_integers_keep_their_digits() {
    let plain = |properties: &str, canonical: &str| {
        let tail = identity_under(&Policy::default(), &format!(r#""properties":{properties}"#));
        assert!(tail.starts_with(&format!(r#""identity":{{"properties":{canonical}}},"#)), "{tail}");
    };
    plain(r#"{"\ufb33":1,"\ud83d\ude00":2,"z":3,"\u00e9":4}"#, "{\"z\":3,\"é\":4,\"😀\":2,\"\u{fb33}\":1}");
    let seventeen: Vec<String> = (0..17).map(|i| format!(r#""{:02}":{i}"#, 16 - i)).collect();
    let sorted: Vec<String> = (0..17).map(|i| format!(r#""{:02}":{}"#, i, 16 - i)).collect();
    plain(&format!(r#"{{"a":0,{}}}"#, seventeen.join(",")), &format!(r#"{{{},"a":0}}"#, sorted.join(",")));
    let long = [r#""aaaaaaaa":3"#, r#""aaaaaaaaa":2"#, r#""aaaaaaaab":1"#];
    for [a, b, c] in [[0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0], [0, 2, 1], [1, 0, 2]] {
        plain(&format!("{{{},{},{}}}", long[a], long[b], long[c]), &format!("{{{}}}", long.join(",")));
    }
    plain(
        r#"{"x":[9007199254740993.0,1e23,-0,1e-7,1.50]}"#,
        r#"{"x":[9007199254740993,100000000000000000000000,0,1e-7,1.5]}"#,
    );
    plain(r#"{"x":"\u0007\u00e9\/\u2028"}"#, "{\"x\":\"\\u0007é/\u{2028}\"}");
}

#[test]
fn point_12_nfc_is_a_policy() {
    let nfc = Policy { unicode: Unicode::Nfc, ..Policy::default() };
    let members = "\"properties\":{\"e\u{301}\":\"\u{212b}\"}";
    assert!(identity_under(&nfc, members).starts_with("\"identity\":{\"properties\":{\"é\":\"Å\"}}"));
    assert!(identity_under(&Policy::default(), members).contains("e\u{301}"));
}

#[test]
fn point_12_text_forms_of_a_key() {
    let fingerprint = key(&point("1")).fingerprint;
    let [base64, hex, full] = [Encoding::Base64, Encoding::Hex, Encoding::Full].map(|form| fingerprint.text(form));
    assert_eq!((base64.len(), hex.len(), full.len()), (3 + 22, 3 + 32, 3 + 64));
    assert!(full.starts_with(&hex) && base64.starts_with("g1_"));
    assert_eq!(fingerprint.key(), fingerprint.digest()[..16]);
    let policy = Policy { key_secret: Some(Secret::new("s3cret")), ..Policy::default() };
    let secret = key_under(&policy, &point("1.23456785"));
    assert!(secret.fingerprint.text(Encoding::Base64).starts_with("g1k_"));
    assert!(secret.aliases[0].text(Encoding::Hex).starts_with("g1k_"));
    assert!(!secret.matches(&key(&point("1.23456785"))));
    assert_eq!(format!("{:?}", policy.key_secret), "Some(Secret(…))");
}

#[test]
fn point_13_a_delivery_id_is_a_key_of_its_own_per_feature() {
    let delivery = |by, id, index| Delivery { by, id, index };
    let bytes = delivery("webhook-id", "msg_\"1", 3).canonical_bytes("s").unwrap();
    let expected = r#"{"delivery":{"by":"webhook-id","id":"msg_\"1"},"index":3,"scope":"s","spec":"g1"}"#;
    assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    let deliveries = [delivery("a", "b", 0), delivery("a", "b", 1), delivery("a", "c", 0), delivery("b", "b", 0)];
    let prints = deliveries.map(|delivery| delivery.fingerprint("s", None).unwrap());
    assert!((1..4).all(|i| !prints[..i].contains(&prints[i])));
    assert_ne!(prints[0], deliveries[0].fingerprint("t", None).unwrap());
}

#[test]
fn point_14_the_previous_policy_is_claimed_as_an_alias() {
    let old = Policy { precision: 6, ..Policy::default() };
    let new = Policy { previous: Some(Box::new(old.clone())), ..Policy::default() };
    let text = point("1.2345678");
    let (before, after) = (key_under(&old, &text), key_under(&new, &text));
    assert_ne!(before.fingerprint, after.fingerprint);
    assert!(after.aliases.contains(&before.fingerprint));
    assert!(before.aliases.iter().all(|alias| after.aliases.contains(alias)));
    // An unchanged policy adds nothing; one that refuses the payload is a warning, not a refusal.
    let same = Policy { previous: Some(Box::default()), ..Policy::default() };
    assert_eq!(key_under(&same, &text), key(&text));
    let refusing = Policy { previous: Some(Box::new(identified_by(&["/id"]))), ..Policy::default() };
    assert_eq!(key_under(&refusing, &text).warnings[0].code, "previous_refused");
    let mut keyer = Keyer::new(&new).unwrap();
    keyer.key(Input::json(text.as_bytes())).unwrap();
    assert!(String::from_utf8_lossy(keyer.canonical_bytes()).contains("1.2345678"));
}
