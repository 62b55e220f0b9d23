//! Rows on their way into the layer: made from events once, then sent as arrays, any part of a batch at a time.

use super::guard::read;
use super::layer::Layer;
use super::plan::Change;
use super::types;
use super::write::Writer;
use crate::event::Cause;
use crate::postgres::{Parameter, Trouble, quoted};
use crate::sink::Outgoing;
use crate::sink::columns::{OTHER, Value};
use geonce_key::wkb::{self, Dialect};
use geonce_key::{Encoding, Shape};
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::fmt::Write as _;
use tokio_postgres::types::Type as Sql;

type Answer<T> = std::result::Result<T, Trouble>;

/// What a row costs beside its geometry and texts, roughly.
const ROW_BYTES: usize = 100;

/// A row, but for what the server adds.
#[derive(Clone)]
pub(super) struct Row {
    /// Extended WKB.
    geometry: Option<Vec<u8>>,
    pub(super) key: String,
    event: String,
    /// Values, by column.
    cells: Vec<(usize, Value<'static>)>,
    other: Option<String>,
}

impl Row {
    /// The row of an event whose geometry is in the layer's system already.
    pub(super) fn new(outgoing: &Outgoing, layer: &Layer, crs: u32) -> std::result::Result<Row, Cause> {
        let mut geometry = None;
        if let Some(shape) = &outgoing.feature.geometry {
            let as_multi = layer.admits(shape)?;
            geometry = Some(encoded(shape, crs, as_multi));
        }
        let (mut cells, mut other) = (Vec::with_capacity(outgoing.feature.properties.len()), String::new());
        let bound: std::result::Result<(), Infallible> =
            layer.columns.values(&outgoing.feature, &mut other, |index, value| {
                if value != Value::Null {
                    cells.push((index, value.into_owned()));
                }
                Ok(())
            });
        match bound {
            Ok(()) => {}
        }
        Ok(Row {
            geometry,
            key: outgoing.key.text(Encoding::Base64),
            event: outgoing.event.to_string(),
            cells,
            other: (!other.is_empty()).then_some(other),
        })
    }

    /// The same elsewhere.
    pub(super) fn at(&self, geometry: Option<Vec<u8>>) -> Row {
        Row { geometry, ..self.clone() }
    }

    /// About how many bytes it takes to send it.
    pub(super) fn bytes(&self) -> usize {
        let texts = self.cells.iter().map(|(_, value)| match value {
            Value::Text(text) => text.len(),
            _ => 8,
        });
        let other = self.other.as_ref().map_or(0, String::len);
        ROW_BYTES + self.geometry.as_ref().map_or(0, Vec::len) + other + texts.sum::<usize>()
    }
}

/// A geometry as extended WKB.
pub(super) fn encoded(shape: &Shape<f64>, crs: u32, as_multi: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    wkb::append(shape, Dialect::Extended(Some(crs)), as_multi, &mut bytes);
    bytes
}

/// A column of several rows.
enum Array<'r> {
    Booleans(Vec<Option<bool>>),
    Integers(Vec<Option<i64>>),
    Reals(Vec<Option<f64>>),
    Texts(Vec<Option<&'r str>>),
    Bytes(Vec<Option<&'r [u8]>>),
}

impl Array<'_> {
    fn parameter(&self) -> Parameter<'_> {
        match self {
            Array::Booleans(list) => (list, Sql::BOOL_ARRAY),
            Array::Integers(list) => (list, Sql::INT8_ARRAY),
            Array::Reals(list) => (list, Sql::FLOAT8_ARRAY),
            Array::Texts(list) => (list, Sql::TEXT_ARRAY),
            Array::Bytes(list) => (list, Sql::BYTEA_ARRAY),
        }
    }
}

/// A column that some rows have a value for.
struct Used {
    /// Its index; `None` for `geonce_other`.
    index: Option<usize>,
    name: String,
    /// The value of a row `u`, as SQL.
    value: String,
}

/// Several rows as arrays, with the SQL that takes them apart.
pub(super) struct Arrays<'r> {
    layer: &'r Layer,
    list: Vec<Array<'r>>,
    used: Vec<Used>,
}

