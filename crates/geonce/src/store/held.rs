//! The rules of held work that every store follows, as pure functions: what waits for what, and who is next.
//! `docs/decisions/011-held-work.md` says why they are as they are.

use super::{NewEvent, Route};
use crate::clock::Timestamp;
use crate::event::Outcome;
use std::sync::Arc;

/// The sink that the work of a route waits for at first: one that the event goes to as well.
pub(super) fn waits_for<'r>(route: &'r Route, routes: &[Route]) -> Option<&'r Arc<str>> {
    let after = route.after.as_ref().filter(|after| **after != route.sink)?;
    routes.iter().any(|other| other.sink == *after).then_some(after)
}

/// The routes of an event: the same sink twice is the same sink.
pub(super) fn distinct(routes: &[Route]) -> impl Iterator<Item = &Route> {
    let first = |place: usize| !routes[..place].iter().any(|earlier| earlier.sink == routes[place].sink);
    routes.iter().enumerate().filter(move |(place, _)| first(*place)).map(|(_, route)| route)
}

/// Where an ordered event stands among those of its entity that wait: its bytes sort as they go. Events that agree in it
/// go in order of their ids.
pub(super) fn rank(event: &NewEvent, received: Timestamp) -> Option<Vec<u8>> {
    let order = event.order.as_ref()?;
    let mut rank = order.version.clone();
    rank.extend_from_slice(&(received.millis() ^ i64::MIN).to_be_bytes());
    Some(rank)
}

/// What becomes of work that waits for a sink once that is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Release {
    /// It is ready, or takes its place in the line of its entity.
    Go,
    /// There is no row to tell of: it is served with the same outcome.
    Skip,
}

/// What a served sink means to the work that waits for it.
pub(super) const fn release(outcome: Outcome) -> Release {
    match outcome {
        Outcome::Applied => Release::Go,
        Outcome::Stale | Outcome::Near | Outcome::Repaired => Release::Skip,
    }
}

#[cfg(test)]
mod tests {
    use crate::store::Order;
    use geonce_key::{Fingerprint, Version};

    #[test]
    fn the_bytes_of_versions_sort_as_versions_do() {
        let numbers =
            ["-170141183460469231731687303715884105728", "-3", "0", "17", "170141183460469231731687303715884105727"];
        let times = [
            "1969-12-31T23:59:59.5Z",
            "2026-11-15T06:00:00Z",
            "2026-11-15T06:00:00.1Z",
            "2026-11-15T06:00:00.12Z",
            "2026-11-15T06:00:01.2Z",
        ];
        let bytes = |version: Option<&Version>| Order::new(Fingerprint::default(), version).version;
        let parsed = numbers.iter().chain(&times).map(|text| bytes(Version::parse(text).as_ref()));
        let all: Vec<Vec<u8>> = std::iter::once(bytes(None)).chain(parsed).collect();
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "{all:?}");
        // What follows the version must not matter, so none is the beginning of another.
        assert!(all.iter().all(|one| all.iter().filter(|other| other.starts_with(one)).count() == 1));
    }
}
