//! One job: what it is about, where it is, and how it is shown.

use super::jobs::{Plan, told};
use geonce::clock::Timestamp;
use geonce::repair::Choices;
use geonce::replay::{Progress, Selected, Summary};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::watch;

/// Events of a repair whose results are kept.
const RESULTS_MAX: usize = 200;
/// Results that somebody follows and has not taken yet. With as many, or as many bytes, the job waits.
const UNTAKEN_MAX: usize = 256;
const UNTAKEN_BYTES_MAX: usize = 4 << 20;
/// Bytes of results in one answer, but for the last of them.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// A job whose follower is not heard of for so long is ended: whoever wanted it is gone.
pub(super) const FOLLOWED_WITHIN: Duration = Duration::from_secs(30);

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
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Kind::Replay => "replay",
            Kind::Repair => "repair",
            Kind::Purge => "purge",
        }
    }

    /// Where jobs of this kind are.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Kind::Replay => "replays",
            Kind::Repair => "repairs",
            Kind::Purge => "purges",
        }
    }

    /// What its events are afterwards.
    pub(crate) const fn done_word(self) -> &'static str {
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

/// Who wants a job.
#[derive(Default)]
pub(super) struct Wanted {
    /// Who says so, for the audit trail.
    pub(super) who: Option<String>,
    /// Whether they follow it to its end.
    pub(super) follow: bool,
}

/// What the follower of a job has not taken yet.
struct Followed {
    /// How many were taken.
    taken: usize,
    untaken: VecDeque<String>,
    bytes: usize,
    hold: watch::Sender<bool>,
    heard: Timestamp,
}

impl Followed {
    /// Forgets what is before the result with this number.
    fn take(&mut self, from: usize) {
        while self.taken < from
            && let Some(result) = self.untaken.pop_front()
        {
            self.taken += 1;
            self.bytes -= result.len();
        }
        self.settle();
    }

    fn add(&mut self, result: String) {
        self.bytes += result.len();
        self.untaken.push_back(result);
        self.settle();
    }

    fn settle(&self) {
        let full = self.untaken.len() >= UNTAKEN_MAX || self.bytes >= UNTAKEN_BYTES_MAX;
        self.hold.send_if_modified(|hold| std::mem::replace(hold, full) != full);
    }

    /// The first of them, as many as go into an answer.
    fn page(&self) -> Vec<&str> {
        let mut bytes = 0;
        let fits = |result: &&String| {
            let fits = bytes < ANSWER_BYTES_MAX;
            bytes += result.len();
            fits
        };
        self.untaken.iter().take_while(fits).map(String::as_str).collect()
    }
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
    pub(super) who: Option<String>,
    results: Vec<String>,
    followed: Option<Followed>,
    summary: Value,
    error: Option<&'static str>,
}

impl Job {
    /// A plan.
    pub(super) fn new(id: String, plan: Plan, now: Timestamp) -> Job {
        let Plan { kind, asked, shown, task, wanted } = plan;
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
            who: wanted.who,
            results: Vec::new(),
            followed: wanted.follow.then(|| Followed {
                taken: 0,
                untaken: VecDeque::new(),
                bytes: 0,
                hold: watch::Sender::new(false),
                heard: now,
            }),
            summary: Value::Null,
            error: None,
        }
    }

    /// Notes what became of one event; all of it where somebody follows.
    pub(super) fn treated(&mut self, result: impl FnOnce(bool) -> Value) {
        let result = result(self.followed.is_some()).to_string();
        match &mut self.followed {
            Some(followed) => followed.add(result),
            None if self.results.len() < RESULTS_MAX => self.results.push(result),
            None => {}
        }
    }

    /// What holds the job while nobody takes its results.
    pub(super) fn hold(&self) -> Option<watch::Receiver<bool>> {
        self.followed.as_ref().map(|followed| followed.hold.subscribe())
    }

    /// Notes that its follower asked, and has everything before the result with this number.
    pub(super) fn heard(&mut self, from: usize, now: Timestamp) {
        if let Some(followed) = &mut self.followed {
            followed.heard = now;
            followed.take(from);
        }
    }

    /// Whether its follower is gone.
    pub(super) fn is_abandoned(&self, now: Timestamp) -> bool {
        self.followed.as_ref().is_some_and(|followed| now.since(followed.heard) > FOLLOWED_WITHIN)
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
                let (from, results) = match &self.followed {
                    Some(followed) => (followed.taken, followed.page()),
                    None => (0, self.results.iter().map(String::as_str).collect()),
                };
                members.insert("results_from".to_owned(), from.into());
                return with_results(&text, &results);
            }
        }
        text.to_string()
    }
}

/// An object with one more member, whose values are written already.
fn with_results(object: &Value, results: &[&str]) -> String {
    let mut text = object.to_string();
    text.pop();
    text.push_str(",\"results\":[");
    text.push_str(&results.join(","));
    text.push_str("]}");
    text
}

#[cfg(test)]
mod tests {
    use super::{Followed, Timestamp, UNTAKEN_BYTES_MAX, UNTAKEN_MAX};
    use std::collections::VecDeque;
    use tokio::sync::watch;

    #[test]
    fn a_job_waits_while_its_results_are_not_taken() {
        let hold = watch::Sender::new(false);
        let seen = hold.subscribe();
        let mut followed =
            Followed { taken: 0, untaken: VecDeque::new(), bytes: 0, hold, heard: Timestamp::from_millis(0) };
        for i in 0..UNTAKEN_MAX {
            assert!(!*seen.borrow(), "{i}");
            followed.add(i.to_string());
        }
        assert!(*seen.borrow());
        assert_eq!(followed.page().len(), UNTAKEN_MAX);
        followed.take(0);
        assert!(*seen.borrow(), "asking again takes nothing");
        followed.take(2);
        assert!(!*seen.borrow());
        assert_eq!((followed.taken, followed.page()[0]), (2, "2"));
        followed.take(usize::MAX);
        assert_eq!((followed.taken, followed.page().len(), followed.bytes), (UNTAKEN_MAX, 0, 0));
        followed.add("x".repeat(UNTAKEN_BYTES_MAX));
        followed.add("y".to_owned());
        assert!(*seen.borrow());
        assert_eq!(followed.page().len(), 1, "what is longer than an answer comes alone");
    }
}
