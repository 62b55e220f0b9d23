//! What a gateway remembers by itself: done events that it saw lately, and events that it accepted and waits for.
//!
//! Both are bounded. What does not fit is forgotten; the store is asked then.

use super::entry::{Digest, Entry};
use crate::clock::Timestamp;
use crate::event::{EventId, Outcome};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Parts that are locked one by one.
const SHARDS: usize = 16;
/// Events that are waited for, in each of two generations.
const EXPECTED_MAX: usize = 50_000;
/// How long a generation of them lasts. What takes longer than two is not waited for.
const EXPECTED_FOR: Duration = Duration::from_mins(5);

/// Entries that were used lately. Half of them at least are the latest ones.
pub(super) struct Recent {
    shards: Vec<Mutex<Generations<Digest, Entry>>>,
    shard_max: usize,
}

struct Generations<K, V> {
    current: HashMap<K, V>,
    previous: HashMap<K, V>,
}

impl<K, V> Default for Generations<K, V> {
    fn default() -> Self {
        Generations { current: HashMap::new(), previous: HashMap::new() }
    }
}

impl<K, V> Generations<K, V> {
    fn rotate(&mut self) {
        self.previous = std::mem::take(&mut self.current);
    }
}

impl Recent {
    /// At most `entries` of them.
    pub(super) fn new(entries: usize) -> Recent {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Recent { shards, shard_max: entries / SHARDS / 2 }
    }

    fn shard(&self, digest: &Digest) -> &Mutex<Generations<Digest, Entry>> {
        &self.shards[usize::from(digest[0]) % SHARDS]
    }

    pub(super) fn get(&self, digest: &Digest) -> Option<Entry> {
        let mut shard = self.shard(digest).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = shard.current.get(digest) {
            return Some(*entry);
        }
        // What is used stays.
        let entry = shard.previous.remove(digest)?;
        self.put(&mut shard, *digest, entry);
        Some(entry)
    }

    pub(super) fn insert(&self, digest: Digest, entry: Entry) {
        let mut shard = self.shard(&digest).lock().unwrap_or_else(PoisonError::into_inner);
        shard.previous.remove(&digest);
        self.put(&mut shard, digest, entry);
    }

    fn put(&self, shard: &mut Generations<Digest, Entry>, digest: Digest, entry: Entry) {
        if self.shard_max == 0 {
            return;
        }
        if shard.current.len() >= self.shard_max {
            shard.rotate();
        }
        shard.current.insert(digest, entry);
    }

    pub(super) fn clear(&self) {
        for shard in &self.shards {
            *shard.lock().unwrap_or_else(PoisonError::into_inner) = Generations::default();
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        let count = |shard: &Mutex<Generations<Digest, Entry>>| {
            let shard = shard.lock().unwrap();
            shard.current.len() + shard.previous.len()
        };
        self.shards.iter().map(count).sum()
    }
}

/// An event with one sink that was given to the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) digest: Digest,
    pub(super) content: [u8; 32],
    pub(super) witness: [u8; 8],
}

impl Expected {
    fn entry(self, id: EventId, outcome: Outcome) -> (Digest, Entry) {
        (self.digest, Entry { id, outcome, content: self.content, witness: self.witness })
    }
}

struct Awaited {
    event: Expected,
    /// Whether the store accepted it under its own key: else it is known under another.
    accepted: bool,
    /// What became of it; the worker may be faster than the answer to its sender.
    done: Option<Outcome>,
}

/// Events that are on their way to their one sink. When it is served, they are done.
#[derive(Default)]
pub(super) struct Pending(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    events: Generations<EventId, Awaited>,
    began: Timestamp,
}

