//! Why two geometries differ: each suspicion is tried by laying both on the grid again.

use super::align::{Alignment, align};
use super::found::Found;
use super::laid::{Form, Grid, Laid};
use super::reading::{Geometry, Reading};
use super::{Reason, ReasonCode, removed, shown};
use crate::policy::{Detail, Dimensions, Lines, Parts, Policy};
use crate::shape::Shape;
use std::collections::HashSet;
use std::fmt::Write as _;

/// The coarsest precision that is offered as a fix (1.1 m), unless the policy is coarser already.
const PRECISION_FIX_MIN: u8 = 5;

/// Distances that are offered for the near check, in metres.
const NEAR_STEPS: [(f64, &str); 8] = [
    (0.05, "5 cm"),
    (0.1, "10 cm"),
    (0.25, "25 cm"),
    (0.5, "50 cm"),
    (1.0, "1 m"),
    (5.0, "5 m"),
    (10.0, "10 m"),
    (50.0, "50 m"),
];

/// Compares the geometries of two payloads.
pub(super) fn compare(a: &Reading<'_>, b: &Reading<'_>, found: &mut Found) {
    let (geometry_a, geometry_b) = match (&a.geometry, &b.geometry) {
        (Some(a), Some(b)) => (a, b),
        (None, None) => return,
        (a, b) => {
            let name = |geometry: &Option<Geometry<'_>>| {
                geometry.as_ref().map_or("null", |geometry| geometry.shape.type_name()).to_owned()
            };
            let present = a.as_ref().or(b.as_ref()).map_or_else(String::new, |geometry| geometry.pointer("type"));
            let pointer = present.trim_end_matches("/type");
            found.reason(Reason {
                a: name(a),
                b: name(b),
                message: "only one of them has a geometry".to_owned(),
                ..Reason::new(ReasonCode::GeometryType, pointer)
            });
            return;
        }
    };
    let own = [Laid::new(&geometry_a.shape, geometry_a.crs.as_ref(), a.policy)]
        .into_iter()
        .chain([Laid::new(&geometry_b.shape, geometry_b.crs.as_ref(), b.policy)])
        .flatten()
        .collect::<Vec<Laid>>();
    if let [laid_a, laid_b] = own.as_slice()
        && let Some(grid) = laid_a.shared(laid_b)
    {
        let forms = [laid_a.on(grid), laid_b.on(grid)];
        let aligned = align((forms[0], laid_a), (forms[1], laid_b), a.policy);
        removed::compare([a, b], [laid_a, laid_b], grid, aligned.as_ref(), found);
        if forms[0].canonical != forms[1].canonical {
            found.removed(ReasonCode::Shape, || Reason {
                message: format!("vertices differ, but shape = \"{}\" does not look at them", a.policy.shape.name()),
                ..Reason::new(ReasonCode::Shape, geometry_a.member_pointer(0))
            });
        }
        return;
    }
    let pair = GeometryPair { a: geometry_a, b: geometry_b };
    // Under either policy they may be the same: then the policies are the reason, not the places.
    if [a.policy, b.policy].into_iter().any(|policy| pair.same_under(policy)) {
        return;
    }
    pair.reasons(a, b, found);
}

struct GeometryPair<'g, 'v> {
    a: &'g Geometry<'v>,
    b: &'g Geometry<'v>,
}

impl GeometryPair<'_, '_> {
    fn lay(&self, policy: &Policy) -> Option<[Laid; 2]> {
        Some([
            Laid::new(&self.a.shape, self.a.crs.as_ref(), policy)?,
            Laid::new(&self.b.shape, self.b.crs.as_ref(), policy)?,
        ])
    }

    fn same_under(&self, policy: &Policy) -> bool {
        self.lay(policy).is_some_and(|[a, b]| a.shared(&b).is_some())
    }

