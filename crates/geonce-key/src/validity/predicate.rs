//! Exact tests on grid points: which side, how two segments meet, which sector a direction lies in.
//!
//! Products are taken in 128 bits, so no answer is ever rounded. Coordinates stay within [`COORDINATE_MAX`].

/// A place on the grid.
pub(crate) type Point = [i64; 2];

/// Largest magnitude of x and y: doubled areas of a million vertices still fit into 128 bits.
pub(crate) const COORDINATE_MAX: i64 = 1 << 50;

/// How two segments meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meet {
    /// They have no point in common.
    Apart,
    /// They cross at a point inside both.
    Cross,
    /// They have one point in common, an end of at least one of them.
    Touch(Point),
    /// They share a stretch that starts here.
    Overlap(Point),
}

fn cross(o: Point, a: Point, b: Point) -> i128 {
    i128::from(a[0] - o[0]) * i128::from(b[1] - o[1]) - i128::from(a[1] - o[1]) * i128::from(b[0] - o[0])
}

/// 1 where `c` lies left of the line from `a` to `b`, −1 where right, 0 on it.
pub(crate) fn orient(a: Point, b: Point, c: Point) -> i32 {
    let left = i128::from(b[0] - a[0]) * i128::from(c[1] - a[1]);
    let right = i128::from(b[1] - a[1]) * i128::from(c[0] - a[0]);
    left.cmp(&right) as i32
}

/// How the segments `a`–`b` and `c`–`d` meet. Neither may have length zero.
pub(crate) fn meet(a: Point, b: Point, c: Point, d: Point) -> Meet {
    let (abc, abd) = (orient(a, b, c), orient(a, b, d));
    if abc * abd > 0 {
        return Meet::Apart;
    }
    let (cda, cdb) = (orient(c, d, a), orient(c, d, b));
    if cda * cdb > 0 {
        return Meet::Apart;
    }
    if abc == 0 && abd == 0 {
        let from = a.min(b).max(c.min(d));
        let to = a.max(b).min(c.max(d));
        return match from.cmp(&to) {
            std::cmp::Ordering::Less => Meet::Overlap(from),
            std::cmp::Ordering::Equal => Meet::Touch(from),
            std::cmp::Ordering::Greater => Meet::Apart,
        };
    }
    match (abc, abd, cda, cdb) {
        (0, ..) => Meet::Touch(c),
        (_, 0, ..) => Meet::Touch(d),
        (_, _, 0, _) => Meet::Touch(a),
        (.., 0) => Meet::Touch(b),
        _ => Meet::Cross,
    }
}

/// Whether the directions from `p` to `a` and to `b` are the same.
pub(crate) fn same_direction(p: Point, a: Point, b: Point) -> bool {
    orient(p, a, b) == 0 && dot(p, a, b) > 0
}

fn dot(p: Point, a: Point, b: Point) -> i128 {
    i128::from(a[0] - p[0]) * i128::from(b[0] - p[0]) + i128::from(a[1] - p[1]) * i128::from(b[1] - p[1])
}

/// Whether the direction from `p` to `q` lies strictly inside the sector swept from `a` to `b` against the clock.
pub(crate) fn in_sector(p: Point, a: Point, b: Point, q: Point) -> bool {
    match orient(p, a, b) {
        1 => orient(p, a, q) > 0 && orient(p, q, b) > 0,
        -1 => !(orient(p, b, q) >= 0 && orient(p, q, a) >= 0),
        _ => dot(p, a, b) < 0 && orient(p, a, q) > 0,
    }
}

/// The grid point nearest to where two segments that cross do so; for reports, not for decisions.
pub(crate) fn crossing(a: Point, b: Point, c: Point, d: Point) -> Point {
    let mut above = cross(a, c, d);
    // The cross product of both directions, taken from a common origin.
    let mut below = -cross(c, d, [c[0] + (b[0] - a[0]), c[1] + (b[1] - a[1])]);
    if below < 0 {
        (above, below) = (-above, -below);
    }
    // The quotient is below one: dropping low bits of both leaves it right to far less than a grid step.
    while above.unsigned_abs().max(below.unsigned_abs()) >= 1 << 72 {
        above >>= 1;
        below >>= 1;
    }
    if below == 0 {
        return a;
    }
    let along = |from: i64, to: i64| {
        let product = above * i128::from(to - from) * 2;
        let step = (product + below).div_euclid(below * 2);
        from + i64::try_from(step).unwrap_or(0).clamp((to - from).min(0), (to - from).max(0))
    };
    [along(a[0], b[0]), along(a[1], b[1])]
}

/// Twice the signed area of an open ring; positive against the clock.
pub(crate) fn area_doubled(ring: &[Point]) -> i128 {
    let Some(&origin) = ring.first() else { return 0 };
    ring.windows(2).map(|pair| cross(origin, pair[0], pair[1])).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_meet_as_drawn() {
        let check = |s: [Point; 4], expected| {
            assert_eq!(meet(s[0], s[1], s[2], s[3]), expected, "{s:?}");
            assert_eq!(meet(s[3], s[2], s[1], s[0]), expected, "{s:?} reversed");
        };
        check([[0, 0], [4, 4], [0, 4], [4, 0]], Meet::Cross);
        check([[0, 0], [4, 0], [2, 0], [2, 3]], Meet::Touch([2, 0]));
        check([[0, 0], [4, 0], [4, 0], [4, 3]], Meet::Touch([4, 0]));
        check([[0, 0], [4, 0], [4, 0], [8, 0]], Meet::Touch([4, 0]));
        check([[0, 0], [4, 0], [3, 0], [8, 0]], Meet::Overlap([3, 0]));
        check([[0, 0], [4, 0], [5, 0], [8, 0]], Meet::Apart);
        check([[0, 0], [4, 0], [5, -1], [5, 1]], Meet::Apart);
        check([[0, 0], [4, 0], [0, 1], [4, 1]], Meet::Apart);
    }

    #[test]
    fn a_crossing_is_rounded_to_the_nearest_point() {
        assert_eq!(crossing([0, 0], [4, 4], [0, 4], [4, 0]), [2, 2]);
        assert_eq!(crossing([0, 0], [10, 3], [3, -5], [3, 5]), [3, 1]);
        let m = COORDINATE_MAX;
        let far = crossing([-m, -m], [m, m], [-m, m], [m, -m]);
        assert!(far[0].abs() <= 1 && far[1].abs() <= 1, "{far:?}");
    }

    #[test]
    fn sectors_are_swept_against_the_clock() {
        let p = [0, 0];
        assert!(in_sector(p, [1, 0], [0, 1], [1, 1]));
        assert!(!in_sector(p, [0, 1], [1, 0], [1, 1]));
        assert!(in_sector(p, [0, 1], [1, 0], [-1, 1]));
        assert!(in_sector(p, [1, 0], [-1, 0], [0, 1]));
        assert!(!in_sector(p, [1, 0], [-1, 0], [0, -1]));
        assert!(!in_sector(p, [1, 0], [0, 1], [1, 0]));
    }
}
