//! Who changes dead events: this process ([`super::here`]), or the gateway that runs on the store ([`super::there`]). What is
//! asked, shown and answered is the same.
//!
//! Only a gateway knows which keys of an embedded store are taken. Where one runs and answers, it does the work.

use super::here::Here;
use super::there::There;
use crate::api::Kind;
use crate::arguments::{DeadChoiceArguments, PlaceArguments};
use crate::client;
use crate::config;
use crate::failure::Failure;
use crate::tool;
use geonce::repair::Choices;
use geonce::replay::Progress;
use geonce::store;
use serde_json::Value;

/// What is asked for.
pub(super) struct Asked<'a> {
    pub(super) kind: Kind,
    pub(super) which: &'a DeadChoiceArguments,
    /// How events are repaired; without it, each as is best.
    pub(super) choices: Option<Choices>,
    pub(super) place: &'a PlaceArguments,
}

/// The dead events that are meant.
#[derive(Default)]
pub(super) struct Planned {
    pub(super) events: u64,
    pub(super) groups: Vec<Group>,
    /// Whether there are more than are taken at a time.
    pub(super) more: bool,
}

/// Dead events of one source and code.
pub(super) struct Group {
    pub(super) source: String,
    pub(super) code: String,
    pub(super) events: u64,
    pub(super) hint: String,
}

/// What it came to.
pub(super) struct Ended {
    pub(super) progress: Progress,
    /// Whether it was ended before its time.
    pub(super) cancelled: bool,
    /// What stood in the way of the rest.
    pub(super) failure: Option<Failure>,
}

/// Is told of every event that was repaired, or could not be ([`crate::treated::line`], whole).
pub(super) type Tell<'a> = dyn FnMut(&Value) + Send + 'a;
/// Sees how far it is.
pub(super) type Watch<'a> = dyn FnMut(&Progress) + Send + 'a;

/// Somebody who changes dead events.
pub(super) trait Way {
    /// Chooses the events that are meant. Nothing is changed.
    fn plan(&mut self, asked: &Asked<'_>) -> Result<Planned, Failure>;

    /// Does what was planned, until it is done or Ctrl-C ends it, with an entry in the audit trail.
    fn run(&mut self, tell: &mut Tell<'_>, watch: &mut Watch<'_>) -> Result<Ended, Failure>;

    /// Takes back a plan that was not carried out, and leaves everything tidy.
    fn close(self: Box<Self>) -> Result<(), Failure>;
}

/// Whoever can do what is asked.
pub(super) fn open(asked: &Asked<'_>) -> Result<Box<dyn Way>, Failure> {
    let overrides = asked.place.overrides();
    let place = config::place(&overrides)?;
    let is_held = || client::has_address(&place.data) && store::is_held(&place.store.url, &place.data);
    if place.store.is_embedded() && tool::missing_file(&place.store.url, &place.data).is_none() && is_held() {
        match There::open(asked.place) {
            Ok(there) => return Ok(Box::new(there)),
            Err(failure) if asked.kind == Kind::Repair => return Err(running(&failure)),
            // Everything else can be done beside it.
            Err(failure) => eprintln!("the gateway is not asked: {}", failure.message()),
        }
    }
    Ok(Box::new(Here::open(asked, false)?))
}

/// A gateway runs, and cannot be asked.
fn running(failure: &Failure) -> Failure {
    let message = format!("a gateway is running on this store, and cannot be asked: {}", failure.message());
    let hint = failure.hint_text().map_or_else(String::new, |hint| format!("{hint}; or "));
    Failure::new("gateway_running", message).hint(format!("{hint}stop the gateway; --dry-run works beside it"))
}
