//! One page: its features one at a time, and what it says about itself. Holds one feature in memory, not the page.

use super::links;
use crate::error::Error;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// Bytes of a page read at once.
const PIECE_BYTES: usize = 64 << 10;
/// Members of a page that are looked at, beside the one that holds a token.
const MEMBERS: &[&str] =
    &["crs", "error", "exceededTransferLimit", "links", "next", "numberMatched", "numberReturned", "properties"];

/// What a page says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    /// Features on it.
    pub(super) features: u64,
    /// Digest of them.
    pub(super) digest: [u8; 32],
    /// Where it leads.
    pub(super) next: Option<String>,
    /// The token for the next one.
    pub(super) token: Option<String>,
    /// Features of all pages.
    pub(super) matched: Option<u64>,
    /// The server has more than it gave.
    pub(super) exceeded: bool,
    /// The coordinate system that it declares, as it is written.
    pub(super) crs: Option<String>,
}

/// Why a page cannot be used.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It is cut off or garbled: another attempt may bring the whole.
    Broken(String),
    /// The server says in it what went wrong: a code like a status, and its words.
    Said(i64, String),
    /// Whoever takes the features failed.
    Taking(Error),
}

/// Takes a feature's text, which has no line breaks.
pub(super) type Take<'a> = &'a mut dyn FnMut(&str) -> Result<(), Error>;

/// Reads a page. `token` is a JSON pointer.
pub(super) fn read(path: &Path, token: Option<&str>, take: Take<'_>) -> Result<Page, Trouble> {
    let broken = |why: String| Trouble::Broken(why);
    let file = File::open(path).map_err(|error| broken(error.to_string()))?;
    let mut deserializer = serde_json::Deserializer::from_reader(BufReader::with_capacity(PIECE_BYTES, file));
    let mut failed = None;
    let mut features = Features { take, failed: &mut failed, count: None, digest: Sha256::new() };
    let mut kept = serde_json::Map::new();
    let document = Document { features: &mut features, kept: &mut kept, token: token.map(first_name) };
    let read = document.deserialize(&mut deserializer).and_then(|()| deserializer.end());
    let (count, digest) = (features.count, features.digest);
    if let Some(error) = failed {
        return Err(Trouble::Taking(error));
    }
    read.map_err(|error| broken(error.to_string()))?;
    if let Some(said) = kept.get("error") {
        return Err(said_error(said));
    }
    let count = count.ok_or_else(|| broken("it has no member \"features\"".to_owned()))?;
    if let Some(told) = kept.get("numberReturned").and_then(Value::as_u64).filter(|&told| told != count) {
        return Err(broken(format!("it has {count} features and says that it has {told}")));
    }
    let kept = Value::Object(kept);
    let token = token.and_then(|pointer| kept.pointer(pointer)).map(text_of).transpose().map_err(broken)?;
    let exceeded = |pointer| kept.pointer(pointer).and_then(Value::as_bool) == Some(true);
    Ok(Page {
        features: count,
        digest: digest.finalize().into(),
        next: kept.get("links").and_then(links::in_links).or_else(|| kept.get("next").and_then(links::in_member)),
        token: token.flatten(),
        matched: kept.get("numberMatched").and_then(Value::as_u64),
        exceeded: exceeded("/exceededTransferLimit") || exceeded("/properties/exceededTransferLimit"),
        crs: kept.get("crs").filter(|crs| !crs.is_null()).map(Value::to_string),
    })
}

/// An error that came with status 200, as ArcGIS sends them.
pub(super) fn said_error(said: &Value) -> Trouble {
    let code = said.get("code").and_then(Value::as_i64).unwrap_or(0);
    let mut words = said.get("message").and_then(Value::as_str).unwrap_or_default().to_owned();
    for detail in said.get("details").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).take(3)
    {
        words = format!("{words} {detail}");
    }
    Trouble::Said(code, if words.trim().is_empty() { said.to_string() } else { words })
}

/// A token as it is sent back; none where the value says that there is no more.
fn text_of(value: &Value) -> Result<Option<String>, String> {
    match value {
        Value::Null | Value::Bool(false) => Ok(None),
        Value::String(text) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        Value::Number(number) => Ok(Some(number.to_string())),
        _ => Err("its token is neither text nor a number".to_owned()),
    }
}

/// The first name of a pointer.
fn first_name(pointer: &str) -> String {
    let name = pointer.trim_start_matches('/').split('/').next().unwrap_or_default();
    name.replace("~1", "/").replace("~0", "~")
}

/// The id of a feature as it is written; none if it has none.
pub(super) fn id(feature: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct WithId<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
    }
    let id = serde_json::from_str::<WithId<'_>>(feature).ok()?.id?.get();
    (!matches!(id, "null" | "\"\"")).then(|| id.to_owned())
}

struct Document<'a, 'b> {
    features: &'a mut Features<'b>,
    kept: &'a mut serde_json::Map<String, Value>,
    token: Option<String>,
}

impl<'de> DeserializeSeed<'de> for Document<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a FeatureCollection")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if name == "features" {
                if self.features.count.is_some() {
                    return Err(serde::de::Error::custom("\"features\" is there twice"));
                }
                map.next_value_seed(&mut *self.features)?;
            } else if MEMBERS.contains(&name.as_str()) || self.token.as_ref() == Some(&name) {
                let value = map.next_value()?;
                self.kept.insert(name, value);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

struct Features<'a> {
    take: Take<'a>,
    failed: &'a mut Option<Error>,
    count: Option<u64>,
    digest: Sha256,
}

impl<'de> DeserializeSeed<'de> for &mut Features<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for &mut Features<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of features")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut count = 0;
        while let Some(feature) = seq.next_element::<Box<RawValue>>()? {
            count += 1;
            // Line breaks stand between tokens only: inside texts JSON does not allow them.
            let text = feature.get();
            let line = text.contains(['\n', '\r']).then(|| text.replace(['\n', '\r'], " "));
            let line = line.as_deref().unwrap_or(text);
            self.digest.update(line);
            self.digest.update(b"\n");
            if let Err(error) = (self.take)(line) {
                *self.failed = Some(error);
                return Err(serde::de::Error::custom("not taken"));
            }
        }
        self.count = Some(count);
        Ok(())
    }
}
