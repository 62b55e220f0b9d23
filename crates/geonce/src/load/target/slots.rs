//! Which column of a layer each field of a file goes into, and how a value becomes what the column takes.
//!
//! A field takes the column of its name, whatever the column's type; a new column has the field's type. What fits no column
//! is kept in `geonce_other`, as the sinks do: nothing that a file says is lost.

use crate::sink::columns::{Change, Columns, Type, Value, append_member, json};
use geonce_files::{Field, FieldKind};
use geonce_key::Property;
use std::collections::HashSet;

/// The columns of fields.
pub(super) struct Slots(Vec<Slot>);

struct Slot {
    name: String,
    kind: FieldKind,
    column: Option<usize>,
}

/// What a value becomes.
pub(super) enum Cell<'a> {
    Fits(Value<'a>),
    /// It has no column, or not one that takes it.
    Other,
}

/// The type of a column made for a field.
fn column_type(kind: FieldKind) -> Type {
    match kind {
        FieldKind::Boolean => Type::Boolean,
        FieldKind::Integer => Type::Integer(64),
        FieldKind::Real => Type::Real,
        FieldKind::Text => Type::Text(usize::MAX),
        FieldKind::Date => Type::Date,
        FieldKind::DateTime => Type::Time,
        FieldKind::Json => Type::Json,
    }
}

impl Slots {
    /// Finds or adds a column for each field; `change` tells what is added.
    pub(super) fn new(columns: &mut Columns, fields: &[Field], has_json: bool, change: &mut Change) -> Slots {
        let mut used = HashSet::new();
        let mut list = Vec::with_capacity(fields.len());
        for Field { name, kind } in fields {
            let wanted = match column_type(*kind) {
                Type::Json if !has_json => Type::Text(usize::MAX),
                wanted => wanted,
            };
            let column = columns.declare(name, wanted, &used, change);
            used.extend(column);
            list.push(Slot { name: name.clone(), kind: *kind, column });
        }
        Slots(list)
    }

    /// The columns that fields have, in the order of the fields.
    pub(super) fn columns(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().filter_map(|slot| slot.column)
    }

    /// Gives each value to `take` with the index of its column, and what has none as members of `other`, an object that is
    /// left open at its end. Fields of a feature that has fewer values are null.
    pub(super) fn each<E>(
        &self,
        columns: &Columns,
        values: &[Property],
        other: &mut String,
        mut take: impl FnMut(usize, Value<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        other.clear();
        for (slot, value) in self.0.iter().zip(values.iter().chain(std::iter::repeat(&Property::Null))) {
            match (slot.column, slot.cell(columns, value)) {
                (Some(column), Cell::Fits(value)) => take(column, value)?,
                (column, _) => {
                    if *value != Property::Null {
                        append_member(&slot.name, value, other);
                    }
                    if let Some(column) = column {
                        take(column, Value::Null)?;
                    }
                }
            }
        }
        if !other.is_empty() {
            other.push('}');
        }
        Ok(())
    }
}

impl Slot {
    fn cell<'a>(&self, columns: &Columns, value: &'a Property) -> Cell<'a> {
        let Some(column) = self.column else { return Cell::Other };
        if *value == Property::Null {
            return Cell::Fits(Value::Null);
        }
        let converted = match (columns.list()[column].kind, value) {
            (Type::Text(_), Property::Boolean(_) | Property::Integer(_) | Property::Real(_)) => {
                Some(Property::Text(json(value)))
            }
            // A file that knows no offsets has no other way to be understood in the same way everywhere.
            (Type::Time, Property::Text(text)) if self.kind == FieldKind::DateTime && !has_offset(text) => {
                Some(Property::Text(format!("{text}Z")))
            }
            _ => None,
        };
        let fitted = match &converted {
            None => columns.fit(column, value),
            Some(converted) => columns.fit(column, converted).map(Value::into_owned),
        };
        fitted.map_or(Cell::Other, Cell::Fits)
    }
}

/// Whether a date-time says how far it is from UTC.
fn has_offset(text: &str) -> bool {
    let time = text.find(['T', 't', ' ']).map_or("", |at| &text[at + 1..]);
    time.ends_with(['Z', 'z']) || time.contains(['+', '-'])
}
