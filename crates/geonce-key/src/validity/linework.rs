//! The rings of one polygonal member as segments in a searchable order.
//!
//! Repeated positions are left out, rings are open. Segment `i` runs from vertex `i` to the next vertex of its ring.

use super::predicate::{Meet, Point, area_doubled, in_sector, meet, orient};
use super::tree::{Bounds, Stop, Tree, Work};

/// Segments per leaf of the tree.
const BLOCK: usize = 8;

/// One ring.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    /// Part of the member, and place in the part: zero is the exterior ring.
    pub(crate) part: usize,
    pub(crate) index: usize,
    /// Its vertices, which are its segments too.
    pub(crate) first: usize,
    pub(crate) end: usize,
    /// Its leaves in the tree.
    blocks: std::ops::Range<usize>,
    pub(crate) bounds: Bounds,
    pub(crate) area_doubled: i128,
}

/// Where a point lies seen from a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Inside,
    Outside,
    /// On this segment.
    On(usize),
}

/// Rings as segments.
pub(crate) struct Linework {
    pub(crate) rings: Vec<Ring>,
    pub(crate) points: Vec<Point>,
    /// For each vertex, its number in the path it came from.
    pub(crate) source: Vec<u32>,
    ring_of: Vec<u32>,
    next: Vec<u32>,
    prev: Vec<u32>,
    blocks: Vec<(u32, u32)>,
    tree: Tree,
    ring_tree: Tree,
    /// The ring behind each leaf of `ring_tree`.
    ring_order: Vec<usize>,
}

/// Collects rings, then makes them searchable.
#[derive(Default)]
pub(crate) struct Builder {
    rings: Vec<Ring>,
    points: Vec<Point>,
    source: Vec<u32>,
}

impl Builder {
    /// Adds a ring, closed or open. Answers false, and adds nothing, where it has no area: fewer than three
    /// distinct positions, or all of them on one line.
    #[expect(clippy::cast_possible_truncation, reason = "positions are counted in 32 bits throughout the shape")]
    pub(crate) fn add(&mut self, part: usize, index: usize, path: impl Iterator<Item = Point>) -> bool {
        let first = self.points.len();
        for (i, point) in path.enumerate() {
            if self.points.len() == first || self.points.last() != Some(&point) {
                self.points.push(point);
                self.source.push(i as u32);
            }
        }
        while self.points.len() > first + 1 && self.points.last() == Some(&self.points[first]) {
            self.points.pop();
            self.source.pop();
        }
        let ring = &self.points[first..];
        let flat = ring.len() < 3 || ring[2..].iter().all(|&c| orient(ring[0], ring[1], c) == 0);
        if flat {
            self.points.truncate(first);
            self.source.truncate(first);
            return false;
        }
        let bounds = ring.iter().fold(Bounds::EMPTY, |all, &p| all.with(Bounds::of(p, p)));
        let area_doubled = area_doubled(ring);
        self.rings.push(Ring { part, index, first, end: self.points.len(), blocks: 0..0, bounds, area_doubled });
        true
    }

    /// The vertices of all rings added, one after another.
    pub(crate) fn into_points(self) -> Vec<Point> {
        self.points
    }

    /// The rings, searchable.
    #[expect(clippy::cast_possible_truncation, reason = "positions are counted in 32 bits throughout the shape")]
    pub(crate) fn build(self) -> Linework {
        let Builder { mut rings, points, source } = self;
        let mut ring_of = vec![0; points.len()];
        let mut next = vec![0; points.len()];
        let mut prev = vec![0; points.len()];
        for (r, ring) in rings.iter().enumerate() {
            for i in ring.first..ring.end {
                ring_of[i] = r as u32;
                let after = if i + 1 == ring.end { ring.first } else { i + 1 };
                next[i] = after as u32;
                prev[after] = i as u32;
            }
        }
        let mut order: Vec<usize> = (0..rings.len()).collect();
        if order.len() > 2 {
            let all = rings.iter().fold(Bounds::EMPTY, |all, ring| all.with(ring.bounds));
            order.sort_by_cached_key(|&r| (curve(&all, &rings[r].bounds), r));
        }
        let mut blocks = Vec::new();
        for &r in &order {
            let ring = &mut rings[r];
            let start = blocks.len();
            for from in (ring.first..ring.end).step_by(BLOCK) {
                blocks.push((from as u32, (from + BLOCK).min(ring.end) as u32));
            }
            ring.blocks = start..blocks.len();
        }
        let segment = |i: usize| Bounds::of(points[i], points[next[i] as usize]);
        let tree = Tree::new(
            blocks
                .iter()
                .map(|&(from, to)| (from as usize..to as usize).fold(Bounds::EMPTY, |all, i| all.with(segment(i)))),
        );
        let ring_tree = Tree::new(order.iter().map(|&r| rings[r].bounds));
        Linework { rings, points, source, ring_of, next, prev, blocks, tree, ring_tree, ring_order: order }
    }
}

/// Rings near each other get numbers near each other: the bits of both halves of the box centre, interleaved.
fn curve(all: &Bounds, bounds: &Bounds) -> u64 {
    let cell = |axis: usize| {
        let size = i128::from(all.max[axis] - all.min[axis]).max(1);
        let centre = i128::from(bounds.min[axis] - all.min[axis]) + i128::from(bounds.max[axis] - all.min[axis]);
        u64::try_from(centre * 0x7fff / size).unwrap_or(0)
    };
    let (x, y) = (cell(0), cell(1));
    (0..16).fold(0, |key, bit| key | ((x >> bit & 1) << (2 * bit)) | ((y >> bit & 1) << (2 * bit + 1)))
}