impl<'r> Arrays<'r> {
    pub(super) fn new(layer: &'r Layer, rows: &[&'r Row]) -> Arrays<'r> {
        let columns = layer.columns.list();
        let mut arrays = vec![
            Array::Bytes(rows.iter().map(|row| row.geometry.as_deref()).collect()),
            Array::Texts(rows.iter().map(|row| Some(row.key.as_str())).collect()),
            Array::Texts(rows.iter().map(|row| Some(row.event.as_str())).collect()),
        ];
        // Columns that no row has a value for are left to the server: it knows their defaults.
        let mut place = vec![None; columns.len()];
        let mut used = Vec::new();
        for (number, row) in rows.iter().enumerate() {
            for (index, value) in &row.cells {
                let at = *place[*index].get_or_insert_with(|| {
                    let (kind, cast) = types::sent(layer.kind(*index));
                    arrays.push(empty(&kind, rows.len()));
                    let value = format!("u.c{}{cast}", arrays.len() - 1);
                    used.push(Used { index: Some(*index), name: quoted(&columns[*index].name), value });
                    arrays.len() - 1
                });
                put(&mut arrays[at], number, value);
            }
        }
        if rows.iter().any(|row| row.other.is_some()) {
            arrays.push(Array::Texts(rows.iter().map(|row| row.other.as_deref()).collect()));
            used.push(Used { index: None, name: OTHER.to_owned(), value: format!("u.c{}::json", arrays.len() - 1) });
        }
        Arrays { layer, list: arrays, used }
    }

    /// Adds a column that is not written but looked at; its name in SQL.
    fn add(&mut self, array: Array<'r>) -> String {
        self.list.push(array);
        format!("u.c{}", self.list.len() - 1)
    }

    /// `unnest($1, …) AS u (c0, …)`.
    fn unnest(&self) -> String {
        let mut parameters = String::new();
        let mut names = String::new();
        for number in 0..self.list.len() {
            let comma = if number == 0 { "" } else { ", " };
            let _ = write!(parameters, "{comma}${}", number + 1);
            let _ = write!(names, "{comma}c{number}");
        }
        format!("unnest({parameters}) AS u ({names})")
    }

    pub(super) fn parameters(&self) -> Vec<Parameter<'_>> {
        self.list.iter().map(Array::parameter).collect()
    }

    /// Adds the rows, with these numbers where there are any. Answers nothing, or each row's number and key.
    pub(super) fn insert(&mut self, answers: bool, fids: Vec<Option<i64>>) -> String {
        let Layer { table, postgis, geometry, fid, numbers, defaults, columns, .. } = self.layer;
        let mut names = format!("{}, geonce_key, geonce_event", quoted(geometry));
        let mut values = format!("{postgis}.ST_GeomFromEWKB(u.c0), u.c1, u.c2");
        if let (Some(fid), Some(numbers), true) = (fid, numbers, fids.iter().any(Option::is_some)) {
            let given = self.add(Array::Integers(fids));
            let _ = write!(names, ", {}", quoted(fid));
            let _ = write!(values, ", coalesce({given}, {numbers})");
        }
        for Used { index, name, value } in &self.used {
            let default = index.and_then(|index| defaults.get(&columns.list()[index].name));
            let _ = write!(names, ", {name}");
            let _ = match default {
                Some(default) => write!(values, ", coalesce({value}, {default})"),
                None => write!(values, ", {value}"),
            };
        }
        let returning = match fid {
            Some(fid) if answers => format!(" RETURNING {}::bigint, geonce_key::text", quoted(fid)),
            _ => String::new(),
        };
        format!("INSERT INTO {table} ({names}) SELECT {values} FROM {}{returning}", self.unnest())
    }

    /// Writes the rows over those with these numbers, where they still have these keys. With `merges` those stay the rows of
    /// their events. Answers each new key.
    pub(super) fn update(&mut self, fids: Vec<Option<i64>>, keys: Vec<Option<&'r str>>, merges: bool) -> String {
        let (old_fid, old_key) = (self.add(Array::Integers(fids)), self.add(Array::Texts(keys)));
        let Layer { table, postgis, geometry, fid, columns, .. } = self.layer;
        let mut sets = format!("{} = {postgis}.ST_GeomFromEWKB(u.c0)", quoted(geometry));
        if !merges {
            sets.push_str(", geonce_key = u.c1, geonce_event = u.c2");
        }
        for Used { index, name, value } in &self.used {
            let _ = if index.is_none_or(|index| columns.list()[index].ours) {
                write!(sets, ", {name} = {value}")
            } else {
                write!(sets, ", {name} = coalesce({value}, l.{name})")
            };
        }
        // What a property is gone from is emptied, where the column is ours.
        let used = |index| self.used.iter().any(|used| used.index == Some(index));
        for (_, column) in columns.list().iter().enumerate().filter(|(index, column)| column.ours && !used(*index)) {
            let _ = write!(sets, ", {} = NULL", quoted(&column.name));
        }
        if columns.has_other() && self.used.iter().all(|used| used.index.is_some()) {
            let _ = write!(sets, ", {OTHER} = NULL");
        }
        let row = fid.as_ref().map_or(String::new(), |fid| format!("l.{} = {old_fid} AND ", quoted(fid)));
        format!(
            "UPDATE {table} AS l SET {sets} FROM {} WHERE {row}l.geonce_key IN ('g1_' || {old_key}, 'g1k_' || {old_key})
             RETURNING u.c1",
            self.unnest()
        )
    }
}

