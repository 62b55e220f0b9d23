//! Makes a shape on the grid valid: the "structure" rule, exactly and the same way everywhere.
//!
//! Every ring by itself is filled non-zero; holes that meet their shell are cut out of it, other holes become parts;
//! parts are united. What is valid already comes back vertex for vertex. Nothing is lost without an action that says
//! so, and a geometry that would come out empty is refused. Rounding comes first: the input is on the grid already.

mod extract;
mod height;
mod region;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fmt::Write as _;

use crate::shape::{Kind, MemberRef, Position, Shape};
use crate::validity::predicate::{Point, area_doubled};
use crate::validity::tree::{Stop, Work};
use crate::validity::{check, in_range, member_pointer};
use crate::{Code, Error, Limits, Result};

/// Actions listed; further ones are only counted.
pub const ACTIONS_MAX: usize = 64;

/// What a repair may do beside making rings valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Exchange x and y first: the positions were written latitude first.
    pub swap_axes: bool,
    /// Close rings whose last position is not their first; otherwise they are refused.
    pub close_rings: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { swap_axes: false, close_rings: true }
    }
}

macro_rules! action_codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal),+ $(,)?) => {
        /// What a repair did. The text form is stable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum ActionCode { $($(#[$doc])* $variant),+ }

        impl ActionCode {
            /// Every code there is.
            pub const ALL: &'static [ActionCode] = &[$(ActionCode::$variant),+];

            /// The stable text of the code.
            pub fn as_str(self) -> &'static str {
                match self { $(ActionCode::$variant => $text),+ }
            }
        }
    };
}

action_codes! {
    /// x and y were exchanged.
    AxesSwapped = "axes_swapped",
    /// A ring was closed.
    RingClosed = "ring_closed",
    /// Repeated positions of a line were dropped.
    RepeatsDropped = "repeats_dropped",
    /// A line with one distinct position was dropped.
    LineDropped = "line_dropped",
    /// A hole without area was dropped.
    HoleDropped = "hole_dropped",
    /// A part whose exterior ring has no area was dropped, with its holes.
    PartDropped = "part_dropped",
    /// A ring that crosses, touches or retraces itself was filled non-zero.
    RingRebuilt = "ring_rebuilt",
    /// A part's holes were cut out of its exterior ring.
    HolesCut = "holes_cut",
    /// A hole apart from its exterior ring became a part.
    HolePromoted = "hole_promoted",
    /// Parts were united.
    PartsUnited = "parts_united",
}

impl fmt::Display for ActionCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One thing a repair did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// What was done.
    pub code: ActionCode,
    /// To what, as a JSON pointer into the geometry that came in.
    pub pointer: String,
}

/// A repaired shape and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Repaired {
    /// The valid shape.
    pub shape: Shape<i64>,
    /// Whether it differs from the input.
    pub changed: bool,
    /// Twice the area as the rings of the input say it: for every part the exterior ring's area less its holes',
    /// each without sign. Where rings cross or overlap this is not the area of any region.
    pub area_before: i128,
    /// The same sum for the result, where it is twice the true area.
    pub area_after: i128,
    /// Largest distance of a new vertex from the linework that came in, in grid steps; 0 when nothing moved.
    pub shift_max: f64,
    /// What was done, in the order it was done, at most [`ACTIONS_MAX`] entries.
    pub actions: Vec<Action>,
    /// How many things were done, listed or not.
    pub actions_total: u64,
}

/// Repairs a shape, or says why it cannot be: [`Code::LimitWork`] when it is too complex, [`Code::GeojsonEmpty`] when
/// nothing with an area (or length) would be left, [`Code::GeojsonBounds`] when a coordinate is far outside every grid.
pub fn repair(shape: &Shape<i64>, options: &Options, limits: &Limits) -> Result<Repaired> {
    let mut state = State { work: Work::new(limits.work_max), actions: Vec::new(), actions_total: 0, shift_max: 0.0 };
    let prepared = state.prepare(shape, options)?;
    let area_before = area_sum(&prepared);
    let mut out = Shape { collection: prepared.collection, has_z: prepared.has_z, ..Shape::new() };
    for (m, member) in prepared.members().enumerate() {
        let pointer = member_pointer(shape, m);
        let single = single(member, prepared.has_z);
        let report = check(&single, &state.remaining(limits));
        state.spend(usize::try_from(report.work).unwrap_or(usize::MAX)).map_err(|_| too_complex(&pointer))?;
        if report.is_valid() && member.kind.part() != Kind::LineString {
            append(&mut out, &single);
        } else if !report.complete {
            return Err(too_complex(&pointer));
        } else {
            let repaired = match member.kind.part() {
                Kind::LineString => state.lines(member, &pointer),
                Kind::Polygon => state.polygons(member, &single, &pointer, limits),
                _ => Ok(single),
            }?;
            append(&mut out, &repaired);
        }
    }
    let area_after = area_sum(&out);
    let State { actions, actions_total, shift_max, .. } = state;
    Ok(Repaired { changed: out != *shape, shape: out, area_before, area_after, shift_max, actions, actions_total })
}

