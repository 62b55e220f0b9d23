//! Events that are two only because a rounding line runs between them: alike in everything but the geometry, and that
//! nowhere displaced by a whole step of the grid.

use super::seen::{Place, fine_precision};
use super::{Advice, EVENTS_MIN, View, percent};
use crate::show::count;
use serde_json::json;
use std::collections::{HashMap, HashSet};

/// Fewer are no pattern.
const EVENTS_NEAR_MIN: usize = 3;
/// Vertices that are compared in all; beyond that the rest is not looked at.
const VERTICES_COMPARED_MAX: usize = 50_000_000;
/// Events near one place that each is compared with.
const COMPARED_MAX: usize = 64;

pub(super) fn advise(view: &View<'_>) -> Vec<Advice> {
    let places: Vec<&Place> = view.seen.iter().filter_map(|seen| seen.place.as_ref()).collect();
    if places.len() < EVENTS_MIN {
        return Vec::new();
    }
    let precision = view.policy.precision;
    let step = 10_i64.pow(u32::from(fine_precision(view.policy) - precision));
    let pairs = near_pairs(&places, step);
    let near: HashSet<usize> = pairs.iter().flat_map(|&(a, b)| [a, b]).collect();
    if near.len() < EVENTS_NEAR_MIN || near.len() * 1_000 < places.len() {
        return Vec::new();
    }
    let (number, all) = (near.len() as u64, places.len() as u64);
    let coarser = pairs.iter().filter(|&&(a, b)| rounds_alike(places[a], places[b], step * 10)).count();
    let message = format!(
        "{} of {} events ({}) differ from another one by less than a step of the grid (precision {precision}), and in nothing else",
        count(number),
        count(all),
        percent(number, all)
    );
    let mut hint = "near recognises them, with measure vertex and a step of the grid as its threshold".to_owned();
    if precision > 0 && coarser * 2 > pairs.len() {
        hint =
            format!("{hint}; precision = {} makes {} of {} such pairs one event", precision - 1, coarser, pairs.len());
    }
    let figures = json!({
        "events": all, "near": number, "pairs": pairs.len(), "precision": precision, "pairs_equal_one_decimal_less": coarser,
    });
    vec![view.advice("grid_edge", message, hint, figures)]
}

/// For each event an earlier one that is less than `step` away everywhere and yet another event, if there is one.
fn near_pairs(places: &[&Place], step: i64) -> Vec<(usize, usize)> {
    let mut cells: HashMap<(u64, i64, i64), Vec<usize>> = HashMap::new();
    let (mut pairs, mut compared) = (Vec::new(), 0);
    for (index, place) in places.iter().enumerate() {
        let Some([x, y]) = corner(place).map(|corner| corner.map(|number| number.div_euclid(2 * step))) else {
            continue;
        };
        let around = (x - 1..=x + 1).flat_map(|x| (y - 1..=y + 1).map(move |y| (x, y)));
        let mut candidates = around.filter_map(|(x, y)| cells.get(&(place.kind, x, y))).flatten().copied();
        let near = candidates.find(|&other| {
            compared += place.vertices.len();
            compared <= VERTICES_COMPARED_MAX && is_near(places[other], place, step)
        });
        pairs.extend(near.map(|other| (other, index)));
        let cell = cells.entry((place.kind, x, y)).or_default();
        if cell.len() < COMPARED_MAX {
            cell.push(index);
        }
    }
    pairs
}

/// The south-west corner of the box around a geometry: it moves less than the geometry's vertices do.
fn corner(place: &Place) -> Option<[i64; 2]> {
    let least = |axis: usize| place.vertices.iter().map(|vertex| vertex[axis]).min();
    Some([least(0)?, least(1)?])
}

fn is_near(a: &Place, b: &Place, step: i64) -> bool {
    let close = |(a, b): (&[i64; 3], &[i64; 3])| a[2] == b[2] && (0..2).all(|axis| (a[axis] - b[axis]).abs() < step);
    a.vertices.len() == b.vertices.len() && a.vertices.iter().zip(&b.vertices).all(close) && !a.keyed.matches(&b.keyed)
}

/// Whether two geometries are the same on a grid with steps of so many fine ones.
fn rounds_alike(a: &Place, b: &Place, step: i64) -> bool {
    let round = |number: i64| (number + step / 2).div_euclid(step);
    let alike = |(a, b): (&[i64; 3], &[i64; 3])| (0..2).all(|axis| round(a[axis]) == round(b[axis]));
    a.vertices.iter().zip(&b.vertices).all(alike)
}
