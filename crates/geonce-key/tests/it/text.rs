//! JSON written in as many ways as senders write it: member order, white space, number spelling, escapes.
//!
//! Own code on purpose: no serialiser would spell one number in six ways.

/// A JSON value whose numbers keep their spelling and whose members keep their order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    pub(crate) fn text(text: impl Into<String>) -> Json {
        Json::Text(text.into())
    }

    /// The shortest decimal text of a double.
    pub(crate) fn double(value: f64) -> Json {
        Json::Number(value.to_string())
    }

    /// An object with `more` after its own members; members of other values do not exist.
    pub(crate) fn with(self, name: &str, value: Json) -> Json {
        match self {
            Json::Object(mut members) => {
                members.retain(|(other, _)| other != name);
                members.push((name.to_owned(), value));
                Json::Object(members)
            }
            other => other,
        }
    }

    /// As compact as it gets, in the order of its members.
    pub(crate) fn plain(&self) -> String {
        self.styled(Style::default(), &mut Rng::new(0))
    }

    /// One of the many texts that mean the same value.
    pub(crate) fn styled(&self, style: Style, rng: &mut Rng) -> String {
        let mut out = String::new();
        space(style, rng, &mut out);
        self.write(style, rng, &mut out);
        space(style, rng, &mut out);
        out
    }

    fn write(&self, style: Style, rng: &mut Rng, out: &mut String) {
        match self {
            Json::Null => out.push_str("null"),
            Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Json::Number(text) if style.spelling => out.push_str(&respell(text, rng)),
            Json::Number(text) => out.push_str(text),
            Json::Text(text) => write_text(text, style, rng, out),
            Json::Array(items) => list(items.iter(), ['[', ']'], style, rng, out, Json::write),
            Json::Object(members) => {
                let mut order: Vec<&(String, Json)> = members.iter().collect();
                if style.order {
                    rng.shuffle(&mut order);
                }
                list(order.into_iter(), ['{', '}'], style, rng, out, |(name, value), style, rng, out| {
                    write_text(name, style, rng, out);
                    space(style, rng, out);
                    out.push(':');
                    space(style, rng, out);
                    value.write(style, rng, out);
                });
            }
        }
    }
}

/// Which liberties a writer takes.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "four liberties, each taken or not")]
pub(crate) struct Style {
    pub(crate) order: bool,
    pub(crate) space: bool,
    pub(crate) spelling: bool,
    pub(crate) escapes: bool,
}

impl Style {
    pub(crate) const ALL: Style = Style { order: true, space: true, spelling: true, escapes: true };
}

fn list<T>(
    items: impl Iterator<Item = T>,
    [open, close]: [char; 2],
    style: Style,
    rng: &mut Rng,
    out: &mut String,
    write: impl Fn(T, Style, &mut Rng, &mut String),
) {
    out.push(open);
    for (i, item) in items.enumerate() {
        if i > 0 {
            out.push(',');
        }
        space(style, rng, out);
        write(item, style, rng, out);
        space(style, rng, out);
    }
    out.push(close);
}

fn space(style: Style, rng: &mut Rng, out: &mut String) {
    if style.space {
        let some: &str = rng.pick(&["", "", " ", "\n", "\t", "\r\n  "][..]);
        out.push_str(some);
    }
}

fn write_text(text: &str, style: Style, rng: &mut Rng, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        let must = matches!(c, '"' | '\\') || c < ' ';
        let short = match c {
            '"' => Some("\\\""),
            '\\' => Some("\\\\"),
            '/' => Some("\\/"),
            '\u{8}' => Some("\\b"),
            '\u{c}' => Some("\\f"),
            '\n' => Some("\\n"),
            '\r' => Some("\\r"),
            '\t' => Some("\\t"),
            _ => None,
        };
        let escape = must || (style.escapes && rng.below(3) == 0);
        match short {
            _ if !escape => out.push(c),
            Some(short) if !style.escapes || rng.below(2) == 0 => out.push_str(short),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let hex = format!("{unit:04x}");
                    let hex = if rng.below(2) == 0 { hex.to_uppercase() } else { hex };
                    out.push_str("\\u");
                    out.push_str(&hex);
                }
            }
        }
    }
    out.push('"');
}

/// The same decimal number in another spelling.
pub(crate) fn respell(text: &str, rng: &mut Rng) -> String {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i64 = exponent.parse().expect("test numbers have small exponents");
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return rng.pick(&["0", "-0", "0.0", "-0.000", "0e5", "-0E-3", "0.0e+00"]).to_owned();
    }
    let exponent = exponent - i64::try_from(fraction.len()).expect("short");
    let count = i64::try_from(digits.len()).expect("short");
    let zeros = "0".repeat(rng.below(4));
    let shifted = exponent - i64::try_from(zeros.len()).expect("short");
    match rng.below(6) {
        0 => text.to_owned(),
        1 => format!("{sign}{digits}{zeros}e{shifted}"),
        2 => format!("{sign}{digits}{zeros}E{shifted:+}"),
        3 => format!("{sign}{}.{}{zeros}0e{:+03}", &digits[..1], &digits[1..], exponent + count - 1),
        4 => format!("{sign}0.{zeros}{digits}e{}", exponent + count + exponent - shifted),
        _ if (-30..=0).contains(&exponent) => {
            let places = usize::try_from(-exponent).expect("just checked");
            let padded = format!("{digits:0>width$}", width = places + 1);
            let (whole, fraction) = padded.split_at(padded.len() - places);
            format!("{sign}{whole}.{fraction}0{zeros}")
        }
        _ => format!("{sign}{digits}.0{zeros}E{exponent}"),
    }
}

/// A small generator (`SplitMix64`) for variations: the seed is given by the property that uses it.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).expect("fits");
        usize::try_from(self.next() % bound).expect("below a usize")
    }

    /// A number from 0 to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
        let bits = (self.next() >> 11) as f64;
        bits / 9_007_199_254_740_992.0
    }

    pub(crate) fn within(&mut self, low: f64, high: f64) -> f64 {
        low + self.unit() * (high - low)
    }

    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

#[test]
fn a_respelled_number_is_the_same_number() {
    let mut rng = Rng::new(1);
    for text in ["0", "-0", "1", "-12.50", "0.001", "1e3", "-7E-9", "9007199254740993", "123456789.0123456789"] {
        for _ in 0..50 {
            let other = respell(text, &mut rng);
            let value = |text: &str| serde_json::from_str::<f64>(text).expect(text);
            assert_eq!(value(text).to_bits() << 1, value(&other).to_bits() << 1, "{text} as {other}");
        }
    }
}
