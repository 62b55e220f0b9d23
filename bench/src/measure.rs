//! Latencies, CPU seconds and memory of this process, as the system counts them.

use std::time::Duration;

/// Ticks of the process clock per second; fixed in Linux's interface to programs.
const TICKS_PER_SECOND: f64 = 100.0;

/// Latencies, kept one by one.
#[derive(Default)]
pub struct Latencies(Vec<u32>);

impl Latencies {
    /// Adds one.
    pub fn add(&mut self, latency: Duration) {
        self.0.push(u32::try_from(latency.as_micros()).unwrap_or(u32::MAX));
    }

    /// Adds all of another.
    pub fn extend(&mut self, other: Latencies) {
        self.0.extend(other.0);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The latency in milliseconds that this share (of 1,000) of all do not exceed; zero where there are none.
    pub fn milliseconds_at(&mut self, per_mille: usize) -> f64 {
        self.0.sort_unstable();
        let place = (self.0.len() * per_mille / 1_000).min(self.0.len().saturating_sub(1));
        self.0.get(place).map_or(0.0, |&micros| f64::from(micros) / 1_000.0)
    }
}

/// CPU seconds of this process so far, user and system.
pub fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is the program's name in parentheses and may hold anything; user time is the twelfth after it.
    let after = text.rsplit_once(')').map_or("", |(_, after)| after);
    after.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>()
        / TICKS_PER_SECOND
}

/// The most memory this process has had resident, in megabytes.
pub fn memory_peak_megabytes() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<f64>().ok()).unwrap_or(0.0) / 1_024.0
}

/// A count as a number that can be divided.
#[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^52")]
pub fn count(number: u64) -> f64 {
    number as f64
}
