//! Every code is produced, every verdict is that of the keys, and the words are the ones promised.

mod codes;
mod golden;
mod random;

use super::{Explanation, Side, explain};
use crate::policy::{Field, Identity, Pointer, Policy};
use crate::{Form, Input};

fn side<'a>(text: &'a str, policy: &'a Policy) -> Side<'a> {
    let form = match text.as_bytes().first() {
        Some(b'{' | b' ' | b'\n') => Form::Json,
        Some(b'0') => Form::WkbHex,
        _ => Form::Wkt,
    };
    Side { input: Input { form, bytes: text.as_bytes(), crs: None }, policy, delivery: None }
}

fn explained(a: &str, b: &str, policy: &Policy) -> Explanation {
    explain(&side(a, policy), &side(b, policy)).unwrap_or_else(|(which, error)| panic!("{which:?}: {error}"))
}

fn pointer(text: &str) -> Pointer {
    Pointer::parse(text).unwrap()
}

fn identified(pointers: &[&str]) -> Policy {
    let fields = pointers.iter().map(|at| Field::required(pointer(at))).collect();
    Policy { identity: Identity::Fields(fields), ..Policy::default() }
}

/// A Feature around a geometry.
fn feature(geometry: &str, properties: &str) -> String {
    format!(r#"{{"type":"Feature","geometry":{geometry},"properties":{properties}}}"#)
}

fn point(coordinates: &str) -> String {
    format!(r#"{{"type":"Point","coordinates":{coordinates}}}"#)
}

fn shape(kind: &str, coordinates: &str) -> String {
    format!(r#"{{"type":"{kind}","coordinates":{coordinates}}}"#)
}
