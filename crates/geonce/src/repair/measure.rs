//! How much a repair changed, in metres on a plane that touches the earth where the geometry is: good to a few parts in a
//! thousand for what spans a degree or two, and no survey.

use geonce_key::shape::{Kind, MemberRef, Position, Shape};
use std::collections::HashSet;

/// Pairs of a vertex and a segment that are looked at before the largest shift is left unmeasured.
const SHIFT_WORK_MAX: usize = 20_000_000;
/// Metres in a degree of latitude, by the mean radius of the earth.
const DEGREE_M: f64 = 111_195.08;

/// A plane around a place.
#[derive(Clone, Copy)]
pub(super) struct Plane {
    west: f64,
    south: f64,
    x_m: f64,
}

impl Plane {
    /// The plane around the middle of a shape.
    pub(super) fn around(shape: &Shape<f64>) -> Plane {
        let (mut west, mut south, mut north) = (f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY);
        for [x, y, _] in &shape.positions {
            (west, south, north) = (west.min(*x), south.min(*y), north.max(*y));
        }
        let latitude = f64::midpoint(south, north);
        Plane { west, south, x_m: DEGREE_M * latitude.to_radians().cos().abs() }
    }

    fn place(self, position: &Position<f64>) -> [f64; 2] {
        [(position[0] - self.west) * self.x_m, (position[1] - self.south) * DEGREE_M]
    }

    /// The area as the rings say it, in square metres: for every part the exterior ring's less its holes'.
    pub(super) fn area_m2(self, shape: &Shape<f64>) -> f64 {
        let polygons = shape.members().filter(|member| member.kind.part() == Kind::Polygon);
        let ring = |path: &[Position<f64>]| {
            let twice: f64 = path
                .windows(2)
                .map(|edge| {
                    let ([ax, ay], [bx, by]) = (self.place(&edge[0]), self.place(&edge[1]));
                    ax * by - bx * ay
                })
                .sum();
            twice.abs() / 2.0
        };
        polygons
            .flat_map(MemberRef::parts)
            .map(|part| {
                part.paths().enumerate().map(|(n, path)| if n == 0 { ring(path) } else { -ring(path) }).sum::<f64>()
            })
            .sum()
    }

    /// The largest distance, in metres, between a vertex that only one of two shapes has and the linework of the other;
    /// `None` where finding it would take too long. Places that are the same on the grid are the same.
    pub(super) fn shift_max_m(self, before: &Shape<f64>, after: &Shape<f64>, precision: u8) -> Option<f64> {
        let one_way = |from: &Shape<f64>, to: &Shape<f64>| {
            let known: HashSet<[i64; 2]> = to.positions.iter().map(|at| rounded(at, precision)).collect();
            let moved: Vec<[f64; 2]> = from
                .positions
                .iter()
                .filter(|at| !known.contains(&rounded(at, precision)))
                .map(|at| self.place(at))
                .collect();
            if moved.len().saturating_mul(to.positions.len()) > SHIFT_WORK_MAX {
                return None;
            }
            Some(moved.iter().map(|at| self.distance(*at, to)).fold(0.0, f64::max))
        };
        Some(one_way(before, after)?.max(one_way(after, before)?))
    }

    fn distance(self, at: [f64; 2], linework: &Shape<f64>) -> f64 {
        let mut nearest = f64::INFINITY;
        for path in linework.all_paths() {
            let mut last = None;
            for position in path {
                let here = self.place(position);
                nearest = nearest.min(to_segment(at, last.unwrap_or(here), here));
                last = Some(here);
            }
        }
        nearest
    }
}

#[expect(clippy::cast_possible_truncation, reason = "degrees with nine decimals are far below 2^63")]
fn rounded(position: &Position<f64>, precision: u8) -> [i64; 2] {
    let unit = 10f64.powi(i32::from(precision));
    [(position[0] * unit).round() as i64, (position[1] * unit).round() as i64]
}

fn to_segment([x, y]: [f64; 2], [ax, ay]: [f64; 2], [bx, by]: [f64; 2]) -> f64 {
    let (dx, dy) = (bx - ax, by - ay);
    let square = dx * dx + dy * dy;
    let share = if square > 0.0 { (((x - ax) * dx + (y - ay) * dy) / square).clamp(0.0, 1.0) } else { 0.0 };
    (x - ax - share * dx).hypot(y - ay - share * dy)
}

#[cfg(test)]
mod tests {
    use super::Plane;
    use geonce_key::{Limits, Shape, wkt};

    fn shape(text: &str) -> Shape<f64> {
        wkt::read(text.as_bytes(), &Limits::default()).unwrap().shape
    }

    #[test]
    fn areas_and_shifts_are_those_of_the_ground() {
        let square = shape("POLYGON ((10 50,10.01 50,10.01 50.01,10 50.01,10 50))");
        let plane = Plane::around(&square);
        // 0.01° by 0.01° at 50° north: 795 300 m² on the ellipsoid.
        let area = plane.area_m2(&square);
        assert!((area / 795_300.0 - 1.0).abs() < 0.005, "{area}");
        let holed = shape(
            "POLYGON ((10 50,10.01 50,10.01 50.01,10 50.01,10 50),(10.001 50.001,10.002 50.001,10.002 50.002,10.001 50.001))",
        );
        assert!(plane.area_m2(&holed) < area);
        let spike = shape("POLYGON ((10 50,10.01 50,10.01 50.01,10 50.02,10 50.01,10 50))");
        let shift = plane.shift_max_m(&spike, &square, 7).unwrap();
        assert!((shift / 1_111.95 - 1.0).abs() < 0.01, "{shift}");
        assert_eq!(plane.shift_max_m(&square, &square, 7), Some(0.0));
    }
}
