//! Announced changes: some senders only say where changes can be read. An announcement is an event like any other, whose
//! sink is the one here: it fetches the changes and records each as an event of the same source. Only then is the
//! announcement done, so that nothing is lost in between; what is fetched twice is known by its keys.
//!
//! The address is the sender's choice. Only listed hosts are called, only at addresses that the guard permits, and no
//! redirect is followed. Leases, attempts, waits and dead letters are those of every sink.

mod fetch;
mod hosts;
#[cfg(test)]
mod tests;

use crate::error::Result;
use crate::event::{Cause, Class};
use crate::intake::preset::changes::Announcement;
use crate::intake::{Fault, FeatureReceipt, Intake, Receipt, Refused, Source};
use crate::sink::{Outgoing, Proof, Sink, Written};
use crate::store::{Answer, ResultText};
use fetch::Fetcher;
use geonce_key::Fingerprint;
use geonce_key::policy::Secret;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Announcements that are fetched by one worker at a time: each is a world of its own.
pub const BATCH_EVENTS_MAX: usize = 1;
/// The most bytes of an answer, unless it is said.
pub const BYTES_MAX: usize = 30_000_000;
/// The longest wait for an answer, unless it is said.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// How changes are fetched.
#[derive(Clone, Debug)]
pub struct Options {
    /// The hosts that may be asked, such as `services.arcgis.com`, over https; or `http://HOST:PORT`, in words.
    pub hosts: Vec<String>,
    /// What proves to these hosts that we may read.
    pub token: Option<Token>,
    /// Private or local networks that may be called, such as `10.0.0.0/8`.
    pub allow: Vec<String>,
    /// The most bytes of an answer.
    pub bytes_max: usize,
    /// The longest wait for the beginning of an answer, and the longest silence within one.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options { hosts: Vec::new(), token: None, allow: Vec::new(), bytes_max: BYTES_MAX, timeout: TIMEOUT }
    }
}

/// Proves that we may read.
#[derive(Clone, Debug)]
pub enum Token {
    /// This.
    Text(Secret),
    /// What is in this file at the time: tokens end, and others are put in their place.
    File(PathBuf),
}

/// The sink of the announcements of a source. No configured sink has such a name.
pub fn sink_name(source: &str) -> String {
    format!("@fetch.{source}")
}

/// Whether changes can be fetched so, as far as that can be said without asking anybody. What a person should know, in words.
pub fn check(source: &str, options: &Options) -> Result<Vec<String>> {
    Fetcher::new(source, options).and_then(|fetcher| fetcher.check())
}

/// Opens the sink of the announcements of `source`. Connects to nothing.
pub fn open(source: Arc<Source>, intake: Intake, options: &Options) -> Result<Arc<dyn Sink>> {
    let fetcher = Fetcher::new(&source.name, options)?;
    Ok(Arc::new(Changes { fetcher, intake, source }))
}

struct Changes {
    fetcher: Fetcher,
    intake: Intake,
    source: Arc<Source>,
}

impl Changes {
    async fn one(&self, event: &Outgoing) -> Result<Written> {
        if event.source != self.source.name {
            let message = format!(
                "this is an announcement of {}, and only those of {} are fetched here",
                event.source, self.source.name
            );
            return Ok(Written::Dead(Cause::new(Class::Internal, "internal", message)));
        }
        let announcement = match Announcement::of(&event.payload) {
            Ok(announcement) => announcement,
            Err(fault) => return Ok(dead(fault)),
        };
        let answer = match self.fetcher.changes(&announcement).await {
            Ok(answer) => answer,
            Err(written) => return Ok(written),
        };
        match self.intake.receive_changes(&self.source, announcement, answer).await {
            Ok(receipt) => became(&receipt),
            Err(Refused::Payload(fault)) => Ok(dead(fault)),
            Err(Refused::Store(error)) => Err(error),
        }
    }
}

/// What an announcement became: how many events, of which sort.
fn became(receipt: &Receipt) -> Result<Written> {
    let (mut accepted, mut duplicate, mut conflict, mut refused) = (0u64, 0u64, 0u64, 0u64);
    for feature in &receipt.features {
        *match feature {
            FeatureReceipt::Accepted { .. } => &mut accepted,
            FeatureReceipt::Duplicate { .. } => &mut duplicate,
            FeatureReceipt::Conflict { .. } => &mut conflict,
            FeatureReceipt::Refused { .. } => &mut refused,
        } += 1;
    }
    let text = format!(
        r#"{{"fetched":{{"accepted":{accepted},"duplicate":{duplicate},"conflict":{conflict},"refused":{refused}}}}}"#
    );
    Ok(Written::Became(ResultText::new(text)?))
}

/// Nothing would come of trying again.
fn dead(fault: Fault) -> Written {
    let message = match fault.hint {
        Some(hint) => format!("{}; {hint}", fault.message),
        None => fault.message,
    };
    Written::Dead(Cause { class: fault.class, code: fault.code, pointer: fault.pointer, message })
}

impl Sink for Changes {
    fn check(&self) -> Answer<'_, Vec<String>> {
        Box::pin(async { self.fetcher.check() })
    }

    fn write(&self, batch: Vec<Outgoing>) -> Answer<'_, Vec<Written>> {
        Box::pin(async move {
            let mut written = Vec::with_capacity(batch.len());
            for event in &batch {
                written.push(self.one(event).await?);
            }
            Ok(written)
        })
    }

    fn proofs(&self, _keys: Vec<Fingerprint>) -> Answer<'_, Option<Vec<bool>>> {
        Box::pin(async { Ok(None) })
    }

    fn applied(&self, _after: Option<[u8; 16]>, _limit: usize) -> Answer<'_, Option<Vec<Proof>>> {
        Box::pin(async { Ok(None) })
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}
