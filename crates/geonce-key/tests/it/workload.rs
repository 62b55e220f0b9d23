//! A seeded workload of telemetry points, parcels, large polygons and multipolygons, each event delivered again
//! in every way a channel does: all redeliveries are recognised, no other event is merged.
//!
//! Small by default; `GEONCE_CASES=50` in release makes more than 100,000 events.

use crate::cases;
use crate::identified_by;
use crate::model::{Geometry, Position};
use crate::text::{Json, Rng, Style};
use geonce_key::{Fingerprint, Input, Keyed, Keyer, Kind};
use std::collections::HashMap;

/// What an event is: which class, where, and what tells it apart.
#[derive(Clone)]
struct Event {
    geometry: Geometry,
    members: Vec<(&'static str, Json)>,
    properties: Vec<(&'static str, Json)>,
}

impl Event {
    fn json(&self) -> Json {
        let own = |members: &[(&'static str, Json)]| -> Vec<(String, Json)> {
            members.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
        };
        let feature = self.geometry.feature(Json::Object(own(&self.properties)));
        own(&self.members).into_iter().fold(feature, |feature, (name, value)| feature.with(&name, value))
    }

    fn set(&mut self, name: &str, value: &Json) {
        let all = self.members.iter_mut().chain(&mut self.properties);
        all.filter(|(other, _)| *other == name).for_each(|(_, old)| *old = value.clone());
    }
}

/// On the grid of seven decimals.
fn snap(value: f64) -> f64 {
    format!("{value:.7}").parse().unwrap()
}

/// A star-shaped, simple, closed ring.
fn ring(rng: &mut Rng, at: [f64; 2], radius: f64, count: u32) -> Vec<Position> {
    let step = std::f64::consts::TAU / f64::from(count);
    let mut ring: Vec<Position> = (0..count)
        .map(|i| {
            let angle = (f64::from(i) + rng.within(0.0, 0.8)) * step;
            let reach = radius * rng.within(0.7, 1.0);
            vec![snap(at[0] + reach * angle.cos()), snap(at[1] + reach * angle.sin())]
        })
        .collect();
    ring.push(ring[0].clone());
    ring
}

#[derive(Clone, Copy, Debug)]
enum Class {
    Point,
    Parcel,
    Large,
    Many,
}

fn count(rng: &mut Rng, low: usize, high: usize) -> u32 {
    u32::try_from(low + rng.below(high - low + 1)).unwrap()
}

fn event(class: Class, index: u32, rng: &mut Rng) -> Event {
    let at = [rng.within(-179.0, 178.0), rng.within(-80.0, 79.0)];
    let geometry = match class {
        Class::Point => Geometry::Point(at.map(snap).to_vec()),
        Class::Parcel => {
            let vertices = count(rng, 20, 100);
            let mut rings = vec![ring(rng, at, 0.002, vertices)];
            if rng.below(5) == 0 {
                for side in [-0.0006, 0.0006] {
                    let vertices = count(rng, 4, 8);
                    let mut hole = ring(rng, [at[0] + side, at[1]], 0.0003, vertices);
                    hole.reverse();
                    rings.push(hole);
                }
            }
            Geometry::Polygon(rings)
        }
        Class::Large => Geometry::Polygon(vec![ring(rng, at, 0.2, 5_000)]),
        Class::Many => {
            let part = |i: u32, rng: &mut Rng| {
                let place = [at[0] + f64::from(i % 5) * 0.01, at[1] + f64::from(i / 5) * 0.01];
                let vertices = count(rng, 12, 30);
                Geometry::Polygon(vec![ring(rng, place, 0.004, vertices)])
            };
            Geometry::Multi(Kind::MultiPolygon, (0..10).map(|i| part(i, rng)).collect())
        }
    };
    let text = |prefix: &str, rng: &mut Rng, bound| Json::text(format!("{prefix}{}", rng.below(bound)));
    Event {
        geometry,
        members: vec![("id", Json::text(format!("evt-{class:?}-{index}"))), ("device_id", text("dev-", rng, 5_000))],
        properties: vec![
            ("asset_id", text("A-", rng, 1_000_000)),
            ("zone_code", text("Z", rng, 100)),
            ("status", Json::text(rng.pick(&["ok", "moving", "idle"]))),
            ("area_m2", Json::double(rng.within(100.0, 90_000.0))),
            ("seq", Json::Number(index.to_string())),
            ("tags", Json::Object(vec![("use".to_owned(), Json::text("res")), ("n".to_owned(), Json::Null)])),
        ],
    }
}

/// Moves every ordinate by up to a hundredth of a grid step; rings stay closed.
fn shake(geometry: &mut Geometry, rng: &mut Rng) {
    for ordinate in geometry.positions().into_iter().flatten() {
        *ordinate += rng.within(-1e-9, 1e-9);
    }
}

type Change = fn(&mut Geometry, &mut Rng);

/// Everything a channel may do to an event, by name.
fn redeliveries(event: &Event, rng: &mut Rng) -> Vec<(&'static str, String)> {
    let json = event.json();
    let order = Style { order: true, ..Style::default() };
    let mut out = vec![
        ("identical", json.plain()),
        ("member order", json.styled(order, rng)),
        ("white space", json.styled(Style { space: true, ..Style::default() }, rng)),
        ("number spelling", json.styled(Style { spelling: true, ..Style::default() }, rng)),
        ("escapes", json.styled(Style { escapes: true, ..Style::default() }, rng)),
    ];
    let changes: [(&str, Change); 8] = [
        ("noise", shake),
        ("drift", Geometry::drift),
        ("ring start", Geometry::rotate_rings),
        ("ring direction", Geometry::reverse_rings),
        ("holes", Geometry::shuffle_holes),
        ("parts", Geometry::shuffle_parts),
        ("repeated vertices", Geometry::repeat_vertices),
        ("multi of one", Geometry::toggle_multi),
    ];
    let mut all = event.clone();
    for (name, change) in changes {
        let mut other = event.clone();
        change(&mut other.geometry, rng);
        out.push((name, other.json().plain()));
        if name != "drift" {
            change(&mut all.geometry, rng);
        }
    }
    let stamp = Json::double(rng.unit());
    let metadata =
        |json: Json| json.with("_meta", stamp.clone()).with("timestamp", stamp.clone()).with("attempt", stamp.clone());
    out.push(("metadata", metadata(json).plain()));
    out.push(("everything", metadata(all.json()).styled(Style::ALL, rng)));
    out
}

/// Events that are not this one, by name.
fn others(event: &Event, rng: &mut Rng) -> Vec<(&'static str, String)> {
    let mut out = Vec::new();
    for name in ["id", "device_id", "asset_id", "zone_code", "status"] {
        let mut other = event.clone();
        other.set(name, &Json::text("OTHER"));
        out.push((name, other.json().plain()));
    }
    let mut moved = event.clone();
    let mut paths = moved.geometry.paths();
    if paths.is_empty() {
        moved.geometry.positions()[0][rng.below(2)] += 5e-7;
    } else {
        let choice = rng.below(paths.len());
        let vertex = 1 + rng.below(paths[choice].len() - 2);
        paths[choice][vertex][rng.below(2)] += 5e-7;
    }
    out.push(("moved vertex", moved.json().plain()));
    let mut dropped = event.clone();
    if let Some(path) = dropped.geometry.paths().pop() {
        path.remove(1 + rng.below(path.len() - 2));
        out.push(("dropped vertex", dropped.json().plain()));
    }
    out
}

#[derive(Default)]
struct Tally {
    deliveries: HashMap<&'static str, [u32; 2]>,
    merged: Vec<String>,
}

fn run(class: Class, events: u32, tally: &mut Tally) {
    let policy =
        identified_by(&["/id", "/device_id", "/properties/asset_id", "/properties/zone_code", "/properties/status"]);
    let mut keyer = Keyer::new(&policy).unwrap();
    let mut key = |text: &str| keyer.key(Input::json(text.as_bytes())).unwrap();
    let prints = |keyed: &Keyed| [&[keyed.fingerprint], keyed.aliases.as_slice()].concat();
    let mut rng = Rng::new(42);
    // Who has claimed a digest: two different events must never claim the same one.
    let mut owners: HashMap<Fingerprint, u32> = HashMap::new();
    for index in 0..events {
        let event = event(class, index, &mut rng);
        let base = key(&event.json().plain());
        let mut claimed = prints(&base);
        for (name, text) in redeliveries(&event, &mut rng) {
            let again = key(&text);
            let seen = tally.deliveries.entry(name).or_default();
            seen[0] += 1;
            seen[1] += u32::from(again.matches(&base));
            claimed.extend(prints(&again));
        }
        for (name, text) in others(&event, &mut rng) {
            if prints(&key(&text)).iter().any(|print| claimed.contains(print)) {
                tally.merged.push(format!("{class:?} {index}: {name}"));
            }
        }
        for print in claimed {
            if owners.insert(print, index).is_some_and(|owner| owner != index) {
                tally.merged.push(format!("{class:?} {index}: another event"));
            }
        }
    }
}

#[test]
fn every_redelivery_is_recognised_and_no_other_event_merged() {
    let mut tally = Tally::default();
    for (class, events) in [(Class::Point, 1_600), (Class::Parcel, 300), (Class::Large, 2), (Class::Many, 100)] {
        run(class, cases(events), &mut tally);
    }
    let missed: Vec<_> = tally.deliveries.iter().filter(|(_, [all, found])| all != found).collect();
    assert!(missed.is_empty(), "deliveries and recognised ones: {missed:?}");
    assert!(tally.merged.is_empty(), "{} merged: {:?}", tally.merged.len(), &tally.merged[..tally.merged.len().min(9)]);
}
