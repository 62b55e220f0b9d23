//! Recording a group of events in one transaction, or telling what is known about them.
//!
//! All keys are claimed first, sorted, in one statement; one that is taken makes us wait until its holder is committed,
//! so that the next statement sees it. Claims that turn out to be a duplicate's are undone before the commit.
//! Where no key was known for a while, all is sent at once in the hope that none is now; if one is, nothing of it happened.

use super::counts::{ADD_COUNTS, is_last_group};
use super::line::{self, Entering};
use super::plan::{self, Fresh, Holder, Known, Plan, plan};
use super::row::{EVENT_COLUMNS, EventRow, Uuid, get, small};
use super::{Attempt, Shared};
use crate::clock::Timestamp;
use crate::event::{EventId, Outcome};
use crate::postgres::{Parameter, Session, Trouble};
use crate::store::books::Uncounted;
use crate::store::encoding::{
    Bytes16, DEAD, DONE, HELD, NEVER, OPEN, form_number, number, outcome_number, write_cause, write_fingerprints,
};
use crate::store::{NewEvent, Route, held};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use tokio_postgres::types::Type;

/// How often keys are looked at that change hands meanwhile.
const LOOKS_MAX: usize = 8;

/// What most groups send.
const NAMED: [&str; 6] = [INSERT_CLAIMS, CLAIM_KEYS, INSERT_EVENTS, INSERT_BODIES, INSERT_WORK, ADD_COUNTS];
/// Fails if one is taken;
const INSERT_CLAIMS: &str = "INSERT INTO claim (key, event) SELECT * FROM unnest($1::uuid[], $2::uuid[])";
/// takes those that are free.
const CLAIM_KEYS: &str = "INSERT INTO claim (key, event) SELECT k, e FROM unnest($1::uuid[], $2::uuid[]) AS t(k, e) \
    ON CONFLICT (key) DO NOTHING RETURNING key";
const INSERT_EVENTS: &str = "INSERT INTO event (id, source, state, outcome, received, settled, duplicates, form, crs, digests, \
    spatial, content, cause, code) \
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::smallint[], $4::smallint[], $5::bigint[], \
    $6::bigint[], $7::bigint[], $8::smallint[], $9::bigint[], $10::bytea[], $11::bytea[], $12::bytea[], \
    $13::text[], $14::text[])";
const INSERT_BODIES: &str = "INSERT INTO body (event, payload) SELECT * FROM unnest($1::uuid[], $2::bytea[])";
const INSERT_WORK: &str = "INSERT INTO work (event, sink, due, bytes, cause, after, entity, rank) \
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], \
    $7::uuid[], $8::bytea[])";

/// What one transaction records.
pub(super) struct Group<'a> {
    pub(super) events: Vec<(&'a NewEvent, Timestamp)>,
    pub(super) uncounted: &'a Uncounted,
    /// By this the group recognises itself when its commit was not answered.
    pub(super) number: i64,
    pub(super) slot: i64,
    /// Whether to look first which of the events are recorded already.
    pub(super) careful: bool,
    /// Whether to take it that no key is known.
    pub(super) hopeful: bool,
}

/// Records a group and commits it. `repeated` means that an earlier attempt may have been committed.
pub(super) async fn accept<'a>(
    shared: &Shared,
    session: Session,
    group: &Group<'a>,
    repeated: bool,
) -> Attempt<Plan<'a>> {
    let decided = async {
        session.name(&NAMED).await?;
        if let Some((plan, claims)) = hope(shared, &session, group, repeated).await? {
            return Ok((plan, Turns::new(), claims));
        }
        let (plan, turns) = decide(shared, &session, group, repeated).await?;
        Ok((plan, turns, Claims::default()))
    };
    let (plan, turns, claims) = match decided.await {
        Ok(decided) => decided,
        Err(trouble) => return session.end(Err(trouble)).await,
    };
    let rows = Rows::of(&plan, shared.options.keep_payload, &turns);
    // Sent together with the commit, answered in order. The first failure is the one that tells why.
    let last = async {
        tokio::try_join!(
            biased;
            claims.insert(&session),
            rows.insert_events(&session),
            rows.insert_bodies(&session),
            rows.insert_work(&session),
            count_repeats(&session, &plan.repeats),
            plan.counts.write(&session, group.slot, Some(group.number)),
        )
    };
    session.end_with(last).await?;
    Ok(plan)
}

/// Keys and the new events that claim them.
#[derive(Default)]
struct Claims {
    keys: Vec<Uuid>,
    events: Vec<Uuid>,
}

