//! What can go wrong outside the payload: a store or a sink that does not answer, answers no, or holds what it should not.
//!
//! Backends classify their driver's errors once, next to the driver; nothing else looks inside.

use std::error::Error as StdError;
use std::fmt;

/// What sort of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// It cannot be reached, is busy or is shutting down. Trying again may help.
    Unavailable,
    /// Disk full, quota, too many connections. Trying again helps once there is room.
    Resource,
    /// It refuses us: credentials or rights.
    Permission,
    /// There is none yet: a gateway makes it.
    Missing,
    /// What it holds cannot be what was written.
    Corrupt,
    /// It was written by a newer release, or is something else altogether.
    Incompatible,
    /// The request or the configuration is wrong.
    Invalid,
    /// A fault of ours.
    Internal,
}

impl Kind {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Unavailable => "unavailable",
            Kind::Resource => "resource",
            Kind::Permission => "permission",
            Kind::Missing => "missing",
            Kind::Corrupt => "corrupt",
            Kind::Incompatible => "incompatible",
            Kind::Invalid => "invalid",
            Kind::Internal => "internal",
        }
    }
}

/// A failure of a store or a sink.
#[derive(Debug)]
pub struct Error(Box<Parts>);

#[derive(Debug)]
struct Parts {
    kind: Kind,
    doing: String,
    hint: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What a fallible function of this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A failure while `doing` something ("opening the store geonce.db").
    pub fn new(kind: Kind, doing: impl Into<String>) -> Error {
        Error(Box::new(Parts { kind, doing: doing.into(), hint: None, source: None }))
    }

    /// The same failure with what caused it.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        self.0.source = Some(source.into());
        self
    }

    /// The same failure with a hint how to mend it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.0.hint = Some(hint.into());
        self
    }

    /// What sort of failure.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Whether trying again may help without anybody doing anything.
    pub fn is_transient(&self) -> bool {
        matches!(self.0.kind, Kind::Unavailable | Kind::Resource)
    }

    /// What would mend it, where that is known.
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The same failure for another waiter; what caused it is kept as text.
    #[must_use]
    pub fn duplicate(&self) -> Error {
        let source = self.0.source.as_ref().map(|source| source.to_string().into());
        Error(Box::new(Parts { kind: self.0.kind, doing: self.0.doing.clone(), hint: self.0.hint.clone(), source }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.doing)?;
        if let Some(source) = &self.0.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
