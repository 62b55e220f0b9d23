//! Recording events: what waits is sent together, one script for many events, a few scripts under way at a time.

use super::Shared;
use super::call::{ACCEPT, Each};
use super::row::{ID, damaged, form_word, id_text, millis, read_id, read_outcome, write_cause, write_fingerprints};
use crate::clock::Timestamp;
use crate::error::{Error, Kind, Result};
use crate::event::{EventId, State};
use crate::redis::{Attempt, Trouble};
use crate::store::books::Uncounted;
use crate::store::{Admission, Counted, NewEvent, Route, Verdict, held};
use geonce_key::Fingerprint;
use redis::Cmd;
use sha2::{Digest, Sha256};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Semaphore, mpsc, oneshot};

/// What the digest of a conflicting content begins with, so that it is no key of anything else.
const CONFLICT_PREFIX: &[u8] = b"geonce conflict 1\0";
/// Requests that may wait.
pub(super) const WAITING_MAX: usize = 4_096;
/// A script takes no further event once it has so many: it blocks the server for about ten milliseconds,
pub(super) const SCRIPT_EVENTS_MAX: usize = 256;
/// or so many bytes.
pub(super) const SCRIPT_BYTES_MAX: usize = 4 << 20;
/// Groups under way at a time: while one is made durable, the next is on its way.
const GROUPS_MAX: usize = 2;

/// What the writer is sent.
pub(super) enum Message {
    /// Events to be recorded.
    Accept(Request),
    /// There may be counts to write.
    Wake,
}

/// A caller's events.
pub(super) struct Request {
    pub(super) events: Vec<NewEvent>,
    pub(super) now: Timestamp,
    pub(super) reply: oneshot::Sender<Result<Vec<Verdict>>>,
}

/// Counts that are not written yet.
#[derive(Default)]
pub(super) struct Waiting(Mutex<Uncounted>);

impl Waiting {
    pub(super) fn add(&self, counted: Vec<Counted>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(counted);
    }

    fn put_back(&self, uncounted: Uncounted) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).put_back(uncounted);
    }

    fn take(&self) -> Uncounted {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Takes what waits and sends it, until nobody can send any more.
pub(super) async fn write(shared: Arc<Shared>, mut messages: mpsc::Receiver<Message>) {
    let places = Arc::new(Semaphore::new(GROUPS_MAX));
    while let Some(first) = messages.recv().await {
        // Only the receiver's end closes the semaphore. While all places are taken, more requests come.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let mut group = Vec::new();
        let (mut events, mut bytes) = (0, 0);
        let mut next = Some(first);
        while let Some(message) = next {
            if let Message::Accept(request) = message {
                events += request.events.len();
                bytes += request.events.iter().map(|event| event.payload.len()).sum::<usize>();
                group.push(request);
            }
            next = if events < SCRIPT_EVENTS_MAX && bytes < SCRIPT_BYTES_MAX { messages.try_recv().ok() } else { None };
        }
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            record(&shared, group).await;
            drop(place);
        });
    }
    // What is under way is finished.
    let _ = places.acquire_many(u32::try_from(GROUPS_MAX).unwrap_or(1)).await;
}

/// Records a group and answers it.
async fn record(shared: &Arc<Shared>, group: Vec<Request>) {
    let latest = group.iter().map(|request| request.now).max().unwrap_or_default();
    let events: Vec<(&NewEvent, Timestamp)> =
        group.iter().flat_map(|request| request.events.iter().map(|event| (event, request.now))).collect();
    let mut verdicts: Vec<Attempt<Verdict>> = Vec::with_capacity(events.len());
    let mut failed = None;
    for slice in slices(&events) {
        match send(shared, &events[slice], latest).await {
            Ok(answers) => verdicts.extend(answers),
            Err(trouble) => {
                failed = Some(trouble.explain("recording events"));
                break;
            }
        }
    }
    let mut verdicts = verdicts.into_iter();
    for Request { events, reply, .. } in group {
        let mine: Vec<Attempt<Verdict>> = verdicts.by_ref().take(events.len()).collect();
        let whole = mine.len() == events.len();
        let answer = match &failed {
            Some(error) if !whole => Err(error.duplicate()),
            _ => mine
                .into_iter()
                .collect::<Attempt<Vec<Verdict>>>()
                .map_err(|trouble| trouble.explain("recording events")),
        };
        // Whoever asked may have gone.
        let _ = reply.send(answer);
    }
}

