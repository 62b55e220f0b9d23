//! Projections around a point: Lambert's azimuthal equal area (Snyder 1987, 24), the oblique stereographic of the
//! Netherlands (EPSG guidance note 7-2, method 9809) and the Swiss oblique Mercator, both by way of Gauss' sphere.
//!
//! Longitudes are relative to the centre. All inverses are closed forms; none iterates.

use libm::{atan2, atanh, cosh, exp, sincos, sqrt, tanh};

use super::datum::Ellipsoid;
use super::latitude::{Authalic, Conformal};

/// Lambert's azimuthal equal area projection, oblique.
#[derive(Clone, Copy, Debug)]
pub(super) struct LambertAzimuthal {
    authalic: Authalic,
    sin0: f64,
    cos0: f64,
    /// Radius of the authalic sphere.
    radius: f64,
    /// Snyder's D, which makes the scale true in every direction at the centre.
    stretch: f64,
}

impl LambertAzimuthal {
    pub(super) fn new(ellipsoid: &Ellipsoid, lat: f64) -> Self {
        let authalic = Authalic::new(ellipsoid);
        let sin0 = authalic.q(lat) / authalic.q_pole;
        let cos0 = sqrt((1.0 - sin0) * (1.0 + sin0));
        let radius = ellipsoid.a * sqrt(authalic.q_pole / 2.0);
        let stretch = ellipsoid.a * authalic.parallel(lat) / (radius * cos0);
        LambertAzimuthal { authalic, sin0, cos0, radius, stretch }
    }

    pub(super) fn forward(&self, lon: f64, lat: f64) -> Option<(f64, f64)> {
        let sine = self.authalic.q(lat) / self.authalic.q_pole;
        let cosine = sqrt((1.0 - sine) * (1.0 + sine));
        let (sin_lon, cos_lon) = sincos(lon);
        let toward = 1.0 + self.sin0 * sine + self.cos0 * cosine * cos_lon;
        // The point opposite the centre is a whole circle on the map.
        (toward > 1e-10).then(|| {
            let scale = self.radius * sqrt(2.0 / toward);
            let north = self.cos0 * sine - self.sin0 * cosine * cos_lon;
            (scale * self.stretch * cosine * sin_lon, scale / self.stretch * north)
        })
    }

    pub(super) fn inverse(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let east = x / self.stretch / self.radius;
        let north = y * self.stretch / self.radius;
        // Square of the sine of half the angle from the centre.
        let half = (east * east + north * north) / 4.0;
        (half < 1.0).then(|| {
            let (cos_angle, along) = (1.0 - 2.0 * half, sqrt(1.0 - half));
            let sine = cos_angle * self.sin0 + north * along * self.cos0;
            let (side, ahead) = (east * along, cos_angle * self.cos0 - north * along * self.sin0);
            (atan2(side, ahead), self.authalic.geodetic(sine, sqrt(side * side + ahead * ahead)))
        })
    }
}

/// Gauss' conformal sphere that touches the ellipsoid at one latitude to second order.
#[derive(Clone, Copy, Debug)]
struct Sphere {
    conformal: Conformal,
    /// Ratio of longitudes, sphere to ellipsoid.
    ratio: f64,
    /// Isometric latitude added on the sphere.
    offset: f64,
    radius: f64,
    sin0: f64,
    cos0: f64,
}

impl Sphere {
    fn new(ellipsoid: &Ellipsoid, lat: f64) -> Self {
        let e2 = ellipsoid.e2();
        let (sine, cosine) = sincos(lat);
        let ratio = sqrt(1.0 + e2 * (cosine * cosine) * (cosine * cosine) / (1.0 - e2));
        let conformal = Conformal::new(ellipsoid);
        let sin0 = sine / ratio;
        Sphere {
            conformal,
            ratio,
            offset: atanh(sin0) - ratio * conformal.isometric(lat),
            radius: ellipsoid.a * sqrt(1.0 - e2) / (1.0 - e2 * sine * sine),
            sin0,
            cos0: sqrt((1.0 - sin0) * (1.0 + sin0)),
        }
    }

    /// The point on the sphere as a direction: toward the centre's meridian, east of it, north.
    fn of(&self, lon: f64, lat: f64) -> [f64; 3] {
        let t = exp(-(self.ratio * self.conformal.isometric(lat) + self.offset));
        let (sin_lon, cos_lon) = sincos(self.ratio * lon);
        let cosine = 2.0 * t / (1.0 + t * t);
        [cosine * cos_lon, cosine * sin_lon, (1.0 - t) * (1.0 + t) / (1.0 + t * t)]
    }

    /// Longitude and latitude on the ellipsoid of a direction of length one.
    fn geodetic(&self, [ahead, side, up]: [f64; 3]) -> (f64, f64) {
        let isometric = (atanh(up) - self.offset) / self.ratio;
        (atan2(side, ahead) / self.ratio, self.conformal.at_isometric(isometric))
    }

    /// Turns a direction so that the centre lies on the equator.
    fn lower(&self, [ahead, side, up]: [f64; 3]) -> [f64; 3] {
        [self.cos0 * ahead + self.sin0 * up, side, self.cos0 * up - self.sin0 * ahead]
    }

    /// Turns it back.
    fn raise(&self, [ahead, side, up]: [f64; 3]) -> [f64; 3] {
        [self.cos0 * ahead - self.sin0 * up, side, self.cos0 * up + self.sin0 * ahead]
    }
}

/// The oblique ("double") stereographic projection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stereographic {
    sphere: Sphere,
    radius: f64,
}

impl Stereographic {
    pub(super) fn new(ellipsoid: &Ellipsoid, lat: f64, scale: f64) -> Self {
        let sphere = Sphere::new(ellipsoid, lat);
        Stereographic { sphere, radius: sphere.radius * scale }
    }

    pub(super) fn forward(&self, lon: f64, lat: f64) -> Option<(f64, f64)> {
        let [ahead, side, up] = self.sphere.lower(self.sphere.of(lon, lat));
        // Toward the point opposite the centre the map runs to infinity.
        (1.0 + ahead > 1e-10).then(|| {
            let scale = 2.0 * self.radius / (1.0 + ahead);
            (scale * side, scale * up)
        })
    }

    pub(super) fn inverse(&self, x: f64, y: f64) -> (f64, f64) {
        let (side, up) = (x / self.radius, y / self.radius);
        let square = (side * side + up * up) / 4.0;
        let length = 1.0 + square;
        let direction = [(1.0 - square) / length, side / length, up / length];
        self.sphere.geodetic(self.sphere.raise(direction))
    }
}

/// The Swiss oblique Mercator projection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Swiss {
    sphere: Sphere,
}

impl Swiss {
    pub(super) fn new(ellipsoid: &Ellipsoid, lat: f64) -> Self {
        Swiss { sphere: Sphere::new(ellipsoid, lat) }
    }

    pub(super) fn forward(&self, lon: f64, lat: f64) -> (f64, f64) {
        let [ahead, side, up] = self.sphere.lower(self.sphere.of(lon, lat));
        (self.sphere.radius * atan2(side, ahead), self.sphere.radius * atanh(up))
    }

    pub(super) fn inverse(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let lon = x / self.sphere.radius;
        // Beyond half a turn the map repeats itself.
        (lon.abs() <= std::f64::consts::PI).then(|| {
            let isometric = y / self.sphere.radius;
            let cosine = 1.0 / cosh(isometric);
            let (sin_lon, cos_lon) = sincos(lon);
            self.sphere.geodetic(self.sphere.raise([cosine * cos_lon, cosine * sin_lon, tanh(isometric)]))
        })
    }
}
