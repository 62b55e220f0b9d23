//! `geonce.toml`: the settings of a source that make its policy.
//!
//! The whole file is checked for names it does not know. Settings of the gateway (stores, sinks, signatures) have
//! their names here and are read where they are used.

use crate::arguments::parse_crs;
use crate::failure::Failure;
use geonce_key::policy::{Accept, Dimensions, Field, Identity, Lines, Parts, Secret, Unicode};
use geonce_key::{Pointer, Policy};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::path::Path;

/// Settings that are read elsewhere: known by name, so that a misspelt one is noticed.
type Elsewhere = Option<IgnoredAny>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "the names of sections that other commands read")]
struct File {
    #[serde(default)]
    source: BTreeMap<String, Source>,
    store: Elsewhere,
    cache: Elsewhere,
    sink: Elsewhere,
    limits: Elsewhere,
    log: Elsewhere,
    admin: Elsewhere,
    test: Elsewhere,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "the names of settings that other commands read")]
struct Source {
    identity: Option<Vec<IdentityField>>,
    ignore: Option<Vec<String>>,
    version: Option<String>,
    scope: Option<String>,
    precision: Option<u8>,
    precision_z: Option<u8>,
    dimensions: Option<DimensionsSetting>,
    lines: Option<LinesSetting>,
    parts: Option<PartsSetting>,
    crs: Option<String>,
    #[serde(default)]
    approximate_crs: bool,
    #[serde(default)]
    close_rings: bool,
    key_secret: Option<String>,
    feature: Option<String>,
    accept: Option<AcceptSetting>,
    unicode: Option<UnicodeSetting>,
    previous: Option<String>,
    verify: Elsewhere,
    allow_unsigned: Elsewhere,
    identify: Elsewhere,
    preset: Elsewhere,
    invalid: Elsewhere,
    redelivery: Elsewhere,
    fresh_status: Elsewhere,
    ack_within: Elsewhere,
    body_max: Elsewhere,
    cache: Elsewhere,
    on_store_down: Elsewhere,
    near: Elsewhere,
    order: Elsewhere,
    sink: Elsewhere,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum IdentityField {
    Pointer(String),
    Table(IdentityTable),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IdentityTable {
    at: String,
    #[serde(default)]
    optional: bool,
    decimals: Option<u8>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum DimensionsSetting {
    Number(u8),
    Word(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum LinesSetting {
    Directed,
    Undirected,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum PartsSetting {
    Sorted,
    Ordered,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum UnicodeSetting {
    Exact,
    Nfc,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AcceptSetting {
    types: Option<Vec<String>>,
    bounds: Option<[f64; 4]>,
    schema: Option<String>,
}

/// The policy of `source` in the file, or of its only source.
pub(crate) fn policy(file: &Path, source: Option<&str>) -> Result<Policy, Failure> {
    policy_after(file, source, true)
}

fn policy_after(file: &Path, source: Option<&str>, with_previous: bool) -> Result<Policy, Failure> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| Failure::io(&shown.to_string(), &error))?;
    let mut parsed: File = toml::from_str(&text).map_err(|error| unreadable(file, &error))?;
    let names: Vec<String> = parsed.source.keys().cloned().collect();
    let name = match (source, names.as_slice()) {
        (Some(name), _) => name.to_owned(),
        (None, [only]) => only.clone(),
        (None, _) => {
            return Err(Failure::new("config_source", format!("{shown} has {} sources", names.len()))
                .hint(format!("choose one with --source: {}", names.join(", "))));
        }
    };
    let Some(settings) = parsed.source.remove(&name) else {
        let failure = Failure::new("config_source", format!("{shown} has no source {name:?}"));
        let hint = nearest(&name, &names).map(|near| format!("did you mean {near:?}?"));
        return Err(failure.hint(hint.unwrap_or_else(|| format!("it has: {}", names.join(", ")))));
    };
    settings.into_policy(&name, file, with_previous)
}

impl Source {
    fn into_policy(self, name: &str, file: &Path, with_previous: bool) -> Result<Policy, Failure> {
        let folder = file.parent().unwrap_or(Path::new("."));
        let mut policy = Policy { scope: self.scope.unwrap_or_else(|| name.to_owned()), ..Policy::default() };
        policy.identity = identity(self.identity, self.ignore, name)?;
        // "arrival" numbers events where they are applied; it is no part of the key.
        policy.version = self.version.filter(|v| v != "arrival").map(|v| Pointer::parse(&v)).transpose()?;
        policy.feature = self.feature.filter(|f| !f.is_empty()).map(|f| Pointer::parse(&f)).transpose()?;
        policy.precision = self.precision.unwrap_or(policy.precision);
        policy.precision_z = self.precision_z.unwrap_or(policy.precision_z);
        policy.dimensions = match self.dimensions {
            None => policy.dimensions,
            Some(DimensionsSetting::Number(2)) => Dimensions::Two,
            Some(DimensionsSetting::Number(3)) => Dimensions::Three,
            Some(DimensionsSetting::Word(word)) if word == "delivered" => Dimensions::Delivered,
            Some(_) => {
                return Err(Failure::new("config_value", format!("source.{name}.dimensions is \"delivered\", 2 or 3")));
            }
        };
        policy.lines = match self.lines {
            Some(LinesSetting::Undirected) => Lines::Undirected,
            _ => Lines::Directed,
        };
        policy.parts = match self.parts {
            Some(PartsSetting::Ordered) => Parts::Ordered,
            _ => Parts::Sorted,
        };
        policy.unicode = match self.unicode {
            Some(UnicodeSetting::Nfc) => Unicode::Nfc,
            _ => Unicode::Exact,
        };
        if let Some(crs) = self.crs {
            policy.crs = parse_crs(&crs)?;
        }
        policy.approximate_crs = self.approximate_crs;
        policy.close_rings = self.close_rings;
        let secret = self.key_secret.map(|text| substitute(&text)).transpose()?;
        policy.key_secret = secret.filter(|text| !text.is_empty()).map(Secret::new);
        if let Some(accept) = self.accept {
            let schema = accept.schema.map(|schema| read_beside(folder, &schema)).transpose()?;
            policy.accept = Accept { types: accept.types, bounds: accept.bounds, schema };
        }
        if let Some(previous) = self.previous.filter(|_| with_previous) {
            policy.previous = Some(Box::new(policy_after(&folder.join(previous), Some(name), false)?));
        }
        Ok(policy)
    }
}

fn identity(fields: Option<Vec<IdentityField>>, ignore: Option<Vec<String>>, name: &str) -> Result<Identity, Failure> {
    let Some(fields) = fields else {
        let ignore = ignore.unwrap_or_default();
        return Ok(Identity::Whole { ignore: ignore.iter().map(|p| Pointer::parse(p)).collect::<Result<_, _>>()? });
    };
    if ignore.is_some() {
        let message = format!("source.{name} has both identity and ignore");
        return Err(Failure::new("config_value", message).hint("ignore goes with a whole-payload identity only"));
    }
    let fields = fields.into_iter().map(|field| {
        Ok(match field {
            IdentityField::Pointer(text) => Field::required(Pointer::parse(&text)?),
            IdentityField::Table(table) => {
                Field { at: Pointer::parse(&table.at)?, optional: table.optional, decimals: table.decimals }
            }
        })
    });
    Ok(Identity::Fields(fields.collect::<Result<_, Failure>>()?))
}

fn read_beside(folder: &Path, name: &str) -> Result<String, Failure> {
    let path = folder.join(name);
    std::fs::read_to_string(&path).map_err(|error| Failure::io(&path.display().to_string(), &error))
}

/// Replaces `${NAME}` and `${NAME:-default}` by the environment's values.
fn substitute(text: &str) -> Result<String, Failure> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let Some(length) = rest[start..].find('}') else { break };
        let inside = &rest[start + 2..start + length];
        let (name, default) = inside.split_once(":-").map_or((inside, None), |(name, default)| (name, Some(default)));
        let value = std::env::var(name).ok().or(default.map(str::to_owned));
        let missing = || Failure::new("config_variable", format!("the environment has no variable {name}"));
        out.push_str(&rest[..start]);
        out.push_str(&value.ok_or_else(missing)?);
        rest = &rest[start + length + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

/// A file that is not TOML or has a name we do not know; for the latter the nearest known name is the hint.
fn unreadable(file: &Path, error: &toml::de::Error) -> Failure {
    let failure = Failure::new("config_invalid", format!("{}: {}", file.display(), error.to_string().trim_end()));
    let mut quoted = error.message().split('`').skip(1).step_by(2);
    let (Some(unknown), known) = (quoted.next(), quoted.map(str::to_owned).collect::<Vec<_>>()) else {
        return failure;
    };
    match nearest(unknown, &known) {
        Some(near) if error.message().starts_with("unknown field") => failure.hint(format!("did you mean {near}?")),
        _ => failure,
    }
}

fn nearest<'a>(word: &str, known: &'a [String]) -> Option<&'a String> {
    let distance = |name: &&String| strsim::damerau_levenshtein(word, name);
    known.iter().min_by_key(distance).filter(|name| distance(name) <= 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, source: Option<&str>) -> Result<Policy, Failure> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("geonce.toml");
        std::fs::write(&file, text).unwrap();
        std::fs::write(folder.path().join("old.toml"), "[source.drones]\nprecision = 6\n").unwrap();
        policy(&file, source)
    }

    #[test]
    fn a_source_becomes_a_policy() {
        let text = r#"
            [store]
            url = "sqlite:geonce.db"
            [source.drones]
            identity = ["/properties/asset_id", { at = "/properties/floor", optional = true, decimals = 1 }]
            version = "/properties/observed_at"
            precision = 6
            dimensions = 2
            lines = "undirected"
            crs = "EPSG:3857"
            key_secret = "${GEONCE_TEST_UNSET:-s3cret}"
            accept = { types = ["Point"], bounds = [-10, 35, 30, 60] }
            previous = "old.toml"
            sink = "zones"
        "#;
        let policy = read(text, None).unwrap();
        assert_eq!(policy.scope, "drones");
        assert_eq!(policy.precision, 6);
        assert_eq!(policy.dimensions, Dimensions::Two);
        assert!(policy.key_secret.is_some());
        assert_eq!(policy.previous.map(|previous| previous.precision), Some(6));
        let Identity::Fields(fields) = policy.identity else { panic!("fields") };
        assert_eq!(fields[1].decimals, Some(1));
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        for (text, source, expected) in [
            ("[source.a]\nprecison = 6", None, "did you mean precision?"),
            ("[source.a]\n[source.b]", None, "choose one with --source: a, b"),
            ("[source.drones]", Some("drone"), "did you mean \"drones\"?"),
            ("[source.a]\nidentity = [\"/id\"]\nignore = [\"/x\"]", None, "both identity and ignore"),
            ("[source.a]\nkey_secret = \"${GEONCE_TEST_UNSET}\"", None, "no variable GEONCE_TEST_UNSET"),
            ("[source.a]\nidentity = [\"\"]", None, "empty pointer"),
            ("[sorce.a]", None, "did you mean source?"),
            ("x = ", None, "config_invalid"),
        ] {
            let failure = read(text, source).err().unwrap().to_string();
            assert!(failure.contains(expected), "{text}: {failure}");
        }
    }
}
