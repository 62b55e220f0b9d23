//! How a source's requests are proved genuine, as plain data. The verifying is the engine's.

use super::file::{self, EncodingWord, HashWord, Moment, SchemeWord, SecretSource, Secrets};
use super::{HIDDEN, Reading};
use crate::failure::Failure;
use geonce::clock::Timestamp;
use geonce::signature::{Encoding, Hash, HmacScheme, LiveSecret, SECRETS_MAX, Scheme, TOLERANCE, Verifier};
use geonce_key::Version;
use geonce_key::policy::Secret;
use std::path::PathBuf;

/// The largest file a secret is read from.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// How requests are proved genuine.
#[derive(Clone, Debug)]
pub(crate) struct VerifySettings {
    pub(crate) scheme: Scheme,
    /// Every secret that is accepted, the current one first.
    pub(crate) secrets: Vec<LiveSecretSettings>,
}

/// A secret, its end, and how a saved configuration refers to it.
#[derive(Clone, Debug)]
pub(crate) struct LiveSecretSettings {
    pub(crate) live: LiveSecret,
    pub(crate) shown: Shown,
}

/// How a secret is written where settings are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// The variable it comes from.
    Variable(String),
    /// The file it comes from.
    File(PathBuf),
    /// Not at all.
    Hidden,
}

impl VerifySettings {
    /// What verifies requests. That it can be made has been checked when the settings were read.
    pub(crate) fn verifier(&self) -> geonce::Result<Verifier> {
        Verifier::new(self.scheme.clone(), self.secrets.iter().map(|settings| settings.live.clone()).collect())
    }

    /// The name of the scheme.
    pub(super) fn scheme_word(&self) -> &'static str {
        match &self.scheme {
            Scheme::StandardWebhooks => "standard-webhooks",
            Scheme::Svix => "svix",
            Scheme::Github => "github",
            Scheme::Stripe => "stripe",
            Scheme::Arcgis => "arcgis",
            Scheme::Hmac(_) => "hmac",
            Scheme::Bearer => "bearer",
            Scheme::Basic { .. } => "basic",
        }
    }
}

/// The word for a hash.
pub(super) fn hash_word(hash: Hash) -> &'static str {
    match hash {
        Hash::Sha1 => "sha1",
        Hash::Sha256 => "sha256",
        Hash::Sha384 => "sha384",
        Hash::Sha512 => "sha512",
    }
}

/// The word for an encoding.
pub(super) fn encoding_word(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Hex => "hex",
        Encoding::HexUpper => "hex-upper",
        Encoding::Base64 => "base64",
        Encoding::Base64Url => "base64url",
    }
}

