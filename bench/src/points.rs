//! Points of about 240 bytes, made from a number: the same number gives the same bytes, another gives another event.

use std::io::Write;

/// Spreads numbers over the whole range, so that neighbours in time are no neighbours in space.
fn scattered(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Where the point is, in units of 10^-7 degrees.
pub fn position(tag: u64, number: u64) -> (i64, i64) {
    let bits = scattered(number ^ (tag << 40));
    let x = i64::try_from(bits % 3_400_000_000).unwrap_or(0) - 1_700_000_000;
    let y = i64::try_from((bits >> 32) % 1_600_000_000).unwrap_or(0) - 800_000_000;
    (x, y)
}

fn degrees(units: i64) -> (&'static str, u64, u64) {
    let magnitude = units.unsigned_abs();
    (if units < 0 { "-" } else { "" }, magnitude / 10_000_000, magnitude % 10_000_000)
}

/// Appends the Feature of this number to `out`.
pub fn write(tag: u64, number: u64, out: &mut Vec<u8>) {
    let (x, y) = position(tag, number);
    let ((x_sign, x_whole, x_rest), (y_sign, y_whole, y_rest)) = (degrees(x), degrees(y));
    let bits = scattered(!number);
    let (asset, zone, heading) = (bits % 1_000_000, (bits >> 20) % 100, (bits >> 28) % 360);
    let (device, speed) = ((bits >> 40) % 5_000, (bits >> 52) % 40);
    // Writing to memory does not fail.
    let _ = write!(
        out,
        "{{\"type\":\"Feature\",\"id\":\"evt-{tag}-{number:08}\",\"device_id\":\"dev-{device:05}\",\
         \"geometry\":{{\"type\":\"Point\",\"coordinates\":[{x_sign}{x_whole}.{x_rest:07},{y_sign}{y_whole}.{y_rest:07}]}},\
         \"properties\":{{\"asset_id\":\"A-{asset:06}\",\"zone_code\":\"Z{zone:02}\",\"speed\":{speed}.25,\
         \"heading\":{heading},\"sequence\":{number},\"status\":\"ok\"}}}}"
    );
}

#[cfg(test)]
mod tests {
    use geonce_key::{Input, Keyer, Policy};

    #[test]
    fn every_number_is_an_event_of_its_own() {
        let mut keyer = Keyer::new(&Policy::default()).unwrap();
        let mut keys = std::collections::HashSet::new();
        for (tag, number) in (0..3).flat_map(|tag| (0..2_000).map(move |number| (tag, number))) {
            let mut body = Vec::new();
            super::write(tag, number, &mut body);
            assert!((200..300).contains(&body.len()), "{}", String::from_utf8_lossy(&body));
            assert!(keys.insert(keyer.key(Input::json(&body)).unwrap().fingerprint));
        }
    }
}
