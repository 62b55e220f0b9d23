//! What the server's refusals mean: for a row, for the layer as we know it, or for everything.

use crate::event::{Cause, Class};
use crate::postgres::Trouble;
use tokio_postgres::error::DbError;

/// What was refused.
pub(crate) enum Refusal {
    /// A row, for a reason that lies in it.
    Row(Cause),
    /// A row, perhaps; perhaps a trigger or a view is broken for all.
    Doubtful(Cause),
    /// The layer is not what it was: another program changed it.
    Layer,
    /// The transaction, or everything.
    All,
}

/// How the function is called that refuses rights on tables; a policy that refuses a row has the same code.
const RIGHTS: &str = "aclcheck_error";
/// How the functions are called that raise errors of PostGIS.
const POSTGIS: [&str; 2] = ["pg_error", "lwpgerror"];

pub(crate) fn judge(trouble: &Trouble) -> Refusal {
    let Trouble::Told(error) = trouble else { return Refusal::All };
    let code = error.code().code();
    let row = |class, name| Refusal::Row(cause(class, name, error));
    match code {
        "42P01" | "42703" | "42804" | "3F000" => Refusal::Layer,
        "42501" if error.routine() != Some(RIGHTS) => row(Class::Permission, "permission"),
        "42501" => Refusal::All,
        "XX000" if error.routine().is_some_and(|name| POSTGIS.contains(&name)) => row(Class::Geometry, "geometry"),
        "XX000" => Refusal::Doubtful(cause(Class::Internal, "server", error)),
        _ => match &code[..code.len().min(2)] {
            "23" | "44" | "P0" | "21" | "2F" | "38" | "39" => row(Class::Constraint, "constraint"),
            "22" if error.message().starts_with("Geometry ") => row(Class::Geometry, "geometry"),
            "22" => row(Class::Schema, "value"),
            "54" | "0A" => row(Class::Schema, "limit"),
            "42" | "55" if code != "55P03" => Refusal::Doubtful(cause(Class::Schema, "server", error)),
            _ => Refusal::All,
        },
    }
}

/// The same for a transaction that was tried with the layer read afresh.
pub(crate) fn judge_again(trouble: &Trouble) -> Refusal {
    match (judge(trouble), trouble) {
        (Refusal::Layer, Trouble::Told(error)) => Refusal::Doubtful(cause(Class::Schema, "server", error)),
        (other, _) => other,
    }
}

fn cause(class: Class, code: &str, error: &DbError) -> Cause {
    let mut message = format!("the database refuses the row: {} ({})", error.message(), error.code().code());
    for more in [error.detail(), error.hint()].into_iter().flatten() {
        message.push_str("; ");
        message.push_str(more);
    }
    Cause::new(class, code, bounded(&message))
}

/// The longest message that is kept: details repeat the row.
const MESSAGE_CHARACTERS_MAX: usize = 500;

fn bounded(message: &str) -> String {
    match message.char_indices().nth(MESSAGE_CHARACTERS_MAX) {
        None => message.to_owned(),
        Some((end, _)) => format!("{}…", &message[..end]),
    }
}
