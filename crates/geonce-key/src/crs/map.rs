//! An ellipsoidal projection around its origin: the one place that knows all of them.

use super::conic::{Albers, LambertConformal};
use super::datum::{Ellipsoid, RADIAN};
use super::oblique::{LambertAzimuthal, Stereographic, Swiss};
use super::row::{self, Origin, Projection};
use super::transverse::TransverseMercator;

/// A projection with everything computed that does not depend on the position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Map {
    pub(super) origin: Origin,
    method: Method,
}

#[derive(Clone, Copy, Debug)]
enum Method {
    TransverseMercator(TransverseMercator),
    LambertConformal(LambertConformal),
    Albers(Albers),
    LambertAzimuthal(LambertAzimuthal),
    Stereographic(Stereographic),
    Swiss(Swiss),
}

impl Map {
    pub(super) fn new(ellipsoid: &Ellipsoid, projection: &Projection) -> Self {
        let radians = |parallels: [f64; 2]| parallels.map(|lat| lat * RADIAN);
        let lat = projection.origin.lat * RADIAN;
        let method = match projection.method {
            row::Method::TransverseMercator { scale } => {
                Method::TransverseMercator(TransverseMercator::new(ellipsoid, lat, scale))
            }
            row::Method::LambertConformal { parallels } => {
                Method::LambertConformal(LambertConformal::new(ellipsoid, lat, radians(parallels)))
            }
            row::Method::Albers { parallels } => Method::Albers(Albers::new(ellipsoid, lat, radians(parallels))),
            row::Method::LambertAzimuthal => Method::LambertAzimuthal(LambertAzimuthal::new(ellipsoid, lat)),
            row::Method::Stereographic { scale } => Method::Stereographic(Stereographic::new(ellipsoid, lat, scale)),
            row::Method::Swiss => Method::Swiss(Swiss::new(ellipsoid, lat)),
        };
        Map { origin: projection.origin, method }
    }

    /// From longitude from the origin and latitude, in radians on the system's own ellipsoid, to metres.
    pub(super) fn forward(&self, turn: f64, lat: f64) -> Option<(f64, f64)> {
        let (x, y) = match &self.method {
            Method::TransverseMercator(method) => method.forward(turn, lat)?,
            Method::LambertConformal(method) => method.forward(turn, lat)?,
            Method::Albers(method) => method.forward(turn, lat),
            Method::LambertAzimuthal(method) => method.forward(turn, lat)?,
            Method::Stereographic(method) => method.forward(turn, lat)?,
            Method::Swiss(method) => method.forward(turn, lat),
        };
        Some((x + self.origin.x, y + self.origin.y))
    }

    /// From metres to longitude from the origin and latitude, in radians on the system's own ellipsoid.
    pub(super) fn inverse(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let (x, y) = (x - self.origin.x, y - self.origin.y);
        match &self.method {
            Method::TransverseMercator(method) => method.inverse(x, y),
            Method::LambertConformal(method) => method.inverse(x, y),
            Method::Albers(method) => method.inverse(x, y),
            Method::LambertAzimuthal(method) => method.inverse(x, y),
            Method::Stereographic(method) => Some(method.inverse(x, y)),
            Method::Swiss(method) => method.inverse(x, y),
        }
    }
}
