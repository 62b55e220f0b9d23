//! The demo's workload: zones of drones, as a bad network would deliver them.

use super::change::{reversed_members, rings, rotate};
use serde_json::{Value, json};

/// Zones there are; each is updated once.
pub(super) const ZONES: usize = 1_000;
/// Zones whose older version arrives after the newer one.
pub(super) const LATE: usize = 40;
/// Zones whose ring crosses itself.
pub(super) const BROKEN: usize = 12;
/// Updates that are sent again.
pub(super) const RESENT: usize = 262;

/// What is sent: first everything that comes in time, then what comes late.
pub(super) struct Workload {
    pub(super) in_time: Vec<Vec<u8>>,
    pub(super) late: Vec<Vec<u8>>,
}

/// The same workload for the same seed.
pub(super) fn workload(seed: u64) -> Workload {
    let mut chance = Chance(seed);
    let mut updates: Vec<Value> = (0..ZONES).map(|zone| update(zone, 2, zone < BROKEN)).collect();
    let resent: Vec<Value> = (0..RESENT)
        .map(|_| {
            let mut again = updates[chance.below(ZONES)].clone();
            disturb(&mut again, &mut chance);
            again
        })
        .collect();
    updates.extend(resent);
    for i in (1..updates.len()).rev() {
        updates.swap(i, chance.below(i + 1));
    }
    let late = (0..LATE).map(|i| update(BROKEN + i, 1, false));
    Workload {
        in_time: updates.iter().map(|update| update.to_string().into_bytes()).collect(),
        late: late.map(|update| update.to_string().into_bytes()).collect(),
    }
}

/// A hexagon, or one that crosses itself.
fn update(zone: usize, version: u32, broken: bool) -> Value {
    #[expect(clippy::cast_precision_loss, reason = "zones are few")]
    let (column, row) = ((zone % 40) as f64, (zone / 40) as f64);
    let (x, y) = (13.0 + column * 0.02, 52.3 + row * 0.012);
    let size = 0.004 + f64::from(version) * 0.0005;
    let mut ring: Vec<Value> = (0..6)
        .map(|corner| {
            let angle = f64::from(corner) * std::f64::consts::FRAC_PI_3;
            json!([x + size * angle.cos() * 1.6, y + size * angle.sin()])
        })
        .collect();
    if broken {
        ring.swap(1, 4);
    }
    ring.push(ring[0].clone());
    json!({
        "type": "Feature",
        "geometry": {"type": "Polygon", "coordinates": [ring]},
        "properties": {
            "zone": format!("Z-{zone:04}"),
            "version": version,
            "ceiling_m": 60 + (zone % 7) * 10,
            "status": if zone.is_multiple_of(3) { "restricted" } else { "open" },
        },
    })
}

/// Another way of saying the same.
fn disturb(update: &mut Value, chance: &mut Chance) {
    let turn = 1 + chance.below(4);
    match chance.below(4) {
        0 => rings(update, |ring| rotate(ring, turn)),
        1 => rings(update, |ring| ring.reverse()),
        2 => *update = reversed_members(update),
        _ => {
            update["delivery_attempt"] = json!(turn);
            rings(update, |ring| rotate(ring, turn));
        }
    }
}

/// Numbers that look random and are the same every time (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound.max(1) as u64).unwrap_or(0)
    }
}
