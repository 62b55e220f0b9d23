//! What a cache counts since it was opened. Plain numbers, for metrics and logs; nothing depends on them.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Counters that only grow.
        #[derive(Debug, Default)]
        pub(super) struct Counters { $(pub(super) $name: Counter),+ }

        /// The counters at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts { $($(#[$doc])* pub $name: u64),+ }

        impl Counters {
            pub(super) fn read(&self) -> Counts {
                Counts { $($name: self.$name.get()),+ }
            }
        }

        impl Counts {
            /// Names and values, for metrics.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),+]
            }
        }
    };
}

counters! {
    /// Duplicates that were recognised in this process.
    recent_hits,
    /// Duplicates that were recognised by asking Redis.
    redis_hits,
    /// Keys that Redis was asked for in vain.
    misses,
    /// Keys for which the filter saved the way to Redis: they were certainly not there.
    skipped,
    /// Known keys that came with something else than before: the store decided.
    differed,
    /// Events of sources that do not use the cache.
    bypassed_intended,
    /// Keys that Redis did not answer for in time,
    bypassed_timeout,
    /// for which there was no connection to Redis, or no answer,
    bypassed_unavailable,
    /// which were not asked for because Redis had not answered lately,
    bypassed_breaker,
    /// or because too many were waiting.
    bypassed_overload,
    /// Rounds of questions to Redis; each asks for many keys.
    rounds,
    /// Entries that were written to Redis,
    written,
    /// and those that were not: too many were waiting, or Redis did not take them.
    dropped,
    /// What was found under our keys and is not ours.
    damaged,
    /// How often Redis was given up for a while.
    breaker_opened,
}

impl Counts {
    /// Keys that should have been asked for and were not.
    pub fn bypassed_by_failure(&self) -> u64 {
        self.bypassed_timeout + self.bypassed_unavailable + self.bypassed_breaker + self.bypassed_overload
    }
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, by: usize) {
        self.0.fetch_add(by as u64, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
