//! What each scheme signs, and where it puts the signature.

use super::mac::{Encoding, Hash, any_equal, base64, digest, from_base64, mac};
use super::template::Template;
use super::{
    CHALLENGE_BYTES_MAX, HmacScheme, Request, SIGNATURES_MAX, Scheme, TIMESTAMP_DIGITS_MAX, TOLERANCE, Unverified,
    invalid, single,
};
use crate::clock::Timestamp;
use crate::error::Result;
use geonce_key::policy::Secret;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use std::ops::Range;
use std::time::Duration;

type Checked<T = ()> = std::result::Result<T, Unverified>;

/// The headers of a scheme like Standard Webhooks.
pub(super) struct Names {
    pub(super) id: &'static str,
    timestamp: &'static str,
    signature: &'static str,
}

/// Of Standard Webhooks.
pub(super) const STANDARD: Names =
    Names { id: "webhook-id", timestamp: "webhook-timestamp", signature: "webhook-signature" };
/// Of Svix.
pub(super) const SVIX: Names = Names { id: "svix-id", timestamp: "svix-timestamp", signature: "svix-signature" };

const STRIPE: &str = "stripe-signature";
const GITHUB: &str = "x-hub-signature-256";
const ARCGIS: &str = "x-esrihook-signature";
const SHA256_PREFIX: &[u8] = b"sha256=";

/// The key that a scheme makes of a secret.
pub(super) fn key(scheme: &Scheme, secret: &Secret) -> Result<Secret> {
    let bytes = secret.bytes();
    if bytes.is_empty() {
        return Err(invalid("a secret is empty").hint("is the variable or the file that holds it empty?"));
    }
    if bytes.trim_ascii() != bytes {
        return Err(invalid("a secret begins or ends with white space")
            .hint("a file often ends with a line break that is no part of the secret"));
    }
    match scheme {
        Scheme::StandardWebhooks | Scheme::Svix => webhook_key(secret),
        Scheme::Bearer => Ok(Secret::new(digest(bytes))),
        Scheme::Basic { user } => Ok(Secret::new(digest(&[user.as_bytes(), b":", bytes].concat()))),
        // Stripe's secrets begin with whsec_ too, but all of the text is the key.
        Scheme::Github | Scheme::Stripe | Scheme::Arcgis | Scheme::Hmac(_) => Ok(secret.clone()),
    }
}

/// The key of Standard Webhooks: what `whsec_` introduces is base 64, everything else is the key itself.
fn webhook_key(secret: &Secret) -> Result<Secret> {
    let bytes = secret.bytes();
    if bytes.starts_with(b"whpk_") || bytes.starts_with(b"whsk_") {
        return Err(invalid("the secret is half of a pair of keys (whpk_, whsk_); those signatures are not supported")
            .hint("have the sender make a symmetric secret, whsec_…"));
    }
    let Some(encoded) = bytes.strip_prefix(b"whsec_") else { return Ok(secret.clone()) };
    from_base64(encoded)
        .filter(|key| !key.is_empty())
        .map(Secret::new)
        .ok_or_else(|| invalid("a secret begins with whsec_, but what follows is not base64").hint("copy all of it"))
}

/// A signature as Standard Webhooks writes it (`v1,…`) for a message sent by us.
pub fn sign_standard_webhooks(secret: &Secret, id: &str, timestamp: Timestamp, body: &[u8]) -> Result<String> {
    let seconds = timestamp.millis().div_euclid(1_000).to_string();
    let key = webhook_key(secret)?;
    Ok(format!("v1,{}", base64(&mac(Hash::Sha256, &key, &[id.as_bytes(), b".", seconds.as_bytes(), b".", body]))))
}

