//! The codes of differences. Their text is part of the interface; `docs/explain.md` describes each.

use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal),+ $(,)?) => {
        /// Stable codes of differences. The text form is part of the interface.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum ReasonCode { $($(#[$doc])* $variant),+ }

        impl ReasonCode {
            /// Every code there is.
            pub const ALL: &'static [ReasonCode] = &[$(ReasonCode::$variant),+];

            /// The stable text of the code.
            pub fn as_str(self) -> &'static str {
                match self { $(ReasonCode::$variant => $text),+ }
            }
        }
    };
}

codes! {
    /// A value of the identity differs.
    IdentityField = "identity_field",
    /// The version differs.
    VersionField = "version_field",
    /// The scopes differ.
    Scope = "scope",
    /// The policies differ in a setting that matters here, or the payloads match under a previous one.
    Policy = "policy",
    /// The sender's ids differ.
    DeliveryId = "delivery_id",
    /// The geometry types differ, or one geometry is null.
    GeometryType = "geometry_type",
    /// The numbers of parts differ.
    PartCount = "part_count",
    /// The numbers of rings differ.
    RingCount = "ring_count",
    /// The numbers of vertices differ.
    VertexCount = "vertex_count",
    /// A vertex is elsewhere, farther than the grid could explain.
    Position = "position",
    /// Closer than one step of the grid, but on two sides of a rounding line.
    GridEdge = "grid_edge",
    /// Equal on a coarser grid; among removed differences, rounded away by the grid in force.
    Precision = "precision",
    /// The coordinate systems differ.
    Crs = "crs",
    /// Longitude and latitude are swapped.
    AxisOrder = "axis_order",
    /// Third numbers differ, or only one geometry has them.
    Elevation = "elevation",
    /// A third number was dropped.
    ZDropped = "z_dropped",
    /// A line runs the other way.
    LineDirection = "line_direction",
    /// A ring starts at another vertex.
    RingStart = "ring_start",
    /// A ring runs the other way.
    RingDirection = "ring_direction",
    /// A vertex is repeated.
    DuplicateVertex = "duplicate_vertex",
    /// An unclosed ring was closed.
    RingClosed = "ring_closed",
    /// Holes are listed in another order.
    HoleOrder = "hole_order",
    /// Parts are listed in another order.
    PartOrder = "part_order",
    /// Members of a collection are listed in another order.
    CollectionOrder = "collection_order",
    /// A collection is nested in another one.
    NestedCollection = "nested_collection",
    /// A Multi* geometry has one part.
    MultiOfOne = "multi_of_one",
    /// A point on the antimeridian or at a pole has another longitude.
    LongitudeName = "longitude_name",
    /// Vertices differ that the policy's `shape` does not look at.
    Shape = "shape",
    /// A rounding tie: the payloads match only on the second grid.
    TieAlias = "tie_alias",
    /// Minus zero.
    MinusZero = "minus_zero",
    /// The same number, written otherwise.
    NumberForm = "number_form",
    /// The same text, written otherwise.
    TextForm = "text_form",
    /// Properties are null, empty or absent.
    NullOrAbsent = "null_or_absent",
    /// Members are in another order.
    KeyOrder = "key_order",
    /// White space between values.
    Whitespace = "whitespace",
    /// One is a Feature and one a bare geometry, or they are JSON, WKT or WKB.
    Form = "form",
    /// A field that the identity ignores differs.
    IgnoredField = "ignored_field",
    /// A field differs that is not part of the identity: a warning where the key is the same.
    OutsideField = "outside_field",
}

impl ReasonCode {
    /// The code as words: `ring start`.
    pub fn words(self) -> String {
        self.as_str().replace('_', " ")
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