    fn reasons(&self, a: &Reading<'_>, b: &Reading<'_>, found: &mut Found) {
        let policy = if self.lay(a.policy).is_some() { a.policy } else { b.policy };
        let Some([laid_a, laid_b]) = self.lay(policy) else { return };
        let forms = [laid_a.on(Grid::Even), laid_b.on(Grid::Even)];
        let aligned = align((forms[0], &laid_a), (forms[1], &laid_b), policy);
        removed::compare([a, b], [&laid_a, &laid_b], Grid::Even, aligned.as_ref(), found);
        if self.wrong_system(policy, found) || self.swapped(policy, found) || self.relaxed(policy, found) {
            return;
        }
        let coarser = self.coarser(policy);
        match (aligned, coarser) {
            (Some(alignment), _) => self.displaced(&alignment, forms, policy, coarser, found),
            (None, Some(coarser)) => {
                let message = format!("the same on a coarser grid, precision {coarser}");
                let fix = Some(format!("precision = {coarser}"));
                let pointer = self.a.member_pointer(0);
                found.reason(Reason { message, fix, ..Reason::new(ReasonCode::Precision, pointer) });
            }
            (None, None) => self.structure(forms, policy, found),
        }
    }

    /// The same numbers in two coordinate systems: one of the declarations is wrong.
    fn wrong_system(&self, policy: &Policy, found: &mut Found) -> bool {
        let (a, b) = (self.a, self.b);
        let same_in = |crs: Option<&crate::crs::Crs>| {
            let laid = [&a.shape, &b.shape].map(|shape| Laid::new(shape, crs, policy));
            matches!(laid, [Some(a), Some(b)] if a.shared(&b).is_some())
        };
        if a.code == b.code || !(same_in(a.crs.as_ref()) || same_in(b.crs.as_ref())) {
            return false;
        }
        let name = |geometry: &Geometry<'_>| {
            let assumed = if geometry.declared { "" } else { " (assumed)" };
            format!("EPSG:{}{assumed}", geometry.code)
        };
        found.reason(Reason {
            a: name(a),
            b: name(b),
            message: "the same numbers in two coordinate systems: one declaration is wrong".to_owned(),
            fix: Some("declare the true coordinate system in both".to_owned()),
            ..Reason::new(ReasonCode::Crs, a.pointer("crs"))
        });
        true
    }

    fn swapped(&self, policy: &Policy, found: &mut Found) -> bool {
        let mut shape: Shape<f64> = self.b.shape.clone();
        for position in &mut shape.positions {
            position.swap(0, 1);
        }
        let laid_a = Laid::new(&self.a.shape, self.a.crs.as_ref(), policy);
        let laid_b = Laid::new(&shape, self.b.crs.as_ref(), policy);
        if !matches!((laid_a, laid_b), (Some(a), Some(b)) if a.shared(&b).is_some()) {
            return false;
        }
        found.reason(Reason {
            a: self.a.shown_position(0),
            b: self.b.shown_position(0),
            message: "b is a with its axes swapped".to_owned(),
            fix: Some("positions are longitude first: the sender that writes latitude first must mend it".to_owned()),
            ..Reason::new(ReasonCode::AxisOrder, self.a.position_pointer(0))
        });
        true
    }

    /// Settings without which they would be the same. All are given up together; those that turn out to be
    /// needed for that are the reasons.
    fn relaxed(&self, policy: &Policy, found: &mut Found) -> bool {
        let relaxations: [fn(&mut Policy); 3] = [
            |policy| policy.lines = Lines::Undirected,
            |policy| policy.parts = Parts::Sorted,
            |policy| policy.dimensions = Dimensions::Two,
        ];
        let without = |kept: Option<usize>| {
            let mut relaxed = policy.clone();
            for (i, relax) in relaxations.iter().enumerate() {
                if kept != Some(i) {
                    relax(&mut relaxed);
                }
            }
            self.same_under(&relaxed)
        };
        if !without(None) {
            return false;
        }
        let needed: Vec<usize> = (0..relaxations.len()).filter(|&i| !without(Some(i))).collect();
        for i in &needed {
            match i {
                0 => self.line_direction(found),
                1 => self.part_order(found),
                _ => self.elevation(policy, found),
            }
        }
        !needed.is_empty()
    }

    fn line_direction(&self, found: &mut Found) {
        found.reason(Reason {
            message: "a line runs the other way, and lines are directed".to_owned(),
            fix: Some("lines = \"undirected\"".to_owned()),
            ..Reason::new(ReasonCode::LineDirection, self.a.member_pointer(0))
        });
    }

    fn part_order(&self, found: &mut Found) {
        let code = if self.a.shape.collection { ReasonCode::CollectionOrder } else { ReasonCode::PartOrder };
        let pointer = if self.a.shape.collection { self.a.pointer("geometries") } else { self.a.member_pointer(0) };
        found.reason(Reason {
            message: "parts in another order, and their order counts".to_owned(),
            fix: Some("parts = \"sorted\"".to_owned()),
            ..Reason::new(code, pointer)
        });
    }

    fn elevation(&self, policy: &Policy, found: &mut Found) {
        let (a, b) = (self.a, self.b);
        if a.shape.has_z != b.shape.has_z {
            found.reason(Reason {
                a: a.shown_position(0),
                b: b.shown_position(0),
                message: "only one of them has third numbers".to_owned(),
                fix: Some("dimensions = 2".to_owned()),
                ..Reason::new(ReasonCode::Elevation, a.position_pointer(0))
            });
            return;
        }
        let coarser = (0..policy.precision_z).rev().find(|&precision_z| {
            self.same_under(&Policy { precision_z, lines: Lines::Undirected, parts: Parts::Sorted, ..policy.clone() })
        });
        let mut fix = "dimensions = 2".to_owned();
        if let Some(coarser) = coarser {
            fix = format!("precision_z = {coarser}, or dimensions = 2");
        }
        let Some([laid_a, laid_b]) = self.lay(&Policy { dimensions: Dimensions::Delivered, ..policy.clone() }) else {
            return;
        };
        let forms = [laid_a.on(Grid::Even), laid_b.on(Grid::Even)];
        let z = |form: &Form, i: usize| form.delivered.positions[i][2];
        let pairs = align((forms[0], &laid_a), (forms[1], &laid_b), policy);
        let differing = pairs.iter().flat_map(Alignment::vertices).find(|&(i, j)| z(forms[0], i) != z(forms[1], j));
        let (i, j) = differing.unwrap_or((0, 0));
        let pointer = format!("{}/2", a.position_pointer(i));
        let pointer_b = format!("{}/2", b.position_pointer(j));
        found.reason(Reason {
            pointer_b: (pointer != pointer_b).then_some(pointer_b),
            a: a.shown(i, 2),
            b: b.shown(j, 2),
            canonical_a: shown::grid(z(forms[0], i), policy.precision_z),
            canonical_b: shown::grid(z(forms[1], j), policy.precision_z),
            message: "the same place at another third number".to_owned(),
            fix: Some(fix),
            ..Reason::new(ReasonCode::Elevation, pointer)
        });
    }

    /// The finest coarser precision at which they are the same.
    fn coarser(&self, policy: &Policy) -> Option<u8> {
        let least = PRECISION_FIX_MIN.min(policy.precision.saturating_sub(1));
        (least..policy.precision).rev().find(|&precision| self.same_under(&Policy { precision, ..policy.clone() }))
    }

    /// The same structure, with vertices elsewhere: names the one that is farthest off.
    fn displaced(
        &self,
        alignment: &Alignment,
        [form_a, form_b]: [&Form; 2],
        policy: &Policy,
        coarser: Option<u8>,
        found: &mut Found,
    ) {
        let (a, b) = (self.a, self.b);
        let differing: Vec<(usize, usize)> = alignment
            .vertices()
            .filter(|&(i, j)| form_a.delivered.positions[i] != form_b.delivered.positions[j])
            .collect();
        let apart = |&(i, j): &(usize, usize)| shown::metres(a.lon_lat(i), b.lon_lat(j));
        let measured: Vec<f64> = differing.iter().map(apart).collect();
        let farthest = (0..measured.len()).max_by(|&i, &j| measured[i].total_cmp(&measured[j]).then(j.cmp(&i)));
        let Some(farthest) = farthest else { return self.structure([form_a, form_b], policy, found) };
        let (i, j) = differing[farthest];
        let metres = measured[farthest];
        let within_step = differing.iter().all(|&(i, j)| self.within_step(i, j, policy));
        let code = match (within_step, coarser) {
            (true, _) => ReasonCode::GridEdge,
            (false, Some(_)) => ReasonCode::Precision,
            (false, None) => ReasonCode::Position,
        };
        let reason = self.vertex(code, (i, j), [form_a, form_b], policy);
        let more = match differing.len() {
            0 | 1 => String::new(),
            2 => " One more vertex differs.".to_owned(),
            count => format!(" {} more vertices differ.", count - 1),
        };
        let message = format!("{}{more}", displacement(code, metres, policy.precision));
        let fix = displacement_fix(coarser, metres);
        found.reason(Reason { message, fix: Some(fix), places: differing.len(), ..reason });
    }

    /// Whether two vertices are closer than one step of the grid along every axis.
    fn within_step(&self, i: usize, j: usize, policy: &Policy) -> bool {
        let (a, b) = (self.a.lon_lat(i), self.b.lon_lat(j));
        let step = libm::pow(10.0, -f64::from(policy.precision));
        let step_z = libm::pow(10.0, -f64::from(policy.precision_z));
        let z = (self.a.shape.positions[i][2] - self.b.shape.positions[j][2]).abs();
        (a[0] - b[0]).abs() < step && (a[1] - b[1]).abs() < step && (policy.dimensions == Dimensions::Two || z < step_z)
    }

    /// A vertex, or its one number that differs.
    fn vertex(&self, code: ReasonCode, (i, j): (usize, usize), forms: [&Form; 2], policy: &Policy) -> Reason {
        let (a, b) = (self.a, self.b);
        let [on_a, on_b] = [forms[0].delivered.positions[i], forms[1].delivered.positions[j]];
        let places = [policy.precision, policy.precision, policy.precision_z];
        let axes: Vec<usize> = (0..3).filter(|&axis| on_a[axis] != on_b[axis]).collect();
        let (mut pointer, mut pointer_b) = (a.position_pointer(i), b.position_pointer(j));
        let mut reason = Reason::new(code, "");
        if let &[axis] = axes.as_slice() {
            let _ = write!(pointer, "/{axis}");
            let _ = write!(pointer_b, "/{axis}");
            [reason.a, reason.b] = [a.shown(i, axis), b.shown(j, axis)];
            [reason.canonical_a, reason.canonical_b] = [on_a, on_b].map(|on| shown::grid(on[axis], places[axis]));
        } else {
            let shown_grid = |form: &Form, position: [i64; 3]| {
                let axes = if form.delivered.has_z { 3 } else { 2 };
                let numbers: Vec<String> = (0..axes).map(|axis| shown::grid(position[axis], places[axis])).collect();
                format!("[{}]", numbers.join(", "))
            };
            [reason.a, reason.b] = [a.shown_position(i), b.shown_position(j)];
            [reason.canonical_a, reason.canonical_b] = [shown_grid(forms[0], on_a), shown_grid(forms[1], on_b)];
        }
        reason.pointer_b = (pointer != pointer_b).then_some(pointer_b);
        reason.pointer = pointer;
        reason
    }

    /// Other types or counts.
    fn structure(&self, [form_a, form_b]: [&Form; 2], policy: &Policy, found: &mut Found) {
        let (a, b) = (&form_a.canonical, &form_b.canonical);
        let rings = |shape: &Shape<i64>| shape.paths.len();
        let kinds = |shape: &Shape<i64>| shape.members.iter().map(|member| member.kind).collect::<Vec<_>>();
        let single = |shape: &Shape<i64>| kinds(shape).iter().map(|kind| kind.part()).collect::<Vec<_>>();
        let pointer = self.a.member_pointer(0);
        let counted = |code: ReasonCode, what: &str, a: usize, b: usize| Reason {
            a: a.to_string(),
            b: b.to_string(),
            message: format!("a has {a} {what}, b has {b}"),
            ..Reason::new(code, pointer.as_str())
        };
        let reason = if a.collection != b.collection || (single(a) != single(b) && !a.collection) {
            Reason {
                a: self.a.shape.type_name().to_owned(),
                b: self.b.shape.type_name().to_owned(),
                canonical_a: a.type_name().to_owned(),
                canonical_b: b.type_name().to_owned(),
                message: "geometries of two types".to_owned(),
                ..Reason::new(ReasonCode::GeometryType, self.a.pointer("type"))
            }
        } else if a.members.len() != b.members.len() {
            counted(ReasonCode::PartCount, "members", a.members.len(), b.members.len())
        } else if a.parts.len() != b.parts.len() {
            counted(ReasonCode::PartCount, "parts", a.parts.len(), b.parts.len())
        } else if rings(a) != rings(b) {
            counted(ReasonCode::RingCount, "rings", rings(a), rings(b))
        } else if kinds(a) != kinds(b) {
            let message = "members of other types".to_owned();
            Reason { message, ..Reason::new(ReasonCode::GeometryType, self.a.pointer("geometries")) }
        } else {
            Reason { fix: self.denser(policy), ..self.only_on_one_side([form_a, form_b]) }
        };
        found.reason(reason);
    }

    /// The setting under which vertices on straight segments do not count, where they are all that differs.
    fn denser(&self, policy: &Policy) -> Option<String> {
        let simplified = Policy { shape: Detail::Simplified, ..policy.clone() };
        let flat = policy.dimensions == Dimensions::Two || !(self.a.shape.has_z || self.b.shape.has_z);
        let fix = if policy.dimensions == Dimensions::Two { "" } else { " with dimensions = 2" };
        (policy.shape == Detail::Exact && flat && self.same_under(&simplified))
            .then(|| format!("shape = \"simplified\"{fix}"))
    }

    /// The first vertex that one geometry has and the other has not.
    fn only_on_one_side(&self, [form_a, form_b]: [&Form; 2]) -> Reason {
        let first = |mine: &Form, theirs: &Form| {
            let known: HashSet<&[i64; 3]> = theirs.delivered.positions.iter().collect();
            mine.delivered.positions.iter().position(|position| !known.contains(position))
        };
        let counts = [form_a, form_b].map(|form| form.canonical.positions.len());
        let (only_a, only_b) = (first(form_a, form_b), first(form_b, form_a));
        let fallback = self.a.member_pointer(0);
        let at = |geometry: &Geometry<'_>, i: Option<usize>| i.map(|i| geometry.position_pointer(i));
        let show =
            |geometry: &Geometry<'_>, i: Option<usize>| i.map_or_else(String::new, |i| geometry.shown_position(i));
        let message = match (counts[0] == counts[1], only_a.is_some(), only_b.is_some()) {
            (true, ..) => "vertices are distributed otherwise over the rings or parts".to_owned(),
            (_, true, false) => "b lacks this vertex of a".to_owned(),
            (_, false, true) => "a lacks this vertex of b".to_owned(),
            _ => "other vertices, and another number of them".to_owned(),
        };
        Reason {
            pointer_b: at(self.b, only_b),
            a: show(self.a, only_a),
            b: show(self.b, only_b),
            message,
            ..Reason::new(ReasonCode::VertexCount, at(self.a, only_a).unwrap_or(fallback))
        }
    }
}

fn displacement(code: ReasonCode, metres: f64, precision: u8) -> String {
    let apart = shown::about(metres);
    let step = shown::distance(shown::DEGREE_M * libm::pow(10.0, -f64::from(precision)), 3);
    match code {
        ReasonCode::GridEdge => {
            format!("{apart} apart, on two sides of a grid line (precision {precision} = {step}).")
        }
        ReasonCode::Precision => {
            format!("{apart} apart, more than the grid's step (precision {precision} = {step}).")
        }
        _ => format!("{apart} apart."),
    }
}

/// What was tried, or a distance for the near check; far apart nothing would be right.
fn displacement_fix(coarser: Option<u8>, metres: f64) -> String {
    let near =
        NEAR_STEPS.iter().find(|(reach, _)| metres * 2.0 <= *reach).map(|(_, text)| format!("near = \"{text}\""));
    let precision = coarser.map(|n| format!("precision = {n}"));
    match (precision, near) {
        (Some(precision), Some(near)) => format!("{precision}, or {near}"),
        (Some(fix), None) | (None, Some(fix)) => fix,
        (None, None) => "none: these are two places, so two events".to_owned(),
    }
}
