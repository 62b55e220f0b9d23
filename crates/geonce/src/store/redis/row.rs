//! How events are written into arguments and fields, and read back with everything checked.

use crate::clock::Timestamp;
use crate::event::{Cause, Class, EventId, Outcome, State};
use crate::redis::{Attempt, Trouble};
use crate::store::result::shown;
use crate::store::{Filter, Held, Origin, Record, Work};
use geonce_key::{Fingerprint, Form};
use redis::Value;
use std::collections::HashMap;

/// Bytes of a stored fingerprint: whether a key secret was used, and the digest.
const FINGERPRINT_BYTES: usize = 33;
/// Characters of an id.
pub(super) const ID: usize = 26;
/// Times are kept as doubles; later than this, which is beyond the year 100000, is as good as never.
const TIME_MAX: i64 = 1 << 52;

/// What was read cannot be what was written.
pub(super) fn damaged(what: impl AsRef<str>) -> Trouble {
    Trouble::told(&format!("DAMAGED {}", what.as_ref()))
}

/// A time that the server can count with.
pub(super) fn millis(time: Timestamp) -> i64 {
    time.millis().clamp(-TIME_MAX, TIME_MAX)
}

/// An id as it is written in keys: sorted as text, ids are sorted as ids.
pub(super) fn id_text(id: EventId) -> String {
    id.to_string().split_off(4)
}

pub(super) fn read_id(text: &str) -> Attempt<EventId> {
    format!("evt_{text}").parse().map_err(|_| damaged(format!("{text:?} is no id")))
}

/// Fingerprints as they are stored.
pub(super) fn write_fingerprints<'a>(fingerprints: impl IntoIterator<Item = &'a Fingerprint>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FINGERPRINT_BYTES);
    for fingerprint in fingerprints {
        bytes.push(u8::from(fingerprint.is_secret()));
        bytes.extend_from_slice(fingerprint.digest());
    }
    bytes
}

pub(super) fn read_fingerprints(bytes: &[u8]) -> Attempt<Vec<Fingerprint>> {
    let (chunks, rest) = bytes.as_chunks::<FINGERPRINT_BYTES>();
    if !rest.is_empty() {
        return Err(damaged("fingerprints of the wrong length"));
    }
    let read = |chunk: &[u8; FINGERPRINT_BYTES]| {
        let mut digest = [0; 32];
        digest.copy_from_slice(&chunk[1..]);
        Fingerprint::from_digest(digest, chunk[0] != 0)
    };
    Ok(chunks.iter().map(read).collect())
}

const FORMS: [(Form, &str); 4] =
    [(Form::Json, "json"), (Form::Wkt, "wkt"), (Form::Wkb, "wkb"), (Form::WkbHex, "wkbhex")];

pub(super) fn form_word(form: Form) -> &'static str {
    FORMS.iter().find(|(known, _)| *known == form).map_or("", |(_, word)| word)
}

pub(super) fn read_form(word: &str) -> Attempt<Form> {
    let found = FORMS.iter().find(|(_, known)| *known == word).map(|(form, _)| *form);
    found.ok_or_else(|| damaged(format!("the form {word:?} is unknown")))
}

/// A coordinate system; empty where none was declared.
pub(super) fn read_crs(text: &str) -> Attempt<Option<u32>> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| damaged("a coordinate system that is no number"))
}

/// What a cause looks like in its field: a JSON array of class, code, pointer, message.
pub(super) fn write_cause(cause: &Cause) -> String {
    serde_json::json!([cause.class.as_str(), cause.code, cause.pointer, cause.message]).to_string()
}

pub(super) fn read_cause(text: &str) -> Attempt<Cause> {
    let parts: [String; 4] = serde_json::from_str(text).map_err(|_| damaged("a cause that cannot be read"))?;
    let [class, code, pointer, message] = parts;
    let class = Class::from_word(&class).ok_or_else(|| damaged("a cause of an unknown class"))?;
    Ok(Cause { class, code, pointer, message })
}

pub(super) fn read_outcome(word: &str) -> Attempt<Outcome> {
    Outcome::from_word(word).ok_or_else(|| damaged(format!("the outcome {word:?} is unknown")))
}

