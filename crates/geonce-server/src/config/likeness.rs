//! What makes two payloads of a source alike, and nothing else of its file: comparing two needs no secrets and no store.

use super::file::Names;
use super::{Environment, Layers, Reading, fields, layers, nearest, read_bounded};
use crate::failure::Failure;
use geonce::delivery::near::Near;
use geonce_key::Policy;
use geonce_key::policy::Field;
use std::path::Path;

/// What makes two payloads alike.
#[derive(Clone, Debug, Default)]
pub(crate) struct Likeness {
    /// What makes them the same event.
    pub(crate) policy: Policy,
    /// What makes them near, where that is looked for.
    pub(crate) near: Option<Near>,
    /// The fields that name an entity at the source's first sink, where it says so.
    pub(crate) entity: Option<Vec<Field>>,
}

/// What makes payloads of `source` in the file alike, or of its only source.
pub(crate) fn likeness(file: &Path, source: Option<&str>) -> Result<Likeness, Failure> {
    likeness_in(file, source, &Environment::of_process(), true)
}

/// The policy of `source` in the file, or of its only source.
pub(crate) fn policy(file: &Path, source: Option<&str>) -> Result<Policy, Failure> {
    policy_in(file, source, &Environment::of_process(), true)
}

/// The same with the environment given.
pub(super) fn policy_in(
    file: &Path,
    source: Option<&str>,
    environment: &Environment,
    with_previous: bool,
) -> Result<Policy, Failure> {
    Ok(likeness_in(file, source, environment, with_previous)?.policy)
}

fn likeness_in(
    file: &Path,
    source: Option<&str>,
    environment: &Environment,
    with_previous: bool,
) -> Result<Likeness, Failure> {
    let shown = file.display().to_string();
    let text = read_bounded(file, layers::FILE_BYTES_MAX)?;
    // Keys need no signatures, sinks or stores: a variable that is missing there does not matter.
    let needed = |path: &[&str]| match path {
        ["limits", ..] | ["sink", _, "entity", ..] => true,
        ["source", name, setting, ..] => {
            !matches!(*setting, "verify" | "fetch") && source.is_none_or(|source| source == *name)
        }
        _ => false,
    };
    let Layers { mut file, places } = layers::read(&shown, &text, environment, &needed)?;
    let folder = Path::new(&shown).parent().unwrap_or(Path::new(""));
    let reading = Reading { places: &places, folder, environment };
    let names: Vec<String> = file.source.keys().cloned().collect();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    let name = match (source, known.as_slice()) {
        (Some(name), _) => name,
        (None, [only]) => only,
        (None, _) => {
            return Err(Failure::new("config_source", format!("{shown} has {} sources", names.len()))
                .hint(format!("choose one with --source: {}", names.join(", "))));
        }
    };
    let Some(mut settings) = file.source.remove(name) else {
        let failure = Failure::new("config_source", format!("{shown} has no source {name:?}"));
        let hint = nearest(name, &known).map(|near| format!("did you mean {near:?}?"));
        return Err(failure.hint(hint.unwrap_or_else(|| format!("it has: {}", names.join(", ")))));
    };
    let limits = reading.limits(&file.limits)?.payload;
    let near = settings.near.take().map(|near| reading.near(name, near)).transpose()?;
    let sink = match (settings.sink.take(), file.sink.keys().next()) {
        (Some(Names::One(sink)), _) => Some(sink),
        (Some(Names::Several(sinks)), _) => sinks.into_iter().next(),
        (None, only) => only.cloned(),
    };
    let entity = sink.and_then(|sink| Some((format!("sink.{sink}.entity"), file.sink.remove(&sink)?.entity?)));
    let entity = entity.map(|(path, entity)| reading.at(&path, fields(entity))).transpose()?;
    let policy = reading.policy(name, settings, &limits, with_previous)?;
    Ok(Likeness { policy, near, entity })
}
