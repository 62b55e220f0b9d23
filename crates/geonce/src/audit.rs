//! Who changed what: every repair, replay and purge that a person asks for leaves an entry in the store, as a run of the
//! ledger `audit`. Its payload says who asked for what and when, its result what came of it.
//!
//! The entry is begun before anything is changed. One whose process was gone before the end is ended by the next, as
//! interrupted. `geonce events list --source @audit` shows them; they are forgotten with the window, as all events are.

use crate::clock::Clock;
use crate::error::{Error, Kind, Result};
use crate::event::{Outcome, State, random};
use crate::ledger::{Begun, Ledger, Run, Task};
use crate::store::{
    End, Filter, LeaseRequest, ListRequest, RESULT_BYTES_MAX, RUNS, ResultText, Settlement, Store, own_name,
};
use geonce_key::Fingerprint;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;

/// The name of the ledger; its events have the source `@audit`.
pub const LEDGER: &str = "audit";
/// The source of the entries.
pub const SOURCE: &str = "@audit";
/// An entry that is not ended after so long is of a process that is gone.
const LONGEST: Duration = Duration::from_hours(24);
/// Between accepting an entry and leasing it there is less than this.
const BEGINNING: Duration = Duration::from_mins(1);
/// Interrupted entries that one beginning ends.
const INTERRUPTED_MAX: usize = 16;

/// The trail of a store, which a gateway or a runner has opened.
pub struct Trail {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ledger: Ledger,
}

/// An entry that is being written.
pub struct Entry(Run);

impl Trail {
    /// The trail of this store.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Trail {
        let ledger = Ledger::new(Arc::clone(&store), Arc::clone(&clock), LEDGER).with_lease(LONGEST);
        Trail { store, clock, ledger }
    }

    /// Begins an entry: somebody asks for something. Nothing is to be changed if this fails.
    pub async fn begin(&self, who: &str, action: &str, asked: Value) -> Result<Entry> {
        self.end_interrupted().await?;
        let payload = json!({"action": action, "who": who, "at": self.clock.now().to_string(), "asked": asked});
        let key = Fingerprint::from_digest(Sha256::digest(random().to_be_bytes()).into(), false);
        match self.ledger.begin(&Task { key, payload: payload.to_string().into() }).await? {
            Begun::Started(run) => Ok(Entry(run)),
            _ => Err(Error::new(Kind::Internal, "writing the audit trail: an entry was there before it was made")),
        }
    }

    /// Ends what others have left.
    async fn end_interrupted(&self) -> Result<()> {
        let now = self.clock.now();
        for state in [State::Leased, State::Ready] {
            let filter = Filter { source: Some(SOURCE.to_owned()), state: Some(state), ..Filter::default() };
            let request = ListRequest { filter, before: None, limit: INTERRUPTED_MAX, payloads: false };
            for record in self.store.list(request).await? {
                // One that was accepted just now is about to be leased by whoever began it.
                if record.work.iter().any(|work| work.due > now) || now.since(record.received) < BEGINNING {
                    continue;
                }
                let request = LeaseRequest {
                    sink: RUNS.into(),
                    events_max: 1,
                    bytes_max: usize::MAX,
                    duration: LONGEST,
                    event: Some(record.id),
                    holder: own_name(),
                };
                let result = ResultText::new("{\"interrupted\":true}")?;
                for leased in self.store.lease(request, now).await? {
                    let end = End::Done(Outcome::Applied, Some(result.clone()));
                    self.store.settle(vec![Settlement { lease: leased.lease, end }], now).await?;
                }
            }
        }
        Ok(())
    }
}

impl Entry {
    /// The entry's event.
    pub fn event(&self) -> crate::event::EventId {
        self.0.event()
    }

    /// Says what came of it. What is longer than a result may be is left out.
    pub async fn end(self, result: &Value) -> Result<()> {
        let mut text = result.to_string();
        if text.len() > RESULT_BYTES_MAX {
            text = json!({"too_long": text.len()}).to_string();
        }
        self.0.done(Some(ResultText::new(text)?)).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, SOURCE, Trail};
    use crate::clock::{Clock, ManualClock, Timestamp};
    use crate::event::State;
    use crate::store::{self, Access, Filter, ListRequest, Options, Store};
    use serde_json::{Value, json};
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    async fn entries(store: &Arc<dyn Store>) -> Vec<(State, Value, Option<Value>)> {
        let filter = Filter { source: Some(SOURCE.to_owned()), ..Filter::default() };
        let request = ListRequest { filter, before: None, limit: 100, payloads: true };
        let mut found: Vec<_> = store
            .list(request)
            .await
            .unwrap()
            .into_iter()
            .map(|record| {
                let read = |bytes: &[u8]| serde_json::from_slice(bytes).unwrap();
                (record.state, read(&record.payload.unwrap()), record.result.map(|result| read(result.as_bytes())))
            })
            .collect();
        found.reverse();
        found
    }

    #[tokio::test]
    async fn an_entry_says_who_asked_for_what_and_what_came_of_it() {
        let store = store::open("sqlite::memory:", &Options::default(), Access::Runner, Path::new("")).unwrap();
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_794_700_800_000)));
        let trail = Trail::new(Arc::clone(&store), Arc::clone(&clock) as Arc<dyn Clock>);
        let first = trail.begin("ada@survey", "replay", json!({"code": "sink_timeout"})).await.unwrap();
        first.end(&json!({"replayed": 3})).await.unwrap();
        // One that nobody ends is ended by the next, once it is certain that its process is gone.
        let lost = trail.begin("ada@survey", "purge", json!({"all": true})).await.unwrap();
        drop(lost);
        let long = trail.begin("ada@survey", "repair", Value::Null).await.unwrap();
        assert_eq!(entries(&store).await[1].0, State::Leased);
        long.end(&json!({"text": "x".repeat(10_000)})).await.unwrap();
        clock.advance(LONGEST + Duration::from_secs(1));
        trail.begin("bob@survey", "replay", Value::Null).await.unwrap().end(&Value::Null).await.unwrap();
        let found = entries(&store).await;
        assert_eq!(found.len(), 4);
        assert!(found.iter().all(|(state, ..)| *state == State::Done), "{found:?}");
        let (_, payload, result) = &found[0];
        assert_eq!((&payload["who"], &payload["action"]), (&"ada@survey".into(), &"replay".into()));
        assert_eq!((&payload["asked"]["code"], result), (&"sink_timeout".into(), &Some(json!({"replayed": 3}))));
        assert_eq!(found[1].2, Some(json!({"interrupted": true})));
        assert_eq!(found[2].2, Some(json!({"too_long": 10_011})));
        assert!(store.audit().await.unwrap().is_empty());
    }
}
