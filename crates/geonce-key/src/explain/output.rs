//! An explanation for people and for programs.

use super::{Explanation, Match, Reason, ReasonCode, shown};
use crate::Encoding;
use crate::jcs::write_string;
use std::fmt::Write as _;

/// Terminal styles, or nothing.
struct Paint(bool);

impl Paint {
    fn with(&self, style: &str, text: &str) -> String {
        if self.0 { format!("\u{1b}[{style}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn bold(&self, text: &str) -> String {
        self.with("1", text)
    }

    fn dim(&self, text: &str) -> String {
        self.with("2", text)
    }

    fn warning(&self, text: &str) -> String {
        self.with("33", text)
    }

    fn fix(&self, text: &str) -> String {
        self.with("32", text)
    }
}

impl Explanation {
    /// The explanation for a terminal. `names` stand for the two payloads.
    pub fn to_text(&self, names: [&str; 2], color: bool) -> String {
        let paint = Paint(color);
        let names = names.map(shown::shorten);
        let mut out = String::new();
        self.headline(&names, &paint, &mut out);
        if !self.reasons.is_empty() {
            let count = self.reasons.len() + self.more_reasons;
            let _ = writeln!(out, "  {count} {}", if count == 1 { "reason" } else { "reasons" });
        }
        for reason in &self.reasons {
            write_reason(reason, &names, &paint, &mut out);
        }
        more(self.more_reasons, &mut out);
        self.write_outside(&names, &paint, &mut out);
        self.write_removed(&paint, &mut out);
        out
    }

    fn headline(&self, [a, b]: &[String; 2], paint: &Paint, out: &mut String) {
        let dropped = "would be dropped as a duplicate of";
        let (what, consequence) = match self.by {
            Match::None => {
                let _ = writeln!(out, "{}", paint.bold("different keys"));
                return;
            }
            Match::Key => ("same key", dropped),
            Match::TieAlias => ("same event, by its alias", dropped),
            Match::Previous => ("same event, by the previous policy", dropped),
            Match::Delivery if self.conflict => ("same delivery id, other content", "would be kept as a conflict of"),
            Match::Delivery => ("same delivery id", dropped),
        };
        let _ = writeln!(out, "{}   {b} {consequence} {a}", paint.bold(what));
    }

    fn write_outside(&self, names: &[String; 2], paint: &Paint, out: &mut String) {
        let fields: Vec<&Reason> = self.outside.iter().filter(|r| r.code == ReasonCode::OutsideField).collect();
        for reason in self.outside.iter().filter(|r| r.code != ReasonCode::OutsideField) {
            write_reason(reason, names, paint, out);
        }
        if !fields.is_empty() {
            let list: Vec<String> = fields
                .iter()
                .map(|reason| {
                    let [a, b] = unquoted(reason);
                    format!("{}  {a} │ {b}", shown::place(&reason.pointer))
                })
                .collect();
            let warning = paint.warning("⚠ fields that differ and are NOT part of the identity:");
            let _ = writeln!(out, "  {warning}  {}", list.join("   "));
        }
        more(self.more_outside, out);
        if self.same
            && let Some(fix) = self.fixes.first()
        {
            let _ = writeln!(out, "  fix:  {}", paint.fix(fix));
        }
    }

    fn write_removed(&self, paint: &Paint, out: &mut String) {
        if self.removed.is_empty() {
            return;
        }
        let label = |reason: &Reason| match reason.code {
            ReasonCode::IgnoredField => {
                let name = reason.pointer.rsplit('/').next().unwrap_or_default();
                shown::shorten(&name.replace("~1", "/").replace("~0", "~"))
            }
            code => code.words(),
        };
        let mut labels: Vec<String> = self.removed.iter().map(label).collect();
        if self.more_removed > 0 {
            labels.push(format!("and {} more", self.more_removed));
        }
        let what = if self.same { "removed before hashing" } else { "not reasons (removed before hashing)" };
        let _ = writeln!(out, "  {} {}", paint.dim(&format!("{what}:")), labels.join(" · "));
    }

    /// The explanation as one JSON object, members as in `docs/explain.md`.
    pub fn to_json(&self) -> String {
        let mut out = Vec::new();
        out.extend_from_slice(format!("{{\"same\":{},\"by\":\"{}\"", self.same, self.by.as_str()).as_bytes());
        out.extend_from_slice(format!(",\"conflict\":{}", self.conflict).as_bytes());
        for (name, key) in [("key_a", self.key_a), ("key_b", self.key_b)] {
            member(name, &key.text(Encoding::Base64), &mut out);
        }
        let lists = [
            ("reasons", &self.reasons, self.more_reasons),
            ("removed", &self.removed, self.more_removed),
            ("outside", &self.outside, self.more_outside),
        ];
        for (name, reasons, more) in lists {
            out.extend_from_slice(format!(",\"{name}\":[").as_bytes());
            for (i, reason) in reasons.iter().enumerate() {
                out.extend_from_slice(if i == 0 { b"" } else { b"," });
                write_json(reason, &mut out);
            }
            out.extend_from_slice(format!("],\"more_{name}\":{more}").as_bytes());
        }
        out.extend_from_slice(b",\"fixes\":[");
        for (i, fix) in self.fixes.iter().enumerate() {
            out.extend_from_slice(if i == 0 { b"" } else { b"," });
            write_string(fix, &mut out);
        }
        out.extend_from_slice(b"]}");
        String::from_utf8_lossy(&out).into_owned()
    }
}

fn more(count: usize, out: &mut String) {
    if count > 0 {
        let _ = writeln!(out, "   and {count} more");
    }
}

/// A value without its quotes where both are text, so that `17` and `"17"` stay apart.
fn unquoted(reason: &Reason) -> [String; 2] {
    let inner = |text: &str| text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).map(str::to_owned);
    match (inner(&reason.a), inner(&reason.b)) {
        (Some(a), Some(b)) => [a, b],
        _ => [&reason.a, &reason.b].map(|text| if text.is_empty() { "absent".to_owned() } else { text.clone() }),
    }
}

fn write_reason(reason: &Reason, names: &[String; 2], paint: &Paint, out: &mut String) {
    let place = match reason.pointer.as_str() {
        "" => reason.code.words(),
        pointer => shown::place(pointer),
    };
    let values = [(&reason.a, &reason.canonical_a), (&reason.b, &reason.canonical_b)];
    let show = |text: &str| if text.is_empty() { "absent".to_owned() } else { text.to_owned() };
    if values.iter().any(|(delivered, _)| !delivered.is_empty()) {
        let delivered = values.map(|(delivered, _)| show(delivered));
        let width = delivered.iter().map(|text| text.chars().count()).max().unwrap_or_default();
        let name_width = names.iter().map(|name| name.chars().count()).max().unwrap_or_default();
        let indent = place.chars().count();
        for i in 0..2 {
            let canonical = values[i].1;
            let arrow = if canonical.is_empty() || canonical == values[i].0 {
                String::new()
            } else {
                format!("   → {canonical}")
            };
            let left = if i == 0 { paint.bold(&place) } else { " ".repeat(indent) };
            let line = format!("   {left}   {:<name_width$} {:<width$}{arrow}", names[i], delivered[i]);
            out.push_str(line.trim_end());
            out.push('\n');
        }
    } else {
        let _ = writeln!(out, "   {}", paint.bold(&place));
    }
    let fix = reason.fix.as_ref().map_or_else(String::new, |fix| format!("   fix: {}", paint.fix(fix)));
    let _ = writeln!(out, "     {}{fix}", reason.message);
}

fn member(name: &str, value: &str, out: &mut Vec<u8>) {
    out.push(b',');
    write_string(name, out);
    out.push(b':');
    write_string(value, out);
}

fn write_json(reason: &Reason, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"code\":");
    write_string(reason.code.as_str(), out);
    member("pointer", &reason.pointer, out);
    if let Some(pointer) = &reason.pointer_b {
        member("pointer_b", pointer, out);
    }
    member("a", &reason.a, out);
    member("b", &reason.b, out);
    member("canonical_a", &reason.canonical_a, out);
    member("canonical_b", &reason.canonical_b, out);
    member("message", &reason.message, out);
    out.extend_from_slice(b",\"fix\":");
    match &reason.fix {
        Some(fix) => write_string(fix, out),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(format!(",\"places\":{}}}", reason.places).as_bytes());
}
