//! `geonce doctor`: do the books sum, is the store whole, are the sinks reachable, and do they agree? And what would help?

mod advice;
mod audit;
mod reconcile;

use crate::arguments::DoctorArguments;
use crate::config::{self, Place, Settings};
use crate::failure::{Failure, Outcome};
use crate::gateway;
use crate::show::{self, Page, Style, count, escaped};
use crate::tool::{self, Tool};
use geonce::store::{Ledger, Status};
use serde_json::{Value, json};

/// Details of one kind that are listed; the rest is counted.
const EXAMPLES_MAX: usize = 10;

/// One thing that was looked at.
struct Finding {
    /// What.
    what: String,
    good: bool,
    /// What was found, in words.
    lines: Vec<String>,
}

impl Finding {
    fn new(what: impl Into<String>, good: bool, lines: Vec<String>) -> Finding {
        Finding { what: what.into(), good, lines }
    }
}

/// Runs the command; the answer is yes if nothing is wrong.
pub(crate) fn run(arguments: &DoctorArguments) -> Outcome {
    let settings = config::load(&arguments.place.overrides())?;
    let place = Place { file: settings.file.clone(), data: settings.data.clone(), store: settings.store.clone() };
    let journal = journal(&place)?;
    let tool = Tool::at(place).map_err(|failure| match &journal {
        // Who looks at a store that is down wants to know what waits for it.
        Some(journal) => failure.hint(journal.lines.join("; ")),
        None => failure,
    })?;
    let status = tool.wait(tool.store.status())?;
    let mut findings = vec![books(&status), audit_store(&tool, &status)?];
    findings.extend(journal);
    for (name, sink) in &settings.sinks {
        findings.push(check_sink(&tool, name, sink));
    }
    if arguments.audit {
        findings.push(audit::run(&tool, &settings)?);
    }
    if arguments.reconcile {
        findings.extend(reconcile::run(&tool, &settings)?);
    }
    let advice = advice::gather(&tool, &settings, &status)?;
    let well = findings.iter().all(|finding| finding.good);
    let mut page = Page::new();
    if arguments.json {
        let mut report = to_json(&status, &findings, well);
        report["advice"] = advice::to_json(&advice);
        page.print(&report.to_string())?;
    } else {
        print(&mut page, &status, &findings, &settings)?;
        advice::print(&mut page, &advice)?;
    }
    tool.close()?;
    Ok(well)
}

