//! What a load is known by: `docs/load-key.md`.

use super::{Request, TargetCrs};
use crate::clock::Timestamp;
use crate::error::{Error, Kind, Result};
use geonce_files::{Format, GeometryColumns};
use geonce_key::policy::{Detail, Dimensions, Identity, Lines, Parts, Unicode};
use geonce_key::{Encoding, Fingerprint, Policy};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;
use tokio_postgres::config::Host;

/// What the bytes of a load's key begin with.
const PREFIX: &[u8] = b"geonce load 1\0";

/// What of a source tells whether it is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyBy {
    /// Its bytes.
    #[default]
    Content,
    /// Its name.
    Uri,
    /// Its name and the time of its last change.
    UriAndTime,
}

/// The part of the key that the source gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The digest of its bytes.
    Content([u8; 32]),
    /// Its name, and the time of its last change in milliseconds.
    Uri(String, Option<i64>),
}

/// The key of a load.
pub(super) fn load_key(request: &Request, origin: &Origin, now: Timestamp) -> Fingerprint {
    let (origin, query) = match origin {
        Origin::Content(digest) => (json!({ "content": hex(digest) }), request.query.as_ref()),
        // The name says it all, and is known before anything is fetched.
        Origin::Uri(uri, time) => (json!({ "uri": uri, "time": time }), None),
    };
    let parts = json!({
        "destination": request.destination_name,
        "invalid": request.invalid.as_str(),
        "layer": request.layer,
        "mode": request.mode.as_str(),
        "period": request.period.map(|period| period_of(now, period)),
        "policy": policy(&request.policy),
        "query": query,
        "reading": reading(&request.files),
        "source": origin,
        "source_crs": request.source_crs,
        "source_layer": request.files.layer,
        "target_crs": match request.target_crs {
            TargetCrs::Default => Value::Null,
            TargetCrs::Same => "same".into(),
            TargetCrs::Code(code) => code.into(),
        },
    });
    let mut digest = Sha256::new();
    digest.update(PREFIX);
    digest.update(sorted(&parts).to_string());
    Fingerprint::from_digest(digest.finalize().into(), false)
}

/// A destination as the key has it: the same for whoever writes to it, and nothing secret.
pub fn destination_name(url: &str, folder: &Path) -> Result<String> {
    if let Some(file) = url.strip_prefix("gpkg:") {
        let file = folder.join(file);
        let parent = file.parent().map(|parent| parent.canonicalize().unwrap_or_else(|_| parent.to_owned()));
        let file = match (parent, file.file_name()) {
            (Some(parent), Some(name)) => parent.join(name),
            _ => file,
        };
        return Ok(format!("gpkg:{}", file.display()));
    }
    let wrong = |error| Error::new(Kind::Invalid, "the destination").because(error);
    let config: tokio_postgres::Config = url.parse().map_err(wrong)?;
    let hosts = config.get_hosts().iter().zip(config.get_ports().iter().chain(std::iter::repeat(&5432)));
    let hosts = hosts.map(|(host, port)| match host {
        Host::Tcp(host) => format!("{}:{port}", host.to_ascii_lowercase()),
        #[cfg(unix)]
        Host::Unix(path) => format!("{}:{port}", path.display()),
    });
    let name = config.get_dbname().or(config.get_user()).unwrap_or_default();
    Ok(format!("postgresql://{}/{name}", hosts.collect::<Vec<_>>().join(",")))
}

