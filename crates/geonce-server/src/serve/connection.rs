//! Connections that are open: what each is waiting for, until when, and who ends those that take too long.
//!
//! A request reads no clock and sets no timer for its time-outs. Each connection notes its phase and a deadline;
//! one sweeper looks at all of them some ten times a second. Connections are counted, in all and by address.

use super::Limits;
use geonce::clock::Stopwatch;
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// Open, and nothing was said yet.
    FirstByte,
    /// A request has begun.
    Header,
    /// The body is coming in.
    Body,
    /// We are at work.
    Handling,
    /// The answer is going out.
    Respond,
    /// Between two requests.
    Idle,
    /// The answer is out; what the client still sends is thrown away, so that it gets to read the answer.
    Linger,
}

const PHASES: [Phase; 7] =
    [Phase::FirstByte, Phase::Header, Phase::Body, Phase::Handling, Phase::Respond, Phase::Idle, Phase::Linger];

/// How long, and how much, a client may go on sending after it was answered.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 32 << 20;

/// A request that was told that its time is over and does not come back is cut off after this.
const OVERDUE: Duration = Duration::from_secs(5);

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// From where.
    pub(crate) address: IpAddr,
    /// Where it came in.
    pub(crate) door: Door,
}

/// Where a connection came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// Where senders do.
    Senders,
    /// Where only the API is, if it has an address of its own.
    Api,
}

/// The connections of a gateway.
pub(super) struct Connections {
    limits: Limits,
    /// How often connections are looked at.
    tick: Duration,
    started: Stopwatch,
    /// Milliseconds since the start, as of the last look.
    now: AtomicU64,
    open: Mutex<Open>,
    closed: Notify,
}

#[derive(Default)]
struct Open {
    next: u64,
    connections: HashMap<u64, Entry>,
    by_address: HashMap<IpAddr, usize>,
}

struct Entry {
    watch: Arc<Watch>,
    task: Option<AbortHandle>,
}

/// Why a connection is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// There are as many as may be.
    All,
    /// There are as many from its address as may be.
    Address,
}

impl Connections {
    pub(super) fn new(limits: Limits, tick: Duration) -> Arc<Connections> {
        Arc::new(Connections {
            limits,
            tick,
            started: Stopwatch::start(),
            now: AtomicU64::new(0),
            open: Mutex::default(),
            closed: Notify::new(),
        })
    }

    /// Takes a connection in, if there is room. It is counted until the answer is dropped.
    pub(super) fn admit(self: &Arc<Self>, caller: Caller) -> Result<Admitted, Full> {
        let mut open = self.open();
        if open.connections.len() >= self.limits.connections_max {
            return Err(Full::All);
        }
        let address = counted_as(caller.address);
        if let Some(address) = address {
            let from_here = open.by_address.entry(address).or_default();
            if *from_here >= self.limits.connections_per_address_max {
                return Err(Full::Address);
            }
            *from_here += 1;
        }
        let watch = Arc::new(Watch {
            connections: self.clone(),
            caller,
            state: AtomicU64::new(0),
            began: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            expired: AtomicU64::new(u64::MAX),
            stopping: AtomicBool::new(false),
            linger: AtomicBool::new(false),
            waker: OnceLock::new(),
        });
        watch.enter(Phase::FirstByte);
        let id = open.next;
        open.next += 1;
        open.connections.insert(id, Entry { watch: watch.clone(), task: None });
        Ok(Admitted { id, address, watch })
    }

    /// Names the task that serves a connection; nothing if it is over already.
    pub(super) fn attach(&self, id: u64, task: AbortHandle) {
        if let Some(entry) = self.open().connections.get_mut(&id) {
            entry.task = Some(task);
        }
    }

