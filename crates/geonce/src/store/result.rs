//! What is kept of an event when it is done: a short text for whoever asks later, JSON by convention.
//!
//! Where a sink keeps its rows is the same for all its events, so that is kept once or short, and the event's key is put
//! in when it is read.

use crate::error::{Error, Kind, Result};
use geonce_key::{Encoding, Fingerprint};
use std::sync::Arc;

/// The longest result.
pub const RESULT_BYTES_MAX: usize = 4 << 10;

/// What the stored form of a result begins with that is of one event alone,
const OWN: char = '=';
/// and of one that says in which rows the event is.
const ROWS: char = '@';

/// What became of an event that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultText {
    text: Arc<str>,
    rows: bool,
}

impl ResultText {
    /// A result in the words of whoever did the work.
    pub fn new(text: impl Into<Arc<str>>) -> Result<ResultText> {
        let text = text.into();
        let wrong = if text.len() > RESULT_BYTES_MAX {
            format!("it has {} bytes, {RESULT_BYTES_MAX} are allowed", text.len())
        } else if text.contains('\0') {
            "it contains the character NUL".to_owned()
        } else {
            return Ok(ResultText { text, rows: false });
        };
        Err(Error::new(Kind::Invalid, "keeping a result").because(wrong).hint("keep it elsewhere and point to it"))
    }

    /// A result of ours, which has nothing in it that could be wrong.
    pub(super) fn short(text: &str) -> ResultText {
        ResultText { text: text.into(), rows: false }
    }

    /// The event is one row of a sink, at this place, under its own key.
    pub fn row(sink: &str, place: &str) -> ResultText {
        let text = serde_json::json!({ "sink": sink, "table": place, "rows": 1 }).to_string();
        ResultText { text: text.into(), rows: true }
    }

    /// The text; the one that [`ResultText::row`] makes is without the key.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether many events have the same.
    pub(super) fn is_common(&self) -> bool {
        self.rows
    }

    /// The stored form, where both sorts share a column.
    pub(super) fn stored(&self) -> String {
        format!("{}{}", if self.rows { ROWS } else { OWN }, self.text)
    }
}

/// What a record shows, given the stored form.
pub(super) fn shown(stored: &str, key: &Fingerprint) -> std::result::Result<Arc<str>, String> {
    match stored.split_at_checked(1) {
        Some(("=", text)) => Ok(text.into()),
        Some(("@", text)) => Ok(with_key(text, key)),
        _ => Err("a result of an unknown sort".to_owned()),
    }
}

/// What a record shows, given the text that is the same for all rows of a place.
pub(super) fn with_key(text: &str, key: &Fingerprint) -> Arc<str> {
    let open = text.strip_suffix('}').unwrap_or(text);
    format!("{open},\"key\":\"{}\"}}", key.text(Encoding::Base64)).into()
}

#[cfg(test)]
mod tests {
    use super::{RESULT_BYTES_MAX, ResultText, shown};
    use crate::store::conformance::key;
    use serde_json::Value;

    #[test]
    fn a_result_survives_its_stored_form() {
        for text in ["", "{}", "=", "@", "{\"rows\": 3}", "Zürich"] {
            let stored = ResultText::new(text).unwrap().stored();
            assert_eq!(&*shown(&stored, &key("a")).unwrap(), text);
        }
        assert!(shown("", &key("a")).is_err() && shown("é", &key("a")).is_err() && shown("x", &key("a")).is_err());
    }

    #[test]
    fn a_row_is_shown_with_its_key() {
        let stored = ResultText::row("zo\"nes", "public.zones").stored();
        let shown: Value = serde_json::from_str(&shown(&stored, &key("a")).unwrap()).unwrap();
        assert_eq!(
            (&shown["sink"], &shown["table"], &shown["rows"]),
            (&"zo\"nes".into(), &"public.zones".into(), &1.into())
        );
        assert!(shown["key"].as_str().unwrap().starts_with("g1_"), "{shown}");
    }

    #[test]
    fn what_no_store_could_keep_is_refused() {
        assert!(ResultText::new("x".repeat(RESULT_BYTES_MAX)).is_ok());
        for text in ["x".repeat(RESULT_BYTES_MAX + 1), "a\0b".to_owned()] {
            let error = ResultText::new(text).unwrap_err();
            assert!(error.hint_text().is_some(), "{error}");
        }
    }
}
