//! Which events of a sample are one event under a policy, and which of these merge or split under another. Pure.
//!
//! Events are taken one after the other, as a store takes them: one that shares its key or an alias with an earlier event is a
//! duplicate of that and claims nothing; any other claims all of its keys. So what is answered is what a gateway
//! would have done with the sample in this order. An alias that only a duplicate has joins nothing.

use geonce_key::Fingerprint;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Parts of a group that are named; the rest is counted.
pub(super) const PARTS_MAX: usize = 3;

/// For each event the first event that it is one with; `None` where it was refused.
pub(super) type Partition = Vec<Option<usize>>;

/// Divides events by their keys; the key of each comes first, then its aliases.
pub(super) fn partition<'k>(events: impl Iterator<Item = Option<&'k [Fingerprint]>>) -> Partition {
    let mut claims: HashMap<[u8; 16], usize> = HashMap::new();
    let group = |(index, keys): (usize, Option<&[Fingerprint]>)| {
        let keys = keys?;
        let known = keys.iter().find_map(|fingerprint| claims.get(&fingerprint.key()).copied());
        if known.is_none() {
            claims.extend(keys.iter().map(|fingerprint| (fingerprint.key(), index)));
        }
        Some(known.unwrap_or(index))
    };
    events.enumerate().map(group).collect()
}

/// Events that are one on one side and several on the other.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// The first event of each part, as far as they are named.
    pub(super) parts: Vec<usize>,
    /// How many parts there are.
    pub(super) part_count: usize,
    /// How many events of the sample, duplicates included.
    pub(super) events: usize,
}

/// The groups of `whole` in which there are several of `parts`, in the order of their first events. Events that either side
/// refuses do not count.
pub(super) fn divided(whole: &Partition, parts: &Partition) -> Vec<Group> {
    let mut groups: BTreeMap<usize, Group> = BTreeMap::new();
    let mut seen = HashSet::new();
    for (index, (whole, part)) in whole.iter().zip(parts).enumerate() {
        let (Some(whole), Some(part)) = (whole, part) else { continue };
        let group = groups.entry(*whole).or_insert(Group { parts: Vec::new(), part_count: 0, events: 0 });
        group.events += 1;
        if seen.insert((*whole, *part)) {
            group.part_count += 1;
            if group.parts.len() < PARTS_MAX {
                group.parts.push(index);
            }
        }
    }
    groups.into_values().filter(|group| group.part_count > 1).collect()
}

#[cfg(test)]
mod tests {
    use super::{Group, Partition, divided, partition};
    use geonce_key::Fingerprint;

    fn keys(names: &[u8]) -> Vec<Fingerprint> {
        names.iter().map(|&name| Fingerprint::from_digest([name; 32], false)).collect()
    }

    fn divide(events: &[Option<&[u8]>]) -> Partition {
        let keys: Vec<Option<Vec<Fingerprint>>> = events.iter().map(|event| event.map(keys)).collect();
        partition(keys.iter().map(Option::as_deref))
    }

    #[test]
    fn a_shared_alias_makes_events_one_and_a_duplicate_claims_nothing() {
        let found = divide(&[Some(b"a1"), Some(b"b1"), Some(b"b"), None, Some(b"a"), Some(b"c")]);
        assert_eq!(found, [Some(0), Some(0), Some(2), None, Some(0), Some(5)]);
    }

    #[test]
    fn what_merges_and_what_splits_is_told_apart() {
        let old = divide(&[Some(b"a"), Some(b"b"), Some(b"c"), Some(b"c"), None, Some(b"d")]);
        let new = divide(&[Some(b"x"), Some(b"x"), Some(b"y"), Some(b"z"), Some(b"x"), None]);
        assert_eq!(divided(&new, &old), [Group { parts: vec![0, 1], part_count: 2, events: 2 }]);
        assert_eq!(divided(&old, &new), [Group { parts: vec![2, 3], part_count: 2, events: 2 }]);
        assert_eq!(divided(&old, &old), []);
    }

    #[test]
    fn of_many_parts_the_first_are_named_and_all_are_counted() {
        let names: Vec<[u8; 1]> = (0..100).map(|name| [name]).collect();
        let old = divide(&names.iter().map(|name| Some(name.as_slice())).collect::<Vec<_>>());
        let new = divide(&vec![Some(b"x".as_slice()); 100]);
        assert_eq!(divided(&new, &old), [Group { parts: vec![0, 1, 2], part_count: 100, events: 100 }]);
    }
}
