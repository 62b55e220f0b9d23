//! Links to a next page: in the header `link` (RFC 8288), and in the page (OGC API Features, STAC, Django).

use super::super::answer::parameters;
use serde_json::Value;

/// The most links of a page that are looked at.
const LINKS_MAX: usize = 1000;

/// Where the values of the header `link` lead next.
pub(in super::super) fn in_header(values: &[String]) -> Option<String> {
    values.iter().flat_map(|value| split(value)).find_map(|link| {
        let (address, rest) = link.trim().strip_prefix('<')?.split_once('>')?;
        let relations = parameters(rest).into_iter().find(|(name, _)| name.eq_ignore_ascii_case("rel"))?.1;
        let is_next = relations.split_whitespace().any(|one| one.eq_ignore_ascii_case("next"));
        is_next.then(|| address.to_owned())
    })
}

/// The links of a value. Commas also stand in addresses and between quotes.
fn split(value: &str) -> Vec<&str> {
    let (mut links, mut start, mut in_address, mut in_quotes) = (Vec::new(), 0, false, false);
    for (at, byte) in value.bytes().enumerate() {
        match byte {
            b'<' if !in_quotes => in_address = true,
            b'>' if !in_quotes => in_address = false,
            b'"' if !in_address => in_quotes = !in_quotes,
            b',' if !in_address && !in_quotes => {
                links.push(&value[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        if links.len() == LINKS_MAX {
            return links;
        }
    }
    links.push(&value[start..]);
    links
}

/// Where the member `links` of a page leads next, JSON before other forms.
pub(super) fn in_links(links: &Value) -> Option<String> {
    let text = |link: &Value, name: &str| link.get(name).and_then(Value::as_str).map(str::to_owned);
    let links = links.as_array()?.iter().take(LINKS_MAX);
    let next: Vec<&Value> = links.filter(|link| text(link, "rel").as_deref() == Some("next")).collect();
    let is_json = |link: &&&Value| text(link, "type").is_none_or(|kind| kind.contains("json"));
    next.iter().find(is_json).or_else(|| next.first()).and_then(|link| text(link, "href"))
}

/// Where a member `next` of a page leads, if it is an address.
pub(super) fn in_member(next: &Value) -> Option<String> {
    next.as_str().filter(|text| text.starts_with("http") || text.starts_with('/')).map(str::to_owned)
}
