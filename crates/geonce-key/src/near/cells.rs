//! Where candidates are looked for: cells of the H3 grid around an anchor that moves little when a geometry does.
//!
//! The anchor is the centre of the box around the geometry in space, brought back to the sphere. Space has neither poles
//! nor an antimeridian: if no position moves by more than R, no side of the box does, its centre moves by at most √3·R,
//! and the anchor by at most 2·√3·R, as centres nearer to the Earth's middle than half a radius have no anchor at all.
//! Cells only choose what is compared; no verdict depends on them.

use super::space::{UNIT, radians};
use super::{Body, Measure, THRESHOLD_M_MAX};
use crate::crs::datum::WGS84;
use crate::shape::{Position, Shape};
use crate::{Code, Error, Result};
use h3o::{CellIndex, LatLng, Resolution};

/// The cell of all geometries as large as the world.
pub const WORLD: u64 = 0;

/// Centres nearer to the Earth's middle than this share of its radius belong to [`WORLD`].
const CENTRE_MIN: f64 = 0.5;
/// A metre on the ground is no more radians than one over the smallest radius of curvature: along a meridian, at the
/// equator.
const RADIUS_M_MIN: f64 = 6_335_439.0;
/// What rounding may move an anchor by, many times over.
const ROUNDING_M: f64 = 1e-3;
/// How much longer the average edge of a cell is than the way an anchor may move. No edge is shorter than half the
/// average, so neighbours of neighbours are out of reach.
const EDGE_FACTOR: f64 = 4.0;
/// Radians beyond which a segment is looked at in pieces.
const PIECE_MAX: f64 = 0.1;

type Direction = [f64; 3];

/// Chooses cells for one way of comparing.
#[derive(Clone, Copy, Debug)]
pub struct Cells {
    resolution: Resolution,
    /// How far a centre may move, in radii, and an anchor, in radians.
    centre_move: f64,
    anchor_move: f64,
    /// Whether segments are followed between their ends: for measures that vertices on a segment make no difference to.
    follows: bool,
}

impl Cells {
    /// Cells for geometries that are compared by `measure` and differ by at most `radius_m`: the threshold where it is in
    /// metres. For `hausdorff` that is to hold along the whole length, not only at vertices.
    pub fn new(measure: Measure, radius_m: f64) -> Result<Cells> {
        if !(0.0..=THRESHOLD_M_MAX).contains(&radius_m) {
            let message = format!("near geometries are searched within 0 to {THRESHOLD_M_MAX} metres, not {radius_m}");
            return Err(Error::new(Code::PolicyInvalid, "", message));
        }
        let centre_move = libm::sqrt(3.0) * (radius_m + ROUNDING_M) / RADIUS_M_MIN;
        // A centre just below the limit is treated as one above it too, so its direction turns a little more.
        let anchor_move = libm::asin(centre_move / (CENTRE_MIN - centre_move));
        let wanted_m = EDGE_FACTOR * anchor_move * WGS84.a;
        let fits = |resolution: &Resolution| resolution.edge_length_m() >= wanted_m;
        let resolution = Resolution::range(Resolution::Zero, Resolution::Fifteen).take_while(fits).last();
        let follows = matches!(measure, Measure::Hausdorff | Measure::Iou);
        Ok(Cells { resolution: resolution.unwrap_or(Resolution::Zero), centre_move, anchor_move, follows })
    }

    /// The H3 resolution of the cells.
    pub fn resolution(&self) -> u8 {
        self.resolution.into()
    }

    /// The cell under which a geometry is kept.
    pub fn home(&self, body: &Body) -> u64 {
        let (anchor, length) = self.anchor(body);
        if length < CENTRE_MIN { WORLD } else { self.cell(anchor).map_or(WORLD, u64::from) }
    }

    /// The cells that hold the home of every geometry near to this one: sorted, each once, its own among them.
    pub fn around(&self, body: &Body) -> Vec<u64> {
        let (anchor, length) = self.anchor(body);
        let mut cells = Vec::new();
        if length < CENTRE_MIN + self.centre_move {
            cells.push(WORLD);
        }
        if length >= CENTRE_MIN - self.centre_move {
            match self.cell(anchor) {
                None => cells.push(WORLD),
                Some(home) if self.is_inside(anchor, home) => cells.push(home.into()),
                Some(home) => cells.extend(home.grid_disk::<Vec<CellIndex>>(1).into_iter().map(u64::from)),
            }
        }
        cells.sort_unstable();
        cells.dedup();
        cells
    }

