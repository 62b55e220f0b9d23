//! Which column of a table a property goes into, and what goes into the column `geonce_other` instead. Pure: what a kind
//! of database asks for is in its [`Dialect`], and how a type is spelt there is its sink's business.
//!
//! A property becomes a column when its first value is seen; null makes no column. A column of whole numbers that meets a
//! number with a fraction becomes one of doubles. A value that does not fit its column, a name that cannot be a column, and
//! what comes after the last column allowed are kept as members of one JSON object in `geonce_other`.

use super::Columns as Wanted;
use crate::clock::Timestamp;
use crate::error::{Error, Kind, Result};
use geonce_key::{Feature, Pointer, Property, Version};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The column that takes what has none of its own.
pub(crate) const OTHER: &str = "geonce_other";
/// Under this name a Feature's `id` goes there, where a property has taken the column `id`.
const OTHER_ID: &str = "geonce_id";
/// The longest name of a column or a layer.
pub(crate) const NAME_BYTES_MAX: usize = 63;
/// Whole numbers up to here are exact in a column of doubles.
pub(crate) const EXACT_MAX: u64 = 1 << 53;

/// What a kind of database asks of columns.
#[derive(Debug)]
pub(crate) struct Dialect {
    /// Names, in lower case, that no column may have, beside our own.
    pub(crate) reserved: &'static [&'static str],
    /// Whether text may hold the character NUL.
    pub(crate) takes_nul: bool,
    /// Whether arrays and objects get a column of type JSON; else text.
    pub(crate) has_json: bool,
    /// Whether a time is kept as text, which then is in UTC, to the millisecond.
    pub(crate) times_are_text: bool,
    /// The most columns that may be asked for.
    pub(crate) columns_max: usize,
}

/// What a column takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Boolean,
    /// Whole numbers of so many bits.
    Integer(u32),
    Real,
    /// Numbers of single precision: what its owner wants rounded is rounded.
    Single,
    /// Decimal numbers of any size, as text.
    Decimal,
    /// Text of at most so many characters; arrays and objects as JSON.
    Text(usize),
    /// Any value, as JSON.
    Json,
    /// Any value, as JSON that has been parsed: no escapes, since not all of them can be kept.
    ParsedJson,
    /// Text that is an RFC 3339 time.
    Time,
    /// Text that is a date.
    Date,
    /// Text that is a UUID.
    Uuid,
    /// Something that other programs made and that no property goes into.
    Foreign,
}

impl Type {
    /// The type of a column made for this value; none for null, which tells nothing.
    fn of(value: &Property, dialect: &Dialect) -> Option<Type> {
        Some(match value {
            Property::Null => return None,
            Property::Boolean(_) => Type::Boolean,
            Property::Integer(_) => Type::Integer(64),
            Property::Real(_) => Type::Real,
            Property::Json(_) if dialect.has_json => Type::Json,
            Property::Text(_) | Property::Json(_) => Type::Text(usize::MAX),
        })
    }

    /// The value as it is stored, where it fits.
    fn fit<'a>(self, value: &'a Property, dialect: &Dialect) -> Option<Value<'a>> {
        let text = |text: &'a str| Some(Value::Text(Cow::Borrowed(text)));
        match (self, value) {
            (Type::Foreign, _) => None,
            (_, Property::Null) => Some(Value::Null),
            (Type::Boolean, Property::Boolean(boolean)) => Some(Value::Boolean(*boolean)),
            (Type::Integer(bits), Property::Integer(integer)) if *integer >> (bits - 1) == *integer >> 63 => {
                Some(Value::Integer(*integer))
            }
            (Type::Real, Property::Real(real)) => Some(Value::Real(*real)),
            #[expect(clippy::cast_possible_truncation, reason = "only asked whether it is finite")]
            (Type::Single, Property::Real(real)) if (*real as f32).is_finite() => Some(Value::Real(*real)),
            #[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
            (Type::Real | Type::Single, Property::Integer(integer)) if integer.unsigned_abs() <= EXACT_MAX => {
                Some(Value::Real(*integer as f64))
            }
            (Type::Text(max), Property::Text(found) | Property::Json(found))
                if (found.len() <= max || found.chars().count() <= max)
                    && (dialect.takes_nul || !found.contains('\0')) =>
            {
                text(found)
            }
            (Type::Decimal, Property::Json(found)) if !found.starts_with(['[', '{']) => text(found),
            (Type::Decimal, Property::Integer(_) | Property::Real(_)) | (Type::Json, _) => {
                Some(Value::Text(json(value).into()))
            }
            (Type::ParsedJson, _) => {
                Some(json(value)).filter(|json| !json.contains("\\u")).map(|json| Value::Text(json.into()))
            }
            (Type::Time, Property::Text(found)) if is_time(found) => {
                if dialect.times_are_text {
                    utc(found)
                } else {
                    text(found)
                }
            }
            (Type::Date, Property::Text(found)) if is_date(found) => text(found),
            (Type::Uuid, Property::Text(found)) if is_uuid(found) => text(found),
            _ => None,
        }
    }
}

