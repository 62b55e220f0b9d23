//! What waits for what: sinks after a sink, and sources whose events of one entity go one after the other. Refuses what
//! would wait for ever, or could not keep its order.

use super::{Reading, Settings, nearest};
use crate::failure::Failure;
use geonce_key::policy::Identity;
use std::collections::BTreeMap;

impl Reading<'_> {
    /// A sink that comes after another needs that one, in every source that it serves, and no sink waits for itself.
    pub(super) fn sinks_follow(&self, settings: &Settings) -> Result<(), Failure> {
        let known: Vec<&str> = settings.sinks.keys().map(String::as_str).collect();
        for (name, sink) in &settings.sinks {
            let Some(after) = &sink.after else { continue };
            let path = format!("sink.{name}.after");
            if !settings.sinks.contains_key(after) {
                let failure = self.refuse(&path, &format!("there is no sink {after:?}"));
                return Err(failure.hint(match nearest(after, &known) {
                    Some(near) => format!("did you mean {near:?}?"),
                    None => format!("there are: {}", known.join(", ")),
                }));
            }
            // As many steps as there are sinks lead to the end, or round in a circle.
            let next = |at: &String| settings.sinks.get(at)?.after.clone();
            let mut at = Some(after.clone());
            for _ in 0..settings.sinks.len() {
                at = at.as_ref().and_then(next);
            }
            if at.is_some() {
                return Err(self.refuse(&path, "these sinks wait for each other in a circle"));
            }
            let serves = |sinks: &[String], sink: &String| sinks.contains(sink);
            let alone = settings
                .sources
                .iter()
                .find(|(_, source)| serves(&source.sinks, name) && !serves(&source.sinks, after));
            if let Some((source, _)) = alone {
                let message = format!("the sink {name} comes after {after}, where events of {source} do not go");
                return Err(self
                    .refuse(&format!("source.{source}.sink"), &message)
                    .hint(format!("add {after:?} to its sinks, or take {name:?} away")));
            }
        }
        Ok(())
    }

    /// Events that have an order need something that names their entity, the same at every sink.
    pub(super) fn orders(&self, settings: &Settings) -> Result<(), Failure> {
        let mut by_scope: BTreeMap<&str, (&str, bool)> = BTreeMap::new();
        for (name, source) in &settings.sources {
            let path = format!("source.{name}.order");
            let (first, ordered) = *by_scope.entry(&source.policy.scope).or_insert((name, source.ordered));
            if ordered != source.ordered {
                let message = format!("the scope {:?} is {first}'s too, but the order differs", source.policy.scope);
                return Err(self.refuse(&path, &message));
            }
            if !source.ordered {
                continue;
            }
            let Identity::Fields(identity) = &source.policy.identity else {
                return Err(self
                    .refuse(&path, "nothing names the entity whose events are to be in order")
                    .hint("identity = [\"/properties/asset_id\"]"));
            };
            let differs = |sink: &&String| {
                let entity = settings.sinks.get(*sink).and_then(|sink| sink.entity.as_ref());
                entity.is_some_and(|entity| entity != identity)
            };
            if let Some(sink) = source.sinks.iter().find(differs) {
                let message = format!("the sink {sink} has other entities than the identity names");
                return Err(self
                    .refuse(&path, &message)
                    .hint(format!("take sink.{sink}.entity away: it is the identity then")));
            }
        }
        Ok(())
    }
}
