//! Durations, sizes and distances as people write them: `"250ms"`, `"1h30m"`, `"7d"`, `"10MB"`, `"64KiB"`, `"5 cm"`.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The longest duration a setting may have: a hundred years.
const DURATION_MAX: Duration = Duration::from_hours(24 * 365 * 100);

/// Units of time in milliseconds, largest first. `min` is another way to write `m`.
const TIMES: [(&str, u64); 6] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];

/// Units of size in bytes, largest first.
const SIZES: [(&str, u64); 8] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("kB", 1_000),
    ("B", 1),
];

/// A duration such as `"5s"`, `"72h"` or `"1h30m"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let refused = || format!("{text:?} is no duration; write 250ms, 5s, 10m, 72h or 7d");
        let mut rest = text.trim();
        let mut millis: u64 = 0;
        if rest.is_empty() {
            return Err(refused());
        }
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(refused)?;
            let (number, tail) = rest.split_at(digits);
            let unit_end = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(unit_end);
            let (_, factor) = TIMES.iter().find(|(name, _)| *name == unit).ok_or_else(refused)?;
            let number: u64 = number.parse().map_err(|_| refused())?;
            millis = number.checked_mul(*factor).and_then(|more| millis.checked_add(more)).ok_or_else(refused)?;
            rest = tail;
        }
        let duration = Duration::from_millis(millis);
        if duration > DURATION_MAX {
            return Err(format!("{text:?} is longer than a hundred years"));
        }
        Ok(Span(duration))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        let whole = TIMES.iter().find(|(_, factor)| millis >= *factor && millis % factor == 0);
        let (unit, factor) = whole.copied().unwrap_or(("ms", 1));
        write!(f, "{}{unit}", millis / factor)
    }
}

/// A number of bytes such as `"10MB"` or `"64KiB"`; also a plain integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let refused = || format!("{text:?} is no size; write 64KiB, 10MB or a number of bytes");
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim_start();
        let factor = match unit {
            "" => 1,
            unit => SIZES.iter().find(|(name, _)| *name == unit).ok_or_else(refused)?.1,
        };
        let number: u64 = number.parse().map_err(|_| refused())?;
        number.checked_mul(factor).map(Size).ok_or_else(refused)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = SIZES.iter().find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor));
        let (unit, factor) = whole.copied().unwrap_or(("B", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

/// Units of distance in metres, largest first.
const DISTANCES: [(&str, f64); 4] = [("km", 1_000.0), ("m", 1.0), ("cm", 0.01), ("mm", 0.001)];

/// A distance such as `"5 cm"` or `"1.5km"`, in metres.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Distance(pub(crate) f64);

impl FromStr for Distance {
    type Err = String;

    fn from_str(text: &str) -> Result<Distance, String> {
        let refused = || format!("{text:?} is no distance; write 5 mm, 5 cm, 2.5 m or 1 km");
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(refused)?;
        let (number, unit) = text.split_at(digits);
        let (_, metres) = DISTANCES.iter().find(|(name, _)| *name == unit.trim_start()).ok_or_else(refused)?;
        let number: f64 = number.parse().map_err(|_| refused())?;
        // Divided, not multiplied: a hundredth is no double, and 5 cm are to be the double nearest to 0.05.
        let metres = if *metres < 1.0 { number / (1.0 / metres).round() } else { number * metres };
        if metres.is_finite() { Ok(Distance(metres)) } else { Err(refused()) }
    }
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let same = |(unit, metres): &(&str, f64)| {
            let text = format!("{} {unit}", (self.0 / metres * 1e6).round() / 1e6);
            (self.0 >= *metres && text.parse() == Ok(*self)).then_some(text)
        };
        f.write_str(&DISTANCES.iter().find_map(same).unwrap_or_else(|| format!("{} m", self.0)))
    }
}

/// Reads text through [`FromStr`], and integers where `of_integer` takes them.
struct Reading<T> {
    expecting: &'static str,
    of_integer: fn(u64) -> Option<T>,
}

impl<T: FromStr<Err = String>> Visitor<'_> for Reading<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        let refused = || E::invalid_type(serde::de::Unexpected::Signed(number), &self.expecting);
        u64::try_from(number).ok().and_then(self.of_integer).ok_or_else(refused)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        let expecting = "a duration with its unit, such as \"5s\" or \"72h\"";
        deserializer.deserialize_any(Reading { expecting, of_integer: |_| None })
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        let expecting = "a size such as \"10MB\" or \"64KiB\"";
        deserializer.deserialize_any(Reading { expecting, of_integer: |bytes| Some(Size(bytes)) })
    }
}

