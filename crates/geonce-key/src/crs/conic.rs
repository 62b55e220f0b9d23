//! Conic projections with two standard parallels: Lambert's conformal and Albers' equal area one (Snyder 1987, 14 and 15).
//!
//! Longitudes are relative to the central meridian. A position in the gap of the unrolled cone answers `None`.

use libm::{atan2, exp, log, pow, sincos, sqrt};

use super::datum::Ellipsoid;
use super::latitude::{Authalic, Conformal, parallel};

const HALF_TURN: f64 = std::f64::consts::PI;
const QUARTER: f64 = std::f64::consts::FRAC_PI_2;

/// From polar coordinates around the cone's apex to the map.
fn unroll(cone: f64, apex: f64, radius: f64, lon: f64) -> (f64, f64) {
    let (sine, cosine) = sincos(cone * lon);
    (radius * sine, apex - radius * cosine)
}

/// From the map to radius and longitude; in the south both the cone constant and the radius are negative.
fn roll(cone: f64, apex: f64, x: f64, y: f64) -> Option<(f64, f64)> {
    let sign = if cone < 0.0 { -1.0 } else { 1.0 };
    let up = apex - y;
    let lon = atan2(sign * x, sign * up) / cone;
    (lon.abs() <= HALF_TURN).then(|| (sign * sqrt(x * x + up * up), lon))
}

/// Lambert's conformal conic projection.
#[derive(Clone, Copy, Debug)]
pub(super) struct LambertConformal {
    conformal: Conformal,
    cone: f64,
    /// Radius at which t is one.
    unit: f64,
    apex: f64,
}

impl LambertConformal {
    pub(super) fn new(ellipsoid: &Ellipsoid, lat: f64, parallels: [f64; 2]) -> Self {
        let conformal = Conformal::new(ellipsoid);
        let [m1, m2] = parallels.map(|lat| parallel(ellipsoid.e2(), lat));
        let [psi1, psi2] = parallels.map(|lat| conformal.isometric(lat));
        let cone = log(m1 / m2) / (psi2 - psi1);
        let unit = ellipsoid.a * m1 / cone * exp(cone * psi1);
        let mut made = LambertConformal { conformal, cone, unit, apex: 0.0 };
        made.apex = made.radius(lat);
        made
    }

    fn radius(&self, lat: f64) -> f64 {
        self.unit * exp(-self.cone * self.conformal.isometric(lat))
    }

    pub(super) fn forward(&self, lon: f64, lat: f64) -> Option<(f64, f64)> {
        (lat.abs() < QUARTER).then(|| unroll(self.cone, self.apex, self.radius(lat), lon))
    }

    pub(super) fn inverse(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let (radius, lon) = roll(self.cone, self.apex, x, y)?;
        Some((lon, self.conformal.at_exponential(pow(radius / self.unit, 1.0 / self.cone))))
    }
}

/// Albers' equal area conic projection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Albers {
    authalic: Authalic,
    a: f64,
    cone: f64,
    constant: f64,
    apex: f64,
}

impl Albers {
    pub(super) fn new(ellipsoid: &Ellipsoid, lat: f64, parallels: [f64; 2]) -> Self {
        let authalic = Authalic::new(ellipsoid);
        let [m1, m2] = parallels.map(|lat| parallel(ellipsoid.e2(), lat));
        let [q1, q2] = parallels.map(|lat| authalic.q(lat));
        let cone = (m1 - m2) * (m1 + m2) / (q2 - q1);
        let mut made = Albers { authalic, a: ellipsoid.a, cone, constant: m1 * m1 + cone * q1, apex: 0.0 };
        made.apex = made.radius(lat);
        made
    }

    fn radius(&self, lat: f64) -> f64 {
        self.a * sqrt(self.constant - self.cone * self.authalic.q(lat)) / self.cone
    }

    pub(super) fn forward(&self, lon: f64, lat: f64) -> (f64, f64) {
        unroll(self.cone, self.apex, self.radius(lat), lon)
    }

    pub(super) fn inverse(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let (radius, lon) = roll(self.cone, self.apex, x, y)?;
        let m = radius * self.cone / self.a;
        let sine = (self.constant - m * m) / self.cone / self.authalic.q_pole;
        (sine.abs() <= 1.0).then(|| (lon, self.authalic.geodetic(sine, sqrt((1.0 - sine) * (1.0 + sine)))))
    }
}