impl Pending {
    /// Before the store is asked.
    pub(super) fn expect(&self, id: EventId, event: Expected, now: Timestamp) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now.since(waiting.began) >= EXPECTED_FOR {
            waiting.began = now;
            waiting.events.rotate();
        }
        // The oldest are served first: when there is no room, it is the latest that are not waited for.
        if waiting.events.current.len() < EXPECTED_MAX {
            waiting.events.current.insert(id, Awaited { event, accepted: false, done: None });
        }
    }

    /// The store accepted it; what is to be remembered if it is done already.
    pub(super) fn accepted(&self, id: EventId) -> Option<(Digest, Entry)> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let awaited = waiting.find(id)?;
        awaited.accepted = true;
        let outcome = awaited.done?;
        Some(waiting.remove(id)?.event.entry(id, outcome))
    }

    pub(super) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Waiting::default();
    }

    /// The store did not accept it.
    pub(super) fn declined(&self, id: EventId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Its sink is served; what is to be remembered.
    pub(super) fn done(&self, id: EventId, outcome: Outcome) -> Option<(Digest, Entry)> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let awaited = waiting.find(id)?;
        awaited.done = Some(outcome);
        if !awaited.accepted {
            return None;
        }
        Some(waiting.remove(id)?.event.entry(id, outcome))
    }
}

impl Waiting {
    fn find(&mut self, id: EventId) -> Option<&mut Awaited> {
        let Generations { current, previous } = &mut self.events;
        current.get_mut(&id).or_else(|| previous.get_mut(&id))
    }

    fn remove(&mut self, id: EventId) -> Option<Awaited> {
        self.events.current.remove(&id).or_else(|| self.events.previous.remove(&id))
    }
}

#[cfg(test)]
mod tests {
    use super::{EXPECTED_FOR, Expected, Pending, Recent};
    use crate::cache::entry::{Digest, Entry};
    use crate::clock::Timestamp;
    use crate::event::{Ids, Outcome};
    use sha2::Digest as _;

    fn digest(number: u32) -> Digest {
        sha2::Sha256::digest(number.to_be_bytes()).into()
    }

    fn entry() -> Entry {
        let id = Ids::new().next(Timestamp::from_millis(1));
        Entry { id, outcome: Outcome::Applied, content: [1; 32], witness: [0; 8] }
    }

    #[test]
    fn recent_entries_are_bounded_and_those_in_use_stay() {
        let recent = Recent::new(1_600);
        let used = digest(0);
        recent.insert(used, entry());
        for number in 1..50_000 {
            recent.insert(digest(number), entry());
            assert!(recent.get(&used).is_some(), "{number}");
        }
        assert!((800..=1_600).contains(&recent.len()), "{}", recent.len());
        assert!(recent.get(&digest(49_999)).is_some());
        assert!(recent.get(&digest(1)).is_none());
        let none = Recent::new(0);
        none.insert(used, entry());
        assert!(none.get(&used).is_none());
    }

    #[test]
    fn what_was_accepted_and_served_is_remembered_in_either_order() {
        let (pending, ids, now) = (Pending::default(), Ids::new(), Timestamp::from_millis(1_000_000_000));
        let event = Expected { digest: [5; 32], content: [6; 32], witness: [7; 8] };
        let [first, second, third, fourth] = [(); 4].map(|()| ids.next(now));
        for id in [first, second, third, fourth] {
            pending.expect(id, event, now);
        }
        assert_eq!(pending.accepted(first), None);
        let expected = Entry { id: first, outcome: Outcome::Stale, content: [6; 32], witness: [7; 8] };
        assert_eq!(pending.done(first, Outcome::Stale), Some(([5; 32], expected)));
        assert_eq!(pending.done(first, Outcome::Stale), None);
        assert_eq!(pending.done(second, Outcome::Applied), None, "its answer is still on its way");
        assert!(pending.accepted(second).is_some());
        pending.declined(third);
        assert_eq!(pending.done(third, Outcome::Applied), None, "it contradicted another");
        for minutes in 1..3 {
            pending.expect(ids.next(now), event, now.plus(EXPECTED_FOR * minutes));
        }
        assert_eq!(pending.accepted(fourth), None, "it took too long");
        assert_eq!(pending.done(fourth, Outcome::Applied), None);
    }
}
