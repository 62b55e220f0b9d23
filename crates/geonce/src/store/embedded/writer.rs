//! The one thread that writes: it takes what waits, runs it in one transaction, commits once, then answers.
//!
//! Nobody is answered before the commit. If it fails, everybody in the group gets the error, and connection and claims
//! are made anew from the file: after a failed sync nothing is known about what it holds.

use super::Tuning;
use super::checkpoint::Checkpointer;
use super::claims::{Claims, Wake};
use super::failure::{Attempt, Failure};
use super::group::{Effects, Group, Known};
use super::schema::{Place, Purpose};
use crate::error::{Error, Kind, Result};
use crate::store::Options;
use crate::store::books::Uncounted;
use rusqlite::Connection;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Notify, mpsc, oneshot};

/// Requests that may wait for the writer.
pub(super) const WAITING_MAX: usize = 4_096;
/// A group takes no further request once it has so many events,
const GROUP_EVENTS_MAX: usize = 2_048;
/// or so many bytes.
const GROUP_BYTES_MAX: usize = 8 << 20;

/// Counts that are not written yet.
pub(super) type Waiting = Arc<Mutex<Uncounted>>;

/// What the writer is sent.
pub(super) enum Message {
    /// Something to do in a transaction.
    Run(Box<dyn Run>),
    /// There may be something to do that needs no request: counts, upkeep.
    Wake,
    /// Finish, tidy up and end.
    Close(oneshot::Sender<Result<()>>),
}

/// A request.
pub(super) trait Run: Send {
    /// How many events and bytes it brings.
    fn weight(&self) -> (usize, usize);
    /// Does it, or a slice of it, in a transaction. It may be run again if that transaction fails.
    fn run(&mut self, group: &mut Group<'_>) -> Attempt<()>;
    /// The transaction is committed: answers, or gives back what is to be run once more.
    fn committed(self: Box<Self>) -> Option<Box<dyn Run>>;
    /// Answers with a failure.
    fn failed(self: Box<Self>, failure: &Error);
    /// What it does, for error messages.
    fn doing(&self) -> &'static str;
}

/// What a run made of a request: an answer, or a state to go on from in the next transaction.
pub(super) enum Slice<S, T> {
    More(S),
    Answer(T),
}

/// A request made of a function.
pub(super) struct Request<S, T, F> {
    pub(super) doing: &'static str,
    pub(super) weight: (usize, usize),
    pub(super) state: S,
    pub(super) step: F,
    pub(super) result: Option<Slice<S, T>>,
    pub(super) reply: oneshot::Sender<Result<T>>,
}

impl<S, T, F> Run for Request<S, T, F>
where
    S: Clone + Send + 'static,
    T: Send + 'static,
    F: FnMut(&mut Group<'_>, S) -> Attempt<Slice<S, T>> + Send + 'static,
{
    fn weight(&self) -> (usize, usize) {
        self.weight
    }

    fn run(&mut self, group: &mut Group<'_>) -> Attempt<()> {
        self.result = Some((self.step)(group, self.state.clone())?);
        Ok(())
    }

    fn committed(mut self: Box<Self>) -> Option<Box<dyn Run>> {
        match self.result.take()? {
            Slice::More(state) => {
                self.state = state;
                Some(self)
            }
            Slice::Answer(answer) => {
                // Whoever asked may have gone.
                let _ = self.reply.send(Ok(answer));
                None
            }
        }
    }

    fn failed(self: Box<Self>, failure: &Error) {
        let _ = self.reply.send(Err(failure.duplicate()));
    }

    fn doing(&self) -> &'static str {
        self.doing
    }
}

/// The writer's own.
pub(super) struct Writer {
    pub(super) place: Place,
    pub(super) options: Options,
    pub(super) connection: Option<Connection>,
    /// A tool has none.
    pub(super) claims: Option<Claims>,
    pub(super) tuning: Tuning,
    pub(super) known: Known,
    pub(super) uncounted: Waiting,
    pub(super) changed: Arc<Notify>,
    pub(super) checkpointer: Option<Checkpointer>,
    pub(super) wake: Wake,
    /// Whether upkeep failed: it is not tried again before something was committed.
    pub(super) paused: bool,
    /// The latest time that a request gave.
    pub(super) now: i64,
    /// Held as long as the gateway runs.
    pub(super) lock: Option<File>,
}

enum Next {
    Group(Vec<Box<dyn Run>>, Option<oneshot::Sender<Result<()>>>),
    Stop,
}

impl Writer {
    /// Runs until it is closed or nobody can send any more.
    pub(super) fn run(mut self, mut messages: mpsc::Receiver<Message>) {
        let mut carried = Vec::new();
        let close = loop {
            match self.next(&mut messages, std::mem::take(&mut carried)) {
                Next::Group(group, close) => {
                    carried = self.commit(group);
                    self.restart_log();
                    if close.is_some() {
                        break close;
                    }
                }
                Next::Stop => break None,
            }
        };
        messages.close();
        let closed = Error::new(Kind::Unavailable, "the store is closed");
        for request in carried {
            request.failed(&closed);
        }
        while let Ok(message) = messages.try_recv() {
            match message {
                Message::Run(request) => request.failed(&closed),
                Message::Wake => {}
                Message::Close(reply) => drop(reply.send(Ok(()))),
            }
        }
        let tidied = self.tidy();
        if let Some(reply) = close {
            let _ = reply.send(tidied);
        }
    }

