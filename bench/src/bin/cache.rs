//! A cache before a store: which share of the ways to Redis its process saves, and how long those take that are left,
//! beside `redis-benchmark` on the same server with as many questions under way.
//!
//! Usage: `cache redis://HOST:PORT [--events 20000] [--lookups 200000] [--tasks 32] [--store sqlite::memory:]`
//!
//! The server should have nothing else to do, and is left with what was written (it expires within an hour).

use bytes::Bytes;
use geonce::cache::{self, Cached, Counts, Settings};
use geonce::clock::{Clock, Stopwatch, SystemClock};
use geonce::event::{Ids, Outcome};
use geonce::store::{self, Access, Admission, End, LeaseRequest, NewEvent, Options, Route, Settlement, Store, Verdict};
use geonce_bench::arguments::Arguments;
use geonce_bench::measure::{Latencies, count, cpu_seconds};
use geonce_key::{Fingerprint, Form};
use sha2::{Digest, Sha256};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Events of one request.
const BATCH: usize = 16;
const WINDOW: Duration = Duration::from_hours(1);
const PATIENCE: Duration = Duration::from_secs(30);

/// A gateway, as far as it has to do with a cache.
struct Gateway {
    cached: Arc<Cached>,
    ids: Ids,
}

/// Numbers that look random and are the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) % limit
    }
}

