//! Sources over HTTP: brings a file, or all pages of an API, to a folder, whole or not at all.
//!
//! A broken download is taken up again where it broke, if the server can prove that the file is still the same, and begun
//! anew if not. What cannot be told complete is refused. The address is one that the user gave on the command line, so
//! private and local networks may be called, unlike from addresses that senders choose; only http and https are spoken.
//! Values of headers, passwords and tokens appear in no message, record or key.

mod address;
mod answer;
pub(crate) mod call;
mod client;
mod download;
mod gzip;
mod pages;
#[cfg(test)]
mod tests;

use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Kind, Result};
use crate::retry::Retry;
use crate::sink::http::{Guard, Resolve, system_resolver};
use address::Address;
use client::Client;
use download::{Spool, Wanted};
use geonce_key::policy::Secret;
use hyper::header::{HeaderName, HeaderValue};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::rustls::RootCertStore;

/// The most headers that a user can add.
const HEADERS_MAX: usize = 64;
/// The longest value of a header that a user can add.
const HEADER_BYTES_MAX: usize = 8 << 10;
/// Headers that say how a request is made, not what is asked for.
const HEADERS_OURS: &[&str] = &[
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// How a source is fetched.
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// Sent with every request to the host that the user named, and to no other.
    pub headers: Vec<(String, Secret)>,
    /// Query parameters that are credentials: shown nowhere, and no part of a key.
    pub secret_parameters: Vec<String>,
    /// The pages of an API are read until there are no more; none for a file.
    pub paging: Option<Paging>,
    /// Takes a document that says of itself that it is only the first page.
    pub first_page_only: bool,
    /// The most bytes in all.
    pub bytes_max: u64,
    /// The most bytes of a page.
    pub page_bytes_max: u64,
    /// The most pages.
    pub pages_max: u64,
    /// The most features of all pages; each takes about 20 bytes of memory.
    pub features_max: u64,
    /// The number of features that a server tells may be wrong (`numberMatched`): having fewer is no sign that some are lost.
    pub count_is_estimate: bool,
    /// The longest wait for a connection.
    pub connect_max: Duration,
    /// The longest wait for the beginning of an answer.
    pub answer_max: Duration,
    /// The longest time in which hardly anything arrives.
    pub silence_max: Duration,
    /// The longest wait that a server can ask for.
    pub retry_after_max: Duration,
    /// The longest time in all.
    pub time_max: Duration,
    /// Waits between attempts, and how many may fail in a row without bringing anything new.
    pub retry: Retry,
    /// How often a source may change while its pages are read.
    pub restarts_max: u32,
}

impl Default for FetchOptions {
    fn default() -> Self {
        FetchOptions {
            headers: Vec::new(),
            secret_parameters: Vec::new(),
            paging: None,
            first_page_only: false,
            bytes_max: 64 << 30,
            page_bytes_max: 256 << 20,
            pages_max: 100_000,
            features_max: 7_000_000,
            count_is_estimate: false,
            connect_max: Duration::from_secs(10),
            answer_max: Duration::from_mins(2),
            silence_max: Duration::from_mins(1),
            retry_after_max: Duration::from_mins(10),
            time_max: Duration::from_hours(24),
            retry: Retry::default(),
            restarts_max: 4,
        }
    }
}

impl FetchOptions {
    /// Adds a header, written `NAME=VALUE` or `NAME: VALUE`. Errors do not repeat the value.
    pub fn add_header(&mut self, text: &str) -> Result<()> {
        let Some((name, value)) = text.split_once(['=', ':']) else {
            return Err(Error::new(Kind::Invalid, "a header has no value").hint("--header NAME=VALUE"));
        };
        self.headers.push((name.trim().to_owned(), Secret::new(value.trim())));
        self.header_values().map(drop)
    }

    /// The headers as they are sent.
    fn header_values(&self) -> Result<Vec<(HeaderName, HeaderValue)>> {
        if self.headers.len() > HEADERS_MAX {
            return Err(Error::new(Kind::Invalid, format!("there are more than {HEADERS_MAX} headers")));
        }
        let read = |(name, value): &(String, Secret)| {
            let wrong = |why: &str| Error::new(Kind::Invalid, format!("the header {name:?} {why}"));
            let known = HeaderName::try_from(name.as_str()).map_err(|_| wrong("has no name that HTTP allows"))?;
            if HEADERS_OURS.contains(&known.as_str()) {
                return Err(wrong("is set by geonce itself"));
            }
            let bytes = Some(value.bytes()).filter(|bytes| bytes.len() <= HEADER_BYTES_MAX);
            let value = bytes.and_then(|bytes| HeaderValue::from_bytes(bytes).ok());
            let mut value = value.ok_or_else(|| wrong("has a value that HTTP does not allow"))?;
            value.set_sensitive(true);
            Ok((known, value))
        };
        self.headers.iter().map(read).collect()
    }
}

/// How the next page of an API is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Paging {
    /// By what the address and the first page look like: [`Paging::ArcGis`] or [`Paging::Links`].
    Auto,
    /// By a link `next` in the page (OGC API Features, STAC) or in the header `link`.
    Links,
    /// By counting: the query of an ArcGIS feature layer.
    ArcGis,
    /// By a token in the page that is sent back.
    Token {
        /// Where the token is in a page: a JSON pointer.
        pointer: String,
        /// The query parameter that it is sent back in.
        parameter: String,
    },
}

