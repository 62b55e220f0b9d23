//! What makes two payloads of a source the same event: the settings that go into a key.
//!
//! A policy is plain data; [`crate::Keyer::new`] checks it once and refuses one that contradicts itself.

use crate::{Code, Error, Limits, Property, Result};
use std::fmt;

/// A JSON pointer (RFC 6901) that names something inside the payload, never the whole of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    text: String,
    tokens: Vec<String>,
}

impl Pointer {
    /// Reads a pointer such as `/properties/asset_id`.
    pub fn parse(text: &str) -> Result<Pointer> {
        let refuse = |message: &str| {
            Err(Error::new(Code::PolicyInvalid, "", format!("{message}: {text:?}"))
                .hint("a pointer looks like /properties/asset_id"))
        };
        if text.is_empty() {
            return refuse("the empty pointer would make the whole payload one value");
        }
        if !text.starts_with('/') {
            return refuse("a JSON pointer starts with '/'");
        }
        let escapes_valid = text.split('~').skip(1).all(|rest| rest.starts_with('0') || rest.starts_with('1'));
        if !escapes_valid {
            return refuse("'~' in a JSON pointer is followed by 0 or 1");
        }
        let tokens = text[1..].split('/').map(|token| token.replace("~1", "/").replace("~0", "~")).collect();
        Ok(Pointer { text: text.to_owned(), tokens })
    }

    /// The pointer as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its tokens, unescaped.
    pub fn tokens(&self) -> &[String] {
        &self.tokens
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// One value of an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Where the value is.
    pub at: Pointer,
    /// Whether it may be absent (absent differs from null).
    pub optional: bool,
    /// Decimals to which a number is rounded, half to even.
    pub decimals: Option<u8>,
}

impl Field {
    /// A required field, taken as it is.
    pub fn required(at: Pointer) -> Field {
        Field { at, optional: false, decimals: None }
    }
}

/// Which members of a payload, beside its geometry, tell events apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Everything except the published ignore list and these.
    Whole {
        /// More places to leave out.
        ignore: Vec<Pointer>,
    },
    /// Only these.
    Fields(Vec<Field>),
}

/// What becomes of a third number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimensions {
    /// Part of the key where it is delivered.
    Delivered,
    /// Dropped.
    Two,
    /// Required.
    Three,
}

/// Whether a line's direction tells events apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// It does.
    Directed,
    /// A line equals its reverse.
    Undirected,
}

/// Whether the order of parts tells events apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// It does not.
    Sorted,
    /// It does.
    Ordered,
}

/// How much of a geometry's form tells events apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Every vertex.
    Exact,
    /// Every vertex but those that lie on the line through their neighbours.
    Simplified,
    /// The type and the bounding box alone.
    Bbox,
}

impl Detail {
    /// Its name in configuration and in the canonical bytes.
    pub fn name(self) -> &'static str {
        match self {
            Detail::Exact => "exact",
            Detail::Simplified => "simplified",
            Detail::Bbox => "bbox",
        }
    }
}

/// What is assumed where a payload declares no coordinate system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssumedCrs {
    /// This EPSG code.
    Code(u32),
    /// Nothing: a payload must declare one.
    Required,
}

/// How text of the identity is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unicode {
    /// Code point by code point.
    Exact,
    /// After normalisation to form C.
    Nfc,
}

/// Which payloads a source takes at all.
#[derive(Clone, Debug, Default)]
pub struct Accept {
    /// `GeoJSON` geometry types, with `null` for features without geometry. Absent: every type but `null`.
    pub types: Option<Vec<String>>,
    /// West, south, east, north in degrees, edges included.
    pub bounds: Option<[f64; 4]>,
    /// A JSON Schema (as JSON text) for the payload.
    pub schema: Option<String>,
}

/// How a payload says that its entity is gone. No part of the key.
#[derive(Clone, Debug, PartialEq)]
pub struct Deletion {
    /// Where it says so.
    pub at: Pointer,
    /// With which value: text, a number, true or false.
    pub equals: Property,
}

/// A secret that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Wraps the bytes of a secret.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Secret {
        Secret(bytes.into())
    }

    /// The secret itself, for the one computation that needs it.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The largest `limits.depth_max`: values are read by recursion.
pub const DEPTH_MAX: usize = 256;

/// The largest `precision` and `precision_z`.
pub const PRECISION_MAX: u8 = 9;

