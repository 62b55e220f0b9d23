//! What an audit of a store finds: problems in words, so many at most.

/// The most problems that are listed.
pub(super) const PROBLEMS_MAX: usize = 100;
/// Work due later than this after its event came in was not written by a gateway: ten years.
pub(super) const DUE_MILLIS_MAX: i64 = 10 * 366 * 24 * 3_600_000;

/// Problems, and what was seen on the way to be compared in the end.
#[derive(Default)]
pub(super) struct Findings<S = ()> {
    pub(super) seen: S,
    problems: Vec<String>,
    left_out: usize,
}

impl<S> Findings<S> {
    pub(super) fn add(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        } else {
            self.left_out += 1;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// The list, with a word about what is not in it.
    pub(super) fn finish(mut self) -> Vec<String> {
        if self.left_out > 0 {
            self.problems.push(format!("and {} more", self.left_out));
        }
        self.problems
    }
}
