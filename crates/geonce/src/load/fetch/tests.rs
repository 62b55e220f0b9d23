//! Fetching from servers on loopback that do what servers and networks do. They write bytes, not messages, so that an answer
//! can be wrong anywhere.

mod broken;
mod elsewhere;
mod paged;
mod paged_changes;
mod texts;
mod waiting;

use super::{FetchOptions, Fetched, Surroundings, Wait, fetch_in};
use crate::clock::{ManualClock, Timestamp};
use crate::error::Error;
use crate::retry::Retry;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::rustls::RootCertStore;

/// 2026-11-15T00:00:00Z, a Sunday.
const NOW: Timestamp = Timestamp::from_millis(1_794_700_800_000);

/// A request as a server saw it.
#[derive(Clone, Debug)]
struct Seen {
    target: String,
    headers: Vec<(String, String)>,
    connection: usize,
}

impl Seen {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str())
    }

    /// The value of a query parameter, as it is written.
    fn parameter(&self, name: &str) -> Option<&str> {
        let (_, query) = self.target.split_once('?')?;
        query.split('&').filter_map(|pair| pair.split_once('=')).find(|(one, _)| *one == name).map(|(_, value)| value)
    }

    fn path(&self) -> &str {
        self.target.split('?').next().unwrap()
    }
}

/// What a server writes, and what it does then.
#[derive(Clone, Debug)]
struct Reply {
    bytes: Vec<u8>,
    then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Listen,
    Close,
    /// Stays silent until the client leaves.
    Hang,
    /// Writes the same byte for ever, so many at once, with pauses.
    Drip(usize, Duration),
}

impl Reply {
    fn then(mut self, then: Then) -> Reply {
        self.then = then;
        self
    }

    /// Ends after so many bytes of the whole answer.
    fn cut(mut self, bytes: usize) -> Reply {
        self.bytes.truncate(bytes);
        self.then(Then::Close)
    }
}

