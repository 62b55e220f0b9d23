//! Differences of two geometries that are gone before hashing. Each is found in what was delivered.

use super::align::{Alignment, PathPair, Trace, doubled_area};
use super::found::Found;
use super::laid::{Grid, Laid};
use super::reading::{Geometry, Reading};
use super::written::number_note;
use super::{Reason, ReasonCode, shown};
use crate::policy::Dimensions;
use crate::shape::{Kind, Shape};

/// Notes what differs between two delivered geometries and does not count. `grid` is the one they share, if any.
pub(super) fn compare(
    sides: [&Reading<'_>; 2],
    laid: [&Laid; 2],
    grid: Grid,
    aligned: Option<&Alignment>,
    found: &mut Found,
) {
    let (Some(a), Some(b)) = (&sides[0].geometry, &sides[1].geometry) else { return };
    let equal = laid[0].on(grid).canonical == laid[1].on(grid).canonical;
    let before = found.removed_places();
    let mut notes = Notes { a, b, sides, laid, grid, equal, before, found };
    notes.systems();
    notes.structure();
    notes.third_numbers(aligned);
    if let Some(aligned) = aligned {
        notes.orders();
        for path in &aligned.paths {
            notes.path(path);
        }
        notes.numbers(aligned);
        notes.ties(aligned);
    }
}

struct Notes<'n, 'v> {
    a: &'n Geometry<'v>,
    b: &'n Geometry<'v>,
    sides: [&'n Reading<'v>; 2],
    laid: [&'n Laid; 2],
    grid: Grid,
    /// Whether the geometries are equal on that grid.
    equal: bool,
    /// What was noted about the payloads before their geometries.
    before: usize,
    found: &'n mut Found,
}

impl Notes<'_, '_> {
    /// Notes a difference; place and values are made only for the first of its kind, since finding the place of
    /// a path takes a walk over the shape.
    fn note(&mut self, code: ReasonCode, message: &str, detail: impl FnOnce() -> (String, [String; 2])) {
        self.found.removed(code, || {
            let (pointer, [a, b]) = detail();
            Reason { a, b, message: message.to_owned(), ..Reason::new(code, pointer) }
        });
    }

    fn systems(&mut self) {
        let (a, b) = (self.a, self.b);
        if a.code == b.code && a.declared == b.declared {
            return;
        }
        let name = |geometry: &Geometry<'_>| {
            let assumed = if geometry.declared { "" } else { " (assumed)" };
            format!("EPSG:{}{assumed}", geometry.code)
        };
        let message = if a.code == b.code {
            "the same coordinate system, declared by one of them"
        } else {
            "both are transformed to WGS 84"
        };
        self.note(ReasonCode::Crs, message, || (a.pointer("crs"), [name(a), name(b)]));
    }

    fn structure(&mut self) {
        let (a, b) = (self.a, self.b);
        if a.is_nested() != b.is_nested() {
            let message = "a collection in a collection is flattened";
            self.note(ReasonCode::NestedCollection, message, || (a.pointer("geometries"), nothing()));
        }
        let one_part = |shape: &Shape<f64>, i: usize| shape.members().nth(i).is_some_and(|m| m.parts().len() == 1);
        if a.shape.members.len() != b.shape.members.len() {
            return;
        }
        // Members of collections may be listed in another order: see `orders`.
        let kinds = [a, b].map(|geometry| geometry.shape.members.first().map(|member| member.kind));
        if let ([Some(kind_a), Some(kind_b)], false) = (kinds, a.shape.collection)
            && kind_a != kind_b
            && kind_a.part() == kind_b.part()
            && one_part(&a.shape, 0)
            && one_part(&b.shape, 0)
        {
            self.multi_of_one([kind_a, kind_b], || a.pointer("type"));
        }
    }

    fn multi_of_one(&mut self, kinds: [Kind; 2], pointer: impl FnOnce() -> String) {
        let message = "a Multi* of one part equals that part";
        self.note(ReasonCode::MultiOfOne, message, || (pointer(), kinds.map(|kind| kind.name().to_owned())));
    }

    fn third_numbers(&mut self, aligned: Option<&Alignment>) {
        let (a, b) = (self.a, self.b);
        if self.sides.iter().any(|side| side.policy.dimensions != Dimensions::Two) {
            return;
        }
        let z = |geometry: &Geometry<'_>, i: usize| geometry.shape.positions[i][2].to_bits();
        let differs = |&(i, j): &(usize, usize)| {
            let written_otherwise = a.text(i, 2).zip(b.text(j, 2)).is_some_and(|(a, b)| a != b);
            a.shape.has_z != b.shape.has_z || z(a, i) != z(b, j) || written_otherwise
        };
        let first = aligned.into_iter().flat_map(Alignment::vertices).find(differs);
        if let Some((i, j)) = first {
            let values = || [a.shown_position(i), b.shown_position(j)];
            let message = "dimensions = 2 drops the third number";
            self.note(ReasonCode::ZDropped, message, || (a.position_pointer(i), values()));
        }
    }

    /// Orders of holes, parts and members: equal forms have equal ranks, so that other places are other orders.
    fn orders(&mut self) {
        let forms = [0, 1].map(|i| self.laid[i].on(self.grid));
        if !self.equal {
            // Ranks of geometries that differ say nothing about the order in which they were written.
            return;
        }
        let [a, b] = [0, 1].map(|i| Trace::new(forms[i], self.laid[i], self.sides[i].policy));
        let geometry = self.a;
        let mut members = false;
        for (a, b) in a.members.iter().zip(&b.members) {
            members |= a.index != b.index;
            let kinds = [(self.a, a), (self.b, b)].map(|(side, member)| side.shape.members[member.index].kind);
            if geometry.shape.collection && kinds[0] != kinds[1] {
                self.multi_of_one(kinds, || format!("{}/type", geometry.member_pointer(a.index)));
            }
            if a.parts.iter().zip(&b.parts).any(|(a, b)| a.index != b.index) {
                let at = || (geometry.member_pointer(a.index), nothing());
                self.note(ReasonCode::PartOrder, "parts in another order", at);
            }
            let start = |paths: &[super::align::Path]| paths.iter().map(|path| path.index).min().unwrap_or_default();
            let holes = a.parts.iter().zip(&b.parts).find(|(a, b)| {
                let (first_a, first_b) = (start(&a.paths), start(&b.paths));
                a.paths.iter().zip(&b.paths).any(|(a, b)| a.index - first_a != b.index - first_b)
            });
            if let Some((part, _)) = holes {
                self.note(ReasonCode::HoleOrder, "holes in another order", || {
                    let exterior = geometry.path_pointer(start(&part.paths));
                    (exterior.rsplit_once('/').map_or("", |(polygon, _)| polygon).to_owned(), nothing())
                });
            }
        }
        if members {
            let at = || (geometry.pointer("geometries"), nothing());
            self.note(ReasonCode::CollectionOrder, "members in another order", at);
        }
    }

    /// How one ring or line is written.
    fn path(&mut self, pair: &PathPair) {
        let (a, b) = (self.a, self.b);
        let pointer = || a.path_pointer(pair.a);
        let closes = |i: usize, path: usize| self.laid[i].closes(path);
        let closed = [closes(0, pair.a), closes(1, pair.b)];
        if pair.repeats[0] != pair.repeats[1] {
            let counts = || pair.repeats.map(|count| format!("{count} repeated"));
            self.note(ReasonCode::DuplicateVertex, "repeated vertices are merged", || (pointer(), counts()));
        }
        let start = |shape: &Shape<f64>, path: usize| if path == 0 { 0 } else { shape.paths[path - 1] };
        let [start_a, start_b] = [start(&a.shape, pair.a), start(&b.shape, pair.b)];
        if !pair.is_ring {
            let runs_back = |i: usize| {
                let vertices = &pair.vertices;
                let of = |(a, b): &(u32, u32)| if i == 0 { *a } else { *b };
                vertices.first().zip(vertices.last()).is_some_and(|(first, last)| of(first) > of(last))
            };
            if runs_back(0) != runs_back(1) {
                let message = "lines are undirected, and this one runs the other way";
                self.note(ReasonCode::LineDirection, message, || (pointer(), nothing()));
            }
            return;
        }
        if closed[0] != closed[1] {
            let values = || closed.map(|yes| if yes { "unclosed" } else { "closed" }.to_owned());
            self.note(ReasonCode::RingClosed, "close_rings closed it", || (pointer(), values()));
        }
        let starts_elsewhere = pair.vertices.iter().any(|&(i, j)| (i == start_a) != (j == start_b));
        if starts_elsewhere {
            let values = || [a.shown_position(start_a as usize), b.shown_position(start_b as usize)];
            self.note(ReasonCode::RingStart, "the ring starts at another vertex", || (pointer(), values()));
        }
        let direction = |i: usize, path: usize| {
            let shape = &self.laid[i].on(self.grid).delivered;
            doubled_area(shape.path(path)).signum()
        };
        let directions = [direction(0, pair.a), direction(1, pair.b)];
        if directions[0] * directions[1] < 0 {
            let names = || directions.map(|sign| if sign > 0 { "counter-clockwise" } else { "clockwise" }.to_owned());
            self.note(ReasonCode::RingDirection, "the ring runs the other way", || (pointer(), names()));
        }
    }

    /// Numbers that are equal on the grid and written otherwise.
    fn numbers(&mut self, aligned: &Alignment) {
        for (i, j) in aligned.vertices() {
            self.vertex(i, j);
        }
        if self.found.removed_places() == self.before && self.a.shape.paths == self.b.shape.paths {
            // What is left are positions that pairs leave out: those that close rings, and repeated ones.
            for i in 0..self.a.shape.positions.len() {
                self.vertex(i, i);
            }
        }
    }

    fn vertex(&mut self, i: usize, j: usize) {
        let (a, b) = (self.a, self.b);
        let forms = [self.laid[0].on(self.grid), self.laid[1].on(self.grid)];
        let [on_a, on_b] = [forms[0].delivered.positions[i], forms[1].delivered.positions[j]];
        if self.equal && on_a != on_b {
            let (code, message) = if a.is_point(i) {
                (ReasonCode::LongitudeName, "one meridian, or one pole, under two longitudes")
            } else {
                (ReasonCode::DuplicateVertex, "repeated vertices are merged")
            };
            self.note(code, message, || (a.position_pointer(i), [a.shown_position(i), b.shown_position(j)]));
        }
        if a.code != b.code {
            return;
        }
        let policy = self.sides[0].policy;
        let places = [policy.precision, policy.precision, policy.precision_z];
        let axes = if forms[0].delivered.has_z && forms[1].delivered.has_z { 3 } else { 2 };
        for axis in (0..axes).filter(|&axis| on_a[axis] == on_b[axis]) {
            let numbers = [a.shape.positions[i][axis], b.shape.positions[j][axis]];
            let texts = a.text(i, axis).zip(b.text(j, axis));
            #[expect(clippy::float_cmp, reason = "the question is whether they are the same double")]
            let code = match texts {
                _ if numbers[0] != numbers[1] => Some(ReasonCode::Precision),
                Some((a, b)) => number_note(a, b),
                None => None,
            };
            let Some(code) = code else { continue };
            let message = match code {
                ReasonCode::Precision => "rounded away by the grid",
                _ => "the same number, written otherwise",
            };
            self.found.removed(code, || Reason {
                a: a.shown(i, axis),
                b: b.shown(j, axis),
                canonical_a: shown::grid(on_a[axis], places[axis]),
                canonical_b: shown::grid(on_b[axis], places[axis]),
                message: message.to_owned(),
                ..Reason::new(code, format!("{}/{axis}", a.position_pointer(i)))
            });
        }
    }

    /// The first number that the two grids round otherwise, where only the second grid makes the geometries equal.
    fn ties(&mut self, aligned: &Alignment) {
        if self.grid != Grid::Safe {
            return;
        }
        let even = [0, 1].map(|i| &self.laid[i].on(Grid::Even).delivered.positions);
        let policy = self.sides[0].policy;
        let places = [policy.precision, policy.precision, policy.precision_z];
        for (i, j) in aligned.vertices() {
            let Some(axis) = (0..3).find(|&axis| even[0][i][axis] != even[1][j][axis]) else { continue };
            let (a, b) = (self.a, self.b);
            let values = [even[0][i][axis], even[1][j][axis]].map(|value| shown::grid(value, places[axis]));
            let [canonical_a, canonical_b] = values;
            self.found.removed(ReasonCode::TieAlias, || Reason {
                a: a.shown(i, axis),
                b: b.shown(j, axis),
                canonical_a,
                canonical_b,
                message: "this number sits on a rounding tie: the second grid, whose key is the alias, agrees"
                    .to_owned(),
                ..Reason::new(ReasonCode::TieAlias, format!("{}/{axis}", a.position_pointer(i)))
            });
        }
    }
}

fn nothing() -> [String; 2] {
    [String::new(), String::new()]
}