/// Standard Webhooks: `id.timestamp.body`, signatures apart by spaces, each with its version.
pub(super) fn webhook(names: &Names, live: &[&Secret], request: &Request<'_>, now: Timestamp) -> Checked {
    let id = single(request.headers, names.id)?;
    let timestamp = single(request.headers, names.timestamp)?;
    let signatures = single(request.headers, names.signature)?;
    // An id with a dot could lend its end to the timestamp, or borrow from it.
    if id.is_empty() || id.contains(&b'.') {
        return Err(Unverified::Malformed);
    }
    fresh(timestamp, now, TOLERANCE)?;
    let entries = bounded(signatures, b' ')?;
    let candidates = entries
        .into_iter()
        .filter_map(|entry| entry.strip_prefix(b"v1,"))
        .filter_map(|text| Encoding::Base64.decode(Hash::Sha256, text))
        .collect::<Vec<_>>();
    matching(Hash::Sha256, live, &[id, b".", timestamp, b".", request.body], &candidates)
}

/// GitHub: the hexadecimal HMAC of the body.
pub(super) fn github(live: &[&Secret], request: &Request<'_>) -> Checked {
    let signature = single(request.headers, GITHUB)?.strip_prefix(SHA256_PREFIX).ok_or(Unverified::Malformed)?;
    let candidates: Vec<_> = Encoding::Hex.decode(Hash::Sha256, signature).into_iter().collect();
    matching(Hash::Sha256, live, &[request.body], &candidates)
}

/// Stripe: `t=…,v1=…`, signed `t.body`.
pub(super) fn stripe(live: &[&Secret], request: &Request<'_>, now: Timestamp) -> Checked {
    let mut timestamp = None;
    let mut candidates = Vec::new();
    for element in bounded(single(request.headers, STRIPE)?, b',')? {
        if let Some(value) = element.strip_prefix(b"t=") {
            if timestamp.replace(value).is_some() {
                return Err(Unverified::Duplicated);
            }
        } else if let Some(text) = element.strip_prefix(b"v1=") {
            candidates.extend(Encoding::Hex.decode(Hash::Sha256, text));
        }
    }
    let timestamp = timestamp.ok_or(Unverified::Malformed)?;
    fresh(timestamp, now, TOLERANCE)?;
    matching(Hash::Sha256, live, &[timestamp, b".", request.body], &candidates)
}

/// ArcGIS: `sha256=` and the HMAC of the body in base 64. In a form the signature is the last field and `payload` is
/// what it signs, as sent. Some releases escape the signature as a URL would.
pub(super) fn arcgis(live: &[&Secret], request: &Request<'_>) -> Checked<Range<usize>> {
    let (signature, body) = match single(request.headers, ARCGIS) {
        Ok(signature) => (signature, 0..request.body.len()),
        Err(Unverified::Missing) if is_form(request) => form(request.body).ok_or(Unverified::Missing)?,
        Err(unverified) => return Err(unverified),
    };
    let signed = &request.body[body.clone()];
    // We sign challenges for whoever asks. What could have been one is no event, or anybody could have it signed.
    if is_challenge(signed) {
        return Err(Unverified::Malformed);
    }
    let unescaped = unescape(signature).ok_or(Unverified::Malformed)?;
    let text = unescaped.strip_prefix(SHA256_PREFIX).ok_or(Unverified::Malformed)?;
    let candidates: Vec<_> = Encoding::Base64.decode(Hash::Sha256, text).into_iter().collect();
    matching(Hash::Sha256, live, &[signed], &candidates)?;
    Ok(body)
}

/// The answer to a challenge of ArcGIS.
pub(super) fn arcgis_challenge(key: &Secret, token: &str) -> Option<String> {
    is_challenge(token.as_bytes()).then(|| format!("sha256={}", base64(&mac(Hash::Sha256, key, &[token.as_bytes()]))))
}

/// Challenges are short words: letters, digits and the signs of base 64 and of UUIDs. No JSON, no form is one.
fn is_challenge(bytes: &[u8]) -> bool {
    (1..=CHALLENGE_BYTES_MAX).contains(&bytes.len())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+/=_-.:".contains(byte))
}

fn is_form(request: &Request<'_>) -> bool {
    request.headers.get(CONTENT_TYPE).is_some_and(|value| {
        let kind = value.as_bytes().split(|&byte| byte == b';').next().unwrap_or_default();
        kind.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
    })
}

