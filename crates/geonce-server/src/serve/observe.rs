//! What the gateway says about itself: alive, ready, metrics, and a few words for a person at `/`.
//!
//! Alive means that the process answers. Ready means that an event sent now would be acknowledged: the store answers
//! and we are not shutting down. A sink that is down is shown, but does not make us unready: its events wait.

use super::Gateway;
use super::answer::{self, Answer, Problem};
use geonce::clock::Stopwatch;
use geonce::event::State;
use geonce::store::{Answer as Pending, Spilled, Status};
use hyper::StatusCode;
use hyper::header::HeaderValue;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Mutex;

/// How long the store and each check may take.
const CHECK_WITHIN: Duration = Duration::from_secs(2);

/// How long an answer of the store is good for: many may ask, one asks the store.
const STATUS_GOOD_FOR: Duration = Duration::from_secs(1);

/// How something that the gateway depends on is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Health {
    /// Whether it is well.
    pub(crate) ok: bool,
    /// In a few words; shown to whoever can reach the gateway, so without secrets.
    pub(crate) detail: String,
}

/// Something that `/readyz` asks.
pub(crate) struct Check {
    /// What is asked: `sink zones`, `disk`.
    pub(crate) name: String,
    /// Whether the gateway is unready without it.
    pub(crate) required: bool,
    /// Asks. An error counts as not well; its text is logged, not shown.
    pub(crate) ask: Box<dyn Fn() -> Pending<'static, Health> + Send + Sync>,
}

/// The store's last answer.
#[derive(Default)]
pub(super) struct StatusCache {
    last: Mutex<Option<(Stopwatch, Option<Arc<Status>>)>>,
    draining: AtomicBool,
}

impl StatusCache {
    /// From now on we are not ready.
    pub(super) fn drain(&self) {
        self.draining.store(true, Relaxed);
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// The store's books, at most a second old; `None` if it does not answer.
    pub(super) async fn get(&self, gateway: &Gateway) -> Option<Arc<Status>> {
        let mut last = self.last.lock().await;
        if let Some((asked, status)) = &*last
            && asked.elapsed() < STATUS_GOOD_FOR
        {
            return status.clone();
        }
        let status = match tokio::time::timeout(CHECK_WITHIN, gateway.store.status()).await {
            Ok(Ok(status)) => Some(Arc::new(status)),
            Ok(Err(error)) => {
                if let Some(more) = gateway.metrics.store_failures_logged.now() {
                    tracing::error!(%error, more, "the store does not tell its status");
                }
                None
            }
            Err(_) => None,
        };
        *last = Some((Stopwatch::start(), status.clone()));
        status
    }
}

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

pub(super) fn health() -> Answer {
    answer::respond(StatusCode::OK, TEXT, "ok\n")
}

pub(super) fn front() -> Answer {
    let text = concat!(
        "geonce ",
        env!("CARGO_PKG_VERSION"),
        "\neach geospatial event takes effect once\n\nPOST events to /in/{source}\nGET /healthz /readyz /metrics /api/v1/openapi.json\n"
    );
    answer::respond(StatusCode::OK, TEXT, text)
}

pub(super) async fn metrics(gateway: &Gateway) -> Answer {
    let status = gateway.status.get(gateway).await;
    match gateway.metrics.text(status) {
        Err(_) => Problem::internal().answer(),
        Ok(text) => {
            let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
            answer::respond(StatusCode::OK, kind, text)
        }
    }
}

pub(super) async fn ready(gateway: &Gateway) -> Answer {
    let status = gateway.status.get(gateway).await;
    let draining = gateway.status.is_draining();
    let journal = status.as_ref().and_then(|status| status.spilled);
    let store_ok = status.is_some() && !journal.is_some_and(|journal| journal.down);
    // While the store is down, its journal takes events until it is full.
    let journal_ok = journal.is_some_and(|journal| journal.bytes < journal.bytes_max);
    let mut ready = (store_ok || journal_ok) && !draining;
    let mut checks = String::new();
    for check in &gateway.checks {
        let health = ask(check).await;
        ready &= health.ok || !check.required;
        checks.push(',');
        answer::string(&mut checks, &check.name);
        let _ = write!(checks, r#":{{"ok":{}"#, health.ok);
        answer::member(&mut checks, "detail", &health.detail);
        checks.push('}');
    }
    let mut text = format!(r#"{{"ready":{ready},"draining":{draining},"store":{{"ok":{store_ok}"#);
    if let Some(status) = &status {
        let _ = write!(text, r#","bytes":{},"keys":{}"#, status.bytes, status.keys);
        if !status.risks.is_empty() {
            answer::member(&mut text, "may_lose_events", &status.risks.join("; "));
        }
    }
    text.push('}');
    if let Some(Spilled { waiting, bytes, bytes_max, .. }) = journal {
        let _ = write!(text, r#","journal":{{"waiting":{waiting},"bytes":{bytes},"bytes_max":{bytes_max}}}"#);
    }
    text.push_str(&checks);
    if let Some(status) = &status {
        let count = |state| status.states.get(&state).copied().unwrap_or(0);
        let _ = write!(text, r#","waiting":{}"#, count(State::Ready) + count(State::Leased));
        let _ = write!(text, r#","dead":{}"#, count(State::Dead));
        let age = status.oldest_waiting.map(|oldest| gateway.clock.now().since(oldest).as_secs());
        let _ = write!(text, r#","oldest_waiting_seconds":{}"#, age.map_or("null".to_owned(), |age| age.to_string()));
    }
    text.push_str("}\n");
    let code = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    answer::respond(code, HeaderValue::from_static("application/json"), text)
}

/// How everything is that is asked, by name.
pub(super) async fn healths(gateway: &Gateway) -> Vec<(&str, Health)> {
    let mut healths = Vec::with_capacity(gateway.checks.len());
    for check in &gateway.checks {
        healths.push((&*check.name, ask(check).await));
    }
    healths
}

async fn ask(check: &Check) -> Health {
    match tokio::time::timeout(CHECK_WITHIN, (check.ask)()).await {
        Ok(Ok(health)) => health,
        Ok(Err(error)) => {
            tracing::warn!(check = check.name, %error, "a check failed");
            Health { ok: false, detail: error.kind().as_str().to_owned() }
        }
        Err(_) => Health { ok: false, detail: "no answer".to_owned() },
    }
}
