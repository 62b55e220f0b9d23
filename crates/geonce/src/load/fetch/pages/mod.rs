//! APIs that give their features in pages: follows them to the end, and makes one file of lines of all features.
//!
//! The pages must be of one moment, as far as the server lets that be seen: numbers of features that differ, a feature on two
//! pages, a first page or a layer that is another one afterwards begin the reading anew, and end it after some times.
//! `timeStamp` is not compared: it is when an answer was made (OGC API Features, section 7.16), not when the data was.

mod arcgis;
pub(super) mod links;
mod page;
mod pile;

use super::address::Address;
use super::answer::{self, Failure};
use super::client::Client;
use super::download::{Failures, Got, Spool, Wanted};
use super::{Fetched, OnProgress, Pages, Paging, Progress, gzip};
use crate::error::{Error, Kind, Result};
use page::Page;
use pile::Pile;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The most bytes of a document beside the pages: what a layer says about itself.
const DOCUMENT_BYTES_MAX: u64 = 16 << 20;
const ACCEPT: &str = "application/geo+json, application/json;q=0.9, */*;q=0.1";
/// Query parameters that begin behind the first feature: then fewer are read than there are.
const STARTS: &[&str] = &["offset", "startindex", "start", "page", "cursor", "token", "after", "next"];

/// Why a reading of all pages came to nothing.
#[derive(Debug)]
enum Trouble {
    /// The source changed, in these words. Reading it anew may help.
    Changed(String),
    Failed(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Failed(error)
    }
}

/// How pages are found, with what it takes.
enum Course {
    Links,
    Token { pointer: String, parameter: String },
    ArcGis(Box<arcgis::Query>),
}

impl Course {
    fn new(paging: &Paging, address: &Address) -> Result<Course> {
        Ok(match paging {
            Paging::Auto if arcgis::layer_path(address).is_some() => {
                Course::ArcGis(Box::new(arcgis::Query::new(address)?))
            }
            Paging::Auto | Paging::Links => Course::Links,
            Paging::ArcGis => Course::ArcGis(Box::new(arcgis::Query::new(address)?)),
            Paging::Token { pointer, parameter } => {
                if !pointer.starts_with('/') || pointer == "/features" || pointer.starts_with("/features/") {
                    let message = format!("{pointer:?} is no place for a page's token");
                    return Err(Error::new(Kind::Invalid, message).hint("a JSON pointer such as /meta/next"));
                }
                if parameter.is_empty() {
                    return Err(Error::new(Kind::Invalid, "the parameter for a page's token has no name"));
                }
                Course::Token { pointer: pointer.clone(), parameter: parameter.clone() }
            }
        })
    }

    fn pointer(&self) -> Option<String> {
        match self {
            Course::Token { pointer, .. } => Some(pointer.clone()),
            _ => None,
        }
    }
}

/// Fetches all pages.
pub(super) async fn fetch(
    client: &Client,
    address: &Address,
    paging: &Paging,
    folder: &Path,
    progress: OnProgress<'_>,
) -> Result<Fetched> {
    let options = client.options();
    let mut course = Course::new(paging, address)?;
    let (mut why, mut known) = (String::new(), None);
    for restart in 0..=options.restarts_max {
        if restart > 0 {
            let wait = options.retry.delay(restart, client.seed());
            tracing::warn!(why, "the source changed; reading its pages anew");
            progress(&Progress { waiting: Some((wait, why)), ..Progress::default() });
            (client.surroundings().wait)(wait).await;
        }
        let mut reading = Reading::new(folder, progress, options.features_max, options.bytes_max)?;
        match reading.all(client, address, &mut course, known).await {
            Ok(()) => return reading.end(client, address),
            Err(Trouble::Failed(error)) => return Err(error),
            Err(Trouble::Changed(what)) => why = what,
        }
        known = reading.whole;
    }
    let times = options.restarts_max + 1;
    let message = format!("{} changed while it was read, {times} times: {why}", client.show(address));
    Err(Error::new(Kind::Unavailable, message).hint("load it when nobody edits it, or ask for it in larger pages"))
}