/// How keys of a source are made. The default is what `geonce` does without configuration.
#[derive(Clone, Debug)]
pub struct Policy {
    /// What tells events apart beside the geometry.
    pub identity: Identity,
    /// Where the event's version is, if it has one.
    pub version: Option<Pointer>,
    /// The name within which keys are unique: the source's, unless sources share one.
    pub scope: String,
    /// Decimals of a degree, 0 to 9.
    pub precision: u8,
    /// Decimals of the third number, 0 to 9.
    pub precision_z: u8,
    /// What becomes of a third number.
    pub dimensions: Dimensions,
    /// Whether lines have a direction.
    pub lines: Lines,
    /// Whether parts have an order.
    pub parts: Parts,
    /// How much of a geometry's form counts.
    pub shape: Detail,
    /// What is assumed where no coordinate system is declared.
    pub crs: AssumedCrs,
    /// Whether operations known to be approximate are accepted.
    pub approximate_crs: bool,
    /// Whether unclosed rings are closed rather than refused.
    pub close_rings: bool,
    /// Turns keys into an HMAC that others cannot compute.
    pub key_secret: Option<Secret>,
    /// Where the Feature is, if the payload is an envelope.
    pub feature: Option<Pointer>,
    /// Which payloads are taken.
    pub accept: Accept,
    /// How payloads say that their entity is gone; such a payload may be without a geometry.
    pub delete: Option<Deletion>,
    /// How text of the identity is compared.
    pub unicode: Unicode,
    /// Bounds on the payload.
    pub limits: Limits,
    /// The policy before this one, whose keys are still claimed.
    pub previous: Option<Box<Policy>>,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            identity: Identity::Whole { ignore: Vec::new() },
            version: None,
            scope: "default".to_owned(),
            precision: 7,
            precision_z: 3,
            dimensions: Dimensions::Delivered,
            lines: Lines::Directed,
            parts: Parts::Sorted,
            shape: Detail::Exact,
            crs: AssumedCrs::Code(4326),
            approximate_crs: false,
            close_rings: false,
            key_secret: None,
            feature: None,
            accept: Accept::default(),
            delete: None,
            unicode: Unicode::Exact,
            limits: Limits::default(),
            previous: None,
        }
    }
}

impl Policy {
    /// The policy whose fingerprint is the content digest of `g1` point 12: it tells whether a duplicate differs
    /// outside its identity.
    #[must_use]
    pub fn content(&self) -> Policy {
        let identity = match &self.identity {
            Identity::Whole { ignore } => Identity::Whole { ignore: ignore.clone() },
            Identity::Fields(_) => Identity::Whole { ignore: Vec::new() },
        };
        Policy { identity, version: None, key_secret: None, previous: None, shape: Detail::Exact, ..self.clone() }
    }

    /// Refuses settings that contradict each other or are out of range.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |message: String| Err(Error::new(Code::PolicyInvalid, "", message));
        if self.precision > PRECISION_MAX || self.precision_z > PRECISION_MAX {
            return refuse(format!("precision and precision_z are 0 to {PRECISION_MAX}"));
        }
        if self.shape != Detail::Exact && self.dimensions != Dimensions::Two {
            let message = format!("shape = \"{}\" does not look at third numbers", self.shape.name());
            return Err(
                Error::new(Code::PolicyInvalid, "", message).hint("say dimensions = 2 as well, which drops them")
            );
        }
        if self.limits.depth_max > DEPTH_MAX {
            return refuse(format!("limits.depth_max is at most {DEPTH_MAX}"));
        }
        if let Identity::Fields(fields) = &self.identity {
            if fields.is_empty() {
                return refuse("an identity needs at least one pointer".to_owned());
            }
            for (i, field) in fields.iter().enumerate() {
                if fields[..i].iter().any(|other| other.at == field.at) {
                    return refuse(format!("the identity names {} twice", field.at));
                }
                if field.decimals.is_some_and(|d| d > PRECISION_MAX) {
                    return refuse(format!("decimals of {} are 0 to {PRECISION_MAX}", field.at));
                }
            }
        }
        if let Some([west, south, east, north]) = self.accept.bounds
            && !(west <= east && south <= north && [west, south, east, north].iter().all(|edge| edge.is_finite()))
        {
            return refuse("accept.bounds are west, south, east, north, in this order, and finite".to_owned());
        }
        for name in self.accept.types.iter().flatten() {
            let known = name == "null" || name == "GeometryCollection" || crate::Kind::from_name(name).is_some();
            if !known {
                return refuse(format!("accept.types: {name:?} is no GeoJSON geometry type"));
            }
        }
        if let Some(Deletion { equals: Property::Null | Property::Json(_), .. }) = &self.delete {
            return refuse("delete.equals is text, a number, true or false".to_owned());
        }
        if self.key_secret.as_ref().is_some_and(|secret| secret.bytes().is_empty()) {
            return refuse("key_secret is empty".to_owned());
        }
        if self.previous.as_ref().is_some_and(|previous| previous.previous.is_some()) {
            return refuse("a previous policy cannot name a previous one itself".to_owned());
        }
        Ok(())
    }
}
