//! How a source's requests are proved genuine, as plain data. The verifying is the engine's.

use super::file::{self, EncodingWord, HashWord, Moment, SchemeWord, SecretSource, Secrets};
use super::{HIDDEN, Reading};
use crate::failure::Failure;
use geonce::clock::Timestamp;
use geonce_key::Version;
use geonce_key::policy::Secret;
use std::path::PathBuf;
use std::time::Duration;

/// The most secrets that are live at once.
pub(crate) const SECRETS_MAX: usize = 16;
/// The largest file a secret is read from.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// How requests are proved genuine.
#[derive(Clone, Debug)]
pub(crate) struct VerifySettings {
    pub(crate) scheme: SchemeSettings,
    /// Every secret that is accepted, the current one first.
    pub(crate) secrets: Vec<LiveSecretSettings>,
}

/// A secret and its end.
#[derive(Clone, Debug)]
pub(crate) struct LiveSecretSettings {
    pub(crate) secret: Secret,
    /// Accepted before this time.
    pub(crate) until: Option<Timestamp>,
    /// How a saved configuration refers to it.
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

/// Whose way of signing, with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SchemeSettings {
    StandardWebhooks { tolerance: Duration },
    Svix { tolerance: Duration },
    Github,
    Stripe { tolerance: Duration },
    Arcgis,
    Hmac(HmacSettings),
    Bearer,
    Basic { user: String },
}

/// A signature that is an HMAC in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HmacSettings {
    pub(crate) header: String,
    pub(crate) hash: Hash,
    pub(crate) encoding: TextEncoding,
    pub(crate) prefix: String,
    pub(crate) signed: String,
    pub(crate) timestamp_header: Option<String>,
    pub(crate) tolerance: Duration,
}

/// The hash function of an HMAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha256,
    Sha512,
    Sha1,
}

/// How the bytes of a signature are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextEncoding {
    Hex,
    Base64,
}

impl SchemeSettings {
    /// The name of the scheme.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            SchemeSettings::StandardWebhooks { .. } => "standard-webhooks",
            SchemeSettings::Svix { .. } => "svix",
            SchemeSettings::Github => "github",
            SchemeSettings::Stripe { .. } => "stripe",
            SchemeSettings::Arcgis => "arcgis",
            SchemeSettings::Hmac(_) => "hmac",
            SchemeSettings::Bearer => "bearer",
            SchemeSettings::Basic { .. } => "basic",
        }
    }
}

/// How far the time of signing may be from now, where nothing is said.
pub(super) const TOLERANCE: Duration = Duration::from_mins(5);

