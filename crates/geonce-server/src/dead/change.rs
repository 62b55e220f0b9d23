//! `geonce dead replay` and `geonce dead purge`: chosen, agreed, done step by step, noted.

use super::job::{self, Meter, agreed, print_selected};
use crate::arguments::DeadChangeArguments;
use crate::failure::Failure;
use crate::show::{self, Page, count};
use crate::tool::Tool;
use geonce::replay;
use geonce::store::Access;
use serde_json::json;
use std::process::ExitCode;

/// What is to become of dead events.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Replay,
    Purge,
}

impl Change {
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Change::Replay => ("replay", "replayed"),
            Change::Purge => ("purge", "purged"),
        }
    }
}

/// Runs the command.
pub(super) fn run(arguments: &DeadChangeArguments, change: Change) -> Result<ExitCode, Failure> {
    let (word, done) = change.words();
    let filters = arguments.which.filters(word, show::now())?;
    let dry = arguments.consent.dry_run;
    let tool = Tool::open_as(&arguments.place, |_| if dry { Access::Tool } else { Access::Runner })?;
    let selected = tool.wait(replay::select(&*tool.store, &filters))?;
    let mut page = Page::new();
    if selected.events.is_empty() {
        page.print(&format!("no dead events to {word}"))?;
        tool.close()?;
        return Ok(if arguments.which.events.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) });
    }
    print_selected(&selected, &mut page)?;
    let total = selected.events.len();
    let what = format!("{word} {} dead event{}", count(total as u64), if total == 1 { "" } else { "s" });
    let warning = (change == Change::Purge).then_some("a purged event is gone, and its key is free again");
    if !agreed(&what, warning, &arguments.consent, &page)? {
        tool.close()?;
        return Ok(if dry { ExitCode::SUCCESS } else { ExitCode::from(1) });
    }
    let mut meter = Meter::new(done, false);
    let (store, clock) = (&tool.store, job::clock());
    let code = job::run(&tool, (word, done), &json!(null), &selected, arguments.which.rate, async |pace| {
        let watch = |progress: &replay::Progress| meter.show(progress);
        Ok(match change {
            Change::Replay => replay::replay(store, &clock, &selected, pace, watch).await,
            Change::Purge => replay::purge(store, &clock, &selected, pace, watch).await,
        })
    })?;
    tool.close()?;
    Ok(code)
}