    /// Waits for the first request, then takes what else is there.
    fn next(&self, messages: &mut mpsc::Receiver<Message>, mut group: Vec<Box<dyn Run>>) -> Next {
        let upkeep = !self.paused && self.claims.as_ref().is_some_and(Claims::has_upkeep);
        let busy = upkeep || !group.is_empty();
        let (mut events, mut bytes) = (0, 0);
        let mut first = !busy;
        while events < GROUP_EVENTS_MAX && bytes < GROUP_BYTES_MAX {
            let message = if first {
                match messages.blocking_recv() {
                    Some(message) => message,
                    None => return Next::Stop,
                }
            } else {
                match messages.try_recv() {
                    Ok(message) => message,
                    Err(mpsc::error::TryRecvError::Disconnected) if group.is_empty() => return Next::Stop,
                    Err(_) => break,
                }
            };
            first = false;
            match message {
                Message::Run(request) => {
                    let (more_events, more_bytes) = request.weight();
                    events += more_events;
                    bytes += more_bytes;
                    group.push(request);
                }
                Message::Wake => {}
                Message::Close(reply) => return Next::Group(group, Some(reply)),
            }
        }
        Next::Group(group, None)
    }

    /// Commits a group and answers it; what is to be run once more is given back.
    fn commit(&mut self, mut group: Vec<Box<dyn Run>>) -> Vec<Box<dyn Run>> {
        match self.attempt(&mut group) {
            Ok(()) => {
                self.paused = false;
                group.into_iter().filter_map(Run::committed).collect()
            }
            // Only one of them may be at fault: each on its own then.
            Err(failure) if group.len() > 1 && !failure.concerns_all() => group
                .into_iter()
                .filter_map(|mut request| match self.attempt(std::slice::from_mut(&mut request)) {
                    Ok(()) => request.committed(),
                    Err(failure) => {
                        let doing = request.doing();
                        request.failed(&failure.explain(doing));
                        None
                    }
                })
                .collect(),
            Err(failure) => {
                self.paused = true;
                let doing = group.first().map_or("looking after the store", |request| request.doing());
                let failure = failure.explain(doing);
                tracing::error!(error = %failure, requests = group.len(), "the store did not commit");
                for request in group {
                    request.failed(&failure);
                }
                Vec::new()
            }
        }
    }

    /// Runs a group in one transaction. After an error nothing of it has happened, as far as anybody can tell.
    fn attempt(&mut self, group: &mut [Box<dyn Run>]) -> Attempt<()> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.reopen()?,
        };
        let uncounted = self.uncounted.lock().unwrap_or_else(PoisonError::into_inner).take();
        let idle = group.is_empty();
        let ran = catch_unwind(AssertUnwindSafe(|| {
            connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            let mut transaction =
                Group::new(&connection, &self.options, self.claims.as_ref(), self.known.clone(), self.now);
            for request in group.iter_mut() {
                request.run(&mut transaction)?;
            }
            transaction.write_counts(&uncounted)?;
            let mut effects = transaction.into_effects();
            if let Some(claims) = &mut self.claims {
                let fresh = effects.claimed.len();
                effects.step = claims.upkeep(&connection, fresh, idle, effects.next_seq, effects.now, &self.wake)?;
            }
            Ok::<Effects, Failure>(effects)
        }));
        match ran {
            Ok(Ok(effects)) => {
                if let Err(failure) = commit_transaction(&connection) {
                    // Neither the file nor this connection can be trusted to be where they were.
                    drop(connection);
                    self.put_back(uncounted);
                    return Err(failure);
                }
                self.connection = Some(connection);
                self.take_over(effects);
                Ok(())
            }
            Ok(Err(failure)) => {
                self.put_back(uncounted);
                if roll_back(&connection) {
                    self.connection = Some(connection);
                }
                Err(failure)
            }
            Err(_) => {
                drop(connection);
                self.put_back(uncounted);
                Err(Error::new(Kind::Internal, "the store's writer panicked; the event was not recorded").into())
            }
        }
    }

    fn take_over(&mut self, effects: Effects) {
        self.known = effects.known;
        self.now = effects.now;
        if let Some(claims) = &mut self.claims {
            claims.add(effects.claimed, effects.next_seq);
            if let Some(number) = effects.dropped {
                claims.dropped(number);
            }
            if let Some(step) = effects.step {
                claims.apply(step, &self.wake);
            }
        }
        if effects.changed {
            self.changed.notify_waiters();
        }
        if let Some(checkpointer) = &self.checkpointer {
            checkpointer.committed();
        }
    }

    fn put_back(&self, uncounted: Uncounted) {
        self.uncounted.lock().unwrap_or_else(PoisonError::into_inner).put_back(uncounted);
    }

    /// A new connection, and what memory held of the file anew.
    fn reopen(&mut self) -> Attempt<Connection> {
        let connection = self.place.connect(Purpose::Write)?;
        if self.claims.is_some() {
            self.claims = Some(Claims::load(&connection, self.tuning, &self.wake)?);
        }
        self.known = Known::default();
        Ok(connection)
    }

    /// Lets the log start again from its beginning, where the checkpointer asks for it.
    fn restart_log(&mut self) {
        if let (Some(checkpointer), Some(connection)) = (&self.checkpointer, &self.connection) {
            checkpointer.restart_log(connection);
        }
    }

    /// Leaves one file behind, if nobody else has it open.
    fn tidy(mut self) -> Result<()> {
        self.checkpointer = None;
        if let Some(connection) = self.connection.take() {
            connection
                .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
                .map_err(|error| Failure::from(error).explain("closing the store"))?;
            connection.close().map_err(|(_, error)| Failure::from(error).explain("closing the store"))?;
        }
        drop(self.lock.take());
        Ok(())
    }
}

fn commit_transaction(connection: &Connection) -> Attempt<()> {
    connection.prepare_cached("COMMIT")?.execute([])?;
    Ok(())
}

/// Rolls back; `false` if the connection is of no more use.
fn roll_back(connection: &Connection) -> bool {
    connection.is_autocommit() || connection.execute_batch("ROLLBACK").is_ok()
}
