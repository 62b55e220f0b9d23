//! Settings of a source: the policy of its keys, and how its requests are answered.

use super::file::{
    self, DimensionsValue, IdentifyWord, InvalidWord, LinesWord, Names, OrderWord, PartsWord, ShapeWord,
};
use super::file::{StoreDownWord, UnicodeWord};
use super::human::Size;
use super::verify::{Shown, VerifySettings};
use super::{FetchSettings, HIDDEN, Reading, fields, preset};
use crate::arguments::parse_crs;
use crate::failure::Failure;
use geonce::delivery::near::Near;
use geonce::intake::{Identify, Invalid, Preset};
use geonce_key::policy::{Accept, Detail, Dimensions, Identity, Lines, Parts, Secret, Unicode};
use geonce_key::{Keyer, Limits, Pointer, Policy};
use std::path::PathBuf;
use std::time::Duration;

/// The word that numbers events where they are applied.
pub(crate) const ARRIVAL: &str = "arrival";
/// The largest body a source may take.
const BODY_BYTES_MAX: u64 = 1 << 30;
/// The largest file with a JSON Schema.
const SCHEMA_BYTES_MAX: u64 = 4 << 20;

/// What becomes of events while the store is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnStoreDown {
    /// Senders are told to come back.
    Refuse,
    /// They are kept in a journal.
    Spill,
}

/// A source as it is configured.
#[derive(Clone, Debug)]
pub(crate) struct SourceSettings {
    /// What makes two payloads the same event.
    pub(crate) policy: Policy,
    /// Whether versions are given on arrival, in words.
    pub(crate) arrival: bool,
    /// How requests are proved genuine; without it, anybody may send.
    pub(crate) verify: Option<VerifySettings>,
    /// How requests are laid out.
    pub(crate) preset: Preset,
    pub(crate) identify: Identify,
    pub(crate) invalid: Invalid,
    /// Whether events of one entity are delivered one after the other.
    pub(crate) ordered: bool,
    /// How the changes are fetched that its sender only announces, if they are.
    pub(crate) fetch: Option<FetchSettings>,
    /// Which events are near-duplicates, and what becomes of them.
    pub(crate) near: Option<Near>,
    /// The sinks of its events, each once.
    pub(crate) sinks: Vec<String>,
    /// The HTTP status of a fresh event.
    pub(crate) fresh_status: u16,
    pub(crate) ack_within: Duration,
    pub(crate) on_store_down: OnStoreDown,
    pub(crate) body_bytes_max: usize,
    /// Whether the cache is asked for its events.
    pub(crate) cache: bool,
    /// How long the sender keeps trying, if that was said.
    pub(crate) redelivery: Option<Duration>,
    /// How long before its arrival the version of an event may be, if that was said.
    pub(crate) lateness: Option<Duration>,
    /// How a saved configuration refers to the policy's secret and files.
    pub(crate) key_secret_shown: Shown,
    pub(crate) schema: Option<PathBuf>,
    pub(crate) previous: Option<PathBuf>,
}

