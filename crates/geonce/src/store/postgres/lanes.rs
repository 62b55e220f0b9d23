//! Group commit: what waits to be recorded goes into one transaction, a few of which are under way at once.
//!
//! Nobody is answered before the commit. Counts of what is not recorded go along; if there is nothing else, by themselves.

use super::accept::{Group, accept};
use super::plan::Plan;
use super::{Attempt, Shared, transaction};
use crate::clock::Timestamp;
use crate::error::{Error, Kind, Result};
use crate::event::random;
use crate::postgres::Trouble;
use crate::store::books::Uncounted;
use crate::store::{Counted, NewEvent, Verdict};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;

/// Transactions that record events at the same time: while one is being committed, the next is sent.
const LANES: usize = 2;
/// Requests that may wait.
const WAITING_MAX: usize = 4_096;
/// A group takes no further request once it has so many events,
const GROUP_EVENTS_MAX: usize = 2_048;
/// or so many bytes.
const GROUP_BYTES_MAX: usize = 8 << 20;

/// After so many groups without a known key the next is hoped to have none either. What is hoped for in vain is done twice, so
/// hope must be rare where many groups have one.
const HOPEFUL_AFTER: u32 = if cfg!(test) { 1 } else { 16 };

/// Counts that are not written yet.
#[derive(Default)]
pub(super) struct Waiting {
    counts: Mutex<Uncounted>,
    /// Held by the lane that writes some.
    writing: tokio::sync::Mutex<()>,
}

impl Waiting {
    pub(super) fn add(&self, counted: Vec<Counted>) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).add(counted);
    }

    fn put_back(&self, uncounted: Uncounted) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).put_back(uncounted);
    }

    fn take(&self) -> Uncounted {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Events that wait to be recorded.
struct Request {
    batch: Vec<NewEvent>,
    now: Timestamp,
    reply: oneshot::Sender<Result<Vec<Verdict>>>,
}

enum Message {
    Accept(Request),
    /// There may be counts to write.
    Wake,
}

/// The way in.
pub(super) struct Entrance(mpsc::Sender<Message>);

impl Entrance {
    /// Has events recorded; `None` if the store was closed meanwhile.
    pub(super) async fn accept(self, batch: Vec<NewEvent>, now: Timestamp) -> Option<Result<Vec<Verdict>>> {
        let (reply, answer) = oneshot::channel();
        self.0.send(Message::Accept(Request { batch, now, reply })).await.ok()?;
        // A request that still has a way in would keep the lanes from ending.
        drop(self.0);
        answer.await.ok()
    }

    /// If the lanes have much to do, they look by themselves.
    pub(super) fn wake(self) {
        let _ = self.0.try_send(Message::Wake);
    }
}

/// The lanes of a gateway.
pub(super) struct Lanes {
    messages: mpsc::Sender<Message>,
    queue: Arc<tokio::sync::Mutex<mpsc::Receiver<Message>>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Lanes {
    pub(super) fn new() -> Lanes {
        let (messages, queue) = mpsc::channel(WAITING_MAX);
        Lanes { messages, queue: Arc::new(tokio::sync::Mutex::new(queue)), tasks: Mutex::default() }
    }

    pub(super) fn start(&self, handle: &Handle, shared: &Arc<Shared>) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.extend((0..LANES).map(|_| {
            let (shared, queue) = (Arc::clone(shared), Arc::clone(&self.queue));
            handle.spawn(async move {
                while let Some(group) = next(&queue).await {
                    let shared = Arc::clone(&shared);
                    // In a task of its own: a panic loses its own group only.
                    let _ = tokio::spawn(async move { commit(&shared, group).await }).await;
                }
            })
        }));
    }

    pub(super) fn entrance(&self) -> Entrance {
        Entrance(self.messages.clone())
    }

    /// Finishes what was begun.
    pub(super) async fn finish(self) {
        drop(self.messages);
        for task in self.tasks.into_inner().unwrap_or_else(PoisonError::into_inner) {
            let _ = task.await;
        }
    }
}

/// Waits for the first request, then takes what else is there; `None` if there will be no more.
async fn next(queue: &tokio::sync::Mutex<mpsc::Receiver<Message>>) -> Option<Vec<Request>> {
    let mut queue = queue.lock().await;
    let mut message = queue.recv().await?;
    let (mut group, mut events, mut bytes) = (Vec::new(), 0, 0);
    loop {
        if let Message::Accept(request) = message {
            events += request.batch.len();
            bytes += request.batch.iter().map(|event| event.payload.len()).sum::<usize>();
            group.push(request);
        }
        if events >= GROUP_EVENTS_MAX || bytes >= GROUP_BYTES_MAX {
            return Some(group);
        }
        match queue.try_recv() {
            Ok(more) => message = more,
            Err(_) => return Some(group),
        }
    }
}

/// Commits a group and answers it.
async fn commit(shared: &Shared, group: Vec<Request>) {
    // One lane at a time writes counts. The others answer only after it: what came before is then counted.
    let writing = shared.waiting.writing.try_lock().ok();
    let uncounted = if writing.is_some() { shared.waiting.take() } else { Uncounted::default() };
    let writing = writing.filter(|_| !uncounted.is_empty());
    let recorded = record(shared, &group, &uncounted).await;
    if recorded.is_err() {
        shared.waiting.put_back(uncounted);
    }
    match writing {
        Some(writing) => drop(writing),
        None => drop(shared.waiting.writing.lock().await),
    }
    match recorded {
        Ok(verdicts) => answer(group, verdicts),
        // Only one of them may be at fault: each on its own then.
        Err(trouble) if group.len() > 1 && !concerns_all(&trouble) => {
            for request in group {
                match record(shared, std::slice::from_ref(&request), &Uncounted::default()).await {
                    Ok(verdicts) => answer(vec![request], verdicts),
                    Err(trouble) => drop(request.reply.send(Err(trouble.explain("recording events")))),
                }
            }
        }
        Err(trouble) => {
            let failure = trouble.explain("recording events");
            tracing::error!(error = %failure, requests = group.len(), "the store did not commit");
            for request in group {
                let _ = request.reply.send(Err(failure.duplicate()));
            }
        }
    }
}

/// Whether every request would fail alike.
fn concerns_all(trouble: &Trouble) -> bool {
    matches!(trouble.kind(), Kind::Unavailable | Kind::Resource | Kind::Permission | Kind::Incompatible)
}

fn answer(group: Vec<Request>, verdicts: Vec<Verdict>) {
    let mut verdicts = verdicts.into_iter();
    for request in group {
        let own: Vec<Verdict> = verdicts.by_ref().take(request.batch.len()).collect();
        let complete = own.len() == request.batch.len();
        let missing = || Error::new(Kind::Internal, "recording events: not one verdict each");
        // Whoever asked may have gone.
        let _ = request.reply.send(if complete { Ok(own) } else { Err(missing()) });
    }
}

/// Records a group. What that takes is large, so it lies elsewhere.
fn attempt<'s, 'a: 's>(
    shared: &'s Shared,
    group: &'s Group<'a>,
) -> Pin<Box<dyn Future<Output = Attempt<Plan<'a>>> + Send + 's>> {
    Box::pin(async move {
        transaction!(ending: shared.pool, tries, session => accept(shared, session, group, tries.may_have_happened()))
    })
}

