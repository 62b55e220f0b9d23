//! Entities: what is unchanged is asked for and left alone; only what is new or changed travels, and is written set by set.
//!
//! The order of versions is the sinks'. A batch is done again where another program wrote one of its entities at the same
//! moment, or where two waited for each other.

use super::known::learn;
use super::rows::{BESIDE, Beside, Encoded, Encoder, names};
use super::write::{Route, gone, values};
use super::{Load, Told};
use crate::clock::{Stopwatch, Timestamp};
use crate::error::{Error, Kind};
use crate::event::Cause;
use crate::load::target::known::Touched;
use crate::load::target::slots::Slots;
use crate::load::target::{Piece, Refused, Tally, key_characters};
use crate::postgres::{Parameter, Trouble, literal, quoted};
use crate::sink::columns::OTHER;
use crate::sink::postgis::guard::{Id, read};
use crate::sink::postgis::layer::Layer;
use crate::sink::version::{self, Claim, Held, Order};
use geonce_key::{Fingerprint, Version};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

/// What is written between two savepoints at most, roughly.
const PART_BYTES_MAX: usize = 8 << 20;
/// What a row takes beside its positions, roughly.
const ROW_BYTES: usize = 300;
const POSITION_BYTES: usize = 24;

type Entity = [u8; 32];

/// What became of a batch.
enum Written {
    Done(Tally, Vec<Refused>),
    /// Nothing yet: some of it has no column.
    NeedsOther,
    /// Nothing: one of its rows cannot be sent.
    Refused(Cause),
}

/// What an entity becomes.
struct Change<'p> {
    piece: &'p Piece,
    version: Version,
    /// What the layer holds of it.
    held: Option<Held>,
}

