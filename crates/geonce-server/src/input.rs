//! Reads files and standard input piece by piece and divides them into payloads.

use crate::failure::Failure;
use geonce_key::split::{Broken, Collection, Format, Item, Splitter};
use geonce_key::{Code, Error, Limits};
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

/// Bytes asked for at once.
const PIECE_BYTES: usize = 256 << 10;

/// An input that is being divided.
pub(crate) struct Input {
    reader: Box<dyn Read>,
    name: String,
    splitter: Splitter,
    piece: Vec<u8>,
    ended: bool,
    /// Set where a first pass has found the document around the features to be broken.
    refused: Option<Error>,
    bytes_total: Option<u64>,
    bytes_read: u64,
}

/// A payload, or a refused place.
pub(crate) type Found = Result<Item, Broken>;

impl Input {
    /// Opens a file, or standard input for `-`.
    pub(crate) fn open(path: &Path, format: Format, envelope: bool, limits: &Limits) -> Result<Input, Failure> {
        let format = if format == Format::Auto { by_name(path) } else { format };
        let splitter = Splitter::new(format, envelope, limits);
        if path == Path::new("-") {
            if io::stdin().is_terminal() {
                eprintln!("reading standard input; end with Ctrl-D");
            }
            return Ok(Input::new(Box::new(io::stdin()), "standard input".to_owned(), splitter));
        }
        let name = path.display().to_string();
        let failure = |error: io::Error| Failure::io(&name, &error);
        let file = File::open(path).map_err(failure)?;
        let metadata = file.metadata().map_err(failure)?;
        if metadata.is_dir() {
            return Err(Failure::new("io", format!("{name} is a folder")).hint("give a file, or - for standard input"));
        }
        let mut input = Input::new(Box::new(file), name.clone(), splitter);
        if !metadata.is_file() {
            return Ok(input);
        }
        input.bytes_total = Some(metadata.len());
        let second = || File::open(path).map_err(failure);
        match input.first_pass()? {
            FirstPass::NotNeeded => {
                let mut again = Input::new(Box::new(second()?), name.clone(), Splitter::new(format, envelope, limits));
                again.bytes_total = input.bytes_total;
                Ok(again)
            }
            FirstPass::Collection(collection) => {
                let splitter = Splitter::new(format, envelope, limits).knowing(collection);
                let mut again = Input::new(Box::new(second()?), name.clone(), splitter);
                again.bytes_total = input.bytes_total;
                Ok(again)
            }
            FirstPass::Refused(error) => {
                input.refused = Some(error);
                input.ended = true;
                Ok(input)
            }
        }
    }

    fn new(reader: Box<dyn Read>, name: String, splitter: Splitter) -> Input {
        Input {
            reader,
            name,
            splitter,
            piece: vec![0; PIECE_BYTES],
            ended: false,
            refused: None,
            bytes_total: None,
            bytes_read: 0,
        }
    }

    /// A file's `FeatureCollection` is read twice where its coordinate system may be declared behind its features.
    fn first_pass(&mut self) -> Result<FirstPass, Failure> {
        let mut last_refusal = None;
        loop {
            while let Some(found) = self.splitter.next() {
                // A system that is known while features are still coming was declared before them.
                let known = found.is_ok() && self.splitter.collection().crs.is_some();
                if !self.splitter.is_collection() || known {
                    return Ok(FirstPass::NotNeeded);
                }
                last_refusal = found.err().map(|broken| broken.error);
            }
            if !self.read_piece()? {
                break;
            }
        }
        // Elements of something that is no FeatureCollection are no features; any other refusal leaves them alone.
        Ok(match last_refusal {
            Some(error) if matches!(error.code(), Code::GeojsonType | Code::GeojsonForeignMember) => {
                FirstPass::Refused(error)
            }
            _ => FirstPass::Collection(self.splitter.collection()),
        })
    }

    /// Reads more; false at the end, which the splitter has then been told.
    pub(crate) fn read_piece(&mut self) -> Result<bool, Failure> {
        if self.ended {
            return Ok(false);
        }
        loop {
            match self.reader.read(&mut self.piece) {
                Ok(0) => {
                    self.ended = true;
                    self.splitter.finish();
                    return Ok(true);
                }
                Ok(count) => {
                    self.bytes_read += count as u64;
                    self.splitter.feed(&self.piece[..count]);
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::io(&self.name, &error)),
            }
        }
    }

    /// The next payload among the bytes read so far.
    pub(crate) fn next(&mut self) -> Option<Found> {
        if let Some(error) = self.refused.take() {
            return Some(Err(Broken { line: 1, error }));
        }
        self.splitter.next()
    }

    pub(crate) fn bytes(&self, item: &Item) -> &[u8] {
        self.splitter.bytes(item)
    }

    pub(crate) fn collection(&self) -> Collection {
        self.splitter.collection()
    }

    /// Bytes read, and bytes there are where that is known.
    pub(crate) fn progress(&self) -> (u64, Option<u64>) {
        (self.bytes_read, self.bytes_total)
    }
}

enum FirstPass {
    NotNeeded,
    Collection(Collection),
    Refused(Error),
}

fn by_name(path: &Path) -> Format {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match extension.to_ascii_lowercase().as_str() {
        "ndjson" | "jsonl" | "geojsonl" | "ldjson" => Format::Lines,
        "wkt" => Format::Wkt,
        "wkb" => Format::Wkb,
        _ => Format::Auto,
    }
}
