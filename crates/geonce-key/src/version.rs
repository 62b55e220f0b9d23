//! Versions and their order: integers by value, RFC 3339 times by instant. An integer and a time have no order.

use std::cmp::Ordering;
use std::fmt;

/// The version of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Version {
    /// A whole number.
    Integer(i128),
    /// An instant.
    Time {
        /// Seconds since 1970-01-01T00:00:00Z.
        seconds: i64,
        /// Digits of the fraction, without trailing zeros, as many as were written.
        fraction: String,
    },
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Version) -> Option<Ordering> {
        match (self, other) {
            (Version::Integer(a), Version::Integer(b)) => Some(a.cmp(b)),
            // Fractions without trailing zeros compare as text compares.
            (Version::Time { seconds: a, fraction: f }, Version::Time { seconds: b, fraction: g }) => {
                Some(a.cmp(b).then_with(|| f.cmp(g)))
            }
            _ => None,
        }
    }
}

impl Version {
    /// Reads what [`Version`] displays: an integer, or an RFC 3339 time (section 5.6).
    pub fn parse(text: &str) -> Option<Version> {
        if let Ok(integer) = text.parse() {
            return Some(Version::Integer(integer));
        }
        time(text)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Version::Integer(integer) => write!(f, "{integer}"),
            Version::Time { seconds, fraction } => {
                let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
                let (year, month, day) = date(days);
                let (hour, minute) = (second / 3_600, second / 60 % 60);
                write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}", second % 60)?;
                if !fraction.is_empty() {
                    write!(f, ".{fraction}")?;
                }
                f.write_str("Z")
            }
        }
    }
}

/// Days of 400 years, and from the first of March of year 0 to 1970.
const ERA_DAYS: i64 = 146_097;
const EPOCH_DAYS: i64 = 719_468;

/// Days since 1970 of a civil date (Hinnant's algorithm: years begin in March).
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * from_march + 2) / 5 + day - 1;
    era * ERA_DAYS + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - EPOCH_DAYS
}

/// The civil date of a day since 1970.
fn date(days: i64) -> (i64, i64, i64) {
    let shifted = days + EPOCH_DAYS;
    let era = shifted.div_euclid(ERA_DAYS);
    let day_of_era = shifted.rem_euclid(ERA_DAYS);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// A date-time of RFC 3339 section 5.6.
fn time(text: &str) -> Option<Version> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = bytes.get(from..to)?;
        digits.iter().all(u8::is_ascii_digit).then(|| digits.iter().fold(0, |n, d| n * 10 + i64::from(d - b'0')))
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let marks = [4, 7, 10, 13, 16].map(|i| bytes[i].to_ascii_uppercase());
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_of_month = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    let valid = marks == *b"--T::" && (1..=days_of_month).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    if !valid {
        return None;
    }
    let mut rest = 19;
    let mut fraction = "";
    if bytes.get(rest) == Some(&b'.') {
        let digits = bytes[rest + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        fraction = text.get(rest + 1..rest + 1 + digits)?.trim_end_matches('0');
        rest += 1 + digits;
    }
    let offset = match bytes.get(rest)? {
        b'Z' | b'z' if bytes.len() == rest + 1 => 0,
        sign @ (b'+' | b'-') if bytes.get(rest + 3) == Some(&b':') && bytes.len() == rest + 6 => {
            let (hours, minutes) = (number(rest + 1, rest + 3)?, number(rest + 4, rest + 6)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            (hours * 60 + minutes) * if *sign == b'+' { 60 } else { -60 }
        }
        _ => return None,
    };
    let seconds = days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset;
    Some(Version::Time { seconds, fraction: fraction.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn versions_are_integers_or_times_of_rfc_3339() {
        for good in ["2026-11-15T08:00:00Z", "2026-11-15t08:00:60.125+05:30", "2024-02-29T23:59:59z", "17", "-3"] {
            assert!(Version::parse(good).is_some(), "{good}");
        }
        for bad in [
            "",
            "2026-11-15",
            "2026-11-15 08:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-11-15T24:00:00Z",
            "2026-11-15T08:00:00",
            "2026-11-15T08:00:00.Z",
            "2026-11-15T08:00:00Zx",
            "2026-13-01T00:00:00Z",
            "é026-11-15T08:00:00Z",
        ] {
            assert!(Version::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn times_compare_as_instants_and_survive_their_text() {
        let order = [
            "1969-12-31T23:59:59.5Z",
            "2026-11-15T08:00:00+02:00",
            "2026-11-15T06:00:00.1Z",
            "2026-11-15T06:00:00.1200Z",
            "2026-11-15T00:00:01.2-06:00",
        ];
        let versions: Vec<Version> = order.iter().map(|text| Version::parse(text).unwrap()).collect();
        assert!(versions.windows(2).all(|pair| pair[0] < pair[1]), "{versions:?}");
        for version in &versions {
            assert_eq!(Version::parse(&version.to_string()).as_ref(), Some(version));
        }
        assert_eq!(versions[1].to_string(), "2026-11-15T06:00:00Z");
        assert_eq!(versions[0].partial_cmp(&Version::Integer(1)), None);
    }
}
