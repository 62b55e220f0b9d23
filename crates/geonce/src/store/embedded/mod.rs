//! The embedded store: one `SQLite` file, written by one thread with group commit, read beside it.
//!
//! An answer means that the event survives a power cut (write-ahead log, synced at every commit). The file is held by one
//! gateway at a time; tools may list, replay and purge beside it. `docs/decisions/004-embedded-store.md` says why.

mod accept;
mod audit;
mod checkpoint;
mod claims;
mod failure;
mod group;
mod line;
mod place;
mod read;
mod repair;
mod row;
mod schema;
mod select;
#[cfg(test)]
mod tests;
mod work;
mod writer;

use self::checkpoint::{Checkpointer, RESTART_FRAMES};
use self::claims::{Claims, SEGMENT_KEYS, SLICE_KEYS, Wake};
use self::failure::Attempt;
use self::group::{Group, Known};
use self::read::Reader;
use self::row::HELD;
#[cfg(test)]
pub(crate) use self::schema::BACK_TO_THE_FIRST;
use self::schema::{Place, Purpose, beside};
use self::select::{Cursors, Fate};
use self::writer::{Message, Request, Slice, WAITING_MAX, Waiting, Writer};
use super::{
    Access, Answer, Counted, Filter, Lease, LeaseRequest, Leased, ListRequest, NewEvent, Options, Placed, RUNS, Record,
    Repair, Repaired, Settled, Settlement, Spot, Status, Store, Swept, Verdict,
};
use crate::clock::{Stopwatch, Timestamp};
use crate::error::{Error, Kind, Result};
use crate::event::random;
use rusqlite::OptionalExtension;
use std::fs::{File, TryLockError};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};

/// How long a runner waits while others make the store or bring it up to date.
const MAKING_MAX: Duration = Duration::from_secs(5);

/// Opens the store in `file`; without one, a store that is gone when it is closed.
pub(super) fn open(file: Option<&Path>, options: &Options, access: Access) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(Embedded::open(file, options, access, Tuning::default())?))
}

/// What only tests change.
#[derive(Clone, Copy)]
struct Tuning {
    /// Keys in the log when it is sealed.
    segment_keys: usize,
    /// Keys that one commit seals when nothing else happens.
    slice_keys: usize,
    /// Frames after which the write-ahead log should start again.
    restart_frames: i64,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning { segment_keys: SEGMENT_KEYS, slice_keys: SLICE_KEYS, restart_frames: RESTART_FRAMES }
    }
}

/// An open store.
struct Embedded {
    place: Place,
    access: Access,
    messages: mpsc::Sender<Message>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// Lists, which may take long; times, which must not; and counts, which somebody waits for who asks how we are.
    readers: tokio::sync::RwLock<Option<[Reader; 3]>>,
    uncounted: Waiting,
    id: Option<[u8; 16]>,
    changed: Arc<Notify>,
    cursors: Cursors,
}

impl Embedded {
    fn open(file: Option<&Path>, options: &Options, access: Access, tuning: Tuning) -> Result<Embedded> {
        let place = match file {
            Some(file) => Place { file: file.to_owned(), lasting: true },
            None => Place { file: passing_file(), lasting: false },
        };
        let doing = format!("opening the store {}", place.file.display());
        let lock = match access {
            Access::Gateway if place.lasting => Some(lock(&place.file)?),
            Access::Runner if place.lasting => make_current(&place)?,
            _ => None,
        };
        if access == Access::Tool && !place.file.exists() {
            return Err(Error::new(Kind::Missing, doing).because("there is none").hint("start the gateway once"));
        }
        Embedded::start(place, options, access, tuning, lock).map_err(|failure| failure.explain(&doing))
    }

