//! Runs the frozen examples in `vectors/` (their format is described in `vectors/README.md`).
#![expect(clippy::unwrap_used, clippy::panic, reason = "a vector that cannot be read fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use geonce_key::policy::{AssumedCrs, Detail, Dimensions, Field, Identity, Lines, Parts, Secret, Unicode};
use geonce_key::{Delivery, Encoding, Error, Fingerprint, Form, Input, Keyer, Limits, Pointer, Policy, assemble, crs};
use serde_json::{Map, Value, json};

const VECTORS_MIN: usize = 220;

/// What a vector gave, as far as others refer to it.
#[derive(Default)]
struct Answer {
    key: String,
    names: BTreeSet<String>,
}

#[test]
fn frozen_vectors() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors");
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let mut vectors = Vec::new();
    for file in &files {
        let list: Vec<Value> = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        vectors.extend(list);
    }

    let mut answers = BTreeMap::new();
    let mut differ = Vec::new();
    for vector in &vectors {
        let name = text(&vector["name"]).to_owned();
        let (found, answer) = run(vector);
        if found != vector["expect"] {
            differ.push(format!("{name}\n  expected {}\n  found    {found}", vector["expect"]));
        }
        assert!(answers.insert(name.clone(), answer).is_none(), "{name}: the name occurs twice");
    }
    for vector in &vectors {
        differ.extend(broken_relations(vector, &answers));
    }
    assert!(differ.is_empty(), "{} of {} differ:\n{}", differ.len(), vectors.len(), differ.join("\n"));
    assert!(vectors.len() >= VECTORS_MIN, "only {} vectors", vectors.len());
    println!("{} vectors, 0 differ", vectors.len());
}

/// Computes a vector's `expect`.
fn run(vector: &Value) -> (Value, Answer) {
    let result = if vector.get("rings").is_some() {
        run_assembly(vector).map(|found| (found, Answer::default()))
    } else if vector.get("delivery").is_some() {
        run_delivery(vector)
    } else {
        run_payload(vector)
    };
    result.unwrap_or_else(|error| {
        (json!({"error": {"code": error.code().as_str(), "pointer": error.pointer()}}), Answer::default())
    })
}

fn run_payload(vector: &Value) -> Result<(Value, Answer), Error> {
    let policy = policy(&vector["policy"])?;
    let bytes = match vector.get("payload_hex") {
        Some(hex) => unhex(text(hex)),
        None => text(&vector["payload"]).as_bytes().to_vec(),
    };
    let form = match text(&vector["form"]) {
        "json" => Form::Json,
        "wkt" => Form::Wkt,
        "wkb-hex" => Form::WkbHex,
        other => panic!("unknown form {other:?}"),
    };
    let input = Input { form, bytes: &bytes, crs: None };
    let mut keyer = Keyer::new(&policy)?;
    let keyed = keyer.key(input)?;
    let canonical = String::from_utf8(keyer.canonical_bytes().to_vec()).unwrap();
    let aliases: BTreeSet<String> = keyed.aliases.iter().map(|alias| alias.text(Encoding::Base64)).collect();
    let key = keyed.fingerprint.text(Encoding::Base64);

    let mut expect = json!({
        "canonical": canonical,
        "key": keyed.fingerprint.text(encoding(vector)),
        "fingerprint": hex(&keyed.fingerprint),
        "aliases": aliases,
    });
    let codes: BTreeSet<&str> = keyed.warnings.iter().map(|warning| warning.code).collect();
    if !codes.is_empty() {
        expect["warnings"] = json!(codes);
    }
    if vector.get("content").is_some() {
        let content = Keyer::new(&policy.content())?.key(Input { form, bytes: &bytes, crs: None })?;
        expect["content"] = json!(hex(&content.fingerprint));
    }
    let mut names = aliases;
    names.insert(key.clone());
    Ok((expect, Answer { key, names }))
}

fn run_delivery(vector: &Value) -> Result<(Value, Answer), Error> {
    let policy = policy(&vector["policy"])?;
    let delivery = Delivery {
        by: text(&vector["delivery"]["by"]),
        id: text(&vector["delivery"]["id"]),
        index: vector["delivery"]["index"].as_u64().unwrap(),
    };
    let canonical = String::from_utf8(delivery.canonical_bytes(&policy.scope)?).unwrap();
    let fingerprint: Fingerprint = delivery.fingerprint(&policy.scope, policy.key_secret.as_ref())?;
    let key = fingerprint.text(Encoding::Base64);
    let expect = json!({
        "canonical": canonical,
        "key": fingerprint.text(encoding(vector)),
        "fingerprint": hex(&fingerprint),
        "aliases": [],
    });
    Ok((expect, Answer { names: BTreeSet::from([key.clone()]), key }))
}

