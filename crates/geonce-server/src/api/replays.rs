//! Dead events that are made ready again, as a job.

use super::filter::Selection;
use super::jobs::{Kind, Plan, Progress, planned};
use super::purges::{count, shown};
use super::{Call, explain};
use crate::serve::{Answer, Gateway, Problem};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    filter: Selection,
    rate: Option<f64>,
}

/// Plans to make dead events ready again.
pub(super) async fn plan(gateway: &Gateway, call: &Call) -> Result<Answer, Problem> {
    let Asked { filter, rate } = explain::read(call)?;
    let filters = filter.filters(gateway.clock.now())?;
    let groups = count(gateway, &filters).await?;
    let events = groups.values().sum();
    let work = move |gateway: Arc<Gateway>, progress: Arc<Progress>| {
        Box::pin(async move {
            for filter in filters {
                let replayed = gateway.store.replay(filter, gateway.clock.now()).await?;
                progress.done.fetch_add(replayed, Relaxed);
            }
            Ok(json!({ "replayed": progress.done.load(Relaxed) }))
        }) as std::pin::Pin<Box<dyn Future<Output = geonce::Result<Value>> + Send>>
    };
    let asked = json!({ "filter": filter, "rate": rate });
    let shown = json!({ "groups": shown(&groups) });
    planned(gateway, Plan { kind: Kind::Replay, asked, shown, events, work: Box::new(work) })
}
