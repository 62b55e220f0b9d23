//! `geonce dead repair`: what a repair would make of dead events, and doing it.

use super::job::{self, Meter, agreed, print_selected};
use crate::arguments::DeadRepairArguments;
use crate::config::{self, Settings};
use crate::failure::Failure;
use crate::show::{self, Page, Style, count, escaped};
use crate::tool::Tool;
use crate::{gateway, record};
use geonce::event::{Cause, EventId, Ids};
use geonce::intake::Source;
use geonce::repair::{self, Choices, Measures, Plan, cause_json, repaired_json};
use geonce::replay::{self, Repairs, Selected, Treated};
use geonce::store::{Access, Repaired};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;

/// Characters of a geometry that are shown.
const SHAPE_CHARACTERS_MAX: usize = 100;
/// Things done that are shown.
const DONE_SHOWN_MAX: usize = 4;

/// Runs the command.
pub(super) fn run(arguments: &DeadRepairArguments) -> Result<ExitCode, Failure> {
    let wrong = |message: String| Failure::new("usage", format!("--with: {message}"));
    let choices = arguments.with.as_deref().map(Choices::parse).transpose().map_err(wrong)?;
    let filters = arguments.which.filters("repair", show::now())?;
    let settings = config::load(&arguments.place.overrides())?;
    let sources = sources(&settings)?;
    let (tool, mut page) = (open(arguments)?, Page::new());
    let selected = tool.wait(replay::select(&*tool.store, &filters))?;
    if selected.events.is_empty() {
        page.print("no dead events to repair")?;
        tool.close()?;
        return Ok(if arguments.which.events.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) });
    }
    let find = |name: &str| sources.get(name).cloned();
    let repairs = Repairs { source: &find, choices: choices.as_ref(), ids: &Ids::new() };
    let code = if arguments.consent.dry_run {
        show_plans(&tool, &selected, &repairs, arguments.json, &mut page)?
    } else {
        carry_out(&tool, &selected, &repairs, arguments, &mut page)?
    };
    tool.close()?;
    Ok(code)
}

/// Every configured source, by name.
fn sources(settings: &Settings) -> Result<HashMap<String, Arc<Source>>, Failure> {
    let source = |(name, source): (&String, _)| Ok((name.clone(), gateway::route(name, source, settings)?.source));
    settings.sources.iter().map(source).collect()
}

/// Opens the store to repair in it. The keys of an embedded store are in the memory of the gateway that runs.
fn open(arguments: &DeadRepairArguments) -> Result<Tool, Failure> {
    let dry = arguments.consent.dry_run;
    let access = |place: &config::Place| match (dry, place.store.is_embedded()) {
        (true, _) => Access::Tool,
        (false, true) => Access::Gateway,
        (false, false) => Access::Runner,
    };
    Tool::open_as(&arguments.place, access).map_err(|failure| {
        if failure.code() == "unavailable" && failure.message().contains("another gateway has it open") {
            let message = "a gateway is running on this store, and only it knows which keys are taken";
            return Failure::new("gateway_running", message)
                .hint("stop the gateway, or use its API: POST /api/v1/repairs; --dry-run works beside it");
        }
        failure
    })
}