impl Writer<'_> {
    /// Adds rows, with these numbers if any; their numbers by key, where numbers are given or asked for.
    pub(super) async fn insert(&self, part: &[usize], fids: Option<Vec<Option<i64>>>) -> Answer<HashMap<String, i64>> {
        let rows: Vec<&Row> = part.iter().filter_map(|&index| self.row(index)).collect();
        if rows.is_empty() {
            return Ok(HashMap::new());
        }
        let answers = fids.is_some() && self.layer.fid.is_some();
        let mut arrays = Arrays::new(self.layer, &rows);
        let text = arrays.insert(answers, fids.unwrap_or_default());
        if !answers {
            self.session.execute(&text, &arrays.parameters()).await?;
            return Ok(HashMap::new());
        }
        let mut numbers = HashMap::new();
        for row in &self.session.query(&text, &arrays.parameters()).await? {
            // A trigger may have changed the key; then the row is not ours to change.
            if let Some(key) = read::<Option<String>>(row, 1)? {
                numbers.insert(key, read(row, 0)?);
            }
        }
        Ok(numbers)
    }

    /// Writes rows over what entities had; the keys of those that were there.
    pub(super) async fn update(&self, changes: &[&Change]) -> Answer<HashSet<String>> {
        let has_fid = self.layer.fid.is_some();
        let mut rows = Vec::with_capacity(changes.len());
        let (mut fids, mut keys) = (Vec::with_capacity(changes.len()), Vec::with_capacity(changes.len()));
        for change in changes {
            if let (Some(row), Some(stored)) = (self.row(change.index), &change.stored)
                && stored.fid.is_some() == has_fid
                && !change.removes
            {
                rows.push(row);
                fids.push(stored.fid);
                keys.push(stored.key_characters.as_str());
            }
        }
        if rows.is_empty() {
            return Ok(HashSet::new());
        }
        let mut arrays = Arrays::new(self.layer, &rows);
        let text = arrays.update(fids, keys.into_iter().map(Some).collect(), false);
        let found = self.session.query(&text, &arrays.parameters()).await?;
        found.iter().map(|row| read(row, 0)).collect()
    }

    /// Takes away rows that entities had, where they are still theirs.
    pub(super) async fn remove(&self, changes: &[&Change]) -> Answer<()> {
        let Layer { table, fid, .. } = self.layer;
        let stored = changes.iter().filter(|change| change.removes).filter_map(|change| change.stored.as_ref());
        let (fids, keys): (Vec<Option<i64>>, Vec<&str>) = stored
            .filter(|stored| stored.fid.is_some() == fid.is_some())
            .map(|stored| (stored.fid, stored.key_characters.as_str()))
            .unzip();
        if keys.is_empty() {
            return Ok(());
        }
        let row = fid.as_ref().map_or(String::new(), |fid| format!("l.{} = u.fid AND ", quoted(fid)));
        let text = format!(
            "DELETE FROM {table} AS l USING unnest($1, $2) AS u (fid, key)
             WHERE {row}l.geonce_key IN ('g1_' || u.key, 'g1k_' || u.key)"
        );
        self.session.execute(&text, &[(&fids, Sql::INT8_ARRAY), (&keys, Sql::TEXT_ARRAY)]).await.map(drop)
    }
}

fn empty<'r>(kind: &Sql, length: usize) -> Array<'r> {
    match *kind {
        Sql::BOOL_ARRAY => Array::Booleans(vec![None; length]),
        Sql::INT8_ARRAY => Array::Integers(vec![None; length]),
        Sql::FLOAT8_ARRAY => Array::Reals(vec![None; length]),
        _ => Array::Texts(vec![None; length]),
    }
}

/// Values fit their columns, so an array takes what it is given.
fn put<'r>(array: &mut Array<'r>, number: usize, value: &'r Value<'static>) {
    match (array, value) {
        (Array::Booleans(list), Value::Boolean(boolean)) => list[number] = Some(*boolean),
        (Array::Integers(list), Value::Integer(integer)) => list[number] = Some(*integer),
        (Array::Reals(list), Value::Real(real)) => list[number] = Some(*real),
        (Array::Texts(list), Value::Text(text)) => list[number] = Some(text),
        _ => debug_assert!(false, "a value of another type than its column"),
    }
}