impl Load {
    /// Adds and changes entities.
    pub(super) async fn upsert<'p>(
        &mut self,
        pieces: impl Iterator<Item = &'p Piece>,
        arrival: bool,
    ) -> Told<Vec<Refused>> {
        let mut refused = Vec::new();
        let all: Vec<&Piece> = pieces.collect();
        for part in parts(&all) {
            self.upsert_part(part, arrival, &mut refused).await?;
        }
        refused.sort_unstable_by_key(|refused| refused.number);
        Ok(refused)
    }

    async fn upsert_part(&mut self, pieces: &[&Piece], arrival: bool, refused: &mut Vec<Refused>) -> Told<()> {
        let watch = Stopwatch::start();
        let mut parts = vec![pieces];
        let (mut doubted, mut attempted) = (None, false);
        while let Some(pieces) = parts.pop() {
            self.make_ready().await?;
            let answer = self.upsert_whole(pieces, arrival).await;
            let Some(part) = self.part.as_mut() else { return Err(gone()) };
            let (cause, is_doubtful) = match answer {
                Ok(Written::Done(tally, more)) => {
                    part.tally = part.tally.plus(tally);
                    refused.extend(more);
                    attempted = true;
                    continue;
                }
                Ok(Written::NeedsOther) => {
                    part.undo();
                    self.add_other().await?;
                    parts.push(pieces);
                    continue;
                }
                Ok(Written::Refused(cause)) => {
                    part.undo();
                    (cause, false)
                }
                Err(trouble) if is_met(&trouble) && watch.elapsed() < self.plan.timeout => {
                    part.undo();
                    // What is known may not be so any more.
                    self.known.forget();
                    parts.push(pieces);
                    continue;
                }
                Err(trouble) => part.refused(trouble, &mut doubted)?,
            };
            match pieces {
                [piece] => {
                    attempted |= !is_doubtful;
                    refused.push(Refused { number: piece.number, cause });
                }
                several => {
                    let (first, second) = several.split_at(several.len() / 2);
                    parts.extend([second, first]);
                }
            }
        }
        match doubted {
            // None of them could be written, for no reason of theirs.
            Some(trouble) if !attempted => Err(trouble),
            _ => Ok(()),
        }
    }

    async fn upsert_whole<'p>(&mut self, pieces: &[&'p Piece], arrival: bool) -> Told<Written> {
        let table = format!("{}.geonce_entity", quoted(&self.settings.schema));
        let Some(part) = self.part.as_mut() else { return Err(gone()) };
        let mut found = self.known.touched(pieces);
        // Where nothing is to be written there is nothing to be undone.
        if found.as_ref().is_none_or(|(touched, _)| !touched.is_empty()) {
            part.savepoint().await?;
        }
        if found.is_none() {
            learn(&self.known, &part.session, &table, self.layer.id, pieces.len()).await?;
            found = self.known.touched(pieces);
        }
        let (touched, there) = match found {
            Some(found) => found,
            None => self.ask(&table, pieces).await?,
        };
        let held = self.lock(&table, &there).await?;
        let judged = judge(&self.layer, pieces, &touched, held, arrival, self.plan.begun);
        let Judged { tally, refused, changes } = judged;
        if changes.is_empty() {
            return Ok(Written::Done(tally, refused));
        }
        let mut encoder = Encoder::new(&self.layer, &self.slots, self.settings.crs, &self.record.event, true);
        for change in &changes {
            match encoder.add(change.piece, Some(&change.beside())) {
                Encoded::Row => {}
                Encoded::NeedsOther => return Ok(Written::NeedsOther),
                Encoded::Refused(cause) => return Ok(Written::Refused(cause)),
            }
        }
        let rows = encoder.finish();
        let any_old = changes.iter().any(|change| change.held.is_some());
        self.carry_out(rows, any_old).await?;
        let entity = |change: &Change<'p>| Some((change.piece.entity.as_ref()?.digest(), &change.piece.content));
        self.known.note(changes.iter().filter_map(entity));
        Ok(Written::Done(tally, refused))
    }

    /// Which entities are new, or other than what the layer holds of them; and which of those are there.
    async fn ask(&self, table: &str, pieces: &[&Piece]) -> Told<Touched> {
        let with: Vec<(&[u8], &[u8])> = pieces
            .iter()
            .filter_map(|piece| Some((&piece.entity.as_ref()?.digest()[..], &piece.content[..])))
            .collect();
        let (entities, contents): (Vec<&[u8]>, Vec<&[u8]>) = with.into_iter().unzip();
        // Entity by entity: however many the layer holds, and whatever the server thinks of them.
        let sql = format!(
            "SELECT u.entity, e.content IS NOT NULL FROM unnest($2, $3) AS u (entity, content) LEFT JOIN LATERAL
             (SELECT content, deleted FROM {table} WHERE layer = $1 AND entity = u.entity OFFSET 0) AS e ON true
             WHERE e.content IS DISTINCT FROM u.content OR e.deleted"
        );
        let parameters: [Parameter<'_>; 3] =
            [(&self.layer.id, Type::INT4), (&entities, Type::BYTEA_ARRAY), (&contents, Type::BYTEA_ARRAY)];
        let (mut touched, mut there) = (HashSet::new(), BTreeSet::new());
        for row in &self.session()?.query(&sql, &parameters).await? {
            let entity = digest(row, 0)?;
            touched.insert(entity);
            if read::<bool>(row, 1)? {
                there.insert(entity);
            }
        }
        Ok((touched, there))
    }

    /// What the layer holds of entities, locked.
    async fn lock(&self, table: &str, there: &BTreeSet<Entity>) -> Told<HashMap<Entity, Held>> {
        if there.is_empty() {
            return Ok(HashMap::new());
        }
        let there: Vec<&[u8]> = there.iter().map(|entity| &entity[..]).collect();
        // Entity by entity, in their order: a server that does not know yet how many there are reads all of them instead.
        let sql = format!(
            "SELECT e.* FROM unnest($2) AS u (entity) CROSS JOIN LATERAL
             (SELECT entity, version, key, content, fid FROM {table}
              WHERE layer = $1 AND entity = u.entity AND version IS NOT NULL FOR UPDATE) AS e"
        );
        let parameters: [Parameter<'_>; 2] = [(&self.layer.id, Type::INT4), (&there, Type::BYTEA_ARRAY)];
        let rows = self.session()?.query(&sql, &parameters).await?;
        let held = |row: &Row| {
            let version = Version::parse(read::<&str>(row, 1)?);
            let held = Held { version, key: read::<Id>(row, 2)?.0, content: digest(row, 3)?, fid: read(row, 4)? };
            Ok((digest(row, 0)?, held))
        };
        rows.iter().map(held).collect()
    }

    /// Makes the temporary table, if it is not there: rows as they are to be, and what stands beside them.
    async fn make_ready(&mut self) -> Told<()> {
        let Load { layer, slots, part, .. } = self;
        let Some(part) = part.as_mut() else { return Err(gone()) };
        if part.route == (Route::Through { made: true }) {
            return Ok(());
        }
        part.settle().await?;
        let mut sequence = None;
        if let Some(fid) = &layer.fid {
            let sql = "SELECT pg_get_serial_sequence($1, $2)";
            let rows = part.session.query(sql, &[(&layer.table, Type::TEXT), (fid, Type::TEXT)]).await?;
            sequence = read::<Option<String>>(&rows[0], 0)?;
        }
        let mut more = String::new();
        for (name, kind) in BESIDE {
            let _ = write!(more, "ADD {name} {kind}, ");
        }
        more.push_str("ADD geonce_done boolean NOT NULL DEFAULT false, ADD geonce_fid bigint");
        if let Some(sequence) = &sequence {
            let _ = write!(more, " DEFAULT nextval({})", literal(sequence));
        }
        part.has_sequence = sequence.is_some();
        part.make_rows(layer, slots, &more).await
    }

    /// Writes rows and entities from the temporary table.
    async fn carry_out(&mut self, rows: bytes::Bytes, any_old: bool) -> Told<()> {
        let Load { layer, slots, settings, part, .. } = self;
        let Some(part) = part.as_mut() else { return Err(gone()) };
        let mut names = names(layer, slots);
        let beside = BESIDE.map(|(name, _)| name).join(", ");
        part.copy_into(&format!("pg_temp.geonce_rows ({}, {beside})", names.join(", ")), rows).await?;
        let session = &part.session;
        if any_old {
            session.execute(&update_rows(layer, slots), &[]).await?;
        }
        let values = values(layer, slots, &names);
        let table = &layer.table;
        match (&layer.fid, part.has_sequence) {
            (Some(fid), true) => {
                names.insert(0, quoted(fid));
                let sql = format!(
                    "INSERT INTO {table} ({}) SELECT r.geonce_fid, {values} FROM pg_temp.geonce_rows r WHERE NOT geonce_done",
                    names.join(", ")
                );
                session.execute(&sql, &[]).await?;
            }
            (fid, _) => {
                let fid = fid.as_ref().map_or("NULL::bigint".to_owned(), |fid| format!("{}::bigint", quoted(fid)));
                let sql = format!(
                    "WITH new AS (INSERT INTO {table} ({}) SELECT {values} FROM pg_temp.geonce_rows r WHERE NOT geonce_done
                       RETURNING {fid} AS fid, geonce_key)
                     UPDATE pg_temp.geonce_rows r SET geonce_fid = new.fid FROM new
                     WHERE r.geonce_key = new.geonce_key AND NOT r.geonce_done",
                    names.join(", ")
                );
                session.execute(&sql, &[]).await?;
            }
        }
        let entity = format!("{}.geonce_entity", quoted(&settings.schema));
        let id: [Parameter<'_>; 1] = [(&layer.id, Type::INT4)];
        if any_old {
            let sql = format!(
                "UPDATE {entity} AS e SET version = r.geonce_version, key = r.geonce_id, content = r.geonce_content,
                   fid = r.geonce_fid, deleted = false
                 FROM pg_temp.geonce_rows r WHERE e.layer = $1 AND e.entity = r.geonce_entity AND r.geonce_old"
            );
            session.execute(&sql, &id).await?;
        }
        let sql = format!(
            "INSERT INTO {entity} (layer, entity, version, key, content, fid)
             SELECT $1, geonce_entity, geonce_version, geonce_id, geonce_content, geonce_fid FROM pg_temp.geonce_rows
             WHERE NOT geonce_old ORDER BY geonce_entity"
        );
        session.execute(&sql, &id).await.map(drop)
    }
}

/// The batch, in parts that one savepoint takes.
fn parts<'a, 'p>(pieces: &'a [&'p Piece]) -> Vec<&'a [&'p Piece]> {
    let (mut parts, mut begin, mut bytes) = (Vec::new(), 0, 0);
    for (index, piece) in pieces.iter().enumerate() {
        if bytes >= PART_BYTES_MAX {
            parts.push(&pieces[begin..index]);
            (begin, bytes) = (index, 0);
        }
        let positions = piece.geometry.as_ref().map_or(0, |shape| shape.positions.len());
        bytes += ROW_BYTES + positions * POSITION_BYTES;
    }
    if begin < pieces.len() {
        parts.push(&pieces[begin..]);
    }
    parts
}

