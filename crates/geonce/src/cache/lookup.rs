//! Asking Redis: what waits is asked for together, one round at a time in each lane, within a budget.
//!
//! A lane is a slot of a Cluster, or all there is. Nobody who asks ever connects or waits for a connection: that is done
//! beside it, by [`keep`], which also finds out when a server that did not answer is back.

use super::Shared;
use super::entry::{Digest, Entry, Names};
use crate::clock::Stopwatch;
use crate::event::random;
use crate::redis::{Attempt, Connection, Connections, Trouble};
use crate::retry::{Breaker, Passage, Retry};
use redis::Value;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};

/// Questions that may wait in a lane.
const WAITING_MAX: usize = 4_096;
/// Keys that one round asks for.
const ROUND_KEYS_MAX: usize = 512;
/// How long a server that was given up may take to answer when it is asked whether it is back.
const PROBE_MAX: Duration = Duration::from_millis(250);
/// A server that takes so many times its budget to answer is not back.
const PROBE_BUDGETS: u32 = 4;
/// How often a lane without trouble is looked after.
const KEEP_EVERY: Duration = Duration::from_secs(1);
/// Waits between two looks at a server that does not answer.
const PROBING: Retry = Retry {
    base: Duration::from_millis(100),
    cap: Duration::from_secs(1),
    attempts: u32::MAX,
    give_up_after: Duration::MAX,
};

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missed {
    Timeout,
    Unavailable,
    Breaker,
    Overload,
}

/// What was found for each key that was asked for.
type Found = Result<Vec<Option<Entry>>, Missed>;

/// Keys that somebody wants to know about.
pub(super) struct Question {
    digests: Vec<Digest>,
    reply: oneshot::Sender<Found>,
}

/// A way to the server of some of the keys.
pub(super) struct Lane {
    pub(super) connections: Connections,
    questions: mpsc::Sender<Question>,
    breaker: Mutex<Breaker>,
    /// Whether the breaker is open, to be read without waiting.
    open: AtomicBool,
    trouble: Notify,
}

impl Lane {
    pub(super) fn new(connections: Connections) -> (Lane, mpsc::Receiver<Question>) {
        let (questions, asked) = mpsc::channel(WAITING_MAX);
        let lane = Lane {
            connections,
            questions,
            breaker: Mutex::default(),
            open: AtomicBool::new(false),
            trouble: Notify::new(),
        };
        (lane, asked)
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Asks for keys; the answer comes when it comes.
    pub(super) fn ask(&self, digests: Vec<Digest>) -> Result<oneshot::Receiver<Found>, Missed> {
        if self.is_open() {
            return Err(Missed::Breaker);
        }
        let (reply, answer) = oneshot::channel();
        let sent = self.questions.try_send(Question { digests, reply });
        sent.map(|()| answer).map_err(|_| Missed::Overload)
    }

    /// The connection, if there is one and the server is not given up.
    pub(super) fn connection(&self) -> Option<Connection> {
        if self.is_open() {
            return None;
        }
        let connection = self.connections.at_hand();
        if connection.is_none() {
            self.trouble.notify_one();
        }
        connection
    }

    pub(super) fn answered(&self) {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner).answered();
        if self.open.swap(false, Ordering::Relaxed) {
            tracing::info!("the cache answers again");
        }
    }

    pub(super) fn failed(&self, shared: &Shared, why: &str) {
        let mut breaker = self.breaker.lock().unwrap_or_else(PoisonError::into_inner);
        let seed = u64::try_from(random() >> 64).unwrap_or(0);
        breaker.failed(&PROBING, seed, shared.clock.now());
        let open = breaker.is_open();
        drop(breaker);
        if open && !self.open.swap(true, Ordering::Relaxed) {
            shared.counters.breaker_opened.add(1);
            tracing::warn!(why, "the cache does not answer; the store is asked instead");
        }
        self.trouble.notify_one();
    }

    /// Lets go of a connection that cannot be used.
    pub(super) async fn lost(&self, connection: &Connection, trouble: &Trouble) {
        if trouble.wants_another_connection() {
            self.connections.lost(connection).await;
            self.trouble.notify_one();
        }
    }

    fn passage(&self, shared: &Shared) -> Passage {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner).passage(shared.clock.now())
    }
}

