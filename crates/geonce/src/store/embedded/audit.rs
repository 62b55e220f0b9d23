//! Compares the store with itself: `SQLite`'s own check, records against work, payloads, claims and books.

use super::failure::{Attempt, Failure};
use super::place::Kept;
use super::read::counters;
use super::row::{DONE, EVENT_COLUMNS, EventRow, HELD, NEVER, OPEN, Task, bytes16, number};
use super::work::payload;
use crate::event::EventId;
use crate::store::books::{Records, compare};
use crate::store::findings::{DUE_MILLIS_MAX, Findings, PROBLEMS_MAX};
use rusqlite::{Connection, params};
use std::collections::HashMap;

/// Notes damage; other failures stop the audit.
fn note(findings: &mut Findings, result: Attempt<()>) -> Attempt<()> {
    match result {
        Err(Failure::Damaged(what)) => {
            findings.add(what);
            Ok(())
        }
        other => other,
    }
}

/// Looks at everything in one snapshot. Problems in words.
pub(super) fn audit(connection: &Connection) -> Attempt<Vec<String>> {
    let mut findings: Findings = Findings::default();
    structure(connection, &mut findings)?;
    if findings.is_empty() {
        let mut seen = HashMap::new();
        records(connection, &mut findings, &mut seen)?;
        work(connection, &mut findings)?;
        claims(connection, &mut findings)?;
        places(connection, &mut findings)?;
        books(connection, &mut findings, &seen)?;
    }
    Ok(findings.finish())
}

