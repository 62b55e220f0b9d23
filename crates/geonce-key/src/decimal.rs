//! Exact decimals: the grid of `g1` point 4, and numbers as RFC 8785 writes them.
//!
//! Everything here is integer arithmetic on the shortest decimal that reads back as the same double, so no
//! result depends on a platform's floating point.

/// Ten to the n-th power, for every n that fits.
pub(crate) const POW10: [u64; 20] = {
    let mut table = [1u64; 20];
    let mut i = 1;
    while i < 20 {
        table[i] = table[i - 1] * 10;
        i += 1;
    }
    table
};

/// Decimals with fewer digits than this are told apart by doubles, so their text is already the shortest one.
pub(crate) const EXACT_DIGITS_BOUND: u64 = POW10[15];

/// The largest integer up to which every integer is a double (RFC 7493 section 2.2).
const SAFE_INTEGER_MAX: u64 = (1 << 53) - 1;

/// The number ±digits × 10^exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    pub(crate) negative: bool,
    pub(crate) digits: u64,
    pub(crate) exponent: i32,
}

/// A number on the grid by both rules of `g1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rounded {
    /// Half-way cases to even: the key's grid.
    pub(crate) even: i64,
    /// Up from 5/11 of a step: the alias's grid, whose rounding line no terminating decimal comes near.
    pub(crate) safe: i64,
}

impl Decimal {
    /// The shortest decimal that reads back as `value`, which must be finite.
    pub(crate) fn shortest(value: f64) -> Decimal {
        let mut buffer = zmij::Buffer::new();
        let mut decimal = Decimal { negative: false, digits: 0, exponent: 0 };
        let mut fraction = false;
        let mut text = buffer.format_finite(value).bytes();
        while let Some(byte) = text.next() {
            match byte {
                b'-' => decimal.negative = true,
                b'.' => fraction = true,
                b'e' => {
                    decimal.exponent += read_exponent(&mut text);
                    break;
                }
                digit => {
                    decimal.digits = decimal.digits * 10 + u64::from(digit - b'0');
                    decimal.exponent -= i32::from(fraction);
                }
            }
        }
        decimal
    }

    /// Whether nothing is discarded at `places` decimals.
    #[inline]
    pub(crate) fn is_on_grid(self, places: u8) -> bool {
        match self.exponent + i32::from(places) {
            0.. => true,
            shift => POW10
                .get(shift.unsigned_abs() as usize)
                .map_or(self.digits == 0, |unit| self.digits.is_multiple_of(*unit)),
        }
    }

    /// The grid value at `places` decimals. Magnitudes beyond the grid's reach saturate and fail the bounds.
    #[inline]
    pub(crate) fn round(self, places: u8) -> Rounded {
        let shift = self.exponent + i32::from(places);
        let (even, safe) = match shift {
            0 => (self.digits, self.digits),
            1.. => {
                let scaled = scale_up(self.digits, shift);
                (scaled, scaled)
            }
            _ => scale_down(self.digits, shift.unsigned_abs() as usize),
        };
        Rounded { even: signed(self.negative, even), safe: signed(self.negative, safe) }
    }

    /// Writes the number in the form of RFC 8785 section 3.2.2.3 (ECMAScript), except that integers beyond
    /// ±(2^53 − 1) keep all their digits: two large ids must never become one.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        let Decimal { negative, mut digits, mut exponent } = self;
        if digits == 0 {
            out.push(b'0');
            return;
        }
        while digits.is_multiple_of(10) {
            digits /= 10;
            exponent += 1;
        }
        if negative {
            out.push(b'-');
        }
        let mut buffer = itoa::Buffer::new();
        let text = buffer.format(digits).as_bytes();
        if exponent >= 0 && exceeds_safe_integer(digits, exponent) {
            write_integer(text, exponent, out);
        } else {
            write_ecmascript(text, exponent, out);
        }
    }
}

