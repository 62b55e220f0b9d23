//! A repaired payload, made from a dead one: pure, so that the same payload, policy and choices give the same bytes.

use super::choice::{Choice, Choices};
use super::clip::clip;
use super::measure::Plane;
use crate::event::{Cause, Class};
use bytes::Bytes;
use geonce_key::policy::{Accept, AssumedCrs, Dimensions, Identity};
use geonce_key::repair::{Options, repair};
use geonce_key::shape::{Kind, Position, Shape};
use geonce_key::{Form, Input, Policy, Reader, crs, geojson, wkb, wkt};

/// The EPSG code of longitudes and latitudes.
const WGS84: u32 = 4326;
/// Things done that are listed; further ones are only counted.
const DONE_MAX: usize = 64;

/// One thing that a repair did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// What, such as `ring_rebuilt`.
    pub code: &'static str,
    /// To what, as a JSON pointer into the geometry; empty for all of it.
    pub pointer: String,
}

/// How a geometry changed. Measured from where it was meant to be: after axes were swapped and positions reprojected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measures {
    /// Positions that came in,
    pub positions_before: usize,
    /// and that are left.
    pub positions_after: usize,
    /// Area in square metres on a local plane, as rings say it: where they cross, that is no area of a region.
    pub area_before_m2: f64,
    /// The same of the result.
    pub area_after_m2: f64,
    /// The largest distance between a vertex that only one of both has and the other's linework, in metres. `None` where
    /// finding it would take too long.
    pub shift_max_m: Option<f64>,
}

/// A repaired payload.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Made {
    /// What came in, as `GeoJSON`.
    pub(super) before: String,
    pub(super) payload: Bytes,
    /// The coordinate system that is to be said beside it.
    pub(super) crs: Option<u32>,
    pub(super) done: Vec<Done>,
    pub(super) done_total: u64,
    pub(super) measures: Measures,
    /// The geometry in degrees, as it was meant and as it is.
    pub(super) shapes: [Shape<f64>; 2],
}

/// A payload as it is recorded.
#[derive(Clone, Copy)]
pub(super) struct Recorded<'a> {
    pub(super) form: Form,
    pub(super) crs: Option<u32>,
    pub(super) payload: &'a [u8],
}

/// What was read of a payload.
struct Read {
    shape: Shape<f64>,
    code: u32,
    /// The payload as text, where it is JSON: what is around its geometry stays.
    text: Option<Vec<u8>>,
}

fn cannot(code: &str, message: impl Into<String>) -> Cause {
    Cause::new(Class::Geometry, code, message)
}

/// Repairs a payload, or says why it cannot be.
pub(super) fn make(recorded: Recorded<'_>, policy: &Policy, choices: &Choices) -> Result<Made, Cause> {
    let refused = |error: geonce_key::Error| Cause::from(&error);
    let Read { mut shape, code, text } = read(recorded, policy, choices)?;
    let mut done = List::default();
    if choices.has(Choice::SwapAxes) {
        shape.positions.iter_mut().for_each(|[x, y, _]| std::mem::swap(x, y));
        done.add("axes_swapped", "");
    }
    if choices.find(reprojects).is_some() {
        done.add("reprojected", "");
    }
    if choices.has(Choice::DropZ) {
        shape.has_z = false;
        shape.positions.iter_mut().for_each(|position| position[2] = 0.0);
        done.add("z_dropped", "");
    }
    // In degrees from here on where something is to be done to it there.
    let in_degrees = |choice: Choice| !matches!(choice, Choice::SwapAxes | Choice::DropZ | Choice::CloseRings);
    let moves = choices.iter().any(in_degrees);
    let meant = degrees(&shape, code)?;
    if moves {
        shape = meant.clone();
    }
    let code = if moves { WGS84 } else { code };
    if choices.has(Choice::CloseRings) {
        shape = close(&shape, &mut done);
    }
    if let Some(bounds) = choices.find(clips) {
        let (left, outside) = clip(&shape, bounds);
        shape = left.ok_or_else(|| cannot("geojson_empty", "nothing of the geometry is inside the bounds"))?;
        if outside > 0 {
            done.add("clipped", "");
        }
    }
    if choices.has(Choice::DropSpikes) || choices.has(Choice::Grid) {
        let mut grid = shape.to_grid(policy.precision, policy.precision_z).map_err(refused)?;
        if choices.has(Choice::DropSpikes) {
            grid = without_spikes(&grid, &mut done)?;
        }
        if choices.has(Choice::Grid) {
            let options = Options { swap_axes: false, close_rings: choices.has(Choice::CloseRings) };
            let repaired = repair(&grid, &options, &policy.limits).map_err(refused)?;
            repaired.actions.iter().for_each(|action| done.add(action.code.as_str(), &action.pointer));
            done.total += repaired.actions_total.saturating_sub(repaired.actions.len() as u64);
            grid = repaired.shape;
        }
        shape = grid.to_degrees(policy.precision, policy.precision_z);
    }
    let after = degrees(&shape, code)?;
    let plane = Plane::around(&meant);
    let measures = Measures {
        positions_before: meant.positions.len(),
        positions_after: after.positions.len(),
        area_before_m2: plane.area_m2(&meant),
        area_after_m2: plane.area_m2(&after),
        shift_max_m: plane.shift_max_m(&meant, &after, policy.precision),
    };
    let (before, payload) = write(recorded, policy, text, &shape, moves)?;
    // Where nothing is said, the source's own system counts; the geometry may be of another by now.
    let assumed = policy.crs == AssumedCrs::Code(code);
    let crs = if assumed && recorded.crs.is_none() { None } else { Some(code) };
    let shapes = [meant, after];
    Ok(Made { before, payload, crs, done: done.list, done_total: done.total, measures, shapes })
}

