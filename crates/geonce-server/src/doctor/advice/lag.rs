//! How late redeliveries come, against how long keys are remembered. One that comes later than that is a new event to a
//! store, so what is counted here ends where the window does: lags near its end mean that some are beyond it.

use super::{Advice, View};
use crate::config::Span;
use crate::show::count;
use serde_json::json;
use std::time::Duration;

/// The code of the only piece of advice that is good news.
pub(super) const FINE: &str = "redelivery_lag";

pub(super) fn advise(view: &View<'_>) -> Vec<Advice> {
    let lags = &view.traffic.lags;
    let total: u64 = lags.values().sum();
    let Some((&longest, _)) = lags.iter().next_back().filter(|_| total > 0) else { return Vec::new() };
    let most = within(view, total, 99);
    let figures = json!({
        "redeliveries": total,
        "within_seconds_99": seconds(most),
        "longest_seconds": seconds(longest),
        "window_seconds": view.window.as_secs(),
    });
    let message = format!(
        "99 % of {} redeliveries came within {}, the longest within {}; keys are remembered for {}",
        count(total),
        span(most),
        span(longest),
        Span(view.window)
    );
    // 1.3 times the longest, as for a redelivery that a configuration states.
    let wanted = longest.checked_mul(13).map(|longest| longest / 10);
    if wanted.is_none_or(|wanted| wanted > view.window) {
        let hint = format!(
            "redeliveries that come after the window are applied again where a sink keeps no proofs: store.window = \"{}\" or more",
            wanted.map_or_else(|| "180d".to_owned(), |wanted| Span(rounded(wanted)).to_string())
        );
        return vec![view.advice("window_short", message, hint, figures)];
    }
    vec![view.advice(FINE, message, "the window is long enough for what was seen", figures)]
}

/// The bound within which so many percent came.
fn within(view: &View<'_>, total: u64, percent: u64) -> Duration {
    let wanted = (total * percent).div_ceil(100);
    let mut sum = 0;
    let found = view.traffic.lags.iter().find(|&(_, &count)| {
        sum += count;
        sum >= wanted
    });
    found.map_or(Duration::MAX, |(&bound, _)| bound)
}

fn span(bound: Duration) -> String {
    if bound == Duration::MAX { "more than 90d".to_owned() } else { Span(bound).to_string() }
}

fn seconds(bound: Duration) -> Option<u64> {
    (bound != Duration::MAX).then_some(bound.as_secs())
}

/// Up to whole days, or whole hours below one.
fn rounded(duration: Duration) -> Duration {
    let unit = if duration > Duration::from_hours(24) { 86_400 } else { 3_600 };
    Duration::from_secs(duration.as_secs().div_ceil(unit) * unit)
}
