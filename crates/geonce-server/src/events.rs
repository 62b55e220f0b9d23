//! `geonce events`: what is recorded, as a list or one by one.

use crate::arguments::{EventsCommand, EventsListArguments, ShowArguments, named};
use crate::failure::{Failure, Outcome};
use crate::record;
use crate::show::{self, Page, escaped};
use crate::tool::Tool;
use geonce::store::{Filter, Record};

/// Runs the command.
pub(crate) fn run(command: &EventsCommand) -> Outcome {
    match command {
        EventsCommand::List(arguments) => list(arguments),
        EventsCommand::Show(arguments) => show_named(arguments, None, |_| None),
    }
}

fn list(arguments: &EventsListArguments) -> Outcome {
    let now = show::now();
    let filter = Filter { state: arguments.state, outcome: arguments.outcome, ..arguments.filter.filter(now)? };
    let tool = Tool::open(&arguments.place)?;
    let mut page = Page::new();
    let mut rows = Vec::new();
    let mut left = arguments.limit;
    tool.each(&filter, false, |record| {
        if left == 0 {
            return Ok(false);
        }
        left -= 1;
        if arguments.json {
            page.print(&record::line(&record))?;
        } else {
            rows.push(row(&record, now));
        }
        Ok(true)
    })?;
    if !arguments.json {
        if rows.is_empty() {
            page.print("no events")?;
        } else {
            page.table(&["event", "source", "received", "state", "again", "key"], &rows)?;
        }
    }
    tool.close()?;
    Ok(true)
}

/// One line of a table of events.
pub(crate) fn row(record: &Record, now: geonce::clock::Timestamp) -> Vec<String> {
    vec![
        record.id.to_string(),
        escaped(&record.source),
        show::time(record.received, now),
        record::fate(record),
        show::count(record.duplicates),
        record::key(&record.key),
    ]
}

/// Shows the events that an id or a key names; the answer is no if there are none.
pub(crate) fn show_named(
    arguments: &ShowArguments,
    state: Option<geonce::event::State>,
    hint: impl Fn(&Record) -> Option<String>,
) -> Outcome {
    let filter = Filter { state, ..named(&arguments.name)? };
    let tool = Tool::open(&arguments.place)?;
    let mut page = Page::new();
    let mut found = 0;
    tool.each(&filter, true, |record| {
        if arguments.json {
            page.print(&record::line(&record))?;
        } else {
            if found > 0 {
                page.print("")?;
            }
            record::print(&mut page, &record, hint(&record).as_deref())?;
        }
        found += 1;
        Ok(true)
    })?;
    tool.close()?;
    if found == 0 {
        let what = if state.is_some() { "no dead event" } else { "no event" };
        eprintln!(
            "{}",
            Failure::new("event_unknown", format!("{what} is known as {}", escaped(&arguments.name)))
                .hint("it may have been forgotten: its window is over")
        );
    }
    Ok(found > 0)
}
