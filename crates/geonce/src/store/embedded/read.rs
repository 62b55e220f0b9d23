//! Reading: lists, counts and times, each on a connection of its own that never blocks the writer.

use super::claims::{Key, find_on_disk};
use super::failure::{Attempt, damaged};
use super::group::find_event;
use super::row::{Bytes16, DEAD, DONE, EVENT_COLUMNS, EventRow, HELD, Kept, NEVER, Names, OPEN, Task, bytes16};
use super::schema::{Place, Purpose};
use super::select::matches;
use super::work::payload;
use crate::clock::Timestamp;
use crate::error::{Error, Kind, Result};
use crate::event::{EventId, State};
use crate::store::books::{self, Counter};
use crate::store::result::with_key;
use crate::store::{Filter, Held, ListRequest, Record, Status, Work};
use rusqlite::{Connection, OptionalExtension, params};
use std::sync::Arc;
use std::sync::LazyLock;
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};

/// The most events of one page, whatever is asked for.
const PAGE_EVENTS_MAX: usize = 10_000;
/// Questions that may wait for a reader.
const WAITING_MAX: usize = 256;

type Question = Box<dyn FnOnce(&Connection) + Send>;

/// A thread that answers questions.
pub(super) struct Reader {
    questions: Option<mpsc::Sender<Question>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// Starts it.
    pub(super) fn start(place: &Place) -> Attempt<Reader> {
        let connection = place.connect(Purpose::Read)?;
        let (sender, mut questions) = mpsc::channel::<Question>(WAITING_MAX);
        let thread = super::thread("store reader", move || {
            while let Some(question) = questions.blocking_recv() {
                // One that panics loses its own answer only.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| question(&connection)));
            }
        })?;
        Ok(Reader { questions: Some(sender), thread: Some(thread) })
    }

    /// Asks for something, in one snapshot.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        doing: &'static str,
        question: impl FnOnce(&Connection) -> Attempt<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let ask: Question = Box::new(move |connection| {
            let answered = in_snapshot(connection, question).map_err(|failure| failure.explain(doing));
            // Whoever asked may have gone.
            let _ = reply.send(answered);
        });
        let gone = || Error::new(Kind::Unavailable, format!("{doing}: the store is closed"));
        self.questions.as_ref().ok_or_else(gone)?.send(ask).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Ends the thread.
    pub(super) fn stop(&mut self) {
        self.questions = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Asks within one read transaction, so that all of it is of one moment.
pub(super) fn in_snapshot<T>(connection: &Connection, question: impl FnOnce(&Connection) -> Attempt<T>) -> Attempt<T> {
    let transaction = connection.unchecked_transaction()?;
    question(&transaction)
}

/// All names of a table.
pub(super) fn names(connection: &Connection, table: &str) -> Attempt<Names> {
    let mut names = Names::default();
    let mut statement = connection.prepare_cached(&format!("SELECT number, name FROM {table}"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        names.add(row.get(0)?, row.get(1)?);
    }
    Ok(names)
}

static LIST_ALL: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {EVENT_COLUMNS} FROM event e WHERE e.id < ?1 ORDER BY e.id DESC"));
static LIST_DEAD: LazyLock<String> = LazyLock::new(|| {
    format!("SELECT {EVENT_COLUMNS} FROM event e INDEXED BY dead WHERE e.state = 2 AND e.id < ?1 ORDER BY e.id DESC")
});
static LIST_OPEN: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {EVENT_COLUMNS} FROM work w CROSS JOIN event e ON e.id = w.event WHERE w.event < ?1 AND e.state = 0 \
         ORDER BY w.event DESC"
    )
});

