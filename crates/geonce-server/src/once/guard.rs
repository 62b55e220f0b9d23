//! A process beside each command that ends it when its runner is gone, however that went: even killed, a runner closes its
//! end of a pipe.
//!
//! The guard leads the process group that the command is started in, so that everything the command starts is ended
//! with it, and so that the group's number is not given away while anybody may want to signal it. A process that leaves the
//! group is not reached. Setting a parent death signal would reach the command alone, and needs unsafe code.

use rustix::process::{Pid, Signal, getpgrp, getpid, kill_process_group};
use std::io::{self, Read};
use std::process::{ExitCode, Stdio};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

/// What a runner says to its guard when the command has ended by itself.
const OVER: u8 = b'.';

/// Signals that are forwarded to the group, of which the guard is part: it must not die of them.
const FORWARDED: [SignalKind; 4] =
    [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];

/// The guard's own program: waits for its runner to speak or to be gone.
pub(crate) fn run() -> ExitCode {
    if getpgrp() != getpid() {
        eprintln!("error: geonce once starts this by itself [usage]");
        return ExitCode::from(2);
    }
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::from(2);
    };
    let _inside = runtime.enter();
    // A signal that somebody listens to does nothing by itself. Nobody ever looks at these.
    let _deaf: Vec<_> = FORWARDED.into_iter().map(signal).collect();
    // The runner starts the command only after this: nothing may be sent before the guard is deaf.
    let mut out = io::stdout();
    if io::Write::write_all(&mut out, &[OVER]).and_then(|()| io::Write::flush(&mut out)).is_err() {
        return ExitCode::from(2);
    }
    let mut word = [0];
    loop {
        match io::stdin().read(&mut word) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(1) => return ExitCode::SUCCESS,
            _ => break,
        }
    }
    let _ = kill_process_group(getpgrp(), Signal::KILL);
    ExitCode::SUCCESS
}

/// A guard, as its runner sees it. Dropped, it ends whatever is left of its group.
pub(super) struct Guard {
    process: Child,
    group: Pid,
}

impl Guard {
    /// Starts a guard. It leads a new process group.
    pub(super) async fn start() -> io::Result<Guard> {
        let mut command = Command::new(program()?);
        command.arg("guard").process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn()?;
        let gone = || io::Error::other("the guard of the command ended at once");
        let group = process.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).ok_or_else(gone)?;
        let mut out = process.stdout.take().ok_or_else(gone)?;
        match tokio::io::AsyncReadExt::read_u8(&mut out).await {
            Ok(OVER) => Ok(Guard { process, group }),
            _ => Err(gone()),
        }
    }

    /// The process group.
    pub(super) fn group(&self) -> i32 {
        self.group.as_raw_nonzero().get()
    }

    /// Sends a signal to everything in the group.
    pub(super) fn signal(&self, signal: Signal) {
        // Only a group without a process cannot be reached, and then there is nothing to do.
        let _ = kill_process_group(self.group, signal);
    }

    /// Lets go of the group: what the command has left running goes on.
    pub(super) async fn leave(&mut self) {
        if let Some(mut word) = self.process.stdin.take() {
            let _ = word.write_all(&[OVER]).await;
        }
        let _ = self.process.wait().await;
    }

    /// Ends everything in the group.
    pub(super) async fn kill(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait().await;
    }
}

/// This program, even if another one has been put into its place since it was started.
fn program() -> io::Result<std::path::PathBuf> {
    let running = std::path::Path::new("/proc/self/exe");
    if running.exists() { Ok(running.to_owned()) } else { std::env::current_exe() }
}
