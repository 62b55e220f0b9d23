//! Failures of the driver and of what it reads back, classified once: nothing else looks inside an `SQLite` error.

use crate::error::{Error, Kind};
use rusqlite::ErrorCode;

/// What stopped an operation inside the store.
#[derive(Debug)]
pub(super) enum Failure {
    /// `SQLite` says so.
    Driver(rusqlite::Error),
    /// What was read cannot be what was written.
    Damaged(String),
    /// The request is at fault, or the failure is classified already.
    Refused(Error),
}

/// What a fallible function inside the store returns.
pub(super) type Attempt<T> = Result<T, Failure>;

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Failure {
        Failure::Driver(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Refused(error)
    }
}

/// A failure because of damaged content.
pub(super) fn damaged(what: impl Into<String>) -> Failure {
    Failure::Damaged(what.into())
}

impl Failure {
    /// Whether the machine is at fault: every request would fail alike.
    pub(super) fn concerns_all(&self) -> bool {
        match self {
            Failure::Driver(error) => matches!(kind(error), Kind::Resource | Kind::Unavailable | Kind::Permission),
            Failure::Damaged(_) | Failure::Refused(_) => false,
        }
    }

    /// The failure as others see it.
    pub(super) fn explain(self, doing: &str) -> Error {
        match self {
            Failure::Refused(error) => error,
            Failure::Damaged(what) => {
                Error::new(Kind::Corrupt, doing).because(what).hint("`geonce doctor` checks the whole store")
            }
            Failure::Driver(error) => {
                let kind = kind(&error);
                let failure = Error::new(kind, doing).because(error);
                match hint(kind) {
                    Some(hint) => failure.hint(hint),
                    None => failure,
                }
            }
        }
    }
}

fn hint(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Resource => Some("make room on the disk of the store"),
        Kind::Corrupt => Some("`geonce doctor` checks the whole store"),
        Kind::Permission => Some("the store's file and its folder must be writable"),
        _ => None,
    }
}

/// Which sort of failure an error of the driver is.
fn kind(error: &rusqlite::Error) -> Kind {
    let rusqlite::Error::SqliteFailure(failure, _) = error else {
        return match error {
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::QueryReturnedNoRows
            | rusqlite::Error::Utf8Error(..) => Kind::Corrupt,
            _ => Kind::Internal,
        };
    };
    match failure.code {
        ErrorCode::DatabaseBusy
        | ErrorCode::DatabaseLocked
        | ErrorCode::OperationInterrupted
        | ErrorCode::SystemIoFailure
        | ErrorCode::CannotOpen
        | ErrorCode::FileLockingProtocolFailed => Kind::Unavailable,
        ErrorCode::DiskFull | ErrorCode::OutOfMemory | ErrorCode::TooBig => Kind::Resource,
        ErrorCode::PermissionDenied | ErrorCode::ReadOnly | ErrorCode::AuthorizationForStatementDenied => {
            Kind::Permission
        }
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::NotFound => Kind::Corrupt,
        _ => Kind::Internal,
    }
}
