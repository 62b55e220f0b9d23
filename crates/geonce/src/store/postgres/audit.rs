//! Compares the store with itself: records against work, payloads, claims and books, in one snapshot, page by page.

use super::counts::counters;
use super::read::work;
use super::row::{EVENT_COLUMNS, EventRow, Uuid, get};
use super::{Attempt, Shared, reading};
use crate::error::Kind;
use crate::event::State;
use crate::postgres::{Parameter, Session, Trouble};
use crate::store::books::{Records, compare};
use crate::store::encoding::{DONE, HELD, OPEN, number};
use crate::store::findings::{self, DUE_MILLIS_MAX};
use crate::store::{Held, Work};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio_postgres::types::Type;

/// Rows of one page.
const PAGE_ROWS: usize = 2_000;

/// Problems, and the records of each source.
type Findings = findings::Findings<HashMap<Arc<str>, Records>>;

/// Looks at everything. Problems in words.
pub(super) async fn audit(shared: &Shared) -> Attempt<Vec<String>> {
    reading!(shared.pool, session => look(&session))
}

async fn look(session: &Session) -> Attempt<Vec<String>> {
    let mut findings = Findings::default();
    let mut after = Uuid::MIN;
    while let Some(last) = page(session, after, &mut findings).await? {
        after = last;
    }
    for (table, what) in
        [("claim", "keys are claimed for"), ("body", "payloads belong to"), ("work", "entries of the queue are for")]
    {
        let strays = strays(session, table).await?;
        if strays > 0 {
            findings.add(format!("{strays} {what} events that are not there"));
        }
    }
    let held = held(session).await?;
    if held > 0 {
        findings.add(format!("{held} entries of the queue are held, and nothing is there to wait for"));
    }
    let records = std::mem::take(&mut findings.seen);
    for problem in compare(counters(session).await?, &records) {
        findings.add(problem);
    }
    Ok(findings.finish())
}

/// Looks at the records of a page; the last of them, if there may be more.
async fn page(session: &Session, after: Uuid, findings: &mut Findings) -> Attempt<Option<Uuid>> {
    let text = format!("SELECT {EVENT_COLUMNS} FROM event e WHERE e.id > $1 ORDER BY e.id LIMIT {PAGE_ROWS}");
    let rows = session.query(&text, &[(&after, Type::UUID)]).await?;
    let Some(last) = rows.last().map(|row| get::<Uuid>(row, 0)).transpose()? else { return Ok(None) };
    let mut events = Vec::with_capacity(rows.len());
    for row in &rows {
        match EventRow::read(row) {
            Ok(event) => events.push(event),
            Err(Trouble::Other(error)) if error.kind() == Kind::Corrupt => findings.add(error.to_string()),
            Err(trouble) => return Err(trouble),
        }
    }
    let ids: Vec<Uuid> = events.iter().map(|event| event.id.into()).collect();
    let mut work = work(session, &ids).await?;
    let text = "SELECT b.event FROM unnest($1::uuid[]) AS t(e) JOIN body b ON b.event = t.e";
    let bodies = session.query(text, &[(&ids, Type::UUID_ARRAY)]).await?;
    let bodies: HashSet<Uuid> = bodies.iter().map(|row| get(row, 0)).collect::<Attempt<_>>()?;
    for event in &events {
        let id = Uuid::from(event.id);
        check(event, &work.remove(&id).unwrap_or_default(), bodies.contains(&id), findings);
    }
    check_claims(session, &events, findings).await?;
    Ok((rows.len() == PAGE_ROWS).then_some(last))
}

