//! Reading, keying and writing beside each other, in the order of the file and in bounded memory.
//!
//! One thread reads; each batch goes to the next of the keying threads in turn, and is taken from them in the same turn. A
//! pipeline that is dropped ends its threads.

use super::feature::{Made, Shaper};
use super::target::Known;
use super::{Result, Trouble};
use crate::error::{Error, Kind};
use geonce_files::{Item, Rows};
use std::num::NonZero;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use tokio::sync::mpsc;

/// The most features of a batch,
const BATCH_FEATURES: usize = 1_024;
/// and about the most memory of one.
const BATCH_BYTES: usize = 1 << 20;
/// Batches that wait for a thread, and after it.
const WAITING: usize = 1;
/// More threads than this find nothing to do behind one reader.
const THREADS_MAX: usize = 8;

type Read = geonce_files::Result<Vec<Item>>;
type Shaped = geonce_files::Result<Vec<Made>>;

/// Features of a file, made ready by threads.
pub(super) struct Pipeline {
    made: Vec<mpsc::Receiver<Shaped>>,
    turn: usize,
}

impl Pipeline {
    /// Begins to read after the first `skip` features. Batches end where `cut` features end. What is `known` to be unchanged is
    /// not made into a feature.
    pub(super) fn start(
        rows: Box<dyn Rows>,
        skip: u64,
        cut: Option<NonZero<u64>>,
        known: &Known,
        shaper: impl Fn() -> std::result::Result<Shaper, geonce_key::Error>,
    ) -> Result<Pipeline> {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX);
        let (mut to_threads, mut made) = (Vec::new(), Vec::new());
        for _ in 0..threads {
            let shaper = shaper().map_err(|error| invalid(&error))?;
            let (give, take) = sync_channel(WAITING);
            let (pass, receive) = mpsc::channel(WAITING);
            let known = known.clone();
            spawn("load keys", move || make(shaper, &known, &take, &pass))?;
            to_threads.push(give);
            made.push(receive);
        }
        spawn("load reads", move || Reading { rows, skip, cut, number: 0 }.run(&to_threads))?;
        Ok(Pipeline { made, turn: 0 })
    }

    /// The next batch; none at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Made>>> {
        let turn = self.turn;
        self.turn = (turn + 1) % self.made.len();
        match self.made[turn].recv().await {
            Some(made) => Ok(Some(made?).filter(|batch| !batch.is_empty())),
            // Not the end of the file, which is an empty batch: taking it for that would lose what follows.
            None => Err(Error::new(Kind::Internal, "loading: a thread ended before the file did").into()),
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    spawned.map(|_| ()).map_err(|error| Error::new(Kind::Resource, "starting to load").because(error).into())
}

pub(super) fn invalid(error: &geonce_key::Error) -> Trouble {
    let failure = geonce_files::Error::new(error.code().as_str(), error.message().to_owned());
    Trouble::Input(match error.hint_text() {
        Some(hint) => failure.hint(hint),
        None => failure,
    })
}

fn make(mut shaper: Shaper, known: &Known, take: &Receiver<Read>, pass: &mpsc::Sender<Shaped>) {
    while let Ok(read) = take.recv() {
        let made = read.map(|items| items.into_iter().map(|item| shaper.make(item, known)).collect());
        if pass.blocking_send(made).is_err() {
            return;
        }
    }
}

struct Reading {
    rows: Box<dyn Rows>,
    skip: u64,
    cut: Option<NonZero<u64>>,
    /// Features read so far.
    number: u64,
}

impl Reading {
    fn run(mut self, threads: &[SyncSender<Read>]) {
        for thread in threads.iter().cycle() {
            let batch = self.batch();
            let ends = batch.as_ref().map_or(true, Vec::is_empty);
            if thread.send(batch).is_err() || ends {
                return;
            }
        }
    }

    /// The next features; none at the end of the file.
    fn batch(&mut self) -> Read {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH_FEATURES && bytes < BATCH_BYTES {
            let Some(item) = self.rows.next()? else { break };
            self.number += 1;
            if self.number <= self.skip {
                continue;
            }
            bytes += size(&item);
            batch.push(item);
            if self.cut.is_some_and(|cut| self.number % cut == 0) {
                break;
            }
        }
        Ok(batch)
    }
}

/// About the memory that a feature and its text take.
fn size(item: &Item) -> usize {
    match item {
        Item::Row(row) => 64 * row.geometry.as_ref().map_or(0, |shape| shape.positions.len()) + 64 * row.values.len(),
        Item::Bad(bad) => bad.bytes.len(),
    }
}