/// The parts of a ledger that sum to what was received, in the order of the law.
fn parts(ledger: &Ledger) -> [(&'static str, u64); 9] {
    [
        ("refused", ledger.refused),
        ("duplicate", ledger.duplicate),
        ("applied", ledger.applied),
        ("stale", ledger.stale),
        ("near", ledger.near),
        ("repaired", ledger.repaired),
        ("dead", ledger.dead),
        ("purged", ledger.purged),
        ("waiting", ledger.waiting),
    ]
}

/// Whether everything that came in is accounted for, source by source.
fn books(status: &Status) -> Finding {
    let mut lines = Vec::new();
    let mut good = true;
    for (source, ledger) in &status.ledgers {
        let difference = ledger.difference();
        let sum = parts(ledger).into_iter().filter(|(_, number)| *number > 0);
        let sum: Vec<String> = sum.map(|(word, number)| format!("{} {word}", count(number))).collect();
        let sum = if sum.is_empty() { "0".to_owned() } else { sum.join(" + ") };
        let law = format!("{}: {sum} = {} received", escaped(source), count(ledger.received));
        if difference == 0 {
            lines.push(law);
        } else {
            good = false;
            lines.push(format!("{law} ✗ {} unaccounted for", count(difference)));
        }
        if ledger.collision > 0 {
            good = false;
            lines.push(format!("{}: {} collisions: one key, two contents", escaped(source), count(ledger.collision)));
        }
        for (word, number) in
            [("conflicts", ledger.conflict), ("duplicates that differ outside their identity", ledger.drift)]
        {
            if number > 0 {
                lines.push(format!("{}: {} {word}", escaped(source), count(number)));
            }
        }
    }
    Finding::new("books", good, lines)
}

fn audit_store(tool: &Tool, status: &Status) -> Result<Finding, Failure> {
    let problems = tool.wait(tool.store.audit())?;
    let risks = status.risks.iter().map(|risk| format!("acknowledged events may be lost: {risk}"));
    let lines = risks.chain(problems.iter().cloned()).map(|line| escaped(&line)).collect();
    Ok(Finding::new("store", problems.is_empty(), lines))
}

/// What a journal on this machine keeps for a store that was down.
fn journal(place: &Place) -> Result<Option<Finding>, Failure> {
    if !place.data.join(gateway::JOURNAL).exists() {
        return Ok(None);
    }
    let tool = Tool::at(place.journal())?;
    let status = tool.wait(tool.store.status())?;
    let problems = tool.wait(tool.store.audit())?;
    tool.close()?;
    let sum = |part: fn(&Ledger) -> u64| status.ledgers.values().map(part).sum::<u64>();
    let mut lines = vec![format!("waiting for the store: {}", count(sum(|books| books.waiting)))];
    let dead = sum(|books| books.dead);
    if dead > 0 {
        lines.push(format!("{} events could not be read back and are dead in the journal", count(dead)));
    }
    lines.extend(problems.iter().map(|problem| escaped(problem)));
    Ok(Some(Finding::new("journal", problems.is_empty() && dead == 0, lines)))
}

/// A sink that has nothing yet is not made by looking at it.
fn check_sink(tool: &Tool, name: &str, sink: &config::SinkSettings) -> Finding {
    let what = format!("sink {name}");
    if tool::missing_file(&sink.url, &tool.place.data).is_some() {
        return Finding::new(what, true, vec![format!("{} is not there yet", sink.url)]);
    }
    let checked = tool.open_sink(name, sink).and_then(|opened| {
        let notes = tool.wait(opened.check())?;
        tool.wait(opened.close())?;
        Ok(notes)
    });
    match checked {
        Ok(notes) => Finding::new(what, true, notes.iter().map(|note| escaped(note)).collect()),
        Err(failure) => Finding::new(what, false, vec![escaped(failure.message())]),
    }
}

fn print(page: &mut Page, status: &Status, findings: &[Finding], settings: &Settings) -> Result<(), Failure> {
    let keys = format!("{} keys, {} bytes", count(status.keys), count(status.bytes));
    page.print(&page.paint(Style::Bold, &format!("{}  {keys}", settings.store.url)))?;
    if let Some(oldest) = status.oldest_waiting {
        page.print(&format!("  longest waiting since {}", show::time(oldest, show::now())))?;
    }
    if !status.ledgers.is_empty() {
        let mut head = vec!["source", "received"];
        head.extend(parts(&Ledger::default()).map(|(word, _)| word));
        let rows: Vec<Vec<String>> = status
            .ledgers
            .iter()
            .map(|(source, ledger)| {
                let numbers = parts(ledger).map(|(_, number)| count(number));
                [escaped(source), count(ledger.received)].into_iter().chain(numbers).collect()
            })
            .collect();
        page.table(&head, &rows)?;
    }
    for finding in findings {
        page.print(&format!("{} {}", page.mark(finding.good), finding.what))?;
        for line in &finding.lines {
            page.print(&format!("    {line}"))?;
        }
    }
    Ok(())
}

fn to_json(status: &Status, findings: &[Finding], well: bool) -> Value {
    let ledgers: serde_json::Map<String, Value> = status
        .ledgers
        .iter()
        .map(|(source, ledger)| {
            let mut object = json!({
                "received": ledger.received, "conflict": ledger.conflict, "drift": ledger.drift,
                "collision": ledger.collision, "revived": ledger.revived,
            });
            for (word, number) in parts(ledger) {
                object[word] = number.into();
            }
            object["difference"] = i64::try_from(ledger.difference()).unwrap_or(i64::MAX).into();
            (source.clone(), object)
        })
        .collect();
    let findings: Vec<Value> = findings
        .iter()
        .map(|finding| json!({ "what": finding.what, "good": finding.good, "lines": finding.lines }))
        .collect();
    json!({ "well": well, "ledgers": ledgers, "keys": status.keys, "bytes": status.bytes, "findings": findings })
}
