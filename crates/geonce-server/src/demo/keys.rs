//! `geonce demo --keys`: one parcel through everything a bad network does to it. Every line is computed.

use super::change::{ordinates, reversed_members, rings, rotate};
use crate::failure::{Failure, Outcome};
use geonce_key::{Encoding, Form, Input, Keyed, Keyer, Policy, wkb, wkt};
use serde_json::{Value, json};

use std::io::Write;

/// A delivery: what happened to it, its form and its bytes.
struct Delivery {
    what: &'static str,
    form: Form,
    bytes: Vec<u8>,
}

/// Runs the command; the answer is yes if every delivery was recognised for what it is.
pub(crate) fn run() -> Outcome {
    let mut keyer = Keyer::new(&Policy::default())?;
    let parcel: Value = serde_json::from_str(PARCEL)
        .map_err(|error| Failure::new("internal", format!("the demo's parcel is broken: {error}")))?;
    let first = keyer.key(Input::json(parcel.to_string().as_bytes()))?;
    let mut out = std::io::stdout().lock();
    let mut print = |text: String| writeln!(out, "{text}").map_err(|error| Failure::io("standard output", &error));
    print(format!("one parcel, sent once       {}\n", first.fingerprint.text(Encoding::Base64)))?;
    print("sent again by a bad network:".to_owned())?;
    let mut recognised = 0;
    let again = redeliveries(&parcel);
    for delivery in &again {
        let keyed = key(&mut keyer, delivery)?;
        let same = keyed.matches(&first);
        recognised += usize::from(same);
        let how = match (keyed.fingerprint == first.fingerprint, same) {
            (true, _) => "same key",
            (false, true) => "same event, by its alias",
            (false, false) => "NOT RECOGNISED",
        };
        print(row(delivery, &keyed, how))?;
    }
    print("\ndifferent events at the same place:".to_owned())?;
    let mut kept_apart = 0;
    let others = other_events(&parcel);
    for delivery in &others {
        let keyed = key(&mut keyer, delivery)?;
        let same = keyed.matches(&first);
        kept_apart += usize::from(!same);
        print(row(delivery, &keyed, if same { "MERGED" } else { "another event" }))?;
    }
    print("\nthe geometry alone, in other forms:".to_owned())?;
    let forms = forms(&parcel)?;
    let geometry = key(&mut keyer, &forms[0])?;
    let mut equal = 0;
    for delivery in &forms {
        let keyed = key(&mut keyer, delivery)?;
        let same = keyed.fingerprint == geometry.fingerprint;
        equal += usize::from(same);
        print(row(delivery, &keyed, if same { "same key" } else { "ANOTHER KEY" }))?;
    }
    print(format!(
        "\n{recognised} of {} redeliveries recognised, {kept_apart} of {} different events kept apart, {equal} of {} forms agree",
        again.len(),
        others.len(),
        forms.len()
    ))?;
    print("next: geonce key FILE, geonce explain A B".to_owned())?;
    Ok(recognised == again.len() && kept_apart == others.len() && equal == forms.len())
}

fn key(keyer: &mut Keyer, delivery: &Delivery) -> Result<Keyed, Failure> {
    Ok(keyer.key(Input { form: delivery.form, bytes: &delivery.bytes, crs: None })?)
}

fn row(delivery: &Delivery, keyed: &Keyed, verdict: &str) -> String {
    format!("  {:<42}{}  {verdict}", delivery.what, keyed.fingerprint.text(Encoding::Base64))
}

/// Coordinates with eight decimals sit on the edge of a seven-decimal grid, where drift matters most.
const PARCEL: &str = r#"{
    "type": "Feature",
    "id": "parcel-4711",
    "geometry": {"type": "Polygon", "coordinates": [
        [[13.37612345, 52.5186202], [13.37734, 52.51851], [13.3776025, 52.51924715], [13.37651, 52.51939], [13.37612345, 52.5186202]],
        [[13.3766, 52.5188], [13.3767, 52.519], [13.3769, 52.5189], [13.3766, 52.5188]]
    ]},
    "properties": {"owner": "7", "area_m2": 6120.5, "status": "active"}
}"#;

