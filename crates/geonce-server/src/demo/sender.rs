//! A sender as senders are: it posts until it gets an answer, and sends again what was not answered.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const CONNECTIONS: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);
/// Tries before a sender loses patience: with the pause between them, half a minute.
const TRIES_MAX: usize = 1_500;
const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// What became of all messages.
#[derive(Default)]
pub(super) struct Sent {
    /// Requests that got an answer, by status.
    pub(super) accepted: usize,
    pub(super) duplicate: usize,
    pub(super) other: Vec<(u16, String)>,
    /// Requests that got none and were sent again.
    pub(super) unanswered: usize,
}

/// Posts all messages over several connections. `done` counts answers, for whoever watches.
pub(super) fn send(address: SocketAddr, path: &str, messages: &[Vec<u8>], done: &AtomicUsize) -> Sent {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut sent = Sent::default();
        let mut connection = None;
        while let Some(message) = messages.get(next.fetch_add(1, Ordering::Relaxed)) {
            for _ in 0..TRIES_MAX {
                match post(&mut connection, address, path, message) {
                    Ok((202, _)) => sent.accepted += 1,
                    Ok((200, _)) => sent.duplicate += 1,
                    Ok((503, _)) | Err(_) => {
                        sent.unanswered += 1;
                        connection = None;
                        thread::sleep(PAUSE);
                        continue;
                    }
                    Ok(other) => sent.other.push(other),
                }
                break;
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
        sent
    };
    let mut total = Sent::default();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(work)).collect();
        for sent in workers.into_iter().filter_map(|worker| worker.join().ok()) {
            total.accepted += sent.accepted;
            total.duplicate += sent.duplicate;
            total.unanswered += sent.unanswered;
            total.other.extend(sent.other);
        }
    });
    total
}

/// Whether the gateway says that it is ready.
pub(super) fn is_ready(address: SocketAddr) -> bool {
    let mut connection = None;
    matches!(request(&mut connection, address, "GET /readyz HTTP/1.1\r\nhost: demo\r\n\r\n", b""), Ok((200, _)))
}

type Connection = Option<BufReader<TcpStream>>;

fn post(connection: &mut Connection, address: SocketAddr, path: &str, body: &[u8]) -> std::io::Result<(u16, String)> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/geo+json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    request(connection, address, &head, body)
}

/// One request over a connection that is kept, or made.
fn request(
    connection: &mut Connection,
    address: SocketAddr,
    head: &str,
    body: &[u8],
) -> std::io::Result<(u16, String)> {
    if connection.is_none() {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        *connection = Some(BufReader::new(stream));
    }
    let Some(reader) = connection else { return Err(std::io::Error::other("no connection")) };
    reader.get_mut().write_all(&[head.as_bytes(), body].concat())?;
    let broken = || std::io::Error::other("no HTTP response");
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(broken)?;
    let mut length = 0;
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Err(broken());
        }
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().map_err(|_| broken())?;
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut answer = vec![0; usize::min(length, RESPONSE_BYTES_MAX)];
    reader.read_exact(&mut answer)?;
    Ok((status, String::from_utf8_lossy(&answer).into_owned()))
}
