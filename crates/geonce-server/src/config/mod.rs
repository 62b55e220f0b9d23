//! `geonce.toml`: everything a person can set, read once, checked, and handed on as plain data.
//!
//! Defaults < file < environment (`GEONCE_STORE__URL`) < flags. [`file`] holds names and types, [`layers`] lays one
//! over the other and knows where each setting came from, the rest turns them into [`Settings`].

mod api;
mod cache;
mod fetch;
mod file;
mod human;
mod keying;
mod layers;
mod likeness;
mod limits;
mod near;
mod order;
mod preset;
mod save;
mod sink;
mod source;
mod store;
#[cfg(test)]
mod tests;
mod url;
mod verify;
mod version;

use crate::failure::Failure;
use file::{File, IdentityField};
use geonce::sink::Mode;
use geonce_key::Pointer;
use geonce_key::policy::{Field, Identity, Secret};
use layers::{Layers, Places, nearest};
use std::collections::BTreeMap;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use api::ApiSettings;
pub(crate) use cache::CacheSettings;
pub(crate) use fetch::FetchSettings;
pub(crate) use human::{Distance, Span};
pub(crate) use keying::{Keying, keyings};
pub(crate) use layers::Environment;
#[cfg(test)]
use likeness::policy_in;
pub(crate) use likeness::{Likeness, likeness, policy};
pub(crate) use limits::{LimitsSettings, LogFormat, LogSettings};
pub(crate) use sink::SinkSettings;
pub(crate) use source::{OnStoreDown, SourceSettings};
pub(crate) use store::StoreSettings;
use url::Url;
pub(crate) use verify::VerifySettings;

/// The file that is looked for where none is named.
pub(crate) const FILE: &str = "geonce.toml";
/// The folder of stores and sinks where none is named.
pub(crate) const DATA: &str = "geonce-data";
/// Where the gateway listens where nothing is said: this machine only.
pub(crate) const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8787);
/// How a secret is shown that has no name to show.
pub(crate) const HIDDEN: &str = "(hidden)";
/// The longest name of a source or a sink.
const NAME_BYTES_MAX: usize = 64;

/// What there is without a file.
const WITHOUT_FILE: &str = "[source.default]\nallow_unsigned = true\n";
/// The sink there is where no sink is configured.
const WITHOUT_SINK: &str = "features";
const WITHOUT_SINK_URL: &str = "gpkg:features.gpkg";

/// What flags say, the last layer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    /// The configuration file.
    pub(crate) config: Option<PathBuf>,
    /// The folder of stores and sinks.
    pub(crate) data: Option<PathBuf>,
    /// Where to listen.
    pub(crate) listen: Option<SocketAddr>,
    /// The store.
    pub(crate) store: Option<String>,
}

/// Everything that is in force.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The file it was read from, if there is one.
    pub(crate) file: Option<PathBuf>,
    /// Files of stores and sinks are relative to this folder.
    pub(crate) data: PathBuf,
    /// Where the gateway listens.
    pub(crate) listen: SocketAddr,
    /// What this gateway is called among several.
    pub(crate) instance: String,
    pub(crate) store: StoreSettings,
    /// What is before the store, if there is something.
    pub(crate) cache: Option<CacheSettings>,
    pub(crate) sources: BTreeMap<String, SourceSettings>,
    pub(crate) sinks: BTreeMap<String, SinkSettings>,
    pub(crate) limits: LimitsSettings,
    pub(crate) log: LogSettings,
    pub(crate) api: ApiSettings,
    pub(crate) tests: Vec<TestSettings>,
    /// What a person should know: settings without effect, sources that anybody may write to.
    pub(crate) notices: Vec<String>,
}

/// Where a store is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The configuration file, if there is one.
    pub(crate) file: Option<PathBuf>,
    /// Files of stores are relative to this folder.
    pub(crate) data: PathBuf,
    pub(crate) store: StoreSettings,
}

