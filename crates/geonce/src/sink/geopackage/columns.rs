//! Which column a property goes into, and what goes into the column `geonce_other` instead.
//!
//! A property becomes a column when its first value is seen: BOOLEAN, INTEGER, REAL or TEXT; arrays, objects and whole
//! numbers beyond 64 bits are JSON text in a TEXT column; null makes no column. An INTEGER column that meets a number
//! with a fraction becomes REAL. A value that does not fit its column, a name that cannot be a column, and what comes
//! after the last column allowed are kept as members of one JSON object in `geonce_other`.

use crate::error::{Error, Kind, Result};
use crate::sink::Columns as Wanted;
use geonce_key::{Feature, Pointer, Property};
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The column that takes what has none of its own.
pub(super) const OTHER: &str = "geonce_other";
/// Under this name a Feature's `id` goes there, where a property has taken the column `id`.
const OTHER_ID: &str = "geonce_id";
/// The longest name of a column or a layer.
pub(super) const NAME_BYTES_MAX: usize = 63;
/// The most columns that may be asked for; SQLite's own limit is 2,000.
pub(super) const COLUMNS_LIMIT: usize = 1_000;
/// Whole numbers up to here are exact in a REAL column.
const EXACT_MAX: u64 = 1 << 53;

/// What a column takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Boolean,
    /// Whole numbers of so many bits.
    Integer(u32),
    Real,
    /// Text of at most so many characters.
    Text(usize),
    /// Something that other programs made and that no property goes into.
    Foreign,
}

impl Type {
    /// A column's declared type, by clause 1.1.1.1.3 of the standard.
    pub(super) fn from_declared(declared: &str) -> Type {
        let upper = declared.trim().to_ascii_uppercase();
        let (name, size) = upper.split_once('(').unwrap_or((&upper, ""));
        match name.trim() {
            "BOOLEAN" => Type::Boolean,
            "TINYINT" => Type::Integer(8),
            "SMALLINT" => Type::Integer(16),
            "MEDIUMINT" => Type::Integer(32),
            "INT" | "INTEGER" => Type::Integer(64),
            "FLOAT" | "DOUBLE" | "REAL" => Type::Real,
            "TEXT" => Type::Text(size.trim_end_matches(')').trim().parse().unwrap_or(usize::MAX)),
            _ => Type::Foreign,
        }
    }

    pub(super) fn declared(self) -> &'static str {
        match self {
            Type::Boolean => "BOOLEAN",
            Type::Integer(_) => "INTEGER",
            Type::Real => "REAL",
            Type::Text(_) | Type::Foreign => "TEXT",
        }
    }

    /// The type of a column made for this value; none for null, which tells nothing.
    fn of(value: &Property) -> Option<Type> {
        Some(match value {
            Property::Null => return None,
            Property::Boolean(_) => Type::Boolean,
            Property::Integer(_) => Type::Integer(64),
            Property::Real(_) => Type::Real,
            Property::Text(_) | Property::Json(_) => Type::Text(usize::MAX),
        })
    }

    /// The value as it is stored, where it fits.
    fn fit(self, value: &Property) -> Option<Value<'_>> {
        Some(match (self, value) {
            (_, Property::Null) => Value::Null,
            (Type::Boolean, Property::Boolean(boolean)) => Value::Integer(i64::from(*boolean)),
            (Type::Integer(bits), Property::Integer(integer)) if *integer >> (bits - 1) == *integer >> 63 => {
                Value::Integer(*integer)
            }
            (Type::Real, Property::Real(real)) => Value::Real(*real),
            #[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
            (Type::Real, Property::Integer(integer)) if integer.unsigned_abs() <= EXACT_MAX => {
                Value::Real(*integer as f64)
            }
            (Type::Text(max), Property::Text(text) | Property::Json(text))
                if text.len() <= max || text.chars().count() <= max =>
            {
                Value::Text(text)
            }
            _ => return None,
        })
    }
}

