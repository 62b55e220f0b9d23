//! Flags of the commands that look into a store: `check`, `events`, `dead`, `doctor`.

use crate::config::Overrides;
use crate::failure::Failure;
use clap::{Args, Subcommand};
use geonce::clock::Timestamp;
use geonce::event::{EventId, Outcome, State};
use geonce::store::Filter;
use geonce_key::{Fingerprint, Version};
use std::path::PathBuf;

/// Which store and which configuration.
#[derive(Args)]
pub(crate) struct PlaceArguments {
    /// Configuration file [default: geonce.toml, if there is one here].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Folder of the store and of files that sinks write [default: ./geonce-data].
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,

    /// The store [default: the configuration's, or sqlite:geonce.db].
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
}

impl PlaceArguments {
    /// As the last layer of a configuration.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            config: self.config.clone(),
            data: self.data.clone(),
            store: self.store.clone(),
            ..Overrides::default()
        }
    }
}

#[derive(Args)]
pub(crate) struct CheckArguments {
    /// Compare with this earlier configuration instead: which events would merge or split under the policies of today?
    #[arg(long, value_name = "FILE")]
    pub(crate) against: Option<PathBuf>,

    /// Events to compare with: a file, `-` for standard input, or `@store` for those whose payloads the store has
    /// [default: @store].
    #[arg(long, value_name = "FILE", requires = "against")]
    pub(crate) sample: Option<PathBuf>,

    /// The source that the events of the sample came in through [default: the only one].
    #[arg(long, value_name = "NAME", requires = "against")]
    pub(crate) source: Option<String>,

    /// At most this many events of the sample: the first of a file, the latest of the store.
    #[arg(long, value_name = "N", requires = "against", default_value_t = 100_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) limit: u64,

    /// One JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) place: PlaceArguments,
}

/// Which events are meant. Every condition must hold.
#[derive(Args)]
pub(crate) struct FilterArguments {
    /// Only of this source.
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,

    /// Only with this code, such as `conflict`.
    #[arg(long)]
    pub(crate) code: Option<String>,

    /// Received at this time or later: `2h` for two hours ago, or a time such as 2026-11-15T08:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,

    /// Received before this time.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
}

impl FilterArguments {
    /// The filter these flags describe.
    pub(crate) fn filter(&self, now: Timestamp) -> Result<Filter, Failure> {
        Ok(Filter {
            source: self.source.clone(),
            code: self.code.clone(),
            since: self.since.as_deref().map(|text| moment_of(text, now, "--since")).transpose()?,
            until: self.until.as_deref().map(|text| moment_of(text, now, "--until")).transpose()?,
            ..Filter::default()
        })
    }

    /// Whether nothing was said.
    pub(crate) fn is_empty(&self) -> bool {
        self.source.is_none() && self.code.is_none() && self.since.is_none() && self.until.is_none()
    }
}

/// A time that was written as such, to the millisecond, or as so long ago.
pub(crate) fn moment(text: &str, now: Timestamp) -> Option<Timestamp> {
    if let Ok(span) = text.parse::<crate::config::Span>() {
        return Some(now.minus(span.0));
    }
    match Version::parse(text)? {
        Version::Time { seconds, fraction } => {
            let millis = format!("{fraction:0<3}").get(..3)?.parse::<i64>().ok()?;
            Some(Timestamp::from_millis(seconds.saturating_mul(1_000).saturating_add(millis)))
        }
        Version::Integer(_) => None,
    }
}

fn moment_of(text: &str, now: Timestamp, flag: &str) -> Result<Timestamp, Failure> {
    moment(text, now).ok_or_else(|| {
        Failure::new("usage", format!("{flag} {text:?} is no time"))
            .hint("2h for two hours ago, or a time such as 2026-11-15T08:00:00Z")
    })
}

/// The events that an id or a key names.
pub(crate) fn named(text: &str) -> Result<Filter, Failure> {
    if let Ok(id) = text.parse::<EventId>() {
        return Ok(Filter { id: Some(id), ..Filter::default() });
    }
    match Fingerprint::key_of_text(text) {
        Some(key) => Ok(Filter { key: Some(key), ..Filter::default() }),
        None => Err(Failure::new("usage", format!("{text:?} is neither an event nor a key"))
            .hint("an event is evt_ and 26 characters, a key g1_ and 22 characters or hexadecimal digits")),
    }
}

#[derive(Subcommand)]
pub(crate) enum EventsCommand {
    /// List events, the latest first.
    List(EventsListArguments),
    /// Show everything that is known about an event.
    Show(ShowArguments),
}

#[derive(Args)]
pub(crate) struct EventsListArguments {
    #[command(flatten)]
    pub(crate) filter: FilterArguments,

    /// Only in this state: ready, leased, done or dead.
    #[arg(long, value_parser = state)]
    pub(crate) state: Option<State>,

    /// Only done with this outcome: applied, stale, near or repaired.
    #[arg(long, value_parser = outcome)]
    pub(crate) outcome: Option<Outcome>,

    /// At most this many.
    #[arg(long, default_value_t = 50, value_name = "N")]
    pub(crate) limit: usize,

    /// One JSON object per event instead of a table.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) place: PlaceArguments,
}

fn state(word: &str) -> Result<State, String> {
    State::from_word(word).ok_or_else(|| words(State::ALL.iter().map(|state| state.as_str())))
}

fn outcome(word: &str) -> Result<Outcome, String> {
    Outcome::from_word(word).ok_or_else(|| words(Outcome::ALL.iter().map(|outcome| outcome.as_str())))
}

fn words<'a>(known: impl Iterator<Item = &'a str>) -> String {
    format!("one of {}", known.collect::<Vec<_>>().join(", "))
}

