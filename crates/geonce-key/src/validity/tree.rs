//! A complete binary tree of bounding boxes over boxes in a given order, and the budget its walks draw on.
//!
//! The tree is two flat arrays; children of node `i` are `2i` and `2i + 1`, leaves start at `leaf_first`.

use super::predicate::Point;

/// A bounding box: smallest x and y, largest x and y. Empty when smallest > largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) min: Point,
    pub(crate) max: Point,
}

impl Bounds {
    pub(crate) const EMPTY: Bounds = Bounds { min: [i64::MAX; 2], max: [i64::MIN; 2] };

    pub(crate) fn of(a: Point, b: Point) -> Bounds {
        Bounds { min: [a[0].min(b[0]), a[1].min(b[1])], max: [a[0].max(b[0]), a[1].max(b[1])] }
    }

    pub(crate) fn with(self, other: Bounds) -> Bounds {
        Bounds {
            min: [self.min[0].min(other.min[0]), self.min[1].min(other.min[1])],
            max: [self.max[0].max(other.max[0]), self.max[1].max(other.max[1])],
        }
    }

    pub(crate) fn meets(&self, other: &Bounds) -> bool {
        self.min[0] <= other.max[0]
            && other.min[0] <= self.max[0]
            && self.min[1] <= other.max[1]
            && other.min[1] <= self.max[1]
    }

    pub(crate) fn holds(&self, other: &Bounds) -> bool {
        self.min[0] <= other.min[0]
            && other.max[0] <= self.max[0]
            && self.min[1] <= other.min[1]
            && other.max[1] <= self.max[1]
    }
}

/// Why a walk ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The work budget ran out.
    Budget,
    /// Enough was found.
    Enough,
}

/// Elementary steps taken and allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) used: u64,
    pub(crate) max: u64,
}

impl Work {
    pub(crate) fn new(max: u64) -> Work {
        Work { used: 0, max }
    }

    /// Takes `steps` steps, or says that there are not so many left.
    pub(crate) fn spend(&mut self, steps: usize) -> Result<(), Stop> {
        self.used = self.used.saturating_add(steps as u64);
        if self.used > self.max { Err(Stop::Budget) } else { Ok(()) }
    }
}

/// The tree.
pub(crate) struct Tree {
    nodes: Vec<Bounds>,
    leaf_first: usize,
    leaves: usize,
}

impl Tree {
    pub(crate) fn new(boxes: impl ExactSizeIterator<Item = Bounds>) -> Tree {
        let leaves = boxes.len();
        let leaf_first = leaves.next_power_of_two();
        let mut nodes = vec![Bounds::EMPTY; leaf_first * 2];
        for (i, bounds) in boxes.enumerate() {
            nodes[leaf_first + i] = bounds;
        }
        for i in (1..leaf_first).rev() {
            nodes[i] = nodes[2 * i].with(nodes[2 * i + 1]);
        }
        Tree { nodes, leaf_first, leaves }
    }

    pub(crate) fn bounds(&self, leaf: usize) -> &Bounds {
        &self.nodes[self.leaf_first + leaf]
    }

    /// Calls `visit` for every pair of leaves (each with itself too) whose boxes meet.
    pub(crate) fn pairs(
        &self,
        work: &mut Work,
        mut visit: impl FnMut(&mut Work, usize, usize) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        if self.leaves == 0 {
            return Ok(());
        }
        let mut stack = vec![(1, 1)];
        while let Some((i, j)) = stack.pop() {
            work.spend(1)?;
            if !self.nodes[i].meets(&self.nodes[j]) {
                continue;
            }
            if i >= self.leaf_first {
                visit(work, i - self.leaf_first, j - self.leaf_first)?;
            } else if i == j {
                stack.extend([(2 * i + 1, 2 * i + 1), (2 * i, 2 * i + 1), (2 * i, 2 * i)]);
            } else {
                stack.extend([(2 * i + 1, 2 * j + 1), (2 * i + 1, 2 * j), (2 * i, 2 * j + 1), (2 * i, 2 * j)]);
            }
        }
        Ok(())
    }

    /// Calls `visit` for the leaves in `from..to` below nodes that `wanted` accepts.
    pub(crate) fn search(
        &self,
        work: &mut Work,
        range: std::ops::Range<usize>,
        wanted: impl Fn(&Bounds) -> bool,
        mut visit: impl FnMut(&mut Work, usize) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        // A node with its span of leaves: first leaf and number of leaves.
        let mut stack = vec![(1, 0, self.leaf_first)];
        while let Some((node, first, span)) = stack.pop() {
            work.spend(1)?;
            if first >= range.end || first + span <= range.start || !wanted(&self.nodes[node]) {
                continue;
            }
            if span == 1 {
                visit(work, first)?;
            } else {
                let half = span / 2;
                stack.extend([(2 * node + 1, first + half, half), (2 * node, first, half)]);
            }
        }
        Ok(())
    }

    /// The smallest rank (distance, then what `rank` adds) among leaves no farther than `limit`. `bound` is a lower
    /// bound of the distance for everything in a box; `rank` may answer nothing beyond the limit it is given.
    pub(crate) fn nearest<R: PartialOrd + Copy>(
        &self,
        work: &mut Work,
        mut limit: f64,
        bound: impl Fn(&Bounds) -> f64,
        rank: impl Fn(usize, f64) -> Option<(f64, R)>,
    ) -> Result<Option<(f64, R)>, Stop> {
        let mut best: Option<(f64, R)> = None;
        let mut stack = vec![1];
        while let Some(node) = stack.pop() {
            work.spend(1)?;
            if bound(&self.nodes[node]) > limit {
                continue;
            }
            if node < self.leaf_first {
                stack.extend([2 * node + 1, 2 * node]);
            } else if node - self.leaf_first < self.leaves {
                work.spend(8)?;
                if let Some(found) = rank(node - self.leaf_first, limit)
                    && best.is_none_or(|known| found < known)
                {
                    limit = found.0;
                    best = Some(found);
                }
            }
        }
        Ok(best)
    }
}
