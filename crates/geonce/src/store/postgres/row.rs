//! How events are written into columns and read back.

use super::Attempt;
use crate::clock::Timestamp;
use crate::error::{Error, Kind};
use crate::event::{Cause, EventId, Outcome};
use crate::postgres::Trouble;
use crate::store::encoding::{Bytes16, cause_from, form_from, outcome_from, read_fingerprints};
use crate::store::repair::{Origin, read_origin};
use crate::store::result::shown;
use bytes::{BufMut, BytesMut};
use geonce_key::{Fingerprint, Form};
use std::sync::Arc;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, FromSqlOwned, IsNull, ToSql, Type, to_sql_checked};

/// Sixteen bytes of an id or a key, as a `uuid`: the one type of this length that compares fast everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Uuid(pub(super) Bytes16);

impl Uuid {
    /// After every id: 48 bits of time are not all set before the year 10889.
    pub(super) const MAX: Uuid = Uuid([0xFF; 16]);
    /// Before every id.
    pub(super) const MIN: Uuid = Uuid([0; 16]);

    pub(super) fn id(self) -> EventId {
        EventId::from_bytes(self.0)
    }
}

impl From<EventId> for Uuid {
    fn from(id: EventId) -> Uuid {
        Uuid(id.to_bytes())
    }
}

type Anything = Box<dyn std::error::Error + Sync + Send>;

impl ToSql for Uuid {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Anything> {
        out.put_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::UUID
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Uuid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Uuid, Anything> {
        Ok(Uuid(raw.try_into()?))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::UUID
    }
}

/// The store holds what no gateway wrote.
pub(super) fn damaged(what: impl Into<String>) -> Trouble {
    let damage = Error::new(Kind::Corrupt, "reading the store").because(what.into());
    damage.hint("`geonce doctor` checks the whole store").into()
}

/// A column of a row.
pub(super) fn get<T: FromSqlOwned>(row: &Row, column: usize) -> Attempt<T> {
    row.try_get(column).map_err(|error| damaged(error.to_string()))
}

/// The columns of an event, in the order in which [`EventRow::read`] takes them.
pub(super) const EVENT_COLUMNS: &str = "e.id, e.source, e.state, e.outcome, e.received, e.settled, e.duplicates, e.form, e.crs, e.digests, e.spatial, \
     e.content, e.cause, e.result, e.origin";

/// The row of an event.
pub(super) struct EventRow {
    pub(super) id: EventId,
    pub(super) source: Arc<str>,
    pub(super) state: i64,
    pub(super) outcome: Option<Outcome>,
    pub(super) received: Timestamp,
    pub(super) settled: Option<Timestamp>,
    pub(super) duplicates: i64,
    pub(super) form: Form,
    pub(super) crs: Option<u32>,
    pub(super) digests: Vec<Fingerprint>,
    pub(super) spatial: Vec<Fingerprint>,
    pub(super) content: [u8; 32],
    pub(super) cause: Option<Cause>,
    pub(super) result: Option<Arc<str>>,
    pub(super) origin: Option<Origin>,
}

impl EventRow {
    /// Reads a row of [`EVENT_COLUMNS`].
    pub(super) fn read(row: &Row) -> Attempt<EventRow> {
        let id = get::<Uuid>(row, 0)?.id();
        let crs: Option<i64> = get(row, 8)?;
        let digests = read_fingerprints(&get::<Vec<u8>>(row, 9)?).map_err(damaged)?;
        if digests.is_empty() {
            return Err(damaged(format!("the record of {id} has no key")));
        }
        let spatial: Option<Vec<u8>> = get(row, 10)?;
        let (result, origin): (Option<String>, Option<Vec<u8>>) = (get(row, 13)?, get(row, 14)?);
        Ok(EventRow {
            id,
            source: get::<String>(row, 1)?.into(),
            state: get::<i16>(row, 2)?.into(),
            outcome: get::<Option<i16>>(row, 3)?.map(|n| outcome_from(n.into())).transpose().map_err(damaged)?,
            received: Timestamp::from_millis(get(row, 4)?),
            settled: get::<Option<i64>>(row, 5)?.map(Timestamp::from_millis),
            result: result.map(|stored| shown(&stored, &digests[0])).transpose().map_err(damaged)?,
            duplicates: get(row, 6)?,
            form: form_from(get::<i16>(row, 7)?.into()).map_err(damaged)?,
            crs: crs.map(u32::try_from).transpose().map_err(|_| damaged("a coordinate system out of range"))?,
            digests,
            spatial: read_fingerprints(&spatial.unwrap_or_default()).map_err(damaged)?,
            content: get::<Vec<u8>>(row, 11)?.try_into().map_err(|_| damaged(format!("the digest of {id}")))?,
            cause: read_cause(get(row, 12)?)?,
            origin: origin.as_deref().map(read_origin).transpose().map_err(damaged)?,
        })
    }
}

/// Reads a cause back.
pub(super) fn read_cause(text: Option<String>) -> Attempt<Option<Cause>> {
    text.map(|text| cause_from(&text)).transpose().map_err(damaged)
}

/// A small number as a column has it.
pub(super) fn small(number: i64) -> i16 {
    i16::try_from(number).unwrap_or(i16::MAX)
}
