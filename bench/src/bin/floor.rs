//! The floor under any spatial key: strict UTF-8 JSON tokenising of every line, and SHA-256 of its canonical
//! bytes, which are given ready-made. No number is converted, no member looked up, nothing put in order.
//!
//! Usage: `floor FILE CANONICAL`, where CANONICAL has the canonical bytes of line i of FILE in its line i.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = std::fs::read(arguments.next().ok_or("usage: floor FILE CANONICAL")?)?;
    let canonical = std::fs::read(arguments.next().ok_or("usage: floor FILE CANONICAL")?)?;
    let mut out = String::new();
    for (line, canonical) in geonce_bench::lines(&file).zip(geonce_bench::lines(&canonical)) {
        if std::str::from_utf8(line).is_err() || !is_json(line) {
            return Err("the floor's input is not JSON".into());
        }
        URL_SAFE_NO_PAD.encode_string(&Sha256::digest(canonical)[..16], &mut out);
        out.push('\n');
    }
    std::io::stdout().write_all(out.as_bytes())?;
    Ok(())
}

/// Whether `text` is one JSON value (RFC 8259): a plain strict tokeniser, byte by byte.
fn is_json(text: &[u8]) -> bool {
    let mut tokens = Tokens { text, at: 0 };
    tokens.value(0).is_some() && {
        tokens.space();
        tokens.at == text.len()
    }
}

struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
}

impl Tokens<'_> {
    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn space(&mut self) {
        while matches!(self.peek(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> Option<()> {
        let found = self.peek() == byte;
        self.at += usize::from(found);
        found.then_some(())
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        self.space();
        match self.peek() {
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(),
            b'[' if depth < 64 => self.list(depth, b']', false),
            b'{' if depth < 64 => self.list(depth, b'}', true),
            b't' => self.literal(b"true"),
            b'f' => self.literal(b"false"),
            b'n' => self.literal(b"null"),
            _ => None,
        }
    }

    fn literal(&mut self, text: &[u8]) -> Option<()> {
        text.iter().try_for_each(|&byte| self.eat(byte))
    }

    fn list(&mut self, depth: usize, close: u8, named: bool) -> Option<()> {
        self.at += 1;
        self.space();
        if self.eat(close).is_some() {
            return Some(());
        }
        loop {
            if named {
                self.space();
                self.string()?;
                self.space();
                self.eat(b':')?;
            }
            self.value(depth + 1)?;
            self.space();
            if self.eat(b',').is_none() {
                return self.eat(close);
            }
        }
    }

    fn string(&mut self) -> Option<()> {
        self.eat(b'"')?;
        loop {
            match self.peek() {
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                b'\\' => {
                    self.at += 1;
                    let hexadecimal = self.peek() == b'u';
                    if !matches!(self.peek(), b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' | b'u') {
                        return None;
                    }
                    self.at += 1;
                    for _ in 0..if hexadecimal { 4 } else { 0 } {
                        self.peek().is_ascii_hexdigit().then_some(())?;
                        self.at += 1;
                    }
                }
                0..0x20 => return None,
                _ => self.at += 1,
            }
        }
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    fn number(&mut self) -> Option<()> {
        let _ = self.eat(b'-');
        if self.eat(b'0').is_none() {
            self.digits()?;
        }
        if self.eat(b'.').is_some() {
            self.digits()?;
        }
        if matches!(self.peek(), b'e' | b'E') {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), b'+' | b'-'));
            self.digits()?;
        }
        Some(())
    }
}
