//! The arithmetic of signatures: hashes, strict decoding, one MAC for signing and for verifying, and the comparison
//! that takes as long for a wrong signature as for a right one.

use base64::Engine as _;
use base64::alphabet::URL_SAFE as URL_SAFE_ALPHABET;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use geonce_key::policy::Secret;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use subtle::{Choice, ConstantTimeEq as _};

/// The hash of an HMAC. It is fixed by the configuration and never read from a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hash {
    /// For senders that have nothing better. Only by name.
    Sha1,
    /// The usual one.
    #[default]
    Sha256,
    /// SHA-2 with 384 bits.
    Sha384,
    /// SHA-2 with 512 bits.
    Sha512,
}

impl Hash {
    /// Every one there is.
    pub const ALL: &'static [Hash] = &[Hash::Sha1, Hash::Sha256, Hash::Sha384, Hash::Sha512];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Hash::Sha1 => "sha1",
            Hash::Sha256 => "sha256",
            Hash::Sha384 => "sha384",
            Hash::Sha512 => "sha512",
        }
    }

    /// What the word stands for.
    pub fn from_word(word: &str) -> Option<Hash> {
        Hash::ALL.iter().copied().find(|hash| hash.as_str() == word)
    }

    /// How long its MACs are.
    pub(super) const fn bytes(self) -> usize {
        match self {
            Hash::Sha1 => 20,
            Hash::Sha256 => 32,
            Hash::Sha384 => 48,
            Hash::Sha512 => 64,
        }
    }
}

/// How a signature is written. Other spellings of the same bytes are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// Hexadecimal, lower case.
    #[default]
    Hex,
    /// Hexadecimal, upper case.
    HexUpper,
    /// RFC 4648 section 4, with its padding.
    Base64,
    /// RFC 4648 section 5, with or without its padding: senders differ.
    Base64Url,
}

const URL_SAFE: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE_ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

impl Encoding {
    /// Every one there is.
    pub const ALL: &'static [Encoding] = &[Encoding::Hex, Encoding::HexUpper, Encoding::Base64, Encoding::Base64Url];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Encoding::Hex => "hex",
            Encoding::HexUpper => "hex-upper",
            Encoding::Base64 => "base64",
            Encoding::Base64Url => "base64url",
        }
    }

    /// What the word stands for.
    pub fn from_word(word: &str) -> Option<Encoding> {
        Encoding::ALL.iter().copied().find(|encoding| encoding.as_str() == word)
    }

    /// The MAC of `hash` that is written here, if it is one whole MAC in exactly this encoding.
    pub(super) fn decode(self, hash: Hash, text: &[u8]) -> Option<Vec<u8>> {
        let bytes = match self {
            Encoding::Hex => hex(text, b"0123456789abcdef")?,
            Encoding::HexUpper => hex(text, b"0123456789ABCDEF")?,
            Encoding::Base64 => STANDARD.decode(text).ok()?,
            Encoding::Base64Url => URL_SAFE.decode(text).ok()?,
        };
        (bytes.len() == hash.bytes()).then_some(bytes)
    }
}

fn hex(text: &[u8], digits: &[u8; 16]) -> Option<Vec<u8>> {
    let value = |byte: u8| digits.iter().position(|&digit| digit == byte).and_then(|at| u8::try_from(at).ok());
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.chunks_exact(2).map(|pair| Some(value(pair[0])? << 4 | value(pair[1])?)).collect()
}

/// Base 64 as signatures and secrets are written.
pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The bytes of strict base 64.
pub(super) fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// The MAC of the concatenated `parts`: the one implementation, for what we sign and what we verify.
pub(super) fn mac(hash: Hash, key: &Secret, parts: &[&[u8]]) -> Vec<u8> {
    macro_rules! hmac {
        ($hash:ty) => {{
            // HMAC takes keys of every length; `new_from_slice` cannot fail for it.
            let Ok(mut mac) = Hmac::<$hash>::new_from_slice(key.bytes()) else { return Vec::new() };
            for part in parts {
                mac.update(part);
            }
            mac.finalize().into_bytes().to_vec()
        }};
    }
    match hash {
        Hash::Sha1 => hmac!(Sha1),
        Hash::Sha256 => hmac!(Sha256),
        Hash::Sha384 => hmac!(Sha384),
        Hash::Sha512 => hmac!(Sha512),
    }
}

/// A digest of fixed length, so that comparing credentials does not tell how long they are.
pub(super) fn digest(bytes: &[u8]) -> Vec<u8> {
    Sha256::digest(bytes).to_vec()
}

/// Whether any of `candidates` is any of `expected`. Every pair is compared to its end, whatever was found before.
pub(super) fn any_equal(expected: impl Iterator<Item = Vec<u8>>, candidates: &[Vec<u8>]) -> bool {
    let mut found = Choice::from(0);
    for tag in expected {
        for candidate in candidates {
            // An empty tag would equal an empty candidate; neither exists, and neither may ever count.
            found |= tag.ct_eq(candidate) & Choice::from(u8::from(!tag.is_empty()));
        }
    }
    found.into()
}
