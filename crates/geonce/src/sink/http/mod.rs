//! The HTTP sink: POSTs each event with its key as `webhook-id` and `idempotency-key`, signed where a secret is set.
//!
//! It keeps no proof of its own: a request whose answer was lost is sent again, and the receiver knows it by its id.
//! Calls only public addresses and listed networks (`guard`), follows no redirect, and bounds every wait and buffer.

mod answer;
mod body;
mod connection;
mod guard;
mod target;
#[cfg(test)]
mod tests;

use super::{COLUMNS_MAX, Columns, Mode, Options, Outgoing, Proof, Sink, Written};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::error::{Error, Kind, Result};
use crate::event::Class;
use crate::signature::sign_standard_webhooks;
use crate::store::Answer;
use answer::Silence;
pub(crate) use answer::retry_after;
use bytes::Bytes;
use connection::{Connection, Dialler};
pub(crate) use connection::{Resolve, system_resolver, tls};
use geonce_key::policy::Secret;
use geonce_key::{Encoding, Fingerprint};
pub(crate) use guard::Guard;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, Response};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use target::Target;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::rustls::RootCertStore;

/// Requests under way at once, all batches together.
const IN_FLIGHT_MAX: usize = 16;
/// The most bytes of a response's body that are read; the status is the answer, the body is thrown away.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;
/// The longest wait for the rest of a response whose status is known.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// The most networks that can be listed.
const ALLOW_MAX: usize = 64;

struct Http {
    name: String,
    dialler: Dialler,
    secret: Option<Secret>,
    approximate_crs: bool,
    timeout: Duration,
    clock: Arc<dyn Clock>,
    in_flight: Semaphore,
    /// The endpoint answered 410.
    gone: AtomicBool,
}

/// Opens the sink. Connects to nothing.
pub(super) fn open(name: &str, url: &str, options: &Options) -> Result<Arc<dyn Sink>> {
    let sink = build(name, url, options, None, connection::system_resolver(), Arc::new(SystemClock))?;
    Ok(Arc::new(Shared(Arc::new(sink))))
}

fn build(
    name: &str,
    url: &str,
    options: &Options,
    roots: Option<RootCertStore>,
    resolve: connection::Resolve,
    clock: Arc<dyn Clock>,
) -> Result<Http> {
    refuse_unused(name, options)?;
    let target = Target::parse(name, url)?;
    let guard = guard(&format!("sink {name}"), &options.allow)?;
    if let Some(address) = target.literal.filter(|&address| !guard.permits(address)) {
        return Err(Error::new(Kind::Invalid, format!("sink {name}: {address} is private, local or reserved"))
            .hint(format!("allow = [\"{address}\"], or the network it is in")));
    }
    if let Some(secret) = &options.secret {
        if secret.bytes().is_empty() {
            return Err(Error::new(Kind::Invalid, format!("sink {name}: its secret is empty")));
        }
        sign_standard_webhooks(secret, "check", Timestamp::default(), b"")?;
    }
    let tls = match (target.tls, roots) {
        (false, _) => None,
        (true, Some(roots)) => Some(roots),
        (true, None) => Some(system_roots(&format!("sink {name}"))?),
    };
    let tls = tls
        .map(connection::tls)
        .transpose()
        .map_err(|error| Error::new(Kind::Internal, format!("sink {name}: preparing TLS")).because(error))?;
    Ok(Http {
        name: name.to_owned(),
        dialler: Dialler::new(target, guard, resolve, tls, options.timeout),
        secret: options.secret.clone(),
        approximate_crs: options.approximate_crs,
        timeout: options.timeout,
        clock,
        in_flight: Semaphore::new(IN_FLIGHT_MAX),
        gone: AtomicBool::new(false),
    })
}

