//! Gaps in the numbers that a sender gives its changes: a hint that a notice was lost on its way to us.
//!
//! What is known is what this process has seen of its source: after a start the first numbers are taken as they come,
//! and several gateways that share a source each see a part. So a gap is a warning, never a reason to refuse.

use super::preset::Changes;
use geonce_key::Warning;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// At most so many things are followed; others are not looked at.
const FOLLOWED_MAX: usize = 10_000;

/// The code of the warning.
pub const GAP: &str = "changes_gap";

/// The last number of each thing.
#[derive(Default)]
pub(super) struct Gaps(Mutex<HashMap<String, i64>>);

impl Gaps {
    /// Takes note of changes; says so if some before them were never announced.
    pub(super) fn note(&self, changes: &Changes) -> Option<Warning> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = last.get_mut(&changes.of) else {
            if last.len() < FOLLOWED_MAX {
                last.insert(changes.of.clone(), changes.to);
            }
            return None;
        };
        let before = *known;
        *known = before.max(changes.to);
        (changes.after > before).then(|| Warning {
            code: GAP,
            pointer: String::new(),
            message: format!(
                "changes {} to {} of {} were not announced here: they are late, were lost, or belong to another layer",
                before.saturating_add(1),
                changes.after,
                changes.of
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Changes, FOLLOWED_MAX, Gaps};

    fn changes(of: &str, after: i64, to: i64) -> Changes {
        Changes { of: of.to_owned(), after, to }
    }

    #[test]
    fn numbers_that_are_skipped_are_noticed_once_and_repeats_are_not() {
        let gaps = Gaps::default();
        assert_eq!(gaps.note(&changes("a", 10, 20)), None, "the first numbers are taken as they come");
        assert_eq!(gaps.note(&changes("a", 20, 25)), None);
        assert_eq!(gaps.note(&changes("a", 10, 20)), None, "a redelivery");
        assert_eq!(gaps.note(&changes("b", 90, 91)), None, "another layer has its own numbers");
        let warning = gaps.note(&changes("a", 30, 31)).unwrap();
        assert_eq!(warning.code, "changes_gap");
        assert!(warning.message.starts_with("changes 26 to 30 of a "), "{warning:?}");
        assert_eq!(gaps.note(&changes("a", 31, 40)), None);
    }

    #[test]
    fn a_sender_cannot_make_it_grow_for_ever() {
        let gaps = Gaps::default();
        for n in 0..FOLLOWED_MAX + 10 {
            assert_eq!(gaps.note(&changes(&n.to_string(), 0, i64::MAX)), None);
        }
        assert_eq!(gaps.0.lock().unwrap().len(), FOLLOWED_MAX);
    }
}
