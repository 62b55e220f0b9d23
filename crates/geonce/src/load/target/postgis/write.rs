//! A batch of rows: sent whole between savepoints, and in halves where the server refuses, down to the row that it is about.

use super::rows::{Encoded, Encoder, names};
use super::{Load, Part, Told};
use crate::event::Cause;
use crate::load::target::slots::Slots;
use crate::load::target::{Piece, Refused, Tally};
use crate::postgres::{Session, Trouble, quoted};
use crate::sink::columns::Change;
use crate::sink::postgis::guard::read;
use crate::sink::postgis::layer::Layer;
use crate::sink::postgis::refusal::{Refusal, judge_again};
use bytes::Bytes;
use std::collections::HashMap;
use std::fmt::Write as _;
use tokio_postgres::Statement;
use tokio_postgres::types::Type;

/// What is sent between two savepoints at most. One row may be more.
const PART_BYTES_MAX: usize = 8 << 20;

impl Load {
    /// Adds rows.
    pub(super) async fn append<'p>(&mut self, pieces: impl Iterator<Item = &'p Piece>) -> Told<Vec<Refused>> {
        let pieces: Vec<&Piece> = pieces.collect();
        let (mut refused, mut rest) = (Vec::new(), &pieces[..]);
        while !rest.is_empty() {
            let mut encoder = Encoder::new(&self.layer, &self.slots, self.settings.crs, &self.record.event, false);
            let (mut taken, mut seen, mut needs_other) = (Vec::new(), 0, false);
            for &piece in rest {
                match encoder.add(piece, None) {
                    Encoded::Row => taken.push(piece),
                    Encoded::Refused(cause) => refused.push(Refused { number: piece.number, cause }),
                    Encoded::NeedsOther => {
                        needs_other = true;
                        break;
                    }
                }
                seen += 1;
                if encoder.bytes() >= PART_BYTES_MAX {
                    break;
                }
            }
            let rows = encoder.finish();
            self.put(&taken, rows, &mut refused).await?;
            if needs_other {
                self.add_other().await?;
            }
            rest = &rest[seen..];
        }
        refused.sort_unstable_by_key(|refused| refused.number);
        Ok(refused)
    }

    /// Adds the column for what has none. Others wait for the table until the end of this transaction.
    pub(super) async fn add_other(&mut self) -> Told<()> {
        let mut change = Change::default();
        self.layer.columns.declare_other(&mut change);
        let Some(part) = self.part.as_mut() else { return Err(gone()) };
        part.settle().await?;
        part.copy = None;
        if let Route::Through { made } = &mut part.route {
            *made = false;
        }
        self.layer.change(&part.session, &self.into, &change).await.map(drop)
    }

    /// Sends rows, and finds out which of them are refused.
    async fn put(&mut self, pieces: &[&Piece], rows: Bytes, refused: &mut Vec<Refused>) -> Told<()> {
        let mut encoded = Some(rows);
        let mut parts = if pieces.is_empty() { Vec::new() } else { vec![pieces] };
        let (mut doubted, mut attempted) = (None, false);
        while let Some(pieces) = parts.pop() {
            let rows = encoded.take().unwrap_or_else(|| self.encode(pieces));
            let (layer, slots) = (&self.layer, &self.slots);
            let Some(part) = self.part.as_mut() else { return Err(gone()) };
            let direct = part.find_route(layer, slots).await? == Route::Direct;
            part.savepoint().await?;
            let sent = if direct { part.copy(layer, slots, rows).await } else { part.insert(layer, slots, rows).await };
            match sent {
                Ok(()) => {
                    part.tally = part.tally.plus(Tally { inserted: pieces.len() as u64, ..Tally::default() });
                    attempted = true;
                }
                Err(trouble) => {
                    let (cause, is_doubtful) = part.refused(trouble, &mut doubted)?;
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
            }
        }
        match doubted {
            // None of them could be written, for no reason of theirs.
            Some(trouble) if !attempted => Err(trouble),
            _ => Ok(()),
        }
    }

    fn encode(&self, pieces: &[&Piece]) -> Bytes {
        let mut encoder = Encoder::new(&self.layer, &self.slots, self.settings.crs, &self.record.event, false);
        for piece in pieces {
            encoder.add(piece, None);
        }
        encoder.finish()
    }
}

/// How rows come into the layer.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Route {
    Unknown,
    /// They are copied into it.
    Direct,
    /// They are copied into a temporary table and inserted from there: where null means a default, or where policies of the
    /// table's owner keep rows from being copied.
    Through {
        /// Whether that table is there.
        made: bool,
    },
}

pub(super) fn gone() -> Trouble {
    Trouble::silent("the transaction is gone")
}

impl Part {
    pub(super) async fn savepoint(&mut self) -> Told<()> {
        self.session.batch(&format!("{}SAVEPOINT geonce_part", self.before)).await?;
        self.before = "RELEASE geonce_part; ";
        Ok(())
    }

    /// Undoes what was done since the savepoint.
    pub(super) fn undo(&mut self) {
        self.before = "ROLLBACK TO geonce_part; RELEASE geonce_part; ";
    }

