//! Near-duplicates: the same thing measured twice, told apart from what was applied shortly before and close by.
//!
//! Before an event is written it gets a place in the store ([`crate::store::Store::place`]), which is refused while somebody is close
//! by whom it was not compared with. So of two near events, on whatever gateways, one is placed first, and the other is
//! compared with it. What was decided is kept there too, before it takes effect: it stays so, whoever asks again.
//!
//! The rules are here, once for all stores. How near two geometries are is `geonce_key::near`'s to say.

pub mod between;

use crate::clock::Timestamp;
use crate::error::Result;
use crate::event::EventId;
use crate::sink::{Merge, Outgoing};
use crate::store::{Claim, Neighbour, Placed, ResultText, SPOT_BODY_BYTES_MAX, Spot, Store};
use bytes::Bytes;
use geonce_key::near::{self, Answer, Body, Budget, Cells, Measure, Rule};
use geonce_key::policy::{Identity, Lines, Policy};
use geonce_key::{Encoding, Fingerprint, Pointer};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Events that one event is compared with at most. Where more are close by, it is applied: in doubt, distinct.
pub const COMPARED_MAX: usize = 512;

/// How often a store is asked for one batch. Each answer names up to 64 neighbours; who is still unplaced tries again later.
const ROUNDS_MAX: usize = 16;

/// Which events of a source are near-duplicates, and what becomes of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Near {
    /// Near is what one of these says is near: at most so many metres, or at least such a share.
    pub measures: Vec<(Measure, f64)>,
    /// How far apart the middles of areas may be that are compared by what they share.
    pub within_metres: f64,
    /// How long an event is compared with those after it.
    pub period: Duration,
    /// Which events are compared.
    pub scope: Scope,
    /// What becomes of a near-duplicate.
    pub action: Action,
    /// What may differ when one is dropped.
    pub ignore: Vec<Pointer>,
}

/// Which events are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those with the same identity: its fields, or everything outside the geometry.
    Identity,
    /// Those about the same entity.
    Entity,
    /// All of the source.
    Source,
}

impl Scope {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Scope::Identity => "identity",
            Scope::Entity => "entity",
            Scope::Source => "source",
        }
    }
}

/// What becomes of a near-duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is not written, where all outside the geometry is the same; others are flagged.
    Drop,
    /// It is written, and its result says what it is near to.
    Flag,
    /// It is written over the row of the one it is near to.
    Merge {
        /// The row's point becomes the mean of all of them.
        mean: bool,
    },
}

impl Action {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Action::Drop => "drop",
            Action::Flag => "flag",
            Action::Merge { .. } => "merge",
        }
    }
}

/// What was found out about an event. Kept in the store as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Finding {
    /// The event it is near to.
    of: String,
    measure: String,
    /// How near: metres, or a share.
    value: f64,
    action: String,
    /// The key of that event, where rows are merged: its first 16 bytes in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    into: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    mean: bool,
}

impl Finding {
    fn text(&self) -> String {
        serde_json::json!({ "near": self }).to_string()
    }

    fn of_text(text: &str) -> Option<Finding> {
        let mut value: serde_json::Value = serde_json::from_str(text).ok()?;
        serde_json::from_value(value.get_mut("near")?.take()).ok()
    }

    /// As the result of an event that is done.
    pub(super) fn result(&self) -> Option<ResultText> {
        ResultText::new(self.text()).ok()
    }

    /// As a part of the result of an event that was written.
    pub(super) fn beside(&self, row: Option<&ResultText>, key: &Fingerprint) -> Option<ResultText> {
        let mut result: serde_json::Value = match row {
            Some(row) => serde_json::from_str(row.as_str()).ok()?,
            None => serde_json::json!({}),
        };
        result["key"] = key.text(Encoding::Base64).into();
        result["near"] = serde_json::to_value(self).ok()?;
        ResultText::new(result.to_string()).ok()
    }

    /// The row that takes the event in.
    fn merge(&self) -> Option<Merge> {
        let digits = self.into.as_ref()?;
        let into = u128::from_str_radix(digits, 16).ok()?.to_be_bytes();
        Some(Merge { into, mean: self.mean })
    }
}

/// What is to be done with an event.
#[derive(Debug)]
pub(super) enum Sifted {
    /// It is written.
    Go,
    /// It is written, and what it is near to is noted.
    Marked(Finding),
    /// It is written over a row.
    Merged(Finding, Merge),
    /// It is not written.
    Dropped(Finding),
    /// It is near to this one, of which it is not known yet what becomes of it.
    Waits(EventId),
    /// Others kept coming.
    Crowded,
}