/// Whether a text is an instant that every database knows; there is no year nought.
fn is_time(text: &str) -> bool {
    !text.starts_with("0000") && matches!(Version::parse(text), Some(Version::Time { .. }))
}

/// An instant as every program reads it that keeps times as text.
fn utc(text: &str) -> Option<Value<'static>> {
    let Some(Version::Time { seconds, mut fraction }) = Version::parse(text) else { return None };
    fraction.truncate(3);
    let millis: i64 = format!("{fraction:0<3}").parse().ok()?;
    let instant = Timestamp::from_millis(seconds.checked_mul(1_000)?.checked_add(millis)?);
    Some(Value::Text(instant.to_string().into()))
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && is_time(&format!("{text}T00:00:00Z"))
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(place, byte)| match place {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// A value on its way into a column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Null,
    Boolean(bool),
    Integer(i64),
    Real(f64),
    Text(Cow<'a, str>),
}

impl Value<'_> {
    /// The same, for as long as anybody likes.
    pub(crate) fn into_owned(self) -> Value<'static> {
        match self {
            Value::Null => Value::Null,
            Value::Boolean(boolean) => Value::Boolean(boolean),
            Value::Integer(integer) => Value::Integer(integer),
            Value::Real(real) => Value::Real(real),
            Value::Text(text) => Value::Text(Cow::Owned(text.into_owned())),
        }
    }
}

/// A column for a property.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: Type,
    /// Whether we made it: an update then empties it where the property is gone. Others' columns keep their value.
    pub(crate) ours: bool,
    /// Whether it can be turned from whole numbers into doubles.
    pub(crate) widens: bool,
}

/// How the table has to change before rows can be written.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Change {
    /// Columns to add, by index.
    pub(crate) added: Vec<usize>,
    /// Columns to turn from whole numbers into doubles, by index.
    pub(crate) widened: Vec<usize>,
    /// Whether `geonce_other` is to be added.
    pub(crate) other: bool,
}

/// The property columns of a layer.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    wanted: Arc<Wanted>,
    dialect: &'static Dialect,
    list: Vec<Column>,
    by_name: HashMap<String, usize>,
    /// Every column of the table, in lower case: SQLite, GDAL and people tell names apart without regard to case.
    taken: HashSet<String>,
    has_other: bool,
}

impl Columns {
    /// Columns of a table that has these already; `taken` are all others it has.
    pub(crate) fn new(wanted: Arc<Wanted>, dialect: &'static Dialect, list: Vec<Column>, taken: &[String]) -> Columns {
        let taken = taken.iter().chain(list.iter().map(|column| &column.name));
        let taken: HashSet<String> = taken.map(|name| name.to_ascii_lowercase()).collect();
        let by_name = list.iter().enumerate().map(|(index, column)| (column.name.clone(), index)).collect();
        let has_other = taken.contains(OTHER);
        Columns { wanted, dialect, list, by_name, taken, has_other }
    }

    pub(crate) fn list(&self) -> &[Column] {
        &self.list
    }

    pub(crate) fn has_other(&self) -> bool {
        self.has_other
    }

    /// Columns of these names stay what they are.
    pub(crate) fn keep(&mut self, names: &HashSet<String>) {
        for column in self.list.iter_mut().filter(|column| names.contains(&column.name)) {
            column.widens = false;
        }
    }

    /// Makes room for a feature's properties, and notes in `change` what that takes.
    pub(crate) fn learn(&mut self, feature: &Feature, change: &mut Change) {
        let wanted = Arc::clone(&self.wanted);
        each(&wanted, feature, &mut |name, value| self.learn_one(name, value, change));
    }

    fn learn_one(&mut self, name: &str, value: &Property, change: &mut Change) {
        let Some(kind) = Type::of(value, self.dialect) else { return };
        if let Some(&index) = self.by_name.get(name) {
            let column = &mut self.list[index];
            if column.kind == Type::Integer(64) && kind == Type::Real && column.widens {
                column.kind = Type::Real;
                if !change.added.contains(&index) {
                    change.widened.push(index);
                }
            }
            if column.kind.fit(value, self.dialect).is_some() {
                return;
            }
        } else if self.may_add(name) && kind.fit(value, self.dialect).is_some() {
            let index = self.add(name, kind);
            change.added.push(index);
            return;
        }
        self.declare_other(change);
    }

