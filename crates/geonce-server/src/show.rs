//! How results are shown: lines, tables, times, colours on a terminal, and nothing that could command a terminal.

use crate::failure::Failure;
use geonce::clock::{Clock, SystemClock, Timestamp};
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};

/// A colour or weight of text.
#[derive(Clone, Copy)]
pub(crate) enum Style {
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
}

/// Standard output, with colours where a person reads it.
pub(crate) struct Page {
    out: io::Stdout,
    color: bool,
}

impl Page {
    pub(crate) fn new() -> Page {
        let out = io::stdout();
        let color = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Page { out, color }
    }

    /// Prints a line.
    pub(crate) fn print(&mut self, line: &str) -> Result<(), Failure> {
        writeln!(self.out, "{line}").map_err(|error| Failure::io("standard output", &error))
    }

    /// The text in a style, on a terminal.
    pub(crate) fn paint(&self, style: Style, text: &str) -> String {
        if !self.color {
            return text.to_owned();
        }
        let code = match style {
            Style::Bold => 1,
            Style::Dim => 2,
            Style::Red => 31,
            Style::Green => 32,
            Style::Yellow => 33,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// `✓` or `✗`.
    pub(crate) fn mark(&self, good: bool) -> String {
        if good { self.paint(Style::Green, "✓") } else { self.paint(Style::Red, "✗") }
    }

    /// Prints rows under a head, each column as wide as it needs to be; numbers are right-aligned.
    pub(crate) fn table(&mut self, head: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
        let widths: Vec<usize> = (0..head.len())
            .map(|i| rows.iter().map(|row| row[i].chars().count()).chain([head[i].len()]).max().unwrap_or(0))
            .collect();
        let numeric = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == ' ');
        let right: Vec<bool> =
            (0..head.len()).map(|i| !rows.is_empty() && rows.iter().all(|row| numeric(&row[i]))).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut text = String::new();
            for (i, cell) in cells.enumerate() {
                let width = widths[i];
                let _ = if right[i] { write!(text, " {cell:>width$} ") } else { write!(text, " {cell:<width$} ") };
            }
            text.trim_end().to_owned()
        };
        let head = line(&mut head.iter().copied());
        let head = self.paint(Style::Dim, &head);
        self.print(&head)?;
        for row in rows {
            self.print(&line(&mut row.iter().map(String::as_str)))?;
        }
        Ok(())
    }
}

/// The time now.
pub(crate) fn now() -> Timestamp {
    SystemClock.now()
}

/// A time for people: the time of day if it is today's (UTC), else with its date.
pub(crate) fn time(at: Timestamp, now: Timestamp) -> String {
    let (at, now) = (at.to_string(), now.to_string());
    match (at.get(..10), now.get(..10), at.get(11..19)) {
        (Some(day), Some(today), Some(clock)) if day == today => clock.to_owned(),
        (Some(day), _, Some(clock)) => format!("{day} {}", &clock[..5]),
        _ => at,
    }
}

/// A count with thin groups: `1 302`.
pub(crate) fn count(number: impl Into<i128>) -> String {
    let number: i128 = number.into();
    let digits = number.unsigned_abs().to_string();
    let mut out = if number < 0 { "-".to_owned() } else { String::new() };
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// Text from elsewhere with everything escaped that a terminal would obey or that would turn text around.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || turns {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::{count, escaped, time};
    use geonce::clock::Timestamp;

    #[test]
    fn numbers_and_times_are_short() {
        assert_eq!([0, 999, 1_302, 1_234_567].map(|n: i32| count(n)), ["0", "999", "1 302", "1 234 567"]);
        assert_eq!(count(-1_302), "-1 302");
        let noon = Timestamp::from_millis(1_794_744_131_000);
        assert_eq!(time(noon, noon), "12:02:11");
        assert_eq!(time(noon, Timestamp::from_millis(1_794_844_131_000)), "2026-11-15 12:02");
    }

    #[test]
    fn nothing_from_elsewhere_commands_a_terminal() {
        assert_eq!(escaped("a\u{1b}[31mb\r\n\u{9b}c\u{202e}d"), "a\\u001b[31mb\\u000d\\u000a\\u009bc\\u202ed");
        assert_eq!(escaped("Zürich 東京"), "Zürich 東京");
    }
}