impl Reading<'_> {
    /// The settings of the source `name`. `only_sink` is the sink of a source that names none.
    pub(super) fn source(
        &self,
        name: &str,
        mut source: file::Source,
        limits: &Limits,
        only_sink: Option<&str>,
        window: Duration,
    ) -> Result<SourceSettings, Failure> {
        let at = |setting: &str| format!("source.{name}.{setting}");
        let verify = source.verify.take().map(|verify| self.verify(verify, &at("verify"))).transpose()?;
        self.signed_or_said(name, verify.is_some(), source.allow_unsigned)?;
        let arrival = source.version.as_deref() == Some(ARRIVAL);
        let layout = self.preset(name, &source)?;
        let identify = match source.identify {
            None => preset::identify(&layout),
            Some(IdentifyWord::Auto) => Identify::Auto,
            Some(IdentifyWord::Spatial) => Identify::Spatial,
            Some(IdentifyWord::Delivery) => Identify::Delivery,
        };
        let invalid = match source.invalid {
            Some(InvalidWord::Reject) | None => Invalid::Reject,
            Some(InvalidWord::Dead) => Invalid::Dead,
            Some(InvalidWord::Repair) => Invalid::Repair,
        };
        let ordered = source.order == Some(OrderWord::Entity);
        let fetch = source.fetch.take().map(|fetch| self.fetch(name, fetch, &layout, limits, window)).transpose()?;
        let near = source.near.take().map(|near| self.near(name, near)).transpose()?;
        let fresh_status = source.fresh_status.unwrap_or(if layout.wants_plain_success() { 200 } else { 202 });
        if !matches!(fresh_status, 200 | 202) {
            return Err(self.refuse(&at("fresh_status"), "a fresh event is answered with 202 or 200"));
        }
        let ack_within = self.longer_than_zero(source.ack_within, Duration::from_secs(5), &at("ack_within"))?;
        let body = source.body_max.unwrap_or(Size(10_000_000)).0;
        if !(1..=BODY_BYTES_MAX).contains(&body) {
            return Err(self.refuse(&at("body_max"), &format!("a body has 1 to {BODY_BYTES_MAX} bytes")));
        }
        let on_store_down = match source.on_store_down {
            Some(StoreDownWord::Spill) => OnStoreDown::Spill,
            Some(StoreDownWord::Refuse) | None => OnStoreDown::Refuse,
        };
        let (redelivery, lateness) = (source.redelivery.map(|span| span.0), source.lateness);
        let cache = source.cache.unwrap_or(true);
        let sinks = self.sinks_of(name, source.sink.take(), only_sink)?;
        let key_secret_shown = self.shown(&at("key_secret"));
        let beside = |file: &String| self.folder.join(file);
        let schema = source.accept.as_ref().and_then(|accept| accept.schema.as_ref()).map(beside);
        let previous = source.previous.as_ref().filter(|file| !file.is_empty()).map(beside);
        let policy = self.policy(name, source, limits, true)?;
        Ok(SourceSettings {
            lateness: self.lateness(name, lateness, &policy)?,
            policy,
            arrival,
            verify,
            preset: layout,
            identify,
            invalid,
            ordered,
            fetch,
            near,
            sinks,
            fresh_status,
            ack_within,
            on_store_down,
            body_bytes_max: usize::try_from(body).unwrap_or(usize::MAX),
            cache,
            redelivery,
            key_secret_shown,
            schema,
            previous,
        })
    }

    fn signed_or_said(&self, name: &str, verified: bool, allow_unsigned: Option<bool>) -> Result<(), Failure> {
        let path = format!("source.{name}");
        match (verified, allow_unsigned.unwrap_or(false)) {
            (false, false) => Err(self.refuse(&path, "nothing proves that requests are genuine").hint(
                "add verify = { scheme = \"standard-webhooks\", secret = \"${NAME}\" }, or say allow_unsigned = true",
            )),
            (true, true) => Err(self
                .refuse(&format!("{path}.allow_unsigned"), "verify and allow_unsigned contradict each other")
                .hint("take one of them away")),
            _ => Ok(()),
        }
    }

    fn sinks_of(&self, name: &str, sinks: Option<Names>, only: Option<&str>) -> Result<Vec<String>, Failure> {
        let path = format!("source.{name}.sink");
        let sinks = match (sinks, only) {
            (Some(Names::One(sink)), _) => vec![sink],
            (Some(Names::Several(sinks)), _) => sinks,
            (None, Some(only)) => vec![only.to_owned()],
            (None, None) => return Err(self.refuse(&path, "there are several sinks: say which")),
        };
        if sinks.is_empty() {
            return Err(self.refuse(&path, "a source needs a sink"));
        }
        match sinks.iter().enumerate().find(|(i, sink)| sinks[..*i].contains(sink)) {
            Some((_, twice)) => Err(self.refuse(&path, &format!("{twice:?} is named twice"))),
            None => Ok(sinks),
        }
    }

    /// The policy of the source `name`.
    pub(super) fn policy(
        &self,
        name: &str,
        source: file::Source,
        limits: &Limits,
        with_previous: bool,
    ) -> Result<Policy, Failure> {
        let at = |setting: &str| format!("source.{name}.{setting}");
        let pointer = |setting: &str, text: Option<String>| {
            let text = text.filter(|text| !text.is_empty());
            text.map(|text| self.at(&at(setting), Pointer::parse(&text))).transpose()
        };
        let base = Policy::default();
        let layout = self.preset(name, &source)?;
        let defaults = layout.defaults();
        let own = source.identity.is_some() || source.ignore.is_some();
        let version_said = source.version.is_some();
        let scope = source.scope.unwrap_or_else(|| name.to_owned());
        if scope.is_empty() {
            return Err(self.refuse(&at("scope"), "a scope needs a name"));
        }
        let mut policy = Policy {
            identity: self.identity(name, source.identity, source.ignore)?,
            // "arrival" numbers events where they are applied; it is no part of the key.
            version: pointer("version", source.version.filter(|version| version != ARRIVAL))?,
            scope,
            precision: source.precision.unwrap_or(base.precision),
            precision_z: source.precision_z.unwrap_or(base.precision_z),
            dimensions: self.dimensions(source.dimensions, &at("dimensions"))?,
            lines: if source.lines == Some(LinesWord::Undirected) { Lines::Undirected } else { Lines::Directed },
            parts: if source.parts == Some(PartsWord::Ordered) { Parts::Ordered } else { Parts::Sorted },
            shape: match source.shape {
                Some(ShapeWord::Simplified) => Detail::Simplified,
                Some(ShapeWord::Bbox) => Detail::Bbox,
                Some(ShapeWord::Exact) | None => Detail::Exact,
            },
            unicode: if source.unicode == Some(UnicodeWord::Nfc) { Unicode::Nfc } else { Unicode::Exact },
            crs: match source.crs {
                Some(crs) => self.at(&at("crs"), parse_crs(&crs))?,
                None => base.crs,
            },
            approximate_crs: source.approximate_crs.unwrap_or(false),
            close_rings: source.close_rings.unwrap_or(false),
            key_secret: self.key_secret(source.key_secret, &at("key_secret"))?,
            feature: pointer("feature", source.feature)?,
            delete: self.deletion(name, source.delete)?,
            limits: limits.clone(),
            ..base
        };
        if let Some(identity) = defaults.identity.filter(|_| !own) {
            policy.identity = identity;
        }
        if !version_said {
            policy.version = defaults.version;
        }
        if let Some(accept) = source.accept {
            let schema = accept.schema.map(|file| super::read_bounded(&self.folder.join(file), SCHEMA_BYTES_MAX));
            policy.accept = Accept { types: accept.types, bounds: accept.bounds, schema: schema.transpose()? };
        }
        preset::accept(&mut policy.accept, &layout);
        if let Some(previous) = source.previous.filter(|file| with_previous && !file.is_empty()) {
            let file = self.folder.join(previous);
            let before = super::likeness::policy_in(&file, Some(name), self.environment, false)
                .map_err(|failure| failure.within(&at("previous")))?;
            policy.previous = Some(Box::new(before));
        }
        // What contradicts itself is found now, not with the first payload.
        self.at(&format!("source.{name}"), Keyer::new(&policy))?;
        Ok(policy)
    }

    fn key_secret(&self, text: Option<String>, path: &str) -> Result<Option<Secret>, Failure> {
        match text.filter(|text| !text.is_empty()) {
            Some(text) if text == HIDDEN => Err(self.refuse(path, "this secret was hidden when it was saved")),
            text => Ok(text.map(Secret::new)),
        }
    }

    fn dimensions(&self, value: Option<DimensionsValue>, path: &str) -> Result<Dimensions, Failure> {
        match value {
            None => Ok(Dimensions::Delivered),
            Some(DimensionsValue::Number(2)) => Ok(Dimensions::Two),
            Some(DimensionsValue::Number(3)) => Ok(Dimensions::Three),
            Some(DimensionsValue::Word(word)) if word == "delivered" => Ok(Dimensions::Delivered),
            Some(_) => Err(self.refuse(path, "dimensions are \"delivered\", 2 or 3")),
        }
    }

    fn identity(
        &self,
        name: &str,
        identity: Option<Vec<file::IdentityField>>,
        ignore: Option<Vec<String>>,
    ) -> Result<Identity, Failure> {
        let path = format!("source.{name}.identity");
        match (identity, ignore) {
            (Some(_), Some(ignore)) if !ignore.is_empty() => Err(self
                .refuse(&path, "there are both identity and ignore")
                .hint("ignore goes with a whole-payload identity only")),
            (Some(identity), _) => Ok(Identity::Fields(self.at(&path, fields(identity))?)),
            (None, ignore) => {
                let ignore = ignore.unwrap_or_default().iter().map(|text| Pointer::parse(text)).collect();
                Ok(Identity::Whole { ignore: self.at(&format!("source.{name}.ignore"), ignore)? })
            }
        }
    }
}
