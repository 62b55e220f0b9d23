//! `geonce check`: is a configuration right? Settings, connections, `[[test]]` pairs, and what a person should think over.

mod against;
mod groups;
mod sample;

use crate::arguments::CheckArguments;
use crate::config::{self, Place, Settings, SourceSettings, TestSettings};
use crate::failure::{Failure, Outcome};
use crate::show::{self, Page, Style};
use crate::tool::{self, Tool};
use bytes::Bytes;
use geonce::clock::Timestamp;
use geonce::error::Kind;
use geonce::intake::preset::{self, Details};
use geonce::intake::{Announced, Fault, Identify, Preset};
use geonce::sink::Mode;
use geonce_key::explain::{Side, explain};
use geonce_key::policy::Identity;
use geonce_key::{Delivery, Form, Input, Keyer, Policy, Version};
use hyper::HeaderMap;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// What was found at one place.
struct Finding {
    level: Level,
    code: &'static str,
    message: String,
    hint: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    /// As it should be.
    Good,
    /// To be thought over.
    Warning,
    /// Wrong.
    Problem,
}

impl Finding {
    fn good(code: &'static str, message: String) -> Finding {
        Finding { level: Level::Good, code, message, hint: None }
    }

    fn warning(code: &'static str, message: String, hint: &str) -> Finding {
        Finding { level: Level::Warning, code, message, hint: Some(hint.to_owned()) }
    }

    fn problem(failure: &Failure) -> Finding {
        let hint = failure.hint_text().map(str::to_owned);
        Finding { level: Level::Problem, code: failure.code(), message: failure.message().to_owned(), hint }
    }

    fn to_json(&self) -> Value {
        let level = match self.level {
            Level::Good => "good",
            Level::Warning => "warning",
            Level::Problem => "problem",
        };
        json!({ "level": level, "code": self.code, "message": self.message, "hint": self.hint })
    }
}

/// Runs the command; the answer is yes if nothing is wrong.
pub(crate) fn run(arguments: &CheckArguments) -> Outcome {
    if let Some(against) = &arguments.against {
        return against::run(arguments, against);
    }
    let findings = match config::load(&arguments.place.overrides()) {
        Ok(settings) => examine(&settings)?,
        // A file that is not there is no answer about a configuration.
        Err(failure) if failure.code() == "io" => return Err(failure),
        Err(failure) => vec![Finding::problem(&failure)],
    };
    let well = findings.iter().all(|finding| finding.level != Level::Problem);
    print(&findings, well, arguments.json)?;
    Ok(well)
}

fn examine(settings: &Settings) -> Result<Vec<Finding>, Failure> {
    let from = settings.file.as_ref().map_or_else(|| "no file".to_owned(), |file| file.display().to_string());
    let (sources, sinks) = (settings.sources.len(), settings.sinks.len());
    let summary = format!("configuration: {from}, {sources} source(s), {sinks} sink(s)");
    let mut findings = vec![Finding::good("config", summary)];
    findings.extend(layouts(settings));
    findings.extend(fetching(settings));
    findings.extend(warnings(settings, show::now()));
    findings.extend(store(settings));
    let runtime = tool::runtime()?;
    for (name, sink) in &settings.sinks {
        findings.push(runtime.block_on(check_sink(name, sink, &settings.data)));
    }
    findings.extend(settings.tests.iter().flat_map(|test| run_test(test, settings)));
    Ok(findings)
}

fn print(findings: &[Finding], well: bool, json: bool) -> Result<(), Failure> {
    let mut page = Page::new();
    if json {
        let findings: Vec<Value> = findings.iter().map(Finding::to_json).collect();
        return page.print(&json!({ "well": well, "findings": findings }).to_string());
    }
    for finding in findings {
        let mark = match finding.level {
            Level::Good => page.mark(true),
            Level::Warning => page.paint(Style::Yellow, "!"),
            Level::Problem => page.mark(false),
        };
        let code = if finding.level == Level::Good { String::new() } else { format!(" [{}]", finding.code) };
        page.print(&format!("{mark} {}{code}", finding.message.replace('\n', "\n  ")))?;
        if let Some(hint) = &finding.hint {
            page.print(&format!("  hint: {hint}"))?;
        }
    }
    Ok(())
}

