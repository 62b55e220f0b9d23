//! The query of a request: parameters that are known, each at most once, and text that a store can be asked for.

use super::problem;
use crate::serve::{Problem, percent_decode};
use geonce::event::EventId;

/// Characters of a text that something is looked up by.
const TEXT_CHARACTERS_MAX: usize = 64;

/// Events of a page where nothing is said.
const PAGE_EVENTS: usize = 100;
/// Events of a page at most.
pub(super) const PAGE_EVENTS_MAX: usize = 1_000;

/// Parameters by name.
pub(super) struct Query(Vec<(&'static str, String)>);

impl Query {
    /// Reads `text`; only parameters of these names.
    pub(super) fn read(text: Option<&str>, known: &'static [&'static str]) -> Result<Query, Problem> {
        let mut found: Vec<(&'static str, String)> = Vec::new();
        for pair in text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decoded(name).ok_or_else(|| problem::query_unknown(name, known))?;
            let known_name = known.iter().find(|known| **known == name);
            let name = *known_name.ok_or_else(|| problem::query_unknown(&name, known))?;
            if found.iter().any(|(earlier, _)| *earlier == name) {
                return Err(problem::query_invalid(name, "this is given twice"));
            }
            let value = decoded(value).ok_or_else(|| problem::query_invalid(name, "this is not text"))?;
            found.push((name, value));
        }
        Ok(Query(found))
    }

    /// The value of a parameter.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// A parameter that something is looked up by.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, Problem> {
        let text = self.get(name).map(|text| plain(text).ok_or_else(|| problem::query_invalid(name, PLAIN)));
        text.transpose()
    }

    /// One of the words that `parse` knows.
    pub(super) fn word<T: Copy + 'static>(
        &self,
        name: &str,
        all: &'static [T],
        word: impl Fn(T) -> &'static str,
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let found = all.iter().copied().find(|one| word(*one) == text);
        let words = || all.iter().map(|one| word(*one)).collect::<Vec<_>>().join(", ");
        Ok(Some(found.ok_or_else(|| problem::query_invalid(name, &format!("one of {}", words())))?))
    }

    /// How many are wanted: `limit`.
    pub(super) fn limit(&self) -> Result<usize, Problem> {
        let Some(text) = self.get("limit") else { return Ok(PAGE_EVENTS) };
        let number = text.parse().ok().filter(|number| (1..=PAGE_EVENTS_MAX).contains(number));
        // What `parse` takes and nobody writes: a plus sign.
        number
            .filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
            .ok_or_else(|| problem::query_invalid("limit", &format!("a number from 1 to {PAGE_EVENTS_MAX}")))
    }

    /// Where the page begins: the `next` of the page before.
    pub(super) fn cursor(&self) -> Result<Option<EventId>, Problem> {
        let Some(text) = self.get("cursor") else { return Ok(None) };
        let id = text.parse().map_err(|_| problem::query_invalid("cursor", "this is not the next of a page"))?;
        Ok(Some(id))
    }
}

/// What is wrong with text that is not plain.
pub(super) const PLAIN: &str = "1 to 64 characters, without control characters";

/// Text that every store can be asked for.
pub(super) fn plain(text: &str) -> Option<String> {
    let short = (1..=TEXT_CHARACTERS_MAX).contains(&text.chars().count());
    (short && !text.chars().any(char::is_control)).then(|| text.to_owned())
}

/// Text as forms write it: `+` is a space.
fn decoded(text: &str) -> Option<String> {
    let spaced = text.replace('+', " ");
    String::from_utf8(percent_decode(spaced.as_bytes())?).ok()
}

#[cfg(test)]
mod tests {
    use super::Query;

    const KNOWN: &[&str] = &["a", "limit"];

    #[test]
    fn parameters_are_known_and_given_once() {
        let query = Query::read(Some("a=x%20y+z&limit=7"), KNOWN).unwrap();
        assert_eq!((query.get("a"), query.limit().unwrap()), (Some("x y z"), 7));
        for (text, code) in [
            ("b=1", "query_unknown"),
            ("A=1", "query_unknown"),
            ("a=1&a=2", "query_invalid"),
            ("a=%ff", "query_invalid"),
            ("%zz=1", "query_unknown"),
            ("=", "query_unknown"),
        ] {
            assert_eq!(
                Query::read(Some(text), KNOWN).err().map(|problem| problem.code().to_owned()).as_deref(),
                Some(code),
                "{text}"
            );
        }
        for text in
            ["limit=0", "limit=1001", "limit=", "limit=%2B7", "limit=-1", "limit=7.0", "limit=99999999999999999999"]
        {
            assert!(Query::read(Some(text), KNOWN).unwrap().limit().is_err(), "{text}");
        }
        for text in ["a=", "a=%00", "a=%1b", &format!("a={}", "x".repeat(65))] {
            assert!(Query::read(Some(text), KNOWN).unwrap().text("a").is_err(), "{text}");
        }
        assert!(Query::read(None, KNOWN).is_ok() && Query::read(Some("&"), KNOWN).is_ok());
    }
}
