//! Signatures of incoming webhooks: which schemes there are, and whether a request bears one that holds.
//!
//! Scheme and hash are fixed for each source and never read from a request. Signatures are compared as decoded bytes,
//! in constant time, every candidate with every live secret. Why a request was refused is for logs and counters only.
//! `docs/signatures.md` tells users what each scheme covers.

mod mac;
mod scheme;
mod template;
#[cfg(test)]
mod tests;

use crate::clock::Timestamp;
use crate::error::{Error, Kind, Result};
use geonce_key::policy::Secret;
use hyper::HeaderMap;
pub use mac::{Encoding, Hash};
pub use scheme::sign_standard_webhooks;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
pub use template::FIELDS_MAX;
use template::Template;

/// How far a signed time may be from ours, either way; exactly so far is near enough.
pub const TOLERANCE: Duration = Duration::from_mins(5);
/// The widest tolerance that can be configured: beyond it a timestamp protects nothing.
pub const TOLERANCE_MAX: Duration = Duration::from_hours(24);
/// The most signatures in one header.
pub const SIGNATURES_MAX: usize = 16;
/// The most secrets of a source.
pub const SECRETS_MAX: usize = 8;
/// The longest value of a header that bears signatures or credentials.
pub const HEADER_BYTES_MAX: usize = 8 * 1024;
/// The longest challenge of ArcGIS that is answered.
pub const CHALLENGE_BYTES_MAX: usize = 256;
/// The most digits of a timestamp in seconds.
const TIMESTAMP_DIGITS_MAX: usize = 15;

/// A request as it was received.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// `POST` and so on.
    pub method: &'a str,
    /// The path with its query.
    pub path: &'a str,
    /// All headers.
    pub headers: &'a HeaderMap,
    /// The body, byte for byte, before anything was inflated or parsed.
    pub body: &'a [u8],
}

/// How a source signs.
#[derive(Clone, Debug)]
pub enum Scheme {
    /// Standard Webhooks, symmetric (`v1`).
    StandardWebhooks,
    /// The same with `svix-` headers.
    Svix,
    /// `X-Hub-Signature-256`.
    Github,
    /// `Stripe-Signature`.
    Stripe,
    /// `x-esriHook-Signature` and the challenge that ArcGIS sends.
    Arcgis,
    /// Any other HMAC.
    Hmac(HmacScheme),
    /// A token in `Authorization`.
    Bearer,
    /// A user's password in `Authorization`.
    Basic {
        /// The user.
        user: String,
    },
}

/// An HMAC that no other scheme describes.
#[derive(Clone, Debug)]
pub struct HmacScheme {
    /// The header that bears the signature.
    pub header: String,
    /// The hash.
    pub hash: Hash,
    /// How the signature is written.
    pub encoding: Encoding,
    /// What stands before it, such as `sha256=`.
    pub prefix: String,
    /// What is signed, such as `{timestamp}.{body}`; the body by default.
    pub signed: Option<String>,
    /// The header that bears the time of signing, in seconds since 1970.
    pub timestamp_header: Option<String>,
    /// How far that time may be from ours.
    pub tolerance: Duration,
}

impl HmacScheme {
    /// The lower-case hexadecimal HMAC-SHA-256 of the body in `header`.
    pub fn new(header: impl Into<String>) -> HmacScheme {
        HmacScheme {
            header: header.into(),
            hash: Hash::default(),
            encoding: Encoding::default(),
            prefix: String::new(),
            signed: None,
            timestamp_header: None,
            tolerance: TOLERANCE,
        }
    }
}

/// A secret that a source may sign with.
#[derive(Clone, Debug)]
pub struct LiveSecret {
    /// The secret.
    pub secret: Secret,
    /// From then on it counts no more.
    pub until: Option<Timestamp>,
}

/// What a signature that holds vouches for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The signed headers, in lower case: those whose delivery ids can be trusted.
    pub covered: Arc<[String]>,
    /// The sender is known by a credential rather than by what it signed: all it says is as trustworthy.
    pub whole: bool,
    /// The signed part of the body. It is all of it, but for the forms that ArcGIS sends.
    pub body: Range<usize>,
}

impl Verified {
    /// Whether a header (in lower case) is as trustworthy as the body.
    pub fn covers(&self, header: &str) -> bool {
        self.whole || self.covered.iter().any(|covered| covered == header)
    }
}

/// Why a request was refused. For logs and counters: the sender is told the same in every case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unverified {
    /// A header that the scheme needs is not there.
    Missing,
    /// A header that must be there once is there twice.
    Duplicated,
    /// A header is not written as the scheme says.
    Malformed,
    /// More than [`SIGNATURES_MAX`] signatures.
    Excessive,
    /// The signed time is too far from ours.
    Stale,
    /// No signature fits.
    Wrong,
    /// No secret is live any more.
    Expired,
}

impl Unverified {
    /// Every one there is.
    pub const ALL: &'static [Unverified] = &[
        Unverified::Missing,
        Unverified::Duplicated,
        Unverified::Malformed,
        Unverified::Excessive,
        Unverified::Stale,
        Unverified::Wrong,
        Unverified::Expired,
    ];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Unverified::Missing => "missing",
            Unverified::Duplicated => "duplicated",
            Unverified::Malformed => "malformed",
            Unverified::Excessive => "excessive",
            Unverified::Stale => "stale",
            Unverified::Wrong => "wrong",
            Unverified::Expired => "expired",
        }
    }
}