/// What is to be done with a batch.
#[derive(Default)]
struct Judged<'p> {
    tally: Tally,
    refused: Vec<Refused>,
    /// At most one for each entity.
    changes: Vec<Change<'p>>,
}

/// What becomes of features, one after the other in the order of the file.
fn judge<'p>(
    layer: &Layer,
    pieces: &[&'p Piece],
    touched: &HashSet<Entity>,
    held: HashMap<Entity, Held>,
    arrival: bool,
    received: Timestamp,
) -> Judged<'p> {
    let mut judged = Judged::default();
    let mut current: HashMap<Entity, Held> = held.clone();
    let mut held = held;
    let mut changes: HashMap<Entity, Change<'p>> = HashMap::new();
    for piece in pieces {
        let admitted = piece.geometry.as_ref().map_or(Ok(true), |shape| layer.admits(shape));
        let entity = match (piece.entity.as_ref().map(Fingerprint::digest), admitted) {
            (Some(entity), Ok(_)) => *entity,
            (None, _) => {
                judged.refused.push(Refused { number: piece.number, cause: version::no_entity() });
                continue;
            }
            (_, Err(cause)) => {
                judged.refused.push(Refused { number: piece.number, cause });
                continue;
            }
        };
        let now = current.get(&entity);
        // Without versions the later load wins, also over one that took the entity away.
        let is_gone =
            |now: &Held| arrival && now.fid.is_none() && layer.fid.is_some() && !changes.contains_key(&entity);
        if !touched.contains(&entity) || now.is_some_and(|now| now.content == piece.content && !is_gone(now)) {
            judged.tally.unchanged += 1;
            continue;
        }
        let key = piece.key.key();
        let claim = Claim { version: piece.version.as_ref(), key, content: &piece.content, received };
        match version::order_claim(&claim, arrival.then(|| next_arrival(now)), now) {
            Err(cause) => judged.refused.push(Refused { number: piece.number, cause }),
            Ok(Order::Older) => judged.tally.stale += 1,
            Ok(Order::Same) => judged.tally.unchanged += 1,
            Ok(Order::Newer(version)) => {
                match now {
                    None => judged.tally.inserted += 1,
                    Some(_) => judged.tally.updated += 1,
                }
                let fid = now.and_then(|now| now.fid);
                current.insert(entity, Held { version: Some(version.clone()), key, content: piece.content, fid });
                let held = changes.remove(&entity).map_or_else(|| held.remove(&entity), |change| change.held);
                changes.insert(entity, Change { piece, version, held });
            }
        }
    }
    judged.changes = changes.into_values().collect();
    judged.changes.sort_unstable_by_key(|change| change.piece.number);
    judged
}

