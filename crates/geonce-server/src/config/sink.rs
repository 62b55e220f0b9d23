//! Settings of a sink.

use super::file::{self, ColumnsValue, IsolationWord, ModeWord};
use super::url::Url;
use super::verify::Shown;
use super::{Reading, fields};
use crate::failure::Failure;
use geonce::retry::Retry;
use geonce::sink::{COLUMNS_MAX, Columns, Isolation, Mode, Options};
use geonce_key::Pointer;
use geonce_key::policy::Field;
use std::time::Duration;

/// A sink as it is configured.
#[derive(Clone, Debug)]
pub(crate) struct SinkSettings {
    pub(crate) url: Url,
    pub(crate) options: Options,
    /// The sink that is served first.
    pub(crate) after: Option<String>,
    /// What names an entity; without it, the source's identity does.
    pub(crate) entity: Option<Vec<Field>>,
    pub(crate) retry: Retry,
    /// How a saved configuration refers to the secret.
    pub(crate) secret_shown: Shown,
}

const URL_HINT: &str = "gpkg:features.gpkg, ndjson:events.ndjson, postgresql://user@host/database, https://…";
/// The most columns a configuration may ask for: the bound of a GeoPackage table, with room for our own.
const DECLARED_COLUMNS_MAX: usize = 1_900;
/// The most attempts.
const ATTEMPTS_MAX: u32 = 1_000;

impl Reading<'_> {
    /// The settings of the sink `name`; its mode does not know yet whether versions are by arrival.
    pub(super) fn sink(&self, name: &str, sink: file::Sink, window: Duration) -> Result<SinkSettings, Failure> {
        let at = |setting: &str| format!("sink.{name}.{setting}");
        let retained = sink.applied_retention.is_some();
        self.not_yet(&at("applied_retention"), retained, "what was applied is remembered for ever")?;
        let url = sink.url.ok_or_else(|| self.refuse(&at("url"), "a sink needs a url").hint(URL_HINT))?;
        let url = Url::new(url);
        self.sink_url(&url, &at("url"))?;
        if sink.isolation.is_some() && !url.starts_with("postgres") {
            return Err(self.refuse(&at("isolation"), "only a sink at postgresql: has transactions beside others"));
        }
        let defaults = Options::default();
        let (secret, secret_shown) = match sink.secret {
            Some(source) => {
                let (secret, shown) = self.secret(source, &at("secret"))?;
                (Some(secret), shown)
            }
            None => (None, Shown::Hidden),
        };
        let options = Options {
            layer: sink.layer.filter(|layer| !layer.is_empty()),
            mode: match sink.mode {
                Some(ModeWord::Upsert) => Mode::Upsert { arrival: false },
                Some(ModeWord::Append) | None => Mode::Append,
            },
            columns: self.columns(sink.columns, &at("columns"))?,
            crs: match sink.crs {
                Some(crs) => self.at(&at("crs"), geonce_key::crs::parse(&crs))?.code(),
                None => defaults.crs,
            },
            approximate_crs: sink.approximate_crs.unwrap_or(defaults.approximate_crs),
            secret,
            allow: sink.allow.unwrap_or_default(),
            timeout: self.longer_than_zero(sink.timeout, defaults.timeout, &at("timeout"))?,
            isolation: match sink.isolation {
                None | Some(IsolationWord::ReadCommitted) => Isolation::ReadCommitted,
                Some(IsolationWord::RepeatableRead) => Isolation::RepeatableRead,
                Some(IsolationWord::Serializable) => Isolation::Serializable,
            },
        };
        let entity = sink.entity.map(|entity| self.at(&at("entity"), fields(entity))).transpose()?;
        if entity.as_ref().is_some_and(Vec::is_empty) {
            return Err(self.refuse(&at("entity"), "an entity needs at least one pointer"));
        }
        let retry = self.retry(sink.retry, &at("retry"), window)?;
        let after = sink.after.filter(|after| !after.is_empty());
        Ok(SinkSettings { url, options, after, entity, retry, secret_shown })
    }

    fn sink_url(&self, url: &Url, path: &str) -> Result<(), Failure> {
        match url.split_once(':') {
            Some(("gpkg" | "ndjson", "")) => Err(self.refuse(path, "the file is missing").hint(URL_HINT)),
            Some(("gpkg" | "ndjson", _)) => Ok(()),
            Some(("http" | "https", rest)) => {
                let host = rest.trim_start_matches('/').split('/').next().unwrap_or_default();
                if host.contains('@') {
                    return Err(self
                        .refuse(path, "a sink's url carries neither user nor password")
                        .hint("sign requests with secret = \"${NAME}\" instead"));
                }
                Ok(())
            }
            Some(("postgresql" | "postgres", _)) if url.is_hidden() => Err(self
                .refuse(path, "the password was hidden when the configuration was saved")
                .hint("put the address back, best with \"${NAME}\" from the environment")),
            Some(("postgresql" | "postgres", rest)) if rest.starts_with("//") => Ok(()),
            _ => Err(self.refuse(path, "this is no sink").hint(URL_HINT)),
        }
    }

    fn columns(&self, columns: Option<ColumnsValue>, path: &str) -> Result<Columns, Failure> {
        match columns {
            None => Ok(Columns::Auto { max: COLUMNS_MAX }),
            Some(ColumnsValue::Word(word)) if word == "auto" => Ok(Columns::Auto { max: COLUMNS_MAX }),
            Some(ColumnsValue::Word(_)) => {
                Err(self.refuse(path, "columns are \"auto\", { max = NUMBER }, or a table from column to JSON pointer"))
            }
            Some(ColumnsValue::Max(max)) if max.max <= DECLARED_COLUMNS_MAX => Ok(Columns::Auto { max: max.max }),
            Some(ColumnsValue::Declared(declared)) if declared.len() <= DECLARED_COLUMNS_MAX => {
                let pairs = declared.into_iter().map(|(name, pointer)| {
                    let pointer = self.at(&format!("{path}.{name}"), Pointer::parse(&pointer))?;
                    Ok((name, pointer))
                });
                Ok(Columns::Declared(pairs.collect::<Result<_, Failure>>()?))
            }
            Some(_) => Err(self.refuse(path, &format!("there are at most {DECLARED_COLUMNS_MAX} columns"))),
        }
    }

    pub(super) fn retry(&self, retry: Option<file::Retry>, path: &str, window: Duration) -> Result<Retry, Failure> {
        let retry = retry.unwrap_or(file::Retry { base: None, cap: None, attempts: None, give_up_after: None });
        let at = |setting: &str| format!("{path}.{setting}");
        let base = self.longer_than_zero(retry.base, Duration::from_secs(2), &at("base"))?;
        let cap = self.longer_than_zero(retry.cap, Duration::from_mins(1).max(base), &at("cap"))?;
        if cap < base {
            return Err(self.refuse(&at("cap"), "cap is less than base"));
        }
        let attempts = retry.attempts.unwrap_or(6);
        if !(1..=ATTEMPTS_MAX).contains(&attempts) {
            return Err(self.refuse(&at("attempts"), &format!("attempts are 1 to {ATTEMPTS_MAX}")));
        }
        let give_up_after = self.longer_than_zero(retry.give_up_after, window, &at("give_up_after"))?;
        Ok(Retry { base, cap, attempts, give_up_after })
    }
}
