//! Dates and times as the text that fields hold: `2024-05-01`, `2024-05-01T10:20:30.5Z`.
//!
//! Every text that is given out is a day of the calendar and a time of the day, with years from 0000 to 9999. Knows no time zones.

use std::fmt::Write as _;

const DAY_SECONDS: i64 = 86_400;
/// From 0000-03-01, where the counting of days below begins, to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;
const NANOSECONDS: u32 = 1_000_000_000;

/// A date in the usual form; none if the text is not one. Slashes are taken for hyphens.
pub(crate) fn date(text: &str) -> Option<String> {
    let (day, rest) = split_day(text.trim())?;
    let midnight = rest.is_empty() || rest.strip_prefix(['T', ' ']).and_then(clock).is_some_and(|time| time.zero);
    midnight.then_some(day)
}

/// A date and time in the usual form; none if the text is not one. A date alone is its midnight; an offset is kept as it is.
pub(crate) fn date_time(text: &str) -> Option<String> {
    let text = text.trim();
    let (mut day, rest) = split_day(text)?;
    day.push('T');
    match rest.as_bytes().first() {
        None => day.push_str("00:00:00"),
        Some(_) => day.push_str(&clock(rest.strip_prefix(['T', 't', ' '])?)?.text),
    }
    Some(day)
}

/// The date so many days after 1970-01-01; none outside the years that can be written.
pub(crate) fn date_of_days(days: i64) -> Option<String> {
    let mut text = String::with_capacity(10);
    push_day(days, &mut text)?;
    Some(text)
}

/// The moment so many seconds and nanoseconds after 1970-01-01; with `Z` where it is one of UTC.
pub(crate) fn date_time_of_seconds(seconds: i64, nanoseconds: u32, is_utc: bool) -> Option<String> {
    let mut text = String::with_capacity(30);
    push_day(seconds.div_euclid(DAY_SECONDS), &mut text)?;
    text.push('T');
    text.push_str(&time_of_seconds(seconds.rem_euclid(DAY_SECONDS), nanoseconds));
    if is_utc {
        text.push('Z');
    }
    Some(text)
}