/// A page of events, latest first.
pub(super) fn list(connection: &Connection, request: &ListRequest) -> Attempt<Vec<Record>> {
    let names = [names(connection, "source")?, names(connection, "sink")?, names(connection, "result")?];
    let limit = request.limit.min(PAGE_EVENTS_MAX);
    // Ids are less than this one: 48 bits of time are not all set before the year 10889.
    let before = request.before.map_or([0xFF; 16], EventId::to_bytes);
    let mut records = Vec::new();
    let mut take = |event: EventRow| -> Attempt<bool> {
        if records.len() < limit
            && let Some(record) = record(connection, &names, &request.filter, event, request.payloads)?
        {
            records.push(record);
        }
        Ok(records.len() < limit)
    };
    if let Some(ids) = named(connection, &request.filter)? {
        for id in ids.into_iter().filter(|&id| id < before) {
            if let Some(event) = find_event(connection, EventId::from_bytes(id))? {
                take(event)?;
            }
        }
        return Ok(records);
    }
    let query = match request.filter.state {
        Some(State::Dead) => &LIST_DEAD,
        Some(State::Ready | State::Leased) => &LIST_OPEN,
        None if request.filter.code.is_some() => &LIST_DEAD,
        _ => &LIST_ALL,
    };
    let mut statement = connection.prepare_cached(query)?;
    let mut rows = statement.query([before])?;
    let mut last = None;
    while let Some(row) = rows.next()? {
        let event = EventRow::read(row)?;
        // An event with work at several sinks comes several times in a row.
        if last.replace(event.id) != Some(event.id) && !take(event)? {
            break;
        }
    }
    Ok(records)
}

/// The events that a filter names by id or key, latest first.
fn named(connection: &Connection, filter: &Filter) -> Attempt<Option<Vec<Bytes16>>> {
    let mut ids = match (filter.id, filter.key) {
        (Some(id), _) => vec![id.to_bytes()],
        (None, Some(key)) => find_on_disk(connection, Key(key))?,
        (None, None) => return Ok(None),
    };
    ids.sort_unstable_by(|a, b| b.cmp(a));
    Ok(Some(ids))
}

/// The record of an event, if it is one that the filter means.
fn record(
    connection: &Connection,
    [sources, sinks, results]: &[Names; 3],
    filter: &Filter,
    event: EventRow,
    payloads: bool,
) -> Attempt<Option<Record>> {
    let unnamed = |number: i64| damaged(format!("source or sink {number} has no name"));
    let source = sources.name(event.source).ok_or_else(|| unnamed(event.source))?;
    if !matches(filter, &event, &source) {
        return Ok(None);
    }
    let mut work = Vec::new();
    let mut statement = connection.prepare_cached(
        "SELECT sink, due, token, attempts, lapses, cause, mark, after, holder FROM work WHERE event = ?1 ORDER BY sink",
    )?;
    let mut rows = statement.query([event.id.to_bytes()])?;
    while let Some(row) = rows.next()? {
        let (sink, due) = (row.get(0)?, row.get(1)?);
        let state = match (due, row.get::<_, Option<i64>>(2)?) {
            (NEVER, _) => State::Dead,
            (_, Some(_)) => State::Leased,
            (_, None) => State::Ready,
        };
        let held = match (due, row.get::<_, Option<i64>>(7)?) {
            (HELD, Some(after)) => Some(Held::Sink(sinks.name(after).ok_or_else(|| unnamed(after))?)),
            (HELD, None) => Some(Held::Entity),
            _ => None,
        };
        let task = Task::read(row, event.id, sink, 3)?;
        work.push(Work {
            sink: sinks.name(sink).ok_or_else(|| unnamed(sink))?,
            state,
            due: if due >= HELD { Timestamp::MAX } else { Timestamp::from_millis(due) },
            held,
            attempts: task.attempts,
            lapses: task.lapses,
            cause: task.cause()?,
            holder: row.get::<_, Option<String>>(8)?.map(Arc::from),
        });
    }
    let state = match event.standing.state {
        OPEN if work.iter().any(|work| work.state == State::Leased) => State::Leased,
        OPEN => State::Ready,
        DONE => State::Done,
        _ => State::Dead,
    };
    if filter.state.is_some_and(|wanted| wanted != state) {
        return Ok(None);
    }
    let payload = if payloads { payload(connection, &event)? } else { None };
    let settled = event.settled();
    let result = match &event.standing.result {
        Some(_) if event.standing.state != DONE => None,
        None => None,
        Some(Kept::Own(text)) => Some(text.as_str().into()),
        Some(Kept::Common(number)) => {
            let text = results.name(*number).ok_or_else(|| damaged(format!("result {number} is not there")))?;
            Some(with_key(&text, &event.digests[0]))
        }
    };
    let last_cause = || work.iter().find_map(|work| work.cause.clone());
    Ok(Some(Record {
        id: event.id,
        source,
        key: event.digests[0],
        aliases: event.digests[1..].to_vec(),
        spatial: event.spatial,
        content: event.content,
        origin: event.origin,
        state,
        outcome: event.outcome.filter(|_| event.standing.state == DONE),
        result,
        cause: if event.standing.state == DEAD { event.cause } else { last_cause() },
        received: event.received,
        settled,
        duplicates: event.standing.duplicates.cast_unsigned(),
        work,
        form: event.form,
        crs: event.crs,
        payload,
    }))
}