impl Place {
    /// The journal beside the store.
    pub(crate) fn journal(&self) -> Place {
        let store =
            StoreSettings { url: Url::new(format!("sqlite:{}", crate::gateway::JOURNAL)), ..self.store.clone() };
        Place { store, ..self.clone() }
    }
}

/// Payloads that `check` compares.
#[derive(Clone, Debug)]
pub(crate) struct TestSettings {
    /// What is shown by it.
    pub(crate) name: String,
    pub(crate) source: String,
    /// These are one event.
    pub(crate) same: Vec<PathBuf>,
    /// These are all different.
    pub(crate) differ: Vec<PathBuf>,
}

/// Everything in force under `overrides` in this process's environment.
pub(crate) fn load(overrides: &Overrides) -> Result<Settings, Failure> {
    load_in(overrides, &Environment::of_process(), Path::new(""))
}

/// Where the store is. Nothing else is read, so that tools need none of the gateway's secrets.
pub(crate) fn place(overrides: &Overrides) -> Result<Place, Failure> {
    let environment = Environment::of_process();
    let (file, layers) = layers_of(overrides, &environment, Path::new(""), &|path| path[0] == "store")?;
    let reading = Reading { places: &layers.places, folder: Path::new(""), environment: &environment };
    let store = reading.store(layers.file.store, overrides)?;
    Ok(Place { file, data: data_folder(overrides, &environment), store })
}

/// The token of the API, where one is configured. Nothing else is read.
pub(crate) fn api_token(overrides: &Overrides) -> Result<Option<Secret>, Failure> {
    let environment = Environment::of_process();
    let (file, layers) = layers_of(overrides, &environment, Path::new(""), &|path| path[0] == "api")?;
    let folder = file.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
    let reading = Reading { places: &layers.places, folder, environment: &environment };
    let token = layers.file.api.token.map(|source| reading.secret(source, "api.token")).transpose()?;
    Ok(token.map(|(secret, _)| secret))
}

/// The same as [`load`] with the environment and the current folder given.
fn load_in(overrides: &Overrides, environment: &Environment, current: &Path) -> Result<Settings, Failure> {
    let (file, layers) = layers_of(overrides, environment, current, &|_| true)?;
    let folder = file.as_deref().map_or(current, |file| file.parent().unwrap_or(Path::new("")));
    let reading = Reading { places: &layers.places, folder, environment };
    let listen = match (overrides.listen, environment.get("GEONCE_LISTEN")) {
        (Some(listen), _) => listen,
        (None, Some(text)) => text.parse().map_err(|_| {
            Failure::new("config_environment", format!("GEONCE_LISTEN: {text:?} is no address and port"))
                .hint("such as 127.0.0.1:8787")
        })?,
        (None, None) => LISTEN,
    };
    let mut settings = reading.settings(layers.file, overrides, data_folder(overrides, environment), listen)?;
    settings.instance = instance(environment)?;
    if file.is_none() && !listen.ip().is_loopback() {
        return Err(Failure::new("config_listen", format!("{listen} is open to others, and nothing is configured"))
            .hint(format!("write a {FILE} that says who may send; without one geonce listens on this machine only")));
    }
    settings.file = file;
    Ok(settings)
}

fn layers_of(
    overrides: &Overrides,
    environment: &Environment,
    current: &Path,
    needed: &dyn Fn(&[&str]) -> bool,
) -> Result<(Option<PathBuf>, Layers), Failure> {
    let here = current.join(FILE);
    let file = overrides.config.clone().or_else(|| here.is_file().then_some(here));
    let (name, text) = match &file {
        Some(file) => (file.display().to_string(), read_bounded(file, layers::FILE_BYTES_MAX)?),
        None => ("without a file".to_owned(), WITHOUT_FILE.to_owned()),
    };
    let layers = layers::read(&name, &text, environment, needed)?;
    Ok((file, layers))
}

