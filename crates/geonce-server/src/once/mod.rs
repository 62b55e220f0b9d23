//! `geonce once`: runs a command once per key, whoever asks, and gives everybody what the first run came to.
//!
//! Key and record are made here, the promise is the ledger's. The order is that of sinks: outputs are put into their places
//! first, then the run is done. A crash in between repeats the command, which finds its places as they were or as it
//! would leave them. A run that is done stays done; to run its command again is a run of its own, whose key follows from it.

mod answer;
mod child;
mod guard;
mod key;
mod outputs;
mod result;

pub(crate) use guard::run as guard;

use crate::arguments::OnceArguments;
use crate::failure::Failure;
use crate::runner::Runner;
use crate::show;
use answer::{Answer, Outcome};
use bytes::Bytes;
use child::{Child, Ended, Signals};
use geonce::clock::{Clock, Stopwatch, SystemClock};
use geonce::event::{Cause, Class, State};
use geonce::ledger::{Begun, Ledger, Run, Task};
use geonce::retry::Retry;
use geonce::store::{ResultText, Settled};
use geonce_key::Fingerprint;
use guard::Guard;
use outputs::{Made, Outputs, Unfinished};
use result::Shelf;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// What the ledger of commands is called.
const LEDGER: &str = "once";
/// The exit code of our own failures, which commands do not use: as of `env` and `timeout`.
pub(crate) const OWN_FAILURE: u8 = 125;
/// Somebody else runs it (`EX_TEMPFAIL` of sysexits).
const BUSY: u8 = 75;
/// Longest wait before a retry.
const BACKOFF_MAX: Duration = Duration::from_mins(1);
/// Runners that may be gone, one after the other, before their command is held to be the reason.
const LAPSES_MAX: u32 = 6;
/// How often a command may be run again within the window of its first run.
const GENERATIONS_MAX: usize = 10_000;
/// Who waits longer than this is told so.
const PATIENCE: Duration = Duration::from_secs(1);
/// After so long the store is asked anew.
const WAIT_AT_ONCE: Duration = Duration::from_hours(1);
/// How long a store that does not answer is asked again when a command has ended: what it did should not be lost.
const INSIST_WITHIN: Duration = Duration::from_mins(2);
/// Between two such questions.
const INSIST_EVERY: Duration = Duration::from_millis(500);
/// What is recorded of the command's words.
const PAYLOAD_BYTES_MAX: usize = 64 << 10;

/// Runs the command.
pub(crate) fn run(arguments: &OnceArguments) -> ExitCode {
    match once(arguments) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(OWN_FAILURE)
        }
    }
}

fn once(arguments: &OnceArguments) -> Result<u8, Failure> {
    let outputs = Outputs::new(&arguments.output)?;
    let key = key::of(arguments, SystemClock.now())?;
    let runner = Runner::open(&arguments.place)?;
    let data = runner.place.store.is_embedded().then_some(runner.place.data.as_path());
    let once = Once {
        arguments,
        outputs,
        key,
        payload: payload(arguments),
        ledger: runner.ledger(LEDGER, arguments.lease.0),
        shelf: Shelf::new(data, runner.place.store.options.window),
    };
    let answer = runner.block_on(async {
        let mut signals = Signals::listen().map_err(|error| Failure::io("listening to signals", &error))?;
        once.answer(&mut signals).await
    });
    let shown = answer.and_then(|answer| {
        answer.show(&once.key, &once.shelf, arguments.json)?;
        Ok(answer.code)
    });
    drop(once);
    // What has happened counts, not whether the store could be left tidy.
    if let Err(failure) = runner.close() {
        say(failure.message());
    }
    shown
}

