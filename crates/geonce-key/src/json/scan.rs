//! The scanner: checks a text byte by byte against RFC 8259 and the limits, and writes the tape.

use super::{Document, Name, Node, Tag, Tape, eight, first_bytes, pointer_token, unescape};
use crate::decimal::{EXACT_DIGITS_BOUND, POW10};
use crate::{Code, Error, Limits, Result};
use std::borrow::Cow;

/// Reads one JSON text onto `tape`, replacing what is there.
pub(crate) fn parse<'a>(bytes: &'a [u8], limits: &Limits, tape: &'a mut Tape) -> Result<Document<'a>> {
    if bytes.len() > limits.bytes_max || u32::try_from(bytes.len()).is_err() {
        let message = format!("the payload has {} bytes, more than {}", bytes.len(), limits.bytes_max);
        return Err(Error::new(Code::LimitBytes, "", message));
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(Error::new(Code::JsonBom, "", "the text starts with a byte order mark")
            .hint("save the file as UTF-8 without BOM"));
    }
    let text = std::str::from_utf8(bytes).map_err(|e| {
        Error::new(Code::JsonUtf8, "", format!("the bytes are not UTF-8 from byte {} on", e.valid_up_to()))
    })?;
    tape.nodes.clear();
    tape.names.clear();
    let mut scanner = Scanner { bytes, at: 0, limits, nodes: &mut tape.nodes, names: &mut tape.names };
    scanner.skip_space();
    scanner.value(0)?;
    scanner.skip_space();
    if scanner.at < bytes.len() {
        let message = format!("something follows the JSON value at byte {}", scanner.at);
        return Err(Error::new(Code::JsonTrailing, "", message));
    }
    Ok(Document { text, nodes: &tape.nodes })
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    limits: &'a Limits,
    nodes: &'a mut Vec<Node>,
    /// Member names of all open objects.
    names: &'a mut Vec<Name>,
}

/// Member counts up to which comparing all pairs of names is cheaper than sorting them.
const PAIRWISE_MAX: usize = 12;

