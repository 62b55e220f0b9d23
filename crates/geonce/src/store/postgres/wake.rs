//! Waking workers: those of other gateways by a notification, outside every transaction that records events (inside one,
//! all commits would wait for each other), and at most twenty times a second.
//!
//! Hearing needs a connection of its own. Where there is none, behind a pooler for instance, workers poll.

use super::Shared;
use crate::postgres::{Address, Parameter, Trouble};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::types::Type;

/// The time between two notifications.
const TELL_EVERY: Duration = Duration::from_millis(50);
/// How long to wait before listening again after the connection was lost, at first
const LISTEN_AGAIN: Duration = Duration::from_secs(1);
/// and at last.
const LISTEN_AGAIN_MAX: Duration = Duration::from_mins(1);

/// Tells other gateways that there may be work, for ever.
pub(super) async fn tell_others(shared: Arc<Shared>) {
    loop {
        shared.others.notified().await;
        // They poll anyway: what cannot be told is not told again.
        let _ = tell(&shared).await;
        tokio::time::sleep(TELL_EVERY).await;
    }
}

async fn tell(shared: &Shared) -> Result<(), Trouble> {
    let session = shared.pool.session().await?;
    let both: [Parameter<'_>; 2] = [(&shared.schema, Type::TEXT), (&"", Type::TEXT)];
    session.query("SELECT pg_notify($1, $2)", &both).await.map(drop)
}

/// Hears from other gateways that there may be work, for ever.
pub(super) async fn listen(shared: Arc<Shared>, address: Arc<Address>) {
    let mut wait = LISTEN_AGAIN;
    loop {
        let listened = address.listen(&shared.schema, || shared.changed.notify_waiters()).await;
        match listened {
            Ok(()) => wait = LISTEN_AGAIN,
            Err(trouble) => {
                tracing::debug!(error = %trouble.explain("listening to other gateways"), "workers poll meanwhile");
            }
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LISTEN_AGAIN_MAX);
    }
}
