//! Sources that deliver something else than before: another coordinate system, other decimals, other types of geometry.
//!
//! The earlier half of what was seen is compared with the later half. A value that one of them hardly has and the other
//! has often is a change; when it happened is where the two are told apart with the fewest exceptions.

use super::seen::{DECIMALS_MAX, Seen};
use super::{Advice, EVENTS_MIN, View};
use crate::show::count;
use geonce::clock::Timestamp;
use serde_json::json;
use std::collections::BTreeMap;

/// In percent: a half hardly has a value with no more than this,
const HARDLY: usize = 1;
/// and has it often with at least this,
const OFTEN: usize = 10;
/// and at least so many times.
const OFTEN_EVENTS: usize = 5;

/// Something that can be said of each event.
struct Trait {
    code: &'static str,
    what: &'static str,
    hint: &'static str,
    of: fn(&Seen) -> Option<String>,
}

const TRAITS: [Trait; 3] = [
    Trait {
        code: "crs_changed",
        what: "coordinates came in",
        hint: "the sender changed its coordinate system: keys of before and after match only as far as the operation is exact",
        of: |seen| (seen.geometry != "null").then(|| format!("EPSG:{}", seen.crs)),
    },
    Trait {
        code: "decimals_changed",
        what: "coordinates came with",
        hint: "redeliveries with other decimals are recognised only down to the coarser of both: compare with precision",
        of: |seen| match seen.decimals? {
            DECIMALS_MAX => Some(format!("{DECIMALS_MAX} or more decimals")),
            decimals => Some(format!("{decimals} decimals")),
        },
    },
    Trait {
        code: "type_changed",
        what: "geometries were of type",
        hint: "if this was not meant, accept = { types = [...] } refuses it; if it was, check the layers it goes to",
        of: |seen| Some(seen.geometry.to_owned()),
    },
];

pub(super) fn advise(view: &View<'_>) -> Vec<Advice> {
    TRAITS.iter().filter_map(|one| changed(view, one)).collect()
}

fn changed(view: &View<'_>, one: &Trait) -> Option<Advice> {
    let values: Vec<(Timestamp, String)> =
        view.seen.iter().filter_map(|seen| Some((seen.received, (one.of)(seen)?))).collect();
    if values.len() < 2 * EVENTS_MIN {
        return None;
    }
    let halves = values.split_at(values.len() / 2);
    let (before, after) = (common(halves.0), common(halves.1));
    // The most frequent new value, or the most frequent one that is gone.
    let appeared = after.iter().find(|value| is_often(value, halves.1) && is_rare(value, halves.0));
    let vanished = before.iter().find(|value| is_often(value, halves.0) && is_rare(value, halves.1));
    let (value, since_it) = match (appeared, vanished) {
        (Some(value), _) => (value, true),
        (None, Some(value)) => (value, false),
        (None, None) => return None,
    };
    let place = boundary(values.iter().map(|(_, found)| (found == value) == since_it));
    let at = values.get(place)?.0;
    let typical = |values: &[(Timestamp, String)]| common(values).into_iter().next().unwrap_or_default();
    let (earlier, later) = (typical(&values[..place]), typical(&values[place..]));
    let message = format!(
        "{} {earlier} until {at}, and {later} since then ({} and {} events)",
        one.what,
        count(place as u64),
        count((values.len() - place) as u64)
    );
    let figures = json!({
        "before": earlier, "after": later, "since": at.to_string(), "events_before": place, "events_after": values.len() - place,
    });
    Some(view.advice(one.code, message, one.hint, figures))
}

/// The different values, the most frequent first.
fn common(values: &[(Timestamp, String)]) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, value) in values {
        *counts.entry(value).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    counts.into_iter().map(|(value, _)| value.to_owned()).collect()
}

fn number_of(value: &str, values: &[(Timestamp, String)]) -> usize {
    values.iter().filter(|(_, found)| found == value).count()
}

fn is_rare(value: &str, values: &[(Timestamp, String)]) -> bool {
    number_of(value, values) * 100 <= values.len() * HARDLY
}

fn is_often(value: &str, values: &[(Timestamp, String)]) -> bool {
    let number = number_of(value, values);
    number >= OFTEN_EVENTS && number * 100 >= values.len() * OFTEN
}

/// The place from which on most are true, and before which most are not: where it is wrong least often.
fn boundary(after: impl Iterator<Item = bool>) -> usize {
    // The balance of those that are true so far: where it is lowest, the true ones begin.
    let (mut balance, mut lowest, mut place) = (0_i64, 0_i64, 0);
    for (index, is_after) in after.enumerate() {
        balance += if is_after { 1 } else { -1 };
        if balance <= lowest {
            (lowest, place) = (balance, index + 1);
        }
    }
    place
}

#[cfg(test)]
mod tests {
    use super::boundary;

    #[test]
    fn the_boundary_is_where_the_fewest_are_on_the_wrong_side() {
        let of = |text: &str| boundary(text.chars().map(|c| c == 'x'));
        assert_eq!(of("....xxxx"), 4);
        assert_eq!(of("..x...xxxx.xx"), 6);
        assert_eq!(of("xxxx"), 0);
    }
}
