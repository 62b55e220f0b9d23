//! What each scheme accepts and refuses. Published vectors are in `vectors`, random changes in `properties`.

mod properties;
mod vectors;

use super::mac::{Encoding, Hash, base64, mac};
use super::{
    CHALLENGE_BYTES_MAX, HmacScheme, LiveSecret, Request, SECRETS_MAX, Scheme, Unverified, Verified, Verifier,
    sign_standard_webhooks,
};
use crate::clock::Timestamp;
use geonce_key::policy::Secret;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use std::time::Duration;

type Answer = std::result::Result<Verified, Unverified>;

const SECONDS: i64 = 1_794_700_800;
const BODY: &[u8] = br#"{"type":"Point","coordinates":[7.5,47.5]}"#;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    map
}

fn live(secret: &str) -> LiveSecret {
    LiveSecret { secret: Secret::new(secret), until: None }
}

fn verifier(scheme: Scheme, secret: &str) -> Verifier {
    Verifier::new(scheme, vec![live(secret)]).unwrap()
}

fn check_at(verifier: &Verifier, pairs: &[(&str, &str)], body: &[u8], now: Timestamp) -> Answer {
    verifier.verify(&Request { method: "POST", path: "/in/a?b=c", headers: &headers(pairs), body }, now)
}

fn check(verifier: &Verifier, pairs: &[(&str, &str)], body: &[u8]) -> Answer {
    check_at(verifier, pairs, body, at(SECONDS))
}

fn standard(secret: &str, id: &str, seconds: i64, body: &[u8]) -> String {
    sign_standard_webhooks(&Secret::new(secret), id, at(seconds), body).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

fn signed(hash: Hash, secret: &str, content: &[u8]) -> Vec<u8> {
    mac(hash, &Secret::new(secret), &[content])
}

#[test]
fn a_standard_webhook_is_verified_and_its_id_is_covered() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let signature = standard(secret, "msg_1", SECONDS, BODY);
    let time = SECONDS.to_string();
    let names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    let svix = ["svix-id", "svix-timestamp", "svix-signature"];
    for (scheme, [id, timestamp, header], others) in
        [(Scheme::StandardWebhooks, names, svix), (Scheme::Svix, svix, names)]
    {
        let verifier = verifier(scheme, secret);
        let good = [(id, "msg_1"), (timestamp, &time), (header, &signature)];
        let verified = check(&verifier, &good, BODY).unwrap();
        assert!(verified.covers(id) && !verified.covers(others[0]) && !verified.covers("x-event-id"));
        assert_eq!(verified.body, 0..BODY.len());
        // Each scheme has its own names and no others.
        let foreign = [(others[0], "msg_1"), (others[1], &time), (others[2], &signature)];
        assert_eq!(check(&verifier, &foreign, BODY), Err(Unverified::Missing));
        for at in 0..3 {
            let missing: Vec<_> = (0..3).filter(|&other| other != at).map(|other| good[other]).collect();
            assert_eq!(check(&verifier, &missing, BODY), Err(Unverified::Missing));
            let twice = [&good[..], &good[at..=at]].concat();
            assert_eq!(check(&verifier, &twice, BODY), Err(Unverified::Duplicated), "{:?}", good[at]);
        }
    }
}

#[test]
fn a_raw_secret_is_used_as_it_is_and_a_key_pair_is_refused() {
    let signature = standard("plain text", "msg_1", SECONDS, BODY);
    let verifier = verifier(Scheme::StandardWebhooks, "plain text");
    let time = SECONDS.to_string();
    assert!(
        check(
            &verifier,
            &[("webhook-id", "msg_1"), ("webhook-timestamp", &time), ("webhook-signature", &signature)],
            BODY
        )
        .is_ok()
    );
    for bad in ["", "whsec_", "whsec_%%%", "whpk_AAAA", "whsk_AAAA", "ends with a break\n", " canary"] {
        let error = Verifier::new(Scheme::StandardWebhooks, vec![live(bad)]).unwrap_err();
        assert!(error.hint_text().is_some(), "{error}");
        let told = bad.len() > "whsec_".len() && error.to_string().contains(bad);
        assert!(!told, "{error} tells the secret");
    }
    assert!(Verifier::new(Scheme::Github, Vec::new()).is_err());
    assert!(Verifier::new(Scheme::Github, vec![live("a"); SECRETS_MAX + 1]).is_err());
}

