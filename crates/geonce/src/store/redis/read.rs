//! Reading: lists, counts and times.

use super::call::{DUE, READ, STATUS};
use super::row::{Row, damaged, id_text, matches, read_number, read_row};
use super::{Shared, schema};
use crate::clock::Timestamp;
use crate::event::{EventId, State};
use crate::redis::{Attempt, Trouble};
use crate::store::{Filter, Ledger, ListRequest, Record, Status};
use bytes::Bytes;
use redis::{Cmd, Value};
use std::collections::BTreeMap;

/// The most events of one page, whatever is asked for.
const PAGE_EVENTS_MAX: usize = 10_000;
/// Records that one script reads.
pub(super) const SLICE_EVENTS: usize = 128;

/// Payloads that are fetched at a time.
const SLICE_PAYLOADS: usize = 16;

/// Which records a script reads.
pub(super) enum Which<'a> {
    Ids(&'a [String]),
    /// Of an index, those before an id, the latest first; all for an empty one.
    Before(&'a str, &'a str),
    /// Of an index, those after an id, the earliest first.
    After(&'a str, &'a str),
}

/// Reads records: the id of each, and what could be read of it.
pub(super) async fn rows(
    shared: &Shared,
    which: Which<'_>,
    audit: bool,
) -> Attempt<Vec<(EventId, Attempt<Option<Row>>)>> {
    let fill = |command: &mut Cmd| {
        match which {
            Which::Ids(ids) => command.arg("ids").arg(ids),
            Which::Before(index, id) => command.arg("before").arg(index).arg(id).arg(SLICE_EVENTS),
            Which::After(index, id) => command.arg("after").arg(index).arg(id).arg(SLICE_EVENTS),
        };
        if audit {
            command.arg("audit");
        }
    };
    let answer: Vec<Value> = redis::from_redis_value(shared.caller.ask(&READ, Timestamp::default(), &fill).await?)?;
    answer.into_iter().map(read_row).collect()
}

/// The events that a filter names by id or key, latest first.
pub(super) async fn named(shared: &Shared, filter: &Filter) -> Attempt<Option<Vec<String>>> {
    if let Some(id) = filter.id {
        return Ok(Some(vec![id_text(id)]));
    }
    let Some(key) = filter.key else { return Ok(None) };
    let mut claim = shared.caller.key("key:").into_bytes();
    claim.extend_from_slice(&key);
    let holder: Option<String> = plain(shared, redis::cmd("GET").arg(claim)).await?;
    Ok(Some(holder.into_iter().collect()))
}

/// Runs a single command, and once more if the connection was lost.
pub(super) async fn plain<T: redis::FromRedisValue>(shared: &Shared, command: &Cmd) -> Attempt<T> {
    let mut tries = crate::redis::Tries::new();
    loop {
        let connections = &shared.caller.connections;
        let trouble = match connections.get().await {
            Ok(mut connection) => match command.query_async(&mut connection.link).await.map_err(Trouble::from) {
                Ok(answer) => return Ok(answer),
                Err(trouble) => {
                    if trouble.wants_another_connection() {
                        connections.lost(&connection).await;
                    }
                    trouble
                }
            },
            Err(trouble) => trouble,
        };
        tries.again(trouble).await?;
    }
}

/// A page of events, latest first.
pub(super) async fn list(shared: &Shared, request: &ListRequest) -> Attempt<Vec<Record>> {
    let limit = request.limit.min(PAGE_EVENTS_MAX);
    let mut records = Vec::new();
    let mut take = |row: Row| {
        if records.len() < limit && matches(&request.filter, &row.record) {
            records.push(row);
        }
        records.len() < limit
    };
    let mut before = request.before.map(id_text).unwrap_or_default();
    if let Some(ids) = named(shared, &request.filter).await? {
        let ids: Vec<String> = ids.into_iter().filter(|id| before.is_empty() || *id < before).collect();
        for (_, row) in rows(shared, Which::Ids(&ids), false).await? {
            if let Some(row) = row? {
                take(row);
            }
        }
    } else {
        let index = match request.filter.state {
            Some(State::Dead) => "dead",
            Some(State::Ready | State::Leased) => "open",
            None if request.filter.code.is_some() => "dead",
            _ => "all",
        };
        let mut more = limit > 0;
        while more {
            let page = rows(shared, Which::Before(index, &before), false).await?;
            more = page.len() == SLICE_EVENTS;
            for (id, row) in page {
                before = id_text(id);
                if let Some(row) = row? {
                    more &= take(row);
                }
            }
        }
    }
    if request.payloads {
        for slice in records.chunks_mut(SLICE_PAYLOADS) {
            payloads(shared, slice).await?;
        }
    }
    Ok(records.into_iter().map(|row| row.record).collect())
}

