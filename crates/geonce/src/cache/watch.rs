//! What goes on behind a cache: agreeing with other gateways which entries count, warming the filter, hearing what
//! others write, bringing counts to the store, and telling people when the cache does not help.

use super::Shared;
use super::entry::{Names, store_name};
use super::fill::TOLD_BYTES;
use super::lookup::Lane;
use crate::clock::Stopwatch;
use crate::error::Result;
use crate::event::{EventId, random};
use crate::redis::{Attempt, Connections, Heard, Listen, Trouble};
use crate::store::{Filter, ListRequest};
use redis::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often counts go to the store. A gateway that is killed loses what it counted since, on both sides of the books.
const COUNT_EVERY: Duration = Duration::from_millis(100);
/// How often gateways look whether they still agree,
const AGREE_EVERY: Duration = Duration::from_secs(5);
/// and tell people what happened.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// How often what is missing is tried again.
const TRY_EVERY: Duration = Duration::from_millis(200);
/// Names that one `SCAN` looks at, and the pause after it: others use the server too.
const SCAN_NAMES: usize = 1_000;
const SCAN_PAUSE: Duration = Duration::from_millis(1);

/// Brings counts to the store.
pub(super) async fn count(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(COUNT_EVERY).await;
        shared.flush();
    }
}

/// Tells what was bypassed, at most every few seconds.
pub(super) async fn tell(shared: Arc<Shared>) {
    let mut before = shared.counters.read();
    loop {
        tokio::time::sleep(TELL_EVERY).await;
        let now = shared.counters.read();
        let failed = now.bypassed_by_failure() - before.bypassed_by_failure();
        let dropped = now.dropped - before.dropped;
        if failed + dropped > 0 {
            tracing::warn!(
                timeout = now.bypassed_timeout - before.bypassed_timeout,
                unavailable = now.bypassed_unavailable - before.bypassed_unavailable,
                breaker = now.bypassed_breaker - before.bypassed_breaker,
                overload = now.bypassed_overload - before.bypassed_overload,
                dropped,
                "the cache was bypassed because of failures; the store answered"
            );
        }
        let intended = now.bypassed_intended - before.bypassed_intended;
        if intended > 0 {
            tracing::debug!(intended, "the cache was bypassed as configured");
        }
        before = now;
    }
}

/// Agrees with others, listens and warms the filter; does it again whenever it has to.
pub(super) async fn watch(shared: Arc<Shared>) {
    let mut agreed: Option<Stopwatch> = None;
    let mut ears: Option<Ears> = None;
    loop {
        if agreed.is_none_or(|agreed| agreed.elapsed() >= AGREE_EVERY) {
            match agree(&shared, &shared.lanes[0]).await {
                Ok(true) => agreed = Some(Stopwatch::start()),
                Ok(false) => {}
                Err(trouble) => tracing::debug!(error = %trouble.explain("agreeing about the cache"), "tried again"),
            }
        }
        if let Some(names) = shared.names()
            && !ears.as_ref().is_some_and(|ears| ears.hear(&names))
        {
            ears = None;
            match warm(&shared, &names).await {
                Ok(listening) => ears = Some(listening),
                Err(trouble) => tracing::debug!(error = %trouble.explain("warming the cache's filter"), "tried again"),
            }
        }
        tokio::time::sleep(TRY_EVERY).await;
    }
}

