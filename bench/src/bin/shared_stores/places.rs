//! Places among what may be near: what one costs on each store, once it holds so many, with nobody in its cells and with one.
//!
//! Cells are spread by chance over the whole range, which is the worst there is for an index.

use crate::{Done, Meter, SETTINGS, Size, Turn, postmaster, print};
use bytes::Bytes;
use geonce::clock::{Clock, Stopwatch, SystemClock, Timestamp};
use geonce::event::{EventId, Ids};
use geonce::store::{self, Access, Admission, Claim, NewEvent, Options, Placed, Spot, Store};
use geonce_bench::measure::{Latencies, count};
use geonce_key::{Fingerprint, Form};
use geonce_services::{Postgres, Redis};
use std::path::Path;
use std::time::Duration;

/// Spots of one call.
const BATCH: u64 = 256;
/// Spots of one turn.
const TURN: u64 = 100 * BATCH;
/// Bytes of a point's body.
const BODY: &[u8] = &[7; 20];

/// The number-th of numbers that are spread over the whole range, each once.
fn scattered(number: u64) -> u64 {
    let mut x = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    x ^ (x >> 32)
}

/// A spot in a cell of its own, which looks at so many.
fn spot(event: EventId, number: u64, cells: u64, now: Timestamp) -> Spot {
    let home = scattered(number);
    let mut looked_at: Vec<u64> = (0..cells).map(|step| home.wrapping_add(step)).collect();
    looked_at.sort_unstable();
    let until = now.plus(Duration::from_hours(24));
    Spot {
        event,
        scope: [3; 16],
        cells: looked_at,
        home,
        body: Bytes::from_static(BODY),
        until,
        claim: Claim::Unless(Vec::new()),
    }
}

struct Filler {
    ids: Ids,
    next: u64,
}

impl Filler {
    /// Places `spots` events, in cells where nobody is or, with `again`, where the last ones are. Those are recorded.
    async fn fill(&mut self, store: &dyn Store, spots: u64, cells: u64, again: bool) -> Done<Latencies> {
        let mut latencies = Latencies::default();
        for _ in 0..spots / BATCH {
            let now = SystemClock.now();
            let begin = if again { self.next - BATCH } else { self.next };
            let batch: Vec<Spot> =
                (begin..begin + BATCH).map(|number| spot(self.ids.next(now), number, cells, now)).collect();
            if !again {
                self.next += BATCH;
            }
            let watch = Stopwatch::start();
            let placed = store.place(batch, now).await?;
            latencies.add(watch.elapsed());
            let here = placed.iter().filter(|placed| **placed == Placed::Here).count();
            if here != if again { 0 } else { placed.len() } {
                return Err(format!("{here} of {} were placed", placed.len()).into());
            }
        }
        Ok(latencies)
    }

    /// Records and places a batch of events that stay open.
    async fn neighbours(&mut self, store: &dyn Store) -> Done<()> {
        let now = SystemClock.now();
        let (mut events, mut spots) = (Vec::new(), Vec::new());
        for number in self.next..self.next + BATCH {
            let mut digest = [9; 32];
            digest[..8].copy_from_slice(&scattered(number).to_be_bytes());
            let event = NewEvent {
                id: self.ids.next(now),
                source: "bench".into(),
                key: Fingerprint::from_digest(digest, false),
                aliases: Vec::new(),
                spatial: Vec::new(),
                content: digest,
                form: Form::Json,
                crs: None,
                payload: Bytes::from_static(b"{}"),
                admission: Admission::Deliver([store::Route::to("map")].into()),
                order: None,
            };
            spots.push(spot(event.id, number, 1, now));
            events.push(event);
        }
        self.next += BATCH;
        store.accept(events, now).await?;
        store.place(spots, now).await?;
        Ok(())
    }
}

async fn measure(name: &str, store: &dyn Store, process: u32, size: Size) -> Done<()> {
    let mut filler = Filler { ids: Ids::new(), next: 0 };
    filler.fill(store, size.events, 1, false).await?;
    for (cells, again) in [(1, false), (7, false), (1, true)] {
        let mut turns = Vec::new();
        for _ in 0..size.rounds {
            if again {
                filler.neighbours(store).await?;
            }
            let (meter, watch) = (Meter::start(process), Stopwatch::start());
            let mut latencies = filler.fill(store, TURN, cells, again).await?;
            let (own_cpu, server_cpu) = meter.each(TURN);
            turns.push(Turn {
                per_second: count(TURN) / watch.elapsed().as_secs_f64(),
                own_cpu,
                server_cpu,
                p50_ms: latencies.milliseconds_at(500),
                p99_ms: latencies.milliseconds_at(990),
            });
        }
        let what = if again { "one neighbour" } else { "nobody there" };
        print(&format!("  {name}: {cells} cells, {what}"), &turns);
    }
    let bytes = store.status().await?.bytes;
    println!("    {:.0} bytes for each place", count(bytes) / count(filler.next));
    store.close().await?;
    Ok(())
}

pub(crate) fn compare(size: Size, which: &str) -> Done<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let open = |url: &str| store::open(url, &Options::default(), Access::Gateway, Path::new("."));
    println!("places, {} held, {BATCH} in a call", size.events);
    if ["all", "embedded"].contains(&which) {
        let file = std::env::current_dir()?.join("places.db");
        for ending in ["", "-wal", "-shm", ".lock"] {
            let _ = std::fs::remove_file(file.with_file_name(format!("places.db{ending}")));
        }
        // No process has this number: all of it is here.
        runtime.block_on(measure("embedded", &*open(&format!("sqlite:{}", file.display()))?, u32::MAX, size))?;
        std::fs::remove_file(file)?;
    }
    if ["all", "postgresql"].contains(&which) {
        let server = Postgres::start(&SETTINGS);
        runtime.block_on(measure("PostgreSQL", &*open(&server.database())?, postmaster(&server)?, size))?;
    }
    if ["all", "redis"].contains(&which) {
        let server = Redis::start(&[]);
        runtime.block_on(measure("Redis", &*open(&server.url())?, server.process(), size))?;
    }
    Ok(())
}
