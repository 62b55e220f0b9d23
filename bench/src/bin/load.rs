//! Sends points to a receiver over many connections, one request in flight on each, and measures the answers.
//! One thread, plain sockets, bodies made from numbers: the same bytes for every receiver and little CPU of its own.
//!
//! Usage: `load ADDRESS --kind fresh|duplicates|batches [--connections 64] [--seconds 5] [--tag 1] [--features 1000]
//! [--rate EVENTS_PER_SECOND]`

use geonce::clock::Stopwatch;
use geonce_bench::arguments::Arguments;
use geonce_bench::measure::{Latencies, count, cpu_seconds};
use geonce_bench::points;
use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Events that are delivered again and again.
const REPEATED: u64 = 1_000;
/// What a sender that was refused waits before it goes on. Refused events are not counted.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);
const ANSWER_HEAD_BYTES_MAX: usize = 16 * 1_024;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Fresh,
    Duplicates,
    Batches { features: u64 },
}

struct Plan {
    address: String,
    kind: Kind,
    tag: u64,
    next: AtomicU64,
    began: Stopwatch,
    /// Events per second at most; as many as are answered, if there is none.
    rate: Option<f64>,
    over: AtomicBool,
}

#[derive(Default)]
struct Tally {
    latencies: Latencies,
    statuses: BTreeMap<u16, u64>,
}

/// A connection with what has been read from it.
struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    body: Vec<u8>,
    answer: Vec<u8>,
}

impl Connection {
    async fn open(address: &str) -> std::io::Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, request: Vec::new(), body: Vec::new(), answer: Vec::new() })
    }

    /// Sends the features of these numbers, waits for the answer, gives its status.
    async fn send(&mut self, tag: u64, numbers: std::ops::Range<u64>, batch: bool) -> std::io::Result<u16> {
        self.body.clear();
        for number in numbers {
            points::write(tag, number, &mut self.body);
            if batch {
                self.body.push(b'\n');
            }
        }
        self.request.clear();
        let media = if batch { "application/x-ndjson" } else { "application/geo+json" };
        write!(
            self.request,
            "POST /in/default HTTP/1.1\r\nhost: bench\r\ncontent-type: {media}\r\ncontent-length: {}\r\n\r\n",
            self.body.len()
        )?;
        self.request.extend_from_slice(&self.body);
        self.stream.write_all(&self.request).await?;
        self.read_answer().await
    }

    async fn read_answer(&mut self) -> std::io::Result<u16> {
        self.answer.clear();
        let mut whole = None;
        loop {
            if self.stream.read_buf(&mut self.answer).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if whole.is_none() {
                whole = whole_length(&self.answer)?;
            }
            if whole.is_some_and(|length| self.answer.len() >= length) {
                let status = std::str::from_utf8(&self.answer[9..12]).ok().and_then(|text| text.parse().ok());
                return status.ok_or_else(|| Error::other("an answer without a status"));
            }
        }
    }
}

/// Length of the answer, head and body, once its head is there.
fn whole_length(answer: &[u8]) -> std::io::Result<Option<usize>> {
    let Some(end) = memchr::memmem::find(answer, b"\r\n\r\n") else {
        let fits = answer.len() <= ANSWER_HEAD_BYTES_MAX;
        return if fits { Ok(None) } else { Err(Error::other("the head of an answer is too long")) };
    };
    let head = std::str::from_utf8(&answer[..end]).map_err(Error::other)?;
    let length = head.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    length.map(|length| Some(end + 4 + length)).ok_or_else(|| Error::other("an answer without its length"))
}

async fn talk(plan: Arc<Plan>) -> std::io::Result<Tally> {
    let mut connection = Connection::open(&plan.address).await?;
    let mut tally = Tally::default();
    while !plan.over.load(Ordering::Relaxed) {
        let (first, many) = match plan.kind {
            Kind::Fresh => (plan.next.fetch_add(1, Ordering::Relaxed), 1),
            Kind::Duplicates => (plan.next.fetch_add(1, Ordering::Relaxed) % REPEATED, 1),
            Kind::Batches { features } => (plan.next.fetch_add(features, Ordering::Relaxed), features),
        };
        if let Some(rate) = plan.rate {
            let due = Duration::from_secs_f64(count(first) / rate);
            tokio::time::sleep(due.saturating_sub(plan.began.elapsed())).await;
        }
        let watch = Stopwatch::start();
        let batch = matches!(plan.kind, Kind::Batches { .. });
        let status = connection.send(plan.tag, first..first + many, batch).await?;
        *tally.statuses.entry(status).or_default() += 1;
        if (200..300).contains(&status) {
            tally.latencies.add(watch.elapsed());
        } else {
            tokio::time::sleep(REFUSED_PAUSE).await;
            // A receiver that has not read the body cannot go on with the connection.
            connection = Connection::open(&plan.address).await?;
        }
    }
    Ok(tally)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::read()?;
    let features = match arguments.value("kind", "fresh".to_owned())?.as_str() {
        "batches" => arguments.value("features", 1_000)?,
        _ => 1,
    };
    let kind = match arguments.value("kind", "fresh".to_owned())?.as_str() {
        "fresh" => Kind::Fresh,
        "duplicates" => Kind::Duplicates,
        "batches" => Kind::Batches { features },
        other => return Err(format!("--kind {other}: fresh, duplicates or batches").into()),
    };
    let seconds = Duration::from_secs_f64(arguments.value("seconds", 5.0)?);
    let plan = Arc::new(Plan {
        address: arguments.word(0)?.to_owned(),
        kind,
        tag: arguments.value("tag", 1)?,
        next: AtomicU64::new(0),
        began: Stopwatch::start(),
        rate: Some(arguments.value("rate", 0.0)?).filter(|rate| *rate > 0.0),
        over: AtomicBool::new(false),
    });
    if kind == Kind::Duplicates {
        let mut first = Connection::open(&plan.address).await?;
        first.send(plan.tag, 0..REPEATED, true).await?;
    }
    let (watch, cpu) = (Stopwatch::start(), cpu_seconds());
    let talks: Vec<_> =
        (0..arguments.value("connections", 64)?).map(|_| tokio::spawn(talk(Arc::clone(&plan)))).collect();
    tokio::time::sleep(seconds).await;
    plan.over.store(true, Ordering::Relaxed);
    let mut all = Tally::default();
    for talk in talks {
        let tally = talk.await??;
        all.latencies.extend(tally.latencies);
        for (status, number) in tally.statuses {
            *all.statuses.entry(status).or_default() += number;
        }
    }
    let elapsed = watch.elapsed().as_secs_f64();
    let requests = all.latencies.len() as u64;
    let line = serde_json::json!({
        "requests": requests,
        "events": requests * features,
        "seconds": elapsed,
        "events_per_second": count(requests * features) / elapsed,
        "p50_ms": all.latencies.milliseconds_at(500),
        "p99_ms": all.latencies.milliseconds_at(990),
        "statuses": all.statuses,
        "load_cpu_seconds": cpu_seconds() - cpu,
    });
    writeln!(std::io::stdout(), "{line}")?;
    Ok(())
}
