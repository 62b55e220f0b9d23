//! Compares what the store says was applied with what the sinks can prove, both ways.

use super::{EXAMPLES_MAX, Finding};
use crate::config::{Settings, SinkSettings};
use crate::failure::Failure;
use crate::show::{self, count};
use crate::tool::{self, Tool};
use geonce::event::{EventId, Outcome, State};
use geonce::sink::{Mode, Sink};
use geonce::store::{Filter, ListRequest};
use geonce_key::Fingerprint;
use std::collections::HashMap;

/// Keys or proofs asked for at once.
const PAGE: usize = 500;
/// Events that can be held in memory for the comparison.
const EVENTS_MAX: usize = 10_000_000;

/// An event as far as the comparison goes.
struct Known {
    state: State,
}

/// What is wrong at one sink.
#[derive(Default)]
struct Differences {
    proven: u64,
    missing: u64,
    forgotten: u64,
    unknown: u64,
    dead: u64,
    examples: Vec<String>,
}

impl Differences {
    fn example(&mut self, event: EventId, what: &str) {
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(format!("{event}: {what}"));
        }
    }
}

pub(super) fn run(tool: &Tool, settings: &Settings) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    for (name, sink) in &settings.sinks {
        findings.push(compare(tool, settings, name, sink)?);
    }
    Ok(findings)
}

fn compare(tool: &Tool, settings: &Settings, name: &str, sink: &SinkSettings) -> Result<Finding, Failure> {
    let what = format!("store and sink {name}");
    let (known, applied) = events_of(tool, settings, name)?;
    if tool::missing_file(&sink.url, &tool.place.data).is_some() {
        let lines =
            vec![format!("{} is not there; {} events were applied to it", sink.url, count(applied.len() as u64))];
        return Ok(Finding::new(what, applied.is_empty(), lines));
    }
    let opened = tool.open_sink(name, sink)?;
    let mut differences = Differences::default();
    // The store is read first: what it says was applied was at the sink before that.
    let proves = missing(tool, &*opened, &applied, &mut differences)?;
    if proves {
        unknown(tool, &*opened, &known, &mut differences)?;
    }
    tool.wait(opened.close())?;
    let one_proof_per_entity = sink.options.mode != Mode::Append;
    Ok(finding(what, proves, one_proof_per_entity, applied.len() as u64, differences))
}

/// Everything the store knows, and what it says was applied to this sink.
#[expect(clippy::type_complexity, reason = "two collections of one pass, used once")]
fn events_of(
    tool: &Tool,
    settings: &Settings,
    sink: &str,
) -> Result<(HashMap<EventId, Known>, Vec<(EventId, Fingerprint)>), Failure> {
    let mut known = HashMap::new();
    let mut applied = Vec::new();
    tool.each(&Filter::default(), false, |record| {
        if known.len() >= EVENTS_MAX {
            return Err(Failure::new("too_many", format!("the store has more than {EVENTS_MAX} events")));
        }
        let here = settings.sources.get(&*record.source).is_some_and(|source| source.sinks.iter().any(|s| s == sink));
        if here && record.state == State::Done && record.outcome == Some(Outcome::Applied) {
            applied.push((record.id, record.key));
        }
        known.insert(record.id, Known { state: record.state });
        Ok(true)
    })?;
    Ok((known, applied))
}

/// Asks the sink for proof of what was applied; false where it keeps none.
fn missing(
    tool: &Tool,
    sink: &dyn Sink,
    applied: &[(EventId, Fingerprint)],
    differences: &mut Differences,
) -> Result<bool, Failure> {
    // Whether it keeps proofs at all is asked even if there is nothing to prove.
    if tool.wait(sink.proofs(Vec::new()))?.is_none() {
        return Ok(false);
    }
    for page in applied.chunks(PAGE) {
        let keys = page.iter().map(|(_, key)| *key).collect();
        let Some(proofs) = tool.wait(sink.proofs(keys))? else { return Ok(false) };
        for ((event, _), proven) in page.iter().zip(proofs) {
            if proven {
                differences.proven += 1;
            } else {
                differences.missing += 1;
                differences.example(*event, "applied, says the store; the sink has no proof of it");
            }
        }
    }
    Ok(true)
}

/// Looks for proofs whose event the store does not know, or knows as dead.
fn unknown(
    tool: &Tool,
    sink: &dyn Sink,
    known: &HashMap<EventId, Known>,
    differences: &mut Differences,
) -> Result<(), Failure> {
    let window = tool.place.store.options.window;
    let mut after = None;
    loop {
        let Some(page) = tool.wait(sink.applied(after, PAGE))? else { return Ok(()) };
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.key);
        for proof in &page {
            match known.get(&proof.event).map(|known| known.state) {
                Some(State::Dead) => {
                    differences.dead += 1;
                    differences.example(proof.event, "dead, says the store; the sink has applied it");
                }
                Some(_) => {}
                None if show::now().since(proof.event.time()) > window => differences.forgotten += 1,
                // It may have come in since the store was read.
                None if arrived_since(tool, proof.event)? => {}
                None => {
                    differences.unknown += 1;
                    differences.example(proof.event, "at the sink; the store has never seen it");
                }
            }
        }
        if page.len() < PAGE {
            return Ok(());
        }
    }
}

fn arrived_since(tool: &Tool, event: EventId) -> Result<bool, Failure> {
    let filter = Filter { id: Some(event), ..Filter::default() };
    let found = tool.wait(tool.store.list(ListRequest { filter, limit: 1, ..ListRequest::default() }))?;
    Ok(!found.is_empty())
}

fn finding(what: String, proves: bool, upsert: bool, applied: u64, differences: Differences) -> Finding {
    if !proves {
        return Finding::new(what, true, vec!["this kind of sink keeps no proofs to compare with".to_owned()]);
    }
    let mut lines = vec![format!("{} of {} applied events proven", count(differences.proven), count(applied))];
    // In upsert mode a later version takes the place of the proof before it.
    let missing_is_wrong = !upsert;
    for (number, what) in [
        (differences.missing, if upsert { "replaced by a later version" } else { "missing at the sink" }),
        (differences.unknown, "at the sink and never seen by this store"),
        (differences.dead, "dead and yet at the sink"),
        (differences.forgotten, "at the sink and forgotten here, their window being over"),
    ] {
        if number > 0 {
            lines.push(format!("{} {what}", count(number)));
        }
    }
    let good = differences.unknown == 0 && differences.dead == 0 && (differences.missing == 0 || !missing_is_wrong);
    if !good {
        lines.extend(differences.examples);
    }
    Finding::new(what, good, lines)
}
