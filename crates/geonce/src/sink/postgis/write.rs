//! A batch within a transaction that somebody else began and will end: rows and their proofs, one answer for each event.
//!
//! Parts of the batch are written between savepoints. A part that the server refuses is undone and divided, down to the
//! one row that is dead, so that the others go through.

use super::Settings;
use super::guard::{Decided, Entity, Guard, is_known_key};
use super::layer::Layer;
use super::plan::{Change, Plan, Room, Stored, next_arrival};
use super::refusal::{self, Refusal};
use super::row::Row;
use crate::event::{Cause, Class, Outcome};
use crate::postgres::{Session, Trouble};
use crate::sink::version::{self, Held, Order};
use crate::sink::{Mode, Outgoing, Written};
use geonce_key::Fingerprint;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use tokio_postgres::types::Type;

type Answer<T> = std::result::Result<T, Trouble>;

/// What is sent in one statement at most. One row may be more.
const PART_BYTES_MAX: usize = 8 << 20;
const PART_ROWS_MAX: usize = 4_096;

/// A batch, ready to be written: everything is done that needs no transaction.
pub(crate) struct Prepared<'b> {
    layer: Arc<Layer>,
    events: Vec<(&'b Outgoing, std::result::Result<Row, Cause>)>,
}

impl<'b> Prepared<'b> {
    /// `causes` are of the events that have no place in any layer.
    pub(super) fn new(
        settings: &Settings,
        layer: Arc<Layer>,
        batch: &'b [Outgoing],
        causes: &[Option<Cause>],
    ) -> Prepared<'b> {
        let events = batch.iter().zip(causes).map(|(outgoing, cause)| match cause {
            Some(cause) => (outgoing, Err(cause.clone())),
            None => (outgoing, Row::new(outgoing, &layer, settings.crs)),
        });
        let events = events.collect();
        Prepared { layer, events }
    }
}

/// Writes a batch. `again` says that the layer was just read: what does not fit then is not for want of knowing it.
pub(super) async fn batch(
    session: &Session,
    settings: &Settings,
    prepared: &Prepared<'_>,
    again: bool,
) -> Answer<Vec<Written>> {
    let guard = Guard::new(&settings.schema);
    let writer = Writer { session, settings, guard: &guard, layer: &prepared.layer, prepared };
    let mut answers: Vec<Option<Written>> = vec![None; prepared.events.len()];
    let mut parts = writer.parts();
    let mut room = writer.lock(&parts).await?;
    let (mut doubted, mut attempted, mut hopeful) = (None, false, true);
    // A constraint that its owner deferred would be checked at the end, when nobody knows which row it was.
    let mut before = "SET CONSTRAINTS ALL IMMEDIATE";
    while let Some(part) = parts.pop() {
        session.batch(&format!("{before}; SAVEPOINT geonce_part")).await?;
        let trouble = match writer.write(&part, hopeful, &room).await {
            Ok((written, used)) => {
                before = "RELEASE geonce_part";
                attempted |= !written.is_empty();
                for entity in &used {
                    room.unused.remove(entity);
                }
                for (index, written) in written {
                    answers[index] = Some(written);
                }
                continue;
            }
            Err(trouble) => trouble,
        };
        before = "ROLLBACK TO geonce_part; RELEASE geonce_part";
        if hopeful && is_known_key(&trouble) {
            // Some were written before, unheard. From here on it is asked which.
            hopeful = false;
            parts.push(part);
            continue;
        }
        // Numbers that were drawn before may be what was refused.
        room.filled.clear();
        let refused = if again { refusal::judge_again(&trouble) } else { refusal::judge(&trouble) };
        let answer = match refused {
            Refusal::Layer | Refusal::All => return Err(trouble),
            Refusal::Row(cause) => Written::Dead(cause),
            Refusal::Doubtful(cause) => Written::Retry { cause, after: None, counts: true },
        };
        if let [index] = part[..] {
            attempted |= matches!(answer, Written::Dead(_));
            doubted = doubted.or_else(|| matches!(answer, Written::Retry { .. }).then_some(trouble));
            answers[index] = Some(answer);
        } else {
            let (first, second) = part.split_at(part.len() / 2);
            parts.push(second.to_vec());
            parts.push(first.to_vec());
        }
    }
    if before.starts_with("ROLLBACK") {
        session.batch(before).await?;
    }
    if let (Some(trouble), false) = (doubted, attempted) {
        // None of them could be written, for no reason of theirs.
        return Err(trouble);
    }
    guard.unlock(session, prepared.layer.id, room.unused.iter()).await?;
    writer.answer_rest(&mut answers).await?;
    let no_answer = || Written::Dead(Cause::new(Class::Internal, "no_answer", "the sink gave no answer"));
    Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(no_answer)).collect())
}