#[test]
fn the_tolerance_is_exact_at_its_boundary() {
    let github_like = HmacScheme {
        timestamp_header: Some("x-time".to_owned()),
        signed: Some("{timestamp}:{body}".to_owned()),
        tolerance: Duration::from_mins(5),
        ..HmacScheme::new("x-signature")
    };
    let time = SECONDS.to_string();
    let content = [time.as_bytes(), b".", BODY].concat();
    let stripe = format!("t={time},v1={}", hex(&signed(Hash::Sha256, "secret", &content)));
    let other = hex(&signed(Hash::Sha256, "secret", &[time.as_bytes(), b":", BODY].concat()));
    let webhook = standard("secret", "msg_1", SECONDS, BODY);
    let cases: [(Scheme, Vec<(&str, &str)>); 3] = [
        (Scheme::Stripe, vec![("stripe-signature", &stripe)]),
        (Scheme::Hmac(github_like), vec![("x-signature", &other), ("x-time", &time)]),
        (
            Scheme::StandardWebhooks,
            vec![("webhook-id", "msg_1"), ("webhook-timestamp", &time), ("webhook-signature", &webhook)],
        ),
    ];
    for (scheme, pairs) in cases {
        let verifier = verifier(scheme, "secret");
        for (offset, right) in [(-301, false), (-300, true), (0, true), (300, true), (301, false), (1 << 40, false)] {
            let answer = check_at(&verifier, &pairs, BODY, at(SECONDS + offset));
            let expected = if right { None } else { Some(Unverified::Stale) };
            assert_eq!(answer.err(), expected, "{offset} s");
        }
    }
}

#[test]
fn bytes_cannot_move_between_id_timestamp_and_body() {
    let verifier = verifier(Scheme::StandardWebhooks, "secret");
    let try_one = |id: &str, time: &str, signature: &str, body: &[u8]| {
        check(&verifier, &[("webhook-id", id), ("webhook-timestamp", time), ("webhook-signature", signature)], body)
    };
    let time = SECONDS.to_string();
    let signature = standard("secret", "msg_1", SECONDS, b"1794700800.{}");
    assert!(try_one("msg_1", &time, &signature, b"1794700800.{}").is_ok());
    assert_eq!(try_one(&format!("msg_1.{time}"), &time, &signature, b"{}"), Err(Unverified::Malformed));
    for odd in ["", "+1794700800", "-1", "1794700800.0", "0x6AF9", "1794700800 1", "1e9", "9999999999999999"] {
        let content = format!("msg_1.{odd}.{{}}");
        let signature = format!("v1,{}", base64(&signed(Hash::Sha256, "secret", content.as_bytes())));
        assert_eq!(try_one("msg_1", odd, &signature, b"{}"), Err(Unverified::Malformed), "{odd}");
    }
    // The digits are signed as they were sent: leading zeros are other bytes.
    let signature = standard("secret", "msg_1", SECONDS, BODY);
    assert_eq!(try_one("msg_1", &format!("0{time}"), &signature, BODY), Err(Unverified::Wrong));
    assert_eq!(try_one("", &time, &signature, BODY), Err(Unverified::Malformed));
}

