//! The little of FlatBuffers that FlatGeobuf needs: tables, vectors and text, each place checked before it is looked at.
//!
//! Whatever the bytes are, an answer is inside them or [`Damaged`]. Tables may share their parts, so walking a tree needs a limit.

use crate::value::Fault;

/// The bytes point outside of themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damaged;

impl From<Damaged> for Fault {
    fn from(Damaged: Damaged) -> Fault {
        Fault::new("fgb_damaged", "its bytes are damaged")
    }
}

type Look<T> = Result<T, Damaged>;

/// A table: fields by number, each of which may be absent.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The offsets of the fields, from `at`.
    offsets: &'a [u8],
}

impl<'a> Table<'a> {
    /// The table that a buffer is about.
    pub(super) fn root(bytes: &'a [u8]) -> Look<Table<'a>> {
        Table::at(bytes, number(bytes, 0)? as usize)
    }

    fn at(bytes: &'a [u8], at: usize) -> Look<Table<'a>> {
        let distance = i32::from_le_bytes(chunk(bytes, at)?);
        let start = i64::try_from(at).map_err(|_| Damaged)? - i64::from(distance);
        let start = usize::try_from(start).map_err(|_| Damaged)?;
        let size = usize::from(u16::from_le_bytes(chunk(bytes, start)?));
        // The size of the offsets and the size of the table come first.
        let offsets = bytes.get(start..).and_then(|rest| rest.get(4..size)).ok_or(Damaged)?;
        Ok(Table { bytes, at, offsets })
    }

    /// Where a field's value stands.
    fn place(&self, field: usize) -> Look<Option<usize>> {
        let Some(offset) = self.offsets.get(2 * field..2 * field + 2) else { return Ok(None) };
        match u16::from_le_bytes(chunk(offset, 0)?) {
            0 => Ok(None),
            offset => self.at.checked_add(usize::from(offset)).map(Some).ok_or(Damaged),
        }
    }

    fn scalar<const N: usize>(&self, field: usize) -> Look<Option<[u8; N]>> {
        self.place(field)?.map(|place| chunk(self.bytes, place)).transpose()
    }

    pub(super) fn byte(&self, field: usize) -> Look<u8> {
        Ok(self.scalar(field)?.map_or(0, u8::from_le_bytes))
    }

    pub(super) fn ushort(&self, field: usize, absent: u16) -> Look<u16> {
        Ok(self.scalar(field)?.map_or(absent, u16::from_le_bytes))
    }

    pub(super) fn int(&self, field: usize) -> Look<i32> {
        Ok(self.scalar(field)?.map_or(0, i32::from_le_bytes))
    }

    pub(super) fn ulong(&self, field: usize) -> Look<u64> {
        Ok(self.scalar(field)?.map_or(0, u64::from_le_bytes))
    }

    /// The bytes of a vector whose items have this size; empty where it is absent.
    pub(super) fn vector(&self, field: usize, item_bytes: usize) -> Look<&'a [u8]> {
        let Some(start) = self.follow(field)? else { return Ok(&[]) };
        vector(self.bytes, start, item_bytes)
    }

    pub(super) fn text(&self, field: usize) -> Look<Option<&'a str>> {
        let Some(start) = self.follow(field)? else { return Ok(None) };
        std::str::from_utf8(vector(self.bytes, start, 1)?).map(Some).map_err(|_| Damaged)
    }

    pub(super) fn table(&self, field: usize) -> Look<Option<Table<'a>>> {
        self.follow(field)?.map(|start| Table::at(self.bytes, start)).transpose()
    }

    pub(super) fn tables(&self, field: usize) -> Look<Tables<'a>> {
        let offsets = match self.follow(field)? {
            Some(start) => vector(self.bytes, start, 4)?,
            None => &[],
        };
        // An offset counts from its own place.
        let start = self.follow(field)?.unwrap_or_default();
        Ok(Tables { bytes: self.bytes, start: start.saturating_add(4), count: offsets.len() / 4 })
    }

    /// Where the value stands that a field points at.
    fn follow(&self, field: usize) -> Look<Option<usize>> {
        let Some(place) = self.place(field)? else { return Ok(None) };
        follow(self.bytes, place).map(Some)
    }
}

/// A vector of tables.
#[derive(Clone, Copy)]
pub(super) struct Tables<'a> {
    bytes: &'a [u8],
    start: usize,
    count: usize,
}

impl<'a> Tables<'a> {
    pub(super) fn iter(self) -> impl Iterator<Item = Look<Table<'a>>> {
        (0..self.count).map(move |index| Table::at(self.bytes, follow(self.bytes, self.start + 4 * index)?))
    }
}

fn follow(bytes: &[u8], place: usize) -> Look<usize> {
    place.checked_add(number(bytes, place)? as usize).ok_or(Damaged)
}

fn vector(bytes: &[u8], start: usize, item_bytes: usize) -> Look<&[u8]> {
    let size = (number(bytes, start)? as usize).checked_mul(item_bytes).ok_or(Damaged)?;
    let first = start.checked_add(4).ok_or(Damaged)?;
    bytes.get(first..first.checked_add(size).ok_or(Damaged)?).ok_or(Damaged)
}

fn number(bytes: &[u8], at: usize) -> Look<u32> {
    Ok(u32::from_le_bytes(chunk(bytes, at)?))
}

fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Look<[u8; N]> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or(Damaged)
}
