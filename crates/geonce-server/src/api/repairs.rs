//! Dead events that are repaired, as a job. A plan shows the first of them before and after.

use super::body::said;
use super::filter::Selection;
use super::job::{Kind, Task};
use super::jobs::{Plan, planned};
use super::purges::select;
use super::replays::{checked, wanted};
use super::{Call, body, problem};
use crate::serve::{Answer, Gateway, Problem};
use geonce::event::EventId;
use geonce::repair::{self, Choice, Choices};
use geonce::replay::{self, Repairs};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Events that a plan shows before and after,
const SHOWN_EVENTS_MAX: usize = 20;
/// as long as they are not longer than this together.
const SHOWN_BYTES_MAX: usize = 1 << 20;
/// Choices of one request.
const CHOICES_MAX: usize = 16;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    filter: Selection,
    /// What the repair does, in the words of the command line; without it, what mends each event.
    #[serde(default, deserialize_with = "said")]
    choices: Option<Vec<String>>,
    #[serde(default, deserialize_with = "said")]
    rate: Option<f64>,
    #[serde(default, deserialize_with = "said")]
    who: Option<String>,
    #[serde(default)]
    follow: bool,
}

/// Plans to repair dead events.
pub(super) async fn plan(gateway: &Arc<Gateway>, call: &Call) -> Result<Answer, Problem> {
    let Asked { filter, choices, rate, who, follow } = body::read(call)?;
    let (rate, wanted) = (checked(rate)?, wanted(who, follow)?);
    let choices = choices.as_deref().map(read).transpose()?;
    let (selected, mut shown) = select(gateway, &filter).await?;
    // Who follows is told of every event, and need not be shown the first.
    let first = if follow { &[] } else { &*selected.events };
    let repairs = draft(gateway, first, choices.as_ref()).await?;
    let more = selected.events.len() - repairs.len();
    shown["repairs"] = repairs.into();
    shown["more_repairs"] = more.into();
    let said = choices.as_ref().map(|choices| choices.iter().map(|choice| choice.to_string()).collect::<Vec<_>>());
    let asked = json!({ "filter": filter, "choices": said, "rate": rate });
    planned(gateway, Plan { kind: Kind::Repair, asked, shown, task: Task { selected, rate, choices }, wanted })
}

fn read(words: &[String]) -> Result<Choices, Problem> {
    let wrong = |detail: String, place: String| problem::body_invalid(detail).at(place);
    if words.len() > CHOICES_MAX {
        return Err(wrong(format!("there are at most {CHOICES_MAX} choices"), "/choices".to_owned()));
    }
    let choice =
        |(i, word): (usize, &String)| Choice::parse(word).map_err(|detail| wrong(detail, format!("/choices/{i}")));
    let choices = words.iter().enumerate().map(choice).collect::<Result<Vec<_>, _>>()?;
    Choices::new(choices).map_err(|detail| wrong(detail, "/choices".to_owned()))
}

/// What would become of the first of these events.
async fn draft(gateway: &Arc<Gateway>, events: &[EventId], choices: Option<&Choices>) -> Result<Vec<Value>, Problem> {
    let failed = |error: geonce::Error| problem::store(&error);
    let source = |name: &str| gateway.sources.get(name).map(|served| Arc::clone(&served.route.source));
    let repairs = Repairs { source: &source, choices, ids: &gateway.api.jobs.ids };
    let (mut shown, mut bytes) = (Vec::new(), 0);
    for event in events.iter().take(SHOWN_EVENTS_MAX) {
        let plan = match replay::draft(&gateway.store, *event, &repairs).await.map_err(failed)? {
            Ok(plan) => repair::look_up(&*gateway.store, plan).await.map_err(failed)?.json(),
            Err(why) => json!({ "event": event.to_string(), "valid": false, "problem": repair::cause_json(&why) }),
        };
        bytes += plan.to_string().len();
        if bytes > SHOWN_BYTES_MAX {
            break;
        }
        shown.push(plan);
    }
    Ok(shown)
}