fn read_exponent(text: &mut impl Iterator<Item = u8>) -> i32 {
    let mut negative = false;
    let mut value = 0;
    for byte in text {
        match byte {
            b'-' => negative = true,
            b'+' => {}
            digit => value = value * 10 + i32::from(digit - b'0'),
        }
    }
    if negative { -value } else { value }
}

fn signed(negative: bool, magnitude: u64) -> i64 {
    let magnitude = i64::try_from(magnitude).unwrap_or(i64::MAX);
    if negative { -magnitude } else { magnitude }
}

fn scale_up(digits: u64, shift: i32) -> u64 {
    if digits == 0 {
        return 0;
    }
    let factor = POW10.get(shift.unsigned_abs() as usize).copied().unwrap_or(u64::MAX);
    digits.saturating_mul(factor)
}

/// `digits / 10^shift` by both rules. With 18 or more digits to drop, a shortest decimal (at most 17 digits) is
/// below 5/11 of a step, so both rules give zero.
fn scale_down(digits: u64, shift: usize) -> (u64, u64) {
    if shift > 18 {
        return (0, 0);
    }
    let unit = POW10[shift];
    let (whole, rest) = (digits / unit, digits % unit);
    let half_up = rest * 2 > unit || (rest * 2 == unit && whole % 2 == 1);
    let safe_up = rest * 11 >= unit * 5;
    (whole + u64::from(half_up), whole + u64::from(safe_up))
}

fn exceeds_safe_integer(digits: u64, exponent: i32) -> bool {
    scale_up(digits, exponent) > SAFE_INTEGER_MAX
}

/// An integer written out: its digits and `zeros` zeros.
pub(crate) fn write_integer(digits: &[u8], zeros: i32, out: &mut Vec<u8>) {
    out.extend_from_slice(digits);
    out.resize(out.len() + zeros.unsigned_abs() as usize, b'0');
}

/// ECMAScript `Number::toString` for `digits` (no trailing zero) × 10^exponent.
fn write_ecmascript(digits: &[u8], exponent: i32, out: &mut Vec<u8>) {
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let point = count + exponent;
    if exponent >= 0 && point <= 21 {
        write_integer(digits, exponent, out);
    } else if (1..=21).contains(&point) {
        let (whole, fraction) = digits.split_at(point.unsigned_abs() as usize);
        out.extend_from_slice(whole);
        out.push(b'.');
        out.extend_from_slice(fraction);
    } else if (-5..=0).contains(&point) {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + point.unsigned_abs() as usize, b'0');
        out.extend_from_slice(digits);
    } else {
        out.push(digits[0]);
        if digits.len() > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        out.extend_from_slice(if point > 0 { b"e+" } else { b"e-" });
        out.extend_from_slice(itoa::Buffer::new().format((point - 1).unsigned_abs()).as_bytes());
    }
}

/// Writes a grid value of at most 15 digits as the decimal number it stands for, as [`Decimal::write`] would,
/// but fast: coordinates are most of a canonical form.
#[inline]
pub(crate) fn write_grid(value: i64, places: u8, out: &mut Vec<u8>) {
    let magnitude = value.unsigned_abs();
    let unit = POW10[usize::from(places)];
    let (whole, fraction) = (magnitude / unit, magnitude % unit);
    let Some(head) = HEADS.get(usize::try_from(whole).unwrap_or(usize::MAX)).filter(|_| places <= 8 && whole != 0)
    else {
        return Decimal { negative: value < 0, digits: magnitude, exponent: -i32::from(places) }.write(out);
    };
    // Eight bytes are written each time, and those beyond the end taken back.
    let negative = usize::from(value < 0);
    let text = if value < 0 { head << 8 | u64::from(b'-') } else { *head };
    let mut length = out.len() + (head >> 56) as usize + negative;
    out.extend_from_slice(&text.to_le_bytes());
    if fraction == 0 {
        out.truncate(length - 1);
        return;
    }
    out.truncate(length);
    let digits = eight_digits(fraction * POW10[8 - usize::from(places)]);
    length += 8 - (digits.leading_zeros() / 8) as usize;
    out.extend_from_slice(&(digits | ASCII_ZEROS).to_le_bytes());
    out.truncate(length);
}

