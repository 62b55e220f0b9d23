//! What is sent: JSON as it was delivered, and a GeoJSON Feature for geometries that came as WKT or WKB.

use crate::event::{Cause, Class};
use crate::sink::Outgoing;
use bytes::Bytes;
use geonce_key::shape::{MemberRef, PartRef, Position};
use geonce_key::{Form, Kind, Shape, crs};
use serde_json::{Value, json};

const WGS84: u32 = 4326;

/// The body for an event.
pub(super) fn body(event: &Outgoing, approximate_crs: bool) -> Result<Bytes, Cause> {
    if event.form == Form::Json {
        return Ok(event.payload.clone());
    }
    let geometry = match &event.feature.geometry {
        None => Value::Null,
        Some(shape) => geometry(&in_degrees(shape, event.feature.crs, approximate_crs)?),
    };
    let feature = json!({ "type": "Feature", "geometry": geometry, "properties": {} });
    serde_json::to_vec(&feature)
        .map(Bytes::from)
        .map_err(|error| Cause::new(Class::Internal, "http_body", error.to_string()))
}

/// The shape in WGS 84, the one system of GeoJSON (RFC 7946 section 4).
fn in_degrees(shape: &Shape<f64>, code: u32, approximate_crs: bool) -> Result<Shape<f64>, Cause> {
    let refused = |code: &str, message: String| Cause::new(Class::Crs, code, message);
    let mut shape = shape.clone();
    if code == WGS84 {
        return Ok(shape);
    }
    let system = crs::lookup(code).ok_or_else(|| refused("crs_unknown", format!("EPSG:{code} is not known")))?;
    if system.is_approximate() && !approximate_crs {
        let message = format!("EPSG:{code} reaches WGS 84 only approximately, and the sink does not accept that");
        return Err(refused("crs_approximate", message));
    }
    for position in &mut shape.positions {
        let [x, y, z] = *position;
        let (lon, lat) = system
            .to_wgs84(x, y)
            .ok_or_else(|| refused("crs_domain", format!("a position is outside the domain of EPSG:{code}")))?;
        *position = [lon, lat, z];
    }
    Ok(shape)
}

fn geometry(shape: &Shape<f64>) -> Value {
    let members: Vec<Value> = shape
        .members()
        .map(|member| json!({ "type": member.kind.name(), "coordinates": coordinates(member, shape.has_z) }))
        .collect();
    match <[Value; 1]>::try_from(members) {
        Ok([only]) if !shape.collection => only,
        Ok(one) => json!({ "type": "GeometryCollection", "geometries": one }),
        Err(several) => json!({ "type": "GeometryCollection", "geometries": several }),
    }
}

fn coordinates(member: MemberRef<'_, f64>, has_z: bool) -> Value {
    let mut parts = member.parts().map(|one| part(member.kind.part(), one, has_z));
    if member.kind.is_multi() { parts.collect() } else { parts.next().unwrap_or_else(|| json!([])) }
}

fn part(kind: Kind, part: PartRef<'_, f64>, has_z: bool) -> Value {
    let mut paths = part.paths().map(|path| path.iter().map(|one| position(one, has_z)).collect::<Vec<Value>>());
    match kind {
        Kind::Polygon => paths.collect(),
        Kind::Point => paths.next().and_then(|path| path.into_iter().next()).unwrap_or_else(|| json!([])),
        _ => paths.next().unwrap_or_default().into(),
    }
}

fn position([x, y, z]: &Position<f64>, has_z: bool) -> Value {
    if has_z { json!([x, y, z]) } else { json!([x, y]) }
}
