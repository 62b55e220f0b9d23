//! Auxiliary latitudes: conformal and authalic latitude and back, to rounding error for Earth-like ellipsoids.
//!
//! Series in the third flattening n to the sixth order (Engsager and Poder 2007; Karney 2011 and 2023); what they leave
//! out is below 1e-17 radians. The tests hold them against the closed forms.

use libm::{asinh, atan2, atanh, exp, sin, sincos, sqrt, tan};

use super::datum::Ellipsoid;

/// Coefficients of sin 2θ, sin 4θ … sin 12θ.
pub(super) type Series = [f64; 6];

/// Rows of polynomial coefficients, lowest power first: row k starts at n to the power k.
type Powers = [[f64; 6]; 6];

/// Evaluates each row at n. Row k holds the coefficients of n^k … n^6, padded with zeros.
pub(super) fn evaluate(rows: &Powers, n: f64) -> Series {
    let mut power = 1.0;
    rows.map(|row| {
        power *= n;
        power * row.iter().rev().fold(0.0, |sum, coefficient| sum * n + coefficient)
    })
}

/// The sum of `c_k` sin 2kθ by Clenshaw's recurrence, from the sine and cosine of 2θ.
pub(super) fn sum(series: &Series, sin2: f64, cos2: f64) -> f64 {
    let (mut one, mut two) = (0.0, 0.0);
    for coefficient in series.iter().rev() {
        (one, two) = (coefficient + 2.0 * cos2 * one - two, one);
    }
    one * sin2
}

#[rustfmt::skip]
const GEODETIC_TO_CONFORMAL: Powers = [
    [-2.0, 2.0 / 3.0, 4.0 / 3.0, -82.0 / 45.0, 32.0 / 45.0, 4_642.0 / 4_725.0],
    [5.0 / 3.0, -16.0 / 15.0, -13.0 / 9.0, 904.0 / 315.0, -1_522.0 / 945.0, 0.0],
    [-26.0 / 15.0, 34.0 / 21.0, 8.0 / 5.0, -12_686.0 / 2_835.0, 0.0, 0.0],
    [1_237.0 / 630.0, -12.0 / 5.0, -24_832.0 / 14_175.0, 0.0, 0.0, 0.0],
    [-734.0 / 315.0, 109_598.0 / 31_185.0, 0.0, 0.0, 0.0, 0.0],
    [444_337.0 / 155_925.0, 0.0, 0.0, 0.0, 0.0, 0.0],
];

#[rustfmt::skip]
const CONFORMAL_TO_GEODETIC: Powers = [
    [2.0, -2.0 / 3.0, -2.0, 116.0 / 45.0, 26.0 / 45.0, -2_854.0 / 675.0],
    [7.0 / 3.0, -8.0 / 5.0, -227.0 / 45.0, 2_704.0 / 315.0, 2_323.0 / 945.0, 0.0],
    [56.0 / 15.0, -136.0 / 35.0, -1_262.0 / 105.0, 73_814.0 / 2_835.0, 0.0, 0.0],
    [4_279.0 / 630.0, -332.0 / 35.0, -399_572.0 / 14_175.0, 0.0, 0.0, 0.0],
    [4_174.0 / 315.0, -144_838.0 / 6_237.0, 0.0, 0.0, 0.0, 0.0],
    [601_676.0 / 22_275.0, 0.0, 0.0, 0.0, 0.0, 0.0],
];

#[rustfmt::skip]
const AUTHALIC_TO_GEODETIC: Powers = [
    [4.0 / 3.0, 4.0 / 45.0, -16.0 / 35.0, -2_582.0 / 14_175.0, 60_136.0 / 467_775.0, 28_112_932.0 / 212_837_625.0],
    [46.0 / 45.0, 152.0 / 945.0, -11_966.0 / 14_175.0, -21_016.0 / 51_975.0, 251_310_128.0 / 638_512_875.0, 0.0],
    [3_044.0 / 2_835.0, 3_802.0 / 14_175.0, -94_388.0 / 66_825.0, -8_797_648.0 / 10_945_935.0, 0.0, 0.0],
    [6_059.0 / 4_725.0, 41_072.0 / 93_555.0, -1_472_637_812.0 / 638_512_875.0, 0.0, 0.0, 0.0],
    [768_272.0 / 467_775.0, 455_935_736.0 / 638_512_875.0, 0.0, 0.0, 0.0, 0.0],
    [4_210_684_958.0 / 1_915_538_625.0, 0.0, 0.0, 0.0, 0.0, 0.0],
];

/// Conformal latitude: the sphere's latitude at which angles are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conformal {
    e: f64,
    to: Series,
    from: Series,
}