/// The signature in `payload=…&x-esriHook-Signature=…`, and where the payload is.
fn form(body: &[u8]) -> Option<(&[u8], Range<usize>)> {
    const PAYLOAD: &[u8] = b"payload=";
    let at = body.iter().rposition(|&byte| byte == b'&')?;
    let (name, signature) = split_once(&body[at + 1..], b'=')?;
    (body.starts_with(PAYLOAD) && at >= PAYLOAD.len() && name.eq_ignore_ascii_case(ARCGIS.as_bytes()))
        .then(|| (signature, PAYLOAD.len()..at))
}

/// Undoes the escapes of a URL.
fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        if first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok().filter(|digits| !digits.starts_with('+'))?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    Some(bytes)
}

/// An HMAC that the configuration describes.
pub(super) fn hmac(
    scheme: &HmacScheme,
    template: &Template,
    live: &[&Secret],
    request: &Request<'_>,
    now: Timestamp,
) -> Checked {
    let signature = single(request.headers, &scheme.header)?;
    let mut timestamp: &[u8] = b"";
    if let Some(header) = &scheme.timestamp_header {
        timestamp = single(request.headers, header)?;
        fresh(timestamp, now, scheme.tolerance)?;
    }
    let text = signature.strip_prefix(scheme.prefix.as_bytes()).ok_or(Unverified::Malformed)?;
    let candidates: Vec<_> = scheme.encoding.decode(scheme.hash, text).into_iter().collect();
    matching(scheme.hash, live, &template.fill(request, timestamp)?, &candidates)
}

/// `Authorization: Bearer …`.
pub(super) fn bearer(live: &[&Secret], request: &Request<'_>) -> Checked {
    credential(live, authorization(request, b"bearer")?)
}

/// `Authorization: Basic …`, user and password together.
pub(super) fn basic(live: &[&Secret], request: &Request<'_>) -> Checked {
    let decoded = from_base64(authorization(request, b"basic")?).ok_or(Unverified::Malformed)?;
    credential(live, &decoded)
}

fn authorization<'a>(request: &Request<'a>, scheme: &[u8]) -> Checked<&'a [u8]> {
    let (name, credential) =
        split_once(single(request.headers, AUTHORIZATION.as_str())?, b' ').ok_or(Unverified::Malformed)?;
    if name.eq_ignore_ascii_case(scheme) { Ok(credential) } else { Err(Unverified::Malformed) }
}

fn credential(live: &[&Secret], given: &[u8]) -> Checked {
    let found = any_equal(live.iter().map(|key| key.bytes().to_vec()), &[digest(given)]);
    if found { Ok(()) } else { Err(Unverified::Wrong) }
}

fn matching(hash: Hash, live: &[&Secret], parts: &[&[u8]], candidates: &[Vec<u8>]) -> Checked {
    if candidates.is_empty() {
        return Err(Unverified::Malformed);
    }
    let found = any_equal(live.iter().map(|key| mac(hash, key, parts)), candidates);
    if found { Ok(()) } else { Err(Unverified::Wrong) }
}

/// Whether a time in whole seconds is near ours. Exactly the tolerance is near enough, a second more is not.
fn fresh(timestamp: &[u8], now: Timestamp, tolerance: Duration) -> Checked {
    let digits = std::str::from_utf8(timestamp)
        .ok()
        .filter(|text| text.len() <= TIMESTAMP_DIGITS_MAX && text.bytes().all(|byte| byte.is_ascii_digit()))
        .ok_or(Unverified::Malformed)?;
    let seconds: i64 = digits.parse().map_err(|_| Unverified::Malformed)?;
    let apart = now.millis().div_euclid(1_000).abs_diff(seconds);
    if apart <= tolerance.as_secs() { Ok(()) } else { Err(Unverified::Stale) }
}

/// The elements of a list, of which there are not too many.
fn bounded(list: &[u8], separator: u8) -> Checked<Vec<&[u8]>> {
    let elements: Vec<&[u8]> = list.split(|&byte| byte == separator).map(<[u8]>::trim_ascii).collect();
    let signatures = elements.iter().filter(|element| !element.starts_with(b"t=")).count();
    if signatures > SIGNATURES_MAX { Err(Unverified::Excessive) } else { Ok(elements) }
}

fn split_once(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|&byte| byte == separator)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}
