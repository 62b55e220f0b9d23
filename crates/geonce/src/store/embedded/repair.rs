//! Putting a new event in the place of a dead one.

use super::accept::accept_one;
use super::failure::Attempt;
use super::group::Group;
use super::row::{self, DONE, EventRow, Kept, OPEN};
use crate::clock::Timestamp;
use crate::event::{Outcome, State};
use crate::store::books::Tally;
use crate::store::repair::{self, Origin};
use crate::store::{Repair, Repaired, Verdict};
use rusqlite::params;

/// Carries out repairs in the transaction of `group`.
pub(super) fn repair(group: &mut Group<'_>, repairs: &[Repair], now: Timestamp) -> Attempt<Vec<Repaired>> {
    repairs.iter().map(|repair| repair_one(group, repair, now)).collect()
}

fn repair_one(group: &mut Group<'_>, repair: &Repair, now: Timestamp) -> Attempt<Repaired> {
    let Some(original) = group.event(repair.original)? else { return Ok(Repaired::Unknown) };
    match original.standing.state {
        DONE => {
            let result = match &original.standing.result {
                Some(Kept::Own(text)) => Some(text.as_str()),
                _ => None,
            };
            return Ok(repair::repeated(repair, original.outcome, result));
        }
        OPEN => {
            let leased = "SELECT 1 FROM work WHERE event = ?1 AND token IS NOT NULL LIMIT 1";
            let leased = group.connection.prepare_cached(leased)?.exists([original.id.to_bytes()])?;
            let state = if leased { State::Leased } else { State::Ready };
            return Ok(Repaired::NotDead { state, outcome: None });
        }
        _ => {}
    }
    if repair::shares_key(&repair.event, &original.digests) {
        return Ok(Repaired::SameKey);
    }
    let verdict = accept_one(group, &repair.event, now)?;
    let own = repair.event.id;
    if verdict.kept_in(own) == own {
        let origin = row::summed_origin(own, &Origin { event: original.id, key: original.digests[0] });
        let mut statement = group.connection.prepare_cached("UPDATE event SET origin = ?2 WHERE id = ?1")?;
        statement.execute(params![own.to_bytes(), origin])?;
    }
    supersede(group, &original, &verdict, repair, now)?;
    Ok(Repaired::Done(verdict))
}

/// Makes a dead event done. What was left to do for it is the new event's, or was done by the one that it repeats.
fn supersede(
    group: &mut Group<'_>,
    original: &EventRow,
    verdict: &Verdict,
    repair: &Repair,
    now: Timestamp,
) -> Attempt<()> {
    let code = original.cause.as_ref().map_or("", |cause| &cause.code);
    let mut standing = original.standing.clone();
    (standing.state, standing.settled, standing.cause) = (DONE, Some(now.millis()), None);
    standing.outcome = Some(row::outcome_number(Outcome::Repaired));
    standing.result = Some(group.keep(&repair::result(verdict, repair.event.id, code))?);
    if !group.options.keep_payload
        && let Some(body) = standing.body.take()
    {
        group.connection.prepare_cached("DELETE FROM body WHERE number = ?1")?.execute([body])?;
    }
    group.connection.prepare_cached("DELETE FROM work WHERE event = ?1")?.execute([original.id.to_bytes()])?;
    group.count_dead(original.source, original.cause.as_ref(), -1)?;
    group.count(original.source, Tally::Repaired, 1);
    group.count(original.source, Tally::Done, 1);
    group.stand(original.id, &standing)
}
