//! `geonce check --against`: what a change of policies would do to events that are known, before it is made.

use super::groups::{self, Group, Partition};
use super::sample::{Event, Sample};
use crate::arguments::CheckArguments;
use crate::config::{self, Keying};
use crate::failure::{Failure, Outcome};
use crate::show::{Page, Style, count, escaped};
use geonce::intake::Identify;
use geonce_key::explain::{Explanation, ReasonCode, Side, explain};
use geonce_key::{Delivery, Fingerprint, Input, Keyed, Keyer, Policy};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The sample that is taken from the store.
const STORE: &str = "@store";
/// Groups that are shown; the rest is counted.
const GROUPS_MAX: usize = 10;
/// Reasons that are shown of a group.
const REASONS_MAX: usize = 3;

/// Runs the command; the answer is yes if nothing merges or splits, and nothing is refused that was not.
pub(super) fn run(arguments: &CheckArguments, against: &Path) -> Outcome {
    let place = config::place(&arguments.place.overrides())?;
    let file = place.file.clone().ok_or_else(|| {
        Failure::new("usage", "there is no configuration to compare")
            .hint("--config names the new one, --against the old one")
    })?;
    let named = arguments.source.as_deref();
    let (new, old) = (config::keyings(&file, named)?, config::keyings(against, named)?);
    let names = common(&file, &new, against, &old, named)?;
    let mut sample = Sample::new(arguments.limit);
    match &arguments.sample {
        Some(path) if path != Path::new(STORE) => {
            let [name] = names.iter().collect::<Vec<_>>()[..] else {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                return Err(Failure::new("usage", format!("both files have {} sources", names.len()))
                    .hint(format!("--source says whose events these are: {}", names.join(", "))));
            };
            sample.read(path, name, &new[name])?;
        }
        _ => sample.read_store(
            place,
            named,
            &new.iter().filter(|(name, _)| names.contains(*name)).map(owned).collect(),
        )?,
    }
    let mut reports = Vec::new();
    for (name, events) in &sample.events {
        reports.push(Report::new(name, events, &old[name], &new[name])?);
    }
    let safe = reports.iter().all(Report::is_safe);
    let mut page = Page::new();
    if arguments.json {
        let sources: Vec<Value> = reports.iter().map(Report::to_json).collect();
        let Sample { cut, without, delivered, .. } = sample;
        let skipped = json!({ "without_payload_or_policy": without, "named_by_their_sender": delivered });
        page.print(&json!({ "safe": safe, "cut": cut, "skipped": skipped, "sources": sources }).to_string())?;
    } else {
        for report in &reports {
            report.print(&mut page, against)?;
        }
        notes(&sample, &mut page)?;
    }
    Ok(safe)
}

fn owned((name, keying): (&String, &Keying)) -> (String, Keying) {
    (name.clone(), keying.clone())
}

/// The sources that both files have.
fn common(
    file: &Path,
    new: &BTreeMap<String, Keying>,
    against: &Path,
    old: &BTreeMap<String, Keying>,
    named: Option<&str>,
) -> Result<BTreeSet<String>, Failure> {
    for (file, keyings) in [(file, new), (against, old)] {
        if let Some(name) = named.filter(|name| !keyings.contains_key(*name)) {
            return Err(Failure::new("config_source", format!("{} has no source {name:?}", file.display())));
        }
    }
    let names: BTreeSet<String> = new.keys().filter(|name| old.contains_key(*name)).cloned().collect();
    if names.is_empty() {
        return Err(Failure::new("config_source", "the two files have no source in common")
            .hint("sources are matched by their names"));
    }
    if let Some(name) = names.iter().find(|name| new[*name].preset != old[*name].preset) {
        let message = format!("source {name}: the files read its requests differently, so there is nothing to compare");
        return Err(Failure::new("usage", message).hint("--against needs the same preset, or map, in both"));
    }
    Ok(names)
}

fn notes(sample: &Sample, page: &mut Page) -> Result<(), Failure> {
    for (number, what) in [
        (sample.without, "events of the store have no payload any more, or no source in both files"),
        (sample.delivered, "events are named by their sender's id: a policy does not change that"),
    ] {
        if number > 0 {
            page.print(&format!("  {} {what}", count(number)))?;
        }
    }
    if sample.cut {
        page.print("  the sample holds more events than were compared; --limit says how many are")?;
    }
    Ok(())
}

