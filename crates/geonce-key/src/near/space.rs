//! Positions in space: on the WGS 84 ellipsoid for distances, on the unit sphere for cells.
//!
//! A straight line through space is right everywhere, at the poles and across the antimeridian too, and within the
//! largest threshold it is shorter than the way on the ground by less than two parts in a million.

use super::body::{UNITS_PER_DEGREE, UNITS_PER_HEIGHT};
use crate::crs::datum::{RADIAN, WGS84, geocentric};
use crate::shape::{Position, Shape};

/// Radians of one grid unit.
pub(super) const UNIT: f64 = RADIAN / UNITS_PER_DEGREE;

/// A place in space in metres, and its height as a fourth, independent direction: heights may be in any unit and over
/// any surface, so they are only compared with each other.
pub(super) type Spot = [f64; 4];

/// The longitude and latitude of a position, in radians.
#[expect(clippy::cast_precision_loss, reason = "grid numbers are far below 2^53")]
pub(super) fn radians(position: &Position<i64>) -> (f64, f64) {
    (position[0] as f64 * UNIT, position[1] as f64 * UNIT)
}

/// The height of a position, taken to be in metres.
#[expect(clippy::cast_precision_loss, reason = "grid numbers are far below 2^53")]
pub(super) fn height_m(position: &Position<i64>) -> f64 {
    position[2] as f64 / UNITS_PER_HEIGHT
}

fn spot(position: &Position<i64>) -> Spot {
    let (lon, lat) = radians(position);
    let [x, y, z] = geocentric(WGS84, lon, lat);
    [x, y, z, height_m(position)]
}

/// The square of the distance of two places.
pub(super) fn squared(a: &Spot, b: &Spot) -> f64 {
    let [x, y, z, up] = [a[0] - b[0], a[1] - b[1], a[2] - b[2], a[3] - b[3]];
    x * x + y * y + z * z + up * up
}

/// Metres of one grid unit of longitude and of latitude around a position.
pub(super) fn scale_m(position: &Position<i64>) -> [f64; 2] {
    let (sin, cos) = libm::sincos(radians(position).1);
    let e2 = WGS84.e2();
    let bend = 1.0 - e2 * sin * sin;
    let across = WGS84.a / libm::sqrt(bend);
    [across * cos * UNIT, across * (1.0 - e2) / bend * UNIT]
}

/// A shape with every position in space, and the box of each path.
pub(super) struct Placed<'a> {
    pub(super) shape: &'a Shape<i64>,
    spots: Vec<Spot>,
    lows: Vec<Spot>,
    highs: Vec<Spot>,
}

impl<'a> Placed<'a> {
    pub(super) fn new(shape: &'a Shape<i64>) -> Placed<'a> {
        let spots: Vec<Spot> = shape.positions.iter().map(spot).collect();
        let mut placed = Placed { shape, spots, lows: Vec::new(), highs: Vec::new() };
        for index in 0..shape.paths.len() {
            let (mut low, mut high) = ([f64::INFINITY; 4], [f64::NEG_INFINITY; 4]);
            for spot in placed.path(index) {
                for axis in 0..4 {
                    low[axis] = low[axis].min(spot[axis]);
                    high[axis] = high[axis].max(spot[axis]);
                }
            }
            placed.lows.push(low);
            placed.highs.push(high);
        }
        placed
    }

    /// The places of a path; of a ring with the first one again at its end.
    pub(super) fn path(&self, index: usize) -> &[Spot] {
        let start = if index == 0 { 0 } else { self.shape.paths[index - 1] as usize };
        &self.spots[start..self.shape.paths[index] as usize]
    }

    /// How far a path reaches to the south. If no vertex moves by more than some distance, this does not either.
    pub(super) fn south(&self, index: usize) -> f64 {
        self.lows[index][2]
    }

    /// Whether one path can have come from the other by moving each vertex no farther than `limit`.
    pub(super) fn boxes_near(&self, index: usize, other: &Placed<'_>, other_index: usize, limit: f64) -> bool {
        let near = |a: &Spot, b: &Spot| (0..4).all(|axis| (a[axis] - b[axis]).abs() <= limit);
        near(&self.lows[index], &other.lows[other_index]) && near(&self.highs[index], &other.highs[other_index])
    }
}
