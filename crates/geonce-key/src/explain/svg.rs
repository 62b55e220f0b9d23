//! Both delivered geometries in one drawing: a standalone SVG without scripts, styles or references.

use super::align::align;
use super::laid::{Grid, Laid};
use super::reading::{Geometry, Reading};
use super::{Explanation, Side, document, shown};
use crate::json::Tape;
use crate::policy::Policy;
use crate::shape::Kind;
use std::fmt::Write as _;

/// Vertices drawn of each geometry; the rest is left out and said so.
pub const VERTICES_DRAWN_MAX: usize = 5_000;

/// Differing vertices that are labelled.
const LABELS_MAX: usize = 12;

/// The grid is drawn where the drawing is narrower than this many steps.
const GRID_STEPS_MAX: f64 = 50.0;

/// The drawing's side, and what is kept free around the geometries, in pixels.
const SIZE: f64 = 480.0;
const MARGIN: f64 = 40.0;

const COLORS: [&str; 2] = ["#1f77b4", "#ff7f0e"];

impl Explanation {
    /// Draws both geometries as delivered, `a` blue and `b` orange, and marks vertices that differ on the grid.
    /// The plane is that of longitude and latitude.
    pub fn to_svg(&self, a: &Side<'_>, b: &Side<'_>) -> String {
        let mut tapes = [Tape::default(), Tape::default()];
        let [tape_a, tape_b] = &mut tapes;
        let documents = [document(a, tape_a).ok().flatten(), document(b, tape_b).ok().flatten()];
        let [document_a, document_b] = &documents;
        let reading_a = Reading::new(a.input, a.policy, document_a.as_ref()).ok();
        let reading_b = Reading::new(b.input, b.policy, document_b.as_ref()).ok();
        let geometries = [&reading_a, &reading_b].map(|reading| reading.as_ref()?.geometry.as_ref());
        let verdict = if self.same { "same event" } else { "different events" };
        draw(geometries, a.policy, verdict)
    }
}

/// From longitude and latitude to pixels.
struct Frame {
    west: f64,
    north: f64,
    scale: f64,
    /// Degrees across.
    span: f64,
}

impl Frame {
    fn new(positions: impl Iterator<Item = [f64; 2]>, step: f64) -> Frame {
        let mut low = [f64::INFINITY; 2];
        let mut high = [f64::NEG_INFINITY; 2];
        for position in positions {
            for axis in 0..2 {
                low[axis] = low[axis].min(position[axis]);
                high[axis] = high[axis].max(position[axis]);
            }
        }
        if !(low[0].is_finite() && low[1].is_finite()) {
            (low, high) = ([0.0; 2], [0.0; 2]);
        }
        let span = (high[0] - low[0]).max(high[1] - low[1]).max(6.0 * step);
        let scale = (SIZE - 2.0 * MARGIN) / span;
        let middle = [0, 1].map(|axis| f64::midpoint(low[axis], high[axis]));
        let half = SIZE / 2.0 / scale;
        Frame { west: middle[0] - half, north: middle[1] + half, scale, span }
    }

    fn at(&self, [lon, lat]: [f64; 2]) -> [f64; 2] {
        [(lon - self.west) * self.scale, (self.north - lat) * self.scale]
    }
}

fn draw(geometries: [Option<&Geometry<'_>>; 2], policy: &Policy, verdict: &str) -> String {
    let step = libm::pow(10.0, -f64::from(policy.precision));
    let drawn = |geometry: &Geometry<'_>| geometry.shape.positions.len().min(VERTICES_DRAWN_MAX);
    let positions = geometries.into_iter().flatten().flat_map(|g| (0..drawn(g)).map(|i| g.lon_lat(i)));
    let frame = Frame::new(positions, step);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {SIZE} {SIZE}\" font-family=\"sans-serif\" \
         font-size=\"11\"><title>{}</title><rect width=\"{SIZE}\" height=\"{SIZE}\" fill=\"#ffffff\"/>",
        escape(verdict)
    );
    if frame.span < GRID_STEPS_MAX * step {
        grid_lines(&frame, step, &mut out);
    }
    for (geometry, color) in geometries.into_iter().zip(COLORS) {
        if let Some(geometry) = geometry {
            paths(geometry, &frame, color, &mut out);
        }
    }
    if let [Some(a), Some(b)] = geometries {
        marks(a, b, policy, &frame, &mut out);
    }
    legend(geometries, &mut out);
    out.push_str("</svg>");
    out
}

/// Lines of the grid, through the places that vertices are rounded to.
fn grid_lines(frame: &Frame, step: f64, out: &mut String) {
    let across = SIZE / frame.scale;
    let lines = |from: f64| {
        let first = libm::ceil(from / step);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by GRID_STEPS_MAX")]
        let count = (across / step).clamp(0.0, 2.0 * GRID_STEPS_MAX) as u32;
        (0..=count).map(move |i| (first + f64::from(i)) * step)
    };
    out.push_str("<g stroke=\"#dddddd\" stroke-width=\"0.5\">");
    for lon in lines(frame.west) {
        let x = (lon - frame.west) * frame.scale;
        let _ = write!(out, "<path d=\"M{x:.2} 0V{SIZE}\"/>");
    }
    for lat in lines(frame.north - across) {
        let y = (frame.north - lat) * frame.scale;
        let _ = write!(out, "<path d=\"M0 {y:.2}H{SIZE}\"/>");
    }
    out.push_str("</g>");
}

