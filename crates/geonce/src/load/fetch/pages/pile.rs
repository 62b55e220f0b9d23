//! The features of all pages so far: a file of lines, and enough memory of each to notice one that comes again.

use super::super::download::Spool;
use super::page::{self, Page, Trouble};
use crate::error::{Error, Kind};
use sha2::{Digest as _, Sha256};
use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;

/// Bytes written at once.
const PIECE_BYTES: usize = 256 << 10;

/// Features that have been read.
pub(super) struct Pile {
    spool: Spool,
    bytes: u64,
    bytes_max: u64,
    features: u64,
    features_max: u64,
    /// Hashes of ids, and of features without ids, of all pages. Two that are equal by chance cost a second reading.
    seen: HashSet<u64>,
    hasher: RandomState,
    /// Digests of pages with features.
    pages: HashSet<[u8; 32]>,
    digest: Sha256,
    repeated: Option<String>,
    has_equal: bool,
}

impl Pile {
    pub(super) fn new(spool: Spool, features_max: u64, bytes_max: u64) -> Pile {
        Pile {
            spool,
            bytes: 0,
            bytes_max,
            features: 0,
            features_max,
            seen: HashSet::new(),
            hasher: RandomState::new(),
            pages: HashSet::new(),
            digest: Sha256::new(),
            repeated: None,
            has_equal: false,
        }
    }

    /// Adds the features of a page, all or none.
    pub(super) fn add(&mut self, path: &Path, token: Option<&str>) -> Result<Page, Trouble> {
        let mut fresh =
            Fresh { buffer: Vec::new(), bytes: self.bytes, hashes: Vec::new(), repeated: None, equal: false };
        let read = page::read(path, token, &mut |line| self.take(line, &mut fresh));
        let written = read.and_then(|page| self.spool.write(&fresh.buffer).map(|()| page).map_err(Trouble::Taking));
        match written {
            Ok(page) => {
                self.bytes = fresh.bytes;
                self.features += page.features;
                self.digest.update(page.digest);
                self.seen.extend(fresh.hashes);
                let again = page.features > 0 && !self.pages.insert(page.digest);
                self.repeated = fresh.repeated.or_else(|| again.then(|| "the same features as one before".to_owned()));
                self.has_equal |= fresh.equal;
                Ok(page)
            }
            Err(trouble) => {
                self.spool.cut(self.bytes).map_err(Trouble::Taking)?;
                Err(trouble)
            }
        }
    }

    fn take(&mut self, line: &str, fresh: &mut Fresh) -> Result<(), Error> {
        let count = self.features + fresh.hashes.len() as u64 + 1;
        fresh.bytes += line.len() as u64 + 1;
        if count > self.features_max || fresh.bytes > self.bytes_max {
            let message = format!("there are more than {} features or {} bytes", self.features_max, self.bytes_max);
            return Err(Error::new(Kind::Invalid, message).hint("load it in parts, by area or by time"));
        }
        let id = page::id(line);
        let hash = self.hasher.hash_one((&id, id.is_none().then_some(line)));
        if self.seen.contains(&hash) {
            match id {
                Some(id) => fresh.repeated = Some(format!("the feature {id} of one before")),
                None => fresh.equal = true,
            }
        }
        fresh.hashes.push(hash);
        fresh.buffer.extend_from_slice(line.as_bytes());
        fresh.buffer.push(b'\n');
        if fresh.buffer.len() >= PIECE_BYTES {
            self.spool.write(&fresh.buffer)?;
            fresh.buffer.clear();
        }
        Ok(())
    }

    /// How many features there are.
    pub(super) fn features(&self) -> u64 {
        self.features
    }

    /// What the last page has in common with those before it, and must not have.
    pub(super) fn repeated(&self) -> Option<&str> {
        self.repeated.as_deref()
    }

    /// Whether features without ids on two pages are equal.
    pub(super) fn has_equal(&self) -> bool {
        self.has_equal
    }

    /// Digest of all features, in their pages.
    pub(super) fn digest(&self) -> [u8; 32] {
        self.digest.clone().finalize().into()
    }

    /// The file, and how many bytes it has.
    pub(super) fn end(self) -> (Spool, u64) {
        (self.spool, self.bytes)
    }
}

/// What the page that is being read adds.
struct Fresh {
    buffer: Vec<u8>,
    bytes: u64,
    hashes: Vec<u64>,
    repeated: Option<String>,
    equal: bool,
}
