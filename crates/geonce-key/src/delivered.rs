//! A geometry as its sender wrote it, before coordinate systems and the grid, and the one place where the text
//! and binary readers fill it: equal dimensions and every limit are checked here.

use std::fmt::Write as _;

use crate::shape::{Kind, Position, Shape};
use crate::{Code, Error, Limits, Result};

/// What a WKT or WKB payload says.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivered {
    /// The geometry, ordinates as delivered; nested collections are flattened in order.
    pub shape: Shape<f64>,
    /// The declared coordinate system. SRID 0 means "unknown" where it comes from, so it is no declaration.
    pub srid: Option<u32>,
}

/// Fills a shape position by position and knows where it is.
pub(crate) struct Filler<'a> {
    shape: Shape<f64>,
    limits: &'a Limits,
    has_z: Option<bool>,
    /// The type of the geometry being filled.
    kind: Option<Kind>,
    /// For each open collection, the index of its current member.
    within: Vec<usize>,
}

impl<'a> Filler<'a> {
    pub(crate) fn new(bytes: &[u8], limits: &'a Limits) -> Result<Self> {
        if bytes.len() > limits.bytes_max {
            let message = format!("{} bytes, at most {} are accepted", bytes.len(), limits.bytes_max);
            return Err(Error::new(Code::LimitBytes, "", message));
        }
        Ok(Filler { shape: Shape::new(), limits, has_z: None, kind: None, within: Vec::new() })
    }

    pub(crate) fn finish(mut self, srid: Option<u32>) -> Delivered {
        self.shape.has_z = self.has_z();
        Delivered { shape: self.shape, srid: srid.filter(|&srid| srid != 0) }
    }

    /// A refusal of what is being read, which starts at byte `at`.
    pub(crate) fn refuse(&self, code: Code, what: &str, at: usize) -> Error {
        Error::new(code, self.pointer(), format!("{what} at byte {at}"))
    }

    pub(crate) fn number_bytes_max(&self) -> usize {
        self.limits.number_bytes_max
    }

    /// Opens a collection.
    pub(crate) fn enter(&mut self, at: usize) -> Result<()> {
        if self.within.len() >= self.limits.depth_max {
            return Err(self.refuse(Code::LimitDepth, "collections nested too deeply", at));
        }
        self.shape.collection = true;
        self.within.push(0);
        Ok(())
    }

    /// Goes on to the next member of the innermost collection.
    pub(crate) fn next_member(&mut self) {
        if let Some(index) = self.within.last_mut() {
            *index += 1;
        }
    }

    /// Closes the innermost collection.
    pub(crate) fn leave(&mut self) {
        self.within.pop();
    }

    /// Starts a geometry of this type.
    pub(crate) fn begin(&mut self, kind: Kind) {
        self.kind = Some(kind);
    }

    /// Declares that what follows has a third number, or that it has none.
    pub(crate) fn dimensions(&mut self, has_z: bool, at: usize) -> Result<()> {
        if *self.has_z.get_or_insert(has_z) != has_z {
            return Err(self.refuse(Code::GeojsonDimensions, "positions with and without a third number", at));
        }
        Ok(())
    }

    /// Whether positions have a third number, as far as is known.
    pub(crate) fn has_z(&self) -> bool {
        self.has_z == Some(true)
    }

    /// Checks that `count` more positions are allowed, before memory is taken for them.
    pub(crate) fn expect_positions(&self, count: usize, at: usize) -> Result<()> {
        self.within_limit(self.shape.positions.len(), count, self.limits.positions_max, Code::LimitPositions, at)
    }

    pub(crate) fn reserve(&mut self, count: usize) {
        self.shape.positions.reserve(count);
    }

    pub(crate) fn position(&mut self, position: Position<f64>, at: usize) -> Result<()> {
        self.expect_positions(1, at)?;
        self.shape.positions.push(position);
        Ok(())
    }

    pub(crate) fn end_path(&mut self, at: usize) -> Result<()> {
        self.within_limit(self.shape.paths.len(), 1, self.limits.rings_max, Code::LimitRings, at)?;
        self.shape.end_path();
        Ok(())
    }

    pub(crate) fn end_part(&mut self, at: usize) -> Result<()> {
        self.within_limit(self.shape.parts.len(), 1, self.limits.parts_max, Code::LimitParts, at)?;
        self.shape.end_part();
        Ok(())
    }

    pub(crate) fn end_member(&mut self, at: usize) -> Result<()> {
        self.within_limit(self.shape.members.len(), 1, self.limits.members_max, Code::LimitMembers, at)?;
        if let Some(kind) = self.kind.take() {
            self.shape.end_member(kind);
        }
        Ok(())
    }

    fn within_limit(&self, have: usize, more: usize, max: usize, code: Code, at: usize) -> Result<()> {
        if have.saturating_add(more) <= max {
            return Ok(());
        }
        let what = match code {
            Code::LimitPositions => "positions",
            Code::LimitRings => "rings or lines",
            Code::LimitParts => "parts",
            _ => "members",
        };
        Err(self.refuse(code, &format!("more than {max} {what}"), at))
    }

    /// Where the next position would stand if the payload were `GeoJSON`.
    fn pointer(&self) -> String {
        let mut text = String::new();
        let mut push = |segment: &str, index: usize| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{segment}/{index}");
        };
        for &index in &self.within {
            push("/geometries", index);
        }
        let Some(kind) = self.kind else { return text };
        let shape = &self.shape;
        let mut segment = "/coordinates";
        if kind.is_multi() {
            let start = shape.members.last().map_or(0, |member| member.end as usize);
            push(std::mem::take(&mut segment), shape.parts.len() - start);
        }
        if kind.part() == Kind::Polygon {
            push(std::mem::take(&mut segment), shape.paths.len() - last(&shape.parts));
        }
        if kind.part() != Kind::Point {
            push(std::mem::take(&mut segment), shape.positions.len() - last(&shape.paths));
        }
        text.push_str(segment);
        text
    }
}

fn last(ends: &[u32]) -> usize {
    ends.last().map_or(0, |&end| end as usize)
}

#[cfg(test)]
mod tests;
