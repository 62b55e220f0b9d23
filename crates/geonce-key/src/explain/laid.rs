//! A delivered geometry on the grid under any policy: what a key would see, without its fields.

use crate::canonical::{Canonicalizer, Rules};
use crate::crs::Crs;
use crate::grid::Gridder;
use crate::policy::Policy;
use crate::shape::Shape;

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
        let rules = Rules::new(policy);
        let mut delivered = Shape::new();
        gridder.shape(shape, crs, &mut delivered).ok()?;
        let unclosed = gridder.check_paths(&delivered, policy.close_rings).ok()?;
        let mut canonical = Shape::new();
        canonicalizer.run(&delivered, &unclosed, rules, &mut canonical);
        let even = Form { delivered, canonical };
        let mut safe = None;
        if gridder.has_alias() {
            let mut delivered = even.delivered.clone();
            gridder.make_safe(&mut delivered);
            let mut canonical = Shape::new();
            canonicalizer.run(&delivered, &unclosed, rules, &mut canonical);
            safe = Some(Form { delivered, canonical });
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
        if self.even.canonical == other.even.canonical {
            return Some(Grid::Even);
        }
        match (&self.safe, &other.safe) {
            (Some(mine), Some(theirs)) if mine.canonical == theirs.canonical => Some(Grid::Safe),
            _ => None,
        }
    }
}
