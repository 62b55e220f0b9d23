//! `geonce load`: from flags to requests, and from reports to lines, JSON and an exit code.

mod progress;
mod sources;

use crate::arguments::{
    FormatArgument, InvalidArgument, KeyByArgument, LoadArguments, ModeArgument, PagesArgument, parse_crs,
};
use crate::config;
use crate::failure::Failure;
use crate::runner::Runner;
use crate::show::{self, Page, Style, count};
use geonce::clock::SystemClock;
use geonce::event::Cause;
use geonce::load::fetch::{FetchOptions, Paging};
use geonce::load::target::Mode;
use geonce::load::{Flaw, Invalid, KeyBy, Loader, Outcome, Progress, Report, Request, TargetCrs, Trouble};
use geonce_files::{Format, GeometryColumns};
use geonce_key::policy::{AssumedCrs, Field, Identity};
use geonce_key::{Pointer, Policy};
use progress::Shown;
use serde_json::json;
use sources::Source;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Exit codes beside those of every command.
const BUSY: u8 = 75;
const INTERRUPTED: u8 = 130;
/// How long another runner of the same load is waited for.
const WAIT: Duration = Duration::from_hours(24 * 7);

/// Runs the command.
pub(crate) fn run(arguments: &LoadArguments) -> Result<ExitCode, Failure> {
    let Some((destination, given)) = arguments.paths.split_last() else {
        return Err(Failure::new("usage", "a source and a destination are needed"));
    };
    let destination = destination_url(destination)?;
    let policy = policy(arguments)?;
    let runner = Runner::open(&arguments.place)?;
    let spool = runner.place.data.join("spool");
    let fetching = fetching(arguments)?;
    let loader = Loader::new(Arc::clone(&runner.store), Arc::new(SystemClock)).with_lease(arguments.lease.0);
    let mut sources = Vec::new();
    for argument in given {
        if sources::is_address(argument) {
            sources.push(runner.block_on(async {
                let named = sources::unfetched(argument, &fetching)?;
                let request = request(arguments, &named, &destination, policy.clone())?;
                if is_known(arguments, &loader, &request).await? {
                    return Ok(named);
                }
                sources::fetched(argument, &fetching, &spool, arguments.src_crs.is_some()).await
            })?);
        } else {
            sources.extend(sources::expand(argument, &spool)?);
        }
    }
    if sources.len() > 1 && arguments.mode == ModeArgument::Replace {
        return Err(Failure::new("usage", format!("{} sources would replace each other", sources.len()))
            .hint("load the first with --mode replace, and the others with --mode append"));
    }
    let stop = Arc::new(Notify::new());
    let waiting = Arc::clone(&stop);
    runner.block_on(async {
        tokio::spawn(interrupted(waiting));
    });
    let mut code = 0;
    let mut reports = Vec::new();
    for source in &sources {
        let request = request(arguments, source, &destination, policy.clone())?;
        let done = runner.block_on(one(arguments, &loader, &request, &stop));
        let ended = done.map_err(|trouble| {
            let failure = of_trouble(trouble);
            let says = failure.message().contains(&source.name);
            if says { failure } else { failure.within(&show::escaped(&source.name)) }
        })?;
        let said = say(arguments, &request, &ended)?;
        code = code.max(said);
        reports.push(ended);
        if said == BUSY || said == INTERRUPTED {
            break;
        }
    }
    if let Some(file) = &arguments.report {
        write_report(file, &reports)?;
    }
    drop(sources);
    runner.close()?;
    Ok(ExitCode::from(code))
}

/// Whether a source is loaded, as far as its name alone tells.
async fn is_known(arguments: &LoadArguments, loader: &Loader, request: &Request) -> Result<bool, Failure> {
    if request.key_by != KeyBy::Uri || arguments.force || arguments.dry_run {
        return Ok(false);
    }
    let looked = loader.look(request).await.map_err(of_trouble)?;
    Ok(loader.find(&looked).await.map_err(of_trouble)?.is_some())
}

fn fetching(arguments: &LoadArguments) -> Result<FetchOptions, Failure> {
    let mut options = FetchOptions {
        secret_parameters: arguments.secret_param.clone(),
        first_page_only: arguments.first_page_only,
        paging: match (arguments.pages, &arguments.page_token, &arguments.page_param) {
            (_, Some(pointer), Some(parameter)) => {
                Some(Paging::Token { pointer: pointer.clone(), parameter: parameter.clone() })
            }
            (Some(PagesArgument::Auto), ..) => Some(Paging::Auto),
            (Some(PagesArgument::Links), ..) => Some(Paging::Links),
            (Some(PagesArgument::Arcgis), ..) => Some(Paging::ArcGis),
            _ => None,
        },
        ..FetchOptions::default()
    };
    for header in &arguments.header {
        options.add_header(header)?;
    }
    Ok(options)
}