/// What the record of a run shows. Words that are too long to be kept are left out, but for the first.
fn payload(arguments: &OnceArguments) -> Bytes {
    let text = |word: &OsString| Value::from(word.to_string_lossy());
    let paths = |paths: &[PathBuf]| paths.iter().map(|path| path.to_string_lossy()).collect::<Value>();
    let mut payload = json!({ "command": arguments.command.iter().map(text).collect::<Value>() });
    for (name, list) in [("key_from", paths(&arguments.key_from)), ("outputs", paths(&arguments.output))] {
        payload[name] = list;
    }
    payload["params"] = arguments.param.clone().into();
    if let Some(name) = &arguments.name {
        payload["name"] = name.clone().into();
    }
    let whole = payload.to_string();
    if whole.len() <= PAYLOAD_BYTES_MAX {
        return whole.into();
    }
    let words = arguments.command.len();
    let first = arguments.command.first().map(|word| word.to_string_lossy().chars().take(1_000).collect::<String>());
    json!({ "command": [first], "words": words, "shortened": true }).to_string().into()
}

/// A command and everything that is needed to run it once.
struct Once<'a> {
    arguments: &'a OnceArguments,
    outputs: Outputs,
    key: Fingerprint,
    payload: Bytes,
    ledger: Ledger,
    shelf: Shelf,
}

/// What one attempt came to.
enum Attempt {
    Succeeded(Vec<Made>, Ended),
    Failed(Cause),
    /// We were told to stop, and so was the command, which ended with this code.
    Told(Signal, u8),
    /// Another runner holds it.
    Lost,
}

