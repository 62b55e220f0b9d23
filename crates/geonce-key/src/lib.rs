//! The `g1` spatial event key: same payload and policy give the same key on every platform and release.
//!
//! Pure functions: no input or output, no clock, no randomness, no threads, no panic. The normative text is
//! `docs/key-spec.md`; `vectors/` holds the frozen examples.

mod error;
mod limits;
pub mod repair;
pub mod shape;
pub mod validity;

pub use error::{Code, Error, Result};
pub use limits::Limits;
pub use shape::{Kind, Shape};
