//! One job: what it is about, where it is, and how it is shown.

use super::jobs::{Plan, told};
use geonce::clock::Timestamp;
use geonce::repair::Choices;
use geonce::replay::{Progress, Selected, Summary};
use serde_json::{Value, json};
use tokio::sync::watch;

/// Events of a repair whose results are kept.
const RESULTS_MAX: usize = 200;

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Makes dead events ready again.
    Replay,
    /// Puts repaired events in the place of dead ones.
    Repair,
    /// Removes dead events for good.
    Purge,
}

impl Kind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Kind::Replay => "replay",
            Kind::Repair => "repair",
            Kind::Purge => "purge",
        }
    }

    /// Where jobs of this kind are.
    pub(super) const fn path(self) -> &'static str {
        match self {
            Kind::Replay => "replays",
            Kind::Repair => "repairs",
            Kind::Purge => "purges",
        }
    }

    /// What its events are afterwards.
    pub(super) const fn done_word(self) -> &'static str {
        match self {
            Kind::Replay => "replayed",
            Kind::Repair => "repaired",
            Kind::Purge => "purged",
        }
    }
}

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Planned,
    Running,
    Done,
    Cancelled,
    Failed,
}

impl State {
    pub(super) const ALL: [State; 5] = [State::Planned, State::Running, State::Done, State::Cancelled, State::Failed];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            State::Planned => "planned",
            State::Running => "running",
            State::Done => "done",
            State::Cancelled => "cancelled",
            State::Failed => "failed",
        }
    }
}

/// What there is to do.
pub(super) struct Task {
    pub(super) selected: Selected,
    /// Events a second.
    pub(super) rate: Option<f64>,
    /// How events are repaired; without it, each as is best.
    pub(super) choices: Option<Choices>,
}

/// A job.
pub(super) struct Job {
    pub(super) id: String,
    pub(super) kind: Kind,
    pub(super) asked: Value,
    shown: Value,
    pub(super) created: Timestamp,
    pub(super) started: Option<Timestamp>,
    pub(super) ended: Option<Timestamp>,
    pub(super) state: State,
    /// What there is to do, until it is done.
    pub(super) task: Option<Task>,
    pub(super) progress: Progress,
    pub(super) stop: watch::Sender<bool>,
    results: Vec<Value>,
    summary: Value,
    error: Option<&'static str>,
}

impl Job {
    /// A plan.
    pub(super) fn new(id: String, plan: Plan, now: Timestamp) -> Job {
        let Plan { kind, asked, shown, task } = plan;
        let events = task.selected.events.len() as u64;
        Job {
            id,
            kind,
            asked,
            shown,
            created: now,
            started: None,
            ended: None,
            state: State::Planned,
            task: Some(task),
            progress: Progress { planned: events, left: events, ..Progress::default() },
            stop: watch::Sender::new(false),
            results: Vec::new(),
            summary: Value::Null,
            error: None,
        }
    }

    /// Notes what became of one event.
    pub(super) fn treated(&mut self, result: Value) {
        if self.results.len() < RESULTS_MAX {
            self.results.push(result);
        }
    }

    /// Notes how it has ended.
    pub(super) fn end(&mut self, ended: &geonce::Result<Summary>, now: Timestamp) {
        self.ended = Some(now);
        let (state, failure) = match ended {
            Ok(Summary { failure: Some(error), .. }) | Err(error) => (State::Failed, Some(error)),
            Ok(Summary { cancelled: true, .. }) => (State::Cancelled, None),
            Ok(_) => (State::Done, None),
        };
        self.state = state;
        if let Some(error) = failure {
            tracing::warn!(job = self.id, %error, hint = error.hint_text(), "a job failed");
            self.error = Some(error.kind().as_str());
        }
        if let Ok(summary) = ended {
            self.progress = summary.progress;
            self.summary = told(summary, self.kind);
        }
    }

    /// The job; with what it would do, and did to each event, where that is asked for.
    pub(super) fn text(&self, whole: bool) -> String {
        let Progress { planned, done, skipped, left } = self.progress;
        let mut text = json!({
            "id": self.id,
            "kind": self.kind.as_str(),
            "state": self.state.as_str(),
            "created": self.created.to_string(),
            "started": self.started.map(|at| at.to_string()),
            "ended": self.ended.map(|at| at.to_string()),
            "asked": self.asked,
            "planned": planned,
            "done": done,
            "skipped": skipped,
            "left": left,
            "stopping": self.state == State::Running && *self.stop.borrow(),
            "summary": self.summary,
            "error": self.error,
        });
        if whole && let (Some(members), Some(shown)) = (text.as_object_mut(), self.shown.as_object()) {
            members.extend(shown.clone());
            if self.kind == Kind::Repair {
                members.insert("results".to_owned(), self.results.clone().into());
            }
        }
        text.to_string()
    }
}
