//! Putting new events in the place of dead ones: the script that accepts events does it, each with what it is a repair of.

use super::Shared;
use super::accept::{Prepared, SCRIPT_BYTES_MAX, SCRIPT_EVENTS_MAX, begin, read_verdict};
use super::call::{ACCEPT, Each};
use super::row::{damaged, read_outcome};
use crate::clock::Timestamp;
use crate::event::State;
use crate::redis::Attempt;
use crate::store::books::Uncounted;
use crate::store::repair::repeated;
use crate::store::{Repair, Repaired};
use redis::Cmd;
use std::sync::Arc;

/// Carries out repairs; what became of each.
pub(super) async fn repair(shared: &Arc<Shared>, repairs: &[Repair], now: Timestamp) -> Attempt<Vec<Repaired>> {
    let mut answers = Vec::with_capacity(repairs.len());
    let mut rest = repairs;
    while !rest.is_empty() {
        let (some, more) = rest.split_at(together(rest));
        let prepared: Vec<Prepared> = some.iter().map(|repair| Prepared::new(&repair.event)).collect();
        let fill = |command: &mut Cmd| {
            begin(command, shared.options.keep_payload, &Uncounted::default());
            for (repair, prepared) in some.iter().zip(&prepared) {
                prepared.write(command, &repair.event, now, Some(repair.original));
            }
        };
        let (changed, said) = shared.caller.run_each(&ACCEPT, now, &fill).await?;
        if said.len() != some.len() {
            return Err(damaged("answers to repairs are missing"));
        }
        if changed == "1" {
            shared.changed();
        }
        for (repair, said) in some.iter().zip(said) {
            answers.push(read(repair, said)?);
        }
        rest = more;
    }
    Ok(answers)
}

/// How many of these one script takes.
fn together(repairs: &[Repair]) -> usize {
    let mut bytes = 0;
    let fits = |repair: &&Repair| {
        bytes += repair.event.payload.len();
        bytes <= SCRIPT_BYTES_MAX
    };
    repairs.iter().take(SCRIPT_EVENTS_MAX).take_while(fits).count().max(1)
}

fn read(repair: &Repair, said: Each) -> Attempt<Repaired> {
    let said = said?;
    let unknown = || damaged(format!("the answer {said:?} to a repair is unknown"));
    let (kind, rest) = said.split_at_checked(1).ok_or_else(unknown)?;
    Ok(match kind {
        "y" => Repaired::Done(read_verdict(&repair.event, Ok(rest.to_owned()))?),
        "r" => {
            let (outcome, result) = rest.split_once(' ').ok_or_else(unknown)?;
            let outcome = if outcome.is_empty() { None } else { Some(read_outcome(outcome)?) };
            repeated(repair, outcome, result.strip_prefix('='))
        }
        "n" => Repaired::NotDead { state: State::from_word(rest).ok_or_else(unknown)?, outcome: None },
        "u" => Repaired::Unknown,
        "s" => Repaired::SameKey,
        _ => return Err(unknown()),
    })
}
