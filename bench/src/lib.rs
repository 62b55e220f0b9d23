//! What the benchmark programs share.

pub mod arguments;
pub mod measure;
pub mod points;

/// The lines of a file that are not empty.
pub fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        loop {
            if rest.is_empty() {
                return None;
            }
            let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
            let line = &rest[..end];
            rest = &rest[(end + 1).min(rest.len())..];
            if !line.is_empty() {
                return Some(line);
            }
        }
    })
}
