//! What is kept of a done event, how it is written to Redis, and under which names.
//!
//! A value says its version and has a checksum over itself, its key and the store that it is of: what is not exactly
//! what this store's gateways wrote under this key is no entry.

use crate::clock::Timestamp;
use crate::event::{EventId, Outcome};
use crate::store::NewEvent;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use geonce_key::Fingerprint;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::time::Duration;

/// The whole fingerprint of a key.
pub(super) type Digest = [u8; 32];

/// The form of values.
const VERSION: u8 = 1;
/// Version, outcome, event, content, witness, checksum.
const VALUE_BYTES: usize = 1 + 1 + 16 + 32 + 8 + 8;
/// What checksums and names begin with.
const SEAL_PREFIX: &[u8] = b"geonce cache 1\0";
/// Entries live shorter than their window by up to this share, so that those of one moment do not all end together.
const JITTER: f64 = 0.1;
/// Characters of a digest in a name.
const DIGEST_CHARACTERS: usize = 43;

/// A done event, as far as it answers for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: EventId,
    pub(super) outcome: Outcome,
    pub(super) content: [u8; 32],
    /// Of the spatial fingerprints with which it came; see [`witness`].
    pub(super) witness: [u8; 8],
}

/// Stands for a set of spatial fingerprints: an event with the same ones does not contradict the first.
pub(super) fn witness(spatial: &[Fingerprint]) -> [u8; 8] {
    if spatial.is_empty() {
        return [0; 8];
    }
    let mut sorted: Vec<&Fingerprint> = spatial.iter().collect();
    sorted.sort_unstable();
    let mut sum = Sha256::new();
    for fingerprint in sorted {
        sum.update([u8::from(fingerprint.is_secret())]);
        sum.update(fingerprint.digest());
    }
    first_bytes(&sum.finalize().into())
}

fn first_bytes(digest: &[u8; 32]) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest[..8]);
    bytes
}

impl Entry {
    /// Whether an event is a duplicate of this one beyond doubt: the store would say so too.
    pub(super) fn answers(&self, event: &NewEvent, window: Duration, now: Timestamp) -> bool {
        // An event that is known by its own id was accepted before, and its answer was lost.
        self.id != event.id
            && self.content == event.content
            && (event.spatial.is_empty() || self.witness == witness(&event.spatial))
            && now < self.ends(window)
    }

    /// When the store may forget it.
    pub(super) fn ends(&self, window: Duration) -> Timestamp {
        self.id.time().plus(window)
    }

    /// How long Redis keeps it; `None` if that is not worth it. `chance` is any number.
    pub(super) fn lifetime(&self, window: Duration, now: Timestamp, chance: u64) -> Option<Duration> {
        // An id from a clock that is ahead must not make it live longer than anything.
        let left = self.ends(window).since(now).min(window);
        #[expect(clippy::cast_precision_loss, reason = "any share between nothing and the whole will do")]
        let share = 1.0 - JITTER * (chance as f64 / u64::MAX as f64);
        Some(left.mul_f64(share)).filter(|left| left.as_millis() > 0)
    }
}

/// Names and seals of one store's entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    prefix: String,
    lanes: usize,
    /// The store, and since when its entries count.
    seal: [u8; 32],
    shown: String,
}

impl Names {
    pub(super) fn new(prefix: &str, lanes: usize, store: [u8; 16], epoch: &[u8]) -> Names {
        let mut sum = Sha256::new();
        sum.update(SEAL_PREFIX);
        sum.update(store);
        sum.update(epoch);
        let seal: [u8; 32] = sum.finalize().into();
        Names { prefix: prefix.to_owned(), lanes, seal, shown: hex(&seal[..8]) }
    }

    /// The lane of a key.
    pub(super) fn lane(&self, digest: &Digest) -> usize {
        usize::from(digest[31]) % self.lanes
    }

    /// The name of an entry.
    pub(super) fn name(&self, digest: &Digest) -> String {
        let mut name = tag(&self.prefix, self.lane(digest));
        name.reserve(2 + self.shown.len() + DIGEST_CHARACTERS);
        name.push(':');
        name.push_str(&self.shown);
        name.push(':');
        BASE64.encode_string(digest, &mut name);
        name
    }

    /// The names of all entries, for `SCAN`.
    pub(super) fn pattern(&self) -> String {
        format!("{{{}.cache.*}}:{}:*", self.prefix, self.shown)
    }

    /// The key that an entry's name says.
    pub(super) fn digest(name: &[u8]) -> Option<Digest> {
        let start = name.len().checked_sub(DIGEST_CHARACTERS)?;
        BASE64.decode(&name[start..]).ok()?.try_into().ok()
    }

