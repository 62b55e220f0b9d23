//! Coordinate systems of the `g1` key: what a declaration means, and one fixed operation per code to WGS 84.
//!
//! The same input gives the same bits on every platform: only IEEE 754 basic operations and the `libm` crate are used,
//! never the platform's mathematical library. Axis order is always x, y: easting or longitude first, also for EPSG:4326.
//! Nothing here reads grids, chooses operations by place, wraps longitudes or looks at heights.

mod conic;
mod datum;
mod latitude;
mod oblique;
mod parse;
mod row;
#[rustfmt::skip]
mod table;
mod transverse;
mod zones;

#[cfg(test)]
mod tests;

use conic::{Albers, LambertConformal};
use datum::{DEGREE, Datum, RADIAN, Shift, WGS84, WGS84_DATUM};
use oblique::{LambertAzimuthal, Stereographic, Swiss};
use row::{METRE, Origin, Projection, Row, row};
use transverse::TransverseMercator;

pub use parse::parse;

use crate::Result;

/// Operations that EPSG rates at this accuracy or worse are approximate: ballpark shifts and those that want a grid.
const APPROXIMATE_M: f64 = 2.0;

static WGS84_ROW: Row = row(4326, "WGS 84", &WGS84_DATUM, Projection::LonLat, METRE);
static WEB_MERCATOR_ROW: Row = row(3857, "WGS 84 / Pseudo-Mercator", &WGS84_DATUM, Projection::WebMercator, METRE);

/// A coordinate system of the table, ready to convert. Making one costs about a microsecond: keep it for a payload.
#[derive(Clone, Copy, Debug)]
pub struct Crs {
    code: u32,
    name: &'static str,
    datum: &'static Datum,
    /// Metres per unit.
    unit: f64,
    origin: Origin,
    method: Method,
    shift: Option<Shift>,
}

/// A projection with everything computed that does not depend on the position.
#[derive(Clone, Copy, Debug)]
enum Method {
    LonLat,
    WebMercator,
    TransverseMercator(TransverseMercator),
    LambertConformal(LambertConformal),
    Albers(Albers),
    LambertAzimuthal(LambertAzimuthal),
    Stereographic(Stereographic),
    Swiss(Swiss),
}

/// The system with this EPSG code. The codes in use for Web Mercator before it had one (3785, 900913, and Esri's
/// 102100 and 102113) are EPSG:3857.
pub fn lookup(code: u32) -> Option<Crs> {
    let row = match code {
        4326 => WGS84_ROW,
        3857 | 3785 | 102_100 | 102_113 | 900_913 => WEB_MERCATOR_ROW,
        _ => match table::ROWS.binary_search_by_key(&code, |row| row.code) {
            Ok(found) => *table::ROWS.get(found)?,
            Err(_) => zones::find(code)?,
        },
    };
    Some(Crs::new(&row))
}

/// The system with this code, or the refusal of a code that is not in the table.
pub(crate) fn find(code: u32) -> Result<Crs> {
    lookup(code).ok_or_else(|| parse::unknown(code))
}

impl Crs {
    fn new(row: &Row) -> Self {
        let ellipsoid = row.datum.ellipsoid;
        let none = Origin { lat: 0.0, lon: 0.0, x: 0.0, y: 0.0 };
        let (origin, method) = match row.projection {
            Projection::LonLat => (none, Method::LonLat),
            Projection::WebMercator => (none, Method::WebMercator),
            Projection::TransverseMercator { origin, scale } => {
                let made = TransverseMercator::new(ellipsoid, origin.lat * RADIAN, scale);
                (origin, Method::TransverseMercator(made))
            }
            Projection::LambertConformal { origin, parallels } => {
                let made = LambertConformal::new(ellipsoid, origin.lat * RADIAN, parallels.map(|lat| lat * RADIAN));
                (origin, Method::LambertConformal(made))
            }
            Projection::Albers { origin, parallels } => {
                let made = Albers::new(ellipsoid, origin.lat * RADIAN, parallels.map(|lat| lat * RADIAN));
                (origin, Method::Albers(made))
            }
            Projection::LambertAzimuthal { origin } => {
                (origin, Method::LambertAzimuthal(LambertAzimuthal::new(ellipsoid, origin.lat * RADIAN)))
            }
            Projection::Stereographic { origin, scale } => {
                (origin, Method::Stereographic(Stereographic::new(ellipsoid, origin.lat * RADIAN, scale)))
            }
            Projection::Swiss { origin } => (origin, Method::Swiss(Swiss::new(ellipsoid, origin.lat * RADIAN))),
        };
        let shift = row.datum.shift.map(|parameters| Shift::new(*ellipsoid, parameters));
        Crs { code: row.code, name: row.name, datum: row.datum, unit: row.unit, origin, method, shift }
    }