fn reply(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let mut head = format!("HTTP/1.1 {status}\r\n");
    for (name, value) in headers {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    if !headers.iter().any(|(name, _)| ["content-length", "transfer-encoding", "connection"].contains(name)) {
        write!(head, "content-length: {}\r\n", body.len()).unwrap();
    }
    head += "\r\n";
    Reply { bytes: [head.as_bytes(), body].concat(), then: Then::Listen }
}

fn chunked(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let mut bytes = Vec::new();
    for chunk in body.chunks(10) {
        bytes.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        bytes.extend(chunk);
        bytes.extend(b"\r\n");
    }
    bytes.extend(b"0\r\n\r\n");
    reply(status, &[headers, &[("transfer-encoding", "chunked")]].concat(), &bytes)
}

/// A server.
struct Site {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Site {
    /// Answers the n-th request, from 0, with what `answer` says.
    async fn new(answer: impl Fn(usize, &Seen) -> Reply + Send + Sync + 'static) -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (shared, answer) = (Arc::clone(&seen), Arc::new(answer));
        tokio::spawn(async move {
            let mut connection = 0;
            while let Ok((stream, _)) = listener.accept().await {
                connection += 1;
                tokio::spawn(serve(stream, connection, Arc::clone(&shared), answer.clone()));
            }
        });
        Site { address, seen }
    }

    fn url(&self, target: &str) -> String {
        format!("http://data.example:{}{target}", self.address.port())
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

type Answer = dyn Fn(usize, &Seen) -> Reply + Send + Sync;

async fn serve<S>(mut stream: S, connection: usize, seen: Arc<Mutex<Vec<Seen>>>, answer: Arc<Answer>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(request) = request(&mut stream, connection).await {
        let at = {
            let mut seen = seen.lock().unwrap();
            seen.push(request.clone());
            seen.len() - 1
        };
        let reply = answer(at, &request);
        let _ = stream.write_all(&reply.bytes).await;
        let mut sunk = [0; 1024];
        match reply.then {
            Then::Listen => {}
            Then::Close => {
                let _ = stream.shutdown().await;
                return;
            }
            Then::Hang => while stream.read(&mut sunk).await.is_ok_and(|read| read > 0) {},
            Then::Drip(bytes, pause) => {
                while stream.write_all(&vec![b' '; bytes]).await.is_ok() {
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }
}

async fn request(stream: &mut (impl AsyncRead + Unpin), connection: usize) -> Option<Seen> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.split("\r\n");
    let target = lines.next()?.strip_prefix("GET ")?.strip_suffix(" HTTP/1.1")?.to_owned();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    Some(Seen { target, headers, connection })
}

/// A fetch that came to an end.
struct Run {
    result: Result<Fetched, Error>,
    waits: Vec<Duration>,
    folder: TempDir,
}

impl Run {
    /// The content of the file.
    #[track_caller]
    fn bytes(&self) -> Vec<u8> {
        let fetched = self.fetched();
        let bytes = std::fs::read(&fetched.path).unwrap();
        assert_eq!(fetched.bytes, bytes.len() as u64);
        assert_eq!(self.files(), std::slice::from_ref(&fetched.name), "nothing else is left");
        bytes
    }

    #[track_caller]
    fn fetched(&self) -> &Fetched {
        self.result.as_ref().unwrap_or_else(|error| panic!("{error}"))
    }

    /// The error's text and hint. Nothing is left of a fetch that failed.
    #[track_caller]
    fn error(&self) -> String {
        let error = self.result.as_ref().expect_err("it must fail");
        assert_eq!(self.files(), Vec::<String>::new());
        format!("{error} | {}", error.hint_text().unwrap_or_default())
    }

    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// Waits are as short as can be; those of servers are recorded, not waited for.
fn options() -> FetchOptions {
    FetchOptions {
        retry: Retry { base: Duration::ZERO, ..Retry::default() },
        answer_max: Duration::from_secs(20),
        silence_max: Duration::from_secs(20),
        ..FetchOptions::default()
    }
}

async fn run(url: &str, options: &FetchOptions) -> Run {
    run_with(url, options, None).await
}

/// Every name is that of this machine.
async fn run_with(url: &str, options: &FetchOptions, roots: Option<RootCertStore>) -> Run {
    let folder = TempDir::new().unwrap();
    let waits: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let shared = Arc::clone(&waits);
    let wait: Wait = Arc::new(move |wait| {
        shared.lock().unwrap().push(wait);
        Box::pin(std::future::ready(()))
    });
    let surroundings = Surroundings {
        clock: Arc::new(ManualClock::new(NOW)),
        wait,
        resolve: Arc::new(|_, port| Box::pin(async move { Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]) })),
        roots,
        guard: None,
    };
    let result = fetch_in(surroundings, url, options, folder.path(), &|_| {}).await;
    let waits = waits.lock().unwrap().clone();
    Run { result, waits, folder }
}

/// A file whose every place looks different.
fn content(bytes: usize) -> Vec<u8> {
    let mut text = String::new();
    for number in 0.. {
        if text.len() >= bytes {
            break;
        }
        write!(text, "{number};").unwrap();
    }
    text.truncate(bytes);
    text.into_bytes()
}

/// What a server that knows parts answers: all, or the rest if the validator is the one given.
fn with_parts(seen: &Seen, body: &[u8], validator: (&str, &str)) -> Reply {
    let from = seen.header("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    match from.filter(|_| seen.header("if-range") == Some(validator.1)) {
        Some(from) if from >= body.len() => {
            reply("416 Range Not Satisfiable", &[("content-range", &format!("bytes */{}", body.len()))], b"")
        }
        Some(from) => {
            let range = format!("bytes {from}-{}/{}", body.len() - 1, body.len());
            reply("206 Partial Content", &[validator, ("content-range", &range)], &body[from..])
        }
        None => reply("200 OK", &[validator, ("date", "Sun, 15 Nov 2026 00:00:00 GMT")], body),
    }
}

const TAG: (&str, &str) = ("etag", "\"one\"");
