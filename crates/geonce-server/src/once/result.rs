//! What a command came to, for those who come later: the result that the store keeps of a run that is done, its standard
//! output, and the cause of one that failed.
//!
//! A result has little room. Longer output is kept beside an embedded store, in the folder `once`; beside a store on a
//! server there is no such place, and only its end is kept.

use super::child::{self, Ended, Kept};
use super::outputs::Made;
use crate::show;
use geonce::clock::{Clock, SystemClock};
use geonce::event::{Cause, Class, EventId};
use geonce::store::RESULT_BYTES_MAX;
use rustix::process::Signal;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// The code by which a command says that time may mend it (`EX_TEMPFAIL` of sysexits).
const TEMPORARY: i32 = 75;
/// What a failed command printed last that fits into the sentence about it.
const WORDS_BYTES_MAX: usize = 600;

/// Where standard output is kept that is too long for a result.
pub(super) struct Shelf {
    folder: Option<PathBuf>,
    /// Files older than this belong to runs that are forgotten.
    window: Duration,
}

impl Shelf {
    /// Beside the store in `data`; without one there is no place.
    pub(super) fn new(data: Option<&Path>, window: Duration) -> Shelf {
        Shelf { folder: data.map(|data| data.join("once")), window }
    }

    fn file(&self, event: EventId) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(format!("{event}.stdout")))
    }

    fn keep(&self, event: EventId, bytes: &[u8]) -> io::Result<()> {
        let (Some(folder), Some(file)) = (&self.folder, self.file(event)) else {
            return Err(io::Error::other("there is no place for it"));
        };
        fs::create_dir_all(folder)?;
        self.tidy(folder);
        let mut out = File::create(file)?;
        out.write_all(bytes)?;
        out.sync_all()?;
        File::open(folder)?.sync_all()
    }

    fn tidy(&self, folder: &Path) {
        let now = SystemClock.now().millis();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let changed = entry.metadata().and_then(|about| about.modified()).ok();
            let age = changed
                .and_then(|changed| changed.duration_since(UNIX_EPOCH).ok())
                .map(|since| u128::try_from(now).unwrap_or(0).saturating_sub(since.as_millis()));
            if age.is_some_and(|age| age > self.window.as_millis()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// The standard output that a result remembers, or some of it, and why it is not all.
    pub(super) fn stdout(&self, event: EventId, result: &Value) -> (Vec<u8>, Option<String>) {
        let stdout = &result["stdout"];
        if let Some(text) = stdout["text"].as_str() {
            return (text.as_bytes().to_vec(), None);
        }
        let total = stdout["bytes"].as_u64().unwrap_or(0);
        if let Some(sha256) = stdout["sha256"].as_str() {
            let kept = self.file(event).and_then(|file| fs::read(file).ok());
            return match kept.filter(|bytes| show::hex(&Sha256::digest(bytes)) == sha256) {
                Some(bytes) => (bytes, None),
                None => (Vec::new(), Some(format!("the first run printed {total} bytes, which are not kept here"))),
            };
        }
        match stdout["tail"].as_str() {
            Some(tail) => {
                (tail.as_bytes().to_vec(), Some(format!("the first run printed {total} bytes; these are the last")))
            }
            None if total > 0 => (Vec::new(), Some(format!("the first run printed {total} bytes, which are not kept"))),
            None => (Vec::new(), None),
        }
    }
}

/// The result of a run that succeeded, in as many bytes as a store keeps.
pub(super) fn of(shelf: &Shelf, event: EventId, attempts: u32, took: Duration, made: &[Made], out: &Kept) -> Value {
    let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let mut result = json!({ "exit_code": 0, "attempts": attempts, "duration_ms": took });
    if !made.is_empty() {
        result["outputs"] = made.iter().map(Made::to_json).collect();
    }
    let mut with = |stdout: Value| {
        result["stdout"] = stdout;
        (result.to_string().len() <= RESULT_BYTES_MAX).then(|| result.clone())
    };
    let total = out.total();
    if out.is_whole() {
        let text = std::str::from_utf8(out.bytes()).ok().filter(|text| !text.contains('\0'));
        if let Some(short) = text.and_then(|text| with(json!({ "bytes": total, "text": text }))) {
            return short;
        }
        if shelf.keep(event, out.bytes()).is_ok()
            && let Some(beside) = with(json!({ "bytes": total, "sha256": show::hex(&Sha256::digest(out.bytes())) }))
        {
            return beside;
        }
    }
    let tail = last_lines(out.bytes(), child::TAIL_BYTES / 2);
    let tail = tail.and_then(|tail| with(json!({ "bytes": total, "tail": tail })));
    tail.or_else(|| with(json!({ "bytes": total }))).unwrap_or_default()
}

/// Whole lines from the end, as text.
fn last_lines(bytes: &[u8], bytes_max: usize) -> Option<&str> {
    let end = &bytes[bytes.len().saturating_sub(bytes_max)..];
    let start = end.iter().position(|&byte| byte == b'\n')? + 1;
    std::str::from_utf8(&end[start..]).ok().filter(|text| !text.is_empty() && !text.contains('\0'))
}

/// Why a command failed.
pub(super) fn cause(ended: &Ended) -> Cause {
    let (class, code, said) = match (ended.status.code(), ended.status.signal()) {
        (Some(TEMPORARY), _) => (Class::Unavailable, format!("exit_{TEMPORARY}"), format!("code {TEMPORARY}")),
        (Some(code), _) => (Class::Constraint, format!("exit_{code}"), format!("code {code}")),
        // Whoever kills a command so is most often a system without memory.
        (None, Some(signal)) if signal == Signal::KILL.as_raw() => {
            (Class::Resource, format!("signal_{signal}"), format!("signal {signal}"))
        }
        (None, signal) => {
            let signal = signal.unwrap_or(0);
            (Class::Constraint, format!("signal_{signal}"), format!("signal {signal}"))
        }
    };
    let words = ended.err.tail().replace('\n', " / ");
    let mut start = words.len().saturating_sub(WORDS_BYTES_MAX);
    while !words.is_char_boundary(start) {
        start += 1;
    }
    let message = match &words[start..] {
        "" => format!("The command ended with {said}."),
        last => format!("The command ended with {said}: {last}"),
    };
    Cause::new(class, code, message)
}

/// Why a command could not be started.
pub(super) fn not_started(error: &io::Error, program: &str) -> Cause {
    let program = show::escaped(program);
    match error.kind() {
        io::ErrorKind::NotFound => {
            Cause::new(Class::Unavailable, "not_found", format!("There is no command {program}."))
        }
        _ => Cause::new(Class::Unavailable, "not_executable", format!("{program} cannot be run: {error}")),
    }
}

/// An output that a command did not make although it ended well.
pub(super) fn not_made(path: &Path) -> Cause {
    let path = show::escaped(&path.to_string_lossy());
    let message = format!(
        "The command ended well, but did not write {path} to the place it was given: {{output}} among its words, \
         the path itself as a word, or GEONCE_OUTPUT."
    );
    Cause::new(Class::Constraint, "output_missing", message)
}

/// Runners that held the run were gone again and again.
pub(super) fn lapsed(lapses: u32) -> Cause {
    Cause::new(Class::Internal, "lapsed", format!("{lapses} runners were gone before the command ended."))
}

/// Neither done nor failed.
pub(super) fn interrupted(signal: Signal) -> Cause {
    let number = signal.as_raw();
    Cause::new(
        Class::Unavailable,
        format!("signal_{number}"),
        format!("The runner was told to stop, by signal {number}."),
    )
}

/// Whether trying again at once might help.
pub(super) fn is_worth_a_retry(cause: &Cause) -> bool {
    !matches!(cause.code.as_str(), "not_found" | "not_executable" | "output_missing")
}

/// The exit code that says the same.
pub(super) fn exit_code(cause: &Cause) -> u8 {
    let number = |text: &str| text.parse::<i32>().ok();
    if let Some(code) = cause.code.strip_prefix("exit_").and_then(number) {
        return u8::try_from(code & 0xFF).unwrap_or(255);
    }
    match (cause.code.strip_prefix("signal_").and_then(number), cause.code.as_str()) {
        (Some(signal), _) => child::code_of_signal(signal),
        (None, "not_found") => 127,
        (None, "not_executable") => 126,
        _ => super::OWN_FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::{Shelf, exit_code, last_lines, of};
    use crate::once::child::{Kept, STDOUT_BYTES_MAX};
    use geonce::event::{Cause, Class, EventId};
    use geonce::store::ResultText;
    use std::time::Duration;

    const DAY: Duration = Duration::from_hours(24);

    fn kept(bytes: &[u8]) -> Kept {
        let mut kept = Kept::new(STDOUT_BYTES_MAX);
        bytes.chunks(1_000).for_each(|part| kept.add(part));
        kept
    }

    /// What is replayed of what a command printed, and whether that is said to be less.
    #[track_caller]
    fn check(shelf: &Shelf, printed: &[u8], replayed: &[u8], less: bool) {
        let event = EventId::from_bytes([7; 16]);
        let result = of(shelf, event, 1, DAY, &[], &kept(printed));
        let result = ResultText::new(result.to_string()).unwrap();
        let (bytes, said) = shelf.stdout(event, &serde_json::from_str(result.as_str()).unwrap());
        assert!(bytes == replayed, "{} bytes: {}", bytes.len(), String::from_utf8_lossy(&bytes));
        assert_eq!(said.is_some(), less, "{said:?}");
    }

    #[test]
    fn what_a_command_printed_comes_back_or_it_is_said_that_it_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let [beside, nowhere] = [Shelf::new(Some(folder.path()), DAY), Shelf::new(None, DAY)];
        for shelf in [&beside, &nowhere] {
            check(shelf, b"", b"", false);
            check(shelf, b"line\n\x1b[1m\ttab\n", b"line\n\x1b[1m\ttab\n", false);
        }
        let lines: Vec<u8> = (0..2_000).flat_map(|i| format!("line {i}\n").into_bytes()).collect();
        check(&beside, &lines, &lines, false);
        check(&nowhere, &lines, last_lines(&lines, 512).unwrap().as_bytes(), true);
        for odd in [b"\0" as &[u8], b"\xff"] {
            check(&beside, odd, odd, false);
            check(&nowhere, odd, b"", true);
        }
        let much = lines.repeat(1 + STDOUT_BYTES_MAX / lines.len());
        check(&beside, &much, last_lines(&lines, 512).unwrap().as_bytes(), true);
    }

    #[test]
    fn what_is_kept_beside_the_store_goes_with_the_window() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = [EventId::from_bytes([1; 16]), EventId::from_bytes([2; 16])];
        let shelf = Shelf::new(Some(folder.path()), DAY);
        shelf.keep(first, b"1").unwrap();
        let file = std::fs::File::open(shelf.file(first).unwrap()).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        shelf.keep(second, b"2").unwrap();
        assert!(!shelf.file(first).unwrap().exists() && shelf.file(second).unwrap().exists());
    }

    #[test]
    fn a_cause_keeps_its_exit_code() {
        for (code, expected) in [
            ("exit_3", 3),
            ("exit_255", 255),
            ("signal_15", 143),
            ("not_found", 127),
            ("not_executable", 126),
            ("lapsed", 125),
        ] {
            assert_eq!(exit_code(&Cause::new(Class::Constraint, code, "")), expected, "{code}");
        }
    }
}
