//! Who holds a lease, in a name for people: no decision depends on it. Names are cut to a length, never refused.

use std::sync::Arc;

/// Bytes of a holder's name that are kept.
pub const HOLDER_BYTES_MAX: usize = 64;
/// Bytes of the machine's name in a name that nobody gave.
const MACHINE_BYTES_MAX: usize = 32;

/// What this process is called where nobody named it: the machine's name and the process's number.
pub fn own_name() -> Arc<str> {
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let machine: String = machine.trim().chars().filter(char::is_ascii_alphanumeric).take(MACHINE_BYTES_MAX).collect();
    let machine = if machine.is_empty() { "process" } else { &machine };
    format!("{machine}-{}", std::process::id()).into()
}

/// A name as stores keep it: on one line, with nothing that a terminal or a server would stumble over.
pub(super) fn kept(name: &str) -> String {
    let mut kept = String::new();
    for letter in name.chars().filter(|letter| !letter.is_control()) {
        if kept.len() + letter.len_utf8() > HOLDER_BYTES_MAX {
            break;
        }
        kept.push(letter);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::{HOLDER_BYTES_MAX, kept, own_name};

    #[test]
    fn a_name_is_cut_and_cleaned_but_not_refused() {
        assert_eq!(kept("east-1"), "east-1");
        assert_eq!(kept("a\0b\nc"), "abc");
        assert_eq!(kept(&"é".repeat(99)).len(), HOLDER_BYTES_MAX);
        assert_eq!(kept(&own_name()), *own_name());
    }
}