impl Scanner<'_> {
    #[inline]
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[inline]
    fn skip_space(&mut self) {
        if self.peek().is_some_and(|byte| byte <= b' ') {
            self.skip_some_space();
        }
    }

    fn skip_some_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    #[cold]
    fn unexpected(&self, wanted: &str) -> Error {
        match self.peek() {
            None => Error::new(Code::JsonIncomplete, "", format!("the text ends where {wanted} should follow")),
            Some(byte) => {
                let found = char::from(byte).escape_default();
                Error::new(Code::JsonSyntax, "", format!("'{found}' at byte {} instead of {wanted}", self.at))
            }
        }
    }

    /// Refuses a text with too many values.
    #[inline]
    fn check_values(&self) -> Result<()> {
        if self.nodes.len() > self.limits.values_max {
            let message = format!("the payload has more than {} values", self.limits.values_max);
            return Err(Error::new(Code::LimitValues, "", message));
        }
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<()> {
        match self.peek() {
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string(),
            Some(b'{') => self.object(depth),
            Some(b't') => self.literal("true", Tag::True),
            Some(b'f') => self.literal("false", Tag::False),
            Some(b'n') => self.literal("null", Tag::Null),
            _ => Err(self.unexpected("a JSON value")),
        }
    }

    fn literal(&mut self, text: &str, tag: Tag) -> Result<()> {
        for &byte in text.as_bytes() {
            if self.peek() != Some(byte) {
                return Err(self.unexpected(text));
            }
            self.at += 1;
        }
        self.nodes.push(Node { value: 0, start: offset(self.at - text.len()), exponent: 0, tag, flag: false });
        Ok(())
    }

    /// Opens a container and returns its node's index.
    #[inline]
    fn open(&mut self, tag: Tag, depth: usize) -> Result<usize> {
        if depth >= self.limits.depth_max {
            let message = format!("values are nested more than {} deep", self.limits.depth_max);
            return Err(Error::new(Code::LimitDepth, "", message));
        }
        let index = self.nodes.len();
        self.nodes.push(Node { value: 0, start: offset(self.at), exponent: 0, tag, flag: false });
        self.at += 1;
        self.skip_space();
        Ok(index)
    }

    #[inline]
    fn close(&mut self, index: usize, count: usize) {
        self.at += 1;
        self.nodes[index].value = (count as u64) << 32 | self.nodes.len() as u64;
    }

    fn array(&mut self, depth: usize) -> Result<()> {
        let index = self.open(Tag::Array, depth)?;
        let mut count = 0;
        if self.peek() == Some(b']') {
            self.close(index, 0);
            return Ok(());
        }
        loop {
            let done = self.peek() == Some(b'[') && depth + 1 < self.limits.depth_max && self.position();
            if !done && let Err(error) = self.value(depth + 1) {
                return Err(error.under(&format!("/{count}")));
            }
            count += 1;
            self.check_values()?;
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.close(index, count);
                    return Ok(());
                }
                _ => return Err(self.unexpected("',' or ']'")),
            }
            self.skip_space();
        }
    }

    fn object(&mut self, depth: usize) -> Result<()> {
        let index = self.open(Tag::Object, depth)?;
        let first_name = self.names.len();
        let (mut seen, mut suspect) = (0u64, false);
        let mut count = 0;
        if self.peek() == Some(b'}') {
            self.close(index, 0);
            return Ok(());
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a member name"));
            }
            let name = self.nodes.len();
            self.string()?;
            let sketched = self.sketch(name);
            // A bit per name: only names that share one, or are escaped, are compared.
            let bit = 1u64 << (sketched.sketch.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58);
            suspect |= seen & bit != 0 || self.nodes[name].flag;
            seen |= bit;
            self.names.push(sketched);
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("':'"));
            }
            self.at += 1;
            self.skip_space();
            if let Err(error) = self.value(depth + 1) {
                return Err(error.under(&pointer_token(&self.name(name))));
            }
            count += 1;
            self.check_values()?;
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(self.unexpected("',' or '}'")),
            }
            self.skip_space();
        }
        if count > self.limits.members_max {
            let message = format!("an object has more than {} members", self.limits.members_max);
            return Err(Error::new(Code::LimitMembers, "", message));
        }
        if suspect {
            self.refuse_duplicates(first_name)?;
        }
        self.names.truncate(first_name);
        self.close(index, count);
        Ok(())
    }

    fn raw_name(&self, index: usize) -> &[u8] {
        let node = &self.nodes[index];
        #[expect(clippy::cast_possible_truncation, reason = "string lengths are below the text's, which fits 32 bits")]
        let length = node.value as usize;
        &self.bytes[node.start as usize..node.start as usize + length]
    }

    fn name(&self, index: usize) -> Cow<'_, str> {
        let raw = String::from_utf8_lossy(self.raw_name(index));
        if self.nodes[index].flag { Cow::Owned(unescape(&raw)) } else { raw }
    }

    #[inline]
    fn sketch(&self, node: usize) -> Name {
        let Node { value: length, start, .. } = self.nodes[node];
        let sketch = first_bytes(self.bytes, start as usize, length) ^ length.rotate_right(8);
        Name { sketch, node: offset(node) }
    }

    /// Refuses an object in which a name occurs twice (RFC 7493 section 2.3).
    #[inline(never)]
    fn refuse_duplicates(&self, first: usize) -> Result<()> {
        let names = &self.names[first..];
        let escaped = names.iter().any(|name| self.nodes[name.node as usize].flag);
        let twice = if escaped || names.len() > PAIRWISE_MAX {
            let mut all: Vec<Cow<'_, str>> = names.iter().map(|name| self.name(name.node as usize)).collect();
            all.sort_unstable();
            all.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].clone().into_owned())
        } else {
            names.iter().enumerate().find_map(|(i, name)| {
                let same = |other: &&Name| {
                    other.sketch == name.sketch
                        && self.raw_name(other.node as usize) == self.raw_name(name.node as usize)
                };
                names[..i].iter().find(same).map(|_| self.name(name.node as usize).into_owned())
            })
        };
        if let Some(name) = twice {
            let message = format!("the member {name:?} occurs twice");
            return Err(Error::new(Code::JsonDuplicateMember, pointer_token(&name), message));
        }
        Ok(())
    }

    #[inline]
    fn string(&mut self) -> Result<()> {
        let start = self.at + 1;
        let mut at = start;
        while let Some(chunk) = eight(self.bytes, at) {
            let found = special_bytes(chunk);
            if found == 0 {
                at += 8;
                continue;
            }
            at += (found.trailing_zeros() / 8) as usize;
            if self.bytes[at] == b'"' {
                return self.end_string(start, at, false);
            }
            break;
        }
        self.any_string(start, at)
    }

    #[expect(clippy::inline_always, reason = "a few instructions for every string of a payload")]
    #[inline(always)]
    fn end_string(&mut self, start: usize, end: usize, escaped: bool) -> Result<()> {
        let length = end - start;
        if length > self.limits.string_bytes_max {
            let message = format!("a string has {length} bytes, more than {}", self.limits.string_bytes_max);
            return Err(Error::new(Code::LimitString, "", message));
        }
        self.at = end + 1;
        let tag = Tag::String;
        self.nodes.push(Node { value: length as u64, start: offset(start), exponent: 0, tag, flag: escaped });
        Ok(())
    }

    /// Reads the rest of a string that starts at `start` and is plain up to `at`.
    fn any_string(&mut self, start: usize, at: usize) -> Result<()> {
        self.at = at;
        let mut escaped = false;
        loop {
            match self.peek() {
                Some(b'"') => return self.end_string(start, self.at, escaped),
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(byte) if byte < 0x20 => {
                    let message = format!("control character U+{byte:04X} stands unescaped at byte {}", self.at);
                    return Err(Error::new(Code::JsonControlCharacter, "", message));
                }
                Some(_) => self.at += 1,
                None => return Err(self.unexpected("the end of a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<()> {
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 1;
                Ok(())
            }
            Some(b'u') => {
                let start = self.at - 1;
                let code = self.hex4()?;
                let lone = match code {
                    0xdc00..=0xdfff => true,
                    0xd800..=0xdbff => {
                        if self.bytes.get(self.at..self.at + 2) == Some(b"\\u") {
                            self.at += 1;
                            !matches!(self.hex4()?, 0xdc00..=0xdfff)
                        } else {
                            true
                        }
                    }
                    _ => false,
                };
                if lone {
                    let message = format!("the escape at byte {start} is half of a surrogate pair");
                    return Err(Error::new(Code::JsonLoneSurrogate, "", message));
                }
                Ok(())
            }
            _ => Err(self.unexpected("an escape")),
        }
    }

    /// Reads `u` and four hexadecimal digits.
    fn hex4(&mut self) -> Result<u32> {
        self.at += 1;
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|b| char::from(b).to_digit(16));
            code = code * 16 + digit.ok_or_else(|| self.unexpected("a hexadecimal digit"))?;
            self.at += 1;
        }
        Ok(code)
    }

    #[inline]
    fn number(&mut self) -> Result<()> {
        match plain_number(self.bytes, self.at) {
            Some((node, end)) => {
                self.nodes.push(node);
                self.at = end;
                Ok(())
            }
            None => self.any_number(),
        }
    }

    /// Reads an array of plain numbers without white space, which is what nearly every position is. Leaves
    /// anything else alone and returns false.
    #[inline]
    fn position(&mut self) -> bool {
        let index = self.nodes.len();
        let start = offset(self.at);
        self.nodes.push(Node { value: 0, start, exponent: 0, tag: Tag::Array, flag: false });
        let mut at = self.at + 1;
        let mut count = 0;
        while let Some((node, end)) = plain_number(self.bytes, at) {
            self.nodes.push(node);
            count += 1;
            match self.bytes.get(end) {
                Some(b',') => at = end + 1,
                Some(b']') => {
                    self.at = end;
                    self.close(index, count);
                    return true;
                }
                _ => break,
            }
        }
        self.nodes.truncate(index);
        false
    }

    /// Reads any number of the JSON grammar.
    fn any_number(&mut self) -> Result<()> {
        let start = self.at;
        let negative = self.peek() == Some(b'-');
        self.at += usize::from(negative);
        let whole_start = self.at;
        let mut digits = 0u64;
        let mut count = self.digits(&mut digits)?;
        if count > 1 && self.bytes[whole_start] == b'0' {
            let message = format!("a number has a leading zero at byte {start}");
            return Err(Error::new(Code::JsonSyntax, "", message));
        }
        let mut fraction = 0;
        if self.peek() == Some(b'.') {
            self.at += 1;
            fraction = self.digits(&mut digits)?;
            count += fraction;
        }
        let mut exponent = 0;
        if let Some(b'e' | b'E') = self.peek() {
            exponent = self.exponent()?;
        }
        let length = self.at - start;
        if length > self.limits.number_bytes_max {
            let message = format!("a number has {length} characters, more than {}", self.limits.number_bytes_max);
            return Err(Error::new(Code::LimitNumber, "", message));
        }
        #[expect(clippy::cast_possible_wrap, reason = "the number's length was just bounded")]
        let exponent = exponent - fraction as i64;
        // 19 digits cannot have wrapped around; |exponent| is kept where doubles have full precision.
        if count <= 19 && digits < EXACT_DIGITS_BOUND && (-280..=280).contains(&exponent) {
            #[expect(clippy::cast_possible_truncation, reason = "just checked")]
            let exponent = exponent as i16;
            self.nodes.push(Node { value: digits, start: offset(start), exponent, tag: Tag::Exact, flag: negative });
            return Ok(());
        }
        self.float(start)
    }

    /// Reads at least one digit into `digits` and returns how many there were.
    fn digits(&mut self, digits: &mut u64) -> Result<usize> {
        let start = self.at;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            *digits = digits.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            self.at += 1;
        }
        if self.at == start {
            return Err(self.unexpected("a digit"));
        }
        Ok(self.at - start)
    }

    fn exponent(&mut self) -> Result<i64> {
        self.at += 1;
        let negative = self.peek() == Some(b'-');
        if let Some(b'+' | b'-') = self.peek() {
            self.at += 1;
        }
        let start = self.at;
        let mut value = 0i64;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            value = (value * 10 + i64::from(digit - b'0')).min(1_000_000);
            self.at += 1;
        }
        if self.at == start {
            return Err(self.unexpected("a digit"));
        }
        Ok(if negative { -value } else { value })
    }

    #[cold]
    fn float(&mut self, start: usize) -> Result<()> {
        let text = std::str::from_utf8(&self.bytes[start..self.at]).unwrap_or_default();
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => {
                let flag = value.is_sign_negative();
                let tag = Tag::Float;
                self.nodes.push(Node { value: value.to_bits(), start: offset(start), exponent: 0, tag, flag });
                Ok(())
            }
            _ => {
                let message = format!("the number at byte {start} is too large for a double");
                Err(Error::new(Code::JsonNumberRange, "", message))
            }
        }
    }
}