fn reprojects(choice: Choice) -> Option<u32> {
    if let Choice::ReprojectFrom(code) = choice { Some(code) } else { None }
}

fn clips(choice: Choice) -> Option<[f64; 4]> {
    if let Choice::Clip(bounds) = choice { Some(bounds) } else { None }
}

/// What was done, as far as it is listed.
#[derive(Default)]
struct List {
    list: Vec<Done>,
    total: u64,
}

impl List {
    fn add(&mut self, code: &'static str, pointer: &str) {
        self.total += 1;
        if self.list.len() < DONE_MAX {
            self.list.push(Done { code, pointer: pointer.to_owned() });
        }
    }
}

/// Reads a payload as it is, whatever is wrong with its rings, bounds or identity.
fn read(recorded: Recorded<'_>, policy: &Policy, choices: &Choices) -> Result<Read, Cause> {
    let refused = |error: geonce_key::Error| Cause::from(&error);
    let said = choices.find(reprojects);
    let limits = &policy.limits;
    let delivered = match recorded.form {
        Form::Json => None,
        Form::Wkt => Some(wkt::read(recorded.payload, limits).map_err(refused)?),
        Form::Wkb => Some(wkb::read(recorded.payload, limits).map_err(refused)?),
        Form::WkbHex => Some(wkb::read_hex(recorded.payload, limits).map_err(refused)?),
    };
    if let Some(delivered) = delivered {
        let assumed = if let AssumedCrs::Code(code) = policy.crs { Some(code) } else { None };
        let code = said.or(delivered.srid).or(recorded.crs).or(assumed);
        let code = code.ok_or_else(|| cannot("crs_missing", "the payload declares no coordinate system"))?;
        return Ok(Read { shape: delivered.shape, code, text: None });
    }
    let text = match said {
        Some(_) => geojson::without_crs(recorded.payload, policy.feature.as_ref(), limits).map_err(refused)?,
        None => recorded.payload.to_vec(),
    };
    let lenient = Policy {
        identity: Identity::Whole { ignore: Vec::new() },
        version: None,
        crs: said.map_or(policy.crs, AssumedCrs::Code),
        dimensions: if choices.has(Choice::DropZ) { Dimensions::Two } else { Dimensions::Delivered },
        close_rings: false,
        accept: Accept::default(),
        previous: None,
        ..policy.clone()
    };
    let crs = recorded.crs.filter(|_| said.is_none());
    let input = Input { form: Form::Json, bytes: &text, crs };
    let feature = Reader::new(&lenient, None).and_then(|mut reader| reader.read(input)).map_err(refused)?;
    let shape = feature.geometry.ok_or_else(|| cannot("geojson_null_geometry", "there is no geometry to repair"))?;
    Ok(Read { shape, code: feature.crs, text: Some(text) })
}

/// The shape in longitudes and latitudes.
fn degrees(shape: &Shape<f64>, code: u32) -> Result<Shape<f64>, Cause> {
    if code == WGS84 {
        return Ok(shape.clone());
    }
    let unknown = || cannot("crs_unknown", format!("EPSG:{code} is not in the table"));
    let crs = crs::lookup(code).ok_or_else(unknown)?;
    let mut moved = shape.clone();
    for position in &mut moved.positions {
        let (x, y) = crs.to_wgs84(position[0], position[1]).ok_or_else(|| {
            cannot("crs_domain", format!("({}, {}) is outside the domain of {}", position[0], position[1], crs.name()))
        })?;
        [position[0], position[1]] = [x, y];
    }
    Ok(moved)
}

