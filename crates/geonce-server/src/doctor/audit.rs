//! Makes every key again from its payload, under the policy of today, beside a second hash of the same canonical bytes.
//!
//! Two events of one key whose second hashes differ are a collision. A key that comes out differently was made under
//! another policy (drift): its redelivery may not be recognised.

use super::{EXAMPLES_MAX, Finding};
use crate::config::Settings;
use crate::failure::Failure;
use crate::record;
use crate::show::{count, escaped};
use crate::tool::Tool;
use geonce::event::{EventId, Outcome};
use geonce::store::{Filter, Record};
use geonce_key::{Input, Keyed, Keyer};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};

/// Events whose hashes are held in memory at once; of more, the latest are audited.
const EVENTS_MAX: u64 = 5_000_000;

#[derive(Default)]
struct Audit {
    seen: u64,
    without_payload: u64,
    without_policy: u64,
    /// Recorded as dead because they have no key.
    refused: u64,
    sound: u64,
    drift: u64,
    collisions: u64,
    examples: Vec<String>,
    /// The second hash by key.
    hashes: HashMap<[u8; 16], (u64, EventId)>,
}

pub(super) fn run(tool: &Tool, settings: &Settings) -> Result<Finding, Failure> {
    let mut keyers: HashMap<String, Keyer> = HashMap::new();
    for (name, source) in &settings.sources {
        keyers.insert(name.clone(), Keyer::new(&source.policy)?);
    }
    let mut audit = Audit::default();
    tool.each(&Filter::default(), true, |record| {
        audit.seen += 1;
        audit.event(&record, &mut keyers);
        Ok(audit.seen < EVENTS_MAX)
    })?;
    Ok(audit.finding())
}

impl Audit {
    fn event(&mut self, record: &Record, keyers: &mut HashMap<String, Keyer>) {
        let Some(payload) = &record.payload else {
            self.without_payload += 1;
            return;
        };
        let Some(keyer) = keyers.get_mut(&*record.source) else {
            self.without_policy += 1;
            return;
        };
        match keyer.key(Input { form: record.form, bytes: payload, crs: record.crs }) {
            Ok(keyed) => {
                // Length and content: two texts that agree in both hashes are the same text.
                let mut second = DefaultHasher::new();
                second.write(keyer.canonical_bytes());
                self.keyed(record, &keyed, second.finish());
            }
            // What was refused has no key of its own, and one that was repaired since is done.
            Err(_) if record.cause.is_some() || record.outcome == Some(Outcome::Repaired) => self.refused += 1,
            Err(error) => {
                self.drift += 1;
                self.example(record, &format!("today's policy refuses it: {}", error.code().as_str()));
            }
        }
    }

    fn keyed(&mut self, record: &Record, keyed: &Keyed, second: u64) {
        let (other_hash, other) = *self.hashes.entry(keyed.fingerprint.key()).or_insert((second, record.id));
        if other_hash != second {
            self.collisions += 1;
            self.example(record, &format!("its key is that of {other}, its content is not"));
            return;
        }
        let known = [&record.key].into_iter().chain(&record.aliases).chain(&record.spatial);
        let mut made = std::iter::once(&keyed.fingerprint).chain(&keyed.aliases);
        if made.any(|made| known.clone().any(|known| known == made)) {
            self.sound += 1;
        } else {
            self.drift += 1;
            self.example(record, &format!("under today's policy its key is {}", record::key(&keyed.fingerprint)));
        }
    }

    fn example(&mut self, record: &Record, what: &str) {
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(format!("{} ({}): {what}", record.id, escaped(&record.source)));
        }
    }

    fn finding(self) -> Finding {
        let mut lines =
            vec![format!("{} events, {} keys made again and found the same", count(self.seen), count(self.sound))];
        for (number, what) in [
            (self.drift, "keys differ: the policy has changed; name the old one in previous"),
            (self.collisions, "collisions: one key, two contents"),
            (self.refused, "refused, without a key of their own"),
            (self.without_payload, "without payload: nothing to make a key from"),
            (self.without_policy, "of sources that are not configured"),
        ] {
            if number > 0 {
                lines.push(format!("{} {what}", count(number)));
            }
        }
        if self.seen >= EVENTS_MAX {
            lines.push("older events were not looked at".to_owned());
        }
        lines.extend(self.examples);
        Finding::new("keys", self.drift == 0 && self.collisions == 0, lines)
    }
}
