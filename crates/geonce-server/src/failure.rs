//! Why a command could not be carried out: shown to a person, with a code and a hint, and ends with exit code 2.

use std::fmt;
use std::io;

/// A failure of a command, not of a payload.
#[derive(Debug)]
pub(crate) struct Failure {
    code: &'static str,
    message: String,
    hint: Option<String>,
    broken_pipe: bool,
}

/// What a command comes to: whether the answer is yes.
pub(crate) type Outcome = Result<bool, Failure>;

impl Failure {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into(), hint: None, broken_pipe: false }
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// A failure to read or write `what`.
    pub(crate) fn io(what: &str, error: &io::Error) -> Failure {
        let broken_pipe = error.kind() == io::ErrorKind::BrokenPipe;
        Failure { broken_pipe, ..Failure::new("io", format!("{what}: {error}")) }
    }

    /// The same failure, said of `what`.
    #[must_use]
    pub(crate) fn within(mut self, what: &str) -> Failure {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// The stable code.
    pub(crate) fn code(&self) -> &'static str {
        self.code
    }

    /// What went wrong, in a sentence.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// How to mend it, where that is known.
    pub(crate) fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Whether the reader of our output has gone away, which is its right.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        self.broken_pipe
    }
}

impl From<geonce_key::Error> for Failure {
    fn from(error: geonce_key::Error) -> Failure {
        let place = if error.pointer().is_empty() { String::new() } else { format!(" at {}", error.pointer()) };
        let failure = Failure::new(error.code().as_str(), format!("{}{place}", error.message()));
        match error.hint_text() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<geonce::Error> for Failure {
    fn from(error: geonce::Error) -> Failure {
        let failure = Failure::new(error.kind().as_str(), error.to_string());
        match error.hint_text() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {} [{}]", self.message, self.code)?;
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}
