//! In which fields duplicates differ from their events outside the identity: some are compared, after their senders were
//! answered, and the names of the fields are counted.
//!
//! At most one in [`PAUSE`] for each source, so that it costs nothing that could be noticed. Nothing depends on it.

use super::Source;
use crate::clock::Timestamp;
use crate::event::EventId;
use crate::store::{
    Counted, FIELD_BYTES_MAX, FIELDS_MAX, Filter, ListRequest, NewEvent, OTHER_FIELDS, Record, Store, Verdict,
};
use bytes::Bytes;
use geonce_key::explain::{ReasonCode, Side, explain};
use geonce_key::{Form, Input, Policy};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// The time between two comparisons of a source.
const PAUSE: Duration = Duration::from_secs(1);
/// Features of a request that may be compared: the first ones.
pub(super) const SAMPLED_MAX: usize = 16;

/// What a source knows of its drifting duplicates.
#[derive(Default)]
pub(super) struct Drift {
    /// When the next one may be compared, in milliseconds.
    due: AtomicI64,
    /// Fields that are counted by name; none before the store was asked.
    known: tokio::sync::Mutex<Option<BTreeSet<String>>>,
}

/// A payload as it came.
pub(super) struct Sample {
    payload: Bytes,
    form: Form,
    crs: Option<u32>,
}

impl Sample {
    pub(super) fn of(event: &NewEvent) -> Sample {
        Sample { payload: event.payload.clone(), form: event.form, crs: event.crs }
    }

    fn input(&self) -> Input<'_> {
        Input { form: self.form, bytes: &self.payload, crs: self.crs }
    }
}

impl Drift {
    /// Whether one may be compared now.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.due.load(Ordering::Relaxed) <= now.millis()
    }

    /// The same, for one caller only.
    fn take_turn(&self, now: Timestamp) -> bool {
        let (due, next) = (self.due.load(Ordering::Relaxed), now.plus(PAUSE).millis());
        due <= now.millis() && self.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// The names under which fields are counted. A sender cannot make them grow for ever: those of the store come first.
    async fn names(&self, store: &dyn Store, source: &str, fields: BTreeSet<String>) -> Option<Vec<String>> {
        let mut known = self.known.lock().await;
        if known.is_none() {
            let traffic = store.status().await.ok()?.traffic.remove(source).unwrap_or_default();
            *known = Some(traffic.differs.into_keys().collect());
        }
        let known = known.get_or_insert_default();
        let mut names = BTreeSet::new();
        for field in fields {
            let fits = field.len() <= FIELD_BYTES_MAX && !field.chars().any(char::is_control);
            if fits && (known.contains(&field) || known.len() < FIELDS_MAX) {
                known.insert(field.clone());
                names.insert(field);
            } else {
                names.insert(OTHER_FIELDS.to_owned());
            }
        }
        Some(names.into_iter().collect())
    }
}

/// Compares the first drifting duplicate of a request with its event, if it is time, without making anybody wait.
pub(super) fn notice(
    store: &Arc<dyn Store>,
    source: &Arc<Source>,
    samples: Vec<Sample>,
    verdicts: &[Verdict],
    now: Timestamp,
) {
    let drifting = samples.into_iter().zip(verdicts).find_map(|(sample, verdict)| match verdict {
        Verdict::Duplicate { of, drift: true, .. } => Some((sample, *of)),
        _ => None,
    });
    if let Some((sample, of)) = drifting
        && source.drift.take_turn(now)
    {
        tokio::spawn(compare(Arc::clone(store), Arc::clone(source), sample, of));
    }
}

async fn compare(store: Arc<dyn Store>, source: Arc<Source>, sample: Sample, of: EventId) -> Option<()> {
    let filter = Filter { id: Some(of), ..Filter::default() };
    let request = ListRequest { filter, before: None, limit: 1, payloads: true };
    let Record { payload, form, crs, .. } = store.list(request).await.ok()?.pop()?;
    let first = Sample { payload: payload?, form, crs };
    let policy = Arc::clone(&source);
    // A large payload would hold up requests.
    let compared = tokio::task::spawn_blocking(move || fields(&policy.policy, &first, &sample));
    let fields = source.drift.names(&*store, &source.name, compared.await.ok()??).await?;
    store.count(vec![Counted::Compared { source: Arc::clone(&source.name), fields }]);
    Some(())
}

/// The fields in which two payloads of one event differ; `None` where they are not one event.
fn fields(policy: &Policy, first: &Sample, second: &Sample) -> Option<BTreeSet<String>> {
    let side = |sample| Side { input: Sample::input(sample), policy, delivery: None };
    let explanation = explain(&side(first), &side(second)).ok()?;
    let outside = explanation.outside.iter().filter(|reason| reason.code == ReasonCode::OutsideField);
    explanation.same.then(|| outside.map(|reason| field(&reason.pointer)).collect())
}

/// The field that a pointer is in: elements of arrays are none of their own.
fn field(pointer: &str) -> String {
    let is_element = |token: &str| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit());
    let mut tokens = pointer.split('/').take_while(|token| !is_element(token));
    let mut field = tokens.next().unwrap_or_default().to_owned();
    for token in tokens {
        field.push('/');
        field.push_str(token);
    }
    field
}

#[cfg(test)]
mod tests {
    use super::{Drift, PAUSE, field};
    use crate::clock::Timestamp;
    use crate::store::{self, Access, FIELDS_MAX, OTHER_FIELDS, Options};
    use std::collections::BTreeSet;

    #[test]
    fn elements_of_arrays_are_one_field() {
        assert_eq!(field("/properties/tags/0/name"), "/properties/tags");
        assert_eq!(field("/properties/a~1b"), "/properties/a~1b");
        assert_eq!(field("/properties/level2"), "/properties/level2");
    }

    #[test]
    fn one_is_compared_in_a_second() {
        let drift = Drift::default();
        let start = Timestamp::from_millis(1_794_700_800_000);
        assert!(drift.is_due(start) && drift.take_turn(start));
        assert!(!drift.is_due(start) && !drift.take_turn(start));
        assert!(!drift.take_turn(start.plus(PAUSE / 2)));
        assert!(drift.take_turn(start.plus(PAUSE)));
    }

    #[tokio::test]
    async fn a_sender_cannot_make_the_names_grow_for_ever() {
        let store = store::open("sqlite::memory:", &Options::default(), Access::Gateway, "".as_ref()).unwrap();
        let drift = Drift::default();
        let one = |name: String| BTreeSet::from([name]);
        for n in 0..FIELDS_MAX {
            let name = format!("/properties/{n:04}x");
            assert_eq!(drift.names(&*store, "a", one(name.clone())).await, Some(vec![name]));
        }
        for name in ["/properties/one_more".to_owned(), "/a\u{0}".to_owned(), format!("/{}", "x".repeat(500))] {
            assert_eq!(drift.names(&*store, "a", one(name)).await, Some(vec![OTHER_FIELDS.to_owned()]));
        }
        let known = "/properties/0007x".to_owned();
        assert_eq!(drift.names(&*store, "a", one(known.clone())).await, Some(vec![known]));
    }
}
