//! Esri JSON: features and geometries as the `ArcGIS` REST API has them ("Geometry objects", "Feature object").
//!
//! Rings come without nesting and are nested as `g1` point 15 says. A third number is a height only where `hasZ` says
//! so; measures, curves and coordinate systems in words are refused, because a guess would change the key.

use super::feature::{Feature, Properties, geojson};
use super::json::{Object, Value};
use super::{Details, Fault, Payload, Place, refuse, unusable};
use geonce_key::assemble::assemble;
use geonce_key::shape::Position;
use geonce_key::{Kind, Limits, Shape};

/// Grid steps of one unit while rings are nested, as long as that leaves room.
const STEPS: f64 = 1e7;
/// Ordinates up to this are counted in such steps; larger ones, in no earthly unit, in whole units.
const ORDINATE_MAX: f64 = 4e8;
/// What stands in a curve's place of paths and rings.
const CURVES: [&str; 3] = ["curvePaths", "curveRings", "c"];

/// What a set of features says for all of them.
#[derive(Clone, Copy, Default)]
pub(super) struct Common {
    crs: Option<u32>,
    has_z: Option<bool>,
    has_m: Option<bool>,
}

impl Common {
    pub(super) fn of(set: &Object<'_>, at: &str) -> Result<Common, Fault> {
        let flag = |name| set.get(name).and_then(Value::as_bool);
        Ok(Common { crs: spatial_reference(set, at)?, has_z: flag("hasZ"), has_m: flag("hasM") })
    }

    /// The same, in this coordinate system where none is said.
    pub(super) fn or_in(self, crs: u32) -> Common {
        Common { crs: self.crs.or(Some(crs)), ..self }
    }
}

/// Whether an object looks like a feature.
pub(super) fn is_feature(object: &Object<'_>) -> bool {
    object.get("attributes").is_some() || object.get("geometry").is_some()
}

/// A feature: its attributes become properties.
pub(super) fn feature<'a>(
    object: &Object<'_>,
    common: Common,
    limits: &Limits,
    at: &str,
) -> Result<(Feature<'a>, Place, Details), Fault> {
    let properties = match object.some("attributes") {
        None => Properties::new(),
        Some(attributes) => match attributes.object() {
            Some(attributes) => Properties::of(&attributes, &[]),
            None => return Err(unusable(format!("{at}/attributes"), "attributes are an object")),
        },
    };
    let pointer = format!("{at}/geometry");
    let (geometry, crs) = match object.some("geometry") {
        None => (None, None),
        Some(value) => geometry(value, common, limits, &pointer)?,
    };
    let place = Place { event: at.to_owned(), geometry: Some(pointer) };
    Ok((Feature::new(geometry, properties), place, Details { crs, ..Details::default() }))
}

/// A feature that needs nothing else.
pub(super) fn payload(object: &Object<'_>, common: Common, limits: &Limits, at: &str) -> Result<Payload, Fault> {
    let (feature, place, details) = feature(object, common, limits, at)?;
    Ok(feature.payload(place, details))
}

/// A geometry as `GeoJSON`, `None` if it is empty, and its coordinate system.
fn geometry(
    value: Value<'_>,
    common: Common,
    limits: &Limits,
    at: &str,
) -> Result<(Option<String>, Option<u32>), Fault> {
    let Some(object) = value.object() else { return Err(unusable(at, "a geometry is an object")) };
    let crs = spatial_reference(&object, at)?.or(common.crs);
    if let Some(curve) = CURVES.into_iter().find(|name| object.get(name).is_some()) {
        return Err(refuse("preset_value", format!("{at}/{curve}"), "curves are not taken")
            .with_hint("have the sender densify them"));
    }
    let flag = |name| object.get(name).and_then(Value::as_bool);
    let dimensions = Dimensions {
        has_z: flag("hasZ").or(common.has_z).unwrap_or(false),
        has_m: flag("hasM").or(common.has_m).unwrap_or(false),
    };
    let shape = if object.get("x").is_some() {
        point(&object, at)?
    } else if let Some(points) = object.get("points") {
        let pointer = format!("{at}/points");
        let points: Vec<Vec<f64>> = read(points, &pointer)?;
        multi_point(&points, dimensions, &pointer)?
    } else if let Some(paths) = object.get("paths") {
        let pointer = format!("{at}/paths");
        lines(&dimensions.paths(&read::<Paths>(paths, &pointer)?, &pointer)?, dimensions)
    } else if let Some(rings) = object.get("rings") {
        let pointer = format!("{at}/rings");
        polygons(&dimensions.paths(&read::<Paths>(rings, &pointer)?, &pointer)?, dimensions, limits, &pointer)?
    } else if object.get("xmin").is_some() {
        envelope(&object, at)?
    } else {
        return Err(unusable(at, "a geometry has x and y, points, paths, rings, or xmin, ymin, xmax and ymax"));
    };
    Ok((shape.map(|shape| geojson(&shape)), crs))
}

