//! `[cache]`: what is before the store, where there is something.

use super::url::Url;
use super::{Reading, SourceSettings, file};
use crate::failure::Failure;
use geonce::cache;
use std::collections::BTreeMap;
use std::time::Duration;

const URL_HINT: &str = "redis://host:6379, redis+sentinel://host,host/name, redis+cluster://host,host";
/// The longest that an acknowledgement may wait for the cache.
const BUDGET_MAX: Duration = Duration::from_secs(1);
/// The most events for which the filter is made: it takes three bytes for each.
const KEYS_MAX: usize = 1_000_000_000;
/// The most entries in the gateway: each takes about 150 bytes.
const RECENT_MAX: usize = 10_000_000;

/// A cache as it is configured.
#[derive(Clone, Debug)]
pub(crate) struct CacheSettings {
    pub(crate) url: Url,
    pub(crate) prefix: Option<String>,
    pub(crate) budget: Duration,
    pub(crate) keys: usize,
    pub(crate) recent: usize,
}

impl CacheSettings {
    /// As the engine takes them.
    pub(crate) fn settings(&self, window: Duration, sources: &BTreeMap<String, SourceSettings>) -> cache::Settings {
        let excluded = sources.iter().filter(|(_, source)| !source.cache).map(|(name, _)| name.clone());
        cache::Settings {
            url: (*self.url).to_owned(),
            prefix: self.prefix.clone(),
            budget: self.budget,
            window,
            keys: self.keys,
            recent: self.recent,
            excluded: excluded.collect(),
        }
    }
}

impl Reading<'_> {
    /// What `[cache]` says.
    pub(super) fn cache(&self, cache: file::Cache, window: Duration) -> Result<CacheSettings, Failure> {
        let url = cache.url.ok_or_else(|| self.refuse("cache.url", "a cache needs a url").hint(URL_HINT))?;
        let url = Url::new(url);
        if url.is_hidden() {
            return Err(self
                .refuse("cache.url", "the password was hidden when the configuration was saved")
                .hint("put the address back, best with \"${NAME}\" from the environment"));
        }
        let base = cache::Settings::new(&*url, window);
        let within = |given: Option<usize>, default: usize, most: usize, path: &str| match given {
            Some(number) if number > most => Err(self.refuse(path, &format!("this is at most {most}"))),
            given => Ok(given.unwrap_or(default)),
        };
        let settings = CacheSettings {
            prefix: cache.prefix,
            budget: self.longer_than_zero(cache.budget, base.budget, "cache.budget")?,
            keys: within(cache.keys, base.keys, KEYS_MAX, "cache.keys")?,
            recent: within(cache.recent, base.recent, RECENT_MAX, "cache.recent")?,
            url,
        };
        if settings.budget > BUDGET_MAX {
            return Err(self.refuse("cache.budget", "a sender waits a second for the cache at most"));
        }
        let whole = settings.settings(window, &BTreeMap::new());
        let path = if (cache::Settings { prefix: None, ..whole.clone() }).check().is_ok() {
            "cache.prefix"
        } else {
            "cache.url"
        };
        self.at(path, whole.check())?;
        Ok(settings)
    }
}
