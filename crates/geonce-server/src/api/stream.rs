//! What happens, as server-sent events. One ring of the latest messages serves all readers; nobody waits for a reader.
//!
//! A reader that is slower than the ring turns is told so and let go. Of each kind only so many a second are sent; the
//! others are counted and the counts sent. While nobody follows, a thing that happens costs one look at an atomic.

use super::problem;
use crate::serve::{Answer, Gateway, Problem, Reply, respond};
use bytes::Bytes;
use geonce::clock::Stopwatch;
use hyper::StatusCode;
use hyper::body::{Body, Frame};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Notify;

/// Readers at a time. One more is answered 429.
pub(super) const READERS_MAX: usize = 16;
/// Messages that are kept: some seconds of them at the highest rate.
const MESSAGES_MAX: usize = 4_096;
/// Messages of one kind in a second; more are counted.
pub(super) const MESSAGES_PER_SECOND_MAX: u32 = 50;
/// Messages that go out in one piece.
const PIECE_MESSAGES_MAX: usize = 128;
/// A reader hears from us at least so often,
const HEARTBEAT: Duration = Duration::from_secs(15);
/// and it is looked so often whether counts are to be sent.
const LOOK: Duration = Duration::from_secs(1);
/// How long messages are kept for a reader that went away and may come back.
const KEPT_FOR: Duration = Duration::from_secs(30);

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// What happens, for whoever follows it.
pub(crate) struct Stream {
    /// Tells our messages from those of the gateway before us.
    epoch: String,
    /// Whether messages are kept at all.
    active: AtomicBool,
    ended: AtomicBool,
    ring: Mutex<Ring>,
    news: Notify,
    started: Stopwatch,
}

#[derive(Default)]
struct Ring {
    messages: VecDeque<Bytes>,
    /// The number of the next message.
    next: u64,
    readers: usize,
    /// Since nobody reads.
    quiet: Option<Stopwatch>,
    second: u64,
    /// Of each kind in this second: how many were sent,
    sent: BTreeMap<&'static str, u32>,
    /// and how many were not.
    left_out: BTreeMap<&'static str, u64>,
    left_out_ever: u64,
}

impl Stream {
    /// A stream nobody follows yet. `epoch` is another one for each start of the gateway.
    pub(crate) fn new(epoch: u64) -> Arc<Stream> {
        Arc::new(Stream {
            epoch: format!("{epoch:x}"),
            active: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            ring: Mutex::default(),
            news: Notify::new(),
            started: Stopwatch::start(),
        })
    }

    /// Whether it is worth telling anything.
    pub(crate) fn is_followed(&self) -> bool {
        self.active.load(Relaxed)
    }

    /// Tells that something has happened. `write` writes a JSON object on one line.
    pub(crate) fn tell(&self, kind: &'static str, write: impl FnOnce(&mut String)) {
        if !self.is_followed() {
            return;
        }
        let mut ring = self.ring();
        if ring.readers == 0 && ring.quiet.is_none_or(|quiet| quiet.elapsed() > KEPT_FOR) {
            self.active.store(false, Relaxed);
            let (next, left_out_ever) = (ring.next, ring.left_out_ever);
            *ring = Ring { next, left_out_ever, ..Ring::default() };
            return;
        }
        self.turn(&mut ring);
        let sent = ring.sent.entry(kind).or_default();
        if *sent >= MESSAGES_PER_SECOND_MAX {
            *ring.left_out.entry(kind).or_default() += 1;
            ring.left_out_ever += 1;
            return;
        }
        *sent += 1;
        let mut data = String::with_capacity(192);
        write(&mut data);
        self.push(&mut ring, kind, &data);
        drop(ring);
        self.news.notify_waiters();
    }

    /// A new second: what was left out in the last one is told.
    fn turn(&self, ring: &mut Ring) {
        let second = self.started.elapsed().as_secs();
        if ring.second == second {
            return;
        }
        ring.second = second;
        ring.sent.clear();
        if !ring.left_out.is_empty() {
            let data = serde_json::json!(std::mem::take(&mut ring.left_out)).to_string();
            self.push(ring, "left_out", &data);
        }
    }

    fn push(&self, ring: &mut Ring, kind: &str, data: &str) {
        let message = format!("id: {}-{}\nevent: {kind}\ndata: {data}\n\n", self.epoch, ring.next);
        ring.next += 1;
        if ring.messages.len() == MESSAGES_MAX {
            ring.messages.pop_front();
        }
        ring.messages.push_back(message.into());
    }

    /// Ends what readers read. The gateway is about to stop.
    pub(crate) fn end(&self) {
        self.ended.store(true, Relaxed);
        self.news.notify_waiters();
    }

