//! A store that goes on acknowledging while its main store is down: what the main store cannot take is kept in a local
//! journal, an embedded store of its own, and brought to the main store when it is back.
//!
//! An acknowledgement is as durable as ever, only its verdict is provisional: an event that the main store knows already is
//! counted as its duplicate when it gets there. Everything but accepting waits for the main store.

use super::{
    Access, Admission, Answer, Counted, Filter, Joint, Lease, LeaseRequest, Leased, ListRequest, NewEvent, Options,
    Order, Placed, Record, Repair, Repaired, Route, Settled, Settlement, Spilled, Spot, Status, Store, Swept, Verdict,
};
use crate::clock::{Clock, Stopwatch, Timestamp};
use crate::error::{Error, Kind, Result};
use crate::event::{Cause, Class, Outcome, State};
use crate::store::End;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use geonce_key::Fingerprint;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

/// How long the main store may take before an event goes to the journal instead.
const MAIN_MAX: Duration = Duration::from_secs(2);
/// How often a main store that is down is asked whether it is back.
const PROBE: Duration = Duration::from_millis(500);
/// Events that are brought at once,
const DRAIN_EVENTS_MAX: usize = 512;
/// and their bytes.
const DRAIN_BYTES_MAX: usize = 8 << 20;
/// How long the journal holds what it is bringing.
const DRAIN_LEASE: Duration = Duration::from_mins(1);
/// Where the journal delivers to.
const MAIN: &str = "main";
/// What the digest of a journal's key begins with.
const KEY_PREFIX: &[u8] = b"geonce spill 1\0";
/// How often it is looked how full the journal is.
const MEASURE: Duration = Duration::from_millis(100);
/// How long the journal remembers what it has brought: copies that come meanwhile are recognised.
const JOURNAL_WINDOW: Duration = Duration::from_mins(10);

/// Opens the main store; it may be down when the gateway starts.
pub type Opener = Arc<dyn Fn() -> Result<Arc<dyn Store>> + Send + Sync>;

/// What is kept beside a main store.
pub struct Journal<'a> {
    /// Where.
    pub file: &'a Path,
    /// At most so many bytes.
    pub bytes_max: u64,
    /// Events of these sources. Those of others are refused while the main store is down.
    pub sources: HashSet<Arc<str>>,
}