#[test]
fn truncated_and_re_encoded_signatures_are_refused() {
    let verifier = verifier(Scheme::StandardWebhooks, "secret");
    let good = standard("secret", "msg_1", SECONDS, BODY);
    let text = good.strip_prefix("v1,").unwrap();
    let tag = Encoding::Base64.decode(Hash::Sha256, text.as_bytes()).unwrap();
    let time = SECONDS.to_string();
    let padless = text.trim_end_matches('=');
    // The last letter before the padding carries two bits that decode to nothing.
    let mut loose = padless.to_owned();
    let last = char::from(loose.pop().unwrap() as u8 + 1);
    loose.push(last);
    let truncated = base64(&tag[..16]);
    let longer = base64(&[&tag[..], b"\0"].concat());
    let upper = hex(&tag).to_uppercase();
    for bad in [
        "v1,".to_owned(),
        text.to_owned(),
        format!("v1,{padless}"),
        format!("v1,{loose}="),
        format!("v1,{truncated}"),
        format!("v1,{longer}"),
        format!("v1,{text}="),
        format!("v1, {text}"),
        format!("v1,{}", hex(&tag)),
        format!("v2,{text}"),
        format!("v1a,{text}"),
        format!("V1,{text}"),
        format!("v1={text}"),
    ] {
        let pairs = [("webhook-id", "msg_1"), ("webhook-timestamp", &time), ("webhook-signature", &bad)];
        assert!(check(&verifier, &pairs, BODY).is_err(), "{bad}");
    }
    let github = self::verifier(Scheme::Github, "secret");
    let lower = hex(&signed(Hash::Sha256, "secret", BODY));
    assert!(check(&github, &[("x-hub-signature-256", &format!("sha256={lower}"))], BODY).is_ok());
    for bad in [
        lower.clone(),
        format!("sha256={}", lower.to_uppercase()),
        format!("sha256={}", &lower[..32]),
        format!("sha256={}", &lower[..63]),
        format!("sha256={lower}00"),
        format!("SHA256={lower}"),
        format!("sha256= {lower}"),
        format!("sha1={}", hex(&signed(Hash::Sha1, "secret", BODY))),
        format!("sha512={}", hex(&signed(Hash::Sha512, "secret", BODY))),
        format!("sha256={}", hex(&signed(Hash::Sha1, "secret", BODY))),
        format!("sha256={upper}"),
    ] {
        assert!(check(&github, &[("x-hub-signature-256", &bad)], BODY).is_err(), "{bad}");
    }
    // The header of the older hash counts for nothing.
    let old = format!("sha1={}", hex(&signed(Hash::Sha1, "secret", BODY)));
    assert_eq!(check(&github, &[("x-hub-signature", &old)], BODY), Err(Unverified::Missing));
}

#[test]
fn secrets_rotate() {
    let until = Some(at(SECONDS));
    let both =
        Verifier::new(Scheme::StandardWebhooks, vec![live("new"), LiveSecret { secret: Secret::new("old"), until }])
            .unwrap();
    let time = SECONDS.to_string();
    for (secret, offset, right) in
        [("new", -1, true), ("new", 0, true), ("old", -1, true), ("old", 0, false), ("older", -1, false)]
    {
        let signature = standard(secret, "msg_1", SECONDS, BODY);
        let pairs = [("webhook-id", "msg_1"), ("webhook-timestamp", &time), ("webhook-signature", &signature)];
        assert_eq!(check_at(&both, &pairs, BODY, at(SECONDS + offset)).is_ok(), right, "{secret} {offset}");
    }
    let gone = Verifier::new(Scheme::Github, vec![LiveSecret { secret: Secret::new("old"), until }]).unwrap();
    assert_eq!(check(&gone, &[], BODY), Err(Unverified::Expired));
}

