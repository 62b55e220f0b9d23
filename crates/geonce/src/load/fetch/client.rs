//! Requests: connects, asks, follows redirects, and gives the beginning of an answer with a body that is still to be read.
//!
//! What the user gave for a host (headers, a password) goes to that host only. Every wait and every buffer has a limit.
//! With a guard, only addresses that it permits are called, and redirects are answers like any other.
//! One connection is kept for the next request to the same host. No proxy is used.

use super::address::{Address, Basic};
use super::answer::Failure;
use super::{FetchOptions, Surroundings};
use crate::clock::Stopwatch;
use crate::error::{Error, Kind, Result};
use crate::event::random;
use crate::sink::http::{system_roots, tls};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName,
    HeaderValue, IF_NONE_MATCH, IF_RANGE, LOCATION, RANGE, TRANSFER_ENCODING, USER_AGENT,
};
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// The most redirects that are followed for one request.
const REDIRECTS_MAX: usize = 10;
/// The most addresses of a name that are tried.
const ADDRESSES_MAX: usize = 8;
/// The most bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Fewer bytes than these in `silence_max` are silence.
const WINDOW_BYTES_MIN: usize = 1 << 10;
/// Secrets shorter than this are not looked for in texts: they would be found everywhere.
const SECRET_CHARS_MIN: usize = 4;
/// The most characters of a server's own words that are shown.
const WORDS_CHARS_MAX: usize = 300;

type Sender = SendRequest<Full<Bytes>>;
/// Whether it is encrypted, the host and the port.
type Peer = (bool, String, u16);

/// Asks servers for one fetch.
pub(super) struct Client {
    origin: Address,
    headers: Vec<(HeaderName, HeaderValue)>,
    secrets: Vec<String>,
    options: FetchOptions,
    surroundings: Surroundings,
    tls: OnceLock<Arc<ClientConfig>>,
    idle: Mutex<Option<(Peer, Sender)>>,
    /// Makes waits differ from those of other clients.
    seed: u64,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) address: &'a Address,
    pub(super) accept: &'a str,
    /// The bytes from here on, if this validator still holds.
    pub(super) rest: Option<(u64, &'a str)>,
    /// Nothing, if this validator still holds.
    pub(super) unless: Option<&'a str>,
    /// Sent as a form, where it is not only asked for.
    pub(super) form: Option<&'a str>,
}

/// The beginning of an answer.
pub(super) struct Reply {
    /// Who answered, after redirects.
    pub(super) address: Address,
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Body,
}

impl Client {
    pub(super) fn new(
        origin: Address,
        basic: Option<Basic>,
        options: &FetchOptions,
        surroundings: Surroundings,
    ) -> Result<Client> {
        let mut headers = options.header_values()?;
        let mut secrets = origin.secrets(&options.secret_parameters);
        secrets.extend(options.headers.iter().map(|(_, value)| String::from_utf8_lossy(value.bytes()).into_owned()));
        if let Some(basic) = basic {
            if headers.iter().any(|(name, _)| name == AUTHORIZATION) {
                return Err(Error::new(Kind::Invalid, "the address has a user, and there is a header authorization")
                    .hint("give one of them"));
            }
            let mut value = HeaderValue::try_from(&basic)
                .map_err(|error| Error::new(Kind::Internal, "writing the user of the address").because(error))?;
            value.set_sensitive(true);
            secrets.push(basic);
            headers.push((AUTHORIZATION, value));
        }
        // Behind the word for the scheme stands the secret proper, which servers may repeat alone.
        let parts: Vec<String> = secrets.iter().filter_map(|one| Some(one.split_once(' ')?.1.to_owned())).collect();
        secrets.extend(parts);
        secrets.retain(|secret| secret.chars().count() >= SECRET_CHARS_MIN);
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        let seed = u64::try_from(random() & u128::from(u64::MAX)).unwrap_or(0);
        let (tls, idle) = (OnceLock::new(), Mutex::new(None));
        Ok(Client { origin, headers, secrets, options: options.clone(), surroundings, tls, idle, seed })
    }

