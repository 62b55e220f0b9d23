//! Prometheus metrics: counters of this process in atomics, and the store's books, read when asked.
//!
//! Labels come from the configuration and from our own words, never from a request.

use super::logs::Seldom;
use geonce::cache::{Cached, Condition, Counts};
use geonce::store::{Ledger, Status};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Upper bounds of durations of requests and writes, in seconds.
const SECONDS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Upper bounds of durations of making keys, in seconds.
const KEY_SECONDS: &[f64] =
    &[0.000_001, 0.000_005, 0.000_01, 0.000_05, 0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1];

/// What a request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestOutcome {
    /// At least one event was new.
    Accepted,
    /// Every event was known.
    Duplicate,
    /// No event was new, and at least one contradicts a known one.
    Conflict,
    /// The request or all its payloads were refused.
    Refused,
    /// The signature does not hold.
    Unverified,
    /// Not acknowledged in time.
    Late,
    /// The store, or we, could not.
    Unavailable,
}

const OUTCOMES: [&str; 7] = ["accepted", "duplicate", "conflict", "refused", "unverified", "late", "unavailable"];

/// What an attempt at a sink may come to; another word counts as `other`.
const RESULTS: [&str; 8] = ["applied", "stale", "near", "repaired", "retry", "dead", "lease_lost", "other"];

/// A histogram that is written without a lock.
#[derive(Debug)]
struct Histogram {
    bounds: &'static [f64],
    counts: Box<[AtomicU64]>,
    nanos: AtomicU64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Histogram {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, counts, nanos: AtomicU64::new(0) }
    }

    fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let place = self.bounds.partition_point(|bound| *bound < seconds);
        self.counts[place].fetch_add(1, Relaxed);
        self.nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(self.counts.iter().map(|count| count.load(Relaxed))).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = Duration::from_nanos(self.nanos.load(Relaxed)).as_secs_f64();
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }
}

/// Counters of one source.
#[derive(Debug)]
pub(crate) struct SourceMetrics {
    requests: [AtomicU64; OUTCOMES.len()],
    duration: Histogram,
    key_duration: Histogram,
}

impl SourceMetrics {
    fn new() -> SourceMetrics {
        SourceMetrics {
            requests: Default::default(),
            duration: Histogram::new(SECONDS),
            key_duration: Histogram::new(KEY_SECONDS),
        }
    }

    /// A request has been answered.
    pub(crate) fn count(&self, outcome: RequestOutcome, took: Duration) {
        self.requests[outcome as usize].fetch_add(1, Relaxed);
        self.duration.observe(took);
    }

    /// The keys of a request were made.
    pub(super) fn keyed(&self, took: Duration) {
        self.key_duration.observe(took);
    }
}

#[derive(Debug)]
struct SinkMetrics {
    attempts: [AtomicU64; RESULTS.len()],
    duration: Histogram,
}

/// The counters of a gateway. Names that were not given at the start are not counted.
pub(crate) struct Metrics {
    sources: BTreeMap<Box<str>, Arc<SourceMetrics>>,
    sinks: BTreeMap<Box<str>, SinkMetrics>,
    found_new: AtomicU64,
    found_known: AtomicU64,
    lookup_duration: Histogram,
    cache: OnceLock<Arc<Cached>>,
    pub(super) refusals_logged: Seldom,
    pub(super) store_failures_logged: Seldom,
    pub(crate) troubles_logged: Seldom,
}

