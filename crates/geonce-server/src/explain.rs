//! `geonce explain`.
use crate::arguments::ExplainArguments;
use crate::failure::{Failure, Outcome};
pub(crate) fn run(_a: &ExplainArguments) -> Outcome {
    Err(Failure::new("x", "x"))
}
