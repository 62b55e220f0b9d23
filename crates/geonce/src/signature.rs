//! Whether a request comes from who it says. A stand-in with the interface that the receiver uses.

use crate::clock::Timestamp;
use hyper::HeaderMap;

/// What a signature is checked against: the request as it was received.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: &'a str,
    /// Path and query.
    pub path: &'a str,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The body, byte for byte.
    pub body: &'a [u8],
}

/// A request whose signature holds.
#[derive(Debug)]
pub struct Verified;

/// A request whose signature does not hold.
#[derive(Debug)]
pub struct Unverified;

/// Checks requests of one source.
#[derive(Debug)]
pub struct Verifier {
    token: String,
}

impl Verifier {
    /// Requests carry `Authorization: Bearer token`.
    pub fn bearer(token: &str) -> Verifier {
        Verifier { token: format!("Bearer {token}") }
    }

    /// Checks one request.
    pub fn verify(&self, request: &Request<'_>, _now: Timestamp) -> Result<Verified, Unverified> {
        let carried = request.headers.get("authorization").map(hyper::header::HeaderValue::as_bytes);
        if carried == Some(self.token.as_bytes()) { Ok(Verified) } else { Err(Unverified) }
    }

    /// The answer to a challenge.
    pub fn challenge(&self, token: &str) -> Option<String> {
        token.starts_with('c').then(|| format!("sha256={token}"))
    }
}