/// Marks the quotes, backslashes and control characters among eight bytes. A borrow can mark a byte above a true
/// one, never below it: the lowest mark is right.
#[inline]
fn special_bytes(chunk: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let quote = chunk ^ (ONES * 0x22);
    let slash = chunk ^ (ONES * 0x5c);
    let marks = (quote.wrapping_sub(ONES) & !quote)
        | (slash.wrapping_sub(ONES) & !slash)
        | (chunk.wrapping_sub(ONES * 0x20) & !chunk);
    marks & (ONES * 0x80)
}

/// Reads a number of one to three digits, a point and one to seven digits, the usual form of a coordinate, and
/// returns it with the place after it. Any other number is for [`Scanner::any_number`].
#[inline]
fn plain_number(bytes: &[u8], start: usize) -> Option<(Node, usize)> {
    let head = eight(bytes, start)?;
    let negative = head & 0xff == u64::from(b'-');
    let head = head >> (u32::from(negative) * 8);
    let digits = head ^ ASCII_ZEROS;
    let bits = digit_bits(digits);
    if !(8..=24).contains(&bits) || (head >> bits) & 0xff != u64::from(b'.') {
        return None;
    }
    let [.., a, b, c] = (digits << (64 - bits)).to_le_bytes();
    let whole = u64::from(a) * 100 + u64::from(b) * 10 + u64::from(c);
    if bits > 8 && digits.trailing_zeros() >= 8 {
        return None;
    }
    let point = start + usize::from(negative) + (bits / 8) as usize;
    let digits = eight(bytes, point + 1)? ^ ASCII_ZEROS;
    let bits = digit_bits(digits);
    if !(8..=56).contains(&bits) || (digits >> bits) & 0xdf == u64::from(b'E' ^ 0x10) {
        return None;
    }
    let places = (bits / 8) as usize;
    let value = whole * POW10[places] + eight_digit_value(digits << (64 - bits));
    #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "places is at most 7")]
    let exponent = -(places as i16);
    let node = Node { value, start: offset(start), exponent, tag: Tag::Exact, flag: negative };
    Some((node, point + 1 + places))
}

