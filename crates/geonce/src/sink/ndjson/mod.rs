//! The NDJSON sink: a file that only grows, one line for each event, synced before it is answered.
//!
//! `<file>.keys` beside it knows which keys have their line. The line is durable first, its key second; opening reads the
//! lines that the keys do not cover yet and cuts off a line that a crash left without its end. Keys stay known when the
//! file is rotated. The keys can be deleted while nothing runs: they are read again from the lines that are there.

mod index;
mod line;

#[cfg(test)]
mod tests;

use super::thread::{Blocking, Identity, spawn};
use super::{Columns, Mode, Options, Outgoing, Proof, Sink, Written};
use crate::error::{Error, Kind, Result};
use crate::event::Outcome;
use geonce_key::Fingerprint;
use index::Index;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The longest page of proofs.
const PROOFS_MAX: usize = 10_000;
/// How much of the file is read at a time when it is searched from its end.
const CHUNK_BYTES: usize = 64 * 1024;

struct Ndjson {
    path: PathBuf,
    approximate_crs: bool,
    timeout: Duration,
    open: Option<Open>,
    /// What a person should know and has not been told.
    notices: Vec<String>,
    buffer: Vec<u8>,
}

struct Open {
    file: File,
    identity: Option<Identity>,
    /// Where the next line goes: everything before is whole lines whose keys are known.
    end: u64,
    index: Index,
}

/// Opens the sink, and repairs what a crash left.
pub(super) fn open(name: &str, path: &Path, options: &Options) -> Result<Arc<dyn Sink>> {
    let refuse = |what: &str| Err(Error::new(Kind::Invalid, format!("sink {name}: {what}")));
    if options.mode != Mode::Append {
        return refuse("a file that only grows holds events, not entities: mode = \"append\"");
    }
    if options.layer.is_some() || matches!(options.columns, Columns::Declared(_)) {
        return refuse("lines have no layer and no columns");
    }
    if options.crs != 4326 {
        return refuse("lines are as delivered, or in EPSG:4326");
    }
    if options.secret.is_some() || !options.allow.is_empty() {
        return refuse("a file has no use for secret or allow");
    }
    let mut sink = Ndjson {
        path: path.to_owned(),
        approximate_crs: options.approximate_crs,
        timeout: options.timeout,
        open: None,
        notices: Vec::new(),
        buffer: Vec::new(),
    };
    match sink.ready() {
        Ok(_) => {}
        Err(error) if error.is_transient() => tracing::warn!(sink = name, %error, "the file is not ready yet"),
        Err(error) => return Err(error),
    }
    spawn(name, sink)
}

impl Ndjson {
    /// The open file, after seeing that it is the one at its path and as long as we left it.
    fn ready(&mut self) -> Result<&mut Open> {
        if let Some(open) = &mut self.open {
            let length = open.file.metadata().map_or(0, |found| found.len());
            if open.identity != Identity::of(&self.path) || length != open.end {
                // Rotated by renaming or by emptying, or written to by somebody else. Opening again looks at it afresh.
                self.open = None;
            }
        }
        if self.open.is_none() {
            self.open = Some(recover(&self.path, self.timeout, &mut self.notices)?);
        }
        self.open.as_mut().ok_or_else(|| Error::new(Kind::Internal, "the file was opened and is not open"))
    }

    fn append(&mut self, batch: &[Outgoing]) -> Result<Vec<Written>> {
        let approximate = self.approximate_crs;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let path = self.path.clone();
        let open = self.ready()?;
        let mut keys = open.index.begin()?;
        let (mut answers, mut learned) = (Vec::with_capacity(batch.len()), false);
        for outgoing in batch {
            let start = buffer.len();
            let line = line::write(outgoing, approximate, &mut buffer);
            let origin = outgoing.origin.as_ref().map(Fingerprint::key);
            let own_known = keys.contains(outgoing.key.key())?;
            // What it is a repair of, or another repair of that, may have its line.
            let known = own_known || origin.map_or(Ok(false), |origin| keys.contains(origin))?;
            let mut learn = |key| {
                learned = true;
                keys.add(key, outgoing.event)
            };
            answers.push(match line {
                _ if known => {
                    if !own_known {
                        learn(outgoing.key.key())?;
                    }
                    Written::Done(Outcome::Applied)
                }
                Ok(()) => {
                    learn(outgoing.key.key())?;
                    origin.map_or(Ok(()), learn)?;
                    Written::Done(Outcome::Applied)
                }
                Err(ref cause) => Written::Dead(cause.clone()),
            });
            if known || line.is_err() {
                buffer.truncate(start);
            }
        }
        if learned {
            let end = open.end;
            if let Err(error) = append_durably(&mut open.file, end, &buffer) {
                return Err(failure(&path, "writing to", error));
            }
            open.end += buffer.len() as u64;
            keys.commit(open.end, open.identity)?;
        } else {
            drop(keys);
        }
        self.buffer = buffer;
        Ok(answers)
    }

