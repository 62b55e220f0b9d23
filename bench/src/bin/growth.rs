//! How the cost of accepting grows with the number of live keys: fills a store through the engine's own interface and
//! measures `accept` at each size. Between the measurements events are accepted, leased and settled, as in service, so
//! that what has piled up is keys and payloads and not waiting work.
//!
//! Usage: `growth FOLDER [--sizes 1,2,5,10,20] [--unit 1000000] [--measured 200000] [--batch 256] [--waiting 4]`

use bytes::Bytes;
use geonce::clock::{Clock, Stopwatch, SystemClock};
use geonce::event::{EventId, Ids, Outcome};
use geonce::store::{self, Access, Admission, End, LeaseRequest, NewEvent, Options, Route, Settlement, Store, Verdict};
use geonce_bench::arguments::Arguments;
use geonce_bench::measure::{count, cpu_seconds, memory_peak_megabytes};
use geonce_key::{Fingerprint, Form};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Events that are accepted before the next are leased, while filling.
const FILL_STEP: u64 = 16_384;
const LEASE: Duration = Duration::from_mins(1);
const LEASE_BYTES_MAX: usize = 64 << 20;

struct Filler {
    store: Arc<dyn Store>,
    ids: Ids,
    source: Arc<str>,
    sinks: Arc<[Route]>,
    batch: u64,
    /// Batches in flight at once.
    waiting: usize,
}

impl Filler {
    fn event(&self, number: u64) -> NewEvent {
        let digest: [u8; 32] = Sha256::digest(number.to_le_bytes()).into();
        let payload = format!(
            "{{\"type\":\"Feature\",\"geometry\":{{\"type\":\"Point\",\"coordinates\":[{}.5,{}.25]}},\"properties\":{{\"n\":{number}}}}}",
            number % 170,
            number % 80
        );
        NewEvent {
            id: self.id(),
            source: Arc::clone(&self.source),
            key: Fingerprint::from_digest(digest, false),
            aliases: Vec::new(),
            spatial: Vec::new(),
            content: digest,
            form: Form::Json,
            crs: None,
            payload: Bytes::from(payload),
            admission: Admission::Deliver(Arc::clone(&self.sinks)),
            order: None,
        }
    }

    fn id(&self) -> EventId {
        self.ids.next(SystemClock.now())
    }

    /// Accepts the events of these numbers, several batches at a time.
    async fn accept(self: &Arc<Self>, numbers: std::ops::Range<u64>) -> Result<(), Failure> {
        let next = Arc::new(std::sync::atomic::AtomicU64::new(numbers.start));
        let end = numbers.end;
        let mut running = Vec::new();
        for _ in 0..self.waiting {
            let (filler, next) = (Arc::clone(self), Arc::clone(&next));
            running.push(tokio::spawn(async move {
                loop {
                    let first = next.fetch_add(filler.batch, std::sync::atomic::Ordering::Relaxed);
                    if first >= end {
                        return Ok::<(), Failure>(());
                    }
                    let events: Vec<_> =
                        (first..(first + filler.batch).min(end)).map(|number| filler.event(number)).collect();
                    let verdicts = filler.store.accept(events, SystemClock.now()).await?;
                    if verdicts.iter().any(|verdict| *verdict != Verdict::Accepted) {
                        return Err("an event was known before it was made".into());
                    }
                }
            }));
        }
        for task in running {
            task.await??;
        }
        Ok(())
    }

    /// Settles everything that waits.
    async fn settle(&self) -> Result<(), Failure> {
        loop {
            let request = LeaseRequest {
                sink: Arc::clone(&self.sinks[0].sink),
                events_max: 4_096,
                bytes_max: LEASE_BYTES_MAX,
                duration: LEASE,
                event: None,
                holder: "test".into(),
            };
            let leased = self.store.lease(request, SystemClock.now()).await?;
            if leased.is_empty() {
                return Ok(());
            }
            let done =
                |leased: store::Leased| Settlement { lease: leased.lease, end: End::Done(Outcome::Applied, None) };
            self.store.settle(leased.into_iter().map(done).collect(), SystemClock.now()).await?;
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments = Arguments::read()?;
    let folder = Path::new(arguments.word(0)?);
    let unit: u64 = arguments.value("unit", 1_000_000)?;
    let measured: u64 = arguments.value("measured", 200_000)?;
    let sizes = arguments.value("sizes", "1,2,5,10,20".to_owned())?;
    let filler = Arc::new(Filler {
        store: store::open("sqlite:growth.db", &Options::default(), Access::Gateway, folder)?,
        ids: Ids::new(),
        source: "growth".into(),
        sinks: Arc::from([Route::to("features")]),
        batch: arguments.value("batch", 256)?,
        waiting: arguments.value("waiting", 4)?,
    });
    let mut live = 0;
    for size in sizes.split(',') {
        let target = size.parse::<u64>()? * unit;
        while live < target {
            let end = (live + FILL_STEP).min(target);
            filler.accept(live..end).await?;
            filler.settle().await?;
            live = end;
        }
        let (watch, cpu) = (Stopwatch::start(), cpu_seconds());
        filler.accept(live..live + measured).await?;
        let (seconds, cpu) = (watch.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        live += measured;
        filler.settle().await?;
        let line = serde_json::json!({
            "live_keys": target,
            "events_per_second": count(measured) / seconds,
            "cpu_us_per_event": cpu * 1e6 / count(measured),
            "memory_mb": memory_peak_megabytes(),
        });
        writeln!(std::io::stdout(), "{line}")?;
    }
    filler.store.close().await?;
    Ok(())
}
