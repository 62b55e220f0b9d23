//! Reads `geonce.toml`, fills in variables, lays the environment over it, and remembers where each setting came from.
//!
//! Values are never part of a message about a secret. Everything that is wrong is said with its file and line, or
//! with its variable, and its path.

use super::file::File;
use crate::failure::Failure;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The largest configuration file that is read.
pub(super) const FILE_BYTES_MAX: u64 = 4 << 20;
/// What the names of our variables begin with.
const PREFIX: &str = "GEONCE_";
/// What stands between the parts of a path in the name of a variable.
const SEPARATOR: &str = "__";
/// Settings whose values are never shown.
const SECRETS: [&str; 3] = ["secret", "key_secret", "token"];

/// The variables of the environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Those of this process. Names and values that are no text are left out.
    pub(crate) fn of_process() -> Environment {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Environment(std::env::vars_os().filter_map(text).collect())
    }

    /// These.
    #[cfg(test)]
    pub(super) fn of(variables: &[(&str, &str)]) -> Environment {
        Environment(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    /// The value of a variable.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Variables that are settings, with the path they set.
    fn settings(&self) -> impl Iterator<Item = (&str, Vec<&str>, &str)> {
        self.0.iter().filter_map(|(name, value)| {
            let path: Vec<&str> = name.strip_prefix(PREFIX)?.split(SEPARATOR).collect();
            (path.len() > 1).then_some((name.as_str(), path, value.as_str()))
        })
    }
}

/// Where a setting came from.
#[derive(Clone, Debug)]
struct Origin {
    /// Its line in the file, or the variable that set it.
    at: At,
    /// The variable it is a reference to and nothing else.
    reference: Option<String>,
}

#[derive(Clone, Debug)]
enum At {
    Line(usize),
    Variable(String),
}

/// Where every setting came from, by path (`source.drones.precision`).
#[derive(Clone, Debug)]
pub(super) struct Places {
    name: String,
    origins: BTreeMap<String, Origin>,
}

impl Places {
    /// What is wrong with the setting at `path`.
    pub(super) fn refuse(&self, code: &'static str, path: &str, message: &str) -> Failure {
        Failure::new(code, format!("{}: {path}: {message}", self.place(path)))
    }

    /// The file and line of a setting, of what it is part of if it is absent, or its variable.
    fn place(&self, path: &str) -> String {
        let mut known = path;
        loop {
            match self.origins.get(known).map(|origin| &origin.at) {
                Some(At::Line(line)) => return format!("{}:{line}", self.name),
                Some(At::Variable(variable)) => return variable.clone(),
                None => match known.rfind(['.', '[']) {
                    Some(end) => known = &known[..end],
                    None => return self.name.clone(),
                },
            }
        }
    }

    /// The variable a setting is taken from, where it is nothing but that.
    pub(super) fn reference(&self, path: &str) -> Option<&str> {
        self.origins.get(path)?.reference.as_deref()
    }
}

/// What the layers come to.
pub(super) struct Layers {
    pub(super) file: File,
    pub(super) places: Places,
}

/// Reads `text` of the file called `name` under `environment`. A variable that is missing is an error where the
/// setting is `needed`; elsewhere the setting is left out.
pub(super) fn read(
    name: &str,
    text: &str,
    environment: &Environment,
    needed: &dyn Fn(&[&str]) -> bool,
) -> Result<Layers, Failure> {
    let table = DeTable::parse(text).map_err(|error| {
        let place = error.span().map_or_else(|| name.to_owned(), |span| format!("{name}:{}", line(text, span.start)));
        Failure::new("config_invalid", format!("{place}: {}", error.message().trim_end()))
            .hint("this is not TOML; text values stand in quotes")
    })?;
    let span = table.span();
    let mut reader = Reader {
        text,
        environment,
        needed,
        spans: Vec::new(),
        variables: Vec::new(),
        places: Places { name: name.to_owned(), origins: BTreeMap::new() },
    };
    let mut table = table.into_inner();
    reader.index(&table, "");
    reader.fill(&mut table, &mut Vec::new())?;
    for (variable, path, value) in environment.settings() {
        reader.overlay(&mut table, variable, &path, value)?;
    }
    let file = File::deserialize(toml::Deserializer::from(Spanned::new(span, table)));
    match file {
        Ok(file) => Ok(Layers { file, places: reader.places }),
        Err(error) => Err(reader.unreadable(&error)),
    }
}

struct Reader<'t> {
    text: &'t str,
    environment: &'t Environment,
    needed: &'t dyn Fn(&[&str]) -> bool,
    /// Where every key and value of the file is.
    spans: Vec<(String, Range<usize>, Range<usize>)>,
    /// Variables that were laid over the file. Their values have the spans after the file's text, one byte each.
    variables: Vec<(String, String)>,
    places: Places,
}