/// Which events go together.
fn slices(events: &[(&NewEvent, Timestamp)]) -> Vec<Range<usize>> {
    let (mut slices, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (place, (event, _)) in events.iter().enumerate() {
        if place > start && (place - start >= SCRIPT_EVENTS_MAX || bytes + event.payload.len() > SCRIPT_BYTES_MAX) {
            slices.push(start..place);
            (start, bytes) = (place, 0);
        }
        bytes += event.payload.len();
    }
    // One without events too: there may be something to count.
    slices.push(start..events.len());
    slices
}

async fn send(
    shared: &Arc<Shared>,
    events: &[(&NewEvent, Timestamp)],
    now: Timestamp,
) -> Attempt<Vec<Attempt<Verdict>>> {
    let uncounted = shared.waiting.take();
    if events.is_empty() && uncounted.is_empty() {
        return Ok(Vec::new());
    }
    let prepared: Vec<Prepared> = events.iter().map(|(event, _)| Prepared::new(event)).collect();
    let fill = |command: &mut Cmd| {
        begin(command, shared.options.keep_payload, &uncounted);
        for ((event, now), prepared) in events.iter().zip(&prepared) {
            prepared.write(command, event, *now, None);
        }
    };
    let ran = shared.caller.run_each(&ACCEPT, now, &fill).await;
    let (changed, answers) = match ran {
        Ok(ran) => ran,
        Err(trouble) => {
            shared.waiting.put_back(uncounted);
            return Err(trouble);
        }
    };
    if answers.len() != events.len() {
        return Err(damaged("verdicts are missing"));
    }
    if changed == "1" {
        shared.changed();
    }
    Ok(events.iter().zip(answers).map(|((event, _), answer)| read_verdict(event, answer)).collect())
}

/// What comes before the events: counts.
pub(super) fn begin(command: &mut Cmd, keep_payload: bool, uncounted: &Uncounted) {
    command.arg(u8::from(keep_payload));
    command.arg(uncounted.refused.len());
    for ((source, code), count) in &uncounted.refused {
        command.arg(&**source).arg(code).arg(*count);
    }
    command.arg(uncounted.duplicates.len());
    for (source, count) in &uncounted.duplicates {
        command.arg(&**source).arg(*count);
    }
    command.arg(uncounted.repeated.len());
    for (&event, count) in &uncounted.repeated {
        command.arg(id_text(event)).arg(*count);
    }
    command.arg(uncounted.traffic.len());
    for ((source, name), count) in &uncounted.traffic {
        command.arg(&**source).arg(&**name).arg(*count);
    }
}

/// What is made of an event before it is sent.
pub(super) struct Prepared {
    id: String,
    keys: Vec<u8>,
    spatial: Vec<u8>,
    clash: Vec<u8>,
    cause: String,
    /// A line for each: the sink and, after a tab, the one that it waits for.
    routes: String,
}

impl Prepared {
    pub(super) fn new(event: &NewEvent) -> Prepared {
        let (cause, routes) = match &event.admission {
            Admission::Deliver(routes) => (String::new(), routes),
            Admission::Dead(cause, routes) => (write_cause(cause), routes),
        };
        let line = |route: &Route| match held::waits_for(route, routes) {
            Some(after) => format!("{}\t{after}", route.sink),
            None => route.sink.to_string(),
        };
        Prepared {
            id: id_text(event.id),
            keys: write_fingerprints(std::iter::once(&event.key).chain(&event.aliases)),
            spatial: write_fingerprints(&event.spatial),
            clash: write_fingerprints([&clash_key(event)]),
            cause,
            routes: held::distinct(routes).map(line).collect::<Vec<_>>().join("\n"),
        }
    }

    /// The arguments of an event; the last says which one it is a repair of.
    pub(super) fn write(&self, command: &mut Cmd, event: &NewEvent, now: Timestamp, original: Option<EventId>) {
        command.arg(&self.id).arg(millis(now)).arg(&*event.source).arg(&self.keys).arg(&self.spatial);
        command.arg(&event.content[..]).arg(&self.clash).arg(form_word(event.form));
        match event.crs {
            Some(crs) => command.arg(crs),
            None => command.arg(""),
        };
        command.arg(&event.payload[..]).arg(&self.cause).arg(&self.routes);
        match &event.order {
            Some(order) => command.arg(&order.entity.key()[..]).arg(&order.version[..]),
            None => command.arg("").arg(""),
        };
        command.arg(original.map(id_text).unwrap_or_default());
    }
}

/// The key of this content, should its own key be another event's.
fn clash_key(event: &NewEvent) -> Fingerprint {
    let mut digest = Sha256::new();
    digest.update(CONFLICT_PREFIX);
    digest.update(event.key.digest());
    digest.update(event.content);
    Fingerprint::from_digest(digest.finalize().into(), event.key.is_secret())
}

/// Whether names can be part of keys and lists of ours.
pub(super) fn check_names<'e>(events: impl IntoIterator<Item = &'e NewEvent>) -> Result<()> {
    let unfit = |name: &str| name.is_empty() || name.chars().any(char::is_control);
    for event in events {
        let (Admission::Deliver(routes) | Admission::Dead(_, routes)) = &event.admission;
        let sinks = routes.iter().map(|route| &route.sink);
        if let Some(name) = std::iter::once(&event.source).chain(sinks).find(|name| unfit(name)) {
            return Err(Error::new(
                Kind::Invalid,
                format!("recording events: {name:?} is no name of a source or sink"),
            ));
        }
    }
    Ok(())
}

pub(super) fn read_verdict(event: &NewEvent, answer: Each) -> Attempt<Verdict> {
    let answer = answer?;
    let unknown = || damaged(format!("the verdict {answer:?} is unknown"));
    let part = |range: Range<usize>| answer.get(range).ok_or_else(unknown);
    let verdict = match part(0..1)? {
        "a" => Verdict::Accepted,
        "c" => Verdict::Conflict { event: read_id(part(1..1 + ID)?)?, of: read_id(part(1 + ID..1 + 2 * ID)?)? },
        "d" => {
            let (state, outcome) = part(3 + ID..answer.len())?.split_once(' ').ok_or_else(unknown)?;
            let flag = |place: usize| part(place..place + 1).map(|flag| flag == "1");
            Verdict::Duplicate {
                of: read_id(part(1..1 + ID)?)?,
                state: State::from_word(state).ok_or_else(unknown)?,
                outcome: if outcome.is_empty() { None } else { Some(read_outcome(outcome)?) },
                drift: flag(1 + ID)?,
                revived: flag(2 + ID)?,
            }
        }
        _ => return Err(unknown()),
    };
    match verdict {
        // It would mean that an event was taken for a copy of itself, and so lost.
        Verdict::Duplicate { of, .. } if of == event.id => Err(Trouble::told("ERR an event is a duplicate of itself")),
        verdict => Ok(verdict),
    }
}
