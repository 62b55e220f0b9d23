//! What changes of many dead events share: consent, an entry in the audit trail, progress, and Ctrl-C.

use crate::arguments::ConsentArguments;
use crate::failure::Failure;
use crate::hints;
use crate::show::{self, Page, Style, count, escaped};
use crate::tool::Tool;
use geonce::audit::Trail;
use geonce::clock::{Clock, Stopwatch, SystemClock};
use geonce::replay::{Pace, Progress, Selected, Summary};
use geonce::store::own_name;
use serde_json::{Value, json};
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The exit code of what Ctrl-C has ended: 128 and the number of the signal.
const CANCELLED: u8 = 130;
/// How often a person sees how far it is,
const SHOWN_EVERY: Duration = Duration::from_millis(200);
/// and how often a log does.
const LOGGED_EVERY: Duration = Duration::from_secs(10);
/// Events that an entry of the audit trail names.
const NAMED_MAX: usize = 32;

/// The clock of this machine.
pub(super) fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

/// How many events are meant, by source and code.
pub(super) fn print_selected(selected: &Selected, page: &mut Page) -> Result<(), Failure> {
    let mut groups: Vec<_> = selected.groups.iter().collect();
    // What is most frequent is looked at first.
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.events));
    let rows: Vec<Vec<String>> = groups
        .into_iter()
        .map(|((source, code), group)| {
            vec![escaped(code), escaped(source), count(group.events), hints::for_cause(&group.cause)]
        })
        .collect();
    page.table(&["code", "source", "events", "hint"], &rows)?;
    if selected.more {
        eprintln!("there are more; only the latest {} are taken at a time", count(selected.events.len() as u64));
    }
    Ok(())
}

/// Whether a person agrees. Nobody to ask is no agreement.
pub(super) fn agreed(
    what: &str,
    warning: Option<&str>,
    consent: &ConsentArguments,
    page: &Page,
) -> Result<bool, Failure> {
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

/// Runs a job with an entry in the audit trail, until it is done or Ctrl-C ends it; also tells what came of it.
pub(super) fn run(
    tool: &Tool,
    (action, done): (&str, &str),
    with: &Value,
    selected: &Selected,
    rate: Option<f64>,
    job: impl AsyncFnOnce(&mut Pace) -> Result<Summary, Failure>,
) -> Result<ExitCode, Failure> {
    let trail = Trail::new(Arc::clone(&tool.store), clock());
    let named: Vec<String> = selected.events.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let asked = json!({"with": with, "events": selected.events.len(), "first": named, "rate_per_second": rate});
    let entry = tool.wait(trail.begin(&who(), action, asked))?;
    let (stop, stopped) = watch::channel(false);
    let summary = tool.block_on(async {
        tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                eprintln!("ending after this step");
                let _ = stop.send(true);
            }
            // Kept until the end: a stop that nobody can send any more would count as sent.
            std::future::pending::<()>().await;
        });
        job(&mut Pace { rate, stop: stopped }).await
    })?;
    tool.wait(entry.end(&summary.json(done)))?;
    let Progress { planned, done: number, skipped, left } = summary.progress;
    eprintln!(
        "{done} {} of {}, left as they are {}, not come to {}",
        count(number),
        count(planned),
        count(skipped),
        count(left)
    );
    match summary.failure {
        Some(failure) => Err(Failure::from(failure)),
        None if summary.cancelled => Ok(ExitCode::from(CANCELLED)),
        None if number == planned => Ok(ExitCode::SUCCESS),
        None => Ok(ExitCode::from(1)),
    }
}

/// Who asks, as far as the system says.
fn who() -> String {
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

    pub(super) fn show(&mut self, progress: &Progress) {
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
