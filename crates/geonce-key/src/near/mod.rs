//! How near two geometries are to each other: what tells a second measurement of a thing from another thing.
//!
//! Pure, and the same on every machine: integers, IEEE 754 basic operations and the `libm` crate. Every comparison
//! draws on a [`Budget`], and one that runs out is an answer of its own, never "near". Nothing here is part of a key.

mod body;
mod bytes;
mod cells;
mod frechet;
mod geodesic;
mod hausdorff;
mod overlap;
mod pair;
mod space;
mod vertex;

#[cfg(test)]
mod tests;

pub use body::Body;
pub use bytes::Damaged;
pub use cells::{Cells, WORLD};

use crate::shape::{Kind, Shape};
use crate::validity::tree::{Stop, Work};
use crate::{Code, Error, Limits, Result};

/// The largest threshold in metres. Beyond it the plane around a vertex says little, and cells have no neighbours left.
pub const THRESHOLD_M_MAX: f64 = 50_000.0;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Measure {
    /// The geodesic between two points on the WGS 84 ellipsoid, in metres.
    Metres,
    /// The largest displacement of a vertex, in metres; both geometries have the same vertices.
    Vertex,
    /// The farthest that a vertex of either geometry is from the other's linework, in metres.
    Hausdorff,
    /// The discrete Fréchet distance of lines, in metres.
    Frechet,
    /// The area in common as a share of the area of both, 0 to 1.
    Iou,
}

impl Measure {
    /// Every measure.
    pub const ALL: [Measure; 5] =
        [Measure::Metres, Measure::Vertex, Measure::Hausdorff, Measure::Frechet, Measure::Iou];

    /// Its name in configuration and answers.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Metres => "metres",
            Measure::Vertex => "vertex",
            Measure::Hausdorff => "hausdorff",
            Measure::Frechet => "frechet",
            Measure::Iou => "iou",
        }
    }

    /// The measure with this name.
    pub fn from_name(name: &str) -> Option<Measure> {
        Measure::ALL.into_iter().find(|measure| measure.name() == name)
    }
}

/// What counts as near.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// What is measured.
    pub measure: Measure,
    /// The largest distance in metres, or the smallest share of common area.
    pub threshold: f64,
    /// Whether a line may be near to the reverse of another.
    pub undirected: bool,
}

impl Rule {
    /// A rule for lines with a direction.
    pub fn new(measure: Measure, threshold: f64) -> Rule {
        Rule { measure, threshold, undirected: false }
    }

    /// Refuses a threshold that the measure cannot have.
    pub fn check(&self) -> Result<()> {
        let (fits, range) = match self.measure {
            Measure::Iou => (self.threshold > 0.0 && self.threshold <= 1.0, "above 0 and at most 1".to_owned()),
            _ => (self.threshold >= 0.0 && self.threshold <= THRESHOLD_M_MAX, format!("0 to {THRESHOLD_M_MAX} metres")),
        };
        if fits {
            return Ok(());
        }
        let message = format!("a threshold for {} is {range}, not {}", self.measure.name(), self.threshold);
        Err(Error::new(Code::PolicyInvalid, "", message))
    }
}

/// What a comparison found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    /// Near: the distance in metres, or the share of common area.
    Near(f64),
    /// Not near.
    Apart,
    /// The measure says nothing of such a pair: other types of geometry, or one has heights and the other none.
    Incomparable,
    /// The budget ran out before there was an answer.
    OverBudget,
}

/// Elementary steps that comparisons may take, about 10 ns each. One budget may serve several comparisons.
#[derive(Clone, Copy, Debug)]
pub struct Budget(Work);

impl Budget {
    /// A budget of so many steps.
    pub fn new(steps_max: u64) -> Budget {
        Budget(Work::new(steps_max))
    }

    /// Steps taken so far.
    pub fn used(&self) -> u64 {
        self.0.used
    }
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::new(Limits::default().work_max)
    }
}

/// Whether two geometries are near by `rule`, which should have passed [`Rule::check`].
///
/// The answer is the same whichever comes first, but where parts lie closer to each other than the threshold: then the
/// pairs found may differ, and with them the distance.
pub fn compare(a: &Body, b: &Body, rule: &Rule, budget: &mut Budget) -> Answer {
    let (one, other) = (a.shape(), b.shape());
    if !comparable(one, other, rule.measure) {
        return Answer::Incomparable;
    }
    if one == other {
        return Answer::Near(if rule.measure == Measure::Iou { 1.0 } else { 0.0 });
    }
    let work = &mut budget.0;
    let found = match rule.measure {
        Measure::Metres => work.spend(geodesic::STEPS).map(|()| points(one, other, rule.threshold)),
        Measure::Vertex | Measure::Frechet => pair::distance(one, other, rule, work),
        Measure::Hausdorff => hausdorff::distance(one, other, rule.threshold, work),
        Measure::Iou => overlap::share(one, other, rule.threshold, work),
    };
    match found {
        Ok(Some(value)) => Answer::Near(value),
        Ok(None) => Answer::Apart,
        Err(Stop::Budget | Stop::Enough) => Answer::OverBudget,
    }
}

/// Whether the measure is defined for this pair.
fn comparable(a: &Shape<i64>, b: &Shape<i64>, measure: Measure) -> bool {
    let class = (class(a), class(b));
    let same = matches!(class, (Some(a), Some(b)) if a == b);
    a.has_z == b.has_z
        && match measure {
            Measure::Metres => [a, b].iter().all(|shape| kinds(shape).eq([Kind::Point]) && !shape.collection),
            Measure::Vertex => a.collection == b.collection && kinds(a).eq(kinds(b)),
            Measure::Hausdorff => same,
            Measure::Frechet => same && class.0 == Some(Kind::LineString),
            Measure::Iou => same && class.0 == Some(Kind::Polygon),
        }
}

fn kinds(shape: &Shape<i64>) -> impl Iterator<Item = Kind> + '_ {
    shape.members.iter().map(|member| member.kind)
}

/// What all members are made of: points, lines or polygons; nothing where it is a mixture.
fn class(shape: &Shape<i64>) -> Option<Kind> {
    let mut parts = kinds(shape).map(Kind::part);
    let first = parts.next()?;
    parts.all(|kind| kind == first).then_some(first)
}

/// The distance of two points, heights included, where it is not beyond the threshold.
fn points(a: &Shape<i64>, b: &Shape<i64>, threshold: f64) -> Option<f64> {
    let (a, b) = (a.positions.first()?, b.positions.first()?);
    let up = space::height_m(a) - space::height_m(b);
    let along = geodesic::metres(a, b, threshold)?;
    let distance = libm::sqrt(along * along + up * up);
    (distance <= threshold).then_some(distance)
}
