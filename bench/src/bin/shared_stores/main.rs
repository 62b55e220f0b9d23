//! Stores and sinks on servers, each beside what the server can do without us, in one run:
//!
//! * `accept`: the `PostgreSQL` store beside raw batched upserts of the same events, at several batch sizes;
//! * `redis`: the Redis store beside `redis-benchmark SET … NX EX` at the same pipelining;
//! * `postgis`: events from the store into a PostGIS layer, settled, beside COPY of the same rows;
//! * `gateways`: CPU for each event with one gateway and with two;
//! * `places`: giving places among what may be near, on every store, the embedded one too (`--store redis`: only there).
//!
//! Usage: `shared_stores [accept|redis|postgis|gateways|places …] [--rounds 3] [--seconds 3] [--events 81920]`. Servers are its own, synced as they
//! come. The sides take turns; medians are printed, and each side's CPU, the server's included.

#![expect(clippy::print_stdout, reason = "it prints a report")]

mod accept;
mod deliver;
mod places;
mod redis;

use geonce_bench::arguments::Arguments;
use geonce_bench::measure::{count, cpu_seconds};
use geonce_services::Postgres;

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Done<T> = Result<T, Failure>;

/// Ticks of the process clock per second; fixed in Linux's interface to programs.
const TICKS_PER_SECOND: f64 = 100.0;

/// What one turn of one side came to.
#[derive(Clone, Copy, Default)]
pub(crate) struct Turn {
    pub(crate) per_second: f64,
    /// Microseconds for each event: here,
    pub(crate) own_cpu: f64,
    /// and at the server.
    pub(crate) server_cpu: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

/// The middle of each figure.
pub(crate) fn median(turns: &[Turn]) -> Turn {
    let middle = |field: fn(&Turn) -> f64| {
        let mut all: Vec<f64> = turns.iter().map(field).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or_default()
    };
    Turn {
        per_second: middle(|turn| turn.per_second),
        own_cpu: middle(|turn| turn.own_cpu),
        server_cpu: middle(|turn| turn.server_cpu),
        p50_ms: middle(|turn| turn.p50_ms),
        p99_ms: middle(|turn| turn.p99_ms),
    }
}

/// The middle of the ratios of turns that were taken next to each other, in percent.
pub(crate) fn ratio(ours: &[Turn], theirs: &[Turn], figure: fn(&Turn) -> f64) -> f64 {
    let mut all: Vec<f64> = ours.iter().zip(theirs).map(|(our, their)| 100.0 * figure(our) / figure(their)).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or_default()
}

pub(crate) fn print(what: &str, turns: &[Turn]) {
    let Turn { per_second, own_cpu, server_cpu, p50_ms, p99_ms } = median(turns);
    println!(
        "{what:<44} {per_second:>9.0}/s  CPU µs {own_cpu:>6.1} + {server_cpu:>6.1}  p50 {p50_ms:>7.2} p99 {p99_ms:>7.2} ms"
    );
}

/// Measures CPU here and at a server since it was made.
pub(crate) struct Meter {
    server: u32,
    own: f64,
    theirs: f64,
}

impl Meter {
    /// `server` is the process whose children serve.
    pub(crate) fn start(server: u32) -> Meter {
        Meter { server, own: cpu_seconds(), theirs: tree_seconds(server) }
    }

    /// Microseconds for each of `events`, here and there.
    pub(crate) fn each(&self, events: u64) -> (f64, f64) {
        let events = count(events) / 1e6;
        ((cpu_seconds() - self.own) / events, (tree_seconds(self.server) - self.theirs) / events)
    }
}

/// CPU seconds of a process and its children, those that have ended included.
fn tree_seconds(parent: u32) -> f64 {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let stat = |id: &str| std::fs::read_to_string(format!("/proc/{id}/stat")).ok();
    let mut ticks = 0.0;
    for id in processes.filter_map(|entry| entry.file_name().into_string().ok()) {
        let Some(text) = id.parse::<u32>().ok().and_then(|_| stat(&id)) else { continue };
        let after = text.rsplit_once(')').map_or("", |(_, after)| after);
        let fields: Vec<&str> = after.split_whitespace().collect();
        let (number, is_parent) = (parent.to_string(), id == parent.to_string());
        if fields.len() > 15 && (is_parent || fields[1] == number) {
            let times = &fields[11..if is_parent { 15 } else { 13 }];
            ticks += times.iter().filter_map(|field| field.parse::<f64>().ok()).sum::<f64>();
        }
    }
    ticks / TICKS_PER_SECOND
}

/// The process whose children are the server's backends.
pub(crate) fn postmaster(server: &Postgres) -> Done<u32> {
    let backend = server.sql("postgres", "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'");
    let text = std::fs::read_to_string(format!("/proc/{backend}/stat"))?;
    let after = text.rsplit_once(')').map_or("", |(_, after)| after);
    Ok(after.split_whitespace().nth(1).ok_or("no parent")?.parse()?)
}

/// Settings of the server beside those it comes with: no checkpoint falls into a turn, and hits one side by chance.
pub(crate) const SETTINGS: [&str; 2] = ["checkpoint_timeout=1h", "max_wal_size=16GB"];

/// How much is measured.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    pub(crate) events: u64,
}

fn main() -> Done<()> {
    let arguments = Arguments::read()?;
    let size = Size {
        rounds: arguments.value("rounds", 3)?,
        seconds: arguments.value("seconds", 3.0)?,
        events: arguments.value("events", 81_920)?,
    };
    let mut parts: Vec<&str> = (0..5).map_while(|place| arguments.word(place).ok()).collect();
    if parts.is_empty() {
        parts = vec!["accept", "redis", "postgis", "gateways"];
    }
    for part in parts {
        match part {
            "accept" => accept::compare(size)?,
            "redis" => redis::compare(size)?,
            "postgis" => deliver::compare(size)?,
            "gateways" => deliver::gateways(size)?,
            "places" => places::compare(size, &arguments.value("store", "all".to_owned())?)?,
            other => return Err(format!("{other}: accept, redis, postgis, gateways or places").into()),
        }
    }
    Ok(())
}
