//! Named limits on untrusted input. Every buffer and loop of this crate is bounded by one of these,
//! and exceeding one is a refusal with a `limit_…` code, never a slow answer.

/// Upper bounds for one payload. A gateway may lower them; the defaults fit large cadastral features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one payload (one feature of a collection, one line of NDJSON).
    pub bytes_max: usize,
    /// Nesting of arrays and objects.
    pub depth_max: usize,
    /// JSON values in one payload.
    pub values_max: usize,
    /// Members of one JSON object, and members of one geometry collection.
    pub members_max: usize,
    /// Bytes of one string as written, escapes included.
    pub string_bytes_max: usize,
    /// Characters of one number.
    pub number_bytes_max: usize,
    /// Positions of one geometry.
    pub positions_max: usize,
    /// Rings (and lines) of one geometry.
    pub rings_max: usize,
    /// Parts of one geometry: points, lines or polygons of Multi* and collections.
    pub parts_max: usize,
    /// Elementary steps a validity check or a repair may take (about 10 ns each).
    pub work_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            bytes_max: 32 << 20,
            depth_max: 64,
            values_max: 4_000_000,
            members_max: 100_000,
            string_bytes_max: 1 << 20,
            number_bytes_max: 1_024,
            positions_max: 1_000_000,
            rings_max: 200_000,
            parts_max: 200_000,
            work_max: 4_000_000,
        }
    }
}
