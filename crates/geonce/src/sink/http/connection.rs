//! Connections: resolve once, judge every address, dial a judged one, encrypt, and keep a few open.
//!
//! The host is verified by the name in the URL, whatever address was dialled. No proxy is used.

use super::answer::Silence;
use super::guard::Guard;
use super::target::Target;
use crate::clock::Stopwatch;
use crate::event::Class;
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// The longest wait for a connection, all its addresses together.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(10);
/// The most addresses of a name that are tried.
const ADDRESSES_MAX: usize = 8;
/// The most bytes of a response's head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The most idle connections that are kept.
const IDLE_MAX: usize = 16;
/// How long a connection is used: names may move to other addresses.
const AGE_MAX: Duration = Duration::from_mins(1);

/// Turns a name and a port into addresses.
pub(crate) type Resolve =
    Arc<dyn Fn(String, u16) -> Pin<Box<dyn Future<Output = std::io::Result<Vec<SocketAddr>>> + Send>> + Send + Sync>;

/// The system's resolver.
pub(crate) fn system_resolver() -> Resolve {
    Arc::new(|host, port| Box::pin(async move { Ok(tokio::net::lookup_host((host.as_str(), port)).await?.collect()) }))
}

/// How connections are encrypted: with the given roots, by ring.
pub(crate) fn tls(roots: RootCertStore) -> Result<Arc<ClientConfig>, tokio_rustls::rustls::Error> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A connection that a request can be sent on.
pub(super) struct Connection {
    pub(super) sender: SendRequest<Full<Bytes>>,
    opened: Stopwatch,
    /// Whether it served a request before: its peer may have left meanwhile.
    pub(super) reused: bool,
}

/// Opens connections to one target.
pub(super) struct Dialler {
    pub(super) target: Target,
    pub(super) guard: Guard,
    pub(super) resolve: Resolve,
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) connect_max: Duration,
    idle: Mutex<Vec<Connection>>,
}

impl Dialler {
    pub(super) fn new(
        target: Target,
        guard: Guard,
        resolve: Resolve,
        tls: Option<Arc<ClientConfig>>,
        timeout: Duration,
    ) -> Dialler {
        let connect_max = CONNECT_MAX.min(timeout);
        Dialler { target, guard, resolve, tls, connect_max, idle: Mutex::new(Vec::new()) }
    }

    /// A connection: an idle one, or a new one.
    pub(super) async fn connection(&self) -> Result<Connection, Silence> {
        match self.take_idle() {
            Some(connection) => Ok(connection),
            None => self.open().await,
        }
    }

    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|connection| connection.sender.is_ready() && connection.opened.elapsed() < AGE_MAX);
        idle.pop()
    }

    /// Keeps a connection for the next request.
    pub(super) fn keep(&self, mut connection: Connection) {
        connection.reused = true;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }

    /// Closes the connections that nobody uses.
    pub(super) fn clear(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// A new connection.
    pub(super) async fn open(&self) -> Result<Connection, Silence> {
        let slow = || Silence::down("http_connect", format!("no connection within {} s", self.connect_max.as_secs()));
        tokio::time::timeout(self.connect_max, self.dial()).await.unwrap_or_else(|_| Err(slow()))
    }

    async fn dial(&self) -> Result<Connection, Silence> {
        let addresses = self.addresses().await?;
        let mut failure = None;
        for address in addresses.into_iter().take(ADDRESSES_MAX) {
            // Only this judged address: connecting by name would resolve again.
            match TcpStream::connect(address).await {
                Ok(stream) => return self.speak(stream).await,
                Err(error) => failure = Some(format!("connecting to {address}: {error}")),
            }
        }
        Err(Silence::down("http_connect", failure.unwrap_or_else(|| "no address to connect to".to_owned())))
    }

    /// The addresses that may be called.
    pub(super) async fn addresses(&self) -> Result<Vec<SocketAddr>, Silence> {
        let Target { host, literal, port, .. } = &self.target;
        let found = match literal {
            Some(address) => vec![SocketAddr::new(*address, *port)],
            None => (self.resolve)(host.clone(), *port)
                .await
                .map_err(|error| Silence::down("http_resolve", format!("resolving {host}: {error}")))?,
        };
        if found.is_empty() {
            return Err(Silence::down("http_resolve", format!("{host} has no address")));
        }
        let permitted: Vec<SocketAddr> = found.into_iter().filter(|address| self.guard.permits(address.ip())).collect();
        if permitted.is_empty() {
            let message = format!("{host} has only private, local or reserved addresses, and allow lists none of them");
            return Err(Silence { class: Class::Permission, ..Silence::down("http_address", message) });
        }
        Ok(permitted)
    }

    async fn speak(&self, stream: TcpStream) -> Result<Connection, Silence> {
        // Small requests must not wait for the answer to the one before.
        let _ = stream.set_nodelay(true);
        let Some(config) = &self.tls else { return handshake(stream).await };
        let failed = |error: String| Silence::down("http_tls", format!("TLS with {}: {error}", self.target.host));
        let name = match self.target.literal {
            Some(address) => ServerName::from(address),
            None => ServerName::try_from(self.target.host.trim_end_matches('.').to_owned())
                .map_err(|error| failed(error.to_string()))?,
        };
        let connector = TlsConnector::from(Arc::clone(config));
        handshake(connector.connect(name, stream).await.map_err(|error| failed(error.to_string()))?).await
    }
}

async fn handshake(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Result<Connection, Silence> {
    let (sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| Silence::down("http_connect", error.to_string()))?;
    // Ends by itself when the sender is dropped or the peer leaves; failures reach whoever waits for an answer.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(Connection { sender, opened: Stopwatch::start(), reused: false })
}
