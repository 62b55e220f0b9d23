//! Values inside a text that is known to be strict JSON, as slices of it: what is copied into a feature is copied as it
//! was written, digits and all. An object is taken apart once, not once for each member.

use geonce_key::Pointer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// A value, as it was written.
#[derive(Clone, Copy)]
pub(super) struct Value<'a>(&'a str);

impl<'a> Value<'a> {
    /// The value that a text is.
    pub(super) fn of(text: &'a [u8]) -> Option<Value<'a>> {
        serde_json::from_slice::<&RawValue>(text).ok().map(Value::from)
    }

    /// Its text.
    pub(super) fn text(self) -> &'a str {
        self.0
    }

    pub(super) fn is_null(self) -> bool {
        self.0 == "null"
    }

    /// Its members, if it is an object.
    pub(super) fn object(self) -> Option<Object<'a>> {
        if self.0.starts_with('{') { serde_json::from_str(self.0).ok() } else { None }
    }

    /// Its elements, if it is an array.
    pub(super) fn elements(self) -> Option<Vec<Value<'a>>> {
        if !self.0.starts_with('[') {
            return None;
        }
        let elements: Vec<&RawValue> = serde_json::from_str(self.0).ok()?;
        Some(elements.into_iter().map(Value::from).collect())
    }

    /// Its characters, if it is a string.
    pub(super) fn as_str(self) -> Option<Cow<'a, str>> {
        let inner = self.0.strip_prefix('"')?.strip_suffix('"')?;
        if inner.contains('\\') {
            serde_json::from_str(self.0).ok().map(Cow::Owned)
        } else {
            Some(Cow::Borrowed(inner))
        }
    }

    /// Whether it is a number.
    pub(super) fn is_number(self) -> bool {
        self.0.starts_with(|first: char| first == '-' || first.is_ascii_digit())
    }

    /// Its value, if it is a number.
    pub(super) fn as_f64(self) -> Option<f64> {
        if self.is_number() { serde_json::from_str(self.0).ok() } else { None }
    }

    /// Its value, if it is a whole number.
    pub(super) fn as_i64(self) -> Option<i64> {
        if self.is_number() { self.0.parse().ok() } else { None }
    }

    /// Its value, if it is one of the two.
    pub(super) fn as_bool(self) -> Option<bool> {
        match self.0 {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// It, read as another type.
    pub(super) fn read<T: Deserialize<'a>>(self) -> Option<T> {
        serde_json::from_str(self.0).ok()
    }

    /// The value that a pointer finds in it.
    pub(super) fn at(self, pointer: &Pointer) -> Option<Value<'a>> {
        pointer.tokens().iter().try_fold(self, |value, token| match value.object() {
            Some(object) => object.get(token),
            None => value.elements()?.get(token.parse::<usize>().ok()?).copied(),
        })
    }
}

impl<'a> From<&'a RawValue> for Value<'a> {
    fn from(raw: &'a RawValue) -> Value<'a> {
        Value(raw.get())
    }
}

/// An object's members, in order.
pub(super) struct Object<'a> {
    members: Vec<(Cow<'a, str>, Value<'a>)>,
}

impl<'a> Object<'a> {
    /// The member of this name, even if it is null.
    pub(super) fn get(&self, name: &str) -> Option<Value<'a>> {
        self.members.iter().find(|(found, _)| found == name).map(|(_, value)| *value)
    }

    /// The member of this name, unless it is null.
    pub(super) fn some(&self, name: &str) -> Option<Value<'a>> {
        self.get(name).filter(|value| !value.is_null())
    }

    /// The characters of the member of this name.
    pub(super) fn str(&self, name: &str) -> Option<Cow<'a, str>> {
        self.get(name)?.as_str()
    }

    pub(super) fn members(&self) -> impl Iterator<Item = (&str, Value<'a>)> {
        self.members.iter().map(|(name, value)| (&**name, *value))
    }
}

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<'de>, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some((Name(name), value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    members.push((name, Value::from(value)));
                }
                Ok(Object { members })
            }
        }

        deserializer.deserialize_map(Members)
    }
}

/// A member's name, without a copy where it has no escapes.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// A text as JSON.
pub(super) fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
