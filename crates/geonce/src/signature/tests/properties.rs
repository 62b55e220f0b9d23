//! Random requests: the right one is accepted, and no single changed bit goes unnoticed.

use super::{Answer, at, base64, hex, live, signed};
use crate::signature::mac::Hash;
use crate::signature::{HmacScheme, Request, Scheme, Verifier};
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use proptest::prelude::*;

/// A message of Standard Webhooks as bytes that can be changed one bit at a time.
#[derive(Clone, Debug)]
struct Message {
    id: Vec<u8>,
    timestamp: Vec<u8>,
    body: Vec<u8>,
    signature: Vec<u8>,
}

impl Message {
    fn part(&mut self, at: usize) -> &mut Vec<u8> {
        match at {
            0 => &mut self.id,
            1 => &mut self.timestamp,
            2 => &mut self.body,
            _ => &mut self.signature,
        }
    }

    /// The verdict, or `None` where the bytes cannot even be a header.
    fn check(&self, verifier: &Verifier, seconds: i64) -> Option<Answer> {
        let mut headers = HeaderMap::new();
        for (name, value) in
            [("webhook-id", &self.id), ("webhook-timestamp", &self.timestamp), ("webhook-signature", &self.signature)]
        {
            headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).ok()?);
        }
        let request = Request { method: "POST", path: "/", headers: &headers, body: &self.body };
        Some(verifier.verify(&request, at(seconds)))
    }
}

proptest! {
    #[test]
    fn any_single_bit_change_is_refused(
        id in "[a-zA-Z0-9_-]{1,24}",
        seconds in 1_000_000_000i64..4_000_000_000,
        body in prop::collection::vec(any::<u8>(), 1..64),
        secret in "[!-~]{1,40}",
    ) {
        prop_assume!(!secret.starts_with("wh"));
        let verifier = Verifier::new(Scheme::StandardWebhooks, vec![live(&secret)]).unwrap();
        let content = [format!("{id}.{seconds}.").as_bytes(), &body].concat();
        let signature = format!("v1,{}", base64(&signed(Hash::Sha256, &secret, &content))).into_bytes();
        let message = Message { id: id.into_bytes(), timestamp: seconds.to_string().into_bytes(), body, signature };
        prop_assert!(message.check(&verifier, seconds).unwrap().is_ok());
        for part in 0..4 {
            for bit in 0..message.clone().part(part).len() * 8 {
                let mut changed = message.clone();
                changed.part(part)[bit / 8] ^= 1 << (bit % 8);
                let answer = changed.check(&verifier, seconds);
                prop_assert!(answer.is_none_or(|answer| answer.is_err()), "bit {bit} of part {part}");
            }
        }
    }

    #[test]
    fn two_requests_never_fill_a_template_alike(
        first in "[a.:]{0,4}", body in "[a.:1]{0,6}", last in "[a.:]{0,4}",
        other_first in "[a.:]{0,4}", other_body in "[a.:1]{0,6}", other_last in "[a.:]{0,4}",
    ) {
        let scheme = HmacScheme {
            signed: Some("{header:x-first}..{body}.:{header:x-last}".to_owned()),
            ..HmacScheme::new("x-signature")
        };
        let verifier = Verifier::new(Scheme::Hmac(scheme), vec![live("secret")]).unwrap();
        let tag = hex(&signed(Hash::Sha256, "secret", format!("{first}..{body}.:{last}").as_bytes()));
        let check = |first: &str, body: &str, last: &str| {
            super::check(&verifier, &[("x-signature", &tag), ("x-first", first), ("x-last", last)], body.as_bytes())
        };
        let own = check(&first, &body, &last).is_ok();
        let other = check(&other_first, &other_body, &other_last).is_ok();
        let same = (&first, &body, &last) == (&other_first, &other_body, &other_last);
        prop_assert!(same || !(own && other));
        // A value that cannot reach over its end is always taken.
        if !first.contains('.') && !last.contains(':') {
            prop_assert!(own);
        }
    }
}