fn structure(connection: &Connection, findings: &mut Findings) -> Attempt<()> {
    let mut statement = connection.prepare(&format!("PRAGMA integrity_check({PROBLEMS_MAX})"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let line: String = row.get(0)?;
        if line != "ok" {
            findings.add(line);
        }
    }
    Ok(())
}

/// Counts of records by source: those of each state, and keys.
type Seen = HashMap<i64, Records>;

fn records(connection: &Connection, findings: &mut Findings, seen: &mut Seen) -> Attempt<()> {
    let mut statement = connection.prepare(&format!("SELECT {EVENT_COLUMNS} FROM event e ORDER BY e.id"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let checked = EventRow::read(row).and_then(|event| {
            let counts = seen.entry(event.source).or_default();
            counts[usize::try_from(event.standing.state).unwrap_or(0)] += 1;
            counts[3] += number(event.digests.len());
            record(connection, &event, findings)
        });
        note(findings, checked)?;
    }
    let strays: i64 = connection.query_row(
        "SELECT count(*) FROM body WHERE number NOT IN (SELECT body FROM event WHERE body IS NOT NULL)",
        [],
        |row| row.get(0),
    )?;
    if strays > 0 {
        findings.add(format!("{strays} payloads belong to no event"));
    }
    Ok(())
}

fn record(connection: &Connection, event: &EventRow, findings: &mut Findings) -> Attempt<()> {
    let id = event.id;
    payload(connection, event)?;
    let (mut open, mut dead, mut waiting, mut sinks) = (0, 0, Vec::new(), Vec::new());
    let mut statement = connection
        .prepare_cached("SELECT due, sink, attempts, lapses, cause, mark, after FROM work WHERE event = ?1")?;
    let mut rows = statement.query([id.to_bytes()])?;
    while let Some(row) = rows.next()? {
        let sink: i64 = row.get(1)?;
        Task::read(row, id, sink, 2)?;
        sinks.push(sink);
        if let Some(after) = row.get::<_, Option<i64>>(6)? {
            if row.get::<_, i64>(0)? != HELD {
                findings.add(format!("{id} waits for a sink and is not held"));
            }
            waiting.push(after);
            continue;
        }
        match row.get::<_, i64>(0)? {
            HELD => open += 1,
            NEVER => dead += 1,
            due if due > event.received.millis().saturating_add(DUE_MILLIS_MAX) => {
                open += 1;
                findings.add(format!("{id} is due in the far future"));
            }
            _ => open += 1,
        }
    }
    if waiting.iter().any(|after| !sinks.contains(after)) {
        findings.add(format!("{id} is held for a sink that is served"));
    }
    let fits = match event.standing.state {
        OPEN => open > 0 && event.settled().is_none(),
        DONE => sinks.is_empty() && event.settled().is_some() && event.outcome.is_some(),
        _ => open == 0 && event.settled().is_some() && event.cause.is_some(),
    };
    if !fits {
        findings.add(format!("the state of {id} does not fit its work ({open} open, {dead} dead)"));
    }
    if event.standing.state != DONE && event.standing.body.is_none() {
        findings.add(format!("{id} is not done, but its payload is gone"));
    }
    Ok(())
}

fn work(connection: &Connection, findings: &mut Findings) -> Attempt<()> {
    let strays: i64 = connection.query_row(
        "SELECT count(*) FROM work WHERE NOT EXISTS (SELECT 1 FROM event WHERE id = work.event) \
         OR NOT EXISTS (SELECT 1 FROM sink WHERE number = work.sink)",
        [],
        |row| row.get(0),
    )?;
    if strays > 0 {
        findings.add(format!("{strays} entries of the queue have no event or no sink"));
    }
    let free: i64 = connection.query_row(
        "SELECT count(*) FROM run WHERE NOT EXISTS (SELECT 1 FROM event WHERE id = run.event)",
        [],
        |row| row.get(0),
    )?;
    if free > 0 {
        findings.add(format!("{free} keys of runs belong to no event"));
    }
    // Whoever is held for others of its entity needs one that has its turn.
    let strays: i64 = connection.query_row(
        &format!(
            "SELECT count(*) FROM work w WHERE due = {HELD} AND after IS NULL AND NOT EXISTS \
             (SELECT 1 FROM work t WHERE t.sink = w.sink AND t.entity = w.entity AND t.due < {HELD})"
        ),
        [],
        |row| row.get(0),
    )?;
    if strays > 0 {
        findings.add(format!("{strays} entries of the queue are held, and nothing is there to wait for"));
    }
    Ok(())
}

/// Every key of every event must be claimed for it, where a gateway looks: what is in a complete segment is not looked for
/// in the log, though the log may not be trimmed yet.
fn claims(connection: &Connection, findings: &mut Findings) -> Attempt<()> {
    // A temporary index of the log would be a write: the log is short enough to be held.
    let mut log: HashMap<[u8; 16], [u8; 16]> = HashMap::new();
    let mut statement = connection.prepare(
        "SELECT key, event FROM claim \
         WHERE NOT EXISTS (SELECT 1 FROM segment WHERE ready = 1 AND last_seq >= claim.seq) ORDER BY seq",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        log.insert(row.get(0)?, row.get(1)?);
    }
    let mut statement = connection.prepare(&format!("SELECT {EVENT_COLUMNS} FROM event e"))?;
    let mut find = connection.prepare(
        "SELECT 1 FROM segment CROSS JOIN sealed ON sealed.segment = segment.number AND sealed.key = ?1 \
         WHERE segment.ready = 1 AND sealed.event = ?2",
    )?;
    let mut find_run = connection.prepare("SELECT 1 FROM run WHERE key = ?1 AND event = ?2")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let Ok(event) = EventRow::read(row) else {
            continue;
        };
        for fingerprint in &event.digests {
            let (key, id) = (fingerprint.key(), event.id.to_bytes());
            let is_claimed = log.get(&key) == Some(&id) || find.exists(params![key, id])?;
            if !is_claimed && !find_run.exists(params![key, id])? {
                findings.add(format!("a key of {} is not claimed for it", event.id));
            }
        }
    }
    Ok(())
}

fn places(connection: &Connection, findings: &mut Findings) -> Attempt<()> {
    let mut statement = connection.prepare("SELECT event, scope, cell, until, body, sum FROM place")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let read = bytes16(row, 0).and_then(|id| Kept::read(row, EventId::from_bytes(id), 1));
        note(findings, read.map(drop))?;
    }
    Ok(())
}

/// The law for each source, and the counters that can be compared with records.
fn books(connection: &Connection, findings: &mut Findings, seen: &Seen) -> Attempt<()> {
    let names = super::read::names(connection, "source")?;
    let records = seen.iter().filter_map(|(&number, &counts)| Some((names.name(number)?, counts))).collect();
    for problem in compare(counters(connection)?, &records) {
        findings.add(problem);
    }
    Ok(())
}
