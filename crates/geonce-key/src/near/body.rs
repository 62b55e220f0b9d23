//! A geometry as it is kept for comparison: WGS 84, on a grid of its own, in canonical order.
//!
//! The grid is fixed at 10⁻⁹ degree whatever a policy's precision is, so that bodies of one source stay comparable when
//! its policy changes. Heights are kept in thousandths where they are delivered.

use crate::canonical::{Canonicalizer, Rules};
use crate::crs::{self, Crs};
use crate::key::refuse_approximate;
use crate::policy::Policy;
use crate::shape::{Kind, Position, Shape};
use crate::{Code, Error, Feature, Result};

/// Decimals of a degree.
const PLACES: u8 = 9;
/// Grid units of one degree.
pub(super) const UNITS_PER_DEGREE: f64 = 1e9;
/// Grid units of one unit of height.
pub(super) const UNITS_PER_HEIGHT: f64 = 1e3;

/// Largest numbers on the grid. Keys are rounded before they are checked, with zero decimals by half a degree, so
/// bodies reach a little further than the world.
pub(super) const BOUNDS: [i64; 3] = [181_000_000_000, 91_000_000_000, 1_000_000_000_000_000];

/// Consecutive positions no farther apart than this on each axis are one: a repeated position that got noise is still
/// a repeated position. About a millimetre.
const MERGED_UNITS: i64 = 10;

/// A geometry that can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body(Shape<i64>);

impl Body {
    /// The geometry of a feature that a source has accepted. Operations known to be approximate are taken where
    /// `approximate` accepts them. A feature without geometry is refused as `geojson_null_geometry`.
    pub fn new(feature: &Feature, approximate: bool) -> Result<Body> {
        let Some(delivered) = &feature.geometry else {
            let message = "a feature without geometry is near to nothing";
            return Err(Error::new(Code::GeojsonNullGeometry, "/geometry", message));
        };
        let crs = crs::find(feature.crs)?;
        refuse_approximate(&crs, approximate)?;
        let crs = (!crs.is_geographic_wgs84()).then_some(crs);
        let placed = place(delivered, crs.as_ref()).map_err(|e| e.under("/geometry"))?;
        let rules = Rules::new(&Policy { precision: PLACES, ..Policy::default() });
        let mut shape = Shape::new();
        Canonicalizer::default().run(&placed, &[], rules, &mut shape);
        Ok(Body(shape))
    }

    /// A body of a shape that is on the grid and in canonical order already.
    pub(super) fn of(shape: Shape<i64>) -> Body {
        Body(shape)
    }

    /// The geometry: longitude and latitude in units of 10⁻⁹ degree, height in thousandths. Rings are closed.
    pub fn shape(&self) -> &Shape<i64> {
        &self.0
    }

    /// The number of positions.
    pub fn positions(&self) -> usize {
        self.0.positions.len()
    }
}

/// The delivered shape on the grid, without repeated positions, its rings closed.
fn place(delivered: &Shape<f64>, crs: Option<&Crs>) -> Result<Shape<i64>> {
    let mut out = Shape::new();
    out.collection = delivered.collection;
    out.has_z = delivered.has_z;
    for member in delivered.members() {
        for part in member.parts() {
            for path in part.paths() {
                place_path(path, member.kind.part(), delivered.has_z, crs, &mut out)?;
                out.end_path();
            }
            out.end_part();
        }
        out.end_member(member.kind);
    }
    Ok(out)
}

fn place_path(path: &[Position<f64>], kind: Kind, has_z: bool, crs: Option<&Crs>, out: &mut Shape<i64>) -> Result<()> {
    let start = out.positions.len();
    // What was accepted as a ring ends where it starts, on the policy's grid at least.
    let open = if kind == Kind::Polygon && path.len() > 1 { &path[..path.len() - 1] } else { path };
    for position in open {
        let here = on_grid(position, has_z, crs)?;
        if out.positions.len() == start || !close(&here, &out.positions[out.positions.len() - 1]) {
            out.positions.push(here);
        }
    }
    if kind == Kind::Polygon
        && let Some(&first) = out.positions.get(start)
    {
        while out.positions.len() > start + 1 && close(&first, &out.positions[out.positions.len() - 1]) {
            out.positions.pop();
        }
        out.positions.push(first);
    }
    Ok(())
}

fn close(a: &Position<i64>, b: &Position<i64>) -> bool {
    a.iter().zip(b).all(|(a, b)| (a - b).abs() <= MERGED_UNITS)
}

fn on_grid(&[x, y, z]: &Position<f64>, has_z: bool, crs: Option<&Crs>) -> Result<Position<i64>> {
    let outside = || Error::new(Code::CrsDomain, "", format!("({x}, {y}) is not on Earth"));
    let (lon, lat) = match crs {
        None => (x, y),
        Some(crs) => crs.to_wgs84(x, y).ok_or_else(outside)?,
    };
    let height = if has_z { z * UNITS_PER_HEIGHT } else { 0.0 };
    let scaled = [lon * UNITS_PER_DEGREE, lat * UNITS_PER_DEGREE, height];
    let mut position = [0; 3];
    for axis in 0..3 {
        let rounded = scaled[axis].round_ties_even();
        #[expect(clippy::cast_precision_loss, reason = "the bounds are far below 2^53")]
        let inside = rounded.abs() <= BOUNDS[axis] as f64;
        if !inside {
            return Err(outside());
        }
        #[expect(clippy::cast_possible_truncation, reason = "a whole number within bounds that fit")]
        let whole = rounded as i64;
        position[axis] = whole;
    }
    Ok(position)
}
