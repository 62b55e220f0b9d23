//! Fills a new R-tree all at once: boxes in the order of a Hilbert curve, packed into full nodes, level by level.
//!
//! The nodes are written into the tables that SQLite keeps an R-tree in (`…_node`, `…_parent`, `…_rowid`): a tenth of the
//! work of inserting box by box, and a tree that is better to search. Their form is part of SQLite's file format.
//! Up to [`KEPT_MAX`] boxes are sorted in memory; beyond that SQLite sorts them in a temporary file.

use crate::sink::geopackage::geometry::{Bounds, join};
use crate::sink::geopackage::layer::Boxes;
use rusqlite::functions::FunctionFlags;
use rusqlite::types::Type;
use rusqlite::{Connection, Error, Result, Statement};

/// How many boxes are kept in memory.
const KEPT_MAX: usize = 1 << 20;
/// A row's number and four single floats.
const CELL_BYTES: usize = 24;
/// The depth of the tree, in its root, and the number of cells.
const HEADER_BYTES: usize = 4;
/// The root has this number.
const ROOT: i64 = 1;
const DEPTH_MAX: usize = 40;

/// A box, in the precision of the tree; rounded outwards, so that it holds what it held before.
#[derive(Clone, Copy)]
struct Entry {
    id: i64,
    /// Least x, greatest x, least y, greatest y.
    sides: [f32; 4],
    /// Its place on the curve; later the leaf that it is in.
    place: u32,
}

impl Entry {
    fn new(id: i64, [min_x, max_x, min_y, max_y]: Bounds) -> Entry {
        Entry { id, sides: [below(min_x), above(max_x), below(min_y), above(max_y)], place: 0 }
    }

    fn grow(&mut self, other: &Entry) {
        let [a, b, c, d] = other.sides;
        let [min_x, max_x, min_y, max_y] = self.sides;
        self.sides = [min_x.min(a), max_x.max(b), min_y.min(c), max_y.max(d)];
    }
}

#[expect(clippy::cast_possible_truncation, reason = "rounded the right way after that")]
fn below(number: f64) -> f32 {
    let near = number as f32;
    if f64::from(near) > number { near.next_down() } else { near }
}

#[expect(clippy::cast_possible_truncation, reason = "rounded the right way after that")]
fn above(number: f64) -> f32 {
    let near = number as f32;
    if f64::from(near) < number { near.next_up() } else { near }
}

/// The boxes of rows that are written, for the tree that comes after them.
#[derive(Default)]
pub(super) struct Kept {
    list: Vec<Entry>,
    /// Whether there are rows that are not in the list.
    is_partial: bool,
}

impl Kept {
    /// Of a layer that has rows already.
    pub(super) fn partial() -> Kept {
        Kept { list: Vec::new(), is_partial: true }
    }

    pub(super) fn add(&mut self, id: i64, bounds: Bounds) {
        if self.is_partial || !bounds.iter().all(|side| side.is_finite()) {
            return;
        }
        if self.list.len() == KEPT_MAX {
            *self = Kept::partial();
            return;
        }
        self.list.push(Entry::new(id, bounds));
    }

    /// Fills the tree, which must be new.
    pub(super) fn fill(self, connection: &Connection, boxes: &Boxes, extent: Option<Bounds>) -> Result<()> {
        if self.is_partial {
            return fill_from_rows(connection, boxes, extent);
        }
        let curve = Curve::new(extent);
        let mut list = self.list;
        for entry in &mut list {
            entry.place = curve.place(entry);
        }
        list.sort_unstable_by_key(|entry| (entry.place, entry.id));
        let mut builder = Builder::new(connection, boxes)?;
        for entry in &mut list {
            // There are fewer leaves than boxes, and those are few enough.
            entry.place = u32::try_from(builder.add(*entry)?).unwrap_or(u32::MAX);
        }
        // In their own order rows are added at the end of the table, which is the fastest.
        list.sort_unstable_by_key(|entry| entry.id);
        for entry in list {
            builder.rowid.execute((entry.id, entry.place))?;
        }
        builder.finish()
    }
}

