//! The embedded store.

use super::{Access, Options, Store};
use crate::error::{Error, Kind, Result};
use std::path::Path;
use std::sync::Arc;

/// Opens the store in `file`.
pub(super) fn open(file: Option<&Path>, _options: &Options, _access: Access) -> Result<Arc<dyn Store>> {
    Err(Error::new(Kind::Invalid, format!("opening the store {file:?}")))
}
