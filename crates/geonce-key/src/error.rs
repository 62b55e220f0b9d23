//! Why a payload was refused: a stable code, a place, a sentence and, where one is known, a hint.
//!
//! Every error of this crate is the payload's or the policy's fault; nothing here is transient.

use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal),+ $(,)?) => {
        /// Stable codes of refusals. The text form is part of the interface.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Code { $($(#[$doc])* $variant),+ }

        impl Code {
            /// Every code there is.
            pub const ALL: &'static [Code] = &[$(Code::$variant),+];

            /// The stable text of the code.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $text),+ }
            }
        }
    };
}

codes! {
    /// The text is not JSON.
    JsonSyntax = "json_syntax",
    /// The text ends inside a value.
    JsonIncomplete = "json_incomplete",
    /// Something follows the value.
    JsonTrailing = "json_trailing",
    /// The bytes are not UTF-8.
    JsonUtf8 = "json_utf8",
    /// The text starts with a byte order mark.
    JsonBom = "json_bom",
    /// A member name occurs twice in one object.
    JsonDuplicateMember = "json_duplicate_member",
    /// A `\u` escape names half of a surrogate pair.
    JsonLoneSurrogate = "json_lone_surrogate",
    /// A control character stands unescaped in a string.
    JsonControlCharacter = "json_control_character",
    /// A number is not finite as an IEEE 754 double.
    JsonNumberRange = "json_number_range",
    /// The payload is not a JSON object.
    GeojsonNotObject = "geojson_not_object",
    /// `type` is missing, not text, or not a `GeoJSON` type.
    GeojsonType = "geojson_type",
    /// A required member is missing.
    GeojsonMissing = "geojson_missing",
    /// A member has the wrong JSON type.
    GeojsonMemberType = "geojson_member_type",
    /// A member that belongs to another `GeoJSON` type.
    GeojsonForeignMember = "geojson_foreign_member",
    /// Coordinates are not nested as the type asks.
    GeojsonCoordinates = "geojson_coordinates",
    /// A position does not have two or three numbers.
    GeojsonPosition = "geojson_position",
    /// Some positions have a third number and some have none, or the policy asks for another dimension.
    GeojsonDimensions = "geojson_dimensions",
    /// M values are refused.
    GeojsonMeasure = "geojson_measure",
    /// A geometry, part or path holds nothing.
    GeojsonEmpty = "geojson_empty",
    /// A line has fewer than two positions.
    GeojsonLineShort = "geojson_line_short",
    /// A ring has fewer than four positions.
    GeojsonRingShort = "geojson_ring_short",
    /// A ring's last position is not its first.
    GeojsonRingUnclosed = "geojson_ring_unclosed",
    /// A longitude or latitude is out of range.
    GeojsonBounds = "geojson_bounds",
    /// A third number is too large.
    GeojsonElevation = "geojson_elevation",
    /// `geometry: null` where the policy does not list type `null`.
    GeojsonNullGeometry = "geojson_null_geometry",
    /// A feature's `id` is neither text nor a number.
    GeojsonId = "geojson_id",
    /// `bbox` is not an array of four or six numbers.
    GeojsonBbox = "geojson_bbox",
    /// The policy does not accept this geometry type.
    AcceptType = "accept_type",
    /// The policy does not accept this place.
    AcceptBounds = "accept_bounds",
    /// The payload does not fit the policy's JSON Schema.
    AcceptSchema = "accept_schema",
    /// The text is not WKT.
    WktSyntax = "wkt_syntax",
    /// The bytes are not WKB.
    WkbSyntax = "wkb_syntax",
    /// The declared coordinate system is not in the `g1` table.
    CrsUnknown = "crs_unknown",
    /// The declaration cannot be read, or could mean more than one system.
    CrsAmbiguous = "crs_ambiguous",
    /// The operation is approximate and the policy does not accept that in words.
    CrsApproximate = "crs_approximate",
    /// Two declarations in one payload disagree.
    CrsConflict = "crs_conflict",
    /// The policy requires a declaration and there is none.
    CrsMissing = "crs_missing",
    /// A position is outside the projection's domain.
    CrsDomain = "crs_domain",
    /// A `crs` member after `features` cannot be honoured on a stream.
    CrsAfterFeatures = "crs_after_features",
    /// A pointer of the identity finds nothing.
    IdentityMissing = "identity_missing",
    /// The identity's value cannot be used as declared.
    IdentityType = "identity_type",
    /// The version pointer finds nothing.
    VersionMissing = "version_missing",
    /// The version is neither an integer nor an RFC 3339 time.
    VersionType = "version_type",
    /// The policy contradicts itself or names something impossible.
    PolicyInvalid = "policy_invalid",
    /// Too many bytes.
    LimitBytes = "limit_bytes",
    /// Nested too deeply.
    LimitDepth = "limit_depth",
    /// Too many values.
    LimitValues = "limit_values",
    /// Too many members.
    LimitMembers = "limit_members",
    /// A string is too long.
    LimitString = "limit_string",
    /// A number is too long.
    LimitNumber = "limit_number",
    /// Too many positions.
    LimitPositions = "limit_positions",
    /// Too many rings or lines.
    LimitRings = "limit_rings",
    /// Too many parts.
    LimitParts = "limit_parts",
    /// A geometry algorithm used up its work budget.
    LimitWork = "limit_work",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Box<Parts>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Parts {
    code: Code,
    pointer: String,
    message: String,
    hint: Option<String>,
}

/// What a fallible function of this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A refusal at `pointer` (RFC 6901; empty for the whole payload).
    pub fn new(code: Code, pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Error(Box::new(Parts { code, pointer: pointer.into(), message: message.into(), hint: None }))
    }

    /// The same refusal with a hint how to mend it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// The same refusal, seen from a document that holds the payload at `prefix`.
    #[must_use]
    pub fn under(mut self, prefix: &str) -> Self {
        self.0.pointer.insert_str(0, prefix);
        self
    }

    /// The same refusal at another place.
    #[must_use]
    pub(crate) fn at(mut self, pointer: String) -> Self {
        self.0.pointer = pointer;
        self
    }

    /// The stable code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// Where in the payload, as a JSON pointer.
    pub fn pointer(&self) -> &str {
        &self.0.pointer
    }

    /// One sentence for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What would mend it, where that is known.
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.message)?;
        if !self.0.pointer.is_empty() {
            write!(f, " at {}", self.0.pointer)?;
        }
        write!(f, " [{}]", self.0.code)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn every_code_is_documented_and_unique() {
        let documentation = include_str!("../../../docs/errors.md");
        for (i, code) in Code::ALL.iter().enumerate() {
            assert!(documentation.contains(&format!("| `{code}` |")), "{code} is not in docs/errors.md");
            assert!(Code::ALL[..i].iter().all(|other| other.as_str() != code.as_str()), "{code} occurs twice");
        }
    }
}
