//! A policy in a request: that of a source, with settings over it. The same names as in `geonce.toml`; none that names a file
//! or holds a secret.

use super::body::said;
use super::problem;
use crate::arguments::parse_crs;
use crate::config::Likeness;
use crate::failure::Failure;
use crate::serve::{Gateway, Problem};
use geonce_key::policy::{Dimensions, Field, Identity, Lines, Parts, Unicode};
use geonce_key::{Keyer, Pointer, Policy};
use serde::Deserialize;

/// Settings over a policy.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Settings {
    #[serde(deserialize_with = "said")]
    identity: Option<Vec<FieldSetting>>,
    #[serde(deserialize_with = "said")]
    ignore: Option<Vec<String>>,
    #[serde(deserialize_with = "said")]
    version: Option<String>,
    #[serde(deserialize_with = "said")]
    scope: Option<String>,
    #[serde(deserialize_with = "said")]
    precision: Option<u8>,
    #[serde(deserialize_with = "said")]
    precision_z: Option<u8>,
    #[serde(deserialize_with = "said")]
    dimensions: Option<DimensionsSetting>,
    #[serde(deserialize_with = "said")]
    lines: Option<LinesWord>,
    #[serde(deserialize_with = "said")]
    parts: Option<PartsWord>,
    #[serde(deserialize_with = "said")]
    unicode: Option<UnicodeWord>,
    #[serde(deserialize_with = "said")]
    crs: Option<String>,
    #[serde(deserialize_with = "said")]
    approximate_crs: Option<bool>,
    #[serde(deserialize_with = "said")]
    close_rings: Option<bool>,
    #[serde(deserialize_with = "said")]
    feature: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a JSON pointer such as \"/properties/asset_id\", or { at, optional, decimals }")]
enum FieldSetting {
    Pointer(String),
    Table(FieldTable),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FieldTable {
    at: String,
    #[serde(default)]
    optional: bool,
    #[serde(default, deserialize_with = "said")]
    decimals: Option<u8>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "\"delivered\", 2 or 3")]
enum DimensionsSetting {
    Number(u8),
    Word(DimensionsWord),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum DimensionsWord {
    Delivered,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LinesWord {
    Directed,
    Undirected,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PartsWord {
    Sorted,
    Ordered,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum UnicodeWord {
    Exact,
    Nfc,
}

/// What makes payloads of the source `name` alike; of the only one where none is named; else what there is without a configuration.
/// `recorded` is the source of a recorded event, which may not be served any more.
pub(super) fn of_source(gateway: &Gateway, name: Option<&str>, recorded: Option<&str>) -> Result<Likeness, Problem> {
    let served = |name: &str| {
        let policy = gateway.sources.get(name)?.route.source.policy.clone();
        Some(Likeness { policy, ..gateway.api.likenesses.get(name).cloned().unwrap_or_default() })
    };
    match (name, recorded) {
        (Some(name), _) => served(name).ok_or_else(|| {
            let mut known: Vec<&str> = gateway.sources.keys().map(|name| &**name).collect();
            known.sort_unstable();
            problem::body_invalid("there is no source of this name").at("/source").hint(known.join(", "))
        }),
        (None, Some(recorded)) => {
            let policy = || Policy { scope: recorded.to_owned(), ..Policy::default() };
            Ok(served(recorded).unwrap_or_else(|| Likeness { policy: policy(), ..Likeness::default() }))
        }
        (None, None) if gateway.sources.len() == 1 => {
            Ok(gateway.sources.keys().next().and_then(|name| served(name)).unwrap_or_default())
        }
        (None, None) => Ok(Likeness::default()),
    }
}

impl Settings {
    /// What these settings make of a policy.
    pub(super) fn over(&self, mut policy: Policy) -> Result<Policy, Problem> {
        let pointer = |name: &str, text: &Option<String>| {
            text.as_deref().map(|text| Pointer::parse(text).map_err(|error| wrong(name, error))).transpose()
        };
        self.apply_identity(&mut policy)?;
        policy.version = pointer("version", &self.version)?.or(policy.version);
        policy.feature = pointer("feature", &self.feature)?.or(policy.feature);
        policy.scope = self.scope.clone().unwrap_or(policy.scope);
        policy.precision = self.precision.unwrap_or(policy.precision);
        policy.precision_z = self.precision_z.unwrap_or(policy.precision_z);
        policy.dimensions = match &self.dimensions {
            None => policy.dimensions,
            Some(DimensionsSetting::Word(DimensionsWord::Delivered)) => Dimensions::Delivered,
            Some(DimensionsSetting::Number(2)) => Dimensions::Two,
            Some(DimensionsSetting::Number(3)) => Dimensions::Three,
            Some(DimensionsSetting::Number(_)) => {
                return Err(problem::body_invalid("dimensions are \"delivered\", 2 or 3").at("/policy/dimensions"));
            }
        };
        policy.lines = self.lines.map_or(policy.lines, |word| match word {
            LinesWord::Directed => Lines::Directed,
            LinesWord::Undirected => Lines::Undirected,
        });
        policy.parts = self.parts.map_or(policy.parts, |word| match word {
            PartsWord::Sorted => Parts::Sorted,
            PartsWord::Ordered => Parts::Ordered,
        });
        policy.unicode = self.unicode.map_or(policy.unicode, |word| match word {
            UnicodeWord::Exact => Unicode::Exact,
            UnicodeWord::Nfc => Unicode::Nfc,
        });
        policy.approximate_crs = self.approximate_crs.unwrap_or(policy.approximate_crs);
        policy.close_rings = self.close_rings.unwrap_or(policy.close_rings);
        if let Some(crs) = &self.crs {
            policy.crs = parse_crs(crs).map_err(|failure| wrong("crs", failure))?;
        }
        // What contradicts itself is said of the policy, not of a payload.
        Keyer::new(&policy).map_err(|error| wrong("", error))?;
        Ok(policy)
    }

    fn apply_identity(&self, policy: &mut Policy) -> Result<(), Problem> {
        let parse = |name: &str, text: &str| Pointer::parse(text).map_err(|error| wrong(name, error));
        if let Some(ignore) = &self.ignore {
            if self.identity.is_some() {
                return Err(problem::body_invalid("there are both identity and ignore")
                    .at("/policy/ignore")
                    .hint("ignore goes with a whole-payload identity only"));
            }
            let ignore = ignore.iter().map(|text| parse("ignore", text)).collect::<Result<_, _>>()?;
            policy.identity = Identity::Whole { ignore };
        }
        let Some(fields) = &self.identity else { return Ok(()) };
        let field = |setting: &FieldSetting| {
            Ok(match setting {
                FieldSetting::Pointer(text) => Field::required(parse("identity", text)?),
                FieldSetting::Table(FieldTable { at, optional, decimals }) => {
                    Field { at: parse("identity", at)?, optional: *optional, decimals: *decimals }
                }
            })
        };
        policy.identity = Identity::Fields(fields.iter().map(field).collect::<Result<_, Problem>>()?);
        Ok(())
    }
}

/// A setting that cannot be.
fn wrong(name: &str, failure: impl Into<Failure>) -> Problem {
    let failure = failure.into();
    let place = if name.is_empty() { "/policy".to_owned() } else { format!("/policy/{name}") };
    let problem = problem::body_invalid(failure.message()).at(place);
    match failure.hint_text() {
        Some(hint) => problem.hint(hint.to_owned()),
        None => problem,
    }
}