pub(super) fn read_number<T: std::str::FromStr>(text: &str, what: &str) -> Attempt<T> {
    text.parse().map_err(|_| damaged(format!("{what} is no number, but {text:?}")))
}

pub(super) fn read_digest(bytes: &[u8]) -> Attempt<[u8; 32]> {
    bytes.try_into().map_err(|_| damaged("a digest that has not 32 bytes"))
}

/// Where a repaired event comes from: the id of its original as text, and its key. Empty where it is none.
pub(super) fn read_origin(bytes: &[u8]) -> Attempt<Option<Origin>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let wrong = || damaged("an origin that cannot be read");
    let (id, key) = bytes.split_at_checked(ID).ok_or_else(wrong)?;
    let id = read_id(str::from_utf8(id).map_err(|_| wrong())?)?;
    let key = read_fingerprints(key)?.first().copied().ok_or_else(wrong)?;
    Ok(Some(Origin { event: id, key }))
}

/// A record as the server gave it.
pub(super) struct Row {
    pub(super) record: Record,
    /// Whether a payload should be there.
    pub(super) has_body: bool,
    /// What an audit asks for besides.
    pub(super) around: Vec<Value>,
}

type Fields = HashMap<Vec<u8>, Vec<u8>>;

/// One of the records that `read.lua` gives: its id, and the record, unless it is gone.
pub(super) fn read_row(value: Value) -> Attempt<(EventId, Attempt<Option<Row>>)> {
    type Parts = (String, Vec<Vec<u8>>, Vec<String>, Vec<Value>);
    let (id, flat, due, around): Parts = redis::from_redis_value(value)?;
    let id = read_id(&id)?;
    if flat.is_empty() {
        return Ok((id, Ok(None)));
    }
    let named = |trouble| match trouble {
        Trouble::Told { text, .. } if !text.contains(&id.to_string()) => {
            damaged(format!("{id}: {}", text.trim_start_matches("DAMAGED ")))
        }
        other => other,
    };
    Ok((id, read_record(id, flat, &due, around).map(Some).map_err(named)))
}

fn read_record(id: EventId, flat: Vec<Vec<u8>>, due: &[String], around: Vec<Value>) -> Attempt<Row> {
    let mut fields = Fields::new();
    let (mut work, mut after, mut holders) = (Vec::new(), HashMap::new(), HashMap::new());
    let mut times = due.iter();
    let mut flat = flat.into_iter();
    while let (Some(name), Some(value)) = (flat.next(), flat.next()) {
        let of = |prefix: &[u8]| name.strip_prefix(prefix).map(|sink| text(id, "sink", sink.to_vec())).transpose();
        if let Some(sink) = of(b"work:")? {
            let due = times.next().map_or("", String::as_str);
            work.push(read_work(&sink, &text(id, "work", value)?, due)?);
        } else if let Some(sink) = of(b"after:")? {
            after.insert(sink, text(id, "sink", value)?);
        } else if let Some(sink) = of(b"holder:")? {
            holders.insert(sink, text(id, "holder", value)?);
        } else {
            fields.insert(name, value);
        }
    }
    for work in &mut work {
        if let (Some(held), Some(after)) = (&mut work.held, after.get(&*work.sink)) {
            *held = Held::Sink(after.as_str().into());
        }
        if work.state == State::Leased {
            work.holder = holders.get(&*work.sink).map(|holder| holder.as_str().into());
        }
    }
    work.sort_by(|a: &Work, b: &Work| a.sink.cmp(&b.sink));
    let mut word = |name: &str| fields.remove(name.as_bytes()).map(|value| text(id, name, value)).transpose();
    let missing = |name: &str| damaged(format!("the record of {id} has no {name}"));
    let source = word("source")?.ok_or_else(|| missing("source"))?;
    let state = match word("state")?.as_deref() {
        Some("open") if work.iter().any(|work| work.state == State::Leased) => State::Leased,
        Some("open") => State::Ready,
        Some("done") => State::Done,
        Some("dead") => State::Dead,
        _ => return Err(missing("state")),
    };
    let time = |text: String| read_number(&text, "a time").map(Timestamp::from_millis);
    let received = word("received")?.map(time).transpose()?.ok_or_else(|| missing("time"))?;
    let settled = word("settled")?.map(time).transpose()?;
    let outcome = word("outcome")?.as_deref().map(read_outcome).transpose()?;
    let cause = word("cause")?.as_deref().map(read_cause).transpose()?;
    let duplicates = word("duplicates")?.map_or(Ok(0), |text| read_number(&text, "the number of duplicates"))?;
    let form = read_form(&word("form")?.ok_or_else(|| missing("form"))?)?;
    let crs = read_crs(&word("crs")?.unwrap_or_default())?;
    let has_body = word("body")?.is_some();
    let result = word("result")?;
    let bytes = |name: &str| fields.get(name.as_bytes()).map_or(&[][..], Vec::as_slice);
    let mut keys = read_fingerprints(bytes("keys"))?.into_iter();
    let last_cause = || work.iter().find_map(|work| work.cause.clone());
    let key = keys.next().ok_or_else(|| missing("key"))?;
    let result = result.map(|stored| shown(&stored, &key)).transpose().map_err(damaged)?;
    let record = Record {
        id,
        source: source.into(),
        key,
        aliases: keys.collect(),
        spatial: read_fingerprints(bytes("spatial"))?,
        content: read_digest(bytes("content"))?,
        origin: read_origin(bytes("origin"))?,
        state,
        outcome: outcome.filter(|_| state == State::Done),
        result: result.filter(|_| state == State::Done),
        cause: if state == State::Dead { cause } else { last_cause() },
        received,
        settled,
        duplicates,
        work,
        form,
        crs,
        payload: None,
    };
    Ok(Row { record, has_body, around })
}