struct State {
    work: Work,
    actions: Vec<Action>,
    actions_total: u64,
    shift_max: f64,
}

impl State {
    fn act(&mut self, code: ActionCode, pointer: String) {
        self.actions_total += 1;
        if self.actions.len() < ACTIONS_MAX {
            self.actions.push(Action { code, pointer });
        }
    }

    fn spend(&mut self, steps: usize) -> std::result::Result<(), Stop> {
        self.work.spend(steps)
    }

    fn remaining(&self, limits: &Limits) -> Limits {
        Limits { work_max: self.work.max.saturating_sub(self.work.used), ..limits.clone() }
    }

    /// A copy with axes exchanged and rings closed, as asked; every coordinate within the range of exact tests.
    fn prepare(&mut self, shape: &Shape<i64>, options: &Options) -> Result<Shape<i64>> {
        let mut out = Shape { collection: shape.collection, has_z: shape.has_z, ..Shape::new() };
        if options.swap_axes {
            self.act(ActionCode::AxesSwapped, String::new());
        }
        for (m, member) in shape.members().enumerate() {
            let rings = member.kind.part() == Kind::Polygon;
            for (p, part) in member.parts().enumerate() {
                for (r, path) in part.paths().enumerate() {
                    let at = || part_pointer(&member_pointer(shape, m), member.kind, p, Some(r));
                    if !path.iter().all(in_range) {
                        return Err(Error::new(Code::GeojsonBounds, at(), "a coordinate is far outside the grid"));
                    }
                    let swap = |&[x, y, z]: &Position<i64>| if options.swap_axes { [y, x, z] } else { [x, y, z] };
                    out.positions.extend(path.iter().map(swap));
                    if let (true, Some(first), Some(last)) = (rings, path.first(), path.last())
                        && first[..2] != last[..2]
                    {
                        if !options.close_rings {
                            let message = "the ring's last position is not its first";
                            return Err(Error::new(Code::GeojsonRingUnclosed, at(), message));
                        }
                        out.positions.push(swap(first));
                        self.act(ActionCode::RingClosed, at());
                    }
                    out.end_path();
                }
                out.end_part();
            }
            out.end_member(member.kind);
        }
        Ok(out)
    }

    /// Drops repeated positions, and lines of which nothing else is left.
    fn lines(&mut self, member: MemberRef<'_, i64>, pointer: &str) -> Result<Shape<i64>> {
        let mut out = Shape::new();
        for (p, part) in member.parts().enumerate() {
            let at = || part_pointer(pointer, member.kind, p, None);
            let before = out.positions.len();
            let mut length = 0;
            for path in part.paths() {
                length += path.len();
                for position in path {
                    if out.positions.len() == before || out.positions.last() != Some(position) {
                        out.positions.push(*position);
                    }
                }
            }
            let kept = &out.positions[before..];
            if kept.iter().all(|position| position[..2] == kept[0][..2]) {
                out.positions.truncate(before);
                self.act(ActionCode::LineDropped, at());
                continue;
            }
            if kept.len() < length {
                self.act(ActionCode::RepeatsDropped, at());
            }
            out.end_path();
            out.end_part();
        }
        if out.parts.is_empty() {
            return Err(empty(pointer));
        }
        out.end_member(member.kind);
        Ok(out)
    }
}

/// One member as a shape of its own.
fn single(member: MemberRef<'_, i64>, has_z: bool) -> Shape<i64> {
    let mut out = Shape { has_z, ..Shape::new() };
    out.push_member(member);
    out
}

fn append(out: &mut Shape<i64>, shape: &Shape<i64>) {
    for member in shape.members() {
        out.push_member(member);
    }
}

fn part_pointer(member: &str, kind: Kind, part: usize, ring: Option<usize>) -> String {
    let mut pointer = member.to_owned();
    if kind.is_multi() {
        let _ = write!(pointer, "/{part}");
    }
    if let (Some(ring), Kind::Polygon) = (ring, kind.part()) {
        let _ = write!(pointer, "/{ring}");
    }
    pointer
}

fn too_complex(pointer: &str) -> Error {
    Error::new(Code::LimitWork, pointer, "the geometry has too many crossings to be repaired within the work budget")
}

fn empty(pointer: &str) -> Error {
    Error::new(Code::GeojsonEmpty, pointer, "nothing would be left of the geometry: it has no area or no length")
}

fn plane(path: &[Position<i64>]) -> Vec<Point> {
    path.iter().map(|p| [p[0], p[1]]).collect()
}

fn area_sum(shape: &Shape<i64>) -> i128 {
    let polygons = shape.members().filter(|member| member.kind.part() == Kind::Polygon);
    let parts = polygons.flat_map(MemberRef::parts);
    parts
        .map(|part| {
            let area = |(r, path): (usize, &[Position<i64>])| {
                let area = area_doubled(&plane(path)).abs();
                if r == 0 { area } else { -area }
            };
            part.paths().enumerate().map(area).sum::<i128>()
        })
        .sum()
}