impl Claims {
    /// Those of a plan, sorted.
    fn of(plan: &Plan<'_>) -> Claims {
        let mut claims: Vec<(Uuid, Uuid)> =
            plan.owners.iter().map(|(&key, &place)| (Uuid(key), plan.fresh[place].event.id.into())).collect();
        claims.sort_unstable();
        let (keys, events) = claims.into_iter().unzip();
        Claims { keys, events }
    }

    /// Fails if one is taken.
    async fn insert(&self, session: &Session) -> Attempt<()> {
        if self.keys.is_empty() {
            return Ok(());
        }
        let both: [Parameter<'_>; 2] = [(&self.keys, Type::UUID_ARRAY), (&self.events, Type::UUID_ARRAY)];
        session.execute_named(INSERT_CLAIMS, &both).await.map(drop)
    }
}

/// What is to become of a group if no key of it is known; `None` where that is not to be hoped for. An earlier attempt may have
/// claimed its keys; and entities are held after claims, which are not sent yet.
async fn hope<'a>(
    shared: &Shared,
    session: &Session,
    group: &Group<'a>,
    repeated: bool,
) -> Attempt<Option<(Plan<'a>, Claims)>> {
    if !group.hopeful || repeated || group.events.iter().any(|(event, _)| event.order.is_some()) {
        return Ok(None);
    }
    let events: Vec<(&NewEvent, Timestamp)> =
        group.events.iter().map(|&(event, given)| (event, shared.now(session, given))).collect();
    let mut plan = plan(&events, &Known::default())?;
    if !plan.missing.is_empty() {
        return Ok(None);
    }
    plan.counts.add_uncounted(group.uncounted);
    count_unasked(session, &group.uncounted.repeated).await?;
    let claims = Claims::of(&plan);
    Ok(Some((plan, claims)))
}

/// Claims keys and decides, who has its turn too; all that is left are rows to be written.
async fn decide<'a>(
    shared: &Shared,
    session: &Session,
    group: &Group<'a>,
    repeated: bool,
) -> Attempt<(Plan<'a>, Turns)> {
    let counted = repeated && is_last_group(session, group.slot, group.number).await?;
    let events: Vec<(&NewEvent, Timestamp)> =
        group.events.iter().map(|&(event, given)| (event, shared.now(session, given))).collect();
    let mut wanted = BTreeMap::new();
    for (event, _) in &events {
        for fingerprint in std::iter::once(&event.key).chain(&event.aliases) {
            wanted.entry(fingerprint.key()).or_insert(event.id);
        }
    }
    let mut known = Known::default();
    if group.careful {
        let ids: Vec<Uuid> = events.iter().map(|(event, _)| event.id.into()).collect();
        let rows = session.query("SELECT id FROM event WHERE id = ANY($1)", &[(&ids, Type::UUID_ARRAY)]).await?;
        known.recorded = rows.iter().map(|row| Ok(get::<Uuid>(row, 0)?.id())).collect::<Attempt<_>>()?;
    }
    let mut plan = loop {
        look_up(session, &mut known, wanted).await?;
        let mut plan = plan(&events, &known)?;
        if plan.missing.is_empty() {
            break plan;
        }
        wanted = std::mem::take(&mut plan.missing);
    };
    if counted && plan.fresh.is_empty() {
        // The earlier attempt was committed; only its answer was lost.
        (plan.counts, plan.repeats) = Default::default();
    } else if !counted {
        plan.counts.add_uncounted(group.uncounted);
        count_unasked(session, &group.uncounted.repeated).await?;
    }
    correct_claims(session, &known, &plan).await?;
    let turns = enter(shared, session, &plan, &events).await?;
    Ok((plan, turns))
}

