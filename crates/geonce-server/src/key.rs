//! `geonce key`: one line per feature, in the order of the input, keyed on all cores.
//!
//! The reading thread divides the input into batches, workers key them, a writing thread puts the answers back in
//! order. Memory is bounded by the batches under way and the largest single feature.

use crate::arguments::KeyArguments;
use crate::failure::{Failure, Outcome};
use crate::input::{Found, Input};
use geonce_key::split::collection_in;
use geonce_key::validity;
use geonce_key::{Encoding, Error, Form, Keyed, Keyer, Policy};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex};

/// A batch is handed on when it has so many bytes or payloads.
const BATCH_BYTES: usize = 256 << 10;
const BATCH_ITEMS: usize = 2_048;

/// Runs the command; the answer is yes if everything was keyed.
pub(crate) fn run(arguments: &KeyArguments) -> Outcome {
    let policy = arguments.policy.policy()?;
    Keyer::new(&policy)?;
    let input = Input::open(&arguments.file, arguments.format.into(), policy.feature.is_some(), &policy.limits)?;
    let style = Style {
        encoding: arguments.encoding.into(),
        json: arguments.json,
        canonical: arguments.canonical,
        validity: arguments.validity,
        strict: arguments.strict,
    };
    let threads = match arguments.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let tally = if threads == 1 { on_one(input, &policy, style)? } else { on_many(input, &policy, style, threads)? };
    tally.report();
    Ok(tally.refused.is_empty())
}

/// What is known of a payload, as `--json --canonical --validity` writes it; of a collection, of each of its features, refused
/// ones among them.
pub(crate) fn described(policy: &Policy, input: geonce_key::Input<'_>) -> Result<Vec<String>, Error> {
    let style = Style { encoding: Encoding::Base64, json: true, canonical: true, validity: true, strict: false };
    let mut worker = Worker { keyer: Keyer::new(policy)?, style };
    let mut answer = Answer::default();
    match worker.keyer.key(input) {
        Ok(keyed) => worker.write(1, &keyed, &mut answer),
        Err(error) if worker.is_collection(&error, "", input.form) => {
            if collection_in(input.bytes, &policy.limits)?.is_none() {
                return Err(error);
            }
            worker.collection(1, input.bytes, &mut answer);
        }
        Err(error) => return Err(error),
    }
    Ok(answer.text.lines().map(str::to_owned).collect())
}

/// How answers are written.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
struct Style {
    encoding: Encoding,
    json: bool,
    canonical: bool,
    validity: bool,
    strict: bool,
}

/// Payloads on their way to a worker.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    crs: Option<u32>,
}

enum Entry {
    Payload { line: u64, pointer: String, form: Form, end: usize },
    Broken { line: u64, error: Error },
}

/// What was keyed and what was refused, by code.
#[derive(Default)]
struct Tally {
    keyed: u64,
    refused: BTreeMap<&'static str, u64>,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.keyed += other.keyed;
        for (code, count) in &other.refused {
            *self.refused.entry(code).or_default() += count;
        }
    }

    fn report(&self) {
        let refused: u64 = self.refused.values().sum();
        if refused > 0 {
            let codes: Vec<String> = self.refused.iter().map(|(code, count)| format!("{code} {count}")).collect();
            let all = self.keyed + refused;
            eprintln!("refused {refused} of {all}: {} (--json tells where and why)", codes.join(", "));
        } else if self.keyed == 0 {
            eprintln!("the input holds no payload");
        }
    }
}

/// Divides the input into batches until it ends or `deliver` says stop.
fn divide(mut input: Input, mut deliver: impl FnMut(Batch) -> Result<bool, Failure>) -> Result<(), Failure> {
    let progress = progress_bar(&input);
    let mut batch = Batch::default();
    loop {
        while let Some(found) = input.next() {
            batch.crs = input.collection().crs;
            batch.push(found, &input);
            if (batch.bytes.len() >= BATCH_BYTES || batch.entries.len() >= BATCH_ITEMS)
                && !deliver(std::mem::take(&mut batch))?
            {
                return Ok(());
            }
        }
        // What has arrived is answered before more is waited for: the input may be a slow pipe.
        if !batch.entries.is_empty() && !deliver(std::mem::take(&mut batch))? {
            return Ok(());
        }
        progress.set_position(input.progress().0);
        if !input.read_piece()? {
            progress.finish_and_clear();
            return Ok(());
        }
    }
}

impl Batch {
    fn push(&mut self, found: Found, input: &Input) {
        self.entries.push(match found {
            Ok(item) => {
                self.bytes.extend_from_slice(input.bytes(&item));
                Entry::Payload { line: item.line, pointer: item.pointer, form: item.form, end: self.bytes.len() }
            }
            Err(broken) => Entry::Broken { line: broken.line, error: broken.error },
        });
    }
}