fn paths(geometry: &Geometry<'_>, frame: &Frame, color: &str, out: &mut String) {
    let _ = write!(out, "<g stroke=\"{color}\" fill=\"none\" stroke-width=\"1.5\" stroke-opacity=\"0.8\">");
    let mut start = 0;
    let mut kinds = geometry.shape.members().flat_map(|member| {
        member.parts().flat_map(move |part| part.path_indices().map(move |path| (path, member.kind.part())))
    });
    while start < VERTICES_DRAWN_MAX
        && let Some((path, kind)) = kinds.next()
    {
        let end = (geometry.shape.paths[path] as usize).min(VERTICES_DRAWN_MAX);
        if kind != Kind::Point {
            out.push_str("<path d=\"");
            for i in start..end {
                let [x, y] = frame.at(geometry.lon_lat(i));
                let _ = write!(out, "{}{x:.2} {y:.2}", if i == start { "M" } else { "L" });
            }
            out.push_str("\"/>");
        }
        start = end;
    }
    let _ = write!(out, "</g><g fill=\"{color}\" fill-opacity=\"0.8\">");
    for i in 0..start {
        let [x, y] = frame.at(geometry.lon_lat(i));
        let _ = write!(out, "<circle cx=\"{x:.2}\" cy=\"{y:.2}\" r=\"2.5\"/>");
    }
    out.push_str("</g>");
}

/// Rings around vertices that differ on the grid, the first ones with their places in both payloads.
fn marks(a: &Geometry<'_>, b: &Geometry<'_>, policy: &Policy, frame: &Frame, out: &mut String) {
    let laid = [a, b].map(|geometry| Laid::new(&geometry.shape, geometry.crs.as_ref(), policy));
    let [Some(laid_a), Some(laid_b)] = laid else { return };
    let grid = laid_a.shared(&laid_b).unwrap_or(Grid::Even);
    let forms = [laid_a.on(grid), laid_b.on(grid)];
    let Some(alignment) = align((forms[0], &laid_a), (forms[1], &laid_b), policy) else { return };
    let differs = |&(i, j): &(usize, usize)| forms[0].delivered.positions[i] != forms[1].delivered.positions[j];
    let drawn = |&(i, j): &(usize, usize)| i < VERTICES_DRAWN_MAX && j < VERTICES_DRAWN_MAX;
    if forms[0].canonical == forms[1].canonical {
        return;
    }
    for (nth, (i, j)) in alignment.vertices().filter(differs).filter(drawn).enumerate() {
        let [from, to] = [frame.at(a.lon_lat(i)), frame.at(b.lon_lat(j))];
        let _ = write!(
            out,
            "<g stroke=\"#d62728\" fill=\"none\"><path d=\"M{:.2} {:.2}L{:.2} {:.2}\"/>",
            from[0], from[1], to[0], to[1]
        );
        for [x, y] in [from, to] {
            let _ = write!(out, "<circle cx=\"{x:.2}\" cy=\"{y:.2}\" r=\"6\"/>");
        }
        out.push_str("</g>");
        if nth < LABELS_MAX {
            let apart = shown::distance(shown::metres(a.lon_lat(i), b.lon_lat(j)), 2);
            let label = format!("{} {apart}", shown::place(&a.position_pointer(i)));
            let (x, anchor) = if from[0] > SIZE / 2.0 { (from[0] - 9.0, "end") } else { (from[0] + 9.0, "start") };
            let _ = write!(
                out,
                "<text x=\"{x:.2}\" y=\"{:.2}\" text-anchor=\"{anchor}\" fill=\"#d62728\">{}</text>",
                from[1] - 7.0,
                escape(&label)
            );
        }
    }
}

fn legend(geometries: [Option<&Geometry<'_>>; 2], out: &mut String) {
    for (nth, ((geometry, color), name)) in geometries.into_iter().zip(COLORS).zip(["a", "b"]).enumerate() {
        let text = match geometry {
            None => format!("{name}: null"),
            Some(geometry) => {
                let count = geometry.shape.positions.len();
                let note =
                    if count > VERTICES_DRAWN_MAX { format!(", {VERTICES_DRAWN_MAX} drawn") } else { String::new() };
                format!("{name}: {}, {count} positions{note}", geometry.shape.type_name())
            }
        };
        let y = if nth == 0 { 14 } else { 28 };
        let _ = write!(out, "<text x=\"8\" y=\"{y}\" fill=\"{color}\">{}</text>", escape(&text));
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
