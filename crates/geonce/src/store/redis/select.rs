//! Work on many events, in slices short enough not to be noticed: replay, purge, sweep.

use super::Shared;
use super::call::{DECIDE, SWEEP};
use super::read::{SLICE_EVENTS, Which, named, rows};
use super::row::{damaged, id_text, matches, millis, read_number};
use crate::clock::Timestamp;
use crate::event::State;
use crate::redis::Attempt;
use crate::store::{Filter, Swept};
use redis::Cmd;
use std::sync::Arc;
use std::time::Duration;

/// Events that one script forgets.
const SWEEP_EVENTS: usize = 256;

/// What is to become of dead events.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Replay,
    Purge,
}

/// Replays or purges the dead events that `filter` means; how many.
pub(super) async fn decide(shared: &Arc<Shared>, filter: &Filter, fate: Fate, now: Timestamp) -> Attempt<u64> {
    if filter.state.is_some_and(|state| state != State::Dead) {
        return Ok(0);
    }
    let filter = Filter { state: Some(State::Dead), ..filter.clone() };
    let named = named(shared, &filter).await?;
    let (mut count, mut after) = (0, String::new());
    loop {
        let page = match &named {
            Some(ids) => rows(shared, Which::Ids(ids), false).await?,
            None => rows(shared, Which::After("dead", &after), false).await?,
        };
        let last = named.is_some() || page.len() < SLICE_EVENTS;
        let mut chosen = Vec::new();
        for (id, row) in page {
            after = id_text(id);
            if let Some(row) = row?
                && matches(&filter, &row.record)
                && let Some(died) = row.record.settled
            {
                chosen.push((id_text(id), millis(died)));
            }
        }
        count += change(shared, &chosen, fate, now).await?;
        if last {
            return Ok(count);
        }
    }
}

/// Changes events that are still as they were when they were chosen.
async fn change(shared: &Arc<Shared>, chosen: &[(String, i64)], fate: Fate, now: Timestamp) -> Attempt<u64> {
    if chosen.is_empty() {
        return Ok(0);
    }
    let fill = |command: &mut Cmd| {
        command.arg(if fate == Fate::Replay { "replay" } else { "purge" });
        for (id, died) in chosen {
            command.arg(id).arg(*died);
        }
    };
    let (_, answers) = shared.caller.run_each(&DECIDE, now, &fill).await?;
    if fate == Fate::Replay {
        shared.changed();
    }
    let mut count = 0;
    for answer in answers {
        count += u64::from(answer? == "1");
    }
    Ok(count)
}

/// Forgets what is past its time, at most `limit` events.
pub(super) async fn sweep(shared: &Shared, limit: usize, now: Timestamp) -> Attempt<Swept> {
    let mut swept = Swept { more: true, ..Swept::default() };
    let mut left = limit;
    let time = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).min(1 << 50);
    while left > 0 && swept.more {
        let slice = left.min(SWEEP_EVENTS);
        let fill = |command: &mut Cmd| {
            command.arg(slice).arg(time(shared.options.window)).arg(time(shared.options.dead_retention));
        };
        let (wrong, numbers) = shared.caller.run_each(&SWEEP, now, &fill).await?;
        if !wrong.is_empty() {
            tracing::error!("what is past its time could not be forgotten: {wrong}");
        }
        let [forgotten, purged, more, places]: [_; 4] =
            numbers.try_into().map_err(|_| damaged("an answer to a sweep of another form"))?;
        let (forgotten, purged): (u64, u64) = (read_number(&forgotten?, "a count")?, read_number(&purged?, "a count")?);
        swept.forgotten += forgotten;
        swept.purged += purged;
        swept.more = more? == "1";
        let places: u64 = read_number(&places?, "a count")?;
        let gone = usize::try_from((forgotten + purged).max(places)).unwrap_or(usize::MAX);
        if gone == 0 {
            break;
        }
        left = left.saturating_sub(gone);
    }
    Ok(swept)
}
