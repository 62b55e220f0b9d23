//! A delivered geometry on the grid under any policy: what a key would see, without its fields.

use crate::canonical::{Canonicalizer, Rules};
use crate::crs::Crs;
use crate::grid::Gridder;
use crate::policy::{Detail, Policy};
use crate::shape::Shape;
use crate::simplify;

/// One of the two grids of `g1` point 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grid {
    /// Half to even: the key's.
    Even,
    /// From 5/11 up: the alias's.
    Safe,
}

/// A geometry on a grid, as delivered and in canonical form.
pub(super) struct Form {
    pub(super) delivered: Shape<i64>,
    pub(super) canonical: Shape<i64>,
    /// What the policy's `shape` leaves of it, where that is not everything.
    reduced: Option<Reduced>,
}

/// What counts of a geometry whose form does not count in full.
#[derive(PartialEq)]
enum Reduced {
    Simplified(Shape<i64>),
    Bounds(&'static str, [i64; 4]),
}

impl Form {
    fn new(delivered: Shape<i64>, unclosed: &[u32], canonicalizer: &mut Canonicalizer, policy: &Policy) -> Form {
        let rules = Rules::new(policy);
        let mut canonical = Shape::new();
        canonicalizer.run(&delivered, unclosed, rules, &mut canonical);
        let reduced = match policy.shape {
            Detail::Exact => None,
            Detail::Simplified => {
                let mut thin = canonical.clone();
                simplify::simplify(&mut thin, canonicalizer, rules);
                Some(Reduced::Simplified(thin))
            }
            Detail::Bbox => Some(Reduced::Bounds(canonical.type_name(), simplify::bounds(&canonical))),
        };
        Form { delivered, canonical, reduced }
    }

    /// Whether two geometries are the same, as far as the policy looks.
    fn equals(&self, other: &Form) -> bool {
        match (&self.reduced, &other.reduced) {
            (None, None) => self.canonical == other.canonical,
            (mine, theirs) => mine == theirs,
        }
    }
}

/// A geometry on both grids.
pub(super) struct Laid {
    even: Form,
    /// Where it differs from `even` in canonical form.
    safe: Option<Form>,
    /// Rings that policy closes, by path.
    unclosed: Vec<u32>,
}

impl Laid {
    /// `None` where the policy refuses the geometry.
    pub(super) fn new(shape: &Shape<f64>, crs: Option<&Crs>, policy: &Policy) -> Option<Laid> {
        let mut gridder = Gridder::new(policy);
        let mut canonicalizer = Canonicalizer::default();
        let mut delivered = Shape::new();
        gridder.shape(shape, crs, &mut delivered).ok()?;
        let unclosed = gridder.check_paths(&delivered, policy.close_rings).ok()?;
        let even = Form::new(delivered, &unclosed, &mut canonicalizer, policy);
        let mut safe = None;
        if gridder.has_alias() {
            let mut delivered = even.delivered.clone();
            gridder.make_safe(&mut delivered);
            safe = Some(Form::new(delivered, &unclosed, &mut canonicalizer, policy));
        }
        Some(Laid { even, safe, unclosed })
    }

    /// Whether the policy closes this ring. Paths are listed in order.
    pub(super) fn closes(&self, path: usize) -> bool {
        u32::try_from(path).is_ok_and(|path| self.unclosed.binary_search(&path).is_ok())
    }

    pub(super) fn on(&self, grid: Grid) -> &Form {
        match (&self.safe, grid) {
            (Some(safe), Grid::Safe) => safe,
            _ => &self.even,
        }
    }

    /// The grid on which two geometries are the same. An alias meets only aliases, as in the keys.
    pub(super) fn shared(&self, other: &Laid) -> Option<Grid> {
        if self.even.equals(&other.even) {
            return Some(Grid::Even);
        }
        match (&self.safe, &other.safe) {
            (Some(mine), Some(theirs)) if mine.equals(theirs) => Some(Grid::Safe),
            _ => None,
        }
    }
}
