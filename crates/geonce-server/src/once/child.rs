//! A command while it runs: its output is passed on as it comes and kept in part, signals reach it and everything it has
//! started, and it does not outlive its runner.

use super::guard::Guard;
use rustix::process::Signal;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::process::Command;
use tokio::signal::unix::{Signal as Heard, SignalKind, signal};
use tokio::sync::oneshot;

/// Standard output that is kept for those who come later.
pub(super) const STDOUT_BYTES_MAX: usize = 1 << 20;
/// What is kept of longer output, and of standard error.
pub(super) const TAIL_BYTES: usize = 1 << 10;
/// Read from a command at once.
const BUFFER_BYTES: usize = 1 << 13;
/// A command may leave processes behind that hold its output open; nobody waits longer for what they print.
const DRAIN_WITHIN: Duration = Duration::from_secs(2);
/// What a command is given to end by itself when it must.
const END_WITHIN: Duration = Duration::from_secs(10);

/// Signals that ask us to stop.
pub(super) struct Signals(Vec<(Signal, Heard)>);

impl Signals {
    /// From now on they do not end this process by themselves. Those that whoever started us wants ignored (`nohup`) stay so,
    /// for the command too.
    pub(super) fn listen() -> io::Result<Signals> {
        let ignored = ignored();
        let stopping = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];
        let wanted = stopping.into_iter().filter(|signal| ignored & (1 << (signal.as_raw() - 1)) == 0);
        wanted
            .map(|number| Ok((number, signal(SignalKind::from_raw(number.as_raw()))?)))
            .collect::<io::Result<_>>()
            .map(Signals)
    }

    /// The next one.
    pub(super) async fn next(&mut self) -> Signal {
        std::future::poll_fn(|context| {
            let heard =
                self.0.iter_mut().find_map(|(number, heard)| heard.poll_recv(context).is_ready().then_some(*number));
            heard.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// The signals that this process ignores, one bit for each; none where the system does not say.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// The number that a shell would answer with.
pub(super) fn code_of_signal(signal: i32) -> u8 {
    u8::try_from(128 + (signal & 0x7F)).unwrap_or(255)
}

/// A command that runs.
pub(super) struct Child {
    guard: Guard,
    process: tokio::process::Child,
    out: Copying,
    err: Copying,
}

/// A command that has ended by itself.
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    /// The signal that was forwarded to it before.
    pub(super) told: Option<Signal>,
    pub(super) out: Kept,
    pub(super) err: Kept,
}

impl Child {
    /// Starts a command in the group of its guard. With `quiet`, what it prints goes to standard error.
    pub(super) async fn start(
        mut guard: Guard,
        words: &[OsString],
        variables: &[(String, OsString)],
        quiet: bool,
    ) -> io::Result<Child> {
        let mut command = Command::new(words.first().map_or(std::ffi::OsStr::new(""), OsString::as_os_str));
        command.args(words.iter().skip(1)).envs(variables.iter().map(|(name, value)| (name, value)));
        // In a group of its own, a command that read from a terminal would be stopped.
        command.stdin(if io::stdin().is_terminal() { Stdio::null() } else { Stdio::inherit() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(guard.group());
        let started = command.spawn();
        let mut process = match started {
            Ok(process) => process,
            Err(error) => {
                guard.leave().await;
                return Err(error);
            }
        };
        let (Some(out), Some(err)) = (process.stdout.take(), process.stderr.take()) else {
            return Err(io::Error::other("the command has no output"));
        };
        let destination = if quiet { Destination::Err } else { Destination::Out };
        let out = Copying::start(out.into_owned_fd()?.into(), destination, Kept::new(STDOUT_BYTES_MAX))?;
        let err = Copying::start(err.into_owned_fd()?.into(), Destination::Err, Kept::new(TAIL_BYTES))?;
        Ok(Child { guard, process, out, err })
    }

    /// Waits for the end, and forwards signals until then.
    pub(super) async fn wait(&mut self, signals: &mut Signals) -> io::Result<Ended> {
        let mut told = None;
        let status = loop {
            tokio::select! {
                status = self.process.wait() => break status?,
                signal = signals.next() => {
                    told = Some(signal);
                    self.guard.signal(signal);
                }
            }
        };
        let (out, err) = tokio::join!(self.out.take(), self.err.take());
        self.guard.leave().await;
        Ok(Ended { status, told, out, err })
    }

    /// Ends it and everything it has started.
    pub(super) async fn end(&mut self) {
        self.guard.signal(Signal::TERM);
        let _ = tokio::time::timeout(END_WITHIN, self.process.wait()).await;
        self.guard.kill().await;
        let _ = self.process.wait().await;
    }
}

/// The code of an ended command, as a shell gives it.
pub(super) fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code & 0xFF).unwrap_or(255),
        (None, Some(signal)) => code_of_signal(signal),
        (None, None) => 255,
    }
}

#[derive(Clone, Copy)]
enum Destination {
    Out,
    Err,
}

/// A thread that passes on what a command prints: a slow reader must not keep the lease from being extended.
struct Copying {
    kept: Arc<Mutex<Kept>>,
    finished: oneshot::Receiver<()>,
}

impl Copying {
    fn start(mut from: File, to: Destination, kept: Kept) -> io::Result<Copying> {
        let kept = Arc::new(Mutex::new(kept));
        let (done, finished) = oneshot::channel();
        let shared = Arc::clone(&kept);
        let copy = move || {
            let mut buffer = [0; BUFFER_BYTES];
            loop {
                match from.read(&mut buffer) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(0) | Err(_) => break,
                    Ok(read) => {
                        shared.lock().unwrap_or_else(PoisonError::into_inner).add(&buffer[..read]);
                        // Whoever reads our output may go away; the command goes on all the same.
                        let _ = pass_on(&buffer[..read], to);
                    }
                }
            }
            let _ = done.send(());
        };
        std::thread::Builder::new().name("copy".to_owned()).spawn(copy)?;
        Ok(Copying { kept, finished })
    }

    /// What was kept, when everything has come or nobody waits any longer.
    async fn take(&mut self) -> Kept {
        let _ = tokio::time::timeout(DRAIN_WITHIN, &mut self.finished).await;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut kept, Kept::new(0))
    }
}

