//! A recorded event, for people and for machines.

use crate::failure::Failure;
use crate::show::{self, Page, Style, escaped};
use crate::{nearness, payload};
use geonce::clock::Timestamp;
use geonce::event::{Cause, EventId, Outcome, State};
use geonce::store::{Held, Record};
use geonce_key::near::Measure;
use geonce_key::{Encoding, Fingerprint};
use serde_json::{Value, json};

/// The text of a key.
pub(crate) fn key(fingerprint: &Fingerprint) -> String {
    fingerprint.text(Encoding::Base64)
}

fn cause_json(cause: &Cause) -> Value {
    json!({
        "class": cause.class.as_str(),
        "code": cause.code,
        "pointer": cause.pointer,
        "message": cause.message,
    })
}

/// A result as it was meant: as JSON, or else as text.
fn result_json(result: &str) -> Value {
    serde_json::from_str(result).unwrap_or_else(|_| result.into())
}

/// The event that a repaired one became.
fn became(record: &Record) -> Option<EventId> {
    record.result.as_deref().filter(|_| record.outcome == Some(Outcome::Repaired)).and_then(geonce::store::successor)
}

/// What an event was near to when it was delivered, and what was done about it.
#[derive(Clone)]
pub(crate) struct Found {
    of: String,
    measure: String,
    value: f64,
    action: String,
}

/// What an event was near to, if it was.
pub(crate) fn near(record: &Record) -> Option<Found> {
    let result: Value = serde_json::from_str(record.result.as_deref()?).ok()?;
    let near = result.get("near")?;
    let text = |name: &str| near.get(name)?.as_str().map(str::to_owned);
    Some(Found {
        of: text("of")?,
        measure: text("measure")?,
        value: near.get("value")?.as_f64()?,
        action: text("action")?,
    })
}

impl Found {
    pub(crate) fn json(&self) -> Value {
        json!({ "of": self.of, "measure": self.measure, "value": self.value, "action": self.action })
    }

    pub(crate) fn text(&self) -> String {
        let amount = match Measure::from_name(&self.measure) {
            Some(measure) => nearness::amount(measure, self.value),
            None => self.value.to_string(),
        };
        let done = match self.action.as_str() {
            "drop" => "dropped",
            "flag" => "written and flagged",
            "merge" => "merged into its row",
            other => other,
        };
        format!("{}, {} {amount}: {}", escaped(&self.of), escaped(&self.measure), escaped(done))
    }
}

/// What held work waits for.
fn held(held: &Held) -> String {
    match held {
        Held::Sink(sink) => format!("after {}", escaped(sink)),
        Held::Entity => "behind another event of its entity".to_owned(),
    }
}

/// An event as one line of JSON; with its payload if it was asked for and is still kept.
pub(crate) fn line(record: &Record) -> String {
    let keys = |fingerprints: &[Fingerprint]| fingerprints.iter().map(key).collect::<Vec<_>>();
    let work: Vec<Value> = record
        .work
        .iter()
        .map(|work| {
            json!({
                "sink": &*work.sink,
                "state": work.state.as_str(),
                "due": (work.due < Timestamp::MAX).then(|| work.due.to_string()),
                "held": work.held.as_ref().map(held),
                "attempts": work.attempts,
                "lapses": work.lapses,
                "cause": work.cause.as_ref().map(cause_json),
                "holder": work.holder.as_deref(),
            })
        })
        .collect();
    let mut text = json!({
        "event": record.id.to_string(),
        "source": &*record.source,
        "key": key(&record.key),
        "aliases": keys(&record.aliases),
        "spatial": keys(&record.spatial),
        "state": record.state.as_str(),
        "outcome": record.outcome.map(Outcome::as_str),
        "result": record.result.as_deref().map(result_json),
        "origin": record.origin.map(|origin| json!({"event": origin.event.to_string(), "key": key(&origin.key)})),
        "repaired": became(record).map(|event| event.to_string()),
        "near": near(record).map(|found| found.json()),
        "cause": record.cause.as_ref().map(cause_json),
        "received": record.received.to_string(),
        "settled": record.settled.map(|at| at.to_string()),
        "duplicates": record.duplicates,
        "work": work,
        "form": payload::form_word(record.form),
        "crs": record.crs,
    })
    .to_string();
    if let Some(bytes) = &record.payload {
        text.truncate(text.len() - 1);
        payload::append(&mut text, bytes, record.form);
        text.push('}');
    }
    text
}

