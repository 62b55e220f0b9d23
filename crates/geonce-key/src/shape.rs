//! Geometries as flat arrays: a shape has members, a member has parts, a part has paths, a path has positions.
//!
//! One structure serves all seven `GeoJSON` types, on the integer grid (`Shape<i64>`) and as delivered
//! (`Shape<f64>`). A geometry that is not a collection has exactly one member. A point is a part with one path
//! of one position; a line a part with one path; a polygon a part whose first path is the exterior ring.
//! Rings are stored closed (first position repeated at the end) unless a function says otherwise.

/// The geometry types that hold coordinates, in the order of their names (the order of collection members).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A line.
    LineString,
    /// Several lines.
    MultiLineString,
    /// Several points.
    MultiPoint,
    /// Several polygons.
    MultiPolygon,
    /// One point.
    Point,
    /// One polygon.
    Polygon,
}

impl Kind {
    /// Every type.
    pub const ALL: [Kind; 6] =
        [Kind::LineString, Kind::MultiLineString, Kind::MultiPoint, Kind::MultiPolygon, Kind::Point, Kind::Polygon];

    /// The `GeoJSON` type name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::LineString => "LineString",
            Kind::MultiLineString => "MultiLineString",
            Kind::MultiPoint => "MultiPoint",
            Kind::MultiPolygon => "MultiPolygon",
            Kind::Point => "Point",
            Kind::Polygon => "Polygon",
        }
    }

    /// The type with this `GeoJSON` name.
    pub fn from_name(name: &str) -> Option<Kind> {
        Some(match name {
            "LineString" => Kind::LineString,
            "MultiLineString" => Kind::MultiLineString,
            "MultiPoint" => Kind::MultiPoint,
            "MultiPolygon" => Kind::MultiPolygon,
            "Point" => Kind::Point,
            "Polygon" => Kind::Polygon,
            _ => return None,
        })
    }

    /// The type of one part: `MultiPoint` has parts of type `Point`.
    pub fn part(self) -> Kind {
        match self {
            Kind::MultiLineString | Kind::LineString => Kind::LineString,
            Kind::MultiPoint | Kind::Point => Kind::Point,
            Kind::MultiPolygon | Kind::Polygon => Kind::Polygon,
        }
    }

    /// The type that holds several parts of this one.
    pub fn multi(self) -> Kind {
        match self.part() {
            Kind::LineString => Kind::MultiLineString,
            Kind::Point => Kind::MultiPoint,
            _ => Kind::MultiPolygon,
        }
    }

    /// Whether the type may hold several parts.
    pub fn is_multi(self) -> bool {
        matches!(self, Kind::MultiLineString | Kind::MultiPoint | Kind::MultiPolygon)
    }
}

/// A position: x (longitude), y (latitude), z. Where the shape has no z, the third number is zero.
pub type Position<N> = [N; 3];

/// A member of a shape: its type, and where its parts end in [`Shape::parts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The member's type.
    pub kind: Kind,
    /// Index just past its last part.
    pub end: u32,
}

/// A geometry of any type, flat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape<N> {
    /// Whether it is a `GeometryCollection`.
    pub collection: bool,
    /// Whether positions have a third number.
    pub has_z: bool,
    /// Members in order; one unless `collection`.
    pub members: Vec<Member>,
    /// For each part, the index just past its last path.
    pub parts: Vec<u32>,
    /// For each path, the index just past its last position.
    pub paths: Vec<u32>,
    /// All positions.
    pub positions: Vec<Position<N>>,
}

impl<N: Copy> Shape<N> {
    /// An empty shape to be filled.
    pub fn new() -> Self {
        Shape {
            collection: false,
            has_z: false,
            members: Vec::new(),
            parts: Vec::new(),
            paths: Vec::new(),
            positions: Vec::new(),
        }
    }

    /// Empties the shape, keeping its memory.
    pub fn clear(&mut self) {
        self.collection = false;
        self.has_z = false;
        self.members.clear();
        self.parts.clear();
        self.paths.clear();
        self.positions.clear();
    }

    /// Ends the current path: the positions pushed since the last call.
    pub fn end_path(&mut self) {
        self.paths.push(offset(self.positions.len()));
    }

    /// Ends the current part: the paths ended since the last call.
    pub fn end_part(&mut self) {
        self.parts.push(offset(self.paths.len()));
    }

