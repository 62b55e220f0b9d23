//! Shapes of a .shp, in the order of its .shx, or of the file where that is missing (ESRI Shapefile Technical Description,
//! 1998).
//!
//! Rings are nested by `g1`, point 15. M values are left out. A record that contradicts itself is bad; one that reaches
//! beyond the end of the file means that the file was cut short, and ends the reading.

use crate::window::{Window, big_u32, little_f64, little_u32};
use crate::{BAD_BYTES_MAX, Error, Result};
use geonce_key::shape::Position;
use geonce_key::{Kind, Limits, Shape, assemble};
use std::path::Path;

const HEADER_BYTES: u64 = 100;
const MAGIC: u32 = 9994;
const INDEX_BYTES: u64 = 8;
const MULTIPATCH: u32 = 31;

/// What stands at a place of the file.
pub(super) enum Found {
    /// A shape, or none.
    Shape(Option<Shape<f64>>),
    /// A record that cannot be read.
    Bad { code: &'static str, message: String, bytes: Vec<u8> },
}

/// The shapes of a file.
pub(super) struct Shapes {
    window: Window,
    index: Option<Window>,
    /// How many there are, where an index says so.
    pub(super) count: Option<u64>,
    /// The next one's place, from 0, and where it starts if there is no index.
    next: u64,
    at: u64,
    /// The type in the header.
    kind: u32,
    limits: Limits,
}

impl Shapes {
    /// Opens a .shp, and the .shx beside it; what is odd is told in `notices`.
    pub(super) fn open(shp: &Path, shx: Option<&Path>, limits: &Limits, notices: &mut Vec<String>) -> Result<Shapes> {
        let mut window = Window::open(shp)?;
        let kind = {
            let length = window.length();
            let Some(header) = window.read(0, HEADER_BYTES)? else {
                return Err(truncated(&window, "has no whole header"));
            };
            let (magic, stated, kind) =
                (big_u32(header, 0), u64::from(big_u32(header, 24)) * 2, little_u32(header, 32));
            if magic != MAGIC {
                return Err(window.refuse("format_wrong", "is no shapefile: its first bytes are not those of one"));
            }
            if stated > length {
                return Err(truncated(&window, &format!("has {length} bytes, but should have {stated}")));
            }
            kind
        };
        if kind == MULTIPATCH {
            return Err(window
                .refuse("shapefile_multipatch", "holds MultiPatch surfaces, which have no counterpart")
                .hint("convert it to polygons first"));
        }
        let mut shapes =
            Shapes { window, index: None, count: None, next: 0, at: HEADER_BYTES, kind, limits: limits.clone() };
        match shx {
            Some(shx) => shapes.open_index(shx, notices)?,
            None => notices.push("there is no .shx: shapes are read in the order of the .shp".to_owned()),
        }
        if matches!(kind, 21 | 23 | 25 | 28) || shapes.first_has_measures()? {
            notices.push("M values are left out".to_owned());
        }
        Ok(shapes)
    }

    fn open_index(&mut self, shx: &Path, notices: &mut Vec<String>) -> Result<()> {
        let mut index = Window::open(shx)?;
        let length = index.length();
        let header =
            index.read(0, HEADER_BYTES)?.map(|header| (big_u32(header, 0), u64::from(big_u32(header, 24)) * 2));
        match header {
            Some((MAGIC, stated)) if (HEADER_BYTES..=length).contains(&stated) => {
                self.count = Some((stated - HEADER_BYTES) / INDEX_BYTES);
                self.index = Some(index);
            }
            _ => notices.push("the .shx is broken: shapes are read in the order of the .shp".to_owned()),
        }
        Ok(())
    }

    /// Whether the first record of a type with heights has M values too, which are optional there.
    fn first_has_measures(&mut self) -> Result<bool> {
        if !matches!(self.kind, 11 | 13 | 15 | 18) {
            return Ok(false);
        }
        let Some(at) = self.place()? else { return Ok(false) };
        let Some(head) = self.window.read(at, 8 + 44)? else { return Ok(false) };
        let (length, parts, points) = (u64::from(big_u32(head, 4)) * 2, little_u32(head, 44), little_u32(head, 48));
        let (parts, points) = (u64::from(parts), u64::from(points));
        Ok(match little_u32(head, 8) {
            11 => length >= 36 && little_f64(head, 36) > NO_DATA,
            13 | 15 => length > 44 + 4 * parts + 24 * points + 16,
            18 => length > 40 + 24 * u64::from(little_u32(head, 44)) + 16,
            _ => false,
        })
    }