impl Change<'_> {
    fn beside(&self) -> Beside<'_> {
        Beside {
            entity: self.piece.entity.as_ref().map_or(&[0; 32], Fingerprint::digest),
            version: self.version.to_string(),
            key: self.piece.key.key(),
            content: &self.piece.content,
            old: self.held.as_ref().map(|held| (held.fid, key_characters(held.key))),
        }
    }
}

/// The number of the next arrival: one above what the entity has.
fn next_arrival(held: Option<&Held>) -> i128 {
    match held.and_then(|held| held.version.as_ref()) {
        Some(Version::Integer(number)) => number.saturating_add(1),
        _ => 1,
    }
}

/// Writes rows over those that entities have, where they are still theirs.
fn update_rows(layer: &Layer, slots: &Slots) -> String {
    let Layer { table, geometry, fid, columns, .. } = layer;
    let mut sets = format!(
        "{} = r.{}, geonce_key = r.geonce_key, geonce_event = r.geonce_event",
        quoted(geometry),
        quoted(geometry)
    );
    let written: HashSet<usize> = slots.columns().collect();
    for (index, column) in columns.list().iter().enumerate() {
        let name = quoted(&column.name);
        let _ = match (written.contains(&index), column.ours) {
            (true, true) => write!(sets, ", {name} = r.{name}"),
            (true, false) => write!(sets, ", {name} = coalesce(r.{name}, l.{name})"),
            // What is not said any more is emptied, where the column is ours.
            (false, true) => write!(sets, ", {name} = NULL"),
            (false, false) => Ok(()),
        };
    }
    if columns.has_other() {
        let _ = write!(sets, ", {OTHER} = r.{OTHER}");
    }
    let row = fid.as_ref().map_or(String::new(), |fid| format!("l.{} = r.geonce_old_fid AND ", quoted(fid)));
    format!(
        "WITH done AS (UPDATE {table} AS l SET {sets} FROM pg_temp.geonce_rows r
           WHERE {row}l.geonce_key IN ('g1_' || r.geonce_old_key, 'g1k_' || r.geonce_old_key) RETURNING r.geonce_entity AS entity)
         UPDATE pg_temp.geonce_rows r SET geonce_done = true, geonce_fid = r.geonce_old_fid FROM done
         WHERE r.geonce_entity = done.entity"
    )
}

/// Whether another program wrote the same entity at the same moment, or waits for one of ours while we wait for one of its.
fn is_met(trouble: &Trouble) -> bool {
    let Trouble::Told(error) = trouble else { return false };
    match error.code().code() {
        "23505" => error.table() == Some("geonce_entity"),
        "40P01" => true,
        _ => false,
    }
}

fn digest(row: &Row, index: usize) -> Told<Entity> {
    let found: &[u8] = read(row, index)?;
    found.try_into().map_err(|_| Error::new(Kind::Corrupt, "geonce_entity holds a digest that is none").into())
}