/// A load's key as people see it.
pub fn load_text(key: &Fingerprint) -> String {
    let text = key.text(Encoding::Base64);
    format!("ld_{}", text.split_once('_').map_or("", |(_, digits)| digits))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// When the period that `now` is in began.
fn period_of(now: Timestamp, period: Duration) -> i64 {
    let millis = i64::try_from(period.as_millis()).unwrap_or(i64::MAX).max(1);
    now.millis().div_euclid(millis).saturating_mul(millis)
}

/// How a file is read, over what it says itself.
fn reading(options: &geonce_files::Options) -> Value {
    json!({
        "columns": match &options.columns {
            None => Value::Null,
            Some(GeometryColumns::Wkt(name)) => json!([name]),
            Some(GeometryColumns::Ordinates(x, y)) => json!([x, y]),
        },
        "encoding": options.encoding,
        "format": options.format.map(|format| match format {
            Format::GeoJson => "geojson",
            Format::GeoJsonSequence => "ndjson",
            Format::Shapefile => "shapefile",
            Format::GeoPackage => "geopackage",
            Format::FlatGeobuf => "flatgeobuf",
            Format::Csv => "csv",
            Format::GeoParquet => "geoparquet",
        }),
    })
}

/// Everything of a policy that a key of a feature, or whether one is taken, depends on.
fn policy(policy: &Policy) -> Value {
    let identity = match &policy.identity {
        Identity::Whole { ignore } => json!({ "ignore": ignore.iter().map(ToString::to_string).collect::<Vec<_>>() }),
        Identity::Fields(fields) => fields
            .iter()
            .map(|field| json!({ "at": field.at.as_str(), "optional": field.optional, "decimals": field.decimals }))
            .collect(),
    };
    let mut settings = json!({
        "accept": { "bounds": policy.accept.bounds, "schema": policy.accept.schema, "types": policy.accept.types },
        "approximate_crs": policy.approximate_crs,
        "close_rings": policy.close_rings,
        "dimensions": match policy.dimensions {
            Dimensions::Delivered => "delivered",
            Dimensions::Two => "two",
            Dimensions::Three => "three",
        },
        "identity": identity,
        "key_secret": policy.key_secret.as_ref().map(|secret| hex(&Sha256::digest(secret.bytes()))),
        "lines": match policy.lines { Lines::Directed => "directed", Lines::Undirected => "undirected" },
        "parts": match policy.parts { Parts::Sorted => "sorted", Parts::Ordered => "ordered" },
        "precision": policy.precision,
        "precision_z": policy.precision_z,
        "scope": policy.scope,
        "unicode": match policy.unicode { Unicode::Exact => "exact", Unicode::Nfc => "nfc" },
        "version": policy.version.as_ref().map(ToString::to_string),
    });
    // Added later: where it is not said, loads are known by what they always were.
    if policy.shape != Detail::Exact {
        settings["shape"] = json!(policy.shape.name());
    }
    settings
}

/// The same value with the members of every object in the order of their names.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut names: Vec<_> = members.keys().collect();
            names.sort();
            names.into_iter().map(|name| (name.clone(), sorted(&members[name]))).collect()
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Origin, destination_name, load_key, load_text, period_of};
    use crate::clock::Timestamp;
    use crate::load::tests::request;
    use std::path::Path;
    use std::time::Duration;

    /// A published key never changes: whoever has a record of a load finds it under this.
    #[test]
    fn the_key_of_a_load_is_what_it_was() {
        let mut one = request(Path::new("zones.geojson"), Path::new("/tmp/zones.gpkg"));
        let now = Timestamp::from_millis(1_794_744_131_000);
        assert_eq!(load_text(&load_key(&one, &Origin::Content([7; 32]), now)), "ld_c9gfaxybJAXTLRiy8DQcvw");
        let by_name = Origin::Uri("/tmp/zones.geojson".to_owned(), Some(5));
        assert_eq!(load_text(&load_key(&one, &by_name, now)), "ld_cAB4DtpR7Ck0jhIB-G9w5Q");
        one.period = Some(Duration::from_hours(24));
        assert_eq!(load_text(&load_key(&one, &Origin::Content([7; 32]), now)), "ld_7xpjywfMZGtNVOdmJ2iVkw");
    }

    #[test]
    fn periods_begin_at_whole_multiples() {
        let day = Duration::from_hours(24);
        assert_eq!(period_of(Timestamp::from_millis(86_400_000 + 5), day), 86_400_000);
        assert_eq!(period_of(Timestamp::from_millis(-1), day), -86_400_000);
    }

    #[test]
    fn a_destination_is_called_the_same_whoever_writes_to_it() {
        let here = Path::new("/nowhere");
        for url in ["postgresql://ada:secret@DB/gis", "postgresql://bob@db:5432/gis?connect_timeout=3"] {
            assert_eq!(destination_name(url, here).unwrap(), "postgresql://db:5432/gis");
        }
        assert_eq!(destination_name("gpkg:a.gpkg", here).unwrap(), "gpkg:/nowhere/a.gpkg");
        assert!(destination_name("postgresql://[", here).is_err());
    }
}