/// The keys of an event under one policy, and what they come to with the policy before it.
struct Made {
    alone: Vec<Fingerprint>,
    all: Keyed,
}

/// What makes keys under a policy.
struct Keys<'k> {
    keying: &'k Keying,
    alone: Keyer,
    /// With the policy before this one, where there is one.
    all: Option<Keyer>,
}

impl Keys<'_> {
    fn new(keying: &Keying) -> Result<Keys<'_>, Failure> {
        let all = keying.policy.previous.is_some().then(|| Keyer::new(&keying.policy)).transpose()?;
        Ok(Keys { keying, alone: Keyer::new(&alone(&keying.policy))?, all })
    }

    /// The keys of an event, or the code of its refusal.
    fn of(&mut self, event: &Event) -> Result<Made, String> {
        if let Some(code) = &event.broken {
            return Err(code.clone());
        }
        let refused = |error: geonce_key::Error| error.code().as_str().to_owned();
        let input = input(event);
        let keyed = self.alone.key(input).map_err(refused)?;
        let all = match &mut self.all {
            Some(keyer) => keyer.key(input).map_err(refused)?,
            None => keyed.clone(),
        };
        let Some(delivery) = delivery(event, self.keying.identify) else {
            let alone = std::iter::once(keyed.fingerprint).chain(keyed.aliases).collect();
            return Ok(Made { alone, all });
        };
        let policy = &self.keying.policy;
        let fingerprint = delivery.fingerprint(&policy.scope, policy.key_secret.as_ref()).map_err(refused)?;
        let all = Keyed { fingerprint, aliases: Vec::new(), warnings: Vec::new() };
        Ok(Made { alone: vec![fingerprint], all })
    }
}

fn alone(policy: &Policy) -> Policy {
    Policy { previous: None, ..policy.clone() }
}

fn input(event: &Event) -> Input<'_> {
    Input { form: event.form, bytes: &event.payload, crs: event.crs }
}

fn delivery(event: &Event, identify: Identify) -> Option<Delivery<'_>> {
    let own = event.delivery.as_ref().filter(|_| identify != Identify::Spatial);
    own.map(|own| Delivery { by: &own.by, id: &own.id, index: 0 })
}

/// What would become of the events of one source.
struct Report {
    source: String,
    events: u64,
    /// Events that both policies refuse.
    refused: u64,
    /// Codes of events that only one policy refuses: the old one, the new one.
    refused_once: [BTreeMap<String, u64>; 2],
    /// Events whose key is another one.
    changed: u64,
    /// Of these, how many a gateway with the new policy knows by their old key.
    recognised: u64,
    has_previous: bool,
    merges: Found,
    splits: Found,
}

/// Groups of one sort.
struct Found {
    groups: u64,
    events: u64,
    shown: Vec<Shown>,
}

/// A group in words.
struct Shown {
    places: Vec<String>,
    part_count: usize,
    events: usize,
    /// Why they are several on the one side.
    reasons: Vec<String>,
    /// Why they are one on the other.
    same: String,
}

impl Report {
    fn new(source: &str, events: &[Event], old: &Keying, new: &Keying) -> Result<Report, Failure> {
        let (mut before, mut after) = (Keys::new(old)?, Keys::new(new)?);
        let mut report = Report {
            source: source.to_owned(),
            events: events.len() as u64,
            refused: 0,
            refused_once: Default::default(),
            changed: 0,
            recognised: 0,
            has_previous: new.policy.previous.is_some(),
            merges: Found { groups: 0, events: 0, shown: Vec::new() },
            splits: Found { groups: 0, events: 0, shown: Vec::new() },
        };
        let (mut keys_before, mut keys_after) = (Vec::new(), Vec::new());
        for event in events {
            let sides = [before.of(event), after.of(event)];
            report.count(&sides);
            let [old, new] = sides.map(|side| side.ok().map(|side| side.alone));
            keys_before.push(old);
            keys_after.push(new);
        }
        let partition = |keys: &[Option<Vec<Fingerprint>>]| groups::partition(keys.iter().map(Option::as_deref));
        let partitions: [Partition; 2] = [partition(&keys_before), partition(&keys_after)];
        drop((keys_before, keys_after));
        report.merges = Found::new(&groups::divided(&partitions[1], &partitions[0]), events, old, new);
        report.splits = Found::new(&groups::divided(&partitions[0], &partitions[1]), events, new, old);
        Ok(report)
    }