impl Linework {
    pub(crate) fn ring_of(&self, segment: usize) -> usize {
        self.ring_of[segment] as usize
    }

    pub(crate) fn next(&self, vertex: usize) -> usize {
        self.next[vertex] as usize
    }

    pub(crate) fn prev(&self, vertex: usize) -> usize {
        self.prev[vertex] as usize
    }

    pub(crate) fn segment(&self, i: usize) -> (Point, Point) {
        (self.points[i], self.points[self.next(i)])
    }

    pub(crate) fn ring_points(&self, ring: usize) -> &[Point] {
        &self.points[self.rings[ring].first..self.rings[ring].end]
    }

    /// Whether two segments follow each other in one ring.
    pub(crate) fn adjacent(&self, s: usize, t: usize) -> bool {
        self.next(s) == t || self.next(t) == s
    }

    /// Calls `visit` for every two segments that meet, each pair once. Neighbours in a ring are only reported
    /// where they overlap.
    pub(crate) fn meetings(
        &self,
        work: &mut Work,
        mut visit: impl FnMut(&mut Work, usize, usize, Meet) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        self.tree.pairs(work, |work, i, j| {
            let (from, to) = self.blocks[i];
            let (other_from, other_to) = self.blocks[j];
            work.spend(2)?;
            for s in from as usize..to as usize {
                let (a, b) = self.segment(s);
                let bounds = Bounds::of(a, b);
                if i != j && !bounds.meets(self.tree.bounds(j)) {
                    continue;
                }
                let start = if i == j { s + 1 } else { other_from as usize };
                work.spend(1 + (other_to as usize).saturating_sub(start))?;
                for t in start..other_to as usize {
                    let (c, d) = self.segment(t);
                    if !bounds.meets(&Bounds::of(c, d)) {
                        continue;
                    }
                    work.spend(2)?;
                    match meet(a, b, c, d) {
                        Meet::Apart => {}
                        Meet::Touch(_) if self.adjacent(s, t) => {}
                        found => visit(work, s, t, found)?,
                    }
                }
            }
            Ok(())
        })
    }

    /// Which side of a ring a point lies on, by counting crossings of a ray to the east.
    pub(crate) fn side(&self, work: &mut Work, ring: usize, p: Point) -> Result<Side, Stop> {
        let mut inside = false;
        let mut on = None;
        let wanted = |b: &Bounds| b.min[1] <= p[1] && p[1] <= b.max[1] && p[0] <= b.max[0];
        self.tree
            .search(work, self.rings[ring].blocks.clone(), wanted, |work, block| {
                let (from, to) = self.blocks[block];
                work.spend((to - from) as usize)?;
                for s in from as usize..to as usize {
                    let (a, b) = self.segment(s);
                    if p[1] < a[1].min(b[1]) || a[1].max(b[1]) < p[1] || a[0].max(b[0]) < p[0] {
                        continue;
                    }
                    let turn = orient(a, b, p);
                    if turn == 0 && a[0].min(b[0]) <= p[0] {
                        on = Some(s);
                        return Err(Stop::Enough);
                    }
                    let upward = a[1] <= p[1] && p[1] < b[1];
                    let downward = b[1] <= p[1] && p[1] < a[1];
                    inside ^= (upward && turn > 0) || (downward && turn < 0);
                }
                Ok(())
            })
            .or_else(|stop| if stop == Stop::Enough { Ok(()) } else { Err(stop) })?;
        Ok(match (on, inside) {
            (Some(segment), _) => Side::On(segment),
            (None, true) => Side::Inside,
            (None, false) => Side::Outside,
        })
    }

    /// Whether `outer` holds `inner`, for rings that neither cross nor share a stretch.
    pub(crate) fn ring_holds(&self, work: &mut Work, outer: usize, inner: usize) -> Result<bool, Stop> {
        if !self.rings[outer].bounds.holds(&self.rings[inner].bounds) {
            return Ok(false);
        }
        let start = self.rings[inner].first;
        let p = self.points[start];
        Ok(match self.side(work, outer, p)? {
            Side::Inside => true,
            Side::Outside => false,
            // The rings touch here, so the direction in which the inner ring leaves decides.
            Side::On(segment) => self.leads_inside(outer, segment, p, self.points[self.next(start)]),
        })
    }

    fn leads_inside(&self, ring: usize, segment: usize, p: Point, to: Point) -> bool {
        let (before, after) = self.arms(segment, p);
        if self.rings[ring].area_doubled > 0 {
            in_sector(p, after, before, to)
        } else {
            in_sector(p, before, after, to)
        }
    }

    /// The neighbours of `p`, a point on `segment`, along the segment's ring.
    pub(crate) fn arms(&self, segment: usize, p: Point) -> (Point, Point) {
        let (a, b) = self.segment(segment);
        if p == a {
            (self.points[self.prev(segment)], b)
        } else if p == b {
            (a, self.segment(self.next(segment)).1)
        } else {
            (a, b)
        }
    }

    /// Calls `visit` for every other ring whose box holds the box of `ring`.
    pub(crate) fn around(
        &self,
        work: &mut Work,
        ring: usize,
        mut visit: impl FnMut(&mut Work, usize) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let bounds = self.rings[ring].bounds;
        self.ring_tree.search(
            work,
            0..self.rings.len(),
            |b| b.holds(&bounds),
            |work, leaf| match self.ring_order[leaf] {
                other if other == ring => Ok(()),
                other => visit(work, other),
            },
        )
    }

    /// The tree over blocks of segments, for searches of another kind.
    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The segments of a leaf of [`Linework::tree`].
    pub(crate) fn block(&self, leaf: usize) -> std::ops::Range<usize> {
        let (from, to) = self.blocks[leaf];
        from as usize..to as usize
    }
}