impl<'t> Reader<'t> {
    fn index(&mut self, table: &DeTable<'_>, path: &str) {
        for (key, value) in table {
            let path = joined(path, key.get_ref());
            self.index_value(value, key.span(), &path);
        }
    }

    fn index_value(&mut self, value: &Spanned<DeValue<'_>>, key: Range<usize>, path: &str) {
        let at = At::Line(line(self.text, key.start));
        self.places.origins.insert(path.to_owned(), Origin { at, reference: None });
        self.spans.push((path.to_owned(), key, value.span()));
        match value.get_ref() {
            DeValue::Table(table) => self.index(table, path),
            DeValue::Array(array) => {
                for (i, item) in array.iter().enumerate() {
                    self.index_value(item, item.span(), &format!("{path}[{i}]"));
                }
            }
            _ => {}
        }
    }

    /// Replaces variables in every setting of a table; those that miss one and are not needed are removed.
    fn fill(&mut self, table: &mut DeTable<'_>, path: &mut Vec<String>) -> Result<(), Failure> {
        let mut without = Vec::new();
        for (key, value) in table.iter_mut() {
            path.push(key.get_ref().to_string());
            let sections = if matches!(path[0].as_str(), "source" | "sink") { 3 } else { 2 };
            match value.get_mut() {
                DeValue::Table(inner) if path.len() < sections => self.fill(inner, path)?,
                setting => {
                    let shown = path.join(".");
                    if let Err(missing) = self.fill_value(setting, &shown) {
                        let parts: Vec<&str> = path.iter().map(String::as_str).collect();
                        if (self.needed)(&parts) {
                            let message = format!("the environment has no variable {}", missing.variable);
                            return Err(self
                                .places
                                .refuse("config_variable", &missing.path, &message)
                                .hint(format!("set it, or give a default: ${{{}:-default}}", missing.variable)));
                        }
                        without.push(key.get_ref().to_string());
                    }
                }
            }
            path.pop();
        }
        for name in without {
            table.remove(name.as_str());
        }
        Ok(())
    }

    fn fill_value(&mut self, value: &mut DeValue<'_>, path: &str) -> Result<(), Missing> {
        match value {
            DeValue::String(text) => {
                let missing = |variable: &str| Missing { variable: variable.to_owned(), path: path.to_owned() };
                if let Some(origin) = self.places.origins.get_mut(path) {
                    origin.reference = only_reference(text).map(str::to_owned);
                }
                let filled = substitute(text, self.environment).map_err(missing)?;
                *text = Cow::Owned(filled);
                Ok(())
            }
            DeValue::Array(array) => array
                .iter_mut()
                .enumerate()
                .try_for_each(|(i, item)| self.fill_value(item.get_mut(), &format!("{path}[{i}]"))),
            DeValue::Table(table) => table.iter_mut().try_for_each(|(key, item)| {
                let path = joined(path, key.get_ref());
                self.fill_value(item.get_mut(), &path)
            }),
            _ => Ok(()),
        }
    }

    /// Sets what a variable says.
    fn overlay(
        &mut self,
        table: &mut DeTable<'t>,
        variable: &str,
        path: &[&str],
        value: &'t str,
    ) -> Result<(), Failure> {
        let refuse = |message: String| {
            Err(Failure::new("config_environment", format!("{variable}: {message}"))
                .hint("a setting's variable is its path, such as GEONCE_SOURCE__DRONES__PRECISION"))
        };
        if path.iter().any(|part| part.is_empty()) {
            return refuse("a part of the path is empty".to_owned());
        }
        // Values from the environment have places behind the end of the file.
        let start = self.text.len() + 1 + self.variables.len();
        let span = start..start + 1;
        let mut table = table;
        let mut shown = String::new();
        let (last, sections) = path.split_last().unwrap_or((&"", &[]));
        for part in sections {
            let name = name_in(table, part);
            shown = joined(&shown, &name);
            let key = Spanned::new(span.clone(), Cow::Owned(name));
            let next = table.entry(key).or_insert(Spanned::new(span.clone(), DeValue::Table(DeTable::new())));
            match next.get_mut() {
                DeValue::Table(inner) => table = inner,
                _ => return refuse(format!("{shown} is no table")),
            }
        }
        let name = name_in(table, last);
        shown = joined(&shown, &name);
        let parsed = if SECRETS.contains(&name.as_str()) { None } else { typed(value) };
        let value = placed(parsed.unwrap_or(DeValue::String(Cow::Borrowed(value))), &span);
        table.remove(name.as_str());
        table.insert(Spanned::new(span, Cow::Owned(name)), value);
        let origin = Origin { at: At::Variable(variable.to_owned()), reference: Some(variable.to_owned()) };
        let inside = format!("{shown}.");
        self.places.origins.retain(|path, _| !path.starts_with(&inside));
        self.places.origins.insert(shown.clone(), origin);
        self.variables.push((variable.to_owned(), shown));
        Ok(())
    }

