//! Dead events that are made ready again, as a job.

use super::body::said;
use super::filter::Selection;
use super::job::{Kind, Task, Wanted};
use super::jobs::{Plan, planned};
use super::purges::select;
use super::query::{PLAIN, plain};
use super::{Call, body, problem};
use crate::serve::{Answer, Gateway, Problem};
use serde::Deserialize;
use serde_json::json;

/// The lowest and the highest rate, in events a second.
const RATE_MIN: f64 = 1e-4;
const RATE_MAX: f64 = 1e6;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    pub(super) filter: Selection,
    #[serde(default, deserialize_with = "said")]
    pub(super) rate: Option<f64>,
    #[serde(default, deserialize_with = "said")]
    pub(super) who: Option<String>,
    #[serde(default)]
    pub(super) follow: bool,
}

/// Plans to make dead events ready again.
pub(super) async fn plan(gateway: &Gateway, call: &Call) -> Result<Answer, Problem> {
    let Asked { filter, rate, who, follow } = body::read(call)?;
    let (rate, wanted) = (checked(rate)?, wanted(who, follow)?);
    let (selected, shown) = select(gateway, &filter).await?;
    let asked = json!({ "filter": filter, "rate": rate });
    planned(gateway, Plan { kind: Kind::Replay, asked, shown, task: Task { selected, rate, choices: None }, wanted })
}

/// Who wants a job, in words that can be kept.
pub(super) fn wanted(who: Option<String>, follow: bool) -> Result<Wanted, Problem> {
    let who = who.map(|who| plain(&who).ok_or_else(|| problem::body_invalid(PLAIN).at("/who"))).transpose()?;
    Ok(Wanted { who, follow })
}

/// A rate that a job can keep.
pub(super) fn checked(rate: Option<f64>) -> Result<Option<f64>, Problem> {
    match rate {
        Some(rate) if !(RATE_MIN..=RATE_MAX).contains(&rate) => {
            let detail = format!("a rate is {RATE_MIN} to {RATE_MAX} events a second");
            Err(problem::body_invalid(detail).at("/rate"))
        }
        rate => Ok(rate),
    }
}