    /// Says what is still to be said, so that other statements may follow.
    pub(super) async fn settle(&mut self) -> Told<()> {
        match std::mem::take(&mut self.before) {
            "" => Ok(()),
            before => self.session.batch(before).await,
        }
    }

    /// Why a row was refused, if it was one, and whether the reason may lie elsewhere.
    pub(super) fn refused(&mut self, trouble: Trouble, doubted: &mut Option<Trouble>) -> Told<(Cause, bool)> {
        self.undo();
        match judge_again(&trouble) {
            Refusal::Row(cause) => Ok((cause, false)),
            Refusal::Doubtful(cause) => {
                doubted.get_or_insert(trouble);
                Ok((cause, true))
            }
            Refusal::Layer | Refusal::All => Err(trouble),
        }
    }

    /// Finds out how rows come into the layer, and makes ready what that takes.
    async fn find_route(&mut self, layer: &Layer, slots: &Slots) -> Told<Route> {
        if self.route == Route::Unknown {
            let defaults =
                slots.columns().any(|column| layer.defaults.contains_key(&layer.columns.list()[column].name));
            let sql = "SELECT row_security_active($1::text::regclass)";
            let rows = self.session.query(sql, &[(&layer.table, Type::TEXT)]).await?;
            let direct = !defaults && !read::<bool>(&rows[0], 0)?;
            self.route = if direct { Route::Direct } else { Route::Through { made: false } };
        }
        if self.route == (Route::Through { made: false }) {
            self.make_rows(layer, slots, "").await?;
        }
        Ok(self.route)
    }

    /// Makes the temporary table, with `more` columns.
    pub(super) async fn make_rows(&mut self, layer: &Layer, slots: &Slots, more: &str) -> Told<()> {
        self.settle().await?;
        let (names, table) = (names(layer, slots).join(", "), &layer.table);
        let mut sql = format!(
            "DROP TABLE IF EXISTS pg_temp.geonce_rows;
             CREATE TEMP TABLE geonce_rows ON COMMIT DROP AS SELECT {names} FROM {table} WHERE false"
        );
        if !more.is_empty() {
            let _ = write!(sql, "; ALTER TABLE pg_temp.geonce_rows {more}");
        }
        self.session.batch(&sql).await?;
        (self.route, self.copy) = (Route::Through { made: true }, None);
        Ok(())
    }

    async fn copy(&mut self, layer: &Layer, slots: &Slots, rows: Bytes) -> Told<()> {
        let names = names(layer, slots).join(", ");
        self.copy_into(&format!("{} ({names})", layer.table), rows).await
    }

    async fn insert(&mut self, layer: &Layer, slots: &Slots, rows: Bytes) -> Told<()> {
        let names = names(layer, slots);
        self.copy_into(&format!("pg_temp.geonce_rows ({})", names.join(", ")), rows).await?;
        let sql = format!(
            "INSERT INTO {} ({}) SELECT {} FROM pg_temp.geonce_rows r",
            layer.table,
            names.join(", "),
            values(layer, slots, &names)
        );
        self.session.execute(&sql, &[]).await.map(drop)
    }

    /// Copies rows; the statement is kept for the next ones.
    pub(super) async fn copy_into(&mut self, what: &str, rows: Bytes) -> Told<()> {
        if self.route != Route::Direct {
            self.before = "RELEASE geonce_part; TRUNCATE pg_temp.geonce_rows; ";
        }
        let sql = format!("COPY {what} FROM STDIN (FORMAT binary)");
        let known = self.copy.take().filter(|(text, _)| *text == sql);
        let copy = match known {
            Some((_, copy)) => copy,
            None => prepare(&self.session, &sql).await?,
        };
        let (_, copy) = self.copy.insert((sql, copy));
        self.session.copy(copy, rows).await.map(drop)
    }
}

/// The values of a row `r`, in the order of `names`, with the defaults of columns that others made.
pub(super) fn values(layer: &Layer, slots: &Slots, names: &[String]) -> String {
    let defaults: HashMap<String, &String> = slots
        .columns()
        .filter_map(|column| layer.defaults.get_key_value(&layer.columns.list()[column].name))
        .map(|(name, default)| (quoted(name), default))
        .collect();
    let value = |name: &String| match defaults.get(name) {
        Some(default) => format!("coalesce(r.{name}, {default})"),
        None => format!("r.{name}"),
    };
    names.iter().map(value).collect::<Vec<_>>().join(", ")
}

/// Makes a COPY ready, within a savepoint. Its name may be in use on a pooled connection, left over by a program that has no
/// more way to use it.
async fn prepare(session: &Session, sql: &str) -> Told<Statement> {
    match session.prepare_copy(sql).await {
        Err(trouble) if trouble.state().is_some_and(|state| state.code() == "42P05") => {
            session.batch("ROLLBACK TO geonce_part; DEALLOCATE ALL").await?;
            session.prepare_copy(sql).await
        }
        prepared => prepared,
    }
}
