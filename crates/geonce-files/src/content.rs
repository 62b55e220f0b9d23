//! The digest of what a file holds, whatever it is called and however it is packed.
//!
//! Of a shapefile: SHA-256 over `shapefile` and, for each of .cpg, .dbf, .prj and .shp that is there, in this order, its
//! extension (three bytes, lower case) and the SHA-256 of its bytes. Of the .dbf the bytes 1 to 3, the date of the last
//! writing, count as zero. Of .prj and .cpg white space, zeros and a byte order mark around the text do not count, nor do
//! cases in a .cpg; empty ones count as absent. The .shx says nothing that the .shp does not say.
//! Of a GeoPackage beside which a log of changes waits (`-wal`): SHA-256 over `geopackage` and the SHA-256 of both.
//! Of any other file: SHA-256 of its bytes.

use crate::archive::Packed;
use crate::shapefile::{SIDECAR_BYTES_MAX, Set};
use crate::sniff::{self, Kind, unreadable};
use crate::{Content, Format, Options, Result};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

/// Bytes asked for at once.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces that are read before they are digested.
const PIECES_MAX: usize = 4;

pub(crate) fn digest(path: &Path, options: &Options) -> Result<Content> {
    match sniff::kind(path, options)? {
        Kind::Zip => packed(path, options),
        Kind::Plain(Format::Shapefile) => {
            let set = Set::beside(path)?;
            let mut parts = Parts::default();
            for (extension, part) in [("cpg", set.cpg), ("dbf", set.dbf), ("prj", set.prj), ("shp", set.shp)] {
                let Some(part) = part else { continue };
                parts.take(extension, &mut sniff::open(&part)?).map_err(|error| unreadable(&part, &error))?;
            }
            Ok(parts.content())
        }
        Kind::Plain(Format::GeoPackage) if let Some(log) = waiting_log(path) => {
            let mut digest = Sha256::new_with_prefix(b"geopackage");
            let mut bytes = 0;
            for part in [path, &log] {
                let (sha256, count) = whole(&mut sniff::open(part)?, &[]).map_err(|error| unreadable(part, &error))?;
                digest.update(sha256);
                bytes += count;
            }
            Ok(Content { sha256: digest.finalize().into(), bytes })
        }
        Kind::Plain(_) => {
            let mut file: fs::File = sniff::open(path)?;
            let (sha256, bytes) = whole(&mut file, &[]).map_err(|error| unreadable(path, &error))?;
            Ok(Content { sha256, bytes })
        }
    }
}

/// What others have written to a GeoPackage and not yet brought into its file: readers see it all the same.
fn waiting_log(path: &Path) -> Option<PathBuf> {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    let log = PathBuf::from(name);
    log.metadata().is_ok_and(|about| about.len() > 0).then_some(log)
}

fn packed(path: &Path, options: &Options) -> Result<Content> {
    let mut packed = Packed::open(path, options)?;
    if packed.format == Format::Shapefile {
        let mut parts = Parts::default();
        packed.each(|extension, bytes| match extension {
            "shx" => io::copy(bytes, &mut io::sink()).map(|_| ()),
            _ => parts.take(extension, bytes),
        })?;
        return Ok(parts.content());
    }
    let mut content = Content { sha256: [0; 32], bytes: 0 };
    packed.each(|_, bytes| {
        (content.sha256, content.bytes) = whole(bytes, &[])?;
        Ok(())
    })?;
    Ok(content)
}

/// Digests of the parts of a shapefile.
#[derive(Default)]
struct Parts {
    found: Vec<(String, [u8; 32])>,
    bytes: u64,
}

impl Parts {
    fn take(&mut self, extension: &str, bytes: &mut (dyn Read + Send)) -> io::Result<()> {
        let (sha256, count) = match extension {
            "dbf" => whole(bytes, &[1, 2, 3])?,
            "prj" | "cpg" => {
                let mut text = Vec::new();
                bytes.take(SIDECAR_BYTES_MAX).read_to_end(&mut text)?;
                let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
                let mut text = trimmed(text).to_vec();
                if text.is_empty() {
                    return Ok(());
                }
                if extension == "cpg" {
                    text.make_ascii_lowercase();
                }
                (Sha256::digest(&text).into(), text.len() as u64)
            }
            _ => whole(bytes, &[])?,
        };
        self.found.push((extension.to_owned(), sha256));
        self.bytes += count;
        Ok(())
    }

    fn content(mut self) -> Content {
        self.found.sort();
        let mut hasher = Sha256::new();
        hasher.update(b"shapefile");
        for (extension, sha256) in &self.found {
            hasher.update(extension);
            hasher.update(sha256);
        }
        Content { sha256: hasher.finalize().into(), bytes: self.bytes }
    }
}

fn trimmed(text: &[u8]) -> &[u8] {
    let counts = |byte: &u8| !byte.is_ascii_whitespace() && *byte != 0;
    let start = text.iter().position(counts).unwrap_or(text.len());
    let end = text.iter().rposition(counts).map_or(start, |last| last + 1);
    &text[start..end]
}

/// The digest of all bytes, those at `blank` taken as zero, and how many there are. One thread reads while another digests:
/// what is loaded already is only read, and the sooner that is known the better.
fn whole(reader: &mut (dyn Read + Send), blank: &[usize]) -> io::Result<([u8; 32], u64)> {
    let (full, pieces) = mpsc::sync_channel::<(Vec<u8>, usize)>(PIECES_MAX);
    let (empty, used) = mpsc::channel();
    std::thread::scope(|scope| {
        let digesting = scope.spawn(move || {
            let (mut hasher, mut bytes) = (Sha256::new(), 0_u64);
            for (mut piece, count) in pieces {
                for &place in blank {
                    let here = (place as u64).checked_sub(bytes).and_then(|place| usize::try_from(place).ok());
                    if let Some(byte) = here.and_then(|place| piece[..count].get_mut(place)) {
                        *byte = 0;
                    }
                }
                hasher.update(&piece[..count]);
                bytes += count as u64;
                // Whoever reads may have come to the end.
                let _ = empty.send(piece);
            }
            (hasher.finalize().into(), bytes)
        });
        loop {
            let mut piece = used.try_recv().unwrap_or_else(|_| vec![0; PIECE_BYTES]);
            match reader.read(&mut piece) {
                Ok(0) => break,
                Ok(count) if full.send((piece, count)).is_ok() => {}
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        drop(full);
        digesting.join().map_err(|_| io::Error::other("digesting failed"))
    })
}

#[cfg(test)]
mod tests;