fn redeliveries(parcel: &Value) -> Vec<Delivery> {
    let changed = |what, change: fn(&mut Value)| {
        let mut copy = parcel.clone();
        change(&mut copy);
        Delivery { what, form: Form::Json, bytes: copy.to_string().into_bytes() }
    };
    let text = |what, bytes: String| Delivery { what, form: Form::Json, bytes: bytes.into_bytes() };
    vec![
        changed("unchanged", |_| {}),
        text("pretty-printed", format!("{parcel:#}")),
        changed("members in another order", |feature| *feature = reversed_members(feature)),
        text(
            "numbers spelt otherwise",
            parcel.to_string().replace("6120.5", "61205e-1").replace("13.37734", "13.3773400"),
        ),
        changed("ring started at another vertex", |feature| rings(feature, |ring| rotate(ring, 2))),
        changed("rings reversed", |feature| rings(feature, |ring| ring.reverse())),
        changed("a vertex repeated", |feature| rings(feature, |ring| ring.insert(1, ring[1].clone()))),
        changed("one bit of drift in every coordinate", |feature| {
            ordinates(feature, |x| f64::from_bits(x.to_bits() + 1));
        }),
        changed("re-printed after a detour by radians", |feature| ordinates(feature, |x| x.to_radians().to_degrees())),
        changed("sent as a MultiPolygon of one", |feature| {
            let geometry = &mut feature["geometry"];
            geometry["type"] = json!("MultiPolygon");
            geometry["coordinates"] = json!([geometry["coordinates"]]);
        }),
        changed("stamped by the broker", |feature| {
            feature["delivery_attempt"] = json!(3);
            feature["properties"]["received_at"] = json!("2026-11-15T08:00:00Z");
        }),
        changed("all of it at once", |feature| {
            rings(feature, |ring| {
                rotate(ring, 1);
                ring.reverse();
            });
            ordinates(feature, |x| f64::from_bits(x.to_bits() - 1));
            feature["request_id"] = json!("8a1f");
            *feature = reversed_members(feature);
        }),
    ]
}

fn other_events(parcel: &Value) -> Vec<Delivery> {
    let changed = |what, change: fn(&mut Value)| {
        let mut copy = parcel.clone();
        change(&mut copy);
        Delivery { what, form: Form::Json, bytes: copy.to_string().into_bytes() }
    };
    vec![
        changed("another parcel", |feature| feature["id"] = json!("parcel-4712")),
        changed("its status changed", |feature| feature["properties"]["status"] = json!("closed")),
        changed("a corner moved by 3 cm", |feature| {
            feature["geometry"]["coordinates"][0][1][0] = json!(13.377_340_5);
        }),
        changed("its hole filled", |feature| {
            if let Some(rings) = feature["geometry"]["coordinates"].as_array_mut() {
                rings.pop();
            }
        }),
    ]
}

fn forms(parcel: &Value) -> Result<Vec<Delivery>, Failure> {
    let geometry = parcel["geometry"].to_string().into_bytes();
    let polygon = wkt_of(&parcel["geometry"]["coordinates"]);
    let delivered = wkt::read(polygon.as_bytes(), &geonce_key::Limits::default())?;
    let binary = wkb::write(&delivered.shape, Some(4326));
    let hex: String = binary
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|half| char::from_digit(u32::from(half), 16))
        .collect();
    let delivery = |what, form, bytes| Delivery { what, form, bytes };
    Ok(vec![
        delivery("GeoJSON", Form::Json, geometry),
        delivery("WKT", Form::Wkt, polygon.into_bytes()),
        delivery("EWKB", Form::Wkb, binary),
        delivery("EWKB in hexadecimal", Form::WkbHex, hex.into_bytes()),
    ])
}

fn wkt_of(rings: &Value) -> String {
    let ring = |ring: &Value| {
        let positions = ring.as_array().into_iter().flatten().map(|p| format!("{} {}", p[0], p[1]));
        format!("({})", positions.collect::<Vec<_>>().join(", "))
    };
    format!("POLYGON ({})", rings.as_array().into_iter().flatten().map(ring).collect::<Vec<_>>().join(", "))
}