/// A time of the day.
pub(crate) fn time_of_seconds(seconds: i64, nanoseconds: u32) -> String {
    let mut text = String::with_capacity(18);
    // Writing to a String cannot fail.
    let _ = write!(text, "{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60);
    if nanoseconds > 0 && nanoseconds < NANOSECONDS {
        let _ = write!(text, ".{nanoseconds:09}");
        text.truncate(text.trim_end_matches('0').len());
    }
    text
}

/// The day that a text starts with, in the usual form, and what follows it.
fn split_day(text: &str) -> Option<(String, &str)> {
    let bytes = text.as_bytes();
    let separator = *bytes.get(4)?;
    if !matches!(separator, b'-' | b'/') || bytes.get(7) != Some(&separator) {
        return None;
    }
    let (year, month, day) = (digits(bytes, 0, 4)?, digits(bytes, 5, 2)?, digits(bytes, 8, 2)?);
    if !(1..=12).contains(&month) || day < 1 || day > month_days(year, month) {
        return None;
    }
    Some((format!("{year:04}-{month:02}-{day:02}"), &text[10..]))
}

struct ClockText {
    text: String,
    /// Whether it is midnight, without an offset.
    zero: bool,
}

/// A time of the day with its offset: `10:20`, `10:20:30.5Z`, `10:20:30+02`.
fn clock(text: &str) -> Option<ClockText> {
    let bytes = text.as_bytes();
    let (hours, minutes) = (digits(bytes, 0, 2)?, digits(bytes, 3, 2)?);
    if bytes.get(2) != Some(&b':') || hours > 23 || minutes > 59 {
        return None;
    }
    let mut at = 5;
    let mut out = text[..5].to_owned();
    if bytes.get(at) == Some(&b':') {
        // A leap second is written as 60.
        digits(bytes, 6, 2).filter(|&seconds| seconds <= 60)?;
        at = 8;
        if bytes.get(at) == Some(&b'.') {
            let count = bytes[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            if count == 0 {
                return None;
            }
            at += 1 + count;
        }
        out.push_str(&text[5..at]);
    } else {
        out.push_str(":00");
    }
    let zero = out.bytes().all(|byte| matches!(byte, b'0' | b':' | b'.')) && at == bytes.len();
    out.push_str(&offset(&text[at..])?);
    Some(ClockText { text: out, zero })
}

/// An offset from UTC, with hours and minutes; empty where there is none.
fn offset(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let hours = |minutes: Option<u32>| {
        let hours = digits(bytes, 1, 2).filter(|&hours| hours <= 15)?;
        let minutes = minutes.filter(|&minutes| minutes <= 59)?;
        Some(format!("{}{hours:02}:{minutes:02}", &text[..1]))
    };
    match (bytes, bytes.len()) {
        ([], _) => Some(String::new()),
        ([b'Z' | b'z'], _) => Some("Z".to_owned()),
        ([b'+' | b'-', ..], 3) => hours(Some(0)),
        ([b'+' | b'-', ..], 5) => hours(digits(bytes, 3, 2)),
        ([b'+' | b'-', _, _, b':', ..], 6) => hours(digits(bytes, 4, 2)),
        _ => None,
    }
}

fn digits(bytes: &[u8], start: usize, count: usize) -> Option<u32> {
    let mut number = 0;
    for byte in bytes.get(start..start + count)? {
        number = number * 10 + u32::from(byte.is_ascii_digit().then(|| byte - b'0')?);
    }
    Some(number)
}

fn month_days(year: u32, month: u32) -> u32 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Appends the date so many days after 1970-01-01. Years are counted from March, so that the leap day is the last of its year.
fn push_day(days: i64, text: &mut String) -> Option<()> {
    let since_start = days.checked_add(EPOCH_DAYS)?;
    let (era, day_of_era) = (since_start.div_euclid(146_097), since_start.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    if !(0..=9_999).contains(&year) {
        return None;
    }
    // Writing to a String cannot fail.
    let _ = write!(text, "{year:04}-{month:02}-{day:02}");
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_days_of_the_calendar() {
        for (text, expected) in [
            ("2024-02-29", Some("2024-02-29")),
            ("2023-02-29", None),
            ("1900-02-29", None),
            ("2000/12/31", Some("2000-12-31")),
            ("2000/12-31", None),
            ("2000-13-01", None),
            ("2000-1-1", None),
            ("2000-01-01T00:00:00", Some("2000-01-01")),
            ("2000-01-01T00:00:01", None),
            ("2000-01-01é", None),
            ("", None),
        ] {
            assert_eq!(date(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn times_keep_their_fractions_and_offsets() {
        for (text, expected) in [
            ("2024-05-01T10:20:30.500Z", Some("2024-05-01T10:20:30.500Z")),
            ("2024-05-01 10:20:30", Some("2024-05-01T10:20:30")),
            ("2024-05-01", Some("2024-05-01T00:00:00")),
            ("2024/05/01 10:20:30+02", Some("2024-05-01T10:20:30+02:00")),
            ("2024-05-01T10:20-0330", Some("2024-05-01T10:20:00-03:30")),
            ("2024-05-01T10:20:30+99:00", None),
            ("2024-05-01T24:00:00", None),
            ("2024-05-01T10:20:30.", None),
            ("2024-05-01T10:20:30é", None),
            ("2024-05-01T1é:20", None),
        ] {
            assert_eq!(date_time(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn days_and_seconds_count_from_1970() {
        assert_eq!(date_of_days(0).as_deref(), Some("1970-01-01"));
        assert_eq!(date_of_days(19_782).as_deref(), Some("2024-02-29"));
        assert_eq!(date_of_days(-1).as_deref(), Some("1969-12-31"));
        assert_eq!(date_of_days(-719_528).as_deref(), Some("0000-01-01"));
        assert_eq!(date_of_days(2_932_896).as_deref(), Some("9999-12-31"));
        assert_eq!(date_of_days(2_932_897), None);
        assert_eq!(date_of_days(i64::MAX), None);
        assert_eq!(date_time_of_seconds(-1, 500_000_000, true).as_deref(), Some("1969-12-31T23:59:59.5Z"));
        assert_eq!(date_time_of_seconds(86_399, 0, false).as_deref(), Some("1970-01-01T23:59:59"));
        assert_eq!(date_time_of_seconds(i64::MIN, 0, false), None);
    }
}