impl Reading<'_> {
    /// The settings of `verify` at `path`.
    pub(super) fn verify(&self, verify: file::Verify, path: &str) -> Result<VerifySettings, Failure> {
        self.only_options_of(&verify, path)?;
        let tolerance = self.longer_than_zero(verify.tolerance, TOLERANCE, &format!("{path}.tolerance"))?;
        let scheme = match verify.scheme {
            SchemeWord::StandardWebhooks => SchemeSettings::StandardWebhooks { tolerance },
            SchemeWord::Svix => SchemeSettings::Svix { tolerance },
            SchemeWord::Github => SchemeSettings::Github,
            SchemeWord::Stripe => SchemeSettings::Stripe { tolerance },
            SchemeWord::Arcgis => SchemeSettings::Arcgis,
            SchemeWord::Bearer => SchemeSettings::Bearer,
            SchemeWord::Basic => {
                let user = verify.user.filter(|user| !user.is_empty() && !user.contains(':'));
                let missing = || self.refuse(&format!("{path}.user"), "basic needs a user, without a colon");
                SchemeSettings::Basic { user: user.ok_or_else(missing)? }
            }
            SchemeWord::Hmac => SchemeSettings::Hmac(HmacSettings {
                header: self
                    .header(verify.header, &format!("{path}.header"))?
                    .ok_or_else(|| self.refuse(&format!("{path}.header"), "hmac needs the header of the signature"))?,
                hash: match verify.hash {
                    None | Some(HashWord::Sha256) => Hash::Sha256,
                    Some(HashWord::Sha512) => Hash::Sha512,
                    Some(HashWord::Sha1) => Hash::Sha1,
                },
                encoding: match verify.encoding {
                    None | Some(EncodingWord::Hex) => TextEncoding::Hex,
                    Some(EncodingWord::Base64) => TextEncoding::Base64,
                },
                prefix: verify.prefix.unwrap_or_default(),
                signed: verify.signed.unwrap_or_else(|| "{body}".to_owned()),
                timestamp_header: self.header(verify.timestamp_header, &format!("{path}.timestamp_header"))?,
                tolerance,
            }),
        };
        if let SchemeSettings::Hmac(hmac) = &scheme {
            self.signed_template(hmac, path)?;
        }
        let secrets = self.secrets(verify.secret, &format!("{path}.secret"))?;
        Ok(VerifySettings { scheme, secrets })
    }

    /// An option of another scheme would be without effect, which nobody should have to find out.
    fn only_options_of(&self, verify: &file::Verify, path: &str) -> Result<(), Failure> {
        use SchemeWord::{Basic, Hmac, StandardWebhooks, Stripe, Svix};
        let hmac = matches!(verify.scheme, Hmac);
        let timed = matches!(verify.scheme, Hmac | StandardWebhooks | Stripe | Svix);
        let options = [
            ("header", verify.header.is_some(), hmac),
            ("hash", verify.hash.is_some(), hmac),
            ("encoding", verify.encoding.is_some(), hmac),
            ("prefix", verify.prefix.is_some(), hmac),
            ("signed", verify.signed.is_some(), hmac),
            ("timestamp_header", verify.timestamp_header.is_some(), hmac),
            ("tolerance", verify.tolerance.is_some(), timed),
            ("user", verify.user.is_some(), matches!(verify.scheme, Basic)),
        ];
        match options.into_iter().find(|(_, given, usable)| *given && !usable) {
            Some((option, ..)) => Err(self.refuse(&format!("{path}.{option}"), "this scheme has no such option")),
            None => Ok(()),
        }
    }

    fn header(&self, name: Option<String>, path: &str) -> Result<Option<String>, Failure> {
        match name {
            Some(name)
                if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) =>
            {
                Err(self.refuse(path, "this is no name of a header"))
            }
            name => Ok(name.map(|name| name.to_lowercase())),
        }
    }

    /// Refuses a template that does not cover the body, or that names what there is not.
    fn signed_template(&self, hmac: &HmacSettings, path: &str) -> Result<(), Failure> {
        let path = format!("{path}.signed");
        let mut rest = hmac.signed.as_str();
        let (mut body, mut timestamp) = (false, false);
        while let Some((_, after)) = rest.split_once('{') {
            let Some((name, tail)) = after.split_once('}') else {
                return Err(self.refuse(&path, "a brace is not closed"));
            };
            match name {
                "body" => body = true,
                "timestamp" => timestamp = true,
                "method" | "path" => {}
                header if header.strip_prefix("header:").is_some_and(|name| !name.is_empty()) => {}
                _ => {
                    return Err(self
                        .refuse(&path, &format!("there is no {{{name}}}"))
                        .hint("{method}, {path}, {timestamp}, {header:NAME} and {body}"));
                }
            }
            rest = tail;
        }
        if !body {
            return Err(self.refuse(&path, "what is signed does not contain {body}: anything could be sent"));
        }
        if timestamp && hmac.timestamp_header.is_none() {
            return Err(self.refuse(&path, "{timestamp} needs timestamp_header"));
        }
        if !timestamp && hmac.timestamp_header.is_some() {
            return Err(self.refuse(&path, "timestamp_header is given, but {timestamp} is not signed"));
        }
        Ok(())
    }

    fn secrets(&self, secrets: Secrets, path: &str) -> Result<Vec<LiveSecretSettings>, Failure> {
        let several = match secrets {
            Secrets::One(source) => {
                let (secret, shown) = self.secret(source, path)?;
                return Ok(vec![LiveSecretSettings { secret, until: None, shown }]);
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
            Ok(LiveSecretSettings { secret, until, shown })
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