    /// Ends the current member: the parts ended since the last call.
    pub fn end_member(&mut self, kind: Kind) {
        self.members.push(Member { kind, end: offset(self.parts.len()) });
    }

    /// Adds a copy of a member of another shape.
    pub fn push_member(&mut self, member: MemberRef<'_, N>) {
        for part in member.parts() {
            for path in part.paths() {
                self.positions.extend_from_slice(path);
                self.end_path();
            }
            self.end_part();
        }
        self.end_member(member.kind);
    }

    /// The members, in order.
    pub fn members(&self) -> impl DoubleEndedIterator<Item = MemberRef<'_, N>> + ExactSizeIterator + '_ {
        (0..self.members.len()).map(move |i| MemberRef {
            shape: self,
            kind: self.members[i].kind,
            start: if i == 0 { 0 } else { self.members[i - 1].end as usize },
            end: self.members[i].end as usize,
        })
    }

    /// Every path of the shape, whatever member and part it belongs to.
    pub fn all_paths(&self) -> impl DoubleEndedIterator<Item = &[Position<N>]> + ExactSizeIterator + '_ {
        (0..self.paths.len()).map(move |i| self.path(i))
    }

    /// The `i`-th path of the whole shape.
    pub fn path(&self, i: usize) -> &[Position<N>] {
        let start = if i == 0 { 0 } else { self.paths[i - 1] as usize };
        &self.positions[start..self.paths[i] as usize]
    }

    /// The `GeoJSON` type name of the whole.
    pub fn type_name(&self) -> &'static str {
        match self.members.first() {
            Some(member) if !self.collection => member.kind.name(),
            _ => "GeometryCollection",
        }
    }
}

impl Shape<i64> {
    /// The shape off the grid: each number the double nearest to the decimal it stands for, so that it comes back to the same
    /// place on the same grid.
    #[expect(clippy::cast_precision_loss, reason = "numbers of a grid are far below 2^53")]
    pub fn to_degrees(&self, precision: u8, precision_z: u8) -> Shape<f64> {
        let units = [precision, precision, precision_z].map(|decimals| 10f64.powi(i32::from(decimals)));
        let position = |position: &Position<i64>| [0, 1, 2].map(|axis| position[axis] as f64 / units[axis]);
        Shape {
            collection: self.collection,
            has_z: self.has_z,
            members: self.members.clone(),
            parts: self.parts.clone(),
            paths: self.paths.clone(),
            positions: self.positions.iter().map(position).collect(),
        }
    }
}

/// One member of a shape.
#[derive(Clone, Copy)]
pub struct MemberRef<'a, N> {
    shape: &'a Shape<N>,
    /// The member's type.
    pub kind: Kind,
    start: usize,
    end: usize,
}

impl<'a, N: Copy> MemberRef<'a, N> {
    /// The member's parts, in order.
    pub fn parts(self) -> impl DoubleEndedIterator<Item = PartRef<'a, N>> + ExactSizeIterator + 'a {
        (self.start..self.end).map(move |i| PartRef {
            shape: self.shape,
            start: if i == 0 { 0 } else { self.shape.parts[i - 1] as usize },
            end: self.shape.parts[i] as usize,
        })
    }
}

/// One part of a member: a point, a line or a polygon.
#[derive(Clone, Copy)]
pub struct PartRef<'a, N> {
    shape: &'a Shape<N>,
    start: usize,
    end: usize,
}

impl<'a, N: Copy> PartRef<'a, N> {
    /// The part's paths; a polygon's first one is its exterior ring.
    pub fn paths(self) -> impl DoubleEndedIterator<Item = &'a [Position<N>]> + ExactSizeIterator + 'a {
        (self.start..self.end).map(move |i| self.shape.path(i))
    }

    /// Indices of the part's paths in the whole shape.
    pub fn path_indices(self) -> std::ops::Range<usize> {
        self.start..self.end
    }
}

/// Offsets are 32 bits wide; [`crate::Limits`] keep payloads far below that.
#[expect(clippy::cast_possible_truncation, reason = "lengths are bounded by Limits::bytes_max, which is below 4 GiB")]
fn offset(length: usize) -> u32 {
    debug_assert!(u32::try_from(length).is_ok());
    length as u32
}