impl Reading<'_> {
    /// The settings of `verify` at `path`.
    pub(super) fn verify(&self, verify: file::Verify, path: &str) -> Result<VerifySettings, Failure> {
        self.only_options_of(&verify, path)?;
        let scheme = match verify.scheme {
            SchemeWord::StandardWebhooks => Scheme::StandardWebhooks,
            SchemeWord::Svix => Scheme::Svix,
            SchemeWord::Github => Scheme::Github,
            SchemeWord::Stripe => Scheme::Stripe,
            SchemeWord::Arcgis => Scheme::Arcgis,
            SchemeWord::Bearer => Scheme::Bearer,
            SchemeWord::Basic => Scheme::Basic {
                user: verify.user.ok_or_else(|| self.refuse(&format!("{path}.user"), "basic needs a user"))?,
            },
            SchemeWord::Hmac => {
                let missing = || self.refuse(&format!("{path}.header"), "hmac needs the header of the signature");
                Scheme::Hmac(HmacScheme {
                    header: verify.header.ok_or_else(missing)?,
                    hash: match verify.hash {
                        Some(HashWord::Sha1) => Hash::Sha1,
                        Some(HashWord::Sha256) | None => Hash::Sha256,
                        Some(HashWord::Sha384) => Hash::Sha384,
                        Some(HashWord::Sha512) => Hash::Sha512,
                    },
                    encoding: match verify.encoding {
                        Some(EncodingWord::Hex) | None => Encoding::Hex,
                        Some(EncodingWord::HexUpper) => Encoding::HexUpper,
                        Some(EncodingWord::Base64) => Encoding::Base64,
                        Some(EncodingWord::Base64Url) => Encoding::Base64Url,
                    },
                    prefix: verify.prefix.unwrap_or_default(),
                    signed: verify.signed,
                    timestamp_header: verify.timestamp_header,
                    tolerance: self.longer_than_zero(verify.tolerance, TOLERANCE, &format!("{path}.tolerance"))?,
                })
            }
        };
        let secrets = self.secrets(verify.secret, &format!("{path}.secret"))?;
        let settings = VerifySettings { scheme, secrets };
        self.at(path, settings.verifier())?;
        Ok(settings)
    }

    /// An option of another scheme would be without effect, which nobody should have to find out.
    fn only_options_of(&self, verify: &file::Verify, path: &str) -> Result<(), Failure> {
        let hmac = matches!(verify.scheme, SchemeWord::Hmac);
        let options = [
            ("header", verify.header.is_some(), hmac),
            ("hash", verify.hash.is_some(), hmac),
            ("encoding", verify.encoding.is_some(), hmac),
            ("prefix", verify.prefix.is_some(), hmac),
            ("signed", verify.signed.is_some(), hmac),
            ("timestamp_header", verify.timestamp_header.is_some(), hmac),
            ("tolerance", verify.tolerance.is_some(), hmac),
            ("user", verify.user.is_some(), matches!(verify.scheme, SchemeWord::Basic)),
        ];
        match options.into_iter().find(|(_, given, usable)| *given && !usable) {
            Some((option, ..)) => Err(self.refuse(&format!("{path}.{option}"), "this scheme has no such option")),
            None => Ok(()),
        }
    }

    fn secrets(&self, secrets: Secrets, path: &str) -> Result<Vec<LiveSecretSettings>, Failure> {
        let several = match secrets {
            Secrets::One(source) => {
                let (secret, shown) = self.secret(source, path)?;
                return Ok(vec![LiveSecretSettings { live: LiveSecret { secret, until: None }, shown }]);
            }
            Secrets::Several(several) => several,
        };
        if several.is_empty() || several.len() > SECRETS_MAX {
            return Err(self.refuse(path, &format!("there are 1 to {SECRETS_MAX} secrets")));
        }
        let live = several.into_iter().enumerate().map(|(i, live)| {
            let path = format!("{path}[{i}]");
            let (secret, shown) = self.secret(live.secret, &format!("{path}.secret"))?;
            let until = live.until.map(|until| self.moment(&until, &format!("{path}.until"))).transpose()?;
            Ok(LiveSecretSettings { live: LiveSecret { secret, until }, shown })
        });
        live.collect()
    }

    /// A secret and how it is shown.
    pub(super) fn secret(&self, source: SecretSource, path: &str) -> Result<(Secret, Shown), Failure> {
        let (text, shown) = match source {
            SecretSource::Text(text) => (text, self.shown(path)),
            SecretSource::File(named) => {
                let file = self.folder.join(&named.file);
                let bytes = super::read_bounded(&file, SECRET_BYTES_MAX)?;
                // An editor ends a file with a line break, which is no part of the secret.
                (bytes.trim_end_matches(['\n', '\r']).to_owned(), Shown::File(file))
            }
        };
        if text.is_empty() {
            return Err(self.refuse(path, "the secret is empty"));
        }
        if text == HIDDEN {
            return Err(self
                .refuse(path, "this secret was hidden when the configuration was saved")
                .hint("put the secret back, best as \"${NAME}\" from the environment"));
        }
        Ok((Secret::new(text), shown))
    }

    /// How the secret at `path` is shown.
    pub(super) fn shown(&self, path: &str) -> Shown {
        self.places.reference(path).map_or(Shown::Hidden, |variable| Shown::Variable(variable.to_owned()))
    }

    fn moment(&self, moment: &Moment, path: &str) -> Result<Timestamp, Failure> {
        let text = match moment {
            Moment::Text(text) => text.clone(),
            Moment::Toml(datetime) => datetime.to_string(),
        };
        match Version::parse(&text) {
            Some(Version::Time { seconds, .. }) => Ok(Timestamp::from_millis(seconds.saturating_mul(1_000))),
            _ => Err(self.refuse(path, "this is no time").hint("such as 2026-12-31T00:00:00Z, with its offset")),
        }
    }
}