impl Metrics {
    /// Counters for these sources and sinks.
    pub(crate) fn new<'a>(
        sources: impl IntoIterator<Item = &'a str>,
        sinks: impl IntoIterator<Item = &'a str>,
    ) -> Arc<Metrics> {
        let sink = || SinkMetrics { attempts: Default::default(), duration: Histogram::new(SECONDS) };
        Arc::new(Metrics {
            sources: sources.into_iter().map(|name| (name.into(), Arc::new(SourceMetrics::new()))).collect(),
            sinks: sinks.into_iter().map(|name| (name.into(), sink())).collect(),
            found_new: AtomicU64::new(0),
            found_known: AtomicU64::new(0),
            lookup_duration: Histogram::new(SECONDS),
            cache: OnceLock::new(),
            refusals_logged: Seldom::new(),
            store_failures_logged: Seldom::new(),
            troubles_logged: Seldom::new(),
        })
    }

    /// The counters of the cache are shown too, from here on.
    pub(crate) fn show_cache(&self, cached: Option<&Arc<Cached>>) {
        if let Some(cached) = cached {
            // There is one cache, and it is told of once.
            let _ = self.cache.set(Arc::clone(cached));
        }
    }

    /// The counters of a source; new ones, that nobody sees, for one that was not given.
    pub(super) fn source(&self, name: &str) -> Arc<SourceMetrics> {
        self.sources.get(name).cloned().unwrap_or_else(|| Arc::new(SourceMetrics::new()))
    }

    /// The store has said of so many events whether they are known.
    pub(super) fn looked_up(&self, new: usize, known: usize, took: Duration) {
        self.found_new.fetch_add(new as u64, Relaxed);
        self.found_known.fetch_add(known as u64, Relaxed);
        if new + known > 0 {
            self.lookup_duration.observe(took);
        }
    }

    /// A sink has answered about `events` events of one write in the same way.
    pub(crate) fn attempts(&self, sink: &str, result: &str, events: u64) {
        if let Some(sink) = self.sinks.get(sink) {
            let place = RESULTS.iter().position(|known| *known == result).unwrap_or(RESULTS.len() - 1);
            sink.attempts[place].fetch_add(events, Relaxed);
        }
    }

    /// A write to a sink has ended.
    pub(crate) fn wrote(&self, sink: &str, took: Duration) {
        if let Some(sink) = self.sinks.get(sink) {
            sink.duration.observe(took);
        }
    }

    /// Everything in the text format of Prometheus; without the books if the store does not give them.
    pub(super) fn text(self: &Arc<Self>, status: Option<Arc<Status>>) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Scrape { metrics: self.clone(), status }));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

struct Scrape {
    metrics: Arc<Metrics>,
    status: Option<Arc<Status>>,
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.requests(&mut encoder)?;
        self.lookups(&mut encoder)?;
        self.sinks(&mut encoder)?;
        if let Some(status) = &self.status {
            books(status, &mut encoder)?;
        }
        let build = [("version", env!("CARGO_PKG_VERSION"))];
        encoder.encode_descriptor("geonce_build", "What is running", None, MetricType::Info)?.encode_info(&build)
    }
}

impl Scrape {
    fn requests(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let sources = &self.metrics.sources;
        let mut requests =
            encoder.encode_descriptor("geonce_requests", "Requests by what they came to", None, MetricType::Counter)?;
        for (name, source) in sources {
            for (outcome, count) in OUTCOMES.iter().zip(&source.requests) {
                counter(&mut requests, &[("source", name), ("outcome", outcome)], count.load(Relaxed))?;
            }
        }
        let help = "Time from the headers of a request to its answer";
        let mut durations =
            encoder.encode_descriptor("geonce_request_duration_seconds", help, None, MetricType::Histogram)?;
        for (name, source) in sources {
            source.duration.encode(durations.encode_family(&[("source", &**name)])?)?;
        }
        let help = "Time to make the keys of a request";
        let mut durations =
            encoder.encode_descriptor("geonce_key_duration_seconds", help, None, MetricType::Histogram)?;
        for (name, source) in sources {
            source.key_duration.encode(durations.encode_family(&[("source", &**name)])?)?;
        }
        Ok(())
    }

