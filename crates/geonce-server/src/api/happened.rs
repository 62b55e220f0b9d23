//! What is told of events: what became of a request's features, and of attempts at sinks.

use super::Stream;
use crate::serve::answer_member as member;
use geonce::event::{Cause, EventId};
use geonce::intake::{Fault, FeatureReceipt};
use geonce_key::{Encoding, Fingerprint};
use std::fmt::Write;

impl Stream {
    /// Tells what became of the features of a request to `source`.
    pub(crate) fn received(&self, source: &str, features: &[FeatureReceipt]) {
        for feature in features {
            match feature {
                FeatureReceipt::Accepted { event, key, .. } => self.tell("accepted", |out| {
                    begin(out, "event", *event);
                    of_source(out, source, key);
                    out.push('}');
                }),
                FeatureReceipt::Duplicate { of, key, state, outcome, drift, revived } => {
                    self.tell("duplicate", |out| {
                        begin(out, "of", *of);
                        of_source(out, source, key);
                        member(out, "state", state.as_str());
                        if let Some(outcome) = outcome {
                            member(out, "outcome", outcome.as_str());
                        }
                        let _ = write!(out, ",\"drift\":{drift},\"revived\":{revived}}}");
                    });
                }
                FeatureReceipt::Conflict { event, of, key } => self.tell("conflict", |out| {
                    begin(out, "event", *event);
                    let _ = write!(out, ",\"of\":\"{of}\"");
                    of_source(out, source, key);
                    out.push('}');
                }),
                FeatureReceipt::Refused { fault, kept, .. } => self.refused(source, fault, *kept),
            }
        }
    }

    /// Tells that a payload was refused, and whether it is kept as dead.
    pub(crate) fn refused(&self, source: &str, fault: &Fault, kept: Option<EventId>) {
        self.tell("refused", |out| {
            let _ = match kept {
                Some(event) => write!(out, "{{\"event\":\"{event}\""),
                None => write!(out, "{{\"event\":null"),
            };
            member(out, "source", source);
            member(out, "code", &fault.code);
            member(out, "pointer", &fault.pointer);
            out.push('}');
        });
    }

    /// Tells how an attempt at a sink ended.
    pub(crate) fn attempted(&self, sink: &str, event: EventId, result: &'static str, cause: Option<&Cause>) {
        self.tell(result, |out| {
            begin(out, "event", event);
            member(out, "sink", sink);
            if let Some(cause) = cause {
                member(out, "code", &cause.code);
            }
            out.push('}');
        });
    }
}

fn begin(out: &mut String, name: &str, event: EventId) {
    let _ = write!(out, "{{\"{name}\":\"{event}\"");
}

fn of_source(out: &mut String, source: &str, key: &Fingerprint) {
    member(out, "source", source);
    out.push_str(",\"key\":\"");
    key.write(Encoding::Base64, out);
    out.push('"');
}