fn run_assembly(vector: &Value) -> Result<Value, Error> {
    let mut has_z = false;
    let mut rings: Vec<Vec<[i64; 3]>> = Vec::new();
    for ring in list(&vector["rings"]) {
        let positions = list(ring).iter().map(|position| {
            has_z |= list(position).len() == 3;
            [0, 1, 2].map(|axis| position.get(axis).map_or(0, |n| n.as_i64().unwrap()))
        });
        rings.push(positions.collect());
    }
    let borrowed: Vec<&[[i64; 3]]> = rings.iter().map(Vec::as_slice).collect();
    let shape = assemble::assemble(&borrowed, has_z, &Limits::default())?;
    let dimensions = if has_z { 3 } else { 2 };
    let (mut path, mut position) = (0, 0);
    let mut polygons = Vec::new();
    for &parts_end in &shape.parts {
        let mut polygon = Vec::new();
        while path < parts_end as usize {
            let end = shape.paths[path] as usize;
            let ring: Vec<&[i64]> = shape.positions[position..end].iter().map(|p| &p[..dimensions]).collect();
            polygon.push(json!(ring));
            position = end;
            path += 1;
        }
        polygons.push(Value::Array(polygon));
    }
    Ok(json!({ "polygons": polygons }))
}

/// What is wrong with `same_as`, `matches` and `differs_from` of one vector.
fn broken_relations(vector: &Value, answers: &BTreeMap<String, Answer>) -> Vec<String> {
    let name = text(&vector["name"]);
    let mine = &answers[name];
    let mut broken = Vec::new();
    for relation in ["same_as", "matches", "differs_from"] {
        let Some(other) = vector.get(relation) else { continue };
        let theirs = answers.get(text(other)).unwrap_or_else(|| panic!("{name}: no vector {other}"));
        let shared = !mine.names.is_disjoint(&theirs.names);
        let holds = !mine.key.is_empty()
            && !theirs.key.is_empty()
            && match relation {
                "same_as" => mine.key == theirs.key,
                "matches" => shared,
                _ => !shared,
            };
        if !holds {
            broken.push(format!("{name}: {relation} {other} does not hold"));
        }
    }
    broken
}

/// The settings of a vector, in the names of `geonce.toml`.
fn policy(value: &Value) -> Result<Policy, Error> {
    let mut policy = Policy::default();
    let mut ignore = Vec::new();
    let empty = Map::new();
    for (name, setting) in value.as_object().unwrap_or(&empty) {
        match name.as_str() {
            "identity" => policy.identity = Identity::Fields(fields(setting)?),
            "ignore" => ignore = list(setting).iter().map(pointer).collect::<Result<_, _>>()?,
            "version" => policy.version = Some(pointer(setting)?),
            "scope" => text(setting).clone_into(&mut policy.scope),
            "precision" => policy.precision = small(setting),
            "precision_z" => policy.precision_z = small(setting),
            "dimensions" => {
                policy.dimensions = match setting.as_u64() {
                    Some(2) => Dimensions::Two,
                    Some(3) => Dimensions::Three,
                    _ => Dimensions::Delivered,
                }
            }
            "lines" => policy.lines = if setting == "undirected" { Lines::Undirected } else { Lines::Directed },
            "parts" => policy.parts = if setting == "ordered" { Parts::Ordered } else { Parts::Sorted },
            "shape" => policy.shape = if setting == "bbox" { Detail::Bbox } else { Detail::Simplified },
            "crs" if setting == "required" => policy.crs = AssumedCrs::Required,
            "crs" => policy.crs = AssumedCrs::Code(crs::parse(text(setting))?.code()),
            "approximate_crs" => policy.approximate_crs = setting == true,
            "close_rings" => policy.close_rings = setting == true,
            "key_secret" => policy.key_secret = Some(Secret::new(text(setting))),
            "feature" => policy.feature = Some(pointer(setting)?),
            "unicode" => policy.unicode = if setting == "nfc" { Unicode::Nfc } else { Unicode::Exact },
            "accept" => {
                policy.accept.types = Some(list(&setting["types"]).iter().map(|t| text(t).to_owned()).collect());
            }
            "previous" => policy.previous = Some(Box::new(self::policy(setting)?)),
            other => panic!("unknown setting {other:?}"),
        }
    }
    if !ignore.is_empty() {
        policy.identity = Identity::Whole { ignore };
    }
    Ok(policy)
}

fn fields(value: &Value) -> Result<Vec<Field>, Error> {
    let field = |entry: &Value| {
        let at = if entry.is_string() { entry } else { &entry["at"] };
        let mut field = Field::required(pointer(at)?);
        field.optional = entry.get("optional").is_some_and(|optional| optional == true);
        field.decimals = entry.get("decimals").map(small);
        Ok(field)
    };
    list(value).iter().map(field).collect()
}

fn encoding(vector: &Value) -> Encoding {
    match vector.get("encoding").map(text) {
        None => Encoding::Base64,
        Some("hex") => Encoding::Hex,
        Some("full") => Encoding::Full,
        Some(other) => panic!("unknown encoding {other:?}"),
    }
}

fn pointer(value: &Value) -> Result<Pointer, Error> {
    Pointer::parse(text(value))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is not text"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is not a list"))
}

fn small(value: &Value) -> u8 {
    u8::try_from(value.as_u64().unwrap()).unwrap()
}

fn hex(fingerprint: &Fingerprint) -> String {
    fingerprint.text(Encoding::Full).rsplit('_').next().unwrap().to_owned()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}
