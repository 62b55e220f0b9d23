//! Which keys Redis may hold: a filter that never says no wrongly about what this gateway wrote, read or heard of.
//!
//! Two generations take turns, each as long as the window, so that it never fills up. Until it is warm it says "maybe".

use super::entry::Digest;
use crate::clock::Timestamp;
use fastbloom::AtomicBloomFilter;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// How often it may be wrong about a key that is not there.
const FALSE_MAYBE: f64 = 0.01;
/// A generation ends early when it has so many times the keys that it was made for.
const CROWDED: usize = 2;

pub(super) struct Filter {
    generations: RwLock<[Generation; 2]>,
    keys: usize,
    window: Duration,
    warm: AtomicBool,
}

struct Generation {
    bits: AtomicBloomFilter,
    began: Timestamp,
    keys: AtomicUsize,
}

impl Generation {
    fn new(keys: usize, began: Timestamp) -> Generation {
        let bits = AtomicBloomFilter::with_false_pos(FALSE_MAYBE / 2.0).expected_items(keys);
        Generation { bits, began, keys: AtomicUsize::new(0) }
    }
}

impl Filter {
    /// For so many keys in a window.
    pub(super) fn new(keys: usize, window: Duration, now: Timestamp) -> Filter {
        let keys = keys.max(1_000);
        let generations = [Generation::new(keys, now), Generation::new(keys, now)];
        Filter { generations: RwLock::new(generations), keys, window, warm: AtomicBool::new(false) }
    }

    pub(super) fn insert(&self, digest: &Digest, now: Timestamp) {
        if self.is_over(&self.read()[0], now) {
            let mut generations = self.generations.write().unwrap_or_else(PoisonError::into_inner);
            if self.is_over(&generations[0], now) {
                generations.swap(0, 1);
                generations[0] = Generation::new(self.keys, now);
            }
        }
        let generations = self.read();
        if !generations[0].bits.insert(digest) {
            generations[0].keys.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_over(&self, generation: &Generation, now: Timestamp) -> bool {
        now.since(generation.began) >= self.window
            || generation.keys.load(Ordering::Relaxed) >= self.keys.saturating_mul(CROWDED)
    }

    /// Whether Redis may hold a key.
    pub(super) fn may_hold(&self, digest: &Digest) -> bool {
        !self.is_warm() || self.read().iter().any(|generation| generation.bits.contains(digest))
    }

    /// All that Redis holds has been inserted.
    pub(super) fn warmed(&self) {
        self.warm.store(true, Ordering::Release);
    }

    pub(super) fn is_warm(&self) -> bool {
        self.warm.load(Ordering::Acquire)
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, [Generation; 2]> {
        self.generations.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Digest, Filter};
    use crate::clock::Timestamp;
    use sha2::Digest as _;
    use std::time::Duration;

    const WINDOW: Duration = Duration::from_hours(1);

    fn digest(number: usize) -> Digest {
        sha2::Sha256::digest(number.to_be_bytes()).into()
    }

    #[test]
    fn it_says_maybe_until_it_is_warm_and_then_hardly_ever_wrongly() {
        let now = Timestamp::from_millis(1_000_000_000);
        let filter = Filter::new(10_000, WINDOW, now);
        assert!(filter.may_hold(&digest(0)));
        filter.warmed();
        assert!(!filter.may_hold(&digest(0)));
        for number in 0..10_000 {
            filter.insert(&digest(number), now);
        }
        assert!((0..10_000).all(|number| filter.may_hold(&digest(number))));
        let wrong = (10_000..30_000).filter(|&number| filter.may_hold(&digest(number))).count();
        assert!(wrong < 200, "{wrong} of 20,000");
    }

    #[test]
    fn it_remembers_for_a_window_and_never_fills_up() {
        let mut now = Timestamp::from_millis(1_000_000_000);
        let filter = Filter::new(1_000, WINDOW, now);
        filter.warmed();
        for hour in 0..20 {
            now = now.plus(WINDOW);
            for number in 0..1_000 {
                filter.insert(&digest(hour * 1_000 + number), now);
            }
            let first = hour.saturating_sub(1) * 1_000;
            assert!((first..(hour + 1) * 1_000).all(|number| filter.may_hold(&digest(number))), "the last two hours");
            let wrong = (1_000_000..1_010_000).filter(|&number| filter.may_hold(&digest(number))).count();
            assert!(wrong < 200, "{wrong} of 10,000 after {hour} hours");
        }
        // Far more than it was made for, all at once.
        for number in 0..100_000 {
            filter.insert(&digest(2_000_000 + number), now);
        }
        let wrong = (1_000_000..1_010_000).filter(|&number| filter.may_hold(&digest(number))).count();
        assert!(wrong < 2_000, "{wrong} of 10,000");
    }
}