async fn record(shared: &Shared, group: &[Request], uncounted: &Uncounted) -> Attempt<Vec<Verdict>> {
    let events = group.iter().flat_map(|request| request.batch.iter().map(|event| (event, request.now))).collect();
    let slot = shared.slots.take();
    // Half of the random bits are more than enough to tell a slot's groups apart.
    let number = i64::try_from(random() >> 65).unwrap_or(0);
    let mut group = Group {
        events,
        uncounted,
        number,
        slot: slot.number,
        careful: false,
        hopeful: shared.unknown.load(Ordering::Relaxed) >= HOPEFUL_AFTER,
    };
    if group.events.is_empty() && uncounted.is_empty() {
        return Ok(Vec::new());
    }
    let mut recorded = attempt(shared, &group).await;
    let is_taken = |recorded: &Attempt<_>| matches!(recorded, Err(trouble) if trouble.state() == Some(&SqlState::UNIQUE_VIOLATION));
    if group.hopeful && is_taken(&recorded) {
        shared.unknown.store(0, Ordering::Relaxed);
        group.hopeful = false;
        recorded = attempt(shared, &group).await;
    }
    if is_taken(&recorded) {
        // An event whose key is free, but which is recorded: it once contradicted another that is gone since. Too rare
        // for looking every time.
        group.careful = true;
        recorded = attempt(shared, &group).await;
    }
    let plan = recorded?;
    // Lanes may count one group less or more; nothing depends on it.
    let unknown = if plan.repeats.is_empty() { shared.unknown.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
    shared.unknown.store(unknown, Ordering::Relaxed);
    if plan.makes_work() {
        shared.wake();
    }
    Ok(plan.verdicts)
}
