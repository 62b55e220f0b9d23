//! Geometries that are not valid, mended on arrival: the original is recorded as dead first, then repaired on the grid. What
//! stays dead is what cannot be mended so, or was not before the store failed; a redelivery tries again.

use super::{FeatureReceipt, Intake, Source};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::event::{EventId, Outcome, State};
use crate::repair::{Choice, Choices, Plan, draft};
use crate::store::{Filter, ListRequest, Repaired, Verdict};
use geonce_key::{Fingerprint, Warning};
use std::sync::Arc;

/// A feature that was recorded as dead, or is a duplicate of one that was.
struct Broken {
    /// Its place among the features of the request.
    place: usize,
    original: EventId,
    plan: Plan,
}

impl Intake {
    /// Repairs features that were kept because their geometry is not valid, and changes their receipts.
    pub(super) async fn mend(
        &self,
        source: &Arc<Source>,
        kept: &[(EventId, Fingerprint, bool)],
        verdicts: &[Verdict],
        receipts: &mut [FeatureReceipt],
        now: Timestamp,
    ) {
        let mut broken = Vec::new();
        for (place, ((id, key, invalid), verdict)) in kept.iter().zip(verdicts).enumerate() {
            match verdict {
                _ if !invalid => {}
                Verdict::Duplicate { of, state: State::Done, outcome, drift, revived } => {
                    let (of, key, outcome, drift, revived) = (*of, *key, *outcome, *drift, *revived);
                    receipts[place] =
                        FeatureReceipt::Duplicate { of, key, state: State::Done, outcome, drift, revived };
                }
                Verdict::Accepted | Verdict::Duplicate { state: State::Dead, .. } => {
                    let original = verdict.kept_in(*id);
                    match self.plan(source, original).await {
                        Ok(Some(plan)) => broken.push(Broken { place, original, plan }),
                        Ok(None) => {}
                        Err(error) => tracing::warn!(%error, event = %original, "a geometry was not repaired"),
                    }
                }
                _ => {}
            }
        }
        if let Err(error) = self.carry_out(&broken, receipts, now).await {
            tracing::warn!(%error, events = broken.len(), "geometries were not repaired; they are kept as dead");
        }
    }

    async fn plan(&self, source: &Arc<Source>, original: EventId) -> Result<Option<Plan>> {
        let filter = Filter { id: Some(original), state: Some(State::Dead), ..Filter::default() };
        let request = ListRequest { filter, before: None, limit: 1, payloads: true };
        let Some(record) = self.store.list(request).await?.pop() else { return Ok(None) };
        let source = Arc::clone(source);
        // It may take a while of computing.
        let planned = tokio::task::spawn_blocking(move || {
            let grid = Choices::new([Choice::Grid]).ok()?;
            draft(&record, &source, &grid).ok().filter(Plan::is_ready)
        });
        Ok(planned.await.unwrap_or_default())
    }

    async fn carry_out(&self, broken: &[Broken], receipts: &mut [FeatureReceipt], now: Timestamp) -> Result<()> {
        let ids: Vec<EventId> = broken.iter().map(|_| self.ids.next(now)).collect();
        let repairs: Result<Vec<_>> = broken.iter().zip(&ids).map(|(one, id)| one.plan.repair(*id)).collect();
        if broken.is_empty() {
            return Ok(());
        }
        let answers = self.store.repair(repairs?, now).await?;
        for ((Broken { place, original, plan }, own), repaired) in broken.iter().zip(ids).zip(answers) {
            let Some(key) = plan.key else { continue };
            receipts[*place] = match repaired {
                Repaired::Done(Verdict::Accepted) => {
                    FeatureReceipt::Accepted { event: own, key, warnings: vec![warning(plan, *original)] }
                }
                Repaired::Done(Verdict::Duplicate { of, state, outcome, drift, revived }) => {
                    FeatureReceipt::Duplicate { of, key, state, outcome, drift, revived }
                }
                Repaired::Done(Verdict::Conflict { event, of }) => FeatureReceipt::Conflict { event, of, key },
                Repaired::Before { .. } => FeatureReceipt::Duplicate {
                    of: *original,
                    key,
                    state: State::Done,
                    outcome: Some(Outcome::Repaired),
                    drift: false,
                    revived: false,
                },
                Repaired::NotDead { .. } | Repaired::Unknown | Repaired::SameKey => continue,
            };
        }
        Ok(())
    }
}

fn warning(plan: &Plan, original: EventId) -> Warning {
    let message = format!("{}; it was repaired, and what came is kept as {original}", plan.cause.message);
    Warning { code: "repaired", pointer: plan.cause.pointer.clone(), message }
}