/// What became of an event, in one or two words.
pub(crate) fn fate(record: &Record) -> String {
    match (record.state, record.outcome, &record.cause) {
        (State::Done, Some(outcome), _) => outcome.to_string(),
        (State::Dead, _, Some(cause)) => format!("dead {}", escaped(&cause.code)),
        (state, _, Some(cause)) => format!("{state}, last {}", escaped(&cause.code)),
        (State::Ready, ..) if !record.work.is_empty() && record.work.iter().all(|work| work.held.is_some()) => {
            "ready, held".to_owned()
        }
        (state, ..) => state.to_string(),
    }
}

/// Prints everything that is known about an event.
pub(crate) fn print(page: &mut Page, record: &Record, hint: Option<&str>) -> Result<(), Failure> {
    let now = show::now();
    let pair = |page: &mut Page, name: &str, value: &str| {
        let name = page.paint(Style::Dim, &format!("{name:<10}"));
        page.print(&format!("  {name} {value}"))
    };
    let head = page.paint(Style::Bold, &record.id.to_string());
    page.print(&format!("{head}  {}", fate(record)))?;
    pair(page, "source", &escaped(&record.source))?;
    pair(page, "key", &key(&record.key))?;
    for alias in &record.aliases {
        pair(page, "alias", &key(alias))?;
    }
    for spatial in &record.spatial {
        pair(page, "spatial", &key(spatial))?;
    }
    pair(page, "received", &moment(record.received, now))?;
    if let Some(settled) = record.settled {
        pair(page, "settled", &moment(settled, now))?;
    }
    if let Some(origin) = &record.origin {
        pair(page, "origin", &format!("a repair of {}, key {}", origin.event, key(&origin.key)))?;
    }
    if let Some(event) = became(record) {
        pair(page, "repaired", &format!("became {event}"))?;
    }
    if let Some(found) = near(record) {
        pair(page, "near", &found.text())?;
    }
    if let Some(result) = &record.result {
        pair(page, "result", &escaped(result))?;
    }
    pair(page, "duplicates", &show::count(record.duplicates))?;
    for work in &record.work {
        let why = work.cause.as_ref().map_or_else(String::new, |cause| format!(", last {}", escaped(&cause.code)));
        let when = match &work.held {
            Some(what) => format!("held {}", held(what)),
            None => format!("due {}", show::time(work.due, now)),
        };
        let whose = work.holder.as_ref().map_or_else(String::new, |holder| format!(" by {}", escaped(holder)));
        let text = format!(
            "{}: {}{whose}, {} attempts, {} lapses, {when}{why}",
            escaped(&work.sink),
            work.state,
            work.attempts,
            work.lapses,
        );
        pair(page, "sink", &text)?;
    }
    if let Some(cause) = &record.cause {
        let place = if cause.pointer.is_empty() { String::new() } else { format!(" at {}", escaped(&cause.pointer)) };
        let text = format!("{} [{} {}]{place}", escaped(&cause.message), cause.class, escaped(&cause.code));
        let text = page.paint(Style::Red, &text);
        pair(page, "cause", &text)?;
    }
    if let Some(hint) = hint {
        pair(page, "hint", hint)?;
    }
    let Some(bytes) = &record.payload else {
        return pair(page, "payload", "not kept");
    };
    pair(page, "payload", &format!("{}, {} bytes", payload::form_word(record.form), show::count(bytes.len() as u64)))?;
    let pointer = record.cause.as_ref().map(|cause| cause.pointer.as_str());
    for line in payload::lines(bytes, record.form, pointer) {
        if line.marked {
            let text = page.paint(Style::Red, &format!("> {}   ← here", line.text));
            page.print(&text)?;
        } else {
            page.print(&format!("  {}", line.text))?;
        }
    }
    Ok(())
}

fn moment(at: Timestamp, now: Timestamp) -> String {
    format!("{at} ({} ago)", ago(at, now))
}

/// How long ago, to one unit.
fn ago(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.since(at).as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}
