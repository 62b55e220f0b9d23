//! One request at a time to an address that a sender chose: through the guard, without following redirects, one attempt,
//! into bounded memory. Whoever calls decides whether to try again.
//!
//! A token goes only to the host of the address it is given for, which the caller has judged. It appears in no message.

use super::address::Address;
use super::answer::{Failure, failure, header};
use super::client::{Ask, Body, Client};
use super::{FetchOptions, Surroundings};
use crate::clock::Clock;
use crate::error::{Error, Kind, Result};
use crate::sink::http::{Guard, Resolve, system_roots};
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use geonce_key::policy::Secret;
use hyper::header::{CONTENT_ENCODING, LOCATION};
use std::io::Read as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_rustls::rustls::RootCertStore;

/// Calls addresses that senders chose.
pub(crate) struct Caller {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) resolve: Resolve,
    pub(crate) guard: Guard,
    /// The most bytes of an answer, packed or not.
    pub(crate) bytes_max: usize,
    /// The longest wait for the beginning of an answer, and the longest silence within one.
    pub(crate) timeout: Duration,
    /// Certificates that are trusted; those of the system, unless they are set before.
    pub(crate) roots: OnceLock<RootCertStore>,
}

/// What is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) url: &'a str,
    /// Posted, where there is one.
    pub(crate) form: Option<&'a str>,
    /// A header that only this host is to see.
    pub(crate) secret: Option<(&'a str, &'a Secret)>,
}

/// Why there is no answer that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Nobody answered.
    Silence,
    /// An answer began and did not end.
    Broken,
    /// Another status than success, which may pass.
    Later(u16),
    /// Another status than success, which does not pass by itself.
    Refused(u16),
    /// It leads elsewhere.
    Redirect,
    /// The guard permits none of the addresses.
    Closed,
    /// The answer has too many bytes.
    TooLarge,
    /// The address or the answer cannot be used.
    Unusable,
}

/// There is no answer that can be used.
#[derive(Debug)]
pub(crate) struct Missed {
    pub(crate) why: Why,
    /// One sentence.
    pub(crate) message: String,
    /// How long the server wants to be left alone.
    pub(crate) after: Option<Duration>,
}

impl Missed {
    fn new(why: Why, message: impl Into<String>) -> Missed {
        Missed { why, message: message.into(), after: None }
    }
}

impl Caller {
    /// The body of a successful answer.
    pub(crate) async fn call(&self, call: Call<'_>) -> std::result::Result<Bytes, Missed> {
        let unusable = |error: Error| Missed::new(Why::Unusable, error.to_string());
        // A user and a password in the address are the sender's own, and nobody is told.
        let (address, _) = Address::parse(call.url).map_err(unusable)?;
        let client = self.client(&address, call.secret).map_err(unusable)?;
        let ask = Ask { address: &address, accept: "application/json", rest: None, unless: None, form: call.form };
        let reply = client.ask(&ask).await.map_err(missed)?;
        match reply.status.as_u16() {
            200 | 203 => {}
            status @ 300..=399 => {
                let to = header(&reply.headers, &LOCATION).unwrap_or_default();
                let shown = address.join(&to).map_or_else(String::new, |to| format!(" to {}", client.show(&to)));
                let message = format!("{} answered {status} and redirects{shown}", client.show(&address));
                return Err(Missed::new(Why::Redirect, client.quote(&message)));
            }
            status => {
                return Err(match failure(&client, reply).await {
                    Failure::Again { error, after } => {
                        Missed { after, ..Missed::new(Why::Later(status), error.to_string()) }
                    }
                    Failure::Final(error) | Failure::Closed(error) => {
                        Missed::new(Why::Refused(status), error.to_string())
                    }
                });
            }
        }
        let shown = client.show(&address);
        let packed = match header(&reply.headers, &CONTENT_ENCODING).as_deref() {
            None | Some("" | "identity") => false,
            Some("gzip" | "x-gzip") => true,
            Some(_) => return Err(Missed::new(Why::Unusable, format!("{shown} is packed in a way that is not known"))),
        };
        let bytes = self.read(reply.body, &shown).await?;
        if packed { self.unpack(&bytes, &shown) } else { Ok(bytes) }
    }

    fn client(&self, address: &Address, secret: Option<(&str, &Secret)>) -> Result<Client> {
        let options = FetchOptions {
            headers: secret.iter().map(|(name, secret)| ((*name).to_owned(), (*secret).clone())).collect(),
            answer_max: self.timeout,
            silence_max: self.timeout,
            ..FetchOptions::default()
        };
        let roots = match self.roots.get() {
            Some(roots) => Some(roots.clone()),
            None if address.tls() => {
                let roots = system_roots("fetching")?;
                Some(self.roots.get_or_init(|| roots).clone())
            }
            None => None,
        };
        let surroundings = Surroundings {
            clock: Arc::clone(&self.clock),
            wait: Arc::new(|wait| Box::pin(tokio::time::sleep(wait))),
            resolve: Arc::clone(&self.resolve),
            roots,
            guard: Some(self.guard.clone()),
        };
        Client::new(address.clone(), None, &options, surroundings)
    }

    async fn read(&self, mut body: Body, shown: &str) -> std::result::Result<Bytes, Missed> {
        if body.length().is_some_and(|length| length > self.bytes_max as u64) {
            return Err(self.too_large(shown));
        }
        let mut bytes = Vec::new();
        loop {
            match body.next().await {
                Ok(Some(more)) if bytes.len() + more.len() > self.bytes_max => return Err(self.too_large(shown)),
                Ok(Some(more)) => bytes.extend_from_slice(&more),
                Ok(None) => return Ok(bytes.into()),
                Err(why) => return Err(Missed::new(Why::Broken, format!("fetching {shown}: {why}"))),
            }
        }
    }

    fn unpack(&self, packed: &[u8], shown: &str) -> std::result::Result<Bytes, Missed> {
        let mut bytes = Vec::new();
        let longest = u64::try_from(self.bytes_max).unwrap_or(u64::MAX).saturating_add(1);
        match MultiGzDecoder::new(packed).take(longest).read_to_end(&mut bytes) {
            Ok(count) if count > self.bytes_max => Err(self.too_large(shown)),
            Ok(_) => Ok(bytes.into()),
            Err(error) => Err(Missed::new(Why::Broken, format!("unpacking {shown}: {error}"))),
        }
    }

    fn too_large(&self, shown: &str) -> Missed {
        Missed::new(Why::TooLarge, format!("{shown} has more than {} bytes", self.bytes_max))
    }
}

/// What it means that nobody answered.
fn missed(failure: Failure) -> Missed {
    match failure {
        Failure::Again { error, .. } => Missed::new(Why::Silence, error.to_string()),
        // A certificate that is not trusted: its server's owner, or ours, mends that.
        Failure::Final(error) if error.kind() == Kind::Permission => Missed::new(Why::Silence, error.to_string()),
        Failure::Final(error) => Missed::new(Why::Unusable, error.to_string()),
        Failure::Closed(error) => Missed::new(Why::Closed, error.to_string()),
    }
}
