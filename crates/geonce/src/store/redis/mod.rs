//! The Redis store: records, queue and books in one slot of one primary, changed by scripts that the server runs one at a
//! time. Many gateways may share it.
//!
//! An answer means that the event survives a power cut of the server (append-only file, synced at every write; refused
//! otherwise). What a failover can lose, and why all is in one slot: `docs/decisions/008-redis-store.md`.

mod accept;
mod audit;
mod call;
mod read;
mod repair;
mod row;
mod schema;
mod select;
#[cfg(test)]
mod tests;
mod work;

use self::accept::{Message, Request, WAITING_MAX, Waiting, check_names};
use self::call::{Caller, Time};
use self::select::Fate;
use super::{
    Access, Answer, Counted, Filter, Lease, LeaseRequest, Leased, ListRequest, NewEvent, Options, Record, Repair,
    Repaired, Settled, Settlement, Status, Store, Swept, Verdict,
};
use crate::clock::Timestamp;
use crate::error::{Error, Kind, Result};
use crate::redis::{Address, Attempt, Check, Connections, Listen};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

/// How long to gather before other gateways are told of new work.
const TELL: Duration = Duration::from_millis(50);

/// Opens the store at `url`.
pub(super) fn open(url: &str, options: &Options, access: Access) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(Redis::open(url, options, access, Time::Server)?))
}

/// An open store.
struct Redis {
    shared: Arc<Shared>,
    access: Access,
    messages: Mutex<Option<mpsc::Sender<Message>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// Its own, so that it works wherever it is called from, and finishes what was begun when a caller is gone.
    runtime: Option<Runtime>,
}

/// What everything that is done in the store shares.
struct Shared {
    caller: Caller,
    options: Options,
    waiting: Waiting,
    ready: Arc<Notify>,
    telling: Arc<AtomicBool>,
    closed: AtomicBool,
}

impl Shared {
    /// Work became ready: tells our workers at once, and other gateways soon.
    fn changed(self: &Arc<Self>) {
        self.ready.notify_waiters();
        if self.telling.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(TELL).await;
            shared.telling.store(false, Ordering::Release);
            // Whoever does not hear of it polls.
            if let Ok(mut connection) = shared.caller.connections.get().await {
                let channel = shared.caller.key("ready");
                let _: std::result::Result<redis::Value, _> =
                    redis::cmd("PUBLISH").arg(channel).arg("").query_async(&mut connection.link).await;
            }
        });
    }
}

impl Redis {
    fn open(url: &str, options: &Options, access: Access, time: Time) -> Result<Redis> {
        let address = Address::parse(url)?;
        let doing = format!("opening the store {}", address.shown());
        // In braces, so that all keys are in one slot of a Cluster.
        let prefix = format!("{{{}}}", address.prefix);
        let ready = Arc::new(Notify::new());
        let heard = Arc::clone(&ready);
        let listen = Listen { channel: format!("{prefix}:ready"), heard: Arc::new(move |_| heard.notify_waiters()) };
        let fit_only = !options.accept_loss;
        let opened = Arc::new(AtomicBool::new(false));
        let running = Arc::clone(&opened);
        let check: Check = Box::new(move |mut link, node| {
            let running = running.load(Ordering::Acquire);
            Box::pin(async move { if fit_only { schema::check(&mut link, &node, running).await } else { Ok(()) } })
        });
        let connections = Connections::new(address, &prefix, Some(listen), check)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("store redis")
            .enable_all()
            .build()
            .map_err(|error| Error::new(Kind::Resource, doing.clone()).because(error))?;
        let shared = Arc::new(Shared {
            caller: Caller::new(connections, prefix, time),
            options: options.clone(),
            waiting: Waiting::default(),
            ready,
            telling: Arc::default(),
            closed: AtomicBool::new(false),
        });
        let mut store = Redis {
            shared: Arc::clone(&shared),
            access,
            messages: Mutex::default(),
            writer: Mutex::default(),
            runtime: Some(runtime),
        };
        store.begin(fit_only).map_err(|error| {
            let explained = Error::new(error.kind(), doing.clone()).because(error.to_string());
            let said = error.to_string().starts_with(&doing);
            match (said, error.hint_text().map(str::to_owned)) {
                (true, _) => error,
                (false, Some(hint)) => explained.hint(hint),
                (false, None) => explained.hint("is Redis running, and is the address right?"),
            }
        })?;
        opened.store(true, Ordering::Release);
        Ok(store)
    }

    /// Makes or finds the store, and starts the writer.
    fn begin(&mut self, fit_only: bool) -> Result<()> {
        let (reply, answer) = std::sync::mpsc::channel();
        let (shared, access) = (Arc::clone(&self.shared), self.access);
        let begun = async move {
            schema::open(&shared.caller, access).await?;
            if fit_only {
                schema::check_all(&shared.caller).await?;
            }
            Ok(())
        };
        let Some(runtime) = &self.runtime else { return Ok(()) };
        // Not `block_on`: the caller may be within a runtime of its own.
        runtime.spawn(async move {
            let opened: Attempt<()> = begun.await;
            let _ = reply.send(opened.map_err(|trouble| trouble.explain("talking to Redis")));
        });
        answer.recv().map_err(|_| Error::new(Kind::Internal, "opening the store"))??;
        let (messages, received) = mpsc::channel(WAITING_MAX);
        self.messages = Mutex::new(Some(messages));
        self.writer = Mutex::new(Some(runtime.spawn(accept::write(Arc::clone(&self.shared), received))));
        Ok(())
    }