#[test]
fn a_header_may_hold_sixteen_signatures_and_any_may_be_the_right_one() {
    let verifier = verifier(Scheme::StandardWebhooks, "secret");
    let right = standard("secret", "msg_1", SECONDS, BODY);
    let wrong = standard("other", "msg_1", SECONDS, BODY);
    let time = SECONDS.to_string();
    for (count, place) in [(1, 0), (16, 0), (16, 7), (16, 15), (17, 0), (17, 16), (60, 3)] {
        let list: Vec<&str> = (0..count).map(|at| if at == place { right.as_str() } else { &wrong }).collect();
        let list = list.join(" ");
        let pairs = [("webhook-id", "msg_1"), ("webhook-timestamp", &time), ("webhook-signature", &list)];
        let expected = if count > 16 { Some(Unverified::Excessive) } else { None };
        assert_eq!(check(&verifier, &pairs, BODY).err(), expected, "{count} {place}");
    }
    let content = [time.as_bytes(), b".", BODY].concat();
    let stripe = self::verifier(Scheme::Stripe, "secret");
    let tag = hex(&signed(Hash::Sha256, "secret", &content));
    for (header, expected) in [
        (format!("t={time},v1={tag}"), None),
        (format!("t={time},v1={},v1={tag},v0=abc", "0".repeat(64)), None),
        (format!("v1={tag},t={time}"), None),
        (format!("t={time},t={time},v1={tag}"), Some(Unverified::Duplicated)),
        (format!("t={time},v0={tag}"), Some(Unverified::Malformed)),
        (format!("v1={tag}"), Some(Unverified::Malformed)),
        (format!("t={time}{}", format!(",v1={tag}").repeat(16)), None),
        (format!("t={time}{}", format!(",v1={tag}").repeat(17)), Some(Unverified::Excessive)),
        (format!("t={time},v1={}", tag.to_uppercase()), Some(Unverified::Malformed)),
    ] {
        assert_eq!(check(&stripe, &[("stripe-signature", &header)], BODY).err(), expected, "{header}");
    }
}

#[test]
fn stripe_uses_all_of_its_secret() {
    let time = SECONDS.to_string();
    let content = [time.as_bytes(), b".", BODY].concat();
    let header = format!("t={time},v1={}", hex(&signed(Hash::Sha256, "whsec_c2VjcmV0", &content)));
    assert!(check(&verifier(Scheme::Stripe, "whsec_c2VjcmV0"), &[("stripe-signature", &header)], BODY).is_ok());
}

