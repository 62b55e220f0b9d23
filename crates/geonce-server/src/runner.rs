//! A store in which commands of this process are run once: opened beside others and beside a gateway that may be running,
//! and made where there is none. Nobody else sweeps a store that only runners use, so each does a little of it at its end.

use crate::arguments::PlaceArguments;
use crate::config::{self, Place};
use crate::failure::Failure;
use crate::tool;
use geonce::clock::{Clock, SystemClock};
use geonce::ledger::Ledger;
use geonce::store::{self, Access, Store};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Events that one runner forgets at its end.
const SWEEP_EVENTS_MAX: usize = 1_000;
/// What a runner gives to sweeping: others may hold the store.
const SWEEP_WITHIN: Duration = Duration::from_secs(2);

/// An open store, and a runtime to wait for its answers.
pub(crate) struct Runner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) place: Place,
    runtime: tokio::runtime::Runtime,
}

impl Runner {
    /// Opens the store that flags and configuration name, and makes it if it is a file that is not there.
    pub(crate) fn open(place: &PlaceArguments) -> Result<Runner, Failure> {
        let place = config::place(&place.overrides())?;
        if place.store.is_embedded() {
            std::fs::create_dir_all(&place.data)
                .map_err(|error| Failure::io(&place.data.display().to_string(), &error))?;
        }
        let runtime = tool::runtime()?;
        let store = {
            let _inside = runtime.enter();
            store::open(&place.store.url, &place.store.options, Access::Runner, &place.data)?
        };
        Ok(Runner { store, place, runtime })
    }

    /// The ledger of runs with this name. A runner that is not heard of for `lease` counts as gone.
    pub(crate) fn ledger(&self, name: &str, lease: Duration) -> Ledger {
        Ledger::new(Arc::clone(&self.store), Arc::new(SystemClock), name).with_lease(lease)
    }

    /// Runs a future to its end on this thread.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Sweeps a little and leaves the store tidy. That the sweeping failed is of no consequence: the next one does it.
    pub(crate) fn close(self) -> Result<(), Failure> {
        self.runtime.block_on(async {
            let sweep = self.store.sweep(SWEEP_EVENTS_MAX, SystemClock.now());
            let _ = tokio::time::timeout(SWEEP_WITHIN, sweep).await;
            Ok(self.store.close().await?)
        })
    }
}
