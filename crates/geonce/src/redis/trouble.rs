//! What Redis says when it says no, and what its silence means: the one place that reads the driver's errors.

use crate::clock::Stopwatch;
use crate::error::{Error, Kind};
use redis::{ErrorKind, RedisError};
use std::time::Duration;

/// How long a request is tried altogether.
const TRYING_MAX: Duration = Duration::from_secs(4);
/// The first wait between two tries, and the longest.
const WAIT_FIRST: Duration = Duration::from_millis(10);
const WAIT_MAX: Duration = Duration::from_millis(250);

/// Why a request failed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The server said no: a code such as `OOM`, and its words.
    Told { code: String, text: String },
    /// The connection was lost, or never made: what was under way may have happened.
    Silent(String),
    /// A fault that is neither: ours, or data that is not what it should be.
    Other(Error),
}

impl Trouble {
    pub(crate) fn silent(what: impl Into<String>) -> Trouble {
        Trouble::Silent(what.into())
    }

    /// What a script reports of a single event: a code and words, as the server writes them.
    pub(crate) fn told(text: &str) -> Trouble {
        let code = text.split(' ').next().unwrap_or_default();
        Trouble::Told { code: code.to_owned(), text: text.to_owned() }
    }

    /// Whether the script has to be sent whole.
    pub(crate) fn is_unknown_script(&self) -> bool {
        matches!(self, Trouble::Told { code, .. } if code == "NOSCRIPT")
    }

    /// Whether the server's settings or rights forbid it.
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self, Trouble::Told { code, text } if code == "NOPERM" || (code == "ERR" && text.contains("unknown command")))
    }

    /// Whether what was read cannot be what was written.
    pub(crate) fn is_damage(&self) -> bool {
        self.kind() == Kind::Corrupt
    }

    /// Whether another server may be the right one now, or the connection is of no more use.
    pub(crate) fn wants_another_connection(&self) -> bool {
        match self {
            Trouble::Silent(_) => true,
            Trouble::Told { code, .. } => {
                matches!(code.as_str(), "READONLY" | "MOVED" | "CLUSTERDOWN" | "MASTERDOWN" | "UNBLOCKED")
            }
            Trouble::Other(_) => false,
        }
    }

    /// Whether the same request may succeed in a moment.
    pub(crate) fn is_worth_another_try(&self) -> bool {
        self.wants_another_connection() || (self.kind() == Kind::Unavailable && !matches!(self, Trouble::Other(_)))
    }

    fn kind(&self) -> Kind {
        let (code, text) = match self {
            Trouble::Silent(_) => return Kind::Unavailable,
            Trouble::Other(error) => return error.kind(),
            Trouble::Told { code, text } => (code.as_str(), text.as_str()),
        };
        match code {
            "LOADING" | "READONLY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "MOVED" | "ASK" | "BUSY"
            | "NOREPLICAS" | "UNBLOCKED" => Kind::Unavailable,
            // A slot that is being moved to another node: no script runs on half of it.
            "ERR" if text.contains("non local key") => Kind::Unavailable,
            "ERR" if text.contains("max number of clients") => Kind::Resource,
            "OOM" | "MISCONF" => Kind::Resource,
            "NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED" => Kind::Permission,
            "WRONGTYPE" | "DAMAGED" => Kind::Corrupt,
            "REPLACED" => Kind::Incompatible,
            _ => Kind::Internal,
        }
    }

    /// The error of a store or a cache.
    pub(crate) fn explain(self, doing: &str) -> Error {
        let kind = self.kind();
        match self {
            Trouble::Other(error) => error,
            Trouble::Silent(what) => Error::new(kind, doing).because(what),
            Trouble::Told { code, text } => {
                let words = text.strip_prefix("DAMAGED ").or(text.strip_prefix("REPLACED ")).unwrap_or(&text);
                let explained = Error::new(kind, doing).because(words);
                match hint(&code) {
                    Some(hint) => explained.hint(hint),
                    None => explained,
                }
            }
        }
    }
}