/// The text of 0 to 999 with a point after it, first character in the lowest byte; the length in the highest.
static HEADS: [u64; 1000] = {
    let mut table = [0; 1000];
    let mut n = 0;
    while n < 1000 {
        let mut text = b'.' as u64;
        let mut length = 1;
        let mut rest = n as u64;
        while rest > 0 || length == 1 {
            text = text << 8 | (b'0' as u64 + rest % 10);
            rest /= 10;
            length += 1;
        }
        table[n] = text | length << 56;
        n += 1;
    }
    table
};

const ASCII_ZEROS: u64 = 0x3030_3030_3030_3030;

/// The eight decimal digits of `value`, one a byte, the first digit in the lowest byte.
#[inline]
fn eight_digits(value: u64) -> u64 {
    let halves = (value / 10_000) | ((value % 10_000) << 32);
    let hundreds = ((halves * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let pairs = hundreds | ((halves - hundreds * 100) << 16);
    let tens = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | ((pairs - tens * 10) << 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(decimal: Decimal) -> String {
        let mut out = Vec::new();
        decimal.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn both_grids_round_as_the_specification_says() {
        let check = |value: f64, even: i64, safe: i64| {
            assert_eq!(Decimal::shortest(value).round(7), Rounded { even, safe }, "{value}");
        };
        check(0.0, 0, 0);
        check(-0.0, 0, 0);
        check(0.000_000_15, 2, 2);
        check(0.000_000_25, 2, 3);
        check(-0.000_000_25, -2, -3);
        check(0.000_000_145, 1, 1);
        check(0.000_000_145_5, 1, 2);
        check(0.000_000_144_9, 1, 1);
        check(12.345_678_9, 123_456_789, 123_456_789);
        check(1e-300, 0, 0);
        check(5e-8, 0, 1);
        check(180.0, 1_800_000_000, 1_800_000_000);
        check(1e300, i64::MAX, i64::MAX);
        check(-1e300, -i64::MAX, -i64::MAX);
    }

    #[test]
    fn numbers_are_written_as_ecmascript_does() {
        let check = |value: f64, text: &str| assert_eq!(written(Decimal::shortest(value)), text);
        check(0.0, "0");
        check(-0.0, "0");
        check(1.0, "1");
        check(-1.5, "-1.5");
        check(1e-6, "0.000001");
        check(1e-7, "1e-7");
        check(1.25e-7, "1.25e-7");
        check(123_456.789, "123456.789");
        check(4.5e-300, "4.5e-300");
        check(9_007_199_254_740_991.0, "9007199254740991");
    }

    #[test]
    fn integers_beyond_the_safe_range_keep_their_digits() {
        let check = |digits, exponent, text: &str| {
            assert_eq!(written(Decimal { negative: false, digits, exponent }), text);
        };
        check(1, 21, "1000000000000000000000");
        check(12, 22, "120000000000000000000000");
        check(9_007_199_254_740_993, 0, "9007199254740993");
    }

    #[test]
    fn the_fast_writer_agrees_with_the_plain_one() {
        let mut state = 42u64;
        for places in 0..=9u8 {
            for step in 0..4_000u64 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let bound = 180 * POW10[usize::from(places)] + 1;
                let magnitude = if step < 2_000 { step } else { (state >> 11) % bound };
                for value in [magnitude.cast_signed(), -magnitude.cast_signed()] {
                    let mut fast = Vec::new();
                    write_grid(value, places, &mut fast);
                    let plain =
                        written(Decimal { negative: value < 0, digits: magnitude, exponent: -i32::from(places) });
                    assert_eq!(String::from_utf8(fast).unwrap(), plain, "{value} at {places}");
                }
            }
        }
    }
}
