//! Settling in a transaction of somebody else's, in the store's own database: a sink that writes there commits rows and
//! settlements at once.

use super::work::{settle_within, wake_after};
use super::{Attempt, Shared};
use crate::clock::Timestamp;
use crate::postgres::{Session, Trouble, is_same_database};
use crate::store::{Settled, Settlement};
use std::sync::Arc;
use tokio::runtime::Handle;

/// What a sink needs to settle where it writes. See [`crate::store::Store::joint`].
#[derive(Clone)]
pub struct Joint {
    shared: Arc<Shared>,
    handle: Handle,
}

impl Joint {
    pub(super) fn new(shared: &Arc<Shared>, handle: &Handle) -> Joint {
        Joint { shared: Arc::clone(shared), handle: handle.clone() }
    }

    /// Whether both are of one open store.
    pub(crate) fn is(&self, other: &Joint) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Whether a connection, within a transaction, is in the store's database. The servers are asked, not the addresses.
    pub(crate) async fn is_beside(&self, session: &Session) -> Attempt<bool> {
        let pool = self.shared.pool.clone();
        // The store's connections live on its own threads.
        let own = self.handle.spawn(async move { pool.begin().await }).await;
        let own = own.map_err(|error| Trouble::silent(error.to_string()))??;
        let same = is_same_database(&own, session).await;
        let _ = own.end(Ok(())).await;
        same
    }

    /// Ends leases in a transaction that its owner commits. `repeated` means that an earlier attempt may have been committed.
    pub(crate) async fn settle(
        &self,
        session: &Session,
        settlements: &[Settlement],
        now: Timestamp,
        repeated: bool,
    ) -> Attempt<Vec<Settled>> {
        if settlements.is_empty() {
            return Ok(Vec::new());
        }
        let slot = self.shared.slots.take();
        // Sent together, answered in order: from here on the transaction is the store's.
        let settings = format!("SELECT {}", self.shared.pool.settings());
        let settling = settle_within(&self.shared, session, settlements, slot.number, now, repeated);
        let (set, settled) = tokio::join!(biased; session.batch(&settings), settling);
        set.and(settled)
    }

    /// To be called after the commit.
    pub(crate) fn committed(&self, settlements: &[Settlement]) {
        wake_after(&self.shared, settlements);
    }
}