/// Settings that mean nothing here are mistakes.
fn refuse_unused(name: &str, options: &Options) -> Result<()> {
    let unused = [
        ("layer", options.layer.is_some()),
        ("mode", options.mode != Mode::Append),
        ("columns", options.columns != Columns::Auto { max: COLUMNS_MAX }),
        ("crs", options.crs != 4326),
    ];
    match unused.into_iter().find(|(_, set)| *set) {
        None => Ok(()),
        Some((setting, _)) => {
            Err(Error::new(Kind::Invalid, format!("sink {name}: {setting} means nothing for an HTTP sink"))
                .hint(format!("remove {setting}: each event is sent as it was delivered")))
        }
    }
}

/// The guard that lets public addresses and these networks be called.
pub(crate) fn guard(whose: &str, allow: &[String]) -> Result<Guard> {
    let wrong =
        |why: String| Error::new(Kind::Invalid, format!("{whose}: allow: {why}")).hint("allow = [\"10.0.0.0/8\"]");
    if allow.len() > ALLOW_MAX {
        return Err(wrong(format!("more than {ALLOW_MAX} networks")));
    }
    allow.iter().map(|text| text.parse().map_err(wrong)).collect::<Result<_>>().map(Guard::new)
}

/// The certificates that the system trusts.
pub(crate) fn system_roots(whose: &str) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if added == 0 {
        return Err(Error::new(Kind::Invalid, format!("{whose}: the system trusts no certificates"))
            .hint("install ca-certificates, or name a file in SSL_CERT_FILE"));
    }
    Ok(roots)
}

impl Http {
    /// Sends one event. `down` is shared by a batch: once the endpoint cannot be reached, the others do not try.
    async fn send(&self, event: &Outgoing, down: &AtomicBool) -> Written {
        let Ok(_permit) = self.in_flight.acquire().await else { return answer::gone() };
        if self.gone.load(Ordering::Relaxed) {
            return answer::gone();
        }
        if down.load(Ordering::Relaxed) {
            return Silence::down("http_connect", "the endpoint could not be reached a moment ago").written();
        }
        if event.merge.is_some() {
            return Written::Dead(super::merge::no_place());
        }
        let body = match body::body(event, self.approximate_crs) {
            Ok(body) => body,
            Err(cause) => return Written::Dead(cause),
        };
        let slow = || {
            let message = format!("no answer within {} s", self.timeout.as_secs());
            Silence { down: true, ..Silence::lost("http_timeout", message) }
        };
        let exchange = tokio::time::timeout(self.timeout, self.exchange(event, &body));
        match exchange.await.unwrap_or_else(|_| Err(slow())) {
            Ok(written) => written,
            Err(silence) => {
                down.fetch_or(silence.down, Ordering::Relaxed);
                silence.written()
            }
        }
    }

    async fn exchange(&self, event: &Outgoing, body: &Bytes) -> std::result::Result<Written, Silence> {
        let mut connection = self.dialler.connection().await?;
        let response = match connection.sender.send_request(self.request(event, body)?).await {
            // The peer may have closed an idle connection just now. The receiver knows the event by its id.
            Err(_) if connection.reused => {
                connection = self.dialler.open().await?;
                connection.sender.send_request(self.request(event, body)?).await
            }
            first => first,
        };
        let response = match response {
            Ok(response) => response,
            Err(error) if error.is_parse() => return Ok(answer::garbled(&error)),
            Err(error) => {
                return Err(Silence::lost("http_lost", format!("the connection failed before an answer: {error}")));
            }
        };
        let written = answer::written(response.status(), response.headers(), self.clock.now());
        if response.status() == hyper::StatusCode::GONE {
            self.gone.store(true, Ordering::Relaxed);
            tracing::warn!(sink = self.name, "the endpoint answered 410 Gone; the sink is disabled");
        }
        self.drain(connection, response).await;
        Ok(written)
    }