fn progress_bar(input: &Input) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match input.progress().1 {
        Some(total) => (ProgressBar::new(total), "{bar:32} {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left"),
        None => (ProgressBar::new_spinner(), "{spinner} {bytes}  {bytes_per_sec}"),
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn on_one(input: Input, policy: &Policy, style: Style) -> Result<Tally, Failure> {
    let mut worker = Worker::new(policy, style)?;
    let mut tally = Tally::default();
    let mut out = io::stdout().lock();
    divide(input, |batch| {
        let answer = worker.answer(&batch);
        out.write_all(answer.text.as_bytes()).map_err(|error| Failure::io("standard output", &error))?;
        tally.add(&answer.tally);
        Ok(!(style.strict && answer.stop))
    })?;
    Ok(tally)
}

/// The answers to one batch.
#[derive(Default)]
struct Answer {
    text: String,
    tally: Tally,
    /// Whether a refusal ended the work, under `--strict`.
    stop: bool,
}

fn on_many(input: Input, policy: &Policy, style: Style, threads: usize) -> Result<Tally, Failure> {
    let workers = (0..threads).map(|_| Worker::new(policy, style)).collect::<Result<Vec<_>, _>>()?;
    let (to_workers, batches) = mpsc::sync_channel::<(u64, Batch)>(threads);
    let batches = Arc::new(Mutex::new(batches));
    let (to_writer, answers) = mpsc::sync_channel::<(u64, Answer)>(threads * 2);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in workers {
            let (batches, to_writer) = (Arc::clone(&batches), to_writer.clone());
            scope.spawn(move || work(worker, &batches, &to_writer));
        }
        drop(to_writer);
        let stop = &stop;
        let writer = scope.spawn(move || write_in_order(&answers, stop));
        let mut number = 0;
        let divided = divide(input, |batch| {
            let sent = to_workers.send((number, batch)).is_ok();
            number += 1;
            Ok(sent && !stop.load(Ordering::Relaxed))
        });
        drop(to_workers);
        let written = writer.join().map_err(|_| Failure::new("internal", "the writing thread failed"))?;
        divided.and(written)
    })
}

fn work(mut worker: Worker, batches: &Mutex<Receiver<(u64, Batch)>>, to_writer: &SyncSender<(u64, Answer)>) {
    loop {
        let next = match batches.lock() {
            Ok(batches) => batches.recv(),
            Err(_) => return,
        };
        let Ok((number, batch)) = next else { return };
        if to_writer.send((number, worker.answer(&batch))).is_err() {
            return;
        }
    }
}

/// Writes answers in the order of their batches. After a stop it goes on receiving, so that no worker waits for
/// it for ever, but writes no more.
fn write_in_order(answers: &Receiver<(u64, Answer)>, stop: &AtomicBool) -> Result<Tally, Failure> {
    let mut out = io::stdout().lock();
    let mut waiting = BTreeMap::new();
    let mut next = 0;
    let mut tally = Tally::default();
    let mut result = Ok(());
    for (number, answer) in answers {
        waiting.insert(number, answer);
        while let Some(answer) = waiting.remove(&next) {
            next += 1;
            if stop.load(Ordering::Relaxed) {
                continue;
            }
            tally.add(&answer.tally);
            result = out.write_all(answer.text.as_bytes());
            if result.is_err() || answer.stop {
                stop.store(true, Ordering::Relaxed);
            }
        }
    }
    result.and_then(|()| out.flush()).map_err(|error| Failure::io("standard output", &error))?;
    Ok(tally)
}

/// Keys batches.
struct Worker {
    keyer: Keyer,
    style: Style,
}

impl Worker {
    fn new(policy: &Policy, style: Style) -> Result<Worker, Failure> {
        Ok(Worker { keyer: Keyer::new(policy)?, style })
    }

    fn answer(&mut self, batch: &Batch) -> Answer {
        let mut answer = Answer::default();
        let mut start = 0;
        for entry in &batch.entries {
            match entry {
                Entry::Broken { line, error } => self.refuse(*line, error, &mut answer),
                Entry::Payload { line, pointer, form, end } => {
                    let bytes = &batch.bytes[start..*end];
                    start = *end;
                    self.payload(*line, pointer, *form, bytes, batch.crs, &mut answer);
                }
            }
            if answer.stop && self.style.strict {
                break;
            }
        }
        answer
    }

