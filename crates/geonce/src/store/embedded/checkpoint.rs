//! Copies the write-ahead log into the file, off the path of answers, and keeps the log bounded.
//!
//! A passive checkpoint never makes anybody wait, but under constant load it never quite catches up, and the log only
//! starts again from its beginning when everything is copied. So the writer itself copies the small rest, between two groups,
//! when the log is long and the rest is short.

use super::failure::Attempt;
use super::schema::{Place, Purpose};
use rusqlite::Connection;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The log is copied at least this often, if there is anything to copy.
const PERIOD: Duration = Duration::from_millis(250);
/// Frames after which the log should start again: 64 MiB.
pub(super) const RESTART_FRAMES: i64 = 16_384;
/// Frames that the writer may copy itself.
const REST_FRAMES: i64 = 2_048;
/// The writer copies the rest, however long it is, when the log is so many times as long as it should be.
const RESTARTS_MAX: i64 = 8;
/// Rounds in which the checkpointer tries to catch up before it lets go for a while.
const ROUNDS: usize = 6;

/// The thread that copies.
pub(super) struct Checkpointer {
    /// Sent to when there is something to copy, and dropped to end the thread.
    signals: Option<(SyncSender<()>, SyncSender<()>)>,
    restart: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    /// Starts it.
    pub(super) fn start(place: &Place, restart_frames: i64) -> Attempt<Checkpointer> {
        let connection = place.connect(Purpose::Checkpoint)?;
        let restart = Arc::new(AtomicBool::new(false));
        let (committed, commits) = sync_channel(1);
        let (stop, stopped) = sync_channel(1);
        let flag = Arc::clone(&restart);
        let thread =
            super::thread("store checkpoint", move || run(&connection, &commits, &stopped, &flag, restart_frames))?;
        Ok(Checkpointer { signals: Some((committed, stop)), restart, thread: Some(thread) })
    }

    /// There is something new in the log.
    pub(super) fn committed(&self) {
        if let Some((committed, _)) = &self.signals {
            // If one signal waits already, it stands for this one too.
            let _ = committed.try_send(());
        }
    }

    /// Copies the rest of the log, if the checkpointer asked for it.
    pub(super) fn restart_log(&self, connection: &Connection) {
        if self.restart.swap(false, Ordering::Relaxed)
            && let Err(error) = checkpoint(connection)
        {
            tracing::warn!(%error, "copying the store's log");
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.signals = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(
    connection: &Connection,
    commits: &Receiver<()>,
    stopped: &Receiver<()>,
    restart: &AtomicBool,
    restart_frames: i64,
) {
    while commits.recv().is_ok() {
        // Many commits share one checkpoint.
        if stopped.recv_timeout(PERIOD) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        while commits.try_recv().is_ok() {}
        if let Err(error) = catch_up(connection, restart, restart_frames) {
            tracing::warn!(%error, "copying the store's log");
        }
    }
}

fn catch_up(connection: &Connection, restart: &AtomicBool, restart_frames: i64) -> rusqlite::Result<()> {
    let mut copied_before = 0;
    for _ in 0..ROUNDS {
        let (frames, copied) = checkpoint(connection)?;
        if frames < restart_frames {
            return Ok(());
        }
        if copied - copied_before < REST_FRAMES || frames > RESTARTS_MAX * restart_frames {
            restart.store(true, Ordering::Relaxed);
            return Ok(());
        }
        copied_before = copied;
    }
    Ok(())
}

/// Copies what can be copied without waiting: frames in the log, and those that are copied.
fn checkpoint(connection: &Connection) -> rusqlite::Result<(i64, i64)> {
    connection.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?.query_row([], |row| Ok((row.get(1)?, row.get(2)?)))
}