/// Adds the payloads of records. An event may have been forgotten a moment ago.
async fn payloads(shared: &Shared, rows: &mut [Row]) -> Attempt<()> {
    let mut command = redis::cmd("MGET");
    for row in &*rows {
        command.arg(shared.caller.key(&format!("body:{}", id_text(row.record.id))));
    }
    let found: Vec<Option<Vec<u8>>> = plain(shared, &command).await?;
    for (row, payload) in rows.iter_mut().zip(found) {
        row.record.payload = payload.filter(|_| row.has_body).map(Bytes::from);
    }
    Ok(())
}

/// When work for a sink is next due.
pub(super) async fn next_due(shared: &Shared, sink: &str) -> Attempt<Option<Timestamp>> {
    let now = shared.caller.now(Timestamp::default());
    let fill = |command: &mut Cmd| {
        command.arg(sink);
    };
    let due: Option<String> = redis::from_redis_value(shared.caller.ask(&DUE, now, &fill).await?)?;
    due.map(|due| read_number(&due, "when work is due").map(Timestamp::from_millis)).transpose()
}

/// The counts of each source.
pub(super) struct Books {
    pub(super) leased: u64,
    pub(super) oldest_waiting: Option<Timestamp>,
    pub(super) counts: BTreeMap<String, BTreeMap<String, i64>>,
}

pub(super) async fn books(shared: &Shared) -> Attempt<Books> {
    let answer: Vec<Value> = redis::from_redis_value(shared.caller.ask(&STATUS, Timestamp::default(), &|_| ()).await?)?;
    let mut answer = answer.into_iter();
    let missing = || damaged("books without a beginning");
    let leased: u64 = redis::from_redis_value(answer.next().ok_or_else(missing)?)?;
    let oldest: String = redis::from_redis_value(answer.next().ok_or_else(missing)?)?;
    let oldest_waiting =
        if oldest.is_empty() { None } else { Some(Timestamp::from_millis(read_number(&oldest, "a time")?)) };
    let mut counts = BTreeMap::new();
    for source in answer {
        let (name, flat): (String, Vec<String>) = redis::from_redis_value(source)?;
        let mut numbers = BTreeMap::new();
        for pair in flat.chunks_exact(2) {
            numbers.insert(pair[0].clone(), read_number(&pair[1], "a counter")?);
        }
        counts.insert(name, numbers);
    }
    Ok(Books { leased, oldest_waiting, counts })
}

/// The books of one source.
pub(super) fn ledger(counts: &BTreeMap<String, i64>) -> Ledger {
    let count = |name: &str| counts.get(name).map_or(0, |&value| u64::try_from(value).unwrap_or(0));
    Ledger {
        received: count("received"),
        refused: count("refused"),
        duplicate: count("duplicate"),
        applied: count("applied"),
        stale: count("stale"),
        near: count("near"),
        repaired: count("repaired"),
        dead: count("dead"),
        purged: count("purged"),
        waiting: count("waiting"),
        conflict: count("conflict"),
        drift: count("drift"),
        collision: count("collision"),
        revived: count("revived"),
    }
}

/// The books and the state of the store.
pub(super) async fn status(shared: &Shared) -> Attempt<Status> {
    let books = books(shared).await?;
    let mut status = Status { oldest_waiting: books.oldest_waiting, ..Status::default() };
    let (mut done, mut waiting, mut dead) = (0, 0, 0);
    for (source, counts) in &books.counts {
        for (name, &value) in counts {
            let value = u64::try_from(value).map_err(|_| damaged(format!("{source}: {name} is below zero")))?;
            match name.split_once(':') {
                Some(("refused", code)) => drop(status.invalid.insert((source.clone(), code.to_owned()), value)),
                Some(("dead", code)) if value > 0 => drop(status.dead.insert((source.clone(), code.to_owned()), value)),
                _ => {
                    status.note(source, name, value);
                }
            }
            match name.as_str() {
                "done" => done += value,
                "keys" => status.keys += value,
                _ => {}
            }
        }
        let ledger = ledger(counts);
        waiting += ledger.waiting;
        dead += ledger.dead;
        status.ledgers.insert(source.clone(), ledger);
    }
    status.states = BTreeMap::from([
        (State::Ready, waiting.saturating_sub(books.leased)),
        (State::Leased, books.leased),
        (State::Done, done),
        (State::Dead, dead),
    ]);
    status.bytes = bytes(shared).await?;
    let mut connection = shared.caller.connections.get().await?;
    status.risks = schema::risks(&mut connection.link).await?.into_iter().map(|(why, _)| why).collect();
    Ok(status)
}

/// The size of the server's log on disk; where it has none, of its memory. Others may use the server too.
async fn bytes(shared: &Shared) -> Attempt<u64> {
    let info: String = match plain(shared, redis::cmd("INFO").arg("everything")).await {
        Err(trouble) if trouble.is_forbidden() => return Ok(0),
        info => info?,
    };
    let number = |name: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        value.trim().parse::<u64>().ok()
    };
    Ok(number("aof_current_size").filter(|&size| size > 0).or_else(|| number("used_memory")).unwrap_or(0))
}