    pub(super) fn options(&self) -> &FetchOptions {
        &self.options
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    pub(super) fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    /// An address as people may see it.
    pub(super) fn show(&self, address: &Address) -> String {
        address.shown(&self.options.secret_parameters)
    }

    /// A server's own words as people may see them: short, on one line and without secrets of ours.
    pub(super) fn quote(&self, words: &str) -> String {
        let mut words: String = words.chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
        for secret in &self.secrets {
            words = words.replace(secret.as_str(), "…");
        }
        let words = words.trim();
        let short: String = words.chars().take(WORDS_CHARS_MAX).collect();
        if short.len() < words.len() { short + "…" } else { short }
    }

    /// Asks, and follows redirects.
    pub(super) async fn ask(&self, ask: &Ask<'_>) -> std::result::Result<Reply, Failure> {
        let mut address = ask.address.clone();
        let mut trusted = address.is_trusted_with_secrets_of(&self.origin);
        for _ in 0..=REDIRECTS_MAX {
            let slow = || self.lost(&address, &format!("no answer within {} s", self.options.answer_max.as_secs()));
            let exchange = tokio::time::timeout(self.options.answer_max, self.exchange(&address, ask, trusted));
            let reply = exchange.await.unwrap_or_else(|_| Err(slow()))?;
            let redirects = matches!(reply.status.as_u16(), 301 | 302 | 303 | 307 | 308);
            if !redirects || self.surroundings.guard.is_some() {
                return Ok(reply);
            }
            let next = self.redirected(&reply)?;
            tracing::debug!(from = self.show(&address), to = self.show(&next), "redirected");
            // Once another host has had a say in where to go, secrets stay away.
            trusted &= next.is_trusted_with_secrets_of(&self.origin);
            address = next;
        }
        let message = format!("{} leads through more than {REDIRECTS_MAX} redirects", self.show(ask.address));
        Err(Failure::Final(Error::new(Kind::Invalid, message)))
    }

    fn redirected(&self, reply: &Reply) -> std::result::Result<Address, Failure> {
        let from = &reply.address;
        let refused =
            |why: &str| Failure::Final(Error::new(Kind::Invalid, format!("{} redirects {why}", self.show(from))));
        let location = reply.headers.get(LOCATION).and_then(|value| value.to_str().ok());
        let next = location.and_then(|location| from.join(location));
        let next = next.ok_or_else(|| refused("to no address that can be called"))?;
        if from.tls() && !next.tls() {
            return Err(refused("from https to http, where anybody on the way can change the data"));
        }
        Ok(next)
    }

    /// Nothing, or nothing more, came.
    pub(super) fn lost(&self, address: &Address, why: &str) -> Failure {
        let message = format!("fetching {}: {}", self.show(address), self.quote(why));
        Failure::again(Error::new(Kind::Unavailable, message))
    }

    async fn exchange(&self, address: &Address, ask: &Ask<'_>, trusted: bool) -> std::result::Result<Reply, Failure> {
        let peer = (address.tls(), address.host().to_owned(), address.port());
        let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        let kept = kept.filter(|(one, sender)| *one == peer && sender.is_ready()).map(|(_, sender)| sender);
        let was_kept = kept.is_some();
        let mut sender = match kept {
            Some(sender) => sender,
            None => self.connect(address).await?,
        };
        let response = match sender.send_request(self.request(address, ask, trusted)?).await {
            // The peer may have closed an idle connection just now.
            Err(_) if was_kept => {
                sender = self.connect(address).await?;
                sender.send_request(self.request(address, ask, trusted)?).await
            }
            first => first,
        };
        let response = response.map_err(|error| self.lost(address, &format!("no answer: {}", causes(&error))))?;
        let mut lengths = response.headers().get_all(CONTENT_LENGTH).iter();
        if lengths.next().is_some_and(|first| lengths.any(|other| other != first)) {
            return Err(self.lost(address, "no answer that can be trusted: it has two lengths"));
        }
        let until_closed = is_until_closed(&response);
        let (head, incoming) = response.into_parts();
        let body = Body {
            incoming,
            sender: Some((peer, sender)),
            ends_unproven: until_closed && !address.tls(),
            silence_max: self.options.silence_max,
            window: Stopwatch::start(),
            window_bytes: 0,
        };
        Ok(Reply { address: address.clone(), status: head.status, headers: head.headers, body })
    }

    fn request(
        &self,
        address: &Address,
        ask: &Ask<'_>,
        trusted: bool,
    ) -> std::result::Result<Request<Full<Bytes>>, Failure> {
        let method = if ask.form.is_some() { Method::POST } else { Method::GET };
        let mut request = Request::builder()
            .method(method)
            .uri(address.target())
            .header(HOST, address.authority())
            .header(USER_AGENT, concat!("geonce/", env!("CARGO_PKG_VERSION")))
            // Parts of a file that is packed anew for each answer would not fit together.
            .header(ACCEPT_ENCODING, "identity");
        if ask.form.is_some() {
            request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        }
        if let Some((from, validator)) = ask.rest {
            request = request.header(RANGE, format!("bytes={from}-")).header(IF_RANGE, validator);
        }
        if self.options.paging.is_some() {
            // Pages from a cache may be of different ages.
            request = request.header(CACHE_CONTROL, "no-cache");
        }
        if let Some(validator) = ask.unless {
            request = request.header(IF_NONE_MATCH, validator);
        }
        let given: &[(HeaderName, HeaderValue)] = if trusted { &self.headers } else { &[] };
        if !given.iter().any(|(name, _)| name == ACCEPT) {
            request = request.header(ACCEPT, ask.accept);
        }
        for (name, value) in given {
            request = request.header(name, value);
        }
        let unbuilt = |error: hyper::http::Error| {
            let message = format!("{} cannot be asked for", self.show(address));
            Failure::Final(Error::new(Kind::Invalid, message).because(error))
        };
        request.body(ask.form.unwrap_or_default().to_owned().into()).map_err(unbuilt)
    }

    /// Keeps the connection of a body that was read to its end.
    pub(super) fn keep(&self, body: Body) {
        *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = body.sender;
    }

    async fn connect(&self, address: &Address) -> std::result::Result<Sender, Failure> {
        let limit = self.options.connect_max;
        let slow = || self.lost(address, &format!("no connection within {} s", limit.as_secs()));
        tokio::time::timeout(limit, self.dial(address)).await.unwrap_or_else(|_| Err(slow()))
    }

    async fn dial(&self, address: &Address) -> std::result::Result<Sender, Failure> {
        let (host, port) = (address.host().trim_matches(['[', ']']), address.port());
        let found = match host.parse::<IpAddr>() {
            Ok(literal) => vec![SocketAddr::new(literal, port)],
            Err(_) => (self.surroundings.resolve)(host.to_owned(), port)
                .await
                .map_err(|error| self.lost(address, &format!("resolving {host}: {error}")))?,
        };
        if found.is_empty() {
            return Err(self.lost(address, &format!("{host} has no address")));
        }
        let permitted = |one: &SocketAddr| self.surroundings.guard.as_ref().is_none_or(|guard| guard.permits(one.ip()));
        let mut failure = None;
        for one in found.into_iter().filter(permitted).take(ADDRESSES_MAX) {
            match TcpStream::connect(one).await {
                Ok(stream) => return self.speak(address, host, stream).await,
                Err(error) => failure = Some(format!("connecting to {one}: {error}")),
            }
        }
        Err(match failure {
            Some(failure) => self.lost(address, &failure),
            None => Failure::Closed(Error::new(
                Kind::Permission,
                format!("{host} has only private, local or reserved addresses, and allow lists none of them"),
            )),
        })
    }

    async fn speak(&self, address: &Address, host: &str, stream: TcpStream) -> std::result::Result<Sender, Failure> {
        if !address.tls() {
            return handshake(stream).await.map_err(|error| self.lost(address, &error.to_string()));
        }
        let name = ServerName::try_from(host.trim_end_matches('.').to_owned()).map_err(|error| {
            Failure::Final(Error::new(Kind::Invalid, format!("{host} is no name for TLS")).because(error))
        })?;
        let connector = TlsConnector::from(self.tls().map_err(Failure::Final)?);
        let stream = connector.connect(name, stream).await.map_err(|error| {
            let message = format!("TLS with {host}: {error}");
            match error.kind() {
                // A certificate that is not trusted is not trusted a moment later either.
                io::ErrorKind::InvalidData => Failure::Final(
                    Error::new(Kind::Permission, message).hint("name a file of certificates to trust in SSL_CERT_FILE"),
                ),
                _ => self.lost(address, &message),
            }
        })?;
        handshake(stream).await.map_err(|error| self.lost(address, &error.to_string()))
    }

    /// How connections are encrypted. Certificates are read only if there is need.
    fn tls(&self) -> Result<Arc<ClientConfig>> {
        if let Some(config) = self.tls.get() {
            return Ok(Arc::clone(config));
        }
        let roots = self.surroundings.roots.clone();
        let config = tls(roots.map_or_else(|| system_roots("fetching"), Ok)?)
            .map_err(|error| Error::new(Kind::Internal, "preparing TLS").because(error))?;
        Ok(Arc::clone(self.tls.get_or_init(|| config)))
    }
}

async fn handshake(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> hyper::Result<Sender> {
    let (sender, connection) =
        http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream)).await?;
    // Ends by itself when the sender is dropped or the peer leaves; failures reach whoever waits for an answer.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

/// Whether only the end of the connection ends the body (RFC 9112 section 6.3, the last case).
fn is_until_closed(response: &Response<Incoming>) -> bool {
    let chunked = response
        .headers()
        .get_all(TRANSFER_ENCODING)
        .iter()
        .any(|value| String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase().contains("chunked"));
    let empty = matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let exact = hyper::body::Body::size_hint(response.body()).exact().is_some();
    !exact && !empty && (!chunked || response.version() == Version::HTTP_10)
}

/// An error with what caused it; hyper's own texts leave that out.
fn causes(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// The body of an answer.
pub(super) struct Body {
    incoming: Incoming,
    sender: Option<(Peer, Sender)>,
    /// Its end looks the same as a broken connection. Over TLS the end is said, and an unsaid one is an error.
    pub(super) ends_unproven: bool,
    silence_max: Duration,
    window: Stopwatch,
    window_bytes: usize,
}

impl Body {
    /// How many bytes it will have, where that is known.
    pub(super) fn length(&self) -> Option<u64> {
        hyper::body::Body::size_hint(&self.incoming).exact()
    }

    /// The next bytes; none at the end, which has then been told by the server. The error is why there is no more.
    pub(super) async fn next(&mut self) -> std::result::Result<Option<Bytes>, String> {
        loop {
            let left = self.silence_max.saturating_sub(self.window.elapsed());
            let frame = tokio::time::timeout(left, self.incoming.frame()).await.map_err(|_| {
                let (bytes, seconds) = (self.window_bytes, self.silence_max.as_secs_f32());
                format!("only {bytes} bytes came within {seconds} s")
            })?;
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|error| format!("the connection broke: {}", causes(&error)))?;
            // Trailers say nothing that is needed.
            let Ok(data) = frame.into_data() else { continue };
            self.window_bytes += data.len();
            if self.window_bytes >= WINDOW_BYTES_MIN {
                (self.window, self.window_bytes) = (Stopwatch::start(), 0);
            }
            return Ok(Some(data));
        }
    }
}
