//! Why a file cannot be read: a stable code, a sentence, and a hint where one is known.

use std::fmt;

/// A file that cannot be read, or not to its end.
#[derive(Debug)]
pub struct Error {
    code: &'static str,
    message: String,
    hint: Option<String>,
}

/// What reading comes to.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A file cannot be read because of this.
    pub fn new(code: &'static str, message: impl Into<String>) -> Error {
        Error { code, message: message.into(), hint: None }
    }

    /// The same, with a way to mend it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }

    /// The stable code.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// What went wrong, in a sentence.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// How to mend it, where that is known.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
