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
    pub(super) coordinates: Coordinates,
    pub(super) unit: f64,
}

pub(super) const fn row(
    code: u32,
    name: &'static str,
    datum: &'static Datum,
    coordinates: Coordinates,
    unit: f64,
) -> Row {
    Row { code, name, datum, coordinates, unit }
}

/// Where a projection's coordinates start: degrees, and metres added to the coordinates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) lat: f64,
    pub(super) lon: f64,
    pub(super) x: f64,
    pub(super) y: f64,
}

/// How coordinates relate to longitude and latitude.
#[derive(Clone, Copy, Debug)]
pub(super) enum Coordinates {
    /// Longitude and latitude in degrees.
    LonLat,
    /// Spherical Mercator on the WGS 84 semi-major axis (EPSG method 1024).
    WebMercator,
    /// An ellipsoidal projection.
    Map(Projection),
}

/// A projection's parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Projection {
    pub(super) origin: Origin,
    pub(super) method: Method,
}

/// A projection's method by its EPSG code, with the parameters that are its own. Parallels are in degrees.
#[derive(Clone, Copy, Debug)]
pub(super) enum Method {
    /// 9807.
    TransverseMercator { scale: f64 },
    /// 9802, with two standard parallels.
    LambertConformal { parallels: [f64; 2] },
    /// 9822.
    Albers { parallels: [f64; 2] },
    /// 9820.
    LambertAzimuthal,
    /// 9809.
    Stereographic { scale: f64 },
    /// The Swiss oblique Mercator: 9815 with azimuth 90° and scale 1.
    Swiss,
}

const fn map(lat: f64, lon: f64, x: f64, y: f64, method: Method) -> Coordinates {
    Coordinates::Map(Projection { origin: Origin { lat, lon, x, y }, method })
}

pub(super) const fn tm(lat: f64, lon: f64, scale: f64, x: f64, y: f64) -> Coordinates {
    map(lat, lon, x, y, Method::TransverseMercator { scale })
}

pub(super) const fn lcc(lat: f64, lon: f64, first: f64, second: f64, x: f64, y: f64) -> Coordinates {
    map(lat, lon, x, y, Method::LambertConformal { parallels: [first, second] })
}

pub(super) const fn albers(lat: f64, lon: f64, first: f64, second: f64, x: f64, y: f64) -> Coordinates {
    map(lat, lon, x, y, Method::Albers { parallels: [first, second] })
}

pub(super) const fn laea(lat: f64, lon: f64, x: f64, y: f64) -> Coordinates {
    map(lat, lon, x, y, Method::LambertAzimuthal)
}

pub(super) const fn sterea(lat: f64, lon: f64, scale: f64, x: f64, y: f64) -> Coordinates {
    map(lat, lon, x, y, Method::Stereographic { scale })
}

pub(super) const fn swiss(lat: f64, lon: f64, x: f64, y: f64) -> Coordinates {
    map(lat, lon, x, y, Method::Swiss)
}