fn pass_on(bytes: &[u8], to: Destination) -> io::Result<()> {
    match to {
        Destination::Out => {
            let mut out = io::stdout().lock();
            out.write_all(bytes)?;
            out.flush()
        }
        Destination::Err => io::stderr().lock().write_all(bytes),
    }
}

/// Output that is kept: all of it, or its end if that is too much.
#[derive(Debug)]
pub(super) struct Kept {
    bytes: Vec<u8>,
    total: u64,
    whole_max: usize,
}

impl Kept {
    pub(super) fn new(whole_max: usize) -> Kept {
        Kept { bytes: Vec::new(), total: 0, whole_max }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        self.bytes.extend_from_slice(bytes);
        // Moved only when there is twice as much: each byte is moved about once.
        if !self.is_whole() && self.bytes.len() > 2 * TAIL_BYTES {
            self.bytes.drain(..self.bytes.len() - TAIL_BYTES);
            self.bytes.shrink_to(4 * TAIL_BYTES);
        }
    }

    /// Whether nothing is missing.
    pub(super) fn is_whole(&self) -> bool {
        self.total <= self.whole_max as u64
    }

    /// All of it, or some of its end.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How much there was.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The end as text, without what no store or terminal should be given.
    pub(super) fn tail(&self) -> String {
        let start = self.bytes.len().saturating_sub(TAIL_BYTES);
        let text = String::from_utf8_lossy(&self.bytes[start..]).into_owned();
        text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect::<String>().trim().to_owned()
    }
}
