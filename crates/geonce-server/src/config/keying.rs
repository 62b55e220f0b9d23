//! How the sources of a configuration file are keyed, and nothing else of it: comparing two files needs none of their
//! secrets, sinks or stores.

use super::{Environment, Layers, Reading, layers, preset, read_bounded};
use crate::config::file::IdentifyWord;
use crate::failure::Failure;
use geonce::intake::{Identify, Preset};
use geonce_key::Policy;
use std::collections::BTreeMap;
use std::path::Path;

/// How events of a source are keyed.
#[derive(Clone, Debug)]
pub(crate) struct Keying {
    pub(crate) policy: Policy,
    /// How requests are laid out.
    pub(crate) preset: Preset,
    pub(crate) identify: Identify,
}

/// How the sources of a file are keyed; only `source`, where one is named.
pub(crate) fn keyings(file: &Path, source: Option<&str>) -> Result<BTreeMap<String, Keying>, Failure> {
    let environment = Environment::of_process();
    let text = read_bounded(file, layers::FILE_BYTES_MAX)?;
    let needed = |path: &[&str]| match path {
        ["limits", ..] => true,
        ["source", name, setting, ..] => {
            !matches!(*setting, "verify" | "fetch") && source.is_none_or(|source| source == *name)
        }
        _ => false,
    };
    let Layers { file: read, places } = layers::read(&file.display().to_string(), &text, &environment, &needed)?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let reading = Reading { places: &places, folder, environment: &environment };
    let limits = reading.limits(&read.limits)?.payload;
    let mut keyings = BTreeMap::new();
    for (name, settings) in read.source.into_iter().filter(|(name, _)| source.is_none_or(|source| source == name)) {
        let preset = reading.preset(&name, &settings)?;
        let identify = match settings.identify {
            None => preset::identify(&preset),
            Some(IdentifyWord::Auto) => Identify::Auto,
            Some(IdentifyWord::Spatial) => Identify::Spatial,
            Some(IdentifyWord::Delivery) => Identify::Delivery,
        };
        let policy = reading.policy(&name, settings, &limits, true)?;
        keyings.insert(name, Keying { policy, preset, identify });
    }
    Ok(keyings)
}