    fn payload(&mut self, line: u64, pointer: &str, form: Form, bytes: &[u8], crs: Option<u32>, answer: &mut Answer) {
        match self.keyer.key(geonce_key::Input { form, bytes, crs }) {
            Ok(keyed) => self.write(line, &keyed, answer),
            Err(error) if self.is_collection(&error, pointer, form) => self.collection(line, bytes, answer),
            Err(error) => self.refuse(line, &error.under(pointer), answer),
        }
    }

    fn is_collection(&self, error: &Error, pointer: &str, form: Form) -> bool {
        let alone = pointer.is_empty() && form == Form::Json && self.keyer.policy().feature.is_none();
        alone && error.code() == geonce_key::Code::GeojsonType
    }

    /// A line that is a `FeatureCollection` of its own.
    fn collection(&mut self, line: u64, bytes: &[u8], answer: &mut Answer) {
        let limits = self.keyer.policy().limits.clone();
        let mut features = match collection_in(bytes, &limits) {
            Ok(Some(features)) => features,
            Ok(None) => {
                if let Err(error) = self.keyer.key(geonce_key::Input::json(bytes)) {
                    self.refuse(line, &error, answer);
                }
                return;
            }
            Err(error) => return self.refuse(line, &error, answer),
        };
        while let Some(found) = features.next() {
            match found {
                Ok(item) => {
                    let crs = features.collection().crs;
                    let input = geonce_key::Input { form: Form::Json, bytes: features.bytes(&item), crs };
                    match self.keyer.key(input) {
                        Ok(keyed) => self.write(line, &keyed, answer),
                        Err(error) => self.refuse(line, &error.under(&item.pointer), answer),
                    }
                }
                Err(broken) => self.refuse(line, &broken.error, answer),
            }
        }
    }

    fn write(&mut self, line: u64, keyed: &Keyed, answer: &mut Answer) {
        answer.tally.keyed += 1;
        if !self.style.json {
            keyed.fingerprint.write(self.style.encoding, &mut answer.text);
            answer.text.push('\n');
            return;
        }
        let text = |fingerprint: &geonce_key::Fingerprint| fingerprint.text(self.style.encoding);
        let warnings: Vec<_> = keyed
            .warnings
            .iter()
            .map(|w| serde_json::json!({"code": w.code, "pointer": w.pointer, "message": w.message}))
            .collect();
        let full = keyed.fingerprint.text(Encoding::Full);
        let digest = full.split_once('_').map_or("", |(_, digest)| digest);
        let mut object = serde_json::json!({
            "line": line,
            "key": text(&keyed.fingerprint),
            "aliases": keyed.aliases.iter().map(text).collect::<Vec<_>>(),
            "fingerprint": digest,
            "warnings": warnings,
        });
        if self.style.validity {
            object["validity"] = self.validity();
        }
        if self.style.canonical {
            object["canonical"] = String::from_utf8_lossy(self.keyer.canonical_bytes()).into();
        }
        answer.text.push_str(&object.to_string());
        answer.text.push('\n');
    }

    /// The validity report of the last payload, places in degrees.
    fn validity(&self) -> serde_json::Value {
        let policy = self.keyer.policy();
        let Some(shape) = self.keyer.delivered_shape() else { return serde_json::Value::Null };
        let report = validity::check(shape, &policy.limits);
        let unit = 10f64.powi(i32::from(policy.precision));
        #[expect(clippy::cast_precision_loss, reason = "grid values have at most 12 digits")]
        let degrees = |grid: i64| grid as f64 / unit;
        let problems: Vec<_> = report
            .problems
            .iter()
            .map(|problem| {
                let at = problem.at.map(degrees);
                serde_json::json!({"code": problem.code.as_str(), "pointer": problem.pointer, "at": at})
            })
            .collect();
        serde_json::json!({
            "valid": report.complete && report.problems.is_empty(),
            "complete": report.complete,
            "problems": problems,
        })
    }

    fn refuse(&self, line: u64, error: &Error, answer: &mut Answer) {
        *answer.tally.refused.entry(error.code().as_str()).or_default() += 1;
        answer.stop = self.style.strict;
        if self.style.json {
            let object = serde_json::json!({"line": line, "error": {
                "code": error.code().as_str(),
                "pointer": error.pointer(),
                "message": error.message(),
                "hint": error.hint_text(),
            }});
            answer.text.push_str(&object.to_string());
        } else {
            answer.text.push_str("ERR ");
            answer.text.push_str(error.code().as_str());
            answer.text.push(' ');
            // A pointer can hold any character of a member name; line breaks must not make lines.
            answer.text.extend(error.pointer().chars().flat_map(|c| {
                let control = c.is_control();
                control.then(|| c.escape_default()).into_iter().flatten().chain((!control).then_some(c))
            }));
        }
        answer.text.push('\n');
    }
}
