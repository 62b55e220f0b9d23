//! Unpacks content that a server sent packed although it was not asked to, as stores of ready-packed files do.

use super::download::{Spool, disk};
use crate::error::{Error, Kind, Result};
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::Read as _;

/// Bytes unpacked at once.
const PIECE_BYTES: usize = 256 << 10;
/// The most bytes that one packed byte may stand for. Map data stays below 100; nothing but bombs comes near 1,000.
const RATIO_MAX: u64 = 250;
/// Below this size the ratio does not matter.
const RATIO_BYTES_MIN: u64 = 16 << 20;

/// Unpacks one file into another; the packed one is removed.
pub(super) async fn decode(packed: Spool, plain: Spool, bytes_max: u64, shown: String) -> Result<(Spool, u64)> {
    let failed = |error| Error::new(Kind::Internal, "unpacking").because(error);
    tokio::task::spawn_blocking(move || unpack(&packed, plain, bytes_max, &shown)).await.map_err(failed)?
}

fn unpack(packed: &Spool, mut plain: Spool, bytes_max: u64, shown: &str) -> Result<(Spool, u64)> {
    let unread = |error: std::io::Error| disk(&error, "reading", packed.path());
    let file = File::open(packed.path()).map_err(unread)?;
    let packed_bytes = file.metadata().map_err(unread)?.len();
    let longest = bytes_max.min(packed_bytes.saturating_mul(RATIO_MAX).max(RATIO_BYTES_MIN));
    let mut reader = MultiGzDecoder::new(file);
    let (mut piece, mut bytes) = (vec![0; PIECE_BYTES], 0);
    loop {
        let count = reader.read(&mut piece).map_err(|error| {
            Error::new(Kind::Corrupt, format!("unpacking {shown}, which the server sent as gzip")).because(error)
        })?;
        if count == 0 {
            return Ok((plain, bytes));
        }
        bytes += count as u64;
        if bytes > longest {
            let message = format!("{shown} unpacks to more than {longest} bytes from {packed_bytes}");
            return Err(Error::new(Kind::Invalid, message));
        }
        plain.write(&piece[..count])?;
    }
}
