//! Geometries as GeoPackages keep them (OGC 12-128, clause 2.1.3): a header, then WKB.
//!
//! The header's envelope, its coordinate system and its mark of emptiness are passed over: the WKB and the layer say it all.

use crate::value::{self, Fault, Read};
use geonce_key::{Limits, Shape};

/// Marks, version, flags and coordinate system.
const HEADER_BYTES: usize = 8;
const EXTENDED: u8 = 0b10_0000;
/// The bytes of the envelope for each of its kinds.
const ENVELOPE_BYTES: [usize; 5] = [0, 32, 48, 48, 64];

/// Reads one geometry.
pub(super) fn geometry(blob: &[u8], limits: &Limits) -> Read<Shape<f64>> {
    let [b'G', b'P', _, flags, ..] = *blob else {
        return Err(Fault::new("gpkg_blob", "geometry: the bytes do not start like a GeoPackage geometry"));
    };
    if flags & EXTENDED != 0 {
        return Err(Fault::new("gpkg_extended", "geometry: it is of a type that only its vendor's programs can read"));
    }
    let envelope = ENVELOPE_BYTES.get(usize::from((flags >> 1) & 0b111));
    match envelope.and_then(|bytes| blob.get(HEADER_BYTES + bytes..)) {
        Some(wkb) => value::geometry(wkb, limits),
        None => Err(Fault::new("gpkg_blob", "geometry: its header is damaged")),
    }
}
