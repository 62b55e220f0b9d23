//! Compares the store with itself: records against work, payloads, claims, indexes and books.
//!
//! Each slice of records is seen at one moment, the whole is not: while gateways work, totals are not compared.

use super::Shared;
use super::read::{Books, SLICE_EVENTS, Which, books, ledger, plain, rows};
use super::row::{Row, id_text};
use crate::event::{EventId, State};
use crate::redis::Attempt;
use crate::store::{Held, findings};
use redis::Value;
use std::collections::BTreeMap;

/// What records amount to.
#[derive(Default)]
struct Seen {
    /// Records of each source: open, done, dead; and keys.
    sources: BTreeMap<String, [i64; 4]>,
    /// Events in each queue.
    queues: BTreeMap<String, i64>,
    leased: i64,
}

type Findings = findings::Findings<Seen>;

/// Notes damage; other failures stop the audit.
fn note<T>(findings: &mut Findings, result: Attempt<T>) -> Attempt<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(trouble) if trouble.is_damage() => {
            findings.add(trouble.explain("a record").to_string());
            Ok(None)
        }
        Err(trouble) => Err(trouble),
    }
}

/// Looks at everything. Problems in words.
pub(super) async fn audit(shared: &Shared) -> Attempt<Vec<String>> {
    let mut findings = Findings::default();
    let before = books(shared).await?;
    let mut last = String::new();
    loop {
        let page = rows(shared, Which::After("all", &last), true).await?;
        let more = page.len() == SLICE_EVENTS;
        for (id, row) in page {
            last = id_text(id);
            match note(&mut findings, row)? {
                Some(Some(row)) => record(&mut findings, id, &row)?,
                Some(None) => findings.add(format!("{id} is listed, but has no record")),
                None => {}
            }
        }
        if !more {
            break;
        }
    }
    let after = books(shared).await?;
    if before.counts == after.counts {
        totals(shared, &mut findings, &after).await?;
    }
    laws(&mut findings, &after);
    Ok(findings.finish())
}

fn record(findings: &mut Findings, id: EventId, row: &Row) -> Attempt<()> {
    type Around = (Vec<String>, String, i64, u8, Vec<String>);
    let (holders, indexes, leases, body, lines): Around = redis::from_redis_value(Value::Array(row.around.clone()))?;
    let record = &row.record;
    let own = id_text(id);
    if holders.iter().any(|holder| *holder != own) {
        findings.add(format!("a key of {id} is not claimed for it"));
    }
    for problem in lines {
        findings.add(format!("{id} {problem}"));
    }
    let (mut open, mut dead, mut leased) = (0, 0, 0);
    for work in &record.work {
        match (work.state, &work.held) {
            (State::Dead, _) => dead += 1,
            // It goes where the other sink goes.
            (_, Some(Held::Sink(_))) => {}
            (_, Some(Held::Entity)) => open += 1,
            (state, None) => {
                open += 1;
                leased += i64::from(state == State::Leased);
                *findings.seen.queues.entry(work.sink.to_string()).or_default() += 1;
            }
        }
    }
    findings.seen.leased += i64::from(leased > 0);
    let (fits, place, column) = match record.state {
        State::Ready | State::Leased => (open > 0 && record.settled.is_none(), "open", 0),
        State::Done => (record.work.is_empty() && record.settled.is_some() && record.outcome.is_some(), "done", 1),
        State::Dead => (open == 0 && record.settled.is_some() && record.cause.is_some(), "dead died", 2),
    };
    if !fits {
        findings.add(format!("the state of {id} does not fit its work ({open} open, {dead} dead)"));
    }
    if indexes != place {
        findings.add(format!("{id} is {}, but is found among {indexes:?}", record.state));
    }
    if leases != i64::from(leased > 0) {
        findings.add(format!("{id} has {leased} leases, which is not what is noted"));
    }
    if (body == 1) != row.has_body || (record.state != State::Done && body == 0) {
        findings.add(format!("the payload of {id} is not there, or there without its event"));
    }
    let counts = findings.seen.sources.entry(record.source.to_string()).or_default();
    counts[column] += 1;
    counts[3] += i64::try_from(holders.len()).unwrap_or(i64::MAX);
    Ok(())
}

/// The sizes of indexes and queues, and the counters that can be compared with records.
async fn totals(shared: &Shared, findings: &mut Findings, books: &Books) -> Attempt<()> {
    let mut wanted: Vec<(String, i64)> =
        findings.seen.queues.iter().map(|(sink, &count)| (format!("due:{sink}"), count)).collect();
    let total = |column: usize| findings.seen.sources.values().map(|counts| counts[column]).sum::<i64>();
    wanted.extend(
        [("open", total(0)), ("done", total(1)), ("dead", total(2)), ("died", total(2))]
            .map(|(name, count)| (name.to_owned(), count)),
    );
    for (name, count) in wanted {
        let found: i64 = plain(shared, redis::cmd("ZCARD").arg(shared.caller.key(&name))).await?;
        if found != count {
            findings.add(format!("{name} has {found} events, but there are {count}"));
        }
    }
    if i64::try_from(books.leased).ok() != Some(findings.seen.leased) {
        findings.add(format!("{} events are noted as leased, but {} are", books.leased, findings.seen.leased));
    }
    for (source, counts) in &books.counts {
        let records = findings.seen.sources.remove(source).unwrap_or_default();
        for (name, found) in ["waiting", "done", "dead", "keys"].into_iter().zip(records) {
            let count = counts.get(name).copied().unwrap_or(0);
            if count != found {
                findings.add(format!("{source}: {name} is {count}, but there are {found}"));
            }
        }
    }
    for source in std::mem::take(&mut findings.seen.sources).into_keys() {
        findings.add(format!("{source} has events, but no books"));
    }
    Ok(())
}

/// The law for each source.
fn laws(findings: &mut Findings, books: &Books) {
    for (source, counts) in &books.counts {
        for (name, _) in counts.iter().filter(|&(_, &value)| value < 0) {
            findings.add(format!("{source}: {name} is below zero"));
        }
        let difference = ledger(counts).difference();
        if difference != 0 {
            findings.add(format!("{source}: the books are off by {difference}"));
        }
        for name in ["refused", "dead"] {
            let of_code = |(of, &value): (&String, &i64)| of.strip_prefix(name)?.starts_with(':').then_some(value);
            let by_code: i64 = counts.iter().filter_map(of_code).sum();
            let count = counts.get(name).copied().unwrap_or(0);
            if by_code != count {
                findings.add(format!("{source}: {name} is {count}, but {by_code} by code"));
            }
        }
    }
}
