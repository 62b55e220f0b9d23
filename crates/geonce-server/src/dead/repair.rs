//! `geonce dead repair`: what a repair would make of dead events, and doing it.

use super::here::Here;
use super::job::{self, Meter, Shown};
use super::way::{self, Asked, Way};
use crate::api::Kind;
use crate::arguments::DeadRepairArguments;
use crate::failure::Failure;
use crate::show::{self, Page, Style, count, escaped};
use crate::treated;
use geonce::repair::{Choices, cause_json};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Things done that are shown.
const DONE_SHOWN_MAX: usize = 4;

/// Runs the command.
pub(super) fn run(arguments: &DeadRepairArguments) -> Result<ExitCode, Failure> {
    let wrong = |message: String| Failure::new("usage", format!("--with: {message}"));
    let choices = arguments.with.as_deref().map(Choices::parse).transpose().map_err(wrong)?;
    let asked = Asked { kind: Kind::Repair, which: &arguments.which, choices, place: &arguments.place };
    // What was said is checked before anything is opened.
    arguments.which.filters("repair", show::now())?;
    if arguments.consent.dry_run {
        return look(&asked, arguments.json);
    }
    let json = arguments.json;
    let mut tell = |page: &mut Page, line: &Value| print_treated(page, line, json);
    let shown = Shown { table: !json, meter: Meter::new("looked at", !json), tell: &mut tell };
    job::run(way::open(&asked)?, &asked, &arguments.consent, shown)
}

/// Shows what would be done.
fn look(asked: &Asked<'_>, json: bool) -> Result<ExitCode, Failure> {
    let (mut here, mut page) = (Here::open(asked, true)?, Page::new());
    here.plan(asked)?;
    if here.selected.events.is_empty() {
        page.print("no dead events to repair")?;
        Box::new(here).close()?;
        return Ok(if asked.which.events.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) });
    }
    let (mut ready, total) = (0, here.selected.events.len());
    for &event in &here.selected.events {
        match here.draft(event)? {
            Ok(plan) => {
                ready += usize::from(plan.is_ready());
                if json {
                    page.print(&plan.json().to_string())?;
                } else {
                    print_plan(&mut page, &treated::shown(&plan))?;
                }
            }
            Err(cause) => print_cannot(&mut page, &event.to_string(), &cause_json(&cause), json)?,
        }
    }
    eprintln!("would repair {} of {}", count(ready as u64), count(total as u64));
    Box::new(here).close()?;
    Ok(if ready == total { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Prints what became of an event, as [`treated::line`] says it.
fn print_treated(page: &mut Page, line: &Value, json: bool) -> Result<(), Failure> {
    let (original, result, plan) = (text(&line["original"]), text(&line["result"]), &line["plan"]);
    if result == "cannot" {
        return if json || plan.is_null() {
            print_cannot(page, original, &line["cause"], json)
        } else {
            print_plan(page, plan)
        };
    }
    if json {
        let mut told = plan.clone();
        if let Some(members) = told.as_object_mut() {
            members.shift_remove("wkt");
            let repaired = json!({"original": original, "result": result, "event": line["event"]});
            members.insert("repaired".to_owned(), repaired);
        }
        return page.print(&told.to_string());
    }
    print_plan(page, plan)?;
    let event = escaped(text(&line["event"]));
    let (good, told) = match result {
        "accepted" | "duplicate" | "conflict" => (true, format!("repaired as {event}, {result}")),
        "repaired_before" => (false, format!("was repaired before, as {event}")),
        "unknown" => (false, "is gone by now".to_owned()),
        "same_key" => (false, "would be its own duplicate; left alone".to_owned()),
        state => (false, format!("is {} by now; left alone", escaped(state))),
    };
    let told = page.paint(if good { Style::Green } else { Style::Yellow }, &told);
    pair(page, "", &told)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn print_cannot(page: &mut Page, event: &str, cause: &Value, json: bool) -> Result<(), Failure> {
    if json {
        let line: Value = json!({"event": event, "valid": false, "problem": cause});
        return page.print(&line.to_string());
    }
    let head = page.paint(Style::Bold, &escaped(event));
    let (message, code) = (escaped(text(&cause["message"])), escaped(text(&cause["code"])));
    page.print(&format!("{head}  cannot be repaired: {message} [{code}]"))
}

fn pair(page: &mut Page, name: &str, value: &str) -> Result<(), Failure> {
    let name = page.paint(Style::Dim, &format!("{name:<8}"));
    page.print(&format!("  {name} {value}"))
}

/// A plan for people, as [`treated::shown`] has it.
fn print_plan(page: &mut Page, plan: &Value) -> Result<(), Failure> {
    let member = |name: &str| escaped(text(&plan[name]));
    let joined = |values: &Value, one: &dyn Fn(&Value) -> String| {
        values.as_array().map_or_else(Vec::new, |values| values.iter().map(one).collect::<Vec<String>>())
    };
    let head = page.paint(Style::Bold, &member("event"));
    let choices = joined(&plan["choices"], &|choice| escaped(text(choice))).join(",");
    page.print(&format!("{head}  {}  {}  → {choices}", member("source"), member("code")))?;
    for name in ["before", "after"] {
        let positions = count(plan["positions"][name].as_u64().unwrap_or(0));
        pair(page, name, &format!("{}  {positions} positions", escaped(text(&plan["wkt"][name]))))?;
    }
    let one = |one: &Value| format!("{} {}", escaped(text(&one["code"])), escaped(text(&one["pointer"])));
    let mut done = joined(&plan["done"], &one);
    done.truncate(DONE_SHOWN_MAX);
    let more = plan["done_total"].as_u64().unwrap_or(0).saturating_sub(done.len() as u64);
    if more > 0 {
        done.push(format!("and {} more", count(more)));
    }
    if !done.is_empty() {
        pair(page, "done", done.join(", ").trim_end())?;
    }
    print_measures(page, plan)?;
    if plan["key"].is_string() {
        pair(page, "key", &member("key"))?;
    }
    let already = &plan["already"];
    if already.is_object() {
        let fate = already["outcome"].as_str().unwrap_or_else(|| text(&already["state"]));
        pair(page, "known", &format!("{} has this key, {}", escaped(text(&already["event"])), escaped(fate)))?;
    }
    let problem = &plan["problem"];
    if problem.is_object() {
        let told = format!("{} [{}]", escaped(text(&problem["message"])), escaped(text(&problem["code"])));
        let told = page.paint(Style::Red, &told);
        pair(page, "problem", &told)?;
    }
    Ok(())
}

/// How a repair changes area and vertices.
fn print_measures(page: &mut Page, plan: &Value) -> Result<(), Failure> {
    let area = |name: &str| plan["area_m2"][name].as_f64();
    let (before, after) = (area("before").unwrap_or(0.0), area("after").unwrap_or(0.0));
    if before > 0.0 || after > 0.0 {
        let share = area("ratio").map_or_else(String::new, |ratio| format!(", {:+.3} %", (ratio - 1.0) * 100.0));
        pair(page, "area", &format!("{before:.1} m² → {after:.1} m²{share}"))?;
    }
    let shift = plan["shift_max_m"].as_f64();
    pair(page, "shift", &shift.map_or_else(|| "not measured".to_owned(), |shift| format!("at most {shift:.3} m")))
}