/// How one source ended.
enum Ended {
    Loaded(Box<Report>),
    Already(Box<Report>),
    Rehearsed(Box<Report>),
    Running(String),
    Dead(Cause),
    Interrupted,
}

async fn one(arguments: &LoadArguments, loader: &Loader, request: &Request, stop: &Notify) -> Result<Ended, Trouble> {
    let progress = Arc::new(Progress::default());
    let looked = loader.look(request).await?;
    if looked.trusted {
        eprintln!("{}: size, time and inode are unchanged; it was not read again", show::escaped(&request.source));
    }
    let shown = Shown::start(&request.source, arguments.progress, Arc::clone(&progress));
    let ended = if arguments.dry_run {
        Ended::Rehearsed(Box::new(loader.rehearse(request, &looked, &progress).await?))
    } else {
        match loader.load(request, &looked, &progress, stop).await {
            Ok(Outcome::Loaded(report)) => Ended::Loaded(report),
            Ok(Outcome::Already(report)) => Ended::Already(report),
            Ok(Outcome::Running(event)) => Ended::Running(event.to_string()),
            Ok(Outcome::Dead(cause)) => Ended::Dead(cause),
            Ok(Outcome::Interrupted) => Ended::Interrupted,
            Err(trouble) => return Err(trouble),
        }
    };
    drop(shown);
    Ok(ended)
}

