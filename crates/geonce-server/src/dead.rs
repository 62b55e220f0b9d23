//! `geonce dead`: what could not go on, why, and what a person does about it. `change` replays and purges, `repair` mends,
//! `job` is what they share: consent, progress, Ctrl-C. `way` says who does the work: this process, or a gateway that runs.

mod change;
mod here;
mod job;
mod repair;
mod there;
mod way;

use crate::api::Kind;
use crate::arguments::{DeadArguments, DeadCommand, DeadExportArguments, DeadListArguments};
use crate::events::{row, show_named};
use crate::failure::{Failure, Outcome};
use crate::show::{self, Page, count, escaped};
use crate::tool::Tool;
use crate::{hints, record};
use geonce::clock::Timestamp;
use geonce::event::{Cause, State};
use geonce::store::Filter;
use serde_json::json;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(arguments: &DeadArguments) -> Result<ExitCode, Failure> {
    let answer = match &arguments.command {
        None => list(&arguments.list),
        Some(DeadCommand::List(arguments)) => list(arguments),
        Some(DeadCommand::Show(arguments)) => {
            show_named(arguments, Some(State::Dead), |record| record.cause.as_ref().map(hints::for_cause))
        }
        Some(DeadCommand::Repair(arguments)) => return repair::run(arguments),
        Some(DeadCommand::Replay(arguments)) => return change::run(arguments, Kind::Replay),
        Some(DeadCommand::Purge(arguments)) => return change::run(arguments, Kind::Purge),
        Some(DeadCommand::Export(arguments)) => export(arguments),
    };
    answer.map(|yes| if yes { ExitCode::SUCCESS } else { ExitCode::from(1) })
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