/// Answers the questions of a lane.
pub(super) async fn serve(shared: Arc<Shared>, lane: usize, mut questions: mpsc::Receiver<Question>) {
    let lane = &shared.lanes[lane];
    while let Some(first) = questions.recv().await {
        let (mut round, mut count, mut next) = (Vec::new(), 0, Some(first));
        while let Some(question) = next {
            // Whoever asked may have lost patience.
            if !question.reply.is_closed() {
                count += question.digests.len();
                round.push(question);
            }
            next = if count < ROUND_KEYS_MAX { questions.try_recv().ok() } else { None };
        }
        if round.is_empty() {
            continue;
        }
        // The same key is asked for once.
        let mut places: HashMap<Digest, usize> = HashMap::with_capacity(count);
        let mut digests: Vec<Digest> = Vec::with_capacity(count);
        for &digest in round.iter().flat_map(|question| &question.digests) {
            places.entry(digest).or_insert_with(|| {
                digests.push(digest);
                digests.len() - 1
            });
        }
        shared.counters.rounds.add(1);
        let answer = ask_redis(&shared, lane, &digests).await;
        for Question { digests, reply } in round {
            let own = |found: &Vec<Option<Entry>>| digests.iter().map(|digest| found[places[digest]]).collect();
            let _ = reply.send(answer.as_ref().map(own).map_err(|&missed| missed));
        }
    }
}

async fn ask_redis(shared: &Shared, lane: &Lane, digests: &[Digest]) -> Found {
    let (Some(names), Some(mut connection)) = (shared.names(), lane.connection()) else {
        return Err(if lane.is_open() { Missed::Breaker } else { Missed::Unavailable });
    };
    let mut command = redis::cmd("MGET");
    for digest in digests {
        command.arg(names.name(digest));
    }
    match tokio::time::timeout(shared.budget, command.query_async::<Value>(&mut connection.link)).await {
        Ok(Ok(Value::Array(values))) if values.len() == digests.len() => {
            lane.answered();
            Ok(digests.iter().zip(values).map(|(digest, value)| read(shared, &names, digest, value)).collect())
        }
        Ok(Ok(_)) => {
            lane.failed(shared, "an answer of another form");
            Err(Missed::Unavailable)
        }
        Ok(Err(error)) => {
            let trouble = Trouble::from(error);
            lane.lost(&connection, &trouble).await;
            lane.failed(shared, &trouble.explain("asking the cache").to_string());
            Err(Missed::Unavailable)
        }
        Err(_) => {
            lane.failed(shared, "it took longer than its budget");
            Err(Missed::Timeout)
        }
    }
}

fn read(shared: &Shared, names: &Names, digest: &Digest, value: Value) -> Option<Entry> {
    let Value::BulkString(bytes) = value else { return None };
    let entry = names.read(digest, &bytes);
    if entry.is_none() {
        shared.counters.damaged.add(1);
    }
    entry
}

/// Keeps a lane connected, and finds out when its server is back.
pub(super) async fn keep(shared: Arc<Shared>, lane: usize) {
    let lane = &shared.lanes[lane];
    loop {
        match lane.passage(&shared) {
            Passage::Closed(until) => tokio::time::sleep(until.since(shared.clock.now()).min(PROBING.cap)).await,
            passage => {
                let free = passage == Passage::Free;
                match probe(lane, shared.budget * PROBE_BUDGETS).await {
                    // Only the answer to a question, or to a probe of a server that was given up, says that all is well.
                    Ok(()) if free => {
                        tokio::select! {
                            () = lane.trouble.notified() => {}
                            () = tokio::time::sleep(KEEP_EVERY) => {}
                        }
                    }
                    Ok(()) => lane.answered(),
                    Err(trouble) => lane.failed(&shared, &trouble.explain("connecting to the cache").to_string()),
                }
            }
        }
    }
}

/// Connects where there is no connection, and makes sure that the server answers, within `patience`.
async fn probe(lane: &Lane, patience: Duration) -> Attempt<()> {
    let mut connection = lane.connections.get().await?;
    let (ping, watch) = (redis::cmd("PING"), Stopwatch::start());
    let answer = match tokio::time::timeout(PROBE_MAX, ping.query_async::<Value>(&mut connection.link)).await {
        Ok(answer) => answer.map(drop).map_err(Trouble::from),
        Err(_) => Err(Trouble::silent("it did not answer in time")),
    };
    if answer.is_err() {
        lane.connections.lost(&connection).await;
    } else if watch.elapsed() > patience {
        return Err(Trouble::silent("it takes far longer than its budget"));
    }
    answer
}
