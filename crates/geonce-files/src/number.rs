//! What a value written as text looks like: nothing, a whole number, another number, a date, or none of these.

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looks {
    /// A whole number that 64 bits hold.
    Integer,
    /// A whole number that they do not hold.
    Huge,
    /// Another number.
    Real,
    /// No number.
    Other,
}

/// Digits that 64 bits hold whatever they are.
const SURE_DIGITS: usize = 18;

/// Looks at a value without white space around it.
pub(crate) fn looks(value: &[u8]) -> Looks {
    let digits = value.strip_prefix(b"-").or_else(|| value.strip_prefix(b"+")).unwrap_or(value);
    let whole = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = &digits[whole..];
    if rest.is_empty() {
        return match whole {
            0 => Looks::Other,
            1..=SURE_DIGITS => Looks::Integer,
            _ if integer(value).is_some() => Looks::Integer,
            _ => Looks::Huge,
        };
    }
    let fraction = rest.strip_prefix(b".").map(|rest| rest.iter().take_while(|byte| byte.is_ascii_digit()).count());
    let rest = fraction.map_or(rest, |count| &rest[1 + count..]);
    if whole + fraction.unwrap_or(0) == 0 {
        return Looks::Other;
    }
    let Some((b'e' | b'E', exponent)) = rest.split_first() else {
        return if rest.is_empty() { finite(value) } else { Looks::Other };
    };
    let exponent = exponent.strip_prefix(b"-").or_else(|| exponent.strip_prefix(b"+")).unwrap_or(exponent);
    if !exponent.is_empty() && exponent.iter().all(u8::is_ascii_digit) { finite(value) } else { Looks::Other }
}

fn finite(value: &[u8]) -> Looks {
    // Few characters without an exponent cannot leave the range of a double, and need no parsing.
    let short = value.len() <= 100 && !value.iter().any(|byte| matches!(byte, b'e' | b'E'));
    if short || real(value).is_some() { Looks::Real } else { Looks::Other }
}

/// A whole number.
pub(crate) fn integer(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// A finite number.
pub(crate) fn real(value: &[u8]) -> Option<f64> {
    std::str::from_utf8(value).ok()?.parse().ok().filter(|number: &f64| number.is_finite())
}

/// A day of the calendar, written `20240501`, as `2024-05-01`.
pub(crate) fn date(value: &[u8]) -> Option<String> {
    let digits = value.len() == 8 && value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value).ok().filter(|_| digits)?;
    let (year, month, day) = (&text[..4], &text[4..6], &text[6..]);
    is_day(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?).then(|| format!("{year}-{month}-{day}"))
}

fn is_day(year: u32, month: u32, day: u32) -> bool {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        1..=12 => 31,
        _ => 0,
    };
    year > 0 && (1..=days).contains(&day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_from_what_only_starts_like_one() {
        for (text, expected) in [
            ("0", Looks::Integer),
            ("-12", Looks::Integer),
            ("9223372036854775807", Looks::Integer),
            ("9223372036854775808", Looks::Huge),
            ("1.", Looks::Real),
            (".5", Looks::Real),
            ("-1.5e-3", Looks::Real),
            ("1e400", Looks::Other),
            ("1e", Looks::Other),
            (".", Looks::Other),
            ("-", Looks::Other),
            ("", Looks::Other),
            ("1 2", Looks::Other),
            ("NaN", Looks::Other),
            ("inf", Looks::Other),
            ("0x10", Looks::Other),
        ] {
            assert_eq!(looks(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn only_days_of_the_calendar_are_dates() {
        assert_eq!(date(b"20240229").as_deref(), Some("2024-02-29"));
        for text in ["20230229", "20241301", "00000101", "2024-1-1", "2024010", "19000229"] {
            assert_eq!(date(text.as_bytes()), None, "{text}");
        }
    }
}