const ASCII_ZEROS: u64 = 0x3030_3030_3030_3030;

/// Eight times the number of leading bytes (lowest first) that are digit values, 0 to 9.
#[inline]
fn digit_bits(values: u64) -> u32 {
    let others = (values.wrapping_add(0x7676_7676_7676_7676) | values) & 0x8080_8080_8080_8080;
    (others.trailing_zeros() / 8) * 8
}

/// The number written by eight digit values, the first in the lowest byte.
#[inline]
fn eight_digit_value(digits: u64) -> u64 {
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8) & 0x00ff_00ff_00ff_00ff;
    let quads = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    quads.wrapping_mul(10_000).wrapping_add(quads >> 32) & 0xffff_ffff
}

/// Texts are shorter than 4 GiB, which [`parse`] checks first.
#[expect(clippy::cast_possible_truncation, reason = "parse refuses longer texts")]
#[inline]
fn offset(at: usize) -> u32 {
    at as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decimal::Decimal;
    use crate::json::Value;

    fn code(text: &str) -> &'static str {
        let mut tape = Tape::default();
        match parse(text.as_bytes(), &Limits::default(), &mut tape) {
            Ok(_) => "ok",
            Err(error) => error.code().as_str(),
        }
    }

    fn decimal(text: &str) -> (bool, u64, i32) {
        let mut tape = Tape::default();
        let document = parse(text.as_bytes(), &Limits::default(), &mut tape).unwrap();
        let Decimal { negative, digits, exponent } = document.root().node().decimal().unwrap();
        (negative, digits, exponent)
    }

    #[test]
    fn what_is_not_strict_json_is_refused_with_a_code() {
        for (text, expected) in [
            (r#"{"a":[1,2.5,-3e2,null,true,false,"x\u00e9"]}"#, "ok"),
            ("", "json_incomplete"),
            ("{", "json_incomplete"),
            ("[1,]", "json_syntax"),
            ("01", "json_syntax"),
            ("1.", "json_incomplete"),
            ("+1", "json_syntax"),
            ("1 2", "json_trailing"),
            ("NaN", "json_syntax"),
            ("1e999", "json_number_range"),
            ("-1e999", "json_number_range"),
            ("\u{feff}{}", "json_bom"),
            (r#"{"a":1,"a":2}"#, "json_duplicate_member"),
            (r#"{"a":1,"\u0061":2}"#, "json_duplicate_member"),
            (r#""\ud800""#, "json_lone_surrogate"),
            (r#""\udc00\ud800""#, "json_lone_surrogate"),
            (r#""\ud83d\ude00""#, "ok"),
            ("\"a\nb\"", "json_control_character"),
            ("\"12345678\u{1}90\"", "json_control_character"),
            ("tru", "json_incomplete"),
        ] {
            assert_eq!(code(text), expected, "{text}");
        }
        assert_eq!(code(&"[".repeat(65)), "limit_depth");
        assert_eq!(code(&format!("{}{}", "[".repeat(64), "]".repeat(64))), "ok");
    }

    #[test]
    fn errors_name_the_place() {
        let mut tape = Tape::default();
        let text = br#"{"a/b":[0,{"c~":"\ud800"}]}"#;
        let error = parse(text, &Limits::default(), &mut tape).err().unwrap();
        assert_eq!(error.pointer(), "/a~1b/1/c~0");
    }

    #[test]
    fn many_members_are_checked_without_comparing_all_pairs() {
        let many: Vec<String> = (0..50_000).map(|i| format!("\"m{i}\":0")).collect();
        assert_eq!(code(&format!("{{{}}}", many.join(","))), "ok");
        assert_eq!(code(&format!("{{{},\"m777\":1}}", many.join(","))), "json_duplicate_member");
    }

    #[test]
    fn numbers_keep_their_exact_decimal_value() {
        assert_eq!(decimal("12.3400"), (false, 123_400, -4));
        assert_eq!(decimal("-0.0"), (true, 0, -1));
        assert_eq!(decimal("1234567.12345678"), (false, 123_456_712_345_678, -8));
        assert_eq!(decimal("1234e-2"), (false, 1234, -2));
        assert_eq!(decimal("0.1000000000000000055511151231257827"), (false, 1, -1));
        assert_eq!(decimal("-73.98570000000001"), (true, 7_398_570_000_000_001, -14));
        assert_eq!(decimal("1e-400"), (false, 0, -1));
    }

    #[test]
    fn pointers_find_values() {
        let mut tape = Tape::default();
        let document = parse(br#"{"a":[{"b":1},{"c\u0064":[7]}]}"#, &Limits::default(), &mut tape).unwrap();
        let find = |tokens: &[&str]| {
            let tokens: Vec<String> = tokens.iter().map(ToString::to_string).collect();
            document.root().at_tokens(&tokens).and_then(Value::as_f64)
        };
        assert_eq!(find(&["a", "1", "cd", "0"]), Some(7.0));
        assert_eq!(find(&["a", "01", "cd", "0"]), None);
        assert_eq!(find(&["a", "0", "b"]), Some(1.0));
    }
}