    fn request(&self, event: &Outgoing, body: &Bytes) -> std::result::Result<Request<Full<Bytes>>, Silence> {
        let key = event.key.text(Encoding::Base64);
        let now = self.clock.now();
        let unbuilt = |why: String| Silence { class: Class::Internal, ..Silence::lost("http_request", why) };
        let mut request = Request::post(&self.dialler.target.path)
            .header(HOST, &self.dialler.target.authority)
            .header(CONTENT_TYPE, "application/geo+json")
            .header(USER_AGENT, concat!("geonce/", env!("CARGO_PKG_VERSION")))
            .header("idempotency-key", format!("\"{key}\""))
            .header("webhook-timestamp", now.millis().div_euclid(1_000));
        if let Some(secret) = &self.secret {
            let signature =
                sign_standard_webhooks(secret, &key, now, body).map_err(|error| unbuilt(error.to_string()))?;
            request = request.header("webhook-signature", signature);
        }
        request.header("webhook-id", key).body(Full::new(body.clone())).map_err(|error| unbuilt(error.to_string()))
    }

    /// Reads what is left of a response so that its connection can be used again; gives up on long and slow ones.
    async fn drain(&self, mut connection: Connection, response: Response<Incoming>) {
        let keep = answer::keeps_alive(response.headers());
        let rest = Limited::new(response.into_body(), RESPONSE_BYTES_MAX).collect();
        let read = tokio::time::timeout(DRAIN_MAX, rest).await;
        if keep && matches!(read, Ok(Ok(_))) && connection.sender.ready().await.is_ok() {
            self.dialler.keep(connection);
        }
    }

    async fn check(&self) -> Result<Vec<String>> {
        let failed = |silence: Silence| {
            let kind = if silence.class == Class::Permission { Kind::Permission } else { Kind::Unavailable };
            let error = Error::new(kind, format!("sink {}: {}", self.name, silence.message));
            if silence.code == "http_address" { error.hint("allow = [\"10.0.0.0/8\"]") } else { error }
        };
        if self.gone.load(Ordering::Relaxed) {
            return Err(Error::new(Kind::Permission, format!("sink {}: the endpoint said 410 Gone", self.name))
                .hint("give the sink another url, then start geonce again"));
        }
        let connection = self.dialler.open().await.map_err(failed)?;
        self.dialler.keep(connection);
        let mut notes =
            vec!["an HTTP endpoint keeps no proof: it must ignore a webhook-id that it has seen".to_owned()];
        if self.secret.is_none() {
            notes.push("requests are not signed: set secret".to_owned());
        }
        if !self.dialler.target.tls {
            notes.push("requests are not encrypted: use https".to_owned());
        }
        Ok(notes)
    }
}

/// The sink as its requests share it.
struct Shared(Arc<Http>);

impl Sink for Shared {
    fn check(&self) -> Answer<'_, Vec<String>> {
        Box::pin(self.0.check())
    }

    fn write(&self, batch: Vec<Outgoing>) -> Answer<'_, Vec<Written>> {
        Box::pin(async move {
            let down = Arc::new(AtomicBool::new(false));
            let mut answers: Vec<Option<Written>> = vec![None; batch.len()];
            let mut waiting = batch.into_iter().enumerate();
            let mut requests = JoinSet::new();
            loop {
                while requests.len() < IN_FLIGHT_MAX
                    && let Some((at, event)) = waiting.next()
                {
                    let (http, down) = (Arc::clone(&self.0), Arc::clone(&down));
                    requests.spawn(async move { (at, http.send(&event, &down).await) });
                }
                match requests.join_next().await {
                    None => break,
                    Some(Ok((at, written))) => answers[at] = Some(written),
                    // The one that ended early keeps no answer, which is answered below.
                    Some(Err(error)) => tracing::error!(sink = self.0.name, %error, "a request ended early"),
                }
            }
            let unknown =
                || Silence { class: Class::Internal, ..Silence::lost("http_request", "a request ended early") };
            Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(|| unknown().written())).collect())
        })
    }

    fn proofs(&self, _keys: Vec<Fingerprint>) -> Answer<'_, Option<Vec<bool>>> {
        Box::pin(async { Ok(None) })
    }

    fn applied(&self, _after: Option<[u8; 16]>, _limit: usize) -> Answer<'_, Option<Vec<Proof>>> {
        Box::pin(async { Ok(None) })
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async {
            self.0.dialler.clear();
            Ok(())
        })
    }
}
