//! Tests of the published interface of `geonce-key`: what `g1` promises, seen from outside.
//!
//! `GEONCE_CASES` multiplies the number of random cases; the default keeps the whole binary under a minute.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that meets the unexpected has failed"
)]

mod codes;
mod corpora;
mod differences;
mod limits;
mod members;
mod model;
mod properties;
mod reference;
mod rules;
mod strategies;
mod text;
mod workload;

use geonce_key::policy::{Field, Identity};
use geonce_key::{Form, Input, Keyed, Keyer, Pointer, Policy};

/// How often a random test repeats: `base` times the factor in `GEONCE_CASES`.
fn cases(base: u32) -> u32 {
    let factor = std::env::var("GEONCE_CASES").ok().map_or(1, |text| text.parse().expect("GEONCE_CASES is a number"));
    base.saturating_mul(factor)
}

fn pointer(text: &str) -> Pointer {
    Pointer::parse(text).unwrap()
}

/// A policy whose identity is these required pointers.
fn identified_by(pointers: &[&str]) -> Policy {
    let fields = pointers.iter().map(|text| Field::required(pointer(text))).collect();
    Policy { identity: Identity::Fields(fields), ..Policy::default() }
}

/// The key of a JSON payload that must be accepted.
fn key_under(policy: &Policy, text: &str) -> Keyed {
    let mut keyer = Keyer::new(policy).unwrap();
    keyer.key(Input::json(text.as_bytes())).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn key(text: &str) -> Keyed {
    key_under(&Policy::default(), text)
}

/// The key of a payload in any form under the default policy.
fn key_of(form: Form, bytes: &[u8]) -> Keyed {
    let mut keyer = Keyer::new(&Policy::default()).unwrap();
    keyer
        .key(Input { form, bytes, crs: None })
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(bytes)))
}

/// The canonical bytes of a JSON payload that must be accepted.
fn bytes_under(policy: &Policy, text: &str) -> String {
    let mut keyer = Keyer::new(policy).unwrap();
    keyer.key(Input::json(text.as_bytes())).unwrap_or_else(|error| panic!("{error}: {text}"));
    String::from_utf8(keyer.canonical_bytes().to_vec()).unwrap()
}

/// The code and pointer of a refusal.
fn refusal(policy: &Policy, form: Form, bytes: &[u8]) -> (&'static str, String) {
    match Keyer::new(policy).and_then(|mut keyer| keyer.key(Input { form, bytes, crs: None })) {
        Ok(_) => ("accepted", String::new()),
        Err(error) => (error.code().as_str(), error.pointer().to_owned()),
    }
}