    /// Looks at every connection, again and again.
    pub(super) async fn sweep(&self) {
        let mut ticks = tokio::time::interval(self.tick);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.now.store(now, Relaxed);
            let mut late = Vec::new();
            for entry in self.open().connections.values() {
                if entry.watch.is_over(now) {
                    late.extend(entry.task.clone());
                }
            }
            // Outside the lock: a task that ends takes it.
            for task in late {
                tracing::debug!("a connection took too long and was closed");
                task.abort();
            }
        }
    }

    /// Tells every connection to end: idle ones now, the others after their request. Resolves when all have.
    pub(super) async fn stop(&self) {
        for entry in self.open().connections.values() {
            entry.watch.stopping.store(true, Relaxed);
            entry.watch.wake();
        }
        loop {
            let mut closed = pin!(self.closed.notified());
            closed.as_mut().enable();
            if self.open().connections.is_empty() {
                return;
            }
            closed.await;
        }
    }

    /// Cuts off whoever is left; how many there were.
    pub(super) fn abort(&self) -> usize {
        let tasks: Vec<AbortHandle> = self.open().connections.values().filter_map(|entry| entry.task.clone()).collect();
        tasks.iter().for_each(AbortHandle::abort);
        tasks.len()
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What connections from `address` are counted under: not at all on this machine, and an IPv6 host under its
/// network, of which it has all the addresses.
fn counted_as(address: IpAddr) -> Option<IpAddr> {
    let address = address.to_canonical();
    let network = match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
    };
    (!address.is_loopback()).then_some(network)
}

/// A connection's place among the open ones.
pub(super) struct Admitted {
    pub(super) id: u64,
    address: Option<IpAddr>,
    pub(super) watch: Arc<Watch>,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut open = self.watch.connections.open();
        open.connections.remove(&self.id);
        if let Some(address) = self.address
            && let Some(count) = open.by_address.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                open.by_address.remove(&address);
            }
        }
        drop(open);
        self.watch.connections.closed.notify_waiters();
    }
}

/// What one connection is waiting for, and until when.
pub(super) struct Watch {
    connections: Arc<Connections>,
    /// Who it is about.
    pub(super) caller: Caller,
    /// The deadline in milliseconds, shifted by eight bits, and the phase: changed and read together.
    state: AtomicU64,
    /// When the phase began.
    began: AtomicU64,
    /// Bytes in or out since then.
    moved: AtomicU64,
    /// The state whose deadline has passed.
    expired: AtomicU64,
    stopping: AtomicBool,
    linger: AtomicBool,
    /// Wakes the task of this connection, whose waker never changes.
    waker: OnceLock<Waker>,
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX >> 16)
}

impl Watch {
    /// Begins a phase with its usual limit.
    pub(super) fn enter(&self, phase: Phase) {
        let limits = &self.connections.limits;
        self.enter_for(
            phase,
            match phase {
                Phase::FirstByte => limits.first_byte,
                Phase::Header => limits.header,
                Phase::Body | Phase::Respond | Phase::Handling => limits.transfer_grace.min(limits.transfer),
                Phase::Idle => limits.idle,
                Phase::Linger => LINGER,
            },
        );
    }

    /// Begins a phase that may take this long.
    pub(super) fn enter_for(&self, phase: Phase, limit: Duration) {
        let now = self.connections.now.load(Relaxed);
        self.began.store(now, Relaxed);
        self.moved.store(0, Relaxed);
        // Our time is up to a tick old, and nobody is to have less than the limit.
        self.set(phase, now.saturating_add(millis(limit.saturating_add(self.connections.tick))));
    }

    /// Counts bytes that came in or went out: they are worth time.
    pub(super) fn progress(&self, bytes: usize) {
        let limits = &self.connections.limits;
        let moved = self.moved.load(Relaxed).saturating_add(bytes as u64);
        self.moved.store(moved, Relaxed);
        let earned = moved.saturating_mul(1_000) / limits.transfer_bytes_per_second_min.max(1);
        let allowed = millis(limits.transfer_grace).saturating_add(earned).min(millis(limits.transfer));
        self.set(self.phase(), self.began.load(Relaxed).saturating_add(allowed));
    }

    fn set(&self, phase: Phase, deadline: u64) {
        self.state.store((deadline.min(u64::MAX >> 8) << 8) | phase as u64, Relaxed);
    }

    fn phase(&self) -> Phase {
        PHASES[(self.state.load(Relaxed) & 7) as usize % PHASES.len()]
    }

    /// Says that the request's body was not read to its end, so that the connection cannot go on.
    pub(super) fn leave_unread(&self) {
        self.linger.store(true, Relaxed);
    }