/// Finds out which entries count, and whether the store is still the one they are of. `false` if that cannot be known yet.
///
/// A store that was put back from a backup has its old id, but not the events that were done since. So the last event
/// that was remembered must be there; if it is not, nothing that was remembered counts any more.
async fn agree(shared: &Shared, lane: &Lane) -> Attempt<bool> {
    let Some(store) = shared.store.id() else { return Ok(false) };
    let (epoch_name, last_name) =
        (store_name(&shared.prefix, store, "epoch"), store_name(&shared.prefix, store, "last"));
    let mut connection = lane.connections.get().await?;
    let link = &mut connection.link;
    let mut command = redis::cmd("MGET");
    command.arg(&epoch_name).arg(&last_name);
    let read = command.query_async::<[Option<Vec<u8>>; 2]>(link).await;
    let [epoch, last] = match read.map_err(Trouble::from) {
        Ok(read) => read,
        Err(trouble) => {
            lane.lost(&connection, &trouble).await;
            return Err(trouble);
        }
    };
    let last = last.and_then(|bytes| Some(EventId::from_bytes(bytes.try_into().ok()?)));
    let known = match last {
        Some(last) => match is_known(shared, last).await {
            Ok(known) => known,
            // A store that is down answers for nothing: what is agreed stays.
            Err(_) => return Ok(false),
        },
        None => true,
    };
    let fresh = format!("{:032x}", random()).into_bytes();
    let epoch = match epoch {
        Some(epoch) if known => epoch,
        None if known => {
            // What this gateway knows goes on counting, should Redis have lost it.
            let mine = shared.epoch().unwrap_or(fresh);
            redis::cmd("SET").arg(&epoch_name).arg(&mine).arg("NX").query_async::<Value>(link).await?;
            let epoch: Option<Vec<u8>> = redis::cmd("GET").arg(&epoch_name).query_async(link).await?;
            epoch.unwrap_or(mine)
        }
        _ => {
            tracing::warn!("the store does not know what it was done with: what is cached counts no more");
            shared.forget();
            let mut pipe = redis::pipe();
            pipe.cmd("SET").arg(&epoch_name).arg(&fresh).ignore().cmd("DEL").arg(&last_name).ignore();
            pipe.query_async::<Value>(link).await?;
            fresh
        }
    };
    shared.set_names(Names::new(&shared.prefix, shared.lanes.len(), store, &epoch), epoch);
    if let Some(latest) = shared.take_latest() {
        let window = u64::try_from(shared.window.as_millis()).unwrap_or(u64::MAX);
        let mut command = redis::cmd("SET");
        command.arg(&last_name).arg(&latest.to_bytes()[..]).arg("PX").arg(window);
        command.query_async::<Value>(link).await?;
    }
    Ok(true)
}

/// Whether the store knows an event, or need not any more.
async fn is_known(shared: &Shared, event: EventId) -> Result<bool> {
    // A little early: the store's clock may be ahead of ours.
    if shared.clock.now() >= event.time().plus(shared.window.mul_f64(0.9)) {
        return Ok(true);
    }
    let filter = Filter { id: Some(event), ..Filter::default() };
    let request = ListRequest { filter, before: None, limit: 1, payloads: false };
    Ok(!shared.store.list(request).await?.is_empty())
}

/// A connection on which it is heard what other gateways write.
struct Ears {
    names: Arc<Names>,
    lost: Arc<AtomicBool>,
    _connections: Connections,
}

impl Ears {
    fn hear(&self, names: &Arc<Names>) -> bool {
        self.names == *names && !self.lost.load(Ordering::Acquire)
    }
}

/// Listens, then puts all that Redis holds into the filter: what is written meanwhile is heard.
async fn warm(shared: &Arc<Shared>, names: &Arc<Names>) -> Attempt<Ears> {
    let lost = Arc::new(AtomicBool::new(false));
    let (hearing, hearer) = (Arc::clone(&lost), Arc::downgrade(shared));
    let heard = move |heard: Heard<'_>| match heard {
        Heard::Listening => {}
        Heard::Lost => hearing.store(true, Ordering::Release),
        Heard::Message(digests) => {
            let Some(shared) = hearer.upgrade() else { return };
            let now = shared.clock.now();
            for digest in digests.as_chunks::<TOLD_BYTES>().0 {
                shared.filter.insert(digest, now);
            }
        }
    };
    let listen = Listen { channel: names.channel(), heard: Arc::new(heard) };
    let connections = shared.connections(0, Some(listen)).map_err(Trouble::Other)?;
    connections.get().await?;
    let watch = Stopwatch::start();
    let mut keys = 0;
    for node in connections.primaries().await? {
        let mut link = connections.connect_to(&node).await?;
        let mut cursor = 0_u64;
        loop {
            let mut command = redis::cmd("SCAN");
            command.arg(cursor).arg("MATCH").arg(names.pattern()).arg("COUNT").arg(SCAN_NAMES);
            let (next, found): (u64, Vec<Vec<u8>>) = command.query_async(&mut link).await?;
            let now = shared.clock.now();
            for digest in found.iter().filter_map(|name| Names::digest(name)) {
                shared.filter.insert(&digest, now);
                keys += 1;
            }
            cursor = next;
            if cursor == 0 {
                break;
            }
            tokio::time::sleep(SCAN_PAUSE).await;
        }
    }
    shared.filter.warmed();
    tracing::info!(keys, millis = watch.elapsed().as_millis(), "the cache's filter is warm");
    Ok(Ears { names: Arc::clone(names), lost, _connections: connections })
}
