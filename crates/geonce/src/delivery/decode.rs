//! From a leased record to what a sink is given. A payload that makes the decoder panic is that event's death, nobody else's.

use crate::event::{Cause, Class};
use crate::sink::Outgoing;
use crate::store::Leased;
use geonce_key::policy::Field;
use geonce_key::{Input, Policy, Reader};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Decodes for one sink.
pub(super) struct Decoder<'a> {
    policies: &'a HashMap<Arc<str>, Policy>,
    entity: Option<&'a [Field]>,
    readers: HashMap<Arc<str>, Reader>,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(policies: &'a HashMap<Arc<str>, Policy>, entity: Option<&'a [Field]>) -> Decoder<'a> {
        Decoder { policies, entity, readers: HashMap::new() }
    }

    /// What the sink is given, or why it cannot be.
    pub(super) fn decode(&mut self, leased: &Leased) -> Result<Outgoing, Cause> {
        let attempt = catch_unwind(AssertUnwindSafe(|| self.read(leased)));
        attempt.unwrap_or_else(|_| {
            // Whatever the reader holds now, it is not to be relied on.
            self.readers.remove(&leased.source);
            Err(Cause::new(Class::Internal, "panic", "reading the payload failed in a way that is our fault"))
        })
    }

    fn read(&mut self, leased: &Leased) -> Result<Outgoing, Cause> {
        let refused = |error: geonce_key::Error| Cause::from(&error);
        let input = Input { form: leased.form, bytes: &leased.payload, crs: leased.crs };
        let feature = self.reader(&leased.source)?.read(input).map_err(refused)?;
        Ok(Outgoing {
            event: leased.lease.event,
            key: leased.key,
            origin: leased.origin.map(|origin| origin.key),
            source: Arc::clone(&leased.source),
            received: leased.received,
            version: feature.version.clone(),
            entity: feature.entity,
            content: leased.content,
            feature,
            form: leased.form,
            payload: leased.payload.clone(),
        })
    }

    fn reader(&mut self, source: &Arc<str>) -> Result<&mut Reader, Cause> {
        if !self.readers.contains_key(source) {
            let Some(policy) = self.policies.get(source) else {
                let message = format!("the configuration has no source {source} any more");
                return Err(Cause::new(Class::Schema, "source_unknown", message));
            };
            let refused = |error: geonce_key::Error| Cause::from(&error);
            let reader = Reader::new(policy, self.entity).map_err(refused)?;
            self.readers.insert(Arc::clone(source), reader);
        }
        self.readers.get_mut(source).ok_or_else(|| Cause::new(Class::Internal, "internal", "a reader is missing"))
    }
}
