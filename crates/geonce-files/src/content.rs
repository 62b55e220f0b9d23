//! The digest of what a file holds.

use crate::{Content, Options, Result, sniff};
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::Path;

/// Bytes asked for at once.
const PIECE_BYTES: usize = 256 << 10;

pub(crate) fn digest(path: &Path, options: &Options) -> Result<Content> {
    let _ = sniff::kind(path, options)?;
    let (mut file, mut hasher, mut bytes, mut piece) = (sniff::open(path)?, Sha256::new(), 0, vec![0; PIECE_BYTES]);
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(Content { sha256: hasher.finalize().into(), bytes }),
            Ok(count) => {
                hasher.update(&piece[..count]);
                bytes += count as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(sniff::unreadable(path, &error)),
        }
    }
}