/// Claims the keys that nobody has, and finds out who has the others.
pub(super) async fn look_up(
    session: &Session,
    known: &mut Known,
    mut wanted: BTreeMap<Bytes16, EventId>,
) -> Attempt<()> {
    for _ in 0..LOOKS_MAX {
        if wanted.is_empty() {
            return Ok(());
        }
        let keys: Vec<Uuid> = wanted.keys().map(|&key| Uuid(key)).collect();
        let events: Vec<Uuid> = wanted.values().map(|&event| event.into()).collect();
        let both: [Parameter<'_>; 2] = [(&keys, Type::UUID_ARRAY), (&events, Type::UUID_ARRAY)];
        for row in session.query_named(CLAIM_KEYS, &both).await? {
            let Uuid(key) = get(&row, 0)?;
            if let Some(event) = wanted.remove(&key) {
                known.taken.insert(key, event);
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let keys: Vec<Uuid> = wanted.keys().map(|&key| Uuid(key)).collect();
        // As a join each key is looked for in its own part only.
        let text = "SELECT c.key, c.event FROM unnest($1::uuid[]) AS t(k) JOIN claim c ON c.key = t.k";
        let rows = session.query(text, &[(&keys, Type::UUID_ARRAY)]).await?;
        let claims: Vec<(Uuid, Uuid)> =
            rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect::<Attempt<_>>()?;
        load(session, known, claims.iter().map(|(_, event)| event.id()).collect()).await?;
        let mut stray = (Vec::new(), Vec::new());
        for (key, event) in claims {
            if known.holders.contains_key(&event.id()) {
                known.held.insert(key.0, event.id());
                wanted.remove(&key.0);
            } else {
                stray.0.push(key);
                stray.1.push(event);
            }
        }
        // A claim whose event is gone is free.
        if !stray.0.is_empty() {
            let text = "DELETE FROM claim c USING unnest($1::uuid[], $2::uuid[]) AS t(k, e) WHERE c.key = t.k AND c.event = t.e";
            let both: [Parameter<'_>; 2] = [(&stray.0, Type::UUID_ARRAY), (&stray.1, Type::UUID_ARRAY)];
            session.execute(text, &both).await?;
        }
    }
    Err(Trouble::silent("keys kept changing hands"))
}

/// Reads events and holds them until the transaction ends.
pub(super) async fn load(session: &Session, known: &mut Known, ids: BTreeSet<EventId>) -> Attempt<()> {
    let ids: Vec<Uuid> = ids.into_iter().filter(|id| !known.holders.contains_key(id)).map(Uuid::from).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let text = format!("SELECT {EVENT_COLUMNS} FROM event e WHERE e.id = ANY($1) ORDER BY e.id FOR UPDATE");
    let mut unsettled: Vec<Uuid> = Vec::new();
    for row in session.query(&text, &[(&ids, Type::UUID_ARRAY)]).await? {
        let event = EventRow::read(&row)?;
        if event.state != DONE {
            unsettled.push(event.id.into());
        }
        known.holders.insert(event.id, Holder { event, leased: false, revivable: false });
    }
    if unsettled.is_empty() {
        return Ok(());
    }
    let text =
        "SELECT event, bool_or(lease IS NOT NULL), bool_or(due = $2) FROM work WHERE event = ANY($1) GROUP BY event";
    for row in session.query(text, &[(&unsettled, Type::UUID_ARRAY), (&NEVER, Type::INT8)]).await? {
        if let Some(holder) = known.holders.get_mut(&get::<Uuid>(&row, 0)?.id()) {
            (holder.leased, holder.revivable) = (get(&row, 1)?, get(&row, 2)?);
        }
    }
    Ok(())
}

/// Gives claims to those who turned out to need them, and back those that nobody does.
pub(super) async fn correct_claims(session: &Session, known: &Known, plan: &Plan<'_>) -> Attempt<()> {
    let (mut unused, mut others, mut owners) = (Vec::new(), Vec::new(), Vec::new());
    for (&key, &event) in &known.taken {
        match plan.owners.get(&key).map(|&place| plan.fresh[place].event.id) {
            None => unused.push(Uuid(key)),
            Some(owner) if owner != event => {
                others.push(Uuid(key));
                owners.push(Uuid::from(owner));
            }
            Some(_) => {}
        }
    }
    if !unused.is_empty() {
        let text = "DELETE FROM claim c USING unnest($1::uuid[]) AS t(k) WHERE c.key = t.k";
        session.execute(text, &[(&unused, Type::UUID_ARRAY)]).await?;
    }
    if !others.is_empty() {
        let text = "UPDATE claim SET event = t.e FROM unnest($1::uuid[], $2::uuid[]) AS t(k, e) WHERE claim.key = t.k";
        session.execute(text, &[(&others, Type::UUID_ARRAY), (&owners, Type::UUID_ARRAY)]).await?;
    }
    Ok(())
}

/// Work that has its turn.
pub(super) type Turns = HashSet<(Uuid, String)>;

/// Makes dead events ready again, and lets these and new ones into the lines of their entities; which has its turn.
pub(super) async fn enter(
    shared: &Shared,
    session: &Session,
    plan: &Plan<'_>,
    events: &[(&NewEvent, Timestamp)],
) -> Attempt<Turns> {
    let Some(&(_, now)) = events.last() else { return Ok(Turns::new()) };
    let mut returning = Vec::new();
    if !plan.revived.is_empty() {
        let ids: Vec<Uuid> = plan.revived.iter().map(|&id| id.into()).collect();
        returning = super::work::revive(session, &ids, now).await?.entering;
    }
    let mut entering = Vec::new();
    for &one in &plan.entering {
        match one {
            plan::Entering::Known(id) => {
                entering.extend(returning.extract_if(.., |work| work.event == Uuid::from(id)));
            }
            plan::Entering::Fresh(place) => entering.extend(lines_of(&plan.fresh[place])),
        }
    }
    if entering.is_empty() {
        return Ok(Turns::new());
    }
    line::hold(shared, session, entering.iter().map(|work| &work.line)).await?;
    let turns = line::enter(session, &entering).await?;
    let is_known = |(event, _): &&(Uuid, String)| plan.revived.contains(&event.id());
    line::give_turn(session, &turns.iter().filter(is_known).cloned().collect(), now).await?;
    Ok(turns)
}

/// The lines that a new event comes into.
fn lines_of(fresh: &Fresh<'_>) -> impl Iterator<Item = Entering> {
    let order = fresh.event.order.as_ref().zip(held::rank(fresh.event, fresh.received));
    let routes = fresh.routes();
    order.into_iter().flat_map(move |(order, rank)| {
        let goes = |route: &&Route| held::waits_for(route, routes).is_none();
        held::distinct(routes).filter(goes).map(move |route| Entering {
            event: fresh.event.id.into(),
            line: (route.sink.to_string(), Uuid(order.entity.key())),
            rank: rank.clone(),
            untouched: fresh.cause.is_none(),
        })
    })
}

pub(super) async fn count_repeats(session: &Session, repeats: &BTreeMap<EventId, i64>) -> Attempt<()> {
    if repeats.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = repeats.keys().map(|&id| id.into()).collect();
    let counts: Vec<i64> = repeats.values().copied().collect();
    let text = "UPDATE event SET duplicates = event.duplicates + t.n FROM unnest($1::uuid[], $2::bigint[]) AS t(i, n) \
                WHERE event.id = t.i";
    session.execute(text, &[(&ids, Type::UUID_ARRAY), (&counts, Type::INT8_ARRAY)]).await.map(drop)
}

/// Counts repeated deliveries that were recognised without asking. Who holds such a record is not waited for, because
/// locks are taken in one order, and this is none; the books count them all the same.
async fn count_unasked(session: &Session, repeated: &BTreeMap<EventId, u64>) -> Attempt<()> {
    if repeated.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = repeated.keys().map(|&id| id.into()).collect();
    let counts: Vec<i64> = repeated.values().map(|&count| i64::try_from(count).unwrap_or(i64::MAX)).collect();
    let text = "WITH held AS MATERIALIZED (SELECT e.id, t.n FROM unnest($1::uuid[], $2::bigint[]) AS t(i, n) \
                JOIN event e ON e.id = t.i FOR UPDATE OF e SKIP LOCKED) \
                UPDATE event SET duplicates = event.duplicates + held.n FROM held WHERE event.id = held.id";
    session.execute(text, &[(&ids, Type::UUID_ARRAY), (&counts, Type::INT8_ARRAY)]).await.map(drop)
}

/// The rows of new events, column by column.
#[derive(Default)]
pub(super) struct Rows<'p> {
    ids: Vec<Uuid>,
    sources: Vec<&'p str>,
    states: Vec<i16>,
    outcomes: Vec<Option<i16>>,
    received: Vec<i64>,
    settled: Vec<Option<i64>>,
    duplicates: Vec<i64>,
    forms: Vec<i16>,
    crs: Vec<Option<i64>>,
    digests: Vec<Vec<u8>>,
    spatial: Vec<Option<Vec<u8>>>,
    contents: Vec<&'p [u8]>,
    causes: Vec<Option<String>>,
    codes: Vec<Option<&'p str>>,
    body_ids: Vec<Uuid>,
    payloads: Vec<&'p [u8]>,
    work_ids: Vec<Uuid>,
    sinks: Vec<&'p str>,
    due: Vec<i64>,
    bytes: Vec<i64>,
    work_causes: Vec<Option<String>>,
    after: Vec<Option<&'p str>>,
    entities: Vec<Option<Uuid>>,
    ranks: Vec<Option<Vec<u8>>>,
}

impl<'p> Rows<'p> {
    pub(super) fn of(plan: &'p Plan<'_>, keep_payload: bool, turns: &Turns) -> Rows<'p> {
        let mut rows = Rows::default();
        for fresh in &plan.fresh {
            let (event, state, now) = (fresh.event, fresh.state(), fresh.received.millis());
            let cause = fresh.cause.as_ref().filter(|_| state == DEAD);
            let (mut digests, mut spatial) = (Vec::with_capacity(66), Vec::new());
            write_fingerprints(&fresh.digests(), &mut digests);
            write_fingerprints(&event.spatial, &mut spatial);
            rows.ids.push(event.id.into());
            rows.sources.push(&event.source);
            rows.states.push(small(state));
            rows.outcomes.push((state == DONE).then(|| small(outcome_number(Outcome::Applied))));
            rows.received.push(now);
            rows.settled.push((state != OPEN).then_some(now));
            rows.duplicates.push(fresh.duplicates);
            rows.forms.push(small(form_number(event.form)));
            rows.crs.push(event.crs.map(i64::from));
            rows.digests.push(digests);
            rows.spatial.push((!spatial.is_empty()).then_some(spatial));
            rows.contents.push(&event.content);
            rows.causes.push(cause.map(write_cause));
            rows.codes.push(cause.map(|cause| cause.code.as_str()));
            if state != DONE || keep_payload {
                rows.body_ids.push(event.id.into());
                rows.payloads.push(&event.payload);
            }
            for route in held::distinct(fresh.routes()) {
                let after = held::waits_for(route, fresh.routes());
                let has_turn = || event.order.is_none() || turns.contains(&(event.id.into(), route.sink.to_string()));
                rows.work_ids.push(event.id.into());
                rows.sinks.push(&route.sink);
                rows.due.push(match state {
                    _ if after.is_some() => HELD,
                    DEAD => NEVER,
                    _ if has_turn() => now,
                    _ => HELD,
                });
                rows.bytes.push(number(event.payload.len()));
                // What waits for another sink was not attempted, whatever is wrong with its event.
                rows.work_causes.push(fresh.cause.as_ref().filter(|_| after.is_none()).map(write_cause));
                rows.after.push(after.map(|after| &**after));
                rows.entities.push(event.order.as_ref().map(|order| Uuid(order.entity.key())));
                rows.ranks.push(held::rank(event, fresh.received));
            }
        }
        rows
    }

    pub(super) async fn insert_events(&self, session: &Session) -> Attempt<()> {
        if self.ids.is_empty() {
            return Ok(());
        }
        let parameters: [Parameter<'_>; 14] = [
            (&self.ids, Type::UUID_ARRAY),
            (&self.sources, Type::TEXT_ARRAY),
            (&self.states, Type::INT2_ARRAY),
            (&self.outcomes, Type::INT2_ARRAY),
            (&self.received, Type::INT8_ARRAY),
            (&self.settled, Type::INT8_ARRAY),
            (&self.duplicates, Type::INT8_ARRAY),
            (&self.forms, Type::INT2_ARRAY),
            (&self.crs, Type::INT8_ARRAY),
            (&self.digests, Type::BYTEA_ARRAY),
            (&self.spatial, Type::BYTEA_ARRAY),
            (&self.contents, Type::BYTEA_ARRAY),
            (&self.causes, Type::TEXT_ARRAY),
            (&self.codes, Type::TEXT_ARRAY),
        ];
        session.execute_named(INSERT_EVENTS, &parameters).await.map(drop)
    }

    pub(super) async fn insert_bodies(&self, session: &Session) -> Attempt<()> {
        if self.body_ids.is_empty() {
            return Ok(());
        }
        let both: [Parameter<'_>; 2] = [(&self.body_ids, Type::UUID_ARRAY), (&self.payloads, Type::BYTEA_ARRAY)];
        session.execute_named(INSERT_BODIES, &both).await.map(drop)
    }

    pub(super) async fn insert_work(&self, session: &Session) -> Attempt<()> {
        if self.work_ids.is_empty() {
            return Ok(());
        }
        let parameters: [Parameter<'_>; 8] = [
            (&self.work_ids, Type::UUID_ARRAY),
            (&self.sinks, Type::TEXT_ARRAY),
            (&self.due, Type::INT8_ARRAY),
            (&self.bytes, Type::INT8_ARRAY),
            (&self.work_causes, Type::TEXT_ARRAY),
            (&self.after, Type::TEXT_ARRAY),
            (&self.entities, Type::UUID_ARRAY),
            (&self.ranks, Type::BYTEA_ARRAY),
        ];
        session.execute_named(INSERT_WORK, &parameters).await.map(drop)
    }
}
