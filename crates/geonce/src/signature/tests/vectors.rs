//! Published vectors: Standard Webhooks, GitHub, RFC 4231, RFC 2202, and Wycheproof's where its data is at hand.
//!
//! `GEONCE_CORPORA` names the folder of public test data, `../shared/corpora` beside the workspace is the default.
//! Without it the test says that it was left out; with `GEONCE_REQUIRE_CORPORA=1` it fails.

use super::{at, check, check_at, hex, verifier};
use crate::signature::mac::{Encoding, Hash, mac};
use crate::signature::{HmacScheme, LiveSecret, Request, Scheme, Verifier};
use geonce_key::policy::Secret;
use hyper::HeaderMap;
use serde_json::Value;
use std::io::Write as _;
use std::path::{Path, PathBuf};

fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2));
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn the_examples_of_standard_webhooks_hold() {
    for (secret, id, seconds, body, signature) in [
        (
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            r#"{"test": 2432232314}"#,
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        ),
        (
            "whsec_plJ3nmyCDGBKInavdOK15jsl",
            "msg_loFOjxBNrRLzqYUf",
            1_731_705_121,
            r#"{"event_type":"ping","data":{"success":true}}"#,
            "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=",
        ),
    ] {
        let ours = crate::signature::sign_standard_webhooks(&Secret::new(secret), id, at(seconds), body.as_bytes());
        assert_eq!(ours.unwrap(), signature);
        let time = seconds.to_string();
        let pairs = [("webhook-id", id), ("webhook-timestamp", &time), ("webhook-signature", signature)];
        assert!(check_at(&verifier(Scheme::StandardWebhooks, secret), &pairs, body.as_bytes(), at(seconds)).is_ok());
    }
}

#[test]
fn the_example_of_github_holds() {
    let header = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let github = verifier(Scheme::Github, "It's a Secret to Everybody");
    let verified = check(&github, &[("X-Hub-Signature-256", header)], b"Hello, World!").unwrap();
    assert!(!verified.covers("x-github-delivery"), "GitHub does not sign its delivery id");
}

/// Key, data, and the MACs with SHA-256, SHA-384 and SHA-512 of RFC 4231 section 4, as far as they are whole there.
fn rfc_4231() -> Vec<(Vec<u8>, Vec<u8>, [&'static str; 3])> {
    vec![
        (
            vec![0x0b; 20],
            b"Hi There".to_vec(),
            [
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
                "afd03944d84895626b0825f4ab46907f15f9dadbe4101ec682aa034c7cebc59cfaea9ea9076ede7f4af152e8b2fa9cb6",
                "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cdedaa833b7d6b8a702038b274eaea3f4e4\
                 be9d914eeb61f1702e696c203a126854",
            ],
        ),
        (
            b"Jefe".to_vec(),
            b"what do ya want for nothing?".to_vec(),
            [
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
                "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649",
                "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fd\
                 caeab1a34d4a6b4b636e070a38bce737",
            ],
        ),
        (
            vec![0xaa; 131],
            b"Test Using Larger Than Block-Size Key - Hash Key First".to_vec(),
            [
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
                "4ece084485813e9088d2c63a041bc5b44f9ef1012a2b588f3cd11f05033ac4c60c2ef6ab4030fe8296248df163f44952",
                "80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f3526b56d037e05f2598bd0fd2215d6a1e52\
                 95e64f73f63f0aec8b915a985d786598",
            ],
        ),
    ]
}

#[test]
fn the_vectors_of_rfc_4231_hold() {
    for (key, data, tags) in rfc_4231() {
        for (hash, tag) in [Hash::Sha256, Hash::Sha384, Hash::Sha512].into_iter().zip(tags) {
            assert_eq!(hex(&mac(hash, &Secret::new(key.clone()), &[&data])), tag, "{hash:?}");
            // In parts it is the same.
            let (left, right) = data.split_at(3);
            assert_eq!(hex(&mac(hash, &Secret::new(key.clone()), &[left, b"", right])), tag);
        }
    }
}

#[test]
fn the_vectors_of_rfc_2202_hold_for_sha_1() {
    for (key, data, tag) in [
        (vec![0x0b; 20], &b"Hi There"[..], "b617318655057264e28bc0b6fb378c8ef146be00"),
        (b"Jefe".to_vec(), b"what do ya want for nothing?", "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
        (vec![0xaa; 20], &[0xdd; 50], "125d7342b9ac11cd91a39af48aa17b4f63f175d3"),
        (
            vec![0xaa; 80],
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            "aa4ae5e15272d00e95705637ce8a3b55ed402112",
        ),
    ] {
        assert_eq!(hex(&mac(Hash::Sha1, &Secret::new(key), &[data])), tag);
    }
}

/// The folder of Wycheproof's vectors, or `None` where there is none to be had.
fn wycheproof() -> Option<PathBuf> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpora");
    let folder = std::env::var_os("GEONCE_CORPORA").map_or(default, PathBuf::from).join("wycheproof");
    if folder.is_dir() {
        return Some(folder);
    }
    let required = std::env::var_os("GEONCE_REQUIRE_CORPORA").is_some_and(|value| value == "1");
    assert!(!required, "GEONCE_REQUIRE_CORPORA=1, but {} is no folder", folder.display());
    // Not eprintln, which the test harness keeps to itself.
    let notice = format!("left out: the corpus wycheproof is not at {}\n", folder.display());
    let _ = std::io::stderr().write_all(notice.as_bytes());
    None
}

#[test]
fn wycheproof_is_judged_as_it_says_and_truncated_tags_are_refused() {
    let Some(folder) = wycheproof() else { return };
    let mut judged = [0; 2];
    for &hash in Hash::ALL {
        let text = std::fs::read(folder.join(format!("hmac_{}_test.json", hash.as_str()))).unwrap();
        let file: Value = serde_json::from_slice(&text).unwrap();
        for group in file["testGroups"].as_array().unwrap() {
            let whole = group["tagSize"].as_u64() == Some(hash.bytes() as u64 * 8);
            for test in group["tests"].as_array().unwrap() {
                let bytes = |name: &str| unhex(test[name].as_str().unwrap());
                let scheme = HmacScheme { hash, encoding: Encoding::Hex, ..HmacScheme::new("x-signature") };
                // A key of random bytes may end in white space, which no secret of a source does: so not `new`.
                let mut verifier = verifier(Scheme::Hmac(scheme), "replaced");
                verifier.keys = vec![LiveSecret { secret: Secret::new(bytes("key")), until: None }];
                let accepted = accepts(&verifier, test["tag"].as_str().unwrap(), &bytes("msg"));
                let expected = whole && test["result"] == "valid";
                assert_eq!(accepted, expected, "{hash:?} {}: {}", test["tcId"], test["comment"]);
                judged[usize::from(accepted)] += 1;
            }
        }
    }
    assert!(judged[0] > 300 && judged[1] > 100, "{judged:?}");
}

fn accepts(verifier: &Verifier, tag: &str, body: &[u8]) -> bool {
    let mut headers = HeaderMap::new();
    headers.insert("x-signature", tag.parse().unwrap());
    verifier.verify(&Request { method: "POST", path: "/", headers: &headers, body }, at(0)).is_ok()
}
