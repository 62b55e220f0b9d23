//! How far a load is: a bar on a terminal, else a line every ten seconds, both on standard error.

use crate::arguments::ProgressArgument;
use crate::show;
use geonce::load::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often the bar moves,
const MOVE_EVERY: Duration = Duration::from_millis(100);
/// and a line is written.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows progress until it is dropped.
pub(crate) struct Shown {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Shown {
    pub(crate) fn start(name: &str, how: ProgressArgument, progress: Arc<Progress>) -> Shown {
        let ended = Arc::new(AtomicBool::new(false));
        let (name, end) = (show::escaped(name), Arc::clone(&ended));
        let thread = match how {
            ProgressArgument::None => None,
            ProgressArgument::Auto if io::stderr().is_terminal() => Some(thread::spawn(move || bar(&progress, &end))),
            _ => Some(thread::spawn(move || lines(&name, &progress, &end))),
        };
        Shown { ended, thread }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn bar(progress: &Progress, ended: &AtomicBool) {
    let bar = ProgressBar::no_length();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {human_pos} features  {per_sec}  {msg}") {
        bar.set_style(style);
    }
    let mut sized = false;
    while !ended.load(Ordering::Relaxed) {
        let total = progress.total.load(Ordering::Relaxed);
        if total > 0 && !sized {
            let template = "{bar:32} {human_pos}/{human_len}  {per_sec}  {eta} left  {msg}";
            bar.set_length(total);
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            sized = true;
        }
        let bad = progress.bad.load(Ordering::Relaxed);
        if bad > 0 {
            bar.set_message(format!("{bad} bad"));
        }
        bar.set_position(progress.features.load(Ordering::Relaxed));
        thread::park_timeout(MOVE_EVERY);
    }
    bar.finish_and_clear();
}

fn lines(name: &str, progress: &Progress, ended: &AtomicBool) {
    let mut seconds = 0;
    loop {
        thread::park_timeout(LINE_EVERY);
        if ended.load(Ordering::Relaxed) {
            return;
        }
        seconds += LINE_EVERY.as_secs();
        eprintln!("{name}: {}", line(progress, seconds));
    }
}

fn line(progress: &Progress, seconds: u64) -> String {
    let [total, features, bad] =
        [&progress.total, &progress.features, &progress.bad].map(|n| n.load(Ordering::Relaxed));
    let rate = features / seconds.max(1);
    let mut text =
        format!("{} features, {} a second, {} bad", show::count(features), show::count(rate), show::count(bad));
    if total > features && rate > 0 {
        let _ = write!(text, ", {} s left of {}", (total - features) / rate, show::count(total));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::line;
    use geonce::load::Progress;

    #[test]
    fn a_line_says_how_far_and_how_long_still() {
        let progress = Progress { total: 5_000.into(), features: 2_000.into(), bad: 3.into(), ..Progress::default() };
        assert_eq!(line(&progress, 10), "2 000 features, 200 a second, 3 bad, 15 s left of 5 000");
        let unknown = Progress { features: 7.into(), ..Progress::default() };
        assert_eq!(line(&unknown, 10), "7 features, 0 a second, 0 bad");
    }
}