    /// The EPSG code; two declarations mean the same system when their codes are equal.
    pub fn code(&self) -> u32 {
        self.code
    }

    /// The EPSG name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The fixed operation from the system's datum to WGS 84: EPSG code and name.
    pub fn operation(&self) -> &'static str {
        self.datum.operation
    }

    /// How exact EPSG says the operation is, in metres; zero for systems on WGS 84.
    pub fn accuracy_m(&self) -> f64 {
        self.datum.accuracy_m
    }

    /// Whether the operation stands in for a better one that needs a grid or an epoch (two metres or worse). The
    /// result is as repeatable as any other; it is the place that may be metres off.
    pub fn is_approximate(&self) -> bool {
        self.datum.accuracy_m >= APPROXIMATE_M
    }

    /// Whether coordinates are WGS 84 longitude and latitude already. They are passed on without arithmetic.
    pub fn is_geographic_wgs84(&self) -> bool {
        self.code == WGS84_ROW.code
    }

    /// Longitude and latitude in degrees; `None` outside the projection's domain or where nothing finite comes out.
    ///
    /// Longitudes are not wrapped: a position east of 180° in zone 60 has a longitude above 180.
    pub fn to_wgs84(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let (lon, lat) = if matches!(self.method, Method::LonLat) {
            (x, y)
        } else {
            let (turn, lat) = self.inverse(x * self.unit - self.origin.x, y * self.unit - self.origin.y)?;
            match &self.shift {
                None => (self.origin.lon + turn * DEGREE, lat * DEGREE),
                Some(shift) => {
                    let (lon, lat) = shift.apply(self.origin.lon * RADIAN + turn, lat);
                    (lon * DEGREE, lat * DEGREE)
                }
            }
        };
        (lon.is_finite() && lat.is_finite()).then_some((lon, lat))
    }

    /// The inverse of [`Crs::to_wgs84`]; `None` also for longitudes beyond ±180 and latitudes beyond ±90.
    pub fn from_wgs84(&self, lon: f64, lat: f64) -> Option<(f64, f64)> {
        if !(lon.abs() <= 180.0 && lat.abs() <= 90.0) {
            return None;
        }
        let (x, y) = if matches!(self.method, Method::LonLat) {
            (lon, lat)
        } else {
            let (turn, lat) = match &self.shift {
                None => (within_half_turn(lon - self.origin.lon) * RADIAN, lat * RADIAN),
                Some(shift) => {
                    let (lon, lat) = shift.undo(lon * RADIAN, lat * RADIAN);
                    (within_half_turn(lon * DEGREE - self.origin.lon) * RADIAN, lat)
                }
            };
            let (x, y) = self.forward(turn, lat)?;
            ((x + self.origin.x) / self.unit, (y + self.origin.y) / self.unit)
        };
        (x.is_finite() && y.is_finite()).then_some((x, y))
    }

    /// From longitude from the origin and latitude, in radians on the system's own ellipsoid, to metres.
    fn forward(&self, turn: f64, lat: f64) -> Option<(f64, f64)> {
        match &self.method {
            Method::LonLat => Some((turn, lat)),
            Method::WebMercator => {
                // The poles are infinitely far away; the double nearest to 90° would only be very far.
                let isometric = libm::asinh(libm::tan(lat));
                (lat.abs() < std::f64::consts::FRAC_PI_2).then_some((WGS84.a * turn, WGS84.a * isometric))
            }
            Method::TransverseMercator(method) => method.forward(turn, lat),
            Method::LambertConformal(method) => method.forward(turn, lat),
            Method::Albers(method) => Some(method.forward(turn, lat)),
            Method::LambertAzimuthal(method) => method.forward(turn, lat),
            Method::Stereographic(method) => method.forward(turn, lat),
            Method::Swiss(method) => Some(method.forward(turn, lat)),
        }
    }

    /// From metres to longitude from the origin and latitude, in radians on the system's own ellipsoid.
    fn inverse(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        match &self.method {
            Method::LonLat => Some((x, y)),
            Method::WebMercator => Some((x / WGS84.a, libm::atan(libm::sinh(y / WGS84.a)))),
            Method::TransverseMercator(method) => method.inverse(x, y),
            Method::LambertConformal(method) => method.inverse(x, y),
            Method::Albers(method) => method.inverse(x, y),
            Method::LambertAzimuthal(method) => method.inverse(x, y),
            Method::Stereographic(method) => Some(method.inverse(x, y)),
            Method::Swiss(method) => method.inverse(x, y),
        }
    }
}

/// The same angle between -180° and 180°, given one between -540° and 540°.
fn within_half_turn(degrees: f64) -> f64 {
    if degrees > 180.0 {
        degrees - 360.0
    } else if degrees < -180.0 {
        degrees + 360.0
    } else {
        degrees
    }
}
