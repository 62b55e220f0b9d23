//! Transverse Mercator on the ellipsoid, both ways, by Krüger's series to the sixth order in n.
//!
//! A few nanometres within 40° of the central meridian (Karney 2011, table 2); beyond that it answers `None`
//! instead of something less exact.

use libm::{atan2, atanh, cosh, sincos, sinh, sqrt};

use super::datum::Ellipsoid;
use super::latitude::{Conformal, Series, evaluate};

/// Scaled easting of a point on the equator 40° from the central meridian: atanh(sin 40°).
const ETA_MAX: f64 = 0.762_909_649_3;
const QUARTER: f64 = std::f64::consts::FRAC_PI_2;

#[rustfmt::skip]
const ALPHA: [[f64; 6]; 6] = [
    [1.0 / 2.0, -2.0 / 3.0, 5.0 / 16.0, 41.0 / 180.0, -127.0 / 288.0, 7_891.0 / 37_800.0],
    [13.0 / 48.0, -3.0 / 5.0, 557.0 / 1_440.0, 281.0 / 630.0, -1_983_433.0 / 1_935_360.0, 0.0],
    [61.0 / 240.0, -103.0 / 140.0, 15_061.0 / 26_880.0, 167_603.0 / 181_440.0, 0.0, 0.0],
    [49_561.0 / 161_280.0, -179.0 / 168.0, 6_601_661.0 / 7_257_600.0, 0.0, 0.0, 0.0],
    [34_729.0 / 80_640.0, -3_418_889.0 / 1_995_840.0, 0.0, 0.0, 0.0, 0.0],
    [212_378_941.0 / 319_334_400.0, 0.0, 0.0, 0.0, 0.0, 0.0],
];

#[rustfmt::skip]
const BETA: [[f64; 6]; 6] = [
    [1.0 / 2.0, -2.0 / 3.0, 37.0 / 96.0, -1.0 / 360.0, -81.0 / 512.0, 96_199.0 / 604_800.0],
    [1.0 / 48.0, 1.0 / 15.0, -437.0 / 1_440.0, 46.0 / 105.0, -1_118_711.0 / 3_870_720.0, 0.0],
    [17.0 / 480.0, -37.0 / 840.0, -209.0 / 4_480.0, 5_569.0 / 90_720.0, 0.0, 0.0],
    [4_397.0 / 161_280.0, -11.0 / 504.0, -830_251.0 / 7_257_600.0, 0.0, 0.0, 0.0],
    [4_583.0 / 161_280.0, -108_847.0 / 3_991_680.0, 0.0, 0.0, 0.0, 0.0],
    [20_648_693.0 / 638_668_800.0, 0.0, 0.0, 0.0, 0.0, 0.0],
];

/// A central meridian's map. Longitudes are relative to that meridian, northings to the latitude of origin.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransverseMercator {
    conformal: Conformal,
    alpha: Series,
    beta: Series,
    /// Scale times the radius of the rectifying sphere.
    radius: f64,
    /// Rectifying latitude of the origin.
    start: f64,
}

impl TransverseMercator {
    pub(super) fn new(ellipsoid: &Ellipsoid, lat: f64, scale: f64) -> Self {
        let n = ellipsoid.n();
        let n2 = n * n;
        let rectifying = ellipsoid.a / (1.0 + n) * (1.0 + n2 * (1.0 / 4.0 + n2 * (1.0 / 64.0 + n2 / 256.0)));
        let conformal = Conformal::new(ellipsoid);
        let alpha = evaluate(&ALPHA, n);
        let chi = conformal.of(lat);
        let start = chi + sum(&alpha, chi, 0.0).0;
        TransverseMercator { conformal, alpha, beta: evaluate(&BETA, n), radius: scale * rectifying, start }
    }

    pub(super) fn forward(&self, lon: f64, lat: f64) -> Option<(f64, f64)> {
        if lon.abs() > QUARTER {
            return None;
        }
        let (sin_chi, cos_chi) = sincos(self.conformal.of(lat));
        let (sin_lon, cos_lon) = sincos(lon);
        let xi = atan2(sin_chi, cos_chi * cos_lon);
        let eta = atanh(cos_chi * sin_lon);
        // Also false for NaN and infinity, which atanh gives at the side poles.
        (eta.abs() <= ETA_MAX).then(|| {
            let (north, east) = sum(&self.alpha, xi, eta);
            (self.radius * (eta + east), self.radius * (xi + north - self.start))
        })
    }

    pub(super) fn inverse(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let xi = y / self.radius + self.start;
        let eta = x / self.radius;
        (eta.abs() <= ETA_MAX && xi.abs() <= QUARTER).then(|| {
            let (north, east) = sum(&self.beta, xi, eta);
            let (sin_xi, cos_xi) = sincos(xi - north);
            let sinh_eta = sinh(eta - east);
            let lat = self.conformal.geodetic(sin_xi, sqrt(sinh_eta * sinh_eta + cos_xi * cos_xi));
            (atan2(sinh_eta, cos_xi), lat)
        })
    }
}

/// The sum of `c_k` sin 2k(ξ + iη) by Clenshaw's recurrence over complex numbers: real and imaginary part.
fn sum(series: &Series, xi: f64, eta: f64) -> (f64, f64) {
    let (sin2, cos2) = sincos(2.0 * xi);
    let (sinh2, cosh2) = (sinh(2.0 * eta), cosh(2.0 * eta));
    let (re, im) = (2.0 * cos2 * cosh2, -2.0 * sin2 * sinh2);
    let (mut one, mut two) = ((0.0, 0.0), (0.0, 0.0));
    for coefficient in series.iter().rev() {
        let next = (coefficient + re * one.0 - im * one.1 - two.0, re * one.1 + im * one.0 - two.1);
        (one, two) = (next, one);
    }
    let (sin_re, sin_im) = (sin2 * cosh2, cos2 * sinh2);
    (one.0 * sin_re - one.1 * sin_im, one.0 * sin_im + one.1 * sin_re)
}
