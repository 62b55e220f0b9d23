//! What a load came to: kept with it, shown to people, written as JSON.

use super::target::Tally;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Codes that are counted apart; what goes beyond is counted as `other`.
const CODES_MAX: usize = 24;
/// Flaws that are kept with a load,
const SAMPLES_MAX: usize = 5;
/// and this much of what is said of each.
const SAMPLE_CHARACTERS_MAX: usize = 120;
/// Flaws that are listed in a report.
pub const FLAWS_MAX: usize = 10_000;

/// What is wrong with a feature of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flaw {
    /// Its place in the file, from 1.
    pub number: u64,
    /// A stable code.
    pub code: String,
    /// Where in the feature.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pointer: String,
    /// What is wrong, in a sentence.
    pub message: String,
}

/// What became of features that are not written as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Rejected,
    Dead,
    Repaired,
}

/// What a load came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// What it is known by.
    pub load: String,
    /// What was loaded.
    pub source: String,
    /// The digest of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Where the rows are.
    pub table: String,
    /// What it did to the layer.
    pub mode: String,
    /// The EPSG codes of the file and of the layer.
    pub crs: [u32; 2],
    /// Features of the file.
    pub features: u64,
    /// New rows.
    pub inserted: u64,
    /// Rows that changed.
    pub updated: u64,
    /// Rows that were there just so.
    pub unchanged: u64,
    /// Features of which a newer version was there.
    pub stale: u64,
    /// Features that were left out.
    pub rejected: u64,
    /// Features that were kept as dead.
    pub dead: u64,
    /// Features that were written after a repair; they count as rows too.
    pub repaired: u64,
    /// How often each code was the reason for the last three.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub codes: BTreeMap<String, u64>,
    /// When it began.
    pub begun: String,
    /// When it was finished.
    pub finished: String,
    /// How long it took, resumed parts included only from where this runner began.
    pub seconds: f64,
    /// The first of the flaws.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Flaw>,
    /// What a person should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// All flaws that this runner met, as far as they are listed. Not kept.
    #[serde(skip)]
    pub flaws: Vec<Flaw>,
}

/// The part of a report that is kept with each part of a load.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Notes {
    rejected: u64,
    dead: u64,
    repaired: u64,
    codes: BTreeMap<String, u64>,
    samples: Vec<Flaw>,
}

impl Report {
    pub(super) fn note(&mut self, fate: Fate, flaw: Flaw) {
        *match fate {
            Fate::Rejected => &mut self.rejected,
            Fate::Dead => &mut self.dead,
            Fate::Repaired => &mut self.repaired,
        } += 1;
        let known = self.codes.contains_key(&flaw.code) || self.codes.len() < CODES_MAX;
        let code = if known { flaw.code.clone() } else { "other".to_owned() };
        *self.codes.entry(code).or_default() += 1;
        if self.samples.len() < SAMPLES_MAX {
            let message = flaw.message.chars().take(SAMPLE_CHARACTERS_MAX).collect();
            let pointer = flaw.pointer.chars().take(SAMPLE_CHARACTERS_MAX).collect();
            self.samples.push(Flaw { pointer, message, ..flaw.clone() });
        }
        if self.flaws.len() < FLAWS_MAX {
            self.flaws.push(flaw);
        }
    }

    pub(super) fn count(&mut self, tally: Tally) {
        let Tally { inserted, updated, unchanged, stale } = tally;
        (self.inserted, self.updated, self.unchanged, self.stale) = (inserted, updated, unchanged, stale);
    }

    /// What the next runner has to know of the parts that are committed.
    pub(super) fn notes(&self) -> String {
        let notes = Notes {
            rejected: self.rejected,
            dead: self.dead,
            repaired: self.repaired,
            codes: self.codes.clone(),
            samples: self.samples.clone(),
        };
        serde_json::to_string(&notes).unwrap_or_default()
    }

    /// Goes on from what an earlier runner noted.
    pub(super) fn resume(&mut self, notes: &str) {
        let Ok(notes) = serde_json::from_str::<Notes>(notes) else { return };
        (self.rejected, self.dead, self.repaired) = (notes.rejected, notes.dead, notes.repaired);
        (self.codes, self.samples) = (notes.codes, notes.samples);
    }

    /// Everything but the flaws, as JSON.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads back what [`Report::text`] made.
    pub fn read(text: &str) -> Option<Report> {
        serde_json::from_str(text).ok()
    }
}