type Paths = Vec<Vec<Vec<f64>>>;

fn read<'a, T: serde::Deserialize<'a>>(value: Value<'a>, pointer: &str) -> Result<T, Fault> {
    value.read().ok_or_else(|| unusable(pointer, "these are not lists of positions"))
}

/// What the numbers of a position are.
#[derive(Clone, Copy)]
struct Dimensions {
    has_z: bool,
    has_m: bool,
}

impl Dimensions {
    fn position(self, numbers: &[f64], pointer: impl Fn() -> String) -> Result<Position<f64>, Fault> {
        match *numbers {
            [x, y] if !self.has_z => Ok([x, y, 0.0]),
            [x, y, z] if self.has_z => Ok([x, y, z]),
            [_, _, _] | [_, _, _, _] => Err(refuse(
                "geojson_measure",
                pointer(),
                "measures are not taken, and without hasZ a third number is one",
            )),
            _ => Err(refuse("geojson_position", pointer(), "this position has not as many numbers as hasZ says")),
        }
    }

    fn paths(self, paths: &Paths, pointer: &str) -> Result<Vec<Vec<Position<f64>>>, Fault> {
        if self.has_m {
            return Err(refuse("geojson_measure", pointer, "measures are not taken"));
        }
        let path = |(i, path): (usize, &Vec<Vec<f64>>)| {
            let position = |(k, numbers): (usize, &Vec<f64>)| self.position(numbers, || format!("{pointer}/{i}/{k}"));
            path.iter().enumerate().map(position).collect()
        };
        paths.iter().enumerate().map(path).collect()
    }
}

/// A point. One whose x is null, or the text NaN, is how Esri writes an empty one.
fn point(object: &Object<'_>, at: &str) -> Result<Option<Shape<f64>>, Fault> {
    let number = |name: &str| match object.some(name) {
        None => Ok(None),
        Some(value) if value.as_str().is_some_and(|text| text == "NaN") => Ok(None),
        Some(value) => match value.as_f64() {
            Some(number) => Ok(Some(number)),
            None => Err(unusable(format!("{at}/{name}"), "this is no number")),
        },
    };
    if number("m")?.is_some() {
        return Err(refuse("geojson_measure", format!("{at}/m"), "measures are not taken"));
    }
    let Some(x) = number("x")? else { return Ok(None) };
    let Some(y) = number("y")? else { return Err(unusable(format!("{at}/y"), "a point with x has y")) };
    let z = number("z")?;
    let mut shape = Shape { has_z: z.is_some(), ..Shape::new() };
    shape.positions.push([x, y, z.unwrap_or(0.0)]);
    shape.end_path();
    shape.end_part();
    shape.end_member(Kind::Point);
    Ok(Some(shape))
}

fn multi_point(points: &[Vec<f64>], dimensions: Dimensions, at: &str) -> Result<Option<Shape<f64>>, Fault> {
    if dimensions.has_m {
        return Err(refuse("geojson_measure", at, "measures are not taken"));
    }
    let mut shape = Shape { has_z: dimensions.has_z, ..Shape::new() };
    for (i, numbers) in points.iter().enumerate() {
        shape.positions.push(dimensions.position(numbers, || format!("{at}/{i}"))?);
        shape.end_path();
        shape.end_part();
    }
    shape.end_member(Kind::MultiPoint);
    Ok(Some(shape).filter(|_| !points.is_empty()))
}

fn lines(paths: &[Vec<Position<f64>>], dimensions: Dimensions) -> Option<Shape<f64>> {
    let mut shape = Shape { has_z: dimensions.has_z, ..Shape::new() };
    for path in paths {
        shape.positions.extend_from_slice(path);
        shape.end_path();
        shape.end_part();
    }
    shape.end_member(if paths.len() == 1 { Kind::LineString } else { Kind::MultiLineString });
    Some(shape).filter(|_| !paths.is_empty())
}

