//! Differences as they are found: bounded lists, and the fixes they add up to.

use super::{REASONS_MAX, Reason, ReasonCode};

impl Reason {
    /// A reason with nothing but its code and place.
    pub(super) fn new(code: ReasonCode, pointer: impl Into<String>) -> Reason {
        Reason {
            code,
            pointer: pointer.into(),
            pointer_b: None,
            a: String::new(),
            b: String::new(),
            canonical_a: String::new(),
            canonical_b: String::new(),
            message: String::new(),
            fix: None,
            places: 1,
        }
    }
}

/// At most [`REASONS_MAX`] reasons, and how many more there were.
#[derive(Default)]
pub(super) struct List {
    pub(super) items: Vec<Reason>,
    pub(super) more: usize,
}

impl List {
    fn push(&mut self, reason: impl FnOnce() -> Reason) {
        if self.items.len() < REASONS_MAX {
            self.items.push(reason());
        } else {
            self.more += 1;
        }
    }

    /// Puts `first` before what is there.
    pub(super) fn prepend(&mut self, first: List) {
        let last = std::mem::replace(self, first);
        self.more += last.more;
        for reason in last.items {
            self.push(|| reason);
        }
    }
}

/// Everything that differs between two payloads.
#[derive(Default)]
pub(super) struct Found {
    pub(super) reasons: List,
    pub(super) removed: List,
    pub(super) outside: List,
}

impl Found {
    pub(super) fn reason(&mut self, reason: Reason) {
        self.reasons.push(|| reason);
    }

    pub(super) fn outside(&mut self, reason: impl FnOnce() -> Reason) {
        self.outside.push(reason);
    }

    /// How many removed differences were noted so far.
    pub(super) fn removed_places(&self) -> usize {
        self.removed.more + self.removed.items.iter().map(|reason| reason.places).sum::<usize>()
    }

    /// Notes a removed difference: fields one by one, anything else once with the number of its places.
    pub(super) fn removed(&mut self, code: ReasonCode, reason: impl FnOnce() -> Reason) {
        let known = self.removed.items.iter_mut().find(|known| known.code == code);
        match known {
            Some(known) if code != ReasonCode::IgnoredField => known.places += 1,
            _ => self.removed.push(reason),
        }
    }
}

/// What each reason suggests, once.
pub(super) fn fixes(reasons: &[Reason]) -> Vec<String> {
    let mut fixes: Vec<String> = Vec::new();
    for fix in reasons.iter().filter_map(|reason| reason.fix.as_ref()) {
        if !fixes.contains(fix) {
            fixes.push(fix.clone());
        }
    }
    fixes
}

/// A field named like an id is the likeliest to tell events apart, so its fix comes first.
pub(super) fn outside_fixes(outside: &[Reason]) -> Vec<String> {
    let mut ordered: Vec<&Reason> = outside.iter().collect();
    ordered.sort_by_key(|reason| !is_id(&reason.pointer));
    fixes(&ordered.into_iter().cloned().collect::<Vec<_>>())
}

/// Whether a field is named like an id.
pub(super) fn is_id(pointer: &str) -> bool {
    let name = pointer.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let words = ["id", "uuid", "guid", "key", "code", "serial", "number", "ref"];
    words.contains(&name.as_str()) || words.iter().any(|word| name.ends_with(&format!("_{word}")))
}
