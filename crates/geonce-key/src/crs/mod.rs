//! Coordinate systems of the `g1` key: what a declaration means, and one fixed operation per code to WGS 84.
//!
//! The same input gives the same bits on every platform: only IEEE 754 basic operations and the `libm` crate are used,
//! never the platform's mathematical library. Axis order is always x, y: easting or longitude first, also for EPSG:4326.
//! Nothing here reads grids, chooses operations by place, wraps longitudes or looks at heights.

mod conic;
pub(crate) mod datum;
mod latitude;
mod map;
mod oblique;
mod parse;
mod row;
#[rustfmt::skip]
mod table;
mod transverse;
mod wkt;
mod zones;

#[cfg(test)]
mod tests;

use datum::{DEGREE, Datum, RADIAN, Shift, WGS84, WGS84_DATUM, within_half_turn};
use map::Map;
use row::{Coordinates, METRE, Row, row};

use crate::Result;

pub use parse::parse;

/// Operations that EPSG rates at this accuracy or worse are approximate: ballpark shifts and those that want a grid.
const APPROXIMATE_M: f64 = 2.0;

static WGS84_ROW: Row = row(4326, "WGS 84", &WGS84_DATUM, Coordinates::LonLat, METRE);
static WEB_MERCATOR_ROW: Row = row(3857, "WGS 84 / Pseudo-Mercator", &WGS84_DATUM, Coordinates::WebMercator, METRE);

/// A coordinate system of the table, ready to convert. Making one costs about a microsecond: keep it for a payload.
#[derive(Clone, Copy, Debug)]
pub struct Crs {
    code: u32,
    name: &'static str,
    datum: &'static Datum,
    /// Metres per unit.
    unit: f64,
    step: Step,
    shift: Option<Shift>,
}

/// From coordinates to longitude and latitude on the system's own datum.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "made once per payload and kept; a box would cost an allocation and Copy"
)]
enum Step {
    LonLat,
    WebMercator,
    Map(Map),
}

/// Half the circumference of Web Mercator's sphere: the easting of 180°. Dividing by it, rather than by the radius,
/// makes the edge of the world map exactly 180° instead of a rounding error more, which would be out of bounds.
const WEB_HALF_M: f64 = 6_378_137.0 * std::f64::consts::PI;

/// The system with this EPSG code. The codes in use for Web Mercator before it had one (3785, 900913, and Esri's
/// 102100 and 102113) are EPSG:3857.
pub fn lookup(code: u32) -> Option<Crs> {
    Some(Crs::new(&find_row(code)?))
}

fn find_row(code: u32) -> Option<Row> {
    Some(match code {
        4326 => WGS84_ROW,
        3857 | 3785 | 102_100 | 102_113 | 900_913 => WEB_MERCATOR_ROW,
        _ => match table::ROWS.binary_search_by_key(&code, |row| row.code) {
            Ok(found) => *table::ROWS.get(found)?,
            Err(_) => zones::find(code)?,
        },
    })
}

/// The system with this code, or the refusal of a code that is not in the table.
pub(crate) fn find(code: u32) -> Result<Crs> {
    lookup(code).ok_or_else(|| parse::unknown(code))
}

impl Crs {
    fn new(row: &Row) -> Self {
        let ellipsoid = row.datum.ellipsoid;
        let step = match &row.coordinates {
            Coordinates::LonLat => Step::LonLat,
            Coordinates::WebMercator => Step::WebMercator,
            Coordinates::Map(projection) => Step::Map(Map::new(ellipsoid, projection)),
        };
        let shift = row.datum.shift.map(|parameters| Shift::new(*ellipsoid, parameters));
        Crs { code: row.code, name: row.name, datum: row.datum, unit: row.unit, step, shift }
    }

    /// The EPSG code; two declarations mean the same system when their codes are equal.
    pub fn code(&self) -> u32 {
        self.code
    }

    /// The EPSG name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The system in well-known text, version 1 (OGC 01-009), with EPSG's names and codes, for coordinates in the order
    /// x, y.
    pub fn wkt(&self) -> Option<String> {
        wkt::write(&find_row(self.code)?)
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

    /// Whether coordinates are longitude and latitude in degrees, of whatever datum.
    pub fn is_geographic(&self) -> bool {
        matches!(self.step, Step::LonLat)
    }

    /// Longitude and latitude in degrees; `None` outside the projection's domain or where nothing finite comes out.
    ///
    /// Longitudes are not wrapped: a position east of 180° in zone 60 has a longitude above 180.
    pub fn to_wgs84(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let (lon, lat) = match &self.step {
            Step::LonLat => (x, y),
            Step::WebMercator => (x / WEB_HALF_M * 180.0, libm::atan(libm::sinh(y / WGS84.a)) * DEGREE),
            Step::Map(map) => self.unproject(map, x * self.unit, y * self.unit)?,
        };
        (lon.is_finite() && lat.is_finite()).then_some((lon, lat))
    }

    /// The inverse of [`Crs::to_wgs84`]; `None` also for longitudes beyond a whole turn and latitudes beyond a pole.
    pub fn from_wgs84(&self, lon: f64, lat: f64) -> Option<(f64, f64)> {
        // Web Mercator's own edge comes out a rounding error beyond 180°, so that cannot be the limit.
        let on_earth = lon.abs() <= 360.0 && lat.abs() <= 90.0;
        if !on_earth {
            return None;
        }
        let (x, y) = match &self.step {
            Step::LonLat => (lon, lat),
            // The poles are infinitely far away; the double nearest to 90° would only be very far.
            Step::WebMercator if lat.abs() >= 90.0 => return None,
            Step::WebMercator => (lon / 180.0 * WEB_HALF_M, WGS84.a * libm::asinh(libm::tan(lat * RADIAN))),
            Step::Map(map) => {
                let (x, y) = self.project(map, lon, lat)?;
                (x / self.unit, y / self.unit)
            }
        };
        (x.is_finite() && y.is_finite()).then_some((x, y))
    }

    /// From metres to degrees on WGS 84.
    fn unproject(&self, map: &Map, x: f64, y: f64) -> Option<(f64, f64)> {
        let (turn, lat) = map.inverse(x, y)?;
        Some(match &self.shift {
            None => (map.origin.lon + turn * DEGREE, lat * DEGREE),
            Some(shift) => {
                let (lon, lat) = shift.apply(map.origin.lon * RADIAN + turn, lat);
                (lon * DEGREE, lat * DEGREE)
            }
        })
    }

    /// From degrees on WGS 84 to metres.
    fn project(&self, map: &Map, lon: f64, lat: f64) -> Option<(f64, f64)> {
        let (lon, lat) = match &self.shift {
            None => (lon, lat * RADIAN),
            Some(shift) => {
                let (lon, lat) = shift.undo(lon * RADIAN, lat * RADIAN);
                (lon * DEGREE, lat)
            }
        };
        map.forward(within_half_turn(lon - map.origin.lon, 180.0) * RADIAN, lat)
    }
}
