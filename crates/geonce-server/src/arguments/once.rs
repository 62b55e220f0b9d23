//! Flags of `geonce once`.

use super::PlaceArguments;
use crate::config::Span;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// A lease is extended after a third of it, and a busy store may take a while to do so.
const LEASE_MIN: Duration = Duration::from_secs(1);
const LEASE_MAX: Duration = Duration::from_hours(1);
/// A shorter period than this is a mistake: clocks differ by more.
const PERIOD_MIN: Duration = Duration::from_secs(1);
/// More attempts than anybody waits for.
const RETRIES_MAX: i64 = 100;

#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct OnceArguments {
    /// Files and folders whose content is part of the key.
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub(crate) key_from: Vec<PathBuf>,

    /// Values that are part of the key, such as date=2026-11-15. Their order does not count.
    #[arg(long, value_name = "NAME=VALUE", num_args = 1.., value_parser = param)]
    pub(crate) param: Vec<String>,

    /// Files or folders that the command makes: written under another name, renamed when it has succeeded. The command is
    /// given that name where it says {output} ({output:2} for the second), or the path itself, and in `GEONCE_OUTPUT`.
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub(crate) output: Vec<PathBuf>,

    /// Tells this command from the same words elsewhere.
    #[arg(long)]
    pub(crate) name: Option<String>,

    /// Once in each such period, counted in UTC: 1d for once a day.
    #[arg(long, value_name = "SPAN", value_parser = period)]
    pub(crate) period: Option<Span>,

    /// How often a command that failed is tried again.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=RETRIES_MAX))]
    pub(crate) retries: u32,

    /// The longest wait before the first retry; doubled after each, a minute at most.
    #[arg(long, value_name = "SPAN", default_value = "2s")]
    pub(crate) backoff: Span,

    /// After so long without a sign of life a runner counts as gone, and another takes over.
    #[arg(long, value_name = "SPAN", default_value = "30s", value_parser = lease)]
    pub(crate) lease: Span,

    /// Do not wait where somebody else runs it: exit code 75.
    #[arg(long)]
    pub(crate) no_wait: bool,

    /// Run it again if it is dead.
    #[arg(long)]
    pub(crate) retry: bool,

    /// Run it again even if it is done.
    #[arg(long)]
    pub(crate) force: bool,

    /// One JSON object on standard output at the end; what the command prints goes to standard error.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) place: PlaceArguments,

    /// The command and its words.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

fn param(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((name, _)) if !name.is_empty() => Ok(text.to_owned()),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

fn period(text: &str) -> Result<Span, String> {
    let span: Span = text.parse()?;
    if span.0 < PERIOD_MIN { Err(format!("a period has at least {}", Span(PERIOD_MIN))) } else { Ok(span) }
}

fn lease(text: &str) -> Result<Span, String> {
    let span: Span = text.parse()?;
    if (LEASE_MIN..=LEASE_MAX).contains(&span.0) {
        Ok(span)
    } else {
        Err(format!("a lease lasts {} to {}", Span(LEASE_MIN), Span(LEASE_MAX)))
    }
}
