//! Logs: readable lines on a terminal, JSON otherwise, on standard error. No payloads and no secrets are ever logged;
//! control characters come out escaped; what clients can cause without end is logged seldom.

use crate::config::{LogFormat, LogSettings};
use geonce::clock::Stopwatch;
use std::io::{self, IsTerminal};
use std::sync::{Mutex, PoisonError};
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Sends what is logged from now on to standard error, each line for a machine with the name of this gateway. A second call
/// changes nothing.
pub(crate) fn start(settings: LogSettings, instance: &str) {
    let terminal = io::stderr().is_terminal();
    let pretty = match settings.format {
        LogFormat::Auto => terminal,
        LogFormat::Pretty => true,
        LogFormat::Json => false,
    };
    let colours = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    // Fails only if something logs already, in a test.
    let _ = tracing::subscriber::set_global_default(if pretty {
        people(settings.level, colours, io::stderr)
    } else {
        machines(settings.level, instance, io::stderr)
    });
}

fn people<W>(level: LevelFilter, colours: bool, writer: W) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(writer).with_target(false);
    Box::new(lines.compact().with_ansi(colours).finish())
}

fn machines<W>(level: LevelFilter, instance: &str, writer: W) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let writer = Signed { instance: instance.to_owned(), inner: writer };
    let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(writer).with_target(false);
    Box::new(lines.json().flatten_event(true).with_ansi(false).finish())
}

/// Puts the name of this gateway into each line: many gateways may log to one place.
struct Signed<W> {
    instance: String,
    inner: W,
}

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Signed<W> {
    type Writer = SignedLine<'a, W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        SignedLine { instance: &self.instance, inner: self.inner.make_writer() }
    }
}

struct SignedLine<'a, W> {
    instance: &'a str,
    inner: W,
}

impl<W: io::Write> io::Write for SignedLine<'_, W> {
    /// A line comes in one piece, an object.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match line.strip_prefix(b"{") {
            // In one piece too: lines of several threads must not mix. A name holds nothing that needs escaping.
            Some(rest) => {
                let mut signed = format!("{{\"instance\":\"{}\",", self.instance).into_bytes();
                signed.extend_from_slice(rest);
                self.inner.write_all(&signed)?;
            }
            None => self.inner.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Lines of one kind that are written in a second; the others are counted.
const LINES_PER_SECOND_MAX: u32 = 10;

/// Keeps a kind of line from filling the log.
pub(crate) struct Seldom {
    started: Stopwatch,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    second: u64,
    written: u32,
    held_back: u64,
}

impl Seldom {
    pub(crate) fn new() -> Seldom {
        Seldom { started: Stopwatch::start(), state: Mutex::default() }
    }

    /// Whether a line may be written now; if so, how many were not since the last one.
    pub(crate) fn now(&self) -> Option<u64> {
        self.at(self.started.elapsed().as_secs())
    }

    fn at(&self, second: u64) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.second != second {
            (state.second, state.written) = (second, 0);
        }
        if state.written == LINES_PER_SECOND_MAX {
            state.held_back += 1;
            return None;
        }
        state.written += 1;
        Some(std::mem::take(&mut state.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::{LINES_PER_SECOND_MAX, LevelFilter, Seldom, machines, people};
    use std::io;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn control_characters_are_escaped_in_both_forms() {
        for pretty in [true, false] {
            let lines = Lines::default();
            let writer = lines.clone();
            let writer = move || writer.clone();
            let subscriber = if pretty {
                people(LevelFilter::INFO, false, writer)
            } else {
                machines(LevelFilter::INFO, "east-1", writer)
            };
            tracing::subscriber::with_default(subscriber, || {
                tracing::info!(pointer = "/a\u{1b}[2J\nforged line", source = "drones", "a payload was refused");
                tracing::debug!("not shown");
            });
            let written = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
            assert_eq!(written.lines().count(), 1, "{written}");
            assert!(!written.trim_end().chars().any(char::is_control), "{written:?}");
            assert!(written.contains("drones") && written.contains("a payload was refused"));
            if !pretty {
                let parsed: serde_json::Value = serde_json::from_str(&written).unwrap();
                assert_eq!((&parsed["source"], &parsed["instance"]), (&"drones".into(), &"east-1".into()));
            }
        }
    }

    #[test]
    fn lines_that_were_held_back_are_counted() {
        let seldom = Seldom::new();
        for _ in 0..LINES_PER_SECOND_MAX {
            assert_eq!(seldom.at(7), Some(0));
        }
        assert_eq!((seldom.at(7), seldom.at(7)), (None, None));
        assert_eq!(seldom.at(8), Some(2));
        assert_eq!(seldom.at(8), Some(0));
    }
}