impl fmt::Display for Unverified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::error::Error for Unverified {}

/// Verifies the requests of one source.
#[derive(Clone, Debug)]
pub struct Verifier {
    scheme: Scheme,
    /// As the scheme uses them: decoded, or digested for credentials.
    keys: Vec<LiveSecret>,
    /// Of [`Scheme::Hmac`].
    template: Option<Template>,
    covered: Arc<[String]>,
}

impl Verifier {
    /// A verifier, or what is wrong with the scheme or a secret.
    pub fn new(scheme: Scheme, secrets: Vec<LiveSecret>) -> Result<Verifier> {
        if secrets.is_empty() || secrets.len() > SECRETS_MAX {
            return Err(invalid(format!("a signature scheme needs 1 to {SECRETS_MAX} secrets, not {}", secrets.len()))
                .hint("secret = \"${NAME_OF_A_VARIABLE}\""));
        }
        let template = match &scheme {
            Scheme::Hmac(hmac) => Some(check_hmac(hmac)?),
            Scheme::Basic { user } if user.is_empty() || user.contains(':') => {
                return Err(invalid("a user of basic authentication must not be empty or hold a colon"));
            }
            _ => None,
        };
        let covered = match &scheme {
            Scheme::StandardWebhooks => vec![scheme::STANDARD.id.to_owned()],
            Scheme::Svix => vec![scheme::SVIX.id.to_owned()],
            _ => template.iter().flat_map(Template::headers).map(str::to_owned).collect(),
        };
        let keys = secrets
            .into_iter()
            .map(|LiveSecret { secret, until }| Ok(LiveSecret { secret: scheme::key(&scheme, &secret)?, until }))
            .collect::<Result<_>>()?;
        Ok(Verifier { scheme, keys, template, covered: covered.into() })
    }

    /// Whether a request bears a signature that holds at `now`.
    pub fn verify(&self, request: &Request<'_>, now: Timestamp) -> std::result::Result<Verified, Unverified> {
        let live: Vec<&Secret> =
            self.keys.iter().filter(|key| key.until.is_none_or(|until| now < until)).map(|key| &key.secret).collect();
        if live.is_empty() {
            return Err(Unverified::Expired);
        }
        let mut body = 0..request.body.len();
        match (&self.scheme, &self.template) {
            (Scheme::StandardWebhooks, _) => scheme::webhook(&scheme::STANDARD, &live, request, now)?,
            (Scheme::Svix, _) => scheme::webhook(&scheme::SVIX, &live, request, now)?,
            (Scheme::Github, _) => scheme::github(&live, request)?,
            (Scheme::Stripe, _) => scheme::stripe(&live, request, now)?,
            (Scheme::Arcgis, _) => body = scheme::arcgis(&live, request)?,
            (Scheme::Hmac(hmac), Some(template)) => scheme::hmac(hmac, template, &live, request, now)?,
            // Never built: `new` makes the template of every such scheme.
            (Scheme::Hmac(_), None) => return Err(Unverified::Malformed),
            (Scheme::Bearer, _) => scheme::bearer(&live, request)?,
            (Scheme::Basic { .. }, _) => scheme::basic(&live, request)?,
        }
        let whole = matches!(self.scheme, Scheme::Bearer | Scheme::Basic { .. });
        Ok(Verified { covered: Arc::clone(&self.covered), whole, body })
    }

    /// The `response_token` that answers a challenge of ArcGIS, made with the first secret. `None` for other schemes,
    /// and for what ArcGIS does not ask: whoever could have anything signed could forge events.
    pub fn challenge(&self, crc_token: &str) -> Option<String> {
        let key = self.keys.first().filter(|_| matches!(self.scheme, Scheme::Arcgis))?;
        scheme::arcgis_challenge(&key.secret, crc_token)
    }
}

/// Checks what can be wrong with an HMAC's description.
fn check_hmac(hmac: &HmacScheme) -> Result<Template> {
    for name in [Some(&hmac.header), hmac.timestamp_header.as_ref()].into_iter().flatten() {
        hyper::header::HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| invalid(format!("{name:?} is no header name")))?;
    }
    let signed = hmac.signed.as_deref().unwrap_or("{body}");
    let template = Template::parse(signed)
        .map_err(|wrong| invalid(format!("signed = {signed:?}: {wrong}")).hint("signed = \"{timestamp}.{body}\""))?;
    if template.has_timestamp() != hmac.timestamp_header.is_some() {
        return Err(invalid("a timestamp protects only when it is signed and its header is known")
            .hint("timestamp_header = \"x-timestamp\" and {timestamp} in signed, or neither"));
    }
    if hmac.tolerance > TOLERANCE_MAX {
        return Err(invalid("the tolerance is longer than a day").hint("tolerance = \"5m\""));
    }
    Ok(template)
}

fn invalid(doing: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, doing)
}

/// The one value of a header.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> std::result::Result<&'a [u8], Unverified> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Err(Unverified::Missing),
        (Some(_), Some(_)) => Err(Unverified::Duplicated),
        (Some(value), None) if value.len() > HEADER_BYTES_MAX => Err(Unverified::Malformed),
        (Some(value), None) => Ok(value.as_bytes()),
    }
}
