//! Geometries of all seven types as a tree, with the variations that senders make of them and the forms they
//! are delivered in. Writers of WKT and WKB are the tests' own, so that the library's are not their own judge.

use crate::text::{Json, Rng};
use geonce_key::Kind;

/// Two or three numbers.
pub(crate) type Position = Vec<f64>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Geometry {
    Point(Position),
    Line(Vec<Position>),
    /// Closed rings, the exterior first.
    Polygon(Vec<Vec<Position>>),
    /// Parts of one type; the kind is that of the whole.
    Multi(Kind, Vec<Geometry>),
    Collection(Vec<Geometry>),
}

impl Geometry {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Geometry::Point(_) => "Point",
            Geometry::Line(_) => "LineString",
            Geometry::Polygon(_) => "Polygon",
            Geometry::Multi(kind, _) => kind.name(),
            Geometry::Collection(_) => "GeometryCollection",
        }
    }

    pub(crate) fn json(&self) -> Json {
        let kind = ("type".to_owned(), Json::text(self.type_name()));
        let content = match self {
            Geometry::Collection(members) => {
                ("geometries".to_owned(), Json::Array(members.iter().map(Geometry::json).collect()))
            }
            other => ("coordinates".to_owned(), other.coordinates()),
        };
        Json::Object(vec![kind, content])
    }

    fn coordinates(&self) -> Json {
        let position = |p: &Position| Json::Array(p.iter().copied().map(Json::double).collect());
        let path = |path: &Vec<Position>| Json::Array(path.iter().map(position).collect());
        match self {
            Geometry::Point(at) => position(at),
            Geometry::Line(line) => path(line),
            Geometry::Polygon(rings) => Json::Array(rings.iter().map(path).collect()),
            Geometry::Multi(_, parts) | Geometry::Collection(parts) => {
                Json::Array(parts.iter().map(Geometry::coordinates).collect())
            }
        }
    }

    /// A Feature with these properties.
    pub(crate) fn feature(&self, properties: Json) -> Json {
        Json::Object(vec![
            ("type".to_owned(), Json::text("Feature")),
            ("geometry".to_owned(), self.json()),
            ("properties".to_owned(), properties),
        ])
    }

    /// Every position, in the order of delivery.
    pub(crate) fn positions(&mut self) -> Vec<&mut Position> {
        match self {
            Geometry::Point(at) => vec![at],
            Geometry::Line(line) => line.iter_mut().collect(),
            Geometry::Polygon(rings) => rings.iter_mut().flatten().collect(),
            Geometry::Multi(_, parts) | Geometry::Collection(parts) => {
                parts.iter_mut().flat_map(Geometry::positions).collect()
            }
        }
    }

    /// Every line, and every ring with its closing position.
    pub(crate) fn paths(&mut self) -> Vec<&mut Vec<Position>> {
        match self {
            Geometry::Point(_) => Vec::new(),
            Geometry::Line(line) => vec![line],
            Geometry::Polygon(rings) => rings.iter_mut().collect(),
            Geometry::Multi(_, parts) | Geometry::Collection(parts) => {
                parts.iter_mut().flat_map(Geometry::paths).collect()
            }
        }
    }

    /// Every geometry of the tree, itself first.
    pub(crate) fn each(&mut self, change: &mut impl FnMut(&mut Geometry)) {
        change(self);
        if let Geometry::Multi(_, parts) | Geometry::Collection(parts) = self {
            for part in parts.iter_mut() {
                part.each(change);
            }
        }
    }

    fn rings(&mut self, mut change: impl FnMut(&mut Vec<Position>)) {
        self.each(&mut |geometry| {
            if let Geometry::Polygon(rings) = geometry {
                rings.iter_mut().for_each(&mut change);
            }
        });
    }

    pub(crate) fn rotate_rings(&mut self, rng: &mut Rng) {
        self.rings(|ring| {
            ring.pop();
            let start = rng.below(ring.len());
            ring.rotate_left(start);
            ring.push(ring[0].clone());
        });
    }

    pub(crate) fn reverse_rings(&mut self, rng: &mut Rng) {
        self.rings(|ring| {
            if rng.below(2) == 0 {
                ring.reverse();
            }
        });
    }

    pub(crate) fn repeat_vertices(&mut self, rng: &mut Rng) {
        for path in self.paths() {
            for _ in 0..rng.below(3) {
                let at = rng.below(path.len());
                path.insert(at, path[at].clone());
            }
        }
    }

    pub(crate) fn shuffle_holes(&mut self, rng: &mut Rng) {
        self.each(&mut |geometry| {
            if let Geometry::Polygon(rings) = geometry {
                rng.shuffle(&mut rings[1..]);
            }
        });
    }

    pub(crate) fn shuffle_parts(&mut self, rng: &mut Rng) {
        self.each(&mut |geometry| {
            if let Geometry::Multi(_, parts) | Geometry::Collection(parts) = geometry {
                rng.shuffle(parts);
            }
        });
    }

    /// Wraps runs of a collection's members into collections of their own.
    pub(crate) fn nest_members(&mut self, rng: &mut Rng) {
        if let Geometry::Collection(members) = self {
            let from = rng.below(members.len());
            let to = from + 1 + rng.below(members.len() - from);
            let inner: Vec<Geometry> = members.drain(from..to).collect();
            members.insert(from, Geometry::Collection(inner));
        }
    }

    /// Turns single geometries into Multi* of one, and Multi* of one into single ones.
    pub(crate) fn toggle_multi(&mut self, rng: &mut Rng) {
        if let Geometry::Collection(members) = self {
            for member in members.iter_mut() {
                member.toggle_multi(rng);
            }
            return;
        }
        let kind = match &*self {
            Geometry::Point(_) => Kind::MultiPoint,
            Geometry::Line(_) => Kind::MultiLineString,
            Geometry::Polygon(_) => Kind::MultiPolygon,
            Geometry::Multi(_, parts) if parts.len() == 1 => {
                let single = parts[0].clone();
                *self = single;
                return;
            }
            _ => return,
        };
        if rng.below(3) > 0 {
            *self = Geometry::Multi(kind, vec![self.clone()]);
        }
    }

    /// Moves every ordinate one double up, one down, or not at all; closing positions on their own.
    pub(crate) fn drift(&mut self, rng: &mut Rng) {
        for ordinate in self.positions().into_iter().flatten() {
            *ordinate = match rng.below(3) {
                0 => ordinate.next_up(),
                1 => ordinate.next_down(),
                _ => *ordinate,
            };
        }
    }

    /// Reads every ordinate back from fixed decimals: seven for places, three for the third number.
    pub(crate) fn reprint(&mut self) {
        for position in self.positions() {
            for (axis, ordinate) in position.iter_mut().enumerate() {
                let text = if axis < 2 { format!("{ordinate:.7}") } else { format!("{ordinate:.3}") };
                *ordinate = text.parse().expect("a number");
            }
        }
    }

    pub(crate) fn has_z(&self) -> bool {
        self.clone().positions().iter().all(|position| position.len() == 3)
    }

    /// WKT as most writers print it.
    pub(crate) fn wkt(&self) -> String {
        let tag = if self.has_z() { " Z" } else { "" };
        match self {
            Geometry::Collection(members) => {
                let members: Vec<String> = members.iter().map(Geometry::wkt).collect();
                format!("GEOMETRYCOLLECTION{tag} ({})", members.join(", "))
            }
            other => format!("{}{tag} {}", other.type_name().to_uppercase(), other.wkt_coordinates()),
        }
    }

    fn wkt_coordinates(&self) -> String {
        let position = |p: &Position| p.iter().map(f64::to_string).collect::<Vec<_>>().join(" ");
        let path = |path: &Vec<Position>| format!("({})", path.iter().map(position).collect::<Vec<_>>().join(", "));
        match self {
            Geometry::Point(at) => format!("({})", position(at)),
            Geometry::Line(line) => path(line),
            Geometry::Polygon(rings) => format!("({})", rings.iter().map(path).collect::<Vec<_>>().join(", ")),
            Geometry::Multi(_, parts) | Geometry::Collection(parts) => {
                format!("({})", parts.iter().map(Geometry::wkt_coordinates).collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// ISO or extended WKB, each geometry in a byte order of its own.
    pub(crate) fn wkb(&self, rng: &mut Rng) -> Vec<u8> {
        let mut writer = WkbWriter { out: Vec::new(), iso: rng.below(2) == 0, has_z: self.has_z() };
        writer.geometry(self, rng);
        writer.out
    }
}

struct WkbWriter {
    out: Vec<u8>,
    iso: bool,
    has_z: bool,
}

impl WkbWriter {
    fn integer(&mut self, value: u32, big: bool) {
        self.out.extend_from_slice(&if big { value.to_be_bytes() } else { value.to_le_bytes() });
    }

    fn count(&mut self, count: usize, big: bool) {
        self.integer(u32::try_from(count).expect("small"), big);
    }

    fn geometry(&mut self, geometry: &Geometry, rng: &mut Rng) {
        let big = rng.below(2) == 0;
        let code = match geometry {
            Geometry::Point(_) => 1,
            Geometry::Line(_) => 2,
            Geometry::Polygon(_) => 3,
            Geometry::Multi(Kind::MultiPoint, _) => 4,
            Geometry::Multi(Kind::MultiLineString, _) => 5,
            Geometry::Multi(..) => 6,
            Geometry::Collection(_) => 7,
        };
        let code = match (self.has_z, self.iso) {
            (false, _) => code,
            (true, true) => code + 1000,
            (true, false) => code | 0x8000_0000,
        };
        self.out.push(u8::from(!big));
        self.integer(code, big);
        match geometry {
            Geometry::Point(at) => self.position(at, big),
            Geometry::Line(line) => self.path(line, big),
            Geometry::Polygon(rings) => {
                self.count(rings.len(), big);
                for ring in rings {
                    self.path(ring, big);
                }
            }
            Geometry::Multi(_, parts) | Geometry::Collection(parts) => {
                self.count(parts.len(), big);
                for part in parts {
                    self.geometry(part, rng);
                }
            }
        }
    }

    fn path(&mut self, path: &[Position], big: bool) {
        self.count(path.len(), big);
        for position in path {
            self.position(position, big);
        }
    }

    fn position(&mut self, position: &Position, big: bool) {
        for ordinate in position {
            self.out.extend_from_slice(&if big { ordinate.to_be_bytes() } else { ordinate.to_le_bytes() });
        }
    }
}
