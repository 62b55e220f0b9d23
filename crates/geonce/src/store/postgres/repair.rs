//! Putting new events in the place of dead ones, several in one transaction.
//!
//! New events are judged and written as when they are accepted; their originals are held by then, and done with them.
//! Repairs that concern each other go one by one, so that each sees what the one before made.

use super::accept::{Rows, correct_claims, count_repeats, enter, load, look_up};
use super::plan::{Known, Plan, plan};
use super::row::{EventRow, Uuid};
use super::{Attempt, Shared, transaction};
use crate::clock::Timestamp;
use crate::event::{EventId, Outcome, State};
use crate::postgres::{Parameter, Session};
use crate::store::books::Tally;
use crate::store::encoding::{DONE, OPEN, outcome_number};
use crate::store::repair::{self, Origin, write_origin};
use crate::store::{NewEvent, Repair, Repaired};
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::types::Type;

/// Carries out repairs; what became of each.
pub(super) async fn repair(shared: &Shared, repairs: &[Repair], now: Timestamp) -> Attempt<Vec<Repaired>> {
    if repairs.is_empty() {
        return Ok(Vec::new());
    }
    if let Some(answers) = together(shared, repairs, now).await? {
        return Ok(answers);
    }
    let mut answers = Vec::with_capacity(repairs.len());
    for one in repairs {
        answers.extend(together(shared, std::slice::from_ref(one), now).await?.unwrap_or_default());
    }
    Ok(answers)
}

/// Carries out repairs in one transaction; `None`, and nothing is done, where they concern each other.
async fn together(shared: &Shared, repairs: &[Repair], now: Timestamp) -> Attempt<Option<Vec<Repaired>>> {
    let originals: BTreeSet<EventId> = repairs.iter().map(|repair| repair.original).collect();
    if originals.len() < repairs.len() {
        return Ok(None);
    }
    let slot = shared.slots.take();
    let done =
        transaction!(shared.pool, tries, session => within(shared, &session, repairs, &originals, slot.number, now))?;
    let Some((answers, makes_work)) = done else { return Ok(None) };
    if makes_work {
        shared.wake();
    }
    Ok(Some(answers))
}

async fn within(
    shared: &Shared,
    session: &Session,
    repairs: &[Repair],
    originals: &BTreeSet<EventId>,
    slot: i64,
    given: Timestamp,
) -> Attempt<Option<(Vec<Repaired>, bool)>> {
    let now = shared.now(session, given);
    let mut wanted = BTreeMap::new();
    for Repair { event, .. } in repairs {
        for fingerprint in std::iter::once(&event.key).chain(&event.aliases) {
            wanted.entry(fingerprint.key()).or_insert(event.id);
        }
    }
    let mut known = Known::default();
    look_up(session, &mut known, wanted).await?;
    load(session, &mut known, originals.clone()).await?;
    let mut answers: Vec<Option<Repaired>> = repairs.iter().map(|repair| refused(repair, &known)).collect();
    let going: Vec<&Repair> = repairs.iter().zip(&answers).filter(|(_, no)| no.is_none()).map(|(one, _)| one).collect();
    if repairs.len() > 1 && known.held.values().any(|holder| originals.contains(holder)) {
        // What is claimed goes back with the transaction's other changes, which are none.
        give_back(session, &known).await?;
        return Ok(None);
    }
    let events: Vec<(&NewEvent, Timestamp)> = going.iter().map(|repair| (&repair.event, now)).collect();
    let mut plan = loop {
        let mut plan = plan(&events, &known)?;
        if plan.missing.is_empty() {
            break plan;
        }
        look_up(session, &mut known, std::mem::take(&mut plan.missing)).await?;
    };
    correct_claims(session, &known, &plan).await?;
    let turns = enter(shared, session, &plan, &events).await?;
    let superseded = supersede(&mut plan, &going, &known)?;
    let rows = Rows::of(&plan, shared.options.keep_payload, &turns);
    rows.insert_events(session).await?;
    rows.insert_bodies(session).await?;
    rows.insert_work(session).await?;
    count_repeats(session, &plan.repeats).await?;
    superseded.write(session, shared.options.keep_payload, now).await?;
    plan.counts.write(session, slot, None).await?;
    let mut verdicts = plan.verdicts.iter();
    for answer in answers.iter_mut().filter(|answer| answer.is_none()) {
        *answer = verdicts.next().map(|verdict| Repaired::Done(*verdict));
    }
    let makes_work = plan.makes_work();
    Ok(Some((answers.into_iter().flatten().collect(), makes_work)))
}