/// Fills the tree from the rows of the layer.
fn fill_from_rows(connection: &Connection, boxes: &Boxes, extent: Option<Bounds>) -> Result<()> {
    let mut builder = Builder::new(connection, boxes)?;
    let extent = if extent.is_some() { extent } else { find_extent(connection, boxes)? };
    let curve = Curve::new(extent);
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("geonce_curve", 4, flags, move |context| {
        let bounds = [context.get(0)?, context.get(1)?, context.get(2)?, context.get(3)?];
        Ok(i64::from(curve.place(&Entry::new(0, bounds))))
    })?;
    // The columns of the tree have no names there.
    let select = format!(
        "WITH geonce_box (id, a, b, c, d) AS ({}) SELECT * FROM geonce_box ORDER BY geonce_curve(a, b, c, d)",
        boxes.select
    );
    let mut statement = connection.prepare(&select)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let id = row.get(0)?;
        let leaf = builder.add(Entry::new(id, [row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?]))?;
        builder.rowid.execute((id, leaf))?;
    }
    builder.finish()
}

fn find_extent(connection: &Connection, boxes: &Boxes) -> Result<Option<Bounds>> {
    let mut statement = connection.prepare(&boxes.select)?;
    let mut rows = statement.query([])?;
    let mut extent = None;
    while let Some(row) = rows.next()? {
        extent = join(extent, Some([row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?]));
    }
    Ok(extent)
}

/// A Hilbert curve through the middle of 2^32 squares.
struct Curve {
    origin: [f64; 2],
    scale: [f64; 2],
}

impl Curve {
    const SIDE: f64 = 65_535.0;

    fn new(extent: Option<Bounds>) -> Curve {
        let [min_x, max_x, min_y, max_y] = extent.unwrap_or_default();
        let scale = |width: f64| if width > 0.0 { Curve::SIDE / width } else { 0.0 };
        Curve { origin: [min_x, min_y], scale: [scale(max_x - min_x), scale(max_y - min_y)] }
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 65,535")]
    fn place(&self, entry: &Entry) -> u32 {
        let [min_x, max_x, min_y, max_y] = entry.sides.map(f64::from);
        let at = |low: f64, high: f64, axis: usize| {
            ((f64::midpoint(low, high) - self.origin[axis]) * self.scale[axis]).clamp(0.0, Curve::SIDE) as u32
        };
        hilbert(at(min_x, max_x, 0), at(min_y, max_y, 1))
    }
}

/// The distance along the curve to a square.
fn hilbert(mut x: u32, mut y: u32) -> u32 {
    let mut distance = 0;
    let mut side = 1 << 15;
    while side > 0 {
        let (right, upper) = (u32::from(x & side > 0), u32::from(y & side > 0));
        distance += side * side * ((3 * right) ^ upper);
        if upper == 0 {
            if right == 1 {
                (x, y) = (!x & 0xffff, !y & 0xffff);
            }
            (x, y) = (y, x);
        }
        side >>= 1;
    }
    distance
}

/// A node that is being filled.
struct Node {
    number: i64,
    cells: Vec<u8>,
    count: usize,
    around: Entry,
}

struct Builder<'c> {
    node: Statement<'c>,
    parent: Statement<'c>,
    rowid: Statement<'c>,
    connection: &'c Connection,
    name: String,
    /// The open node of each level, leaves first.
    levels: Vec<Node>,
    last: i64,
    cells_max: usize,
    node_bytes: usize,
}