/// The payload as it was, as text, and as it is now.
fn write(
    recorded: Recorded<'_>,
    policy: &Policy,
    text: Option<Vec<u8>>,
    shape: &Shape<f64>,
    moved: bool,
) -> Result<(String, Bytes), Cause> {
    let refused = |error: geonce_key::Error| Cause::from(&error);
    let mut geometry = Vec::new();
    geojson::write(shape, &mut geometry);
    let Some(text) = text else {
        // Forms that are nothing but a geometry.
        let delivered = match recorded.form {
            Form::Wkb => wkb::read(recorded.payload, &policy.limits),
            Form::WkbHex => wkb::read_hex(recorded.payload, &policy.limits),
            _ => wkt::read(recorded.payload, &policy.limits),
        };
        let mut before = Vec::new();
        geojson::write(&delivered.map_err(refused)?.shape, &mut before);
        return Ok((String::from_utf8_lossy(&before).into_owned(), geometry.into()));
    };
    let before = String::from_utf8_lossy(recorded.payload).into_owned();
    let (limits, envelope) = (&policy.limits, policy.feature.as_ref());
    // What was said of the system that positions were in is not true any more.
    let text = if moved { geojson::without_crs(&text, envelope, limits).map_err(refused)? } else { text };
    let payload = geojson::replace_geometry(&text, envelope, &geometry, limits).map_err(refused)?;
    Ok((before, payload.into()))
}

/// A copy with every path changed by `change`, which is told whether it is a ring and where it is.
fn rebuilt<N: Copy>(
    shape: &Shape<N>,
    mut change: impl FnMut(&[Position<N>], bool, &dyn Fn() -> String) -> Vec<Position<N>>,
) -> Shape<N> {
    let mut out = Shape { collection: shape.collection, has_z: shape.has_z, ..Shape::new() };
    for (m, member) in shape.members().enumerate() {
        let is_ring = member.kind.part() == Kind::Polygon;
        for (p, part) in member.parts().enumerate() {
            for (r, path) in part.paths().enumerate() {
                let pointer = || {
                    let within = if shape.collection { format!("/geometries/{m}") } else { String::new() };
                    let part = if member.kind.is_multi() { format!("/{p}") } else { String::new() };
                    let ring = if is_ring { format!("/{r}") } else { String::new() };
                    format!("{within}/coordinates{part}{ring}")
                };
                out.positions.extend(change(path, is_ring, &pointer));
                out.end_path();
            }
            out.end_part();
        }
        out.end_member(member.kind);
    }
    out
}

fn close(shape: &Shape<f64>, done: &mut List) -> Shape<f64> {
    rebuilt(shape, |path, is_ring, pointer| {
        let mut path = path.to_vec();
        if let (true, Some(&first), Some(&last)) = (is_ring, path.first(), path.last())
            && first[..2] != last[..2]
        {
            path.push(first);
            done.add("ring_closed", &pointer());
        }
        path
    })
}

/// Takes vertices out of rings at which they turn straight back, until there is none.
fn without_spikes(shape: &Shape<i64>, done: &mut List) -> Result<Shape<i64>, Cause> {
    let mut empty = None;
    let out = rebuilt(shape, |path, is_ring, pointer| {
        let closed = path.len() > 1 && path.first().map(|p| &p[..2]) == path.last().map(|p| &p[..2]);
        if !is_ring || !closed {
            return path.to_vec();
        }
        let kept = unspiked(&path[..path.len() - 1]);
        if kept.len() < 3 {
            empty.get_or_insert_with(pointer);
            return path.to_vec();
        }
        if kept.len() + 1 < path.len() {
            done.add("spikes_dropped", &pointer());
        }
        kept.iter().chain(kept.first()).copied().collect()
    });
    match empty {
        Some(pointer) => {
            let cause = cannot("geojson_empty", "the ring is nothing but spikes");
            Err(Cause { pointer, ..cause })
        }
        None => Ok(out),
    }
}

/// A ring, without its last position, that turns straight back nowhere. Repeated positions go where a spike was.
fn unspiked(ring: &[Position<i64>]) -> Vec<Position<i64>> {
    let mut kept: Vec<Position<i64>> = Vec::with_capacity(ring.len());
    for &position in ring {
        kept.push(position);
        while let [.., a, b, c] = kept[..]
            && turns_back(a, b, c)
        {
            kept.truncate(kept.len() - 2);
            if same(a, c) {
                kept.pop();
            }
            kept.push(c);
        }
    }
    // The ends of the list are neighbours too.
    loop {
        match kept[..] {
            [first, .., before, last] if turns_back(before, last, first) => {
                kept.pop();
                if same(before, first) {
                    kept.pop();
                }
            }
            [first, second, .., last] if turns_back(last, first, second) => {
                kept.remove(0);
                if same(last, second) {
                    kept.remove(0);
                }
            }
            _ => return kept,
        }
    }
}

fn same(a: Position<i64>, b: Position<i64>) -> bool {
    a[..2] == b[..2]
}

/// Whether a ring that goes from `a` to `b` and on to `c` turns straight back at `b`.
fn turns_back(a: Position<i64>, b: Position<i64>, c: Position<i64>) -> bool {
    let [ux, uy] = [i128::from(b[0] - a[0]), i128::from(b[1] - a[1])];
    let [vx, vy] = [i128::from(c[0] - b[0]), i128::from(c[1] - b[1])];
    ux * vy == uy * vx && ux * vx + uy * vy < 0
}
