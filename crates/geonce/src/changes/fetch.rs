//! From an announcement to the answer that holds its changes: asks, waits while they are gathered, reads where they are put.
//! Every address on the way is judged alike, every wait and every loop has a limit, and the token appears nowhere.

use super::hosts::Hosts;
use super::{Options, Token, dead};
use crate::clock::SystemClock;
use crate::error::{Error, Kind, Result};
use crate::event::{Cause, Class};
use crate::intake::preset::changes::{Announcement, Step, step};
use crate::load::fetch::call::{Call, Caller, Missed, Why};
use crate::sink::Written;
use crate::sink::http::{guard, system_resolver};
use bytes::Bytes;
use geonce_key::policy::Secret;
use std::future::Future;
use std::io::Read as _;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use url::Url;

/// How often a server is asked whether it has gathered the changes, for about six minutes in all.
const POLLS_MAX: u32 = 40;
/// The first wait between two such questions, doubled after each,
const POLL_WAIT: Duration = Duration::from_secs(1);
/// up to this.
const POLL_WAIT_MAX: Duration = Duration::from_secs(10);
/// The most answers that lead to another address.
const LEADS_MAX: u32 = 4;
/// The longest time that one announcement takes a worker.
const TIME_MAX: Duration = Duration::from_mins(15);
/// The longest wait that a server can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);
/// The longest token.
const TOKEN_BYTES_MAX: u64 = 8 << 10;
/// Tokens shorter than this are not looked for in texts: they would be found everywhere.
const TOKEN_CHARS_MIN: usize = 4;
/// The header that a token is sent in: servers with a log-in of their own keep `authorization` for that.
const TOKEN_HEADER: &str = "x-esri-authorization";