/// What was fetched.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// Where it is now.
    pub path: PathBuf,
    /// What the file is called; only a name, safe in any folder, and with an ending that tells its format where that is known.
    pub name: String,
    /// What the server says it is.
    pub content_type: Option<String>,
    /// The server's name for this version of it.
    pub etag: Option<String>,
    /// When it was changed, as the server says it.
    pub last_modified: Option<String>,
    /// The coordinate system that the server declares beside the features (header `content-crs`, or member `crs` of pages),
    /// as it writes it. Features must not be read as if they had another.
    pub content_crs: Option<String>,
    /// How many bytes the file has.
    pub bytes: u64,
    /// The address for keys: without credentials, with its query sorted. Not to be shown: see `url_shown`.
    pub url_for_key: String,
    /// The address for people and records: without credentials, and with values hidden that look like secrets.
    pub url_shown: String,
    /// The pages it was made of.
    pub pages: Option<Pages>,
}

/// The pages that a file was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// How many.
    pub count: u64,
    /// How many features they had.
    pub features: u64,
    /// Digest of the addresses for keys of all of them, in order: endpoint, parameters and tokens.
    pub sha256: [u8; 32],
}

/// How far a fetch has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that have arrived and count.
    pub bytes: u64,
    /// Bytes there are, where the server says so.
    pub bytes_total: Option<u64>,
    /// Pages that have been read.
    pub pages: u64,
    /// Features on them.
    pub features: u64,
    /// How long nothing will happen, and why.
    pub waiting: Option<(Duration, String)>,
}

/// Is told how far a fetch has come.
pub type OnProgress<'a> = &'a (dyn Fn(&Progress) + Send + Sync);

/// Waits.
type Wait = Arc<dyn Fn(Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// What a fetch needs of the world.
struct Surroundings {
    clock: Arc<dyn Clock>,
    wait: Wait,
    resolve: Resolve,
    /// Certificates that are trusted; those of the system if none are given.
    roots: Option<RootCertStore>,
    /// Which addresses may be called; all, where a user chose them.
    guard: Option<Guard>,
}

/// Fetches a source into `folder`, which should be private and is the caller's to remove.
pub async fn fetch(url: &str, options: &FetchOptions, folder: &Path, progress: OnProgress<'_>) -> Result<Fetched> {
    let surroundings = Surroundings {
        clock: Arc::new(SystemClock),
        wait: Arc::new(|wait| Box::pin(tokio::time::sleep(wait))),
        resolve: system_resolver(),
        roots: None,
        guard: None,
    };
    fetch_in(surroundings, url, options, folder, progress).await
}

/// What an address is called in keys, and what people see of it: [`Fetched::url_for_key`] and [`Fetched::url_shown`].
pub fn names(url: &str, options: &FetchOptions) -> Result<(String, String)> {
    let (address, _) = Address::parse(url)?;
    Ok((address.for_key(&options.secret_parameters), address.shown(&options.secret_parameters)))
}

async fn fetch_in(
    surroundings: Surroundings,
    url: &str,
    options: &FetchOptions,
    folder: &Path,
    progress: OnProgress<'_>,
) -> Result<Fetched> {
    let (address, basic) = Address::parse(url)?;
    let client = Client::new(address.clone(), basic, options, surroundings)?;
    let all = async {
        match &options.paging {
            Some(paging) => pages::fetch(&client, &address, paging, folder, progress).await,
            None => file(&client, &address, folder, progress).await,
        }
    };
    let late = || {
        let seconds = options.time_max.as_secs();
        Err(Error::new(Kind::Unavailable, format!("fetching {} took longer than {seconds} s", client.show(&address))))
    };
    tokio::time::timeout(options.time_max, all).await.unwrap_or_else(|_| late())
}

/// Fetches one file.
async fn file(client: &Client, address: &Address, folder: &Path, progress: OnProgress<'_>) -> Result<Fetched> {
    let options = client.options();
    let mut spool = Spool::new(folder)?;
    let wanted = Wanted { address, accept: "*/*", bytes_max: options.bytes_max, end_is_told: false, unless: None };
    let report = |bytes, bytes_total, waiting: Option<(Duration, String)>| {
        progress(&Progress { bytes, bytes_total, waiting, ..Progress::default() });
    };
    let got = client.download(&wanted, &mut spool, &report).await?;
    let shown = client.show(address);
    let (mut bytes, mut spool) = (got.bytes, spool);
    if got.gzip {
        (spool, bytes) = gzip::decode(spool, Spool::new(folder)?, options.bytes_max, shown.clone()).await?;
    }
    let is_json = answer::is_json(got.content_type.as_deref());
    if !options.first_page_only && (got.next.is_some() || (is_json && bytes <= options.page_bytes_max)) {
        let more = got.next.is_some() || pages::says_there_is_more(spool.path().to_owned()).await;
        if more {
            return Err(Error::new(Kind::Invalid, format!("{shown} is only the first page of its features"))
                .hint("--pages reads them all"));
        }
    }
    let name = answer::file_name(&got, address);
    Ok(Fetched {
        path: spool.keep(&name)?,
        name,
        content_type: got.content_type,
        etag: got.etag,
        last_modified: got.last_modified,
        content_crs: got.content_crs,
        bytes,
        url_for_key: address.for_key(&options.secret_parameters),
        url_shown: shown,
        pages: None,
    })
}