/// Why a repair cannot be carried out, if so.
fn refused(repair: &Repair, known: &Known) -> Option<Repaired> {
    let Some(holder) = known.holders.get(&repair.original) else { return Some(Repaired::Unknown) };
    let EventRow { state, outcome, result, digests, .. } = &holder.event;
    match *state {
        DONE => Some(repair::repeated(repair, *outcome, result.as_deref())),
        OPEN => {
            let state = if holder.leased { State::Leased } else { State::Ready };
            Some(Repaired::NotDead { state, outcome: None })
        }
        _ => repair::shares_key(&repair.event, digests).then_some(Repaired::SameKey),
    }
}

/// Frees the keys that were claimed.
async fn give_back(session: &Session, known: &Known) -> Attempt<()> {
    correct_claims(session, known, &Plan::default()).await
}

/// Originals that are done now, and the events that were made of them, column by column.
#[derive(Default)]
struct Superseded {
    originals: Vec<Uuid>,
    results: Vec<String>,
    made: Vec<Uuid>,
    origins: Vec<Vec<u8>>,
}

/// What the verdicts of a plan mean to the originals; they are counted in the plan.
fn supersede(plan: &mut Plan<'_>, going: &[&Repair], known: &Known) -> Attempt<Superseded> {
    let mut superseded = Superseded::default();
    for (repair, verdict) in going.iter().zip(&plan.verdicts) {
        let Some(holder) = known.holders.get(&repair.original) else { continue };
        let (original, own) = (&holder.event, repair.event.id);
        let code = original.cause.as_ref().map_or("", |cause| &cause.code);
        superseded.originals.push(original.id.into());
        superseded.results.push(repair::result(verdict, own, code).stored());
        if verdict.kept_in(own) == own {
            superseded.made.push(own.into());
            superseded.origins.push(write_origin(&Origin { event: original.id, key: original.digests[0] }));
        }
        plan.counts.add_dead(&original.source, original.cause.as_ref(), -1)?;
        plan.counts.add(&original.source, Tally::Repaired, 1);
        plan.counts.add(&original.source, Tally::Done, 1);
    }
    Ok(superseded)
}

impl Superseded {
    /// What was left to do for the originals is the new events', or was done by those that they repeat.
    async fn write(&self, session: &Session, keep_payload: bool, now: Timestamp) -> Attempt<()> {
        if self.originals.is_empty() {
            return Ok(());
        }
        let text = format!(
            "UPDATE event SET state = {DONE}, outcome = {}, settled = $3, cause = NULL, code = NULL, result = t.r \
             FROM unnest($1::uuid[], $2::text[]) AS t(i, r) WHERE event.id = t.i",
            outcome_number(Outcome::Repaired)
        );
        let parameters: [Parameter<'_>; 3] =
            [(&self.originals, Type::UUID_ARRAY), (&self.results, Type::TEXT_ARRAY), (&now.millis(), Type::INT8)];
        session.execute(&text, &parameters).await?;
        let by_id: [Parameter<'_>; 1] = [(&self.originals, Type::UUID_ARRAY)];
        session.execute("DELETE FROM work WHERE event = ANY($1)", &by_id).await?;
        if !keep_payload {
            let text = "DELETE FROM body b USING unnest($1::uuid[]) AS t(e) WHERE b.event = t.e";
            session.execute(text, &by_id).await?;
        }
        let text = "UPDATE event SET origin = t.o FROM unnest($1::uuid[], $2::bytea[]) AS t(i, o) WHERE event.id = t.i";
        let both: [Parameter<'_>; 2] = [(&self.made, Type::UUID_ARRAY), (&self.origins, Type::BYTEA_ARRAY)];
        session.execute(text, &both).await.map(drop)
    }
}
