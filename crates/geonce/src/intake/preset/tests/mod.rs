//! Payloads as their providers document them, through the intake into a store. Each file names its document.

mod arcgis;
mod cloudevents;
mod devices;
mod esri;
mod hostile;
mod map;
mod notices;

use super::{Map, MapPlace, Payloads, Preset, Request};
use crate::clock::{ManualClock, Timestamp};
use crate::intake::{Arrival, Fault, FeatureReceipt, Identify, Intake, Receipt, Refused, Source};
use crate::store::{self, Access, ListRequest, Options, Store};
use geonce_key::split::Format;
use geonce_key::{Limits, Policy};
use hyper::{HeaderMap, header};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

/// 2026-11-15.
const START: Timestamp = Timestamp::from_millis(1_794_700_800_000);
const NO_HEADERS: [(&str, &str); 0] = [];

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| -> (header::HeaderName, header::HeaderValue) {
        (name.parse().unwrap(), value.parse().unwrap())
    };
    pairs.iter().map(pair).collect()
}

/// What a preset makes of a request.
fn read(preset: &Preset, pairs: &[(&str, &str)], body: &str) -> Result<Payloads, Fault> {
    let (headers, body, limits) = (headers(pairs), body.to_owned().into(), Limits::default());
    preset.read(&Request { headers: &headers, body: &body, limits: &limits, features_max: 100 }).unwrap()
}

/// The only feature that a preset makes of a request.
fn feature(preset: &Preset, pairs: &[(&str, &str)], body: &str) -> Value {
    let mut payloads = read(preset, pairs, body).unwrap().payloads;
    assert_eq!(payloads.len(), 1);
    let payload = payloads.remove(0);
    payload.read.unwrap();
    serde_json::from_slice(&payload.text).unwrap()
}

/// Code and pointer of the refusal of a request, or of its only event.
fn refusal(preset: &Preset, pairs: &[(&str, &str)], body: &str) -> (String, String) {
    let fault = match read(preset, pairs, body) {
        Err(fault) => fault,
        Ok(payloads) => {
            payloads.payloads.into_iter().find_map(|payload| payload.read.err()).expect("it is not refused")
        }
    };
    assert!(!fault.message.is_empty());
    (fault.code, fault.pointer)
}

#[test]
fn the_examples_of_the_documentation_are_read() {
    let mut read_of = Vec::new();
    for section in include_str!("../../../../../../docs/presets.md").split("\n## ").skip(1) {
        let Some(preset) =
            Preset::NAMED.into_iter().find(|preset| section.starts_with(&format!("{}\n", preset.name())))
        else {
            continue;
        };
        for example in section.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
            feature(&preset, &[("x-github-event", "push")], example);
            read_of.push(preset.name());
        }
    }
    assert_eq!(read_of, Preset::NAMED.map(|preset| preset.name())[1..]);
}

struct Rig {
    store: Arc<dyn Store>,
    intake: Intake,
    source: Arc<Source>,
}

impl Rig {
    /// A source with a preset and its defaults.
    fn new(preset: Preset) -> Rig {
        Rig::with(preset, |_| {})
    }

    fn with(preset: Preset, change: impl FnOnce(&mut Source)) -> Rig {
        let defaults = preset.defaults();
        let mut policy = Policy { version: defaults.version, ..Policy::default() };
        if let Some(identity) = defaults.identity {
            policy.identity = identity;
        }
        if defaults.without_geometry {
            policy.accept.types = Some(["Point", "Polygon", "LineString", "null"].map(str::to_owned).to_vec());
        }
        let store = store::open("sqlite::memory:", &Options::default(), Access::Gateway, Path::new(".")).unwrap();
        let mut source = Source::new("drones", policy, &["zones".to_owned()]).unwrap();
        source.identify = defaults.identify.unwrap_or(Identify::Auto);
        source.preset = preset;
        change(&mut source);
        let intake = Intake::new(Arc::clone(&store), Arc::new(ManualClock::new(START)));
        Rig { store, intake, source: Arc::new(source) }
    }

    async fn send(&self, pairs: &[(&str, &str)], body: &str) -> Result<Receipt, Refused> {
        let headers = headers(pairs);
        let delivery = self.source.delivery_id(&headers, None).map_err(Refused::Payload)?;
        let arrival = Arrival { body: body.to_owned().into(), format: Format::Json, delivery, headers };
        self.intake.receive(&self.source, arrival).await
    }

    /// What became of each event, in a word.
    async fn words(&self, pairs: &[(&str, &str)], body: &str) -> String {
        match self.send(pairs, body).await {
            Ok(receipt) => words(&receipt),
            Err(refused) => panic!("{refused:?}: {body}"),
        }
    }

    /// All of these are one event.
    async fn same(&self, requests: &[(&[(&str, &str)], &str)]) {
        for (i, (pairs, body)) in requests.iter().enumerate() {
            let expected = if i == 0 { "accepted" } else { "duplicate" };
            assert_eq!(self.words(pairs, body).await, expected, "{i}: {body}");
        }
    }

    /// Each of these is another event.
    async fn distinct(&self, requests: &[(&[(&str, &str)], &str)]) {
        for (i, (pairs, body)) in requests.iter().enumerate() {
            assert_eq!(self.words(pairs, body).await, "accepted", "{i}: {body}");
        }
    }

    /// Code and pointer of what is refused.
    async fn refused(&self, pairs: &[(&str, &str)], body: &str) -> (String, String) {
        let fault = match self.send(pairs, body).await {
            Err(Refused::Payload(fault)) => fault,
            Ok(receipt) => match receipt.features.into_iter().next() {
                Some(FeatureReceipt::Refused { fault, .. }) => fault,
                other => panic!("{other:?}: {body}"),
            },
            Err(refused) => panic!("{refused:?}"),
        };
        (fault.code, fault.pointer)
    }

    async fn recorded(&self) -> usize {
        self.store.list(ListRequest { limit: 100, ..ListRequest::default() }).await.unwrap().len()
    }
}

fn words(receipt: &Receipt) -> String {
    let word = |feature: &FeatureReceipt| match feature {
        FeatureReceipt::Accepted { .. } => "accepted",
        FeatureReceipt::Duplicate { .. } => "duplicate",
        FeatureReceipt::Conflict { .. } => "conflict",
        FeatureReceipt::Refused { kept: Some(_), .. } => "kept",
        FeatureReceipt::Refused { kept: None, .. } => "refused",
    };
    receipt.features.iter().map(word).collect::<Vec<_>>().join(" ")
}
