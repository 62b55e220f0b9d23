//! The `g1` spatial event key: same payload and policy give the same key on every platform and release.
//!
//! Pure functions: no input or output, no clock, no randomness, no threads, no panic. The normative text is
//! `docs/key-spec.md`; `vectors/` holds the frozen examples.
//!
//! ```
//! use geonce_key::{Encoding, Input, Keyer, Policy};
//!
//! let mut keyer = Keyer::new(&Policy::default())?;
//! let a = keyer.key(Input::json(br#"{"type":"Point","coordinates":[13.4,52.5]}"#))?;
//! let b = keyer.key(Input::json(br#"{"coordinates":[1340e-2,52.50],"type":"Point"}"#))?;
//! assert_eq!(a.fingerprint, b.fingerprint);
//! assert!(a.fingerprint.text(Encoding::Base64).starts_with("g1_"));
//! # Ok::<(), geonce_key::Error>(())
//! ```

pub mod assemble;
mod canonical;
mod coordinates;
pub mod crs;
mod decimal;
mod delivered;
mod error;
pub mod explain;
mod feature;
mod fingerprint;
pub mod geojson;
mod grid;
mod identity;
mod jcs;
mod json;
mod key;
mod limits;
pub mod near;
pub mod policy;
pub mod repair;
mod schema;
pub mod shape;
mod simplify;
pub mod split;
pub mod validity;
mod version;
pub mod wkb;
pub mod wkt;

pub use delivered::Delivered;
pub use error::{Code, Error, Result};
pub use feature::{Feature, Outline, Property, Reader};
pub use fingerprint::{DELIVERY_ID_BYTES_MAX, Delivery, Encoding, Fingerprint};
pub use identity::IGNORED;
pub use json::check as check_json;
pub use key::{Form, Input, Keyed, Keyer, WARNINGS_MAX, Warning};
pub use limits::Limits;
pub use policy::{Pointer, Policy};
pub use shape::{Kind, Shape};
pub use version::Version;
