//! The books: what a transaction counts, and the rows it is added to.
//!
//! Counters are split into slots. A transaction adds to the rows of a slot that nobody else is using, so that gateways
//! do not wait for each other; the sum over all slots counts.

use super::Attempt;
use super::row::{damaged, get};
use crate::event::Cause;
use crate::postgres::Session;
use crate::store::Lag;
use crate::store::books::{Counter, DEAD_PREFIX, REFUSED_PREFIX, TALLIES, Tally, Uncounted};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio_postgres::types::Type;

/// Slots there are. Consecutive numbers are given out, so two gateways share one only after so many were.
pub(super) const SLOTS: i64 = 256;
/// Slots of one gateway: transactions that count, at the same time.
pub(super) const OWN_SLOTS: i64 = 8;
/// The source that no source is called, under which a slot keeps the number of its last group.
const GROUP_SOURCE: &str = "";
const GROUP_NAME: &str = "group";

/// Adds to the rows of a slot; the number of a group takes the place of the one before.
pub(super) const ADD_COUNTS: &str = "INSERT INTO counter AS c (source, name, slot, value) \
    SELECT s, n, $3::bigint, v FROM unnest($1::text[], $2::text[], $4::bigint[]) AS t(s, n, v) \
    ON CONFLICT (source, name, slot) DO UPDATE \
    SET value = CASE WHEN c.source = '' THEN excluded.value ELSE c.value + excluded.value END";

/// What a transaction counts.
#[derive(Default)]
pub(super) struct Counts {
    tallies: Vec<(Arc<str>, [i64; TALLIES.len()])>,
    /// Counters that have a code, a lag or a field in their name.
    by_name: HashMap<(Arc<str>, String), i64>,
}

impl Counts {
    /// Counts `by` more of `tally` for a source.
    pub(super) fn add(&mut self, source: &Arc<str>, tally: Tally, by: i64) {
        let known = self.tallies.iter().position(|(known, _)| known == source);
        let place = known.unwrap_or_else(|| {
            self.tallies.push((Arc::clone(source), [0; TALLIES.len()]));
            self.tallies.len() - 1
        });
        self.tallies[place].1[tally as usize] += by;
    }

    /// Counts a dead event more or less.
    pub(super) fn add_dead(&mut self, source: &Arc<str>, cause: Option<&Cause>, by: i64) -> Attempt<()> {
        let cause = cause.ok_or_else(|| damaged("a dead event without a cause"))?;
        self.add(source, Tally::Dead, by);
        *self.by_name.entry((Arc::clone(source), format!("{DEAD_PREFIX}{}", cause.code))).or_default() += by;
        Ok(())
    }

    /// Counts a redelivery by how late it came.
    pub(super) fn add_lag(&mut self, source: &Arc<str>, lag: Lag) {
        *self.by_name.entry((Arc::clone(source), lag.name().to_owned())).or_default() += 1;
    }

    /// Counts what is not recorded.
    pub(super) fn add_uncounted(&mut self, uncounted: &Uncounted) {
        for ((source, code), &count) in &uncounted.refused {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.add(source, Tally::Received, count);
            self.add(source, Tally::Refused, count);
            *self.by_name.entry((Arc::clone(source), format!("{REFUSED_PREFIX}{code}"))).or_default() += count;
        }
        for (source, &count) in &uncounted.duplicates {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.add(source, Tally::Received, count);
            self.add(source, Tally::Duplicate, count);
        }
        for ((source, name), &count) in &uncounted.traffic {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            *self.by_name.entry((Arc::clone(source), name.to_string())).or_default() += count;
        }
    }

    /// Writes the counts into the rows of a slot; with `group`, notes that this group was the slot's last.
    pub(super) async fn write(&self, session: &Session, slot: i64, group: Option<i64>) -> Attempt<()> {
        let tallies = self
            .tallies
            .iter()
            .flat_map(|(source, counts)| TALLIES.iter().zip(counts).map(move |(&name, &by)| (&**source, name, by)));
        let by_name = self.by_name.iter().map(|((source, name), &by)| (&**source, name.as_str(), by));
        let mut rows: Vec<(&str, &str, i64)> = tallies.chain(by_name).filter(|&(.., by)| by != 0).collect();
        if rows.is_empty() {
            return Ok(());
        }
        rows.extend(group.map(|group| (GROUP_SOURCE, GROUP_NAME, group)));
        rows.sort_unstable();
        let sources: Vec<&str> = rows.iter().map(|row| row.0).collect();
        let names: Vec<&str> = rows.iter().map(|row| row.1).collect();
        let values: Vec<i64> = rows.iter().map(|row| row.2).collect();
        let parameters: [crate::postgres::Parameter<'_>; 4] = [
            (&sources, Type::TEXT_ARRAY),
            (&names, Type::TEXT_ARRAY),
            (&slot, Type::INT8),
            (&values, Type::INT8_ARRAY),
        ];
        session.execute_named(ADD_COUNTS, &parameters).await.map(drop)
    }
}

/// Whether the last group that a slot counted is this one: then its commit took effect, though nobody was told.
pub(super) async fn is_last_group(session: &Session, slot: i64, group: i64) -> Attempt<bool> {
    let text = "SELECT 1 FROM counter WHERE source = $1 AND name = $2 AND slot = $3 AND value = $4";
    let parameters: [crate::postgres::Parameter<'_>; 4] =
        [(&GROUP_SOURCE, Type::TEXT), (&GROUP_NAME, Type::TEXT), (&slot, Type::INT8), (&group, Type::INT8)];
    Ok(!session.query(text, &parameters).await?.is_empty())
}

/// The counters of all sources.
pub(super) async fn counters(session: &Session) -> Attempt<Vec<Counter>> {
    let text = "SELECT source, name, sum(value)::bigint FROM counter WHERE source <> '' GROUP BY source, name";
    let rows = session.query(text, &[]).await?;
    rows.iter().map(|row| Ok((get::<String>(row, 0)?.into(), get(row, 1)?, get(row, 2)?))).collect()
}

/// The slots of this gateway that are not in use.
pub(super) struct Slots {
    free: Mutex<Vec<i64>>,
    shared: i64,
}

impl Slots {
    pub(super) fn new(mut slots: Vec<i64>) -> Slots {
        let shared = slots.pop().unwrap_or(0);
        Slots { free: Mutex::new(slots), shared }
    }

    /// A slot for one transaction, however often that is tried.
    pub(super) fn take(&self) -> Slot<'_> {
        let number = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Slot { number: number.unwrap_or(self.shared), slots: self }
    }
}

/// A slot in use.
pub(super) struct Slot<'a> {
    pub(super) number: i64,
    slots: &'a Slots,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        // When all are in use, several share one and wait for each other.
        if self.number != self.slots.shared {
            self.slots.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
        }
    }
}