    fn cell(&self, anchor: Direction) -> Option<CellIndex> {
        let [x, y, z] = anchor;
        let place = LatLng::from_radians(libm::atan2(z, libm::sqrt(x * x + y * y)), libm::atan2(y, x)).ok()?;
        Some(place.to_cell(self.resolution))
    }

    /// Whether everything that the anchor may move to is in the cell. Its sides are parts of great circles.
    fn is_inside(&self, anchor: Direction, cell: CellIndex) -> bool {
        let boundary = cell.boundary();
        let corners: Vec<Direction> =
            boundary.iter().map(|corner| direction(corner.lng_radians(), corner.lat_radians())).collect();
        (0..corners.len()).all(|i| {
            let normal = cross(corners[i], corners[(i + 1) % corners.len()]);
            let length = libm::sqrt(dot(normal, normal));
            // Corners run counter-clockwise, so the inside is on the left.
            dot(normal, anchor) > libm::sin(self.anchor_move) * length
        })
    }

    /// The direction of the box's centre, and how far it is from the Earth's middle, in radii.
    fn anchor(&self, body: &Body) -> (Direction, f64) {
        let mut bounds = Box3 { low: [f64::INFINITY; 3], high: [f64::NEG_INFINITY; 3] };
        let shape: &Shape<i64> = body.shape();
        for path in shape.all_paths() {
            let mut before: Option<&Position<i64>> = None;
            for position in path {
                let (lon, lat) = radians(position);
                bounds.add(direction(lon, lat));
                if let Some(before) = before.filter(|_| self.follows) {
                    bounds.follow(before, position);
                }
                before = Some(position);
            }
        }
        let centre = [0, 1, 2].map(|axis| f64::midpoint(bounds.low[axis], bounds.high[axis]));
        let length = libm::sqrt(dot(centre, centre));
        if length > 0.0 { (centre.map(|part| part / length), length) } else { ([1.0, 0.0, 0.0], 0.0) }
    }
}

/// The place of a longitude and latitude on the unit sphere.
fn direction(lon: f64, lat: f64) -> Direction {
    let ((sin_lon, cos_lon), (sin_lat, cos_lat)) = (libm::sincos(lon), libm::sincos(lat));
    [cos_lat * cos_lon, cos_lat * sin_lon, sin_lat]
}

fn dot(a: Direction, b: Direction) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn cross(a: Direction, b: Direction) -> Direction {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

struct Box3 {
    low: Direction,
    high: Direction,
}

impl Box3 {
    fn add(&mut self, place: Direction) {
        for (axis, &here) in place.iter().enumerate() {
            self.low[axis] = self.low[axis].min(here);
            self.high[axis] = self.high[axis].max(here);
        }
    }

    /// Adds where a segment, straight in longitude and latitude, goes farther along an axis than its ends.
    #[expect(clippy::cast_precision_loss, reason = "differences of grid numbers are far below 2^53")]
    fn follow(&mut self, from: &Position<i64>, to: &Position<i64>) {
        let (lon, lat) = radians(from);
        let (run, rise) = ((to[0] - from[0]) as f64 * UNIT, (to[1] - from[1]) as f64 * UNIT);
        let longest = run.abs().max(rise.abs());
        let mut pieces = 1;
        while longest > PIECE_MAX * f64::from(pieces) {
            pieces += 1;
        }
        let at = |share: f64| direction(lon + share * run, lat + share * rise);
        // How x and y change along the segment; z, the sine of the latitude, goes one way only.
        let slopes = |share: f64| {
            let (sin_lon, cos_lon) = libm::sincos(lon + share * run);
            let (sin_lat, cos_lat) = libm::sincos(lat + share * rise);
            [-sin_lat * cos_lon * rise - cos_lat * sin_lon * run, -sin_lat * sin_lon * rise + cos_lat * cos_lon * run]
        };
        let mut before = slopes(0.0);
        for piece in 0..pieces {
            let (start, end) = (f64::from(piece) / f64::from(pieces), f64::from(piece + 1) / f64::from(pieces));
            let after = slopes(end);
            self.add(at(end));
            for axis in 0..2 {
                if (before[axis] > 0.0) != (after[axis] > 0.0) {
                    // The slope is as good as straight within a piece, and where it is zero the height is flat.
                    let share = before[axis] / (before[axis] - after[axis]);
                    self.add(at(start + share * (end - start)));
                }
            }
            before = after;
        }
    }
}