/// When work for a sink is next due.
pub(super) fn next_due(connection: &Connection, sink: &str) -> Attempt<Option<Timestamp>> {
    let mut statement = connection.prepare_cached(
        "SELECT due FROM work INDEXED BY queue WHERE sink = (SELECT number FROM sink WHERE name = ?1) AND due < ?2 \
         ORDER BY due LIMIT 1",
    )?;
    let due: Option<i64> = statement.query_row(params![sink, HELD], |row| row.get(0)).optional()?;
    Ok(due.map(Timestamp::from_millis))
}

/// The counters, by source and name.
pub(super) fn counters(connection: &Connection) -> Attempt<Vec<Counter>> {
    let mut statement = connection.prepare_cached(
        "SELECT source.name, counter.name, counter.value FROM counter JOIN source ON source.number = counter.source",
    )?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push((row.get(0)?, row.get(1)?, row.get(2)?));
    }
    Ok(found)
}

/// The books and the state of the store.
pub(super) fn status(connection: &Connection, place: &Place) -> Attempt<Status> {
    let leased: i64 = connection
        .prepare_cached("SELECT count(DISTINCT event) FROM work INDEXED BY leased WHERE token IS NOT NULL")?
        .query_row([], |row| row.get(0))?;
    let mut status = books::status(counters(connection)?, u64::try_from(leased).unwrap_or(0)).map_err(damaged)?;
    let waiting: u64 = status.ledgers.values().map(|ledger| ledger.waiting).sum();
    status.oldest_waiting = if waiting > 0 { oldest_waiting(connection)? } else { None };
    let size = |file| std::fs::metadata(file).map_or(0, |metadata| metadata.len());
    let log_bytes = size(place.log());
    status.bytes = size(place.file.clone()) + log_bytes;
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let free_bytes = pragma("freelist_count")?.saturating_mul(pragma("page_size")?);
    // The log is only ever passed through.
    status.bytes_free = u64::try_from(free_bytes).unwrap_or(0) + log_bytes;
    Ok(status)
}

fn oldest_waiting(connection: &Connection) -> Attempt<Option<Timestamp>> {
    let mut statement =
        connection.prepare_cached("SELECT event FROM work WHERE due < ?1 AND after IS NULL ORDER BY event LIMIT 1")?;
    let mut rows = statement.query([NEVER])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let id = EventId::from_bytes(bytes16(row, 0)?);
    let received: Option<i64> = connection
        .prepare_cached("SELECT received FROM event WHERE id = ?1")?
        .query_row([id.to_bytes()], |row| row.get(0))
        .optional()?;
    Ok(received.map(Timestamp::from_millis))
}