fn hint(code: &str) -> Option<&'static str> {
    Some(match code {
        "OOM" => "give Redis more memory (maxmemory), or a shorter window",
        "MISCONF" => "Redis cannot write to its disk; its log says why",
        "NOAUTH" | "WRONGPASS" => "name user and password in the address: redis://user:password@host",
        "NOPERM" => "the user needs the commands and keys that the documentation of the Redis store lists",
        "WRONGTYPE" | "DAMAGED" => "`geonce doctor` checks the whole store",
        "REPLACED" => "if it was flushed on purpose, start the gateway again",
        _ => return None,
    })
}

impl From<RedisError> for Trouble {
    fn from(error: RedisError) -> Trouble {
        let text = match error.detail() {
            Some(detail) => detail.to_owned(),
            None => error.to_string(),
        };
        match error.kind() {
            ErrorKind::Server(_) | ErrorKind::Extension => {
                let code = error.code().unwrap_or("ERR").to_owned();
                Trouble::Told { text: format!("{code} {text}"), code }
            }
            ErrorKind::AuthenticationFailed => Trouble::Told { code: "WRONGPASS".to_owned(), text: error.to_string() },
            ErrorKind::InvalidClientConfig | ErrorKind::RESP3NotSupported => {
                Trouble::Other(Error::new(Kind::Invalid, "connecting to Redis").because(error.to_string()))
            }
            ErrorKind::UnexpectedReturnType => Trouble::told(&format!("DAMAGED an answer of another form: {text}")),
            _ => Trouble::Silent(error.to_string()),
        }
    }
}

impl From<redis::ParsingError> for Trouble {
    fn from(error: redis::ParsingError) -> Trouble {
        Trouble::told(&format!("DAMAGED an answer of another form: {error}"))
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Other(error)
    }
}

/// How often a request was tried. Requests that are tried again are recognised by the server.
pub(crate) struct Tries {
    began: Stopwatch,
    wait: Duration,
}

impl Tries {
    pub(crate) fn new() -> Tries {
        Tries { began: Stopwatch::start(), wait: WAIT_FIRST }
    }

    /// Returns when it is time to try again; the trouble, if that would not help or was tried enough.
    pub(crate) async fn again(&mut self, trouble: Trouble) -> Result<(), Trouble> {
        if !trouble.is_worth_another_try() || self.began.elapsed() + self.wait > TRYING_MAX {
            return Err(trouble);
        }
        tokio::time::sleep(self.wait).await;
        self.wait = (self.wait * 2).min(WAIT_MAX);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Trouble};

    #[test]
    fn what_the_server_says_is_classified() {
        for (text, kind, again, elsewhere) in [
            ("LOADING Redis is loading the dataset in memory", Kind::Unavailable, true, false),
            ("READONLY You can't write against a read only replica.", Kind::Unavailable, true, true),
            ("CLUSTERDOWN The cluster is down", Kind::Unavailable, true, true),
            ("MOVED 3999 127.0.0.1:6381", Kind::Unavailable, true, true),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Kind::Unavailable, true, false),
            ("ERR Script attempted to access a non local key in a cluster node", Kind::Unavailable, true, false),
            ("OOM command not allowed when used memory > 'maxmemory'.", Kind::Resource, false, false),
            ("MISCONF Errors writing to the AOF file: No space left on device", Kind::Resource, false, false),
            ("NOAUTH Authentication required.", Kind::Permission, false, false),
            ("NOPERM this user has no permissions", Kind::Permission, false, false),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", Kind::Corrupt, false, false),
            ("DAMAGED the record has no source", Kind::Corrupt, false, false),
            ("ERR user_script:3: attempt to index a nil value", Kind::Internal, false, false),
        ] {
            let trouble = Trouble::told(text);
            assert_eq!(trouble.is_worth_another_try(), again, "{text}");
            assert_eq!(trouble.wants_another_connection(), elsewhere, "{text}");
            assert_eq!(trouble.explain("trying").kind(), kind, "{text}");
        }
        assert!(Trouble::silent("the connection was lost").explain("trying").is_transient());
    }
}
