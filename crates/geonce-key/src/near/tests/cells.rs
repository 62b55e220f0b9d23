//! Cells: what is near is found, wherever on Earth it is.

use super::{Random, geometry};
use crate::Kind;
use crate::near::{Body, Cells, Measure, WORLD};
use crate::shape::Shape;

/// A body of vertices in degrees, out of canonical order, which cells do not depend on.
fn line(vertices: &[[f64; 2]]) -> Body {
    let mut shape = Shape::new();
    let units = |[lon, lat]: &[f64; 2]| [(lon * 1e9).round() as i64, (lat * 1e9).round() as i64, 0];
    shape.positions.extend(vertices.iter().map(units));
    shape.end_path();
    shape.end_part();
    shape.end_member(if vertices.len() == 1 { Kind::Point } else { Kind::LineString });
    Body::of(shape)
}

/// A place `metres` away from another in some direction, on the sphere whose radius is the smallest of curvature, so
/// that it is never farther away on the ellipsoid.
fn step(random: &mut Random, [lon, lat]: [f64; 2], metres: f64) -> [f64; 2] {
    let (bearing, far) = (random.next() * std::f64::consts::TAU, metres / 6_399_600.0);
    let (lon, lat) = (lon.to_radians(), lat.to_radians());
    let north = (lat.sin() * far.cos() + lat.cos() * far.sin() * bearing.cos()).clamp(-1.0, 1.0).asin();
    let east = (bearing.sin() * far.sin() * lat.cos()).atan2(far.cos() - lat.sin() * north.sin());
    let turned = (lon + east).to_degrees();
    [
        if turned > 180.0 {
            turned - 360.0
        } else if turned < -180.0 {
            turned + 360.0
        } else {
            turned
        },
        north.to_degrees(),
    ]
}

/// Places all over the Earth, and where it is difficult: poles, the antimeridian, the twelve pentagons.
fn place(random: &mut Random, number: usize) -> [f64; 2] {
    let wobble = 10f64.powf(-6.0 * random.next());
    match number % 5 {
        0 => [random.within(180.0), 90.0 - wobble],
        1 => [180.0 - wobble * random.next(), random.within(80.0)],
        2 => {
            let pentagons: Vec<h3o::CellIndex> = h3o::Resolution::Zero.pentagons().collect();
            let centre = h3o::LatLng::from(pentagons[(random.next() * 12.0) as usize]);
            [(centre.lng() + random.within(wobble)).clamp(-180.0, 180.0), centre.lat() + random.within(wobble)]
        }
        3 => [random.within(180.0), -90.0 + wobble],
        _ => [random.within(180.0), (random.within(1.0)).asin().to_degrees()],
    }
}

#[test]
fn what_is_near_is_found_all_over_the_earth() {
    let mut random = Random(17);
    for radius in [0.0, 0.01, 1.0, 30.0, 1_000.0, 50_000.0] {
        let cells = Cells::new(Measure::Vertex, radius).unwrap();
        let (mut alone, mut rounds) = (0, 0);
        for number in 0..3_000 {
            let centre = place(&mut random, number);
            let count = 1 + number % 4;
            let size = radius.max(1.0) * 10f64.powf(3.0 * random.next());
            let vertices: Vec<[f64; 2]> =
                (0..count).map(|_| if count == 1 { centre } else { step(&mut random, centre, size) }).collect();
            // Everything moves as far as it may, together or each vertex its own way.
            let moved: Vec<[f64; 2]> = vertices.iter().map(|&vertex| step(&mut random, vertex, radius)).collect();
            let (a, b) = (line(&vertices), line(&moved));
            let around = cells.around(&a);
            assert!(around.contains(&cells.home(&a)) && around.len() <= 8);
            assert!(around.is_sorted() && around.windows(2).all(|pair| pair[0] != pair[1]));
            assert!(around.contains(&cells.home(&b)), "{radius} m: {vertices:?} and {moved:?}");
            alone += usize::from(around.len() == 1);
            rounds += 1;
        }
        assert!(alone * 10 > rounds * 2, "{radius} m: only {alone} of {rounds} need one cell");
    }
}

#[test]
fn shapes_as_large_as_the_world_have_one_cell_and_those_almost_so_look_there_too() {
    let cells = Cells::new(Measure::Vertex, 50_000.0).unwrap();
    let world = line(&[[-180.0, 0.0], [-90.0, 0.0], [0.0, 0.0], [90.0, 0.0]]);
    assert_eq!(cells.home(&world), WORLD);
    assert!(cells.around(&world).contains(&WORLD));
    assert_eq!(Cells::new(Measure::Vertex, 1.0).unwrap().around(&world), [WORLD]);
    // Two points on the equator, symmetric to the zero meridian: their box is as thin as their distance is wide.
    let mut random = Random(23);
    let mut both = 0;
    for _ in 0..3_000 {
        let width = 60.0 + random.within(0.5);
        let vertices = [[width, 0.0], [-width, 0.0]];
        let moved = vertices.map(|vertex| step(&mut random, vertex, 50_000.0));
        let (a, b) = (line(&vertices), line(&moved));
        assert!(cells.around(&a).contains(&cells.home(&b)));
        both += usize::from((cells.home(&a) == WORLD) != (cells.home(&b) == WORLD));
    }
    assert!(both > 0, "no pair on both sides of the limit");
}

#[test]
fn vertices_on_a_long_segment_do_not_move_the_anchor_of_hausdorff() {
    let mut random = Random(29);
    let cells = Cells::new(Measure::Hausdorff, 0.05).unwrap();
    for _ in 0..500 {
        let (from, to) = (place(&mut random, 4), place(&mut random, 4));
        let near = |share: f64| [from[0] + share * (to[0] - from[0]) * 0.1, from[1] + share * (to[1] - from[1]) * 0.1];
        let sparse = line(&[near(0.0), near(1.0)]);
        let dense: Vec<[f64; 2]> = (0..=40).map(|i| near(f64::from(i) / 40.0)).collect();
        assert!(cells.around(&sparse).contains(&cells.home(&line(&dense))), "{from:?} to {to:?}");
    }
}

#[test]
fn a_search_beyond_the_largest_radius_is_refused() {
    for radius in [-1.0, 50_001.0, f64::NAN] {
        assert!(Cells::new(Measure::Metres, radius).is_err());
    }
    assert_eq!(Cells::new(Measure::Metres, 0.0).unwrap().resolution(), 15);
    assert_eq!(Cells::new(Measure::Metres, 50_000.0).unwrap().resolution(), 0);
    assert_ne!(Cells::new(Measure::Metres, 10.0).unwrap().home(&geometry("Point", "[0,0]")), WORLD);
}
