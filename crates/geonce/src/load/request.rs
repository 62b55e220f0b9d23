//! What is asked of a load, and how far it is.

use super::key::KeyBy;
use super::target::Mode;
use geonce_key::Policy;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// What becomes of a feature that is not valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Invalid {
    /// It is left out and told.
    #[default]
    Reject,
    /// It is kept in the store as dead, as it was read.
    Dead,
    /// It is mended and written under its own key; where that cannot be, it is left out.
    Repair,
}

impl Invalid {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Invalid::Reject => "reject",
            Invalid::Dead => "dead",
            Invalid::Repair => "repair",
        }
    }
}

/// The coordinate system of a layer that is made. One that is there keeps its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetCrs {
    /// WGS 84.
    #[default]
    Default,
    /// That of the file.
    Same,
    /// This EPSG code.
    Code(u32),
}

impl TargetCrs {
    pub(super) fn code(self, from: u32) -> Option<u32> {
        match self {
            TargetCrs::Default => None,
            TargetCrs::Same => Some(from),
            TargetCrs::Code(code) => Some(code),
        }
    }
}

/// What is to be loaded, and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// The file.
    pub file: PathBuf,
    /// What it is called.
    pub source: String,
    /// What it is called in keys: its address without anything secret, or its absolute path.
    pub uri: String,
    /// When it was last changed, in milliseconds, where the file does not tell.
    pub modified: Option<i64>,
    /// How it is read.
    pub files: geonce_files::Options,
    /// Where a source that was fetched came from: endpoint, parameters, pages. Part of the key.
    pub query: Option<String>,
    /// The destination, with whatever it takes to get in.
    pub destination: String,
    /// The destination as part of the key: the same for everybody, nothing secret.
    pub destination_name: String,
    /// The folder that files are relative to.
    pub folder: PathBuf,
    /// The layer of the destination.
    pub layer: String,
    /// What is done to it.
    pub mode: Mode,
    /// The EPSG code of the file's coordinates, over what the file says.
    pub source_crs: Option<u32>,
    /// The coordinate system of a layer that is made.
    pub target_crs: TargetCrs,
    /// What makes a feature the same, and names its entity.
    pub policy: Policy,
    /// What becomes of features that are not valid.
    pub invalid: Invalid,
    /// What of the source counts.
    pub key_by: KeyBy,
    /// The same source is loaded again in the next period.
    pub period: Option<Duration>,
    /// Whether an unchanged size, time and inode stand for unchanged bytes.
    pub trust_mtime: bool,
    /// Features to a part that is committed on its own.
    pub chunk: Option<NonZero<u64>>,
    /// Whether it is done again, though it is done.
    pub force: bool,
    /// Whether it is tried again, though it is dead.
    pub retry: bool,
    /// How long another runner of the same load is waited for.
    pub wait: Duration,
    /// How often a failure that time may mend is tried again.
    pub retries: u32,
    /// How long the destination may be silent.
    pub timeout: Duration,
}

/// How far a load is; written by it, read by whoever shows it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Features of the file, if it says so; else 0.
    pub total: AtomicU64,
    /// Features that are behind us.
    pub features: AtomicU64,
    /// Those that were left out or kept as dead.
    pub bad: AtomicU64,
    /// Bytes of the source whose digest is made.
    pub bytes: AtomicU64,
}