/// Waits.
pub(super) type Wait = Arc<dyn Fn(Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Fetches the changes that one source announces.
pub(super) struct Fetcher {
    source: String,
    hosts: Hosts,
    token: Option<Token>,
    pub(super) caller: Caller,
    pub(super) wait: Wait,
}

type Fetched<T> = std::result::Result<T, Written>;

impl Fetcher {
    pub(super) fn new(source: &str, options: &Options) -> Result<Fetcher> {
        let whose = format!("source {source}: fetch");
        let caller = Caller {
            clock: Arc::new(SystemClock),
            resolve: system_resolver(),
            guard: guard(&whose, &options.allow)?,
            bytes_max: options.bytes_max,
            timeout: options.timeout,
            roots: OnceLock::new(),
        };
        Ok(Fetcher {
            source: source.to_owned(),
            hosts: Hosts::new(&whose, &options.hosts)?,
            token: options.token.clone(),
            caller,
            wait: Arc::new(|wait| Box::pin(tokio::time::sleep(wait))),
        })
    }

    /// Whether the token can be read. What a person should know.
    pub(super) fn check(&self) -> Result<Vec<String>> {
        let mut notes: Vec<String> =
            self.hosts.unencrypted().map(|host| format!("{host} is asked without encryption")).collect();
        match self.token()? {
            Some(_) => {}
            None => notes.push("no token is sent: only what everybody may read is fetched".to_owned()),
        }
        Ok(notes)
    }

    /// The answer that holds the changes; or what becomes of the announcement without one.
    pub(super) async fn changes(&self, announcement: &Announcement) -> Fetched<Bytes> {
        let slow = || Err(later("fetch_slow", format!("fetching took longer than {} s", TIME_MAX.as_secs()), true));
        tokio::time::timeout(TIME_MAX, self.follow(announcement)).await.unwrap_or_else(|_| slow())
    }

    async fn follow(&self, announcement: &Announcement) -> Fetched<Bytes> {
        // A token that cannot be read now may be being replaced.
        let token = self.token().map_err(|error| {
            let cause = Cause::new(Class::Permission, "fetch_token", error.to_string());
            Written::Retry { cause, after: None, counts: false }
        })?;
        let token = token.as_ref();
        let question = announcement.question().map_err(dead)?;
        let (mut at, mut polls, mut leads) = (question.url, 0, 0);
        let mut answer = self.ask(&at, "changesUrl", Some(&question.form), token).await?;
        loop {
            let (next, what) = match step(&answer).map_err(|fault| Written::Dead(unread(&fault.message)))? {
                Step::Changes => return Ok(answer),
                Step::Ask(url) => (url, "statusUrl"),
                Step::Wait => {
                    if polls >= POLLS_MAX {
                        let message = format!("the changes were not gathered when asked for {POLLS_MAX} times");
                        return Err(later("fetch_slow", message, true));
                    }
                    (self.wait)(POLL_WAIT.saturating_mul(1 << polls.min(16)).min(POLL_WAIT_MAX)).await;
                    polls += 1;
                    answer = self.ask(&at, "statusUrl", None, token).await?;
                    continue;
                }
                Step::Read(url) => (url, "resultUrl"),
                Step::Failed(status) => {
                    return Err(later("fetch_failed", format!("the changes could not be gathered: {status}"), true));
                }
                Step::Error { code, words } => return Err(error(code, &hide(words, token))),
            };
            leads += 1;
            if leads > LEADS_MAX {
                return Err(Written::Dead(unread(&format!("more than {LEADS_MAX} answers lead elsewhere"))));
            }
            at = at.join(&next).map_err(|error| Written::Dead(unread(&format!("{what}: {error}"))))?;
            if what == "statusUrl" {
                ask_for_json(&mut at);
            }
            answer = self.ask(&at, what, None, token).await?;
        }
    }

    /// One question, to a host that is listed.
    async fn ask(&self, url: &Url, what: &str, form: Option<&str>, token: Option<&Secret>) -> Fetched<Bytes> {
        self.hosts.judge(url, what).map_err(Written::Dead)?;
        let call = Call { url: url.as_str(), form, secret: token.map(|token| (TOKEN_HEADER, token)) };
        self.caller.call(call).await.map_err(missed)
    }

    /// The header that proves that we may read.
    fn token(&self) -> Result<Option<Secret>> {
        let text = match &self.token {
            None => return Ok(None),
            Some(Token::Text(secret)) => String::from_utf8_lossy(secret.bytes()).into_owned(),
            Some(Token::File(file)) => {
                let mut text = String::new();
                std::fs::File::open(file)
                    .and_then(|opened| opened.take(TOKEN_BYTES_MAX + 1).read_to_string(&mut text))
                    .map_err(|error| self.no_token(&format!("reading {}: {error}", file.display())))?;
                text
            }
        };
        let text = text.trim();
        let fits =
            !text.is_empty() && text.len() as u64 <= TOKEN_BYTES_MAX && text.bytes().all(|b| b.is_ascii_graphic());
        if !fits {
            return Err(self.no_token("it is empty, too long, or has characters that no token has"));
        }
        Ok(Some(Secret::new(format!("Bearer {text}"))))
    }

    fn no_token(&self, why: &str) -> Error {
        Error::new(Kind::Invalid, format!("source {}: fetch: the token cannot be used: {why}", self.source))
    }
}

/// Servers answer with a page for people unless they are asked for JSON.
fn ask_for_json(url: &mut Url) {
    let others: Vec<(String, String)> =
        url.query_pairs().filter(|(name, _)| name != "f").map(|(name, value)| (name.into(), value.into())).collect();
    url.query_pairs_mut().clear().extend_pairs(others).append_pair("f", "json");
}

/// A server's words without the token.
fn hide(words: String, header: Option<&Secret>) -> String {
    let Some(header) = header else { return words };
    let header = String::from_utf8_lossy(header.bytes());
    let token = header.trim_start_matches("Bearer ");
    if token.len() < TOKEN_CHARS_MIN { words } else { words.replace(token, "…") }
}

fn later(code: &str, message: String, counts: bool) -> Written {
    Written::Retry { cause: Cause::new(Class::Unavailable, code, message), after: None, counts }
}

fn unread(why: &str) -> Cause {
    Cause::new(Class::Schema, "fetch_answer", format!("the answer cannot be used: {why}"))
}

/// What an error means that was sent as a success.
fn error(code: i64, words: &str) -> Written {
    let message = format!("the server answered error {code}: {words}");
    match code {
        401 | 403 | 498 | 499 => Written::Dead(Cause::new(Class::Permission, "fetch_token", message)),
        0 | 408 | 429 | 500..=599 => later("fetch_error", message, true),
        _ => Written::Dead(Cause::new(Class::Schema, "fetch_error", message)),
    }
}

/// What it means that there is no answer.
fn missed(missed: Missed) -> Written {
    let Missed { why, message, after } = missed;
    let after = after.map(|after| after.min(RETRY_AFTER_MAX));
    let (class, code) = match why {
        Why::Silence => return later("fetch_silent", message, false),
        Why::Broken => return later("fetch_broken", message, true),
        Why::Later(status) => {
            let cause = Cause::new(Class::Unavailable, format!("http_{status}"), message);
            return Written::Retry { cause, after, counts: true };
        }
        Why::Refused(401 | 403) => (Class::Permission, "fetch_token".to_owned()),
        Why::Refused(status) => (Class::Schema, format!("http_{status}")),
        Why::Redirect => (Class::Permission, "fetch_redirect".to_owned()),
        Why::Closed => (Class::Permission, "fetch_address".to_owned()),
        Why::TooLarge => (Class::Schema, "fetch_too_large".to_owned()),
        Why::Unusable => (Class::Schema, "fetch_answer".to_owned()),
    };
    Written::Dead(Cause::new(class, code, message))
}
