//! `geonce dead replay` and `geonce dead purge`: chosen, agreed, done step by step, noted.

use super::here::Here;
use super::job::{self, Meter, Shown};
use super::way::{self, Asked, Way};
use crate::api::Kind;
use crate::arguments::DeadChangeArguments;
use crate::failure::Failure;
use crate::show::{self, Page};
use serde_json::Value;
use std::process::ExitCode;

/// Runs the command: replays or purges.
pub(super) fn run(arguments: &DeadChangeArguments, kind: Kind) -> Result<ExitCode, Failure> {
    let asked = Asked { kind, which: &arguments.which, choices: None, place: &arguments.place };
    // What was said is checked before anything is opened.
    arguments.which.filters(kind.as_str(), show::now())?;
    let way: Box<dyn Way> =
        if arguments.consent.dry_run { Box::new(Here::open(&asked, true)?) } else { way::open(&asked)? };
    let mut nothing = |_: &mut Page, _: &Value| Ok(());
    let shown = Shown { table: true, meter: Meter::new(kind.done_word(), false), tell: &mut nothing };
    job::run(way, &asked, &arguments.consent, shown)
}
