//! What answers mean: which failures pass, how long to wait, what a file is called.

use super::address::{Address, decoded};
use super::client::{Client, Reply};
use super::download::Got;
use crate::error::{Error, Kind};
use crate::sink::http::retry_after;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName};
use std::time::Duration;

/// The longest name of a file.
const NAME_BYTES_MAX: usize = 120;
/// The most bytes of a refusal that are read for its words.
const WORDS_BYTES_MAX: usize = 4 << 10;
/// The longest wait for the words of a refusal.
const WORDS_WAIT_MAX: Duration = Duration::from_secs(2);
/// The longest value of a header that is remembered.
const VALUE_BYTES_MAX: usize = 1 << 10;

/// Why something was not fetched.
#[derive(Debug)]
pub(super) enum Failure {
    /// It may pass.
    Again {
        /// What happened.
        error: Error,
        /// How long the server wants to be left alone.
        after: Option<Duration>,
    },
    /// It does not pass by itself.
    Final(Error),
    /// The guard permits none of the addresses.
    Closed(Error),
}

impl Failure {
    pub(super) fn again(error: Error) -> Failure {
        Failure::Again { error, after: None }
    }
}

/// What an answer without the content means.
pub(super) async fn failure(client: &Client, mut reply: Reply) -> Failure {
    let status = reply.status;
    let words = words(&mut reply).await;
    let words = if words.is_empty() { words } else { format!(": {}", client.quote(&words)) };
    let message = format!("{} answered {status}{words}", client.show(&reply.address));
    let error = |kind| Error::new(kind, message.clone());
    let hint = "send credentials with --header, such as --header 'Authorization=Bearer …'";
    match status.as_u16() {
        408 | 425 | 429 | 500 | 502..=504 | 507..=599 => {
            let after = retry_after(&reply.headers, client.surroundings().clock.now());
            Failure::Again { error: error(Kind::Unavailable), after }
        }
        401 | 403 | 407 => Failure::Final(error(Kind::Permission).hint(hint)),
        404 | 410 => Failure::Final(error(Kind::Missing)),
        _ => Failure::Final(error(Kind::Invalid)),
    }
}