#[test]
fn arcgis_signs_the_body_or_the_payload_of_a_form() {
    let verifier = verifier(Scheme::Arcgis, "secret");
    let body = br#"[{"id":1}]"#;
    let signature = "sha256=ovXYRQNVmxnT7kWUmcKuTA+K1oe6hKeMpm1t/dv7/bU=";
    let escaped = "sha256%3DovXYRQNVmxnT7kWUmcKuTA%2BK1oe6hKeMpm1t%2Fdv7%2FbU%3D";
    for text in [signature, escaped] {
        let verified = check(&verifier, &[("x-esriHook-Signature", text)], body).unwrap();
        assert_eq!(verified.body, 0..body.len());
    }
    let form = ("content-type", "application/x-www-form-urlencoded; charset=utf-8");
    let sent = format!("payload=[{{\"id\":1}}]&x-esriHook-Signature={escaped}");
    let verified = check(&verifier, &[form], sent.as_bytes()).unwrap();
    assert_eq!(&sent.as_bytes()[verified.body], body);
    assert_eq!(check(&verifier, &[], sent.as_bytes()), Err(Unverified::Missing));
    for bad in [
        format!("payload=[{{\"id\":2}}]&x-esriHook-Signature={escaped}"),
        format!("payload=[{{\"id\":1}}]&more=1&x-esriHook-Signature={escaped}"),
        format!("payload=[{{\"id\":1}}]&x-esriHook-Signature={escaped}&more=1"),
        format!("other=1&payload=[{{\"id\":1}}]&x-esriHook-Signature={escaped}"),
        "payload=[{\"id\":1}]&x-esriHook-Signature=sha256%3".to_owned(),
        "payload=&x-esriHook-Signature=".to_owned(),
        "&x-esriHook-Signature=".to_owned(),
    ] {
        assert!(check(&verifier, &[form], bad.as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn a_challenge_is_answered_but_never_signs_an_event() {
    let arcgis = verifier(Scheme::Arcgis, "secret");
    let answer = arcgis.challenge("challenge-1").unwrap();
    assert_eq!(answer, "sha256=6SEg3Od1ObgcOzJTeZAgzMyehVfv9dPhXculXTluZbk=");
    assert!(verifier(Scheme::Github, "secret").challenge("challenge-1").is_none());
    let long = "a".repeat(CHALLENGE_BYTES_MAX + 1);
    for event in ["", "{}", "[]", r#"{"type":"Point","coordinates":[0,0]}"#, "POINT (1 2)", "payload=%7B%7D", &long] {
        assert!(arcgis.challenge(event).is_none(), "{event}");
    }
    // WKB in hexadecimal is a word that we would answer: so it is not taken as a signed event.
    let word = "0101000000000000000000F03F0000000000000040";
    let obtained = arcgis.challenge(word).unwrap();
    assert_eq!(check(&arcgis, &[("x-esrihook-signature", &obtained)], word.as_bytes()), Err(Unverified::Malformed));
}

#[test]
fn credentials_are_compared_whole_and_vouch_for_the_whole_request() {
    let bearer = verifier(Scheme::Bearer, "token-1");
    for (value, expected) in [
        ("Bearer token-1", None),
        ("bearer token-1", None),
        ("Bearer token-", Some(Unverified::Wrong)),
        ("Bearer token-11", Some(Unverified::Wrong)),
        ("Bearer  token-1", Some(Unverified::Wrong)),
        ("Bearer", Some(Unverified::Malformed)),
        ("Basic token-1", Some(Unverified::Malformed)),
        ("token-1", Some(Unverified::Malformed)),
    ] {
        assert_eq!(check(&bearer, &[("authorization", value)], BODY).err(), expected, "{value}");
    }
    let twice = [("authorization", "Bearer token-1"), ("authorization", "Bearer token-1")];
    assert_eq!(check(&bearer, &twice, BODY), Err(Unverified::Duplicated));
    assert_eq!(check(&bearer, &[], BODY), Err(Unverified::Missing));
    assert!(check(&bearer, &twice[..1], BODY).unwrap().covers("x-event-id"));

    let basic = verifier(Scheme::Basic { user: "field".to_owned() }, "pass:word");
    let encoded = |text: &str| format!("Basic {}", base64(text.as_bytes()));
    for (value, expected) in [
        (encoded("field:pass:word"), None),
        (encoded("field:pass"), Some(Unverified::Wrong)),
        (encoded("other:pass:word"), Some(Unverified::Wrong)),
        (encoded("Field:pass:word"), Some(Unverified::Wrong)),
        ("Basic field:pass:word".to_owned(), Some(Unverified::Malformed)),
        (format!("{}=", encoded("field:pass:word")), Some(Unverified::Malformed)),
    ] {
        assert_eq!(check(&basic, &[("authorization", &value)], BODY).err(), expected, "{value}");
    }
    for user in ["", "a:b"] {
        assert!(Verifier::new(Scheme::Basic { user: user.to_owned() }, vec![live("secret")]).is_err());
    }
}

/// A MAC as an encoding writes it.
fn spelled(encoding: Encoding, tag: &[u8]) -> String {
    match encoding {
        Encoding::Hex => hex(tag),
        Encoding::HexUpper => hex(tag).to_uppercase(),
        Encoding::Base64 => base64(tag),
        Encoding::Base64Url => base64(tag).replace('+', "-").replace('/', "_"),
    }
}

#[test]
fn an_hmac_is_what_its_configuration_says() {
    for &hash in Hash::ALL {
        for &encoding in Encoding::ALL {
            let scheme = HmacScheme { hash, encoding, prefix: "v0=".to_owned(), ..HmacScheme::new("X-Signature") };
            let verifier = verifier(Scheme::Hmac(scheme), "secret");
            for &other in Hash::ALL {
                let tag = signed(other, "secret", BODY);
                for text in Encoding::ALL.iter().map(|&spelling| spelled(spelling, &tag)) {
                    let accepted = check(&verifier, &[("x-signature", &format!("v0={text}"))], BODY).is_ok();
                    let expected = hash == other && text == spelled(encoding, &tag);
                    assert_eq!(accepted, expected, "{hash:?} {encoding:?} given {other:?} {text:?}");
                    assert!(check(&verifier, &[("x-signature", &text)], BODY).is_err());
                }
            }
            assert_eq!(Encoding::from_word(encoding.as_str()), Some(encoding));
        }
        assert_eq!(Hash::from_word(hash.as_str()), Some(hash));
    }
    assert_eq!(HmacScheme::new("a").hash, Hash::Sha256);
}

#[test]
fn a_template_signs_method_path_headers_time_and_body() {
    let scheme = HmacScheme {
        signed: Some("v0:{method}\n{path}\n{header:X-Event-Id}:{timestamp}:{body}#{header:x-kind}".to_owned()),
        timestamp_header: Some("x-time".to_owned()),
        ..HmacScheme::new("x-signature")
    };
    let verifier = verifier(Scheme::Hmac(scheme), "secret");
    let time = SECONDS.to_string();
    let sign = |id: &str, body: &str, kind: &str| {
        let content = format!("v0:POST\n/in/a?b=c\n{id}:{time}:{body}#{kind}");
        hex(&signed(Hash::Sha256, "secret", content.as_bytes()))
    };
    let try_one = |id: &str, body: &str, kind: &str, signature: &str| {
        let pairs = [("x-signature", signature), ("x-time", &time), ("x-event-id", id), ("x-kind", kind)];
        check(&verifier, &pairs, body.as_bytes())
    };
    let signature = sign("7", "a:b#c", "k");
    let verified = try_one("7", "a:b#c", "k", &signature).unwrap();
    assert!(verified.covers("x-event-id") && verified.covers("x-kind") && !verified.covers("x-time-2"));
    assert_eq!(try_one("7", "a:b", "c#k", &signature), Err(Unverified::Malformed), "the kind grew into the body");
    let shifted = sign("7", &format!("x:{time}:y"), "k");
    let grown = format!("7:{time}:x");
    assert_eq!(try_one(&grown, "y", "k", &shifted), Err(Unverified::Malformed), "the id grew into the body");
    let missing = [("x-signature", signature.as_str()), ("x-time", &time), ("x-kind", "k")];
    assert_eq!(check(&verifier, &missing, b"a:b#c"), Err(Unverified::Missing));
    let other_path = Request { method: "POST", path: "/in/other", headers: &headers(&missing), body: b"a:b#c" };
    assert!(verifier.verify(&other_path, at(SECONDS)).is_err());
}

#[test]
fn templates_that_protect_nothing_are_refused() {
    for (signed, timestamp_header) in [
        ("", None),
        ("{timestamp}", Some("x-time")),
        ("{header:x}", None),
        ("{body}{body}", None),
        ("{body}.{body}", None),
        ("{header:x}{body}", None),
        ("{timestamp}{body}", Some("x-time")),
        ("{body}{timestamp}", Some("x-time")),
        ("{timestamp}.{body}", None),
        ("{body}", Some("x-time")),
        ("{boddy}", None),
        ("{body", None),
        ("body}", None),
        ("{{body}}", None),
        ("{header:}.{body}", None),
        ("{header:a b}.{body}", None),
        ("{timestamp}.{body}", Some("not a header")),
        (&format!("{}{{body}}", "{method}.".repeat(16)), None),
    ] {
        let scheme = HmacScheme {
            signed: Some(signed.to_owned()),
            timestamp_header: timestamp_header.map(str::to_owned),
            ..HmacScheme::new("x-signature")
        };
        let error = Verifier::new(Scheme::Hmac(scheme), vec![live("secret")]).unwrap_err();
        assert_eq!(error.kind(), crate::error::Kind::Invalid, "{signed}");
    }
    let long = HmacScheme { tolerance: Duration::from_secs(86_401), ..HmacScheme::new("x-signature") };
    assert!(Verifier::new(Scheme::Hmac(long), vec![live("secret")]).is_err());
    assert!(Verifier::new(Scheme::Hmac(HmacScheme::new("not a header")), vec![live("secret")]).is_err());
}

#[test]
fn secrets_are_never_shown() {
    let canary = "canary-5f1c";
    for scheme in [
        Scheme::StandardWebhooks,
        Scheme::Github,
        Scheme::Bearer,
        Scheme::Basic { user: "u".to_owned() },
        Scheme::Hmac(HmacScheme::new("x")),
    ] {
        let shown = format!("{:?} {:?}", verifier(scheme, canary), live(canary));
        assert!(!shown.contains(canary), "{shown}");
        // Nor its bytes as a list of numbers.
        assert!(!shown.contains("99, 97, 110"), "{shown}");
    }
}