/// Waits for Ctrl-C or a request to end, and passes it on.
async fn interrupted(stop: Arc<Notify>) {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
        else {
            return;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
    #[cfg(not(unix))]
    let _ = tokio::signal::ctrl_c().await;
    stop.notify_one();
}

fn request(arguments: &LoadArguments, source: &Source, destination: &str, policy: Policy) -> Result<Request, Failure> {
    let layer =
        arguments.layer.clone().or_else(|| arguments.source_layer.clone()).unwrap_or_else(|| source.stem.clone());
    let current = Path::new("");
    let crs = |text: &str| match parse_crs(text)? {
        AssumedCrs::Code(code) => Ok(code),
        AssumedCrs::Required => Err(Failure::new("usage", "a coordinate system is needed, such as EPSG:25832")),
    };
    Ok(Request {
        file: source.file.clone(),
        source: source.name.clone(),
        uri: source.uri.clone(),
        modified: source.modified,
        files: geonce_files::Options {
            format: arguments.format.map(format),
            layer: arguments.source_layer.clone(),
            encoding: arguments.encoding.clone(),
            columns: columns(&arguments.geometry)?,
            limits: policy.limits.clone(),
        },
        query: source.query.clone(),
        destination: destination.to_owned(),
        destination_name: geonce::load::destination_name(destination, current)?,
        folder: current.to_owned(),
        layer,
        mode: match arguments.mode {
            ModeArgument::Append => Mode::Append,
            ModeArgument::Upsert => Mode::Upsert { arrival: policy.version.is_none() },
            ModeArgument::Replace => Mode::Replace,
        },
        source_crs: arguments.src_crs.as_deref().map(crs).transpose()?,
        target_crs: match arguments.dst_crs.as_deref() {
            None => TargetCrs::Default,
            Some("same") => TargetCrs::Same,
            Some(text) => TargetCrs::Code(crs(text)?),
        },
        policy,
        invalid: match arguments.invalid {
            InvalidArgument::Reject => Invalid::Reject,
            InvalidArgument::Dead => Invalid::Dead,
            InvalidArgument::Repair => Invalid::Repair,
        },
        key_by: match arguments.key_by {
            KeyByArgument::Content => KeyBy::Content,
            KeyByArgument::Uri => KeyBy::Uri,
            KeyByArgument::UriAndTime => KeyBy::UriAndTime,
        },
        period: arguments.period.map(|period| period.0),
        trust_mtime: arguments.trust_mtime,
        chunk: arguments.chunk,
        force: arguments.force,
        retry: arguments.retry,
        wait: if arguments.no_wait { Duration::ZERO } else { WAIT },
        retries: arguments.retries,
        timeout: arguments.timeout.0,
    })
}

/// The destination as the engine names it.
fn destination_url(text: &str) -> Result<String, Failure> {
    let lower = text.to_ascii_lowercase();
    if lower.starts_with("postgresql://") || lower.starts_with("postgres://") || lower.starts_with("gpkg:") {
        return Ok(text.to_owned());
    }
    if Path::new(&lower).extension().is_some_and(|extension| extension == "gpkg") {
        return Ok(format!("gpkg:{text}"));
    }
    Err(Failure::new("destination", format!("{} is no destination", show::escaped(text)))
        .hint("the last argument is a GeoPackage such as parcels.gpkg, or postgresql://localhost/gis"))
}

fn policy(arguments: &LoadArguments) -> Result<Policy, Failure> {
    let mut policy = match (&arguments.source, config::place(&arguments.place.overrides())?.file) {
        (Some(source), Some(file)) => config::policy(&file, Some(source))?,
        (Some(source), None) => {
            return Err(Failure::new(
                "config_source",
                format!("there is no configuration file with a source {source}"),
            )
            .hint("--config names it"));
        }
        (None, _) => Policy::default(),
    };
    if policy.feature.take().is_some() {
        eprintln!("note: the envelope of source {} means nothing for files", arguments.source.as_deref().unwrap_or(""));
    }
    if !arguments.identity.is_empty() {
        let fields = arguments.identity.iter().map(|field| pointer(field).map(Field::required));
        policy.identity = Identity::Fields(fields.collect::<Result<_, _>>()?);
    }
    if let Some(version) = &arguments.version {
        policy.version = Some(pointer(version)?);
    }
    policy.precision = arguments.precision.unwrap_or(policy.precision);
    policy.approximate_crs |= arguments.approximate_crs;
    if arguments.mode == ModeArgument::Upsert && matches!(policy.identity, Identity::Whole { .. }) {
        return Err(Failure::new("usage", "upsert needs to know what names an entity")
            .hint("--identity parcel_id, or another field that each feature has"));
    }
    geonce_key::Keyer::new(&policy)?;
    Ok(policy)
}

/// A field by its name, or by a pointer into the Feature.
fn pointer(text: &str) -> Result<Pointer, Failure> {
    if text == "/id" || text.starts_with("/properties/") || text.starts_with("/geometry") {
        return Ok(Pointer::parse(text)?);
    }
    let name = text.strip_prefix('/').unwrap_or(text);
    Ok(Pointer::parse(&format!("/properties/{}", name.replace('~', "~0").replace('/', "~1")))?)
}

fn columns(names: &[String]) -> Result<Option<GeometryColumns>, Failure> {
    match names {
        [] => Ok(None),
        [wkt] => Ok(Some(GeometryColumns::Wkt(wkt.clone()))),
        [x, y] => Ok(Some(GeometryColumns::Ordinates(x.clone(), y.clone()))),
        _ => Err(Failure::new("usage", "--geometry takes one column (WKT) or two (x,y)")),
    }
}

fn format(format: FormatArgument) -> Format {
    match format {
        FormatArgument::Geojson => Format::GeoJson,
        FormatArgument::Ndjson => Format::GeoJsonSequence,
        FormatArgument::Shapefile => Format::Shapefile,
        FormatArgument::Geopackage => Format::GeoPackage,
        FormatArgument::Flatgeobuf => Format::FlatGeobuf,
        FormatArgument::Csv => Format::Csv,
        FormatArgument::Geoparquet => Format::GeoParquet,
    }
}

fn of_trouble(trouble: Trouble) -> Failure {
    match trouble {
        Trouble::Engine(error) => Failure::from(error),
        Trouble::Input(error) => {
            let failure = Failure::new(error.code(), error.message().to_owned());
            match error.hint_text() {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        }
    }
}

impl Ended {
    fn json(&self, request: &Request) -> serde_json::Value {
        let of = |outcome: &str, report: &Report| {
            let mut value = serde_json::to_value(report).unwrap_or_default();
            value["outcome"] = outcome.into();
            value
        };
        let mut value = match self {
            Ended::Loaded(report) => of("loaded", report),
            Ended::Already(report) => of("already", report),
            Ended::Rehearsed(report) => of("dry_run", report),
            Ended::Running(event) => json!({ "outcome": "running", "event": event }),
            Ended::Dead(cause) => json!({ "outcome": "dead", "code": cause.code, "message": cause.message }),
            Ended::Interrupted => json!({ "outcome": "interrupted" }),
        };
        value["source"] = request.source.clone().into();
        value
    }

    fn report(&self) -> Option<&Report> {
        match self {
            Ended::Loaded(report) | Ended::Already(report) | Ended::Rehearsed(report) => Some(report),
            _ => None,
        }
    }

    fn code(&self) -> u8 {
        match self {
            Ended::Running(_) => BUSY,
            Ended::Dead(_) => 1,
            Ended::Interrupted => INTERRUPTED,
            _ => u8::from(self.report().is_some_and(|report| report.rejected > 0)),
        }
    }
}

/// Says what became of a source; the exit code for it.
fn say(arguments: &LoadArguments, request: &Request, ended: &Ended) -> Result<u8, Failure> {
    let mut page = Page::new();
    if arguments.json {
        page.print(&ended.json(request).to_string())?;
        return Ok(ended.code());
    }
    let source = show::escaped(&request.source);
    match ended {
        Ended::Loaded(report) => say_loaded(&mut page, &source, report)?,
        Ended::Rehearsed(report) => {
            let good = report.features - report.rejected - report.dead;
            page.print(&format!(
                "{source} · EPSG:{} → {} · {} of {} features would be loaded     load {}",
                report.crs[0],
                report.crs[1],
                count(good),
                count(report.features),
                report.load
            ))?;
            say_flaws(&mut page, report)?;
        }
        Ended::Already(report) => {
            let rows = report.inserted + report.updated + report.unchanged;
            let rows = format!("{} rows, {}", count(rows), show::escaped(&report.table));
            let when =
                if report.finished.is_empty() { String::new() } else { format!(" finished {}", report.finished) };
            page.print(&format!("already loaded: {}{when} ({rows}). Nothing to do.", report.load))?;
            say_flaws(&mut page, report)?;
        }
        Ended::Running(event) => eprintln!("{source}: another runner is loading it ({event})"),
        Ended::Dead(cause) => {
            eprintln!("error: {source} failed before: {} [{}]", show::escaped(&cause.message), cause.code);
            eprintln!("hint: mend the file, or try it again with --retry");
        }
        Ended::Interrupted => eprintln!("{source}: interrupted; what was not committed is undone"),
    }
    Ok(ended.code())
}

fn say_loaded(page: &mut Page, source: &str, report: &Report) -> Result<(), Failure> {
    for notice in &report.notices {
        eprintln!("note: {source}: {}", show::escaped(notice));
    }
    page.print(&format!(
        "{source} · EPSG:{} → {} · {} features → {}",
        report.crs[0],
        report.crs[1],
        count(report.features),
        show::escaped(&report.table)
    ))?;
    let mut parts = vec![
        format!("inserted {}", count(report.inserted)),
        format!("updated {}", count(report.updated)),
        format!("unchanged {}", count(report.unchanged)),
        format!("dead {}", count(report.dead)),
    ];
    for (name, number) in [("stale", report.stale), ("rejected", report.rejected), ("repaired", report.repaired)] {
        if number > 0 {
            parts.push(format!("{name} {}", count(number)));
        }
    }
    page.print(&format!("{}     load {}", page.paint(Style::Bold, &parts.join(" · ")), report.load))?;
    say_flaws(page, report)
}

fn say_flaws(page: &mut Page, report: &Report) -> Result<(), Failure> {
    if report.codes.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = report.codes.iter().map(|(code, number)| vec![count(*number), show::escaped(code)]).collect();
    page.table(&["features", "code"], &rows)?;
    for Flaw { number, code, pointer, message } in &report.samples {
        let place = if pointer.is_empty() { String::new() } else { format!(" at {pointer}") };
        page.print(&format!("  feature {number}: {} [{code}]{place}", show::escaped(message)))?;
    }
    Ok(())
}

fn write_report(file: &Path, ended: &[Ended]) -> Result<(), Failure> {
    let all: Vec<_> = ended
        .iter()
        .filter_map(Ended::report)
        .map(|report| {
            let mut value = serde_json::to_value(report).unwrap_or_default();
            value["flaws"] = json!(report.flaws);
            value
        })
        .collect();
    let text = match all.as_slice() {
        [one] => serde_json::to_string_pretty(one),
        several => serde_json::to_string_pretty(several),
    };
    let text = text.map_err(|error| Failure::new("internal", error.to_string()))?;
    std::fs::write(file, text + "\n").map_err(|error| Failure::io(&file.display().to_string(), &error))
}
