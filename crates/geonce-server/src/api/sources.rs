//! Sources with their policies and books, and how the gateway as a whole is doing.

use super::query::Query;
use super::{Call, json, problem};
use crate::serve::{Answer, Gateway, Problem};
use geonce::event::State;
use geonce::intake::{Identify, Invalid, Source};
use geonce::store::{Ledger, Status};
use geonce_key::policy::{AssumedCrs, Dimensions, Field, Identity, Lines, Parts, Unicode};
use hyper::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Every source: those that are served, and those that the books know from before.
pub(super) async fn list(gateway: &Gateway, call: &Call) -> Result<Answer, Problem> {
    Query::read(call.query.as_deref(), &[])?;
    let books = gateway.books().await.ok_or_else(problem::no_books)?;
    let mut all: BTreeMap<&str, Option<&Source>> = books.ledgers.keys().map(|name| (name.as_str(), None)).collect();
    all.extend(gateway.sources.iter().map(|(name, served)| (&**name, Some(&*served.route.source))));
    let sources: Vec<Value> = all
        .into_iter()
        .map(|(name, source)| {
            let ledger = books.ledgers.get(name).copied().unwrap_or_default();
            json!({
                "source": name,
                "served": source.is_some(),
                "signed": source.map(|source| source.verify.is_some()),
                "sinks": source.map(|source| source.routes.iter().map(|route| &*route.sink).collect::<Vec<_>>()),
                "policy": source.map(policy),
                "books": book(&ledger),
                "refused": by_code(&books.invalid, name),
                "dead": by_code(&books.dead, name),
            })
        })
        .collect();
    Ok(json(StatusCode::OK, json!({ "sources": sources }).to_string()))
}

/// The books of a source, and whether they balance.
pub(super) fn book(ledger: &Ledger) -> Value {
    let difference = i64::try_from(ledger.difference()).unwrap_or(i64::MAX);
    json!({
        "received": ledger.received,
        "refused": ledger.refused,
        "duplicate": ledger.duplicate,
        "applied": ledger.applied,
        "stale": ledger.stale,
        "near": ledger.near,
        "repaired": ledger.repaired,
        "dead": ledger.dead,
        "purged": ledger.purged,
        "waiting": ledger.waiting,
        "conflict": ledger.conflict,
        "drift": ledger.drift,
        "collision": ledger.collision,
        "revived": ledger.revived,
        "difference": difference,
        "balanced": difference == 0,
    })
}

fn by_code(counts: &BTreeMap<(String, String), u64>, source: &str) -> Value {
    let of_source = counts.iter().filter(|((of, _), count)| of == source && **count > 0);
    of_source.map(|((_, code), count)| (code.clone(), Value::from(*count))).collect::<serde_json::Map<_, _>>().into()
}

/// What makes two payloads of a source the same event; no secrets.
fn policy(source: &Source) -> Value {
    let policy = &source.policy;
    let pointer = |pointer: &Option<geonce_key::Pointer>| pointer.as_ref().map(|pointer| pointer.as_str().to_owned());
    let (identity, ignore) = match &policy.identity {
        Identity::Fields(fields) => (Some(fields.iter().map(field).collect::<Vec<_>>()), None),
        Identity::Whole { ignore } => (None, Some(ignore.iter().map(geonce_key::Pointer::as_str).collect::<Vec<_>>())),
    };
    json!({
        "identity": identity,
        "ignore": ignore,
        "version": pointer(&policy.version),
        "identify": match source.identify {
            Identify::Auto => "auto",
            Identify::Spatial => "spatial",
            Identify::Delivery => "delivery",
        },
        "scope": policy.scope,
        "precision": policy.precision,
        "precision_z": policy.precision_z,
        "dimensions": match policy.dimensions {
            Dimensions::Delivered => Value::from("delivered"),
            Dimensions::Two => 2.into(),
            Dimensions::Three => 3.into(),
        },
        "lines": if policy.lines == Lines::Undirected { "undirected" } else { "directed" },
        "parts": if policy.parts == Parts::Ordered { "ordered" } else { "sorted" },
        "unicode": if policy.unicode == Unicode::Nfc { "nfc" } else { "exact" },
        "crs": match policy.crs {
            AssumedCrs::Required => "required".to_owned(),
            AssumedCrs::Code(code) => format!("EPSG:{code}"),
        },
        "approximate_crs": policy.approximate_crs,
        "close_rings": policy.close_rings,
        "secret": policy.key_secret.is_some(),
        "feature": pointer(&policy.feature),
        "previous": policy.previous.is_some(),
        "preset": source.preset.name(),
        "invalid": match source.invalid {
            Invalid::Reject => "reject",
            Invalid::Dead => "dead",
            Invalid::Repair => "repair",
        },
        "ordered": source.ordered,
    })
}