/// What a server says about its refusal, if it is text and comes soon.
async fn words(reply: &mut Reply) -> String {
    let kind = header(&reply.headers, &CONTENT_TYPE).unwrap_or_default();
    if !is_json(Some(&kind)) && !kind.starts_with("text/plain") {
        return String::new();
    }
    let mut bytes = Vec::new();
    let reading = async {
        while let Ok(Some(more)) = reply.body.next().await {
            bytes.extend_from_slice(&more);
            if bytes.len() >= WORDS_BYTES_MAX {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(WORDS_WAIT_MAX, reading).await;
    bytes.truncate(WORDS_BYTES_MAX);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A header's value, if it is text of bearable length.
pub(super) fn header(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?.trim();
    (!text.is_empty() && text.len() <= VALUE_BYTES_MAX).then(|| text.to_owned())
}

/// Whether a content type is JSON.
pub(super) fn is_json(content_type: Option<&str>) -> bool {
    let essence = essence(content_type.unwrap_or_default());
    essence == "application/json" || essence.ends_with("+json")
}

fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// What the file is called: as the server says, or as its address says. A name without an ending that is known gets one for
/// the content type.
pub(super) fn file_name(got: &Got, asked: &Address) -> String {
    let candidates = [
        got.disposition.as_deref().and_then(disposition_name),
        Some(got.address.last_segment()),
        Some(asked.last_segment()),
    ];
    let names: Vec<String> = candidates.into_iter().flatten().map(|name| safe(&name)).collect();
    let known = names.iter().find(|name| has_known_ending(name)).cloned();
    let mut name = known.or_else(|| names.into_iter().find(|name| !name.is_empty())).unwrap_or_default();
    if got.gzip && name.to_ascii_lowercase().ends_with(".gz") {
        name.truncate(name.len() - ".gz".len());
    }
    if name.is_empty() {
        "download".clone_into(&mut name);
    }
    if has_known_ending(&name) {
        return name;
    }
    let ending = got.content_type.as_deref().and_then(|kind| ending(&essence(kind)));
    ending.map_or(name.clone(), |ending| format!("{name}.{ending}"))
}

/// What a file made of pages is called: after the collection or the service.
pub(super) fn pages_name(asked: &Address) -> String {
    let segments: Vec<String> =
        asked.path().split('/').map(|one| String::from_utf8_lossy(&decoded(one)).into_owned()).collect();
    let is_name = |one: &&String| {
        let number = one.bytes().all(|byte| byte.is_ascii_digit());
        !number && !["items", "query", "FeatureServer", "MapServer"].contains(&one.as_str())
    };
    let name = segments.iter().rev().find(is_name).map(|name| safe(name)).filter(|name| !name.is_empty());
    let name = name.unwrap_or_else(|| "pages".to_owned());
    let stem = if has_known_ending(&name) { name.rsplit_once('.').map_or("", |(stem, _)| stem) } else { &name };
    format!("{stem}.geojsonl")
}

/// The endings of files that readers know.
const ENDINGS: &[&str] = &[
    "csv",
    "fgb",
    "geojson",
    "geojsonl",
    "geojsons",
    "geojsonseq",
    "geoparquet",
    "gpkg",
    "json",
    "jsonl",
    "ndjson",
    "parquet",
    "shp",
    "tsv",
    "zip",
];

fn has_known_ending(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, ending)| ENDINGS.contains(&ending.to_ascii_lowercase().as_str()))
}

/// The ending for a content type, without parameters and in lower case.
fn ending(essence: &str) -> Option<&'static str> {
    Some(match essence {
        "application/geo+json" | "application/vnd.geo+json" => "geojson",
        "application/json" | "text/json" => "json",
        "application/geo+json-seq" | "application/x-ndjson" | "application/ndjson" | "application/jsonl" => "geojsonl",
        "application/geopackage+sqlite3" | "application/geopackage+vnd.sqlite3" => "gpkg",
        "application/flatgeobuf" | "application/vnd.flatgeobuf" | "application/x-flatgeobuf" => "fgb",
        "application/vnd.apache.parquet" | "application/x-parquet" | "application/parquet" => "parquet",
        "application/zip" | "application/x-zip-compressed" | "application/x-zip" => "zip",
        "text/csv" | "application/csv" => "csv",
        _ => return None,
    })
}

/// The name in `content-disposition` (RFC 6266): the encoded one before the plain one.
fn disposition_name(value: &str) -> Option<String> {
    let parameters = parameters(value);
    let named = |name: &str| parameters.iter().find(|(one, _)| one.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    let encoded = named("filename*").and_then(|value| {
        let (charset, rest) = value.split_once('\'')?;
        let (_, text) = rest.split_once('\'')?;
        let bytes = decoded(text);
        match charset.to_ascii_lowercase().as_str() {
            "utf-8" => String::from_utf8(bytes).ok(),
            "iso-8859-1" => Some(bytes.into_iter().map(char::from).collect()),
            _ => None,
        }
    });
    encoded.or_else(|| named("filename").cloned()).filter(|name| !name.is_empty())
}

/// The parameters of a header's value, behind its first semicolon; quoted ones without their quotes.
pub(super) fn parameters(value: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = value.split_once(';').map_or("", |(_, rest)| rest);
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim().trim_start_matches(';').trim().to_owned();
        let after = after.trim_start();
        let (text, left) = if let Some(quoted) = after.strip_prefix('"') {
            unquoted(quoted)
        } else {
            let end = after.find(';').unwrap_or(after.len());
            (after[..end].trim().to_owned(), &after[end..])
        };
        found.push((name, text));
        rest = left.trim_start().trim_start_matches(';');
    }
    found
}

/// A quoted text up to its closing quote, and what is left behind it.
fn unquoted(quoted: &str) -> (String, &str) {
    let mut text = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, one)) = characters.next() {
        match one {
            '"' => return (text, &quoted[at + 1..]),
            '\\' => text.extend(characters.next().map(|(_, next)| next)),
            _ => text.push(one),
        }
    }
    (text, "")
}

/// A name that means the same in every folder: no path, nothing hidden, nothing that a terminal would act on.
fn safe(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let plain: String = last.chars().map(|one| if is_plain(one) { one } else { '_' }).collect();
    let plain = plain.trim().trim_matches('.').trim();
    if plain.len() <= NAME_BYTES_MAX {
        return plain.to_owned();
    }
    // The ending tells the format, so the beginning gives way.
    let from = (plain.len() - NAME_BYTES_MAX..plain.len()).find(|&at| plain.is_char_boundary(at)).unwrap_or(0);
    plain[from..].trim_start_matches('.').to_owned()
}

fn is_plain(one: char) -> bool {
    one.is_alphanumeric() || " -_.,()+=@~".contains(one)
}