/// Polygons of loose rings. They are nested on a grid of integers whose third number says which ring a position is of.
fn polygons(
    rings: &[Vec<Position<f64>>],
    dimensions: Dimensions,
    limits: &Limits,
    at: &str,
) -> Result<Option<Shape<f64>>, Fault> {
    if rings.is_empty() {
        return Ok(None);
    }
    let largest = rings.iter().flatten().flat_map(|p| [p[0].abs(), p[1].abs()]).fold(0.0, f64::max);
    let steps = if largest <= ORDINATE_MAX { STEPS } else { 1.0 };
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates, and what is too large is refused below")]
    let grid = |ring: &Vec<Position<f64>>, i: usize| -> Vec<Position<i64>> {
        let mark = i64::try_from(i).unwrap_or(i64::MAX);
        let on_grid = |p: &Position<f64>| [(p[0] * steps).round() as i64, (p[1] * steps).round() as i64, mark];
        let mut ring: Vec<_> = ring.iter().map(on_grid).collect();
        // An open ring is the policy's business: here it is only to be nested.
        if let (Some(first), Some(last)) = (ring.first().copied(), ring.last())
            && first != *last
        {
            ring.push(first);
        }
        ring
    };
    let grids: Vec<Vec<Position<i64>>> = rings.iter().enumerate().map(|(i, ring)| grid(ring, i)).collect();
    let slices: Vec<&[Position<i64>]> = grids.iter().map(Vec::as_slice).collect();
    let nested = assemble(&slices, true, limits).map_err(|error| {
        let fault = Fault::from(&error);
        Fault { pointer: format!("{at}{}", fault.pointer), ..fault }
    })?;
    let mut shape = Shape { has_z: dimensions.has_z, ..Shape::new() };
    for member in nested.members() {
        for part in member.parts() {
            for path in part.paths() {
                let ring = path.first().and_then(|p| usize::try_from(p[2]).ok()).and_then(|i| rings.get(i));
                shape.positions.extend_from_slice(ring.map_or(&[], Vec::as_slice));
                shape.end_path();
            }
            shape.end_part();
        }
        shape.end_member(member.kind);
    }
    Ok(Some(shape))
}

fn envelope(object: &Object<'_>, at: &str) -> Result<Option<Shape<f64>>, Fault> {
    let number = |name: &str| {
        let value = object.get(name).and_then(Value::as_f64);
        value.ok_or_else(|| unusable(format!("{at}/{name}"), "an envelope has four numbers"))
    };
    let (west, south, east, north) = (number("xmin")?, number("ymin")?, number("xmax")?, number("ymax")?);
    let mut shape = Shape::new();
    for (x, y) in [(west, south), (east, south), (east, north), (west, north), (west, south)] {
        shape.positions.push([x, y, 0.0]);
    }
    shape.end_path();
    shape.end_part();
    shape.end_member(Kind::Polygon);
    Ok(Some(shape))
}

/// The EPSG code of an object's `spatialReference`: `latestWkid` where there is one, because `wkid` may be Esri's own.
fn spatial_reference(object: &Object<'_>, at: &str) -> Result<Option<u32>, Fault> {
    let pointer = format!("{at}/spatialReference");
    let Some(reference) = object.some("spatialReference") else { return Ok(None) };
    let Some(reference) = reference.object() else {
        return Err(refuse("crs_ambiguous", pointer, "a spatial reference is an object"));
    };
    let Some((name, wkid)) = ["latestWkid", "wkid"].into_iter().find_map(|name| Some((name, reference.some(name)?)))
    else {
        if let Some(words) = ["wkt", "wkt2"].into_iter().find(|words| reference.some(words).is_some()) {
            return Err(refuse("crs_ambiguous", format!("{pointer}/{words}"), "the coordinate system has no number")
                .with_hint("have the sender give a wkid"));
        }
        return Ok(None);
    };
    match wkid.as_i64().and_then(|wkid| u32::try_from(wkid).ok()) {
        Some(code) => Ok(Some(epsg(code))),
        None => Err(refuse("crs_ambiguous", format!("{pointer}/{name}"), "a wkid is a positive number")),
    }
}

/// The EPSG code for a wkid: Web Mercator has numbers of Esri's own, which older servers send alone.
pub(super) fn epsg(wkid: u32) -> u32 {
    if matches!(wkid, 102_100 | 102_113 | 900_913) { 3857 } else { wkid }
}