/// A main store and its journal.
struct Spill {
    shared: Arc<Shared>,
    /// Ends the task that brings what was kept.
    stop: watch::Sender<bool>,
    task: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

struct Shared {
    open: Opener,
    main: RwLock<Option<Arc<dyn Store>>>,
    journal: Arc<dyn Store>,
    bytes_max: u64,
    sources: HashSet<Arc<str>>,
    clock: Arc<dyn Clock>,
    /// Whether the main store answered when it was last asked.
    up: AtomicBool,
    kept: Notify,
    changed: Arc<Notify>,
    /// Passes on that the main store has new work.
    forwarder: Mutex<Option<AbortHandle>>,
    last_status: Mutex<Status>,
    /// What the journal used when it was last measured.
    measured: Mutex<Option<(Stopwatch, u64)>>,
}

/// Opens a journal beside a main store that `open` opens, now or when it is back.
///
/// Must be called within a runtime: a task brings what was kept.
pub fn open(open: Opener, journal: Journal<'_>, clock: Arc<dyn Clock>) -> Result<Arc<dyn Store>> {
    let Journal { file, bytes_max, sources } = journal;
    let options = Options { window: JOURNAL_WINDOW, keep_payload: false, ..Options::default() };
    let journal = super::embedded::open(Some(file), &options, Access::Gateway)?;
    let main = match open_within(&open, MAIN_MAX) {
        Some(Ok(main)) => Some(main),
        Some(Err(error)) if error.is_transient() => {
            tracing::warn!(%error, "the store is down; events are kept in the journal");
            None
        }
        Some(Err(error)) => return Err(error),
        None => {
            tracing::warn!("the store does not answer; events are kept in the journal");
            None
        }
    };
    let shared = Arc::new(Shared {
        open,
        main: RwLock::new(None),
        journal,
        bytes_max,
        sources,
        clock,
        up: AtomicBool::new(main.is_some()),
        kept: Notify::new(),
        changed: Arc::new(Notify::new()),
        forwarder: Mutex::new(None),
        last_status: Mutex::new(Status::default()),
        measured: Mutex::new(None),
    });
    if let Some(main) = main {
        shared.set_main(main);
    }
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(bring(Arc::clone(&shared), stopped));
    Ok(Arc::new(Spill { shared, stop, task: Mutex::new(Some(task)) }))
}

/// Opens the main store unless that takes too long. What is opened too late is let go: it is opened again when it answers.
fn open_within(open: &Opener, max: Duration) -> Option<Result<Arc<dyn Store>>> {
    let (reply, answer) = std::sync::mpsc::channel();
    let open = Arc::clone(open);
    std::thread::spawn(move || drop(reply.send(open())));
    answer.recv_timeout(max).ok()
}

impl Shared {
    fn main(&self) -> Option<Arc<dyn Store>> {
        self.main.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_main(&self, main: Arc<dyn Store>) {
        let (store, changed) = (Arc::clone(&main), Arc::clone(&self.changed));
        let forwarder = tokio::spawn(async move {
            let mut news = store.changed();
            loop {
                news.await;
                // What comes from here on counts for the next round; what came before, for this one.
                news = store.changed();
                changed.notify_waiters();
            }
        });
        *self.forwarder.lock().unwrap_or_else(PoisonError::into_inner) = Some(forwarder.abort_handle());
        *self.main.write().unwrap_or_else(PoisonError::into_inner) = Some(main);
    }

    fn stop_forwarding(&self) {
        if let Some(forwarder) = self.forwarder.lock().unwrap_or_else(PoisonError::into_inner).take() {
            forwarder.abort();
        }
    }

    /// The main store, for what cannot wait in the journal.
    fn required(&self) -> Result<Arc<dyn Store>> {
        self.main()
            .ok_or_else(|| Error::new(Kind::Unavailable, "the store is down; accepted events wait in the journal"))
    }

    fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    fn went_down(&self, error: &str) {
        if self.up.swap(false, Ordering::Relaxed) {
            tracing::warn!(error, "the store is down; events are kept in the journal");
        }
        self.kept.notify_one();
    }

    async fn accept(&self, batch: Vec<NewEvent>, now: Timestamp) -> Result<Vec<Verdict>> {
        if let (true, Some(main)) = (self.is_up(), self.main()) {
            match tokio::time::timeout(MAIN_MAX, main.accept(batch.clone(), now)).await {
                Ok(Ok(verdicts)) => return Ok(verdicts),
                Ok(Err(error)) if !error.is_transient() => return Err(error),
                // It may have been recorded after all. It keeps its id, so bringing it again changes nothing.
                Ok(Err(error)) => self.went_down(&error.to_string()),
                Err(_) => self.went_down("it did not answer in time"),
            }
        }
        if !batch.iter().all(|event| self.sources.contains(&event.source)) {
            return Err(Error::new(Kind::Unavailable, "the store is down"));
        }
        self.keep(batch, now).await
    }

    /// Keeps events in the journal.
    async fn keep(&self, batch: Vec<NewEvent>, now: Timestamp) -> Result<Vec<Verdict>> {
        if self.journal_bytes().await? > self.bytes_max {
            return Err(Error::new(Kind::Resource, "the store is down and the journal is full")
                .hint("make the store reachable, or raise store.spill_max"));
        }
        let kept = batch.iter().map(journal_event).collect();
        let verdicts = self.journal.accept(kept, now).await?;
        self.kept.notify_one();
        Ok(verdicts.into_iter().map(provisional).collect())
    }

    /// Bytes that the journal uses, as of a moment ago.
    async fn journal_bytes(&self) -> Result<u64> {
        let known = *self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((watch, bytes)) = known
            && watch.elapsed() < MEASURE
        {
            return Ok(bytes);
        }
        let bytes = used_bytes(&self.journal.status().await?);
        *self.measured.lock().unwrap_or_else(PoisonError::into_inner) = Some((Stopwatch::start(), bytes));
        Ok(bytes)
    }

    /// Whether the main store answers; opens it where it never was open.
    async fn probe(self: &Arc<Self>) -> Result<()> {
        let main = if let Some(main) = self.main() {
            main
        } else {
            let shared = Arc::clone(self);
            let opened = tokio::task::spawn_blocking(move || (shared.open)()).await;
            let main = opened.map_err(|error| Error::new(Kind::Internal, "opening the store").because(error))??;
            self.set_main(Arc::clone(&main));
            main
        };
        match tokio::time::timeout(MAIN_MAX, main.next_due(MAIN.into())).await {
            Ok(answer) => answer.map(drop),
            Err(_) => Err(Error::new(Kind::Unavailable, "asking the store").because("it did not answer in time")),
        }
    }

    /// Brings one batch from the journal; how many events, or what stands in the way.
    async fn bring_some(&self) -> Result<usize> {
        let main = self.required()?;
        let request = LeaseRequest {
            sink: MAIN.into(),
            events_max: DRAIN_EVENTS_MAX,
            bytes_max: DRAIN_BYTES_MAX,
            duration: DRAIN_LEASE,
            event: None,
            holder: super::own_name(),
        };
        let leased = self.journal.lease(request, self.clock.now()).await?;
        if leased.is_empty() {
            return Ok(0);
        }
        let mut settlements = Vec::with_capacity(leased.len());
        let (mut events, mut leases) = (Vec::with_capacity(leased.len()), Vec::with_capacity(leased.len()));
        for leased in leased {
            if let Some(event) = read_event(&leased) {
                events.push(event);
                leases.push(leased.lease);
            } else {
                let cause = Cause::new(Class::Internal, "damaged", "what the journal kept cannot be read");
                settlements.push(Settlement { lease: leased.lease, end: End::Dead(cause) });
            }
        }
        let brought = main.accept(events, self.clock.now()).await;
        let end = match &brought {
            Ok(_) => End::Done(Outcome::Applied, None),
            Err(error) => End::Retry {
                at: self.clock.now(),
                cause: Cause::new(Class::Unavailable, "store_unavailable", error.to_string()),
                counts: false,
            },
        };
        settlements.extend(leases.into_iter().map(|lease| Settlement { lease, end: end.clone() }));
        let count = settlements.len();
        self.journal.settle(settlements, self.clock.now()).await?;
        brought.map(|_| count)
    }

    /// The books of both together: what was brought is in the main store's by now.
    fn merge(mut status: Status, journal: &Status, spilled: Spilled) -> Status {
        for (source, kept) in &journal.ledgers {
            let books = status.ledgers.entry(source.clone()).or_default();
            books.received += kept.received.saturating_sub(kept.applied);
            books.refused += kept.refused;
            books.duplicate += kept.duplicate;
            books.dead += kept.dead;
            books.purged += kept.purged;
            books.waiting += kept.waiting;
        }
        for (state, count) in &journal.states {
            if *state != State::Done {
                *status.states.entry(*state).or_default() += count;
            }
        }
        for (mine, kept) in [(&mut status.dead, &journal.dead), (&mut status.invalid, &journal.invalid)] {
            for (code, count) in kept {
                *mine.entry(code.clone()).or_default() += count;
            }
        }
        for (source, kept) in &journal.traffic {
            status.traffic.entry(source.clone()).or_default().add(kept);
        }
        status.bytes += journal.bytes;
        status.oldest_waiting = match (status.oldest_waiting, journal.oldest_waiting) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        status.spilled = Some(spilled);
        status
    }

    async fn status(&self) -> Result<Status> {
        let journal = self.journal.status().await?;
        let waiting = journal.ledgers.values().map(|books| books.waiting).sum();
        let main = match self.main() {
            Some(main) if self.is_up() => match tokio::time::timeout(MAIN_MAX, main.status()).await {
                Ok(Ok(status)) => Some(status),
                _ => None,
            },
            _ => None,
        };
        let mut last = self.last_status.lock().unwrap_or_else(PoisonError::into_inner);
        let down = main.is_none();
        if let Some(main) = main {
            *last = main;
        }
        let spilled = Spilled { down, waiting, bytes: used_bytes(&journal), bytes_max: self.bytes_max };
        Ok(Shared::merge(last.clone(), &journal, spilled))
    }
}

/// What the journal is done with was brought to the main store, which is not done with it.
fn provisional(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Duplicate { of, state: State::Done, drift, revived, .. } => {
            Verdict::Duplicate { of, state: State::Ready, outcome: None, drift, revived }
        }
        verdict => verdict,
    }
}

fn used_bytes(status: &Status) -> u64 {
    status.bytes.saturating_sub(status.bytes_free)
}

/// Watches the main store and brings what was kept, until it is told to stop.
async fn bring(shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    let mut swept = Timestamp::from_millis(0);
    while !*stopped.borrow() {
        if !shared.is_up() {
            match shared.probe().await {
                Ok(()) => {
                    shared.up.store(true, Ordering::Relaxed);
                    shared.changed.notify_waiters();
                    tracing::info!("the store is back");
                }
                Err(error) if !error.is_transient() => tracing::error!(%error, "the store is down"),
                Err(_) => {}
            }
        }
        if shared.is_up() {
            loop {
                match shared.bring_some().await {
                    Ok(0) => break,
                    Ok(events) => tracing::info!(events, "brought from the journal"),
                    Err(error) => {
                        shared.went_down(&error.to_string());
                        break;
                    }
                }
            }
        }
        let now = shared.clock.now();
        if now.since(swept) > JOURNAL_WINDOW {
            swept = now;
            if let Err(error) = shared.journal.sweep(usize::MAX, now).await {
                tracing::warn!(%error, "sweeping the journal");
            }
        }
        tokio::select! {
            () = shared.kept.notified(), if shared.is_up() => {}
            () = tokio::time::sleep(PROBE) => {}
            // An error means that nobody is left to stop us.
            stop = stopped.wait_for(|stop| *stop) => if stop.is_err() { return },
        }
    }
}

/// The event as the journal keeps it: under a key of its own, so that only exact copies are recognised there and the
/// main store decides everything else.
fn journal_event(event: &NewEvent) -> NewEvent {
    let mut digest = Sha256::new();
    digest.update(KEY_PREFIX);
    digest.update(event.key.digest());
    digest.update(event.content);
    NewEvent {
        id: event.id,
        source: Arc::clone(&event.source),
        key: Fingerprint::from_digest(digest.finalize().into(), false),
        aliases: Vec::new(),
        spatial: Vec::new(),
        content: event.content,
        form: event.form,
        crs: event.crs,
        payload: write_event(event).into(),
        admission: Admission::Deliver(Arc::from([Route::to(MAIN)])),
        order: None,
    }
}

/// A line of JSON with what the journal's own record does not say, then the payload.
fn write_event(event: &NewEvent) -> Vec<u8> {
    let fingerprint = |one: &Fingerprint| (BASE64.encode(one.digest()), one.is_secret());
    let fingerprints = |all: &[Fingerprint]| all.iter().map(fingerprint).collect();
    let (cause, routes) = match &event.admission {
        Admission::Deliver(routes) => (None, routes),
        Admission::Dead(cause, routes) => (Some(cause), routes),
    };
    let head = Head {
        key: fingerprint(&event.key),
        aliases: fingerprints(&event.aliases),
        spatial: fingerprints(&event.spatial),
        sinks: routes.iter().map(|route| route.sink.to_string()).collect(),
        after: routes.iter().map(|route| route.after.as_ref().map(ToString::to_string)).collect(),
        order: event.order.as_ref().map(|order| (fingerprint(&order.entity), BASE64.encode(&order.version))),
        cause: cause.map(|cause| {
            [cause.class.as_str().to_owned(), cause.code.clone(), cause.pointer.clone(), cause.message.clone()]
        }),
    };
    // Strings, numbers and lists of them: there is nothing that could fail.
    let mut bytes = serde_json::to_vec(&head).unwrap_or_default();
    bytes.push(b'\n');
    bytes.extend_from_slice(&event.payload);
    bytes
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Head {
    key: (String, bool),
    aliases: Vec<(String, bool)>,
    spatial: Vec<(String, bool)>,
    sinks: Vec<String>,
    /// The sink that each of them waits for.
    #[serde(default)]
    after: Vec<Option<String>>,
    /// Entity and version.
    #[serde(default)]
    order: Option<((String, bool), String)>,
    cause: Option<[String; 4]>,
}

fn read_event(leased: &Leased) -> Option<NewEvent> {
    let bytes = &leased.payload;
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    let head: Head = serde_json::from_slice(&bytes[..end]).ok()?;
    let fingerprint = |(text, secret): &(String, bool)| {
        let digest = BASE64.decode(text).ok()?.try_into().ok()?;
        Some(Fingerprint::from_digest(digest, *secret))
    };
    let fingerprints = |all: &[(String, bool)]| all.iter().map(fingerprint).collect::<Option<Vec<_>>>();
    let after = head.after.iter().map(|after| after.as_deref().map(Arc::from)).chain(std::iter::repeat(None));
    let routes: Arc<[Route]> =
        head.sinks.iter().zip(after).map(|(sink, after)| Route { sink: sink.as_str().into(), after }).collect();
    let order = match &head.order {
        Some((entity, version)) => Some(Order { entity: fingerprint(entity)?, version: BASE64.decode(version).ok()? }),
        None => None,
    };
    let admission = match head.cause {
        None => Admission::Deliver(routes),
        Some([class, code, pointer, message]) => {
            Admission::Dead(Cause { class: Class::from_word(&class)?, code, pointer, message }, routes)
        }
    };
    Some(NewEvent {
        id: leased.lease.event,
        source: Arc::clone(&leased.source),
        key: fingerprint(&head.key)?,
        aliases: fingerprints(&head.aliases)?,
        spatial: fingerprints(&head.spatial)?,
        content: leased.content,
        form: leased.form,
        crs: leased.crs,
        payload: bytes.slice(end + 1..),
        admission,
        order,
    })
}

impl Drop for Spill {
    fn drop(&mut self) {
        self.shared.stop_forwarding();
    }
}

impl Store for Spill {
    fn accept(&self, batch: Vec<NewEvent>, now: Timestamp) -> Answer<'_, Vec<Verdict>> {
        Box::pin(self.shared.accept(batch, now))
    }

    fn id(&self) -> Option<[u8; 16]> {
        self.shared.main()?.id()
    }

    fn count(&self, counted: Vec<Counted>) {
        match self.shared.main() {
            Some(main) if self.shared.is_up() => main.count(counted),
            _ => self.shared.journal.count(counted),
        }
    }

    fn lease(&self, request: LeaseRequest, now: Timestamp) -> Answer<'_, Vec<Leased>> {
        Box::pin(async move { self.shared.required()?.lease(request, now).await })
    }

