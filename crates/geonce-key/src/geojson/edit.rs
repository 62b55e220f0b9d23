//! Changes to the text of a payload: another geometry, no declaration of a coordinate system. All the rest stays byte for
//! byte. What is changed need not be right; what is around it must be JSON.

use crate::json::{self, Tape, Value};
use crate::policy::Pointer;
use crate::{Code, Error, Limits, Result};
use std::ops::Range;

/// The payload with `geometry` in the place of its own: that of the Feature, which is at `envelope` if it is in one, or
/// the whole of it where it is a bare geometry.
pub fn replace_geometry(
    payload: &[u8],
    envelope: Option<&Pointer>,
    geometry: &[u8],
    limits: &Limits,
) -> Result<Vec<u8>> {
    edit(payload, envelope, limits, |object, edits| {
        if !object.get("type").is_some_and(|kind| kind.is_str("Feature")) {
            edits.push((object.span(), geometry));
            return Ok(());
        }
        let missing = || Error::new(Code::GeojsonMissing, "/geometry", "the Feature has no geometry member");
        edits.push((object.get("geometry").ok_or_else(missing)?.span(), geometry));
        Ok(())
    })
}

/// The payload without what Feature and geometry say of their coordinate system.
pub fn without_crs(payload: &[u8], envelope: Option<&Pointer>, limits: &Limits) -> Result<Vec<u8>> {
    edit(payload, envelope, limits, |object, edits| {
        let objects = [Some(object), object.get("geometry")];
        edits.extend(objects.into_iter().flatten().filter_map(crs_member).map(|span| (span, &[][..])));
        Ok(())
    })
}

fn edit<'g>(
    payload: &[u8],
    envelope: Option<&Pointer>,
    limits: &Limits,
    decide: impl FnOnce(Value<'_>, &mut Vec<(Range<usize>, &'g [u8])>) -> Result<()>,
) -> Result<Vec<u8>> {
    let mut tape = Tape::default();
    let document = json::parse(payload, limits, &mut tape)?;
    let object = match envelope {
        None => document.root(),
        Some(pointer) => document
            .root()
            .at_tokens(pointer.tokens())
            .ok_or_else(|| Error::new(Code::GeojsonMissing, pointer.as_str(), "the envelope holds no feature here"))?,
    };
    let mut edits = Vec::new();
    decide(object, &mut edits)?;
    edits.sort_by_key(|(span, _)| span.start);
    let (mut out, mut from) = (Vec::with_capacity(payload.len()), 0);
    for (span, text) in edits {
        out.extend_from_slice(&payload[from..span.start]);
        out.extend_from_slice(text);
        from = span.end;
    }
    out.extend_from_slice(&payload[from..]);
    Ok(out)
}

/// Where an object's `crs` member is, with the comma that goes with it.
fn crs_member(object: Value<'_>) -> Option<Range<usize>> {
    let members: Vec<(Value<'_>, Value<'_>)> = object.members().collect();
    let place = members.iter().position(|(name, _)| name.is_str("crs"))?;
    let (name, value) = members[place];
    Some(match (members.get(place + 1), place.checked_sub(1)) {
        (Some((next, _)), _) => name.span().start..next.span().start,
        (None, Some(before)) => members[before].1.span().end..value.span().end,
        (None, None) => name.span().start..value.span().end,
    })
}

#[cfg(test)]
mod tests {
    use super::{replace_geometry, without_crs};
    use crate::{Limits, Pointer};

    fn replaced(payload: &str, envelope: Option<&str>) -> String {
        let envelope = envelope.map(|pointer| Pointer::parse(pointer).unwrap());
        let geometry = br#"{"type":"Point","coordinates":[1,2]}"#;
        let made = replace_geometry(payload.as_bytes(), envelope.as_ref(), geometry, &Limits::default());
        String::from_utf8(made.unwrap()).unwrap()
    }

    #[test]
    fn everything_but_the_geometry_stays_byte_for_byte() {
        let new = r#"{"type":"Point","coordinates":[1,2]}"#;
        for (before, after) in [
            (
                r#"{ "type" : "Feature", "geometry": {"type":"Point","coordinates":[9, 9.0] } , "n":1.50}"#,
                r#"{ "type" : "Feature", "geometry": G , "n":1.50}"#,
            ),
            (
                r#"{"geometry":null,"type":"Feature","\u0061":"\u00e9"}"#,
                r#"{"geometry":G,"type":"Feature","\u0061":"\u00e9"}"#,
            ),
            (r#" {"type":"Polygon","coordinates":[]} "#, " G "),
        ] {
            assert_eq!(replaced(before, None), after.replace('G', new));
        }
        let enveloped = r#"{"data":{"type":"Feature","geometry":"x"},"geometry":7}"#;
        assert_eq!(replaced(enveloped, Some("/data")), enveloped.replace("\"x\"", new));
    }

    #[test]
    fn a_payload_without_a_place_for_it_is_refused() {
        let limits = Limits::default();
        assert!(replace_geometry(b"{\"type\":\"Feature\"}", None, b"{}", &limits).is_err());
        assert!(replace_geometry(b"{", None, b"{}", &limits).is_err());
        let elsewhere = Pointer::parse("/data").unwrap();
        assert!(replace_geometry(b"{}", Some(&elsewhere), b"{}", &limits).is_err());
    }

    #[test]
    fn declarations_go_with_their_comma() {
        for (before, after) in [
            (r#"{"crs":null,"type":"Feature"}"#, r#"{"type":"Feature"}"#),
            (r#"{"type":"Feature", "crs" : {"a":[1]} }"#, r#"{"type":"Feature" }"#),
            (r#"{"crs":1}"#, "{}"),
            (r#"{"a":1,"crs":2,"b":3}"#, r#"{"a":1,"b":3}"#),
            (r#"{"crs":1,"geometry":{"x":1,"crs":2}}"#, r#"{"geometry":{"x":1}}"#),
            (r#"{"geometry":{"crs":2},"crs":1}"#, r#"{"geometry":{}}"#),
            (r#"{"properties":{"crs":2}}"#, r#"{"properties":{"crs":2}}"#),
        ] {
            let made = without_crs(before.as_bytes(), None, &Limits::default()).unwrap();
            assert_eq!(String::from_utf8(made).unwrap(), after);
        }
    }
}
