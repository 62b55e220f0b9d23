//! The ndjson sink.

use super::{Options, Sink};
use crate::error::{Error, Kind, Result};
use std::path::Path;
use std::sync::Arc;

/// Opens the sink.
pub(super) fn open(name: &str, file: &Path, _options: &Options) -> Result<Arc<dyn Sink>> {
    Err(Error::new(Kind::Invalid, format!("opening the sink {name} at {:?}", file)))
}
