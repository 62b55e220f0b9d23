//! What becomes of an event that goes into the row of another: pure, the same at every sink whose rows take others in.

use crate::event::{Cause, Class};
use geonce_key::{Kind, Shape, crs};

/// An event that goes into the row of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
    /// The key of the row that takes it in, or of an event that went into that row before.
    pub into: [u8; 16],
    /// Whether points become the mean of all that went into the row. Otherwise, and for all else, the later one wins.
    pub mean: bool,
}

/// Why an event is dead that is to go into a row where no row takes others in.
pub(crate) fn no_place() -> Cause {
    let message = "only rows of events in a GeoPackage or in PostGIS take others in, and these are none";
    Cause::new(Class::Schema, "merge", message)
}

/// The mean of a row's point, which stands for so many events, and the point of one more; none where either is no point.
pub(crate) fn mean(row: &Shape<f64>, events: u32, more: &Shape<f64>, code: u32) -> Option<Shape<f64>> {
    let (from, to) = (point(row)?, point(more)?);
    let share = 1.0 / (f64::from(events) + 1.0);
    let mut step = [0, 1, 2].map(|axis| to[axis] - from[axis]);
    let turns = crs::lookup(code).is_some_and(|system| system.is_geographic());
    if turns && step[0].abs() > HALF_TURN_DEGREES {
        // The short way, which leads over the antimeridian.
        step[0] -= 2.0 * HALF_TURN_DEGREES.copysign(step[0]);
    }
    let mut mean = [0, 1, 2].map(|axis| step[axis].mul_add(share, from[axis]));
    if turns && mean[0].abs() > HALF_TURN_DEGREES {
        mean[0] -= 2.0 * HALF_TURN_DEGREES.copysign(mean[0]);
    }
    // A height that only one of them has is nothing to take a mean with.
    mean[2] = match (row.has_z, more.has_z) {
        (true, true) => mean[2],
        (true, false) => from[2],
        (false, _) => to[2],
    };
    let mut shape = more.clone();
    shape.has_z |= row.has_z;
    shape.positions = vec![mean];
    Some(shape)
}

const HALF_TURN_DEGREES: f64 = 180.0;

/// The position of a point, also of one that is the only one of a Multi….
fn point(shape: &Shape<f64>) -> Option<[f64; 3]> {
    match (&shape.members[..], &shape.positions[..]) {
        ([member], [position]) if !shape.collection && member.kind.part() == Kind::Point => Some(*position),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::mean;
    use geonce_key::{Limits, Shape, wkt};

    fn shape(text: &str) -> Shape<f64> {
        wkt::read(text.as_bytes(), &Limits::default()).unwrap().shape
    }

    fn mean_of(row: &str, events: u32, more: &str, code: u32) -> Option<String> {
        mean(&shape(row), events, &shape(more), code).map(|shape| wkt::write(&shape))
    }

    #[test]
    fn a_point_is_weighted_with_the_events_it_stands_for() {
        let text = |row, events, more, code| mean_of(row, events, more, code).unwrap();
        assert_eq!(text("POINT(0 0)", 1, "POINT(2 4)", 4326), wkt::write(&shape("POINT(1 2)")));
        assert_eq!(text("POINT(1 2)", 3, "POINT(5 -2)", 4326), wkt::write(&shape("POINT(2 1)")));
        assert_eq!(text("MULTIPOINT(0 0)", 1, "POINT(2 4)", 4326), wkt::write(&shape("POINT(1 2)")));
        assert_eq!(text("POINT Z(0 0 4)", 1, "POINT Z(2 4 6)", 4326), wkt::write(&shape("POINT Z(1 2 5)")));
        assert_eq!(text("POINT Z(0 0 4)", 1, "POINT(2 4)", 4326), wkt::write(&shape("POINT Z(1 2 4)")));
        assert_eq!(text("POINT(0 0)", 1, "POINT Z(2 4 6)", 4326), wkt::write(&shape("POINT Z(1 2 6)")));
    }

    #[test]
    fn the_mean_is_near_both_over_the_antimeridian_too() {
        let x = |row: &str, more: &str, code| mean(&shape(row), 1, &shape(more), code).unwrap().positions[0][0];
        assert!((x("POINT(179.75 0)", "POINT(-179.75 0)", 4326).abs() - 180.0).abs() < 1e-9);
        assert!((x("POINT(-179.75 0)", "POINT(179.25 0)", 4326) - 179.75).abs() < 1e-9);
        assert!((x("POINT(179.75 0)", "POINT(-179.25 0)", 4326) + 179.75).abs() < 1e-9);
        // In metres there is no way round.
        assert!(x("POINT(500000 0)", "POINT(-500000 0)", 3857).abs() < 1e-9);
    }

    #[test]
    fn only_points_have_a_mean() {
        for other in ["LINESTRING(0 0,1 1)", "MULTIPOINT(0 0,1 1)", "GEOMETRYCOLLECTION(POINT(1 1))"] {
            assert_eq!(mean_of("POINT(0 0)", 1, other, 4326), None, "{other}");
            assert_eq!(mean_of(other, 1, "POINT(0 0)", 4326), None, "{other}");
        }
    }
}
