//! A sink whose work blocks (files, an embedded database) as a [`Sink`]: one thread owns it, requests come through a
//! bounded channel. Dropping the sink ends the thread after the request it is working on, and waits for it.
//! Also what sinks of files have in common: which file it is that a path leads to.

use super::{Outgoing, Proof, Sink, Written};
use crate::background::yield_to_others;
use crate::error::{Error, Kind, Result};
use crate::store::Answer;
use geonce_key::Fingerprint;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};

/// Requests that wait while one is worked on; more wait outside.
const REQUESTS_MAX: usize = 16;

/// The methods of [`Sink`], for one caller that may be kept waiting. Dropping it closes its files.
pub(super) trait Blocking: Send + 'static {
    fn check(&mut self) -> Result<Vec<String>>;
    fn write(&mut self, batch: Vec<Outgoing>) -> Result<Vec<Written>>;
    fn proofs(&mut self, keys: &[Fingerprint]) -> Result<Vec<bool>>;
    fn applied(&mut self, after: Option<[u8; 16]>, limit: usize) -> Result<Vec<Proof>>;
    fn close(&mut self) -> Result<()>;
    /// Lets go of whatever is open, without finishing it: it is not to be relied on any more.
    fn abandon(&mut self);
}

type Reply<T> = oneshot::Sender<Result<T>>;

enum Request {
    Check(Reply<Vec<String>>),
    Write(Vec<Outgoing>, Reply<Vec<Written>>),
    Proofs(Vec<Fingerprint>, Reply<Option<Vec<bool>>>),
    Applied(Option<[u8; 16]>, usize, Reply<Option<Vec<Proof>>>),
    Close(Reply<()>),
}

struct Threaded {
    name: String,
    /// `None` once it is being dropped.
    requests: Option<mpsc::Sender<Request>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Gives `sink` a thread of its own.
pub(super) fn spawn(name: &str, sink: impl Blocking) -> Result<Arc<dyn Sink>> {
    let (requests, received) = mpsc::channel(REQUESTS_MAX);
    let thread = std::thread::Builder::new()
        .name(format!("sink {name}"))
        .spawn(move || work(sink, received))
        .map_err(|error| Error::new(Kind::Resource, format!("starting the thread of sink {name}")).because(error))?;
    Ok(Arc::new(Threaded { name: name.to_owned(), requests: Some(requests), thread: Mutex::new(Some(thread)) }))
}

fn work(mut sink: impl Blocking, mut requests: mpsc::Receiver<Request>) {
    yield_to_others();
    // Whoever asked may have gone away meanwhile; the work is done all the same and the answer forgotten.
    while let Some(request) = requests.blocking_recv() {
        match request {
            Request::Check(reply) => drop(reply.send(sink.check())),
            Request::Write(batch, reply) => drop(reply.send(write(&mut sink, batch))),
            Request::Proofs(keys, reply) => drop(reply.send(sink.proofs(&keys).map(Some))),
            Request::Applied(after, limit, reply) => drop(reply.send(sink.applied(after, limit).map(Some))),
            Request::Close(reply) => drop(reply.send(sink.close())),
        }
    }
    if let Err(error) = sink.close() {
        tracing::warn!(%error, "closing a sink");
    }
}

/// A panic is the death of the events that caused it, not of the thread.
fn write(sink: &mut impl Blocking, batch: Vec<Outgoing>) -> Result<Vec<Written>> {
    catch_unwind(AssertUnwindSafe(|| sink.write(batch))).unwrap_or_else(|_| {
        sink.abandon();
        Err(Error::new(Kind::Internal, "writing to the sink failed in a way that is our fault"))
    })
}

impl Threaded {
    fn ask<T: Send + 'static>(&self, make: impl FnOnce(Reply<T>) -> Request + Send + 'static) -> Answer<'_, T> {
        Box::pin(async move {
            let ended = || Error::new(Kind::Internal, format!("the thread of sink {} has ended", self.name));
            let (reply, answer) = oneshot::channel();
            let requests = self.requests.as_ref().ok_or_else(ended)?;
            requests.send(make(reply)).await.map_err(|_| ended())?;
            answer.await.map_err(|_| ended())?
        })
    }
}

impl Sink for Threaded {
    fn check(&self) -> Answer<'_, Vec<String>> {
        self.ask(Request::Check)
    }

    fn write(&self, batch: Vec<Outgoing>) -> Answer<'_, Vec<Written>> {
        self.ask(|reply| Request::Write(batch, reply))
    }

    fn proofs(&self, keys: Vec<Fingerprint>) -> Answer<'_, Option<Vec<bool>>> {
        self.ask(|reply| Request::Proofs(keys, reply))
    }

    fn applied(&self, after: Option<[u8; 16]>, limit: usize) -> Answer<'_, Option<Vec<Proof>>> {
        self.ask(move |reply| Request::Applied(after, limit, reply))
    }

    fn close(&self) -> Answer<'_, ()> {
        self.ask(Request::Close)
    }
}

impl Drop for Threaded {
    fn drop(&mut self) {
        self.requests = None;
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(_)) = thread.map(JoinHandle::join) {
            tracing::error!(sink = self.name, "the thread of a sink panicked");
        }
    }
}

/// Which file is at a path, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity(u64, u64);

impl Identity {
    /// The numbers as bytes.
    pub(super) fn to_bytes(self) -> ([u8; 8], [u8; 8]) {
        (self.0.to_be_bytes(), self.1.to_be_bytes())
    }

    /// `None` where there is no file, or where the system does not tell; such systems do not let open files go.
    #[cfg(unix)]
    pub(super) fn of(path: &Path) -> Option<Identity> {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(path).ok().map(|found| Identity(found.dev(), found.ino()))
    }

    #[cfg(not(unix))]
    pub(super) fn of(_path: &Path) -> Option<Identity> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{Blocking, spawn};
    use crate::error::{Kind, Result};
    use crate::sink::{Outgoing, Proof, Written};
    use geonce_key::Fingerprint;

    /// Panics at the first write.
    struct Fragile {
        writes: usize,
        abandoned: bool,
    }

    impl Blocking for Fragile {
        fn check(&mut self) -> Result<Vec<String>> {
            Ok(Vec::new())
        }

        fn write(&mut self, _batch: Vec<Outgoing>) -> Result<Vec<Written>> {
            self.writes += 1;
            assert!(self.writes > 1, "as planned");
            assert!(self.abandoned);
            Ok(Vec::new())
        }

        fn proofs(&mut self, _keys: &[Fingerprint]) -> Result<Vec<bool>> {
            Ok(Vec::new())
        }

        fn applied(&mut self, _after: Option<[u8; 16]>, _limit: usize) -> Result<Vec<Proof>> {
            Ok(Vec::new())
        }

        fn close(&mut self) -> Result<()> {
            Ok(())
        }

        fn abandon(&mut self) {
            self.abandoned = true;
        }
    }

    #[tokio::test]
    async fn a_panic_is_an_answer_and_the_thread_goes_on() {
        let sink = spawn("fragile", Fragile { writes: 0, abandoned: false }).unwrap();
        assert_eq!(sink.write(Vec::new()).await.unwrap_err().kind(), Kind::Internal);
        assert_eq!(sink.write(Vec::new()).await.unwrap(), []);
    }
}
