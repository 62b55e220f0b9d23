//! What changes of many dead events share, whoever carries them out: consent, progress, Ctrl-C, and what is said at the end.

use super::way::{Asked, Ended, Planned, Watch, Way};
use crate::api::Kind;
use crate::arguments::ConsentArguments;
use crate::failure::Failure;
use crate::show::{self, Page, Style, count, escaped};
use geonce::clock::Stopwatch;
use geonce::replay::Progress;
use geonce::store::own_name;
use serde_json::Value;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::watch;

/// The exit code of what Ctrl-C has ended: 128 and the number of the signal.
const CANCELLED: u8 = 130;
/// How often a person sees how far it is,
const SHOWN_EVERY: Duration = Duration::from_millis(200);
/// and how often a log does.
const LOGGED_EVERY: Duration = Duration::from_secs(10);

/// How a job is shown.
pub(super) struct Shown<'a> {
    /// Whether a table says what is meant.
    pub(super) table: bool,
    /// What is counted while it runs.
    pub(super) meter: Meter,
    /// Is told of every event.
    pub(super) tell: &'a mut (dyn FnMut(&mut Page, &Value) -> Result<(), Failure> + Send),
}

/// Chooses events, asks whether it is to be done, has it done, and says what came of it.
pub(super) fn run(
    mut way: Box<dyn Way>,
    asked: &Asked<'_>,
    consent: &ConsentArguments,
    shown: Shown<'_>,
) -> Result<ExitCode, Failure> {
    let (mut page, word) = (Page::new(), asked.kind.as_str());
    let planned = way.plan(asked)?;
    if planned.events == 0 {
        page.print(&format!("no dead events to {word}"))?;
        way.close()?;
        return Ok(if asked.which.events.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) });
    }
    if shown.table {
        print_planned(&planned, &mut page)?;
    }
    let plural = if planned.events == 1 { "" } else { "s" };
    let what = format!("{word} {} dead event{plural}{}", count(planned.events), how(asked));
    let warning = (asked.kind == Kind::Purge).then_some("a purged event is gone, and its key is free again");
    if !agreed(&what, warning, consent, &page)? {
        way.close()?;
        return Ok(if consent.dry_run { ExitCode::SUCCESS } else { ExitCode::from(1) });
    }
    let Shown { mut meter, tell, .. } = shown;
    let mut trouble = None;
    let mut tell = |line: &Value| {
        if let Err(failure) = tell(&mut page, line) {
            trouble.get_or_insert(failure);
        }
    };
    let watch: &mut Watch<'_> = &mut |progress: &Progress| meter.show(progress);
    let ended = way.run(&mut tell, watch)?;
    way.close()?;
    let code = end(ended, asked.kind.done_word());
    match trouble {
        Some(failure) => Err(failure),
        None => code,
    }
}

/// How events are repaired, in words.
fn how(asked: &Asked<'_>) -> String {
    match (asked.kind, &asked.choices) {
        (Kind::Repair, None) => " with what is known to mend them".to_owned(),
        (Kind::Repair, Some(choices)) => format!(" with {choices}"),
        _ => String::new(),
    }
}

/// Says what came of it.
fn end(ended: Ended, done: &str) -> Result<ExitCode, Failure> {
    let Progress { planned, done: number, skipped, left } = ended.progress;
    eprintln!(
        "{done} {} of {}, left as they are {}, not come to {}",
        count(number),
        count(planned),
        count(skipped),
        count(left)
    );
    match ended.failure {
        Some(failure) => Err(failure),
        None if ended.cancelled => Ok(ExitCode::from(CANCELLED)),
        None if number == planned => Ok(ExitCode::SUCCESS),
        None => Ok(ExitCode::from(1)),
    }
}

/// How many events are meant, by source and code.
fn print_planned(planned: &Planned, page: &mut Page) -> Result<(), Failure> {
    let mut groups: Vec<_> = planned.groups.iter().collect();
    // What is most frequent is looked at first.
    groups.sort_by_key(|group| std::cmp::Reverse(group.events));
    let rows: Vec<Vec<String>> = groups
        .into_iter()
        .map(|group| vec![escaped(&group.code), escaped(&group.source), count(group.events), escaped(&group.hint)])
        .collect();
    page.table(&["code", "source", "events", "hint"], &rows)?;
    if planned.more {
        eprintln!("there are more; only the latest {} are taken at a time", count(planned.events));
    }
    Ok(())
}

/// Whether a person agrees. Nobody to ask is no agreement.
fn agreed(what: &str, warning: Option<&str>, consent: &ConsentArguments, page: &Page) -> Result<bool, Failure> {
    if consent.dry_run {
        eprintln!("would {what}");
        return Ok(false);
    }
    if let Some(warning) = warning {
        eprintln!("{}", page.paint(Style::Yellow, warning));
    }
    if consent.yes {
        return Ok(true);
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::new("consent", format!("nobody is here to be asked whether to {what}"))
            .hint("--yes does it without asking, --dry-run only says what would be done"));
    }
    eprint!("{what}? [y/N] ");
    io::stderr().flush().map_err(|error| Failure::io("standard error", &error))?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(|error| Failure::io("standard input", &error))?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Holds true after Ctrl-C. To be called in a runtime.
pub(super) fn until_ctrl_c() -> watch::Receiver<bool> {
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            eprintln!("ending after this step");
            let _ = stop.send(true);
        }
        // Kept until the end: a stop that nobody can send any more would count as sent.
        std::future::pending::<()>().await;
    });
    stopped
}

/// Who asks, as far as the system says.
pub(super) fn who() -> String {
    let user = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok()).filter(|user| !user.is_empty());
    let process = own_name();
    let machine = process.rsplit_once('-').map_or(&*process, |(machine, _)| machine);
    format!("{}@{machine}", user.as_deref().unwrap_or("somebody"))
}

/// Shows how far a job is: on one line for a person, now and then for a log.
pub(super) struct Meter {
    watch: Stopwatch,
    person: bool,
    word: &'static str,
}

impl Meter {
    pub(super) fn new(word: &'static str, quiet: bool) -> Meter {
        Meter { watch: Stopwatch::start(), person: io::stderr().is_terminal() && !quiet, word }
    }

    fn show(&mut self, progress: &Progress) {
        let every = if self.person { SHOWN_EVERY } else { LOGGED_EVERY };
        let last = progress.left == 0;
        if self.watch.elapsed() < every && !(last && self.person) {
            return;
        }
        self.watch = Stopwatch::start();
        let come_to = progress.planned - progress.left;
        let text = format!("{} {} of {}", self.word, count(come_to), count(progress.planned));
        if self.person {
            eprint!("\r{text}{}", if last { "\n" } else { " " });
            let _ = io::stderr().flush();
        } else {
            eprintln!("{} {text}", show::now());
        }
    }
}