    fn count(&mut self, sides: &[Result<Made, String>; 2]) {
        match sides {
            [Err(_), Err(_)] => self.refused += 1,
            [Err(code), Ok(_)] => *self.refused_once[0].entry(code.clone()).or_default() += 1,
            [Ok(_), Err(code)] => *self.refused_once[1].entry(code.clone()).or_default() += 1,
            [Ok(old), Ok(new)] if old.alone[0] != new.alone[0] => {
                self.changed += 1;
                self.recognised += u64::from(old.all.matches(&new.all));
            }
            [Ok(_), Ok(_)] => {}
        }
    }

    fn is_safe(&self) -> bool {
        self.merges.groups == 0 && self.splits.groups == 0 && self.refused_once[1].is_empty()
    }

    fn to_json(&self) -> Value {
        json!({
            "source": self.source,
            "events": self.events,
            "refused": self.refused,
            "refused_under_old_only": self.refused_once[0],
            "refused_under_new_only": self.refused_once[1],
            "keys_changed": self.changed,
            "keys_recognised": self.recognised,
            "previous": self.has_previous,
            "merges": self.merges.to_json(),
            "splits": self.splits.to_json(),
        })
    }

    fn print(&self, page: &mut Page, against: &Path) -> Result<(), Failure> {
        let summary = format!("{} events, {} keys change", count(self.events), count(self.changed));
        page.print(&page.paint(Style::Bold, &format!("source {}: {summary}", escaped(&self.source))))?;
        self.merges.print(page, "become", "merge")?;
        self.splits.print(page, "were one and become", "split")?;
        for (codes, what) in
            self.refused_once.iter().zip(["taken now, and were refused", "refused now, and were taken"])
        {
            let good = what.starts_with("taken");
            for (code, &number) in codes {
                page.print(&format!("{} {} events are {what} [{}]", page.mark(good), count(number), escaped(code)))?;
            }
        }
        if self.refused > 0 {
            page.print(&format!("  {} events are refused by both", count(self.refused)))?;
        }
        self.print_recognised(page, against)
    }

    fn print_recognised(&self, page: &mut Page, against: &Path) -> Result<(), Failure> {
        if self.changed == 0 {
            return page.print(&format!(
                "{} every key stays: gateways of both policies know each other's events",
                page.mark(true)
            ));
        }
        if self.recognised == self.changed {
            let message =
                "every old key is recognised: previous is set, so gateways of both policies know each other's events";
            page.print(&format!("{} {message}", page.mark(true)))?;
            if self.splits.groups > 0 {
                page.print(
                    "  while previous is set, what splits is still one event; it splits once previous is taken away",
                )?;
            }
            return Ok(());
        }
        let missed = count(self.changed - self.recognised);
        let mark = page.paint(Style::Yellow, "!");
        let why = if self.has_previous { "previous names another policy" } else { "previous is not set" };
        page.print(&format!("{mark} {missed} events would not be known again if they are delivered once before and once after the change: {why}"))?;
        page.print(&format!(
            "  hint: previous = {:?} in [source.{}], until the window has passed",
            against.display().to_string(),
            escaped(&self.source)
        ))
    }
}

impl Found {
    /// `apart` is the policy under which they are several, `together` that under which they are one.
    fn new(groups: &[Group], events: &[Event], apart: &Keying, together: &Keying) -> Found {
        let show = |group: &Group| Shown::new(group, events, apart, together);
        Found {
            groups: groups.len() as u64,
            events: groups.iter().map(|group| group.events as u64).sum(),
            shown: groups.iter().take(GROUPS_MAX).map(show).collect(),
        }
    }

