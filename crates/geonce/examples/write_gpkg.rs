//! Writes features into a GeoPackage for `tests/python/check_gpkg.py`: one JSON Feature a line in, what became of it out.
//!
//!     write_gpkg FILE LAYER [crs=CODE] [mode=append|upsert|arrival] [batch=SIZE] [close=no]
//!
//! An empty line writes what has been read so far. With `close=no` the process ends at once, as if it had been killed.

use bytes::Bytes;
use geonce::clock::{Clock, SystemClock};
use geonce::event::Ids;
use geonce::sink::{Mode, Options, Outgoing, Sink, Written, open};
use geonce_key::policy::Field;
use geonce_key::{Form, Input, Keyer, Pointer, Policy, Reader};
use std::error::Error;
use std::io::{BufRead, Write};
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(file), Some(layer)) = (arguments.next(), arguments.next()) else { return Err("FILE LAYER".into()) };
    let mut options = Options { layer: Some(layer), ..Options::default() };
    let (mut batch_size, mut closes) = (256, true);
    for argument in arguments {
        match argument.split_once('=') {
            Some(("crs", code)) => options.crs = code.parse()?,
            Some(("mode", "append")) => options.mode = Mode::Append,
            Some(("mode", "upsert")) => options.mode = Mode::Upsert { arrival: false },
            Some(("mode", "arrival")) => options.mode = Mode::Upsert { arrival: true },
            Some(("batch", size)) => batch_size = size.parse()?,
            Some(("close", "no")) => closes = false,
            _ => return Err(format!("{argument}?").into()),
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let sink = open("example", &format!("gpkg:{file}"), &options, Path::new(""))?;
    let mut maker = Maker::new(options.mode)?;
    let mut batch = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if !line.is_empty() {
            batch.push(maker.event(&line)?);
        }
        if line.is_empty() || batch.len() == batch_size {
            runtime.block_on(write(&*sink, std::mem::take(&mut batch)))?;
        }
    }
    runtime.block_on(write(&*sink, batch))?;
    if !closes {
        std::process::exit(0);
    }
    Ok(runtime.block_on(sink.close())?)
}

async fn write(sink: &dyn Sink, batch: Vec<Outgoing>) -> Result<(), Box<dyn Error>> {
    let written = sink.write(batch).await?;
    let mut out = std::io::stdout().lock();
    for written in written {
        match written {
            Written::Done(outcome) => writeln!(out, "{outcome}")?,
            Written::Became(result) => writeln!(out, "{}", result.as_str())?,
            Written::Dead(cause) => writeln!(out, "dead {} {}", cause.class, cause.code)?,
            Written::Retry { cause, .. } => writeln!(out, "retry {}", cause.code)?,
        }
    }
    Ok(out.flush()?)
}

struct Maker {
    keyer: Keyer,
    reader: Reader,
    ids: Ids,
}

impl Maker {
    fn new(mode: Mode) -> geonce_key::Result<Maker> {
        let version = Pointer::parse("/properties/version")?;
        let policy =
            Policy { version: (mode == Mode::Upsert { arrival: false }).then_some(version), ..Policy::default() };
        let entity = [Field { optional: true, ..Field::required(Pointer::parse("/properties/name")?) }];
        Ok(Maker { keyer: Keyer::new(&policy)?, reader: Reader::new(&policy, Some(&entity))?, ids: Ids::new() })
    }

    fn event(&mut self, json: &str) -> geonce_key::Result<Outgoing> {
        let input = Input::json(json.as_bytes());
        let now = SystemClock.now();
        let key = self.keyer.key(input)?.fingerprint;
        let feature = self.reader.read(input)?;
        Ok(Outgoing {
            event: self.ids.next(now),
            key,
            origin: None,
            source: "example".into(),
            received: now,
            version: feature.version.clone(),
            entity: feature.entity,
            content: *key.digest(),
            rest: None,
            feature,
            form: Form::Json,
            payload: Bytes::copy_from_slice(json.as_bytes()),
            merge: None,
        })
    }
}
