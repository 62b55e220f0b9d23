//! What somebody who asked for a command is told: how it came to its end, the exit code, and what the first run printed or one
//! JSON object.

use super::child;
use super::result::{self, Shelf};
use crate::failure::Failure;
use crate::show::{self, Page};
use geonce::event::{Cause, EventId};
use geonce_key::Fingerprint;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{self, Write};

/// What somebody who asked for a command is told.
pub(super) struct Answer {
    pub(super) outcome: Outcome,
    /// The exit code.
    pub(super) code: u8,
    pub(super) event: Option<EventId>,
    /// What the store remembers of a run that is done.
    pub(super) result: Value,
    pub(super) cause: Option<Cause>,
}

/// How a command came to its end, as far as the one who asked for it is concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Ran,
    Replayed,
    Dead,
    Busy,
    Interrupted,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Outcome::Ran => "ran",
            Outcome::Replayed => "replayed",
            Outcome::Dead => "dead",
            Outcome::Busy => "busy",
            Outcome::Interrupted => "interrupted",
        }
    }
}

impl Answer {
    pub(super) fn new(outcome: Outcome, code: u8, event: EventId) -> Answer {
        Answer { outcome, code, event: Some(event), result: Value::Null, cause: None }
    }

    pub(super) fn dead(event: EventId, cause: &Cause) -> Answer {
        Answer { cause: Some(cause.clone()), ..Answer::new(Outcome::Dead, result::exit_code(cause), event) }
    }

    pub(super) fn interrupted(signal: Signal) -> Answer {
        let code = child::code_of_signal(signal.as_raw());
        Answer { outcome: Outcome::Interrupted, code, event: None, result: Value::Null, cause: None }
    }

    /// Says what came of it: what the first run printed, or one JSON object.
    pub(super) fn show(&self, key: &Fingerprint, shelf: &Shelf, json: bool) -> Result<(), Failure> {
        let replayed = self.event.filter(|_| self.outcome == Outcome::Replayed);
        if json {
            return Page::new().print(&self.json(key).to_string());
        }
        let Some(event) = replayed else { return Ok(()) };
        let (bytes, less) = shelf.stdout(event, &self.result);
        if let Some(less) = less {
            super::say(&less);
        }
        let mut out = io::stdout().lock();
        match out.write_all(&bytes).and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::io("standard output", &error)),
            _ => Ok(()),
        }
    }

    fn json(&self, key: &Fingerprint) -> Value {
        let mut shown = json!({ "outcome": self.outcome.as_str(), "exit_code": self.code });
        shown["key"] = show::hex(key.digest()).into();
        if let Some(event) = self.event {
            shown["event"] = event.to_string().into();
        }
        if let Some(Cause { class, code, message, .. }) = &self.cause {
            shown["cause"] = json!({ "class": class.as_str(), "code": code, "message": message });
        }
        for (name, value) in self.result.as_object().into_iter().flatten().filter(|(name, _)| *name != "exit_code") {
            shown[name.as_str()] = value.clone();
        }
        shown
    }
}
