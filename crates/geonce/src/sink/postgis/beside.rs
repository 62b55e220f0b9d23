//! Whether the store is in the sink's database. If so a batch is settled in the transaction that writes its rows, on the
//! sink's connection: should that once lead elsewhere, rows and proofs are where they belong, and nothing is settled.

use super::PostGis;
use crate::clock::Stopwatch;
use crate::error::Kind;
use crate::postgres::{Session, Tries, Trouble};
use crate::sink::{Delivered, Isolation, Settling, Written};
use crate::store::{Joint, Settled, Settlement};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long it is believed that the store is elsewhere. Asking takes a few round trips.
const APART_FOR: Duration = Duration::from_mins(5);

/// What is known of a store.
struct Known {
    joint: Joint,
    beside: bool,
    since: Stopwatch,
}

/// What is known of the store, if anything.
#[derive(Default)]
pub(super) struct Beside(Mutex<Option<Known>>);

impl Beside {
    fn known(&self, joint: &Joint) -> Option<bool> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.as_ref().filter(|known| known.joint.is(joint))?;
        (known.beside || known.since.elapsed() < APART_FOR).then_some(known.beside)
    }

    fn know(&self, joint: &Joint, beside: bool) {
        let known = Known { joint: joint.clone(), beside, since: Stopwatch::start() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
    }

    fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl PostGis {
    /// Whether what is written here may be settled here.
    pub(super) async fn may_settle(&self, joint: &Joint) -> bool {
        // At a stricter level a settlement fails wherever a duplicate is counted meanwhile.
        if self.settings.isolation != Isolation::ReadCommitted {
            return false;
        }
        if let Some(known) = self.beside.known(joint) {
            return known;
        }
        let mut tries = Tries::new();
        let asked = loop {
            match self.ask(joint).await {
                Ok(beside) => break Ok(beside),
                Err(trouble) => {
                    if let Err(trouble) = tries.again(trouble).await {
                        break Err(trouble);
                    }
                }
            }
        };
        let beside = asked.unwrap_or_else(|trouble| {
            let error = trouble.explain("asking whether the store is in the sink's database");
            tracing::warn!(%error, sink = self.settings.place(), "rows and settlements are committed apart");
            false
        });
        self.beside.know(joint, beside);
        beside
    }

    async fn ask(&self, joint: &Joint) -> std::result::Result<bool, Trouble> {
        let session = self.pool.begin().await?;
        let beside = joint.is_beside(&session).await;
        // It is known by now, however the transaction ends.
        let _ = session.end(Ok(())).await;
        beside
    }

    /// Ends the leases of what was written, in the transaction of `session`. Where that fails, why; the transaction is lost.
    pub(super) async fn settle_within(
        &self,
        session: &Session,
        written: Vec<Written>,
        settling: &Settling<'_>,
        repeated: bool,
    ) -> std::result::Result<(Vec<Delivered>, Vec<Settlement>), Trouble> {
        let mut settlements = Vec::with_capacity(written.len());
        let mut delivered = Delivered::only(written);
        let mut places = Vec::with_capacity(delivered.len());
        for (place, (lease, one)) in settling.leases.iter().zip(&delivered).enumerate() {
            if let Some(end) = (settling.end)(place, &one.written) {
                settlements.push(Settlement { lease: lease.clone(), end });
                places.push(place);
            }
        }
        let settled = settling.joint.settle(session, &settlements, settling.now, repeated).await?;
        for (place, settled) in places.into_iter().zip(&settled) {
            delivered[place].settled = *settled == Settled::Ok;
        }
        if settled.contains(&Settled::LeaseLost) {
            // Somebody was faster, as a rule. Or the connection has come to lead elsewhere.
            self.beside.forget();
        }
        Ok((delivered, settlements))
    }

    /// The store cannot be settled here after all.
    pub(super) fn cannot_settle(&self, joint: &Joint, trouble: Trouble) {
        let error = trouble.explain("settling where the rows are written");
        let passes = error.kind() == Kind::Unavailable;
        tracing::warn!(%error, sink = self.settings.place(), "rows and settlements are committed apart");
        if passes {
            self.beside.forget();
        } else {
            self.beside.know(joint, false);
        }
    }
}