fn show_plans(
    tool: &Tool,
    selected: &Selected,
    repairs: &Repairs<'_>,
    json: bool,
    page: &mut Page,
) -> Result<ExitCode, Failure> {
    let mut ready = 0;
    for &event in &selected.events {
        let drafted = tool.wait(replay::draft(&tool.store, event, repairs))?;
        match drafted {
            Ok(plan) => {
                let plan = tool.wait(repair::look_up(&*tool.store, plan))?;
                ready += usize::from(plan.is_ready());
                if json {
                    page.print(&plan.json().to_string())?;
                } else {
                    print_plan(page, &plan)?;
                }
            }
            Err(cause) => print_cannot(page, event, &cause, json)?,
        }
    }
    eprintln!("would repair {} of {}", count(ready as u64), count(selected.events.len() as u64));
    Ok(if ready == selected.events.len() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn carry_out(
    tool: &Tool,
    selected: &Selected,
    repairs: &Repairs<'_>,
    arguments: &DeadRepairArguments,
    page: &mut Page,
) -> Result<ExitCode, Failure> {
    if !arguments.json {
        print_selected(selected, page)?;
    }
    let total = selected.events.len();
    let how =
        repairs.choices.map_or_else(|| "with what is known to mend them".to_owned(), |with| format!("with {with}"));
    let what = format!("repair {} dead event{} {how}", count(total as u64), if total == 1 { "" } else { "s" });
    if !agreed(&what, None, &arguments.consent, page)? {
        return Ok(ExitCode::from(1));
    }
    let mut meter = Meter::new("looked at", !arguments.json);
    let asked = json!(repairs.choices.map(ToString::to_string));
    let (mut trouble, clock) = (None, job::clock());
    let code = job::run(tool, ("repair", "repaired"), &asked, selected, arguments.which.rate, async |pace| {
        let tell = |treated: Treated| {
            if let Err(failure) = print_treated(page, &treated, arguments.json) {
                trouble.get_or_insert(failure);
            }
        };
        let watch = |progress: &replay::Progress| meter.show(progress);
        Ok(replay::repair(&tool.store, &clock, selected, repairs, pace, tell, watch).await)
    })?;
    match trouble {
        Some(failure) => Err(failure),
        None => Ok(code),
    }
}

fn print_treated(page: &mut Page, treated: &Treated, json: bool) -> Result<(), Failure> {
    match treated {
        Treated::Cannot { plan: Some(plan), .. } if !json => print_plan(page, plan),
        Treated::Cannot { event, cause, .. } => print_cannot(page, *event, cause, json),
        Treated::Repaired { plan, own, repaired } if json => {
            let mut line = plan.json();
            line["repaired"] = repaired_json(plan.original, repaired, *own);
            page.print(&line.to_string())
        }
        Treated::Repaired { plan, own, repaired } => {
            print_plan(page, plan)?;
            let text = match repaired {
                Repaired::Done(verdict) => format!("repaired as {}, {}", verdict.kept_in(*own), verdict.as_str()),
                Repaired::Before { event } => format!("was repaired before, as {event}"),
                Repaired::NotDead { state, .. } => format!("is {state} by now; left alone"),
                Repaired::Unknown => "is gone by now".to_owned(),
                Repaired::SameKey => "would be its own duplicate; left alone".to_owned(),
            };
            let good = matches!(repaired, Repaired::Done(_));
            let text = page.paint(if good { Style::Green } else { Style::Yellow }, &text);
            pair(page, "", &text)
        }
    }
}

fn print_cannot(page: &mut Page, event: EventId, cause: &Cause, json: bool) -> Result<(), Failure> {
    if json {
        let line: Value = json!({"event": event.to_string(), "valid": false, "problem": cause_json(cause)});
        return page.print(&line.to_string());
    }
    let head = page.paint(Style::Bold, &event.to_string());
    page.print(&format!("{head}  cannot be repaired: {} [{}]", escaped(&cause.message), escaped(&cause.code)))
}

fn pair(page: &mut Page, name: &str, value: &str) -> Result<(), Failure> {
    let name = page.paint(Style::Dim, &format!("{name:<8}"));
    page.print(&format!("  {name} {value}"))
}

/// A plan for people.
fn print_plan(page: &mut Page, plan: &Plan) -> Result<(), Failure> {
    let head = page.paint(Style::Bold, &plan.original.to_string());
    page.print(&format!("{head}  {}  {}  → {}", escaped(&plan.source), escaped(&plan.cause.code), plan.choices))?;
    let Measures { positions_before, positions_after, area_before_m2, area_after_m2, shift_max_m } = plan.measures;
    let [before, after] = plan.wkt();
    pair(page, "before", &format!("{}  {} positions", shortened(&before), count(positions_before as u64)))?;
    pair(page, "after", &format!("{}  {} positions", shortened(&after), count(positions_after as u64)))?;
    let mut done: Vec<String> =
        plan.done.iter().take(DONE_SHOWN_MAX).map(|one| format!("{} {}", one.code, one.pointer)).collect();
    if plan.done_total > done.len() as u64 {
        done.push(format!("and {} more", count(plan.done_total - done.len() as u64)));
    }
    if !done.is_empty() {
        pair(page, "done", done.join(", ").trim_end())?;
    }
    if area_before_m2 > 0.0 || area_after_m2 > 0.0 {
        let share = if area_before_m2 > 0.0 {
            format!(", {:+.3} %", (area_after_m2 / area_before_m2 - 1.0) * 100.0)
        } else {
            String::new()
        };
        pair(page, "area", &format!("{area_before_m2:.1} m² → {area_after_m2:.1} m²{share}"))?;
    }
    pair(
        page,
        "shift",
        &shift_max_m.map_or_else(|| "not measured".to_owned(), |shift| format!("at most {shift:.3} m")),
    )?;
    if let Some(key) = &plan.key {
        pair(page, "key", &record::key(key))?;
    }
    if let Some(already) = plan.already {
        let fate = already.outcome.map_or_else(|| already.state.to_string(), |outcome| outcome.to_string());
        pair(page, "known", &format!("{} has this key, {fate}", already.event))?;
    }
    if let Some(problem) = &plan.problem {
        let text = format!("{} [{}]", escaped(&problem.message), escaped(&problem.code));
        let text = page.paint(Style::Red, &text);
        pair(page, "problem", &text)?;
    }
    Ok(())
}

/// The beginning of a long text.
fn shortened(text: &str) -> String {
    if text.chars().count() <= SHAPE_CHARACTERS_MAX {
        return text.to_owned();
    }
    text.chars().take(SHAPE_CHARACTERS_MAX).chain(['…']).collect()
}
