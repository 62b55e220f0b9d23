//! Writing entries to Redis, behind everything else: many together, and none that Redis does not take at once.

use super::Shared;
use super::entry::{Digest, Entry};
use super::lookup::Lane;
use crate::event::random;
use crate::redis::{Attempt, Trouble};
use redis::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Entries that may wait to be written.
pub(super) const WAITING_MAX: usize = 8_192;
/// Entries that are written at once. Questions wait behind them.
const BATCH_MAX: usize = 128;
/// How long a batch may take.
const BATCH_WITHIN: Duration = Duration::from_secs(1);
/// Bytes of a digest that others are told.
pub(super) const TOLD_BYTES: usize = 32;

/// Writes what it is sent, until nobody can send any more.
pub(super) async fn write(shared: Arc<Shared>, mut entries: mpsc::Receiver<(Digest, Entry)>) {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    while entries.recv_many(&mut batch, BATCH_MAX).await > 0 {
        let Some(names) = shared.names() else {
            shared.counters.dropped.add(batch.len());
            batch.clear();
            continue;
        };
        for (number, lane) in shared.lanes.iter().enumerate() {
            let mine: Vec<&(Digest, Entry)> = batch.iter().filter(|(digest, _)| names.lane(digest) == number).collect();
            if mine.is_empty() {
                continue;
            }
            match write_to(&shared, lane, &mine).await {
                Ok(()) => shared.counters.written.add(mine.len()),
                Err(trouble) => {
                    shared.counters.dropped.add(mine.len());
                    tracing::debug!(error = %trouble.explain("writing to the cache"), entries = mine.len(), "dropped");
                }
            }
        }
        batch.clear();
    }
}

async fn write_to(shared: &Shared, lane: &Lane, entries: &[&(Digest, Entry)]) -> Attempt<()> {
    let none = || Trouble::silent("there is no connection");
    let (names, mut connection) = (shared.names().ok_or_else(none)?, lane.connection().ok_or_else(none)?);
    let now = shared.clock.now();
    let mut pipe = redis::pipe();
    let mut told = Vec::with_capacity(entries.len() * TOLD_BYTES);
    let mut chance = random();
    for (digest, entry) in entries {
        let Some(left) = entry.lifetime(shared.window, now, u64::try_from(chance >> 64).unwrap_or(0)) else { continue };
        chance = chance.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        let value = names.write(digest, entry);
        let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        pipe.cmd("SET").arg(names.name(digest)).arg(&value[..]).arg("PX").arg(millis).ignore();
        told.extend_from_slice(digest);
    }
    if told.is_empty() {
        return Ok(());
    }
    // Other gateways learn of it; those who do not hear it ask the store.
    pipe.cmd("PUBLISH").arg(names.channel()).arg(told).ignore();
    let written = tokio::time::timeout(BATCH_WITHIN, pipe.query_async::<Value>(&mut connection.link)).await;
    let written = match written {
        Ok(written) => written.map(drop).map_err(Trouble::from),
        Err(_) => Err(Trouble::silent("it did not answer in time")),
    };
    if let Err(trouble) = &written {
        lane.lost(&connection, trouble).await;
        if matches!(trouble, Trouble::Silent(_)) {
            lane.failed(shared, "it did not take an entry in time");
        }
    }
    written
}