    /// How many read now, and how many messages were ever left out.
    pub(super) fn readers(&self) -> (usize, u64) {
        let ring = self.ring();
        (ring.readers, ring.left_out_ever)
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new reader, from the message after `last` on where that is still known; `None` if there are too many.
    fn follow(self: &Arc<Self>, last: Option<&str>, heartbeat: Duration) -> Option<Reader> {
        let mut ring = self.ring();
        if ring.readers >= READERS_MAX {
            return None;
        }
        ring.readers += 1;
        ring.quiet = None;
        self.active.store(true, Relaxed);
        let oldest = ring.next - ring.messages.len() as u64;
        let after = last.and_then(|last| self.number(last)).map(|number| number.saturating_add(1));
        let known = after.filter(|after| (oldest..=ring.next).contains(after));
        let mut hello = String::from("retry: 2000\n: what happens at this gateway from now on\n");
        if last.is_some() && known.is_none() {
            hello.push_str(": what happened meanwhile is not known any more\n");
        }
        hello.push('\n');
        let next = known.unwrap_or(ring.next);
        drop(ring);
        Some(Reader { stream: Arc::clone(self), next, heartbeat, first: Some(hello.into()), over: false })
    }

    fn number(&self, id: &str) -> Option<u64> {
        id.strip_prefix(&self.epoch)?.strip_prefix('-')?.parse().ok()
    }
}

/// Somebody who follows.
struct Reader {
    stream: Arc<Stream>,
    /// The number of the next message to read.
    next: u64,
    heartbeat: Duration,
    first: Option<Bytes>,
    /// Whether it was told that this is the end.
    over: bool,
}

/// What there is to read.
enum Piece {
    Some(Bytes),
    None,
    /// This, and nothing more.
    Last(&'static str),
}

impl Reader {
    /// The next piece; `None` at the end.
    async fn piece(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let silent = Stopwatch::start();
        let stream = Arc::clone(&self.stream);
        loop {
            let mut news = pin!(stream.news.notified());
            // Before we look: what comes after wakes us.
            news.as_mut().enable();
            match self.take() {
                Piece::Some(bytes) => return Some(bytes),
                Piece::Last(words) => {
                    self.over = true;
                    return Some(Bytes::from_static(words.as_bytes()));
                }
                Piece::None if silent.elapsed() >= self.heartbeat => {
                    return Some(Bytes::from_static(b": still here\n\n"));
                }
                Piece::None => drop(tokio::time::timeout(LOOK.min(self.heartbeat), news).await),
            }
        }
    }

