//! Destinations of loads. [`Target`] is the contract, [`open`] the only match on kinds.
//!
//! A load is one transaction, or with parts one for each, and the destination's own record of it (`geonce_load`) is written in
//! the same transaction as the rows: whoever comes after a crash finds out what is in. A destination's layer has the form that
//! the sinks give it, and is the same layer for both.

mod geopackage;
mod known;
mod postgis;
mod slots;
#[cfg(test)]
mod tests;

pub(super) use self::known::Finding;
pub use self::known::Known;
use crate::clock::Timestamp;
use crate::error::{Error, Kind, Result};
use crate::event::{Cause, EventId};
use crate::store::Answer;
use geonce_files::Field;
use geonce_key::{Encoding, Fingerprint, Property, Shape, Version};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::time::Duration;

/// What a load does to a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Adds its features.
    Append,
    /// Adds or changes the entities that its features are about; those it does not mention stay.
    Upsert {
        /// Features have no version: the later load wins.
        arrival: bool,
    },
    /// Its features take the place of all that was there, in one moment.
    Replace,
}

impl Mode {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Mode::Append => "append",
            Mode::Upsert { .. } => "upsert",
            Mode::Replace => "replace",
        }
    }
}

/// A load, as its destination needs to know it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The layer or table; `schema.table` for PostGIS.
    pub layer: String,
    /// What it does to the layer.
    pub mode: Mode,
    /// The EPSG code of the layer, if it is made; of one that is there, [`Target::crs`] tells.
    pub crs: Option<u32>,
    /// What is said of each feature.
    pub fields: Vec<Field>,
    /// How many features each transaction will be about, as far as the file says.
    pub expected: u64,
    /// What the load is known by.
    pub load: Fingerprint,
    /// The load in the store; every row carries it.
    pub event: EventId,
    /// When it began.
    pub begun: Timestamp,
    /// Whether a load that is in already is done again: its rows from before give way.
    pub again: bool,
    /// How long the destination may be silent, or busy with others.
    pub timeout: Duration,
}

/// A feature on its way into a layer.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Its place in the file.
    pub number: u64,
    /// The key it is known by.
    pub key: Fingerprint,
    /// The entity it is about; always there where a load upserts.
    pub entity: Option<Fingerprint>,
    /// The version it declares.
    pub version: Option<Version>,
    /// Digest of its whole content.
    pub content: [u8; 32],
    /// Its geometry in the layer's coordinate system, rings oriented; none where it is null.
    pub geometry: Option<Shape<f64>>,
    /// A value for each field.
    pub values: Vec<Property>,
}

/// A feature that the destination does not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its place in the file.
    pub number: u64,
    /// Why.
    pub cause: Cause,
}

/// What became of features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// New rows.
    pub inserted: u64,
    /// Rows that another version took the place of.
    pub updated: u64,
    /// Entities that were there with the same content.
    pub unchanged: u64,
    /// Entities of which a newer version was there.
    pub stale: u64,
}

impl Tally {
    /// Both together.
    fn plus(self, other: Tally) -> Tally {
        Tally {
            inserted: self.inserted + other.inserted,
            updated: self.updated + other.updated,
            unchanged: self.unchanged + other.unchanged,
            stale: self.stale + other.stale,
        }
    }
}

/// How far a load has come, as its destination has it on record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The result, if it is finished.
    pub result: Option<String>,
    /// Features of the file that are behind us: written, refused or bad.
    pub features: u64,
    /// What became of them.
    pub tally: Tally,
    /// What the loader noted with them.
    pub notes: String,
}

/// A destination with one load under way. Dropped before [`Target::finish`], it leaves what was committed, nothing else.
pub trait Target: Send {
    /// The EPSG code of the layer.
    fn crs(&self) -> u32;

    /// Where the rows are, such as `public.parcels`.
    fn place(&self) -> String;

    /// How far the load has come.
    fn standing(&self) -> &Standing;

    /// What is known of the layer's entities: a feature of one that is there with the same content need not be made into a
    /// piece.
    fn known(&self) -> Known;

    /// Counts features that are not written because of what is [`Target::known`].
    fn count_unchanged(&mut self, features: u64);

    /// Writes features, in the order of the file. Those it does not take are told, all others are written.
    fn write(&mut self, pieces: Vec<Piece>) -> Answer<'_, Vec<Refused>>;

    /// Commits what was written so far, with the place in the file it has come to, and goes on.
    fn commit(&mut self, features: u64, notes: String) -> Answer<'_, ()>;

    /// Ends the load and commits. `result` makes the text to be kept of what became of all features, over all parts.
    fn finish(&mut self, features: u64, result: Box<dyn FnOnce(Tally) -> String + Send>) -> Answer<'_, Tally>;
}

/// Opens a destination for a load: `gpkg:file`, or `postgresql://…`. Files are relative to `folder`. Waits for another
/// runner of the same load to end its transaction.
pub async fn open(url: &str, plan: Plan, folder: &Path) -> Result<Box<dyn Target>> {
    match url.split_once(':') {
        Some(("gpkg", file)) => geopackage::open(&folder.join(file), plan).await,
        Some(("postgresql" | "postgres", _)) => postgis::open(url, plan).await,
        _ => Err(Error::new(Kind::Invalid, format!("{url:?} is no destination"))
            .hint("parcels.gpkg, or postgresql://localhost/gis")),
    }
}

/// The coordinate system of a layer: its own if it is there, else what is asked for.
fn decide_crs(place: &str, found: Option<i64>, asked: Option<u32>) -> Result<u32> {
    let code = match (found, asked) {
        (None, asked) => i64::from(asked.unwrap_or(CRS)),
        (Some(found), Some(asked)) if found != i64::from(asked) => {
            return Err(Error::new(Kind::Incompatible, format!("{place} is in EPSG:{found}, not in EPSG:{asked}"))
                .hint(format!("EPSG:{found} as the destination's coordinate system, or another layer")));
        }
        (Some(found), _) => found,
    };
    let known = u32::try_from(code).ok().and_then(geonce_key::crs::lookup);
    known.map(|crs| crs.code()).ok_or_else(|| {
        Error::new(Kind::Incompatible, format!("{place}: EPSG:{code} is not a coordinate system that we know"))
            .hint("another layer, or another coordinate system for it")
    })
}

/// What the table is called that a replacing load fills, and how the names of all those begin that are to replace the layer.
/// `prefix` is the kind's own.
fn staging(prefix: &str, layer: &str, load: &Fingerprint) -> (String, String) {
    let digest = Sha256::digest(layer.to_lowercase());
    let begin = digest.iter().take(4).fold(prefix.to_owned(), |name, byte| format!("{name}{byte:02x}")) + "_";
    let load = load.text(Encoding::Hex);
    (format!("{begin}{}", &load[load.len().saturating_sub(16)..]), begin)
}

/// The characters of a key that are the key itself, after `g1_` or `g1k_`.
fn key_characters(key: [u8; 16]) -> String {
    let mut digest = [0; 32];
    digest[..16].copy_from_slice(&key);
    let text = Fingerprint::from_digest(digest, false).text(Encoding::Base64);
    text[text.len() - KEY_CHARACTERS..].to_owned()
}

const KEY_CHARACTERS: usize = 22;

/// The coordinate system of a new layer that none was asked for.
const CRS: u32 = 4326;