/// A value on its way into a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Null,
    Integer(i64),
    Real(f64),
    Text(&'a str),
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match *self {
            Value::Null => ValueRef::Null,
            Value::Integer(integer) => ValueRef::Integer(integer),
            Value::Real(real) => ValueRef::Real(real),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

/// A column for a property.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Type,
    /// Whether we made it: an update then empties it where the property is gone. Others' columns keep their value.
    pub(super) ours: bool,
    /// Whether it can be turned from INTEGER into REAL.
    pub(super) widens: bool,
}

/// How the table has to change before rows can be written.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Change {
    /// Columns to add, by index.
    pub(super) added: Vec<usize>,
    /// Columns to turn from INTEGER into REAL, by index.
    pub(super) widened: Vec<usize>,
    /// Whether `geonce_other` is to be added.
    pub(super) other: bool,
}

/// The property columns of a layer.
#[derive(Debug)]
pub(super) struct Columns {
    wanted: Arc<Wanted>,
    list: Vec<Column>,
    by_name: HashMap<String, usize>,
    /// Every column of the table, in lower case: SQLite and GDAL tell names apart without regard to ASCII case.
    taken: HashSet<String>,
    has_other: bool,
}

impl Columns {
    /// Columns of a table that has these already; `taken` are all others it has.
    pub(super) fn new(wanted: Arc<Wanted>, list: Vec<Column>, taken: &[String]) -> Columns {
        let taken = taken.iter().chain(list.iter().map(|column| &column.name));
        let taken: HashSet<String> = taken.map(|name| name.to_ascii_lowercase()).collect();
        let by_name = list.iter().enumerate().map(|(index, column)| (column.name.clone(), index)).collect();
        let has_other = taken.contains(OTHER);
        Columns { wanted, list, by_name, taken, has_other }
    }

    pub(super) fn list(&self) -> &[Column] {
        &self.list
    }

    pub(super) fn has_other(&self) -> bool {
        self.has_other
    }

    /// Makes room for a feature's properties, and notes in `change` what that takes.
    pub(super) fn learn(&mut self, feature: &Feature, change: &mut Change) {
        let wanted = Arc::clone(&self.wanted);
        each(&wanted, feature, &mut |name, value| self.learn_one(name, value, change));
    }

    fn learn_one(&mut self, name: &str, value: &Property, change: &mut Change) {
        let Some(kind) = Type::of(value) else { return };
        if let Some(&index) = self.by_name.get(name) {
            let column = &mut self.list[index];
            if column.kind == Type::Integer(64) && kind == Type::Real && column.widens {
                column.kind = Type::Real;
                if !change.added.contains(&index) {
                    change.widened.push(index);
                }
            }
            if column.kind.fit(value).is_some() {
                return;
            }
        } else if self.may_add(name) {
            let index = self.list.len();
            self.list.push(Column { name: name.to_owned(), kind, ours: true, widens: true });
            self.by_name.insert(name.to_owned(), index);
            self.taken.insert(name.to_ascii_lowercase());
            change.added.push(index);
            return;
        }
        if !self.has_other {
            self.has_other = true;
            self.taken.insert(OTHER.to_owned());
            change.other = true;
        }
    }

    fn may_add(&self, name: &str) -> bool {
        let room = match &*self.wanted {
            Wanted::Auto { max } => self.list.len() < *max,
            Wanted::Declared(_) => true,
        };
        room && is_name(name) && !self.taken.contains(&name.to_ascii_lowercase())
    }

