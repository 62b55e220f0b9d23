//! Loads files into layers, each once: reads, keys and writes beside each other, all or nothing for whoever reads the layer.
//!
//! A load is a run of the [`ledger`](crate::ledger) under its key. The destination keeps its own record of it in the same
//! transaction as the rows: a runner that dies between the two leaves a load that is done, and whoever comes next finds that.

mod feature;
pub mod fetch;
mod key;
mod pipeline;
mod report;
mod request;
mod source;
pub mod target;

#[cfg(test)]
mod tests;

pub use key::{KeyBy, Origin, destination_name, load_text};
pub use report::{FLAWS_MAX, Flaw, Report};
pub use request::{Invalid, Progress, Request, TargetCrs};

use crate::clock::{Clock, Stopwatch};
use crate::error::{Error, Kind};
use crate::event::{Cause, Class, EventId, Ids, State};
use crate::ledger::{Begun, Ledger, Run, Task};
use crate::retry::Retry;
use crate::store::{Admission, NewEvent, RUNS, ResultText, Route, Store};
use bytes::Bytes;
use feature::{Made, Recipe, Shaped, Shaper};
use geonce_key::{Fingerprint, Form, Kind as Shapes};
use pipeline::Pipeline;
use report::Fate;
use sha2::{Digest, Sha256};
use source::{content, from_crs, from_hex, modified, stamp};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use target::{Known, Mode, Piece, Plan, Target};
use tokio::sync::Notify;

/// The ledger of loads.
const LEDGER: &str = "load";
/// The source of features that a load keeps as dead.
const DEAD_SOURCE: &str = "@load";
/// The ledger of digests that were made of files.
const DIGESTS: &str = "digest";

/// What became of a request.
#[derive(Debug)]
pub enum Outcome {
    /// It was loaded now.
    Loaded(Box<Report>),
    /// It was loaded before.
    Already(Box<Report>),
    /// Another runner is at it.
    Running(EventId),
    /// It failed for a reason that time does not mend.
    Dead(Cause),
    /// It was stopped; what was committed stays, and nothing else.
    Interrupted,
}

/// Why a load failed.
#[derive(Debug)]
pub enum Trouble {
    /// Because of what is in the file: the same file will fail again.
    Input(geonce_files::Error),
    /// Because of the store or the destination.
    Engine(Error),
}

/// What loading comes to.
pub type Result<T> = std::result::Result<T, Trouble>;

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Engine(error)
    }
}

impl From<geonce_files::Error> for Trouble {
    fn from(error: geonce_files::Error) -> Trouble {
        Trouble::Input(error)
    }
}

impl Trouble {
    fn is_transient(&self) -> bool {
        matches!(self, Trouble::Engine(error) if error.is_transient())
    }

    fn cause(&self) -> Cause {
        match self {
            Trouble::Input(error) => Cause::new(Class::Schema, error.code(), error.message()),
            Trouble::Engine(error) if error.is_transient() => {
                Cause::new(Class::Unavailable, error.kind().as_str(), error.to_string())
            }
            Trouble::Engine(error) => Cause::new(Class::Constraint, error.kind().as_str(), error.to_string()),
        }
    }
}

/// Loads files, with a store that knows what was loaded.
pub struct Loader {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ledger: Ledger,
    ids: Ids,
}

/// A source that has been looked at.
pub struct Looked {
    /// What the load is known by.
    pub key: Fingerprint,
    /// The digest of the source, where it was made.
    pub sha256: Option<[u8; 32]>,
    /// Whether the digest is of an earlier day: size, time and inode are unchanged.
    pub trusted: bool,
}