    fn lookups(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let metrics = &self.metrics;
        let mut lookups = encoder.encode_descriptor(
            "geonce_lookups",
            "Keys looked up, by where and with what result",
            None,
            MetricType::Counter,
        )?;
        for (result, count) in [("new", &metrics.found_new), ("known", &metrics.found_known)] {
            counter(&mut lookups, &[("tier", "store"), ("result", result)], count.load(Relaxed))?;
        }
        let cache = metrics.cache.get().map(|cached| (cached.counts(), cached.condition()));
        if let Some((counts, _)) = &cache {
            for (tier, result, count) in [
                ("process", "known", counts.recent_hits),
                ("process", "not_in_cache", counts.skipped),
                ("cache", "known", counts.redis_hits),
                ("cache", "unknown", counts.misses),
                ("cache", "differs", counts.differed),
            ] {
                counter(&mut lookups, &[("tier", tier), ("result", result)], count)?;
            }
        }
        let mut durations = encoder.encode_descriptor(
            "geonce_lookup_duration_seconds",
            "Time until the answer was durable",
            None,
            MetricType::Histogram,
        )?;
        metrics.lookup_duration.encode(durations.encode_family(&[("tier", "store")])?)?;
        let mut fallbacks = encoder.encode_descriptor(
            "geonce_fallbacks",
            "Lookups that went on to the next tier",
            None,
            MetricType::Counter,
        )?;
        let Some((counts, condition)) = cache else { return Ok(()) };
        for (kind, reason, count) in [
            ("intended", "source", counts.bypassed_intended),
            ("failure", "timeout", counts.bypassed_timeout),
            ("failure", "unavailable", counts.bypassed_unavailable),
            ("failure", "breaker", counts.bypassed_breaker),
            ("failure", "overload", counts.bypassed_overload),
        ] {
            counter(&mut fallbacks, &[("tier", "cache"), ("kind", kind), ("reason", reason)], count)?;
        }
        cache_metrics(encoder, counts, condition)
    }

    fn sinks(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut attempts = encoder.encode_descriptor(
            "geonce_attempts",
            "Events offered to a sink, by its answer",
            None,
            MetricType::Counter,
        )?;
        for (name, sink) in &self.metrics.sinks {
            for (result, count) in RESULTS.iter().zip(&sink.attempts) {
                counter(&mut attempts, &[("sink", name), ("result", result)], count.load(Relaxed))?;
            }
        }
        let mut durations = encoder.encode_descriptor(
            "geonce_sink_write_duration_seconds",
            "Time of one write to a sink",
            None,
            MetricType::Histogram,
        )?;
        for (name, sink) in &self.metrics.sinks {
            sink.duration.encode(durations.encode_family(&[("sink", &**name)])?)?;
        }
        Ok(())
    }
}

fn cache_metrics(encoder: &mut DescriptorEncoder<'_>, counts: Counts, condition: Condition) -> fmt::Result {
    let help = "Entries that were written to the cache, were not, or were not ours";
    let mut entries = encoder.encode_descriptor("geonce_cache_entries", help, None, MetricType::Counter)?;
    for (result, count) in [("written", counts.written), ("dropped", counts.dropped), ("damaged", counts.damaged)] {
        counter(&mut entries, &[("result", result)], count)?;
    }
    let help = "Round trips to the cache; each asks for all keys that wait";
    let mut rounds = encoder.encode_descriptor("geonce_cache_rounds", help, None, MetricType::Counter)?;
    rounds.encode_counter::<NoLabelSet, u64, f64>(&counts.rounds, None)?;
    let help = "How often the cache was given up for a while";
    let mut opened = encoder.encode_descriptor("geonce_cache_breaker_opened", help, None, MetricType::Counter)?;
    opened.encode_counter::<NoLabelSet, u64, f64>(&counts.breaker_opened, None)?;
    let help = "Whether the cache answers, and whether its filter knows what it holds";
    let mut state = encoder.encode_descriptor("geonce_cache_state", help, None, MetricType::Gauge)?;
    gauge(&mut state, &[("state", "reachable")], condition.reachable.into())?;
    gauge(&mut state, &[("state", "warm")], condition.warm.into())
}

fn counter(encoder: &mut MetricEncoder<'_>, labels: &[(&str, &str)], value: u64) -> fmt::Result {
    encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, f64>(&value, None)
}