impl<'c> Builder<'c> {
    fn new(connection: &'c Connection, boxes: &Boxes) -> Result<Builder<'c>> {
        let table = |part: &str| crate::sink::columns::quoted(&format!("{}_{part}", boxes.rtree));
        let sql = format!("SELECT length(data) FROM {} WHERE nodeno = {ROOT}", table("node"));
        let node_bytes = connection.query_row(&sql, [], |row| row.get::<_, u32>(0))? as usize;
        let cells_max = node_bytes.saturating_sub(HEADER_BYTES) / CELL_BYTES;
        if cells_max < 2 {
            return Err(Error::InvalidColumnType(0, "data".to_owned(), Type::Blob));
        }
        Ok(Builder {
            node: connection.prepare(&format!("INSERT OR REPLACE INTO {} VALUES (?1, ?2)", table("node")))?,
            parent: connection.prepare(&format!("INSERT INTO {} VALUES (?1, ?2)", table("parent")))?,
            rowid: connection.prepare(&format!("INSERT INTO {} VALUES (?1, ?2)", table("rowid")))?,
            connection,
            name: boxes.rtree.clone(),
            levels: Vec::new(),
            last: ROOT,
            cells_max,
            node_bytes,
        })
    }

    /// Adds a box; the leaf that it went into.
    fn add(&mut self, entry: Entry) -> Result<i64> {
        self.add_at(0, entry)
    }

    fn add_at(&mut self, level: usize, entry: Entry) -> Result<i64> {
        if level >= DEPTH_MAX {
            return Err(Error::StatementChangedRows(level));
        }
        if self.levels.get(level).is_some_and(|node| node.count == self.cells_max) {
            self.close(level)?;
        }
        if level == self.levels.len() {
            let node = self.open(entry);
            self.levels.push(node);
        }
        let node = &mut self.levels[level];
        if node.count == 0 {
            node.around = entry;
        }
        node.around.grow(&entry);
        node.cells.extend_from_slice(&entry.id.to_be_bytes());
        for side in entry.sides {
            node.cells.extend_from_slice(&side.to_be_bytes());
        }
        node.count += 1;
        Ok(node.number)
    }

    fn open(&mut self, around: Entry) -> Node {
        self.last += 1;
        Node { number: self.last, cells: Vec::with_capacity(self.node_bytes), count: 0, around }
    }

    /// Writes a full node, and leaves an empty one in its place.
    fn close(&mut self, level: usize) -> Result<()> {
        let next = self.open(self.levels[level].around);
        let full = std::mem::replace(&mut self.levels[level], next);
        self.write(full.number, 0, &full)?;
        let above = self.add_at(level + 1, Entry { id: full.number, ..full.around })?;
        self.parent.execute((full.number, above))?;
        Ok(())
    }

    #[expect(clippy::cast_possible_truncation, reason = "small numbers: levels and cells")]
    fn write(&mut self, number: i64, depth: usize, node: &Node) -> Result<()> {
        let mut data = Vec::with_capacity(self.node_bytes);
        data.extend_from_slice(&(depth as u16).to_be_bytes());
        data.extend_from_slice(&(node.count as u16).to_be_bytes());
        data.extend_from_slice(&node.cells);
        data.resize(self.node_bytes, 0);
        self.node.execute((number, data)).map(drop)
    }

    /// Closes what is open. The last one is the root, and gets its number.
    fn finish(mut self) -> Result<()> {
        let mut level = 0;
        while level + 1 < self.levels.len() {
            // One that was left empty by the one before it is not needed.
            if self.levels[level].count > 0 {
                self.close(level)?;
            }
            level += 1;
        }
        let Some(root) = self.levels.pop() else { return Ok(()) };
        self.write(ROOT, level, &root)?;
        let (table, column) = if level == 0 { ("rowid", "nodeno") } else { ("parent", "parentnode") };
        let table = crate::sink::columns::quoted(&format!("{}_{table}", self.name));
        self.connection
            .execute(&format!("UPDATE {table} SET {column} = ?1 WHERE {column} = ?2"), (ROOT, root.number))
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::{Kept, hilbert};
    use crate::sink::geopackage::geometry::{Bounds, join};
    use crate::sink::geopackage::layer::Boxes;
    use rusqlite::Connection;

    /// Boxes here and there, always the same.
    fn boxes(count: i64) -> Vec<(i64, Bounds)> {
        let mut seed = 42_u64;
        let mut next = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            f64::from(u32::try_from(seed >> 33).unwrap()) / f64::from(1_u32 << 31)
        };
        (1..=count)
            .map(|id| {
                let (x, y, width) = (next() * 360.0 - 180.0, next() * 180.0 - 90.0, next() * 0.1);
                (id * 3, [x, x + width, y, y + width / 2.0])
            })
            .collect()
    }

    fn check(connection: &Connection, boxes: &[(i64, Bounds)]) {
        let told: String = connection.query_row("SELECT rtreecheck('tree it')", [], |row| row.get(0)).unwrap();
        assert_eq!(told, "ok");
        let count: u32 = connection.query_row("SELECT count(*) FROM \"tree it\"", [], |row| row.get(0)).unwrap();
        assert_eq!(count as usize, boxes.len());
        let sql =
            "SELECT id FROM \"tree it\" WHERE maxx >= ?1 AND minx <= ?2 AND maxy >= ?3 AND miny <= ?4 ORDER BY id";
        for window in [[-20.0, 10.0, -5.0, 33.0], [170.0, 180.0, 80.0, 90.0], [0.0, 0.5, 0.0, 0.5]] {
            let mut statement = connection.prepare(sql).unwrap();
            let found: Vec<i64> = statement.query_map(window, |row| row.get(0)).unwrap().map(Result::unwrap).collect();
            let [a, b, c, d] = window;
            let meets = |s: &Bounds| s[1] >= a && s[0] <= b && s[3] >= c && s[2] <= d;
            let wanted: Vec<i64> = boxes.iter().filter(|(_, sides)| meets(sides)).map(|(id, _)| *id).collect();
            assert!(wanted.iter().all(|id| found.contains(id)), "{window:?}");
            // Single precision finds a few more at the edges.
            assert!(found.len() <= wanted.len() + 2 + wanted.len() / 100, "{} {}", found.len(), wanted.len());
        }
    }

    #[test]
    fn a_tree_that_was_filled_at_once_is_one_that_sqlite_takes_for_its_own() {
        for count in [0, 1, 50, 51, 52, 2_601, 2_602, 30_000] {
            for partial in [false, true] {
                let connection = Connection::open_in_memory().unwrap();
                connection
                    .execute_batch(
                        "CREATE VIRTUAL TABLE \"tree it\" USING rtree(id, minx, maxx, miny, maxy);
                         CREATE TABLE box (id, a, b, c, d)",
                    )
                    .unwrap();
                let boxes = boxes(count);
                let mut kept = if partial { Kept::partial() } else { Kept::default() };
                let mut insert = connection.prepare("INSERT INTO box VALUES (?1, ?2, ?3, ?4, ?5)").unwrap();
                for (id, [a, b, c, d]) in &boxes {
                    kept.add(*id, [*a, *b, *c, *d]);
                    insert.execute((id, a, b, c, d)).unwrap();
                }
                let extent = boxes.iter().fold(None, |extent, (_, sides)| join(extent, Some(*sides)));
                let select = "SELECT id, a, b, c, d FROM box".to_owned();
                kept.fill(&connection, &Boxes { rtree: "tree it".to_owned(), select }, extent).unwrap();
                check(&connection, &boxes);
                // It goes on as any other.
                for (id, [a, b, c, d]) in boxes.iter().take(200) {
                    connection.execute("DELETE FROM \"tree it\" WHERE id = ?1", [id]).unwrap();
                    let again = (id, a, b, c, d);
                    connection.execute("INSERT INTO \"tree it\" VALUES (?1, ?2, ?3, ?4, ?5)", again).unwrap();
                }
                check(&connection, &boxes);
            }
        }
    }

    #[test]
    fn the_curve_goes_from_each_square_to_a_neighbour() {
        let mut places: Vec<(u32, u32, u32)> = Vec::new();
        for x in 0..64 {
            for y in 0..64 {
                places.push((hilbert(x, y), x, y));
            }
        }
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[0].1.abs_diff(pair[1].1) + pair[0].2.abs_diff(pair[1].2) == 1));
    }
}
