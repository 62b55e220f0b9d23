//! Digests and their text forms, and the keys of deliveries that carry an id (`g1` point 13).

use crate::jcs::write_string;
use crate::policy::Secret;
use crate::{Code, Error, Result};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// How a key is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// 22 characters of base64url.
    #[default]
    Base64,
    /// 32 hexadecimal digits.
    Hex,
    /// The whole digest in 64 hexadecimal digits.
    Full,
}

/// SHA-256 (or HMAC-SHA-256) over the canonical bytes. The first 16 bytes are the key; the whole is kept to
/// notice a collision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint {
    digest: [u8; 32],
    secret: bool,
}

impl Fingerprint {
    pub(crate) fn of(bytes: &[u8], secret: Option<&Secret>) -> Fingerprint {
        match secret.and_then(|secret| Hmac::<Sha256>::new_from_slice(secret.bytes()).ok()) {
            None => Fingerprint { digest: Sha256::digest(bytes).into(), secret: false },
            Some(mut mac) => {
                mac.update(bytes);
                Fingerprint { digest: mac.finalize().into_bytes().into(), secret: true }
            }
        }
    }

    /// The fingerprint with this digest, as read back from where it was kept; `secret` where a key secret was used.
    pub const fn from_digest(digest: [u8; 32], secret: bool) -> Fingerprint {
        Fingerprint { digest, secret }
    }

    /// Whether a key secret was used.
    pub const fn is_secret(&self) -> bool {
        self.secret
    }

    /// The whole digest.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// The key: the first 16 bytes.
    pub fn key(&self) -> [u8; 16] {
        let mut key = [0; 16];
        key.copy_from_slice(&self.digest[..16]);
        key
    }

    /// `g1_` (or `g1k_` where a secret was used) and the key's text.
    pub fn text(&self, encoding: Encoding) -> String {
        let mut text = String::with_capacity(72);
        self.write(encoding, &mut text);
        text
    }

    /// Appends [`Fingerprint::text`] to `out`.
    pub fn write(&self, encoding: Encoding, out: &mut String) {
        out.push_str(if self.secret { "g1k_" } else { "g1_" });
        match encoding {
            Encoding::Base64 => URL_SAFE_NO_PAD.encode_string(&self.digest[..16], out),
            Encoding::Hex => write_hex(&self.digest[..16], out),
            Encoding::Full => write_hex(&self.digest, out),
        }
    }
}

impl Fingerprint {
    /// The key that [`Fingerprint::text`] wrote, in any of its encodings.
    pub fn key_of_text(text: &str) -> Option<[u8; 16]> {
        let digits = text.strip_prefix("g1_").or_else(|| text.strip_prefix("g1k_"))?;
        let mut key = [0; 16];
        if digits.len() == 22 {
            key.copy_from_slice(&URL_SAFE_NO_PAD.decode(digits).ok()?);
            return Some(key);
        }
        if !matches!(digits.len(), 32 | 64) || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        for (byte, pair) in key.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(key)
    }
}

fn write_hex(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        for half in [byte >> 4, byte & 15] {
            out.push(char::from_digit(u32::from(half), 16).unwrap_or('0'));
        }
    }
}

/// The longest delivery id that is taken.
pub const DELIVERY_ID_BYTES_MAX: usize = 255;

/// An id under which a sender delivers an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<'a> {
    /// What carries it, such as `webhook-id`.
    pub by: &'a str,
    /// The id.
    pub id: &'a str,
    /// Which feature of the request.
    pub index: u64,
}

impl Delivery<'_> {
    /// The canonical bytes of a delivery in `scope`.
    pub fn canonical_bytes(&self, scope: &str) -> Result<Vec<u8>> {
        if self.id.is_empty() || self.id.len() > DELIVERY_ID_BYTES_MAX || self.by.len() > DELIVERY_ID_BYTES_MAX {
            let message = format!("a delivery id has 1 to {DELIVERY_ID_BYTES_MAX} bytes");
            return Err(Error::new(Code::IdentityType, "", message));
        }
        let mut out = Vec::new();
        out.extend_from_slice(b"{\"delivery\":{\"by\":");
        write_string(self.by, &mut out);
        out.extend_from_slice(b",\"id\":");
        write_string(self.id, &mut out);
        out.extend_from_slice(b"},\"index\":");
        out.extend_from_slice(itoa::Buffer::new().format(self.index).as_bytes());
        out.extend_from_slice(b",\"scope\":");
        write_string(scope, &mut out);
        out.extend_from_slice(b",\"spec\":\"g1\"}");
        Ok(out)
    }

    /// The digest of a delivery in `scope`.
    pub fn fingerprint(&self, scope: &str, secret: Option<&Secret>) -> Result<Fingerprint> {
        Ok(Fingerprint::of(&self.canonical_bytes(scope)?, secret))
    }
}

#[cfg(test)]
mod tests {
    use super::{Encoding, Fingerprint};

    #[test]
    fn a_key_is_read_from_every_text_it_is_written_as() {
        for secret in [None, Some(crate::policy::Secret::new("s"))] {
            let made = Fingerprint::of(b"x", secret.as_ref());
            for encoding in [Encoding::Base64, Encoding::Hex, Encoding::Full] {
                assert_eq!(Fingerprint::key_of_text(&made.text(encoding)), Some(made.key()));
            }
        }
        for bad in
            ["", "g1_", "g1_0", "g1_!!!!!!!!!!!!!!!!!!!!!!", "evt_01JD8Q", "g1_\u{e9}00000000000000000000000000000"]
        {
            assert_eq!(Fingerprint::key_of_text(bad), None, "{bad}");
        }
    }
}