    /// Resolves with what `work` does, or with `None` when the phase's time is over.
    pub(super) async fn within<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        // The sweeper wakes the connection's task, which polls everything in it.
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if self.expired.load(Relaxed) == self.state.load(Relaxed) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Whether the connection is to end; to be asked first by its task.
    pub(super) fn is_stopping(&self, context: &Context<'_>) -> bool {
        self.waker.get_or_init(|| context.waker().clone());
        self.stopping.load(Relaxed)
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    /// Whether the connection must be closed. Requests are told first that their time is over, so that they answer.
    fn is_over(&self, now: u64) -> bool {
        let state = self.state.load(Relaxed);
        if (state >> 8) >= now {
            return false;
        }
        if !matches!(self.phase(), Phase::Body | Phase::Handling) {
            return true;
        }
        if self.expired.swap(state, Relaxed) == state {
            return (state >> 8).saturating_add(millis(OVERDUE)) < now;
        }
        self.wake();
        false
    }
}

/// A socket that notes what happens on it.
pub(super) struct Watched {
    stream: TcpStream,
    watch: Arc<Watch>,
    /// Bytes thrown away after the last answer; `None` before.
    lingered: Option<usize>,
}

impl Watched {
    pub(super) fn new(stream: TcpStream, watch: Arc<Watch>) -> Watched {
        Watched { stream, watch, lingered: None }
    }

    /// Notes that we are about to write. Answers that no request of ours made are to malformed ones.
    fn writing(&self) {
        match self.watch.phase() {
            Phase::FirstByte | Phase::Header => {
                self.watch.leave_unread();
                self.watch.enter(Phase::Respond);
            }
            Phase::Idle => self.watch.enter(Phase::Respond),
            _ => {}
        }
    }

    fn wrote(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written
            && self.watch.phase() == Phase::Respond
        {
            self.watch.progress(*bytes);
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        if buf.filled().len() > before && matches!(this.watch.phase(), Phase::FirstByte | Phase::Idle) {
            this.watch.enter(Phase::Header);
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.writing();
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.wrote(&written);
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.writing();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.wrote(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Called when everything was written: the answer is out.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        if flushed.is_ready() && this.watch.phase() == Phase::Respond {
            this.watch.enter(Phase::Idle);
        }
        flushed
    }

    /// Ends our side. If the client may still be sending, closing at once would reset the connection and take the
    /// answer away from under it (RFC 9112, section 9.6), so its bytes are read for a while.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.lingered.is_none() {
            std::task::ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            if !this.watch.linger.load(Relaxed) {
                return Poll::Ready(Ok(()));
            }
            this.watch.enter(Phase::Linger);
        }
        let lingered = this.lingered.get_or_insert(0);
        let mut bytes = [0; 8 << 10];
        while *lingered < LINGER_BYTES_MAX {
            let mut buffer = ReadBuf::new(&mut bytes);
            std::task::ready!(Pin::new(&mut this.stream).poll_read(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                break;
            }
            *lingered += buffer.filled().len();
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Caller, Connections, Door, Full, Limits};

    #[test]
    fn connections_are_counted_by_address_and_in_all() {
        let limits = Limits { connections_max: 6, connections_per_address_max: 2, ..Limits::default() };
        let connections = Connections::new(limits, std::time::Duration::from_millis(5));
        let admit =
            |address: &str| connections.admit(Caller { address: address.parse().unwrap(), door: Door::Senders });
        let first = admit("192.0.2.1").ok();
        let _second = admit("::ffff:192.0.2.1").ok();
        assert_eq!(admit("192.0.2.1").err(), Some(Full::Address));
        drop(first);
        let mut kept = vec![admit("192.0.2.1").ok()];
        kept.extend([admit("2001:db8::1").ok(), admit("2001:db8::2").ok()]);
        assert_eq!(admit("2001:db8::3").err(), Some(Full::Address));
        kept.extend([admit("127.0.0.1").ok(), admit("::1").ok()]);
        assert!(kept.iter().all(Option::is_some));
        assert_eq!(admit("127.0.0.1").err(), Some(Full::All));
        kept.clear();
        assert!(admit("2001:db8::3").is_ok());
    }
}