    fn start(place: Place, options: &Options, access: Access, tuning: Tuning, lock: Option<File>) -> Attempt<Embedded> {
        let gateway = access == Access::Gateway;
        let connection = place.create(gateway)?;
        let (messages, received) = mpsc::channel(WAITING_MAX);
        let wake = waker(&messages);
        let mut claims = None;
        if gateway {
            // The lock proves that whoever held these leases is gone; runners hold theirs without it.
            connection.execute(
                "UPDATE work SET due = 0 WHERE token IS NOT NULL AND due < ?1 \
                 AND sink NOT IN (SELECT number FROM sink WHERE name = ?2)",
                rusqlite::params![HELD, RUNS],
            )?;
            claims = Some(Claims::load(&connection, tuning, &wake)?);
        }
        let readers = [Reader::start(&place)?, Reader::start(&place)?, Reader::start(&place)?];
        let id =
            connection.query_row("SELECT value FROM meta WHERE name = 'store'", [], |row| row.get(0)).optional()?;
        let (uncounted, changed) = (Waiting::default(), Arc::new(Notify::new()));
        let writer = Writer {
            checkpointer: match access {
                Access::Gateway | Access::Runner => Some(Checkpointer::start(&place, tuning.restart_frames)?),
                Access::Tool => None,
            },
            place: place.clone(),
            options: options.clone(),
            connection: Some(connection),
            claims,
            tuning,
            known: Known::default(),
            uncounted: Arc::clone(&uncounted),
            changed: Arc::clone(&changed),
            wake,
            paused: false,
            now: 0,
            lock,
        };
        let writer = thread("store writer", move || writer.run(received))?;
        Ok(Embedded {
            place,
            access,
            messages,
            writer: Mutex::new(Some(writer)),
            readers: tokio::sync::RwLock::new(Some(readers)),
            uncounted,
            id,
            changed,
            cursors: Cursors::default(),
        })
    }

    /// Has the writer do something in slices, beginning with `state`.
    fn slices<S, T, F>(&self, doing: &'static str, weight: (usize, usize), state: S, step: F) -> Answer<'_, T>
    where
        S: Clone + Send + 'static,
        T: Send + 'static,
        F: FnMut(&mut Group<'_>, S) -> Attempt<Slice<S, T>> + Send + 'static,
    {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let request = Request { doing, weight, state, step, result: None, reply };
            let gone = || Error::new(Kind::Unavailable, format!("{doing}: the store is closed"));
            self.messages.send(Message::Run(Box::new(request))).await.map_err(|_| gone())?;
            answer.await.map_err(|_| gone())?
        })
    }

    /// Has the writer do something at once.
    fn write<T, F>(&self, doing: &'static str, weight: (usize, usize), mut step: F) -> Answer<'_, T>
    where
        T: Send + 'static,
        F: FnMut(&mut Group<'_>) -> Attempt<T> + Send + 'static,
    {
        self.slices(doing, weight, (), move |group, ()| step(group).map(Slice::Answer))
    }

    /// Asks one of the readers.
    fn read<T: Send + 'static>(
        &self,
        reader: usize,
        doing: &'static str,
        question: impl FnOnce(&rusqlite::Connection) -> Attempt<T> + Send + 'static,
    ) -> Answer<'_, T> {
        Box::pin(async move {
            match &*self.readers.read().await {
                Some(readers) => readers[reader].ask(doing, question).await,
                None => Err(Error::new(Kind::Unavailable, format!("{doing}: the store is closed"))),
            }
        })
    }

    fn stop(&self) {
        if let Some(writer) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = writer.join();
        }
        if !self.place.lasting {
            for suffix in ["", "-wal", "-shm"] {
                let _ = std::fs::remove_file(beside(&self.place.file, suffix));
            }
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Some(readers) = self.readers.get_mut() {
            readers.iter_mut().for_each(Reader::stop);
        }
        // The writer ends when nobody can send to it any more.
        self.messages = mpsc::channel(1).0;
        self.stop();
    }
}