/// What one source asks for, prepared.
struct Rules {
    near: Near,
    measures: Vec<Rule>,
    cells: Cells,
    policy: Policy,
}

/// Compares events before they are written, for one worker.
pub(super) struct Sieve<'a> {
    near: &'a HashMap<Arc<str>, Near>,
    policies: &'a HashMap<Arc<str>, Policy>,
    rules: HashMap<Arc<str>, Option<Rules>>,
}

/// What others are compared with: an event's key, the digest of all outside its geometry, and the geometry.
struct Spoken {
    key: [u8; 16],
    rest: [u8; 16],
    body: Body,
}

impl Spoken {
    fn bytes(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(64);
        bytes.extend_from_slice(&self.key);
        bytes.extend_from_slice(&self.rest);
        bytes.extend_from_slice(&self.body.to_bytes());
        bytes.into()
    }

    /// Of bytes that somebody else wrote; `None` where they mean nothing here.
    fn of(bytes: &[u8]) -> Option<Spoken> {
        let (key, rest) = (bytes.first_chunk()?, bytes.get(16..)?.first_chunk()?);
        Some(Spoken { key: *key, rest: *rest, body: Body::from_bytes(bytes.get(32..)?).ok()? })
    }
}

/// An event that is looking for its place.
struct Looking {
    index: usize,
    own: Spoken,
    spot: Spot,
    known: Vec<EventId>,
    budget: Budget,
    /// The first that it is near to, and that is only to be noted.
    marked: Option<Finding>,
    /// What it is near to, once it is applied.
    waits: Option<EventId>,
    decided: Option<Finding>,
}

impl<'a> Sieve<'a> {
    pub(super) fn new(near: &'a HashMap<Arc<str>, Near>, policies: &'a HashMap<Arc<str>, Policy>) -> Sieve<'a> {
        Sieve { near, policies, rules: HashMap::new() }
    }

    /// What is to be done with each event, in order. An error means that the store could not be asked.
    pub(super) async fn sift(&mut self, store: &dyn Store, batch: &[Outgoing], now: Timestamp) -> Result<Vec<Sifted>> {
        let mut sifted: Vec<Sifted> = batch.iter().map(|_| Sifted::Go).collect();
        if self.near.is_empty() {
            return Ok(sifted);
        }
        let mut looking: Vec<Looking> = Vec::new();
        for (index, outgoing) in batch.iter().enumerate() {
            looking.extend(self.look(index, outgoing, now));
        }
        for _ in 0..ROUNDS_MAX {
            if looking.is_empty() {
                break;
            }
            let spots = looking.iter().map(Looking::spot).collect();
            let placed = store.place(spots, now).await?;
            let mut still = Vec::new();
            for (mut looking, placed) in looking.into_iter().zip(placed) {
                let index = looking.index;
                match placed {
                    Placed::Here => sifted[index] = looking.marked.map_or(Sifted::Go, Sifted::Marked),
                    Placed::Decided(text) => {
                        let finding = Finding::of_text(&text);
                        sifted[index] = finding.map_or(Sifted::Go, |finding| match finding.merge() {
                            Some(merge) => Sifted::Merged(finding, merge),
                            None => Sifted::Dropped(finding),
                        });
                    }
                    Placed::Neighbours(neighbours) => {
                        if let Some(rules) = self.rules.get(&batch[index].source).and_then(Option::as_ref) {
                            looking.compare(rules, &neighbours);
                        }
                        match looking.waits.filter(|_| looking.decided.is_none()) {
                            Some(event) => sifted[index] = Sifted::Waits(event),
                            None => still.push(looking),
                        }
                    }
                }
            }
            looking = still;
        }
        for looking in looking {
            sifted[looking.index] = Sifted::Crowded;
        }
        Ok(sifted)
    }

    /// What a source asks for; `None` where it asks for nothing.
    fn rules(&mut self, source: &Arc<str>) -> Option<&Rules> {
        if !self.rules.contains_key(source) {
            let near = self.near.get(source).zip(self.policies.get(source));
            let rules = near.and_then(|(near, policy)| Rules::new(near, policy));
            self.rules.insert(Arc::clone(source), rules);
        }
        self.rules.get(source)?.as_ref()
    }

    fn look(&mut self, index: usize, outgoing: &Outgoing, now: Timestamp) -> Option<Looking> {
        // What says that its entity is gone is no second measurement of it.
        let rules = self.rules(&outgoing.source).filter(|_| !outgoing.feature.deleted)?;
        let until = outgoing.received.plus(rules.near.period);
        // What comes later than that is compared with others, but nobody will be with it.
        let until = until.max(now);
        // What has no geometry, or none that can be brought to WGS 84, is near to nothing.
        let body = Body::new(&outgoing.feature, rules.policy.approximate_crs).ok()?;
        let rest = outgoing.rest?;
        let scope = rules.scope(outgoing.entity.as_ref(), rest)?;
        let (home, cells) = (rules.cells.home(&body), rules.cells.around(&body));
        let own = Spoken { key: outgoing.key.key(), rest, body };
        let bytes = own.bytes();
        if bytes.len() > SPOT_BODY_BYTES_MAX {
            return None;
        }
        let spot =
            Spot { event: outgoing.event, scope, cells, home, body: bytes, until, claim: Claim::Unless(Vec::new()) };
        Some(Looking {
            index,
            own,
            spot,
            known: Vec::new(),
            budget: Budget::new(rules.policy.limits.work_max),
            marked: None,
            waits: None,
            decided: None,
        })
    }
}

