//! Announcements: events that only say where changes can be read. Where a source fetches those, an announcement goes to a
//! sink that does so instead of the source's own, and the source's policy, which is about features, does not concern it.

use super::preset::changes::Announcement;
use super::read::{self, Known};
use super::{Arrival, Fault, Identify, Intake, Receipt, Refused, Source, delivery_id};
use crate::event::Class;
use crate::store::Route;
use bytes::Bytes;
use geonce_key::policy::Accept;
use geonce_key::{Delivery, Input, Keyer, Policy};
use std::sync::Arc;

/// What becomes of the announcements of a source.
pub struct Announced {
    /// Where they go.
    pub routes: Arc<[Route]>,
    /// How they are keyed and read.
    pub policy: Policy,
}

impl Announced {
    /// Announcements of a source with this policy go to `sink`. Their keys are those they have where nothing is fetched.
    pub fn new(policy: &Policy, sink: &str) -> Announced {
        let policy = Policy {
            scope: policy.scope.clone(),
            key_secret: policy.key_secret.clone(),
            accept: Accept { types: Some(vec!["null".to_owned()]), ..Accept::default() },
            limits: policy.limits.clone(),
            ..Policy::default()
        };
        Announced { routes: [Route::to(sink)].into(), policy }
    }

    /// What an announcement is known by.
    pub(super) fn key(
        &self,
        input: Input<'_>,
        delivery: Option<Delivery<'_>>,
        identify: Identify,
    ) -> Result<Known, Fault> {
        let fault = |error: geonce_key::Error| Fault::from(&error);
        let mut keyer = Keyer::new(&self.policy).map_err(fault)?;
        let keyed = keyer.key(input).map_err(fault)?;
        let content = *keyer.content(input, &keyed).map_err(fault)?.digest();
        let (key, aliases, spatial) = match delivery {
            Some(delivery) => {
                let key = delivery.fingerprint(&self.policy.scope, self.policy.key_secret.as_ref()).map_err(fault)?;
                (key, Vec::new(), [keyed.fingerprint].into_iter().chain(keyed.aliases).collect())
            }
            None if identify == Identify::Delivery => return Err(delivery_id::missing()),
            None => (keyed.fingerprint, keyed.aliases, Vec::new()),
        };
        Ok(Known { key, aliases, spatial, content, warnings: keyed.warnings, order: None, invalid: None })
    }
}

impl Intake {
    /// Records the changes that an answer to an announcement holds, as if each had been sent. What cannot be used is kept as
    /// dead, because nobody is told. What this returns is durable.
    pub(crate) async fn receive_changes(
        &self,
        source: &Arc<Source>,
        announcement: Announcement,
        answer: Bytes,
    ) -> Result<Receipt, Refused> {
        let (now, of) = (self.clock.now(), Arc::clone(source));
        let reading = tokio::task::spawn_blocking(move || {
            read::read_changes(&of, &Arrival { body: answer, ..Arrival::default() }, &announcement, now)
        });
        let read = reading.await;
        let broken = |_| Err(Fault::new(Class::Internal, "internal", "reading the answer failed"));
        let read = read.unwrap_or_else(broken).map_err(Refused::Payload)?;
        self.record(source, read, now).await
    }
}