/// Which sources do not take features as they are.
fn layouts(settings: &Settings) -> impl Iterator<Item = Finding> {
    let laid_out = settings.sources.iter().filter(|(_, source)| source.preset != Preset::Geojson);
    laid_out.map(|(name, source)| {
        let what = if matches!(source.preset, Preset::Map(_)) { "features are made by" } else { "preset" };
        Finding::good("preset", format!("source {name}: {what} {}", source.preset.name()))
    })
}

/// Which sources fetch what their senders announce, and what a person should know of that.
fn fetching(settings: &Settings) -> Vec<Finding> {
    let mut found = Vec::new();
    for (name, source) in &settings.sources {
        let Some(fetch) = &source.fetch else { continue };
        let hosts = fetch.options.hosts.join(", ");
        let mut words = vec![format!("source {name}: changes are fetched from {hosts}")];
        words.extend(geonce::changes::check(name, &fetch.options).unwrap_or_default());
        found.push(Finding::good("fetch", words.join("; ")));
        if source.verify.is_none() {
            let message = format!("source {name}: whoever reaches the gateway makes it ask {hosts}");
            found.push(Finding::warning(
                "fetch_unsigned",
                message,
                "verify = { scheme = \"arcgis\", secret = \"${NAME}\" }",
            ));
        }
        let upsert = source.sinks.iter().any(|sink| settings.sinks[sink].options.mode != Mode::Append);
        if upsert && source.policy.delete.is_none() {
            let message = format!("source {name}: features that are deleted there keep their row here");
            found.push(Finding::warning("fetch_deletes", message, "delete = { at = \"/arcgis/deleted\" }"));
        }
    }
    found
}

/// What is allowed and yet rarely meant.
fn warnings(settings: &Settings, now: Timestamp) -> Vec<Finding> {
    let mut found = Vec::new();
    for notice in &settings.notices {
        found.push(Finding { level: Level::Warning, code: "notice", message: notice.clone(), hint: None });
    }
    let window = settings.store.options.window;
    for (name, source) in &settings.sources {
        if let Some(redelivery) = source.redelivery.filter(|redelivery| window < redelivery.mul_f64(1.3)) {
            let message = format!(
                "source {name}: its sender tries for {}, but keys are remembered for {} only",
                config::Span(redelivery),
                config::Span(window)
            );
            found.push(Finding::warning(
                "window_short",
                message,
                "store.window should be 1.3 times redelivery or more",
            ));
        }
        if source.verify.as_ref().is_some_and(|verify| {
            verify.secrets.iter().all(|secret| secret.live.until.is_some_and(|until| until <= now))
        }) {
            let message = format!("source {name}: every secret has ended, so every request is refused");
            found.push(Finding::warning("secrets_ended", message, "add the secret in use, without until"));
        }
        found.extend(moving(name, source, settings));
        found.extend(deleting(name, source, settings));
        found.extend(numbered(name, source, settings));
    }
    found
}

/// Things that move need a version: without one, a thing that comes back to a place is a duplicate of its first visit.
fn moving(name: &str, source: &config::SourceSettings, settings: &Settings) -> Option<Finding> {
    let upsert = source.sinks.iter().any(|sink| settings.sinks[sink].options.mode != Mode::Append);
    if source.arrival && upsert {
        let message = format!("source {name}: versions are by arrival, so a late, older event replaces a newer one");
        let hint = "version = \"/properties/observed_at\" if payloads say when they were true";
        return Some(Finding::warning("no_version", message, hint));
    }
    if source.policy.version.is_none() && matches!(source.policy.identity, Identity::Fields(_)) {
        let points =
            source.policy.accept.types.as_ref().is_none_or(|types| types.iter().any(|name| name.ends_with("Point")));
        let what = if points { "a thing that returns to a place" } else { "a thing that gets an earlier shape back" };
        let message = format!(
            "source {name}: events have an identity but no version, so {what} within {} is taken for a duplicate, and lost",
            config::Span(settings.store.options.window)
        );
        let hint = "for things that move or change, version = \"/properties/observed_at\"; for things that are reported once, all is well";
        return Some(Finding::warning("no_version", message, hint));
    }
    None
}

