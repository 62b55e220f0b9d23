//! When to try again: a pure function of the attempt and a seed, and a circuit breaker as a pure state machine.

use crate::clock::Timestamp;
use std::time::Duration;

/// How often and how long a sink is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The longest wait after the first attempt; doubled after each.
    pub base: Duration,
    /// No wait is longer.
    pub cap: Duration,
    /// Answers of the sink, after so many of which the event is dead.
    pub attempts: u32,
    /// How long after its arrival an event is given up, whatever the reasons.
    pub give_up_after: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Retry {
            base: Duration::from_secs(2),
            cap: Duration::from_mins(1),
            attempts: 6,
            give_up_after: Duration::from_hours(7 * 24),
        }
    }
}

impl Retry {
    /// How long to wait after the `attempt`-th failure, from 1: anything between nothing and the doubled base, up to
    /// the cap, each as likely. Waiting a full interval at least would send all waiters at the same moment.
    pub fn delay(&self, attempt: u32, seed: u64) -> Duration {
        let doubled = self.base.saturating_mul(2u32.saturating_pow(attempt.saturating_sub(1)));
        let longest = doubled.min(self.cap).as_millis();
        let share = u128::from(mix(seed.wrapping_add(u64::from(attempt).wrapping_mul(0x9e37_79b9_7f4a_7c15))));
        Duration::from_millis(u64::try_from(((longest + 1) * share) >> 64).unwrap_or(u64::MAX))
    }
}

/// Spreads the bits of a number over all of it (the finaliser of splitmix64).
fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Keeps a sink that cannot be reached from being called in vain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breaker {
    /// Calls that failed since the last that did not.
    failures: u32,
    /// No call before this.
    open_until: Timestamp,
}

/// So many failures in a row open the breaker.
const FAILURES_MAX: u32 = 3;

/// What a breaker allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// Calls as usual.
    Free,
    /// One small call, to see.
    Probe,
    /// Nothing before this time.
    Closed(Timestamp),
}

impl Breaker {
    /// What may be done now.
    pub fn passage(&self, now: Timestamp) -> Passage {
        match (self.failures, self.open_until) {
            (..FAILURES_MAX, _) => Passage::Free,
            (_, until) if now < until => Passage::Closed(until),
            _ => Passage::Probe,
        }
    }

    /// The sink has answered.
    pub fn answered(&mut self) {
        *self = Breaker::default();
    }

    /// The sink could not be reached.
    pub fn failed(&mut self, retry: &Retry, seed: u64, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= FAILURES_MAX {
            // At least a little: jitter may be nothing, and a probe in a tight loop helps nobody.
            let wait = retry.delay(self.failures - FAILURES_MAX + 1, seed).max(Duration::from_millis(100));
            self.open_until = now.plus(wait);
        }
    }

    /// Whether calls are held back.
    pub fn is_open(&self) -> bool {
        self.failures >= FAILURES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::{Breaker, FAILURES_MAX, Passage, Retry};
    use crate::clock::Timestamp;
    use std::time::Duration;

    #[test]
    fn delays_are_spread_evenly_from_nothing_to_the_cap() {
        let retry = Retry::default();
        for (attempt, longest_ms) in [(1, 2_000), (2, 4_000), (5, 32_000), (6, 60_000), (40, 60_000)] {
            let mut tenths = [0u32; 10];
            for seed in 0..20_000u64 {
                let delay = retry.delay(attempt, seed * 7_919).as_millis();
                assert!(delay <= longest_ms, "{delay} ms after attempt {attempt}");
                tenths[usize::try_from(delay * 10 / (longest_ms + 1)).unwrap()] += 1;
            }
            assert!(tenths.iter().all(|&count| (1_800..2_200).contains(&count)), "attempt {attempt}: {tenths:?}");
        }
    }

    #[test]
    fn the_same_attempt_and_seed_wait_equally_long() {
        let retry = Retry::default();
        assert_eq!(retry.delay(3, 17), retry.delay(3, 17));
        assert_ne!(retry.delay(3, 17), retry.delay(4, 17));
        let none = Retry { base: Duration::ZERO, ..retry };
        assert_eq!(none.delay(3, 17), Duration::ZERO);
    }

    #[test]
    fn a_breaker_opens_probes_and_closes() {
        let (retry, mut breaker) = (Retry::default(), Breaker::default());
        let now = Timestamp::from_millis(1_000_000);
        for _ in 1..FAILURES_MAX {
            breaker.failed(&retry, 1, now);
            assert_eq!(breaker.passage(now), Passage::Free);
        }
        breaker.failed(&retry, 1, now);
        let Passage::Closed(until) = breaker.passage(now) else { panic!("open: {breaker:?}") };
        assert!(until > now);
        assert_eq!(breaker.passage(until), Passage::Probe);
        breaker.failed(&retry, 2, until);
        assert!(matches!(breaker.passage(until), Passage::Closed(_)));
        breaker.answered();
        assert_eq!(breaker.passage(until), Passage::Free);
    }
}