fn field(field: &Field) -> Value {
    json!({ "at": field.at.as_str(), "optional": field.optional, "decimals": field.decimals })
}

/// How the gateway is doing. Answered also while the store is down.
pub(super) async fn status(gateway: &Gateway, call: &Call) -> Result<Answer, Problem> {
    Query::read(call.query.as_deref(), &[])?;
    let books = gateway.books().await;
    let journal = books.as_ref().and_then(|books| books.spilled);
    let ok = books.is_some() && !journal.is_some_and(|journal| journal.down);
    let checks: Vec<Value> = gateway
        .healths()
        .await
        .into_iter()
        .map(|(name, health)| json!({ "name": name, "ok": health.ok, "detail": health.detail }))
        .collect();
    let (readers, left_out) = gateway.api.stream.readers();
    let text = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "instance": gateway.api.instance,
        "time": gateway.clock.now().to_string(),
        "draining": gateway.is_draining(),
        "store": store(gateway.store.id(), ok, books.as_deref()),
        "journal": journal.map(|journal| json!({
            "waiting": journal.waiting, "bytes": journal.bytes, "bytes_max": journal.bytes_max,
        })),
        "checks": checks,
        "states": books.as_deref().map(states),
        "oldest_waiting": books.as_ref().and_then(|books| books.oldest_waiting).map(|at| at.to_string()),
        "books": books.as_deref().map(|books| book(&total(books))),
        "jobs": gateway.api.jobs.counts(),
        "stream": { "readers": readers, "left_out": left_out },
    });
    Ok(json(StatusCode::OK, text.to_string()))
}

fn store(id: Option<[u8; 16]>, ok: bool, books: Option<&Status>) -> Value {
    json!({
        "id": id.map(|id| crate::show::hex(&id)),
        "ok": ok,
        "bytes": books.map(|books| books.bytes),
        "bytes_free": books.map(|books| books.bytes_free),
        "keys": books.map(|books| books.keys),
        "may_lose_events": books.map(|books| books.risks.as_slice()),
    })
}

fn states(books: &Status) -> Value {
    let count = |state: &State| (state.as_str().to_owned(), Value::from(books.states.get(state).copied().unwrap_or(0)));
    State::ALL.iter().map(count).collect::<serde_json::Map<_, _>>().into()
}

/// The books of all sources together.
fn total(books: &Status) -> Ledger {
    books.ledgers.values().fold(Ledger::default(), |all, one| Ledger {
        received: all.received + one.received,
        refused: all.refused + one.refused,
        duplicate: all.duplicate + one.duplicate,
        applied: all.applied + one.applied,
        stale: all.stale + one.stale,
        near: all.near + one.near,
        repaired: all.repaired + one.repaired,
        dead: all.dead + one.dead,
        purged: all.purged + one.purged,
        waiting: all.waiting + one.waiting,
        conflict: all.conflict + one.conflict,
        drift: all.drift + one.drift,
        collision: all.collision + one.collision,
        revived: all.revived + one.revived,
    })
}
