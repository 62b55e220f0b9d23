//! Which events come too late to be written at all: those whose version is a time too long before they arrived.
//!
//! Both are recorded with the event, so that it is late whenever it is looked at, or never.

use crate::clock::Timestamp;
use crate::store::ResultText;
use geonce_key::Version;
use std::fmt::Write;
use std::time::Duration;

/// How much too old an event is, if its version is more than `lateness` before it arrived. A number is never late.
pub(super) fn late(version: Option<&Version>, received: Timestamp, lateness: Duration) -> Option<Duration> {
    let Version::Time { seconds, fraction } = version? else { return None };
    let oldest = received.minus(lateness).millis();
    // To the last digit that was written: fractions without zeros at their end compare as text does.
    let oldest_fraction = format!("{:03}", oldest.rem_euclid(1_000));
    if (*seconds, fraction.as_str()) >= (oldest.div_euclid(1_000), oldest_fraction.trim_end_matches('0')) {
        return None;
    }
    let millis: i64 = format!("{fraction:0<3}").get(..3).and_then(|digits| digits.parse().ok()).unwrap_or(0);
    Some(received.since(Timestamp::from_millis(seconds.saturating_mul(1_000).saturating_add(millis))))
}

/// What is kept of such an event.
pub(super) fn result(by: Duration, lateness: Duration) -> Option<ResultText> {
    let [by, lateness] = [by, lateness].map(in_words);
    ResultText::new(serde_json::json!({ "late": { "by": by, "lateness": lateness } }).to_string()).ok()
}

/// A duration in its two largest units, as the configuration writes it.
fn in_words(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let units: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    let first = units.iter().position(|(_, factor)| millis >= *factor).unwrap_or(units.len() - 1);
    let mut rest = millis;
    let mut text = String::new();
    for (unit, factor) in units.iter().skip(first).take(2) {
        if rest / factor > 0 || text.is_empty() {
            let _ = write!(text, "{}{unit}", rest / factor);
        }
        rest %= factor;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{in_words, late, result};
    use crate::clock::Timestamp;
    use geonce_key::Version;
    use std::time::Duration;

    /// 2026-11-15T08:00:00.250Z.
    const RECEIVED: Timestamp = Timestamp::from_millis(1_794_729_600_250);
    const HOUR: Duration = Duration::from_hours(1);

    fn by(version: &str) -> Option<String> {
        late(Version::parse(version).as_ref(), RECEIVED, HOUR).map(in_words)
    }

    #[test]
    fn an_event_is_late_when_its_time_is_more_than_this_before_its_arrival() {
        assert_eq!(RECEIVED.to_string(), "2026-11-15T08:00:00.250Z");
        for (version, expected) in [
            ("2026-11-15T08:00:00Z", None),
            ("2026-11-15T09:30:00Z", None),
            ("2026-11-15T07:00:00.250Z", None),
            ("2026-11-15T07:00:00.25000001Z", None),
            ("2026-11-15T07:00:00.2499999Z", Some("1h")),
            ("2026-11-15T07:00:00Z", Some("1h")),
            ("2026-11-15T08:59:59+02:00", Some("1h")),
            ("2026-11-15T04:47:30+00:00", Some("3h12m")),
            ("2025-11-15T08:00:00.250Z", Some("365d")),
            ("0001-01-01T00:00:00Z", Some("739934d8h")),
            ("17", None),
            ("-3", None),
        ] {
            assert_eq!(by(version).as_deref(), expected, "{version}");
        }
        assert_eq!(late(None, RECEIVED, HOUR), None);
    }

    #[test]
    fn a_late_event_says_by_how_much() {
        let text = result(Duration::from_secs(11_550), HOUR).unwrap();
        assert_eq!(text.as_str(), r#"{"late":{"by":"3h12m","lateness":"1h"}}"#);
        for (millis, words) in [(0, "0ms"), (1_500, "1s500ms"), (86_400_000, "1d"), (90_061_000, "1d1h")] {
            assert_eq!(in_words(Duration::from_millis(millis)), words);
        }
    }
}