/// Whether a document says of itself that it is one of several pages.
pub(super) async fn says_there_is_more(path: PathBuf) -> bool {
    let read = move || page::read(&path, None, &mut |_| Ok(()));
    let page = tokio::task::spawn_blocking(read).await.ok().and_then(std::result::Result::ok);
    page.is_some_and(|page| page.next.is_some() || page.exceeded)
}

/// One reading of all pages.
struct Reading<'a> {
    folder: &'a Path,
    progress: OnProgress<'a>,
    told: Progress,
    /// Not there only while another thread has it.
    pile: Option<Pile>,
    visited: HashSet<[u8; 32]>,
    addresses: Sha256,
    matched: Option<u64>,
    crs: Option<String>,
    /// Digest of all features, once all have been read.
    whole: Option<[u8; 32]>,
}

impl<'a> Reading<'a> {
    fn new(folder: &'a Path, progress: OnProgress<'a>, features_max: u64, bytes_max: u64) -> Result<Reading<'a>> {
        Ok(Reading {
            folder,
            progress,
            told: Progress::default(),
            pile: Some(Pile::new(Spool::new(folder)?, features_max, bytes_max)),
            visited: HashSet::new(),
            addresses: Sha256::new(),
            matched: None,
            crs: None,
            whole: None,
        })
    }

    /// Reads all pages. `known` is what an earlier reading came to.
    async fn all(
        &mut self,
        client: &Client,
        address: &Address,
        course: &mut Course,
        known: Option<[u8; 32]>,
    ) -> std::result::Result<(), Trouble> {
        let before = match course {
            Course::ArcGis(query) => Some(query.standing(client, self).await?),
            _ => None,
        };
        let first_address = match course {
            Course::ArcGis(query) => query.page(0),
            _ => address.clone(),
        };
        let (mut next, mut first) = (Some(first_address.clone()), None);
        while let Some(address) = next {
            self.visit(client, &address)?;
            let (got, page) = self.page(client, &address, course.pointer()).await?;
            self.compare(client, &address, &got, &page)?;
            next = self.next(client, course, &address, &got, &page)?;
            first.get_or_insert((got, page));
        }
        match (course, before, first) {
            (Course::ArcGis(query), Some(before), _) => {
                let after = query.standing(client, self).await?;
                query.check(&before, &after, self.told.features)?;
            }
            (course, _, Some((got, page))) if self.told.pages > 1 => {
                let again = self.again(client, &first_address, &got, course.pointer()).await?;
                if again.is_some_and(|again| again != page) {
                    return Err(Trouble::Changed("its first page is another one after the last".to_owned()));
                }
            }
            _ => {}
        }
        self.check_all(client, address, known)
    }

    /// Notes that a page is read, which must not have been read before.
    fn visit(&mut self, client: &Client, address: &Address) -> Result<()> {
        let text = address.for_key(&client.options().secret_parameters);
        let shown = client.show(address);
        if !self.visited.insert(Sha256::digest(&text).into()) {
            let message = format!("page {} leads to a page that was read before: {shown}", self.told.pages);
            return Err(Error::new(Kind::Invalid, message).hint("the server's links go in a circle"));
        }
        if self.told.pages >= client.options().pages_max {
            return Err(Error::new(Kind::Invalid, format!("there are more than {} pages", client.options().pages_max)));
        }
        self.addresses.update((text.len() as u64).to_be_bytes());
        self.addresses.update(text);
        Ok(())
    }

    /// Reads a page onto the pile. A page that comes broken is asked for again.
    async fn page(&mut self, client: &Client, address: &Address, token: Option<String>) -> Result<(Got, Page)> {
        let mut failures = Failures::default();
        loop {
            let (got, spool) = self.obtain(client, address, client.options().page_bytes_max, None).await?;
            let lost = || Error::new(Kind::Internal, "reading a page");
            let mut pile = self.pile.take().ok_or_else(lost)?;
            let token = token.clone();
            let read = move || (pile.add(spool.path(), token.as_deref()), pile);
            let (read, pile) = tokio::task::spawn_blocking(read).await.map_err(|error| lost().because(error))?;
            self.told.features = pile.features();
            self.pile = Some(pile);
            match read {
                Ok(page) => {
                    self.told.pages += 1;
                    (self.progress)(&self.told);
                    return Ok((got, page));
                }
                Err(trouble) => self.wait(client, &mut failures, understood(client, address, trouble)).await?,
            }
        }
    }

    /// Reads the first page again; none if the server says that it has not changed.
    async fn again(
        &mut self,
        client: &Client,
        address: &Address,
        got: &Got,
        token: Option<String>,
    ) -> Result<Option<Page>> {
        let mut failures = Failures::default();
        loop {
            let limit = client.options().page_bytes_max;
            let (got, spool) = self.obtain(client, address, limit, got.etag.as_deref()).await?;
            if got.unchanged {
                return Ok(None);
            }
            let token = token.clone();
            let read = move || page::read(spool.path(), token.as_deref(), &mut |_| Ok(()));
            let failed = |error| Error::new(Kind::Internal, "reading a page").because(error);
            match tokio::task::spawn_blocking(read).await.map_err(failed)? {
                Ok(page) => return Ok(Some(page)),
                Err(trouble) => self.wait(client, &mut failures, understood(client, address, trouble)).await?,
            }
        }
    }

    /// Reads a small document.
    async fn document(&mut self, client: &Client, address: &Address) -> Result<Value> {
        let mut failures = Failures::default();
        loop {
            let (_, spool) = self.obtain(client, address, DOCUMENT_BYTES_MAX, None).await?;
            let bytes =
                std::fs::read(spool.path()).map_err(|error| super::download::disk(&error, "reading", spool.path()))?;
            let trouble = match serde_json::from_slice::<Value>(&bytes) {
                Err(error) => page::Trouble::Broken(error.to_string()),
                Ok(value) => match value.get("error") {
                    Some(error) => page::said_error(error),
                    None => return Ok(value),
                },
            };
            self.wait(client, &mut failures, understood(client, address, trouble)).await?;
        }
    }

    async fn wait(&self, client: &Client, failures: &mut Failures, failure: Failure) -> Result<()> {
        let tell = |wait, why| (self.progress)(&Progress { waiting: Some((wait, why)), ..self.told.clone() });
        failures.wait(client, failure, false, &tell).await
    }

    /// Downloads something into a file of its own.
    async fn obtain(
        &self,
        client: &Client,
        address: &Address,
        bytes_max: u64,
        unless: Option<&str>,
    ) -> Result<(Got, Spool)> {
        let mut spool = Spool::new(self.folder)?;
        let wanted = Wanted { address, accept: ACCEPT, bytes_max, end_is_told: true, unless };
        let report = |_, _, waiting: Option<(Duration, String)>| {
            if waiting.is_some() {
                (self.progress)(&Progress { waiting, ..self.told.clone() });
            }
        };
        let got = client.download(&wanted, &mut spool, &report).await?;
        if got.content_type.as_deref().is_some_and(|kind| kind.starts_with("text/html")) {
            return Err(Error::new(Kind::Invalid, format!("{} is a web page, no GeoJSON", client.show(address)))
                .hint("add what asks for GeoJSON to the address, such as f=json or f=geojson"));
        }
        if got.gzip && !got.unchanged {
            spool = gzip::decode(spool, Spool::new(self.folder)?, bytes_max, client.show(address)).await?.0;
        }
        Ok((got, spool))
    }

    /// What a page says must fit what those before it said.
    fn compare(
        &mut self,
        client: &Client,
        address: &Address,
        got: &Got,
        page: &Page,
    ) -> std::result::Result<(), Trouble> {
        let pile = self.pile.as_ref();
        if let Some(what) = pile.and_then(Pile::repeated) {
            return Err(Trouble::Changed(format!("page {} has {what}", self.told.pages)));
        }
        if let (Some(before), Some(now)) = (self.matched, page.matched)
            && before != now
        {
            return Err(Trouble::Changed(format!("it had {before} features, and {now} on page {}", self.told.pages)));
        }
        self.matched = self.matched.or(page.matched);
        let declared = got.content_crs.clone().or_else(|| page.crs.clone());
        if self.told.pages == 1 {
            self.crs.clone_from(&declared);
        }
        if self.crs != declared {
            let message = format!("{} is in another coordinate system than the pages before it", client.show(address));
            return Err(Error::new(Kind::Invalid, message).into());
        }
        Ok(())
    }

    /// The next page, if there is one.
    fn next(
        &self,
        client: &Client,
        course: &Course,
        address: &Address,
        got: &Got,
        page: &Page,
    ) -> std::result::Result<Option<Address>, Trouble> {
        match course {
            Course::ArcGis(query) => Ok(query.has_next(page)?.then(|| query.page(self.told.features))),
            Course::Token { parameter, .. } => {
                Ok(page.token.as_deref().map(|token| address.with(&[(parameter, Some(token))])))
            }
            Course::Links => {
                let Some(link) = page.next.as_ref().or(got.next.as_ref()) else { return Ok(None) };
                let next = got.address.join(link).and_then(|next| got.address.next_page(next));
                let message = || format!("{} leads to a next page that must not be called", client.show(address));
                let hint = "its address is too long, no http or https, or no longer encrypted";
                Ok(Some(next.ok_or_else(|| Error::new(Kind::Invalid, message()).hint(hint))?))
            }
        }
    }

    /// Whether the features are all there are, each once.
    fn check_all(
        &mut self,
        client: &Client,
        address: &Address,
        known: Option<[u8; 32]>,
    ) -> std::result::Result<(), Trouble> {
        let Some(pile) = &self.pile else { return Ok(()) };
        let whole = pile.digest();
        let features = self.told.features;
        self.whole = Some(whole);
        let from_the_start = !STARTS.iter().any(|name| address.parameter(name).is_some());
        let counted = self.matched.filter(|_| from_the_start && !client.options().count_is_estimate);
        if let Some(matched) = counted.filter(|&matched| matched > features) {
            return Err(Trouble::Changed(format!("its pages have {features} features of {matched}")));
        }
        // Features without ids may well be equal. Two readings in a row that are the same show that nothing moves.
        if pile.has_equal() && known != Some(whole) {
            return Err(Trouble::Changed("a feature is on two pages".to_owned()));
        }
        Ok(())
    }

    fn end(self, client: &Client, address: &Address) -> Result<Fetched> {
        let lost = || Error::new(Kind::Internal, "keeping the pages");
        let (spool, bytes) = self.pile.ok_or_else(lost)?.end();
        let options = client.options();
        let name = answer::pages_name(address);
        Ok(Fetched {
            path: spool.keep(&name)?,
            name,
            content_type: Some("application/x-ndjson".to_owned()),
            etag: None,
            last_modified: None,
            content_crs: self.crs,
            bytes,
            url_for_key: address.for_key(&options.secret_parameters),
            url_shown: client.show(address),
            pages: Some(Pages {
                count: self.told.pages,
                features: self.told.features,
                sha256: self.addresses.finalize().into(),
            }),
        })
    }
}

/// What trouble with a page means.
fn understood(client: &Client, address: &Address, trouble: page::Trouble) -> Failure {
    let shown = client.show(address);
    match trouble {
        page::Trouble::Taking(error) => Failure::Final(error),
        page::Trouble::Broken(why) => {
            let message = format!("{shown} is cut off or no page of features: {}", client.quote(&why));
            Failure::again(Error::new(Kind::Unavailable, message))
        }
        page::Trouble::Said(code, words) => {
            let message = format!("{shown} answered with error {code}: {}", client.quote(&words));
            match code {
                429 | 500 | 502..=504 => Failure::again(Error::new(Kind::Unavailable, message)),
                401 | 403 | 498 | 499 => Failure::Final(
                    Error::new(Kind::Permission, message).hint("send a token with --header, or in the address"),
                ),
                _ => Failure::Final(Error::new(Kind::Invalid, message)),
            }
        }
    }
}