impl Store for Embedded {
    fn accept(&self, batch: Vec<NewEvent>, now: Timestamp) -> Answer<'_, Vec<Verdict>> {
        // Keys of runs are claimed in the file, all others in the gateway's memory too.
        if self.access != Access::Gateway && !(self.access == Access::Runner && batch.iter().all(accept::is_run)) {
            return Box::pin(async { Err(Error::new(Kind::Invalid, "only a gateway accepts events")) });
        }
        let bytes = batch.iter().map(|event| event.payload.len()).sum();
        self.write("recording events", (batch.len(), bytes), move |group| {
            group.effects.now = group.effects.now.max(now.millis());
            accept::accept(group, &batch, now)
        })
    }

    fn id(&self) -> Option<[u8; 16]> {
        self.id
    }

    fn count(&self, counted: Vec<Counted>) {
        self.uncounted.lock().unwrap_or_else(PoisonError::into_inner).add(counted);
        // If the writer has much to do, it takes them along with that.
        let _ = self.messages.try_send(Message::Wake);
    }

    fn lease(&self, request: LeaseRequest, now: Timestamp) -> Answer<'_, Vec<Leased>> {
        self.write("leasing events", (request.events_max, 0), move |group| work::lease(group, &request, now))
    }

    fn settle(&self, settlements: Vec<Settlement>, now: Timestamp) -> Answer<'_, Vec<Settled>> {
        self.write("settling events", (settlements.len(), 0), move |group| work::settle(group, &settlements, now))
    }

    fn extend(&self, leases: Vec<Lease>, until: Timestamp) -> Answer<'_, Vec<Settled>> {
        self.write("extending leases", (leases.len(), 0), move |group| work::extend(group, &leases, until))
    }

    fn place(&self, spots: Vec<Spot>, now: Timestamp) -> Answer<'_, Vec<Placed>> {
        if let Err(error) = super::place::check(&spots) {
            return Box::pin(async { Err(error) });
        }
        let weight = (spots.len(), spots.iter().map(Spot::bytes).sum());
        self.slices("placing events", weight, Vec::new(), move |group, answers| {
            place::place(group, &spots, now, answers)
        })
    }

    fn replay(&self, filter: Filter, now: Timestamp) -> Answer<'_, u64> {
        self.slices("replaying events", (1, 0), select::Progress::default(), move |group, progress| {
            select::decide(group, &filter, Fate::Replay, now, progress)
        })
    }

    fn purge(&self, filter: Filter, now: Timestamp) -> Answer<'_, u64> {
        self.slices("purging events", (1, 0), select::Progress::default(), move |group, progress| {
            select::decide(group, &filter, Fate::Purge, now, progress)
        })
    }

    fn repair(&self, repairs: Vec<Repair>, now: Timestamp) -> Answer<'_, Vec<Repaired>> {
        if self.access != Access::Gateway {
            return Box::pin(async {
                Err(Error::new(Kind::Invalid, "only a gateway repairs events")
                    .hint("ask the gateway to do it, or stop it"))
            });
        }
        let bytes = repairs.iter().map(|repair| repair.event.payload.len()).sum();
        self.write("repairing events", (repairs.len(), bytes), move |group| {
            group.effects.now = group.effects.now.max(now.millis());
            repair::repair(group, &repairs, now)
        })
    }

    fn list(&self, request: ListRequest) -> Answer<'_, Vec<Record>> {
        self.read(0, "listing events", move |connection| read::list(connection, &request))
    }

    fn status(&self) -> Answer<'_, Status> {
        let place = self.place.clone();
        self.read(2, "counting events", move |connection| read::status(connection, &place))
    }

    fn sweep(&self, limit: usize, now: Timestamp) -> Answer<'_, Swept> {
        let cursors = self.cursors.clone();
        Box::pin(async move {
            // What this takes long to find out, it may find out beside the writer: time only makes more places be over.
            let over = self.read(0, "sweeping events", move |connection| place::over(connection, now)).await?;
            let begin = select::Sweep::begin(over);
            let sweep = move |group: &mut Group<'_>, state| select::sweep(group, &cursors, limit, now, state);
            self.slices("sweeping events", (1, 0), begin, sweep).await
        })
    }

    fn next_due(&self, sink: Arc<str>) -> Answer<'_, Option<Timestamp>> {
        self.read(1, "looking for work", move |connection| read::next_due(connection, &sink))
    }

    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        // The notification counts from here, not from the first poll: ask for this before looking for work.
        Box::pin(self.changed.notified())
    }

    fn audit(&self) -> Answer<'_, Vec<String>> {
        let place = self.place.clone();
        Box::pin(async move {
            // It may take minutes: it has a thread and a connection to itself.
            let (reply, answer) = oneshot::channel();
            let audit = thread("store audit", move || {
                let audited = place
                    .connect(Purpose::Read)
                    .and_then(|connection| read::in_snapshot(&connection, audit::audit))
                    .map_err(|failure| failure.explain("auditing the store"));
                let _ = reply.send(audited);
            });
            audit.map_err(|failure| failure.explain("auditing the store"))?;
            answer.await.map_err(|_| Error::new(Kind::Internal, "auditing the store"))?
        })
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            if let Some(mut readers) = self.readers.write().await.take() {
                readers.iter_mut().for_each(Reader::stop);
            }
            let (reply, answer) = oneshot::channel();
            let gone = || Error::new(Kind::Unavailable, "the store is closed");
            self.messages.send(Message::Close(reply)).await.map_err(|_| gone())?;
            let closed = answer.await.map_err(|_| gone())?;
            self.stop();
            closed
        })
    }
}

