//! What a store remembers of redeliveries beside the books: how long after their events they came, and in which fields
//! some of them differed. Plain counters, committed like those of the books; no law holds between them.

use std::collections::BTreeMap;
use std::time::Duration;

/// What the names of counters of lags begin with; the most seconds of the lag follow.
const LAG_PREFIX: &str = "lag:";
/// What the names of counters of fields begin with; the field follows.
const DIFFERS_PREFIX: &str = "differs:";
/// The counter of duplicates that were compared with their events.
const COMPARED: &str = "compared";

macro_rules! bounds {
    ($($seconds:literal),+ $(,)?) => {
        /// The most seconds of each lag but the last, which has no end.
        const BOUNDS: &[u64] = &[$($seconds),+];
        const NAMES: &[&str] = &[$(concat!("lag:", $seconds)),+, "lag:more"];
    };
}

// Seconds, minutes, hours and days, fine enough to choose a window by.
bounds!(
    1, 5, 10, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 259_200,
    345_600, 432_000, 518_400, 604_800, 864_000, 1_209_600, 1_814_400, 2_592_000, 5_184_000, 7_776_000
);

/// How long after its event a redelivery came, coarsely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag(usize);

impl Lag {
    /// The lag of a redelivery that came so long after its event.
    pub fn of(duration: Duration) -> Lag {
        Lag(BOUNDS.partition_point(|&bound| Duration::from_secs(bound) < duration))
    }

    /// The name of its counter.
    pub(crate) fn name(self) -> &'static str {
        NAMES[self.0]
    }

    /// The most seconds of each, for scripts.
    pub(crate) fn bounds() -> &'static [u64] {
        BOUNDS
    }
}

/// What is known of a source's redeliveries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// How many came at most so long after their events; [`Duration::MAX`] for those beyond all bounds.
    pub lags: BTreeMap<Duration, u64>,
    /// How many that differ outside their identity were compared with their events. A sample.
    pub compared: u64,
    /// In how many of those each field differed; `other` for those beyond [`FIELDS_MAX`].
    pub differs: BTreeMap<String, u64>,
}

/// Fields of a source that are counted by name.
pub const FIELDS_MAX: usize = 32;
/// Bytes of a name that is counted.
pub const FIELD_BYTES_MAX: usize = 128;
/// Stands for fields that are not counted by name.
pub const OTHER_FIELDS: &str = "other";

impl Traffic {
    /// Takes a counter of a store; false if it is none of these.
    pub(crate) fn take(&mut self, name: &str, value: u64) -> bool {
        if name == COMPARED {
            self.compared += value;
        } else if let Some(field) = name.strip_prefix(DIFFERS_PREFIX) {
            *self.differs.entry(field.to_owned()).or_default() += value;
        } else if let Some(bound) = name.strip_prefix(LAG_PREFIX) {
            // Bounds of another release are bounds too.
            let bound = bound.parse().map_or(Duration::MAX, Duration::from_secs);
            *self.lags.entry(bound).or_default() += value;
        } else {
            return false;
        }
        true
    }

    /// Adds what another store remembers.
    pub(crate) fn add(&mut self, other: &Traffic) {
        for (&bound, count) in &other.lags {
            *self.lags.entry(bound).or_default() += count;
        }
        self.compared += other.compared;
        for (field, count) in &other.differs {
            *self.differs.entry(field.clone()).or_default() += count;
        }
    }
}

/// The counters of a duplicate that was compared with its event and differs from it in these fields.
pub(super) fn compared(fields: Vec<String>) -> impl Iterator<Item = String> {
    std::iter::once(COMPARED.to_owned()).chain(fields.into_iter().map(|field| format!("{DIFFERS_PREFIX}{field}")))
}

#[cfg(test)]
mod tests {
    use super::{BOUNDS, Lag, NAMES, Traffic, compared};
    use std::time::Duration;

    #[test]
    fn a_lag_is_counted_under_its_bound_and_read_back() {
        assert!(BOUNDS.is_sorted() && NAMES.len() == BOUNDS.len() + 1);
        let mut traffic = Traffic::default();
        for (millis, bound) in [(0, 1), (1_000, 1), (1_001, 5), (3_600_000, 3_600), (3_600_001, 7_200)] {
            let name = Lag::of(Duration::from_millis(millis)).name();
            assert_eq!(name, format!("lag:{bound}"), "{millis}");
            assert!(traffic.take(name, 1));
        }
        assert!(traffic.take(Lag::of(Duration::from_hours(24 * 365)).name(), 2));
        assert_eq!(traffic.lags[&Duration::from_secs(1)], 2);
        assert_eq!(traffic.lags[&Duration::MAX], 2);
    }

    #[test]
    fn fields_are_counted_beside_the_number_of_comparisons() {
        let mut traffic = Traffic::default();
        for name in compared(vec!["/properties/a".to_owned(), "other".to_owned()]) {
            assert!(traffic.take(&name, 1), "{name}");
        }
        assert!(!traffic.take("received", 1));
        assert_eq!((traffic.compared, traffic.differs.len()), (1, 2));
        let mut both = traffic.clone();
        both.add(&traffic);
        assert_eq!((both.compared, both.differs["/properties/a"]), (2, 2));
    }
}