impl Once<'_> {
    /// Runs the command, or waits for whoever does, or finds what it came to.
    async fn answer(&self, signals: &mut Signals) -> Result<Answer, Failure> {
        let mut key = self.latest().await?;
        let mut to_force = self.arguments.force;
        if self.arguments.retry || self.arguments.force {
            self.ledger.replay(&key).await?;
        }
        loop {
            let begun = tokio::select! {
                begun = self.begin(&key) => begun?,
                signal = signals.next() => return Ok(Answer::interrupted(signal)),
            };
            match begun {
                Begun::Started(run) => {
                    if let Some(answer) = self.started(&key, &run, signals).await? {
                        return Ok(answer);
                    }
                }
                Begun::Running { event, .. } => {
                    say(&format!("{event} is being run by somebody else"));
                    return Ok(Answer::new(Outcome::Busy, BUSY, event));
                }
                Begun::Dead { event, cause } => {
                    say(&format!("{event} is dead: {}", show::escaped(&cause.message)));
                    say("--retry runs it again; so does anything else in its key");
                    return Ok(Answer::dead(event, &cause));
                }
                Begun::Done { event, result } => {
                    let result = result.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(Value::Null);
                    let reason = if to_force {
                        Some("--force".to_owned())
                    } else {
                        tokio::select! {
                            changed = self.changed(&result) => changed?,
                            signal = signals.next() => return Ok(Answer::interrupted(signal)),
                        }
                    };
                    let Some(reason) = reason else {
                        say(&format!("not run again: {event} is done"));
                        return Ok(Answer { result, ..Answer::new(Outcome::Replayed, 0, event) });
                    };
                    say(&format!("{event} is done, but is run again: {reason}"));
                    to_force = false;
                    key = key::again(&key, event);
                }
            }
        }
    }

    /// What has become of the outputs of a run that is done since then. Large ones take a while to read.
    async fn changed(&self, result: &Value) -> Result<Option<String>, Failure> {
        let (outputs, result) = (self.outputs.clone(), result.clone());
        let compared = tokio::task::spawn_blocking(move || outputs.changed(&result)).await;
        compared.map_err(|error| Failure::io("reading outputs", &io::Error::other(error)))
    }

    /// The key of the latest run of this command: the first, or one by which it was run again.
    async fn latest(&self) -> Result<Fingerprint, Failure> {
        let mut key = self.key;
        for _ in 0..GENERATIONS_MAX {
            let Some(done) = self.ledger.find(&key).await?.filter(|record| record.state == State::Done) else {
                return Ok(key);
            };
            let next = key::again(&key, done.id);
            if self.ledger.find(&next).await?.is_none() {
                return Ok(key);
            }
            key = next;
        }
        Err(Failure::new("once_again", format!("the command was run again more than {GENERATIONS_MAX} times"))
            .hint("a --param that tells the runs apart is what this wants"))
    }

    /// Begins a run; waits for its end where somebody else runs it, unless told not to.
    async fn begin(&self, key: &Fingerprint) -> Result<Begun, Failure> {
        let task = Task { key: *key, payload: self.payload.clone() };
        if self.arguments.no_wait {
            return Ok(self.ledger.begin(&task).await?);
        }
        let waiting = async {
            loop {
                match self.ledger.wait(&task, WAIT_AT_ONCE).await? {
                    Begun::Running { .. } => {}
                    begun => return Ok(begun),
                }
            }
        };
        tokio::pin!(waiting);
        tokio::select! {
            begun = &mut waiting => return begun,
            () = tokio::time::sleep(PATIENCE) => say("somebody else runs this; waiting for the end of it"),
        }
        waiting.await
    }

    /// Runs what is ours to run. `None` if it is to be begun again: after a failure, or because we have lost it.
    async fn started(&self, key: &Fingerprint, run: &Run, signals: &mut Signals) -> Result<Option<Answer>, Failure> {
        if run.lapses() >= LAPSES_MAX {
            return self.dead(run, result::lapsed(run.lapses())).await;
        }
        let ended = match self.outputs.begin(key, run.token()) {
            Ok(unfinished) => {
                let ended = self.tried(run, &unfinished, signals).await;
                // Whatever is not in its place by now does not belong there.
                unfinished.abandon();
                ended
            }
            Err(error) => Err(Failure::io("the folder of --output", &error)),
        };
        if let Err(failure) = &ended {
            // A fault of ours is none of the command's, and should not keep others waiting.
            let _ = run.give_back(Cause::new(Class::Unavailable, failure.code(), failure.message())).await;
        }
        ended
    }

    async fn tried(
        &self,
        run: &Run,
        unfinished: &Unfinished,
        signals: &mut Signals,
    ) -> Result<Option<Answer>, Failure> {
        let watch = Stopwatch::start();
        let attempt = self.attempt(run, unfinished, signals).await?;
        if !matches!(attempt, Attempt::Succeeded(..)) {
            unfinished.abandon();
        }
        match attempt {
            Attempt::Succeeded(made, ended) => self.succeeded(run, unfinished, &made, &ended, watch.elapsed()).await,
            Attempt::Failed(cause) => self.failed(run, cause, signals).await,
            Attempt::Told(signal, code) => {
                insist(|| run.give_back(result::interrupted(signal))).await?;
                Ok(Some(Answer { code, event: Some(run.event()), ..Answer::interrupted(signal) }))
            }
            Attempt::Lost => {
                say("another runner has taken over; the command was ended, its outputs were thrown away");
                Ok(None)
            }
        }
    }

    /// One attempt, up to the moment where outputs would be put into place. The lease is held all the while.
    async fn attempt(&self, run: &Run, unfinished: &Unfinished, signals: &mut Signals) -> Result<Attempt, Failure> {
        let words = unfinished.words(&self.arguments.command)?;
        let variables = self.variables(run, unfinished).map_err(|error| Failure::io("the current folder", &error))?;
        let guard = Guard::start().await.map_err(|error| Failure::io("starting the guard of the command", &error))?;
        let mut child = match Child::start(guard, &words, &variables, self.arguments.json).await {
            Ok(child) => child,
            Err(error) => {
                let program = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
                let cause = result::not_started(&error, &program);
                say(&cause.message);
                return Ok(Attempt::Failed(cause));
            }
        };
        let work = async {
            let ended = child.wait(signals).await?;
            if !ended.status.success() {
                return Ok((ended, Ok(Vec::new())));
            }
            let unfinished = unfinished.clone();
            let made = tokio::task::spawn_blocking(move || unfinished.made()).await.map_err(io::Error::other)??;
            Ok::<_, io::Error>((ended, made))
        };
        let worked = tokio::select! {
            worked = work => Some(worked),
            () = run.keep() => None,
        };
        Ok(match worked {
            None => {
                child.end().await;
                Attempt::Lost
            }
            Some(Err(error)) => {
                child.end().await;
                return Err(Failure::io("reading what the command made", &error));
            }
            Some(Ok((ended, Ok(made)))) if ended.status.success() => Attempt::Succeeded(made, ended),
            Some(Ok((ended, Ok(_)))) => match ended.told {
                Some(signal) => Attempt::Told(signal, child::code(ended.status)),
                None => Attempt::Failed(result::cause(&ended)),
            },
            Some(Ok((_, Err(missing)))) => {
                let cause = result::not_made(&missing);
                say(&cause.message);
                Attempt::Failed(cause)
            }
        })
    }

    /// What the command finds in its environment.
    fn variables(&self, run: &Run, unfinished: &Unfinished) -> io::Result<Vec<(String, OsString)>> {
        let key = show::hex(self.key.digest()).into();
        let attempt = (run.attempts() + 1).to_string().into();
        let mut variables = vec![("GEONCE_KEY".to_owned(), key), ("GEONCE_ATTEMPT".to_owned(), attempt)];
        for (number, place) in unfinished.places()?.into_iter().enumerate() {
            if number == 0 {
                variables.push(("GEONCE_OUTPUT".to_owned(), place.clone().into_os_string()));
            }
            variables.push((format!("GEONCE_OUTPUT_{}", number + 1), place.into_os_string()));
        }
        Ok(variables)
    }

    /// Puts outputs into place and says that it is done; not if somebody else has taken over.
    async fn succeeded(
        &self,
        run: &Run,
        unfinished: &Unfinished,
        made: &[Made],
        ended: &Ended,
        took: Duration,
    ) -> Result<Option<Answer>, Failure> {
        let lost = "another runner has taken over before the outputs were in place";
        if insist(|| run.extend()).await? == Settled::LeaseLost {
            say(lost);
            return Ok(None);
        }
        unfinished.finish().map_err(|error| Failure::io("putting outputs into place", &error))?;
        let result = result::of(&self.shelf, run.event(), run.attempts() + 1, took, made, &ended.out);
        let text = ResultText::new(result.to_string())?;
        match insist(|| run.done(Some(text.clone()))).await? {
            Settled::Ok => Ok(Some(Answer { result, ..Answer::new(Outcome::Ran, 0, run.event()) })),
            Settled::LeaseLost => {
                // Its outputs are compared when it is done, and made again if ours came after.
                say(lost);
                Ok(None)
            }
        }
    }

    /// Counts a failure; waits before the next attempt, or gives up.
    async fn failed(&self, run: &Run, cause: Cause, signals: &mut Signals) -> Result<Option<Answer>, Failure> {
        let attempt = run.attempts() + 1;
        if attempt > self.arguments.retries || !result::is_worth_a_retry(&cause) {
            return self.dead(run, cause).await;
        }
        let retry = Retry { base: self.arguments.backoff.0, cap: BACKOFF_MAX, ..Retry::default() };
        let delay = retry.delay(attempt, run.token() ^ u64::from(std::process::id()));
        let of = self.arguments.retries + 1;
        say(&format!("attempt {attempt} of {of} failed ({}); the next in {:.1} s", cause.code, delay.as_secs_f64()));
        let at = SystemClock.now().plus(delay);
        insist(|| run.release_until(at, cause.clone())).await?;
        tokio::select! {
            () = tokio::time::sleep(delay) => Ok(None),
            signal = signals.next() => Ok(Some(Answer::interrupted(signal))),
        }
    }

    async fn dead(&self, run: &Run, cause: Cause) -> Result<Option<Answer>, Failure> {
        Ok(match insist(|| run.dead(cause.clone())).await? {
            Settled::Ok => {
                say(&format!("{} is dead after {} failures ({})", run.event(), run.attempts() + 1, cause.code));
                Some(Answer::dead(run.event(), &cause))
            }
            Settled::LeaseLost => None,
        })
    }
}

/// A notice, on standard error.
fn say(text: &str) {
    eprintln!("geonce: {text}");
}

/// Asks a store again that does not answer.
async fn insist<T, F: Future<Output = geonce::Result<T>>>(ask: impl Fn() -> F) -> Result<T, Failure> {
    let watch = Stopwatch::start();
    loop {
        match ask().await {
            Err(error) if error.is_transient() && watch.elapsed() < INSIST_WITHIN => {
                say(&format!("{error}; asking again"));
                tokio::time::sleep(INSIST_EVERY).await;
            }
            answer => return Ok(answer?),
        }
    }
}