#[derive(Args)]
pub(crate) struct ShowArguments {
    /// The event (`evt_…`) or its key (`g1_…`).
    pub(crate) name: String,

    /// One JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) place: PlaceArguments,
}

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DeadArguments {
    #[command(subcommand)]
    pub(crate) command: Option<DeadCommand>,

    #[command(flatten)]
    pub(crate) list: DeadListArguments,
}

#[derive(Subcommand)]
pub(crate) enum DeadCommand {
    /// List dead events by code, with what would help. So does `geonce dead` alone.
    List(DeadListArguments),
    /// Show a dead event, its payload, and the place in it that is to blame.
    Show(ShowArguments),
    /// Mend dead events: each becomes a new one, and is done itself.
    ///
    /// Without --with, what is known to mend such events is done. What would be done is shown with --dry-run: the geometry
    /// before and after, how area and vertices change, the new key, and whether that is known already.
    ///
    /// Where a gateway runs on an embedded store, it does the work, and is followed to its end; the same for replay and purge.
    ///
    /// Exit code 0: all repaired, 1: some or all not, 2: usage, 130: ended by Ctrl-C.
    Repair(DeadRepairArguments),
    /// Make dead events ready again, with no attempts used.
    ///
    /// Exit code 0: done, 1: not done, 2: usage, 130: ended by Ctrl-C.
    Replay(DeadChangeArguments),
    /// Remove dead events for good. Their keys are free again: sent once more, they are accepted.
    ///
    /// Exit code 0: done, 1: not done, 2: usage, 130: ended by Ctrl-C.
    Purge(DeadChangeArguments),
    /// Print dead events as NDJSON, with cause and original payload.
    Export(DeadExportArguments),
}

#[derive(Args)]
pub(crate) struct DeadListArguments {
    #[command(flatten)]
    pub(crate) filter: FilterArguments,

    /// List every event instead of one line for each code; at most this many.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,

    /// One JSON object per line of the table.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) place: PlaceArguments,
}

/// How a person agrees to a change.
#[derive(Args)]
pub(crate) struct ConsentArguments {
    /// Do it without asking.
    #[arg(long)]
    pub(crate) yes: bool,

    /// Only say what would be done.
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
}

/// Which dead events a change is for.
#[derive(Args)]
pub(crate) struct DeadChoiceArguments {
    /// These events (`evt_…`) only.
    #[arg(value_name = "EVENT")]
    pub(crate) events: Vec<String>,

    /// All dead events; needed where nothing else says which.
    #[arg(long, conflicts_with = "events")]
    pub(crate) all: bool,

    #[command(flatten)]
    pub(crate) filter: FilterArguments,

    /// At most so many events in a second, such as 50/s or 100/min.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) rate: Option<f64>,
}

impl DeadChoiceArguments {
    /// The filters that these flags describe, all of dead events.
    pub(crate) fn filters(&self, word: &str, now: Timestamp) -> Result<Vec<Filter>, Failure> {
        if self.events.is_empty() && self.filter.is_empty() && !self.all {
            return Err(Failure::new("usage", format!("say which dead events to {word}"))
                .hint("events by id, --code, --source, --since, --until, or --all"));
        }
        let base = Filter { state: Some(State::Dead), ..self.filter.filter(now)? };
        if self.events.is_empty() {
            return Ok(vec![base]);
        }
        let filter = |name: &String| named(name).map(|Filter { id, key, .. }| Filter { id, key, ..base.clone() });
        self.events.iter().map(filter).collect()
    }
}

/// Events in a second.
fn rate(text: &str) -> Result<f64, String> {
    let (number, per) = text.split_once('/').unwrap_or((text, "s"));
    let seconds = match per.trim() {
        "s" | "sec" | "second" => 1.0,
        "m" | "min" | "minute" => 60.0,
        "h" | "hour" => 3_600.0,
        _ => return Err("a rate is events per time, such as 50/s or 100/min".to_owned()),
    };
    match number.trim().parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number / seconds),
        _ => Err("a rate is events per time, such as 50/s or 100/min".to_owned()),
    }
}

#[derive(Args)]
pub(crate) struct DeadChangeArguments {
    #[command(flatten)]
    pub(crate) which: DeadChoiceArguments,

    #[command(flatten)]
    pub(crate) consent: ConsentArguments,

    #[command(flatten)]
    pub(crate) place: PlaceArguments,
}

#[derive(Args)]
pub(crate) struct DeadRepairArguments {
    #[command(flatten)]
    pub(crate) which: DeadChoiceArguments,

    /// What to do: grid, close-rings, drop-spikes, swap-axes, reproject-from=EPSG, clip, clip=W/S/E/N, drop-z; several are
    /// separated by commas [default: what is known to mend each event].
    #[arg(long, value_name = "CHOICES")]
    pub(crate) with: Option<String>,

    /// One JSON object per event instead of text.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) consent: ConsentArguments,

    #[command(flatten)]
    pub(crate) place: PlaceArguments,
}

#[derive(Args)]
pub(crate) struct DeadExportArguments {
    #[command(flatten)]
    pub(crate) filter: FilterArguments,

    #[command(flatten)]
    pub(crate) place: PlaceArguments,
}

#[derive(Args)]
pub(crate) struct DoctorArguments {
    /// Make every key again from its payload, with a second hash, and compare.
    #[arg(long)]
    pub(crate) audit: bool,

    /// Compare what the store says was applied with what the sinks can prove, both ways.
    #[arg(long)]
    pub(crate) reconcile: bool,

    /// One JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) place: PlaceArguments,
}
