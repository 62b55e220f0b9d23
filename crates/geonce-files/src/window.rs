//! A file read by place: what is asked for lies in a window of it that moves along. Every place and length is checked
//! against the file's size before memory is taken for it.

use crate::sniff::{self, unreadable};
use crate::{Error, Result};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Bytes read at once while a file is read in order, and where it is not.
const ORDERED_BYTES: u64 = 256 << 10;
const SCATTERED_BYTES: u64 = 4 << 10;

pub(crate) struct Window {
    path: PathBuf,
    file: File,
    length: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    pub(crate) fn open(path: &Path) -> Result<Window> {
        let file = sniff::open(path)?;
        let length = file.metadata().map_err(|error| unreadable(path, &error))?.len();
        Ok(Window { path: path.to_owned(), file, length, start: 0, bytes: Vec::new() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// The `count` bytes from `at` on; none where the file ends before.
    pub(crate) fn read(&mut self, at: u64, count: u64) -> Result<Option<&[u8]>> {
        let Some(end) = at.checked_add(count).filter(|&end| end <= self.length) else { return Ok(None) };
        let held = self.start + self.bytes.len() as u64;
        if at < self.start || end > held {
            let ordered = at >= self.start && at <= held + ORDERED_BYTES;
            self.fill(at, count.max(if ordered { ORDERED_BYTES } else { SCATTERED_BYTES }).min(self.length - at))?;
        }
        let from = usize::try_from(at - self.start).unwrap_or(usize::MAX);
        let to = usize::try_from(end - self.start).unwrap_or(usize::MAX);
        Ok(self.bytes.get(from..to))
    }

    fn fill(&mut self, at: u64, count: u64) -> Result<()> {
        let count =
            usize::try_from(count).map_err(|_| self.refuse("limit_bytes", "holds more than fits into memory"))?;
        self.file.seek(SeekFrom::Start(at)).map_err(|error| unreadable(&self.path, &error))?;
        self.bytes.resize(count, 0);
        self.start = at;
        self.file.read_exact(&mut self.bytes).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => self.refuse("file_changed", "became shorter while it was read"),
            _ => unreadable(&self.path, &error),
        })
    }

    /// A refusal that starts with the file's name.
    pub(crate) fn refuse(&self, code: &'static str, what: &str) -> Error {
        Error::new(code, format!("{} {what}", self.path.display()))
    }
}

/// The four bytes at `at`; zeros behind the end.
fn four(bytes: &[u8], at: usize) -> [u8; 4] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default()
}

pub(crate) fn big_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(four(bytes, at))
}

pub(crate) fn little_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(four(bytes, at))
}

pub(crate) fn little_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default())
}

pub(crate) fn little_f64(bytes: &[u8], at: usize) -> f64 {
    f64::from_le_bytes(bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default())
}