    /// Passes an answer on; after a failure the file is looked at afresh.
    fn judged<T>(&mut self, answer: Result<T>) -> Result<T> {
        if answer.is_err() {
            self.open = None;
        }
        answer
    }
}

/// Writes at the end and syncs. On failure nothing of it is left, or opening cuts it off: it was answered to nobody.
fn append_durably(file: &mut File, end: u64, bytes: &[u8]) -> std::io::Result<()> {
    let written = file.write_all(bytes).and_then(|()| file.sync_data());
    if written.is_err() {
        let _ = file.set_len(end);
    }
    written
}

/// Opens the file and its keys, cuts off a torn line, and learns the keys of lines that the keys do not cover.
fn recover(path: &Path, timeout: Duration, notices: &mut Vec<String>) -> Result<Open> {
    let doing = |error| failure(path, "opening", error);
    let mut index = Index::open(&index::path(path), timeout)?;
    let is_new = !path.exists();
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(doing)?;
    if is_new {
        sync_folder(path).map_err(doing)?;
    }
    let identity = Identity::of(path);
    let length = file.metadata().map_err(doing)?.len();
    let whole = end_of_lines(&mut file, length).map_err(doing)?;
    if whole < length {
        let torn = length - whole;
        file.set_len(whole).and_then(|()| file.sync_data()).map_err(doing)?;
        let notice = format!("{}: cut off {torn} bytes of a line without an end", path.display());
        tracing::warn!("{notice}");
        notices.push(notice);
    }
    let covered = index.covered(identity)?.filter(|&end| end <= whole).unwrap_or(0);
    file.seek(SeekFrom::Start(covered)).map_err(doing)?;
    let mut foreign = 0_u64;
    if covered < whole {
        let mut keys = index.begin()?;
        let mut reader = BufReader::with_capacity(CHUNK_BYTES, (&mut file).take(whole - covered));
        line::read_keys(&mut reader, |found| {
            match found {
                Some((key, event)) => keys.add(key, event)?,
                None => foreign += 1,
            }
            Ok(())
        })
        .map_err(|error| error.of(path))?;
        keys.commit(whole, identity)?;
    }
    if foreign > 0 {
        notices.push(format!("{}: {foreign} lines were not written by this sink; left alone", path.display()));
    }
    Ok(Open { file, identity, end: whole, index })
}

/// Where the last whole line ends.
fn end_of_lines(file: &mut File, length: u64) -> std::io::Result<u64> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut end = length;
    while end > 0 {
        let start = end.saturating_sub(CHUNK_BYTES as u64);
        let size = usize::try_from(end - start).unwrap_or(CHUNK_BYTES);
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut chunk[..size])?;
        if let Some(at) = chunk[..size].iter().rposition(|&byte| byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// A new file is only as durable as its folder's entry for it.
fn sync_folder(path: &Path) -> std::io::Result<()> {
    if cfg!(unix) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

fn failure(path: &Path, doing: &str, error: std::io::Error) -> Error {
    let kind = match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Kind::Permission,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => Kind::Resource,
        ErrorKind::IsADirectory => Kind::Invalid,
        _ => Kind::Unavailable,
    };
    Error::new(kind, format!("{doing} {}", path.display())).because(error)
}

impl Blocking for Ndjson {
    fn check(&mut self) -> Result<Vec<String>> {
        let ready = self.ready().map(|_| ());
        self.judged(ready)?;
        Ok(std::mem::take(&mut self.notices))
    }

    fn write(&mut self, batch: Vec<Outgoing>) -> Result<Vec<Written>> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let written = self.append(&batch);
        self.judged(written)
    }

    fn proofs(&mut self, keys: &[Fingerprint]) -> Result<Vec<bool>> {
        let found = self.ready().and_then(|open| keys.iter().map(|key| open.index.contains(key.key())).collect());
        self.judged(found)
    }

    fn applied(&mut self, after: Option<[u8; 16]>, limit: usize) -> Result<Vec<Proof>> {
        let found = self.ready().and_then(|open| open.index.page(after, limit.min(PROOFS_MAX)));
        self.judged(found)
    }

    fn close(&mut self) -> Result<()> {
        match self.open.take() {
            Some(open) => open.index.close(),
            None => Ok(()),
        }
    }

    fn abandon(&mut self) {
        self.open = None;
    }
}
