//! The shortest way between two points on the WGS 84 ellipsoid, by Vincenty's formulae (1975).
//!
//! They settle in a few rounds unless the points are almost opposite each other. Such points, and all that are farther
//! apart through space than was asked for, are answered with "beyond", so nothing loops.

use super::space::{radians, squared};
use crate::crs::datum::{WGS84, geocentric};
use crate::shape::Position;
use std::f64::consts::PI;

/// What one distance costs in elementary steps.
pub(super) const STEPS: usize = 40;
/// Rounds within which points that are not opposite each other settle.
const ROUNDS_MAX: usize = 32;
/// Radians of longitude below which a round changes nothing that matters: a hundredth of a micrometre.
const SETTLED: f64 = 1e-15;

/// The distance in metres; none where it is certain to be more than `limit`.
pub(super) fn metres(a: &Position<i64>, b: &Position<i64>, limit: f64) -> Option<f64> {
    let ((lon_a, lat_a), (lon_b, lat_b)) = (radians(a), radians(b));
    let spot = |lon, lat| {
        let [x, y, z] = geocentric(WGS84, lon, lat);
        [x, y, z, 0.0]
    };
    let chord_squared = squared(&spot(lon_a, lat_a), &spot(lon_b, lat_b));
    // The way on the ground is not shorter than the one through it. A millimetre covers the rounding of both.
    if libm::sqrt(chord_squared) > limit + 1e-3 {
        return None;
    }
    vincenty(lon_b - lon_a, lat_a, lat_b)
}

#[expect(clippy::suboptimal_flops, reason = "a fused operation is not the same on every machine")]
fn vincenty(lon: f64, lat_a: f64, lat_b: f64) -> Option<f64> {
    let flattening = WGS84.f;
    let turn = if lon > PI {
        lon - 2.0 * PI
    } else if lon < -PI {
        lon + 2.0 * PI
    } else {
        lon
    };
    let reduced = |lat: f64| {
        let (sin, cos) = libm::sincos(lat);
        let length = libm::sqrt((1.0 - flattening) * (1.0 - flattening) * sin * sin + cos * cos);
        ((1.0 - flattening) * sin / length, cos / length)
    };
    let ((sin_a, cos_a), (sin_b, cos_b)) = (reduced(lat_a), reduced(lat_b));
    let mut lambda = turn;
    for _ in 0..ROUNDS_MAX {
        let (sin_lambda, cos_lambda) = libm::sincos(lambda);
        let (east, north) = (cos_b * sin_lambda, cos_a * sin_b - sin_a * cos_b * cos_lambda);
        let sin_sigma = libm::sqrt(east * east + north * north);
        if sin_sigma == 0.0 {
            return Some(0.0);
        }
        let cos_sigma = sin_a * sin_b + cos_a * cos_b * cos_lambda;
        let sigma = libm::atan2(sin_sigma, cos_sigma);
        let sin_alpha = cos_a * cos_b * sin_lambda / sin_sigma;
        let cos2_alpha = 1.0 - sin_alpha * sin_alpha;
        // On the equator the middle has no latitude to speak of.
        let middle = if cos2_alpha > 0.0 { cos_sigma - 2.0 * sin_a * sin_b / cos2_alpha } else { 0.0 };
        let c = flattening / 16.0 * cos2_alpha * (4.0 + flattening * (4.0 - 3.0 * cos2_alpha));
        let bent = sigma + c * sin_sigma * (middle + c * cos_sigma * (2.0 * middle * middle - 1.0));
        let next = turn + (1.0 - c) * flattening * sin_alpha * bent;
        let change = (next - lambda).abs();
        lambda = next;
        if lambda.abs() > PI {
            return None;
        }
        if change <= SETTLED {
            return Some(length(sigma, sin_sigma, cos_sigma, cos2_alpha, middle));
        }
    }
    None
}

fn length(sigma: f64, sin_sigma: f64, cos_sigma: f64, cos2_alpha: f64, middle: f64) -> f64 {
    let minor = WGS84.a * (1.0 - WGS84.f);
    let u2 = cos2_alpha * (WGS84.a * WGS84.a - minor * minor) / (minor * minor);
    let a = 1.0 + u2 / 16384.0 * (4096.0 + u2 * (u2 * (320.0 - 175.0 * u2) - 768.0));
    let b = u2 / 1024.0 * (256.0 + u2 * (u2 * (74.0 - 47.0 * u2) - 128.0));
    let middle2 = middle * middle;
    let third = b / 6.0 * middle * (4.0 * sin_sigma * sin_sigma - 3.0) * (4.0 * middle2 - 3.0);
    let shift = b * sin_sigma * (middle + b / 4.0 * (cos_sigma * (2.0 * middle2 - 1.0) - third));
    minor * a * (sigma - shift)
}