impl Loader {
    /// A loader; the store is opened by a runner or a gateway.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Loader {
        let ledger = Ledger::new(Arc::clone(&store), Arc::clone(&clock), LEDGER);
        Loader { store, clock, ledger, ids: Ids::new() }
    }

    /// The same loader with another time after which a runner that is not heard of counts as gone.
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Loader {
        self.ledger = self.ledger.with_lease(lease);
        self
    }

    /// The key of a load.
    pub async fn look(&self, request: &Request) -> Result<Looked> {
        let (origin, trusted) = match request.key_by {
            KeyBy::Content => {
                let (digest, trusted) = self.digest(request).await?;
                (Origin::Content(digest), trusted)
            }
            KeyBy::Uri => (Origin::Uri(request.uri.clone(), None), false),
            KeyBy::UriAndTime => {
                let time = request.modified.or_else(|| modified(&request.file));
                (Origin::Uri(request.uri.clone(), time), false)
            }
        };
        let key = key::load_key(request, &origin, self.clock.now());
        let sha256 = if let Origin::Content(digest) = origin { Some(digest) } else { None };
        Ok(Looked { key, sha256, trusted })
    }

    /// What a load came to, if it is done. For sources that need not be fetched then.
    pub async fn find(&self, looked: &Looked) -> Result<Option<Report>> {
        let record = self.ledger.find(&looked.key).await?.filter(|record| record.state == State::Done);
        Ok(record.and_then(|record| Report::read(record.result.as_deref()?)))
    }

    /// The digest of a file, and whether an earlier one stands for it.
    async fn digest(&self, request: &Request) -> Result<([u8; 32], bool)> {
        let stamp = if request.trust_mtime { stamp(&request.file) } else { None };
        let Some(stamp) = stamp else { return Ok((content(request).await?, false)) };
        let digests = Ledger::new(Arc::clone(&self.store), Arc::clone(&self.clock), DIGESTS);
        let key = Fingerprint::from_digest(Sha256::digest(&stamp).into(), false);
        let task = Task { key, payload: stamp.into() };
        match digests.wait(&task, request.wait).await? {
            Begun::Done { result: Some(result), .. } if let Some(digest) = from_hex(&result) => Ok((digest, true)),
            Begun::Started(run) => match content(request).await {
                Ok(digest) => {
                    run.done(Some(ResultText::new(key::hex(&digest))?)).await?;
                    Ok((digest, false))
                }
                Err(trouble) => {
                    run.release(trouble.cause()).await?;
                    Err(trouble)
                }
            },
            _ => Ok((content(request).await?, false)),
        }
    }

    /// Loads a source, unless it is loaded. When `stop` is notified nothing more is committed, and the next runner may begin
    /// at once.
    pub async fn load(
        &self,
        request: &Request,
        looked: &Looked,
        progress: &Progress,
        stop: &Notify,
    ) -> Result<Outcome> {
        let mut key = looked.key;
        if request.force {
            // A run of its own: the one that is done stays what it is.
            let again = [key.digest().as_slice(), &crate::event::random().to_be_bytes()].concat();
            key = Fingerprint::from_digest(Sha256::digest(&again).into(), false);
        }
        let payload = serde_json::json!({
            "source": request.source, "destination": request.destination_name, "layer": request.layer,
            "mode": request.mode.as_str(), "load": load_text(&looked.key),
        });
        let task = Task { key, payload: payload.to_string().into() };
        let mut begun = tokio::select! {
            begun = self.ledger.wait(&task, request.wait) => begun?,
            () = stop.notified() => return Ok(Outcome::Interrupted),
        };
        if request.retry && matches!(begun, Begun::Dead { .. }) && self.ledger.replay(&key).await? {
            begun = self.ledger.wait(&task, request.wait).await?;
        }
        match begun {
            Begun::Started(run) => self.run(request, looked, run, progress, stop).await,
            Begun::Running { event, .. } => Ok(Outcome::Running(event)),
            Begun::Done { result, .. } => {
                let report = result.as_deref().and_then(Report::read).unwrap_or_default();
                Ok(Outcome::Already(Box::new(report)))
            }
            Begun::Dead { cause, .. } => Ok(Outcome::Dead(cause)),
        }
    }

    /// Reads and keys everything, and writes nothing.
    pub async fn rehearse(&self, request: &Request, looked: &Looked, progress: &Progress) -> Result<Report> {
        let mut report = self.report(request, looked);
        let file = geonce_files::open(&request.file, &request.files)?;
        let from = from_crs(request, &file)?;
        let to = request.target_crs.code(from).unwrap_or(TARGET_CRS);
        report.crs = [from, to];
        progress.total.store(file.layer.features.unwrap_or(0), Ordering::Relaxed);
        let recipe = recipe(request, &file, from, to);
        let shaper = || Shaper::new(recipe.clone());
        let mut pipeline = Pipeline::start(file.rows, 0, None, &Known::default(), shaper)?;
        while let Some(batch) = pipeline.next().await? {
            for made in batch {
                report.features += 1;
                let Made::Shaped(Shaped { number, piece, repaired, .. }) = made else { continue };
                match (piece, repaired) {
                    (Ok(_), None) => {}
                    (Ok(_), Some(cause)) => report.note(Fate::Repaired, Flaw::of(number, &cause)),
                    (Err(cause), _) if request.invalid == Invalid::Dead => {
                        report.note(Fate::Dead, Flaw::of(number, &cause));
                    }
                    (Err(cause), _) => report.note(Fate::Rejected, Flaw::of(number, &cause)),
                }
            }
            progress.features.store(report.features, Ordering::Relaxed);
        }
        Ok(report)
    }

    fn report(&self, request: &Request, looked: &Looked) -> Report {
        Report {
            load: load_text(&looked.key),
            source: request.source.clone(),
            sha256: looked.sha256.map(|digest| key::hex(&digest)),
            mode: request.mode.as_str().to_owned(),
            begun: self.clock.now().to_string(),
            ..Report::default()
        }
    }

    /// Carries out a load that is ours, and ends the run.
    async fn run(
        &self,
        request: &Request,
        looked: &Looked,
        run: Run,
        progress: &Progress,
        stop: &Notify,
    ) -> Result<Outcome> {
        let attempts = async {
            let mut failures = 0;
            loop {
                match self.attempt(request, looked, &run, progress).await {
                    Err(trouble) if trouble.is_transient() && failures < request.retries => {
                        tracing::warn!(error = ?trouble, "the load is tried again");
                        failures += 1;
                        let seed = u64::try_from(crate::event::random() >> 64).unwrap_or(0);
                        tokio::time::sleep(Retry::default().delay(failures, seed)).await;
                    }
                    ended => return ended,
                }
            }
        };
        let lost = || Error::new(Kind::Unavailable, "loading: another runner has taken this load over");
        let ended = tokio::select! {
            ended = attempts => ended,
            () = run.keep() => return Err(lost().hint("the store did not hear of this runner for too long").into()),
            () = stop.notified() => {
                run.release(Cause::new(Class::Unavailable, "interrupted", "the runner was interrupted")).await?;
                return Ok(Outcome::Interrupted);
            }
        };
        match ended {
            Ok((report, found)) => {
                // The destination is the truth of it: whoever took the run over finds the same there.
                run.done(Some(ResultText::new(report.text())?)).await?;
                Ok(if found { Outcome::Already(report) } else { Outcome::Loaded(report) })
            }
            Err(trouble) => {
                let cause = trouble.cause();
                let told = match &trouble {
                    Trouble::Input(_) => run.dead(cause).await,
                    Trouble::Engine(_) => run.release(cause).await,
                };
                if let Err(error) = told {
                    tracing::warn!(%error, "the store could not be told that the load failed");
                }
                Err(trouble)
            }
        }
    }

    /// One go at it: the report, and whether the destination had it already.
    async fn attempt(
        &self,
        request: &Request,
        looked: &Looked,
        run: &Run,
        progress: &Progress,
    ) -> Result<(Box<Report>, bool)> {
        let took = Stopwatch::start();
        let mut report = Box::new(self.report(request, looked));
        let file = geonce_files::open(&request.file, &request.files)?;
        let from = from_crs(request, &file)?;
        let plan = Plan {
            layer: request.layer.clone(),
            mode: request.mode,
            crs: request.target_crs.code(from),
            fields: file.layer.fields.clone(),
            expected: file.layer.features.unwrap_or(0).min(request.chunk.map_or(u64::MAX, NonZero::get)),
            load: looked.key,
            event: run.event(),
            begun: self.clock.now(),
            again: request.force,
            timeout: request.timeout,
        };
        let mut target = target::open(&request.destination, plan, &request.folder).await?;
        if let Some(result) = &target.standing().result {
            return Ok((Report::read(result).map_or(report, Box::new), true));
        }
        report.crs = [from, target.crs()];
        report.table = target.place();
        report.notices.clone_from(&file.layer.notices);
        report.features = target.standing().features;
        report.resume(&target.standing().notes);
        progress.total.store(file.layer.features.unwrap_or(0), Ordering::Relaxed);
        let recipe = recipe(request, &file, from, target.crs());
        let make_shaper = || Shaper::new(recipe.clone());
        let pipeline = Pipeline::start(file.rows, report.features, request.chunk, &target.known(), make_shaper)?;
        let shaper = make_shaper().map_err(|error| pipeline::invalid(&error))?;
        self.pour(request, pipeline, shaper, &mut *target, &mut report, progress).await?;
        let features = report.features;
        let (kept, clock) = (report.clone(), Arc::clone(&self.clock));
        let seconds = took.elapsed().as_secs_f64();
        let finished = move |mut report: Report, tally| {
            report.count(tally);
            report.finished = clock.now().to_string();
            report.seconds = (seconds * 1e3).round() / 1e3;
            report
        };
        let of_tally = finished.clone();
        let tally = target.finish(features, Box::new(move |tally| of_tally(*kept, tally).text())).await?;
        Ok((Box::new(finished(*report, tally)), false))
    }

    /// Everything that the pipeline gives, into the target.
    async fn pour(
        &self,
        request: &Request,
        mut pipeline: Pipeline,
        mut shaper: Shaper,
        target: &mut dyn Target,
        report: &mut Report,
        progress: &Progress,
    ) -> Result<()> {
        let (mut committed, mut held, known) = (report.features, Held::default(), target.known());
        while let Some(batch) = pipeline.next().await? {
            let mut unchanged = 0;
            for made in batch {
                report.features += 1;
                let shaped = match made {
                    Made::Shaped(shaped) => shaped,
                    Made::Unchanged(finding, _) if known.stands(&finding) => {
                        unchanged += 1;
                        continue;
                    }
                    // Something before it in the file was about the same entity, or others may have written.
                    Made::Unchanged(_, row) => shaper.shape(row),
                };
                let Shaped { number, piece, repaired, payload } = shaped;
                if let Some(cause) = repaired {
                    report.note(Fate::Repaired, Flaw::of(number, &cause));
                }
                match piece {
                    Ok(piece) => {
                        if let Some(entity) = &piece.entity {
                            known.touch(entity.digest());
                        }
                        held.add(piece, payload);
                    }
                    Err(cause) => {
                        held.bytes += payload.as_ref().map_or(0, Bytes::len);
                        self.bad(request, number, cause, payload, report, &mut held.letters);
                    }
                }
            }
            target.count_unchanged(unchanged);
            let ends_part = request.chunk.is_some_and(|chunk| report.features - committed >= chunk.get());
            // Where most is unchanged, the rest of several batches is written at once.
            if ends_part || held.is_enough() || !known.is_complete() {
                self.write(request, std::mem::take(&mut held), target, report).await?;
            }
            progress.features.store(report.features, Ordering::Relaxed);
            progress.bad.store(report.rejected + report.dead, Ordering::Relaxed);
            if ends_part {
                target.commit(report.features, report.notes()).await?;
                committed = report.features;
            }
        }
        self.write(request, held, target, report).await
    }

    /// Writes what is held. What the target refuses is kept where that is asked for.
    async fn write(&self, request: &Request, held: Held, target: &mut dyn Target, report: &mut Report) -> Result<()> {
        let Held { pieces, payloads, mut letters, .. } = held;
        for target::Refused { number, cause } in target.write(pieces).await? {
            let found = payloads.binary_search_by_key(&number, |(number, _)| *number);
            let payload = found.ok().map(|at| payloads[at].1.clone());
            self.bad(request, number, cause, payload, report, &mut letters);
        }
        if !letters.is_empty() {
            // Before the rows are committed: what is left out there is found here, whatever happens between.
            self.store.accept(letters, self.clock.now()).await?;
        }
        Ok(())
    }

    /// Notes a feature that is not written, and keeps it where that is asked for.
    fn bad(
        &self,
        request: &Request,
        number: u64,
        cause: Cause,
        payload: Option<Bytes>,
        report: &mut Report,
        letters: &mut Vec<NewEvent>,
    ) {
        let flaw = Flaw::of(number, &cause);
        if request.invalid != Invalid::Dead {
            return report.note(Fate::Rejected, flaw);
        }
        report.note(Fate::Dead, flaw);
        let payload = payload.unwrap_or_default();
        let mut digest = Sha256::new();
        // The same feature, bad for the same destination, is kept once.
        for part in [b"geonce load feature\0", request.destination_name.as_bytes(), request.layer.as_bytes()] {
            digest.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            digest.update(part);
        }
        digest.update(&payload);
        let key = Fingerprint::from_digest(digest.finalize().into(), false);
        let cause = Cause { message: format!("{} {number}: {}", request.source, cause.message), ..cause };
        letters.push(NewEvent {
            id: self.ids.next(self.clock.now()),
            source: DEAD_SOURCE.into(),
            key,
            aliases: Vec::new(),
            spatial: Vec::new(),
            content: Sha256::digest(&payload).into(),
            form: Form::Json,
            crs: None,
            order: None,
            payload,
            admission: Admission::Dead(cause, [Route::to(RUNS)].into()),
        });
    }
}

