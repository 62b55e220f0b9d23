//! How parts of an event are written into columns, the same in every store. Reading checks everything; what is wrong
//! comes back in words.

use crate::clock::Timestamp;
use crate::event::{Cause, Class, Outcome};
use geonce_key::{Fingerprint, Form};
use std::time::Duration;

/// The states of an event that its row tells; whether an open one is ready or leased, its work tells.
pub(super) const OPEN: i64 = 0;
pub(super) const DONE: i64 = 1;
pub(super) const DEAD: i64 = 2;

/// `due` of work that is dead: never leased.
pub(super) const NEVER: i64 = i64::MAX;
/// `due` of work that is held: not leased before it is released.
pub(super) const HELD: i64 = NEVER - 1;
/// The latest `due` of other work.
pub(super) const LATEST: i64 = HELD - 1;

/// Bytes of a stored fingerprint: whether a key secret was used, and the digest.
const FINGERPRINT_BYTES: usize = 33;

/// Sixteen bytes of an id or a key.
pub(super) type Bytes16 = [u8; 16];

/// A number of things as a parameter.
pub(super) fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The least id of events made at `time`.
pub(super) fn first_id(time: Timestamp) -> Bytes16 {
    (u128::try_from(time.millis()).unwrap_or(0) << 80).to_be_bytes()
}

/// The least id of events made after `time`: what was made and settled within one millisecond is past its time with it.
pub(super) fn first_id_after(time: Timestamp) -> Bytes16 {
    first_id(time.plus(Duration::from_millis(1)))
}

/// Appends fingerprints as they are stored.
pub(super) fn write_fingerprints<'a>(fingerprints: impl IntoIterator<Item = &'a Fingerprint>, out: &mut Vec<u8>) {
    out.clear();
    for fingerprint in fingerprints {
        out.push(u8::from(fingerprint.is_secret()));
        out.extend_from_slice(fingerprint.digest());
    }
}

/// Reads fingerprints back.
pub(super) fn read_fingerprints(bytes: &[u8]) -> Result<Vec<Fingerprint>, String> {
    let chunks = bytes.chunks_exact(FINGERPRINT_BYTES);
    if !chunks.remainder().is_empty() {
        return Err("fingerprints of the wrong length".to_owned());
    }
    Ok(chunks
        .map(|chunk| {
            let mut digest = [0; 32];
            digest.copy_from_slice(&chunk[1..]);
            Fingerprint::from_digest(digest, chunk[0] != 0)
        })
        .collect())
}

/// The number of a form.
pub(super) const fn form_number(form: Form) -> i64 {
    match form {
        Form::Json => 0,
        Form::Wkt => 1,
        Form::Wkb => 2,
        Form::WkbHex => 3,
    }
}

/// The form with this number.
pub(super) fn form_from(number: i64) -> Result<Form, String> {
    [Form::Json, Form::Wkt, Form::Wkb, Form::WkbHex]
        .into_iter()
        .find(|&form| form_number(form) == number)
        .ok_or_else(|| format!("form {number} is unknown"))
}

/// The number of an outcome.
pub(super) const fn outcome_number(outcome: Outcome) -> i64 {
    match outcome {
        Outcome::Applied => 0,
        Outcome::Stale => 1,
        Outcome::Near => 2,
        Outcome::Repaired => 3,
    }
}

/// The outcome with this number.
pub(super) fn outcome_from(number: i64) -> Result<Outcome, String> {
    Outcome::ALL
        .iter()
        .copied()
        .find(|&outcome| outcome_number(outcome) == number)
        .ok_or_else(|| format!("outcome {number} is unknown"))
}

/// What a cause looks like in its column: a JSON array of class, code, pointer, message.
pub(super) fn write_cause(cause: &Cause) -> String {
    serde_json::json!([cause.class.as_str(), cause.code, cause.pointer, cause.message]).to_string()
}

/// Reads a cause back.
pub(super) fn cause_from(text: &str) -> Result<Cause, String> {
    let parts: [String; 4] = serde_json::from_str(text).map_err(|_| "a cause that cannot be read".to_owned())?;
    let [class, code, pointer, message] = parts;
    let class = Class::from_word(&class).ok_or_else(|| "a cause of an unknown class".to_owned())?;
    Ok(Cause { class, code, pointer, message })
}