    /// How the file is called in messages.
    fn name(&self) -> String {
        self.window.path().display().to_string()
    }

    /// Where the next record starts; none at the end.
    fn place(&mut self) -> Result<Option<u64>> {
        let Some(index) = &mut self.index else {
            return Ok((self.at < self.window.length()).then_some(self.at));
        };
        if Some(self.next) >= self.count {
            return Ok(None);
        }
        let entry = index.read(HEADER_BYTES + self.next * INDEX_BYTES, INDEX_BYTES)?;
        Ok(entry.map(|entry| u64::from(big_u32(entry, 0)) * 2))
    }

    /// The next shape.
    pub(super) fn next(&mut self) -> Result<Option<Found>> {
        let Some(at) = self.place()? else { return Ok(None) };
        self.next += 1;
        let number = self.next;
        let Some(header) = self.window.read(at, 8)? else {
            return Err(truncated(&self.window, &format!("ends before shape {number}, which starts at byte {at}")));
        };
        let length = u64::from(big_u32(header, 4)) * 2;
        self.at = at + 8 + length;
        if self.at > self.window.length() {
            return Err(truncated(&self.window, &format!("ends inside shape {number}, which starts at byte {at}")));
        }
        if length > record_bytes_max(&self.limits) {
            let bytes = self.window.read(at + 8, BAD_BYTES_MAX as u64)?.unwrap_or_default().to_vec();
            let message = format!("the shape has {length} bytes, more than the limits allow");
            return Ok(Some(Found::Bad { code: "limit_bytes", message, bytes }));
        }
        let Some(record) = self.window.read(at + 8, length)? else {
            return Err(truncated(&self.window, &format!("ends inside shape {number}")));
        };
        Ok(Some(match read(record, &self.limits) {
            Ok(shape) => Found::Shape(shape),
            Err(wrong) => Found::Bad {
                code: wrong.code,
                message: format!("{} at byte {at} of {}", wrong.message, self.name()),
                bytes: self.window.read(at + 8, length.min(BAD_BYTES_MAX as u64))?.unwrap_or_default().to_vec(),
            },
        }))
    }
}

fn truncated(window: &Window, what: &str) -> Error {
    window.refuse("file_truncated", what).hint("the file was cut short or is damaged: fetch it again")
}

/// The longest record that can hold what the limits allow.
fn record_bytes_max(limits: &Limits) -> u64 {
    44 + 32 + 4 * limits.rings_max as u64 + 32 * limits.positions_max as u64
}

/// Values below this mean that there is none.
const NO_DATA: f64 = -1e38;

struct Wrong {
    code: &'static str,
    message: String,
}

fn wrong(code: &'static str, message: impl Into<String>) -> Wrong {
    Wrong { code, message: message.into() }
}

/// Reads a record's content: its type, then what the type wants.
fn read(record: &[u8], limits: &Limits) -> std::result::Result<Option<Shape<f64>>, Wrong> {
    need(record, 4, "a shape")?;
    match little_u32(record, 0) {
        0 => Ok(None),
        kind @ (1 | 11 | 21) => point(record, kind == 11),
        kind @ (8 | 18 | 28) => multipoint(record, kind == 18, limits),
        kind @ (3 | 13 | 23) => lines(record, kind == 13, limits),
        kind @ (5 | 15 | 25) => polygon(record, kind == 15, limits),
        MULTIPATCH => Err(wrong("shapefile_multipatch", "a MultiPatch surface has no counterpart")),
        kind => Err(wrong("shapefile_type", format!("{kind} is no type of shapes"))),
    }
}

fn need(record: &[u8], bytes: u64, what: &str) -> std::result::Result<(), Wrong> {
    if record.len() as u64 >= bytes {
        return Ok(());
    }
    Err(wrong("shapefile_record", format!("{what} needs {bytes} bytes, but its record has {}", record.len())))
}

fn point(record: &[u8], has_z: bool) -> std::result::Result<Option<Shape<f64>>, Wrong> {
    need(record, if has_z { 28 } else { 20 }, "a point")?;
    let mut shape = Shape { has_z, ..Shape::new() };
    let z = if has_z { little_f64(record, 20) } else { 0.0 };
    let position = [little_f64(record, 4), little_f64(record, 12), z];
    // Writers without a null shape for an empty point write it so.
    if position[0].is_nan() && position[1].is_nan() {
        return Ok(None);
    }
    shape.positions.push(position);
    shape.end_path();
    shape.end_part();
    shape.end_member(Kind::Point);
    finite(shape).map(Some)
}

fn multipoint(record: &[u8], has_z: bool, limits: &Limits) -> std::result::Result<Option<Shape<f64>>, Wrong> {
    need(record, 40, "a multipoint")?;
    let count = count(little_u32(record, 36), limits.positions_max.min(limits.parts_max), "positions")?;
    if count == 0 {
        return Ok(None);
    }
    let mut shape = Shape { has_z, ..Shape::new() };
    positions(record, 40, count, &mut shape, "a multipoint")?;
    for i in 1..=count {
        shape.paths.push(i);
        shape.parts.push(i);
    }
    shape.end_member(Kind::MultiPoint);
    finite(shape).map(Some)
}

/// Lines or rings as they stand: positions and where each ends.
fn paths(record: &[u8], has_z: bool, limits: &Limits, what: &str) -> std::result::Result<Option<Shape<f64>>, Wrong> {
    need(record, 44, what)?;
    let parts = count(little_u32(record, 36), limits.rings_max.min(limits.parts_max), "parts")?;
    let points = count(little_u32(record, 40), limits.positions_max, "positions")?;
    if parts == 0 || points == 0 {
        return Ok(None);
    }
    let mut shape = Shape { has_z, ..Shape::new() };
    positions(record, 44 + 4 * u64::from(parts), points, &mut shape, what)?;
    let start = |part: u32| if part == parts { points } else { little_u32(record, 44 + 4 * part as usize) };
    for part in 0..parts {
        let (from, to) = (start(part), start(part + 1));
        if (part == 0 && from != 0) || from >= to || to > points {
            let message = format!("part {} of {what} reaches from position {from} to {to} of {points}", part + 1);
            return Err(wrong("shapefile_record", message));
        }
        shape.paths.push(to);
    }
    finite(shape).map(Some)
}

fn lines(record: &[u8], has_z: bool, limits: &Limits) -> std::result::Result<Option<Shape<f64>>, Wrong> {
    let Some(mut shape) = paths(record, has_z, limits, "a polyline")? else { return Ok(None) };
    let mut ends = 0;
    shape.parts.resize_with(shape.paths.len(), || {
        ends += 1;
        ends
    });
    shape.end_member(if ends == 1 { Kind::LineString } else { Kind::MultiLineString });
    Ok(Some(shape))
}

fn polygon(record: &[u8], has_z: bool, limits: &Limits) -> std::result::Result<Option<Shape<f64>>, Wrong> {
    let Some(mut shape) = paths(record, has_z, limits, "a polygon")? else { return Ok(None) };
    if shape.paths.len() > 1 {
        return nested(&shape, limits).map(Some);
    }
    shape.end_part();
    shape.end_member(Kind::Polygon);
    Ok(Some(shape))
}

/// A count from the file, if the limits allow it.
fn count(stated: u32, max: usize, what: &str) -> std::result::Result<u32, Wrong> {
    if stated as usize <= max {
        return Ok(stated);
    }
    Err(wrong("limit_positions", format!("the shape has {stated} {what}, at most {max} are read")))
}

/// Reads positions from byte `at` on, and their heights, which follow after a range of them.
fn positions(record: &[u8], at: u64, count: u32, shape: &mut Shape<f64>, what: &str) -> std::result::Result<(), Wrong> {
    let heights_at = at + 16 * u64::from(count) + 16;
    need(record, if shape.has_z { heights_at + 8 * u64::from(count) } else { heights_at - 16 }, what)?;
    // Both are inside the record, which is in memory.
    let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
    let (at, heights_at, count) = (place(at), place(heights_at), count as usize);
    shape.positions.reserve_exact(count);
    let pairs = record[at..].chunks_exact(16).take(count);
    shape.positions.extend(pairs.map(|pair| [little_f64(pair, 0), little_f64(pair, 8), 0.0]));
    if shape.has_z {
        for (position, height) in shape.positions.iter_mut().zip(record[heights_at..].chunks_exact(8)) {
            position[2] = little_f64(height, 0);
        }
    }
    Ok(())
}

/// Refuses ordinates that are no numbers. Heights that are none at all are left out.
fn finite(mut shape: Shape<f64>) -> std::result::Result<Shape<f64>, Wrong> {
    if shape.has_z && shape.positions.iter().all(|position| position[2].is_nan()) {
        shape.has_z = false;
        shape.positions.iter_mut().for_each(|position| position[2] = 0.0);
    }
    match shape.positions.iter().position(|position| position.iter().any(|ordinate| !ordinate.is_finite())) {
        None => Ok(shape),
        Some(place) => Err(wrong("ordinate_not_finite", format!("position {} is not made of numbers", place + 1))),
    }
}

/// Polygons from rings, holes in the smallest shell around them.
fn nested(rings: &Shape<f64>, limits: &Limits) -> std::result::Result<Shape<f64>, Wrong> {
    let grid = on_grid(rings);
    let closed: Vec<&[Position<i64>]> = grid.iter().map(Vec::as_slice).collect();
    let owners = assemble::nest(&closed, limits).map_err(|error| wrong(error.code().as_str(), error.message()))?;
    let mut holes: Vec<(usize, usize)> =
        owners.iter().enumerate().filter(|(ring, owner)| ring != *owner).map(|(ring, &owner)| (owner, ring)).collect();
    holes.sort_unstable();
    let mut holes = holes.into_iter().peekable();
    let mut shape = Shape { has_z: rings.has_z, ..Shape::new() };
    shape.positions.reserve_exact(rings.positions.len());
    for (shell, _) in owners.iter().enumerate().filter(|(ring, owner)| ring == *owner) {
        shape.positions.extend_from_slice(rings.path(shell));
        shape.end_path();
        while let Some((_, hole)) = holes.next_if(|&(owner, _)| owner == shell) {
            shape.positions.extend_from_slice(rings.path(hole));
            shape.end_path();
        }
        shape.end_part();
    }
    shape.end_member(if shape.parts.len() == 1 { Kind::Polygon } else { Kind::MultiPolygon });
    Ok(shape)
}

/// The rings, closed, as whole numbers: ordinates times a power of two that brings the largest one just below 2^52.
///
/// The power is exact, so that only the last bit or two of the largest ordinates are rounded, and the smaller ones to the
/// same step. Nesting asks on which side of a ring a point lies, and a step this small, about 1e-15 of the largest ordinate
/// (a nanometre for metres, less for degrees), changes the answer only where two rings are nearer than that to each other:
/// then they touch, and the next point decides.
fn on_grid(rings: &Shape<f64>) -> Vec<Vec<Position<i64>>> {
    let largest = rings.positions.iter().fold(0.0_f64, |most, p| most.max(p[0].abs()).max(p[1].abs()));
    let scale = scale(largest);
    #[expect(clippy::cast_possible_truncation, reason = "the scale keeps it below 2^52")]
    let whole = |ordinate: f64| (ordinate * scale).round() as i64;
    let ring = |path: &[Position<f64>]| {
        let mut ring: Vec<Position<i64>> = path.iter().map(|p| [whole(p[0]), whole(p[1]), 0]).collect();
        if let (Some(&first), Some(&last)) = (ring.first(), ring.last())
            && first != last
        {
            ring.push(first);
        }
        ring
    };
    rings.all_paths().map(ring).collect()
}

/// The largest power of two that keeps `largest` below 2^51; at most 2^1000, where all is zero anyhow.
fn scale(largest: f64) -> f64 {
    let exponent = ((largest.to_bits() >> 52) & 0x7ff).cast_signed() - 1023;
    2.0_f64.powi(i32::try_from(50 - exponent).unwrap_or_default().clamp(-1000, 1000))
}