/// What `GEONCE_INSTANCE` calls this gateway; else the machine's name and the process's number.
fn instance(environment: &Environment) -> Result<String, Failure> {
    match environment.get("GEONCE_INSTANCE") {
        Some(name) if is_name(name) => Ok(name.to_owned()),
        Some(name) => Err(Failure::new("config_environment", format!("GEONCE_INSTANCE: {name:?}: {}", name_rule()))),
        None => Ok(geonce::store::own_name().to_string()),
    }
}

fn is_name(name: &str) -> bool {
    let letters = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let starts = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    starts && name.len() <= NAME_BYTES_MAX && name.bytes().all(letters)
}

fn name_rule() -> String {
    format!("a name has 1 to {NAME_BYTES_MAX} letters, digits, '-', '_' and '.'")
}

fn data_folder(overrides: &Overrides, environment: &Environment) -> PathBuf {
    let said = overrides.data.clone().or_else(|| environment.get("GEONCE_DATA").map(PathBuf::from));
    said.unwrap_or_else(|| PathBuf::from(DATA))
}

/// A file that is being turned into settings.
struct Reading<'a> {
    places: &'a Places,
    /// Files named in the configuration are relative to this folder.
    folder: &'a Path,
    environment: &'a Environment,
}

impl Reading<'_> {
    /// What is wrong with the value of a setting.
    fn refuse(&self, path: &str, message: &str) -> Failure {
        self.places.refuse("config_value", path, message)
    }

    /// Refuses a setting of a later release.
    fn not_yet(&self, path: &str, given: bool, now: &str) -> Result<(), Failure> {
        if !given {
            return Ok(());
        }
        let message = format!("this is not in this release: {now}");
        Err(self.places.refuse("config_not_yet", path, &message).hint("take the setting away"))
    }

    /// The outcome of reading the value at `path`, with its place.
    fn at<T>(&self, path: &str, outcome: Result<T, impl Into<Failure>>) -> Result<T, Failure> {
        outcome.map_err(|error| {
            let failure: Failure = error.into();
            let refused = self.refuse(path, failure.message());
            match failure.hint_text() {
                Some(hint) => refused.hint(hint),
                None => refused,
            }
        })
    }

    fn longer_than_zero(&self, span: Option<Span>, default: Duration, path: &str) -> Result<Duration, Failure> {
        match span {
            Some(Span(Duration::ZERO)) => Err(self.refuse(path, "this must be longer than nothing")),
            span => Ok(span.map_or(default, |span| span.0)),
        }
    }

    fn settings(
        &self,
        file: File,
        overrides: &Overrides,
        data: PathBuf,
        listen: SocketAddr,
    ) -> Result<Settings, Failure> {
        let mut notices = Vec::new();
        if file.admin.is_some() {
            notices.push("[admin] has no effect: the token of the API is in [api]".to_owned());
        }
        let store = self.store(file.store, overrides)?;
        let cache = file.cache.map(|cache| self.cache(cache, store.options.window)).transpose()?;
        let limits = self.limits(&file.limits)?;
        let sinks = self.sinks(file.sink, store.options.window)?;
        if file.source.is_empty() {
            return Err(self.refuse("source", "there is no source").hint("add [source.NAME]"));
        }
        let only_sink = if sinks.len() == 1 { sinks.keys().next().map(String::as_str) } else { None };
        let mut sources = BTreeMap::new();
        for (name, source) in file.source {
            self.name("source", &name)?;
            let settings = self.source(&name, source, &limits.payload, only_sink, store.options.window)?;
            if settings.verify.is_none() {
                notices.push(format!("source {name} is unsigned: whoever reaches the gateway may send to it"));
            }
            sources.insert(name, settings);
        }
        let tests = self.tests(file.test, &sources)?;
        let log = limits::log(&file.log);
        if cache.is_none() && sources.values().any(|source: &SourceSettings| !source.cache) {
            notices.push("cache = false has no effect: there is no [cache]".to_owned());
        }
        let instance = String::new();
        let api = self.api(file.api, listen)?;
        let mut settings = Settings {
            file: None,
            data,
            listen,
            instance,
            store,
            cache,
            sources,
            sinks,
            limits,
            log,
            api,
            tests,
            notices,
        };
        self.bodies_fit(&settings)?;
        self.sinks_exist(&settings)?;
        self.scopes_share_sinks(&settings)?;
        self.near_fits(&settings)?;
        self.sinks_follow(&settings)?;
        self.orders(&settings)?;
        self.upsert(&mut settings)?;
        self.spilling(&settings)?;
        Ok(settings)
    }

    fn sinks(
        &self,
        mut sinks: BTreeMap<String, file::Sink>,
        window: Duration,
    ) -> Result<BTreeMap<String, SinkSettings>, Failure> {
        if sinks.is_empty() {
            let sink = file::Sink { url: Some(WITHOUT_SINK_URL.to_owned()), ..file::Sink::default() };
            sinks.insert(WITHOUT_SINK.to_owned(), sink);
        }
        let settings = sinks.into_iter().map(|(name, sink)| {
            self.name("sink", &name)?;
            let sink = self.sink(&name, sink, window)?;
            Ok((name, sink))
        });
        settings.collect()
    }

    /// Names of sources and sinks are parts of addresses, of metrics and of layers.
    fn name(&self, section: &str, name: &str) -> Result<(), Failure> {
        if is_name(name) {
            return Ok(());
        }
        Err(self.refuse(&format!("{section}.{name}"), &name_rule()))
    }

    fn bodies_fit(&self, settings: &Settings) -> Result<(), Failure> {
        let buffered = settings.limits.receiver.buffered_bytes_max;
        match settings.sources.iter().find(|(_, source)| source.body_bytes_max > buffered) {
            Some((name, _)) => Err(self
                .refuse(&format!("source.{name}.body_max"), "one body is larger than all of them together may be")
                .hint("raise limits.buffered_bytes_max, or lower body_max")),
            None => Ok(()),
        }
    }

    fn sinks_exist(&self, settings: &Settings) -> Result<(), Failure> {
        let known: Vec<&str> = settings.sinks.keys().map(String::as_str).collect();
        for (name, source) in &settings.sources {
            if let Some(missing) = source.sinks.iter().find(|sink| !settings.sinks.contains_key(*sink)) {
                let failure = self.refuse(&format!("source.{name}.sink"), &format!("there is no sink {missing:?}"));
                return Err(failure.hint(match nearest(missing, &known) {
                    Some(near) => format!("did you mean {near:?}?"),
                    None => format!("there are: {}", known.join(", ")),
                }));
            }
        }
        Ok(())
    }

    /// An event of one source may be a duplicate of the other's, so that only one of them is delivered: it must not
    /// matter which.
    fn scopes_share_sinks(&self, settings: &Settings) -> Result<(), Failure> {
        let mut by_scope: BTreeMap<&str, (&str, Vec<&String>, bool)> = BTreeMap::new();
        for (name, source) in &settings.sources {
            let mut sinks: Vec<&String> = source.sinks.iter().collect();
            sinks.sort();
            let fetches = source.fetch.is_some();
            let entry = by_scope.entry(&source.policy.scope);
            let (first, expected, fetch) = entry.or_insert_with(|| (name, sinks.clone(), fetches));
            if *expected != sinks {
                let message = format!("the scope {:?} is {first}'s too, but the sinks differ", source.policy.scope);
                return Err(self
                    .refuse(&format!("source.{name}.scope"), &message)
                    .hint("sources that share a scope share their sinks: one event is delivered once"));
            }
            if *fetch != fetches {
                let message =
                    format!("the scope {:?} is {first}'s too, but only one of them fetches", source.policy.scope);
                return Err(self
                    .refuse(&format!("source.{name}.scope"), &message)
                    .hint("an announcement that both get is fetched, or is not"));
            }
        }
        Ok(())
    }

    /// Rows of entities need to know which event is newer, and which entity it is about.
    fn upsert(&self, settings: &mut Settings) -> Result<(), Failure> {
        for (sink_name, sink) in &mut settings.sinks {
            if sink.options.mode == Mode::Append {
                continue;
            }
            let mut by_arrival: Option<(&str, bool)> = None;
            for (name, source) in settings.sources.iter().filter(|(_, source)| source.sinks.contains(sink_name)) {
                let path = format!("source.{name}.version");
                if source.policy.version.is_none() && !source.arrival {
                    let message =
                        format!("the sink {sink_name} keeps the latest version of each entity, so events need one");
                    return Err(self
                        .refuse(&path, &message)
                        .hint("version = \"/properties/observed_at\", or \"arrival\" if the last to arrive may win"));
                }
                if sink.entity.is_none() && matches!(source.policy.identity, Identity::Whole { .. }) {
                    let message = format!("the sink {sink_name} keeps one row for each entity, and nothing names one");
                    return Err(self
                        .refuse(&format!("sink.{sink_name}.entity"), &message)
                        .hint("entity = [\"/properties/asset_id\"], or identity in the source"));
                }
                let (first, arrival) = *by_arrival.get_or_insert((name, source.arrival));
                if arrival != source.arrival {
                    let message = format!(
                        "of the sources of the sink {sink_name}, {first} and {name} differ in whether versions are by arrival"
                    );
                    return Err(self.refuse(&path, &message));
                }
                sink.options.mode = Mode::Upsert { arrival };
            }
        }
        Ok(())
    }

    fn tests(
        &self,
        tests: Vec<file::Test>,
        sources: &BTreeMap<String, SourceSettings>,
    ) -> Result<Vec<TestSettings>, Failure> {
        let tests = tests.into_iter().enumerate().map(|(i, test)| {
            let path = format!("test[{i}]");
            let source = match (test.source, sources.len()) {
                (Some(source), _) => source,
                (None, 1) => sources.keys().next().cloned().unwrap_or_default(),
                (None, _) => return Err(self.refuse(&format!("{path}.source"), "there are several sources: say which")),
            };
            if !sources.contains_key(&source) {
                return Err(self.refuse(&format!("{path}.source"), &format!("there is no source {source:?}")));
            }
            if test.same.len().max(test.differ.len()) < 2 || test.same.len() == 1 || test.differ.len() == 1 {
                return Err(self.refuse(&path, "a test names at least two files that are the same, or that differ"));
            }
            let beside = |files: Vec<String>| files.iter().map(|file| self.folder.join(file)).collect();
            Ok(TestSettings { name: test.name, source, same: beside(test.same), differ: beside(test.differ) })
        });
        tests.collect()
    }
}

/// The fields of an identity or an entity.
fn fields(fields: Vec<IdentityField>) -> Result<Vec<Field>, geonce_key::Error> {
    let field = |field| {
        Ok(match field {
            IdentityField::Pointer(text) => Field::required(Pointer::parse(&text)?),
            IdentityField::Table(table) => {
                Field { at: Pointer::parse(&table.at)?, optional: table.optional, decimals: table.decimals }
            }
        })
    };
    fields.into_iter().map(field).collect()
}

/// The text of a file of at most `bytes_max` bytes.
fn read_bounded(file: &Path, bytes_max: u64) -> Result<String, Failure> {
    let shown = file.display().to_string();
    let failure = |error: std::io::Error| Failure::io(&shown, &error);
    let opened = std::fs::File::open(file).map_err(failure)?;
    let mut text = String::new();
    opened.take(bytes_max + 1).read_to_string(&mut text).map_err(failure)?;
    if text.len() as u64 > bytes_max {
        return Err(Failure::new("config_size", format!("{shown} has more than {bytes_max} bytes")));
    }
    Ok(text)
}
