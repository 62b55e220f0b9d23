//! What can go wrong between us and the server, the one place that reads its errors; and when to try again.

use crate::clock::Stopwatch;
use crate::error::{Error, Kind};
use crate::event::random;
use std::time::Duration;
use tokio_postgres::error::SqlState;

/// How often a transaction is tried,
const TRIES_MAX: u32 = 4;
/// and for how long altogether.
const TRYING_MAX: Duration = Duration::from_secs(20);

/// Why a statement failed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The server said no.
    Told(Box<tokio_postgres::error::DbError>),
    /// The connection was lost, or never made: what was under way may have happened.
    Silent(String),
    /// A fault that is neither: ours, or data that is not what it should be.
    Other(Error),
}

impl Trouble {
    pub(crate) fn silent(what: impl Into<String>) -> Trouble {
        Trouble::Silent(what.into())
    }

    /// The five characters that classify what the server said.
    pub(crate) fn state(&self) -> Option<&SqlState> {
        match self {
            Trouble::Told(error) => Some(error.code()),
            _ => None,
        }
    }

    /// Whether the server undid the transaction because of another one.
    fn is_rolled_back(&self) -> bool {
        let codes = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED];
        self.state().is_some_and(|code| codes.contains(code))
    }

    /// Whether the same transaction may succeed when it is run again at once.
    pub(crate) fn is_worth_another_try(&self) -> bool {
        match self {
            Trouble::Told(error) => {
                let code = error.code();
                self.is_rolled_back()
                    // Shutting down or starting up; idle for too long; a pooler that lost its server.
                    || matches!(code.code(), "57P01" | "57P02" | "57P03" | "57P05" | "25P03")
                    || code.code().starts_with("08")
                    // A table that another transaction dropped while the catalogue was read, of whatever schema.
                    || (code.code() == "XX000" && error.message().starts_with("could not open relation with OID"))
            }
            Trouble::Silent(_) => true,
            Trouble::Other(_) => false,
        }
    }

    /// Which sort of failure it is.
    pub(crate) fn kind(&self) -> Kind {
        let code = match self {
            Trouble::Silent(_) => return Kind::Unavailable,
            Trouble::Other(error) => return error.kind(),
            Trouble::Told(error) => error.code().code(),
        };
        match code {
            "42501" => Kind::Permission,
            "42P01" | "42703" | "42883" | "3F000" => Kind::Incompatible,
            "3D000" => Kind::Invalid,
            "XX001" | "XX002" => Kind::Corrupt,
            "55P03" | "57014" | "25006" => Kind::Unavailable,
            _ => match &code[..code.len().min(2)] {
                "08" | "40" | "57" | "58" => Kind::Unavailable,
                "53" => Kind::Resource,
                "28" => Kind::Permission,
                _ => Kind::Internal,
            },
        }
    }

    /// The error of a store or a sink.
    pub(crate) fn explain(self, doing: &str) -> Error {
        let kind = self.kind();
        match self {
            Trouble::Other(error) => error,
            Trouble::Silent(what) => Error::new(kind, doing).because(what),
            Trouble::Told(error) => {
                let explained = Error::new(kind, doing);
                let text = format!("{} ({})", error.message(), error.code().code());
                let explained = explained.because(text);
                match error.hint() {
                    Some(hint) => explained.hint(hint),
                    None => explained,
                }
            }
        }
    }
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Trouble {
        if let Some(told) = error.as_db_error() {
            return Trouble::Told(Box::new(told.clone()));
        }
        let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        let text = format!("{error}{source}");
        // A value that cannot be sent or read is not the network's fault.
        let io = std::error::Error::source(&error).is_some_and(<dyn std::error::Error>::is::<std::io::Error>);
        let network = ["connect", "timeout waiting", "unexpected message", "TLS", "tls"];
        if error.is_closed() || io || network.iter().any(|word| text.contains(word)) {
            Trouble::Silent(text)
        } else {
            Trouble::Other(Error::new(Kind::Internal, "talking to PostgreSQL").because(text))
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Other(error)
    }
}

/// How often a transaction was tried. Transactions that are tried again recognise what they did before: by the ids of
/// events, by tokens, by keys.
pub(crate) struct Tries {
    began: Stopwatch,
    tried: u32,
    unsure: bool,
}

impl Tries {
    pub(crate) fn new() -> Tries {
        Tries { began: Stopwatch::start(), tried: 0, unsure: false }
    }

    /// Whether an earlier attempt may have been committed without our hearing of it.
    pub(crate) fn may_have_happened(&self) -> bool {
        self.unsure
    }

    /// Returns when it is time to try again; the trouble, if that would not help or was tried enough.
    pub(crate) async fn again(&mut self, trouble: Trouble) -> std::result::Result<(), Trouble> {
        self.tried += 1;
        self.unsure |= !trouble.is_rolled_back();
        if !trouble.is_worth_another_try() || self.tried >= TRIES_MAX || self.began.elapsed() > TRYING_MAX {
            return Err(trouble);
        }
        // Two that met in a deadlock should not meet again.
        let spread = u64::try_from(random() % 20).unwrap_or(0) * u64::from(self.tried);
        tokio::time::sleep(Duration::from_millis(5 + spread)).await;
        Ok(())
    }
}