    /// A name we do not know, or a value of the wrong type.
    fn unreadable(&self, error: &toml::de::Error) -> Failure {
        let start = error.span().map_or(0, |span| span.start);
        let from_variable = start.checked_sub(self.text.len() + 1).and_then(|i| self.variables.get(i));
        let path = match from_variable {
            Some((_, path)) => path.clone(),
            None => self
                .spans
                .iter()
                .filter(|(_, key, value)| key.contains(&start) || value.contains(&start))
                .max_by_key(|(path, ..)| path.len())
                .map_or_else(String::new, |(path, ..)| path.clone()),
        };
        let message = error.message();
        if is_secret(&path) && !message.starts_with("unknown field") {
            let message = "a secret is text, { file = \"…\" }, or a list of { secret = …, until = … }";
            return self.places.refuse("config_value", &path, message);
        }
        let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
        if let ([unknown, known @ ..], true) = (quoted.as_slice(), message.starts_with("unknown field")) {
            let path = up_to(&path, unknown).unwrap_or_else(|| joined(&path, unknown));
            let failure = self.places.refuse("config_unknown", &path, "there is no such setting");
            return failure.hint(match nearest(unknown, known) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("known here: {}", known.join(", ")),
            });
        }
        if path.is_empty() {
            return Failure::new("config_invalid", format!("{}: {message}", self.places.name));
        }
        let failure = self.places.refuse("config_value", &path, message);
        match (from_variable, quoted.as_slice()) {
            (_, [unknown, known @ ..]) if message.starts_with("unknown variant") => {
                match nearest(&unknown.to_lowercase(), known) {
                    Some(near) => failure.hint(format!("did you mean {near:?}?")),
                    None => failure,
                }
            }
            (Some((variable, _)), _) if message.ends_with("expected a string") => {
                failure.hint(format!("for text that looks like a number, quote it twice: {variable}='\"…\"'"))
            }
            _ => failure,
        }
    }
}

/// A variable that is not there.
struct Missing {
    variable: String,
    path: String,
}

fn is_secret(path: &str) -> bool {
    path.split(['.', '[', ']']).any(|part| SECRETS.contains(&part))
}

/// The path as far as its last part of this name: below an unknown table everything is unknown.
fn up_to(path: &str, name: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('.').collect();
    let last = parts.iter().rposition(|part| *part == name)?;
    Some(parts[..=last].join("."))
}

fn joined(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The name in `table` that a part of a variable's name means: case does not count, and `_` stands for `-` too.
fn name_in(table: &DeTable<'_>, part: &str) -> String {
    let plain = |name: &str| name.to_lowercase().replace('-', "_");
    let known = table.keys().map(|key| key.get_ref().to_string()).find(|name| plain(name) == plain(part));
    known.unwrap_or_else(|| part.to_lowercase())
}

/// What the text of a variable is in TOML, where it is anything but bare text.
fn typed(text: &str) -> Option<DeValue<'_>> {
    let value = DeValue::parse(text.trim()).ok()?.into_inner();
    (!matches!(value, DeValue::Datetime(_))).then_some(value)
}

/// The value with every part of it at `span`.
fn placed<'t>(value: DeValue<'t>, span: &Range<usize>) -> Spanned<DeValue<'t>> {
    let value = match value {
        DeValue::Array(mut array) => {
            for item in array.iter_mut() {
                let inner = std::mem::replace(item.get_mut(), DeValue::Boolean(false));
                *item = placed(inner, span);
            }
            DeValue::Array(array)
        }
        DeValue::Table(table) => {
            let mut moved = DeTable::new();
            for (key, value) in table {
                moved.insert(Spanned::new(span.clone(), key.into_inner()), placed(value.into_inner(), span));
            }
            DeValue::Table(moved)
        }
        other => other,
    };
    Spanned::new(span.clone(), value)
}

fn line(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|&&byte| byte == b'\n').count() + 1
}

/// The variable's name where the text is `${NAME}` and nothing else.
fn only_reference(text: &str) -> Option<&str> {
    let name = text.strip_prefix("${")?.strip_suffix('}')?;
    (!name.contains([':', '$', '}'])).then_some(name)
}

/// Replaces `${NAME}` and `${NAME:-default}` by the environment's values; the name of one that is missing otherwise.
fn substitute<'a>(text: &'a str, environment: &Environment) -> Result<String, &'a str> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let Some(length) = rest[start..].find('}') else { break };
        let inside = &rest[start + 2..start + length];
        let (name, default) = inside.split_once(":-").map_or((inside, None), |(name, default)| (name, Some(default)));
        out.push_str(&rest[..start]);
        out.push_str(environment.get(name).or(default).ok_or(name)?);
        rest = &rest[start + length + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

/// The known name that was probably meant.
pub(super) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let distance = |name: &&&str| strsim::damerau_levenshtein(word, name);
    known.iter().min_by_key(distance).filter(|name| distance(name) <= 2).copied()
}