fn check(event: &EventRow, work: &[Work], has_body: bool, findings: &mut Findings) {
    let id = event.id;
    let records = findings.seen.entry(Arc::clone(&event.source)).or_default();
    match usize::try_from(event.state) {
        Ok(state) if state < 3 => records[state] += 1,
        _ => return findings.add(format!("{id} is in state {}, which is unknown", event.state)),
    }
    records[3] += number(event.digests.len());
    let dead = work.iter().filter(|work| work.state == State::Dead).count();
    let waits_for = |work: &Work| match &work.held {
        Some(Held::Sink(after)) => Some(Arc::clone(after)),
        _ => None,
    };
    // Work that waits for another sink goes where that goes.
    let follows = work.iter().filter_map(waits_for).collect::<Vec<_>>();
    if follows.iter().any(|after| !work.iter().any(|work| work.sink == *after)) {
        findings.add(format!("{id} is held for a sink that is served"));
    }
    let open = work.len() - dead - follows.len();
    let latest = event.received.millis().saturating_add(DUE_MILLIS_MAX);
    if work.iter().any(|work| work.state != State::Dead && work.held.is_none() && work.due.millis() > latest) {
        findings.add(format!("{id} is due in the far future"));
    }
    let fits = match event.state {
        OPEN => open > 0 && event.settled.is_none(),
        DONE => work.is_empty() && event.settled.is_some() && event.outcome.is_some(),
        _ => open == 0 && event.settled.is_some() && event.cause.is_some(),
    };
    if !fits {
        findings.add(format!("the state of {id} does not fit its work ({open} open, {dead} dead)"));
    }
    if event.state != DONE && !has_body {
        findings.add(format!("{id} is not done, but its payload is gone"));
    }
}

/// Every key of every event must be claimed for it.
async fn check_claims(session: &Session, events: &[EventRow], findings: &mut Findings) -> Attempt<()> {
    let keys: Vec<Uuid> =
        events.iter().flat_map(|event| event.digests.iter().map(|fingerprint| Uuid(fingerprint.key()))).collect();
    let text = "SELECT c.key, c.event FROM unnest($1::uuid[]) AS t(k) JOIN claim c ON c.key = t.k";
    let rows = session.query(text, &[(&keys, Type::UUID_ARRAY)]).await?;
    let claims: HashMap<Uuid, Uuid> =
        rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect::<Attempt<_>>()?;
    for event in events {
        for fingerprint in &event.digests {
            if claims.get(&Uuid(fingerprint.key())) != Some(&event.id.into()) {
                findings.add(format!("a key of {} is not claimed for it", event.id));
            }
        }
    }
    Ok(())
}

/// Work that is held for others of its entity, none of which has its turn; or for nothing at all, but not released.
async fn held(session: &Session) -> Attempt<i64> {
    let text = format!(
        "SELECT count(*) FROM work w WHERE CASE WHEN w.after IS NOT NULL THEN w.due <> {HELD} \
         ELSE w.due = {HELD} AND NOT EXISTS (SELECT 1 FROM work t WHERE t.sink = w.sink AND t.entity = w.entity \
           AND t.entity IS NOT NULL AND t.due < {HELD}) END"
    );
    let rows = session.query(&text, &[]).await?;
    rows.first().map_or(Ok(0), |row| get(row, 0))
}

/// Rows of a table whose event is not there.
async fn strays(session: &Session, table: &str) -> Attempt<usize> {
    let key = if table == "claim" { "key" } else { "event" };
    let (mut after, mut strays) = (Uuid::MIN, 0);
    loop {
        let text = format!(
            "SELECT t.k, e.id IS NULL FROM (SELECT {key} AS k, event FROM {table} WHERE {key} > $1 ORDER BY {key} LIMIT $2) t \
             LEFT JOIN event e ON e.id = t.event ORDER BY t.k"
        );
        let parameters: [Parameter<'_>; 2] = [(&after, Type::UUID), (&number(PAGE_ROWS), Type::INT8)];
        let rows = session.query(&text, &parameters).await?;
        for row in &rows {
            strays += usize::from(get::<bool>(row, 1)?);
        }
        match rows.last() {
            Some(last) if rows.len() == PAGE_ROWS => after = get(last, 0)?,
            _ => return Ok(strays),
        }
    }
}