impl Rules {
    fn new(near: &Near, policy: &Policy) -> Option<Rules> {
        let reach = |&(measure, threshold): &(Measure, f64)| match measure {
            Measure::Iou => near.within_metres,
            _ => threshold,
        };
        let radius = near.measures.iter().map(reach).fold(0.0, f64::max);
        // One that follows segments between vertices finds what the others find too.
        let follows = |(measure, _): &&(Measure, f64)| matches!(measure, Measure::Hausdorff | Measure::Iou);
        let (leading, _) = near.measures.iter().find(follows).or(near.measures.first())?;
        let undirected = policy.lines == Lines::Undirected;
        let rule = |&(measure, threshold): &(Measure, f64)| Rule { measure, threshold, undirected };
        Some(Rules {
            near: near.clone(),
            measures: near.measures.iter().map(rule).collect(),
            cells: Cells::new(*leading, radius).ok()?,
            policy: policy.clone(),
        })
    }

    /// Whom an event is compared with; `None` where it cannot be said.
    fn scope(&self, entity: Option<&Fingerprint>, rest: [u8; 16]) -> Option<[u8; 16]> {
        let mut digest = Sha256::new();
        digest.update(self.policy.scope.as_bytes());
        digest.update([0]);
        match (self.near.scope, &self.policy.identity) {
            (Scope::Source, _) => {}
            (Scope::Identity, Identity::Whole { .. }) => digest.update(rest),
            (Scope::Identity | Scope::Entity, _) => digest.update(entity?.digest()),
        }
        digest.finalize().first_chunk().copied()
    }

    /// What becomes of an event with `own` outside its geometry that is near to one with `other`.
    fn action(&self, own: &[u8; 16], other: &[u8; 16]) -> Action {
        match self.near.action {
            Action::Drop if other != own => Action::Flag,
            action => action,
        }
    }
}

impl Looking {
    fn spot(&self) -> Spot {
        let claim = match &self.decided {
            Some(finding) => Claim::Decided(finding.text().into()),
            None if self.known.len() >= COMPARED_MAX => Claim::Anyway,
            None => Claim::Unless(self.known.clone()),
        };
        Spot { claim, ..self.spot.clone() }
    }

    /// Compares the event with neighbours. Of several that it is near to, one that is applied decides; else it waits for one
    /// that may be.
    fn compare(&mut self, rules: &Rules, neighbours: &[Neighbour]) {
        for neighbour in neighbours {
            self.known.push(neighbour.event);
            let Some(other) = Spoken::of(&neighbour.body) else { continue };
            let Some((measure, value)) = self.nearest(rules, &other.body) else { continue };
            let action = rules.action(&self.own.rest, &other.rest);
            let merges = matches!(action, Action::Merge { .. });
            let finding = Finding {
                of: neighbour.event.to_string(),
                measure: measure.name().to_owned(),
                value,
                action: action.as_str().to_owned(),
                into: merges.then(|| format!("{:032x}", u128::from_be_bytes(other.key))),
                mean: action == Action::Merge { mean: true },
            };
            match action {
                Action::Flag => self.marked = self.marked.take().or(Some(finding)),
                Action::Drop | Action::Merge { .. } if neighbour.applied => {
                    self.decided = Some(finding);
                    return;
                }
                Action::Drop | Action::Merge { .. } => self.waits = Some(neighbour.event),
            }
        }
    }

    /// The first measure that says near.
    fn nearest(&mut self, rules: &Rules, other: &Body) -> Option<(Measure, f64)> {
        rules.measures.iter().find_map(|rule| match near::compare(&self.own.body, other, rule, &mut self.budget) {
            Answer::Near(value) => Some((rule.measure, value)),
            Answer::Apart | Answer::Incomparable | Answer::OverBudget => None,
        })
    }
}