fn text(id: EventId, name: &str, bytes: Vec<u8>) -> Attempt<String> {
    String::from_utf8(bytes).map_err(|_| damaged(format!("{name} of {id} is no text")))
}

fn read_work(sink: &str, text: &str, due: &str) -> Attempt<Work> {
    let unknown = || damaged(format!("work that cannot be read: {text:?}"));
    let mut parts = text.splitn(5, ' ');
    let (Some(state), Some(_token), Some(attempts), Some(lapses)) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(unknown());
    };
    // Whether it waits for a sink, another field tells.
    let held = (state == "h").then_some(Held::Entity);
    let state = match state {
        "r" | "h" => State::Ready,
        "l" => State::Leased,
        "d" => State::Dead,
        _ => return Err(unknown()),
    };
    let cause = parts.next().filter(|cause| !cause.is_empty()).map(read_cause).transpose()?;
    let due = if state == State::Dead || held.is_some() { Timestamp::MAX } else { read_score(due)? };
    Ok(Work {
        sink: sink.into(),
        state,
        due,
        held,
        attempts: read_number(attempts, "attempts")?,
        lapses: read_number(lapses, "lapses")?,
        cause,
        holder: None,
    })
}

/// A time of the queue. Scores are doubles, and the server writes whole ones without a fraction.
fn read_score(text: &str) -> Attempt<Timestamp> {
    if text.is_empty() {
        return Err(damaged("work that is in no queue"));
    }
    read_number(text, "when work is due").map(Timestamp::from_millis)
}

/// Whether a record meets every condition.
pub(super) fn matches(filter: &Filter, record: &Record) -> bool {
    let Filter { id, key, source, state, outcome, code, since, until } = filter;
    id.is_none_or(|id| record.id == id)
        && key.is_none_or(|key| {
            std::iter::once(&record.key).chain(&record.aliases).any(|fingerprint| fingerprint.key() == key)
        })
        && source.as_ref().is_none_or(|source| **source == *record.source)
        && state.is_none_or(|state| record.state == state)
        && outcome.is_none_or(|outcome| record.outcome == Some(outcome))
        && code.as_ref().is_none_or(|code| {
            record.state == State::Dead && record.cause.as_ref().is_some_and(|cause| cause.code == *code)
        })
        && since.is_none_or(|since| record.received >= since)
        && until.is_none_or(|until| record.received < until)
}