    fn to_json(&self) -> Value {
        let shown = self.shown.iter().map(|group| {
            json!({
                "events": group.events, "parts": group.part_count, "examples": group.places,
                "differ": group.reasons, "same": group.same,
            })
        });
        json!({ "groups": self.groups, "events": self.events, "shown": shown.collect::<Vec<_>>() })
    }

    fn print(&self, page: &mut Page, verb: &str, code: &str) -> Result<(), Failure> {
        if self.groups == 0 {
            return Ok(());
        }
        let number = format!("{} of the sample's events, in {} groups", count(self.events), count(self.groups));
        page.print(&format!("{} {number}, {code}", page.mark(false)))?;
        for group in &self.shown {
            let more = group.part_count - group.places.len();
            let more = if more > 0 { format!(" and {} more", count(more as u64)) } else { String::new() };
            let what = match code {
                "merge" => format!("{} events {verb} one", count(group.part_count as u64)),
                _ => format!("{} events {verb} {}", count(group.events as u64), count(group.part_count as u64)),
            };
            page.print(&format!("    {what}: {}{more}", group.places.join(", ")))?;
            for reason in &group.reasons {
                page.print(&format!("      {reason}"))?;
            }
            page.print(&format!("      {}", group.same))?;
        }
        let hidden = self.groups - self.shown.len() as u64;
        if hidden > 0 {
            page.print(&format!("    and {} more groups", count(hidden)))?;
        }
        Ok(())
    }
}

impl Shown {
    fn new(group: &Group, events: &[Event], apart: &Keying, together: &Keying) -> Shown {
        let (a, b) = (&events[group.parts[0]], &events[group.parts[1]]);
        let under = |keying: &Keying| {
            let policy = alone(&keying.policy);
            let side =
                |event| Side { input: input(event), policy: &policy, delivery: delivery(event, keying.identify) };
            explain(&side(a), &side(b)).ok()
        };
        Shown {
            places: group.parts.iter().map(|&part| escaped(&events[part].place)).collect(),
            part_count: group.part_count,
            events: group.events,
            reasons: under(apart).map(|found| apart_words(&found)).unwrap_or_default(),
            same: together_words(under(together)),
        }
    }
}

/// Which rules tell two events apart.
fn apart_words(found: &Explanation) -> Vec<String> {
    if found.same {
        return vec!["they share an alias, but not with the event that came first".to_owned()];
    }
    let words = |reason: &geonce_key::explain::Reason| {
        let place = if reason.pointer.is_empty() { reason.code.words() } else { escaped(&reason.pointer) };
        let value = |text: &str| if text.is_empty() { "absent".to_owned() } else { escaped(text) };
        let values = match (reason.a.as_str(), reason.b.as_str()) {
            ("", "") => String::new(),
            (a, b) => format!("  {} │ {}", value(a), value(b)),
        };
        format!("{place}{values}: {} [{}]", reason.message, reason.code)
    };
    let mut lines: Vec<String> = found.reasons.iter().take(REASONS_MAX).map(words).collect();
    let more = found.reasons.len() + found.more_reasons - lines.len();
    if more > 0 {
        lines.push(format!("and {more} more reasons"));
    }
    lines
}

/// Which rules make two events one.
fn together_words(found: Option<Explanation>) -> String {
    let Some(found) = found.filter(|found| found.same) else {
        return "the same: each shares a key or an alias with a third one".to_owned();
    };
    let differences = found.outside.iter().chain(&found.removed);
    let mut words: Vec<String> = Vec::new();
    for reason in differences {
        let word = match (reason.code, reason.pointer.as_str()) {
            (ReasonCode::OutsideField | ReasonCode::IgnoredField, pointer) => escaped(pointer),
            (code, "") => code.words(),
            (code, pointer) => format!("{} of {}", code.words(), escaped(pointer)),
        };
        if words.len() < REASONS_MAX && !words.contains(&word) {
            words.push(word);
        }
    }
    let list = if words.is_empty() { String::new() } else { format!(", which does not look at: {}", words.join(", ")) };
    format!("the same {} under the other policy{list}", found.by.as_str().replace('_', " "))
}