impl Conformal {
    pub(super) fn new(ellipsoid: &Ellipsoid) -> Self {
        let n = ellipsoid.n();
        Conformal {
            e: sqrt(ellipsoid.e2()),
            to: evaluate(&GEODETIC_TO_CONFORMAL, n),
            from: evaluate(&CONFORMAL_TO_GEODETIC, n),
        }
    }

    /// Conformal latitude of a geodetic one.
    pub(super) fn of(&self, lat: f64) -> f64 {
        let (sin2, cos2) = sincos(2.0 * lat);
        lat + sum(&self.to, sin2, cos2)
    }

    /// Geodetic latitude of a conformal one, given as a direction that need not have length one.
    pub(super) fn geodetic(&self, sine: f64, cosine: f64) -> f64 {
        let square = sine * sine + cosine * cosine;
        let (sin2, cos2) = (2.0 * sine * cosine / square, (cosine * cosine - sine * sine) / square);
        atan2(sine, cosine) + sum(&self.from, sin2, cos2)
    }

    /// Isometric latitude: the northing of a Mercator map of unit scale.
    pub(super) fn isometric(&self, lat: f64) -> f64 {
        asinh(tan(lat)) - self.e * atanh(self.e * sin(lat))
    }

    /// Geodetic latitude of an isometric one, given as t = exp(-isometric).
    pub(super) fn at_exponential(&self, t: f64) -> f64 {
        self.geodetic((1.0 - t) * (1.0 + t), 2.0 * t)
    }

    /// Geodetic latitude of an isometric one.
    pub(super) fn at_isometric(&self, isometric: f64) -> f64 {
        self.at_exponential(exp(-isometric))
    }
}

/// Authalic latitude: the sphere's latitude at which areas are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Authalic {
    e2: f64,
    e: f64,
    /// Snyder's q at the pole.
    pub(super) q_pole: f64,
    from: Series,
}

impl Authalic {
    pub(super) fn new(ellipsoid: &Ellipsoid) -> Self {
        let e2 = ellipsoid.e2();
        let e = sqrt(e2);
        let q_pole = 1.0 + (1.0 - e2) * atanh(e) / e;
        Authalic { e2, e, q_pole, from: evaluate(&AUTHALIC_TO_GEODETIC, ellipsoid.n()) }
    }

    /// Snyder's q (3-12): the sine of the authalic latitude times its value at the pole.
    pub(super) fn q(&self, lat: f64) -> f64 {
        let sine = sin(lat);
        (1.0 - self.e2) * (sine / (1.0 - self.e2 * sine * sine) + atanh(self.e * sine) / self.e)
    }

    /// Geodetic latitude of an authalic one, given as sine and cosine.
    pub(super) fn geodetic(&self, sine: f64, cosine: f64) -> f64 {
        let square = sine * sine + cosine * cosine;
        let (sin2, cos2) = (2.0 * sine * cosine / square, (cosine * cosine - sine * sine) / square);
        atan2(sine, cosine) + sum(&self.from, sin2, cos2)
    }

    /// Radius of the parallel at `lat`, in units of the semi-major axis (Snyder's m, 14-15).
    pub(super) fn parallel(&self, lat: f64) -> f64 {
        parallel(self.e2, lat)
    }
}

/// Radius of the parallel at `lat`, in units of the semi-major axis.
pub(super) fn parallel(e2: f64, lat: f64) -> f64 {
    let (sine, cosine) = sincos(lat);
    cosine / sqrt(1.0 - e2 * sine * sine)
}

#[cfg(test)]
mod tests {
    use super::super::datum::{AIRY, BESSEL, GRS80, WGS84};
    use super::*;

    /// Latitudes from pole to pole in radians.
    fn latitudes() -> impl Iterator<Item = f64> {
        (-89..=89).map(|degree| f64::from(degree) * super::super::datum::RADIAN)
    }

    #[test]
    fn the_conformal_series_agree_with_the_closed_form() {
        for ellipsoid in [&AIRY, &BESSEL, &GRS80, &WGS84] {
            let conformal = Conformal::new(ellipsoid);
            for lat in latitudes() {
                let closed = libm::atan(libm::sinh(conformal.isometric(lat)));
                assert!((conformal.of(lat) - closed).abs() < 5e-16, "{lat}");
                assert!((conformal.geodetic(sin(closed), libm::cos(closed)) - lat).abs() < 1e-15, "{lat}");
            }
        }
    }

    #[test]
    fn the_authalic_series_agrees_with_the_closed_form() {
        for ellipsoid in [&AIRY, &BESSEL, &GRS80, &WGS84] {
            let authalic = Authalic::new(ellipsoid);
            for lat in latitudes().filter(|lat| lat.abs() < 1.4) {
                let sine = authalic.q(lat) / authalic.q_pole;
                let back = authalic.geodetic(sine, sqrt((1.0 - sine) * (1.0 + sine)));
                assert!((back - lat).abs() < 2e-15, "{lat} {back}");
            }
        }
    }
}
