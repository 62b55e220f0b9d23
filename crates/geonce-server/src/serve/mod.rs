//! The receiver: webhooks in over HTTP/1.1, one answer each, no 2xx before the event is durable.
//!
//! [`Gateway`] is what it serves from, [`run`] serves until it is told to stop. It terminates no TLS and knows no
//! HTTP/2: a proxy in front does both. Verifying, keying and recording belong to the engine.

mod answer;
mod body;
mod call;
mod connection;
mod listen;
pub(crate) mod logs;
pub(crate) mod metrics;
mod observe;
mod receive;
mod reply;
mod route;
#[cfg(test)]
mod tests;

pub(crate) use answer::{Answer, JSON, Problem, member as answer_member, respond};
pub(crate) use body::Budget;
pub(crate) use connection::{Caller, Door};
pub(crate) use listen::{Listeners, run};
pub(crate) use observe::{Check, Health};
pub(crate) use reply::Reply;
pub(crate) use route::percent_decode;

use crate::api::Api;
use geonce::clock::Clock;
use geonce::intake::{Intake, Source};
use geonce::store::{Status, Store};
use metrics::{Metrics, SourceMetrics};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Everything that requests are served from.
pub(crate) struct Gateway {
    pub(crate) store: Arc<dyn Store>,
    intake: Intake,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) sources: HashMap<Box<str>, Served>,
    pub(crate) limits: Limits,
    checks: Vec<Check>,
    pub(crate) api: Api,
    metrics: Arc<Metrics>,
    budget: Arc<body::Budget>,
    status: observe::StatusCache,
}

/// What a gateway is made of.
pub(crate) struct Parts {
    /// Where events are recorded.
    pub(crate) store: Arc<dyn Store>,
    /// What records them.
    pub(crate) intake: Intake,
    /// Where the time of signatures comes from.
    pub(crate) clock: Arc<dyn Clock>,
    /// What is served under `/in/`.
    pub(crate) routes: Vec<Route>,
    /// Bounds on connections, time and memory.
    pub(crate) limits: Limits,
    /// What `/readyz` asks besides the store.
    pub(crate) checks: Vec<Check>,
    /// Made with the names of the same sources.
    pub(crate) metrics: Arc<Metrics>,
    /// What is served under `/api/`.
    pub(crate) api: Api,
}

/// A source as it is served under `/in/{name}`.
#[derive(Clone)]
pub(crate) struct Route {
    /// Where its events come in.
    pub(crate) source: Arc<Source>,
    /// The status of an event that is new: 202 or 200.
    pub(crate) fresh_status: u16,
    /// How long a sender waits for its answer.
    pub(crate) ack_within: Duration,
    /// The most bytes of a body, as sent and inflated.
    pub(crate) body_bytes_max: usize,
}

/// A route with its counters.
pub(crate) struct Served {
    pub(crate) route: Route,
    metrics: Arc<SourceMetrics>,
}

impl Gateway {
    /// A gateway of these parts.
    pub(crate) fn new(parts: Parts) -> Gateway {
        let Parts { store, intake, clock, routes, limits, checks, metrics, api } = parts;
        let sources = routes.into_iter().map(|route| {
            let metrics = metrics.source(&route.source.name);
            (Box::from(&*route.source.name), Served { route, metrics })
        });
        Gateway {
            sources: sources.collect(),
            budget: Arc::new(body::Budget::new(limits.buffered_bytes_max)),
            status: observe::StatusCache::default(),
            store,
            intake,
            clock,
            limits,
            checks,
            metrics,
            api,
        }
    }

    /// The store's books, at most a second old; `None` if it does not answer.
    pub(crate) async fn books(&self) -> Option<Arc<Status>> {
        self.status.get(self).await
    }

    /// How everything else is that the gateway depends on, by name.
    pub(crate) async fn healths(&self) -> Vec<(&str, Health)> {
        observe::healths(self).await
    }

    /// Whether the gateway is about to end.
    pub(crate) fn is_draining(&self) -> bool {
        self.status.is_draining()
    }

    /// How often connections are looked at: often enough for the shortest time that one may take.
    fn tick(&self) -> Duration {
        let Limits { first_byte, header, idle, transfer_grace, .. } = self.limits;
        let acks = self.sources.values().map(|served| served.route.ack_within);
        let shortest = acks.chain([first_byte, header, idle, transfer_grace]).min();
        (shortest.unwrap_or_default() / 8).clamp(Duration::from_millis(5), Duration::from_millis(100))
    }
}

/// Bounds on what clients may take up. Times are kept to about a tenth of a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Connections at a time. One more is answered 503 and closed.
    pub(crate) connections_max: usize,
    /// Connections at a time from one address, except this machine's own. One more is answered 429 and closed.
    pub(crate) connections_per_address_max: usize,
    /// Until a new connection says something.
    pub(crate) first_byte: Duration,
    /// From the first byte of a request to the end of its headers.
    pub(crate) header: Duration,
    /// Between requests of one connection.
    pub(crate) idle: Duration,
    /// What a body or an answer may take before its rate counts.
    pub(crate) transfer_grace: Duration,
    /// The least rate of a body that comes in or an answer that goes out, after the grace.
    pub(crate) transfer_bytes_per_second_min: u64,
    /// The longest time for one body or one answer, whatever its rate.
    pub(crate) transfer: Duration,
    /// Request line and headers together.
    pub(crate) header_bytes_max: usize,
    /// All bodies in memory together. A body that does not fit is answered 503.
    pub(crate) buffered_bytes_max: usize,
    /// How long requests in progress may take after the gateway was told to stop.
    pub(crate) shutdown: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections_max: 1_000,
            connections_per_address_max: 250,
            first_byte: Duration::from_secs(10),
            header: Duration::from_secs(10),
            idle: Duration::from_mins(1),
            transfer_grace: Duration::from_secs(10),
            transfer_bytes_per_second_min: 1_024,
            transfer: Duration::from_mins(5),
            header_bytes_max: 32 << 10,
            buffered_bytes_max: 32 << 20,
            shutdown: Duration::from_secs(10),
        }
    }
}