/// Features that are held until they are worth a write,
const HELD_MAX: usize = 512;
/// and about the memory that they take.
const HELD_BYTES_MAX: usize = 1 << 20;

/// Features on their way to the target.
#[derive(Default)]
struct Held {
    pieces: Vec<Piece>,
    /// What they were made of, where that may be needed.
    payloads: Vec<(u64, Bytes)>,
    /// Those that cannot be written.
    letters: Vec<NewEvent>,
    bytes: usize,
}

impl Held {
    fn add(&mut self, piece: Piece, payload: Option<Bytes>) {
        let positions = piece.geometry.as_ref().map_or(0, |shape| shape.positions.len());
        self.bytes += 64 * (positions + piece.values.len()) + payload.as_ref().map_or(0, Bytes::len);
        self.payloads.extend(payload.map(|payload| (piece.number, payload)));
        self.pieces.push(piece);
    }

    fn is_enough(&self) -> bool {
        self.pieces.len() + self.letters.len() >= HELD_MAX || self.bytes >= HELD_BYTES_MAX
    }
}

/// The coordinate system of a layer that is made without being told one.
const TARGET_CRS: u32 = 4326;

fn recipe(request: &Request, file: &geonce_files::File, from_crs: u32, to_crs: u32) -> Recipe {
    let mut policy = request.policy.clone();
    policy.close_rings |= request.invalid == Invalid::Repair;
    if policy.accept.types.is_none() {
        // Files have features without geometry, and it is no mistake there.
        let all = Shapes::ALL.iter().map(|kind| kind.name()).chain(["GeometryCollection", "null"]);
        policy.accept.types = Some(all.map(str::to_owned).collect());
    }
    Recipe {
        policy,
        fields: file.layer.fields.clone(),
        from_crs,
        to_crs,
        invalid: request.invalid,
        has_entities: matches!(request.mode, Mode::Upsert { .. }),
    }
}