pub(super) struct Writer<'a> {
    pub(super) session: &'a Session,
    pub(super) settings: &'a Settings,
    pub(super) guard: &'a Guard,
    pub(super) layer: &'a Layer,
    prepared: &'a Prepared<'a>,
}

impl<'a> Writer<'a> {
    pub(super) fn event(&self, index: usize) -> &'a Outgoing {
        self.prepared.events[index].0
    }

    pub(super) fn row(&self, index: usize) -> Option<&'a Row> {
        self.prepared.events[index].1.as_ref().ok()
    }

    /// The batch, divided into what one statement takes; the first part is the last. Events without a row, and all but the
    /// first of a key, are in none.
    fn parts(&self) -> Vec<Vec<usize>> {
        let mut seen = HashSet::new();
        let mut order: Vec<usize> = (0..self.prepared.events.len())
            .filter(|&index| self.row(index).is_some() && seen.insert(self.event(index).key.key()))
            .collect();
        if self.settings.mode == Mode::Append {
            // By key from the first part to the last, so that gateways with the same keys never wait in a circle.
            // Repairs follow in the order in which they came: the first of an original counts.
            order.sort_unstable_by_key(|&index| match self.event(index) {
                Outgoing { origin: None, key, .. } => (false, u128::from_be_bytes(key.key())),
                _ => (true, index as u128),
            });
        }
        let mut parts: Vec<Vec<usize>> = Vec::new();
        let mut bytes = 0;
        for index in order {
            let more = self.row(index).map_or(0, Row::bytes);
            // A repair is looked at by itself, so it is the last of its part too: what it is a repair of may be here.
            let alone = |index: usize| self.event(index).origin.is_some();
            let fits = |part: &[usize]| !alone(index) && !part.last().is_some_and(|&last| alone(last));
            match parts.last_mut() {
                Some(part) if part.len() < PART_ROWS_MAX && bytes + more <= PART_BYTES_MAX && fits(part) => {
                    part.push(index);
                }
                _ => {
                    parts.push(vec![index]);
                    bytes = 0;
                }
            }
            bytes += more;
        }
        parts.reverse();
        parts
    }

    /// Locks the entities of the batch, all at once and in order, and makes room for those that the layer holds nothing of.
    async fn lock(&self, parts: &[Vec<usize>]) -> Answer<Room> {
        let Mode::Upsert { arrival } = self.settings.mode else { return Ok(Room::default()) };
        let order: Vec<usize> = parts.iter().rev().flatten().copied().collect();
        let entities: BTreeSet<[u8; 32]> = order
            .iter()
            .filter_map(|&index| self.event(index).entity.as_ref())
            .map(|entity| *entity.digest())
            .collect();
        if entities.is_empty() {
            return Ok(Room::default());
        }
        let mut filled = self.fill(&order, arrival, &entities).await?;
        let unused = self.guard.lock(self.session, self.layer.id, &entities, &filled).await?;
        filled.retain(|entity, _| unused.contains(entity));
        Ok(Room { unused, filled })
    }

    /// What becomes of entities that seem to be new, if all goes as it should. Most do and it does; then they are written once.
    async fn fill(
        &self,
        order: &[usize],
        arrival: bool,
        entities: &BTreeSet<[u8; 32]>,
    ) -> Answer<HashMap<[u8; 32], Entity>> {
        if self.layer.fid.is_some() && self.layer.numbers.is_none() {
            return Ok(HashMap::new());
        }
        let existing = self.guard.existing(self.session, self.layer.id, entities).await?;
        if existing.len() == entities.len() {
            return Ok(HashMap::new());
        }
        let mut changes = self.plan(order, arrival, &HashMap::new(), HashMap::new()).changes;
        changes.retain(|change| !existing.contains(&change.entity));
        // Rows are numbered in the order in which events came.
        let has_row = |change: &&Change| !self.deletes(change);
        let mut numbers = self.numbers(changes.iter().filter(has_row).count()).await?.into_iter();
        let fid = |change: &Change| if self.deletes(change) { None } else { numbers.next() };
        let fids: Vec<Option<i64>> = changes.iter().map(fid).collect();
        Ok(changes.iter().zip(fids).map(|(change, fid)| (change.entity, self.entity(change, fid))).collect())
    }

    /// Numbers for so many rows, where rows have any.
    async fn numbers(&self, count: usize) -> Answer<Vec<i64>> {
        let Some(next) = self.layer.numbers.as_ref().filter(|_| count > 0) else { return Ok(Vec::new()) };
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let text = format!("SELECT ({next})::bigint FROM generate_series(1, $1)");
        let rows = self.session.query(&text, &[(&count, Type::INT8)]).await?;
        let mut numbers: Vec<i64> = rows.iter().map(|row| super::guard::read(row, 0)).collect::<Answer<_>>()?;
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn entity(&self, change: &Change, fid: Option<i64>) -> Entity {
        let outgoing = self.event(change.index);
        let (key, content) = (outgoing.key.key(), outgoing.content);
        let deleted = self.deletes(change);
        Entity { digest: change.entity, version: change.version.clone(), key, content, fid, deleted }
    }

    fn deletes(&self, change: &Change) -> bool {
        self.event(change.index).deletes(self.settings.mode)
    }

    /// Writes a part whole; also the entities that the layer holds something of by now. With `hopeful`, it fails where one
    /// of its keys is known.
    async fn write(
        &self,
        part: &[usize],
        hopeful: bool,
        room: &Room,
    ) -> Answer<(Vec<(usize, Written)>, Vec<[u8; 32]>)> {
        match self.settings.mode {
            Mode::Append => {
                if let [index] = part[..]
                    && let Some(origin) = &self.event(index).origin
                {
                    self.append_repair(index, origin.key()).await?;
                } else if hopeful {
                    self.append_all(part).await?;
                } else {
                    self.append_new(part).await?;
                }
                let applied = |&index: &usize| (index, Written::Done(Outcome::Applied));
                Ok((part.iter().map(applied).collect(), Vec::new()))
            }
            Mode::Upsert { arrival } => self.upsert(part, arrival, hopeful, room).await,
        }
    }

    async fn append_all(&self, part: &[usize]) -> Answer<()> {
        let decided: Vec<Decided> = part.iter().map(|&index| self.decided(index, Outcome::Applied)).collect();
        // The rows are on their way while the server looks at the keys; if those fail, so do the rows.
        let guarded = self.guard.add(self.session, self.layer.id, &decided);
        let (guarded, written) = tokio::join!(guarded, self.append_rows(part.to_vec()));
        guarded?;
        written
    }

    async fn append_new(&self, part: &[usize]) -> Answer<()> {
        let decided: Vec<Decided> = part.iter().map(|&index| self.decided(index, Outcome::Applied)).collect();
        let fresh: HashSet<[u8; 16]> =
            self.guard.decide(self.session, self.layer.id, &decided).await?.into_iter().collect();
        self.append_rows(part.iter().copied().filter(|&index| fresh.contains(&self.event(index).key.key())).collect())
            .await
    }

    /// Writes events whose keys are new: a row for each, or into the row of another.
    async fn append_rows(&self, mut part: Vec<usize>) -> Answer<()> {
        // Rows are numbered in the order in which events came.
        part.sort_unstable();
        let (merging, new): (Vec<usize>, Vec<usize>) =
            part.into_iter().partition(|&index| self.event(index).merge.is_some());
        self.insert(&new, None).await?;
        self.merge(&merging).await
    }

    /// Adds a row unless there is proof of it, or of what it is a repair of; afterwards there is of both.
    async fn append_repair(&self, index: usize, origin: [u8; 16]) -> Answer<()> {
        let own = self.decided(index, Outcome::Applied);
        let mut both = [own, Decided { key: origin, ..own }];
        both.sort_unstable_by_key(|decided| decided.key);
        let fresh = self.guard.decide(self.session, self.layer.id, &both).await?;
        if fresh.len() == both.len() { self.insert(&[index], None).await.map(drop) } else { Ok(()) }
    }

    fn decided(&self, index: usize, outcome: Outcome) -> Decided {
        let outgoing = self.event(index);
        Decided { key: outgoing.key.key(), event: outgoing.event, outcome }
    }

    async fn upsert(
        &self,
        part: &[usize],
        arrival: bool,
        hopeful: bool,
        room: &Room,
    ) -> Answer<(Vec<(usize, Written)>, Vec<[u8; 32]>)> {
        let entities: BTreeSet<[u8; 32]> =
            part.iter().filter_map(|&index| self.event(index).entity.as_ref()).map(|entity| *entity.digest()).collect();
        let entities: Vec<[u8; 32]> = entities.difference(&room.unused).copied().collect();
        let held = self.guard.held(self.session, self.layer.id, &entities).await?;
        let mut used: Vec<[u8; 32]> = held.keys().copied().collect();
        let is_dead = |(_, written): &(usize, Written)| matches!(written, Written::Dead(_));
        let mut plan = self.plan(part, arrival, &HashMap::new(), held.clone());
        if !hopeful || plan.answers.iter().any(is_dead) {
            let keys = part.iter().map(|&index| self.event(index).key.key());
            let known = self.guard.outcomes(self.session, self.layer.id, keys).await?;
            plan = self.plan(part, arrival, &known, held);
        }
        self.carry_out(&plan, hopeful, room).await?;
        used.extend(plan.changes.iter().map(|change| change.entity));
        Ok((plan.answers, used))
    }

    /// What becomes of a part, event by event in their order, given what is known and held.
    fn plan(
        &self,
        part: &[usize],
        arrival: bool,
        known: &HashMap<[u8; 16], Outcome>,
        mut held: HashMap<[u8; 32], Held>,
    ) -> Plan {
        let stored: HashMap<[u8; 32], Stored> =
            held.iter().map(|(entity, held)| (*entity, Stored::new(held))).collect();
        let mut plan = Plan::default();
        let mut changes: HashMap<[u8; 32], Change> = HashMap::new();
        for &index in part {
            let outgoing = self.event(index);
            let answer = match (known.get(&outgoing.key.key()), outgoing.entity.as_ref().map(Fingerprint::digest)) {
                (Some(outcome), _) => Written::Done(*outcome),
                (None, None) => Written::Dead(version::no_entity()),
                (None, Some(entity)) => {
                    let current = held.get(entity);
                    let number = arrival.then(|| next_arrival(current));
                    let outcome = match version::order(outgoing, number, current) {
                        Err(cause) => Err(cause),
                        Ok(Order::Older) => Ok(Outcome::Stale),
                        Ok(Order::Same) => Ok(Outcome::Applied),
                        Ok(Order::Newer(version)) => {
                            let fid = current.and_then(|held| held.fid);
                            let (key, content) = (outgoing.key.key(), outgoing.content);
                            held.insert(*entity, Held { version: Some(version.clone()), key, content, fid });
                            let stored = stored.get(entity).cloned();
                            let before = changes.get(entity).is_some_and(|change| change.removes);
                            let removes = before || outgoing.deletes(self.settings.mode);
                            changes.insert(*entity, Change { index, entity: *entity, version, stored, removes });
                            Ok(Outcome::Applied)
                        }
                    };
                    match outcome {
                        Err(cause) => Written::Dead(cause),
                        Ok(outcome) => {
                            plan.decided.push(self.decided(index, outcome));
                            Written::Done(outcome)
                        }
                    }
                }
            };
            plan.answers.push((index, answer));
        }
        plan.changes = changes.into_values().collect();
        plan.changes.sort_unstable_by_key(|change| change.index);
        plan.decided.sort_unstable_by_key(|decided| decided.key);
        plan
    }

    async fn carry_out(&self, plan: &Plan, hopeful: bool, room: &Room) -> Answer<()> {
        if plan.decided.is_empty() {
            return Ok(());
        }
        // The rows are on their way while the server looks at the keys; if those fail, so do the rows.
        let guarded = self.guard.add(self.session, self.layer.id, &plan.decided);
        let (guarded, changed) = tokio::join!(biased; guarded, self.change(plan, room));
        if let Err(trouble) = guarded {
            // After looking, only where one key is about two entities, which the lock on entities cannot see: all is done again.
            let met = !hopeful && is_known_key(&trouble);
            return Err(if met { Trouble::silent("another gateway decided the same key") } else { trouble });
        }
        self.guard.set(self.session, self.layer.id, &changed?).await
    }

    /// Writes the rows of entities; what is to be set of those that are not what their room was filled with.
    async fn change(&self, plan: &Plan, room: &Room) -> Answer<Vec<Entity>> {
        let changes: Vec<&Change> = plan.changes.iter().collect();
        self.remove(&changes).await?;
        let updated = self.update(&changes).await?;
        let is_updated = |index: usize| self.row(index).is_some_and(|row| updated.contains(&row.key));
        let is_new = |change: &&Change| !is_updated(change.index) && !self.deletes(change);
        let new: Vec<&Change> = changes.iter().copied().filter(is_new).collect();
        let fids = new.iter().map(|change| room.filled(&change.entity).and_then(|filled| filled.fid)).collect();
        let new: Vec<usize> = new.iter().map(|change| change.index).collect();
        let numbers = self.insert(&new, Some(fids)).await?;
        let becomes = |change: &&Change| {
            let fid = if is_updated(change.index) {
                change.stored.as_ref().and_then(|stored| stored.fid)
            } else {
                self.row(change.index).and_then(|row| numbers.get(&row.key).copied())
            };
            self.entity(change, fid)
        };
        let is_filled = |entity: &Entity| {
            let filled = room.filled(&entity.digest);
            filled.is_some_and(|filled| {
                (filled.key, filled.fid, &filled.version) == (entity.key, entity.fid, &entity.version)
            })
        };
        Ok(changes.iter().map(becomes).filter(|entity| !is_filled(entity)).collect())
    }

    /// Answers for events that were in no part: those without a row, and repetitions of a key.
    async fn answer_rest(&self, answers: &mut [Option<Written>]) -> Answer<()> {
        let mut by_key: HashMap<[u8; 16], Written> = HashMap::new();
        for (index, answer) in answers.iter().enumerate() {
            if let Some(written) = answer {
                by_key.insert(self.event(index).key.key(), written.clone());
            }
        }
        // One that has no row now may have been written under other settings; the proof says so.
        let rest = (0..answers.len()).filter(|&index| answers[index].is_none());
        let unknown = rest.map(|index| self.event(index).key.key()).filter(|key| !by_key.contains_key(key));
        let known = self.guard.outcomes(self.session, self.layer.id, unknown).await?;
        by_key.extend(known.into_iter().map(|(key, outcome)| (key, Written::Done(outcome))));
        for (index, answer) in answers.iter_mut().enumerate().filter(|(_, answer)| answer.is_none()) {
            let (outgoing, row) = &self.prepared.events[index];
            *answer = match (by_key.get(&outgoing.key.key()), row) {
                (Some(written), Ok(_)) => Some(written.clone()),
                (Some(Written::Done(outcome)), Err(_)) => Some(Written::Done(*outcome)),
                (_, Err(cause)) => Some(Written::Dead(cause.clone())),
                (None, Ok(_)) => None,
            };
        }
        Ok(())
    }
}
