//! One resource into one file, whole: attempts, and what of an earlier attempt can be kept.
//!
//! Bytes of two answers are put together only where the server proves that they are of the same content (RFC 9110 sections
//! 13.1.5 and 14.4). In any other case the file begins anew.

use super::address::Address;
use super::answer::{Failure, failure, header};
use super::client::{Ask, Client, Reply};
use super::pages::links;
use crate::error::{Error, Kind, Result};
use crate::event::random;
use hyper::header::{
    CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, HeaderMap, HeaderName,
    LAST_MODIFIED, LINK,
};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The most attempts for one resource, however much each of them brings.
const ATTEMPTS_MAX: u32 = 1000;
/// An attempt that brings fewer new bytes is one in vain: a server must not hold us for ever with a byte at a time.
const PROGRESS_BYTES_MIN: u64 = 1 << 10;
/// A date of change proves something only if it was this long ago when the answer was made: a file may change twice in the
/// second that the date tells (RFC 9110 section 8.8.2.2).
const DATE_PROVES_AFTER: Duration = Duration::from_mins(1);
/// The most values of `link` that are looked at.
const LINKS_MAX: usize = 16;

/// A file under way. It is removed unless it is kept.
pub(super) struct Spool {
    file: File,
    path: PathBuf,
}

impl Spool {
    /// An empty file that nobody else can read.
    pub(super) fn new(folder: &Path) -> Result<Spool> {
        let path = folder.join(format!("fetch-{:032x}.part", random()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path).map_err(|error| disk(&error, "making", &path))?;
        Ok(Spool { file, path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        // A write goes to memory of the system and takes no longer than handing it to another thread would.
        self.file.write_all(bytes).map_err(|error| disk(&error, "writing", &self.path))
    }

    /// Forgets what was written.
    pub(super) fn restart(&mut self) -> Result<()> {
        self.cut(0)
    }

    /// Forgets what was written behind the first `bytes`.
    pub(super) fn cut(&mut self, bytes: u64) -> Result<()> {
        let cut = self.file.set_len(bytes).and_then(|()| self.file.seek(io::SeekFrom::Start(bytes)));
        cut.map(drop).map_err(|error| disk(&error, "emptying", &self.path))
    }

    /// Gives the file its name.
    pub(super) fn keep(mut self, name: &str) -> Result<PathBuf> {
        let path = self.path.with_file_name(name);
        if path.exists() {
            return Err(Error::new(Kind::Invalid, format!("{} exists already", path.display())));
        }
        fs::rename(&self.path, &path).map_err(|error| disk(&error, "naming", &path))?;
        self.path = PathBuf::new();
        Ok(path)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A failure of the disk that things are fetched to.
pub(super) fn disk(error: &io::Error, doing: &str, path: &Path) -> Error {
    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let kind = if full { Kind::Resource } else { Kind::Invalid };
    Error::new(kind, format!("{doing} {}: {error}", path.display()))
}

/// What is to be downloaded.
pub(super) struct Wanted<'a> {
    pub(super) address: &'a Address,
    pub(super) accept: &'a str,
    pub(super) bytes_max: u64,
    /// Whoever reads the content knows whether it is whole, so that the connection need not tell.
    pub(super) end_is_told: bool,
    /// Nothing is wanted if this validator still holds.
    pub(super) unless: Option<&'a str>,
}

/// What was downloaded.
#[derive(Clone, Debug)]
pub(super) struct Got {
    /// Who answered, after redirects.
    pub(super) address: Address,
    pub(super) content_type: Option<String>,
    pub(super) disposition: Option<String>,
    pub(super) etag: Option<String>,
    pub(super) last_modified: Option<String>,
    pub(super) content_crs: Option<String>,
    /// The content is packed.
    pub(super) gzip: bool,
    /// Where the header `link` leads next.
    pub(super) next: Option<String>,
    pub(super) bytes: u64,
    /// Nothing came, because the validator still holds.
    pub(super) unchanged: bool,
}

/// Is told bytes, bytes in all, and for how long nothing will happen and why.
pub(super) type Report<'a> = &'a (dyn Fn(u64, Option<u64>, Option<(Duration, String)>) + Send + Sync);

/// Failures of one resource.
#[derive(Default)]
pub(super) struct Failures {
    in_a_row: u32,
    all: u32,
}

impl Failures {
    /// Waits for the next attempt, if there is one.
    pub(super) async fn wait(
        &mut self,
        client: &Client,
        failure: Failure,
        progressed: bool,
        tell: &(dyn Fn(Duration, String) + Send + Sync),
    ) -> Result<()> {
        let (error, after) = match failure {
            Failure::Final(error) | Failure::Closed(error) => return Err(error),
            Failure::Again { error, after } => (error, after),
        };
        self.in_a_row = if progressed { 1 } else { self.in_a_row + 1 };
        self.all += 1;
        let (retry, longest) = (&client.options().retry, client.options().retry_after_max);
        if self.in_a_row >= retry.attempts || self.all >= ATTEMPTS_MAX {
            let message = format!("{error} (the last of {} attempts)", self.all);
            return Err(Error::new(error.kind(), message));
        }
        if let Some(after) = after.filter(|after| *after > longest) {
            let message = format!("{error}, and wants to be asked again in {} s", after.as_secs());
            return Err(Error::new(Kind::Unavailable, message)
                .hint(format!("try again then; geonce waits for {} s at most", longest.as_secs())));
        }
        // The server's own wait is the least; the jitter on top of it keeps those who were told the same apart.
        let jitter = retry.delay(self.in_a_row, client.seed().wrapping_add(u64::from(self.all)));
        let wait = after.unwrap_or_default() + jitter;
        tracing::warn!(%error, wait_ms = wait.as_millis(), "trying again");
        tell(wait, error.to_string());
        (client.surroundings().wait)(wait).await;
        Ok(())
    }
}

impl Client {
    /// Downloads a resource. What is in the spool afterwards is all of it.
    pub(super) async fn download(&self, wanted: &Wanted<'_>, spool: &mut Spool, report: Report<'_>) -> Result<Got> {
        spool.restart()?;
        let (mut failures, mut state) = (Failures::default(), State::default());
        loop {
            let best = state.best;
            match self.attempt(wanted, spool, &mut state, report).await {
                Ok(got) => return Ok(got),
                Err(failure) => {
                    let progressed = state.best >= best + PROGRESS_BYTES_MIN;
                    let (bytes, total) = (state.bytes, state.total);
                    let tell = |wait, why| report(bytes, total, Some((wait, why)));
                    failures.wait(self, failure, progressed, &tell).await?;
                }
            }
        }
    }

    async fn attempt(
        &self,
        wanted: &Wanted<'_>,
        spool: &mut Spool,
        state: &mut State,
        report: Report<'_>,
    ) -> std::result::Result<Got, Failure> {
        let validator = state.validator.clone().filter(|_| state.bytes > 0 && !state.parts_are_wrong);
        let rest = validator.as_deref().map(|validator| (state.bytes, validator));
        let ask = Ask { address: wanted.address, accept: wanted.accept, rest, unless: wanted.unless, form: None };
        let reply = self.ask(&ask).await?;
        match reply.status.as_u16() {
            // Also the answer to a request for the rest, where the content has changed or parts are not known of.
            200 | 203 => state.begin(spool, &reply).map_err(Failure::Final)?,
            206 if rest.is_some() && state.continues(&reply) => {}
            206 | 416 if rest.is_some() => {
                state.parts_are_wrong = true;
                return Err(self.lost(wanted.address, "the server gave another part than it was asked for"));
            }
            304 if wanted.unless.is_some() => {
                return Ok(Got { unchanged: true, ..got(&reply).map_err(|why| self.unfit(wanted, &why))? });
            }
            _ => return Err(failure(self, reply).await),
        }
        let got = got(&reply).map_err(|why| self.unfit(wanted, &why))?;
        if reply.body.ends_unproven && !wanted.end_is_told {
            let why = "is answered without a length, so that its end looks like a broken connection";
            return Err(self.unfit(wanted, why));
        }
        self.read(wanted, reply, spool, state, report).await?;
        Ok(Got { bytes: state.bytes, ..got })
    }

    fn unfit(&self, wanted: &Wanted<'_>, why: &str) -> Failure {
        let error = Error::new(Kind::Invalid, format!("{} {why}", self.show(wanted.address)));
        Failure::Final(error.hint("download it with another program, look at it, and load the file"))
    }

    async fn read(
        &self,
        wanted: &Wanted<'_>,
        mut reply: Reply,
        spool: &mut Spool,
        state: &mut State,
        report: Report<'_>,
    ) -> std::result::Result<(), Failure> {
        let too_large = || {
            let message = format!("{} has more than {} bytes", self.show(wanted.address), wanted.bytes_max);
            Failure::Final(Error::new(Kind::Invalid, message))
        };
        if state.total.is_some_and(|total| total > wanted.bytes_max) {
            return Err(too_large());
        }
        loop {
            match reply.body.next().await {
                Ok(Some(bytes)) => {
                    if state.bytes + bytes.len() as u64 > wanted.bytes_max {
                        return Err(too_large());
                    }
                    spool.write(&bytes).map_err(Failure::Final)?;
                    state.bytes += bytes.len() as u64;
                    state.best = state.best.max(state.bytes);
                    report(state.bytes, state.total, None);
                }
                Ok(None) => break,
                Err(why) => return Err(self.lost(wanted.address, &why)),
            }
        }
        if state.total.is_some_and(|total| total != state.bytes) {
            // A server may give less than the whole rest.
            return Err(self.lost(wanted.address, "the server gave only a part of the rest"));
        }
        self.keep(reply.body);
        Ok(())
    }
}

/// What is known of a resource between attempts.
#[derive(Default)]
struct State {
    /// Bytes in the spool, all of one content.
    bytes: u64,
    /// The most bytes there ever were.
    best: u64,
    /// Bytes of the whole.
    total: Option<u64>,
    /// Proves that the content is the same.
    validator: Option<String>,
    /// The content encoding.
    encoding: Option<String>,
    /// The server's parts are not to be used.
    parts_are_wrong: bool,
}

impl State {
    /// Starts with a whole answer.
    fn begin(&mut self, spool: &mut Spool, reply: &Reply) -> Result<()> {
        spool.restart()?;
        self.bytes = 0;
        self.total = reply.body.length();
        self.validator = validator(&reply.headers);
        self.encoding = header(&reply.headers, &CONTENT_ENCODING);
        Ok(())
    }

    /// Whether an answer continues what is there: from the very byte, of the same content as far as it says.
    fn continues(&self, reply: &Reply) -> bool {
        let range = header(&reply.headers, &CONTENT_RANGE).and_then(|text| content_range(&text));
        let Some((first, last, total)) = range else { return false };
        let length_fits = reply.body.length().is_none_or(|length| length == last - first + 1);
        let total_fits = self.total.is_none_or(|known| total.is_none_or(|total| total == known));
        let is_same = |name: &HeaderName| {
            let told = header(&reply.headers, name);
            told.is_none() || told == self.validator
        };
        let by_tag = self.validator.as_deref().is_some_and(|validator| validator.starts_with('"'));
        let validator_fits = is_same(if by_tag { &ETAG } else { &LAST_MODIFIED });
        let encoding_fits = header(&reply.headers, &CONTENT_ENCODING) == self.encoding;
        first == self.bytes && length_fits && total_fits && validator_fits && encoding_fits
    }
}

/// First and last byte, and how many there are in all, where that is told.
fn content_range(text: &str) -> Option<(u64, u64, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes ")?.trim().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let number = |digits: &str| digits.trim().parse::<u64>().ok();
    let (first, last) = (number(first)?, number(last)?);
    let total = if total.trim() == "*" { None } else { Some(number(total)?) };
    (first <= last && last < u64::MAX && total.is_none_or(|total| last < total)).then_some((first, last, total))
}

/// What proves that two answers are of the same bytes: a strong tag, or a date of change that was over when it was told.
fn validator(headers: &HeaderMap) -> Option<String> {
    if let Some(tag) = header(headers, &ETAG) {
        // A weak tag stands for content that is as good as the same, not for the same bytes.
        return tag.starts_with('"').then_some(tag);
    }
    let date = |name| httpdate::parse_http_date(&header(headers, name)?).ok();
    let age = date(&DATE)?.duration_since(date(&LAST_MODIFIED)?).ok()?;
    header(headers, &LAST_MODIFIED).filter(|_| age >= DATE_PROVES_AFTER)
}

/// What an answer's head says of the content.
fn got(reply: &Reply) -> std::result::Result<Got, String> {
    let headers = &reply.headers;
    let gzip = match header(headers, &CONTENT_ENCODING).unwrap_or_default().to_ascii_lowercase().as_str() {
        "" | "identity" => false,
        "gzip" | "x-gzip" => true,
        _ => return Err("is packed in a way that was not asked for and is not known".to_owned()),
    };
    let links: Vec<String> = headers
        .get_all(LINK)
        .iter()
        .take(LINKS_MAX)
        .filter_map(|value| Some(value.to_str().ok()?.to_owned()))
        .collect();
    Ok(Got {
        address: reply.address.clone(),
        content_type: header(headers, &CONTENT_TYPE),
        disposition: header(headers, &CONTENT_DISPOSITION),
        etag: header(headers, &ETAG),
        last_modified: header(headers, &LAST_MODIFIED),
        content_crs: header(headers, &HeaderName::from_static("content-crs"))
            .map(|text| text.trim_matches(['<', '>']).to_owned()),
        gzip,
        next: links::in_header(&links),
        bytes: 0,
        unchanged: false,
    })
}