/// Starts a thread; the system may have none left.
fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Attempt<JoinHandle<()>> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map_err(|error| Error::new(Kind::Resource, format!("starting the {name}")).because(error).into())
}

/// Wakes the writer, as long as there is a store.
fn waker(messages: &mpsc::Sender<Message>) -> Wake {
    let messages = messages.downgrade();
    Arc::new(move || {
        if let Some(messages) = messages.upgrade() {
            // If the writer has much to do, it looks by itself.
            let _ = messages.try_send(Message::Wake);
        }
    })
}

/// Takes the lock that a gateway holds as long as it runs.
fn lock(file: &Path) -> Result<File> {
    let name = beside(file, ".lock");
    let doing = || format!("opening the store {}", file.display());
    let handle = File::options().create(true).truncate(false).write(true).open(&name).map_err(|error| {
        let kind = match error.kind() {
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => Kind::Permission,
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Kind::Resource,
            _ => Kind::Unavailable,
        };
        Error::new(kind, doing()).because(error).hint("the folder of the store must exist and be writable")
    })?;
    match handle.try_lock() {
        Ok(()) => Ok(handle),
        Err(TryLockError::WouldBlock) => Err(Error::new(Kind::Unavailable, doing())
            .because("another gateway has it open")
            .hint("stop the other gateway, or give this one a store of its own")),
        Err(TryLockError::Error(error)) => Err(Error::new(Kind::Unavailable, doing()).because(error)),
    }
}

/// Whether a gateway holds its lock. Looking takes the lock, shared, for a moment: a gateway that starts just then would
/// find it taken, so look only where there is reason to believe that one runs.
pub(super) fn is_held(file: &Path) -> bool {
    let opened = File::open(beside(file, ".lock"));
    opened.is_ok_and(|handle| matches!(handle.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Makes the store for a runner, or brings it up to date, while no gateway can be running; nothing is left to hold.
fn make_current(place: &Place) -> Result<Option<File>> {
    let waiting = Stopwatch::start();
    loop {
        let doing = || format!("opening the store {}", place.file.display());
        if place.is_current().map_err(|failure| failure.explain(&doing()))? {
            return Ok(None);
        }
        match lock(&place.file) {
            Ok(_held) => {
                place.create(true).map_err(|failure| failure.explain(&doing()))?;
                return Ok(None);
            }
            // Another runner may be doing just this.
            Err(error) if error.is_transient() && waiting.elapsed() < MAKING_MAX => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(error),
        }
    }
}

/// A file for a store that need not last: in memory where the system has a place for that.
fn passing_file() -> PathBuf {
    let shared_memory = Path::new("/dev/shm");
    let folder = if shared_memory.is_dir() { shared_memory.to_owned() } else { std::env::temp_dir() };
    folder.join(format!("geonce-{:032x}.db", random()))
}
