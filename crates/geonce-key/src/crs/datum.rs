//! Ellipsoids, and the step from a datum to WGS 84: nothing, or three or seven parameters through geocentric space.
//!
//! Heights are taken as zero on the way in and dropped on the way out, as the EPSG "geog2D domain" methods say.
//! Grids are not read: a datum that needs one for metre accuracy is marked by its operation's accuracy.

use std::f64::consts::PI;

use libm::{atan2, sincos, sqrt};

/// Degrees to radians.
pub(crate) const RADIAN: f64 = PI / 180.0;
/// Radians to degrees.
pub(super) const DEGREE: f64 = 180.0 / PI;

/// An ellipsoid of revolution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ellipsoid {
    /// Semi-major axis in metres.
    pub(crate) a: f64,
    /// Flattening.
    pub(crate) f: f64,
}

impl Ellipsoid {
    const fn new(a: f64, inverse_flattening: f64) -> Self {
        Ellipsoid { a, f: 1.0 / inverse_flattening }
    }

    /// First eccentricity, squared.
    pub(crate) fn e2(&self) -> f64 {
        self.f * (2.0 - self.f)
    }

    /// Third flattening, in which the series of this module are written.
    pub(super) fn n(&self) -> f64 {
        self.f / (2.0 - self.f)
    }
}

pub(crate) static WGS84: Ellipsoid = Ellipsoid::new(6_378_137.0, 298.257_223_563);
pub(super) static GRS80: Ellipsoid = Ellipsoid::new(6_378_137.0, 298.257_222_101);
pub(super) static BESSEL: Ellipsoid = Ellipsoid::new(6_377_397.155, 299.152_812_8);
pub(super) static AIRY: Ellipsoid = Ellipsoid::new(6_377_563.396, 299.324_964_6);

/// A datum and its one fixed operation to WGS 84.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datum {
    pub(super) ellipsoid: &'static Ellipsoid,
    /// The operation's EPSG code and name.
    pub(super) operation: &'static str,
    /// The operation's accuracy according to EPSG.
    pub(super) accuracy_m: f64,
    /// Metres, arc-seconds and parts per million in the order and sign of `towgs84`; `None` leaves coordinates alone.
    pub(super) shift: Option<[f64; 7]>,
}

/// WGS 84 itself.
pub(super) static WGS84_DATUM: Datum =
    Datum { ellipsoid: &WGS84, operation: "none: the system is on WGS 84", accuracy_m: 0.0, shift: None };

/// A shift made ready: position vector convention, small angles, from `source` to WGS 84.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shift {
    source: Ellipsoid,
    move_m: [f64; 3],
    turn: [f64; 3],
    scale: f64,
}

impl Shift {
    pub(super) fn new(source: Ellipsoid, [x, y, z, rx, ry, rz, ppm]: [f64; 7]) -> Self {
        const ARC_SECOND: f64 = PI / 648_000.0;
        Shift {
            source,
            move_m: [x, y, z],
            turn: [rx * ARC_SECOND, ry * ARC_SECOND, rz * ARC_SECOND],
            scale: 1.0 + ppm * 1e-6,
        }
    }

    /// Longitude and latitude on WGS 84, in radians.
    pub(super) fn apply(self, lon: f64, lat: f64) -> (f64, f64) {
        let [x, y, z] = geocentric(self.source, lon, lat);
        let [rx, ry, rz] = self.turn;
        let [dx, dy, dz] = self.move_m;
        geodetic(
            WGS84,
            dx + self.scale * (x - rz * y + ry * z),
            dy + self.scale * (rz * x + y - rx * z),
            dz + self.scale * (rx * y - ry * x + z),
        )
    }

    /// The position that [`Shift::apply`] brings to `lon`, `lat`.
    ///
    /// Inverting the seven parameters alone would miss by up to a millimetre, because the height is dropped and the
    /// rotation is linear. Each round shrinks the miss by four digits or more; four rounds leave only rounding.
    pub(super) fn undo(self, lon: f64, lat: f64) -> (f64, f64) {
        let (mut source_lon, mut source_lat) = (lon, lat);
        for _ in 0..4 {
            let (got_lon, got_lat) = self.apply(source_lon, source_lat);
            source_lon += within_half_turn(lon - got_lon, PI);
            source_lat += lat - got_lat;
        }
        (source_lon, source_lat)
    }
}

/// Geocentric coordinates of a point on the ellipsoid.
pub(crate) fn geocentric(ellipsoid: Ellipsoid, lon: f64, lat: f64) -> [f64; 3] {
    let e2 = ellipsoid.e2();
    let (sin_lon, cos_lon) = sincos(lon);
    let (sin_lat, cos_lat) = sincos(lat);
    let radius = ellipsoid.a / sqrt(1.0 - e2 * sin_lat * sin_lat);
    [radius * cos_lat * cos_lon, radius * cos_lat * sin_lon, radius * (1.0 - e2) * sin_lat]
}

/// Longitude and latitude of a geocentric position near the ellipsoid, after Bowring (1976): each round cubes the
/// error, so three rounds are exact to rounding for any height that a datum shift can produce.
fn geodetic(ellipsoid: Ellipsoid, x: f64, y: f64, z: f64) -> (f64, f64) {
    let e2 = ellipsoid.e2();
    let b = ellipsoid.a * (1.0 - ellipsoid.f);
    let second_e2 = e2 / (1.0 - e2);
    let p = sqrt(x * x + y * y);
    // The reduced latitude as a direction; its first guess is that of a point on the ellipsoid.
    let (mut up, mut out) = (z * ellipsoid.a, p * b);
    let (mut rise, mut run) = (z, p);
    for _ in 0..3 {
        let length = sqrt(up * up + out * out);
        let (sin, cos) = (up / length, out / length);
        rise = z + second_e2 * b * (sin * sin * sin);
        run = p - e2 * ellipsoid.a * (cos * cos * cos);
        (up, out) = ((1.0 - ellipsoid.f) * rise, run);
    }
    (atan2(y, x), atan2(rise, run))
}

/// The same angle less than one turn further on or back, between plus and minus `half` a turn.
pub(super) fn within_half_turn(angle: f64, half: f64) -> f64 {
    if angle > half {
        angle - 2.0 * half
    } else if angle < -half {
        angle + 2.0 * half
    } else {
        angle
    }
}
