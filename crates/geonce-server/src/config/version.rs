//! What the version of an event decides beside its place among others: that it comes too late, or that its entity is gone.

use super::Reading;
use super::human::Span;
use crate::failure::Failure;
use geonce_key::policy::Deletion;
use geonce_key::{Pointer, Policy, Property};
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;

/// How a payload says that its entity is gone.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Delete {
    /// JSON pointer of the value that says so.
    at: String,
    /// The value that says so: text, a number, true or false [default: true].
    equals: Option<Scalar>,
}

/// Text, a number, true or false.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "text, a number, true or false")]
enum Scalar {
    Boolean(bool),
    Integer(i64),
    Real(f64),
    Text(String),
}

/// Whole numbers below this are the same however they are written.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

impl Reading<'_> {
    /// How payloads of the source `name` say that their entity is gone.
    pub(super) fn deletion(&self, name: &str, delete: Option<Delete>) -> Result<Option<Deletion>, Failure> {
        let Some(Delete { at, equals }) = delete else { return Ok(None) };
        let at = self.at(&format!("source.{name}.delete"), Pointer::parse(&at))?;
        let equals = match equals {
            None => Property::Boolean(true),
            Some(Scalar::Boolean(boolean)) => Property::Boolean(boolean),
            Some(Scalar::Integer(integer)) => Property::Integer(integer),
            #[expect(clippy::cast_possible_truncation, reason = "a whole number below 2^53")]
            Some(Scalar::Real(real)) if real.fract() == 0.0 && real.abs() < EXACT_MAX => Property::Integer(real as i64),
            Some(Scalar::Real(real)) => Property::Real(real),
            Some(Scalar::Text(text)) => Property::Text(text),
        };
        Ok(Some(Deletion { at, equals }))
    }

    /// How long before its arrival the version of an event may be.
    pub(super) fn lateness(
        &self,
        name: &str,
        lateness: Option<Span>,
        policy: &Policy,
    ) -> Result<Option<Duration>, Failure> {
        let path = format!("source.{name}.lateness");
        let Some(Span(lateness)) = lateness else { return Ok(None) };
        if policy.version.is_none() {
            return Err(self
                .refuse(&path, "nothing says how old an event is")
                .hint("version = \"/properties/observed_at\", an RFC 3339 time"));
        }
        if lateness.is_zero() {
            return Err(self.refuse(&path, "this must be longer than nothing"));
        }
        Ok(Some(lateness))
    }
}