    fn take(&mut self) -> Piece {
        if self.stream.ended.load(Relaxed) {
            return Piece::Last(": the gateway stops\n\n");
        }
        let mut ring = self.stream.ring();
        self.stream.turn(&mut ring);
        let oldest = ring.next - ring.messages.len() as u64;
        let Some(from) = self.next.checked_sub(oldest) else {
            return Piece::Last(": you read too slowly; messages were left out, and this is the end\n\n");
        };
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let mut piece = Vec::new();
        for message in ring.messages.iter().skip(from).take(PIECE_MESSAGES_MAX) {
            piece.extend_from_slice(message);
            self.next += 1;
        }
        if piece.is_empty() { Piece::None } else { Piece::Some(piece.into()) }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut ring = self.stream.ring();
        ring.readers -= 1;
        if ring.readers == 0 {
            ring.quiet = Some(Stopwatch::start());
        }
    }
}

type Next = Pin<Box<dyn Future<Output = (Reader, Option<Bytes>)> + Send>>;

/// What a reader reads, as a body.
struct Flow(Option<Next>);

fn next(mut reader: Reader) -> Next {
    Box::pin(async move {
        let piece = reader.piece().await;
        (reader, piece)
    })
}

impl Body for Flow {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let Some(waiting) = &mut this.0 else { return Poll::Ready(None) };
        let (reader, piece) = std::task::ready!(waiting.as_mut().poll(context));
        this.0 = piece.is_some().then(|| next(reader));
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// Begins to tell what happens.
pub(super) fn answer(gateway: &Gateway, headers: &HeaderMap) -> Result<Answer, Problem> {
    let last = headers.get(LAST_EVENT_ID).and_then(|last| last.to_str().ok());
    // A connection on which nothing happens is closed: we say something before.
    let heartbeat = HEARTBEAT.min(gateway.limits.idle / 3);
    let reader = gateway.api.stream.follow(last, heartbeat);
    let reader = reader.ok_or_else(|| problem::too_many("as many as may be follow what happens"))?;
    let mut answer = respond(StatusCode::OK, HeaderValue::from_static("text/event-stream"), "");
    *answer.body_mut() = Reply::Flow(Box::pin(Flow(Some(next(reader)))));
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::{Bytes, Duration, MESSAGES_MAX, MESSAGES_PER_SECOND_MAX, READERS_MAX, Reader, Stream};

    const HEARTBEAT: Duration = Duration::from_millis(10);

    async fn text(reader: &mut Reader) -> String {
        String::from_utf8(reader.piece().await.unwrap_or_else(Bytes::new).to_vec()).unwrap()
    }

    fn fill(stream: &Stream, count: usize) {
        // Around the limit of a second, which is not what is tested.
        let mut ring = stream.ring();
        for _ in 0..count {
            stream.push(&mut ring, "accepted", "{}");
        }
    }

    #[tokio::test]
    async fn a_reader_reads_what_happens_and_a_heartbeat_otherwise() {
        let stream = Stream::new(255);
        stream.tell("accepted", |_| panic!("nobody follows"));
        let mut reader = stream.follow(None, HEARTBEAT).unwrap();
        assert!(text(&mut reader).await.starts_with("retry: 2000\n: "));
        assert_eq!(text(&mut reader).await, ": still here\n\n");
        stream.tell("accepted", |out| out.push_str("{\"event\":1}"));
        assert_eq!(text(&mut reader).await, "id: ff-0\nevent: accepted\ndata: {\"event\":1}\n\n");
        stream.end();
        assert_eq!(text(&mut reader).await, ": the gateway stops\n\n");
        assert!(reader.piece().await.is_none());
    }

    #[tokio::test]
    async fn a_slow_reader_is_told_so_and_let_go() {
        let stream = Stream::new(1);
        let mut reader = stream.follow(None, HEARTBEAT).unwrap();
        text(&mut reader).await;
        fill(&stream, MESSAGES_MAX);
        assert!(text(&mut reader).await.starts_with("id: 1-0\n"));
        fill(&stream, MESSAGES_MAX);
        assert!(text(&mut reader).await.starts_with(": you read too slowly"));
        assert!(reader.piece().await.is_none());
        assert_eq!(stream.ring().messages.len(), MESSAGES_MAX);
    }

    #[tokio::test]
    async fn what_is_too_much_is_counted_by_kind_and_rare_kinds_come_through() {
        let stream = Stream::new(1);
        let mut reader = stream.follow(None, HEARTBEAT).unwrap();
        text(&mut reader).await;
        let many = u64::from(MESSAGES_PER_SECOND_MAX) + 1_000;
        for _ in 0..many {
            stream.tell("accepted", |out| out.push_str("{}"));
        }
        stream.tell("dead", |out| out.push_str("{}"));
        let (mut sent, mut told, mut dead) = (0, 0, false);
        while sent + told < many {
            let piece = text(&mut reader).await;
            sent += piece.matches("event: accepted").count() as u64;
            dead |= piece.contains("event: dead");
            for line in piece.lines().filter_map(|line| line.strip_prefix("data: {\"accepted\":")) {
                told += line.trim_end_matches('}').parse::<u64>().unwrap();
            }
        }
        assert!(dead && sent + told == many, "{sent} {told}");
        assert_eq!(stream.readers(), (1, told));
    }

    #[tokio::test]
    async fn a_reader_that_comes_back_reads_on_where_that_is_known() {
        let stream = Stream::new(1);
        let first = stream.follow(None, HEARTBEAT).unwrap();
        fill(&stream, 5);
        drop(first);
        stream.tell("dead", |out| out.push_str("{}"));
        let mut again = stream.follow(Some("1-3"), HEARTBEAT).unwrap();
        assert!(!text(&mut again).await.contains("not known"));
        let piece = text(&mut again).await;
        assert!(piece.starts_with("id: 1-4\n") && piece.contains("id: 1-5\nevent: dead"), "{piece}");
        for unknown in ["2-3", "1-77", "", "1-", "nonsense", "1-18446744073709551615"] {
            let mut reader = stream.follow(Some(unknown), HEARTBEAT).unwrap();
            assert!(text(&mut reader).await.contains("not known"), "{unknown}");
        }
    }

    #[test]
    fn there_are_so_many_readers_and_no_more() {
        let stream = Stream::new(1);
        let readers: Vec<_> = (0..READERS_MAX).map(|_| stream.follow(None, HEARTBEAT).unwrap()).collect();
        assert!(stream.follow(None, HEARTBEAT).is_none());
        drop(readers);
        assert_eq!(stream.readers(), (0, 0));
        assert!(stream.follow(None, HEARTBEAT).is_some());
    }
}