    /// The column for a field of this name and type: one of its name that is there, whatever its type; else one of its name
    /// but for case; else a new one. None where there can be none, or where `used` has it already.
    pub(crate) fn declare(
        &mut self,
        name: &str,
        kind: Type,
        used: &HashSet<usize>,
        change: &mut Change,
    ) -> Option<usize> {
        let free = |index: &usize| !used.contains(index);
        if let Some(index) = self.by_name.get(name).copied().filter(free) {
            return Some(index);
        }
        let alike = |(_, column): &(usize, &Column)| column.name.eq_ignore_ascii_case(name);
        if let Some((index, _)) = self.list.iter().enumerate().find(alike).filter(|(index, _)| free(index)) {
            return Some(index);
        }
        self.may_add(name).then(|| {
            let index = self.add(name, kind);
            change.added.push(index);
            index
        })
    }

    /// Makes room for what has no column.
    pub(crate) fn declare_other(&mut self, change: &mut Change) {
        if !self.has_other {
            self.has_other = true;
            self.taken.insert(OTHER.to_owned());
            change.other = true;
        }
    }

    /// The value as a column stores it, where it fits.
    pub(crate) fn fit<'a>(&self, index: usize, value: &'a Property) -> Option<Value<'a>> {
        self.list[index].kind.fit(value, self.dialect)
    }

    fn add(&mut self, name: &str, kind: Type) -> usize {
        let index = self.list.len();
        self.list.push(Column { name: name.to_owned(), kind, ours: true, widens: true });
        self.by_name.insert(name.to_owned(), index);
        self.taken.insert(name.to_ascii_lowercase());
        index
    }

    fn may_add(&self, name: &str) -> bool {
        let room = match &*self.wanted {
            Wanted::Auto { max } => self.list.len() < *max,
            Wanted::Declared(_) => true,
        };
        room && is_name(name, self.dialect) && !self.taken.contains(&name.to_ascii_lowercase())
    }

    /// Gives each of a feature's values to `bind` with the index of its column, and the rest as JSON to `other`.
    pub(crate) fn values<E>(
        &self,
        feature: &Feature,
        other: &mut String,
        mut bind: impl FnMut(usize, Value<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        other.clear();
        let mut bound = Ok(());
        each(&self.wanted, feature, &mut |name, value| {
            let slot = self.by_name.get(name).and_then(|&i| Some((i, self.list[i].kind.fit(value, self.dialect)?)));
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

pub(crate) fn append_member(name: &str, value: &Property, other: &mut String) {
    other.push(if other.is_empty() { '{' } else { ',' });
    append_string(name, other);
    other.push(':');
    append_json(value, other);
}

pub(crate) fn json(value: &Property) -> String {
    let mut out = String::new();
    append_json(value, &mut out);
    out
}

fn append_json(value: &Property, out: &mut String) {
    match value {
        Property::Null => out.push_str("null"),
        Property::Boolean(boolean) => out.push_str(if *boolean { "true" } else { "false" }),
        Property::Integer(integer) => out.push_str(&integer.to_string()),
        // A number that JSON cannot write does not come out of a JSON payload.
        Property::Real(real) => out.push_str(&serde_json::Value::from(*real).to_string()),
        Property::Text(text) => append_string(text, out),
        Property::Json(text) => out.push_str(text),
    }
}

fn append_string(text: &str, out: &mut String) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

/// Whether a name can be a column: not ours, not one that the database gives every row, nothing unprintable.
fn is_name(name: &str, dialect: &Dialect) -> bool {
    let lower = name.to_ascii_lowercase();
    !name.trim().is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.chars().any(char::is_control)
        && !lower.starts_with("geonce_")
        && !dialect.reserved.contains(&lower.as_str())
}

/// Refuses declared columns that cannot be.
pub(crate) fn check(wanted: &Wanted, dialect: &Dialect) -> Result<()> {
    let refuse = |what: String| Err(Error::new(Kind::Invalid, what));
    let (count, declared) = match wanted {
        Wanted::Auto { max } => (*max, &[][..]),
        Wanted::Declared(list) => (list.len(), &list[..]),
    };
    if count > dialect.columns_max {
        return refuse(format!("{count} columns; at most {}", dialect.columns_max));
    }
    let mut seen = HashSet::new();
    for (name, pointer) in declared {
        let leads = matches!(pointer.tokens(), [one] if one == "id")
            || matches!(pointer.tokens(), [one, _, ..] if one == "properties");
        if !is_name(name, dialect) {
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

/// An identifier as SQL writes it.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