    /// Where gateways tell each other what they wrote.
    pub(super) fn channel(&self) -> String {
        format!("{}.cache:{}", self.prefix, self.shown)
    }

    /// Writes an entry.
    pub(super) fn write(&self, digest: &Digest, entry: &Entry) -> [u8; VALUE_BYTES] {
        let mut value = [0; VALUE_BYTES];
        value[0] = VERSION;
        value[1] = Outcome::ALL.iter().position(|&known| known == entry.outcome).map_or(u8::MAX, |at| {
            // There are a handful of outcomes.
            u8::try_from(at).unwrap_or(u8::MAX)
        });
        value[2..18].copy_from_slice(&entry.id.to_bytes());
        value[18..50].copy_from_slice(&entry.content);
        value[50..58].copy_from_slice(&entry.witness);
        let sum = self.sum(digest, &value[..58]);
        value[58..].copy_from_slice(&sum);
        value
    }

    /// Reads an entry; `None` if it is not one of ours for this key.
    pub(super) fn read(&self, digest: &Digest, value: &[u8]) -> Option<Entry> {
        if value.len() != VALUE_BYTES || value[0] != VERSION || self.sum(digest, &value[..58]) != value[58..] {
            return None;
        }
        Some(Entry {
            id: EventId::from_bytes(value[2..18].try_into().ok()?),
            outcome: *Outcome::ALL.get(usize::from(value[1]))?,
            content: value[18..50].try_into().ok()?,
            witness: value[50..58].try_into().ok()?,
        })
    }

    fn sum(&self, digest: &Digest, bytes: &[u8]) -> [u8; 8] {
        let mut sum = Sha256::new();
        sum.update(self.seal);
        sum.update(digest);
        sum.update(bytes);
        first_bytes(&sum.finalize().into())
    }
}

/// What the names of a lane begin with. In braces, so that all of a lane is in one slot of a Cluster.
pub(super) fn tag(prefix: &str, lane: usize) -> String {
    format!("{{{prefix}.cache.{lane}}}")
}

/// The name of something that is kept once for a store.
pub(super) fn store_name(prefix: &str, store: [u8; 16], what: &str) -> String {
    format!("{}:{}:{what}", tag(prefix, 0), hex(&store))
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Digest, Entry, Names, VALUE_BYTES};
    use crate::clock::Timestamp;
    use crate::event::{Ids, Outcome};
    use std::time::Duration;

    fn entry() -> Entry {
        let id = Ids::new().next(Timestamp::from_millis(1_000_000));
        Entry { id, outcome: Outcome::Stale, content: [7; 32], witness: [9; 8] }
    }

    #[test]
    fn an_entry_is_read_back_and_nothing_else_is() {
        let (names, digest, entry): (Names, Digest, Entry) = (Names::new("p", 16, [1; 16], b"e"), [3; 32], entry());
        let value = names.write(&digest, &entry);
        assert_eq!(names.read(&digest, &value), Some(entry));
        for place in 0..VALUE_BYTES {
            let mut broken = value;
            broken[place] ^= 1;
            assert_eq!(names.read(&digest, &broken), None, "byte {place}");
        }
        assert_eq!(names.read(&digest, &value[..VALUE_BYTES - 1]), None);
        assert_eq!(names.read(&digest, &[]), None);
        assert_eq!(names.read(&[4; 32], &value), None, "another key");
        assert_eq!(Names::new("p", 16, [2; 16], b"e").read(&digest, &value), None, "another store");
        assert_eq!(Names::new("p", 16, [1; 16], b"f").read(&digest, &value), None, "another epoch");
        assert_eq!(Names::digest(names.name(&digest).as_bytes()), Some(digest));
    }

    #[test]
    fn an_entry_never_outlives_its_event() {
        let (entry, window) = (entry(), Duration::from_hours(1));
        let made = Timestamp::from_millis(1_000_000);
        for (now, most) in [(made, 3_600), (made.plus(Duration::from_mins(30)), 1_800)] {
            for chance in [0, u64::MAX / 2, u64::MAX] {
                let left = entry.lifetime(window, now, chance).unwrap().as_secs_f64();
                assert!((f64::from(most) * 0.899..=f64::from(most)).contains(&left), "{left}");
            }
        }
        assert_eq!(entry.lifetime(window, made.plus(window), 0), None);
        assert_eq!(entry.lifetime(window, made.minus(window), 0), Some(window), "its id is from a clock that is ahead");
    }
}
