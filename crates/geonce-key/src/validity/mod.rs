//! Whether a shape on the grid is valid by the rules of OGC Simple Features, and if not, what is wrong and where.
//!
//! Rings may touch at single points as long as the interior stays connected; parts of a `MultiPolygon` may touch
//! at points. Tests are exact and draw on a budget, so the answer never depends on the machine and never takes long.
//! The key of an event does not depend on any of this.

pub(crate) mod linework;
pub(crate) mod predicate;
mod rings;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod tree;

use std::fmt;
use std::fmt::Write as _;

use crate::Limits;
use crate::shape::{Kind, MemberRef, Shape};
use predicate::COORDINATE_MAX;
use tree::{Stop, Work};

/// Problems listed before a check stops.
pub const PROBLEMS_MAX: usize = 64;

macro_rules! problem_codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal),+ $(,)?) => {
        /// What can be wrong. The text form is stable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum ProblemCode { $($(#[$doc])* $variant),+ }

        impl ProblemCode {
            /// Every code there is.
            pub const ALL: &'static [ProblemCode] = &[$(ProblemCode::$variant),+];

            /// The stable text of the code.
            pub fn as_str(self) -> &'static str {
                match self { $(ProblemCode::$variant => $text),+ }
            }
        }
    };
}

problem_codes! {
    /// A coordinate is so large that exact tests would overflow; it is far outside every grid.
    OutOfRange = "out_of_range",
    /// A ring's last position is not its first.
    UnclosedRing = "unclosed_ring",
    /// A ring with fewer than three distinct positions or all on one line, or a line with one distinct position.
    Collapsed = "collapsed",
    /// A ring runs out to a vertex and straight back.
    Spike = "spike",
    /// A ring crosses itself.
    SelfIntersection = "self_intersection",
    /// A ring comes back to a point where it has been, without crossing.
    RingSelfTouch = "ring_self_touch",
    /// Two stretches of linework, of one ring or of two, lie on each other.
    EdgeOverlap = "edge_overlap",
    /// Two rings cross: a hole its shell, a hole another hole, or parts each other.
    RingsCross = "rings_cross",
    /// Two rings are the same.
    DuplicateRing = "duplicate_ring",
    /// A hole lies outside its shell.
    HoleOutside = "hole_outside",
    /// A hole lies inside another hole.
    HoleNested = "hole_nested",
    /// A part lies in the interior of another part.
    PartNested = "part_nested",
    /// Rings of one polygon touch so that its interior falls apart.
    InteriorDisconnected = "interior_disconnected",
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong.
    pub code: ProblemCode,
    /// Where in the geometry: a JSON pointer such as `/coordinates/0/3` or `/geometries/1/coordinates/2`.
    pub pointer: String,
    /// Where on the grid. A crossing is rounded to the nearest grid point.
    pub at: [i64; 2],
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The problems in the order of their places, at most [`PROBLEMS_MAX`] of them.
    pub problems: Vec<Problem>,
    /// Whether the check stopped at [`PROBLEMS_MAX`] problems; there may be more.
    pub more: bool,
    /// False when the work budget ran out before everything was tested.
    pub complete: bool,
    /// Elementary steps taken.
    pub work: u64,
}

impl Report {
    /// Whether everything was tested and nothing is wrong.
    pub fn is_valid(&self) -> bool {
        self.complete && self.problems.is_empty()
    }
}

/// Checks a shape. Collection members are checked each by itself.
///
/// Whether rings nest rightly is only tested where no rings cross, overlap or touch themselves: the question has no
/// answer before that.
pub fn check(shape: &Shape<i64>, limits: &Limits) -> Report {
    let mut work = Work::new(limits.work_max);
    let mut found = Found::default();
    let stop = check_members(shape, &mut work, &mut found).err();
    found.list.sort();
    let problems = found.list.into_iter().map(|found| found.problem(shape)).collect();
    Report { problems, more: stop == Some(Stop::Enough), complete: stop != Some(Stop::Budget), work: work.used }
}

/// A problem before it is written out: ordered by its place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    member: usize,
    part: usize,
    ring: Option<usize>,
    vertex: Option<u32>,
    code: ProblemCode,
    at: [i64; 2],
}

impl Place {
    fn problem(self, shape: &Shape<i64>) -> Problem {
        let kind = shape.members[self.member].kind;
        let mut pointer = member_pointer(shape, self.member);
        let part = kind.is_multi().then_some(self.part);
        // A line or point has one path only, which is the part itself.
        let ring = if kind.part() == Kind::Polygon { self.ring } else { None };
        for index in [part, ring, self.vertex.map(|v| v as usize)].into_iter().flatten() {
            let _ = write!(pointer, "/{index}");
        }
        Problem { code: self.code, pointer, at: self.at }
    }
}

/// The JSON pointer of a member's coordinates.
pub(crate) fn member_pointer(shape: &Shape<i64>, member: usize) -> String {
    if shape.collection { format!("/geometries/{member}/coordinates") } else { "/coordinates".to_owned() }
}

/// Problems found so far.
#[derive(Default)]
struct Found {
    list: Vec<Place>,
}

impl Found {
    fn push(&mut self, place: Place) -> Result<(), Stop> {
        self.list.push(place);
        if self.list.len() >= PROBLEMS_MAX { Err(Stop::Enough) } else { Ok(()) }
    }
}

fn check_members(shape: &Shape<i64>, work: &mut Work, found: &mut Found) -> Result<(), Stop> {
    for (m, member) in shape.members().enumerate() {
        for (p, part) in member.parts().enumerate() {
            for (r, path) in part.paths().enumerate() {
                work.spend(path.len())?;
                let far = path.iter().position(|p| !in_range(p));
                if let Some(v) = far {
                    let at = [path[v][0], path[v][1]];
                    let vertex = u32::try_from(v).ok();
                    found.push(Place {
                        member: m,
                        part: p,
                        ring: Some(r),
                        vertex,
                        code: ProblemCode::OutOfRange,
                        at,
                    })?;
                    return Err(Stop::Enough);
                }
            }
        }
        match member.kind.part() {
            Kind::Polygon => rings::check(m, member, work, found)?,
            Kind::LineString => check_lines(m, member, found)?,
            _ => {}
        }
    }
    Ok(())
}

/// Whether exact tests hold for the position.
pub(crate) fn in_range(position: &[i64; 3]) -> bool {
    position[..2].iter().all(|c| (-COORDINATE_MAX..=COORDINATE_MAX).contains(c))
}

fn check_lines(m: usize, member: MemberRef<'_, i64>, found: &mut Found) -> Result<(), Stop> {
    for (p, part) in member.parts().enumerate() {
        for path in part.paths() {
            let first = path.first().map_or([0, 0], |p| [p[0], p[1]]);
            if path.iter().all(|p| [p[0], p[1]] == first) {
                let code = ProblemCode::Collapsed;
                found.push(Place { member: m, part: p, ring: None, vertex: None, code, at: first })?;
            }
        }
    }
    Ok(())
}
