//! The accept loop: takes connections, serves each in its own task, and ends well when told to stop.

use super::Gateway;
use super::connection::{Admitted, Caller, Connections, Door, Full, Phase, Watched};
use super::logs::Seldom;
use super::route;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// The first and the longest wait after the system could not give us a connection.
const ACCEPT_WAIT_MIN: Duration = Duration::from_millis(20);
const ACCEPT_WAIT_MAX: Duration = Duration::from_secs(1);

/// What a connection reads ahead of us at most.
const READ_BYTES_MAX: usize = 32 << 10;

/// How the receiver ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drained {
    /// Connections that were cut off because their request took too long.
    pub(crate) cut_off: usize,
}

/// Where connections come from.
pub(crate) struct Listeners {
    /// Senders, and whoever asks us how we are.
    pub(crate) senders: TcpListener,
    /// The API, where it has an address of its own.
    pub(crate) api: Option<TcpListener>,
}

impl Listeners {
    /// Where the API is.
    pub(crate) fn api_address(&self) -> io::Result<SocketAddr> {
        self.api.as_ref().unwrap_or(&self.senders).local_addr()
    }
}

impl From<TcpListener> for Listeners {
    fn from(senders: TcpListener) -> Listeners {
        Listeners { senders, api: None }
    }
}

/// Serves until `shutdown` resolves; then takes no more connections, finishes the requests that have begun, and
/// returns within [`super::Limits::shutdown`].
pub(crate) async fn run(
    gateway: Arc<Gateway>,
    listeners: impl Into<Listeners>,
    shutdown: impl Future<Output = ()>,
) -> Drained {
    let Listeners { senders, api } = listeners.into();
    let connections = Connections::new(gateway.limits.clone(), gateway.tick());
    let sweeper = tokio::spawn({
        let connections = connections.clone();
        async move { connections.sweep().await }
    });
    let mut http = http1::Builder::new();
    // Time-outs are the sweeper's. A client that has sent its request may close its side before it reads the answer.
    http.header_read_timeout(None).half_close(true).max_buf_size(READ_BYTES_MAX);
    http.max_header_size(gateway.limits.header_bytes_max);

    tokio::select! {
        () = shutdown => {}
        () = accept(&gateway, &connections, &http, &senders, Door::Senders) => {}
        () = accept_api(&gateway, &connections, &http, api.as_ref()) => {}
    }
    drop((senders, api));
    gateway.status.drain();
    let ending = tokio::time::timeout(gateway.limits.shutdown, connections.stop());
    let (finished, ()) = tokio::join!(ending, gateway.api.end());
    let cut_off = if finished.is_ok() { 0 } else { connections.abort() };
    sweeper.abort();
    if cut_off > 0 {
        tracing::warn!(connections = cut_off, "stopped before every request was answered");
    }
    Drained { cut_off }
}

async fn accept_api(
    gateway: &Arc<Gateway>,
    connections: &Arc<Connections>,
    http: &http1::Builder,
    listener: Option<&TcpListener>,
) {
    match listener {
        Some(listener) => accept(gateway, connections, http, listener, Door::Api).await,
        None => std::future::pending().await,
    }
}

async fn accept(
    gateway: &Arc<Gateway>,
    connections: &Arc<Connections>,
    http: &http1::Builder,
    listener: &TcpListener,
    door: Door,
) {
    let (errors, full) = (Seldom::new(), Seldom::new());
    let mut wait = ACCEPT_WAIT_MIN;
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) if concerns_one_connection(&error) => continue,
            Err(error) => {
                // Out of file descriptors or memory: others must end before there is room.
                if let Some(more) = errors.now() {
                    tracing::warn!(%error, more, "no connection can be accepted");
                }
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(ACCEPT_WAIT_MAX);
                continue;
            }
        };
        wait = ACCEPT_WAIT_MIN;
        match connections.admit(Caller { address: peer.ip().to_canonical(), door }) {
            Ok(admitted) => {
                let id = admitted.id;
                let task = tokio::spawn(serve(gateway.clone(), admitted, http.clone(), stream));
                connections.attach(id, task.abort_handle());
            }
            Err(why) => {
                if let Some(more) = full.now() {
                    tracing::warn!(?why, more, "a connection was turned away: there are too many");
                }
                turn_away(&stream, why);
            }
        }
    }
}

fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Says why, if that can be said at once, and closes.
fn turn_away(stream: &TcpStream, why: Full) {
    let answer: &[u8] = match why {
        Full::All => {
            b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        }
        Full::Address => {
            b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 5\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        }
    };
    // A new socket has room for a hundred bytes; a client that is gone needs no answer.
    let _ = stream.try_write(answer);
}

async fn serve(gateway: Arc<Gateway>, admitted: Admitted, http: http1::Builder, stream: TcpStream) {
    // Answers are small and written at once: waiting for more to send would only delay them.
    let _ = stream.set_nodelay(true);
    let watch = admitted.watch.clone();
    let service = service_fn(|request| {
        let (gateway, watch) = (gateway.clone(), watch.clone());
        async move {
            let answer = route::answer(&gateway, &watch, request).await;
            watch.enter(Phase::Respond);
            Ok::<_, Infallible>(answer)
        }
    });
    let io = TokioIo::new(Watched::new(stream, watch.clone()));
    let mut connection = pin!(http.serve_connection(io, service));
    let mut told = false;
    let ended = poll_fn(|context| {
        if watch.is_stopping(context) && !told {
            told = true;
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(context)
    });
    if let Err(error) = ended.await {
        // What a client sends, or that it goes away, is its own affair.
        tracing::debug!(%error, "a connection ended early");
    }
}
