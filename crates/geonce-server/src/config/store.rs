//! Settings of the store, and of the journal that stands in for it while it is down.

use super::human::{Size, Span};
use super::url::Url;
use super::{OnStoreDown, Overrides, Reading, Settings, file};
use crate::failure::Failure;
use geonce::delivery::LEASE;
use geonce::store;
use std::time::Duration;

/// The sentence that accepts a server that may lose what it has acknowledged. A word such as `true` is said too easily.
pub(crate) const ACCEPT_LOSS: &str = "acknowledged events may be lost";
/// What a journal may use, unless the configuration says otherwise.
const SPILL_BYTES_MAX: u64 = 1_000_000_000;
/// What a journal needs to hold anything worth mentioning.
const SPILL_BYTES_MIN: u64 = 1 << 20;
/// A lease is extended after a third of it, and a busy server may take a while to do so.
const LEASE_MIN: Duration = Duration::from_secs(1);
const LEASE_MAX: Duration = Duration::from_hours(1);
const URL_HINT: &str = "sqlite:geonce.db, postgresql://user@host/database or redis://host";

/// Where events are kept.
#[derive(Clone, Debug)]
pub(crate) struct StoreSettings {
    pub(crate) url: Url,
    pub(crate) options: store::Options,
    /// What the journals of sources that go on while the store is down may use together.
    pub(crate) spill_bytes_max: u64,
    /// How long what a gateway holds is its own.
    pub(crate) lease: Duration,
}

impl StoreSettings {
    /// Whether it is a file on this machine, which only one gateway uses.
    pub(crate) fn is_embedded(&self) -> bool {
        self.url.starts_with("sqlite:")
    }
}

impl Reading<'_> {
    pub(super) fn store(&self, store: file::Store, overrides: &Overrides) -> Result<StoreSettings, Failure> {
        let url = overrides.store.clone().or(store.url).unwrap_or_else(|| "sqlite:geonce.db".to_owned());
        let url = Url::new(url);
        self.store_url(&url)?;
        let said = store.accept_loss.filter(|sentence| !sentence.is_empty());
        let base = store::Options::default();
        let options = store::Options {
            window: self.longer_than_zero(store.window, base.window, "store.window")?,
            dead_retention: self.longer_than_zero(store.dead_retention, base.dead_retention, "store.dead_retention")?,
            keep_payload: store.keep_payload.unwrap_or(base.keep_payload),
            accept_loss: said.is_some(),
        };
        let spill_bytes_max = store.spill_max.map_or(SPILL_BYTES_MAX, |Size(bytes)| bytes);
        let lease = store.lease.map_or(LEASE, |span| span.0);
        if !(LEASE_MIN..=LEASE_MAX).contains(&lease) {
            let message = format!("a lease lasts {} to {}", Span(LEASE_MIN), Span(LEASE_MAX));
            return Err(self.refuse("store.lease", &message));
        }
        let settings = StoreSettings { url, options, spill_bytes_max, lease };
        match said {
            Some(_) if settings.is_embedded() => {
                return Err(self
                    .refuse(
                        "store.accept_loss",
                        "the embedded store keeps what it acknowledges: there is no loss to accept",
                    )
                    .hint("take the setting away"));
            }
            Some(sentence) if sentence != ACCEPT_LOSS => {
                return Err(self
                    .refuse("store.accept_loss", "this is not the sentence that accepts loss")
                    .hint(format!("accept_loss = {ACCEPT_LOSS:?}")));
            }
            _ => {}
        }
        if spill_bytes_max < SPILL_BYTES_MIN {
            return Err(self.refuse("store.spill_max", &format!("a journal has at least {}", Size(SPILL_BYTES_MIN))));
        }
        Ok(settings)
    }

    fn store_url(&self, url: &Url) -> Result<(), Failure> {
        let path = "store.url";
        if url.is_hidden() {
            return Err(self
                .refuse(path, "the password was hidden when the configuration was saved")
                .hint("put the address back, best with \"${NAME}\" from the environment"));
        }
        match url.split_once(':') {
            Some(("sqlite", file)) if !file.is_empty() => Ok(()),
            Some(("postgresql" | "postgres" | "redis" | "rediss" | "redis+cluster" | "redis+sentinel", rest))
                if rest.starts_with("//") =>
            {
                Ok(())
            }
            _ => Err(self.refuse(path, "this is no store").hint(URL_HINT)),
        }
    }

    /// A journal stands in for a server, not for a file beside it.
    pub(super) fn spilling(&self, settings: &Settings) -> Result<(), Failure> {
        let spilling = settings.sources.iter().find(|(_, source)| source.on_store_down == OnStoreDown::Spill);
        match spilling {
            Some((name, _)) if settings.store.is_embedded() => Err(self
                .refuse(
                    &format!("source.{name}.on_store_down"),
                    "the store is a file here: a journal would be down with it",
                )
                .hint("take the setting away, or keep events at postgresql: or redis:")),
            _ => Ok(()),
        }
    }
}