    fn settle(&self, settlements: Vec<Settlement>, now: Timestamp) -> Answer<'_, Vec<Settled>> {
        Box::pin(async move { self.shared.required()?.settle(settlements, now).await })
    }

    fn extend(&self, leases: Vec<Lease>, until: Timestamp) -> Answer<'_, Vec<Settled>> {
        Box::pin(async move { self.shared.required()?.extend(leases, until).await })
    }

    fn place(&self, spots: Vec<Spot>, now: Timestamp) -> Answer<'_, Vec<Placed>> {
        Box::pin(async move { self.shared.required()?.place(spots, now).await })
    }

    fn replay(&self, filter: Filter, now: Timestamp) -> Answer<'_, u64> {
        Box::pin(async move { self.shared.required()?.replay(filter, now).await })
    }

    fn purge(&self, filter: Filter, now: Timestamp) -> Answer<'_, u64> {
        Box::pin(async move { self.shared.required()?.purge(filter, now).await })
    }

    fn repair(&self, repairs: Vec<Repair>, now: Timestamp) -> Answer<'_, Vec<Repaired>> {
        Box::pin(async move { self.shared.required()?.repair(repairs, now).await })
    }

    fn list(&self, request: ListRequest) -> Answer<'_, Vec<Record>> {
        Box::pin(async move { self.shared.required()?.list(request).await })
    }

    fn status(&self) -> Answer<'_, Status> {
        Box::pin(self.shared.status())
    }

    fn sweep(&self, limit: usize, now: Timestamp) -> Answer<'_, Swept> {
        Box::pin(async move { self.shared.required()?.sweep(limit, now).await })
    }

    fn next_due(&self, sink: Arc<str>) -> Answer<'_, Option<Timestamp>> {
        Box::pin(async move { self.shared.required()?.next_due(sink).await })
    }

    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.shared.changed.notified())
    }

    fn joint(&self) -> Option<Joint> {
        self.shared.main()?.joint()
    }

    fn audit(&self) -> Answer<'_, Vec<String>> {
        Box::pin(async move {
            let mut problems = self.shared.required()?.audit().await?;
            problems
                .extend(self.shared.journal.audit().await?.into_iter().map(|problem| format!("journal: {problem}")));
            Ok(problems)
        })
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            let _ = self.stop.send(true);
            self.shared.stop_forwarding();
            let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(task) = task {
                let _ = task.await;
            }
            let main = match self.shared.main() {
                Some(main) => main.close().await,
                None => Ok(()),
            };
            self.shared.journal.close().await.and(main)
        })
    }
}

#[cfg(test)]
mod tests;