    /// Gives each of a feature's values to `bind` with the index of its column, and the rest as JSON to `other`.
    pub(super) fn values(
        &self,
        feature: &Feature,
        other: &mut String,
        mut bind: impl FnMut(usize, Value<'_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        other.clear();
        let mut bound = Ok(());
        each(&self.wanted, feature, &mut |name, value| {
            let slot = self.by_name.get(name).and_then(|&i| Some((i, self.list[i].kind.fit(value)?)));
            match slot {
                _ if bound.is_err() => {}
                Some((index, value)) => bound = bind(index, value),
                None if *value == Property::Null => {}
                None => append_member(name, value, other),
            }
        });
        if !other.is_empty() {
            other.push('}');
        }
        bound
    }
}

/// Visits what a feature has for columns: its id and properties, or what the declared pointers lead to.
fn each(wanted: &Wanted, feature: &Feature, visit: &mut dyn FnMut(&str, &Property)) {
    match wanted {
        Wanted::Auto { .. } => {
            if let Some(id) = &feature.id {
                let is_taken = feature.properties.iter().any(|(name, _)| name.eq_ignore_ascii_case("id"));
                visit(if is_taken { OTHER_ID } else { "id" }, id);
            }
            feature.properties.iter().for_each(|(name, value)| visit(name, value));
        }
        Wanted::Declared(list) => {
            for (name, pointer) in list {
                if let Some(value) = resolve(feature, pointer) {
                    visit(name, &value);
                }
            }
        }
    }
}

fn resolve<'a>(feature: &'a Feature, pointer: &Pointer) -> Option<Cow<'a, Property>> {
    match pointer.tokens() {
        [id] if id == "id" => feature.id.as_ref().map(Cow::Borrowed),
        [properties, name, inner @ ..] if properties == "properties" => {
            let (_, value) = feature.properties.iter().find(|(found, _)| found == name)?;
            match (value, inner) {
                (value, []) => Some(Cow::Borrowed(value)),
                (Property::Json(text), inner) => {
                    let mut value: serde_json::Value = serde_json::from_str(text).ok()?;
                    for token in inner {
                        value = match &mut value {
                            serde_json::Value::Object(members) => members.remove(token)?,
                            serde_json::Value::Array(items) => items.get_mut(token.parse::<usize>().ok()?)?.take(),
                            _ => return None,
                        };
                    }
                    Some(Cow::Owned(from_json(value)))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

fn from_json(value: serde_json::Value) -> Property {
    match value {
        serde_json::Value::Null => Property::Null,
        serde_json::Value::Bool(boolean) => Property::Boolean(boolean),
        serde_json::Value::String(text) => Property::Text(text),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Property::Integer(integer),
            (None, Some(real)) if !number.is_u64() => Property::Real(real),
            _ => Property::Json(number.to_string()),
        },
        nested => Property::Json(nested.to_string()),
    }
}

fn append_member(name: &str, value: &Property, other: &mut String) {
    other.push(if other.is_empty() { '{' } else { ',' });
    append_string(name, other);
    other.push(':');
    match value {
        Property::Null => other.push_str("null"),
        Property::Boolean(boolean) => other.push_str(if *boolean { "true" } else { "false" }),
        Property::Integer(integer) => other.push_str(&integer.to_string()),
        // A number that JSON cannot write does not come out of a JSON payload.
        Property::Real(real) => other.push_str(&serde_json::Value::from(*real).to_string()),
        Property::Text(text) => append_string(text, other),
        Property::Json(text) => other.push_str(text),
    }
}

fn append_string(text: &str, out: &mut String) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

/// Whether a name can be a column: not ours, not one that SQLite gives every row, nothing unprintable.
pub(super) fn is_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    !name.trim().is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.chars().any(char::is_control)
        && !lower.starts_with("geonce_")
        && !["fid", "geom", "rowid", "oid", "_rowid_"].contains(&lower.as_str())
}

/// Refuses declared columns that cannot be.
pub(super) fn check(wanted: &Wanted) -> Result<()> {
    let refuse = |what: String| Err(Error::new(Kind::Invalid, what));
    match wanted {
        Wanted::Auto { max } if *max > COLUMNS_LIMIT => refuse(format!("{max} columns; at most {COLUMNS_LIMIT}")),
        Wanted::Auto { .. } => Ok(()),
        Wanted::Declared(list) if list.len() > COLUMNS_LIMIT => {
            refuse(format!("{} columns; at most {COLUMNS_LIMIT}", list.len()))
        }
        Wanted::Declared(list) => {
            let mut seen = HashSet::new();
            for (name, pointer) in list {
                let leads = matches!(pointer.tokens(), [one] if one == "id")
                    || matches!(pointer.tokens(), [one, _, ..] if one == "properties");
                if !is_name(name) {
                    return refuse(format!("{name:?} cannot be the name of a column"));
                } else if !seen.insert(name.to_ascii_lowercase()) {
                    return refuse(format!("the column {name:?} is there twice (case does not count)"));
                } else if !leads {
                    return Err(Error::new(Kind::Invalid, format!("column {name:?}: {pointer} is not in a Feature"))
                        .hint("a column is taken from /id or from /properties/…"));
                }
            }
            Ok(())
        }
    }
}

/// An identifier as SQL writes it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
