//! Bodies of requests: JSON whose members are known, each given once, and said or left out, never null.

use super::query::Query;
use super::{Call, problem};
use crate::serve::Problem;
use serde::de::{Deserialize, DeserializeOwned, Deserializer};

/// What the body of a request says.
pub(super) fn read<T: DeserializeOwned>(call: &Call) -> Result<T, Problem> {
    Query::read(call.query.as_deref(), &[])?;
    serde_json::from_slice(&call.body).map_err(|error| problem::body_invalid(error.to_string()))
}

/// A member that may be left out, but not be null: that could mean anything.
pub(super) fn said<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}