    /// Does something on the store's own threads.
    fn run<T, F>(&self, doing: &'static str, work: impl FnOnce(Arc<Shared>) -> F) -> Answer<'_, T>
    where
        T: Send + 'static,
        F: Future<Output = Attempt<T>> + Send + 'static,
    {
        let gone = move || Error::new(Kind::Unavailable, format!("{doing}: the store is closed"));
        let spawned = match &self.runtime {
            Some(runtime) if !self.shared.closed.load(Ordering::Acquire) => {
                Some(runtime.spawn(work(Arc::clone(&self.shared))))
            }
            _ => None,
        };
        Box::pin(async move {
            let done = spawned.ok_or_else(gone)?.await;
            match done {
                Ok(answer) => answer.map_err(|trouble| trouble.explain(doing)),
                Err(error) if error.is_panic() => Err(Error::new(Kind::Internal, doing).because(error)),
                Err(_) => Err(gone()),
            }
        })
    }

    fn messages(&self) -> Option<mpsc::Sender<Message>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // What is under way is given up; its caller is gone.
            runtime.shutdown_background();
        }
    }
}

impl Store for Redis {
    fn accept(&self, events: Vec<NewEvent>, now: Timestamp) -> Answer<'_, Vec<Verdict>> {
        Box::pin(async move {
            if self.access == Access::Tool {
                return Err(Error::new(Kind::Invalid, "only a gateway accepts events"));
            }
            check_names(&events)?;
            if events.is_empty() {
                return Ok(Vec::new());
            }
            let gone = || Error::new(Kind::Unavailable, "recording events: the store is closed");
            let (reply, answer) = oneshot::channel();
            let messages = self.messages().ok_or_else(gone)?;
            messages.send(Message::Accept(Request { events, now, reply })).await.map_err(|_| gone())?;
            drop(messages);
            answer.await.map_err(|_| gone())?
        })
    }

    fn id(&self) -> Option<[u8; 16]> {
        u128::from_str_radix(self.shared.caller.store.get()?, 16).ok().map(u128::to_be_bytes)
    }

    fn count(&self, counted: Vec<Counted>) {
        self.shared.waiting.add(counted);
        // If the writer has much to do, it takes them along with that.
        if let Some(messages) = self.messages() {
            let _ = messages.try_send(Message::Wake);
        }
    }

    fn lease(&self, request: LeaseRequest, now: Timestamp) -> Answer<'_, Vec<Leased>> {
        self.run("leasing events", |shared| async move { work::lease(&shared, &request, now).await })
    }

    fn settle(&self, settlements: Vec<Settlement>, now: Timestamp) -> Answer<'_, Vec<Settled>> {
        self.run("settling events", |shared| async move { work::settle(&shared, &settlements, now).await })
    }

    fn extend(&self, leases: Vec<Lease>, until: Timestamp) -> Answer<'_, Vec<Settled>> {
        self.run("extending leases", |shared| async move { work::extend(&shared, &leases, until).await })
    }

    fn replay(&self, filter: Filter, now: Timestamp) -> Answer<'_, u64> {
        self.run("replaying events", |shared| async move { select::decide(&shared, &filter, Fate::Replay, now).await })
    }

    fn purge(&self, filter: Filter, now: Timestamp) -> Answer<'_, u64> {
        self.run("purging events", |shared| async move { select::decide(&shared, &filter, Fate::Purge, now).await })
    }

    fn repair(&self, repairs: Vec<Repair>, now: Timestamp) -> Answer<'_, Vec<Repaired>> {
        if let Err(error) = check_names(repairs.iter().map(|repair| &repair.event)) {
            return Box::pin(async { Err(error) });
        }
        self.run("repairing events", |shared| async move { repair::repair(&shared, &repairs, now).await })
    }

    fn list(&self, request: ListRequest) -> Answer<'_, Vec<Record>> {
        self.run("listing events", |shared| async move { read::list(&shared, &request).await })
    }

    fn status(&self) -> Answer<'_, Status> {
        self.run("counting events", |shared| async move { read::status(&shared).await })
    }

    fn sweep(&self, limit: usize, now: Timestamp) -> Answer<'_, Swept> {
        self.run("sweeping events", |shared| async move { select::sweep(&shared, limit, now).await })
    }

    fn next_due(&self, sink: Arc<str>) -> Answer<'_, Option<Timestamp>> {
        self.run("looking for work", |shared| async move { read::next_due(&shared, &sink).await })
    }

    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        // The notification counts from here, not from the first poll: ask for this before looking for work.
        Box::pin(self.shared.ready.notified())
    }

    fn audit(&self) -> Answer<'_, Vec<String>> {
        self.run("auditing the store", |shared| async move { audit::audit(&shared).await })
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            // Without a sender the writer finishes what it was sent, and ends.
            if let Some(messages) = self.messages.lock().unwrap_or_else(PoisonError::into_inner).take() {
                let _ = messages.try_send(Message::Wake);
            }
            let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(writer) = writer {
                let _ = writer.await;
            }
            self.shared.closed.store(true, Ordering::Release);
            self.shared.caller.connections.close().await;
            Ok(())
        })
    }
}