impl Gateway {
    /// Opens a cache before `store` and waits until it is warm.
    async fn open(store: &Arc<dyn Store>, settings: &Settings) -> Result<Gateway, Failure> {
        let cached = cache::open(Arc::clone(store), settings, Arc::new(SystemClock))?;
        let watch = Stopwatch::start();
        while !(cached.condition().warm && cached.condition().reachable) {
            if watch.elapsed() > PATIENCE {
                return Err("Redis does not answer".into());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(Gateway { cached, ids: Ids::new() })
    }

    fn event(&self, tag: u64, number: u64) -> NewEvent {
        let mut digest = Sha256::new();
        digest.update(tag.to_be_bytes());
        digest.update(number.to_be_bytes());
        let digest: [u8; 32] = digest.finalize().into();
        NewEvent {
            id: self.ids.next(SystemClock.now()),
            source: "bench".into(),
            key: Fingerprint::from_digest(digest, false),
            aliases: Vec::new(),
            spatial: Vec::new(),
            content: digest,
            form: Form::Json,
            crs: None,
            order: None,
            payload: Bytes::from_static(b"{}"),
            admission: Admission::Deliver([Route::to("map")].into()),
        }
    }

    /// Accepts events with these numbers.
    async fn accept(&self, tag: u64, numbers: &[u64]) -> Result<Vec<Verdict>, Failure> {
        let batch = numbers.iter().map(|&number| self.event(tag, number)).collect();
        Ok(self.cached.accept(batch, SystemClock.now()).await?)
    }

    /// Delivers all that waits.
    async fn deliver(&self) -> Result<(), Failure> {
        loop {
            let request = LeaseRequest {
                sink: "map".into(),
                events_max: 1_000,
                bytes_max: usize::MAX,
                duration: Duration::from_mins(1),
                event: None,
                holder: "test".into(),
            };
            let leased = self.cached.lease(request, SystemClock.now()).await?;
            if leased.is_empty() {
                return Ok(());
            }
            let settlements = leased
                .into_iter()
                .map(|leased| Settlement { lease: leased.lease, end: End::Done(Outcome::Applied, None) })
                .collect();
            self.cached.settle(settlements, SystemClock.now()).await?;
        }
    }

    /// Sends new events and, as the given share of all, copies of done ones. How many events are done then.
    async fn send(&self, tag: u64, mut done: u64, events: u64, copies_percent: u64) -> Result<u64, Failure> {
        let (mut chance, mut next) = (Chance(tag | 1), done);
        let mut sent = 0;
        while sent < events {
            let numbers: Vec<u64> = (0..BATCH)
                .map(|_| {
                    if done > 0 && chance.below(100) < copies_percent {
                        chance.below(done)
                    } else {
                        next += 1;
                        next - 1
                    }
                })
                .collect();
            self.accept(tag, &numbers).await?;
            sent += BATCH as u64;
            self.deliver().await?;
            done = next;
        }
        Ok(done)
    }
}

/// One line: of all keys, which were answered or passed on without Redis.
fn show(title: &str, before: &Counts, after: &Counts) {
    let of = |field: fn(&Counts) -> u64| count(field(after) - field(before));
    let (recent, hits, misses) = (of(|c| c.recent_hits), of(|c| c.redis_hits), of(|c| c.misses));
    let (skipped, bypassed) = (of(|c| c.skipped), of(Counts::bypassed_by_failure));
    let all = (recent + hits + misses + skipped + bypassed).max(1.0);
    let percent = |part: f64| 100.0 * part / all;
    println!(
        "{title:<44} avoided {:>5.1} %   (filter {:>5.1} %, recent {:>5.1} %)   asked: hit {:>5.1} %, miss {:>5.2} %   bypassed {:>4.2} %",
        percent(recent + skipped),
        percent(skipped),
        percent(recent),
        percent(hits),
        percent(misses),
        percent(bypassed),
    );
}

async fn shares(settings: &Settings, store_url: &str, events: u64) -> Result<(), Failure> {
    let options = Options { window: WINDOW, ..Options::default() };
    for recent in [65_536, 0] {
        println!("\nShare of ways to Redis avoided, {recent} entries kept in the process");
        for percent in [0, 20, 80] {
            let store = store::open(store_url, &options, Access::Gateway, "".as_ref())?;
            let tag = u64::from(std::process::id()) << 32 | percent << 8 | u64::from(recent == 0);
            let settings = Settings { recent, ..settings.clone() };
            let first = Gateway::open(&store, &settings).await?;
            let done = first.send(tag, 0, events, percent).await?;
            show(&format!("{percent:>2} % duplicates, fresh start"), &Counts::default(), &first.cached.counts());
            // What was written is waited for; what others were told, too.
            let second = Gateway::open(&store, &settings).await?;
            let watch = Stopwatch::start();
            let restarted = Gateway::open(&store, &settings).await?;
            let warm = watch.elapsed();
            let done = restarted.send(tag, done, events, percent).await?;
            let title = format!("{percent:>2} % duplicates, restarted, warm after {:.2} s", warm.as_secs_f64());
            show(&title, &Counts::default(), &restarted.cached.counts());
            let before = second.cached.counts();
            second.send(tag, done, events, percent).await?;
            show(&format!("{percent:>2} % duplicates, done by another gateway"), &before, &second.cached.counts());
        }
    }
    Ok(())
}

/// Questions that are all answered by Redis, so many under way at a time.
async fn lookups(settings: &Settings, events: u64, lookups: u64, tasks: u64) -> Result<(), Failure> {
    let options = Options { window: WINDOW, ..Options::default() };
    let store = store::open("sqlite::memory:", &options, Access::Gateway, "".as_ref())?;
    let settings = Settings { recent: 0, budget: Duration::from_secs(1), ..settings.clone() };
    let gateway = Arc::new(Gateway::open(&store, &settings).await?);
    let tag = u64::from(std::process::id()) << 32 | 0xffff;
    let done = gateway.send(tag, 0, events, 0).await?;
    let watch = Stopwatch::start();
    while gateway.cached.counts().written + gateway.cached.counts().dropped < done && watch.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let before = gateway.cached.counts();
    let (watch, cpu, left) = (Stopwatch::start(), cpu_seconds(), Arc::new(AtomicU64::new(lookups)));
    let mut running = tokio::task::JoinSet::new();
    for task in 0..tasks {
        let (gateway, left) = (Arc::clone(&gateway), Arc::clone(&left));
        running.spawn(async move {
            let (mut latencies, mut chance) = (Latencies::default(), Chance(task + 1));
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                let event = gateway.event(tag, chance.below(done));
                let watch = Stopwatch::start();
                gateway.cached.accept(vec![event], SystemClock.now()).await?;
                latencies.add(watch.elapsed());
            }
            Ok::<Latencies, Failure>(latencies)
        });
    }
    let mut latencies = Latencies::default();
    while let Some(ended) = running.join_next().await {
        latencies.extend(ended??);
    }
    let (seconds, after) = (watch.elapsed().as_secs_f64(), gateway.cached.counts());
    let answered = after.redis_hits - before.redis_hits;
    println!(
        "{:<44} {:>9.0}/s   p50 {:.3} ms   p99 {:.3} ms   {:.1} µs CPU each   {:.1} keys a round   {:.2} % answered by Redis",
        format!("geonce, {tasks} lookups under way"),
        count(lookups) / seconds,
        latencies.milliseconds_at(500),
        latencies.milliseconds_at(990),
        1e6 * (cpu_seconds() - cpu) / count(lookups),
        count(answered) / count((after.rounds - before.rounds).max(1)),
        100.0 * count(answered) / count(lookups),
    );
    Ok(())
}

/// The same server, asked by its own benchmark.
fn redis_benchmark(port: &str, title: &str, arguments: &[&str]) -> Result<(), Failure> {
    let output = Command::new("redis-benchmark").args(["-p", port, "--csv"]).args(arguments).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // test, rps, avg, min, p50, p95, p99, max
    let fields: Vec<f64> = text
        .lines()
        .last()
        .unwrap_or_default()
        .rsplit(',')
        .filter_map(|field| field.trim_matches('"').parse().ok())
        .take(7)
        .collect();
    let [_, p99, _, p50, _, _, rate] = fields[..] else {
        return Err(format!("redis-benchmark said {text:?}").into());
    };
    println!("{title:<44} {rate:>9.0}/s   p50 {p50:.3} ms   p99 {p99:.3} ms");
    Ok(())
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::read()?;
    let url = arguments.word(0)?.to_owned();
    let (events, many) = (arguments.value("events", 20_000)?, arguments.value("lookups", 200_000)?);
    let tasks: u64 = arguments.value("tasks", 32)?;
    let store: String = arguments.value("store", "sqlite::memory:".to_owned())?;
    let port = url.rsplit(':').next().unwrap_or("6379").to_owned();
    let mut settings = Settings::new(&url, WINDOW);
    settings.prefix = Some("bench".to_owned());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let turns = arguments.value("turns", 3)?;
    let (count, clients) = (many.to_string(), tasks.to_string());
    for turn in 1..=turns {
        println!("Lookups, turn {turn} of {turns}");
        runtime.block_on(lookups(&settings, events, many, tasks))?;
        let title = format!("redis-benchmark GET, {tasks} connections");
        redis_benchmark(&port, &title, &["-t", "get", "-r", "20000", "-n", &count, "-c", &clients])?;
        let title = format!("redis-benchmark GET, pipeline of {tasks}");
        redis_benchmark(&port, &title, &["-t", "get", "-r", "20000", "-n", &count, "-c", "1", "-P", &clients])?;
        let title = format!("redis-benchmark SET NX EX, pipeline of {tasks}");
        let set = [
            "-r",
            "1000000",
            "-n",
            &count,
            "-c",
            "1",
            "-P",
            &clients,
            "SET",
            "bench:__rand_int__",
            "0123456789abcdef",
            "NX",
            "EX",
            "60",
        ];
        redis_benchmark(&port, &title, &set)?;
    }
    runtime.block_on(shares(&settings, &store, events))
}