/// An entity is deleted only where entities are kept.
fn deleting(name: &str, source: &SourceSettings, settings: &Settings) -> Option<Finding> {
    let upsert = source.sinks.iter().any(|sink| settings.sinks[sink].options.mode != Mode::Append);
    (source.policy.delete.is_some() && !upsert).then(|| {
        let message = format!("source {name}: delete takes nothing away, because no sink of it keeps entities");
        Finding::warning("delete_unused", message, "mode = \"upsert\" in a sink keeps one row for each entity")
    })
}

/// What has a number for its version is never late; whether it has, the payloads of tests tell.
fn numbered(name: &str, source: &SourceSettings, settings: &Settings) -> Option<Finding> {
    source.lateness?;
    let tests = settings.tests.iter().filter(|test| test.source == name);
    let mut files = tests.flat_map(|test| test.same.iter().chain(&test.differ));
    let mut keyer = Keyer::new(&source.policy).ok()?;
    let file = files.find(|file| {
        let sent = std::fs::read(file).ok().and_then(|bytes| sent(bytes.into(), source).ok());
        let read = sent.is_some_and(|sent| keyer.key(sent.side(source).input).is_ok());
        read && matches!(keyer.version(), Some(Version::Integer(_)))
    })?;
    let message = format!("source {name}: the version in {} is a number, and numbers are never late", file.display());
    Some(Finding::warning("lateness_number", message, "lateness is for versions that are RFC 3339 times"))
}

/// Whether the store can be opened, or made.
fn store(settings: &Settings) -> Vec<Finding> {
    let url = &settings.store.url;
    if let Some(file) = tool::missing_file(url, &settings.data) {
        return vec![creatable("store", &file)];
    }
    let place = Place { file: None, data: settings.data.clone(), store: settings.store.clone() };
    let status = Tool::at(place).and_then(|tool| {
        let status = tool.wait(tool.store.status())?;
        tool.close()?;
        Ok(status)
    });
    match status {
        Ok(status) => {
            let good = Finding::good("store", format!("store: {url}, {} keys", show::count(status.keys)));
            let risk = |why: &String| {
                let message = format!("store: acknowledged events may be lost: {why}");
                Finding::warning("store_risk", message, "set the server right; store.accept_loss accepted this")
            };
            [good].into_iter().chain(status.risks.iter().map(risk)).collect()
        }
        Err(failure) if failure.code() == Kind::Missing.as_str() => {
            vec![Finding::good("store", format!("store: {url} answers; a store will be made there"))]
        }
        Err(failure) => vec![Finding::problem(&failure.within("store"))],
    }
}

async fn check_sink(name: &str, sink: &config::SinkSettings, data: &Path) -> Finding {
    if let Some(file) = tool::missing_file(&sink.url, data) {
        return creatable(&format!("sink {name}"), &file);
    }
    let checked = match geonce::sink::open(name, &sink.url, &sink.options, data) {
        Ok(sink) => {
            let checked = sink.check().await;
            // A check that went well is not undone by a file that cannot be tidied.
            let _ = sink.close().await;
            checked
        }
        Err(error) => Err(error),
    };
    match checked {
        Ok(notes) if notes.is_empty() => Finding::good("sink", format!("sink {name}: {}", sink.url)),
        Ok(notes) => Finding::good("sink", format!("sink {name}: {}; {}", sink.url, notes.join("; "))),
        Err(error) => Finding::problem(&Failure::from(error).within(&format!("sink {name}"))),
    }
}

/// A file that is not there is made by the gateway, if its nearest folder is one and can be written to.
fn creatable(what: &str, file: &Path) -> Finding {
    let nearest = file.ancestors().skip(1).map(|folder| if folder == Path::new("") { Path::new(".") } else { folder });
    let folder = nearest.into_iter().find(|folder| folder.exists()).unwrap_or(Path::new("."));
    let usable = folder.metadata().is_ok_and(|metadata| metadata.is_dir() && !metadata.permissions().readonly());
    if usable {
        return Finding::good("store", format!("{what}: {} will be made", file.display()));
    }
    let message =
        format!("{what}: {} cannot be made: {} is no folder that can be written to", file.display(), folder.display());
    Finding::problem(&Failure::new("folder", message).hint("--data names the folder"))
}

