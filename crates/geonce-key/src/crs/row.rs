//! What a row of the table holds: parameters as the EPSG dataset gives them, nothing computed.

use super::datum::Datum;

/// Metres per unit of the coordinates.
pub(super) const METRE: f64 = 1.0;
/// The international foot.
pub(super) const FOOT: f64 = 0.3048;
/// The US survey foot.
pub(super) const FOOT_US: f64 = 1200.0 / 3937.0;

/// One system: what it is called, how it is projected, and on which datum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) code: u32,
    pub(super) name: &'static str,
    pub(super) datum: &'static Datum,
    pub(super) projection: Projection,
    pub(super) unit: f64,
}

pub(super) const fn row(
    code: u32,
    name: &'static str,
    datum: &'static Datum,
    projection: Projection,
    unit: f64,
) -> Row {
    Row { code, name, datum, projection, unit }
}

/// Where a projection's coordinates start: degrees, and metres added to the coordinates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) lat: f64,
    pub(super) lon: f64,
    pub(super) x: f64,
    pub(super) y: f64,
}

/// A projection's parameters: angles in degrees, lengths in metres.
#[derive(Clone, Copy, Debug)]
pub(super) enum Projection {
    /// Longitude and latitude in degrees.
    LonLat,
    /// Spherical Mercator on the WGS 84 semi-major axis (EPSG method 1024).
    WebMercator,
    /// Transverse Mercator (9807).
    TransverseMercator { origin: Origin, scale: f64 },
    /// Lambert conformal conic with two standard parallels (9802).
    LambertConformal { origin: Origin, parallels: [f64; 2] },
    /// Albers equal area (9822).
    Albers { origin: Origin, parallels: [f64; 2] },
    /// Lambert azimuthal equal area (9820).
    LambertAzimuthal { origin: Origin },
    /// Oblique stereographic (9809).
    Stereographic { origin: Origin, scale: f64 },
    /// The Swiss oblique Mercator: 9815 with azimuth 90° and scale 1.
    Swiss { origin: Origin },
}

pub(super) const fn tm(lat: f64, lon: f64, scale: f64, x: f64, y: f64) -> Projection {
    Projection::TransverseMercator { origin: Origin { lat, lon, x, y }, scale }
}

pub(super) const fn lcc(lat: f64, lon: f64, first: f64, second: f64, x: f64, y: f64) -> Projection {
    Projection::LambertConformal { origin: Origin { lat, lon, x, y }, parallels: [first, second] }
}

pub(super) const fn albers(lat: f64, lon: f64, first: f64, second: f64, x: f64, y: f64) -> Projection {
    Projection::Albers { origin: Origin { lat, lon, x, y }, parallels: [first, second] }
}

pub(super) const fn laea(lat: f64, lon: f64, x: f64, y: f64) -> Projection {
    Projection::LambertAzimuthal { origin: Origin { lat, lon, x, y } }
}

pub(super) const fn sterea(lat: f64, lon: f64, scale: f64, x: f64, y: f64) -> Projection {
    Projection::Stereographic { origin: Origin { lat, lon, x, y }, scale }
}

pub(super) const fn swiss(lat: f64, lon: f64, x: f64, y: f64) -> Projection {
    Projection::Swiss { origin: Origin { lat, lon, x, y } }
}