fn gauge(encoder: &mut MetricEncoder<'_>, labels: &[(&str, &str)], value: u64) -> fmt::Result {
    encoder.encode_family(&labels)?.encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX))
}

/// What the store knows.
fn books(status: &Status, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut ledger = encoder.encode_descriptor(
        "geonce_ledger_events",
        "The books: received is the sum of the others",
        None,
        MetricType::Gauge,
    )?;
    for (source, books) in &status.ledgers {
        for (entry, value) in entries(books) {
            gauge(&mut ledger, &[("source", source), ("entry", entry)], value)?;
        }
    }
    let mut invalid =
        encoder.encode_descriptor("geonce_invalid", "Events that were refused, by code", None, MetricType::Counter)?;
    for ((source, code), count) in &status.invalid {
        counter(&mut invalid, &[("source", source), ("code", code)], *count)?;
    }
    let mut conflicts =
        encoder.encode_descriptor("geonce_conflicts", "Known ids with other content", None, MetricType::Counter)?;
    for (source, books) in &status.ledgers {
        counter(&mut conflicts, &[("source", source)], books.conflict)?;
    }
    let mut drift = encoder.encode_descriptor(
        "geonce_drift",
        "Duplicates that differ outside their identity",
        None,
        MetricType::Counter,
    )?;
    for (source, books) in &status.ledgers {
        counter(&mut drift, &[("source", source)], books.drift)?;
    }
    let sum = |entry: fn(&Ledger) -> u64| status.ledgers.values().map(entry).sum::<u64>();
    let collisions = sum(|books| books.collision);
    encoder
        .encode_descriptor("geonce_collisions", "Known keys with another fingerprint", None, MetricType::Counter)?
        .encode_counter::<NoLabelSet, u64, f64>(&collisions, None)?;
    let mut replays = encoder.encode_descriptor(
        "geonce_replays",
        "Dead events that were made ready again",
        None,
        MetricType::Counter,
    )?;
    let revived = sum(|books| books.revived);
    replays.encode_family(&[("result", "revived")])?.encode_counter::<NoLabelSet, u64, f64>(&revived, None)?;
    let mut events =
        encoder.encode_descriptor("geonce_events", "Events in the store, by state", None, MetricType::Gauge)?;
    for (state, count) in &status.states {
        gauge(&mut events, &[("state", state.as_str())], *count)?;
    }
    let mut dead =
        encoder.encode_descriptor("geonce_dead_events", "Dead events, by source and code", None, MetricType::Gauge)?;
    for ((source, code), count) in &status.dead {
        gauge(&mut dead, &[("source", source), ("code", code)], *count)?;
    }
    if let Some(spilled) = status.spilled {
        for (name, help, value) in [
            ("geonce_store_down", "Whether the store is down and events go to the journal", u64::from(spilled.down)),
            (
                "geonce_journal_waiting_events",
                "Events in the journal that the store does not have yet",
                spilled.waiting,
            ),
            ("geonce_journal_bytes", "Bytes that the journal uses", spilled.bytes),
            ("geonce_journal_bytes_max", "Bytes that the journal may use", spilled.bytes_max),
        ] {
            encoder
                .encode_descriptor(name, help, None, MetricType::Gauge)?
                .encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX))?;
        }
    }
    if let Some(oldest) = status.oldest_waiting {
        let help = "When the event that has waited longest was received";
        let mut oldest_ready =
            encoder.encode_descriptor("geonce_oldest_ready_timestamp_seconds", help, None, MetricType::Gauge)?;
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of this century are exact in a double")]
        let seconds = oldest.millis() as f64 / 1_000.0;
        oldest_ready.encode_gauge(&seconds)?;
    }
    Ok(())
}

fn entries(books: &Ledger) -> [(&'static str, u64); 10] {
    [
        ("received", books.received),
        ("refused", books.refused),
        ("duplicate", books.duplicate),
        ("applied", books.applied),
        ("stale", books.stale),
        ("near", books.near),
        ("repaired", books.repaired),
        ("dead", books.dead),
        ("purged", books.purged),
        ("waiting", books.waiting),
    ]
}
