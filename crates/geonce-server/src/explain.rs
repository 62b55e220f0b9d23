//! `geonce explain`: two payloads, from files or as they were recorded, and one answer with its reasons.

use crate::arguments::ExplainArguments;
use crate::config::{self, Likeness, Overrides};
use crate::failure::{Failure, Outcome};
use crate::input::Input;
use crate::nearness::{self, Nearness};
use crate::record::{self, Found};
use crate::tool::Tool;
use geonce::clock::Timestamp;
use geonce::event::EventId;
use geonce::store::{Filter, ListRequest, Record};
use geonce_key::explain::{Side, Which, explain};
use geonce_key::{Delivery, Form, Policy};
use std::io::{self, IsTerminal, Write};
use std::path::Path;

/// Runs the command; the answer is yes if both are the same event.
pub(crate) fn run(arguments: &ExplainArguments) -> Outcome {
    let recorded = Recorded::of(arguments)?;
    let (likeness_a, payload_a) = side(&arguments.a, None, arguments, recorded.as_ref())?;
    let (likeness_b, payload_b) = side(&arguments.b, arguments.source_b.as_deref(), arguments, recorded.as_ref())?;
    if let Some(recorded) = recorded {
        recorded.tool.close()?;
    }
    let deliveries = deliveries(&arguments.delivery)?;
    let a = Side { input: payload_a.input(), policy: &likeness_a.policy, delivery: deliveries[0] };
    let b = Side { input: payload_b.input(), policy: &likeness_b.policy, delivery: deliveries[1] };
    let explanation = explain(&a, &b).map_err(|(which, error)| {
        let path = if matches!(which, Which::A) { &arguments.a } else { &arguments.b };
        Failure::from(error).within(&path.display().to_string())
    })?;
    let names = [&arguments.a, &arguments.b].map(|path| path.display().to_string());
    let sides = [payload_a.near(&likeness_a), payload_b.near(&likeness_b)];
    let nearness = Nearness::of(explanation.same, sides, [payload_a.found.clone(), payload_b.found.clone()])?;
    let mut text = if arguments.json {
        nearness.beside(explanation.to_json())
    } else {
        let color = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let names = [names[0].as_str(), names[1].as_str()];
        explanation.to_text(names, color) + &nearness.text(names)
    };
    if let Some(path) = &arguments.svg {
        let svg = explanation.to_svg(&a, &b);
        if path == Path::new("-") {
            text = svg;
        } else {
            std::fs::write(path, svg).map_err(|error| Failure::io(&path.display().to_string(), &error))?;
        }
    }
    let mut out = io::stdout().lock();
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    write!(out, "{text}{newline}").map_err(|error| Failure::io("standard output", &error))?;
    Ok(explanation.same)
}

/// What payloads of one side are compared by, and the payload. A recorded event is compared as its source says.
fn side(
    path: &Path,
    source: Option<&str>,
    arguments: &ExplainArguments,
    recorded: Option<&Recorded>,
) -> Result<(Likeness, Payload), Failure> {
    let source = source.or(arguments.policy.source.as_deref());
    let (Some(id), Some(recorded)) = (event_id(path), recorded) else {
        let likeness = arguments.policy.likeness_of(source)?;
        let payload = Payload::read(path, arguments, &likeness.policy)?;
        return Ok((likeness, payload));
    };
    let record = recorded.event(id)?;
    let file = recorded.tool.place.file.as_deref();
    let likeness = arguments.policy.likeness_of_recorded(file, source.unwrap_or(&record.source))?;
    let found = record::near(&record);
    let bytes = record.payload.ok_or_else(|| {
        Failure::new("event_payload", format!("the payload of {id} is not kept any more"))
            .hint("store.keep_payload keeps payloads for the window")
    })?;
    let (form, crs, received) = (record.form, record.crs, Some(record.received));
    Ok((likeness, Payload { bytes: bytes.to_vec(), form, crs, received, found }))
}

/// The event that an argument names, unless there is a file of that name.
fn event_id(path: &Path) -> Option<EventId> {
    let id = path.to_str()?.parse().ok()?;
    (!path.exists()).then_some(id)
}

/// The store of recorded events, where one is named.
struct Recorded {
    tool: Tool,
}

impl Recorded {
    fn of(arguments: &ExplainArguments) -> Result<Option<Recorded>, Failure> {
        if event_id(&arguments.a).or(event_id(&arguments.b)).is_none() {
            return Ok(None);
        }
        let overrides = Overrides {
            config: arguments.policy.config.clone(),
            data: arguments.data.clone(),
            store: arguments.store.clone(),
            ..Overrides::default()
        };
        Ok(Some(Recorded { tool: Tool::at(config::place(&overrides)?)? }))
    }

    fn event(&self, id: EventId) -> Result<Record, Failure> {
        let filter = Filter { id: Some(id), ..Filter::default() };
        let request = ListRequest { filter, limit: 1, payloads: true, ..ListRequest::default() };
        let found = self.tool.wait(self.tool.store.list(request))?.pop();
        found.ok_or_else(|| {
            Failure::new("event_unknown", format!("the store knows no event {id}"))
                .hint("it may have been forgotten: its window is over")
        })
    }
}

/// The one payload of a file.
struct Payload {
    bytes: Vec<u8>,
    form: Form,
    crs: Option<u32>,
    /// When it was recorded, and what it was near to then, if it was.
    received: Option<Timestamp>,
    found: Option<Found>,
}

impl Payload {
    fn read(path: &Path, arguments: &ExplainArguments, policy: &Policy) -> Result<Payload, Failure> {
        let mut input = Input::open(path, arguments.format.into(), policy.feature.is_some(), &policy.limits)?;
        let mut found: Option<Payload> = None;
        loop {
            while let Some(next) = input.next() {
                let name = path.display().to_string();
                let item = next.map_err(|broken| Failure::from(broken.error).within(&name))?;
                if found.is_some() {
                    return Err(Failure::new("explain_several", format!("{name} holds several features"))
                        .hint("explain compares two payloads: give a file with one feature each"));
                }
                let bytes = input.bytes(&item).to_vec();
                let crs = input.collection().crs;
                found = Some(Payload { bytes, form: item.form, crs, received: None, found: None });
            }
            if !input.read_piece()? {
                break;
            }
        }
        found.ok_or_else(|| Failure::new("explain_empty", format!("{} holds no payload", path.display())))
    }

    fn near<'a>(&'a self, likeness: &'a Likeness) -> nearness::Side<'a> {
        nearness::Side { likeness, input: self.input(), received: self.received }
    }

    fn input(&self) -> geonce_key::Input<'_> {
        geonce_key::Input { form: self.form, bytes: &self.bytes, crs: self.crs }
    }
}

/// The delivery ids of both payloads, where given.
fn deliveries(texts: &[String]) -> Result<[Option<Delivery<'_>>; 2], Failure> {
    match texts {
        [] => Ok([None, None]),
        [a, b] => Ok([Some(delivery(a)?), Some(delivery(b)?)]),
        _ => Err(Failure::new("usage", "--delivery is given twice: for the first payload and for the second")),
    }
}

fn delivery(text: &str) -> Result<Delivery<'_>, Failure> {
    let Some((by, id)) = text.split_once('=') else {
        return Err(Failure::new("usage", format!("--delivery {text:?} is not header=id"))
            .hint("such as --delivery webhook-id=42"));
    };
    Ok(Delivery { by, id, index: 0 })
}