/// Compares the files of a test, each with each.
fn run_test(test: &TestSettings, settings: &Settings) -> Vec<Finding> {
    let source = &settings.sources[&test.source];
    let mut findings = Vec::new();
    for (files, same) in [(&test.same, true), (&test.differ, false)] {
        for (i, a) in files.iter().enumerate() {
            for b in &files[i + 1..] {
                findings.extend(compare(a, b, source, same, &test.name));
            }
        }
    }
    if findings.is_empty() {
        findings.push(Finding::good("test", format!("test: {}", test.name)));
    }
    findings
}

/// What is wrong with a pair, explained.
fn compare(a: &PathBuf, b: &PathBuf, source: &SourceSettings, same: bool, name: &str) -> Option<Finding> {
    let problem = |failure: Failure| Some(Finding::problem(&failure.within(&format!("test: {name}"))));
    let mut payloads = Vec::new();
    for file in [a, b] {
        let shown = file.display().to_string();
        match std::fs::read(file) {
            Ok(bytes) => match sent(bytes.into(), source) {
                Ok(sent) => payloads.push(sent),
                Err(failure) => return problem(failure.within(&shown)),
            },
            Err(error) => return problem(Failure::io(&shown, &error)),
        }
    }
    let names = [a, b].map(|file| file.display().to_string());
    match explain(&payloads[0].side(source), &payloads[1].side(source)) {
        Ok(explanation) if explanation.same == same => None,
        Ok(explanation) => {
            let verdict = if same { "should be one event" } else { "should be two events" };
            let text = explanation.to_text([&names[0], &names[1]], false);
            let message = format!("{} and {} {verdict}\n{}", names[0], names[1], text.trim_end());
            problem(Failure::new("test", message))
        }
        Err((which, error)) => {
            let file = if matches!(which, geonce_key::explain::Which::A) { &names[0] } else { &names[1] };
            problem(Failure::from(error).within(file))
        }
    }
}

/// What a test's file holds, as the source's requests are laid out.
struct Sent {
    text: Bytes,
    form: Form,
    details: Details,
    /// How it is keyed, where that is not as the source says.
    announced: Option<Policy>,
}

impl Sent {
    fn side<'a>(&'a self, source: &'a SourceSettings) -> Side<'a> {
        let own = self.details.delivery.as_ref().filter(|_| source.identify != Identify::Spatial);
        Side {
            input: Input { form: self.form, bytes: &self.text, crs: self.details.crs },
            policy: self.announced.as_ref().unwrap_or(&source.policy),
            delivery: own.map(|own| Delivery { by: &own.by, id: &own.id, index: 0 }),
        }
    }
}

fn sent(bytes: Bytes, source: &SourceSettings) -> Result<Sent, Failure> {
    let (limits, headers) = (&source.policy.limits, HeaderMap::new());
    let request = preset::Request { headers: &headers, body: &bytes, limits, features_max: 1 };
    let Some(read) = source.preset.read(&request) else {
        let form = form(&bytes);
        return Ok(Sent { text: bytes, form, details: Details::default(), announced: None });
    };
    let refused = |fault: Fault| {
        let failure = Failure::new("test", format!("{fault} at {:?}", fault.pointer));
        match fault.hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    };
    let Some(payload) = read.map_err(refused)?.payloads.pop() else {
        return Err(Failure::new("test", "there is nothing to compare"));
    };
    let details = payload.read.map_err(refused)?;
    let fetched = details.announces && source.fetch.is_some();
    let announced = fetched.then(|| Announced::new(&source.policy, "").policy);
    Ok(Sent { text: payload.text, form: Form::Json, details, announced })
}

/// How a test's file is written: text that opens a JSON object, else WKT.
fn form(bytes: &[u8]) -> Form {
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(byte) if byte.is_ascii_alphabetic() => Form::Wkt,
        Some(0 | 1) => Form::Wkb,
        _ => Form::Json,
    }
}