impl<'de> Deserialize<'de> for Distance {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Distance, D::Error> {
        let expecting = "a distance with its unit, such as \"5 cm\" or \"2.5 m\"";
        deserializer.deserialize_any(Reading { expecting, of_integer: |_| None })
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^([0-9]+(ms|s|m|min|h|d))+$", "examples": ["250ms", "5s", "72h", "7d"] })
    }
}

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "string", "pattern": "^[0-9]+ *(B|kB|KB|KiB|MB|MiB|GB|GiB)?$" },
                { "type": "integer", "minimum": 0 }
            ],
            "examples": ["64KiB", "10MB"]
        })
    }
}

impl JsonSchema for Distance {
    fn schema_name() -> Cow<'static, str> {
        "Distance".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]+(\\.[0-9]+)? *(mm|cm|m|km)$", "examples": ["5 cm", "2.5 m"] })
    }
}

#[cfg(test)]
mod tests {
    use super::{Distance, Size, Span};
    use std::time::Duration;

    #[test]
    fn durations_are_read_and_written_with_their_unit() {
        for (text, millis, shown) in [
            ("250ms", 250, "250ms"),
            ("5s", 5_000, "5s"),
            ("90s", 90_000, "90s"),
            ("10m", 600_000, "10m"),
            ("10min", 600_000, "10m"),
            ("72h", 259_200_000, "3d"),
            ("7d", 604_800_000, "7d"),
            ("1h30m", 5_400_000, "90m"),
            ("0s", 0, "0ms"),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!((span.0, span.to_string().as_str()), (Duration::from_millis(millis), shown), "{text}");
            assert_eq!(span.to_string().parse::<Span>().unwrap(), span);
        }
        for bad in ["", "5", "s", "5 s", "-5s", "1.5h", "5x", "99999999999999999999d", "40000d", "5s!"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_read_and_written_with_their_unit() {
        for (text, bytes, shown) in [
            ("10MB", 10_000_000, "10MB"),
            ("64KiB", 65_536, "64KiB"),
            ("1 kB", 1_000, "1KB"),
            ("17", 17, "17B"),
            ("0", 0, "0B"),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!((size.0, size.to_string().as_str()), (bytes, shown), "{text}");
            assert_eq!(size.to_string().parse::<Size>().unwrap(), size);
        }
        for bad in ["", "MB", "1.5MB", "10mb", "99999999999GiB", "-1"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }

    #[test]
    fn distances_are_read_and_written_with_their_unit() {
        for (text, metres, shown) in [
            ("5 cm", 0.05, "5 cm"),
            ("5cm", 0.05, "5 cm"),
            ("50 mm", 0.05, "5 cm"),
            ("0.1 mm", 0.0001, "0.0001 m"),
            ("2.5 m", 2.5, "2.5 m"),
            ("1.25km", 1250.0, "1.25 km"),
            ("100 km", 100_000.0, "100 km"),
        ] {
            let distance: Distance = text.parse().unwrap();
            assert_eq!((distance, distance.to_string().as_str()), (Distance(metres), shown), "{text}");
            assert_eq!(distance.to_string().parse::<Distance>().unwrap(), distance);
        }
        for bad in ["", "5", "cm", "-5 cm", "5 ft", "1e3 m", "5 cm 2", ". m", "1.2.3 m"] {
            assert!(bad.parse::<Distance>().is_err(), "{bad}");
        }
    }
}
