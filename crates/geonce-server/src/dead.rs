//! `geonce dead`: what could not go on, why, and what a person does about it.

use crate::arguments::{
    ConsentArguments, DeadChangeArguments, DeadCommand, DeadExportArguments, DeadListArguments, named,
};
use crate::events::{row, show_named};
use crate::failure::{Failure, Outcome};
use crate::show::{self, Page, Style, count, escaped};
use crate::tool::Tool;
use crate::{hints, record};
use geonce::clock::Timestamp;
use geonce::event::{Cause, State};
use geonce::store::Filter;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};

/// Runs the command.
pub(crate) fn run(command: &DeadCommand) -> Outcome {
    match command {
        DeadCommand::List(arguments) => list(arguments),
        DeadCommand::Show(arguments) => {
            show_named(arguments, Some(State::Dead), |record| record.cause.as_ref().map(hints::for_cause))
        }
        DeadCommand::Replay(arguments) => change(arguments, Change::Replay),
        DeadCommand::Purge(arguments) => change(arguments, Change::Purge),
        DeadCommand::Export(arguments) => export(arguments),
    }
}

/// Dead events of one source and code.
struct Group {
    events: u64,
    first: Timestamp,
    last: Timestamp,
    cause: Cause,
}

type Groups = BTreeMap<(String, String), Group>;

fn groups(tool: &Tool, filters: &[Filter]) -> Result<Groups, Failure> {
    let mut groups = Groups::new();
    for filter in filters {
        tool.each(filter, false, |record| {
            let Some(cause) = record.cause else { return Ok(true) };
            let group = groups.entry((record.source.to_string(), cause.code.clone())).or_insert(Group {
                events: 0,
                first: record.received,
                last: record.received,
                cause,
            });
            group.events += 1;
            group.first = group.first.min(record.received);
            group.last = group.last.max(record.received);
            Ok(true)
        })?;
    }
    Ok(groups)
}

fn list(arguments: &DeadListArguments) -> Outcome {
    let now = show::now();
    let filter = Filter { state: Some(State::Dead), ..arguments.filter.filter(now)? };
    let tool = Tool::open(&arguments.place)?;
    let mut page = Page::new();
    if let Some(limit) = arguments.limit {
        each_event(&tool, &filter, limit, arguments.json, &mut page)?;
    } else {
        let groups = groups(&tool, &[filter])?;
        if arguments.json {
            for ((source, code), group) in &groups {
                let line = json!({
                    "code": code, "class": group.cause.class.as_str(), "source": source, "events": group.events,
                    "first": group.first.to_string(), "last": group.last.to_string(), "hint": hints::for_cause(&group.cause),
                });
                page.print(&line.to_string())?;
            }
        } else {
            print_groups(&groups, now, &mut page)?;
        }
    }
    tool.close()?;
    Ok(true)
}

fn each_event(tool: &Tool, filter: &Filter, limit: usize, json: bool, page: &mut Page) -> Result<(), Failure> {
    let now = show::now();
    let mut rows = Vec::new();
    let mut left = limit;
    tool.each(filter, false, |record| {
        if left == 0 {
            return Ok(false);
        }
        left -= 1;
        if json {
            page.print(&record::line(&record))?;
        } else {
            rows.push(row(&record, now));
        }
        Ok(true)
    })?;
    if json {
        return Ok(());
    }
    page.table(&["event", "source", "received", "state", "again", "key"], &rows)
}

fn print_groups(groups: &Groups, now: Timestamp, page: &mut Page) -> Result<(), Failure> {
    if groups.is_empty() {
        return page.print("no dead events");
    }
    let mut rows: Vec<(&Group, Vec<String>)> = groups
        .iter()
        .map(|((source, code), group)| {
            let cells = vec![
                escaped(code),
                escaped(source),
                count(group.events),
                show::time(group.first, now),
                show::time(group.last, now),
                hints::for_cause(&group.cause),
            ];
            (group, cells)
        })
        .collect();
    // What is most frequent is looked at first.
    rows.sort_by_key(|(group, _)| std::cmp::Reverse(group.events));
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(_, cells)| cells).collect();
    page.table(&["code", "source", "events", "first", "last", "hint"], &rows)
}

fn export(arguments: &DeadExportArguments) -> Outcome {
    let filter = Filter { state: Some(State::Dead), ..arguments.filter.filter(show::now())? };
    let tool = Tool::open(&arguments.place)?;
    let mut page = Page::new();
    let mut exported: u64 = 0;
    tool.each(&filter, true, |record| {
        exported += 1;
        page.print(&record::line(&record))?;
        Ok(true)
    })?;
    eprintln!("{} dead events", count(exported));
    tool.close()?;
    Ok(true)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
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

fn change(arguments: &DeadChangeArguments, change: Change) -> Outcome {
    let (word, done_word) = change.words();
    if arguments.events.is_empty() && arguments.filter.is_empty() && !arguments.all {
        return Err(Failure::new("usage", format!("say which dead events to {word}"))
            .hint("events by id, --code, --source, --since, --until, or --all"));
    }
    let base = Filter { state: Some(State::Dead), ..arguments.filter.filter(show::now())? };
    let mut filters = Vec::new();
    for name in &arguments.events {
        let Filter { id, key, .. } = named(name)?;
        filters.push(Filter { id, key, ..base.clone() });
    }
    if filters.is_empty() {
        filters.push(base);
    }
    let tool = Tool::open(&arguments.place)?;
    let groups = groups(&tool, &filters)?;
    let total: u64 = groups.values().map(|group| group.events).sum();
    let mut page = Page::new();
    if total == 0 {
        page.print(&format!("no dead events to {word}"))?;
        return Ok(arguments.events.is_empty());
    }
    print_groups(&groups, show::now(), &mut page)?;
    let what = format!("{word} {} dead event{}", count(total), if total == 1 { "" } else { "s" });
    if !agreed(&what, change, &arguments.consent, &page)? {
        tool.close()?;
        return Ok(arguments.consent.dry_run);
    }
    let mut changed = 0;
    for filter in filters {
        changed += match change {
            Change::Replay => tool.wait(tool.store.replay(filter, show::now()))?,
            Change::Purge => tool.wait(tool.store.purge(filter, show::now()))?,
        };
    }
    page.print(&format!("{done_word} {}", count(changed)))?;
    tool.close()?;
    Ok(true)
}

/// Whether a person agrees. Nobody to ask is no agreement.
fn agreed(what: &str, change: Change, consent: &ConsentArguments, page: &Page) -> Result<bool, Failure> {
    if consent.dry_run {
        eprintln!("would {what}");
        return Ok(false);
    }
    if change == Change::Purge {
        eprintln!("{}", page.paint(Style::Yellow, "a purged event is gone, and its key is free again"));
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
