//! PostGIS.
use super::{Plan, Target};
use crate::error::Result;
pub(super) async fn open(_url: &str, _plan: Plan) -> Result<Box<dyn Target>> {
    Err(crate::error::Error::new(crate::error::Kind::Internal, "later"))
}
