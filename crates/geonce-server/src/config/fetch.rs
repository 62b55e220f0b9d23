//! `fetch` of a source: whether the changes that its sender only announces are fetched, and from where.

use super::Reading;
use super::file::{Retry as RetryTable, SecretSource};
use super::human::{Size, Span};
use super::verify::Shown;
use crate::failure::Failure;
use geonce::changes::{self, Options, Token};
use geonce::intake::Preset;
use geonce::retry::Retry;
use geonce_key::Limits;
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;

/// How announced changes are fetched.
#[derive(Clone, Debug)]
pub(crate) struct FetchSettings {
    pub(crate) options: Options,
    pub(crate) retry: Retry,
    /// How a saved configuration refers to the token.
    pub(crate) token_shown: Shown,
}

/// Fetches the changes that a sender only announces.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Fetch {
    /// The hosts that may be asked: `services.arcgis.com`, over https; `http://HOST:PORT` for one that has no https.
    hosts: Option<Vec<String>>,
    /// What proves to these hosts that we may read: text, or `{ file = "…" }`, which is read anew each time.
    token: Option<SecretSource>,
    /// Private or local networks that may be called, such as `10.0.0.0/8` [default: none].
    allow: Option<Vec<String>>,
    /// The largest answer [default: 30MB].
    body_max: Option<Size>,
    /// How long an answer may take to begin, and how long it may be silent [default: 30s].
    timeout: Option<Span>,
    /// When to try again.
    retry: Option<RetryTable>,
}

impl Reading<'_> {
    /// How the announced changes of the source `name` are fetched.
    pub(super) fn fetch(
        &self,
        name: &str,
        fetch: Fetch,
        preset: &Preset,
        limits: &Limits,
        window: Duration,
    ) -> Result<FetchSettings, Failure> {
        let path = format!("source.{name}.fetch");
        let at = |setting: &str| format!("{path}.{setting}");
        if !preset.announces() {
            let message = format!("senders of the preset {} announce no changes", preset.name());
            return Err(self.refuse(&path, &message).hint("preset = \"arcgis\""));
        }
        let Some(hosts) = fetch.hosts.filter(|hosts| !hosts.is_empty()) else {
            let message = "the sender chooses the address: say which hosts may be asked";
            return Err(self.refuse(&at("hosts"), message).hint("hosts = [\"services.arcgis.com\"]"));
        };
        let (token, token_shown) = match fetch.token {
            None => (None, Shown::Hidden),
            Some(SecretSource::File(named)) => {
                let file = self.folder.join(&named.file);
                (Some(Token::File(file.clone())), Shown::File(file))
            }
            Some(text) => {
                let (secret, shown) = self.secret(text, &at("token"))?;
                (Some(Token::Text(secret)), shown)
            }
        };
        let defaults = Options::default();
        let bytes_max = match fetch.body_max {
            Some(Size(bytes)) => usize::try_from(bytes).unwrap_or(usize::MAX),
            None => defaults.bytes_max.min(limits.bytes_max),
        };
        if !(1..=limits.bytes_max).contains(&bytes_max) {
            let message = format!("an answer has 1 to {} bytes, as limits.bytes_max says", limits.bytes_max);
            return Err(self.refuse(&at("body_max"), &message));
        }
        let options = Options {
            hosts,
            token,
            allow: fetch.allow.unwrap_or_default(),
            bytes_max,
            timeout: self.longer_than_zero(fetch.timeout, defaults.timeout, &at("timeout"))?,
        };
        self.at(&path, changes::check(name, &options))?;
        let retry = self.retry(fetch.retry, &at("retry"), window)?;
        Ok(FetchSettings { options, retry, token_shown })
    }
}
